// SPDX-License-Identifier: Apache-2.0
// What the sandbox room is told of this run: which files are ours, which of them the command may not change, and which it
// may not even see.
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "daemon/learn.h"
#include "daemon/run_state.h"
#include "vault/vault.h"

// Whether a path is in a folder that the command may write.
static bool spec_writable(const struct sandbox_spec *spec, const char *path) {
    for (size_t i = 0; i <= spec->write_count; i++) {
        AUTO_FREE char *real = realpath(i < spec->write_count ? spec->writes[i] : spec->cwd, NULL);
        size_t len = real ? strlen(real) : 0;
        if (real && strncmp(path, real, len) == 0 && (len == 1 || path[len] == '/' || !path[len])) return true;
    }
    return false;
}

// Made where the command could make it: its keys would be the command's.
static int spec_state(struct run *run, struct error *err) {
    struct error ignored;
    int rc = vault_state_folder(run->credentials != NULL, &run->state_folder, run->credentials ? err : &ignored);
    if (rc < 0) return run->credentials ? rc : 0; // there is no place for one
    if (access(run->state_folder, F_OK) < 0 && spec_writable(&run->spec, run->state_folder)) {
        free(TAKE_POINTER(run->state_folder));
        rc = vault_state_folder(true, &run->state_folder, err);
    }
    return rc;
}

// Variables that tools insist on have something in them.
int run_fill_placeholders(struct run *run, struct error *err) {
    const struct policy_model *model = run->options->model;
    size_t count = 0;
    run->placeholders = NEW_ARRAY(char *, model->binding_count + 1);
    if (!run->placeholders) return error_set(err, -ENOMEM, "out of memory");
    for (size_t i = 0; i < model->binding_count; i++) {
        const struct policy_binding *binding = &model->bindings[i];
        char text[POLICY_PLACEHOLDER_SIZE], *entry;
        if (!binding->variable) continue;
        if (asprintf(&entry, "%s=%s", binding->variable, policy_binding_placeholder(binding, text)) < 0)
            return error_set(err, -ENOMEM, "out of memory");
        run->placeholders[count++] = entry;
    }
    run->spec.placeholders = run->placeholders;
    return 0;
}

// E2B policies hold values themselves.
static bool spec_policy_is_secret(const struct daemon_run *options) {
    bool secret = false;
    for (size_t i = 0; i < options->model->binding_count; i++) secret |= options->model->bindings[i].literal != NULL;
    return secret && options->policy_file && strcmp(options->policy_file, "-") != 0;
}

int run_fill_spec(struct run *run, struct error *err) {
    const struct daemon_run *options = run->options;
    struct sandbox_spec *spec = &run->spec;
    int rc = spec_state(run, err);
    if (rc == 0) rc = credentials_part(run->credentials, options->model, spec, err);
    if (rc < 0) return rc;
    const char *state = run->state_folder && access(run->state_folder, F_OK) == 0 ? run->state_folder : NULL;
    const char *const trusted[] = {options->policy_file, options->node_config, options->upstream_ca, options->log_file, state};
    for (size_t i = 0; i < ARRAY_LENGTH(trusted); i++)
        if (trusted[i] && strcmp(trusted[i], "-") != 0) run->protects[spec->protect_count++] = trusted[i];
    if (options->learn) spec->outcome = learn_folder(options->learn);
    if (state) run->hides[spec->hide_count++] = state;
    if (options->log_file) run->hides[spec->hide_count++] = options->log_file;
    if (spec_policy_is_secret(options)) run->hides[spec->hide_count++] = options->policy_file;
    while (run->credentials && credentials_file(run->credentials, spec->secret_count)) spec->secret_count++;
    run->secrets = NEW_ARRAY(const char *, spec->secret_count);
    if (!run->secrets) return error_set(err, -ENOMEM, "out of memory");
    for (size_t i = 0; i < spec->secret_count; i++) run->secrets[i] = credentials_file(run->credentials, i);
    rc = run_fill_placeholders(run, err);
    if (rc < 0) return rc;
    spec->protects = run->protects;
    spec->hides = run->hides;
    spec->secrets = run->secrets;
    spec->environment = environ; // without what credentials_new and credentials_part took out
    return 0;
}

void run_clear_spec(struct run *run) {
    free(run->state_folder);
    free(run->secrets);
    for (char **entry = run->placeholders; entry && *entry; entry++) free(*entry);
    free(run->placeholders);
}
