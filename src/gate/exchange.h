// SPDX-License-Identifier: Apache-2.0
// Exchanges: what a flow is to TCP, an exchange is to datagrams. One is the UDP datagrams between a port of the sandbox
// and a port of one server, or the echo requests of one identifier to one address, and the answers to them. It has one
// connected socket on the host's side, so that only that server can answer, and from a port that nobody knows.
//
// An exchange is counted against the sandbox's limit together with its flows. It ends after a time without datagrams in
// either direction, when the policy no longer allows it, or when a new one needs its place; its end is always logged.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/addr.h"
#include "base/list.h"
#include "policy/policy.h"
#include "wire/ip.h"

#define EXCHANGE_BUCKETS 256
#define EXCHANGE_MAX 512    // of one sandbox, whatever its limit of connections
#define EXCHANGE_NOTICES 64 // destinations whose last notice is remembered
#define EXCHANGE_MTU 1500   // of the sandbox's own route

enum exchange_time {                    // milliseconds
    EXCHANGE_UNANSWERED_TIME_MS = 30000,
    EXCHANGE_ANSWERED_TIME_MS = 120000, // RFC 4787 REQ-5
    EXCHANGE_ECHO_TIME_MS = 10000,
    EXCHANGE_SPARE_MS = 1000,           // after so long without datagrams, one gives way to a new one when all are taken
    EXCHANGE_SWEEP_MS = 1000,
};

enum exchange_kind { EXCHANGE_UNANSWERED, EXCHANGE_ANSWERED, EXCHANGE_ECHO, EXCHANGE_KIND_COUNT };

struct event;
struct gate;

struct exchange_key {
    struct addr client, server;
    uint16_t client_port, port; // ICMP: the echo identifier, and 0
    enum policy_protocol protocol;
};

struct exchange {
    struct list bucket, idle; // in the table
    struct exchange_key key;
    struct gate *gate;
    struct event *event;
    uint64_t started_us, active_us;
    uint64_t bytes_out, bytes_in;
    uint64_t generation;      // of the policy that judged it last
    uint32_t rule;
    int fd;
    uint16_t mtu;             // of the path, as far as the host knows
    uint8_t kind;             // enum exchange_kind
    uint8_t reason;           // enum policy_reason
    bool told_size;           // the client was told of a path that is narrower than its own
    bool failed;              // the network reported an error
};

// ---- exchange_table.c: pure, the clock is given ----

struct exchange_notice {
    struct exchange_key key;
    uint64_t at_us;
};

struct exchange_table {
    struct list buckets[EXCHANGE_BUCKETS];
    struct list idle[EXCHANGE_KIND_COUNT]; // each in the order of active_us
    struct exchange_notice notices[EXCHANGE_NOTICES];
    size_t count;
    uint32_t seed;
};

bool exchange_key_equal(const struct exchange_key *a, const struct exchange_key *b);
void exchange_table_init(struct exchange_table *table, uint32_t seed);
struct exchange *exchange_table_find(const struct exchange_table *table, const struct exchange_key *key);
void exchange_table_add(struct exchange_table *table, struct exchange *exchange, uint64_t now_us);
void exchange_table_remove(struct exchange_table *table, struct exchange *exchange);
// A datagram went through it; answered: one from the server.
void exchange_table_touch(struct exchange_table *table, struct exchange *exchange, bool answered, uint64_t now_us);
struct exchange *exchange_table_expired(const struct exchange_table *table, uint64_t now_us); // one of them, or NULL
// The one without datagrams for longest, if for long enough to give way to a new one. NULL: none.
struct exchange *exchange_table_spare(const struct exchange_table *table, uint64_t now_us);
// Whether a refusal of this destination that repeats itself is to be logged: once a second.
bool exchange_table_notice(struct exchange_table *table, const struct exchange_key *key, uint64_t now_us);

// ---- exchange.c: from the first datagram to the end ----

int exchange_init(struct gate *gate);
void exchange_done(struct gate *gate); // ends all
struct exchange *exchange_find(struct gate *gate, const struct exchange_key *key);
// For a judged destination: a host socket, logged, or refused with an ICMP error about the datagram, logged, and NULL.
struct exchange *exchange_open(struct gate *gate, const struct exchange_key *key,
                               const struct policy_decision *decision, const struct ip_packet *about);
// Ends the one that can be spared, so that a new flow or exchange finds a place under the limit. False if there is none.
bool exchange_make_room(struct gate *gate);
void exchange_spent(struct exchange *exchange); // ends it: it sent more than the sandbox's budget of bytes
void exchange_lost(struct exchange *exchange);  // logs now and then that its datagrams exceed the sandbox's bandwidth
void exchange_rejudge(struct gate *gate, bool keep_existing, uint32_t *closed, uint32_t *kept); // adds to the counts

// ---- exchange_relay.c: datagrams and errors through the host socket ----

#define EXCHANGE_BATCH 16
#define EXCHANGE_DATAGRAM_SIZE 65536
#define EXCHANGE_HEAD_SIZE 48 // an IPv6 and a UDP header

// Room for one batch, of one direction at a time: the gate is single-threaded and keeps nothing here from turn to turn.
extern uint8_t exchange_room[EXCHANGE_BATCH][EXCHANGE_HEAD_SIZE + EXCHANGE_DATAGRAM_SIZE];

// To the server. Each message has one vector: the payload, or the whole echo request. Messages may be moved. The exchange
// may have ended afterwards.
void exchange_send(struct exchange *exchange, struct mmsghdr *messages, unsigned count);
void exchange_readable(int fd, short what, void *data); // event callback; data: the exchange

// ---- exchange_socket.c ----

// A socket of the host connected to the key's server, which is not the host itself, with its errors queued. -errno;
// -ELOOP: it is the host itself; -EPERM: the host lets this user send no echo requests.
int exchange_socket(const struct exchange_key *key, uint16_t *ret_mtu);
