# SPDX-License-Identifier: Apache-2.0
"""Ways from a client to the server. Each is a context manager that gives (shell, group): where load runs, and the
processes whose cost is counted (None where there is nothing in between)."""
import contextlib
import os
import subprocess
import time

from arena import HERE, NAMES, SERVER, UID, Arena, BenchError, Group, Shell, run

AS_USER = ["setpriv", f"--reuid={UID}", f"--regid={UID}", "--clear-groups", "--"]
SPARED = ("bwrap", "penstock-init")  # the sandbox itself


def environment(kind, path):
    return ["env", "-i", "PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", f"HOME={path}/{kind}"]


def ready(shell):
    """Waits until one connection goes through."""
    for _ in range(100):
        result = shell.load("rate", 1, 0.05)
        if result["answered"] and not result["failed"]:
            return
        time.sleep(0.05)
    raise BenchError("a path did not answer within 10 s")


@contextlib.contextmanager
def direct(path):
    with Arena(path) as arena:
        shell = Shell(arena, "host", [], ["-a", SERVER])
        ready(shell)
        yield shell, None


@contextlib.contextmanager
def penstock(path, kind="root", policy=None, options=()):
    """Through a sandbox, by names unless options of the load client say otherwise."""
    with Arena(path) as arena:
        policy = policy or [word for name in NAMES.values() for word in ("--allow", name)]
        command = [f"{path}/penstock", "run", "--quiet", "--log", f"{path}/{kind}/decisions", "--read", path] + policy
        cwd = f"{path}/{kind}/project"
        prefix = (AS_USER if kind == "user" else []) + environment(kind, path) + command + ["--"]
        shell = Shell(arena, "host", prefix, options, cwd)
        ready(shell)
        yield shell, Group(shell.process.pid, SPARED)
        shell.process.stdin.close()
        shell.process.wait()
        os.unlink(f"{path}/{kind}/decisions")


def filled(name, path, **values):
    with open(os.path.join(HERE, name + ".in"), encoding="utf-8") as file:
        text = file.read()
    values.update(NAMES=" ".join(NAMES.values()), DIR=path)
    for key, value in values.items():
        text = text.replace(f"@{key}@", value)
    target = os.path.join(path, name)
    with open(target, "w", encoding="utf-8") as file:
        file.write(text)
    return target


REDIRECT = """table ip bench { chain prerouting { type nat hook prerouting priority -100;
    iifname "to-client" tcp dport 443 redirect to :3443; }; }"""


@contextlib.contextmanager
def proxy(path, command):
    """A transparent proxy in a router in front of the client."""
    with Arena(path, client=True) as arena:
        run(arena.inside("host") + ["nft", "-f", "-"], REDIRECT)
        arena.settings("host", {"netfilter/nf_conntrack_tcp_timeout_time_wait": "10"})
        process = arena.start("host", command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        shell = Shell(arena, "client", [], ["-a", SERVER])
        ready(shell)
        yield shell, Group(process.pid)


def nginx(path):
    names = "".join(f"    {name} {name}:443;\n" for name in NAMES.values())
    return proxy(path, ["nginx", "-c", filled("proxy_nginx.conf", path, MAP=names)])


def haproxy(path):
    return proxy(path, ["haproxy", "-f", filled("proxy_haproxy.cfg", path)])


@contextlib.contextmanager
def pasta(path):
    with Arena(path) as arena:
        prefix = AS_USER + environment("user", path) + ["pasta", "--config-net", "--ipv4-only", "--no-map-gw", "--quiet", "--"]
        shell = Shell(arena, "host", prefix, ["-a", SERVER], f"{path}/user/project")
        ready(shell)
        yield shell, Group(shell.process.pid, ("sh",))


@contextlib.contextmanager
def slirp4netns(path):
    with Arena(path) as arena:
        prefix = AS_USER + environment("user", path) + ["unshare", "--user", "--map-root-user", "--net", "--"]
        shell = Shell(arena, "host", prefix, ["-a", SERVER], f"{path}/user/project")
        shell.say("echo {\"ready\":1}")
        shell.answer()
        process = arena.start("host", AS_USER + environment("user", path) + [
            "slirp4netns", "--configure", "--mtu=65520", "--disable-host-loopback", str(shell.process.pid), "tap0"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(0.3)
        ready(shell)
        yield shell, Group(process.pid)
