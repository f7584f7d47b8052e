// SPDX-License-Identifier: Apache-2.0
// What a shim is told: the file that the daemon writes, and a policy with the node's configuration as texts.
#pragma once

#include <jansson.h>

#include "daemon/daemon.h"
#include "policy/model.h"
#include "wire/ipc.h"
#include "sandbox/sandbox.h"

// A policy that has been read, with what it is judged beside.
struct shim_policy {
    struct policy_model *model;
    struct policy_node node;
    struct ipc_resolver_start servers;
};

struct shim_spec {
    json_t *json; // owns the strings below
    const char *id, *image, *user, *cwd, *upstream_ca, *start_command; // of the last the text, or NULL
    enum policy_type type;
    char **argv, **environment;      // argv NULL: the sandbox idles
    const char **layers;
    size_t layer_count;
    struct sandbox_image_place place;
    uint64_t memory_bytes, generation;
    uint32_t cpu_millis, pids_max;
    struct shim_policy policy;
};

// text: the file. 0, or -EINVAL with a message.
int shim_spec_read(const char *text, struct shim_spec *ret_spec, struct error *err);
void shim_spec_done(struct shim_spec *spec);
// Of an object as that of IPC_SHIM_POLICY, whose policy is wiped: it may hold credentials. Checks for the type.
int shim_policy_read(const json_t *object, enum policy_type type, struct shim_policy *ret_policy, struct error *err);
void shim_policy_done(struct shim_policy *policy);

// A NULL-terminated list of "NAME=VALUE" of an object of strings; of strings of an array. Freed with free() once. NULL: out of
// memory, or not such a value.
char **shim_environment(const json_t *object);
char **shim_strings(const json_t *array);
