# SPDX-License-Identifier: Apache-2.0
"""Another policy for a sandbox that runs (semantics section 10): whole at one moment for DNS, connections of every kind and
datagrams; what is no longer allowed ends, what still is stays. tests/update/update_rig.c is the main process."""
import json
import os
import shutil
import subprocess
import time

import pytest

import zone
from conftest import PROJECT
from test_limits import HELP

ALWAYS, NEVER, FIRST, SECOND = "203.0.113.1", "198.51.100.33", "203.0.113.2", "203.0.113.3"


class Rig:
    """update-rig with these policies, running a Python script that prints one line of JSON when it gets SIGTERM."""

    def __init__(self, box, policies, script):
        source = os.path.join(os.path.dirname(os.environ.get("PENSTOCK") or os.path.join(PROJECT, "build", "penstock")),
                              "tests/update/update-rig")
        program = box.lab.path("bin/update-rig")
        if not os.path.exists(program):
            shutil.copy(source, program)
            os.chmod(program, 0o755)
        self.log, self.output = os.path.join(box.home, "update.log"), os.path.join(box.home, "update.out")
        files = [box.policy_file({"version": 1, **policy}) for policy in policies]
        command = ["/usr/bin/python3", "-B", "-c", HELP + SCRIPT + script]
        argv = box.lab.as_user(box.kind, [program, zone.ROUTER4, self.log, self.output, *files,
                                          "--", *command])
        self.process = subprocess.Popen(argv, cwd=box.project, env=box.environment(), stdin=-1, stdout=-1, text=True, bufsize=1)
        assert self.answer() == {"ready": 1}

    def answer(self):
        line = self.process.stdout.readline()
        assert line, self.process.poll()
        return json.loads(line)

    def do(self, *words):
        print(*words, file=self.process.stdin, flush=True)
        return self.answer()

    def until(self, name, value=1, seconds=20):
        """Waits until a counter is at least that."""
        end = time.monotonic() + seconds
        while (counters := self.do("count"))[name] < value:
            assert time.monotonic() < end, counters
            time.sleep(0.02)
        return counters

    def stop(self):
        """What the script has to say, and the log."""
        assert self.do("stop") == {"status": 0}
        return json.loads(open(self.output).read()), [line.split() for line in open(self.log)]

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.process.stdin.close()
        self.process.wait(20)


# say(): what is printed at SIGTERM; flag `over` ends loops.
SCRIPT = """
import signal
over = threading.Event()
signal.signal(signal.SIGTERM, lambda *ignored: over.set())
def finish(answer):
    print(json.dumps(answer)); sys.stdout.flush(); os._exit(0)
def dial(host, port):
    with socket.create_connection((host, port), 10): return 'connected'
"""


def entry(host, **more):
    return {"cidr": host + "/32", **more}


LOOP = """
tally = {}
def loop(name, function, *arguments):
    seen = tally[name] = {}
    while not over.is_set():
        result = str(attempt(function, *arguments))
        seen[result] = seen.get(result, 0) + 1
one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
one.connect(('%s', ECHO)); one.settimeout(5)
def datagram():
    one.send(b'x')
    return one.recv(9).decode()
jobs = [('always', dial, '%s', DISCARD), ('never', dial, '%s', DISCARD), ('first', dial, '%s', DISCARD),
        ('second', dial, '%s', DISCARD), ('udp', datagram), ('dns', probe.dns_rcode, 'both.example'),
        ('gone', probe.dns_rcode, 'deny.example')]
threads = [threading.Thread(target=loop, args=job) for job in jobs]
for thread in threads: thread.start()
over.wait()
for thread in threads: thread.join()
finish(tally)
""" % (ALWAYS, ALWAYS, NEVER, FIRST, SECOND)


def test_alternating_updates(box):
    """10,000 of them under a connect loop: what both policies allow always works, what neither does never, and each decision
    is the one of the policy that was in force."""
    common = [entry(ALWAYS), {"host": "both.example"}]
    policies = [{"allow": common + [entry(FIRST)]}, {"allow": [entry(SECOND)] + common}]
    with Rig(box, policies, LOOP) as rig:
        rig.until("flows", 5)
        for _ in range(10):
            assert rig.do("alternate", 1000)["status"] == 0
        tally, log = rig.stop()
    assert set(tally["always"]) == {"connected"} and set(tally["udp"]) == {"x"} and set(tally["dns"]) == {"0"}, tally
    assert set(tally["never"]) == {"ECONNREFUSED"} and set(tally["gone"]) == {"3"}, tally
    for name in ("first", "second"):
        assert set(tally[name]) <= {"connected", "ECONNREFUSED", "ECONNRESET"} and len(tally[name]) >= 2, tally
    assert sum(sum(seen.values()) for seen in tally.values()) > 1000, tally
    wrong = []
    for generation, event, protocol, verdict, reason, port, address, name in log:
        if event != "decision" or protocol != "tcp" or port != str(zone.PORT_DISCARD):
            continue
        allowed = {ALWAYS, SECOND if int(generation) % 2 == 0 else FIRST}
        if (verdict == "allow") != (address in allowed):
            wrong.append((generation, verdict, reason, address))
    assert not wrong, wrong[:10]


HELD = """
held = {}
def hold(name, host, port, text=b''):
    sock = held[name] = socket.create_connection((host, port), 10)
    sock.sendall(text)
    if text: sock.recv(100)
def alive(name):
    sock = held[name]
    sock.settimeout(0.3)
    try:
        while piece := sock.recv(65536): pass
        return 'closed'
    except TimeoutError: return 'open'
    except OSError as error: return probe.name_of(error)
hold('kept', '%s', ECHO, b'x')
hold('closed', '%s', ECHO, b'x')
hold('http', 'both.example', 80, b'GET /zen HTTP/1.1\\r\\nHost: both.example\\r\\n\\r\\n')
hold('http kept', 'other.example', 80, b'GET /zen HTTP/1.1\\r\\nHost: other.example\\r\\n\\r\\n')
first = socket.getaddrinfo('other.example', 80)[0][4][0]
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.connect(('%s', ECHO)); udp.settimeout(2); udp.send(b'u'); udp.recv(9)
over.wait()
def datagram():
    udp.send(b'v')
    return udp.recv(9).decode()
answer = {name: alive(name) for name in held}
answer['udp'] = attempt(datagram)
answer['same'] = socket.getaddrinfo('other.example', 80)[0][4][0] == first
finish(answer)
"""


@pytest.mark.parametrize("keep", [False, True], ids=["close", "keep"])
def test_open_flows(box, keep):
    names = [{"host": "other.example", "protocol": "http"}]
    before = {"allow": names + [{"host": "both.example", "protocol": "http"}, entry(ALWAYS), entry(FIRST)]}
    after = {"allow": names + [entry(ALWAYS, protocol="tcp")]}
    script = HELD % (ALWAYS, FIRST, ALWAYS)
    with Rig(box, [before, after, {"base": "deny"}], script) as rig:
        rig.until("exchanges")
        assert rig.do("damage")["status"] < 0
        answer = rig.do("update", 1, "keep" if keep else "")
        assert (answer["closed"], answer["kept"]) == ((0, 5) if keep else (3, 2)), answer
        assert rig.do("count")["refused"] == 1
        result, log = rig.stop()
    ended = "open" if keep else "ECONNRESET"
    assert result["kept"] == result["http kept"] == "open" and result["same"], result
    assert result["closed"] == result["http"] == ended, result
    assert result["udp"] == "v" if keep else result["udp"] in ("EHOSTUNREACH", "EACCES", "EPERM"), result
    ends = [line for line in log if line[1] == "flow" and line[4] == "policy_changed"]
    assert len(ends) == (0 if keep else 3), log


EARLY = """
def server_first():
    sock = socket.create_connection(('%s', %d), 10)
    sock.settimeout(1)
    return sock
banner = server_first()
got = banner.recv(5)
silent = []
def dialling():
    silent.append(attempt(dial, '%s', %d))
thread = threading.Thread(target=dialling); thread.start()
over.wait()
thread.join(5)
finish([got.decode(), silent])
"""


def test_flows_on_their_way(box):
    """A dial that is under way to what is denied now ends at once, and not when the server answers."""
    blackhole = zone.DEAD4
    script = EARLY % (ALWAYS, zone.PORT_BANNER, blackhole, zone.PORT_DISCARD)
    with Rig(box, [{"allow": [entry("203.0.113.1"), entry(blackhole)]}, {"allow": [entry("203.0.113.1")]}], script) as rig:
        rig.until("flows", 2)
        begin = time.monotonic()
        answer = rig.do("update", 1)
        (got, silent), log = rig.stop()
    assert got.startswith("220") and time.monotonic() - begin < 4, (got, silent)
    assert silent in (["ECONNREFUSED"], ["EHOSTUNREACH"]), (silent, answer, log)
