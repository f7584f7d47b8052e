// SPDX-License-Identifier: Apache-2.0
// Random numbers from the kernel (getrandom); never fail once the machine is up.
#pragma once

#include <stddef.h>
#include <stdint.h>

void random_bytes(void *bytes, size_t len);
uint32_t random_u32(void);
