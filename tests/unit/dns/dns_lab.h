// SPDX-License-Identifier: Apache-2.0
// What the tests of the dns room share: questions, compiled policies, a gate's side with a scripted resolver, and a
// small authoritative DNS server on loopback.
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <event2/event.h>

#include "dns/dns.h"
#include "wire/dns_message.h"
#include "wire/ipc.h"

size_t lab_question(uint8_t *bytes, const char *name, uint16_t type, bool edns);
struct policy *lab_policy(const char *yaml); // native dialect
struct addr lab_addr(const char *text);
struct addr_prefix lab_prefix(const char *text);

// ---- a zone: what both kinds of resolver answer ----

// Writes the answer to a question; false: no answer at all.
typedef bool lab_zone(const struct dns_question *question, struct dns_writer *writer);
// a.test, and what else each name does is said in dns_lab.c.
bool lab_zone_test(const struct dns_question *question, struct dns_writer *writer);

// ---- a gate with a scripted resolver at the other end of its channel ----

struct lab_decision {
    char name[NAME_SIZE];
    enum policy_verdict verdict;
    enum policy_reason reason;
    struct addr server;
};

struct lab {
    struct event_base *base;
    struct dns_client *client;
    struct dns_pool *pool;
    struct dns_front *front;
    struct policy *policy;
    int resolver;          // the other end of the client's channel
    bool silent;           // it does not answer
    unsigned asked;        // queries it got
    struct ipc_query last; // of these
    unsigned decisions;
    struct lab_decision decision; // the last
    unsigned replies, nothing;    // nothing: replies without an answer
    uint8_t answer[DNS_MESSAGE_MAX];
    size_t len;
};

void lab_start(struct lab *lab, const char *yaml);
void lab_build(struct lab *lab, const char *yaml, int channel); // with a resolver of the caller's
void lab_end(struct lab *lab);
void lab_turn(struct lab *lab); // one turn of the loop, and what the resolver got is answered
void lab_until(struct lab *lab, const unsigned *counter, unsigned value); // turns until *counter is at least value
void lab_reply(const uint8_t *answer, size_t len, void *data);            // a dns_front_reply; data is the lab
// Asks over UDP and waits for the answer, which is in lab->answer.
void lab_ask(struct lab *lab, const char *name, uint16_t type);

// What an answer says.
struct lab_answer {
    uint8_t rcode;
    bool truncated;
    uint16_t answers, authorities;
    struct addr address; // of the first A or AAAA
    int ede;             // -1: none
    char ede_text[256];
};
struct lab_answer lab_read(const uint8_t *bytes, size_t len);

// ---- a DNS server in a thread ----

struct lab_server;
struct lab_server *lab_server_new(uint16_t *ret_port);
void lab_server_free(struct lab_server *server);
unsigned lab_server_udp(struct lab_server *server); // queries it got
unsigned lab_server_tcp(struct lab_server *server);
void lab_server_mute(struct lab_server *server, bool mute);
