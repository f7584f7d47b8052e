# SPDX-License-Identifier: Apache-2.0
"""Ratios of interleaved rounds against their targets: the median counts, the range is printed beside it."""
import operator
import statistics

OPERATORS = {">=": operator.ge, "<=": operator.le}
# What each one is, and where its target is from: README.md.
TARGETS = {
    # new connections per second and the processor time of each
    "conn_rate_vs_nginx": (">=", 0.95), "conn_rate_vs_haproxy": (">=", 0.95), "conn_rate_vs_direct": (">=", 0.42),
    "conn_cpu_vs_nginx": ("<=", 1.1), "conn_rate_address_vs_direct": (">=", 0.45),
    # time to the first byte, one connection at a time
    "first_byte_p50_vs_direct": ("<=", 3.0), "first_byte_p99_vs_direct": ("<=", 2.2),
    "first_byte_p50_vs_haproxy": ("<=", 0.7),
    # bulk
    "down_vs_haproxy": (">=", 0.90), "down_vs_nginx": (">=", 1.7), "down_vs_direct": (">=", 0.65),
    "up_vs_haproxy": (">=", 0.90), "up_vs_nginx": (">=", 1.7), "up_vs_direct": (">=", 0.65),
    "down_cpu_vs_haproxy": ("<=", 1.2), "up_cpu_vs_haproxy": ("<=", 1.2),
    # idle connections
    "idle_memory_vs_haproxy": ("<=", 0.1), "idle_kib_per_1000": ("<=", 350), "idle_descriptors_each": ("<=", 2.1),
    "idle_connections_held": (">=", 9000),
    # as an ordinary user
    "user_conn_rate_vs_pasta": (">=", 0.8), "user_conn_rate_vs_slirp4netns": (">=", 1.0),
    "user_first_byte_p50_vs_pasta": ("<=", 1.5), "user_first_byte_p50_vs_slirp4netns": ("<=", 1.0),
    "user_down_vs_pasta": (">=", 1.0), "user_down_vs_slirp4netns": (">=", 1.0),
    "user_up_vs_pasta": (">=", 1.0), "user_up_vs_slirp4netns": (">=", 1.0),
    # DNS
    "dns_miss_vs_unbound": (">=", 0.8), "dns_hit_vs_unbound": (">=", 0.8), "dns_denied_vs_unbound": (">=", 1.0),
    "dns_miss_latency_vs_unbound": ("<=", 1.3), "dns_miss_vs_dnsmasq": (">=", 0.8), "dns_hit_vs_dnsmasq": (">=", 0.8),
    "dns_denied_vs_dnsmasq": (">=", 1.0),
    # TLS opened, a header added
    "intercept_requests_per_core_vs_nginx": (">=", 1.0), "intercept_requests_per_core_vs_haproxy": (">=", 1.0),
    "intercept_requests_per_core_vs_mitmproxy": (">=", 5.0), "intercept_p99_vs_nginx": ("<=", 1.2),
    "intercept_p99_vs_haproxy": ("<=", 1.2), "intercept_p99_vs_mitmproxy": ("<=", 0.5), "intercept_idle_kib_each": ("<=", 64),
    # another policy under a thousand connections
    "update_1000_vs_nft": ("<=", 0.1), "update_10000_vs_nft": ("<=", 0.1),
    # a node: a warm start, and what an idle sandbox holds
    "node_start_vs_crun": ("<=", 1.25), "node_gate_keeper_mib": ("<=", 3.0),
    # start
    "start_user_vs_bwrap": ("<=", 1.5), "start_root_vs_bwrap": ("<=", 1.5), "start_names_vs_bwrap": ("<=", 1.5),
}


class Ratios:
    def __init__(self):
        self.samples, self.short = {}, 0

    def add(self, name, value, base=1.0):
        if name not in TARGETS:
            raise KeyError(name)
        self.samples.setdefault(name, []).append(value / base if base else 0.0)

    def say(self):
        """Prints what has been gathered, and forgets it."""
        for name, values in self.samples.items():
            compare, target = TARGETS[name]
            median = statistics.median(values)
            good = OPERATORS[compare](median, target)
            self.short += not good
            print(f"ratio {name} {median:.2f} target {compare} {target:g} {'ok' if good else 'short'}")
            print(f"  range {name} {min(values):.2f} to {max(values):.2f} in {len(values)} rounds", flush=True)
        self.samples = {}
