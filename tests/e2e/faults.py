# SPDX-License-Identifier: Apache-2.0
"""Runs of a penstock in which one call fails (tests/fault), and what must hold in each of them."""
import concurrent.futures
import itertools
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import time

import pytest

import lab as lab_module
import zone

ROLES, KINDS = ("run", "@keeper", "@resolver", "@gate"), ("memory", "descriptor")
AT_ONCE = 3         # runs side by side
RUN_SECONDS = 60
OPERATION_MS = 15000
SIGKILL = 9         # main ends helpers so; no crash
LAYOUT = struct.Struct("<15I32i64i7I")  # struct fault_plan of tests/fault/fault.c

POLICY = {"allow": [{"host": "both.example"}, {"host": "*.hosts.example"}, {"host": "mirror.test", "protocol": "http"},
                    {"host": "db.example", "protocol": "tcp", "ports": [5432]},
                    {"cidr": "203.0.113.0/25", "protocol": "any"}, {"cidr": "203.0.113.0/25", "protocol": "icmp"}]}
GET = "GET /{} HTTP/1.1\r\nHost: {}\r\nConnection: {}\r\n\r\n"
DENIED = "denied.example"

# What is done in the sandbox, and a text that a good answer has. DENY: no answer may look like the service was reached.
DENY = object()
SCENARIO = [
    (["tls", "both.example", 443, "both.example"], "200 OK"),
    (["dns_rcode", DENIED], DENY),
    (["connect", "198.51.100.1", zone.PORT_BANNER], DENY),
    (["banner", "203.0.113.1", zone.PORT_BANNER], "220 "),
    (["banner", "203.0.113.200", zone.PORT_BANNER], DENY),
    (["tls", "198.51.100.25", 443, DENIED], DENY),
    (["send_and_read", "mirror.test", 80, GET.format("a", "mirror.test", "keep-alive") + GET.format("b", "mirror.test", "close")],
     "lab mirror.test"),
    (["send_and_read", "198.51.100.25", 80, GET.format("", DENIED, "close")], DENY),
    (["udp", "203.0.113.1", 7, "hello"], "hello"),
    (["udp", "198.51.100.1", 7, "hello"], DENY),
    (["ping", "203.0.113.1", 56], "1"),
    (["dns_tcp", "a.hosts.example"], "0"),
    (["dns_tcp", DENIED], DENY),
    (["dns_rcode", "b.hosts.example", 28], "0"),
    (["banner", "db.example", zone.PORT_DB], "220 "),
    (["receive", "203.0.113.1", 19, 300000], "300000"),
    (["half_close", "203.0.113.1", 9, 200000], "200000 "),
    (["connect", "203.0.113.1", zone.PORT_CLOSED], DENY),
    (["tls", "c.hosts.example", 443, "c.hosts.example", False], "200 OK"),
]
REACHED = ("connected", "200 OK", "220 ", "hello", "lab ")


def denied_was_reached(answer):
    """A service's own words, or DNS's NOERROR."""
    return answer == 0 or any(word in str(answer) for word in REACHED)


class Plan:
    """The file beside a copy of the program that says what fails in it, and where the program says what happened."""
    numbers = itertools.count()

    def __init__(self, box, source):
        self.program = box.lab.path(f"bin/penstock-faulty-{next(self.numbers)}")
        shutil.copy(source, self.program)
        os.chmod(self.program, 0o755)
        self.path = self.program + ".fault"

    def write(self, role, kind, at):
        with open(self.path, "wb") as file:
            file.write(LAYOUT.pack(ROLES.index(role), KINDS.index(kind), at, *[0] * (LAYOUT.size // 4 - 3)))
        os.chmod(self.path, 0o666)

    def read(self):
        with open(self.path, "rb") as file:
            fields = LAYOUT.unpack(file.read())
        self.calls = {place: fields[3 + i] for i, place in enumerate(itertools.product(ROLES, KINDS))}
        self.fired, self.signal, count, reaped_count = fields[11:15]
        self.processes = fields[15:15 + count]
        pairs = fields[47:47 + 2 * reaped_count]
        self.reaped = dict(zip(pairs[::2], pairs[1::2]))
        self.sites = [hex(site) for site in fields[111:117] if site]
        self.own = fields[117]


class Faults:
    """For one kind of user: runs with the nth call of a kind failing in a role."""

    def __init__(self, box):
        self.box = box
        folder = os.path.dirname(os.environ.get("PENSTOCK") or os.path.join(lab_module.PROJECT, "build", "penstock"))
        source = os.path.join(folder, "tests", "fault", "penstock-faulty")
        if not os.access(source, os.X_OK):
            pytest.exit(f"no program at '{source}'; run make build", returncode=1)
        self.policy = box.policy_file({"version": 1, **POLICY})
        self.plans = [Plan(box, source) for _ in range(AT_ONCE)]

    def run(self, plan, role, kind, at, command=None):
        """One run. Returns what is wrong with it, as text, or None; the plan has the counts."""
        plan.write(role, kind, at)
        log = plan.path + ".log." + self.box.kind
        if os.path.exists(log):
            os.unlink(log)
        open(log, "w", encoding="utf-8").close()
        self.box.give(log)
        command = command or ["/usr/bin/python3", "-B", "probe.py", json.dumps([operation for operation, _ in SCENARIO])]
        argv = [plan.program, "run", "--log", log, "--policy", self.policy, "--read", self.box.lab.path("ca"), "--", *command]
        process = subprocess.Popen(self.box.lab.as_user(self.box.kind, argv), cwd=self.box.project, env=self.box.environment(),
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   errors="replace", preexec_fn=lab_module.die_with_parent)
        try:
            out, err = process.communicate(timeout=RUN_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            return f"still running after {RUN_SECONDS} s: {process.communicate()}"
        plan.read()
        wrong = self.crashed(plan, role, kind, err) or (self.judge(process.returncode, out, err, log) if len(command) > 1 else None)
        return wrong and f"{wrong}\n{role} {kind} call {at}, from {plan.sites}; exit {process.returncode}\n{out}\n{err}"

    @staticmethod
    def crashed(plan, role, kind, err):
        """A library that dies without memory while the one process starts whose call failed is no harm: nothing ran, or the process
        is started again, and main says so. Nothing else may die."""
        # At the end of a process that is isolated already, leaks cannot be looked for.
        err = re.sub("LeakSanitizer (has encountered a fatal error|does not work under ptrace)", "", err)
        if "Sanitizer" in err or "runtime error" in err:
            return "a sanitizer complains"
        killed = [status for pid, status in plan.reaped.items() if pid in plan.processes and status & 127 not in (0, SIGKILL)]
        if not plan.signal and not killed:
            return None
        deaths = [status for pid, status in plan.reaped.items() if pid in plan.processes and os.WEXITSTATUS(status) == 128 + plan.signal]
        starting = re.findall("(?m)^penstock: (?:the )?([a-z]+) process.* while it was started; ", err)
        if kind == "memory" and plan.fired and starting == [role[1:]] and plan.signal and not plan.own and not killed and len(deaths) == 1:
            return None
        return f"died of a signal: {plan.signal or killed}, own code {plan.own}, while {starting} started"

    def judge(self, code, out, err, log):
        if code == 125:  # libraries may have something to say too
            return None if "penstock: " in err else "exit 125 without a message"
        if code != 0:
            return "not the command's exit status"
        allowed = {line["reason"] for line in lab_module.json_lines(log) if line["verdict"] == "allow"}
        for (operation, wanted), answer in zip(SCENARIO, json.loads(out), strict=True):
            if wanted is DENY and denied_was_reached(answer["result"]):
                return f"{operation} was let through: {answer}"
            if answer["ms"] > OPERATION_MS:
                return f"{operation} took too long: {answer}"
            if wanted is not DENY and wanted in str(answer["result"]) and not allowed:
                return f"{operation} went through and nothing is in the log"
        return None

    def count(self):
        """Without a failure everything must be as it should. Returns the calls up to the command's start, and all, of each
        role and kind."""
        counts = []
        for command in (["true"], None):
            assert (wrong := self.run(self.plans[0], "run", "memory", 0, command)) is None, wrong
            counts.append(self.plans[0].calls)
        return counts

    def clean(self):
        """Every operation gives what it should when nothing fails."""
        result = self.box.run(["--policy", self.policy], "/usr/bin/python3", "-B", "probe.py",
                              json.dumps([operation for operation, _ in SCENARIO]))
        for (operation, wanted), answer in zip(SCENARIO, json.loads(result.out), strict=True):
            assert wanted is DENY or wanted in str(answer["result"]), (operation, answer, result)
            assert wanted is not DENY or not denied_was_reached(answer["result"]), (operation, answer, result)

    def run_all(self, role, kind, calls, progress=False):
        """Runs with each of these calls failing, side by side. Returns the texts of what went wrong."""
        free, done, started = list(self.plans), itertools.count(1), time.monotonic()

        def one(at):
            plan = free.pop()
            try:
                wrong = self.run(plan, role, kind, at)
                number = next(done)
                if progress and (number % 20 == 0 or number == len(calls)):
                    print(f"{role} {kind}: {number} runs, {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
                if progress and wrong:
                    print(wrong, file=sys.stderr, flush=True)
                return wrong
            finally:
                free.append(plan)
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            return [wrong for wrong in pool.map(one, calls) if wrong]
