// SPDX-License-Identifier: Apache-2.0
#include "policy/model.h"

#include <errno.h>

#include "base/buf.h"
#include "base/mem.h"
#include "policy/binding.h"

#define MODEL_MAX_CONNECTIONS 256

struct policy_model *policy_model_new(enum policy_dialect dialect) {
    struct policy_model *model = NEW(struct policy_model);
    if (!model) return NULL;
    model->dialect = dialect;
    model->block_private = true;
    model->max_connections = MODEL_MAX_CONNECTIONS;
    model->allow_public_traffic = true;
    return model;
}

static void free_entries(struct policy_entry *entries, size_t count) {
    for (size_t i = 0; i < count; i++) {
        free(entries[i].ports);
        free(entries[i].source);
    }
    free(entries);
}

static void free_bindings(struct policy_binding *bindings, size_t count) {
    for (size_t i = 0; i < count; i++) policy_binding_done(&bindings[i]);
    free(bindings);
}

void policy_model_free(struct policy_model *model) {
    if (!model) return;
    free_entries(model->allow, model->allow_count);
    free_entries(model->deny, model->deny_count);
    free(model->allow_seen.slots);
    free(model->deny_seen.slots);
    free_bindings(model->bindings, model->binding_count);
    free(model->mask_request_host);
    free(model->base_source);
    free(model);
}

void policy_warnings_add(struct policy_warnings *warnings, const char *format, ...) {
    if (!warnings) return;
    char text[sizeof(((struct error *)0)->text)];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    // Through error_set, for the same one clean line that errors are. Out of memory loses a warning, nothing else.
    struct error line;
    error_set(&line, 0, "%s", text);
    char *copy = strdup(line.text);
    char **lines = copy ? reallocarray(warnings->lines, warnings->count + 1, sizeof(*lines)) : NULL;
    if (!lines) {
        free(copy);
        return;
    }
    warnings->lines = lines;
    warnings->lines[warnings->count++] = copy;
}

void policy_warnings_done(struct policy_warnings *warnings) {
    for (size_t i = 0; i < warnings->count; i++) free(warnings->lines[i]);
    free(warnings->lines);
    *warnings = (struct policy_warnings){0};
}
