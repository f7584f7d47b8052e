// SPDX-License-Identifier: Apache-2.0
// What a person should know about a policy that compiled: entries that can never match, needless deny entries,
// wildcards over public suffixes, ranges that overlap the synthetic pool, an E2B allowOut that is no allow list. Uses
// the lookups of the compiled block, so that 10,000 entries take no longer than they must. Only one entry at a time is
// looked for as the cover of another, never the union of several.
#include "policy/block.h"
#include "policy/compile.h"

#include <errno.h>

#include "base/mem.h"

struct lint {
    const struct policy_model *model;
    const struct policy *policy;
    struct policy_warnings *warnings;
    struct error *err;
};

// About one rule of perhaps thousands: no more than can be read, and not at the cost of what is said about the whole.
#define warn_of_rule(lint, ...) \
    do { \
        if (lint_has_room(lint)) policy_warnings_add((lint)->warnings, __VA_ARGS__); \
    } while (0)

static bool lint_has_room(const struct lint *lint) {
    if (!lint->warnings) return false;
    bool room = lint->warnings->count < POLICY_WARNINGS_MAX;
    lint->warnings->more += !room;
    return room;
}

static const char *rule_text(const struct lint *lint, uint32_t rule) {
    return policy_rule_info(lint->policy, rule).text;
}

static const char *rule_source(const struct lint *lint, uint32_t rule) {
    return policy_rule_info(lint->policy, rule).source;
}

// Native files are strict; options of the command line, presets and the other dialects only warn.
static bool is_strict(const struct lint *lint, const struct policy_entry *entry) {
    return lint->model->dialect == POLICY_DIALECT_NATIVE && !lint->model->known && !entry->preset && entry->source && strncmp(entry->source, "--", 2) != 0;
}

// "x.<suffix>": a name that stands for everything under a wildcard.
static const char *wildcard_sample(const char *suffix, char buf[NAME_SIZE + 2]) {
    snprintf(buf, NAME_SIZE + 2, "x.%s", suffix);
    return buf;
}

static bool prefix_inside(const struct addr_prefix *outer, const struct addr_prefix *inner) {
    return outer->length <= inner->length && addr_prefix_contains(outer, &inner->addr);
}

static bool prefixes_overlap(const struct addr_prefix *a, const struct addr_prefix *b) {
    return prefix_inside(a, b) || prefix_inside(b, a);
}

// ---- covered by an earlier entry ----

static bool protocol_covers(enum policy_entry_protocol outer, enum policy_entry_protocol inner) {
    if (outer == inner) return true;
    bool tcp = inner == POLICY_ENTRY_HTTPS || inner == POLICY_ENTRY_HTTP || inner == POLICY_ENTRY_TCP;
    return (outer == POLICY_ENTRY_TCP && tcp) || (outer == POLICY_ENTRY_ANY && (tcp || inner == POLICY_ENTRY_UDP));
}

static bool ports_cover(const struct policy *policy, const struct block_entry *outer, const struct block_entry *inner) {
    if (outer->ports.count == 0) return true;
    if (inner->ports.count == 0) return false;
    for (uint32_t i = 0; i < inner->ports.count; i++) {
        struct policy_port_range range = policy->ports[inner->ports.first + i];
        uint32_t port = range.first;
        for (uint32_t j = 0; j < outer->ports.count && port <= range.last;) {
            struct policy_port_range cover = policy->ports[outer->ports.first + j++];
            if (port < cover.first || port > cover.last) continue;
            port = cover.last + 1u;
            j = 0;
        }
        if (port <= range.last) return false;
    }
    return true;
}

static bool entry_covers(const struct lint *lint, uint32_t outer, uint32_t inner) {
    const struct block_entry *a = &lint->policy->entries[outer], *b = &lint->policy->entries[inner];
    bool lifts = a->private_ok || a->kind == POLICY_ENTRY_CIDR, needs = b->private_ok || b->kind == POLICY_ENTRY_CIDR;
    return outer < inner && (lifts || !needs || !lint->model->block_private) &&
           (lint->model->allow[outer].both_families || !lint->model->allow[inner].both_families) &&
           protocol_covers((enum policy_entry_protocol)a->protocol, (enum policy_entry_protocol)b->protocol) &&
           ports_cover(lint->policy, a, b);
}

static uint32_t cover_in(const struct lint *lint, struct block_range items, uint32_t inner) {
    for (uint32_t i = 0; i < items.count && lint->policy->items[items.first + i] < inner; i++) {
        uint32_t outer = lint->policy->items[items.first + i];
        if (entry_covers(lint, outer, inner)) return outer;
    }
    return BLOCK_NONE;
}

static uint32_t covering_entry(const struct lint *lint, uint32_t index) {
    const struct policy_entry *entry = &lint->model->allow[index];
    const struct block_slot *slots[BLOCK_MATCH_MAX];
    char sample[NAME_SIZE + 2];
    bool exact = entry->kind == POLICY_ENTRY_NAME;
    if (!exact && entry->kind != POLICY_ENTRY_WILDCARD) {
        const struct block_node *node = block_find_node(lint->policy, BLOCK_TREE_ALLOW, &entry->prefix.addr);
        for (; node; node = block_parent(lint->policy, node)) {
            uint32_t outer =
                node->prefix.length <= entry->prefix.length ? cover_in(lint, node->items, index) : BLOCK_NONE;
            if (outer != BLOCK_NONE) return outer;
        }
        return BLOCK_NONE;
    }
    const char *name = exact ? entry->name : wildcard_sample(entry->name, sample);
    if (!exact && entry->name[0] == '\0') name = "x";
    size_t count =
        block_match_name(lint->policy, exact ? BLOCK_ALLOW_EXACT : BLOCK_ALLOW_WILD, BLOCK_ALLOW_WILD, name, slots);
    for (size_t i = 0; i < count; i++) {
        uint32_t outer = cover_in(lint, slots[i]->items, index);
        if (outer != BLOCK_NONE) return outer;
    }
    return BLOCK_NONE;
}

// ---- covered by a guardrail ----

static uint32_t node_covers_name(const struct lint *lint, const struct policy_entry *entry) {
    const struct block_slot *slots[BLOCK_MATCH_MAX];
    char sample[NAME_SIZE + 2];
    bool exact = entry->kind == POLICY_ENTRY_NAME;
    if (!exact && entry->name[0] == '\0') return BLOCK_NONE;
    const char *name = exact ? entry->name : wildcard_sample(entry->name, sample);
    size_t count =
        block_match_name(lint->policy, exact ? BLOCK_NODE_EXACT : BLOCK_NODE_WILD, BLOCK_NODE_WILD, name, slots);
    return count > 0 ? lint->policy->items[slots[0]->items.first] : BLOCK_NONE;
}

static bool tree_covers(const struct policy *policy, enum block_tree tree, const struct addr_prefix *prefix,
                        uint32_t *ret_rule) {
    for (const struct block_node *node = block_find_node(policy, tree, &prefix->addr); node;
         node = block_parent(policy, node)) {
        if (!prefix_inside(&node->prefix, prefix)) continue;
        *ret_rule = policy->items[node->items.first];
        return true;
    }
    return false;
}

static bool special_covers(const struct addr_prefix *prefix) {
    const struct addr_prefix *blocks;
    size_t count = addr_special_blocks(&blocks);
    for (size_t i = 0; i < count; i++) {
        if (prefix_inside(&blocks[i], prefix)) return true;
    }
    return false;
}

static bool exempted(const struct policy *policy, const struct addr_prefix *prefix) {
    struct block_range range = policy->header->trees[BLOCK_TREE_NODE_ALLOWED];
    for (uint32_t i = 0; i < range.count; i++) {
        if (prefixes_overlap(&policy->nodes[range.first + i].prefix, prefix)) return true;
    }
    return false;
}

static uint32_t node_covers_prefix(const struct lint *lint, const struct policy_entry *entry) {
    const struct block_header *header = lint->policy->header;
    uint32_t rule;
    if (entry->both_families || exempted(lint->policy, &entry->prefix)) return BLOCK_NONE;
    if (tree_covers(lint->policy, BLOCK_TREE_NODE_DENIED, &entry->prefix, &rule)) return rule;
    if (header->rule_special != BLOCK_NONE && special_covers(&entry->prefix)) return header->rule_special;
    if (header->rule_own != BLOCK_NONE && tree_covers(lint->policy, BLOCK_TREE_OWN, &entry->prefix, &rule))
        return header->rule_own;
    return BLOCK_NONE;
}

// ---- one entry ----

static int never_matches(const struct lint *lint, uint32_t index, uint32_t cover, const char *fix) {
    const struct policy_entry *entry = &lint->model->allow[index];
    char why[512] = "";
    if (cover != BLOCK_NONE)
        snprintf(why, sizeof(why), "rule \"%s\" (%s) covers it; ", rule_text(lint, cover), rule_source(lint, cover));
    static const char format[] = "%s: rule \"%s\" can never match: %s%s";
    const char *source = rule_source(lint, index), *text = rule_text(lint, index);
    if (is_strict(lint, entry)) return error_set(lint->err, -EINVAL, format, source, text, why, fix);
    warn_of_rule(lint, format, source, text, why, fix);
    return 0;
}

// The E2B reader makes two entries of a domain; one line for both is enough.
static bool same_destination(const struct lint *lint, uint32_t index) {
    if (index == 0) return false;
    const struct policy_entry *a = &lint->model->allow[index - 1], *b = &lint->model->allow[index];
    if (a->kind != b->kind || lint->model->dialect != POLICY_DIALECT_E2B) return false;
    return strcmp(a->name, b->name) == 0 && a->prefix.length == b->prefix.length &&
           addr_equal(&a->prefix.addr, &b->prefix.addr);
}

static int check_pools(const struct lint *lint, uint32_t index) {
    const struct policy_entry *entry = &lint->model->allow[index];
    const struct addr_prefix *pools[] = {&lint->policy->header->pool4, &lint->policy->header->pool6};
    // A range of everything means the addresses outside; the pool's own are never judged as addresses.
    if (entry->kind != POLICY_ENTRY_CIDR || entry->prefix.length == 0 || !policy_facts(lint->policy).synthetic) return 0;
    for (size_t i = 0; i < ARRAY_LENGTH(pools); i++) {
        char text[ADDR_TEXT_SIZE];
        if (!prefixes_overlap(pools[i], &entry->prefix)) continue;
        return error_set(lint->err, -EINVAL,
                         "%s: rule \"%s\" overlaps %s, from which the sandbox's names get their addresses; narrow the "
                         "range, or move the pool in the node's configuration",
                         rule_source(lint, index), rule_text(lint, index), addr_prefix_format(pools[i], text));
    }
    return 0;
}

static void check_private(const struct lint *lint, uint32_t index) {
    const struct policy_entry *entry = &lint->model->allow[index];
    bool address = entry->kind == POLICY_ENTRY_ADDRESS && special_covers(&entry->prefix);
    bool localhost = entry->kind == POLICY_ENTRY_NAME && strcmp(entry->name, "localhost") == 0;
    if (!lint->model->block_private || entry->private_ok || (!address && !localhost)) return;
    // A range beside it may have lifted the block.
    struct addr loopback = addr_ipv4(0x7f000001);
    struct policy_request request = {.protocol = POLICY_TCP, .app = POLICY_APP_TLS, .dialled = localhost ? entry->name : NULL,
                                     .address = address ? &entry->prefix.addr : &loopback,
                                     .port = entry->port_count ? entry->ports[0].first : 443};
    if (policy_decide(lint->policy, &request).verdict != POLICY_DENY) return;
    warn_of_rule(lint, "%s: rule \"%s\" can never match: private addresses are blocked; %s", rule_source(lint, index),
                 rule_text(lint, index),
                 lint->model->dialect == POLICY_DIALECT_NATIVE ? "add private: true to the entry, or use --allow-private"
                 : "set block_private_ips to false");
}

// Ranges that do something else than they seem to.
static void check_range(const struct lint *lint, uint32_t index) {
    const struct policy_entry *entry = &lint->model->allow[index];
    if (entry->kind != POLICY_ENTRY_CIDR || lint->model->dialect == POLICY_DIALECT_E2B) return;
    if (tables_names_loopback(entry) && entry->port_count == 0)
        warn_of_rule(lint, "%s: rule \"%s\" opens nothing of the host's loopback: name the ports that the "
                     "sandbox's loopback is to hand over", rule_source(lint, index), rule_text(lint, index));
    if (entry->prefix.length == 0 && lint->model->block_private)
        warn_of_rule(lint, "%s: rule \"%s\" opens private addresses and metadata services too; to keep them "
                     "closed use --network all (base: allow)", rule_source(lint, index), rule_text(lint, index));
}

// "--allow 2001:db8::1:443": without brackets the last group is part of the address.
static void check_brackets(const struct lint *lint, uint32_t index) {
    static const char *const ports[] = {":22", ":80", ":443", ":8080", ":8443"};
    const struct policy_entry *entry = &lint->model->allow[index];
    const char *source = rule_source(lint, index), *colon = strrchr(source, ':');
    bool bare = strncmp(source, "--", 2) == 0 && !strchr(source, '[') && strstr(source, "::");
    if (entry->kind != POLICY_ENTRY_ADDRESS || entry->prefix.addr.family != ADDR_IPV6 || !bare) return;
    const char *host = source + strcspn(source, " ") + 1;
    for (size_t i = 0; i < ARRAY_LENGTH(ports); i++)
        if (strcmp(colon, ports[i]) == 0)
            warn_of_rule(lint, "%s: \"%s\" is all address, on port 443; if %s is the port, write [%.*s]%s", source, host,
                         colon + 1, (int)(colon - host), host, colon);
}

static bool named_tcp(const struct lint *lint, const struct policy_entry *entry) {
    bool name = entry->kind == POLICY_ENTRY_NAME || entry->kind == POLICY_ENTRY_WILDCARD;
    return name && entry->protocol == POLICY_ENTRY_TCP && lint->model->has_dns_names &&
           lint->model->dns_names == POLICY_DNS_REAL && policy_facts(lint->policy).names_are_policy;
}

static int check_allow(const struct lint *lint, uint32_t index) {
    const struct policy_entry *entry = &lint->model->allow[index];
    bool name = entry->kind == POLICY_ENTRY_NAME || entry->kind == POLICY_ENTRY_WILDCARD;
    int r = check_pools(lint, index);
    if (r != 0 || same_destination(lint, index)) return r;
    uint32_t node = name ? node_covers_name(lint, entry) : node_covers_prefix(lint, entry);
    if (node != BLOCK_NONE)
        return never_matches(lint, index, node, "remove the entry, or have the operator change the node's rules");
    uint32_t cover = covering_entry(lint, index);
    if (cover != BLOCK_NONE && entry->preset) return 0;
    if (cover != BLOCK_NONE) return never_matches(lint, index, cover, "remove one of the two");
    check_private(lint, index);
    check_range(lint, index);
    check_brackets(lint, index);
    if (named_tcp(lint, entry))
        return never_matches(lint, index, BLOCK_NONE, "leave dns: {names: real} out: no bytes are read of it, so without a "
                                                      "synthetic address its name is never seen");
    if (entry->kind == POLICY_ENTRY_WILDCARD && entry->name[0] && name_is_public_suffix(entry->name))
        warn_of_rule(lint, "%s: \"*.%s\" allows every name that anybody registers under %s; name the domains you need",
                     rule_source(lint, index), entry->name, entry->name);
    return 0;
}

// The allow entry that leaves nothing of a deny entry, or BLOCK_NONE.
static uint32_t allow_over_deny(const struct lint *lint, const struct policy_entry *deny) {
    const struct block_node *node = block_find_node(lint->policy, BLOCK_TREE_ALLOW, &deny->prefix.addr);
    for (; node; node = block_parent(lint->policy, node)) {
        if (!prefix_inside(&node->prefix, &deny->prefix)) continue;
        for (uint32_t i = 0; i < node->items.count; i++) {
            uint32_t index = lint->policy->items[node->items.first + i];
            const struct block_entry *entry = &lint->policy->entries[index];
            if (entry->kind == POLICY_ENTRY_CIDR && entry->protocol == POLICY_ENTRY_ANY && entry->ports.count == 0 &&
                (lint->model->allow[index].both_families || !deny->both_families))
                return index;
        }
    }
    return BLOCK_NONE;
}

static void check_deny(const struct lint *lint, uint32_t index) {
    const struct policy_entry *deny = &lint->model->deny[index];
    const struct block_header *header = lint->policy->header;
    uint32_t rule = (uint32_t)lint->model->allow_count + index;
    bool e2b = lint->model->dialect == POLICY_DIALECT_E2B;
    // E2B asks for denyOut 0.0.0.0/0 beside domains, so that one is never needless there.
    if (e2b && deny->both_families) return;
    uint32_t allow = allow_over_deny(lint, deny);
    if (allow != BLOCK_NONE)
        warn_of_rule(lint, "%s: rule \"%s\" never matches: rule \"%s\" (%s) wins over it; remove it", rule_source(lint, rule),
                     rule_text(lint, rule), rule_text(lint, allow), rule_source(lint, allow));
    else if (!header->base_allow || (e2b && header->rule_deny_all != BLOCK_NONE))
        warn_of_rule(lint, "%s: rule \"%s\" is needless: what no entry allows is denied anyway; remove it",
                     rule_source(lint, rule), rule_text(lint, rule));
}

// A guardrail closes the host of a binding; an E2B rule opens nothing.
static int check_binding(const struct lint *lint, const struct policy_binding *binding) {
    struct policy_binding_target targets[POLICY_BINDING_TARGETS];
    size_t count = policy_binding_targets(binding, targets);
    for (size_t i = 0; i < count; i++) {
        struct policy_request request = {.protocol = POLICY_DNS, .dialled = targets[i].host};
        struct policy_decision decision = policy_decide(lint->policy, &request);
        if (decision.verdict != POLICY_DENY) continue;
        const char *source = binding->source ? binding->source : "binding";
        if (lint->model->dialect == POLICY_DIALECT_E2B)
            policy_warnings_add(lint->warnings, "%s: the headers for %s are never added: rule \"%s\" (%s) closes it; open it in "
                                                "allowOut, or remove them", source, targets[i].host,
                                rule_text(lint, decision.rule), rule_source(lint, decision.rule));
        else if (decision.reason == POLICY_NODE_DENIED)
            return error_set(lint->err, -EINVAL,
                             "%s: the credential for %s can never be added: rule \"%s\" (%s) closes it; remove the binding, or "
                             "have the operator change the node's rules", source, targets[i].host,
                             rule_text(lint, decision.rule), rule_source(lint, decision.rule));
    }
    return 0;
}

int lint_check(const struct policy_model *model, const struct policy *policy, struct policy_warnings *warnings,
               struct error *err) {
    struct lint lint = {.model = model, .policy = policy, .warnings = warnings, .err = err};
    if (model->base_allow && !model->block_private && model->dialect != POLICY_DIALECT_E2B)
        policy_warnings_add(warnings, "%s: with private addresses allowed, this opens private networks and metadata services "
                                      "too; to keep them closed leave --allow-private (block_private: false) out",
                            rule_source(&lint, policy->header->rule_base));
    if (model->dialect == POLICY_DIALECT_E2B && model->allow_count > 0 && policy->header->name_base_allow)
        policy_warnings_add(warnings, "allowOut alone is not an allow list: every other destination stays open; add "
                                      "\"denyOut\": [\"0.0.0.0/0\"] to close it");
    for (size_t i = 0; i < model->binding_count; i++) {
        int r = check_binding(&lint, &model->bindings[i]);
        if (r != 0) return r;
    }
    for (uint32_t i = 0; i < model->allow_count; i++) {
        int r = check_allow(&lint, i);
        if (r != 0) return r;
    }
    for (uint32_t i = 0; i < model->deny_count; i++) check_deny(&lint, i);
    return 0;
}
