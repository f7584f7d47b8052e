# SPDX-License-Identifier: Apache-2.0
"""The relay: protocols where the server speaks first, half-close, urgent data, volume, limits, named TCP."""
import ast
import hashlib

import pytest

import zone

CIDR = "--allow-cidr 203.0.113.0/24 --allow-cidr 2001:db8:100::/48"
BANNER = "220 lab.example ready\r\n"
NAMED = {"allow": [{"host": "db.example", "protocol": "tcp", "ports": [zone.PORT_DB]}]}
PRIVATE = {"allow": [{"host": "private-db.example", "protocol": "tcp", "ports": [zone.PORT_DB], "private": True}]}


@pytest.mark.parametrize("policy,host,port", [(CIDR, "203.0.113.1", zone.PORT_BANNER), (CIDR, "2001:db8:100::1", zone.PORT_BANNER),
                                              ("--network all", "203.0.113.1", zone.PORT_BANNER),
                                              (NAMED, "db.example", zone.PORT_DB), (PRIVATE, "private-db.example", zone.PORT_DB)])
def test_server_speaks_first(box, policy, host, port):
    (answer, again), result = box.probe(policy, ["banner", host, port], ["banner", host, port])
    assert (answer["result"], again["result"]) == (BANNER, BANNER), result
    assert again["ms"] < 200, "waited for the client to speak"


def test_server_speaks_first_where_only_https_is_allowed(box):
    """TLS servers never do: refused at once, not when the wait for the client's first bytes is over."""
    (answer,), result = box.probe("--allow banner.example", ["banner", "banner.example", 443])
    assert answer["result"] == "ECONNRESET" and answer["ms"] < 4000, result
    assert result.reasons(verdict="deny") == ["not_https"], result


def test_named_tcp_is_closed_elsewhere(box):
    answers, result = box.probe(NAMED, ["connect", "db.example", zone.PORT_BANNER], ["resolve", "private-db.example"],
                                ["connect", "198.51.100.33", zone.PORT_DB])
    assert answers[0]["result"] == "ECONNREFUSED", result
    assert answers[1]["result"].startswith("resolve "), result
    assert answers[2]["result"] != "connected" or "allow" not in [line["verdict"] for line in result.log
                                                                  if line["address"] == "198.51.100.33"], result


@pytest.mark.parametrize("host", ["203.0.113.1", "2001:db8:100::1"])
def test_half_close(box, host):
    size = 3000000
    (answer,), result = box.probe(CIDR, ["half_close", host, zone.PORT_DISCARD, size])
    assert answer["result"] == f"{size} {hashlib.sha256(b'y' * size).hexdigest()}\n", result


@pytest.mark.parametrize("host", ["203.0.113.1", "2001:db8:100::1"])
def test_urgent_data_both_ways(box, host):
    (answer,), result = box.probe(CIDR, ["urgent", host, zone.PORT_URGENT])
    assert answer["result"] == "before U after\none ! two", result


def test_volume(box):
    (answer,), result = box.probe(CIDR, ["receive", "203.0.113.1", zone.PORT_CHARGEN, 200000000])
    assert answer["result"] == 200000000, result
    flow = [line for line in result.log if line["event"] == "flow" and line["port"] == zone.PORT_CHARGEN]
    assert len(flow) == 1 and flow[0]["bytes_in"] == 200000000 and flow[0]["bytes_out"] == len("200000000\n"), flow


def test_connection_limit(box):
    policy = {"allow": [{"cidr": "203.0.113.0/24"}], "limits": {"connections": 4}}
    (answer,), result = box.probe(policy, ["hold", "203.0.113.1", zone.PORT_IDLE, 6])
    assert answer["result"][:4] == ["connected"] * 4, result
    assert "connected" not in answer["result"][4:] and "timeout" not in answer["result"], result
    assert "limit_exceeded" in result.reasons(), result


def test_port_and_protocol_of_a_cidr_rule(box):
    policy = {"allow": [{"cidr": "203.0.113.0/24", "protocol": "tcp", "ports": [zone.PORT_BANNER]}, {"cidr": "2001:db8:100::/48", "protocol": "udp"}]}
    answers, result = box.probe(policy, ["connect", "203.0.113.1", zone.PORT_BANNER], ["connect", "203.0.113.1", 443],
                                ["connect", "2001:db8:100::1", 443])
    assert [a["result"] for a in answers] == ["connected", "ECONNREFUSED", "ECONNREFUSED"], result


def test_gates_own_ports_and_loopback(box):
    """Every listening port inside the namespace is refused, whatever the policy; a service of the sandbox's own works."""
    script = ("import socket\nopen_ports = []\n"
              "for family, host in ((socket.AF_INET, '127.0.0.1'), (socket.AF_INET, '192.0.0.2'), (socket.AF_INET6, '::1'), (socket.AF_INET6, 'fd5a:91c3:7e24:1::2')):\n"
              "    for port in list(range(1, 1200)) + [8000, 9100, 9999] + list(range(32768, 33800)):\n"
              "        with socket.socket(family) as s:\n"
              "            s.settimeout(2)\n"
              "            if s.connect_ex((host, port)) == 0 and s.getsockname() != s.getpeername(): open_ports.append((host, port))\n"
              "print(open_ports)\n"
              "server = socket.create_server(('127.0.0.1', 7777)); client = socket.create_connection(('127.0.0.1', 7777), 2)\n"
              "peer, _ = server.accept(); peer.sendall(b'own service'); print(client.recv(20).decode())\n")
    result = box.run("--network all", "/usr/bin/python3", "-c", script)
    assert result.code == 0 and "own service" in result.out, result
    # Port 53 of a loopback address is DNS, where nothing else listens. (The other thing to meet is a connection to itself.)
    assert {port for _, port in ast.literal_eval(result.out.split("\n")[0])} <= {53}, result
