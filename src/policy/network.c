// SPDX-License-Identifier: Apache-2.0
// The `network` dialect (semantics section 5.1): none, all, or HTTPS to listed hosts; ranges of addresses on top of
// none; credential bindings. Whether a sandbox type can enforce the result is checked elsewhere (capability.c).
#include <errno.h>

#include "base/mem.h"
#include "policy/binding.h"
#include "policy/read.h"

static int read_host(const struct yaml_file *file, const struct yaml_value *value, const char *what, void *context) {
    struct policy_reader *reader = context;
    struct policy_entry entry;
    uint16_t port;
    int r = yaml_string(file, value, what);
    if (r < 0) return r;
    r = policy_entry_parse_host(value->text, value->len, false, &entry, &port, file->err);
    if (r < 0) return yaml_context(file, value, r);
    entry.protocol = POLICY_ENTRY_HTTPS;
    uint16_t stated = port ? port : 443;
    if (policy_entry_add_ports(&entry, stated, stated) < 0) return error_set(file->err, -ENOMEM, "out of memory");
    return policy_read_append(file, value, &reader->allow, &entry);
}

static int read_hosts(const struct yaml_file *file, const struct yaml_value *value, const char *what, void *context) {
    return yaml_each(file, value, what, 1, read_host, context);
}

static int read_allow(const struct yaml_file *file, const struct yaml_value *value, const char *what, void *context) {
    static const struct yaml_key keys[] = {{"hosts", "network.allow.hosts", read_hosts}};
    if (value->kind == YAML_MAP && value->count == 0)
        return yaml_fail(file, value, "network.allow lists no hosts; write {\"hosts\": [\"api.example.com\"]}");
    return yaml_map(file, value, what, keys, ARRAY_LENGTH(keys), context);
}

static int read_network(const struct yaml_file *file, const struct yaml_value *value, const char *what, void *context) {
    static const struct yaml_key keys[] = {{"allow", "network.allow", read_allow}};
    static const char *const words[] = {"none", "all", "{\"allow\": {\"hosts\": [...]}}", NULL};
    struct policy_model *model = ((struct policy_reader *)context)->model;
    size_t index;
    model->has_network = true;
    int r = policy_read_base_source(file, value, model);
    if (r < 0) return r;
    if (value->kind == YAML_MAP) {
        if (value->count == 0)
            return yaml_fail(file, value, "network is empty; write none, all or {\"allow\": {\"hosts\": [...]}}");
        model->network = POLICY_NETWORK_ALLOW;
        return yaml_map(file, value, what, keys, ARRAY_LENGTH(keys), context);
    }
    r = yaml_word(file, value, what, words, &index);
    if (r < 0) return r;
    if (index > 1) return yaml_fail(file, value, "network: write the allow list as a mapping, not as a string");
    model->network = index == 1 ? POLICY_NETWORK_ALL : POLICY_NETWORK_NONE;
    model->base_allow = index == 1;
    return 0;
}

static int read_block_private(const struct yaml_file *file, const struct yaml_value *value, const char *what,
                              void *context) {
    return yaml_bool(file, value, what, &((struct policy_reader *)context)->model->block_private);
}

static int read_cidr(const struct yaml_file *file, const struct yaml_value *value, const char *what, void *context) {
    struct policy_reader *reader = context;
    struct policy_entry entry = {.kind = POLICY_ENTRY_CIDR, .protocol = POLICY_ENTRY_ANY};
    bool host_bits;
    char quoted[YAML_QUOTE_SIZE];
    int r = yaml_string(file, value, what);
    if (r < 0) return r;
    if (addr_prefix_parse(value->text, value->len, &entry.prefix, &host_bits) == 0 && entry.prefix.length == 0)
        return yaml_fail(file, value,
                         "\"%s\" is every address, which egress.allow_cidrs does not take; use Network.all() "
                         "(\"network\": \"all\") instead",
                         yaml_quote(value->text, value->len, quoted));
    r = policy_entry_parse_cidr(value->text, value->len, &entry.prefix, file->err);
    if (r < 0) return yaml_context(file, value, r);
    return policy_read_append(file, value, &reader->allow, &entry);
}

static int read_cidrs(const struct yaml_file *file, const struct yaml_value *value, const char *what, void *context) {
    return yaml_each(file, value, what, 1, read_cidr, context);
}

static int read_egress(const struct yaml_file *file, const struct yaml_value *value, const char *what, void *context) {
    static const struct yaml_key keys[] = {{"allow_cidrs", "egress.allow_cidrs", read_cidrs}};
    struct policy_model *model = ((struct policy_reader *)context)->model;
    if (value->kind == YAML_MAP && value->count == 0)
        return yaml_fail(file, value,
                         "egress has no allow_cidrs; list at least one address or range, or leave egress out");
    int r = yaml_map(file, value, what, keys, ARRAY_LENGTH(keys), context);
    if (r < 0) return r;
    model->has_egress = true;
    if (model->network == POLICY_NETWORK_ALL)
        return yaml_fail(file, value,
                         "egress.allow_cidrs opens ranges on top of Network.none() and cannot be combined with "
                         "Network.all(); remove one of the two");
    return 0;
}

// --- header_bindings: each item is a mapping with the kind as its only key ---

static const struct yaml_key github_keys[] = {{"repos", "header_bindings.github.repos", policy_read_repos}};
static const struct yaml_key header_keys[] = {
    {"host", "header_bindings.header.host", policy_read_binding_host},
    {"name", "header_bindings.header.name", policy_read_binding_header},
    {"value", "header_bindings.header.value", policy_read_binding_value},
    {"secret", "header_bindings.header.secret", policy_read_binding_secret},
};

static int read_github(const struct yaml_file *file, const struct yaml_value *value, const char *what, void *context) {
    ((struct policy_binding *)context)->kind = POLICY_BINDING_GITHUB;
    return yaml_map(file, value, what, github_keys, ARRAY_LENGTH(github_keys), context);
}

static int read_mistral_api(const struct yaml_file *file, const struct yaml_value *value, const char *what,
                            void *context) {
    ((struct policy_binding *)context)->kind = POLICY_BINDING_MISTRAL_API;
    if (value->kind == YAML_MAP && value->count == 0) return 0;
    return yaml_fail(file, value, "%s takes no keys; write {}", what);
}

static int read_workspace(const struct yaml_file *file, const struct yaml_value *value, const char *what,
                          void *context) {
    ((struct policy_binding *)context)->kind = POLICY_BINDING_WORKSPACE;
    if (value->kind == YAML_MAP && value->count == 0) return 0;
    return yaml_fail(file, value, "%s takes no keys; write {}", what);
}

static int read_header(const struct yaml_file *file, const struct yaml_value *value, const char *what, void *context) {
    ((struct policy_binding *)context)->kind = POLICY_BINDING_HEADER;
    return yaml_map(file, value, what, header_keys, ARRAY_LENGTH(header_keys), context);
}

static int read_binding(const struct yaml_file *file, const struct yaml_value *value, const char *what, void *context) {
    static const struct yaml_key keys[] = {
        {"github", "header_bindings.github", read_github},
        {"mistral_api", "header_bindings.mistral_api", read_mistral_api},
        {"workspace", "header_bindings.workspace", read_workspace},
        {"header", "header_bindings.header", read_header},
    };
    struct policy_model *model = ((struct policy_reader *)context)->model;
    struct policy_binding binding = {0};
    if (value->kind == YAML_MAP && value->count != 1)
        return yaml_fail(file, value, "an entry of %s names one kind: github, mistral_api, workspace or header", what);
    int r = yaml_map(file, value, "an entry of header_bindings", keys, ARRAY_LENGTH(keys), &binding);
    if (r < 0) {
        policy_binding_done(&binding);
        return r;
    }
    return policy_read_append_binding(file, value, model, &binding);
}

static int read_bindings(const struct yaml_file *file, const struct yaml_value *value, const char *what,
                         void *context) {
    return yaml_each(file, value, what, 0, read_binding, context);
}

int policy_network_read(const struct yaml_file *file, struct policy_reader *reader) {
    // egress looks at what network said.
    static const struct yaml_key keys[] = {
        {"dialect", "dialect", policy_read_dialect_key},
        {"type", "type", policy_read_type_key},
        {"network", "network", read_network},
        {"block_private_ips", "block_private_ips", read_block_private},
        {"egress", "egress", read_egress},
        {"header_bindings", "header_bindings", read_bindings},
    };
    struct policy_model *model = reader->model;
    model->block_private = true;
    model->base_allow = false;
    reader->allow.collapse = true;
    return yaml_map(file, file->root, "the policy", keys, ARRAY_LENGTH(keys), reader);
}
