# SPDX-License-Identifier: Apache-2.0
"""Section D of the bug list (tests/bugs.md): addresses, rebinding, IPv6."""
import ipaddress
import json
import random
import subprocess

import pytest

import zone

PRIVATE4 = ["10.9.9.9", "169.254.169.254", "127.0.0.1"]


def embedded(address):
    """The forms in which IPv6 carries an IPv4 address."""
    a, b, c, d = (int(part) for part in address.split("."))
    high, low = f"{a:x}{b:02x}", f"{c:x}{d:02x}"
    inverted = f"{(a << 8 | b) ^ 0xffff:x}:{(c << 8 | d) ^ 0xffff:x}"
    return [f"::ffff:{address}", f"::{address}", f"::ffff:0:{address}", f"64:ff9b::{address}", f"64:ff9b:1::{address}", f"2002:{high}:{low}::1",
            f"2001:0:102:304:0:0:{inverted}", f"2001:db8:100::5efe:{address}", f"2001:db8:100::200:5efe:{address}"]


def judged(box, rows):
    """penstock check --cases."""
    cases = box.file("cases.jsonl", "".join(json.dumps({"id": f"c{number}", **row}) + "\n" for number, row in enumerate(rows)))
    checked = box.raw("check", "--cases", cases)
    assert checked.code == 0 and checked.out.endswith(f"{len(rows)} passed, 0 failed\n"), checked


def test_every_form_of_a_private_address(box):
    hosts = [form for address in PRIVATE4 for form in embedded(address)]
    # To ::ffff:127.0.0.1 and the like nobody listens in the sandbox: that is refused by its own kernel.
    results, result = box.craft("--network all", *[["connect", host, port] for host in hosts for port in (80, zone.PORT_HOST_PLAIN)])
    assert set(results) <= {"ECONNREFUSED", "ENETUNREACH", "EHOSTUNREACH"}, result
    assert "allow" not in {line["verdict"] for line in result.log}, result
    judged(box, [{"policy": {"network": "all"}, "request": f"tcp://[{host}]:80", "expect": "deny"} for host in hosts])
    judged(box, [{"policy": {"network": {"allow": {"hosts": ["a.example"]}}}, "request": "https://a.example/", "resolved": [host], "expect": "deny",
                  "reason": "private_address"} for host in hosts])


@pytest.mark.parametrize("cidr,inside", [("::ffff:10.0.0.0/104", "10.9.9.9"), ("::ffff:0:0/96", "203.0.113.9"), ("::ffff:203.0.113.0/120", "203.0.113.9"),
                                         ("64:ff9b::203.0.113.0/120", "64:ff9b::203.0.113.9")])
def test_ranges_in_mapped_space(box, cidr, inside):
    """A denied range means the IPv4 addresses, by whatever form they are asked for."""
    inside4 = inside.rpartition(":")[2]
    forms = [inside] + ([] if ":" in inside else [f"[::ffff:{inside4}]"]) if ":" not in inside else [f"[{inside}]"]
    for form in forms:
        result = box.raw("check", "--network", "all", "--allow-private", "--deny-cidr", cidr, f"tcp://{form}:80")
        assert result.code == 1 and "denied" in result.out, (form, result)


def test_range_that_covers_but_does_not_begin_there(box):
    """168.0.0.0/7 in IPv6 clothes: a guardrail inside of it holds, whatever network address the range has."""
    config = box.file("node.yaml", 'network: {egress: {always_denied: ["169.254.0.0/16"]}}\n')
    for cidr in ("::ffff:168.0.0.0/103", "168.0.0.0/7"):
        for address, code in (("169.254.169.254", 1), ("[::ffff:169.254.169.254]", 1), ("[64:ff9b::169.254.169.254]", 1), ("168.1.1.1", 0), ("169.253.0.1", 0)):
            result = box.raw("check", "--node-config", config, "--allow-cidr", cidr, f"tcp://{address}:80")
            assert result.code == code, (cidr, address, result)


# ---- errors are denials ----

def test_failure_first_then_a_private_answer(box):
    before = len(box.lab.http_requests())
    answers, result = box.probe("--allow flaky.example", *[["tls", "flaky.example", 443, "flaky.example", False]] * 6)
    assert not any("200 OK" in str(a["result"]) or a["result"] == "timeout" for a in answers), result
    assert set(result.reasons(name="flaky.example", verdict="deny")) <= {"dns_failed", "private_address"} and result.reasons(verdict="deny"), result
    assert "allow" not in {line["verdict"] for line in result.log if line["protocol"] == "tcp"}, result
    assert box.lab.http_requests()[before:] == []


@pytest.mark.parametrize("url", ["http:///x", "https://", "https://:443/", "https://[::1", "https://a b/", "https://%2e/", "https://both.example:x/", "https:both.example",
                                 "//both.example/", "both.example", "ftp://both.example/", "tcp://both.example", "https://both.example:0/", ""])
def test_what_does_not_parse_is_not_allowed(box, url):
    for policy in (["--network", "all"], ["--allow", "both.example"]):
        result = box.raw("check", *policy, url)
        assert result.code in (1, 2) and (result.code == 1 or result.err.startswith("penstock: ")), result


# ---- own addresses ----

def test_address_that_the_host_gets_later(box):
    """203.0.113.251 is the internet's; then the host takes it, on a link or on its loopback: from then on it is the host's own."""
    script = ("import socket, sys\n"
              "for line in sys.stdin:\n"
              "    try:\n"
              "        s = socket.create_connection((line.strip(), 9100), 5); print('connected', flush=True)\n"
              "    except OSError as e: print(type(e).__name__, flush=True)\n")
    for policy in ("--network all", "--network all --allow-private", "--allow-cidr 203.0.113.0/24 --allow-cidr 2001:db8::/32"):
        for family, address, device in (("-4", "203.0.113.251/32", "uplink"), ("-4", "203.0.113.252/32", "lo"), ("-6", "2001:db8:100::251/128", "uplink")):
            process = box.popen(box.arguments(policy, ["/usr/bin/python3", "-c", script]), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                stderr=subprocess.DEVNULL, text=True)
            def ask(host=address.partition("/")[0]):
                process.stdin.write(host + "\n")
                process.stdin.flush()
                return process.stdout.readline().strip()
            try:
                first = ask()   # nobody listens there on the internet's side
                subprocess.run(["ip", family, "address", "add", address, "dev", device] + (["nodad"] if family == "-6" else []), check=True)
                assert [first, ask()] == ["ConnectionRefusedError"] * 2, (policy, address)
            finally:
                subprocess.run(["ip", family, "address", "del", address, "dev", device], check=False)
                process.stdin.close()
                process.wait()
                process.stdout.close()


# ---- IPv6 is there, and judged ----

def test_ipv6_can_be_used_at_once(box):
    """The very first thing that a sandbox does; no address waits for an answer that nobody gives."""
    for _ in range(3):
        results, result = box.craft("--allow-cidr 2001:db8:100::/48", ["connect", "2001:db8:100::9", 80], ["addresses"])
        assert results == ["connected", [True, []]], result


@pytest.mark.parametrize("policy", ["--network none", "--allow both.example", "--allow-cidr 203.0.113.0/24", "--network all --deny-cidr 2001:db8:100::/48"])
def test_both_families_are_closed_alike(box, policy):
    results, result = box.craft(policy, *[["connect", host, port] for host in ("2001:db8:100::9", "fd00:dead::9", zone.HOST6, "::ffff:10.9.9.9") for port in (22, 8000)],
                                ["udp", "2001:db8:100::9", 7, "x"], ["command", "curl", "-6", "-sS", "http://[2001:db8:100::9]:8000/"])
    assert set(results[:8]) == {"ECONNREFUSED"} and results[8] in ("EACCES", "EHOSTUNREACH") and results[9][0] == 7, result


# ---- ranges in a policy ----

def test_overlapping_ranges(box):
    """Duplicates, ranges in ranges, neighbours: all load, and the longest match has nothing to win."""
    ranges = ["100.64.0.0/10", "100.64.1.1", "100.64.1.1", "203.0.113.0/25", "203.0.113.128/25", "203.0.113.0/24", "2001:db8:100::/48", "2001:db8:100::/64", "2001:db8:100::1"]
    results, result = box.craft([word for cidr in ranges for word in ("--allow-cidr", cidr)], *[["connect", host, 80] for host in
                                ("203.0.113.1", "203.0.113.127", "203.0.113.129", "2001:db8:100::1", "2001:db8:100:1::1", "198.51.100.1")])
    assert results == ["connected"] * 5 + ["ECONNREFUSED"], result


def test_four_thousand_ranges(box):
    """4,096 random prefixes, overlapping as they come; the same verdict as a plain look through the list."""
    draw = random.Random(70)
    networks = [ipaddress.ip_network((draw.getrandbits(32), draw.choice([8, 12, 16, 20, 24, 28, 32])), strict=False) for _ in range(2048)]
    networks += [ipaddress.ip_network((0x20010db8 << 96 | draw.getrandbits(96), draw.choice([40, 48, 56, 64, 128])), strict=False) for _ in range(2047)]
    networks.append(ipaddress.ip_network("203.0.113.0/29"))
    policy = box.policy_file({"network": {"denyOut": ["0.0.0.0/0"], "allowOut": [str(network) for network in networks]}})
    (first, second), result = box.craft(["--policy", policy, "--dialect", "e2b"], ["connect", "203.0.113.1", 80], ["connect", "203.0.113.9", 80])
    inside = any(ipaddress.ip_address("203.0.113.9") in network for network in networks)
    assert [first, second] == ["connected", "connected" if inside else "ECONNREFUSED"], result
    document = json.loads(open(policy, encoding="utf-8").read()) | {"dialect": "e2b"}
    hosts = [str(ipaddress.ip_address(draw.getrandbits(32))) for _ in range(20)] + [str(draw.choice(networks)[0]) for _ in range(20)]
    public = [host for host in map(ipaddress.ip_address, hosts) if host.is_global and not host.is_multicast]
    judged(box, [{"policy": document, "request": f"tcp://[{host}]:80" if host.version == 6 else f"tcp://{host}:80",
                  "expect": "allow" if any(host.version == n.version and host in n for n in networks) else "deny"} for host in public])


def test_a_private_literal_is_consent(box):
    """An address or range that is written out opens itself and nothing else; only the operator can forbid it, and is named."""
    results, result = box.craft("--allow-cidr 10.9.9.9", ["connect", "10.9.9.9", 80], ["connect", "169.254.169.254", 80], ["connect", "fd00:dead::9", 80])
    assert results == ["connected", "ECONNREFUSED", "ECONNREFUSED"], result
    entry = box.run("--allow 10.9.9.9", "curl", "-sk", "https://10.9.9.9/")
    assert entry.code == 7 and "--allow-cidr 10.9.9.9" in entry.err + str(entry.log), entry
    config = box.file("node.yaml", 'network: {egress: {always_denied: ["10.0.0.0/8"]}}\n')
    checked = box.raw("check", "--node-config", config, "--allow-cidr", "10.9.9.9", "tcp://10.9.9.9:80")
    assert checked.code == 1 and "always_denied" in checked.out and "10.0.0.0/8" in checked.out, checked
    (answer,), result = box.craft(["--node-config", config, "--allow-cidr", "10.9.9.9"], ["connect", "10.9.9.9", 80])
    assert answer == "ECONNREFUSED" and result.reasons(address="10.9.9.9") == ["node_denied"], result


def test_one_private_port_only(box):
    policy = {"allow": [{"cidr": "10.9.9.9/32", "ports": [8000]}, {"host": "both.example"}]}
    results, result = box.craft(policy, ["connect", "10.9.9.9", 8000], ["connect", "10.9.9.9", 80], ["connect", "169.254.169.254", 8000], ["connect", "fd00:dead::9", 8000],
                                ["connect", zone.HOST4, 9100], ["resolve", "private.example"])
    assert results[:5] == ["connected"] + ["ECONNREFUSED"] * 4 and "resolve" in str(results[5]), result
