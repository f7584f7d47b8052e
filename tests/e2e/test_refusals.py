# SPDX-License-Identifier: Apache-2.0
"""How a refusal looks: in the client's own protocol, at once, with its reason in the log."""
import json

import pytest

import zone

AT_ONCE_MS = 50       # of gate time; the best of a few tries in the sandbox
TRIES = 5
UNREACHABLE = {"EHOSTUNREACH", "ENETUNREACH"}
UDP_ERRORS = UNREACHABLE | {"EACCES", "EPERM", "ECONNREFUSED"}

# policy, host, port, errno names that connect may give, reasons that the log may give
CONNECT = [
    ("--network none", "203.0.113.1", 443, {"ECONNREFUSED"}, {"base_denied"}),
    ("--network none", "2001:db8:100::1", 443, {"ECONNREFUSED"}, {"base_denied"}),
    ("--network none", "203.0.113.1", 25, {"ECONNREFUSED"}, {"base_denied"}),
    ("--network all", "169.254.169.254", 80, {"ECONNREFUSED"}, {"private_address"}),
    ("--network all", "10.9.9.9", 80, {"ECONNREFUSED"}, {"private_address"}),
    ("--network all", "fd00:dead::9", 80, {"ECONNREFUSED"}, {"private_address"}),
    ("--network all", "::ffff:10.9.9.9", 80, {"ECONNREFUSED"}, {"private_address"}),
    ("--network all", zone.HOST4, zone.PORT_HOST_PLAIN, {"ECONNREFUSED"}, {"private_address", "node_own_address"}),
    ("--network all", zone.HOST6, zone.PORT_HOST_PLAIN, {"ECONNREFUSED"}, {"private_address", "node_own_address"}),
    ("--network all", zone.OWN4, zone.PORT_HOST_PLAIN, {"ECONNREFUSED"}, {"private_address", "node_own_address"}),
    ("--network all", zone.OWN6, zone.PORT_HOST_PLAIN, {"ECONNREFUSED"}, {"private_address", "node_own_address"}),
    ("--network all --deny-cidr 203.0.113.0/24", "203.0.113.1", 443, {"ECONNREFUSED"}, {"denied_cidr"}),
    ("--allow-cidr 198.51.100.0/24", "203.0.113.1", 443, {"ECONNREFUSED"}, {"base_denied"}),
    ("--allow both.example", "both.example", 8443, {"ECONNREFUSED"}, {"port_denied"}),
    # what the real dial got
    ("--allow-cidr 203.0.113.0/24", "203.0.113.1", zone.PORT_CLOSED, {"ECONNREFUSED"}, {"upstream_failed"}),
    ("--allow-cidr 203.0.113.0/24", zone.REFUSED4, 443, {"ECONNREFUSED"}, {"upstream_failed"}),
    ("--allow-cidr 2001:db8:100::/48", zone.REFUSED6, 443, {"ECONNREFUSED"}, {"upstream_failed"}),
    ("--allow-cidr 203.0.113.0/24", zone.UNREACHABLE4, 443, UNREACHABLE, {"upstream_failed"}),
    ("--allow-cidr 2001:db8:100::/48", zone.UNREACHABLE6, 443, UNREACHABLE, {"upstream_failed"}),
    ("--allow refused.example", "refused.example", 443, {"ECONNREFUSED"}, {"upstream_failed"}),
    ("--allow unreachable.example", "unreachable.example", 443, UNREACHABLE, {"upstream_failed"}),
]


@pytest.mark.parametrize("policy,host,port,errors,reasons", CONNECT, ids=[f"{p} {h}:{o}" for p, h, o, _, _ in CONNECT])
def test_connect_fails_as_on_a_plain_network(box, policy, host, port, errors, reasons):
    (answer,), result = box.probe(policy, ["connect", host, port])
    assert answer["result"] in errors, result
    assert reasons & {line["reason"] for line in result.log if line["port"] == port}, result


# Names whose answers no sandbox may reach, although the policy lists the name.
@pytest.mark.parametrize("name", ["private.example", "metadata.example", "loopback.example", "own.example", "mapped.example",
                                  "cnameprivate.example"])
def test_allowed_name_with_forbidden_answers(box, name):
    before = len(box.lab.http_requests())
    (answer,), result = box.probe(f"--allow {name}", ["tls", name, 443, name, False])
    assert "200 OK" not in str(answer["result"]), result
    assert answer["result"] != "timeout", result
    assert {"private_address", "node_own_address"} & set(result.reasons(name=name)), result
    assert box.lab.http_requests()[before:] == []


def test_mixed_answers_refuse_their_family_only(box):
    before = len(box.lab.http_requests())
    four = box.curl("--allow mixed.example", "-4", "https://mixed.example/")
    six = box.curl("--allow mixed.example", "-6", "https://mixed.example/")
    assert four.code in (6, 7) and six.code == 0, (four, six)
    assert {entry["address"] for entry in box.lab.http_requests()[before:]} == {"2001:db8:100::23"}


def test_rebinding(box):
    """A name whose answer changes to a private address between lookups."""
    before = len(box.lab.http_requests())
    operations = [["tls", "rebind.example", 443, "rebind.example"]] * 8
    answers, result = box.probe("--allow rebind.example", *operations)
    addresses = {entry["address"] for entry in box.lab.http_requests()[before:]}
    assert addresses <= {"198.51.100.26"}, result
    assert all("lab rebind.example" in str(a["result"]) for a in answers if "200 OK" in str(a["result"])), result


UNRECOGNIZED = {"tls TLSV1_UNRECOGNIZED_NAME"}
NOT_RESOLVED = {"resolve Name or service not known", "resolve No address associated with hostname"}

# policy, operation, its answers: refused within 50 ms, measured in one process
AT_ONCE = [
    ("--network none", ["connect", "203.0.113.1", 443], {"ECONNREFUSED"}),
    ("--network none", ["connect", "2001:db8:100::1", 443], {"ECONNREFUSED"}),
    ("--network all", ["connect", "169.254.169.254", 80], {"ECONNREFUSED"}),
    ("--allow both.example", ["resolve", "denied.example"], NOT_RESOLVED),
    ("--allow both.example", ["connect", "both.example", 22], {"ECONNREFUSED"}),
    ("--allow both.example", ["tls", "198.51.100.25", 443, "denied.example", False], UNRECOGNIZED),
    ("--allow both.example", ["tls", "both.example", 443, "denied.example", False], UNRECOGNIZED),
    ("--network none", ["udp", "203.0.113.1", 7, "x"], UDP_ERRORS),
    ("--network none", ["udp", "2001:db8:100::1", 7, "x"], UDP_ERRORS),
]


@pytest.mark.parametrize("policy,operation,wanted", AT_ONCE, ids=[f"{p} {' '.join(map(str, o))}" for p, o, _ in AT_ONCE])
def test_refused_at_once(box, policy, operation, wanted):
    answers, result = box.probe(policy, *[operation] * TRIES)
    assert {str(answer["result"]) for answer in answers} <= wanted, result
    assert min(a["ms"] for a in answers) < AT_ONCE_MS, answers


@pytest.mark.parametrize("host", ["203.0.113.1", "2001:db8:100::1"])
@pytest.mark.parametrize("policy", ["--network none", "--network all --deny-cidr 203.0.113.0/24 --deny-cidr 2001:db8:100::/48",
                                    "--allow-cidr 198.51.100.0/24"])
def test_udp_is_refused_with_an_error(box, policy, host):
    (answer,), result = box.probe(policy, ["udp", host, 7, "hi"])
    assert answer["result"] in UDP_ERRORS, result


@pytest.mark.parametrize("family,host", [("-4", "203.0.113.1"), ("-6", "2001:db8:100::1")])
def test_ping_is_refused_at_once(box, family, host):
    result = box.run("--network all", "ping", family, "-c1", "-W10", host)
    assert result.code == 1 and "bytes from" not in result.out, result  # 1: no answer; 2 would be: could not even try
    assert result.seconds < 5, result


# ---- TLS ----

def test_wrong_sni_on_synthetic_address(box):
    (answer,), result = box.probe("--allow both.example --allow other.example", ["tls", "both.example", 443, "other.example"])
    assert answer["result"] == "tls TLSV1_UNRECOGNIZED_NAME", result
    assert "name_mismatch" in result.reasons(event="decision"), result


@pytest.mark.parametrize("name", ["denied.example", "both.example.denied.example"])
def test_denied_sni_on_literal_address(box, name):
    (answer,), result = box.probe("--allow both.example", ["tls", "198.51.100.25", 443, name])
    assert answer["result"] == "tls TLSV1_UNRECOGNIZED_NAME", result
    assert "base_denied" in result.reasons(event="decision"), result


def test_no_sni_on_literal_address(box):
    (answer,), result = box.probe("--allow both.example", ["tls", "198.51.100.20", 443, None, False])
    assert answer["result"] == "tls TLSV1_UNRECOGNIZED_NAME", result
    assert "no_name" in result.reasons(event="decision"), result


def test_no_sni_on_synthetic_address_is_the_dialled_name(box):
    (answer,), result = box.probe("--allow both.example", ["tls", "both.example", 443, None, False])
    assert "200 OK" in answer["result"], result


@pytest.mark.parametrize("step", [1, 7, 100])
def test_client_hello_in_pieces(box, step):
    answers, result = box.probe("--allow both.example", ["tls", "both.example", 443, "both.example", True, step],
                                ["tls", "198.51.100.99", 443, "both.example", True, step])
    assert all("lab both.example" in str(a["result"]) for a in answers), result


@pytest.mark.parametrize("size", [1, 40, 200])
@pytest.mark.parametrize("name,wanted", [("both.example", "handshake"), ("denied.example", "alert")])
def test_client_hello_in_many_records(box, name, wanted, size):
    answers, result = box.probe("--allow both.example", ["tls_records", "198.51.100.99", 443, name, size],
                                ["tls_records", "both.example", 443, name, size])
    assert [a["result"] for a in answers] == [wanted] * 2, result


@pytest.mark.parametrize("text", ["\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00", "\x00" * 64, "SSH-2.0-x\r\n"])
def test_not_tls_to_an_https_name(box, text):
    (answer,), result = box.probe("--allow both.example", ["send_and_read", "both.example", 443, text])
    assert "lab both" not in answer["result"] and "<timeout>" not in answer["result"], result
    assert set(result.reasons(event="decision", name="both.example")) & {"tls_bad_hello", "not_https", "protocol_denied"}, result


# ---- plain HTTP to an HTTPS-only host ----

@pytest.mark.parametrize("url", ["http://both.example/", "http://both.example:443/"])
def test_plain_http_gets_a_403_that_says_why(box, url):
    result = box.curl("--allow both.example", "-i", url)
    assert result.code == 0, result
    head, _, body = result.out.partition("\r\n\r\n")
    lines = head.lower().split("\r\n")
    assert " 403" in lines[0], result
    assert "content-type: application/json" in lines and "x-penstock-reason: not_https" in lines, result
    answer = json.loads(body)
    assert set(answer) == {"error", "reason", "host", "port", "rule", "hint"}, answer
    assert (answer["error"], answer["reason"], answer["host"]) == ("egress_denied", "not_https", "both.example")
    assert answer["hint"], answer
    assert "not_https" in result.reasons(name="both.example"), result
