// SPDX-License-Identifier: Apache-2.0
// The node's configuration: file, variables over it, and what is refused.
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/mem.h"
#include "policy/model.h"

static const char config[] =
    "network:\n  egress:\n    always_denied: [10.0.0.0/8, \"*.Corp.example\", a.org, fd00::1]\n    always_allowed: "
    "[10.1.0.0/16]\n"
    "    deny_own_addresses: true\n    own_addresses: [203.0.113.7]\n    nat64_prefixes: [\"2001:db8:64::/96\"]\n"
    "  dns:\n    servers: [\"1.1.1.1:53\", \"[2001:db8::53]:5353\", 9.9.9.9]\n    pool4: 198.18.0.0/16\n    pool6: "
    "fd00:5::/64\n";

static void assert_prefix(const struct addr_prefix *prefix, const char *text) {
    char buf[ADDR_TEXT_SIZE];
    assert_string_equal(addr_prefix_format(prefix, buf), text);
}

static void test_file(void **state) {
    (void)state;
    struct policy_node node;
    struct error err = {0};
    assert_int_equal(policy_node_read(config, strlen(config), "n.yaml", NULL, &node, &err), 0);
    assert_true(node.has_always_denied && node.has_deny_own_addresses && node.deny_own_addresses);
    assert_int_equal(node.always_denied_count, 2);
    assert_prefix(&node.always_denied[0], "10.0.0.0/8");
    assert_prefix(&node.always_denied[1], "fd00::1");
    assert_int_equal(node.always_denied_name_count, 2);
    assert_string_equal(node.always_denied_names[0], "*.corp.example");
    assert_string_equal(node.always_denied_names[1], "a.org");
    assert_int_equal(node.always_allowed_count, 1);
    assert_int_equal(node.own_address_count, 1);
    assert_int_equal(node.nat64_count, 1);
    assert_int_equal(node.dns_server_count, 3);
    assert_string_equal(node.dns_servers[1], "[2001:db8::53]:5353");
    assert_prefix(&node.pool4, "198.18.0.0/16");
    assert_prefix(&node.pool6, "fd00:5::/64");
    assert_string_equal(node.source, "n.yaml");
    policy_node_done(&node);
}

static void test_what_is_left_open(void **state) {
    (void)state;
    static const struct {
        const char *text;
        size_t count;
        const char *open; // what its text begins with
    } rows[] = {
        {"network: {egress: {always_denied: []}}", 24, "0.0.0.0/8, 10.0.0.0/8, 100.64.0.0/10, "},
        {"network: {egress: {always_denied: [\"*.corp.example\"]}}", 24, "0.0.0.0/8, "},
        {"network: {egress: {always_denied: [0.0.0.0/0]}}", 12, "::, ::1, fc00::/7, fe80::/10, "},
        {"network: {egress: {always_denied: [0.0.0.0/1, 128.0.0.0/1, \"::/0\"]}}", 0, ""},
        {"network: {egress: {always_denied: [0.0.0.0/5, 10.0.0.0/9, 64.0.0.0/2, 128.0.0.0/1, \"::/0\"]}}", 1, "10.0.0.0/8"},
        {"network: {egress: {always_denied: [0.0.0.0/5, 10.0.0.0/9, 64.0.0.0/2, 128.0.0.0/1, \"::/0\"], "
         "always_allowed: [10.128.0.0/9]}}", 0, ""},
        {"network: {egress: {deny_own_addresses: false}}", 0, ""}, // the default stands
    };
    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        struct policy_node node;
        struct error err = {0};
        char open[POLICY_GUARDRAIL_SIZE];
        assert_int_equal(policy_node_read(rows[i].text, strlen(rows[i].text), "n.yaml", NULL, &node, &err), 0);
        assert_int_equal(policy_guardrail_open(&node, open), rows[i].count);
        assert_memory_equal(open, rows[i].open, strlen(rows[i].open) + (rows[i].count < 3));
        assert_true(rows[i].count < 24 || strcmp(open + strlen(open) - strlen(", 5f00::/16"), ", 5f00::/16") == 0); // not cut
        policy_node_done(&node);
    }
}

static void test_absent(void **state) {
    (void)state;
    static const char *const texts[] = {"", "# nothing set\n", "{}", "network: {}", "network: {egress: {}}"};
    for (size_t i = 0; i < ARRAY_LENGTH(texts); i++) {
        struct policy_node node;
        struct error err = {0};
        assert_int_equal(policy_node_read(texts[i], strlen(texts[i]), "n.yaml", NULL, &node, &err), 0);
        assert_false(node.has_always_denied || node.has_deny_own_addresses);
        assert_int_equal(node.pool4.addr.family, ADDR_NONE);
        policy_node_done(&node);
    }
}

static void test_variables(void **state) {
    (void)state;
    char *environment[] = {"PATH=/bin",
                           "PENSTOCK_NETWORK_EGRESS_ALWAYS_DENIED=192.0.2.1, b.org",
                           "PENSTOCK_TOKEN=x",
                           "PENSTOCK_NETWORK_EGRESS_DENY_OWN_ADDRESSES=false",
                           "PENSTOCK_NETWORK_DNS_SERVERS=",
                           NULL};
    struct policy_node node;
    struct error err = {0};
    assert_int_equal(policy_node_read(config, strlen(config), "n.yaml", environment, &node, &err), 0);
    assert_int_equal(node.always_denied_count, 1); // the variable replaces the list
    assert_prefix(&node.always_denied[0], "192.0.2.1");
    assert_int_equal(node.always_denied_name_count, 1);
    assert_string_equal(node.always_denied_names[0], "b.org");
    assert_true(node.has_deny_own_addresses && !node.deny_own_addresses);
    assert_int_equal(node.dns_server_count, 0);
    assert_int_equal(node.always_allowed_count, 1); // untouched
    policy_node_done(&node);
    assert_int_equal(policy_node_read(NULL, 0, NULL, environment, &node, &err), 0);
    assert_string_equal(node.source, "environment");
    policy_node_done(&node);
}

static void assert_refused(const char *text, const char *says) {
    struct policy_node node;
    struct error err = {0};
    assert_int_equal(policy_node_read(text, strlen(text), "n.yaml", NULL, &node, &err), -EINVAL);
    if (!strstr(err.text, says)) fail_msg("expected \"%s\" in \"%s\"", says, err.text);
}

static void test_refused(void **state) {
    (void)state;
    assert_refused("netwrok: {}", "n.yaml:1: unknown key \"netwrok\" in the configuration; did you mean \"network\"?");
    assert_refused("network:\n  egress:\n    always_deny: []\n",
                   "n.yaml:3: unknown key \"always_deny\" in network.egress; did you mean \"always_denied\"?");
    assert_refused("network: {dns: {always_denied: []}}", "unknown key \"always_denied\" in network.dns");
    assert_refused("network: {egress: {always_denied: 10.0.0.0/8}}", "network.egress.always_denied must be a list");
    assert_refused("network: {egress: {always_denied: }}", "must be a list, not nothing");
    assert_refused("network: {egress: {always_denied: [10.0.0.1/8]}}", "write \"10.0.0.0/8\"");
    assert_refused("network: {egress: {always_denied: [\"a.org:443\"]}}", "\"a.org:443\" has a port");
    assert_refused("network: {egress: {always_denied: [\"*\"]}}", "\"*\"");
    assert_refused("network: {egress: {always_allowed: [\"a b\"]}}", "a b");
    assert_refused("network: {egress: {deny_own_addresses: \"true\"}}", "must be true or false");
    assert_refused("network: {egress: {nat64_prefixes: [\"2001:db8::/80\"]}}", "not a NAT64 prefix");
    assert_refused("network: {egress: {nat64_prefixes: [10.0.0.0/32]}}", "not a NAT64 prefix");
    assert_refused("network: {egress: {own_addresses: [10.0.0.0/8]}}", "\"10.0.0.0/8\" is not an IP address");
    assert_refused("network: {dns: {servers: [dns.example]}}", "\"dns.example\" is not the address of a DNS server");
    assert_refused("network: {dns: {pool4: 198.18.0.0/24}}", "\"198.18.0.0/24\" is not a pool");
    assert_refused("network: {dns: {pool4: \"fd00::/64\"}}", "is not a pool");
    assert_refused("[]", "must be a mapping");
}

static void test_variables_refused(void **state) {
    (void)state;
    static const struct {
        const char *variable, *says;
    } rows[] = {
        {"PENSTOCK_NETWORK_EGRESS_ALWAYS_DENY=10.0.0.0/8", "unknown variable PENSTOCK_NETWORK_EGRESS_ALWAYS_DENY"},
        {"PENSTOCK_NETWORK_EGRESS_ALWAYS_DENIED=10.0.0.0/33", "\"10.0.0.0/33\""},
        {"PENSTOCK_NETWORK_EGRESS_ALWAYS_DENIED=a.org,,b.org", "\"\" is empty"},
        {"PENSTOCK_NETWORK_EGRESS_DENY_OWN_ADDRESSES=1", "\"1\" is neither true nor false"},
        {"PENSTOCK_IMAGES_LOCAL=yes", "\"yes\" is neither true nor false"},
        {"PENSTOCK_LIMITS_BANDWIDTH=50", "\"50\" is not a whole number from 1 with a unit (kbit, mbit or gbit)"},
        {"PENSTOCK_LIMITS_BYTES_OUT=50mbit", "\"50mbit\" is not a whole number from 1 with a unit (KiB, MiB or GiB)"},
        {"PENSTOCK_NODE_MAX_MEMORY_MB=0", "\"0\" is not a number from "},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        char *variable = strdup(rows[i].variable);
        char *environment[] = {variable, NULL};
        struct policy_node node;
        struct error err = {0};
        assert_int_equal(policy_node_read(NULL, 0, NULL, environment, &node, &err), -EINVAL);
        if (!strstr(err.text, rows[i].says)) fail_msg("expected \"%s\" in \"%s\"", rows[i].says, err.text);
        free(variable);
    }
}

static void test_help(void **state) {
    (void)state;
    char line[POLICY_NODE_HELP_SIZE];
    size_t count = 0, variables = 0;
    for (; policy_node_help(count, line); count++) variables += strstr(line, "variable: PENSTOCK_") != NULL;
    assert_true(variables >= 15);
    assert_int_equal(count, 3 * variables + 2); // three lines a setting, and two of the rules
}

static struct policy *compile(struct policy_model *model, const struct policy_node *node, struct error *err) {
    struct policy *policy = NULL;
    struct policy_warnings warnings = {0};
    policy_compile(model, node, NULL, 0, 1, &policy, &warnings, err);
    policy_warnings_done(&warnings);
    return policy;
}

static void test_numbers(void **state) {
    (void)state;
    static const char text[] = "node: {sandboxes: 5, memory_mb: 256, max_cpu_count: 2}\nlimits: {connections: 9, bytes_out: 1GiB}\n"
                               "images: {local: true}\n";
    struct policy_node node;
    struct error err = {0};
    assert_int_equal(policy_node_read(text, strlen(text), "n.yaml", NULL, &node, &err), 0);
    assert_true(node.max_sandboxes == 5 && node.memory_mb == 256 && node.max_cpu_count == 2 && node.max_connections == 9);
    assert_true(node.max_bytes_out == 1 << 30 && node.local_images);
    policy_node_done(&node);
    static const char bad[] = "node:\n  sandboxes: many\n";
    assert_int_equal(policy_node_read(bad, strlen(bad), "n.yaml", NULL, &node, &err), -EINVAL);
    assert_non_null(strstr(err.text, "n.yaml:2: node.sandboxes"));
}

// The lower of the two holds.
static void test_limits_of_every_sandbox(void **state) {
    (void)state;
    static const char text[] = "version: 1\nbase: allow\nlimits: {connections: 20, bandwidth: 80mbit}\n";
    char *environment[] = {"PENSTOCK_LIMITS_CONNECTIONS=8", "PENSTOCK_LIMITS_CONNECTIONS_PER_SECOND=5",
                           "PENSTOCK_LIMITS_BANDWIDTH=1gbit", "PENSTOCK_LIMITS_BYTES_OUT=3MiB", NULL};
    struct policy_node node;
    struct policy_model *model;
    struct error err = {0};
    assert_int_equal(policy_node_read(NULL, 0, NULL, environment, &node, &err), 0);
    assert_int_equal(policy_read(text, strlen(text), "p.yaml", POLICY_DIALECT_AUTO, &model, &err), 0);
    struct policy *policy = compile(model, &node, &err);
    assert_non_null(policy);
    struct policy_facts facts = policy_facts(policy);
    assert_int_equal(facts.max_connections, 8);
    assert_int_equal(facts.connection_rate, 5);
    assert_int_equal(facts.bandwidth_bytes, 10000000);
    assert_int_equal(facts.max_bytes_out, 3 << 20);
    policy_free(policy);
    policy_model_free(model);
    policy_node_done(&node);
}

// An operator may close what a strict policy has opened: the policy in force is not to blame.
static void test_a_guardrail_over_a_known_policy(void **state) {
    (void)state;
    static const char text[] = "version: 1\nallow:\n  - cidr: 10.1.0.0/16\n  - host: a.example\n";
    char *environment[] = {"PENSTOCK_NETWORK_EGRESS_ALWAYS_DENIED=10.0.0.0/8,a.example", NULL};
    struct policy_node node;
    struct policy_model *model;
    struct error err = {0};
    assert_int_equal(policy_node_read(NULL, 0, NULL, environment, &node, &err), 0);
    assert_int_equal(policy_read(text, strlen(text), "p.yaml", POLICY_DIALECT_AUTO, &model, &err), 0);
    assert_null(compile(model, &node, &err));
    model->known = true;
    struct policy *policy = compile(model, &node, &err);
    assert_non_null(policy);
    const struct addr address = addr_ipv4(0x0a010101);
    const struct policy_request request = {.protocol = POLICY_TCP, .address = &address, .port = 80};
    assert_int_equal(policy_decide(policy, &request).reason, POLICY_NODE_DENIED);
    policy_free(policy);
    policy_model_free(model);
    policy_node_done(&node);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_file),
        cmocka_unit_test(test_what_is_left_open),
        cmocka_unit_test(test_absent),
        cmocka_unit_test(test_variables),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_variables_refused),
        cmocka_unit_test(test_help),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_limits_of_every_sandbox),
        cmocka_unit_test(test_a_guardrail_over_a_known_policy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
