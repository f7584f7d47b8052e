// SPDX-License-Identifier: Apache-2.0
// The runner of conformance cases: it passes the cases we keep, and it can fail.
#include "cli/check_cases.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/buf.h"
#include "base/mem.h"

static void test_kept_cases(void **state) {
    (void)state;
    struct buf text = BUF_INIT;
    assert_int_equal(buf_read_file(&text, PENSTOCK_TESTS "/unit/policy/cases/verdict.jsonl", (size_t)8 << 20), 0);
    struct check_cases_count count = check_cases_run(text.data, text.len, "verdict.jsonl");
    buf_done(&text);
    assert_int_equal(count.failed, 0);
    assert_true(count.passed > 1000);
}

#define HOSTS "\"policy\":{\"network\":{\"allow\":{\"hosts\":[\"a.org\"]}}}"

static void test_each_way(void **state) {
    (void)state;
    static const struct {
        const char *line;
        bool passes;
    } rows[] = {
        {"{\"policy\":{},\"expect\":\"valid\"}", true},
        {"{\"policy\":{},\"expect\":\"invalid\"}", false},
        {"{\"policy\":{\"x\":1},\"expect\":\"valid\"}", false},
        {"{\"policy\":{\"x\":1},\"expect\":\"invalid\"}", true},
        {"{\"policy\":{\"xyz\":1},\"expect\":\"invalid\",\"says\":[\"xyz\",\"unknown\"]}", true},
        {"{\"policy\":{\"xyz\":1},\"expect\":\"invalid\",\"says\":[\"xyz\",\"abc\"]}", false},
        {"{" HOSTS ",\"request\":\"https://a.org/\",\"expect\":\"allow\"}", true},
        {"{" HOSTS ",\"request\":\"https://a.org/\",\"expect\":\"allow\",\"reason\":\"allowed_name\"}", true},
        {"{" HOSTS ",\"request\":\"https://a.org/\",\"expect\":\"allow\",\"reason\":\"allowed_cidr\"}", false},
        {"{" HOSTS ",\"request\":\"https://a.org/\",\"expect\":\"deny\"}", false},
        {"{" HOSTS ",\"request\":\"https://b.org/\",\"expect\":\"deny\",\"reason\":\"base_denied\"}", true},
        {"{" HOSTS ",\"request\":\"https://b.org/\",\"expect\":\"allow\"}", false},
        {"{" HOSTS ",\"request\":\"https://a.org/"
                   "\",\"resolved\":[\"10.0.0.1\"],\"expect\":\"deny\",\"reason\":\"private_address\"}",
         true},
        {"{" HOSTS ",\"request\":\"https://a.org/\",\"resolved\":[\"10.0.0\"],\"expect\":\"deny\"}", false},
        {"{" HOSTS ",\"request\":\"https://a.org/\",\"resolved\":[],\"expect\":\"deny\",\"reason\":\"dns_failed\"}",
         true},
        {"{" HOSTS ",\"request\":\"https://a.org\\u0000.b.org/\",\"expect\":\"deny\",\"reason\":\"bad_request\"}",
         true},
        {"{" HOSTS ",\"expect\":\"allow\"}", false}, // no request
        {"{\"policy\":{},\"expect\":\"valid\",\"resolves\":[]}", false}, // no such key
        {"{" HOSTS ",\"type\":\"docker\",\"expect\":\"invalid\",\"says\":[\"LocalDockerSandbox\"]}", true},
        {"{" HOSTS ",\"type\":\"vm\",\"expect\":\"invalid\"}", true},
        {"{" HOSTS ",\"node\":{\"always_denied\":[\"a.org\"]},\"request\":\"https://a.org/"
                   "\",\"expect\":\"deny\",\"reason\":\"node_denied\"}",
         true},
        {"{" HOSTS ",\"node\":{\"pool4\":\"198.18.0.0/16\"},\"expect\":\"valid\"}", true},
        {"{" HOSTS ",\"node\":{\"x\":1},\"expect\":\"invalid\"}", true},
        {"{" HOSTS ",\"node\":{\"x\":1},\"expect\":\"valid\"}", false},
        {"{\"policy\":{\"network\":\"all\",\"network\":\"none\"},\"expect\":\"invalid\",\"says\":[\"twice\"]}", true},
        {"{\"policy\":{\"network\":{\"allow\":{\"hosts\":[\"a\\u007f\\u0085\\ufeff\\uffff.org\"]}}},\"expect\":"
         "\"invalid\",\"says\":[\"control byte\"]}",
         true},
        {"{\"policy\":{},\"expect\":\"perhaps\"}", false},
        {"{\"expect\":\"valid\"}", false},
        {"[]", false},
        {"{", false},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        struct check_cases_count count = check_cases_run(rows[i].line, strlen(rows[i].line), "rows");
        if (count.passed != rows[i].passes || count.failed != !rows[i].passes) fail_msg("row %zu: %s", i, rows[i].line);
    }
}

static void test_lines(void **state) {
    (void)state;
    const char text[] = "\n{\"policy\":{},\"expect\":\"valid\"}\r\n  \n{\"policy\":{},\"expect\":\"invalid\"}\n\n"
                        "{\"policy\":{},\"expect\":\"valid\"}";
    struct check_cases_count count = check_cases_run(text, strlen(text), "lines");
    assert_int_equal(count.passed, 2);
    assert_int_equal(count.failed, 1);
    assert_int_equal(check_cases_file("/nonexistent/cases.jsonl"), 2);
    assert_int_equal(check_cases_file("/dev/null"), 2); // nothing in it
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_kept_cases), cmocka_unit_test(test_each_way),
                                       cmocka_unit_test(test_lines)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
