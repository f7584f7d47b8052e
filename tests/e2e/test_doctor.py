# SPDX-License-Identifier: Apache-2.0
"""penstock doctor: says that it works where it works, and what is missing where something was taken away."""
import json
import os
import subprocess

import pytest

import engine

CHECKS = {"proc", "kernel calls", "user namespace", "network skeleton", "raw and packet sockets", "bubblewrap", "working directory",
          "seccomp", "landlock", "descriptor limit", "ping", "resolver", "credentials", "containers", "images"}


def doctor(box, *prefix):
    """doctor --json, behind a command that changes its world. Returns the rows by name, and the Result."""
    program = box.program
    box.program = prefix[0] if prefix else program
    try:
        result = box.raw(*prefix[1:], *([program] if prefix else []), "doctor", "--json")
    finally:
        box.program = program
    try:
        answer = json.loads(result.out)
    except ValueError:
        pytest.fail(f"no JSON: {result}")
    assert result.code == (0 if answer["works"] else 1), result
    return {row["check"]: row for row in answer["checks"]}, result


def without(setup):
    """A command that runs setup in a mount namespace of its own, then the rest."""
    return ["unshare", "--mount", "sh", "-c", setup + '; exec "$@"', "sh"]


def test_all_is_well(box):
    rows, result = doctor(box)
    assert set(rows) == CHECKS
    assert result.code == 0, result
    for name, row in rows.items():
        assert row["state"] == "ok" or name in ("ping", "landlock", "descriptor limit"), row
        assert row["why"] and row["found"]


def test_text_has_a_line_for_each_check(box):
    result = box.raw("doctor")
    lines = [line for line in result.out.splitlines() if line.split(" ")[0] in ("ok", "warning", "missing")]
    assert result.code == 0 and len(lines) == len(CHECKS), result
    assert result.out.endswith("penstock run works here.\n"), result


def test_no_user_namespaces(box):
    rows, result = doctor(box, "unshare", "--user", "--map-root-user", "sh", "-c",
                          'echo 0 >/proc/sys/user/max_user_namespaces; exec "$@"', "sh")
    assert result.code == 1, result
    row = rows["user namespace"]
    assert row["state"] == "missing" and row["found"] == "user.max_user_namespaces is 0", row
    assert "user.max_user_namespaces = 15000" in row["fix"], row
    assert rows["network skeleton"]["found"] == "not tried: there is no user namespace", rows["network skeleton"]
    assert "not tried" in rows["bubblewrap"]["found"]


@pytest.mark.parametrize("names", [0, 1500])
def test_run_says_why_without_user_namespaces(box, names):
    """However long main takes to say what the sandbox is for."""
    allowed = [word for i in range(names) for word in ("--allow", f"n{i}.example")]
    for _ in range(5):
        done = subprocess.run(["unshare", "--user", "--map-root-user", "sh", "-c", 'echo 0 >/proc/sys/user/max_user_namespaces; exec "$@"', "sh",
                               box.program, "run", "--dns", "192.0.2.1", *allowed, "--", "true"], cwd=box.project,
                              env=box.environment(), capture_output=True, text=True, timeout=30, check=False)
        assert done.returncode == 125 and "user.max_user_namespaces" in done.stderr, done.stderr


def test_in_a_sandbox(box):
    """Everything would be missing there, for one reason."""
    result = box.raw("run", "--read", box.program, "--", box.program, "doctor")
    assert result.code == 1 and "this is a sandbox already" in result.out and result.out.count("missing  ") == 1, result


def test_no_bubblewrap(box):
    if box.kind != "root":
        box = root_of(box)
    rows, result = doctor(box, *without("mount --bind /dev/null /usr/bin/bwrap"))
    assert result.code == 1 and rows["bubblewrap"]["state"] == "missing", result
    assert rows["bubblewrap"]["fix"] == "sudo apt-get install bubblewrap"
    assert rows["network skeleton"]["state"] == "ok"


def test_no_resolver(box):
    if box.kind != "root":
        box = root_of(box)
    rows, result = doctor(box, *without("mount --bind /dev/null /etc/resolv.conf"))
    assert result.code == 0 and rows["resolver"]["state"] == "warning", result
    assert "/etc/resolv.conf" in rows["resolver"]["found"] and "--dns" in rows["resolver"]["fix"]


def test_low_descriptor_limit(box):
    rows, result = doctor(box, "sh", "-c", 'ulimit -n 512; exec "$@"', "sh")
    assert rows["descriptor limit"]["state"] == "warning" and "512" in rows["descriptor limit"]["found"], result
    assert "nofile" in rows["descriptor limit"]["fix"]


def test_a_folder_that_cannot_be_shared(box):
    result = box.raw("doctor", "--json", cwd="/")
    row = next(row for row in json.loads(result.out)["checks"] if row["check"] == "working directory")
    assert result.code == 0 and row["state"] == "warning" and row["fix"] == "cd PROJECT", result


def test_unknown_argument(box):
    result = box.raw("doctor", "--nosuch")
    assert result.code == 2 and result.err.startswith("penstock: ") and "--nosuch" in result.err, result


def root_of(box):
    """Mounting needs root of some namespace: an ordinary user makes one."""
    class Rooted:
        """The same box, each command as root of a user namespace of its own."""
        program = box.program

        def raw(self, *arguments, **options):
            kept, box.program = box.program, "unshare"
            try:
                return box.raw("--user", "--map-root-user", self.program, *arguments, **options)
            finally:
                box.program = kept
    return Rooted()


def test_no_container_programs(box):
    """A warning: only sandboxes of images need them, and these are root's."""
    if box.kind != "root":
        rows, _ = doctor(box)
        assert all(rows[name]["state"] == "ok" and "sudo penstock doctor" in rows[name]["found"] for name in ("containers", "images")), rows
        return
    before = set(os.listdir("/var/tmp")) | set(engine.cgroups())
    rows, _ = doctor(box)
    assert rows["containers"]["found"] == "started one by crun, with limits" and rows["images"]["found"] == "skopeo, umoci", rows
    rows, result = doctor(box, *without("mount --bind /dev/null /usr/bin/crun; mount --bind /dev/null /usr/bin/umoci"))
    assert result.code == 0 and rows["containers"]["state"] == rows["images"]["state"] == "warning", result
    assert rows["containers"]["fix"] == "sudo apt-get install crun" and rows["images"]["fix"] == "sudo apt-get install umoci", rows
    assert not {name for name in set(os.listdir("/var/tmp")) | set(engine.cgroups()) if "doctor-" in name} - before
