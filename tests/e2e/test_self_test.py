# SPDX-License-Identifier: Apache-2.0
"""penstock self-test: every attempt fails in a sandbox, and most succeed without one, so that a pass means something."""
import json
import os
import signal
import subprocess
import time

import pytest

from conftest import assert_nothing_left, leftovers

TIMEOUT = 90
# Attempts that must be seen to succeed without a sandbox, whoever makes them.
MUST_FAIL = {
    ("no network: this host", "TCP, IPv4"), ("no network: this host", "UDP, IPv4"), ("no network: this host", "loopback, IPv4"),
    ("no network: this host", "loopback, IPv6"), ("no network: this host", "the unspecified address, IPv4"),
    ("no network: this host", "the unspecified address, IPv6"), ("no network: out there", "TCP, IPv4"),
    ("no network: out there", "DNS over UDP"), ("no network: out there", "DNS over TCP"),
    ("sockets and links", "a link other than lo"), ("sockets and links", "a foreign source address"),
    ("the gate", "seeing its processes"), ("the gate", "seeing its keeper"), ("neighbours", "seeing its processes"), ("UNIX sockets", "an abstract socket"),
    ("UNIX sockets", "a socket in the working directory"), ("UNIX sockets", "a socket elsewhere"), ("kernel", "BPF"),
    ("kernel", "input pushed into the terminal"), ("the host's secrets", "a file in the home folder"),
    ("the host's secrets", "the environment of a process"), ("the host's secrets", "the way to the SSH agent"),
    ("the host's secrets", "the host's proxy"), ("the host's secrets", "inherited descriptors"),
    ("the host's secrets", "shared memory, System V"), ("the host's secrets", "shared memory, POSIX"),
    ("the host's processes", "seeing one"), ("the host's processes", "a signal to one"),
    ("the host's files", "set-user-ID programs and capabilities"), ("the host's files", "a file beside the working directory"),
    ("the host's files", "a file in /tmp"), ("all public: this host", "TCP, IPv4"), ("all public: this host", "UDP, IPv4"),
    ("all public: this host", "an abstract socket"), ("all public: this host in IPv6 clothes", "mapped, ::ffff:0:0/96"),
    ("one name: DNS", "an unlisted name over UDP"), ("one name: DNS", "two questions"), ("one name: DNS", "over TLS"),
    ("one name: claims", "the allowed name in SNI, to another address"), ("one name: claims", "the allowed name in Host"),
    ("one name: claims", "CONNECT to this host"), ("one name: claims", "the allowed name, which resolves to this host"),
    ("one name: limits", "300 connections at once"), ("rules flushed by root", "this host, TCP, IPv4"),
    ("rules flushed by root", "DNS"),
}
if not (os.path.isdir("/dev/shm") and os.stat("/dev/shm").st_mode & 0o002):  # a bare root has none to share
    MUST_FAIL.discard(("the host's secrets", "shared memory, POSIX"))
MUST_FAIL_FOR_ROOT = {("the gate", "listening in its place, IPv4"), ("sockets and links", "raw socket, IPv4"),
                      ("sockets and links", "packet socket"), ("the host's secrets", "/etc/shadow"),
                      ("the host's processes", "tracing one"), ("the host's files", "writing a program"),
                      ("namespaces", "every process's, through /proc")}


def self_test(box, *options):
    result = box.raw("self-test", "--json", *options, timeout=TIMEOUT)
    try:
        return json.loads(result.out), result
    except ValueError:
        pytest.fail(f"no JSON: {result}")


def by_result(answer, wanted):
    return {(row["group"], row["name"]) for row in answer["attempts"] if row["result"] == wanted}


def test_nothing_escapes(box):
    before, homes = leftovers(), sorted(os.listdir(box.home))
    answer, result = self_test(box, "--keep-going")
    assert not by_result(answer, "FAIL"), [row for row in answer["attempts"] if row["result"] == "FAIL"]
    assert result.code == 0 and answer["failed"] == answer["not_run"] == 0, result
    assert answer["passed"] == len(answer["attempts"]) >= 40
    assert answer["slowest_ms"] < 1000 and result.seconds < 60
    assert [row["number"] for row in answer["attempts"]] == list(range(1, len(answer["attempts"]) + 1))
    assert_nothing_left(before)
    assert sorted(os.listdir(box.home)) == homes


def test_it_fails_without_a_sandbox(box):
    before, homes = leftovers(), sorted(os.listdir(box.home))
    answer, result = self_test(box, "--keep-going", "--direct")
    failed = by_result(answer, "FAIL")
    assert result.code == 1 and answer["failed"] == len(failed), result
    missed = MUST_FAIL | (MUST_FAIL_FOR_ROOT if box.kind == "root" else set())
    missed -= failed
    assert not missed
    assert len(failed) > 0.55 * len(answer["attempts"]), (len(failed), sorted(by_result(answer, "pass")))
    reasons = {(row["group"], row["name"]): row["detail"] for row in answer["attempts"]}
    assert reasons["the host's processes", "a signal to one"] == "the signal reached a process of this host"
    assert "secret" in reasons["no network: out there", "DNS over UDP"]
    assert_nothing_left(before)
    assert sorted(os.listdir(box.home)) == homes


def test_it_stops_at_the_first_failure(box):
    result = box.raw("self-test", "--direct", timeout=TIMEOUT)
    assert result.code == 1 and "1 failed" in result.out and "not run" in result.out, result
    assert result.out.startswith("no network: this host\n    1 FAIL  TCP, IPv4: "), result


def test_interrupted_it_leaves_nothing(box):
    before = leftovers()
    process = box.popen(["self-test"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout.readline() == b"no network: this host\n"
    time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=20)
    assert process.returncode == 1, (out, err)
    assert_nothing_left(before)


def test_unknown_argument(box):
    result = box.raw("self-test", "--nosuch")
    assert result.code == 2 and result.err.startswith("penstock: ") and "--nosuch" in result.err, result
