// SPDX-License-Identifier: Apache-2.0
// The options that say a policy: what they build, and the one line each bad one gives.
#include "cli/policy_options.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/mem.h"

#define ARGS(...)                                                                                                      \
    (char *[]) { "check", __VA_ARGS__, NULL }

// Takes every argument; 0, or the first error. An argument that is no policy option: -ENOENT.
static int take_all(struct policy_options *options, char **argv, struct error *err) {
    int argc = 0, index = 1;
    while (argv[argc]) argc++;
    while (index < argc) {
        int r = policy_options_take(options, argc, argv, &index, err);
        if (r == 0) return -ENOENT;
        if (r < 0) return r;
    }
    return 0;
}

static struct policy_model *model_of(char **argv, enum policy_type *type) {
    struct policy_options options = {0};
    struct policy_model *model = NULL;
    struct error err = {0};
    int r = take_all(&options, argv, &err);
    if (r == 0) r = policy_options_finish(&options, &model, type, &err);
    if (r != 0) fail_msg("%s", err.text);
    policy_options_done(&options);
    return model;
}

static void assert_refused(char **argv, const char *says) {
    struct policy_options options = {0};
    struct policy_model *model = NULL;
    enum policy_type type;
    struct error err = {0};
    int r = take_all(&options, argv, &err);
    if (r == 0) r = policy_options_finish(&options, &model, &type, &err);
    assert_true(r < 0);
    assert_null(model);
    if (!strstr(err.text, says)) fail_msg("expected \"%s\" in \"%s\"", says, err.text);
    policy_options_done(&options);
}

static void test_build(void **state) {
    (void)state;
    enum policy_type type;
    struct policy_model *model =
        model_of(ARGS("--allow", "API.github.com", "--allow=*.npmjs.org:8443", "--allow-cidr", "10.0.0.0/8",
                      "--deny-cidr=8.8.8.8", "--allow-private", "--type=container"),
                 &type);
    assert_int_equal(type, POLICY_TYPE_CONTAINER);
    assert_true(model->has_type && model->type == POLICY_TYPE_CONTAINER);
    assert_true(!model->base_allow && !model->block_private);
    assert_int_equal(model->allow_count, 3);
    assert_string_equal(model->allow[0].name, "api.github.com");
    assert_string_equal(model->allow[0].source, "--allow API.github.com");
    assert_string_equal(model->allow[1].source, "--allow *.npmjs.org:8443");
    assert_int_equal(model->deny_count, 1);
    policy_model_free(model);
    model = model_of(ARGS("--network", "all", "--bind", "github=env:T"), &type);
    assert_int_equal(type, POLICY_TYPE_PROCESS);
    assert_true(model->base_allow && model->block_private);
    assert_string_equal(model->base_source, "--network all");
    assert_string_equal(model->bindings[0].source, "--bind github");
    policy_model_free(model);
    model = model_of((char *[]){"check", NULL}, &type);
    assert_true(!model->base_allow && model->block_private && model->allow_count == 0);
    policy_model_free(model);
    model = model_of(ARGS("--type", "host"), &type);
    assert_true(model->base_allow);
    policy_model_free(model);
}

// By hash: a walk for each would take minutes.
static void test_many(void **state) {
    (void)state;
    enum { HOSTS = 100000 };
    struct policy_model *model = policy_model_new(POLICY_DIALECT_NATIVE);
    assert_non_null(model);
    for (size_t i = 0; i < 2 * (size_t)HOSTS; i++) { // each of them twice
        char host[32];
        snprintf(host, sizeof(host), "h%zu.example", i % HOSTS);
        assert_int_equal(policy_model_allow(model, host, "--allow", NULL), 0);
    }
    assert_int_equal(model->allow_count, HOSTS);
    policy_model_free(model);
}

static void test_other_options(void **state) {
    (void)state;
    struct policy_options options = {0};
    struct error err = {0};
    int index = 1;
    assert_int_equal(policy_options_take(&options, 2, ARGS("--json"), &index, &err), 0);
    assert_int_equal(policy_options_take(&options, 2, ARGS("--allowed"), &index, &err), 0);
    assert_int_equal(policy_options_take(&options, 2, ARGS("https://a.org"), &index, &err), 0);
    assert_int_equal(index, 1);
    assert_int_equal(policy_options_take(&options, 4, ARGS("--allow", "a.org", "x"), &index, &err), 1);
    assert_int_equal(index, 3);
    policy_options_done(&options);
}

static void test_refused(void **state) {
    (void)state;
    assert_refused(ARGS("--allow"), "--allow needs a value; write such as --allow api.github.com");
    assert_refused(ARGS("--allow", "--"), "--allow needs a value");
    assert_refused(ARGS("--allow="), "--allow: \"\" is empty");
    assert_refused(ARGS("--allow", "https://a.org/x"), "--allow: \"https://a.org/x\" has a scheme; write \"a.org\"");
    assert_refused(ARGS("--allow", "a.org:0"), "--allow: \"a.org:0\" has a bad port");
    assert_refused(ARGS("--allow", "@npm"), "--allow: \"@npm\" is not a preset; write one of @alpine,");
    assert_refused(ARGS("--allow-cidr", "10.0.0.1/8"),
                   "--allow-cidr: \"10.0.0.1/8\" has host bits set; write \"10.0.0.0/8\"");
    assert_refused(ARGS("--deny-cidr", "a.org"), "--deny-cidr: \"a.org\" is not an IP address");
    assert_refused(ARGS("--allow-cidr", "10.0.0.1:22"),
                   "--allow-cidr: \"10.0.0.1:22\" has a port; ports go in an entry of a policy file: {cidr: \"10.0.0.1\", "
                   "ports: [22]}");
    assert_refused(ARGS("--allow-cidr", "[2001:db8::1]:22"), "{cidr: \"2001:db8::1\", ports: [22]}");
    assert_refused(ARGS("--deny-cidr", "[2001:db8::1]"), "write \"2001:db8::1\" without brackets");
    assert_refused(ARGS("--network", "some"), "--network: \"some\" is neither none nor all");
    assert_refused(ARGS("--network", "all", "--network", "none"), "--network: given twice");
    assert_refused(ARGS("--allow-private=yes"), "--allow-private takes no value, not \"yes\"");
    assert_refused(ARGS("--bind", "gitlab"), "--bind: \"gitlab\"");
    assert_refused(ARGS("--type", "vm"), "--type: there is no sandbox type \"vm\"");
    assert_refused(ARGS("--policy", "a", "--policy", "b"), "--policy: given twice (\"a\" and \"b\")");
    assert_refused(ARGS("--policy", "/nonexistent/p.yaml"),
                   "policy file \"/nonexistent/p.yaml\" cannot be read: No such file");
    assert_refused(ARGS("--policy", "/dev/null"), "/dev/null: the text is empty");
    assert_refused(ARGS("--policy", "/dev/zero"), "policy file \"/dev/zero\" is larger than 1 MiB");
    assert_refused(ARGS("--policy", "/dev/null", "--allow", "a.org"), "--policy stands alone");
    assert_refused(ARGS("--dialect", "e2b"), "--dialect \"e2b\" says how to read a file; add --policy FILE");
    assert_refused(ARGS("--dialect", "yaml", "--policy", "/dev/null"), "--dialect: \"yaml\" is not a dialect");
    assert_refused(ARGS("--type", "docker", "--allow", "a.org"), "LocalDockerSandbox does not support Network.allow()");
}

static void write_file(char path[32], const char *text) {
    snprintf(path, 32, "/tmp/penstock-test-XXXXXX");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
}

static void test_file(void **state) {
    (void)state;
    char path[32];
    enum policy_type type;
    write_file(path, "type: container\nnetwork: all\n");
    struct policy_model *model = model_of(ARGS("--policy", path), &type);
    assert_int_equal(type, POLICY_TYPE_CONTAINER);
    assert_true(model->base_allow);
    policy_model_free(model);
    assert_refused(ARGS("--policy", path, "--type", "process"),
                   "the type is \"container\" in the policy and \"process\" beside it");
    assert_refused(ARGS("--policy", path, "--dialect", "native"), ":2: unknown key \"network\" in the policy");
    unlink(path);
}

static void test_node(void **state) {
    (void)state;
    char path[32];
    struct policy_options options = {0};
    struct policy_node node = {0};
    struct error err = {0};
    bool has = true;
    struct policy_model *model = policy_model_new(POLICY_DIALECT_NATIVE);
    assert_non_null(model);
    unsetenv("PENSTOCK_NETWORK_EGRESS_ALWAYS_DENIED");
    assert_int_equal(policy_options_node(&options, model, &node, &has, &err), 0);
    assert_false(has);
    setenv("PENSTOCK_NETWORK_EGRESS_ALWAYS_DENIED", "8.8.8.0/24", 1);
    assert_int_equal(policy_options_node(&options, model, &node, &has, &err), 0);
    assert_true(has && node.always_denied_count == 1);
    policy_node_done(&node);
    unsetenv("PENSTOCK_NETWORK_EGRESS_ALWAYS_DENIED");
    write_file(path, "network: {egress: {always_denied: [9.9.9.9, a.org]}}\n");
    options.node_config = path;
    assert_int_equal(policy_options_node(&options, model, &node, &has, &err), 0);
    assert_true(has && node.always_denied_count == 1 && node.always_denied_name_count == 1);
    policy_node_done(&node);
    unlink(path);
    assert_true(policy_options_node(&options, model, &node, &has, &err) < 0);
    assert_false(has);
    assert_non_null(strstr(err.text, "node configuration"));
    policy_model_free(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_build),   cmocka_unit_test(test_many), cmocka_unit_test(test_other_options),
        cmocka_unit_test(test_refused), cmocka_unit_test(test_file), cmocka_unit_test(test_node),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
