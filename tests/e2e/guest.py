# SPDX-License-Identifier: Apache-2.0
"""A sandbox that stays and does what it is told, one operation of courier.py after the other: so a file of tests starts few.

HOSTS have credentials, each of its own secret in a file; all hosts of the lab below are allowed, with a credential or not."""
import json
import os
import re
import select
import shlex
import shutil
import subprocess
import time

import lab as lab_module
import zone
from conftest import HERE, RUN_TIMEOUT

PYTHON = "/usr/bin/python3"
ALLOWED = ["github.com", "api.github.com", "api.mistral.ai", "grpc.example", "v4.example", "both.example", *zone.BOUND]
HOSTS = ["keys.example", "h1.example", "h2.example", "noalpn.example", "grpc.example", "tls12.example", "tls11.example",
         "expired.example", "wrongname.example", "selfsigned.example", "unknownca.example"]
UNBOUND = "elsewhere.example"  # of the same server, with no credential
OUR_CA = "Penstock"            # begins the name of the CA


class Guest:
    counter = 0

    def __init__(self, box, credentials, env=(), allow=(), options=(), limits=None, command=None):
        Guest.counter += 1
        self.box, self.number, self.asked = box, Guest.counter, 0
        self.state = os.path.join(box.home, "state")
        shutil.copy(os.path.join(HERE, "courier.py"), box.project)
        policy = {"version": 1, "allow": [{"host": host} for host in ALLOWED] + list(allow), "credentials": credentials}
        if limits:
            policy["limits"] = limits
        self.env = {"PENSTOCK_STATE_FOLDER": self.state, **dict(env)}
        self.log_path = os.path.join(box.home, f"guest-{os.getpid()}-{self.number}.jsonl")
        arguments = box.arguments(["--policy", box.policy_file(policy), "--log", self.log_path, *options],
                                  command or [PYTHON, "-B", "courier.py"])
        self.errors = open(self.log_path + ".stderr", "w+", encoding="utf-8")
        self.process = box.popen(arguments, env=self.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors)

    def __enter__(self):
        self.do("environment")  # so it has started
        return self

    def __exit__(self, *unused):
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise

    def ask(self, function, wait=RUN_TIMEOUT, **arguments):
        """The operation's answer: {"result"} or {"error"}."""
        self.asked += 1
        try:
            self.process.stdin.write((json.dumps([self.asked, function, arguments]) + "\n").encode())
            self.process.stdin.flush()
        except BrokenPipeError:
            raise AssertionError(f"the sandbox ended with {self.process.wait(10)}\n{self.stderr()}") from None
        end = time.monotonic() + wait
        while True:
            answer = json.loads(self.line(end, f"{function} {arguments}"))
            if answer.pop("number") == self.asked:  # else that of one which had no answer in time
                return answer

    def line(self, end, what):
        line = b""
        while not line.endswith(b"\n"):
            if not select.select([self.process.stdout], [], [], max(end - time.monotonic(), 0))[0]:
                raise AssertionError(f"{what}: no answer in time\n{self.stderr()}")
            data = os.read(self.process.stdout.fileno(), 1 << 16)
            if not data:
                raise AssertionError(f"{what}: the sandbox ended with {self.process.wait(10)}\n{self.stderr()}")
            line += data
        return line

    def do(self, function, **arguments):
        answer = self.ask(function, **arguments)
        assert "result" in answer, (function, arguments, answer, self.stderr())
        return answer["result"]

    def request(self, host, path="/headers", method="GET", headers="", body="", **options):
        """One HTTP/1.1 request, on a connection of its own. The answers, parsed."""
        text = f"{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{headers}\r\n{body}"
        return parse(self.do("h1", host=host, text=text, **options)["text"])

    def run(self, *argv, **options):
        options.setdefault("timeout", RUN_TIMEOUT - 10)
        return self.do("run", wait=options["timeout"] + 10, argv=list(shlex.split(argv[0]) if len(argv) == 1 else argv), **options)

    def stderr(self):
        self.errors.seek(0)
        return self.errors.read()

    def log(self, **wanted):
        return [line for line in lab_module.json_lines(self.log_path) if all(line.get(key) == value for key, value in wanted.items())]


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    def __repr__(self):
        return f"<{self.status} {self.headers} {self.body[:500]!r}>"

    def header(self, name):
        return ", ".join(value for key, value in self.headers if key == name)


def parse(text):
    """The HTTP/1 answers in a text, as long as they are whole; the last one may end with the text."""
    answers = []
    while match := re.match(r"HTTP/1\.1 (\d{3})[^\r]*\r\n((?:[^\r\n]+\r\n)*)\r\n", text):
        text = text[match.end():]
        headers = [(name.lower(), value.strip()) for name, _, value in (line.partition(":") for line in match[2].splitlines())]
        answer = Answer(int(match[1]), headers, "")
        if answer.header("transfer-encoding") == "chunked":
            while chunk := re.match(r"([0-9a-fA-F]+)[^\r\n]*\r\n", text):
                size = int(chunk[1], 16)
                answer.body += text[chunk.end():chunk.end() + size]
                text = text[chunk.end() + size + 2:]
                if not size:
                    break
        elif 100 <= answer.status < 200 or answer.status in (204, 304):
            pass
        elif answer.header("content-length"):
            size = int(answer.header("content-length"))
            answer.body, text = text[:size], text[size:]
        else:
            answer.body, text = text, ""
        answers.append(answer)
    return answers


def values(entry, name):
    """Those of a header in a request that a server logged."""
    return [value for key, value in entry["headers"] if key.lower() == name]


def since(box, function, **wanted):
    """The answer of function, and what the servers logged while it ran."""
    before = len(box.lab.credentials())
    answer = function()
    new = box.lab.credentials()[before:]
    return answer, [entry for entry in new if all(entry.get(key) == value for key, value in wanted.items())]


def got(entries, name="authorization"):
    """The values of a header in each request among the entries of a log."""
    return [values(entry, name) for entry in entries if entry.get("event") in ("request", "call")]


class Secrets:
    """Values in files outside the sandbox, one for each host."""

    def __init__(self, box, tag):
        self.box, self.folder, self.values = box, os.path.join(box.home, "secrets-" + tag), {}
        os.makedirs(self.folder, exist_ok=True)
        box.give(self.folder)

    def path(self, name):
        return os.path.join(self.folder, name)

    def put(self, name, value):
        """Replaces the file, as rotations should."""
        path = self.path(name)
        with open(path + ".new", "w", encoding="utf-8") as file:
            file.write(value + "\n")
        os.chmod(path + ".new", 0o600)
        self.box.give(path + ".new")
        os.rename(path + ".new", path)
        self.values[name] = value
        return "file:" + path


def bearer(secrets, hosts=HOSTS, **more):
    """A binding of Authorization for each host, with a secret of its own."""
    return [{"host": host, "header": "Authorization", "value": "Bearer {secret}",
             "secret": secrets.put(host, f"labtok_{host.partition('.')[0]}_{os.urandom(6).hex()}"), **more} for host in hosts]


def memory(pid):
    """Bytes that a process has in memory, whoever it belongs to."""
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("VmRSS:"))


def descendants(pid):
    """The process and all below it: {pid: command line}."""
    children = {}
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/stat", encoding="utf-8", errors="replace") as file:
                parent = int(file.read().rpartition(")")[2].split()[1])
            with open(f"/proc/{entry}/cmdline", "rb") as file:
                children.setdefault(parent, []).append((int(entry), file.read().replace(b"\0", b" ").decode(errors="replace")))
        except OSError:
            continue
    found, todo = {}, [(pid, "")]
    while todo:
        number, line = todo.pop()
        found[number] = line
        todo += children.get(number, [])
    return found


def role(guest, name):
    """The pids of penstock's processes in that role that serve this guest, parents first."""
    pids = sorted(pid for pid, line in descendants(guest.process.pid).items() if f"@{name}" in line)
    assert pids, (name, descendants(guest.process.pid))
    return pids


def gate_memory_if_plain(guest):
    """Bytes; always 0 in a build with a sanitizer, which keeps what was freed and takes no options in a gate, whose environment is
    empty. There these tests say nothing about memory; their run with the plain build does."""
    with open(guest.box.program, "rb") as file:
        if b"__asan_init" in file.read():
            return 0
    return sum(memory(pid) for pid in role(guest, "gate"))
