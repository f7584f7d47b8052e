# SPDX-License-Identifier: Apache-2.0
"""Enters a sandbox's network as root would be there, and sends what only root can make: packets of other protocols, with
other sources, and fragments. Prints the errors as JSON.

usage: raw_sender.py PID ADDRESS4 ADDRESS6"""
import json
import os
import socket
import struct
import sys

import intruder
import probe

SO_MARK, IPV6_HDRINCL = 36, 36
PROTOCOLS = {"ICMP": 1, "IPIP": 4, "IPv6": 41, "GRE": 47, "ESP": 50, "SCTP": 132, "UDP-Lite": 136, "none": 253}
UDP = struct.pack(">HHHH", 4000, 7, 8 + 32, 0) + b"f" * 32  # to the echo port


def checksum(data):
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def packet4(protocol, source, target, payload, number=1, offset=0, more=False):
    head = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 20 + len(payload), number, (more << 13) | offset // 8, 64, protocol, 0,
                       socket.inet_aton(source), socket.inet_aton(target))
    return head[:10] + struct.pack(">H", checksum(head)) + head[12:] + payload


def packet6(protocol, source, target, payload):
    return struct.pack(">IHBB", 6 << 28, len(payload), protocol, 64) + socket.inet_pton(socket.AF_INET6, source) + \
        socket.inet_pton(socket.AF_INET6, target) + payload


def fragment6(source, target, payload, offset, more, number):
    return packet6(44, source, target, struct.pack(">BBHI", 17, 0, offset | more, number) + payload)


def sent(sock, data, target):
    try:
        sock.sendto(data, (target, 0))
        return "sent"
    except OSError as error:
        return probe.name_of(error)


def main(four, six):
    words = {}
    raw4 = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
    raw6 = socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_RAW)
    raw6.setsockopt(socket.IPPROTO_IPV6, IPV6_HDRINCL, 1)
    for mark in (0, 1, 2):
        for sock in (raw4, raw6):
            sock.setsockopt(socket.SOL_SOCKET, SO_MARK, mark)
        for name, protocol in PROTOCOLS.items():
            words[f"{name} {mark}"] = [sent(raw4, packet4(protocol, "192.0.0.2", four, b"x" * 1000), four),
                                       sent(raw6, packet6(protocol, "fd00::2", six, b"x" * 1000), six)]
        # Sources that are not the sandbox's: another one, the host's, the target's own.
        for source in ("198.51.100.99", "192.0.2.2", four):
            words[f"from {source} {mark}"] = sent(raw4, packet4(17, source, four, UDP), four)
        # The first fragment without a whole UDP header; overlapping ones; one that never ends; the last one only.
        pieces = [(UDP[:8], 0, True), (UDP[8:], 8, False), (UDP[:16], 0, True), (b"E" * 16, 8, True), (UDP[24:], 24, False),
                  (UDP[:8], 0, True), (UDP[8:16], 65528, False)]
        for number, (data, offset, more) in enumerate(pieces):
            words[f"fragment {number} {mark}"] = [sent(raw4, packet4(17, "192.0.0.2", four, data, 100 * mark + number // 2, offset, more), four),
                                                  sent(raw6, fragment6("fd00::2", six, data, offset, more, 100 * mark + number // 2), six)]
    return words


if __name__ == "__main__":
    intruder.enter(int(sys.argv[1]))
    print(json.dumps(main(*sys.argv[2:4])))
