// SPDX-License-Identifier: Apache-2.0
// Numbers of users for one container, that no other one has.
#pragma once

#include <stdint.h>

#include "base/error.h"

// The first one; they are its until the descriptor *ret_claim is closed.
int container_range_claim(uint32_t *ret_base, int *ret_claim, struct error *err);
