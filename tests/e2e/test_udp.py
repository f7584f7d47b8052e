# SPDX-License-Identifier: Apache-2.0
"""UDP by address rules and by base, ICMP echo where a rule says so: relayed faithfully, refused at once, bounded."""
import json
import os
import re
import subprocess
import time

import pytest

import zone
from conftest import RUN_TIMEOUT, find_process
from test_refusals import AT_ONCE_MS, TRIES, UDP_ERRORS

FOUR, SIX = "203.0.113.1", "2001:db8:100::1"
CIDR = "--allow-cidr 203.0.113.0/24 --allow-cidr 2001:db8:100::/48"
BOTH = pytest.mark.parametrize("host", [FOUR, SIX])
ICMP = {"allow": [{"cidr": "203.0.113.0/24", "protocol": "icmp"}, {"cidr": "2001:db8:100::/48", "protocol": "icmp"}]}
PROHIBITED = {FOUR: "EHOSTUNREACH", SIX: "EACCES"}


def lines(result, **wanted):
    return [line for line in result.log if all(line[key] == value for key, value in wanted.items())]


# ---- allowed ----

@BOTH
@pytest.mark.parametrize("policy,reason", [(CIDR, "allowed_cidr"), ("--network all", "allowed_base"),
                                           ({"base": "allow"}, "allowed_base"),
                                           ({"allow": [{"cidr": "203.0.113.0/24", "protocol": "udp", "ports": [7]},
                                                       {"cidr": "2001:db8:100::/48", "ports": ["1-9"]}]}, "allowed_cidr")],
                         ids=["cidr", "all", "base", "ports"])
def test_allowed_udp(box, policy, reason, host):
    answers, result = box.probe(policy, ["udp", host, 7, "hello"], ["udp", host, 7, ""])
    assert [answer["result"] for answer in answers] == ["hello", ""], result
    decisions = lines(result, event="decision", protocol="udp")
    assert [(d["address"], d["port"], d["verdict"], d["reason"]) for d in decisions] == [(host, 7, "allow", reason)] * 2, result
    flows = lines(result, event="flow", protocol="udp")
    assert sorted((f["bytes_out"], f["bytes_in"], f["address"]) for f in flows) == [(0, 0, host), (5, 5, host)], result


def test_e2b_policy_allows_udp(box):
    policy = box.policy_file({"network": {"allowOut": ["203.0.113.0/24"], "denyOut": ["0.0.0.0/0"]}})
    answers, result = box.probe(["--policy", policy, "--dialect", "e2b"], ["udp", FOUR, 7, "hi"], ["udp", "198.51.100.1", 7, "hi"])
    assert answers[0]["result"] == "hi" and answers[1]["result"] in UDP_ERRORS, result


@BOTH
def test_sizes_both_ways(box, host):
    sizes = [0, 1, 1400, 1452, 1472, 1473, 8000, 8192, 30000, 65487, 65507]
    (answer,), result = box.probe(CIDR, ["udp_sizes", host, 7, sizes])
    assert answer["result"] == sizes, result
    assert lines(result, event="flow", protocol="udp")[0]["bytes_out"] == sum(sizes), result


@BOTH
def test_bursts_keep_their_order(box, host):
    (answer,), result = box.probe(CIDR, ["udp_burst", host, 7, 2000, 1400])
    assert answer["result"] == [2000, True], result


@BOTH
def test_programs_see_an_ordinary_mtu(box, host):
    (answer,), result = box.probe(CIDR, ["udp_mtu", host, 7])
    assert answer["result"] == [1500], result


@pytest.mark.parametrize("host,route", [("203.0.113.120", ["-4", "203.0.113.120/32", "via", zone.ROUTER4]),
                                        ("2001:db8:100::120", ["-6", "2001:db8:100::120/128", "via", zone.ROUTER6])])
def test_narrow_path_is_told_to_programs(box, host, route):
    """What fits the sandbox's MTU but not the host's route comes back as an error with the size that fits."""
    subprocess.run(["ip", route[0], "route", "add", *route[1:], "mtu", "1300"], check=True)
    try:
        (answer,), result = box.probe(CIDR, ["udp_mtu", host, 7, 1400])
    finally:
        subprocess.run(["ip", route[0], "route", "del", *route[1:]], check=True)
    # The kernel remembers it for IPv4; for IPv6 it looks up the route without the protocol, so not for UDP's own route.
    # Either way later datagrams arrive.
    assert answer["result"] == [1500, "EMSGSIZE", 1500 if ":" in host else 1300, "small", 1400], result


@BOTH
def test_unconnected_clients(box, host):
    script = ("import socket, sys\n"
              f"s = socket.socket(socket.AF_INET6 if ':' in '{host}' else socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(3)\n"
              "for i in range(40):\n"
              f"    s.sendto(str(i).encode(), ('{host[:-1]}%x' % (i + 2), 7) if ':' in '{host}' else ('{host[:-1]}%d' % (i + 2), 7))\n"
              "got = {}\n"
              "for i in range(40):\n"
              "    data, peer = s.recvfrom(100); got[peer[0]] = data.decode()\n"
              "print(len(got), sorted(map(int, got.values())) == list(range(40)))\n")
    result = box.run(CIDR, "/usr/bin/python3", "-c", script)
    assert result.out == "40 True\n", result


# ---- what the network says ----

@BOTH
def test_closed_port_is_passed_back(box, host):
    answers, result = box.probe(CIDR, *[["udp", host, zone.PORT_CLOSED, "x"]] * TRIES)
    assert {answer["result"] for answer in answers} == {"ECONNREFUSED"}, result
    assert min(answer["ms"] for answer in answers) < AT_ONCE_MS, answers
    assert {line["reason"] for line in lines(result, event="flow")} == {"upstream_failed"}, result


@pytest.mark.parametrize("host", ["198.51.100.1", "2001:db8:100::1"])
def test_no_route_is_passed_back(box, host):
    six = ":" in host
    route = ["-6", "2001:db8:100::/48"] if six else ["-4", "198.51.100.0/24"]
    subprocess.run(["ip", route[0], "route", "add", "unreachable", route[1]], check=True)
    try:
        (answer,), result = box.probe("--network all", ["udp", host, 7, "x"])
    finally:
        subprocess.run(["ip", route[0], "route", "del", "unreachable", route[1]], check=True)
    assert answer["result"] in {"EHOSTUNREACH", "ENETUNREACH", "timeout"} and answer["ms"] < 2500, result
    assert lines(result, protocol="udp", verdict="allow", reason="upstream_failed"), result


# ---- refused ----

DENIED = [
    ("--network none", FOUR, 7, "base_denied"), ("--network none", SIX, 7, "base_denied"),
    ("--allow-cidr 198.51.100.0/24", FOUR, 7, "base_denied"),
    ("--network all", "10.9.9.9", 7, "private_address"), ("--network all", "fd00:dead::9", 7, "private_address"),
    ("--network all", "169.254.169.254", 7, "private_address"),
    ("--network all", "::ffff:10.9.9.9", 7, "private_address"),
    ("--network all", zone.HOST4, 7, "private_address"), ("--network all", zone.OWN6, 7, "private_address"),
    ("--network all --deny-cidr 203.0.113.0/24", FOUR, 7, "denied_cidr"),
    ({"allow": [{"cidr": "203.0.113.0/24", "protocol": "tcp"}]}, FOUR, 7, "protocol_denied"),
    ({"allow": [{"cidr": "203.0.113.0/24", "protocol": "icmp"}]}, FOUR, 7, "protocol_denied"),
    ({"allow": [{"cidr": "203.0.113.0/24", "protocol": "udp", "ports": [8]}]}, FOUR, 7, "port_denied"),
    # The host and the gate themselves, whatever the policy says.
    ("--network all --allow-private", zone.HOST4, 7, "node_own_address"),
    ("--network all --allow-private", zone.HOST6, 7, "node_own_address"),
    ("--network all --allow-private", "192.0.0.3", 1, "node_own_address"),
    ("--network all --allow-private", "fd5a:91c3:7e24:1::3", 1, "node_own_address"),
]


@pytest.mark.parametrize("policy,host,port,reason", DENIED, ids=[f"{p} {h}:{o}" for p, h, o, _ in DENIED])
def test_denied_at_once(box, policy, host, port, reason):
    answers, result = box.probe(policy, *[["udp", host, port, "x"]] * TRIES)
    assert {answer["result"] for answer in answers} == {PROHIBITED[FOUR if "." in host else SIX]}, result
    assert min(answer["ms"] for answer in answers) < AT_ONCE_MS, answers
    assert set(result.reasons(event="decision", protocol="udp")) == {reason}, result
    assert not lines(result, event="flow"), result


@pytest.mark.parametrize("policy", ["--allow v4.example", f"--allow v4.example {CIDR} --allow-cidr 198.51.100.0/24"])
def test_quic_to_a_listed_name_is_refused_at_once(box, policy):
    answers, result = box.probe(policy, *[["udp", "v4.example", 443, "\xc3\0\0\0\1" + "q" * 1195]] * TRIES,
                                ["tls", "v4.example", 443, "v4.example"])
    assert {answer["result"] for answer in answers[:TRIES]} == {"EHOSTUNREACH"}, result
    assert min(answer["ms"] for answer in answers[:TRIES]) < AT_ONCE_MS, answers
    assert "lab v4.example" in answers[TRIES]["result"], result
    denied = lines(result, event="decision", protocol="udp", name="v4.example", port=443)
    assert denied and {line["reason"] for line in denied} == {"protocol_denied"}, result


def test_quic_to_the_literal_of_a_listed_name(box):
    (answer,), result = box.probe("--allow v4.example", ["udp", "198.51.100.21", 443, "q"])
    assert answer["result"] == "EHOSTUNREACH", result


# ---- limits ----

class Running:
    """A sandbox that does one operation of probe.py and then waits until the block is left."""
    counter = 0

    def __init__(self, box, policy, *operation):
        Running.counter += 1
        self.until, self.log = box.path(f"udp-until-{Running.counter}"), box.path(f"udp-log-{Running.counter}")
        arguments = box.arguments(policy, ["/usr/bin/python3", "-B", "probe.py", json.dumps([[*operation, self.until]])])
        self.process = box.popen([arguments[0], "--log", self.log, *arguments[1:]], stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE)

    def __enter__(self):
        deadline = time.monotonic() + 30
        while not os.path.exists(self.until + ".here"):
            assert self.process.poll() is None and time.monotonic() < deadline, self.process.communicate()
            time.sleep(0.02)
        return self

    def __exit__(self, *unused):
        with open(self.until, "w", encoding="utf-8"):
            pass
        out, err = self.process.communicate(timeout=RUN_TIMEOUT)
        self.answer = json.loads(out)[0]["result"] if out else err
        with open(self.log, encoding="utf-8") as file:
            self.lines = [json.loads(line) for line in file]


def test_flows_are_bounded(box):
    """All within a second: nothing is idle enough to give way."""
    policy = {"allow": [{"cidr": "203.0.113.0/24"}], "limits": {"connections": 16}}
    (answer,), result = box.probe(policy, ["udp_flows", FOUR, 7, 20])
    assert answer["result"] == {"answered": 16, "EHOSTUNREACH": 4}, result
    refused = lines(result, event="decision", reason="limit_exceeded")
    assert 1 <= len(refused) <= 2 and refused[0]["port"] == 7, result


def test_many_flows(box):
    policy = {"allow": [{"cidr": "203.0.113.0/24"}], "limits": {"connections": 4096}}
    (answer,), result = box.probe(policy, ["udp_flows", FOUR, 7, 1000])
    tally = answer["result"]
    assert tally["answered"] >= 512 and set(tally) <= {"answered", "EHOSTUNREACH"}, result
    assert sum(tally.values()) == 1000, result
    assert len(lines(result, event="flow")) == len(lines(result, event="decision", verdict="allow")) == tally["answered"], result


def test_idle_flows_give_way_but_not_silently(box):
    policy = {"allow": [{"cidr": "203.0.113.0/24"}], "limits": {"connections": 4}}
    script = ("import socket, time\n"
              "socks = []\n"
              "def ask():\n"
              "    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(2); s.connect(('203.0.113.1', 7)); socks.append(s)\n"
              "    s.send(b'x'); return s.recv(10).decode()\n"
              "print([ask() for _ in range(4)]); time.sleep(1.2); print([ask() for _ in range(4)])\n"
              "time.sleep(1.2); socket.create_connection(('203.0.113.1', 2525), 3).close(); print('tcp')\n")
    result = box.run(policy, "/usr/bin/python3", "-c", script)
    assert result.out == f"{['x'] * 4}\n{['x'] * 4}\ntcp\n", result
    assert len(lines(result, event="flow", protocol="udp", reason="limit_exceeded")) == 5, result
    assert len(lines(result, event="flow", protocol="udp")) == 8, result


def descriptors(kind):
    return sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in find_process("@gate"))


def test_descriptors_are_given_back(box):
    """An exchange of echo requests ends after 10 s without one."""
    if box.lab.starter != "root":
        return  # a gate cannot be looked into
    with Running(box, ICMP, "udp_flows", "203.0.113.1", 7, 0) as idle:
        before = descriptors(box.kind)
    assert idle.answer == {}
    command = ("import socket, struct, time, os\n"
               "for i in range(20):\n"
               "    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM, 1); s.settimeout(2); s.connect(('203.0.113.1', 0))\n"
               "    s.send(struct.pack('>BBHHH', 8, 0, 0, 0, 1)); s.recv(100)\n"
               "open('{}.here', 'w').close()\n"
               "while not os.path.exists('{}'): time.sleep(0.05)\n")
    until = box.path("ping-until")
    process = box.popen(box.arguments(ICMP, ["/usr/bin/python3", "-c", command.replace("{}", until)]))
    deadline = time.monotonic() + 30
    while not os.path.exists(until + ".here"):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)
    held = descriptors(box.kind)
    time.sleep(12)
    after = descriptors(box.kind)
    with open(until, "w", encoding="utf-8"):
        pass
    assert process.wait(RUN_TIMEOUT) == 0
    assert (held - before, after - before) == (20, 0)


# ---- ICMP echo ----

@BOTH
def test_ping_where_a_rule_says_icmp(box, host):
    answers, result = box.probe(ICMP, ["ping", host, 56, 3, 3], ["ping", host, 0], ["ping", host, 1400])
    assert [answer["result"] for answer in answers] == [[1, 2, 3] * 3, [1], [1]], result
    decisions = lines(result, event="decision", protocol="icmp")
    assert len(decisions) == 5 and {(d["verdict"], d["reason"]) for d in decisions} == {("allow", "allowed_cidr")}, result
    flows = lines(result, event="flow", protocol="icmp")
    assert sorted((f["bytes_out"], f["bytes_in"]) for f in flows) == [(8, 8)] + [(192, 192)] * 3 + [(1408, 1408)], result


@BOTH
def test_long_ping(box, host):
    (answer,), result = box.probe(ICMP, ["ping", host, 8000])
    assert answer["result"] == [1], result


@BOTH
def test_ping_program(box, host):
    result = box.run(ICMP, "ping", "-n", "-c", "3", "-i", "0.05", "-W", "2", host)
    assert result.code == 0 and re.search(r"3 received, 0% packet loss", result.out), result
    assert f"from {host}" in result.out, result


@pytest.mark.parametrize("policy,host,ok", [
    ({"network": {"allowOut": ["203.0.113.0/24"], "denyOut": ["0.0.0.0/0"]}}, FOUR, True),
    ({"network": {"allowOut": ["203.0.113.0/24"], "denyOut": ["0.0.0.0/0"]}}, "198.51.100.1", False),
    ({"network": {"denyOut": ["198.51.100.0/24"]}}, SIX, True),
    ({"network": {"denyOut": ["198.51.100.0/24"]}}, "198.51.100.1", False),
], ids=["allowed", "denied", "base", "denied by base"])
def test_ping_by_an_e2b_policy(box, policy, host, ok):
    name = box.policy_file(policy)
    (answer,), result = box.probe(["--policy", name, "--dialect", "e2b"], ["ping", host, 10])
    assert answer["result"] == ([1] if ok else "EHOSTUNREACH"), result


@pytest.mark.parametrize("host", [FOUR, SIX, "198.51.100.1", "1.1.1.1", "2606:4700::1111", zone.HOST4, "192.0.0.3", "fd5a:91c3:7e24:1::3"])
@pytest.mark.parametrize("policy", ["--network none", "--network all", CIDR])
def test_ping_is_denied_at_once_and_never_answered_by_the_sandbox_itself(box, policy, host):
    answers, result = box.probe(policy, *[["ping", host, 10]] * TRIES)
    assert {str(answer["result"]) for answer in answers} == {PROHIBITED[FOUR if "." in host else SIX]}, result
    assert min(answer["ms"] for answer in answers) < AT_ONCE_MS, answers
    denied = lines(result, event="decision", protocol="icmp", verdict="deny")
    assert len(denied) == TRIES and {line["address"] for line in denied} == {host}, result


def test_pinging_a_synthetic_address_is_denied(box):
    result = box.run("--allow both.example", "ping", "-c1", "-W3", "both.example")
    assert result.code == 1 and result.seconds < 3, result
    assert lines(result, protocol="icmp", verdict="deny", name="both.example"), result


def test_ping_when_the_host_lets_nobody(box):
    if box.lab.starter != "root":
        return  # the range must hold groups of the user namespace, which has one
    path = "/proc/sys/net/ipv4/ping_group_range"
    with open(path, encoding="utf-8") as file:
        before = file.read()
    with open(path, "w", encoding="utf-8") as file:
        file.write("1 0")
    try:
        answers, result = box.probe(ICMP, *[["ping", FOUR, 10]] * 3)
    finally:
        with open(path, "w", encoding="utf-8") as file:
            file.write(before)
    assert {answer["result"] for answer in answers} == {"EHOSTUNREACH"}, result
    assert min(answer["ms"] for answer in answers) < AT_ONCE_MS, answers
    assert result.reasons(protocol="icmp") == ["upstream_failed"], result


@pytest.mark.parametrize("host", [zone.UNREACHABLE4, zone.UNREACHABLE6])
def test_unreachable_is_passed_back_to_ping(box, host):
    result = box.run(ICMP, "ping", "-n", "-c", "1", "-W", "3", host)
    assert result.code == 1 and re.search("icmp_seq=1 (Destination unreachable|Destination Host Unreachable)", result.out, re.I), result
