# SPDX-License-Identifier: Apache-2.0
"""The sandboxed command: status, signals, streams, terminal; what it sees and cannot reach; what stays behind (nothing)."""
import json
import os
import pty
import select
import signal
import socket
import subprocess
import sys
import time

import pytest

import zone
from conftest import HERE, RUN_TIMEOUT, assert_nothing_left, find_process, leftovers

NONE = "--network none"
SH = ["sh", "-c"]
SEQUENTIAL_RUNS = {"user": 200, "root": 20}


# ---- exit status ----

@pytest.mark.parametrize("command,code", [
    (["true"], 0), (["sh", "-c", "exit 3"], 3), (["sh", "-c", "exit 125"], 125), (["sh", "-c", "kill -TERM $$"], 143),
    (["sh", "-c", "kill -KILL $$"], 137), (["sh", "-c", "kill -SEGV $$"], 139),
    (["/nonexistent/program"], 127), (["no-such-program-anywhere"], 127), (["./not-executable"], 126)])
def test_exit_status(box, command, code):
    box.file("not-executable", "#!/bin/sh\n", 0o644)
    result = box.run(NONE, *command)
    assert result.code == code, result
    if code in (126, 127):
        assert result.err.startswith("penstock: ") and command[0] in result.err, result


def test_orphans_end_with_the_command(box):
    before = leftovers()
    started = time.monotonic()
    assert box.run(NONE, "sh", "-c", "setsid sleep 600 >/dev/null 2>&1 & exit 4").code == 4
    assert time.monotonic() - started < 10
    assert_nothing_left(before)


# ---- signals ----

HANDLER = ("import os, signal, sys, time\n" # os.write: a signal may come in the middle of a print
           "def handler(number, frame): os.write(1, b'got %d\\n' % number); sys.exit(7)\n"
           "for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1): signal.signal(number, handler)\n"
           "os.write(1, b'ready\\n')\n[time.sleep(.05) for _ in range(1200)]\n")


def start(box, policy, *command, **options):
    return box.popen(box.arguments(policy, command), stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)


def finish(process, data=None):
    try:
        out, err = process.communicate(data, RUN_TIMEOUT)
    except subprocess.TimeoutExpired:
        process.kill()
        pytest.fail(f"still running: {process.communicate()}")
    return out.decode(), err.decode(), process.returncode


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1])
def test_signals_reach_the_command(box, number):
    process = start(box, NONE, "/usr/bin/python3", "-c", HANDLER)
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(number)
    out, err, code = finish(process)
    assert (out, code) == (f"got {int(number)}\n", 7), err


@pytest.mark.parametrize("number,code", [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_death_by_a_signal_is_told(box, number, code):
    process = start(box, NONE, "sh", "-c", "echo ready; exec sleep 60")
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(number)
    assert finish(process)[2] == code


# ---- streams and terminal ----

def test_fifty_megabytes_through_pipes(box):
    data = os.urandom(1 << 20) * 50
    process = start(box, NONE, "cat", stdin=subprocess.PIPE)
    out, err = process.communicate(data, RUN_TIMEOUT)
    assert process.returncode == 0 and out == data, err


def test_closed_output_ends_the_command(box):
    process = box.popen(box.arguments(NONE, ["yes"]), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    process.stdout.read(1000)
    process.stdout.close()
    assert process.wait(10) in (141, 1)


def on_terminal(box, command, actions=()):
    """Runs penstock on a new terminal; actions are (text to wait for, bytes to type). Returns its output and status."""
    argv = box.argv(*box.arguments(NONE, command))
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(box.project)
        os.execvpe(argv[0], argv, box.environment())
    text, deadline, left = b"", time.monotonic() + 20, list(actions)
    while time.monotonic() < deadline:
        if left and left[0][0].encode() in text:
            os.write(terminal, left.pop(0)[1])
        if not select.select([terminal], [], [], 0.1)[0]:
            continue
        try:
            chunk = os.read(terminal, 4096)
        except OSError:
            break
        if not chunk:
            break
        text += chunk
    else:
        os.kill(pid, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    os.close(terminal)
    return text.decode(errors="replace"), status


def test_terminal(box):
    text, code = on_terminal(box, SH + ["test -t 0 && test -t 1 && stty -echo && stty size && read x && echo got:$x:"],
                             [("\n", b"typed\n")])
    assert code == 0 and "got:typed:" in text, (code, text)


def test_control_c(box):
    text, code = on_terminal(box, SH + ["echo ready; exec sleep 30"], [("ready", b"\x03")])
    assert code == 130, (code, text)


def test_job_control(box):
    text, code = on_terminal(box, ["bash", "--norc", "-ic", "sleep 30 & jobs; kill %1; wait %1; echo status:$?:"])
    assert "status:143:" in text and "no job control" not in text, (code, text)


def test_no_input_can_be_pushed_into_the_terminal(box):
    script = "import fcntl, sys\ntry: fcntl.ioctl(0, 0x5412, b'x'); print('pushed')\nexcept OSError as e: print('refused', e.errno)"
    text, code = on_terminal(box, ["/usr/bin/python3", "-c", script])
    assert code == 0 and "refused" in text, (code, text)


# ---- files ----

def test_working_directory_is_writable_and_the_same(box):
    result = box.run(NONE, *SH, "pwd; echo hello >written && cat written")
    assert result.out == f"{box.project}\nhello\n", result
    with open(box.path("written"), encoding="utf-8") as file:
        assert file.read() == "hello\n"


def folder(box, kind):
    return {"home": box.home}.get(kind, kind)


@pytest.mark.parametrize("kind", ["/", "home", "/tmp", "/run", "/usr", "/etc", "/var"])
def test_refused_working_directories(box, kind):
    result = box.raw("run", "--network", "none", "--", "true", cwd=folder(box, kind))
    assert result.code == 125, result
    assert result.err.startswith("penstock: ") and f"{folder(box, kind)}\"" in result.err and result.err.count("\n") == 1, result


def test_home_is_hidden_unless_named(box):
    os.makedirs(os.path.join(box.home, "keys"), exist_ok=True)
    secret = os.path.join(box.home, "keys", "secret")
    with open(secret, "w", encoding="utf-8") as file:
        file.write("hush\n")
    box.give(os.path.dirname(secret))
    box.give(secret)
    keys = os.path.dirname(secret)
    assert box.run(NONE, "cat", secret).code == 1
    assert box.run(f"{NONE} --read {keys}", "cat", secret).out == "hush\n"
    assert box.run(f"{NONE} --read {keys}", *SH, f"echo x >>{secret}").code != 0
    assert box.run(f"{NONE} --write {keys}", *SH, f"echo more >>{secret}").code == 0
    with open(secret, encoding="utf-8") as file:
        assert file.read() == "hush\nmore\n"


def test_system_is_read_only_and_temporary_folders_are_private(box):
    name = f"penstock-e2e-{os.getpid()}"
    result = box.run(NONE, *SH, f"touch /usr/x /etc/x /x 2>&1 | wc -l; echo y >/tmp/{name} && cat /tmp/{name}; ls -A /run; touch /var/{name}")
    lines = result.out.split("\n")
    assert lines[:2] == ["3", "y"] and set(lines[2:]) <= {"lock", "user", ""}, result
    assert not os.path.exists(f"/tmp/{name}") and not os.path.exists(f"/var/{name}")


@pytest.mark.parametrize("path", ["/etc/shadow", "/etc/gshadow"])
def test_secrets_of_the_host_cannot_be_read(box, path):
    assert os.path.exists(path)
    result = box.run(NONE, "cat", path)
    assert result.code == 1 and result.out == "", result


def test_only_own_processes_are_visible(box):
    result = box.run(NONE, *SH, "ls /proc | grep -c '^[0-9]'; cat /proc/*/cmdline | tr '\\0' ' '")
    assert int(result.out.split("\n")[0]) < 8 and "nginx" not in result.out and "pytest" not in result.out, result


def test_no_descriptor_is_inherited(box):
    reader, writer = os.pipe()
    result = box.run(NONE, *SH, "ls /proc/self/fd", pass_fds=[reader, writer])
    os.close(reader)
    os.close(writer)
    assert set(result.out.split()) <= {"0", "1", "2", "3"}, result  # 3 is ls's own


def test_unprivileged(box):
    result = box.run(NONE, *SH, "grep -E '^(Cap(Eff|Prm|Inh|Amb)|NoNewPrivs|Seccomp):' /proc/self/status; id -u; cat /proc/self/uid_map")
    for line in ("CapEff", "CapPrm", "CapInh", "CapAmb"):
        assert f"{line}:\t0000000000000000" in result.out, result
    assert "NoNewPrivs:\t1" in result.out and "Seccomp:\t2" in result.out, result
    assert "\n0\n" not in result.out, "the command runs as uid 0"


# ---- sockets that are not IP ----

def test_unix_sockets_of_the_host(box):
    """One in the exposed working directory, one below --read, one abstract."""
    servers = []
    other = os.path.join(box.home, "sockets")
    os.makedirs(other, exist_ok=True)
    for name in (box.path("host.sock"), os.path.join(other, "host.sock"), "\0penstock-lab"):
        if not name.startswith("\0") and os.path.exists(name):
            os.unlink(name)
        server = socket.socket(socket.AF_UNIX)
        server.bind(name)
        server.listen()
        servers.append(server)
        if not name.startswith("\0"):
            os.chmod(name, 0o777)
    answers, result = box.probe(f"{NONE} --read {other}", ["unix", box.path("host.sock")], ["unix", os.path.join(other, "host.sock")],
                                ["unix", "@penstock-lab"])
    for server in servers:
        server.close()
    os.unlink(box.path("host.sock"))
    assert "connected" not in [a["result"] for a in answers] and len(answers) == 3, result


@pytest.mark.parametrize("family", [40, 17, 38, 31, 44])  # VSOCK, PACKET, ALG, BLUETOOTH, XDP
def test_other_socket_families(box, family):
    (answer,), result = box.probe(NONE, ["family", family])
    assert answer["result"] in ("EAFNOSUPPORT", "EPERM", "EACCES"), result


X86 = os.uname().machine == "x86_64"
CALLS = {"io_uring_setup": (425, 8, 0), "add_key": (248 if X86 else 217, 0, 0, 0, 0, -2), "keyctl": (250 if X86 else 219, 0, -3, 1)}


@pytest.mark.parametrize("name", CALLS)
def test_refused_system_calls(box, name):
    (answer,), result = box.probe(NONE, ["system_call", *CALLS[name]])
    assert answer["result"] in ("EPERM", "ENOSYS"), result


# ---- root inside ----

def pid_of(command_line):
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        found = [int(pid) for pid, line in leftovers()["processes"].items() if line == command_line]
        if found:
            return found[0]
        time.sleep(0.02)
    pytest.fail(f"no process {command_line}")


def in_sandbox(box, policy, action):
    """Starts a sandbox that waits; calls action with the pid of a process in it; returns what the action gave."""
    process = start(box, policy, "sh", "-c", "echo ready; exec sleep 987", stdin=subprocess.PIPE)
    assert process.stdout.readline() == b"ready\n", finish(process)
    try:
        return action(pid_of(b"sleep\x00987\x00"))
    finally:
        process.terminate()
        finish(process)


def intrude(pid, *operations):
    done = subprocess.run([sys.executable, "-B", os.path.join(HERE, "intruder.py"), str(pid), json.dumps(operations)],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=RUN_TIMEOUT, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


@pytest.mark.parametrize("policy", [NONE, "--allow both.example"])
def test_root_in_the_namespace_with_everything_flushed(box, policy):
    """With every capability in the sandbox's own namespaces, no rules and no routes of ours, nothing denied is reached."""
    before = len(box.lab.http_requests()), len(box.lab.dns_queries())
    targets = [["connect", "203.0.113.1", 443], ["connect", "2001:db8:100::1", 443], ["connect", "169.254.169.254", 80],
               ["connect", zone.OWN4, zone.PORT_HOST_PLAIN], ["udp", "203.0.113.1", 7, "x"], ["dns_rcode", "denied.example"]]
    answers = in_sandbox(box, policy, lambda pid: intrude(pid, *targets))
    assert answers["interfaces"] == ["lo"], answers
    assert answers["rules"] == "" and answers["routes"] == "", answers
    assert all(isinstance(answer["result"], str) and answer["result"] != "connected" for answer in answers["probes"]), answers
    assert len(box.lab.http_requests()) == before[0] and box.lab.dns_queries("denied.example")[before[1]:] == []


# ---- the gate dies ----

# Connects and says so; after a line on stdin connects again, tells whether the first connection is still open, and tries
# a denied address.
TWICE = """
import socket, sys
def attempt(host):
    try:
        sock = socket.create_connection((host, 2525), 5)
        return sock, sock.recv(3).decode() or 'closed'
    except OSError:
        return None, 'failed'
first, word = attempt('203.0.113.1')
print(word, flush=True)
sys.stdin.readline()
print(attempt('203.0.113.1')[1], flush=True)
first.settimeout(1)
try:
    while data := first.recv(1000): pass
    print('closed')
except socket.timeout:
    print('open')
except OSError:
    print('closed')
print(attempt('198.51.100.1')[1])
"""


@pytest.mark.parametrize("role", ["@gate", "@keeper", "@resolver"])
def test_killed_helper(box, role):
    """A gate or resolver may be started again; without the keeper there is no network. What was denied stays denied."""
    before = leftovers()
    names = "--allow v4.example" if role == "@resolver" else ""  # else there is none
    process = start(box, f"--allow-cidr 203.0.113.0/24 {names}", "/usr/bin/python3", "-c", TWICE, stdin=subprocess.PIPE)
    assert process.stdout.readline() == b"220\n"
    for pid in find_process(role):
        os.kill(pid, signal.SIGKILL)
    time.sleep(0.3)
    out, err, _ = finish(process, b"\n")
    second, first_connection, denied = out.split()
    assert denied == "failed", (out, err)
    assert second == "220" or role != "@resolver", (out, err)
    assert first_connection == "closed" or role == "@resolver", (out, err)
    assert second == "failed" or role != "@keeper", (out, err)
    assert_nothing_left(before)


def test_penstock_killed(box):
    """kill -9 of the first process, while it starts and when all runs: everything ends by itself."""
    before = leftovers()
    for moment in (0, 0.01, 0.02, 0.03, 0.05, 0.08, 0.3):
        process = start(box, "--allow-cidr 203.0.113.0/24", "sleep", "600")
        find_process("@gate")
        time.sleep(moment)
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()
    assert_nothing_left(before)


def test_gate_is_confined(box):
    """No capabilities, no new privileges, a seccomp filter; not root's uid either."""
    process = start(box, NONE, "sh", "-c", "echo ready; exec sleep 600")
    try:
        assert process.stdout.readline() == b"ready\n"
        for pid in find_process("@gate"):
            with open(f"/proc/{pid}/status", encoding="utf-8") as file:
                status = dict(line.split(":\t", 1) for line in file.read().split("\n") if ":\t" in line)
            assert int(status["CapEff"], 16) == int(status["CapPrm"], 16) == 0, status
            assert status["NoNewPrivs"] == "1" and status["Seccomp"] == "2", status
    finally:
        process.terminate()
        finish(process)


def test_many_sandboxes_leave_nothing(box):
    assert box.run(NONE, "true").code == 0
    before = leftovers()
    for _ in range(SEQUENTIAL_RUNS[box.kind]):
        result = box.raw("run", "--network", "none", "--", "true")
        assert result.code == 0, result
    assert_nothing_left(before)


def test_many_sandboxes_at_once(box):
    before = leftovers()
    processes = [start(box, "--allow both.example", "curl", "-sS", "--cacert", box.lab.ca, "https://both.example/") for _ in range(10)]
    for process in processes:
        out, err, code = finish(process)
        assert code == 0 and "lab both.example" in out, err
    assert_nothing_left(before)
