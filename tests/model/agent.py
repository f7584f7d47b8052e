#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Inside the sandbox: makes the probes of a file, many at a time, and says what became of each.

usage: agent.py PROBES    (a JSON list; answers on stdout, a JSON list in the same order)

An answer is what came back: "SAW NONCE ADDRESS" from a witness, or how it was refused. It is the client's view only; that
something was or was not seen is the witness's to say."""
import asyncio
import ipaddress
import json
import os
import re
import socket
import ssl
import struct
import sys

import probes

AT_ONCE = {"dns": 12, "tcp": 40, "udp": 40, "icmp": 20}
TCP_SECONDS, UDP_SECONDS = 45, 15


def family_of(address):
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def hung(error):
    return "timeout" if isinstance(error, (asyncio.TimeoutError, TimeoutError)) else \
        os.strerror(error.errno) if getattr(error, "errno", None) else type(error).__name__


class Agent:
    def __init__(self, tests):
        self.tests, self.answers, self.synthetic = tests, [None] * len(tests), {}
        self.loop = asyncio.get_running_loop()

    async def one(self, index):
        test = self.tests[index]
        try:
            self.answers[index] = await getattr(self, test["kind"])(test)
        except (OSError, asyncio.TimeoutError, asyncio.IncompleteReadError, ssl.SSLError) as error:
            self.answers[index] = "error " + hung(error)

    async def many(self, kind):
        waiting = iter([index for index, test in enumerate(self.tests) if test["kind"] == kind])

        async def worker():
            for index in waiting:
                await self.one(index)
        await asyncio.gather(*[worker() for _ in range(AT_ONCE[kind])])

    def address(self, test):
        """Where to: a literal, or the synthetic address that a lookup gave."""
        return test["address"] if "address" in test else self.synthetic.get((test["name"], test["family"]))

    # -- DNS --

    async def dns(self, test):
        identifier = int.from_bytes(os.urandom(2), "big")
        query = probes.dns_query(identifier, test["asked"], test["type"])
        stream = test["transport"] == "tcp"
        with socket.socket(family_of(test["server"]), socket.SOCK_STREAM if stream else socket.SOCK_DGRAM) as sock:
            sock.setblocking(False)
            await asyncio.wait_for(self.loop.sock_connect(sock, (test["server"], 53)), TCP_SECONDS)
            if stream:
                await self.loop.sock_sendall(sock, len(query).to_bytes(2, "big") + query)
                message = b""
                while len(message) < 2 or len(message) < 2 + int.from_bytes(message[:2], "big"):
                    data = await asyncio.wait_for(self.loop.sock_recv(sock, 4096), TCP_SECONDS)
                    if not data:
                        return "error closed"
                    message += data
                message = message[2:]
            else:
                sock.send(query)
                message = await asyncio.wait_for(self.loop.sock_recv(sock, 4096), UDP_SECONDS)
        if message[:2] != identifier.to_bytes(2, "big"):
            return "error identifier"
        rcode, records = probes.dns_answer(message)
        found = sorted(str(ipaddress.ip_address(record)) for record in records)
        for address in found:
            self.synthetic[(test["name"], 4 if test["type"] == 1 else 6)] = address
        return f"rcode {rcode} {','.join(found)}"

    # -- TCP --

    async def tcp(self, test):
        address = self.address(test)
        if address is None:
            return "error no address"
        with socket.socket(family_of(address), socket.SOCK_STREAM) as sock:
            sock.setblocking(False)
            await asyncio.wait_for(self.loop.sock_connect(sock, (address, test["port"])), TCP_SECONDS)
            if test["app"] == "session":
                return await self.session(sock, test)
            first = self.first(test)
            if first:
                await self.loop.sock_sendall(sock, first)
            else:
                sock.shutdown(socket.SHUT_WR)
            text = await self.reply(sock)
            if "again" not in test or "SAW " not in text:
                return text
            # A second request on the same connection.
            await self.loop.sock_sendall(sock, probes.http_request(test["again"]["nonce"], test["again"]["host"], "origin"))
            return text + " | " + await self.reply(sock)

    def first(self, test):
        if test["app"] == "tls":
            return probes.client_hello(test["nonce"], test["sni"], test["ech"])
        if test["app"] == "http":
            return probes.http_request(test["nonce"], test["host"], test["form"])
        return b"" if test["app"] == "silent" else b"\0" + test["nonce"].encode() + b"\n"

    async def reply(self, sock):
        """Up to a whole answer of a witness or of the gate, or the end."""
        data = b""
        while True:
            part = await asyncio.wait_for(self.loop.sock_recv(sock, 8192), TCP_SECONDS)
            if not part:
                return "closed"
            data += part
            saw = re.search(rb"SAW pm[0-9a-f]{14} [0-9a-f.:]+(?=\n)", data)
            if saw:
                return saw[0].decode()
            reason = re.search(rb"HTTP/1.1 (\d+) .*x-penstock-reason: (\w+)\r\n", data, re.S)
            if reason:
                return f"http {reason[1].decode()} {reason[2].decode()}"
            if data[:1] == b"\x15" and len(data) >= 7:
                return f"alert {data[6]}"

    async def session(self, sock, test):
        """A real handshake, then the nonce inside."""
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        session = context.wrap_bio(incoming, outgoing, server_hostname=test["sni"])
        for step in (session.do_handshake, lambda: session.write(test["nonce"].encode() + b"\n"),
                     lambda: session.read(1000)):
            while True:
                try:
                    result = step()
                    break
                except ssl.SSLWantReadError:
                    if outgoing.pending:
                        await self.loop.sock_sendall(sock, outgoing.read())
                    data = await asyncio.wait_for(self.loop.sock_recv(sock, 8192), TCP_SECONDS)
                    if not data:
                        return "closed"
                    incoming.write(data)
            if outgoing.pending:
                await self.loop.sock_sendall(sock, outgoing.read())
        return result.decode().strip()

    # -- UDP, ICMP --

    async def udp(self, test):
        address = self.address(test)
        if address is None:
            return "error no address"
        with socket.socket(family_of(address), socket.SOCK_DGRAM) as sock:
            sock.setblocking(False)
            sock.connect((address, test["port"]))
            sock.send(test["nonce"].encode())
            return (await asyncio.wait_for(self.loop.sock_recv(sock, 2000), UDP_SECONDS)).decode()

    async def icmp(self, test):
        address = self.address(test)
        if address is None:
            return "error no address"
        six = ":" in address
        with socket.socket(family_of(address), socket.SOCK_DGRAM, socket.IPPROTO_ICMPV6 if six else socket.IPPROTO_ICMP) as sock:
            sock.setblocking(False)
            sock.connect((address, 0))
            sock.send(struct.pack(">BBHHH", 128 if six else 8, 0, 0, 0, 1) + test["nonce"].encode())
            data = await asyncio.wait_for(self.loop.sock_recv(sock, 2000), UDP_SECONDS)
            good = data[:2] == (b"\x81\0" if six else b"\0\0") and data[8:] == test["nonce"].encode()
            return f"SAW {test['nonce']} {address}" if good else "error not a reply"


async def main(path):
    with open(path, encoding="utf-8") as file:
        agent = Agent(json.load(file))
    await agent.many("dns")  # the synthetic addresses that the others use
    await asyncio.gather(*[agent.many(kind) for kind in ("tcp", "udp", "icmp")])
    json.dump(agent.answers, sys.stdout)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
