// SPDX-License-Identifier: Apache-2.0
// One gate's channel to the vault: its rules, and what it asked.
#pragma once

#include "base/list.h"
#include "vault/leaf.h"
#include "vault/secret.h"

struct event_base;

struct vault_rule {
    char host[NAME_SIZE];
    char *value; // template
    bool basic;
    struct secret *secret; // NULL: the template needs none
    bool given;            // a value went out
    bool changed;          // the gate is to be told that it is no longer so
};

struct vault_rules {
    size_t count;
    struct vault_rule rules[IPC_RULES_MAX];
};

// Appends what main sent. 0, or -E2BIG, -EINVAL, -ENOMEM.
int vault_rules_add(struct vault_rules *rules, struct secret_pool *pool, const struct ipc_vault_rule *rule);
void vault_rules_free(struct vault_rules *rules); // NULL is fine

struct vault_gate;
// Takes channel and rules; makes the leaves of its hosts ahead. NULL: out of memory (both are gone).
struct vault_gate *vault_gate_new(struct event_base *base, struct leaf_cache *leaves, struct list *gates, int channel,
                                  struct vault_rules *rules);
void vault_gates_changed(struct list *gates, const struct secret *secret);
void vault_gates_free(struct list *gates);
