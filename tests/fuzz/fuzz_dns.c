// SPDX-License-Identifier: Apache-2.0
// DNS: bytes as a question that gets an answer which our own reader must accept, and as a response.
#include "wire/dns_message.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void answer(const struct dns_question *question, int rcode, size_t size) {
    static uint8_t out[2048];
    struct addr address = addr_ipv4(0xc6120001);
    struct dns_writer writer;
    dns_answer_begin(&writer, out, size, question, (enum dns_rcode)rcode);
    if (rcode == 0)
        dns_answer_address(&writer, question->name, &address, 60);
    else
        dns_answer_negative(&writer, 5);
    dns_answer_ede(&writer, DNS_EDE_BLOCKED, "no rule allows this name");
    int len = dns_answer_end(&writer);
    if (len > (int)size || (len < 0 && size >= DNS_UDP_DEFAULT)) abort();
    if (len < 0 || question->wire_name_len == 0) return;
    struct dns_reader reader;
    struct dns_record record;
    if (dns_reader_init(&reader, out, (size_t)len) != WIRE_OK || reader.id != question->id) abort();
    if (rcode == 0 && !reader.truncated && dns_reader_next(&reader, &record) != 1) abort();
    if (dns_reader_next(&reader, &record) != 0) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct dns_question question;
    int rcode = dns_question_parse(data, size, &question);
    if (rcode >= 0) {
        answer(&question, rcode, 1232);
        answer(&question, rcode, size % 600);
    }
    struct dns_reader reader;
    struct dns_record record;
    if (dns_reader_init(&reader, data, size) != WIRE_OK) return 0;
    while (dns_reader_next(&reader, &record) == 1) {
        static uint8_t rdata[65536];
        char name[NAME_SIZE];
        int len = dns_reader_rdata(&reader, &record, rdata, size % 2 ? sizeof(rdata) : 64);
        if (len > (size % 2 ? 65535 : 64)) abort();
        dns_reader_name(&reader, record.rdata_offset, name);
    }
    return 0;
}
