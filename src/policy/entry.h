// SPDX-License-Identifier: Apache-2.0
// Entries of a policy as they are read: texts into struct policy_entry, and lists of them. Private to the policy room.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "policy/model.h"

// Frees what an entry owns (not the entry).
void policy_entry_done(struct policy_entry *entry);

// "HOST", "HOST:PORT", "ADDRESS", "[ADDR6]:PORT"; with wildcard also "*.domain". Sets kind and name or prefix of
// ret_entry (the rest is zero). *ret_port is 0 if there is none. 0, or -EINVAL with a message that quotes the whole
// text and says what to write.
int policy_entry_parse_host(const char *text, size_t len, bool wildcard, struct policy_entry *ret_entry,
                            uint16_t *ret_port, struct error *err);
// "ADDRESS" or "ADDRESS/LENGTH" without host bits. 0, or -EINVAL with a message that quotes the text.
int policy_entry_parse_cidr(const char *text, size_t len, struct addr_prefix *ret_prefix, struct error *err);

// 0 or -ENOMEM.
int policy_entry_add_ports(struct policy_entry *entry, uint16_t first, uint16_t last);

// Same destination, protocol and ports.
bool policy_entry_equal(const struct policy_entry *a, const struct policy_entry *b);

// A list under construction. With `collapse` an entry equal to one before it is dropped, found by hash.
struct policy_entry_list {
    struct policy_entry **entries; // of the model
    size_t *count;
    bool collapse;
    uint32_t *slots; // index + 1 of the entry; 0 = free
    size_t slot_count;
};
// Takes over what entry owns, also on failure. 0 or -ENOMEM.
int policy_entry_append(struct policy_entry_list *list, struct policy_entry *entry);
void policy_entry_list_done(struct policy_entry_list *list);

// Grows an array of count elements by one, doubling at powers of two. NULL if out of memory (the array is then as
// before).
void *policy_entry_grow(void *array, size_t count, size_t element_size);
