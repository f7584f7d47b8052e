// SPDX-License-Identifier: Apache-2.0
// ClientHellos built here piece by piece, so that every length can be made wrong; and every segmentation of them.
#include "wire/tls.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

struct message {
    uint8_t bytes[80000];
    size_t len;
};

static void add(struct message *message, const void *bytes, size_t len) {
    assert_true(len <= sizeof(message->bytes) - message->len);
    memcpy(message->bytes + message->len, bytes, len);
    message->len += len;
}
static void add8(struct message *message, unsigned value) { add(message, (uint8_t[]){(uint8_t)value}, 1); }
static void add16(struct message *message, size_t value) {
    add8(message, (unsigned)(value >> 8 & 255));
    add8(message, (unsigned)(value & 255));
}
static void add_zeros(struct message *message, size_t len) {
    while (len--) add8(message, 0);
}
static void add_extension(struct message *message, unsigned type, const void *bytes, size_t len) {
    add16(message, type);
    add16(message, len);
    add(message, bytes, len);
}
static void add_server_name(struct message *message, const char *name, size_t len) {
    struct message list = {.len = 0};
    add16(&list, len + 3);
    add8(&list, 0);
    add16(&list, len);
    add(&list, name, len);
    add_extension(message, 0, list.bytes, list.len);
}

// A handshake message with these extensions (NULL: no extensions block at all).
static struct message *hello_with(const struct message *extensions) {
    static struct message hello;
    hello.len = 0;
    size_t body = 2 + 32 + 1 + 32 + 2 + 4 + 1 + 1 + (extensions ? 2 + extensions->len : 0);
    add8(&hello, 1);
    add8(&hello, (unsigned)(body >> 16));
    add16(&hello, body & 0xffff);
    add16(&hello, 0x0303);
    add_zeros(&hello, 32);
    add8(&hello, 32);
    add_zeros(&hello, 32);
    add16(&hello, 4);
    add(&hello, "\x13\x01\x13\x02", 4);
    add8(&hello, 1);
    add8(&hello, 0);
    if (!extensions) return &hello;
    add16(&hello, extensions->len);
    add(&hello, extensions->bytes, extensions->len);
    return &hello;
}

// Cuts a handshake message into records of at most `size` bytes.
static struct message *records_of(const struct message *hello, size_t size) {
    static struct message out;
    out.len = 0;
    for (size_t position = 0; position < hello->len; position += size) {
        size_t step = hello->len - position < size ? hello->len - position : size;
        add(&out, "\x16\x03\x01", 3);
        add16(&out, step);
        add(&out, hello->bytes + position, step);
    }
    return &out;
}

static enum wire_result parse_bytes(const uint8_t *bytes, size_t len, struct tls_hello *ret_hello) {
    struct tls_walk walk = {0};
    return tls_hello_parse(bytes, len, &walk, ret_hello);
}

static enum wire_result parse(const struct message *extensions, struct tls_hello *ret_hello) {
    struct message *wire = records_of(hello_with(extensions), 16384);
    return parse_bytes(wire->bytes, wire->len, ret_hello);
}

static const char versions[] = "\x06\x3a\x3a\x03\x04\x03\x03"; // GREASE, 1.3, 1.2
static const char protocols[] = "\x00\x0c\x02h2\x08http/1.1";

static struct message *usual(void) {
    static struct message extensions;
    extensions.len = 0;
    add_server_name(&extensions, "Example.COM", 11);
    add_extension(&extensions, 43, versions, 7);
    add_extension(&extensions, 16, protocols, 14);
    return &extensions;
}

static void test_usual(void **state) {
    (void)state;
    struct tls_hello hello;
    assert_int_equal(parse(usual(), &hello), WIRE_OK);
    assert_true(hello.has_sni);
    assert_int_equal(hello.sni_len, 11);
    assert_string_equal((char *)hello.sni, "Example.COM");
    assert_int_equal(hello.version, 0x0304);
    assert_true(hello.has_alpn && hello.alpn_h2 && hello.alpn_http1);
    assert_false(hello.has_ech || hello.offers_early_data);
}

static void test_without_extensions(void **state) {
    (void)state;
    struct tls_hello hello = {.has_sni = true};
    assert_int_equal(parse(NULL, &hello), WIRE_OK);
    assert_false(hello.has_sni || hello.has_alpn);
    assert_int_equal(hello.version, 0x0303);
    struct message none = {.len = 0};
    assert_int_equal(parse(&none, &hello), WIRE_OK);
    assert_false(hello.has_sni);
}

static void test_flags(void **state) {
    (void)state;
    struct message extensions = {.len = 0};
    struct tls_hello hello;
    add_extension(&extensions, 0xfe0d, "\x00\x01", 2);
    add_extension(&extensions, 42, "", 0);
    add_extension(&extensions, 16, "\x00\x0b\x0aspdy/3.1xx", 13);
    assert_int_equal(parse(&extensions, &hello), WIRE_OK);
    assert_true(hello.has_ech && hello.offers_early_data && hello.has_alpn);
    assert_false(hello.has_sni || hello.alpn_h2 || hello.alpn_http1);
}

// Every prefix is MORE, the whole is OK, whatever the size of the records.
static void test_segmentation(void **state) {
    (void)state;
    const size_t sizes[] = {1, 2, 3, 4, 5, 7, 64, 100, 16384};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct message *wire = records_of(hello_with(usual()), sizes[i]);
        struct tls_hello hello;
        struct tls_walk walk = {0};
        for (size_t len = 0; len < wire->len; len++) {
            assert_int_equal(parse_bytes(wire->bytes, len, &hello), WIRE_MORE);
            assert_int_equal(tls_hello_parse(wire->bytes, len, &walk, &hello), WIRE_MORE);
            // No whole record is walked again.
            assert_in_range(len - walk.position, 0, 4 + sizes[i]);
        }
        assert_int_equal(tls_hello_parse(wire->bytes, wire->len, &walk, &hello), WIRE_OK);
        assert_int_equal(parse_bytes(wire->bytes, wire->len, &hello), WIRE_OK);
        assert_string_equal((char *)hello.sni, "Example.COM");
        // What comes behind in other records (early data) is not looked at.
        add(wire, "\x17\x03\x03\x00\x01x", 6);
        assert_int_equal(parse_bytes(wire->bytes, wire->len, &hello), WIRE_OK);
    }
}

// Post-quantum key shares: beyond a segment, beyond a record.
static void test_large(void **state) {
    (void)state;
    const size_t paddings[] = {1300, 4200, 20000, 60000};
    static uint8_t share[60000];
    for (size_t i = 0; i < sizeof(paddings) / sizeof(paddings[0]); i++) {
        struct message extensions = {.len = 0};
        struct tls_hello hello;
        add_extension(&extensions, 51, share, paddings[i]);
        add_server_name(&extensions, "big.example", 11);
        assert_int_equal(parse(&extensions, &hello), WIRE_OK);
        assert_string_equal((char *)hello.sni, "big.example");
    }
}

static void test_limit(void **state) {
    (void)state;
    static uint8_t share[65000];
    struct message extensions = {.len = 0};
    struct tls_hello hello;
    add_extension(&extensions, 51, share, 65000);
    // On the wire within the limit in large records, over it in small ones.
    struct message *wire = records_of(hello_with(&extensions), 16384);
    assert_true(wire->len <= TLS_HELLO_MAX);
    assert_int_equal(parse_bytes(wire->bytes, wire->len, &hello), WIRE_OK);
    wire = records_of(hello_with(&extensions), 400);
    assert_true(wire->len > TLS_HELLO_MAX);
    assert_int_equal(parse_bytes(wire->bytes, TLS_HELLO_MAX - 1, &hello), WIRE_MORE);
    assert_int_equal(parse_bytes(wire->bytes, TLS_HELLO_MAX, &hello), WIRE_BAD);
    assert_int_equal(parse_bytes(wire->bytes, wire->len, &hello), WIRE_BAD);
    // A header that promises more than can come is refused at once.
    assert_int_equal(parse_bytes((const uint8_t *)"\x16\x03\x01\x40\x00\x01\x01\x00\x00", 9, &hello), WIRE_BAD);
}

static void test_server_names(void **state) {
    (void)state;
    struct tls_hello hello;
    const struct {
        const char *bytes;
        size_t len;
        enum wire_result result;
    } rows[] = {
        {"\x00\x04\x00\x00\x01"
         "a",
         6, WIRE_OK},
        {"\x00\x08\x00\x00\x01"
         "a\x00\x00\x01"
         "b",
         10, WIRE_BAD},                        // two names
        {"\x00\x03\x00\x00\x00", 5, WIRE_BAD}, // empty name
        {"\x00\x00", 2, WIRE_BAD},             // empty list
        {"", 0, WIRE_BAD},
        {"\x00\x04\x01\x00\x01"
         "a",
         6, WIRE_BAD}, // another type of name
        {"\x00\x04\x00\x00\x01"
         "ab",
         7, WIRE_BAD}, // a byte behind the list
        {"\x00\x05\x00\x00\x01"
         "ab",
         7, WIRE_BAD}, // a byte behind the name
        {"\x00\x03\x00\x00\x01"
         "a",
         6, WIRE_BAD}, // the name ends outside of its list
        {"\x00\x05\x00\x00\x01"
         "a",
         6, WIRE_BAD}, // the list ends outside of its extension
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct message extensions = {.len = 0};
        add_extension(&extensions, 0, rows[i].bytes, rows[i].len);
        assert_int_equal(parse(&extensions, &hello), rows[i].result);
    }
    // NUL is data: the length says where the name ends.
    struct message extensions = {.len = 0};
    add_server_name(&extensions, "a\0b", 3);
    assert_int_equal(parse(&extensions, &hello), WIRE_OK);
    assert_int_equal(hello.sni_len, 3);
    assert_memory_equal(hello.sni, "a\0b", 4);
    char name[256];
    memset(name, 'a', sizeof(name));
    extensions.len = 0;
    add_server_name(&extensions, name, 255);
    assert_int_equal(parse(&extensions, &hello), WIRE_OK);
    assert_int_equal(hello.sni_len, 255);
    extensions.len = 0;
    add_server_name(&extensions, name, 256);
    assert_int_equal(parse(&extensions, &hello), WIRE_BAD);
}

static void test_bad_extensions(void **state) {
    (void)state;
    struct tls_hello hello;
    const struct {
        unsigned type;
        const char *bytes;
        size_t len;
    } rows[] = {
        {16, "\x00\x00", 2}, {16, "\x00\x01\x00", 3}, {16, "\x00\x03\x02h", 4},    {16, "\x00\x03\x02h2x", 6},
        {43, "\x00", 1},     {43, "\x01\x03", 2},     {43, "\x02\x03\x04\x00", 4}, {42, "x", 1},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct message extensions = {.len = 0};
        add_extension(&extensions, rows[i].type, rows[i].bytes, rows[i].len);
        assert_int_equal(parse(&extensions, &hello), WIRE_BAD);
    }
    const unsigned twice[] = {0, 16, 42, 43, 0xfe0d};
    for (size_t i = 0; i < sizeof(twice) / sizeof(twice[0]); i++) {
        struct message extensions = {.len = 0};
        for (int n = 0; n < 2; n++) {
            if (twice[i] == 0)
                add_server_name(&extensions, "a", 1);
            else if (twice[i] == 16)
                add_extension(&extensions, 16, protocols, 14);
            else if (twice[i] == 43)
                add_extension(&extensions, 43, versions, 7);
            else
                add_extension(&extensions, twice[i], "", 0);
            assert_int_equal(parse(&extensions, &hello), n == 0 ? WIRE_OK : WIRE_BAD);
        }
    }
}

static void test_bad_lengths(void **state) {
    (void)state;
    struct tls_hello hello;
    struct message *good = hello_with(usual());
    const struct {
        size_t offset;
        uint8_t value;
    } rows[] = {
        {3, (uint8_t)(good->bytes[3] - 1)}, // message shorter than its record
        {4, 2},                             // legacy_version 2.x
        {38, 33},
        {38, 31}, // session id
        {72, 0},
        {72, 5},
        {72, 255}, // cipher suites
        {77, 0},
        {77, 255},                            // compression methods
        {80, (uint8_t)(good->bytes[80] + 1)}, // extensions
        {80, (uint8_t)(good->bytes[80] - 1)},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        good = hello_with(usual());
        good->bytes[rows[i].offset] = rows[i].value;
        struct message *wire = records_of(good, 16384);
        assert_int_equal(parse_bytes(wire->bytes, wire->len, &hello), WIRE_BAD);
    }
    good = hello_with(usual());
    add8(good, 0); // trailing byte in the record
    struct message *wire = records_of(good, 16384);
    assert_int_equal(parse_bytes(wire->bytes, wire->len, &hello), WIRE_BAD);
}

static void test_bad_records(void **state) {
    (void)state;
    struct tls_hello hello;
    const struct {
        const char *bytes;
        size_t len;
    } rows[] = {
        {"\x80\x2e\x01\x00\x02", 5}, // SSLv2
        {"\x15\x03\x01\x00\x02", 5}, // an alert
        {"\x16\x02", 2},
        {"\x16\x03\x05", 3},
        {"\x16\x03\x01\x00\x00", 5},         // empty record
        {"\x16\x03\x01\x40\x01", 5},         // longer than a record may be
        {"\x16\x03\x01\x00\x05\x02", 6},     // a ServerHello
        {"\x16\x03\x01\x00\x01\x01\x17", 7}, // another type in between
        {"\x16\x03\x01\x00\x01\x01\x16\x03\x01\x00\x00", 11},
        {"GET / HTTP/1.1", 14},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_int_equal(parse_bytes((const uint8_t *)rows[i].bytes, rows[i].len, &hello), WIRE_BAD);
        if (rows[i].len > 2 && rows[i].bytes[0] == 0x16)
            assert_int_equal(parse_bytes((const uint8_t *)rows[i].bytes, rows[i].len - 1, &hello), WIRE_MORE);
    }
}

static void test_alert(void **state) {
    (void)state;
    uint8_t record[TLS_ALERT_SIZE];
    tls_alert_write(TLS_ALERT_UNRECOGNIZED_NAME, record);
    assert_memory_equal(record, "\x15\x03\x03\x00\x02\x02\x70", 7);
    tls_alert_write(TLS_ALERT_ACCESS_DENIED, record);
    assert_memory_equal(record, "\x15\x03\x03\x00\x02\x02\x31", 7);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_usual),        cmocka_unit_test(test_without_extensions),
        cmocka_unit_test(test_flags),        cmocka_unit_test(test_segmentation),
        cmocka_unit_test(test_large),        cmocka_unit_test(test_limit),
        cmocka_unit_test(test_server_names), cmocka_unit_test(test_bad_extensions),
        cmocka_unit_test(test_bad_lengths),  cmocka_unit_test(test_bad_records),
        cmocka_unit_test(test_alert),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
