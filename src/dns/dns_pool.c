// SPDX-License-Identifier: Apache-2.0
// The synthetic pool: names of one sandbox by index, and an index as one address in each family.
//
// An index is an offset into both prefixes, the same in both: 254 to each 256 addresses, so that no address ends in .0
// or .255 (some clients refuse these). Mappings are only ever added: an address never comes to mean another name while
// the sandbox lives. What is needed for that after a restart of the gate is told to the `saved` callback, mapping by
// mapping.
#include "dns/dns.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/mem.h"
#include "base/random.h"

#define POOL_SLOTS (2 * DNS_POOL_MAX) // at most half full, a power of two
#define POOL_BLOCK 256
#define POOL_BLOCK_USED 254

static_assert((POOL_SLOTS & (POOL_SLOTS - 1)) == 0, "slots are masked");

struct dns_pool {
    struct addr_prefix prefix4, prefix6;
    uint32_t capacity; // what the smaller of the prefixes has room for
    uint32_t next;     // no index below this one is free
    uint32_t count;    // names
    uint32_t seed;     // of the hash: the names are the sandbox's choice
    void (*saved)(uint32_t index, const char *name, void *data);
    void *data;
    char *names[DNS_POOL_MAX];
    uint16_t slots[POOL_SLOTS]; // index + 1 by hash of the name, linear probing; 0 = empty
};

static uint32_t pool_offset(uint32_t index) {
    return index / POOL_BLOCK_USED * POOL_BLOCK + index % POOL_BLOCK_USED + 1;
}

// False for an offset that no index has.
static bool pool_index(uint32_t offset, uint32_t *ret_index) {
    uint32_t low = offset % POOL_BLOCK;
    if (low == 0 || low == POOL_BLOCK - 1) return false;
    *ret_index = offset / POOL_BLOCK * POOL_BLOCK_USED + low - 1;
    return true;
}

static unsigned prefix_bits(const struct addr_prefix *prefix) { return prefix->addr.family == ADDR_IPV4 ? 32 : 128; }

static uint32_t prefix_capacity(const struct addr_prefix *prefix) {
    unsigned host_bits = prefix_bits(prefix) - prefix->length;
    if (host_bits > 16) return DNS_POOL_MAX;
    uint32_t size = UINT32_C(1) << host_bits;
    uint32_t capacity = size >= POOL_BLOCK ? size / POOL_BLOCK * POOL_BLOCK_USED : size > 2 ? size - 2 : 0;
    return capacity < DNS_POOL_MAX ? capacity : DNS_POOL_MAX;
}

struct dns_pool *dns_pool_new(const struct addr_prefix *pool4, const struct addr_prefix *pool6,
                              void (*saved)(uint32_t index, const char *name, void *data), void *data) {
    struct dns_pool *pool = NEW(struct dns_pool);
    if (!pool) return NULL;
    pool->prefix4 = *pool4;
    pool->prefix6 = *pool6;
    uint32_t capacity4 = prefix_capacity(pool4), capacity6 = prefix_capacity(pool6);
    pool->capacity = capacity4 < capacity6 ? capacity4 : capacity6;
    pool->seed = random_u32();
    pool->saved = saved;
    pool->data = data;
    return pool;
}

void dns_pool_free(struct dns_pool *pool) {
    if (!pool) return;
    for (size_t i = 0; i < DNS_POOL_MAX; i++) free(pool->names[i]);
    free(pool);
}

// The slot that holds this name, or the empty one where it belongs. FNV-1a over seed and name.
static uint16_t *pool_slot(struct dns_pool *pool, const char *name) {
    uint32_t hash = UINT32_C(2166136261) ^ pool->seed;
    for (const char *c = name; *c; c++) hash = (hash ^ (uint8_t)*c) * UINT32_C(16777619);
    hash ^= hash >> 15;
    for (;; hash++) {
        uint16_t *slot = &pool->slots[hash & (POOL_SLOTS - 1)];
        if (*slot == 0 || strcmp(pool->names[*slot - 1], name) == 0) return slot;
    }
}

static int pool_map(struct dns_pool *pool, uint16_t *slot, uint32_t index, const char *name) {
    pool->names[index] = strdup(name);
    if (!pool->names[index]) return -ENOMEM;
    *slot = (uint16_t)(index + 1);
    pool->count++;
    return 0;
}

int dns_pool_restore(struct dns_pool *pool, uint32_t index, const char *name) {
    size_t len = strlen(name);
    if (index >= pool->capacity || len == 0 || len >= NAME_SIZE) return -EINVAL;
    uint16_t *slot = pool_slot(pool, name);
    if (*slot != 0) return *slot == index + 1 ? 0 : -EEXIST;
    if (pool->names[index]) return -EEXIST;
    return pool_map(pool, slot, index, name);
}

int dns_pool_assign(struct dns_pool *pool, const char *name, uint32_t *ret_index) {
    uint16_t *slot = pool_slot(pool, name);
    if (*slot != 0) {
        *ret_index = *slot - UINT32_C(1);
        return 0;
    }
    while (pool->next < pool->capacity && pool->names[pool->next]) pool->next++;
    if (pool->next >= pool->capacity) return -ENOSPC;
    uint32_t index = pool->next;
    int r = pool_map(pool, slot, index, name);
    if (r < 0) return r;
    if (pool->saved) pool->saved(index, name, pool->data);
    *ret_index = index;
    return 0;
}

bool dns_pool_contains(const struct dns_pool *pool, const struct addr *addr) {
    return addr_prefix_contains(&pool->prefix4, addr) || addr_prefix_contains(&pool->prefix6, addr);
}

const char *dns_pool_name(const struct dns_pool *pool, const struct addr *addr) {
    if (!dns_pool_contains(pool, addr)) return NULL;
    const struct addr_prefix *prefix = addr->family == ADDR_IPV4 ? &pool->prefix4 : &pool->prefix6;
    size_t size = addr->family == ADDR_IPV4 ? 4 : 16;
    // Everything between the prefix and the last four bytes has to be as in the prefix, which is zero there.
    if (memcmp(prefix->addr.bytes, addr->bytes, size - 4) != 0) return NULL;
    uint32_t offset = 0, index;
    for (size_t i = size - 4; i < size; i++) offset = offset << 8 | (uint32_t)(addr->bytes[i] ^ prefix->addr.bytes[i]);
    if (!pool_index(offset, &index) || index >= pool->capacity) return NULL;
    return pool->names[index];
}

size_t dns_pool_count(const struct dns_pool *pool) { return pool->count; }

struct addr dns_pool_address(const struct dns_pool *pool, uint32_t index, enum addr_family family) {
    struct addr addr = family == ADDR_IPV6 ? pool->prefix6.addr : pool->prefix4.addr;
    uint8_t *end = addr.bytes + (family == ADDR_IPV6 ? 16 : 4);
    for (uint32_t offset = pool_offset(index); offset != 0; offset >>= 8) *--end |= (uint8_t)offset;
    return addr;
}
