# SPDX-License-Identifier: Apache-2.0
"""Section E of the bug list (tests/bugs.md): UDP, ICMP, other protocols, UNIX sockets, small packets, many connections."""
import json
import os
import socket
import subprocess
import sys
import threading
import time

import pytest

import zone
from conftest import HERE, RUN_TIMEOUT, find_process
from test_process import in_sandbox

CIDR = "--allow-cidr 203.0.113.0/24 --allow-cidr 2001:db8:100::/48"
FOUR, SIX = "203.0.113.1", "2001:db8:100::1"
BOTH = pytest.mark.parametrize("host", [FOUR, SIX])
ETH_P_ALL, PACKET_OUTGOING = 3, 4


# ---- packets of root's own making ----

class Wire:
    """What leaves the host for some addresses while the block runs, whatever it is."""

    def __init__(self, *addresses):
        self.wanted = [socket.inet_pton(socket.AF_INET6 if ":" in address else socket.AF_INET, address) for address in addresses]
        self.sock = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ETH_P_ALL))
        self.sock.bind(("uplink", ETH_P_ALL))
        self.sock.setblocking(False)
        self.packets = []

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        time.sleep(0.3)
        while True:
            try:
                data, where = self.sock.recvfrom(4096)
            except BlockingIOError:
                break
            target = data[16:20] if data[0] >> 4 == 4 else data[24:40]
            if where[2] == PACKET_OUTGOING and target in self.wanted:
                self.packets.append(data)
        self.sock.close()


def send_raw(pid):
    done = subprocess.run([sys.executable, "-B", os.path.join(HERE, "raw_sender.py"), str(pid), "203.0.113.77", "2001:db8:100::77"],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=RUN_TIMEOUT, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


@pytest.mark.parametrize("policy", ["--network none", "--allow both.example", "--network all --deny-cidr 203.0.113.0/24 --deny-cidr 2001:db8:100::/48"])
def test_no_packet_of_roots_making_leaves(box, policy):
    """Other protocols, marks, foreign sources, fragments in every disorder: not one leaves the host."""
    with Wire("203.0.113.77", "2001:db8:100::77") as wire:
        words = in_sandbox(box, policy, send_raw)
    assert wire.packets == [], (words, wire.packets)


def test_only_tcp_and_udp_go_to_an_allowed_address(box):
    """An address rule carries TCP and UDP. What leaves is the gate's own, with the host's source, whole."""
    with Wire("203.0.113.77", "2001:db8:100::77") as wire:
        words = in_sandbox(box, CIDR, send_raw)
    assert wire.packets, "the datagram that is whole is carried"
    for packet in wire.packets:
        protocol, source = (packet[9], packet[12:16]) if packet[0] >> 4 == 4 else (packet[6], packet[8:24])
        assert protocol == socket.IPPROTO_UDP, (packet, words)
        assert source in (socket.inet_aton(zone.HOST4), socket.inet_pton(socket.AF_INET6, zone.HOST6)), packet
        assert b"f" * 8 in packet, packet
    assert any(word != "sent" for word in words["GRE 0"]), words


def test_the_gate_survives_fragments(box):
    """And goes on carrying what is well made, large datagrams in fragments among it."""
    script = ("import socket, sys\nfor line in sys.stdin:\n"
              "    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(3); s.connect(('203.0.113.1', 7))\n"
              "    s.send(b'q' * 8000); print(len(s.recv(65535)), flush=True)\n")
    process = box.popen(box.arguments(CIDR, ["/usr/bin/python3", "-c", script, "fragments"]), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        for _ in range(2):
            process.stdin.write("go\n")
            process.stdin.flush()
            assert process.stdout.readline() == "8000\n"
            pid = next(pid for pid in find_process_of(b"\0fragments\0"))
            send_raw(pid)
    finally:
        process.stdin.close()
        process.wait()
        process.stdout.close()


def find_process_of(word):
    """The innermost process (the last one started) whose command line ends so."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                if (line := file.read()).endswith(word) and line.startswith(b"/usr/bin/python3\0-c\0"):
                    found.append(int(pid))
        except OSError:
            pass
    return sorted(found, reverse=True)


@BOTH
def test_other_protocols_without_privilege(box, host):
    """What an ordinary program can open: nothing but TCP, UDP and echo; and echo only where a rule says so."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    results, result = box.craft(CIDR, ["open_socket", family, socket.SOCK_STREAM, 132, host], ["open_socket", family, socket.SOCK_SEQPACKET, 132, host],
                                ["open_socket", family, socket.SOCK_DGRAM, 136, host], ["open_socket", family, socket.SOCK_STREAM, 262, host],
                                ["open_socket", family, 6, 33, host], ["open_socket", family, socket.SOCK_RAW, 47], ["open_socket", family, socket.SOCK_RAW, 255],
                                ["open_socket", socket.AF_PACKET, socket.SOCK_RAW, 768], ["ping", host, 1000], ["udp", host, 7, "x"])
    # MPTCP (262) is TCP on the wire of the sandbox, or not there.
    assert "sent" not in results[:3] + results[4:8], result
    assert results[3] in ("sent", "EPROTONOSUPPORT", "EINVAL", "ENOPROTOOPT", "EPERM", "ECONNREFUSED", "EACCES"), result
    assert results[8] in ("EHOSTUNREACH", "EACCES") and results[9] == "x", result


def test_garbage_to_an_allowed_resolver(box):
    """Port 53 of an allowed server carries questions, not whatever bytes."""
    before = len(box.lab.dns_queries())
    results, result = box.craft(f"--allow-cidr {zone.FOREIGN_DNS4}", *[["dns_raw", text, zone.FOREIGN_DNS4, 0.2] for text in ("x" * 11, "tunnel " * 50, "\0" * 12)],
                                ["dns", "both.example", 1, zone.FOREIGN_DNS4])
    assert set(results[:3]) <= {"silence", 1, 4} and results[3] == 0, result
    assert {query["name"] for query in box.lab.dns_queries()[before:]} == {"both.example"}


# ---- UNIX sockets ----

def test_local_sockets_of_the_sandbox(box):
    """By path and abstract, between two of its own processes; and its own TCP on both loopbacks, whatever the policy."""
    for policy in ("--network none", "--network all"):
        results, result = box.craft(policy, ["local_socket", "own.sock"], ["local_service", "127.0.0.1"], ["local_service", "::1"], ["local_service", "127.0.0.77"])
        assert results == [["own", "own"], "own", "own", "own"], result


def test_abstract_sockets_of_the_host(box):
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("\0penstock-host-abstract")
        server.listen()
        server.settimeout(0)
        (answer,), result = box.craft("--network all --allow-private", ["unix", "@penstock-host-abstract"])
        assert answer == "ECONNREFUSED", result
        with pytest.raises(BlockingIOError):
            server.accept()


# ---- small packets, many connections, many datagrams ----

DELAYED_ACK_MS = 40


@pytest.mark.parametrize("policy,operation", [(CIDR, ["ping_pong", FOUR, zone.PORT_ECHO, 60]), (CIDR, ["ping_pong", SIX, zone.PORT_ECHO, 60]),
                                              ({"allow": [{"host": "both.example", "protocol": "tcp", "ports": [7]}]}, ["ping_pong", "both.example", 7, 60]),
                                              ({"allow": [{"host": "mirror.test", "protocol": "http"}]}, ["http_ping_pong", "mirror.test", 80, 60])],
                         ids=["four", "six", "named", "http"])
def test_small_requests_do_not_wait_for_an_acknowledgement(box, policy, operation):
    """Two small writes and an answer: where each waits for a delayed acknowledgement, most answers take its 40 ms."""
    (quartile,), result = box.craft(policy, operation)
    assert quartile < DELAYED_ACK_MS / 2, quartile


def test_short_connections(box):
    """Connect, ask, answer, close, thousands of times: not one is reset, also when ports come round again."""
    results, result = box.craft(CIDR, ["short_connections", FOUR, zone.PORT_ECHO, 1500], ["short_connections", SIX, zone.PORT_ECHO, 500])
    assert results == [{}, {}], result


def test_datagram_churn_then_dns(box):
    """Far more flows than the limit, one after the other: none is lost within it, and DNS and datagrams work afterwards."""
    policy = {"allow": [{"cidr": "203.0.113.0/24"}, {"host": "both.example"}], "limits": {"connections": 128}}
    churn = ("import json, socket, time, sys\nimport probe, craft\n"
             "tally = {}\n"
             "def burst(count):\n"
             "    for n in range(count):\n"
             "        with probe.udp_socket('203.0.113.1', 7) as s:\n"
             "            try: s.send(b'%d' % n); word = 'answered' if s.recv(100) == b'%d' % n else 'wrong'\n"
             "            except OSError as e: word = probe.name_of(e)\n"
             "        tally[word] = tally.get(word, 0) + 1\n"
             "burst(128); first = dict(tally); burst(2000); time.sleep(1.2); tally.clear(); burst(100)\n"
             "print(json.dumps([first, tally, craft.dns('both.example'), len(probe.resolve('both.example'))]))\n")
    result = box.run(policy, "/usr/bin/python3", "-B", "-c", churn, timeout=60)
    first, after, code, addresses = json.loads(result.out)
    assert first == {"answered": 128} and after == {"answered": 100}, result.out
    assert code == 0 and addresses >= 1, result.out
