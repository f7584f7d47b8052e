// SPDX-License-Identifier: Apache-2.0
// What an operator's guardrails leave open: a list in the place of the default, measured by the blocks of the default.
#include <stdio.h>

#include "policy/model.h"

struct guardrail_list {
    const struct addr_prefix *prefixes;
    size_t count;
};

static bool contains(const struct addr_prefix *outer, const struct addr_prefix *inner) {
    return outer->length <= inner->length && addr_prefix_contains(outer, &inner->addr);
}

// Whether a list has every address of the range: by one prefix, or by those of both halves.
static bool covered(const struct guardrail_list lists[2], const struct addr_prefix *range) {
    bool inside = false;
    for (size_t i = 0; i < 2; i++)
        for (size_t k = 0; k < lists[i].count; k++) {
            if (contains(&lists[i].prefixes[k], range)) return true;
            inside |= contains(range, &lists[i].prefixes[k]);
        }
    if (!inside) return false;
    struct addr_prefix half = *range; // no list has a prefix inside a range of one address but itself
    half.length++;
    if (!covered(lists, &half)) return false;
    half.addr.bytes[range->length / 8] |= (uint8_t)(0x80 >> range->length % 8);
    return covered(lists, &half);
}

size_t policy_guardrail_open(const struct policy_node *node, char buf[POLICY_GUARDRAIL_SIZE]) {
    const struct guardrail_list lists[2] = {{node->always_denied, node->always_denied_count},
                                            {node->always_allowed, node->always_allowed_count}};
    const struct addr_prefix *blocks;
    size_t count = addr_special_blocks(&blocks), open = 0, used = 0;
    buf[0] = '\0';
    for (size_t i = 0; node->has_always_denied && i < count; i++) {
        char text[ADDR_TEXT_SIZE];
        if (covered(lists, &blocks[i])) continue;
        used += (size_t)snprintf(buf + used, POLICY_GUARDRAIL_SIZE - used, "%s%s", open++ ? ", " : "",
                                 addr_prefix_format(&blocks[i], text));
        if (used >= POLICY_GUARDRAIL_SIZE) used = POLICY_GUARDRAIL_SIZE - 1;
    }
    return open;
}
