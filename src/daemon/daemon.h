// SPDX-License-Identifier: Apache-2.0
// The front door of the daemon room, which puts the other rooms together. `run` is one sandbox without a daemon.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct ipc_resolver_start;
struct learn;
struct policy_binding;
struct policy_model;
struct policy_node;

// What an image is run with, beside its policy.
struct daemon_container {
    const char *image;      // as of sandbox_image_get
    uint64_t memory_bytes;  // 0: what the node's configuration says, else no limit; so of the next two
    uint32_t cpu_millis, pids;
    const char *user, *cwd; // NULL: the image's
    const char *const *environment; // "NAME=VALUE", or "NAME": as the caller has it
    size_t environment_count;
};

struct daemon_run {
    struct policy_model *model; // values of secrets in it are wiped
    const struct policy_node *node; // NULL: no configuration
    const struct daemon_container *container; // NULL: a process on this host
    char *const *argv;              // the command, NULL-terminated; of a container it may be NULL: what the image says
    const char *const *dns_servers; // --dns "ADDR[:PORT]", "[ADDR6]:PORT"
    size_t dns_server_count;
    const struct ipc_resolver_start *servers; // what these and the configuration come to; NULL: not known yet
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

struct daemon_serve {
    const char *config;     // file, or NULL
    const char *listen;     // "ADDR:PORT"; NULL: as the configuration says
    const char *state;      // folder; NULL: the usual one
    const char *const *dns; // --dns, as of daemon_run
    size_t dns_count;
    const char *upstream_ca;
    bool check_config;      // only read the configuration
};
// Runs a node until a signal ends it. 0, or for an error that has been printed 1, or 2 if an argument is wrong.
int daemon_serve(const struct daemon_serve *options);

// The key of the node's API, for a client on the same machine: PENSTOCK_API_KEY, AENV_API_KEY, else the node's own, where it can
// be read. 0, or a negative errno with a message.
int daemon_api_key(char **ret_key, struct error *err);

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
