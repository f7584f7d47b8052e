# SPDX-License-Identifier: Apache-2.0
"""What idle connections cost. The sandbox's limit on connections is raised; the limit on descriptors is the machine's."""
import json

import paths
from arena import NAMES

MANY, COMPARED = 9000, 2000


def hold(path, enter, count):
    """Memory (KiB) and descriptors for each connection, and how many there were."""
    with enter(path) as (shell, group):
        memory, descriptors = group.memory(), group.descriptors()
        result = shell.load("idle", count, 60)
        held = max(result["answered"], 1)
        cost = (group.memory() - memory) / held, (group.descriptors() - descriptors) / held, result["answered"]
        shell.say("")
    print(f"  {enter.__name__:12} {cost[2]} idle: {cost[0] * 1000:.0f} KiB per 1,000, {cost[1]:.2f} descriptors each", flush=True)
    return cost


def roomy(path):
    policy = {"version": 1, "dialect": "native", "allow": [{"host": name} for name in NAMES.values()], "limits": {"connections": MANY + 500}}
    with open(f"{path}/idle.yaml", "w", encoding="utf-8") as file:
        file.write(json.dumps(policy))
    return paths.penstock(path, policy=["--policy", f"{path}/idle.yaml"])


def idle(path, options, ratios):
    for _ in range(min(options.rounds, 3)):
        ours, haproxy = hold(path, roomy, COMPARED), hold(path, paths.haproxy, COMPARED)
        ratios.add("idle_memory_vs_haproxy", ours[0], haproxy[0])
    many = hold(path, roomy, MANY)
    ratios.add("idle_kib_per_1000", many[0] * 1000)
    ratios.add("idle_descriptors_each", many[1])
    ratios.add("idle_connections_held", many[2])
