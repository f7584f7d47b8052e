# SPDX-License-Identifier: Apache-2.0
"""Chromium, headless: pages of both families, refusals, and its ways around the system's network (DNS over HTTPS, QUIC)."""
import json
import os
import re

NAMES = "--allow v4.example --allow v6.example --allow both.example"
SCRIPT = """export HOME=$PWD/browser
certutil -d sql:$HOME/.pki/nssdb -N --empty-password
certutil -d sql:$HOME/.pki/nssdb -A -n lab -t C,, -i $LAB_CA
exec chromium --headless=new --no-sandbox --disable-gpu --user-data-dir=$HOME/data --dump-dom "$1"
"""
DOH = {"dns_over_https": {"mode": "automatic", "templates": "https://dns.google/dns-query"}}


def browse(box, url):
    """The page, once all of it is loaded or refused. The lab's CA is trusted as a user would have it: in the data base."""
    home = box.path("browser")
    if not os.path.exists(home):
        for folder in ("", "/data", "/.pki", "/.pki/nssdb"):
            os.mkdir(home + folder)
            box.give(home + folder)
        box.file("browser/data/Local State", json.dumps(DOH))
    return box.run(NAMES, "sh", "-c", SCRIPT, "sh", url, timeout=90)


def test_page(box):
    """A page of v4.example with parts from elsewhere. Its Alt-Svc header makes Chromium try QUIC, its profile DNS over HTTPS."""
    result = browse(box, "https://v4.example/browser.html")
    assert dict(re.findall(r'data-(\w+)="(\w+)"', result.out)) == {
        "v4": "loaded", "v6": "loaded", "both": "loaded", "name": "failed", "port": "failed", "address": "failed"}, result
    assert set(result.reasons(protocol="udp", name="v4.example", port=443)) == {"protocol_denied"}, result
    assert set(result.reasons(name="dns.google")) == {"dns_name_denied"}, result


def test_refused_page(box):
    result = browse(box, "https://denied.example/")
    assert "net::ERR_INTERNET_DISCONNECTED" in result.err and "penstock: denied dns denied.example" in result.err, result
