// SPDX-License-Identifier: Apache-2.0
// The front door of the daemon room, which puts the other rooms together. `run` is one sandbox without a daemon.
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

struct learn;
struct policy_binding;
struct policy_model;
struct policy_node;

struct daemon_run {
    struct policy_model *model; // values of secrets in it are wiped
    const struct policy_node *node; // NULL: no configuration
    char *const *argv;              // the command, NULL-terminated
    const char *const *dns_servers; // --dns "ADDR[:PORT]", "[ADDR6]:PORT"
    size_t dns_server_count;
    const char *const *reads, *const *writes;
    size_t read_count, write_count;
    int log_fd;  // decision log, or -1
    bool quiet;  // no summary of denials
    bool proxy;  // offers explicit proxies inside, and points the usual variables to them
    const char *policy_file, *node_config, *log_file; // as given, NULL if not: the command must not change them
    const char *upstream_ca; // PEM file: more roots of trust for servers of bound hosts, or NULL
    struct learn *learn; // learn mode, else NULL; model is then the one that was opened for it
};

// Learn mode: checks that path can be written and opens the model, which must be one of base deny, for learning. The model
// is the caller's and outlives what is returned. node: NULL if there is none. 0, or negative errno with a message.
int daemon_learn_new(const char *path, struct policy_model *model, const struct policy_node *node,
                     struct learn **ret_learn, struct error *err);
void daemon_learn_free(struct learn *learn); // NULL is fine

// Whether the secret of a binding is there, as far as can be said without reading it: the variable is set, the file can be read,
// the store has the name. Nothing is said of commands. 0, or negative errno with a message.
int daemon_secret_look(const struct policy_binding *binding, struct error *err);

// Runs the command to its end. Returns the exit status of `penstock run` (125, 126, 127 for our own errors, which have
// been printed).
int daemon_run(const struct daemon_run *run);

// Tries each mechanism that a sandbox needs and prints what it found, as text or JSON. 0, or 1 if `penstock run` cannot work.
int daemon_doctor(bool json);

struct daemon_self_test {
    bool json;
    bool keep_going; // after a failure
    bool direct;     // without sandboxes, to see that the test can fail
};
// Tries to escape from real sandboxes on this machine and prints pass or FAIL for each attempt. 0 if all passed, else 1.
int daemon_self_test(const struct daemon_self_test *options);

// The internal roles, by the word after "penstock @": returns false if argv is not a role, else the exit status.
bool daemon_role(int argc, char **argv, int *ret_status);
