# SPDX-License-Identifier: Apache-2.0
"""A node (`penstock serve`) for tests that end its processes: its image, its calls, and what may be left over."""
import contextlib
import glob
import http.client
import json
import os
import re
import select
import signal
import sqlite3
import subprocess
import time

import engine as engine_module
import lab as lab_module

KEY, PORT, REGISTRY = "key-of-the-test", 8765, 5099
TIMEOUT = 60
STATES = ("starting", "running", "paused", "stopping")


def penstock():
    return os.environ.get("PENSTOCK") or os.path.join(lab_module.PROJECT, "build", "penstock")


def wait_for(condition, what, seconds=TIMEOUT):
    """Returns the first true value of it."""
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, f"not within {seconds} s: {what() if callable(what) else what}"
        time.sleep(0.01)
    return value


def die_with_parent():
    lab_module.die_with_parent()


class Registry:
    """A registry on loopback with one image of busybox, "base:one"."""

    def __init__(self, folder):
        os.makedirs(folder)
        image = os.path.join(folder, "base")
        engine_module.write_image(image, [engine_module.layer(engine_module.busybox())], {"Cmd": ["/bin/sh"], "Env": ["PATH=/bin"]})
        config = os.path.join(folder, "registry.yml")
        with open(config, "w", encoding="utf-8") as file:
            file.write(f"version: 0.1\nlog:\n  level: error\nstorage:\n  filesystem:\n    rootdirectory: {folder}/data\n"
                       f"http:\n  addr: 127.0.0.1:{REGISTRY}\n")
        self.process = subprocess.Popen(["docker-registry", "serve", config], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                        preexec_fn=die_with_parent)
        push = ["skopeo", "--insecure-policy", "copy", "-q", "--dest-tls-verify=false", f"oci:{image}:latest",
                f"docker://127.0.0.1:{REGISTRY}/library/base:one"]
        wait_for(lambda: subprocess.run(push, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode == 0,
                 "the registry takes an image", 30)

    def end(self):
        self.process.kill()
        self.process.wait()


class Node:
    def __init__(self, folder, port=PORT, config=""):
        self.folder, self.port, self.process = folder, port, None
        self.state = os.path.join(folder, "state")
        self.config, self.errors = os.path.join(folder, "node.yaml"), os.path.join(folder, "serve.err")
        with open(self.config, "w", encoding="utf-8") as file:
            file.write("network:\n  egress:\n    always_denied: []\nimages:\n  mirrors:\n"
                       f"    - docker.io=127.0.0.1:{REGISTRY}\n  plain_http:\n    - 127.0.0.1:{REGISTRY}\n{config}")

    # ---- the daemon ----

    def environment(self):
        return {**os.environ, "PENSTOCK_API_KEY": KEY, "XDG_STATE_HOME": os.path.join(self.folder, "home")}

    def secret(self, name, value):
        subprocess.run([penstock(), "secret", "set", name], input=value, text=True, env=self.environment(), check=True)

    def start(self, more=()):
        """Returns when it answers."""
        with open(self.errors, "ab") as errors:
            self.process = subprocess.Popen([penstock(), "serve", "--config", self.config, "--state", self.state, "--listen",
                                             f"127.0.0.1:{self.port}", *more], stdin=subprocess.DEVNULL, stderr=errors, env=self.environment(),
                                            preexec_fn=die_with_parent)
        wait_for(self.answers, self.said, 30)
        return self

    def answers(self):
        assert self.process.poll() is None, self.said()
        with contextlib.suppress(OSError, http.client.HTTPException):
            return self.call("GET", "/health")[0] in (200, 204)
        return False

    def end(self, number=signal.SIGTERM):
        if self.process and self.process.poll() is None:
            self.process.send_signal(number)
            self.process.wait(TIMEOUT)

    def said(self):
        with open(self.errors, encoding="utf-8", errors="replace") as file:
            return file.read()

    # ---- calls ----

    def call(self, method, path, body=None, timeout=TIMEOUT):
        """Status, and what the JSON of the answer says (or its text)."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            text = None if body is None else json.dumps(body)
            connection.request(method, path, text, {"X-API-Key": KEY, **({"Content-Type": "application/json"} if text else {})})
            answer = connection.getresponse()
            content = answer.read().decode()
        finally:
            connection.close()
        try:
            return answer.status, json.loads(content) if content else None
        except ValueError:
            return answer.status, content

    def good(self, method, path, body=None):
        status, answer = self.call(method, path, body)
        assert 200 <= status < 300, (method, path, body, status, answer, self.said())
        return answer

    def create(self, template, **fields):
        return self.good("POST", "/sandboxes", {"templateID": template, "timeout": 3600, **fields})["sandboxID"]

    def delete(self, sandbox):
        self.good("DELETE", f"/sandboxes/{sandbox}")

    def exec(self, sandbox, *argv):
        """Exit status and output of a command."""
        text = self.good("POST", f"/sandboxes/{sandbox}/exec", {"cmd": list(argv)})
        lines = [json.loads(line) for line in text.splitlines()] if isinstance(text, str) else [text]
        return lines[-1].get("exit"), "".join(line.get("stdout", "") for line in lines)

    def listed(self):
        """Ids of all sandboxes, whatever they do."""
        return {row["sandboxID"]: row["state"] for row in self.good("GET", "/v2/sandboxes?limit=100")}

    # ---- what there is ----

    def rows(self):
        """Of the store, by state. The daemon has to be down."""
        database = sqlite3.connect(f"file:{self.state}/store.db?mode=ro", uri=True)
        try:
            return dict(database.execute("SELECT id, state FROM sandboxes"))
        finally:
            database.close()

    def folders(self):
        return sorted(os.path.basename(path) for path in glob.glob(os.path.join(self.state, "sandboxes", "*")))

    def layers(self):
        return sorted(os.path.basename(path) for path in glob.glob(os.path.join(self.state, "layers", "*")))

    def spare(self):
        """The shim that waits for something to do."""
        return self.shim("/.")

    def no_spare(self):
        """So that the next start is one from the beginning."""
        end = time.monotonic() + 2
        while not (pid := self.spare()) and time.monotonic() < end:
            time.sleep(0.01)
        if pid:  # it could not be started if that is the call that failed
            os.kill(pid, signal.SIGKILL)
            wait_for(lambda: self.spare() != pid, "it is gone")

    def shim(self, sandbox):
        """Its process."""
        for pid, text in engine_module.processes().items():
            if text.startswith("penstock @shim ") and sandbox in text:
                return pid
        return None

    def strays(self):
        """Processes of sandboxes that no sandbox has any more."""
        processes, listed = engine_module.processes(), self.listed()
        ours = {pid for pid, text in processes.items() if text.startswith("penstock @")}
        roots = {self.process.pid} | {pid for pid in ours if processes[pid].startswith("penstock @shim ") and
                                      os.path.basename(processes[pid].split()[2]) in listed}
        return {pid: processes[pid] for pid in ours if not roots & set(ancestry(pid))}

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))


def ancestry(pid):
    """The process, its parent, and so on."""
    found = []
    while pid > 1:
        found.append(pid)
        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
                pid = int(file.read().rsplit(")", 1)[1].split()[1])
        except OSError:
            break
    return found


def holders(folder):
    """Who has it open: as pid, state and name."""
    found = set()
    for path in glob.glob("/proc/[0-9]*/fd/*"):
        with contextlib.suppress(OSError):
            if os.readlink(path).startswith(folder):
                with open(f"/proc/{path.split('/')[2]}/stat", encoding="utf-8") as file:
                    found.add(" ".join(file.read().split()[:4]))
    return found


def rules():
    text = subprocess.run(["nft", "list", "ruleset"], stdout=subprocess.PIPE, text=True, check=True).stdout
    return re.sub(r"(?<=penstock-node-................)-[ab]", "", text)  # a node that loads its rules again uses the other name


def namespaces():
    """Network namespaces that a process or a descriptor of one holds."""
    found = set()
    for path in glob.glob("/proc/[0-9]*/ns/net") + glob.glob("/proc/[0-9]*/fd/*"):
        with contextlib.suppress(OSError):
            text = os.readlink(path)
            if text.startswith("net:"):
                found.add(text)
    return found


class Things:
    """What a node's sandboxes may not leave behind."""

    def __init__(self, node):
        self.node = node
        self.before = self.look()

    def look(self):
        return {"folders": self.node.folders(), "layers": self.node.layers(), "mounts": engine_module.mounts(),
                "cgroups": sorted(engine_module.cgroups()), "rules": rules(), "namespaces": len(namespaces()),  # that of a spare shim is another one each time
               
                "processes": sorted(re.sub(r"/\.[0-9]+ |(?<=@gate) [0-9 ]+", "", text) for text in engine_module.processes().values() if text)}

    def differences(self):
        now = self.look()
        now["cgroups"] = sorted(set(now["cgroups"]) | set(self.before["cgroups"]))  # one that another lab took away is no loss
        return {key: (now[key], before) for key, before in self.before.items() if now[key] != before}

    def check(self, what=""):
        wait_for(lambda: not self.differences(), lambda: f"{what}: left: {self.differences()} {self.node.said()}", 30)


class Strike:
    """Ends a process, or makes a call of it fail, at its nth system call (tests/fault/strike.c). word: "self", or the argument 0 or 1 of
    what is to be hit among all that it starts."""

    def __init__(self, pid, word="self", nth=0, action="kill", calls=()):
        program = os.path.join(os.path.dirname(penstock()), "tests", "fault", "strike")
        self.process = subprocess.Popen([program, str(pid), word, str(nth), str(action), *map(str, calls)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, preexec_fn=die_with_parent)
        self.text = b""
        assert self.hears(b"ready"), self.process.wait()

    def hears(self, word=b"struck", seconds=TIMEOUT):
        """Whether it says that."""
        end, chunk = time.monotonic() + seconds, b"."
        while word not in self.text and chunk and select.select([self.process.stdout], [], [], max(0, end - time.monotonic()))[0]:
            chunk = os.read(self.process.stdout.fileno(), 4096)
            self.text += chunk
        return word in self.text

    def end(self):
        """Lets all go on. Whether it struck, and how many calls there were."""
        self.process.stdin.close()
        assert self.hears(b"counted"), (self.process.args, self.process.poll(), self.text)
        self.process.stdout.close()
        self.process.wait(TIMEOUT)
        out = self.text.split()
        return b"struck" in out, int(out[out.index(b"counted") + 1])
