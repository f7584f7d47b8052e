// SPDX-License-Identifier: Apache-2.0
// REQUEST: what a URL means, and what no client could send.
#include "cli/request.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/mem.h"
#include "policy/model.h"

static const struct {
    const char *text, *host;
    enum policy_protocol protocol;
    enum policy_app app;
    uint16_t port;
} good[] = {
    {"https://example.com/x?q=1", "example.com", POLICY_TCP, POLICY_APP_TLS, 443},
    {"HTTPS://EXAMPLE.com.", "example.com", POLICY_TCP, POLICY_APP_TLS, 443},
    {"https://example.com:8443#x", "example.com", POLICY_TCP, POLICY_APP_TLS, 8443},
    {"https://u:p@example.com/", "example.com", POLICY_TCP, POLICY_APP_TLS, 443},
    {"https://a@b@example.com/", "example.com", POLICY_TCP, POLICY_APP_TLS, 443},
    {"https://evil.com\\@example.com/", "evil.com", POLICY_TCP, POLICY_APP_TLS, 443},
    {"https://evil.com#@example.com/", "evil.com", POLICY_TCP, POLICY_APP_TLS, 443},
    {"http://example.com", "example.com", POLICY_TCP, POLICY_APP_HTTP, 80},
    {"tcp://example.com:22", "example.com", POLICY_TCP, POLICY_APP_UNKNOWN, 22},
    {"udp://[2001:db8::1]:53", "2001:db8::1", POLICY_UDP, POLICY_APP_UNKNOWN, 53},
    {"tcp://[::ffff:203.0.113.1]:1", "203.0.113.1", POLICY_TCP, POLICY_APP_UNKNOWN, 1},
    {"icmp://8.8.8.8", "8.8.8.8", POLICY_ICMP, POLICY_APP_UNKNOWN, 0},
    {"icmp://[2001:db8::1]", "2001:db8::1", POLICY_ICMP, POLICY_APP_UNKNOWN, 0},
    {"dns://example.com.", "example.com", POLICY_DNS, POLICY_APP_UNKNOWN, 0},
};

static void test_good(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(good); i++) {
        struct request request;
        struct error err = {0};
        char address[ADDR_TEXT_SIZE];
        if (request_parse(good[i].text, strlen(good[i].text), &request, &err) != 0) fail_msg("%s", err.text);
        const char *host = request.host.is_address ? addr_format(&request.host.address, address) : request.host.name;
        assert_string_equal(host, good[i].host);
        assert_int_equal(request.protocol, good[i].protocol);
        assert_int_equal(request.app, good[i].app);
        assert_int_equal(request.port, good[i].port);
    }
}

static void test_bad(void **state) {
    (void)state;
    static const char *const bad[] = {"",
                                      "example.com",
                                      "//example.com/",
                                      "ftp://example.com/",
                                      "https:/example.com",
                                      "https://",
                                      "https:///x",
                                      "https://exam ple.com",
                                      "https://a_b..c",
                                      "https://example.com:0",
                                      "https://example.com:65536",
                                      "https://example.com:",
                                      "https://example.com:+1",
                                      "https://127.1/",
                                      "https://2130706433/",
                                      "https://0x7f.1/",
                                      "https://0177.0.0.1/",
                                      "https://2001:db8::1/",
                                      "https://[fe80::1%25eth0]/",
                                      "https://\xc3\xbc.example/",
                                      "https://a%00b.org/",
                                      "tcp://example.com",
                                      "udp://example.com",
                                      "icmp://8.8.8.8:1",
                                      "dns://8.8.8.8",
                                      "dns://example.com:53"};
    for (size_t i = 0; i < ARRAY_LENGTH(bad); i++) {
        struct request request;
        struct error err = {0};
        if (request_parse(bad[i], strlen(bad[i]), &request, &err) != -EINVAL) fail_msg("%s was taken", bad[i]);
        assert_non_null(strstr(err.text, bad[i]));
    }
    struct request request;
    assert_int_equal(request_parse("https://evil.com\0.example.com/", 30, &request, NULL), -EINVAL);
}

static struct request_verdict judge(const char *policy_text, const char *url, const char *const *answers,
                                    size_t count) {
    struct policy_model *model = NULL;
    struct policy *policy = NULL;
    struct policy_warnings warnings = {0};
    struct request request;
    struct addr addresses[4];
    struct error err = {0};
    for (size_t i = 0; answers && i < count; i++)
        assert_int_equal(addr_parse(answers[i], strlen(answers[i]), &addresses[i]), 0);
    assert_int_equal(policy_read(policy_text, strlen(policy_text), "p", POLICY_DIALECT_AUTO, &model, &err), 0);
    assert_int_equal(policy_compile(model, NULL, NULL, 0, 1, &policy, &warnings, &err), 0);
    assert_int_equal(request_parse(url, strlen(url), &request, &err), 0);
    struct request_verdict verdict = request_judge(policy, &request, answers ? addresses : NULL, count);
    policy_warnings_done(&warnings);
    policy_free(policy);
    policy_model_free(model);
    return verdict;
}

#define POLICY "{\"network\":{\"allow\":{\"hosts\":[\"a.org\",\"203.0.113.1\"]}}}"

static void assert_verdict(struct request_verdict verdict, enum policy_verdict expect, enum policy_reason reason,
                           const char *address) {
    char text[ADDR_TEXT_SIZE];
    assert_int_equal(verdict.decision.verdict, expect);
    assert_int_equal(verdict.decision.reason, reason);
    assert_int_equal(verdict.has_address, address != NULL);
    if (address) assert_string_equal(addr_format(&verdict.address, text), address);
}

static void test_judge(void **state) {
    (void)state;
    static const char *const mixed[] = {"10.0.0.1", "93.184.216.34"}, *const other[] = {"10.0.0.1", "2606:4700::1"};
    assert_verdict(judge(POLICY, "https://a.org/", NULL, 0), POLICY_ALLOW, POLICY_ALLOWED_NAME, NULL);
    assert_verdict(judge(POLICY, "https://a.org/", mixed, 2), POLICY_DENY, POLICY_PRIVATE_ADDRESS, "10.0.0.1");
    assert_verdict(judge(POLICY, "https://a.org/", mixed + 1, 1), POLICY_ALLOW, POLICY_ALLOWED_NAME, "93.184.216.34");
    assert_verdict(judge(POLICY, "https://a.org/", other, 2), POLICY_ALLOW, POLICY_ALLOWED_NAME, "2606:4700::1");
    assert_verdict(judge(POLICY, "https://a.org/", mixed, 0), POLICY_DENY, POLICY_DNS_FAILED, NULL);
    // Never looked up, so the answers do not matter.
    assert_verdict(judge(POLICY, "https://b.org/", mixed, 2), POLICY_DENY, POLICY_BASE_DENIED, NULL);
    assert_verdict(judge(POLICY, "https://b.org/", mixed, 0), POLICY_DENY, POLICY_BASE_DENIED, NULL);
    // A client that sends neither TLS nor HTTP.
    assert_verdict(judge(POLICY, "tcp://203.0.113.1:443", NULL, 0), POLICY_DENY, POLICY_NOT_HTTPS, "203.0.113.1");
    assert_verdict(judge(POLICY, "https://203.0.113.1", NULL, 0), POLICY_ALLOW, POLICY_ALLOWED_CIDR, "203.0.113.1");
    assert_verdict(judge("{\"network\":\"all\"}", "tcp://203.0.113.1:443", NULL, 0), POLICY_ALLOW, POLICY_ALLOWED_BASE,
                   "203.0.113.1");
    assert_verdict(judge(POLICY, "dns://b.org", NULL, 0), POLICY_DENY, POLICY_DNS_NAME_DENIED, NULL);
}

// What the client would send: up to the fragment, and "/" where nothing stands.
static void test_path(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {"https://a.org", "/"}, {"https://a.org?x=/y", "/"}, {"https://a.org#/x", "/"}, {"https://a.org/x/y?z#f", "/x/y?z"},
        {"https://u:p@a.org:8443/x", "/x"}, {"https://a.org\\x", "\\x"},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct request request;
        assert_int_equal(request_parse(cases[i][0], strlen(cases[i][0]), &request, NULL), 0);
        assert_int_equal(request.path_len, strlen(cases[i][1]));
        assert_memory_equal(request.path, cases[i][1], request.path_len);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_good), cmocka_unit_test(test_bad),
                                       cmocka_unit_test(test_judge), cmocka_unit_test(test_path)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
