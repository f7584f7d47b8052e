// SPDX-License-Identifier: Apache-2.0
// Memory for secrets: one arena that is locked where the user may lock memory, has guard pages, is in no core dump, and
// is wiped as pieces are given back (OpenSSL's secure heap, which also holds the private keys).
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

// Once in a process, before anything else of OpenSSL: no configuration file, no environment. 0, or -ENOMEM.
int secure_init(struct error *err);
// Locks the whole process into memory if that cannot make a later allocation fail (root).
void secure_lock_process(void);
// Zeroed. NULL: the arena is full.
void *secure_new(size_t size);
void secure_free(void *memory); // wiped; NULL is fine
