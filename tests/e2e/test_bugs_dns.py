# SPDX-License-Identifier: Apache-2.0
"""Section B of the bug list (tests/bugs.md): DNS."""
import os
import subprocess

import pytest

import zone

NAME = "--allow both.example"
AT_ONCE_MS = 50
UNLISTED = "denied.example"


@pytest.fixture
def deny(box):
    box.file("deny.yaml", 'network: {egress: {always_denied: ["denied.example"]}}\n')
    return "--network all --node-config " + box.path("deny.yaml")


def asked(box, before, name):
    return [query for query in box.lab.dns_queries()[before:] if query["name"].endswith(name)]


# ---- who is asked ----

@pytest.mark.parametrize("policy", [NAME, "--network none", NAME + " --allow-cidr 203.0.113.0/24"])
def test_nobody_hears_of_a_denied_name(box, policy):
    """By no way that a name can be given, nor by what the log, its hints and the summary make of it."""
    before = len(box.lab.dns_queries())
    names = [f"{word}.{UNLISTED}" for word in ("secret-a", "secret-b", "secret-c")]
    box.craft(policy, ["dns", names[0]], ["dns", names[0], 16], ["dns", names[0], 28], ["dns", names[0], 65], ["dns", names[0], 255],
              ["dns_stream", names, zone.FOREIGN_DNS4], ["resolve", names[1]], ["sni", "198.51.100.25", 443, names[2]],
              ["request", "198.51.100.25", 80, names[2]], ["command", "getent", "hosts", names[0]], ["command", "curl", "-s", f"https://{names[1]}/"])
    assert box.raw("check", "--allow", "both.example", f"https://{names[0]}/").code == 1
    assert asked(box, before, UNLISTED) == []


def test_two_queries_on_one_connection_are_judged_each(box):
    """Also cut into single bytes, and to a server of the sandbox's choice; DNS over TLS is no way either."""
    before = len(box.lab.dns_queries())
    for server in (zone.FOREIGN_DNS4, zone.FOREIGN_DNS6, "10.9.9.9"):
        results, result = box.craft(NAME, ["dns_stream", ["both.example", UNLISTED, "both.example"], server],
                                    ["dns_stream", [UNLISTED, "both.example"], server, 1], ["connect", server, 853],
                                    ["tls", server, 853, "dns.example", False])
        assert results == [[0, 3, 0], [3, 0], "ECONNREFUSED", "ECONNREFUSED"], result
    assert asked(box, before, UNLISTED) == []
    assert {query["server"] for query in asked(box, before, "both.example")} <= {zone.ROUTER4, zone.ROUTER6}


def test_foreign_servers_get_no_other_datagrams_either(box):
    """What is not a query is not carried to port 53, whoever listens there."""
    before = len(box.lab.dns_queries())
    results, result = box.craft(NAME, *[["dns_raw", text, server, 0.2] for server in (zone.FOREIGN_DNS4, zone.FOREIGN_DNS6)
                                        for text in ("x", "x" * 11, "y" * 200, "z" * 1400)])
    assert set(results) <= {"silence", 1, 4}, result
    assert box.lab.dns_queries()[before:] == []


# ---- answers ----

def test_truncated_answers(box):
    """40 addresses: too many for 512 bytes, asked over UDP as small as that, over UDP with room, and over TCP."""
    def dig(*arguments):
        return box.run("--network all", "dig", "+time=4", "+tries=1", *arguments, "crowd.example", "A")
    small, roomy, tcp = dig("+noedns", "+ignore"), dig("+bufsize=1232", "+ignore"), dig("+tcp")
    assert " tc" in small.out and small.out.count("198.51.100.") < 40, small
    for result in (roomy, tcp, dig("+noedns")):
        flags = next(line for line in result.out.split("\n") if "flags:" in line)
        assert result.out.count("\tA\t198.51.100.") == 40 and " tc" not in flags, result


def test_denied_name_is_a_negative_answer_that_stubs_accept(box):
    """NXDOMAIN with a SOA of a small TTL and the reason; glibc and a plain stub take it at once."""
    result = box.run(NAME, "dig", "+time=4", "+tries=1", UNLISTED, "A")
    soa = next(line.split() for line in result.out.split("\n") if "\tSOA\t" in line)
    assert "status: NXDOMAIN" in result.out and "EDE: 15" in result.out and int(soa[1]) <= 60, result
    plain = box.run(NAME, "dig", "+noedns", "+time=4", "+tries=1", UNLISTED, "A")
    assert "status: NXDOMAIN" in plain.out and "EDE" not in plain.out and "\tSOA\t" in plain.out, plain
    answers, result = box.probe(NAME, *[["resolve", UNLISTED]] * 5)
    assert {a["result"] for a in answers} == {"resolve Name or service not known"}, result
    assert min(a["ms"] for a in answers) < AT_ONCE_MS, answers


def test_musl_takes_it_at_once(box):
    """The other C library's resolver, which asks both families at once and would go on to further servers after REFUSED."""
    source = ("#include <netdb.h>\n#include <stdio.h>\n#include <time.h>\n"
              "int main(int argc, char **argv) { struct addrinfo *found; struct timespec a, b; clock_gettime(CLOCK_MONOTONIC, &a);\n"
              "int rc = getaddrinfo(argv[argc - 1], \"443\", 0, &found); clock_gettime(CLOCK_MONOTONIC, &b);\n"
              "printf(\"%d %ld\\n\", rc, (b.tv_sec - a.tv_sec) * 1000 + (b.tv_nsec - a.tv_nsec) / 1000000); return 0; }\n")
    path = box.file("lookup.c", source)
    subprocess.run(["musl-gcc", "-static", "-o", box.path("lookup"), path], check=True)
    box.give(box.path("lookup"))
    denied = [box.run(NAME, "./lookup", UNLISTED).out.split() for _ in range(3)]
    assert {rc for rc, _ in denied} == {"-2"} and min(int(ms) for _, ms in denied) < AT_ONCE_MS, denied
    assert box.run(NAME, "./lookup", "both.example").out.startswith("0 ")


FETCH = "fetch(process.argv[1]).then(r => r.text()).then(console.log, e => { console.log(e.cause.code); process.exit(9); })"


@pytest.mark.parametrize("family", ["-6", "-4"])
def test_family_that_the_host_lacks_is_not_offered(box, family):
    """A host with one family: clients never see addresses of the other, and do not wait for them."""
    gateway = zone.ROUTER6 if family == "-6" else zone.ROUTER4
    source = zone.HOST6 if family == "-6" else zone.HOST4
    subprocess.run(["ip", family, "route", "del", "default"], check=True)
    try:
        results, result = box.craft(NAME, ["resolve", "both.example"], ["dns", "both.example", 28 if family == "-6" else 1],
                                    ["tls", "both.example", 443, "both.example"])
        curl = box.curl(NAME, "https://both.example/")
        node = box.run(NAME, "node", "-e", FETCH, "https://both.example/", env={"NODE_EXTRA_CA_CERTS": box.lab.ca})
        real = box.run({"allow": [{"host": "both.example"}], "dns": {"names": "real"}}, "getent", "ahosts", "both.example")
    finally:
        subprocess.run(["ip", family, "route", "add", "default", "via", gateway, "src", source], check=True)
    addresses = results[0] + [line.split()[0] for line in real.out.splitlines()]
    assert addresses and all((":" in address) == (family == "-4") for address in addresses), (result, real)
    assert results[1] == 0 and "200 OK" in results[2], result
    assert curl.code == 0 and node.code == 0 and max(curl.seconds, node.seconds) < 15, (curl, node)


def test_resolv_conf_of_another_kind(box):
    """The host's file is a link to a stub on 127.0.0.53: the sandbox gets its own, and the stub is asked from the host."""
    if box.lab.starter != "root":
        return  # only root can cover /etc with another one; tests/unit/sandbox/test_etc_file.c makes it there
    stub = ("import socket, threading\n"
            "a = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); a.bind(('127.0.0.53', 53)); print('ready', flush=True)\n"
            "while True:\n"
            "    data, peer = a.recvfrom(4096)\n"
            "    b = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); b.settimeout(3); b.sendto(data, ('192.0.2.1', 53))\n"
            "    a.sendto(b.recv(4096), peer)\n")
    server = subprocess.Popen(["/usr/bin/python3", "-c", stub], stdout=subprocess.PIPE)
    try:
        assert server.stdout.readline() == b"ready\n"
        etc = box.lab.path("other-etc")
        script = (f"rm -rf {etc}; cp -a /etc {etc} && mkdir -p /run/systemd/resolve && rm -f {etc}/resolv.conf && "
                  f"mount -t tmpfs run /run/systemd/resolve && echo 'nameserver 127.0.0.53' >/run/systemd/resolve/stub-resolv.conf && "
                  f"ln -s ../run/systemd/resolve/stub-resolv.conf {etc}/resolv.conf && mount --bind {etc} /etc && exec \"$@\"")
        command = box.argv(*box.arguments(NAME, ["sh", "-c", "cat /etc/resolv.conf; getent hosts both.example; ls -l /etc/resolv.conf"]))
        done = subprocess.run(["unshare", "--mount", "sh", "-ec", script, "sh", *command], cwd=box.project, env=box.environment(),
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    finally:
        server.kill()
        server.wait()
    assert done.returncode == 0 and "nameserver 192.0.0.1\n" in done.stdout and "both.example" in done.stdout, done
    assert "127.0.0.53" not in done.stdout, done


def test_a_hundred_lookups_at_once(box):
    (answer,), result = box.craft("--allow '*.many.example'", ["resolve_all", "n%d.many.example", 100])
    assert answer[:2] == [100, 100], result
    assert answer[2] < 4000, answer  # a lost answer would cost the five seconds of the C library's timer


def test_slow_server_holds_up_nobody_else(box):
    script = "getent hosts silent.example & sleep 0.1; getent hosts both.example; kill %1"
    result = box.run("--allow silent.example --allow both.example", "bash", "-c", script)
    assert "both.example" in result.out and result.seconds < 8, result


# ---- what a lookup opens ----

def test_twin_on_the_same_address(box):
    """Two names of one address, one of them allowed: the other stays closed, whether by name or by address."""
    for address in zone.ZONE["twin.example"]["A"] + zone.ZONE["twin.example"]["AAAA"]:
        before = len(box.lab.http_requests())
        results, result = box.craft("--allow twin.example", ["tls", "twin.example", 443, "twin.example"], ["sni", "twin.example", 443, "othertwin.example"],
                                    ["sni", address, 443, "othertwin.example"], ["sni", address, 443, "twin.example"],
                                    ["request", address, 80, "othertwin.example"], ["dns", "othertwin.example"], ["connect", address, 22])
        assert "lab twin.example" in results[0], result
        assert results[1:] == ["alert 112", "alert 112", "handshake", "ECONNREFUSED", 3, "ECONNREFUSED"], result
        assert {entry["host"] for entry in box.lab.http_requests()[before:]} == {"twin.example"}


def test_thousands_of_lookups_open_nothing_more(box):
    """One name, one address, one port; whatever was learned is not opened for others, nor on other ports."""
    results, result = box.craft(NAME, ["resolve_often", "both.example", 1500], ["connect", "both.example", 22], ["connect", "198.51.100.20", 22],
                                ["udp", "198.51.100.20", 7, "x"], ["tls", "both.example", 443, "both.example"])
    assert results[0] == 1 and results[1] == results[2] == "ECONNREFUSED" and results[3] in ("EHOSTUNREACH", "EACCES"), result
    assert "200 OK" in results[4], result


# ---- messages that are none ----

def malformed():
    """Questions that a strict parser refuses: [what, bytes]."""
    def query(name, counts=(1, 0, 0, 0), flags=0x0100, rest=b"\0\1\0\1"):
        return b"\x10\x92" + flags.to_bytes(2, "big") + b"".join(count.to_bytes(2, "big") for count in counts) + name + rest
    good = b"\4both\7example\0"
    longest = b"".join(b"\x3f" + b"a" * 63 for _ in range(4)) + b"\0"
    return {
        "pointer to itself": query(b"\xc0\x0c"),
        "pointers in a ring": query(b"\1a\xc0\x10\1b\xc0\x0c"),
        "pointer past the end": query(b"\xff\xff"),
        "label of 64": query(b"\x40" + b"a" * 64 + b"\0"),
        "extended label": query(b"\x80" + b"a" * 8 + b"\0"),
        "name of 257": query(longest),
        "no root": query(b"\4both\7example", rest=b""),
        "cut type": query(good, rest=b"\0"),
        "no question": query(b"", counts=(0, 0, 0, 0), rest=b""),
        "two questions": query(good + b"\0\1\0\1" + good, counts=(2, 0, 0, 0)),
        "65535 questions": query(good, counts=(65535, 0, 0, 0)),
        "65535 answers": query(good, counts=(1, 65535, 65535, 65535)),
        "length past the end": query(good, counts=(1, 0, 0, 1), rest=b"\0\1\0\1" + b"\0\0\x29\4\xd0\0\0\0\0\xff\xff"),
        "class ANY": query(good, rest=b"\0\1\0\xff"),
        "class CHAOS": query(b"\7version\4bind\0", rest=b"\0\x10\0\3"),
        "update": query(good, flags=0x2800),
        "a response": query(good, flags=0x8180),
        "transfer": query(good, rest=b"\0\xfc\0\1"),
    }


@pytest.mark.parametrize("policy", [NAME, "--network all"])
def test_malformed_messages(box, policy):
    """Refused or dropped, nobody is asked, and the next good question is answered."""
    before = len(box.lab.dns_queries())
    messages = malformed()
    results, result = box.craft(policy, *[["dns_raw", message.decode("latin-1"), zone.ROUTER4, 0.2] for message in messages.values()], ["dns", "both.example"])
    said = dict(zip(messages, results))
    assert [kind for kind, code in said.items() if code not in ("silence", 1, 4, 5)] == [], said
    assert results[-1] == 0, result
    assert {query["type"] for query in box.lab.dns_queries()[before:]} <= {"A", "AAAA"}


# ---- names that are denied, answers that are ----

def test_denied_name_by_another_resolver(box, deny):
    """As a program with DNS of its own (over HTTPS) would go: the address is known, the name is in SNI or Host only."""
    before = len(box.lab.http_requests())
    addresses = zone.ZONE[UNLISTED]["A"] + zone.ZONE[UNLISTED]["AAAA"]
    results, result = box.craft(deny, *[["sni", address, 443, UNLISTED] for address in addresses], *[["request", address, 80, UNLISTED] for address in addresses],
                                *[["request", address, 8000, UNLISTED] for address in addresses], *[["sni", address, 8443, UNLISTED] for address in addresses])
    assert results == ["alert 112"] * 2 + ["403"] * 4 + ["alert 112"] * 2, result
    assert box.lab.http_requests()[before:] == []


def test_denied_name_does_not_resolve_and_the_log_says_why(box, deny):
    before = len(box.lab.dns_queries())
    result = box.run(deny, "sh", "-c", f"getent hosts {UNLISTED}; echo $?; curl -sS https://{UNLISTED}/; echo $?; dig {UNLISTED}")
    assert result.out.startswith("2\n6\n") and "EDE: 15" in result.out and "status: NXDOMAIN" in result.out, result
    rows = [line for line in result.log if line["name"] == UNLISTED]
    assert rows and {line["reason"] for line in rows} <= {"dns_name_denied", "node_denied"} and "always_denied" in str(rows[0]["rule"]), rows
    assert asked(box, before, UNLISTED) == []


@pytest.mark.parametrize("policy", ["--network all", "--allow loopback.example", "--allow loopback.example --allow-cidr 203.0.113.0/24"])
def test_answer_that_is_loopback(box, policy):
    """It is the sandbox's own loopback, if anything, and nothing is called allowed."""
    results, result = box.craft(policy, ["connect", "loopback.example", zone.PORT_HOST_TLS], ["connect", "loopback.example", zone.PORT_HOST_PLAIN],
                                ["connect", "loopback.example", 443])
    assert set(results) == {"ECONNREFUSED"}, result
    assert "allow" not in {line["verdict"] for line in result.log if line["protocol"] == "tcp"}, result
