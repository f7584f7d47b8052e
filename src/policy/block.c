// SPDX-License-Identifier: Apache-2.0
// Reading side of the compiled block. Goals: a block that was damaged on the way is refused (checksum), and even one
// that was forged with a right checksum cannot make a reader leave its memory or loop: every offset, index, count,
// string and prefix length is checked here once, so that the lookups below need no checks. Parents of tree nodes have
// smaller indexes, so walks end. What a forged block *decides* is not our concern: only main, which compiled it, writes
// blocks.
#include "policy/block.h"

#include <errno.h>

#include "base/mem.h"

size_t block_record_size(enum block_section section) {
    static const size_t sizes[] = {
        [BLOCK_RULES] = sizeof(struct block_rule),        [BLOCK_ENTRIES] = sizeof(struct block_entry),
        [BLOCK_PORTS] = sizeof(struct policy_port_range), [BLOCK_SLOTS] = sizeof(struct block_slot),
        [BLOCK_NODES] = sizeof(struct block_node),        [BLOCK_ITEMS] = sizeof(uint32_t),
        [BLOCK_RUNS] = sizeof(struct block_run),          [BLOCK_LOOPBACK] = sizeof(uint16_t),
        [BLOCK_NAT64] = sizeof(struct addr_prefix),       [BLOCK_CREDENTIALS] = sizeof(struct block_credential),
        [BLOCK_WORDS] = sizeof(uint32_t),                 [BLOCK_STRINGS] = 1,
    };
    _Static_assert(ARRAY_LENGTH(sizes) == BLOCK_SECTION_COUNT, "a size for each section");
    return sizes[section];
}

static uint64_t checksum_bytes(uint64_t sum, const uint8_t *bytes, size_t len) {
    for (; len >= 8; bytes += 8, len -= 8) {
        uint64_t word;
        memcpy(&word, bytes, 8);
        sum = (sum ^ word) * 0x9e3779b97f4a7c15u;
        sum ^= sum >> 29;
    }
    for (; len > 0; bytes++, len--) sum = (sum ^ *bytes) * 0x100000001b3u;
    return sum;
}

uint64_t block_checksum(const void *block, size_t size) {
    struct block_header header;
    memcpy(&header, block, sizeof(header));
    header.checksum = 0;
    uint64_t sum = checksum_bytes(BLOCK_MAGIC, (const uint8_t *)&header, sizeof(header));
    return checksum_bytes(sum, (const uint8_t *)block + sizeof(header), size - sizeof(header));
}

// ---- checks ----

static bool range_ok(struct block_range range, uint32_t count) {
    return range.first <= count && range.count <= count - range.first;
}

static bool prefix_ok(const struct addr_prefix *prefix) {
    return (prefix->addr.family == ADDR_IPV4 && prefix->length <= 32) ||
           (prefix->addr.family == ADDR_IPV6 && prefix->length <= 128);
}

static bool sections_ok(const struct block_header *header, size_t size) {
    for (size_t i = 0; i < BLOCK_SECTION_COUNT; i++) {
        size_t offset = header->sections[i].offset, record = block_record_size((enum block_section)i);
        if (offset % 8 != 0 || offset < sizeof(*header) || offset > size ||
            header->sections[i].count > (size - offset) / record)
            return false;
    }
    return true;
}

static bool rule_ok(const struct policy *policy, uint32_t rule, bool optional) {
    return (optional && rule == BLOCK_NONE) || rule < block_count(policy, BLOCK_RULES);
}

static bool header_ok(const struct policy *policy) {
    const struct block_header *header = policy->header;
    uint32_t strings = block_count(policy, BLOCK_STRINGS), slots = block_count(policy, BLOCK_SLOTS);
    if (strings == 0 || policy->strings[strings - 1] != '\0' || (slots & (slots - 1)) != 0) return false;
    if (block_count(policy, BLOCK_ENTRIES) > block_count(policy, BLOCK_RULES)) return false;
    for (size_t i = 0; i < BLOCK_TREE_COUNT; i++) {
        if (!range_ok(header->trees[i], block_count(policy, BLOCK_NODES))) return false;
    }
    for (size_t i = 0; i < BLOCK_RUN_TABLE_COUNT; i++) {
        if (!range_ok(header->runs[i], block_count(policy, BLOCK_RUNS))) return false;
    }
    return prefix_ok(&header->pool4) && prefix_ok(&header->pool6) && rule_ok(policy, header->rule_base, false) &&
           rule_ok(policy, header->rule_private, false) && rule_ok(policy, header->rule_own, true) &&
           rule_ok(policy, header->rule_special, true) && rule_ok(policy, header->rule_deny_all, true) &&
           rule_ok(policy, header->dns_cidrs, true) && header->dns_names <= POLICY_DNS_REAL;
}

static bool entries_ok(const struct policy *policy) {
    uint32_t strings = block_count(policy, BLOCK_STRINGS);
    for (uint32_t i = 0; i < block_count(policy, BLOCK_ENTRIES); i++) {
        const struct block_entry *entry = &policy->entries[i];
        bool name = entry->kind == POLICY_ENTRY_NAME || entry->kind == POLICY_ENTRY_WILDCARD;
        if (entry->kind > POLICY_ENTRY_CIDR || entry->protocol > POLICY_ENTRY_ANY || entry->name >= strings ||
            !range_ok(entry->ports, block_count(policy, BLOCK_PORTS)) || (!name && !prefix_ok(&entry->prefix)))
            return false;
    }
    for (uint32_t i = 0; i < block_count(policy, BLOCK_RULES); i++) {
        if (policy->rules[i].text >= strings || policy->rules[i].source >= strings) return false;
    }
    for (uint32_t i = 0; i < block_count(policy, BLOCK_NAT64); i++) {
        if (!prefix_ok(&policy->nat64[i])) return false;
    }
    for (uint32_t i = 0; i < block_count(policy, BLOCK_RUNS); i++) {
        if (policy->runs[i].entry >= block_count(policy, BLOCK_ENTRIES)) return false;
    }
    return true;
}

static bool credentials_ok(const struct policy *policy) {
    uint32_t strings = block_count(policy, BLOCK_STRINGS), words = block_count(policy, BLOCK_WORDS);
    for (uint32_t i = 0; i < words; i++) {
        if (policy->words[i] >= strings) return false;
    }
    for (uint32_t i = 0; i < block_count(policy, BLOCK_CREDENTIALS); i++) {
        const struct block_credential *credential = &policy->credentials[i];
        if (credential->host >= strings || credential->header >= strings || credential->path >= strings ||
            credential->name >= strings || credential->repo_root >= strings || !range_ok(credential->methods, words) ||
            !range_ok(credential->repos, words))
            return false;
    }
    return true;
}

// Items must be below limit: entries for what allows, credentials for what is bound, rules for the rest.
static bool items_ok(const struct policy *policy, struct block_range range, uint32_t limit) {
    if (!range_ok(range, block_count(policy, BLOCK_ITEMS)) || range.count == 0) return false;
    for (uint32_t i = 0; i < range.count; i++) {
        if (policy->items[range.first + i] >= limit) return false;
    }
    return true;
}

static bool lookups_ok(const struct policy *policy) {
    uint32_t entries = block_count(policy, BLOCK_ENTRIES), rules = block_count(policy, BLOCK_RULES);
    for (uint32_t i = 0; i < block_count(policy, BLOCK_SLOTS); i++) {
        const struct block_slot *slot = &policy->slots[i];
        if (slot->name == BLOCK_NONE) continue;
        bool allow = slot->set == BLOCK_ALLOW_EXACT || slot->set == BLOCK_ALLOW_WILD;
        uint32_t limit = slot->set == BLOCK_BOUND ? block_count(policy, BLOCK_CREDENTIALS) : allow ? entries : rules;
        if (slot->set >= BLOCK_SET_COUNT || slot->name >= block_count(policy, BLOCK_STRINGS) ||
            !items_ok(policy, slot->items, limit))
            return false;
    }
    for (size_t tree = 0; tree < BLOCK_TREE_COUNT; tree++) {
        struct block_range range = policy->header->trees[tree];
        for (uint32_t i = range.first; i < range.first + range.count; i++) {
            const struct block_node *node = &policy->nodes[i];
            bool parent = node->parent == BLOCK_NONE || (node->parent >= range.first && node->parent < i);
            if (!parent || !prefix_ok(&node->prefix) ||
                !items_ok(policy, node->items, tree == BLOCK_TREE_ALLOW ? entries : rules))
                return false;
        }
    }
    return true;
}

int policy_from_block(const void *block, size_t size, struct policy **ret_policy, struct error *err) {
    const struct block_header *header = block;
    if (size < sizeof(*header) || (uintptr_t)block % 8 != 0 || header->magic != BLOCK_MAGIC)
        return error_set(err, -EINVAL, "compiled policy expected, got %zu bytes of something else; compile it again",
                         size);
    if (header->version != BLOCK_VERSION)
        return error_set(err, -EINVAL, "compiled policy of version %u expected, got version %u; compile it again",
                         BLOCK_VERSION, header->version);
    if (header->size != size || header->checksum != block_checksum(block, size) || !sections_ok(header, size))
        return error_set(err, -EINVAL, "compiled policy of %zu bytes is damaged; compile it again", size);
    AUTO_FREE struct policy *policy = NEW(struct policy);
    if (!policy) return error_set(err, -ENOMEM, "out of memory");
    const char *base = block;
    *policy = (struct policy){
        .header = header,
        .rules = (const void *)(base + header->sections[BLOCK_RULES].offset),
        .entries = (const void *)(base + header->sections[BLOCK_ENTRIES].offset),
        .ports = (const void *)(base + header->sections[BLOCK_PORTS].offset),
        .slots = (const void *)(base + header->sections[BLOCK_SLOTS].offset),
        .nodes = (const void *)(base + header->sections[BLOCK_NODES].offset),
        .items = (const void *)(base + header->sections[BLOCK_ITEMS].offset),
        .runs = (const void *)(base + header->sections[BLOCK_RUNS].offset),
        .loopback = (const void *)(base + header->sections[BLOCK_LOOPBACK].offset),
        .nat64 = (const void *)(base + header->sections[BLOCK_NAT64].offset),
        .credentials = (const void *)(base + header->sections[BLOCK_CREDENTIALS].offset),
        .words = (const void *)(base + header->sections[BLOCK_WORDS].offset),
        .strings = base + header->sections[BLOCK_STRINGS].offset,
    };
    if (!header_ok(policy) || !entries_ok(policy) || !credentials_ok(policy) || !lookups_ok(policy))
        return error_set(err, -EINVAL, "compiled policy of %zu bytes is damaged; compile it again", size);
    *ret_policy = TAKE_POINTER(policy);
    return 0;
}

const void *policy_block(const struct policy *policy, size_t *ret_size) {
    *ret_size = policy->header->size;
    return policy->header;
}

void policy_free(struct policy *policy) {
    if (!policy) return;
    free(policy->owned);
    free(policy);
}

// ---- lookups ----

uint32_t block_hash_finish(uint32_t hash, enum block_name_set set) {
    hash ^= (uint32_t)set * 0x9e3779b9u;
    hash = (hash ^ (hash >> 16)) * 0x85ebca6bu;
    return hash ^ (hash >> 13);
}

const struct block_slot *block_find_slot(const struct policy *policy, enum block_name_set set, const char *name,
                                         uint32_t hash) {
    uint32_t count = block_count(policy, BLOCK_SLOTS);
    hash = block_hash_finish(hash, set);
    for (uint32_t probe = 0; probe < count; probe++) {
        const struct block_slot *slot = &policy->slots[(hash + probe) & (count - 1)];
        if (slot->name == BLOCK_NONE) return NULL;
        if (slot->hash == hash && slot->set == (uint32_t)set && strcmp(policy->strings + slot->name, name) == 0)
            return slot;
    }
    return NULL;
}

size_t block_match_name(const struct policy *policy, enum block_name_set exact, enum block_name_set wild,
                        const char *name, const struct block_slot *ret_slots[BLOCK_MATCH_MAX]) {
    bool has_exact = policy->header->set_counts[exact] > 0, has_wild = policy->header->set_counts[wild] > 0;
    size_t len = strlen(name), found = 0;
    if ((!has_exact && !has_wild) || len == 0 || len >= NAME_SIZE) return 0;
    uint32_t hash = BLOCK_HASH_START;
    const struct block_slot *slot;
    if (has_wild && (slot = block_find_slot(policy, wild, "", hash))) ret_slots[found++] = slot;
    for (size_t i = len; i-- > 0;) {
        if (name[i] == '.' && has_wild && i > 0 && (slot = block_find_slot(policy, wild, name + i + 1, hash)))
            ret_slots[found++] = slot;
        hash = block_hash_step(hash, name[i]);
    }
    if (has_exact && (slot = block_find_slot(policy, exact, name, hash))) ret_slots[found++] = slot;
    return found;
}

const struct block_node *block_find_node(const struct policy *policy, enum block_tree tree, const struct addr *addr) {
    // The last prefix that starts at or before the address is inside every prefix that contains the address.
    const struct block_node *nodes = policy->nodes + policy->header->trees[tree].first;
    uint32_t low = 0, high = policy->header->trees[tree].count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (addr_compare(&nodes[middle].prefix.addr, addr) <= 0)
            low = middle + 1;
        else
            high = middle;
    }
    const struct block_node *node = low > 0 ? &nodes[low - 1] : NULL;
    while (node && !addr_prefix_contains(&node->prefix, addr)) node = block_parent(policy, node);
    return node;
}

const struct block_node *block_parent(const struct policy *policy, const struct block_node *node) {
    return node->parent == BLOCK_NONE ? NULL : &policy->nodes[node->parent];
}

bool block_port_in(const struct policy *policy, const struct block_entry *entry, uint16_t port) {
    if (entry->ports.count == 0) return true;
    const struct policy_port_range *range = policy->ports + entry->ports.first;
    for (uint32_t i = 0; i < entry->ports.count; i++) {
        if (port >= range[i].first && port <= range[i].last) return true;
    }
    return false;
}

uint32_t block_find_run(const struct policy *policy, enum block_run_table table, uint16_t port) {
    const struct block_run *runs = policy->runs + policy->header->runs[table].first;
    uint32_t low = 0, high = policy->header->runs[table].count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (runs[middle].last < port)
            low = middle + 1;
        else
            high = middle;
    }
    return low < policy->header->runs[table].count && runs[low].first <= port ? runs[low].entry : BLOCK_NONE;
}

// ---- facts ----

struct policy_facts policy_facts(const struct policy *policy) {
    const struct block_header *header = policy->header;
    bool named = !header->name_base_allow && header->has_names;
    return (struct policy_facts){
        .generation = header->generation,
        .base_allow = header->name_base_allow,
        .names_are_policy = named,
        .has_names = header->has_names,
        // Under an open base only where the policy asks for it.
        .synthetic = ((named || header->name_base_allow) && header->dns_names == POLICY_DNS_SYNTHETIC) ||
                     header->set_counts[BLOCK_BOUND] > 0,
        .dns_names = (enum policy_dns_names)header->dns_names,
        .max_connections = header->max_connections,
        .connection_rate = header->connection_rate,
        .bandwidth_bytes = header->bandwidth_bytes,
        .max_bytes_out = header->max_bytes_out,
        .pool4 = header->pool4,
        .pool6 = header->pool6,
    };
}

size_t policy_loopback_ports(const struct policy *policy, uint16_t *ret_ports, size_t max) {
    size_t count = block_count(policy, BLOCK_LOOPBACK);
    if (count > max) count = max;
    if (count > 0) memcpy(ret_ports, policy->loopback, count * sizeof(*ret_ports));
    return count;
}

struct policy_rule_info policy_rule_info(const struct policy *policy, uint32_t rule) {
    if (rule >= block_count(policy, BLOCK_RULES)) return (struct policy_rule_info){.text = "", .source = ""};
    return (struct policy_rule_info){
        .text = policy->strings + policy->rules[rule].text,
        .source = policy->strings + policy->rules[rule].source,
    };
}

size_t policy_rule_count(const struct policy *policy) { return block_count(policy, BLOCK_RULES); }
