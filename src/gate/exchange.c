// SPDX-License-Identifier: Apache-2.0
// Exchanges from their first datagram to their end: opening under the sandbox's limit, expiry, the log.
#include <errno.h>
#include <event2/event.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "gate/state.h"

static void exchange_end_for(struct exchange *exchange, enum policy_reason reason, enum policy_limit limit) {
    struct gate *gate = exchange->gate;
    const struct flow record = { // in the form that the journal takes
        .transport = (uint8_t)exchange->key.protocol,
        .reason = (uint8_t)reason,
        .limit = (uint8_t)limit,
        .port = exchange->key.port,
        .peer = exchange->key.server,
        .rule = limit == POLICY_LIMIT_NONE ? exchange->rule : POLICY_RULE_NONE,
        .generation = exchange->generation,
        .started_us = exchange->started_us,
    };
    exchange_table_remove(gate->exchanges, exchange);
    gate->flow_count--;
    event_free(exchange->event);
    close(exchange->fd);
    journal_flow(gate, &record, exchange->bytes_out, exchange->bytes_in);
    free(exchange);
}

static void exchange_end(struct exchange *exchange, enum policy_reason reason) {
    exchange_end_for(exchange, reason, POLICY_LIMIT_NONE);
}

void exchange_spent(struct exchange *exchange) {
    exchange_end_for(exchange, POLICY_LIMIT_EXCEEDED, POLICY_LIMIT_BYTES_OUT);
}

// It ends by itself.
static void exchange_expire(struct exchange *exchange) {
    bool failed = exchange->failed && exchange->bytes_in == 0;
    exchange_end(exchange, failed ? POLICY_UPSTREAM_FAILED : (enum policy_reason)exchange->reason);
}

// ---- the table's life ----

static void exchange_sweep(evutil_socket_t fd, short what, void *data) {
    (void)fd;
    (void)what;
    struct gate *gate = data;
    struct exchange *exchange;
    uint64_t now = clock_us();
    // An end is a line in the log: not while the log is behind.
    while (!gate->paused && (exchange = exchange_table_expired(gate->exchanges, now))) {
        exchange_expire(exchange);
    }
    if (gate->exchanges->count == 0) event_del(gate->exchange_sweep);
}

int exchange_init(struct gate *gate) {
    gate->exchanges = NEW(struct exchange_table);
    if (!gate->exchanges) return -ENOMEM;
    exchange_table_init(gate->exchanges, gate->hash_seed);
    gate->exchange_sweep = event_new(gate->base, -1, EV_PERSIST, exchange_sweep, gate);
    return gate->exchange_sweep ? 0 : -ENOMEM;
}

void exchange_done(struct gate *gate) {
    struct exchange *exchange;
    while (gate->exchanges && (exchange = exchange_table_expired(gate->exchanges, UINT64_MAX))) exchange_expire(exchange);
}

bool exchange_make_room(struct gate *gate) {
    struct exchange *spare = exchange_table_spare(gate->exchanges, clock_us());
    if (spare) exchange_end(spare, POLICY_LIMIT_EXCEEDED);
    return spare != NULL;
}

// ---- opening ----

static struct policy_request exchange_request(const struct exchange_key *key) {
    return (struct policy_request){.protocol = key->protocol, .address = &key->server, .port = key->port};
}

// Refusals that a client repeats as fast as it can: one line a second, an answer each time.
static void exchange_refuse(struct gate *gate, const struct exchange_key *key, const struct policy_decision *decision,
                            const struct ip_packet *about, enum ip_unreachable code) {
    struct policy_request request = exchange_request(key);
    if (exchange_table_notice(gate->exchanges, key, clock_us())) journal_decision(gate, &request, decision);
    refusal_packet(gate, about, code);
}

// No socket: why, in the words of the log, and to the client.
static void exchange_failed(struct gate *gate, const struct exchange_key *key, struct policy_decision decision, int error,
                            const struct ip_packet *about) {
    static const struct {
        int error;
        enum policy_verdict verdict;
        enum policy_reason reason;
        enum ip_unreachable code;
    } rows[] = {
        {ELOOP, POLICY_DENY, POLICY_NODE_OWN_ADDRESS, IP_UNREACHABLE_PROHIBITED},
        {EMFILE, POLICY_DENY, POLICY_LIMIT_EXCEEDED, IP_UNREACHABLE_PROHIBITED},
        {ENFILE, POLICY_DENY, POLICY_LIMIT_EXCEEDED, IP_UNREACHABLE_PROHIBITED},
        {ENOMEM, POLICY_DENY, POLICY_LIMIT_EXCEEDED, IP_UNREACHABLE_PROHIBITED},
        {ENOBUFS, POLICY_DENY, POLICY_LIMIT_EXCEEDED, IP_UNREACHABLE_PROHIBITED},
        {EPERM, POLICY_ALLOW, POLICY_UPSTREAM_FAILED, IP_UNREACHABLE_PROHIBITED},
        {EACCES, POLICY_ALLOW, POLICY_UPSTREAM_FAILED, IP_UNREACHABLE_PROHIBITED},
        {ENETUNREACH, POLICY_ALLOW, POLICY_UPSTREAM_FAILED, IP_UNREACHABLE_NETWORK},
        {0, POLICY_ALLOW, POLICY_UPSTREAM_FAILED, IP_UNREACHABLE_HOST}, // anything else
    };
    size_t i = 0;
    while (rows[i].error != 0 && rows[i].error != -error) i++;
    decision.verdict = rows[i].verdict;
    decision.reason = rows[i].reason;
    if (decision.verdict == POLICY_DENY) decision.rule = POLICY_RULE_NONE;
    exchange_refuse(gate, key, &decision, about, rows[i].code);
}

static bool exchange_has_room(struct gate *gate) {
    return gate->exchanges->count < EXCHANGE_MAX || exchange_make_room(gate);
}

void exchange_lost(struct exchange *exchange) {
    struct gate *gate = exchange->gate;
    struct policy_request request = exchange_request(&exchange->key);
    struct policy_decision denial = limit_denial(POLICY_LIMIT_BANDWIDTH);
    if (exchange_table_notice(gate->exchanges, &exchange->key, clock_us())) journal_decision(gate, &request, &denial);
}

// Without the sweep nothing would end them.
static int exchange_watch(struct gate *gate) {
    static const struct timeval sweep = {.tv_sec = EXCHANGE_SWEEP_MS / 1000};
    bool runs = event_pending(gate->exchange_sweep, EV_TIMEOUT, NULL) || event_add(gate->exchange_sweep, &sweep) == 0;
    return runs ? 0 : -ENOMEM;
}

static int exchange_new(struct gate *gate, const struct exchange_key *key, struct exchange **ret_exchange) {
    uint16_t mtu;
    AUTO_CLOSE int fd = exchange_socket(key, &mtu);
    if (fd < 0) return fd;
    AUTO_FREE struct exchange *exchange = NEW(struct exchange);
    struct event *event = exchange ? event_new(gate->base, fd, EV_READ | EV_PERSIST, exchange_readable, exchange) : NULL;
    if (!event || event_add(event, NULL) < 0) {
        if (event) event_free(event);
        return -ENOMEM;
    }
    exchange->gate = gate;
    exchange->key = *key;
    exchange->event = event;
    exchange->mtu = mtu;
    exchange->fd = TAKE_FD(fd);
    *ret_exchange = TAKE_POINTER(exchange);
    return 0;
}

struct exchange *exchange_find(struct gate *gate, const struct exchange_key *key) {
    return exchange_table_find(gate->exchanges, key);
}

struct exchange *exchange_open(struct gate *gate, const struct exchange_key *key,
                               const struct policy_decision *decision, const struct ip_packet *about) {
    struct exchange *exchange;
    enum policy_limit limit = limit_connection(gate);
    int rc = limit == POLICY_LIMIT_NONE && exchange_has_room(gate) ? exchange_watch(gate) : -EMFILE;
    if (rc == 0) rc = exchange_new(gate, key, &exchange);
    if (rc < 0) {
        struct policy_decision failed = *decision;
        failed.limit = limit;
        exchange_failed(gate, key, failed, rc, about);
        return NULL;
    }
    exchange->started_us = clock_us();
    exchange->generation = gate->facts.generation;
    exchange->rule = decision->rule;
    exchange->reason = (uint8_t)decision->reason;
    exchange_table_add(gate->exchanges, exchange, exchange->started_us);
    gate->flow_count++;
    gate->counters.exchanges++;
    struct policy_request request = exchange_request(key);
    journal_decision(gate, &request, decision);
    return exchange;
}

// ---- a change of policy ----

// The rule that allows it now is what its end is logged with.
static bool exchange_is_allowed(struct exchange *exchange) {
    struct policy_request request = exchange_request(&exchange->key);
    struct policy_decision decision = datagram_decide(exchange->gate, &request);
    if (decision.verdict != POLICY_ALLOW) return false;
    exchange->generation = exchange->gate->facts.generation;
    exchange->rule = decision.rule;
    exchange->reason = (uint8_t)decision.reason;
    return true;
}

void exchange_rejudge(struct gate *gate, bool keep_existing, uint32_t *closed, uint32_t *kept) {
    for (size_t kind = 0; kind < EXCHANGE_KIND_COUNT; kind++) {
        LIST_FOREACH(&gate->exchanges->idle[kind], node) {
            struct exchange *exchange = LIST_ENTRY(node, struct exchange, idle);
            if (exchange_is_allowed(exchange) || keep_existing) {
                ++*kept;
            } else {
                exchange_end(exchange, POLICY_POLICY_CHANGED);
                ++*closed;
            }
        }
    }
}
