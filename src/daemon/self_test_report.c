// SPDX-License-Identifier: Apache-2.0
#include <jansson.h>
#include <stdio.h>

#include "base/mem.h"
#include "daemon/self_test.h"

static const char *const state_words[] = {[SELF_TEST_NOT_RUN] = "not run", [SELF_TEST_PASS] = "pass", [SELF_TEST_FAIL] = "FAIL"};

static void print_line(struct self_test *test, size_t number) {
    const struct probe_case *row = &probe_cases[number];
    const struct self_test_outcome *outcome = &test->outcomes[number];
    if (!test->group || strcmp(test->group, row->group) != 0) printf("%s\n", row->group);
    test->group = row->group;
    printf("%5zu %s  %s%s%s\n", number + 1, state_words[outcome->state], row->name, outcome->detail[0] ? ": " : "",
           outcome->detail);
    fflush(stdout);
}

void self_test_report_case(struct self_test *test, size_t number) {
    if (!test->options->json) print_line(test, number);
}

static json_t *json_of_case(const struct self_test *test, size_t number) {
    const struct probe_case *row = &probe_cases[number];
    const struct self_test_outcome *outcome = &test->outcomes[number];
    return json_pack("{s:i,s:s,s:s,s:s,s:f,s:s}", "number", (int)number + 1, "group", row->group, "name", row->name, "result",
                     state_words[outcome->state], "slowest_ms", (double)outcome->slowest_us / 1000, "detail", outcome->detail);
}

static void print_json(const struct self_test *test, const size_t counts[3], double slowest_ms) {
    json_t *rows = json_array();
    for (size_t i = 0; i < probe_case_count; i++) json_array_append_new(rows, json_of_case(test, i));
    json_t *object = json_pack("{s:i,s:i,s:i,s:f,s:o}", "passed", (int)counts[SELF_TEST_PASS], "failed",
                               (int)counts[SELF_TEST_FAIL], "not_run", (int)counts[SELF_TEST_NOT_RUN], "slowest_ms",
                               slowest_ms, "attempts", rows);
    if (object) json_dumpf(object, stdout, JSON_COMPACT | JSON_PRESERVE_ORDER);
    printf("\n");
    json_decref(object);
}

int self_test_report_end(struct self_test *test) {
    size_t counts[3] = {0};
    uint64_t slowest_us = 0;
    for (size_t i = 0; i < probe_case_count; i++) {
        counts[test->outcomes[i].state]++;
        if (test->outcomes[i].slowest_us > slowest_us) slowest_us = test->outcomes[i].slowest_us;
    }
    double slowest_ms = (double)slowest_us / 1000;
    size_t left_out = 0;
    for (size_t i = 0; i < probe_case_count && test->plain; i++) left_out += probe_cases[i].place == PROBE_ALL;
    if (test->options->json) {
        print_json(test, counts, slowest_ms);
    } else {
        printf("\n%zu passed, %zu failed", counts[SELF_TEST_PASS], counts[SELF_TEST_FAIL]);
        if (counts[SELF_TEST_NOT_RUN]) printf(", %zu not run", counts[SELF_TEST_NOT_RUN]);
        if (test->plain) printf(" (%zu of an open base, which no sandbox can have here: see penstock doctor)", left_out);
        printf("; the slowest refusal took %.1f ms\n", slowest_ms);
    }
    return counts[SELF_TEST_PASS] + left_out == probe_case_count ? 0 : 1;
}
