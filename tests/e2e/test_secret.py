# SPDX-License-Identifier: Apache-2.0
"""`penstock secret` and `penstock ca`: what is kept, how, and what is never shown."""
import os
import pty
import select
import stat
import subprocess
import termios
import time

import pytest

SECRET = "ghp_" + "s3cr3tBytes" * 3


@pytest.fixture
def state(box, tmp_path_factory):
    """A state folder of this test's own, in the user's home."""
    state.count = getattr(state, "count", 0) + 1
    return os.path.join(box.home, f"state-{state.count}")


def penstock(box, state, *arguments, data=None, **options):
    text = data.encode() if isinstance(data, str) else data
    return box.raw(*arguments, env={"PENSTOCK_STATE_FOLDER": state}, input=text, **options)


def mode(path):
    return stat.S_IMODE(os.stat(path).st_mode)


def contents(folder):
    for root, _, names in os.walk(folder):
        for name in names:
            with open(os.path.join(root, name), "rb") as file:
                yield os.path.join(root, name), file.read()


def test_life(box, state):
    assert penstock(box, state, "secret", "ls").out == ""
    assert not os.path.exists(state), "looking makes nothing"
    stored = penstock(box, state, "secret", "set", "github-token", data=SECRET + "\n")
    assert stored.code == 0 and stored.out == stored.err == "", stored
    assert penstock(box, state, "secret", "set", "another", data=SECRET).code == 0
    assert penstock(box, state, "secret", "ls").out == "another\ngithub-token\n"
    files = dict(contents(state))
    assert len(files) == 4 and all(mode(path) == 0o600 for path in files), files.keys()
    assert mode(state) == mode(os.path.join(state, "secrets")) == 0o700
    assert not any(b"s3cr3tBytes" in data or b"ghp_" in data for data in files.values())
    lengths = {len(data) for path, data in files.items() if not path.endswith((".key", ".lock"))}
    assert len(lengths) == 1, "the end of the line is not part of the secret"
    assert penstock(box, state, "secret", "rm", "another").code == 0
    assert penstock(box, state, "secret", "ls").out == "github-token\n"
    gone = penstock(box, state, "secret", "rm", "another")
    assert gone.code == 1 and gone.err == 'penstock: there is no secret "another"; `penstock secret ls` lists them\n', gone


@pytest.mark.parametrize("arguments, data, code, message", [
    (["set", "a/b"], SECRET, 2, '"a/b" is not a name'),
    (["set", "../x"], SECRET, 2, '"../x" is not a name'),
    (["set", ".key"], SECRET, 2, '".key" is not a name'),
    (["set", "x"], "", 2, "the secret is empty"),
    (["set", "x"], "\n", 2, "the secret is empty"),
    (["set", "x"], SECRET + "\n" + SECRET, 2, "line break"),
    (["set", "x"], SECRET + "\0", 2, "NUL"),
    (["set", "x"], SECRET + "\r", 0, ""),
    (["set", "x"], "s" * 32768, 0, ""),
    (["set", "x"], "s" * 32769, 1, "longer than 32768 bytes"),
    (["set", "x"], "s" * 200000, 1, "standard input: File too large"),
    (["set", "x", SECRET], "", 2, "set takes one NAME; a value goes to standard input"),
    (["set", "x=" + SECRET], "", 2, "is not a name"),
    (["set"], "", 2, "set needs a NAME"),
    (["rm"], "", 2, "rm needs a NAME"),
    (["ls", "x"], "", 2, "ls takes no argument"),
    (["get", "x"], "", 2, 'unknown argument "get"'),
    ([], "", 2, "say what to do: set, ls or rm"),
])
def test_arguments(box, state, arguments, data, code, message):
    result = penstock(box, state, "secret", *arguments, data=data)
    assert result.code == code and message in result.err and result.err.count("\n") == (code != 0), result
    assert "s3cr3tBytes" not in result.err + result.out, result


def test_refused_where_others_could(box, state):
    assert penstock(box, state, "secret", "set", "x", data=SECRET).code == 0
    for name, bad, fix in [("secrets/.key", 0o644, "chmod 600"), ("secrets", 0o777, "chmod go-w"), ("", 0o775, "chmod go-w")]:
        path = os.path.join(state, name)
        good = mode(path)
        os.chmod(path, bad)
        result = penstock(box, state, "secret", "set", "x", data=SECRET)
        assert result.code == 1 and fix in result.err and oct(bad)[2:] in result.err, result
        os.chmod(path, good)
    assert penstock(box, state, "secret", "set", "x", data=SECRET).code == 0


def test_place(box, state):
    """Wherever it is, the sandbox does not see it. A user's place is in the home folder, root's is the machine's."""
    assert penstock(box, state, "secret", "set", "x", data=SECRET).code == 0
    places = [os.path.join(state, "secrets/x")]
    if box.kind == "user":
        assert box.raw("secret", "set", "x", input=SECRET.encode()).code == 0
        assert box.raw("secret", "set", "x", input=SECRET.encode(), env={"XDG_STATE_HOME": state}).code == 0
        places += [os.path.join(box.home, ".local/state/penstock/secrets/x"), os.path.join(state, "penstock/secrets/x")]
    assert all(os.path.exists(place) for place in places)
    seen = box.run("--network none", "sh", "-c", f"cat {' '.join(places)}; ls -a {state}; echo end")
    assert seen.out == "end\n", seen


# ---- a terminal ----

class Terminal:
    def __init__(self, box, state, *arguments):
        self.master, slave = pty.openpty()
        self.slave = slave
        self.process = box.popen(arguments, env={"PENSTOCK_STATE_FOLDER": state}, stdin=slave, stdout=slave, stderr=slave,
                                 start_new_session=True)
        self.shown = b""

    def echoes(self):
        return bool(termios.tcgetattr(self.slave)[3] & termios.ECHO)

    def wait_for(self, text, seconds=10):
        end = time.monotonic() + seconds
        while text not in self.shown and time.monotonic() < end:
            if select.select([self.master], [], [], 0.1)[0]:
                self.shown += os.read(self.master, 4096)
        assert text in self.shown, self.shown

    def close(self):
        os.close(self.master)
        os.close(self.slave)


def test_typed_value_is_not_shown(box, state):
    terminal = Terminal(box, state, "secret", "set", "typed")
    terminal.wait_for(b"Value of typed (not shown): ")
    assert not terminal.echoes()
    os.write(terminal.master, SECRET.encode() + b"\n")
    assert terminal.process.wait(10) == 0
    terminal.wait_for(b"\n")
    assert b"s3cr3t" not in terminal.shown and terminal.echoes()
    terminal.close()
    assert penstock(box, state, "secret", "ls").out == "typed\n"


def test_interrupted_terminal_echoes_again(box, state):
    terminal = Terminal(box, state, "secret", "set", "typed")
    terminal.wait_for(b"Value of typed")
    os.write(terminal.master, b"half a sec")
    terminal.process.send_signal(2)
    assert terminal.process.wait(10) == -2
    assert terminal.echoes()
    terminal.close()
    assert penstock(box, state, "secret", "ls").out == ""


# ---- the CA ----

def test_ca_export(box, state):
    exports = [box.popen(["ca", "export"], env={"PENSTOCK_STATE_FOLDER": state}, stdout=subprocess.PIPE) for _ in range(4)]
    texts = {process.communicate()[0].decode() for process in exports}
    assert len(texts) == 1 and all(process.returncode == 0 for process in exports), "one CA, however many ask first"
    text = texts.pop()
    assert text.startswith("-----BEGIN CERTIFICATE-----\n") and "PRIVATE" not in text
    path = box.path(os.path.basename(state) + ".crt")
    assert penstock(box, state, "ca", "export", path).code == 0
    with open(path, encoding="ascii") as file:
        assert file.read() == text
    assert mode(path) == 0o644 and mode(os.path.join(state, "ca/authority")) == 0o600
    again = penstock(box, state, "ca", "export", path)
    assert again.code == 1 and f'"{path}" exists' in again.err, again
    shown = subprocess.run(["openssl", "x509", "-in", path, "-noout", "-subject", "-ext", "basicConstraints,keyUsage,subjectKeyIdentifier"],
                           capture_output=True, text=True, check=True).stdout
    assert "O = Penstock, CN = Penstock CA " in shown and "CA:TRUE, pathlen:0" in shown and "Certificate Sign, CRL Sign" in shown
    assert subprocess.run(["openssl", "verify", "-x509_strict", "-check_ss_sig", "-CAfile", path, path], capture_output=True,
                          check=False).returncode == 0
    for arguments in (["ca"], ["ca", "show"], ["ca", "export", "a", "b"], ["ca", "install", "x"]):
        assert penstock(box, state, *arguments).code == 2


def test_ca_file_is_guarded(box, state):
    assert penstock(box, state, "ca", "export").code == 0
    path = os.path.join(state, "ca/authority")
    os.chmod(path, 0o640)
    result = penstock(box, state, "ca", "export")
    assert result.code == 1 and result.out == "" and f"chmod 600 '{path}'" in result.err, result
    os.chmod(path, 0o600)
    with open(path, "r+b") as file:
        file.seek(20)
        byte = file.read(1)
        file.seek(20)
        file.write(bytes([byte[0] ^ 1]))
    result = penstock(box, state, "ca", "export")
    assert result.code == 1 and "its key is not that of its certificate" in result.err and "remove it" in result.err, result
    os.unlink(path)
    assert penstock(box, state, "ca", "export").code == 0


def test_ca_install(box, state):
    if box.kind == "user":
        result = penstock(box, state, "ca", "install")
        assert result.code == 1 and "penstock ca export ca.crt && sudo install" in result.err and result.err.count("\n") == 1, result
        return
    # Not in the machine's own trust, and without its many certificates, which take long.
    script = """set -e
mount -t tmpfs none /usr/local/share/ca-certificates
mount -t tmpfs none /etc/ssl/certs
mount --bind /dev/null /etc/ca-certificates.conf
"$0" ca install >&2
"$0" ca install >&2
"$0" ca export > /usr/local/share/ca-certificates/.exported
openssl verify -CApath /etc/ssl/certs /usr/local/share/ca-certificates/.exported
stat -c %a /usr/local/share/ca-certificates/penstock.crt"""
    result = subprocess.run(["unshare", "-m", "sh", "-c", script, box.program], capture_output=True, text=True, check=False,
                            env={**box.environment(), "PENSTOCK_STATE_FOLDER": state})
    assert result.returncode == 0 and result.stdout.endswith(": OK\n644\n"), result
