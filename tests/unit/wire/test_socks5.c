// SPDX-License-Identifier: Apache-2.0
#include "wire/socks5.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define BYTES(text) (const uint8_t *)(text), sizeof(text) - 1

static const struct {
    const char *what;
    const uint8_t *bytes;
    size_t len;
    enum wire_result result;
    enum socks5_method method;
    size_t used;
} greetings[] = {
    {"none", BYTES("\5\1\0"), WIRE_OK, SOCKS5_NO_AUTHENTICATION, 3},
    {"password", BYTES("\5\1\2"), WIRE_OK, SOCKS5_PASSWORD, 3},
    {"both, data behind", BYTES("\5\3\1\2\0\5"), WIRE_OK, SOCKS5_NO_AUTHENTICATION, 5},
    {"GSSAPI alone", BYTES("\5\1\1"), WIRE_OK, SOCKS5_NO_METHOD, 3},
    {"no method at all", BYTES("\5\0"), WIRE_OK, SOCKS5_NO_METHOD, 2},
    {"SOCKS4", BYTES("\4\1"), WIRE_BAD, 0, 0},
    {"HTTP", BYTES("GET / HTTP/1.1\r\n"), WIRE_BAD, 0, 0},
    {"nothing", BYTES(""), WIRE_MORE, 0, 0},
    {"version", BYTES("\5"), WIRE_MORE, 0, 0},
    {"part", BYTES("\5\2\0"), WIRE_MORE, 0, 0},
};

static void test_greeting(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(greetings) / sizeof(greetings[0]); i++) {
        enum socks5_method method = SOCKS5_NO_AUTHENTICATION;
        size_t used = 0;
        if (socks5_greeting(greetings[i].bytes, greetings[i].len, &method, &used) != greetings[i].result ||
            method != greetings[i].method || used != greetings[i].used) {
            fail_msg("%s", greetings[i].what);
        }
    }
}

static void test_credentials(void **state) {
    (void)state;
    size_t used = 0;
    static const char whole[] = "\1\2me\4pass\5\1";
    for (size_t len = 0; len < 9; len++)
        assert_int_equal(socks5_credentials((const uint8_t *)whole, len, &used), WIRE_MORE);
    assert_int_equal(socks5_credentials(BYTES(whole), &used), WIRE_OK);
    assert_int_equal(used, 9);
    assert_int_equal(socks5_credentials(BYTES("\1\0\0"), &used), WIRE_OK);
    assert_int_equal(used, 3);
    assert_int_equal(socks5_credentials(BYTES("\5\1\0\1"), &used), WIRE_BAD);
}

static const struct {
    const char *what;
    const uint8_t *bytes;
    size_t len;
    enum wire_result result;
    const char *name, *address; // what is asked for, one of them
    uint16_t port;
    size_t used;
} requests[] = {
    {"name", BYTES("\5\1\0\3\5a.bcd\1\xbb"), WIRE_OK, "a.bcd", NULL, 443, 12},
    {"data behind", BYTES("\5\1\0\3\1a\0\x50\x16\3"), WIRE_OK, "a", NULL, 80, 8},
    {"name with a NUL", BYTES("\5\1\0\3\3a\0b\0\x50"), WIRE_OK, "a\0b", NULL, 80, 10},
    {"IPv4", BYTES("\5\1\0\1\xc6\x33\x64\1\0\x50"), WIRE_OK, NULL, "198.51.100.1", 80, 10},
    {"IPv6", BYTES("\5\1\0\4\x20\1\xd\xb8\0\0\0\0\0\0\0\0\0\0\0\1\x1f\x90"), WIRE_OK, NULL, "2001:db8::1", 8080, 22},
    {"IPv4 in IPv6", BYTES("\5\1\0\4\0\0\0\0\0\0\0\0\0\0\xff\xff\xa\0\0\1\0\x16"), WIRE_OK, NULL, "10.0.0.1", 22, 22},
    {"port 0", BYTES("\5\1\0\1\1\2\3\4\0\0"), WIRE_OK, NULL, "1.2.3.4", 0, 10},
    {"empty name", BYTES("\5\1\0\3\0\0\x50"), WIRE_BAD, NULL, NULL, 0, 0},
    {"version", BYTES("\4\1\0\1\1\2\3\4\0\x50"), WIRE_BAD, NULL, NULL, 0, 0},
    {"reserved byte", BYTES("\5\1\1"), WIRE_BAD, NULL, NULL, 0, 0},
    {"nothing", BYTES(""), WIRE_MORE, NULL, NULL, 0, 0},
    {"name without its end", BYTES("\5\1\0\3\5a.bcd\1"), WIRE_MORE, NULL, NULL, 0, 0},
};

static void test_request(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(requests) / sizeof(requests[0]); i++) {
        struct socks5_request request = {0};
        struct addr address = {0};
        size_t used = 0;
        if (requests[i].address) assert_int_equal(addr_parse(requests[i].address, strlen(requests[i].address), &address), 0);
        print_message("%s\n", requests[i].what);
        assert_int_equal(socks5_request(requests[i].bytes, requests[i].len, &request, &used), requests[i].result);
        assert_int_equal(used, requests[i].used);
        assert_int_equal(request.port, requests[i].port);
        assert_true(addr_equal(&request.address, &address));
        assert_int_equal(request.name.len > 0, requests[i].name != NULL);
        if (requests[i].name) assert_memory_equal(request.name.data, requests[i].name, request.name.len);
        for (size_t len = 0; len < used; len++) // no earlier answer
            assert_int_equal(socks5_request(requests[i].bytes, len, &request, &used), WIRE_MORE);
    }
}

static void test_commands_and_address_types(void **state) {
    (void)state;
    struct socks5_request request = {0};
    size_t used = 0;
    assert_int_equal(socks5_request(BYTES("\5\3\0\1\1\2\3\4\0\x35"), &request, &used), WIRE_OK);
    assert_int_equal(request.command, SOCKS5_UDP_ASSOCIATE);
    assert_false(request.unknown_address);
    assert_int_equal(socks5_request(BYTES("\5\1\0\2"), &request, &used), WIRE_OK);
    assert_true(request.unknown_address);
    assert_int_equal(used, 4);
}

static void test_answers(void **state) {
    (void)state;
    uint8_t bytes[SOCKS5_REPLY_SIZE];
    socks5_choice_write(SOCKS5_NO_METHOD, bytes);
    assert_memory_equal(bytes, "\5\xff", SOCKS5_CHOICE_SIZE);
    socks5_welcome_write(bytes);
    assert_memory_equal(bytes, "\1\0", SOCKS5_WELCOME_SIZE);
    socks5_reply_write(SOCKS5_NOT_ALLOWED, bytes);
    assert_memory_equal(bytes, "\5\2\0\1\0\0\0\0\0\0", SOCKS5_REPLY_SIZE);
    socks4_rejection_write(bytes);
    assert_memory_equal(bytes, "\0\x5b\0\0\0\0\0\0", SOCKS4_REJECTION_SIZE);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_greeting), cmocka_unit_test(test_credentials), cmocka_unit_test(test_request),
        cmocka_unit_test(test_commands_and_address_types), cmocka_unit_test(test_answers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
