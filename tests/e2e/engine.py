# SPDX-License-Identifier: Apache-2.0
"""The container engine for test_container.py: images written by hand, a registry, the driver, and what may be left over."""
import gzip
import hashlib
import io
import json
import os
import select
import shutil
import signal
import subprocess
import tarfile
import tempfile
import time

import pytest

import lab as lab_module

DISK_BASE = 0x80000000  # who owns what containers have on disks
TIMEOUT = 40


def programs():
    folder = os.path.join(os.path.dirname(os.environ.get("PENSTOCK") or os.path.join(lab_module.PROJECT, "build", "penstock")),
                          "tests", "engine")
    return os.path.join(folder, "container-driver"), os.path.join(folder, "container-probe")


def entry(name, kind=tarfile.REGTYPE, data=b"", **fields):
    """One member of a layer."""
    info = tarfile.TarInfo(name)
    info.type, info.size, info.mode = kind, len(data), 0o755
    for key, value in fields.items():
        setattr(info, key, value)
    return info, data


def layer(members):
    text = io.BytesIO()
    with tarfile.open(fileobj=text, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for info, data in members:
            archive.addfile(info, io.BytesIO(data))
    return text.getvalue()


def busybox(*extra):
    """The members of a small root file system."""
    with open("/bin/busybox", "rb") as file:
        program = file.read()
    applets = ["sh", "ls", "cat", "id", "env", "echo", "rm", "mkdir", "mv", "ln", "sleep", "kill", "ps", "stat", "touch", "chmod",
               "chown", "readlink", "hostname", "true", "grep", "sync", "dd", "mkfifo", "pwd", "ulimit"]
    with open(programs()[1], "rb") as file:
        probe = file.read()
    folders = ["bin", "etc", "etc/ssl", "etc/ssl/certs", "root", "tmp", "home", "home/alice", "data", "data/deep", "usr"]
    return ([entry(name, tarfile.DIRTYPE, mode=0o1777 if name == "tmp" else 0o755) for name in folders] +
            [entry("bin/busybox", data=program), entry("bin/probe", data=probe)] +
            [entry(f"bin/{name}", tarfile.SYMTYPE, linkname="busybox") for name in applets] +
            [entry("etc/passwd", data=b"root:x:0:0:root:/root:/bin/sh\nalice:x:1000:1000::/home/alice:/bin/sh\n"
                   b"far:x:70000:70000::/:/bin/sh\n", mode=0o644),
             entry("etc/group", data=b"root:x:0:\nalice:x:1000:\nstaff:x:50:alice,bob\n", mode=0o644),
             entry("etc/resolv.conf", tarfile.SYMTYPE, linkname="../../../../../../../run/penstock-test-resolv"),
             entry("etc/hosts", tarfile.SYMTYPE, linkname="/run/penstock-test-hosts"),
             entry("bin/suid", data=b"#!/bin/sh\nid\n", mode=0o4755),
             entry("data/one", data=b"one\n", mode=0o640, uid=1000, gid=50), entry("data/two", data=b"two\n"),
             entry("data/deep/three", data=b"three\n"), entry("home/alice/own", data=b"mine\n", uid=1000, gid=1000)] + list(extra))


def write_image(path, layers, config=None):
    """An OCI layout with the tag "latest"."""
    blobs = os.path.join(path, "blobs", "sha256")
    os.makedirs(blobs)

    def blob(data):
        digest = hashlib.sha256(data).hexdigest()
        with open(os.path.join(blobs, digest), "wb") as file:
            file.write(data)
        return {"digest": "sha256:" + digest, "size": len(data)}

    parts = [blob(gzip.compress(data, 1, mtime=0)) for data in layers]
    document = {"architecture": "amd64" if os.uname().machine == "x86_64" else "arm64", "os": "linux", "config": config or {},
                "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(data).hexdigest() for data in layers]}}
    kind = "application/vnd.oci.image."
    manifest = {"schemaVersion": 2, "mediaType": kind + "manifest.v1+json",
                "config": {"mediaType": kind + "config.v1+json", **blob(json.dumps(document).encode())},
                "layers": [{"mediaType": kind + "layer.v1.tar+gzip", **part} for part in parts]}
    index = {"schemaVersion": 2, "manifests": [{"mediaType": kind + "manifest.v1+json", **blob(json.dumps(manifest).encode()),
                                                "annotations": {"org.opencontainers.image.ref.name": "latest"}}]}
    for name, text in {"oci-layout": {"imageLayoutVersion": "1.0.0"}, "index.json": index}.items():
        with open(os.path.join(path, name), "w", encoding="utf-8") as file:
            json.dump(text, file)
    return index["manifests"][0]["digest"]


def mounts():
    with open("/proc/self/mountinfo", encoding="utf-8") as file:
        return sorted(line.split(" ", 1)[1] for line in file)


def cgroup_mounts():
    with open("/proc/self/mounts", encoding="utf-8") as file:
        return [line.split()[1] for line in file if line.split()[2] in ("cgroup", "cgroup2")]


def is_foreign(group):
    """Whether its processes are those of another lab: the kernel counts them, and does not show them here."""
    def text(name):
        try:
            with open(os.path.join(group, name), encoding="utf-8") as file:
                return file.read().split()
        except OSError:
            return []
    shown, count = text("cgroup.procs"), text("pids.current")
    return not [pid for pid in shown if pid != "0"] and bool(shown or count and count != ["0"])


def cgroups():
    """Those of containers of this lab. What has no process is ours, unless it was there before us."""
    found = all_cgroups()
    foreign = {os.path.basename(group) for group in found if is_foreign(group)} | STALE
    return [group for group in found if os.path.basename(group) not in foreign]


def all_cgroups():
    found = []
    for place in cgroup_mounts():
        folder = os.path.join(place, "penstock")
        if os.path.isdir(folder):
            found += [os.path.join(folder, name) for name in os.listdir(folder) if os.path.isdir(os.path.join(folder, name))]
    return found


STALE = {os.path.basename(group) for group in all_cgroups()}


def processes():
    """All of the lab but kernel's and pytest's own."""
    found = {}
    for name in os.listdir("/proc"):
        try:
            with open(f"/proc/{name}/cmdline", "rb") as file:
                found[int(name)] = file.read().replace(b"\0", b" ").decode(errors="replace")
        except (ValueError, OSError):
            pass
    return found


class Keeper:
    """Stands for a keeper: a network namespace of a user namespace with one user."""

    def __init__(self):
        self.process = subprocess.Popen(["unshare", "--user", "--net", "sh", "-c", "echo; read line; exec sleep infinity"],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, preexec_fn=lab_module.die_with_parent)
        self.process.stdout.readline()
        for name in ("uid_map", "gid_map"):
            with open(f"/proc/{self.process.pid}/{name}", "w", encoding="utf-8") as file:
                file.write("1900000000 1900000000 1")
        self.net = f"/proc/{self.process.pid}/ns/net"

    def end(self):
        self.process.kill()
        self.process.wait()


class Driver:
    def __init__(self, enter=()):
        self.process = subprocess.Popen([*enter, programs()[0]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        preexec_fn=lab_module.die_with_parent)

    def send(self, op, **fields):
        self.process.stdin.write(json.dumps({"op": op, **fields}) + "\n")
        self.process.stdin.flush()

    def answer(self):
        if not select.select([self.process.stdout], [], [], TIMEOUT)[0]:
            pytest.fail(f"the driver did not answer within {TIMEOUT} s")
        line = self.process.stdout.readline()
        assert line, f"the driver ended: {self.process.wait()}"
        return json.loads(line)

    def __call__(self, op, **fields):
        self.send(op, **fields)
        return self.answer()

    def good(self, op, **fields):
        answer = self(op, **fields)
        assert answer.get("ok"), f"{op} {fields}: {answer}"
        return answer

    def end(self):
        self.process.stdin.close()
        assert self.process.wait(TIMEOUT) == 0


class Engine:
    """A state folder on a disk, as a node has it, and the image of most tests."""

    def __init__(self):
        self.state = tempfile.mkdtemp(prefix="penstock-engine-", dir="/var/tmp")
        self.keeper, self.driver, self.numbers = Keeper(), Driver(), iter(range(1, 10000))
        self.images = os.path.join(self.state, "sources")
        os.mkdir(self.images)
        self.registry = None
        self.digest = write_image(self.source("base"), [layer(busybox())],
                                  {"Cmd": ["-c", "id"], "Entrypoint": ["/bin/sh"], "Env": ["LAYER=base", "PATH=/bin"], "User": "alice",
                                   "WorkingDir": "/data"})
        self.base = self.image("oci:" + self.source("base"))["layer"]
        os.makedirs(os.path.join(self.state, "sandboxes"), 0o700)

    def source(self, name):
        return os.path.join(self.images, name)

    def image(self, reference, driver=None, **fields):
        return (driver or self.driver).good("image", reference=reference, folder=self.state, local=True, **fields)

    def spec(self, layers=None, **fields):
        number = f"i{os.urandom(4).hex()}-{next(self.numbers)}"
        folder = os.path.join(self.state, "sandboxes", number)
        os.mkdir(folder, 0o700)
        return {"id": number, "folder": folder, "layers": layers or [self.base], "net": self.keeper.net,
                "environment": ["PATH=/bin", "IMAGE=yes"], **fields}

    def container(self, layers=None, **fields):
        return Container(self, self.spec(layers, **fields))

    def serve(self):
        """A registry on loopback. Returns its name."""
        folder, port = os.path.join(self.state, "registry"), 5099
        os.mkdir(folder)
        config = os.path.join(self.state, "registry.yml")
        with open(config, "w", encoding="utf-8") as file:
            file.write(f"version: 0.1\nlog:\n  level: error\nstorage:\n  filesystem:\n    rootdirectory: {folder}\n"
                       f"http:\n  addr: 127.0.0.1:{port}\n")
        self.registry = subprocess.Popen(["docker-registry", "serve", config], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                         preexec_fn=lab_module.die_with_parent)
        name, end = f"127.0.0.1:{port}", time.monotonic() + 30
        while subprocess.run(["skopeo", "--insecure-policy", "copy", "-q", "--dest-tls-verify=false",
                              "oci:" + self.source("base") + ":latest", f"docker://{name}/library/base:one"],
                             stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False).returncode:
            assert time.monotonic() < end, "the registry does not take an image"
            time.sleep(0.1)
        return name

    def end(self):
        self.driver.end()
        self.keeper.end()
        if self.registry:
            self.registry.send_signal(signal.SIGKILL)
            self.registry.wait()
        left = cgroups()
        shutil.rmtree(self.state)
        assert not left, left


class Container:
    def __init__(self, engine, spec):
        self.engine, self.spec, self.driver = engine, spec, engine.driver
        self.pid = self.driver.good("create", **spec)["pid"]

    def __call__(self, op, **fields):
        return self.driver(op, id=self.spec["id"], **fields)

    def good(self, op, **fields):
        return self.driver.good(op, id=self.spec["id"], **fields)

    def run(self, *argv, **fields):
        return self.good("exec", argv=list(argv), **fields)

    def sh(self, text, **fields):
        answer = self.run("/bin/sh", "-c", text, **fields)
        return answer["output"]

    def disk(self, *names):
        return os.path.join(self.spec["folder"], "disk", "upper", *names)

    def __enter__(self):
        self.good("start")
        return self

    def __exit__(self, *_):
        self.good("free")
        assert os.listdir(self.spec["folder"]) == []
        os.rmdir(self.spec["folder"])
