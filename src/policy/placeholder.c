// SPDX-License-Identifier: Apache-2.0
// What a sandbox gets in place of a secret, and how a binding reads. Tools look at a token's beginning and length before
// they use it; none asks for more.
#include "base/mem.h"
#include "policy/binding.h"

static const struct {
    const char *variable, *start;
    size_t length; // of the whole
} placeholder_shapes[] = {
    {"GITHUB_TOKEN", "ghp_", 40},
    {"GH_TOKEN", "ghp_", 40},
    {"GITLAB_TOKEN", "glpat-", 26},
    {"NPM_TOKEN", "npm_", 40},
    {"NODE_AUTH_TOKEN", "npm_", 40},
    {"HF_TOKEN", "hf_", 37},
    {"OPENAI_API_KEY", "sk-", 51},
    {"ANTHROPIC_API_KEY", "sk-ant-api03-", 108},
    {"MISTRAL_API_KEY", "", 32},
    {"GEMINI_API_KEY", "AIza", 39},
    {"GOOGLE_API_KEY", "AIza", 39},
    {"GROQ_API_KEY", "gsk_", 56},
    {"XAI_API_KEY", "xai-", 84},
    {"STRIPE_API_KEY", "sk_test_", 32},
};

const char *policy_binding_placeholder(const struct policy_binding *binding, char buf[POLICY_PLACEHOLDER_SIZE]) {
    const char *start = "", *variable = binding->variable ? binding->variable : "";
    size_t length = 32;
    for (size_t i = 0; i < ARRAY_LENGTH(placeholder_shapes); i++) {
        if (strcmp(placeholder_shapes[i].variable, variable) != 0) continue;
        start = placeholder_shapes[i].start;
        length = placeholder_shapes[i].length;
    }
    size_t used = (size_t)snprintf(buf, POLICY_PLACEHOLDER_SIZE, "%s%s", start, POLICY_PLACEHOLDER);
    while (used < length) buf[used++] = '0';
    buf[used] = '\0';
    return buf;
}

// ---- text ----

struct text {
    char *buf;
    size_t used;
};

__attribute__((format(printf, 2, 3))) static void text_add(struct text *text, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int wrote = vsnprintf(text->buf + text->used, POLICY_BINDING_TEXT_SIZE - text->used, format, args);
    va_end(args);
    size_t most = POLICY_BINDING_TEXT_SIZE - 1;
    if (wrote > 0) text->used = (size_t)wrote < most - text->used ? text->used + (size_t)wrote : most;
}

static void text_words(struct text *text, const char *before, char *const *words, size_t count) {
    const size_t shown = 3;
    for (size_t i = 0; i < count && i < shown; i++) text_add(text, "%s%s", i ? ", " : before, words[i]);
    if (count > shown) text_add(text, " and %zu more", count - shown);
}

const char *policy_binding_text(const struct policy_binding *binding, char buf[POLICY_BINDING_TEXT_SIZE]) {
    struct text text = {.buf = buf};
    if (binding->kind == POLICY_BINDING_HEADER)
        text_add(&text, "%s for %s", binding->header, binding->host);
    else
        text_add(&text, "%s", policy_binding_word(binding->kind));
    text_words(&text, " in ", binding->repos, binding->repo_count);
    if (binding->path) text_add(&text, " below %s", binding->path);
    text_words(&text, " on ", binding->methods, binding->method_count);
    // A command may hold what it should not.
    const char *secret = policy_binding_secret(binding);
    if (strncmp(secret, "cmd:", 4) == 0) secret = "cmd:...";
    if (*secret && !binding->literal) text_add(&text, " from %s", secret);
    if (binding->variable) text_add(&text, ", placeholder in %s", binding->variable);
    if (binding->scrub) text_add(&text, ", scrubbed from responses");
    return buf;
}
