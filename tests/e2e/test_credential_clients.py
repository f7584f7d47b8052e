# SPDX-License-Identifier: Apache-2.0
"""Unchanged programs that use credentials which they cannot see, as people run them. Rules: CREDENTIALS.md."""
import json
import os
import shutil
import subprocess

import pytest

from conftest import HERE
from guest import Guest, Secrets, bearer, got, since, values
from test_credentials import BASIC, ENV, MODEL, TOKEN

PATH = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
GITHUB = ["--allow", "github.com", "--allow", "api.github.com", "--bind", "github:octo/hello=env:GITHUB_TOKEN"]
IDENTITY = {f"GIT_{who}_{what}": value for who in ("AUTHOR", "COMMITTER") for what, value in (("NAME", "a"), ("EMAIL", "a@example.com"))}


def run(box, options, *command, env=(), **more):
    state = {"PENSTOCK_STATE_FOLDER": os.path.join(box.home, "state"), "PATH": PATH}
    return box.run(options, *command, env={**state, **ENV, **dict(env)}, **more)


# ---- the four sentences of "Done when" ----

def test_git_clone_and_push_of_a_private_repository(box):
    name = f"pushed-{box.kind}"
    script = (f"set -e; rm -rf {name}; git clone -q https://github.com/octo/hello {name}; cd {name}; cat README; "
              f"echo {name} >{name}; git add .; git commit -qm new; git push -q origin HEAD:refs/heads/{name}; git fetch -q; git log --oneline origin/{name}; "
              "git config --get-regexp . 'labtok|http.extraheader' || echo clean")
    result, seen = since(box, lambda: run(box, GITHUB, "sh", "-c", script, env=IDENTITY))
    assert result.code == 0 and "hello git" in result.out and "new" in result.out and "clean" in result.out, result
    assert seen and all(values(entry, "authorization") == [BASIC] for entry in seen), seen
    heads = subprocess.run(["git", "-C", box.lab.path("git/octo/hello.git"), "-c", "safe.directory=*", "branch"], stdout=subprocess.PIPE, text=True, check=True)
    assert name in heads.stdout


def test_git_without_the_binding(box):
    """The lab's GitHub does demand it."""
    result = run(box, GITHUB[:4], "git", "clone", "https://github.com/octo/hello", f"never-{box.kind}")
    assert result.code == 128 and "could not read Username" in result.err, result


def test_git_of_another_repository(box):
    result, seen = since(box, lambda: run(box, GITHUB, "git", "clone", "https://github.com/octo/other", f"never-{box.kind}"))
    assert result.code == 128 and seen and not any(values(entry, "authorization") for entry in seen), (result, seen)


def test_gh(box):
    """The real program, which insists on a token of its own: whatever it is, it is replaced."""
    options = [*GITHUB[:4], "--bind", "github=env:GITHUB_TOKEN"]
    script = ("gh api user; gh api repos/octo/hello --jq .full_name; gh repo view octo/hello --json name; "
              "gh api repos/octo/hello/issues -f title=found; gh api graphql -f query='{viewer{login}}'")
    result, seen = since(box, lambda: run(box, options, "sh", "-ec", script, env={"GH_TOKEN": "placeholder", "GH_PROMPT_DISABLED": "1"}))
    assert result.code == 0, result
    for part in ('"login": "octo"', "octo/hello", '"name":"hello"', '"title":"found"', '"viewer"'):
        assert part.replace(" ", "") in result.out.replace(" ", ""), (part, result)
    assert len(seen) >= 5 and all(values(entry, "authorization") == ["Bearer " + TOKEN] for entry in seen), seen


def test_stream_of_a_model(box):
    body = json.dumps({"model": "lab-small", "stream": True, "messages": []})
    for version in ("--http1.1", "--http2"):
        result, seen = since(box, lambda v=version: run(
            box, ["--allow", "api.mistral.ai", "--bind", "mistral_api"], "sh", "-c",
            f"curl -sSN {v} https://api.mistral.ai/v1/chat/completions -H 'Content-Type: application/json' -d '{body}' |"
            " while read -r line; do echo $(date +%s%N) $line; done"))
        lines = [line.split(" ", 1) for line in result.out.splitlines() if "data:" in line]
        assert len(lines) == 6 and lines[-1][1] == "data: [DONE]", result
        assert int(lines[-1][0]) - int(lines[0][0]) > 400e6, "each as soon as it was said"
        assert values(seen[0], "authorization") == ["Bearer " + MODEL], seen


def test_grpc_call(box):
    box.lab.service("grpc")
    code = ("import grpc; c = grpc.secure_channel('grpc.example:443', grpc.ssl_channel_credentials());"
            "call = c.stream_stream('/lab.Echo/Both')(iter([b'1', b'2']), timeout=10);"
            "print([part.decode() for part in call], dict(call.trailing_metadata()))")
    options = ["--allow", "grpc.example", "--bind", "header:grpc.example:authorization:Bearer {secret}=env:GITHUB_TOKEN"]
    result, seen = since(box, lambda: run(box, options, "/usr/bin/python3", "-c", code), event="call")
    assert result.code == 0 and "['re: 1', 're: 2']" in result.out and "x-lab-trailer" in result.out, result
    assert got(seen) == [["Bearer " + TOKEN]], seen


# ---- clients accept the CA ----

@pytest.fixture(scope="session")
def built(lab):
    folder = lab.path("bin/bound-clients")
    shutil.copytree(os.path.join(HERE, "clients"), folder)
    env = {**lab.user_environment("user"), "HOME": lab.path("run"), "GO111MODULE": "off", "PATH": PATH}
    os.makedirs(lab.path("etc/certs/java"), exist_ok=True)
    for command in (["go", "build", "-o", "fetch-go", "fetch.go"], ["javac", "Fetch.java"],
                    ["keytool", "-importcert", "-noprompt", "-alias", "lab", "-file", lab.ca, "-storepass", "changeit",
                     "-storetype", "JKS", "-keystore", lab.path("etc/certs/java/cacerts")]):
        subprocess.run(command, cwd=folder, env=env, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=180)
    shutil.rmtree(lab.path("run/.cache"))
    return folder


@pytest.fixture(scope="module")
def guest(box, built):
    box.lab.service("bound")
    folder = box.path("bound-clients")
    shutil.copytree(built, folder)
    for parent, _, files in os.walk(folder):
        for path in [parent] + [os.path.join(parent, name) for name in files]:
            box.give(path)
    secrets = Secrets(box, "clients")
    with Guest(box, bearer(secrets, ["keys.example"]), env={"PATH": PATH}) as started:
        started.wanted = "Bearer " + secrets.values["keys.example"]
        yield started


URL = "https://keys.example/headers"
PROGRAMS = {
    "curl (OpenSSL)": f"curl -sS {URL}", "curl, HTTP/2": f"curl -sS --http2 {URL}", "curl, HTTP/1.1": f"curl -sS --http1.1 {URL}",
    "pycurl (GnuTLS)": f"/usr/bin/python3 bound-clients/fetch.py pycurl {URL}", "wget (GnuTLS)": f"wget -nv -O- {URL}",
    "Python urllib": f"/usr/bin/python3 bound-clients/fetch.py urllib {URL}", "Python requests": f"/usr/bin/python3 bound-clients/fetch.py requests {URL}",
    "Python httpx": f"/usr/bin/python3 -c 'import httpx; print(httpx.get(\"{URL}\").text)'",
    "Python aiohttp": f"/usr/bin/python3 bound-clients/fetch.py aiohttp {URL}",
    "Node fetch": f"node bound-clients/fetch.js fetch {URL}", "Node https": f"node bound-clients/fetch.js https {URL}",
    "Go": f"bound-clients/fetch-go {URL}",
    "Java HttpClient": f"java -XX:TieredStopAtLevel=1 -cp bound-clients Fetch client {URL}",
    "Java URLConnection": f"java -XX:TieredStopAtLevel=1 -cp bound-clients Fetch connection {URL}",
    "openssl": "sh -c 'printf \"GET /headers HTTP/1.1\\r\\nHost: keys.example\\r\\nConnection: close\\r\\n\\r\\n\" | "
               "openssl s_client -quiet -verify_return_error -verify_hostname keys.example -connect keys.example:443 -servername keys.example'",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_clients_accept_the_ca(box, guest, name):
    done, seen = since(box, lambda: guest.run(PROGRAMS[name], env={"PATH": PATH}), event="request")
    assert done["code"] == 0, done
    assert got(seen) == [[guest.wanted]], (done, seen)


def test_other_hosts_verify_as_before(guest):
    """The bundle has all that the machine's has."""
    for program in ("curl -sS", "wget -nv -O-", "/usr/bin/python3 bound-clients/fetch.py requests", "node bound-clients/fetch.js fetch"):
        done = guest.run(program + " https://both.example/")
        assert done["code"] == 0 and "lab both.example" in done["out"], done


@pytest.mark.parametrize("alpn", ["h2", "http/1.1"])
def test_openssl_sees_the_protocol(guest, alpn):
    done = guest.run("sh", "-c", f"openssl s_client -alpn {alpn} -connect keys.example:443 -servername keys.example </dev/null 2>&1")
    assert f"ALPN protocol: {alpn}" in done["out"] and "Verify return code: 0" in done["out"], done
