// SPDX-License-Identifier: Apache-2.0
// One client's connection: HTTP/1.1 with wire/http1.h as its parser, one request after the other.
//
// States: HEAD (waits for a request, or the rest of its head), BODY (reads it; or passes over it, if the answer is known
// already), CALL (being answered; what comes meanwhile waits, little above INPUT_MAX), CLOSING (the answer is being sent),
// LINGER (our side is closed; what still comes is passed over for a moment, or a reset would take the answer away).
// Each state that waits for the client has a deadline that does not move when a byte comes. A client that closes its side
// while it is answered counts as gone, but gets the answer if it takes it.
//
// Frees: only from our own events (end, deadline, output drained), from accept, and from api_free; never below the call of
// a backend function.
#include "api/api_state.h"

#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "base/mem.h"

#define INPUT_MAX HTTP1_HEAD_MAX
#define LINGER_MS 1000
#define SEND_MS 60000 // without a byte taken by the client

enum connection_state { CONNECTION_HEAD, CONNECTION_BODY, CONNECTION_CALL, CONNECTION_CLOSING, CONNECTION_LINGER };

struct connection {
    struct list link;
    struct api *api;
    struct bufferevent *event;
    struct event *deadline;
    enum connection_state state;
    struct http1 http1;
    struct http1_head head; // its slices point into head_bytes
    struct buf head_bytes, body;
    const struct api_route *route; // NULL: refused
    struct api_refusal refusal;
    struct api_call *call;
    bool partial; // of a head has come
    bool eof;     // the client sends no more
    bool broken;  // memory ran out in the middle of an answer
    bool ended;   // to be freed, once nobody is below us
    char peer[API_PEER_SIZE];
};

struct connection *connection_of(struct list *link) { return LIST_ENTRY(link, struct connection, link); }

bool connection_is_idle(const struct connection *connection) { return connection->state != CONNECTION_CALL; }

static void wait_until(struct connection *connection, uint32_t ms) {
    event_add(connection->deadline, &(struct timeval){.tv_sec = ms / 1000, .tv_usec = (ms % 1000) * 1000});
    list_remove(&connection->link); // now it is the one touched last
    list_append(&connection->api->connections, &connection->link);
}

static void wait_for_request(struct connection *connection) {
    connection->state = CONNECTION_HEAD;
    bufferevent_enable(connection->event, EV_READ | EV_WRITE);
    connection->partial = false;
    connection->route = NULL;
    connection->refusal.status = 0;
    http1_init(&connection->http1, HTTP1_REQUEST, (struct wire_slice){0});
    wait_until(connection, connection->api->options.idle_ms);
}

void connection_free(struct connection *connection) {
    struct api_call *call = connection->call;
    connection->call = NULL;
    list_remove(&connection->link);
    connection->api->counts.connections--;
    if (call) call_gone(call);
    event_free(connection->deadline);
    bufferevent_free(connection->event);
    if (connection->body.data) explicit_bzero(connection->body.data, connection->body.len); // may hold credentials
    buf_done(&connection->body);
    buf_done(&connection->head_bytes);
    free(connection);
}

// ---- answers ----

// A part that could not be kept is the end: the rest would be taken for something else.
static void send_part(struct connection *connection, const void *bytes, size_t len) {
    if (len && !connection->broken) connection->broken = bufferevent_write(connection->event, bytes, len) < 0;
}

void connection_break(struct connection *connection) { connection->broken = true; }

void connection_answer(struct connection *connection, const void *head, size_t head_len, const void *body, size_t len) {
    send_part(connection, head, head_len);
    send_part(connection, body, len);
}

size_t connection_stream(struct connection *connection, const void *bytes, size_t len) {
    send_part(connection, bytes, len);
    return evbuffer_get_length(bufferevent_get_output(connection->event));
}

void connection_done(struct connection *connection, bool keep_alive) {
    connection->call = NULL;
    if (keep_alive && !connection->eof && !connection->broken) {
        wait_for_request(connection);
        // What has come meanwhile; also where we are below our own reader, which then finds nothing left to do.
        bufferevent_trigger(connection->event, EV_READ, BEV_TRIG_DEFER_CALLBACKS | BEV_TRIG_IGNORE_WATERMARKS);
        return;
    }
    connection->state = CONNECTION_CLOSING;
    if (!connection->eof) bufferevent_enable(connection->event, EV_READ); // to pass over what still comes
    wait_until(connection, SEND_MS);
    bufferevent_trigger(connection->event, EV_WRITE, BEV_TRIG_DEFER_CALLBACKS);
}

static void refuse(struct connection *connection, int status, bool keep_alive, const char *text) {
    struct api_call *call = call_new(connection->api, connection, NULL);
    if (!call) {
        connection->ended = true;
        return;
    }
    connection->call = call;
    connection->state = CONNECTION_CALL;
    call->keep_alive = keep_alive;
    if (connection->refusal.allow[0]) call_header(call, "allow", "%s", connection->refusal.allow);
    api_reply_error(call, status, "%s", text);
}

// ---- requests ----

// Its answer has no body; none of our endpoints has that method, so that is for refusals, after which we close.
static bool is_head(const struct connection *connection) {
    return connection->head.method.len == 4 && memcmp(connection->head.method.data, "HEAD", 4) == 0;
}

static void dispatch(struct connection *connection) {
    event_del(connection->deadline);
    connection->state = CONNECTION_CALL;
    if (!connection->route) {
        bool keep_alive = connection->head.keep_alive && !is_head(connection);
        refuse(connection, connection->refusal.status, keep_alive, connection->refusal.message.text);
        return;
    }
    struct api_call *call = call_new(connection->api, connection, connection->route);
    if (!call) {
        connection->ended = true;
        return;
    }
    connection->call = call;
    call->keep_alive = connection->head.keep_alive;
    call->minor_0 = connection->head.minor_version == 0;
    snprintf(call->peer, sizeof(call->peer), "%s", connection->peer);
    struct buf body = connection->body;
    connection->body = BUF_INIT;
    route_dispatch(connection->api, call, &connection->head, body.data ? body.data : "", body.len);
    if (body.data) explicit_bzero(body.data, body.len);
    buf_done(&body);
}

// The head is complete. Whoever may not come in, or asks for nothing we have, is not made to hold a body for.
static void take_head(struct connection *connection, struct evbuffer *input, const uint8_t *bytes) {
    struct http1_head *head = &connection->head;
    buf_done(&connection->head_bytes);
    buf_append(&connection->head_bytes, bytes, head->len);
    evbuffer_drain(input, head->len);
    http1_init(&connection->http1, HTTP1_REQUEST, (struct wire_slice){0});
    if (connection->head_bytes.failed ||
        http1_head(&connection->http1, (const uint8_t *)connection->head_bytes.data, connection->head_bytes.len, head) !=
            WIRE_OK) {
        connection->ended = true;
        return;
    }
    connection->refusal = (struct api_refusal){0};
    connection->route = route_find(connection->api, head, &connection->refusal);
    if (head->framing == HTTP1_BODY_LENGTH && head->content_length > API_BODY_MAX) {
        refuse(connection, 413, false, "the body is longer than 2 MiB; send less");
        return;
    }
    if (head->expect_continue && !connection->route) {
        refuse(connection, connection->refusal.status, false, connection->refusal.message.text);
        return;
    }
    connection->state = CONNECTION_BODY;
    connection->body.len = 0;
    wait_until(connection, connection->api->options.body_ms);
    if (head->expect_continue) bufferevent_write(connection->event, "HTTP/1.1 100 Continue\r\n\r\n", 25);
}

static bool read_head(struct connection *connection, struct evbuffer *input) {
    size_t len = evbuffer_get_length(input);
    if (len == 0) return false;
    const uint8_t *bytes = evbuffer_pullup(input, -1);
    enum wire_result result =
        bytes ? http1_head(&connection->http1, bytes, len, &connection->head) : WIRE_BAD;
    if (result == WIRE_OK) {
        take_head(connection, input, bytes);
        return true;
    }
    if (result == WIRE_BAD) {
        bool large = len >= HTTP1_HEAD_MAX;
        refuse(connection, large ? 431 : 400, false,
               large ? "the head of the request is longer than 64 KiB; send less" : "this is not a request of HTTP/1.1");
        return false;
    }
    if (!connection->partial) wait_until(connection, connection->api->options.head_ms);
    connection->partial = true;
    return false;
}

static bool keep_body(struct connection *connection, const uint8_t *bytes, size_t len) {
    if (!connection->route) return true; // it is only passed over
    if (connection->body.len + len > API_BODY_MAX) {
        refuse(connection, 413, false, "the body is longer than 2 MiB; send less");
        return false;
    }
    buf_append(&connection->body, bytes, len);
    if (connection->body.failed) connection->ended = true;
    return !connection->body.failed;
}

// Data is taken as it comes, framing a byte at a time.
static bool read_body(struct connection *connection, struct evbuffer *input) {
    for (;;) {
        size_t len = evbuffer_get_contiguous_space(input), data = http1_body_data(&connection->http1), used = 0;
        const uint8_t *bytes = evbuffer_pullup(input, len ? (ev_ssize_t)len : -1);
        size_t part = data ? (data < len ? data : len) : (len ? 1 : 0);
        enum wire_result result = http1_body(&connection->http1, bytes, part, &used);
        if (result == WIRE_BAD) {
            refuse(connection, 400, false, "the body's chunks are malformed");
            return false;
        }
        if (data && !keep_body(connection, bytes, used)) return false;
        evbuffer_drain(input, used);
        if (result == WIRE_OK) {
            dispatch(connection);
            return true;
        }
        if (len == 0) return false;
    }
}

static void on_read(struct bufferevent *event, void *data) {
    struct connection *connection = data;
    struct evbuffer *input = bufferevent_get_input(event);
    for (bool more = true; more && !connection->ended;) {
        switch (connection->state) {
        case CONNECTION_HEAD:
            more = read_head(connection, input);
            break;
        case CONNECTION_BODY:
            more = read_body(connection, input);
            break;
        case CONNECTION_CALL:
            if (evbuffer_get_length(input) > INPUT_MAX) bufferevent_disable(event, EV_READ);
            more = false;
            break;
        case CONNECTION_CLOSING:
        case CONNECTION_LINGER:
            evbuffer_drain(input, evbuffer_get_length(input));
            more = false;
            break;
        }
    }
    if (connection->ended) connection_free(connection);
}

static void on_write(struct bufferevent *event, void *data) {
    struct connection *connection = data;
    size_t left = evbuffer_get_length(bufferevent_get_output(event));
    if (connection->state == CONNECTION_CALL && connection->call) call_drained(connection->call);
    if (connection->state != CONNECTION_CLOSING || left > 0) return;
    if (connection->eof || shutdown(bufferevent_getfd(event), SHUT_WR) < 0) {
        connection_free(connection);
        return;
    }
    connection->state = CONNECTION_LINGER;
    wait_until(connection, LINGER_MS);
}

static void on_event(struct bufferevent *event, short what, void *data) {
    struct connection *connection = data;
    (void)event;
    if (!(what & BEV_EVENT_EOF) || connection->eof || (connection->state != CONNECTION_CALL &&
                                                       connection->state != CONNECTION_CLOSING)) {
        connection_free(connection); // an error, nothing taken for too long, or nothing to answer
        return;
    }
    connection->eof = true;
    if (connection->call) call_half_gone(connection->call);
}

static void on_deadline(evutil_socket_t fd, short events, void *data) {
    struct connection *connection = data;
    (void)fd, (void)events;
    bool asked = connection->state == CONNECTION_BODY || (connection->state == CONNECTION_HEAD && connection->partial);
    if (!asked) {
        connection_free(connection);
        return;
    }
    refuse(connection, 408, false, "the request took too long to arrive");
    if (connection->ended) connection_free(connection);
}

int connection_new(struct api *api, int fd, const char *peer) {
    struct connection *connection = NEW(struct connection);
    if (!connection) return -ENOMEM;
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    connection->api = api;
    list_init(&connection->link);
    snprintf(connection->peer, sizeof(connection->peer), "%s", peer);
    connection->deadline = evtimer_new(api->options.base, on_deadline, connection);
    connection->event = connection->deadline ? bufferevent_socket_new(api->options.base, -1, BEV_OPT_CLOSE_ON_FREE) : NULL;
    if (!connection->event || bufferevent_setfd(connection->event, fd) < 0) {
        if (connection->event) bufferevent_free(connection->event);
        if (connection->deadline) event_free(connection->deadline);
        free(connection);
        return -ENOMEM;
    }
    api->counts.connections++;
    bufferevent_setcb(connection->event, on_read, on_write, on_event, connection);
    bufferevent_setwatermark(connection->event, EV_WRITE, API_PENDING_MAX / 4, 0);
    bufferevent_set_timeouts(connection->event, NULL, &(struct timeval){.tv_sec = SEND_MS / 1000});
    wait_for_request(connection);
    return 0;
}
