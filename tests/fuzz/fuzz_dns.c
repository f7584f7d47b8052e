// SPDX-License-Identifier: Apache-2.0
// DNS: bytes as a question that gets answers which our own reader must accept, and as a response whose records, written
// anew, must read the same.
#include "wire/dns_message.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint8_t out[65536], rdata[65536], again[65536];

// Reads an answer of ours: it has exactly these records, or was cut.
static void check_answer(const struct dns_writer *writer, int len, size_t size, int records) {
    struct dns_reader reader;
    struct dns_record record;
    if (len > (int)size || (len < 0 && size >= DNS_UDP_DEFAULT)) abort();
    if (len < 0 || writer->question->wire_name_len == 0) return;
    if (dns_reader_init(&reader, out, (size_t)len) != WIRE_OK || reader.id != writer->question->id) abort();
    for (int i = 0; i < records && !reader.truncated; i++)
        if (dns_reader_next(&reader, &record) != 1) abort();
    if (dns_reader_next(&reader, &record) != 0) abort();
}

static void answer(const struct dns_question *question, int rcode, size_t size) {
    struct addr addresses[] = {addr_ipv4(0xc6120001), {.family = ADDR_IPV6, .bytes = {0xfd}}};
    struct dns_writer writer;
    int records = 0;
    dns_answer_begin(&writer, out, size, question, (enum dns_rcode)rcode);
    if (rcode == 0) {
        dns_answer_name(&writer, question->name, DNS_CNAME, "target.example", 60);
        for (size_t i = 0; i < 2; i++) dns_answer_address(&writer, "target.example", &addresses[i], 60);
        dns_answer_rdata(&writer, "target.example", DNS_TXT, 60, (const uint8_t *)"\4text", 5);
        records = 4;
    } else {
        dns_answer_negative(&writer, 5);
    }
    dns_answer_ede(&writer, DNS_EDE_BLOCKED, "no rule allows this name");
    check_answer(&writer, dns_answer_end(&writer), size, records);
}

// A record of a response, as it is passed on: read from what we wrote it is the same.
static void pass_on(const struct dns_record *record, const uint8_t *bytes, size_t len) {
    static const uint8_t query[] = {0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1, 'q', 0, 0, 16, 0, 1};
    struct dns_question question;
    struct dns_writer writer;
    struct dns_reader reader;
    struct dns_record copy;
    if (dns_question_parse(query, sizeof(query), &question) != 0) abort();
    dns_answer_begin(&writer, out, sizeof(out), &question, DNS_NOERROR);
    dns_answer_rdata(&writer, record->owner, record->type, record->ttl, bytes, len);
    int message = dns_answer_end(&writer);
    if (message < 0 || dns_reader_init(&reader, out, (size_t)message) != WIRE_OK || reader.truncated) return;
    if (dns_reader_next(&reader, &copy) != 1 || copy.type != record->type || copy.ttl != record->ttl) abort();
    if (strcmp(copy.owner, record->owner) != 0) abort();
    int same = dns_reader_rdata(&reader, &copy, again, sizeof(again));
    if (same != (int)len || memcmp(again, bytes, len) != 0) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct dns_question question;
    struct dns_reader reader;
    struct dns_record record;
    int rcode = dns_question_parse(data, size, &question);
    if (rcode >= 0) {
        answer(&question, rcode, 1232);
        answer(&question, rcode, size % 600);
    }
    if (dns_reader_init(&reader, data, size) != WIRE_OK) return 0;
    for (int i = 0; dns_reader_next(&reader, &record) == 1; i++) {
        char name[NAME_SIZE];
        size_t room = size % 2 ? sizeof(rdata) : 64;
        int len = dns_reader_rdata(&reader, &record, rdata, room);
        if (len > (int)room) abort();
        dns_reader_name(&reader, record.rdata_offset, name);
        if (len > 0 && i < 8) pass_on(&record, rdata, (size_t)len);
    }
    return 0;
}
