# SPDX-License-Identifier: Apache-2.0
"""Real clients, unchanged, in real sandboxes: what the policy allows works, on both families; the rest is refused."""
import pytest

import zone

NAME = "--allow both.example"
NONE = "--network none"
CIDRS = "--allow-cidr 198.51.100.0/24 --allow-cidr 2001:db8:100::/48"

# policy, curl's arguments, its exit status, a text in its output
CURL = [
    ("--allow api.github.com", ["https://api.github.com/zen"], 0, "Keep it logically awesome."),
    (NAME, ["--http1.1", "https://both.example/"], 0, "HTTP/1.1"),
    (NAME, ["--http2", "https://both.example/"], 0, "HTTP/2.0"),
    (NAME, ["-4", "https://both.example/"], 0, "lab both.example"),
    (NAME, ["-6", "https://both.example/"], 0, "lab both.example"),
    ("--allow v4.example", ["https://v4.example/"], 0, "198.51.100.21:443"),
    ("--allow v6.example", ["https://v6.example/"], 0, "2001:db8:100::21:443"),
    ("--allow '*.hosts.example'", ["https://a.b.hosts.example/", "-k"], 6, ""),  # not in the zone: resolves nowhere
    ("--allow '*.hosts.example'", ["https://a.hosts.example/"], 0, "lab a.hosts.example"),
    ("--allow both.example:8443", ["https://both.example:8443/"], 0, ":8443"),
    ("--allow cname.example", ["https://cname.example/"], 0, "lab cname.example"),
    ("--allow 198.51.100.20", ["https://198.51.100.20/"], 0, "198.51.100.20:443"),
    ("--allow 2001:db8:100::20", ["https://[2001:db8:100::20]/"], 0, "2001:db8:100::20:443"),
    (CIDRS, ["http://198.51.100.77/"], 0, "198.51.100.77:80"),
    (CIDRS, ["http://[2001:db8:100::77]/"], 0, "2001:db8:100::77:80"),
    ("--network all", ["https://both.example/"], 0, "lab both.example"),
    ("--network all", ["-4", "http://other.example/"], 0, "198.51.100.24:80"),
    ("--network all", ["-6", "http://other.example/"], 0, "2001:db8:100::24:80"),
    # refused
    (NAME, ["https://denied.example/"], 6, ""),
    (NAME, ["https://nosuch.example/"], 6, ""),
    (NAME, ["https://sub.both.example/"], 6, ""),
    (NAME, ["https://both.example:8443/"], 7, ""),
    ("--allow both.example:8443", ["https://both.example/"], 7, ""),
    ("--allow '*.hosts.example'", ["https://hosts.example/"], 6, ""),
    (NONE, ["https://both.example/"], 6, ""),
    (NONE, ["https://203.0.113.1/"], 7, ""),
    (NONE, ["https://[2001:db8:100::1]/"], 7, ""),
    (CIDRS, ["https://203.0.113.1/"], 7, ""),
    (CIDRS, ["https://both.example/"], 6, ""),
    ("--network all --deny-cidr 198.51.100.20/32", ["https://198.51.100.20/"], 7, ""),
]


@pytest.mark.parametrize("policy,arguments,code,text", CURL, ids=[f"{p} {' '.join(a)}" for p, a, _, _ in CURL])
def test_curl(box, policy, arguments, code, text):
    result = box.curl(policy, *arguments)
    assert result.code == code, result
    assert text in result.out, result
    assert result.seconds < 5, result


@pytest.mark.parametrize("family", ["-4", "-6"])
def test_git_clones_over_https(box, family):
    name = f"clone{family}-{box.kind}"
    result = box.run("--allow github.com", "git", "-c", f"http.sslCAInfo={box.lab.ca}", "clone", family,
                     "https://github.com/octo/public.git", name)
    assert result.code == 0, result
    with open(box.path(name + "/README"), encoding="utf-8") as file:
        assert file.read() == "hello git\n"


def test_git_is_refused(box):
    result = box.run("--allow pypi.org", "git", "clone", "https://github.com/octo/public.git", "never")
    assert result.code == 128 and "resolve host" in result.err, result


PYTHON = "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1], timeout=10).read().decode())"
NODE = "fetch(process.argv[1]).then(r => r.text()).then(console.log, e => { console.log(e.cause.code); process.exit(9); })"


@pytest.mark.parametrize("url,code,text", [("https://pypi.org/zen", 0, "logically"), ("https://denied.example/", 1, "")])
def test_python_urllib(box, url, code, text):
    result = box.run("--allow pypi.org", "/usr/bin/python3", "-c", PYTHON, url, env={"SSL_CERT_FILE": box.lab.ca})
    assert result.code == code and text in result.out, result


@pytest.mark.parametrize("url,code,text", [("https://registry.npmjs.org/zen", 0, "logically"), ("https://denied.example/", 9, "ENOTFOUND")])
def test_node_fetch(box, url, code, text):
    result = box.run("--allow registry.npmjs.org", "node", "-e", NODE, url, env={"NODE_EXTRA_CA_CERTS": box.lab.ca})
    assert result.code == code and text in result.out, result


@pytest.mark.parametrize("family", ["-4", "-6"])
def test_openssl_s_client(box, family):
    result = box.run("--allow both.example", "openssl", "s_client", family, "-brief", "-connect", "both.example:443", "-CAfile",
                     box.lab.ca, "-verify_return_error")
    assert result.code == 0 and "Verification: OK" in result.err, result


# One family of the destination is broken; clients that try one address after the other still get there.
EYEBALLS = [
    ("deadv6.example", ["curl", "-sS", "--max-time", "10"]),
    ("deadv4.example", ["curl", "-sS", "--max-time", "10"]),
    ("refusedv6.example", ["curl", "-sS", "--max-time", "10"]),
    ("refusedv4.example", ["curl", "-sS", "--max-time", "10"]),
    ("mixed.example", ["curl", "-sS", "--max-time", "10"]),
    ("refusedv6.example", ["wget", "-q", "-O-", "--tries=1", "--timeout=10"]),
    ("refusedv6.example", ["/usr/bin/python3", "-c", PYTHON]),
]


@pytest.mark.parametrize("name,client", EYEBALLS, ids=[f"{c[0]} {n}" for n, c in EYEBALLS])
def test_other_family_is_used(box, name, client):
    command = client + ([f"--ca-certificate={box.lab.ca}"] if client[0] == "wget" else [])
    result = box.run(f"--allow {name}", *command, f"https://{name}/",
                     env={"SSL_CERT_FILE": box.lab.ca, "CURL_CA_BUNDLE": box.lab.ca})
    assert result.code == 0 and f"lab {name}" in result.out, result
    assert result.seconds < 8, result


def test_git_uses_other_family(box):
    result = box.run("--allow refusedv6.example", "git", "-c", f"http.sslCAInfo={box.lab.ca}", "ls-remote",
                     "https://refusedv6.example/octo/hello.git")
    assert result.code == 0 and "refs/heads/main" in result.out, result


def test_host_loopback_by_entry(box):
    result = box.curl("--allow localhost:8000 --allow-private", "https://localhost:8000/")
    assert result.code == 0 and "host loopback here" in result.out, result


def test_host_loopback_needs_allow_private(box):
    result = box.curl("--allow localhost:8000", "https://localhost:8000/")
    assert result.code != 0 and "host loopback" not in result.out, result


def test_private_destinations_by_choice(box):
    answers, result = box.probe("--network all --allow-private", ["connect", "10.9.9.9", 80], ["connect", "fd00:dead::9", 80])
    assert [a["result"] for a in answers] == ["connected", "connected"], result
    answers, result = box.probe("--allow-cidr 10.9.9.0/24", ["connect", "10.9.9.9", 80], ["connect", "169.254.169.254", 80])
    assert [a["result"] for a in answers] == ["connected", "ECONNREFUSED"], result


def test_pinned_address_is_not_dialled(box):
    """Whatever address the sandbox believes in, an allowed name is dialled where the gate resolved it."""
    for poison in ("203.0.113.99", "10.9.9.9", zone.OWN4):
        before = len(box.lab.http_requests())
        result = box.curl("--allow both.example", "--resolve", f"both.example:443:{poison}", "https://both.example/pinned")
        seen = [entry["address"] for entry in box.lab.http_requests()[before:]]
        assert poison not in seen
        if poison == "203.0.113.99":
            assert result.code == 0, result
            assert seen[0] in ("198.51.100.20", "2001:db8:100::20"), result


def test_large_download_and_upload(box):
    result = box.curl("--allow both.example", "https://both.example/files/50M", "-o", "download", "-w", "%{size_download}")
    assert result.code == 0 and result.out == "50000000", result
    result = box.curl("--allow both.example", "-T", "download", "https://both.example/headers", "-o", "/dev/null", "-w", "%{size_upload}")
    assert result.code == 0 and result.out == "50000000", result
