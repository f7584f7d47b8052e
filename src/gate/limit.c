// SPDX-License-Identifier: Apache-2.0
// The limits of a sandbox (semantics 5.3): how many connections are open and begin in a second, how fast bytes go each way,
// and how many go out over its life.
//
// What is counted is what the log counts, from where the gate reads it: the bytes of TCP connections (of opened TLS the
// plain text), the payload of datagrams, echo messages, DNS messages. What the gate itself says (refusals, handshakes) is
// not. How turns are shared is in base/meter.h; each reader asks there: net/relay.c, stream.c, flow_read, exchange_relay.c.
//
// A new policy changes the limits, never the counts. Those of bytes out are told to main ahead of their use, and main gives
// them to the next gate.
#include <errno.h>

#include "base/clock.h"
#include "gate/state.h"

static void limit_due(evutil_socket_t fd, short what, void *data) {
    (void)fd, (void)what;
    struct gate *gate = data;
    meter_serve(&gate->meter);
}

static void limit_wake(uint64_t delay_us, void *data) {
    struct gate *gate = data;
    struct timeval after = {.tv_sec = (time_t)(delay_us / 1000000), .tv_usec = (suseconds_t)(delay_us % 1000000)};
    if (event_add(gate->meter_event, &after) < 0) gate_fail(gate, "out of memory");
}

static bool limit_reserve(uint64_t bytes_out, void *data) {
    struct gate *gate = data;
    struct ipc_spent spent = {.bytes_out = bytes_out};
    return channel_send(gate->channel, IPC_GATE_SPENT, &spent, sizeof(spent), NULL, 0) == 0;
}

int limit_init(struct gate *gate, uint64_t bytes_out) {
    const struct meter_callbacks callbacks = {limit_wake, limit_reserve, gate};
    meter_init(&gate->meter, bytes_out, &callbacks);
    gate->meter_event = evtimer_new(gate->base, limit_due, gate);
    if (!gate->meter_event) return -ENOMEM;
    limit_apply(gate);
    return 0;
}

void limit_apply(struct gate *gate) {
    const struct policy_facts *facts = &gate->facts;
    meter_limit(&gate->meter, facts->bandwidth_bytes, facts->max_bytes_out ? facts->max_bytes_out : METER_NONE);
    meter_bucket_set(&gate->connection_rate, facts->connection_rate, facts->connection_rate, clock_us());
}

void limit_done(struct gate *gate) {
    if (gate->meter_event) event_free(gate->meter_event);
}

struct policy_decision limit_denial(enum policy_limit limit) {
    return (struct policy_decision){
        .verdict = POLICY_DENY, .reason = POLICY_LIMIT_EXCEEDED, .rule = POLICY_RULE_NONE, .limit = limit};
}

enum policy_limit limit_connection(struct gate *gate) {
    struct meter_bucket *rate = &gate->connection_rate;
    if (meter_is_spent(&gate->meter)) return POLICY_LIMIT_BYTES_OUT;
    meter_bucket_fill(rate, clock_us());
    if (rate->rate > 0 && rate->level < 1) return POLICY_LIMIT_CONNECTION_RATE;
    if (gate->flow_count >= gate->facts.max_connections && !exchange_make_room(gate)) return POLICY_LIMIT_CONNECTIONS;
    if (rate->rate > 0) rate->level--;
    return POLICY_LIMIT_NONE;
}

void limit_spent(struct flow *flow) {
    struct policy_request request = flow_request(flow);
    struct policy_decision denial = limit_denial(POLICY_LIMIT_BYTES_OUT);
    if (!flow->counted) journal_decision(flow->gate, &request, &denial); // else its end says it
    flow->reason = POLICY_LIMIT_EXCEEDED;
    flow->limit = POLICY_LIMIT_BYTES_OUT;
    flow->rule = POLICY_RULE_NONE;
}
