# SPDX-License-Identifier: Apache-2.0
"""Bindings as people write them: options, the operator's rules, E2B transforms, variables for tools, trust in the sandbox.
Rules: CREDENTIALS.md."""
import json
import os
import re
import subprocess

import pytest

from conftest import HERE
from guest import Guest, Secrets, bearer, got, since

PLACEHOLDER = "PenstockPlaceholder"
CURL = "curl -sS --http1.1 https://{}/headers"


def run(box, options, *command, env=(), **more):
    box.lab.service("bound")
    state = {"PENSTOCK_STATE_FOLDER": os.path.join(box.home, "state")}
    return box.run(options, *command, env={**state, **dict(env)}, **more)


def sent(box, options, host="keys.example", header="x-key", command="", env=()):
    """What a plain request by curl carries in that header when it arrives."""
    result, seen = since(box, lambda: run(box, options, *(command or CURL.format(host)).split(), env=env), event="request")
    assert result.code == 0 and len(seen) == 1, result
    return got(seen, header)[0]


@pytest.mark.parametrize("option,header,value", [
    ("header:keys.example:X-Key=env:A", "x-key", "labtok_a"), ("header:KEYS.example:x-key:v={secret}!=env:A", "x-key", "v=labtok_a!"),
    ("header:keys.example:Authorization:Bearer {secret}=env:A", "authorization", "Bearer labtok_a"),
    ("header:keys.example:X-Key=file:FILE", "x-key", "labtok_file"), ("header:keys.example:X-Key=cmd:printf 'labtok=%s' $((1+1))", "x-key", "labtok=2"),
    ("header:keys.example:X-Key:{secret}{secret}=env:A", "x-key", "labtok_alabtok_a")])
def test_options(box, option, header, value):
    path = Secrets(box, "kinds").put("file", "labtok_file")
    options = ["--allow", "keys.example", "--bind", option.replace("file:FILE", path)]
    assert sent(box, options, header=header, env={"A": "labtok_a"}) == [value]


def test_base_allow_reaches_by_name(box):
    assert sent(box, ["--network", "all", "--bind", "header:keys.example:X-Key=env:A"], env={"A": "labtok_a"}) == ["labtok_a"]


def test_base_allow_opens_no_other_host(box):
    """Neither of the lab's other hosts, nor addresses."""
    result = run(box, ["--network", "all", "--bind", "header:keys.example:X-Key=env:A"], "sh", "-c",
                 "for at in elsewhere.example:443 198.51.100.41:443; do openssl s_client -connect $at </dev/null 2>/dev/null | grep issuer; done",
                 env={"A": "labtok_a"})
    assert result.out == "issuer=CN = Penstock lab CA\n" * 2, result


def test_wildcard_entry_reaches(box):
    assert sent(box, ["--allow", "*.example", "--bind", "header:keys.example:X-Key=env:A"], env={"A": "labtok_a"}) == ["labtok_a"]


def test_another_port(box):
    """TLS on a stated port is opened as well."""
    box.lab.service("bound")
    options = ["--allow", "v4.example:8443", "--bind", "header:v4.example:X-Key=env:A"]
    result = run(box, options, *"curl -sS --http1.1 https://v4.example:8443/headers".split(), env={"A": "labtok_a"})
    assert result.code == 0 and "labtok_a" in result.out, result


def test_workspace(box):
    """The operator's rules, for the hosts that the policy reaches."""
    rules = [{"host": "keys.example", "header": "X-Key", "secret": "env:NODE_KEY"}, {"host": "h1.example", "header": "X-Key", "secret": "env:NODE_KEY"}]
    node = box.file("node-workspace.yaml", json.dumps({"credentials": {"workspace": rules}}), 0o600)
    options = ["--allow", "keys.example", "--node-config", node, "--bind", "workspace"]
    assert sent(box, options, env={"NODE_KEY": "labtok_node"}) == ["labtok_node"]
    assert sent(box, options[:4], env={"NODE_KEY": "labtok_node"}) == [], "only where the policy asks for it"


def test_e2b_transforms(box):
    policy = {"dialect": "e2b", "network": {"allowOut": ["keys.example"], "denyOut": ["0.0.0.0/0"],
                          "rules": {"keys.example": [{"transform": {"headers": {"X-Key": "labtok_inline"}}}]}}}
    path = box.file("e2b-transforms.json", json.dumps(policy), 0o600)
    result, seen = since(box, lambda: run(box, ["--policy", path], *CURL.format("keys.example").split()), event="request")
    assert result.code == 0 and got(seen, "x-key") == [["labtok_inline"]], result


# ---- variables that tools insist on ----

@pytest.mark.parametrize("variable,start,length", [("GITHUB_TOKEN", "ghp_", 40), ("OPENAI_API_KEY", "sk-", 51), ("MY_OWN_KEY", "", 32)])
def test_placeholders(box, variable, start, length):
    """Of the right shape inside, replaced in the bound header, left alone elsewhere."""
    policy = {"allow": [{"host": "keys.example"}],
              "credentials": [{"host": "keys.example", "header": "Authorization", "value": "Bearer {secret}", "secret": f"env:{variable}", "variable": variable}]}
    script = (f"printf '%s\\n' \"${variable}\"; curl -sS --http1.1 -H \"Authorization: token ${variable}\" -H \"X-Other: ${variable}\" "
              f"-d \"body ${variable}\" https://keys.example/headers?q=${variable}")
    result, seen = since(box, lambda: run(box, policy, "sh", "-c", script, env={variable: "labtok_real"}), event="request")
    placeholder = result.out.splitlines()[0]
    assert placeholder.startswith(start) and len(placeholder) == length and PLACEHOLDER in placeholder, result
    assert got(seen) == [["Bearer labtok_real"]] and got(seen, "x-other") == [[placeholder]], seen
    assert seen[0]["path"].endswith("?q=" + placeholder) and result.out.endswith("body " + placeholder), result


def test_placeholder_goes_nowhere_else_as_a_secret(box):
    policy = {"allow": [{"host": "keys.example"}, {"host": "elsewhere.example"}],
              "credentials": [{"host": "keys.example", "header": "Authorization", "secret": "env:T", "variable": "GITHUB_TOKEN"}]}
    result, seen = since(box, lambda: run(box, policy, "sh", "-c", 'curl -sS -H "Authorization: $GITHUB_TOKEN" https://elsewhere.example/headers',
                                          env={"T": "labtok_real"}), event="request")
    assert result.code == 0 and len(seen) == 1 and PLACEHOLDER in got(seen)[0][0] and "labtok_real" not in str(seen), seen


# ---- trust in the sandbox ----

@pytest.fixture(scope="module")
def guest(box):
    with Guest(box, bearer(Secrets(box, "kinds-guest"), ["keys.example"])) as started:
        yield started


def test_variables_of_trust(guest):
    environment = guest.do("environment")
    for name in ("SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"):
        done = guest.run("cat", environment[name])
        assert "BEGIN CERTIFICATE" in done["out"] and "PRIVATE" not in done["out"], name


def test_bundle_is_the_machines_and_ours(box, guest):
    exported = box.raw("ca", "export", env={"PENSTOCK_STATE_FOLDER": guest.state}).out
    with open("/etc/ssl/certs/ca-certificates.crt", encoding="utf-8") as file:
        machine = file.read()
    bundle = guest.run("cat", "/etc/ssl/certs/ca-certificates.crt")["out"]
    assert exported.split("-----")[2].strip() in bundle and machine.split("-----")[2].strip() in bundle
    assert bundle.count("BEGIN") == machine.count("BEGIN") + 1


def test_the_machines_own_files_stay(box, guest):
    """It is mounted, not written."""
    exported = box.raw("ca", "export", env={"PENSTOCK_STATE_FOLDER": guest.state}).out
    with open("/etc/ssl/certs/ca-certificates.crt", encoding="utf-8") as file:
        assert exported.split("-----")[2].strip() not in file.read()


def test_ca_is_of_one_machine(box, guest):
    """With a path length of 0, and a key that no other has."""
    exported, other = (box.raw("ca", "export", env={"PENSTOCK_STATE_FOLDER": state}).out for state in (guest.state, guest.state + "-other"))
    text = subprocess.run(["openssl", "x509", "-noout", "-text"], input=exported, stdout=subprocess.PIPE, text=True, check=True).stdout
    assert "CA:TRUE, pathlen:0" in text and "Certificate Sign" in text and exported != other, text


def test_ca_key_is_out_of_reach(box, guest):
    paths = [os.path.join(guest.state, name) for name in ("ca/authority", "secrets/.key", "")]
    for path in paths:
        done = guest.run("sh", "-c", f"ls -la '{path}'; cat '{path}'")
        assert done["out"] == "", done
    assert subprocess.run(["stat", "-c", "%a", paths[0]], stdout=subprocess.PIPE, text=True, check=True).stdout == "600\n"


# ---- CREDENTIALS.md ----

FILES = {"rules": "test_credentials.py", "kinds": "test_credential_kinds.py", "clients": "test_credential_clients.py",
         "scan": "test_credential_scan.py", "h1": "test_interception.py", "h2": "test_interception_h2.py", "rude": "test_interception_rude.py"}


def test_the_page_names_tests_that_exist():
    tests = {}
    for name, file in FILES.items():
        with open(os.path.join(HERE, file), encoding="utf-8") as text:
            tests[name] = set(re.findall(r"(?m)^def (test_\w+)", text.read()))
    with open(os.path.join(HERE, "CREDENTIALS.md"), encoding="utf-8") as page:
        named = re.findall(r"`(\w+)::(\w+)`", page.read())
    assert len(named) > 80 and all(test in tests[name] for name, test in named), [one for one in named if one[1] not in tests[one[0]]]
