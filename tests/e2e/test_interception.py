# SPDX-License-Identifier: Apache-2.0
"""Bound hosts by TLS and HTTP/1.1: certificates, versions, whose request gets a credential, streaming. Rules: CREDENTIALS.md."""
import os
import subprocess
import time
import zlib

import pytest

from guest import OUR_CA, UNBOUND, Guest, Secrets, bearer, got, gate_memory_if_plain, parse, since, values

DAY = 86400
BULK = int(os.environ.get("PENSTOCK_BULK", 128 << 20))
PATIENCE = 30 + (BULK >> 22)  # seconds
ROOM = 48 << 20  # bytes that the gate may grow by while it relays so much


@pytest.fixture(scope="module")
def secrets(box):
    return Secrets(box, "interception")


@pytest.fixture(scope="module")
def guest(box, secrets):
    box.lab.service("bound")
    credentials = bearer(secrets)
    credentials.append({"host": "keys.example", "header": "X-Api-Key", "secret": secrets.put("second", "labtok_second")})
    with Guest(box, credentials) as started:
        yield started


# ---- TLS ----

@pytest.mark.parametrize("version", ["TLSv1_2", "TLSv1_3"])
def test_versions_of_clients(guest, version):
    facts = guest.do("facts", host="keys.example", version=version)
    assert facts["version"].replace(".", "_") == version and facts["issuer"].startswith(OUR_CA), facts


def test_old_versions_of_clients_are_refused(guest):
    done = guest.run("curl -sS --tlsv1.0 --tls-max 1.1 --ciphers ALL:@SECLEVEL=0 https://keys.example/")
    assert done["code"] == 35, done


def test_the_leaf(guest):
    """One name, P-256, short-lived, back-dated, chained by key identifiers."""
    facts = guest.do("facts", host="keys.example")
    assert facts["names"] == ["keys.example"]
    now = time.time()
    assert facts["from"] < now - 60 and now + 3600 < facts["until"] < now + 32 * DAY, facts
    text = subprocess.run(["openssl", "x509", "-noout", "-text"], input=facts["pem"], stdout=subprocess.PIPE, text=True, check=True).stdout
    for part in ("prime256v1", "Subject Key Identifier", "Authority Key Identifier", "TLS Web Server Authentication", "CA:FALSE"):
        assert part in text, text


def test_each_host_has_its_leaf_and_keeps_it(guest):
    first, second, other = (guest.do("facts", host=host) for host in ("keys.example", "keys.example", "h1.example"))
    assert first["pem"] == second["pem"] != other["pem"] and other["names"] == ["h1.example"]


@pytest.mark.parametrize("host,offered,chosen", [
    ("keys.example", ["h2", "http/1.1"], ["h2"]), ("keys.example", ["http/1.1"], ["http/1.1"]), ("keys.example", [], [None]),
    ("h1.example", ["h2", "http/1.1"], ["http/1.1"]), ("h2.example", ["h2", "http/1.1"], ["h2"]),
    ("noalpn.example", ["h2", "http/1.1"], [None, "http/1.1"]), ("keys.example", ["spdy/3", "http/1.1"], ["http/1.1"])])
def test_alpn_is_mirrored(box, guest, host, offered, chosen):
    facts, seen = since(box, lambda: guest.do("facts", host=host, alpn=offered), event="connection", host=host)
    assert facts["alpn"] in chosen, facts
    # The server may say of a connection that came before as late as this; the last one is ours.
    assert all((entry["alpn"] == "h2") == (facts["alpn"] == "h2") for entry in seen[-1:]), (facts, seen)


def test_hosts_without_a_credential_are_not_opened(box, guest):
    for host in (UNBOUND, "v4.example"):
        facts = guest.do("facts", host=host)
        assert facts["issuer"] == "Penstock lab CA", facts
    (answer,), seen = since(box, lambda: guest.request(UNBOUND, headers="Authorization: mine\r\n"), event="request")
    assert answer.status == 200 and got(seen) == [["mine"]], seen


def test_upstream_of_tls_1_2(box, guest, secrets):
    (answer,), seen = since(box, lambda: guest.request("tls12.example"), host="tls12.example")
    assert answer.status == 200 and got(seen) == [["Bearer " + secrets.values["tls12.example"]]], seen
    assert [entry["tls"] for entry in seen if entry["event"] == "connection"] == ["TLSv1.2"]


def test_upstream_is_asked_by_the_name(box, guest):
    _, seen = since(box, lambda: guest.request("keys.example"), event="connection", host="keys.example")
    assert {entry["sni"] for entry in seen} <= {"keys.example"}, seen


def test_no_early_data(guest):
    done = guest.run("sh", "-c", "sleep 0.5 | openssl s_client -connect keys.example:443 -servername keys.example -tls1_3 -sess_out s.pem "
                     ">/dev/null 2>&1; openssl sess_id -in s.pem -noout -text 2>&1 | grep -i 'early data' ||:; echo done")
    assert "done" in done["out"], done
    for line in done["out"].splitlines()[:-1]:
        assert line.strip() == "Max Early Data: 0", done


# ---- whose request gets a credential ----

def test_a_request_gets_it(box, guest, secrets):
    (answer,), seen = since(box, lambda: guest.request("keys.example"), event="request")
    assert answer.status == 200 and got(seen) == [["Bearer " + secrets.values["keys.example"]]], (answer, seen)
    assert got(seen, "x-api-key") == [["labtok_second"]], "several headers for a host"


SPELLINGS = ["Authorization: mine", "AUTHORIZATION: mine", "authorization: mine", "aUtHoRiZaTiOn:mine",
             "Authorization: one\r\nAuthorization: two\r\nAUTHORIZATION: three", "Authorization:", "Authorization: Bearer labtok_mine",
             "Connection: authorization, keep-alive\r\nAuthorization: mine"]


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_same_named_headers_are_replaced(box, guest, secrets, spelling):
    text = f"GET /headers HTTP/1.1\r\nHost: keys.example\r\n{spelling}\r\nX-Other: kept\r\n\r\n"
    answer, seen = since(box, lambda: guest.do("h1", host="keys.example", text=text, silence=0.4), event="request")
    assert got(seen) == [["Bearer " + secrets.values["keys.example"]]], (answer, seen)
    assert got(seen, "x-other") == [["kept"]] and "mine" not in answer["text"], answer


@pytest.mark.parametrize("line", ["Authorization : mine", " Authorization: mine", "X-A: b\r\n\tAuthorization: mine", "Authorization\t: mine",
                                  "Authorization: a\0b", "Authorization: a\rb", "Authori\0zation: x", "A\u00e4: x", ": x"])
def test_malformed_headers_are_refused(box, guest, line):
    (answer, *more), seen = since(box, lambda: guest.request("keys.example", headers=line + "\r\n"), event="request")
    assert answer.status == 400 and not more and not seen, (answer, seen)


def test_not_in_trailers(box, guest):
    text = ("POST /echo HTTP/1.1\r\nHost: keys.example\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
            "2\r\nhi\r\n0\r\nAuthorization: mine\r\nX-Fine: yes\r\n\r\n")
    answer = guest.do("h1", host="keys.example", text=text)
    assert "mine" not in answer["text"], answer


OTHERS = ["elsewhere.example", "h1.example", "keys.example:8443", "keys.example.evil.example", "xkeys.example", "example",
          "github.com", "198.51.100.40", "[2001:db8:100::40]"]


@pytest.mark.parametrize("other", OTHERS)
def test_another_authority_is_misdirected(box, guest, other):
    first, second = (f"GET /{path} HTTP/1.1\r\nHost: {host}\r\n\r\n" for path, host in (("headers?1", "keys.example"), ("headers?2", other)))
    answer, seen = since(box, lambda: guest.do("h1", host="keys.example", text=first + second, silence=0.4), event="request")
    assert [one.status for one in parse(answer["text"])] == [200, 421], answer
    assert [entry["path"] for entry in seen] == ["/headers?1"], seen


@pytest.mark.parametrize("same", ["keys.example:443", "KEYS.Example", "keys.EXAMPLE:443"])
def test_same_authority_in_other_clothes(box, guest, same):
    text = f"GET /headers HTTP/1.1\r\nHost: {same}\r\nConnection: close\r\n\r\n"
    answer, seen = since(box, lambda: guest.do("h1", host="keys.example", text=text), event="request")
    assert [one.status for one in parse(answer["text"])] == [200] and len(got(seen)[0]) == 1, answer


@pytest.mark.parametrize("target,status", [("https://keys.example/headers", (200,)), ("https://elsewhere.example/headers", (400, 421)),
                                           ("http://keys.example/headers", (400, 421)), ("keys.example:443", (400, 421)), ("*", (400, 200))])
def test_absolute_form(box, guest, target, status):
    answer, seen = since(box, lambda: guest.request("keys.example", target), event="request")
    assert answer[0].status in status, answer
    assert all(entry["host"] == "keys.example" for entry in seen) and bool(seen) == (answer[0].status == 200), seen


@pytest.mark.parametrize("dialled,sni", [("elsewhere.example", "keys.example"), ("keys.example", "elsewhere.example"), ("keys.example", None),
                                         ("v4.example", "keys.example"), ("keys.example", "h1.example")])
def test_name_dialled_and_name_claimed_differ(box, guest, secrets, dialled, sni):
    """No credential of one goes to the other; and with no SNI there is none at all."""
    for host in {dialled, sni} - {None}:
        text = f"GET /headers HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
        answer, seen = since(box, lambda: guest.ask("h1", host=dialled, sni=sni, text=text, verify=False, silence=0.5), event="request")
        assert not any("labtok" in value for entry in seen for _, value in entry["headers"]), (answer, seen)


def test_literal_address(box, guest):
    """The name is not known to be that address: what the policy does not reach stays refused."""
    answer, seen = since(box, lambda: guest.ask("h1", host="keys.example", address="198.51.100.51", text="x", silence=0.5), event="request")
    assert not seen, (answer, seen)


def test_not_over_plain_http(box, secrets):
    allow = [{"host": "keys.example", "protocol": "http"}, {"host": "keys.example", "protocol": "http", "ports": [443]}]
    box.lab.service("bound")
    with Guest(box, bearer(secrets, ["keys.example"]), allow=allow[:1]) as guest:
        answer = guest.do("plain", host="keys.example", text="GET /headers HTTP/1.1\r\nHost: keys.example\r\nConnection: close\r\n\r\n")
        assert " 200 " in answer["text"] and "labtok" not in answer["text"] and "uthorization" not in answer["text"], answer
        (answer,), seen = since(box, lambda: guest.request("keys.example"), event="request")
        assert got(seen) == [["Bearer " + secrets.values["keys.example"]]], seen


def test_redirects_carry_nothing_elsewhere(box, guest):
    done, seen = since(box, lambda: guest.run("curl -sSL --http1.1 https://keys.example/redirect"), event="request")
    assert done["code"] == 0 and [(entry["host"], len(values(entry, "authorization"))) for entry in seen] == [
        ("keys.example", 1), (UNBOUND, 0)], (done, seen)


# ---- HTTP/1.1 as it was ----

def test_connections_are_reused(box, guest, secrets):
    text = "".join(f"GET /headers?{number} HTTP/1.1\r\nHost: keys.example\r\n\r\n" for number in range(6))
    parts = [part + "\r\n\r\n" for part in text.split("\r\n\r\n")[:-1]]
    answer, seen = since(box, lambda: guest.do("h1", host="keys.example", parts=parts, pause=0.05, silence=0.3), host="keys.example")
    assert [one.status for one in parse(answer["text"])] == [200] * 6, answer
    assert got(seen) == [["Bearer " + secrets.values["keys.example"]]] * 6
    assert len({entry["connection"] for entry in seen if entry["event"] == "request"}) == 1, seen


def test_pipelining(box, guest):
    text = "".join(f"POST /headers?{number} HTTP/1.1\r\nHost: keys.example\r\nContent-Length: 2\r\n\r\nhi" for number in range(4))
    answer, seen = since(box, lambda: guest.do("h1", host="keys.example", text=text, silence=0.4), event="request")
    assert [one.status for one in parse(answer["text"])] == [200] * 4 and len(got(seen)) == 4, answer
    assert all(one.body.endswith("hi") and f"headers?{number} " in one.body for number, one in enumerate(parse(answer["text"])))


@pytest.mark.parametrize("step", [1, 7])
def test_requests_in_pieces(guest, step):
    text = "POST /echo HTTP/1.1\r\nHost: keys.example\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
    parts = [text[at:at + step] for at in range(0, len(text), step)]
    (answer,) = parse(guest.do("h1", host="keys.example", parts=parts)["text"])
    assert answer.status == 200 and answer.body == "abc", answer


@pytest.mark.parametrize("method,path,status", [("HEAD", "/headers", 200), ("OPTIONS", "/headers", 200), ("DELETE", "/headers", 200),
                                                ("PATCH", "/headers", 200), ("GET", "/refuse/204", 204), ("GET", "/refuse/304", 304),
                                                ("GET", "/refuse/500", 500), ("PROPFIND", "/headers", 200)])
def test_methods_and_statuses(guest, method, path, status):
    (answer,) = guest.request("keys.example", path, method)
    assert answer.status == status, answer


def test_trace_is_refused(box, guest):
    """It would give the credential back."""
    (answer,), seen = since(box, lambda: guest.request("keys.example", method="TRACE"), event="request")
    assert answer.status in (400, 403, 405) and not seen, answer


def test_informational_answers_pass(guest):
    first, second = guest.request("keys.example", "/hints")
    assert first.status == 103 and "style.css" in first.header("link") and second.body == "hinted\n"


def test_headers_of_answers_stay_apart(guest):
    (answer,) = guest.request("keys.example", "/cookies")
    assert [value for name, value in answer.headers if name == "set-cookie"] == ["a=1", "b=2"], answer


def test_events_come_at_once(guest):
    delays = guest.do("arrivals", host="keys.example", path="/events")
    assert len(delays) == 5 and max(delays) < 0.15, delays  # they are sent 0.2 s apart


def test_chunks_go_both_ways_at_once(guest):
    """The server's echo of the first chunk comes before the second is sent."""
    head = "POST /echo HTTP/1.1\r\nHost: keys.example\r\nTransfer-Encoding: chunked\r\n\r\n"
    answer = guest.do("h1", host="keys.example", parts=[head + "3\r\none\r\n"], pause=0.1, silence=0.5)
    assert "3\r\none\r\n" in answer["text"] and answer["end"] == "silent", answer


def test_expect_continue(guest):
    head = "PUT /upload HTTP/1.1\r\nHost: keys.example\r\nContent-Length: 5\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n"
    asked = parse(guest.do("h1", host="keys.example", text=head, silence=0.5)["text"])
    assert [answer.status for answer in asked] == [100], "the body is waited for"
    answers = parse(guest.do("h1", host="keys.example", parts=[head, "hello"], pause=0.2)["text"])
    assert [answer.status for answer in answers] == [100, 200], answers
    assert answers[1].body == f"5 {zlib.crc32(b'hello')}\n"


def test_expect_keeps_the_connection(box, guest):
    """Only where the server has said that it reads the body; none of any other expectation."""
    put, get = (f"{line} HTTP/1.1\r\nHost: keys.example\r\n" for line in ("PUT /upload", "GET /headers"))
    expects = put + "Content-Length: 5\r\nExpect: 100-continue\r\n\r\n"
    answers = parse(guest.do("h1", host="keys.example", parts=[expects, "hello", get + "\r\n"], pause=0.2, silence=0.4)["text"])
    assert [answer.status for answer in answers] == [100, 200, 200], answers
    odd, seen = since(box, lambda: guest.request("keys.example", headers="Expect: y 100-continue\r\n"), event="request")
    assert [answer.status for answer in odd] == [400] and not seen, (odd, seen)


def test_expect_refused(guest):
    head = "PUT /refuse/417 HTTP/1.1\r\nHost: keys.example\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n"
    answers = parse(guest.do("h1", host="keys.example", text=head)["text"])
    assert [answer.status for answer in answers] == [417] and answers[0].body == "early answer\n", answers


def test_early_answer_to_a_large_body(guest):
    done = guest.run("sh", "-c", "head -c 50000000 /dev/zero | curl -sS --http1.1 -T - -w '%{http_code}' https://keys.example/refuse/413")
    assert "early answer" in done["out"] and "413" in done["out"], done


def test_client_closes_its_direction(guest):
    """And gets its answer all the same."""
    text = "POST /silent/0.5 HTTP/1.1\r\nHost: keys.example\r\nContent-Length: 4\r\nConnection: close\r\n\r\nbody"
    answer = guest.do("h1", host="keys.example", text=text, end=True)
    assert [(one.status, one.body) for one in parse(answer["text"])] == [(200, "at last\n")], answer


def test_half_close_of_a_tunnel(guest):
    head = ("GET /ws/late HTTP/1.1\r\nHost: keys.example\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
            "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n")
    answer = guest.do("h1", host="keys.example", parts=[head, "12345"], pause=0.3, end=True)
    assert answer["text"].endswith("\r\n\r\nafter your end, with 5 bytes") and answer["end"] != "silent", answer


def test_websocket(box, guest, secrets):
    answer, seen = since(box, lambda: guest.do("websocket", host="keys.example", headers="Authorization: mine\r\n"), event="request")
    assert answer == [True, 0x88] and got(seen) == [["Bearer " + secrets.values["keys.example"]]], (answer, seen)
    assert guest.do("websocket", host="keys.example", size=400000) == [True, 0x88]
    assert guest.do("websocket", host="noalpn.example", version="TLSv1_2") == [True, 0x88]


def test_real_websocket_client(guest):
    code = ("import asyncio, websockets\nasync def main():\n async with websockets.connect('wss://keys.example/ws') as s:\n"
            "  await s.send('lab echo'); print(await s.recv())\nasyncio.run(main())")
    done = guest.run("/usr/bin/python3", "-c", code)
    assert done["out"] == "lab echo\n", done


@pytest.mark.parametrize("chunked", [False, True])
def test_large_uploads(guest, chunked):
    """Whole, and the gate grows by little."""
    before = gate_memory_if_plain(guest)
    answer = guest.do("bulk", host="h1.example", path="/upload", size=BULK, upload=True, chunked=chunked, wait=PATIENCE)
    assert answer["text"] == answer["sent"], answer
    assert gate_memory_if_plain(guest) - before < ROOM


@pytest.mark.parametrize("how", ["length", "chunked"])
def test_large_downloads(guest, how):
    before = gate_memory_if_plain(guest)
    answer = guest.do("bulk", host="h1.example", path=f"/download/{BULK}/{how}", wait=PATIENCE)
    assert answer == {"status": 200, "count": BULK, "crc": crc_of_pattern()}, answer
    assert gate_memory_if_plain(guest) - before < ROOM


def crc_of_pattern():
    block, crc = b"0123456789abcdef" * 4096, 0
    for _ in range(BULK // len(block)):
        crc = zlib.crc32(block, crc)
    return crc


def test_nobody_reads(guest):
    """What a slow client has not read yet is not kept in the gate."""
    before = gate_memory_if_plain(guest)
    answer = guest.do("bulk", host="h1.example", path=f"/download/{BULK}", pause=1.5, wait=PATIENCE)
    assert answer["count"] == BULK and gate_memory_if_plain(guest) - before < ROOM
