# SPDX-License-Identifier: Apache-2.0
"""The table of clients.py, tried: each client allowed and refused, over IPv4, IPv6 and both; and CLIENTS.md, its print."""
import json
import os
import re
import shlex
import shutil
import subprocess

import pytest

import clients
import zone
from conftest import HERE

PATH = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
DEFAULT_PORTS = (80, 443, 22, 873)
GRACE = 4  # seconds by which a refusal may take longer than a success on a busy machine; a time-out of anything is 5 or more


@pytest.fixture(scope="session")
def built(lab):
    """What has to be made before a client runs, once: programs of Go and Java, and Java's file of trusted CAs."""
    folder = lab.path("bin/clients")
    shutil.copytree(os.path.join(HERE, "clients"), folder)
    os.makedirs(lab.path("etc/certs/java"))
    env = {**lab.user_environment("user"), "HOME": lab.path("run"), "GO111MODULE": "off", "PATH": PATH}
    for command in (["go", "build", "-o", "fetch-go", "fetch.go"], ["javac", "Fetch.java"],
                    ["keytool", "-importcert", "-noprompt", "-alias", "lab", "-file", lab.ca, "-storepass", "changeit",
                     "-storetype", "JKS", "-keystore", lab.path("etc/certs/java/cacerts")]):
        subprocess.run(command, cwd=folder, env=env, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=180)
    shutil.rmtree(lab.path("run/.cache"))  # of Go; the lab's files are in memory
    return folder


@pytest.fixture(scope="session")
def tools(box, built):
    """Those and the programs of clients/, in the project of that kind of user, with the CA in a home that Chromium looks in."""
    folder = box.path("clients")
    shutil.copytree(built, folder)
    database = os.path.join(folder, "home/.pki/nssdb")
    os.makedirs(database)
    for arguments in (["-N", "--empty-password"], ["-A", "-n", "lab", "-t", "C,,", "-i", box.lab.ca]):
        subprocess.run(["certutil", "-d", "sql:" + database, *arguments], check=True, timeout=30)
    shutil.copy(box.lab.service("ssh") + "/key", folder)
    for parent, _, files in os.walk(folder):
        for path in [parent] + [os.path.join(parent, name) for name in files]:
            box.give(path)
    return folder


def command_of(client, case, box):
    host = {**clients.ALLOWED, **clients.REFUSED}[case]
    port = zone.PORT_CLOSED if case.startswith("port") else client.port
    at = (f"[{host}]" if ":" in host else host) + ("" if port in DEFAULT_PORTS else f":{port}")
    text = client.command.format(url=f"{client.protocol}://{at}/", host=host, at=at, port=port, case=case, lab=box.lab.dir)
    return shlex.split(text)


def drive(box, client, cases):
    """Runs the client for each case in one sandbox. Returns what each gave, and the Result."""
    entry = {"protocol": client.protocol, "ports": [client.port]}
    policy = {"allow": [{"host": host, **entry} for host in clients.ALLOWED.values()]}
    commands = [command_of(client, case, box) for case in cases]
    result = box.run(policy, "/usr/bin/python3", "-B", "clients/drive.py", json.dumps(commands), timeout=200, env={"PATH": PATH})
    try:
        return dict(zip(cases, json.loads(result.out))), result
    except ValueError:
        pytest.fail(f"drive.py did not answer: {result}")


@pytest.mark.parametrize("client", clients.CLIENTS, ids=[client.name for client in clients.CLIENTS])
def test_client(box, tools, client):
    if client.service:
        box.lab.service(client.service)
    cases = list({**clients.ALLOWED, **clients.REFUSED})
    if client.slow:
        cases = clients.SLOW_AS_ROOT if box.kind == "root" else clients.SLOW
    answers, result = drive(box, client, cases)
    assert "_tcp.v4.example" not in result.err, result  # apt asks for SRV records first; no news, where the host is allowed
    allowed = [case for case in cases if case in clients.ALLOWED]
    for case in allowed:
        answer = answers[case]
        assert answer["code"] == 0 and client.success.format(host=clients.ALLOWED[case]) in answer["out"], (case, answer, result)
    for case in cases[len(allowed):]:
        answer, kind = answers[case], ["name", "port", "addr"].index(case.rstrip("46"))
        assert answer["code"] == client.status[kind], (case, answer, result)
        assert client.seen[kind] in answer["out"] + answer["err"], (case, answer, result)
        assert answer["seconds"] < max(answers[other]["seconds"] for other in allowed) + GRACE, (case, answer, result)


PROXIES = ("HTTP_PROXY", "http_proxy", "https_proxy", "ALL_PROXY", "npm_config_proxy", "npm_config_https_proxy", "PIP_PROXY")


@pytest.mark.parametrize("command", ["curl -sS https://pypi.org/zen", "npm view --fetch-retries=0 lab-hello version",
                                     "pip3 download --retries 0 -d clients/proxied requests"])
def test_proxies_of_the_host_are_not_used(box, tools, command):
    policy = "--allow pypi.org --allow files.pythonhosted.org --allow registry.npmjs.org"
    result = box.run(policy, *shlex.split(command), env={"PATH": PATH, **{name: "http://127.0.0.1:9" for name in PROXIES}})
    assert result.code == 0, result


def test_page_is_the_table():
    with open(os.path.join(HERE, "CLIENTS.md"), encoding="utf-8") as file:
        page = file.read()
    versions = {cells[1]: cells[2] for cells in (line[2:-2].split(" | ") for line in re.findall(r"(?m)^\| .* \|$", page))}
    assert all(re.match(r"\d", versions[client.package]) or client.package == "package" for client in clients.CLIENTS)
    assert page == clients.render(versions), "tests/e2e/CLIENTS.md is not what clients.py prints; print it again"
