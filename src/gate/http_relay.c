// SPDX-License-Identifier: Apache-2.0
// HTTP/1, relayed request by request; each is judged before a byte of it goes upstream (RFC 9110, RFC 9112). Plain, and
// inside TLS that the gate opened (intercept.h).
//
// One request at a time: the next head is not even parsed before the response to this one has gone back whole, so what
// a client pipelines waits in its socket. A request for another host than the last one's gets another upstream
// connection. Heads pass through as they came, but for Proxy-Connection and the absolute form, which becomes the origin
// form without what is meant for a proxy. At a door each request must have the absolute form, whose host and port are
// its destination, or be a CONNECT, with which the door takes over again. Bodies are streamed with back-pressure, never
// held whole. After a 101 that the client asked for, the rest is a raw relay.
//
// A server may answer before it has the whole body: the body goes on to it all the same, for the connection can be used
// again only behind it. What the server says meanwhile nobody asked for, and it ends the connection.
//
// In opened TLS there is one host and one server. Each request must name that host (else 421), is judged again, and
// gets the credentials that are bound to it, if any; nothing else is read while they are asked for. One that cannot be
// had fails the request. When the server's connection ends, so does the client's.
//
// States of a request: HEAD (reading the client's head) -> CONNECTING (resolving, dialling) or INJECTING (credentials)
// -> EXCHANGE (body one way, response the other) -> HEAD again, TUNNEL (after a 101 in opened TLS), LEAVING (a CONNECT
// to the door waits until the last response has gone out), ENDING (the rest of the output goes out), then DRAINING (in
// opened TLS; else refusal_linger: the client reads it before the connection is closed).
#include "gate/http_relay.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "gate/intercept.h"

static void http_relay_woken(evutil_socket_t fd, short what, void *data) {
    (void)fd;
    (void)what;
    struct http_relay *http = data;
    if (http->dead) {
        event_free(http->wake);
        free(http);
        return;
    }
    if (http->state != HTTP_RELAY_HEAD) return;
    http_request_next(http);
    if (!http->dead) http_relay_balance(http);
}

// Callers up the stack may still look at `dead`, so the memory goes at the end of the loop turn.
void http_relay_free(struct http_relay *http, bool reset) {
    if (!http) return;
    stream_free(http->client, reset);
    stream_free(http->server, reset);
    if (http->connector) connector_cancel(http->connector);
    if (http->wait) injection_cancel(http->wait);
    http_scrub_free(http->scrub);
    if (http->outgoing) evbuffer_free(http->outgoing);
    http->dead = true;
    event_active(http->wake, EV_TIMEOUT, 0);
}

void http_relay_carry(struct http_relay *http) {
    for (int side = RELAY_SANDBOX; side <= RELAY_UPSTREAM; side++) {
        http->flow->relay.bytes[side] += http->bytes[side];
        http->bytes[side] = 0;
    }
}

struct policy_request http_relay_request(const struct http_relay *http) {
    const struct flow *flow = http->flow;
    const char *dialled = http->opened ? intercept_host(flow) : flow->dialled;
    return (struct policy_request){
        .protocol = POLICY_TCP,
        .app = http->opened ? POLICY_APP_TLS : POLICY_APP_HTTP,
        .dialled = dialled,
        .claimed = http->host[0] ? http->host : NULL,
        .claimed_address = http->host_address.family != ADDR_NONE ? &http->host_address : NULL,
        .address = dialled && !addr_is_loopback(&flow->destination) ? NULL : &flow->destination,
        .port = flow->port,
    };
}

struct policy_request http_relay_reached(const struct http_relay *http) {
    struct policy_request request = http_relay_request(http);
    if (!http->server) return request;
    request.address = &http->flow->peer;
    if (http->server_name[0]) request.dialled = http->server_name;
    return request;
}

struct policy_decision http_relay_rejudge(const struct flow *flow) {
    struct policy_request request = http_relay_reached(flow->http);
    struct policy_decision decision = policy_decide(flow->gate->policy, &request);
    if (flow->http->opened && !policy_name_bound(flow->gate->policy, request.dialled)) decision.verdict = POLICY_DENY;
    return decision;
}

// ---- the end ----

// In opened TLS: close_notify, and then the client's bytes are thrown away until it has closed or a deadline, as
// refusal_linger does it with a socket.
static void http_relay_drain(struct http_relay *http) {
    struct flow *flow = http->flow;
    http->state = HTTP_RELAY_DRAINING;
    flow->state = FLOW_LINGERING;
    stream_free(TAKE_POINTER(http->server), true);
    bool ready = flow_need_opening(flow) && stream_shut(http->client) && flow_deadline(flow, GATE_LINGER_MS);
    struct evbuffer *input = stream_input(http->client);
    evbuffer_drain(input, evbuffer_get_length(input));
    if (!ready || !stream_read(http->client, true)) flow_end(flow, true);
}

void http_relay_finish(struct http_relay *http) {
    http->state = HTTP_RELAY_ENDING;
    bool good = stream_read(http->client, false) && (!http->server || stream_read(http->server, false));
    if (!good || !stream_push(http->client)) {
        flow_end(http->flow, true);
        return;
    }
    if (evbuffer_get_length(stream_output(http->client)) > 0) return; // http_relay_written comes back
    if (stream_is_tls(http->client)) {
        http_relay_drain(http);
        return;
    }
    struct flow *flow = http->flow;
    flow->fd = stream_take_fd(TAKE_POINTER(http->client));
    http_relay_carry(http);
    flow->http = NULL;
    http_relay_free(http, false);
    refusal_linger(flow, "", 0);
}

// why: NULL if the policy says what there is to say.
static void http_relay_answer(struct http_relay *http, const struct policy_request *request,
                              const struct policy_decision *decision, const char *why) {
    char *text = http->response_headed ? NULL : refusal_http_text(http->flow->gate, request, decision, why);
    if (!text) {
        flow_end(http->flow, true);
        return;
    }
    bool whole = evbuffer_add(stream_output(http->client), text, strlen(text)) == 0;
    free(text);
    if (whole) http_relay_finish(http);
    else flow_end(http->flow, true);
}

// The log has it, though nobody can be answered.
static void http_relay_judged(const struct http_relay *http, enum policy_reason reason) {
    struct policy_request request = http_relay_request(http);
    const struct policy_decision decision = {.verdict = POLICY_DENY, .reason = reason, .rule = POLICY_RULE_NONE};
    flow_judged(http->flow, &request, &decision);
}

void http_relay_refuse_at(struct http_relay *http, const struct addr *address, struct policy_decision decision) {
    struct policy_request request = http_relay_request(http);
    if (address) request.address = address;
    flow_judged(http->flow, &request, &decision);
    http_relay_answer(http, &request, &decision, NULL);
}

void http_relay_refuse(struct http_relay *http, struct policy_decision decision) {
    http_relay_refuse_at(http, NULL, decision);
}

void http_relay_refuse_reason(struct http_relay *http, enum policy_reason reason) {
    http_relay_refuse(http, (struct policy_decision){.verdict = POLICY_DENY, .reason = reason, .rule = POLICY_RULE_NONE});
}

void http_relay_unbound(struct http_relay *http, int status) {
    char why[INJECTION_WHY_SIZE];
    struct policy_request request = http_relay_request(http);
    struct policy_decision decision = {.verdict = POLICY_DENY, .reason = POLICY_BINDING_FAILED, .rule = POLICY_RULE_NONE};
    const struct journal_note note = {.hint = injection_why(status, why)};
    flow_noted(http->flow, &request, &decision, &note);
    http_relay_answer(http, &request, &decision, why);
}

void http_relay_unreachable(struct http_relay *http) {
    struct policy_request request = http_relay_request(http);
    const char *why = http->opened ? intercept_why(http->flow) : NULL;
    struct policy_decision decision = flow_unreachable(http->flow, &request, why);
    http_relay_answer(http, &request, &decision, why);
}

void http_relay_drop_server(struct http_relay *http) {
    stream_free(TAKE_POINTER(http->server), false);
    // Before the first request it refuses us (with TLS 1.3, for want of a client's certificate): the request is told
    // so.
    if (http->opened && http->state == HTTP_RELAY_HEAD && http->flow->counted) http_relay_finish(http);
}

bool http_relay_give_back(struct http_relay *http) {
    struct flow *flow = http->flow;
    struct evbuffer *first = stream_input(http->client);
    size_t len = evbuffer_get_length(first);
    uint8_t *bytes = flow_need_opening(flow) ? malloc(len + 1) : NULL;
    if (!bytes) return false;
    struct opening *opening = flow->opening;
    evbuffer_remove(first, bytes, len);
    opening->bytes = bytes;
    opening->len = len;
    opening->size = len + 1;
    flow->fd = stream_take_fd(TAKE_POINTER(http->client));
    http_relay_carry(http);
    flow->http = NULL;
    http_relay_free(http, false);
    return true;
}

void http_relay_to_door(struct http_relay *http) {
    struct flow *flow = http->flow;
    http->state = HTTP_RELAY_LEAVING;
    if (!stream_push(http->client)) {
        flow_end(flow, true);
        return;
    }
    if (evbuffer_get_length(stream_output(http->client)) > 0) return; // http_relay_written comes back
    if (http_relay_give_back(http)) door_start(flow);
    else flow_end(flow, true);
}

// ---- flow control ----

// False: out of memory.
static bool http_relay_watch(struct stream *from, struct stream *to, bool wanted) {
    bool room = !to || evbuffer_get_length(stream_output(to)) < HTTP_WATERMARK;
    return stream_read(from, wanted && room);
}

void http_relay_balance(struct http_relay *http) {
    bool good = stream_push(http->client) && (!http->server || stream_push(http->server));
    if (good && http->state < HTTP_RELAY_TUNNEL) {
        bool reads_head = http->state == HTTP_RELAY_HEAD;
        bool reads = reads_head || (http->state == HTTP_RELAY_EXCHANGE && !http->request_done);
        good = http_relay_watch(http->client, reads_head ? NULL : http->server, !http->client_eof && reads) &&
               (!http->server || http_relay_watch(http->server, http->client, !http->server_eof));
    }
    if (!good) flow_end(http->flow, true);
}

// ---- events of both connections ----

static void http_relay_read(struct stream *side, void *data) {
    struct http_relay *http = data;
    switch (http->state) {
    case HTTP_RELAY_DRAINING:
        evbuffer_drain(stream_input(side), evbuffer_get_length(stream_input(side)));
        return;
    case HTTP_RELAY_ENDING: // what comes now must not cut off what still goes out
    case HTTP_RELAY_LEAVING:
        return;
    case HTTP_RELAY_TUNNEL:
        http_tunnel_moved(http, side);
        return;
    case HTTP_RELAY_HEAD:
    case HTTP_RELAY_CONNECTING:
    case HTTP_RELAY_INJECTING:
    case HTTP_RELAY_EXCHANGE:
        break;
    }
    if (side == http->server) http_response_read(http);
    else if (http->state == HTTP_RELAY_HEAD) http_request_next(http);
    else if (http->state == HTTP_RELAY_EXCHANGE) http_request_body(http, stream_output(http->server));
    if (!http->dead) http_relay_balance(http);
}

static void http_relay_written(struct stream *side, void *data) {
    struct http_relay *http = data;
    if (http->state == HTTP_RELAY_TUNNEL) http_tunnel_written(http);
    else if (http->state == HTTP_RELAY_ENDING && side == http->client) http_relay_finish(http);
    else if (http->state == HTTP_RELAY_LEAVING && side == http->client) http_relay_to_door(http);
    else if (http->state < HTTP_RELAY_TUNNEL) http_relay_balance(http);
}

static void http_relay_server_ended(struct http_relay *http, int error) {
    if (http->state != HTTP_RELAY_EXCHANGE) { // an idle upstream connection was closed: the next request gets a new one
        http_relay_drop_server(http);
    } else if (http->answered) { // the rest of the body has nowhere to go
        http_relay_finish(http);
    } else if (error < 0 && http->response_headed) {
        flow_end(http->flow, true); // a reset is no end of a body
    } else {
        http->server_eof = true;
        http_response_read(http);
    }
    if (!http->dead) http_relay_balance(http);
}

static void http_relay_client_ended(struct http_relay *http) {
    http->client_eof = true;
    if (http->state == HTTP_RELAY_HEAD) http_relay_finish(http);
    else if (http->state == HTTP_RELAY_EXCHANGE && !http->request_done)
        http_request_body(http, stream_output(http->server));
    if (!http->dead) http_relay_balance(http);
}

static void http_relay_ended(struct stream *side, int error, void *data) {
    struct http_relay *http = data;
    if (http->opened && side == http->client) intercept_client_left(http->flow);
    if (error == -ETIMEDOUT && side == http->client && http->state == HTTP_RELAY_HEAD && http->head_begun_us)
        http_relay_judged(http, POLICY_BAD_REQUEST); // it has begun to say something, and that is all
    bool failed = (error < 0 && (side == http->client || http->state == HTTP_RELAY_TUNNEL)) || error == -ETIMEDOUT;
    if (error == -EDQUOT) {
        limit_spent(http->flow);
        flow_end(http->flow, true);
    } else if (failed) {
        // An idle connection ends as any server would end it.
        flow_end(http->flow, http->state != HTTP_RELAY_HEAD && http->state != HTTP_RELAY_DRAINING);
    } else if (http->state == HTTP_RELAY_DRAINING) {
        flow_end(http->flow, false);
    } else if (http->state == HTTP_RELAY_TUNNEL) {
        *(side == http->client ? &http->client_eof : &http->server_eof) = true;
        http_tunnel_moved(http, side);
    } else if (http->state == HTTP_RELAY_ENDING || http->state == HTTP_RELAY_LEAVING) {
        return; // what is left to write goes out all the same
    } else if (side == http->client) {
        http_relay_client_ended(http);
    } else {
        http_relay_server_ended(http, error);
    }
}

// ---- start ----

static const struct stream_handlers http_relay_handlers = {http_relay_read, http_relay_written, http_relay_ended};

bool http_relay_take_server(struct http_relay *http, int fd) {
    stream_free(TAKE_POINTER(http->server), false);
    http->server = stream_new(http->flow->gate->base, fd, NULL, GATE_HTTP_IDLE_MS, &http_relay_handlers, http);
    if (!http->server) {
        close(fd);
        return false;
    }
    stream_meter(http->server, &http->flow->gate->meter, METER_IN);
    http->reused = false;
    return true;
}

void http_relay_resume(struct flow *flow) { event_active(flow->http->wake, EV_TIMEOUT, 0); }

// False: out of memory; what was not taken is still the flow's.
static bool http_relay_take_ends(struct http_relay *http) {
    struct flow *flow = http->flow;
    http->outgoing = evbuffer_new();
    if (!http->outgoing) return false;
    if (http->opened) {
        http->client = intercept_take_client(flow);
        http->server = intercept_take_upstream(flow);
        stream_handle(http->client, &http_relay_handlers, http);
        if (http->server) stream_handle(http->server, &http_relay_handlers, http);
        memccpy(http->host, intercept_host(flow), 0, sizeof(http->host));
        return true;
    }
    http->client = stream_new(flow->gate->base, flow->fd, NULL, GATE_HTTP_IDLE_MS, &http_relay_handlers, http);
    if (!http->client) return false;
    stream_meter(http->client, &flow->gate->meter, METER_OUT);
    flow->fd = -1;
    if (flow->upstream >= 0 && !http_relay_take_server(http, TAKE_FD(flow->upstream))) return false;
    return evbuffer_add(stream_input(http->client), flow->opening->bytes, flow->opening->len) == 0;
}

void http_relay_start(struct flow *flow) {
    struct http_relay *http = NEW(struct http_relay);
    if (http) http->wake = evtimer_new(flow->gate->base, http_relay_woken, http);
    if (!http || !http->wake) {
        free(http);
        flow_end(flow, true);
        return;
    }
    http->flow = flow;
    http->head_ms = HTTP_HEAD_MS;
    http->opened = flow->intercept != NULL;
    http->door = !http->opened && flow->door && flow->door->stage != DOOR_PASSED;
    flow->http = http;
    flow->state = FLOW_HTTP;
    bool good = http_relay_take_ends(http);
    flow_free_opening(flow);
    if (!good) {
        flow_end(flow, true);
        return;
    }
    event_active(http->wake, EV_TIMEOUT, 0);
    http_relay_balance(http);
}
