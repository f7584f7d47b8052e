# SPDX-License-Identifier: Apache-2.0
"""What bound.py answers: APP by the first word of the path; below /rude/, what goes wrong (RUDE1, RUDE2)."""
import base64
import hashlib
import socket
import struct
import time
import urllib.parse
import zlib

CHUNK = 1 << 16
DEADLINE = 120
EVENTS, PAUSE = 5, 0.2
FLOOD = 16 << 20


def answer(exchange):
    parts = urllib.parse.urlsplit(exchange.path)
    words = parts.path.split("/")
    APP.get(words[1], headers)(exchange, *words[2:], **dict(urllib.parse.parse_qsl(parts.query)))


def simple(exchange, status, data, headers=()):
    none = status in (204, 304)
    exchange.start(status, [*([] if none else [("content-length", str(len(data)))]), *headers])
    exchange.write(b"" if none or exchange.method == "HEAD" else data)
    exchange.finish()


def headers(exchange, *words, **unused):
    """The request's head, as it arrived, then its body."""
    body = b"".join(iter(exchange.read, b""))
    simple(exchange, 200, exchange.head + body)


def echo(exchange, *words):
    """Each part of the body as soon as it came; trailers come back too."""
    exchange.start(200, [("trailer", "x-lab")])
    while data := exchange.read():
        exchange.write(data)
    exchange.finish([("x-lab", ",".join(exchange.trailers) or "end")])


def upload(exchange, *words):
    """Reads all, answers with the count and CRC-32."""
    if exchange.header("expect") and "late" not in words:
        exchange.inform(100)
    count = crc = 0
    while data := exchange.read():
        count, crc = count + len(data), zlib.crc32(data, crc)
    simple(exchange, 200, f"{count} {crc}\n".encode())


def download(exchange, size, how="length"):
    size = int(size)
    exchange.start(200, [("content-length", str(size))] if how == "length" else [])
    data = b"0123456789abcdef" * (CHUNK // 16)
    while size:
        exchange.write(data[:size])
        size -= min(size, CHUNK)
    exchange.finish()


def refuse(exchange, status="417"):
    """An answer that does not wait for the body, and the end."""
    exchange.close = True
    simple(exchange, int(status), b"early answer\n", [("connection", "close")] if exchange.version == 1 else [])


def events(exchange, *words):
    exchange.start(200, [("content-type", "text/event-stream")])
    for number in range(EVENTS):
        exchange.write(f"data: {number} {time.time()}\n\n".encode())
        time.sleep(PAUSE)
    exchange.finish()


def redirect(exchange, *words, to="https://elsewhere.example/headers"):
    simple(exchange, 302, b"", [("location", to)])


def hints(exchange, *words):
    exchange.inform(103, [("link", "</style.css>; rel=preload")])
    simple(exchange, 200, b"hinted\n")


def cookies(exchange, *words):
    simple(exchange, 200, b"two\n", [("set-cookie", "a=1"), ("set-cookie", "b=2"), ("x-lab", exchange.header("authorization") or "")])


def silent(exchange, *words):
    """Neither reads nor answers."""
    time.sleep(DEADLINE if not words else float(words[0]))
    simple(exchange, 200, b"at last\n")


def websocket(exchange, *words):
    """RFC 6455 echo of unfragmented frames, for those who have a credential."""
    exchange.close = True
    if not (exchange.header("authorization") or "").startswith("Bearer "):
        simple(exchange, 401, b"no credential\n")
        return
    key = exchange.header("sec-websocket-key").encode() + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
    exchange.start(101, [("Upgrade", "websocket"), ("Connection", "Upgrade"),
                         ("Sec-WebSocket-Accept", base64.b64encode(hashlib.sha1(key).digest()).decode())])
    if words == ("late",):  # says something only once the client has closed its direction
        got = exchange.buffer + b"".join(iter(exchange.stream.recv, b""))
        time.sleep(0.2)  # Python's end of a TLS direction throws away what comes in the same moment
        exchange.write(b"after your end, with %d bytes" % len(got))
        return
    while True:
        kind, size = need(exchange, 2)
        size &= 127
        if size >= 126:
            size = int.from_bytes(need(exchange, 2 if size == 126 else 8), "big")
        mask = need(exchange, 4)
        data = bytes(byte ^ mask[i % 4] for i, byte in enumerate(need(exchange, size)))
        length = bytes([len(data)]) if len(data) < 126 else b"\x7f" + struct.pack(">Q", len(data))
        exchange.write(bytes([kind]) + length + data)
        if kind & 15 == 8:
            return


def need(exchange, count):
    while len(exchange.buffer) < count:
        exchange.more()
    data, exchange.buffer = exchange.buffer[:count], exchange.buffer[count:]
    return data


APP = {"headers": headers, "echo": echo, "upload": upload, "download": download, "refuse": refuse, "events": events,
       "redirect": redirect, "hints": hints, "cookies": cookies, "silent": silent, "ws": websocket}


# ---- misbehaviour ----

OK = b"HTTP/1.1 200 OK\r\n"
TEXTS1 = {
    "close": b"",
    "head": OK + b"Content-Le",
    "chunk": OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nzz\r\nrest\r\n0\r\n\r\n",
    "chunkcut": OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n100\r\nrest",
    "short": OK + b"Content-Length: 100\r\n\r\nhello",
    "two": OK + b"Content-Length: 5\r\n\r\nfirst" + OK + b"Content-Length: 6\r\n\r\nsecond",
    "lengths": OK + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
    "both": OK + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    "status": b"HTTP/1.1 2xx OK\r\nContent-Length: 0\r\n\r\n",
    "version": b"HTTP/9.9 200 OK\r\nContent-Length: 0\r\n\r\n",
    "garbage": b"\x00\xff\x16\x03 what is this\r\n\r\n",
    "nul": OK + b"X: a\0b\r\nContent-Length: 0\r\n\r\n",
    "unasked": b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\nnot http",
}


def rude1(text):
    def function(stream):
        stream.sendall(text)
        time.sleep(0.1)
    return function


def reset1(stream):
    stream.sendall(OK + b"Content-Length: 100\r\n\r\nhello")
    time.sleep(0.1)
    stream.reset()


def bomb1(stream):
    stream.sendall(OK)
    for number in range(FLOOD // 1024):
        stream.sendall(b"X-%d: %s\r\n" % (number, b"a" * 1000))


def informs1(stream):
    for _ in range(100000):
        stream.sendall(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n")


RUDE1 = {**{name: rude1(text) for name, text in TEXTS1.items()}, "reset": reset1, "bomb": bomb1, "informs": informs1}


def frame(kind, flags, number, payload):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", number) + payload


def raw2(serving, data):
    with serving.changed:
        serving.stream.sendall(data)


def goaway(serving, exchange):
    """In the middle of an answer, which it then ends: streams up to this one are to be finished."""
    exchange.start(200)
    exchange.write(b"before ")
    raw2(serving, frame(7, 0, 0, struct.pack(">II", exchange.number, 0)))
    time.sleep(0.3)
    raw2(serving, frame(0, 1, exchange.number, b"after\n"))  # python3-h2 would not, if the peer says GOAWAY too
    time.sleep(0.3)
    serving.stream.sock.shutdown(socket.SHUT_RDWR)


def closing(serving, exchange):
    exchange.start(200)
    exchange.write(b"before ")
    time.sleep(0.1)
    serving.stream.sock.shutdown(socket.SHUT_RDWR)  # without a word of TLS


def reset2(serving, exchange):
    exchange.start(200)
    exchange.write(b"before ")
    exchange.send(serving.http.reset_stream, error_code=2)


def continuation(serving, exchange):
    raw2(serving, frame(1, 0, exchange.number, b"\x88"))
    for _ in range(FLOOD // 1024):
        raw2(serving, frame(9, 0, exchange.number, b"\x00\x01x\x7f\x81\x07" + b"a" * 262))


def bomb2(serving, exchange):
    exchange.start(200, [(f"x-{number}", "a" * 4000) for number in range(200)])
    exchange.finish()


def pings(serving, exchange):
    for _ in range(50000):
        raw2(serving, frame(6, 0, 0, b"12345678"))
    simple(exchange, 200, b"pinged\n")


def push(serving, exchange):
    raw2(serving, frame(5, 4, exchange.number, struct.pack(">I", 2) + b"\x82\x87\x84"))
    simple(exchange, 200, b"pushed\n")


RUDE2 = {"goaway": goaway, "closing": closing, "reset": reset2, "continuation": continuation, "bomb": bomb2, "pings": pings,
         "push": push, "garbage": lambda serving, exchange: raw2(serving, frame(1, 4, exchange.number, b"\xff" * 64)),
         "order": lambda serving, exchange: raw2(serving, frame(0, 1, exchange.number, b"data before a head")),
         "status": lambda serving, exchange: raw2(serving, frame(1, 5, exchange.number, b"\x48\x03abc"))}
