# SPDX-License-Identifier: Apache-2.0
"""What probes consist of: ports, first bytes, DNS messages. Used on both sides of the sandbox's wall; needs nothing else."""
import struct

# Ports that policies and probes use, each with its neighbours.
BASE_PORTS = [22, 80, 123, 443, 5432, 8000, 8001, 8002, 8443]
SERVED = sorted({port + step for port in BASE_PORTS for step in (-1, 0, 1)})
CLOSED = 4444

TCP, UDP, ICMP, DNS = 0, 1, 2, 3                  # enum policy_protocol
UNKNOWN, TLS, HTTP, OTHER = 0, 1, 2, 3            # enum policy_app
PROTOCOLS = ["tcp", "udp", "icmp", "dns"]


def client_hello(nonce, sni, ech):
    """A ClientHello as a browser sends it, in what a gate can see; the nonce is in the session identifier."""
    def vector(size, data):
        return len(data).to_bytes(size, "big") + data

    def extension(kind, data):
        return struct.pack(">H", kind) + vector(2, data)
    extensions = extension(0x002b, vector(1, b"\x03\x04")) + extension(0x000a, vector(2, b"\x00\x1d"))
    if sni is not None:
        extensions = extension(0, vector(2, b"\x00" + vector(2, sni.encode("latin-1")))) + extensions
    if ech:
        extensions += extension(0xfe0d, b"\x00\x00\x01\x00\x01\x07" + vector(2, b"k" * 32) + vector(2, b"p" * 144))
    body = b"\x03\x03" + b"R" * 32 + vector(1, nonce.encode() + b"s" * 16) + vector(2, b"\x13\x01\x13\x02") + b"\x01\x00" + \
        vector(2, extensions)
    return b"\x16\x03\x01" + vector(2, b"\x01" + vector(3, body))


def http_request(nonce, host, form):
    """form: origin, absolute, or old (HTTP/1.0); host None: no Host field."""
    target = f"http://{host}/{nonce}" if form == "absolute" else f"/{nonce}"
    field = "" if host is None else f"Host: {host}\r\n"
    return f"GET {target} HTTP/1.{0 if form == 'old' else 1}\r\n{field}Accept: */*\r\n\r\n".encode("latin-1")


def dns_query(identifier, name, kind):
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.rstrip(".").split(".")) + b"\0"
    return struct.pack(">HHHHHH", identifier, 0x0100, 1, 0, 0, 0) + labels + struct.pack(">HH", kind, 1)


def dns_answer(message):
    """The response code and the RDATA of A and AAAA records."""
    count, at, found = struct.unpack(">H", message[6:8])[0], 12, []

    def skip(at):
        while message[at]:
            if message[at] >= 0xc0:
                return at + 2
            at += 1 + message[at]
        return at + 1
    at = skip(at) + 4
    for _ in range(count):
        at = skip(at)
        kind, _, _, size = struct.unpack(">HHIH", message[at:at + 10])
        at += 10
        if kind in (1, 28):
            found.append(message[at:at + size])
        at += size
    return message[3] & 15, found
