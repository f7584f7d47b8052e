// SPDX-License-Identifier: Apache-2.0
// The front door of the daemon room, which puts the other rooms together. `run` is one sandbox without a daemon.
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

struct policy_model;
struct policy_node;

struct daemon_run {
    const struct policy_model *model;
    const struct policy_node *node; // NULL: no configuration
    char *const *argv;              // the command, NULL-terminated
    const char *const *dns_servers; // --dns "ADDR[:PORT]", "[ADDR6]:PORT"
    size_t dns_server_count;
    const char *const *reads, *const *writes;
    size_t read_count, write_count;
    int log_fd;  // decision log, or -1
    bool quiet;  // no summary of denials
};

// Runs the command to its end. Returns the exit status of `penstock run` (125, 126, 127 for our own errors, which have
// been printed).
int daemon_run(const struct daemon_run *run);

// The internal roles, by the word after "penstock @": returns false if argv is not a role, else the exit status.
bool daemon_role(int argc, char **argv, int *ret_status);
