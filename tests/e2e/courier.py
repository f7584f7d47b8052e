# SPDX-License-Identifier: Apache-2.0
"""Runs inside the sandbox (guest.py starts it): reads a line of JSON, [number, function, {arguments}], does it, answers with a line
of JSON; until its input ends. HTTP over TLS, byte by byte where that matters."""
import base64
import json
import os
import socket
import ssl
import struct
import subprocess
import sys
import time
import zlib

TIMEOUT = 10
SILENCE = 1.5  # seconds after which a stream that says nothing more is left
BIG = 1 << 20


def context_of(alpn, version=None, cafile=None, verify=True):
    context = ssl.create_default_context(cafile=cafile)
    if alpn:
        context.set_alpn_protocols(alpn)
    if version:
        context.minimum_version = context.maximum_version = getattr(ssl.TLSVersion, version)
    if not verify:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def connect(host, sni=True, alpn=("http/1.1",), address=None, port=443, **options):
    """sni: True is the host, None is none, or another name. Without an SNI of its own the certificate is checked as host's."""
    context = context_of(list(alpn), **options)
    raw = socket.create_connection((address or host, port), TIMEOUT)
    raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    name = host if sni is True else sni
    if name is None:
        context.check_hostname = False
    sock = context.wrap_socket(raw, server_hostname=name)
    sock.settimeout(TIMEOUT)
    return sock


def read_all(sock, silence=SILENCE, most=BIG):
    """What comes until the end, a reset, silence, or that many bytes; and which of these it was."""
    data = b""
    sock.settimeout(silence)
    while len(data) < most:
        try:
            chunk = sock.recv(65536)
        except (TimeoutError, socket.timeout):
            return data, "silent"
        except OSError as error:
            return data, word(error)
        if not chunk:
            return data, "closed"
        data += chunk
    return data, "much"


def h1(host, text="", parts=(), pause=0.0, end=False, silence=SILENCE, **options):
    """Sends text, or its parts with a pause after each; end: closes the TLS direction. What came back."""
    with connect(host, **options) as sock:
        try:
            for part in parts or (text,):
                sock.sendall(part.encode("latin-1"))
                time.sleep(pause)
        except OSError:
            pass  # the answer says why
        before = b""
        if end:
            before = read_all(sock, 0.3)[0]  # what comes while it closes would be lost
            shut_write(sock)
        data, how = read_all(sock, silence)
        return {"text": (before + data).decode("latin-1"), "end": how}


def shut_write(sock):
    """close_notify without waiting for the peer's."""
    sock.setblocking(False)
    try:
        sock._sslobj.shutdown()
    except ssl.SSLError:
        pass
    sock.setblocking(True)


def facts(host, **options):
    """What the handshake chose and whose certificate it was. issuer is None where the host's certificate does not verify."""
    with connect(host, **options) as sock:
        found = sock.getpeercert()
        return {"version": sock.version(), "alpn": sock.selected_alpn_protocol(), "cipher": sock.cipher()[0],
                "issuer": dict(pair[0] for pair in found["issuer"]).get("commonName"),
                "names": [value for _, value in found["subjectAltName"]],
                "from": ssl.cert_time_to_seconds(found["notBefore"]), "until": ssl.cert_time_to_seconds(found["notAfter"]),
                "pem": ssl.DER_cert_to_PEM_cert(sock.getpeercert(True))}


def resumes(host):
    """Whether a second connection resumes the first one's session, and how much early data a ticket allows."""
    context = context_of(["http/1.1"])
    sessions = []
    for _ in range(2):
        with socket.create_connection((host, 443), TIMEOUT) as raw, context.wrap_socket(
                raw, server_hostname=host, session=sessions[-1] if sessions else None) as sock:
            sock.sendall(f"GET /headers HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
            read_all(sock)
            sessions.append(sock.session)
            reused = sock.session_reused
    return {"reused": reused, "ticket": sessions[0] is not None and sessions[0].has_ticket}


held = {}


def hold(host, name, upgrade=False, sse=False):
    """A connection that has had an answer, kept open under that name. Its status line."""
    more = ("Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: "
            "AAAAAAAAAAAAAAAAAAAAAA==\r\n" if upgrade else "")
    held[name] = connect(host)
    held[name].sendall(f"GET {'/ws' if upgrade else '/headers'} HTTP/1.1\r\nHost: {host}\r\n{more}\r\n".encode())
    return held[name].recv(65536).split(b"\r\n")[0].decode()


def held_end(name, seconds):
    """How a kept connection ends within that time: "silent", if it does not."""
    return read_all(held.pop(name), seconds)[1]


def plain(host, text, port=80):
    """The same bytes without TLS."""
    with socket.create_connection((host, port), TIMEOUT) as sock:
        sock.sendall(text.encode("latin-1"))
        data, how = read_all(sock)
        return {"text": data.decode("latin-1"), "end": how}


def bulk(host, path, size=0, pause=0.0, upload=False, chunked=False):
    """A body of size bytes up, or what comes down: count and CRC-32. pause: seconds before anything is read or sent."""
    method = "PUT" if upload else "GET"
    framing = "" if not upload else "Transfer-Encoding: chunked\r\n" if chunked else f"Content-Length: {size}\r\n"
    with connect(host) as sock:
        sock.settimeout(60)
        sock.sendall(f"{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{framing}\r\n".encode())
        time.sleep(pause)
        block, crc, left = bytes(range(256)) * 1024, 0, size
        while upload and left:
            part = block[:min(left, len(block))]
            crc = zlib.crc32(part, crc)
            sock.sendall(b"%x\r\n%s\r\n" % (len(part), part) if chunked else part)
            left -= len(part)
        if chunked:
            sock.sendall(b"0\r\n\r\n")
        stream = sock.makefile("rb")
        status, length, coded = int(stream.readline().split()[1]), None, False
        while line := stream.readline().strip().lower():
            length = int(line[15:]) if line.startswith(b"content-length:") else length
            coded = coded or line == b"transfer-encoding: chunked"
        if upload:
            return {"status": status, "sent": f"{size} {crc}", "text": stream.read(length).decode().strip()}
        count = crc = 0
        while True:
            wanted = int(stream.readline(), 16) if coded else min(length - count, 1 << 18)
            if not wanted:
                break
            part = stream.read(wanted)
            count, crc = count + len(part), zlib.crc32(part, crc)
            if coded:
                stream.readline()
        return {"status": status, "count": count, "crc": crc}


def arrivals(host, path, version=1):
    """The events of a stream and how long (seconds) each was on its way, by the time that it says itself."""
    delays = []
    arguments = ["curl", "-sSN", "--http1.1" if version == 1 else "--http2", "--max-time", "15", f"https://{host}{path}"]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE) as process:
        for line in process.stdout:
            if line.startswith(b"data: "):
                delays.append(time.time() - float(line.split()[2]))
    return delays


def websocket(host, path="/ws", size=5, headers="", version=None):
    """RFC 6455 handshake, the echo of one frame of that size, and the close. The status line, if there is no 101."""
    with connect(host, version=version) as sock:
        key = base64.b64encode(os.urandom(16)).decode()
        sock.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n{headers}"
                     f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n".encode())
        stream = sock.makefile("rb")
        status = stream.readline().decode().strip()
        while stream.readline().strip():
            pass
        if " 101 " not in status:
            return status
        mask, data = b"\1\2\3\4", b"hello" if size == 5 else b"\1\2\3\4" * (size // 4)
        length = bytes([0x80 | size]) if size < 126 else b"\xff" + struct.pack(">Q", size)
        sock.sendall(b"\x81" + length + mask + (bytes(b ^ mask[i % 4] for i, b in enumerate(data)) if size == 5 else bytes(size)))
        first = stream.read(2)[1]
        count = first if first < 126 else int.from_bytes(stream.read(2 if first == 126 else 8), "big")
        answer = stream.read(count)
        sock.sendall(b"\x88\x80" + mask)
        closing = stream.read(2)
        return [answer == data, closing[0] if closing else None]


# ---- HTTP/2 ----

class Two:
    """A client's connection, in one thread."""

    def __init__(self, host, window=None, **options):
        import h2.config
        import h2.connection
        import h2.settings
        options.setdefault("alpn", ["h2"])
        self.host, self.sock = host, connect(host, **options)
        if self.sock.selected_alpn_protocol() != "h2":
            raise OSError(f"alpn {self.sock.selected_alpn_protocol()}")
        self.http = h2.connection.H2Connection(h2.config.H2Configuration(
            header_encoding="latin-1", validate_outbound_headers=False, normalize_outbound_headers=False,
            validate_inbound_headers=True))
        self.http.initiate_connection()
        if window is not None:
            self.http.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: window})
        self.flush()
        self.answers, self.goaway = {}, None

    def flush(self):
        data = self.http.data_to_send()
        if data:
            self.sock.sendall(data)

    def request(self, method="GET", path="/headers", authority=None, headers=(), body=None, trailers=(), end=True, scheme="https"):
        """Sends the head and as much of the body as the window takes at once. Returns the stream."""
        number = self.http.get_next_available_stream_id()
        head = [(":method", method), (":scheme", scheme), (":path", path), (":authority", authority or self.host)]
        head = [pair for pair in head if pair[1] != "-"]
        self.answers[number] = {"status": None, "headers": [], "body": b"", "trailers": [], "reset": None, "ended": False,
                                "informed": []}
        self.http.send_headers(number, head + [tuple(pair) for pair in headers], end_stream=end and body is None)
        self.flush()
        data = (body or "").encode("latin-1") if not isinstance(body, bytes) else body
        while data:
            room = min(self.http.local_flow_control_window(number), self.http.max_outbound_frame_size)
            if room <= 0:
                if not self.step():
                    return number
                continue
            self.http.send_data(number, data[:room], end_stream=end and not trailers and len(data) <= room)
            data = data[room:]
            self.flush()
        if trailers:
            self.http.send_headers(number, [tuple(pair) for pair in trailers], end_stream=True)
            self.flush()
        return number

    def step(self, acknowledge=True, silence=TIMEOUT):
        """Takes what the peer sends next. False at the end."""
        import h2.events
        import h2.exceptions
        self.sock.settimeout(silence)
        try:
            data = self.sock.recv(65536)
            if not data:
                self.goaway = self.goaway or "closed"
                return False
            events = self.http.receive_data(data)
        except (OSError, h2.exceptions.ProtocolError) as error:
            self.goaway = self.goaway or word(error)
            return False
        for event in events:
            answer = self.answers.get(getattr(event, "stream_id", None))
            if isinstance(event, h2.events.ConnectionTerminated):
                self.goaway = f"goaway {int(event.error_code)}"
            elif answer is None:
                continue
            elif isinstance(event, h2.events.ResponseReceived):
                answer["status"], answer["headers"] = int(dict(event.headers)[":status"]), event.headers
            elif isinstance(event, h2.events.InformationalResponseReceived):
                answer["informed"].append(dict(event.headers)[":status"])
            elif isinstance(event, h2.events.DataReceived):
                answer["body"] += event.data
                if acknowledge:
                    self.http.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            elif isinstance(event, h2.events.TrailersReceived):
                answer["trailers"] = event.headers
            elif isinstance(event, h2.events.StreamEnded):
                answer["ended"] = True
            elif isinstance(event, h2.events.StreamReset):
                answer["reset"], answer["ended"] = int(event.error_code), True
        self.flush()
        return True

    def finish(self, numbers=None, silence=TIMEOUT):
        """Waits until these streams have ended. Their answers, bodies as text."""
        numbers = list(self.answers) if numbers is None else numbers
        while not all(self.answers[number]["ended"] for number in numbers) and self.step(silence=silence):
            pass
        return [{**self.answers[number], "body": self.answers[number]["body"].decode("latin-1"), "connection": self.goaway}
                for number in numbers]


def h2(host, requests, silence=TIMEOUT, sequence=False, **options):
    """Requests on one connection: all at once, or one after the other (sequence)."""
    two = Two(host, **options)
    answers = []
    for request in requests:
        number = two.request(**request)
        if sequence:
            answers += two.finish([number], silence)
    if not sequence:
        answers = two.finish(silence=silence)
    two.sock.close()
    return answers


def h2_duplex(host, parts):
    """A stream that goes on in both directions: each part is sent once the one before has come back; then trailers."""
    two = Two(host)
    number = two.request(method="POST", path="/echo", headers=[["content-type", "application/grpc"]], end=False)
    seen = []
    for part in parts:
        before = len(two.answers[number]["body"])
        two.http.send_data(number, part.encode())
        two.flush()
        while len(two.answers[number]["body"]) < before + len(part) and two.step():
            pass
        seen.append(two.answers[number]["body"][before:].decode())
    two.http.send_headers(number, [("x-up", "end of it")], end_stream=True)
    two.flush()
    return {"seen": seen, **two.finish([number])[0]}


def h2_bulk(host, path, size=0, upload=False, pause=0.0):
    """As bulk()."""
    two = Two(host, window=1 << 20)
    two.http.increment_flow_control_window(8 << 20)
    two.flush()
    if upload:
        block, crc, left = bytes(range(256)) * 64, 0, size
        number = two.request(method="PUT", path=path, end=False)
        time.sleep(pause)
        while left:
            room = min(two.http.local_flow_control_window(number), two.http.max_outbound_frame_size, left, len(block))
            if room <= 0:
                if not two.step():
                    break
                continue
            part = block[:room]
            crc = zlib.crc32(part, crc)
            left -= room
            two.http.send_data(number, part, end_stream=not left)
            two.flush()
        answer = two.finish([number])[0]
        return {"status": answer["status"], "sent": f"{size} {crc}", "text": answer["body"].strip()}
    number = two.request(path=path)
    time.sleep(pause)
    answer, count, crc = two.answers[number], 0, 0
    while not answer["ended"] and two.step(silence=60):
        crc, count, answer["body"] = zlib.crc32(answer["body"], crc), count + len(answer["body"]), b""
    return {"status": answer["status"], "count": count, "crc": crc}


def h2_unread(host, path, streams, seconds):
    """Asks for that many large answers and never gives any window back. How many bytes came meanwhile."""
    two = Two(host)
    numbers = [two.request(path=path) for _ in range(streams)]
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        two.step(acknowledge=False, silence=max(end - time.monotonic(), 0.01))
    return sum(len(two.answers[number]["body"]) for number in numbers)


def frame(kind, flags, number, payload):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", number) + payload


def h2_rude(host, kind):
    """What a hostile client sends after a good request; how that ends, and whether a new connection works."""
    two = Two(host)
    first = two.finish([two.request()])[0]
    try:
        RUDE[kind](two)
    except OSError:
        pass
    while two.step(silence=3):
        pass
    after = Two(host)
    return {"first": first["status"], "end": two.goaway, "after": after.finish([after.request()])[0]["status"],
            "resets": [answer["reset"] for answer in two.answers.values() if answer["reset"] is not None]}


def flood(make, count):
    def function(two):
        for at in range(0, count, 64):
            two.sock.sendall(b"".join(make(number) for number in range(at, at + 64)))
    return function


def open_head(two):
    """The start of a request's head, to be continued."""
    return frame(1, 1, 3, b"\x82\x87\x84\x41" + bytes([len(two.host)]) + two.host.encode())


def continued(two):
    two.sock.sendall(open_head(two))
    for _ in range(16 << 10):
        two.sock.sendall(frame(9, 0, 3, b"\x00\x01x\x7f\x81\x07" + b"a" * 262))


def empties(two):
    two.sock.sendall(open_head(two))
    for _ in range(2000):
        two.sock.sendall(frame(9, 0, 3, b"") * 100)


def rapid_reset(two):
    for number in range(3, 40003, 2):
        head = b"\x82\x87\x84\x41" + bytes([len(two.host)]) + two.host.encode()
        two.sock.sendall(frame(1, 5, number, head) + frame(3, 0, number, struct.pack(">I", 8)))


RUDE = {
    "continuation": continued,
    "empty continuations": empties,
    "rapid reset": rapid_reset,
    "pings": flood(lambda number: frame(6, 0, 0, b"12345678"), 200000),
    "settings": flood(lambda number: frame(4, 0, 0, b""), 200000),
    "priorities": flood(lambda number: frame(2, 0, 2 * number + 1, b"\0\0\0\0\x10"), 200000),
    "empty data": lambda two: (two.request(method="POST", path="/upload", end=False),
                               flood(lambda number: frame(0, 0, 3, b""), 200000)(two)),
    "window overflow": lambda two: two.sock.sendall(frame(8, 0, 0, struct.pack(">I", 0x7fffffff))),
    "no increment": lambda two: two.sock.sendall(frame(8, 0, 0, struct.pack(">I", 0))),
    "bad compression": lambda two: two.sock.sendall(frame(1, 5, 3, b"\xff" * 32)),
    "huge frame": lambda two: two.sock.sendall(frame(0, 0, 3, b"x" * (1 << 20))),
    "even stream": lambda two: two.sock.sendall(frame(1, 5, 2, b"\x82\x87\x84")),
    "push": lambda two: two.sock.sendall(frame(5, 4, 1, struct.pack(">I", 2) + b"\x82\x87\x84")),
}


# ---- programs ----

def run(argv, env=None, cwd=None, timeout=30, input=None):
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=timeout, check=False, cwd=cwd,
                          env={**os.environ, **(env or {})}, stdin=subprocess.DEVNULL if input is None else None,
                          input=None if input is None else input.encode())
    return {"code": done.returncode, "out": done.stdout.decode(errors="replace"), "err": done.stderr.decode(errors="replace")}


def environment():
    return dict(os.environ)


def word(error):
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"tls {error.reason}"
    if isinstance(error, (TimeoutError, socket.timeout)):
        return "silent"
    if isinstance(error, ConnectionResetError):
        return "reset"
    return f"{type(error).__name__}: {error}"


def main():
    for line in sys.stdin:
        number, function, arguments = json.loads(line)
        try:
            answer = {"result": globals()[function](**arguments)}
        except Exception as error:  # whatever went wrong is the answer
            answer = {"error": word(error)}
        print(json.dumps({**answer, "number": number}, default=lambda value: value.decode("latin-1")), flush=True)


if __name__ == "__main__":
    main()
