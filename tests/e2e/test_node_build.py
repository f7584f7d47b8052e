# SPDX-License-Identifier: Apache-2.0
"""Templates of a node: build steps under a policy, start and ready commands, and what a failed build leaves (nothing)."""
import os
import time

import pytest

from conftest import RUN_TIMEOUT
from engine import processes
from node import IMAGE, node, root_only  # noqa: F401  (the fixture)

CURL = "curl -sS -o /dev/null --max-time 10 https://{}/"


def step(kind, *arguments):
    return {"type": kind, "args": list(arguments)}


def build(node, name, **fields):
    """Status of a build when it has ended, and the template's id."""
    made = node.good("POST", "/v3/templates", {"name": name}, (202,)).json
    path = f"/templates/{made['templateID']}/builds/{made['buildID']}"
    node.good("POST", "/v2" + path, {"fromImage": IMAGE, **fields}, (202,))
    return node.await_build(path), made["templateID"]


def until(node, sandbox, command):
    end = time.monotonic() + RUN_TIMEOUT
    while node.exec(sandbox, command).exit != 0:
        assert time.monotonic() < end, node.exec(sandbox, "ls -l / /tmp; ps").out
        time.sleep(0.05)


@root_only
def test_steps(node):
    """In their order; variables, folder and user are kept for what comes after, and for sandboxes."""
    status, template = build(node, "steps", steps=[
        step("ENV", "GREETING", "hello"), step("WORKDIR", "/srv/app"), step("RUN", "echo $GREETING > made; id -u >> made"),
        step("RUN", "id -u >> /tmp/who", "alice"), step("USER", "alice"), step("RUN", "echo on standard error > /dev/stderr; id -u >> /tmp/who")])
    assert status["status"] == "ready" and any("on standard error" in line for line in status["logs"]), status
    sandbox = node.create("/sandboxes", templateID="steps")
    output = node.exec(sandbox, "cat made /tmp/who; id -u; pwd; echo $GREETING")
    assert output.out.split() == ["hello", "0", "1000", "1000", "1000", "/srv/app", "hello"], output


@root_only
def test_a_step_that_floods_its_log_keeps_nobody_waiting(node):
    """Its lines are taken in turns: others are answered in between, and the last lines are there at the end."""
    made = node.good("POST", "/v3/templates", {"name": "flood"}, (202,)).json
    path = f"/templates/{made['templateID']}/builds/{made['buildID']}"
    flood = "dd if=/dev/zero bs=8000 count=1 2>/dev/null | /bin/busybox tr '\\000' '\\n'; echo last >&2"
    node.good("POST", "/v2" + path, {"fromImage": IMAGE, "steps": [step("RUN", flood)]}, (202,))
    oldest, status, end = set(), {"status": "building"}, time.monotonic() + RUN_TIMEOUT
    while status["status"] in ("waiting", "building"):
        status = node.good("GET", path + "/status", status=(200,)).json
        oldest |= {entry["timestamp"] for entry in status["logEntries"][:1]}
        assert time.monotonic() < end, status
    assert status["status"] == "ready", status
    assert len(oldest) >= 5, oldest  # it was asked in the middle of it
    rest = node.good("GET", path + "/status?logsOffset=8000", status=(200,)).json["logs"]
    assert "last" in rest, rest


@root_only
def test_steps_run_under_the_builds_policy(node):
    """The node's base without one; none of it is left to sandboxes of the template, which have their own."""
    policy = {"allowOut": ["v4.example"], "denyOut": ["0.0.0.0/0"]}
    allowed, denied = CURL.format("v4.example"), CURL.format("other.example")
    status, _ = build(node, "narrow", network=policy, steps=[step("RUN", f"{allowed} && ! {denied} 2>/dev/null && touch /done")])
    assert status["status"] == "ready", status
    status, _ = build(node, "closed", allow_internet_access=False, steps=[step("RUN", allowed)])
    assert status["status"] == "error" and "ended with status" in status["reason"]["message"], status
    assert any("v4.example" in line for line in status["logs"]), status
    status, _ = build(node, "base", steps=[step("RUN", f"{allowed} && {denied}"), step("RUN", "! curl -m 5 -s http://10.9.9.9/")])
    assert status["status"] == "ready", status
    sandbox = node.create("/sandboxes", templateID="narrow", network={"allowOut": ["other.example"], "denyOut": ["0.0.0.0/0"]})
    output = node.exec(sandbox, f"ls /done && {denied} && ! {allowed} 2>/dev/null")
    assert output.exit == 0, output


@root_only
def test_start_command(node):
    """It runs in each sandbox of the template, of a snapshot and in a fork; in the folder, as the user, and under the policy."""
    start = "(echo started; id -u; pwd; echo $WHO; {} && echo reached) > /tmp/out 2>&1; exec sleep 100".format(CURL.format("v4.example"))
    status, _ = build(node, "starts", startCmd=start, steps=[step("WORKDIR", "/data"), step("USER", "alice")])
    assert status["status"] == "ready", status
    first = node.create("/sandboxes", templateID="starts", envVars={"WHO": "me"})
    until(node, first, "grep -q reached /tmp/out")
    assert node.exec(first, "cat /tmp/out").out.split() == ["started", "1000", "/data", "me", "reached"]
    snapshot = node.good("POST", f"/sandboxes/{first}/snapshots", {}, (201,)).json["snapshotID"]
    second = node.create("/sandboxes", templateID=snapshot, allow_internet_access=False)
    third = node.good("POST", f"/sandboxes/{first}/fork", {"count": 1}, (201,)).json[0]["sandbox"]["sandboxID"]
    for sandbox in (second, third):
        until(node, sandbox, "ps | grep -q '[s]leep 100'")
    assert "reached" not in node.exec(second, "cat /tmp/out").out
    # Pausing is no start.
    node.good("POST", f"/sandboxes/{first}/pause", {})
    node.good("POST", f"/sandboxes/{first}/connect", {"timeout": 60})
    assert node.exec(first, "ps | grep -c '[s]leep 100'").out == "1\n"


@root_only
def test_ready_command(node):
    """The build waits for it, and what the service has written by then is the template's."""
    status, _ = build(node, "service", startCmd="sleep 1; echo up > /tmp/up; exec sleep 100", readyCmd="test -e /tmp/up",
                      steps=[step("RUN", "touch /tmp/steps")])
    assert status["status"] == "ready", status
    sandbox = node.create("/sandboxes", templateID="service")
    assert node.exec(sandbox, "ls /tmp/up /tmp/steps").exit == 0


@root_only
@pytest.mark.parametrize("name,fields,message", [
    ("ends", {"startCmd": "echo not today >&2; exit 3", "readyCmd": "false"}, "the command ended with status 3"),
    ("fails", {"steps": [step("RUN", "exit 4")]}, "the command ended with status 4"),
    ("nobody", {"steps": [step("RUN", "true", "nobody-here")]}, "nobody-here"),
    ("missing", {"fromImage": "missing"}, "missing")],
    ids=["ends", "fails", "nobody", "missing"])
def test_failed_builds(node, name, fields, message):
    layers = set(os.listdir(os.path.join(node.state, "node", "layers")))
    status, template = build(node, name, **fields)
    assert status["status"] == "error" and message in status["reason"]["message"], status
    if name == "ends":
        assert status["reason"]["step"] == "ready: false" and "not today" in status["logs"], status
    answer = node.call("POST", "/sandboxes", {"templateID": name})
    assert answer.status in (400, 404), answer
    end = time.monotonic() + 10
    while set(os.listdir(os.path.join(node.state, "node", "layers"))) != layers or any(
            entry.startswith("b") for entry in os.listdir(os.path.join(node.state, "node", "sandboxes"))):
        assert time.monotonic() < end, os.listdir(os.path.join(node.state, "node", "sandboxes"))
        time.sleep(0.05)


@root_only
@pytest.mark.parametrize("name,fields", [("step", {"steps": [step("RUN", "sleep 4711")]}), ("ready", {"startCmd": "sleep 4711", "readyCmd": "false"})])
def test_a_template_that_is_removed_while_it_is_built(node, name, fields):
    layers = set(os.listdir(os.path.join(node.state, "node", "layers")))
    made = node.good("POST", "/v3/templates", {"name": "removed-" + name}, (202,)).json
    node.good("POST", f"/v2/templates/{made['templateID']}/builds/{made['buildID']}", {"fromImage": IMAGE, **fields}, (202,))
    end = time.monotonic() + 60
    while not any("sleep 4711" in text for text in processes().values()):
        assert time.monotonic() < end
        time.sleep(0.05)
    node.good("DELETE", f"/templates/{made['templateID']}")
    while any("sleep 4711" in text for text in processes().values()) or set(os.listdir(os.path.join(node.state, "node", "layers"))) != layers or any(
            entry.startswith("b") for entry in os.listdir(os.path.join(node.state, "node", "sandboxes"))):
        assert time.monotonic() < end
        time.sleep(0.05)
    assert node.call("GET", f"/templates/{made['templateID']}/builds/{made['buildID']}/status").status == 404


@root_only
def test_a_start_command_that_cannot_be_run(node):
    """Not without a word: the sandbox is not made."""
    status, _ = build(node, "broken", startCmd="true", steps=[step("RUN", "rm /bin/sh")])
    assert status["status"] == "ready", status
    answer = node.call("POST", "/sandboxes", {"templateID": "broken"})
    assert answer.status == 500 and "start command" in answer.message and "/bin/sh" in answer.message, answer


@root_only
def test_command_line(node):
    done = node.run("template", "create", "--name", "typed", "--allow", "v4.example", "--run", CURL.format("v4.example"), "--run",
                    "touch /done", "--start", "touch /tmp/started; sleep 100", "--ready", "test -e /tmp/started", IMAGE)
    assert done.returncode == 0, done
    made = node.run("create", "--template", "typed", "--network", "none")
    assert made.returncode == 0, made
    sandbox = made.stdout.strip()
    assert node.exec(sandbox, "ls /done").exit == 0
    done = node.run("template", "create", "--name", "refused", "--run", CURL.format("v4.example"), "--network", "none", IMAGE)
    assert done.returncode != 0 and "the build failed" in done.stderr, done
