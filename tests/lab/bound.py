#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A TLS server on the addresses of zone.BOUND that tells all it is sent, and misbehaves when asked to (answers.py): HTTP/1.1
on bare sockets, HTTP/2 by python3-h2, chosen by ALPN. Each name has a certificate, TLS versions and protocols of its own.
bound.log beside it has a line of JSON for each connection and each request, with the request's headers as they arrived.

usage: bound.py DIR"""
import json
import os
import select
import socket
import ssl
import struct
import sys
import threading
import time
import warnings

import h2.config
import h2.connection
import h2.events
import h2.exceptions

import answers
import zone

DEADLINE = answers.DEADLINE
CHUNK = answers.CHUNK
log_lock = threading.Lock()


def log(**entry):
    with log_lock, open("bound.log", "a", encoding="utf-8") as file:
        file.write(json.dumps({"time": time.time(), **entry}) + "\n")


class Stream:
    """A TLS connection of which one thread reads while others write."""
    counter = 0

    def __init__(self, sock):
        self.sock, self.lock, self.turn = sock, threading.Lock(), threading.Lock()
        sock.setblocking(False)
        Stream.counter += 1
        self.number = Stream.counter

    def wait(self, write=False):
        ready = select.select([] if write else [self.sock], [self.sock] if write else [], [], DEADLINE)
        if not ready[0] and not ready[1]:
            raise TimeoutError

    def recv(self, size=CHUNK):
        while True:
            try:
                with self.lock:
                    return self.sock.recv(size)
            except ssl.SSLWantReadError:
                self.wait()

    def sendall(self, data):
        data = memoryview(data)
        with self.turn:
            while data:
                try:
                    with self.lock:
                        data = data[self.sock.send(data[:CHUNK]):]
                except ssl.SSLWantWriteError:
                    self.wait(write=True)

    def reset(self):
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        socket.socket(fileno=self.sock.detach()).close()

    def close(self):
        try:
            self.sock.setblocking(True)
            self.sock.settimeout(2)
            self.sock.unwrap().close()
        except (OSError, ValueError):
            self.sock.close()


# ---- HTTP/1.1 ----

class Exchange1:
    """A request and its answer. read() gives b"" at the end of the request."""
    version = 1

    def __init__(self, stream, head, rest):
        self.stream, self.buffer = stream, rest
        lines = head.decode("latin-1").split("\r\n")
        self.method, self.path = (lines[0].split(" ") + ["", ""])[:2]
        self.headers = [(name.lower(), value.strip()) for name, _, value in (line.partition(":") for line in lines[1:] if line)]
        self.head, self.trailers, self.chunked_out, self.close = head + b"\r\n\r\n", [], False, False
        self.chunked = self.header("transfer-encoding") == "chunked"
        self.left = 0 if self.chunked else int(self.header("content-length") or 0)

    def header(self, name):
        return next((value for key, value in self.headers if key == name), None)

    def more(self):
        data = self.stream.recv()
        if not data:
            raise EOFError
        self.buffer += data

    def line(self):
        while b"\r\n" not in self.buffer:
            self.more()
        line, _, self.buffer = self.buffer.partition(b"\r\n")
        return line

    def read(self):
        if self.chunked and not self.left:
            self.left = int(self.line(), 16)
            if not self.left:
                self.chunked = False
                while line := self.line():
                    self.trailers.append(line.decode("latin-1"))
        if not self.left:
            return b""
        if not self.buffer:
            self.more()
        data, self.buffer = self.buffer[:self.left], self.buffer[self.left:]
        self.left -= len(data)
        if self.chunked and not self.left:
            self.line()
        return data

    def inform(self, status, headers=()):
        self.stream.sendall(self.text(status, headers))

    @staticmethod
    def text(status, headers):
        return (f"HTTP/1.1 {status} Lab\r\n" + "".join(f"{n}: {v}\r\n" for n, v in headers) + "\r\n").encode("latin-1")

    def start(self, status, headers=()):
        length = any(name == "content-length" for name, _ in headers)
        self.chunked_out = not length and status not in (101, 204, 304) and self.method != "HEAD"
        more = [("transfer-encoding", "chunked")] if self.chunked_out else []
        self.stream.sendall(self.text(status, [*headers, *more]))

    def write(self, data):
        self.stream.sendall(b"%x\r\n%s\r\n" % (len(data), data) if self.chunked_out and data else data)

    def finish(self, trailers=()):
        if self.chunked_out:
            self.stream.sendall(b"0\r\n" + b"".join(f"{n}: {v}\r\n".encode() for n, v in trailers) + b"\r\n")


def serve1(stream, name):
    buffer = b""
    while True:
        while b"\r\n\r\n" not in buffer:
            data = stream.recv()
            if not data:
                return
            buffer += data
        head, _, buffer = buffer.partition(b"\r\n\r\n")
        exchange = Exchange1(stream, head, buffer)
        log(event="request", connection=stream.number, host=name, version=1, method=exchange.method, path=exchange.path,
            headers=exchange.headers)
        if exchange.path.startswith("/rude/"):
            answers.RUDE1[exchange.path[6:]](stream)
            return
        answers.answer(exchange)
        if exchange.close or exchange.header("connection") == "close":
            return
        while exchange.read():
            pass
        buffer = exchange.buffer


# ---- HTTP/2 ----

class Exchange2:
    version = 2

    def __init__(self, serving, number, headers):
        self.serving, self.number = serving, number
        self.headers = [(name.decode(), value.decode("latin-1")) for name, value in headers]
        self.method, self.path = self.header(":method"), self.header(":path")
        self.head = "".join(f"{name}: {value}\r\n" for name, value in self.headers).encode("latin-1")
        self.body, self.ended, self.broken, self.trailers, self.close = [], False, False, [], False

    header = Exchange1.header

    def read(self):
        with self.serving.changed:
            while not self.body and not self.ended and not self.broken:
                self.serving.changed.wait(DEADLINE)
            if not self.body:
                return b""
            data, credit = self.body.pop(0)
            if not self.broken:
                self.serving.http.acknowledge_received_data(credit, self.number)
                self.serving.flush()
            return data

    def send(self, function, *arguments, **options):
        with self.serving.changed:
            if self.broken:
                raise BrokenPipeError
            function(self.number, *arguments, **options)
            self.serving.flush()

    def inform(self, status, headers=()):
        self.send(self.serving.http.send_headers, [(":status", str(status)), *headers])
    start = inform

    def write(self, data):
        while data:
            with self.serving.changed:
                while not self.broken and (room := self.serving.room(self.number)) <= 0:
                    self.serving.changed.wait(DEADLINE)
                if self.broken:
                    raise BrokenPipeError
                self.serving.http.send_data(self.number, data[:room])
                data = data[room:]
                self.serving.flush()

    def finish(self, trailers=()):
        if trailers:
            self.send(self.serving.http.send_headers, list(trailers), end_stream=True)
        else:
            self.send(self.serving.http.end_stream)


class Serving2:
    def __init__(self, stream, name):
        self.stream, self.name, self.exchanges = stream, name, {}
        self.changed = threading.Condition(threading.RLock())
        self.http = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False, header_encoding=None))

    def room(self, number):
        return min(self.http.local_flow_control_window(number), self.http.max_outbound_frame_size)

    def flush(self):
        data = self.http.data_to_send()
        if data:
            self.stream.sendall(data)

    def run(self):
        self.http.initiate_connection()
        self.flush()
        try:
            while data := self.stream.recv():
                with self.changed:
                    for event in self.http.receive_data(data):
                        self.take(event)
                    self.flush()
                    self.changed.notify_all()
        except h2.exceptions.ProtocolError as error:
            log(event="protocol error", connection=self.stream.number, what=str(error))
            self.flush()
        finally:
            with self.changed:
                for exchange in self.exchanges.values():
                    exchange.broken = True
                self.changed.notify_all()

    def take(self, event):
        exchange = self.exchanges.get(getattr(event, "stream_id", None))
        if isinstance(event, h2.events.RequestReceived):
            exchange = self.exchanges[event.stream_id] = Exchange2(self, event.stream_id, event.headers)
            log(event="request", connection=self.stream.number, stream=event.stream_id, host=self.name, version=2,
                method=exchange.method, path=exchange.path, headers=exchange.headers)
            threading.Thread(target=self.answer, args=(exchange,), daemon=True).start()
        elif isinstance(event, h2.events.DataReceived):
            exchange.body.append((event.data, event.flow_controlled_length))
        elif isinstance(event, h2.events.TrailersReceived):
            exchange.trailers += [f"{n.decode()}: {v.decode()}" for n, v in event.headers]
        elif isinstance(event, h2.events.StreamEnded):
            exchange.ended = True
        elif isinstance(event, h2.events.StreamReset) and exchange:
            exchange.broken = True
            log(event="reset", connection=self.stream.number, stream=event.stream_id, code=int(event.error_code))

    def answer(self, exchange):
        try:
            if exchange.path.startswith("/rude/"):
                answers.RUDE2[exchange.path[6:]](self, exchange)
            else:
                answers.answer(exchange)
        except (OSError, h2.exceptions.ProtocolError, KeyError):
            pass


# ---- connections ----

def context_of(protocols, versions, certificate):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate + ".pem", certificate + ".key")
    if protocols:
        context.set_alpn_protocols(protocols)
    if "TLSv1_1" in versions:
        context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version, context.maximum_version = (getattr(ssl.TLSVersion, version) for version in versions)
    context.sni_callback = lambda sock, name, unused: names.update({threading.get_ident(): name})
    return context


names = {}  # the SNI of the handshake that a thread is at


def serve(context, name, peer):
    names[threading.get_ident()] = None
    try:
        sock = context.wrap_socket(peer, server_side=True)
    except OSError as error:
        log(event="no handshake", host=name, why=str(error))
        return
    stream, sni = Stream(sock), names.pop(threading.get_ident())
    log(event="connection", connection=stream.number, host=name, sni=sni, alpn=sock.selected_alpn_protocol(), tls=sock.version())
    try:
        Serving2(stream, name).run() if sock.selected_alpn_protocol() == "h2" else serve1(stream, name)
    except (OSError, EOFError, ValueError, KeyError, IndexError):
        pass
    finally:
        stream.close()
        log(event="end", connection=stream.number, host=name)


def accept(context, name, server):
    while True:
        peer, _ = server.accept()
        peer.settimeout(DEADLINE)
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=serve, args=(context, name, peer), daemon=True).start()


def main(folder):
    os.chdir(folder)
    warnings.simplefilter("ignore", DeprecationWarning)  # of TLS 1.1
    for name, how in zone.BOUND.items():
        context = context_of(*how)
        for address in zone.ZONE[name]["A"] + zone.ZONE[name]["AAAA"]:
            server = socket.create_server((address, 443), family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                                          backlog=256, reuse_port=True)
            threading.Thread(target=accept, args=(context, name, server), daemon=True).start()
    print("ready", flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main(sys.argv[1])
