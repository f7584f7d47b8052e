// SPDX-License-Identifier: Apache-2.0
// The command line's building blocks: one option at a time into a native model. What is given twice is kept once.
#include <errno.h>

#include "base/mem.h"
#include "policy/binding.h"
#include "policy/entry.h"
#include "policy/preset.h"
#include "policy/yaml.h"

static int append(struct policy_entry **entries, size_t *count, struct policy_seen *seen, struct policy_entry *entry,
                  const char *source, struct error *err) {
    struct policy_entry_list list = {.entries = entries, .count = count, .collapse = true, .slots = seen->slots,
                                     .slot_count = seen->slot_count};
    entry->source = strdup(source);
    bool failed = !entry->source;
    if (failed) policy_entry_done(entry);
    else failed = policy_entry_append(&list, entry) < 0;
    *seen = (struct policy_seen){.slots = list.slots, .slot_count = list.slot_count};
    return failed ? error_set(err, -ENOMEM, "out of memory") : 0;
}

static int allow_host(struct policy_model *model, const char *host, bool preset, const char *source,
                      struct error *err) {
    struct policy_entry entry;
    uint16_t port;
    int r = policy_entry_parse_host(host, strlen(host), true, &entry, &port, err);
    if (r < 0) return r;
    entry.preset = preset;
    entry.protocol = POLICY_ENTRY_HTTPS;
    uint16_t stated = port ? port : 443;
    if (policy_entry_add_ports(&entry, stated, stated) < 0) return error_set(err, -ENOMEM, "out of memory");
    return append(&model->allow, &model->allow_count, &model->allow_seen, &entry, source, err);
}

int policy_model_allow(struct policy_model *model, const char *host, const char *source, struct error *err) {
    const struct policy_preset *preset;
    if (host[0] != '@') return allow_host(model, host, false, source, err);
    int r = policy_preset_find(host, &preset, err);
    for (size_t i = 0; r == 0 && preset->hosts[i]; i++) r = allow_host(model, preset->hosts[i], true, source, err);
    return r;
}

static int add_cidr(struct policy_entry **entries, size_t *count, struct policy_seen *seen, const char *cidr,
                    const char *source, struct error *err) {
    struct policy_entry entry = {.kind = POLICY_ENTRY_CIDR, .protocol = POLICY_ENTRY_ANY};
    int r = policy_entry_parse_cidr(cidr, strlen(cidr), &entry.prefix, err);
    return r < 0 ? r : append(entries, count, seen, &entry, source, err);
}

int policy_model_allow_cidr(struct policy_model *model, const char *cidr, const char *source, struct error *err) {
    return add_cidr(&model->allow, &model->allow_count, &model->allow_seen, cidr, source, err);
}

int policy_model_deny_cidr(struct policy_model *model, const char *cidr, const char *source, struct error *err) {
    return add_cidr(&model->deny, &model->deny_count, &model->deny_seen, cidr, source, err);
}

// --- learning ---

static int allow_any_name(struct policy_model *model, enum policy_entry_protocol protocol, struct error *err) {
    struct policy_entry entry = {.kind = POLICY_ENTRY_WILDCARD, .protocol = protocol};
    if (policy_entry_add_ports(&entry, 1, UINT16_MAX) < 0) return error_set(err, -ENOMEM, "out of memory");
    return append(&model->allow, &model->allow_count, &model->allow_seen, &entry, "--learn", err);
}

// The open base allows; the two entries make the gate read what a connection to a name is before it passes.
int policy_model_learn(struct policy_model *model, struct error *err) {
    if (model->base_allow)
        return error_set(err, -EINVAL, "everything is allowed already, so there is nothing to learn; leave --network all "
                                       "(base: allow) out");
    if (model->deny_count > 0)
        return error_set(err, -EINVAL, "%s: deny entries do not hold while learning; remove them, or let the operator deny "
                                       "them in the node's configuration", model->deny[0].source);
    model->has_network = true;
    model->network = POLICY_NETWORK_NATIVE;
    model->base_allow = model->base_icmp = true;
    model->has_dns_names = true;
    model->dns_names = POLICY_DNS_SYNTHETIC;
    free(model->base_source);
    model->base_source = strdup("--learn");
    if (!model->base_source) return error_set(err, -ENOMEM, "out of memory");
    int r = allow_any_name(model, POLICY_ENTRY_HTTPS, err);
    return r < 0 ? r : allow_any_name(model, POLICY_ENTRY_HTTP, err);
}

// --- bindings ---

// The first "=" that a secret reference follows: templates and commands may hold other ones.
static const char *find_secret(const char *text) {
    for (const char *at = strchr(text, '='); at; at = strchr(at + 1, '=')) {
        static const char *const kinds[] = {"env:", "file:", "cmd:", "store:"};
        for (size_t i = 0; i < ARRAY_LENGTH(kinds); i++)
            if (strncmp(at + 1, kinds[i], strlen(kinds[i])) == 0) return at;
    }
    return NULL;
}

static int bind_github(struct policy_binding *binding, const char *args, size_t len, struct error *err) {
    while (args) { // NULL: no list, any repository
        const char *comma = memchr(args, ',', len);
        size_t part = comma ? (size_t)(comma - args) : len;
        int r = policy_binding_add_repo(binding, args, part, err);
        if (r < 0) return r;
        len -= comma ? part + 1 : part;
        args = comma ? comma + 1 : NULL;
    }
    return 0;
}

// HOST:NAME[:TEMPLATE]
static int bind_header(struct policy_binding *binding, const char *args, size_t len, struct error *err) {
    const char *colon = args ? memchr(args, ':', len) : NULL;
    if (!colon) return error_set(err, -EINVAL, "a header binding is header:HOST:NAME[:TEMPLATE]=SECRET");
    size_t host_len = (size_t)(colon - args);
    int r = policy_binding_set_host(binding, args, host_len, err);
    if (r < 0) return r;
    const char *name = colon + 1, *end = args + len;
    const char *second = memchr(name, ':', (size_t)(end - name));
    // No known kind of reference follows this '=', or it would have been found: the message is about the reference.
    const char *equals = memchr(name, '=', (size_t)((second ? second : end) - name));
    if (equals) return policy_binding_set_secret(binding, equals + 1, (size_t)(end - equals - 1), err);
    size_t digits = strspn(name, "0123456789");
    if (digits > 0 && name + digits == (second ? second : end)) // a port, which the host is told not to have
        return policy_binding_set_host(binding, args, host_len + 1 + digits, err);
    r = policy_binding_set_header(binding, name, (size_t)((second ? second : end) - name), err);
    if (r < 0 || !second) return r;
    return policy_binding_set_value(binding, second + 1, (size_t)(end - second - 1), err);
}

// HOST:USER
static int bind_basic(struct policy_binding *binding, const char *args, size_t len, struct error *err) {
    const char *colon = args ? memchr(args, ':', len) : NULL;
    if (!colon) return error_set(err, -EINVAL, "a basic binding is basic:HOST:USER=SECRET");
    int r = policy_binding_set_host(binding, args, (size_t)(colon - args), err);
    return r < 0 ? r : policy_binding_set_basic(binding, colon + 1, (size_t)(args + len - colon - 1), err);
}

static int bind_bare(struct policy_binding *binding, const char *args, size_t len, struct error *err) {
    (void)binding;
    (void)len;
    return args ? error_set(err, -EINVAL, "this kind of binding takes no arguments; remove what follows the colon") : 0;
}

static const struct {
    const char *word;
    enum policy_binding_kind kind;
    int (*bind)(struct policy_binding *binding, const char *args, size_t len, struct error *err);
} builder_kinds[] = {
    {"github", POLICY_BINDING_GITHUB, bind_github},
    {"mistral_api", POLICY_BINDING_MISTRAL_API, bind_bare},
    {"workspace", POLICY_BINDING_WORKSPACE, bind_bare},
    {"header", POLICY_BINDING_HEADER, bind_header},
    {"basic", POLICY_BINDING_HEADER, bind_basic},
};

static int parse_binding(struct policy_binding *binding, const char *text, struct error *err) {
    const char *secret = find_secret(text);
    // Without a known kind of reference: only a template may hold a '='.
    bool template = strncmp(text, "header:", strlen("header:")) == 0 || strncmp(text, "basic:", strlen("basic:")) == 0;
    if (!secret && !template) secret = strchr(text, '=');
    size_t len = secret ? (size_t)(secret - text) : strlen(text);
    const char *colon = memchr(text, ':', len);
    size_t word_len = colon ? (size_t)(colon - text) : len;
    for (size_t i = 0; i < ARRAY_LENGTH(builder_kinds); i++) {
        if (strlen(builder_kinds[i].word) != word_len || memcmp(builder_kinds[i].word, text, word_len) != 0) continue;
        binding->kind = builder_kinds[i].kind;
        int r = builder_kinds[i].bind(binding, colon ? colon + 1 : NULL, colon ? len - word_len - 1 : 0, err);
        if (r == 0 && secret && binding->kind == POLICY_BINDING_WORKSPACE)
            return error_set(err, -EINVAL, "the workspace binding takes no secret; remove it");
        return r < 0 || !secret ? r : policy_binding_set_secret(binding, secret + 1, strlen(secret + 1), err);
    }
    return error_set(err, -EINVAL,
                     "the kinds are github[:REPO,...], mistral_api, workspace, header:HOST:NAME[:TEMPLATE] and "
                     "basic:HOST:USER, each with an optional =SECRET such as =env:NAME");
}

// How much of a binding may be repeated: not its template, nor what stands where a secret's reference is expected, for
// either could be the secret itself.
static size_t shown_length(const char *text) {
    size_t len = strcspn(text, "="), colons = 0;
    bool header = strncmp(text, "header:", strlen("header:")) == 0, basic = strncmp(text, "basic:", strlen("basic:")) == 0;
    for (size_t i = 0; i < len && (header || basic); i++) {
        colons += text[i] == ':';
        if (colons == (header ? 3 : 2)) return i;
    }
    return len;
}

static char *shown_source(const char *source, const char *text) {
    size_t len = strlen(source), text_len = strlen(text);
    bool ends = len >= text_len && strcmp(source + len - text_len, text) == 0;
    return strndup(source, ends ? len - text_len + shown_length(text) : len);
}

int policy_model_bind(struct policy_model *model, const char *text, const char *source, struct error *err) {
    struct policy_binding binding = {0};
    char quoted[YAML_QUOTE_SIZE];
    int r = parse_binding(&binding, text, err);
    if (r == 0) {
        binding.source = shown_source(source, text);
        if (!binding.source) r = error_set(err, -ENOMEM, "out of memory");
    }
    if (r == 0)
        r = policy_binding_append(model, &binding, err);
    else
        policy_binding_done(&binding);
    return r < 0 ? error_context(err, r, "\"%s\"", yaml_quote(text, shown_length(text), quoted)) : 0;
}
