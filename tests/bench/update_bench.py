# SPDX-License-Identifier: Apache-2.0
"""Another policy for a sandbox with open connections, against nft -f with the same lists. By tests/update/update_rig.c."""
import json
import os
import statistics
import subprocess
import time

import arena

FLOWS, ROUNDS = 1000, 15
SIZES = (1000, 10000)


def addresses(count, first):
    return [f"1.{first + i // 65536}.{i // 256 % 256}.{i % 256}" for i in range(count)]


def policy(path, name, denied):
    text = json.dumps({"version": 1, "allow": [{"cidr": arena.SERVER + "/32"}, {"cidr": "1.0.0.0/8"}],
                       "deny": [{"cidr": address + "/32"} for address in denied], "limits": {"connections": FLOWS + 100}})
    with open(f"{path}/{name}", "w", encoding="utf-8") as file:
        file.write(text)
    return f"{path}/{name}"


def ours(path, host, size):
    """Milliseconds of each update, from the compiling of the new policy until it is in force, with all flows judged."""
    hold = f"sleep 600 | {host.program('load-client')} idle -c {FLOWS} -d 60000 -n {arena.NAMES['idle']} -a {arena.SERVER} -p 443"
    policies = [policy(path, f"update-{first}.json", addresses(size, first)) for first in (1, 2)]
    rig = subprocess.Popen(host.inside("host") + [f"{path}/update-rig", arena.UPSTREAM, f"{path}/update.log", f"{path}/update.out",
                                                  *policies, "--", "sh", "-c", hold], stdin=-1, stdout=-1, text=True, bufsize=1)

    def do(*words):
        print(*words, file=rig.stdin, flush=True)
        return json.loads(rig.stdout.readline())
    try:
        rig.stdout.readline()
        end = time.monotonic() + 30
        while do("count")["flows_open"] < FLOWS:
            if time.monotonic() > end:
                raise arena.BenchError(f"update: {do('count')['flows_open']} of {FLOWS} connections were opened")
            time.sleep(0.05)
        time.sleep(1)  # all are relayed
        answers = [do("update", 1 - i % 2) for i in range(ROUNDS)]
    finally:
        rig.kill()
        rig.wait()
    if any(answer["kept"] < FLOWS or answer["status"] for answer in answers):
        raise arena.BenchError(f"update: not all connections were kept: {answers[-1]}")
    return statistics.median(answer["us"] / 1000 for answer in answers), statistics.median(answer["gate_us"] / 1000 for answer in answers)


def nft(path, host, size):
    """The same denied addresses in a set, replaced in one transaction."""
    run = host.inside("server") + ["nft", "-f"]
    times = []
    for i in range(5):
        elements = ", ".join(addresses(size, 1 + i % 2))
        text = "table inet bench\ndelete table inet bench\ntable inet bench { set denied { type ipv4_addr; flags interval; elements = { " \
            + elements + " }\n}\nchain out { type filter hook output priority 0; policy accept; ip daddr @denied reject; }\n}\n"
        with open(f"{path}/update.nft", "w", encoding="utf-8") as file:
            file.write(text)
        begin = time.monotonic()
        arena.run(run + [f"{path}/update.nft"])
        times.append((time.monotonic() - begin) * 1000)
    return statistics.median(times)


def update(path, options, ratios):
    os.environ.setdefault("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
    for size in SIZES:
        with arena.Arena(path) as host:
            mine, gate = ours(path, host, size)
            theirs = nft(path, host, size)
        print(f"  {size} addresses, {FLOWS} connections: {mine:.2f} ms, of that in the gate {gate:.2f} ms; nft -f {theirs:.2f} ms", flush=True)
        ratios.add(f"update_{size}_vs_nft", mine, theirs)
