// SPDX-License-Identifier: Apache-2.0
// The block: it can be moved, a damaged one is refused, a forged one never makes a reader leave its memory. Facts,
// rules, loopback ports, and what compiling warns of or refuses.
#include <errno.h>

#include "fixture.h"
#include "policy/block.h"

#define HTTPS POLICY_ENTRY_HTTPS
#define TCP POLICY_ENTRY_TCP
#define ANY POLICY_ENTRY_ANY

static void add(struct policy_model *model, enum policy_entry_protocol protocol, const char *what, const char *source) {
    struct entry_words words = {.protocol = protocol, .what = what};
    fixture_add(model, true, &words, source);
}

static void add_port(struct policy_model *model, enum policy_entry_protocol protocol, const char *what, uint16_t first,
                     uint16_t last) {
    struct entry_words words = {.protocol = protocol, .what = what, .first = first, .last = last};
    fixture_add(model, true, &words, "--test");
}

static void add_deny(struct policy_model *model, const char *what) {
    struct entry_words words = {.protocol = ANY, .what = what};
    fixture_add(model, false, &words, "policy.yaml:9");
}

static char node_names[2][NAME_SIZE] = {"bad.example", "*.evil.example"};

// A policy that uses every section.
static struct policy *full_policy(void) {
    struct policy_model *model = policy_model_new(POLICY_DIALECT_NATIVE);
    assert_non_null(model);
    struct addr_prefix ranges[] = {fixture_prefix("10.0.0.0/8"), fixture_prefix("fd00::/8"),
                                   fixture_prefix("64:ff9b:1::/96")};
    struct addr own[] = {fixture_addr("203.0.113.9")};
    struct policy_node node = {.has_always_denied = true,
                               .always_denied = ranges,
                               .always_denied_count = 2,
                               .always_denied_names = node_names,
                               .always_denied_name_count = 2,
                               .always_allowed = ranges,
                               .always_allowed_count = 1,
                               .has_deny_own_addresses = true,
                               .deny_own_addresses = true,
                               .nat64_prefixes = &ranges[2],
                               .nat64_count = 1,
                               .own_addresses = own,
                               .own_address_count = 1,
                               .source = (char *)"node.yaml"};
    model->block_private = false;
    add(model, HTTPS, "a.example", "--test");
    add(model, HTTPS, "*.b.example", "--test");
    add_port(model, TCP, "localhost", 5432, 5433);
    add_port(model, HTTPS, "*.b.example", 8000, 8010);
    add(model, ANY, "8.8.8.0/24", "--test");
    add(model, ANY, "8.8.8.8/32", "--test");
    add(model, HTTPS, "=2001:db8::1", "--test");
    add_deny(model, "9.9.9.0/24");
    model->bindings = NEW_ARRAY(struct policy_binding, 1);
    assert_non_null(model->bindings);
    model->binding_count = 1; // github
    struct policy *policy = fixture_compile(model, &node, NULL);
    policy_model_free(model);
    return policy;
}

// Asks a policy everything that could make it read.
static unsigned exercise(const struct policy *policy) {
    static const char *const names[] = {"a.example",      "x.y.b.example",  "localhost", "bad.example",
                                        "q.evil.example", "api.github.com", NULL};
    static const char *const addresses[] = {"8.8.8.8",   "8.8.8.255",       "9.9.9.9",     "10.0.0.1",
                                            "127.0.0.1", "255.255.255.255", "2001:db8::1", "64:ff9b:1::808:808",
                                            "fd00::1",   "2002:a00:1::",    "::1"};
    unsigned sum = 0;
    for (size_t n = 0; n < ARRAY_LENGTH(names); n++) {
        if (names[n]) sum += policy_name_bound(policy, names[n]);
        for (size_t a = 0; a < ARRAY_LENGTH(addresses); a++) {
            struct addr addr = fixture_addr(addresses[a]);
            for (int protocol = POLICY_TCP; protocol <= POLICY_DNS; protocol++) {
                struct policy_request request = {.protocol = (enum policy_protocol)protocol,
                                                 .app = (enum policy_app)(a % 4),
                                                 .address = &addr,
                                                 .port = a % 2 ? 443 : 8005};
                if (a % 3 == 0)
                    request.claimed = names[n];
                else
                    request.dialled = names[n];
                struct policy_decision got = policy_decide(policy, &request);
                struct policy_rule_info info = policy_rule_info(policy, got.rule);
                sum += (unsigned)(got.verdict + got.reason + strlen(info.text) + strlen(info.source));
            }
        }
    }
    uint16_t ports[64];
    sum += (unsigned)policy_loopback_ports(policy, ports, ARRAY_LENGTH(ports));
    for (uint32_t i = 0; i < policy_rule_count(policy); i++) sum += (unsigned)strlen(policy_rule_info(policy, i).text);
    return sum + (unsigned)policy_facts(policy).generation;
}

static void block_can_be_moved(void **state) {
    (void)state;
    struct policy *policy = full_policy(), *moved = NULL;
    size_t size;
    const void *block = policy_block(policy, &size);
    void *copy = malloc(size);
    assert_non_null(copy);
    memcpy(copy, block, size);
    unsigned want = exercise(policy);
    policy_free(policy);
    struct error err = {0};
    assert_int_equal(policy_from_block(copy, size, &moved, &err), 0);
    assert_int_equal(exercise(moved), want);
    size_t again;
    assert_ptr_equal(policy_block(moved, &again), copy);
    assert_int_equal(again, size);
    policy_free(moved);
    free(copy);
}

static void damaged_blocks_are_refused(void **state) {
    (void)state;
    struct policy *policy = full_policy(), *other = NULL;
    size_t size;
    const void *block = policy_block(policy, &size);
    char *copy = malloc(size);
    assert_non_null(copy);
    for (size_t at = 0; at < size; at++) {
        memcpy(copy, block, size);
        copy[at] ^= (char)(1 << (at % 8));
        struct error err = {0};
        if (policy_from_block(copy, size, &other, &err) != -EINVAL)
            fail_msg("a flipped bit in byte %zu is not seen", at);
        assert_true(err.text[0] != '\0');
    }
    free(copy);
    for (size_t len = 0; len < size; len += len < 512 ? 1 : 37) { // truncated, in memory of exactly that size
        copy = malloc(len + 1);
        assert_non_null(copy);
        memcpy(copy, block, len);
        assert_int_equal(policy_from_block(copy, len, &other, NULL), -EINVAL);
        free(copy);
    }
    policy_free(policy);
}

// Mutations with a right checksum: many must be refused, none may crash (run under ASan), whatever they decide.
static void forged_blocks_do_not_crash(void **state) {
    (void)state;
    struct policy *policy = full_policy();
    size_t size, refused = 0, taken = 0;
    const void *block = policy_block(policy, &size);
    char *copy = malloc(size);
    assert_non_null(copy);
    static const uint8_t values[] = {0x00, 0xff, 0x80, 0x7f, 0x01, 0x20};
    uint32_t random = 12345;
    for (size_t i = 0; i < size * 3; i++) {
        memcpy(copy, block, size);
        for (int changes = i < size ? 1 : 1 + (int)(i % 3); changes > 0; changes--) {
            random = random * 1664525u + 1013904223u;
            size_t at = i < size ? i : (random >> 8) % size;
            copy[at] = (char)values[random % ARRAY_LENGTH(values)];
        }
        struct block_header *header = (struct block_header *)(void *)copy;
        header->checksum = block_checksum(copy, size);
        struct policy *forged = NULL;
        if (policy_from_block(copy, size, &forged, NULL) != 0) {
            refused++;
            continue;
        }
        taken++;
        exercise(forged);
        policy_free(forged);
    }
    assert_true(refused > size / 2 && taken > size / 10);
    free(copy);
    policy_free(policy);
}

// Fields that a lookup trusts, each made wrong with a right checksum.
static void forged_fields_are_refused(void **state) {
    (void)state;
    struct policy *policy = full_policy();
    size_t size;
    const void *block = policy_block(policy, &size);
    char *copy = malloc(size);
    assert_non_null(copy);
    struct block_header *header = (struct block_header *)(void *)copy;
#define AT(section, type) ((type *)(void *)(copy + header->sections[section].offset))
#define REFUSED(change)                                                                                                \
    do {                                                                                                               \
        memcpy(copy, block, size);                                                                                     \
        change;                                                                                                        \
        header->checksum = block_checksum(copy, size);                                                                 \
        struct policy *forged = NULL;                                                                                  \
        assert_int_equal(policy_from_block(copy, size, &forged, NULL), -EINVAL);                                       \
    } while (0)
    memcpy(copy, block, size);
    uint32_t nodes = header->sections[BLOCK_NODES].count;
    struct policy *intact = NULL;
    assert_int_equal(policy_from_block(copy, size, &intact, NULL), 0);
    policy_free(intact);
    REFUSED(AT(BLOCK_NODES, struct block_node)[0].prefix.length = 33);
    REFUSED(AT(BLOCK_NODES, struct block_node)[nodes - 1].prefix.length = 129);
    REFUSED(AT(BLOCK_NODES, struct block_node)[0].prefix.addr.family = 5);
    REFUSED(AT(BLOCK_NODES, struct block_node)[0].parent = 0);
    REFUSED(AT(BLOCK_NODES, struct block_node)[0].parent = 1);
    REFUSED(AT(BLOCK_NODES, struct block_node)[0].items.first = UINT32_MAX);
    REFUSED(AT(BLOCK_NODES, struct block_node)[0].items.count = 0);
    REFUSED(AT(BLOCK_ITEMS, uint32_t)[0] = UINT32_MAX);
    REFUSED(AT(BLOCK_ENTRIES, struct block_entry)[0].kind = 4);
    REFUSED(AT(BLOCK_ENTRIES, struct block_entry)[0].protocol = 6);
    REFUSED(AT(BLOCK_ENTRIES, struct block_entry)[0].ports.count = UINT32_MAX);
    REFUSED(AT(BLOCK_ENTRIES, struct block_entry)[0].name = (uint32_t)size);
    REFUSED(AT(BLOCK_RULES, struct block_rule)[0].text = (uint32_t)size);
    REFUSED(AT(BLOCK_RUNS, struct block_run)[0].entry = 1000);
    REFUSED(AT(BLOCK_NAT64, struct addr_prefix)[0].length = 200);
    REFUSED(header->sections[BLOCK_SLOTS].count--);
    REFUSED(header->sections[BLOCK_STRINGS].count--);
    REFUSED(header->sections[BLOCK_RULES].offset++);
    REFUSED(header->sections[BLOCK_RULES].count = UINT32_MAX);
    REFUSED(header->trees[BLOCK_TREE_OWN].count++);
    REFUSED(header->runs[0].first = UINT32_MAX);
    REFUSED(header->rule_base = BLOCK_NONE);
    REFUSED(header->rule_special = 1000);
    REFUSED(header->dns_cidrs = 1000);
    REFUSED(header->dns_names = 2);
    REFUSED(header->size++);
    REFUSED(header->version++);
    free(copy);
    policy_free(policy);
}

static void facts_of(void **state) {
    (void)state;
    struct policy_model *model = policy_model_new(POLICY_DIALECT_NATIVE);
    assert_non_null(model);
    struct policy *policy = fixture_compile(model, NULL, NULL);
    struct policy_facts facts = policy_facts(policy);
    char text[ADDR_TEXT_SIZE];
    assert_true(facts.generation == 1 && !facts.base_allow && !facts.names_are_policy && !facts.has_names);
    assert_true(facts.max_connections == 256 && facts.connection_rate == 0 && facts.bandwidth_bytes == 0 && facts.max_bytes_out == 0);
    assert_string_equal(addr_prefix_format(&facts.pool4, text), "198.18.0.0/15");
    assert_int_equal(facts.pool6.addr.bytes[0], 0xfd);
    assert_string_equal(policy_rule_info(policy, 0).text, "base deny");
    assert_string_equal(policy_rule_info(policy, 0).source, "default");
    assert_string_equal(policy_rule_info(policy, POLICY_RULE_NONE).text, "");
    policy_free(policy);
    // A deny entry for everything makes names the policy, although the base is open.
    model->base_allow = true;
    add(model, HTTPS, "a.example", "--allow a.example");
    policy = fixture_compile(model, NULL, NULL);
    facts = policy_facts(policy);
    assert_true(facts.base_allow && !facts.names_are_policy && facts.has_names && facts.dns_names == POLICY_DNS_REAL);
    assert_string_equal(policy_rule_info(policy, 0).text, "allow https a.example:443");
    assert_string_equal(policy_rule_info(policy, 0).source, "--allow a.example");
    policy_free(policy);
    add_deny(model, "0.0.0.0/0");
    policy = fixture_compile(model, NULL, NULL);
    facts = policy_facts(policy);
    assert_true(!facts.base_allow && facts.names_are_policy && facts.dns_names == POLICY_DNS_SYNTHETIC);
    policy_free(policy);
    policy_model_free(model);
    policy = full_policy();
    assert_true(policy_name_bound(policy, "github.com") && policy_name_bound(policy, "api.github.com"));
    assert_false(policy_name_bound(policy, "a.example") || policy_name_bound(policy, "x.github.com"));
    policy_free(policy);
}

static void loopback_ports(void **state) {
    (void)state;
    uint16_t ports[8];
    struct policy_model *model = policy_model_new(POLICY_DIALECT_NATIVE);
    assert_non_null(model);
    add_port(model, HTTPS, "localhost", 8000, 8001);
    add(model, HTTPS, "localhost", "--test");
    add_port(model, HTTPS, "=127.0.0.9", 7000, 7000);
    add_port(model, HTTPS, "=::1", 7001, 7001);
    add_port(model, HTTPS, "=203.0.113.1", 7002, 7002);
    add_port(model, HTTPS, "a.example", 7003, 7003);
    struct policy *policy = fixture_compile(model, NULL, NULL);
    assert_int_equal(policy_loopback_ports(policy, ports, 8), 0); // the private block is on
    policy_free(policy);
    model->block_private = false;
    policy = fixture_compile(model, NULL, NULL);
    static const uint16_t want[] = {443, 7000, 7001, 8000, 8001};
    assert_int_equal(policy_loopback_ports(policy, ports, 8), 5);
    assert_memory_equal(ports, want, sizeof(want));
    assert_int_equal(policy_loopback_ports(policy, ports, 2), 2);
    policy_free(policy);
    policy_model_free(model);
    // Ranges and private entries open loopback beside the private block; a range without ports opens none.
    model = policy_model_new(POLICY_DIALECT_NATIVE);
    assert_non_null(model);
    add_port(model, ANY, "127.0.0.1/32", 5432, 5432);
    add(model, ANY, "127.0.0.2/32", "--test");
    fixture_add(model, true, &(struct entry_words){TCP, "localhost", 6379, 6379, true}, "--test");
    policy = fixture_compile(model, NULL, NULL);
    assert_int_equal(policy_loopback_ports(policy, ports, 8), 2);
    assert_true(ports[0] == 5432 && ports[1] == 6379);
    policy_free(policy);
    policy_model_free(model);
}

// Compiles and returns the first warning, or the error; "" if neither. ret is the result of policy_compile.
static const char *first_line(const struct policy_model *model, const struct policy_node *node, int *ret) {
    static char line[1024];
    struct policy_warnings warnings = {0};
    struct policy *policy = NULL;
    struct error err = {0};
    *ret = policy_compile(model, node, NULL, 0, 1, &policy, &warnings, &err);
    snprintf(line, sizeof(line), "%s", *ret != 0 ? err.text : warnings.count > 0 ? warnings.lines[0] : "");
    policy_warnings_done(&warnings);
    policy_free(policy);
    return line;
}

struct lint_case {
    enum policy_dialect dialect;
    struct {
        enum policy_entry_protocol protocol;
        const char *what;
        uint16_t first, last;
    } allow[2];
    const char *deny;
    bool base_allow;
    int result;          // in a native file
    const char *says[3]; // NULL first: no line at all
};

static const struct lint_case lint_cases[] = {
    {POLICY_DIALECT_NATIVE,
     {{HTTPS, "a.example"}, {HTTPS, "a.example"}},
     NULL,
     false,
     -EINVAL,
     {"allow https a.example:443", "policy.yaml:2", "policy.yaml:1"}},
    {POLICY_DIALECT_NETWORK, {{HTTPS, "a.example"}, {HTTPS, "a.example"}}, NULL, false, 0, {"can never match"}},
    {POLICY_DIALECT_NATIVE,
     {{HTTPS, "*.a.example"}, {HTTPS, "x.a.example"}},
     NULL,
     false,
     -EINVAL,
     {"*.a.example:443"}},
    {POLICY_DIALECT_NATIVE,
     {{HTTPS, "*.a.example"}, {HTTPS, "*.x.a.example"}},
     NULL,
     false,
     -EINVAL,
     {"*.x.a.example"}},
    {POLICY_DIALECT_NATIVE, {{HTTPS, "*.a.example"}, {HTTPS, "a.example"}}, NULL, false, 0, {NULL}},
    {POLICY_DIALECT_NATIVE, {{HTTPS, "x.a.example"}, {HTTPS, "*.a.example"}}, NULL, false, 0, {NULL}},
    {POLICY_DIALECT_NATIVE,
     {{TCP, "a.example", 400, 500}, {HTTPS, "a.example"}},
     NULL,
     false,
     -EINVAL,
     {"allow tcp a.example:400-500"}},
    {POLICY_DIALECT_NATIVE, {{HTTPS, "a.example"}, {TCP, "a.example", 443, 443}}, NULL, false, 0, {NULL}},
    {POLICY_DIALECT_NATIVE, {{HTTPS, "a.example", 1, 442}, {HTTPS, "a.example"}}, NULL, false, 0, {NULL}},
    {POLICY_DIALECT_NATIVE, {{ANY, "8.8.0.0/16"}, {TCP, "8.8.8.0/24", 53, 53}}, NULL, false, -EINVAL, {"8.8.0.0/16"}},
    {POLICY_DIALECT_NATIVE, {{TCP, "8.8.0.0/16", 53, 53}, {TCP, "8.8.8.0/24"}}, NULL, false, 0, {NULL}},
    {POLICY_DIALECT_NATIVE, {{ANY, "8.8.8.0/24"}, {ANY, "8.8.0.0/16"}}, NULL, false, 0, {NULL}},
    {POLICY_DIALECT_NATIVE, {{ANY, "8.8.8.0/24"}, {HTTPS, "=8.8.8.8"}}, NULL, false, -EINVAL, {"8.8.8.8"}},
    {POLICY_DIALECT_NATIVE, {{HTTPS, "*.com"}}, NULL, false, 0, {"*.com"}},
    {POLICY_DIALECT_NATIVE, {{ANY, "198.18.5.0/24"}, {HTTPS, "a.example"}}, NULL, false, -EINVAL, {"198.18.0.0/15"}},
    {POLICY_DIALECT_NETWORK, {{ANY, "198.0.0.0/8"}, {HTTPS, "a.example"}}, NULL, false, -EINVAL, {"198.18.0.0/15"}},
    {POLICY_DIALECT_NATIVE, {{ANY, "198.18.5.0/24"}}, NULL, false, 0, {NULL}}, // no name: the pool is not in use
    {POLICY_DIALECT_E2B, {{ANY, "0.0.0.0/0"}}, "0.0.0.0/0", true, 0, {NULL}},
    {POLICY_DIALECT_NATIVE,
     {{ANY, "8.8.8.0/24"}},
     "8.8.8.8/32",
     true,
     0,
     {"deny 8.8.8.8", "policy.yaml:9", "allow any 8.8.8.0/24"}},
    {POLICY_DIALECT_NATIVE, {{TCP, "8.8.8.0/24"}}, "8.8.8.8/32", true, 0, {NULL}},
    {POLICY_DIALECT_NATIVE, {{HTTPS, "a.example"}}, "8.8.8.8/32", false, 0, {"needless"}},
    {POLICY_DIALECT_E2B, {{ANY, "8.8.8.8/32"}}, NULL, true, 0, {"not an allow list", "0.0.0.0/0"}},
    {POLICY_DIALECT_E2B, {{ANY, "8.8.8.8/32"}}, "0.0.0.0/0", true, 0, {NULL}},
    {POLICY_DIALECT_E2B, {{ANY, "10.0.0.0/8"}}, "0.0.0.0/0", true, 0, {"can never match", "node always_denied"}},
    {POLICY_DIALECT_NETWORK, {{HTTPS, "=10.0.0.1"}}, NULL, false, 0, {"block_private_ips"}},
    {POLICY_DIALECT_NETWORK, {{HTTPS, "localhost", 8000, 8000}}, NULL, false, 0, {"block_private_ips"}},
};

static void warns_and_refuses(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(lint_cases); i++) {
        const struct lint_case *lint = &lint_cases[i];
        struct policy_model *model = policy_model_new(lint->dialect);
        assert_non_null(model);
        model->base_allow = lint->base_allow;
        model->block_private = lint->dialect != POLICY_DIALECT_E2B;
        for (size_t j = 0; j < 2 && lint->allow[j].what; j++) {
            struct entry_words words = {lint->allow[j].protocol, lint->allow[j].what, lint->allow[j].first,
                                        lint->allow[j].last, false};
            char source[32];
            snprintf(source, sizeof(source), "policy.yaml:%zu", j + 1);
            fixture_add(model, true, &words, source);
        }
        if (lint->deny) add_deny(model, lint->deny);
        int result;
        const char *line = first_line(model, NULL, &result);
        if (result != lint->result || (!lint->says[0] && line[0])) fail_msg("case %zu: %d %s", i, result, line);
        for (size_t j = 0; j < 3 && lint->says[j]; j++) {
            if (!strstr(line, lint->says[j])) fail_msg("case %zu: \"%s\" does not say \"%s\"", i, line, lint->says[j]);
        }
        policy_model_free(model);
    }
}

static void guardrails_and_options(void **state) {
    (void)state;
    struct addr_prefix ranges[] = {fixture_prefix("10.0.0.0/8"), fixture_prefix("10.1.0.0/16")};
    struct policy_node node = {.has_always_denied = true,
                               .always_denied = ranges,
                               .always_denied_count = 1,
                               .always_denied_names = node_names,
                               .always_denied_name_count = 2,
                               .source = (char *)"node.yaml"};
    static const struct {
        const char *what, *source;
        bool exempt;
        int result;
        const char *says;
    } cases[] = {
        {"10.1.2.0/24", "policy.yaml:3", false, -EINVAL, "node always_denied 10.0.0.0/8"},
        {"10.1.2.0/24", "--allow-cidr 10.1.2.0/24", false, 0, "can never match"},
        {"10.1.2.0/24", "policy.yaml:3", true, 0, NULL},
        {"10.2.0.0/16", "policy.yaml:3", true, -EINVAL, "node.yaml"},
        {"8.0.0.0/6", "policy.yaml:3", false, 0, NULL},
        {"bad.example", "policy.yaml:3", false, -EINVAL, "node always_denied bad.example"},
        {"x.bad.example", "policy.yaml:3", false, 0, NULL},
        {"x.evil.example", "policy.yaml:3", false, -EINVAL, "node always_denied *.evil.example"},
        {"*.evil.example", "policy.yaml:3", false, -EINVAL, "node always_denied *.evil.example"},
        {"*.example.org", "policy.yaml:3", false, 0, NULL},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct policy_model *model = policy_model_new(POLICY_DIALECT_NATIVE);
        assert_non_null(model);
        node.always_allowed = &ranges[1];
        node.always_allowed_count = cases[i].exempt;
        add(model, fixture_is_range(cases[i].what) ? ANY : HTTPS, cases[i].what, cases[i].source);
        int result;
        const char *line = first_line(model, &node, &result);
        if (result != cases[i].result || (cases[i].says ? !strstr(line, cases[i].says) : line[0] != '\0'))
            fail_msg("case %zu: %d %s", i, result, line);
        policy_model_free(model);
    }
}

static void enum_names(void **state) {
    (void)state;
    static const char *const reasons[] = {
        "allowed_name", "allowed_cidr",    "allowed_base",   "node_denied",     "node_own_address", "private_address",
        "denied_cidr",  "base_denied",     "no_name",        "name_mismatch",   "not_https",        "protocol_denied",
        "port_denied",  "dns_name_denied", "dns_failed",     "dns_bad_message", "bad_request",      "tls_bad_hello",
        "ech_denied",   "limit_exceeded",  "binding_failed", "upstream_failed", "policy_changed"};
    assert_int_equal(ARRAY_LENGTH(reasons), POLICY_REASON_COUNT);
    for (int i = 0; i < POLICY_REASON_COUNT; i++)
        assert_string_equal(policy_reason_name((enum policy_reason)i), reasons[i]);
    assert_string_equal(policy_verdict_name(POLICY_INSPECT), "inspect");
    assert_string_equal(policy_verdict_name(POLICY_DENY), "deny");
    assert_string_equal(policy_verdict_name(POLICY_ALLOW), "allow");
    assert_string_equal(policy_protocol_name(POLICY_DNS), "dns");
    assert_string_equal(policy_protocol_name(POLICY_TCP), "tcp");
}

// What is said about the whole is not lost among what is said about many rules.
static void warnings_can_be_read(void **state) {
    struct policy_model *model = policy_model_new(POLICY_DIALECT_E2B);
    struct policy_warnings warnings = {0};
    struct policy *policy;
    struct error err = {0};
    bool whole = false;
    (void)state;
    model->base_allow = true;
    for (int i = 0; i < POLICY_WARNINGS_MAX + 9; i++)
        fixture_add(model, true, &(struct entry_words){.what = i % 2 ? "a.example" : "b.example"}, "allowOut");
    assert_int_equal(policy_compile(model, NULL, NULL, 0, 1, &policy, &warnings, &err), 0);
    for (size_t i = 0; i < warnings.count; i++) whole |= strstr(warnings.lines[i], "allowOut alone is not an allow list") != NULL;
    assert_true(whole);
    assert_int_equal(warnings.count, POLICY_WARNINGS_MAX);
    assert_int_equal(warnings.more, 8);
    policy_warnings_done(&warnings);
    policy_free(policy);
    policy_model_free(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(block_can_be_moved),
        cmocka_unit_test(damaged_blocks_are_refused),
        cmocka_unit_test(forged_blocks_do_not_crash),
        cmocka_unit_test(facts_of),
        cmocka_unit_test(forged_fields_are_refused),
        cmocka_unit_test(loopback_ports),
        cmocka_unit_test(warns_and_refuses),
        cmocka_unit_test(warnings_can_be_read),
        cmocka_unit_test(guardrails_and_options),
        cmocka_unit_test(enum_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
