// SPDX-License-Identifier: Apache-2.0
#include "wire/wire.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static const struct {
    const char *bytes;
    size_t len;
    enum wire_app app;
} rows[] = {
    {"", 0, WIRE_APP_MORE},
    {"\x16", 1, WIRE_APP_MORE},
    {"\x16\x03", 2, WIRE_APP_MORE},
    {"\x16\x03\x01", 3, WIRE_APP_TLS},
    {"\x16\x03\x04\x00", 4, WIRE_APP_TLS},
    {"\x16\x03\x05", 3, WIRE_APP_OTHER},
    {"\x16\x02", 2, WIRE_APP_OTHER},
    {"\x80\x2e\x01\x00\x02", 5, WIRE_APP_OTHER}, // SSLv2
    {"G", 1, WIRE_APP_MORE},
    {"GET", 3, WIRE_APP_MORE},
    {"GET ", 4, WIRE_APP_HTTP1},
    {"get ", 4, WIRE_APP_OTHER},
    {"GETX", 4, WIRE_APP_OTHER},
    {"M-SEARCH * HTTP/1.1", 19, WIRE_APP_HTTP1},
    {"CONNECT a:1 HTTP/1.1", 20, WIRE_APP_HTTP1},
    {"PR", 2, WIRE_APP_MORE},
    {"PROPFIND /", 10, WIRE_APP_HTTP1},
    {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r", 23, WIRE_APP_MORE},
    {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 24, WIRE_APP_HTTP2},
    {"PRI * HTTP/2.0\r\n\r\nSX", 20, WIRE_APP_OTHER},
    {"EHLO example.com\r\n", 18, WIRE_APP_OTHER},
    {"SSH-2.0-x", 9, WIRE_APP_OTHER},
    {"\r\nGET / HTTP/1.1", 16, WIRE_APP_OTHER},
    {"\0", 1, WIRE_APP_OTHER},
};

static void test_classify(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        assert_int_equal(wire_classify((const uint8_t *)rows[i].bytes, rows[i].len), rows[i].app);
}

// More bytes never change an answer, and 24 always give one.
static void test_stable(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        uint8_t bytes[40];
        memset(bytes, 'z', sizeof(bytes));
        memcpy(bytes, rows[i].bytes, rows[i].len);
        enum wire_app before = WIRE_APP_MORE;
        for (size_t len = 0; len <= sizeof(bytes); len++) {
            enum wire_app app = wire_classify(bytes, len);
            if (before != WIRE_APP_MORE) assert_int_equal(app, before);
            before = app;
        }
        assert_int_not_equal(wire_classify(bytes, 24), WIRE_APP_MORE);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_classify), cmocka_unit_test(test_stable)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
