# SPDX-License-Identifier: Apache-2.0
"""Limits of a sandbox: connections a second, bandwidth, bytes out over its life. Fair turns and unit sizes: test_meter.c."""
import json
import os
import signal

import conftest
import zone

HOST = "203.0.113.1"
ENDED = ("ECONNRESET", "EPIPE", "ENOTCONN")
CIDR = [{"cidr": "203.0.113.0/24"}]

# What every script begins with. spend(): how a connection that sends so much ends.
HELP = """
import json, os, socket, struct, sys, threading, time
sys.path.insert(0, '.')
import probe
HOST, DISCARD, CHARGEN, ECHO = %r, %d, %d, %d
def name(error): return probe.name_of(error)
def spend(size):
    sock = socket.create_connection((HOST, DISCARD), 10)
    try:
        sock.sendall(b'y' * size)
        sock.shutdown(socket.SHUT_WR)
        return sock.makefile().read().split()[0]
    except OSError as error:
        return name(error)
def attempt(function, *arguments):
    try: return function(*arguments)
    except OSError as error: return name(error)
def fetch(size):
    sock = socket.create_connection((HOST, CHARGEN), 30)
    sock.sendall(b'%%d\\n' %% size)
    got = 0
    while piece := sock.recv(65536): got += len(piece)
    return got
""" % (HOST, zone.PORT_DISCARD, zone.PORT_CHARGEN, zone.PORT_ECHO)


def run(box, policy, script):
    result = box.run(policy, "/usr/bin/python3", "-B", "-c", HELP + script)
    assert result.code == 0, result
    return json.loads(result.out), result


def limited(result, **wanted):
    return [line for line in result.log if line["reason"] == "limit_exceeded" and all(line[k] == v for k, v in wanted.items())]


def test_bytes_out(box):
    """The budget is that of the sandbox's life, to the byte; downloads go on; a gate that dies does not renew it."""
    size = 1 << 20
    policy = {"allow": CIDR + [{"host": "both.example"}], "limits": {"bytes_out": "1MiB"}}
    (used, rest), _ = run(box, policy, "first = spend(400000); print(json.dumps([first, attempt(spend, 700000)]))")
    assert used == "400000" and rest in ENDED, (used, rest)
    script = f"""
down = socket.create_connection((HOST, CHARGEN), 10)
down.sendall(b'8000000\\n')
time.sleep(0.3)
first = attempt(spend, {size})
got = 0
while piece := down.recv(65536): got += len(piece)
udp = attempt(probe.udp, HOST, ECHO, 'x')
answer = [first, attempt(spend, 1), udp, attempt(probe.dns_rcode, 'both.example'), got]
open('spent', 'w').close()
for _ in range(200):
    if os.path.exists('killed'): break
    time.sleep(0.05)
time.sleep(0.5)
for _ in range(100):
    again = attempt(spend, 1)
    if os.path.exists('back'): break
    time.sleep(0.05)
print(json.dumps(answer + [again]))
"""
    for name in ("spent", "killed", "back"):
        if os.path.exists(box.path(name)):
            os.unlink(box.path(name))
    log = os.path.join(box.home, "limits.jsonl")
    arguments = box.arguments(policy, ["/usr/bin/python3", "-B", "-c", HELP + script])
    process = box.popen(["run", "--log", log, *arguments[1:]], stdout=-1, stderr=-1)
    while not os.path.exists(box.path("spent")):
        assert process.poll() is None, process.communicate()
    (gate,) = conftest.find_process("@gate")
    os.kill(gate, signal.SIGKILL)
    box.file("killed", "")
    while conftest.find_process("@gate") == [gate]:
        pass
    box.file("back", "")
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, (out, err)
    first, second, udp, rcode, got, again = json.loads(out)
    assert first in ENDED and got == 8000000, out
    assert second == "ECONNREFUSED" and again == "ECONNREFUSED", out
    assert udp in ("EHOSTUNREACH", "EACCES", "EPERM") and rcode == 2, out
    lines = [json.loads(line) for line in open(log)]
    hints = [line["hint"] for line in lines if line["reason"] == "limit_exceeded"]
    assert len(hints) >= 4 and all("bytes_out: 1MiB" in hint for hint in hints), lines
    flow = [line for line in lines if line["event"] == "flow" and line["verdict"] == "deny"]
    assert len(flow) == 1 and flow[0]["bytes_out"] == size - len("8000000\n"), lines


def test_bandwidth(box):
    """Both ways, for all flows together and in fair parts, relays and HTTP alike; datagrams beyond it are lost, and logged."""
    policy = {"allow": CIDR + [{"host": "both.example", "protocol": "http"}], "limits": {"bandwidth": "16mbit"}}
    script = """
def timed(function, *arguments):
    begin = time.monotonic(); result = attempt(function, *arguments)
    return [result, round(time.monotonic() - begin, 2)]
def http(size):
    sock = socket.create_connection(('both.example', 80), 30)
    sock.sendall(b'GET /files/50M HTTP/1.1\\r\\nHost: both.example\\r\\nRange: bytes=0-%d\\r\\nConnection: close\\r\\n\\r\\n' % (size - 1))
    got = 0
    while piece := sock.recv(65536): got += len(piece)
    return got
def together(*jobs):
    ends = [None] * len(jobs)
    def one(i): ends[i] = timed(*jobs[i])
    threads = [threading.Thread(target=one, args=(i,)) for i in range(len(jobs))]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    return ends
down = together((fetch, 1000000), (fetch, 1000000), (http, 1000000), (probe.dns_rcode, 'both.example'))
up = together((spend, 2000000), (spend, 1000000))
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.connect((HOST, ECHO)); udp.settimeout(0.5)
begin = time.monotonic()
got = sent = 0
def listen():
    global got
    try:
        while True: got += len(udp.recv(2000))
    except OSError: pass
listener = threading.Thread(target=listen)
listener.start()
while time.monotonic() - begin < 1: sent += udp.send(bytes(1200)); time.sleep(0.0001)
listener.join()
print(json.dumps([down, up, sent, got]))
"""
    (down, up, sent, got), result = run(box, policy, script)
    assert [answer for answer, _ in down[:2]] == [1000000] * 2 and down[2][0] > 1000000 and down[3][0] == 0, (down, result)
    assert all(1.2 < seconds < 6 for _, seconds in down[:3]), down  # 3 MB at 2 MB/s
    assert max(seconds for _, seconds in down[:3]) > 1.35, down
    assert down[3][1] < 1, down  # a question does not wait behind bulk
    assert [answer for answer, _ in up] == ["2000000", "1000000"] and 1.35 < up[0][1] < 6 and up[1][1] < up[0][1], up
    assert sent > 2500000 and 500000 < got < 2300000, (sent, got)
    lost = limited(result, protocol="udp")
    assert lost and all("bandwidth: 16mbit" in line["hint"] for line in lost) and len(lost) < 10, lost


def test_connections_per_second(box):
    policy = {"allow": CIDR, "limits": {"connections_per_second": 5}}
    script = """
def connect():
    socket.create_connection((HOST, DISCARD), 10).close()
    return 'connected'
first = [attempt(connect) for _ in range(12)]
time.sleep(1.1)
udp = [attempt(probe.udp, HOST, ECHO, str(i)) for i in range(8)]
print(json.dumps([first, udp]))
"""
    (first, udp), result = run(box, policy, script)
    assert first[:5] == ["connected"] * 5 and first.count("ECONNREFUSED") >= 5, first
    assert udp[:5] == list("01234") and udp[7] in ("EHOSTUNREACH", "EACCES", "EPERM"), udp
    lines = limited(result, verdict="deny")
    assert lines and all("connections_per_second: 5" in line["hint"] for line in lines), result
