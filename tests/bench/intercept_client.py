# SPDX-License-Identifier: Apache-2.0
"""The client of intercepted connections, in the place that is measured: answers with one line of JSON.

usage: intercept_client.py requests|idle HOST PORT CA COUNT SECONDS
requests: wrk with COUNT connections, kept alive. idle: opens COUNT connections, one request on each, and keeps them until
there is a line to read."""
import json
import os
import resource
import socket
import ssl
import subprocess
import sys

LUA = """function done(summary, latency, requests)
  local bad = summary.errors.connect + summary.errors.read + summary.errors.write + summary.errors.status + summary.errors.timeout
  io.stderr:write(string.format('{"answered":%d,"failed":%d,"rate":%f,"p50":%f,"p99":%f}\\n', summary.requests, bad,
    summary.requests / summary.duration * 1e6, latency:percentile(50), latency:percentile(99)))
end
"""


def requests(host, port, folder, count, seconds):
    script = os.path.join(folder, f"wrk-{os.getpid()}.lua")
    with open(script, "w", encoding="utf-8") as file:
        file.write(LUA)
    done = subprocess.run(["wrk", "-t", "1", "-c", str(count), "-d", f"{seconds}s", "-s", script, f"https://{host}:{port}/"],
                          stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=True)
    os.unlink(script)
    return json.loads(done.stderr)


def idle(host, port, ca, count):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(count + 100, hard), hard))
    context = ssl.create_default_context(cafile=ca)
    kept = []
    for _ in range(count):
        sock = context.wrap_socket(socket.create_connection((host, port), 10), server_hostname=host)
        sock.sendall(f"GET / HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
        if b" 200 " not in sock.recv(4096):
            break
        kept.append(sock)
    return kept


def main(mode, host, port, ca, count, seconds):
    if mode == "requests":
        print(json.dumps(requests(host, int(port), os.getcwd(), int(count), max(int(float(seconds)), 1))), flush=True)
        return
    kept = idle(host, int(port), ca if ca != "-" else None, int(count))
    print(json.dumps({"answered": len(kept)}), flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    main(*sys.argv[1:])
