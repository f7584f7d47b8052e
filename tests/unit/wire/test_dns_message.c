// SPDX-License-Identifier: Apache-2.0
#include "wire/dns_message.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define BYTES(text) (const uint8_t *)(text), sizeof(text) - 1

#define HEADER "\x12\x34\x01\x10\0\1\0\0\0\0\0\0"     // RD and CD, one question
#define HEADER_OPT "\x12\x34\x01\x10\0\1\0\0\0\0\0\1" // the same with one additional record
#define QUESTION "\7eXample\3COM\0\0\1\0\1"
#define OPT "\0\0\x29\x10\0\0\0\x80\0\0\0" // 4096 bytes, DO

static struct dns_question asked(const uint8_t *bytes, size_t len) {
    struct dns_question question;
    assert_int_equal(dns_question_parse(bytes, len, &question), 0);
    return question;
}

static void test_question(void **state) {
    (void)state;
    struct dns_question question = asked(BYTES(HEADER QUESTION));
    assert_int_equal(question.id, 0x1234);
    assert_int_equal(question.opcode, 0);
    assert_true(question.recursion_desired && question.checking_disabled && question.name_valid);
    assert_string_equal(question.name, "example.com");
    assert_int_equal(question.wire_name_len, 13);
    assert_memory_equal(question.wire_name, "\7eXample\3COM", 13);
    assert_int_equal(question.type, DNS_A);
    assert_int_equal(question.class, 1);
    assert_false(question.edns || question.dnssec_ok);
    assert_int_equal(question.udp_size, 512);
    question = asked(BYTES(HEADER_OPT QUESTION OPT));
    assert_true(question.edns && question.dnssec_ok);
    assert_int_equal(question.udp_size, 4096);
    question = asked(BYTES(HEADER_OPT QUESTION "\0\0\x29\0\1\0\0\0\0\0\0"));
    assert_int_equal(question.udp_size, 512);
    assert_false(question.dnssec_ok);
    question = asked(BYTES(HEADER "\0\0\2\0\1")); // the root
    assert_true(question.name_valid);
    assert_string_equal(question.name, "");
    assert_int_equal(question.wire_name_len, 1);
}

static void test_names(void **state) {
    (void)state;
    const struct {
        const char *wire;
        size_t len;
        const char *name; // NULL: not canonical
    } rows[] = {
        {"\4_dns\1a\0", 8, "_dns.a"}, {"\1-\0", 3, "-"},         {"\3a.b\1c\0", 7, NULL},
        {"\3a b\0", 5, NULL},         {"\3a\0b\0", 5, NULL},     {"\2\xc3\xa4\0", 4, NULL},
        {"\1*\1a\0", 5, NULL},        {"\1%\0", 3, NULL},        {"\0011\0012\0013\0014\0", 9, NULL},
        {"\1a\00212\0", 6, NULL},     {"\1a\0030x1\0", 7, NULL}, {"\1@\1a\0", 5, NULL},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        uint8_t message[64];
        memcpy(message, HEADER, 12);
        memcpy(message + 12, rows[i].wire, rows[i].len);
        memcpy(message + 12 + rows[i].len, "\0\1\0\1", 4);
        struct dns_question question = asked(message, 16 + rows[i].len);
        if (question.name_valid != (rows[i].name != NULL)) fail_msg("row %zu", i);
        assert_string_equal(question.name, rows[i].name ? rows[i].name : "");
        assert_int_equal(question.wire_name_len, rows[i].len);
    }
}

// The longest name: 255 bytes on the wire, 253 as text; one more is malformed.
static void test_longest_name(void **state) {
    (void)state;
    for (size_t last = 61; last <= 62; last++) {
        uint8_t message[300];
        size_t len = 12;
        memcpy(message, HEADER, 12);
        for (int i = 0; i < 4; i++) {
            size_t label = i < 3 ? 63 : last;
            message[len++] = (uint8_t)label;
            memset(message + len, 'a', label);
            len += label;
        }
        memcpy(message + len, "\0\0\1\0\1", 5);
        struct dns_question question;
        assert_int_equal(dns_question_parse(message, len + 5, &question), last == 61 ? 0 : DNS_FORMERR);
        if (last == 61) assert_int_equal(strlen(question.name), 253);
        if (last == 61) assert_int_equal(question.wire_name_len, 255);
    }
}

static void test_bad_questions(void **state) {
    (void)state;
    const struct {
        const uint8_t *bytes;
        size_t len;
        int result;
        bool has_name;
    } rows[] = {
        {BYTES("\x12\x34\x01\x10\0\1\0\0\0\0\0"), -EBADMSG, false},            // no whole header
        {BYTES("\x12\x34\x81\x10\0\1\0\0\0\0\0\0" QUESTION), -EBADMSG, false}, // a response
        {BYTES("\x12\x34\x28\0\0\1\0\0\0\0\0\0" QUESTION), DNS_NOTIMP, false}, // an update
        {BYTES("\x12\x34\x01\0\0\0\0\0\0\0\0\0"), DNS_FORMERR, false},         // no question
        {BYTES("\x12\x34\x01\0\0\2\0\0\0\0\0\0" QUESTION QUESTION), DNS_FORMERR, false},
        {BYTES("\x12\x34\x01\0\0\1\0\1\0\0\0\0" QUESTION OPT), DNS_FORMERR, false}, // an answer in it
        {BYTES("\x12\x34\x01\0\0\1\0\0\0\1\0\0" QUESTION OPT), DNS_FORMERR, true},  // OPT as authority
        {BYTES("\x12\x34\x01\0\0\1\0\0\0\0\0\2" QUESTION OPT OPT), DNS_FORMERR, true},
        {BYTES(HEADER_OPT QUESTION "\1a\0\0\x29\x10\0\0\0\0\0\0\0"), DNS_FORMERR, true}, // OPT with a name
        {BYTES(HEADER_OPT QUESTION), DNS_FORMERR, true},                                 // a record is missing
        {BYTES(HEADER_OPT QUESTION "\0\0\x29\x10\0\0\0\0\0\0\1"), DNS_FORMERR, true},
        {BYTES(HEADER QUESTION "x"), DNS_FORMERR, true},           // a byte behind
        {BYTES(HEADER "\1a\xc0\x0c\0\1\0\1"), DNS_FORMERR, false}, // compression
        {BYTES(HEADER "\xc0\x0c\0\1\0\1"), DNS_FORMERR, false},
        {BYTES(HEADER "\x41"
                      "a\0\0\1\0\1"),
         DNS_FORMERR, false}, // label type 01
        {BYTES(HEADER "\7example\3com\0\0\1\0"), DNS_FORMERR, false},
        {BYTES(HEADER "\7exam"), DNS_FORMERR, false},
        {BYTES(HEADER_OPT QUESTION "\0\0\x29\x10\0\0\1\0\0\0\0"), DNS_BADVERS, true}, // EDNS version 1
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct dns_question question;
        int result = dns_question_parse(rows[i].bytes, rows[i].len, &question);
        if (result != rows[i].result) fail_msg("row %zu: %d", i, result);
        if (result < 0) continue;
        assert_int_equal(question.id, 0x1234);
        assert_int_equal(question.wire_name_len > 0, rows[i].has_name);
    }
    // What an IXFR carries is stepped over, so that its type can be refused.
    assert_int_equal(asked(BYTES("\0\1\0\0\0\1\0\0\0\1\0\0\1a\0\0\xfb\0\1\xc0\x0c\0\6\0\1\0\0\0\0\0\0")).type,
                     DNS_IXFR);
}

static void test_answer(void **state) {
    (void)state;
    struct dns_question question = asked(BYTES(HEADER QUESTION));
    uint8_t out[512];
    struct dns_writer writer;
    struct addr a4 = addr_ipv4(0xc6120001), a6;
    assert_int_equal(addr_parse("fd00::5", 7, &a6), 0);
    dns_answer_begin(&writer, out, sizeof(out), &question, DNS_NOERROR);
    dns_answer_name(&writer, "example.com", DNS_CNAME, "b.test", 60);
    dns_answer_address(&writer, "b.test", &a4, 1);
    dns_answer_address(&writer, "", &a6, 0x01020304);
    dns_answer_ede(&writer, DNS_EDE_BLOCKED, "not written without EDNS");
    static const char expected[] =
        "\x12\x34\x81\x90\0\1\0\3\0\0\0\0" QUESTION "\xc0\x0c\0\5\0\1\0\0\0\x3c\0\x08\1b\4test\0"
        "\1b\4test\0\0\1\0\1\0\0\0\1\0\4\xc6\x12\0\1"
        "\0\0\x1c\0\1\1\2\3\4\0\x10\xfd\0\0\0\0\0\0\0\0\0\0\0\0\0\0\5";
    assert_int_equal(dns_answer_end(&writer), sizeof(expected) - 1);
    assert_memory_equal(out, expected, sizeof(expected) - 1);
}

static void test_negative(void **state) {
    (void)state;
    struct dns_question question = asked(BYTES(HEADER_OPT QUESTION OPT));
    uint8_t out[512];
    struct dns_writer writer;
    dns_answer_begin(&writer, out, sizeof(out), &question, DNS_NXDOMAIN);
    dns_answer_negative(&writer, 5);
    dns_answer_ede(&writer, DNS_EDE_BLOCKED, "no rule");
    static const char expected[] =
        "\x12\x34\x81\x93\0\1\0\0\0\1\0\1" QUESTION
        "\xc0\x0c\0\6\0\1\0\0\0\5\0\x44\4gate\x08penstock\7invalid\0\6nobody\x08penstock\7invalid\0"
        "\0\0\0\1\0\0\x0e\x10\0\0\2\x58\0\1\x51\x80\0\0\0\5"
        "\0\0\x29\x04\xd0\0\0\x80\0\0\x0d\0\x0f\0\x09\0\x0f"
        "no rule";
    assert_int_equal(dns_answer_end(&writer), sizeof(expected) - 1);
    assert_memory_equal(out, expected, sizeof(expected) - 1);
}

static void test_error_answers(void **state) {
    (void)state;
    struct dns_question question;
    struct dns_writer writer;
    uint8_t out[512];
    // FORMERR without a question that could be echoed; the opcode is.
    assert_int_equal(dns_question_parse(BYTES("\x12\x34\x29\0\0\1\0\0\0\0\0\0" QUESTION), &question), DNS_NOTIMP);
    dns_answer_begin(&writer, out, sizeof(out), &question, DNS_NOTIMP);
    dns_answer_negative(&writer, 5);
    assert_int_equal(dns_answer_end(&writer), 12);
    assert_memory_equal(out, "\x12\x34\xa9\x84\0\0\0\0\0\0\0\0", 12);
    // BADVERS is 16: its upper bits are in the OPT record.
    assert_int_equal(dns_question_parse(BYTES(HEADER_OPT QUESTION "\0\0\x29\x10\0\0\1\0\0\0\0"), &question),
                     DNS_BADVERS);
    dns_answer_begin(&writer, out, sizeof(out), &question, DNS_BADVERS);
    assert_int_equal(dns_answer_end(&writer), 12 + 17 + 11);
    assert_memory_equal(out + 2, "\x81\x90\0\1\0\0\0\0\0\1", 10);
    assert_memory_equal(out + 29, "\0\0\x29\x04\xd0\1\0\0\0\0\0", 11);
}

static void test_truncation(void **state) {
    (void)state;
    struct dns_question question = asked(BYTES(HEADER_OPT QUESTION OPT));
    struct addr address = addr_ipv4(0xc6120001);
    uint8_t out[600];
    // 12 header, 17 question, 11 OPT, 16 a record: 29 records fit into 512 with 8 bytes to spare.
    for (int records = 29; records <= 30; records++) {
        struct dns_writer writer;
        memset(out, 0xee, sizeof(out));
        dns_answer_begin(&writer, out, 512, &question, DNS_NOERROR);
        for (int i = 0; i < records; i++) dns_answer_address(&writer, "example.com", &address, 1);
        int len = dns_answer_end(&writer);
        assert_int_equal(len, records == 29 ? 40 + 16 * 29 : 40);
        assert_int_equal(out[2], records == 29 ? 0x81 : 0x83);
        assert_int_equal(out[7], records == 29 ? 29 : 0);
        assert_int_equal(out[11], 1);
        assert_int_equal(out[512], 0xee);
    }
    // An explanation loses its text, then goes, before the message is cut.
    char text[300];
    memset(text, 't', sizeof(text));
    text[299] = '\0';
    const struct {
        size_t size;
        int len;
    } rows[] = {{28, -ENOSPC}, {29, -ENOSPC}, {39, -ENOSPC}, {40, 40},  {45, 40},
                {46, 46},      {245, 46},     {246, 246},    {600, 246}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct dns_writer writer;
        dns_answer_begin(&writer, out, rows[i].size, &question, DNS_REFUSED);
        dns_answer_ede(&writer, DNS_EDE_PROHIBITED, text);
        assert_int_equal(dns_answer_end(&writer), rows[i].len);
        if (rows[i].len > 0) assert_int_equal(out[2], 0x81);
    }
    // A whole message of 64 KiB, and RDATA that no length field could tell.
    static uint8_t big[70000], rdata[70000];
    struct dns_writer writer;
    for (size_t len = 65483; len <= 65484; len++) {
        dns_answer_begin(&writer, big, sizeof(big), &question, DNS_NOERROR);
        dns_answer_rdata(&writer, "example.com", 999, 1, rdata, len);
        assert_int_equal(dns_answer_end(&writer), len == 65483 ? 65535 : 40);
    }
}

#define RESPONSE "\x12\x34\x81\xa0\0\1\0\1\0\0\0\0" QUESTION
#define OWNER "\xc0\x0c"

// Reads the one record of a response and re-encodes its RDATA.
static int rdata_of(uint16_t type, const char *rdata, size_t len, uint8_t *ret, size_t size) {
    uint8_t message[400];
    size_t prefix = sizeof(RESPONSE OWNER) - 1;
    memcpy(message, RESPONSE OWNER, prefix);
    memcpy(message + prefix, (uint8_t[]){(uint8_t)(type >> 8), (uint8_t)type, 0, 1, 0, 0, 0, 9, 0, (uint8_t)len}, 10);
    memcpy(message + prefix + 10, rdata, len);
    struct dns_reader reader;
    struct dns_record record;
    assert_int_equal(dns_reader_init(&reader, message, prefix + 10 + len), WIRE_OK);
    assert_int_equal(dns_reader_next(&reader, &record), 1);
    assert_string_equal(record.owner, "example.com");
    assert_int_equal(record.type, type);
    assert_int_equal(record.ttl, 9);
    assert_int_equal(record.rdata_len, len);
    int result = dns_reader_rdata(&reader, &record, ret, size);
    assert_int_equal(dns_reader_next(&reader, &record), 0);
    return result;
}

static void test_reader(void **state) {
    (void)state;
    struct dns_reader reader;
    struct dns_record record;
    char name[NAME_SIZE];
    static const char message[] =
        "\x12\x34\x83\xa3\0\1\0\3\0\0\0\0" QUESTION OWNER "\0\5\0\1\0\0\0\x3c\0\4\1b\xc0\x14" // b.com
        "\xc0\x29\0\1\0\1\0\0\0\1\0\4\1\2\3\4" // owner by a pointer to a pointer
        "\3a.b\0\0\1\0\1\0\0\0\1\0\4\1\2\3\4"; // no canonical owner
    assert_int_equal(dns_reader_init(&reader, BYTES(message)), WIRE_OK);
    assert_int_equal(reader.id, 0x1234);
    assert_int_equal(reader.rcode, DNS_NXDOMAIN);
    assert_true(reader.truncated && reader.authenticated);
    assert_int_equal(dns_reader_next(&reader, &record), 1);
    assert_int_equal(dns_reader_name(&reader, record.rdata_offset, name), 4);
    assert_string_equal(name, "b.com");
    assert_int_equal(dns_reader_next(&reader, &record), 1);
    assert_string_equal(record.owner, "b.com");
    assert_memory_equal(record.rdata, "\1\2\3\4", 4);
    assert_int_equal(dns_reader_next(&reader, &record), 1);
    assert_string_equal(record.owner, "");
    assert_int_equal(dns_reader_next(&reader, &record), 0);
    assert_int_equal(dns_reader_name(&reader, sizeof(message) + 100, name), -1);
    // Every cut of it is malformed, at once or at some record.
    for (size_t len = 0; len < sizeof(message) - 1; len++) {
        if (dns_reader_init(&reader, (const uint8_t *)message, len) != WIRE_OK) continue;
        int result;
        while ((result = dns_reader_next(&reader, &record)) == 1) {
        }
        assert_int_equal(result, -1);
        assert_int_equal(dns_reader_next(&reader, &record), -1);
    }
    assert_int_equal(dns_reader_init(&reader, BYTES(HEADER QUESTION)), WIRE_BAD); // a query
    assert_int_equal(dns_reader_next(&reader, &record), -1);
    assert_int_equal(dns_reader_init(&reader, BYTES("\x12\x34\x81\x80\0\0\0\0\0\0\0\0")), WIRE_BAD);
}

static void test_pointers(void **state) {
    (void)state;
    const struct {
        const char *owner;
        size_t len;
        int result;
    } rows[] = {
        {"\xc0\x0c", 2, 1},     {"\xc0\x1d", 2, -1}, // to itself
        {"\xc0\x1e", 2, -1},                         // forwards
        {"\1a\xc0\x1d", 4, -1},                      // to its own start
        {"\xc0\x0b", 2, -1},                         // into the header
        {"\xc0\x00", 2, -1},    {"\xff\xff", 2, -1}, {"\x80\x0c", 2, -1},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        uint8_t message[100];
        size_t len = sizeof(RESPONSE) - 1;
        assert_int_equal(len, 0x1d);
        memcpy(message, RESPONSE, len);
        memcpy(message + len, rows[i].owner, rows[i].len);
        memcpy(message + len + rows[i].len, "\0\1\0\1\0\0\0\1\0\4\1\2\3\4", 14);
        struct dns_reader reader;
        struct dns_record record;
        assert_int_equal(dns_reader_init(&reader, message, len + rows[i].len + 14), WIRE_OK);
        int result = dns_reader_next(&reader, &record);
        if (result != rows[i].result) fail_msg("row %zu: %d", i, result);
    }
}

static void test_rdata(void **state) {
    (void)state;
#define COM "\7eXample\3COM\0"
    const struct {
        uint16_t type;
        const char *in;
        size_t in_len;
        const char *out;
        int result;
    } rows[] = {
        {DNS_A, "\1\2\3\4", 4, "\1\2\3\4", 4},
        {DNS_A, "\1\2\3", 3, NULL, -1},
        {DNS_A, "\1\2\3\4\5", 5, NULL, -1},
        {DNS_AAAA, "0123456789abcdef", 16, "0123456789abcdef", 16},
        {DNS_AAAA, "\1\2\3\4", 4, NULL, -1},
        {DNS_CNAME, "\1a" OWNER, 4, "\1a" COM, 15},
        {DNS_CNAME, "\1a" OWNER "x", 5, NULL, -1},
        {DNS_CNAME, "\1a", 2, NULL, -1},
        {DNS_MX, "\0\x0a" OWNER, 4, "\0\x0a" COM, 15},
        {DNS_SRV, "\0\1\0\2\0\3" OWNER, 8, "\0\1\0\2\0\3" COM, 19},
        {DNS_SOA,
         OWNER "\0"
               "01234567890123456789",
         23,
         COM "\0"
             "01234567890123456789",
         34},
        {DNS_SOA,
         OWNER "\0"
               "0123456789012345678",
         22, NULL, -1},
        {DNS_TXT, "\2hi\0", 4, "\2hi\0", 4},
        {DNS_TXT, "", 0, NULL, -1},
        {DNS_TXT, "\3hi", 3, NULL, -1},
        {35, "\0\1\0\2\1u\3sip\0" OWNER, 13, "\0\1\0\2\1u\3sip\0" COM, 24},
        {35, "\0\1\0\2\1u\3sip" OWNER, 12, NULL, -1},
        {65280, "\1a" OWNER, 4, "\1a" OWNER, 4},
        {65280, "", 0, "", 0},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        uint8_t out[300];
        int result = rdata_of(rows[i].type, rows[i].in, rows[i].in_len, out, sizeof(out));
        if (result != rows[i].result) fail_msg("row %zu: %d", i, result);
        if (result > 0) assert_memory_equal(out, rows[i].out, (size_t)result);
        if (result > 0)
            assert_int_equal(rdata_of(rows[i].type, rows[i].in, rows[i].in_len, out, (size_t)result - 1), -1);
    }
}

static void test_svcb(void **state) {
    (void)state;
#define ALPN_H2_H3 "\0\1\0\6\2h3\2h2"
#define ECH "\0\5\0\2xx"
#define PORT "\0\3\0\2\1\xbb"
#define ROW(in, out, result)                                                                                           \
    { in, sizeof(in) - 1, out, result }
    const struct {
        const char *in;
        size_t in_len;
        const char *out;
        int result;
    } rows[] = {
        ROW("\0\1\0" ALPN_H2_H3 PORT ECH, "\0\1\0\0\1\0\3\2h2" PORT, 16),
        ROW("\0\1\0\0\1\0\x0c\5h3-29\2h2\2h3", "\0\1\0\0\1\0\3\2h2", 10),
        ROW("\0\1\0\0\1\0\3\2h3" PORT, "\0\1\0" PORT, 9),
        ROW("\0\1\0\0\1\0\4\3h3x", "\0\1\0\0\1\0\4\3h3x", 11), // another protocol
        ROW("\0\0" OWNER, "\0\0" COM, 15),                     // alias mode
        ROW("\0\1\0\0\1\0\3\2h3\0\2\0\0", NULL, 0),            // nothing is left
        ROW("\0\1\0\0\1\0\6\2h2\2h3\0\2\0\0", "\0\1\0\0\1\0\3\2h2\0\2\0\0", 14),
        ROW("\0\1\0\0\0\0\2\0\5" ECH, NULL, 0),         // ech is mandatory
        ROW("\0\1\0\0\0\0\2\0\1\0\1\0\3\2h3", NULL, 0), // alpn is
        ROW("\0\1\0\0\0\0\2\0\1" ALPN_H2_H3, "\0\1\0\0\0\0\2\0\1\0\1\0\3\2h2", 16),
        ROW("\0\1\0" PORT ALPN_H2_H3, NULL, -1), // not in order
        ROW("\0\1\0" PORT PORT, NULL, -1),
        ROW("\0\1\0\0\1\0\0", NULL, -1), // empty alpn
        ROW("\0\1\0\0\1\0\3\3h2", NULL, -1),
        ROW("\0\1\0\0\1\0\1\0", NULL, -1),
        ROW("\0\1\0\0\0\0\4\0\3\0\1" PORT, NULL, -1), // mandatory not in order
        ROW("\0\1\0\0\0\0\2\0\0", NULL, -1),
        ROW("\0\1\0\0\0\0\1\0", NULL, -1),
        ROW("\0\1\0\0\3\0\3\1\xbb", NULL, -1), // value ends outside
        ROW("\0\1\0\0\3\0", NULL, -1),
        ROW("\0\1", NULL, -1),
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        uint8_t out[300];
        int result = rdata_of(DNS_HTTPS, rows[i].in, rows[i].in_len, out, sizeof(out));
        if (result != rows[i].result) fail_msg("row %zu: %d", i, result);
        if (result > 0) assert_memory_equal(out, rows[i].out, (size_t)result);
        assert_int_equal(rdata_of(DNS_SVCB, rows[i].in, rows[i].in_len, out, sizeof(out)), result);
        if (result > 0) assert_int_equal(rdata_of(DNS_SVCB, rows[i].in, rows[i].in_len, out, (size_t)result - 1), -1);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_question),      cmocka_unit_test(test_names),      cmocka_unit_test(test_longest_name),
        cmocka_unit_test(test_bad_questions), cmocka_unit_test(test_answer),     cmocka_unit_test(test_negative),
        cmocka_unit_test(test_error_answers), cmocka_unit_test(test_truncation), cmocka_unit_test(test_reader),
        cmocka_unit_test(test_pointers),      cmocka_unit_test(test_rdata),      cmocka_unit_test(test_svcb),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
