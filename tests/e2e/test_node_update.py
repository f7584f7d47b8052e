# SPDX-License-Identifier: Apache-2.0
"""Rules that change while a sandbox of a node runs: of names, addresses and credentials, under connections; and what the node
counts of it."""
import os
import re
import subprocess
import threading
import time

import engine
import zone
from node import IMAGE, PATIENCE, https, node, probe, root_only  # noqa: F401 (a fixture)
from test_death import children_of

ALTERNATIONS = 120
NAMED = {"allowOut": ["v4.example"], "denyOut": ["0.0.0.0/0", "::/0"]}


def native(secret, *hosts):
    """A policy with a credential for v4.example, that is this secret."""
    entries = "".join(f"  - {{host: {host}}}\n" for host in ("v4.example", *hosts))
    return (f"version: 1\nbase: deny\nallow:\n  - {{cidr: {zone.ECHO4}/32, ports: [{zone.PORT_ECHO}]}}\n{entries}credentials:\n"
            f"  - {{host: v4.example, header: X-Key, secret: 'store:{secret}'}}\n")


def secret(node, name, value):
    done = subprocess.run([node.program, "secret", "set", name], input=value, text=True, env=node.environment(), capture_output=True,
                          check=False)
    assert done.returncode == 0, done


def samples(node):
    """{sample: number} of the metrics."""
    lines = node.good("GET", "/metrics", status=(200,)).text.splitlines()
    return {key: float(value) for key, _, value in (line.rpartition(" ") for line in lines if not line.startswith("#"))}


@root_only
def test_a_loop_of_connections_sees_one_policy_or_the_other(node):
    both, never = {"echo"}, {"v6.example"}
    policies = [{"allowOut": [zone.ECHO4, name], "denyOut": ["0.0.0.0/0", "::/0"]} for name in ("v4.example", "both.example")]
    sandbox = node.create(network=policies[0])
    # One line a try: name and exit status.
    script = "".join(f"(while [ ! -e /root/stop ]; do curl -sS -o /dev/null --max-time 10 {url} 2>/dev/null; echo {name} $?; done) &\n"
                     for name, url in [("v4.example", "https://v4.example/"), ("both.example", "https://both.example/"),
                                       ("v6.example", "https://v6.example/")])
    script += (f"(while [ ! -e /root/stop ]; do echo hello | nc.openbsd -N -w 5 {zone.ECHO4} {zone.PORT_ECHO} | grep -q hello; "
               "echo echo $?; done) &\nwait\n")
    outputs = []
    loop = threading.Thread(target=lambda: outputs.append(node.exec(sandbox, script)))
    loop.start()
    connection = node.connection()
    for turn in range(ALTERNATIONS):
        answer = node.call("PUT", f"/sandboxes/{sandbox}/network", policies[turn % 2], connection=connection)
        assert answer.status == 204 and answer.headers["x-penstock-generation"] == str(turn + 2), answer
        if turn % 40 > 37:  # under this policy alone
            reached = probe(node, sandbox, {name: https(name) for name in ("v4.example", "both.example", "v6.example")})
            assert reached == {"v4.example" if turn % 2 == 0 else "both.example"}, turn
    node.exec(sandbox, ["touch", "/root/stop"])
    loop.join(PATIENCE)
    tries = [line.split() for line in outputs[0].out.splitlines()]
    assert {name for name, _ in tries} == both | never | {"v4.example", "both.example"}, outputs[0]
    for name, status in tries:
        assert not (name in both and status != "0") and not (name in never and status == "0"), (name, status)
    assert all(sum(seen == name for seen, _ in tries) >= 5 for name in both | never), "too few tries to tell"
    node.remove(sandbox)


class Line:
    """A connection of the sandbox that stays open: what is sent on it comes back."""

    def __init__(self, node, sandbox):
        node.exec(sandbox, ["mkfifo", "/root/in"])
        script = f"exec 3<>/root/in; nc.openbsd {zone.ECHO4} {zone.PORT_ECHO} <&3 >/root/out"
        self.node, self.sandbox, self.sent = node, sandbox, 0
        self.thread = threading.Thread(target=node.exec, args=(sandbox, script), daemon=True)
        self.thread.start()

    def answers(self):
        self.sent += 1
        word = f"word-{self.sent}"
        script = f"echo {word} >/root/in; for i in 1 2 3 4 5 6 7 8 9 10; do grep -qx {word} /root/out && exit 0; sleep 0.1; done; exit 1"
        return self.node.exec(self.sandbox, script).exit == 0


@root_only
def test_credentials_change_and_connections_stay(node):
    secret(node, "node-one", "first-value")
    secret(node, "node-two", "second-value")
    try:
        refused = node.call("POST", "/sandboxes-cold", {"image": IMAGE, "policy": native("node-one").replace("store:node-one", "env:HOME")})
        assert refused.status == 400 and "env:HOME" in refused.message and "store:" in refused.message
        sandbox = node.create(policy=native("node-one"))
        line = Line(node, sandbox)
        assert line.answers()

        def key():
            seen = node.exec(sandbox, "curl -sS https://v4.example/headers")
            assert seen.exit == 0, seen
            return [row.split(": ")[1] for row in seen.out.splitlines() if row.lower().startswith("x-key: ")]

        assert key() == ["first-value"]
        generation = 1
        steps = [(native("node-two"), ["second-value"]), (native("node-one", "both.example"), ["first-value"]),
                 (native("node-two"), ["second-value"]), (native("node-one"), ["first-value"])]
        for policy, wanted in steps * 3:  # more often than a gate may be started again
            answer = node.update(sandbox, policy=policy)
            generation += 1
            assert answer.headers["x-penstock-generation"] == str(generation)
            assert answer.headers["x-penstock-flows-closed"] == "0" and int(answer.headers["x-penstock-flows-kept"]) >= 1, answer
            assert key() == wanted
        assert line.answers(), "an update closed a connection that both policies allow"
        # Without any, and with one again: that is another gate, and the sandbox still trusts.
        node.update(sandbox, policy=native("node-one").partition("credentials:")[0])
        assert key() == []
        node.update(sandbox, policy=native("node-two"))
        assert key() == ["second-value"]
        # That gate is listened to: its answers to updates, and its log.
        node.update(sandbox, policy=native("node-one"))
        assert key() == ["first-value"]
        node.exec(sandbox, "curl -sS -m 5 https://denied.example/")
        assert any(line["name"] == "denied.example" for line in node.decisions(sandbox)), node.decisions(sandbox)[-5:]
        bare = node.create(network=NAMED)
        answer = node.call("PUT", f"/sandboxes/{bare}/network", {"policy": native("node-one")})
        assert answer.status == 400 and "does not trust" in answer.message, answer
        assert node.exec(bare, "curl -sS -o /dev/null https://v4.example/").exit == 0, "a refused update changes nothing"
        for one in (sandbox, bare):
            assert "-value" not in node.exec(one, "env; cat /proc/*/environ /proc/*/cmdline 2>/dev/null").out
            node.remove(one)
    finally:
        for name in ("node-one", "node-two"):
            node.run("secret", "rm", name)


def holds(pid, secret):
    """Whether it is in the memory of that process."""
    with open(f"/proc/{pid}/maps", encoding="utf-8") as areas, open(f"/proc/{pid}/mem", "rb", 0) as memory:
        for area in areas:
            bounds, rights = area.split()[:2]
            start, end = (int(bound, 16) for bound in bounds.split("-"))
            if rights[0] == "r" and "[v" not in area:
                memory.seek(start)
                if secret in memory.read(end - start):
                    return True
    return False


@root_only
def test_a_literal_credential_is_not_in_a_shim(node):
    def network(value):
        rules = {"v4.example": [{"transform": {"headers": {"X-Key": value}}}]}
        return {"allowOut": ["v4.example"], "denyOut": ["0.0.0.0/0", "::/0"], "rules": rules}

    first, second = "literal-7d1f0c-one", "literal-7d1f0c-two"
    sandbox = node.create(network=network(first))
    node.update(sandbox, **network(second))
    assert second in node.exec(sandbox, "curl -sS https://v4.example/headers").out
    folder = os.path.join(node.state, "node", "sandboxes", sandbox)
    assert not os.path.exists(os.path.join(folder, "spec.json"))
    shims = [pid for pid, command in engine.processes().items() if command.startswith("penstock @shim ") and sandbox in command]
    assert len(shims) == 1, shims
    for value in (first, second):
        assert not holds(shims[0], value.encode()), value
    limits = open(f"/proc/{shims[0]}/limits", encoding="utf-8").read()
    assert re.search(r"Max core file size +0 +0 ", limits) and os.stat(f"/proc/{shims[0]}/fd").st_uid == 0
    assert "literal-7d1f0c" not in node.said()
    node.remove(sandbox)


@root_only
def test_metrics(node):
    before = samples(node)
    sandbox = node.create(network=NAMED)
    node.exec(sandbox, "curl -sS -o /dev/null https://v4.example/; curl -sS -o /dev/null https://v6.example/")
    node.update(sandbox, **NAMED)
    node.remove(sandbox)  # nobody has asked while it was there
    time.sleep(1)         # the node's answer is that old at most
    after = samples(node)

    def more(name, *labels):
        matching = [key for key in after if key.startswith(name) and all(label in key for label in labels)]
        return sum(after[key] - before.get(key, 0) for key in matching)

    assert more("penstock_decisions_total", 'type="container"', 'protocol="tcp"', 'verdict="allow"', 'reason="allowed_name"') == 1
    assert more("penstock_decisions_total", 'protocol="dns"', 'reason="dns_name_denied"') >= 1
    assert more("penstock_flows_total", 'kind="tcp"') == 1 and more("penstock_flows_open") == 0
    assert 0 < more("penstock_bytes_total", 'direction="out"') < 100000 and more("penstock_bytes_total", 'direction="in"') > 0
    assert more("penstock_policy_update_seconds_count") == 1 and more("penstock_api_requests_total") >= 4
    # Many who ask at once are answered, without a key.
    threads = [threading.Thread(target=node.call, args=("GET", "/metrics"), kwargs={"headers": {"X-API-Key": ""}}) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert all(value >= before.get(key, 0) for key, value in samples(node).items() if key.split("{")[0].endswith("_total")), "one fell"


@root_only
def test_a_sandbox_that_has_lost_its_network_takes_no_rules(node):
    """What keeps its namespace died: closed for good, and not as if the new rules were in force."""
    sandbox = node.create(network=NAMED)
    shim, = [pid for pid, text in engine.processes().items() if text.startswith("penstock @shim ") and sandbox in text]
    keeper, = [pid for pid, words in children_of(shim).items() if words[1] == "@keeper"]
    os.kill(keeper, 9)
    deadline = time.monotonic() + PATIENCE
    while (answer := node.call("PUT", f"/sandboxes/{sandbox}/network", NAMED)).status == 204 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert answer.status == 500 and "has no network any more" in answer.text, answer
    assert not probe(node, sandbox, {"v4.example": https("v4.example")})
