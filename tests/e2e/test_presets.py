# SPDX-License-Identifier: Apache-2.0
"""Presets: named lists of hosts, on the command line and in policy files."""
import json
import re

import pytest


def hosts(box, name):
    return box.raw("presets", name).out.split()


def test_allowed_and_nothing_else(box):
    result = box.run("--allow @python", "sh", "-c", f"curl -sS --cacert {box.lab.ca} https://pypi.org/zen https://files.pythonhosted.org/zen; "
                     "curl -s https://registry.npmjs.org/; echo $?; curl -s https://pypi.org:8443/; echo $?; "
                     "curl -s -o /dev/null -w '%{http_code}\\n' http://pypi.org/")
    assert result.out.count("logically") == 2 and result.out.endswith("6\n7\n403\n"), result
    assert {line["rule"] for line in result.log if line["verdict"] == "allow" and line["protocol"] == "tcp"} == \
        {"allow https pypi.org:443", "allow https files.pythonhosted.org:443"}, result


@pytest.mark.parametrize("entry", ['- preset: python', '- preset: "@python"', '- host: "@python"'])
def test_in_policy_files(box, entry):
    path = box.file("preset.yaml", f"version: 1\nallow:\n  {entry}\n  - host: both.example\n")
    checked = box.raw("check", "--policy", "preset.yaml")
    assert checked.code == 0 and re.search(r"allow https pypi\.org:443 +\(preset\.yaml:3 \(@python\)\)\n", checked.out), checked
    result = box.run(f"--policy {path}", "curl", "-sS", "--cacert", box.lab.ca, "https://pypi.org/zen")
    assert result.code == 0 and "logically" in result.out and result.err == "", result


def test_host_already_allowed_is_no_error(box):
    box.file("preset.yaml", 'version: 1\nallow:\n  - host: pypi.org\n  - host: "*.pythonhosted.org"\n  - preset: python\n')
    result = box.raw("check", "--policy", "preset.yaml")
    assert result.code == 0 and result.err == "" and "warning" not in result.out, result


BAD_FILES = [
    ("- preset: npm", "preset.yaml:3", '"npm"', "@node"),
    ("- {preset: python, ports: [8443]}", "ports does not go with a preset", "3", ""),
    ("- {preset: python, protocol: http}", "protocol does not go with a preset", "3", ""),
    ("- {preset: python, host: both.example}", "either host, cidr or preset", "3", ""),
]


@pytest.mark.parametrize("entry,first,second,third", BAD_FILES, ids=[row[0] for row in BAD_FILES])
def test_bad_files(box, entry, first, second, third):
    box.file("preset.yaml", f"version: 1\nallow:\n  {entry}\n")
    result = box.raw("check", "--policy", "preset.yaml")
    assert result.code == 2 and result.err.count("\n") == 1, result
    for text in (first.replace("preset.yaml:3", "3"), second, third):
        assert text in result.err, result


@pytest.mark.parametrize("value", ["@npm", "@", "@python:8443", "@Python"])
def test_unknown(box, value):
    result = box.raw("check", "--allow", value)
    assert result.code == 2 and result.err.count("\n") == 1, result
    assert f'"{value}" is not a preset' in result.err and "@python, @ruby, @rust" in result.err, result


def test_list(box):
    text, listed = box.raw("presets"), json.loads(box.raw("presets", "--json").out)
    names = [preset["name"] for preset in listed]
    assert {"python", "node", "debian", "rust", "go", "github", "docker"} <= set(names) and names == sorted(names)
    for preset in listed:
        assert preset["hosts"] == hosts(box, preset["name"]) == hosts(box, "@" + preset["name"]) and preset["summary"]
        assert f"@{preset['name']}: {preset['summary']}\n    {preset['hosts'][0]}\n" in text.out
        checked = box.raw("check", "--json", "--allow", "@" + preset["name"], f"https://{preset['hosts'][-1]}/")
        assert checked.code == 0 and json.loads(checked.out)["source"] == "--allow @" + preset["name"], checked
    assert json.loads(box.raw("presets", "node", "--json").out) == [preset for preset in listed if preset["name"] == "node"]
    assert box.raw("presets", "nosuch").code == 2 and box.raw("presets", "--nosuch").code == 2
