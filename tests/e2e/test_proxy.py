# SPDX-License-Identifier: Apache-2.0
"""`run --proxy`: an HTTP and a SOCKS5 proxy inside, for tools that insist on one. The verdicts are those of connections."""
import json
import os
import re
import shlex
import subprocess
import time

import pytest

import zone
from lab import json_lines
from test_http import BAD, SMUGGLED

HTTP, HTTP6, SOCKS = "http://192.0.0.1:3128", "http://[fd5a:91c3:7e24:1::1]:3128", "socks5h://192.0.0.1:1080"
POLICY = {"allow": [{"host": name} for name in ("both.example", "v4.example", "v6.example", "github.com", "nosuch.test", "refused.example",
                                                "unreachable.example", "refusedv6.example", "private.example", "loopback.example")] +
          [{"host": "mirror.test", "protocol": "http"}, {"host": "other.example", "protocol": "http", "ports": [80, 8000]},
           {"host": "db.example", "protocol": "tcp", "ports": [zone.PORT_DB]}, {"cidr": "203.0.113.0/24"}, {"cidr": "2001:db8:100:9::/64"}]}


def run(box, policy, *command, **options):
    """penstock run --proxy"""
    if isinstance(policy, dict):
        policy = "--policy " + box.policy_file({"version": 1, **policy})
    return box.run("--proxy " + policy, *command, **options)


def script(box, policy, commands, **options):
    """Shell commands in one sandbox; what each printed, and the Result."""
    text = "\n".join(f"{{ {command}; }} 2>&1; code=$?; echo; echo '=====' $code" for command in commands)
    result = run(box, policy, "sh", "-c", text, **options)
    parts = re.findall(r"(?s)(.*?)\n===== (\d+)\n", result.out)
    assert len(parts) == len(commands), result
    return [(int(code), out) for out, code in parts], result


RAW = """import json, socket, sys, threading
def exchange(number, port, text):
    data = b""
    with socket.create_connection(("192.0.0.1", port), 10) as s:
        try:
            s.sendall(text.encode("latin-1"))
            s.settimeout(1.5)
            while len(data) < 1 << 20 and (chunk := s.recv(65536)):
                data += chunk
        except ConnectionResetError:
            data += b"<reset>"
        except socket.timeout:
            data += b"<timeout>"
    answers[number] = data.decode("latin-1")
messages = json.loads(sys.argv[1])
answers = [None] * len(messages)
threads = [threading.Thread(target=exchange, args=(number, *message)) for number, message in enumerate(messages)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(json.dumps(answers))
"""


def raw(box, policy, *messages):
    """Each message, (port, text), on a connection of its own at the same time; what came back, what the servers saw, and the
    Result."""
    before = len(box.lab.http_requests())
    result = run(box, policy, "/usr/bin/python3", "-c", RAW, json.dumps(messages))
    return json.loads(result.out), box.lab.http_requests()[before:], result


def connect(target, then="", host=None):
    return 3128, f"CONNECT {target} HTTP/1.1\r\nHost: {host or target}\r\n\r\n{then}"


def socks(name, port, then=""):
    return 1080, f"\5\1\0\5\1\0\3{chr(len(name))}{name}{chr(port >> 8)}{chr(port & 255)}{then}"


def statuses(text):
    return re.findall(r"HTTP/1\.\d (\d{3}) ", text) or ["none"]


def get(path, host, last=True):
    return f"GET {path} HTTP/1.1\r\nHost: {host}\r\n" + ("Connection: close\r\n" if last else "") + "\r\n"


# ---- the environment ----

SPELLINGS = ["HTTP_PROXY", "http_proxy", "Http_Proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy", "NO_PROXY", "no_proxy",
             "FTP_PROXY", "ftp_proxy", "RSYNC_PROXY", "SOCKS_PROXY", "SOCKS_SERVER", "WSS_PROXY", "npm_config_proxy",
             "npm_config_https_proxy", "npm_config_noproxy", "NPM_CONFIG_PROXY", "YARN_HTTP_PROXY", "CGI_HTTP_PROXY", "GIT_PROXY_COMMAND"]


def test_environment(box):
    host = {name: "http://user:secret@10.9.9.9:3128" for name in SPELLINGS}
    def about_proxies(result):
        named = [line.partition("=") for line in result.out.split("\n")]
        return {f"{name}={value}" for name, _, value in named if "proxy" in name.lower() or "socks" in name.lower() or "10.9.9.9" in value}
    assert about_proxies(box.run("--network none", "env", env=host)) == set()
    found = about_proxies(run(box, "--network none", "env", env=host))
    wanted = {"HTTP_PROXY": HTTP, "HTTPS_PROXY": HTTP, "ALL_PROXY": HTTP, "SOCKS_PROXY": SOCKS, "NO_PROXY": "localhost,127.0.0.1,::1"}
    assert found == {f"{spelled}={value}" for name, value in wanted.items() for spelled in (name, name.lower())}


def test_closed_without_the_option(box):
    places = [(host, port) for host in ("192.0.0.1", "fd5a:91c3:7e24:1::1") for port in (3128, 1080)]
    answers, result = box.probe("--network all", *[["connect", host, port] for host, port in places])
    assert [answer["result"] for answer in answers] == ["ECONNREFUSED"] * 4, result
    opened = run(box, "--network none", "/usr/bin/python3", "-B", "probe.py",
                 json.dumps([["connect", host, port] for host, port in places] + [["connect", "192.0.0.1", 3129], ["connect", "192.0.0.2", 3128]]))
    assert [answer["result"] for answer in json.loads(opened.out)] == ["connected"] * 4 + ["ECONNREFUSED"] * 2, opened


def test_own_services_are_not_shadowed(box):
    (_, (code, out)), result = script(box, "--network none", [
        "/usr/bin/python3 -m http.server --bind 127.0.0.1 3128 >/dev/null & for i in $(seq 100); do nc -z 127.0.0.1 3128 && break; sleep 0.05; done",
        "curl -sS http://127.0.0.1:3128/probe.py; kill %1"])
    assert code == 0 or "Runs inside the sandbox" in out, result
    assert "Runs inside the sandbox" in out, result


@pytest.mark.parametrize("options,text", [("--type host --network all --proxy", "no gate"), ("--proxy=3128 --network none", "no value")])
def test_wrong_use(box, options, text):
    result = box.raw("run", *options.split(), "--", "true")
    assert result.code == 125 and text in result.err, result


# ---- curl: each way in, allowed and refused ----

REFUSED = 56  # curl: the proxy answered CONNECT with an error
CURL = [  # proxy or none for the environment's, arguments, exit status, text in the output
    (None, "https://both.example/", 0, "lab both.example"),
    (HTTP6, "https://both.example/", 0, "lab both.example"),
    (SOCKS, "https://both.example/", 0, "lab both.example"),
    ("socks5h://[fd5a:91c3:7e24:1::1]:1080", "https://both.example/", 0, "lab both.example"),
    ("socks5h://user:word@192.0.0.1:1080", "https://both.example/", 0, "lab both.example"),
    ("socks5://192.0.0.1:1080", "-4 https://both.example/", 0, "198.51.100.20:443"),
    ("socks5://[fd5a:91c3:7e24:1::1]:1080", "-6 https://both.example/", 0, "2001:db8:100::20:443"),
    ("http://user:word@192.0.0.1:3128", "https://v4.example/", 0, "198.51.100.21:443"),
    (None, "https://v6.example/", 0, "2001:db8:100::21:443"),
    (SOCKS, "https://v6.example/", 0, "2001:db8:100::21:443"),
    (None, "https://refusedv6.example/", 0, "lab refusedv6.example"),
    (None, "https://BOTH.example./", 0, "lab both.example"),
    (None, "http://mirror.test/", 0, "lab mirror.test"),
    (SOCKS, "http://mirror.test/", 0, "lab mirror.test"),
    (None, "-p http://mirror.test/", 0, "lab mirror.test"),
    (None, "http://other.example:8000/", 0, ":8000"),
    (None, "http://203.0.113.9/", 0, "203.0.113.9:80"),
    (SOCKS, "http://203.0.113.9/", 0, "203.0.113.9:80"),
    (None, "http://[2001:db8:100:9::9]/", 0, "2001:db8:100:9::9:80"),
    (SOCKS, "http://[2001:db8:100:9::9]/", 0, "2001:db8:100:9::9:80"),
    (SOCKS, "-o /dev/null -w %{size_download} http://203.0.113.9/files/50M", 0, "50000000"),
    (None, "-T probe.py -H 'Transfer-Encoding: chunked' http://mirror.test/headers", 0, "Runs inside the sandbox"),
    (None, "-H 'Proxy-Authorization: Basic c2VjcmV0' -H 'Proxy-Foo: 1' http://mirror.test/headers", 0, "User-Agent: curl"),
    # refused
    (None, "https://denied.example/", REFUSED, "403"),
    (SOCKS, "https://denied.example/", 97, "(2)"),
    ("socks4a://192.0.0.1:1080", "https://both.example/", 97, "(91)"),
    (None, "http://denied.example/", 0, '"reason":"base_denied","host":"denied.example","port":80'),
    (SOCKS, "http://denied.example/", 97, "(2)"),
    (None, "http://both.example/", 0, '"reason":"not_https","host":"both.example","port":80'),
    (SOCKS, "http://both.example/", 0, '"reason":"not_https","host":"both.example","port":80'),
    (None, "https://both.example:8443/", REFUSED, "403"),
    (None, "http://other.example:8001/", 0, '"reason":"port_denied"'),
    (None, "http://198.51.100.20/", 0, '"reason":"no_name"'),
    (None, "-k https://198.51.100.20/", 35, "unrecognized name"),
    (None, "http://169.254.169.254/latest/meta-data/", 0, '"reason":"private_address"'),
    (None, "https://[::ffff:10.9.9.9]/", REFUSED, "403"),
    (SOCKS, "https://[64:ff9b::a09:909]/", 97, "(2)"),
    (None, "https://private.example/", REFUSED, "403"),
    (SOCKS, "https://loopback.example/", 97, "(2)"),
    (None, "https://nosuch.test/", REFUSED, "502"),
    (SOCKS, "https://nosuch.test/", 97, "(4)"),
    (None, "https://refused.example/", REFUSED, "502"),
    (SOCKS, "https://refused.example/", 97, "(5)"),
    (SOCKS, "https://unreachable.example/", 97, "(4)"),
    (None, "--noproxy '' http://localhost:3128/", 0, '"reason":"base_denied"'),
    (None, "--noproxy '' -p http://127.0.0.1:443/", REFUSED, "403"),
    (None, "--noproxy '' http://192.0.0.1:3128/", 0, '"reason":"node_own_address"'),
    (SOCKS, "--noproxy '' http://[fd5a:91c3:7e24:1::1]:1080/", 97, "(2)"),
]


def test_curl(box):
    before = len(box.lab.dns_queries())
    commands = [f"curl -sS --max-time 10 --cacert {box.lab.ca} " + (f"-x {proxy} " if proxy else "") + arguments
                for proxy, arguments, _, _ in CURL]
    answers, result = script(box, POLICY, commands, timeout=60)
    wrong = [(row, answer) for row, answer in zip(CURL, answers) if row[2] != answer[0] or row[3] not in answer[1]]
    assert not wrong, wrong
    assert not any("roxy-" in out or "c2VjcmV0" in out for _, out in answers)
    asked = {query["name"] for query in box.lab.dns_queries()[before:]}
    assert "denied.example" not in asked, asked
    assert {"allowed_name", "allowed_cidr", "base_denied", "not_https", "port_denied", "no_name", "private_address", "dns_failed",
            "upstream_failed", "node_own_address", "bad_request"} <= set(result.reasons()), result.reasons()
    hints = [line["hint"] for line in result.log if line["name"] == "denied.example" and line["port"] == 443]
    assert hints == ["--allow denied.example"] * 2, hints


def test_none_and_open_base(box):
    none, result = script(box, "--network none", ["curl -sS https://both.example/", f"curl -sS -x {SOCKS} https://both.example/",
                                                  "curl -sS http://203.0.113.9/"])
    assert [code for code, _ in none] == [REFUSED, 97, 0] and "base_denied" in none[2][1], result
    urls = ["https://both.example/", "https://v4.example/", "https://private.example/", "https://metadata.example/",
            "https://own.example/", "https://mixed.example/", "https://192.0.2.2:9100/"]
    opened, result = script(box, "--network all --deny-cidr 198.51.100.0/24",
                            [f"curl -sS --max-time 10 --cacert {box.lab.ca} {url}" for url in urls])
    assert [code for code, _ in opened] == [0, REFUSED, REFUSED, REFUSED, REFUSED, 0, REFUSED], result
    assert all("2001:db8:100::" in opened[i][1] for i in (0, 5)), opened
    assert {"denied_cidr", "private_address"} <= set(result.reasons()), result


def test_host_loopback_by_entry(box):
    urls = ["https://localhost:8000/", "https://127.0.0.1:8000/", "https://[::1]:8000/", "https://localhost:9100/", "https://127.0.0.1:9100/"]
    for entry, codes in (("localhost:8000", [0, 0, 0]), ("127.0.0.1:8000", [35, 0, REFUSED])):  # an address entry: TLS without a name
        answers, result = script(box, f"--allow {entry} --allow-private",
                                 [f"curl -sS --max-time 5 --noproxy '' --cacert {box.lab.ca} {url}" for url in urls])
        assert [code for code, _ in answers] == codes + [REFUSED, REFUSED], result
        assert all(("host loopback here" in out) == (code == 0) for code, out in answers), result


# ---- other clients, by the environment alone ----

URLLIB = "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1], timeout=10).read().decode())"
REQUESTS = "import sys, requests; r = requests.get(sys.argv[1], timeout=10); print(r.status_code, r.text)"
HTTPX = "import sys, httpx; r = httpx.get(sys.argv[1], timeout=10); print(r.status_code, r.text)"
NODE = """const http = require('http'), https = require('https'), door = new URL(process.env.HTTPS_PROXY), host = process.argv[1];
http.request({host: door.hostname, port: door.port, method: 'CONNECT', path: host + ':443'}).on('connect', (answer, socket) => {
  if (answer.statusCode !== 200) { console.log(answer.statusCode, answer.headers['x-penstock-reason']); process.exit(9); }
  https.get({host, path: '/', socket, agent: false, servername: host}, r => r.pipe(process.stdout));
}).end();"""
CLIENTS = {
    "urllib": f"/usr/bin/python3 -c {shlex.quote(URLLIB)} https://HOST/",
    "requests": f"/usr/bin/python3 -c {shlex.quote(REQUESTS)} https://HOST/",
    "httpx": f"/usr/bin/python3 -c {shlex.quote(HTTPX)} https://HOST/",
    "wget": "wget -q -O- --tries=1 --timeout=10 --ca-certificate=$SSL_CERT_FILE https://HOST/",
    "node": f"node -e {shlex.quote(NODE)} HOST",
    "git": "git ls-remote https://HOST/octo/public.git",
}


def test_clients(box):
    env = {name: box.lab.ca for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "GIT_SSL_CAINFO")}
    names = list(CLIENTS)
    allowed, result = script(box, POLICY, [CLIENTS[name].replace("HOST", "github.com") for name in names], env=env)
    for name, (code, out) in zip(names, allowed):
        assert code == 0 and ("refs/heads/main" if name == "git" else "lab github.com") in out, (name, out)
    assert "dns" not in {line["protocol"] for line in result.log}, "somebody did not use the proxy"
    names = ["urllib", "wget", "node", "git"]
    refused, result = script(box, POLICY, [CLIENTS[name].replace("HOST", "denied.example") for name in names], env=env)
    for name, (code, out) in zip(names, refused):
        assert code != 0 and "403" in out or name == "wget" and code == 4, (name, code, out)
    assert set(result.reasons()) == {"base_denied"}, result


def test_learn(box):
    name = f"learnt-{box.kind}.yaml"
    result = box.run(f"--proxy --learn {name}", "sh", "-c", f"curl -sS --cacert {box.lab.ca} https://both.example/; curl -sS -x {SOCKS} http://mirror.test/")
    with open(box.path(name), encoding="utf-8") as file:
        text = file.read()
    assert "lab both.example" in result.out and "lab mirror.test" in result.out, result
    assert "host: \"both.example\"" in text and "protocol: http\n" in text and "cidr" not in text, text


# ---- raw bytes ----

FRAME = "\x81\x85\1\2\3\4" + "".join(chr(ord(char) ^ 1 + i % 4) for i, char in enumerate("hello"))
UPGRADE = ("GET {} HTTP/1.1\r\nHost: mirror.test\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
           "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n" + FRAME)


def test_what_follows_at_once(box):
    """Tunnels: a server that speaks first, data in the segment of the request, WebSocket; by name, address and both doors."""
    banner = "220 lab.example ready\r\n"
    answers, seen, result = raw(
        box, POLICY, connect(f"db.example:{zone.PORT_DB}"), socks("db.example", zone.PORT_DB), connect(f"203.0.113.1:{zone.PORT_BANNER}"),
        connect("mirror.test:80", get("/early", "mirror.test")), socks("mirror.test", 80, get("/early-socks", "mirror.test")),
        connect("mirror.test:80", UPGRADE.format("/ws")), (3128, UPGRADE.format("http://mirror.test/ws")), socks("mirror.test", 80, UPGRADE.format("/ws")))
    assert all(banner in text for text in answers[:3]), answers[:3]
    assert answers[0].startswith("HTTP/1.1 200 ") and answers[1].startswith("\5\0\5\0\0\1\0\0\0\0\0\0"), answers[:2]
    assert "lab mirror.test" in answers[3] and "lab mirror.test" in answers[4], answers[3:5]
    assert all(" 101 " in text and "\x81\5hello" in text for text in answers[5:8]), answers[5:8]
    assert {"/early", "/early-socks"} <= {entry["uri"] for entry in seen}, result


def test_one_connection_to_several_hosts(box):
    """Each request has its own destination; a CONNECT may follow; a refused one ends the connection. The log has them all."""
    first, other = get("http://mirror.test/1", "mirror.test", False), get("http://other.example:8000/2", "other.example:8000", False)
    (text,), seen, result = raw(
        box, POLICY, (3128, first + other + get("http://203.0.113.7/3", "203.0.113.7", False) + first +
                      get("http://denied.example/4", "denied.example", False) + first))
    assert statuses(text) == ["200"] * 4 + ["403"], result
    assert [entry["uri"] for entry in seen] == ["/1", "/2", "/3", "/1"], seen
    assert seen[2]["address"].startswith("203.0.113.7"), seen
    flows = [line for line in result.log if line["event"] == "flow"]
    assert [(line["name"] or line["address"], line["port"]) for line in flows] == \
        [("mirror.test", 80), ("other.example", 8000), ("203.0.113.7", 80), ("mirror.test", 80)], flows
    assert all(line["bytes_in"] > 100 for line in flows), flows
    (tunnel, again), seen, result = raw(box, POLICY, (3128, first + connect(f"db.example:{zone.PORT_DB}")[1]),
                                        (3128, first + get("http://mirror.test:8000/", "mirror.test:8000")))
    assert statuses(tunnel) == ["200", "200"] and "220 lab.example ready" in tunnel, tunnel
    assert statuses(again) == ["200", "403"] and "port_denied" in again, again
    flows = sorted((line["name"], line["port"]) for line in result.log if line["event"] == "flow")
    assert flows == [("db.example", zone.PORT_DB), ("mirror.test", 80), ("mirror.test", 80)], flows


PIECES = '''import http.client, ssl, time
proxy = http.client.HTTPConnection("192.0.0.1", 3128, timeout=10)
proxy.request("GET", "http://mirror.test/1")
print(proxy.getresponse().read())
sock = proxy.sock
sock.sendall(b"CONNECT both.example:443 HTTP/1.1\\r\\nHost: both.example:443\\r\\n\\r\\n")
print(sock.recv(65536))
context = ssl.create_default_context()
context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
context.set_alpn_protocols(["http/1.1"] + ["%%d" %% i * 100 for i in range(10, 10 + %d)])
here, there = ssl.MemoryBIO(), ssl.MemoryBIO()
tls = context.wrap_bio(here, there, server_hostname="both.example")
while True:
    try:
        tls.do_handshake()
        break
    except ssl.SSLWantReadError:
        out = there.read()
        for at in range(0, len(out), 1000):
            sock.sendall(out[at:at + 1000])
            time.sleep(0.02)
        here.write(sock.recv(65536) or exit("closed in the handshake"))
print(tls.version())
'''


@pytest.mark.parametrize("protocols", [0, 10, 60], ids="hello of {} names".format)
def test_long_hello_after_a_request_on_the_same_connection(box, protocols):
    """What a request leaves of the first bytes' memory is little; the hello that follows in pieces has room all the same."""
    result = run(box, POLICY, "/usr/bin/python3", "-c", PIECES % protocols)
    assert result.code == 0 and "TLSv1" in result.out, result
    assert result.reasons(name="both.example") and set(result.reasons(name="both.example")) == {"allowed_name"}, result


def test_kept_connection_is_judged_by_where_it_leads(box):
    """Every request to the same host has its address in the log; one that names no host is not the one before."""
    first = get("http://mirror.test/1", "mirror.test", False)
    (text,), _, result = raw(box, POLICY, (3128, first + first + get("http://denied.example/", "mirror.test")))
    assert statuses(text) == ["200", "200", "400"], text
    lines = [(line["event"], line["name"], bool(line["address"]), line["reason"]) for line in result.log]
    assert lines == [("decision", "mirror.test", True, "allowed_name")] * 2 + \
        [("flow", "mirror.test", True, "allowed_name"), ("decision", None, False, "bad_request")], result
    (text,), _, result = raw(box, {"allow": [{"host": "private.example", "protocol": "http"}]},
                             (3128, get("http://private.example/", "private.example")))
    denied = [(line["name"], bool(line["address"])) for line in result.log if line["reason"] == "private_address"]
    assert statuses(text) == ["403"] and denied == [("private.example", True)], result


def test_unasked_answer_is_not_the_next_one(box):
    policy = {"allow": [{"host": "unasked.example", "protocol": "http"}]}
    twice = get("http://unasked.example/twice", "unasked.example", False)
    (text,), _, result = raw(box, policy, (3128, twice + twice))
    assert text.count("\r\nasked\r\n") == 2 and "\r\nunasked" not in text, result


def test_attacks(box):
    """False names at every layer, addresses in disguise, requests hidden in others: nobody outside sees any of it."""
    proxied = {kind: re.sub(r"^(GET|POST) /", r"\1 http://mirror.test/", text) for kind, text in BAD.items() if kind not in ("connect", "no host")}
    hidden = get("/smuggled", "mirror.test")
    kinds = list(proxied)
    answers, seen, result = raw(
        box, POLICY, *[(3128, proxied[kind]) for kind in kinds],
        connect("denied.example:80", hidden, host="mirror.test"), connect("mirror.test:80@denied.example:80", hidden),
        connect("denied.example\0.mirror.test:80", hidden), socks("denied.example\0.mirror.test", 80, hidden),
        connect("mirror.test:80", get("/smuggled", "denied.example")), socks("mirror.test", 80, get("http://denied.example/smuggled", "denied.example")),
        connect("mirror.test:80", connect("denied.example:80", hidden)[1]), connect("10.9.9.9:80", hidden), connect("[::ffff:a09:909]:80", hidden),
        connect("0xa090909:80", hidden), connect("168364297:80", hidden), connect("192.0.0.1:3128", connect("mirror.test:80", hidden)[1]),
        (3128, get("http://mirror.test:80@denied.example/smuggled", "denied.example")), (3128, "GET http://mirror.test/x HTTP/1.1\r\nHost: denied.example\r\n\r\n" + SMUGGLED))
    wrong = {kind: text for kind, text in zip(kinds, answers) if statuses(text)[0] not in ("400", "403", "none") and kind != "bad chunk size"}
    assert not wrong, wrong
    assert "<timeout>" not in "".join(answers), answers
    assert [entry for entry in seen if "smuggled" in entry["uri"]] == [], seen
    codes = [statuses(text) for text in answers[len(kinds):]]
    assert codes == [["403"], ["400"], ["400"], ["none"], ["200", "403"], ["403"], ["200", "400"], ["403"], ["403"], ["400"], ["400"], ["403"], ["400"], ["400"]], codes
    assert "name_mismatch" in result.reasons(), result


def test_another_name_in_tls(box):
    command = "openssl s_client -proxy 192.0.0.1:3128 -connect both.example:443 -servername {} </dev/null"
    (mine, other), result = script(box, POLICY, [command.format("both.example"), command.format("v4.example")])
    assert mine[0] == 0 and other[0] != 0 and "unrecognized name" in other[1], result
    assert "name_mismatch" in result.reasons(), result


DNS = """import socket, struct, sys
with socket.create_connection(("192.0.0.1", 3128), 5) as s:
    s.sendall(b"CONNECT 198.51.100.53:53 HTTP/1.1\\r\\n\\r\\n")
    assert s.recv(1000).startswith(b"HTTP/1.1 200"), "no tunnel"
    for name in ("both.example", "denied.example"):
        query = struct.pack(">6H", 7, 256, 1, 0, 0, 0) + b"".join(bytes([len(l)]) + l.encode() for l in name.split(".")) + b"\\0\\0\\1\\0\\1"
        s.sendall(struct.pack(">H", len(query)) + query)
        answer = s.recv(1000)[2:]
        print(name, answer[3] & 15, socket.inet_ntoa(answer[-4:]) if answer[7] and answer[11] == 0 else "")
"""


def test_dns_through_a_door(box):
    before = len(box.lab.dns_queries("denied.example"))
    result = run(box, POLICY, "/usr/bin/python3", "-c", DNS)
    lines = result.out.split("\n")
    assert lines[0].startswith("both.example 0 198.1") and lines[1].startswith("denied.example 3"), result
    assert len(box.lab.dns_queries("denied.example")) == before, result


def test_limit(box):
    policy = {**POLICY, "limits": {"connections": 4}}
    result = run(box, policy, "/usr/bin/python3", "-B", "probe.py", json.dumps([["hold", "192.0.0.1", 3128, 6], ["hold", "192.0.0.1", 1080, 6]]))
    for answer in json.loads(result.out):
        assert answer["result"][:4] == ["connected"] * 4 and set(answer["result"][4:]) == {"ECONNREFUSED"}, result
    assert "limit_exceeded" in result.reasons(), result


TUNNELS = """import socket, sys, time
def tunnel(port, text, answer=b"ready"):
    s = socket.create_connection(("192.0.0.1", port), 5)
    s.sendall(text)
    data = b""
    while answer not in data:
        data += s.recv(1000)
    return s
tunnels = [tunnel(3128, b"CONNECT db.example:5432 HTTP/1.1\\r\\n\\r\\n"), tunnel(1080, b"\\5\\1\\0\\5\\1\\0\\3\\x0adb.example\\x15\\x38"),
           tunnel(3128, b"GET http://mirror.test/ HTTP/1.1\\r\\nHost: mirror.test\\r\\n\\r\\n", b"lab mirror.test"),
           tunnel(3128, b"CONNECT 203.0.113.1:2525 HTTP/1.1\\r\\n\\r\\n")]
print("here", flush=True)
sys.stdin.readline()
for s in tunnels:
    s.settimeout(1)
    try:
        print(s.recv(100))
    except ConnectionResetError:
        print("reset")
    except socket.timeout:
        print("open")
"""


def test_update_ends_what_is_no_longer_allowed(box):
    """The server's addresses become the host's own: a new generation of the policy, under which open flows are judged again."""
    policy = "--policy " + box.policy_file({"version": 1, **POLICY})
    arguments = box.arguments("--proxy " + policy, ["/usr/bin/python3", "-c", TUNNELS])
    log = os.path.join(box.home, "log-update.jsonl")
    process = box.popen([arguments[0], "--log", log, *arguments[1:]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    addresses = [f"{prefix}{number}" for number in (33, 34) for prefix in ("198.51.100.", "2001:db8:100::")]
    assert process.stdout.readline() == "here\n", process.communicate()
    try:
        for address in addresses:
            subprocess.run(["ip", "addr", "add", address, "dev", "uplink"], check=True)
        time.sleep(1)
        out, err = process.communicate("\n", timeout=20)
    finally:
        for address in addresses:
            subprocess.run(["ip", "addr", "del", address + ("/128" if ":" in address else "/32"), "dev", "uplink"], check=False)
    assert out.split("\n")[:4] == ["reset", "reset", "reset", "open"], (out, err)
    ended = {(line["name"], line["reason"]) for line in json_lines(log) if line["event"] == "flow"}
    assert ended == {("db.example", "policy_changed"), ("mirror.test", "policy_changed"), (None, "allowed_cidr")}, ended
