# SPDX-License-Identifier: Apache-2.0
"""Any process of a node is killed, or one of its calls fails, at any of its system calls in the middle of anything: what was running
runs on under its policy, what was acknowledged is so, nothing half made is left, and nothing that is denied is ever reached.

`make check` tries some of the calls, others with another PENSTOCK_RUNS_SEED; PENSTOCK_RUNS=all tries every one, which takes about half
an hour, PENSTOCK_RUNS=20 twenty of each kind. tests/fault/strike.c does the killing."""
import contextlib
import errno
import os
import random
import shutil
import signal
import tempfile
import threading
import time

import pytest

import engine as engine_module
import lab as lab_module
import zone
from survival import Node, Registry, Strike, Things, holders, wait_for

RUNS, SEED = os.environ.get("PENSTOCK_RUNS", ""), os.environ.get("PENSTOCK_RUNS_SEED", "1")
ROOT = lab_module.starter() == "root"
FIRST, SECOND, NEVER = "203.0.113.1", "203.0.113.2", "203.0.113.3"
CYCLES = 20
NAMED = (f"version: 1\nbase: deny\nallow:\n  - {{cidr: {FIRST}/32}}\n  - {{host: v4.example}}\n"
         f"  - {{host: both.example, protocol: tcp, ports: [{zone.PORT_BANNER}]}}\ncredentials:\n"
         "  - {host: v4.example, header: X-Key, secret: 'store:struck'}\n")
SPEAK = f"busybox nc -w 5 both.example {zone.PORT_BANNER} </dev/null | grep -q 220"


def only(address):
    return {"allowOut": [f"{address}/32"], "denyOut": ["0.0.0.0/0"]}


def root_only(function):
    """Collected only where root started the tests: containers are root's."""
    return function if ROOT else None


def chosen(count, few, name):
    """Which of calls 1 to count are struck."""
    if RUNS == "all":
        return range(1, count + 1)
    few = int(RUNS) if RUNS else few
    return sorted(random.Random(SEED + name).sample(range(1, count + 1), min(few, count)))


class Station:
    """The node, a template "base", and one sandbox that lives through all of it, which tries to reach what it must not."""

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="penstock-survival-", dir="/var/tmp")
        self.registry, self.node = Registry(os.path.join(self.folder, "registry")), Node(self.folder)
        self.node.secret("struck", "value")
        self.node.start()
        first = self.node.good("POST", "/sandboxes-cold", {"image": "base:one", "timeout": 3600})["sandboxID"]
        self.node.good("POST", f"/sandboxes/{first}/snapshots", {"name": "base"})
        self.node.delete(first)
        self.things = Things(self.node)
        self.kept = self.create()
        self.node.exec(self.kept, "sh", "-c", f"while :; do busybox nc -w 1 {NEVER} {zone.PORT_BANNER} </dev/null && touch /opened; "
                                              "sleep 0.1; done >/dev/null 2>&1 </dev/null &")

    def end(self):
        self.clear()
        self.node.delete(self.kept)
        self.things.check("at the end")
        self.node.end()
        self.registry.end()
        shutil.rmtree(self.folder)

    def create(self):
        return self.node.create("base", network=only(FIRST))

    def reached(self, sandbox):
        """What it gets a connection to."""
        text = f"for a in {FIRST} {SECOND} {NEVER}; do busybox nc -w 5 $a {zone.PORT_BANNER} </dev/null | grep -q 220 && echo $a; done"
        return set(self.node.exec(sandbox, "sh", "-c", text)[1].split())

    def settled(self):
        """Whether all that there is belongs to a sandbox that is there."""
        listed = self.node.listed()
        groups = {os.path.basename(path) for path in engine_module.cgroups()}
        shims = [text.split()[2] for text in engine_module.processes().values() if text.startswith("penstock @shim ") and "/." not in text]
        return (set(listed.values()) <= {"running", "paused"} and set(self.node.folders()) == set(listed) == groups and
                sorted(os.path.basename(path) for path in shims) == sorted(listed))

    def settle(self, what):
        def state():
            shown = {pid: text for pid, text in engine_module.processes().items() if "@" in text or "crun" in text or "init" in text}
            return (f"{what}: {self.node.listed()} {self.node.folders()} {engine_module.cgroups()} {shown} "
                    f"{holders(os.path.join(self.node.state, 'sandboxes'))} {self.node.said()[-2000:]}")
        wait_for(self.settled, state, 30)

    def clear(self):
        """Removes all but the kept one, and snapshots and templates but "base"."""
        for sandbox in set(self.node.listed()) - {self.kept}:
            self.node.delete(sandbox)
        for item in self.node.good("GET", "/templates") + self.node.good("GET", "/snapshots"):
            if "base" not in str(item.get("names") or item.get("aliases")):
                self.node.good("DELETE", f"/templates/{item.get('snapshotID') or item['templateID']}")

    def check_kept(self, what, reach=(FIRST,)):
        status, detail = self.node.call("GET", f"/sandboxes/{self.kept}")
        assert status == 200, (what, status, detail, self.node.said())
        if detail["state"] == "paused":
            self.node.good("POST", f"/sandboxes/{self.kept}/connect", {"timeout": 3600})
        reached = self.reached(self.kept)
        assert reached in [{address} for address in reach], (what, reached, self.node.said())
        assert self.node.exec(self.kept, "sh", "-c", "test -e /opened")[0] == 1, what
        return reached


@pytest.fixture(scope="module")
def station(lab):
    made = Station()
    yield made
    made.end()


# ---- what is asked of a node ----

def do_create(station, _):
    return station.node.call("POST", "/sandboxes", {"templateID": "base", "timeout": 3600, "network": only(FIRST)})


def do_create_named(station, _):
    """One with a name, that it asks for at once, and a credential."""
    status, answer = station.node.call("POST", "/sandboxes", {"templateID": "base", "timeout": 3600, "policy": NAMED})
    if status < 300:
        station.node.call("POST", f"/sandboxes/{answer['sandboxID']}/exec", {"cmd": ["sh", "-c", SPEAK]})
    return status, answer


def do_delete(station, sandbox):
    return station.node.call("DELETE", f"/sandboxes/{sandbox}")


def do_pause(station, sandbox):
    return station.node.call("POST", f"/sandboxes/{sandbox}/pause")


def do_connect(station, sandbox):
    return station.node.call("POST", f"/sandboxes/{sandbox}/connect", {"timeout": 3600})


def do_snapshot(station, sandbox):
    return station.node.call("POST", f"/sandboxes/{sandbox}/snapshots", {"name": "taken"})


def do_fork(station, sandbox):
    return station.node.call("POST", f"/sandboxes/{sandbox}/fork", {"count": 1})


def do_update(station, sandbox):
    return station.node.call("PUT", f"/sandboxes/{sandbox}/network", only(SECOND))


def do_build(station, _):
    status, made = station.node.call("POST", "/v3/templates", {"name": "built"})
    if status != 202:
        return status, made
    place = f"templates/{made['templateID']}/builds/{made['buildID']}"
    status, answer = station.node.call("POST", f"/v2/{place}", {"fromTemplate": "base", "steps": [
        {"type": "RUN", "args": ["touch /built"]}]})
    wait_for(lambda: station.node.call("GET", f"/{place}/status")[1]["status"] not in ("waiting", "building"), "the build ends")
    return status, answer


# Name, what is done, whether it is done to the kept sandbox (else to one of its own, or to none), how many calls are struck.
OPERATIONS = [("create", do_create, None, 5), ("delete", do_delete, False, 3), ("pause", do_pause, True, 2), ("connect", do_connect, True, 2),
              ("snapshot", do_snapshot, True, 3), ("fork", do_fork, True, 3), ("update", do_update, True, 4), ("build", do_build, None, 3)]
NAMES = [row[0] for row in OPERATIONS]


def prepare(station, name, kept):
    sandbox = {None: None, False: None, True: station.kept}[kept]
    if kept is False:
        sandbox = station.create()
    if name == "connect":
        station.node.good("POST", f"/sandboxes/{sandbox}/pause")
    return sandbox


def count_calls(station, name, action, kept, pid=None, word="self"):
    """How many calls a process makes meanwhile. Leaves things as they were."""
    sandbox = prepare(station, name, kept)
    if word != "self":
        station.node.no_spare()
    strike = Strike(pid or station.node.process.pid, word)
    status, answer = action(station, sandbox)
    assert status < 300, (name, status, answer)
    count = strike.end()[1]
    restore(station, name)
    return count


def restore(station, name):
    station.settle(name)
    if station.node.listed()[station.kept] == "paused":
        station.node.good("POST", f"/sandboxes/{station.kept}/connect", {"timeout": 3600})
    if name == "update":
        station.node.good("PUT", f"/sandboxes/{station.kept}/network", only(FIRST))
    station.clear()


def acknowledged(station, name, sandbox, answer):
    """What was answered well is so."""
    listed = station.node.listed()
    if name == "create":
        assert listed[answer["sandboxID"]] == "running"
    if name == "delete":
        assert sandbox not in listed
    if name in ("pause", "connect"):
        assert listed[sandbox] == ("paused" if name == "pause" else "running")
    if name == "snapshot":
        assert "taken" in str(station.node.good("GET", "/snapshots"))
    if name == "fork":
        assert listed[answer[0]["sandbox"]["sandboxID"]] == "running"


# ---- the daemon is killed ----

def kill_daemon(station, name, action, kept, nth):
    what = f"{name}, the daemon killed at its call {nth}"
    sandbox, answers = prepare(station, name, kept), []
    strike = Strike(station.node.process.pid, "self", nth)

    def ask():
        with contextlib.suppress(Exception):
            answers.append(action(station, sandbox))
    thread = threading.Thread(target=ask)
    thread.start()
    wait_for(lambda: station.node.process.poll() is not None or not thread.is_alive(), what)
    strike.end()
    station.node.end(9)
    thread.join()
    station.node.start()
    station.settle(what)
    good = bool(answers) and answers[0][0] < 300
    if good:
        acknowledged(station, name, sandbox, answers[0][1])
    reach = (FIRST, SECOND) if name == "update" else (FIRST,)
    reached = station.check_kept(what, (SECOND,) if good and name == "update" else reach)
    url = f"https://{SECOND}/"
    says = station.node.good("GET", f"/sandboxes/{station.kept}/explain?url={url}")["verdict"]
    assert (says != "deny") == (SECOND in reached), (what, says, reached)
    for other in set(station.node.listed()) - {station.kept, sandbox}:
        assert station.reached(other) == ({FIRST} if name != "build" else set()), what
    restore(station, name)
    one_layer(station, what)


@root_only
@pytest.mark.parametrize("name,action,kept,few", OPERATIONS, ids=NAMES)
def test_the_daemon_is_killed(station, name, action, kept, few):
    count = count_calls(station, name, action, kept)
    for nth in chosen(count, few, "daemon" + name):
        kill_daemon(station, name, action, kept, nth)


def one_layer(station, what):
    wait_for(lambda: len(station.node.layers()) == 1, lambda: f"{what}: {station.node.layers()} {station.node.said()}", 10)


# ---- who has just started a process is killed ----

def start_spare(station):
    station.node.delete(station.create())  # takes the one that there is


def start_shim(station):
    with contextlib.suppress(Exception):  # of a daemon that is killed
        do_create(station, None)


def run_command(station):
    with contextlib.suppress(AssertionError):  # it says that the sandbox has ended
        station.node.exec(station.target, "true")


# What starts them; who is hit, and whether it is there before; how many it starts; whether there is a spare shim when it begins.
PARENTS = [("spare shim", start_spare, "@shim", 3, True), ("shim", start_shim, "@shim", 4, False), ("command", run_command, "shim", 1, True),
           ("daemon", start_shim, "self", 1, False)]


@root_only
@pytest.mark.parametrize("name,action,word,count,spare", PARENTS, ids=[row[0] for row in PARENTS])
def test_a_process_that_has_just_been_started_ends_with_who_started_it(station, name, action, word, count, spare):
    for nth in range(1, count + 1):
        what = f"{name} killed with its child {nth}"
        station.node.delete(station.create())
        station.target = station.create() if word == "shim" else None
        wait_for(station.node.spare, "a spare shim")
        if not spare:
            station.node.no_spare()
        strike = Strike(part_of(station, station.target, word) if word == "shim" else station.node.process.pid,
                        "self" if word == "shim" else word, nth, "orphan")
        thread = threading.Thread(target=action, args=[station])
        thread.start()
        assert strike.hears(), (what, strike.end(), station.node.said())
        strike.end()
        if word == "self":
            station.node.end(9)
        thread.join()
        if word == "self":
            station.node.start()
        wait_for(lambda: not station.node.strays(), lambda: f"{what}: {station.node.strays()}", 10)
        station.settle(what)
        station.clear()


# ---- shims that do not answer ----

@root_only
def test_a_shim_that_stands_still_is_ended(station):
    """Whether it has its socket still or not: it is no longer there for the next daemon."""
    dumb, lost, running = station.create(), station.create(), station.create()
    thread = threading.Thread(target=lambda: station.node.call("POST", f"/sandboxes/{running}/exec", {"cmd": ["sleep", "1000"]}))
    thread.start()
    wait_for(lambda: any(text.startswith("sleep 1000") for text in engine_module.processes().values()), "it runs")
    station.node.good("POST", f"/sandboxes/{running}/pause")
    begin = time.monotonic()
    station.node.delete(running)
    assert time.monotonic() - begin < 8, "a paused sandbox with a command is ended by force only"
    thread.join()
    for sandbox in (dumb, lost):
        os.kill(station.node.shim(sandbox), signal.SIGSTOP)
    os.unlink(os.path.join(station.node.state, "sandboxes", lost, "control.sock"))
    station.node.end(9)
    station.node.start()
    station.node.delete(dumb)
    station.settle("shims stand still")
    assert list(station.node.listed()) == [station.kept]
    wait_for(lambda: not station.node.strays(), lambda: station.node.strays(), 10)


# ---- another process is killed ----

PARTS = [("@shim", do_create, 6), ("@keeper", do_create, 3), ("@gate", do_create, 3), ("crun", do_create, 3),
         ("@resolver", do_create_named, 2), ("@vault", do_create_named, 2)]


def judge_create(station, what, status, answer):
    """It works as it should, or it failed, says why, and nothing is left."""
    if status < 300:
        sandbox = answer["sandboxID"]
        reached = station.reached(sandbox) if station.node.listed().get(sandbox) == "running" else set()
        assert reached <= {FIRST}, (what, reached)
        station.node.call("DELETE", f"/sandboxes/{sandbox}")
    else:
        assert status >= 500 and answer["message"], (what, status, answer)
    station.settle(what)
    assert list(station.node.listed()) == [station.kept], what


@root_only
@pytest.mark.parametrize("word,action,few", PARTS, ids=[row[0] for row in PARTS])
def test_a_process_is_killed_while_a_sandbox_starts(station, word, action, few):
    count = count_calls(station, "create", action, None, word=word)
    for nth in chosen(count, few, "create" + word):
        what = f"{word} killed at its call {nth}"
        station.node.no_spare()
        strike = Strike(station.node.process.pid, word, nth)
        status, answer = action(station, None)
        strike.end()
        if word == "@resolver":  # another one is in its place
            wait_for(lambda: station.node.exec(answer["sandboxID"], "sh", "-c", SPEAK)[0] == 0, what, 10)
        judge_create(station, what, status, answer)


@root_only
def test_a_spare_shim_is_killed(station):
    station.node.delete(station.create())  # then there is one
    strike = Strike(wait_for(station.node.spare, "a spare shim"))
    station.node.delete(station.create())
    count = strike.end()[1]
    for nth in chosen(count, 4, "spare"):
        strike = Strike(wait_for(station.node.spare, "a spare shim"), "self", nth)
        status, answer = do_create(station, None)
        strike.end()
        judge_create(station, f"spare shim killed at its call {nth}", status, answer)


@root_only
@pytest.mark.parametrize("word", ["shim", "gate", "keeper"])
def test_a_process_is_killed_while_a_sandbox_runs(station, word):
    for name, action in [("update", do_update), ("snapshot", do_snapshot), ("fork", do_fork), ("pause", do_pause), ("delete", do_delete)]:
        if word != "shim" and name not in ("update", "delete"):
            continue
        sandbox = station.create()
        strike = Strike(part_of(station, sandbox, word))
        assert action(station, sandbox)[0] < 300
        count = strike.end()[1]
        station.clear()
        for nth in chosen(count, 2, word + name):
            what = f"{name}, the {word} killed at its call {nth}"
            sandbox = station.create()
            strike = Strike(part_of(station, sandbox, word), "self", nth)
            status, answer = action(station, sandbox)
            struck = strike.end()[0]
            station.settle(what)
            state = station.node.listed().get(sandbox)
            if word == "shim" and struck:
                assert state is None, what
            elif state == "running":
                reached = station.reached(sandbox)
                allowed = {frozenset(), frozenset({SECOND})} if name == "update" and status < 300 else {frozenset(), frozenset({FIRST}),
                                                                                                  frozenset({SECOND})}
                assert reached in allowed, (what, status, answer, reached)
            station.clear()
            one_layer(station, what)


def part_of(station, sandbox, word):
    shim = station.node.shim(sandbox)
    assert shim, (sandbox, engine_module.processes())
    if word == "shim":
        return shim
    for pid, text in engine_module.processes().items():
        if not text.startswith(f"penstock @{word} "):
            continue
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            if int(file.read().rsplit(")", 1)[1].split()[1]) == shim:
                return pid
    raise AssertionError(f"no {word} of {sandbox}")


# ---- a call fails ----

NUMBERS = {"x86_64": dict(write=1, open=2, mmap=9, pwrite64=18, socket=41, sendmsg=46, socketpair=53, clone=56, vfork=58, fcntl=72,
                          fsync=74, fdatasync=75, mkdir=83, mount=165, openat=257, mkdirat=258, unshare=272, pipe2=293, memfd_create=319,
                          pidfd_open=434, clone3=435, epoll_create1=291, eventfd2=290, timerfd_create=283, setns=308, bind=49, listen=50),
           "aarch64": dict(fcntl=25, mkdirat=34, mount=40, openat=56, pipe2=59, write=64, pwrite64=68, fsync=82, fdatasync=83,
                           unshare=97, socket=198, socketpair=199, bind=200, listen=201, sendmsg=211, clone=220, mmap=222, setns=268,
                           memfd_create=279, pidfd_open=434, clone3=435, epoll_create1=20, eventfd2=19, timerfd_create=85)}
ERRORS = [errno.ENOSPC, errno.EMFILE, errno.ENOMEM]


@root_only
@pytest.mark.parametrize("word,few", [("self", 4), ("@shim", 6), ("@keeper", 2), ("@gate", 2), ("crun", 2)])
def test_a_call_fails_while_a_sandbox_starts(station, word, few):
    calls = sorted(NUMBERS[os.uname().machine].values())
    if word != "self":
        station.node.no_spare()
    strike = Strike(station.node.process.pid, word, 0, "kill", calls)
    status, answer = do_create(station, None)
    count = strike.end()[1]
    judge_create(station, "nothing fails", status, answer)
    for nth in chosen(count, few, "fail" + word):
        for number in ERRORS if RUNS == "all" else [ERRORS[nth % len(ERRORS)]]:
            if word != "self":
                station.node.no_spare()
            strike = Strike(station.node.process.pid, word, nth, number, calls)
            status, answer = do_create(station, None)
            strike.end()
            judge_create(station, f"call {nth} of {word} fails with {errno.errorcode[number]}", status, answer)


# ---- cycles ----

@root_only
def test_many_cycles_leave_nothing(station):
    station.clear()
    things, descriptors = Things(station.node), []
    for _ in range(CYCLES):
        station.node.delete(station.create())
        descriptors.append(station.node.descriptors())
    things.check(f"after {CYCLES} cycles")
    assert min(descriptors[-5:]) <= min(descriptors[:5]), descriptors  # connections that are just closing count too


@root_only
def test_sandboxes_outlive_a_daemon_that_ends(station):
    """But not the commands that somebody waits for."""
    before = station.node.shim(station.kept)

    def wait():
        with contextlib.suppress(Exception):
            station.node.exec(station.kept, "sleep", "4712")

    def runs():
        return any("sleep 4712" in text for text in engine_module.processes().values())
    waiter = threading.Thread(target=wait)
    waiter.start()
    wait_for(runs, "the command does not run")
    station.node.end()
    waiter.join()
    wait_for(lambda: not runs(), "the command outlives the daemon")
    assert station.node.rows() == {station.kept: "running"}
    station.node.start()
    station.settle("after a restart")
    assert station.node.shim(station.kept) == before
    station.check_kept("after a restart")
