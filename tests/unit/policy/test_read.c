// SPDX-License-Identifier: Apache-2.0
// The readers of the three dialects: what the model holds, and what is refused with which words.
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/mem.h"
#include "policy/model.h"

static struct policy_model *read_ok(const char *text, enum policy_dialect dialect) {
    struct policy_model *model = NULL;
    struct error err = {0};
    int r = policy_read(text, strlen(text), "p.yaml", dialect, &model, &err);
    if (r != 0) fail_msg("%s: %s", text, err.text);
    return model;
}

static void read_fails_len(const char *text, size_t len, const char *says) {
    struct policy_model *model = NULL;
    struct error err = {0};
    assert_int_equal(policy_read(text, len, "p.yaml", POLICY_DIALECT_AUTO, &model, &err), -EINVAL);
    assert_null(model);
    if (!strstr(err.text, says)) fail_msg("%.200s: expected \"%s\" in \"%s\"", text, says, err.text);
    assert_null(strchr(err.text, '\n'));
}

static void read_fails(const char *text, const char *says) { read_fails_len(text, strlen(text), says); }

static void assert_entry(const struct policy_entry *entry, enum policy_entry_kind kind,
                         enum policy_entry_protocol protocol, const char *name, uint16_t first, uint16_t last) {
    assert_int_equal(entry->kind, kind);
    assert_int_equal(entry->protocol, protocol);
    assert_string_equal(entry->name, name);
    assert_int_equal(entry->port_count, first ? 1 : 0);
    if (!first) return;
    assert_int_equal(entry->ports[0].first, first);
    assert_int_equal(entry->ports[0].last, last);
}

static void assert_prefix(const struct addr_prefix *prefix, const char *text) {
    char buf[ADDR_TEXT_SIZE];
    assert_string_equal(addr_prefix_format(prefix, buf), text);
}

static void test_network(void **state) {
    (void)state;
    struct policy_model *model =
        read_ok("network:\n  allow:\n    hosts:\n      - PyPI.org\n      - \"[2001:db8::1]:8443\"\n"
                "      - pypi.org:443\n      - pypi.org:8443\nblock_private_ips: false\ntype: bashkit\n",
                POLICY_DIALECT_AUTO);
    assert_int_equal(model->dialect, POLICY_DIALECT_NETWORK);
    assert_true(model->has_network && model->has_type && !model->base_allow && !model->block_private &&
                !model->has_egress);
    assert_int_equal(model->network, POLICY_NETWORK_ALLOW);
    assert_int_equal(model->type, POLICY_TYPE_BASHKIT);
    assert_int_equal(model->allow_count, 3); // pypi.org and pypi.org:443 are one
    assert_entry(&model->allow[0], POLICY_ENTRY_NAME, POLICY_ENTRY_HTTPS, "pypi.org", 443, 443);
    assert_entry(&model->allow[1], POLICY_ENTRY_ADDRESS, POLICY_ENTRY_HTTPS, "", 8443, 8443);
    assert_prefix(&model->allow[1].prefix, "2001:db8::1");
    assert_entry(&model->allow[2], POLICY_ENTRY_NAME, POLICY_ENTRY_HTTPS, "pypi.org", 8443, 8443);
    assert_string_equal(model->allow[0].source, "p.yaml:4");
    assert_string_equal(model->allow[2].source, "p.yaml:7");
    assert_string_equal(model->base_source, "p.yaml:1");
    policy_model_free(model);

    model = read_ok("{}", POLICY_DIALECT_AUTO);
    assert_true(!model->has_network && !model->base_allow && model->block_private && !model->has_type);
    policy_model_free(model);
    model = read_ok("{\"network\": \"all\"}", POLICY_DIALECT_AUTO);
    assert_true(model->base_allow && model->network == POLICY_NETWORK_ALL && model->block_private);
    policy_model_free(model);
    model = read_ok("{\"egress\":{\"allow_cidrs\":[\"203.0.113.10\",\"2001:db8::/32\",\"203.0.113.10/32\"]}}",
                    POLICY_DIALECT_AUTO);
    assert_true(model->has_egress && !model->has_network);
    assert_int_equal(model->allow_count, 2);
    assert_entry(&model->allow[0], POLICY_ENTRY_CIDR, POLICY_ENTRY_ANY, "", 0, 0);
    assert_prefix(&model->allow[1].prefix, "2001:db8::/32");
    policy_model_free(model);
}

static void test_bindings(void **state) {
    (void)state;
    struct policy_model *model = read_ok(
        "network: all\nheader_bindings:\n  - github: {repos: [Owner/Repo.git, owner/repo, a/b]}\n  - mistral_api: {}\n"
        "  - header: {host: B.org, name: X-K, value: 'Bearer {secret}', secret: 'env:K'}\n",
        POLICY_DIALECT_AUTO);
    assert_int_equal(model->binding_count, 3);
    assert_int_equal(model->bindings[0].kind, POLICY_BINDING_GITHUB);
    assert_int_equal(model->bindings[0].repo_count, 2);
    assert_string_equal(model->bindings[0].repos[0], "owner/repo");
    assert_null(model->bindings[0].secret);
    assert_string_equal(model->bindings[2].host, "b.org");
    assert_string_equal(model->bindings[2].header, "X-K");
    assert_string_equal(model->bindings[2].value, "Bearer {secret}");
    assert_string_equal(model->bindings[2].secret, "env:K");
    assert_string_equal(model->bindings[2].source, "p.yaml:5");
    policy_model_free(model);
    read_fails("network: all\nheader_bindings:\n  - github: {repos: [o]}\n", "p.yaml:3: repository \"o\"");
    read_fails("{\"header_bindings\":[{\"header\":{\"host\":\"a.org\",\"name\":\"X\",\"value\":\"a\\r\\nb\",\"secret\":"
               "\"env:K\"}}]}",
               "the value has a line break, NUL or other control byte (\"\\x0d\", at byte 2)");
    read_fails("{\"header_bindings\":[{\"github\":{}},{\"github\":{}}]}",
               "two bindings set header Authorization for github.com");
    // A secret pasted by mistake is not repeated.
    struct error err = {0};
    const char *text =
        "{\"header_bindings\":[{\"header\":{\"host\":\"a.org\",\"name\":\"X\",\"secret\":\"ghp_0123456789\"}}]}";
    assert_int_equal(policy_read(text, strlen(text), NULL, POLICY_DIALECT_AUTO, &model, &err), -EINVAL);
    assert_null(strstr(err.text, "ghp_"));
}

static void test_e2b(void **state) {
    (void)state;
    struct policy_model *model =
        read_ok("{\"dialect\":\"e2b\",\"network\":{\"allowOut\":[\"8.8.8.8/24\",\"8.8.8.0/24\",\"*.A.org\",\"*\"],"
                "\"denyOut\":[\"0.0.0.0/0\"],\"allowPublicTraffic\":false,\"maskRequestHost\":\"localhost:${PORT}\"},"
                "\"allowInternetAccess\":false}",
                POLICY_DIALECT_AUTO);
    assert_int_equal(model->dialect, POLICY_DIALECT_E2B);
    assert_true(!model->base_allow && !model->block_private && !model->allow_public_traffic);
    assert_string_equal(model->mask_request_host, "localhost:${PORT}");
    assert_int_equal(model->allow_count, 6);
    assert_entry(&model->allow[0], POLICY_ENTRY_CIDR, POLICY_ENTRY_ANY, "", 0, 0);
    assert_prefix(&model->allow[0].prefix, "8.8.8.0/24");
    assert_entry(&model->allow[1], POLICY_ENTRY_CIDR, POLICY_ENTRY_ICMP, "", 0, 0);
    assert_entry(&model->allow[2], POLICY_ENTRY_WILDCARD, POLICY_ENTRY_HTTP, "a.org", 80, 80);
    assert_entry(&model->allow[3], POLICY_ENTRY_WILDCARD, POLICY_ENTRY_HTTPS, "a.org", 443, 443);
    assert_entry(&model->allow[4], POLICY_ENTRY_WILDCARD, POLICY_ENTRY_HTTP, "", 80, 80);
    assert_int_equal(model->deny_count, 1);
    assert_true(model->deny[0].both_families && !model->allow[0].both_families);
    policy_model_free(model);
    model = read_ok("{\"network\":{\"rules\":{\"a.org\":[{\"transform\":{\"headers\":{\"X-A\":\"b\"}}}]}}}",
                    POLICY_DIALECT_E2B);
    assert_true(model->base_allow && model->allow_public_traffic);
    assert_int_equal(model->binding_count, 1);
    assert_string_equal(model->bindings[0].literal, "b");
    assert_string_equal(policy_binding_secret(&model->bindings[0]), "env:=a.org/X-A");
    policy_model_free(model);
    // Without a file name the texts are exactly those of the REST interface.
    struct error err = {0};
    const char *text = "{\"network\":{\"allowOut\":[\"a.org\"]}}";
    assert_int_equal(policy_read(text, strlen(text), NULL, POLICY_DIALECT_E2B, &model, &err), -EINVAL);
    assert_string_equal(err.text, "allowOut contains domains but denyOut is missing 0.0.0.0/0 (ALL_TRAFFIC)");
}

static const char native_text[] =
    "version: 1\nbase: deny\nallow:\n  - host: \"*.npmjs.org\"\n    ports: [443, \"8000-8010\"]\n"
    "  - {host: m.org, protocol: http}\n  - {host: db.org, protocol: tcp, ports: [5432], private: true}\n"
    "  - {cidr: 203.0.113.0/24, ports: [53, 123]}\n  - cidr: 10.0.0.0/8\n    protocol: icmp\n"
    "deny:\n  - cidr: 198.51.100.7/32\n"
    "limits: {connections: 7, connections_per_second: 9, bandwidth: 50mbit, bytes_out: 2GiB}\ndns: {names: real}\n";

static void test_native(void **state) {
    (void)state;
    struct policy_model *model = read_ok(native_text, POLICY_DIALECT_AUTO);
    assert_int_equal(model->dialect, POLICY_DIALECT_NATIVE);
    assert_int_equal(model->network, POLICY_NETWORK_NATIVE);
    assert_true(!model->base_allow && model->block_private && model->has_dns_names);
    assert_int_equal(model->dns_names, POLICY_DNS_REAL);
    assert_int_equal(model->max_connections, 7);
    assert_int_equal(model->connection_rate, 9);
    assert_int_equal(model->bandwidth_bytes, 6250000);
    assert_int_equal(model->max_bytes_out, (uint64_t)2 << 30);
    assert_int_equal(model->allow_count, 5);
    assert_int_equal(model->allow[0].kind, POLICY_ENTRY_WILDCARD);
    assert_string_equal(model->allow[0].name, "npmjs.org");
    assert_int_equal(model->allow[0].port_count, 2);
    assert_int_equal(model->allow[0].ports[1].first, 8000);
    assert_int_equal(model->allow[0].ports[1].last, 8010);
    assert_entry(&model->allow[1], POLICY_ENTRY_NAME, POLICY_ENTRY_HTTP, "m.org", 80, 80);
    assert_entry(&model->allow[2], POLICY_ENTRY_NAME, POLICY_ENTRY_TCP, "db.org", 5432, 5432);
    assert_true(model->allow[2].private_ok && !model->allow[1].private_ok);
    assert_int_equal(model->allow[3].port_count, 2);
    assert_entry(&model->allow[4], POLICY_ENTRY_CIDR, POLICY_ENTRY_ICMP, "", 0, 0);
    assert_int_equal(model->deny_count, 1);
    assert_string_equal(model->deny[0].source, "p.yaml:12");
    policy_model_free(model);
    model = read_ok("version: 1", POLICY_DIALECT_AUTO);
    assert_int_equal(model->max_connections, 256);
    assert_true(model->bandwidth_bytes == 0 && model->max_bytes_out == 0);
    policy_model_free(model);
}

static void test_positions(void **state) {
    (void)state;
    read_fails("version: 1\nbase: deny\n\nalow: []\n",
               "p.yaml:4: unknown key \"alow\" in the policy; did you mean \"allow\"?");
    read_fails("version: 1\nallow:\n  - host: a.org\n  - host: b.org\n    port: 1\n",
               "p.yaml:5: unknown key \"port\" in an entry of allow; did you mean \"ports\"?");
    read_fails("network:\n  allow:\n    hosts:\n    - a.org\n    - https://b.org\n",
               "p.yaml:5: \"https://b.org\" has a scheme; write \"b.org\"");
    read_fails("{\n\"network\": {\"allow\":\n {\"hosts\": [\"h:0\"]}}}", "p.yaml:3: \"h:0\" has a bad port");
    read_fails("version: 1\nlimits:\n  bandwidth: 50\n",
               "p.yaml:3: limits.bandwidth must be a whole number from 1 with a unit (kbit, mbit or gbit)");
    read_fails("network: {qqqqqqq: 1}", "the keys are: allow");
}

// A text of one dialect that is read in another is told so.
static void test_wrong_dialect(void **state) {
    (void)state;
    static const char *const e2b[] = {
        "{\"network\": {\"allowOut\": [\"a.org\"]}}", "network: {denyOut: []}", "network: {allowPublicTraffic: true}",
        "network: {maskRequestHost: a.org}", "{\"allow_internet_access\": false}", "allowInternetAccess: false"};
    static const char *const native[] = {"allow: [{host: a.org}]", "deny: []", "base: allow", "credentials: []",
                                         "limits: {connections: 1}", "dns: {names: real}"};
    for (size_t i = 0; i < ARRAY_LENGTH(e2b); i++)
        read_fails(e2b[i], "is a key of the e2b dialect, but the text is read in the network dialect; add --dialect e2b, or "
                           "\"dialect\": \"e2b\"");
    for (size_t i = 0; i < ARRAY_LENGTH(native); i++)
        read_fails(native[i], "is a key of the native dialect, but the text is read in the network dialect; add version: 1");
    read_fails("version: \"1\"\n", "p.yaml:1: version is the number 1, not the text \"1\"; write it without quotes");
    read_fails("version: 2\n", "this program reads version: 1");
}

static void test_yaml(void **state) {
    (void)state;
    read_fails("", "the text is empty");
    read_fails("# only a comment\n", "the text is empty");
    read_fails("null", "a policy must be a mapping");
    read_fails("[]", "a policy must be a mapping");
    read_fails("none", "a policy must be a mapping");
    read_fails("{\"network\": \"none\"", "not valid YAML or JSON");
    read_fails("network: none\nnetwork: all\n", "p.yaml:2: key \"network\" is given twice");
    read_fails("{\"a\\u0000\":1,\"a\\u0000\":2}", "key \"a\\x00\" is given twice");
    read_fails("a: &x 1\n", "anchors");
    read_fails("a: *x\n", "aliases");
    read_fails("a: &x [1]\nb: [*x, *x]\n", "anchors");
    read_fails("network: !!str none\n", "tags");
    read_fails("network: ! none\n", "tags");
    read_fails("network: !foo {}\n", "tags");
    read_fails("? [a]\n: b\n", "write a word");
    read_fails("network: none\n---\nnetwork: all\n", "second document");
    read_fails("[[[[[[[[[[[[[[[[[[[[", "nested too deep");
    read_fails_len("network: none\0all", 17, "not valid YAML or JSON");
    read_fails("version: 1\nallow:\n- host: @python\n", "a value that begins with @ has to be in quotes: \"@python\"");
    read_fails("version: 1\nallow:\n- host: *.a.org\n", "a value that begins with * has to be in quotes");
    read_fails("\xff\xfe{}", "not valid YAML or JSON"); // not taken for UTF-16
    struct policy_model *model = read_ok("\xef\xbb\xbfnetwork: all", POLICY_DIALECT_AUTO);
    assert_true(model->base_allow);
    policy_model_free(model);
}

static void test_yaml_types(void **state) {
    (void)state;
    read_fails("block_private_ips: yes", "block_private_ips must be true or false");
    read_fails("block_private_ips: \"true\"", "block_private_ips must be true or false");
    read_fails("block_private_ips: True", "block_private_ips must be true or false");
    read_fails("{\"network\":{\"allow\":{\"hosts\":[null]}}}", "expected a string, not null");
    read_fails("{\"network\":{\"allow\":{\"hosts\":[true]}}}", "expected a string, not the bare \"true\"");
    read_fails("network: {allow: {hosts: [127.1]}}", "\"127.1\"");
    read_fails("network: {allow: {hosts: [{a: b}]}}", "expected a string, not a mapping");
    read_fails("network: {allow: {hosts: [[a]]}}", "expected a string, not a list");
    read_fails("network: {allow: {hosts: a.org}}", "must be a list, not \"a.org\"");
    read_fails("network:\n", "network must be none, all or");
    // NUL reaches validation and is shown.
    read_fails("{\"network\":{\"allow\":{\"hosts\":[\"a.org\\u0000.evil.com\"]}}}",
               "\"a.org\\x00.evil.com\" has a control byte");
    read_fails("{\"network\":\"none\\u0000\"}", "not \"none\\x00\"");
    struct policy_model *model =
        read_ok("network: {allow: {hosts: [no, 1a.org, \"2001:db8::1\", 203.0.113.1]}}", POLICY_DIALECT_AUTO);
    assert_string_equal(model->allow[0].name, "no");
    policy_model_free(model);
}

static void test_limits(void **state) {
    (void)state;
    size_t len = ((size_t)1 << 20) + 1;
    char *text = malloc(len + 1);
    assert_non_null(text);
    memset(text, ' ', len);
    text[len] = '\0';
    memcpy(text, "network: all", 12);
    read_fails_len(text, len, "larger than 1 MiB");
    struct policy_model *model = NULL;
    assert_int_equal(policy_read(text, len - 1, "p.yaml", POLICY_DIALECT_AUTO, &model, NULL), 0);
    policy_model_free(model);
    memset(text, '[', len - 1);
    read_fails_len(text, len - 1, "nested too deep");
    for (size_t i = 1; i + 1 < len; i += 2) memcpy(text + i, "1,", 2);
    read_fails_len(text, len - 1, "too many values");
    free(text);
}

static void test_many_duplicates(void **state) {
    (void)state;
    char *text = malloc(1 << 20);
    assert_non_null(text);
    size_t used = (size_t)snprintf(text, 1 << 20, "network: {allow: {hosts: [");
    for (int i = 0; i < 40000; i++) used += (size_t)snprintf(text + used, (1 << 20) - used, "n%d.example,", i % 20000);
    snprintf(text + used, (1 << 20) - used, "]}}");
    struct policy_model *model = read_ok(text, POLICY_DIALECT_AUTO);
    assert_int_equal(model->allow_count, 20000);
    assert_string_equal(model->allow[19999].name, "n19999.example");
    policy_model_free(model);
    free(text);
}

static void test_dialects(void **state) {
    (void)state;
    struct policy_model *model = read_ok("{\"version\":1,\"base\":\"allow\"}", POLICY_DIALECT_AUTO);
    assert_int_equal(model->dialect, POLICY_DIALECT_NATIVE);
    policy_model_free(model);
    model = read_ok("{\"dialect\":\"network\"}", POLICY_DIALECT_E2B); // what is said beside the file wins
    assert_int_equal(model->dialect, POLICY_DIALECT_E2B);
    policy_model_free(model);
    read_fails("dialect: natvie", "dialect must be network, e2b or native, not \"natvie\"");
    read_fails("dialect: network\nversion: 1", "unknown key \"version\"");
    read_fails("type: vm", "type must be none, bashkit,");
}

static void test_builder(void **state) {
    (void)state;
    struct policy_model *model = policy_model_new(POLICY_DIALECT_NATIVE);
    struct error err = {0};
    assert_int_equal(policy_model_allow(model, "API.github.com", "--allow API.github.com", &err), 0);
    assert_int_equal(policy_model_allow(model, "api.github.com:443", "--allow 2", &err), 0);
    assert_int_equal(policy_model_allow(model, "*.npmjs.org:8443", "--allow 3", &err), 0);
    assert_int_equal(policy_model_allow(model, "[2001:db8::1]:8443", "--allow 4", &err), 0);
    assert_int_equal(policy_model_allow_cidr(model, "10.0.0.0/8", "--allow-cidr 10.0.0.0/8", &err), 0);
    assert_int_equal(policy_model_deny_cidr(model, "198.51.100.1", "--deny-cidr", &err), 0);
    assert_int_equal(model->allow_count, 4);
    assert_entry(&model->allow[0], POLICY_ENTRY_NAME, POLICY_ENTRY_HTTPS, "api.github.com", 443, 443);
    assert_string_equal(model->allow[0].source, "--allow API.github.com");
    assert_entry(&model->allow[1], POLICY_ENTRY_WILDCARD, POLICY_ENTRY_HTTPS, "npmjs.org", 8443, 8443);
    assert_entry(&model->allow[3], POLICY_ENTRY_CIDR, POLICY_ENTRY_ANY, "", 0, 0);
    assert_int_equal(model->deny_count, 1);
    assert_int_equal(policy_model_allow(model, "@npm", "--allow @npm", &err), -EINVAL);
    assert_non_null(strstr(err.text, "\"@npm\" is not a preset; write one of @alpine, "));
    assert_int_equal(policy_model_allow(model, "*", "--allow *", &err), -EINVAL);
    assert_int_equal(policy_model_allow_cidr(model, "10.0.0.1/8", "x", &err), -EINVAL);
    assert_non_null(strstr(err.text, "\"10.0.0.0/8\""));
    policy_model_free(model);
}

static void test_builder_bind(void **state) {
    (void)state;
    struct policy_model *model = policy_model_new(POLICY_DIALECT_NATIVE);
    struct error err = {0};
    assert_int_equal(policy_model_bind(model, "github:Octo/Hello.git,a/b=env:T", "--bind", &err), 0);
    assert_int_equal(policy_model_bind(model, "mistral_api", "--bind", &err), 0);
    assert_int_equal(policy_model_bind(model, "header:b.org:X-K:a={secret}:=x=cmd:p --k=env:V", "--bind", &err), 0);
    assert_int_equal(model->binding_count, 3);
    assert_int_equal(model->bindings[0].repo_count, 2);
    assert_string_equal(model->bindings[0].repos[0], "octo/hello");
    assert_string_equal(model->bindings[0].secret, "env:T");
    assert_null(model->bindings[1].secret);
    assert_string_equal(model->bindings[2].value, "a={secret}:=x");
    assert_string_equal(model->bindings[2].secret, "cmd:p --k=env:V");
    static const char *const bad[] = {"",
                                      "gitlab",
                                      "github:",
                                      "github:o",
                                      "github:o/r,",
                                      "github=hunter2hunter2",
                                      "mistral_api:x",
                                      "workspace=env:X",
                                      "header",
                                      "header:b.org",
                                      "header:b.org:X-J",
                                      "header::X=env:K",
                                      "header:b.org:=env:K",
                                      "header:b.org:x-k=env:K",
                                      "github=env:T"};
    for (size_t i = 0; i < ARRAY_LENGTH(bad); i++) {
        assert_int_equal(policy_model_bind(model, bad[i], "--bind", &err), -EINVAL);
        assert_null(strstr(err.text, "hunter2"));
    }
    assert_int_equal(model->binding_count, 3);
    policy_model_free(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_network),    cmocka_unit_test(test_bindings),  cmocka_unit_test(test_e2b),
        cmocka_unit_test(test_native),     cmocka_unit_test(test_positions), cmocka_unit_test(test_wrong_dialect),
        cmocka_unit_test(test_yaml),
        cmocka_unit_test(test_yaml_types), cmocka_unit_test(test_limits),    cmocka_unit_test(test_many_duplicates),
        cmocka_unit_test(test_dialects),   cmocka_unit_test(test_builder),   cmocka_unit_test(test_builder_bind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
