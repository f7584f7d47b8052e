# SPDX-License-Identifier: Apache-2.0
"""The command line: bad input, check, types, the decision log and the summary on exit."""
import json
import os
import re
import signal
import subprocess

import pytest

import lab as lab_module
import zone
from conftest import LOG_KEYS

REASONS = set("allowed_name allowed_cidr allowed_base node_denied node_own_address private_address denied_cidr base_denied no_name "
              "name_mismatch not_https protocol_denied port_denied dns_name_denied dns_failed dns_bad_message bad_request "
              "tls_bad_hello ech_denied limit_exceeded binding_failed upstream_failed policy_changed".split())
FILES = {"docker.json": '{"type": "docker"}', "empty.yaml": "", "malformed.yaml": "version: 1\nallow: [", "unknown.yaml": "version: 1\nbase: deny\nalow: []\n",
         "host.yaml": "version: 1\nallow:\n  - host: https://both.example\n", "good.yaml": "version: 1\nallow:\n  - host: both.example\n"}

# options of `run`, what the one line on stderr must quote
BAD = [
    (["--alow", "both.example"], "--alow"),
    (["--allow"], "--allow"),
    (["--allow", "https://both.example"], "https://both.example"),
    (["--allow", "both.example/path"], "both.example/path"),
    (["--allow", "a b"], "a b"),
    (["--allow", "both.example:0"], "both.example:0"),
    (["--allow", "both.example:65536"], "both.example:65536"),
    (["--allow", "user@both.example"], "user@both.example"),
    (["--allow", "both.*.example"], "both.*.example"),
    (["--allow", "1.2.3"], "1.2.3"),
    (["--allow", ""], '""'),
    (["--allow-cidr", "203.0.113.1/33"], "203.0.113.1/33"),
    (["--allow-cidr", "203.0.113.1/24"], "203.0.113.0/24"),
    (["--allow-cidr", "both.example"], "both.example"),
    (["--deny-cidr", "2001:db8::1/129"], "2001:db8::1/129"),
    (["--network", "some"], "some"),
    (["--policy", "missing.yaml"], "missing.yaml"),
    (["--policy", "empty.yaml"], "empty.yaml"),
    (["--policy", "malformed.yaml"], "malformed.yaml"),
    (["--policy", "unknown.yaml"], "alow"),
    (["--policy", "host.yaml"], "https://both.example"),
    (["--policy", "good.yaml", "--allow", "other.example"], "--policy"),
    (["--dns", "nonsense", "--allow", "both.example"], "nonsense"),
    (["--dns", "192.0.2.1:0", "--allow", "both.example"], "192.0.2.1:0"),
    (["--type", "nosuch"], "nosuch"),
    (["--type", "none"], "none"),
    (["--type", "host", "--allow", "both.example"], "DangerousLocalSandbox does not support Network.allow()"),
    (["--type", "docker", "--network", "all"], "not built yet"),
    (["--policy", "docker.json"], 'as the type in "docker.json"'),
    (["--type", "host", "--log", "log"], "--log: DangerousLocalSandbox has no"),
    (["--type", "host", "--read", "/usr"], "--read: DangerousLocalSandbox has no"),
    (["--type", "host", "--write", "."], "--write: DangerousLocalSandbox has no"),
    (["--type", "host", "--learn", "a.yaml"], "--learn: DangerousLocalSandbox has no"),
    (["--type", "host", "--proxy"], "--proxy: DangerousLocalSandbox has no"),
    (["--type", "host", "--dns", "192.0.2.1"], "--dns: DangerousLocalSandbox has no"),
    (["--log", "a.jsonl", "--log", "b.jsonl"], 'given twice ("a.jsonl" and "b.jsonl")'),
    (["--learn", "a.yaml", "--learn", "b.yaml"], 'given twice ("a.yaml" and "b.yaml")'),
    (["--read", "/nonexistent/folder"], "/nonexistent/folder"),
    (["--write", "/nonexistent/folder"], "/nonexistent/folder"),
    (["--log", "/nonexistent/folder/log"], '"/nonexistent/folder/log": its folder does not exist'),
    (["--log", "fd:99"], "fd:99"),
    (["--dns", zone.REFUSED4, "--allow", "both.example"], zone.REFUSED4),
]


@pytest.mark.parametrize("options,quoted", BAD, ids=[" ".join(o) for o, _ in BAD])
def test_bad_input(box, options, quoted):
    for name, text in FILES.items():
        box.file(name, text)
    if os.path.exists(box.path("started")):
        os.unlink(box.path("started"))
    result = box.raw("run", *options, "--", "touch", "started")
    assert result.code == 125, result
    assert result.err.startswith("penstock: ") and result.err.count("\n") == 1 and quoted in result.err, result
    assert not os.path.exists(box.path("started")), "it was run all the same"


@pytest.mark.parametrize("arguments", [["run"], ["run", "--allow", "both.example"], ["run", "--allow", "both.example", "--"]])
def test_missing_command(box, arguments):
    result = box.raw(*arguments)
    assert result.code == 125 and result.err.startswith("penstock: ") and result.err.count("\n") == 1, result


@pytest.mark.parametrize("arguments", [["nosuch"], ["--nosuch"]])
def test_unknown_command(box, arguments):
    result = box.raw(*arguments)
    assert result.code != 0 and arguments[0] in result.err, result


def test_missing_helper_program(box):
    """bubblewrap covered by something that cannot be executed (seen by the lab only)."""
    helper = subprocess.run(["which", "bwrap"], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    subprocess.run(["mount", "--bind", "/dev/null", os.path.realpath(helper)], check=True)
    try:
        result = box.raw("run", "--network", "none", "--", "true")
    finally:
        subprocess.run(["umount", os.path.realpath(helper)], check=True)
    assert result.code == 125 and result.err.count("\n") == 1, result
    assert "bwrap" in result.err or "bubblewrap" in result.err, result


def test_type_host_runs_directly(box):
    result = box.raw("run", "--type", "host", "--", "sh", "-c", "exit 5")
    assert result.code == 5 and "enforces nothing" in result.err and result.err.count("\n") == 1, result
    result = box.raw("run", "--quiet", "--type", "host", "--network", "all", "--", "echo", "here")
    assert (result.out, result.err) == ("here\n", ""), result
    assert box.raw("run", "--type", "host", "--network", "none", "--", "true").code == 125


def test_default_is_no_network(box):
    (answer,), result = box.probe([], ["connect", "203.0.113.1", 443])
    assert answer["result"] == "ECONNREFUSED", result


# ---- check and types ----

CHECK = [
    (["--allow", "both.example", "https://both.example/"], 0),
    (["--allow", "both.example", "http://both.example/"], 1),
    (["--allow", "both.example", "https://denied.example/"], 1),
    (["--allow", "both.example", "--resolved", "10.0.0.1", "https://both.example/"], 1),
    (["--allow-cidr", "203.0.113.0/24", "tcp://203.0.113.9:25"], 0),
    (["--allow-cidr", "203.0.113.0/24", "udp://203.0.113.9:53"], 0),
    (["--allow-cidr", "203.0.113.0/24", "icmp://203.0.113.9"], 1),
    (["--allow", "both.example", "dns://both.example"], 0),
    (["--allow", "both.example", "dns://denied.example"], 1),
    (["--network", "all", "tcp://169.254.169.254:80"], 1),
    (["--allow", "both.example"], 0),
    (["--allow", "https://both.example"], 2),
    (["--allow", "both.example", "gopher://both.example/"], 2),
    (["--policy", "missing.yaml"], 2),
    (["--type", "mistral", "--allow", "api.github.com"], 2),
]


@pytest.mark.parametrize("arguments,code", CHECK, ids=[" ".join(a) for a, _ in CHECK])
def test_check(box, arguments, code):
    result = box.raw("check", *arguments)
    assert result.code == code, result
    assert bool(result.err) == (code == 2), result


def test_check_json(box):
    result = box.raw("check", "--json", "--allow", "both.example", "https://denied.example/")
    answer = json.loads(result.out)
    assert {"verdict", "reason", "rule", "source", "name", "address", "port"} <= set(answer), answer
    assert (answer["verdict"], answer["reason"], answer["name"], answer["port"]) == ("deny", "base_denied", "denied.example", 443)


def test_refusal_of_a_type_to_the_letter(box):
    message = "MistralSandbox does not support Network.allow(); pass network=Network.none() or network=Network.all()"
    for verb, code in (("check", 2), ("run", 125)):
        result = box.raw(verb, "--type", "mistral", "--allow", "api.github.com", *(["--", "true"] if verb == "run" else []))
        assert result.code == code and message in result.err, result


def test_types(box):
    types = {entry["type"]: entry for entry in json.loads(box.raw("types", "--json").out)}
    assert set(types) == {"none", "bashkit", "mistral", "docker", "host", "custom", "process", "container"}
    assert types["mistral"] == {"type": "mistral", "name": "MistralSandbox", "network": ["none", "all"], "cidr": types["mistral"]["cidr"],
                                "credentials": ["github", "mistral_api", "workspace"]}
    assert types["bashkit"]["network"] == ["none", "all", "allow"] and types["bashkit"]["cidr"] is False
    assert types["process"]["cidr"] is True and types["process"]["name"] == "ProcessSandbox"
    text = box.raw("types").out
    assert all(name in text and entry["name"] in text for name, entry in types.items())


# ---- log and summary ----

def test_decision_log(box):
    _, result = box.probe("--allow both.example", ["tls", "both.example", 443, "both.example"], ["resolve", "denied.example"],
                          ["connect", "both.example", 8443])
    assert result.log, result
    for line in result.log:
        assert LOG_KEYS <= set(line) <= LOG_KEYS | {"hint"}, line
        assert line["event"] == "flow" or line["verdict"] != "deny" or line["hint"], line
        assert line["event"] in ("decision", "flow") and line["reason"] in REASONS, line
        assert line["verdict"] in ("allow", "deny", "inspect"), line
        assert line["protocol"] in ("tcp", "udp", "icmp", "dns"), line
    allowed = [line for line in result.log if line["name"] == "both.example" and line["protocol"] == "tcp" and line["verdict"] == "allow"]
    assert [line["event"] for line in allowed] == ["decision", "flow"], result
    assert allowed[1]["bytes_in"] > 100 and allowed[1]["bytes_out"] > 100 and allowed[1]["duration_ms"] >= 0, allowed
    assert allowed[0]["address"] in ("198.51.100.20", "2001:db8:100::20", None) and allowed[0]["port"] == 443, allowed
    assert "port_denied" in result.reasons(name="both.example", port=8443), result


def test_log_to_a_descriptor(box):
    reader, writer = os.pipe()
    result = box.raw("run", "--log", f"fd:{writer}", "--network", "none", "--", "curl", "-sS", "https://203.0.113.1/", pass_fds=[writer])
    os.close(writer)
    with open(reader, encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    assert result.code == 7 and "base_denied" in [line["reason"] for line in lines], (result, lines)


def test_log_to_a_closed_descriptor(box):
    box.program, program = "/bin/sh", box.program
    try:
        result = box.raw("-c", 'exec "$@" >&-', "sh", program, "run", "--log", "fd:1", "--", "true")
    finally:
        box.program = program
    assert result.code == 125 and "fd:1" in result.err, result


def test_log_goes_on_after_a_part_of_a_line(box):
    """What a disk that was full has left spoils no line of ours."""
    path = box.file("torn.log", '{"time":"2026-11-30T')
    result = box.raw("run", "--log", path, "--", "curl", "-sS", "https://both.example/")
    with open(path, encoding="utf-8") as file:
        lines = file.read().splitlines()
    assert result.code == 6 and len(lines) > 1 and all(json.loads(line)["event"] == "decision" for line in lines[1:]), lines


def test_no_room_by_a_limit(box):
    """RLIMIT_FSIZE is an error like a full disk: said, and the command still dies of it by itself."""
    box.program, program = "/bin/bash", box.program
    try:
        result = box.raw("-c", 'ulimit -f 4; exec "$@"', "sh", program, "run", "--", "true")
        inside = box.raw("-c", 'ulimit -f 64; exec "$@"', "sh", program, "run", "--", "sh", "-c", "head -c 200000 /dev/zero >/tmp/file")
    finally:
        box.program = program
    assert result.code == 125 and "File too large" in result.err, result
    assert inside.code == 128 + signal.SIGXFSZ, inside


def test_summary_of_denied_destinations(box):
    command = ["sh", "-c", "for i in 1 2 3; do curl -s https://denied.example/; done; curl -s https://both.example:8443/; "
                           "curl -sS --cacert $LAB_CA https://both.example/ >/dev/null"]
    result = box.run("--allow both.example", *command)
    lines = [line for line in result.err.split("\n") if "denied.example" in line]
    assert len(lines) == 1 and re.search(r"\b[36] times; .*--allow denied\.example$", lines[0]), result  # A, or A and AAAA
    assert "--allow both.example:8443\n" in result.err, result
    quiet = box.run("--quiet --allow both.example", *command)
    assert "denied.example" not in quiet.err and quiet.code == 0, quiet


def test_summary_with_a_policy_file(box):
    """A scan is one line, and what would allow it is an entry of that file."""
    policy = box.policy_file({"version": 1, "allow": [{"host": "both.example"}]})
    program = "import socket\nfor port in range(1, 40):\n  socket.socket().connect_ex(('203.0.113.9', port))\n"
    result = box.run(["--policy", policy], "sh", "-c", f'python3 -c "{program}"; curl -s https://denied.example/')
    assert len(result.err.splitlines()) == 2, result
    assert re.search(r"denied tcp 203.0.113.9:1,2,3,4 and other ports .*39 times; to allow, .*: - {?cidr: \"203.0.113.9\".*\n", result.err), result
    assert policy in result.err and '- host: "denied.example"\n' in result.err and "--allow" not in result.err, result


def test_summary_says_what_failed(box):
    result = box.run("--allow servfail.example", "curl", "-s", "https://servfail.example/")
    assert "penstock: failed dns servfail.example (dns_failed)" in result.err, result


def test_pipes_and_devices_need_no_protection(box):
    policy = box.policy_file({"version": 1, "allow": [{"host": "both.example"}]})
    script = f"exec '{box.program}' run --quiet --policy <(cat '{policy}') --log /dev/stderr -- getent hosts both.example"
    program, box.program = box.program, "bash"
    try:
        result = box.raw("-c", script)
    finally:
        box.program = program
    assert result.code == 0, result
    assert [json.loads(line)["name"] for line in result.err.splitlines()][:1] == ["both.example"], result


def test_what_cannot_be_read_is_refused(box):
    if box.kind == "user":
        hidden = box.file("hidden", "", 0o000)
        result = box.raw("run", "--read", hidden, "--", "true")
        assert result.code == 125 and "cannot be read" in result.err and result.err.count("\n") == 1, result


def test_name_of_the_first_process(box):
    assert box.raw("run", "--", "sh", "-c", "tr '\\0' ' ' </proc/1/cmdline").out.split() == ["penstock-init"]


def test_summary_names_addresses(box):
    result = box.run("--network none", "curl", "-s", "https://203.0.113.9/")
    assert "--allow-cidr 203.0.113.9" in result.err, result


def test_summary_of_another_port(box):
    """A listed name on a port of git: --allow would open HTTPS only."""
    result = box.run("--allow both.example", "curl", "-s", "telnet://both.example:9418")
    assert "to allow: policy entry {host: both.example, protocol: tcp, ports: [9418]}\n" in result.err, result


def test_no_summary_without_denials(box):
    result = box.run("--allow both.example", "true")
    assert result.err == "", result


def test_log_belongs_to_the_user(box):
    box.run("--network none", "curl", "-s", "https://203.0.113.9/")
    logs = [name for name in os.listdir(box.home) if name.startswith("log-")]
    assert logs and all(lab_module.json_lines(os.path.join(box.home, name)) is not None for name in logs)
