# SPDX-License-Identifier: Apache-2.0
"""Where benchmarks run: anonymous namespaces with a "host" (gates, proxies) and a "server" behind a veth pair, and for
peers that are routers a "client" in front of the host. All of it dies with the first process (see enter()). An Arena is
made afresh for each measured path, so that no TIME_WAIT of one path meets the source ports of the next.
"""
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
INSIDE = "PENSTOCK_BENCH"
SERVER, HOST_OUT, HOST_IN, CLIENT = "20.0.2.2", "20.0.2.1", "20.0.1.1", "20.0.1.2"
UPSTREAM = "127.0.0.2"  # where the host's name responder listens, so that resolvers under test have 127.0.0.1
UID = 1000
NAMES = {mode: f"{mode}.bench.example" for mode in ("rate", "down", "up", "idle")}
SETTINGS = {"ipv4/ip_local_port_range": "1024 65535", "ipv4/tcp_congestion_control": "reno", "core/somaxconn": "4096",
            "ipv4/tcp_max_syn_backlog": "8192", "ipv4/tcp_tw_reuse": "1"}


class BenchError(Exception):
    """One line: what is missing or failed, and what to do."""


def enter():
    """Runs this program again as the first process of fresh namespaces. Does not return."""
    command = ["unshare", "--mount", "--net", "--ipc", "--pid", "--fork", "--kill-child=KILL", "--mount-proc"]
    os.environ[INSIDE] = "1"
    os.execvp(command[0], command + ["--", sys.executable, "-B"] + sys.argv)


def folder(build):
    """A tmpfs with copies of the programs, which an ordinary user can reach too; the host's DNS server is ours."""
    path = "/mnt" if not os.getcwd().startswith("/mnt") else "/srv"
    run(["mount", "-t", "tmpfs", "-o", "mode=755", "bench", path])
    for name in ("penstock", "tests/bench/bench-load-client", "tests/bench/bench-load-server",
                 "tests/bench/bench-name-responder", "tests/bench/bench-verdict-cost",
                 "tests/update/update-rig"):
        shutil.copy(os.path.join(build, name), path)
    for name in ("root", "user"):  # homes, each with a project
        os.makedirs(os.path.join(path, name, "project"))
    for name in ("user", "user/project"):
        os.chown(os.path.join(path, name), UID, UID)
    for name, text in (("resolv.conf", f"nameserver {UPSTREAM}\n"), ("hosts", "127.0.0.1 localhost\n")):
        with open(os.path.join(path, name), "w", encoding="utf-8") as file:
            file.write(text)
        run(["mount", "--bind", os.path.join(path, name), os.path.realpath("/etc/" + name)])
    # pasta and slirp4netns need it as an ordinary user; with most distributions it is theirs to open.
    run(["sh", "-ec", f"mknod -m 666 {path}/tun c 10 200; mount --bind {path}/tun /dev/net/tun"])
    run(["ip", "link", "set", "lo", "up"])
    return path


def run(argv, text=None):
    done = subprocess.run(argv, input=text, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        raise BenchError(f"{' '.join(argv)}: {done.stdout.strip() or done.returncode}")
    return done.stdout


def read(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


class Group:
    """Processes whose CPU time and memory are measured: all descendants of one, but those that are (below) a command
    called as `spared`, which is the load."""

    def __init__(self, root, spared=()):
        self.root, self.spared = root, spared

    def pids(self):
        children = {}
        for entry in os.listdir("/proc"):
            fields = read(f"/proc/{entry}/stat") if entry.isdigit() else ""
            if fields:
                children.setdefault(int(fields[fields.rindex(")") + 2:].split()[1]), []).append(int(entry))
        found, todo = [], [self.root]
        while todo:
            pid = todo.pop()
            if read(f"/proc/{pid}/comm").strip() in self.spared:
                continue
            found.append(pid)
            todo += children.get(pid, [])
        return found

    def cpu(self):
        """Seconds on a CPU, with the softirq work that the kernel did in these processes' time."""
        total = 0
        for pid in self.pids():
            try:
                tasks = os.listdir(f"/proc/{pid}/task")
            except OSError:
                continue
            for task in tasks:
                total += int((read(f"/proc/{pid}/task/{task}/schedstat").split() or ["0"])[0])
        return total / 1e9

    def memory(self):
        """KiB of memory of their own, with their share of what they have in common."""
        return sum(int(line.split()[1]) for pid in self.pids() for line in read(f"/proc/{pid}/smaps_rollup").splitlines()
                   if line.startswith("Pss:"))

    def descriptors(self):
        return sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in self.pids())


class Arena:
    def __init__(self, path, client=False):
        self.path, self.processes, self.namespaces = path, [], {}
        for name in ["host", "server"] + (["client"] if client else []):
            self.namespaces[name] = self.namespace()
            self.settings(name, SETTINGS)
        self.link("host", HOST_OUT, "server", SERVER)
        if client:
            self.link("host", HOST_IN, "client", CLIENT)
            self.settings("host", {"ipv4/ip_forward": "1"})
            run(self.inside("client") + ["ip", "route", "add", "default", "via", HOST_IN])
        run(self.inside("server") + ["ip", "route", "add", "default", "via", HOST_OUT])
        run(self.inside("host") + ["ip", "route", "add", "default", "via", SERVER])
        self.start("server", [self.program("load-server"), "443"])
        self.start("host", [self.program("name-responder"), UPSTREAM, SERVER])
        time.sleep(0.1)

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        for process in reversed(self.processes):
            for pid in reversed(Group(process.pid).pids()):
                try:
                    os.kill(pid, signal.SIGKILL)
                except OSError:
                    pass
            process.wait()

    def program(self, name):
        return os.path.join(self.path, "bench-" + name)

    def namespace(self):
        holder = subprocess.Popen(["unshare", "--net", "sh", "-c", "ip link set lo up; echo; exec sleep infinity"],
                                  stdout=subprocess.PIPE)
        self.processes.append(holder)
        if not holder.stdout.readline():
            raise BenchError("unshare --net failed; run as root")
        return f"/proc/{holder.pid}/ns/net"

    def inside(self, name):
        return ["nsenter", f"--net={self.namespaces[name]}", "--"]

    def settings(self, name, values):
        script = "".join(f"echo '{value}' >/proc/sys/net/{key}\n" for key, value in values.items())
        run(self.inside(name) + ["sh", "-ec", script])

    def link(self, first, first_address, second, second_address):
        names = [f"to-{second}", f"to-{first}"]
        run(self.inside(first) + ["ip", "link", "add", names[0], "type", "veth", "peer", "name", names[1], "netns",
                                  self.namespaces[second].split("/")[2]])
        for place, name, address in ((first, names[0], first_address), (second, names[1], second_address)):
            run(self.inside(place) + ["ip", "-batch", "-"], f"addr add {address}/24 dev {name}\nlink set {name} up\n")

    def start(self, name, argv, **options):
        options.setdefault("stdin", subprocess.DEVNULL)
        process = subprocess.Popen(self.inside(name) + argv, **options)
        self.processes.append(process)
        return process


class Shell:
    """A shell in the place that is measured, which runs load programs one after the other. The load client answers with
    one line of JSON."""

    def __init__(self, arena, name, prefix, client_options=(), cwd=None):
        loop = "trap exit TERM; while read -r line; do $line || echo '{}'; done"
        self.arena, self.options = arena, list(client_options)
        self.errors = tempfile.TemporaryFile(mode="w+", dir=arena.path)
        self.process = arena.start(name, prefix + ["/bin/sh", "-c", loop], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   stderr=self.errors, text=True, bufsize=1, cwd=cwd or arena.path)

    def load(self, mode, connections, seconds, wait=True):
        words = [self.arena.program("load-client"), mode, "-c", str(connections), "-d", str(int(seconds * 1000)),
                 "-n", NAMES[mode]] + self.options
        self.say(" ".join(words))
        return self.answer() if wait else None

    def say(self, line):
        self.process.stdin.write(line + "\n")

    def answer(self):
        line = self.process.stdout.readline()
        try:
            result = json.loads(line)
        except ValueError:
            result = None
        if not result:
            self.errors.seek(0)
            raise BenchError(f"the load client failed: {self.errors.read().strip() or 'no message'}")
        return result

    def line(self):
        return self.process.stdout.readline()
