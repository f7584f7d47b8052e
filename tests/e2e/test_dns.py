# SPDX-License-Identifier: Apache-2.0
"""DNS inside the sandbox: names are the policy; nothing is asked upstream that the policy could not allow."""
import ipaddress

import pytest

import zone

NAME = "--allow both.example"
POOL4 = ipaddress.ip_network("198.18.0.0/15")


def dig(box, policy, *arguments, **options):
    return box.run(policy, "dig", "+time=4", "+tries=1", *arguments, **options)


def answers(result):
    return [line for line in result.out.split("\n") if line and not line.startswith(";")]


TRANSPORTS = [[], ["+tcp"], [f"@{zone.FOREIGN_DNS4}"], [f"@{zone.FOREIGN_DNS6}"], [f"@{zone.FOREIGN_DNS4}", "+tcp"],
              ["@203.0.113.200"], ["@10.9.9.9"]]


@pytest.mark.parametrize("how", TRANSPORTS, ids=" ".join)
def test_denied_name_is_nxdomain_with_a_reason_and_asks_nobody(box, how):
    before = len(box.lab.dns_queries())
    result = dig(box, NAME, *how, "denied.example", "A")
    assert result.code == 0 and "status: NXDOMAIN" in result.out, result
    assert "EDE: 15" in result.out, result
    ede = next(line for line in result.out.split("\n") if "EDE: 15" in line)
    assert "denied.example" in ede or "(" in ede.split(":", 2)[2], ede
    assert [q for q in box.lab.dns_queries()[before:] if "denied" in q["name"]] == []
    assert "dns_name_denied" in result.reasons(name="denied.example", protocol="dns"), result


@pytest.mark.parametrize("how", TRANSPORTS, ids=" ".join)
def test_allowed_name_is_synthetic(box, how):
    result = dig(box, NAME, *how, "+short", "both.example", "A")
    assert result.code == 0 and ipaddress.ip_address(result.out.strip()) in POOL4, result
    result = dig(box, NAME, *how, "+short", "both.example", "AAAA")
    assert ipaddress.ip_address(result.out.strip()).is_private, result


@pytest.mark.parametrize("policy", ["--network none", "--allow-cidr 203.0.113.0/24"])
def test_without_names_no_lookup_leaves(box, policy):
    before = len(box.lab.dns_queries())
    result = dig(box, policy, "both.example", "A")
    assert "status: NXDOMAIN" in result.out and "EDE: 15" in result.out, result
    assert box.lab.dns_queries()[before:] == []


def test_names_beside_cidrs_still_ask_nobody(box):
    before = len(box.lab.dns_queries("denied.example"))
    result = dig(box, NAME + " --allow-cidr 198.51.100.0/28", "denied.example", "A")
    assert "status: NXDOMAIN" in result.out, result
    assert len(box.lab.dns_queries("denied.example")) == before


@pytest.mark.parametrize("name,kind,text", [
    ("both.example", "A", "198.51.100.20"), ("both.example", "AAAA", "2001:db8:100::20"), ("both.example", "TXT", "lab text"),
    ("bigtxt.example", "TXT", "xxxxxxxx"), ("cname.example", "A", "198.51.100.20"), ("both.example", "MX", "other.example."),
    ("both.example", "CAA", "ca.example")])
def test_base_allow_gives_real_answers(box, name, kind, text):
    result = dig(box, "--network all", "+short", name, kind)
    assert result.code == 0 and text in result.out, result


@pytest.mark.parametrize("how", [[], ["+tcp"]], ids=["udp", "tcp"])
def test_base_allow_asks_the_server_that_was_addressed(box, how):
    before = len(box.lab.dns_queries("v4.example"))
    result = dig(box, "--network all", f"@{zone.FOREIGN_DNS4}", *how, "+short", "v4.example")
    assert result.out == "198.51.100.21\n", result
    assert zone.FOREIGN_DNS4 in {q["server"] for q in box.lab.dns_queries("v4.example")[before:]}


@pytest.mark.parametrize("how", [[], ["+tcp"]], ids=["udp", "tcp"])
def test_server_that_a_cidr_entry_allows_is_asked_itself(box, how):
    before = len(box.lab.dns_queries("v4.example"))
    result = dig(box, f"--allow-cidr {zone.FOREIGN_DNS4}/32", f"@{zone.FOREIGN_DNS4}", *how, "+short", "v4.example")
    assert result.out == "198.51.100.21\n", result
    seen = box.lab.dns_queries("v4.example")[before:]
    assert [(q["server"], q["transport"]) for q in seen] == [(zone.FOREIGN_DNS4, how[0][1:] if how else "udp")]


@pytest.mark.parametrize("name,kind,status", [("nosuch.example", "A", "NXDOMAIN"), ("servfail.example", "A", "SERVFAIL"),
                                              ("nodata.example", "A", "NOERROR")])
def test_real_failures_pass(box, name, kind, status):
    result = dig(box, "--network all", name, kind)
    assert f"status: {status}" in result.out, result


def test_allowed_name_that_does_not_exist(box):
    result = box.curl("--allow nosuch.example", "https://nosuch.example/")
    assert result.code in (6, 7), result


def test_failed_lookup_denies(box):
    result = box.curl("--allow servfail.example", "https://servfail.example/")
    assert result.code in (6, 7), result
    assert "dns_failed" in result.reasons(), result


def test_other_types_of_an_allowed_name(box):
    assert '"lab text"' in dig(box, NAME, "+short", "both.example", "TXT").out
    assert answers(dig(box, NAME, "+short", "both.example", "MX")) == []                    # its target is not allowed
    assert "other.example." in dig(box, NAME + " --allow other.example", "+short", "both.example", "MX").out
    assert answers(dig(box, "--allow svcb.example", "+short", "svcb.example", "HTTPS")) == []
    result = dig(box, NAME, "both.example", "ANY")
    assert "status: REFUSED" in result.out or "status: NOTIMP" in result.out, result


def test_https_records_lose_ech_and_h3(box):
    result = dig(box, "--network all", "+short", "svcb.example", "HTTPS")
    assert result.code == 0 and "ech" not in result.out and "h3" not in result.out, result


@pytest.mark.parametrize("kind", ["A", "AAAA"])
def test_reverse_lookup_of_a_synthetic_address(box, kind):
    result = box.run(NAME, "sh", "-c", f"dig +short -x $(dig +short both.example {kind})")
    assert result.out == "both.example.\n", result


def test_one_name_keeps_one_address(box):
    result = box.run("--allow both.example --allow other.example", "sh", "-c",
                     "for n in both other BOTH both.; do dig +short ${n%.}.example; done")
    first, second, third, fourth = result.out.split()
    assert first == third == fourth and first != second, result


def test_malformed_queries(box):
    rcodes, result = box.probe(NAME, ["dns_rcode", "both.example", 1, 2], ["dns_rcode", "both.example", 252], ["dns_rcode", "both.example"])
    assert rcodes[0]["result"] not in (0, 3), result      # two questions
    assert rcodes[1]["result"] not in (0, 3), result      # AXFR
    assert rcodes[2]["result"] == 0, result


def test_burst(box):
    servers = ["192.0.2.1", "2001:db8::1", "203.0.113.7"]
    (answer,), result = box.probe(NAME, ["dns_burst", "both.example", 50, servers])
    assert answer["result"] == {server: 50 for server in servers}, (answer, result)


def test_at_most_4096_names(box):
    (answer,), result = box.probe("--allow '*.many.example'", ["dns_many", "n%d.many.example", 4100])
    assert answer["result"] == {"0": 4096, "2": 4}, answer
    assert "limit_exceeded" in result.reasons(), result.reasons()[-10:]


def test_unmapped_synthetic_address_is_refused(box):
    answers_, result = box.probe(NAME, ["connect", "198.18.77.77", 443], ["connect", "198.18.77.77", 80])
    assert [a["result"] for a in answers_] == ["ECONNREFUSED"] * 2, result


@pytest.mark.parametrize("server", [zone.FOREIGN_DNS4, zone.FOREIGN_DNS4 + ":53", f"[{zone.FOREIGN_DNS6}]:53"])
def test_dns_option(box, server):
    before = len(box.lab.dns_queries("both.example"))
    result = box.curl(f"--allow both.example --dns {server}", "https://both.example/")
    assert result.code == 0, result
    asked = {q["server"] for q in box.lab.dns_queries("both.example")[before:]}
    assert asked == {zone.FOREIGN_DNS6 if "[" in server else zone.FOREIGN_DNS4}


def test_slow_server(box):
    result = box.curl("--allow slow.example", "-k", "https://slow.example/")
    assert result.code == 0, result


def test_resolver_configuration_inside(box):
    result = box.run(NAME, "sh", "-c", "cat /etc/resolv.conf; getent ahosts both.example; getent hosts localhost")
    assert result.code == 0 and "nameserver" in result.out and "STREAM" in result.out, result
