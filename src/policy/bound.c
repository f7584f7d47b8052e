// SPDX-License-Identifier: Apache-2.0
// Which headers a request to a bound host gets. Pure, as the verdict is. A condition that cannot be judged without doubt
// does not hold.
#include <strings.h>

#include "base/mem.h"
#include "policy/block.h"
#include "policy/url_path.h"

static const char *string_at(const struct policy *policy, uint32_t string) { return policy->strings + string; }

static const struct block_slot *bound_slot(const struct policy *policy, const char *host) {
    if (policy->header->set_counts[BLOCK_BOUND] == 0) return NULL;
    uint32_t hash = BLOCK_HASH_START;
    for (size_t i = strlen(host); i-- > 0;) hash = block_hash_step(hash, host[i]);
    return block_find_slot(policy, BLOCK_BOUND, host, hash);
}

bool policy_name_bound(const struct policy *policy, const char *name) { return bound_slot(policy, name) != NULL; }

const char *policy_bound_host(const struct policy *policy, size_t index) {
    for (uint32_t i = 0; i < block_count(policy, BLOCK_CREDENTIALS); i++) {
        const struct block_credential *credential = &policy->credentials[i];
        if (credential->first && index-- == 0) return string_at(policy, credential->host);
    }
    return NULL;
}

static bool listed(const struct policy *policy, struct block_range words, const char *word, size_t len) {
    for (uint32_t i = 0; i < words.count; i++) {
        const char *item = string_at(policy, policy->words[words.first + i]);
        if (strlen(item) == len && memcmp(item, word, len) == 0) return true;
    }
    return false;
}

static bool method_is(const struct policy_credential_request *request, const char *method) {
    return request->method_len == strlen(method) && memcmp(request->method, method, request->method_len) == 0;
}

bool policy_method_may(const void *method, size_t len) {
    static const char *const names[] = {"TRACE", "TRACK", "CONNECT"};
    for (size_t i = 0; i < ARRAY_LENGTH(names); i++)
        if (strlen(names[i]) == len && strncasecmp(names[i], method, len) == 0) return false;
    return true;
}

// HEAD is a GET whose answer is cut short.
static bool method_fits(const struct policy *policy, struct block_range methods,
                        const struct policy_credential_request *request) {
    return methods.count == 0 || listed(policy, methods, request->method, request->method_len) ||
           (method_is(request, "HEAD") && listed(policy, methods, "GET", strlen("GET")));
}

static bool is_conditional(const struct policy *policy, const struct block_credential *credential) {
    return credential->repos.count > 0 || string_at(policy, credential->path)[0];
}

// path: NULL if it has more than one reading.
static bool credential_fits(const struct policy *policy, const struct block_credential *credential,
                            const struct policy_credential_request *request, const char *path) {
    if (!request->method) return true;
    char repo[URL_PATH_REPO_SIZE];
    if (!policy_method_may(request->method, request->method_len)) return false;
    if (!method_fits(policy, credential->methods, request)) return false;
    if (!is_conditional(policy, credential)) return true;
    if (!path || !url_path_below(path, string_at(policy, credential->path))) return false;
    return credential->repos.count == 0 || (url_path_repo(path, string_at(policy, credential->repo_root), repo) &&
                                            listed(policy, credential->repos, repo, strlen(repo)));
}

size_t policy_credentials(const struct policy *policy, const struct policy_credential_request *request,
                          struct policy_credential ret_credentials[POLICY_CREDENTIALS_MAX]) {
    const struct block_slot *slot = bound_slot(policy, request->host);
    if (!slot) return 0;
    char buf[URL_PATH_SIZE];
    const char *path = NULL;
    bool read = false;
    size_t count = 0;
    for (uint32_t i = 0; i < slot->items.count && count < POLICY_CREDENTIALS_MAX; i++) {
        uint32_t rule = policy->items[slot->items.first + i];
        const struct block_credential *credential = &policy->credentials[rule];
        if (request->method && !read && is_conditional(policy, credential)) {
            read = true;
            if (url_path_read(request->path, request->path_len, buf)) path = buf;
        }
        if (!credential_fits(policy, credential, request, path)) continue;
        ret_credentials[count++] = (struct policy_credential){
            .rule = rule, .header = string_at(policy, credential->header), .name = string_at(policy, credential->name),
            .scrub = credential->scrub,
            .conditional = is_conditional(policy, credential) || credential->methods.count > 0};
    }
    return count;
}
