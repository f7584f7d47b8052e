// SPDX-License-Identifier: Apache-2.0
// Between the two halves of compiling: compile.c collects (rules, entries, names, prefixes), tables.c builds the
// lookups from what was collected. Private to this room.
#pragma once

#include "base/buf.h"
#include "policy/block.h"

struct name_pair {
    enum block_name_set set;
    const char *name; // lives in the model, the node or the table of kinds
    uint32_t item;
};

struct prefix_pair {
    enum block_tree tree;
    struct addr_prefix prefix;
    uint32_t item;
};

struct compile {
    const struct policy_model *model;
    const struct policy_node *node; // never NULL
    struct block_header header;
    struct buf sections[BLOCK_SECTION_COUNT];
    struct buf names, prefixes; // struct name_pair, struct prefix_pair
};

uint32_t tables_count(const struct compile *compile, enum block_section section);
void tables_add(struct compile *compile, enum block_section section, const void *record);
// The offset of a string in its section; "" is 0.
uint32_t tables_add_string(struct compile *compile, const char *text);
// Whether an entry names the host's loopback.
bool tables_names_loopback(const struct policy_entry *entry);
// The hash table of names, the runs of ports, the loopback ports, the prefix trees. 0 or -ENOMEM; a buffer that failed
// is seen when the block is put together.
int tables_build(struct compile *compile);
