# SPDX-License-Identifier: Apache-2.0
"""A warm start of a sandbox on a node, POST /sandboxes until the answer, which is when its first process runs, beside bare `crun run`
of a command on the same root file system; and what an idle sandbox holds.

By itself: node_bench.py FOLDER ROOT, in a mount namespace of its own: runs crun once for each line and says how long it took."""
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import arena

RUNS = 10  # of each, in a round
sys.path[:0] = [os.path.join(arena.HERE, "..", name) for name in ("e2e", "lab")]


def elapsed(action):
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


# ---- bare crun ----

def crun(folder, root):
    """With crun's own idea of a container. It refuses where version 2 of cgroups has a controller beside version 1."""
    subprocess.run(["umount", "/sys/fs/cgroup/unified"], stderr=subprocess.DEVNULL, check=False)
    os.makedirs(folder)
    subprocess.run(["crun", "spec"], cwd=folder, check=True)
    path = os.path.join(folder, "config.json")
    with open(path, encoding="utf-8") as file:
        config = json.load(file)
    config["process"].update(terminal=False, args=["/bin/true"])
    config["process"].pop("rlimits")  # more than may be had here
    config["root"] = {"path": root, "readonly": True}
    with open(path, "w", encoding="utf-8") as file:
        json.dump(config, file)
    command = ["crun", f"--root={folder}/state", "--cgroup-manager=cgroupfs", "run", f"--bundle={folder}"]

    def run(name):
        if os.waitpid(os.posix_spawnp("crun", command + [name], os.environ), 0)[1]:
            raise SystemExit("bench: crun failed")
    for number, _ in enumerate(sys.stdin):
        print(elapsed(lambda: run(f"bare-{os.getpid()}-{number}")), flush=True)


class Crun:
    def __init__(self, folder, root):
        self.process = subprocess.Popen(["unshare", "--mount", sys.executable, "-B", __file__, folder, root], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True, bufsize=1)

    def run(self):
        self.process.stdin.write("\n")
        line = self.process.stdout.readline()
        if not line:
            raise arena.BenchError("crun does not run; apt-get install crun")
        return float(line)

    def end(self):
        self.process.stdin.close()
        self.process.wait()


# ---- memory ----

def private(pid):
    """KiB that nobody else has."""
    return sum(int(line.split()[1]) for line in arena.read(f"/proc/{pid}/smaps_rollup").splitlines() if line.startswith("Private_"))


def parts(shim):
    """KiB by the names of a shim's processes, and its own."""
    found = {"@shim": private(shim)}
    for pid in arena.Group(shim).pids()[1:]:
        name = arena.read(f"/proc/{pid}/comm").strip()
        found[name] = found.get(name, 0) + private(pid)
    return found


# ---- all ----

def measure(node, bare, options, ratios):
    for _ in range(options.rounds):
        times = {"crun": [], "create": [], "delete": []}
        for _ in range(RUNS):
            times["crun"].append(bare.run())
            made = []
            times["create"].append(elapsed(lambda: made.append(node.create("base"))))
            times["delete"].append(elapsed(lambda: node.delete(made[0])))
        medians = {name: statistics.median(values) for name, values in times.items()}
        print("  " + " ".join(f"{name} {value * 1e3:.1f} ms" for name, value in medians.items()), flush=True)
        ratios.add("node_start_vs_crun", medians["create"], medians["crun"])
    sandbox = node.create("base")
    time.sleep(1)
    memory = parts(node.shim(sandbox))
    print("  idle, private: " + " ".join(f"{name} {value} KiB" for name, value in memory.items()), flush=True)
    ratios.add("node_gate_keeper_mib", memory["@gate"] + memory["@keeper"], 1024)


def node(path, options, ratios):
    os.environ["PENSTOCK"] = os.path.join(os.path.abspath(options.build), "penstock")
    import survival  # its folder is known by now
    folder = tempfile.mkdtemp(prefix="penstock-bench-", dir="/var/tmp")
    registry, made, bare = survival.Registry(os.path.join(folder, "registry")), survival.Node(folder), None
    try:
        made.start()
        first = made.good("POST", "/sandboxes-cold", {"image": "base:one"})["sandboxID"]
        made.good("POST", f"/sandboxes/{first}/snapshots", {"name": "base"})
        layers = os.path.join(made.state, "images", "layers")
        root = [name for name in os.listdir(layers) if os.path.isdir(os.path.join(layers, name))][0]
        bare = Crun(os.path.join(folder, "bare"), os.path.join(layers, root))
        bare.run()
        measure(made, bare, options, ratios)
    finally:
        for sandbox in made.listed():
            made.delete(sandbox)
        made.end()
        registry.end()
        if bare:
            bare.end()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    crun(*sys.argv[1:3])
