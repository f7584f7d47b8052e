// SPDX-License-Identifier: Apache-2.0
// What each type can enforce, and the messages to the letter.
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/mem.h"
#include "policy/model.h"

static struct policy_model *model_of(const char *text) {
    struct policy_model *model = NULL;
    struct error err = {0};
    if (policy_read(text, strlen(text), "p", POLICY_DIALECT_AUTO, &model, &err) != 0) fail_msg("%s", err.text);
    return model;
}

static void assert_check(const char *text, enum policy_type type, const char *message) {
    struct policy_model *model = model_of(text);
    struct error err = {0};
    int r = policy_check_type(model, type, &err);
    assert_string_equal(err.text, message ? message : "");
    assert_int_equal(r, message ? -EINVAL : 0);
    policy_model_free(model);
}

static void test_table(void **state) {
    (void)state;
    static const char *const words[] = {"none", "bashkit", "mistral", "docker",
                                        "host", "custom",  "process", "container"};
    enum policy_type type;
    for (size_t i = 0; i < POLICY_TYPE_COUNT; i++) {
        assert_true(policy_type_from_word(words[i], &type));
        assert_int_equal(type, i);
        assert_string_equal(policy_type_info(type)->word, words[i]);
        bool built = type != POLICY_TYPE_DOCKER && type != POLICY_TYPE_CUSTOM;
        assert_int_equal(policy_type_info(type)->built, built);
        assert_int_equal(policy_type_info(type)->none, type != POLICY_TYPE_HOST);
    }
    assert_false(policy_type_from_word("Process", &type));
    assert_false(policy_type_from_word("", &type));
}

#define ALLOW "{\"network\":{\"allow\":{\"hosts\":[\"a.org\"]}}}"
#define EGRESS "{\"egress\":{\"allow_cidrs\":[\"1.2.3.4\"]}}"
#define GITHUB "\"header_bindings\":[{\"github\":{\"repos\":[\"o/r\"]}}]"

static void test_network(void **state) {
    (void)state;
    assert_check(
        ALLOW, POLICY_TYPE_MISTRAL,
        "MistralSandbox does not support Network.allow(); pass network=Network.none() or network=Network.all()");
    assert_check(ALLOW, POLICY_TYPE_NONE, "NoSandbox does not support Network.allow(); pass network=Network.none()");
    assert_check(ALLOW, POLICY_TYPE_HOST,
                 "DangerousLocalSandbox does not support Network.allow(); pass network=Network.all()");
    assert_check("{\"network\":\"none\"}", POLICY_TYPE_HOST,
                 "DangerousLocalSandbox does not support Network.none(); pass network=Network.all()");
    assert_check("{\"network\":\"all\"}", POLICY_TYPE_CUSTOM,
                 "experimental.CustomSandbox does not support Network.all(); pass network=Network.none()");
    assert_check(ALLOW, POLICY_TYPE_BASHKIT, NULL);
    assert_check(
        "{\"version\":1}", POLICY_TYPE_BASHKIT,
        "BashkitSandbox does not support native policies; pass network=Network.none(), network=Network.all() or "
        "network=Network.allow(hosts=...)");
    assert_check(
        "{\"dialect\":\"e2b\"}", POLICY_TYPE_DOCKER,
        "LocalDockerSandbox does not support e2b policies; pass network=Network.none() or network=Network.all()");
    assert_check("{\"dialect\":\"e2b\"}", POLICY_TYPE_PROCESS, NULL);
    assert_check(EGRESS, POLICY_TYPE_DOCKER,
                 "LocalDockerSandbox does not support EgressPolicy.custom(); pass network=Network.none() or "
                 "network=Network.all() without egress");
    assert_check(EGRESS, POLICY_TYPE_MISTRAL, NULL);
}

static void test_bindings(void **state) {
    (void)state;
    assert_check("{" GITHUB "}", POLICY_TYPE_MISTRAL,
                 "MistralSandbox: agents.GitHubBinding needs network access to github.com, api.github.com, which "
                 "Network.none() blocks; pass network=Network.all()");
    assert_check("{\"egress\":{\"allow_cidrs\":[\"140.82.112.0/20\"]}," GITHUB "}", POLICY_TYPE_MISTRAL,
                 "MistralSandbox: agents.GitHubBinding needs network access to github.com, api.github.com, which "
                 "Network.none() blocks; pass network=Network.all()");
    assert_check(
        "{\"network\":{\"allow\":{\"hosts\":[\"api.github.com:8443\",\"www.github.com\"]}}," GITHUB "}",
        POLICY_TYPE_PROCESS,
        "ProcessSandbox: agents.GitHubBinding needs network access to github.com, which Network.allow() blocks; pass "
        "network=Network.all() or add the hosts");
    assert_check("{\"network\":{\"allow\":{\"hosts\":[\"api.github.com\",\"github.com\"]}}," GITHUB "}",
                 POLICY_TYPE_PROCESS, NULL);
    assert_check("{\"network\":\"all\"," GITHUB "}", POLICY_TYPE_BASHKIT,
                 "BashkitSandbox does not support agents.GitHubBinding; pass header_bindings=()");
    assert_check(
        "{\"header_bindings\":[{\"workspace\":{}}]}", POLICY_TYPE_MISTRAL,
        "MistralSandbox: agents.WorkspaceHeaderBindings needs network access to the hosts of the workspace's rules, "
        "which Network.none() blocks; pass network=Network.all()");
    assert_check(
        "{\"version\":1,\"allow\":[{\"host\":\"*.a.org\"}],\n\"credentials\":[\n{\"host\":\"a.org\",\"header\":\"X\","
        "\"secret\":\"env:K\"}]}",
        POLICY_TYPE_PROCESS,
        "p:3: ProcessSandbox: agents.HeaderBinding needs network access to a.org, which base: deny blocks; pass base: "
        "allow or add the hosts");
    assert_check("{\"version\":1,\"allow\":[{\"host\":\"*.a.org\"}],\"credentials\":[{\"host\":\"x.a.org\",\"header\":"
                 "\"X\",\"secret\":\"env:K\"}]}",
                 POLICY_TYPE_PROCESS, NULL);
    assert_check(
        "{\"version\":1,\"base\":\"allow\",\"deny\":[{\"cidr\":\"0.0.0.0/"
        "0\"}],\"credentials\":[{\"binding\":\"mistral_api\"}]}",
        POLICY_TYPE_CONTAINER,
        "p:1: ContainerSandbox: agents.MistralApiBinding needs network access to api.mistral.ai, which base: deny "
        "blocks; pass base: allow or add the hosts");
}

// A policy made of options is judged by what is in it.
static void test_options(void **state) {
    (void)state;
    struct error err = {0};
    struct policy_model *model = policy_model_new(POLICY_DIALECT_NATIVE);
    assert_int_equal(policy_check_type(model, POLICY_TYPE_DOCKER, &err), 0);
    assert_int_equal(policy_model_allow(model, "a.org", "--allow a.org", &err), 0);
    assert_int_equal(policy_check_type(model, POLICY_TYPE_BASHKIT, &err), 0);
    assert_int_equal(policy_check_type(model, POLICY_TYPE_DOCKER, &err), -EINVAL);
    assert_int_equal(policy_model_allow_cidr(model, "1.2.3.4", "--allow-cidr 1.2.3.4", &err), 0);
    assert_int_equal(policy_check_type(model, POLICY_TYPE_BASHKIT, &err), -EINVAL);
    assert_int_equal(policy_check_type(model, POLICY_TYPE_PROCESS, &err), 0);
    policy_model_free(model);
    model = policy_model_new(POLICY_DIALECT_NATIVE);
    assert_int_equal(policy_model_allow_cidr(model, "1.2.3.4", "--allow-cidr 1.2.3.4", &err), 0);
    assert_int_equal(policy_check_type(model, POLICY_TYPE_MISTRAL, &err), 0);
    assert_int_equal(policy_model_deny_cidr(model, "1.2.3.5", "--deny-cidr 1.2.3.5", &err), 0);
    assert_int_equal(policy_check_type(model, POLICY_TYPE_MISTRAL, &err), -EINVAL);
    policy_model_free(model);
}

static void test_set_type(void **state) {
    (void)state;
    struct error err = {0};
    struct policy_model *model = model_of("{\"type\":\"docker\"}");
    assert_int_equal(policy_model_set_type(model, POLICY_TYPE_PROCESS, &err), -EINVAL);
    assert_string_equal(err.text, "the type is \"docker\" in the policy and \"process\" beside it; keep one");
    assert_int_equal(policy_model_set_type(model, POLICY_TYPE_DOCKER, &err), 0);
    assert_false(model->base_allow);
    policy_model_free(model);
    model = model_of("{}");
    assert_int_equal(policy_model_set_type(model, POLICY_TYPE_HOST, &err), 0);
    assert_true(model->base_allow && model->network == POLICY_NETWORK_ALL);
    policy_model_free(model);
    model = model_of("{\"network\":\"none\"}");
    assert_int_equal(policy_model_set_type(model, POLICY_TYPE_HOST, &err), 0);
    assert_false(model->base_allow);
    policy_model_free(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),   cmocka_unit_test(test_network),  cmocka_unit_test(test_bindings),
        cmocka_unit_test(test_options), cmocka_unit_test(test_set_type),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
