// SPDX-License-Identifier: Apache-2.0
// Which skeleton a sandbox may have: what main tells the keeper about its policy, and what the keeper's choice means.
#pragma once

#include "base/error.h"
#include "policy/policy.h"
#include "wire/ipc.h"

// What PENSTOCK_SKELETON asks for: enum ipc_skeleton, TPROXY if it is not set. 0, or -EINVAL with a message.
int skeleton_choice_wish(uint32_t *ret_skeleton, struct error *err);
// Fills in skeleton (by PENSTOCK_SKELETON), ports and need. extra: ports of the gate's own services (0 ends the list; may be
// NULL). 0, or -EINVAL with a message about PENSTOCK_SKELETON.
int skeleton_choice_fill(const struct policy *policy, const uint16_t *extra, struct ipc_keeper_start *start, struct error *err);
// What the one without nft cannot do, in one line for the user; NULL where the usual one is in place.
const char *skeleton_choice_words(const struct ipc_keeper_ready *ready, char *buffer, size_t size);
