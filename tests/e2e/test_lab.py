# SPDX-License-Identifier: Apache-2.0
"""The lab itself: without penstock everything can be reached, so that a refusal in the other tests means something."""
import hashlib
import json
import os
import subprocess

import pytest

import zone
from conftest import HERE

OPEN = [
    (["connect", "198.51.100.99", 443], "connected"),
    (["connect", "2001:db8:100::99", 80], "connected"),
    (["connect", "10.9.9.9", 80], "connected"),
    (["connect", "169.254.169.254", 80], "connected"),
    (["connect", "fd00:dead::9", 443], "connected"),
    (["connect", zone.OWN4, zone.PORT_HOST_PLAIN], "connected"),
    (["connect", zone.OWN6, zone.PORT_HOST_PLAIN], "connected"),
    (["connect", "127.0.0.1", zone.PORT_HOST_TLS], "connected"),
    (["connect", "::1", zone.PORT_HOST_TLS], "connected"),
    (["banner", "203.0.113.1", zone.PORT_BANNER], "220 lab.example ready\r\n"),
    (["half_close", "2001:db8:100::1", zone.PORT_DISCARD, 3], f"3 {hashlib.sha256(b'yyy').hexdigest()}\n"),
    (["receive", "203.0.113.1", zone.PORT_CHARGEN, 1000000], 1000000),
    (["urgent", "203.0.113.1", zone.PORT_URGENT], "before U after\none ! two"),
    (["udp", "203.0.113.1", 7, "hi"], "hi"),
    (["udp", "2001:db8:100::1", 7, "hi"], "hi"),
    (["websocket", "mirror.test", 80, "/ws", "hello"], "hello"),
    (["connect", "203.0.113.1", zone.PORT_CLOSED], "ECONNREFUSED"),
    (["connect", zone.REFUSED4, 443], "ECONNREFUSED"),
    (["connect", zone.REFUSED6, 443], "ECONNREFUSED"),
    (["connect", zone.UNREACHABLE4, 443], "EHOSTUNREACH"),
    (["connect", zone.UNREACHABLE6, 443], "EHOSTUNREACH"),
    (["resolve", "both.example"], ["198.51.100.20", "2001:db8:100::20"]),
    (["resolve", "cname.example"], ["198.51.100.20", "2001:db8:100::20"]),
    (["dns_rcode", "nosuch.example"], 3),
    (["dns_rcode", "servfail.example"], 2),
]


def without_penstock(lab, *operations):
    done = subprocess.run(["/usr/bin/python3", "-B", os.path.join(HERE, "probe.py"), json.dumps(operations)],
                          stdout=subprocess.PIPE, timeout=60, check=True, env={**os.environ, **lab.environment()})
    return [answer["result"] for answer in json.loads(done.stdout)]


def test_everything_is_there(lab):
    answers = without_penstock(lab, *[operation for operation, _ in OPEN])
    assert dict(zip(map(str, [o for o, _ in OPEN]), answers)) == {str(o): wanted for o, wanted in OPEN}


def test_dead_addresses_are_silent(lab):
    assert without_penstock(lab, ["connect", zone.DEAD4, 443]) == ["timeout"]


def test_tls_by_name_and_by_protocol(lab):
    text, = without_penstock(lab, ["tls", "both.example", 443, "both.example"])
    assert "200 OK" in text and "lab both.example" in text
    unknown, = without_penstock(lab, ["tls", "198.51.100.9", 443, "unknown.example"])
    assert unknown == "tls CERTIFICATE_VERIFY_FAILED"


def test_no_server_address_is_the_hosts_own(lab):
    for address in ("198.51.100.20", "10.9.9.9", "2001:db8:100::20"):
        route = subprocess.run(["ip", "route", "get", address], stdout=subprocess.PIPE, text=True, check=True).stdout
        assert "local" not in route and "uplink" in route


@pytest.mark.parametrize("server,transport", [(zone.ROUTER6, "+notcp"), (zone.FOREIGN_DNS4, "+tcp"), (zone.FOREIGN_DNS6, "+tcp")])
def test_dns_servers_and_their_log(lab, server, transport):
    before = len(lab.dns_queries("v4.example"))
    out = subprocess.run(["dig", "+short", transport, f"@{server}", "v4.example"], stdout=subprocess.PIPE, text=True, check=True)
    assert out.stdout == "198.51.100.21\n"
    assert [entry["server"] for entry in lab.dns_queries("v4.example")[before:]] == [server]
