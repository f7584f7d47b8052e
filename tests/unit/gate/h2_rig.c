// SPDX-License-Identifier: Apache-2.0
#include "h2_rig.h"

struct rig rig;

// ---- peers ----

struct rig_seen *rig_seen(struct rig_peer *peer, int32_t id) {
    assert_in_range(id, 1, 2 * RIG_STREAMS - 1);
    struct rig_seen *seen = &peer->seen[id / 2];
    if (!seen->used) seen->reset = -1;
    seen->used = true;
    return seen;
}

static int peer_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name, size_t name_len,
                       const uint8_t *value, size_t value_len, uint8_t flags, void *data) {
    (void)session;
    struct rig_seen *seen = rig_seen(data, frame->hd.stream_id);
    size_t len = strlen(seen->fields);
    snprintf(seen->fields + len, sizeof(seen->fields) - len, "%s%.*s: %.*s\n", flags & NGHTTP2_NV_FLAG_NO_INDEX ? "!" : "",
             (int)name_len, (const char *)name, (int)value_len, (const char *)value);
    return 0;
}

static int peer_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *data) {
    (void)session;
    struct rig_seen *seen = rig_seen(data, frame->hd.stream_id);
    size_t len = strlen(seen->fields);
    snprintf(seen->fields + len, sizeof(seen->fields) - len, "-\n");
    return 0;
}

static int peer_frame(nghttp2_session *session, const nghttp2_frame *frame, void *data) {
    (void)session;
    struct rig_peer *peer = data;
    bool message = frame->hd.type == NGHTTP2_DATA || frame->hd.type == NGHTTP2_HEADERS;
    if (message && frame->hd.flags & NGHTTP2_FLAG_END_STREAM) rig_seen(peer, frame->hd.stream_id)->end = true;
    if (frame->hd.type == NGHTTP2_RST_STREAM) rig_seen(peer, frame->hd.stream_id)->reset = frame->rst_stream.error_code;
    if (frame->hd.type == NGHTTP2_PING && !(frame->hd.flags & NGHTTP2_FLAG_ACK)) peer->pings++;
    if (frame->hd.type == NGHTTP2_GOAWAY) {
        peer->goaway = frame->goaway.error_code;
        peer->goaway_last = frame->goaway.last_stream_id;
    }
    return 0;
}

static int peer_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *bytes, size_t len, void *data) {
    (void)flags;
    struct rig_peer *peer = data;
    struct rig_seen *seen = rig_seen(peer, id);
    size_t room = sizeof(seen->data) - 1 - (seen->data_len < sizeof(seen->data) ? seen->data_len : sizeof(seen->data) - 1);
    memcpy(seen->data + sizeof(seen->data) - 1 - room, bytes, len < room ? len : room);
    seen->data_len += len;
    if (!peer->holds_credit) assert_int_equal(nghttp2_session_consume(session, id, len), 0);
    return 0;
}

static nghttp2_session *peer_session(struct rig_peer *peer, bool server) {
    nghttp2_session_callbacks *calls;
    nghttp2_option *option;
    assert_int_equal(nghttp2_session_callbacks_new(&calls), 0);
    assert_int_equal(nghttp2_option_new(&option), 0);
    nghttp2_session_callbacks_set_on_header_callback(calls, peer_header);
    nghttp2_session_callbacks_set_on_begin_headers_callback(calls, peer_begin_headers);
    nghttp2_session_callbacks_set_on_frame_recv_callback(calls, peer_frame);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(calls, peer_data);
    nghttp2_option_set_no_auto_window_update(option, 1);
    nghttp2_option_set_max_send_header_block_length(option, 1 << 20);
    nghttp2_option_set_no_http_messaging(option, 1); // what is wrong is for the bridge to find
    nghttp2_session *session = NULL;
    if (server) assert_int_equal(nghttp2_session_server_new2(&session, calls, peer, option), 0);
    else assert_int_equal(nghttp2_session_client_new2(&session, calls, peer, option), 0);
    nghttp2_session_callbacks_del(calls);
    nghttp2_option_del(option);
    assert_int_equal(nghttp2_submit_settings(session, NGHTTP2_FLAG_NONE, NULL, 0), 0);
    return session;
}

static void peer_start(struct rig_peer *peer, bool server) {
    *peer = (struct rig_peer){.goaway = -1};
    peer->seen = NEW_ARRAY(struct rig_seen, RIG_STREAMS);
    peer->session = peer_session(peer, server);
}

static void peer_stop(struct rig_peer *peer) {
    nghttp2_session_del(peer->session);
    free(peer->seen);
}

static ssize_t peer_body(nghttp2_session *session, int32_t id, uint8_t *out, size_t room, uint32_t *flags,
                         nghttp2_data_source *source, void *data) {
    (void)data;
    struct rig_body *body = source->ptr;
    size_t len = body->left < room ? body->left : room, text_len = body->text ? strlen(body->text) : 1;
    for (size_t i = 0; i < len; i++) out[i] = (uint8_t)(body->text ? body->text : ".")[body->at++ % text_len];
    body->left -= len;
    if (body->left == 0 && !body->open) *flags |= NGHTTP2_DATA_FLAG_EOF;
    else if (len == 0) return NGHTTP2_ERR_DEFERRED;
    if (body->left > 0 || body->open || !body->trailers) return (ssize_t)len;
    *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
    assert_int_equal(nghttp2_submit_trailer(session, id, body->trailers, body->trailer_count), 0);
    return (ssize_t)len;
}

int32_t rig_request(const nghttp2_nv *fields, size_t count, const struct rig_body *body) {
    static int32_t next;
    next = (int32_t)nghttp2_session_get_next_stream_id(rig.client.session);
    struct rig_seen *seen = rig_seen(&rig.client, next);
    if (body) seen->body = *body;
    nghttp2_data_provider provider = {.source.ptr = &seen->body, .read_callback = peer_body};
    int32_t id = nghttp2_submit_request(rig.client.session, NULL, fields, count, body ? &provider : NULL, NULL);
    assert_int_equal(id, next);
    return id;
}

void rig_respond(int32_t id, const nghttp2_nv *fields, size_t count, const struct rig_body *body) {
    struct rig_seen *seen = rig_seen(&rig.server, id);
    if (body) seen->body = *body;
    nghttp2_data_provider provider = {.source.ptr = &seen->body, .read_callback = peer_body};
    assert_int_equal(nghttp2_submit_response(rig.server.session, id, fields, count, body ? &provider : NULL), 0);
}

void rig_continue(struct rig_peer *peer, int32_t id, size_t more, bool open) {
    struct rig_seen *seen = rig_seen(peer, id);
    seen->body.left += more;
    seen->body.open = open;
    (void)!nghttp2_session_resume_data(peer->session, id);
}

void rig_expect(const struct rig_seen *seen, const char *field) {
    if (!strstr(seen->fields, field)) fail_msg("no \"%s\" in:\n%s", field, seen->fields);
}

void rig_expect_not(const struct rig_seen *seen, const char *field) {
    if (strstr(seen->fields, field)) fail_msg("\"%s\" in:\n%s", field, seen->fields);
}

// ---- the owner ----

static void owner_request(struct h2_stream *stream, void *data) {
    (void)data;
    assert_in_range(rig.asked_count, 0, RIG_STREAMS - 1);
    rig.asked[rig.asked_count++] = stream;
}

static void owner_closed(struct h2_stream *stream, void *data) {
    (void)data;
    rig.closed++;
    for (size_t i = 0; i < rig.asked_count; i++)
        if (rig.asked[i] == stream) rig.asked[i] = NULL;
}

static void owner_wiped(struct injection *injection, void *data) {
    (void)data;
    assert_ptr_equal(injection, &rig.injection);
    rig.wiped++;
}

static void owner_failed(struct h2_stream *stream, void *data) {
    (void)data;
    rig.failed++;
    h2_stream_answer(stream, 502, "upstream_failed", "{}", 2);
}

static void owner_room(void *data) {
    (void)data;
    rig.room++;
}

static const struct h2_handlers owner = {.request = owner_request, .closed = owner_closed, .wiped = owner_wiped,
                                         .failed = owner_failed, .room = owner_room};

static void owner_forward(void) {
    for (size_t i = 0; i < rig.asked_count && !rig.holds; i++) {
        struct h2_stream *stream = rig.asked[i];
        if (!stream || stream->resetting[H2_CLIENT] || rig.bridge->over[H2_SERVER]) continue;
        if (!h2_bridge_room(rig.bridge, 0)) return;
        rig.asked[i] = NULL;
        h2_stream_forward(stream, rig.injection.count > 0 ? &rig.injection : NULL);
    }
}

// ---- bytes ----

size_t rig_held(void) {
    size_t held = 0;
    LIST_FOREACH(&rig.bridge->streams, node) {
        struct h2_stream *stream = LIST_ENTRY(node, struct h2_stream, link);
        for (enum h2_side side = H2_CLIENT; side < H2_SIDES; side++)
            if (stream->body[side].bytes) held += evbuffer_get_length(stream->body[side].bytes);
    }
    return held;
}

static struct rig_peer *rig_peer(enum h2_side side) { return side == H2_CLIENT ? &rig.client : &rig.server; }

static bool rig_take(enum h2_side side) {
    struct rig_peer *peer = rig_peer(side);
    bool any = false;
    while (!peer->error && !peer->raw && h2_bridge_wants(rig.bridge, side)) {
        const uint8_t *bytes;
        ssize_t len = nghttp2_session_mem_send(peer->session, &bytes);
        if (len <= 0) return any;
        uint8_t *copy = malloc((size_t)len); // of its own size, for the sanitizers
        memcpy(copy, bytes, (size_t)len);
        h2_bridge_receive(rig.bridge, side, copy, (size_t)len, rig.now_us);
        free(copy);
        any = true;
        size_t held = rig_held();
        if (held > rig.most_held) rig.most_held = held;
    }
    return any;
}

// A piece is one frame.
static void peer_note(struct rig_peer *peer, const uint8_t *bytes, size_t len) {
    uint32_t id = (uint32_t)bytes[5] << 24 | (uint32_t)bytes[6] << 16 | (uint32_t)bytes[7] << 8 | bytes[8];
    assert_in_range(len, 9, 16384 + 9);
    if (bytes[3] == NGHTTP2_RST_STREAM) rig_seen(peer, (int32_t)id)->reset = bytes[12];
    if (bytes[3] == NGHTTP2_GOAWAY) peer->goaway = bytes[16];
}

static void peer_read(struct rig_peer *peer, const uint8_t *bytes, size_t len) {
    if (peer->raw) peer_note(peer, bytes, len);
    else if (!peer->error && nghttp2_session_mem_recv(peer->session, bytes, len) < 0) peer->error = true;
}

static bool rig_give(enum h2_side side) {
    struct rig_peer *peer = rig_peer(side);
    bool any = false;
    for (;;) {
        const uint8_t *bytes = NULL;
        bool secret = false;
        if (peer->deaf) return any;
        ssize_t len = h2_bridge_send(rig.bridge, side, &bytes, &secret);
        if (len <= 0) return any;
        any = true;
        peer->got += (size_t)len;
        bool found = rig.secret && memmem(bytes, (size_t)len, rig.secret, strlen(rig.secret));
        if (found && !secret) fail_msg("a value in bytes that are not told to hold one");
        rig.secret_pieces += secret;
        peer_read(peer, bytes, (size_t)len);
        h2_bridge_sent(rig.bridge, side);
        for (ssize_t i = 0; secret && i < len; i++) assert_int_equal(bytes[i], 0);
    }
}

void rig_run(void) {
    for (bool any = true; any && !rig.bridge->broken;) {
        any = false;
        for (enum h2_side side = H2_CLIENT; side < H2_SIDES; side++) any |= rig_take(side);
        owner_forward();
        for (enum h2_side side = H2_CLIENT; side < H2_SIDES; side++) any |= rig_give(side);
    }
}

int rig_raw(enum h2_side side, const void *bytes, size_t len) {
    uint8_t *copy = malloc(len + !len);
    memcpy(copy, bytes, len);
    int rc = h2_bridge_receive(rig.bridge, side, copy, len, rig.now_us);
    free(copy);
    return rc;
}

size_t rig_frame(uint8_t *out, size_t len, uint8_t type, uint8_t flags, uint32_t id, const void *payload) {
    const uint8_t head[] = {(uint8_t)(len >> 16), (uint8_t)(len >> 8), (uint8_t)len, type, flags,
                            (uint8_t)(id >> 24), (uint8_t)(id >> 16), (uint8_t)(id >> 8), (uint8_t)id};
    memcpy(out, head, sizeof(head));
    if (len > 0) memcpy(out + sizeof(head), payload, len);
    return sizeof(head) + len;
}

void rig_start(bool upstream) {
    memset(&rig, 0, sizeof(rig));
    rig.now_us = 1000000;
    rig.budget.max = H2_BUDGET_BASE;
    assert_int_equal(h2_calls_load(NULL), 0);
    rig.bridge = h2_bridge_new(&owner, &rig, upstream, false, &rig.budget, rig.now_us);
    assert_non_null(rig.bridge);
    peer_start(&rig.client, false);
    peer_start(&rig.server, true);
    rig_run();
}

void rig_stop(void) {
    h2_bridge_free(rig.bridge);
    assert_int_equal(rig.budget.used, 0);
    peer_stop(&rig.client);
    peer_stop(&rig.server);
}
