# SPDX-License-Identifier: Apache-2.0
"""Plain HTTP by an `http` rule: relayed request by request, each judged; anything doubtful is refused."""
import re

import pytest

POLICY = {"allow": [{"host": "mirror.test", "protocol": "http"}, {"host": "both.example", "protocol": "http", "ports": [80, 8000]}]}
GET = "GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"
LAST = "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"


def exchange(box, text, host="mirror.test", port=80):
    """Sends raw bytes. Returns what came back, what the server saw meanwhile, and the Result."""
    before = len(box.lab.http_requests())
    (answer,), result = box.probe(POLICY, ["send_and_read", host, port, text])
    return answer["result"], box.lab.http_requests()[before:], result


def statuses(text):
    return re.findall(r"(?m)^HTTP/1\.\d (\d+)", text) or ["none"]


@pytest.mark.parametrize("url,text", [("http://mirror.test/", "lab mirror.test"), ("http://both.example:8000/", ":8000"),
                                      ("http://mirror.test/files/50M", None)])
def test_allowed(box, url, text):
    result = box.curl(POLICY, "-o", "body", "-w", "%{http_code} %{size_download}", url)
    assert result.code == 0 and result.out.startswith("200 "), result
    with open(box.path("body"), encoding="utf-8", errors="replace") as file:
        assert text in file.read() if text else result.out == "200 50000000"


@pytest.mark.parametrize("arguments", [["-d", "a=b"], ["-T", "probe.py"], ["-T", "probe.py", "-H", "Transfer-Encoding: chunked"],
                                       ["-T", "probe.py", "-H", "Expect: 100-continue"]])
def test_bodies(box, arguments):
    result = box.curl(POLICY, *arguments, "http://mirror.test/headers")
    assert result.code == 0, result
    assert ("a=b" if "-d" in arguments else "Runs inside the sandbox") in result.out, result


def test_keep_alive_and_pipelining(box):
    text, seen, result = exchange(box, GET.format(path="/one", host="mirror.test") + GET.format(path="/two", host="mirror.test") +
                                  LAST.format(path="/three", host="mirror.test"))
    assert statuses(text) == ["200"] * 3, result
    assert [entry["uri"] for entry in seen] == ["/one", "/two", "/three"]


def test_second_request_to_another_host(box):
    for other in ("denied.example", "both.example"):  # the second is allowed, but is not whom the client dialled
        text, seen, result = exchange(box, GET.format(path="/first", host="mirror.test") + LAST.format(path="/second", host=other))
        assert statuses(text) == ["200", "403"], result
        assert [entry["uri"] for entry in seen] == ["/first"], result
        assert f'"{other}"' in text or other == "both.example", text


def test_unlisted_host_on_literal_address(box):
    text, seen, result = exchange(box, LAST.format(path="/", host="denied.example"), host="198.51.100.25")
    assert statuses(text) == ["403"] and "x-penstock-reason: base_denied" in text.lower(), result
    assert seen == []


def test_listed_host_on_literal_address_goes_to_the_judged_one(box):
    text, seen, result = exchange(box, LAST.format(path="/pin", host="mirror.test"), host="203.0.113.99")
    assert statuses(text) == ["200"], result
    assert [entry["address"] for entry in seen][0] in ("198.51.100.34", "2001:db8:100::34"), result


@pytest.mark.parametrize("target,status", [("http://mirror.test/abs", "200"), ("http://denied.example/abs", "403")])
def test_absolute_form(box, target, status):
    text, seen, result = exchange(box, LAST.format(path=target, host=target.split("/")[2]))
    assert statuses(text) == [status], result
    assert len(seen) == (1 if status == "200" else 0)


SMUGGLED = "GET /smuggled HTTP/1.1\r\nHost: mirror.test\r\n\r\n"
CHUNKED = "Transfer-Encoding: chunked\r\n"
HOST = "Host: mirror.test\r\n"
BAD = {
    "length and chunked": f"POST /x HTTP/1.1\r\n{HOST}Content-Length: 4\r\n{CHUNKED}\r\n0\r\n\r\n{SMUGGLED}",
    "two lengths": f"POST /x HTTP/1.1\r\n{HOST}Content-Length: 0\r\nContent-Length: {len(SMUGGLED)}\r\n\r\n{SMUGGLED}",
    "list of lengths": f"POST /x HTTP/1.1\r\n{HOST}Content-Length: 0, 5\r\n\r\n{SMUGGLED}",
    "signed length": f"POST /x HTTP/1.1\r\n{HOST}Content-Length: +0\r\n\r\n{SMUGGLED}",
    "length not a number": f"POST /x HTTP/1.1\r\n{HOST}Content-Length: 0x0\r\n\r\n{SMUGGLED}",
    "unknown coding": f"POST /x HTTP/1.1\r\n{HOST}Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n{SMUGGLED}",
    "chunked not last": f"POST /x HTTP/1.1\r\n{HOST}Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n{SMUGGLED}",
    "space before colon": f"POST /x HTTP/1.1\r\n{HOST}Content-Length : 0\r\n\r\n{SMUGGLED}",
    "folded header": f"GET /x HTTP/1.1\r\n{HOST}X-Fold: a\r\n b\r\n\r\n{SMUGGLED}",
    "bad chunk size": f"POST /x HTTP/1.1\r\n{HOST}{CHUNKED}\r\nzz\r\n\r\n{SMUGGLED}",
    "bare CR in header": f"GET /x HTTP/1.1\r\n{HOST}X: a\rb\r\n\r\n{SMUGGLED}",
    "NUL in header": f"GET /x HTTP/1.1\r\n{HOST}X: a\0b\r\n\r\n{SMUGGLED}",
    "no host": "GET /x HTTP/1.1\r\n\r\n" + SMUGGLED,
    "two hosts": f"GET /x HTTP/1.1\r\n{HOST}Host: denied.example\r\n\r\n{SMUGGLED}",
    "host with userinfo": f"GET /x HTTP/1.1\r\nHost: mirror.test@denied.example\r\n\r\n{SMUGGLED}",
    "absolute-form and host differ": f"GET http://denied.example/x HTTP/1.1\r\n{HOST}\r\n{SMUGGLED}",
    "connect": f"CONNECT denied.example:443 HTTP/1.1\r\nHost: denied.example:443\r\n\r\n{SMUGGLED}",
    "version": f"GET /x HTTP/3.0\r\n{HOST}\r\n{SMUGGLED}",
    "prior knowledge h2c": "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00",
}


@pytest.mark.parametrize("kind", BAD)
def test_doubtful_framing_is_refused(box, kind):
    text, seen, result = exchange(box, BAD[kind])
    # A head may be on its way before its body turns out to be malformed; nothing after it may.
    assert [entry["uri"] for entry in seen] == (["/x"] if kind == "bad chunk size" and seen else []), (kind, text)
    assert statuses(text)[0] in ("400", "403", "none"), result
    assert "<timeout>" not in text, result


@pytest.mark.parametrize("lines", ["Connection: Upgrade, HTTP2-Settings, close\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n",
                                   "Connection: upgrade, close\r\nUpgrade: websocket, H2C\r\n", "Connection: close\r\nHTTP2-Settings: AA\r\n"])
def test_an_offer_of_h2c_is_left_out(box, lines):
    """As Java's HttpClient makes with each request."""
    text, seen, result = exchange(box, f"POST /headers HTTP/1.1\r\n{HOST}X-Mine: kept\r\n{lines}Content-Length: 4\r\n\r\nbody")
    assert statuses(text) == ["200"] and len(seen) == 1, result
    lower = text.lower()
    assert "x-mine" in lower and "upgrade" not in lower and "http2-settings" not in lower and "h2c" not in lower, text


def test_curl_may_offer_h2c(box):
    result = box.curl(POLICY, "--http2", "-w", "%{http_code} %{http_version}", "http://mirror.test/")
    assert result.code == 0 and result.out.endswith("200 1.1"), result


def test_websocket(box):
    (answer,), result = box.probe(POLICY, ["websocket", "mirror.test", 80, "/ws", "hello"])
    assert answer["result"] == "hello", result


def test_tls_to_a_plain_http_rule_is_refused(box):
    result = box.curl(POLICY, "https://mirror.test/")
    assert result.code in (7, 35), result
