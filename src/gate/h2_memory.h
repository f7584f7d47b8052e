// SPDX-License-Identifier: Apache-2.0
// Memory for nghttp2, one for each session: wiped when it is given back, since values of credentials go through it, and
// bounded, as the last of all limits: a session that wants more ends. So does one where all sessions of the gate, with
// the heads that wait in them, have used up what there is for them together.
#pragma once

#include <stddef.h>

#include "base/list.h"
#include "gate/h2_budget.h"
#include "gate/h2_calls.h"

struct h2_memory {
    nghttp2_mem calls; // for nghttp2_session_*_new3, as long as the session lives
    struct list pieces;
    size_t used, max;  // bytes
    struct h2_budget *budget;
};

void h2_memory_init(struct h2_memory *memory, size_t max, struct h2_budget *budget);
// Wipes and frees all that there is, and so the session, in place of nghttp2_session_del: where a call for memory had
// failed, that frees some twice (nghttp2 1.52: nghttp2_submit_data leaves the stream an item that it has freed).
void h2_memory_done(struct h2_memory *memory);
