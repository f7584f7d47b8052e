// SPDX-License-Identifier: Apache-2.0
// Runs a program of the system (crun, skopeo, umoci) to its end.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/buf.h"
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

struct tool_process; // one that runs

// Makes the copy of the program that will be run sealed next.
void tool_ahead(const char *name);
// 0 if its exit status is 0. -ENOPKG: not installed; -ETIMEDOUT; -EIO: it failed, the message is its last line; what enter
// said. What the program left running is not waited for. Call it from a process with one thread.
int tool_run(const struct tool *tool, struct error *err);
// The same in two steps. tool_finish waits for the end, frees the process and returns what tool_run would.
int tool_start(const struct tool *tool, struct tool_process **ret_process, struct error *err);
int tool_finish(struct tool_process *process, struct error *err);
void tool_stop(struct tool_process *process); // ends it by force, and frees it
// Waits until there is something to read from fd (-1: there is none): true; or for the end, or until its time is over: false.
bool tool_await(struct tool_process *process, int fd);
int tool_pidfd(const struct tool_process *process); // the process keeps it
// The numbers of the caller's children, each between two blanks. False: they are not known (the kernel has no CONFIG_PROC_CHILDREN).
bool tool_children(struct buf *text);
// What it leaves running is this process alone, which is not taken though it be dead.
void tool_leaves(struct tool_process *process, pid_t pid);
