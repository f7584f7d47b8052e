// SPDX-License-Identifier: Apache-2.0
// Questions of a sandbox. Strict: exactly one question without compression, nothing in the answer section, at most one
// OPT record, nothing behind the last record. Whatever else a query carries (TSIG, the SOA of an IXFR) is stepped over.
#include <errno.h>

#include "wire/dns_cursor.h"
#include "wire/dns_message.h"

enum {
    FLAG_RESPONSE = 0x8000,
    FLAG_RECURSION_DESIRED = 0x0100,
    FLAG_CHECKING_DISABLED = 0x0010,
    OPT_DNSSEC_OK = 0x8000
};

static void read_question(struct dns_cursor *cursor, struct dns_question *question) {
    size_t len = dns_cursor_name(cursor, false, question->wire_name);
    question->type = dns_cursor_read16(cursor);
    question->class = dns_cursor_read16(cursor);
    if (cursor->bad) return;
    question->wire_name_len = len;
    question->name_valid = dns_cursor_name_text(question->wire_name, question->name);
}

// RFC 6891 6.1.2. ret_version: of EDNS.
static void read_opt(struct dns_question *question, uint16_t class, uint32_t ttl, uint8_t *ret_version) {
    question->edns = true;
    question->udp_size = class < DNS_UDP_DEFAULT ? DNS_UDP_DEFAULT : class;
    question->dnssec_ok = ttl & OPT_DNSSEC_OK;
    *ret_version = (uint8_t)(ttl >> 16);
}

static void read_record(struct dns_cursor *cursor, struct dns_question *question, bool additional,
                        uint8_t *ret_version) {
    uint8_t owner[DNS_CURSOR_NAME_MAX];
    dns_cursor_name(cursor, true, owner);
    uint16_t type = dns_cursor_read16(cursor), class = dns_cursor_read16(cursor);
    uint32_t ttl = dns_cursor_read32(cursor);
    dns_cursor_take(cursor, dns_cursor_read16(cursor));
    if (cursor->bad || type != DNS_OPT) return;
    if (!additional || question->edns || owner[0] != 0)
        cursor->bad = true;
    else
        read_opt(question, class, ttl, ret_version);
}

int dns_question_parse(const uint8_t *bytes, size_t len, struct dns_question *ret_question) {
    struct dns_cursor cursor = dns_cursor_at(bytes, 0, len);
    struct dns_question question = {.udp_size = DNS_UDP_DEFAULT};
    question.id = dns_cursor_read16(&cursor);
    uint16_t flags = dns_cursor_read16(&cursor);
    uint16_t questions = dns_cursor_read16(&cursor), answers = dns_cursor_read16(&cursor);
    uint16_t authorities = dns_cursor_read16(&cursor), additionals = dns_cursor_read16(&cursor);
    if (cursor.bad || flags & FLAG_RESPONSE || len > DNS_MESSAGE_MAX) return -EBADMSG;
    question.opcode = flags >> 11 & 15;
    question.recursion_desired = flags & FLAG_RECURSION_DESIRED;
    question.checking_disabled = flags & FLAG_CHECKING_DISABLED;
    *ret_question = question;
    if (question.opcode != 0) return DNS_NOTIMP;
    if (questions != 1 || answers != 0) return DNS_FORMERR;
    read_question(&cursor, &question);
    *ret_question = question;
    uint8_t version = 0;
    for (uint32_t i = 0; i < (uint32_t)authorities + additionals && !cursor.bad; i++)
        read_record(&cursor, &question, i >= authorities, &version);
    if (cursor.bad || cursor.position != len) return DNS_FORMERR;
    *ret_question = question;
    return version == 0 ? 0 : DNS_BADVERS;
}
