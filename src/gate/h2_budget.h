// SPDX-License-Identifier: Apache-2.0
// What all HTTP/2 sessions of a gate, and the heads that wait in them, may take together.
#pragma once

#include <stddef.h>

#define H2_BUDGET_BASE 16777216     // bytes,
#define H2_BUDGET_CONNECTION 65536  // and for each connection that the policy allows

struct h2_budget {
    size_t used, max; // bytes
};
