// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gate/scrub.h"

static struct scrub *scrub_of(const char *const *values) {
    struct scrub_value list[SCRUB_VALUES_MAX];
    size_t count = 0;
    for (; values[count]; count++) list[count] = (struct scrub_value){(const uint8_t *)values[count], strlen(values[count])};
    return scrub_new(list, count);
}

// The text in pieces of `step` bytes, each in memory of its own size.
static void check_step(const char *const *values, const char *text, const char *wanted, size_t step) {
    struct scrub *scrub = scrub_of(values);
    assert_non_null(scrub);
    size_t len = strlen(text), got_len = 0;
    char got[256] = "";
    for (size_t at = 0; at < len; at += step) {
        size_t piece = len - at < step ? len - at : step, room = piece + scrub_held(scrub);
        uint8_t *bytes = malloc(piece), *out = malloc(room);
        memcpy(bytes, text + at, piece);
        size_t count = scrub_feed(scrub, bytes, piece, out);
        assert_in_range(count, 0, room);
        memcpy(got + got_len, out, count);
        got_len += count;
        free(bytes);
        free(out);
    }
    got_len += scrub_end(scrub, (uint8_t *)got + got_len);
    assert_int_equal(got_len, len);
    assert_string_equal(got, wanted);
    assert_int_equal(scrub_held(scrub), 0);
    scrub_free(scrub);
}

static void test_pieces(void **state) {
    (void)state;
    static const struct {
        const char *values[4], *text, *wanted;
    } rows[] = {
        {{"secret"}, "a secret b", "a ****** b"},
        {{"secret"}, "secretsecret", "************"},
        {{"secret"}, "secresecret", "secre******"},
        {{"secret"}, "Secret secre", "Secret secre"},
        {{"secret"}, "", ""},
        {{"aab"}, "aaab", "a***"},
        {{"aa"}, "aaa a", "*** a"}, // overlapping with itself
        {{"abab"}, "xababab", "x******"},
        {{"abc", "bcd"}, "abcd bc abc", "**** bc ***"}, // with each other: the mask of one does not hide the other
        {{"long-secret", "secret"}, "my long-secret long-secre", "my *********** long-secre"},
        {{"secret", "long-secret"}, "long-long-secret", "long-***********"},
        {{"x"}, "axb", "a*b"},
        {{NULL}, "untouched", "untouched"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        for (size_t step = 1; step <= strlen(rows[i].text) + 1; step++)
            check_step(rows[i].values, rows[i].text, rows[i].wanted, step);
        char text[64];
        snprintf(text, sizeof(text), "%s", rows[i].text);
        struct scrub *scrub = scrub_of(rows[i].values);
        scrub_text(scrub, text, strlen(text));
        assert_string_equal(text, rows[i].wanted);
        scrub_free(scrub);
    }
}

static void test_holds_no_more_than_needed(void **state) {
    (void)state;
    static const char *const values[] = {"secret", NULL};
    struct scrub *scrub = scrub_of(values);
    uint8_t out[64];
    assert_int_equal(scrub_feed(scrub, "data: x\n\n", 9, out), 9); // an event goes out at once
    assert_int_equal(scrub_feed(scrub, "secre", 5, out), 0);
    assert_int_equal(scrub_held(scrub), 5);
    assert_int_equal(scrub_feed(scrub, "s", 1, out), 5);
    assert_memory_equal(out, "secre", 5);
    assert_int_equal(scrub_end(scrub, out), 1);
    assert_memory_equal(out, "s", 1);
    assert_int_equal(scrub_feed(scrub, "ecret", 5, out), 5); // another message begins anew
    scrub_free(scrub);
}

static void test_bounds(void **state) {
    (void)state;
    static uint8_t big[SCRUB_VALUE_MAX + 1];
    memset(big, 'a', sizeof(big));
    struct scrub_value value = {big, SCRUB_VALUE_MAX};
    struct scrub *scrub = scrub_new(&value, 1);
    assert_non_null(scrub);
    static uint8_t out[3 * SCRUB_VALUE_MAX];
    assert_int_equal(scrub_feed(scrub, big, SCRUB_VALUE_MAX - 1, out), 0);
    assert_int_equal(scrub_held(scrub), SCRUB_VALUE_MAX - 1);
    assert_int_equal(scrub_feed(scrub, "a", 1, out), 1); // what follows may be the end of another occurrence
    assert_int_equal(out[0], '*');
    assert_int_equal(scrub_end(scrub, out), SCRUB_VALUE_MAX - 1);
    assert_int_equal(out[SCRUB_VALUE_MAX - 2], '*');
    scrub_free(scrub);
    value.len = SCRUB_VALUE_MAX + 1;
    assert_null(scrub_new(&value, 1));
    value.len = 0;
    assert_null(scrub_new(&value, 1));
    static const struct scrub_value many[SCRUB_VALUES_MAX + 1];
    assert_null(scrub_new(many, SCRUB_VALUES_MAX + 1));
    scrub_free(NULL);
}

static void check_header(const char *value, const char *wanted) {
    struct scrub_value found = scrub_header_value(value, strlen(value));
    assert_int_equal(found.len, strlen(wanted));
    assert_memory_equal(found.bytes, wanted, found.len);
}

static void test_header_value(void **state) {
    (void)state;
    check_header("Bearer 0123456789", "0123456789");
    check_header("Bearer short", "Bearer short");
    check_header("0123456789", "0123456789");
    check_header("", "");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_holds_no_more_than_needed),
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_header_value),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
