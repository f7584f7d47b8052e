// SPDX-License-Identifier: Apache-2.0
// Inside of a compiled policy: one block of memory, a header and sections of fixed-size records. Every reference is an
// offset or an index, so the block can be mapped anywhere. Private to this room.
#pragma once

#include "policy/model.h"
#include "policy/policy.h"

#define BLOCK_MAGIC 0x50535450u // "PTSP"
#define BLOCK_VERSION 3u
#define BLOCK_NONE UINT32_MAX

enum block_section {
    BLOCK_RULES,    // struct block_rule
    BLOCK_ENTRIES,  // struct block_entry: the allow entries in list order; entry i has rule i
    BLOCK_PORTS,    // struct policy_port_range
    BLOCK_SLOTS,    // struct block_slot: the hash table of names; 0 or a power of two
    BLOCK_NODES,    // struct block_node: the prefix trees, one after the other
    BLOCK_ITEMS,    // uint32_t: indexes of entries (allow), credentials (bound) or rules, listed by slots and nodes
    BLOCK_RUNS,     // struct block_run
    BLOCK_LOOPBACK, // uint16_t: ports of the host's loopback that entries open, ascending
    BLOCK_NAT64,    // struct addr_prefix
    BLOCK_CREDENTIALS, // struct block_credential: in the order in which rules are numbered for the vault
    BLOCK_WORDS,    // uint32_t: strings; the lists of credentials
    BLOCK_STRINGS,  // bytes; the last one is NUL
    BLOCK_SECTION_COUNT,
};

struct block_range {
    uint32_t first, count;
};

struct block_rule {
    uint32_t text, source; // strings
};

struct block_entry {
    uint8_t kind, protocol; // enum policy_entry_kind, enum policy_entry_protocol
    uint8_t private_ok;
    uint8_t loopback; // names the host's loopback: localhost, or an address of it
    struct block_range ports;
    uint32_t name;
    struct addr_prefix prefix;
};

struct block_credential {
    uint32_t host, header; // strings
    uint32_t name;         // string: of its binding, for people
    uint32_t path;         // string: prefix of whole segments; "": any path
    uint32_t repo_root;    // string: the segment in front of OWNER/REPO, "" if there is none
    struct block_range methods; // words; empty: any
    struct block_range repos;   // words, "owner/repo" in lower case; empty: any
    uint8_t first;         // of its host
    uint8_t scrub;
};

// What a name is looked up for.
enum block_name_set {
    BLOCK_ALLOW_EXACT,
    BLOCK_ALLOW_WILD,
    BLOCK_NODE_EXACT,
    BLOCK_NODE_WILD,
    BLOCK_NODE_OK_EXACT, // always_allowed
    BLOCK_NODE_OK_WILD,
    BLOCK_BOUND,
    BLOCK_SET_COUNT
};

struct block_slot {
    uint32_t name; // string; BLOCK_NONE: the slot is free
    uint32_t hash;
    struct block_range items;
    uint32_t set; // enum block_name_set
};

// Prefixes nest or are disjoint, so the ones that contain an address are a chain: the longest and its ancestors.
struct block_node {
    struct addr_prefix prefix;
    uint32_t parent; // a smaller index, or BLOCK_NONE
    struct block_range items;
};

enum block_tree {
    BLOCK_TREE_ALLOW,
    BLOCK_TREE_DENY,
    BLOCK_TREE_NODE_DENIED,
    BLOCK_TREE_NODE_ALLOWED,
    BLOCK_TREE_OWN,
    BLOCK_TREE_COUNT
};

// Ports on which the bytes of a connection could show an allowed name, and the first entry that says so.
enum block_run_table { BLOCK_RUNS_HTTPS, BLOCK_RUNS_HTTP, BLOCK_RUN_TABLE_COUNT };
struct block_run {
    uint16_t first, last;
    uint32_t entry;
};

struct block_header {
    uint32_t magic, version;
    uint64_t size;
    uint64_t checksum; // of everything behind the header and of the header with this field zero
    uint64_t generation, bandwidth_bytes, max_bytes_out;
    uint32_t max_connections, connection_rate;
    uint32_t rule_deny_all; // the deny entry for every address, or BLOCK_NONE
    uint32_t rule_base, rule_private;
    uint32_t rule_own;     // deny_own_addresses, or BLOCK_NONE
    uint32_t rule_special; // always_denied is "not globally reachable", or BLOCK_NONE
    uint32_t dns_cidrs;    // the entry by which lookups leave although no name is listed (`names: real`), or BLOCK_NONE
    uint8_t base_allow;    // of addresses
    uint8_t name_base_allow; // of names: false too if rule_deny_all is there
    uint8_t block_private, icmp_base, has_names, has_cidrs, has_node_names, dns_names;
    struct addr_prefix pool4, pool6;
    uint32_t set_counts[BLOCK_SET_COUNT];
    struct block_range trees[BLOCK_TREE_COUNT];
    struct block_range runs[BLOCK_RUN_TABLE_COUNT];
    struct {
        uint32_t offset, count;
    } sections[BLOCK_SECTION_COUNT];
};

struct policy {
    const struct block_header *header;
    const struct block_rule *rules;
    const struct block_entry *entries;
    const struct policy_port_range *ports;
    const struct block_slot *slots;
    const struct block_node *nodes;
    const uint32_t *items;
    const struct block_run *runs;
    const uint16_t *loopback;
    const struct addr_prefix *nat64;
    const struct block_credential *credentials;
    const uint32_t *words;
    const char *strings;
    void *owned; // the block, if policy_free frees it
};

static inline uint32_t block_count(const struct policy *policy, enum block_section section) {
    return policy->header->sections[section].count;
}

size_t block_record_size(enum block_section section);
uint64_t block_checksum(const void *block, size_t size);
// One step of the name hash: names are hashed from their last byte to the first, so that one pass gives every suffix.
static inline uint32_t block_hash_step(uint32_t hash, char c) { return (hash ^ (uint8_t)c) * 16777619u; }
#define BLOCK_HASH_START 2166136261u
// The hash of a whole name in one of the sets.
uint32_t block_hash_finish(uint32_t hash, enum block_name_set set);

// The slot of a name in a set, or NULL.
const struct block_slot *block_find_slot(const struct policy *policy, enum block_name_set set, const char *name,
                                         uint32_t hash);
// The exact slot of a name and those of the wildcards over it, nearest first. Returns the count.
#define BLOCK_MATCH_MAX 130
size_t block_match_name(const struct policy *policy, enum block_name_set exact, enum block_name_set wild,
                        const char *name, const struct block_slot *ret_slots[BLOCK_MATCH_MAX]);
// The node of the longest prefix that contains an address, or NULL; block_parent gives the others.
const struct block_node *block_find_node(const struct policy *policy, enum block_tree tree, const struct addr *addr);
const struct block_node *block_parent(const struct policy *policy, const struct block_node *node);
bool block_port_in(const struct policy *policy, const struct block_entry *entry, uint16_t port);
// The first entry by which bytes on this port could show an allowed name, or BLOCK_NONE.
uint32_t block_find_run(const struct policy *policy, enum block_run_table table, uint16_t port);

// Words of a model's entries: "https api.github.com:443", "any 203.0.113.0/24". Returns a string to free, or NULL.
char *explain_entry(const struct policy_entry *entry, bool allow);
const char *explain_entry_protocol(enum policy_entry_protocol protocol);
// The limit, its value in this policy and what to do; nothing for POLICY_LIMIT_NONE.
void limit_hint(const struct policy *policy, enum policy_limit limit, char buf[POLICY_HINT_SIZE]);

// Rules that can never match and other things that a person should know (lint.c).
int lint_check(const struct policy_model *model, const struct policy *policy, struct policy_warnings *warnings,
               struct error *err);
