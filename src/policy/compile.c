// SPDX-License-Identifier: Apache-2.0
// From a model to a compiled block. One growing buffer per section; rules come first in the order allow entries, deny
// entries, base, private, node, so that the index of an allow entry is its rule. tables.c makes the lookups. The result
// goes through policy_from_block like any other block.
#include "policy/compile.h"

#include <errno.h>

#include "base/mem.h"

static uint32_t add_rule(struct compile *compile, const char *text, const char *source) {
    struct block_rule rule = {.text = tables_add_string(compile, text),
                              .source = tables_add_string(compile, source ? source : "default")};
    uint32_t index = tables_count(compile, BLOCK_RULES);
    tables_add(compile, BLOCK_RULES, &rule);
    return index;
}

static void add_name(struct compile *compile, enum block_name_set set, const char *name, uint32_t item) {
    struct name_pair pair = {.set = set, .name = name, .item = item};
    buf_append(&compile->names, &pair, sizeof(pair));
}

static void add_prefix(struct compile *compile, enum block_tree tree, const struct addr_prefix *prefix, uint32_t item) {
    struct prefix_pair pair = {.tree = tree, .prefix = *prefix, .item = item};
    buf_append(&compile->prefixes, &pair, sizeof(pair));
}

static void add_entry_prefix(struct compile *compile, enum block_tree tree, const struct policy_entry *entry,
                             uint32_t item) {
    static const struct addr_prefix everything6 = {.addr = {.family = ADDR_IPV6}};
    add_prefix(compile, tree, &entry->prefix, item);
    if (entry->both_families) add_prefix(compile, tree, &everything6, item);
}

// ---- rules and entries ----

static struct block_range add_ports(struct compile *compile, const struct policy_entry *entry) {
    struct block_range range = {.first = tables_count(compile, BLOCK_PORTS), .count = (uint32_t)entry->port_count};
    bool https = entry->protocol == POLICY_ENTRY_HTTPS;
    if (entry->port_count == 0 && (https || entry->protocol == POLICY_ENTRY_HTTP)) {
        uint16_t port = https ? 443 : 80;
        tables_add(compile, BLOCK_PORTS, &(struct policy_port_range){.first = port, .last = port});
        range.count = 1;
    }
    for (size_t i = 0; i < entry->port_count; i++) tables_add(compile, BLOCK_PORTS, &entry->ports[i]);
    return range;
}

static int add_entry_rule(struct compile *compile, const struct policy_entry *entry, bool allow, uint32_t *ret_rule) {
    AUTO_FREE char *text = explain_entry(entry, allow);
    if (!text) return -ENOMEM;
    *ret_rule = add_rule(compile, text, entry->source);
    return 0;
}

static int add_allow(struct compile *compile, const struct policy_entry *entry) {
    uint32_t index;
    if (add_entry_rule(compile, entry, true, &index) != 0) return -ENOMEM;
    bool name = entry->kind == POLICY_ENTRY_NAME || entry->kind == POLICY_ENTRY_WILDCARD;
    struct block_entry record = {
        .kind = (uint8_t)entry->kind,
        .protocol = (uint8_t)entry->protocol,
        .private_ok = entry->private_ok,
        .loopback = tables_names_loopback(entry),
        .ports = add_ports(compile, entry),
        .name = name ? tables_add_string(compile, entry->name) : 0,
    };
    if (!name) record.prefix = entry->prefix;
    tables_add(compile, BLOCK_ENTRIES, &record);
    compile->header.has_names |= name;
    compile->header.has_cidrs |= entry->kind == POLICY_ENTRY_CIDR;
    if (name)
        add_name(compile, entry->kind == POLICY_ENTRY_NAME ? BLOCK_ALLOW_EXACT : BLOCK_ALLOW_WILD, entry->name, index);
    else
        add_entry_prefix(compile, BLOCK_TREE_ALLOW, entry, index);
    return 0;
}

static bool covers_everything(const struct policy_entry *entry) {
    return entry->both_families || (entry->prefix.length == 0 && entry->prefix.addr.family == ADDR_IPV4);
}

static int add_policy_rules(struct compile *compile) {
    const struct policy_model *model = compile->model;
    struct block_header *header = &compile->header;
    header->rule_deny_all = BLOCK_NONE;
    for (size_t i = 0; i < model->allow_count; i++) {
        if (add_allow(compile, &model->allow[i]) != 0) return -ENOMEM;
    }
    for (size_t i = 0; i < model->deny_count; i++) {
        uint32_t rule;
        if (add_entry_rule(compile, &model->deny[i], false, &rule) != 0) return -ENOMEM;
        add_entry_prefix(compile, BLOCK_TREE_DENY, &model->deny[i], rule);
        if (header->rule_deny_all == BLOCK_NONE && covers_everything(&model->deny[i])) header->rule_deny_all = rule;
    }
    header->rule_base = add_rule(compile, model->base_allow ? "base allow" : "base deny", model->base_source);
    header->rule_private = add_rule(compile,
                                    model->block_private ? "block private addresses and those of the host"
                                                         : "block the host's loopback where no entry opens it",
                                    NULL);
    return 0;
}

// ---- node ----

static uint32_t add_node_rule(struct compile *compile, const char *what, const char *value, bool configured) {
    char text[NAME_SIZE + 40];
    snprintf(text, sizeof(text), "node %s%s%s", what, *value ? " " : "", value);
    return add_rule(compile, text, configured ? compile->node->source : NULL);
}

static void add_node_prefixes(struct compile *compile, enum block_tree tree, const char *what,
                              const struct addr_prefix *prefixes, size_t count) {
    char text[ADDR_TEXT_SIZE];
    for (size_t i = 0; i < count; i++)
        add_prefix(compile, tree, &prefixes[i],
                   add_node_rule(compile, what, addr_prefix_format(&prefixes[i], text), true));
}

static void add_node_rules(struct compile *compile) {
    const struct policy_node *node = compile->node;
    struct block_header *header = &compile->header;
    bool guarded = compile->model->dialect == POLICY_DIALECT_E2B || node->guarded;
    header->rule_special = header->rule_own = BLOCK_NONE;
    if (node->has_always_denied)
        add_node_prefixes(compile, BLOCK_TREE_NODE_DENIED, "always_denied", node->always_denied,
                          node->always_denied_count);
    else if (guarded)
        header->rule_special =
            add_node_rule(compile, "always_denied: every address that is not globally reachable", "", false);
    for (size_t i = 0; i < node->always_denied_name_count; i++) {
        const char *name = node->always_denied_names[i];
        uint32_t rule = add_node_rule(compile, "always_denied", name, true);
        bool wild = name[0] == '*' && name[1] == '.';
        add_name(compile, wild ? BLOCK_NODE_WILD : BLOCK_NODE_EXACT, wild ? name + 2 : name, rule);
    }
    header->has_node_names = node->always_denied_name_count > 0;
    add_node_prefixes(compile, BLOCK_TREE_NODE_ALLOWED, "always_allowed", node->always_allowed,
                      node->always_allowed_count);
    for (size_t i = 0; i < node->always_allowed_name_count; i++) {
        const char *name = node->always_allowed_names[i];
        bool wild = name[0] == '*' && name[1] == '.';
        uint32_t rule = add_node_rule(compile, "always_allowed", name, true);
        add_name(compile, wild ? BLOCK_NODE_OK_WILD : BLOCK_NODE_OK_EXACT, wild ? name + 2 : name, rule);
    }
    if (node->has_deny_own_addresses ? node->deny_own_addresses : guarded)
        header->rule_own = add_node_rule(compile, "deny_own_addresses", "", node->has_deny_own_addresses);
    for (size_t i = 0; i < node->nat64_count; i++) tables_add(compile, BLOCK_NAT64, &node->nat64_prefixes[i]);
}

static struct addr_prefix host_prefix(const struct addr *addr) {
    return (struct addr_prefix){.addr = *addr, .length = addr->family == ADDR_IPV4 ? 32 : 128};
}

static void add_own(struct compile *compile, const struct addr *own, size_t own_count) {
    struct addr_prefix loopback4 = {.addr = addr_ipv4(0x7f000000), .length = 8};
    struct addr_prefix loopback6 = {.addr = {.family = ADDR_IPV6, .bytes = {[15] = 1}}, .length = 128};
    uint32_t rule = compile->header.rule_own != BLOCK_NONE ? compile->header.rule_own : compile->header.rule_private;
    add_prefix(compile, BLOCK_TREE_OWN, &loopback4, rule);
    add_prefix(compile, BLOCK_TREE_OWN, &loopback6, rule);
    for (size_t i = 0; i < own_count + compile->node->own_address_count; i++) {
        const struct addr *addr = i < own_count ? &own[i] : &compile->node->own_addresses[i - own_count];
        struct addr_prefix prefix = host_prefix(addr);
        if (addr->family != ADDR_NONE) add_prefix(compile, BLOCK_TREE_OWN, &prefix, rule);
    }
}

// ---- bindings, settings ----

static struct block_range add_words(struct compile *compile, char *const *words, size_t count) {
    struct block_range range = {.first = tables_count(compile, BLOCK_WORDS), .count = (uint32_t)count};
    for (size_t i = 0; i < count; i++) {
        uint32_t word = tables_add_string(compile, words[i]);
        tables_add(compile, BLOCK_WORDS, &word);
    }
    return range;
}

static bool is_first_of_host(const struct compile *compile, const char *host) {
    const struct name_pair *pairs = (const struct name_pair *)(const void *)compile->names.data;
    for (size_t i = 0; i < compile->names.len / sizeof(*pairs); i++)
        if (pairs[i].set == BLOCK_BOUND && strcmp(pairs[i].name, host) == 0) return false;
    return true;
}

// As --bind would have it; the operator's rules by their kind.
static uint32_t add_binding_name(struct compile *compile, const struct policy_binding *binding,
                                 const struct policy_binding_target *target) {
    char text[NAME_SIZE + 256];
    const char *kind = policy_binding_word(binding->workspace ? POLICY_BINDING_WORKSPACE : binding->kind);
    bool one = !binding->workspace && binding->kind != POLICY_BINDING_HEADER;
    if (one) snprintf(text, sizeof(text), "%s", kind);
    else snprintf(text, sizeof(text), "%s:%s:%s", kind, target->host, target->header);
    return tables_add_string(compile, text);
}

static void add_credential(struct compile *compile, const struct policy_binding *binding,
                           const struct policy_binding_target *target) {
    struct block_credential record = {
        .host = tables_add_string(compile, target->host),
        .header = tables_add_string(compile, target->header),
        .name = add_binding_name(compile, binding, target),
        .path = binding->path ? tables_add_string(compile, binding->path) : 0,
        .repo_root = target->repo_root ? tables_add_string(compile, target->repo_root) : 0,
        .methods = add_words(compile, binding->methods, binding->method_count),
        .repos = add_words(compile, binding->repos, binding->repo_count),
        .first = is_first_of_host(compile, target->host),
        .scrub = binding->scrub,
    };
    add_name(compile, BLOCK_BOUND, target->host, tables_count(compile, BLOCK_CREDENTIALS));
    tables_add(compile, BLOCK_CREDENTIALS, &record);
}

static void add_bindings(struct compile *compile) {
    for (size_t i = 0; i < compile->model->binding_count; i++) {
        const struct policy_binding *binding = &compile->model->bindings[i];
        struct policy_binding_target targets[POLICY_BINDING_TARGETS];
        size_t count = policy_binding_targets(binding, targets);
        for (size_t k = 0; k < count; k++) add_credential(compile, binding, &targets[k]);
    }
}

// 0 is none.
static uint64_t lower_limit(uint64_t one, uint64_t other) { return !one || (other && other < one) ? other : one; }

static void add_settings(struct compile *compile, uint64_t generation) {
    const struct policy_model *model = compile->model;
    struct block_header *header = &compile->header;
    // A ULA prefix made with random bits (RFC 4193), so that it meets nobody's own network.
    static const struct addr_prefix pool6 = {
        .addr = {.family = ADDR_IPV6, .bytes = {0xfd, 0x5a, 0x91, 0xc3, 0x7e, 0x24}}, .length = 96};
    const struct addr_prefix pool4 = {.addr = addr_ipv4(0xc6120000), .length = 15};
    header->magic = BLOCK_MAGIC;
    header->version = BLOCK_VERSION;
    header->generation = generation;
    header->bandwidth_bytes = lower_limit(model->bandwidth_bytes, compile->node->bandwidth_bytes);
    header->max_bytes_out = lower_limit(model->max_bytes_out, compile->node->max_bytes_out);
    header->max_connections = (uint32_t)lower_limit(model->max_connections, compile->node->max_connections);
    header->connection_rate = (uint32_t)lower_limit(model->connection_rate, compile->node->connection_rate);
    header->base_allow = model->base_allow;
    header->name_base_allow = model->base_allow && header->rule_deny_all == BLOCK_NONE;
    header->block_private = model->block_private;
    header->icmp_base = model->dialect == POLICY_DIALECT_E2B || model->base_icmp;
    header->pool4 = compile->node->pool4.addr.family != ADDR_NONE ? compile->node->pool4 : pool4;
    header->pool6 = compile->node->pool6.addr.family != ADDR_NONE ? compile->node->pool6 : pool6;
    // Synthetic names are the default where names are the policy (semantics section 8).
    bool synthetic = !header->name_base_allow && header->has_names;
    header->dns_names = (uint8_t)(model->has_dns_names ? model->dns_names
                                  : synthetic          ? POLICY_DNS_SYNTHETIC
                                                       : POLICY_DNS_REAL);
    header->dns_cidrs = BLOCK_NONE;
    bool real = model->has_dns_names && model->dns_names == POLICY_DNS_REAL;
    for (size_t i = model->allow_count; real && !header->name_base_allow && !header->has_names && i-- > 0;) {
        if (model->allow[i].kind == POLICY_ENTRY_CIDR) header->dns_cidrs = (uint32_t)i;
    }
}

// ---- the block ----

static int assemble(struct compile *compile, struct policy **ret_policy, struct error *err) {
    size_t size = sizeof(struct block_header);
    for (size_t i = 0; i < BLOCK_SECTION_COUNT; i++) {
        if (compile->sections[i].failed) return -ENOMEM;
        size = (size + 7) & ~(size_t)7;
        compile->header.sections[i].offset = (uint32_t)size;
        compile->header.sections[i].count = tables_count(compile, (enum block_section)i);
        size += compile->sections[i].len;
    }
    if (size > UINT32_MAX) return error_set(err, -EINVAL, "the policy is too large; use fewer entries");
    compile->header.size = size;
    AUTO_FREE char *block = calloc(1, size);
    if (!block) return -ENOMEM;
    struct block_header *header = (struct block_header *)(void *)block;
    *header = compile->header;
    for (size_t i = 0; i < BLOCK_SECTION_COUNT; i++) {
        if (compile->sections[i].len > 0)
            memcpy(block + header->sections[i].offset, compile->sections[i].data, compile->sections[i].len);
    }
    header->checksum = block_checksum(block, size);
    int r = policy_from_block(block, size, ret_policy, err);
    if (r == 0) (*ret_policy)->owned = TAKE_POINTER(block);
    return r;
}

static int build(struct compile *compile, const struct addr *own, size_t own_count, uint64_t generation,
                 struct policy **ret_policy, struct error *err) {
    buf_append(&compile->sections[BLOCK_STRINGS], "", 1);
    if (add_policy_rules(compile) != 0) return -ENOMEM;
    add_node_rules(compile);
    add_own(compile, own, own_count);
    add_bindings(compile);
    add_settings(compile, generation);
    if (compile->names.failed || compile->prefixes.failed || compile->sections[BLOCK_ENTRIES].failed ||
        compile->sections[BLOCK_PORTS].failed)
        return -ENOMEM;
    if (tables_build(compile) != 0) return -ENOMEM;
    return assemble(compile, ret_policy, err);
}

int policy_compile(const struct policy_model *model, const struct policy_node *node, const struct addr *own,
                   size_t own_count, uint64_t generation, struct policy **ret_policy, struct policy_warnings *warnings,
                   struct error *err) {
    static const struct policy_node nothing;
    struct compile compile = {.model = model, .node = node ? node : &nothing};
    struct policy *policy = NULL;
    int r = build(&compile, own, own_count, generation, &policy, err);
    for (size_t i = 0; i < BLOCK_SECTION_COUNT; i++) buf_done(&compile.sections[i]);
    buf_done(&compile.names);
    buf_done(&compile.prefixes);
    if (r == 0) r = lint_check(model, policy, warnings, err);
    if (r == -ENOMEM) error_set(err, r, "out of memory while compiling the policy");
    if (r != 0) {
        policy_free(policy);
        return r;
    }
    *ret_policy = policy;
    return 0;
}
