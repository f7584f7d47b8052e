// SPDX-License-Identifier: Apache-2.0
// What a hostile client or server can make the bridge do and hold.
#include "h2_rig.h"

#define OK NV(":status", "200")
#define MEGABYTE 1048576

static uint8_t bytes[400000];

// A literal field without Huffman's code and without indexing.
static size_t literal(uint8_t *out, const char *name, const char *value) {
    size_t name_len = strlen(name), value_len = strlen(value);
    out[0] = 0;
    out[1] = (uint8_t)name_len;
    memcpy(out + 2, name, name_len);
    out[2 + name_len] = (uint8_t)value_len;
    memcpy(out + 3 + name_len, value, value_len);
    return 3 + name_len + value_len;
}

static size_t request_block(uint8_t *out) {
    size_t len = literal(out, ":method", "GET");
    len += literal(out + len, ":scheme", "https");
    len += literal(out + len, ":authority", "bound.test");
    return len + literal(out + len, ":path", "/");
}

static void frame(enum h2_side side, uint8_t type, uint8_t flags, uint32_t id, const void *payload, size_t len) {
    static uint8_t out[sizeof(bytes)];
    rig_raw(side, out, rig_frame(out, len, type, flags, id, payload));
}

static void open_raw(uint32_t id, bool end) {
    uint8_t block[256];
    size_t len = request_block(block);
    frame(H2_CLIENT, NGHTTP2_HEADERS, (uint8_t)(NGHTTP2_FLAG_END_HEADERS | (end ? NGHTTP2_FLAG_END_STREAM : 0)), id, block, len);
}

static void assert_calmed(struct rig_peer *peer, enum h2_side side) {
    assert_int_equal(peer->goaway, NGHTTP2_ENHANCE_YOUR_CALM);
    assert_true(rig.bridge->over[side]);
    if (side == H2_CLIENT) assert_true(h2_bridge_done(rig.bridge));
}

static void test_frames(void **state) {
    (void)state;
    static const struct {
        uint8_t type, flags;
        uint32_t id;
        size_t len;
    } rows[] = {
        {NGHTTP2_PING, 0, 0, 8}, {NGHTTP2_SETTINGS, 0, 0, 0}, {NGHTTP2_PRIORITY, 0, 3, 5}, {NGHTTP2_DATA, 0, 1, 0},
        {NGHTTP2_DATA, NGHTTP2_FLAG_PADDED, 1, 1}, {NGHTTP2_WINDOW_UPDATE, 0, 0, 4}, {NGHTTP2_WINDOW_UPDATE, 0, 1, 4},
    };
    static const uint8_t payload[8] = {0, 0, 0, 1};
    for (enum h2_side side = H2_CLIENT; side < H2_SIDES; side++) {
        for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
            if (rows[i].type == NGHTTP2_DATA && side == H2_SERVER) continue; // no response yet: a fault by itself
            rig_start(true);
            REQUEST((&(struct rig_body){.open = true}), POST);
            rig_run();
            (side == H2_CLIENT ? &rig.client : &rig.server)->raw = true;
            const uint8_t *what = rows[i].type == NGHTTP2_DATA ? payload + 1 : payload;
            for (unsigned n = 0; n < H2_FRAMES_BURST + 2000 && !rig.bridge->over[side]; n++) {
                frame(side, rows[i].type, rows[i].flags, rows[i].id, what, rows[i].len);
                if (n % 100 == 0) rig_run();
            }
            rig_run();
            assert_calmed(side == H2_CLIENT ? &rig.client : &rig.server, side);
            rig_stop();
        }
    }
}

// Whoever asks for answers and does not read them.
static void test_pings_unread(void **state) {
    (void)state;
    for (enum h2_side side = H2_CLIENT; side < H2_SIDES; side++) {
        rig_start(true);
        (side == H2_CLIENT ? &rig.client : &rig.server)->deaf = true;
        unsigned n = 0;
        for (; n < 5000 && h2_bridge_wants(rig.bridge, side); n++) frame(side, NGHTTP2_PING, 0, 0, bytes, 8);
        assert_int_equal(n, H2_QUEUE_MAX); // it is read no further
        assert_false(h2_bridge_wants(rig.bridge, side == H2_CLIENT ? H2_SERVER : H2_CLIENT));
        rig_stop();
    }
}

static void test_frames_spread(void **state) {
    (void)state;
    rig_start(true);
    for (unsigned n = 0; n < 20000; n++) {
        rig.now_us += 1000000 / H2_FRAMES_SECOND;
        frame(H2_CLIENT, NGHTTP2_PING, 0, 0, bytes, 8);
        if (n % 100 == 0) rig_run();
    }
    rig_run();
    assert_int_equal(rig.client.goaway, -1);
    rig_stop();
}

static void test_rapid_reset(void **state) {
    (void)state;
    for (int kind = 0; kind < 3; kind++) { // by the client; without an error; by us, since the client broke a rule
        rig_start(true);
        rig.client.raw = true;
        static const uint8_t payload[3][4] = {{0, 0, 0, NGHTTP2_CANCEL}, {0}, {0x7f, 0xff, 0xff, 0xff}};
        uint32_t id = 1;
        for (; id < 4000 && !rig.bridge->over[H2_CLIENT]; id += 2) {
            open_raw(id, false);
            if (kind == 2) frame(H2_CLIENT, NGHTTP2_WINDOW_UPDATE, 0, id, payload[2], 4);
            else frame(H2_CLIENT, NGHTTP2_RST_STREAM, 0, id, payload[kind], 4);
            assert_in_range(rig.bridge->stream_count, 0, H2_STREAMS_MAX);
            rig_run();
        }
        assert_in_range(id / 2, H2_RESETS_BURST, H2_RESETS_BURST + 2);
        assert_calmed(&rig.client, H2_CLIENT);
        rig_stop();
    }
}

static void test_many_streams(void **state) {
    (void)state;
    rig_start(true);
    rig.client.raw = true;
    for (uint32_t id = 1; id < 4000 && !rig.bridge->over[H2_CLIENT]; id += 2) {
        open_raw(id, true);
        assert_in_range(rig.bridge->stream_count, 0, H2_STREAMS_MAX);
        rig_run();
    }
    assert_true(rig.bridge->over[H2_CLIENT]);
    rig_stop();
}

static void test_continuation_flood(void **state) {
    (void)state;
    for (size_t len = 0; len < 100; len += 90) {
        rig_start(true);
        rig.client.raw = true;
        frame(H2_CLIENT, NGHTTP2_HEADERS, 0, 1, bytes, 0);
        uint8_t field[128];
        literal(field, "name", "0123456789012345678901234567890123456789012345678901234567890123456789012345678");
        unsigned n = 0;
        for (; n < 1000 && !rig.bridge->over[H2_CLIENT]; n++) {
            frame(H2_CLIENT, NGHTTP2_CONTINUATION, 0, 1, field, len == 0 ? 0 : 86);
            rig_run();
        }
        assert_in_range(n, 1, 20);
        assert_true(h2_bridge_done(rig.bridge));
        rig_stop();
    }
}

static void test_head_without_end(void **state) {
    (void)state;
    rig_start(true);
    rig.client.raw = true;
    frame(H2_CLIENT, NGHTTP2_HEADERS, 0, 1, bytes, 0);
    rig.now_us += H2_HEAD_US / 2;
    h2_bridge_tick(rig.bridge, rig.now_us);
    rig_run();
    assert_int_equal(rig.client.goaway, -1);
    rig.now_us += H2_HEAD_US;
    h2_bridge_tick(rig.bridge, rig.now_us);
    rig_run();
    assert_calmed(&rig.client, H2_CLIENT);
    rig_stop();
}

static const nghttp2_nv *large_fields(size_t *ret_count) {
    static char value[4001];
    static nghttp2_nv list[24];
    memset(value, 'v', sizeof(value) - 1);
    const nghttp2_nv first[] = {GET};
    memcpy(list, first, sizeof(first));
    for (size_t i = 4; i < 24; i++) list[i] = (nghttp2_nv)NV("x-large", value);
    *ret_count = 24;
    return list;
}

static void test_large_head(void **state) {
    (void)state;
    rig_start(true);
    rig.holds = true;
    size_t count;
    const nghttp2_nv *fields = large_fields(&count);
    rig_request(fields, count, NULL);
    REQUEST(NULL, GET);
    rig_run();
    assert_int_equal(rig.asked_count, 2);
    assert_true(rig.asked[0]->head.too_large);
    assert_false(rig.asked[1]->head.too_large);
    assert_in_range(rig.bridge->heads_len, H2_HEAD_MAX / 2, H2_HEAD_MAX + 1000);
    h2_stream_answer(rig.asked[0], 431, "bad_request", "{}", 2);
    rig_run();
    rig_expect(rig_seen(&rig.client, 1), ":status: 431\n");
    assert_true(rig_seen(&rig.client, 1)->end);
    // Many that are just not too large.
    for (int i = 0; i < 60; i++) rig_request(fields, 4 + 15, NULL);
    rig_run();
    size_t refused = 0;
    for (size_t i = 2; i < rig.asked_count; i++) refused += rig.asked[i]->head.too_large;
    assert_in_range(refused, 30, 50);
    assert_in_range(rig.bridge->heads_len, 0, H2_HEADS_MAX + H2_HEAD_MAX);
    rig_stop();
}

static void test_large_response_head(void **state) {
    (void)state;
    rig_start(true);
    int32_t id = REQUEST(NULL, GET);
    rig_run();
    size_t count;
    nghttp2_nv fields[24];
    memcpy(fields, large_fields(&count), sizeof(fields));
    fields[0] = (nghttp2_nv)OK;
    memmove(fields + 1, fields + 4, 20 * sizeof(*fields));
    rig_respond(1, fields, 21, NULL);
    rig_run();
    rig_expect(rig_seen(&rig.client, id), ":status: 502\n");
    assert_true(rig_seen(&rig.client, id)->end);
    assert_int_equal(rig.bridge->stream_count, 0);
    rig_stop();
}

// One large field in the table of HPACK, then a byte for each copy of it.
static void test_hpack_bomb(void **state) {
    (void)state;
    rig_start(true);
    rig.client.raw = true;
    rig.holds = true;
    uint8_t *block = bytes;
    size_t len = request_block(block);
    static const uint8_t large[] = {0x40, 1, 'x', 0x7f, 0x80 | (3800 - 127) % 128, (3800 - 127) / 128};
    memcpy(block + len, large, sizeof(large));
    memset(block + len + sizeof(large), 'v', 3800);
    len += sizeof(large) + 3800;
    memset(block + len, 0x80 | 62, 16000 - len);
    frame(H2_CLIENT, NGHTTP2_HEADERS, NGHTTP2_FLAG_END_STREAM, 1, block, 16000);
    memset(block, 0x80 | 62, 16000);
    for (int i = 0; i < 4; i++) frame(H2_CLIENT, NGHTTP2_CONTINUATION, i == 3 ? NGHTTP2_FLAG_END_HEADERS : 0, 1, block, 16000);
    rig_run();
    assert_int_equal(rig.asked_count, 1);
    assert_true(rig.asked[0]->head.too_large);
    assert_in_range(rig.asked[0]->head.size, 0, 2 * H2_HEAD_MAX);
    assert_in_range(rig.bridge->memory[H2_CLIENT].used, 0, MEGABYTE);
    rig_stop();
}

static void test_malformed_requests(void **state) {
    (void)state;
    static const struct {
        const char *name, *value;
    } rows[] = {
        {"connection", "close"}, {"transfer-encoding", "chunked"}, {"upgrade", "h2c"}, {"keep-alive", "1"},
        {"proxy-connection", "close"}, {"te", "gzip"}, {"a", "b\nc: d"}, {"a", "b\rc"}, {"a b", "c"}, {"a:", "b"},
        {":method", "PUT"}, {":authority", "other.test"}, {":unknown", "1"}, {":protocol", "websocket"},
        {":status", "200"}, {"", "b"}, {"host", ""}, {"content-length", "1x"}, {"A", "b"},
    };
    rig_start(true);
    rig.client.raw = true;
    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        uint8_t block[512];
        size_t len = request_block(block);
        len += literal(block + len, rows[i].name, rows[i].value);
        uint32_t id = (uint32_t)(2 * i + 1);
        frame(H2_CLIENT, NGHTTP2_HEADERS, NGHTTP2_FLAG_END_HEADERS | NGHTTP2_FLAG_END_STREAM, id, block, len);
        rig_run();
        assert_int_equal(rig_seen(&rig.client, (int32_t)id)->reset, NGHTTP2_PROTOCOL_ERROR);
        if (rig.bridge->stream_count != 0) fail_msg("%s: %s is taken", rows[i].name, rows[i].value);
        assert_string_equal(rig_seen(&rig.server, (int32_t)id)->fields, "");
    }
    assert_int_equal(rig.asked_count, 0);
    assert_false(rig.bridge->over[H2_CLIENT]);
    rig_stop();
}

static void test_not_http2(void **state) {
    (void)state;
    static const struct h2_handlers none;
    assert_int_equal(h2_calls_load(NULL), 0);
    struct h2_budget budget = {.max = H2_BUDGET_BASE};
    struct h2_bridge *bridge = h2_bridge_new(&none, NULL, true, true, &budget, 1);
    assert_int_equal(h2_bridge_receive(bridge, H2_CLIENT, (const uint8_t *)"GET / HTTP/1.1\r\nHost: a\r\n\r\n", 27, 1), -ECONNABORTED);
    assert_true(h2_bridge_done(bridge));
    h2_bridge_free(bridge);
    rig_start(true);
    int32_t id = REQUEST(NULL, GET);
    rig_run();
    rig_raw(H2_SERVER, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 38);
    rig_run();
    rig_expect(rig_seen(&rig.client, id), ":status: 502\n");
    assert_true(rig.bridge->over[H2_SERVER]);
    rig_stop();
}

static void test_bad_server(void **state) {
    (void)state;
    rig_start(true);
    int32_t id = REQUEST(NULL, GET);
    rig_run();
    uint8_t block[64] = {0, 0, 0, 2};
    request_block(block + 4);
    frame(H2_SERVER, NGHTTP2_PUSH_PROMISE, NGHTTP2_FLAG_END_HEADERS, 1, block, 60); // never offered
    rig_run();
    assert_true(rig.bridge->over[H2_SERVER]);
    assert_int_equal(rig.server.goaway, NGHTTP2_PROTOCOL_ERROR);
    rig_expect(rig_seen(&rig.client, id), ":status: 502\n");
    rig_stop();
    static const char *const statuses[] = {"101", "000", "099", "2000", "abc", ""};
    for (size_t i = 0; i < ARRAY_LENGTH(statuses); i++) {
        rig_start(true);
        id = REQUEST(NULL, GET);
        rig_run();
        RESPOND(1, NULL, NV(":status", statuses[i]));
        rig_run();
        assert_int_equal(rig.bridge->stream_count, 0);
        assert_true(rig_seen(&rig.server, 1)->reset >= 0);
        assert_true(rig_seen(&rig.client, id)->reset >= 0 || strstr(rig_seen(&rig.client, id)->fields, "502"));
        rig_stop();
    }
}

// ---- bodies that nobody takes ----

static void test_unread(void **state) {
    (void)state;
    for (int up = 0; up < 2; up++) {
        rig_start(true);
        rig.server.holds_credit = up;
        for (int i = 0; i < 50; i++) {
            if (up) REQUEST((&(struct rig_body){.left = 10 * MEGABYTE}), POST);
            else REQUEST(NULL, GET);
        }
        rig_run();
        rig.client.holds_credit = true;
        for (int32_t id = 1; id < 100 && !up; id += 2) RESPOND(id, (&(struct rig_body){.left = 10 * MEGABYTE}), OK);
        rig_run();
        assert_in_range(rig.most_held, H2_WINDOW_ALL / 2, H2_WINDOW_ALL);
        // Not even for ever.
        rig.now_us += H2_STALL_US + 1;
        h2_bridge_tick(rig.bridge, rig.now_us);
        rig_run();
        assert_int_equal(rig_held(), 0);
        assert_int_equal(rig.bridge->forwarded_count < 50, 1);
        rig_stop();
    }
}

static void test_deaf(void **state) {
    (void)state;
    for (enum h2_side side = H2_CLIENT; side < H2_SIDES; side++) {
        rig_start(true);
        for (int i = 0; i < 50; i++) REQUEST((&(struct rig_body){.left = 10 * MEGABYTE}), POST);
        rig_run();
        (side == H2_CLIENT ? &rig.client : &rig.server)->deaf = true;
        for (int32_t id = 1; id < 100; id += 2) RESPOND(id, (&(struct rig_body){.left = 10 * MEGABYTE}), OK);
        rig_run();
        assert_in_range(rig_held(), 0, H2_WINDOW_ALL);
        assert_in_range(rig.bridge->memory[side].used, 0, MEGABYTE);
        rig_stop();
    }
}

// What a client that does not read, or gives no credit, and a server with large heads and trailers can make us hold.
static void test_heads_unread(void **state) {
    (void)state;
    size_t count;
    nghttp2_nv fields[16];
    memcpy(fields, large_fields(&count), sizeof(fields));
    fields[0] = (nghttp2_nv)OK;
    memmove(fields + 1, fields + 4, 12 * sizeof(*fields));
    for (int trailers = 0; trailers < 2; trailers++) {
        rig_start(true);
        for (int i = 0; i < 100; i++) REQUEST(NULL, GET);
        rig_run();
        struct rig_body body = {.left = 20000, .trailers = fields + 1, .trailer_count = 12};
        size_t before = rig.bridge->memory[H2_CLIENT].used;
        rig.client.deaf = !trailers;
        rig.client.holds_credit = true;
        for (int32_t id = 1; id < 200; id += 2) {
            if (trailers) RESPOND(id, &body, OK);
            else rig_respond(id, fields, 13, NULL);
        }
        rig_run();
        assert_in_range(before, 1, H2_MEMORY_MAX_SMALL / H2_MEMORY_FULL_SHARE / 2); // many streams alone do not fill it
        assert_in_range(rig.bridge->memory[H2_CLIENT].used, 0, 1.5 * MEGABYTE);
        assert_in_range(rig.bridge->heads_len, 0, H2_HEADS_MAX + H2_HEAD_MAX);
        assert_in_range(rig.budget.used, MEGABYTE / 2, 3 * MEGABYTE);
        rig.client.deaf = false;
        rig_run();
        size_t whole = 0;
        for (int32_t id = 1; id < 200; id += 2) whole += rig_seen(&rig.client, id)->end;
        if (!trailers) assert_int_equal(whole, 100); // it was only held up
        rig_stop();
    }
}

// A client's trailers wait like a server's.
static void test_trailers_of_requests(void **state) {
    (void)state;
    size_t count;
    const nghttp2_nv *fields = large_fields(&count) + 4;
    rig_start(true);
    rig.server.holds_credit = true;
    struct rig_body body = {.left = 20000, .trailers = fields, .trailer_count = 12};
    for (int i = 0; i < 100; i++) REQUEST(&body, POST);
    rig_run();
    assert_in_range(rig.bridge->heads_len, 0, H2_HEADS_MAX + H2_HEAD_MAX);
    rig_stop();
}

// What all connections have together is used up: this one ends, or its head is too large, and nothing is kept.
static void test_budget(void **state) {
    (void)state;
    size_t count;
    const nghttp2_nv *fields = large_fields(&count);
    rig_start(true);
    rig.holds = true;
    rig.budget.max = rig.budget.used + 100000;
    rig_request(fields, 4 + 10, NULL);
    rig_run();
    assert_false(rig.asked[0]->head.too_large);
    for (int i = 0; i < 3; i++) rig_request(fields, 4 + 15, NULL);
    rig_run();
    assert_true(rig.bridge->broken || rig.asked[1]->head.too_large);
    assert_in_range(rig.budget.used, 0, rig.budget.max + H2_HEAD_MAX);
    rig_stop();
}

// Of streams that end before their bodies have gone on, no credit is lost: what comes later still goes through.
static void test_credit_comes_back(void **state) {
    (void)state;
    rig_start(true);
    for (int round = 0; round < 30; round++) {
        rig.now_us += 1000000;
        int32_t up = REQUEST((&(struct rig_body){.left = 300000, .open = true}), POST);
        REQUEST(NULL, GET);
        rig_run();
        RESPOND(nghttp2_session_get_last_proc_stream_id(rig.server.session), (&(struct rig_body){.left = 300000, .open = true}), OK);
        rig.holds = round % 2; // one that waits for its owner
        int32_t waits = REQUEST((&(struct rig_body){.left = 300000, .open = true}), POST);
        rig.client.deaf = rig.server.deaf = true;
        rig_run();
        for (int32_t id = up; id <= waits; id += 2)
            assert_int_equal(nghttp2_submit_rst_stream(rig.client.session, NGHTTP2_FLAG_NONE, id, NGHTTP2_CANCEL), 0);
        rig_run();
        rig.client.deaf = rig.server.deaf = rig.holds = false;
        rig_run();
        assert_int_equal(rig.bridge->stream_count, 0);
        assert_int_equal(rig_held(), 0);
    }
    int32_t id = REQUEST((&(struct rig_body){.left = 20 * MEGABYTE}), POST);
    rig_run();
    int32_t up = nghttp2_session_get_last_proc_stream_id(rig.server.session); // fewer streams got there
    RESPOND(up, (&(struct rig_body){.left = 20 * MEGABYTE}), OK);
    rig_run();
    assert_int_equal(rig_seen(&rig.server, up)->data_len, 20 * MEGABYTE);
    assert_int_equal(rig_seen(&rig.client, id)->data_len, 20 * MEGABYTE);
    assert_true(rig_seen(&rig.client, id)->end);
    rig_stop();
}

static void test_no_server_credit_for_our_answer(void **state) {
    (void)state;
    rig_start(true);
    rig.holds = true;
    int32_t id = REQUEST(NULL, GET);
    rig_run();
    static char body[200000];
    memset(body, ' ', sizeof(body));
    h2_stream_answer(rig.asked[0], 403, "base_denied", body, sizeof(body));
    rig_run();
    assert_int_equal(rig_seen(&rig.client, id)->data_len, sizeof(body));
    assert_int_equal(nghttp2_session_get_effective_recv_data_length(rig.bridge->sessions[H2_SERVER]), 0);
    rig_stop();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_frames), cmocka_unit_test(test_pings_unread), cmocka_unit_test(test_frames_spread),
        cmocka_unit_test(test_rapid_reset), cmocka_unit_test(test_many_streams), cmocka_unit_test(test_continuation_flood),
        cmocka_unit_test(test_head_without_end), cmocka_unit_test(test_large_head), cmocka_unit_test(test_large_response_head),
        cmocka_unit_test(test_hpack_bomb), cmocka_unit_test(test_malformed_requests), cmocka_unit_test(test_not_http2),
        cmocka_unit_test(test_bad_server), cmocka_unit_test(test_unread), cmocka_unit_test(test_deaf),
        cmocka_unit_test(test_credit_comes_back), cmocka_unit_test(test_no_server_credit_for_our_answer),
        cmocka_unit_test(test_heads_unread), cmocka_unit_test(test_trailers_of_requests), cmocka_unit_test(test_budget),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
