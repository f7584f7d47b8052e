// SPDX-License-Identifier: Apache-2.0
// HTTP/2 through the bridge as it should be: what comes out at the other side of each thing that a client or server
// may do.
#include "h2_rig.h"

#define OK NV(":status", "200")

static void test_plain(void **state) {
    (void)state;
    rig_start(true);
    int32_t id = REQUEST(NULL, GET, NV("b", "2"), NV("a", "1"), NV("c", "x=1"), NV("c", "y=2"), NV("te", "trailers"));
    rig_run();
    struct rig_seen *asked = rig_seen(&rig.server, 1);
    assert_string_equal(asked->fields, "-\n:method: GET\n:scheme: https\n:authority: bound.test\n:path: /\nb: 2\na: 1\n"
                                       "c: x=1\nc: y=2\nte: trailers\n");
    assert_true(asked->end);
    RESPOND(1, (&(struct rig_body){.left = 5, .text = "hello"}), OK, NV("content-length", "5"));
    rig_run();
    struct rig_seen *got = rig_seen(&rig.client, id);
    assert_string_equal(got->fields, "-\n:status: 200\ncontent-length: 5\n");
    assert_string_equal(got->data, "hello");
    assert_true(got->end);
    assert_int_equal(got->reset, -1);
    assert_int_equal(rig.bridge->stream_count, 0);
    assert_int_equal(rig.bridge->forwarded_count, 0);
    assert_int_equal(rig.bridge->heads_len, 0);
    rig_stop();
}

static void inject(const char *header, const char *value, bool scrub) {
    struct injection_value *next = &rig.injection.values[rig.injection.count++];
    *next = (struct injection_value){.header = header, .bytes = value, .len = strlen(value), .scrub = scrub};
}

static void test_injection(void **state) {
    (void)state;
    rig_start(true);
    static const char value[] = "Bearer {{{{{{{{{{{{{{{{secret}}}}}}}}}}}}}}}}"; // shorter without Huffman's code
    inject("Authorization", value, false);
    inject("X-Key", "k", false);
    rig.secret = "{{{{secret}}}}";
    const nghttp2_nv mine = {(uint8_t *)(uintptr_t) "x-mine", (uint8_t *)(uintptr_t) "m", 6, 1, NGHTTP2_NV_FLAG_NO_INDEX};
    REQUEST(NULL, GET, NV("authorization", "own"), mine, NV("x-key", "own"), NV("z", "1"), NV("authorization", "again"));
    rig_run();
    struct rig_seen *asked = rig_seen(&rig.server, 1);
    assert_string_equal(asked->fields, "-\n:method: GET\n:scheme: https\n:authority: bound.test\n:path: /\n!x-mine: m\nz: 1\n"
                                       "!authorization: Bearer {{{{{{{{{{{{{{{{secret}}}}}}}}}}}}}}}}\n!x-key: k\n");
    assert_int_equal(rig.wiped, 1);
    assert_int_equal(rig.secret_pieces, 1);
    // The next request has them again, in full: nothing was indexed.
    REQUEST(NULL, GET);
    rig_run();
    rig_expect(rig_seen(&rig.server, 3), "!authorization: Bearer {{{{");
    assert_int_equal(rig.wiped, 2);
    assert_int_equal(rig.secret_pieces, 2);
    rig_stop();
}

// Where the method or the path decided that it gets a credential, nothing may say another one.
static void test_overrides(void **state) {
    (void)state;
    for (int conditional = 0; conditional < 2; conditional++) {
        rig_start(true);
        inject("x-key", "k", false);
        rig.injection.conditional = conditional;
        REQUEST(NULL, GET, NV("x-http-method-override", "PUT"), NV("x_original_url", "/b"), NV("x-rewrite-url", "/b"), NV("z", "1"));
        rig_run();
        const struct rig_seen *asked = rig_seen(&rig.server, 1);
        if (conditional) assert_string_equal(asked->fields, "-\n:method: GET\n:scheme: https\n:authority: bound.test\n:path: /\nz: 1\n!x-key: k\n");
        else rig_expect(asked, "x-http-method-override: PUT\nx_original_url: /b\nx-rewrite-url: /b\n");
        rig_stop();
    }
}

// Longer than a frame: the values go on in CONTINUATION frames, each of which is told to hold some.
static void test_injection_long(void **state) {
    (void)state;
    rig_start(true);
    static char value[32001];
    memset(value, '{', sizeof(value) - 1);
    inject("x-long", value, false);
    rig.secret = "{{{{{{{{";
    REQUEST(NULL, GET);
    rig_run();
    rig_expect(rig_seen(&rig.server, 1), "!x-long: {{{{{{{{");
    assert_int_equal(rig.secret_pieces, 2);
    assert_int_equal(rig.wiped, 1);
    rig_stop();
}

static void test_trailers(void **state) {
    (void)state;
    rig_start(true);
    inject("X-Key", "k", false);
    const nghttp2_nv up[] = {NV("x-up", "1"), NV("x-key", "smuggled")}, down[] = {NV("grpc-status", "0")};
    int32_t id = REQUEST((&(struct rig_body){.left = 3, .text = "abc", .trailers = up, .trailer_count = 2}), POST);
    rig_run();
    struct rig_seen *asked = rig_seen(&rig.server, 1), *got = rig_seen(&rig.client, id);
    rig_expect(asked, "!x-key: k\n-\nx-up: 1\n");
    rig_expect_not(asked, "smuggled");
    assert_string_equal(asked->data, "abc");
    assert_true(asked->end);
    RESPOND(1, (&(struct rig_body){.left = 4, .text = "down", .trailers = down, .trailer_count = 1}), OK);
    rig_run();
    assert_string_equal(got->fields, "-\n:status: 200\n-\ngrpc-status: 0\n");
    assert_string_equal(got->data, "down");
    assert_true(got->end);
    // Trailers behind no body at all.
    id = REQUEST((&(struct rig_body){.trailers = up, .trailer_count = 1}), POST);
    rig_run();
    rig_expect(rig_seen(&rig.server, 3), "-\nx-up: 1\n");
    RESPOND(3, (&(struct rig_body){.trailers = down, .trailer_count = 1}), OK);
    rig_run();
    assert_string_equal(rig_seen(&rig.client, id)->fields, "-\n:status: 200\n-\ngrpc-status: 0\n");
    assert_true(rig_seen(&rig.client, id)->end);
    rig_stop();
}

static void interim(int32_t id, const char *status) {
    const nghttp2_nv fields[] = {NV(":status", status), NV("link", "</a>")};
    assert_true(nghttp2_submit_headers(rig.server.session, NGHTTP2_FLAG_NONE, id, NULL, fields, 2, NULL) >= 0);
    rig_run();
}

static void test_interim(void **state) {
    (void)state;
    rig_start(true);
    int32_t id = REQUEST((&(struct rig_body){.open = true}), POST, NV("expect", "100-continue"));
    rig_run();
    interim(1, "100");
    assert_string_equal(rig_seen(&rig.client, id)->fields, "-\n:status: 100\nlink: </a>\n");
    rig_continue(&rig.client, id, 10, false);
    rig_run();
    assert_int_equal(rig_seen(&rig.server, 1)->data_len, 10);
    interim(1, "103");
    RESPOND(1, NULL, NV(":status", "204"));
    rig_run();
    assert_string_equal(rig_seen(&rig.client, id)->fields,
                        "-\n:status: 100\nlink: </a>\n-\n:status: 103\nlink: </a>\n-\n:status: 204\n");
    assert_true(rig_seen(&rig.client, id)->end);
    // Without end: the request fails, the connection goes on.
    id = REQUEST(NULL, GET);
    rig_run();
    for (int i = 0; i <= H2_INTERIM_MAX && rig_seen(&rig.server, 3)->reset < 0; i++) interim(3, "103");
    assert_int_equal(rig_seen(&rig.server, 3)->reset, NGHTTP2_PROTOCOL_ERROR);
    rig_expect(rig_seen(&rig.client, id), ":status: 502\n");
    assert_true(rig_seen(&rig.client, id)->end);
    assert_int_equal(rig.bridge->stream_count, 0);
    rig_stop();
}

static void test_no_bodies(void **state) {
    (void)state;
    rig_start(true);
    int32_t id = REQUEST(NULL, NV(":method", "HEAD"), NV(":scheme", "https"), NV(":authority", "bound.test"), NV(":path", "/"));
    REQUEST(NULL, GET);
    REQUEST(NULL, GET);
    REQUEST((&(struct rig_body){0}), POST, NV("content-length", "0")); // its end comes by itself, in an empty frame
    rig_run();
    assert_true(rig_seen(&rig.server, 7)->end);
    RESPOND(1, NULL, OK, NV("content-length", "1000"));
    RESPOND(3, NULL, NV(":status", "204"));
    RESPOND(5, NULL, NV(":status", "304"), NV("content-length", "1000"));
    RESPOND(7, (&(struct rig_body){0}), OK); // a response whose end comes by itself
    rig_run();
    assert_string_equal(rig_seen(&rig.client, id)->fields, "-\n:status: 200\ncontent-length: 1000\n");
    for (int i = 0; i < 8; i += 2) {
        assert_true(rig_seen(&rig.client, id + i)->end);
        assert_int_equal(rig_seen(&rig.client, id + i)->reset, -1);
        assert_int_equal(rig_seen(&rig.client, id + i)->data_len, 0);
    }
    rig_stop();
}

static void reset(struct rig_peer *peer, int32_t id, uint32_t code) {
    assert_int_equal(nghttp2_submit_rst_stream(peer->session, NGHTTP2_FLAG_NONE, id, code), 0);
    rig_run();
}

static void test_resets(void **state) {
    (void)state;
    rig_start(true);
    static const uint32_t codes[] = {NGHTTP2_NO_ERROR, NGHTTP2_CANCEL, NGHTTP2_REFUSED_STREAM, NGHTTP2_HTTP_1_1_REQUIRED, 4711};
    for (size_t i = 0; i < ARRAY_LENGTH(codes); i++) {
        int32_t up = REQUEST((&(struct rig_body){.left = 100, .open = true}), POST);
        int32_t down = REQUEST((&(struct rig_body){.left = 100, .open = true}), POST);
        rig_run();
        RESPOND(up, (&(struct rig_body){.left = 100, .open = true}), OK);
        rig_run();
        reset(&rig.client, up, codes[i]);
        reset(&rig.server, down, codes[i]);
        assert_int_equal(rig_seen(&rig.server, up)->reset, codes[i]);
        assert_int_equal(rig_seen(&rig.client, down)->reset, codes[i]);
        assert_int_equal(rig.bridge->stream_count, 0);
        assert_int_equal(rig.bridge->forwarded_count, 0);
    }
    // A client that has sent all, and does not want the rest: not even without an error may the server go on for
    // nobody.
    int32_t id = REQUEST(NULL, GET);
    rig_run();
    RESPOND(id, (&(struct rig_body){.left = 100, .open = true}), OK);
    rig_run();
    reset(&rig.client, id, NGHTTP2_NO_ERROR);
    assert_int_equal(rig_seen(&rig.server, id)->reset, NGHTTP2_NO_ERROR);
    rig_stop();
}

// The client gives up before the owner has decided: the server never hears of it.
static void test_reset_before_forward(void **state) {
    (void)state;
    rig_start(true);
    rig.holds = true;
    int32_t id = REQUEST((&(struct rig_body){.left = 100, .open = true}), POST);
    rig_run();
    assert_int_equal(rig.asked_count, 1);
    reset(&rig.client, id, NGHTTP2_CANCEL);
    assert_int_equal(rig.closed, 1);
    assert_int_equal(rig.bridge->stream_count, 0);
    rig.holds = false;
    rig_run();
    assert_string_equal(rig_seen(&rig.server, 1)->fields, "");
    // And after it has, before a byte went out.
    inject("x-key", "k", false);
    rig.server.deaf = true;
    id = REQUEST(NULL, GET);
    rig_run();
    reset(&rig.client, id, NGHTTP2_CANCEL);
    rig.server.deaf = false;
    rig_run();
    assert_int_equal(rig.wiped, 1);
    assert_int_equal(rig.bridge->stream_count, 0);
    assert_int_equal(rig.bridge->forwarded_count, 0);
    rig_stop();
}

static void test_early_response(void **state) {
    (void)state;
    rig_start(true);
    int32_t id = REQUEST((&(struct rig_body){.left = 100, .open = true}), POST);
    rig_run();
    RESPOND(1, (&(struct rig_body){.left = 4, .text = "full"}), NV(":status", "413"));
    rig_run();
    struct rig_seen *got = rig_seen(&rig.client, id);
    assert_string_equal(got->data, "full");
    assert_true(got->end);
    assert_int_equal(got->reset, -1); // the server may still read
    rig_continue(&rig.client, id, 1000, true);
    rig_run();
    assert_int_equal(rig_seen(&rig.server, 1)->data_len, 1100);
    reset(&rig.server, 1, NGHTTP2_NO_ERROR);
    assert_int_equal(got->reset, NGHTTP2_NO_ERROR);
    assert_int_equal(rig.bridge->stream_count, 0);
    // Both at once, to a client that reads late: the whole response comes before the reset.
    id = REQUEST((&(struct rig_body){.left = 100, .open = true}), POST);
    rig_run();
    rig.client.deaf = true;
    RESPOND(3, (&(struct rig_body){.left = 40000}), NV(":status", "413"));
    rig_run();
    reset(&rig.server, 3, NGHTTP2_NO_ERROR);
    rig.client.deaf = false;
    rig_run();
    got = rig_seen(&rig.client, id);
    assert_int_equal(got->data_len, 40000);
    assert_true(got->end);
    assert_int_equal(got->reset, NGHTTP2_NO_ERROR);
    assert_int_equal(rig.bridge->stream_count, 0);
    rig_stop();
}

// A response of our own to one stream of several.
static void test_answer(void **state) {
    (void)state;
    rig_start(true);
    int32_t other = REQUEST(NULL, GET);
    rig_run();
    rig.holds = true;
    int32_t id = REQUEST((&(struct rig_body){.left = 100000, .open = true}), POST);
    int32_t head = REQUEST(NULL, NV(":method", "HEAD"), NV(":scheme", "https"), NV(":authority", "o"), NV(":path", "/"));
    rig_run();
    for (size_t i = 0; i < 3; i++)
        if (rig.asked[i]) h2_stream_answer(rig.asked[i], 421, "name_mismatch", "{\"a\":1}", 7);
    rig_run();
    struct rig_seen *got = rig_seen(&rig.client, id);
    rig_expect(got, ":status: 421\ncontent-type: application/json\ncontent-length: 7\nx-penstock-reason: name_mismatch\n");
    assert_string_equal(got->data, "{\"a\":1}");
    assert_true(got->end);
    assert_int_equal(got->reset, NGHTTP2_NO_ERROR); // it need not send the rest
    assert_int_equal(rig_seen(&rig.client, head)->data_len, 0);
    assert_true(rig_seen(&rig.client, head)->end);
    RESPOND(1, NULL, OK);
    rig_run();
    assert_true(rig_seen(&rig.client, other)->end);
    assert_string_equal(rig_seen(&rig.server, 3)->fields, "");
    assert_int_equal(rig.bridge->stream_count, 0);
    rig_stop();
}

static void test_goaway_of_server(void **state) {
    (void)state;
    rig_start(true);
    int32_t first = REQUEST(NULL, GET), second = REQUEST(NULL, GET);
    rig_run();
    rig.holds = true;
    int32_t third = REQUEST(NULL, GET);
    rig_run();
    assert_int_equal(nghttp2_submit_goaway(rig.server.session, NGHTTP2_FLAG_NONE, 1, NGHTTP2_ENHANCE_YOUR_CALM, NULL, 0), 0);
    rig_run();
    assert_int_equal(rig.client.goaway, NGHTTP2_ENHANCE_YOUR_CALM);
    assert_int_equal(rig_seen(&rig.client, second)->reset, NGHTTP2_REFUSED_STREAM);
    assert_int_equal(rig_seen(&rig.client, third)->reset, NGHTTP2_REFUSED_STREAM);
    assert_false(h2_bridge_done(rig.bridge));
    RESPOND(1, (&(struct rig_body){.left = 3}), OK); // what the server has taken ends well
    rig_run();
    assert_true(rig_seen(&rig.client, first)->end);
    assert_true(h2_bridge_done(rig.bridge));
    rig_stop();
}

static void test_goaway_of_client(void **state) {
    (void)state;
    rig_start(true);
    int32_t id = REQUEST(NULL, GET);
    rig_run();
    assert_int_equal(nghttp2_submit_goaway(rig.client.session, NGHTTP2_FLAG_NONE, 0, NGHTTP2_NO_ERROR, NULL, 0), 0);
    rig_run();
    RESPOND(1, (&(struct rig_body){.left = 3}), OK);
    rig_run();
    assert_true(rig_seen(&rig.client, id)->end);
    assert_true(h2_bridge_done(rig.bridge));
    rig_run();
    assert_int_equal(rig.server.goaway, NGHTTP2_NO_ERROR);
    rig_stop();
}

static void test_shut(void **state) {
    (void)state;
    rig_start(true);
    h2_bridge_shut(rig.bridge, NGHTTP2_NO_ERROR);
    rig_run();
    assert_int_equal(rig.client.goaway, NGHTTP2_NO_ERROR);
    assert_int_equal(rig.server.goaway, NGHTTP2_NO_ERROR);
    assert_true(h2_bridge_done(rig.bridge));
    rig_stop();
}

static void test_room(void **state) {
    (void)state;
    rig_start(true);
    const nghttp2_settings_entry few[] = {{NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, 2}};
    assert_int_equal(nghttp2_submit_settings(rig.server.session, NGHTTP2_FLAG_NONE, few, 1), 0);
    rig_run();
    assert_in_range(rig.room, 1, 9);
    for (int i = 0; i < 5; i++) REQUEST(NULL, GET);
    rig_run();
    assert_string_not_equal(rig_seen(&rig.server, 3)->fields, "");
    assert_string_equal(rig_seen(&rig.server, 5)->fields, "");
    for (int32_t id = 1; id <= 9; id += 2) {
        RESPOND(id, NULL, OK);
        rig_run();
        assert_true(rig_seen(&rig.client, id)->end);
    }
    rig_stop();
}

static void test_pings(void **state) {
    (void)state;
    rig_start(true);
    assert_int_equal(nghttp2_submit_ping(rig.client.session, NGHTTP2_FLAG_NONE, (const uint8_t *)"12345678"), 0);
    size_t got = rig.client.got;
    rig_run();
    assert_int_equal(rig.client.got - got, 17); // the answer, and by us
    assert_int_equal(rig.server.pings, 0);
    // But a client that keeps a silent stream alive does so for both connections, now and then.
    REQUEST(NULL, GET);
    rig_run();
    for (int minute = 0; minute < 20; minute++) {
        rig.now_us += 60000000;
        assert_int_equal(nghttp2_submit_ping(rig.client.session, NGHTTP2_FLAG_NONE, NULL), 0);
        rig_run();
        h2_bridge_tick(rig.bridge, rig.now_us);
        rig_run();
    }
    assert_in_range(rig.server.pings, 2, 3);
    assert_int_equal(rig.client.pings, 0);
    rig_stop();
}

static void test_server_ends(void **state) {
    (void)state;
    rig_start(true);
    int32_t whole = REQUEST(NULL, GET), cut = REQUEST(NULL, GET), unanswered = REQUEST(NULL, GET);
    rig_run();
    rig.client.deaf = true;
    RESPOND(1, (&(struct rig_body){.left = 50000}), OK);
    RESPOND(3, (&(struct rig_body){.left = 100, .open = true}), OK);
    rig_run();
    h2_bridge_ended(rig.bridge, H2_SERVER, true);
    assert_false(h2_bridge_done(rig.bridge));
    rig.client.deaf = false;
    rig_run();
    assert_int_equal(rig_seen(&rig.client, whole)->data_len, 50000);
    assert_true(rig_seen(&rig.client, whole)->end);
    assert_int_equal(rig_seen(&rig.client, cut)->reset, NGHTTP2_INTERNAL_ERROR);
    assert_false(rig_seen(&rig.client, cut)->end);
    rig_expect(rig_seen(&rig.client, unanswered), ":status: 502\n");
    assert_int_equal(rig.failed, 1);
    assert_int_equal(rig.client.goaway, NGHTTP2_NO_ERROR);
    assert_true(h2_bridge_done(rig.bridge));
    rig_stop();
}

static void test_no_server(void **state) {
    (void)state;
    rig_start(false);
    int32_t id = REQUEST(NULL, GET);
    rig_run();
    assert_int_equal(rig.asked_count, 1);
    h2_stream_answer(rig.asked[0], 502, "upstream_failed", "{}", 2);
    rig_run();
    rig_expect(rig_seen(&rig.client, id), ":status: 502\n");
    assert_true(rig_seen(&rig.client, id)->end);
    rig_stop();
}

static void test_client_ends(void **state) {
    (void)state;
    for (int orderly = 0; orderly < 2; orderly++) {
        rig_start(true);
        int32_t asked = REQUEST(NULL, GET);
        REQUEST((&(struct rig_body){.left = 10, .open = true}), POST);
        rig_run();
        h2_bridge_ended(rig.bridge, H2_CLIENT, orderly);
        rig_run();
        assert_int_equal(rig_seen(&rig.server, 1)->reset, orderly ? -1 : NGHTTP2_CANCEL);
        assert_int_equal(rig_seen(&rig.server, 3)->reset, NGHTTP2_CANCEL); // its end can never come
        assert_int_equal(h2_bridge_done(rig.bridge), !orderly);
        if (orderly) {
            RESPOND(1, (&(struct rig_body){.left = 10}), OK);
            rig_run();
            assert_true(rig_seen(&rig.client, asked)->end);
            assert_true(h2_bridge_done(rig.bridge));
        }
        rig_stop();
    }
}

static void test_content_length(void **state) {
    (void)state;
    rig_start(true);
    int32_t more = REQUEST((&(struct rig_body){.left = 10}), POST, NV("content-length", "9"));
    int32_t less = REQUEST((&(struct rig_body){.left = 10}), POST, NV("content-length", "11"));
    int32_t response = REQUEST(NULL, GET);
    rig_run();
    assert_int_equal(rig_seen(&rig.client, more)->reset, NGHTTP2_PROTOCOL_ERROR);
    assert_int_equal(rig_seen(&rig.client, less)->reset, NGHTTP2_PROTOCOL_ERROR);
    assert_false(rig_seen(&rig.server, 1)->end);
    assert_false(rig_seen(&rig.server, 3)->end);
    RESPOND(5, (&(struct rig_body){.left = 10}), OK, NV("content-length", "11"));
    rig_run();
    assert_false(rig_seen(&rig.client, response)->end);
    assert_int_equal(rig_seen(&rig.client, response)->reset, NGHTTP2_PROTOCOL_ERROR);
    assert_int_equal(rig.bridge->stream_count, 0);
    rig_stop();
}

static void test_scrub(void **state) {
    (void)state;
    rig_start(true);
    inject("authorization", "Bearer very-secret-token", true);
    int32_t id = REQUEST(NULL, GET, NV("accept-encoding", "gzip, br"), NV("range", "bytes=3-7"), NV("if-range", "x"));
    rig_run();
    rig_expect(rig_seen(&rig.server, 1), "accept-encoding: identity\n");
    rig_expect_not(rig_seen(&rig.server, 1), "gzip");
    rig_expect_not(rig_seen(&rig.server, 1), "range");
    const nghttp2_nv trailers[] = {NV("x-last", "very-secret-token")};
    // The value lies across frames: 20 bytes a frame, for that is all that the window lets through.
    RESPOND(1, (&(struct rig_body){.left = 9, .text = "auth very", .open = true}), OK, NV("x-echo", "Bearer very-secret-token"),
            NV("x-very-secret-token", "1"));
    rig_run();
    struct rig_seen *got = rig_seen(&rig.client, id);
    assert_string_equal(got->data, "auth "); // the rest may be the beginning of it
    struct rig_body *body = &rig_seen(&rig.server, 1)->body;
    *body = (struct rig_body){.left = 20, .text = "-secret-token, very-", .trailers = trailers, .trailer_count = 1};
    rig_continue(&rig.server, 1, 0, false);
    rig_run();
    assert_string_equal(got->data, "auth *****************, very-");
    rig_expect(got, "x-echo: Bearer *****************\n");
    rig_expect(got, "x-*****************: 1\n");
    rig_expect(got, "x-last: *****************\n");
    assert_true(got->end);
    assert_int_equal(rig.wiped, 1);
    rig_stop();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain), cmocka_unit_test(test_injection), cmocka_unit_test(test_injection_long),
        cmocka_unit_test(test_trailers), cmocka_unit_test(test_interim), cmocka_unit_test(test_no_bodies),
        cmocka_unit_test(test_resets), cmocka_unit_test(test_reset_before_forward), cmocka_unit_test(test_early_response),
        cmocka_unit_test(test_answer), cmocka_unit_test(test_goaway_of_server), cmocka_unit_test(test_goaway_of_client),
        cmocka_unit_test(test_shut), cmocka_unit_test(test_room), cmocka_unit_test(test_pings),
        cmocka_unit_test(test_server_ends), cmocka_unit_test(test_no_server), cmocka_unit_test(test_client_ends),
        cmocka_unit_test(test_content_length), cmocka_unit_test(test_scrub), cmocka_unit_test(test_overrides),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
