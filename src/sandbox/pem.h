// SPDX-License-Identifier: Apache-2.0
// Certificates as text (RFC 7468). What is not a certificate is left out: a file of a variable may hold keys as well.
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

void pem_append(struct buf *text, const void *certificate, size_t len); // DER
// The next certificate of a text, as DER in place of what was in the buffer; *at moves behind it. False: none any more.
bool pem_next(const char **at, struct buf *certificate);
// The certificates of another text.
void pem_append_all(struct buf *text, const char *other);
