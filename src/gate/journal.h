// SPDX-License-Identifier: Apache-2.0
// The decision log's way to main, in order and without loss; while main is slow the gate takes no new work. Private to the gate.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "policy/policy.h"

struct flow;
struct gate;

struct journal *journal_new(struct gate *gate);
void journal_free(struct journal *journal);
void journal_decision(struct gate *gate, const struct policy_request *request, const struct policy_decision *decision);
// What a record says besides.
struct journal_note {
    uint16_t credentials; // as in struct ipc_decision
    const char *hint;     // NULL: what the policy has to say
};
void journal_noted(struct gate *gate, const struct policy_request *request, const struct policy_decision *decision,
                   const struct journal_note *note);
void journal_flow(struct gate *gate, const struct flow *flow, uint64_t bytes_out, uint64_t bytes_in);
bool journal_flush(struct journal *journal); // true when nothing waits
size_t journal_waiting(const struct journal *journal); // records
