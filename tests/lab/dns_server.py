#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The authoritative DNS server of the test internet, on UDP and TCP, with a log of every query (one JSON line each)."""
import asyncio
import ipaddress
import itertools
import json
import re
import sys
import time

import dns.flags
import dns.message
import dns.rcode
import dns.rdatatype
import dns.rrset

import zone

CNAME_STEPS = 8
SLOW_SECONDS = 1.0
rebinding = itertools.cycle(["198.51.100.26", "10.9.9.9"])
flaky = itertools.cycle([None, "10.9.9.9"])


def find(name):
    """The records of a name: its own, else those of the wildcard one label up, else None."""
    if name in zone.ZONE:
        return zone.ZONE[name]
    if name.endswith(zone.POOL):
        return pool_records(name)
    return zone.ZONE.get("*." + name.partition(".")[2])


def pool_records(name):
    """The records that a name of the pool says itself (see zone.py), or None."""
    words = re.findall(r"(?<![^.])([ab])([0-9a-f]{8}|[0-9a-f]{32})(?=\.)", name)
    addresses = [ipaddress.ip_address(bytes.fromhex(text)) for kind, text in words if len(text) == (8 if kind == "a" else 32)]
    return {f"{'A' * (1 if version == 4 else 4)}": [str(each) for each in addresses if each.version == version]
            for version in (4, 6) if any(each.version == version for each in addresses)} or None


def fill(response, name, wanted):
    """Adds the answer for name; follows CNAMEs. Returns the behaviour, if the name has one."""
    for _ in range(CNAME_STEPS):
        records = find(name)
        if records == "!rebind":
            records = {"A": [next(rebinding)]} if wanted == "A" else {}
        elif records == "!slow":
            records = zone.pair(27)
        elif records == "!flaky":
            address = next(flaky) if wanted == "A" else "::"
            records = {"A": [address]} if address else "!servfail"
        if records is None:
            response.set_rcode(dns.rcode.NXDOMAIN)
            return None
        if isinstance(records, str):
            return records
        kind = "CNAME" if "CNAME" in records else wanted
        if kind not in records:
            return None
        ttl = 0 if name in ("rebind.example", "flaky.example") else 60
        values = [f'"{text}"' if kind == "TXT" else text for text in records[kind]]
        response.answer.append(dns.rrset.from_text(name + ".", ttl, "IN", kind, *[absolute(kind, v) for v in values]))
        if kind == wanted:
            return None
        name = records["CNAME"][0]
    return "!servfail"


def absolute(kind, text):
    return text + "." if kind in ("CNAME", "MX", "NS", "PTR") else text


async def answer(wire, server, transport, log):
    """The answer to one message, or None for silence."""
    try:
        query = dns.message.from_wire(wire)
        question = query.question[0]
    except Exception:  # a test may send anything; what is not a query gets no answer
        return None
    name = question.name.to_text(omit_final_dot=True).lower()
    wanted = dns.rdatatype.to_text(question.rdtype)
    log.write(json.dumps({"time": time.time(), "server": server, "transport": transport, "name": name,
                          "type": wanted}) + "\n")
    log.flush()
    response = dns.message.make_response(query)
    response.flags |= dns.flags.AA | dns.flags.RA
    behaviour = fill(response, name, wanted)
    if zone.ZONE.get(name) == "!slow":
        await asyncio.sleep(SLOW_SECONDS)
    if behaviour == "!silent":
        return None
    if behaviour == "!servfail":
        response.set_rcode(dns.rcode.SERVFAIL)
    if transport == "tcp":
        return response.to_wire(max_size=65535)
    limit = max(query.payload, 512) if query.edns >= 0 else 512
    try:
        return response.to_wire(max_size=limit)
    except dns.exception.TooBig:
        short = dns.message.make_response(query)
        short.flags |= dns.flags.AA | dns.flags.RA | dns.flags.TC
        return short.to_wire()


class Datagrams(asyncio.DatagramProtocol):
    def __init__(self, server, log):
        self.server, self.log, self.transport = server, log, None

    def connection_made(self, transport):
        self.transport = transport

    def datagram_received(self, data, addr):
        asyncio.ensure_future(self.reply(data, addr))

    async def reply(self, data, addr):
        wire = await answer(data, self.server, "udp", self.log)
        if wire is not None:
            self.transport.sendto(wire, addr)


def stream(server, log):
    async def serve(reader, writer):
        try:
            while True:
                size = int.from_bytes(await asyncio.wait_for(reader.readexactly(2), 10), "big")
                wire = await answer(await reader.readexactly(size), server, "tcp", log)
                if wire is not None:
                    writer.write(len(wire).to_bytes(2, "big") + wire)
                    await writer.drain()
        except (asyncio.IncompleteReadError, asyncio.TimeoutError, ConnectionError):
            writer.close()
    return serve


async def main(log_path):
    loop = asyncio.get_running_loop()
    with open(log_path, "a", encoding="utf-8") as log:
        for server in (zone.ROUTER4, zone.ROUTER6, zone.FOREIGN_DNS4, zone.FOREIGN_DNS6):
            await loop.create_datagram_endpoint(lambda s=server: Datagrams(s, log), local_addr=(server, 53))
            await asyncio.start_server(stream(server, log), server, 53)
        print("ready", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
