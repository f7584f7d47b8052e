// SPDX-License-Identifier: Apache-2.0
// Which policies a listener a port is enough for, and which ports those are.
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include "base/mem.h"
#include "policy/model.h"

#define NATIVE "{\"version\":1,\"allow\":["

static const struct {
    const char *text;
    int count; // -1: more is needed
    uint16_t ports[8];
    const char *rule; // that needs more
} rows[] = {
    {"{}", 1, {53}, NULL},
    {"{\"network\":\"none\"}", 1, {53}, NULL},
    {"{\"network\":\"all\"}", -1, {0}, "base allow"},
    {"{\"network\":{\"allow\":{\"hosts\":[\"a.org\"]}}}", 3, {53, 80, 443}, NULL},
    {"{\"network\":{\"allow\":{\"hosts\":[\"a.org:8443\",\"b.org\",\"203.0.113.9:99\"]}}}", 5, {53, 80, 99, 443, 8443}, NULL},
    {"{\"network\":{\"allow\":{\"hosts\":[\"localhost:8000\"]}},\"block_private_ips\":false}", 2, {53, 8000}, NULL},
    {"{\"egress\":{\"allow_cidrs\":[\"203.0.113.0/24\"]}}", -1, {0}, "allow any 203.0.113.0/24"},
    {NATIVE "{\"host\":\"*.a.org\",\"ports\":[\"8000-8002\"]}]}", 5, {53, 80, 8000, 8001, 8002}, NULL},
    {NATIVE "{\"host\":\"a.org\",\"protocol\":\"http\"}]}", 2, {53, 80}, NULL},
    {NATIVE "{\"host\":\"a.org\",\"protocol\":\"tcp\",\"ports\":[5432,53]}]}", 2, {53, 5432}, NULL},
    {NATIVE "{\"host\":\"a.org\"},{\"cidr\":\"203.0.113.0/24\",\"protocol\":\"tcp\",\"ports\":[22]}]}", -1, {0},
     "allow tcp 203.0.113.0/24:22"},
    {NATIVE "{\"cidr\":\"203.0.113.0/24\",\"protocol\":\"icmp\"}]}", -1, {0}, "allow icmp 203.0.113.0/24"},
    {"{\"version\":1,\"base\":\"allow\"}", -1, {0}, "base allow"},
    {"{\"dialect\":\"e2b\",\"network\":{\"allowOut\":[\"a.org\"],\"denyOut\":[\"0.0.0.0/0\"]}}", 3, {53, 80, 443}, NULL},
    {"{\"dialect\":\"e2b\",\"network\":{}}", -1, {0}, "base allow"},
};

static struct policy *compile(const char *text) {
    struct policy_model *model = NULL;
    struct policy *policy = NULL;
    struct policy_warnings warnings = {0};
    struct error err = {0};
    if (policy_read(text, strlen(text), "p", POLICY_DIALECT_AUTO, &model, &err) < 0 ||
        policy_compile(model, NULL, NULL, 0, 1, &policy, &warnings, &err) < 0)
        fail_msg("%s: %s", text, err.text);
    policy_warnings_done(&warnings);
    policy_model_free(model);
    return policy;
}

static void test_rows(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        struct policy *policy = compile(rows[i].text);
        uint16_t ports[8] = {0};
        uint32_t rule = POLICY_RULE_NONE;
        bool many = true;
        int count = policy_listener_ports(policy, ports, ARRAY_LENGTH(ports), &rule, &many);
        if (count != rows[i].count) fail_msg("%s: %d", rows[i].text, count);
        assert_false(many);
        if (count > 0) assert_memory_equal(ports, rows[i].ports, sizeof(ports));
        else assert_string_equal(policy_rule_info(policy, rule).text, rows[i].rule);
        policy_free(policy);
    }
}

// One port more than there is room for is refused by the entry that brings it, not cut.
static void test_too_many(void **state) {
    (void)state;
    struct policy *policy = compile(NATIVE "{\"host\":\"a.org\"},{\"host\":\"b.org\",\"ports\":[\"1000-1004\"]}]}");
    uint16_t ports[9];
    uint32_t rule = POLICY_RULE_NONE;
    bool many = false;
    assert_int_equal(policy_listener_ports(policy, ports, 8, &rule, &many), 8);
    assert_false(many);
    assert_int_equal(policy_listener_ports(policy, ports, 7, &rule, &many), -1);
    assert_true(many);
    assert_int_equal(rule, 1);
    policy_free(policy);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rows), cmocka_unit_test(test_too_many)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
