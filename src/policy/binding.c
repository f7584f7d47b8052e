// SPDX-License-Identifier: Apache-2.0
// Whatever dialect a binding comes from, it is put together and checked here, so that no dialect can let through what
// another refuses: a value that would end a header line, a header that frames or routes the request, a repository that
// is not one, two credentials for one place.
#include "policy/binding.h"

#include <assert.h>
#include <errno.h>
#include <strings.h>

#include "base/mem.h"
#include "policy/entry.h"

static const struct {
    const char *name;
    const char *secret;
    size_t count;
    struct policy_binding_target targets[POLICY_BINDING_TARGETS];
} binding_kinds[] = {
    [POLICY_BINDING_GITHUB] = {"GitHubBinding",
                               "env:GITHUB_TOKEN",
                               2,
                               {{"github.com", "Authorization", "x-access-token:{secret}", true, ""},
                                {"api.github.com", "Authorization", "Bearer {secret}", false, "repos"}}},
    [POLICY_BINDING_MISTRAL_API] = {"MistralApiBinding",
                                    "env:MISTRAL_API_KEY",
                                    1,
                                    {{"api.mistral.ai", "Authorization", "Bearer {secret}", false, NULL}}},
    [POLICY_BINDING_WORKSPACE] = {"WorkspaceHeaderBindings", "", 0, {{NULL}}},
    [POLICY_BINDING_HEADER] = {"HeaderBinding", "", 1, {{NULL}}},
};
static_assert(ARRAY_LENGTH(binding_kinds) == POLICY_BINDING_COUNT, "one row per kind of binding");

const char *policy_binding_name(const struct policy_binding *binding) {
    return binding_kinds[binding->workspace ? POLICY_BINDING_WORKSPACE : binding->kind].name;
}

size_t policy_binding_targets(const struct policy_binding *binding,
                              struct policy_binding_target ret_targets[POLICY_BINDING_TARGETS]) {
    memcpy(ret_targets, binding_kinds[binding->kind].targets, sizeof(binding_kinds[binding->kind].targets));
    if (binding->kind == POLICY_BINDING_HEADER)
        ret_targets[0] = (struct policy_binding_target){binding->host, binding->header,
                                                        binding->value ? binding->value : "{secret}",
                                                        binding->basic, NULL};
    return binding_kinds[binding->kind].count;
}

const char *policy_binding_secret(const struct policy_binding *binding) {
    return binding->secret ? binding->secret : binding_kinds[binding->kind].secret;
}

// ---- memory ----

static void free_words(char **words, size_t count) {
    for (size_t i = 0; i < count; i++) free(words[i]);
    free(words);
}

void policy_binding_done(struct policy_binding *binding) {
    if (binding->literal) explicit_bzero(binding->literal, strlen(binding->literal));
    free_words(binding->repos, binding->repo_count);
    free_words(binding->methods, binding->method_count);
    free(binding->header);
    free(binding->value);
    free(binding->path);
    free(binding->variable);
    free(binding->secret);
    free(binding->literal);
    free(binding->source);
    *binding = (struct policy_binding){0};
}

static bool copy_text(const char *text, char **ret_text) {
    *ret_text = text ? strdup(text) : NULL;
    return !text || *ret_text;
}

static bool copy_words(char *const *words, size_t count, char ***ret_words, size_t *ret_count) {
    char **copy = count > 0 ? NEW_ARRAY(char *, count) : NULL;
    bool good = count == 0 || copy;
    *ret_words = copy;
    for (*ret_count = 0; good && *ret_count < count; ++*ret_count) {
        copy[*ret_count] = strdup(words[*ret_count]);
        if (!copy[*ret_count]) return false;
    }
    return good;
}

int policy_binding_copy(const struct policy_binding *binding, struct policy_binding *ret_copy) {
    struct policy_binding copy = *binding;
    copy.repos = copy.methods = NULL;
    copy.repo_count = copy.method_count = 0;
    bool good = copy_text(binding->header, &copy.header);
    good &= copy_text(binding->value, &copy.value);
    good &= copy_text(binding->path, &copy.path);
    good &= copy_text(binding->variable, &copy.variable);
    good &= copy_text(binding->secret, &copy.secret);
    good &= copy_text(binding->literal, &copy.literal);
    good &= copy_text(binding->source, &copy.source);
    good &= copy_words(binding->repos, binding->repo_count, &copy.repos, &copy.repo_count);
    good &= copy_words(binding->methods, binding->method_count, &copy.methods, &copy.method_count);
    if (!good) policy_binding_done(&copy);
    *ret_copy = copy;
    return good ? 0 : -ENOMEM;
}

// ---- several bindings ----

static int check_complete(struct policy_binding *binding, struct error *err) {
    if (binding->kind != POLICY_BINDING_HEADER) return 0;
    if (!binding->host[0]) return error_set(err, -EINVAL, "the header binding has no host; add one");
    if (!binding->header && binding->basic) binding->header = strdup("Authorization");
    if (!binding->header && binding->basic) return error_set(err, -ENOMEM, "out of memory");
    if (!binding->header)
        return error_set(err, -EINVAL, "the binding for %s has no header name; add one", binding->host);
    bool uses_secret = !binding->value || strstr(binding->value, "{secret}");
    if (uses_secret && !binding->secret)
        return error_set(err, -EINVAL,
                         "the binding for %s has no secret; add env:NAME, file:PATH, cmd:COMMAND or store:NAME",
                         binding->host);
    if (!uses_secret && !binding->secret)
        return error_set(err, -EINVAL,
                         "the binding for %s has a value without {secret}, so what stands there would be the secret, in the open; "
                         "write {secret} in its place, as in \"Bearer {secret}\", and say where it is: env:NAME, file:PATH, "
                         "cmd:COMMAND or store:NAME", binding->host);
    if (!uses_secret && binding->secret)
        return error_set(err, -EINVAL, "the binding for %s has a secret that its value does not use; write {secret} in the "
                                       "value, as in \"Bearer {secret}\"", binding->host);
    if (binding->basic && !(binding->value && strchr(binding->value, ':')))
        return error_set(err, -EINVAL, "the binding for %s has basic: true and no USER:PASSWORD in its value; write basic: USER, "
                                       "or such as value: \"USER:{secret}\"", binding->host);
    return 0;
}

static int check_headers(const struct policy_binding *a, const struct policy_binding *b, struct error *err) {
    struct policy_binding_target a_targets[POLICY_BINDING_TARGETS], b_targets[POLICY_BINDING_TARGETS];
    size_t a_count = policy_binding_targets(a, a_targets), b_count = policy_binding_targets(b, b_targets);
    if (a->kind == POLICY_BINDING_WORKSPACE && b->kind == a->kind)
        return error_set(err, -EINVAL, "the workspace binding is given twice; keep one");
    for (size_t i = 0; i < a_count; i++) {
        for (size_t j = 0; j < b_count; j++) {
            if (strcmp(a_targets[i].host, b_targets[j].host) == 0 &&
                strcasecmp(a_targets[i].header, b_targets[j].header) == 0)
                return error_set(err, -EINVAL, "two bindings set header %s for %s; keep one", b_targets[j].header,
                                 b_targets[j].host);
        }
    }
    return 0;
}

// "env:NAME": NAME. NULL: another kind of secret.
static const char *secret_variable(const struct policy_binding *binding) {
    const char *secret = policy_binding_secret(binding);
    return strncmp(secret, "env:", 4) == 0 ? secret + 4 : NULL;
}

// The variable of one may be that of its own secret (in the sandbox it holds a placeholder), not that of another's.
static int check_foreign(const struct policy_binding *a, const struct policy_binding *b, struct error *err) {
    const char *own = secret_variable(a), *other = secret_variable(b);
    if (!a->variable || !other || strcmp(a->variable, other) != 0 || (own && strcmp(own, other) == 0)) return 0;
    return error_set(err, -EINVAL, "variable %s is the secret of another binding (env:%s); give the placeholder another name",
                     a->variable, other);
}

static int check_variables(const struct policy_binding *a, const struct policy_binding *b, struct error *err) {
    if (a->variable && b->variable && strcmp(a->variable, b->variable) == 0)
        return error_set(err, -EINVAL, "two bindings set variable %s; keep one", b->variable);
    int r = check_foreign(a, b, err);
    return r < 0 ? r : check_foreign(b, a, err);
}

// So that the answer to one request has room (policy_credentials).
static int check_count(const struct policy_model *model, const struct policy_binding *binding, struct error *err) {
    struct policy_binding_target targets[POLICY_BINDING_TARGETS], others[POLICY_BINDING_TARGETS];
    size_t target_count = policy_binding_targets(binding, targets);
    for (size_t k = 0; k < target_count; k++) {
        size_t count = 1;
        for (size_t i = 0; i < model->binding_count; i++) {
            size_t other_count = policy_binding_targets(&model->bindings[i], others);
            for (size_t j = 0; j < other_count; j++) count += strcmp(others[j].host, targets[k].host) == 0;
        }
        if (count > POLICY_CREDENTIALS_MAX)
            return error_set(err, -EINVAL, "more than %d headers are bound to %s; remove some", POLICY_CREDENTIALS_MAX,
                             targets[k].host);
    }
    if (model->binding_count >= POLICY_BINDINGS_MAX)
        return error_set(err, -EINVAL, "there are more than %d bindings; remove some", POLICY_BINDINGS_MAX);
    return 0;
}

int policy_binding_append(struct policy_model *model, struct policy_binding *binding, struct error *err) {
    int r = check_complete(binding, err);
    for (size_t i = 0; r == 0 && i < model->binding_count; i++) {
        r = check_headers(&model->bindings[i], binding, err);
        if (r == 0) r = check_variables(&model->bindings[i], binding, err);
    }
    if (r == 0) r = check_count(model, binding, err);
    struct policy_binding *bindings = NULL;
    if (r == 0) {
        bindings = policy_entry_grow(model->bindings, model->binding_count, sizeof(*bindings));
        if (!bindings) r = error_set(err, -ENOMEM, "out of memory");
    }
    if (r < 0) {
        policy_binding_done(binding);
        return r;
    }
    model->bindings = bindings;
    bindings[model->binding_count++] = *binding;
    *binding = (struct policy_binding){0};
    return 0;
}
