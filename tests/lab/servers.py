#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Servers of the test internet that no ordinary server program is: raw TCP and UDP protocols, WebSocket, what is
behind nginx (github.py too), and the services of the host itself.

usage: servers.py internet|host DIR"""
import base64
import hashlib
import http.server
import os
import socket
import socketserver
import ssl
import struct
import sys
import threading

import github
import zone

BANNER = b"220 lab.example ready\r\n"
DEADLINE = 60  # seconds: no peer keeps a thread for longer
CHUNK = 65536
SMALL = 8192
EVENTS, EVENT_PAUSE = 6, 0.1


class Server(socketserver.ThreadingTCPServer):
    """Both families on one wildcard socket, as every server of the lab."""
    address_family = socket.AF_INET6
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 256

    def server_bind(self):
        self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)  # beside nginx, on one address
        super().server_bind()

    def handle_error(self, request, client_address):
        """A peer that went away is no news."""


def tcp(port, function, address="::"):
    class Handler(socketserver.BaseRequestHandler):
        def handle(self):
            self.request.settimeout(DEADLINE)
            function(self.request)
    threading.Thread(target=Server((address, port), Handler).serve_forever, daemon=True).start()


def echo(peer):
    """Returns every byte; closes its direction when the peer has closed its own."""
    while data := peer.recv(CHUNK):
        peer.sendall(data)
    peer.shutdown(socket.SHUT_WR)


def discard(peer):
    """Reads up to the half-close, then says how much it was and its SHA-256."""
    count, digest = 0, hashlib.sha256()
    while data := peer.recv(CHUNK):
        count += len(data)
        digest.update(data)
    peer.sendall(f"{count} {digest.hexdigest()}\n".encode())


def chargen(peer):
    """The first line is a number: sends that many bytes of value 'x', then closes."""
    left = int(peer.makefile("rb").readline(32) or 0)
    while left > 0:
        size = min(left, CHUNK)
        peer.sendall(b"x" * size)
        left -= size


def banner(peer):
    """Speaks first, then echoes."""
    peer.sendall(BANNER)
    echo(peer)


def urgent(peer):
    """Sends urgent data in the middle of its greeting; then echoes, urgent bytes of the peer in line."""
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_OOBINLINE, 1)
    peer.sendall(b"before ")
    peer.send(b"U", socket.MSG_OOB)
    peer.sendall(b" after\n")
    echo(peer)


def idle(peer):
    """Neither reads nor writes until the deadline, and holds little meanwhile."""
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL)
    threading.Event().wait(DEADLINE)


def flood(peer):
    """Sends without end; holds little when nobody reads."""
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SMALL)
    while True:
        peer.sendall(b"x" * SMALL)


def udp_echo(port):
    """Returns every datagram; b"send N" gets N bytes of value 'x' instead."""
    sock = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO, 1)
    sock.bind(("::", port))

    def serve():
        while True:
            data, control, _, peer = sock.recvmsg(CHUNK, 256)
            if data.startswith(b"send "):
                data = b"x" * int(data[5:])
            # Answers from the address that was asked (in6_pktinfo without the interface).
            asked = [(level, kind, value[:16] + bytes(4)) for level, kind, value in control if kind == socket.IPV6_PKTINFO]
            sock.sendmsg([data], asked, 0, peer)
    threading.Thread(target=serve, daemon=True).start()


def events(peer):
    """Server-sent events, chunked: EVENTS of them, EVENT_PAUSE seconds apart; without a content type if the path says so."""
    head = peer.recv(CHUNK)
    kind = b"" if b"plain" in head.split(b"\r\n")[0] else b"content-type: text/event-stream\r\n"
    peer.sendall(b"HTTP/1.1 200 OK\r\n" + kind + b"transfer-encoding: chunked\r\nconnection: close\r\n\r\n")
    for number in range(EVENTS):
        event = b"data: %d\n\n" % number
        peer.sendall(b"%x\r\n%s\r\n" % (len(event), event))
        threading.Event().wait(EVENT_PAUSE)
    peer.sendall(b"0\r\n\r\n")


def unasked(peer):
    """Answers a request for /twice two times, and any other with a 101 that nobody asked for; goes on in another protocol."""
    if b" /twice " in peer.recv(CHUNK):
        peer.sendall(b"".join(b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n" + text for text in (b"asked\r\n", b"unasked")))
        peer.recv(CHUNK)
        return
    peer.sendall(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
    echo(peer)


def websocket(peer):
    """RFC 6455 echo of unfragmented frames; no extensions. Greets first, if the path says so."""
    stream = peer.makefile("rwb")
    headers = {}
    path = stream.readline(8192).split(b" ")[1]
    while (line := stream.readline(8192).strip()):
        name, _, value = line.partition(b":")
        headers[name.strip().lower()] = value.strip()
    key = headers.get(b"sec-websocket-key", b"") + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
    accept = base64.b64encode(hashlib.sha1(key).digest())
    stream.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                 b"Sec-WebSocket-Accept: " + accept + b"\r\n\r\n" + (b"\x81\x07welcome" if b"greets" in path else b""))
    stream.flush()
    while len(head := stream.read(2)) == 2:
        size = head[1] & 127
        if size >= 126:
            size = int.from_bytes(stream.read(2 if size == 126 else 8), "big")
        mask = stream.read(4)
        data = bytes(byte ^ mask[i % 4] for i, byte in enumerate(stream.read(size)))
        size = bytes([len(data)]) if len(data) < 126 else b"\x7f" + struct.pack(">Q", len(data))
        stream.write(head[:1] + size + data)
        stream.flush()
        if head[0] & 15 == 8:
            return


def headers_handler():
    """Answers with the request as it arrived, so that a test sees what a relay made of it."""
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            text = (self.requestline + "\r\n" + str(self.headers)).encode()
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            self.send_response(200)
            self.send_header("content-length", str(len(text) + len(body)))
            self.end_headers()
            self.wfile.write(text + body)
        do_POST = do_PUT = do_GET

        def log_message(self, *args):
            pass
    return Handler


def http_backend(port, handler):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()


def internet(folder):
    for port, function in ((zone.PORT_ECHO, echo), (zone.PORT_DISCARD, discard), (zone.PORT_CHARGEN, chargen),
                           (zone.PORT_BANNER, banner), (zone.PORT_DB, banner), (zone.PORT_URGENT, urgent),
                           (zone.PORT_IDLE, idle), (zone.PORT_FLOOD, flood)):
        tcp(port, function)
    for port in zone.PORTS_BANNER:
        tcp(port, banner, "::ffff:" + zone.BANNER4)
    tcp(zone.PORT_HTTPS, echo, "::ffff:" + zone.ECHO4)
    tcp(zone.PORT_HTTP, unasked, "::ffff:" + zone.UNASKED4)
    tcp(9004, events, "::1")
    udp_echo(zone.PORT_ECHO)
    udp_echo(zone.PORT_HTTPS)
    tcp(9001, websocket, "::1")
    github.Handler.folder = folder
    http_backend(9002, github.Git)
    http_backend(9005, github.Api)
    http_backend(9003, headers_handler())


def host(folder):
    """The host's own services: TLS on both loopback addresses, and a plain one on all addresses."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(os.path.join(folder, "tls", "server.pem"), os.path.join(folder, "tls", "server.key"))

    def https(peer):
        with context.wrap_socket(peer, server_side=True) as stream:
            stream.recv(CHUNK)
            stream.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 19\r\nconnection: close\r\n\r\nhost loopback here\n")

    def plain(peer):
        peer.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 13\r\nconnection: close\r\n\r\nhost service\n")
    tcp(zone.PORT_HOST_TLS, https, "::1")
    threading.Thread(target=Server4(zone.PORT_HOST_TLS, https).serve_forever, daemon=True).start()
    tcp(zone.PORT_HOST_PLAIN, plain)


class Server4(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, port, function):
        class Handler(socketserver.BaseRequestHandler):
            def handle(self):
                self.request.settimeout(DEADLINE)
                function(self.request)
        super().__init__(("127.0.0.1", port), Handler)

    def handle_error(self, request, client_address):
        """As Server."""


if __name__ == "__main__":
    {"internet": internet, "host": host}[sys.argv[1]](sys.argv[2])
    print("ready", flush=True)
    threading.Event().wait()
