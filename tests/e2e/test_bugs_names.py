# SPDX-License-Identifier: Apache-2.0
"""Section A of the bug list (tests/bugs.md): one form of a name, on every place of the wire where one stands."""
import re

import pytest

import zone

# HTTPS to both.example and the hosts below hosts.example, plain HTTP to mirror.test.
POLICY = {"allow": [{"host": "both.example"}, {"host": "*.hosts.example"}, {"host": "mirror.test", "protocol": "http"}]}
ALLOWED = re.compile(r"both\.example|[a-z0-9.-]+\.hosts\.example|mirror\.test")
LITERAL = "198.51.100.25"  # denied.example's
TLS_NAME, HTTP_NAME = "both.example", "mirror.test"
LONG = "a" * 63


def utf8(text):
    return text.encode().decode("latin-1")


NUL = ["denied.example\0.both.example", "both.example\0.denied.example", "both.example\0", "\0both.example", "mirror.test\0.x",
       "denied.example\0.a.hosts.example", "a\0.hosts.example"]
DOTS = ["both.example..", ".both.example", "both..example", "mirror.test..", "a..hosts.example", ".hosts.example", "."]
NUMBERS = ["2130706433", "0x7f.0.0.1", "0177.0.0.1", "127.1", "0x7f000001", "127.0.0.1.", "fe80::1%eth0", "[fe80::1%25eth0]",
           "168364297", "0xa.9.9.9", "012.9.9.9", "10.9.2313", "10.9.9.9", "[::ffff:10.9.9.9]", "::1", "1.2.3.4.5", "a.0x7f",
           utf8("\uff11\uff12\uff17.0.0.1"), utf8("127.0.0.1\u200b"), utf8("127\u30020\u30020\u30021")]
LOOKALIKES = ["notboth.example", "both.example.denied.example", "bboth.example", "both.examplex", "both-example", "oth.example",
              "xboth.example", "both.xample", "hosts.example", "xhosts.example", "a.xhosts.example", "xn--both-qla.example",
              f"{LONG}.{LONG}.{LONG}.{'a' * 48}.hosts.example", f"{LONG}a.hosts.example", "*.hosts.example", "both.example@denied.example",
              "both.example/denied.example", "both.example denied.example", "both.example,denied.example", "both.example\r\nX: y"]
IDN = [utf8("denied\u3002example"), utf8("both\u3002example"), utf8("both\uff0eexample"), utf8("both.example\u200b"), utf8("\u200bboth.example"),
       utf8("\uff42oth.example"), utf8("b\u043eth.example"), utf8("a.hosts\u3002example"), utf8("bo\u00adth.example"), "xn--bth-emd.example"]


@pytest.mark.parametrize("names", [NUL, DOTS, NUMBERS, LOOKALIKES, IDN], ids=["nul", "dots", "numbers", "lookalikes", "idn"])
def test_other_spellings_are_refused(box, names):
    """In Host and SNI to a literal and to a listed destination, and in DNS; and nobody outside hears of them."""
    dns = [name for name in names if all(0 < len(label) < 64 for label in name.split(".") if label)]
    web, lookups = len(box.lab.http_requests()), len(box.lab.dns_queries())
    results, result = box.craft(POLICY, *[["request", host, 80, name] for host in (LITERAL, HTTP_NAME) for name in names],
                                *[["sni", host, 443, name] for host in (LITERAL, TLS_NAME) for name in names],
                                *[["dns", name] for name in dns])
    count = 2 * len(names)
    said = dict(zip([("Host", n) for n in names * 2] + [("SNI", n) for n in names * 2] + [("DNS", n) for n in dns], results))
    assert set(results[:count]) <= {"400", "403"}, said
    assert set(results[count:2 * count]) == {"alert 112"}, said
    # A query cannot hold an empty label in its middle: those are other names, which craft.py sends without it.
    wrong = {n: said["DNS", n] for n in dns if said["DNS", n] not in (1, 3, 5) and not (".." in n or n[0] == ".")}
    assert not wrong, wrong
    assert box.lab.http_requests()[web:] == []
    assert [q for q in box.lab.dns_queries()[lookups:] if not ALLOWED.fullmatch(q["name"])] == []
    assert "allow" not in {line["verdict"] for line in result.log if line["protocol"] != "dns"}, result


def test_same_name_in_other_clothes(box):
    """Case, one trailing dot and the port are not part of a name."""
    results, result = box.craft(POLICY, *[["request", HTTP_NAME, 80, name] for name in ("MIRROR.test", "mirror.test.", "Mirror.Test.:80")],
                                *[["sni", TLS_NAME, 443, name] for name in ("BOTH.example", "both.example.")],
                                *[["sni", LITERAL, 443, name] for name in ("Both.Example.", "A.B.hosts.example")],
                                *[["dns", name] for name in ("BOTH.EXAMPLE", "both.example.", "A.hosts.EXAMPLE")])
    assert results == ["200"] * 3 + ["handshake"] * 3 + ["alert 49"] + [0] * 3, result  # a.b.hosts.example exists nowhere


# ---- a name that is denied ----

@pytest.fixture
def deny(box):
    box.file("deny.yaml", 'network: {egress: {always_denied: ["denied.example", "*.many.example"]}}\n')
    return "--network all --node-config " + box.path("deny.yaml")


DENIED = ["denied.example", "DENIED.example", "denied.example.", "Denied.Example.", "a.many.example", "A.b.MANY.example."]


def test_no_spelling_escapes_a_deny_entry(box, deny):
    """Policy: everything but some names. By name, and by a literal address with the name in SNI or Host."""
    before = len(box.lab.http_requests()), len(box.lab.dns_queries())
    results, result = box.craft(deny, *[["dns", name] for name in DENIED], *[["sni", LITERAL, 443, name] for name in DENIED],
                                *[["request", LITERAL, 80, name + port] for name in DENIED for port in ("", ":80")],
                                ["request", LITERAL, 80, None, "http://DENIED.example./"], ["request", LITERAL, 80, "denied.example.."])
    assert results[:6] == [3] * 6, result
    assert results[6:12] == ["alert 112"] * 6, result
    assert set(results[12:]) <= {"400", "403"}, result
    assert box.lab.http_requests()[before[0]:] == [] and box.lab.dns_queries()[before[1]:] == [], result
    assert {"node_denied"} <= set(result.reasons(verdict="deny")), result


def test_what_is_not_denied_stays_open(box, deny):
    results, result = box.craft(deny, ["request", "both.example", 80, "both.example"], ["sni", "198.51.100.20", 443, "both.example"],
                                ["dns", "xdenied.example"], ["dns", "both.example"], ["dns", "many.example"])
    assert results == ["200", "handshake", 3, 0, 3], result
    assert box.lab.dns_queries("xdenied.example") and box.lab.dns_queries("many.example"), "those two exist nowhere, but may be asked"


# ---- the policy side ----

@pytest.mark.parametrize("entry,host", [("GitHub.COM", "github.com"), ("b\u00fccher.example", "xn--bcher-kva.example"),
                                        ("B\u00dcCHER.Example", "xn--bcher-kva.example"), ("*.Hosts.EXAMPLE", "a.hosts.example")])
def test_entries_are_normalised_like_requests(box, entry, host):
    for options in (["--allow", entry], ["--policy", box.policy_file({"version": 1, "allow": [{"host": entry}]})]):
        result = box.raw("check", *options, f"https://{host}/")
        assert result.code == 0, result
        other = box.raw("check", *options, f"https://x{host}/" if "*" not in entry else "https://hosts.example/")
        assert other.code == 1, other


@pytest.mark.parametrize("entry", ["a_b.example", "-a.example", "a-.example", "pypi.org.", "a..example", "xn--a.example", "2130706433", "a\u200b.example",
                                   "x*.example", "*", "a.*.example", "a.example\nallow all", "a.example\thttp", "a.example;b", "a.example allow", "a.example\0b"])
def test_entries_that_cannot_match_are_refused(box, entry):
    for options in ([["--allow", entry]] if "\0" not in entry else []) + [["--policy", box.policy_file({"version": 1, "allow": [{"host": entry}]})]]:
        result = box.raw("check", *options)
        assert result.code == 2 and result.err.count("\n") == 1 and result.err.startswith("penstock: "), result


def test_wildcard_right_below_the_root_works(box):
    """Accepted with a warning, and the data path has it."""
    results, result = box.craft("--allow '*.example'", ["sni", "both.example", 443, "both.example"], ["resolve", "a.hosts.example"], ["dns", "mirror.test"])
    assert results[0] == "handshake" and results[2] == 3 and not isinstance(results[1], str), result
    assert "warning" in result.err and "*.example" in result.err, result


def test_wildcard_is_below_only(box):
    """Sub-domains at any depth; not the name itself, and not what only ends alike. The same in check."""
    names = {"hosts.example": 1, "x.hosts.example": 0, "x.y.hosts.example": 0, "xhosts.example": 1}
    checked = [box.raw("check", "--allow", "*.hosts.example", f"https://{name}/").code for name in names]
    assert checked == list(names.values())
    results, result = box.craft("--allow '*.hosts.example'", *[["sni", LITERAL, 443, name] for name in names], *[["dns", name] for name in names])
    assert results[:4] == ["alert 112", "handshake", "alert 49", "alert 112"], result
    assert results[4:] == [3, 0, 3, 3], result   # x.y exists nowhere
    assert box.lab.dns_queries("x.y.hosts.example") and not box.lab.dns_queries("xhosts.example"), result


def test_numeric_spellings_in_a_real_client(box):
    """What the C library takes for an address is judged as that address."""
    spellings = ["168364297", "0x0a.9.9.9", "012.9.9.9", "10.9.2313", "0x0a090909", "::ffff:10.9.9.9", "::ffff:a09:909", "2852039166"]
    own = ["2130706433", "0x7f.1", "0177.0.0.1", "127.1", "0", "0.0.0.0"]
    results, result = box.craft("--network all", *[["connect", host, 80] for host in spellings],
                                *[["connect", host, zone.PORT_HOST_PLAIN] for host in own])
    assert results == ["ECONNREFUSED"] * len(results), result
    assert {"10.9.9.9", "169.254.169.254"} == {line["address"] for line in result.log}, result
    assert set(result.reasons()) == {"private_address"}, result


# ---- text of a policy reaches no other program's configuration ----

@pytest.mark.parametrize("options", [["--dns", "192.0.2.1\nforward-addr: 203.0.113.1"], ["--dns", "192.0.2.1 203.0.113.1"],
                                     ["--allow-cidr", "203.0.113.0/24\n0.0.0.0/0"], ["--deny-cidr", "203.0.113.0/24; 10.0.0.0/8"],
                                     ["--allow", "both.example\naccept"]])
def test_control_characters_in_options(box, options):
    result = box.raw("run", *options, "--", "true")
    assert result.code == 125 and result.err.count("\n") == 1, result
