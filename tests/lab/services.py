# SPDX-License-Identifier: Apache-2.0
"""Servers of the test internet that few tests need: OpenSSH, PostgreSQL, Redis, rsync (Debian's programs, on every address),
bound.py and grpc_server.py (on addresses of their own). The programs run as the lab's ordinary user. Lab.service(NAME) starts one the first time it is asked for."""
import glob
import os
import shutil
import subprocess

import sites
import zone

HERE = os.path.dirname(os.path.abspath(__file__))
CONFIGS = {
    "ssh": "HostKey {dir}/hostkey\nAuthorizedKeysFile {dir}/key.pub\nStrictModes no\nUsePAM no\nPidFile none\n"
           "PasswordAuthentication no\nPort 22\nListenAddress 0.0.0.0\nListenAddress ::\n"
           "SetEnv GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0=*\n",
    "rsync": "use chroot = no\n[lab]\npath = {dir}/files\nread only = yes\n",
}


def ssh(service):
    for name in ("hostkey", "key"):
        service.run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", service.path(name))
    return [need("sshd", "openssh-server"), "-D", "-e", "-f", service.config()]


def psql(service):
    found = sorted(glob.glob("/usr/lib/postgresql/*/bin"))
    if not found:
        need("initdb", "postgresql")
    service.run(found[-1] + "/initdb", "--pgdata", service.path("data"), "--auth", "trust", "--username", "lab", "--no-sync",
                "--no-instructions", "--no-locale", "--encoding", "UTF8")
    return [found[-1] + "/postgres", "-D", service.path("data"), "-k", service.path(""), "-p", str(zone.PORT_PSQL), "-F",
            "-c", "listen_addresses=0.0.0.0,::", "-c", "shared_buffers=8MB", "-c", "hba_file=" + service.file(
                "hba", "host all all 0.0.0.0/0 trust\nhost all all ::/0 trust\n")]


def redis(service):
    return [need("redis-server", "redis-server"), "--port", str(zone.PORT_REDIS), "--bind", "0.0.0.0", "::", "--save", "",
            "--protected-mode", "no", "--dir", service.path("")]


def rsync(service):
    os.mkdir(service.path("files"))
    service.file("files/hello", sites.HELLO + "\n")
    return [need("rsync", "rsync"), "--daemon", "--no-detach", "--port", str(zone.PORT_RSYNC), "--config", service.config()]


def bound(service):
    """With its certificates: good, expired, of another name, of itself, of a CA that nobody knows."""
    signed = [("expired", "expired.example", "-1", "ca/ca.pem", "tls/ca.key"),
              ("wrongname", "other.example", "7", "ca/ca.pem", "tls/ca.key"),
              ("selfsigned", "selfsigned.example", "7", None, None),
              ("unknownca", "unknownca.example", "7", "run/bound/selfsigned.pem", "run/bound/selfsigned.key")]
    copy_certificate(service)
    for name, host, days, certificate, key in signed:
        request, target, own = (service.path(name + end) for end in (".csr", ".pem", ".key"))
        openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=" + host, "-out", request,
                "-keyout", own)
        signer = ["-CA", service.lab.path(certificate), "-CAkey", service.lab.path(key)] if certificate else ["-signkey", own]
        extensions = service.file("extensions", f"subjectAltName=DNS:{host}\nsubjectKeyIdentifier=hash\n" +
                                  ("" if certificate else "basicConstraints=critical,CA:TRUE\n"))
        openssl("x509", "-req", "-in", request, "-out", target, "-days", days, "-extfile", extensions, *signer)
    return ["/usr/bin/python3", "-B", os.path.join(HERE, "bound.py"), service.dir]


def grpc(service):
    copy_certificate(service)
    return ["/usr/bin/python3", "-B", os.path.join(HERE, "grpc_server.py"), service.dir]


def copy_certificate(service):
    for name in ("server.pem", "server.key"):
        shutil.copy(service.lab.path("tls/" + name), service.dir)


def openssl(*arguments):
    subprocess.run(["openssl", *arguments], check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                   stderr=subprocess.PIPE, timeout=60)


SERVICES = {"ssh": (ssh, zone.PORT_SSH), "psql": (psql, zone.PORT_PSQL), "redis": (redis, zone.PORT_REDIS),
            "rsync": (rsync, zone.PORT_RSYNC), "bound": (bound, 0), "grpc": (grpc, 0)}  # 0: on addresses of its own; it says when it is ready


def need(program, package):
    path = shutil.which(program)
    if not path:
        raise FileNotFoundError(f"program '{program}' is missing; apt-get install {package}")
    return path


class Service:
    """The folder of one service, which belongs to the lab's ordinary user."""

    def __init__(self, lab, name):
        self.lab, self.name, self.dir = lab, name, lab.path("run/" + name)
        os.mkdir(self.dir)
        lab.give(self.dir)

    def path(self, name):
        return os.path.join(self.dir, name)

    def file(self, name, text):
        self.lab.write(self.path(name), text)
        return self.path(name)

    def config(self):
        return self.file("config", CONFIGS[self.name].format(dir=self.dir))

    def run(self, *argv):
        subprocess.run(self.lab.as_user("user", list(argv)), check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                       timeout=60)

    def command(self):
        """Prepares what it needs; returns the command that runs it in the internet."""
        function, port = SERVICES[self.name]
        command = function(self)
        return self.lab.inside() + (self.lab.as_user("user", command) if port else command)  # beside nginx: as its user
