// SPDX-License-Identifier: Apache-2.0
// The two sessions, and what of nghttp2's callbacks concerns the connection as a whole. nghttp2 checks frames, header
// fields, content lengths and windows; here are the limits that it has not: on frames that bring nothing, on resets,
// on what waits.
//
// A side that breaks a rule gets GOAWAY and is over once that is written. When the server's side is over, streams
// that have their whole response still end well; the client gets GOAWAY, so that it opens a new connection for what
// comes next.
#include "gate/h2_bridge.h"

#include <errno.h>
#include <event2/buffer.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

static enum h2_side h2_bridge_side(const struct h2_bridge *bridge, const nghttp2_session *session) {
    return session == bridge->sessions[H2_CLIENT] ? H2_CLIENT : H2_SERVER;
}

static struct h2_stream *h2_bridge_stream(nghttp2_session *session, int32_t id) {
    return nghttp2_session_get_stream_user_data(session, id);
}

// ---- limits ----

static bool h2_allowance_take(struct h2_allowance *allowance, uint64_t now_us, unsigned burst, unsigned second) {
    uint64_t full = (uint64_t)burst * 1000000, elapsed = now_us - allowance->at_us;
    if (elapsed > full) elapsed = full; // no overflow
    allowance->left += elapsed * second;
    if (allowance->left > full) allowance->left = full;
    allowance->at_us = now_us;
    if (allowance->left < 1000000) return false;
    allowance->left -= 1000000;
    return true;
}

static void h2_bridge_calm(struct h2_bridge *bridge, enum h2_side side) {
    if (nghttp2_session_terminate_session(bridge->sessions[side], NGHTTP2_ENHANCE_YOUR_CALM) < 0) bridge->broken = true;
}

bool h2_bridge_hold(struct h2_bridge *bridge, size_t len) {
    bridge->heads_len += len;
    bridge->budget->used += len;
    return bridge->heads_len <= H2_HEADS_MAX && bridge->budget->used <= bridge->budget->max;
}

void h2_bridge_release(struct h2_bridge *bridge, struct h2_head *head) {
    bridge->heads_len -= head->list_size;
    bridge->budget->used -= head->list_size;
    h2_head_done(head);
}

static void h2_bridge_useful(struct h2_bridge *bridge, enum h2_side side) {
    bridge->frames[side].left += (uint64_t)H2_FRAMES_USEFUL * 1000000;
}

// ---- callbacks of nghttp2, for both sessions ----

static int h2_bridge_begin_frame(nghttp2_session *session, const nghttp2_frame_hd *frame, void *data) {
    struct h2_bridge *bridge = data;
    enum h2_side side = h2_bridge_side(bridge, session);
    bool end = frame->flags & NGHTTP2_FLAG_END_HEADERS;
    if (frame->type == NGHTTP2_HEADERS && !end) bridge->head_begun_us[side] = bridge->now_us;
    else if (frame->type != NGHTTP2_CONTINUATION || end) bridge->head_begun_us[side] = 0;
    if (!h2_allowance_take(&bridge->frames[side], bridge->now_us, H2_FRAMES_BURST, H2_FRAMES_SECOND))
        h2_bridge_calm(bridge, side);
    return 0;
}

static int h2_bridge_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *data) {
    struct h2_bridge *bridge = data;
    if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST) return 0;
    if (bridge->refusing || bridge->stream_count >= 2 * H2_STREAMS_MAX) {
        return nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, frame->hd.stream_id, NGHTTP2_REFUSED_STREAM) == 0
                   ? 0 : NGHTTP2_ERR_CALLBACK_FAILURE;
    }
    struct h2_stream *stream = h2_stream_new(bridge, frame->hd.stream_id);
    // Fair to all streams, whatever priorities the client asks for.
    static const nghttp2_extpri fair = {.urgency = NGHTTP2_EXTPRI_DEFAULT_URGENCY, .inc = 1};
    if (!stream || nghttp2_session_set_stream_user_data(session, frame->hd.stream_id, stream) < 0 ||
        nghttp2_session_change_extpri_stream_priority(session, frame->hd.stream_id, &fair, 1) < 0) {
        return NGHTTP2_ERR_CALLBACK_FAILURE;
    }
    return 0;
}

static int h2_bridge_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name, size_t name_len,
                            const uint8_t *value, size_t value_len, uint8_t flags, void *data) {
    struct h2_bridge *bridge = data;
    struct h2_stream *stream = h2_bridge_stream(session, frame->hd.stream_id);
    if (frame->hd.type != NGHTTP2_HEADERS || !stream) return 0;
    struct h2_head *head = &stream->incoming;
    bool request = session == bridge->sessions[H2_CLIENT] && stream->state == H2_READING;
    if (request) head = &stream->head;
    else if (session == bridge->sessions[H2_CLIENT]) head = &stream->body[H2_CLIENT].trailers;
    size_t before = head->list_size;
    if (h2_head_add(head, (struct wire_slice){name, name_len}, (struct wire_slice){value, value_len}, flags) < 0)
        return NGHTTP2_ERR_CALLBACK_FAILURE;
    if (!h2_bridge_hold(bridge, head->list_size - before)) head->too_large = true;
    return 0;
}

// A field that nghttp2 would leave out: of a client, the request is malformed.
static int h2_bridge_invalid_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                                    size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags,
                                    void *data) {
    (void)frame, (void)name, (void)name_len, (void)value, (void)value_len, (void)flags;
    const struct h2_bridge *bridge = data;
    return session == bridge->sessions[H2_CLIENT] ? NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE : 0;
}

static int h2_bridge_frame(nghttp2_session *session, const nghttp2_frame *frame, void *data) {
    struct h2_bridge *bridge = data;
    enum h2_side side = h2_bridge_side(bridge, session);
    bool end = frame->hd.flags & NGHTTP2_FLAG_END_STREAM;
    struct h2_stream *stream = h2_bridge_stream(session, frame->hd.stream_id);
    if (frame->hd.type == NGHTTP2_HEADERS) {
        h2_bridge_useful(bridge, side);
        if (stream) h2_stream_headers(stream, side, end);
    } else if (frame->hd.type == NGHTTP2_DATA) {
        if (frame->hd.length > frame->data.padlen || end) h2_bridge_useful(bridge, side);
        if (stream && end) h2_stream_end(stream, side);
    } else if (frame->hd.type == NGHTTP2_SETTINGS && side == H2_SERVER) {
        bridge->handlers->room(bridge->data);
    } else if (frame->hd.type == NGHTTP2_GOAWAY && side == H2_SERVER) {
        h2_bridge_shut(bridge, frame->goaway.error_code);
    }
    return bridge->broken ? NGHTTP2_ERR_CALLBACK_FAILURE : 0;
}

static int h2_bridge_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *bytes, size_t len,
                          void *data) {
    (void)flags;
    struct h2_bridge *bridge = data;
    struct h2_stream *stream = h2_bridge_stream(session, id);
    if (!stream) return nghttp2_session_consume(session, id, len) < 0 ? NGHTTP2_ERR_CALLBACK_FAILURE : 0;
    return h2_stream_data(stream, h2_bridge_side(bridge, session), bytes, len) ? 0 : NGHTTP2_ERR_CALLBACK_FAILURE;
}

static int h2_bridge_stream_close(nghttp2_session *session, int32_t id, uint32_t error_code, void *data) {
    struct h2_bridge *bridge = data;
    enum h2_side side = h2_bridge_side(bridge, session);
    struct h2_stream *stream = h2_bridge_stream(session, id);
    // Whoever sends the reset: a client can also bring us to do it.
    bool reset = side == H2_CLIENT && (!stream || !stream->body[H2_SERVER].sent);
    if (reset && !h2_allowance_take(&bridge->resets, bridge->now_us, H2_RESETS_BURST, H2_RESETS_SECOND))
        h2_bridge_calm(bridge, side);
    if (stream) h2_stream_closed(stream, side, error_code);
    return bridge->broken ? NGHTTP2_ERR_CALLBACK_FAILURE : 0;
}

static int h2_bridge_before_send(nghttp2_session *session, const nghttp2_frame *frame, void *data) {
    struct h2_bridge *bridge = data;
    enum h2_side side = h2_bridge_side(bridge, session);
    bool request = side == H2_SERVER && frame->hd.type == NGHTTP2_HEADERS && frame->headers.cat == NGHTTP2_HCAT_REQUEST;
    const struct h2_stream *stream = request ? h2_bridge_stream(session, frame->hd.stream_id) : NULL;
    bridge->secret[side] = stream && stream->injection;
    return 0;
}

static int h2_bridge_frame_sent(nghttp2_session *session, const nghttp2_frame *frame, void *data) {
    struct h2_bridge *bridge = data;
    enum h2_side side = h2_bridge_side(bridge, session);
    struct h2_stream *stream = h2_bridge_stream(session, frame->hd.stream_id);
    bool message = frame->hd.type == NGHTTP2_HEADERS || frame->hd.type == NGHTTP2_DATA;
    bridge->frame_sent[side] = true; // or rather, its last bytes are about to be given out
    if (message) h2_bridge_useful(bridge, side);
    if (!message || !stream) return 0;
    if (side == H2_SERVER && frame->hd.type == NGHTTP2_HEADERS) h2_stream_sent_head(stream);
    if (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) h2_stream_sent_end(stream, side);
    return bridge->broken ? NGHTTP2_ERR_CALLBACK_FAILURE : 0;
}

// A request that never became a stream: nghttp2 tells of it here only.
static int h2_bridge_frame_not_sent(nghttp2_session *session, const nghttp2_frame *frame, int error, void *data) {
    (void)error;
    struct h2_bridge *bridge = data;
    enum h2_side side = h2_bridge_side(bridge, session);
    bridge->secret[side] = false;
    if (side == H2_CLIENT || frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST) return 0;
    LIST_FOREACH(&bridge->streams, node) {
        struct h2_stream *stream = LIST_ENTRY(node, struct h2_stream, link);
        if (stream->id[H2_SERVER] == frame->hd.stream_id) h2_stream_closed(stream, H2_SERVER, NGHTTP2_REFUSED_STREAM);
    }
    return 0;
}

// ---- making and freeing ----

static nghttp2_session_callbacks *h2_bridge_callbacks(void) {
    nghttp2_session_callbacks *calls;
    if (nghttp2_session_callbacks_new(&calls) < 0) return NULL;
    nghttp2_session_callbacks_set_on_begin_frame_callback(calls, h2_bridge_begin_frame);
    nghttp2_session_callbacks_set_on_begin_headers_callback(calls, h2_bridge_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(calls, h2_bridge_header);
    nghttp2_session_callbacks_set_on_invalid_header_callback(calls, h2_bridge_invalid_header);
    nghttp2_session_callbacks_set_on_frame_recv_callback(calls, h2_bridge_frame);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(calls, h2_bridge_data);
    nghttp2_session_callbacks_set_on_stream_close_callback(calls, h2_bridge_stream_close);
    nghttp2_session_callbacks_set_before_frame_send_callback(calls, h2_bridge_before_send);
    nghttp2_session_callbacks_set_on_frame_send_callback(calls, h2_bridge_frame_sent);
    nghttp2_session_callbacks_set_on_frame_not_send_callback(calls, h2_bridge_frame_not_sent);
    return calls;
}

static nghttp2_option *h2_bridge_option(enum h2_side side) {
    nghttp2_option *option;
    if (nghttp2_option_new(&option) < 0) return NULL;
    nghttp2_option_set_no_auto_window_update(option, 1);
    nghttp2_option_set_max_send_header_block_length(option, H2_HEADS_MAX); // a head and all values that may be added
    // Ours come first and say GOAWAY; these hold where a client's resets never become streams.
    nghttp2_option_set_stream_reset_rate_limit(option, 2 * H2_RESETS_BURST, 2 * H2_RESETS_SECOND);
    // What a server sends so goes to a client that takes it or not.
    if (side == H2_SERVER) nghttp2_option_set_no_rfc9113_leading_and_trailing_ws_validation(option, 1);
    return option;
}

static bool h2_bridge_settings(struct h2_bridge *bridge, enum h2_side side, bool small) {
    const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, small ? H2_WINDOW_STREAM_SMALL : H2_WINDOW_STREAM},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, H2_HEAD_MAX},
        {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, side == H2_CLIENT ? H2_STREAMS_MAX : 0},
        {side == H2_CLIENT ? NGHTTP2_SETTINGS_NO_RFC7540_PRIORITIES : NGHTTP2_SETTINGS_ENABLE_PUSH, side == H2_CLIENT},
    };
    nghttp2_session *session = bridge->sessions[side];
    return nghttp2_submit_settings(session, NGHTTP2_FLAG_NONE, settings, ARRAY_LENGTH(settings)) == 0 &&
           nghttp2_session_set_local_window_size(session, NGHTTP2_FLAG_NONE, 0,
                                                 small ? H2_WINDOW_ALL_SMALL : H2_WINDOW_ALL) == 0;
}

static bool h2_bridge_open(struct h2_bridge *bridge, enum h2_side side, bool small) {
    nghttp2_session_callbacks *calls = h2_bridge_callbacks();
    nghttp2_option *option = h2_bridge_option(side);
    nghttp2_session **session = &bridge->sessions[side];
    nghttp2_mem *memory = &bridge->memory[side].calls;
    int rc = NGHTTP2_ERR_NOMEM;
    if (calls && option && side == H2_CLIENT) rc = nghttp2_session_server_new3(session, calls, bridge, option, memory);
    else if (calls && option) rc = nghttp2_session_client_new3(session, calls, bridge, option, memory);
    nghttp2_session_callbacks_del(calls);
    nghttp2_option_del(option);
    return rc == 0 && h2_bridge_settings(bridge, side, small);
}

struct h2_bridge *h2_bridge_new(const struct h2_handlers *handlers, void *data, bool upstream, bool small,
                                struct h2_budget *budget, uint64_t now_us) {
    struct h2_bridge *bridge = NEW(struct h2_bridge);
    if (!bridge) return NULL;
    bridge->handlers = handlers;
    bridge->data = data;
    bridge->now_us = bridge->heard_us[H2_CLIENT] = bridge->heard_us[H2_SERVER] = now_us;
    bridge->over[H2_SERVER] = !upstream;
    list_init(&bridge->streams);
    list_init(&bridge->dead);
    bridge->budget = budget;
    for (enum h2_side side = H2_CLIENT; side < H2_SIDES; side++)
        h2_memory_init(&bridge->memory[side], small ? H2_MEMORY_MAX_SMALL : H2_MEMORY_MAX, budget);
    struct h2_allowance frames = {(uint64_t)H2_FRAMES_BURST * 1000000, now_us};
    bridge->frames[H2_CLIENT] = bridge->frames[H2_SERVER] = frames;
    bridge->resets = (struct h2_allowance){(uint64_t)H2_RESETS_BURST * 1000000, now_us};
    bool good = h2_bridge_open(bridge, H2_CLIENT, small) && (!upstream || h2_bridge_open(bridge, H2_SERVER, small));
    if (good) return bridge;
    h2_bridge_free(bridge);
    return NULL;
}

// A client that has ended its side may still get what it asked for; a server's end is that of all it would have said.
static bool h2_bridge_writes(const struct h2_bridge *bridge, enum h2_side side) {
    return bridge->sessions[side] && (!bridge->over[side] || (side == H2_CLIENT && bridge->half_closed));
}

static void h2_bridge_goodbye(struct h2_bridge *bridge, enum h2_side side, uint32_t error_code) {
    nghttp2_session *session = bridge->sessions[side];
    if (!session || !h2_bridge_writes(bridge, side)) return;
    int32_t last = side == H2_CLIENT ? nghttp2_session_get_last_proc_stream_id(session) : 0;
    if (nghttp2_submit_goaway(session, NGHTTP2_FLAG_NONE, last, error_code, NULL, 0) < 0) bridge->broken = true;
}

// The server is told when the last stream has ended: some take what comes before for the end of all.
static void h2_bridge_settle(struct h2_bridge *bridge) {
    bool last = bridge->refusing && list_empty(&bridge->streams) && !bridge->settled;
    if (!last) return;
    bridge->settled = true;
    h2_bridge_goodbye(bridge, H2_SERVER, NGHTTP2_NO_ERROR);
}

static void h2_bridge_reap(struct h2_bridge *bridge) {
    LIST_FOREACH(&bridge->dead, node) h2_stream_free(LIST_ENTRY(node, struct h2_stream, link));
}

void h2_bridge_free(struct h2_bridge *bridge) {
    if (!bridge) return;
    for (enum h2_side side = H2_CLIENT; side < H2_SIDES; side++) {
        h2_bridge_sent(bridge, side);
        h2_memory_done(&bridge->memory[side]);
    }
    h2_bridge_reap(bridge);
    LIST_FOREACH(&bridge->streams, node) {
        struct h2_stream *stream = LIST_ENTRY(node, struct h2_stream, link);
        bridge->handlers->closed(stream, bridge->data);
        h2_stream_free(stream);
    }
    free(bridge);
}

// ---- bytes ----

static bool h2_bridge_finished(const struct h2_bridge *bridge, enum h2_side side) {
    nghttp2_session *session = bridge->sessions[side];
    return !nghttp2_session_want_read(session) && !nghttp2_session_want_write(session);
}

int h2_bridge_receive(struct h2_bridge *bridge, enum h2_side side, const uint8_t *bytes, size_t len, uint64_t now_us) {
    bridge->now_us = now_us;
    if (bridge->broken) return -ENOMEM;
    if (bridge->over[side]) return -ECONNABORTED;
    bridge->heard_us[side] = now_us;
    ssize_t used = nghttp2_session_mem_recv(bridge->sessions[side], bytes, len);
    if (used == NGHTTP2_ERR_NOMEM || used == NGHTTP2_ERR_CALLBACK_FAILURE) bridge->broken = true;
    else if (used < 0) h2_bridge_ended(bridge, side, false); // no HTTP/2 at all, or a flood of its own doing
    else if (h2_bridge_finished(bridge, side)) h2_bridge_ended(bridge, side, false);
    h2_bridge_settle(bridge);
    h2_bridge_reap(bridge);
    if (bridge->broken) return -ENOMEM;
    return bridge->over[side] ? -ECONNABORTED : 0;
}

static size_t h2_bridge_queue(const struct h2_bridge *bridge, enum h2_side side) {
    nghttp2_session *session = bridge->sessions[side];
    return session && !bridge->over[side] ? nghttp2_session_get_outbound_queue_size(session) : 0;
}

// What fills a session are heads that its side does not read; windows do not hold these up.
static bool h2_bridge_full(const struct h2_bridge *bridge, enum h2_side side) {
    const struct h2_memory *memory = &bridge->memory[side];
    return !bridge->over[side] && memory->used > memory->max / H2_MEMORY_FULL_SHARE;
}

bool h2_bridge_wants(const struct h2_bridge *bridge, enum h2_side side) {
    if (h2_bridge_full(bridge, side == H2_CLIENT ? H2_SERVER : H2_CLIENT)) return false;
    return !bridge->broken && !bridge->over[side] && nghttp2_session_want_read(bridge->sessions[side]) &&
           h2_bridge_queue(bridge, H2_CLIENT) < H2_QUEUE_MAX && h2_bridge_queue(bridge, H2_SERVER) < H2_QUEUE_MAX;
}

void h2_bridge_sent(struct h2_bridge *bridge, enum h2_side side) {
    if (bridge->piece[side]) explicit_bzero(bridge->piece[side], bridge->piece_len[side]);
    bridge->piece[side] = NULL;
}

ssize_t h2_bridge_send(struct h2_bridge *bridge, enum h2_side side, const uint8_t **ret_bytes, bool *ret_secret) {
    h2_bridge_sent(bridge, side);
    if (bridge->broken) return -ENOMEM;
    if (!h2_bridge_writes(bridge, side)) return 0;
    if (bridge->frame_sent[side]) bridge->secret[side] = false; // else it goes on in CONTINUATION
    bridge->frame_sent[side] = false;
    const uint8_t *bytes = NULL;
    ssize_t len = nghttp2_session_mem_send(bridge->sessions[side], &bytes);
    if (len < 0) bridge->broken = true;
    if (len == 0 && !bridge->over[side] && h2_bridge_finished(bridge, side)) h2_bridge_ended(bridge, side, false);
    h2_bridge_settle(bridge);
    h2_bridge_reap(bridge);
    if (bridge->broken) return -ENOMEM;
    *ret_bytes = bytes;
    *ret_secret = len > 0 && bridge->secret[side];
    if (!*ret_secret) return len;
    bridge->piece[side] = (uint8_t *)(uintptr_t)bytes; // nghttp2's own buffer, which it is done with
    bridge->piece_len[side] = (size_t)len;
    return len;
}

bool h2_bridge_room(const struct h2_bridge *bridge, size_t waiting) {
    nghttp2_session *session = bridge->sessions[H2_SERVER];
    if (!session || bridge->over[H2_SERVER]) return true; // it fails at once
    uint32_t max = nghttp2_session_get_remote_settings(session, NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS);
    return bridge->forwarded_count + waiting < (max < H2_STREAMS_MAX ? max : H2_STREAMS_MAX);
}

// ---- the end ----

void h2_bridge_shut(struct h2_bridge *bridge, uint32_t error_code) {
    if (bridge->refusing || bridge->broken) return;
    bridge->refusing = true;
    LIST_FOREACH(&bridge->streams, node) {
        struct h2_stream *stream = LIST_ENTRY(node, struct h2_stream, link);
        if (stream->state == H2_ASKED) h2_stream_reset(stream, H2_CLIENT, NGHTTP2_REFUSED_STREAM);
    }
    h2_bridge_goodbye(bridge, H2_CLIENT, error_code);
    h2_bridge_settle(bridge);
}

static void h2_bridge_client_ended(struct h2_bridge *bridge, bool orderly) {
    bridge->half_closed = orderly;
    LIST_FOREACH(&bridge->streams, node) {
        struct h2_stream *stream = LIST_ENTRY(node, struct h2_stream, link);
        if (!orderly) {
            h2_stream_closed(stream, H2_CLIENT, NGHTTP2_CANCEL);
        } else if (!stream->body[H2_CLIENT].ended) {
            h2_stream_reset(stream, H2_CLIENT, NGHTTP2_CANCEL);
            h2_stream_reset(stream, H2_SERVER, NGHTTP2_CANCEL);
        }
    }
    bridge->refusing = true;
    h2_bridge_settle(bridge);
}

void h2_bridge_ended(struct h2_bridge *bridge, enum h2_side side, bool orderly) {
    if (bridge->broken) return;
    if (bridge->over[side]) {
        if (!orderly && side == H2_CLIENT && bridge->half_closed) h2_bridge_client_ended(bridge, false);
        return;
    }
    bridge->over[side] = true;
    if (side == H2_CLIENT) {
        h2_bridge_client_ended(bridge, orderly);
        return;
    }
    LIST_FOREACH(&bridge->streams, node)
        h2_stream_closed(LIST_ENTRY(node, struct h2_stream, link), H2_SERVER, NGHTTP2_INTERNAL_ERROR);
    h2_bridge_shut(bridge, NGHTTP2_NO_ERROR);
}

bool h2_bridge_done(const struct h2_bridge *bridge) {
    if (bridge->broken || (bridge->over[H2_CLIENT] && !bridge->half_closed)) return true;
    return bridge->refusing && list_empty(&bridge->streams) && !nghttp2_session_want_write(bridge->sessions[H2_CLIENT]);
}

static bool h2_stream_stalled(const struct h2_stream *stream) {
    bool stalled = stream->state == H2_ASKED && !stream->wait;
    for (enum h2_side side = H2_CLIENT; side < H2_SIDES; side++) {
        const struct h2_body *body = &stream->body[side];
        stalled |= body->bytes && evbuffer_get_length(body->bytes) > 0;
    }
    return stalled && stream->bridge->now_us - stream->moved_us > H2_STALL_US;
}

// PING is answered by us, so that of a client which keeps a silent stream alive the server would hear nothing, and the
// other way round: our connection to it would be idle.
static void h2_bridge_keep(struct h2_bridge *bridge, enum h2_side quiet) {
    enum h2_side other = quiet == H2_CLIENT ? H2_SERVER : H2_CLIENT;
    uint64_t now_us = bridge->now_us;
    bool open = bridge->forwarded_count > 0 && !bridge->over[H2_CLIENT] && !bridge->over[H2_SERVER];
    bool alone = now_us - bridge->heard_us[quiet] >= H2_QUIET_US && now_us - bridge->heard_us[other] < H2_QUIET_US;
    if (!open || !alone) return;
    bridge->heard_us[quiet] = now_us; // one for each time
    if (nghttp2_submit_ping(bridge->sessions[quiet], NGHTTP2_FLAG_NONE, NULL) < 0) bridge->broken = true;
}

void h2_bridge_tick(struct h2_bridge *bridge, uint64_t now_us) {
    bridge->now_us = now_us;
    if (bridge->broken) return;
    LIST_FOREACH(&bridge->streams, node) {
        struct h2_stream *stream = LIST_ENTRY(node, struct h2_stream, link);
        if (!h2_stream_stalled(stream)) continue;
        h2_stream_reset(stream, H2_CLIENT, NGHTTP2_CANCEL);
        h2_stream_reset(stream, H2_SERVER, NGHTTP2_CANCEL);
    }
    for (enum h2_side side = H2_CLIENT; side < H2_SIDES; side++) {
        uint64_t begun = bridge->head_begun_us[side];
        h2_bridge_keep(bridge, side);
        if (begun && now_us - begun > H2_HEAD_US && !bridge->over[side]) h2_bridge_calm(bridge, side);
    }
    h2_bridge_reap(bridge);
}
