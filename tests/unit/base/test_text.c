// SPDX-License-Identifier: Apache-2.0
// error.c, buf.c, number.c, clock.c, random.c.
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/mem.h"
#include "base/number.h"
#include "base/random.h"

static void errors(void **state) {
    (void)state;
    struct error err = {0};
    assert_int_equal(error_set(&err, -EINVAL, "bad \"%s\"", "a\nb\x1b[1m\x7f"), -EINVAL);
    assert_string_equal(err.text, "bad \"a\\x0ab\\x1b[1m\\x7f\"");
    assert_int_equal(error_context(&err, -EINVAL, "line %d", 3), -EINVAL);
    assert_string_equal(err.text, "line 3: bad \"a\\x0ab\\x1b[1m\\x7f\"");
    error_set(&err, -EINVAL, "%s", "b\xc3\xbc \xc2\x9b");
    assert_string_equal(err.text, "b\xc3\xbc \\x9b");
    assert_int_equal(error_set(NULL, -ENOMEM, "x"), -ENOMEM);
    assert_int_equal(error_context(NULL, -ENOMEM, "x"), -ENOMEM);
    char longest[5000];
    memset(longest, '\n', sizeof(longest));
    longest[sizeof(longest) - 1] = '\0';
    error_set(&err, -EINVAL, "%s", longest);
    assert_int_equal(strlen(err.text), 1020); // whole escapes only
    error_context(&err, -EINVAL, "%s", longest);
    assert_true(strlen(err.text) < sizeof(err.text));
}

static void buffers(void **state) {
    (void)state;
    struct buf buf = BUF_INIT;
    buf_append(&buf, "", 0);
    assert_null(buf.data);
    for (int i = 0; i < 1000; i++) buf_printf(&buf, "%d,", i % 10);
    assert_int_equal(buf.len, 2000);
    assert_int_equal(strlen(buf.data), 2000);
    buf_consume(&buf, 1998);
    assert_string_equal(buf.data, "9,");
    buf_consume(&buf, 5);
    assert_int_equal(buf.len, 0);
    buf_append(&buf, "a\0b", 3);
    assert_memory_equal(buf.data, "a\0b", 4);
    char *data = buf_take(&buf);
    assert_memory_equal(data, "a\0b", 4);
    assert_true(buf.data == NULL && buf.len == 0);
    free(data);
    data = buf_take(&buf);
    assert_string_equal(data, "");
    free(data);
    buf.failed = true; // sticky
    buf_append(&buf, "x", 1);
    assert_int_equal(buf.len, 0);
    assert_null(buf_take(&buf));
    // A block that fills the first size exactly.
    char block[128] = {0};
    buf_append(&buf, block, sizeof(block));
    assert_int_equal(buf.len, 128);
    assert_true(buf.size > 128);
    buf_done(&buf);
}

static void files(void **state) {
    (void)state;
    char path[] = "/tmp/penstock-buf-XXXXXX";
    AUTO_CLOSE int fd = mkostemp(path, O_CLOEXEC);
    assert_true(fd >= 0);
    char block[40000];
    memset(block, 'x', sizeof(block));
    assert_int_equal(write(fd, block, sizeof(block)), sizeof(block));
    struct buf buf = BUF_INIT;
    assert_int_equal(buf_read_file(&buf, path, 40000), 0);
    assert_int_equal(buf.len, 40000);
    buf_done(&buf);
    assert_int_equal(buf_read_file(&buf, path, 39999), -EFBIG);
    buf_done(&buf);
    assert_int_equal(buf_read_file(&buf, "/nonexistent/file", 10), -ENOENT);
    assert_int_equal(buf_read_file(&buf, "/", 10), -EISDIR);
    buf_done(&buf);
    unlink(path);
}

static void numbers(void **state) {
    (void)state;
    uint64_t number = 99;
    static const char *const bad[] = {"", "-1", "+1", " 1", "1 ", "01", "00", "1a", "0x10", "1.0", "\xd9\xa1"};
    for (size_t i = 0; i < ARRAY_LENGTH(bad); i++)
        assert_int_equal(number_parse(bad[i], strlen(bad[i]), 0, UINT64_MAX, &number), -EINVAL);
    assert_int_equal(number_parse("65536", 5, 1, 65535, &number), -ERANGE);
    assert_int_equal(number_parse("0", 1, 1, 65535, &number), -ERANGE);
    assert_int_equal(number_parse("18446744073709551616", 20, 0, UINT64_MAX, &number), -ERANGE);
    assert_int_equal(number_parse("99999999999999999999999999", 26, 0, UINT64_MAX, &number), -ERANGE);
    assert_int_equal(number, 99); // untouched on failure
    assert_int_equal(number_parse("18446744073709551615", 20, 0, UINT64_MAX, &number), 0);
    assert_true(number == UINT64_MAX);
    assert_int_equal(number_parse("0", 1, 0, 0, &number), 0);
    assert_int_equal(number, 0);
    assert_int_equal(number_parse("443x", 3, 1, 65535, &number), 0);
    assert_int_equal(number, 443);
}

static void clock_and_random(void **state) {
    (void)state;
    char text[CLOCK_TEXT_SIZE];
    clock_text(text);
    assert_int_equal(strlen(text), 24); // 2024-01-02T03:04:05.678Z
    assert_true(text[4] == '-' && text[10] == 'T' && text[19] == '.' && text[23] == 'Z');
    uint64_t before = clock_us();
    assert_true(clock_us() >= before);
    uint8_t a[64] = {0}, b[64] = {0};
    random_bytes(a, sizeof(a));
    random_bytes(b, sizeof(b));
    assert_memory_not_equal(a, b, sizeof(a));
    assert_true(random_u32() != random_u32() || random_u32() != random_u32());
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(errors), cmocka_unit_test(buffers), cmocka_unit_test(files),
                                       cmocka_unit_test(numbers), cmocka_unit_test(clock_and_random)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
