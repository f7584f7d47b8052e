# SPDX-License-Identifier: Apache-2.0
"""Bound hosts whose client or server misbehaves by HTTP/1.1, and servers with certificates that do not verify: refused,
nothing smuggled, no credential sent, the gate goes on. Rules: CREDENTIALS.md."""
import re
import time

import pytest

import test_http
from guest import Guest, Secrets, bearer, gate_memory_if_plain, parse, since, values

BAD_CERTIFICATES = ["expired.example", "wrongname.example", "selfsigned.example", "unknownca.example", "tls11.example"]
HOST = "h1.example"


@pytest.fixture(scope="module")
def secrets(box):
    return Secrets(box, "rude")


@pytest.fixture(scope="module")
def guest(box, secrets):
    box.lab.service("bound")
    with Guest(box, bearer(secrets)) as started:
        yield started


def works(guest, host=HOST):
    (answer,) = guest.request(host)
    assert answer.status == 200, answer


# ---- upstreams that are not who they should be ----

@pytest.mark.parametrize("host", BAD_CERTIFICATES)
@pytest.mark.parametrize("alpn", ["http/1.1", "h2"])
def test_bad_certificate(box, guest, host, alpn):
    """The client learns that it failed, never a good answer; the server never sees a request, let alone a credential."""
    command = f"curl -sS --max-time 10 {'--http2' if alpn == 'h2' else '--http1.1'} -w %{{http_code}} https://{host}/headers"
    done, seen = since(box, lambda: guest.run(command))
    code = done["out"][-3:]
    assert code == "502" or (code == "000" and done["code"] in (35, 56, 52)), done
    assert done["code"] != 28 and not [entry for entry in seen if entry["event"] == "request"], (done, seen)
    assert "labtok" not in str(seen)


def test_the_log_says_why(box):
    """What is wrong with a certificate, ours or the server's, and what to do: in the log, in the answer and at the end."""
    secrets, roots = Secrets(box, "why"), box.file("lab-roots.pem", open(box.lab.ca, encoding="utf-8").read())
    hosts = {"expired.example": "certificate has expired", "wrongname.example": "hostname mismatch",
             "selfsigned.example": "self-signed certificate; if its authority is yours, name that with --upstream-ca FILE",
             "unknownca.example": "unable to get local issuer certificate; if its authority is yours, name that with --upstream-ca FILE"}
    trust = "let it use the file in SSL_CERT_FILE, or trust what `penstock ca export` prints"
    with Guest(box, bearer(secrets, [*hosts, HOST, "h2.example", "keys.example"])) as guest:
        for host, words in hosts.items():
            why = "the server's certificate is not accepted: " + words
            for version in ("--http1.1", "--http2"):
                done = guest.run(f"curl -sS {version} --max-time 10 https://{host}/headers")
                assert f'"hint":"{why}"' in done["out"], done
            lines = guest.log(name=host, event="decision", protocol="tcp")
            assert [(line["reason"], line["hint"]) for line in lines] == [("upstream_failed", why)] * 2, lines
        # Clients that know other authorities: one says so, one goes away after the handshake, as those do that look at it then.
        done = guest.run(f"curl -sS --cacert {roots} --capath /none https://{HOST}/headers")
        assert done["code"] == 60, done
        (line,) = guest.log(name=HOST, event="decision", protocol="tcp")
        assert (line["verdict"], line["reason"]) == ("deny", "binding_failed") and line["hint"].startswith("the client does not accept"), line
        assert trust in line["hint"], line
        script = ("import socket, ssl, sys\ncontext = ssl._create_unverified_context()\ncontext.set_alpn_protocols(sys.argv[2:])\n"
                  "context.wrap_socket(socket.create_connection((sys.argv[1], 443)), server_hostname=sys.argv[1]).close()")
        for host, protocol in (("h2.example", "h2"), ("keys.example", "http/1.1")):
            assert guest.run("/usr/bin/python3", "-c", script, host, protocol)["code"] == 0
            end = time.monotonic() + 10
            while not (lines := guest.log(name=host, event="decision", protocol="tcp")) and time.monotonic() < end:
                time.sleep(0.05)
            assert [(line["verdict"], line["reason"]) for line in lines] == [("allow", "allowed_name")], lines
            assert lines[0]["hint"].startswith("the client ended the connection before its first request") and trust in lines[0]["hint"], lines
    for host, words in hosts.items():
        assert f"penstock: failed tcp {host}:443 (upstream_failed) 2 times; the server's certificate is not accepted: {words}\n" in guest.stderr()
    assert f"penstock: failed tcp {HOST}:443 (binding_failed) 1 time; the client does not accept the certificate" in guest.stderr()


def test_insecure_clients_change_nothing(box, guest):
    """-k is the client's own affair: the gate verifies all the same."""
    done, seen = since(box, lambda: guest.run("curl -ksS --max-time 10 -w %{http_code} https://selfsigned.example/headers"), event="request")
    assert done["out"][-3:] in ("502", "000") and not seen, (done, seen)


def test_upstream_ca(box, guest):
    """Further roots, only for those who ask."""
    secrets = Secrets(box, "upstream")
    path = box.file("upstream-ca.pem", open(box.lab.path("run/bound/selfsigned.pem"), encoding="utf-8").read())
    with Guest(box, bearer(secrets, ["unknownca.example", "wrongname.example"]), options=["--upstream-ca", path]) as other:
        (answer,), seen = since(box, lambda: other.request("unknownca.example"), event="request")
        assert answer.status == 200 and values(seen[0], "authorization") == ["Bearer " + secrets.values["unknownca.example"]]
        done, seen = since(box, lambda: other.run("curl -sS --max-time 10 -w %{http_code} https://wrongname.example/"), event="request")
        assert done["out"][-3:] in ("502", "000") and not seen, (done, seen)


# ---- smuggling ----

BAD = {**{name: text for name, text in test_http.BAD.items() if name != "prior knowledge h2c"},
       "chunk extension with a line feed": "POST /x HTTP/1.1\r\nHost: {h}\r\nTransfer-Encoding: chunked\r\n\r\n2;a\nb\r\nhi\r\n0\r\n\r\n{s}",
       "chunk size too large": "POST /x HTTP/1.1\r\nHost: {h}\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff1\r\nhi\r\n0\r\n\r\n{s}",
       "chunk longer than it says": "POST /x HTTP/1.1\r\nHost: {h}\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhiXX\r\n0\r\n\r\n{s}",
       "two codings": "POST /x HTTP/1.1\r\nHost: {h}\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n{s}",
       "chunked twice": "POST /x HTTP/1.1\r\nHost: {h}\r\nTransfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n{s}",
       "bare line feeds": "GET /x HTTP/1.1\nHost: {h}\n\nGET /smuggled HTTP/1.1\nHost: {h}\n\n",
       "line feed in the target": "GET /x\n HTTP/1.1\r\nHost: {h}\r\n\r\n{s}",
       "space in the target": "GET /x y HTTP/1.1\r\nHost: {h}\r\n\r\n{s}",
       "control in the target": "GET /x\x01 HTTP/1.1\r\nHost: {h}\r\n\r\n{s}",
       "chunked for 1.0": "POST /x HTTP/1.0\r\nHost: {h}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{s}",
       "negative length": "POST /x HTTP/1.1\r\nHost: {h}\r\nContent-Length: -1\r\n\r\n{s}",
       "length too large": "POST /x HTTP/1.1\r\nHost: {h}\r\nContent-Length: 99999999999999999999\r\n\r\n{s}",
       "coding by another spelling": "POST /x HTTP/1.1\r\nHost: {h}\r\nTransfer-Encoding: chunk\r\n\r\n0\r\n\r\n{s}",
       "vertical tab in a coding": "POST /x HTTP/1.1\r\nHost: {h}\r\nTransfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n{s}",
       "method of symbols": "G{{T /x HTTP/1.1\r\nHost: {h}\r\n\r\n{s}",
       "h2 in the clear": "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"}
SMUGGLED = f"GET /smuggled HTTP/1.1\r\nHost: {HOST}\r\n\r\n"
BODY_IS_BAD = ("bad chunk size", "chunk extension with a line feed", "chunk size too large", "chunk longer than it says")


@pytest.mark.parametrize("kind", BAD)
def test_smuggling_is_refused(box, guest, kind):
    text = BAD[kind] if kind in test_http.BAD else BAD[kind].format(h=HOST, s=SMUGGLED)
    text = text.replace("mirror.test", HOST)
    answer, seen = since(box, lambda: guest.do("h1", host=HOST, text=text, silence=4), event="request")
    paths = [entry["path"] for entry in seen]
    # A head may be on its way before its body turns out to be malformed; nothing after it may.
    assert paths == [] or (paths == ["/x"] and kind in BODY_IS_BAD), (paths, answer)
    first = parse(answer["text"])[:1]
    assert not first or first[0].status in (400, 403, 413, 421, 501, 505), answer
    assert answer["end"] != "silent", answer


def test_upgrade_to_h2_is_left_out(box, guest):
    text = (f"GET /headers HTTP/1.1\r\nHost: {HOST}\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
            "HTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n")
    answer, seen = since(box, lambda: guest.do("h1", host=HOST, text=text, silence=1), event="request")
    assert seen and not any(values(entry, name) for entry in seen for name in ("upgrade", "http2-settings", "connection")), (answer, seen)
    assert parse(answer["text"])[0].status == 200, answer


# ---- limits ----

@pytest.mark.parametrize("headers", [f"X-Large: {'a' * 200000}\r\n", "X-Many: a\r\n" * 20000, "X" * 70000 + ": a\r\n"], ids=["size", "count", "name"])
def test_limits_of_heads(box, guest, headers):
    before = gate_memory_if_plain(guest)
    answer, seen = since(box, lambda: guest.request(HOST, headers=headers), event="request")
    assert not seen and (not answer or answer[0].status in (400, 431)), answer
    assert gate_memory_if_plain(guest) - before < 8 << 20
    works(guest)


def test_limit_of_targets(box, guest):
    answer, seen = since(box, lambda: guest.request(HOST, "/" + "a" * 200000), event="request")
    assert not seen and (not answer or answer[0].status in (400, 414, 431)), answer


def test_heads_without_end(guest):
    text = f"GET / HTTP/1.1\r\nHost: {HOST}\r\nX: "
    answer = guest.do("h1", host=HOST, parts=[text] + ["a" * 10000] * 100, silence=3)
    assert answer["end"] != "silent", answer
    works(guest)


@pytest.mark.parametrize("bytes_", ["\x00\x01\x02\x03garbage\r\n\r\n", "\r\n" * 5000, "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"],
                         ids=["garbage", "empty lines", "TLS in TLS"])
def test_not_http(box, guest, bytes_):
    answer, seen = since(box, lambda: guest.do("h1", host=HOST, text=bytes_, silence=1), event="request")
    assert not seen, answer
    works(guest)


def test_clients_that_go_away(guest):
    """In the handshake, in a head, in a body, in an answer."""
    for parts in ([""], ["GET / HT"], [f"PUT /upload HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: 100\r\n\r\nhello"],
                  [f"GET /download/50000000 HTTP/1.1\r\nHost: {HOST}\r\n\r\n"]):
        guest.do("h1", host=HOST, parts=parts, silence=0.05)
    guest.run("timeout 0.1 openssl s_client -connect h1.example:443 -servername h1.example -quiet")
    works(guest)


# ---- servers that misbehave ----

# What a client may see: the status, or None where it sees no answer; 502 is always fine.
RUDE = {"close": None, "head": None, "chunk": 200, "chunkcut": 200, "short": 200, "two": 200, "lengths": None, "both": None,
        "status": None, "version": None, "garbage": None, "nul": None, "unasked": None, "reset": 200, "bomb": None, "informs": None}
UNFINISHED = ("chunk", "chunkcut", "short", "reset")


@pytest.mark.parametrize("kind", RUDE)
def test_rude_servers(guest, kind):
    before, started = gate_memory_if_plain(guest), time.monotonic()
    answer = guest.do("h1", host=HOST, text=f"GET /rude/{kind} HTTP/1.1\r\nHost: {HOST}\r\n\r\n", silence=6)
    assert time.monotonic() - started < 5, answer["end"]
    statuses = [one.status for one in parse(answer["text"]) if one.status != 103]
    assert statuses in ([], [502]) or statuses == [RUDE[kind]], answer["text"][:1000]
    assert "second" not in answer["text"] and "not http" not in answer["text"], answer
    if kind in UNFINISHED and statuses == [200]:
        assert answer["end"] != "silent" and not answer["text"].endswith("0\r\n\r\n"), "the client knows that it is not whole"
    assert gate_memory_if_plain(guest) - before < 8 << 20
    works(guest)


def test_silent_server_and_client_that_leaves(guest):
    guest.do("h1", host=HOST, text=f"GET /silent HTTP/1.1\r\nHost: {HOST}\r\n\r\n", silence=0.3)
    works(guest)


def test_unreachable_upstream(box, secrets):
    with Guest(box, bearer(secrets, ["refused.example"]), allow=[{"host": "refused.example"}]) as guest:
        done = guest.run("curl -sS --max-time 10 -w %{http_code} https://refused.example/")
        assert done["out"][-3:] in ("502", "000") and done["code"] != 28, done
