# SPDX-License-Identifier: Apache-2.0
"""How long `penstock run -- true` takes beside bubblewrap alone with the same view of the file system and no network."""
import os
import statistics
import time

from arena import NAMES, UPSTREAM, Arena
from paths import AS_USER, environment

RUNS = 6  # of each, in a round


def bubblewrap(cwd):
    command = ["bwrap", "--unshare-user", "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--die-with-parent"]
    for folder in ("/usr", "/etc", "/bin", "/sbin", "/lib", "/lib64", "/opt"):
        if os.path.islink(folder):
            command += ["--symlink", os.readlink(folder), folder]
        elif os.path.isdir(folder):
            command += ["--ro-bind", folder, folder]
    return command + ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--tmpfs", "/run", "--bind", cwd, cwd,
                      "--chdir", cwd, "--", "true"]


def elapsed(command):
    start = time.perf_counter()
    pid = os.posix_spawnp(command[0], command, os.environ)
    status = os.waitpid(pid, 0)[1]
    if status:
        raise SystemExit(f"bench: {' '.join(command)}: status {status}")
    return time.perf_counter() - start


def start(path, options, ratios):
    names = [word for name in NAMES.values() for word in ("--allow", name)]
    with Arena(path) as arena:
        for _ in range(options.rounds):
            for kind in ("user", "root"):
                cwd = f"{path}/{kind}/project"
                prefix = arena.inside("host") + (AS_USER if kind == "user" else []) + environment(kind, path) + [
                    "--chdir=" + cwd, "nice", "-n", "0"]
                ways = {"bwrap": bubblewrap(cwd), "none": [f"{path}/penstock", "run", "--quiet", "--", "true"]}
                if kind == "user":
                    ways["names"] = [f"{path}/penstock", "run", "--quiet", "--dns", UPSTREAM] + names + ["--", "true"]
                ways["nothing"] = ["true"]
                times = {name: [] for name in ways}
                for _ in range(RUNS):
                    for name, command in ways.items():
                        times[name].append(elapsed(prefix + command))
                floor = statistics.median(times.pop("nothing"))  # of the programs around each of them
                medians = {name: statistics.median(values) - floor for name, values in times.items()}
                print(f"  {kind:5} " + " ".join(f"{name} {value * 1e3:.1f} ms" for name, value in medians.items()), flush=True)
                ratios.add(f"start_{kind}_vs_bwrap", medians["none"], medians["bwrap"])
                if kind == "user":
                    ratios.add("start_names_vs_bwrap", medians["names"], medians["bwrap"])
