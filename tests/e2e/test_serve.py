# SPDX-License-Identifier: Apache-2.0
"""`penstock serve` as its operator meets it: what it is told and how it says no, its key, sockets of a service manager, an
ordinary user, another configuration while sandboxes run, and the guardrails that the kernel holds against their gates."""
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

import pytest

import lab as lab_module
import zone
from node import KEY, Node, free_port, node, probe, root_only, tls  # noqa: F401 (a fixture)

PROGRAM = os.environ.get("PENSTOCK") or os.path.join(lab_module.PROJECT, "build", "penstock")
UNIT = os.path.join(lab_module.PROJECT, "systemd", "penstock.service.in")
PUBLIC, OTHER, PRIVATE = "198.51.100.20", "203.0.113.9", "10.9.9.9"
PATIENCE = 30


def environment(**more):
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PENSTOCK_", "AENV_", "XDG_", "LISTEN_"))}
    return {**kept, **more}


class Serve:
    """A daemon of one test, and what it says."""

    def __init__(self, *options, env=None, wrap=(), **popen):
        self.folder = tempfile.mkdtemp(prefix="penstock-serve-", dir="/var/tmp")
        os.chmod(self.folder, 0o755)
        self.state, self.port = os.path.join(self.folder, "state"), free_port()
        os.mkdir(self.state, 0o700)
        self.options, self.env, self.wrap, self.popen, self.daemon = options, env or {}, wrap, popen, None

    def start(self, *options):
        with open(os.path.join(self.folder, "said"), "wb") as said:
            self.daemon = subprocess.Popen([*self.wrap, PROGRAM, "serve", "--state", self.state, *self.options, *options],
                                           env=environment(**self.env), stderr=said, stdout=said, stdin=subprocess.DEVNULL, **self.popen)
        return self

    def said(self):
        with open(os.path.join(self.folder, "said"), encoding="utf-8") as file:
            return file.read()

    def await_said(self, text):
        end = time.monotonic() + PATIENCE
        while text not in self.said():
            assert time.monotonic() < end and self.daemon.poll() is None, (text, self.said())
            time.sleep(0.01)

    def listen(self):
        self.start("--listen", f"127.0.0.1:{self.port}")
        self.await_said("listening on")
        return self

    def get(self, path, key=None, method="GET", body=None, address="127.0.0.1"):
        connection = http.client.HTTPConnection(address, self.port, timeout=PATIENCE)
        connection.request(method, path, json.dumps(body) if body else None, {"X-API-Key": key} if key else {})
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return answer.status, text

    def end(self):
        self.daemon.terminate()
        assert self.daemon.wait(PATIENCE) == 0, self.said()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.daemon and self.daemon.poll() is None:
            self.daemon.kill()
            self.daemon.wait()
        shutil.rmtree(self.folder)


def refused(*options, env=None, wrap=(), code=1):
    """What it says, and nothing else, when it does not start."""
    done = subprocess.run([*wrap, PROGRAM, "serve", *options], env=environment(**(env or {})), capture_output=True, text=True,
                          timeout=PATIENCE, check=False, stdin=subprocess.DEVNULL)
    assert done.returncode == code and done.stdout == "", done
    lines = done.stderr.splitlines()
    assert len(lines) == 1 and lines[0].startswith("penstock: "), done
    return lines[0]


# ---- what it is told ----

CONFIGS = {
    "network:\n  egress:\n    always_denid: []": ":3: ", "node:\n  sandboxes: many": '"many" is not a number',
    "network:\n  egress:\n    always_denied: [10.0.0.0/33]": '"10.0.0.0/33"', "nodes: {}": '"nodes"',
    "network: {dns: {servers: [dns.example]}}": '"dns.example"', "node: {listen: localhost}": '"localhost"',
    "images: {mirrors: [docker.io]}": '"docker.io" is not a mirror', "limits: {bandwidth: fast}": '"fast" is not a whole number',
    "node: {memory_mb: 1}": '"1" is not a number from 128', "node: {max_memory_mb: 127}": '"127" is not a number from 128',
    "node: {memory_mb: 8192, max_memory_mb: 4096}": "node.memory_mb 8192 is more than node.max_memory_mb 4096",
    "node: {cpu_count: 4, max_cpu_count: 2}": "node.cpu_count 4 is more than node.max_cpu_count 2",
    "a: [": ":2: ", "network:\n  dns: {servers: [203.0.113.53]}\x00": "NUL byte",
}
OPTIONS = {
    ("--listen", "localhost:8000"): '"localhost:8000" is no place to listen', ("--listen", "127.0.0.1"): '"127.0.0.1" is no place',
    ("--listen",): "--listen needs a value", ("--listen=",): "--listen= needs a value", ("--lisen", "x"): '"--lisen"', ("x",): '"x"',
    ("--config", "/nowhere"): '"/nowhere": No such file', ("--config", "/etc"): '"/etc": expected a file',
    ("--dns", "dns.example"): '"dns.example"', ("--dns", "1.2.3.4:0"): '"1.2.3.4:0"', ("--upstream-ca", "/nowhere"): "/nowhere: No such",
    ("--upstream-ca", "/etc/hostname"): "/etc/hostname: no certificate", ("--config", "/a", "--config", "/b"): "given twice",
}


READ_LATER = ("--config", "--dns", "--upstream-ca")  # whose values may be right, and the machine's state wrong


def test_bad_input_is_quoted(lab, tmp_path):
    del lab
    for text, says in CONFIGS.items():
        path = tmp_path / "node.yaml"
        path.write_text(text)
        line = refused("--check-config", "--config", str(path))
        assert says in line and str(path) in line, (text, line)
    for options, says in OPTIONS.items():
        assert says in refused("--check-config", *options, code=1 if options[0] in READ_LATER and len(options) == 2 else 2), options
    for name, value, says in (("PENSTOCK_NODE_LISTEN", "here", 'variable PENSTOCK_NODE_LISTEN: "here"'),
                              ("PENSTOCK_NETWORK_EGRESS_ALWAYS", "x", "unknown variable PENSTOCK_NETWORK_EGRESS_ALWAYS;")):
        assert says in refused("--check-config", env={name: value}), name


def test_a_list_that_opens_private_networks(lab, tmp_path):
    del lab
    path = tmp_path / "node.yaml"
    with open(os.path.join(lab_module.PROJECT, "README.md"), encoding="utf-8") as file:
        sample = re.search(r"```yaml\n(network:\n  egress:.*?)```", file.read(), re.S).group(1)
    for text, warns in ((sample, False), ("network: {egress: {always_denied: [10.0.0.0/8, 0.0.0.0/8, \"*.corp.example\"]}}", True)):
        path.write_text(text)
        done = subprocess.run([PROGRAM, "serve", "--check-config", "--config", path], env=environment(), capture_output=True, text=True,
                              check=False)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (0, "the configuration is valid\n", int(warns)), done
        assert not warns or "may reach 100.64.0.0/10 and 21 more ranges that are not public; add 100.64.0.0/10, 127" in done.stderr, done


def test_a_state_folder_that_cannot_be_used(lab, tmp_path):
    del lab
    (tmp_path / "file").write_text("")
    (tmp_path / "open").mkdir()
    os.chmod(tmp_path / "open", 0o755)
    assert "/file: " in refused("--state", str(tmp_path / "file"))
    assert "chmod 700" in refused("--state", str(tmp_path / "open"))
    assert "/none/there: " in refused("--state", str(tmp_path / "none" / "there"))
    with Serve().listen() as serve:
        line = refused("--state", serve.state, "--listen", f"127.0.0.1:{free_port()}")
        assert "another `penstock serve` uses this folder" in line, line
        with Serve() as other:
            line = refused("--state", other.state, "--listen", f"127.0.0.1:{serve.port}")
            assert f"cannot listen on 127.0.0.1:{serve.port}: Address already in use" in line, line
        serve.end()


def test_where_a_value_comes_from(lab, tmp_path):
    """The file, the variable over it, the option over both; the usual file without an option."""
    del lab
    with Serve(env={"PENSTOCK_API_KEY": KEY}) as serve:
        home = os.path.join(serve.folder, "config", "penstock")
        os.makedirs(home)
        path = os.path.join(home, "penstock.yaml")
        with open(path, "w", encoding="utf-8") as file:
            file.write(f"node:\n  listen: 127.0.0.1:{serve.port}\n")
        serve.start("--config", path)
        serve.await_said(f"listening on 127.0.0.1:{serve.port}")
        serve.end()
        other = free_port()
        serve.env["PENSTOCK_NODE_LISTEN"] = f"[::1]:{other}"
        serve.start("--config", path)
        serve.await_said(f"listening on [::1]:{other}")
        serve.end()
        if os.geteuid() != 0:
            del serve.env["PENSTOCK_NODE_LISTEN"]
            serve.env["XDG_CONFIG_HOME"] = os.path.dirname(home)
            serve.start()
            serve.await_said(f"listening on 127.0.0.1:{serve.port}")
            serve.end()
    done = subprocess.run([PROGRAM, "serve", "--check-config"], env=environment(), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "the configuration is valid\n"), done


def test_an_address_that_is_not_of_the_loopback(lab):
    del lab
    with Serve(env={"PENSTOCK_API_KEY": KEY}) as serve:
        serve.start("--listen", f"{zone.OWN4}:{serve.port}")
        serve.await_said(f"listening on {zone.OWN4}:{serve.port}")
        assert "the API has no TLS" in serve.said()
        assert serve.get("/sandboxes", KEY, address=zone.OWN4) == (200, "[]")
        assert serve.get("/sandboxes", "other", address=zone.OWN4)[0] == 401
        serve.end()


# ---- its key ----

def test_the_key(lab):
    del lab
    with Serve() as serve:
        serve.listen()
        path = os.path.join(serve.state, "api-key")
        with open(path, encoding="utf-8") as file:
            made = file.read().strip()
        assert re.fullmatch("[0-9a-f]{64}", made) and os.stat(path).st_mode & 0o777 == 0o600
        for key, status in ((made, 200), (made[:-1], 401), (made + "0", 401), ("", 401), (None, 401)):
            assert serve.get("/sandboxes", key)[0] == status, key
        assert serve.get("/health")[0] == 204
        serve.end()
        for env, key in (({}, made), ({"AENV_API_KEY": "e2b_1"}, "e2b_1"), ({"AENV_API_KEY": "e2b_1", "PENSTOCK_API_KEY": "x"}, "x")):
            serve.env = env
            serve.listen()
            assert serve.get("/sandboxes", key)[0] == 200 and serve.get("/sandboxes", key + "y")[0] == 401, env
            serve.end()
        assert "PENSTOCK_API_KEY is empty" in refused("--state", serve.state, env={"PENSTOCK_API_KEY": ""})
        with open(path, "w", encoding="utf-8"):
            pass
        assert f'"{path}" must hold one line that is not empty' in refused("--state", serve.state)


# ---- a service manager ----

def test_sockets_and_words_of_a_service_manager(lab):
    """As systemd starts it: LISTEN_FDS, LISTEN_PID, NOTIFY_SOCKET."""
    del lab
    with Serve(env={"PENSTOCK_API_KEY": KEY}) as serve:
        notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        notify.bind(os.path.join(serve.folder, "notify"))
        notify.settimeout(PATIENCE)
        listeners = [socket.create_server(("127.0.0.1", serve.port)), socket.create_server(("::1", serve.port), family=socket.AF_INET6)]
        fds = [listener.fileno() for listener in listeners]
        serve.env["NOTIFY_SOCKET"] = os.path.join(serve.folder, "notify")
        text = f"exec 8<&{fds[0]} 9<&{fds[1]} 3<&8 4<&9 8<&- 9<&-; LISTEN_FDS=2 LISTEN_PID=$$ exec \"$@\""
        serve.wrap, serve.popen = ("bash", "-c", text, "bash"), {"pass_fds": fds}
        serve.start()
        assert notify.recv(1000) == b"READY=1"
        assert "listening on 2 sockets of the service manager" in serve.said()
        for address in ("127.0.0.1", "::1"):
            assert serve.get("/sandboxes", KEY, address=address) == (200, "[]")
        serve.daemon.send_signal(signal.SIGHUP)
        assert notify.recv(1000).startswith(b"RELOADING=1\nMONOTONIC_USEC=")
        assert notify.recv(1000) == b"READY=1"
        serve.end()
        assert notify.recv(1000) == b"STOPPING=1"
        serve.wrap = ("bash", "-c", "exec 3</dev/null; LISTEN_FDS=1 LISTEN_PID=$$ exec \"$@\"", "bash")
        assert "descriptor 3 of LISTEN_FDS is no listening socket" in refused("--state", serve.state, wrap=serve.wrap).split("warning")[-1]
        for listener in [*listeners, notify]:
            listener.close()


@root_only
def test_a_sandbox_under_what_the_unit_allows(node):
    """Its capabilities, no new privileges, and a file system that is read-only but for the state folder."""
    with open(UNIT, encoding="utf-8") as file:
        lines = file.read().splitlines()
    names = [name for line in lines if line.startswith("CapabilityBoundingSet=") for name in line.split("=")[1].split()]
    assert "NoNewPrivileges=yes" in lines and "ProtectSystem=strict" in lines and "CAP_SYS_ADMIN" in names
    kept = ",".join("+" + name[4:].lower() for name in names)
    script = ("mount --bind \"$0\" \"$0\" && mount -o remount,bind,ro / && ! touch /etc/penstock-test 2>/dev/null && "
              f"exec setpriv --no-new-privs --bounding-set=-all,{kept} \"$@\"")
    node.end_daemon()
    node.serve(wrap=["unshare", "--mount", "--propagation", "slave", "sh", "-c", script, node.state])
    sandbox = node.create(network={"allowOut": ["both.example"], "denyOut": ["0.0.0.0/0"]})
    name = {"name": "curl -sS -o /dev/null --max-time 10 https://both.example/"}
    assert probe(node, sandbox, name) == {"name"}
    assert node.exec(sandbox, "grep -c . /proc/self/status").exit == 0
    assert node.call("POST", f"/sandboxes/{sandbox}/pause").status == 204
    node.good("POST", f"/sandboxes/{sandbox}/connect", {"timeout": 60})
    node.template("under-the-unit", fromImage="tool", steps=[{"type": "RUN", "args": ["echo built"]}])
    assert node.remove(sandbox).status == 204
    node.end_daemon()
    node.serve()


# ---- an ordinary user ----

def test_an_ordinary_user_is_told(lab):
    user = [] if lab_module.starter() == "user" else ["setpriv", f"--reuid={lab_module.UID}", f"--regid={lab_module.UID}", "--clear-groups"]
    program = lab.path("bin/penstock-serve")
    shutil.copy(PROGRAM, program)
    os.chmod(program, 0o755)
    with Serve(env={"PENSTOCK_API_KEY": KEY}, wrap=[*user, "env", f"--argv0={program}"]) as serve:
        if user:
            os.chown(serve.state, lab_module.UID, lab_module.UID)
        serve.wrap = [*user, program] + ["serve", "--state", serve.state, "--listen", f"127.0.0.1:{serve.port}"]
        with open(os.path.join(serve.folder, "said"), "wb") as said:
            serve.daemon = subprocess.Popen(serve.wrap, env=environment(**serve.env), stderr=said, stdin=subprocess.DEVNULL)
        serve.await_said("listening on")
        assert serve.said().count("without root there are no containers") == 1, serve.said()
        assert serve.get("/sandboxes", KEY) == (200, "[]")
        status, text = serve.get("/sandboxes-cold", KEY, "POST", {"image": "x"})
        assert status == 501 and "containers, which need root" in json.loads(text)["message"], text
        assert serve.get("/sandboxes", KEY) == (200, "[]")
        assert os.listdir(os.path.join(serve.state, "sandboxes")) == []
        serve.end()


# ---- another configuration ----

def reload(node, egress, more="", good=True):
    """Writes it and waits until the daemon has said what it thinks of it."""
    before = node.said().count("the configuration ")
    node.write_config(f"network:\n  egress: {egress}\nimages:\n  mirrors: [docker.io={node.registry.name}]\n"
                      f"  plain_http: [\"{node.registry.name}\"]\n{more}")
    node.daemon.send_signal(signal.SIGHUP)
    end = time.monotonic() + PATIENCE
    while node.said().count("the configuration ") == before:
        assert time.monotonic() < end, node.said()
        time.sleep(0.01)
    line = node.said().splitlines()[-1]
    assert line.endswith("stays as it was") != good, node.said()
    return line


def await_reach(node, sandbox, probes, wanted):
    """A shim is told a moment after the daemon has said so."""
    end = time.monotonic() + PATIENCE
    while (got := probe(node, sandbox, probes)) != wanted:
        assert time.monotonic() < end, (got, wanted, node.said())


OWN_PORT = 7321
PROBES = {"public": tls(PUBLIC), "other": tls(OTHER, 8443), "private": tls(PRIVATE)}


RESOLVER = 1 << 22  # from the number of a gate to that of its resolver


def roles(word):
    """Processes and users."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                if file.read().split(b"\0")[1:2] == [word.encode()]:
                    found.append((pid, os.stat(f"/proc/{pid}").st_uid))
        except OSError:
            pass
    return found


def gates():
    return [user for _, user in roles("@gate")]


def dial_as(user, address, port, family=socket.AF_INET):
    """What a process of that user gets: "open" or the name of the error."""
    text = ("import os, socket, sys, errno\n"
            f"os.setgroups([]); os.setresgid({user}, {user}, {user}); os.setresuid({user}, {user}, {user})\n"
            f"s = socket.socket({int(family)}); s.settimeout(5)\n"
            f"code = s.connect_ex(({address!r}, {port}))\n"
            "print('open' if code == 0 else errno.errorcode.get(code, code))\n")
    return subprocess.run(["/usr/bin/python3", "-c", text], check=True, capture_output=True, text=True, timeout=PATIENCE).stdout.strip()


def tables():
    listed = subprocess.run(["nft", "list", "tables"], capture_output=True, text=True, check=True).stdout
    return [line for line in listed.splitlines() if "penstock-node-" in line]


@root_only
def test_guardrails_of_running_sandboxes(node):
    own = socket.create_server((zone.OWN4, OWN_PORT), backlog=100)
    reload(node, "{always_denied: [192.0.2.99], deny_own_addresses: false}")
    rows = {
        "e2b": node.create(network={"allowOut": ["0.0.0.0/0"]}),
        "native": node.create(policy={"version": 1, "allow": [{"cidr": cidr} for cidr in ("198.51.100.0/24", "203.0.113.0/24", "10.0.0.0/8")]}),
    }
    gate = gates()
    assert len(gate) in (2, 3) and all(0x74000000 <= user < 0x80000000 for user in gate), gate  # one more may wait for the next sandbox
    for sandbox in rows.values():
        await_reach(node, sandbox, PROBES, set(PROBES))

    # Closed for every sandbox, though its policy opens it, and for its gate, whatever that does.
    assert "was read again, for 2 sandboxes" in reload(node, f"{{always_denied: [10.0.0.0/8, {OTHER}]}}")
    for sandbox in rows.values():
        await_reach(node, sandbox, PROBES, {"public"})
        assert {line["reason"] for line in node.decisions(sandbox, "?denied=1")} == {"node_denied"}
    for user in gate:
        assert dial_as(user, PRIVATE, 443) == "ECONNREFUSED" and dial_as(user, OTHER, 8443) == "ECONNREFUSED"
        assert dial_as(user, zone.OWN4, OWN_PORT) == "ECONNREFUSED" and dial_as(user, "127.0.0.1", node.port) == "ECONNREFUSED"
        assert dial_as(user, PUBLIC, 443) == "open"
        # Its resolver may ask the servers, which are denied to itself.
        assert dial_as(user + RESOLVER, PRIVATE, 443) == "ECONNREFUSED"
    assert dial_as(65534, PRIVATE, 443) == "open" and dial_as(65534, "127.0.0.1", node.port) == "open"
    assert len(tables()) == 1

    # A firewall that is started again empties all tables.
    subprocess.run(["nft", "flush", "ruleset"], check=True)
    end = time.monotonic() + PATIENCE
    while dial_as(gate[0], PRIVATE, 443) != "ECONNREFUSED" or "they are back" not in node.said():
        assert time.monotonic() < end, node.said()
    assert node.said().count("they are back") == 1 and len(tables()) == 1, node.said()

    # What cannot be taken changes nothing.
    for egress, says in (("{always_denied: [10.0.0.0/40]}", '"10.0.0.0/40"'), ("{always_denid: []}", '"always_denid"')):
        line = reload(node, egress, good=False)
        assert says in line, line
    for sandbox in rows.values():
        assert probe(node, sandbox, PROBES) == {"public"}
    assert dial_as(gate[0], PRIVATE, 443) == "ECONNREFUSED"

    # A sandbox that is created now, and a daemon that finds the others, have the same.
    node.daemon.kill()
    node.daemon.wait()
    assert dial_as(gate[0], PRIVATE, 443) == "ECONNREFUSED"
    # With other variables, which a shim has never had in its environment.
    node.write_config("network: {}\n")
    node.serve(wrap=["env", f"PENSTOCK_NETWORK_EGRESS_ALWAYS_DENIED={PUBLIC}", "PENSTOCK_NETWORK_EGRESS_ALWAYS_ALLOWED=127.0.0.0/8"])
    for sandbox in rows.values():
        await_reach(node, sandbox, PROBES, {"other", "private"})
    assert dial_as(gate[0], PUBLIC, 443) == "ECONNREFUSED" and dial_as(gate[0], PRIVATE, 443) == "open"
    assert dial_as(gate[0], "127.0.0.1", node.port) == "open" and len(tables()) == 1
    for sandbox in rows.values():
        assert node.remove(sandbox).status == 204
    node.end_daemon()
    assert tables() == []
    own.close()
    node.serve()
    reload(node, "{}")


@root_only
def test_servers_and_limits_of_running_sandboxes(node):
    warned = node.said().count("may reach 0.0.0.0/8 and 23 more ranges that are not public")
    reload(node, "{always_denied: []}")
    assert node.said().count("may reach 0.0.0.0/8 and 23 more ranges that are not public") == warned + 1, node.said()
    sandbox = node.create(network={"allowOut": ["both.example"], "denyOut": ["0.0.0.0/0"]})
    name = {"name": "curl -sS -o /dev/null --max-time 10 https://both.example/"}
    assert probe(node, sandbox, name) == {"name"}
    # A server that is denied to gates, and to resolvers too once it is none of theirs.
    more = "node: {max_memory_mb: 256}\nlimits: {bytes_out: 64KiB}\n"
    reload(node, f"{{always_denied: [{zone.ROUTER4}]}}", more)
    assert probe(node, sandbox, name) == {"name"}
    gate = gates()[0]
    assert dial_as(gate, zone.ROUTER4, 53) == "ECONNREFUSED" and dial_as(gate + RESOLVER, zone.ROUTER4, 53) == "open"
    before = roles("@resolver")
    reload(node, f"{{always_denied: [{zone.ROUTER4}]}}\n  dns: {{servers: [{zone.FOREIGN_DNS4}]}}", more)
    end = time.monotonic() + PATIENCE
    while roles("@resolver") in (before, []):  # another one asks other servers
        assert time.monotonic() < end, before
        time.sleep(0.02)
    await_reach(node, sandbox, name, {"name"})
    assert dial_as(gate + RESOLVER, zone.ROUTER4, 53) == "ECONNREFUSED" and dial_as(gate + RESOLVER, zone.FOREIGN_DNS4, 53) == "open"
    big = "head -c 1000000 /dev/zero | curl -fsS --max-time 10 -T - -o /dev/null https://both.example/"
    await_reach(node, sandbox, {"big": big}, set())
    assert "limit_exceeded" in [line["reason"] for line in node.decisions(sandbox, "?denied=1")]
    answer = node.call("POST", "/sandboxes-cold", {"image": "tool", "memoryMB": 512})
    assert answer.status == 400 and "node.max_memory_mb: 256" in answer.message, answer
    reload(node, "{}", "node: {sandboxes: 1}\n")
    answer = node.call("POST", "/sandboxes-cold", {"image": "tool"})
    assert answer.status == 503 and "node.sandboxes" in answer.message, answer
    node.remove(sandbox)
    reload(node, "{}")


@root_only
def test_guardrails_of_a_template_that_is_built(node):
    reload(node, "{always_denied: []}")
    made = node.good("POST", "/v3/templates", {"name": "guarded"}, (202,)).json
    path = f"/templates/{made['templateID']}/builds/{made['buildID']}"
    script = (f"echo begun; for i in $(seq 200); do {tls(PUBLIC)} || exit 0; sleep 0.1; done; exit 1")
    node.good("POST", "/v2" + path, {"fromImage": "tool", "network": {"allowOut": ["0.0.0.0/0"]},
                                     "steps": [{"type": "RUN", "args": [script]}]}, (202,))
    end = time.monotonic() + PATIENCE
    while "begun" not in node.good("GET", path + "/status", status=(200,)).text:
        assert time.monotonic() < end
        time.sleep(0.05)
    reload(node, f"{{always_denied: [{PUBLIC}]}}")
    status = node.await_build(path)
    assert status["status"] == "ready", status
    reload(node, "{}")


@root_only
def test_a_bad_configuration_for_one_sandbox_is_refused(node, tmp_path):
    """A sandbox whose policy stands on the operator's rules."""
    (tmp_path / "key").write_text("lab-key")
    rules = ("credentials:\n  workspace:\n    - {host: keys.example, header: X-Key, secret: \"store:lab\"}\n")
    set_secret = subprocess.run([PROGRAM, "secret", "set", "lab"], input="lab-key\n", text=True, capture_output=True, check=False,
                                env=node.environment())
    assert set_secret.returncode == 0, set_secret
    reload(node, "{}", rules)
    policy = {"version": 1, "allow": [{"host": "keys.example"}], "credentials": [{"binding": "workspace"}]}
    sandbox = node.create(policy=policy)
    line = reload(node, "{always_denied: [198.51.100.0/24]}", good=False)
    assert f"the policy of sandbox {sandbox} does not fit it" in line, line
    assert probe(node, sandbox, {"name": "curl -sS -o /dev/null --max-time 10 https://keys.example/"}) == {"name"}
    node.remove(sandbox)
    subprocess.run([PROGRAM, "secret", "rm", "lab"], check=True, env=node.environment(), capture_output=True)
    reload(node, "{}")


# ---- the documents ----

@root_only
def test_the_readme(node):
    """The commands of a node as they stand in README.md, with the lab's image."""
    reload(node, "{}")
    with open(os.path.join(lab_module.PROJECT, "README.md"), encoding="utf-8") as file:
        text = file.read()
    lines = re.search(r"\n(    ID=\$\(penstock create .*?penstock rm \$ID\n)", text, re.S).group(1)
    lines = [line.split("  #")[0].strip().replace("buildpack-deps:curl", "tool") for line in lines.splitlines()]
    call = re.search(r"    (curl -X POST -H \"X-API-Key.*?\n.*?)\n", text).group(1)
    call = call.replace("buildpack-deps:curl", "tool").replace("http://127.0.0.1:8000", node.url)
    folder = tempfile.mkdtemp(dir="/var/tmp")
    os.symlink(PROGRAM, os.path.join(folder, "penstock"))
    done = subprocess.run(["bash", "-c", "".join(f"{line}\necho \"== $?\"\n" for line in [*lines, call])], capture_output=True, text=True,
                          check=False, timeout=120, env={**node.environment(), "PATH": folder + ":" + os.environ["PATH"]})
    shutil.rmtree(folder)
    outputs = re.split(r"== (\d+)\n", done.stdout)
    seen = list(zip(outputs[0::2], outputs[1::2]))
    assert [status for _, status in seen] == ["0", "0", "6", "0", "0", "0", "1", "0", "0", "0"], (done, seen)
    assert "logically" in seen[1][0] and "dns_name_denied" in seen[3][0] and "lab example.com" in seen[5][0], seen
    assert "deny" in seen[6][0] and json.loads(seen[9][0])["sandboxID"], seen
    for sandbox in node.states():
        node.remove(sandbox)
