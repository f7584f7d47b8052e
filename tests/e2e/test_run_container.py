# SPDX-License-Identifier: Apache-2.0
"""`penstock run` with an image, without a daemon: the types container and mistral hold to their rows of the table of types, and
the command is as one of the caller's own. Root's, but for what an ordinary user is told."""
import fcntl
import json
import os
import pty
import select
import shutil
import signal
import struct
import subprocess
import tempfile
import termios
import time

import pytest

import engine
import lab as lab_module
from conftest import Box, assert_nothing_left, leftovers
from guest import got, since
from node import CONFIG, image_members, registry_of, root_only

TOKEN = "labtok_container_5ecret"
HOME4, OTHER4, V4 = "198.51.100.20", "198.51.100.24", "198.51.100.21"


class Runner:
    def __init__(self, lab):
        self.lab, self.box = lab, Box(lab, "root")
        self.folder = tempfile.mkdtemp(prefix="penstock-run-", dir="/var/tmp")
        self.state = os.path.join(self.folder, "state")
        source = os.path.join(self.folder, "tool")
        engine.write_image(source, [engine.layer(image_members(lab))],
                           {"Entrypoint": ["/bin/sh", "-c"], "Cmd": ["id -u; pwd; echo $LAYER"], "User": "alice", "WorkingDir": "/data",
                            "Env": ["PATH=/usr/bin:/bin", "LAYER=base"]})
        self.image = "oci:" + source
        self.options = ["--image", self.image, "--upstream-ca", lab.ca]

    def env(self, env=()):
        return {"PENSTOCK_STATE_FOLDER": self.state, **dict(env)}

    def arguments(self, policy, command, kind="container"):
        """As root inside, unless the image's own command is run or the options say who."""
        if isinstance(policy, dict):
            policy = ["--policy", self.box.policy_file(policy)]
        user = [] if "--user" in policy or not command else ["--user", "0"]
        return ["run", "--type", kind, *self.options, *user, *policy, *(["--", *command] if command else [])]

    def __call__(self, policy, *command, kind="container", env=(), **options):
        """A command, or a text for the image's shell. With its decision log."""
        if len(command) == 1 and " " in command[0]:
            command = ["/bin/sh", "-c", command[0]]
        Box.counter += 1
        log = os.path.join(self.folder, f"log-{Box.counter}")
        arguments = self.arguments(policy, command, kind)
        result = self.box.raw(arguments[0], "--log", log, *arguments[1:], env=self.env(env), **options)
        if os.path.exists(log):
            result.log = lab_module.json_lines(log)
        return result

    def start(self, policy, *command, **options):
        return self.box.popen(self.arguments(policy, command), env=self.env(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)

    def left(self):
        return os.listdir(os.path.join(self.state, "run")) + [path for path in engine.cgroups() if os.path.basename(path).startswith("run-")]


@pytest.fixture(scope="module")
def run(lab):
    registry_of(lab)
    lab.service("bound")
    before = leftovers()
    made = Runner(lab)
    yield made
    left = made.left()
    shutil.rmtree(made.folder)
    assert not left, left
    assert_nothing_left(before)


def reaches(probes):
    """A script that tells the names of those commands that end with 0."""
    return "".join(f"({command}) >/dev/null 2>&1 && echo '{name}' &\n" for name, command in probes.items()) + "wait\n"


def curl(url, *options):
    return f"curl -ksS -o /dev/null --max-time 10 {' '.join(options)} {url}"


def ask(name):
    return f"dig +short +tries=1 +time=3 {name} | grep ."


PROBES = {"listed": curl("https://v4.example/"), "below": curl("https://a.hosts.example/"), "unlisted": curl("https://other.example/"),
          "plain": curl("http://v4.example/", "-f"), "home": curl(f"https://{HOME4}/"), "home 8443": curl(f"https://{HOME4}:8443/"),
          "other": curl(f"https://{OTHER4}/"), "v6": curl("'https://[2001:db8:100::20]/'"), "private": curl("https://private.example/"),
          "host": curl("https://127.0.0.1:8000/"), "name": ask("v4.example"), "other name": ask("other.example")}


# ---- the rows of the table ----

@root_only
def test_container_names_and_ranges(run):
    """One policy of each kind of entry, and what is not in it."""
    policy = {"version": 1, "allow": [{"host": "v4.example"}, {"host": "*.hosts.example"}, {"cidr": HOME4 + "/32", "ports": [443]},
                                      {"host": "private.example"}]}
    asked = len(run.lab.dns_queries("other.example"))
    result = run(policy, reaches(PROBES))
    assert result.code == 0 and set(result.out.splitlines()) == {"listed", "below", "home", "name"}, result
    assert len(run.lab.dns_queries("other.example")) == asked, "a name that is not listed was asked for"
    assert {"dns_name_denied", "not_https", "private_address", "allowed_name", "allowed_cidr", "no_name"} <= set(result.reasons()), result
    assert all(line["sandbox"].startswith("run-") for line in result.log), result.log
    assert "to allow, in " in result.err and "other.example" in result.err, result


@root_only
@pytest.mark.parametrize("kind", ["container", "mistral"])
@pytest.mark.parametrize("network,wanted", [("none", set()), ("all", {"listed", "below", "unlisted", "plain", "home", "home 8443", "other", "v6",
                                                                      "name", "other name"})])
def test_none_and_all(run, kind, network, wanted):
    result = run(["--network", network], reaches(PROBES), kind=kind)
    assert result.code == 0 and set(result.out.splitlines()) == wanted, result


@root_only
def test_network_allow(run):
    result = run({"type": "container", "network": {"allow": {"hosts": ["v4.example"]}}}, reaches(PROBES))
    assert result.code == 0 and set(result.out.splitlines()) == {"listed", "name"}, result


@root_only
def test_mistral_is_an_address_filter(run):
    """EgressPolicy on top of none: ranges of both families, every port, and no name of them."""
    policy = {"type": "mistral", "egress": {"allow_cidrs": [HOME4, "2001:db8:100::/64"]}}
    result = run(policy, reaches(PROBES), kind="mistral")
    assert result.code == 0 and set(result.out.splitlines()) == {"home", "home 8443", "v6"}, result


NOT_MISTRAL = [
    (["--allow", "v4.example"], "MistralSandbox does not support Network.allow(); pass network=Network.none() or network=Network.all()"),
    ({"type": "mistral", "network": {"allow": {"hosts": ["v4.example"]}}},
     "MistralSandbox does not support Network.allow(); pass network=Network.none() or network=Network.all()"),
    ({"version": 1, "allow": [{"cidr": HOME4 + "/32", "ports": [443]}]}, "MistralSandbox does not support native policies; pass network"),
    ({"type": "mistral", "network": "none", "header_bindings": [{"github": {}}]},
     "MistralSandbox: agents.GitHubBinding needs network access to github.com, api.github.com, which Network.none() blocks; "
     "pass network=Network.all()"),
    ({"type": "mistral", "egress": {"allow_cidrs": ["0.0.0.0/0"]}}, "Network.all()"),
    ({"type": "mistral", "network": "all", "egress": {"allow_cidrs": [HOME4]}}, "egress"),
    ({"type": "mistral", "network": "all", "header_bindings": [{"header": {"host": "v4.example", "name": "X", "secret": "env:NONE"}}]},
     "MistralSandbox does not support agents.HeaderBinding; pass header_bindings=()"),
]


@root_only
@pytest.mark.parametrize("policy,message", NOT_MISTRAL, ids=range(len(NOT_MISTRAL)))
def test_what_mistral_cannot_enforce_is_refused(run, policy, message):
    result = run(policy, "echo it ran", kind="mistral")
    assert result.code == 125 and message in result.err and result.err.count("\n") == 1 and not result.out, result


def test_the_table(box):
    """As the contract has it; built but for the two whose engines are others'."""
    rows = {row["type"]: row for row in json.loads(box.raw("types", "--json").out)}
    assert rows["container"] == {"type": "container", "name": "ContainerSandbox", "network": ["none", "all", "allow", "native"],
                                 "cidr": True, "credentials": ["github", "mistral_api", "workspace", "header"]}
    assert rows["mistral"] == {"type": "mistral", "name": "MistralSandbox", "network": ["none", "all"], "cidr": True,
                               "credentials": ["github", "mistral_api", "workspace"]}
    unbuilt = {line.split()[0] for line in box.raw("types").out.splitlines() if "not built yet" in line}
    assert unbuilt == {"docker", "custom"}, unbuilt


# ---- credentials ----

@root_only
def test_credentials_and_trust(run):
    """Programs of the image trust the gate's CA; the value is nowhere inside, not even by its variable."""
    policy = {"version": 1, "allow": [{"host": "keys.example"}, {"host": "elsewhere.example"}], "credentials": [
        {"host": "keys.example", "header": "Authorization", "value": "Bearer {secret}", "secret": "env:TOKEN", "variable": "TOKEN"}]}
    script = ("curl -sS -o /dev/null https://keys.example/headers && curl -sS -o /dev/null https://elsewhere.example/headers && "
              "echo \"variable $TOKEN\"; env; cat /proc/*/environ; grep -rs labtok_ /run /etc /tmp; true")
    result, seen = since(run.box, lambda: run([*policy_options(run, policy), "--env", "TOKEN", "--env", "OTHER"], script,
                                              env={"TOKEN": TOKEN, "OTHER": "given"}), event="request")
    assert result.code == 0 and got(seen) == [["Bearer " + TOKEN], []], (result, seen)
    assert TOKEN not in result.out + result.err + str(result.log) and "OTHER=given" in result.out, result
    assert "variable " in result.out and "variable \n" not in result.out, result


def policy_options(run, policy):
    return ["--policy", run.box.policy_file(policy)]


@root_only
def test_mistral_has_its_three_bindings(run):
    workspace = run.box.file("run-workspace.yaml", "credentials:\n  workspace:\n"
                             "    - {host: keys.example, header: X-Team, secret: 'cmd:echo labtok_team'}\n")
    policy = {"type": "mistral", "network": "all", "header_bindings": [{"github": {"repos": ["octo/hello"]}}, {"mistral_api": {}}, {"workspace": {}}]}
    script = ("curl -sS -o /dev/null https://api.github.com/repos/octo/hello && curl -sS -o /dev/null https://api.github.com/user; "
              "curl -sS -o /dev/null https://api.mistral.ai/v1/models && curl -sS -o /dev/null https://keys.example/headers")
    result, seen = since(run.box, lambda: run([*policy_options(run, policy), "--node-config", workspace], script, kind="mistral",
                                              env={"GITHUB_TOKEN": TOKEN, "MISTRAL_API_KEY": "labtok_model"}))
    sent = [(entry.get("host"), entry.get("path"), dict(entry.get("headers", {})).get("authorization", entry.get("authorization")))
            for entry in seen if entry.get("event") in (None, "request")]
    assert result.code == 0 and str(seen).count("Bearer " + TOKEN) == 1, (result, sent)
    assert str(seen).count("Bearer labtok_model") == 1 and str(seen).count("labtok_team") == 1, (result, sent)
    assert TOKEN not in result.out + result.err, result


# ---- the command ----

@root_only
def test_the_images_own_command(run):
    """With what it says of user, folder and variables; and instead of them."""
    result = run([])
    assert result.code == 0 and result.out == "1000\n/data\nbase\n", result
    result = run(["--user", "0", "--workdir", "/tmp", "--env", "LAYER=mine", "--env", "NOT_THERE"], "id -u; pwd; env")
    lines = result.out.splitlines()
    assert result.code == 0 and lines[:2] == ["0", "/tmp"] and "LAYER=mine" in lines and not any("NOT_THERE" in line for line in lines)
    assert {line.split("=")[0] for line in lines[2:]} <= {"LAYER", "PATH", "HOME", "HOSTNAME", "PWD", "SHLVL"}, result  # none of ours


@root_only
@pytest.mark.parametrize("command,code,said", [
    (["/bin/sh", "-c", "cat; echo err >&2; exit 7"], 7, None), (["/bin/sh", "-c", "kill -9 $$"], 137, None),
    (["nosuch"], 127, '"nosuch" cannot be executed'), (["/etc/passwd"], 126, '"/etc/passwd" cannot be executed')],
    ids=["exits", "killed", "not found", "not executable"])
def test_exit_status_and_streams(run, command, code, said):
    result = run([], *command, input=b"typed\n")
    assert result.code == code, result
    if said:
        assert said in result.err and result.err.count("\n") == 1 and not result.out, result
    elif code == 7:
        assert (result.out, result.err) == ("typed\n", "err\n"), result


@root_only
def test_streams_by_their_names(run):
    """What images log to, whoever the user is."""
    result = run(["--user", "alice"], "cat /dev/stdin > /dev/stdout; echo err > /dev/stderr; echo more >> /dev/stdout", input=b"typed\n")
    assert (result.code, result.out, result.err) == (0, "typed\nmore\n", "err\n"), result


@root_only
def test_limits(run):
    """What the kernel has been told, and one of them felt."""
    process = run.start(["--memory", "64m", "--cpus", "1.5", "--pids", "40"],
                        "/bin/sh", "-c", "(i=0; while [ $i -lt 60 ]; do sleep 9 & i=$((i+1)); done); exec sleep 60")
    said = process.stderr.readline().decode()  # the shell cannot fork any more
    values = {}
    for folder in engine.cgroups():
        if os.path.basename(folder).startswith("run-"):
            for name in ("memory.limit_in_bytes", "memory.max", "cpu.cfs_quota_us", "cpu.max", "pids.max"):
                if os.path.exists(os.path.join(folder, name)):
                    with open(os.path.join(folder, name), encoding="ascii") as file:
                        values[name] = file.read().split()[0]
    process.kill()
    process.communicate()
    assert "fork" in said, said
    assert values.get("memory.limit_in_bytes", values.get("memory.max")) == str(64 << 20), values
    assert values.get("cpu.cfs_quota_us", values.get("cpu.max")) == "150000" and values["pids.max"] == "40", values
    assert run([], "true").code == 0  # which removes what the kill has left
    assert not run.left()


@root_only
def test_refused_command_lines(run):
    for options, said in ((["--memory", "12"], "--memory \"12\""), (["--cpus", "0"], "--cpus \"0\""), (["--pids", "none"], "--pids \"none\""),
                          (["--read", "/etc"], "ContainerSandbox has no view of this host's files; leave --read out"),
                          (["--env", "=x"], "--env \"=x\""), (["--learn", "/dev/null"], "--learn"),
                          (["--workdir", "data"], "absolute working directory"), (["--user", "nobody-here"], "nobody-here")):
        result = run(options, "echo it ran")
        assert result.code == 125 and said in result.err and result.err.count("\n") == 1 and not result.out, (options, result)
    assert not run.left()


def test_options_of_other_types(box):
    for arguments, said in ((["--image", "x", "--", "true"], "ProcessSandbox has no image; leave --image out, or add --type container"),
                            (["--type", "container", "--", "true"], "ContainerSandbox runs an image: add --image"),
                            (["--memory", "1g", "--", "true"], "or add --type container"), (["--quiet"], "no command")):
        result = box.raw("run", *arguments)
        assert result.code == 125 and said in result.err and result.err.count("\n") == 1, (arguments, result)


def test_an_ordinary_user_is_told(lab):
    box = Box(lab, "user")
    result = box.raw("run", "--type", "container", "--image", "tool", "--", "true")
    assert result.code == 125 and result.err.startswith("penstock: ContainerSandbox needs root: ") and "use sudo" in result.err, result
    assert result.err.count("\n") == 1, result


# ---- signals and ends ----

def await_line(process, wanted):
    if not select.select([process.stdout], [], [], 20)[0]:
        pytest.fail("nothing is said")
    assert process.stdout.readline() == wanted


@root_only
def test_signals_are_the_commands(run):
    """One that handles it goes on; one that does not ends by it. Nothing stays of either."""
    process = run.start([], "/bin/sh", "-c", "trap 'echo caught; exit 3' TERM; echo up; while :; do sleep 0.05; done")
    await_line(process, b"up\n")
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=20)[0] == b"caught\n" and process.returncode == 3
    for number in (signal.SIGINT, signal.SIGTERM):
        process = run.start([], "/bin/sh", "-c", "echo up; exec sleep 60")
        await_line(process, b"up\n")
        process.send_signal(number)
        assert process.wait(20) == 128 + number
        process.communicate()
        assert not run.left()


@root_only
def test_a_signal_before_the_command(run):
    """At several moments of the start: nothing is left, and the status says the signal."""
    for milliseconds in (5, 20, 35, 60, 100, 130, 160, 190):
        process = run.start([], "sleep", "60")
        time.sleep(milliseconds / 1000)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=20)
        assert process.returncode in (-signal.SIGTERM, 128 + signal.SIGTERM), (milliseconds, process.returncode)
        assert not os.path.exists(run.state) or not run.left(), milliseconds


@root_only
def test_killed(run):
    """Its processes end with it, and the next run removes what it could not, but nothing of one that runs."""
    before = leftovers()
    other = run.start([], "/bin/sh", "-c", "echo up; exec sleep 63")
    process = run.start([], "/bin/sh", "-c", "echo up; sleep 61 & exec sleep 62")
    for started in (process, other):
        await_line(started, b"up\n")
    process.kill()
    process.communicate()
    end = time.monotonic() + 5
    while time.monotonic() < end and any(b"sleep\x0062" in line or b"sleep\x0061" in line for line in leftovers()["processes"].values()):
        time.sleep(0.02)
    lines = leftovers()["processes"].values()
    assert not any(b"sleep\x0062" in line or b"sleep\x0061" in line for line in lines), lines
    assert len(os.listdir(os.path.join(run.state, "run"))) == 2
    assert run([], "true").code == 0
    assert len(os.listdir(os.path.join(run.state, "run"))) == 1
    other.terminate()
    other.communicate(timeout=20)
    assert not run.left()
    assert_nothing_left(before)


@root_only
def test_terminal(run):
    """The command has one of its own: job control, Ctrl-C, the caller's size; the caller's is as it was afterwards."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 77, 0, 0))
    before = termios.tcgetattr(slave)

    def lead():
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    arguments = run.box.argv(*run.arguments([], ["/bin/busybox", "sh", "-i"]))
    process = subprocess.Popen(arguments, stdin=slave, stdout=slave, stderr=slave, preexec_fn=lead, cwd=run.folder,
                               env={**run.box.environment(run.env()), "TERM": "vt100"})
    seen = ""

    def until(word):
        nonlocal seen
        end = time.monotonic() + 20
        while word not in seen:
            assert time.monotonic() < end and select.select([master], [], [], 20)[0], seen
            seen += os.read(master, 4096).decode(errors="replace")
        seen = seen.split(word, 1)[1]
    until(" #")
    assert termios.tcgetattr(slave) != before
    os.write(master, b"/bin/busybox stty size </dev/tty >/dev/stdout; sh -c 'echo $TERM-; exec sleep 60'\n")
    until("33 77")
    until("vt100-")
    os.write(master, b"\x03")
    until(" #")
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 90, 0, 0))
    os.kill(process.pid, signal.SIGWINCH)
    os.write(master, b"sh -c 'echo beg''un; exec sleep 60'\n")
    until("begun")
    os.write(master, b"\x1a")
    until("Stopped")
    os.write(master, b"kill %1; /bin/busybox stty size\n")
    until("40 90")
    os.write(master, b"printf 'last words'; kill -9 $$\n")
    until("last words")
    until("last words")  # the first one was typed
    assert process.wait(20) == 137
    assert termios.tcgetattr(slave) == before
    os.close(master)
    os.close(slave)


# ---- where images come from ----

@root_only
def test_images_of_a_registry(run):
    """The node's configuration says how registries are reached; an archive is a file of this host."""
    registry = registry_of(run.lab)
    archive = os.path.join(run.folder, "small.tar")
    source = os.path.join(run.folder, "small")
    engine.write_image(source, [engine.layer(engine.busybox())], {"Cmd": ["id", "-u"], "Env": ["PATH=/bin"], "User": "alice"})
    subprocess.run(["skopeo", "--insecure-policy", "copy", "-q", "--dest-tls-verify=false", f"oci:{source}:latest",
                    f"docker://{registry.name}/library/small:latest"], check=True)
    subprocess.run(["skopeo", "--insecure-policy", "copy", "-q", f"oci:{source}:latest", f"docker-archive:{archive}:small:latest"],
                   check=True, stdout=subprocess.DEVNULL)
    config = run.box.file("run-node.yaml", CONFIG.format(registry=registry.name))
    for image in ("small", "docker://docker.io/library/small:latest", f"{registry.name}/library/small", "docker-archive:" + archive):
        result = run.box.raw("run", "--type", "container", "--image", image, "--node-config", config, env=run.env())
        assert result.code == 0 and result.out == "1000\n", (image, result)
    result = run.box.raw("run", "--type", "container", "--image", "missing", "--node-config", config, env=run.env())
    assert result.code == 125 and 'image "missing"' in result.err and result.err.count("\n") == 1, result


@root_only
def test_learn(run):
    learned = run.box.path("learned-container.yaml")
    result = run(["--learn", learned], curl("https://v4.example/"))
    assert result.code == 0, result
    with open(learned, encoding="utf-8") as file:
        assert "v4.example" in file.read()
    result = run(["--policy", learned], reaches(PROBES))
    assert set(result.out.splitlines()) == {"listed", "name"}, result
