# SPDX-License-Identifier: Apache-2.0
"""Bindings in the other forms: E2B rules, the operator's rules, placeholders, an open base. Rules: CREDENTIALS.md."""
import os

import pytest

from guest import Secrets, got, since

INLINE = "labtok_inline_5ecret"
LOOK = "env; cat /proc/*/cmdline /proc/*/environ 2>/dev/null || true; grep -rs labtok_ /tmp /run . || true"


@pytest.fixture(scope="module")
def bound(box):
    box.lab.service("bound")


def run(box, policy, script, env=(), **options):
    state = {"PENSTOCK_STATE_FOLDER": os.path.join(box.home, "state"), **dict(env)}
    return since(box, lambda: box.run(policy, "sh", "-ec", script, env=state, **options), event="request")


def test_e2b_rules(box, bound):
    """A value given in the policy is a secret: it arrives, and is nowhere else."""
    policy = box.policy_file({"dialect": "e2b", "network": {
        "allowOut": ["keys.example", "elsewhere.example"], "denyOut": ["0.0.0.0/0"],
        "rules": {"Keys.example": [{"transform": {"headers": {"X-Key": INLINE, "x-other": "labtok_other"}}}]}}})
    result, seen = run(box, ["--policy", policy], f"curl -sS -o /dev/null https://keys.example/headers; {LOOK}")
    assert result.code == 0 and got(seen, "x-key") == [[INLINE]] and got(seen, "x-other") == [["labtok_other"]], (result, seen)
    said = result.out + result.err + str(result.log)
    assert INLINE not in said and "labtok_other" not in said, result
    for options in ([], ["--json"]):
        checked = box.raw("check", "--policy", policy, *options)
        assert checked.code == 0 and "keys.example" in checked.out and "labtok" not in checked.out + checked.err, checked


def test_workspace(box, bound):
    """The operator's rules, for the hosts that this policy reaches."""
    secrets = Secrets(box, "workspace")
    node = box.file("workspace.yaml", "credentials:\n  workspace:\n"
                    f"    - {{host: keys.example, header: X-Team, secret: '{secrets.put('team', 'labtok_team')}', path: /headers}}\n"
                    f"    - {{host: h1.example, basic: bot, secret: '{secrets.put('bot', 'labtok_bot')}'}}\n")
    options = ["--allow", "keys.example", "--bind", "workspace"]
    result, seen = run(box, [*options, "--node-config", node], "curl -sS -o /dev/null https://keys.example/headers")
    assert result.code == 0 and got(seen, "x-team") == [["labtok_team"]], (result, seen)
    result = box.run(options, "true")
    assert result.code == 125 and "workspace binding has no rules" in result.err and result.err.count("\n") == 1, result


def test_placeholder_and_open_base(box, bound):
    """A tool gets its variable; a pinned address has no effect; no host without a binding is touched."""
    policy = {"base": "allow", "credentials": [{"host": "keys.example", "header": "Authorization", "value": "Bearer {secret}",
                                                "secret": "env:GITHUB_TOKEN", "variable": "GITHUB_TOKEN"}]}
    script = ('echo "variable $GITHUB_TOKEN"; H="Authorization: Bearer $GITHUB_TOKEN"\n'
              'curl -sS -o /dev/null -H "$H" https://keys.example/headers\n'
              'curl -sS -o /dev/null --resolve keys.example:443:198.51.100.41 https://keys.example/headers\n'
              f'curl -sS -o /dev/null --cacert {box.lab.ca} -H "$H" https://elsewhere.example/headers')
    result, seen = run(box, policy, script, {"GITHUB_TOKEN": "labtok_variable"})
    placeholder = result.out.split()[1]
    assert result.code == 0 and placeholder.startswith("ghp_") and len(placeholder) == 40 and "Placeholder" in placeholder, result
    assert got(seen) == [["Bearer labtok_variable"], ["Bearer labtok_variable"], ["Bearer " + placeholder]], seen
