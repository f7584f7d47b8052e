// SPDX-License-Identifier: Apache-2.0
// A case is judged by the very functions that `run` and `check` use: the policy goes through policy_read as text. Own
// addresses of the host are loopback only, so that a case means the same on every machine.
#include "cli/check_cases.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>

#include "base/buf.h"
#include "base/mem.h"
#include "cli/cli.h"
#include "policy/request.h"
#include "policy/model.h"

#define CASES_MAX ((size_t)64 << 20) // bytes of a file
#define RESOLVED_MAX 64
#define JSON_FLAGS (JSON_ALLOW_NUL | JSON_DISABLE_EOF_CHECK)

struct check_case {
    json_t *root; // borrowed
    bool duplicate_key;
    struct policy_model *model;
    struct policy_node node;
    bool has_node;
    struct policy *policy;
    struct request_verdict verdict;
    struct error why; // invalid, and this is why
};

static void case_done(struct check_case *test) {
    policy_model_free(test->model);
    if (test->has_node) policy_node_done(&test->node);
    policy_free(test->policy);
    json_decref(test->root);
}

// JSON text that the YAML reader takes: what YAML forbids raw in a text, JSON may write as an escape.
static void escape_unprintable(struct buf *out, const char *text) {
    for (const unsigned char *at = (const unsigned char *)text; *at; at++) {
        if (*at == 0x7f)
            buf_printf(out, "\\u007f");
        else if (*at == 0xc2 && at[1] >= 0x80 && at[1] < 0xa0)
            buf_printf(out, "\\u00%02x", *++at);
        else if (*at == 0xef && at[1] == 0xbb && at[2] == 0xbf)
            buf_printf(out, "\\ufeff"), at += 2;
        else if (*at == 0xef && at[1] == 0xbf && at[2] >= 0xbe)
            buf_printf(out, "\\uff%02x", at[2] == 0xbe ? 0xfe : 0xff), at += 2;
        else
            buf_append(out, at, 1);
    }
}

static int dump(const json_t *value, struct buf *out, struct error *err) {
    AUTO_FREE char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
    if (text) escape_unprintable(out, text);
    return text && !out->failed ? 0 : error_set(err, -ENOMEM, "out of memory");
}

static int case_policy(struct check_case *test) {
    struct buf text = BUF_INIT;
    enum policy_type type = POLICY_TYPE_PROCESS;
    const char *word = json_string_value(json_object_get(test->root, "type"));
    int r = dump(json_object_get(test->root, "policy"), &text, &test->why);
    if (r == 0)
        r = policy_read(text.data ? text.data : "", text.len, "policy", POLICY_DIALECT_AUTO, &test->model, &test->why);
    buf_done(&text);
    if (r < 0) return r;
    if (word && !policy_type_from_word(word, &type))
        return error_set(&test->why, -EINVAL, "there is no sandbox type \"%s\"; `penstock types` lists them", word);
    if (!word && test->model->has_type) type = test->model->type;
    r = policy_model_set_type(test->model, type, &test->why);
    return r < 0 ? r : policy_check_type(test->model, type, &test->why);
}

// The keys of `node` are those of network.egress and network.dns without their path, and workspace of credentials.
static int case_node(struct check_case *test) {
    static const char *const dns_keys[] = {"servers", "pool4", "pool6"};
    json_t *node = json_object_get(test->root, "node");
    if (!node) return 0;
    json_t *egress = json_deep_copy(node), *dns = json_object();
    for (size_t i = 0; i < ARRAY_LENGTH(dns_keys); i++) {
        json_t *value = json_object_get(egress, dns_keys[i]);
        if (!value) continue;
        json_object_set(dns, dns_keys[i], value);
        json_object_del(egress, dns_keys[i]);
    }
    json_t *credentials = json_object();
    if (json_object_get(egress, "workspace")) {
        json_object_set(credentials, "workspace", json_object_get(egress, "workspace"));
        json_object_del(egress, "workspace");
    }
    json_t *whole = json_pack("{s:{s:o,s:o},s:o}", "network", "egress", egress, "dns", dns, "credentials", credentials);
    struct buf text = BUF_INIT;
    int r = whole ? dump(whole, &text, &test->why) : error_set(&test->why, -ENOMEM, "out of memory");
    json_decref(whole);
    if (r == 0) r = policy_node_read(text.data ? text.data : "", text.len, "node", NULL, &test->node, &test->why);
    buf_done(&text);
    test->has_node = r == 0;
    return r;
}

// Everything up to the compiled policy; negative with test->why if it is invalid.
static int case_compile(struct check_case *test) {
    struct policy_warnings warnings = {0};
    if (test->duplicate_key) return error_set(&test->why, -EINVAL, "a key is given twice in one object; keep one");
    int r = case_policy(test);
    if (r == 0) r = case_node(test);
    // Without a node nothing is said about the operator's rules.
    if (r == 0 && test->has_node) r = policy_bind_workspace(test->model, &test->node, &test->why);
    if (r == 0)
        r = policy_compile(test->model, test->has_node ? &test->node : NULL, NULL, 0, 1, &test->policy, &warnings,
                           &test->why);
    policy_warnings_done(&warnings);
    return r;
}

// --- what is expected ---

static void mismatch(struct error *failure, const char *expected, const char *got) {
    error_set(failure, -EINVAL, "expected %s, got %s", expected, got);
}

static bool says_all(const struct check_case *test, struct error *failure) {
    size_t i;
    json_t *part;
    json_array_foreach(json_object_get(test->root, "says"), i, part) {
        const char *text = json_string_value(part);
        if (text && strstr(test->why.text, text)) continue;
        error_set(failure, -EINVAL, "expected a message with \"%s\", got \"%s\"", text ? text : "?", test->why.text);
        return false;
    }
    return true;
}

static bool case_resolved(const struct check_case *test, struct addr answers[RESOLVED_MAX], size_t *ret_count,
                          struct error *failure) {
    const json_t *resolved = json_object_get(test->root, "resolved");
    size_t count = json_array_size(resolved);
    if (count > RESOLVED_MAX) count = RESOLVED_MAX;
    for (size_t i = 0; i < count; i++) {
        const char *text = json_string_value(json_array_get(resolved, i));
        if (text && addr_parse(text, strlen(text), &answers[i]) == 0) continue;
        error_set(failure, -EINVAL, "resolved \"%s\" is not an address", text ? text : "?");
        return false;
    }
    *ret_count = count;
    return true;
}

static struct request_verdict case_judge(const struct check_case *test, const struct addr *answers, size_t count) {
    const json_t *text = json_object_get(test->root, "request");
    struct request request;
    // What no client could send as it stands, the gate refuses as a bad request.
    if (request_parse(json_string_value(text), json_string_length(text), &request, NULL) < 0)
        return (struct request_verdict){
            .decision = {.verdict = POLICY_DENY, .reason = POLICY_BAD_REQUEST, .rule = POLICY_RULE_NONE}};
    return request_judge(test->policy, &request, json_object_get(test->root, "resolved") ? answers : NULL, count);
}

static bool verdict_as_expected(const struct check_case *test, const char *expect, struct error *failure) {
    struct addr answers[RESOLVED_MAX];
    size_t count = 0;
    char got[512];
    const char *reason = json_string_value(json_object_get(test->root, "reason"));
    if (!json_is_string(json_object_get(test->root, "request"))) {
        mismatch(failure, "a request to judge", "none in the case");
        return false;
    }
    if (!case_resolved(test, answers, &count, failure)) return false;
    struct policy_decision decision = case_judge(test, answers, count).decision;
    if (strcmp(policy_verdict_name(decision.verdict), expect) == 0 &&
        (!reason || strcmp(policy_reason_name(decision.reason), reason) == 0))
        return true;
    struct policy_rule_info rule = {0};
    if (decision.rule != POLICY_RULE_NONE) rule = policy_rule_info(test->policy, decision.rule);
    snprintf(got, sizeof(got), "%s %s by \"%.200s\"", policy_verdict_name(decision.verdict),
             policy_reason_name(decision.reason), rule.text ? rule.text : "no rule");
    error_set(failure, -EINVAL, "expected %s%s%s, got %s", expect, reason ? " " : "", reason ? reason : "", got);
    return false;
}

static bool has_unknown_key(const struct check_case *test, struct error *failure) {
    static const char *const keys[] = {"id", "type", "policy", "node", "request", "resolved", "expect", "reason", "says"};
    const char *key;
    json_t *value;
    json_object_foreach(test->root, key, value) {
        size_t i = 0;
        while (i < ARRAY_LENGTH(keys) && strcmp(keys[i], key) != 0) i++;
        if (i < ARRAY_LENGTH(keys)) continue;
        error_set(failure, -EINVAL, "unknown key \"%s\" in a case; the keys are id, type, policy, node, request, resolved, "
                                    "expect, reason and says", key);
        return true;
    }
    return false;
}

static bool case_passes(struct check_case *test, struct error *failure) {
    static const char *const words[] = {"valid", "invalid", "allow", "deny"};
    const char *expect = json_string_value(json_object_get(test->root, "expect"));
    size_t word = 0;
    if (has_unknown_key(test, failure)) return false;
    while (word < ARRAY_LENGTH(words) && !(expect && strcmp(expect, words[word]) == 0)) word++;
    if (word == ARRAY_LENGTH(words) || !json_object_get(test->root, "policy")) {
        error_set(failure, -EINVAL, "a case needs a policy, and expect of valid, invalid, allow or deny");
        return false;
    }
    int r = case_compile(test);
    bool wants_invalid = strcmp(expect, "invalid") == 0;
    if (r < 0 && wants_invalid) return says_all(test, failure);
    if (r < 0) {
        error_set(failure, -EINVAL, "expected %s, got invalid: %s", expect, test->why.text);
        return false;
    }
    if (wants_invalid) mismatch(failure, "invalid", "valid");
    if (wants_invalid || strcmp(expect, "valid") == 0) return !wants_invalid;
    return verdict_as_expected(test, expect, failure);
}

static bool run_line(const char *line, size_t len, const char *name, size_t number) {
    struct check_case test = {0};
    struct error failure = {0};
    json_error_t json_error;
    test.root = json_loadb(line, len, JSON_ALLOW_NUL, &json_error);
    json_t *strict = json_loadb(line, len, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, NULL);
    test.duplicate_key = test.root && !strict;
    json_decref(strict);
    bool passed = false;
    if (!json_is_object(test.root))
        error_set(&failure, -EINVAL, "not a JSON object: %s", test.root ? "another value" : json_error.text);
    else
        passed = case_passes(&test, &failure);
    if (!passed) {
        const char *id = json_string_value(json_object_get(test.root, "id"));
        printf("%s:%zu: %s: %s\n", name, number, id ? id : "case without id", failure.text);
    }
    case_done(&test);
    return passed;
}

static bool is_blank(const char *line, size_t len) {
    for (size_t i = 0; i < len; i++)
        if (!memchr(" \t\r", line[i], 3)) return false;
    return true;
}

struct check_cases_count check_cases_run(const char *text, size_t len, const char *name) {
    struct check_cases_count count = {0};
    for (size_t number = 1; len > 0; number++) {
        const char *end = memchr(text, '\n', len);
        size_t line = end ? (size_t)(end - text) : len;
        if (!is_blank(text, line)) {
            if (run_line(text, line, name, number))
                count.passed++;
            else
                count.failed++;
        }
        size_t used = line + (end != NULL);
        text += used;
        len -= used;
    }
    return count;
}

int check_cases_file(const char *path) {
    struct buf text = BUF_INIT;
    struct error err = {0};
    int r =
        strcmp(path, "-") == 0 ? buf_read_fd(&text, STDIN_FILENO, CASES_MAX) : buf_read_file(&text, path, CASES_MAX);
    if (r < 0) {
        buf_done(&text);
        error_set(&err, r, "case file \"%.400s\" cannot be read: %s; name a readable file of at most 64 MiB", path,
                  strerror(-r));
        return cli_fail(CLI_INVALID, &err);
    }
    struct check_cases_count count = check_cases_run(text.data ? text.data : "", text.len, path);
    buf_done(&text);
    if (count.passed + count.failed == 0) {
        error_set(&err, -EINVAL, "case file \"%.400s\" holds no case; write one JSON object a line", path);
        return cli_fail(CLI_INVALID, &err);
    }
    printf("%zu passed, %zu failed\n", count.passed, count.failed);
    return count.failed ? CLI_DENIED : CLI_OK;
}
