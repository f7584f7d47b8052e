# SPDX-License-Identifier: Apache-2.0
"""kill -9, a stop, or a limit, for each of the processes of a run, at rest, under load, and while it starts: never open,
never hung, nothing left on the host. And servers and resolvers that die, are slow, or say nothing."""
import json
import os
import signal
import subprocess
import time

import pytest

import zone
from conftest import RUN_TIMEOUT, assert_nothing_left, leftovers

POLICY = "--allow-cidr 203.0.113.0/24 --allow both.example --allow *.hosts.example"
END_SECONDS = 20  # for the run to end by itself; the machine may be busy
LONG = int(os.environ.get("PENSTOCK_RUNS", "0"))  # how many sandboxes in a row; 0: few

# Runs inside. Under load: one endless download, and a thread each that connects, asks the DNS, and sends datagrams.
# Says "ready"; then, after a line on stdin, what it reaches now: [allowed, denied, by name], each once it has an answer. The
# line has the seconds for which it tries what is allowed.
CLIENT = """
import json, socket, sys, threading, time
def attempt(host, port):
    try:
        with socket.create_connection((host, port), 3) as sock:
            return 'connected'
    except OSError as error:
        return type(error).__name__
def forever(action):
    def loop():
        while True:
            try: action()
            except OSError: time.sleep(.02)
    threading.Thread(target=loop, daemon=True).start()
def download():
    with socket.create_connection(('203.0.113.1', 6001), 5) as sock:
        while sock.recv(1 << 16): pass
def datagram():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(.5)
        sock.connect(('203.0.113.1', 7))
        sock.send(b'x')
        sock.recv(10)
count = 0
def lookup():
    global count
    count += 1
    socket.getaddrinfo('n%d.hosts.example' % count, 443)
if sys.argv[1] == 'load':
    for action in (download, datagram, lookup, lambda: attempt('203.0.113.1', 2525), lambda: attempt('198.51.100.1', 2525)):
        forever(action)
    time.sleep(.4)
print('ready', flush=True)
until = time.monotonic() + float(sys.stdin.readline() or 0)
def patient(host, port):
    while (result := attempt(host, port)) != 'connected' and time.monotonic() < until: time.sleep(.1)
    return result
print(json.dumps([patient('203.0.113.1', 2525), attempt('198.51.100.1', 2525), patient('both.example', 443)]), flush=True)
sys.exit(3)
"""


class Run:
    """A sandbox in which CLIENT runs, and its processes by name."""

    def __init__(self, box, moment, policy=POLICY, **options):
        box.file("client.py", CLIENT)
        self.process = box.popen(box.arguments(policy, ["/usr/bin/python3", "-B", "client.py", moment]), stdin=subprocess.PIPE,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)
        if moment != "start":
            assert self.process.stdout.readline() == b"ready\n", self.process.communicate()

    def find(self, victim):
        """The pid of: main, keeper, gate, resolver, bwrap, init, command; None if it is not there."""
        if victim == "main":
            return self.process.pid
        inside = ("bwrap", "init", "command")  # each the parent of the next
        for pid, words in children_of(self.process.pid).items():
            if words[1] == "@" + victim:
                return pid
            if victim in inside and words[0].endswith("bwrap"):
                for _ in range(inside.index(victim)):
                    pid = next(iter(children_of(pid)), None)
                return pid
        return None

    def pid(self, victim):
        deadline = time.monotonic() + 10
        while (pid := self.find(victim)) is None:
            assert time.monotonic() < deadline, f"no {victim} among {children_of(self.process.pid)}"
        return pid

    def end(self, seconds=END_SECONDS, patience=0):
        """Goes on to the end. Returns what the client reached (None if it did not come so far), status, standard error."""
        try:
            out, err = self.process.communicate(b"%d\n" % patience, seconds + patience)
        except subprocess.TimeoutExpired:
            self.process.kill()
            pytest.fail(f"hung: {self.process.communicate()}")
        lines = [line for line in out.decode().split("\n") if line.startswith("[")]
        return json.loads(lines[0]) if lines else None, self.process.returncode, err.decode()


def children_of(parent):
    """{pid: [words of its command line]}."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
                if int(file.read().rpartition(")")[2].split()[1]) != parent:
                    continue
            with open(f"/proc/{pid}/cmdline", encoding="utf-8") as file:
                found[int(pid)] = file.read().split("\0") + [""]
        except OSError:
            continue
    return found


def test_gate_without_room_for_a_policy(box):
    """The host gets an address, and the gate cannot take the policy that denies it: another gate does, for the old policy may
    not stay in force."""
    run = Run(box, "rest", "--network all")
    gate, address = run.pid("gate"), ["203.0.113.251/32", "dev", "lo"]
    with open(f"/proc/{gate}/status", encoding="utf-8") as file:
        ids = dict(line.split(":", 1) for line in file)
    user = ["setpriv", f"--reuid={ids['Uid'].split()[0]}", f"--regid={ids['Gid'].split()[0]}", "--clear-groups"]
    subprocess.run([*user, "prlimit", f"--pid={gate}", "--as=1:1"], check=True)  # no memory can be mapped any more
    subprocess.run(["ip", "addr", "add", *address], check=True)
    try:
        deadline = time.monotonic() + END_SECONDS
        while run.find("gate") in (gate, None):
            assert time.monotonic() < deadline, "the old gate goes on with the old policy"
            time.sleep(.05)
        reached, status, err = run.end(patience=10)
    finally:
        subprocess.run(["ip", "addr", "del", *address], check=True)
    assert reached[0] == "connected" and status == 3, (reached, status, err)
    assert "cannot take the new policy" in err, err


# What may be left of the network after the death: the allowed address, the name; and the status of the run.
GOES_ON, NO_NETWORK, OVER = "goes on", "no network", "over"
VICTIMS = {"main": OVER, "keeper": NO_NETWORK, "gate": GOES_ON, "resolver": GOES_ON, "bwrap": OVER, "init": OVER, "command": OVER}


@pytest.mark.parametrize("moment", ["rest", "load"])
@pytest.mark.parametrize("victim", VICTIMS)
def test_killed(box, victim, moment):
    before = leftovers()
    run = Run(box, moment)
    os.kill(run.pid(victim), signal.SIGKILL)
    time.sleep(0.3)
    reached, code, err = run.end(patience=15 if VICTIMS[victim] == GOES_ON else 0)  # the next one has to start first
    if VICTIMS[victim] == OVER:
        assert reached is None and code != 0, (reached, code, err)
    else:
        assert code == 3, (reached, code, err)
        assert reached[1] != "connected", (reached, err)
        assert f"the {victim} process of the sandbox died" in err, err
        assert (reached[0] == reached[2] == "connected") == (VICTIMS[victim] == GOES_ON), (reached, err)
    assert_nothing_left(before)


@pytest.mark.parametrize("victim", ["main", "keeper", "gate", "resolver", "bwrap"])
def test_killed_at_the_start(box, victim):
    """As soon as it is there: either the run goes on with another, or it does not begin."""
    before = leftovers()
    run = Run(box, "start")
    os.kill(run.pid(victim), signal.SIGKILL)
    reached, code, err = run.end(40)
    assert code in (3, 125, 137, -9), (code, err)
    assert code != 3 or reached[1] != "connected", (reached, err)
    assert code != 125 or err.startswith("penstock: "), err
    assert_nothing_left(before)


@pytest.mark.parametrize("victim", ["keeper", "gate", "resolver"])
def test_killed_again_and_again(box, victim):
    """Until it is not started any more: what is left is refused, and the command goes on."""
    before = leftovers()
    run = Run(box, "load")
    for _ in range(8):
        if pid := run.find(victim):
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.1)
    reached, code, err = run.end()
    assert code == 3 and reached[1] != "connected", (reached, code, err)
    assert_nothing_left(before)


@pytest.mark.parametrize("victim", ["keeper", "gate", "resolver"])
def test_stopped(box, victim):
    """A process that does nothing any more (SIGSTOP): clients get an error, and the end does not wait for it."""
    before = leftovers()
    run = Run(box, "load")
    os.kill(run.pid(victim), signal.SIGSTOP)
    reached, code, err = run.end(60)
    assert code == 3 and reached[1] != "connected", (reached, code, err)
    assert_nothing_left(before)


# ---- limits ----

@pytest.mark.parametrize("files", [8, 20, 32, 64])
def test_few_descriptors(box, files):
    """RLIMIT_NOFILE: the run does not begin, and says so, or works within it."""
    before = leftovers()
    def limit():
        import resource
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    operations = [["hold", "203.0.113.1", zone.PORT_IDLE, 40], ["connect", "198.51.100.1", 2525], ["udp_flows", "203.0.113.1", 7, 20],
                  ["dns_many", "n%d.hosts.example", 30]]
    argv = box.argv(*box.arguments(POLICY, ["/usr/bin/python3", "-B", "probe.py", json.dumps(operations)]))
    process = subprocess.Popen(argv, cwd=box.project, env=box.environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, preexec_fn=limit, text=True)
    out, err = process.communicate(timeout=60)
    if process.returncode == 0:
        assert json.loads(out)[1]["result"] != "connected", (out, err)
    else:
        assert process.returncode in (1, 125, 127) and err.strip(), (process.returncode, out, err)
    assert_nothing_left(before)


# ---- servers and resolvers ----

BOUND_MS = 25000  # two families, one after the other
FAILING = [
    ["connect", zone.DEAD4, 443],                                     # nobody answers the SYN
    ["tls", "dead.example", 443, "dead.example"],
    ["dns_rcode", "silent.example"],                                  # the name's server says nothing
    ["dns_rcode", "servfail.example"],
    ["tls", "slow.example", 443, "slow.example", False],              # works, late
    ["stay", "203.0.113.1", zone.PORT_IDLE, "GET / HTTP/1.1\r\n\r\n"],  # accepts and never answers: the client may leave
]


def test_servers_that_fail(box):
    """All at once, so that the slowest is all that is waited for."""
    policy = "--allow-cidr 203.0.113.0/24 --allow dead.example --allow silent.example --allow servfail.example --allow slow.example"
    script = "".join(f"/usr/bin/python3 -B probe.py '{json.dumps([operation])}' >answer-{number} & " for number, operation in enumerate(FAILING))
    result = box.run(policy, "sh", "-c", script + "wait; cat answer-*", timeout=60)
    answers = [json.loads(line)[0] for line in result.out.strip().split("\n")]
    assert len(answers) == len(FAILING) and max(answer["ms"] for answer in answers) < BOUND_MS, result
    assert "200 OK" in str(answers[4]["result"]) and answers[5]["result"] == "stayed", result
    assert all(answers[i]["result"] not in ("connected", 0) and "200" not in str(answers[i]["result"]) for i in range(4)), result


def test_server_dies_during_a_transfer(box):
    """The client sees the end that the server's host gave, not a connection that stays."""
    server = subprocess.Popen(box.lab.inside() + ["/usr/bin/python3", "-c", "import socket\ns = socket.create_server(('203.0.113.77', 7777))\n"
                              "print('ready', flush=True)\nc, _ = s.accept()\nwhile True: c.sendall(bytes(65536))"], stdout=subprocess.PIPE)
    assert server.stdout.readline() == b"ready\n"
    script = ("import socket\ns = socket.create_connection(('203.0.113.77', 7777))\ns.settimeout(20)\nn = 0\n"
              "try:\n while d := s.recv(65536):\n  n += len(d)\n  if n > 1 << 20 and n - len(d) <= 1 << 20: print('much', flush=True)\n"
              " print('end')\nexcept OSError as e: print(type(e).__name__)\n")
    run = box.popen(box.arguments(POLICY, ["/usr/bin/python3", "-c", script]), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert run.stdout.readline() == b"much\n"
    server.kill()
    server.wait()
    out, err = run.communicate(timeout=RUN_TIMEOUT)
    assert out.decode().strip() in ("end", "ConnectionResetError"), (out, err)


def test_log_that_nobody_reads(box):
    """The decision log is a pipe whose reader stopped: new work waits and is not let through unlogged; the run ends when
    the reader goes."""
    before = leftovers()
    reader, writer = os.pipe()
    options = f"--log /dev/fd/{writer} --allow-cidr 203.0.113.0/24"
    run = box.popen(box.arguments(options, ["/usr/bin/python3", "-B", "probe.py", json.dumps([["dns_many", "x%d.example", 9000]])]),
                    stdout=subprocess.PIPE, stderr=subprocess.PIPE, pass_fds=[writer])
    os.close(writer)
    try:
        run.communicate(timeout=4)
        ended = True
    except subprocess.TimeoutExpired:
        ended = False
    os.close(reader)
    out, err = run.communicate(timeout=60) if not ended else (b"", b"")
    assert ended or b"decision log" in err or run.returncode == 0, (out, err)
    assert_nothing_left(before)


def test_keeper_is_missed_when_its_gate_was_missed_first(box):
    """Nothing would answer the sandbox's connections then: they are refused, and do not hang."""
    run = Run(box, "rest")
    gate, keeper = run.pid("gate"), run.pid("keeper")
    run.process.send_signal(signal.SIGSTOP)
    for pid in (gate, keeper):
        os.kill(pid, signal.SIGKILL)
        time.sleep(0.2)
    run.process.send_signal(signal.SIGCONT)
    time.sleep(0.3)
    reached, code, err = run.end()
    assert code == 3 and reached[:2] == ["ConnectionRefusedError"] * 2, (reached, code, err)
    assert "the keeper process of the sandbox died" in err, err


# ---- many ----

def test_many_sandboxes_leave_no_trace(box):
    """PENSTOCK_RUNS=1000: so many in a row, of which each tenth is killed. No descriptor, process, mount or file stays."""
    def run(number):
        if number % 10 == 9:
            one = Run(box, "start")
            one.pid("gate")
            one.process.kill()
            one.process.communicate()
        else:
            assert box.raw("run", *POLICY.split(), "--", "true").code == 0
    run(0)
    before, files = leftovers(), open_files()
    for number in range(LONG or 10):
        run(number)
    assert_nothing_left(before, 10)
    assert open_files() <= files + 5, (files, open_files())


def open_files():
    """Of all processes of the lab."""
    count = 0
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            count += len(os.listdir(f"/proc/{pid}/fd"))
        except OSError:  # it has just ended
            continue
    return count


def test_bubblewrap_dies_while_it_makes_a_sandbox(box):
    """Whenever that is: said at once, and its child does not stay."""
    before = leftovers()
    codes = set()
    for turn in range(60):
        process = box.popen(box.arguments(POLICY, ["true"]), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        found, end = [], time.monotonic() + 5
        while not found and process.poll() is None and time.monotonic() < end:
            found = [pid for pid, words in children_of(process.pid).items() if words[0] == "bwrap"]
        time.sleep(turn * 0.00003)
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        err = process.communicate(timeout=END_SECONDS)[1]
        codes.add(process.returncode)
        assert process.returncode in (0, 125, 137) and (process.returncode != 125 or b"penstock: " in err), (process.returncode, err)
    assert 125 in codes
    assert_nothing_left(before)
