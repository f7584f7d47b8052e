# SPDX-License-Identifier: Apache-2.0
"""TLS ended and begun again, a header added: requests of one host on connections that are kept, and what idle ones cost.
HTTP/1.1, 1 KiB answers, ECDSA P-256 certificates everywhere, the server always verified."""
import contextlib
import json
import os
import shutil
import subprocess
import time

import paths
from arena import HERE, SERVER, Arena, BenchError, Group, Shell, run

ORIGIN, PORT, AGENT = "origin.bench.example", 8443, "intercept_client.py"
IN_FLIGHT, IDLE, IDLE_MITMPROXY = 32, 500, 150
BODY = "0123456789abcdef" * 64
REDIRECT = paths.REDIRECT.replace("443 redirect", f"{PORT} redirect")
VALUES = {"ORIGIN": ORIGIN, "SERVER": SERVER, "PORT": str(PORT), "BODY": BODY}


def certificates(path):
    """A CA, and a certificate for the server and the proxies."""
    if os.path.exists(f"{path}/both.pem"):
        return
    def openssl(*arguments):
        run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "7", *arguments])
    openssl("-subj", "/CN=bench CA", "-keyout", f"{path}/authority.key", "-out", f"{path}/authority.pem")
    openssl("-subj", "/CN=bench", "-keyout", f"{path}/leaf.key", "-out", f"{path}/leaf.pem", "-addext", f"subjectAltName=DNS:{ORIGIN}",
            "-addext", "basicConstraints=critical,CA:FALSE", "-CA", f"{path}/authority.pem", "-CAkey", f"{path}/authority.key")
    for target, parts in (("both.pem", ("leaf.pem", "leaf.key")), ("mitmproxy.pem", ("leaf.key", "leaf.pem"))):
        with open(f"{path}/{target}", "w", encoding="utf-8") as file:
            file.write("".join(open(f"{path}/{part}", encoding="utf-8").read() for part in parts))
    shutil.copy(os.path.join(HERE, AGENT), path)


class Client(Shell):
    """As Shell, for intercept_client.py."""

    def __init__(self, arena, name, prefix, ca, cwd=None):
        super().__init__(arena, name, prefix, (), cwd)
        self.ca = ca

    def ask(self, mode, count, seconds):
        self.say(f"/usr/bin/python3 -B {self.arena.path}/{AGENT} {mode} {ORIGIN} {PORT} {self.ca} {count} {seconds}")
        return self.answer()

    def ready(self):
        """Waits until a request goes through, with the header that the server wants."""
        for _ in range(50):
            try:
                result = self.ask("requests", 1, 1)
            except BenchError:
                result = {"answered": 0}
            if result["answered"] and not result["failed"]:
                return
            time.sleep(0.2)
        raise BenchError("an intercepting path did not answer within 60 s")


def start_origin(arena):
    arena.start("server", ["nginx", "-c", paths.filled("intercept_origin.conf", arena.path, **VALUES)])


@contextlib.contextmanager
def penstock(path):
    with Arena(path) as arena:
        start_origin(arena)
        policy = {"version": 1, "allow": [{"host": ORIGIN, "ports": [PORT]}], "limits": {"connections": IDLE + 500},
                  "credentials": [{"host": ORIGIN, "header": "Authorization", "value": "Bearer {secret}", "secret": "env:BENCH_SECRET"}]}
        with open(f"{path}/intercept.json", "w", encoding="utf-8") as file:
            json.dump(policy, file)
        prefix = paths.environment("root", path) + ["BENCH_SECRET=benchmark-secret", f"PENSTOCK_STATE_FOLDER={path}/state"] + [
            f"{path}/penstock", "run", "--quiet", "--log", f"{path}/root/decisions", "--read", path, "--policy", f"{path}/intercept.json",
            "--upstream-ca", f"{path}/authority.pem", "--"]
        client = Client(arena, "host", prefix, "-", f"{path}/root/project")
        client.ready()
        yield client, Group(client.process.pid, paths.SPARED)
        client.process.stdin.close()
        client.process.wait()
        os.unlink(f"{path}/root/decisions")


@contextlib.contextmanager
def peer(path, command, ca="authority.pem"):
    """In a router in front of the client."""
    with Arena(path, client=True) as arena:
        start_origin(arena)
        run(arena.inside("host") + ["nft", "-f", "-"], REDIRECT)
        process = arena.start("host", command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        run(["sh", "-c", f"grep -q {ORIGIN} /etc/hosts || echo {SERVER} {ORIGIN} >>/etc/hosts"])
        client = Client(arena, "client", [], f"{path}/{ca}")
        client.ready()
        yield client, Group(process.pid)


def nginx(path):
    return peer(path, ["nginx", "-c", paths.filled("intercept_nginx.conf", path, **VALUES)])


def haproxy(path):
    return peer(path, ["haproxy", "-f", paths.filled("intercept_haproxy.cfg", path, **VALUES)])


def mitmproxy(path):
    return peer(path, ["mitmdump", "--mode", "transparent", "--quiet", "--listen-port", "3443", "--set", "block_global=false", "--set", f"confdir={path}/mitmproxy",
                       "--set", f"ssl_verify_upstream_trusted_ca={path}/authority.pem", "--certs", f"{ORIGIN}={path}/mitmproxy.pem",
                       "--set", "connection_strategy=lazy", "--modify-headers", "/~q/Authorization/Bearer benchmark-secret"])


def measure(path, enter, seconds):
    with enter(path) as (client, group):
        before = group.cpu()
        result = client.ask("requests", IN_FLIGHT, seconds)
        spent = group.cpu() - before
        if result["failed"]:
            print(f"  {enter.__name__} requests: {result['failed']} failed")
    figures = {"rate": result["rate"], "per_core": result["answered"] / max(spent, 1e-9), "p99": result["p99"]}
    print(f"  {enter.__name__:12} " + " ".join(f"{name} {value:.4g}" for name, value in figures.items()), flush=True)
    return figures


def hold(path, enter, count):
    """Memory (KiB) for each idle connection; the kernel's is not in it."""
    with enter(path) as (client, group):
        before = group.memory()
        held = max(client.ask("idle", count, 60)["answered"], 1)
        each = (group.memory() - before) / held
        client.say("")
    print(f"  {enter.__name__:12} {held} idle: {each:.1f} KiB each", flush=True)
    return each


def intercept(path, options, ratios):
    certificates(path)
    seconds = max(round(options.seconds), 2)
    for _ in range(options.rounds):
        ours, *peers = (measure(path, way, seconds) for way in (penstock, nginx, haproxy, mitmproxy))
        for name, other in zip(("nginx", "haproxy", "mitmproxy"), peers):
            ratios.add(f"intercept_requests_per_core_vs_{name}", ours["per_core"], other["per_core"])
            ratios.add(f"intercept_p99_vs_{name}", ours["p99"], other["p99"])
    ours = hold(path, penstock, IDLE)
    for way, count in ((nginx, IDLE), (haproxy, IDLE), (mitmproxy, IDLE_MITMPROXY)):
        hold(path, way, count)
    ratios.add("intercept_idle_kib_each", ours)
