# SPDX-License-Identifier: Apache-2.0
"""Without nft (ARCHITECTURE.md, "Where nft is missing"): what works then works as ever, the rest is refused at the start.
The kernel is made to lack it by PENSTOCK_SKELETON, and once for real, by a filter that refuses nft's netlink socket."""
import json
import os
import signal

import pytest

import conftest
import zone

ROUTES = {"PENSTOCK_SKELETON": "routes"}
BOTH = "--allow both.example --allow other.example"
NAMES = {"allow": [{"host": "both.example"}, {"host": "*.hosts.example", "ports": [443, 8443]},
                   {"host": "other.example", "protocol": "http"},
                   {"host": "db.example", "protocol": "tcp", "ports": [zone.PORT_DB]},
                   {"host": "refused.example", "protocol": "tcp", "ports": [zone.PORT_CLOSED]},
                   {"host": "refused.example"}, {"host": "private.example"}]}
AT_ONCE_MS = 50

# Runs the rest of its command line with a seccomp filter: socket(AF_NETLINK, _, NETLINK_NETFILTER) is not supported.
WITHOUT_NFT = """
import ctypes, os, struct, sys
ld, jeq, ret = 0x20, 0x15, 0x06
code = [(ld, 0, 0, 0), (jeq, 0, 5, NUMBER), (ld, 0, 0, 16), (jeq, 0, 3, 16), (ld, 0, 0, 32), (jeq, 0, 1, 12),
        (ret, 0, 0, 0x50000 | 93), (ret, 0, 0, 0x7fff0000)]
program = b"".join(struct.pack("HBBI", *line) for line in code)
buffer = ctypes.create_string_buffer(program, len(program))
prog = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(code), ctypes.addressof(buffer)), 16)
libc = ctypes.CDLL(None, use_errno=True)
if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, ctypes.byref(prog)):
    sys.exit("no filter: " + os.strerror(ctypes.get_errno()))
os.execv(sys.argv[1], sys.argv[1:])
""".replace("NUMBER", {"x86_64": "41", "aarch64": "198"}[os.uname().machine])


class Without:
    """The box of a kernel without nft."""

    def __init__(self, box):
        self.box = box

    def run(self, policy, *command, **options):
        options["env"] = {**ROUTES, **dict(options.get("env", ()))}
        return self.box.run(policy, *command, **options)

    def curl(self, policy, *arguments, **options):
        return self.run(policy, "curl", "-sS", "--max-time", "15", "--cacert", self.box.lab.ca, *arguments, **options)

    def probe(self, policy, *operations, **options):
        result = self.run(policy, "/usr/bin/python3", "-B", "probe.py", json.dumps(operations), **options)
        try:
            return json.loads(result.out), result
        except ValueError:
            pytest.fail(f"probe.py did not answer: {result}")


@pytest.fixture
def plain(box):
    return Without(box)


# ---- what is allowed ----

@pytest.mark.parametrize("family", ["-4", "-6"])
def test_curl(plain, family):
    result = plain.curl(NAMES, family, "https://both.example/", "https://a.hosts.example:8443/", "http://other.example/")
    assert result.code == 0, result
    assert [f"lab {name}" in result.out for name in ("both.example", "a.hosts.example", "other.example")] == [True] * 3, result
    assert "allowed_name" in result.reasons(name="both.example", event="decision"), result
    flows = [line for line in result.log if line["event"] == "flow"]
    assert {line["port"] for line in flows} == {443, 8443, 80} and all(line["bytes_in"] > 0 for line in flows), result


def test_git_and_python(plain):
    script = ("import ssl, sys, urllib.request\n"
              "context = ssl.create_default_context(cafile=sys.argv[1])\n"
              "print(urllib.request.urlopen('https://pypi.org/', timeout=10, context=context).read().decode())")
    python = plain.run("--allow pypi.org", "/usr/bin/python3", "-c", script, plain.box.lab.ca)
    assert python.code == 0 and "lab pypi.org" in python.out, python
    git = plain.run("--allow github.com", "git", "-c", f"http.sslCAInfo={plain.box.lab.ca}", "ls-remote",
                    "https://github.com/octo/public.git")
    assert git.code == 0 and "refs/heads/" in git.out, git


def test_names_addresses_and_protocols(plain):
    """In one sandbox: named TCP where the server speaks first, SNI on a literal address, DNS over both transports."""
    answers, result = plain.probe(NAMES, ["banner", "db.example", zone.PORT_DB],
                                  ["tls", "198.51.100.99", 443, "both.example"], ["tls", "2001:db8:100::99", 443, "both.example"],
                                  ["tls", "both.example", 443, None, False],
                                  ["dns_rcode", "both.example"], ["dns_rcode", "denied.example"],
                                  ["dns_rcode", "both.example", 1, 1, "127.0.0.53"], ["dns_rcode", "both.example", 28, 1, "2001:db8::53"])
    assert answers[0]["result"].startswith("220 "), result
    assert all("lab both.example" in str(answer["result"]) for answer in answers[1:3]), result
    assert "200 OK" in answers[3]["result"], result
    assert [answer["result"] for answer in answers[4:]] == [0, 3, 0, 0], result


def test_the_hosts_loopback(plain):
    hosts = [f"{host}:{zone.PORT_HOST_TLS}" for host in ("127.0.0.1", "[::1]", "localhost")]
    policy = "--allow-private --allow " + " --allow ".join(hosts)
    result = plain.curl(policy, *[f"https://{host}/" for host in hosts])
    assert result.code == 0 and result.out.count("host loopback here") == 3, result
    assert f"port {zone.PORT_HOST_TLS} of the sandbox's loopback leads to the host's" in result.err, result


# ---- what is refused ----

def test_refusals_in_one_sandbox(plain):
    tries = [(["connect", "203.0.113.1", 25], {"ECONNREFUSED"}), (["connect", "2001:db8:100::1", 25], {"ECONNREFUSED"}),
             (["connect", "both.example", 22], {"ECONNREFUSED"}), (["udp", "203.0.113.1", 7, "x"], {"ECONNREFUSED"}),
             (["udp", "2001:db8:100::1", 7, "x"], {"ECONNREFUSED"}), (["udp", "both.example", 443, "x"], {"ECONNREFUSED"}),
             (["tls", "198.51.100.25", 443, "denied.example", False], {"tls TLSV1_UNRECOGNIZED_NAME"}),
             (["tls", "both.example", 443, "other.example", False], {"tls TLSV1_UNRECOGNIZED_NAME"}),
             (["tls", "169.254.169.254", 443, None, False], {"ECONNRESET", "tls"}),
             (["tls", "127.0.0.1", 443, "both.example", False], {"ECONNRESET"}),
             (["tls", "::1", 443, "both.example", False], {"ECONNRESET"}),
             (["tls", "192.0.0.2", 443, "both.example", False], {"ECONNRESET"})]
    answers, result = plain.probe(NAMES, *[operation for operation, _ in tries for _ in range(3)])
    for i, (operation, wanted) in enumerate(tries):
        three = answers[3 * i:3 * i + 3]
        assert {str(answer["result"]) for answer in three} <= wanted, (operation, three, result)
        assert min(answer["ms"] for answer in three) < AT_ONCE_MS, (operation, three)
    assert {"base_denied", "name_mismatch", "private_address", "node_own_address"} <= set(result.reasons(event="decision")), result


def test_refusals_in_the_clients_protocol(plain):
    """What could not be reached or may not be is told after the first bytes, which the gate has to have by then."""
    answers, result = plain.probe(NAMES, ["tls", "refused.example", 443, "refused.example", False],
                                  ["tls", "private.example", 443, "private.example", False],
                                  ["send_and_read", "refused.example", zone.PORT_CLOSED, "x"],
                                  ["send_and_read", "both.example", 80, "GET / HTTP/1.1\r\nHost: both.example\r\n\r\n"],
                                  ["send_and_read", "both.example", 443, "GET / HTTP/1.1\r\nHost: both.example\r\n\r\n"])
    assert [answer["result"] for answer in answers[:2]] == ["tls TLSV1_ALERT_ACCESS_DENIED"] * 2, result
    assert answers[2]["result"] in ("<reset>", "ECONNRESET", "EPIPE"), result
    assert all(" 403 " in answer["result"] and "not_https" in answer["result"] for answer in answers[3:]), result
    assert {"upstream_failed", "private_address", "not_https"} <= set(result.reasons(event="decision")), result


def test_ping_is_not_answered(plain):
    result = plain.run(NAMES, "sh", "-c", "ping -n -c1 -W1 203.0.113.1 & ping -n -c1 -W1 2001:db8:100::1; wait; ping -c1 127.0.0.1")
    assert result.out.count(" 0 received") == 2 and result.out.count("bytes from 127.0.0.1") == 1, result


def test_nothing_is_allowed_by_nothing(plain):
    answers, result = plain.probe("--network none", ["connect", "203.0.113.1", 443], ["connect", "2001:db8:100::1", 443],
                                  ["resolve", "both.example"])
    assert [answer["result"] for answer in answers[:2]] == ["ECONNREFUSED"] * 2, result
    assert answers[2]["result"].startswith("resolve "), result


def test_ports_of_the_policy_are_taken(plain):
    script = ("import socket\n"
              "for port in (443, 8443, 3000):\n"
              "    try: socket.socket().bind(('127.0.0.1', port)); print(port, 'free')\n"
              "    except OSError as error: print(port, error.errno)")
    result = plain.run(NAMES, "/usr/bin/python3", "-c", script)
    assert result.out.split("\n")[:3] == ["443 98", "8443 98", "3000 free"], result


def test_connection_limit(plain):
    policy = {"allow": [{"host": "db.example", "protocol": "tcp", "ports": [zone.PORT_IDLE]}], "limits": {"connections": 4}}
    (answer,), result = plain.probe(policy, ["hold", "db.example", zone.PORT_IDLE, 6])
    assert answer["result"][:4] == ["connected"] * 4, result
    assert result.reasons(reason="limit_exceeded"), result


# ---- policies that need more ----

MANY = {"allow": [{"host": "both.example", "ports": ["1000-1100"]}]}


@pytest.mark.parametrize("policy,words", [
    ("--network all", ['"base allow"', "--network all"]),
    ("--allow-cidr 203.0.113.0/24", ['"allow any 203.0.113.0/24"', "--allow-cidr 203.0.113.0/24"]),
    ({"allow": [{"host": "both.example"}, {"cidr": "203.0.113.0/24", "protocol": "udp", "ports": [53]}]}, ['"allow udp 203.0.113.0/24:53"']),
    ({"allow": [{"cidr": "203.0.113.0/24", "protocol": "icmp"}]}, ['"allow icmp 203.0.113.0/24"']),
    (MANY, ["more ports than can be listened on", "both.example"]),
])
def test_a_policy_that_needs_more_is_refused(plain, policy, words):
    result = plain.run(policy, "true")
    assert result.code == 125, result
    for word in ["PENSTOCK_SKELETON=routes", *words, "unset it, or allow hosts by name"]:
        assert word in result.err, (word, result)


def test_a_wrong_wish(box):
    result = box.run(BOTH, "true", env={"PENSTOCK_SKELETON": "nosuch"})
    assert result.code == 125 and 'PENSTOCK_SKELETON: expected routes, got "nosuch"' in result.err, result


def test_quiet_and_the_note(plain):
    note = "nft is not used (PENSTOCK_SKELETON=routes)"
    assert note in plain.run(BOTH, "true").err
    assert plain.run(BOTH + " --quiet", "true").err == ""


# ---- the self-test, as far as sandboxes can be built ----

def test_self_test(box):
    result = box.raw("self-test", "--json", env=ROUTES)
    answer = json.loads(result.out)
    rest = [row["name"] for row in answer["attempts"] if row["result"] != "pass" and not row["group"].startswith("all public")]
    assert result.code == 0 and answer["failed"] == 0 and rest == [], (rest, result)
    assert 0 < answer["not_run"] < answer["passed"] / 3, result


# ---- a gate that dies ----

def test_killed_gate(plain):
    """While there is no gate: refused, never hung; after it: as before, under the same synthetic address."""
    script = f"""
first=$(getent hosts both.example)
curl -sS --cacert {plain.box.lab.ca} https://both.example/ && touch ready
for i in $(seq 200); do [ -e killed ] && break; sleep 0.05; done
for i in $(seq 60); do
    curl -sS -m 5 --cacert {plain.box.lab.ca} https://both.example/ && break
    [ $? = 28 ] && echo HUNG
    sleep 0.05
done
[ "$first" = "$(getent hosts both.example)" ] && echo SAME
"""
    before = conftest.leftovers()
    for name in ("ready", "killed"):
        if os.path.exists(plain.box.path(name)):
            os.unlink(plain.box.path(name))
    process = plain.box.popen(plain.box.arguments(BOTH, ["sh", "-c", script]), env=ROUTES, stdout=-1, stderr=-1)
    while not os.path.exists(plain.box.path("ready")):
        assert process.poll() is None, process.communicate()
    (gate,) = conftest.find_process("@gate")
    os.kill(gate, signal.SIGKILL)
    plain.box.file("killed", "")
    out, err = process.communicate(timeout=40)
    assert process.returncode == 0 and out.count(b"lab both.example") == 2, (out, err)
    assert b"HUNG" not in out and out.endswith(b"SAME\n"), (out, err)
    assert b"the gate process of the sandbox died; starting it again" in err, err
    conftest.assert_nothing_left(before)


# ---- a kernel that really lacks nft ----

@pytest.fixture
def lacking(box):
    program = box.program
    box.file("without_nft.py", WITHOUT_NFT)

    def run(*arguments):
        box.program = "/usr/bin/python3"
        try:
            return box.raw("-B", box.path("without_nft.py"), program, *arguments)
        finally:
            box.program = program
    return run


def test_a_kernel_without_nft(lacking, box):
    result = lacking(*box.arguments(BOTH, ["curl", "-sS", "--cacert", box.lab.ca, "https://both.example/"]))
    assert result.code == 0 and "lab both.example" in result.out, result
    assert "this kernel lacks nf_tables (CONFIG_NF_TABLES; modprobe nf_tables)" in result.err, result
    more = lacking("run", "--network", "all", "--", "true")
    assert more.code == 125 and "this kernel lacks nf_tables" in more.err and 'the rule "base allow"' in more.err, more
    assert "load or enable it" in more.err, more


def test_doctor_warns(lacking):
    result = lacking("doctor", "--json")
    rows = {row["check"]: row for row in json.loads(result.out)["checks"]}
    assert result.code == 0, result
    row = rows["network skeleton"]
    assert row["state"] == "warning" and "without nft" in row["found"] and "this kernel lacks nf_tables" in row["found"], row
    assert "address ranges, UDP or ICMP" in row["found"] and "modprobe" in row["fix"], row
    assert rows["raw and packet sockets"]["state"] == "ok" and rows["bubblewrap"]["state"] == "ok", rows
