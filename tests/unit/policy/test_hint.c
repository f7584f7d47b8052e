// SPDX-License-Identifier: Apache-2.0
// Every hint does what it says: each of a grid of requests is judged under each of a grid of policies, the hint is added
// to the policy, and the same request is judged again.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/buf.h"
#include "base/mem.h"
#include "policy/model.h"

// Entries of `allow`, one a line.
static const struct grid_policy {
    const char *base;
    bool block_private;
    const char *allow;
} policies[] = {
    {"deny", true, ""},
    {"deny", false, ""},
    {"allow", true, ""},
    {"allow", false, ""},
    {"deny", true, "- {host: db.example, protocol: tcp, ports: [5432]}\n"},
    {"deny", true, "- {host: db.example}\n- {host: localhost}\n"},
    {"deny", false, "- {host: db.example, ports: [8443]}\n"},
    {"deny", true, "- {host: db.example, protocol: http}\n"},
    {"deny", true, "- {host: \"*.example\", protocol: http, ports: [8081]}\n"},
    {"deny", true, "- {host: localhost, protocol: http, ports: [9100]}\n"},
    {"deny", true, "- {cidr: 203.0.113.0/24, ports: [53]}\n"},
    {"deny", true, "- {cidr: 203.0.113.0/24, protocol: tcp, ports: [22]}\n- {cidr: 10.0.0.0/8, protocol: udp}\n"},
    {"deny", true, "- {host: 203.0.113.5}\n- {host: 10.0.0.1}\n"},
};

#define NAMES 4
static const char *const names[NAMES] = {NULL, "db.example", "other.example", "localhost"};
static const char *const addresses[] = {NULL,        "203.0.113.5",     "10.0.0.1",      "127.0.0.1", "::1",
                                        "127.0.0.9", "169.254.169.254", "fd00:ec2::254", "0.0.0.0",   "2001:db8::1"};
static const uint16_t ports[] = {22, 25, 53, 80, 443, 5432, 8081, 8443, 9100, 9418};

static struct policy *compile(const struct grid_policy *words, const char *hint) {
    struct buf text = BUF_INIT;
    struct policy_model *model = NULL;
    struct policy *policy = NULL;
    struct error err = {0};
    bool lifts = strncmp(hint, "--allow-private", 15) == 0;
    buf_printf(&text, "version: 1\nbase: %s\nblock_private: %s\nallow:\n%s", words->base,
               words->block_private && !lifts ? "true" : "false", words->allow);
    const char *brace = strchr(hint, '{');
    if (brace) buf_printf(&text, "- %.*s\n", (int)(strrchr(hint, '}') + 1 - brace), brace);
    else if (strncmp(hint, "--allow-cidr ", 13) == 0) buf_printf(&text, "- cidr: \"%s\"\n", hint + 13);
    else if (hint[0] && !lifts) buf_printf(&text, "- host: \"%s\"\n", hint + strlen("--allow "));
    if (!words->allow[0] && (!hint[0] || lifts)) buf_printf(&text, "  []\n");
    if (policy_read(text.data, text.len, "test", POLICY_DIALECT_AUTO, &model, &err) < 0 ||
        policy_compile(model, NULL, NULL, 0, 1, &policy, NULL, &err) < 0)
        fail_msg("%s: %s", text.data, err.text);
    buf_done(&text);
    policy_model_free(model);
    return policy;
}

static size_t hint_count;

static void try_hint(const struct grid_policy *words, const struct policy *policy, const struct policy_request *request) {
    char hint[POLICY_HINT_SIZE];
    struct policy_decision decision = policy_decide(policy, request);
    if (!policy_hint(policy, request, &decision, hint)[0]) return;
    assert_int_equal(decision.verdict, POLICY_DENY);
    if (strncmp(hint, "no entry for a name", 19) == 0) {
        assert_true(request->protocol == POLICY_UDP || request->protocol == POLICY_ICMP);
        return;
    }
    struct policy *wider = compile(words, hint);
    struct policy_decision after = policy_decide(wider, request);
    if (after.verdict == POLICY_DENY || (after.verdict == POLICY_INSPECT && request->app != POLICY_APP_UNKNOWN))
        fail_msg("%s/%s port %u bytes %d under %s %d %s: \"%s\" changes %s into %s", request->dialled, request->claimed,
                 request->port, (int)request->app, words->base, words->block_private, words->allow, hint,
                 policy_reason_name(decision.reason),
                 policy_reason_name(after.reason));
    policy_free(wider);
    hint_count++;
}

// Each protocol, and for TCP each kind of bytes.
static void try_kinds(const struct grid_policy *words, const struct policy *policy, struct policy_request request) {
    static const enum policy_app apps[] = {POLICY_APP_UNKNOWN, POLICY_APP_TLS, POLICY_APP_HTTP, POLICY_APP_OTHER};
    for (size_t i = 0; i < ARRAY_LENGTH(apps); i++) {
        struct policy_request tcp = request;
        tcp.protocol = POLICY_TCP;
        tcp.app = apps[i];
        try_hint(words, policy, &tcp);
        // The name as what a connection to the address claims.
        tcp.claimed = request.dialled;
        tcp.dialled = NULL;
        if (tcp.claimed && (tcp.app == POLICY_APP_TLS || tcp.app == POLICY_APP_HTTP)) try_hint(words, policy, &tcp);
    }
    request.protocol = POLICY_UDP;
    try_hint(words, policy, &request);
    request.port = 0;
    request.protocol = POLICY_ICMP;
    try_hint(words, policy, &request);
    request.protocol = POLICY_DNS; // what is denied has no answer to judge
    request.address = NULL;
    if (request.dialled) try_hint(words, policy, &request);
}

static void every_hint_helps(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(policies); i++) {
        struct policy *policy = compile(&policies[i], "");
        for (size_t name = 0; name < NAMES; name++) {
            for (size_t j = 0; j < ARRAY_LENGTH(addresses); j++) {
                struct addr addr;
                struct policy_request request = {.dialled = names[name], .address = addresses[j] ? &addr : NULL};
                if (addresses[j]) assert_int_equal(addr_parse(addresses[j], strlen(addresses[j]), &addr), 0);
                for (size_t k = 0; k < ARRAY_LENGTH(ports); k++) {
                    request.port = ports[k];
                    try_kinds(&policies[i], policy, request);
                }
            }
        }
        policy_free(policy);
    }
    assert_true(hint_count > 5000);
}

// The words, a row for each kind. Policy: an index above.
static void words(void **state) {
    (void)state;
    static const struct {
        size_t policy;
        enum policy_protocol protocol;
        enum policy_app app;
        const char *name, *address;
        uint16_t port;
        const char *hint;
    } rows[] = {
        {4, POLICY_TCP, POLICY_APP_UNKNOWN, "db.example", NULL, 22,
         "policy entry {host: db.example, protocol: tcp, ports: [22]}"},
        {4, POLICY_TCP, POLICY_APP_UNKNOWN, "db.example", NULL, 443,
         "policy entry {host: db.example, protocol: tcp, ports: [443]}"},
        {5, POLICY_TCP, POLICY_APP_UNKNOWN, "db.example", NULL, 9418,
         "policy entry {host: db.example, protocol: tcp, ports: [9418]}"},
        {5, POLICY_TCP, POLICY_APP_UNKNOWN, "db.example", NULL, 8443, "--allow db.example:8443"},
        {7, POLICY_TCP, POLICY_APP_OTHER, "db.example", NULL, 80,
         "policy entry {host: db.example, protocol: tcp, ports: [80]}"},
        {9, POLICY_TCP, POLICY_APP_HTTP, "localhost", "127.0.0.1", 9100,
         "policy entry {host: localhost, protocol: http, ports: [9100], private: true}"},
        {5, POLICY_TCP, POLICY_APP_OTHER, "db.example", "10.0.0.1", 22,
         "policy entry {host: db.example, protocol: tcp, ports: [22], private: true}"},
        {5, POLICY_TCP, POLICY_APP_TLS, "db.example", "127.0.0.1", 443, ""},
        {10, POLICY_TCP, POLICY_APP_UNKNOWN, NULL, "203.0.113.5", 22,
         "policy entry {cidr: \"203.0.113.5\", protocol: tcp, ports: [22]}"},
        {0, POLICY_TCP, POLICY_APP_HTTP, NULL, "169.254.169.254", 80,
         "policy entry {cidr: \"169.254.169.254\", protocol: tcp, ports: [80]} (cloud metadata: opens the machine's "
         "credentials)"},
        {5, POLICY_TCP, POLICY_APP_TLS, "db.example", "fd00:ec2::254", 443,
         "--allow-private (cloud metadata: opens the machine's credentials)"},
        {0, POLICY_UDP, 0, "db.example", NULL, 53,
         "no entry for a name opens UDP; use its address and policy entry {cidr: ADDRESS, protocol: udp, ports: [53]}, or "
         "--network all"},
        {2, POLICY_ICMP, 0, "db.example", NULL, 0,
         "no entry for a name opens ICMP; use its address and policy entry {cidr: ADDRESS, protocol: icmp}"},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        struct addr addr;
        char hint[POLICY_HINT_SIZE];
        struct policy *policy = compile(&policies[rows[i].policy], "");
        struct policy_request request = {.protocol = rows[i].protocol, .app = rows[i].app, .dialled = rows[i].name,
                                         .address = rows[i].address ? &addr : NULL, .port = rows[i].port};
        if (rows[i].address) assert_int_equal(addr_parse(rows[i].address, strlen(rows[i].address), &addr), 0);
        struct policy_decision decision = policy_decide(policy, &request);
        assert_string_equal(policy_hint(policy, &request, &decision, hint), rows[i].hint);
        policy_free(policy);
    }
}

// Which limit, and its value as a policy writes it.
static void limits(void **state) {
    (void)state;
    static const char text[] = "version: 1\nallow: []\nlimits: {connections: 7, connections_per_second: 9, bandwidth: %s, bytes_out: %s}\n";
    static const struct {
        const char *bandwidth, *bytes_out;
    } rows[] = {{"2gbit", "3GiB"}, {"1500mbit", "1500MiB"}, {"8kbit", "5KiB"}};
    static const char *const others[] = {"", "{connections: 7}", "{connections_per_second: 9}"};
    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        struct policy_model *model = NULL;
        struct policy *policy = NULL;
        struct error err = {0};
        char yaml[256], hint[POLICY_HINT_SIZE];
        struct policy_decision decision = {.verdict = POLICY_DENY, .reason = POLICY_LIMIT_EXCEEDED, .rule = POLICY_RULE_NONE};
        struct policy_request request = {.dialled = "host.example"};
        snprintf(yaml, sizeof(yaml), text, rows[i].bandwidth, rows[i].bytes_out);
        assert_int_equal(policy_read(yaml, strlen(yaml), "test", POLICY_DIALECT_NATIVE, &model, &err), 0);
        assert_int_equal(policy_compile(model, NULL, NULL, 0, 1, &policy, NULL, &err), 0);
        for (int limit = POLICY_LIMIT_NONE; limit < POLICY_LIMIT_COUNT; limit++) {
            decision.limit = (enum policy_limit)limit;
            policy_hint(policy, &request, &decision, hint);
            const char *value = limit == POLICY_LIMIT_BANDWIDTH ? rows[i].bandwidth :
                                limit == POLICY_LIMIT_BYTES_OUT ? rows[i].bytes_out : others[limit];
            assert_true(limit == POLICY_LIMIT_NONE ? !hint[0] : strstr(hint, value) != NULL);
            assert_true(limit == POLICY_LIMIT_NONE || strstr(hint, policy_limit_name(decision.limit)));
        }
        policy_free(policy);
        policy_model_free(model);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_hint_helps), cmocka_unit_test(words), cmocka_unit_test(limits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
