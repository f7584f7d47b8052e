# SPDX-License-Identifier: Apache-2.0
"""Runs inside the sandbox as probe.py does, with operations that no ordinary client has: messages made byte by byte, and
clients that do a usual thing in an unusual order. Text stands for bytes (latin-1)."""
import base64
import concurrent.futures
import hashlib
import json
import os
import socket
import ssl
import struct
import subprocess
import sys
import time

import probe
from probe import connect, open_tcp, read_all, resolve, tls, udp  # noqa: F401  (operations as well)

RECORD = {20: "ccs", 21: "alert", 22: "handshake", 23: "data"}
UNRECOGNIZED_NAME = 112


# ---- names, on every place of the wire where one stands ----

def hello(sni, alpn=()):
    """A ClientHello of OpenSSL whose SNI holds exactly these bytes."""
    placeholder = ("a" * 60 + ".") * (len(sni) // 61) + "a" * (len(sni) % 61)
    placeholder = placeholder[:-1] + "a" if placeholder.endswith(".") else placeholder
    outgoing = ssl.MemoryBIO()
    context = probe.tls_context(False)
    if alpn:
        context.set_alpn_protocols(list(alpn))
    stream = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=placeholder)
    try:
        stream.do_handshake()
    except ssl.SSLWantReadError:
        pass
    head = b"\0" + struct.pack(">H", len(sni))  # RFC 6066 3: type and length of the name
    data = outgoing.read()
    assert data.count(head + placeholder.encode()) == 1
    return data.replace(head + placeholder.encode(), head + sni.encode("latin-1"))


def sni(host, port, text):
    """What a ClientHello with that SNI gets: "handshake", "alert NUMBER", "reset" or "closed"."""
    with open_tcp(host, port) as sock:
        sock.sendall(hello(text))
        try:
            answer = sock.recv(100)
        except ConnectionResetError:
            return "reset"
        word = RECORD.get(answer[0], "other") if answer else "closed"
        return f"alert {answer[6]}" if word == "alert" else word


def request(host, port, authority, target="/", version="1.1", method="GET", more=""):
    """The status of one HTTP request with that Host (None: without), or "reset", "closed"."""
    with open_tcp(host, port) as sock:
        sock.settimeout(4)
        line = "" if authority is None else f"Host: {authority}\r\n"
        sock.sendall(f"{method} {target} HTTP/{version}\r\n{line}{more}Connection: close\r\n\r\n".encode("latin-1"))
        answer = read_all(sock)
        return answer.split(b" ")[1].decode() if answer.startswith(b"HTTP/") else answer.decode("latin-1")[:40] or "closed"


def labels(text):
    """The wire form of a name, whatever its labels hold; the last one is the root."""
    return b"".join(bytes([len(label)]) + label for label in text.encode("latin-1").split(b".") if label) + b"\0"


def query(name_wire, kind=1, flags=0x0100, counts=(1, 0, 0, 0), more=b""):
    return struct.pack(">HHHHHH", 4242, flags, *counts) + name_wire + struct.pack(">HH", kind, 1) + more


def dns(name, kind=1, server="192.0.2.1"):
    """The RCODE of one UDP query for a name of these bytes."""
    return dns_raw(query(labels(name), kind).decode("latin-1"), server)


def dns_raw(text, server="192.0.2.1", wait=3):
    """The RCODE that a datagram of these bytes gets from port 53, or "silence"."""
    with socket.socket(socket.AF_INET6 if ":" in server else socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(wait)
        sock.connect((server, 53))
        sock.send(text.encode("latin-1"))
        try:
            return sock.recv(4096)[3] & 15
        except socket.timeout:
            return "silence"


def dns_stream(names, server, step=0):
    """Several queries on one TCP connection, sent in pieces of step bytes: their RCODEs, in the order of the queries."""
    data = b""
    for number, name in enumerate(names):
        message = struct.pack(">H", number) + query(labels(name))[2:]
        data += struct.pack(">H", len(message)) + message
    codes = {}
    with open_tcp(server, 53) as sock:
        for at in range(0, len(data), step or len(data)):
            sock.sendall(data[at:at + (step or len(data))])
            time.sleep(0.002 if step else 0)
        stream = sock.makefile("rb")
        while len(codes) < len(names) and len(size := stream.read(2)) == 2:
            answer = stream.read(struct.unpack(">H", size)[0])
            codes[struct.unpack(">H", answer[:2])[0]] = answer[3] & 15
    return [codes.get(number) for number in range(len(names))]


def resolve_all(pattern, count):
    """getaddrinfo of that many names at once: how many gave addresses, how many of them differ, and the worst ms."""
    def one(number):
        started = time.monotonic()
        found = resolve(pattern % number)
        return found[0], (time.monotonic() - started) * 1000
    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        answers = list(pool.map(one, range(count)))
    return [len(answers), len({address for address, _ in answers}), max(ms for _, ms in answers)]


def resolve_often(name, count):
    """One name again and again: the distinct first addresses."""
    return len({resolve(name)[0] for _ in range(count)})


# ---- explicit proxies (run --proxy) ----

PROXY = "192.0.0.1"
HTTP_PORT, SOCKS_PORT = 3128, 1080


def tunnel(authority, host=None, more=""):
    """A CONNECT to the HTTP proxy. The socket, and the head of the answer."""
    sock = open_tcp(PROXY, HTTP_PORT)
    sock.settimeout(4)
    sock.sendall(f"CONNECT {authority} HTTP/1.1\r\nHost: {authority if host is None else host}\r\n{more}\r\n".encode("latin-1"))
    head = b""
    while b"\r\n\r\n" not in head and (chunk := sock.recv(4096)):
        head += chunk
    return sock, head.decode("latin-1")


def proxy_connect(authority, host=None, more=""):
    """The status of a CONNECT, or "closed"; with " challenge" where credentials are asked for."""
    sock, head = tunnel(authority, host, more)
    sock.close()
    status = head.split(" ")[1] if head.startswith("HTTP/") else "closed"
    return status + (" challenge" if "proxy-authenticate" in head.lower() else "")


def socks(host, port, kind=3):
    """The reply of the SOCKS5 proxy to a CONNECT (RFC 1928 6), for a name of these bytes (kind 3) or an address."""
    sock, reply = socks_open(host, port, kind)
    sock.close()
    return reply


def socks_open(host, port, kind=3):
    data = host.encode("latin-1") if kind == 3 else socket.inet_pton(socket.AF_INET if kind == 1 else socket.AF_INET6, host)
    sock = open_tcp(PROXY, SOCKS_PORT)
    sock.settimeout(4)
    sock.sendall(b"\5\1\0")
    if sock.recv(2) != b"\5\0":
        return sock, "no method"
    sock.sendall(b"\5\1\0" + bytes([kind]) + (bytes([len(data)]) if kind == 3 else b"") + data + struct.pack(">H", port))
    try:
        answer = sock.recv(100)
    except ConnectionResetError:
        return sock, "reset"
    return sock, answer[1] if len(answer) > 1 else "closed"


def proxy_sni(kind, host, port, name):
    """Behind the answer of a proxy, a ClientHello with that SNI: as sni()."""
    sock, said = socks_open(host, port) if kind == "socks" else tunnel(f"{host}:{port}")
    if said != 0 and " 200 " not in str(said):
        return f"refused {said}"
    with sock:
        sock.sendall(hello(name))
        answer = sock.recv(100)
        word = RECORD.get(answer[0], "other") if answer else "closed"
        return f"alert {answer[6]}" if word == "alert" else word


def proxy_again(first, second, more):
    """Two CONNECTs, the second with a further field, on one connection if the proxy keeps it: both statuses."""
    sock, head = tunnel(first)
    statuses = [head.split(" ")[1]]
    length = int((head.lower().partition("content-length: ")[2].split("\r\n")[0]) or 0)
    body = head.partition("\r\n\r\n")[2]
    while len(body) < length and (chunk := sock.recv(4096)):
        body += chunk.decode("latin-1")
    try:
        sock.sendall(f"CONNECT {second} HTTP/1.1\r\nHost: {second}\r\n{more}\r\n".encode())
        answer = sock.recv(4096).decode("latin-1")
    except OSError:
        answer = ""
    if not answer:
        sock.close()
        sock, answer = tunnel(second, None, more)
    sock.close()
    return statuses + [answer.split(" ")[1]]


# ---- bytes through a relay ----

def hello_echo(host, port, name, size):
    """A ClientHello and size bytes after it, to a server that returns every byte: whether they came back unchanged."""
    data = hello(name, ("h2", "http/1.1")) + os.urandom(size)
    with open_tcp(host, port) as sock:
        sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)
        back = read_all(sock)
    return "unchanged" if back == data else f"{len(back)} of {len(data)} bytes"


def same_flight(host, port, name):
    """TLS 1.3 where the request leaves in one segment with the client's Finished."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    stream = probe.tls_context(True).wrap_bio(incoming, outgoing, server_hostname=name)
    with open_tcp(host, port) as sock:
        while True:
            try:
                stream.do_handshake()
                break
            except ssl.SSLWantReadError:
                sock.sendall(outgoing.read())
                incoming.write(sock.recv(65536))
        stream.write(f"GET / HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n".encode())
        sock.sendall(outgoing.read())
        text = probe.pump(sock, incoming, outgoing, lambda: stream.read(4096), 0).decode()
        return f"{stream.version()} {text.split()[1]}"


def certificate(host, port, name):
    """SHA-256 of the certificate that the client sees."""
    with open_tcp(host, port) as sock, probe.tls_context(True).wrap_socket(sock, server_hostname=name) as stream:
        return hashlib.sha256(stream.getpeercert(True)).hexdigest()


def ping_pong(host, port, count):
    """Small requests in two writes each, to an echo server: the ms of an answer, at the lower quartile."""
    times = []
    with open_tcp(host, port) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(count):
            started = time.monotonic()
            sock.sendall(b"a")
            sock.sendall(b"b")
            got = b""
            while len(got) < 2:
                got += sock.recv(10)
            times.append((time.monotonic() - started) * 1000)
    return sorted(times)[count // 4]


def http_ping_pong(host, port, count):
    """Small requests on one connection, head and body in a write each, to a server that answers before it has the body: the ms of an answer,
    at the lower quartile."""
    def more(sock):
        if not (data := sock.recv(4096)):
            raise ConnectionError("the connection was not kept")
        return data
    times = []
    with open_tcp(host, port) as sock:
        for _ in range(count):
            started = time.monotonic()
            sock.sendall(f"POST /zen HTTP/1.1\r\nHost: {host}\r\nContent-Length: 1\r\n\r\n".encode())
            sock.sendall(b"b")
            got = b""
            while b"\r\n\r\n" not in got:
                got += more(sock)
            length = int(got.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
            while len(got.partition(b"\r\n\r\n")[2]) < length:
                got += more(sock)
            times.append((time.monotonic() - started) * 1000)
    return sorted(times)[count // 4]


def short_connections(host, port, count):
    """Connect, ask, read the answer to its end, close, so many times: what went wrong."""
    wrong = {}
    for number in range(count):
        try:
            with open_tcp(host, port) as sock:
                sock.sendall(b"%d" % number)
                sock.shutdown(socket.SHUT_WR)
                word = "" if read_all(sock) == b"%d" % number else "wrong"
        except OSError as error:
            word = probe.name_of(error)
        if word:
            wrong[word] = wrong.get(word, 0) + 1
    return wrong


def uploads(host, port, count, size, pause=0):
    """That many uploads of different data at once, to a server that says length and SHA-256: how many arrived unchanged."""
    def one(number):
        block = hashlib.sha256(b"%d" % number).digest() * 2048
        digest, left = hashlib.sha256(), size
        with open_tcp(host, port) as sock:
            sock.settimeout(30)
            while left:
                part = block[:min(left, len(block))]
                sock.sendall(part)
                digest.update(part)
                left -= len(part)
                time.sleep(pause)
            sock.shutdown(socket.SHUT_WR)
            return read_all(sock).decode() == f"{size} {digest.hexdigest()}\n"
    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        return sum(pool.map(one, range(count)))


def counters(path, *names):
    """The sum of counters of /proc/net/snmp (two lines a protocol) or snmp6 (a line each)."""
    with open(path, encoding="utf-8") as file:
        lines = [line.split() for line in file]
    if path.endswith("6"):
        return sum(int(value) for name, value in lines if name in names)
    return sum(int(value) for keys, values in zip(lines[::2], lines[1::2]) for name, value in zip(keys, values) if keys[0] + name in names)


def upload_packets(host, port, size):
    """Uploads to a discard server: packets on lo for each megabyte, and how many the sandbox's own kernel refused."""
    def now():
        with open("/proc/net/dev", encoding="utf-8") as file:
            packets = next(int(line.split()[2]) for line in file if line.split()[0] == "lo:")
        return packets, counters("/proc/net/snmp", "Icmp:OutDestUnreachs") + counters("/proc/net/snmp6", "Icmp6OutDestUnreachs")
    before = now()
    sent = uploads(host, port, 1, size)
    after = now()
    return [sent, (after[0] - before[0]) * (1 << 20) // size, after[1] - before[1]]


def slow_reader(host, port, size, pause):
    """Asks a chargen server for size bytes and reads them in small sips: how many came."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16384)
        sock.connect((host, port))
        sock.sendall(f"{size}\n".encode())
        count = 0
        while chunk := sock.recv(16384):
            count += len(chunk)
            time.sleep(pause)
        return count


def events(host, port, name, path, secure):
    """Reads a stream of server-sent events: how many arrived, and how many ms before the last one the first did."""
    with open_tcp(host, port) as raw:
        sock = probe.tls_context(True).wrap_socket(raw, server_hostname=name) if secure else raw
        sock.sendall(f"GET {path} HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n".encode())
        arrived, data = [], b""
        while chunk := sock.recv(65536):
            data += chunk
            arrived += [time.monotonic()] * chunk.count(b"data:")
        return [len(arrived), (arrived[-1] - arrived[0]) * 1000 if arrived else 0]


def pipeline(host, port, authority, count):
    """So many requests, all sent without waiting: how many answers came, by status."""
    one = f"GET /zen HTTP/1.1\r\nHost: {authority}\r\n\r\n".encode()
    tally = {}
    with open_tcp(host, port) as sock, concurrent.futures.ThreadPoolExecutor(1) as pool:
        def send():
            try:
                sock.sendall(one * count)
                sock.shutdown(socket.SHUT_WR)
            except OSError:
                pass
        pool.submit(send)
        rest = b""
        while chunk := sock.recv(1 << 18):
            lines = (rest + chunk).split(b"HTTP/1.1 ")
            rest = b"HTTP/1.1 " + lines.pop() if len(lines) > 1 else rest + chunk
            for line in lines[1:]:
                tally[line[:3].decode()] = tally.get(line[:3].decode(), 0) + 1
        for line in rest.split(b"HTTP/1.1 ")[1:]:
            tally[line[:3].decode()] = tally.get(line[:3].decode(), 0) + 1
    return tally


def websocket(host, port, name, secure, size, fields, greeting=False):
    """An echo of one binary frame after a handshake with these header fields; the SHA-256 of what came back is compared."""
    with open_tcp(host, port) as raw:
        sock = probe.tls_context(True).wrap_socket(raw, server_hostname=name) if secure else raw
        key = base64.b64encode(os.urandom(16)).decode()
        sock.sendall((f"GET {'/ws-greets' if greeting else '/ws'} HTTP/1.1\r\nHost: {name}\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n" +
                      "".join(f"{field}\r\n" for field in fields) + "\r\n").encode())
        stream = sock.makefile("rb")
        status = stream.readline().decode().split(" ")[1]
        while stream.readline().strip():
            pass
        if status != "101":
            return status
        if greeting and frame(stream) != b"welcome":
            return "no greeting"
        data, mask = os.urandom(size), b"\1\2\3\4"
        masked = bytes(b ^ m for b, m in zip(data, mask * (size // 4 + 1)))
        sock.sendall(bytes([0x82, 0x80 | 127]) + struct.pack(">Q", size) + mask + masked)
        return "echoed" if frame(stream) == data else "wrong"


def frame(stream):
    size = stream.read(2)[1]
    if size >= 126:
        size = int.from_bytes(stream.read(2 if size == 126 else 8), "big")
    return stream.read(size)


# ---- the sandbox's own kernel ----

def open_socket(family, kind, protocol, host=None):
    """Opens a socket of a protocol and sends something: "sent" or the error."""
    with socket.socket(family, kind, protocol) as sock:
        if host:
            sock.settimeout(2)
            sock.connect((host, 9))
            sock.send(b"x" * 100)
    return "sent"


def local_service(host):
    """A server and a client, both in the sandbox."""
    with socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET) as server:
        with socket.create_connection(server.getsockname()[:2], 2) as client:
            peer, _ = server.accept()
            peer.sendall(b"own")
            peer.close()
            return client.recv(10).decode()


def local_socket(path):
    """A UNIX socket by a path, and an abstract one, between two processes of the sandbox."""
    words = []
    for address in (path, "\0own-abstract"):
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(address)
            server.listen()
            script = "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1].replace('@', chr(0))); s.sendall(b'own')"
            client = subprocess.Popen([sys.executable, "-c", script, address.replace("\0", "@")])
            peer, _ = server.accept()
            words.append(peer.recv(10).decode())
            client.wait()
    os.unlink(path)
    return words


def addresses():
    """The states of the IPv6 addresses: those that are tentative or failed (flags of linux/if_addr.h)."""
    with open("/proc/net/if_inet6", encoding="ascii") as file:
        rows = [line.split() for line in file]
    return [len(rows) > 0, [row[0] for row in rows if int(row[4], 16) & (0x40 | 0x08)]]


def command(*argv):
    """Output and status of a program."""
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=20, check=False)
    return [done.returncode, done.stdout]


def perform(function, *arguments):
    started = time.monotonic()
    try:
        result = (globals().get(function) or getattr(probe, function))(*arguments)
    except OSError as error:
        result = probe.name_of(error)
    return {"result": result, "ms": (time.monotonic() - started) * 1000}


if __name__ == "__main__":
    print(json.dumps([perform(*operation) for operation in json.loads(sys.argv[1])]))
