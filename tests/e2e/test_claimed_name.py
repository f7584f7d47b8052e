# SPDX-License-Identifier: Apache-2.0
"""A name that was claimed to a literal address and resolved anew is judged as a dialled one, at every step; and a request
is one decision, in one line of the log."""
import json

import zone

LITERAL = "198.51.100.99"  # of nobody
BOTH_PROTOCOLS = [(protocol, port) for protocol, port in (("http", zone.PORT_HTTP), ("https", zone.PORT_HTTPS))]
NAMES = [  # name, further keys of its entries, what its one decision is
    ("private-db.example", {"private": True}, ("allow", "allowed_name")),  # holds for a claimed name too
    ("both.example", {}, ("allow", "allowed_name")),                       # not allowed_cidr, although a range has its answer
    ("private.example", {}, ("deny", "private_address")),                  # no line says that it was allowed
    ("nodata.example", {}, ("deny", "dns_failed")),
]
POLICY = {"allow": [{"host": name, "protocol": protocol, **keys} for name, keys, _ in NAMES for protocol, _ in BOTH_PROTOCOLS] +
                   [{"host": "other.example", "protocol": "http", "ports": [zone.PORT_CLOSED]},
                    {"cidr": "198.51.100.20/32"}, {"cidr": "2001:db8:100::20/128"}]}


def request(name, last=True):
    return f"GET / HTTP/1.1\r\nHost: {name}\r\n{'Connection: close' if last else 'Accept: */*'}\r\n\r\n"


def operation(protocol, port, name):
    return ["tls", LITERAL, port, name] if protocol == "https" else ["send_and_read", LITERAL, port, request(name)]


def decisions(result, **wanted):
    return [(line["verdict"], line["reason"]) for line in result.log if line["event"] == "decision" and
            all(line[key] == value for key, value in wanted.items())]


def test_one_decision_for_each_request(box):
    tries = [(protocol, port, *name) for name in NAMES for protocol, port in BOTH_PROTOCOLS]
    answers, result = box.probe(POLICY, *[operation(protocol, port, name) for protocol, port, name, _, _ in tries],
                                operation("http", zone.PORT_CLOSED, "other.example"))
    for answer, (protocol, port, name, _, wanted) in zip(answers, tries):
        assert (f"lab {name}" in str(answer["result"])) == (wanted[0] == "allow"), (name, protocol, result)
        assert decisions(result, protocol="tcp", name=name, port=port) == [wanted], (name, protocol, result)
    assert " 502 " in answers[-1]["result"] and '"upstream_failed"' in answers[-1]["result"], result
    assert decisions(result, protocol="tcp", name="other.example") == [("allow", "upstream_failed")], result


def test_second_request_of_a_private_name(box):
    """On a kept connection the name is judged again, and with the address that was dialled for it."""
    name = "private-db.example"
    (answer,), result = box.probe(POLICY, ["send_and_read", LITERAL, zone.PORT_HTTP, request(name, False) + request(name)])
    assert answer["result"].count(f"lab {name}") == 2, result
    assert decisions(result, name=name, protocol="tcp") == [("allow", "allowed_name")] * 2, result


def test_the_line_about_a_loopback_port_says_what_opens_it(box):
    hosts = ["localhost:8000", "127.0.0.1:8443", "[::1]:8001"]
    policy = box.policy_file(json.dumps({"network": {"allow": {"hosts": hosts}}, "block_private_ips": False}))
    result = box.run(f"--policy {policy}", "true")
    said = {(line["port"], line["name"], line["address"], line["verdict"], line["reason"]) for line in result.log}
    assert said == {(8000, "localhost", "127.0.0.1", "allow", "allowed_name"), (8443, None, "127.0.0.1", "allow", "allowed_cidr"),
                    (8001, None, "::1", "allow", "allowed_cidr")}, result
