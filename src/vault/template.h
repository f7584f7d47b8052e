// SPDX-License-Identifier: Apache-2.0
// A header's value from its template and its secret.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/ipc.h"

// Puts the secret wherever the template says {secret}; basic: the result becomes "Basic " and its base64 form. Into
// ret_value (secure memory, size bytes). The length; -E2BIG if it does not fit; -EINVAL if the result is
// empty. -EILSEQ: it begins or ends with a blank (RFC 9110 section 5.5, RFC 9113 section 8.2.1).
int template_fill(const char *value, bool basic, const uint8_t *secret, size_t len, uint8_t *ret_value, size_t size);
// Bytes that are enough for it, at most IPC_SECRET_MAX: less memory to wipe for each request.
size_t template_size(const char *value, size_t len);
