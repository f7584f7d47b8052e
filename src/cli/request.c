// SPDX-License-Identifier: Apache-2.0
#include "cli/request.h"

#include <errno.h>

#include "base/mem.h"

#define ANSWERS_MAX 64

static const struct request_scheme {
    const char *name;
    enum policy_protocol protocol;
    enum policy_app app;
    bool sends_name;
    bool needs_port, takes_port;
    uint16_t port; // if the URL has none
} request_schemes[] = {
    {"https", POLICY_TCP, POLICY_APP_TLS, true, false, true, 443},
    {"http", POLICY_TCP, POLICY_APP_HTTP, true, false, true, 80},
    {"tcp", POLICY_TCP, POLICY_APP_UNKNOWN, false, true, true, 0},
    {"udp", POLICY_UDP, POLICY_APP_UNKNOWN, false, true, true, 0},
    {"icmp", POLICY_ICMP, POLICY_APP_UNKNOWN, false, false, false, 0},
    {"dns", POLICY_DNS, POLICY_APP_UNKNOWN, false, false, false, 0},
};

// Text as a message shows it; a NUL would end it early.
static int shown_len(const char *text, size_t len) {
    size_t end = strnlen(text, len);
    return end > 300 ? 300 : (int)end;
}

static const struct request_scheme *find_scheme(const char *text, size_t len, size_t *ret_skip) {
    const char *colon = memchr(text, ':', len);
    size_t name_len = colon ? (size_t)(colon - text) : 0;
    if (!colon || len - name_len < 3 || memcmp(colon, "://", 3) != 0) return NULL;
    for (size_t i = 0; i < ARRAY_LENGTH(request_schemes); i++) {
        const struct request_scheme *scheme = &request_schemes[i];
        if (strlen(scheme->name) != name_len || strncasecmp(scheme->name, text, name_len) != 0) continue;
        *ret_skip = name_len + 3;
        return scheme;
    }
    return NULL;
}

// From behind "://" to the path, without user information. A backslash ends it as a slash does (WHATWG URL), so that
// "https://a\@b/" is a request to a, as it is for a browser.
static void find_authority(const char *text, size_t len, const char **ret_authority, size_t *ret_len) {
    size_t end = 0;
    while (end < len && !memchr("/?#\\", text[end], 4)) end++;
    const char *user = memrchr(text, '@', end);
    size_t skip = user ? (size_t)(user - text) + 1 : 0;
    *ret_authority = text + skip;
    *ret_len = end - skip;
}

// What a client sends as the target: up to the fragment.
static void find_path(const char *text, size_t len, struct request *request) {
    const char *fragment = memchr(text, '#', len);
    request->path = text;
    request->path_len = fragment ? (size_t)(fragment - text) : len;
    if (request->path_len > 0 && text[0] != '?') return;
    request->path = "/"; // a query alone decides nothing
    request->path_len = 1;
}

// "HOST:DIGITS", where HOST alone would do.
static bool has_port(const char *authority, size_t len) {
    struct name_host host;
    uint16_t port;
    size_t digits = 0;
    while (digits < len && authority[len - 1 - digits] >= '0' && authority[len - 1 - digits] <= '9') digits++;
    if (digits == 0 || digits == len || authority[len - 1 - digits] != ':') return false;
    return name_authority_from_wire(authority, len - 1 - digits, &host, &port) == 0 && port == 0;
}

int request_parse(const char *text, size_t len, struct request *ret_request, struct error *err) {
    int shown = shown_len(text, len);
    size_t skip, authority_len;
    const char *authority;
    const struct request_scheme *scheme = find_scheme(text, len, &skip);
    if (!scheme)
        return error_set(err, -EINVAL,
                         "request \"%.*s\" has no known scheme; write https://, http://, tcp://HOST:PORT, "
                         "udp://HOST:PORT, icmp://ADDR or dns://NAME",
                         shown, text);
    struct request request = {
        .protocol = scheme->protocol, .app = scheme->app, .sends_name = scheme->sends_name, .port = scheme->port};
    uint16_t port = 0;
    find_authority(text + skip, len - skip, &authority, &authority_len);
    // A bare IPv6 address is no authority, but nothing else can be meant where no port may stand.
    int r = scheme->takes_port ? name_authority_from_wire(authority, authority_len, &request.host, &port)
                               : name_from_wire(authority, authority_len, &request.host);
    if (r < 0 && has_port(authority, authority_len) && !scheme->takes_port)
        return error_set(err, -EINVAL, "request \"%.*s\" has a port, which %s does not take; write %s://%s without a port",
                         shown, text, scheme->name, scheme->name, scheme->protocol == POLICY_DNS ? "NAME" : "ADDR");
    if (r < 0 && has_port(authority, authority_len))
        return error_set(err, -EINVAL, "request \"%.*s\" has a port out of range; write a number from 1 to 65535",
                         shown, text);
    if (r < 0)
        return error_set(err, -EINVAL,
                         "request \"%.*s\" has a bad host or port; write HOST or HOST:PORT, where HOST is a "
                         "name, an IPv4 address of four numbers, or an IPv6 address in brackets",
                         shown, text);
    if (scheme->needs_port && port == 0)
        return error_set(err, -EINVAL, "request \"%.*s\" has no port; write %s://HOST:PORT", shown, text, scheme->name);
    if (scheme->protocol == POLICY_DNS && request.host.is_address)
        return error_set(err, -EINVAL, "request \"%.*s\" asks DNS for an address; write dns://NAME", shown, text);
    if (port) request.port = port;
    find_path(authority + authority_len, (size_t)(text + len - authority) - authority_len, &request);
    *ret_request = request;
    return 0;
}

struct policy_request request_for_policy(const struct request *request, const struct addr *address) {
    const struct name_host *host = &request->host;
    struct policy_request result = {.protocol = request->protocol, .app = request->app, .port = request->port};
    if (host->is_address) {
        result.address = &host->address;
        // A client sends no SNI for a literal (RFC 6066 section 3), but Host always.
        if (request->app == POLICY_APP_HTTP) result.claimed_address = &host->address;
        return result;
    }
    result.address = address;
    result.dialled = host->name;
    if (request->sends_name) result.claimed = host->name;
    return result;
}

size_t request_credentials(const struct policy *policy, const struct request *request, const struct request_verdict *verdict,
                           struct policy_credential ret_credentials[POLICY_CREDENTIALS_MAX]) {
    const struct policy_credential_request question = {.host = request->host.name, .method = "GET", .method_len = 3,
                                                       .path = request->path, .path_len = request->path_len};
    bool opened = verdict->decision.verdict == POLICY_ALLOW && request->app == POLICY_APP_TLS && !request->host.is_address;
    return opened ? policy_credentials(policy, &question, ret_credentials) : 0;
}

static struct policy_decision judge_once(const struct policy *policy, const struct policy_request *request,
                                         const struct addr *answers, size_t count, size_t *ret_index) {
    size_t allowed[ANSWERS_MAX], allowed_count = 0;
    *ret_index = SIZE_MAX;
    if (!answers) return policy_decide(policy, request);
    // A name that no entry could allow is never looked up, so what it would resolve to plays no part.
    struct policy_decision alone = policy_decide(policy, request);
    if (alone.verdict == POLICY_DENY && (count == 0 || alone.reason == POLICY_BASE_DENIED)) return alone;
    struct policy_decision decision = policy_judge_answers(policy, request, answers, count, allowed, &allowed_count);
    if (allowed_count > 0) *ret_index = allowed[0];
    return decision;
}

// The answer that brought about a denial.
static size_t denied_answer(const struct policy *policy, struct policy_request request, const struct addr *answers,
                            size_t count, enum policy_reason reason) {
    for (size_t i = 0; i < count; i++) {
        request.address = &answers[i];
        struct policy_decision decision = policy_decide(policy, &request);
        if (decision.verdict == POLICY_DENY && decision.reason == reason) return i;
    }
    return SIZE_MAX;
}

struct request_verdict request_judge(const struct policy *policy, const struct request *request,
                                     const struct addr *answers, size_t count) {
    struct policy_request question = request_for_policy(request, NULL);
    struct request_verdict verdict = {0};
    size_t index;
    if (request->host.is_address || request->protocol == POLICY_DNS) answers = NULL;
    if (count > ANSWERS_MAX) count = ANSWERS_MAX;
    const struct addr loopback[] = {addr_ipv4(0x7f000001), {.family = ADDR_IPV6, .bytes = {[15] = 1}}};
    if (!answers && question.dialled && request->protocol != POLICY_DNS && strcmp(question.dialled, "localhost") == 0) {
        answers = loopback;
        count = ARRAY_LENGTH(loopback);
    }
    verdict.decision = judge_once(policy, &question, answers, count, &index);
    if (verdict.decision.verdict == POLICY_INSPECT && question.app == POLICY_APP_UNKNOWN) {
        question.app = POLICY_APP_OTHER;
        verdict.decision = judge_once(policy, &question, answers, count, &index);
    }
    // base_denied: never looked up, no answer brought it about.
    if (verdict.decision.verdict == POLICY_DENY && answers && verdict.decision.reason != POLICY_BASE_DENIED)
        index = denied_answer(policy, question, answers, count, verdict.decision.reason);
    if (request->host.is_address) {
        verdict.has_address = true;
        verdict.address = request->host.address;
    } else if (answers && index < count) {
        verdict.has_address = true;
        verdict.address = answers[index];
    }
    return verdict;
}

const char *request_hint(const struct policy *policy, const struct request *request, const struct request_verdict *verdict,
                         char buf[POLICY_HINT_SIZE]) {
    struct policy_request question = request_for_policy(request, verdict->has_address ? &verdict->address : NULL);
    // As it was judged: tcp:// is neither TLS nor HTTP.
    if (question.protocol == POLICY_TCP && question.app == POLICY_APP_UNKNOWN) question.app = POLICY_APP_OTHER;
    return policy_hint(policy, &question, &verdict->decision, buf);
}
