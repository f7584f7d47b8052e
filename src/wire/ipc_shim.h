// SPDX-License-Identifier: Apache-2.0
// Bodies of the messages between the daemon and the shim of a sandbox; types and rules are in wire/ipc.h, which includes
// this. Both are our own and run as the same user; texts in JSON come as memory files.
#pragma once

#include <stdint.h>

enum ipc_shim_verb {
    // {"policy": TEXT, "dialect": WORD, "node": TEXT or null, "node_name": FILE, "variables": [of the configuration],
    //  "dns": [server], "generation": N, "keep": BOOL, "known": BOOL}; known: it is in force, the node is what changed
    IPC_SHIM_POLICY,
    IPC_SHIM_PAUSE,
    IPC_SHIM_RESUME,
    IPC_SHIM_SNAPSHOT, // {"folder": PATH}: the sandbox's own layer is copied to it
    IPC_SHIM_EXEC,     // {"argv": [...], "env": {...}, "cwd": PATH, "user": USER}; its standard streams behind the memory file
    IPC_SHIM_COUNT,    // IPC_SHIM_COUNTERS comes when the gate has counted
    IPC_SHIM_STOP,     // the sandbox ends, and then the shim
    IPC_SHIM_VERB_COUNT,
};

struct ipc_shim_call {
    uint32_t id; // of the caller's, unique on its connection
    uint32_t verb;
};

// To a shim that was started before there was anything to do.
struct ipc_shim_begin {
    char id[32]; // NUL-terminated: the name of its folder
};

// The first message on a connection, once the sandbox runs.
struct ipc_shim_up {
    uint64_t generation; // that the policy was given by the daemon
    uint32_t paused;
    int32_t pid; // of the sandbox's first process
};

#define IPC_SHIM_TEXT_SIZE 1024
struct ipc_shim_done {
    uint32_t id;
    int32_t status;                // 0, or negative errno with text
    uint64_t update_us;            // POLICY: how long until it was in force everywhere
    uint32_t flows_closed, flows_kept;
    char text[IPC_SHIM_TEXT_SIZE]; // NUL-terminated
};

struct ipc_shim_exit {
    uint32_t id;
    int32_t status; // of the command; 128+N: a signal ended it
};
