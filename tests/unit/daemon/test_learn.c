// SPDX-License-Identifier: Apache-2.0
// What learning makes of the gate's records: the text to the letter, and that each text is a policy that allows it all.
#include "daemon/learn.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/mem.h"
#include "daemon/learn_state.h"

static char folder[64], path[96];

static int make_folder(void **state) {
    (void)state;
    snprintf(folder, sizeof(folder), "/tmp/penstock-learn-XXXXXX");
    if (!mkdtemp(folder)) return -1;
    snprintf(path, sizeof(path), "%s/policy.yaml", folder);
    return 0;
}

static int remove_folder(void **state) {
    (void)state;
    unlink(path);
    return rmdir(folder);
}

struct record_words {
    enum policy_protocol protocol;
    enum policy_app app;
    const char *name, *address;
    uint16_t port;
    int times;
    enum policy_reason reason;
};

static struct ipc_decision record_of(const struct record_words *words, uint32_t rule) {
    struct ipc_decision record = {.event = IPC_EVENT_DECISION, .protocol = (uint8_t)words->protocol,
                                  .app = (uint8_t)words->app, .verdict = POLICY_ALLOW, .reason = (uint8_t)words->reason,
                                  .port = words->port, .rule = rule};
    if (words->name) snprintf(record.name, sizeof(record.name), "%s", words->name);
    if (words->address) assert_int_equal(addr_parse(words->address, strlen(words->address), &record.address), 0);
    return record;
}

static struct learn *learn_of(struct policy_model *model) {
    struct learn *learn = NULL;
    struct error err = {0};
    if (daemon_learn_new(path, model, NULL, &learn, &err) != 0) fail_msg("%s", err.text);
    return learn;
}

static void feed(struct learn *learn, const struct record_words *words, size_t count) {
    for (size_t i = 0; i < count; i++) {
        struct ipc_decision record = record_of(&words[i], (uint32_t)learn->given_count);
        for (int j = 0; j < words[i].times; j++) learn_record(learn, &record);
    }
}

// The policy's own reading of the text: it passes a check without a word, and allows each record.
static void assert_allows(const char *text, const struct record_words *words, size_t count) {
    struct policy_model *model = NULL;
    struct policy *policy = NULL;
    struct policy_warnings warnings = {0};
    struct error err = {0};
    int r = policy_read(text, strlen(text), "learned", POLICY_DIALECT_AUTO, &model, &err);
    if (r == 0) r = policy_compile(model, NULL, NULL, 0, 1, &policy, &warnings, &err);
    if (r != 0) fail_msg("%s in\n%s", err.text, text);
    assert_int_equal(warnings.count, 0);
    for (size_t i = 0; i < count; i++) {
        struct ipc_decision record = record_of(&words[i], 0);
        struct policy_request request = {.protocol = words[i].protocol, .app = words[i].app, .dialled = words[i].name,
                                         .address = words[i].address && !words[i].name ? &record.address : NULL,
                                         .port = words[i].port};
        if (policy_decide(policy, &request).verdict == POLICY_DENY) fail_msg("record %zu is denied by\n%s", i, text);
    }
    policy_free(policy);
    policy_model_free(model);
}

// Behind the two lines of the head, which have the date.
static const char *body_of(const char *text) {
    const char *first = strchr(text, '\n');
    assert_non_null(first);
    assert_int_equal(strncmp(text, "# Written by penstock run --learn, ", 35), 0);
    return strchr(first + 1, '\n') + 1;
}

static void assert_text(const struct record_words *words, size_t count, const char *expected) {
    struct policy_model *model = policy_model_new(POLICY_DIALECT_NATIVE);
    struct learn *learn = learn_of(model);
    feed(learn, words, count);
    char *text = learn_text(learn);
    assert_non_null(text);
    assert_string_equal(body_of(text), expected);
    assert_allows(text, words, count);
    free(text);
    daemon_learn_free(learn);
    policy_model_free(model);
}

#define HEAD "version: 1\nbase: deny\n"

static void test_names(void **state) {
    (void)state;
    static const struct record_words words[] = {
        {POLICY_TCP, POLICY_APP_TLS, "pypi.org", "198.51.100.1", 443, 2, POLICY_ALLOWED_NAME},
        {POLICY_DNS, POLICY_APP_UNKNOWN, "pypi.org", "192.0.0.1", 53, 4, POLICY_ALLOWED_NAME},
        {POLICY_TCP, POLICY_APP_HTTP, "a.example", "198.51.100.1", 80, 1, POLICY_ALLOWED_NAME},
        {POLICY_TCP, POLICY_APP_TLS, "a.example", "198.51.100.1", 8443, 1, POLICY_ALLOWED_NAME},
        {POLICY_TCP, POLICY_APP_TLS, "a.example", "198.51.100.1", 443, 1, POLICY_ALLOWED_NAME},
        {POLICY_TCP, POLICY_APP_OTHER, "a.example", "198.51.100.1", 5432, 3, POLICY_ALLOWED_BASE},
        {POLICY_DNS, POLICY_APP_UNKNOWN, "looked.example", "192.0.0.1", 53, 2, POLICY_ALLOWED_NAME},
    };
    assert_text(words, ARRAY_LENGTH(words),
                HEAD "allow:\n"
                     "  # https, 2 times\n  - host: \"a.example\"\n    ports: [443, 8443]\n"
                     "  # http, 1 time\n  - host: \"a.example\"\n    protocol: http\n"
                     "  # tcp, 3 times\n  - host: \"a.example\"\n    protocol: tcp\n    ports: [5432]\n"
                     "  # only looked up, 2 times\n  - host: \"looked.example\"\n"
                     "  # https, 2 times; part of the preset @python\n  - host: \"pypi.org\"\n");
}

// The broader protocol of a port is the one that is written.
static void test_covered(void **state) {
    (void)state;
    static const struct record_words words[] = {
        {POLICY_TCP, POLICY_APP_TLS, "a.example", NULL, 25, 1, POLICY_ALLOWED_NAME},
        {POLICY_TCP, POLICY_APP_OTHER, "a.example", NULL, 25, 1, POLICY_ALLOWED_BASE},
        {POLICY_TCP, POLICY_APP_UNKNOWN, "a.example", NULL, 25, 1, POLICY_UPSTREAM_FAILED},
        {POLICY_TCP, POLICY_APP_UNKNOWN, "b.example", NULL, 443, 1, POLICY_UPSTREAM_FAILED},
        {POLICY_TCP, POLICY_APP_TLS, "b.example", NULL, 443, 1, POLICY_ALLOWED_NAME},
        {POLICY_TCP, POLICY_APP_UNKNOWN, "c.example", NULL, 80, 1, POLICY_UPSTREAM_FAILED},
        {POLICY_TCP, POLICY_APP_UNKNOWN, "c.example", NULL, 22, 1, POLICY_UPSTREAM_FAILED},
        {POLICY_TCP, POLICY_APP_UNKNOWN, "d.example", NULL, 22, 1, POLICY_ALLOWED_NAME}, // by an entry of tcp: not read
        {POLICY_TCP, POLICY_APP_UNKNOWN, "github.com", NULL, 22, 1, POLICY_UPSTREAM_FAILED},
    };
    assert_text(words, ARRAY_LENGTH(words),
                HEAD "allow:\n"
                     "  # tcp, 1 time\n  - host: \"a.example\"\n    protocol: tcp\n    ports: [25]\n"
                     "  # https, 1 time\n  - host: \"b.example\"\n"
                     "  # http, 1 time\n  - host: \"c.example\"\n    protocol: http\n"
                     "  # tcp, 1 time\n  - host: \"c.example\"\n    protocol: tcp\n    ports: [22]\n"
                     "  # tcp, 1 time\n  - host: \"d.example\"\n    protocol: tcp\n    ports: [22]\n"
                     "  # tcp, 1 time\n  - host: \"github.com\"\n    protocol: tcp\n    ports: [22]\n"); // no preset has it
}

static void test_addresses(void **state) {
    (void)state;
    static const struct record_words words[] = {
        {POLICY_UDP, POLICY_APP_UNKNOWN, NULL, "2001:db8::1", 53, 1, POLICY_ALLOWED_BASE},
        {POLICY_TCP, POLICY_APP_UNKNOWN, NULL, "2001:db8::1", 53, 1, POLICY_ALLOWED_BASE},
        {POLICY_TCP, POLICY_APP_UNKNOWN, NULL, "203.0.113.9", 22, 1, POLICY_UPSTREAM_FAILED},
        {POLICY_TCP, POLICY_APP_UNKNOWN, NULL, "203.0.113.9", 24, 1, POLICY_ALLOWED_BASE},
        {POLICY_TCP, POLICY_APP_UNKNOWN, NULL, "203.0.113.9", 23, 1, POLICY_ALLOWED_BASE},
        {POLICY_TCP, POLICY_APP_UNKNOWN, NULL, "203.0.113.9", 80, 1, POLICY_ALLOWED_BASE},
        {POLICY_UDP, POLICY_APP_UNKNOWN, NULL, "203.0.113.9", 123, 5, POLICY_ALLOWED_BASE},
        {POLICY_ICMP, POLICY_APP_UNKNOWN, NULL, "203.0.113.9", 0, 1, POLICY_ALLOWED_BASE},
    };
    assert_text(words, ARRAY_LENGTH(words),
                HEAD "allow:\n"
                     "  # tcp, 4 times\n  - cidr: \"203.0.113.9\"\n    protocol: tcp\n    ports: [\"22-24\", 80]\n"
                     "  # udp, 5 times\n  - cidr: \"203.0.113.9\"\n    protocol: udp\n    ports: [123]\n"
                     "  # icmp echo, 1 time\n  - cidr: \"203.0.113.9\"\n    protocol: icmp\n"
                     "  # tcp and udp, 2 times\n  - cidr: \"2001:db8::1\"\n    ports: [53]\n");
}

// Names of the DNS that no host has are told, not written; hosts that look like other things of YAML are text.
static void test_odd_names(void **state) {
    (void)state;
    static const struct record_words odd[] = {
        {POLICY_DNS, POLICY_APP_UNKNOWN, "_dmarc.a.example", NULL, 53, 1, POLICY_ALLOWED_NAME},
        {POLICY_DNS, POLICY_APP_UNKNOWN, "_x", NULL, 53, 1, POLICY_ALLOWED_NAME},
    };
    static const struct record_words words[] = {
        {POLICY_DNS, POLICY_APP_UNKNOWN, "true", NULL, 53, 1, POLICY_ALLOWED_NAME},
        {POLICY_DNS, POLICY_APP_UNKNOWN, "null", NULL, 53, 1, POLICY_ALLOWED_NAME},
        {POLICY_DNS, POLICY_APP_UNKNOWN, "1.e5", NULL, 53, 1, POLICY_ALLOWED_NAME},
    };
    assert_text(words, ARRAY_LENGTH(words),
                HEAD "allow:\n  # only looked up, 1 time\n  - host: \"1.e5\"\n  # only looked up, 1 time\n  - host: \"null\"\n"
                     "  # only looked up, 1 time\n  - host: \"true\"\n");
    struct policy_model *model = policy_model_new(POLICY_DIALECT_NATIVE);
    struct learn *learn = learn_of(model);
    feed(learn, odd, ARRAY_LENGTH(odd));
    char *text = learn_text(learn);
    assert_string_equal(body_of(text), HEAD "allow: []\n  # \"_dmarc.a.example\" was used, but is no host name and so no "
                                            "entry; \"*.a.example\" would cover it\n"
                                            "  # \"_x\" was used, but is no host name and so no entry\n");
    assert_allows(text, NULL, 0);
    free(text);
    daemon_learn_free(learn);
    policy_model_free(model);
}

static void test_what_is_not_learned(void **state) {
    (void)state;
    struct policy_model *model = policy_model_new(POLICY_DIALECT_NATIVE);
    struct learn *learn = learn_of(model);
    const struct record_words words = {POLICY_TCP, POLICY_APP_TLS, "a.example", NULL, 443, 1, POLICY_ALLOWED_NAME};
    struct ipc_decision record = record_of(&words, 0);
    record.verdict = POLICY_DENY;
    learn_record(learn, &record);
    record = record_of(&words, 0);
    record.event = IPC_EVENT_FLOW;
    learn_record(learn, &record);
    record = record_of(&words, POLICY_RULE_NONE);
    learn_record(learn, &record);
    record = record_of(&words, 0);
    record.name[0] = '\0';
    learn_record(learn, &record);
    assert_int_equal(learn->row_count, 0);
    char *text = learn_text(learn);
    assert_string_equal(body_of(text), HEAD "allow: []\n");
    free(text);
    daemon_learn_free(learn);
    policy_model_free(model);
}

// What was given stays part of it: private hosts, the private block, the limit.
static void test_given(void **state) {
    (void)state;
    struct policy_model *model = NULL;
    struct error err = {0};
    const char *given = "{version: 1, block_private: false, limits: {connections: 9}, allow: "
                        "[{host: db.example, protocol: tcp, ports: [1], private: true}, {host: b.example}]}";
    assert_int_equal(policy_read(given, strlen(given), "p", POLICY_DIALECT_AUTO, &model, &err), 0);
    struct learn *learn = learn_of(model);
    assert_int_equal(learn->given_count, 2);
    const struct record_words words[] = {
        {POLICY_TCP, POLICY_APP_UNKNOWN, "db.example", "10.0.0.1", 1, 1, POLICY_ALLOWED_NAME},
        {POLICY_TCP, POLICY_APP_TLS, "b.example", "198.51.100.1", 443, 1, POLICY_ALLOWED_NAME},
        {POLICY_TCP, POLICY_APP_TLS, "c.example", "198.51.100.1", 443, 1, POLICY_ALLOWED_NAME},
    };
    bool denied[ARRAY_LENGTH(words)];
    for (uint32_t i = 0; i < ARRAY_LENGTH(words); i++) {
        struct ipc_decision record = record_of(&words[i], i);
        struct policy_decision decision;
        char hint[POLICY_HINT_SIZE] = "";
        learn_record(learn, &record);
        denied[i] = learn_would_deny(learn, &record, &decision, hint);
        if (denied[i]) assert_string_equal(hint, "--allow c.example");
        if (denied[i]) assert_int_equal(decision.reason, POLICY_BASE_DENIED);
    }
    assert_true(!denied[0] && !denied[1] && denied[2]);
    char *text = learn_text(learn);
    assert_string_equal(body_of(text),
                        HEAD "block_private: false # as the run had it\nlimits: {connections: 9}\nallow:\n"
                             "  # https, 1 time\n  - host: \"b.example\"\n  # https, 1 time\n  - host: \"c.example\"\n"
                             "  # tcp, 1 time\n  - host: \"db.example\"\n    protocol: tcp\n    ports: [1]\n    private: true\n");
    free(text);
    daemon_learn_free(learn);
    policy_model_free(model);
}

// A sandbox that scans: the table has an end, an entry too, and what comes of it is a policy all the same.
static void test_limits(void **state) {
    (void)state;
    struct policy_model *model = policy_model_new(POLICY_DIALECT_NATIVE);
    struct learn *learn = learn_of(model);
    const struct record_words words = {POLICY_TCP, POLICY_APP_UNKNOWN, NULL, "203.0.113.9", 0, 1, POLICY_ALLOWED_BASE};
    struct ipc_decision record = record_of(&words, 0);
    for (unsigned port = 1; port <= 2 * LEARN_ROWS_MAX + 20; port += 2) {
        record.port = (uint16_t)port;
        learn_record(learn, &record);
    }
    assert_int_equal(learn->row_count, LEARN_ROWS_MAX);
    assert_int_equal(learn->lost, 10);
    char *text = learn_text(learn);
    assert_non_null(strstr(text, "\n# Incomplete: only 4096 different destinations are kept.\n"));
    assert_allows(text, NULL, 0);
    free(text);
    daemon_learn_free(learn);
    policy_model_free(model);
}

static void test_file(void **state) {
    (void)state;
    struct policy_model *model = policy_model_new(POLICY_DIALECT_NATIVE);
    struct learn *learn = learn_of(model), *other = NULL;
    struct error err = {0};
    assert_int_equal(learn_write(learn, &err), 0);
    struct buf written = BUF_INIT;
    assert_int_equal(buf_read_file(&written, path, 4096), 0);
    char *text = learn_text(learn);
    assert_string_equal(written.data, text);
    free(text);
    buf_done(&written);
    struct stat status;
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(status.st_mode & 022, 0);
    // There by now: it stays as it is, and nothing else is left behind (remove_folder would fail).
    assert_int_equal(learn_write(learn, &err), -EEXIST);
    assert_non_null(strstr(err.text, path));
    assert_int_equal(stat(path, &status), 0);
    struct policy_model *second = policy_model_new(POLICY_DIALECT_NATIVE);
    assert_int_equal(daemon_learn_new(path, second, NULL, &other, &err), -EEXIST);
    assert_int_equal(daemon_learn_new("", second, NULL, &other, &err), -EINVAL);
    assert_int_equal(daemon_learn_new("/nonexistent/p.yaml", second, NULL, &other, &err), -ENOENT);
    assert_null(other);
    assert_int_equal(second->allow_count, 0); // not opened
    policy_model_free(second);
    daemon_learn_free(learn);
    daemon_learn_free(NULL);
    policy_model_free(model);
}

// Bindings stay, by their references; a host that was not reached stays open for its own.
static void test_credentials(void **state) {
    (void)state;
    static const char given[] =
        "version: 1\n"
        "allow: [{host: github.com}, {host: api.github.com}, {host: a.example, ports: [8443, '9000-9010']}, {host: '*.b.example'}]\n"
        "credentials:\n"
        "  - {binding: github, repos: [octo/hello]}\n"
        "  - {host: a.example, header: X-Key, value: 'k=\"{secret}\\', secret: 'cmd:printf \"%s\" x', path: /v1, methods: [GET, PUT]}\n"
        "  - {host: x.b.example, basic: robot, secret: 'store:robot', variable: ROBOT_TOKEN, scrub: true}\n";
    const struct record_words words[] = {
        {POLICY_TCP, POLICY_APP_TLS, "github.com", "192.0.2.1", 443, 2, POLICY_ALLOWED_NAME},
        {POLICY_DNS, POLICY_APP_UNKNOWN, "x.b.example", NULL, 53, 1, POLICY_ALLOWED_NAME},
    };
    struct policy_model *model = NULL;
    struct error err = {0};
    if (policy_read(given, strlen(given), "given", POLICY_DIALECT_AUTO, &model, &err) < 0) fail_msg("%s", err.text);
    struct learn *learn = learn_of(model);
    feed(learn, words, ARRAY_LENGTH(words));
    char *text = learn_text(learn);
    assert_non_null(text);
    assert_string_equal(body_of(text), HEAD "allow:\n"
                                       "  # https, 2 times; part of the preset @github\n"
                                       "  - host: \"github.com\"\n"
                                       "  # only looked up, 1 time\n"
                                       "  - host: \"x.b.example\"\n"
                                       "  # not reached; its credential is kept\n"
                                       "  - host: \"api.github.com\"\n"
                                       "  # not reached; its credential is kept\n"
                                       "  - host: \"a.example\"\n"
                                       "    ports: [\"8443-8443\", \"9000-9010\"]\n"
                                       "credentials:\n"
                                       "  - binding: github\n"
                                       "    repos: [\"octo/hello\"]\n"
                                       "  - host: \"a.example\"\n"
                                       "    header: \"X-Key\"\n"
                                       "    value: \"k=\\\"{secret}\\\\\"\n"
                                       "    secret: \"cmd:printf \\\"%s\\\" x\"\n"
                                       "    path: \"/v1\"\n"
                                       "    methods: [\"GET\", \"PUT\"]\n"
                                       "  - host: \"x.b.example\"\n"
                                       "    header: \"Authorization\"\n"
                                       "    value: \"robot:{secret}\"\n"
                                       "    basic: true\n"
                                       "    secret: \"store:robot\"\n"
                                       "    variable: \"ROBOT_TOKEN\"\n"
                                       "    scrub: true\n");
    assert_allows(text, words, ARRAY_LENGTH(words));
    struct policy_model *again = NULL;
    assert_int_equal(policy_read(text, strlen(text), "again", POLICY_DIALECT_AUTO, &again, &err), 0);
    if (policy_check_type(again, POLICY_TYPE_PROCESS, &err) < 0) fail_msg("%s", err.text);
    assert_int_equal(again->binding_count, 3);
    for (size_t i = 0; i < 3; i++) {
        char before[POLICY_BINDING_TEXT_SIZE], after[POLICY_BINDING_TEXT_SIZE];
        assert_string_equal(policy_binding_text(&again->bindings[i], after), policy_binding_text(&model->bindings[i], before));
    }
    struct stat status;
    assert_int_equal(learn_write(learn, &err), 0);
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(status.st_mode & 0777, 0600); // a command may hold what it should not
    unlink(path);
    free(text);
    policy_model_free(again);
    daemon_learn_free(learn);
    policy_model_free(model);
}

// A value that an E2B policy holds itself is not written.
static void test_values_stay_out(void **state) {
    (void)state;
    static const char given[] = "{\"allow_internet_access\": false, \"network\": {\"rules\": {\"x.example\": "
                                "[{\"transform\": {\"headers\": {\"X-Key\": \"inline-value\"}}}]}}}";
    struct policy_model *model = NULL;
    struct error err = {0};
    if (policy_read(given, strlen(given), "given", POLICY_DIALECT_E2B, &model, &err) < 0) fail_msg("%s", err.text);
    struct learn *learn = learn_of(model);
    char *text = learn_text(learn);
    assert_non_null(text);
    assert_null(strstr(text, "inline-value"));
    assert_non_null(strstr(text, "# header X-Key of x.example is left out"));
    assert_allows(text, NULL, 0);
    free(text);
    daemon_learn_free(learn);
    policy_model_free(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),  cmocka_unit_test(test_covered),   cmocka_unit_test(test_addresses),
        cmocka_unit_test(test_given),  cmocka_unit_test(test_odd_names), cmocka_unit_test(test_what_is_not_learned),
        cmocka_unit_test(test_limits), cmocka_unit_test(test_credentials), cmocka_unit_test(test_values_stay_out),
        cmocka_unit_test(test_file),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
