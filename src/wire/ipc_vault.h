// SPDX-License-Identifier: Apache-2.0
// Bodies of the messages of the vault, its gates and its helper; types and rules are in wire/ipc.h, which includes this.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/name.h"

#define IPC_RULES_MAX 512            // of one gate: 256 bindings with two targets
#define IPC_TEMPLATE_SIZE 1024
#define IPC_REFERENCE_SIZE 4096
#define IPC_ENV_NAME_SIZE 512
#define IPC_SECRET_MAX 32768         // bytes of a secret, and of a header's value
#define IPC_CERTIFICATE_MAX 4096     // DER
#define IPC_KEY_SIZE 32              // a P-256 private key, big endian

struct ipc_vault_start {
    uid_t uid; // what the vault becomes once its files are open; 0: it stays who it is
    gid_t gid;
};

struct ipc_vault_env {
    char name[IPC_ENV_NAME_SIZE]; // of a variable; or "=HOST/HEADER", for a value that the policy itself has
    uint32_t length; // of the value, bytes
};

struct ipc_vault_ready {
    uint32_t subject_hash; // of the certificate, as c_rehash has it
    uint32_t length; // of the certificate that follows
};

// One header of one host. Rules have no number in the message: the first one after a gate, or after the start, is rule 0.
struct ipc_vault_rule {
    uint32_t basic;                     // 1: the value is "Basic " and the base64 form of the filled template (RFC 7617)
    char host[NAME_SIZE];               // canonical
    char value[IPC_TEMPLATE_SIZE];      // template with {secret}
    char reference[IPC_REFERENCE_SIZE]; // "env:NAME" and so on; "": the template has no {secret}
};

struct ipc_leaf_ask {
    uint32_t rule; // any rule of the host
};

struct ipc_leaf {
    uint32_t rule;
    int32_t status;               // 0, or negative errno: none could be made
    int64_t renew_at;             // seconds of CLOCK_REALTIME: ask again from then on
    uint32_t leaf_length, ca_length;
    uint8_t key[IPC_KEY_SIZE];    // of the leaf
};

// As many as a turn of the gate's loop has, up to IPC_ASKS_MAX, go in one message.
struct ipc_value_ask {
    uint32_t id; // of the question: comes back with the answer
    uint32_t rule;
};
#define IPC_ASKS_MAX 64

// Then the value. As many as there are go in one message, up to IPC_VALUES_SIZE bytes.
struct ipc_value {
    uint32_t id;
    uint32_t rule;
    int32_t status;  // 0, or negative errno: the request fails with binding_failed
    uint32_t epoch;  // of the secret
    uint32_t length; // of the value, bytes; 0 on failure
};
#define IPC_VALUES_SIZE (sizeof(struct ipc_value) + IPC_SECRET_MAX)
// The answer at *at, which is moved behind it; *ret_bytes: its value, in place. False: there is none, or none that is well-formed.
bool ipc_value_next(const void *bytes, size_t len, size_t *at, struct ipc_value *ret_value, const uint8_t **ret_bytes);

// The rule's secret is another one, or gone: connections whose requests carried a value of an epoch before this one end.
struct ipc_value_changed {
    uint32_t rule;
    uint32_t epoch;
};

enum ipc_source_kind { IPC_SOURCE_PATH, IPC_SOURCE_NAME, IPC_SOURCE_SHELL };

struct ipc_source_ask {
    uint32_t id;
    uint32_t kind;                 // enum ipc_source_kind
    char text[IPC_REFERENCE_SIZE]; // path, name in the store, command
};

struct ipc_source_answer {
    uint32_t id;
    int32_t status; // of IPC_SOURCE_END: negative errno, or the command's wait status; else 0
};
