// SPDX-License-Identifier: Apache-2.0
// Flows: making, finding, ending. The states are described in state.h.
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "gate/intercept.h"
#include "gate/state.h"

#define FLOW_STEP 4096
#define FLOW_FIRST_MAX (TLS_HELLO_MAX + FLOW_STEP) // first bytes

static struct list *flow_bucket(struct gate *gate, const struct addr *source, uint16_t source_port,
                                const struct addr *destination, uint16_t port) {
    // FNV-1a with a secret start: the sandbox chooses the ports and addresses.
    uint32_t hash = gate->hash_seed;
    const struct addr *addresses[] = {source, destination};
    for (size_t a = 0; a < ARRAY_LENGTH(addresses); a++) {
        for (size_t i = 0; i < sizeof(addresses[a]->bytes); i++) hash = (hash ^ addresses[a]->bytes[i]) * 16777619;
    }
    hash = (hash ^ source_port) * 16777619;
    hash = (hash ^ port) * 16777619;
    return &gate->pending[(hash ^ hash >> 16) % GATE_BUCKETS];
}

bool flow_need_opening(struct flow *flow) {
    struct opening *opening = flow->opening ? NULL : NEW(struct opening);
    if (!opening) return flow->opening != NULL;
    list_init(&opening->bucket);
    opening->flow = flow;
    flow->opening = opening;
    return true;
}

struct flow *flow_new(struct gate *gate, const struct ip_packet *syn) {
    struct flow *flow = slab_take(&gate->flow_memory);
    if (!flow || !flow_need_opening(flow)) {
        slab_give(&gate->flow_memory, flow);
        return NULL;
    }
    struct opening *opening = flow->opening;
    memcpy(opening->syn, syn->bytes, syn->len);
    opening->syn_len = syn->len;
    flow->gate = gate;
    flow->fd = flow->upstream = -1;
    flow->rule = POLICY_RULE_NONE;
    opening->source = syn->source;
    opening->source_port = syn->source_port;
    flow->destination = flow->peer = syn->destination;
    flow->port = syn->destination_port;
    flow->started_us = clock_us();
    flow->generation = gate->facts.generation;
    list_append(&gate->flows, &flow->link);
    list_append(flow_bucket(gate, &syn->source, syn->source_port, &flow->destination, flow->port), &opening->bucket);
    gate->flow_count++;
    gate->counters.flows++;
    gate_buffers(gate);
    return flow;
}

struct flow *flow_find_pending(struct gate *gate, const struct addr *source, uint16_t source_port,
                               const struct addr *destination, uint16_t port) {
    LIST_FOREACH(flow_bucket(gate, source, source_port, destination, port), node) {
        const struct opening *opening = LIST_ENTRY(node, struct opening, bucket);
        struct flow *flow = opening->flow;
        if (opening->source_port == source_port && flow->port == port && addr_equal(&opening->source, source) &&
            addr_equal(&flow->destination, destination)) {
            return flow;
        }
    }
    return NULL;
}

// ---- turns to read first bytes ----

static void opening_forget_events(struct gate *gate, struct opening *opening) {
    meter_leave(&gate->meter, METER_OUT, &opening->turns[RELAY_SANDBOX]);
    meter_leave(&gate->meter, METER_IN, &opening->turns[RELAY_UPSTREAM]);
    watch_stop(&opening->readable);
    watch_stop(&opening->back);
}

void flow_forget_events(struct flow *flow) { opening_forget_events(flow->gate, flow->opening); }

static void opening_resume(struct watch *watch) {
    watch_resume(watch);
    watch->ready(watch->fd, watch->data);
}

static void opening_resume_readable(struct meter_turn *turn) {
    opening_resume(&LIST_ENTRY(turn, struct opening, turns[RELAY_SANDBOX])->readable);
}

static void opening_resume_back(struct meter_turn *turn) {
    opening_resume(&LIST_ENTRY(turn, struct opening, turns[RELAY_UPSTREAM])->back);
}

ssize_t flow_ask(struct flow *flow, enum relay_side side, size_t max) {
    struct opening *opening = flow->opening;
    struct meter_turn *turn = &opening->turns[side];
    turn->resume = side == RELAY_SANDBOX ? opening_resume_readable : opening_resume_back;
    ssize_t allowed = meter_ask(&flow->gate->meter, (enum meter_way)side, turn, max);
    if (allowed == 0) watch_pause(side == RELAY_SANDBOX ? &opening->readable : &opening->back);
    return allowed == 0 ? -EAGAIN : allowed;
}

bool flow_waits(const struct flow *flow) { return meter_turn_waits(&flow->opening->turns[RELAY_SANDBOX]); }

void flow_free_opening(struct flow *flow) {
    struct opening *opening = flow->opening;
    if (!opening) return;
    flow->opening = NULL;
    if (opening->connector) connector_cancel(opening->connector);
    if (opening->timer) event_free(opening->timer);
    list_remove(&opening->bucket);
    opening_forget_events(flow->gate, opening);
    free(opening->bytes);
    free(opening);
}

static bool flow_grow(struct opening *opening) {
    if (opening->size - opening->len >= FLOW_STEP) return true;
    size_t size = opening->size * 2;
    if (size < opening->len + FLOW_STEP) size = opening->len + FLOW_STEP; // what a request gave back may be short
    uint8_t *bytes = size <= 2 * FLOW_FIRST_MAX ? realloc(opening->bytes, size) : NULL;
    if (!bytes) return false;
    opening->bytes = bytes;
    opening->size = size;
    return true;
}

ssize_t flow_read(struct flow *flow) {
    struct opening *opening = flow->opening;
    if (!flow_grow(opening)) return -ENOBUFS;
    ssize_t allowed = flow_ask(flow, RELAY_SANDBOX, FLOW_STEP);
    if (allowed == -EAGAIN) return allowed;
    ssize_t len = recv(flow->fd, opening->bytes + opening->len, allowed < 0 ? 1 : (size_t)allowed, 0);
    if (len < 0) return errno == EINTR ? -EAGAIN : -errno;
    if (len > 0 && allowed < 0) { // beyond the budget
        limit_spent(flow);
        return allowed;
    }
    meter_take(&flow->gate->meter, METER_OUT, (size_t)len);
    opening->len += (size_t)len;
    return len;
}

static void flow_close(int fd, bool reset) {
    if (fd < 0) return;
    if (reset) relay_reset_fd(fd);
    else close(fd);
}

void flow_report(struct flow *flow) {
    if (!flow->counted) return;
    if (flow->http) http_relay_carry(flow->http);
    journal_flow(flow->gate, flow, flow->relay.bytes[RELAY_SANDBOX], flow->relay.bytes[RELAY_UPSTREAM]);
    flow->counted = false;
    flow->relay.bytes[RELAY_SANDBOX] = flow->relay.bytes[RELAY_UPSTREAM] = 0;
    flow->started_us = clock_us();
}

void flow_end(struct flow *flow, bool reset) {
    struct gate *gate = flow->gate;
    flow_report(flow);
    http_relay_free(flow->http, reset);
    h2_relay_free(flow->h2, reset);
    intercept_free(flow, reset);
    if (flow->state == FLOW_RELAYING) relay_stop(&flow->relay, reset);
    flow_free_opening(flow);
    flow_close(flow->fd, reset);
    flow_close(flow->upstream, reset);
    list_remove(&flow->link);
    gate->flow_count--;
    gate_buffers(gate);
    free(flow->name);
    free(flow->door);
    slab_give(&gate->flow_memory, flow);
}

static void flow_timer(evutil_socket_t fd, short what, void *data) {
    (void)fd;
    (void)what;
    struct flow *flow = data;
    if (flow->state == FLOW_SNIFFING) sniff_timeout(flow);
    else if (flow->state == FLOW_ASKING) door_deadline(flow);
    else if (flow->state == FLOW_OPENING) intercept_deadline(flow);
    else flow_end(flow, flow->state != FLOW_LINGERING);
}

void flow_authority(const struct flow *flow, const char *host, char ret_text[FLOW_AUTHORITY_SIZE]) {
    if (flow->port == 443) memcpy(ret_text, host, strlen(host) + 1); // a name: shorter than NAME_SIZE
    else snprintf(ret_text, FLOW_AUTHORITY_SIZE, "%s:%u", host, flow->port);
}

bool flow_deadline(struct flow *flow, unsigned milliseconds) {
    struct opening *opening = flow->opening;
    struct timeval after = {.tv_sec = milliseconds / 1000, .tv_usec = (suseconds_t)(milliseconds % 1000) * 1000};
    if (!opening->timer) opening->timer = evtimer_new(flow->gate->base, flow_timer, flow);
    return opening->timer && event_add(opening->timer, &after) == 0;
}

void flow_stop_timer(struct flow *flow) {
    if (flow->opening && flow->opening->timer) event_del(flow->opening->timer);
}

struct policy_request flow_request(const struct flow *flow) {
    return (struct policy_request){
        .protocol = flow->protocol,
        .app = flow->app,
        .dialled = flow->resolved ? flow->name : flow->dialled,
        .claimed = flow->name,
        .address = flow->dialled || flow->resolved ? NULL : &flow->destination,
        .port = flow->port,
    };
}

const char *flow_admitted_name(const struct flow *flow) { return flow->name ? flow->name : flow->dialled; }

void flow_noted(struct flow *flow, const struct policy_request *request, const struct policy_decision *decision,
                const struct journal_note *note) {
    flow->generation = flow->gate->facts.generation;
    flow->judged = true;
    if (decision->verdict == POLICY_ALLOW) { // what admitted it, also where a later request on it is refused
        flow->counted = true;
        flow->rule = decision->rule;
        flow->reason = (uint8_t)decision->reason;
    }
    journal_noted(flow->gate, request, decision, note);
}

void flow_judged(struct flow *flow, const struct policy_request *request, const struct policy_decision *decision) {
    static const struct journal_note none = {0};
    flow_noted(flow, request, decision, &none);
}

struct policy_decision flow_unreachable(struct flow *flow, const struct policy_request *request, const char *why) {
    struct policy_decision decision = policy_decide(flow->gate->policy, request);
    if (decision.verdict == POLICY_INSPECT) decision.verdict = POLICY_ALLOW;
    if (decision.verdict == POLICY_ALLOW) decision.reason = POLICY_UPSTREAM_FAILED;
    const struct journal_note note = {.hint = why};
    flow->judged = true;
    journal_noted(flow->gate, request, &decision, &note);
    return decision;
}

void flow_relay_ended(struct relay *relay, int error) {
    struct flow *flow = LIST_ENTRY(relay, struct flow, relay);
    if (error == -EDQUOT) limit_spent(flow);
    flow->state = FLOW_LINGERING; // the relay has closed both sockets
    flow_end(flow, false);
}

void flow_relay(struct flow *flow, const uint8_t *back, size_t back_len) {
    struct opening *opening = flow->opening;
    const uint8_t *first = opening ? opening->bytes : NULL;
    size_t first_len = opening ? opening->len : 0;
    int rc = relay_start(flow->gate->relays, &flow->relay, flow->fd, flow->upstream, first, first_len, back, back_len);
    if (rc < 0) {
        flow_end(flow, true);
        return;
    }
    flow->fd = flow->upstream = -1;
    flow->state = FLOW_RELAYING;
    flow_free_opening(flow);
}
