// SPDX-License-Identifier: Apache-2.0
// Models from a few words, for tests of the compiled policy that must not depend on the readers.
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/mem.h"
#include "policy/model.h"

struct entry_words {
    enum policy_entry_protocol protocol;
    const char *what; // "a.example", "*.example", "*", "10.0.0.0/8", "=10.0.0.1" (an IP entry of hosts)
    uint16_t first, last;
    bool private_ok;
};

static inline struct addr fixture_addr(const char *text) {
    struct addr addr;
    if (addr_parse(text, strlen(text), &addr) != 0) fail_msg("not an address: %s", text);
    return addr;
}

static inline struct addr_prefix fixture_prefix(const char *text) {
    struct addr_prefix prefix;
    bool host_bits;
    if (addr_prefix_parse(text, strlen(text), &prefix, &host_bits) != 0) fail_msg("not a prefix: %s", text);
    return prefix;
}

static inline bool fixture_is_range(const char *what) {
    return what[0] == '=' || strchr(what, '/') || strspn(what, "0123456789.") == strlen(what) || strchr(what, ':');
}

static inline void fixture_fill(struct policy_entry *entry, const struct entry_words *words,
                                enum policy_dialect dialect) {
    entry->protocol = words->protocol;
    entry->private_ok = words->private_ok;
    if (fixture_is_range(words->what)) {
        entry->kind = words->what[0] == '=' ? POLICY_ENTRY_ADDRESS : POLICY_ENTRY_CIDR;
        entry->prefix = fixture_prefix(words->what + (words->what[0] == '='));
        entry->both_families = dialect == POLICY_DIALECT_E2B && entry->prefix.length == 0;
    } else {
        entry->kind = words->what[0] == '*' ? POLICY_ENTRY_WILDCARD : POLICY_ENTRY_NAME;
        const char *name = words->what + (words->what[0] == '*') + (words->what[0] == '*' && words->what[1] == '.');
        snprintf(entry->name, sizeof(entry->name), "%s", name);
    }
    if (words->first) {
        entry->ports = NEW_ARRAY(struct policy_port_range, 1);
        assert_non_null(entry->ports);
        entry->ports[0] = (struct policy_port_range){words->first, words->last ? words->last : words->first};
        entry->port_count = 1;
    }
}

static inline void fixture_add(struct policy_model *model, bool allow, const struct entry_words *words,
                               const char *source) {
    struct policy_entry **list = allow ? &model->allow : &model->deny;
    size_t *count = allow ? &model->allow_count : &model->deny_count;
    struct policy_entry *larger = reallocarray(*list, *count + 1, sizeof(*larger));
    assert_non_null(larger);
    *list = larger;
    memset(&larger[*count], 0, sizeof(*larger));
    fixture_fill(&larger[*count], words, model->dialect);
    larger[*count].source = strdup(source);
    assert_non_null(larger[*count].source);
    (*count)++;
}

static inline struct policy *fixture_compile(const struct policy_model *model, const struct policy_node *node,
                                             struct policy_warnings *warnings) {
    struct policy *policy = NULL;
    struct error err = {0};
    if (policy_compile(model, node, NULL, 0, 1, &policy, warnings, &err) != 0) fail_msg("%s", err.text);
    return policy;
}
