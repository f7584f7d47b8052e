// SPDX-License-Identifier: Apache-2.0
// HTTP/2 of a connection that is opened (gate/intercept.h): h2_bridge between two streams, and the judging of each
// request.
//
// A request is judged when its head is whole, and once more when its values have come from the vault; then it goes
// upstream, and the log has one line for it. It waits, within the limits of h2_bridge.h, while the log is behind and
// while the server takes no more streams. Its authority must be the host that was dialled, else it gets 421 and the
// others of the connection go on. Bytes that hold values go to the server's stream from where nghttp2 wrote them,
// never through a buffer, and are wiped there.
//
// The end: of the client at once, or orderly when its last response has gone out; of the server when what it sent has
// gone out. What is written is followed by a lingering close, as a close with unread bytes would be a reset.
#include <errno.h>
#include <event2/buffer.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/mem.h"
#include "gate/h2_bridge.h"
#include "gate/intercept.h"
#include "gate/state.h"
#include "gate/stream.h"

#define H2_RELAY_WATERMARK 262144 // bytes waiting towards one side before nghttp2 is asked for more
#define H2_RELAY_PIECE 16384      // bytes of one side before the other has its turn
#define H2_RELAY_TICK_S 10
#define H2_RELAY_FEW 16           // connections of a sandbox up to which they get large windows

struct h2_relay {
    struct flow *flow;
    struct h2_bridge *bridge;
    struct stream *ends[H2_SIDES]; // NULL: there is none
    struct event *tick;            // now and then; in the end the deadline of what is left to write and to read
    struct event *wake;            // runs it from the loop; and buries it, for which it is there from the start
    uint64_t busy_us;              // when there was a stream last
    size_t injecting;              // requests that wait for their values
    bool secret_out;               // bytes with values are on their way to the server
    bool waiting;                  // there may be requests to begin
    bool shutting;                 // all was said; the client may close
    bool client_failed;            // its connection did
    bool ended[H2_SIDES];          // of that side, what is in its input is the last; orderly or not:
    bool orderly[H2_SIDES];
    bool pumping;
    bool dead;
};

static void h2_relay_pump(struct h2_relay *relay);

// ---- judging ----

static struct policy_request h2_relay_request(const struct flow *flow) {
    struct policy_request request = flow_request(flow);
    request.app = POLICY_APP_TLS;
    request.claimed = intercept_host(flow);
    if (flow->h2->ends[H2_SERVER]) request.address = &flow->peer;
    return request;
}

struct policy_decision h2_relay_rejudge(const struct flow *flow) {
    struct policy_request request = h2_relay_request(flow);
    struct policy_decision decision = policy_decide(flow->gate->policy, &request);
    if (!policy_name_bound(flow->gate->policy, request.dialled)) decision.verdict = POLICY_DENY; // nothing is opened for it now
    return decision;
}

static unsigned h2_relay_status(enum policy_reason reason) {
    if (reason == POLICY_BAD_REQUEST) return 400;
    if (reason == POLICY_NAME_MISMATCH) return 421;
    return reason == POLICY_UPSTREAM_FAILED || reason == POLICY_BINDING_FAILED ? 502 : 403;
}

static void h2_relay_answer(struct h2_relay *relay, struct h2_stream *stream, const struct policy_request *request,
                            const struct policy_decision *decision, const char *why) {
    struct buf body = BUF_INIT;
    refusal_json(relay->flow->gate, request, decision, why, &body);
    if (body.failed) relay->bridge->broken = true;
    unsigned status = stream->head.too_large ? 431 : h2_relay_status(decision->reason);
    h2_stream_answer(stream, status, policy_reason_name(decision->reason), body.data ? body.data : "", body.len);
    buf_done(&body);
}

static void h2_relay_refuse(struct h2_relay *relay, struct h2_stream *stream, struct policy_decision decision) {
    struct policy_request request = h2_relay_request(relay->flow);
    flow_judged(relay->flow, &request, &decision);
    h2_relay_answer(relay, stream, &request, &decision, NULL);
}

static void h2_relay_refuse_reason(struct h2_relay *relay, struct h2_stream *stream, enum policy_reason reason) {
    h2_relay_refuse(relay, stream,
                    (struct policy_decision){.verdict = POLICY_DENY, .reason = reason, .rule = POLICY_RULE_NONE});
}

static void h2_relay_unbound(struct h2_relay *relay, struct h2_stream *stream, int status) {
    char why[INJECTION_WHY_SIZE];
    struct policy_request request = h2_relay_request(relay->flow);
    struct policy_decision decision = {.verdict = POLICY_DENY, .reason = POLICY_BINDING_FAILED, .rule = POLICY_RULE_NONE};
    const struct journal_note note = {.hint = injection_why(status, why)};
    flow_noted(relay->flow, &request, &decision, &note);
    h2_relay_answer(relay, stream, &request, &decision, why);
}

static void h2_relay_unreachable(struct h2_relay *relay, struct h2_stream *stream) {
    const char *why = intercept_why(relay->flow);
    struct policy_request request = h2_relay_request(relay->flow);
    struct policy_decision decision = flow_unreachable(relay->flow, &request, why);
    h2_relay_answer(relay, stream, &request, &decision, why);
}

static bool h2_relay_is_host(const struct flow *flow, struct wire_slice authority) {
    struct name_host host;
    uint16_t port;
    if (authority.len == 0 || name_authority_from_wire(authority.data, authority.len, &host, &port) < 0) return false;
    return !host.is_address && strcmp(host.name, intercept_host(flow)) == 0 && (port == 0 || port == flow->port);
}

// Whether the request is for the host that was dialled, by all that it says about that: Host stands for an :authority that
// is left out (RFC 9113 8.3.1).
static bool h2_relay_names_host(const struct flow *flow, const struct h2_head *head) {
    struct wire_slice scheme = h2_head_find(head, ":scheme");
    if (scheme.len != 5 || memcmp(scheme.data, "https", 5) != 0) return false;
    struct wire_slice authority = h2_head_find(head, ":authority");
    bool named = authority.data != NULL;
    if (named && !h2_relay_is_host(flow, authority)) return false;
    for (size_t i = 0; i < head->count; i++) {
        const struct h2_field *field = &head->fields[i];
        bool host = field->name_len == 4 && memcmp(head->bytes + field->name, "host", 4) == 0;
        struct wire_slice value = {head->bytes + field->value, field->value_len};
        if (host && !h2_relay_is_host(flow, value)) return false;
        named |= host;
    }
    return named;
}

// Whether the request may go on, as far as can be said before it has its values. False: it was answered.
static bool h2_relay_judge(struct h2_relay *relay, struct h2_stream *stream) {
    struct policy_request request = h2_relay_request(relay->flow);
    struct wire_slice method = h2_head_find(&stream->head, ":method");
    struct policy_decision decision = policy_decide(relay->flow->gate->policy, &request);
    bool misdirected = !h2_relay_names_host(relay->flow, &stream->head);
    bool bad = stream->head.too_large || !policy_method_may(method.data, method.len);
    if (bad) h2_relay_refuse_reason(relay, stream, POLICY_BAD_REQUEST);
    else if (misdirected) h2_relay_refuse_reason(relay, stream, POLICY_NAME_MISMATCH);
    else if (decision.verdict != POLICY_ALLOW) h2_relay_refuse(relay, stream, decision);
    else if (!relay->ends[H2_SERVER]) h2_relay_unreachable(relay, stream);
    else stream->allowed = true;
    return stream->allowed;
}

// The host is sent as it was judged.
static bool h2_relay_canonical(const struct flow *flow, struct h2_head *head) {
    char text[FLOW_AUTHORITY_SIZE];
    flow_authority(flow, intercept_host(flow), text);
    struct wire_slice authority = {(const uint8_t *)text, strlen(text)};
    return h2_head_set(head, ":authority", authority) == 0 && h2_head_set(head, "host", authority) == 0;
}

static void h2_relay_forward(struct h2_relay *relay, struct h2_stream *stream, struct injection *injection) {
    struct policy_request request = h2_relay_request(relay->flow);
    struct policy_decision decision = policy_decide(relay->flow->gate->policy, &request);
    bool gone = stream->resetting[H2_CLIENT] || relay->bridge->over[H2_SERVER];
    if (gone || decision.verdict != POLICY_ALLOW) {
        injection_free(injection);
        if (!gone) h2_relay_refuse(relay, stream, decision);
        return;
    }
    if (!h2_relay_canonical(relay->flow, &stream->head)) relay->bridge->broken = true;
    const char *host = intercept_host(relay->flow);
    const struct journal_note note = {.credentials = injection_places(relay->flow->gate, host, injection)};
    flow_noted(relay->flow, &request, &decision, &note);
    intercept_carries(relay->flow, injection);
    h2_stream_forward(stream, injection);
}

static void h2_relay_injected(int status, struct injection *injection, void *data) {
    struct h2_stream *stream = data;
    struct h2_relay *relay = stream->bridge->data;
    stream->wait = NULL;
    relay->injecting--;
    relay->waiting = true;
    if (status == 0) h2_relay_forward(relay, stream, injection);
    else if (!stream->resetting[H2_CLIENT]) h2_relay_unbound(relay, stream, status);
    h2_relay_pump(relay);
}

static void h2_relay_inject(struct h2_relay *relay, struct h2_stream *stream) {
    struct flow *flow = relay->flow;
    struct wire_slice method = h2_head_find(&stream->head, ":method"), path = h2_head_find(&stream->head, ":path");
    stream->wait = injection_start(flow->gate, intercept_host(flow), method.data, method.len, path.data, path.len,
                                   h2_relay_injected, stream);
    if (stream->wait) relay->injecting++;
    else h2_relay_unbound(relay, stream, -EBUSY);
}

// Requests that wait, as far as the log and the server have room for them.
static void h2_relay_begin(struct h2_relay *relay) {
    relay->waiting = false;
    LIST_FOREACH(&relay->bridge->streams, node) {
        struct h2_stream *stream = LIST_ENTRY(node, struct h2_stream, link);
        if (relay->flow->gate->paused) return; // h2_relay_resume comes back
        if (stream->state != H2_ASKED || stream->wait || stream->resetting[H2_CLIENT]) continue;
        if (!stream->allowed && !h2_relay_judge(relay, stream)) continue;
        if (h2_bridge_room(relay->bridge, relay->injecting)) h2_relay_inject(relay, stream);
    }
}

// ---- what the bridge tells, from inside its functions ----

static void h2_relay_asked(struct h2_stream *stream, void *data) {
    (void)stream;
    struct h2_relay *relay = data;
    relay->waiting = true;
}

static void h2_relay_closed(struct h2_stream *stream, void *data) {
    struct h2_relay *relay = data;
    if (!stream->wait) return;
    injection_cancel(TAKE_POINTER(stream->wait));
    relay->injecting--;
    relay->waiting = true;
}

static void h2_relay_wiped(struct injection *injection, void *data) {
    (void)data;
    injection_free(injection);
}

static void h2_relay_failed(struct h2_stream *stream, void *data) { h2_relay_unreachable(data, stream); }

static void h2_relay_room(void *data) {
    struct h2_relay *relay = data;
    relay->waiting = true;
}

static const struct h2_handlers h2_relay_handlers = {
    h2_relay_asked, h2_relay_closed, h2_relay_wiped, h2_relay_failed, h2_relay_room,
};

// ---- bytes ----

// What a side has sent, as far as it is wanted now. Whether there was any.
static bool h2_relay_take(struct h2_relay *relay, enum h2_side side) {
    if (!relay->ends[side] || !h2_bridge_wants(relay->bridge, side)) return false;
    struct evbuffer *input = stream_input(relay->ends[side]);
    size_t len = evbuffer_get_contiguous_space(input);
    if (len > H2_RELAY_PIECE) len = H2_RELAY_PIECE;
    if (len == 0) return false;
    // The bridge never holds on to the bytes.
    h2_bridge_receive(relay->bridge, side, evbuffer_pullup(input, (ev_ssize_t)len), len, clock_us());
    evbuffer_drain(input, len);
    relay->flow->relay.bytes[side == H2_CLIENT ? RELAY_SANDBOX : RELAY_UPSTREAM] += len;
    return true;
}

static void h2_relay_secret_sent(void *data) {
    struct h2_relay *relay = data;
    relay->secret_out = false;
    h2_bridge_sent(relay->bridge, H2_SERVER);
    if (!relay->dead && !relay->pumping) event_active(relay->wake, EV_TIMEOUT, 0);
}

// What is to be said to a side, as far as it takes it. Whether there was any.
static bool h2_relay_give(struct h2_relay *relay, enum h2_side side) {
    struct stream *end = relay->ends[side];
    bool any = false;
    while (end && !(side == H2_SERVER && relay->secret_out) &&
           evbuffer_get_length(stream_output(end)) < H2_RELAY_WATERMARK) {
        const uint8_t *bytes;
        bool secret, good;
        ssize_t len = h2_bridge_send(relay->bridge, side, &bytes, &secret);
        if (len <= 0) break;
        if (secret) {
            relay->secret_out = true;
            good = stream_push_secret(end, bytes, (size_t)len, h2_relay_secret_sent, relay);
        } else {
            good = evbuffer_add(stream_output(end), bytes, (size_t)len) == 0;
        }
        if (!good) relay->bridge->broken = true;
        any = true;
    }
    if (any && !stream_push(end)) relay->bridge->broken = true;
    return any;
}

static void h2_relay_balance(struct h2_relay *relay) {
    for (enum h2_side side = H2_CLIENT; side < H2_SIDES; side++) {
        bool wanted = h2_bridge_wants(relay->bridge, side);
        if (relay->ends[side] && !stream_read(relay->ends[side], wanted)) relay->bridge->broken = true;
    }
}

static bool h2_relay_deadline(struct h2_relay *relay, long seconds) {
    struct timeval after = {.tv_sec = seconds};
    return event_add(relay->tick, &after) == 0;
}

// All was said: the client closes, or is closed, once it has read it.
static void h2_relay_finish(struct h2_relay *relay) {
    struct stream *client = relay->ends[H2_CLIENT];
    bool left = evbuffer_get_length(stream_output(client)) > 0;
    if (relay->shutting) return;
    if (relay->bridge->broken || relay->client_failed) {
        flow_end(relay->flow, true);
    } else if (relay->bridge->half_closed) {
        if (!left) flow_end(relay->flow, false); // else h2_relay_written comes back
    } else {
        relay->shutting = stream_shut(client) && stream_read(client, true) &&
                          h2_relay_deadline(relay, GATE_LINGER_MS / 1000);
        if (!relay->shutting) flow_end(relay->flow, true);
    }
}

// The end of a side, once all that came before it was taken.
static bool h2_relay_end(struct h2_relay *relay, enum h2_side side) {
    if (!relay->ended[side]) return false;
    bool left = evbuffer_get_length(stream_input(relay->ends[side])) > 0;
    if (left && !relay->bridge->over[side] && !relay->client_failed) return false;
    relay->ended[side] = false;
    h2_bridge_ended(relay->bridge, side, relay->orderly[side]);
    return true;
}

static void h2_relay_pump(struct h2_relay *relay) {
    bool any = !relay->shutting;
    relay->pumping = true;
    while (any && !relay->bridge->broken) {
        any = false;
        for (enum h2_side side = H2_CLIENT; side < H2_SIDES; side++)
            any |= h2_relay_take(relay, side) || h2_relay_end(relay, side);
        if (relay->waiting) h2_relay_begin(relay);
        for (enum h2_side side = H2_CLIENT; side < H2_SIDES; side++) any |= h2_relay_give(relay, side);
    }
    relay->pumping = false;
    if (!h2_bridge_done(relay->bridge)) h2_relay_balance(relay);
    if (h2_bridge_done(relay->bridge)) h2_relay_finish(relay);
}

// ---- events ----

static enum h2_side h2_relay_side(const struct h2_relay *relay, const struct stream *stream) {
    return stream == relay->ends[H2_CLIENT] ? H2_CLIENT : H2_SERVER;
}

static void h2_relay_readable(struct stream *stream, void *data) {
    struct h2_relay *relay = data;
    struct evbuffer *input = stream_input(stream);
    if (!relay->shutting) h2_relay_pump(relay);
    else evbuffer_drain(input, evbuffer_get_length(input)); // nobody will read it
}

static void h2_relay_written(struct stream *stream, void *data) {
    (void)stream;
    h2_relay_pump(data);
}

static void h2_relay_ended(struct stream *stream, int error, void *data) {
    struct h2_relay *relay = data;
    enum h2_side side = h2_relay_side(relay, stream);
    if (relay->shutting && side == H2_CLIENT) {
        flow_end(relay->flow, error < 0);
        return;
    }
    if (side == H2_CLIENT) intercept_client_left(relay->flow);
    if (error == -EDQUOT) limit_spent(relay->flow);
    relay->client_failed |= side == H2_CLIENT && error < 0;
    relay->ended[side] = true;
    relay->orderly[side] = error == 0;
    h2_relay_pump(relay);
}

static const struct stream_handlers h2_relay_stream_handlers = {h2_relay_readable, h2_relay_written, h2_relay_ended};

static void h2_relay_ticks(evutil_socket_t fd, short what, void *data) {
    (void)fd;
    (void)what;
    struct h2_relay *relay = data;
    uint64_t now_us = clock_us();
    if (relay->shutting) {
        flow_end(relay->flow, false);
        return;
    }
    h2_bridge_tick(relay->bridge, now_us);
    if (relay->bridge->stream_count > 0) relay->busy_us = now_us;
    uint64_t idle_us = now_us - relay->busy_us, longest_us = GATE_HTTP_IDLE_MS * UINT64_C(1000);
    if (idle_us > longest_us) h2_bridge_shut(relay->bridge, NGHTTP2_NO_ERROR); // as any server does
    if (idle_us > longest_us + H2_HEAD_US || !h2_relay_deadline(relay, H2_RELAY_TICK_S)) flow_end(relay->flow, true);
    else h2_relay_pump(relay);
}

static void h2_relay_bury(struct h2_relay *relay) {
    h2_bridge_free(relay->bridge);
    if (relay->tick) event_free(relay->tick);
    event_free(relay->wake);
    free(relay);
}

static void h2_relay_woken(evutil_socket_t fd, short what, void *data) {
    (void)fd;
    (void)what;
    struct h2_relay *relay = data;
    if (relay->dead) h2_relay_bury(relay);
    else h2_relay_pump(relay);
}

// ---- the flow's side ----

// Callers up the stack may still look at `dead` or at the bridge, so the memory goes at the end of the loop turn.
void h2_relay_free(struct h2_relay *relay, bool reset) {
    if (!relay) return;
    relay->dead = true;
    if (relay->bridge)
        LIST_FOREACH(&relay->bridge->streams, node) h2_relay_closed(LIST_ENTRY(node, struct h2_stream, link), relay);
    for (enum h2_side side = H2_CLIENT; side < H2_SIDES; side++) stream_free(TAKE_POINTER(relay->ends[side]), reset);
    if (relay->tick) event_del(relay->tick);
    event_active(relay->wake, EV_TIMEOUT, 0);
}

void h2_relay_resume(struct flow *flow) {
    flow->h2->waiting = true;
    event_active(flow->h2->wake, EV_TIMEOUT, 0);
}

static bool h2_relay_open(struct h2_relay *relay) {
    struct flow *flow = relay->flow;
    uint64_t now_us = relay->busy_us = clock_us();
    relay->ends[H2_CLIENT] = intercept_take_client(flow);
    relay->ends[H2_SERVER] = intercept_take_upstream(flow);
    struct h2_budget *budget = &flow->gate->h2_budget;
    budget->max = H2_BUDGET_BASE + (size_t)flow->gate->facts.max_connections * H2_BUDGET_CONNECTION;
    relay->bridge = h2_bridge_new(&h2_relay_handlers, relay, relay->ends[H2_SERVER] != NULL,
                                  flow->gate->flow_count > H2_RELAY_FEW, budget, now_us);
    if (!relay->bridge) return false;
    relay->tick = evtimer_new(flow->gate->base, h2_relay_ticks, relay);
    if (!relay->tick || !h2_relay_deadline(relay, H2_RELAY_TICK_S)) return false;
    for (enum h2_side side = H2_CLIENT; side < H2_SIDES; side++)
        if (relay->ends[side]) stream_handle(relay->ends[side], &h2_relay_stream_handlers, relay);
    return true;
}

void h2_relay_start(struct flow *flow) {
    struct h2_relay *relay = NEW(struct h2_relay);
    if (relay) relay->wake = event_new(flow->gate->base, -1, 0, h2_relay_woken, relay);
    if (!relay || !relay->wake) {
        free(relay);
        flow_end(flow, true);
        return;
    }
    relay->flow = flow;
    flow->h2 = relay;
    flow->state = FLOW_HTTP;
    if (h2_relay_open(relay)) h2_relay_pump(relay);
    else flow_end(flow, true);
}
