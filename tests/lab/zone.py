# SPDX-License-Identifier: Apache-2.0
"""What the test internet consists of: addresses, names, and how each of them behaves. Data only."""

HOST4, HOST6 = "192.0.2.2", "2001:db8:0:1::2"            # the machine on which penstock runs
OWN4, OWN6 = "203.0.113.250", "2001:db8:0:1::3"          # its further own, public-looking addresses
ROUTER4, ROUTER6 = "192.0.2.1", "2001:db8:0:1::1"        # the internet's side of the link; the DNS server
FOREIGN_DNS4, FOREIGN_DNS6 = "198.51.100.53", "2001:db8:100::53"

# Every address of these is served by the internet, on every port that a server listens on.
PUBLIC4 = ["198.51.100.0/24", "203.0.113.0/24"]
PUBLIC6 = ["2001:db8:100::/48"]
PRIVATE4 = ["10.9.9.9", "169.254.169.254"]
PRIVATE6 = ["fd00:dead::9"]

# Addresses that misbehave: silent, reset, or unreachable by ICMP error.
DEAD4, DEAD6 = "203.0.113.66", "2001:db8:100::66"
REFUSED4, REFUSED6 = "203.0.113.67", "2001:db8:100::67"
UNREACHABLE4, UNREACHABLE6 = "203.0.113.68", "2001:db8:100::68"

BANNER4, ECHO4, UNASKED4 = "203.0.113.43", "203.0.113.44", "203.0.113.45"
PORTS_BANNER = [110, 443, 3306]  # of BANNER4


def pair(number):
    return {"A": [f"198.51.100.{number}"], "AAAA": [f"2001:db8:100::{number}"]}


# Name -> records by type. A value "!what" is a behaviour of the DNS server (see dns_server.py).
ZONE = {
    # The names that users of sandboxes ask for.
    "github.com": pair(10), "api.github.com": pair(11), "pypi.org": pair(12), "files.pythonhosted.org": pair(13),
    "registry.npmjs.org": pair(14), "api.mistral.ai": pair(15), "example.com": pair(16),
    "deb.debian.org": pair(17), "registry.example": pair(18),
    # Address families.
    "both.example": {**pair(20), "TXT": ["lab text"], "MX": ["10 other.example"], "CAA": ['0 issue "ca.example"']},
    "other.example": pair(24),
    "denied.example": {**pair(25), "TXT": ["never seen"]},
    "v4.example": {"A": ["198.51.100.21"]},
    "v6.example": {"AAAA": ["2001:db8:100::21"]},
    "deadv4.example": {"A": [DEAD4], "AAAA": ["2001:db8:100::22"]},
    "deadv6.example": {"A": ["198.51.100.22"], "AAAA": [DEAD6]},
    "refusedv4.example": {"A": [REFUSED4], "AAAA": ["2001:db8:100::22"]},
    "refusedv6.example": {"A": ["198.51.100.22"], "AAAA": [REFUSED6]},
    "refused.example": {"A": [REFUSED4], "AAAA": [REFUSED6]},
    "unreachable.example": {"A": [UNREACHABLE4], "AAAA": [UNREACHABLE6]},
    "dead.example": {"A": [DEAD4], "AAAA": [DEAD6]},
    # Answers that an attacker would give.
    "private.example": {"A": ["10.9.9.9"], "AAAA": ["fd00:dead::9"]},
    "metadata.example": {"A": ["169.254.169.254"]},
    "loopback.example": {"A": ["127.0.0.1"], "AAAA": ["::1"]},
    "own.example": {"A": [OWN4], "AAAA": [OWN6]},
    "mapped.example": {"AAAA": ["::ffff:10.9.9.9"]},
    "mixed.example": {"A": ["198.51.100.23", "10.9.9.9"], "AAAA": ["2001:db8:100::23"]},
    "rebind.example": "!rebind",
    "cname.example": {"CNAME": ["cname2.example"]},
    "cname2.example": {"CNAME": ["both.example"]},
    "cnameprivate.example": {"CNAME": ["private.example"]},
    "cnameloop.example": {"CNAME": ["cnameloop.example"]},
    # DNS itself.
    "bigtxt.example": {"TXT": ["x" * 250] * 16},
    "servfail.example": "!servfail",
    "silent.example": "!silent",
    "slow.example": "!slow",
    "nodata.example": {},
    "*.hosts.example": pair(30),
    "*.many.example": pair(31), "*.example.com": pair(28), "*.www.example.com": pair(28),
    "svcb.example": {**pair(32), "HTTPS": ["1 . alpn=h3,h2 ech=AEX+DQBB"]},
    # A server of its own protocol, named.
    "db.example": pair(33), "mirror.test": pair(34), "secure.test": pair(35),
    # Two names of one address; a server that speaks first and one that echoes, also on port 443; many addresses; a server
    # that fails once, then gives a private address.
    "twin.example": pair(36), "othertwin.example": pair(36),
    "banner.example": {"A": [BANNER4]}, "echo.example": {"A": [ECHO4]}, "unasked.example": {"A": [UNASKED4]},
    "crowd.example": {"A": [f"198.51.100.{number}" for number in range(100, 140)]},
    "flaky.example": "!flaky",
    # Hosts of credentials (bound.py, grpc_server.py).
    **{name: pair(number) for number, name in enumerate((
        "keys.example", "elsewhere.example", "h1.example", "h2.example", "noalpn.example", "tls12.example", "tls11.example",
        "expired.example", "wrongname.example", "selfsigned.example", "unknownca.example", "grpc.example"), 40)},
    "private-db.example": {"A": ["10.9.9.9"], "AAAA": ["fd00:dead::9"]},
}

# The names of bound.py: what it offers by ALPN, the lowest and the highest version of TLS, and the certificate.
BOTH, ANY_TLS = ["h2", "http/1.1"], ("TLSv1_2", "TLSv1_3")
BOUND = {
    "keys.example": (BOTH, ANY_TLS, "server"), "elsewhere.example": (BOTH, ANY_TLS, "server"),
    "h1.example": (["http/1.1"], ANY_TLS, "server"), "h2.example": (["h2"], ANY_TLS, "server"),
    "noalpn.example": ([], ANY_TLS, "server"),
    "tls12.example": (BOTH, ("TLSv1_2", "TLSv1_2"), "server"), "tls11.example": (BOTH, ("TLSv1_1", "TLSv1_1"), "server"),
    "expired.example": (BOTH, ANY_TLS, "expired"), "wrongname.example": (BOTH, ANY_TLS, "wrongname"),
    "selfsigned.example": (BOTH, ANY_TLS, "selfsigned"), "unknownca.example": (BOTH, ANY_TLS, "unknownca"),
}

# Names that say themselves what they resolve to: each label aHEX (8 digits) is an A record, each bHEX (32) an AAAA record.
# Without such a label they do not exist.
POOL = ".pool.example"

# What the servers' certificate is good for. For any other name it does not verify.
CERTIFICATE_NAMES = [name for name in ZONE] + ["localhost"]
CERTIFICATE_ADDRESSES = ["127.0.0.1", "::1", "198.51.100.20", "2001:db8:100::20", "10.9.9.9", "169.254.169.254",
                         "fd00:dead::9"]

PORT_HTTPS, PORT_HTTPS_ALT, PORT_HTTP, PORT_HTTP_ALT = 443, 8443, 80, 8000
PORT_ECHO, PORT_DISCARD, PORT_CHARGEN, PORT_BANNER, PORT_URGENT, PORT_DB, PORT_IDLE = 7, 9, 19, 2525, 2526, 5432, 6000
PORT_FLOOD, PORT_CLOSED = 6001, 4444
PORT_SSH, PORT_PSQL, PORT_REDIS, PORT_RSYNC = 22, 5433, 6379, 873  # services.py; only once a test has asked for them
# On the host itself: a TLS server on its loopback (the `localhost:8000` example) and a plain one on all its addresses.
PORT_HOST_TLS, PORT_HOST_PLAIN = 8000, 9100
