# SPDX-License-Identifier: Apache-2.0
"""Connections and bulk: the same client and server, by each path, in interleaved rounds."""
import paths
from arena import SERVER

IN_FLIGHT = 64


def measure(path, enter, seconds, modes=("rate", "first", "down", "up")):
    """What one path does: a dictionary of figures."""
    figures = {}
    with enter(path) as (shell, group):
        for mode in modes:
            before = group.cpu() if group else 0.0
            load = "rate" if mode == "first" else mode
            result = shell.load(load, IN_FLIGHT if mode == "rate" else 1, seconds)
            spent = (group.cpu() if group else 0.0) - before
            if result["failed"]:
                print(f"  {enter.__name__} {mode}: {result['failed']} connections failed")
            if mode == "rate":
                figures.update(rate=result["rate"], rate_cpu=spent * 1e6 / max(result["answered"], 1))
            elif mode == "first":
                figures.update(p50=result["first_p50"], p99=result["first_p99"])
            else:
                figures.update({mode: result["gbit"], mode + "_cpu": spent / max(result["gigabytes"], 0.001)})
    print(f"  {enter.__name__:12} " + " ".join(f"{name} {value:.4g}" for name, value in figures.items()), flush=True)
    return figures


def by_name(path):
    return paths.penstock(path)


def by_address(path):
    return paths.penstock(path, policy=["--allow-cidr", SERVER + "/32"], options=("-a", SERVER))


def by_user(path):
    return paths.penstock(path, "user")


def proxies(path, options, ratios):
    for _ in range(options.rounds):
        direct, ours, nginx, haproxy = (measure(path, way, options.seconds) for way in
                                        (paths.direct, by_name, paths.nginx, paths.haproxy))
        address = measure(path, by_address, options.seconds, ("rate",))
        for name, peer in (("nginx", nginx), ("haproxy", haproxy), ("direct", direct)):
            ratios.add(f"conn_rate_vs_{name}", ours["rate"], peer["rate"])
            ratios.add(f"down_vs_{name}", ours["down"], peer["down"])
            ratios.add(f"up_vs_{name}", ours["up"], peer["up"])
        ratios.add("conn_rate_address_vs_direct", address["rate"], direct["rate"])
        ratios.add("conn_cpu_vs_nginx", ours["rate_cpu"], nginx["rate_cpu"])
        ratios.add("first_byte_p50_vs_direct", ours["p50"], direct["p50"])
        ratios.add("first_byte_p99_vs_direct", ours["p99"], direct["p99"])
        ratios.add("first_byte_p50_vs_haproxy", ours["p50"], haproxy["p50"])
        ratios.add("down_cpu_vs_haproxy", ours["down_cpu"], haproxy["down_cpu"])
        ratios.add("up_cpu_vs_haproxy", ours["up_cpu"], haproxy["up_cpu"])


def user(path, options, ratios):
    for _ in range(options.rounds):
        ours, pasta, slirp = (measure(path, way, options.seconds) for way in (by_user, paths.pasta, paths.slirp4netns))
        for name, peer in (("pasta", pasta), ("slirp4netns", slirp)):
            ratios.add(f"user_conn_rate_vs_{name}", ours["rate"], peer["rate"])
            ratios.add(f"user_first_byte_p50_vs_{name}", ours["p50"], peer["p50"])
            ratios.add(f"user_down_vs_{name}", ours["down"], peer["down"])
            ratios.add(f"user_up_vs_{name}", ours["up"], peer["up"])
