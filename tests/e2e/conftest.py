# SPDX-License-Identifier: Apache-2.0
"""End-to-end tests: penstock as a black box in the test internet (tests/lab), with real clients and servers.

`pytest tests/e2e` moves itself into the lab's namespaces first (nothing else of the machine is touched). Every scenario
runs for each kind of user there is: started by root as "root" and as "user", started by an ordinary user as "user".
The program is $PENSTOCK, or build/penstock."""
import json
import os
import re
import signal
import shlex
import shutil
import subprocess
import sys
import time

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
PROJECT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(PROJECT, "tests", "lab"))
sys.dont_write_bytecode = True

import lab as lab_module  # noqa: E402  (needs the path)
import zone               # noqa: E402

# Started in the background, a shell would have us ignore these, and so every command below us.
for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
    signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)

LAB_TIMEOUT = 3000
RUN_TIMEOUT = 40
TEST_TIMEOUT = 300  # PENSTOCK_RUNS=N asks for more rounds than fit into it
LOG_KEYS = {"time", "sandbox", "event", "protocol", "name", "address", "port", "verdict", "reason", "rule", "bytes_out",
            "bytes_in", "duration_ms"}


def pytest_configure(config):
    """Starts over inside the lab. What pytest has captured so far is given back first."""
    if lab_module.INSIDE in os.environ or config.option.collectonly:
        return
    capture = config.pluginmanager.getplugin("capturemanager")
    if capture:
        capture.stop_global_capturing()
    arguments = [str(argument) for argument in config.invocation_params.args]
    try:
        lab_module.enter([sys.executable, "-B", "-m", "pytest", "-p", "no:cacheprovider"] + arguments, LAB_TIMEOUT)
    except lab_module.LabError as error:
        pytest.exit(f"lab: {error}", returncode=1)


@pytest.fixture(autouse=True)
def bounded():
    """A test that hangs has failed, and says where."""
    def late(*_):
        pytest.fail(f"still running after {TEST_TIMEOUT} s")
    signal.signal(signal.SIGALRM, late)
    signal.alarm(0 if "PENSTOCK_RUNS" in os.environ else TEST_TIMEOUT)
    yield
    signal.alarm(0)


@pytest.fixture(scope="session")
def lab():
    with lab_module.Lab() as started:
        yield started


@pytest.fixture(scope="session", params=lab_module.kinds())
def box(lab, request):
    return Box(lab, request.param)


class Result:
    """What one run of penstock gave."""

    def __init__(self, code, out, err, seconds, log):
        self.code, self.out, self.err, self.seconds, self.log = code, out, err, seconds, log

    def __repr__(self):
        return f"exit {self.code} after {self.seconds:.2f} s\nstdout: {self.out[-3000:]}\nstderr: {self.err[-3000:]}\nlog: {self.log}"

    def reasons(self, **wanted):
        """The reasons in the decision log of the lines that have these values."""
        return [line.get("reason") for line in self.log if all(line.get(key) == value for key, value in wanted.items())]


class Box:
    """Runs penstock as one kind of user."""
    counter = 0

    def __init__(self, lab, kind):
        self.lab, self.kind = lab, kind
        source = os.environ.get("PENSTOCK") or os.path.join(PROJECT, "build", "penstock")
        if not os.access(source, os.X_OK):
            pytest.exit(f"no program at '{source}'; run make build, or set PENSTOCK", returncode=1)
        self.program = lab.path("bin/penstock")  # a place that every user can read
        if not os.path.exists(self.program):
            shutil.copy(source, self.program)
            os.chmod(self.program, 0o755)
        self.home, self.project = lab.home(kind), lab.project(kind)
        for name in ("probe.py", "craft.py"):
            shutil.copy(os.path.join(HERE, name), self.project)

    # -- files --

    def path(self, name):
        return os.path.join(self.project, name)

    def file(self, name, text, mode=0o644):
        """A file in the project folder that belongs to the user."""
        path = self.path(name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(path, mode)
        self.give(path)
        return path

    def give(self, path):
        if self.kind == "user" and self.lab.starter == "root":
            os.chown(path, lab_module.UID, lab_module.UID)

    def policy_file(self, policy):
        Box.counter += 1
        return self.file(f"policy-{Box.counter}.json", policy if isinstance(policy, str) else json.dumps(policy))

    # -- running --

    def argv(self, *arguments):
        return self.lab.as_user(self.kind, [self.program, *arguments])

    def arguments(self, policy, command):
        """Those of `run`: policy is options in one string, a list of them, or a dict (a native policy)."""
        if isinstance(policy, dict):
            policy = ["--policy", self.policy_file({"version": 1, **policy})]
        options = shlex.split(policy) if isinstance(policy, str) else list(policy)
        return ["run", "--read", self.lab.path("ca"), *options, "--", *command]

    def environment(self, extra=()):
        return {**self.lab.user_environment(self.kind), **dict(extra)}

    def popen(self, arguments, cwd=None, env=(), **options):
        options.setdefault("stdin", subprocess.DEVNULL)
        return subprocess.Popen(self.argv(*arguments), cwd=cwd or self.project, env=self.environment(env),
                                preexec_fn=lab_module.die_with_parent, **options)

    def raw(self, *arguments, timeout=RUN_TIMEOUT, **options):
        """penstock with exactly these arguments."""
        started = time.monotonic()
        data = options.pop("input", None)
        process = self.popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                             **({"stdin": subprocess.PIPE} if data is not None else {}), **options)
        try:
            out, err = process.communicate(data, timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            pytest.fail(f"penstock {shlex.join(arguments)}: still running after {timeout} s\n{out!r}\n{err!r}")
        seconds = time.monotonic() - started
        return Result(process.returncode, out.decode(errors="replace"), err.decode(errors="replace"), seconds, [])

    def run(self, policy, *command, **options):
        """penstock run POLICY -- COMMAND, with its decision log."""
        Box.counter += 1
        log = os.path.join(self.home, f"log-{Box.counter}.jsonl")
        arguments = self.arguments(policy, command)
        result = self.raw(arguments[0], "--log", log, *arguments[1:], **options)
        if os.path.exists(log):
            result.log = lab_module.json_lines(log)
        return result

    def curl(self, policy, *arguments, **options):
        return self.run(policy, "curl", "-sS", "--max-time", "15", "--cacert", self.lab.ca, *arguments, **options)

    def probe(self, policy, *operations, **options):
        """Runs probe.py in a sandbox. Returns the answers to the operations and the Result."""
        return self.operate("probe.py", policy, operations, options)

    def craft(self, policy, *operations, **options):
        """As probe(), for the operations of craft.py. Returns the bare results and the Result."""
        answers, result = self.operate("craft.py", policy, operations, options)
        return [answer["result"] for answer in answers], result

    def operate(self, program, policy, operations, options):
        result = self.run(policy, "/usr/bin/python3", "-B", program, json.dumps(operations), **options)
        try:
            return json.loads(result.out), result
        except ValueError:
            pytest.fail(f"{program} did not answer: {result}")


# ---- what a run may leave behind ----

# What a program of ours makes in /tmp; its other users, who may be at work just now, have other names.
OUR_FILES = re.compile("penstock-(doctor-.{6}|self-test-.{6}|[0-9a-f]{8})")


def leftovers():
    """Everything a run could leave on the host: processes, namespaces, mounts, files in /tmp."""
    processes, namespaces = {}, set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                processes[pid] = file.read()
            namespaces |= {os.readlink(f"/proc/{pid}/ns/{kind}") for kind in ("net", "user", "pid", "mnt")}
        except OSError:
            processes.pop(pid, None)
    with open("/proc/self/mounts", encoding="utf-8") as file:
        mounts = set(file)
    names = {name for name in os.listdir("/tmp") if OUR_FILES.fullmatch(name)}
    names |= {name for name in os.listdir("/run") if "penstock" in name}
    return {"processes": processes, "namespaces": namespaces, "mounts": mounts, "files": names}


def assert_nothing_left(before, seconds=5):
    """Fails if there is anything that was not there before, after a grace for the kernel's own cleaning; a longer one for
    files, since a self-test that somebody else runs on the machine has its own."""
    start = time.monotonic()
    while True:
        now = leftovers()
        left = {kind: [item for item in now[kind] if item not in before[kind]] for kind in now}
        only_files = not any(left[kind] for kind in left if kind != "files")
        if not any(left.values()) or time.monotonic() > start + (60 if only_files else seconds):
            break
        time.sleep(0.05)
    assert not any(left.values()), (left, [now["processes"][pid] for pid in left["processes"]])


def find_process(word, deadline_seconds=5):
    """The pids of penstock's processes in that role, by their command line."""
    deadline = time.monotonic() + deadline_seconds
    while time.monotonic() < deadline:
        found = [int(pid) for pid, line in leftovers()["processes"].items()
                 if b"penstock" in line.split(b"\0")[0] and word.encode() in line]
        if found:
            return found
        time.sleep(0.02)
    pytest.fail(f"no process of penstock with '{word}' in its command line: {leftovers()['processes']}")
