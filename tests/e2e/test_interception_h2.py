# SPDX-License-Identifier: Apache-2.0
"""Bound hosts by HTTP/2 and gRPC: each stream on its own, streaming, trailers, limits, hostile peers. Rules: CREDENTIALS.md."""
import hashlib
import json
import time

import pytest

from guest import UNBOUND, Guest, Secrets, bearer, got, gate_memory_if_plain, since, values
from test_interception import BULK, PATIENCE, ROOM

HOST = "h2.example"


@pytest.fixture(scope="module")
def secrets(box):
    return Secrets(box, "h2")


@pytest.fixture(scope="module")
def guest(box, secrets):
    box.lab.service("bound")
    box.lab.service("grpc")
    with Guest(box, bearer(secrets)) as started:
        yield started


def h2(guest, *requests, host=HOST, **options):
    return guest.do("h2", host=host, requests=list(requests), **options)


def works(guest):
    (answer,) = h2(guest, {})
    assert answer["status"] == 200, answer


# ---- whose stream gets a credential ----

def test_a_stream_gets_it(box, guest, secrets):
    (answer,), seen = since(box, lambda: h2(guest, {}), event="request")
    assert answer["status"] == 200 and got(seen) == [["Bearer " + secrets.values[HOST]]], (answer, seen)
    assert [entry["version"] for entry in seen] == [2]


def test_same_named_headers_are_replaced(box, guest, secrets):
    mine = [["authorization", "mine"], ["x-other", "kept"], ["authorization", "mine too"]]
    _, seen = since(box, lambda: h2(guest, {"headers": mine}), event="request")
    assert got(seen) == [["Bearer " + secrets.values[HOST]]] and got(seen, "x-other") == [["kept"]], seen


@pytest.mark.parametrize("pairs", [[["Authorization", "mine"]], [["authorization ", "mine"]], [["x-a", "b\r\nauthorization: mine"]],
                                   [["x-a", "b\0c"]], [["connection", "authorization"]], [["transfer-encoding", "chunked"]],
                                   [["te", "gzip"]], [["", "x"]], [[":path", "/other"]], [[":authorization", "mine"]],
                                   [["host", UNBOUND]]], ids=repr)
def test_malformed_heads_are_refused(box, guest, pairs):
    answers, seen = since(box, lambda: guest.ask("h2", host=HOST, requests=[{"headers": pairs}], silence=4), event="request")
    answer = answers.get("result", [{"reset": 1, "status": None}])[0]
    assert not seen and answer["status"] in (None, 400, 421), (answers, seen)
    assert answer["status"] or answer["reset"] is not None or answer["connection"], answers
    works(guest)


@pytest.mark.parametrize("head", [{"path": "-"}, {"method": "-"}, {"scheme": "-"}, {"path": ""}, {"path": "headers"}, {"path": "/a b"},
                                  {"path": "/a\r\nx: y"}, {"scheme": "http"}, {"method": "CONNECT"}, {"method": "G T"},
                                  {"authority": "user@h2.example"}], ids=repr)
def test_malformed_pseudo_headers_are_refused(box, guest, head):
    answers, seen = since(box, lambda: guest.ask("h2", host=HOST, requests=[head], silence=4), event="request")
    assert not seen and answers.get("result", [{"status": None}])[0]["status"] in (None, 400, 405, 421, 501), (answers, seen)


def test_not_in_trailers(box, guest):
    (answer,) = h2(guest, {"method": "POST", "path": "/echo", "body": "x", "trailers": [["authorization", "mine"], ["x-fine", "yes"]]})
    assert "mine" not in str(answer), answer


@pytest.mark.parametrize("other", ["elsewhere.example", "h1.example", "h2.example:8443", "h2.example.evil.example", "198.51.100.43"])
def test_another_authority_is_misdirected(box, guest, other):
    """Only that stream."""
    answers, seen = since(box, lambda: h2(guest, {"path": "/headers?1"}, {"path": "/headers?2", "authority": other}, {"path": "/headers?3"}),
                          event="request")
    assert [answer["status"] for answer in answers] == [200, 421, 200], answers
    assert sorted(entry["path"] for entry in seen) == ["/headers?1", "/headers?3"], seen


@pytest.mark.parametrize("same", ["h2.example:443", "H2.Example"])
def test_same_authority_in_other_clothes(guest, same):
    (answer,) = h2(guest, {"authority": same})
    assert answer["status"] == 200, answer


def test_authority_by_the_host_header(box, guest, secrets):
    """Host stands for an :authority that is missing (RFC 9113 8.3.1), and is no way to another host."""
    requests = [{"authority": "-", "headers": [["host", host]]} for host in (HOST, UNBOUND)]
    answers, seen = since(box, lambda: h2(guest, *requests), event="request")
    assert [answer["status"] for answer in answers] == [200, 421], answers
    assert got(seen) == [["Bearer " + secrets.values[HOST]]], seen


def test_no_connection_is_shared_by_hosts(box, guest):
    """curl reuses a connection for another host only if the certificate has its name: it has not."""
    done, seen = since(box, lambda: guest.run("curl -sS --http2 https://h2.example/headers https://keys.example/headers"), event="request")
    assert done["code"] == 0 and {entry["host"] for entry in seen} == {"h2.example", "keys.example"}, (done, seen)


# ---- HTTP/2 as it was ----

def test_many_streams_at_once(box, guest, secrets):
    requests = [{"path": f"/headers?{number}", "method": "POST", "body": str(number) * 100} for number in range(60)]
    answers, seen = since(box, lambda: h2(guest, *requests), event="request")
    assert [answer["status"] for answer in answers] == [200] * 60
    assert all(answer["body"].endswith(str(number) * 100) for number, answer in enumerate(answers))
    assert got(seen) == [["Bearer " + secrets.values[HOST]]] * 60


def test_a_slow_stream_holds_up_none(guest):
    started = time.monotonic()
    answers = h2(guest, {"path": "/silent/1.5"}, *[{}] * 5)
    assert [answer["status"] for answer in answers] == [200] * 6 and time.monotonic() - started < 4


def test_streams_one_after_the_other_reuse_the_connection(box, guest):
    _, seen = since(box, lambda: h2(guest, *[{}] * 6, sequence=True), event="request")
    assert len(seen) == 6 and len({entry["connection"] for entry in seen}) == 1, seen


def test_both_directions_and_trailers(guest):
    answer = guest.do("h2_duplex", host=HOST, parts=["one", "two", "three"])
    assert answer["seen"] == ["one", "two", "three"] and answer["status"] == 200, answer
    assert answer["trailers"] == [["x-lab", "x-up: end of it"]], answer


def test_informational_answers_pass(guest):
    (answer,) = h2(guest, {"path": "/hints"})
    assert answer["informed"] == ["103"] and answer["body"] == "hinted\n", answer


def test_expect_continue(guest):
    (answer,) = h2(guest, {"path": "/upload", "method": "PUT", "headers": [["expect", "100-continue"]], "body": "hello"})
    assert answer["informed"] == ["100"] and answer["body"].startswith("5 "), answer


def test_early_answer(guest):
    """The body that nobody wants any more does not keep the answer back."""
    answer = guest.run("sh", "-c", "head -c 20000000 /dev/zero | curl -sS --http2 -T - -w '%{http_code}' https://h2.example/refuse/413")
    assert "early answer" in answer["out"] and "413" in answer["out"], answer


def test_events_come_at_once(guest):
    delays = guest.do("arrivals", host=HOST, path="/events", version=2)
    assert len(delays) == 5 and max(delays) < 0.15, delays


@pytest.mark.parametrize("method", ["HEAD", "DELETE", "OPTIONS", "BREW"])
def test_methods(guest, method):
    (answer,) = h2(guest, {"method": method})
    assert answer["status"] == 200, answer


def test_trace_gets_no_credential(box, guest):
    """It would give it back."""
    (answer,), seen = since(box, lambda: h2(guest, {"method": "TRACE"}), event="request")
    assert "labtok" not in str(answer) + str(seen), (answer, seen)


def test_headers_of_answers_stay_apart(guest):
    (answer,) = h2(guest, {"path": "/cookies"})
    assert [value for name, value in answer["headers"] if name == "set-cookie"] == ["a=1", "b=2"], answer


def test_large_upload(guest):
    before = gate_memory_if_plain(guest)
    answer = guest.do("h2_bulk", host=HOST, path="/upload", size=BULK // 4, upload=True, wait=PATIENCE)
    assert answer["text"] == answer["sent"], answer
    assert gate_memory_if_plain(guest) - before < ROOM


def test_large_download(guest):
    before = gate_memory_if_plain(guest)
    done = guest.run("sh", "-c", f"curl -sS --http2 https://h2.example/download/{BULK} | sha256sum", timeout=PATIENCE)
    digest = hashlib.sha256(b"0123456789abcdef" * (BULK // 16)).hexdigest()
    assert done["out"].split()[0] == digest and gate_memory_if_plain(guest) - before < ROOM, done


def test_nobody_reads(guest):
    """What a slow client has not read yet is not kept in the gate."""
    before = gate_memory_if_plain(guest)
    answer = guest.do("h2_bulk", host=HOST, path=f"/download/{BULK // 8}", pause=1.5, wait=PATIENCE)
    assert answer["count"] == BULK // 8 and gate_memory_if_plain(guest) - before < 8 << 20, answer


def test_windows_bound_what_is_held(guest):
    """Ten large answers of which nothing is read: no more than the client's windows comes, and the gate keeps little."""
    before = gate_memory_if_plain(guest)
    count = guest.do("h2_unread", host=HOST, path="/download/100000000", streams=10, seconds=2)
    assert 0 < count <= 65535 and gate_memory_if_plain(guest) - before < 16 << 20, count
    works(guest)


def test_server_that_reads_nothing(guest):
    """An upload that the server never takes is held up at the client."""
    before = gate_memory_if_plain(guest)
    done = guest.run("sh", "-c", "head -c 200000000 /dev/zero | curl -sS --http2 -T - --max-time 3 https://h2.example/silent")
    assert done["code"] == 28 and gate_memory_if_plain(guest) - before < 16 << 20, done
    works(guest)


# ---- limits and hostile peers ----

@pytest.mark.parametrize("pairs", [[["x-large", "a" * 20000]] * 12, [[f"x-{number}", "a" * 100] for number in range(2000)]], ids=["size", "count"])
def test_limits_of_heads(box, guest, pairs):
    answers, seen = since(box, lambda: guest.ask("h2", host=HOST, requests=[{"headers": pairs}], silence=4), event="request")
    assert not seen and answers.get("result", [{"status": None}])[0]["status"] in (None, 400, 431), str(answers)[:1000]
    works(guest)


@pytest.mark.parametrize("kind", ["continuation", "empty continuations", "rapid reset", "pings", "settings", "priorities", "empty data",
                                  "window overflow", "no increment", "bad compression", "huge frame", "even stream", "push"])
def test_hostile_clients(box, guest, kind):
    """The connection ends (floods of small frames may also be worked off), the gate has kept nothing, the next one works."""
    before, started = gate_memory_if_plain(guest), time.monotonic()
    answer = guest.do("h2_rude", host=HOST, kind=kind)
    assert answer["first"] == answer["after"] == 200, answer
    assert answer["end"] != "silent" or kind in ("pings", "settings", "priorities", "empty data"), answer
    assert gate_memory_if_plain(guest) - before < 16 << 20 and time.monotonic() - started < 20


def test_rapid_reset_reaches_the_server_slowly(box, guest):
    """What is cancelled at once is not passed on without bound."""
    _, seen = since(box, lambda: guest.do("h2_rude", host=HOST, kind="rapid reset"), event="request")
    assert len(seen) < 5000, len(seen)


# status that a client may see, and what comes with it; None: no answer or 502.
RUDE = {"closing": 200, "reset": 200, "continuation": None, "bomb": None, "pings": 200, "push": 200, "garbage": None,
        "order": None, "status": None}


@pytest.mark.parametrize("kind", RUDE)
def test_rude_servers(guest, kind):
    before = gate_memory_if_plain(guest)
    answers = guest.ask("h2", host=HOST, requests=[{"path": f"/rude/{kind}"}], silence=8)
    answer = answers.get("result", [{"status": None, "body": "", "reset": 1}])[0]
    assert answer["status"] in (None, 502, RUDE[kind]), answers
    assert answer.get("connection") != "silent", answers
    if kind in ("closing", "reset"):
        assert answer["reset"] is not None or answer["connection"], "the client knows that it is not whole"
    assert gate_memory_if_plain(guest) - before < 16 << 20
    works(guest)


def test_server_that_goes_away_in_order(guest):
    """GOAWAY in the middle of an answer, which still comes whole."""
    done = guest.run("curl -sS --http2 https://h2.example/rude/goaway")
    assert done["code"] == 0 and done["out"] == "before after\n", done
    works(guest)


# ---- gRPC: the real client and the real server ----

GRPC = """import grpc, json
channel = grpc.secure_channel("grpc.example:443", grpc.ssl_channel_credentials())
said = [channel.unary_unary("/lab.Echo/Unary")(b"hello", timeout=10).decode()]
said.append([part.decode() for part in channel.unary_stream("/lab.Echo/Split")(b"abc", timeout=10)])
said.append(channel.stream_unary("/lab.Echo/Join")(iter([b"a", b"b", b"c"]), timeout=10).decode())
call = channel.stream_stream("/lab.Echo/Both")(iter([b"1", b"2"]), timeout=10, metadata=[("authorization", "mine")])
said.append([part.decode() for part in call])
said.append(dict(call.trailing_metadata()).get("x-lab-trailer"))
many = [channel.unary_unary("/lab.Echo/Unary").future(b"%d" % number, timeout=10) for number in range(40)]
said.append([int(one.result()) for one in many] == list(range(40)))
said.append(len(channel.unary_unary("/lab.Echo/Unary")(bytes(3000000), timeout=10)))
try:
    channel.unary_unary("/lab.Echo/Fail")(b"", timeout=10)
except grpc.RpcError as error:
    said.append([error.code().name, error.details()])
print(json.dumps(said))
"""


def test_grpc(box, guest, secrets):
    done, seen = since(box, lambda: guest.run("/usr/bin/python3", "-c", GRPC), event="call")
    assert done["code"] == 0, done
    assert json.loads(done["out"]) == ["hello", ["a", "b", "c"], "abc", ["re: 1", "re: 2"], "Both", True, 3000000,
                                       ["FAILED_PRECONDITION", "as asked for"]]
    assert len(seen) == 46 and all(value == ["Bearer " + secrets.values["grpc.example"]] for value in got(seen)), seen[:3]


NODE = """const http2 = require('http2');
const session = http2.connect('https://h2.example');
const stream = session.request({':method': 'POST', ':path': '/echo', authorization: 'mine'});
let body = '';
stream.on('data', (data) => { body += data; });
stream.on('trailers', (trailers) => console.log('trailers', trailers['x-lab']));
stream.on('end', () => { console.log(body); session.close(); });
stream.write('one ');
stream.end('two');
"""


def test_node_http2(box, guest, secrets):
    done, seen = since(box, lambda: guest.run("node", "-e", NODE), event="request")
    assert done["code"] == 0 and "one two" in done["out"] and "trailers end" in done["out"], done
    assert got(seen) == [["Bearer " + secrets.values[HOST]]] and values(seen[0], ":path") == ["/echo"]
