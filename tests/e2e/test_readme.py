# SPDX-License-Identifier: Apache-2.0
"""The first five minutes: every `penstock run` and `penstock check` of README.md as it stands there, by a new user."""
import json
import os
import re
import shutil
import subprocess

import pytest

import github
import sites
from conftest import PROJECT, Box
from lab import kinds

CURL = "#!/bin/sh\nexec curl -sS {}\n"
FILES = {
    "fetch": CURL.format("https://registry.example:8443/"),
    "agent": CURL.format("https://api.github.com/zen"),
    "Makefile": "test:\n\tcurl -sS https://api.github.com/zen\n",
    "package.json": '{"dependencies": {"lab-hello": "1.0.0"}}',
    "package-lock.json": json.dumps({"lockfileVersion": 3, "packages": {
        "": {"dependencies": {"lab-hello": "1.0.0"}},
        "node_modules/lab-hello": {"version": "1.0.0", "resolved": sites.REGISTRY + "/tarballs/lab-hello-1.0.0.tgz"}}}),
}
SECRETS = {"GITHUB_TOKEN": github.TOKEN + "readme", "MISTRAL_API_KEY": github.TOKEN + "model"}
ZEN = "Keep it logically awesome."
# command -> exit status, a text that the user sees
WANTED = {
    "penstock run --allow api.github.com -- curl https://api.github.com/zen": (0, ZEN),
    "penstock run -- curl -sS https://example.com": (6, None),  # what is seen stands below it in README.md
    "penstock run --allow pypi.org --allow files.pythonhosted.org -- venv/bin/pip install requests":
        (0, "Successfully installed certifi-1.0.0 charset-normalizer-1.0.0 idna-1.0.0 requests-1.0.0 urllib3-1.0.0"),
    "penstock run --allow registry.example:8443 -- ./fetch": (0, "lab registry.example"),
    "penstock run --allow '*.npmjs.org' -- npm ci": (0, "added 1 package"),
    "penstock run --allow-cidr 203.0.113.0/24 --read ~/.ssh -- ssh build@203.0.113.7": (0, ""),  # a shell that reads nothing
    "penstock run --allow @python --allow @github -- pip download requests": (0, "Successfully downloaded requests"),
    "penstock run --learn policy.yaml -- make test": (0, ZEN),
    "penstock run --policy policy.yaml -- make test": (0, ZEN),
    "penstock run --network all -- ./agent": (0, ZEN),
    "penstock run --allow localhost:8000 --allow-private -- curl -k https://localhost:8000/": (0, "host loopback here"),
    "penstock run --policy ~/policies/agent.yaml --log ~/logs/agent.jsonl -- ./agent": (0, ZEN),
    "penstock run --allow github.com --allow api.github.com --bind github:octo/hello -- git clone https://github.com/octo/hello":
        (0, "Cloning into 'hello'"),
    "penstock run --allow api.mistral.ai --bind mistral_api -- curl https://api.mistral.ai/v1/models": (0, "lab-small"),
    "penstock run --allow api.github.com --bind 'header:api.github.com:Authorization:Bearer {secret}=store:work'"
    " -- curl https://api.github.com/user": (0, '"login"'),
    "penstock check --allow api.github.com https://api.github.com/zen": (0, "allow"),
    "penstock check --policy policy.yaml tcp://203.0.113.9:23": (1, "deny"),
}


def readme():
    with open(os.path.join(PROJECT, "README.md"), encoding="utf-8") as file:
        return file.read()


class NewUser:
    """A folder, a home folder with what an ordinary user has in it, and a shell."""

    def __init__(self, box):
        self.box, self.folder = box, box.path("first")
        os.mkdir(self.folder)
        for name, text in FILES.items():
            box.file("first/" + name, text, 0o755)
        for name in ("policies", "logs", ".ssh"):
            os.makedirs(os.path.join(box.home, name), exist_ok=True)
        with open(os.path.join(box.home, "policies/agent.yaml"), "w", encoding="utf-8") as file:
            file.write(re.search(r"```yaml\n(.*?)```", readme(), re.S).group(1))
        key = box.lab.service("ssh") + "/key"
        shutil.copy(key, os.path.join(box.home, ".ssh/id_ed25519"))
        with open(os.path.join(box.home, ".ssh/config"), "w", encoding="utf-8") as file:
            file.write("StrictHostKeyChecking accept-new\nUserKnownHostsFile /dev/null\n")
        for path in [self.folder] + [os.path.join(box.home, name) for name in (
                "policies", "logs", ".ssh", ".ssh/id_ed25519", ".ssh/config")]:
            box.give(path)

    def shell(self, line):
        env = {**self.box.environment(), **SECRETS, "PATH": os.path.dirname(self.box.program) + ":/usr/bin:/bin:/usr/sbin:/sbin"}
        done = subprocess.run(self.box.lab.as_user(self.box.kind, ["sh", "-c", line]), cwd=self.folder, env=env, timeout=90,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        return done.returncode, done.stdout.decode(errors="replace")


@pytest.fixture(scope="session")
def new_user(lab):
    """One kind is enough: an ordinary user where there is one. What differs for root is tested elsewhere."""
    user = NewUser(Box(lab, kinds()[-1]))
    assert user.shell(f"echo {github.TOKEN}work | penstock secret set work")[0] == 0
    return user


def commands():
    """Those of README.md, each with the lines that stand below it as its output."""
    pattern = r"(?m)^    (?:\$ )?(penstock (?:run|check) .*|python3 -m venv .*)\n((?:    (?!\$|penstock ).+\n)*)"
    found = re.findall(pattern, readme())
    return {command.split("  #")[0].strip(): [line.strip() for line in output.splitlines()] for command, output in found}


def test_readme(new_user):
    shown = commands()
    assert set(WANTED) == {command for command in shown if command.startswith("penstock")}
    for command, output in shown.items():
        status, text = WANTED.get(command, (0, ""))
        code, seen = new_user.shell(command)
        assert code == status and (text or "") in seen, (command, code, seen)
        if text is None:
            assert output == seen.splitlines(), (command, seen)
