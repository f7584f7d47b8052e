# SPDX-License-Identifier: Apache-2.0
"""Learn mode: everything public passes, and the policy that is written allows exactly what was done."""
import os
import re
import stat

import pytest

import zone
from conftest import assert_nothing_left, leftovers

# What a build does: curl by HTTPS and HTTP, git, Python; and a database by name and by address.
SCRIPT = """set -e
curl -sS --cacert $LAB_CA https://api.github.com/zen; echo
curl -sS --cacert $LAB_CA https://both.example:8443/ >/dev/null
curl -sS http://mirror.test/ >/dev/null
git -c http.sslCAInfo=$LAB_CA ls-remote https://github.com/octo/public.git
SSL_CERT_FILE=$LAB_CA /usr/bin/python3 -c 'import urllib.request as u; print(u.urlopen("https://pypi.org/zen").read().decode())'
/usr/bin/python3 -c 'import socket; print(socket.create_connection(("db.example", 2525), 5).recv(100))'
curl -sS http://198.51.100.77/ http://[2001:db8:100::77]/ >/dev/null
getent ahosts other.example >/dev/null
"""


def fresh(box, name):
    """A place for a policy, where nothing is."""
    if os.path.lexists(box.path(name)):
        os.unlink(box.path(name))
    return name


def learn(box, options, *command, file="learned.yaml", **more):
    fresh(box, file)
    return box.run(f"--learn {file} {options}", *command, **more)


def text_of(box, file="learned.yaml"):
    with open(box.path(file), encoding="utf-8") as opened:
        return opened.read()


def entries(text):
    """The policy without its comments."""
    return [line for line in text.split("\n") if line and not line.lstrip().startswith("#")]



def denials(result):
    return [line for line in result.log if line["verdict"] == "deny"]


def test_learn_and_run_again(box):
    script = SCRIPT.replace("$LAB_CA", box.lab.ca)
    first = learn(box, "", "sh", "-c", script)
    assert first.code == 0 and "Keep it logically awesome." in first.out, first
    assert "220 lab.example ready" in first.out, first
    assert denials(first) == [], first
    checked = box.raw("check", "--policy", "learned.yaml")
    assert checked.code == 0 and checked.err == "", (checked, text_of(box))
    again = box.run("--policy learned.yaml", "sh", "-c", script)
    assert again.code == 0 and again.out == first.out, (again, text_of(box))
    assert denials(again) == [] and again.err == "", (again, text_of(box))
    assert entries(text_of(box)) == """version: 1
base: deny
allow:
  - host: "api.github.com"
  - host: "both.example"
    ports: [8443]
  - host: "db.example"
    protocol: tcp
    ports: [2525]
  - host: "github.com"
  - host: "mirror.test"
    protocol: http
  - host: "other.example"
  - host: "pypi.org"
  - cidr: "198.51.100.77"
    protocol: tcp
    ports: [80]
  - cidr: "2001:db8:100::77"
    protocol: tcp
    ports: [80]""".split("\n")


def test_bindings_are_kept(box):
    """By reference, with their hosts: what is written runs as it is."""
    secret = os.path.join(box.home, "learned-secret")
    with open(secret, "w", encoding="utf-8") as file:
        file.write("labtok_learned\n")
    box.give(secret)
    options = (f"--allow v4.example --allow both.example --bind header:v4.example:X-Key=file:{secret} "
               "--bind header:both.example:X-Key:k={secret}=env:LEARNED")
    env = {"LEARNED": "labtok_variable"}
    first = learn(box, options, "curl", "-sS", "https://v4.example/", env=env)
    assert first.code == 0, first
    text = text_of(box)
    assert "labtok" not in text and f'secret: "file:{secret}"' in text and 'value: "k={secret}"' in text, text
    again = box.run("--policy learned.yaml", "curl", "-sS", "https://v4.example/", env=env)
    assert again.code == 0 and denials(again) == [], (again, text)
    assert [line["credential"] for line in again.log if line.get("credential")] == ["header:v4.example:X-Key"], again


def test_counts_presets_and_log(box):
    result = learn(box, "", "sh", "-c", f"for i in 1 2 3; do curl -s --cacert {box.lab.ca} https://pypi.org/zen; done; "
                                        "curl -s http://both.example/ http://both.example/headers >/dev/null; "
                                        "getent hosts denied.example >/dev/null")
    text = text_of(box)
    assert "  # https, 3 times; part of the preset @python\n  - host: \"pypi.org\"\n" in text, (text, result)
    assert "  # http, 2 times\n  - host: \"both.example\"\n    protocol: http\n" in text, text
    assert re.search(r"  # only looked up, \d+ times?\n  - host: \"denied.example\"\n", text), text
    # what a run without --learn would have refused
    tcp = [line for line in result.log if line["name"] == "pypi.org" and line["protocol"] == "tcp" and line["event"] == "decision"]
    assert [line["would_deny"] for line in tcp] == ["base_denied"] * 3, result
    assert {line["hint"] for line in tcp} == {"--allow pypi.org"}, result
    assert {line["would_deny"] for line in result.log if line["protocol"] == "dns"} == {"dns_name_denied"}, result
    assert all(line["verdict"] == "allow" for line in result.log), result
    assert "penstock: learned https pypi.org:443, 3 times\n" in result.err, result
    assert result.err.endswith("penstock: wrote learned.yaml; read it, then use it with --policy learned.yaml\n"), result


def test_what_was_given_is_not_called_refused(box):
    result = learn(box, "--allow pypi.org", "sh", "-c", f"curl -s --cacert {box.lab.ca} https://pypi.org/zen https://github.com/zen")
    marks = {line["name"]: "would_deny" in line for line in result.log if line["event"] == "decision"}
    assert marks == {"pypi.org": False, "github.com": True}, result
    assert 'host: "pypi.org"' in text_of(box), text_of(box)


def test_private_and_guardrails_hold(box):
    config = box.file("node.yaml", 'network: {egress: {always_denied: ["both.example", "203.0.113.9"]}}\n')
    answers, result = box.probe(f"--learn {fresh(box, 'learned.yaml')} --node-config {config}",
                                ["connect", "10.9.9.9", 80], ["connect", "169.254.169.254", 80], ["connect", "fd00:dead::9", 80],
                                ["connect", "203.0.113.9", 80], ["connect", zone.OWN4, zone.PORT_HOST_PLAIN],
                                ["connect", "private.example", 80], ["connect", "both.example", 443],
                                ["connect", "203.0.113.10", 80])
    assert [answer["result"] == "connected" for answer in answers] == [False] * 7 + [True], (answers, result)
    assert {"private_address", "node_denied"} <= set(result.reasons(verdict="deny")), result
    text = text_of(box)
    assert entries(text)[3:] == ['  - cidr: "203.0.113.10"', "    protocol: tcp", "    ports: [80]"] or "private.example" in text, text
    for private in ("10.9.9.9", "169.254.169.254", "fd00:dead", "203.0.113.9\"", zone.OWN4):
        assert private not in text, text
    assert box.raw("check", "--policy", "learned.yaml").code == 0, text


def test_private_range_by_choice(box):
    answers, result = box.probe(f"--learn {fresh(box, 'learned.yaml')} --allow-cidr 10.9.9.0/24", ["connect", "10.9.9.9", 80],
                                ["connect", "169.254.169.254", 80])
    assert [answer["result"] for answer in answers] == ["connected", "ECONNREFUSED"], result
    assert entries(text_of(box))[3:] == ['  - cidr: "10.9.9.9"', "    protocol: tcp", "    ports: [80]"], text_of(box)


def test_private_host_by_choice(box):
    policy = box.policy_file('{"version": 1, "allow": [{"host": "private-db.example", "protocol": "tcp", "ports": [80], "private": true}]}')
    answers, result = box.probe(f"--learn {fresh(box, 'learned.yaml')} --policy {policy}", ["connect", "private-db.example", 80])
    assert answers[0]["result"] == "connected", result
    assert entries(text_of(box))[3:] == ['  - host: "private-db.example"', "    protocol: tcp", "    ports: [80]", "    private: true"]
    again, result = box.probe("--policy learned.yaml", ["connect", "private-db.example", 80])
    assert again[0]["result"] == "connected", result


def test_datagrams(box):
    program = ("import socket, subprocess\n"
               "for target in (('203.0.113.5', 7), ('2001:db8:100::5', 7)):\n"
               " s = socket.socket(socket.AF_INET6 if ':' in target[0] else socket.AF_INET, socket.SOCK_DGRAM)\n s.settimeout(3)\n"
               " s.sendto(b'hello', target)\n print(s.recv(9))\n"
               "print(subprocess.call(['ping', '-qc1', '-W2', '203.0.113.5'], stdout=subprocess.DEVNULL))\n"
               "socket.create_connection(('203.0.113.6', 7), 3).close()\n"
               "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ns.settimeout(3)\ns.sendto(b'x', ('203.0.113.6', 7))\ns.recv(9)\n")
    first = learn(box, "", "/usr/bin/python3", "-c", program)
    assert first.code == 0 and first.out == "b'hello'\nb'hello'\n0\n", first
    assert entries(text_of(box))[3:] == """  - cidr: "203.0.113.5"
    protocol: udp
    ports: [7]
  - cidr: "203.0.113.5"
    protocol: icmp
  - cidr: "203.0.113.6"
    ports: [7]
  - cidr: "2001:db8:100::5"
    protocol: udp
    ports: [7]""".split("\n"), text_of(box)
    again = box.run("--policy learned.yaml", "/usr/bin/python3", "-c", program)
    assert again.code == 0 and again.out == first.out and denials(again) == [], again


def test_private_ping_is_not_learned(box):
    result = learn(box, "", "ping", "-qc1", "-W2", "10.9.9.9")
    assert result.code == 1 and result.reasons(verdict="deny") == ["private_address"], result
    assert entries(text_of(box))[2] == "allow: []", text_of(box)


def test_unanswered_destination(box):
    """Nobody answers: the policy still lets it be tried, as narrowly as can be."""
    result = learn(box, "", "curl", "-s", "--max-time", "5", "https://refused.example/")
    assert result.code == 7, result
    assert entries(text_of(box))[3:] == ['  - host: "refused.example"'], text_of(box)
    again = box.run("--policy learned.yaml", "curl", "-s", "--max-time", "5", "https://refused.example/")
    assert again.code == 7 and denials(again) == [], again


def test_nothing_reached(box):
    result = learn(box, "", "sh", "-c", "exit 3")
    assert result.code == 3, result
    assert entries(text_of(box)) == ["version: 1", "base: deny", "allow: []"], text_of(box)
    assert box.raw("check", "--policy", "learned.yaml").code == 0


def test_quiet(box):
    result = learn(box, "--quiet", "true")
    assert result.err == "" and os.path.exists(box.path("learned.yaml")), result


def test_file_cannot_be_written_by_others(box):
    learn(box, "", "true")
    assert stat.S_IMODE(os.stat(box.path("learned.yaml")).st_mode) & 0o022 == 0


BAD = [
    ("--learn exists.yaml", "exists.yaml"),
    ("--learn dangling.yaml", "dangling.yaml"),
    ("--learn missing/learned.yaml", "missing/learned.yaml"),
    ("--learn ''", "--learn"),
    ("--learn folder/", "folder/"),
    ("--learn learned.yaml --network all", "--network all"),
    ("--learn learned.yaml --deny-cidr 203.0.113.0/24", "--deny-cidr 203.0.113.0/24"),
    ("--learn learned.yaml --type bashkit", "bashkit"),
    ("--learn learned.yaml --type host", "DangerousLocalSandbox has no"),
    ("--learn learned.yaml --policy missing.yaml", "missing.yaml"),
]


@pytest.mark.parametrize("options,quoted", BAD, ids=[o for o, _ in BAD])
def test_refused_before_anything_starts(box, options, quoted):
    box.file("exists.yaml", "mine\n")
    for name in ("started", "learned.yaml"):
        fresh(box, name)
    if not os.path.lexists(box.path("dangling.yaml")):
        os.symlink("/nonexistent/target", box.path("dangling.yaml"))
    result = box.run(options, "touch", "started") if "bashkit" not in options else box.run(options, "touch started")
    assert result.code == 125 and result.err.count("\n") == 1 and quoted in result.err, result
    assert not os.path.exists(box.path("started")) and not os.path.exists(box.path("learned.yaml"))
    with open(box.path("exists.yaml"), encoding="utf-8") as file:
        assert file.read() == "mine\n"


@pytest.mark.parametrize("prepare", ["echo mine >learned.yaml", "ln -s ../elsewhere learned.yaml", "mkdir learned.yaml"])
def test_name_taken_while_it_runs(box, prepare):
    """The sandbox can write to the folder: what it puts there is neither followed nor replaced."""
    fresh(box, "learned.yaml")
    result = box.run("--learn learned.yaml", "sh", "-c", prepare + "; curl -sS -o /dev/null http://mirror.test/")
    assert result.code == 125 and "learned.yaml" in result.err, result
    assert '  - host: "mirror.test"\n    protocol: http\n' in result.err, "what was learned is lost"
    assert not os.path.lexists(os.path.join(os.path.dirname(box.project), "elsewhere"))
    assert [name for name in os.listdir(box.project) if name.startswith(".penstock")] == []
    if "mkdir" in prepare:
        os.rmdir(box.path("learned.yaml"))
    elif "echo" in prepare:
        assert text_of(box) == "mine\n"


def test_folder_by_way_of_a_link_of_an_earlier_sandbox(box):
    """One that it made leads where it wants; one that it cannot replace is the caller's."""
    elsewhere = box.lab.path(f"learned-{box.kind}")
    os.makedirs(elsewhere, exist_ok=True)
    os.chmod(elsewhere, 0o777)
    assert box.run("", "ln", "-sfn", elsewhere, "out").code == 0
    result = box.run("--learn out/learned.yaml", "true")
    assert result.code == 125 and "leads through the symbolic link" in result.err and os.listdir(elsewhere) == [], result
    os.unlink(box.path("out"))
    os.symlink(elsewhere, elsewhere + ".link")
    result = box.run(f"--learn {elsewhere}.link/learned.yaml", "true")
    assert result.code == 0 and os.listdir(elsewhere) == ["learned.yaml"], result
    os.unlink(os.path.join(elsewhere, "learned.yaml"))
    os.unlink(elsewhere + ".link")


def test_folder_moved_while_it_runs(box):
    """The file goes where it was meant to go, wherever the sandbox has taken that folder's name."""
    for name in ("out", "decoy"):
        os.makedirs(box.path(name), exist_ok=True)
        box.give(box.path(name))
    fresh(box, "out/learned.yaml")
    result = box.run("--learn out/learned.yaml", "sh", "-c", "mv out moved && ln -s decoy out")
    assert result.code == 0, result
    assert os.path.exists(box.path("moved/learned.yaml")) and os.listdir(box.path("decoy")) == [], result
    os.unlink(box.path("moved/learned.yaml"))
    os.rmdir(box.path("moved"))
    os.unlink(box.path("out"))


def test_nothing_is_left(box):
    before = leftovers()
    learn(box, "", "curl", "-s", "http://both.example/")
    assert_nothing_left(before)


def test_many_destinations(box):
    """More than can be kept: said, and what is kept is a policy that passes."""
    program = ("import socket\nfor port in range(1000, 1400):\n s = socket.socket()\n s.settimeout(5)\n"
               " s.connect_ex(('203.0.113.67', port))\n s.close()\n")
    result = learn(box, "", "/usr/bin/python3", "-c", program, timeout=60)
    assert '    ports: ["1000-1399"]' in text_of(box), (text_of(box)[:500], result.err[:500])
    assert box.raw("check", "--policy", "learned.yaml").code == 0
