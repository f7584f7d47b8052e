#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A test internet in namespaces, for root and for an ordinary user alike.

    tests/lab/lab run [--user] [--timeout SECONDS] -- CMD...    CMD on the "host" machine of the lab

Theory of operation. `enter()` replaces this process by `unshare`, whose child is the first process of a new PID, mount,
network, IPC and (for an ordinary user) user namespace, and dies with it (PR_SET_PDEATHSIG). When that first process ends,
by whatever cause, the kernel ends everything in its PID namespace and with it all namespaces, mounts and files of the
lab, which are anonymous; so there is nothing to clean up and nothing that can stay behind.

The network namespace of the first process is the "host", where penstock runs. A second one is the "internet". A veth pair
joins them. The internet answers on every address of the documentation ranges (local routes, no list of addresses); none
of them is an address of the host. All files are in a tmpfs that covers an empty folder (LAB_DIR).

Two kinds of user run commands: "root", only when the lab was started by real root, and "user": a plain uid without any
privilege. Started by an ordinary user, the lab's processes are root in its user namespace only, and "user" is one more
user namespace further in, where the uid is not 0.
"""
import argparse
import contextlib
import ctypes
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time

import services
import sites
import zone

HERE = os.path.dirname(os.path.abspath(__file__))
PROJECT = os.path.dirname(os.path.dirname(HERE))
PYTHON = "/usr/bin/python3"  # Debian's: the one that has python3-dnspython
INSIDE = "PENSTOCK_LAB"      # set inside the namespaces: "root" or "user", who started it
UID = 1000
BUNDLE = "/etc/ssl/certs/ca-certificates.crt"  # in the lab: its own CA, and no other
START_DEADLINE = 30.0
DEFAULT_TIMEOUT = 3600
PROGRAMS = {"ip": "iproute2", "nft": "nftables", "unshare": "util-linux", "nsenter": "util-linux", "setpriv": "util-linux",
            "nginx": "nginx-light", "openssl": "openssl", "git": "git", "mount": "mount"}
PASSED_ON = {"PATH", "TERM", "COLORTERM", "LANG", "TZ", "SHELL", "DEBIAN_FRONTEND", "PYTHONDONTWRITEBYTECODE"}
PASSED_ON_PREFIXES = ("LC_", "LAB_", "PENSTOCK", "ASAN_", "UBSAN_", "LSAN_")
RESOLV_CONF = f"nameserver {zone.ROUTER4}\nnameserver {zone.ROUTER6}\n"
HOSTS = "127.0.0.1 localhost\n::1 localhost ip6-localhost\n"
NSSWITCH = "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nnetworks: files\nprotocols: files\nservices: files\n"


class LabError(Exception):
    """One line: what is missing or failed, and what to do."""


# ---- entering the namespaces ----

def starter():
    """Who started the tests: "root", who runs what needs root whatever kinds() says, or "user"."""
    return os.environ.get(INSIDE) or ("root" if os.geteuid() == 0 else "user")


def kinds():
    """The kinds of user that commands can run as here; PENSTOCK_TEST_KINDS=user leaves root out (to save time)."""
    if os.environ.get("PENSTOCK_TEST_KINDS"):
        return os.environ["PENSTOCK_TEST_KINDS"].split(",")
    return ["root", "user"] if starter() == "root" else ["user"]


def enter(argv, timeout=DEFAULT_TIMEOUT):
    """Replaces this process by argv, run inside fresh namespaces for at most timeout seconds. Does not return."""
    need_programs()
    command = ["unshare", "--mount", "--net", "--ipc", "--uts", "--pid", "--fork", "--kill-child=KILL", "--mount-proc"]
    if os.geteuid() != 0:
        command += ["--user", "--map-root-user"]
    starter = "root" if os.geteuid() == 0 else "user"
    os.execvp(command[0], command + ["--", PYTHON, "-B", os.path.join(HERE, "lab.py"), "@init", str(timeout), starter] + argv)


def init(timeout, starter, argv):
    """The first process of the PID namespace: runs argv, reaps what is orphaned, ends with argv's status."""
    os.environ[INSIDE] = starter
    child = os.spawnvp(os.P_NOWAIT, argv[0], argv)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda received, frame: os.kill(child, received))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal has sent it to the child as well

    def expired(received, frame):
        print(f"lab: {argv[0]}: not finished after {timeout} s; ended", file=sys.stderr)
        os._exit(124)
    signal.signal(signal.SIGALRM, expired)
    signal.alarm(timeout)
    while True:
        pid, status = os.wait()
        if pid == child:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def need_programs():
    for program, package in PROGRAMS.items():
        if not shutil.which(program, path=search_path()):
            raise LabError(f"program '{program}' is missing; apt-get install {package}")
    if subprocess.run([PYTHON, "-c", "import dns.message"], stderr=subprocess.DEVNULL, check=False).returncode:
        raise LabError("Python module 'dns' is missing; apt-get install python3-dnspython")


def search_path():
    return os.environ.get("PATH", "/usr/bin:/bin") + ":/usr/sbin:/sbin"


# ---- the lab ----

def run(argv, text=None):
    done = subprocess.run(argv, input=text, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=30,
                          check=False)
    if done.returncode:
        raise LabError(f"{' '.join(argv)}: {done.stdout.strip() or done.returncode}")
    return done.stdout


class Lab:
    """The running lab. A context manager; must be used inside the namespaces (see enter())."""

    def __init__(self):
        if INSIDE not in os.environ:
            raise LabError("Lab() works inside the lab's namespaces only; start with tests/lab/lab run, or lab.enter()")
        self.starter = os.environ[INSIDE]
        self.servers = []
        self.services = set()
        self.internet = None
        self.dir = None

    def __enter__(self):
        os.environ["PATH"] = search_path()
        try:
            self.make_folders()
            self.make_certificates()
            self.make_internet()
            self.make_repository()
            sites.make(self.path("www"))
            self.start_servers()
            self.cover_etc()
        except BaseException:
            self.__exit__()
            raise
        os.environ.update(self.environment())
        return self

    def __exit__(self, *unused):
        for server in self.servers:
            server.kill()
        for server in self.servers:
            server.wait()
        self.servers.clear()

    def environment(self):
        return {"LAB_DIR": self.dir, "LAB_CA": self.ca, "LAB_DNS_LOG": self.dns_log, "LAB_HTTP_LOG": self.http_log}

    # -- files --

    def make_folders(self):
        """A tmpfs over a folder that nobody here needs."""
        wanted = [os.getcwd(), PROJECT]
        for folder in ("/srv", "/media", "/mnt"):
            if os.path.isdir(folder) and not any(path.startswith(folder + "/") for path in wanted):
                break
        else:
            raise LabError("none of /srv, /media, /mnt is free for the lab's files; work in another folder")
        run(["mount", "-t", "tmpfs", "-o", "mode=755,size=512m", "lab", folder])
        self.dir = os.path.join(folder, "lab")
        for name in ("", "ca", "tls", "run", "log", "www", "git", "bin", "home", "etc"):
            os.mkdir(self.path(name))
        self.ca = self.path("ca/ca.pem")
        self.dns_log, self.http_log = self.path("log/dns.log"), self.path("log/http.log")
        for log in (self.dns_log, self.http_log):
            self.write(log, "")
        for kind in kinds():
            for home in (self.home(kind), self.project(kind)):
                os.mkdir(home)
                if kind == "user":
                    self.give(home)

    def give(self, path):
        """Makes it belong to the ordinary user. (Started by one, everything does.)"""
        if self.starter == "root":
            os.chown(path, UID, UID)

    def path(self, name):
        return os.path.join(self.dir, name)

    def home(self, kind):
        return self.path("home/" + kind)

    def project(self, kind):
        """The working directory for commands of that kind of user; writable by it."""
        return os.path.join(self.home(kind), "project")

    @staticmethod
    def write(path, text):
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)

    def cover_etc(self):
        """The host's resolver configuration, users and trusted CAs, by bind mounts that only the lab sees."""
        with open("/etc/passwd", encoding="utf-8") as file:
            users = [line for line in file if line.split(":")[2] != str(UID)]
        with open("/etc/group", encoding="utf-8") as file:
            groups = [line for line in file if line.split(":")[2] != str(UID)]
        users += [f"{name}:x:{UID}:{UID}::{self.home('user')}:/bin/sh\n" for name in ("tester", "build")]
        groups.append(f"tester:x:{UID}:\n")
        for name, text in (("resolv.conf", RESOLV_CONF), ("hosts", HOSTS), ("nsswitch.conf", NSSWITCH),
                           ("passwd", "".join(users)), ("group", "".join(groups))):
            self.write(self.path("etc/" + name), text)
            target = os.path.realpath("/etc/" + name)
            if not os.path.exists(target):
                raise LabError(f"'/etc/{name}' does not exist; create it (it may be empty)")
            run(["mount", "--bind", self.path("etc/" + name), target])
        os.mkdir(self.path("etc/certs"))
        digest = run(["openssl", "x509", "-in", self.ca, "-noout", "-subject_hash"]).strip()
        for name in (os.path.basename(BUNDLE), digest + ".0"):
            shutil.copy(self.ca, self.path("etc/certs/" + name))
        run(["mount", "--bind", self.path("etc/certs"), os.path.dirname(BUNDLE)])

    def make_certificates(self):
        """An own CA, and one certificate with all names and addresses that are to verify."""
        names = ",".join([f"DNS:{name}" for name in zone.CERTIFICATE_NAMES] +
                         [f"IP:{address}" for address in zone.CERTIFICATE_ADDRESSES])
        config = self.path("tls/openssl.cnf")
        self.write(config, "[req]\ndistinguished_name=dn\n[dn]\n"
                           "[ca]\nbasicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign,cRLSign\n"
                           "subjectKeyIdentifier=hash\n"
                           f"[server]\nsubjectAltName={names}\nbasicConstraints=critical,CA:FALSE\n"
                           "keyUsage=critical,digitalSignature\nextendedKeyUsage=serverAuth\n"
                           "subjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid\n")
        base = ["openssl", "req", "-x509", "-config", config, "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
                "-nodes", "-days", "7"]
        signer = ["-CA", self.ca, "-CAkey", self.path("tls/ca.key")]
        for section, subject, certificate, key, extra in (
                ("ca", "/CN=Penstock lab CA", self.ca, "tls/ca.key", []),
                ("server", "/CN=lab server", self.path("tls/server.pem"), "tls/server.key", signer)):
            run(base + ["-extensions", section, "-subj", subject, "-out", certificate, "-keyout", self.path(key)] + extra)

    def make_repository(self):
        """octo/hello.git and others: one commit with one file."""
        for name in ("hello", "public", "other"):
            self.make_bare(self.path(f"git/octo/{name}.git"))
        with open(self.path("www/50M"), "wb") as file:
            file.truncate(50 * 1000 * 1000)

    @staticmethod
    def make_bare(bare):
        stream = ("commit refs/heads/main\ncommitter Lab <lab@example.com> 1700000000 +0000\ndata 6\nfirst\n"
                  "M 100644 inline README\ndata 10\nhello git\n\n")
        run(["git", "init", "--quiet", "--bare", "--initial-branch=main", bare])
        run(["git", "-C", bare, "fast-import", "--quiet"], stream)
        run(["git", "-C", bare, "update-server-info"])

    # -- network --

    def make_internet(self):
        """The second network namespace, the link, addresses, routes and addresses that misbehave."""
        holder = subprocess.Popen(["unshare", "--net", "sleep", "infinity"])
        self.servers.append(holder)
        self.internet = f"/proc/{holder.pid}/ns/net"
        deadline = time.monotonic() + START_DEADLINE
        while os.readlink(self.internet) == os.readlink("/proc/self/ns/net"):
            if holder.poll() is not None or time.monotonic() > deadline:
                raise LabError("the internet's network namespace could not be made")
            time.sleep(0.005)
        self.settings([])
        self.settings(self.inside())
        run(["ip", "link", "add", "uplink", "type", "veth", "peer", "name", "host", "netns", str(holder.pid)])
        self.batch([], [
            "link set lo up", "link set uplink up",
            f"addr add {zone.HOST4}/24 dev uplink", f"addr add {zone.OWN4}/32 dev uplink",
            f"addr add {zone.HOST6}/64 dev uplink nodad", f"addr add {zone.OWN6}/64 dev uplink nodad",
            f"route add default via {zone.ROUTER4} src {zone.HOST4}",
            f"route add default via {zone.ROUTER6} src {zone.HOST6}"])
        self.batch(self.inside(), [
            "link set lo up", "link set host up",
            f"addr add {zone.ROUTER4}/24 dev host", f"addr add {zone.ROUTER6}/64 dev host nodad",
            f"route add {zone.OWN4}/32 dev host"] +
            [f"route add local {prefix} dev lo" for prefix in zone.PUBLIC4 + zone.PRIVATE4] +
            [f"route add local {prefix} dev lo" for prefix in zone.PUBLIC6 + zone.PRIVATE6])
        run(self.inside() + ["nft", "-f", "-"], f"""table inet lab {{ chain input {{ type filter hook input priority 0;
            ip daddr {zone.DEAD4} drop; ip6 daddr {zone.DEAD6} drop;
            ip daddr {zone.REFUSED4} meta l4proto tcp reject with tcp reset;
            ip6 daddr {zone.REFUSED6} meta l4proto tcp reject with tcp reset;
            ip daddr {zone.UNREACHABLE4} reject with icmpx type host-unreachable;
            ip6 daddr {zone.UNREACHABLE6} reject with icmpx type host-unreachable; }}; }}\n""")

    def inside(self):
        """Prefix of a command that runs in the internet."""
        return ["nsenter", f"--net={self.internet}", "--"]

    @staticmethod
    def batch(prefix, lines):
        run(prefix + ["ip", "-batch", "-"], "\n".join(lines) + "\n")

    @staticmethod
    def settings(prefix):
        values = {"net/ipv4/tcp_congestion_control": "reno", "net/ipv4/icmp_ratelimit": "0", "net/ipv6/icmp/ratelimit": "0",
                  "net/ipv6/conf/all/accept_dad": "0", "net/ipv6/conf/default/accept_dad": "0",
                  "net/ipv6/conf/all/disable_ipv6": "0", "net/ipv6/conf/default/disable_ipv6": "0",
                  # Servers bind to and answer from addresses that are local by their route only.
                  "net/ipv6/ip_nonlocal_bind": "1" if prefix else "0",
                  "net/ipv4/ip_unprivileged_port_start": "0" if prefix else "1024",
                  # All users may send echo requests, as on most distributions; in a user namespace, all that there are.
                  "net/ipv4/ping_group_range": "0 2147483647" if os.environ[INSIDE] == "root" else "0 0"}
        run(prefix + ["sh", "-ec", "".join(f"echo {value} >/proc/sys/{name}\n" for name, value in values.items())])

    # -- servers --

    def start_servers(self):
        for name, target in (("nginx.conf.in", "run/nginx.conf"), ("locations.conf.in", "run/locations.conf")):
            with open(os.path.join(HERE, name), encoding="utf-8") as file:
                self.write(self.path(target), file.read().replace("@DIR@", self.dir))
        python = [PYTHON, "-B", "-X", "faulthandler"]
        ready = [self.start(self.inside() + python + [os.path.join(HERE, "dns_server.py"), self.dns_log]),
                 self.start(self.inside() + python + [os.path.join(HERE, "servers.py"), "internet", self.dir]),
                 self.start(python + [os.path.join(HERE, "servers.py"), "host", self.dir])]
        nginx = self.start(self.inside() + ["nginx", "-c", self.path("run/nginx.conf"), "-e", self.path("log/nginx-error.log")])
        deadline = time.monotonic() + START_DEADLINE
        for server in ready:
            self.wait(server, deadline, self.says_ready(server))
        self.wait(nginx, deadline, lambda: connects("198.51.100.10", 443))

    def start(self, argv):
        server = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=open(self.path("log/servers.log"), "a", encoding="utf-8"), text=True)
        self.servers.append(server)
        return server

    @staticmethod
    def says_ready(server):
        fd, said = server.stdout.fileno(), bytearray()
        os.set_blocking(fd, False)

        def ready():  # the line may come in pieces (PYTHONUNBUFFERED), which a text file that would block loses
            with contextlib.suppress(BlockingIOError):
                said.extend(os.read(fd, 64))
            return said == b"ready\n"
        return ready

    def wait(self, server, deadline, is_ready):
        while not is_ready():
            if server.poll() is not None or time.monotonic() > deadline:
                how = f"ended with {server.returncode}"
                if server.poll() is None:
                    how = "gave no sign in time"
                    server.send_signal(signal.SIGABRT)  # Python's own says where it was
                    server.wait()
                with open(self.path("log/servers.log"), encoding="utf-8") as log:
                    raise LabError(f"{' '.join(server.args)}: did not start ({how}): {log.read().strip()[-2000:]}")
            time.sleep(0.01)

    def service(self, name):
        """Starts a server of services.py, unless it runs. Returns its folder."""
        if name not in self.services:
            process = self.start(services.Service(self, name).command())
            port = services.SERVICES[name][1]
            if port:
                def ready():
                    return connects("198.51.100.10", port) and connects("2001:db8:100::10", port)
            else:  # nginx is on its port too
                ready = self.says_ready(process)
            self.wait(process, time.monotonic() + START_DEADLINE, ready)
            self.services.add(name)
        return self.path("run/" + name)

    # -- commands --

    def as_user(self, kind, argv):
        """argv, prefixed so that it runs as that kind of user, in the very process that is started."""
        if kind == "root":
            if self.starter != "root":
                raise LabError("only a lab that root started can run commands as root")
            return argv
        if self.starter == "root":
            return ["setpriv", f"--reuid={UID}", f"--regid={UID}", "--clear-groups", "--"] + argv
        return ["unshare", "--user", f"--map-user={UID}", f"--map-group={UID}", "--"] + argv

    def user_environment(self, kind):
        """The environment of such a command, as a new user has it: nothing that steers programs to what this machine uses
        instead of the Internet, the kind's own home folder, and the lab's CA for Node, which brings CAs of its own."""
        names = {"root": "root", "user": "tester"}
        env = {name: value for name, value in os.environ.items()
               if name != INSIDE and (name in PASSED_ON or name.startswith(PASSED_ON_PREFIXES))}
        return {**env, **self.environment(), "NODE_EXTRA_CA_CERTS": BUNDLE,
                "HOME": self.home(kind), "USER": names[kind], "LOGNAME": names[kind],
                "LAB_PROJECT": self.project(kind), "PENSTOCK_LAB_KIND": kind}

    # -- what the servers saw --

    def dns_queries(self, name=None):
        """The queries logged so far, [{time, server, transport, name, type}], of one name or of all."""
        return [entry for entry in json_lines(self.dns_log) if name is None or entry["name"] == name]

    def credentials(self, **wanted):
        """The requests that github.py has logged, bound.py and grpc_server.py what they have."""
        entries = [entry for path in ("log/credentials.log", "run/bound/bound.log", "run/grpc/grpc.log")
                   if os.path.exists(self.path(path)) for entry in json_lines(self.path(path))]
        entries.sort(key=lambda entry: entry["time"])
        return [entry for entry in entries if all(entry.get(key) == value for key, value in wanted.items())]

    def http_requests(self, uri=None):
        return [entry for entry in json_lines(self.http_log) if uri is None or entry["uri"] == uri]


def json_lines(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        return [json.loads(line) for line in file if line.endswith("\n")]


def connects(address, port):
    try:
        socket.create_connection((address, port), 0.2).close()
        return True
    except OSError:
        return False


def die_with_parent():
    """For preexec_fn: SIGKILL when the parent ends."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


# ---- command line ----

def command_run(args):
    if INSIDE not in os.environ:
        enter([PYTHON, "-B", os.path.join(HERE, "lab.py")] + sys.argv[1:], args.timeout)
    with Lab() as lab:
        kind = "user" if args.user or lab.starter == "user" else "root"
        command = subprocess.Popen(lab.as_user(kind, args.command), env=lab.user_environment(kind), preexec_fn=die_with_parent)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, lambda number, frame: command.send_signal(number))
        code = command.wait()
        return code if code >= 0 else 128 - code


def main():
    if sys.argv[1:2] == ["@init"]:
        return init(int(sys.argv[2]), sys.argv[3], sys.argv[4:])
    parser = argparse.ArgumentParser(prog="lab", description="A test internet in namespaces.")
    verbs = parser.add_subparsers(dest="verb", required=True)
    verb = verbs.add_parser("run", help="run a command on the lab's host")
    verb.add_argument("--user", action="store_true", help="as an ordinary user also when started by root")
    verb.add_argument("--timeout", type=int, default=DEFAULT_TIMEOUT, help="seconds after which everything is ended")
    verb.add_argument("command", nargs="+")
    try:
        return command_run(parser.parse_args())
    except LabError as error:
        print(f"lab: {error}", file=sys.stderr)
        return 125


if __name__ == "__main__":
    sys.exit(main())
