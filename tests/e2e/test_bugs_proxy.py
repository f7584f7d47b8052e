# SPDX-License-Identifier: Apache-2.0
"""The bug list (tests/bugs.md) where it concerns explicit proxies: `run --proxy`, HTTP and SOCKS5 inside the sandbox."""
import pytest

import zone
from test_bugs_names import ALLOWED, DENIED, DOTS, IDN, LOOKALIKES, NUL, NUMBERS, POLICY

PROXIED = ["--proxy"]
HTTP_PROXY, SOCKS_PROXY = "http://192.0.0.1:3128", "socks5h://192.0.0.1:1080"
LITERAL = "198.51.100.25"  # denied.example's


@pytest.fixture
def policy(box):
    return PROXIED + ["--policy", box.policy_file({"version": 1, **POLICY})]


@pytest.fixture
def deny(box):
    box.file("deny.yaml", 'network: {egress: {always_denied: ["denied.example", "*.many.example"]}}\n')
    return PROXIED + ["--network", "all", "--node-config", box.path("deny.yaml")]


@pytest.mark.parametrize("names", [NUL, DOTS, NUMBERS, LOOKALIKES, IDN], ids=["nul", "dots", "numbers", "lookalikes", "idn"])
def test_other_spellings_are_refused(box, policy, names):
    """As a CONNECT authority, in an absolute form, and as a name of SOCKS5; nobody outside hears of them."""
    web, lookups = len(box.lab.http_requests()), len(box.lab.dns_queries())
    short = [name for name in names if len(name) < 256]
    results, result = box.craft(policy, *[["proxy_connect", name + ":443"] for name in names], *[["request", "192.0.0.1", 3128, name, f"http://{name}/"] for name in names],
                                *[["socks", name, 443] for name in short])
    count = len(names)
    assert set(results[:count]) <= {"400", "403"}, list(zip(names, results))
    assert set(results[count:2 * count]) <= {"400", "403"}, list(zip(names, results[count:]))
    assert not {0} & set(results[2 * count:]), list(zip(short, results[2 * count:]))
    assert box.lab.http_requests()[web:] == []
    assert [q for q in box.lab.dns_queries()[lookups:] if not ALLOWED.fullmatch(q["name"])] == []


def test_same_name_in_other_clothes(box, policy):
    results, result = box.craft(policy, *[["proxy_connect", name] for name in ("BOTH.example:443", "both.example.:443", "Both.Example.:443")],
                                *[["socks", name, 443] for name in ("BOTH.example", "both.example.")])
    assert results == ["200"] * 3 + [0] * 2, result


def test_no_spelling_escapes_a_deny_entry(box, deny):
    before = len(box.lab.http_requests()), len(box.lab.dns_queries())
    results, result = box.craft(deny, *[["proxy_connect", name + ":443"] for name in DENIED], *[["request", "192.0.0.1", 3128, name, f"http://{name}/"] for name in DENIED],
                                *[["socks", name, 443] for name in DENIED], *[["proxy_sni", kind, LITERAL, 443, name] for kind in ("socks", "http") for name in DENIED])
    assert results[:12] == ["403"] * 12 and not {0} & set(results[12:18]) and results[18:] == ["alert 112"] * 12, result
    assert box.lab.http_requests()[before[0]:] == [] and box.lab.dns_queries()[before[1]:] == [], result


def test_what_is_inside_is_judged_as_well(box, policy):
    """The name of the proxy's request and the one in SNI or Host must agree, and both be allowed."""
    before = len(box.lab.http_requests())
    results, result = box.craft(policy, *[["proxy_sni", kind, host, 443, name] for kind in ("socks", "http") for host, name in
                                          (("both.example", "both.example"), ("both.example", "denied.example"), ("both.example", "a.hosts.example"), (LITERAL, "denied.example"))],
                                ["request", "192.0.0.1", 3128, "denied.example", "http://mirror.test/x"], ["request", "192.0.0.1", 3128, "mirror.test", "http://denied.example/x"])
    assert results[:8] == ["handshake", "alert 112", "alert 112", "alert 112"] * 2, result
    assert set(results[8:]) <= {"400", "403"} and box.lab.http_requests()[before:] == [], result


def test_plain_http_is_policed_like_connect(box, policy):
    """Every method and form: one decision, and a record of it."""
    results, result = box.craft(policy, *[["request", "192.0.0.1", 3128, host, f"http://{host}/zen", "1.1", method] for host in ("mirror.test", "denied.example", "both.example")
                                          for method in ("GET", "POST", "HEAD")], ["proxy_connect", "denied.example:443"], ["proxy_connect", "mirror.test:443"], ["proxy_connect", "both.example:80"])
    assert results[0] == results[2] == "200" and results[1] in ("200", "405") and results[3:] == ["403"] * 9, result
    assert {"base_denied", "not_https"} <= set(result.reasons(verdict="deny")), result
    assert len([line for line in result.log if line["verdict"] == "deny" and line["protocol"] == "tcp"]) >= 9, result


def test_the_proxies_reach_nothing_of_the_host_nor_themselves(box):
    """CONNECT to each local address of the host, to the proxies, to loopback: refused at once, no loop."""
    targets = [(zone.HOST4, 9100), (zone.OWN4, 9100), (f"[{zone.HOST6}]", 9100), (f"[{zone.OWN6}]", 9100), ("127.0.0.1", 9100), ("[::1]", 9100), ("localhost", 9100), ("0.0.0.0", 9100),
               ("192.0.0.1", 3128), ("192.0.0.1", 1080), ("192.0.0.2", 3128), ("192.0.0.3", 1), ("[::ffff:127.0.0.1]", 9100), ("own.example", 9100), ("loopback.example", 9100), ("169.254.169.254", 80)]
    for options in ("--network all", "--network all --allow-private"):
        own = targets[:-1] if "private" in options else targets
        results, result = box.craft(PROXIED + options.split(), *[["proxy_connect", f"{host}:{port}"] for host, port in own],
                                    *[["request", "192.0.0.1", 3128, f"{host}:{port}", f"http://{host}:{port}/"] for host, port in own],
                                    *[["socks", host.strip("[]"), port] for host, port in own])
        assert set(results[:2 * len(own)]) <= {"400", "403", "502", "503", "504"}, result
        assert not {0} & set(results[2 * len(own):]), result
        assert result.seconds < 25, result


def test_no_lookup_of_a_denied_name(box, policy):
    before = len(box.lab.dns_queries())
    box.craft(policy, ["proxy_connect", "secret.denied.example:443"], ["socks", "secret.denied.example", 443], ["request", "192.0.0.1", 3128, "secret.denied.example", "http://secret.denied.example/"])
    assert [q for q in box.lab.dns_queries()[before:] if "denied" in q["name"]] == []


def test_no_credentials_are_asked_for(box, policy):
    """No 407, whatever a client sends along; a refusal and then a good request, also for the host in another case."""
    field = "Proxy-Authorization: Basic dTpw\r\n"
    results, result = box.craft(policy, ["proxy_connect", "both.example:443", None, field], ["proxy_connect", "denied.example:443", None, field],
                                ["proxy_again", "denied.example:443", "BOTH.example:443", field], ["proxy_again", "both.example:8443", "both.example:443", field])
    assert results == ["200", "403", ["403", "200"], ["403", "200"]], result


@pytest.mark.parametrize("value", ["*", "localhost", ""])
def test_no_proxy_changes_no_verdict(box, value):
    """Directly or by either proxy: the same. The sandbox's own services are its own, and are reached without one."""
    script = ("python3 -m http.server --bind 127.0.0.1 7777 >/dev/null 2>&1 & until nc -z 127.0.0.1 7777; do sleep 0.1; done; get='curl -sS -o /dev/null -w %{http_code}\\n'; "
              f"$get http://127.0.0.1:7777/; for x in '' {HTTP_PROXY} {SOCKS_PROXY}; do ALL_PROXY=$x https_proxy=$x $get --cacert {box.lab.ca} https://both.example/; "
              "ALL_PROXY=$x https_proxy=$x curl -s https://denied.example/ && echo open; done; kill %1")
    result = box.run(PROXIED + ["--allow", "both.example"], "bash", "-c", script, env={"NO_PROXY": value, "no_proxy": value})
    assert result.out == "200\n" * 4, result
