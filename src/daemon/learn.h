// SPDX-License-Identifier: Apache-2.0
// Learn mode (`penstock run --learn FILE`): collects what a command reached and writes the smallest native policy that
// allows it.
#pragma once

#include "daemon/daemon.h"
#include "policy/policy.h"
#include "wire/ipc.h"

// Where it will be written, as it was named.
const char *learn_folder(const struct learn *learn);
// Takes a record of the gate: what was allowed is learned, the rest is the decision log's.
void learn_record(struct learn *learn, const struct ipc_decision *record);
// Whether a policy that denies by default (the one given beside --learn) would have refused what this record allowed.
// True: *ret_decision says why, and hint what would have allowed it.
bool learn_would_deny(const struct learn *learn, const struct ipc_decision *record, struct policy_decision *ret_decision,
                      char hint[POLICY_HINT_SIZE]);
// The policy as YAML text; the caller frees it. NULL: out of memory.
char *learn_text(const struct learn *learn);
// Writes the policy: whole or not at all, and never over a file that is there by now. 0, or -errno with a message.
int learn_write(const struct learn *learn, struct error *err);
// What was learned, a line each, and what to do with it, to standard error.
void learn_summary(const struct learn *learn);
