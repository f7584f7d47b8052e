// SPDX-License-Identifier: Apache-2.0
// DNS messages (RFC 1035, EDNS RFC 6891, EDE RFC 8914): questions are parsed and answers are built, nothing is relayed.
// One bounded cursor with a sticky error; compression pointers must point backwards and are counted.
#pragma once

#include <stdbool.h>

#include "base/addr.h"
#include "base/name.h"
#include "wire/wire.h"

enum dns_type { DNS_A = 1, DNS_NS = 2, DNS_CNAME = 5, DNS_SOA = 6, DNS_PTR = 12, DNS_MX = 15, DNS_TXT = 16,
                DNS_AAAA = 28, DNS_SRV = 33, DNS_OPT = 41, DNS_SVCB = 64, DNS_HTTPS = 65, DNS_IXFR = 251,
                DNS_AXFR = 252, DNS_ANY = 255 };
enum dns_rcode { DNS_NOERROR = 0, DNS_FORMERR = 1, DNS_SERVFAIL = 2, DNS_NXDOMAIN = 3, DNS_NOTIMP = 4, DNS_REFUSED = 5,
                 DNS_BADVERS = 16 }; // the last needs EDNS: its upper bits are in the OPT record
enum dns_ede { DNS_EDE_NONE = -1, DNS_EDE_OTHER = 0, DNS_EDE_BLOCKED = 15, DNS_EDE_PROHIBITED = 18,
               DNS_EDE_NETWORK_ERROR = 23 };

#define DNS_MESSAGE_MAX 65535
#define DNS_UDP_DEFAULT 512

struct dns_question {
    uint16_t id;
    uint8_t opcode;
    bool recursion_desired, checking_disabled;
    bool name_valid;      // false: the name is not canonical (answer NXDOMAIN); name is then empty
    char name[NAME_SIZE]; // canonical; "" with name_valid for the root
    uint8_t wire_name[256]; // as asked (letter case kept, for the echo in the answer), uncompressed
    size_t wire_name_len;
    uint16_t type, class;
    bool edns;
    uint16_t udp_size;    // 512 without EDNS
    bool dnssec_ok;
};

// 0: exactly one question, class and type in *ret_question. > 0: the dns_rcode to answer (FORMERR, NOTIMP, BADVERS;
// *ret_question has at least the id). < 0: drop (shorter than a header, or itself a response).
int dns_question_parse(const uint8_t *bytes, size_t len, struct dns_question *ret_question);

// Writer of one answer; sticky error. Names in owner position use compression towards the question where equal.
struct dns_writer {
    uint8_t *bytes;
    size_t len, size;
    bool overflow; // did not fit: dns_answer_end sets TC and cuts to the question
    uint16_t answers, authorities;
    const struct dns_question *question;
    enum dns_rcode rcode;
    int ede;
    const char *ede_text;
};
// size: what the client takes (for UDP its udp_size clamped to 1232, for TCP up to 65535).
void dns_answer_begin(struct dns_writer *writer, uint8_t *bytes, size_t size, const struct dns_question *question,
                      enum dns_rcode rcode);
void dns_answer_address(struct dns_writer *writer, const char *owner, const struct addr *address, uint32_t ttl_seconds);
// CNAME, PTR, NS.
void dns_answer_name(struct dns_writer *writer, const char *owner, uint16_t type, const char *target,
                     uint32_t ttl_seconds);
// Any record with RDATA already in uncompressed form.
void dns_answer_rdata(struct dns_writer *writer, const char *owner, uint16_t type, uint32_t ttl_seconds,
                      const uint8_t *rdata, size_t len);
// A synthetic SOA in the authority section so that negative answers are cached for ttl seconds (RFC 2308).
void dns_answer_negative(struct dns_writer *writer, uint32_t ttl_seconds);
// Extended DNS Error, written only if the question had EDNS. text: at most 200 bytes, must outlive the writer.
void dns_answer_ede(struct dns_writer *writer, enum dns_ede code, const char *text);
// Writes the OPT record and the counts. Returns the length of the message, or -ENOSPC if even the question did not fit.
int dns_answer_end(struct dns_writer *writer);

// Reader of a response.
struct dns_record {
    char owner[NAME_SIZE]; // canonical, or "" if it has bytes that no canonical name has
    uint16_t type, class;
    uint32_t ttl;          // seconds
    const uint8_t *rdata;  // as in the message: names inside may be compressed
    size_t rdata_len;
    size_t rdata_offset;
};
struct dns_reader {
    const uint8_t *bytes;
    size_t len, position;
    uint16_t id;
    uint8_t rcode;
    bool truncated, authenticated;
    uint16_t answers_left;
    bool bad;
};
// Header and question. WIRE_OK or WIRE_BAD.
enum wire_result dns_reader_init(struct dns_reader *reader, const uint8_t *bytes, size_t len);
// Next record of the answer section: 1, 0 at its end, -1 malformed.
int dns_reader_next(struct dns_reader *reader, struct dns_record *ret_record);
// A name inside RDATA at offset (absolute in the message), decompressed and canonical: bytes used at offset,
// or -1 (malformed, or not a canonical name).
int dns_reader_name(const struct dns_reader *reader, size_t offset, char ret_name[NAME_SIZE]);
// Re-encodes the RDATA of a record without compression into ret_rdata, dropping from SVCB/HTTPS the parameters ech (5)
// and h3 in alpn (1). Returns the length; 0: the record should be dropped; -1 malformed or too long.
int dns_reader_rdata(const struct dns_reader *reader, const struct dns_record *record, uint8_t *ret_rdata, size_t size);
