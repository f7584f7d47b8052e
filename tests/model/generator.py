# SPDX-License-Identifier: Apache-2.0
"""Random policies of the three dialects, and probes that aim at their edges: neighbours of ranges, siblings of names,
ports next to the open ones, other spellings of the same thing, claims that differ from what was dialled."""
import ipaddress
import json

import probes
import zone

PUBLIC4 = ["198.51.100.0/24", "203.0.113.128/26", "93.184.216.0/24", "8.8.0.0/16", "172.32.0.0/16", "11.0.0.0/8"]
PUBLIC6 = ["2001:db8:100::/48", "2606:4700::/32", "2a00::/16"]
PRIVATE4 = ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16", "100.64.0.0/10", "192.88.99.0/24"]
PRIVATE6 = ["fd00:dead::/32", "fc00:1::/32", "fec0::/16", "64:ff9b:1::/48", "2001:2::/48", "5f00::/16"]
SPECIAL = ["10.9.9.9", "169.254.169.254", "192.168.1.1", "172.16.0.1", "172.31.255.255", "172.32.0.0", "100.127.255.255",
           "100.128.0.0", "11.0.0.0", "9.255.255.255", "192.88.99.1", "198.17.255.255", "198.20.0.0", "192.0.0.9",
           "127.0.0.1", "127.0.0.2", "::1", "0.0.0.0", "::", "192.0.0.2", "192.0.0.3", "fd00::2", "fd00::3", "224.0.0.1",
           "ff02::1", "fe80::1", "198.18.99.99", zone.HOST4, zone.OWN4, zone.HOST6, zone.OWN6, zone.ROUTER4, zone.ROUTER6,
           "64:ff9b::a09:909", "64:ff9b::5db8:d822", "2002:a09:909::1", "2002:5db8:d822::1", "::10.9.9.9", "::ffff:0:a09:909",
           "2001:0:1:1::f5f6:f6f6", "2600::200:5efe:a09:909"]
DNS_SERVERS = [zone.ROUTER4, zone.ROUTER6, zone.FOREIGN_DNS4, zone.FOREIGN_DNS6]


class Generator:
    def __init__(self, random, number):
        self.random, self.number, self.counter = random, number, 0
        self.names = self.ranges = self.ports = None

    def chance(self, percent):
        return self.random.random() * 100 < percent

    # -- addresses and names --

    def inside(self, prefix):
        network = ipaddress.ip_network(prefix)
        return str(network[self.random.randrange(network.num_addresses)])

    def address(self, six=False, private=False):
        return self.inside(self.random.choice((PRIVATE6 if private else PUBLIC6) if six else (PRIVATE4 if private else PUBLIC4)))

    def any_address(self):
        return self.address(self.chance(40), self.chance(25))

    def forms(self, text):
        """Other ways to write or carry an IPv4 address."""
        ip = ipaddress.ip_address(text)
        if ip.version == 6:
            return [text]
        number = int(ip)
        return [f"::ffff:{text}", str(ipaddress.IPv6Address((0x64ff9b << 96) | number)),
                str(ipaddress.IPv6Address((0x2002 << 112) | (number << 80) | 1)), str(ipaddress.IPv6Address(number))]

    def records(self):
        """The labels that say what a name of the pool resolves to."""
        kinds = {"four": 25, "six": 10, "both": 25, "many": 8, "private": 8, "mixed": 8, "carried": 6, "own": 3, "loop": 3,
                 "nothing": 4}
        kind = self.random.choices(list(kinds), kinds.values())[0]
        public4, public6 = self.address(), self.address(six=True)
        private4, private6 = self.address(private=True), self.address(six=True, private=True)
        chosen = {
            "four": [public4], "six": [public6], "both": [public4, public6],
            "many": [public4, self.address(), public6, self.address(six=True)],
            "private": self.random.choice([[private4], [private4, private6], [private6]]),
            "mixed": self.random.choice([[public4, private4, public6], [public4, public6, private6], [private4, public6]]),
            "carried": [self.random.choice(self.forms(self.random.choice([public4, private4])))],
            "own": [self.random.choice([zone.OWN4, zone.HOST4, zone.OWN6])], "loop": ["127.0.0.1", "::1"], "nothing": [],
        }[kind]
        return [("a%08x" if ipaddress.ip_address(text).version == 4 else "b%032x") % int(ipaddress.ip_address(text))
                for text in chosen]

    def name(self):
        self.counter += 1
        return ".".join([f"n{self.counter}-p{self.number}", *self.records(), "pool.example"])

    def wild(self):
        """The name below which a wildcard matches, with a name in it and so on."""
        self.counter += 1
        return ".".join([f"w{self.counter}-p{self.number}", *self.records(), "pool.example"])

    def cidr(self, host_bits=False):
        if self.chance(15):
            return self.any_address()
        address = self.any_address()
        length = self.random.choice([64, 112, 120, 126, 127, 128] if ":" in address else [16, 24, 28, 30, 31, 32])
        return f"{address}/{length}" if host_bits else str(ipaddress.ip_network(f"{address}/{length}", strict=False))

    def port_list(self):
        return self.random.sample([443, 8443, 8001, 5432, 22, 80, "8000-8002"], self.random.randint(1, 2))

    # -- policies --

    def policy(self):
        """(dialect option, policy, node configuration or None)."""
        make = self.random.choices([self.network, self.e2b, self.native], [30, 30, 40])[0]
        dialect, policy = make()
        return dialect, policy, self.node() if self.chance(25) else None

    def host_entry(self):
        port = self.random.choice(["", "", "", ":8443", ":443", ":80", ":8001"])
        if self.chance(25):
            address = self.address(self.chance(40), self.chance(20))
            return f"[{address}]{port}" if ":" in address and port else address + port
        name = self.name()
        return (name.upper() if self.chance(10) else name) + port

    def network(self):
        policy = {}
        if self.chance(30):
            policy["block_private_ips"] = self.chance(40)
        if self.chance(15):
            policy["egress"] = {"allow_cidrs": [self.cidr() for _ in range(self.random.randint(1, 5))]}
            return None, policy
        policy["network"] = self.random.choice(["all", "all", "none"]) if self.chance(25) else \
            {"allow": {"hosts": [self.host_entry() for _ in range(self.random.randint(1, 8))]}}
        if isinstance(policy["network"], dict) and policy.get("block_private_ips") is False and self.chance(60):
            policy["network"]["allow"]["hosts"].append(self.random.choice(["localhost:8000", "127.0.0.1:8443", "[::1]:8001"]))
        return None, policy

    def e2b(self):
        allow = [self.random.choice([self.name, self.name, lambda: "*." + self.wild(), lambda: self.cidr(True)])()
                 for _ in range(self.random.randint(0, 7))]
        if self.chance(5):
            allow.append("*")
        deny = [self.cidr(True) for _ in range(self.random.randint(0, 3))]
        if any(entry[0].isalpha() and "pool" in entry or entry[0] == "*" for entry in allow) or self.chance(30):
            deny.append("0.0.0.0/0")
        policy = {"network": {"allowOut": allow, "denyOut": deny}}
        if self.chance(20):
            policy["allow_internet_access"] = self.chance(50)
        return "e2b", policy

    def native_entry(self):
        if self.chance(35):
            entry = {"cidr": self.cidr()}
            if self.chance(60):
                entry["protocol"] = self.random.choice(["any", "tcp", "udp", "icmp"])
            if entry.get("protocol") != "icmp" and self.chance(50):
                entry["ports"] = self.port_list()
            return entry
        entry = {"host": "*." + self.wild() if self.chance(30) else self.name()}
        if self.chance(60):
            entry["protocol"] = self.random.choice(["https", "http", "tcp"])
        if entry.get("protocol") == "tcp" or self.chance(30):
            entry["ports"] = self.port_list()
        if self.chance(20):
            entry["private"] = True
        return entry

    def native(self):
        policy = {"version": 1, "base": "allow" if self.chance(30) else "deny",
                  "allow": [self.native_entry() for _ in range(self.random.randint(1, 8))]}
        if self.chance(30):
            policy["block_private"] = self.chance(40)
        if self.chance(40):
            policy["deny"] = [{"cidr": self.cidr()} for _ in range(self.random.randint(1, 3))]
        if self.chance(35):
            policy["dns"] = {"names": self.random.choice(["real", "synthetic"])}
        if policy.get("block_private") is False and self.chance(40):
            protocol = self.random.choice(["tcp", "https", "http"])
            policy["allow"].append({"host": "localhost", "protocol": protocol, "ports": [8000]})
        return None, policy

    def node(self):
        egress = {}
        if self.chance(80):
            egress["always_denied"] = [self.random.choice([self.cidr, self.name, lambda: "*." + self.wild()])()
                                       for _ in range(self.random.randint(1, 3))]
        if self.chance(30):
            egress["always_allowed"] = [self.cidr()]
        if self.chance(50):
            egress["deny_own_addresses"] = self.chance(50)
        return {"network": {"egress": egress}}

    # -- what to aim at --

    def aim(self, policy, node):
        """Collects names, ranges and ports of a policy, and their near misses."""
        words, ports = [], []

        def walk(value, key=None):
            if isinstance(value, dict):
                for name, inner in value.items():
                    walk(inner, name)
            elif isinstance(value, list):
                for inner in value:
                    walk(inner, key)
            elif key == "ports":
                ports.extend(int(part) for part in str(value).split("-"))
            elif isinstance(value, str):
                words.append(value)
        walk([policy, node or {}])
        self.names, self.ranges = [], []
        for word in words:
            host = word.lower()
            if host.startswith("[") or (host.count(":") == 1):
                host, _, port = host.rpartition(":") if not host.endswith("]") else (host, "", "")
                host = host.strip("[]")
                ports.extend([int(port)] if port.isdigit() else [])
            try:
                self.ranges.append(ipaddress.ip_network(host, strict=False))
            except ValueError:
                if "example" in host:
                    self.names += self.near_names(host)
        self.names += [self.name() for _ in range(3)]
        self.ports = ports + [443, 80]

    def near_names(self, host):
        if host.startswith("*."):
            apex = host[2:]
            return [f"x{self.number}.{apex}", f"a.b{self.number}.{apex}", apex, "x" + apex]
        return [host, host, f"sub.{host}", "x" + host, host.partition(".")[2] if host.count(".") > 2 else host]

    def aim_address(self):
        """An address in or next to a range of the policy, what a name of it resolves to, or a special one."""
        roll = self.random.random()
        if self.ranges and roll < 0.55:
            network = self.random.choice(self.ranges)
            low, high = int(network.network_address), int(network.broadcast_address)
            last = (1 << network.max_prefixlen) - 1
            chosen = self.random.choice([low, high, low - 1, high + 1, self.random.randint(low, high)])
            address = str(type(network.network_address)(min(max(chosen, 0), last)))
        elif roll < 0.7:
            address = self.random.choice(SPECIAL)
        elif roll < 0.85:
            name = self.random.choice(self.names)
            labels = [label for label in name.split(".") if len(label) in (9, 33) and label[0] in "ab"]
            label = self.random.choice(labels or ["a%08x" % int(ipaddress.ip_address(self.address()))])
            address = str(ipaddress.ip_address(bytes.fromhex(label[1:]))) if len(label) in (9, 33) else self.address()
        else:
            address = self.any_address()
        return self.random.choice(self.forms(address)) if self.chance(10) else address

    def aim_port(self):
        port = self.random.choice(self.ports) if self.chance(75) else self.random.choice(probes.BASE_PORTS)
        if self.chance(20):
            port += self.random.choice([-1, 1])
        return probes.CLOSED if self.chance(2) else port if port in probes.SERVED else 443

    def aim_claim(self, dialled, address):
        """What SNI or Host says."""
        roll = self.random.random()
        name = dialled or self.random.choice(self.names)
        if roll < 0.6:
            return name
        if roll < 0.75:
            return self.random.choice(self.names)
        literal = self.random.choice([address if address and ":" not in address else "198.51.100.20", "10.9.9.9"])
        return self.random.choice([name.upper(), name + ".", None, name + "x", "a b.example", "localhost", "..", f"x.{name}", literal])

    # -- probes --

    def nonce(self):
        return "pm%014x" % self.random.getrandbits(56)

    def lookup(self, name, kind):
        server = self.random.choice(DNS_SERVERS + ["127.0.0.1", "::1", "203.0.113.9", "10.9.9.9", "192.0.0.3"])
        asked = self.random.choice([name, name, name.upper(), name.title()])
        return {"kind": "dns", "name": name, "asked": asked, "type": kind, "server": server,
                "transport": self.random.choice(["udp", "udp", "tcp"])}

    def tcp(self, target):
        dialled, address = target.get("name"), target.get("address")
        app = self.random.choices(["tls", "http", "other", "session", "silent"], [48, 30, 14, 4, 4])[0]
        test = {"kind": "tcp", **target, "port": self.aim_port(), "app": app, "nonce": self.nonce()}
        if app in ("tls", "session"):
            test["sni"], test["ech"] = self.aim_claim(dialled, address), app == "tls" and self.chance(8)
            if app == "session" and not (test["sni"] and test["sni"].replace(".", "").replace("-", "").isalnum() and
                                         ".." not in test["sni"] and test["sni"][-1].isalpha()):
                test["sni"] = None  # the client's library sends no other
        elif app == "http":
            self.http(test, dialled, address)
        return test

    def host(self, dialled, address, port):
        host = self.aim_claim(dialled, address)
        if address and self.chance(15):
            host = f"[{address}]" if ":" in address else address
        if host is not None and self.chance(15):
            host += f":{port}" if self.chance(70) else f":{port + 1}"
        return host

    def http(self, test, dialled, address):
        test["form"] = self.random.choices(["origin", "absolute", "old"], [80, 10, 10])[0]
        test["host"] = self.host(dialled, address, test["port"])
        if test["host"] is None and test["form"] == "absolute":
            test["form"] = "origin"
        if test["form"] == "origin" and self.chance(15):
            test["again"] = {"nonce": self.nonce(), "host": self.host(dialled, address, test["port"])}

    def probe(self, synthetic):
        """synthetic: (name, family) pairs that have a synthetic address."""
        kind = self.random.choices(["tcp", "udp", "icmp"], [70, 18, 12])[0]
        target = {"address": self.aim_address()}
        if synthetic and self.chance(50):
            name, family = self.random.choice(synthetic)
            target = {"name": name, "family": family}
        if kind == "tcp":
            return self.tcp(target)
        port = {"port": self.aim_port()} if kind == "udp" else {}
        return {"kind": kind, **target, **port, "nonce": self.nonce()}

