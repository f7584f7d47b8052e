// SPDX-License-Identifier: Apache-2.0
// Prefixes become ranges, since the kernel's sets take no two that overlap. An IPv4 prefix also is a prefix of each form in
// which an IPv6 address begins with what carries it (NAT64, 6to4, ...); those that carry it at their end, Teredo and ISATAP,
// are no ranges, and are judged by the policy alone.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "net/guard.h"

static unsigned address_size(const struct addr *addr) { return addr->family == ADDR_IPV4 ? 4 : 16; }

bool guard_next(const struct addr *addr, struct addr *ret_next) {
    *ret_next = *addr;
    for (unsigned i = address_size(addr); i-- > 0;)
        if (++ret_next->bytes[i] != 0) return true;
    return false;
}

static struct addr address_before(const struct addr *addr) {
    struct addr before = *addr;
    for (unsigned i = address_size(addr); i-- > 0;)
        if (before.bytes[i]-- != 0) break;
    return before;
}

static struct guard_range range_of(const struct addr_prefix *prefix) {
    struct guard_range range = {.first = prefix->addr, .last = prefix->addr};
    for (unsigned bit = prefix->length; bit < address_size(&prefix->addr) * 8; bit++)
        range.last.bytes[bit / 8] |= (uint8_t)(0x80u >> bit % 8);
    return range;
}

static int ranges_put(struct guard_ranges *ranges, const struct guard_range *range) {
    if (ranges->count == ranges->size) {
        size_t size = ranges->size ? ranges->size * 2 : 64;
        struct guard_range *grown = reallocarray(ranges->list, size, sizeof(*grown));
        if (!grown) return -ENOMEM;
        ranges->list = grown;
        ranges->size = size;
    }
    ranges->list[ranges->count++] = *range;
    return 0;
}

static int range_compare(const void *a, const void *b) {
    return addr_compare(&((const struct guard_range *)a)->first, &((const struct guard_range *)b)->first);
}

static bool range_touches(const struct guard_range *range, const struct guard_range *next) {
    struct addr behind;
    if (range->last.family != next->first.family) return false;
    return addr_compare(&next->first, &range->last) <= 0 ||
           (guard_next(&range->last, &behind) && addr_equal(&behind, &next->first));
}

static void ranges_settle(struct guard_ranges *ranges) {
    size_t kept = 0;
    if (ranges->count > 1) qsort(ranges->list, ranges->count, sizeof(*ranges->list), range_compare);
    for (size_t i = 0; i < ranges->count; i++) {
        struct guard_range *last = kept > 0 ? &ranges->list[kept - 1] : NULL;
        if (!last || !range_touches(last, &ranges->list[i])) ranges->list[kept++] = ranges->list[i];
        else if (addr_compare(&ranges->list[i].last, &last->last) > 0) last->last = ranges->list[i].last;
    }
    ranges->count = kept;
}

// What of each range is not in the hole.
static int ranges_cut(struct guard_ranges *ranges, const struct guard_range *hole) {
    for (size_t i = ranges->count; i-- > 0;) {
        struct guard_range range = ranges->list[i];
        bool apart = range.first.family != hole->first.family || addr_compare(&range.last, &hole->first) < 0 ||
                     addr_compare(&range.first, &hole->last) > 0;
        if (apart) continue;
        ranges->list[i] = ranges->list[--ranges->count]; // what comes in its place has been looked at
        struct guard_range left = range, right = range;
        left.last = address_before(&hole->first);
        if (addr_compare(&range.first, &hole->first) < 0 && ranges_put(ranges, &left) < 0) return -ENOMEM;
        if (addr_compare(&range.last, &hole->last) > 0 && guard_next(&hole->last, &right.first) && ranges_put(ranges, &right) < 0)
            return -ENOMEM;
    }
    return 0;
}

// RFC 6052 section 2.2: the four bytes go around byte 8.
static struct addr_prefix carry(const struct addr_prefix *carrier, const struct addr_prefix *carried) {
    struct addr_prefix prefix = *carrier;
    unsigned at = carrier->length / 8u;
    bool around = carrier->length >= 32 && carrier->length <= 64 && carrier->length + carried->length > 64;
    for (unsigned i = 0; i < 4; i++) {
        if (carrier->length <= 64 && at == 8) at++;
        prefix.addr.bytes[at++] = carried->addr.bytes[i];
    }
    prefix.length = (uint8_t)(carrier->length + carried->length + (around ? 8 : 0));
    return prefix;
}

static int ranges_add(struct guard_ranges *ranges, const struct guard *guard, const struct addr_prefix *prefix) {
    static const struct addr_prefix carriers[] = { // as addr_embedded_ipv4 has them
        {.addr = {.family = ADDR_IPV6, .bytes = {[8] = 0xff, [9] = 0xff}}, .length = 96},
        {.addr = {.family = ADDR_IPV6, .bytes = {0x00, 0x64, 0xff, 0x9b}}, .length = 96},
        {.addr = {.family = ADDR_IPV6}, .length = 96},
        {.addr = {.family = ADDR_IPV6, .bytes = {0x20, 0x02}}, .length = 16},
    };
    struct guard_range range = range_of(prefix);
    int rc = ranges_put(ranges, &range);
    size_t count = prefix->addr.family == ADDR_IPV4 ? ARRAY_LENGTH(carriers) + guard->nat64_count : 0;
    for (size_t i = 0; rc == 0 && i < count; i++) {
        size_t more = i - ARRAY_LENGTH(carriers);
        struct addr_prefix carried = carry(i < ARRAY_LENGTH(carriers) ? &carriers[i] : &guard->nat64[more], prefix);
        range = range_of(&carried);
        rc = ranges_put(ranges, &range);
    }
    return rc;
}

// An operator's NAT64 prefix may lie in a block that is otherwise local; what it carries is judged by itself.
static int ranges_add_special(struct guard_ranges *ranges, const struct guard *guard) {
    const struct addr_prefix *special;
    size_t count = addr_special_blocks(&special);
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < count; i++)
        if (special[i].addr.family == ADDR_IPV6) rc = ranges_add(ranges, guard, &special[i]);
    for (size_t i = 0; rc == 0 && i < guard->nat64_count; i++) {
        struct guard_range hole = range_of(&guard->nat64[i]);
        rc = ranges_cut(ranges, &hole);
    }
    for (size_t i = 0; rc == 0 && i < count; i++)
        if (special[i].addr.family == ADDR_IPV4) rc = ranges_add(ranges, guard, &special[i]);
    return rc;
}

int guard_denied(const struct guard *guard, struct guard_ranges *ret_ranges) {
    struct guard_ranges ranges = {0};
    int rc = guard->special ? ranges_add_special(&ranges, guard) : 0;
    for (size_t i = 0; rc == 0 && i < guard->denied_count; i++) rc = ranges_add(&ranges, guard, &guard->denied[i]);
    for (size_t i = 0; rc == 0 && guard->own && i < guard->own_count; i++) {
        const struct addr *addr = &guard->own_addresses[i];
        struct addr_prefix one = {.addr = *addr, .length = addr->family == ADDR_IPV4 ? 32 : 128};
        rc = ranges_add(&ranges, guard, &one);
    }
    ranges_settle(&ranges);
    *ret_ranges = ranges;
    return rc;
}

int guard_allowed(const struct guard *guard, struct guard_ranges *ret_ranges) {
    struct guard_ranges ranges = {0};
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < guard->allowed_count; i++) {
        struct guard_range range = range_of(&guard->allowed[i]);
        rc = ranges_put(&ranges, &range);
    }
    ranges_settle(&ranges);
    *ret_ranges = ranges;
    return rc;
}
