#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""All benchmarks: bench.py BUILD [--rounds N] [--only SECTION[,SECTION]] [--seconds S]. As root, for the peers need
namespaces. Each result is a line "ratio NAME VALUE target OP T ok|short"; what they mean is in README.md. The status is 0
when all ran, whatever they showed: a busy machine is no error."""
import argparse
import os
import subprocess
import sys

import arena
import idle_bench
import intercept_bench
import name_bench
import node_bench
import proxy_bench
import start_bench
import update_bench
from ratios import Ratios


def verdict(path, options, ratios):
    subprocess.run([f"{path}/bench-verdict-cost"], check=True)


SECTIONS = {
    "verdict": verdict,            # cost of a decision by the number of entries
    "start": start_bench.start,    # penstock run against bubblewrap
    "node": node_bench.node,       # a sandbox of a node against bare crun
    "proxy": proxy_bench.proxies,  # by name, against nginx, HAProxy and the direct path
    "user": proxy_bench.user,      # as an ordinary user, against pasta and slirp4netns
    "idle": idle_bench.idle,       # what an idle connection costs
    "intercept": intercept_bench.intercept,  # TLS opened, against nginx, HAProxy and mitmproxy
    "update": update_bench.update, # another policy under open connections, against nft -f
    "dns": name_bench.names,       # against unbound and dnsmasq
}


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("build")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.2, help="of each load")
    parser.add_argument("--only", default=",".join(SECTIONS))
    options = parser.parse_args()
    chosen = options.only.split(",")
    unknown = [name for name in chosen if name not in SECTIONS]
    if unknown:
        parser.error(f"no section '{unknown[0]}'; one of {', '.join(SECTIONS)}")
    if os.geteuid() != 0:
        print("bench: the peers need network namespaces: run as root", file=sys.stderr)
        return 1
    if arena.INSIDE not in os.environ:
        arena.enter()
    try:
        path = arena.folder(os.path.abspath(options.build))
        ratios = Ratios()
        for name in chosen:
            SECTIONS[name](path, options, ratios)
            ratios.say()
        print(f"{ratios.short} short of their target")
    except arena.BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
