# SPDX-License-Identifier: Apache-2.0
"""What a sandbox must not leave on the host or take from it, and that real tools do not suffer from how it is kept."""
import os
import shutil
import stat

import pytest

from conftest import HERE, assert_nothing_left, leftovers

NONE = "--network none"
PRIVILEGED = stat.S_ISUID | stat.S_ISGID


def script(box, text, **options):
    return box.run(NONE, "sh", "-c", text, **options)


def privileged_files(folder):
    """Everything below that has more rights than a plain file: its bits, or a capability."""
    found = []
    for place, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(place, name)
            state = os.lstat(path)
            if stat.S_ISREG(state.st_mode) and (state.st_mode & PRIVILEGED or "security.capability" in os.listxattr(path)):
                found.append(path)
    return found


@pytest.fixture
def folder(box):
    """A working directory of this test's own."""
    path = os.path.join(box.home, f"safe-{type(box).counter}")
    os.mkdir(path)
    box.give(path)
    yield path
    shutil.rmtree(path)


# ---- privilege ----

@pytest.mark.parametrize("wrap", ["sh", "unshare -Ur sh", "unshare -Urm sh"])
def test_no_privileged_file_stays(box, folder, wrap):
    box_script = ("cp /usr/bin/id sid; chmod 6755 sid; chmod u+s sid; chmod g+s sid; install -m 4755 /usr/bin/id sid2;"
                  "python3 -c 'import os; os.open(\"sid3\", os.O_CREAT, 0o6755)';"
                  "python3 -c 'import os; os.mknod(\"sid4\", 0o106755)';"
                  "cp /usr/bin/id cap; setcap cap_setuid+ep cap; "
                  "python3 -c 'import os; os.setxattr(\"cap\", \"security.capability\", "
                  "bytes.fromhex(\"0100000280000000000000000000000000000000\"))'; mkdir -m 755 d; true")
    result = box.run(NONE, *wrap.split(), "-c", box_script, cwd=folder)
    assert result.code == 0, result
    assert os.path.exists(os.path.join(folder, "sid")) and os.path.exists(os.path.join(folder, "cap")), result
    assert privileged_files(folder) == [], result


TOOLS = {
    "tar": "mkdir a; cp /usr/bin/id a/x; chmod 755 a/x; ln -s x a/l; tar cf t.tar a; rm -r a; tar xf t.tar; "
           "tar xpf t.tar; test -x a/x && test -L a/l",
    "tar with attributes": "mkdir a; echo 1 > a/x; tar --xattrs --acls -cf t.tar a; rm -r a; tar --xattrs --acls -xpf t.tar; cat a/x",
    "tar of set-user-ID": "cp /usr/bin/id x; python3 -c \"import tarfile as t; a = t.open('t.tar', 'w'); i = a.gettarinfo('x'); "
                          "i.mode = 0o4755; a.addfile(i, open('x', 'rb'))\"; rm x; tar xf t.tar; test -x x",
    "cp -a": "mkdir a; cp /usr/bin/id a/x; chmod 755 a/x; cp -a a b; test -x b/x; cp -a /etc/ssl/certs c; cp -p /usr/bin/env e; cp -a e f",
    "install": "install -m 755 /usr/bin/id x; install -d -m 750 d; test \"$(stat -c %a x)\" = 755",
    "git": "git init -q r; cd r; git config user.email a@b; git config user.name n; echo 1 > f; chmod 755 f; git add f; "
           "git commit -qm m; cd ..; git clone -q r s; test -x s/f; cd s; git gc -q; git fsck",
    "venv": "python3 -m venv --without-pip v && v/bin/python -c 'import sys; print(sys.prefix)'",
    "python copies": "mkdir a; echo 1 > a/f; chmod 755 a/f; python3 -c 'import shutil; shutil.copytree(\"a\", \"b\"); shutil.copy2(\"a/f\", \"c\")'; test -x b/f",
    "unpacked tree": "mkdir -p n/.bin n/p; echo '#!/bin/sh' > n/p/cli.js; chmod 755 n/p/cli.js; ln -s ../p/cli.js n/.bin/cli; n/.bin/cli; "
                     "mv n m; rm -r m",
    "mktemp": "f=$(mktemp ./x.XXXX); test \"$(stat -c %a $f)\" = 600; umask 077; echo > y; test \"$(stat -c %a y)\" = 600",
    "threads": "python3 -c 'import threading; t = [threading.Thread(target=print) for i in range(9)]; [x.start() for x in t]; [x.join() for x in t]'",
}


@pytest.mark.parametrize("protected", [False, True])
@pytest.mark.parametrize("name", TOOLS)
def test_tools_work(box, folder, name, protected):
    """Also with a protected file around, when the filter is stricter."""
    policy = NONE
    if protected:
        path = os.path.join(folder, "policy.json")
        with open(path, "w", encoding="utf-8") as file:
            file.write('{"version": 1}')
        box.give(path)
        policy = ["--policy", path]
    result = box.run(policy, "sh", "-ec", TOOLS[name], cwd=folder)
    assert result.code == 0, result


def test_setgid_folders_are_inherited(box, folder):
    os.chmod(folder, 0o2775)
    result = script(box, "mkdir d && touch d/f && stat -c '%A' d", cwd=folder)
    assert result.code == 0 and result.out.startswith("drwxr-s"), result


# ---- files that the host trusts ----

ATTACK = ("exec 2>/dev/null; (echo x >> {0}) && echo wrote; (: > {0}) && echo cut; rm -f {0} && echo removed; "
          "mv {0} {0}.old && echo moved; ln -sf /etc/passwd {0} && echo link; mv $(dirname {0}) gone && echo moved folder; "
          "unshare -Ur mv {0} {0}.old && echo nested; unshare -Urm umount {0} && echo lifted; python3 {1} && echo left; true")
LEAVE = ("import ctypes, os, sys\nlibc = ctypes.CDLL(None)\nfolder = os.open('.', os.O_RDONLY)\nuid, gid = os.getuid(), os.getgid()\n"
         "if libc.unshare(0x10020000) < 0: sys.exit(1)\nopen('/proc/self/uid_map', 'w').write(f'0 {uid} 1')\n"
         "open('/proc/self/gid_map', 'w').write(f'0 {gid} 1')\n"
         "os.makedirs('/tmp/r', exist_ok=True)\nlibc.mount(b't', b'/tmp/r', b'tmpfs', 0, None)\nos.mkdir('/tmp/r/o')\n"
         "os.chdir('/tmp/r')\nlibc.pivot_root(b'.', b'o')\nlibc.umount2(b'/o', 2)\n"
         "os.rename('conf', 'gone', src_dir_fd=folder, dst_dir_fd=folder)\n")


def test_policy_in_the_working_directory(box, folder):
    text = '{"version": 1}'
    os.mkdir(os.path.join(folder, "conf"))
    box.give(os.path.join(folder, "conf"))
    for name, content in (("conf/policy.json", text), ("leave.py", LEAVE)):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.write(content)
        box.give(os.path.join(folder, name))
    result = box.run(["--policy", "conf/policy.json"], "sh", "-c", ATTACK.format("conf/policy.json", "leave.py"), cwd=folder)
    assert (result.code, result.out) == (0, ""), result
    with open(os.path.join(folder, "conf/policy.json"), encoding="utf-8") as file:
        assert file.read() == text
    assert sorted(os.listdir(folder)) == ["conf", "leave.py"]


def test_log_in_the_working_directory(box, folder):
    attack = ATTACK.format("log.jsonl", "/dev/null").replace("mv $(dirname log.jsonl) gone && echo moved folder;", "")
    result = box.raw("run", "--network", "none", "--log", "log.jsonl", "--", "sh", "-c",
                     attack.replace("python3 /dev/null && echo left;", ""), cwd=folder)
    assert (result.code, result.out) == (0, ""), result
    with open(os.path.join(folder, "log.jsonl"), encoding="utf-8") as file:
        assert all(line.startswith("{") for line in file)
    assert not os.path.islink(os.path.join(folder, "log.jsonl"))


def test_policy_through_a_link_is_refused(box, folder):
    target = box.policy_file({"version": 1})
    link = os.path.join(folder, "policy.json")
    os.symlink(target, link)
    result = box.run(["--policy", link], "true", cwd=folder)
    assert result.code == 125 and "symbolic link" in result.err, result


# ---- the working directory ----

def test_home_is_no_working_directory(box, tmp_path_factory):
    """Whatever HOME says: sudo, cron and containers set it to something else."""
    other = os.path.join(box.home, "other-home")
    os.makedirs(other, exist_ok=True)
    box.give(other)
    for name in (".ssh", ".gnupg", ".config"):
        os.makedirs(os.path.join(box.home, name), exist_ok=True)
        box.give(os.path.join(box.home, name))
        result = script(box, "true", cwd=os.path.join(box.home, name))
        assert result.code == 125 and f'"{name}"' in result.err, result
    if box.kind == "user":  # the lab's user database has its home
        for env in ({"HOME": other}, {"HOME": ""}):
            result = script(box, "true", cwd=box.home, env=env)
            assert result.code == 125 and "home folder" in result.err, result
    result = script(box, "true", cwd=os.path.dirname(box.home))
    assert result.code == 125 and "home folder" in result.err, result


# ---- the command ----

def test_more_arguments_than_bubblewrap_takes(box):
    words = [str(number) for number in range(30000)]
    result = box.run(NONE, "sh", "-c", "echo $# $1 $30000", "sh", *words)
    assert (result.code, result.out.split()[:2]) == (0, ["30000", "0"]), result.err


@pytest.mark.parametrize("first_line,word", [("#!/nonexistent/i\n", '"/nonexistent/i"'), ("#!/bin/sh\r\n", "CRLF")])
def test_missing_interpreter(box, first_line, word):
    with open(box.file("script", first_line, 0o755), "w", encoding="utf-8", newline="") as file:
        file.write(first_line + "exit 3\n")
    result = box.run(NONE, "./script")
    assert result.code == 127 and word in result.err, result


def test_a_sandbox_in_a_sandbox(box):
    result = box.run(["--read", os.path.dirname(box.program), *NONE.split()], box.program, "run", "--network", "none", "--", "true")
    assert result.code == 125 and result.err.count("\n") == 1 and "a sandbox already" in result.err, result


def test_dev_is_bounded(box):
    result = script(box, "touch /dev/x 2>/dev/null && echo wrote; touch /dev/shm/x && df --output=fstype /dev/shm | tail -1")
    assert result.out.split() == ["tmpfs"], result


def test_a_folder_as_standard_input_is_refused(box):
    before = leftovers()
    with open("/dev/null", "rb"):
        descriptor = os.open("/", os.O_RDONLY | os.O_DIRECTORY)
        result = box.raw("run", "--network", "none", "--", "ls", "/proc/self/fd/0/home", stdin=descriptor)
        os.close(descriptor)
    assert result.code == 125 and "standard input is a folder" in result.err, result
    assert_nothing_left(before)
