# SPDX-License-Identifier: Apache-2.0
"""Runs inside the sandbox: does the operations of a JSON list one after the other, prints a JSON list of the answers.
An operation is [function, argument...]; an answer has "result" (a word, an errno name, or text) and "ms"."""
import base64
import errno
import json
import os
import socket
import ssl
import struct
import sys
import time

TIMEOUT = 8
DNS_TIMEOUT = 12
BIG = 1 << 20


def open_tcp(host, port):
    """To an address, or to a name as clients do it: one address after the other."""
    sock = socket.create_connection((host, port), TIMEOUT)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def read_all(sock):
    data = b""
    try:
        while len(data) < BIG and (chunk := sock.recv(65536)):
            data += chunk
    except ConnectionResetError:
        data += b"<reset>"
    except socket.timeout:
        data += b"<timeout>"
    return data


def connect(host, port):
    open_tcp(host, port).close()
    return "connected"


def send_and_read(host, port, text):
    """Sends text, reads until the end of the stream (or a second of silence)."""
    with open_tcp(host, port) as sock:
        sock.sendall(text.encode("latin-1"))
        sock.settimeout(1.5)
        return read_all(sock).decode("latin-1")


def banner(host, port):
    """What a server that speaks first says, with nothing sent."""
    with open_tcp(host, port) as sock:
        return sock.recv(200).decode()


def half_close(host, port, size):
    """Sends, closes the sending direction, and reads the answer that comes only then."""
    with open_tcp(host, port) as sock:
        sock.sendall(b"y" * size)
        sock.shutdown(socket.SHUT_WR)
        return read_all(sock).decode()


def receive(host, port, size):
    """Asks a chargen server for size bytes; how many came."""
    with open_tcp(host, port) as sock:
        sock.sendall(f"{size}\n".encode())
        count = 0
        while chunk := sock.recv(1 << 18):
            count += len(chunk)
        return count


def urgent(host, port):
    """Urgent data both ways."""
    with open_tcp(host, port) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_OOBINLINE, 1)
        greeting = b""
        while b"\n" not in greeting:
            greeting += sock.recv(200)
        sock.sendall(b"one ")
        sock.send(b"!", socket.MSG_OOB)
        sock.sendall(b" two")
        sock.shutdown(socket.SHUT_WR)
        return (greeting + read_all(sock)).decode()


def hold(host, port, count, write=0, until=""):
    """Opens count connections and keeps them, writing up to so many bytes to each and reading nothing. What became of
    each; with until: only after that file exists."""
    kept, answers = [], []
    for _ in range(count):
        try:
            kept.append(open_tcp(host, port))
            answers.append("connected")
            kept[-1].setblocking(False)
            kept[-1].send(b"z" * write)
        except BlockingIOError:
            pass
        except OSError as error:
            answers.append(name_of(error))
    return wait(until, answers)


def stay(host, port, text, urgent_text="", until=""):
    """One connection that has sent text, then urgent bytes, and does nothing more until the file exists."""
    with open_tcp(host, port) as sock:
        sock.sendall(text.encode("latin-1"))
        sock.send(urgent_text.encode(), socket.MSG_OOB if urgent_text else 0)
        return wait(until, "stayed")


def wait(path, answer):
    """Says that it is here by a file PATH.here, then waits for PATH."""
    if not path:
        time.sleep(0.3)
        return answer
    open(path + ".here", "w", encoding="utf-8").close()
    deadline = time.monotonic() + 30
    while not os.path.exists(path) and time.monotonic() < deadline:
        time.sleep(0.02)
    return answer


def tls_records(host, port, sni, size):
    """A ClientHello cut into records of size bytes each; the type of the first record that comes back."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    stream = tls_context(True).wrap_bio(incoming, outgoing, server_hostname=sni)
    try:
        stream.do_handshake()
    except ssl.SSLWantReadError:
        pass
    hello = outgoing.read()
    body = hello[5:]
    with open_tcp(host, port) as sock:
        for at in range(0, len(body), size):
            part = body[at:at + size]
            sock.sendall(hello[:3] + struct.pack(">H", len(part)) + part)
        answer = sock.recv(100)
        return {22: "handshake", 21: "alert"}.get(answer[0], "other") if answer else "closed"


def tls_context(verify):
    context = ssl.create_default_context(cafile=os.environ["LAB_CA"])
    if not verify:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def tls(host, port, sni, verify=True, step=0):
    """A TLS handshake and one GET. step: sends the ClientHello in pieces of that many bytes."""
    with open_tcp(host, port) as raw:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        stream = tls_context(verify).wrap_bio(incoming, outgoing, server_hostname=sni)
        pump(raw, incoming, outgoing, stream.do_handshake, step)
        request = f"GET /tls HTTP/1.1\r\nHost: {sni or host}\r\nConnection: close\r\n\r\n".encode()
        pump(raw, incoming, outgoing, lambda: stream.write(request), 0)
        return pump(raw, incoming, outgoing, lambda: stream.read(4096), 0).decode()


def pump(raw, incoming, outgoing, action, step):
    while True:
        try:
            answer, waiting = action(), False
        except ssl.SSLWantReadError:
            waiting = True
        data = outgoing.read()
        for at in range(0, len(data), step or len(data) or 1):
            raw.sendall(data[at:at + (step or len(data))])
            if step:
                time.sleep(0.002)
        if not waiting:
            return answer
        chunk = raw.recv(65536)
        incoming.write(chunk) if chunk else incoming.write_eof()


def udp(host, port, text):
    """One datagram from a connected socket; the answer, or the error."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as sock:
        sock.settimeout(2)
        sock.connect((host, port))
        sock.send(text.encode())
        return sock.recv(2000).decode()


def udp_socket(host, port):
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM)
    sock.settimeout(2)
    sock.connect((host, port))
    return sock


def udp_sizes(host, port, sizes):
    """Datagrams of these sizes to an echo server: those that came back unchanged."""
    with udp_socket(host, port) as sock:
        good = []
        for size in sizes:
            data = os.urandom(size)
            sock.send(data)
            if sock.recv(70000) == data:
                good.append(size)
        return good


def udp_burst(host, port, count, size):
    """Numbered datagrams, in flights that fit any buffer: how many came back, and whether in order."""
    with udp_socket(host, port) as sock:
        numbers = []
        for start in range(0, count, 16):
            flight = range(start, min(start + 16, count))
            for number in flight:
                sock.send(struct.pack(">I", number) + bytes(size - 4))
            numbers += [struct.unpack(">I", sock.recv(70000)[:4])[0] for _ in flight]
        return [len(numbers), numbers == sorted(numbers)]


def udp_mtu(host, port, size=0):
    """What a program sees: IP_MTU before, and after a datagram of that size with "do not fragment"; then whether a
    smaller one comes back, and a large one without the flag."""
    level, mtu, discover = (41, 24, 23) if ":" in host else (0, 14, 10)  # IPV6_MTU, IPV6_MTU_DISCOVER; IP_MTU, IP_MTU_DISCOVER
    with udp_socket(host, port) as sock:
        seen = [sock.getsockopt(level, mtu)]
        if not size:
            return seen
        sock.setsockopt(level, discover, 2)
        sock.send(bytes(size))
        try:
            seen.append(len(sock.recv(70000)))
        except OSError as error:
            seen.append(name_of(error))
        seen.append(sock.getsockopt(level, mtu))
        sock.send(b"small")
        seen.append(sock.recv(70000).decode())
        sock.setsockopt(level, discover, 1)
        sock.send(bytes(size))
        return seen + [len(sock.recv(70000))]


def udp_flows(host, port, count, until=""):
    """One datagram from each of so many sockets, all kept open: how many were answered, and the errors."""
    tally, socks = {}, []
    for number in range(count):
        sock = udp_socket(host, port)
        socks.append(sock)
        sock.settimeout(1)
        try:
            sock.send(str(number).encode())
            word = "answered" if sock.recv(100).decode() == str(number) else "wrong"
        except OSError as error:
            word = name_of(error)
        tally[word] = tally.get(word, 0) + 1
    return wait(until, tally)


def udp_update(host, port, until=""):
    """An answer, then (after the file exists) the answer or error to one more datagram of the same socket."""
    with udp_socket(host, port) as sock:
        sock.send(b"one")
        first = sock.recv(100).decode()
        wait(until, "")
        sock.send(b"two")
        try:
            return [first, sock.recv(100).decode()]
        except OSError as error:
            return [first, name_of(error)]


def ping(host, size, count=1, identifiers=1):
    """Echo requests from so many ping sockets: the sequence numbers that came back with their payload, or the error."""
    six = ":" in host
    good = []
    for _ in range(identifiers):
        with socket.socket(*((socket.AF_INET6, socket.SOCK_DGRAM, 58) if six else (socket.AF_INET, socket.SOCK_DGRAM, 1))) as sock:
            sock.settimeout(2)
            sock.connect((host, 0))
            for sequence in range(1, count + 1):
                data = os.urandom(size)
                sock.send(struct.pack(">BBHHH", 128 if six else 8, 0, 0, 0, sequence) + data)
                answer = sock.recv(70000)
                if answer[:2] == (b"\x81\0" if six else b"\0\0") and answer[8:] == data:
                    good.append(struct.unpack(">H", answer[6:8])[0])
    return good


def resolve(name):
    """The addresses that getaddrinfo gives, sorted."""
    return sorted({entry[4][0] for entry in socket.getaddrinfo(name, 443, type=socket.SOCK_STREAM)})


def dns_message(name, kind, questions=1):
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split(".")) + b"\0"
    return struct.pack(">HHHHHH", 4242, 0x0100, questions, 0, 0, 0) + (labels + struct.pack(">HH", kind, 1)) * questions


def dns_rcode(name, kind=1, questions=1, server="192.0.2.1"):
    """The RCODE of one UDP query."""
    with socket.socket(socket.AF_INET6 if ":" in server else socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(DNS_TIMEOUT)
        sock.sendto(dns_message(name, kind, questions), (server, 53))
        return sock.recv(2000)[3] & 15


def dns_burst(name, count, servers):
    """That many questions to each server, all sent before an answer is read: how many different answers each gives."""
    message, heard = dns_message(name, 1), {}
    socks = [socket.socket(socket.AF_INET6 if ":" in server else socket.AF_INET, socket.SOCK_DGRAM) for server in servers]
    for number in range(count):
        for sock, server in zip(socks, servers):
            sock.sendto(struct.pack(">H", number) + message[2:], (server, 53))
    for sock, server in zip(socks, servers):
        sock.settimeout(DNS_TIMEOUT)
        answers = [sock.recvfrom(2000) for _ in range(count)]
        heard[server] = len({answer[:2] for answer, source in answers if source[0] == server and answer[3] & 15 == 0})
        sock.close()
    return heard


def dns_tcp(name, kind=1, server="192.0.2.1"):
    """The RCODE of a query over TCP, "closed" if there is no answer."""
    with socket.create_connection((server, 53), TIMEOUT) as sock:
        message = dns_message(name, kind)
        sock.sendall(struct.pack(">H", len(message)) + message)
        answer = sock.recv(2000)
        return answer[5] & 15 if len(answer) > 5 else "closed"


def dns_many(pattern, count):
    """How often each RCODE came for that many names."""
    tally = {}
    for number in range(count):
        code = str(dns_rcode(pattern % number))
        tally[code] = tally.get(code, 0) + 1
    return tally


def websocket(host, port, path, text):
    """RFC 6455 handshake and the echo of one text frame."""
    with open_tcp(host, port) as sock:
        key = base64.b64encode(os.urandom(16)).decode()
        sock.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                     f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n".encode())
        stream = sock.makefile("rb")
        status = stream.readline().decode().strip()
        while stream.readline().strip():
            pass
        if " 101 " not in status:
            return status
        mask, data = b"\1\2\3\4", text.encode()
        sock.sendall(bytes([0x81, 0x80 | len(data)]) + mask + bytes(b ^ mask[i % 4] for i, b in enumerate(data)))
        size = stream.read(2)[1]
        return stream.read(size).decode()


def unix(path):
    """Connects to a UNIX socket; a name that starts with @ is an abstract one."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(2)
        sock.connect("\0" + path[1:] if path.startswith("@") else path)
        return "connected"


def family(number):
    socket.socket(number, socket.SOCK_STREAM).close()
    return "opened"


def system_call(number, *arguments):
    """A raw system call: its result or its error."""
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True)
    if (value := libc.syscall(number, *arguments)) < 0:
        raise OSError(ctypes.get_errno(), "")
    return str(value)


def name_of(error):
    if isinstance(error, ssl.SSLError):
        return f"tls {error.reason}"
    if isinstance(error, socket.gaierror):
        return f"resolve {error.args[1]}"
    if isinstance(error, TimeoutError):
        return "timeout"
    return errno.errorcode.get(error.errno, str(error))


def perform(function, *arguments):
    started = time.monotonic()
    try:
        result = globals()[function](*arguments)
    except OSError as error:
        result = name_of(error)
    return {"result": result, "ms": (time.monotonic() - started) * 1000}


if __name__ == "__main__":
    print(json.dumps([perform(*operation) for operation in json.loads(sys.argv[1])]))
