# SPDX-License-Identifier: Apache-2.0
"""Enters the user and network namespace of a process with every capability there, removes rules and routes, tries a plain
default route, and then does probe.py's operations. Prints {"interfaces", "rules", "routes", "probes"} as JSON.

usage: intruder.py PID OPERATIONS"""
import ctypes
import fcntl
import json
import os
import socket
import struct
import subprocess
import sys

import probe

CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
NS_GET_USERNS = 0xB701
PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE = 47, 2
LAST_CAPABILITY = int(open("/proc/sys/kernel/cap_last_cap", encoding="utf-8").read())
libc = ctypes.CDLL(None, use_errno=True)


def must(value, what):
    if value != 0:
        raise OSError(ctypes.get_errno(), what)


def keep_capabilities():
    """Makes every capability survive exec, so that ip and nft have them."""
    everything = (1 << (LAST_CAPABILITY + 1)) - 1
    low, high = everything & 0xFFFFFFFF, everything >> 32
    header = struct.pack("Ii", 0x20080522, 0)
    must(libc.capset(header, struct.pack("6I", low, low, low, high, high, high)), "capset")
    for capability in range(LAST_CAPABILITY + 1):
        must(libc.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, capability, 0, 0), "ambient")


def command(*argv):
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=10, check=False)
    if done.returncode:
        raise RuntimeError(f"{argv}: {done.stdout}")
    return done.stdout.strip()


def enter(pid):
    """Into the network namespace of a process, and the user namespace that owns it, with every capability there."""
    net = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
    must(libc.setns(fcntl.ioctl(net, NS_GET_USERNS), CLONE_NEWUSER), "setns user")
    must(libc.setns(net, CLONE_NEWNET), "setns net")
    keep_capabilities()


def main(pid, operations):
    enter(pid)
    command("nft", "flush", "ruleset")
    for family in ("-4", "-6"):
        command("ip", family, "rule", "flush")
        for table in ("main", "100"):
            subprocess.run(["ip", family, "route", "flush", "table", table], stderr=subprocess.DEVNULL, check=False)
    interfaces = sorted(name for _, name in socket.if_nameindex())
    answers = [probe.perform(*operation) for operation in operations]
    routes = command("ip", "-4", "route", "show", "table", "main")
    rules = command("nft", "list", "ruleset")
    # And with routes of the intruder's own, which lead nowhere else than to `lo`.
    for family, source in (("-4", "10.0.0.1/32"), ("-6", "fd12::1/128")):
        command("ip", "addr", "add", source, "dev", "lo")
        command("ip", family, "rule", "add", "pref", "10", "lookup", "main")
        command("ip", family, "route", "replace", "default", "dev", "lo")
    answers += [probe.perform(*operation) for operation in operations]
    print(json.dumps({"interfaces": interfaces, "rules": rules, "routes": routes, "probes": answers}))


if __name__ == "__main__":
    probe.TIMEOUT = probe.DNS_TIMEOUT = 1
    main(int(sys.argv[1]), json.loads(sys.argv[2]))
