#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What really got through: servers on every address, which write down each connection and each nonce that reaches them.

usage: witness.py internet|host LOG CERTIFICATE KEY

One line each, before any answer is sent: "accept WHERE tcp - ADDRESS PORT" and "nonce WHERE TRANSPORT NONCE ADDRESS PORT".
The answer is "SAW NONCE ADDRESS". TLS that carries no nonce in its ClientHello is a real handshake, and is made one."""
import os
import re
import selectors
import socket
import ssl
import sys

import probes

NONCE = re.compile(rb"pm[0-9a-f]{14}")
PKTINFO_SIZE = 256


def plain(address):
    return address[7:] if address.startswith("::ffff:") and "." in address else address


class Witness:
    def __init__(self, where, log, certificate, key):
        self.where = where
        self.log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self.selector = selectors.EpollSelector()
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(certificate, key)
        for port in probes.SERVED:
            listener = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
            self.prepare(listener)
            listener.bind(("::", port))
            listener.listen(512)
            self.watch(listener, self.accept)
            datagrams = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
            self.prepare(datagrams)
            datagrams.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO, 1)
            datagrams.bind(("::", port))
            self.watch(datagrams, self.datagram)
        for family, protocol in ((socket.AF_INET, socket.IPPROTO_ICMP), (socket.AF_INET6, socket.IPPROTO_ICMPV6)):
            raw = socket.socket(family, socket.SOCK_RAW, protocol)
            if family == socket.AF_INET6:
                raw.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO, 1)
            self.watch(raw, self.echo)

    def prepare(self, sock):
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)

    def watch(self, sock, function):
        sock.setblocking(False)
        self.selector.register(sock, selectors.EVENT_READ, function)

    def write(self, kind, transport, nonce, address, port):
        os.write(self.log, f"{kind} {self.where} {transport} {nonce} {plain(address)} {port}\n".encode())

    def run(self):
        while True:
            for key, _ in self.selector.select():
                try:
                    key.data(key.fileobj)
                except (BlockingIOError, ssl.SSLWantReadError):
                    pass
                except OSError:
                    self.close(key.fileobj)

    def close(self, sock):
        if sock.fileno() >= 0:
            self.selector.unregister(sock)
            sock.close()

    # -- TCP --

    def accept(self, listener):
        sock, _ = listener.accept()
        address, port = sock.getsockname()[:2]
        self.write("accept", "tcp", "-", address, port)
        self.watch(sock, Peer(self, sock, plain(address), port).readable)

    # -- UDP and ICMP --

    def datagram(self, sock):
        data, control, _, peer = sock.recvmsg(2000, PKTINFO_SIZE)
        found = NONCE.search(data)
        asked = [value[:16] for _, kind, value in control if kind == socket.IPV6_PKTINFO]
        if not found or not asked:
            return
        address, nonce = socket.inet_ntop(socket.AF_INET6, asked[0]), found[0].decode()
        self.write("nonce", "udp", nonce, address, sock.getsockname()[1])
        # Answers from the address that was asked (in6_pktinfo without the interface).
        sock.sendmsg([f"SAW {nonce} {plain(address)}".encode()],
                     [(socket.IPPROTO_IPV6, socket.IPV6_PKTINFO, asked[0] + bytes(4))], 0, peer)

    def echo(self, sock):
        data, control, _, _ = sock.recvmsg(2000, PKTINFO_SIZE)
        found = NONCE.search(data)
        six = sock.family == socket.AF_INET6
        request = data[:1] == b"\x80" if six else data[20:21] == b"\x08"
        if not found or not request:
            return
        addresses = [value[:16] for _, kind, value in control if kind == socket.IPV6_PKTINFO] if six else [data[16:20]]
        self.write("nonce", "icmp", found[0].decode(), socket.inet_ntop(sock.family, addresses[0]), 0)


class Peer:
    """One connection: raw bytes or HTTP as they are, or a real TLS session around them."""

    def __init__(self, witness, sock, address, port):
        self.witness, self.sock, self.address, self.port = witness, sock, address, port
        self.data, self.seen, self.session = b"", 0, None

    def readable(self, sock):
        data = sock.recv(65536)
        if not data:
            self.witness.close(sock)
            return
        if self.session is None:
            self.data += data
            if self.data[:1] == b"\x16" and not NONCE.search(self.data):
                self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
                self.session = self.witness.context.wrap_bio(self.incoming, self.outgoing, server_side=True)
                data, self.data = self.data, b""
        if self.session is None:
            self.answer(sock.sendall)
            return
        self.incoming.write(data)
        try:
            self.session.do_handshake()
            self.data += self.session.read(65536)
            self.answer(self.session.write)
        finally:
            if self.outgoing.pending:
                sock.sendall(self.outgoing.read())

    def answer(self, send):
        for found in NONCE.finditer(self.data, self.seen):
            http = self.data[:5] == b"GET /"
            end = self.data.find(b"\r\n\r\n", found.end()) if http else found.end()
            if end < 0:
                return
            self.seen = end
            self.witness.write("nonce", "tcp", found[0].decode(), self.address, self.port)
            text = f"SAW {found[0].decode()} {self.address}\n".encode()
            send(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(text), text) if http else text)


if __name__ == "__main__":
    witness = Witness(*sys.argv[1:5])
    print("ready", flush=True)
    witness.run()
