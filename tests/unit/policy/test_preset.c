// SPDX-License-Identifier: Apache-2.0
// Presets: the data, how they are read in both places, what the compiler makes of their overlaps; and opening a model
// for learning.
#include "policy/preset.h"

#include <errno.h>

#include "fixture.h"

static void test_data(void **state) {
    (void)state;
    size_t count;
    const struct policy_preset *presets = policy_presets(&count);
    assert_true(count >= 7);
    for (size_t i = 0; i < count; i++) {
        assert_true(i == 0 || strcmp(presets[i - 1].name, presets[i].name) < 0);
        assert_int_equal(strspn(presets[i].name, "abcdefghijklmnopqrstuvwxyz"), strlen(presets[i].name));
        assert_true(presets[i].summary[0] && !strchr(presets[i].summary, '\n'));
        assert_non_null(presets[i].hosts[0]);
        for (size_t j = 0; presets[i].hosts[j]; j++) {
            // Each host is a plain one as --allow takes it, in its canonical form, once.
            struct name_host host;
            struct error err = {0};
            const char *bare = presets[i].hosts[j] + (strncmp(presets[i].hosts[j], "*.", 2) == 0 ? 2 : 0);
            if (name_from_policy(bare, strlen(bare), &host, &err) != 0) fail_msg("%s", err.text);
            assert_string_equal(host.name, bare);
            assert_false(host.is_address);
            assert_false(name_is_public_suffix(bare));
            for (size_t k = 0; k < j; k++) assert_string_not_equal(presets[i].hosts[j], presets[i].hosts[k]);
        }
    }
}

static void test_find(void **state) {
    (void)state;
    const struct policy_preset *preset = NULL, *same = NULL;
    struct error err = {0};
    assert_int_equal(policy_preset_find("@python", &preset, &err), 0);
    assert_int_equal(policy_preset_find("python", &same, &err), 0);
    assert_ptr_equal(preset, same);
    assert_string_equal(preset->hosts[0], "pypi.org");
    assert_ptr_equal(policy_preset_of("files.pythonhosted.org"), preset);
    assert_null(policy_preset_of("pythonhosted.org"));
    assert_int_equal(policy_preset_find("@pyth", &preset, &err), -EINVAL);
    assert_non_null(strstr(err.text, "\"@pyth\" is not a preset; write one of @alpine, "));
    assert_non_null(strstr(err.text, "@python, @ruby, @rust, or list"));
    assert_int_equal(policy_preset_find("@", &preset, &err), -EINVAL);
    assert_int_equal(policy_preset_find("@@python", &preset, &err), -EINVAL);
    assert_ptr_equal(preset, same);
}

static void test_option(void **state) {
    (void)state;
    struct policy_model *model = policy_model_new(POLICY_DIALECT_NATIVE);
    struct error err = {0};
    assert_int_equal(policy_model_allow(model, "pypi.org", "--allow pypi.org", &err), 0);
    assert_int_equal(policy_model_allow(model, "@python", "--allow @python", &err), 0);
    assert_int_equal(policy_model_allow(model, "@python", "--allow @python", &err), 0);
    assert_int_equal(model->allow_count, 2); // what is given twice is kept once
    assert_string_equal(model->allow[0].source, "--allow pypi.org");
    assert_string_equal(model->allow[1].name, "files.pythonhosted.org");
    assert_string_equal(model->allow[1].source, "--allow @python");
    assert_int_equal(model->allow[1].protocol, POLICY_ENTRY_HTTPS);
    assert_int_equal(model->allow[1].port_count, 1);
    assert_int_equal(model->allow[1].ports[0].first, 443);
    assert_int_equal(policy_check_type(model, POLICY_TYPE_BASHKIT, &err), 0);
    policy_model_free(model);
}

static struct policy_model *read_native(const char *allow, struct error *err) {
    char text[512];
    struct policy_model *model = NULL;
    snprintf(text, sizeof(text), "version: 1\nallow:\n%s", allow);
    return policy_read(text, strlen(text), "p.yaml", POLICY_DIALECT_AUTO, &model, err) == 0 ? model : NULL;
}

static void test_native(void **state) {
    (void)state;
    static const char *const same[] = {"  - preset: python\n", "  - preset: \"@python\"\n", "  - host: \"@python\"\n"};
    struct error err = {0};
    for (size_t i = 0; i < ARRAY_LENGTH(same); i++) {
        struct policy_model *model = read_native(same[i], &err);
        assert_non_null(model);
        assert_int_equal(model->allow_count, 2);
        assert_string_equal(model->allow[0].name, "pypi.org");
        assert_string_equal(model->allow[1].source, "p.yaml:3 (@python)");
        policy_model_free(model);
    }
    static const struct {
        const char *allow, *says;
    } bad[] = {
        {"  - preset: npm\n", "\"npm\" is not a preset"},
        {"  - host: \"@npm\"\n", "\"@npm\" is not a preset"},
        {"  - {preset: python, ports: [1]}\n", "ports does not go with a preset"},
        {"  - {host: \"@python\", private: true}\n", "private does not go with a preset"},
        {"  - {preset: python, protocol: tcp}\n", "protocol does not go with a preset"},
        {"  - {preset: python, cidr: 1.2.3.4}\n", "either host, cidr or preset"},
        {"  - {preset: [python]}\n", "expected a string"},
        {"  - {}\n", "either host, cidr or preset"},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(bad); i++) {
        assert_null(read_native(bad[i].allow, &err));
        if (!strstr(err.text, bad[i].says)) fail_msg("expected \"%s\" in \"%s\"", bad[i].says, err.text);
        assert_non_null(strstr(err.text, "3"));
    }
}

// 0 if it compiles without a warning.
static int lint_of(const char *allow, const struct policy_node *node, size_t *ret_warnings) {
    struct error err = {0};
    struct policy_model *model = read_native(allow, &err);
    struct policy_warnings warnings = {0};
    struct policy *policy = NULL;
    assert_non_null(model);
    int r = policy_compile(model, node, NULL, 0, 1, &policy, &warnings, &err);
    *ret_warnings = warnings.count;
    policy_warnings_done(&warnings);
    policy_free(policy);
    policy_model_free(model);
    return r;
}

static void test_overlaps(void **state) {
    (void)state;
    size_t warnings;
    // A preset beside what is allowed already is nobody's mistake; an own entry that a preset covers still is one.
    assert_int_equal(lint_of("  - host: pypi.org\n  - preset: python\n", NULL, &warnings), 0);
    assert_int_equal(warnings, 0);
    assert_int_equal(lint_of("  - host: \"*.org\"\n  - preset: python\n  - preset: python\n", NULL, &warnings), 0);
    assert_int_equal(warnings, 1); // of the public suffix
    assert_int_equal(lint_of("  - preset: python\n  - host: pypi.org\n", NULL, &warnings), -EINVAL);
    // What the operator denies of a preset is told, but the rest of it is of use.
    char names[1][NAME_SIZE] = {"pypi.org"};
    struct policy_node node = {.always_denied_names = names, .always_denied_name_count = 1};
    assert_int_equal(lint_of("  - preset: python\n", &node, &warnings), 0);
    assert_int_equal(warnings, 1);
    assert_int_equal(lint_of("  - host: pypi.org\n", &node, &warnings), -EINVAL);
}

// ---- learning ----

static struct policy_decision decide(const struct policy *policy, struct policy_request request) {
    return policy_decide(policy, &request);
}

static void test_learn(void **state) {
    (void)state;
    struct policy_model *model = policy_model_new(POLICY_DIALECT_NATIVE);
    struct error err = {0};
    assert_int_equal(policy_model_allow_cidr(model, "10.1.0.0/16", "--allow-cidr", &err), 0);
    assert_int_equal(policy_model_learn(model, &err), 0);
    assert_int_equal(model->allow_count, 3);
    struct policy_warnings warnings = {0};
    struct policy *policy = fixture_compile(model, NULL, &warnings);
    assert_int_equal(warnings.count, 0);
    struct policy_facts facts = policy_facts(policy);
    assert_true(facts.base_allow && facts.synthetic && facts.has_names && facts.dns_names == POLICY_DNS_SYNTHETIC);
    struct addr public = fixture_addr("203.0.113.1"), private = fixture_addr("10.2.0.1"), given = fixture_addr("10.1.0.1");
    struct addr loopback = fixture_addr("127.0.0.1");
    const struct {
        struct policy_request request;
        enum policy_verdict verdict;
        enum policy_reason reason;
        uint32_t rule; // POLICY_RULE_NONE: any
    } cases[] = {
        {{.protocol = POLICY_DNS, .dialled = "a.org"}, POLICY_ALLOW, POLICY_ALLOWED_NAME, 1},
        {{.protocol = POLICY_TCP, .dialled = "a.org", .port = 25}, POLICY_INSPECT, POLICY_ALLOWED_NAME, 1},
        {{.protocol = POLICY_TCP, .app = POLICY_APP_TLS, .dialled = "a.org", .claimed = "a.org", .address = &public, .port = 9},
         POLICY_ALLOW, POLICY_ALLOWED_NAME, 1},
        {{.protocol = POLICY_TCP, .app = POLICY_APP_HTTP, .dialled = "a.org", .port = 9}, POLICY_ALLOW, POLICY_ALLOWED_NAME, 2},
        {{.protocol = POLICY_TCP, .app = POLICY_APP_OTHER, .dialled = "a.org", .port = 9}, POLICY_ALLOW, POLICY_ALLOWED_BASE,
         POLICY_RULE_NONE},
        {{.protocol = POLICY_TCP, .app = POLICY_APP_TLS, .dialled = "a.org", .claimed = "b.org", .port = 443}, POLICY_DENY,
         POLICY_NAME_MISMATCH, POLICY_RULE_NONE},
        {{.protocol = POLICY_TCP, .app = POLICY_APP_OTHER, .dialled = "a.org", .address = &private, .port = 9}, POLICY_DENY,
         POLICY_PRIVATE_ADDRESS, POLICY_RULE_NONE},
        {{.protocol = POLICY_TCP, .address = &public, .port = 9}, POLICY_ALLOW, POLICY_ALLOWED_BASE, POLICY_RULE_NONE},
        {{.protocol = POLICY_UDP, .address = &public, .port = 9}, POLICY_ALLOW, POLICY_ALLOWED_BASE, POLICY_RULE_NONE},
        {{.protocol = POLICY_ICMP, .address = &public}, POLICY_ALLOW, POLICY_ALLOWED_BASE, POLICY_RULE_NONE},
        {{.protocol = POLICY_ICMP, .address = &private}, POLICY_DENY, POLICY_PRIVATE_ADDRESS, POLICY_RULE_NONE},
        {{.protocol = POLICY_TCP, .address = &private, .port = 9}, POLICY_DENY, POLICY_PRIVATE_ADDRESS, POLICY_RULE_NONE},
        {{.protocol = POLICY_TCP, .address = &loopback, .port = 9}, POLICY_DENY, POLICY_PRIVATE_ADDRESS, POLICY_RULE_NONE},
        {{.protocol = POLICY_TCP, .address = &given, .port = 9}, POLICY_ALLOW, POLICY_ALLOWED_CIDR, 0},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct policy_decision decision = decide(policy, cases[i].request);
        if (decision.verdict != cases[i].verdict || decision.reason != cases[i].reason ||
            (cases[i].rule != POLICY_RULE_NONE && decision.rule != cases[i].rule))
            fail_msg("case %zu: %s %s rule %u", i, policy_verdict_name(decision.verdict),
                     policy_reason_name(decision.reason), decision.rule);
    }
    policy_free(policy);
    policy_model_free(model);
}

static void test_nothing_to_learn(void **state) {
    (void)state;
    struct error err = {0};
    struct policy_model *model = policy_model_new(POLICY_DIALECT_NATIVE);
    model->base_allow = true;
    assert_int_equal(policy_model_learn(model, &err), -EINVAL);
    assert_non_null(strstr(err.text, "--network all"));
    policy_model_free(model);
    model = policy_model_new(POLICY_DIALECT_NATIVE);
    assert_int_equal(policy_model_deny_cidr(model, "8.8.8.8", "--deny-cidr 8.8.8.8", &err), 0);
    assert_int_equal(policy_model_learn(model, &err), -EINVAL);
    assert_non_null(strstr(err.text, "--deny-cidr 8.8.8.8: "));
    assert_int_equal(model->allow_count, 0);
    policy_model_free(model);
}

// Synthetic names under an open base are a choice; without it they stay real.
static void test_open_base_names(void **state) {
    (void)state;
    struct error err = {0};
    struct policy_model *model = NULL;
    struct policy_warnings warnings = {0};
    for (int synthetic = 0; synthetic < 2; synthetic++) {
        const char *text = synthetic ? "{version: 1, base: allow, dns: {names: synthetic}}" : "{version: 1, base: allow}";
        assert_int_equal(policy_read(text, strlen(text), "p", POLICY_DIALECT_AUTO, &model, &err), 0);
        struct policy *policy = fixture_compile(model, NULL, &warnings);
        assert_int_equal(policy_facts(policy).synthetic, synthetic);
        assert_true(policy_facts(policy).base_allow);
        policy_free(policy);
        policy_model_free(model);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_data),   cmocka_unit_test(test_find),
        cmocka_unit_test(test_option), cmocka_unit_test(test_native),
        cmocka_unit_test(test_overlaps), cmocka_unit_test(test_learn),
        cmocka_unit_test(test_nothing_to_learn), cmocka_unit_test(test_open_base_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
