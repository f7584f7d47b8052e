// SPDX-License-Identifier: Apache-2.0
// Which requests get a credential, and which connections are looked at for it. The last test holds the paths against
// readings that servers are known for: whatever the reading, no path that gets a credential is in another repository.
#include <ctype.h>

#include "fixture.h"

#include "policy/binding.h"

static struct policy *policy_of(const char *text, struct policy_model **ret_model) {
    struct error err = {0};
    struct policy *policy = NULL;
    struct policy_warnings warnings = {0};
    if (policy_read(text, strlen(text), "p.yaml", POLICY_DIALECT_NATIVE, ret_model, &err) < 0 ||
        policy_model_set_type(*ret_model, POLICY_TYPE_PROCESS, &err) < 0 ||
        policy_check_type(*ret_model, POLICY_TYPE_PROCESS, &err) < 0 ||
        policy_compile(*ret_model, NULL, NULL, 0, 1, &policy, &warnings, &err) < 0)
        fail_msg("%s", err.text);
    policy_warnings_done(&warnings);
    return policy;
}

static size_t ask(const struct policy *policy, const char *host, const char *method, const char *path,
                  struct policy_credential *ret) {
    struct policy_credential_request request = {.host = host, .method = method, .method_len = method ? strlen(method) : 0,
                                                .path = path, .path_len = path ? strlen(path) : 0};
    return policy_credentials(policy, &request, ret);
}

static bool is_given(const struct policy *policy, const char *host, const char *method, const char *path) {
    struct policy_credential credentials[POLICY_CREDENTIALS_MAX];
    return ask(policy, host, method, path, credentials) > 0;
}

struct path_case {
    const char *path;
    bool given;
};

static void check_paths(const struct policy *policy, const char *host, const struct path_case *cases, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (is_given(policy, host, "GET", cases[i].path) != cases[i].given)
            fail_msg("%s %s: expected %s", host, cases[i].path, cases[i].given ? "a credential" : "none");
}

static const char repos_text[] = "version: 1\nallow: [{host: github.com}, {host: api.github.com}]\n"
                                 "credentials: [{binding: github, repos: [Octo/Hello.git, a/b]}]\n";

static void test_github_paths(void **state) {
    (void)state;
    static const struct path_case cases[] = {
        {"/octo/hello", true},
        {"/octo/hello/", true},
        {"/octo/hello.git", true},
        {"/OCTO/Hello.GIT/info/refs?service=git-upload-pack", true},
        {"/octo/hello/git-receive-pack", true},
        {"/%6fcto/hell%6F/x", true},
        {"/octo/hello/blob/main/a%20b/%C3%A9.md", true},
        {"/octo/hello/blob/main/[id].js", true},
        {"/octo/hello/x/../y", true},
        {"/octo/hello/./x//y/", true},
        {"/octo/hello?a=/../../x/y", true},
        {"/a/b", true},
        {"/octo", false},
        {"/octo/", false},
        {"/", false},
        {"", false},
        {"*", false},
        {"octo/hello", false},
        {"https://github.com/octo/hello", false},
        {"//octo/hello", false},
        {"/octo//hello", false},
        {"/octo/./hello", false},
        {"/./octo/hello", false},
        {"/x/../octo/hello", false},
        {"/octo/hello2", false},
        {"/octo/hell", false},
        {"/octo/hello.git.git", false},
        {"/octo/hello.wiki.git", false},
        {"/octo/hello.", false},
        {"/octo/hello%20", false},
        {"/octo/.git", false},
        {"/octo/other?x=/octo/hello", false},
        {"/x/y/octo/hello", false},
        {"/repos/octo/hello", false},
        {"/octo/hello/../other", false},
        {"/octo/hello/..", false},
        {"/octo/hello/%2e%2e/other", false},
        {"/octo/hello/x/../../other", false},
        {"/octo/hello/x//../../other", false},
        {"/octo/hello/.../other", false},
        {"/octo/hello/..%20/other", false},
        {"/octo/hello/..;/other", false},
        {"/octo/hello;x", false},
        {"/octo/hello/a%3bb", false},
        {"/octo%2fhello", false},
        {"/octo/hello%2f..%2fother", false},
        {"/octo/hello/..\\other", false},
        {"/octo/hello/%5c..%5cother", false},
        {"/octo/hello/%252e%252e/other", false},
        {"/octo/hello/%", false},
        {"/octo/hello/%2", false},
        {"/octo/hello/%zz", false},
        {"/octo/hello/%u002e", false},
        {"/octo/hello%00", false},
        {"/octo/hello/%0a", false},
        {"/octo/hello/\t", false},
        {"/octo/hello/a b", false},
        {"/octo/hello#x", false},
        {"/octo/hello/%23", false},
        {"/octo/hello/%3f", false},
        {"/octo/hello/\xc3\xa9", false},
        {"/octo/hello/%c0%ae%c0%ae/other", false},
        {"/octo/hello/%ff", false},
        {"/octo/hello/%ef%bc%8e%ef%bc%8e/other", false},
        {"/octo/hello/%e2%80%a5/other", false},
        {"/octo/hel%c4%bao", false},
    };
    struct policy_model *model;
    struct policy *policy = policy_of(repos_text, &model);
    check_paths(policy, "github.com", cases, ARRAY_LENGTH(cases));
    // A NUL is no end, and what does not fit gets nothing.
    struct policy_credential credentials[POLICY_CREDENTIALS_MAX];
    struct policy_credential_request request = {
        .host = "github.com", .method = "GET", .method_len = 3, .path = "/octo/hello\0/../../x", .path_len = 21};
    assert_int_equal(policy_credentials(policy, &request, credentials), 0);
    char longer[9000];
    memset(longer, 'a', sizeof(longer));
    memcpy(longer, "/octo/hello/", 12);
    request.path = longer;
    request.path_len = sizeof(longer);
    assert_int_equal(policy_credentials(policy, &request, credentials), 0);
    longer[400] = '?'; // the query may be long
    assert_int_equal(policy_credentials(policy, &request, credentials), 1);
    policy_free(policy);
    policy_model_free(model);
}

static void test_api_paths(void **state) {
    (void)state;
    static const struct path_case cases[] = {
        {"/repos/octo/hello", true},
        {"/repos/Octo/HELLO/pulls?state=open", true},
        {"/repos/a/b/contents/x", true},
        {"/repos/octo/other", false},
        {"/repos/octo", false},
        {"/Repos/octo/hello", false},
        {"/octo/hello", false},
        {"/graphql", false},
        {"/graphql?q=/repos/octo/hello", false},
        {"/user", false},
        {"/search/code?q=repo:octo/hello", false},
        {"/repositories/1296269", false},
        {"/repos//octo/hello", false},
        {"/repos/octo/hello/../other", false},
        {"/repos/octo/hello/../../../user", false},
        {"/reposocto/hello", false},
    };
    struct policy_model *model;
    struct policy *policy = policy_of(repos_text, &model);
    check_paths(policy, "api.github.com", cases, ARRAY_LENGTH(cases));
    policy_free(policy);
    policy_model_free(model);
    // Without repos every path has it, also one that has more than one reading.
    policy = policy_of("version: 1\nbase: allow\ncredentials: [{binding: github}]\n", &model);
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) assert_true(is_given(policy, "api.github.com", "POST", cases[i].path));
    assert_true(is_given(policy, "github.com", "GET", "/..%2f/"));
    policy_free(policy);
    policy_model_free(model);
}

static void test_conditions(void **state) {
    (void)state;
    static const char text[] =
        "version: 1\nallow: [{host: api.example}, {host: b.example}]\ncredentials:\n"
        "  - {host: API.example, header: X-Key, path: /v1/Chat/, methods: [GET, POST], secret: 'env:A', scrub: true}\n"
        "  - {host: b.example, header: X-Key, secret: 'env:A'}\n"
        "  - {host: api.example, basic: robot, secret: 'env:B'}\n"
        "  - {host: api.example, header: X-Read, methods: [PURGE], secret: 'env:A'}\n";
    static const struct path_case cases[] = {
        {"/v1/Chat", true},      {"/v1/Chat/", true},      {"/v1/Chat?x", true},        {"/v1/Chat/a/../b", true},
        {"/v1/%43hat/x", true},  {"/v1/chat", false},      {"/v1/Chats", false},        {"/v1", false},
        {"/v1/Chat/..", false},  {"/v1/Chat/../x", false}, {"/v1/Chat/%2e%2e/", false}, {"//v1/Chat", false},
        {"/v1//Chat", false},    {"/v1/Chat%2fx", false},  {"/v1%2fChat", false},       {"/x?/v1/Chat", false},
    };
    struct policy_model *model;
    struct policy *policy = policy_of(text, &model);
    struct policy_credential credentials[POLICY_CREDENTIALS_MAX];
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        size_t count = ask(policy, "api.example", "GET", cases[i].path, credentials);
        if (count != 1u + cases[i].given) fail_msg("%s: %zu headers", cases[i].path, count);
    }
    assert_int_equal(ask(policy, "api.example", "POST", "/v1/Chat", credentials), 2);
    assert_true(credentials[0].rule == 0 && credentials[0].scrub && strcmp(credentials[0].header, "X-Key") == 0);
    assert_true(credentials[1].rule == 2 && !credentials[1].scrub && strcmp(credentials[1].header, "Authorization") == 0);
    assert_int_equal(ask(policy, "api.example", "HEAD", "/v1/Chat", credentials), 2);
    assert_int_equal(ask(policy, "api.example", "PUT", "/v1/Chat", credentials), 1);
    assert_int_equal(ask(policy, "api.example", "get", "/v1/Chat", credentials), 1);
    assert_int_equal(ask(policy, "api.example", "PURGE", "/x", credentials), 2);
    assert_int_equal(ask(policy, "api.example", "TRACE", "/v1/Chat", credentials), 0);
    static const char *const reflecting[] = {"trace", "Trace", "TRACK", "track", "connect"};
    for (size_t i = 0; i < ARRAY_LENGTH(reflecting); i++)
        assert_int_equal(ask(policy, "b.example", reflecting[i], "/", credentials), 0);
    assert_int_equal(ask(policy, "b.example", "CONNECT", "/", credentials), 0);
    assert_int_equal(ask(policy, "b.example", "GET", "%", credentials), 1);
    assert_true(credentials[0].rule == 1 && !credentials[0].conditional);
    assert_int_equal(ask(policy, "api.example", NULL, NULL, credentials), 3);
    assert_int_equal(ask(policy, "x.api.example", NULL, NULL, credentials), 0);
    assert_int_equal(ask(policy, "example", NULL, NULL, credentials), 0);
    assert_string_equal(policy_bound_host(policy, 0), "api.example");
    assert_string_equal(policy_bound_host(policy, 1), "b.example");
    assert_null(policy_bound_host(policy, 2));
    policy_free(policy);
    policy_model_free(model);
}

// Rules are numbered as policy_binding_targets gives them, which is what main tells the vault.
static void test_numbers(void **state) {
    (void)state;
    struct policy_model *model;
    struct policy *policy = policy_of("version: 1\nbase: allow\ncredentials:\n"
                                      "  - {host: z.example, header: X, secret: 'env:A'}\n  - {binding: github}\n"
                                      "  - {binding: mistral_api}\n  - {host: github.com, header: Y, secret: 'env:A'}\n",
                                      &model);
    uint32_t rule = 0;
    for (size_t i = 0; i < model->binding_count; i++) {
        struct policy_binding_target targets[POLICY_BINDING_TARGETS];
        size_t count = policy_binding_targets(&model->bindings[i], targets);
        for (size_t k = 0; k < count; k++, rule++) {
            struct policy_credential credentials[POLICY_CREDENTIALS_MAX];
            size_t found = ask(policy, targets[k].host, "GET", "/", credentials), at = 0;
            while (at < found && credentials[at].rule != rule) at++;
            assert_true(at < found);
            assert_string_equal(credentials[at].header, targets[k].header);
            assert_true(policy_name_bound(policy, targets[k].host));
        }
    }
    assert_int_equal(rule, 5);
    policy_free(policy);
    policy_model_free(model);
}

static struct policy_decision decide(const struct policy *policy, enum policy_app app, const char *dialled,
                                     const char *claimed, const char *address, uint16_t port) {
    struct addr addr = address ? fixture_addr(address) : (struct addr){0};
    struct policy_request request = {.protocol = POLICY_TCP, .app = app, .dialled = dialled, .claimed = claimed,
                                     .address = address ? &addr : NULL, .port = port};
    return policy_decide(policy, &request);
}

static void test_decide(void **state) {
    (void)state;
    struct policy_model *model;
    struct policy *policy = policy_of("version: 1\nbase: allow\ncredentials: [{binding: github}]\n", &model);
    struct policy_decision got = decide(policy, POLICY_APP_UNKNOWN, "github.com", NULL, NULL, 443);
    assert_true(got.verdict == POLICY_INSPECT && got.reason == POLICY_ALLOWED_BASE);
    assert_string_equal(got.name, "github.com");
    assert_true(decide(policy, POLICY_APP_UNKNOWN, "github.com", NULL, "1.1.1.1", 8443).verdict == POLICY_INSPECT);
    assert_true(decide(policy, POLICY_APP_UNKNOWN, "a.example", NULL, NULL, 443).verdict == POLICY_ALLOW);
    got = decide(policy, POLICY_APP_TLS, "github.com", "github.com", "1.1.1.1", 443);
    assert_true(got.verdict == POLICY_ALLOW && strcmp(got.name, "github.com") == 0);
    assert_true(decide(policy, POLICY_APP_OTHER, "github.com", NULL, NULL, 22).verdict == POLICY_ALLOW);
    assert_true(decide(policy, POLICY_APP_TLS, "github.com", "a.example", NULL, 443).reason == POLICY_NAME_MISMATCH);
    assert_true(decide(policy, POLICY_APP_TLS, "a.example", "github.com", NULL, 443).reason == POLICY_NAME_MISMATCH);
    // A literal whose bytes name a bound host: that name is resolved and dialled, never the literal.
    assert_true(decide(policy, POLICY_APP_UNKNOWN, NULL, NULL, "1.1.1.1", 443).verdict == POLICY_INSPECT);
    assert_true(decide(policy, POLICY_APP_UNKNOWN, NULL, NULL, "1.1.1.1", 22).verdict == POLICY_ALLOW);
    got = decide(policy, POLICY_APP_TLS, NULL, "github.com", "1.1.1.1", 443);
    assert_true(got.verdict == POLICY_ALLOW && strcmp(got.name, "github.com") == 0);
    got = decide(policy, POLICY_APP_TLS, NULL, "a.example", "1.1.1.1", 443);
    assert_true(got.verdict == POLICY_ALLOW && !got.name);
    assert_true(decide(policy, POLICY_APP_TLS, NULL, "github.com", "10.0.0.1", 443).reason == POLICY_PRIVATE_ADDRESS);
    assert_true(policy_facts(policy).synthetic);
    policy_free(policy);
    policy_model_free(model);
    policy = policy_of("version: 1\nbase: allow\n", &model);
    assert_true(decide(policy, POLICY_APP_UNKNOWN, "github.com", NULL, NULL, 443).verdict == POLICY_ALLOW);
    assert_true(decide(policy, POLICY_APP_UNKNOWN, NULL, NULL, "1.1.1.1", 443).verdict == POLICY_ALLOW);
    policy_free(policy);
    policy_model_free(model);
}

// ---- readings of servers ----

struct reading {
    int decodes;
    bool overlong, folds, backslash, parameters, merges_first, dots, merges_last, trims, cuts;
};

#define READ_SIZE 512

static unsigned hex(char c) { return c <= '9' ? (unsigned)(c - '0') : (unsigned)((c | 0x20) - 'a') + 10; }

static void decode(char *text, bool unicode) {
    char *out = text;
    for (char *at = text; *at;) {
        if (at[0] == '%' && isxdigit((unsigned char)at[1]) && isxdigit((unsigned char)at[2])) {
            char c = (char)(hex(at[1]) << 4 | hex(at[2]));
            if (!c) break; // the end, to some
            *out++ = c;
            at += 3;
        } else if (unicode && strncmp(at, "%u00", 4) == 0 && isxdigit((unsigned char)at[4]) && isxdigit((unsigned char)at[5])) {
            *out++ = (char)(hex(at[4]) << 4 | hex(at[5]));
            at += 6;
        } else {
            *out++ = *at++;
        }
    }
    *out = '\0';
}

static void replace(char *text, const char *from, const char *to) {
    for (char *at; (at = strstr(text, from)) != NULL;) {
        size_t from_len = strlen(from), to_len = strlen(to);
        memcpy(at, to, to_len);
        memmove(at + to_len, at + from_len, strlen(at + from_len) + 1);
    }
}

static void fold_slashes(char *text) { replace(text, "//", "/"); }

static void remove_parameters(char *text) {
    char *out = text;
    for (char *at = text; *at;) {
        if (*at == ';')
            at += strcspn(at, "/");
        else
            *out++ = *at++;
    }
    *out = '\0';
}

// The ends of segments as Windows takes them off.
static void trim_segments(char *text) {
    char *out = text;
    for (char *at = text; *at;) {
        size_t len = strcspn(at, "/"), kept = len;
        bool dots = strspn(at, ".") == len;
        while (!dots && kept > 0 && (at[kept - 1] == '.' || at[kept - 1] == ' ')) kept--;
        if (kept == 0 && len > 0) kept = 0;
        memmove(out, at, kept);
        out += kept;
        at += len;
        if (*at == '/') *out++ = *at++;
    }
    *out = '\0';
}

static void remove_dots(char *text) {
    char result[READ_SIZE] = "";
    for (const char *at = text; *at == '/';) {
        size_t len = strcspn(at + 1, "/");
        if (len == 2 && at[1] == '.' && at[2] == '.') {
            char *slash = strrchr(result, '/');
            if (slash) *slash = '\0';
        } else if (len != 1 || at[1] != '.') {
            snprintf(result + strlen(result), READ_SIZE - strlen(result), "%.*s", (int)(len + 1), at);
        }
        at += len + 1;
    }
    snprintf(text, READ_SIZE, "%s", result);
}

static void read_path(const char *path, const struct reading *reading, char text[READ_SIZE]) {
    snprintf(text, READ_SIZE, "%s", path);
    text[strcspn(text, "?")] = '\0';
    for (int i = 0; i < reading->decodes; i++) decode(text, reading->overlong);
    if (reading->overlong) {
        replace(text, "\xc0\xaf", "/");
        replace(text, "\xc0\xae", ".");
    }
    if (reading->folds) {
        replace(text, "\xef\xbc\x8f", "/");
        replace(text, "\xef\xbc\x8e", ".");
        replace(text, "\xe2\x80\xa5", "..");
        replace(text, "\xef\xbc\xbc", "\\");
    }
    for (char *at = text; reading->backslash && *at; at++)
        if (*at == '\\') *at = '/';
    if (reading->cuts) text[strcspn(text, "?#\n")] = '\0';
    if (reading->parameters) remove_parameters(text);
    if (reading->trims) trim_segments(text);
    if (reading->merges_first) fold_slashes(text);
    if (reading->dots) remove_dots(text);
    if (reading->merges_last) fold_slashes(text);
}

// The repository that a server would serve: "" if none.
static void repo_of(const char *text, char repo[READ_SIZE]) {
    repo[0] = '\0';
    if (text[0] != '/') return;
    size_t owner = strcspn(text + 1, "/");
    if (owner == 0 || text[1 + owner] != '/') return;
    size_t name = strcspn(text + owner + 2, "/");
    if (name == 0) return;
    snprintf(repo, READ_SIZE, "%.*s", (int)(owner + 1 + name), text + 1);
    for (char *at = repo; *at; at++) *at = (char)tolower((unsigned char)*at);
    size_t len = strlen(repo);
    if (len > owner + 5 && strcmp(repo + len - 4, ".git") == 0) repo[len - 4] = '\0';
}

static struct reading reading_of(unsigned bits) {
    return (struct reading){.decodes = (int)(bits % 3), .overlong = bits & 4, .folds = bits & 8, .backslash = bits & 16,
                            .parameters = bits & 32, .merges_first = bits & 64, .dots = bits & 128,
                            .merges_last = bits & 256, .trims = bits & 512, .cuts = bits & 1024};
}

static void check_readings(const char *path) {
    static const unsigned steps[] = {0x01, 0x80, 0xc1, 0x181, 0x1c2, 0x3f1, 0x7ff, 0x7fe, 0x495, 0x0b3, 0x5e9, 0x6cd, 0x2c1, 0xe0};
    char text[READ_SIZE], repo[READ_SIZE];
    for (size_t i = 0; i < ARRAY_LENGTH(steps); i++) {
        struct reading reading = reading_of(steps[i]);
        read_path(path, &reading, text);
        repo_of(text, repo);
        if (repo[0] && strcmp(repo, "octo/hello") != 0) fail_msg("%s is in %s (%s) by reading %#x", path, repo, text, steps[i]);
    }
}

// What the log and `check` call them, in the order of the bits in the log's records.
static void test_names(void **state) {
    (void)state;
    struct policy_credential credentials[POLICY_CREDENTIALS_MAX];
    struct policy_model *model;
    struct policy *policy = policy_of("version: 1\n"
                                      "allow: [{host: github.com}, {host: api.github.com}, {host: api.mistral.ai}, {host: a.example}]\n"
                                      "credentials: [{binding: github, repos: [octo/hello]}, {binding: mistral_api},\n"
                                      "  {host: a.example, header: X-One, secret: env:A},\n"
                                      "  {host: a.example, header: x-two, secret: env:B}]\n",
                                      &model);
    assert_int_equal(ask(policy, "github.com", "GET", "/octo/hello", credentials), 1);
    assert_string_equal(credentials[0].name, "github");
    assert_int_equal(ask(policy, "api.mistral.ai", "GET", "/", credentials), 1);
    assert_string_equal(credentials[0].name, "mistral_api");
    assert_int_equal(ask(policy, "a.example", NULL, NULL, credentials), 2);
    assert_string_equal(credentials[0].name, "header:a.example:X-One");
    assert_string_equal(credentials[1].name, "header:a.example:x-two");
    policy_free(policy);
    policy_model_free(model);
}

static void test_readings(void **state) {
    (void)state;
    static const char *const pieces[] = {
        "/",     "/",   "/",    "/octo", "/hello", "octo",  "hello", "other",  "/other",     "/evil/other", "..",  "/..",   ".",
        "/.",    "//",  "%2e",  "%2E.",  "%2f",    "%5c",   "\\",    "%252e",  "%252f",      "%25",         ";",   "%3b",   "?",
        "%3f",   "#",   "%23",  "%00",   "%c0%ae", "%c0%af", "%u002e", "%ef%bc%8e", "%ef%bc%8f", "%e2%80%a5", "...", "%20", "+",
        ".git",  ".GIT", "%6f", "%4F",   "a",      "\xc0\xae", " ",   "%0a",    "/%2e%2e",    "/..;x",       "@",   ":",     "repos",
    };
    struct policy_model *model;
    struct policy *policy = policy_of("version: 1\nallow: [{host: github.com}, {host: api.github.com}]\n"
                                      "credentials: [{binding: github, repos: [octo/hello]}]\n", &model);
    uint64_t random = 0x9e3779b97f4a7c15u;
    size_t granted = 0;
    for (int i = 0; i < 300000; i++) {
        char path[READ_SIZE];
        random = random * 6364136223846793005u + 1442695040888963407u;
        size_t used = (size_t)snprintf(path, sizeof(path), "%s", (random >> 40) & 3 ? "/octo/hello" : ""); // most begin well
        size_t count = (random >> 50) % 9;
        for (size_t k = 0; k < count; k++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            used += (size_t)snprintf(path + used, sizeof(path) - used, "%s", pieces[(random >> 33) % ARRAY_LENGTH(pieces)]);
        }
        if (!is_given(policy, "github.com", "GET", path)) continue;
        granted++;
        check_readings(path);
    }
    assert_true(granted > 10000);
    policy_free(policy);
    policy_model_free(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_github_paths), cmocka_unit_test(test_api_paths), cmocka_unit_test(test_conditions),
        cmocka_unit_test(test_numbers),      cmocka_unit_test(test_decide),    cmocka_unit_test(test_readings),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
