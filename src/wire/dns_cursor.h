// SPDX-License-Identifier: Apache-2.0
// The bounded cursor under the DNS parsers, and names in wire form (RFC 1035 3.1, 4.1.4). Private to the dns_* files.
#pragma once

#include <stdbool.h>

#include "base/name.h"
#include "wire/wire.h"

#define DNS_CURSOR_HEADER 12    // bytes of a message's header
#define DNS_CURSOR_NAME_MAX 255 // bytes of an uncompressed name
#define DNS_CURSOR_POINTER 0xc0

struct dns_cursor {
    const uint8_t *bytes; // the whole message: pointers are relative to its start
    size_t position, end; // reads stay below end
    bool bad;             // sticky: all later reads give 0
};

struct dns_cursor dns_cursor_at(const uint8_t *bytes, size_t position, size_t end);
uint8_t dns_cursor_read8(struct dns_cursor *cursor);
uint16_t dns_cursor_read16(struct dns_cursor *cursor);
uint32_t dns_cursor_read32(struct dns_cursor *cursor);
// The next len bytes, NULL (and bad) if there are fewer.
const uint8_t *dns_cursor_take(struct dns_cursor *cursor, size_t len);
// A name, decompressed into ret_name; its length, or 0 (and bad). Pointers must point strictly backwards. Without
// pointers_allowed a pointer is malformed.
size_t dns_cursor_name(struct dns_cursor *cursor, bool pointers_allowed, uint8_t ret_name[DNS_CURSOR_NAME_MAX]);

// The canonical text of an uncompressed wire name ("" for the root). False, with "" in ret_text, if it has none: labels
// with other bytes than those of host names, or a name that reads as an address.
bool dns_cursor_name_text(const uint8_t *name, char ret_text[NAME_SIZE]);
// Canonical text to wire form: its length, or 0 if the text is not of labels of 1 to 63 bytes, 255 in all.
size_t dns_cursor_name_wire(const char *text, uint8_t ret_name[DNS_CURSOR_NAME_MAX]);
