// SPDX-License-Identifier: Apache-2.0
// What main does for bindings: the numbers of rules, values out of its environment, a real vault role.
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "base/mem.h"
#include "daemon/credential.h"
#include "daemon/daemon.h"
#include "daemon/helper.h"
#include "policy/model.h"
#include "vault/vault.h"

static struct policy_model *bound(const char *first, const char *second) {
    struct policy_model *model = policy_model_new(POLICY_DIALECT_NATIVE);
    struct error err = {0};
    if (first && policy_model_bind(model, first, first, &err) < 0) fail_msg("%s", err.text);
    if (second && policy_model_bind(model, second, second, &err) < 0) fail_msg("%s", err.text);
    return model;
}

static int make(const char *first, const char *second, struct credentials **ret_credentials, struct error *err) {
    struct policy_model *model = bound(first, second);
    *err = (struct error){0};
    int r = credentials_new(model, ret_credentials, err);
    policy_model_free(model);
    return r;
}

static char channel_buffer[CHANNEL_BUFFER_SIZE] __attribute__((aligned(16)));

static const char *ask(int gate, uint32_t rule) {
    static char text[256];
    struct ipc_value_ask question = {.rule = rule};
    struct channel_message message;
    struct ipc_value value;
    assert_int_equal(channel_send(gate, IPC_VALUE_ASK, &question, sizeof(question), NULL, 0), 0);
    assert_int_equal(channel_wait(gate, 20000, channel_buffer, sizeof(channel_buffer), &message), 1);
    assert_int_equal(message.type, IPC_VALUE);
    memcpy(&value, message.body, sizeof(value));
    snprintf(text, sizeof(text), "%d:%.*s", value.status, (int)value.length,
             (const char *)message.body + sizeof(value));
    return text;
}

static bool in_own_environment(const char *text) {
    char bytes[65536];
    int fd = open("/proc/self/environ", O_RDONLY | O_CLOEXEC);
    ssize_t len = read(fd, bytes, sizeof(bytes));
    close(fd);
    assert_true(len > 0);
    return memmem(bytes, (size_t)len, text, strlen(text)) != NULL;
}

static void test_life(void **state) {
    (void)state;
    struct credentials *credentials = NULL;
    struct error err;
    struct role vault = {0};
    int gate = -1, again = -1;
    // Executed with it in its environment, see main.
    assert_true(in_own_environment("GITHUB_TOKEN=ghp_fromenv"));
    if (make("github:octo/hello", "header:x.example:X-Key:k {secret}=cmd:printf \"$GITHUB_TOKEN:$HOME\"", &credentials,
             &err) < 0)
        fail_msg("%s", err.text);
    assert_null(getenv("GITHUB_TOKEN"));
    assert_false(in_own_environment("ghp_fromenv"));
    for (char **entry = environ; *entry; entry++) assert_non_null(strchr(*entry, '='));
    if (credentials_start(credentials, &vault, 0, 0, &err) < 0) fail_msg("%s", err.text);
    const struct sandbox_trust *trust = credentials_trust(credentials);
    assert_int_equal(((const uint8_t *)trust->certificate)[0], 0x30);
    assert_true(trust->len > 200 && trust->subject_hash != 0);
    assert_int_equal(credentials_join(credentials, &vault, &gate, &err), 0);
    assert_string_equal(ask(gate, 0), "0:Basic eC1hY2Nlc3MtdG9rZW46Z2hwX2Zyb21lbnY="); // github.com
    assert_string_equal(ask(gate, 1), "0:Bearer ghp_fromenv");                         // api.github.com
    assert_string_equal(ask(gate, 2), "0:k :/rig/home"); // the user's environment, without it
    // One that died: another one has the same values.
    kill(vault.pid, SIGKILL);
    role_stop(&vault, 1000);
    if (credentials_start(credentials, &vault, 0, 0, &err) < 0) fail_msg("%s", err.text);
    assert_int_equal(credentials_join(credentials, &vault, &again, &err), 0);
    assert_string_equal(ask(again, 1), "0:Bearer ghp_fromenv");
    role_stop(&vault, 5000);
    close(gate);
    close(again);
    credentials_free(credentials);
}

static void test_refused(void **state) {
    (void)state;
    struct credentials *credentials = NULL;
    struct error err;
    static char large[IPC_SECRET_MAX + 2];
    unsetenv("NONE");
    assert_int_equal(make("github=env:NONE", NULL, &credentials, &err), -ENOENT);
    assert_non_null(strstr(err.text, "env:NONE"));
    unsetenv("MISTRAL_API_KEY");
    assert_int_equal(make("mistral_api", NULL, &credentials, &err), -ENOENT); // the kind's default
    assert_non_null(strstr(err.text, "env:MISTRAL_API_KEY"));
    setenv("LINES", "a\nb", 1);
    assert_int_equal(make("github=env:LINES", NULL, &credentials, &err), -EINVAL);
    assert_null(strstr(err.text, "a\nb"));
    setenv("EMPTY", "", 1);
    assert_int_equal(make("github=env:EMPTY", NULL, &credentials, &err), -EINVAL);
    memset(large, 'x', sizeof(large) - 1);
    setenv("LARGE", large, 1);
    assert_int_equal(make("github=env:LARGE", NULL, &credentials, &err), -E2BIG);
    struct policy_model *model = bound("header:x.example:X-Key=env:LARGE", NULL);
    free(model->bindings[0].value); // the policy room refuses such a one by itself
    assert_int_not_equal(asprintf(&model->bindings[0].value, "%01020d{secret}", 1), -1);
    assert_int_equal(credentials_new(model, &credentials, &err), -E2BIG);
    policy_model_free(model);
    assert_null(credentials);
    assert_int_equal(make(NULL, NULL, &credentials, &err), 0);
    assert_null(credentials);
    assert_int_equal(make("workspace", NULL, &credentials, &err), 0);
    assert_null(credentials);
    credentials_free(NULL);
}

// One secret is one, under whatever name; a part of another value counts if it is long enough to be no accident.
static void test_copies(void **state) {
    (void)state;
    struct credentials *credentials = NULL;
    struct error err;
    setenv("ONE", "long-enough-secret", 1);
    setenv("TWO", "long-enough-secret", 1);
    setenv("URL", "https://user:long-enough-secret@host/", 1);
    setenv("OTHER", "long-enough", 1);
    setenv("SHORT", "abc", 1);
    setenv("SAME", "abc", 1);
    setenv("LONGER", "abcd", 1);
    assert_int_equal(make("header:x.example:A=env:ONE", "header:x.example:B=env:SHORT", &credentials, &err), 0);
    static const char *const gone[] = {"ONE", "TWO", "URL", "SHORT", "SAME"};
    for (size_t i = 0; i < ARRAY_LENGTH(gone); i++) assert_null(getenv(gone[i]));
    assert_string_equal(getenv("OTHER"), "long-enough");
    assert_string_equal(getenv("LONGER"), "abcd");
    credentials_free(credentials);
}

// The helper works in another folder.
static void test_relative(void **state) {
    (void)state;
    struct credentials *credentials = NULL;
    struct role vault = {0};
    struct error err;
    int gate = -1, fd = open("relative-token", O_WRONLY | O_CREAT | O_CLOEXEC | O_TRUNC, 0600);
    assert_int_equal(write(fd, "labtok", 6), 6);
    close(fd);
    assert_int_equal(make("header:x.example:X-Key=file:relative-token", NULL, &credentials, &err), 0);
    assert_string_equal(credentials_file(credentials, 0), "relative-token"); // as messages quote it
    assert_int_equal(credentials_start(credentials, &vault, 0, 0, &err), 0);
    assert_int_equal(credentials_join(credentials, &vault, &gate, &err), 0);
    assert_string_equal(ask(gate, 0), "0:labtok");
    role_stop(&vault, 5000);
    close(gate);
    remove("relative-token");
    credentials_free(credentials);
}

static int look(const char *reference, struct error *err) {
    char binding[512];
    snprintf(binding, sizeof(binding), "header:x.example:X-Key=%s", reference);
    struct policy_model *model = bound(binding, NULL);
    *err = (struct error){0};
    int r = daemon_secret_look(&model->bindings[0], err);
    policy_model_free(model);
    return r;
}

// Where a secret is said to be: found or not before anything starts, and what to do.
static void test_places(void **state) {
    (void)state;
    struct credentials *credentials = NULL;
    struct error err;
    char home[] = "/tmp/penstock-home-XXXXXX", token[64];
    assert_non_null(mkdtemp(home));
    setenv("HOME", home, 1);
    snprintf(token, sizeof(token), "%s/token", home);
    int fd = open(token, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(look("file:~/token", &err), 0);
    assert_int_equal(make("header:x.example:X-Key=file:~/token", NULL, &credentials, &err), 0);
    assert_string_equal(credentials_file(credentials, 0), token);
    credentials_free(credentials);
    setenv("SET", "x", 1);
    assert_int_equal(vault_secret_set("kept", "labtok", 6, &err), 0);
    static const char *const there[] = {"store:kept", "env:SET", "cmd:nosuch"};
    for (size_t i = 0; i < ARRAY_LENGTH(there); i++)
        if (look(there[i], &err) < 0) fail_msg("%s: %s", there[i], err.text);
    static const struct {
        const char *reference;
        int status;
        const char *says;
    } missing[] = {
        {"file:~/none", -ENOENT, "secret file:~/none: there is no such file; write the secret into it"},
        {"file:none", -ENOENT, "secret file:none: there is no such file (from the working directory)"},
        {"file:~root/token", -EINVAL, "only ~/ stands for a home folder"},
        {"file:~", -EINVAL, "only ~/ stands for a home folder"},
        {"file:~/", -EINVAL, "it is not a regular file"},
        {"file:~/token/below", -ENOENT, "there is no such file"},
        {"store:nosuch", -ENOENT, "secret store:nosuch: it is not in the store; put it there with `penstock secret set nosuch`"},
        {"store:../kept", -EINVAL, "is not a name for a secret"},
        {"env:NONE", -ENOENT, "secret env:NONE: the variable is not set; export it"},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(missing); i++) {
        assert_int_equal(look(missing[i].reference, &err), missing[i].status);
        if (!strstr(err.text, missing[i].says)) fail_msg("expected \"%s\" in \"%s\"", missing[i].says, err.text);
    }
    unsetenv("HOME");
    assert_int_equal(make("header:x.example:X-Key=file:~/token", NULL, &credentials, &err), -EINVAL);
    assert_non_null(strstr(err.text, "HOME is not set"));
    remove(token);
    remove(home);
}

// What the policy itself has goes the way of a variable, and is no longer in the policy.
static void test_literal(void **state) {
    (void)state;
    static const char text[] = "{\"network\": {\"allowOut\": [\"x.example\"], \"denyOut\": [\"0.0.0.0/0\"], \"rules\": {\"x.example\": "
                               "[{\"transform\": {\"headers\": {\"X-Key\": \"inline-value\"}}}]}}}";
    struct credentials *credentials = NULL;
    struct policy_model *model = NULL;
    struct error err = {0};
    struct role vault = {0};
    int gate = -1;
    if (policy_read(text, strlen(text), "test", POLICY_DIALECT_E2B, &model, &err) < 0) fail_msg("%s", err.text);
    assert_int_equal(model->binding_count, 1);
    char *literal = model->bindings[0].literal;
    assert_string_equal(literal, "inline-value");
    if (credentials_new(model, &credentials, &err) < 0) fail_msg("%s", err.text);
    for (size_t i = 0; i < strlen("inline-value"); i++) assert_int_equal(literal[i], 0);
    if (credentials_start(credentials, &vault, 0, 0, &err) < 0) fail_msg("%s", err.text);
    assert_int_equal(credentials_join(credentials, &vault, &gate, &err), 0);
    assert_string_equal(ask(gate, 0), "0:inline-value");
    role_stop(&vault, 5000);
    close(gate);
    credentials_free(credentials);
    policy_model_free(model);
}

// ---- commands that give secrets ----

static char base[] = "/tmp/penstock-helper-XXXXXX", *project;

static char *under(const char *name) {
    static char text[8][256];
    static size_t next;
    char *result = text[next++ % ARRAY_LENGTH(text)];
    snprintf(result, sizeof(text[0]), "%s/%s", base, name);
    return result;
}

static void program(const char *path) {
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0755);
    assert_true(fd >= 0);
    close(fd);
}

static int part(const char *command, struct error *err) {
    struct credentials *credentials = NULL;
    char binding[512];
    snprintf(binding, sizeof(binding), "header:x.example:X-Key=%s", command);
    struct policy_model *model = bound("github=file:/none", binding);
    struct sandbox_spec spec = {.cwd = project};
    *err = (struct error){0};
    int r = credentials_new(model, &credentials, err);
    if (r == 0) r = credentials_part(credentials, model, &spec, err);
    credentials_free(credentials);
    policy_model_free(model);
    return r;
}

static int setup_commands(void **state) {
    (void)state;
    static const char *const folders[] = {"home", "home/bin", "home/project", "home/project/bin"};
    if (!mkdtemp(base)) return -1;
    for (size_t i = 0; i < ARRAY_LENGTH(folders); i++) assert_int_equal(mkdir(under(folders[i]), 0755), 0);
    program(under("home/bin/good"));
    program(under("home/project/bin/evil"));
    assert_int_equal(symlink("../project/bin/evil", under("home/bin/linked")), 0);
    assert_int_equal(symlink("/usr/bin", under("home/project/usr")), 0);
    assert_int_equal(symlink("project/none", under("home/dangling")), 0);
    project = strdup(under("home/project"));
    setenv("HOME", under("home"), 1);
    return 0;
}

static int teardown_commands(void **state) {
    (void)state;
    static const char *const names[] = {"home/dangling", "home/project/usr", "home/bin/linked", "home/project/bin/evil",
                                        "home/bin/good", "home/project/bin", "home/project", "home/bin", "home", ""};
    for (size_t i = 0; i < ARRAY_LENGTH(names); i++) remove(under(names[i]));
    free(project);
    return 0;
}

static void test_commands(void **state) {
    (void)state;
    char path[2048];
    struct error err;
    snprintf(path, sizeof(path), "%s/bin:bin::.:%s/usr:%s/home/bin:/usr/bin:/bin", project, project, base);
    setenv("PATH", path, 1);
    static const char *const good[] = {"cmd:good token | tr a b", "cmd:printf x", "cmd:evil", "cmd:A=b good ./file a/b", "cmd:~/bin/good",
                                       "cmd:\"$NOWHERE/x\""};
    for (size_t i = 0; i < ARRAY_LENGTH(good); i++)
        if (part(good[i], &err) < 0) fail_msg("%s: %s", good[i], err.text);
    static const char *const bad[] = {"cmd:linked", "cmd:true;linked", "cmd:x=$(linked)", "cmd:./token", "cmd:bin/evil",
                                      "cmd:~/project/bin/evil", "cmd:sh \"${HOME}/project/later\"", "cmd:cat $HOME/dangling"};
    for (size_t i = 0; i < ARRAY_LENGTH(bad); i++)
        if (part(bad[i], &err) != -EINVAL) fail_msg("%s is taken", bad[i]);
    snprintf(path, sizeof(path), "cmd:%s/usr/true", project); // it could be another folder tomorrow
    assert_int_equal(part(path, &err), -EINVAL);
    assert_non_null(strstr(err.text, path));
    setenv("HOME", project, 1);
    assert_int_equal(part("cmd:printf x", &err), -EINVAL);
    assert_non_null(strstr(err.text, "home folder"));
    setenv("HOME", under("home"), 1);
}

static void test_variables(void **state) {
    (void)state;
    char text[1024];
    struct error err;
    setenv("GITHUB_TOKEN", "one", 1);
    setenv("GH_TOKEN", "two", 1);
    setenv("NAMED", "three", 1);
    setenv("OTHER", "four", 1);
    setenv("MISTRAL_API_KEY", "not bound", 1);
    assert_int_equal(part("cmd:printf \"${NAMED}$HOME$OTHERS\"", &err), 0);
    static const char *const replaced[] = {"GITHUB_TOKEN", "GH_TOKEN"};
    for (size_t i = 0; i < ARRAY_LENGTH(replaced); i++) assert_non_null(strstr(getenv(replaced[i]), "ghp_" POLICY_PLACEHOLDER));
    assert_null(getenv("NAMED"));
    static const char *const left[] = {"OTHER", "MISTRAL_API_KEY", "HOME", "PATH"};
    for (size_t i = 0; i < ARRAY_LENGTH(left); i++) assert_non_null(getenv(left[i]));
    // The command has what it names; what lists name in the project is gone from them.
    snprintf(text, sizeof(text), "%s/lib:/usr/lib::%s/more", project, project);
    setenv("NAMED", "three", 1);
    setenv("PYTHONPATH", text, 1);
    setenv("BASH_ENV", under("home/project/rc"), 1);
    setenv("PENSTOCK_TEST", under("home/project/state"), 1);
    struct sandbox_spec spec = {.cwd = project};
    struct sandbox_reach *reach = NULL;
    char **environment = NULL;
    assert_int_equal(sandbox_reach_new(&spec, &reach, &err), 0);
    assert_int_equal(helper_environment(reach, &environment, &err), 0);
    unsigned seen = 0;
    for (char **entry = environment; *entry; entry++) {
        seen += strcmp(*entry, "NAMED=three") == 0 || strcmp(*entry, "PYTHONPATH=/usr/lib:") == 0 ||
                strncmp(*entry, "PENSTOCK_TEST=/", 15) == 0;
        assert_int_not_equal(strncmp(*entry, "BASH_ENV", 8), 0);
        if (strncmp(*entry, "PATH=", 5) == 0) assert_null(strstr(*entry, project));
    }
    assert_int_equal(seen, 3);
    helper_environment_free(environment);
    sandbox_reach_free(reach);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_life), cmocka_unit_test(test_refused),
                                       cmocka_unit_test(test_copies), cmocka_unit_test(test_literal), cmocka_unit_test(test_relative),
                                       cmocka_unit_test(test_places),
                                       cmocka_unit_test_setup_teardown(test_commands, setup_commands, NULL),
                                       cmocka_unit_test_teardown(test_variables, teardown_commands)};
    int status;
    if (daemon_role(argc, argv, &status)) return status; // the roles are this program, executed again
    if (argc == 1) {
        char folder[] = "/tmp/penstock-credential-XXXXXX";
        if (!mkdtemp(folder)) return 1;
        setenv("PENSTOCK_STATE_FOLDER", folder, 1);
        setenv("GITHUB_TOKEN", "ghp_fromenv", 1);
        setenv("HOME", "/rig/home", 1);
        execl("/proc/self/exe", argv[0], "run", NULL);
        return 1;
    }
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    static const char *const parts[] = {"ca/authority", "ca/.lock", "ca", "secrets/kept", "secrets/.key", "secrets/.lock", "secrets", ""};
    for (size_t i = 0; i < ARRAY_LENGTH(parts); i++) {
        char path[256];
        snprintf(path, sizeof(path), "%s/%s", getenv("PENSTOCK_STATE_FOLDER"), parts[i]);
        remove(path);
    }
    return failed;
}
