# SPDX-License-Identifier: Apache-2.0
"""The secret's bytes are nowhere where the sandbox, its root, or another user of the machine could read them."""
import base64
import glob
import json
import os
import subprocess

import pytest

from guest import Guest, Secrets, bearer, descendants

SCAN = r"""
import base64, glob, json, os, re, sys, stat
secret = bytes(int(word) ^ 0x5a for word in sys.argv[1].split(","))
forms = {secret, base64.b64encode(secret).rstrip(b"=")}
for user in (b"x-access-token:", b"a", b"ab"):
    coded = base64.b64encode(user + secret)
    forms.add(coded[len(user) * 4 // 3 + 2:-4])
forms.add(secret.hex().encode())
forms.add(secret[::-1])
found, read = [], 0
def look(path, data):
    global read
    read += 1
    if any(form in data for form in forms):
        found.append(path)
def whole(path, limit=64 << 20):
    try:
        with open(path, "rb") as file:
            return file.read(limit)
    except OSError:
        return b""
look("environment", json.dumps(dict(os.environ)).encode())
for pid in filter(str.isdigit, os.listdir("/proc")):
    for name in ("environ", "cmdline", "maps", "status", "stat", "mountinfo", "auxv", "comm", "limits"):
        look(f"/proc/{pid}/{name}", whole(f"/proc/{pid}/{name}"))
    for fd in glob.glob(f"/proc/{pid}/fd/*"):
        try:
            if stat.S_ISREG(os.stat(fd).st_mode):
                look(fd, whole(fd))
        except OSError:
            pass
    if int(pid) == os.getpid():
        continue  # it has the secret in its own memory, to look for it
    try:
        areas = [line.split()[0].split("-") for line in open(f"/proc/{pid}/maps") if " r" in line[:40] or line.split()[1].startswith("r")]
        with open(f"/proc/{pid}/mem", "rb", 0) as memory:
            for start, end in areas:
                try:
                    memory.seek(int(start, 16))
                    look(f"/proc/{pid}/mem", memory.read(min(int(end, 16) - int(start, 16), 256 << 20)))
                except (OSError, ValueError, OverflowError):
                    pass
    except OSError:
        pass
mounts = {line.split()[1] for line in open("/proc/self/mounts")}
skip = ("/proc", "/sys", "/usr", "/lib", "/lib64", "/bin", "/sbin")
for top, folders, files in os.walk("/"):
    folders[:] = [name for name in folders if os.path.join(top, name) not in skip]
    for name in files:
        path = os.path.join(top, name)
        try:
            mode = os.lstat(path).st_mode
        except OSError:
            continue
        if stat.S_ISREG(mode):
            look(path, whole(path))
for path in glob.glob("/sys/kernel/security/**", recursive=True)[:200]:
    look(path, whole(path, 1 << 16))
print(json.dumps({"found": found, "read": read, "uid": os.getuid(), "processes": [pid for pid in os.listdir("/proc") if pid.isdigit()]}))
"""


def hidden(secret):
    """The secret, so that the program that looks for it is not what is found."""
    return ",".join(str(byte ^ 0x5a) for byte in secret.encode())


@pytest.fixture(scope="module")
def busy(box):
    """A sandbox whose credentials are in use, by all ways there are; with what its requests said to it."""
    box.lab.service("bound")
    secrets = Secrets(box, "scan")
    value, variable = "labtok_" + os.urandom(12).hex(), "labtok_" + os.urandom(12).hex()
    credentials = [{"host": host, "header": "Authorization", "value": "Bearer {secret}", "secret": secrets.put(host, value)} for host in ("keys.example", "h2.example")]
    credentials += [{"host": "expired.example", "header": "X-Key", "secret": secrets.put("expired", value)},
                    {"binding": "github", "secret": "env:THE_TOKEN"}]
    with Guest(box, credentials, {"THE_TOKEN": variable}) as guest:
        said = [guest.run("sh", "-c", command) for command in (
            "curl -sSv https://keys.example/hints", "curl -sSv --http2 https://h2.example/hints", "curl -sSv https://expired.example/",
            "git ls-remote https://github.com/octo/hello", "curl -sSv https://api.github.com/user",
            "GIT_CURL_VERBOSE=1 GIT_TRACE=1 git ls-remote https://github.com/octo/hello 2>&1",
            "ulimit -c unlimited; cd /tmp; sh -c 'kill -SEGV $$'; ls",
            "curl -sSv -H 'Authorization: {secret}' https://keys.example/rude/garbage --http1.1")]
        assert guest.do("websocket", host="keys.example") == [True, 0x88]
        assert "101" in guest.do("hold", host="keys.example", name="open", upgrade=True)
        yield guest, [value, variable], said


def forms(secret):
    data = secret.encode()
    return [secret, base64.b64encode(data).decode().rstrip("="), data.hex(),
            base64.b64encode(b"x-access-token:" + data).decode()[21:-4]]


def clean(text, secrets):
    for secret in secrets:
        for form in forms(secret):
            assert form not in text


def test_it_was_used(box, busy):
    """Else there is nothing to find."""
    _, secrets, said = busy
    text = json.dumps(box.lab.credentials())
    assert secrets[0] in text and base64.b64encode(b"x-access-token:" + secrets[1].encode()).decode() in text, said


def test_what_programs_were_told(busy):
    guest, secrets, said = busy
    clean(json.dumps(said), secrets)


@pytest.mark.parametrize("which", [0, 1])
def test_sandbox(busy, which):
    guest, secrets, _ = busy
    answer = guest.do("run", argv=["/usr/bin/python3", "-B", "-c", SCAN, hidden(secrets[which])])
    assert answer["code"] == 0, answer
    result = json.loads(answer["out"])
    assert result["found"] == [] and result["read"] > 50, result


def test_root_of_the_sandbox(box, busy):
    """Somebody in the sandbox's own user and mount namespaces with all capabilities there."""
    guest, secrets, _ = busy
    inner = [pid for pid, line in descendants(guest.process.pid).items() if "courier.py" in line and line.startswith("/usr/bin/python3")]
    assert inner, descendants(guest.process.pid)
    enter = ["nsenter", f"--target={inner[-1]}", "--user", "--mount", "--pid", "--net", "--root", "--wd", "--preserve-credentials", "--"]
    done = subprocess.run([*enter, "/usr/bin/python3", "-B", "-c", SCAN, hidden(secrets[0])], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, check=False, timeout=100)
    assert done.returncode == 0, done
    assert json.loads(done.stdout)["found"] == [], done.stdout


def test_outside(box, busy):
    """Logs, stderr, command lines, environments that `ps` shows; and what the state folder keeps."""
    guest, secrets, _ = busy
    text = guest.stderr() + json.dumps(guest.log())
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                text += file.read().decode(errors="replace")
        except OSError:
            continue
    for pid, line in descendants(guest.process.pid).items():
        if pid == guest.process.pid or "penstock" not in line:
            continue
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                text += file.read().decode(errors="replace")
        except OSError:
            continue
    clean(text, secrets)
    for path in glob.glob(guest.state + "/**", recursive=True):
        if os.path.isfile(path):
            with open(path, "rb") as file:
                clean(file.read().decode("latin-1"), secrets)


def test_of_our_processes_only_the_vault_has_it_at_rest(box, busy):
    """In the memory of main, keeper, resolver and an idle gate there is no trace left (looked for by real root)."""
    guest, secrets, _ = busy
    if os.environ.get("PENSTOCK_LAB") != "root":
        return
    for pid, line in descendants(guest.process.pid).items():
        if "@" not in line and pid != guest.process.pid or "@vault" in line:
            continue
        found = set()
        with open(f"/proc/{pid}/maps", encoding="utf-8") as areas, open(f"/proc/{pid}/mem", "rb", 0) as memory:
            for area in areas:
                if area.split()[1][0] != "r":
                    continue
                start, end = (int(word, 16) for word in area.split()[0].split("-"))
                try:
                    memory.seek(start)
                    data = memory.read(end - start)
                except (OSError, ValueError, OverflowError):
                    continue
                found |= {form for secret in secrets for form in forms(secret) if form.encode() in data}
        assert not found, (line, found)
