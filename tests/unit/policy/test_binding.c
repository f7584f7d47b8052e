// SPDX-License-Identifier: Apache-2.0
// What may be said in bindings, in every dialect, and that no message repeats a secret that was put in the wrong place.
#include "fixture.h"

#include <errno.h>

#include "policy/binding.h"

#define MARK "hunter2hunter2"

static int read_model(const char *text, enum policy_dialect dialect, struct policy_model **ret_model, struct error *err) {
    int r = policy_read(text, strlen(text), "p.yaml", dialect, ret_model, err);
    if (r == 0) r = policy_model_set_type(*ret_model, POLICY_TYPE_PROCESS, err);
    if (r == 0) r = policy_check_type(*ret_model, POLICY_TYPE_PROCESS, err);
    return r;
}

static struct policy_model *model_of(const char *text, enum policy_dialect dialect) {
    struct policy_model *model = NULL;
    struct error err = {0};
    if (read_model(text, dialect, &model, &err) < 0) fail_msg("%s", err.text);
    return model;
}

static void refused(const char *text, enum policy_dialect dialect, const char *says) {
    struct policy_model *model = NULL;
    struct error err = {0};
    assert_int_equal(read_model(text, dialect, &model, &err), -EINVAL);
    if (!strstr(err.text, says)) fail_msg("expected \"%s\" in \"%s\"", says, err.text);
    if (strstr(err.text, MARK)) fail_msg("a secret in \"%s\"", err.text);
    policy_model_free(model);
}

#define OPEN "version: 1\nallow: [{host: a.example}, {host: b.example}, {host: github.com}, {host: api.github.com}, {host: api.mistral.ai}]\n"

static void test_native(void **state) {
    (void)state;
    struct policy_model *model = model_of(
        OPEN "credentials:\n"
             "  - {host: a.example, basic: robot, secret: 'env:A', variable: A, scrub: true}\n"
             "  - {host: b.example, header: X-Auth, value: '{secret}:', basic: true, secret: 'file:/x'}\n"
             "  - {binding: github, repos: [O/R.git], methods: [GET, PUT, GET], variable: GITHUB_TOKEN}\n"
             "  - {binding: mistral_api, path: /v1/, secret: 'store:m'}\n",
        POLICY_DIALECT_NATIVE);
    const struct policy_binding *bindings = model->bindings;
    struct policy_binding_target targets[POLICY_BINDING_TARGETS];
    char text[POLICY_BINDING_TEXT_SIZE];
    assert_int_equal(model->binding_count, 4);
    assert_int_equal(policy_binding_targets(&bindings[0], targets), 1);
    assert_true(targets[0].basic && strcmp(targets[0].value, "robot:{secret}") == 0);
    assert_string_equal(targets[0].header, "Authorization");
    assert_int_equal(policy_binding_targets(&bindings[1], targets), 1);
    assert_true(targets[0].basic && strcmp(targets[0].value, "{secret}:") == 0);
    assert_true(bindings[2].method_count == 2 && strcmp(bindings[2].methods[1], "PUT") == 0);
    assert_string_equal(bindings[3].path, "/v1");
    assert_string_equal(policy_binding_text(&bindings[0], text),
                        "Authorization for a.example from env:A, placeholder in A, scrubbed from responses");
    assert_string_equal(policy_binding_text(&bindings[2], text),
                        "github in o/r on GET, PUT from env:GITHUB_TOKEN, placeholder in GITHUB_TOKEN");
    assert_string_equal(policy_binding_text(&bindings[3], text), "mistral_api below /v1 from store:m");
    policy_model_free(model);
}

static const struct {
    const char *entries, *says;
} native_refused[] = {
    {"{host: a.example, header: X, secret: 'env:A', path: v1}", "path \"v1\" is not a prefix of whole segments"},
    {"{host: a.example, header: X, secret: 'env:A', path: /}", "path \"/\""},
    {"{host: a.example, header: X, secret: 'env:A', path: /a//b}", "path \"/a//b\""},
    {"{host: a.example, header: X, secret: 'env:A', path: /a/../b}", "path \"/a/../b\""},
    {"{host: a.example, header: X, secret: 'env:A', path: '/a%2fb'}", "path \"/a%2fb\""},
    {"{host: a.example, header: X, secret: 'env:A', path: '/a?b'}", "path \"/a?b\""},
    {"{host: a.example, header: X, secret: 'env:A', methods: []}", "methods is an empty list"},
    {"{host: a.example, header: X, secret: 'env:A', methods: [get]}", "\"get\" is not an HTTP method"},
    {"{host: a.example, header: X, secret: 'env:A', methods: [GET, GTE]}", "\"GTE\" is not an HTTP method"},
    {"{host: a.example, header: X, secret: 'env:A', methods: [TRACK]}", "method \"TRACK\" never gets a credential"},
    {"{host: a.example, header: X, secret: 'env:A', methods: ['G T']}", "\"G T\" is not an HTTP method"},
    {"{host: a.example, header: X, secret: 'env:A', methods: [TRACE]}", "method \"TRACE\" never gets a credential"},
    {"{host: a.example, header: X, secret: 'env:A', variable: 1A}", "variable \"1A\""},
    {"{host: a.example, header: X, secret: 'env:A', variable: 'A=B'}", "variable \"A=B\""},
    {"{host: a.example, header: X, secret: 'env:A', variable: ''}", "variable \"\""},
    {"{host: a.example, header: X, secret: 'env:A', variable: PATH}", "variable \"PATH\" changes how programs run"},
    {"{host: a.example, header: X, secret: 'env:A', variable: LD_PRELOAD}", "variable \"LD_PRELOAD\" changes how programs run"},
    {"{host: a.example, header: X, secret: 'env:A', variable: https_proxy}", "variable \"https_proxy\" changes how programs run"},
    {"{host: a.example, header: X, secret: 'env:A', variable: SHELL}", "variable \"SHELL\" changes how programs run"},
    {"{host: a.example, header: X, secret: 'env:A', scrub: 1}", "scrub must be true or false"},
    {"{host: a.example, header: X, secret: 'env:A', repos: [a/b]}", "repos does not go with binding: header"},
    {"{host: a.example, secret: 'env:A'}", "has no header name"},
    {"{host: a.example, basic: 'a:b', secret: 'env:A'}", "basic \"a:b\" is not a user"},
    {"{host: a.example, basic: '', secret: 'env:A'}", "basic \"\" is not a user"},
    {"{host: a.example, basic: '{secret}', secret: 'env:A'}", "is not a user"},
    {"{host: a.example, basic: x, value: 'y:{secret}', secret: 'env:A'}", "the user is in the value already"},
    {"{host: a.example, basic: true, secret: 'env:A'}", "no USER:PASSWORD in its value"},
    {"{host: a.example, basic: true, value: '{secret}', secret: 'env:A'}", "no USER:PASSWORD in its value"},
    {"{host: a.example, header: X, value: '{secret', secret: 'env:A'}", "a secret that its value does not use"},
    {"{host: a.example, header: X, value: " MARK "}", "has a value without {secret}"},
    {"{host: a.example, value: 'u:" MARK "', basic: true}", "has a value without {secret}"},
    {"{host: a.example, header: X, value: ' {secret}', secret: 'env:A'}", "begins or ends with a blank"},
    {"{host: a.example, header: X, value: \"" MARK "\\r\\n\", secret: 'env:A'}", "line break"},
    {"{host: a.example, header: X, value: \"a\\0" MARK "\", secret: 'env:A'}", "line break"},
    {"{host: a.example, header: X, value: [" MARK "], secret: 'env:A'}", "credentials: value: expected a string"},
    {"{host: a.example, header: X, secret: " MARK "}", "secret \"...\" is not a reference"},
    {"{host: a.example, header: X, secret: \"env:" MARK "\\n\"}", "secret \"env:...\" is not a reference"},
    {"{host: a.example, header: X, secret: 'vault:" MARK "'}", "secret \"vault:...\" is not a reference"},
    {"{host: a.example, header: X, secret: 'env:A=" MARK "'}", "secret \"env:...\" is not a reference"},
    {"{host: a.example, header: X, secret: 'env:'}", "secret \"env:...\" is not a reference"},
    {"{host: a.example, header: X, secret: {a: " MARK "}}", "credentials: secret: expected a string"},
    {"{host: a.example, header: Expect, secret: 'env:A'}", "frames or routes"},
    {"{binding: github, path: /octo}", "path does not go with binding: github"},
    {"{binding: github, basic: x}", "basic does not go with binding: github"},
    {"{binding: mistral_api, repos: [a/b]}", "repos does not go with binding: mistral_api"},
    {"{binding: workspace, methods: [GET]}", "methods does not go with binding: workspace, whose rules the operator keeps"},
    {"{binding: workspace, secret: 'env:A'}", "secret does not go with binding: workspace"},
    // Several.
    {"{host: a.example, header: X-k, secret: 'env:A', path: /a}, {host: A.example, header: x-K, secret: 'env:B', path: /b}",
     "two bindings set header x-K for a.example"},
    {"{host: a.example, header: X, secret: 'env:A', methods: [GET]}, {host: a.example, header: X, secret: 'env:B', methods: [PUT]}",
     "two bindings set header X for a.example"},
    {"{binding: github}, {host: api.github.com, header: authorization, secret: 'env:A'}",
     "two bindings set header authorization for api.github.com"},
    {"{host: a.example, header: X, secret: 'env:A', variable: V}, {host: b.example, header: X, secret: 'env:B', variable: V}",
     "two bindings set variable V"},
    {"{host: a.example, header: X, secret: 'env:A', variable: B}, {host: b.example, header: X, secret: 'env:B'}",
     "variable B is the secret of another binding"},
    {"{host: b.example, header: X, secret: 'env:B'}, {host: a.example, header: X, secret: 'file:/x', variable: B}",
     "variable B is the secret of another binding"},
};

static void test_native_refused(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(native_refused); i++) {
        char text[1024];
        snprintf(text, sizeof(text), "%scredentials: [%s]\n", OPEN, native_refused[i].entries);
        refused(text, POLICY_DIALECT_NATIVE, native_refused[i].says);
    }
    policy_model_free(model_of(OPEN "credentials: [{host: a.example, header: X, secret: 'env:A', variable: LDAP_TOKEN}]\n",
                               POLICY_DIALECT_NATIVE)); // begins as one of those that are refused
    // One secret for two hosts, with its own name for the placeholder.
    policy_model_free(model_of(OPEN "credentials: [{host: a.example, header: X, secret: 'env:A', variable: A},\n"
                                    "  {host: b.example, header: X, secret: 'env:A'}]\n", POLICY_DIALECT_NATIVE));
}

static void test_counts(void **state) {
    (void)state;
    struct policy_model *model = policy_model_new(POLICY_DIALECT_NATIVE);
    struct error err = {0};
    assert_non_null(model);
    char text[64];
    for (int i = 0; i < POLICY_CREDENTIALS_MAX; i++) {
        snprintf(text, sizeof(text), "header:a.example:X-%d=env:A", i);
        assert_int_equal(policy_model_bind(model, text, "--bind", &err), 0);
    }
    assert_int_equal(policy_model_bind(model, "header:a.example:Y=env:A", "--bind", &err), -EINVAL);
    assert_non_null(strstr(err.text, "more than 16 headers are bound to a.example"));
    for (int i = POLICY_CREDENTIALS_MAX; i < POLICY_BINDINGS_MAX; i++) {
        snprintf(text, sizeof(text), "header:h%d.example:X=env:A", i);
        assert_int_equal(policy_model_bind(model, text, "--bind", &err), 0);
    }
    assert_int_equal(policy_model_bind(model, "header:b.example:Y=env:A", "--bind", &err), -EINVAL);
    assert_non_null(strstr(err.text, "more than 256 bindings"));
    policy_model_free(model);
}

static void test_options(void **state) {
    (void)state;
    struct policy_model *model = policy_model_new(POLICY_DIALECT_NATIVE);
    struct error err = {0};
    assert_int_equal(policy_model_bind(model, "basic:a.example:robot=env:A", "--bind basic:a.example:robot=env:A", &err), 0);
    assert_int_equal(policy_model_bind(model, "header:b.example:X:k={secret}=file:/x",
                                       "--bind header:b.example:X:k={secret}=file:/x", &err), 0);
    assert_true(model->bindings[0].basic && strcmp(model->bindings[0].value, "robot:{secret}") == 0);
    assert_string_equal(model->bindings[0].source, "--bind basic:a.example");
    assert_string_equal(model->bindings[1].source, "--bind header:b.example:X"); // a template can be what it should not be
    static const char *const bad[] = {
        "github=" MARK,       "github:a/b=" MARK,    "header:a.org:X=" MARK,       "header:a.org:X=vault:" MARK,
        "header:a.org:X:" MARK "\n", "basic:a.org:u=" MARK, "basic:a.org",               "basic::u=env:A",
        "basic:a.org:=env:A", "mistral_api=" MARK,   "header:a.org:X:" MARK "=env:A",
    };
    for (size_t i = 0; i < ARRAY_LENGTH(bad); i++) {
        assert_int_equal(policy_model_bind(model, bad[i], "--bind", &err), -EINVAL);
        if (strstr(err.text, MARK)) fail_msg("a secret in \"%s\"", err.text);
    }
    assert_int_equal(policy_model_bind(model, "header:a.org:X:" MARK, "--bind", &err), -EINVAL);
    assert_non_null(strstr(err.text, "\"header:a.org:X\": the binding for a.org has a value without {secret}"));
    assert_int_equal(policy_model_bind(model, "header:a.org:8443:X-Key:{secret}=env:A", "--bind", &err), -EINVAL);
    assert_non_null(strstr(err.text, "\"a.org:8443\" has a port"));
    assert_int_equal(model->binding_count, 2);
    policy_model_free(model);
}

static void test_reach(void **state) {
    (void)state;
    static const struct {
        const char *policy, *says; // NULL: fine
    } cases[] = {
        {"allow: [{host: a.example}]", NULL},
        {"allow: [{host: a.example, ports: [8443]}]", NULL},
        {"allow: [{host: '*.example'}]", NULL},
        {"base: allow", NULL},
        {"allow: [{host: a.example}, {host: a.example, protocol: tcp, ports: [22]}]", NULL},
        {"base: allow\nallow: [{host: a.example, protocol: tcp, ports: [22]}]", NULL},
        {"allow: []", "ProcessSandbox: agents.HeaderBinding needs network access to a.example, which base: deny blocks"},
        {"allow: [{host: b.example}]", "needs network access to a.example, which base: deny blocks; pass base: allow or add the hosts"},
        {"allow: [{host: '*.a.example'}]", "needs network access to a.example, which base: deny blocks"},
        {"allow: [{cidr: 203.0.113.0/24}]", "needs network access to a.example"},
        {"allow: [{host: a.example, protocol: http}]", "needs network access to a.example"},
        {"base: allow\ndeny: [{cidr: 0.0.0.0/0}]", "needs network access to a.example"},
        {"allow: [{host: a.example, protocol: tcp, ports: [443]}]", "needs https to a.example, which p.yaml:2 opens as protocol: tcp"},
        {"allow: [{host: a.example, ports: [8443]}, {host: '*.example', protocol: tcp, ports: ['8000-9000']}]", "needs https to a.example"},
        {"allow: [{host: a.example, ports: ['8000-9000']}, {host: '*.example', protocol: tcp, ports: [8443]}]", "needs https to a.example"},
        {"base: allow\nallow: [{host: a.example, protocol: tcp, ports: ['1-65535']}]", "needs https to a.example"},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        char text[512];
        snprintf(text, sizeof(text), "version: 1\n%s\ncredentials: [{host: a.example, header: X, secret: 'env:A'}]\n", cases[i].policy);
        if (cases[i].says)
            refused(text, POLICY_DIALECT_NATIVE, cases[i].says);
        else
            policy_model_free(model_of(text, POLICY_DIALECT_NATIVE));
    }
}

// ---- the operator's rules ----

static void node_of(const char *text, struct policy_node *ret_node) {
    struct error err = {0};
    if (policy_node_read(text, strlen(text), "node.yaml", NULL, ret_node, &err) < 0) fail_msg("%s", err.text);
}

#define RULES "credentials:\n  workspace:\n    - {host: a.example, header: X-Team, secret: 'store:team', path: /v1, methods: [GET]}\n" \
              "    - {host: c.example, basic: robot, secret: 'store:c'}\n"

static void test_workspace(void **state) {
    (void)state;
    struct policy_node node;
    struct error err = {0};
    node_of(RULES, &node);
    assert_int_equal(node.workspace_count, 2);
    struct policy_model *model = model_of("header_bindings: [{workspace: {}}]\nnetwork: all\n", POLICY_DIALECT_NETWORK);
    assert_int_equal(policy_bind_workspace(model, NULL, &err), -EINVAL);
    assert_non_null(strstr(err.text, "p.yaml:1: the workspace binding has no rules"));
    policy_model_free(model);
    // The base reaches both; then one of two; then none.
    model = model_of("header_bindings: [{workspace: {}}]\nnetwork: all\n", POLICY_DIALECT_NETWORK);
    assert_int_equal(policy_bind_workspace(model, &node, &err), 0);
    assert_int_equal(model->binding_count, 2);
    assert_string_equal(model->bindings[0].source, "node.yaml:3");
    assert_string_equal(policy_binding_name(&model->bindings[1]), "WorkspaceHeaderBindings");
    assert_int_equal(policy_bind_workspace(model, NULL, &err), 0); // done
    policy_model_free(model);
    model = model_of(OPEN "credentials: [{binding: workspace}, {host: b.example, header: X, secret: 'env:B'}]\n", POLICY_DIALECT_NATIVE);
    assert_int_equal(policy_bind_workspace(model, &node, &err), 0);
    assert_int_equal(model->binding_count, 2);
    assert_string_equal(model->bindings[0].header, "X");
    assert_true(strcmp(model->bindings[1].path, "/v1") == 0 && model->bindings[1].method_count == 1);
    policy_model_free(model);
    model = model_of("version: 1\nallow: [{host: z.example}]\ncredentials: [{binding: workspace}]\n", POLICY_DIALECT_NATIVE);
    assert_int_equal(policy_bind_workspace(model, &node, &err), -EINVAL);
    assert_non_null(strstr(err.text, "reaches no host of the workspace's rules (a.example, c.example)"));
    policy_model_free(model);
    model = model_of(OPEN "credentials: [{binding: workspace}, {host: a.example, header: x-team, secret: 'env:B'}]\n", POLICY_DIALECT_NATIVE);
    assert_int_equal(policy_bind_workspace(model, &node, &err), -EINVAL);
    assert_non_null(strstr(err.text, "p.yaml:3 and node.yaml:3: two bindings set header X-Team for a.example"));
    policy_model_free(model);
    model = model_of("version: 1\nallow: [{host: a.example, protocol: tcp, ports: [443]}]\ncredentials: [{binding: workspace}]\n",
                     POLICY_DIALECT_NATIVE);
    assert_int_equal(policy_bind_workspace(model, &node, &err), -EINVAL);
    assert_non_null(strstr(err.text, "node.yaml:3: ProcessSandbox: agents.HeaderBinding needs https to a.example"));
    policy_model_free(model);
    policy_node_done(&node);
}

static void test_workspace_refused(void **state) {
    (void)state;
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"credentials: {workspace: [{binding: workspace}]}\n", "a rule cannot be binding: workspace"},
        {"credentials: {workspace: [{host: a.example, header: X, secret: " MARK "}]}\n", "node.yaml:1: secret \"...\""},
        {"credentials: {workspace: [{host: a.example, header: X, value: " MARK "}]}\n", "has a value without {secret}"},
        {"credentials: {workspaces: []}\n", "did you mean \"workspace\"?"},
        {"credentials: {workspace: [{binding: github}, {binding: github}]}\n", "two bindings set header Authorization"},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct policy_node node;
        struct error err = {0};
        assert_int_equal(policy_node_read(cases[i].text, strlen(cases[i].text), "node.yaml", NULL, &node, &err), -EINVAL);
        if (!strstr(err.text, cases[i].says)) fail_msg("expected \"%s\" in \"%s\"", cases[i].says, err.text);
        assert_null(strstr(err.text, MARK));
    }
}

// A guardrail over a bound host, and E2B rules that nothing opens.
static void test_closed_hosts(void **state) {
    (void)state;
    struct policy_node node;
    struct policy *policy = NULL;
    struct policy_warnings warnings = {0};
    struct error err = {0};
    node_of("network: {egress: {always_denied: [a.example]}}\n", &node);
    struct policy_model *model = model_of("version: 1\nbase: allow\ncredentials: [{host: a.example, header: X, secret: 'env:A'}]\n",
                                          POLICY_DIALECT_NATIVE);
    assert_int_equal(policy_compile(model, &node, NULL, 0, 1, &policy, &warnings, &err), -EINVAL);
    assert_non_null(strstr(err.text, "the credential for a.example can never be added: rule \"node always_denied a.example\""));
    policy_model_free(model);
    policy_node_done(&node);
    model = model_of("{\"network\":{\"denyOut\":[\"0.0.0.0/0\"],\"rules\":{\"a.example\":[{\"transform\":{\"headers\":{\"X\":\"" MARK "\"}}}]}}}",
                     POLICY_DIALECT_E2B);
    assert_int_equal(policy_compile(model, NULL, NULL, 0, 1, &policy, &warnings, &err), 0);
    assert_int_equal(warnings.count, 1);
    assert_non_null(strstr(warnings.lines[0], "the headers for a.example are never added"));
    assert_null(strstr(warnings.lines[0], MARK));
    policy_warnings_done(&warnings);
    policy_free(policy);
    policy_model_free(model);
}

// ---- E2B ----

static void test_e2b(void **state) {
    (void)state;
    struct policy_model *model = model_of(
        "{\"network\":{\"allowOut\":[\"api.example.com\"],\"denyOut\":[\"0.0.0.0/0\"],\"rules\":{\"API.example.com\":[{\"transform\":"
        "{\"headers\":{\"X-A\":\"" MARK "\",\"Authorization\":\"Bearer x\"}}}]}}}", POLICY_DIALECT_E2B);
    assert_int_equal(model->binding_count, 2);
    struct policy_binding_target targets[POLICY_BINDING_TARGETS];
    char text[POLICY_BINDING_TEXT_SIZE];
    const struct policy_binding *binding = &model->bindings[0];
    assert_int_equal(policy_binding_targets(binding, targets), 1);
    assert_string_equal(targets[0].host, "api.example.com");
    assert_string_equal(targets[0].value, "{secret}");
    assert_string_equal(policy_binding_secret(binding), "env:=api.example.com/X-A");
    assert_string_equal(binding->literal, MARK);
    assert_string_equal(policy_binding_text(binding, text), "X-A for api.example.com");
    size_t size;
    struct policy *policy = fixture_compile(model, NULL, NULL);
    const void *block = policy_block(policy, &size);
    assert_null(memmem(block, size, MARK, strlen(MARK))); // the gate maps it
    policy_free(policy);
    policy_model_free(model);
    static const struct {
        const char *rules, *says;
    } bad[] = {
        {"{\"a.org\":[{\"transform\":{\"headers\":{\"X\":12345678901234}}}]}", "expected a string"},
        {"{\"a.org\":[{\"transform\":{\"headers\":{\"X\":[\"" MARK "\"]}}}]}", "expected a string"},
        {"{\"a.org\":[{\"transform\":{\"headers\":{\"X\":\"" MARK "\\r\\n\"}}}]}", "line break"},
        {"{\"a.org\":[{\"transform\":{\"headers\":{\"X\":\"" MARK " \"}}}]}", "begins or ends with a blank"},
        {"{\"a.org\":[{\"transform\":{\"headers\":{\"X\":\"\"}}}]}", "is empty"},
        {"{\"a.org\":[{\"transform\":{\"headers\":{\"X\":\"{secret}" MARK "\"}}}]}", "has no meaning in this dialect"},
        {"{\"a.org\":[{\"transform\":{\"headers\":{\"X\":\"${e2b.secrets.A}\"}}}]}", "has no meaning in this dialect"},
        {"{\"a.org\":[{\"transform\":{\"headers\":{\"Host\":\"" MARK "\"}}}]}", "frames or routes"},
        {"{\"a.org\":[{\"transform\":{\"headers\":{\"X\":\"" MARK "\",\"x\":\"b\"}}}]}", "two bindings set header x for a.org"},
        {"{\"*.a.org\":[{\"transform\":{\"headers\":{\"X\":\"" MARK "\"}}}]}", "\"*.a.org\" is a wildcard"},
        {"{\"*\":[{\"transform\":{\"headers\":{\"X\":\"" MARK "\"}}}]}", "\"*\" is a wildcard"},
        {"{\"a.org\":[{\"transform\":{\"headers\":\"" MARK "\"}}]}", "must be a mapping"},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(bad); i++) {
        char policy_text[512];
        snprintf(policy_text, sizeof(policy_text), "{\"network\":{\"rules\":%s}}", bad[i].rules);
        refused(policy_text, POLICY_DIALECT_E2B, bad[i].says);
    }
}

static void test_placeholders(void **state) {
    (void)state;
    static const struct {
        const char *variable, *start;
        size_t length;
    } cases[] = {
        {"GITHUB_TOKEN", "ghp_", 40}, {"GH_TOKEN", "ghp_", 40}, {"OPENAI_API_KEY", "sk-", 51},
        {"ANTHROPIC_API_KEY", "sk-ant-api03-", 108}, {"MISTRAL_API_KEY", "", 32}, {"SOMETHING", "", 32},
    };
    char buf[POLICY_PLACEHOLDER_SIZE];
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        char variable[32];
        snprintf(variable, sizeof(variable), "%s", cases[i].variable);
        struct policy_binding binding = {.variable = variable};
        policy_binding_placeholder(&binding, buf);
        assert_int_equal(strlen(buf), cases[i].length);
        assert_memory_equal(buf, cases[i].start, strlen(cases[i].start));
        assert_non_null(strstr(buf, POLICY_PLACEHOLDER));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_native),       cmocka_unit_test(test_native_refused),    cmocka_unit_test(test_counts),
        cmocka_unit_test(test_options),      cmocka_unit_test(test_reach),             cmocka_unit_test(test_workspace),
        cmocka_unit_test(test_workspace_refused), cmocka_unit_test(test_closed_hosts), cmocka_unit_test(test_e2b),
        cmocka_unit_test(test_placeholders),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
