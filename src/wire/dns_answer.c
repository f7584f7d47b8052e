// SPDX-License-Identifier: Apache-2.0
// Theory of operation: an answer is written front to back: header and question at once, then records as they are added,
// then (in dns_answer_end) the OPT record and the counts. The first record that does not fit sets `overflow`; nothing
// is written after it, and the end cuts the message back to its question with TC set, so that a client asks again over
// TCP. The question is echoed byte for byte: resolvers that vary the case of letters check it.
#include <errno.h>

#include "wire/dns_cursor.h"
#include "wire/dns_message.h"

enum { FLAG_RESPONSE = 0x80, FLAG_TRUNCATED = 0x02, FLAG_RECURSION_DESIRED = 0x01 }; // first byte of flags
enum { FLAG_RECURSION_AVAILABLE = 0x80, FLAG_CHECKING_DISABLED = 0x10 };             // second byte
enum {
    OPTION_EDE = 15,
    OPT_SIZE = 11,
    OPTION_HEADER = 4,
    EDE_TEXT_MAX = 200,
    OUR_UDP_SIZE = 1232,
    OPT_DNSSEC_OK = 0x80
};

static void put(struct dns_writer *writer, const void *bytes, size_t len) {
    if (writer->overflow || len > writer->size - writer->len) {
        writer->overflow = true;
        return;
    }
    if (len) memcpy(writer->bytes + writer->len, bytes, len);
    writer->len += len;
}

static void put16(struct dns_writer *writer, size_t value) {
    put(writer, (uint8_t[]){(uint8_t)(value >> 8), (uint8_t)value}, 2);
}

static void put32(struct dns_writer *writer, uint32_t value) {
    put16(writer, value >> 16);
    put16(writer, value & 0xffff);
}

static void put_pointer_to_question(struct dns_writer *writer) {
    put16(writer, (size_t)DNS_CURSOR_POINTER << 8 | DNS_CURSOR_HEADER);
}

static bool has_question(const struct dns_question *question) { return question->wire_name_len > 0; }

static size_t question_end(const struct dns_question *question) {
    return DNS_CURSOR_HEADER + (has_question(question) ? question->wire_name_len + 4 : 0);
}

void dns_answer_begin(struct dns_writer *writer, uint8_t *bytes, size_t size, const struct dns_question *question,
                      enum dns_rcode rcode) {
    *writer = (struct dns_writer){.bytes = bytes,
                                  .size = size < DNS_MESSAGE_MAX ? size : DNS_MESSAGE_MAX,
                                  .question = question,
                                  .rcode = rcode,
                                  .ede = DNS_EDE_NONE};
    uint8_t flags = FLAG_RESPONSE | (uint8_t)(question->opcode << 3);
    if (question->recursion_desired) flags |= FLAG_RECURSION_DESIRED;
    uint8_t more_flags = FLAG_RECURSION_AVAILABLE | ((uint8_t)rcode & 15);
    if (question->checking_disabled) more_flags |= FLAG_CHECKING_DISABLED;
    put16(writer, question->id);
    put(writer, (uint8_t[]){flags, more_flags}, 2);
    put(writer, (uint8_t[8]){0, has_question(question) ? 1 : 0}, 8); // counts follow at the end
    if (!has_question(question)) return;
    put(writer, question->wire_name, question->wire_name_len);
    put16(writer, question->type);
    put16(writer, question->class);
}

static void put_name(struct dns_writer *writer, const char *name) {
    uint8_t wire[DNS_CURSOR_NAME_MAX];
    size_t len = dns_cursor_name_wire(name, wire);
    if (len == 0)
        writer->overflow = true; // not a canonical name: our own mistake, answered as too long
    else
        put(writer, wire, len);
}

static void put_owner(struct dns_writer *writer, const char *owner) {
    const struct dns_question *question = writer->question;
    if (has_question(question) && question->name_valid && owner[0] && strcmp(owner, question->name) == 0)
        put_pointer_to_question(writer);
    else
        put_name(writer, owner);
}

static void put_record_header(struct dns_writer *writer, uint16_t type, uint32_t ttl_seconds, size_t rdata_len) {
    put16(writer, type);
    put16(writer, 1); // IN
    put32(writer, ttl_seconds);
    if (rdata_len > UINT16_MAX) writer->overflow = true;
    put16(writer, rdata_len);
}

void dns_answer_rdata(struct dns_writer *writer, const char *owner, uint16_t type, uint32_t ttl_seconds,
                      const uint8_t *rdata, size_t len) {
    put_owner(writer, owner);
    put_record_header(writer, type, ttl_seconds, len);
    put(writer, rdata, len);
    if (!writer->overflow) writer->answers++;
}

void dns_answer_address(struct dns_writer *writer, const char *owner, const struct addr *address,
                        uint32_t ttl_seconds) {
    bool ipv6 = address->family == ADDR_IPV6;
    dns_answer_rdata(writer, owner, ipv6 ? DNS_AAAA : DNS_A, ttl_seconds, address->bytes, ipv6 ? 16 : 4);
}

void dns_answer_name(struct dns_writer *writer, const char *owner, uint16_t type, const char *target,
                     uint32_t ttl_seconds) {
    uint8_t wire[DNS_CURSOR_NAME_MAX];
    size_t len = dns_cursor_name_wire(target, wire);
    if (len == 0) writer->overflow = true;
    dns_answer_rdata(writer, owner, type, ttl_seconds, wire, len);
}

void dns_answer_negative(struct dns_writer *writer, uint32_t ttl_seconds) {
    if (!has_question(writer->question)) return;
    uint8_t names[2 * DNS_CURSOR_NAME_MAX];
    size_t len = dns_cursor_name_wire("gate.penstock.invalid", names);
    len += dns_cursor_name_wire("nobody.penstock.invalid", names + len);
    put_pointer_to_question(writer);
    put_record_header(writer, DNS_SOA, ttl_seconds, len + 20);
    put(writer, names, len);
    const uint32_t numbers[] = {1, 3600, 600, 86400, ttl_seconds}; // serial, refresh, retry, expire, minimum
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) put32(writer, numbers[i]);
    if (!writer->overflow) writer->authorities++;
}

void dns_answer_ede(struct dns_writer *writer, enum dns_ede code, const char *text) {
    writer->ede = code;
    writer->ede_text = text;
}

// RFC 6891 6.1.2, RFC 8914 2. An explanation that does not fit loses its text first.
static void put_opt(struct dns_writer *writer) {
    size_t text = writer->ede_text ? strnlen(writer->ede_text, EDE_TEXT_MAX) : 0;
    size_t room = writer->size - writer->len;
    bool ede = writer->ede != DNS_EDE_NONE && OPT_SIZE + OPTION_HEADER + 2 <= room;
    if (ede && OPT_SIZE + OPTION_HEADER + 2 + text > room) text = 0;
    put(writer, "", 1); // root
    put16(writer, DNS_OPT);
    put16(writer, OUR_UDP_SIZE);
    put(writer, (uint8_t[]){(uint8_t)(writer->rcode >> 4), 0, writer->question->dnssec_ok ? OPT_DNSSEC_OK : 0, 0}, 4);
    put16(writer, ede ? OPTION_HEADER + 2 + text : 0);
    if (!ede) return;
    put16(writer, OPTION_EDE);
    put16(writer, 2 + text);
    put16(writer, (size_t)writer->ede);
    put(writer, writer->ede_text, text);
}

int dns_answer_end(struct dns_writer *writer) {
    size_t cut = question_end(writer->question);
    if (writer->size < cut) return -ENOSPC;
    bool edns = writer->question->edns;
    if (writer->overflow || (edns && writer->size - writer->len < OPT_SIZE)) {
        writer->overflow = false;
        writer->len = cut;
        writer->answers = writer->authorities = 0;
        writer->bytes[2] |= FLAG_TRUNCATED;
    }
    if (edns) {
        put_opt(writer);
        if (writer->overflow) return -ENOSPC;
    }
    const uint16_t counts[] = {writer->answers, writer->authorities, edns ? 1 : 0};
    for (size_t i = 0; i < 3; i++) {
        writer->bytes[6 + 2 * i] = (uint8_t)(counts[i] >> 8);
        writer->bytes[7 + 2 * i] = (uint8_t)counts[i];
    }
    return (int)writer->len;
}
