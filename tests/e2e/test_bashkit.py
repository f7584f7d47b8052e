# SPDX-License-Identifier: Apache-2.0
"""Type bashkit: shell script text in the process engine, under exactly its row of the table."""
import json
import os

import pytest

import zone


def script(box, policy, text, **options):
    return box.run(f"--type bashkit {policy}", text, **options)


def test_is_a_script(box):
    result = script(box, "", "x=1; for i in 1 2 3; do ((x *= 2)); done; echo $x | tr 8 9; [[ -n $BASH ]] && exit 7")
    assert result.out == "9\n" and result.code == 7, result


def test_text_may_begin_with_a_dash(box):
    result = box.run("--type bashkit", "-n; echo still here")
    assert result.out == "still here\n", result


def test_syntax_error_is_the_shells(box):
    result = script(box, "", "if")
    assert result.code == 2 and "syntax error" in result.err, result


def test_allowed_and_refused(box):
    text = (f"curl -sS --cacert {box.lab.ca} https://api.github.com/zen; code=$?; echo; echo $code\n"
            "curl -s https://denied.example/; echo name $?\n"
            "curl -s https://203.0.113.9:8443/; echo address $?\n"
            "curl -s -o /dev/null -w '%{http_code}' http://api.github.com/; echo plain $?\n")
    result = script(box, "--allow api.github.com", text)
    assert result.code == 0, result
    assert result.out == "Keep it logically awesome.\n\n0\nname 6\naddress 7\n403plain 0\n", result
    for told in ("denied.example (dns_name_denied)", "203.0.113.9:8443 (base_denied)", "api.github.com:80 (not_https)"):
        assert told in result.err, result
    assert {"dns_name_denied", "base_denied", "not_https"} <= set(result.reasons(verdict="deny")), result


def test_curl_says_what_it_says(box):
    result = script(box, "", "curl -sS https://both.example/")
    assert result.code == 6 and "curl: (6) Could not resolve host: both.example" in result.err, result


def test_default_is_none_and_all_is_public(box):
    assert script(box, "", "curl -s https://203.0.113.1/").code == 7
    result = script(box, "--network all", "curl -s http://other.example/; curl -s http://10.9.9.9/; echo $?")
    assert "lab other.example" in result.out and result.out.endswith("7\n"), result


def test_policy_file_names_the_type(box):
    policy = box.policy_file(json.dumps({"type": "bashkit", "network": {"allow": {"hosts": ["both.example"]}}}))
    result = box.run(f"--policy {policy}", f"curl -sS --cacert {box.lab.ca} https://both.example/")
    assert result.code == 0 and "lab both.example" in result.out, result


def test_presets_are_plain_hosts(box):
    result = script(box, "--allow @python", f"curl -sS --cacert {box.lab.ca} https://pypi.org/zen")
    assert result.code == 0 and "logically" in result.out, result


# options, arguments, what the one line says
BAD = [
    ("", ["echo", "two"], "exactly one argument, the text of a shell script, not 2"),
    ("", ["sh", "-c", "touch started"], "not 3"),
    ("--allow-cidr 203.0.113.0/24", ["touch started"], "BashkitSandbox does not support EgressPolicy.custom()"),
    ("--allow '*.example.com'", ["touch started"], "BashkitSandbox does not support native policies"),
    ("--network all --deny-cidr 203.0.113.0/24", ["touch started"], "BashkitSandbox does not support native policies"),
    ("--allow github.com --bind github", ["touch started"], "BashkitSandbox does not support agents.GitHubBinding; pass header_bindings=()"),
]


@pytest.mark.parametrize("options,arguments,says", BAD, ids=[f"{o} {a}" for o, a, _ in BAD])
def test_refused_when_built(box, options, arguments, says):
    if os.path.exists(box.path("started")):
        os.unlink(box.path("started"))
    result = box.run(f"--type bashkit {options}", *arguments)
    assert result.code == 125 and says in result.err and result.err.count("\n") == 1, result
    assert not os.path.exists(box.path("started"))


def test_no_argument(box):
    result = box.raw("run", "--type", "bashkit", "--")
    assert result.code == 125 and result.err.count("\n") == 1, result


def test_sandbox_is_the_process_engine(box):
    """The same walls as type process: no foreign processes, no link, the gate's DNS."""
    result = script(box, "", "tail -n +3 /proc/net/dev | cut -d: -f1; ls /proc | grep -c '^[0-9]'")
    links, processes = result.out.split()
    assert links == "lo" and int(processes) < 10, result
    assert zone.HOST4 not in result.out


def test_types_say_it_is_built(box):
    result = box.raw("types")
    line = [row for row in result.out.split("\n") if row.startswith("bashkit ")][0]
    assert "/bin/bash -c" in line and "not built yet" not in line, result
