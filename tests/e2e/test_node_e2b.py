# SPDX-License-Identifier: Apache-2.0
"""E2B's integration cases of egress (its sandbox_internet_test.go, sandbox_network_out_test.go, sandbox_network_update_test.go),
by the numbers of our list of them, with addresses and names of the lab. Where they expect a blocked connection to be accepted
and then closed, ours is refused at once; where they expect DNS at a server that is not allowed to time out, ours is NXDOMAIN.

Case 1 makes its sandboxes; the others are updates of one, which is the same code behind both. E2B asks again for up to 30 s
after a resume (36); ours holds when the resume is answered."""
import pytest

from node import ROOT, https, node, probe, registry, root_only, tls  # noqa: F401 (fixtures)

DENY = "0.0.0.0/0"
A, B, C, FAR = "198.51.100.20", "198.51.100.21", "198.51.100.22", "203.0.113.9"  # 8.8.8.8, 1.1.1.1, 9.9.9.9, of another range
DNS, OTHER_DNS = "198.51.100.53", "192.0.2.1"
FOUR = {"A": tls(A), "B": tls(B), "C": tls(C), "far": tls(FAR)}
NAMES = {"google": https("both.example"), "cloudflare": https("other.example"), "sub": https("www.example.com"),
         "apex": https("example.com"), "subsub": https("a.www.example.com")}
EVERY = {**FOUR, **NAMES}
SOME = {name: EVERY[name] for name in ("A", "B", "C", "google", "cloudflare")}
PRIVATE = ["10.9.9.9", "10.1.2.3", "192.168.1.1", "172.16.0.1", "169.254.169.254"]
PLAIN_HTTP = {"same": "curl -fsS --max-time 10 http://both.example/zen",
              "other host": "curl -fsS --max-time 10 -H 'Host: other.example' http://both.example/zen",
              "other name": "curl -fsS --max-time 10 http://other.example/zen"}
LOOKUPS = {"there": f"dig +short +time=2 +tries=1 @{DNS} both.example | grep -qx {A}",
           "by TCP": f"dig +short +tcp +time=2 +tries=1 @{DNS} both.example | grep -qx {A}",
           "elsewhere": f"dig +short +time=2 +tries=1 @{OTHER_DNS} both.example | grep -qx {A}",
           "elsewhere NXDOMAIN": f"dig +time=2 +tries=1 @{OTHER_DNS} both.example | grep -q 'status: NXDOMAIN'"}
POISONED = {"real": f"curl -sS --max-time 10 -D - https://v4.example/ | grep -iq '^x-lab-address: {B}'"}
BANNER = {"banner": f"nc.openbsd -w 10 {A} 2525 </dev/null | grep -q '^220 lab'"}
HALF = {"half": f"printf hello | nc.openbsd -N -w 10 {A} 9 | grep -q '^5 2cf24dba'"}

# number: (the policy, what is tried, what of it works)
CASES = {
    "3": ({"allowOut": [A], "denyOut": [DENY]}, FOUR, {"A"}),
    "4": ({"denyOut": [A]}, FOUR, {"B", "C", "far"}),
    "5": ({"allowOut": ["198.51.100.0/24"], "denyOut": [DENY]}, FOUR, {"A", "B", "C"}),
    "6": ({"denyOut": ["198.51.100.0/24"]}, FOUR, {"far"}),
    "7": ({"denyOut": ["198.51.100.0/24"], "allowOut": [A]}, FOUR, {"A", "far"}),
    "9": ({}, EVERY, set(EVERY)),
    "10": ({"allowOut": [DENY], "denyOut": [DENY]}, FOUR, set(FOUR)),
    "11": ({"allowOut": [A], "denyOut": [A]}, FOUR, set(FOUR)),
    "12": ({"allowOut": [A, B], "denyOut": [DENY]}, FOUR, {"A", "B"}),
    "13": ({"allow_internet_access": False, "allowOut": [A]}, FOUR, {"A"}),
    "15": ({"allowOut": [DENY, DENY]}, FOUR, set(FOUR)),
    "16": ({"allowOut": [A, DENY]}, FOUR, set(FOUR)),
    "17": ({"allowOut": ["both.example"], "denyOut": [DENY]}, EVERY, {"google"}),
    "18": ({"allowOut": ["*.example.com"], "denyOut": [DENY]}, EVERY, {"sub", "subsub"}),
    "19 exact": ({"allowOut": ["example.com"], "denyOut": [DENY]}, EVERY, {"apex"}),
    "19 below": ({"allowOut": ["www.example.com"], "denyOut": [DENY]}, EVERY, {"sub"}),
    "20": ({"allowOut": ["*"], "denyOut": [DENY]}, EVERY, set(NAMES)),
    "21": ({"allowOut": ["BOTH.Example"], "denyOut": [DENY]}, EVERY, {"google"}),
    "22": ({"allowOut": ["both.example", C], "denyOut": [DENY]}, EVERY, {"google", "C"}),
    # Also with the name's own address, with its name as SNI, and with SNI alone: none of them is what a name opens.
    "23": ({"allowOut": ["both.example"], "denyOut": [DENY]}, {**FOUR, "SNI": f"curl -sS --max-time 10 --resolve both.example:443:{B} https://both.example/",
                                                              "none": f"openssl s_client -noservername -connect {A}:443 </dev/null"}, {"SNI"}),
    "25": ({"allowOut": ["both.example"], "denyOut": [DENY]}, PLAIN_HTTP, {"same"}),
    "26": ({"allowOut": [DNS], "denyOut": [DENY]}, LOOKUPS, {"there", "by TCP", "elsewhere NXDOMAIN"}),
    "27": ({"allowOut": ["198.51.100.48/28"], "denyOut": [DENY]}, LOOKUPS, {"there", "by TCP", "elsewhere NXDOMAIN"}),
    "29": ({}, BANNER, set(BANNER)),
    "30": ({"allowOut": [A], "denyOut": [DENY]}, {**BANNER, "not": BANNER["banner"].replace(A, B)}, set(BANNER)),
    "31": ({"allowOut": [A], "denyOut": [DENY]}, HALF, set(HALF)),
}


@pytest.fixture(scope="module")
def sandbox(node):
    made = node.create(network={}, expires=False)
    yield made
    node.good("DELETE", "/sandboxes/" + made)


def pause_and_resume(node, sandbox):
    node.good("POST", f"/sandboxes/{sandbox}/pause", {}, (204,))
    node.good("POST", f"/sandboxes/{sandbox}/connect", {}, (201,))


@root_only
def test_case_1_and_2_internet_on_and_off(node):
    for fields, reached in (({"allow_internet_access": True}, set(SOME)), ({"allow_internet_access": False}, set())):
        made = node.create(**fields)
        assert probe(node, made, SOME) == reached, (1, fields)
        pause_and_resume(node, made)
        assert probe(node, made, SOME) == reached, (2, fields)
        node.good("DELETE", "/sandboxes/" + made)


if ROOT:
    @pytest.mark.parametrize("case", CASES, ids=lambda case: "case_" + case.replace(" ", "_"))
    def test_egress(node, sandbox, case):
        fields, tried, reached = CASES[case]
        node.update(sandbox, **fields)
        assert probe(node, sandbox, tried) == reached

    @pytest.mark.parametrize("case, of", [("8", "3"), ("24", "17"), ("36", "22"), ("37", "off")],
                             ids=lambda value: "case_" + value if value in ("8", "24", "36", "37") else "")
    def test_the_same_after_pause_and_resume(node, sandbox, case, of):
        fields, tried, reached = CASES[of] if of in CASES else ({"allow_internet_access": False}, EVERY, set())
        node.update(sandbox, **fields)
        before = node.detail(sandbox)
        pause_and_resume(node, sandbox)
        assert probe(node, sandbox, tried) == reached
        after = node.detail(sandbox)
        assert [after.get(key) for key in ("network", "allowInternetAccess")] == [before.get(key) for key in ("network", "allowInternetAccess")]


@root_only
def test_case_14_private_addresses_are_always_blocked(node, sandbox):
    tried = {address: tls(address) for address in PRIVATE}
    for allowed in ([DENY], [A, "10.0.0.0/8", "192.168.0.0/16", "172.16.0.0/12", "169.254.0.0/16"]):
        node.update(sandbox, allowOut=allowed, denyOut=[DENY])
        seen = len(node.decisions(sandbox))
        assert probe(node, sandbox, {**tried, "A": tls(A)}) == {"A"}, allowed
        log = node.decisions(sandbox)[seen:]
        denied = {line["address"]: line["reason"] for line in log if line.get("verdict") == "deny" and line.get("address")}
        assert {address: denied.get(address) for address in PRIVATE} == {address: "node_denied" for address in PRIVATE}, log


@root_only
def test_case_28_the_sandbox_does_not_say_where_a_name_is(node, sandbox):
    node.update(sandbox, allowOut=["v4.example"], denyOut=[DENY])
    assert node.exec(sandbox, f"cp /etc/hosts /tmp/hosts && echo '{A} v4.example' >>/etc/hosts").exit == 0
    try:
        assert probe(node, sandbox, POISONED) == {"real"}
    finally:
        node.exec(sandbox, "cat /tmp/hosts >/etc/hosts")


@root_only
def test_a_blocked_connection_is_refused_at_once(node, sandbox):
    node.update(sandbox, allowOut=[A], denyOut=[DENY])
    output = node.exec(sandbox, f"for i in 1 2 3 4 5; do curl -sS -w '%{{time_total}}\\n' https://{B}/; done; "
                                f"nc.openbsd -v -w 5 {B} 2525; curl -sS https://other.example/")
    assert output.err.count("curl: (7) Failed to connect") == 5 and "refused" in output.err, output
    assert "resolve host: other.example" in output.err and min(map(float, output.out.split())) < 1, output
    node.update(sandbox, allowOut=["both.example"], denyOut=[DENY])  # now what a client says on port 443 is heard first
    output = node.exec(sandbox, f"nc.openbsd -v -w 5 {B} 2525; curl -sS https://{B}/; curl -sS https://other.example/")
    assert "refused" in output.err and "unrecognized name" in output.err and "resolve host: other.example" in output.err, output


REFUSED = [["denyOut example.com", {"denyOut": ["example.com"]}], ["denyOut garbage", {"denyOut": ["not-an-ip!"]}],
           ["denyOut mixed", {"denyOut": [DENY, "example.com"]}], ["no deny", {"allowOut": ["example.com"]}],
           ["partial deny", {"allowOut": ["example.com"], "denyOut": ["10.0.0.0/8"]}],
           ["wildcard", {"allowOut": ["*.example.com"]}], ["wildcard, partial", {"allowOut": ["*.example.com"], "denyOut": [A]}],
           ["mixed, partial", {"allowOut": ["example.com", A], "denyOut": ["10.0.0.0/8"]}]]
ACCEPTED = [{}, {"allowOut": [A]}, {"allowOut": [A], "denyOut": [B]}, {"allowOut": ["198.51.100.0/24"]}, {"denyOut": [DENY]},
            {"allowOut": [A], "denyOut": [DENY]}, {"allowOut": ["example.com"], "denyOut": [DENY]},
            {"allowOut": ["*.example.com"], "denyOut": [DENY]}, {"allowOut": ["example.com", A, "*.org"], "denyOut": [DENY]},
            {"denyOut": ["10.0.0.0/8", "198.51.100.0/25", "203.0.113.0/24"]}]


@root_only
def test_case_32_to_34_what_an_update_answers(node, sandbox):
    assert node.call("PUT", "/sandboxes/ithereisnosuchone0000/network", {}).status == 404
    without = node.call("PUT", f"/sandboxes/{sandbox}/network", {}, headers={"X-API-Key": "wrong"})
    assert without.status == 401 and without.message
    node.update(sandbox, allowOut=[A], denyOut=[DENY])
    for name, fields in REFUSED:
        assert node.call("PUT", f"/sandboxes/{sandbox}/network", fields).status == 400, name
    assert probe(node, sandbox, FOUR) == {"A"}  # none of them has changed a thing
    for fields in ACCEPTED:
        answer = node.call("PUT", f"/sandboxes/{sandbox}/network", fields)
        assert answer.status == 204 and answer.text == "", (fields, answer)


STEPS = [({"denyOut": [DENY]}, set()), ({"allowOut": [A], "denyOut": [DENY]}, {"A"}), ({"allowOut": [B], "denyOut": [DENY]}, {"B"}),
         ({"allowOut": [A, B], "denyOut": [DENY]}, {"A", "B"}), ({"allowOut": ["198.51.100.0/24"], "denyOut": [DENY]}, {"A", "B", "C"}),
         ({"allowOut": ["both.example"], "denyOut": [DENY]}, {"google"}),
         ({"allowOut": ["both.example", A], "denyOut": [DENY]}, {"google", "A"}), ({"denyOut": [DENY]}, set()), ({}, set(SOME)),
         ({"allowOut": [A], "denyOut": [DENY]}, {"A"}), ({"allowOut": [A]}, set(SOME)), ({"allow_internet_access": False}, set()),
         ({"allow_internet_access": True}, set(SOME)), ({"denyOut": [DENY]}, set()), ({"allowOut": []}, set(SOME)),
         ({"allow_internet_access": False}, set()), ({}, set(SOME))]


@root_only
def test_case_35_each_update_replaces_the_last(node, sandbox):
    for number, (fields, reached) in enumerate(STEPS):
        answer = node.update(sandbox, **fields)
        assert int(answer.headers["x-penstock-generation"]) > 1
        assert probe(node, sandbox, SOME) == reached, (number, fields)
