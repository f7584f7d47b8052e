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
#include "policy/yaml.h"

#define BINDINGS_MAX 256
#define REPOS_MAX 1024

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

// They frame the message or say where it goes; a credential in one of them would be an attack on ourselves.
static const char *const framing_headers[] = {
    "Host", "Content-Length", "Transfer-Encoding", "Connection", "Keep-Alive", "Proxy-Connection",
    "TE",   "Trailer",        "Upgrade",
};

static const char *const secret_kinds[] = {"env:", "file:", "cmd:", "store:"};

const char *policy_binding_name(enum policy_binding_kind kind) { return binding_kinds[kind].name; }

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

static void free_words(char **words, size_t count) {
    for (size_t i = 0; i < count; i++) free(words[i]);
    free(words);
}

void policy_binding_done(struct policy_binding *binding) {
    free_words(binding->repos, binding->repo_count);
    free_words(binding->methods, binding->method_count);
    free(binding->header);
    free(binding->value);
    free(binding->path);
    free(binding->secret);
    free(binding->source);
    *binding = (struct policy_binding){0};
}

static int set_text(char **target, const char *text, size_t len, struct error *err) {
    char *copy = strndup(text, len);
    if (!copy) return error_set(err, -ENOMEM, "out of memory");
    free(*target);
    *target = copy;
    return 0;
}

int policy_binding_set_host(struct policy_binding *binding, const char *text, size_t len, struct error *err) {
    char quoted[YAML_QUOTE_SIZE];
    struct policy_entry entry;
    uint16_t port;
    int r = policy_entry_parse_host(text, len, false, &entry, &port, err);
    if (r < 0) return r;
    yaml_quote(text, len, quoted);
    if (port)
        return error_set(err, -EINVAL, "\"%s\" has a port; a binding takes one host name, without a port", quoted);
    if (entry.kind != POLICY_ENTRY_NAME)
        return error_set(err, -EINVAL, "\"%s\" is an address; a binding takes one host name", quoted);
    memcpy(binding->host, entry.name, sizeof(entry.name));
    return 0;
}

int policy_binding_set_header(struct policy_binding *binding, const char *text, size_t len, struct error *err) {
    char quoted[YAML_QUOTE_SIZE];
    yaml_quote(text, len, quoted);
    bool token = len > 0 && len <= 128; // RFC 9110 section 5.6.2
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i], lower = c | 0x20;
        token &=
            (lower >= 'a' && lower <= 'z' && c < 0x80) || (c >= '0' && c <= '9') || (c && strchr("!#$%&'*+-.^_`|~", c));
    }
    if (!token)
        return error_set(err, -EINVAL, "\"%s\" is not a header name; write one such as Authorization or X-Api-Key",
                         quoted);
    int r = set_text(&binding->header, text, len, err);
    if (r < 0) return r;
    for (size_t i = 0; i < ARRAY_LENGTH(framing_headers); i++)
        if (strcasecmp(binding->header, framing_headers[i]) == 0)
            return error_set(err, -EINVAL, "header \"%s\" frames or routes the request; bind another header", quoted);
    return 0;
}

int policy_binding_set_value(struct policy_binding *binding, const char *text, size_t len, struct error *err) {
    char quoted[YAML_QUOTE_SIZE];
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i];
        if ((c < 0x20 && c != '\t') || c == 0x7f)
            return error_set(
                err, -EINVAL,
                "value \"%s\" has a line break, NUL or other control byte, which a header value cannot hold; "
                "remove it",
                yaml_quote(text, len, quoted));
    }
    if (len == 0) return error_set(err, -EINVAL, "value \"\" is empty; leave it out for the secret alone");
    return set_text(&binding->value, text, len, err);
}

int policy_binding_set_secret(struct policy_binding *binding, const char *text, size_t len, struct error *err) {
    char quoted[YAML_QUOTE_SIZE];
    bool good = false;
    for (size_t i = 0; i < ARRAY_LENGTH(secret_kinds); i++) {
        size_t kind_len = strlen(secret_kinds[i]);
        good |= len > kind_len && memcmp(text, secret_kinds[i], kind_len) == 0;
    }
    for (size_t i = 0; i < len; i++) good &= (unsigned char)text[i] >= 0x20 && text[i] != 0x7f;
    if (len > 4 && memcmp(text, "env:", 4) == 0) good &= !memchr(text, '=', len);
    if (!good)
        return error_set(
            err, -EINVAL,
            "secret \"%s\" is not a reference; write env:NAME, file:PATH, cmd:COMMAND or store:NAME (never "
            "the secret itself)",
            // A secret pasted by mistake must not be shown whole.
            len > 8 ? "..." : yaml_quote(text, len, quoted));
    return set_text(&binding->secret, text, len, err);
}

static bool repo_part(const char *text, size_t len) {
    if (len == 0 || len > 100 || (len <= 2 && strspn(text, ".") >= len)) return false;
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i], lower = c | 0x20;
        bool good =
            (lower >= 'a' && lower <= 'z' && c < 0x80) || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
        if (!good) return false;
    }
    return true;
}

int policy_binding_add_repo(struct policy_binding *binding, const char *text, size_t len, struct error *err) {
    char quoted[YAML_QUOTE_SIZE];
    size_t kept = len > 4 && strncasecmp(text + len - 4, ".git", 4) == 0 ? len - 4 : len;
    const char *slash = memchr(text, '/', kept);
    size_t owner = slash ? (size_t)(slash - text) : 0;
    if (!slash || !repo_part(text, owner) || !repo_part(slash + 1, kept - owner - 1))
        return error_set(
            err, -EINVAL,
            "repository \"%s\" is not of the form OWNER/REPO; write it as in octo/hello (letters, digits, '-', "
            "'_' and '.')",
            yaml_quote(text, len, quoted));
    if (binding->repo_count >= REPOS_MAX)
        return error_set(err, -EINVAL, "more than 1024 repositories are listed; leave repos out for any repository");
    char *repo = strndup(text, kept);
    if (!repo) return error_set(err, -ENOMEM, "out of memory");
    for (char *at = repo; *at; at++)
        if (*at >= 'A' && *at <= 'Z') *at = (char)(*at + 32);
    for (size_t i = 0; i < binding->repo_count; i++) {
        if (strcmp(binding->repos[i], repo) == 0) {
            free(repo);
            return 0;
        }
    }
    char **repos = policy_entry_grow(binding->repos, binding->repo_count, sizeof(*repos));
    if (!repos) {
        free(repo);
        return error_set(err, -ENOMEM, "out of memory");
    }
    binding->repos = repos;
    repos[binding->repo_count++] = repo;
    return 0;
}

static int check_complete(const struct policy_binding *binding, struct error *err) {
    if (binding->kind != POLICY_BINDING_HEADER) return 0;
    if (!binding->host[0]) return error_set(err, -EINVAL, "the header binding has no host; add one");
    if (!binding->header)
        return error_set(err, -EINVAL, "the binding for %s has no header name; add one", binding->host);
    bool uses_secret = !binding->value || strstr(binding->value, "{secret}");
    if (uses_secret && !binding->secret)
        return error_set(err, -EINVAL,
                         "the binding for %s has no secret; add env:NAME, file:PATH, cmd:COMMAND or store:NAME",
                         binding->host);
    return 0;
}

static int check_conflict(const struct policy_binding *a, const struct policy_binding *b, struct error *err) {
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

int policy_binding_append(struct policy_model *model, struct policy_binding *binding, struct error *err) {
    int r = check_complete(binding, err);
    for (size_t i = 0; r == 0 && i < model->binding_count; i++) r = check_conflict(&model->bindings[i], binding, err);
    if (r == 0 && model->binding_count >= BINDINGS_MAX)
        r = error_set(err, -EINVAL, "there are more than 256 bindings; remove some");
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
