# SPDX-License-Identifier: Apache-2.0
"""Runs commands inside a sandbox, two at a time: drive.py JSON, a list of commands. Prints what each gave."""
import json
import multiprocessing.pool
import subprocess
import sys
import time

DEADLINE = 60


def run(command):
    started = time.monotonic()
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              timeout=DEADLINE, check=False)
        code, out, err = done.returncode, done.stdout, done.stderr
    except subprocess.TimeoutExpired as late:
        code, out, err = f"none after {DEADLINE} s", late.stdout or b"", late.stderr or b""
    return {"code": code, "out": out.decode(errors="replace"), "err": err.decode(errors="replace"),
            "seconds": time.monotonic() - started}


with multiprocessing.pool.ThreadPool(2) as pool:
    print(json.dumps(pool.map(run, json.loads(sys.argv[1]), chunksize=1)))
