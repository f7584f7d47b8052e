// SPDX-License-Identifier: Apache-2.0
// Memory for nghttp2: wiped when it is given back, since values of credentials go through it, and bounded, as the
// last of all limits: a session that wants more ends.
#pragma once

#include <stddef.h>

#include <nghttp2/nghttp2.h>

struct h2_memory {
    nghttp2_mem calls; // for nghttp2_session_*_new3, as long as the session lives
    size_t used, max;  // bytes
};

void h2_memory_init(struct h2_memory *memory, size_t max);
