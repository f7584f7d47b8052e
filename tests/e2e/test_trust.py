# SPDX-License-Identifier: Apache-2.0
"""What a binding makes of a sandbox: who trusts the CA there, which variables and files it has, and which it never sees.
And the life of the vault under a run. Programs that use credentials are in test_credential_clients.py."""
import contextlib
import os
import re
import shutil
import signal
import subprocess
import time

import pytest

from conftest import find_process
from guest import Guest

TOKEN = "trusttok_" + "0123456789" * 3
PATH = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
BOUND = ["--allow", "h1.example", "--allow", "v4.example", "--bind", "header:h1.example:Authorization:Bearer {secret}=env:TRUST_TOKEN"]
CERTIFICATE = "-----BEGIN CERTIFICATE-----"


def run(box, options, script, env=(), **more):
    full = {"PENSTOCK_STATE_FOLDER": os.path.join(box.home, "state"), "TRUST_TOKEN": TOKEN, "PATH": PATH, **dict(env)}
    return box.run(options, "sh", "-c", script, env=full, **more)


# ---- trust ----

# By what the distribution has alone: no variable says anything.
PLAIN = {
    "curl, a file": "curl -sS https://h1.example/",
    "wget, GnuTLS": "wget -nv -O- https://h1.example/",
    "openssl, a folder": "echo | openssl s_client -verify_return_error -connect h1.example:443 -servername h1.example 2>&1",
    "Python, both": "/usr/bin/python3 -c 'import urllib.request as u; print(u.urlopen(\"https://h1.example/\").read())'",
    "git": "git ls-remote https://h1.example/x 2>&1",
}
SEEN = {"openssl, a folder": "issuer=O = Penstock", "git": "not valid: is this a git repository"}


def test_programs_without_variables(box):
    script = "\n".join(f"echo '== {name}'; env -i PATH=$PATH {command.replace('$', chr(92) + '$')}" for name, command in PLAIN.items())
    result = run(box, BOUND, script)
    parts = dict(re.findall(r"== (.*)\n((?:(?!== ).*\n?)*)", result.out))
    for name in PLAIN:
        assert SEEN.get(name, "lab h1.example") in parts[name], (name, parts[name], result)


def test_everybody_else_is_trusted_as_before(box):
    """Hosts without a binding show the lab's own certificate, which is in the same file and folder."""
    result = run(box, BOUND, "curl -sSv https://v4.example/ 2>&1 | grep -e issuer: -e ^lab; env -i PATH=$PATH openssl verify /etc/ssl/certs/*.0")
    assert "issuer: CN=Penstock lab CA" in result.out and "lab v4.example" in result.out, result
    assert result.out.count(": OK") == 2, result


def test_files(box):
    """Each bundle is what it was and one certificate more, read-only; so is Java's."""
    script = ("cat /etc/ssl/certs/ca-certificates.crt; echo @@; cat /run/penstock/ca.pem; echo @@; cat /run/penstock/ca-bundle.pem; "
              "echo @@; for f in /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/new /run/penstock/ca.pem; do "
              "(echo x >>$f) 2>/dev/null && echo wrote $f; done; "
              "keytool -list -keystore /usr/lib/jvm/default-java/lib/security/cacerts -storepass changeit 2>&1")
    result = run(box, BOUND, script)
    system, ours, bundle, rest = result.out.split("@@\n")
    with open(box.lab.ca, encoding="utf-8") as file:
        body = re.search(CERTIFICATE + r"\n([^-]*)", file.read())[1].strip()
    assert body.replace("\n", "") in system.replace("\n", "") and ours in system and system == bundle, result
    assert ours.count(CERTIFICATE) == 1 and system.count(CERTIFICATE) >= 2
    assert "wrote" not in rest, rest
    assert "penstock, " in rest and "contains" in rest and "rror" not in rest, rest


def test_variables_that_are_set_keep_their_meaning(box):
    """Their files' certificates are in ours, and nothing else of them."""
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", box.path("own.key"),
                    "-out", box.path("own.crt"), "-subj", "/CN=own"], check=True, stderr=subprocess.DEVNULL)
    with open(box.path("own.crt"), encoding="utf-8") as file, open(box.path("own.key"), encoding="utf-8") as key:
        own, combined = file.read(), file.read() + key.read()
    box.file("own.pem", own + combined)
    result = run(box, BOUND, "cat $REQUESTS_CA_BUNDLE; echo @@; cat $NODE_EXTRA_CA_CERTS; echo @@; env",
                 env={"REQUESTS_CA_BUNDLE": "own.pem", "NODE_EXTRA_CA_CERTS": ""})
    requests, node, env = result.out.split("@@\n")
    assert own in requests and requests.count(CERTIFICATE) == 2 and "PRIVATE" not in requests, result
    assert node.count(CERTIFICATE) == 1, result
    assert "SSL_CERT_FILE=/run/penstock/ca-bundle.pem\n" in env and env.count("REQUESTS_CA_BUNDLE=") == 1, result


def test_nothing_without_a_binding(box):
    result = run(box, ["--allow", "h1.example"], "ls /run; grep -c -e /run/penstock -e /etc/ssl /proc/mounts; "
                 "stat -c %i /etc/ssl/certs/ca-certificates.crt; env", env={"TRUST_TOKEN": "kept"})
    inode = os.stat("/etc/ssl/certs/ca-certificates.crt").st_ino
    mounts = int(subprocess.run(["grep", "-c", "/etc/ssl", "/proc/mounts"], stdout=subprocess.PIPE, check=False).stdout)
    assert result.out.startswith(f"lock\n{mounts}\n{inode}\n"), result
    assert "SSL_CERT_FILE" not in result.out and "TRUST_TOKEN=kept" in result.out, result


# ---- variables ----

def test_placeholder(box):
    policy = {"version": 1, "allow": [{"host": "h1.example"}],
              "credentials": [{"host": "h1.example", "header": "Authorization", "value": "Bearer {secret}", "secret": "env:GITHUB_TOKEN", "variable": "GITHUB_TOKEN"}]}
    options = ["--policy", box.policy_file(policy)]
    result = run(box, options, "echo $GITHUB_TOKEN; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline | tr '\\0' '\\n' | grep -c trusttok[_]01",
                 env={"GITHUB_TOKEN": TOKEN, "GH_TOKEN": TOKEN, "TRUST_TOKEN": ""})
    assert re.match(r"ghp_PenstockPlaceholder0+\n0\n", result.out), result
    assert "penstock: the variable GH_TOKEN holds a secret that is bound, too: the command does not get it\n" in result.err, result
    assert TOKEN not in result.err, result


def test_missing_variable(box):
    result = run(box, [*BOUND[:4], "--bind", "header:h1.example:A=env:NO_SUCH"], "true")
    assert result.code == 125 and "secret env:NO_SUCH: the variable is not set; export it, or name another secret" in result.err, result


# ---- what a sandbox never sees ----

@pytest.fixture
def kept(box):
    """A state folder with a secret in it, in a folder that is shared."""
    folder = box.path(f"kept-{box.kind}")
    state = os.path.join(folder, "deep", "state")
    os.makedirs(os.path.dirname(state), exist_ok=True)
    for path in (folder, os.path.dirname(state)):
        box.give(path)
    stored = box.raw("secret", "set", "kept", env={"PENSTOCK_STATE_FOLDER": state}, input=TOKEN.encode())
    assert stored.code == 0, stored
    yield folder, state
    shutil.rmtree(folder)


STORE = ["--allow", "h1.example", "--bind", "header:h1.example:Authorization:Bearer {secret}=store:kept"]


def test_state_folder_is_empty_inside(box, kept):
    """In the working directory, by a symbolic link, by a hard link to one of its files, and it cannot be put aside."""
    folder, state = kept
    os.symlink(state, os.path.join(folder, "link"))
    os.link(os.path.join(state, "secrets", "kept"), os.path.join(folder, "hard"))
    script = (f"cd {folder}; ls -A deep/state link/; (cat hard | wc -c) 2>/dev/null; mv deep/state deep/other 2>&1; mv deep other 2>&1; "
              "mkdir deep/state/x 2>&1; curl -sS https://h1.example/; find / -name .key 2>/dev/null")
    for policy in (STORE, STORE[:2]):
        result = run(box, policy, script, env={"PENSTOCK_STATE_FOLDER": state})
        # hidden with a binding, and without one too
        assert "deep/state:\n" in result.out and "\n0\n" in result.out and ".key" not in result.out and "kept\n" not in result.out, result
        assert result.out.count("cannot move") == 2 and "cannot create" in result.out, result
        assert policy == STORE[:2] or "lab h1.example" in result.out, result
    assert sorted(os.listdir(state)) == ["ca", "secrets"]


def test_mounts_of_what_is_kept(box, kept):
    """A bind mount of the state folder, of one file of it, of a secret's folder and of a policy's: refused, each by its name."""
    if os.environ.get("PENSTOCK_LAB") != "root" and box.lab.starter != "root":
        return  # who cannot mount has none
    folder, state = kept
    outside, inside, file = os.path.join(box.home, "outside"), box.path(f"inside-{box.kind}"), box.path(f"inside-file-{box.kind}")
    for path in (outside, inside):
        os.makedirs(path)
        box.give(path)
    for path, text in ((file, ""), (os.path.join(outside, "token"), TOKEN), (os.path.join(outside, "policy"), '{"version": 1, "base": "deny"}')):
        with open(path, "w", encoding="utf-8") as out:
            out.write(text)
        os.chmod(path, 0o600)
        box.give(path)
    secret = ["--allow", "h1.example", "--bind", f"header:h1.example:Authorization=file:{outside}/token"]
    policy = ["--policy", f"{outside}/policy"]
    cases = ((f"{state}/secrets", inside, STORE, f'see "{state}" as "{inside}"'),
             (f"{state}/secrets/kept", file, STORE, f'see "{state}" as "{file}"'),
             (outside, inside, secret, f'see "{outside}/token" as "{inside}/token"'),
             (outside, inside, policy, f'change "{outside}/policy" as "{inside}/policy"'))
    for source, target, options, fault in cases:
        subprocess.run(["mount", "--bind", source, target], check=True)
        try:
            result = run(box, options, "true", env={"PENSTOCK_STATE_FOLDER": state})
            assert result.code == 125 and f'penstock: the mount on "{target}" would let the sandbox {fault}; unmount it' in result.err, result
            assert result.err.count("\n") == 1, result
        finally:
            subprocess.run(["umount", target], check=True)
    result = run(box, [*STORE, "--read", os.path.join(state, "secrets")], "true", env={"PENSTOCK_STATE_FOLDER": state})
    assert result.code == 125 and "penstock keeps keys, secrets or its log there" in result.err, result
    for path in (inside, outside):
        shutil.rmtree(path)
    os.unlink(file)


def test_state_folder_cannot_be_shared(box, kept):
    folder, state = kept
    for option, path in (("--read", state), ("--read", os.path.join(state, "secrets")), ("--write", os.path.join(state, "secrets", "kept"))):
        result = run(box, [*STORE, option, path], "true", env={"PENSTOCK_STATE_FOLDER": state})
        assert result.code == 125 and f'"{path}" would be shared with the sandbox, but penstock keeps keys' in result.err, result


def test_state_folder_is_not_for_the_sandbox_to_make(box):
    """One that is not there yet, where the command could make it, with keys of its own."""
    state = box.path(f"later-{box.kind}")
    result = run(box, ["--network", "none"], f"mkdir {state} 2>&1; ls -A {state}; echo x >{state}/ca 2>&1", env={"PENSTOCK_STATE_FOLDER": state})
    assert "File exists" in result.out and os.listdir(state) == [], result
    os.rmdir(state)


def test_files_with_secrets(box):
    """Neither where the command sees them, nor by a link that it could change."""
    inside, outside, link = box.path("token"), os.path.join(box.home, "token"), box.path("link-to-token")
    for path in (inside, outside):
        with open(path, "w", encoding="utf-8") as file:
            file.write(TOKEN)
        os.chmod(path, 0o600)
        box.give(path)
    os.symlink(outside, link)
    template = "header:h1.example:Authorization:Bearer {{secret}}=file:{}"
    for path in (inside, "token", link, "./link-to-token"):
        result = run(box, ["--allow", "h1.example", "--bind", template.format(path)], "true")
        assert result.code == 125 and f"secret file:{path}: the sandbox would see" in result.err and "penstock secret set" in result.err, result
    script = f"curl -sS https://h1.example/; cat {outside} 2>&1; find / -samefile {outside} 2>&1"
    result = run(box, ["--allow", "h1.example", "--bind", template.format(outside)], script)
    assert result.code != 0 and "lab h1.example" in result.out and TOKEN not in result.out, result
    result = run(box, ["--allow", "h1.example", "--bind", template.format(outside), "--read", outside], "true")
    assert result.code == 125 and "would see" in result.err, result
    for path in (inside, outside, link):
        os.unlink(path)


def test_the_log_is_empty_inside(box):
    log = box.path("decisions.jsonl")
    result = box.raw("run", "--log", log, *BOUND, "--", "sh", "-c", "curl -sS https://h1.example/ >/dev/null; (cat decisions.jsonl | wc -c) 2>/dev/null; (echo x >decisions.jsonl) 2>&1",
                     env={"PENSTOCK_STATE_FOLDER": os.path.join(box.home, "state"), "TRUST_TOKEN": TOKEN})
    assert result.out.startswith("0\n"), result
    with open(log, encoding="utf-8") as file:
        text = file.read()
    assert "h1.example" in text and TOKEN not in text
    os.unlink(log)


# ---- the vault's life ----

@pytest.fixture
def vault_token(box):
    path = os.path.join(box.home, "vault-token")
    with open(path, "w", encoding="utf-8") as file:
        file.write(TOKEN)
    os.chmod(path, 0o600)
    box.give(path)
    return path


def code_of(guest):
    return guest.run("curl", "-sS", "-o", "/dev/null", "-w", "%{http_code}", "https://h1.example/")["out"]


def test_death_of_vault_and_gate(box, vault_token):
    """At the same moment."""
    with Guest(box, [{"host": "h1.example", "header": "X-Token", "secret": f"file:{vault_token}"}]) as guest:
        assert code_of(guest) == "200", guest.stderr()
        for pid in find_process("@vault") + find_process("@gate"):
            with contextlib.suppress(ProcessLookupError):  # the vault's helper ends with it
                os.kill(pid, signal.SIGKILL)
        end, code = time.monotonic() + 20, ""
        while code != "200" and time.monotonic() < end:
            code = code_of(guest)
        assert code == "200", guest.stderr()


def test_death_of_the_vault(box, vault_token):
    """Killed, or its helper: another one is started, and requests have their credential; beyond the budget they fail, and
    everything else goes on."""
    credentials = [{"host": "h1.example", "header": "X-Token", "secret": f"file:{vault_token}"}]
    with Guest(box, credentials) as guest:
        for restarts in range(1, 20):
            code = code_of(guest)
            if code != "200":
                break
            before = set(find_process("@vault"))
            os.kill(max(before) if restarts == 1 else min(before), signal.SIGKILL)
            end = time.monotonic() + 20
            while guest.stderr().count("the vault process of the sandbox died") < restarts and time.monotonic() < end:
                time.sleep(0.05)
            time.sleep(0.5)
        assert restarts == 7 and code == "502", (restarts, code, guest.stderr())
        assert guest.stderr().count("the vault process of the sandbox died; starting it again") == 5, guest.stderr()
        assert "the vault process of the sandbox died; the sandbox's requests get no credentials from here" in guest.stderr()
        other = guest.run("curl", "-sS", "https://v4.example/")
        assert "lab v4.example" in other["out"], other
