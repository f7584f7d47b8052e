// SPDX-License-Identifier: Apache-2.0
// The one canonical form of host names (semantics section 4): lower-case ASCII labels joined by dots, no trailing dot.
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/addr.h"
#include "base/error.h"

#define NAME_SIZE 254 // 253 bytes and NUL

// What a host field on the wire or in a policy names.
struct name_host {
    bool is_address;
    struct addr address;  // if is_address
    char name[NAME_SIZE]; // else; canonical
};

// A name from the wire (SNI, Host without port, :authority, proxy request, DNS question as text). One trailing dot is
// removed; brackets around an IPv6 address are accepted. -EINVAL for anything that is not a name or address: other bytes
// than letters, digits, '-', '_', '.'; an empty or over-long label; a numeric name that is not a strict dotted quad.
int name_from_wire(const void *bytes, size_t len, struct name_host *ret_host);

// "HOST", "HOST:PORT", "[ADDR6]:PORT" as in a Host header or authority. *ret_port is 0 if absent. 0 or -EINVAL.
int name_authority_from_wire(const void *bytes, size_t len, struct name_host *ret_host, uint16_t *ret_port);

// A name from policy input: IDNA2008 for non-ASCII, no '_', no '-' at either end of a label, no trailing dot.
// 0, or -EINVAL with a message that quotes the text and says what to write.
int name_from_policy(const char *text, size_t len, struct name_host *ret_host, struct error *err);

// Whether a wildcard "*.<suffix>" would sit right above a public suffix (libpsl), such as "*.com".
bool name_is_public_suffix(const char *name);
