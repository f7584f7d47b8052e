# SPDX-License-Identifier: Apache-2.0
"""Chromium, headless: pages of both families, refusals, and its ways around the system's network (DNS over HTTPS, QUIC)."""
import json
import os
import re

import pytest

from conftest import Box
from lab import kinds

# Real addresses: pages may load nothing from addresses that Chromium takes for private, and the synthetic ones are such. So
# are the lab's own, which stand for public ones here.
POLICY = {"dns": {"names": "real"}, "allow": [{"host": host} for host in ("v4.example", "v6.example", "both.example")]}
PUBLIC = ",".join(f"{address}:443=public" for address in ("198.51.100.21", "[2001:db8:100::21]", "198.51.100.20",
                                                          "[2001:db8:100::20]"))
SCRIPT = """export HOME=$PWD/browser
[ -e $HOME/.pki/nssdb/cert9.db ] || certutil -d sql:$HOME/.pki/nssdb -N --empty-password
certutil -d sql:$HOME/.pki/nssdb -A -n lab -t C,, -i $LAB_CA
exec chromium --headless=new --no-sandbox --disable-gpu --user-data-dir=$HOME/data --ip-address-space-overrides="$1" \\
    --dump-dom "$2"
"""
DOH = {"dns_over_https": {"mode": "automatic", "templates": "https://dns.google/dns-query"}}


@pytest.fixture(scope="session")
def person(lab):
    """Chromium takes seconds of processor time to start: one kind of user is enough."""
    return Box(lab, kinds()[-1])


def browse(box, url):
    """The page, once all of it is loaded or refused. The lab's CA is trusted as a user would have it: in the data base."""
    home = box.path("browser")
    if not os.path.exists(home):
        for folder in ("", "/data", "/.pki", "/.pki/nssdb"):
            os.mkdir(home + folder)
            box.give(home + folder)
        box.file("browser/data/Local State", json.dumps(DOH))
    return box.run(POLICY, "sh", "-c", SCRIPT, "sh", PUBLIC, url, timeout=90)


def test_page(person):
    """A page with parts from elsewhere. Its Alt-Svc header makes Chromium try QUIC, the profile DNS over HTTPS."""
    result = browse(person, "https://v4.example/browser.html")
    assert dict(re.findall(r'data-(\w+)="(\w+)"', result.out)) == {
        "v4": "loaded", "v6": "loaded", "both": "loaded", "name": "failed", "port": "failed", "address": "failed"}, result
    assert result.reasons(protocol="udp", port=443, verdict="deny"), result
    # Whether it asks for its DNS over HTTPS depends on its timing: each question was refused, and no other trace is left of it.
    asked = [line for line in result.log if line["name"] == "dns.google"]
    assert all((line["protocol"], line["verdict"], line["reason"]) == ("dns", "deny", "dns_name_denied") for line in asked), result
    assert not person.lab.dns_queries("dns.google"), person.lab.dns_queries("dns.google")
    assert not [entry for entry in person.lab.http_requests() if "dns.google" in (entry["host"], entry["sni"])]


def test_refused_page(person):
    result = browse(person, "https://denied.example/")
    assert "net::ERR_INTERNET_DISCONNECTED" in result.err and "penstock: denied dns denied.example" in result.err, result
