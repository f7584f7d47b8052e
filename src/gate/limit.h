// SPDX-License-Identifier: Apache-2.0
// What a sandbox may have open, begin, and send (its policy's limits).
#pragma once

#include <stdint.h>

#include "policy/policy.h"

struct flow;
struct gate;

int limit_init(struct gate *gate, uint64_t bytes_out); // that earlier gates of this sandbox have used
void limit_apply(struct gate *gate);                   // those of the policy in force
void limit_done(struct gate *gate);
struct policy_decision limit_denial(enum policy_limit limit);
// Which limit keeps a new connection or exchange out. POLICY_LIMIT_NONE: none, and it has been counted as a new one.
enum policy_limit limit_connection(struct gate *gate);
// The flow has bytes beyond the budget; the caller ends it, and its end is logged for that.
void limit_spent(struct flow *flow);
