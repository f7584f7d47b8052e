// SPDX-License-Identifier: Apache-2.0
// Bindings in files: `credentials` of native policies and the operator's rules in the node's configuration are lists of
// the same entries; single keys are shared with the other dialects.
#include <errno.h>

#include "base/mem.h"
#include "policy/binding.h"
#include "policy/read.h"

static int read_part(const struct yaml_file *file, const struct yaml_value *value, const char *what,
                     struct policy_binding *binding,
                     int (*set)(struct policy_binding *binding, const char *text, size_t len, struct error *err)) {
    int r = yaml_string(file, value, what);
    if (r < 0) return r;
    r = set(binding, value->text, value->len, file->err);
    return r < 0 ? yaml_context(file, value, r) : 0;
}

// What may be a secret is not shown where it is no string.
static int read_hidden(const struct yaml_file *file, const struct yaml_value *value, const char *what,
                       struct policy_binding *binding,
                       int (*set)(struct policy_binding *binding, const char *text, size_t len, struct error *err)) {
    struct yaml_file quiet = *file;
    quiet.err = NULL;
    if (yaml_string(&quiet, value, what) < 0)
        return yaml_fail(file, value, "%s: expected a string; write it in quotes", what);
    return read_part(file, value, what, binding, set);
}

int policy_read_binding_host(const struct yaml_file *file, const struct yaml_value *value, const char *what,
                             void *context) {
    return read_part(file, value, what, context, policy_binding_set_host);
}

int policy_read_binding_header(const struct yaml_file *file, const struct yaml_value *value, const char *what,
                               void *context) {
    return read_part(file, value, what, context, policy_binding_set_header);
}

int policy_read_binding_value(const struct yaml_file *file, const struct yaml_value *value, const char *what,
                              void *context) {
    return read_hidden(file, value, what, context, policy_binding_set_value);
}

int policy_read_binding_secret(const struct yaml_file *file, const struct yaml_value *value, const char *what,
                               void *context) {
    return read_hidden(file, value, what, context, policy_binding_set_secret);
}

int policy_read_binding_literal(const struct yaml_file *file, const struct yaml_value *value, const char *what,
                                struct policy_binding *binding) {
    return read_hidden(file, value, what, binding, policy_binding_set_literal);
}

// true: the value is USER:PASSWORD. A user: it is USER:{secret}.
static int read_basic(const struct yaml_file *file, const struct yaml_value *value, const char *what, void *context) {
    struct policy_binding *binding = context;
    bool plain = value->kind == YAML_SCALAR && !value->quoted;
    if (plain && (strcmp(value->text, "true") == 0 || strcmp(value->text, "false") == 0))
        return yaml_bool(file, value, what, &binding->basic);
    if (binding->value)
        return yaml_fail(file, value, "%s: the user is in the value already; write basic: true, or leave value out", what);
    return read_part(file, value, what, context, policy_binding_set_basic);
}

static int read_path(const struct yaml_file *file, const struct yaml_value *value, const char *what, void *context) {
    return read_part(file, value, what, context, policy_binding_set_path);
}

static int read_variable(const struct yaml_file *file, const struct yaml_value *value, const char *what,
                         void *context) {
    return read_part(file, value, what, context, policy_binding_set_variable);
}

static int read_repo(const struct yaml_file *file, const struct yaml_value *value, const char *what, void *context) {
    return read_part(file, value, what, context, policy_binding_add_repo);
}

int policy_read_repos(const struct yaml_file *file, const struct yaml_value *value, const char *what, void *context) {
    return yaml_each(file, value, what, 1, read_repo, context);
}

static int read_method(const struct yaml_file *file, const struct yaml_value *value, const char *what, void *context) {
    return read_part(file, value, what, context, policy_binding_add_method);
}

static int read_methods(const struct yaml_file *file, const struct yaml_value *value, const char *what, void *context) {
    return yaml_each(file, value, what, 1, read_method, context);
}

static int read_scrub(const struct yaml_file *file, const struct yaml_value *value, const char *what, void *context) {
    return yaml_bool(file, value, what, &((struct policy_binding *)context)->scrub);
}

static int read_kind(const struct yaml_file *file, const struct yaml_value *value, const char *what, void *context) {
    const char *words[POLICY_BINDING_COUNT + 1] = {0};
    size_t index;
    for (size_t i = 0; i < POLICY_BINDING_COUNT; i++) words[i] = policy_binding_word((enum policy_binding_kind)i);
    int r = yaml_word(file, value, what, words, &index);
    if (r == 0) ((struct policy_binding *)context)->kind = (enum policy_binding_kind)index;
    return r;
}

// ---- an entry ----

static const struct yaml_key entry_keys[] = {
    {"binding", "credentials: binding", read_kind},
    {"repos", "credentials: repos", policy_read_repos},
    {"host", "credentials: host", policy_read_binding_host},
    {"header", "credentials: header", policy_read_binding_header},
    {"value", "credentials: value", policy_read_binding_value},
    {"basic", "credentials: basic", read_basic},
    {"secret", "credentials: secret", policy_read_binding_secret},
    {"path", "credentials: path", read_path},
    {"methods", "credentials: methods", read_methods},
    {"variable", "credentials: variable", read_variable},
    {"scrub", "credentials: scrub", read_scrub},
};

#define KIND(kind) (1u << (kind))
#define ALL_BUT_WORKSPACE (KIND(POLICY_BINDING_GITHUB) | KIND(POLICY_BINDING_MISTRAL_API) | KIND(POLICY_BINDING_HEADER))

// With which kinds a key goes, if not with all but workspace, and why not with others.
static const struct {
    const char *key;
    unsigned kinds;
    const char *why;
} entry_limits[] = {
    {"binding", ALL_BUT_WORKSPACE | KIND(POLICY_BINDING_WORKSPACE), ""},
    {"repos", KIND(POLICY_BINDING_GITHUB), "whose host has no repositories"},
    {"host", KIND(POLICY_BINDING_HEADER), "which sets its own"},
    {"header", KIND(POLICY_BINDING_HEADER), "which sets its own"},
    {"value", KIND(POLICY_BINDING_HEADER), "which sets its own"},
    {"basic", KIND(POLICY_BINDING_HEADER), "which sets its own"},
    {"path", KIND(POLICY_BINDING_HEADER) | KIND(POLICY_BINDING_MISTRAL_API), "which is limited by repos"},
    {NULL, ALL_BUT_WORKSPACE, ""},
};

static int check_keys(const struct yaml_file *file, const struct yaml_value *value,
                      const struct policy_binding *binding) {
    for (const struct yaml_value *member = value->first; member; member = member->next) {
        size_t row = 0;
        while (entry_limits[row].key && strcmp(entry_limits[row].key, member->key) != 0) row++;
        if (entry_limits[row].kinds & KIND(binding->kind)) continue;
        bool workspace = binding->kind == POLICY_BINDING_WORKSPACE;
        return yaml_fail(file, member, "%s does not go with binding: %s, %s; remove it", member->key,
                         policy_binding_word(binding->kind),
                         workspace ? "whose rules the operator keeps" : entry_limits[row].why);
    }
    return 0;
}

int policy_read_credential(const struct yaml_file *file, const struct yaml_value *value, const char *what,
                           void *context) {
    struct policy_binding binding = {.kind = POLICY_BINDING_HEADER};
    (void)what;
    int r = yaml_map(file, value, "an entry of credentials", entry_keys, ARRAY_LENGTH(entry_keys), &binding);
    if (r == 0) r = check_keys(file, value, &binding);
    if (r == 0) return policy_read_append_binding(file, value, context, &binding);
    policy_binding_done(&binding);
    return r;
}

int policy_read_append_binding(const struct yaml_file *file, const struct yaml_value *value, struct policy_model *model,
                               struct policy_binding *binding) {
    binding->source = policy_read_source(file, value);
    if (!binding->source) {
        policy_binding_done(binding);
        return error_set(file->err, -ENOMEM, "out of memory");
    }
    int r = policy_binding_append(model, binding, file->err);
    return r < 0 ? yaml_context(file, value, r) : 0;
}
