// SPDX-License-Identifier: Apache-2.0
// SHA-256 (FIPS 180-4), of a manifest: so that what is kept under a digest is what has it.
#pragma once

#include <stddef.h>

#define DIGEST_SIZE 65
// In hexadecimal, with a NUL.
void digest_text(const void *bytes, size_t len, char ret_text[DIGEST_SIZE]);
