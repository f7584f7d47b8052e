# SPDX-License-Identifier: Apache-2.0
"""The container engine of room sandbox: real crun, skopeo, umoci and a registry, driven by tests/engine/container_driver.c.
It is root's; that an ordinary user is told so is tested too."""
import errno
import os
import signal
import stat
import subprocess
import tarfile
import time

import pytest

import engine as engine_module
import lab as lab_module
from engine import DISK_BASE, Driver, Engine, busybox, cgroups, entry, layer, mounts, processes, write_image

ROOT = lab_module.starter() == "root"


@pytest.fixture(scope="module")
def engine(lab):
    made = Engine()
    yield made
    made.end()


def root_only(function):
    """Collected only where root started the tests."""
    return function if ROOT else None


def numbers(text):
    return {name: int(value) for name, value in (line.split() for line in text.splitlines())}


# ---- images ----

@root_only
def test_an_image_is_one_folder_however_it_comes(engine):
    registry = engine.serve()
    archive = engine.source("base.tar")
    subprocess.run(["skopeo", "--insecure-policy", "copy", "-q", "oci:" + engine.source("base") + ":latest",
                    "docker-archive:" + archive + ":base:one"], check=True, stdout=subprocess.DEVNULL)
    os.chmod(archive, 0o600)  # root's alone: the programs that read it are nobody
    before = os.stat(engine.base).st_ctime_ns
    plain = {"plain": [registry]}
    for reference, options in [("oci:" + engine.source("base") + ":latest", {}), (f"docker://{registry}/library/base:one", plain),
                               (f"{registry}/library/base:one", plain), ("base:one", {"mirrors": {"docker.io": registry}, **plain}),
                               ("docker://docker.io/base:one", {"mirrors": {"docker.io": registry}, **plain})]:
        image = engine.image(reference, **options)
        assert (image["digest"], image["layer"]) == (engine.digest, engine.base), reference
        assert image["argv"] == ["/bin/sh", "-c", "id"] and image["environment"] == ["LAYER=base", "PATH=/bin"]
        assert (image["user"], image["cwd"]) == ("alice", "/data")
    assert os.stat(engine.base).st_ctime_ns == before, "unpacked again"
    assert engine.image("docker-archive:" + archive)["argv"] == ["/bin/sh", "-c", "id"]
    without = engine.driver("image", reference=f"docker://{registry}/library/base:one", folder=engine.state)
    assert without["error"] == -errno.EINVAL and "images.plain_http" in without["text"], without
    missing = engine.driver("image", reference=f"{registry}/none:one", folder=engine.state, **plain)
    assert missing["error"] == -errno.ENOENT, missing
    assert missing["text"].endswith(f'"{registry}/none:one": docker://{registry}/none:one is not in its registry; check its name and tag'), missing


@root_only
def test_two_at_once_unpack_once(engine):
    write_image(engine.source("twice"), [layer(busybox(entry("twice", data=b"x")))])
    drivers = [Driver() for _ in range(3)]
    for driver in drivers:
        driver.send("image", reference="oci:" + engine.source("twice"), folder=engine.state, local=True)
    answers = [driver.answer() for driver in drivers]
    assert len({answer["layer"] for answer in answers}) == 1 and all(answer["ok"] for answer in answers), answers
    for driver in drivers:
        driver.end()


@root_only
def test_names_that_are_no_images(engine):
    def refused(reference, number=errno.EINVAL, local=True):
        answer = engine.driver("image", reference=reference, folder=engine.state, local=local)
        assert answer["error"] == -number, (reference, answer)
        return answer["text"]
    for reference in ["", "oci:relative", "docker-archive:x", "dir:/etc", "docker-daemon:x", "containers-storage:x", "docker://",
                      "-q", "docker://-x", "a b", "x" * 300, "oci:/x:a b", "docker://x/$(id)"]:
        assert "expected an image" in refused(reference)
    assert "not to be read here" in refused("oci:" + engine.source("base"), errno.EACCES, local=False)
    assert "/nowhere" in refused("oci:/nowhere", errno.ENOENT)
    assert '"oci:/etc": it is no image of that kind' in refused("oci:/etc")


@root_only
def test_a_hostile_image_writes_nothing_outside(engine):
    target = os.path.join(engine.state, "target")
    os.mkdir(target, 0o777)
    up = "../" * 12
    members = busybox(
        entry("evil", tarfile.SYMTYPE, linkname=target), entry("evil/through-link", data=b"x"),
        entry(up + target[1:] + "/by-dots", data=b"x"), entry(target + "/absolute", data=b"x"),
        entry("hard", tarfile.LNKTYPE, linkname=up + "etc/shadow"), entry("disk", tarfile.BLKTYPE, devmajor=254, devminor=0, mode=0o666),
        entry("bin/root", data=b"x", mode=0o6755, uid=0), entry(".wh..wh..opq", data=b""), entry(up + ".wh.target", data=b""),
        entry("redirect", tarfile.DIRTYPE, pax_headers={"SCHILY.xattr.trusted.overlay.redirect": "/bin",
                                                        "SCHILY.xattr.user.kept": "yes"}),
        entry("far", data=b"x", uid=3000000))
    for index, bad in enumerate([None, "hard", "far"]):
        kept = [member for member in members if bad is None or member[0].name == bad or member[0].name not in ("hard", "far")]
        if bad is None:
            kept = [member for member in members if member[0].name not in ("hard", "far")]
        write_image(engine.source(f"hostile-{index}"), [layer(kept)])
        answer = engine.driver("image", reference="oci:" + engine.source(f"hostile-{index}"), folder=engine.state, local=True)
        assert os.listdir(target) == [] and not os.path.exists("/absolute"), answer
        if bad is None:
            assert answer.get("ok"), answer
            place = answer["layer"]
        elif answer.get("ok"):  # then it is not the host's file
            assert not os.path.exists(os.path.join(answer["layer"], "hard")) or bad != "hard" or \
                os.stat(os.path.join(answer["layer"], "hard")).st_ino != os.stat("/etc/shadow").st_ino
    for folder, names, files in os.walk(place):
        for name in names + files:
            state = os.lstat(os.path.join(folder, name))
            assert DISK_BASE <= state.st_uid < DISK_BASE + 65536 and DISK_BASE <= state.st_gid < DISK_BASE + 65536, name
            assert not stat.S_ISBLK(state.st_mode) and not stat.S_ISCHR(state.st_mode), name
    assert "trusted.overlay.redirect" not in os.listxattr(os.path.join(place, "redirect"))
    assert not [name for name in os.listdir(os.path.join(engine.state, "layers")) if name.endswith(".part")]


# ---- what a container is ----

@root_only
def test_a_container_has_nothing_of_the_host(engine):
    null, before = os.stat("/dev/null"), mounts()
    output = os.path.join(engine.state, "output")
    with engine.container(output=output, hostname="box.example") as container:
        found = numbers(container.run("/bin/probe")["output"])
        allowed = {name for name, number in found.items() if number == 0}
        assert allowed == {"inet", "inet6", "unix", "netlink", "inet-high", "file", "chown", "suid", "user"}, found
        for name in ("vsock", "alg", "can", "bluetooth", "xdp", "packet", "vsock-high"):
            assert found[name] == errno.EAFNOSUPPORT, (name, found[name])
        for name in ("io_uring", "clone3", "unknown"):
            assert found[name] == errno.ENOSYS, (name, found[name])
        for name in ("unshare-user", "clone-user", "clone-parent", "mount", "umount", "remount", "setns", "keyctl", "bpf", "tiocsti", "tiocsti-high",
                     "chmod-null", "node-disk", "trusted", "raw", "fsopen", "open_tree", "reboot", "syslog"):
            assert found[name] == errno.EPERM, (name, found[name])
        assert found["x32"] == signal.SIGSYS and found["i386"] in (signal.SIGSYS, signal.SIGSEGV)  # the kernel may lack it
        text = container.sh("id -u; hostname; readlink /proc/self/ns/net; ls /sys/class/net; cat /proc/self/uid_map; ls /proc/self/fd;"
                            "cat /etc/resolv.conf /etc/hosts; env; cat /proc/kcore | dd bs=1 count=1 2>/dev/null; ulimit -n")
        lines = text.splitlines()
        assert lines[:2] == ["0", "box.example"] and lines[3] == "lo"
        assert lines[2] == os.readlink(engine.keeper.net)
        assert lines[4].split()[0::2] == ["0", "65536"] and DISK_BASE < int(lines[4].split()[1]) < 2**32 - 65536
        assert lines[5:9] == ["0", "1", "2", "3"], "a descriptor of ours is inside"  # 3 is what ls opens
        assert "nameserver 192.0.0.1" in text and "127.0.1.1 box.example" in text
        assert {"IMAGE=yes", "PATH=/bin", "HOME=/root", "HOSTNAME=box.example"} <= set(lines)
        changed = container.sh("echo 192.0.2.7 mine >>/etc/hosts && cat /etc/hosts; echo x 2>/dev/null >/run/penstock/hosts || echo kept")
        assert changed.endswith("box.example\n192.0.2.7 mine\nkept\n"), changed  # as root of a container may, but not by our folder
        assert not [line for line in lines if line.startswith(("PYTEST", "PENSTOCK", "LANG", "USER"))]
        status = numbers_of_status(container.pid)
        assert status == {"Seccomp": "2", "NoNewPrivs": "1", "CapBnd": "00000000a00405fb", "CapAmb": "0" * 16, "CapInh": "0" * 16}
        assert mounts() == before, "its mounts are seen outside"
        assert not os.path.exists("/run/penstock-test-hosts") and not os.path.exists("/run/penstock-test-resolv")
    for other, state in (("/dev/null", null), (output, None)):
        now = os.stat(other)
        assert (now.st_uid, now.st_gid, now.st_mode) == ((state.st_uid, state.st_gid, state.st_mode) if state else (0, 0, now.st_mode))


def numbers_of_status(pid):
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
        fields = dict(line.split(":\t", 1) for line in file if ":\t" in line)
    return {name: fields[name].strip() for name in ("Seccomp", "NoNewPrivs", "CapBnd", "CapAmb", "CapInh")}


@root_only
def test_limits_hold_inside_only(engine):
    with engine.container(memory=64 << 20, cpu=500, pids=30) as container:
        assert container.run("/bin/probe", "eat")["status"] == 128 + signal.SIGKILL
        assert container.sh("echo still there") == "still there\n"
        assert int(container.run("/bin/probe", "fork")["output"]) < 30
        files = {"memory": ("memory.limit_in_bytes", "memory.max"), "pids": ("pids.max", "pids.max"), "cpu": ("cpu.cfs_quota_us", "cpu.max")}
        wanted = {"memory": str(64 << 20), "pids": "30", "cpu": "50000"}
        for name, choices in files.items():
            values = [open(os.path.join(group, choice), encoding="utf-8").read().split()[0] for group in cgroups() for choice in choices
                      if os.path.exists(os.path.join(group, choice))]
            assert wanted[name] in values, (name, values)
        container.sh("dd if=/dev/zero of=/dev/shm/x bs=1048576 count=80 2>/dev/null")
        assert int(container.sh("stat -c %s /dev/shm/x")) <= 64 << 20


@root_only
def test_users_are_those_of_the_image(engine):
    with engine.container(user="alice", cwd="/data") as container:
        assert container.sh("id -u; id -g; id -G; pwd; echo $HOME; cat one").splitlines() == \
            ["1000", "1000", "1000 50", "/data", "/home/alice", "one"]
        assert "CapEff:\t0000000000000000" in container.sh("cat /proc/self/status")
        assert container.sh("id -u; id -G; echo $HOME", user="0:50").splitlines() == ["0", "50", "/root"]
        assert container.sh("id -u; id -g; pwd", user="1234", cwd="/tmp").splitlines() == ["1234", "0", "/tmp"]
        assert container.sh("echo $HOME $A", environment=["A=b", "HOME=/x"]) == "/x b\n"
        for user in ("nobody-here", "far", "65536", "alice:none", "-1"):
            assert container("exec", argv=["true"], user=user)["error"] == -errno.EINVAL, user
        # Lists that are no files.
        assert container.sh("rm /etc/passwd /etc/group; mkfifo /etc/passwd; ln -s /proc/self/mem /etc/group", user="0") == ""
        assert "\nUid:\t7\t7\t7\t7\n" in container.run("cat", "/proc/self/status", user="7")["output"]
        assert container("exec", argv=["true"], user="alice")["error"] == -errno.EINVAL


@root_only
def test_commands(engine):
    with engine.container() as container:
        assert container.run("sh", "-c", "exit 7")["status"] == 7
        assert container.run("sh", "-c", "kill -9 $$")["status"] == 128 + signal.SIGKILL
        assert container("exec", argv=["no-such"])["error"] == -errno.ENOENT
        assert container("exec", argv=["/data/one"])["error"] == -errno.EACCES
        assert container("exec", argv=["/data/none"])["error"] == -errno.ENOENT
        assert container.run("/bin/echo", "a b", "", "\u00e9\"\\")["output"] == "a b  ??\"\\\n"
        assert container.sh("ps -o pid,comm | grep -c defunct; true").strip() == "0"
        # An orphan is the init's; a command in the background is ours to signal.
        background = container.good("exec", argv=["/bin/probe", "sleep"], background=True)["pid"]
        assert "/bin/probe" in processes()[background]
        os.kill(background, signal.SIGTERM)
        # Hostile: our init's path is the container's own now. What is executed there has only the container's rights.
        container.sh("mv /run /gone; mkdir -p /run/penstock; ln -s /bin/true /run/penstock/init")
        answer = container("exec", argv=["true"])
        assert answer["error"] < 0 and "init" in answer["text"], answer
    assert not [text for text in processes().values() if "/bin/probe sleep" in text]


@root_only
def test_the_first_process_is_the_command(engine):
    output = os.path.join(engine.state, "first")
    container = engine.container(argv=["sh", "-c", "echo $$ $IMAGE $TOKEN $HTTP_PROXY; exit 3"], output=output, proxy=True,
                                 placeholders=["TOKEN=held", "IMAGE=other"])
    assert os.stat(output).st_size == 0, "it runs before its start"
    container.good("start")
    assert container.good("wait")["status"] == 3
    assert open(output, encoding="utf-8").read() == "1 other held http://192.0.0.1:3128\n"
    container.good("free")
    for argv, number in ((["no-such"], errno.ENOENT), (["/data/two"], 0), (["/data/one"], errno.EACCES)):
        container = engine.container(argv=argv)
        assert -container("start").get("error", 0) == number, argv
        container.good("free")


@root_only
def test_containers_are_apart(engine):
    with engine.container() as one, engine.container() as two:
        bases = [container.sh("cat /proc/self/uid_map").split()[1] for container in (one, two)]
        assert len(set(bases)) == 2, bases
        one.sh("echo one > /data/mine; echo changed > /data/two")
        assert two.sh("ls /data; cat /data/two").split() == ["deep", "one", "two", "two"]
        assert one.sh("stat -c %u:%g /data/mine /data/one").split() == ["0:0", "1000:50"]
        assert os.stat(one.disk("data", "mine")).st_uid == DISK_BASE
        other = Driver()
        other.good("open", id=one.spec["id"], folder=one.spec["folder"])
        assert other.good("exec", id=one.spec["id"], argv=["cat", "/data/mine"])["output"] == "one\n"
        other.end()


@root_only
def test_pause(engine):
    with engine.container() as container:
        pid = container.good("exec", argv=["/bin/sh", "-c", "while :; do :; done"], background=True)["pid"]

        def ticks():
            with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
                return sum(map(int, file.read().rsplit(")", 1)[1].split()[11:13]))
        container.good("pause")
        container.good("pause")
        before = ticks()
        time.sleep(0.3)
        assert ticks() == before
        assert container("exec", argv=["true"])["error"] == -errno.EBUSY
        container.good("resume")
        end = time.monotonic() + 20
        while ticks() == before:
            assert time.monotonic() < end, "it does not go on"
            time.sleep(0.02)
        container.good("pause")  # freed while it stands still


@root_only
def test_trust(engine):
    key, certificate = engine.source("ca.key"), engine.source("ca.der")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", key,
                    "-outform", "DER", "-out", certificate, "-subj", "/CN=engine test"], check=True, stderr=subprocess.DEVNULL)
    pem = subprocess.run(["openssl", "x509", "-inform", "DER", "-in", certificate], check=True, stdout=subprocess.PIPE, text=True).stdout
    own = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    write_image(engine.source("roots"), [layer(busybox(
        entry("etc/ssl/certs/ca-certificates.crt", data=own.encode()), entry("etc/ssl/cert.pem", tarfile.SYMTYPE, linkname="/etc/shadow"),
        entry("usr/lib/jvm/java/lib/security/cacerts", data=b"", mode=0o644)))])
    roots = engine.image("oci:" + engine.source("roots"))["layer"]
    first = pem.splitlines()[1]
    with engine.container([roots], certificate=certificate) as container:
        text = container.sh("cat /etc/ssl/certs/ca-certificates.crt; echo; cat $SSL_CERT_FILE; cat /etc/ssl/certs/abcd1234.0")
        assert text.count(first) == 3 and text.count("AAAA") == 2, text
        assert container.sh("cat $NODE_EXTRA_CA_CERTS").count("BEGIN") == 1
        assert container.sh("dd if=/usr/lib/jvm/java/lib/security/cacerts bs=1 count=4 2>/dev/null").startswith("????")
        container.good("snapshot", layer=os.path.join(engine.state, "layers", "trusting"))
    with engine.container([os.path.join(engine.state, "layers", "trusting"), roots], certificate=certificate) as container:
        assert first in container.sh("cat /etc/ssl/certs/abcd1234.0") and "abcd1234.1" not in container.sh("ls /etc/ssl/certs")


# ---- snapshots ----

@root_only
def test_a_snapshot_is_what_the_container_was(engine):
    target = os.path.join(engine.state, "layers", "snapshot")
    with engine.container() as container:
        container.sh("""cd /data; rm one; rm -r deep; mkdir deep; echo new > deep/new; chmod 2750 deep; echo x > a; ln a b; ln -s /etc/x link
            mkfifo pipe; dd if=/dev/zero of=hole bs=1 count=1 seek=1000000 2>/dev/null; echo own > c; chown 1000:50 c; chmod 4711 c
            touch -d '2001-02-03 04:05:06' c; /bin/probe > /dev/null; mkdir -p /deep; cd /deep; i=0
            while [ $i -lt 60 ]; do mkdir d; cd d; i=$((i+1)); done; echo bottom > file""")
        container.good("pause")
        container.good("snapshot", layer=target)
        assert container("exec", argv=["true"])["error"] == -errno.EBUSY, "a snapshot lets it go on"
        container.good("resume")
        taken = container("snapshot", layer=target)
        assert taken["error"] == -errno.EEXIST and not os.path.exists(target + ".part"), taken
        again = container.sh("id -u")
        assert again == "0\n"
    assert os.stat(os.path.join(target, "data/a")).st_nlink == 2
    assert os.stat(os.path.join(target, "data/hole")).st_blocks < 100
    with engine.container([target, engine.base]) as container:
        text = container.sh("""cd /data; ls; cat deep/new b; stat -c '%a %u:%g %s' deep c hole a; stat -c %Y c; ls deep; readlink link
            stat -c %i a b; cd /deep; i=0; while [ $i -lt 60 ]; do cd d; i=$((i+1)); done; cat file""").splitlines()
        assert text[:8] == ["a", "b", "c", "deep", "hole", "link", "pipe", "two"], text
        assert text[8:10] == ["new", "x"]
        assert text[10].startswith("2750 0:0") and text[11:14] == ["4711 1000:50 4", "644 0:0 1000001", "644 0:0 2"]
        assert text[14] == "981173106" and text[15:17] == ["new", "/etc/x"] and text[17] == text[18] and text[19] == "bottom"
        second = os.path.join(engine.state, "layers", "second")
        container.sh("echo again > /data/one; rm /data/two")
        container.good("snapshot", layer=second)
    with engine.container([second, target, engine.base]) as container:
        assert container.sh("cd /data; ls; cat one").split() == ["a", "b", "c", "deep", "hole", "link", "one", "pipe", "again"]
    with engine.container() as container:
        container.sh("cd /data; i=0; while [ $i -lt 450 ]; do mkdir d; cd d; i=$((i+1)); done")
        deep = container("snapshot", layer=os.path.join(engine.state, "layers", "deep"))
        assert deep["error"] == -errno.ELOOP and "400 folders" in deep["text"]
        assert not [name for name in os.listdir(os.path.join(engine.state, "layers")) if name.startswith("deep")]
        assert container.sh("id -u") == "0\n", "it stands still"


# ---- undo ----

class State:
    """What a failed create must not change."""

    def __init__(self, engine):
        self.engine, self.mounts, self.groups = engine, mounts(), cgroups()
        self.processes = set(processes())

    def check(self, spec, what):
        assert os.listdir(spec["folder"]) == [], what
        assert mounts() == self.mounts and cgroups() == self.groups, what
        end = time.monotonic() + 5
        while set(processes()) - self.processes and time.monotonic() < end:
            time.sleep(0.02)
        new = {pid: text + open(f"/proc/{pid}/stat").read() for pid, text in processes().items() if pid not in self.processes}
        assert not new, (what, new)


@root_only
def test_each_step_that_fails_is_undone(engine):
    state = State(engine)
    bare = os.path.join(engine.state, "bare")
    os.mkdir(bare)
    for name, kind in (("sys-link", "link"), ("sys-file", "file")):
        os.mkdir(os.path.join(engine.state, name))
        os.chown(os.path.join(engine.state, name), DISK_BASE, DISK_BASE)
        path = os.path.join(engine.state, name, "sys")
        os.symlink("/etc", path) if kind == "link" else open(path, "w", encoding="utf-8").close()
    os.chown(bare, DISK_BASE, DISK_BASE)
    cases = [
        ({"id": "a/b"}, errno.EINVAL), ({"id": ""}, errno.EINVAL), ({"id": "x" * 65}, errno.EINVAL), ({"layers": []}, errno.EINVAL),
        ({"layers": ["/nowhere"]}, errno.ENOENT), ({"layers": [engine.base, "/nowhere"]}, errno.ENOENT), ({"layers": ["/etc/passwd"]}, None),
        ({"layers": [engine.base, "/proc"]}, None), ({"layers": [engine.base] * 101}, errno.EINVAL),
        ({"layers": [engine.base, "/sys"]}, None), ({"layers": [os.path.join(engine.state, "sys-link")]}, None),
        ({"layers": [os.path.join(engine.state, "sys-file")]}, None), ({"layers": [bare]}, None), ({"net": "/dev/null"}, None),
        ({"net": "/proc/self/ns/mnt"}, None), ({"user": "nobody-here"}, errno.EINVAL), ({"cwd": "relative"}, errno.EINVAL),
        ({"cwd": "/bin/sh"}, None), ({"hostname": "a b"}, errno.EINVAL), ({"memory": 1}, None), ({"output": "/"}, None),
        ({"layers": [engine.base, engine.base]}, None),
    ]
    count = engine.driver.good("image", reference="oci:" + engine.source("base"), folder=engine.state, local=True)["descriptors"]
    for change, number in cases:
        spec = {**engine.spec(), **change}
        answer = engine.driver("create", **spec)
        if answer.get("ok"):  # the kernel takes it
            assert change in ({"layers": [engine.base, engine.base]}, {"layers": [bare]}, {"output": "/"}), change
            engine.driver.good("free", id=spec["id"])
        else:
            assert answer["text"] and (number is None or answer["error"] == -number), (change, answer)
        assert engine.driver("pause", id="none")["descriptors"] == count, change
        state.check(spec, change)
    for mode in (0o755, 0o710):
        spec = engine.spec()
        os.chmod(spec["folder"], mode)
        assert engine.driver("create", **spec)["error"] == -errno.EPERM
        state.check(spec, mode)


FAKES = {
    "fails": "echo no way >&2; exit 1",
    "does nothing": "exit 0",
    "dies": "kill -9 $$",
    "wrong pid": "for a; do case $a in --pid-file=*) echo 1 > ${a#--pid-file=};; esac; done; exit 0",
    "strange pid": "for a; do case $a in --pid-file=*) echo x > ${a#--pid-file=};; esac; done; exit 0",
    "no namespaces": "sleep 0.5 & for a; do case $a in --pid-file=*) echo $! > ${a#--pid-file=};; esac; done; exit 0",
    "no annotation": "for a; do case $a in --bundle=*) b=${a#--bundle=};; esac; done; "
                     "sed -i -e 's/run.oci.seccomp_bpf_data/other/' $b/config.json; exec CRUN \"$@\"",
    "shares": "for a; do case $a in --bundle=*) b=${a#--bundle=};; esac; done; "
              "sed -i -e 's/{\"type\":\"ipc\"},//' $b/config.json; exec CRUN \"$@\"",
    "new privileges": "for a; do case $a in --bundle=*) b=${a#--bundle=};; esac; done; "
                      "sed -i -e 's/\"noNewPrivileges\":true/\"noNewPrivileges\":false/' $b/config.json; exec CRUN \"$@\"",
}


def faked(engine, text):
    """A driver for which crun is a script; CRUN in it is crun."""
    crun, fake = engine.source("crun"), engine.source("fake")
    for path in (crun, fake):
        if os.path.exists(path):
            os.unlink(path)
    with open("/usr/bin/crun", "rb") as file, open(crun, "wb") as copy:
        copy.write(file.read())
    with open(fake, "w", encoding="utf-8") as file:
        file.write("#!/bin/sh\n" + text.replace("CRUN", crun) + "\n")
    for path in (crun, fake):
        os.chmod(path, 0o755)
    return Driver(["unshare", "--mount", "sh", "-c", f'mount --bind {fake} /usr/bin/crun && exec "$0"'])


# What crun does when the container is there, and how it ends then.
ENDS = {"well": ("CRUN \"$@\"", None), "late": ("CRUN \"$@\" && exec sleep 1", None),
        "badly": ("CRUN \"$@\" && sleep 0.3; echo after all >&2; exit 3", "crun: after all"),
        "badly at once": ("CRUN \"$@\"; echo after all >&2; exit 3", "crun: after all")}


@root_only
@pytest.mark.parametrize("name", ENDS)
def test_a_container_is_there_before_crun_has_ended(engine, name):
    text, failure = ENDS[name]
    driver, spec = faked(engine, text), engine.spec(argv=["/bin/sh", "-c", "exit 7"], early=True)
    state = State(engine)
    state.processes.add(driver.process.pid)
    answer = driver("create", **spec)
    if name == "badly at once" and not answer.get("ok"):  # it was seen to fail first
        assert failure in answer["text"], answer
    else:
        assert answer.get("ok"), answer
        driver.good("start", id=spec["id"])
        settled = driver("settle", id=spec["id"])
        assert settled.get("text") == failure if failure else settled.get("ok"), settled
        assert driver.good("wait", id=spec["id"])["status"] == 7  # nobody has taken it
        driver.good("free", id=spec["id"])
    assert os.listdir(spec["folder"]) == [] and cgroups() == state.groups
    driver.end()


@root_only
def test_a_container_ends_before_crun_has(engine):
    driver, spec = faked(engine, "CRUN \"$@\" && exec sleep 60"), engine.spec(early=True)
    state, begin = State(engine), time.monotonic()
    driver.good("create", **spec)
    driver.good("free", id=spec["id"])
    assert time.monotonic() - begin < 10
    assert os.listdir(spec["folder"]) == [] and cgroups() == state.groups
    driver.end()


@root_only
def test_a_crun_that_is_not_as_it_should_be(engine):
    for what, text in FAKES.items():
        driver = faked(engine, text)
        spec, state = engine.spec(), State(engine)
        answer = driver("create", **spec)
        assert answer.get("error") and answer["text"], (what, answer)
        state.processes.add(driver.process.pid)
        assert os.listdir(spec["folder"]) == [] and cgroups() == state.groups, what
        driver.end()
    driver = Driver(["unshare", "--mount", "sh", "-c", 'mount --bind /dev/null /usr/bin/crun && exec "$0"'])
    answer = driver("create", **engine.spec())
    assert answer["error"] == -errno.ENOPKG and "apt-get install crun" in answer["text"], answer
    driver.end()


@root_only
def test_killed_at_any_moment_it_is_cleaned(engine):
    before = mounts()
    for step in range(16):
        spec, driver = engine.spec(), Driver()
        driver.send("create", **spec)
        time.sleep(step * 0.012)
        driver.process.kill()
        driver.process.wait()
        for _ in range(2):
            engine.driver.good("clean", id=spec["id"], folder=spec["folder"])
        assert not os.path.exists(spec["folder"]) and not cgroups(), step
        end = time.monotonic() + 10
        while [text for text in processes().values() if spec["id"] in text or "/run/penstock/init" in text]:
            assert time.monotonic() < end, processes()
            time.sleep(0.02)
    assert mounts() == before
    container = engine.container()
    container.good("start")
    container.sh("cd /data; i=0; while [ $i -lt 300 ]; do mkdir d; touch d/x; cd d; i=$((i+1)); done")
    container.good("pause")
    assert engine.driver("clean", id=container.spec["id"], folder=container.spec["folder"])["error"] == -errno.EBUSY
    container.good("free")


@root_only
def test_many_cycles_leave_nothing(engine):
    before = mounts()
    counts = set()
    for _ in range(15):
        spec = engine.spec()
        counts.add(engine.driver.good("time", **spec)["descriptors"])
        assert os.listdir(spec["folder"]) == []
    assert len(counts) == 1 and mounts() == before and not cgroups(), counts


@root_only
def test_version_one_alone(engine):
    """Where version 2 of cgroups is not mounted at all."""
    second = [line.split()[1] for line in open("/proc/self/mounts", encoding="utf-8") if line.split()[2] == "cgroup2"]
    text = " && ".join(f"umount {place}" for place in second) or "true"
    driver = Driver(["unshare", "--mount", "sh", "-c", text + ' && exec "$0"'])
    spec = engine.spec(memory=64 << 20)
    driver.good("create", **spec)
    driver.good("start", id=spec["id"])
    assert driver.good("exec", id=spec["id"], argv=["id", "-u"])["output"] == "0\n"
    driver.good("free", id=spec["id"])
    driver.end()
    assert not cgroups()


def test_an_ordinary_user_is_told(lab, tmp_path):
    folder = str(tmp_path)
    user = [] if lab_module.starter() == "user" else ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    program = lab.path("bin/container-driver")
    with open(engine_module.programs()[0], "rb") as source, open(program, "wb") as copy:
        copy.write(source.read())
    os.chmod(program, 0o755)
    process = subprocess.run([*user, program] if user else [program], input='{"op":"image","reference":"x","folder":"%s"}\n'
                             '{"op":"create","id":"x","folder":"%s","layers":["/"],"net":"/proc/self/ns/net"}\n' % (folder, folder),
                             stdout=subprocess.PIPE, text=True, check=True)
    # Root of a namespace with one user is told by what it cannot do.
    assert process.stdout.count('"error"') == 2 and (not user or process.stdout.count("need root") == 2), process.stdout
