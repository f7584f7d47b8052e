# SPDX-License-Identifier: Apache-2.0
"""Which requests get which credential, where secrets come from, how they change, and what happens without. Rules: CREDENTIALS.md."""
import base64
import json
import os
import re
import signal
import subprocess
import time

import pytest

from guest import Guest, Secrets, bearer, got, role, since, values

TOKEN, MODEL = "labtok_github_5ecret", "labtok_mistral_5ecret"
BASIC = "Basic " + base64.b64encode(f"x-access-token:{TOKEN}".encode()).decode()
ENV = {"GITHUB_TOKEN": TOKEN, "MISTRAL_API_KEY": MODEL}
GITHUB = {"binding": "github", "secret": "env:GITHUB_TOKEN"}


@pytest.fixture(scope="module")
def secrets(box):
    return Secrets(box, "credentials")


@pytest.fixture(scope="module")
def guest(box, secrets):
    """Restricted to one repository; and a few sources."""
    box.lab.service("bound")
    done = box.raw("secret", "set", "kept", input=b"labtok_kept", env={"PENSTOCK_STATE_FOLDER": os.path.join(box.home, "state")})
    assert done.code == 0, done
    credentials = [{**GITHUB, "repos": ["Octo/hello.git"]}, {"binding": "mistral_api"}, *bearer(secrets, ["keys.example"]),
                   {"host": "h1.example", "header": "X-Key", "secret": "store:kept"},
                   {"host": "h2.example", "header": "X-Key", "value": "k={secret};", "secret": "cmd:echo labtok_$((20+3))"}]
    with Guest(box, credentials, ENV) as started:
        yield started


@pytest.fixture(scope="module")
def whole(box):
    """Any repository, and all of the API."""
    with Guest(box, [GITHUB], {"GITHUB_TOKEN": TOKEN}) as started:
        yield started


# ---- github ----

INSIDE = ["/octo/hello/info/refs?service=git-upload-pack", "/octo/hello.git/info/refs?service=git-receive-pack", "/octo/hello",
          "/Octo/HELLO/info/refs", "/octo/hello.git/git-upload-pack", "/octo/hello/a/b/../c", "/octo/hello/"]
INSIDE_API = ["/repos/octo/hello", "/repos/octo/hello/issues?per_page=3", "/repos/OCTO/hello/git/refs", "/repos/octo/hello/contents/a%20b"]
OUTSIDE = ["/octo/other/info/refs", "/octo/other.git/info/refs", "/octo/hello/../other/info/refs", "/octo/hello/%2e%2e/other/info/refs",
           "/octo/hello/.%2E/other/info/refs", "/octo/hello%2f..%2fother/info/refs", "/octo/hello/..%2fother/info/refs",
           "/octo/hello.git/../other.git/info/refs", "/octo/hello-evil/info/refs", "/octo/hello.evil/info/refs", "/octo/hello.git.git/x",
           "/octo/xhello/info/refs", "/octohello/info/refs", "/octo/", "/octo", "/", "/hello/octo/info/refs", "/octo/hello%00/info/refs",
           "/octo/hello%252f..%252fother/x", "/octo/hello\\..\\other\\info\\refs", "/octo/hello/%5c..%5c..%5cother/x", "/octo/hello;x/../other/y",
           "/octo/other/info/refs?/octo/hello/", "/octo/other#/octo/hello", "/octo/%68ello/../other/x", "/repos/octo/hello",
           "/octo//other/info/refs", "//octo/other/info/refs", "/octo/hello/../../octo/other/info/refs"]
OUTSIDE_API = ["/user", "/graphql", "/repos/octo/other", "/repos/octo/hello/../other", "/repos/octo/hello/%2e%2e/other", "/repos/octo",
               "/repos/octo/hello/../../../user", "/repositories/1", "/search/code?q=repo:octo/hello", "/octo/hello", "/repos//octo/other",
               "/repos/octo/hello%2f..%2f..%2fuser", "/v1/../repos/octo/other", "/user/repos"]


def outcome(box, guest, host, path, method="GET", headers="", body=""):
    answers, seen = since(box, lambda: guest.request(host, path, method, headers, body, silence=1))
    return answers, [value for entry in seen if entry.get("event") in (None, "request") for value in values(entry, "authorization")]


@pytest.mark.parametrize("path", INSIDE)
def test_listed_repository(box, guest, path):
    answers, sent = outcome(box, guest, "github.com", path)
    assert sent == [BASIC], answers


@pytest.mark.parametrize("path", INSIDE_API)
def test_listed_repository_in_the_api(box, guest, path):
    answers, sent = outcome(box, guest, "api.github.com", path)
    assert sent == ["Bearer " + TOKEN] and answers[0].status in (200, 404), answers


@pytest.mark.parametrize("path", OUTSIDE)
def test_other_repositories(box, guest, path):
    answers, sent = outcome(box, guest, "github.com", path)
    assert sent == [], answers


@pytest.mark.parametrize("path", OUTSIDE_API)
def test_other_paths_of_the_api(box, guest, path):
    answers, sent = outcome(box, guest, "api.github.com", path)
    assert sent == [], answers


def test_without_a_credential_a_request_passes_as_it_is(box, guest):
    """A binding adds; it never closes: the sandbox's own header is left alone where the rule does not fit."""
    answers, sent = outcome(box, guest, "api.github.com", "/user", headers="Authorization: Bearer labtok_own\r\n")
    assert sent == ["Bearer labtok_own"] and answers[0].status == 200, answers
    answers, sent = outcome(box, guest, "api.github.com", "/graphql", "POST", "Content-Length: 2\r\n", "{}")
    assert sent == [] and answers[0].status == 401, answers


@pytest.mark.parametrize("path,status", [("/user", 200), ("/graphql", 404), ("/repos/octo/other", 200), ("/search/code?q=x", None)])
def test_without_repos_all_paths(box, whole, path, status):
    answers, sent = outcome(box, whole, "api.github.com", path)
    assert status is None or (sent == ["Bearer " + TOKEN] and answers[0].status == status), answers


def test_without_repos_graphql_and_any_repository(box, whole):
    answers, sent = outcome(box, whole, "api.github.com", "/graphql", "POST", "Content-Length: 18\r\n", '{"query":"viewer"}')
    assert sent == ["Bearer " + TOKEN] and "octo" in answers[0].body, answers
    assert outcome(box, whole, "github.com", "/octo/other/info/refs")[1] == [BASIC]


def test_mistral_api(box, guest):
    answers, sent = outcome(box, guest, "api.mistral.ai", "/v1/models")
    assert sent == ["Bearer " + MODEL] and "lab-small" in answers[0].body, answers


def test_the_log_says_which(box, guest):
    """The binding, where its value was added, and nothing where none was."""
    def credentials_of(host, path, count):
        before = len(guest.log(event="decision", protocol="tcp", name=host))
        guest.run(f"curl -sS https://{host}{path}")
        guest.run(f"curl -sS --http1.1 https://{host}{path}")
        lines = guest.log(event="decision", protocol="tcp", name=host)[before:]
        assert len(lines) == count and all(line["verdict"] == "allow" for line in lines), lines
        return [line.get("credential") for line in lines]
    assert credentials_of("github.com", "/octo/hello/info/refs", 2) == ["github"] * 2
    assert credentials_of("api.github.com", "/user", 2) == [None] * 2
    assert credentials_of("keys.example", "/headers", 2) == ["header:keys.example:Authorization"] * 2
    assert credentials_of("v4.example", "/", 2) == [None] * 2


def test_check_says_which(box):
    options = ["--allow", "github.com", "--allow", "api.github.com", "--allow", "v4.example", "--bind", "github:octo/hello=env:NONE"]
    for url, wanted in (("https://github.com/octo/hello", "github"), ("https://api.github.com/user", None), ("https://v4.example/", None)):
        result = box.raw("check", "--json", *options, url)
        assert result.code == 0 and json.loads(result.out)["credential"] == wanted, result
    assert "credential: github\n" in box.raw("check", *options, "https://github.com/octo/hello").out
    text = box.raw("check", *options, "https://api.github.com/user").out
    assert "credential: none for a GET of this path\n  bound to the host: github in octo/hello" in text, text


# ---- sources ----

def test_sources(box, guest, secrets):
    for host, header, wanted in (("keys.example", "authorization", "Bearer " + secrets.values["keys.example"]),
                                 ("h1.example", "x-key", "labtok_kept"), ("h2.example", "x-key", "k=labtok_23;")):
        done, seen = since(box, lambda: guest.run(f"curl -sS https://{host}/headers"), event="request")
        assert done["code"] == 0 and got(seen, header) == [[wanted]], (done, seen)


def test_conditions(box, secrets):
    """Path prefix, methods, Basic."""
    credentials = [{"host": "keys.example", "basic": "robot", "path": "/headers/v1",
                    "methods": ["GET", "POST"], "secret": secrets.put("conditions", "labtok_cond")}]
    coded = "Basic " + base64.b64encode(b"robot:labtok_cond").decode()
    with Guest(box, credentials) as guest:
        for method, path, fits in (("GET", "/headers/v1", True), ("POST", "/headers/v1/x", True), ("GET", "/headers/v10", False),
                                   ("PUT", "/headers/v1", False), ("GET", "/headers", False), ("GET", "/headers/v1/../x", False),
                                   ("GET", "/headers/v1/%2e%2e/x", False), ("GET", "/headers/v1?a=b", True), ("get", "/headers/v1", False),
                                   ("HEAD", "/headers/v1", True)):
            answers, sent = outcome(box, guest, "keys.example", path, method)
            assert sent == ([coded] if fits else []), (method, path, answers)


@pytest.mark.parametrize("host", ["keys.example", "h1.example"])
def test_rotation_of_a_file(box, secrets, host):
    """The next request has the new value; connections that carried the old one end."""
    with Guest(box, bearer(secrets, [host])) as guest:
        assert "200" in guest.do("hold", host=host, name="kept") and "101" in guest.do("hold", host=host, name="socket", upgrade=True)
        new = f"labtok_new_{os.urandom(4).hex()}"
        secrets.put(host, new)
        _, seen = since(box, lambda: guest.request(host), event="request")
        assert got(seen) == [["Bearer " + new]], seen
        for name in ("kept", "socket"):
            assert guest.do("held_end", name=name, seconds=4) != "silent", name


def test_rotation_in_the_store(box):
    state = {"PENSTOCK_STATE_FOLDER": os.path.join(box.home, "state")}
    assert box.raw("secret", "set", "turned", input=b"labtok_one", env=state).code == 0
    with Guest(box, [{"host": "keys.example", "header": "X-Key", "secret": "store:turned"}]) as guest:
        _, seen = since(box, lambda: guest.request("keys.example"), event="request")
        assert got(seen, "x-key") == [["labtok_one"]]
        assert box.raw("secret", "set", "turned", input=b"labtok_two", env=state).code == 0
        _, seen = since(box, lambda: guest.request("keys.example"), event="request")
        assert got(seen, "x-key") == [["labtok_two"]]
        assert "200" in guest.do("hold", host="keys.example", name="kept")
        assert box.raw("secret", "rm", "turned", env=state).code == 0
        answers, seen = since(box, lambda: guest.request("keys.example"), event="request")
        assert answers[0].status == 502 and not seen, answers
        assert guest.do("held_end", name="kept", seconds=4) != "silent"


# ---- without a secret ----

# What is not there at the start is refused then: the first three go once it has started.
WITHOUT = {"missing file": ("file:{folder}/nowhere", "labtok_was_there"), "empty file": ("file:{folder}/empty", ""),
           "two lines": ("file:{folder}/lines", "labtok_a\nX-Evil: b"), "carriage return": ("file:{folder}/cr", "labtok_a\rb"),
           "NUL": ("file:{folder}/nul", "labtok_\0b"), "too long": ("file:{folder}/long", "labtok_" + "a" * 40000),
           "a folder": ("file:{folder}/folder", "labtok_was_no_folder"), "not in the store": ("store:nosuch", None),
           "command that fails": ("cmd:echo labtok_half; exit 3", None), "command that says nothing": ("cmd:true", None),
           "command that says two lines": ("cmd:printf 'labtok_a\\nb\\n'", None)}

NO_HEADER = "it is empty, or has a line break, NUL or other control byte, which a header cannot hold"
REASONS = {"missing file": "it is not there", "empty file": NO_HEADER, "two lines": NO_HEADER, "carriage return": NO_HEADER, "NUL": NO_HEADER,
           "too long": "it is longer than 32768 bytes", "a folder": "it is not a regular file", "not in the store": "it is not there",
           "command that fails": "the command failed", "command that says nothing": NO_HEADER, "command that says two lines": NO_HEADER}


@pytest.fixture(scope="module")
def without(box):
    secrets = Secrets(box, "without")
    hosts = dict(zip(WITHOUT, ["keys.example", "h1.example", "h2.example", "noalpn.example", "tls12.example", "elsewhere.example",
                               "v4.example", "both.example", "github.com", "api.github.com", "api.mistral.ai"], strict=True))
    credentials = []
    for kind, (reference, text) in WITHOUT.items():
        if text is not None:
            secrets.put(reference.rpartition("/")[2], text)
        credentials.append({"host": hosts[kind], "header": "X-Key", "secret": reference.format(folder=secrets.folder)})
    box.lab.service("bound")
    state = {"PENSTOCK_STATE_FOLDER": os.path.join(box.home, "state")}
    assert box.raw("secret", "set", "nosuch", input=b"labtok_was_stored", env=state).code == 0
    with Guest(box, credentials) as started:
        os.remove(secrets.path("nowhere"))
        os.remove(secrets.path("folder"))
        os.mkdir(secrets.path("folder"))
        assert box.raw("secret", "rm", "nosuch", env=state).code == 0
        yield started, hosts


@pytest.mark.parametrize("kind", WITHOUT)
def test_no_secret_no_request(box, without, kind):
    guest, hosts = without
    before = len(box.lab.http_requests())
    for version in ("--http1.1", "--http2"):
        done, seen = since(box, lambda: guest.run(f"curl -sS -i {version} https://{hosts[kind]}/headers"))
        assert re.match(r"HTTP/(1\.1|2) 502 ", done["out"]) and "binding_failed" in done["out"], done
        assert '"hint":"the credential of this host cannot be had: ' + REASONS[kind] in done["out"], done
        assert not [entry for entry in seen if entry.get("event") in (None, "request")], seen
        assert "labtok" not in done["out"] + done["err"] + guest.stderr() + str(guest.log())
    assert not [entry for entry in box.lab.http_requests()[before:] if entry["host"] == hosts[kind]]
    for line in guest.log(name=hosts[kind], reason="binding_failed"):
        assert line["hint"].startswith("the credential of this host cannot be had: " + REASONS[kind]), line
    assert len(guest.log(name=hosts[kind], reason="binding_failed")) == 2, guest.log()
    reference = WITHOUT[kind][0].format(folder=Secrets(box, "without").folder)
    told = f"penstock: secret {reference.split(' ')[0].split(';')[0]}: {REASONS[kind]}"
    assert wait_for(lambda: told in guest.stderr()) and guest.stderr().count(told) == 1, (told, guest.stderr())


def test_command_without_end(box):
    with Guest(box, [{"host": "keys.example", "header": "X-Key", "secret": "cmd:sleep 60; echo labtok_late"}]) as guest:
        started = time.monotonic()
        (answer,), seen = since(box, lambda: guest.request("keys.example", silence=20), event="request")
        assert answer.status == 502 and not seen and 5 < time.monotonic() - started < 16, answer
        started = time.monotonic()
        (answer,) = guest.request("keys.example", silence=20)
        assert answer.status == 502 and time.monotonic() - started < 2, "the failure is remembered for a while"


def test_command_is_run_once_for_many_requests(box):
    secrets = Secrets(box, "once")
    command = f"cmd:echo x >>{secrets.path('count')}; sleep 0.3; echo labtok_counted"
    with Guest(box, [{"host": "keys.example", "header": "X-Key", "secret": command}]) as guest:
        answers = guest.do("h2", host="keys.example", requests=[{}] * 20)
        assert [answer["status"] for answer in answers] == [200] * 20
        with open(secrets.path("count"), encoding="utf-8") as file:
            assert file.read() == "x\n"


def test_variable_that_is_not_set(box):
    result = box.raw(*box.arguments("--allow github.com --allow api.github.com --bind github", ["true"]))
    assert result.code == 125 and "GITHUB_TOKEN" in result.err and result.err.count("\n") == 1, result


MISSING = [("file:~/none", "secret file:~/none: there is no such file; write the secret into it"),
           ("file:/none", "secret file:/none: there is no such file"), ("file:/mnt", "secret file:/mnt: it is not a regular file"),
           ("store:nosuch", "secret store:nosuch: it is not in the store; put it there with `penstock secret set nosuch`"),
           ("env:NONE", "secret env:NONE: the variable is not set; export it")]


@pytest.mark.parametrize("secret,message", MISSING, ids=[secret for secret, _ in MISSING])
def test_secret_that_is_not_there(box, secret, message):
    """Said before anything runs, with what to do; `check` warns, as the policy is valid elsewhere."""
    options = ["--allow", "keys.example", "--bind", f"header:keys.example:X={secret}"]
    result = box.run(options, "echo", "it ran")
    assert result.code == 125 and message in result.err and result.err.count("\n") == 1 and not result.out, result
    result = box.raw("check", *options)
    assert result.code == 0 and message in result.err and result.err.count("\n") == 1, result


def test_secret_below_the_home_folder(box):
    path = os.path.join(box.home, "in-home")
    with open(path, "w", encoding="utf-8") as file:
        file.write("labtok_home\n")
    box.give(path)
    box.lab.service("bound")
    options = ["--allow", "keys.example", "--bind", "header:keys.example:X-Key=file:~/in-home"]
    result, seen = since(box, lambda: box.run(options, "sh", "-c", "curl -sS https://keys.example/headers; cat ~/in-home"), event="request")
    assert got(seen, "x-key") == [["labtok_home"]] and "labtok_home" not in result.out.partition("}")[2] and "No such file" in result.err, result


# ---- building ----

REFUSED = {
    "host that the policy does not reach": ("--allow github.com --bind header:keys.example:X=env:A", "keys.example"),
    "reached by addresses only": ("--allow-cidr 198.51.100.0/24 --bind header:keys.example:X=env:A", "keys.example"),
    "github without its API": ("--allow github.com --bind github=env:A", "api.github.com"),
    "no network": ("--network none --bind mistral_api=env:A", "api.mistral.ai"),
    "twice the same header": ("--allow keys.example --bind header:keys.example:X-Key=env:A --bind header:KEYS.example:x-kEY=env:A", "x-k"),
    "github and its header": ("--allow github.com --allow api.github.com --bind github=env:A --bind header:github.com:authorization=env:A",
                              "github.com"),
    "repository without an owner": ("--allow github.com --allow api.github.com --bind github:hello=env:A", "hello"),
    "repository with a path": ("--allow github.com --allow api.github.com --bind github:a/b/c=env:A", "a/b/c"),
    "repository of odd letters": ("--allow github.com --allow api.github.com --bind github:a/b%2fc=env:A", "a/b%2fc"),
    "host with a port": ("--allow keys.example --bind header:keys.example/x:X=env:A", "keys.example"),
    "wildcard": ("--allow '*.example' --bind 'header:*.example:X=env:A'", "*.example"),
    "header that is none": ("--allow keys.example --bind 'header:keys.example:X Y=env:A'", "X Y"),
    "header of the connection": ("--allow keys.example --bind header:keys.example:Content-Length=env:A", "Content-Length"),
    "host header": ("--allow keys.example --bind header:keys.example:Host=env:A", "Host"),
    "unknown source": ("--allow keys.example --bind header:keys.example:X=vault:A", "vault"),
    "a value instead of a source": ("--allow keys.example --bind header:keys.example:X=labtok_on_the_command_line", ""),
    "unknown kind": ("--allow keys.example --bind gitlab=env:A", "gitlab"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_wrong_bindings(box, kind):
    """Refused by check and by run, in one line that quotes what is wrong, before any secret is read."""
    options, text = REFUSED[kind]
    for result in (box.run(options, "true", env={"A": "labtok_never"}), box.raw("check", *box.arguments(options, [])[3:-1], env={"A": "labtok_never"})):
        assert result.code in (125, 2) and text.lower() in result.err.lower() and result.err.count("\n") == 1, result
        assert "labtok_never" not in result.err


@pytest.mark.parametrize("value", ["a\r\nb: {secret}", "a\nb", "a\0b", "Bearer {token}{secret", "{secret"])
def test_wrong_templates(box, value):
    policy = {"allow": [{"host": "keys.example"}], "credentials": [{"host": "keys.example", "header": "X", "value": value, "secret": "env:A"}]}
    result = box.run(policy, "true", env={"A": "x"})
    assert result.code == 125 and result.err.count("\n") == 1, result


def test_empty_list_of_repositories(box):
    policy = {"allow": [{"host": "github.com"}, {"host": "api.github.com"}], "credentials": [{**GITHUB, "repos": []}]}
    result = box.run(policy, "true", env=ENV)
    assert result.code == 125 and "repos" in result.err, result


def test_refused_before_a_secret_is_read(box):
    marker = os.path.join(box.home, "was-read")
    result = box.run(["--allow", "github.com", "--bind", f"header:keys.example:X=cmd:touch {marker}; echo x"], "true")
    assert result.code == 125 and not os.path.exists(marker), result


@pytest.mark.parametrize("options,message", [
    ("--type mistral --network none --bind github=env:A", "MistralSandbox: agents.GitHubBinding needs network access to github.com, "
     "api.github.com, which Network.none() blocks; pass network=Network.all()"),
    ("--type bashkit --allow github.com --allow api.github.com --bind github=env:A", "BashkitSandbox does not support agents.GitHubBinding; pass header_bindings=()"),
    ("--type docker --network all --bind header:keys.example:X=env:A", "LocalDockerSandbox does not support agents.HeaderBinding; pass header_bindings=()"),
    ("--type process --network none --bind mistral_api=env:A", "ProcessSandbox: agents.MistralApiBinding needs network access to "
     "api.mistral.ai, which Network.none() blocks; pass network=Network.all() or add the hosts"),
    ("--type process --allow github.com --bind github=env:A", "ProcessSandbox: agents.GitHubBinding needs network access to api.github.com, "
     "which Network.allow() blocks; pass network=Network.all() or add the hosts"),
])
def test_messages_of_types(box, options, message):
    result = box.raw("check", *options.split(), env={"A": "x"})
    assert result.code == 2 and message in result.err, result


def test_without_a_binding_nothing_changes(box):
    """No CA in the bundle, no variables, no vault."""
    script = "cat /etc/ssl/certs/ca-certificates.crt | wc -l; env"
    plain = box.run("--allow keys.example", "sh", "-c", script)
    with open("/etc/ssl/certs/ca-certificates.crt", encoding="utf-8") as file:
        assert int(plain.out.split()[0]) == len(file.readlines()), plain
    for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO"):
        assert name + "=" not in plain.out, plain


def test_variables_of_secrets_are_taken_away(guest, whole):
    for one in (guest, whole):
        environment = one.do("environment")
        assert "GITHUB_TOKEN" not in environment and not any("labtok" in value for value in environment.values()), environment


# ---- when something dies ----

def wait_for(function, seconds=10):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if (found := function()):
            return found
        time.sleep(0.1)
    raise AssertionError(f"not within {seconds} s")


@pytest.mark.parametrize("name,which", [("vault", 0), ("vault", 1), ("gate", 0)], ids=["vault", "its helper", "gate"])
def test_death(box, secrets, name, which):
    """Never without the credential: until it is back requests fail, then they work again. What was open ends with its gate."""
    with Guest(box, bearer(secrets, ["keys.example"])) as guest:
        assert guest.request("keys.example")[0].status == 200
        pid = role(guest, name)[which]
        os.kill(pid, signal.SIGKILL)
        wanted = [["Bearer " + secrets.values["keys.example"]]]

        def attempt():
            answer, seen = since(box, lambda: guest.ask("h1", host="keys.example", silence=3,
                                                        text="GET /headers HTTP/1.1\r\nHost: keys.example\r\nConnection: close\r\n\r\n"), event="request")
            assert got(seen) in ([], wanted), seen
            return bool(seen)
        wait_for(attempt)
        assert pid not in role(guest, name)


def test_frozen_vault(box, secrets):
    """A vault that does not answer fails the request in time."""
    with Guest(box, bearer(secrets, ["keys.example"])) as guest:
        assert guest.request("keys.example")[0].status == 200
        pids = role(guest, "vault")
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            answers, seen = since(box, lambda: guest.request("keys.example", silence=25), event="request")
            assert not seen and (not answers or answers[0].status == 502), answers
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)


# ---- answers that give it back ----

def test_scrub(box, secrets):
    credentials = bearer(secrets, ["keys.example", "h1.example", "h2.example"], scrub=True)
    with Guest(box, credentials) as guest:
        for version in ("--http1.1", "--http2"):
            for host in ("h1.example", "h2.example"):
                value = secrets.values[host]
                done = guest.run(f"curl -sS -i {version} https://{host}/headers https://{host}/cookies")
                assert done["code"] == 0 and value not in done["out"] and "two" in done["out"], done
                assert "uthorization" in done["out"], done


# ---- what the sandbox writes must not decide outside of it ----

def test_commands_run_nothing_of_the_sandbox(box):
    """Not by the configuration in its working directory, nor by a folder of PATH that it can write."""
    box.lab.service("bound")
    marker, folder = os.path.join(box.home, "ran-outside"), box.path("bin")
    os.makedirs(folder, exist_ok=True)
    box.give(folder)
    fill = "cmd:printf 'protocol=https\\nhost=github.com\\n\\n' | git credential fill | sed -n 's/^password=//p'"
    credentials = [{"host": "keys.example", "header": "X-Key", "secret": fill},
                   {"host": "h1.example", "header": "X-Key", "secret": "cmd:give-token"},
                   {"host": "h2.example", "header": "X-Key", "secret": "cmd:printf 'labtok:%s' \"$(pwd)\""}]
    with Guest(box, credentials, {"PATH": f"{folder}:bin:.:{os.environ['PATH']}"}) as guest:
        tool = f"echo '#!/bin/sh\nid >>{marker}; echo stolen' >bin/give-token; chmod +x bin/give-token; cp bin/give-token ."
        done = guest.run("sh", "-c", f"{tool}; git init -q .; git config credential.helper '!f(){{ id >>{marker}; echo username=x; echo password=x; }};f'")
        assert done["code"] == 0, done
        for host in ("keys.example", "h1.example"):
            answers, seen = since(box, lambda host=host: guest.request(host), event="request")
            assert answers[0].status == 502 and not seen, (host, answers, seen)
        _, seen = since(box, lambda: guest.request("h2.example"), event="request")
        assert got(seen, "x-key") == [["labtok:/"]], seen
    assert not os.path.exists(marker)


def test_secrets_that_the_sandbox_could_choose(box):
    """Refused before anything runs."""
    link, folder = os.path.join(box.home, "link"), os.path.join(box.home, "bin")
    os.makedirs(folder, exist_ok=True)
    for path, target in ((link, box.project), (os.path.join(folder, "tool"), box.path("tool")), (os.path.join(box.home, "loose"), box.path("none"))):
        if not os.path.lexists(path):
            os.symlink(target, path)
    box.file("tool", "#!/bin/sh\n", 0o755)
    second = os.path.join(box.home, "second")
    if box.lab.starter == "root":  # who cannot mount has none
        os.makedirs(second, exist_ok=True)
        subprocess.run(["mount", "--bind", box.project, second], check=True)
    for secret, more in ((f"cmd:{second if box.lab.starter == 'root' else box.project}/tool", []), (f"cmd:{box.project}/tool", []), ("cmd:./tool", []), ("cmd:true | tool", []), ("cmd:sh ~/link/later", []),
                         ("cmd:true", ["--write", box.home]), (f"file:{link}/later", []), (f"file:{box.home}/loose", []), ("file:later", [])):
        result = box.run(["--allow", "keys.example", "--bind", f"header:keys.example:X={secret}", *more], "true", env={"PATH": f"{folder}:/usr/bin:/bin"})
        assert result.code == 125 and result.err.count("\n") == 1 and f"secret {secret}"[:10] in result.err, (secret, result)
    if box.lab.starter == "root":
        subprocess.run(["umount", second], check=True)


def test_variables_of_a_bound_secret(box, secrets):
    """Whether or not it comes from there: they are likely to hold it."""
    box.lab.service("bound")
    credentials = [{"binding": "github", "secret": secrets.put("github", TOKEN)},
                   {"host": "keys.example", "header": "X-Key", "secret": "cmd:printf %s \"$NAMED\""}]
    policy = {"allow": [{"host": host} for host in ("github.com", "api.github.com", "keys.example")], "credentials": credentials}
    env = {"GITHUB_TOKEN": TOKEN, "GH_TOKEN": "labtok_another", "NAMED": "labtok_named", "OTHER": "kept"}
    result, seen = since(box, lambda: box.run(policy, "sh", "-c", "env; curl -sS -o /dev/null https://keys.example/headers", env=env), event="request")
    assert result.code == 0 and "labtok" not in result.out and "OTHER=kept" in result.out, result
    assert got(seen, "x-key") == [["labtok_named"]], seen


def test_files_of_the_next_run(box):
    """A policy that was standard input cannot be read again nor written; the file of --upstream-ca cannot be written."""
    policy = os.path.join(box.home, "input.json")
    with open(policy, "w", encoding="utf-8") as file:
        file.write('{"dialect": "e2b", "network": {"allowOut": ["keys.example"], "denyOut": ["0.0.0.0/0"], "rules": {"keys.example": '
                   '[{"transform": {"headers": {"X-Key": "labtok_inline"}}}]}}}')
    box.file("more-roots.pem", open(box.lab.ca, encoding="utf-8").read())
    script = ("import os\nos.path.samefile('/proc/self/fd/0', '/dev/null') or print('input', os.lseek(0, 0, 0), os.read(0, 9999))\n"
              "for change in (lambda: open('more-roots.pem', 'a'), lambda: os.rename('more-roots.pem', 'x'), lambda: os.remove('more-roots.pem')):\n"
              "    try:\n        change()\n        print('changed')\n    except OSError:\n        pass\nprint('end')")
    with open(policy, encoding="utf-8") as file:
        result = box.raw(*box.arguments(["--policy", "-", "--upstream-ca", "more-roots.pem"], ["/usr/bin/python3", "-c", script]), stdin=file)
    assert result.code == 0 and result.out == "end\n", result


def test_without_scrub_it_is_given_back(guest, secrets):
    """A documented limit."""
    assert secrets.values["keys.example"] in guest.request("keys.example")[0].body
