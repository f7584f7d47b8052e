# SPDX-License-Identifier: Apache-2.0
"""What must become of each probe, from verdicts of the real policy_decide (oracle.c) and nothing else of the program.

The steps between packets and verdicts are written down here a second time, from the contract: a name is looked up, its
answers are judged, one of those is dialled; a literal under a policy of names is inspected and the name it claims resolved
anew; a synthetic address is its name; a DNS question is answered by the gate unless a range opens that very server."""
import ipaddress
import json
import subprocess

import probes
import zone
from probes import DNS, HTTP, ICMP, OTHER, PROTOCOLS, TCP, TLS, UDP, UNKNOWN

LOCALHOST = ("127.0.0.1", "::1")
GATE = ("192.0.0.3", "fd00::3")       # nobody's addresses, where the gate listens
OWN_INSIDE = ("192.0.0.2", "fd00::2")  # the sandbox's own
POOL4 = ipaddress.ip_network("198.18.0.0/15")
NXDOMAIN = 3
WORDS = {"tls": TLS, "session": TLS, "http": HTTP, "other": OTHER, "silent": OTHER}


def canonical(text):
    """An address as policies and logs have it: IPv4 inside ::ffff:0:0/96 is IPv4."""
    address = ipaddress.ip_address(text)
    return str(getattr(address, "ipv4_mapped", None) or address)


def is_loopback(text):
    return ipaddress.ip_address(text).is_loopback


def records_of(name, kind):
    """What the lab's DNS server answers for a name of the pool: labels aHEX and bHEX are its records."""
    if name == "localhost":
        return ["127.0.0.1" if kind == 1 else "::1"]
    found = []
    for label in name.split(".") if name.endswith(zone.POOL) else []:
        if label[0] == ("a" if kind == 1 else "b") and len(label) == (9 if kind == 1 else 33):
            found.append(canonical(str(ipaddress.ip_address(bytes.fromhex(label[1:])))))
    return found


def exists(name):
    return bool(records_of(name, 1) or records_of(name, 28))


def claim(text):
    """The name or the address that an SNI or Host says: (name, address), or None if it is no host at all."""
    host = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    try:
        return None, canonical(host)
    except ValueError:
        pass
    name = host.lower().removesuffix(".")
    labels = name.split(".")
    good = all(label and len(label) < 64 and all(c.isascii() and (c.isalnum() or c in "-_") for c in label) for label in labels)
    return (name, None) if good and not labels[-1].isdigit() else None


class Oracle:
    """The process that holds policy_decide."""

    def __init__(self, program):
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.cache = {}

    def close(self):
        self.process.stdin.close()
        self.process.wait()

    def call(self, message):
        self.process.stdin.write(json.dumps(message) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def load(self, **policy):
        """The facts, or {"error": ...}."""
        self.cache.clear()
        return self.call(policy)

    def decide(self, answers=None, **asked):
        key = (tuple(answers) if answers is not None else None, *sorted(asked.items()))
        if key not in self.cache:
            message = {"ask": {name: value for name, value in asked.items() if value is not None}}
            if answers is not None:
                message["answers"] = answers
            self.cache[key] = self.call(message)
        return self.cache[key]


class Expected:
    """What must be seen of one probe."""

    def __init__(self):
        self.through = []   # the addresses at one of which the nonce arrives; none: it arrives nowhere
        self.log = []       # (protocol, name, address if no name, port, verdict, reason)
        self.dialled = set()  # (address, port) that the gate may connect to
        self.answer = None  # DNS: (rcode, addresses) or "synthetic"
        self.reason = None
        self.denied = False


class Impossible(Exception):
    """A probe whose outcome the lab cannot show; it is not made."""


class Reference:
    def __init__(self, oracle, facts, own, servers):
        self.oracle, self.facts, self.own, self.servers = oracle, facts, own, servers
        self.noticed = set()

    # -- small facts --

    def is_pool(self, address):
        return self.facts["synthetic"] and ipaddress.ip_address(address) in POOL4

    def outside(self, address):
        """Whether anything at that address could answer in the lab."""
        ip = ipaddress.ip_address(address)
        if ip.version == 4:
            return not (ip.is_multicast or ip in ipaddress.ip_network("0.0.0.0/8") or ip in ipaddress.ip_network("240.0.0.0/4"))
        return not (ip.is_multicast or ip.is_link_local or ip.is_unspecified)

    def inside(self, address, port=None):
        """Whether the sandbox's own kernel deals with it, so that no gate ever sees it."""
        ip = ipaddress.ip_address(address)
        own = ip.is_loopback and port not in self.facts["loopback"]
        return own or address in OWN_INSIDE or ip.is_multicast or address == "255.255.255.255" or \
            (ip.version == 6 and ip.is_link_local)

    def log(self, expected, protocol, name, address, port, decision, verdict=None):
        reason = decision["reason"]
        verdict = verdict or decision["verdict"]
        expected.log.append((PROTOCOLS[protocol], name or "", "" if name else address or "", port, verdict, reason))
        expected.reason, expected.denied = reason, verdict == "deny"

    def taken_over(self):
        """Lines of the log that say which ports of loopback are the host's, and by which of its names or addresses."""
        for port in self.facts["loopback"]:
            for name, address in (("localhost", "127.0.0.1"), (None, "127.0.0.1"), (None, "::1")):
                decision = self.oracle.decide(protocol=TCP, app=UNKNOWN, dialled=name, address=address, port=port)
                if decision["verdict"] != "deny":
                    break
            verdict = "deny" if decision["verdict"] == "deny" else "allow"
            yield ("tcp", name or "", "" if name else address, port, verdict, decision["reason"])

    # -- reaching a judged destination --

    def reach(self, expected, asked, name, literal, families):
        """The addresses that may be dialled, or the denial."""
        answers = [literal]
        if name:
            answers = [address for kind in families for address in records_of(name, kind)]
            judged = self.oracle.decide(answers=answers, **asked)
            if not judged["allowed"]:
                return [], dict(judged, verdict="deny")
            answers = [answers[index] for index in judged["allowed"]]
        foreign = [address for address in answers if address not in self.own]
        expected.dialled |= {(address, asked["port"]) for address in answers}  # its own are reset, once they turn out to be
        if not foreign and asked["port"] in probes.SERVED:
            return [], {"verdict": "deny", "reason": "node_own_address"}
        if not all(self.outside(address) for address in foreign):
            raise Impossible
        if asked["port"] not in probes.SERVED:
            if 0 < len(foreign) < len(answers):
                raise Impossible
            return [], {"verdict": "allow", "reason": "upstream_failed"}
        return foreign, None

    def reached(self, asked, peers):
        """The decision about the one of these that was dialled. Which one is the network's choice, so they must agree."""
        decisions = [self.oracle.decide(**dict(asked, address=address)) for address in peers]
        if len({(each["verdict"], each["reason"]) for each in decisions}) > 1:
            raise Impossible
        return decisions[0]

    # -- TCP --

    def tcp(self, test):
        expected = Expected()
        port, dialled, address = test["port"], test.get("name"), None
        families = [1 if test.get("family") == 4 else 28]
        if "address" in test:
            address = canonical(test["address"])
            if address in ("0.0.0.0", "::"):
                address = LOCALHOST[address == "::"]
            if self.inside(address, port):
                return expected
            refusal = None
            if address in GATE:
                refusal = {"verdict": "deny", "reason": "node_own_address"}
            elif self.is_pool(address):
                refusal = {"verdict": "deny", "reason": "no_name"}
            if refusal:
                self.log(expected, TCP, None, address, port, refusal)
                return expected
            if address in LOCALHOST:
                named = self.oracle.decide(protocol=TCP, app=UNKNOWN, dialled="localhost", address=address, port=port)
                dialled = "localhost" if named["verdict"] != "deny" else None
        asked = {"protocol": TCP, "app": UNKNOWN, "dialled": dialled, "address": address, "port": port}
        first = self.oracle.decide(**asked)
        peers = None
        if first["verdict"] == "deny" and not (dialled and port == 80):
            self.log(expected, TCP, dialled, address, port, first)
            return expected
        open_anyway = self.oracle.decide(**dict(asked, app=OTHER))["verdict"] == "allow"
        if first["verdict"] == "allow" or (first["verdict"] == "inspect" and (dialled or open_anyway)):
            peers, denial = self.reach(expected, asked, None if address else dialled, address, families)
            if denial:
                self.log(expected, TCP, dialled, address, port, denial)
                return expected
            connected = self.reached(asked, peers)
            asked["address"] = peers[0]
            if connected["verdict"] != "inspect":
                self.log(expected, TCP, dialled, address, port, connected)
                if connected["verdict"] == "allow":
                    expected.through = peers
                    self.unread(test, expected, peers)
                return expected
        if test["app"] == "http":
            self.http(test, expected, asked, address, peers)
        else:
            self.bytes(test, expected, asked, address, peers)
        return expected

    def unread(self, test, expected, peers):
        """Bytes that nobody reads: a second request on the connection goes where the first one went."""
        if "again" in test:
            test["again"]["through"] = peers

    def bytes(self, test, expected, asked, literal, peers):
        """TLS, and what is neither TLS nor HTTP."""
        dialled, port = asked["dialled"], asked["port"]
        asked = dict(asked, app=WORDS[test["app"]])
        if asked["app"] == TLS and test["sni"] is not None:
            said = claim(test["sni"])
            if said is None:
                self.log(expected, TCP, dialled, literal, port, {"verdict": "deny", "reason": "tls_bad_hello"})
                return
            asked["claimed"], asked["claimed_address"] = said
        asked["ech"] = True if test.get("ech") else None
        shown = asked.get("claimed") or dialled
        decision = self.reached(asked, peers or [asked["address"]])
        name = decision.get("name")
        if decision["verdict"] == "allow" and (peers is None or name not in (None, dialled)):
            peers, denial = self.reach(expected, asked, name, literal, (1, 28))
            decision = denial or decision
        self.log(expected, TCP, shown, literal, port, decision)
        if decision["verdict"] == "allow" and peers:
            expected.through = peers

    def http(self, test, expected, asked, literal, peers):
        """One request, and perhaps another one on the same connection."""
        kept = {"name": None, "peers": peers} if peers else None
        kept = self.request(test, expected, asked, literal, kept, expected)
        if "again" in test:
            test["again"]["through"] = []
            if expected.through:
                second = Expected()
                self.request(dict(test["again"], form="origin", app="http", name=test.get("name"), family=test.get("family")),
                             second, asked, literal, kept, expected)
                expected.log += second.log
                expected.dialled |= second.dialled
                test["again"]["through"] = second.through

    def request(self, test, expected, asked, literal, kept, whole):
        dialled, port = asked["dialled"], asked["port"]
        asked = dict(asked, app=HTTP, address=literal)
        host, stated = test["host"], None
        if host is not None and not host.endswith("]"):
            before, colon, after = host.rpartition(":")
            if colon and after.isdigit():
                host, stated = before, int(after)
        said = claim(host) if host is not None else (None, None)
        if said is None or (host is None and test["form"] != "old") or stated not in (None, port):
            self.log(expected, TCP, dialled, literal, port, {"verdict": "deny", "reason": "bad_request"})
            return kept
        asked["claimed"], asked["claimed_address"] = said
        shown = said[0] or dialled
        decision = self.oracle.decide(**asked)
        if decision["verdict"] == "allow":
            name = None if dialled else decision.get("name")
            if kept and kept["name"] == name and self.reached(asked, kept["peers"])["verdict"] == "allow":
                peers = kept["peers"]
            else:
                families = (1, 28) if not dialled else [1 if test.get("family") == 4 else 28]
                peers, denial = self.reach(expected, asked, name or (None if literal else dialled), literal, families)
                decision = denial or decision
            expected.through = peers
            kept = {"name": name, "peers": peers}
        self.log(expected, TCP, shown, literal, port, decision)
        return kept

    # -- UDP and ICMP --

    def datagram(self, test, protocol):
        expected = Expected()
        port, dialled = test.get("port", 0), test.get("name")
        address = canonical(test["address"]) if "address" in test else None
        if address in ("0.0.0.0", "::"):
            address = LOCALHOST[address == "::"]
        if address and self.inside(address):
            if protocol == ICMP:
                raise Impossible  # its own kernel answers
            return expected
        if address in GATE:
            decision = {"verdict": "deny", "reason": "node_own_address"}
        elif address and self.is_pool(address):
            decision = {"verdict": "deny", "reason": "no_name"}
        else:
            decision = self.oracle.decide(protocol=protocol, app=UNKNOWN, dialled=dialled, address=address, port=port)
            if dialled and decision["verdict"] != "deny":
                decision = {"verdict": "deny", "reason": "protocol_denied"}
            if decision["verdict"] == "allow" and address in self.own:
                if (protocol, address, port) in self.noticed:
                    raise Impossible  # told once a second only
                self.noticed.add((protocol, address, port))
                decision = {"verdict": "deny", "reason": "node_own_address"}
        self.log(expected, protocol, dialled, address, port, decision)
        if decision["verdict"] == "allow" and not self.outside(address):
            raise Impossible
        if decision["verdict"] == "allow" and (protocol == ICMP or port in probes.SERVED):
            expected.through = [address]
        return expected

    def udp(self, test):
        return self.datagram(test, UDP)

    def icmp(self, test):
        if canonical(test.get("address", "::1")) != test.get("address", "::1") and "ffff:" in test["address"]:
            raise Impossible  # no socket pings an IPv4 address by its IPv6 form
        return self.datagram(test, ICMP)

    # -- DNS --

    def relays_to(self, server, transport):
        """The protocol whose range entry opens that server, if one does."""
        if is_loopback(server) or server in OWN_INSIDE or server in GATE or self.is_pool(server):
            return None
        order = (TCP, UDP) if transport == "tcp" else (UDP, TCP)
        for protocol in order:
            decision = self.oracle.decide(protocol=protocol, app=UNKNOWN, address=server, port=53)
            if decision["verdict"] == "allow" and decision["reason"] == "allowed_cidr":
                return protocol
        return None

    def dns(self, test):
        expected = Expected()
        name, kind, server = claim(test["name"])[0], test["type"], canonical(test["server"])
        found = records_of(name, kind)
        truth = (0 if exists(name) else NXDOMAIN, sorted(found))
        relayed = self.relays_to(server, test["transport"])
        if relayed is not None:
            if server not in self.servers:
                raise Impossible
            decision = self.oracle.decide(protocol=relayed, app=UNKNOWN, address=server, port=53)
            self.log(expected, relayed, None, server, 53, decision)
            expected.answer = truth
            return expected
        question = {"protocol": DNS, "app": UNKNOWN, "dialled": name, "port": 0}
        decision = self.oracle.decide(**question)
        names, base = self.facts["names_are_policy"], self.facts["base_allow"]
        expected.answer = truth
        if decision["verdict"] == "deny":
            expected.answer = (NXDOMAIN, [])
        elif base and self.facts["real"]:
            asks = self.oracle.decide(protocol=UDP, app=UNKNOWN, address=server, port=53)["verdict"] == "allow"
            if asks and server not in self.servers and not is_loopback(server) and not self.is_pool(server):
                raise Impossible  # the question goes to where there is no server
        elif not base and not names:  # the ranges that are open decide
            shown = [(address, self.oracle.decide(**dict(question, address=address))) for address in found]
            expected.answer = (truth[0], sorted(address for address, each in shown if each["verdict"] != "deny"))
            if found and not expected.answer[1]:
                decision = shown[0][1]
        elif self.facts["real"]:
            judged = self.oracle.decide(answers=found, **question) if found else decision
            allowed = [found[index] for index in judged["allowed"]] if found else []
            family = 4 if kind == 1 else 6
            expected.answer = (truth[0], sorted(a for a in allowed if ipaddress.ip_address(a).version == family))
            decision = judged
        elif found:
            expected.answer = "synthetic"
        self.log(expected, DNS, name, None, 53, decision)
        return expected
