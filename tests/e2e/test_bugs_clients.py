# SPDX-License-Identifier: Apache-2.0
"""Section F of the bug list (tests/bugs.md): what real tools need of the path. The tools themselves: test_clients.py,
test_matrix*.py."""
import hashlib
import ssl

import pytest

import zone

CIDR = "--allow-cidr 203.0.113.0/24 --allow-cidr 2001:db8:100::/48"
NAME = "--allow both.example"
HTTP = {"allow": [{"host": "mirror.test", "protocol": "http"}, {"host": "unasked.example", "protocol": "http"}, {"host": "both.example"}]}
CA_VARIABLES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "DENO_CERT", "PIP_CERT",
                "AWS_CA_BUNDLE", "CARGO_HTTP_CAINFO", "NIX_SSL_CERT_FILE", "JAVA_TOOL_OPTIONS")


def test_clients_see_the_servers_own_certificate(box):
    """Nothing is terminated that has no need of it: no certificate of ours, so no trust store to change and nothing to trust."""
    with open(box.lab.path("tls/server.pem"), encoding="utf-8") as file:
        own = hashlib.sha256(ssl.PEM_cert_to_DER_cert(file.read())).hexdigest()
    for policy in (NAME, "--network all", "--allow-cidr 198.51.100.0/24"):
        host = "198.51.100.20" if "cidr" in policy else "both.example"
        results, result = box.craft(policy, ["certificate", host, 443, "both.example"], ["command", "env"], ["command", "sh", "-c", "cat /etc/ssl/certs/ca-certificates.crt | sha256sum"])
        assert results[0] == own, result
        given = box.environment().items()
        set_by_us = {line for line in results[1][1].splitlines() if line.partition("=")[0] in CA_VARIABLES} - {f"{name}={value}" for name, value in given}
        assert not set_by_us, set_by_us
        with open("/etc/ssl/certs/ca-certificates.crt", "rb") as file:
            assert results[2][1].split()[0] == hashlib.sha256(file.read()).hexdigest(), result


@pytest.mark.parametrize("value", ["*", "localhost,127.0.0.1,::1", "both.example", ""])
def test_no_proxy_changes_nothing(box, value):
    """Loopback is the sandbox's own, a listed host is reached, another is not, whatever these variables hold."""
    script = ("python3 -m http.server --bind 127.0.0.1 7777 >/dev/null 2>&1 & until nc -z 127.0.0.1 7777; do sleep 0.1; done; get='curl -sS -o /dev/null -w %{http_code}\\n'; "
              f"$get http://127.0.0.1:7777/; $get http://localhost:7777/; $get --cacert {box.lab.ca} https://both.example/; curl -s https://denied.example/; echo $?; "
              f"curl -s http://127.0.0.1:{zone.PORT_HOST_PLAIN}/; echo $?; env | grep -i '^[a-z]*_proxy=' | grep -vi '^no_proxy'; kill %1")
    result = box.run(NAME, "bash", "-c", script, env={"NO_PROXY": value, "no_proxy": value, "http_proxy": "http://192.0.2.2:1", "HTTPS_PROXY": "http://192.0.2.2:1"})
    assert result.out == "200\n200\n200\n6\n7\n", result


# ---- volume ----

def test_many_uploads_at_once(box):
    """32 in parallel, each compared by its SHA-256 at the other end; then one that trickles."""
    results, result = box.craft(CIDR, ["uploads", "203.0.113.1", zone.PORT_DISCARD, 32, 4 << 20], ["uploads", "2001:db8:100::1", zone.PORT_DISCARD, 8, 4 << 20],
                                ["uploads", "203.0.113.1", zone.PORT_DISCARD, 4, 1 << 20, 0.1])
    assert results == [32, 8, 4], result


def test_uploads_go_in_large_packets(box):
    """Of each family, the kernel's own jumbograms among them: the rules refuse none, else they creep."""
    results, result = box.craft(CIDR, *[["upload_packets", host, zone.PORT_DISCARD, 32 << 20] for host in ("203.0.113.1", "2001:db8:100::1")])
    assert all(sent == 1 and packets < 100 and refused == 0 for sent, packets, refused in results), (results, result)


def test_upload_of_two_gigabytes(box):
    if box.kind == "root":
        return  # it is the same path
    (answer,), result = box.craft(CIDR, ["uploads", "203.0.113.1", zone.PORT_DISCARD, 1, 2 << 30], timeout=120)
    assert answer == 1, result
    flow = [line for line in result.log if line["event"] == "flow"]
    assert len(flow) == 1 and flow[0]["bytes_out"] == 2 << 30, flow


def test_large_upload_by_name_and_http(box):
    """Through the TLS of a listed name, and through the HTTP relay: length and content arrive."""
    size = 50 << 20
    result = box.run(HTTP, "sh", "-c", f"head -c {size} /dev/zero >big; for url in https://both.example http://mirror.test; do "
                                       f"curl -sS --cacert {box.lab.ca} -T big -o back -w '%{{http_code}} %{{size_upload}} ' $url/headers; tail -c 1000000 back | tr -d '\\0' | wc -c; "
                                       "stat -c %s back; done; rm big back")
    lines = result.out.splitlines()
    assert [line.split()[:2] for line in lines[0::2]] == [["200", str(size)]] * 2 and lines[0].split()[2] == lines[2].split()[2] == "0", result
    assert all(size < int(line) < size + 2000 for line in lines[1::2]), result


def test_slow_reader_gets_all(box):
    results, result = box.craft(CIDR, ["slow_reader", "203.0.113.1", zone.PORT_CHARGEN, 3000000, 0.005], ["slow_reader", "2001:db8:100::1", zone.PORT_CHARGEN, 3000000, 0.005])
    assert results == [3000000, 3000000], result


# ---- streams ----

@pytest.mark.parametrize("path", ["/events", "/events-plain"])
def test_events_arrive_one_by_one(box, path):
    """Server-sent events, by TLS that passes and through the HTTP relay, with a content type and without."""
    results, result = box.craft(HTTP, ["events", "both.example", 443, "both.example", path, True], ["events", "mirror.test", 80, "mirror.test", path, False])
    for count, spread in results:
        assert count == 6 and spread > 300, results  # sent over half a second


KEEP = ["Upgrade: websocket", "Connection: keep-alive, Upgrade"]
PLAIN = ["Connection: Upgrade", "Upgrade: WebSocket"]


def test_websocket_frames(box):
    """256 KiB of binary, through TLS that passes and through the HTTP relay; the fields as different clients write them; a
    server that speaks first."""
    targets = [("both.example", 443, True), ("mirror.test", 80, False)]
    results, result = box.craft(HTTP, *[["websocket", name, port, name, secure, 1 << 18, fields, greeting] for name, port, secure in targets
                                        for fields in (KEEP, PLAIN) for greeting in (False, True)])
    assert results == ["echoed"] * 8, result


NOT_ASKED = ["", "X-Upgrade: websocket\r\nConnection: X-Upgrade\r\n", "Upgrade: websocket\r\nConnection: keep-alive\r\n", "Connection: Upgraded\r\nUpgrade: websocket\r\n"]


def test_tunnel_only_where_one_was_asked_for(box):
    """A denied host gets none; a 101 that nobody asked for, by the fields as a whole, opens none: what the client sent after
    its request goes nowhere."""
    requests = [f"GET / HTTP/1.1\r\nHost: unasked.example\r\n{fields}\r\nGET / HTTP/1.1\r\nHost: denied.example\r\n\r\n" for fields in NOT_ASKED]
    results, result = box.craft(HTTP, ["websocket", "mirror.test", 80, "denied.example", False, 100, KEEP],
                                *[["send_and_read", "unasked.example", 80, text] for text in requests])
    assert results[0] == "403", result
    for text in results[1:]:
        assert text.startswith("HTTP/1.1 502 ") and "denied.example" not in text and "<timeout>" not in text, result


def test_request_in_the_flight_of_the_finished(box):
    results, result = box.craft(NAME, ["same_flight", "both.example", 443, "both.example"], ["same_flight", "198.51.100.20", 443, "both.example"])
    assert results == ["TLSv1.3 200"] * 2, result


# ---- other things that tools do ----

def test_a_named_port_for_any_protocol(box):
    """As Git over SSH needs it: a name with a port, no helper, no proxy command; nothing else of that host, no other host."""
    policy = {"allow": [{"host": "banner.example", "protocol": "tcp", "ports": [110]}]}
    results, result = box.craft(policy, ["banner", "banner.example", 110], ["connect", "banner.example", 3306], ["connect", zone.BANNER4, 110], ["connect", "both.example", 110])
    assert results[0] == "220 lab.example ready\r\n" and results[1] == results[2] == "ECONNREFUSED" and "resolve" in results[3], result


def test_certificate_status_of_an_unlisted_host(box):
    """OCSP and CRLs are plain HTTP to hosts that nobody lists: refused at once, and the log says which host and what would
    allow it."""
    result = box.run(NAME, "sh", "-c", "curl -sS http://denied.example/ocsp; echo $?; openssl ocsp -url http://denied.example/ -issuer $LAB_CA -serial 1 2>&1 | tail -1")
    assert result.out.startswith("6\n") and result.seconds < 15, result
    rows = [line for line in result.log if line["name"] == "denied.example"]
    assert rows and all(line["reason"] == "dns_name_denied" and "denied.example" in line.get("hint", "") for line in rows), rows
    assert "denied dns denied.example" in result.err or "denied.example" in result.err, result


def test_namespaces_inside_the_sandbox(box):
    """What an engine inside would make: a namespace that shares the sandbox's network is judged as it is, with root there or
    not; one with a network of its own has no way out, and no link into the sandbox's can be made."""
    get = f"curl -sS -o /dev/null --cacert {box.lab.ca} -w '%{{http_code}} ' https://both.example/; curl -s https://denied.example/; echo $?; curl -s https://203.0.113.9:8443/; echo $?"
    result = box.run(NAME, "unshare", "--user", "--map-root-user", "--fork", "sh", "-c", get)
    assert result.out == "200 6\n7\n", result
    inner = "ip link set lo up; ip route add default dev lo; curl -sS --max-time 1 https://203.0.113.9/; echo $?; curl -s --max-time 1 https://both.example/; echo $?"
    result = box.run(NAME, "unshare", "--user", "--map-root-user", "--net", "sh", "-c", inner)
    assert not {"0"} & set(result.out.split()) and result.log == [], result
    result = box.run(NAME, "unshare", "--user", "--map-root-user", "sh", "-c", "ip link add br0 type bridge; echo $?; ip link add v0 type veth peer name v1; echo $?; test -e /dev/net/tun; echo $?")
    assert "0" not in result.out.split() and len(result.out.split()) == 3, result
