// SPDX-License-Identifier: Apache-2.0
// Plain HTTP/1, relayed request by request; each is judged before a byte of it goes upstream (RFC 9110, RFC 9112).
//
// One request at a time: the next head is not even parsed before the response to this one has gone back whole, so what
// a client pipelines waits in its socket. A request for another host than the last one's gets another upstream
// connection. Heads pass through as they came, but for Proxy-Connection and the absolute form, which becomes the origin
// form without what is meant for a proxy. At a door each request must have the absolute form, whose host and port are
// its destination, or be a CONNECT, with which the door takes over again. Bodies are streamed with back-pressure, never
// held whole. After a 101 that the client asked for, the rest is a raw relay.
//
// States of a request: HEAD (reading the client's head) -> CONNECTING (resolving, dialling) -> EXCHANGE (body one way,
// response the other) -> HEAD again, LEAVING (a CONNECT to the door waits until the last response has gone out), or the
// end of the connection.
#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "gate/state.h"

#define HTTP_HEAD_US 30000000 // from the first byte of a head to its last
#define HTTP_WATERMARK 262144 // bytes waiting towards one side before the other is read no further

enum http_relay_state {
    HTTP_RELAY_HEAD, HTTP_RELAY_CONNECTING, HTTP_RELAY_EXCHANGE, HTTP_RELAY_LEAVING, HTTP_RELAY_ENDING,
};

struct http_relay {
    struct flow *flow;
    struct bufferevent *client, *server;
    struct connector *connector;
    struct event *burial;     // there from its start, so that its end needs no memory
    struct http1 request, response;
    char host[NAME_SIZE];     // that this request names, "" if none or a literal
    struct addr host_address; // the literal that it names
    char server_name[NAME_SIZE]; // claimed name that `server` was dialled for; "": the destination itself
    struct evbuffer *outgoing; // head and first bytes of the body, until there is a connection
    char method[16];
    uint64_t bytes[2];
    uint64_t head_begun_us; // first byte of the head that is being read, 0: none
    enum http_relay_state state;
    bool request_done, response_headed, until_close, client_eof, server_eof, answer_begun;
    bool keep_alive, upgrade, reused, dead;
    bool door; // its client speaks to a proxy
};

static void http_relay_next(struct http_relay *http);

static void http_relay_bury(evutil_socket_t fd, short what, void *data) {
    (void)fd;
    (void)what;
    struct http_relay *http = data;
    event_free(http->burial);
    free(http);
}

// Takes the socket out of a buffer event, which is freed.
static int http_relay_take_fd(struct bufferevent **side) {
    int fd = bufferevent_getfd(*side);
    bufferevent_setfd(*side, -1);
    bufferevent_free(TAKE_POINTER(*side));
    return fd;
}

// Callers up the stack may still look at `dead`, so the memory goes at the end of the loop turn.
void http_relay_free(struct http_relay *http, bool reset) {
    if (!http) return;
    struct bufferevent **sides[] = {&http->client, &http->server};
    for (size_t i = 0; i < ARRAY_LENGTH(sides); i++) {
        if (*sides[i] && reset) relay_reset_fd(http_relay_take_fd(sides[i]));
        else if (*sides[i]) bufferevent_free(*sides[i]);
    }
    if (http->connector) connector_cancel(http->connector);
    if (http->outgoing) evbuffer_free(http->outgoing);
    http->dead = true;
    event_active(http->burial, EV_TIMEOUT, 0);
}

void http_relay_carry(struct http_relay *http) {
    for (int side = RELAY_SANDBOX; side <= RELAY_UPSTREAM; side++) {
        http->flow->carried[side] += http->bytes[side];
        http->bytes[side] = 0;
    }
}

static struct policy_request http_relay_request(const struct http_relay *http) {
    const struct flow *flow = http->flow;
    return (struct policy_request){
        .protocol = POLICY_TCP,
        .app = POLICY_APP_HTTP,
        .dialled = flow->dialled,
        .claimed = http->host[0] ? http->host : NULL,
        .claimed_address = http->host_address.family != ADDR_NONE ? &http->host_address : NULL,
        .address = flow->dialled && !addr_is_loopback(&flow->destination) ? NULL : &flow->destination,
        .port = flow->port,
    };
}

// The same once there is a connection: with what was really dialled, and the name that was resolved for it.
static struct policy_request http_relay_reached(const struct http_relay *http) {
    struct policy_request request = http_relay_request(http);
    if (!http->server) return request;
    request.address = &http->flow->peer;
    if (http->server_name[0]) request.dialled = http->server_name;
    return request;
}

bool http_relay_allowed(const struct flow *flow) {
    struct policy_request request = http_relay_reached(flow->http);
    return policy_decide(flow->gate->policy, &request).verdict == POLICY_ALLOW;
}

// ---- the end ----

// The connection ends once what is written has gone out.
static void http_relay_finish(struct http_relay *http) {
    http->state = HTTP_RELAY_ENDING;
    bufferevent_disable(http->client, EV_READ);
    if (http->server) bufferevent_disable(http->server, EV_READ);
    if (evbuffer_get_length(bufferevent_get_output(http->client)) > 0) return; // http_relay_written comes back
    struct flow *flow = http->flow;
    flow->fd = http_relay_take_fd(&http->client);
    http_relay_carry(http);
    flow->http = NULL;
    http_relay_free(http, false);
    refusal_linger(flow, "", 0);
}

static void http_relay_answer(struct http_relay *http, const struct policy_request *request,
                              const struct policy_decision *decision) {
    char *text = http->response_headed ? NULL : refusal_http_text(http->flow->gate, request, decision);
    if (!text) {
        flow_end(http->flow, true);
        return;
    }
    bool whole = evbuffer_add(bufferevent_get_output(http->client), text, strlen(text)) == 0;
    free(text);
    if (whole) http_relay_finish(http);
    else flow_end(http->flow, true);
}

static void http_relay_refuse_at(struct http_relay *http, const struct addr *address, struct policy_decision decision) {
    struct policy_request request = http_relay_request(http);
    if (address) request.address = address;
    flow_judged(http->flow, &request, &decision);
    http_relay_answer(http, &request, &decision);
}

static void http_relay_refuse(struct http_relay *http, struct policy_decision decision) {
    http_relay_refuse_at(http, NULL, decision);
}

// The policy allows it, but the server is not there or does not speak HTTP.
static void http_relay_unreachable(struct http_relay *http) {
    struct policy_request request = http_relay_request(http);
    struct policy_decision decision = flow_unreachable(http->flow, &request);
    http_relay_answer(http, &request, &decision);
}

static void http_relay_refuse_reason(struct http_relay *http, enum policy_reason reason) {
    http_relay_refuse(http, (struct policy_decision){.verdict = POLICY_DENY, .reason = reason, .rule = POLICY_RULE_NONE});
}

// ---- flow control ----

// libevent's own read watermark is of no use: where memory runs out while it is set, libevent writes to NULL.
// False: out of memory.
static bool http_relay_watch(struct bufferevent *from, struct bufferevent *to, bool wanted) {
    bool room = !to || evbuffer_get_length(bufferevent_get_output(to)) < HTTP_WATERMARK;
    room &= evbuffer_get_length(bufferevent_get_input(from)) < HTTP1_HEAD_MAX;
    return (wanted && room ? bufferevent_enable(from, EV_READ) : bufferevent_disable(from, EV_READ)) == 0;
}

// Sees to it that what waits is written, also where libevent had no memory for the callback that would do so.
static bool http_relay_push(struct bufferevent *side) {
    return !side || evbuffer_get_length(bufferevent_get_output(side)) == 0 || bufferevent_enable(side, EV_WRITE) == 0;
}

static void http_relay_balance(struct http_relay *http) {
    bool good = http_relay_push(http->client) && http_relay_push(http->server);
    if (good && http->state != HTTP_RELAY_ENDING) {
        bool reads_head = http->state == HTTP_RELAY_HEAD;
        bool reads = reads_head || (http->state == HTTP_RELAY_EXCHANGE && !http->request_done);
        good = http_relay_watch(http->client, reads_head ? NULL : http->server, !http->client_eof && reads) &&
               (!http->server || http_relay_watch(http->server, http->client, !http->server_eof));
    }
    if (!good) flow_end(http->flow, true);
}

// ---- bodies ----

// False: out of memory, of which libevent itself does not tell if it is for the last part.
static bool http_relay_move(struct evbuffer *from, struct evbuffer *to, size_t len) {
    size_t wanted = evbuffer_get_length(to) + len;
    return evbuffer_remove_buffer(from, to, len) == (int)len && evbuffer_get_length(to) == wanted;
}

// Moves what belongs to the message. WIRE_OK when it ended.
static enum wire_result http_relay_body(struct http1 *message, struct evbuffer *from, struct evbuffer *to,
                                        uint64_t *bytes) {
    for (;;) {
        size_t len = evbuffer_get_contiguous_space(from), used = 0;
        const uint8_t *data = len > 0 ? evbuffer_pullup(from, (ev_ssize_t)len) : (const uint8_t *)"";
        enum wire_result result = http1_body(message, data, len, &used);
        if (result == WIRE_BAD) return result;
        if (used > 0 && !http_relay_move(from, to, used)) return WIRE_BAD;
        *bytes += used;
        if (result == WIRE_OK || len == 0) return result;
    }
}

static void http_relay_request_body(struct http_relay *http, struct evbuffer *to) {
    if (http->request_done) return;
    enum wire_result result =
        http_relay_body(&http->request, bufferevent_get_input(http->client), to, &http->bytes[RELAY_SANDBOX]);
    http->request_done = result == WIRE_OK;
    if (result == WIRE_BAD) http_relay_refuse_reason(http, POLICY_BAD_REQUEST);
    else if (http->client_eof && !http->request_done) flow_end(http->flow, true);
}

// ---- response ----

// The client's socket and what was read from it go back to the flow, and the relay goes. False: out of memory.
static bool http_relay_give_back(struct http_relay *http) {
    struct flow *flow = http->flow;
    struct evbuffer *first = bufferevent_get_input(http->client);
    struct opening *opening = flow->opening = NEW(struct opening);
    size_t len = evbuffer_get_length(first);
    uint8_t *bytes = opening ? malloc(len + 1) : NULL;
    if (!bytes) return false;
    evbuffer_remove(first, bytes, len);
    opening->bytes = bytes;
    opening->len = len;
    opening->size = len + 1;
    flow->fd = http_relay_take_fd(&http->client);
    http_relay_carry(http);
    flow->http = NULL;
    http_relay_free(http, false);
    return true;
}

// The next request is a CONNECT, which is still there to be read.
static void http_relay_to_door(struct http_relay *http) {
    struct flow *flow = http->flow;
    http->state = HTTP_RELAY_LEAVING;
    if (evbuffer_get_length(bufferevent_get_output(http->client)) > 0) return; // http_relay_written comes back
    if (http_relay_give_back(http)) door_start(flow);
    else flow_end(flow, true);
}

static void http_relay_upgraded(struct http_relay *http) {
    struct flow *flow = http->flow;
    struct evbuffer *back = bufferevent_get_output(http->client);
    bool whole = evbuffer_add_buffer(back, bufferevent_get_input(http->server)) == 0;
    size_t back_len = evbuffer_get_length(back);
    AUTO_FREE uint8_t *back_bytes = malloc(back_len + 1);
    if (!whole || !back_bytes) {
        flow_end(flow, true);
        return;
    }
    evbuffer_unfreeze(back, 1); // libevent keeps the front of an output buffer for itself
    evbuffer_remove(back, back_bytes, back_len);
    int upstream = http_relay_take_fd(&http->server);
    bool given = http_relay_give_back(http);
    flow->upstream = upstream;
    if (given) flow_relay(flow, back_bytes, back_len);
    else flow_end(flow, true);
}

static void http_relay_answered(struct http_relay *http) {
    // What came behind the answer, nobody asked for: it must not be the answer to the next request.
    if (http->server && evbuffer_get_length(bufferevent_get_input(http->server)) > 0)
        bufferevent_free(TAKE_POINTER(http->server));
    if (http->request_done && http->keep_alive && !http->server_eof) {
        http->state = HTTP_RELAY_HEAD;
        http_relay_next(http);
    } else {
        http_relay_finish(http);
    }
}

// 1: a final response's head went to the client; 0: more bytes are needed; -1: the connection was dealt with.
static int http_relay_response_head(struct http_relay *http) {
    struct evbuffer *input = bufferevent_get_input(http->server);
    struct wire_slice method = {(const uint8_t *)http->method, strlen(http->method)};
    for (;;) {
        struct http1_head head;
        size_t len = evbuffer_get_length(input);
        if (len == 0) return 0;
        if (!http->answer_begun) http1_init(&http->response, HTTP1_RESPONSE, method);
        http->answer_begun = true;
        const uint8_t *bytes = evbuffer_pullup(input, -1);
        enum wire_result result = bytes ? http1_head(&http->response, bytes, len, &head) : WIRE_BAD; // no memory
        if (result == WIRE_MORE) return 0;
        bool unasked = result == WIRE_OK && head.status == 101 && !http->upgrade;
        if (result == WIRE_BAD || unasked) {
            http_relay_unreachable(http);
            return -1;
        }
        http->answer_begun = false;
        http->bytes[RELAY_UPSTREAM] += head.len;
        if (!http_relay_move(input, bufferevent_get_output(http->client), head.len)) {
            flow_end(http->flow, true);
            return -1;
        }
        if (head.status == 101) {
            http_relay_upgraded(http);
            return -1;
        }
        if (head.status < 200) continue; // 100, 103: another head follows
        http->keep_alive &= head.keep_alive && head.framing != HTTP1_BODY_UNTIL_CLOSE;
        http->until_close = head.framing == HTTP1_BODY_UNTIL_CLOSE;
        http->response_headed = true;
        return 1;
    }
}

static void http_relay_response(struct http_relay *http) {
    if (http->state != HTTP_RELAY_EXCHANGE) { // what nobody asked for must not be the answer to the next request
        if (evbuffer_get_length(bufferevent_get_input(http->server)) > 0) bufferevent_free(TAKE_POINTER(http->server));
        return;
    }
    if (!http->response_headed) {
        int headed = http_relay_response_head(http);
        if (headed < 0) return;
        if (headed == 0) {
            if (!http->server_eof) return;
            // A kept connection that the server closed just now: the client retries as it would without us.
            if (http->reused) flow_end(http->flow, false);
            else http_relay_unreachable(http);
            return;
        }
    }
    enum wire_result result = http_relay_body(&http->response, bufferevent_get_input(http->server),
                                              bufferevent_get_output(http->client), &http->bytes[RELAY_UPSTREAM]);
    if (result == WIRE_BAD) {
        flow_end(http->flow, true);
    } else if (result == WIRE_OK) {
        http_relay_answered(http);
    } else if (http->server_eof) {
        if (http->until_close) http_relay_finish(http);
        else flow_end(http->flow, true); // cut short: the client must not take it for whole
    }
}

// ---- events of both connections ----

// libevent reads 4 KiB at a time; what else is there already comes in one call more. False: the connection failed (an
// error is told only once, so it cannot be left to libevent).
static bool http_relay_fill(struct bufferevent *side) {
    struct evbuffer *input = bufferevent_get_input(side);
    struct evbuffer_iovec vector;
    if (!(bufferevent_get_enabled(side) & EV_READ) || evbuffer_get_length(input) >= HTTP1_HEAD_MAX) return true;
    evbuffer_unfreeze(input, 0);
    int count = evbuffer_reserve_space(input, HTTP1_HEAD_MAX, &vector, 1);
    ssize_t got = count == 1 ? recv(bufferevent_getfd(side), vector.iov_base, vector.iov_len, 0) : 0;
    bool failed = got < 0 && errno != EAGAIN && errno != EINTR;
    vector.iov_len = got > 0 ? (size_t)got : 0;
    if (got > 0) evbuffer_commit_space(input, &vector, 1);
    evbuffer_freeze(input, 0);
    return !failed;
}

static void http_relay_read(struct bufferevent *side, void *data) {
    struct http_relay *http = data;
    if (http->state == HTTP_RELAY_ENDING) return; // what comes now must not cut off what still goes out
    if (!http_relay_fill(side)) {
        flow_end(http->flow, true);
        return;
    }
    if (side == http->server) http_relay_response(http);
    else if (http->state == HTTP_RELAY_HEAD) http_relay_next(http);
    else if (http->state == HTTP_RELAY_EXCHANGE) http_relay_request_body(http, bufferevent_get_output(http->server));
    if (!http->dead) http_relay_balance(http);
}

static void http_relay_written(struct bufferevent *side, void *data) {
    struct http_relay *http = data;
    if (http->state == HTTP_RELAY_ENDING && side == http->client) http_relay_finish(http);
    else if (http->state == HTTP_RELAY_LEAVING && side == http->client) http_relay_to_door(http);
    else http_relay_balance(http);
}

static void http_relay_event(struct bufferevent *side, short what, void *data) {
    struct http_relay *http = data;
    bool end = what & BEV_EVENT_EOF;
    if ((!end && side == http->client) || (what & BEV_EVENT_TIMEOUT)) {
        flow_end(http->flow, http->state != HTTP_RELAY_HEAD); // an idle connection ends as any server would end it
    } else if (http->state == HTTP_RELAY_ENDING) {
        return; // what is left to write goes out all the same
    } else if (side == http->client) {
        http->client_eof = true;
        if (http->state == HTTP_RELAY_HEAD) http_relay_finish(http);
        else if (!http->request_done) http_relay_read(side, data);
    } else if (http->state == HTTP_RELAY_EXCHANGE) {
        http->server_eof = true;
        if (!end && http->response_headed) flow_end(http->flow, true); // a reset is no end of a body
        else http_relay_read(side, data);
    } else { // an idle upstream connection was closed: the next request gets a new one
        bufferevent_free(TAKE_POINTER(http->server));
    }
}

static struct bufferevent *http_relay_side(struct http_relay *http, int fd) {
    struct timeval idle = {.tv_sec = GATE_HTTP_IDLE_MS / 1000};
    struct bufferevent *side = bufferevent_socket_new(http->flow->gate->base, fd,
                                                      BEV_OPT_CLOSE_ON_FREE | BEV_OPT_DEFER_CALLBACKS);
    if (!side) return NULL;
    bufferevent_setcb(side, http_relay_read, http_relay_written, http_relay_event, http);
    bufferevent_set_timeouts(side, &idle, &idle);
    bufferevent_set_max_single_read(side, HTTP1_HEAD_MAX);
    bufferevent_set_max_single_write(side, HTTP_WATERMARK);
    if (bufferevent_enable(side, EV_WRITE) == 0) return side;
    http_relay_take_fd(&side); // still the caller's
    return NULL;
}

// ---- request ----

// The log has one line for each request: this one, or that of its refusal.
static void http_relay_send(struct http_relay *http) {
    struct policy_request request = http_relay_reached(http);
    struct policy_decision decision = policy_decide(http->flow->gate->policy, &request);
    flow_judged(http->flow, &request, &decision);
    http->state = HTTP_RELAY_EXCHANGE;
    http->server_eof = http->answer_begun = false;
    if (evbuffer_add_buffer(bufferevent_get_output(http->server), http->outgoing) < 0) flow_end(http->flow, true);
    else http_relay_request_body(http, bufferevent_get_output(http->server));
}

static bool http_relay_take_server(struct http_relay *http, int fd) {
    if (http->server) bufferevent_free(TAKE_POINTER(http->server));
    http->server = http_relay_side(http, fd);
    if (!http->server) {
        close(fd);
        return false;
    }
    http->reused = false;
    return true;
}

static void http_relay_connected(int fd, const struct addr *peer, const struct policy_decision *denied, void *data) {
    struct http_relay *http = data;
    http->connector = NULL;
    if (fd < 0) {
        struct policy_decision own = {.verdict = POLICY_DENY, .reason = POLICY_NODE_OWN_ADDRESS, .rule = POLICY_RULE_NONE};
        if (!denied && fd == -EACCES) denied = &own; // the dial found itself on this host
        if (denied) http_relay_refuse_at(http, peer, *denied);
        else http_relay_unreachable(http);
    } else {
        http->flow->peer = *peer;
        if (!http_relay_take_server(http, fd)) flow_end(http->flow, true);
        else if (!http_relay_allowed(http->flow)) http_relay_refuse_reason(http, POLICY_POLICY_CHANGED);
        else http_relay_send(http);
    }
    if (!http->dead) http_relay_balance(http);
}

// Fields for a proxy. What else begins like this is one only in a request in the form that proxies get.
static bool http_relay_for_proxy(const struct wire_slice *name, const struct http1_head *head) {
    static const char field[] = "proxy-connection";
    size_t len = head->form == HTTP1_FORM_ABSOLUTE ? strlen("proxy-") : strlen(field);
    bool fits = head->form == HTTP1_FORM_ABSOLUTE ? name->len >= len : name->len == len;
    return fits && strncasecmp((const char *)name->data, field, len) == 0;
}

// The request line and the fields, with the absolute form turned into the origin form (RFC 9112 3.2.2) and without what
// is for a proxy; everything else byte for byte. False: out of memory, and what was written is not the request.
static bool http_relay_write_head(struct evbuffer *out, const uint8_t *bytes, const struct http1_head *head) {
    bool plain = head->form != HTTP1_FORM_ABSOLUTE;
    for (size_t i = 0; plain && i < head->header_count; i++) plain = !http_relay_for_proxy(&head->headers[i].name, head);
    if (plain) return evbuffer_add(out, bytes, head->len) == 0;
    bool good = evbuffer_add(out, head->method.data, head->method.len) == 0;
    good &= 0 < evbuffer_add_printf(out, " %.*s HTTP/1.%u\r\n", (int)head->path.len, (const char *)head->path.data,
                                    head->minor_version);
    if (head->form == HTTP1_FORM_ABSOLUTE) {
        good &= 0 < evbuffer_add_printf(out, "Host: %.*s\r\n", (int)head->authority.len, (const char *)head->authority.data);
    }
    for (size_t i = 0; i < head->header_count; i++) {
        const struct http1_header *header = &head->headers[i];
        bool host = header->name.len == 4 && strncasecmp((const char *)header->name.data, "host", 4) == 0;
        if (http_relay_for_proxy(&header->name, head) || (host && head->form == HTTP1_FORM_ABSOLUTE)) continue;
        good &= evbuffer_add(out, header->name.data, header->name.len) == 0;
        good &= evbuffer_add(out, ": ", 2) == 0;
        good &= evbuffer_add(out, header->value.data, header->value.len) == 0;
        good &= evbuffer_add(out, "\r\n", 2) == 0;
    }
    good &= evbuffer_add(out, "\r\n", 2) == 0;
    return good;
}

// The destination of a request to a door: its own, whatever came before. False: the request was refused.
static bool http_relay_aim(struct http_relay *http, const struct name_host *target, uint16_t port) {
    struct flow *flow = http->flow;
    struct policy_decision denial;
    if (!door_aims_at(flow, target, port) && http->server) bufferevent_free(TAKE_POINTER(http->server));
    if (door_aim(flow, target, port, &denial)) return true;
    http_relay_refuse(http, denial);
    return false;
}

// The one host that a request names, and its port or 0. -EINVAL: none that is well-formed, or two that differ.
static int http_relay_host(struct http_relay *http, const struct http1_head *head, struct name_host *ret_host,
                           uint16_t *ret_port) {
    struct name_host host = {0}, target;
    uint16_t port = 0, target_port = 0;
    http->host[0] = 0;
    http->host_address = (struct addr){0};
    if (head->has_host && head->host.len > 0 &&
        name_authority_from_wire(head->host.data, head->host.len, &host, &port) < 0) {
        return -EINVAL;
    }
    bool named = head->has_host && head->host.len > 0;
    if (head->form == HTTP1_FORM_ABSOLUTE) {
        if (name_authority_from_wire(head->authority.data, head->authority.len, &target, &target_port) < 0) return -EINVAL;
        if (named && (host.is_address != target.is_address || !addr_equal(&host.address, &target.address) ||
                      strcmp(host.name, target.name) != 0)) {
            return -EINVAL;
        }
        if (http->door && port != 0 && port != (target_port ? target_port : 80)) return -EINVAL;
        host = target;
        port = target_port;
        named = true;
    }
    if (!http->door && port != 0 && port != http->flow->port) return -EINVAL;
    if (!named && head->minor_version != 0) return -EINVAL; // RFC 9112 3.2: a 400 for HTTP/1.1
    if (host.is_address) http->host_address = host.address;
    else memcpy(http->host, host.name, sizeof(http->host));
    *ret_host = host;
    *ret_port = port;
    return 0;
}

static void http_relay_connect(struct http_relay *http, const struct policy_decision *decision) {
    struct flow *flow = http->flow;
    const char *claimed = flow->dialled ? NULL : decision->name; // NULL: the destination itself
    bool kept = http->server && strcmp(http->server_name, claimed ? claimed : "") == 0;
    if (kept && http_relay_allowed(flow)) {
        http_relay_send(http);
        http->reused = true;
        return;
    }
    if (http->server) bufferevent_free(TAKE_POINTER(http->server));
    struct policy_request request = http_relay_request(http);
    snprintf(http->server_name, sizeof(http->server_name), "%s", claimed ? claimed : "");
    flow->resolved = claimed != NULL;
    const char *name = claimed || request.address ? claimed : flow->dialled;
    http->state = HTTP_RELAY_CONNECTING;
    http->connector = connector_start(flow->gate, &request, name, flow->destination.family, http_relay_connected, http);
    if (!http->connector) http_relay_refuse_reason(http, POLICY_LIMIT_EXCEEDED);
}

static void http_relay_judge(struct http_relay *http, const uint8_t *bytes, const struct http1_head *head) {
    struct name_host host;
    uint16_t port;
    http->head_begun_us = 0;
    if (http->door && head->form == HTTP1_FORM_AUTHORITY) {
        http_relay_to_door(http);
        return;
    }
    bool form_fits = http->door ? head->form == HTTP1_FORM_ABSOLUTE : head->form != HTTP1_FORM_AUTHORITY;
    bool wellformed = form_fits && !head->absolute_https && head->method.len < sizeof(http->method);
    if (!wellformed || http_relay_host(http, head, &host, &port) < 0) {
        if (http->door) door_lose_aim(http->flow); // it is not what the request before asked for
        http_relay_refuse_reason(http, POLICY_BAD_REQUEST);
        return;
    }
    if (http->door && !http_relay_aim(http, &host, port ? port : 80)) return;
    struct policy_request request = http_relay_request(http);
    struct policy_decision decision = policy_decide(http->flow->gate->policy, &request);
    if (decision.verdict != POLICY_ALLOW) {
        http_relay_refuse(http, decision);
        return;
    }
    if (head->upgrade_h2c) {
        http_relay_refuse_reason(http, POLICY_PROTOCOL_DENIED);
        return;
    }
    memcpy(http->method, head->method.data, head->method.len);
    http->method[head->method.len] = 0;
    if (!http_relay_write_head(http->outgoing, bytes, head)) {
        flow_end(http->flow, true);
        return;
    }
    http->bytes[RELAY_SANDBOX] += evbuffer_get_length(http->outgoing);
    http->keep_alive = head->keep_alive;
    http->upgrade = head->upgrade_websocket || head->upgrade_other;
    evbuffer_drain(bufferevent_get_input(http->client), head->len);
    // What has come of the body is read now, so that framing which is wrong from the start reaches nobody.
    http_relay_request_body(http, http->outgoing);
    if (http->dead || http->state == HTTP_RELAY_ENDING) return;
    free(TAKE_POINTER(http->flow->name)); // the flow is the latest request's
    bool named = !http->flow->dialled && http->host[0];
    if (named && !(http->flow->name = strdup(http->host))) flow_end(http->flow, true);
    else http_relay_connect(http, &decision);
}

// The next head, if it is there.
static void http_relay_next(struct http_relay *http) {
    struct evbuffer *input = bufferevent_get_input(http->client);
    size_t len = evbuffer_get_length(input);
    if (http->flow->gate->paused) return; // http_relay_resume comes back
    http->request_done = http->response_headed = false;
    if (http->client_eof && len == 0) {
        http_relay_finish(http);
        return;
    }
    if (len == 0) return;
    uint64_t now = clock_us();
    if (!http->head_begun_us) { // once a head: the parser goes on where it was
        http->head_begun_us = now;
        http1_init(&http->request, HTTP1_REQUEST, (struct wire_slice){0});
    }
    struct http1_head head;
    const uint8_t *bytes = evbuffer_pullup(input, -1);
    if (!bytes) {
        flow_end(http->flow, true);
        return;
    }
    enum wire_result result = http1_head(&http->request, bytes, len, &head);
    if (result == WIRE_OK) http_relay_judge(http, bytes, &head);
    else if (result == WIRE_BAD || len >= HTTP1_HEAD_MAX || now - http->head_begun_us > HTTP_HEAD_US)
        http_relay_refuse_reason(http, POLICY_BAD_REQUEST);
    else if (http->client_eof) http_relay_finish(http);
}

void http_relay_resume(struct flow *flow) {
    if (flow->http->state == HTTP_RELAY_HEAD) bufferevent_trigger(flow->http->client, EV_READ, 0);
}

void http_relay_start(struct flow *flow) {
    struct http_relay *http = NEW(struct http_relay);
    if (http) http->burial = evtimer_new(flow->gate->base, http_relay_bury, http);
    if (!http || !http->burial) {
        free(http);
        flow_end(flow, true);
        return;
    }
    http->flow = flow;
    http->door = flow->door && flow->door->stage != DOOR_PASSED;
    flow->http = http;
    flow->state = FLOW_HTTP;
    http->outgoing = evbuffer_new();
    http->client = http->outgoing ? http_relay_side(http, flow->fd) : NULL;
    if (!http->client) {
        flow_end(flow, true);
        return;
    }
    flow->fd = -1;
    if (flow->upstream >= 0 && !http_relay_take_server(http, TAKE_FD(flow->upstream))) {
        flow_end(flow, true);
        return;
    }
    struct evbuffer *input = bufferevent_get_input(http->client);
    evbuffer_unfreeze(input, 0); // libevent keeps the end of an input buffer for itself
    bool whole = evbuffer_add(input, flow->opening->bytes, flow->opening->len) == 0;
    evbuffer_freeze(input, 0);
    flow_free_opening(flow);
    if (!whole) {
        flow_end(flow, true);
        return;
    }
    bufferevent_trigger(http->client, EV_READ, 0);
    http_relay_balance(http);
}
