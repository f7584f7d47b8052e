// SPDX-License-Identifier: Apache-2.0
// One request and its response, as two streams. Bodies wait in `body` until the other side's session asks for them;
// only then does the sender get credit for more. Either stream may close first: what the other still needs is kept,
// all else is dropped and credited at once, so that nothing of a dead stream holds up the others of its connection.
#include <errno.h>
#include <event2/buffer.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "gate/h2_bridge.h"
#include "gate/scrub.h"

static enum h2_side h2_stream_other(enum h2_side side) { return side == H2_CLIENT ? H2_SERVER : H2_CLIENT; }

struct h2_stream *h2_stream_new(struct h2_bridge *bridge, int32_t id) {
    struct h2_stream *stream = NEW(struct h2_stream);
    if (!stream) return NULL;
    stream->bridge = bridge;
    stream->id[H2_CLIENT] = id;
    stream->open[H2_CLIENT] = true;
    stream->moved_us = bridge->now_us;
    for (enum h2_side side = H2_CLIENT; side < H2_SIDES; side++) {
        stream->body[side].stream = stream;
        stream->body[side].from = side;
    }
    list_append(&bridge->streams, &stream->link);
    bridge->stream_count++;
    return stream;
}

static void h2_stream_free_head(struct h2_stream *stream) { h2_bridge_release(stream->bridge, &stream->head); }

static void h2_stream_wiped(struct h2_stream *stream) {
    struct injection *injection = TAKE_POINTER(stream->injection);
    if (injection) stream->bridge->handlers->wiped(injection, stream->bridge->data);
}

void h2_stream_free(struct h2_stream *stream) {
    list_remove(&stream->link);
    for (enum h2_side side = H2_CLIENT; side < H2_SIDES; side++) {
        struct h2_body *body = &stream->body[side];
        if (body->bytes) evbuffer_free(body->bytes);
        scrub_free(body->scrub); // before the values that it looks for
        h2_bridge_release(stream->bridge, &body->trailers);
    }
    h2_stream_wiped(stream);
    h2_stream_free_head(stream);
    h2_bridge_release(stream->bridge, &stream->incoming);
    h2_head_done(&stream->reserved);
    free(stream);
}

void h2_stream_reset(struct h2_stream *stream, enum h2_side side, uint32_t error_code) {
    struct h2_bridge *bridge = stream->bridge;
    if (!stream->open[side] || stream->resetting[side]) return;
    stream->resetting[side] = true;
    if (nghttp2_submit_rst_stream(bridge->sessions[side], NGHTTP2_FLAG_NONE, stream->id[side], error_code) < 0)
        bridge->broken = true;
}

static void h2_stream_abort(struct h2_stream *stream, uint32_t client_code, uint32_t server_code) {
    h2_stream_reset(stream, H2_CLIENT, client_code);
    h2_stream_reset(stream, H2_SERVER, server_code);
}

// ---- bodies ----

static void h2_body_credit(const struct h2_body *body, size_t len) {
    const struct h2_stream *stream = body->stream;
    struct h2_bridge *bridge = stream->bridge;
    bool ours = body->from == H2_SERVER && stream->state == H2_ANSWERED;
    if (len == 0 || ours || !bridge->sessions[body->from]) return;
    if (nghttp2_session_consume(bridge->sessions[body->from], stream->id[body->from], len) < 0) bridge->broken = true;
}

static void h2_body_drop(struct h2_body *body) {
    size_t len = body->bytes ? evbuffer_get_length(body->bytes) : 0;
    if (body->scrub) len += scrub_held(body->scrub);
    h2_body_credit(body, len);
    if (body->bytes) evbuffer_free(TAKE_POINTER(body->bytes));
    scrub_free(TAKE_POINTER(body->scrub));
    h2_bridge_release(body->stream->bridge, &body->trailers);
}

static void h2_body_resume(struct h2_body *body) {
    enum h2_side to = h2_stream_other(body->from);
    const struct h2_stream *stream = body->stream;
    if (!body->deferred) return;
    body->deferred = false;
    if (nghttp2_session_resume_data(stream->bridge->sessions[to], stream->id[to]) == NGHTTP2_ERR_NOMEM)
        stream->bridge->broken = true;
}

static bool h2_body_add(struct h2_body *body, const uint8_t *bytes, size_t len) {
    if (!body->bytes && !(body->bytes = evbuffer_new())) return false;
    if (!body->scrub) return evbuffer_add(body->bytes, bytes, len) == 0;
    struct evbuffer_iovec room;
    size_t most = len + scrub_held(body->scrub);
    if (evbuffer_reserve_space(body->bytes, (ev_ssize_t)most, &room, 1) != 1) return false;
    room.iov_len = scrub_feed(body->scrub, bytes, len, room.iov_base);
    return evbuffer_commit_space(body->bytes, &room, 1) == 0;
}

static bool h2_body_finish(struct h2_body *body) {
    body->ended = true;
    size_t held = body->scrub ? scrub_held(body->scrub) : 0;
    if (held == 0) return true;
    struct evbuffer_iovec room;
    if (evbuffer_reserve_space(body->bytes, (ev_ssize_t)held, &room, 1) != 1) return false;
    room.iov_len = scrub_end(body->scrub, room.iov_base);
    return evbuffer_commit_space(body->bytes, &room, 1) == 0;
}

static bool h2_body_trailers(nghttp2_session *session, int32_t id, struct h2_body *body) {
    size_t count;
    h2_head_drop(&body->trailers, &body->stream->reserved); // what came as a trailer is the sandbox's own as well
    AUTO_FREE nghttp2_nv *fields = h2_head_fields(&body->trailers, NULL, &count);
    return fields && nghttp2_submit_trailer(session, id, fields, count) == 0;
}

// nghttp2 has room for a DATA frame.
static ssize_t h2_body_read(nghttp2_session *session, int32_t id, uint8_t *out, size_t room, uint32_t *ret_flags,
                            nghttp2_data_source *source, void *data) {
    (void)data;
    struct h2_body *body = source->ptr;
    int got = body->bytes ? evbuffer_remove(body->bytes, out, room) : 0;
    if (got < 0) return NGHTTP2_ERR_CALLBACK_FAILURE;
    size_t len = (size_t)got;
    body->stream->moved_us = body->stream->bridge->now_us;
    h2_body_credit(body, len);
    if (body->ended && (!body->bytes || evbuffer_get_length(body->bytes) == 0)) {
        *ret_flags |= NGHTTP2_DATA_FLAG_EOF;
        if (body->trailers.count == 0) return (ssize_t)len;
        *ret_flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
        return h2_body_trailers(session, id, body) ? (ssize_t)len : NGHTTP2_ERR_CALLBACK_FAILURE;
    }
    if (len > 0) return (ssize_t)len;
    body->deferred = true;
    return NGHTTP2_ERR_DEFERRED;
}

static bool h2_body_empty(const struct h2_body *body) {
    return body->ended && body->trailers.count == 0 && (!body->bytes || evbuffer_get_length(body->bytes) == 0);
}

bool h2_stream_data(struct h2_stream *stream, enum h2_side from, const uint8_t *bytes, size_t len) {
    struct h2_body *body = &stream->body[from];
    enum h2_side to = h2_stream_other(from);
    bool waits = from == H2_CLIENT && stream->state == H2_ASKED;
    stream->moved_us = stream->bridge->now_us;
    if (!waits && (!stream->open[to] || stream->resetting[to] || stream->state == H2_ANSWERED)) {
        h2_body_credit(body, len); // nobody wants it any more
        return true;
    }
    if (!h2_body_add(body, bytes, len)) return false;
    h2_body_resume(body);
    return true;
}

void h2_stream_end(struct h2_stream *stream, enum h2_side from) {
    struct h2_body *body = &stream->body[from];
    if (from == H2_SERVER && stream->state == H2_ANSWERED) return;
    if (!h2_body_finish(body)) stream->bridge->broken = true;
    h2_body_resume(body);
}

void h2_stream_sent_end(struct h2_stream *stream, enum h2_side to) {
    stream->body[h2_stream_other(to)].sent = true;
    // A response that did not wait for the end of its request (RFC 9113 8.1): the client need not send it.
    bool over = !stream->open[H2_SERVER] || stream->state == H2_ANSWERED;
    bool early = to == H2_CLIENT && over && !stream->body[H2_CLIENT].ended;
    if (early) h2_stream_reset(stream, H2_CLIENT, stream->reset_code);
}

// ---- heads ----

void h2_stream_sent_head(struct h2_stream *stream) {
    if (!stream->body[H2_SERVER].scrub) h2_stream_wiped(stream);
}

// What is scrubbed must come as it is.
static bool h2_stream_prepare_scrub(struct h2_stream *stream) {
    static const struct wire_slice name = {(const uint8_t *)"accept-encoding", 15};
    static const struct wire_slice none = {(const uint8_t *)"identity", 8};
    const struct injection *injection = stream->injection;
    struct scrub_value values[SCRUB_VALUES_MAX];
    size_t count = 0;
    for (size_t i = 0; injection && i < injection->count; i++) {
        const struct injection_value *value = &injection->values[i];
        if (value->scrub) values[count++] = scrub_header_value(value->bytes, value->len);
    }
    if (count == 0) return true;
    bool good = h2_head_add(&stream->head, name, none, 0) == 0 && !stream->head.too_large;
    if (good) stream->body[H2_SERVER].scrub = scrub_new(values, count);
    return stream->body[H2_SERVER].scrub != NULL;
}

static int32_t h2_stream_submit(struct h2_stream *stream) {
    size_t count;
    struct h2_body *body = &stream->body[H2_CLIENT];
    nghttp2_data_provider provider = {.source.ptr = body, .read_callback = h2_body_read};
    if (stream->injection && h2_head_add_names(&stream->reserved, stream->injection) < 0) return NGHTTP2_ERR_NOMEM;
    if (stream->injection) h2_head_bar(&stream->head, stream->injection);
    size_t before = stream->head.list_size;
    bool prepared = h2_stream_prepare_scrub(stream);
    h2_bridge_hold(stream->bridge, stream->head.list_size - before);
    AUTO_FREE nghttp2_nv *fields = prepared ? h2_head_fields(&stream->head, stream->injection, &count) : NULL;
    if (!fields) return NGHTTP2_ERR_NOMEM;
    return nghttp2_submit_request(stream->bridge->sessions[H2_SERVER], NULL, fields, count,
                                  h2_body_empty(body) ? NULL : &provider, stream);
}

void h2_stream_forward(struct h2_stream *stream, struct injection *injection) {
    struct h2_bridge *bridge = stream->bridge;
    stream->injection = injection;
    int32_t id = h2_stream_submit(stream);
    stream->moved_us = bridge->now_us;
    h2_stream_free_head(stream);
    if (id < 0) {
        if (id == NGHTTP2_ERR_NOMEM) bridge->broken = true;
        h2_stream_wiped(stream);
        h2_stream_reset(stream, H2_CLIENT, NGHTTP2_REFUSED_STREAM);
        return;
    }
    stream->id[H2_SERVER] = id;
    stream->open[H2_SERVER] = true;
    stream->state = H2_FORWARDED;
    bridge->forwarded_count++;
}

static void h2_stream_respond(struct h2_stream *stream, const nghttp2_nv *fields, size_t count, bool with_body) {
    nghttp2_data_provider provider = {.source.ptr = &stream->body[H2_SERVER], .read_callback = h2_body_read};
    stream->responded = true;
    int rc = nghttp2_submit_response(stream->bridge->sessions[H2_CLIENT], stream->id[H2_CLIENT], fields, count,
                                     with_body ? &provider : NULL);
    if (rc < 0) stream->bridge->broken = true;
}

#define H2_FIELD(name, value, value_len) \
    (nghttp2_nv) { (uint8_t *)(uintptr_t)(name), (uint8_t *)(uintptr_t)(value), sizeof(name) - 1, value_len, 0 }

void h2_stream_answer(struct h2_stream *stream, unsigned status, const char *reason, const char *body, size_t len) {
    char status_text[12], len_text[24];
    struct h2_body *response = &stream->body[H2_SERVER];
    int status_len = snprintf(status_text, sizeof(status_text), "%u", status);
    int len_len = snprintf(len_text, sizeof(len_text), "%zu", len);
    const nghttp2_nv fields[] = {
        H2_FIELD(":status", status_text, (size_t)status_len),
        H2_FIELD("content-type", "application/json", 16),
        H2_FIELD("content-length", len_text, (size_t)len_len),
        H2_FIELD("x-penstock-reason", reason, strlen(reason)),
        H2_FIELD("cache-control", "no-store", 8),
    };
    h2_body_drop(&stream->body[H2_CLIENT]);
    h2_body_drop(response);
    h2_stream_wiped(stream);
    h2_stream_free_head(stream);
    stream->state = H2_ANSWERED;
    stream->reset_code = NGHTTP2_NO_ERROR;
    if (!stream->open[H2_CLIENT] || stream->resetting[H2_CLIENT]) return;
    if (!h2_body_add(response, (const uint8_t *)body, len)) stream->bridge->broken = true;
    response->ended = true;
    h2_stream_respond(stream, fields, ARRAY_LENGTH(fields), !stream->is_head);
}

// The server's response is none that could be passed on.
static void h2_stream_bad_response(struct h2_stream *stream) {
    h2_stream_reset(stream, H2_SERVER, NGHTTP2_PROTOCOL_ERROR);
    if (stream->responded) h2_stream_reset(stream, H2_CLIENT, NGHTTP2_INTERNAL_ERROR);
    else if (stream->open[H2_CLIENT]) stream->bridge->handlers->failed(stream, stream->bridge->data);
}

static void h2_stream_interim(struct h2_stream *stream, const nghttp2_nv *fields, size_t count) {
    if (stream->responded || ++stream->interim > H2_INTERIM_MAX) {
        h2_stream_bad_response(stream);
        return;
    }
    nghttp2_session *session = stream->bridge->sessions[H2_CLIENT];
    if (nghttp2_submit_headers(session, NGHTTP2_FLAG_NONE, stream->id[H2_CLIENT], NULL, fields, count, NULL) < 0)
        stream->bridge->broken = true;
}

static void h2_stream_response(struct h2_stream *stream, bool end) {
    struct h2_head *head = &stream->incoming;
    struct h2_body *body = &stream->body[H2_SERVER];
    bool headed = h2_head_find(head, ":status").data != NULL;
    unsigned status = h2_head_status(head);
    if (!stream->open[H2_CLIENT] || stream->resetting[H2_CLIENT] || stream->state == H2_ANSWERED) return;
    if (head->too_large || (headed && (status == 0 || status == 101))) {
        h2_stream_bad_response(stream);
        return;
    }
    if (body->scrub) h2_head_scrub(head, body->scrub);
    if (!headed) {
        body->trailers = *head;
        *head = (struct h2_head){0};
        h2_stream_end(stream, H2_SERVER);
        return;
    }
    size_t count;
    AUTO_FREE nghttp2_nv *fields = h2_head_fields(head, NULL, &count);
    if (!fields) {
        stream->bridge->broken = true;
    } else if (status < 200) {
        h2_stream_interim(stream, fields, count);
    } else {
        h2_stream_respond(stream, fields, count, !end);
        if (end) h2_stream_end(stream, H2_SERVER);
    }
}

static void h2_stream_request(struct h2_stream *stream, bool end) {
    struct wire_slice method = h2_head_find(&stream->head, ":method");
    stream->state = H2_ASKED;
    stream->is_head = method.len == 4 && memcmp(method.data, "HEAD", 4) == 0;
    stream->body[H2_CLIENT].ended = end;
    stream->bridge->handlers->request(stream, stream->bridge->data);
}

void h2_stream_headers(struct h2_stream *stream, enum h2_side from, bool end) {
    stream->moved_us = stream->bridge->now_us;
    if (from == H2_SERVER) {
        h2_stream_response(stream, end);
        h2_bridge_release(stream->bridge, &stream->incoming);
    } else if (stream->state == H2_READING) {
        h2_stream_request(stream, end);
    } else if (stream->body[H2_CLIENT].trailers.too_large) {
        h2_stream_abort(stream, NGHTTP2_ENHANCE_YOUR_CALM, NGHTTP2_CANCEL);
    } else {
        h2_stream_end(stream, H2_CLIENT);
    }
}

// ---- the end ----

static void h2_stream_client_closed(struct h2_stream *stream, uint32_t error_code) {
    stream->bridge->handlers->closed(stream, stream->bridge->data);
    h2_body_drop(&stream->body[H2_SERVER]);
    // Where the response was whole before the request had gone on, the server still gets the rest of it.
    bool rest = error_code == NGHTTP2_NO_ERROR && stream->body[H2_CLIENT].ended && stream->body[H2_SERVER].sent;
    if (rest) return;
    h2_body_drop(&stream->body[H2_CLIENT]);
    h2_stream_reset(stream, H2_SERVER, error_code);
}

static void h2_stream_server_closed(struct h2_stream *stream, uint32_t error_code) {
    struct h2_bridge *bridge = stream->bridge;
    const struct h2_body *response = &stream->body[H2_SERVER];
    bridge->forwarded_count--;
    h2_body_drop(&stream->body[H2_CLIENT]);
    bridge->handlers->room(bridge->data);
    if (!stream->open[H2_CLIENT] || stream->state == H2_ANSWERED) return;
    stream->reset_code = error_code;
    bool early = response->ended && response->sent && !stream->body[H2_CLIENT].ended;
    if (early) h2_stream_reset(stream, H2_CLIENT, error_code);
    if (response->ended) return; // what is there goes out first
    if (bridge->over[H2_SERVER] && !stream->responded) bridge->handlers->failed(stream, bridge->data);
    else h2_stream_reset(stream, H2_CLIENT, error_code);
}

void h2_stream_closed(struct h2_stream *stream, enum h2_side side, uint32_t error_code) {
    if (!stream->open[side]) return;
    stream->open[side] = false;
    if (side == H2_SERVER) h2_stream_sent_head(stream);
    if (side == H2_CLIENT) h2_stream_client_closed(stream, error_code);
    else h2_stream_server_closed(stream, error_code);
    if (stream->open[H2_CLIENT] || stream->open[H2_SERVER]) return;
    list_remove(&stream->link);
    list_append(&stream->bridge->dead, &stream->link);
    stream->bridge->stream_count--;
}
