# SPDX-License-Identifier: Apache-2.0
"""The commands that speak to a node, as their user sees them, and the calls that --print-api shows."""
import json
import re
import signal
import subprocess

from node import IDS, IMAGE, PATIENCE, node, root_only  # noqa: F401 (a fixture)

TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"
READ = "--cacert /etc/ssl/certs/ca-certificates.crt -sS -o /dev/null https://"


def good(node, *arguments, code=0):
    done = node.run(*arguments)
    assert done.returncode == code and not done.stderr, (arguments, done)
    return done.stdout


def bad(node, *arguments, code, text):
    done = node.run(*arguments)
    assert done.returncode == code and not done.stdout and len(done.stderr.splitlines()) == 1, (arguments, done)
    assert done.stderr.startswith("penstock: ") and text in done.stderr, (arguments, done)


def create(node, *arguments):
    made = good(node, "create", *arguments).strip()
    assert IDS.fullmatch(made), made
    return made


@root_only
def test_a_sandbox_from_creation_to_removal(node):
    assert good(node, "ps").split() == ["SANDBOX", "STATE", "TEMPLATE", "STARTED", "ENDS"]
    sandbox = create(node, "--allow", "both.example", "--env", "A=b c", "--metadata", "of=me", IMAGE)
    closed = create(node, IMAGE)  # nothing is allowed until it is
    assert good(node, "explain", closed, "https://both.example/", code=1).startswith("deny: ")
    good(node, "rm", closed)
    ending = create(node, "--timeout", "600", "--network", "none", "--memory", "256", "--cpus", "2", "--image", IMAGE)
    lines = {line.split()[0]: line for line in good(node, "ps").splitlines()[1:]}
    assert re.fullmatch(rf"{sandbox} +running +{IMAGE} +{TIME} +never", lines[sandbox]), lines
    assert re.fullmatch(rf"{ending} +running +{IMAGE} +{TIME} +{TIME}", lines[ending]), lines
    node.good("POST", f"/sandboxes/{ending}/pause")
    assert re.search(rf"{ending} +paused .* never$", good(node, "ps"), re.M), "a paused one has no end"
    listed = {item["sandboxID"]: item for item in json.loads(good(node, "ps", "--json"))}
    assert listed[sandbox]["metadata"] == {"of": "me"} and listed[ending]["memoryMB"] == 256 and listed[ending]["cpuCount"] == 2
    # exec: both outputs, the status, the options.
    done = node.run("exec", "--env", "C=d", "--cwd", "/tmp", "--user", "alice", sandbox, "--", "sh", "-c",
                    "echo $A $C; pwd; id -un; echo erred >&2; exit 5")
    assert (done.returncode, done.stdout, done.stderr) == (5, "b c d\n/tmp\nalice\n", "erred\n"), done
    assert subprocess.run([node.program, "exec", sandbox, "--", "printf", "\\377\\000"], env=node.environment(), capture_output=True,
                          check=False, timeout=PATIENCE).returncode == 125  # no printf but the shell's
    raw = subprocess.run([node.program, "exec", sandbox, "--", "sh", "-c", "printf '\\377\\000'"], env=node.environment(),
                         capture_output=True, check=True, timeout=PATIENCE).stdout
    assert raw == b"\xff\0"
    raw = subprocess.run([node.program, "exec", sandbox, "--", "sh", "-c", "printf 'a\\000b'; printf '\\000' >&2"], env=node.environment(),
                         capture_output=True, check=True)
    assert (raw.stdout, raw.stderr) == (b"a\0b", b"\0")  # text that JSON can hold
    assert node.run("exec", sandbox, "--", "sh", "-c", "kill -9 $$").returncode == 137
    # Standard input: only if asked for, whole, and no more than the API takes.
    def exec_input(data, *options):
        return subprocess.run([node.program, "exec", *options, sandbox, "--", "sh", "-c", "cat"], env=node.environment(), input=data,
                              capture_output=True, check=False, timeout=PATIENCE)
    assert exec_input(b"unread").stdout == b""
    for data in ("hé\n".encode(), b"", b"x" * (1 << 20)):
        done = exec_input(data, "-i")
        assert (done.returncode, done.stderr) == (0, b"") and done.stdout == data, (len(data), done.stderr, len(done.stdout))
    for data, says in ((b"x" * ((1 << 20) + 1), b"more than 1 MiB"), (b"\xff", b"not text"), (b"a\0b", b"not text"),
                       (b"\1" * (1 << 20), b"more than 2 MiB")):
        done = exec_input(data, "--stdin")
        assert done.returncode == 2 and says in done.stderr and done.stderr.count(b"\n") == 1, (says, done.stderr)
    # explain, update, and that it holds.
    assert good(node, "explain", sandbox, "https://both.example/").startswith("allow: ")
    denied = good(node, "explain", sandbox, "https://other.example/", code=1)
    assert denied.startswith("deny: base_denied") and "to allow it: --allow other.example\n" in denied, denied
    assert json.loads(good(node, "explain", "--json", sandbox, "https://other.example/", code=1))["hint"] == "--allow other.example"
    for name, code in (("both.example", 0), ("other.example", 6)):
        assert node.run("exec", sandbox, "--", "sh", "-c", f"curl {READ}{name}/").returncode == code, name
    assert good(node, "update", "--allow", "other.example", sandbox) == "policy 2 is in force; 0 flows closed, 0 kept\n"
    for name, code in (("both.example", 6), ("other.example", 0)):
        assert node.run("exec", sandbox, "--", "sh", "-c", f"curl {READ}{name}/").returncode == code, name
    # log: all, what was denied, and what comes.
    lines = [json.loads(line) for line in good(node, "log", sandbox).splitlines()]
    assert {line["name"] for line in lines if line.get("verdict") == "allow"} >= {"both.example", "other.example"}
    denied = [json.loads(line) for line in good(node, "log", "--denied", sandbox).splitlines()]
    assert denied and {line["verdict"] for line in denied} == {"deny"} and len(denied) < len(lines)
    with subprocess.Popen([node.program, "log", "--follow", "--denied", sandbox], env=node.environment(), stdout=subprocess.PIPE,
                          text=True) as follow:
        for _ in denied:
            follow.stdout.readline()
        node.run("exec", sandbox, "--", "nc.openbsd", "-w", "5", "198.51.100.21", "2525")
        line = json.loads(follow.stdout.readline())
        assert (line["verdict"], line["address"], line["port"]) == ("deny", "198.51.100.21", 2525), line
        assert good(node, "rm", sandbox) == ""
        assert follow.wait(PATIENCE) == 0, "a log ends with its sandbox"
    assert good(node, "rm", "--all") == "" and len(good(node, "ps").splitlines()) == 1


@root_only
def test_an_update_keeps_or_closes(node):
    sandbox = create(node, "--allow-cidr", "198.51.100.20/32", IMAGE)
    node.exec(sandbox, "(nc.openbsd 198.51.100.20 6000; echo closed >/root/closed) </dev/zero >/dev/null 2>&1 & sleep 0.5")
    assert good(node, "update", "--existing", "keep", "--network", "none", sandbox) == "policy 2 is in force; 0 flows closed, 1 kept\n"
    assert node.exec(sandbox, "cat /root/closed").exit == 1
    assert good(node, "update", "--network", "none", sandbox) == "policy 3 is in force; 1 flows closed, 0 kept\n"
    assert node.exec(sandbox, "for i in 1 2 3 4 5 6 7 8 9; do sleep 0.2; test -e /root/closed && break; done; cat /root/closed").out == "closed\n"
    policy = "version: 1\nbase: deny\nallow:\n  - host: both.example\n"
    done = subprocess.run([node.program, "update", "--policy", "-", sandbox], env=node.environment(), capture_output=True, text=True,
                          input=policy, check=False, timeout=PATIENCE)
    assert done.returncode == 0 and done.stdout.startswith("policy 4 is in force"), done
    assert good(node, "explain", sandbox, "https://both.example/").startswith("allow")
    bad(node, "update", "--allow", "not a host", sandbox, code=1, text="not a host")
    assert good(node, "explain", sandbox, "https://both.example/").startswith("allow")
    good(node, "rm", sandbox)


@root_only
def test_options_of_type_mistral(node):
    """They make a policy of the one dialect of that type, whose checks are the node's."""
    ranged = create(node, "--type", "mistral", "--allow-cidr", "203.0.113.9", "--memory", "1g", IMAGE)
    assert node.good("GET", f"/sandboxes/{ranged}").json["memoryMB"] == 1024
    assert good(node, "explain", ranged, "tcp://203.0.113.9:23").startswith("allow: ")
    assert good(node, "explain", ranged, "tcp://198.51.100.20:23", code=1).startswith("deny: ")
    good(node, "update", "--type", "mistral", "--network", "all", ranged)
    assert good(node, "explain", ranged, "tcp://198.51.100.20:23").startswith("allow: ")
    good(node, "update", "--type", "mistral", "--network", "none", ranged)
    assert good(node, "explain", ranged, "tcp://203.0.113.9:23", code=1).startswith("deny: ")
    bad(node, "create", "--type", "mistral", "--allow", "a.example", IMAGE, code=1, text="does not support Network.allow()")
    good(node, "rm", ranged)


@root_only
def test_templates_and_snapshots(node):
    sandbox = create(node, "--network", "none", IMAGE)
    node.exec(sandbox, "echo kept >/root/file")
    snapshot = good(node, "snapshot", "--name", "snap", sandbox).strip()
    assert good(node, "snapshot", "ls") == f"{snapshot:<22} snap\n"
    template = good(node, "template", "create", "--name", "made", IMAGE).strip()
    assert good(node, "template", "ls") == f"{template:<22} made\n"
    warm = create(node, "--template", "snap", "--network", "none")
    assert good(node, "exec", warm, "--", "cat", "/root/file") == "kept\n"
    assert re.search(rf"^{warm} +running +snap ", good(node, "ps"), re.M)
    other = create(node, "--template", template, "--network", "none")
    assert good(node, "rm", sandbox, warm, other) == ""
    assert good(node, "snapshot", "rm", "snap") == good(node, "template", "rm", "made") == ""
    assert good(node, "snapshot", "ls") == good(node, "template", "ls") == ""
    done = node.run("template", "create", "--name", "bad", "no-such-image")
    assert done.returncode == 1 and 'the build failed: image "no-such-image"' in done.stderr.splitlines()[-1], done
    good(node, "template", "rm", "bad")


@root_only
def test_what_print_api_shows_is_the_same_call(node):
    """Nothing is done by it, and the curl that it shows does it."""
    def curl(*arguments):
        text = good(node, *arguments, "--print-api") if "--" not in arguments else good(node, arguments[0], "--print-api", *arguments[1:])
        assert text.startswith("curl ") and "test-key" not in text, text
        return [subprocess.run(["bash", "-c", line + " -sS -w '\\n%{http_code}'"], env=node.environment(), capture_output=True, text=True,
                               timeout=PATIENCE, check=True).stdout.rpartition("\n") for line in text.splitlines()]
    before = node.states()
    (body, _, status), = curl("create", "--allow", "both.example", "--env", "A=it's", IMAGE)
    sandbox = json.loads(body)["sandboxID"]
    node.seen.add(sandbox)
    assert status == "201" and node.states() == {**before, sandbox: "running"}, "or --print-api has made one itself"
    (body, _, status), = curl("ps")
    assert status == "200" and sandbox in body
    (body, _, status), = curl("exec", sandbox, "--", "sh", "-c", "echo \"$A\" '$A'")
    assert status == "200" and json.loads(body.splitlines()[0]) == {"stdout": "it's $A\n"}, body
    (body, _, status), = curl("explain", sandbox, "https://both.example/?a=b&c")
    assert status == "200" and json.loads(body)["verdict"] == "allow"
    assert curl("update", "--network", "none", sandbox)[0][2] == "204"
    (body, _, status), = curl("explain", sandbox, "https://both.example/")
    assert json.loads(body)["verdict"] == "deny"
    assert curl("log", "--denied", sandbox)[0][2] == "200"
    (body, _, status), = curl("snapshot", "--name", "printed", sandbox)
    assert status == "201" and json.loads(body)["names"] == ["printed"]
    assert curl("snapshot", "ls")[0][2] == "200" and curl("snapshot", "rm", "printed")[0][2] == "204"
    text = good(node, "template", "create", "--print-api", "--name", "x", IMAGE).splitlines()
    assert len(text) == 2 and "/v3/templates'" in text[0] and "/v2/templates/TEMPLATE/builds/BUILD'" in text[1], text
    assert curl("rm", sandbox)[0][2] == "204" and node.states() == before


@root_only
def test_mistakes(node):
    sandbox = create(node, "--network", "none", IMAGE)
    gone = "i" + "0" * 20
    for arguments, code, text in (
            (["exec", gone, "--", "true"], 125, f"sandbox {gone} not found"), (["rm", gone], 1, f"sandbox {gone} not found"),
            (["log", gone], 1, "not found"), (["explain", gone, "https://x.example/"], 2, "not found"),
            (["update", "--network", "all", gone], 1, "not found"), (["snapshot", gone], 1, "not found"),
            (["exec", sandbox, "--", "no-such"], 125, '"no-such"'), (["exec", sandbox], 2, "write it behind --"),
            (["exec", sandbox, "ls", "/"], 2, "write it behind --"), (["exec"], 2, "the sandbox's id"),
            (["create"], 2, "name either an image or --template"), (["create", "--template", "nope"], 1, "template nope not found"),
            (["create", "--template", "nope", IMAGE], 2, IMAGE), (["create", "missing"], 1, 'image "missing"'),
            (["create", "--timeout", "soon", IMAGE], 2, '--timeout "soon"'), (["create", "--network", "some", IMAGE], 2, '--network "some"'),
            (["create", "--env", "X", IMAGE], 2, "NAME=VALUE"), (["create", "--colour", IMAGE], 2, '"--colour"'),
            (["update", sandbox], 2, "no policy"), (["update", "--existing", "close", "--network", "none", sandbox], 2, "write keep"),
            (["update", "--policy", "/nowhere", sandbox], 1, "/nowhere"), (["explain", sandbox], 2, "a URL"),
            (["explain", sandbox, "nonsense://x"], 2, "nonsense"), (["rm"], 2, "the sandbox's id"), (["rm", "--all", sandbox], 2, sandbox),
            (["create", IMAGE, "--", "ls"], 2, '"ls" behind --'), (["create", "--memory", "1x", IMAGE], 2, '--memory "1x": expected MiB'),
            (["create", "--cpus", "1.5", IMAGE], 2, "expected a whole one"), (["create", "--bind", "github", IMAGE], 2, '"--bind"'),
            (["create", "--type", "mistral", "--deny-cidr", "192.0.2.0/24", IMAGE], 2, "--deny-cidr"),
            (["create", "--type", "mistral", "--network", "all", "--allow", "a.example", IMAGE], 2, "one of them"),
            (["template", "create", IMAGE], 2, "--name NAME"), (["template", "rm", "nope"], 1, "template nope not found"),
            (["template"], 2, "create, ls or rm"), (["snapshot", "rm", "nope"], 1, "not found"), (["ps", "x"], 2, '"x"')):
        bad(node, *arguments, code=code, text=text)
    environment = node.environment()
    for change, text in (({"PENSTOCK_API_KEY": "wrong"}, "PENSTOCK_API_KEY"), ({"PENSTOCK_API_URL": "http://127.0.0.1:1"}, "is `penstock serve` running"),
                         ({"PENSTOCK_API_URL": "https://x"}, "expected http://"), ({"PENSTOCK_API_URL": "127.0.0.1:8000"}, "expected http://")):
        done = subprocess.run([node.program, "ps"], env={**environment, **change}, capture_output=True, text=True, timeout=PATIENCE, check=False)
        assert done.returncode in (1, 2) and text in done.stderr and len(done.stderr.splitlines()) == 1, (change, done)
    good(node, "rm", sandbox)


@root_only
def test_the_daemon_says_once_where_it_listens(node):
    assert [line for line in node.said().splitlines() if "listening" in line] == [f"penstock: listening on 127.0.0.1:{node.port}"]
    # A client that is interrupted ends at once, and the node does not mind.
    sandbox = create(node, "--network", "none", IMAGE)
    with subprocess.Popen([node.program, "exec", sandbox, "--", "sh", "-c", "echo on; sleep 1000"], env=node.environment(),
                          stdout=subprocess.PIPE, text=True) as client:
        assert client.stdout.readline() == "on\n"
        client.send_signal(signal.SIGINT)
        assert client.wait(PATIENCE) == -signal.SIGINT
    good(node, "rm", sandbox)
