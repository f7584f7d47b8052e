# SPDX-License-Identifier: Apache-2.0
"""A node's life cycle, templates, streams, errors and HTTP, through its REST API as clients of E2B and AgentENV use it."""
import base64
import datetime
import json
import os
import re
import socket
import subprocess
import threading
import time
import urllib.parse

from node import IMAGE, KEY, PATIENCE, https, node, probe, root_only, tls  # noqa: F401 (a fixture)

NONE = {"allow_internet_access": False}


def seconds_to(text):
    return (datetime.datetime.fromisoformat(text.replace("Z", "+00:00")) - datetime.datetime.now(datetime.timezone.utc)).total_seconds()


def left(node, sandbox):
    """Seconds until its end."""
    return seconds_to(node.detail(sandbox)["endAt"])


def until(what, condition, seconds=PATIENCE):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.02)


# ---- life cycle ----

@root_only
def test_what_a_sandbox_is(node):
    answer = node.good("POST", "/sandboxes-cold", {"image": IMAGE, "timeout": 90, "metadata": {"a": "1"}, "envVars": {"MINE": "yes x"},
                                                   "memoryMB": 256, "cpuCount": 2, "secure": True, **NONE}, (201,))
    made = answer.json
    sandbox = made["sandboxID"]
    assert answer.headers["x-agentenv-sandbox-id"] == sandbox and len(sandbox) == 21 and sandbox[0] == "i"
    assert (made["templateID"], made["clientID"], made["trafficAccessToken"]) == (IMAGE, "", None) and len(made["envdAccessToken"]) == 64
    assert made["envdVersion"] and made["domain"] is None
    detail = node.detail(sandbox)
    wanted = {"sandboxID": sandbox, "state": "running", "cpuCount": 2, "memoryMB": 256, "metadata": {"a": "1"},
              "allowInternetAccess": False, "lifecycle": {"autoResume": False, "onTimeout": "kill"}}
    assert {key: detail[key] for key in wanted} == wanted, detail
    assert 60 < left(node, sandbox) < 91 and -60 < seconds_to(detail["startedAt"]) < 1
    assert "trafficAccessToken" not in detail
    output = node.exec(sandbox, "echo $MINE; echo $LAYER; id -u; pwd")
    assert output.out == "yes x\nbase\n0\n/\n", output
    # Two at a time: a file of one is no file of the other.
    other = node.create(**NONE)
    node.exec(sandbox, "echo mine >/root/file")
    assert node.exec(other, ["cat", "/root/file"]).exit == 1
    assert 200 < left(node, other) < 301, "the default is 300 s"
    for one in (sandbox, other):
        assert node.remove(one).status == 204
        gone = node.remove(one)
        assert gone.status == 404 and gone.message == f"sandbox {one} not found"
        assert node.call("GET", f"/sandboxes/{one}").message == f"sandbox {one} not found"


@root_only
def test_time(node):
    sandbox = node.create(timeout=40, **NONE)
    node.good("POST", f"/sandboxes/{sandbox}/timeout", {"timeout": 500}, (204,))
    assert 450 < left(node, sandbox) < 501
    node.good("POST", f"/sandboxes/{sandbox}/refreshes", {"duration": 100}, (204,))
    assert 400 < left(node, sandbox) < 501, "a refresh never shortens"
    node.good("POST", f"/sandboxes/{sandbox}/refreshes", {"duration": 3600}, (204,))
    assert 3500 < left(node, sandbox) < 3601
    node.good("POST", f"/sandboxes/{sandbox}/connect", {"timeout": 5}, (200,))
    assert 3400 < left(node, sandbox), "nor does connect"
    node.good("POST", f"/v2/sandboxes/{sandbox}/connect", {"timeout": 4000}, (200,))
    assert 3900 < left(node, sandbox) < 4001
    node.good("POST", f"/sandboxes/{sandbox}/timeout", {"timeout": 60}, (204,))
    assert left(node, sandbox) < 61, "a timeout does"
    for path, body, text in (("timeout", {}, "timeout is missing"), ("timeout", {"timeout": -1}, "timeout"), ("timeout", {"timeout": "5"}, "timeout"),
                             ("refreshes", {"duration": 3601}, "duration must be at most 3600")):
        answer = node.call("POST", f"/sandboxes/{sandbox}/{path}", body)
        assert answer.status == 400 and text in answer.message, answer
    # Over: one is killed, the other paused with its policy and its files.
    paused = node.create(timeout=1, autoPause=True, network={"allowOut": ["198.51.100.20"], "denyOut": ["0.0.0.0/0"]})
    node.exec(paused, "echo kept >/root/file; sleep 100 >/dev/null 2>&1 & echo $! >/root/pid")
    node.good("POST", f"/sandboxes/{sandbox}/timeout", {"timeout": 0}, (204,))
    until("it is not killed", lambda: sandbox not in node.states())
    until("it is not paused", lambda: node.states().get(paused) == "paused")
    assert node.call("GET", f"/sandboxes/{sandbox}").status == 404
    assert node.detail(paused)["lifecycle"]["onTimeout"] == "pause"
    node.good("POST", f"/sandboxes/{paused}/connect", {"timeout": 77}, (201,))
    assert 30 < left(node, paused) < 78
    assert node.exec(paused, "cat /root/file; kill -0 $(cat /root/pid) && echo runs").out == "kept\nruns\n"
    assert probe(node, paused, {"a": "curl -ks https://198.51.100.20/", "b": "curl -ks https://198.51.100.21/"}) == {"a"}
    node.good("DELETE", f"/sandboxes/{paused}")


@root_only
def test_pause_and_resume(node):
    sandbox = node.create(timeout=120, **NONE)
    node.exec(sandbox, "(while :; do date +%s%N >/root/now; sleep 0.02; done) >/dev/null 2>&1 &")
    assert node.call("POST", f"/sandboxes/{sandbox}/resume", {}).message == "sandbox cannot be resumed from running state"
    node.good("POST", f"/sandboxes/{sandbox}/pause", {}, (204,))
    assert node.states()[sandbox] == "paused"
    for method, path, body, text in (
            ("POST", "pause", {}, "sandbox cannot be paused from paused state"),
            ("PUT", "network", {}, "sandbox network cannot be updated from paused state"),
            ("POST", "exec", {"cmd": "true"}, "a command cannot be run in paused state"),
            ("POST", "fork", {}, "sandbox cannot be forked from paused state")):
        answer = node.call(method, f"/sandboxes/{sandbox}/{path}", body)
        assert (answer.status, answer.message) == (409, text), answer
    assert node.call("PUT", f"/sandboxes/{sandbox}/network", {"denyOut": ["x"]}).status == 400  # the body first, as AgentENV does
    answer = node.good("POST", f"/sandboxes/{sandbox}/resume", {"timeout": 300}, (201,))
    assert answer.json["sandboxID"] == sandbox and 200 < left(node, sandbox) < 301
    first = node.exec(sandbox, "cat /root/now").out
    until("its processes do not go on", lambda: node.exec(sandbox, "cat /root/now").out != first)
    node.good("POST", f"/sandboxes/{sandbox}/pause", {}, (204,))
    assert node.remove(sandbox).status == 204, "a paused one is removed too"
    assert sandbox not in node.states()
    for path in ("pause", "resume", "connect", "timeout", "refreshes", "fork", "snapshots"):
        answer = node.call("POST", f"/sandboxes/{sandbox}/{path}", {"timeout": 1})
        assert (answer.status, answer.message) == (404, f"sandbox {sandbox} not found"), path


@root_only
def test_forks(node):
    """Of one whose time was set after its creation, too."""
    for fields, after, least, most in (({"timeout": 60}, None, 30, 61), ({"expires": False}, 30, 200, 301), ({"expires": False}, None, 1e9, 2e9)):
        sandbox = node.create(network={"allowOut": ["both.example"], "denyOut": ["0.0.0.0/0"]}, metadata={"k": "v"}, **fields)
        node.exec(sandbox, "echo parent >/root/file; sleep 100 >/dev/null 2>&1 &")
        if after:
            node.good("POST", f"/sandboxes/{sandbox}/timeout", {"timeout": after}, (204,))
        forks = [entry["sandbox"]["sandboxID"] for entry in node.good("POST", f"/sandboxes/{sandbox}/fork", {"count": 2}, (201,)).json]
        assert len(set(forks + [sandbox])) == 3
        for fork in forks:
            assert node.states().get(fork) == "running", (fields, after)
            assert least < left(node, fork) < most, (fields, after)
            assert node.detail(fork)["metadata"] == {"k": "v"}
            node.exec(sandbox, "echo changed >/root/file")
            assert node.exec(fork, "cat /root/file; pidof sleep").out == "parent\n", "the files are copied, the processes are not"
        assert probe(node, forks[0], {"a": https("both.example"), "b": https("other.example")}) == {"a"}
        node.update(forks[0], allowOut=["other.example"], denyOut=["0.0.0.0/0"])
        assert probe(node, forks[0], {"a": https("both.example"), "b": https("other.example")}) == {"b"}
        assert probe(node, forks[1], {"a": https("both.example"), "b": https("other.example")}) == {"a"}, "each has its own policy"
        one = node.good("POST", f"/sandboxes/{forks[0]}/fork", {"timeout": 10}, (201,)).json[0]["sandbox"]["sandboxID"]
        assert left(node, one) < 11
        for made in (sandbox, *forks, one):
            assert node.remove(made).status == 204


@root_only
def test_calls_at_once(node):
    """Of one sandbox: each update is answered when its policy is in force, and the last one is what is kept."""
    def at_once(calls):
        answers = []
        threads = [threading.Thread(target=lambda call=call: answers.append(node.call(*call))) for call in calls]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return answers
    sandbox = node.create(**NONE)
    path = f"/sandboxes/{sandbox}"
    puts = [("PUT", path + "/network", {"allowOut": [f"198.51.100.{number}"], "denyOut": ["0.0.0.0/0"]}) for number in range(20, 30)]
    answers = at_once(puts)
    assert [answer.status for answer in answers] == [204] * len(puts), answers
    generations = [int(answer.headers["x-penstock-generation"]) for answer in answers]
    assert sorted(generations) == list(range(2, 12)) and node.detail(sandbox)["penstock"]["generation"] == 11
    reached = node.detail(sandbox)["network"]["allowOut"][0].partition("/")[0]
    assert probe(node, sandbox, {str(number): tls(f"198.51.100.{number}") for number in range(20, 30)}) == {reached.split(".")[-1]}
    assert {answer.status for answer in at_once([("POST", path + "/pause", {})] * 3)} <= {204, 409}
    assert {answer.status for answer in at_once([("POST", path + "/connect", {})] * 3)} <= {200, 201}
    assert node.exec(sandbox, "echo runs").out == "runs\n"
    answers = at_once(puts[:4] + [("DELETE", path)] + puts[4:8])
    assert {answer.status for answer in answers} <= {204, 404, 500}, answers
    assert at_once([("DELETE", path)] * 2)[0].status == 404 and sandbox not in node.states()


# ---- lists ----

@root_only
def test_lists(node):
    # As the SDK escapes it: {"k": "v w", "é&=": "1"}
    first = [node.create(metadata={"k": "v w", "n": str(number)}, **NONE) for number in range(3)]
    odd = node.create(metadata={"k": "v w", "\u00e9&=": "a+b%"}, **NONE)
    node.good("POST", f"/sandboxes/{odd}/pause", {}, (204,))

    def escaped(pairs):
        once = [(urllib.parse.quote(key, safe=""), urllib.parse.quote(value, safe="")) for key, value in pairs.items()]
        return "metadata=" + urllib.parse.quote(urllib.parse.urlencode(once), safe="")

    def ids(query):
        return [sandbox["sandboxID"] for sandbox in node.listed(query)]
    assert escaped({"k": "v w"}) == "metadata=k%3Dv%252520w"
    assert ids(escaped({"k": "v w"})) == [odd, *reversed(first)]
    assert ids(escaped({"k": "v w"}) + "&state=running") == list(reversed(first))
    assert ids(escaped({"\u00e9&=": "a+b%", "k": "v w"})) == [odd] and ids(escaped({"k": "v"})) == []
    assert ids(escaped({"k": "v w"}) + "&order=asc") == first + [odd]
    assert ids(f"template={IMAGE}&state=paused") == [odd]
    pages, token, total = [], "", 0
    while True:
        answer = node.good("GET", f"/v2/sandboxes?limit=3&nextToken={token}&{escaped({'k': 'v w'})}", status=(200,))
        pages.append([sandbox["sandboxID"] for sandbox in answer.json])
        total = answer.headers["x-total-running"]
        token = answer.headers["x-next-token"]
        if not token:
            break
    assert pages == [[odd, first[2], first[1]], [first[0]]] and total == "3"
    old = [sandbox["sandboxID"] for sandbox in node.good("GET", "/sandboxes?" + escaped({"k": "v w"}), status=(200,)).json]
    assert old == list(reversed(first)), "the older list is of those that run"
    for query, text in (("limit=0", "limit"), ("limit=101", "limit"), ("state=dead", "state"), ("nextToken=x", "next token"), ("order=up", "order"),
                        ("metadata=k", "metadata")):
        answer = node.call("GET", "/v2/sandboxes?" + query)
        assert answer.status == 400 and text in answer.message, answer
    node.remove_all()


# ---- templates and snapshots ----

@root_only
def test_snapshots(node):
    sandbox = node.create(envVars={"FROM": "parent"}, **NONE)
    node.exec(sandbox, "echo one >/root/file; mkdir /data; rm -rf /home/alice")
    snapshot = node.good("POST", f"/sandboxes/{sandbox}/snapshots", {"name": "snap"}, (201,)).json
    assert snapshot["names"] == ["snap"], snapshot
    identity = snapshot["snapshotID"]
    node.exec(sandbox, "echo two >/root/file")
    assert [item["snapshotID"] for item in node.good("GET", f"/snapshots?sandboxID={sandbox}").json] == [identity]
    assert node.good("GET", "/snapshots/snap").json["snapshotID"] == identity
    for name in ("snap", identity):
        warm = node.create("/sandboxes", templateID=name, timeout=60, **NONE)
        output = node.exec(warm, "cat /root/file; ls -d /data /home/alice")
        assert output.out == "one\n/data\n" and "alice" in output.err, output
        node.remove(warm)
    node.good("POST", f"/sandboxes/{sandbox}/pause", {}, (204,))
    again = node.good("POST", f"/sandboxes/{sandbox}/snapshots", {"name": "snap"}, (201,)).json
    assert again["snapshotID"] == identity, "one of a name replaces the one before"
    node.good("DELETE", f"/sandboxes/{sandbox}")
    warm = node.create("/v2/sandboxes", templateID="snap", **NONE)  # it needs its sandbox no more
    assert node.exec(warm, "cat /root/file").out == "two\n"
    node.good("DELETE", "/templates/snap", status=(204,))
    assert node.call("GET", "/snapshots/snap").message == "snapshot snap not found"
    assert node.call("POST", "/sandboxes", {"templateID": "snap"}).message == "template snap not found"
    assert node.exec(warm, "cat /root/file").out == "two\n", "whoever was made of it has it on"
    node.good("DELETE", f"/sandboxes/{warm}")


@root_only
def test_templates(node):
    steps = [{"type": "ENV", "args": ["COLOUR", "blue"]}, {"type": "WORKDIR", "args": ["/srv/app"]},
             {"type": "RUN", "args": ["echo $COLOUR >colour; echo said; echo erred >&2"]},
             {"type": "RUN", "args": ["curl -sS https://both.example/zen >zen; curl -sS https://other.example/ || true"]},
             {"type": "USER", "args": ["alice"]}]
    base = node.template("base", fromImage=IMAGE, steps=steps, network={"allowOut": ["both.example"], "denyOut": ["0.0.0.0/0"]})
    sandbox = node.create("/sandboxes", templateID="base", **NONE)
    output = node.exec(sandbox, "pwd; cat colour; wc -c <zen; echo $COLOUR; id -un")
    assert output.out == "/srv/app\nblue\n27\nblue\nalice\n", output
    assert node.call("POST", "/sandboxes", {"templateID": "base", "network": {"allowOut": ["x.example"]}}).status == 400
    node.good("DELETE", f"/sandboxes/{sandbox}")
    top = node.template("top", fromTemplate="base", steps=[{"type": "USER", "args": ["root"]}, {"type": "RUN", "args": ["echo top >top"]}])
    sandbox = node.create("/sandboxes", templateID=top, **NONE)
    assert node.exec(sandbox, "cat /srv/app/colour top").out == "blue\ntop\n"
    node.good("DELETE", f"/sandboxes/{sandbox}")
    listed = {item["templateID"]: item for item in node.good("GET", "/templates").json}
    assert listed[base]["buildStatus"] == "ready" and listed[base]["spawnCount"] == 1 and listed[top]["names"] == ["top"], listed
    assert node.good("GET", "/templates/aliases/base").json["templateID"] == base
    assert len(node.good("GET", f"/templates/{base}").json["builds"]) == 1
    # What its build says, and that one that fails leaves the template as it was.
    made = node.good("POST", "/v3/templates", {"name": "base"}, (202,)).json
    assert made["templateID"] == base
    path = f"/templates/{base}/builds/{made['buildID']}"
    node.good("POST", "/v2" + path, {"fromTemplate": "base", "steps": [{"type": "USER", "args": ["root"]}, {"type": "RUN", "args": ["echo before; exit 7"]}]}, (202,))
    status = node.await_build(path)
    assert status["status"] == "error" and "status 7" in status["reason"]["message"], status
    assert "before" in status["logs"] and status["reason"]["step"].startswith("2"), status
    assert "before" not in node.good("GET", path + f"/status?logsOffset={len(status['logs'])}").json["logs"]
    assert node.call("POST", "/v2" + path, {"fromTemplate": "base"}).status == 400, "a build is started once"
    sandbox = node.create("/sandboxes", templateID="base", **NONE)
    node.good("DELETE", f"/sandboxes/{sandbox}")
    missing = node.good("POST", "/v3/templates", {"name": "missing"}, (202,)).json
    path = f"/templates/{missing['templateID']}/builds/{missing['buildID']}"
    node.good("POST", "/v2" + path, {"fromImage": "no-such"}, (202,))
    status = node.await_build(path)
    assert status["status"] == "error" and 'image "no-such"' in status["reason"]["message"] and "time=" not in status["reason"]["message"], status
    why = node.call("POST", "/sandboxes", {"templateID": "missing"}).message
    assert why.startswith(f"template missing: its build {missing['buildID']} failed (") and why.endswith("; build it again"), why
    for name in ("top", "base", "missing"):
        node.good("DELETE", "/templates/" + name, status=(204,))
    assert node.call("DELETE", "/templates/base").message == "template base not found"
    assert node.good("GET", "/templates").json == []
    until("layers that nobody needs are kept", lambda: node.layers() == [])


@root_only
def test_images_that_cannot_be_had(node):
    before = node.states()
    # A server that is no registry: what it says goes to nobody.
    with socket.create_server(("127.0.0.1", 0)) as server:
        def answer_all():
            while True:
                try:
                    other = server.accept()[0]
                except OSError:
                    return
                other.recv(4096)
                other.sendall(b"HTTP/1.1 500 SECRET\r\nContent-Length: 6\r\nConnection: close\r\n\r\nSECRET")
                other.close()
        threading.Thread(target=answer_all, daemon=True).start()
        answer = node.call("POST", "/sandboxes-cold", {"image": f"docker://127.0.0.1:{server.getsockname()[1]}/x/y"})
        assert answer.status == 400 and "SECRET" not in answer.message and "plain HTTP" in answer.message, answer
    for image, status, text in (
            ("missing", 400, f'image "missing": docker://{node.registry.name}/library/missing is not in its registry; check its name and tag'),
            (IMAGE + ":nope", 400, f"docker://{node.registry.name}/library/{IMAGE}:nope is not in its registry; check its name and tag"),
            ("127.0.0.1:1/x", 503, "docker://127.0.0.1:1/x is in a registry that cannot be reached"),
            ("nowhere.invalid/x", 503, "docker://nowhere.invalid/x is in a registry whose name does not resolve"),
            ("TOOL", 400, "is no name of an image"), ("a b", 400, 'image "a b"'), ("dir:/etc", 400, 'expected an image as "NAME:TAG"'), ("", 400, "image"), ("oci:/nowhere", 400, "use an image of a registry")):
        answer = node.call("POST", "/sandboxes-cold", {"image": image})
        assert answer.status == status and text in answer.message and "level=" not in answer.message, answer
    assert node.call("POST", "/sandboxes-cold", {}).message.startswith("image is missing")
    assert node.call("POST", "/sandboxes", {}).message.startswith("templateID is missing")
    assert node.call("POST", "/sandboxes", {"templateID": "nope"}).message == "template nope not found"
    for field, value in (("cpuCount", 0), ("memoryMB", 127), ("diskSizeMB", 1025), ("timeout", -1), ("metadata", {"a": 1}), ("envVars", []),
                         ("type", "process"), ("network", []), ("autoPause", "yes")):
        answer = node.call("POST", "/sandboxes-cold", {"image": IMAGE, field: value})
        assert answer.status == 400 and field in answer.message, answer
    assert node.states() == before


# ---- commands ----

@root_only
def test_exec(node):
    sandbox = node.create(envVars={"ONE": "1"}, **NONE)
    output = node.exec(sandbox, ["sh", "-c", "cat; echo $TWO $ONE; pwd; id -u; echo erred >&2; exit 3"], stdin="in\n", env={"TWO": "2"},
                       cwd="/tmp", user="alice")
    assert (output.out, output.err, output.exit) == ("in\n2 1\n/tmp\n1000\n", "erred\n", 3), output
    assert node.exec(sandbox, "kill -9 $$").lines[-1] == {"exit": 137, "signal": 9}
    lines = node.exec(sandbox, "printf '\\377\\000a'").lines
    assert base64.b64decode(lines[0]["stdout_base64"]) == b"\xff\0a", lines
    big = node.exec(sandbox, "i=0; while [ $i -lt 20000 ]; do echo 0123456789012345678901234567890123456789; i=$((i+1)); done")
    assert len(big.out) == 20000 * 41 and big.exit == 0
    missing = node.exec(sandbox, ["no-such-program"])
    assert missing.exit is None and "no-such-program" in missing.lines[-1]["error"], missing
    for body, text in (({}, "cmd is missing"), ({"cmd": []}, "cmd is missing"), ({"cmd": [1]}, "cmd"), ({"cmd": "x", "cwd": "y"}, "absolute"),
                       ({"cmd": "x", "env": {"a=b": "c"}}, "a=b")):
        answer = node.call("POST", f"/sandboxes/{sandbox}/exec", body)
        assert answer.status == 400 and text in answer.message, answer
    # Each piece as it comes; and a client that goes away takes its command with it, and nothing else.
    connection = node.connection()
    connection.request("POST", f"/sandboxes/{sandbox}/exec", json.dumps({"cmd": "echo first; sleep 1000 & echo $! >/root/pid; wait"}), {"X-API-Key": KEY})
    answer = connection.getresponse()
    assert json.loads(answer.readline()) == {"stdout": "first\n"}
    connection.close()
    end = time.monotonic() + 10
    while (left := node.exec(sandbox, "kill -0 $(cat /root/pid) 2>/dev/null && echo runs").out) and time.monotonic() < end:
        time.sleep(0.05)
    assert left == "", "the command of a client that has gone"
    assert node.exec(sandbox, "echo still").out == "still\n"
    many = [threading.Thread(target=node.exec, args=(sandbox, "sleep 0.2")) for _ in range(10)]
    started = time.monotonic()
    for thread in many:
        thread.start()
    for thread in many:
        thread.join()
    assert time.monotonic() - started < 20
    node.good("DELETE", f"/sandboxes/{sandbox}")


@root_only
def test_decisions_and_explain(node):
    sandbox = node.create(network={"allowOut": ["both.example"], "denyOut": ["0.0.0.0/0"]})
    follower = node.connection()
    follower.request("GET", f"/sandboxes/{sandbox}/decisions?follow=1&denied=1", headers={"X-API-Key": KEY})
    follow = follower.getresponse()
    node.exec(sandbox, "curl -s https://both.example/; curl -s https://other.example/; curl -ks https://198.51.100.21/")
    line = json.loads(follow.readline())
    assert line["verdict"] == "deny" and line["name"] == "other.example", line
    denied = node.decisions(sandbox, "?denied=1")
    assert denied and all(line["verdict"] == "deny" for line in denied), denied
    every = node.decisions(sandbox)
    allowed = [line for line in every if line.get("verdict") == "allow" and line.get("name") == "both.example"]
    assert len(every) > len(denied) and allowed and {line["sandbox"] for line in every} == {sandbox}, every
    assert node.explain(sandbox, "https://both.example/").json["verdict"] == "allow"
    explained = node.explain(sandbox, "https://other.example/").json
    assert (explained["verdict"], explained["reason"], explained["hint"]) == ("deny", "base_denied", "--allow other.example"), explained
    assert node.explain(sandbox, "https://10.9.9.9/").json["reason"] == "node_denied"
    for url in ("", "nonsense://x", "https://"):
        answer = node.explain(sandbox, url)
        assert answer.status == 400 and answer.message, (url, answer)
    node.good("DELETE", f"/sandboxes/{sandbox}")
    for text in iter(follow.readline, b""):
        assert json.loads(text)["verdict"] == "deny"  # and the end, since the sandbox has ended
    follower.close()
    for path in ("decisions", "explain?url=https://x.example/"):
        answer = node.call("GET", f"/sandboxes/{sandbox}/{path}")
        assert (answer.status, answer.message) == (404, f"sandbox {sandbox} not found"), answer


# ---- HTTP ----

def raw(node, data):
    """What the node says to these bytes until it closes or waits."""
    with socket.create_connection(("127.0.0.1", node.port), timeout=5) as sock:
        try:
            sock.sendall(data)
        except ConnectionError:
            pass  # it has answered before all was sent
        answer = b""
        try:
            while data := sock.recv(65536):
                answer += data
        except (TimeoutError, ConnectionError):
            pass
        return answer


@root_only
def test_http(node):
    assert node.call("GET", "/health", headers={"X-API-Key": "wrong"}).status == 204
    assert "penstock_sandboxes" in node.call("GET", "/metrics", headers={"X-API-Key": "wrong"}).text
    for headers in ({"X-API-Key": "wrong"}, {"X-API-Key": ""}, {"X-API-Key": KEY + "x"}, {"X-API-Key": KEY[:-1]}):
        answer = node.call("GET", "/v2/sandboxes", headers=headers)
        assert answer.status == 401 and answer.message, answer
    head = b"Host: x\r\nConnection: close\r\n"
    key = b"X-API-Key: " + KEY.encode() + b"\r\n"
    assert raw(node, b"GET /v2/sandboxes HTTP/1.1\r\n" + head + b"\r\n").startswith(b"HTTP/1.1 401 ")
    assert raw(node, b"GET /v2/sandboxes HTTP/1.1\r\n" + head + key + key + b"\r\n").startswith(b"HTTP/1.1 401 ")
    assert raw(node, b"GET /v2/sandboxes HTTP/1.1\r\n" + head + b"Authorization: Bearer " + KEY.encode() + b"\r\n\r\n").startswith(b"HTTP/1.1 401 ")
    for method, path, status, text in (("GET", "/nope", 404, "route not found: GET /nope"), ("POST", "/sandboxes/x/y", 404, "route not found"),
                                       ("PATCH", "/sandboxes", 405, "PATCH /sandboxes"), ("GET", "/sandboxes/..%2fx", 404, "not found")):
        answer = node.call(method, path, {} if method != "GET" else None)
        assert answer.status == status and text in answer.message, answer
    for body in ("{", "[]", '"x"', "{} {}", '{"timeout":1,"timeout":2}', "\xff", ""):
        answer = node.call("POST", "/sandboxes", body.encode("latin-1"))
        assert answer.status == 400 and answer.message, (body, answer)
    # Chunks, as the SDK sends them; several requests on a connection, and one after a refusal.
    connection = node.connection()
    for number in range(3):
        connection.request("POST", "/sandboxes", iter([b'{"templ', b'ateID":', b'"nope"}']), {"X-API-Key": KEY, "Content-Type": "application/json"},
                           encode_chunked=True)
        answer = connection.getresponse()
        assert answer.status == 400 and json.loads(answer.read())["message"] == "template nope not found", number
        assert node.call("GET", "/v2/sandboxes", connection=connection).status == 200
        assert node.call("GET", "/v2/sandboxes", headers={"X-API-Key": "no"}, connection=connection).status == 401
    connection.close()
    # Larger than it may be: said by its length, and in chunks.
    big = b"x" * (2 << 20 | 1)
    answer = raw(node, b"POST /sandboxes HTTP/1.1\r\n" + head + key + b"Content-Length: %d\r\n\r\n" % len(big) + big)
    assert answer.startswith(b"HTTP/1.1 413 ") and b'"code":413' in answer, answer[:300]
    chunk = b"10000\r\n" + b"x" * 65536 + b"\r\n"
    answer = raw(node, b"POST /sandboxes HTTP/1.1\r\n" + head + key + b"Transfer-Encoding: chunked\r\n\r\n" + chunk * 40)
    assert answer.startswith(b"HTTP/1.1 413 ") and b'"code":413' in answer, answer[:300]
    answer = raw(node, b"GET /v2/sandboxes HTTP/1.1\r\n" + head + key + b"X: " + b"y" * 100000 + b"\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 431 "), answer[:300]
    assert raw(node, b"\x16\x03\x01\x00\x05hello\r\n\r\n").startswith(b"HTTP/1.1 400 ")
    both = b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n"
    assert raw(node, b"POST /sandboxes HTTP/1.1\r\n" + head + key + both + b"\r\n0\r\n\r\n").startswith(b"HTTP/1.1 400 ")
    audit = node.good("GET", "/audit?limit=5").json
    assert len(audit) <= 5


# ---- when the disk is full ----

@root_only
def test_states_that_cannot_be_stored(node):
    """The daemon's files cannot grow: a pause is undone; after a restart the sandbox runs on, and is stored when that works."""
    def limit(size):
        subprocess.run(["prlimit", f"--fsize={size}:unlimited", "--pid", str(node.daemon.pid)], check=True)

    def killed_and_back(*wrap):
        node.daemon.kill()
        node.daemon.wait()
        node.serve(wrap=wrap)

    killed_and_back("env", "--ignore-signal=XFSZ")
    sandbox = node.create(timeout=600, **NONE)
    other = node.create(timeout=2, autoPause=True, **NONE)
    size = os.path.getsize(node.errors) + 3000  # what it says fits, a page of the store does not
    limit(size)
    failed = node.call("POST", f"/sandboxes/{sandbox}/pause")
    assert failed.status == 500 and "could not be stored and was undone" in failed.message, failed
    assert node.states()[sandbox] == "running" and node.exec(sandbox, "echo here").out == "here\n"
    node.call("POST", f"/sandboxes/{other}/exec", {"cmd": ["touch", "/root/kept"]})
    until("its time is not over", lambda: f"{other}: it cannot be paused (its state could not be stored)" in node.said())
    assert node.states()[other] == "running" and node.exec(other, "ls /root").out == "kept\n"
    limit("unlimited")
    node.remove(other)
    node.good("POST", f"/sandboxes/{sandbox}/pause")
    limit(size)
    assert node.call("POST", f"/sandboxes/{sandbox}/connect", {"timeout": 600}).status == 500  # it runs, and its row says paused
    killed_and_back("env", "--ignore-signal=XFSZ", "prlimit", f"--fsize={size}:unlimited")
    assert f"{sandbox}: it runs on, but its state cannot be stored" in node.said()
    limit("unlimited")
    node.good("POST", f"/sandboxes/{sandbox}/connect", {"timeout": 600})  # which stores it first
    assert f"{sandbox}: its state is stored now" in node.said()
    assert node.states()[sandbox] == "running" and node.exec(sandbox, "echo here").out == "here\n"
    shim = next(pid for pid in os.listdir("/proc") if pid.isdigit() and sandbox in cmdline(pid) and "@shim" in cmdline(pid))
    os.kill(int(shim), 9)
    until("it is there still", lambda: sandbox not in node.states())
    assert f"{sandbox}: it ended by itself: its shim was ended from outside" in node.said()
    killed_and_back()  # its spare shim has the limit
    other = node.create(**NONE)
    node.call("POST", f"/sandboxes/{other}/exec", {"cmd": ["kill", "-TERM", "1"]})
    until("it is there still", lambda: other not in node.states())
    assert re.search(f"{other}: it ended by itself: its first process (exited with|was ended by)", node.said()), node.said()


def cmdline(pid):
    try:
        with open(f"/proc/{pid}/cmdline", encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
