# SPDX-License-Identifier: Apache-2.0
"""The page "Networking" of AgentENV: its curls as printed there, with the lab's addresses and names, and what it promises."""
import json
import subprocess

from node import IMAGE, KEY, https, node, probe, registry, root_only, tls  # noqa: F401 (fixtures)

WARM = """curl -X POST \\
  -H 'X-API-Key: test-key' \\
  -H 'Content-Type: application/json' \\
  -d '{
    "templateID": "my-ubuntu",
    "network": {
      "allowOut": ["*.example.com"],
      "denyOut": ["0.0.0.0/0"],
      "allowPublicTraffic": false
    }
  }' \\
  http://127.0.0.1:8000/sandboxes"""
COLD = """curl -X POST \\
  -H 'X-API-Key: test-key' \\
  -H 'Content-Type: application/json' \\
  -d '{
    "image": "ubuntu:24.04",
    "allowInternetAccess": false,
    "network": {
      "allowOut": ["8.8.8.8/32"]
    }
  }' \\
  http://127.0.0.1:8000/sandboxes-cold"""
UPDATE = """curl -X PUT \\
  -H 'X-API-Key: test-key' \\
  -H 'Content-Type: application/json' \\
  -d '{"allowOut": ["8.8.8.8/32"], "denyOut": ["0.0.0.0/0"]}' \\
  http://127.0.0.1:8000/sandboxes/<sandbox-id>/network"""
LISTED, OTHER, THIRD = "198.51.100.20", "198.51.100.21", "203.0.113.9"
ALL = {"listed": tls(LISTED), "other": tls(OTHER), "third": tls(THIRD, 8443), "name": https("www.example.com"),
       "deep": https("a.www.example.com"), "apex": https("example.com"), "apart": https("both.example"),
       "http": "curl -fsS --max-time 10 http://www.example.com/zen"}


def curl(node, text, sandbox=""):
    """Runs one of the curls. The status and the JSON of its answer."""
    for seed, lab in {"http://127.0.0.1:8000": node.url, "8.8.8.8": LISTED,
                      "ubuntu:24.04": IMAGE, "<sandbox-id>": sandbox}.items():
        text = text.replace(seed, lab)
    assert KEY in text
    done = subprocess.run(["bash", "-c", text.replace("curl ", "curl -sS -w '\\n%{http_code}' ", 1)], capture_output=True, text=True,
                          timeout=60, check=True)
    body, _, status = done.stdout.rpartition("\n")
    return int(status), json.loads(body) if body else None


@root_only
def test_every_curl(node):
    template = node.template("my-ubuntu")
    status, warm = curl(node, WARM)
    assert status == 201 and len(warm["trafficAccessToken"]) == 64, warm
    assert (warm["templateID"], warm["alias"]) == (template, "my-ubuntu")
    # "Exact names and wildcard forms", any depth and not the apex, for HTTP and HTTPS and nothing else.
    assert probe(node, warm["sandboxID"], ALL) == {"name", "deep", "http"}
    status, cold = curl(node, COLD)
    assert status == 201 and cold["trafficAccessToken"] is None, cold
    assert probe(node, cold["sandboxID"], ALL) == {"listed"}
    detail = node.detail(cold["sandboxID"])
    assert detail["allowInternetAccess"] is False, detail
    assert detail["network"] == {"allowOut": [LISTED + "/32"], "allowPublicTraffic": True, "maskRequestHost": None}, detail
    status, nothing = curl(node, UPDATE, warm["sandboxID"])
    assert status == 204 and nothing is None
    assert probe(node, warm["sandboxID"], ALL) == {"listed"}
    detail = node.detail(warm["sandboxID"])  # what is about ingress stays
    assert detail["network"] == {"allowOut": [LISTED + "/32"], "denyOut": ["0.0.0.0/0"], "allowPublicTraffic": False,
                                 "maskRequestHost": None}, detail
    for made in (warm, cold):
        node.good("DELETE", "/sandboxes/" + made["sandboxID"])


PLAIN = {name: ALL[name] for name in ("listed", "other", "third", "name")}
PRIVATE = {"private": tls("10.9.9.9"), "metadata": tls("169.254.169.254"), "host": "curl -sS --max-time 10 http://192.0.2.2:9100/",
           "private name": ("-k", "https://private.example/"), **PLAIN}
RULES = [
    # "Node-level deny?" comes before everything.
    ({"allowOut": ["10.0.0.0/8", "169.254.0.0/16", "192.0.2.2/32", "private.example"], "denyOut": ["0.0.0.0/0"]}, set()),
    # "allowOut can override an overlapping user-configured denyOut"
    ({"allowOut": [LISTED], "denyOut": ["198.51.100.0/24"]}, {"listed", "third", "name"}),  # the name by IPv6
    ({"allowOut": ["198.51.100.0/24"], "denyOut": [LISTED + "/32"]}, set(PLAIN)),
    ({"denyOut": [LISTED, "203.0.113.0/24", "2001:db8:100::/48"]}, {"other", "name"}),
    ({"denyOut": ["0.0.0.0/0"]}, set()),
    # "adds a deny-by-default base policy after the explicit rules", in both spellings
    ({"allow_internet_access": False, "allowOut": [OTHER]}, {"other"}),
    ({"allowInternetAccess": False, "allowOut": [OTHER]}, {"other"}),
    ({"allowInternetAccess": False, "allow_internet_access": False}, set()),
    # "Omitting both clears the per-sandbox lists"; the base policy stays what the request says.
    ({"allow_internet_access": False}, set()),
    ({"allow_internet_access": True}, set(PLAIN)),
    # "the listed domains as the allowed exceptions"
    ({"allowOut": ["*.example.com", LISTED], "denyOut": ["0.0.0.0/0"]}, {"name", "listed"}),
    ({"allowOut": ["*.example.com"], "denyOut": ["0.0.0.0/0"], "allow_internet_access": True}, {"name"}),
    # "omit allow_internet_access as well to restore the default base policy"
    ({}, set(PLAIN)),
]


@root_only
def test_order_of_the_rules(node):
    sandbox = node.create(allow_internet_access=False)
    assert probe(node, sandbox, PRIVATE) == set()
    for fields, reached in RULES:
        node.update(sandbox, **fields)
        assert probe(node, sandbox, PRIVATE) == reached, fields
    node.good("DELETE", "/sandboxes/" + sandbox)


REFUSED = [
    ({"allowOut": ["example.com"]}, "allowOut contains domains but denyOut is missing 0.0.0.0/0 (ALL_TRAFFIC)"),
    ({"allowOut": ["example.com"], "denyOut": ["10.0.0.0/8"]},
     "allowOut contains domains but denyOut is missing 0.0.0.0/0 (ALL_TRAFFIC)"),
    ({"allowOut": ["*.example.com"], "allow_internet_access": False},
     "allowOut contains domains but denyOut is missing 0.0.0.0/0 (ALL_TRAFFIC)"),
    ({"denyOut": ["example.com"]}, 'denyOut entry "example.com" must be an IP address or CIDR block'),
    ({"allowOut": ["8.8.8.8/33"]}, 'invalid IP or CIDR entry "8.8.8.8/33"'),
    ({"denyOut": ["8.8.8/24"]}, 'invalid IP or CIDR entry "8.8.8/24"'),
    ({"allowOut": ["exa mple.com"], "denyOut": ["0.0.0.0/0"]}, 'invalid allowOut domain entry "exa mple.com"'),
    ({"allowOut": ["a.*.com"], "denyOut": ["0.0.0.0/0"]}, 'invalid allowOut domain entry "a.*.com"'),
]


@root_only
def test_refusals(node):
    sandbox = node.create(network={"allowOut": [LISTED], "denyOut": ["0.0.0.0/0"]})
    for fields, text in REFUSED:
        answer = node.call("PUT", f"/sandboxes/{sandbox}/network", fields)
        assert answer.status == 400 and text in answer.message, (fields, answer)
        switch = {key: value for key, value in fields.items() if key.startswith("allow_")}
        network = {key: value for key, value in fields.items() if key not in switch}
        for path, source in (("/sandboxes", {"templateID": "my-ubuntu"}), ("/sandboxes-cold", {"image": IMAGE})):
            answer = node.call("POST", path, {**source, "network": network, **switch})
            assert answer.status == 400 and text in answer.message, (path, fields, answer)
    differing = {"allow_internet_access": True, "allowInternetAccess": False}
    for method, path, body in (("PUT", f"/sandboxes/{sandbox}/network", {}), ("POST", "/sandboxes-cold", {"image": IMAGE}),
                               ("POST", "/sandboxes", {"templateID": "my-ubuntu"})):
        answer = node.call(method, path, {**body, **differing})
        assert answer.status == 400 and "allowInternetAccess" in answer.message and "differ" in answer.message, answer
    for body in ({"allow_out": [LISTED]}, {"AllowOut": [LISTED]}, {"allow_internet_acess": False}, {"egress": {}}):
        answer = node.call("PUT", f"/sandboxes/{sandbox}/network", body)
        assert answer.status == 400 and list(body)[0] in answer.message, answer  # a misspelling leaves no sandbox open
    assert node.call("PUT", "/sandboxes/i00000000000000000000/network", {}).status == 404
    assert probe(node, sandbox, PLAIN) == {"listed"}, "a refused update has changed something"
    assert node.states() == {sandbox: "running"}, "a refused creation has left something"
    # An allow list alone is none: it is said.
    answer = node.update(sandbox, allowOut=[LISTED])
    assert any("allowOut" in text for text in answer.all("x-penstock-warning")), answer
    assert probe(node, sandbox, PLAIN) == set(PLAIN)
