# SPDX-License-Identifier: Apache-2.0
"""The programs that people run in sandboxes, as data: how each is started, and what its user sees when it is refused.
test_client_matrix.py tries all of it; CLIENTS.md is its print:
PYTHONPATH=tests/lab /usr/bin/python3 tests/e2e/clients.py >tests/e2e/CLIENTS.md"""
import subprocess
from typing import NamedTuple

import zone

PYTHON = "/usr/bin/python3 clients/fetch.py "
NODE = "node clients/fetch.js "
GO = "env GODEBUG=netdns={} clients/fetch-go {{url}}"
JAVA = "java -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto -cp clients Fetch "
SSH = "ssh -F none -i clients/key -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o BatchMode=yes"

# The cases that a client is tried in, with the host of each; fewer for clients that are slow to start.
ALLOWED = {"v4": "v4.example", "v6": "v6.example", "both": "both.example"}
REFUSED = {"name": "denied.example", "port4": "v4.example", "port6": "v6.example", "addr4": "203.0.113.9",
           "addr6": "2001:db8:100::9"}
SLOW = ("v4", "v6", "name", "port6", "addr4")
SLOW_AS_ROOT = ("both", "name", "port6")

NXDOMAIN, REFUSED_CONNECT = "Name or service not known", "Connection refused"
ALERT, ALERT_GNUTLS = "unrecognized name", "The server name sent was not recognized"
SSL_PYTHON = "[SSL: TLSV1_UNRECOGNIZED_NAME]"
FORBIDDEN = '"error":"egress_denied"'


class Client(NamedTuple):
    name: str
    package: str        # Debian's
    command: str        # {url}, or {host}, {at} (host as in a URL, with its port) and {port}
    success: str        # in its output
    status: tuple       # its exit status when refused: unlisted name, unlisted port, unlisted address
    seen: tuple         # a text that its user sees then, in the same order
    protocol: str = "https"
    port: int = 443
    service: str = ""   # of tests/lab/services.py
    slow: bool = False  # to start
    remark: str = ""


CLIENTS = [
    Client("curl", "curl", "curl -sS {url}", "lab {host}", (6, 7, 35),
           ("Could not resolve host", "Couldn't connect to server", ALERT)),
    Client("curl, plain HTTP", "curl", "curl -sS --fail-with-body {url}", "lab {host}", (6, 7, 22),
           ("Could not resolve host", "Couldn't connect to server", FORBIDDEN), "http", 80),
    Client("pycurl (libcurl with GnuTLS)", "python3-pycurl", PYTHON + "pycurl {url}", "lab {host}", (1, 1, 1),
           ("Could not resolve host", "Couldn't connect to server", ALERT_GNUTLS)),
    Client("wget", "wget", "wget -nv -O- {url}", "lab {host}", (4, 4, 4),
           ("unable to resolve host address", REFUSED_CONNECT, ALERT_GNUTLS)),
    Client("git", "git", "git ls-remote {url}octo/hello.git", "refs/heads/main", (128, 128, 128),
           ("Could not resolve host", "Couldn't connect to server", ALERT_GNUTLS)),
    Client("apt", "apt", "sh clients/apt.sh {url}debian clients/apt-{case}", "hello from the lab", (100, 100, 100),
           ("Could not resolve 'denied.example'", REFUSED_CONNECT, "A TLS fatal alert has been received"), slow=True,
           remark="tried with `Acquire::Retries=0`; by default it tries again for 7 s"),
    Client("apt, plain HTTP", "apt", "sh clients/apt.sh {url}debian clients/apt-http-{case}", "hello from the lab",
           (100, 100, 100),
           ("Could not resolve 'denied.example'", REFUSED_CONNECT, "403  Forbidden"), "http", 80, slow=True, remark="as apt"),
    Client("pip", "python3-pip", "pip3 download --no-cache-dir --retries 1 -d clients/pip-{case} -i {url}simple/ lab-hello",
           "Saved ./clients/pip", (1, 1, 1), (NXDOMAIN, REFUSED_CONNECT, SSL_PYTHON), slow=True,
           remark="tried with `--retries 1`; by default it tries again for 7 s"),
    Client("npm", "npm", "npm install --fetch-retries=0 --prefix clients/npm-{case} --cache clients/npm-{case} "
           "--registry={url} lab-hello",
           "added 1 package", (1, 1, 1), ("ENOTFOUND", "ECONNREFUSED", "tlsv1 unrecognized name"), slow=True,
           remark="tried with `--fetch-retries=0`; by default it tries again for over a minute"),
    Client("Node fetch", "nodejs", NODE + "fetch {url}", "lab {host}", (1, 1, 1),
           ("ENOTFOUND", "ECONNREFUSED", "ERR_SSL_TLSV1_UNRECOGNIZED_NAME"), slow=True),
    Client("Node https", "nodejs", NODE + "https {url}", "lab {host}", (1, 1, 1),
           ("ENOTFOUND", "ECONNREFUSED", "tlsv1 unrecognized name")),
    Client("Node http", "nodejs", NODE + "https {url}", "lab {host}", (1, 1, 0), ("ENOTFOUND", "ECONNREFUSED", FORBIDDEN),
           "http", 80),
    Client("Node WebSocket (ws)", "node-ws", NODE + "ws {url}", "lab echo", (1, 1, 1),
           ("ENOTFOUND", "ECONNREFUSED", "tlsv1 unrecognized name"), slow=True),
    Client("Python urllib", "python3", PYTHON + "urllib {url}", "lab {host}", (1, 1, 1),
           (NXDOMAIN, REFUSED_CONNECT, SSL_PYTHON)),
    Client("Python requests", "python3-requests", PYTHON + "requests {url}", "lab {host}", (1, 1, 1),
           (NXDOMAIN, REFUSED_CONNECT, SSL_PYTHON), slow=True),
    Client("Python httpx", "python3-httpx", PYTHON + "httpx {url}", "lab {host}", (1, 1, 1),
           (NXDOMAIN, REFUSED_CONNECT, SSL_PYTHON), slow=True),
    Client("Python aiohttp", "python3-aiohttp", PYTHON + "aiohttp {url}", "lab {host}", (1, 1, 1),
           (NXDOMAIN, "Connect call failed", SSL_PYTHON), slow=True),
    Client("Python asyncio", "python3", PYTHON + "asyncio {url}", "lab {host}", (1, 1, 1),
           (NXDOMAIN, "Connect call failed", SSL_PYTHON)),
    Client("Python websockets", "python3-websockets", PYTHON + "websockets {url}", "lab echo", (1, 1, 1),
           (NXDOMAIN, "Connect call failed", SSL_PYTHON)),
    Client("Go net/http", "golang-go", GO.format("go"), "lab {host}", (1, 1, 1),
           ("no such host", "connection refused", "tls: unrecognized name")),
    Client("Go net/http (libc's resolver)", "golang-go", GO.format("cgo"), "lab {host}", (1, 1, 1),
           ("no such host", "connection refused", "tls: unrecognized name")),
    Client("Java HttpClient", "default-jdk-headless", JAVA + "client {url}", "lab {host}", (1, 1, 1),
           ("UnresolvedAddressException", "java.net.ConnectException", "unrecognized_name"), slow=True),
    Client("Java URLConnection", "default-jdk-headless", JAVA + "connection {url}", "lab {host}", (1, 1, 1),
           ("UnknownHostException", REFUSED_CONNECT, "unrecognized_name"), slow=True),
    Client("ssh", "openssh-client", SSH + " -p {port} tester@{host} echo lab shell", "lab shell", (255, 255, 255),
           (NXDOMAIN, REFUSED_CONNECT, REFUSED_CONNECT), "tcp", zone.PORT_SSH, "ssh"),
    Client("git over ssh", "git", f"env 'GIT_SSH_COMMAND={SSH}' git ls-remote ssh://tester@{{at}}{{lab}}/git/octo/hello.git",
           "refs/heads/main", (128, 128, 128), (NXDOMAIN, REFUSED_CONNECT, REFUSED_CONNECT), "tcp", zone.PORT_SSH, "ssh"),
    Client("psql", "postgresql-client-15", "psql -At -U lab -d postgres -h {host} -p {port} -c 'select 6*7'", "42", (2, 2, 2),
           (NXDOMAIN, REFUSED_CONNECT, REFUSED_CONNECT), "tcp", zone.PORT_PSQL, "psql"),
    Client("redis-cli", "redis-tools", "redis-cli -h {host} -p {port} ping", "PONG", (1, 1, 1),
           (NXDOMAIN, REFUSED_CONNECT, REFUSED_CONNECT), "tcp", zone.PORT_REDIS, "redis"),
    Client("rsync", "rsync", "rsync rsync://{at}/lab/hello", "hello", (10, 10, 10), (NXDOMAIN, REFUSED_CONNECT, REFUSED_CONNECT),
           "tcp", zone.PORT_RSYNC, "rsync"),
]


# ---- CLIENTS.md ----

HEAD = """<!-- SPDX-License-Identifier: Apache-2.0 -->
# Clients

What people run, tried in a sandbox by `test_client_matrix.py`, unchanged and not told of any proxy; allowed to reach a host
that has IPv4 addresses, one that has IPv6 addresses, and one that has both; refused a name that is not listed, a port that
is not, and an address (each over both families). This page is printed by `clients.py` from the table that is tested; a
test compares the two.

All are Debian's packages. A refusal takes no longer than the client takes to start, except where the client tries again
by itself. With each refusal `penstock run` says on its stderr what it was and which option would allow it.

| client | package | tried with | IPv4, IPv6, both | unlisted name | unlisted port | unlisted address |
| --- | --- | --- | --- | --- | --- | --- |
"""


def cell(status, seen):
    return f"exit {status}, `{seen}`"


def row(client, version):
    cells = [client.name, client.package, version, "works", *map(cell, client.status, client.seen)]
    return "| " + " | ".join(cells) + " |\n"


def render(versions):
    """The page; versions: package -> the version that was tried."""
    remarks = "".join(f"- {client.name}: {client.remark}.\n" for client in CLIENTS if client.remark)
    return HEAD + "".join(row(client, versions[client.package]) for client in CLIENTS) + "\n" + remarks + TAIL


TAIL = """- Chromium (`chromium --headless=new --no-sandbox`, tested by `test_browser.py`): pages work over both families; what they
  load from other hosts needs `dns: {names: real}`, since Chromium takes synthetic addresses for those of a local network.
  DNS over HTTPS and QUIC are refused at once; it goes on with the system's resolver and TCP. What is refused shows as
  `ERR_CONNECTION_REFUSED`, and an unlisted name as `ERR_INTERNET_DISCONNECTED`, since there is no network interface but
  `lo`. Names that Chromium asks for by itself (updates, extensions) are refused and reported like others.
- Clients that are slow to start are tried in fewer cases, and as root in fewer still.
"""


def installed_versions():
    done = subprocess.run(["dpkg-query", "-W", "-f", "${Package} ${Version}\\n"], stdout=subprocess.PIPE, text=True, check=True)
    known = dict(line.split() for line in done.stdout.splitlines() if len(line.split()) == 2)
    return {client.package: known.get(client.package) or asked_version(client.package) for client in CLIENTS}


def asked_version(program):
    """Of one that was installed in another way than by its package."""
    return subprocess.run(["/usr/bin/" + program, "--version"], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    print(render(installed_versions()), end="")
