# SPDX-License-Identifier: Apache-2.0
"""The start: what is put in place, what is started when, and that nothing runs before all is ready."""
import os
import re
import subprocess
import time

from conftest import HERE, assert_nothing_left, leftovers
from test_death import children_of

WITH_GATE = {"togate": "meta mark set 0x00000001\n",
             "dns": "meta l4proto @transports th dport 53 meta mark set 0x00000001 accept\n",
             "foreign": "tcp flags syn / fin,syn,rst,ack meta mark set 0x00000001 goto listeners\n\t\t"
                        "meta l4proto @transports meta mark set 0x00000001 goto sockets\n\t\tdrop\n"}
WITHOUT_GATE = {"togate": "meta l4proto tcp reject with tcp reset\n\t\treject with icmpx admin-prohibited\n", "dns": "", "foreign": "drop\n"}


def roles(process):
    """{name: pid} of penstock's own processes."""
    return {words[1]: pid for pid, words in children_of(process.pid).items() if words[1].startswith("@")}


def running(box, policy, **options):
    process = box.popen(box.arguments(policy, ["sh", "-c", "echo ready; read line; " + options.pop("then", "true")]),
                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)
    assert process.stdout.readline() == b"ready\n", process.communicate()
    return process


def listed(keeper):
    text = subprocess.run(["nsenter", "-t", str(keeper), "-n", "nft", "list", "ruleset"], check=True, capture_output=True,
                          text=True).stdout
    return re.sub(r",\s+", ", ", text)  # nft breaks some lists of elements into lines


def wanted(chains, ports=()):
    with open(os.path.join(HERE, "rules.nft"), encoding="utf-8") as file:
        text = file.read().partition("\n")[2]  # without the licence
    for name, rules in WITH_GATE.items():
        text = text.replace(f"chain {name} {{\n\t\t{rules}", f"chain {name} {{\n" + (chains[name] and "\t\t" + chains[name]))
    if ports:
        text = text.replace("type inet_service\n", "type inet_service\n\t\telements = { " + ", ".join(map(str, ports)) + " }\n")
    return re.sub(r",\s+", ", ", text)


def test_rules(box):
    """nft reads in the kernel what rules.nft says; and when the gate is stopped for good, the refusing ones."""
    process = running(box, "--allow-cidr 203.0.113.1 --allow localhost:8000 --allow-private")
    keeper = roles(process)["@keeper"]
    assert listed(keeper) == wanted(WITH_GATE, [8000])
    for _ in range(6):  # one more than it is started again
        if "@gate" not in roles(process):
            break
        gate = roles(process)["@gate"]
        os.kill(gate, 9)
        deadline = time.monotonic() + 10
        while roles(process).get("@gate") == gate and time.monotonic() < deadline:
            time.sleep(0.02)
        time.sleep(0.2)
    deadline = time.monotonic() + 10
    while listed(keeper) != wanted(WITHOUT_GATE, [8000]) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert listed(keeper) == wanted(WITHOUT_GATE, [8000])
    process.communicate(b"\n", 20)


def test_resolver_is_started_when_it_is_asked(box):
    """Not for a policy without names, unless something is asked all the same; soon where there are names."""
    process = running(box, "--allow-cidr 203.0.113.1")
    time.sleep(0.5)
    assert sorted(roles(process)) == ["@gate", "@keeper"]
    process.communicate(b"\n", 20)
    process = running(box, "--allow both.example")
    deadline = time.monotonic() + 10
    while "@resolver" not in roles(process) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert sorted(roles(process)) == ["@gate", "@keeper", "@resolver"]
    process.communicate(b"\n", 20)


def test_first_question_waits_for_the_resolver(box):
    result = box.run("--allow both.example", "python3", "-c", "import socket; print(socket.gethostbyname('both.example'))")
    assert result.code == 0 and result.out.strip(), result


def test_nothing_runs_if_something_is_not_ready(box):
    """The policy cannot be put in force, no server of names answers, the command is not there: nothing ran, nothing is left."""
    before = leftovers()
    marker = box.path("ran")
    for policy in ("--allow both.example --dns 203.0.113.77", ["--policy", box.path("missing.json")]):
        result = box.run(policy, "touch", marker)
        assert result.code == 125 and "penstock: " in result.err, result
        assert not os.path.exists(marker)
    result = box.run("--network none", "no-such-command")
    assert result.code == 127, result
    assert_nothing_left(before)
