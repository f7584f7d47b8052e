# SPDX-License-Identifier: Apache-2.0
"""A node for end-to-end tests: an image made here, a registry on loopback, `penstock serve`, a client of its REST API, and
the check that nothing of it stays. Root's, as containers are."""
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.parse

import pytest

import engine
import lab as lab_module
from conftest import assert_nothing_left, leftovers

ROOT = lab_module.starter() == "root"
KEY = "test-key"
IMAGE = "tool"
PATIENCE = 60
CONFIG = """network:
  egress:
    always_denied: [10.0.0.0/8, 100.64.0.0/10, 127.0.0.0/8, 169.254.0.0/16, 172.16.0.0/12, 192.168.0.0/16, fc00::/7, fe80::/10]
images:
  mirrors: [docker.io={registry}]
  plain_http: ["{registry}"]
"""
IDS = re.compile(r"\bi[a-z0-9]{20}\b")
PROGRAMS = ["curl", "openssl", "dig", "nc.openbsd"]


def root_only(function):
    """Collected only where root started the tests."""
    return function if ROOT else None


def image_members(lab):
    """busybox, PROGRAMS with the libraries that they need, and the CA of the lab."""
    files = {}
    for name in PROGRAMS:
        path = shutil.which(name)
        assert path, f"program '{name}' is missing; run tools/install test"
        files["usr/bin/" + name] = path
        for line in subprocess.run(["ldd", path], check=True, capture_output=True, text=True).stdout.splitlines():
            files.update({word.lstrip("/"): word for word in line.split() if word.startswith("/")})
    members = [engine.entry(name, data=open(path, "rb").read()) for name, path in files.items()]
    certificates = open(lab.ca, "rb").read()
    return engine.busybox(*members, engine.entry("etc/ssl/certs/ca-certificates.crt", data=certificates, mode=0o644))


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


class Answer:
    def __init__(self, status, headers, text):
        self.status, self.headers, self.text = status, headers, text.decode(errors="replace")

    @property
    def json(self):
        return json.loads(self.text)

    @property
    def message(self):
        """Of an error, which is JSON with these two members."""
        body = self.json
        assert sorted(body) == ["code", "message"] and body["code"] == self.status, self
        return body["message"]

    def all(self, name):
        return self.headers.get_all(name) or []

    def __repr__(self):
        return f"{self.status} {self.text[:2000]} {dict(self.headers)}"


class Output:
    """Of a command in a sandbox."""

    def __init__(self, lines):
        self.lines = lines
        self.out = "".join(line.get("stdout", "") for line in lines)
        self.err = "".join(line.get("stderr", "") for line in lines)
        self.exit = lines[-1].get("exit")

    def __repr__(self):
        return f"exit {self.exit}\nstdout: {self.out[-3000:]}\nstderr: {self.err[-3000:]}\n{self.lines[-1]}"


class Registry:
    """On loopback, with the image of most tests. One for all modules: it ends with the lab."""

    def __init__(self, lab):
        self.lab, self.name = lab, f"127.0.0.1:{free_port()}"
        config = lab.path("registry.yml")
        lab.write(config, f"version: 0.1\nlog:\n  level: error\nstorage:\n  filesystem:\n    rootdirectory: {lab.path('registry')}\n"
                          f"http:\n  addr: {self.name}\n")
        lab.servers.append(subprocess.Popen(["docker-registry", "serve", config], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                            preexec_fn=lab_module.die_with_parent))
        await_port(self.name, lambda: "the registry does not listen")
        self.add(IMAGE, image_members(lab), {"Cmd": ["/bin/sh"], "Env": ["PATH=/usr/bin:/bin", "LAYER=base"]})

    def add(self, name, members, config):
        """As docker.io/library/NAME:latest, for a node of ours."""
        source = self.lab.path("image-" + name)
        engine.write_image(source, [engine.layer(members)], config)
        subprocess.run(["skopeo", "--insecure-policy", "copy", "-q", "--dest-tls-verify=false", f"oci:{source}:latest",
                        f"docker://{self.name}/library/{name}:latest"], check=True, timeout=PATIENCE)
        shutil.rmtree(source)


def await_port(name, failure):
    host, port = name.split(":")
    end = time.monotonic() + PATIENCE
    while not lab_module.connects(host, int(port)):
        assert time.monotonic() < end, failure()
        time.sleep(0.02)


def registry_of(lab):
    if not hasattr(lab, "registry"):  # no fixture: each module that imports one has one of its own
        lab.registry = Registry(lab)
    return lab.registry


class Node:
    """`penstock serve` in a state folder of its own, on a disk that overlays can lie on."""

    def __init__(self, lab, registry):
        self.lab, self.program = lab, os.environ.get("PENSTOCK") or os.path.join(lab_module.PROJECT, "build", "penstock")
        self.state = tempfile.mkdtemp(prefix="penstock-node-", dir="/var/tmp")
        self.registry, self.daemon, self.port = registry, None, free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.errors = os.path.join(self.state, "errors")
        self.seen = set()  # the ids of all sandboxes that were heard of

    # -- processes --

    def start(self):
        self.write_config(CONFIG.format(registry=self.registry.name))
        self.serve()

    def write_config(self, text):
        with open(os.path.join(self.state, "config.yaml"), "w", encoding="utf-8") as file:
            file.write(text)

    def serve(self, *options, wrap=()):
        state = os.path.join(self.state, "node")
        with open(self.errors, "a", encoding="utf-8") as errors:
            self.daemon = subprocess.Popen(
                [*wrap, self.program, "serve", "--config", os.path.join(self.state, "config.yaml"), "--state", state, "--listen",
                 f"127.0.0.1:{self.port}", "--upstream-ca", self.lab.ca, *options], env=self.environment(), stderr=errors,
                stdin=subprocess.DEVNULL, stdout=errors)
        await_port(f"127.0.0.1:{self.port}", lambda: "the node does not listen: " + self.said())

    def environment(self):
        return {**os.environ, "PENSTOCK_API_KEY": KEY, "PENSTOCK_API_URL": self.url}

    def said(self):
        """The node's own log."""
        with open(self.errors, encoding="utf-8") as file:
            return file.read()

    def stop(self):
        """Ends sandboxes and daemon, and fails if something stays."""
        left = []
        if self.daemon:
            if self.daemon.poll() is not None:  # a test has killed it; whoever comes next finds its sandboxes
                self.serve()
            self.remove_all()
            self.end_daemon()
            left = os.listdir(os.path.join(self.state, "node", "sandboxes"))
        shutil.rmtree(self.state)
        left += [path for path in engine.cgroups() if os.path.basename(path) in self.seen]  # others of the machine have theirs
        assert not left, left

    def end_daemon(self):
        """Its sandboxes run on."""
        self.daemon.send_signal(signal.SIGTERM)
        assert self.daemon.wait(PATIENCE) == 0, self.said()

    # -- API --

    def connection(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)

    def call(self, method, path, body=None, headers=None, connection=None):
        used = connection or self.connection()
        text = body if body is None or isinstance(body, (str, bytes)) else json.dumps(body)
        used.request(method, path, text, {"X-API-Key": KEY, **({"Content-Type": "application/json"} if text else {}), **(headers or {})})
        answer = used.getresponse()
        result = Answer(answer.status, answer.headers, answer.read())
        self.seen |= set(IDS.findall(result.text))
        if not connection:
            used.close()
        return result

    def good(self, method, path, body=None, status=(200, 201, 202, 204)):
        answer = self.call(method, path, body)
        assert answer.status in status, (method, path, body, answer)
        return answer

    def create(self, path="/sandboxes-cold", **fields):
        """A sandbox of the image, or with path="/sandboxes" of templateID."""
        if path == "/sandboxes-cold":
            fields.setdefault("image", IMAGE)
        return self.good("POST", path, fields, (201,)).json["sandboxID"]

    def template(self, name, **build):
        """A template that is ready. Its id."""
        made = self.good("POST", "/v3/templates", {"name": name}, (202,)).json
        path = f"/templates/{made['templateID']}/builds/{made['buildID']}"
        self.good("POST", "/v2" + path, build or {"fromImage": IMAGE}, (202,))
        status = self.await_build(path)
        assert status["status"] == "ready", status
        return made["templateID"]

    def await_build(self, path):
        end = time.monotonic() + PATIENCE
        while True:
            status = self.good("GET", path + "/status", status=(200,)).json
            if status["status"] not in ("waiting", "building"):
                return status
            assert time.monotonic() < end, status
            time.sleep(0.05)

    def update(self, sandbox, **fields):
        return self.good("PUT", f"/sandboxes/{sandbox}/network", fields, (204,))

    def detail(self, sandbox):
        return self.good("GET", f"/sandboxes/{sandbox}", status=(200,)).json

    def exec(self, sandbox, command, **fields):
        """command: a list, or a text for the shell."""
        answer = self.good("POST", f"/sandboxes/{sandbox}/exec", {"cmd": command, **fields}, (200,))
        return Output([json.loads(line) for line in answer.text.splitlines()])

    def remove(self, sandbox):
        return self.call("DELETE", f"/sandboxes/{sandbox}")

    def listed(self, query="state=running,paused&limit=100"):
        return self.good("GET", "/v2/sandboxes?" + query, status=(200,)).json

    def states(self):
        return {sandbox["sandboxID"]: sandbox["state"] for sandbox in self.listed()}

    def remove_all(self):
        for sandbox in self.states():
            self.remove(sandbox)

    def layers(self):
        """What snapshots and templates have on the disk."""
        return os.listdir(os.path.join(self.state, "node", "layers"))

    def decisions(self, sandbox, query=""):
        answer = self.good("GET", f"/sandboxes/{sandbox}/decisions{query}", status=(200,))
        return [json.loads(line) for line in answer.text.splitlines()]

    def explain(self, sandbox, url):
        return self.call("GET", f"/sandboxes/{sandbox}/explain?url={urllib.parse.quote(url, safe='')}")

    # -- commands --

    def run(self, *arguments, timeout=PATIENCE, **options):
        """A command of penstock, as its user sees it."""
        done = subprocess.run([self.program, *arguments], env=self.environment(), capture_output=True, text=True, timeout=timeout,
                              check=False, stdin=subprocess.DEVNULL, **options)
        self.seen |= set(IDS.findall(done.stdout))
        return done


@pytest.fixture(scope="module")
def node(lab):
    registry = registry_of(lab)
    before = leftovers()
    made = Node(lab, registry)
    try:
        made.start()
        yield made
    finally:
        said = made.said() if os.path.exists(made.errors) else ""
        if said:
            print("the node said:", said)
        made.stop()
    assert_nothing_left(before, 20)


# ---- probes ----

def https(target):
    """With a name whose certificate has to be good."""
    return "", f"https://{target}/"


def tls(address, port=443):
    """A server answers at this address, whatever its certificate."""
    return "-k", f"https://{address}:{port}/"


def probe(node, sandbox, probes):
    """What a sandbox can reach, all at once: {name: https(), tls() or a shell command} -> the names of those that worked."""
    names = list(probes)
    script = "".join(f"({probes[name]}) >/dev/null 2>&1 && echo {number} 0 &\n" for number, name in enumerate(names)
                     if isinstance(probes[name], str))
    for option in ("", "-k"):  # one program for all of a kind
        numbers = [number for number, name in enumerate(names) if probes[name][0] == option]
        if numbers:
            script += (f"curl -sZ {option} --max-time 10 -w '%{{urlnum}} %{{exitcode}}\\n' " +
                       " ".join("-o /dev/null " + probes[names[number]][1] for number in numbers) +
                       " | while read number code; do set -- " + " ".join(map(str, numbers)) +
                       '; shift $number; echo $1 $code; done &\n')
    output = node.exec(sandbox, script + "wait\n")
    assert output.exit == 0, output
    return {names[int(number)] for number, code in map(str.split, output.out.splitlines()) if code == "0"}
