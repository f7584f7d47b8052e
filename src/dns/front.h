// SPDX-License-Identifier: Apache-2.0
// What the files of the DNS front share: the plan for a question, and a question on its way. Private to the dns room.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"
#include "dns/dns.h"
#include "wire/dns_message.h"

#define FRONT_STREAMS_MAX 32  // TCP connections to port 53 of one sandbox
#define FRONT_FORWARDS_MAX 64 // queries on their way to servers that a CIDR entry allows

#define FRONT_ROUTES 64       // addresses whose route is known
#define FRONT_ROUTE_US 1000000 // for so long

struct front_route {
    struct addr address;
    bool found;
    uint64_t until_us;
};

struct dns_front {
    struct event_base *base;
    struct dns_client *client;
    struct dns_pool *pool;
    struct dns_front_callbacks callbacks;
    struct list queries, forwards, streams;
    bool paused;
    unsigned query_count, forward_count, stream_count;
    struct front_route routes[FRONT_ROUTES]; // by the last byte of the address
    uint8_t answer[DNS_MESSAGE_MAX]; // the one being built; replies copy what they keep
    uint8_t rdata[DNS_MESSAGE_MAX];
};

// ---- front_plan.c: what a question gets; pure ----

enum front_kind {
    FRONT_REFUSE,    // REFUSED: class or type that nobody gets
    FRONT_DENY,      // NXDOMAIN and the reason
    FRONT_LOCALHOST, // answered here
    FRONT_POINTER,   // PTR of an address of the pool or of loopback: answered here
    FRONT_EMPTY,     // no data, answered here
    FRONT_SYNTHETIC, // A, AAAA: the real name is looked up, an address of the pool is given
    FRONT_REAL,      // A, AAAA: real addresses, judged
    FRONT_RANGES,    // A, AAAA: real addresses inside allowed ranges
    FRONT_RECORDS,   // other types of an allowed name, targets judged
    FRONT_OPEN,      // base allow: everything, rebuilt
};

struct front_plan {
    enum front_kind kind;
    struct policy_decision decision;
    bool ask_server; // the server that the sandbox addressed instead of the configured ones
};

struct front_plan front_plan_make(const struct policy *policy, const struct dns_pool *pool,
                                  const struct dns_question *question, const struct addr *server);
bool front_plan_is_lookup(enum front_kind kind);

// ---- dns_front.c: a question on its way ----

struct front_query {
    struct list link; // in front->queries while it waits
    struct dns_front *front;
    struct dns_question question;
    struct front_plan plan;
    struct addr server;
    bool stream; // over TCP
    dns_front_reply *reply;
    void *data;
    struct dns_lookup *lookup;
};

// As dns_front_query, for either transport.
void dns_front_ask(struct dns_front *front, bool stream, const uint8_t *message, size_t len, const struct addr *server,
                   dns_front_reply *reply, void *data);
// Drops what waits for this data; reply is not called.
void dns_front_drop(struct dns_front *front, const void *data);
// Logs a decision about a question. name may be NULL.
void dns_front_log(const struct dns_front *front, const char *name, const struct addr *server,
                   const struct policy_decision *decision);
struct policy_decision dns_front_denial(enum policy_reason reason);
// Whether the sandbox's limits let a question of so many bytes through; else it was answered, or is lost.
bool dns_front_affords(const struct front_query *query, size_t len);
void dns_front_told(const struct dns_front *front, size_t len);

// ---- front_answer.c: each of these sends one answer and logs one decision ----

void front_answer_code(const struct front_query *query, enum dns_rcode rcode, const struct policy_decision *decision);
// A plan that needs no lookup.
void front_answer_local(const struct front_query *query, const struct policy *policy);
// What a lookup brought.
void front_answer_message(const struct front_query *query, const struct policy *policy, const uint8_t *message,
                          size_t len);
// SERVFAIL and why. reason: dns_failed (error: negative errno) or limit_exceeded (limit: which one).
void front_answer_failed(const struct front_query *query, int error);
void front_answer_limit(const struct front_query *query, enum policy_limit limit, const char *words);

// ---- dns_stream.c, dns_forward.c ----

void dns_stream_free_all(struct dns_front *front);
void dns_forward_free_all(struct dns_front *front);
