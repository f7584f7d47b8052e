// SPDX-License-Identifier: Apache-2.0
// Runs a program of the system (crun, skopeo, umoci) to its end.
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

struct tool {
    char *const *argv; // argv[0] is looked for in the system's folders only
    char *const *environment;
    const int *fds;    // become 3, 4, ... of the program; what it says is read from 1 and 2
    size_t fd_count;
    int (*enter)(void *data, struct error *err); // in the child before it executes; or NULL
    void *data;
    unsigned timeout_s;
    bool sealed;  // executed from a copy in memory that nobody can write: what crun would do itself, in the time of a second start
    bool apart;   // in a PID namespace of its own
    bool orphans; // what it leaves running becomes the caller's (PR_SET_CHILD_SUBREAPER); when it fails that is waited for
};

// Makes the copy of the program that will be run sealed next.
void tool_ahead(const char *name);
// 0 if its exit status is 0. -ENOPKG: not installed; -ETIMEDOUT; -EIO: it failed, the message is its last line; what enter
// said. What the program left running is not waited for. Call it from a process with one thread.
int tool_run(const struct tool *tool, struct error *err);
