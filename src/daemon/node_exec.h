// SPDX-License-Identifier: Apache-2.0
// A command inside a sandbox, its output as it comes. Private to node*.c.
#pragma once

#include "daemon/node.h"

struct node_exec;

struct node_exec_handlers {
    // Bytes of its standard output (0) or error (1). False: no more until node_exec_go_on.
    bool (*output)(int which, const void *bytes, size_t len, void *data);
    // Once: its status (128+N: a signal ended it), or -1 with the reason why it could not begin or is not known. exec is gone.
    void (*ended)(int status, const char *failure, void *data);
};

struct node_command {
    const json_t *argv, *env; // array, object of strings
    const char *cwd, *user;   // NULL: as the sandbox has them
    const void *input;
    size_t input_len;
};

// 0 (ended will be called), or a negative errno with a message (it will not).
int node_exec_start(struct node_sandbox *sandbox, const struct node_command *command, const struct node_exec_handlers *handlers,
                    void *data, struct node_exec **ret_exec, struct error *err);
void node_exec_go_on(struct node_exec *exec);
// Nobody wants to know any more: its output is closed, ended is not called.
void node_exec_forget(struct node_exec *exec);
