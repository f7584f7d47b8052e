# SPDX-License-Identifier: Apache-2.0
"""Section C of the bug list (tests/bugs.md): what a connection says it is, by TLS, SNI and HTTP."""
import os
import re

import pytest

import zone
from conftest import PROJECT

NAME = "--allow both.example"
HTTP = {"allow": [{"host": "mirror.test", "protocol": "http"}, {"host": "both.example"}]}
CIDR = "--allow-cidr 203.0.113.0/24 --allow-cidr 2001:db8:100::/48"
BANNER = "220 lab.example ready\r\n"
LITERAL = "198.51.100.25"  # denied.example's
GET = "GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"
LAST = "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"


@pytest.fixture
def deny(box):
    box.file("deny.yaml", 'network: {egress: {always_denied: ["denied.example"]}}\n')
    return "--network all --node-config " + box.path("deny.yaml")


def statuses(text):
    return re.findall(r"(?m)^HTTP/1\.\d (\d+)", text)


# ---- connections that only look successful ----

def test_refusal_in_the_words_of_the_client(box):
    """Of a name, of an address that nothing could allow, of a port: nobody sees a connection that then just closes."""
    script = ("nc -zw3 denied.example 443; echo nc name $?; nc -zw3 203.0.113.9 22; echo nc address $?; nc -zw3 both.example 5432; echo nc port $?; "
              "curl -sS https://denied.example/ 2>&1; echo curl name $?; curl -sS https://203.0.113.9:8443/ 2>&1; echo curl address $?; "
              "curl -sSk --connect-to denied.example:443:203.0.113.9:443 https://denied.example/ 2>&1; echo curl sni $?; "
              "python3 -c 'import socket; socket.create_connection((\"denied.example\", 443))' 2>&1 | tail -1; "
              "python3 -c 'import socket; socket.create_connection((\"203.0.113.9\", 5432))' 2>&1 | tail -1")
    result = box.run(NAME, "sh", "-c", script)
    wanted = ["nc name 1", "nc address 1", "nc port 1", "Could not resolve host: denied.example", "curl name 6", "port 8443 after", "curl address 7",
              "unrecognized name", "curl sni 35", "socket.gaierror: [Errno -2] Name or service not known", "ConnectionRefusedError: [Errno 111]"]
    at = 0
    for words in wanted:
        at = result.out.find(words, at)
        assert at >= 0, (words, result)
    assert result.seconds < 20, result


def test_no_handshake_where_nothing_could_be_allowed(box):
    """A name entry does not make every address look open: only its own port waits for a name, and without one nothing comes."""
    ports = [22, 25, 80, 993, 3306, 5432, 8443]
    results, result = box.craft(NAME, *[["connect", host, port] for host in ("203.0.113.9", "10.9.9.9", "2001:db8:100::9") for port in ports],
                                ["sni", "203.0.113.9", 443, "denied.example"], ["sni", "10.9.9.9", 443, "denied.example"],
                                ["request", "203.0.113.9", 443, "both.example"])
    assert set(results[:-3]) == {"ECONNREFUSED"}, result
    assert results[-3:] == ["alert 112", "ECONNREFUSED", "403"], result


# ---- identity of a connection, and of each request on it ----

def test_denied_host_on_a_connection_that_is_allowed(box, deny):
    """Policy: everything but a name. The first request was judged; so is the second, and an absolute form that differs."""
    before = len(box.lab.http_requests())
    results, result = box.craft(deny, *[["send_and_read", host, 80, GET.format(path="/first", host="both.example") + LAST.format(path=path, host=second)]
                                        for host in ("both.example", "198.51.100.20") for path, second in
                                        (("/second", "denied.example"), ("http://denied.example/second", "denied.example"), ("/second", "DENIED.example."))],
                                ["send_and_read", "both.example", 80, LAST.format(path="http://denied.example/x", host="both.example")])
    assert [statuses(text)[0] for text in results[:6]] == ["200"] * 6, result
    assert {statuses(text)[1] for text in results[:6]} <= {"400", "403"}, result
    assert statuses(results[6])[0] in ("400", "403"), result
    assert {entry["uri"] for entry in box.lab.http_requests()[before:]} == {"/first"}


def test_limits_of_what_is_seen_are_written_down(box):
    """Inside a TLS connection that passes nothing is judged, and the user is told."""
    with open(os.path.join(PROJECT, "THREATS.md"), encoding="utf-8") as threats, open(os.path.join(PROJECT, "man/penstock.1"), encoding="utf-8") as man:
        for text in (" ".join(threats.read().split()), " ".join(man.read().split())):
            for words in ("another Host", "HTTP/2", "DNS over HTTPS"):
                assert words in text, words


def test_ten_thousand_pipelined_requests(box):
    """All are parsed and judged, none is relayed unseen, and nothing but the socket holds those that wait."""
    before = len(box.lab.http_requests("/zen"))
    (tally, other), result = box.craft(HTTP, ["pipeline", "mirror.test", 80, "mirror.test", 10000], ["pipeline", "mirror.test", 80, "denied.example", 1000])
    assert tally["200"] >= 1 and set(tally) <= {"200"}, tally
    assert len(box.lab.http_requests("/zen")) - before == tally["200"], tally
    assert other == {"403": 1}, other


def test_request_without_a_host(box):
    """HTTP/1.0: an address rule lets it pass; under names it is for the name that was dialled, else for nobody."""
    results, result = box.craft(CIDR, ["request", "203.0.113.9", 80, None, "/", "1.0"], ["request", "2001:db8:100::9", 80, None, "/", "1.0"])
    assert results == ["200", "200"], result
    before = len(box.lab.http_requests())
    results, result = box.craft(HTTP, *[["request", host, 80, None, "/old", version] for host in ("mirror.test", LITERAL) for version in ("1.0", "1.1")])
    assert results == ["200", "400", "403", "400"], result
    assert "no_name" in result.reasons(address=LITERAL), result
    assert [entry["address"] for entry in box.lab.http_requests()[before:]] in (zone.ZONE["mirror.test"]["A"], zone.ZONE["mirror.test"]["AAAA"])


def test_other_methods(box):
    """HEAD and OPTIONS are requests as GET is; a HEAD's answer has no body to wait for."""
    result = box.run(HTTP, "curl", "-sS", "-I", "http://mirror.test/zen", "http://mirror.test/files/50M")
    assert result.code == 0 and statuses(result.out) == ["200", "200"] and result.seconds < 15, result
    results, result = box.craft(HTTP, *[["request", "mirror.test", 80, "mirror.test", "/zen", "1.1", method] for method in ("HEAD", "OPTIONS", "DELETE")],
                                *[["request", "mirror.test", 80, "denied.example", "/zen", "1.1", method] for method in ("HEAD", "OPTIONS", "DELETE", "POST")])
    assert results[0] == "200" and set(results[1:3]) <= {"200", "405"} and results[3:] == ["403"] * 4, result


# ---- the right bytes, and who speaks first ----

def test_a_passed_hello_is_the_clients_own(box):
    """Byte for byte, whatever follows it: no handshake is made anew where nothing has to be added."""
    for policy in ("--allow echo.example", "--network all"):
        results, result = box.craft(policy, *[["hello_echo", "echo.example", 443, "echo.example", size] for size in (0, 1, 100, 100000)],
                                    ["hello_echo", zone.ECHO4, 443, "echo.example", 1000])
        assert results == ["unchanged"] * 5, result


@pytest.mark.parametrize("rules", [[{"cidr": "203.0.113.0/24"}, {"host": "both.example"}], "deny",
                                   [{"host": "banner.example", "protocol": "tcp", "ports": zone.PORTS_BANNER}, {"host": "both.example"}]],
                         ids=["cidr", "all but a name", "named"])
def test_server_that_speaks_first_beside_name_rules(box, deny, rules):
    """On the ports of POP3, HTTPS and MySQL, with name entries that could have something to say."""
    policy = deny if rules == "deny" else {"allow": rules}
    named = "cidr" not in str(rules)
    targets = [(host, port) for host in ([zone.BANNER4] if "host': 'banner" not in str(rules) else []) + (["banner.example"] if named else [])
               for port in zone.PORTS_BANNER]
    answers, result = box.probe(policy, *[["banner", *target] for target in targets] * 2)
    assert [a["result"] for a in answers] == [BANNER] * len(answers), result
    assert max(a["ms"] for a in answers[len(targets):]) < 3000, answers


def test_other_ports_of_a_listed_name(box):
    """A host entry is HTTPS on 443 and says so; every other port, with whatever on it, is closed."""
    checked = box.raw("check", *NAME.split())
    assert "allow https both.example:443" in checked.out, checked
    ports = [22, 80, 3306, 5432, 6379, 8000, 8080, 8443, 27017]
    results, result = box.craft(NAME, *[["connect", "both.example", port] for port in ports if port != 80], ["request", "both.example", 5432, "both.example"],
                                ["sni", "198.51.100.20", 8443, "both.example"], ["request", "both.example", 80, "both.example"])
    assert results == ["ECONNREFUSED"] * (len(ports) + 1) + ["403"], result
    results, result = box.craft("--allow both.example:8443", *[["sni", host, 8443, name] for host in ("both.example", LITERAL) for name in ("both.example", "denied.example")],
                                ["connect", "both.example", 443])
    assert results == ["handshake", "alert 112", "handshake", "alert 112", "ECONNREFUSED"], result


# ---- QUIC ----

@pytest.mark.parametrize("host", ["203.0.113.9", "2001:db8:100::9"])
def test_datagrams_to_the_port_of_https(box, deny, host):
    """A QUIC hello in one datagram or in two: refused at once under names, carried under `all` and address rules."""
    packets = ["\xc3\0\0\0\1" + "q" * 1195, "\xc3\0\0\0\1" + "r" * 1195]
    for policy in (NAME, NAME + " --allow-cidr 198.51.100.0/24"):
        answers, result = box.probe(policy, *[["udp", host, 443, packet] for packet in packets])
        assert {a["result"] for a in answers} <= {"EHOSTUNREACH", "EACCES"} and min(a["ms"] for a in answers) < 500, result
    for policy in ("--network all", CIDR, NAME + " " + CIDR):
        answers, result = box.probe(policy, *[["udp", host, 443, packet] for packet in packets])
        assert [a["result"] for a in answers] == packets, result
