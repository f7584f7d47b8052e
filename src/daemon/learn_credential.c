// SPDX-License-Identifier: Apache-2.0
// The bindings that were given, as the learned policy keeps them: references to secrets, never values. A binding needs its
// host, so one that the command did not reach gets the entry by which it was reached before.
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "daemon/learn_state.h"

// A double-quoted YAML scalar. What is bound has no control bytes but the tab.
static void print_text(struct buf *out, const char *text) {
    buf_append(out, "\"", 1);
    for (; *text; text++) {
        if (*text == '\t') buf_append(out, "\\t", 2);
        else if (*text == '"' || *text == '\\') buf_printf(out, "\\%c", *text);
        else buf_append(out, text, 1);
    }
    buf_append(out, "\"", 1);
}

static void print_key(struct buf *out, const char *key, const char *text) {
    if (!text) return;
    buf_printf(out, "    %s: ", key);
    print_text(out, text);
    buf_append(out, "\n", 1);
}

static void print_words(struct buf *out, const char *key, char *const *words, size_t count) {
    if (count == 0) return;
    buf_printf(out, "    %s: [", key);
    for (size_t i = 0; i < count; i++) {
        if (i) buf_append(out, ", ", 2);
        print_text(out, words[i]);
    }
    buf_append(out, "]\n", 2);
}

static void print_binding(struct buf *out, const struct policy_binding *binding) {
    if (binding->literal) { // E2B: the value is in the policy that was given, and may be nowhere else
        buf_printf(out, "  # header %s of %s is left out, for its value is no reference: keep it with `penstock secret set`\n",
                   binding->header, binding->host);
        return;
    }
    if (binding->kind == POLICY_BINDING_HEADER) {
        buf_printf(out, "  - host: \"%s\"\n", binding->host);
        print_key(out, "header", binding->header);
        print_key(out, "value", binding->value);
        if (binding->basic) buf_printf(out, "    basic: true\n");
    } else {
        buf_printf(out, "  - binding: %s\n", policy_binding_word(binding->kind));
    }
    print_words(out, "repos", binding->repos, binding->repo_count);
    print_key(out, "secret", binding->secret);
    print_key(out, "path", binding->path);
    print_words(out, "methods", binding->methods, binding->method_count);
    print_key(out, "variable", binding->variable);
    if (binding->scrub) buf_printf(out, "    scrub: true\n");
}

// ---- hosts ----

// Whether the rows make an entry of HTTPS for the host (learn_text.c).
static bool is_written(const struct learn *learn, const char *host) {
    bool any = false, other = false;
    for (size_t i = 0; i < learn->row_count; i++) {
        const struct learn_row *row = &learn->rows[i];
        if (strcmp(row->name, host) != 0) continue;
        any = true;
        if (row->protocol == LEARN_HTTPS || (row->protocol == LEARN_UNANSWERED && row->port == 443)) return true;
        other |= row->protocol != LEARN_LOOKUP;
    }
    return any && !other;
}

static bool reaches(const struct policy_entry *entry, const char *host) {
    size_t suffix = strlen(entry->name), len = strlen(host);
    if (entry->protocol != POLICY_ENTRY_HTTPS) return false;
    if (entry->kind == POLICY_ENTRY_NAME) return strcmp(entry->name, host) == 0;
    return entry->kind == POLICY_ENTRY_WILDCARD && len > suffix && strcmp(host + len - suffix, entry->name) == 0 &&
           (suffix == 0 || host[len - suffix - 1] == '.');
}

static void print_ports(struct buf *out, const struct policy_entry *entry) {
    if (entry->port_count == 0 || (entry->port_count == 1 && entry->ports[0].first == 443 && entry->ports[0].last == 443)) return;
    buf_printf(out, "    ports: [");
    for (size_t i = 0; i < entry->port_count; i++)
        buf_printf(out, "%s\"%u-%u\"", i ? ", " : "", entry->ports[i].first, entry->ports[i].last);
    buf_printf(out, "]\n");
}

static void print_host(const struct learn *learn, const char *host, struct buf *out) {
    const struct policy_entry *entry = NULL;
    for (size_t i = 0; i < learn->given_count && !entry; i++)
        if (reaches(&learn->model->allow[i], host)) entry = &learn->model->allow[i];
    if (!entry || is_written(learn, host)) return;
    char line[NAME_SIZE + 32];
    snprintf(line, sizeof(line), "  - host: \"%s\"\n", host);
    if (out->data && strstr(out->data, line)) return; // of another binding
    buf_printf(out, "  # not reached; its credential is kept\n%s", line);
    print_ports(out, entry);
    if (entry->private_ok) buf_printf(out, "    private: true\n");
}

void learn_print_credentials(const struct learn *learn, struct buf *hosts, struct buf *credentials) {
    const struct policy_model *model = learn->model;
    CLEANUP(buf_done) struct buf missing = BUF_INIT;
    bool workspace = false;
    for (size_t i = 0; i < model->binding_count; i++) {
        const struct policy_binding *binding = &model->bindings[i];
        struct policy_binding_target targets[POLICY_BINDING_TARGETS];
        size_t count = policy_binding_targets(binding, targets);
        for (size_t k = 0; k < count && !binding->literal; k++) print_host(learn, targets[k].host, &missing);
        if (!binding->workspace) print_binding(credentials, binding);
        else if (!workspace) buf_printf(credentials, "  - binding: workspace\n");
        workspace |= binding->workspace;
    }
    buf_append(hosts, missing.data ? missing.data : "", missing.len);
    hosts->failed |= missing.failed;
}
