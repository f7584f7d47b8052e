// SPDX-License-Identifier: Apache-2.0
// Sums of counters, and their text held to the exposition format: each family once, its comments first, its samples
// together, no sample twice, every line well-formed.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "daemon/metrics.h"
#include "policy/policy.h"

static struct ipc_counters filled(uint64_t start) {
    struct ipc_counters counters;
    uint64_t numbers[sizeof(counters) / sizeof(uint64_t)];
    for (size_t i = 0; i < ARRAY_LENGTH(numbers); i++) numbers[i] = start + i;
    memcpy(&counters, numbers, sizeof(counters));
    return counters;
}

static void test_sums(void **state) {
    (void)state;
    struct ipc_counters sum = {0}, one = filled(1), two = filled(1000);
    metrics_add(&sum, &one);
    metrics_add(&sum, &two);
    assert_true(sum.decisions[0][0][0] == 1001 && sum.log_waiting == one.log_waiting + two.log_waiting);
    struct ipc_counters before = sum;
    metrics_retire(&sum, &one); // what it had open is gone with it
    assert_true(sum.bytes[1] == before.bytes[1] + one.bytes[1] && sum.starved == before.starved + one.starved);
    assert_true(sum.flows_open == before.flows_open && sum.exchanges_open == before.exchanges_open);
    assert_true(sum.names == before.names && sum.log_waiting == before.log_waiting);
}

static size_t word(const char *text) {
    return strspn(text, "abcdefghijklmnopqrstuvwxyz_");
}

// name{label="text",label="text"} number. The length of the name.
static size_t check_sample(const char *line) {
    size_t name = word(line);
    assert_true(name > 0);
    const char *at = line + name;
    assert_int_equal(*at, '{');
    do {
        at++;
        size_t label = word(at);
        assert_true(label > 0);
        at += label;
        assert_memory_equal(at, "=\"", 2);
        for (at += 2; *at != '"'; at++) {
            assert_true(*at != '\0' && *at != '\n');
            if (*at == '\\') assert_non_null(strchr("\\\"n", *++at));
        }
        at++;
    } while (*at == ',');
    assert_memory_equal(at, "} ", 2);
    char *end;
    strtod(at + 2, &end);
    assert_true(end > at + 2 && *end == '\0');
    return name;
}

static size_t check_text(char *text) {
    char *lines[4096], *kept = NULL, family[128] = "", type[32] = "";
    size_t count = 0, samples = 0;
    assert_int_equal(text[strlen(text) - 1], '\n');
    for (char *line = strtok_r(text, "\n", &kept); line; line = strtok_r(NULL, "\n", &kept)) {
        assert_true(count < ARRAY_LENGTH(lines));
        lines[count++] = line;
    }
    for (size_t i = 0; i < count; i++) {
        char *space = strrchr(lines[i], ' ');
        if (lines[i][0] == '#') {
            char word_is[16], name[128];
            assert_int_equal(sscanf(lines[i], "# %15s %127s", word_is, name), 2);
            bool help = strcmp(word_is, "HELP") == 0;
            assert_true(help || strcmp(word_is, "TYPE") == 0);
            if (help) snprintf(family, sizeof(family), "%s", name);
            assert_string_equal(family, name);
            if (!help) snprintf(type, sizeof(type), "%s", space + 1);
            for (size_t j = 0; help && j < i; j++) assert_true(strncmp(lines[j], lines[i], strlen(lines[i])) != 0);
            continue;
        }
        size_t len = check_sample(lines[i]), base = strlen(family);
        const char *suffix = lines[i] + base;
        assert_memory_equal(lines[i], family, base);
        bool histogram = strcmp(type, "histogram") == 0;
        assert_true(len == base || (histogram && (strncmp(suffix, "_bucket{", 8) == 0 || strncmp(suffix, "_sum{", 5) == 0 ||
                                                  strncmp(suffix, "_count{", 7) == 0)));
        assert_true(strcmp(type, "counter") != 0 || strcmp(family + base - 6, "_total") == 0);
        for (size_t j = 0; j < i; j++) // the same series would be given twice
            assert_true((size_t)(strrchr(lines[j], ' ') - lines[j]) != (size_t)(space - lines[i]) ||
                        strncmp(lines[j], lines[i], (size_t)(space - lines[i])) != 0);
        samples++;
    }
    return samples;
}

static void test_format(void **state) {
    (void)state;
    struct buf out = BUF_INIT;
    struct metrics_row rows[] = {{"process", filled(1)}, {"a \"strange\\ \n one", {.flows = 0}}, {"", filled(UINT64_MAX - 100)}};
    metrics_text(&out, "type", rows, 3);
    assert_false(out.failed);
    assert_true(check_text(out.data) > 2 * IPC_PROTOCOLS * IPC_VERDICTS * IPC_REASONS);
    buf_done(&out);
    metrics_text(&out, "type", rows, 0);
    assert_int_equal(check_text(out.data), 0);
    buf_done(&out);
}

static void test_values(void **state) {
    (void)state;
    static const char *const lines[] = {
        "penstock_decisions_total{type=\"x\",protocol=\"tcp\",verdict=\"deny\",reason=\"base_denied\"} 7\n",
        "penstock_dns_questions_total{type=\"x\",result=\"answered\"} 5\n",
        "penstock_dns_questions_total{type=\"x\",result=\"denied\"} 2\n",
        "penstock_dns_questions_total{type=\"x\",result=\"failed\"} 1\n",
        "penstock_limited_total{type=\"x\",limit=\"bytes_out\"} 3\n",
        "penstock_bytes_total{type=\"x\",direction=\"out\"} 18446744073709551615\n",
        "penstock_policy_update_seconds_bucket{type=\"x\",le=\"0.001\"} 3\n",
        "penstock_policy_update_seconds_bucket{type=\"x\",le=\"+Inf\"} 4\n",
        "penstock_policy_update_seconds_sum{type=\"x\"} 1.000042\n",
        "penstock_policy_update_seconds_count{type=\"x\"} 4\n",
        "penstock_flows_open{type=\"x\",kind=\"tcp\"} 12\n",
        "# TYPE penstock_names gauge\npenstock_names{type=\"x\"} 9\n",
    };
    struct metrics_row row = {.value = "x", .counters = {.bytes = {UINT64_MAX}, .updates = {2, 1, 0, 1}, .update_us = 1000042,
                                                         .flows_open = 12, .names = 9}};
    row.counters.decisions[POLICY_TCP][POLICY_DENY][POLICY_BASE_DENIED] = 7;
    row.counters.decisions[POLICY_DNS][POLICY_ALLOW][POLICY_ALLOWED_NAME] = 5;
    row.counters.decisions[POLICY_DNS][POLICY_DENY][POLICY_DNS_NAME_DENIED] = 2;
    row.counters.decisions[POLICY_DNS][POLICY_DENY][POLICY_DNS_FAILED] = 1;
    row.counters.limited[POLICY_LIMIT_BYTES_OUT] = 3;
    struct buf out = BUF_INIT;
    metrics_text(&out, "type", &row, 1);
    for (size_t i = 0; i < ARRAY_LENGTH(lines); i++) assert_non_null(strstr(out.data, lines[i]));
    assert_null(strstr(out.data, "reason=\"no_name\"")); // never was
    buf_done(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sums), cmocka_unit_test(test_format), cmocka_unit_test(test_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
