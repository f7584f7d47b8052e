// SPDX-License-Identifier: Apache-2.0
// The gate's channel to the vault, and what the values' and the leaves' side of it share.
#pragma once

#include <event2/event.h>

#include "base/list.h"
#include "gate/injection.h"
#include "gate/state.h"
#include "vault/vault.h"

#define INJECTION_ANSWER_MS 30000 // for all values of a request, or a leaf; a cmd: secret may run for a while
#define INJECTION_WAITS_MAX 4096  // of requests, and as many of connections for a leaf
#define INJECTION_LEAF_ASKS 32    // of the questions that the vault reads at a time
#define INJECTION_VALUE_ASKS (VAULT_GATE_ASKS_MAX - INJECTION_LEAF_ASKS)

struct injection_ask;

// A question that the vault has; its asker may be gone by now.
struct injection_slot {
    struct injection_ask *ask;
    uint32_t id, rule;
    bool open;
};

enum injection_host_state { HOST_IDLE, HOST_WANTED, HOST_ASKED };

struct injection_host {
    char name[NAME_SIZE];
    uint32_t rule;     // one of its rules, or POLICY_RULE_NONE
    uint8_t state;     // enum injection_host_state
    bool has_leaf;
    int64_t since, renew_at; // seconds of the wall clock
    struct injection_leaf leaf;
    struct list waits;
};

struct injections {
    struct gate *gate;
    int channel;       // -1: none
    struct event *readable, *writable, *renewal, *report;
    struct event *soon;     // a turn later, once for all: questions of two turns go in one message, which wakes the vault
    struct event *deadline; // of the first of the waits
    uint8_t *buffer;   // of one message, in locked memory
    injection_changed *changed;
    // values
    struct list waits; // for the vault
    struct list idle;  // that have nothing to wait for, and are told so soon
    struct list queue; // asks that the vault has not got yet
    size_t wait_count;
    unsigned answer_ms; // INJECTION_ANSWER_MS
    uint32_t ask_number; // of the next question; its id is a multiple of the slots' number, and the slot
    struct injection_slot slots[INJECTION_VALUE_ASKS];
    bool given[IPC_RULES_MAX]; // a value of the rule came over this channel
    // leaves
    struct injection_host *hosts;
    size_t host_count, host_asks, leaf_wait_count;
    uint64_t serial;   // of the last leaf
};

// Sends what waits to be asked. Calls nobody back: a channel that failed is noticed by the loop.
void injection_channel_flush(struct injections *injections);
bool injection_channel_soon(struct injections *injections); // flush and injection_idle, behind all that the next turn of the loop has. False: -ENOMEM
bool injection_channel_up(const struct injections *injections);

// injection.c
int injection_ask_send(struct injections *injections);  // all that fit. 0, or negative errno of channel_send
int injection_value(struct injections *injections, const struct ipc_value *answer, const uint8_t *bytes); // -EBADMSG
void injection_value_changed(struct injections *injections, const struct ipc_value_changed *changed);
void injection_overdue(struct injections *injections);  // those whose deadline has come fail
void injection_idle(struct injections *injections);     // those that wait for nothing are told so
void injection_lost(struct injections *injections);     // all waits fail
void injection_free_all(struct injections *injections); // without a word

// injection_leaf.c
int injection_leaf_hosts(struct injections *injections); // of the policy in force; those known keep their leaves. -ENOMEM
int injection_leaf_send(struct injections *injections);
int injection_leaf_answer(struct injections *injections, const struct ipc_leaf *answer, const uint8_t *certificates);
void injection_leaf_renew(struct injections *injections); // wants those that are due
void injection_leaf_lost(struct injections *injections);
void injection_leaf_free_all(struct injections *injections);
