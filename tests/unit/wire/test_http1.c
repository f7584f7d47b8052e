// SPDX-License-Identifier: Apache-2.0
#include "wire/http1.h"
#include "wire/http1_line.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static struct http1_head head;

static enum wire_result parse_as(struct http1 *http1, enum http1_kind kind, const char *method, const char *text,
                                 size_t len) {
    http1_init(http1, kind, (struct wire_slice){(const uint8_t *)method, strlen(method)});
    return http1_head(http1, (const uint8_t *)text, len, &head);
}
static enum wire_result request(const char *text) {
    struct http1 http1;
    return parse_as(&http1, HTTP1_REQUEST, "", text, strlen(text));
}
static enum wire_result response(const char *method, const char *text) {
    struct http1 http1;
    return parse_as(&http1, HTTP1_RESPONSE, method, text, strlen(text));
}
static void assert_slice(struct wire_slice slice, const char *text) {
    assert_int_equal(slice.len, strlen(text));
    assert_memory_equal(slice.data, text, slice.len);
}

static void test_request(void **state) {
    (void)state;
    const char *text = "POST /a?b=c HTTP/1.1\r\nHost: Example.com:8080\r\nX-Empty:\r\nX-Blank: \t v w\t \r\n"
                       "content-length: 12\r\n\r\nbody";
    assert_int_equal(request(text), WIRE_OK);
    assert_int_equal(head.len, strlen(text) - 4);
    assert_int_equal(head.minor_version, 1);
    assert_slice(head.method, "POST");
    assert_slice(head.target, "/a?b=c");
    assert_slice(head.path, "/a?b=c");
    assert_int_equal(head.form, HTTP1_FORM_ORIGIN);
    assert_true(head.has_host);
    assert_slice(head.host, "Example.com:8080");
    assert_int_equal(head.header_count, 4);
    assert_slice(head.headers[1].name, "X-Empty");
    assert_slice(head.headers[1].value, "");
    assert_slice(head.headers[2].value, "v w");
    assert_int_equal(head.framing, HTTP1_BODY_LENGTH);
    assert_int_equal(head.content_length, 12);
    assert_true(head.keep_alive);
}

static void test_prefixes(void **state) {
    (void)state;
    const char *text = "GET / HTTP/1.1\r\nHost: a\r\nAccept: */*\r\n\r\n";
    struct http1 http1;
    http1_init(&http1, HTTP1_REQUEST, (struct wire_slice){NULL, 0});
    // The same object, ever more bytes, each time in another buffer.
    for (size_t len = 0; len < strlen(text); len++) {
        char copy[64];
        memcpy(copy, text, len);
        assert_int_equal(http1_head(&http1, (const uint8_t *)copy, len, &head), WIRE_MORE);
    }
    assert_int_equal(http1_head(&http1, (const uint8_t *)text, strlen(text), &head), WIRE_OK);
    assert_slice(head.host, "a");
    assert_int_equal(head.framing, HTTP1_BODY_NONE);
}

static void test_forms(void **state) {
    (void)state;
    const struct {
        const char *line;
        enum wire_result result;
        enum http1_form form;
        const char *authority, *path;
        bool https;
    } rows[] = {
        {"GET http://a.example/x?y", WIRE_OK, HTTP1_FORM_ABSOLUTE, "a.example", "/x?y", false},
        {"GET HTTPS://a.example:8443", WIRE_OK, HTTP1_FORM_ABSOLUTE, "a.example:8443", "/", true},
        {"OPTIONS http://a.example", WIRE_OK, HTTP1_FORM_ABSOLUTE, "a.example", "*", false},
        {"GET http://[2001:db8::1]:80/", WIRE_OK, HTTP1_FORM_ABSOLUTE, "[2001:db8::1]:80", "/", false},
        {"OPTIONS *", WIRE_OK, HTTP1_FORM_ASTERISK, NULL, "*", false},
        {"CONNECT a.example:443", WIRE_OK, HTTP1_FORM_AUTHORITY, "a.example:443", NULL, false},
        {"CONNECT [::1]:443", WIRE_OK, HTTP1_FORM_AUTHORITY, "[::1]:443", NULL, false},
        {"GET //a//b", WIRE_OK, HTTP1_FORM_ORIGIN, NULL, "//a//b", false},
        {"GET http://u@a.example/", WIRE_BAD, 0, NULL, NULL, false},
        {"GET http://u:p@a.example/", WIRE_BAD, 0, NULL, NULL, false},
        {"GET http://a.example?x", WIRE_BAD, 0, NULL, NULL, false},
        {"GET http://a\\b/", WIRE_BAD, 0, NULL, NULL, false},
        {"GET http:///x", WIRE_BAD, 0, NULL, NULL, false},
        {"GET ftp://a.example/", WIRE_BAD, 0, NULL, NULL, false},
        {"GET *", WIRE_BAD, 0, NULL, NULL, false},
        {"GET a.example:443", WIRE_BAD, 0, NULL, NULL, false},
        {"GET a.example", WIRE_BAD, 0, NULL, NULL, false},
        {"GET /a#b", WIRE_BAD, 0, NULL, NULL, false},
        {"CONNECT a.example", WIRE_BAD, 0, NULL, NULL, false},
        {"CONNECT a.example:", WIRE_BAD, 0, NULL, NULL, false},
        {"CONNECT :443", WIRE_BAD, 0, NULL, NULL, false},
        {"CONNECT /", WIRE_BAD, 0, NULL, NULL, false},
        {"CONNECT u@a.example:443", WIRE_BAD, 0, NULL, NULL, false},
        {"CONNECT http://a.example:443/", WIRE_BAD, 0, NULL, NULL, false},
        {"OPTIONS **", WIRE_BAD, 0, NULL, NULL, false},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char text[200];
        snprintf(text, sizeof(text), "%s HTTP/1.1\r\nHost: a.example\r\n\r\n", rows[i].line);
        enum wire_result result = request(text);
        if (result != rows[i].result) fail_msg("%s: %d", rows[i].line, result);
        if (result != WIRE_OK) continue;
        assert_int_equal(head.form, rows[i].form);
        assert_slice(head.authority, rows[i].authority ? rows[i].authority : "");
        assert_slice(head.path, rows[i].path ? rows[i].path : "");
        assert_int_equal(head.absolute_https, rows[i].https);
    }
}

static void test_bad_requests(void **state) {
    (void)state;
    const char *const texts[] = {
        "\r\nGET / HTTP/1.1\r\n\r\n",
        " GET / HTTP/1.1\r\n\r\n",
        "GET  / HTTP/1.1\r\n\r\n",
        "GET /  HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1 \r\n\r\n",
        "GET\t/ HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\n\n",
        "GET / HTTP/1.1\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\n\n",
        "GET / HTTP/1.1\rHost: a\r\n\r\n",
        "GET / HTTP/1.1\r\nA: b\rc\r\n\r\n",
        "GET /\r\n\r\n",
        "GET / HTTP/0.9\r\n\r\n",
        "GET / HTTP/1.2\r\n\r\n",
        "GET / HTTP/2.0\r\n\r\n",
        "GET / HTTP/1.10\r\n\r\n",
        "GET / http/1.1\r\n\r\n",
        "GET / HTTP/11\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\n",
        "POST / HTTP/1.1\r\nExpect: y 100-continue\r\n\r\n",
        "POST / HTTP/1.1\r\nExpect: 100-continue, 100-continue\r\n\r\n",
        "POST / HTTP/1.1\r\nExpect: 100-continue\r\nExpect: 100-continue\r\n\r\n",
        "POST / HTTP/1.1\r\nExpect: 100-continue\r\nExpect:\r\n\r\n",
        "POST / HTTP/1.0\r\nExpect: something\r\n\r\n",
        "DESCRIBE / RTSP/1.0\r\n\r\n",
        "GET /a b HTTP/1.1\r\n\r\n",
        "GET /\x01 HTTP/1.1\r\n\r\n",
        "GET /\x7f HTTP/1.1\r\n\r\n",
        "get / HTTP/1.1\r\n\r\n",
        "G@T / HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost : a\r\n\r\n",
        "GET / HTTP/1.1\r\n Host: a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\n b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\n\tb\r\n\r\n",
        "GET / HTTP/1.1\r\n: a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost\r\n\r\n",
        "GET / HTTP/1.1\r\nH(st: a\r\n\r\n",
        "GET / HTTP/1.1\r\nH\xc3\xb6st: a\r\n\r\n",
        "GET / HTTP/1.1\r\nA: \x01\r\n\r\n",
        "GET / HTTP/1.1\r\nA: \x7f\r\n\r\n",
        "GET / HTTP/1.1\r\nA: b\x0b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nhOST: b\r\n\r\n",
        "GET / HTTP/1.1\r\nUpgrade: a\r\nUpgrade: b\r\n\r\n",
    };
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        if (request(texts[i]) != WIRE_BAD) fail_msg("accepted: %s", texts[i]);
    struct http1 http1;
    assert_int_equal(parse_as(&http1, HTTP1_REQUEST, "", "GET / HTTP/1.1\r\nA: \0\r\n\r\n", 23), WIRE_BAD);
    assert_int_equal(parse_as(&http1, HTTP1_REQUEST, "", "GET /\0 HTTP/1.1\r\n\r\n", 20), WIRE_BAD);
}

static void test_request_framing(void **state) {
    (void)state;
    const struct {
        const char *start, *fields;
        enum wire_result result;
        enum http1_framing framing;
        uint64_t length;
    } rows[] = {
        {"POST / HTTP/1.1", "", WIRE_OK, HTTP1_BODY_NONE, 0},
        {"POST / HTTP/1.1", "Content-Length: 0\r\n", WIRE_OK, HTTP1_BODY_LENGTH, 0},
        {"POST / HTTP/1.1", "Content-Length: 9223372036854775807\r\n", WIRE_OK, HTTP1_BODY_LENGTH, INT64_MAX},
        {"POST / HTTP/1.1", "Content-Length: 9223372036854775808\r\n", WIRE_BAD, 0, 0},
        {"POST / HTTP/1.1", "Content-Length: 18446744073709551617\r\n", WIRE_BAD, 0, 0},
        {"POST / HTTP/1.1", "Content-Length: +1\r\n", WIRE_BAD, 0, 0},
        {"POST / HTTP/1.1", "Content-Length: -1\r\n", WIRE_BAD, 0, 0},
        {"POST / HTTP/1.1", "Content-Length: 0x1\r\n", WIRE_BAD, 0, 0},
        {"POST / HTTP/1.1", "Content-Length: 1 1\r\n", WIRE_BAD, 0, 0},
        {"POST / HTTP/1.1", "Content-Length: 1, 1\r\n", WIRE_BAD, 0, 0},
        {"POST / HTTP/1.1", "Content-Length:\r\n", WIRE_BAD, 0, 0},
        {"POST / HTTP/1.1", "Content-Length: 1\r\nContent-Length: 1\r\n", WIRE_BAD, 0, 0},
        {"POST / HTTP/1.1", "Content-Length: 0\r\nContent-Length: 0\r\n", WIRE_BAD, 0, 0},
        {"POST / HTTP/1.1", "Content-Length: 1\r\nContent-Length: 2\r\n", WIRE_BAD, 0, 0},
        {"POST / HTTP/1.1", "Transfer-Encoding: chunked\r\n", WIRE_OK, HTTP1_BODY_CHUNKED, 0},
        {"POST / HTTP/1.1", "Transfer-Encoding: Chunked\r\n", WIRE_OK, HTTP1_BODY_CHUNKED, 0},
        {"POST / HTTP/1.1", "Transfer-Encoding: chunked\r\nContent-Length: 1\r\n", WIRE_BAD, 0, 0},
        {"POST / HTTP/1.1", "Content-Length: 0\r\nTransfer-Encoding: chunked\r\n", WIRE_BAD, 0, 0},
        {"POST / HTTP/1.1", "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", WIRE_BAD, 0, 0},
        {"POST / HTTP/1.1", "Transfer-Encoding: gzip, chunked\r\n", WIRE_BAD, 0, 0},
        {"POST / HTTP/1.1", "Transfer-Encoding: chunked, identity\r\n", WIRE_BAD, 0, 0},
        {"POST / HTTP/1.1", "Transfer-Encoding: identity\r\n", WIRE_BAD, 0, 0},
        {"POST / HTTP/1.1", "Transfer-Encoding: xchunked\r\n", WIRE_BAD, 0, 0},
        {"POST / HTTP/1.1", "Transfer-Encoding: chunked;a=b\r\n", WIRE_BAD, 0, 0},
        {"POST / HTTP/1.1", "Transfer-Encoding:\r\n", WIRE_BAD, 0, 0},
        {"POST / HTTP/1.0", "Transfer-Encoding: chunked\r\n", WIRE_BAD, 0, 0},
        {"CONNECT a:1 HTTP/1.1", "Content-Length: 0\r\n", WIRE_OK, HTTP1_BODY_NONE, 0},
        {"CONNECT a:1 HTTP/1.1", "Content-Length: 1\r\n", WIRE_BAD, 0, 0},
        {"CONNECT a:1 HTTP/1.1", "Transfer-Encoding: chunked\r\n", WIRE_BAD, 0, 0},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char text[300];
        snprintf(text, sizeof(text), "%s\r\n%s\r\n", rows[i].start, rows[i].fields);
        enum wire_result result = request(text);
        if (result != rows[i].result) fail_msg("%s: %d", text, result);
        if (result != WIRE_OK) continue;
        assert_false(head.has_host);
        assert_int_equal(head.framing, rows[i].framing);
        assert_int_equal(head.content_length, rows[i].length);
    }
}

static void test_connection(void **state) {
    (void)state;
    const struct {
        const char *text;
        bool keep_alive, websocket, h2c, other, expect;
    } rows[] = {
        {"GET / HTTP/1.1\r\n\r\n", true, false, false, false, false},
        {"GET / HTTP/1.1\r\nConnection: close\r\n\r\n", false, false, false, false, false},
        {"GET / HTTP/1.1\r\nConnection: x ,\tClose\r\n\r\n", false, false, false, false, false},
        {"GET / HTTP/1.1\r\nConnection: closed\r\n\r\n", true, false, false, false, false},
        {"GET / HTTP/1.0\r\n\r\n", false, false, false, false, false},
        {"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", true, false, false, false, false},
        {"GET / HTTP/1.0\r\nConnection: keep-alive, close\r\n\r\n", false, false, false, false, false},
        {"GET / HTTP/1.1\r\nConnection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\n\r\n", true, true, false, false,
         false},
        {"GET / HTTP/1.0\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n", false, false, false, false, false},
        {"POST / HTTP/1.1\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n", true, false, false, true, false},
        {"GET / HTTP/1.1\r\nUpgrade: websocket\r\n\r\n", true, false, false, false, false},
        {"GET / HTTP/1.1\r\nConnection: Upgraded, X-Upgrade\r\nUpgrade: x\r\n\r\n", true, false, false, false, false},
        {"GET / HTTP/1.1\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n", true, false, false, true, false},
        {"GET / HTTP/1.1\r\nConnection: upgrade\r\nUpgrade: websocket, x\r\n\r\n", true, false, false, true, false},
        {"GET / HTTP/1.1\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n", true, false, true, false, false},
        {"GET / HTTP/1.1\r\nConnection: upgrade\r\nUpgrade: x, h2c\r\n\r\n", true, false, true, false, false},
        {"GET / HTTP/1.1\r\nHTTP2-Settings: x\r\n\r\n", true, false, true, false, false},
        {"POST / HTTP/1.1\r\nExpect: 100-Continue\r\n\r\n", true, false, false, false, true},
        {"POST / HTTP/1.0\r\nExpect: 100-continue\r\n\r\n", false, false, false, false, true},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (request(rows[i].text) != WIRE_OK) fail_msg("%s", rows[i].text);
        assert_int_equal(head.keep_alive, rows[i].keep_alive);
        assert_int_equal(head.upgrade_websocket, rows[i].websocket);
        assert_int_equal(head.upgrade_h2c, rows[i].h2c);
        assert_int_equal(head.upgrade_other, rows[i].other);
        assert_int_equal(head.expect_continue, rows[i].expect);
    }
}

static void test_limits(void **state) {
    (void)state;
    static char text[2 * HTTP1_HEAD_MAX];
    struct http1 http1;
    for (int count = HTTP1_HEADERS_MAX; count <= HTTP1_HEADERS_MAX + 1; count++) {
        size_t len = (size_t)snprintf(text, sizeof(text), "GET / HTTP/1.1\r\n");
        for (int i = 0; i < count; i++) len += (size_t)snprintf(text + len, sizeof(text) - len, "h%d: v\r\n", i);
        snprintf(text + len, sizeof(text) - len, "\r\n");
        assert_int_equal(request(text), count == HTTP1_HEADERS_MAX ? WIRE_OK : WIRE_BAD);
    }
    for (int more = 0; more <= 1; more++) {
        size_t len = (size_t)snprintf(text, sizeof(text), "GET / HTTP/1.1\r\nh: ");
        size_t total = HTTP1_HEAD_MAX + (size_t)more;
        memset(text + len, 'v', total - 4 - len);
        memcpy(text + total - 4, "\r\n\r\n", 5);
        assert_int_equal(parse_as(&http1, HTTP1_REQUEST, "", text, total), more ? WIRE_BAD : WIRE_OK);
        assert_int_equal(parse_as(&http1, HTTP1_REQUEST, "", text, HTTP1_HEAD_MAX - 1), WIRE_MORE);
    }
}

static void test_responses(void **state) {
    (void)state;
    const struct {
        const char *method, *text;
        enum wire_result result;
        int status;
        enum http1_framing framing;
        bool keep_alive;
    } rows[] = {
        {"GET", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", WIRE_OK, 200, HTTP1_BODY_LENGTH, true},
        {"GET", "HTTP/1.1 200\r\nContent-Length: 5\r\n\r\n", WIRE_OK, 200, HTTP1_BODY_LENGTH, true},
        {"GET", "HTTP/1.1 200 \r\nTransfer-Encoding: chunked\r\n\r\n", WIRE_OK, 200, HTTP1_BODY_CHUNKED, true},
        {"GET", "HTTP/1.1 200 \xc3\x9c\tx\r\n\r\n", WIRE_OK, 200, HTTP1_BODY_UNTIL_CLOSE, false},
        {"GET", "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n\r\n", WIRE_OK, 200, HTTP1_BODY_UNTIL_CLOSE, false},
        {"GET", "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 1\r\n\r\n", WIRE_OK, 200,
         HTTP1_BODY_LENGTH, true},
        {"HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", WIRE_OK, 200, HTTP1_BODY_NONE, true},
        {"HEAD", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", WIRE_OK, 200, HTTP1_BODY_NONE, true},
        {"HEAD", "HTTP/1.1 200 OK\r\n\r\n", WIRE_OK, 200, HTTP1_BODY_NONE, true},
        {"GET", "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", WIRE_OK, 304, HTTP1_BODY_NONE, true},
        {"GET", "HTTP/1.1 204 No Content\r\n\r\n", WIRE_OK, 204, HTTP1_BODY_NONE, true},
        {"GET", "HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n", WIRE_OK, 204, HTTP1_BODY_NONE, true},
        {"GET", "HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n", WIRE_BAD, 0, 0, false},
        {"GET", "HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n", WIRE_BAD, 0, 0, false},
        {"GET", "HTTP/1.1 100 Continue\r\n\r\n", WIRE_OK, 100, HTTP1_BODY_NONE, true},
        {"GET", "HTTP/1.1 103 Early Hints\r\nLink: <x>\r\n\r\n", WIRE_OK, 103, HTTP1_BODY_NONE, true},
        {"GET", "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n", WIRE_OK, 101,
         HTTP1_BODY_NONE, true},
        {"CONNECT", "HTTP/1.1 200 OK\r\n\r\n", WIRE_OK, 200, HTTP1_BODY_NONE, true},
        {"CONNECT", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", WIRE_BAD, 0, 0, false},
        {"CONNECT", "HTTP/1.1 403 No\r\nContent-Length: 5\r\n\r\n", WIRE_OK, 403, HTTP1_BODY_LENGTH, true},
        {"GET", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", WIRE_BAD, 0, 0, false},
        {"GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", WIRE_BAD, 0, 0, false},
        {"GET", "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", WIRE_BAD, 0, 0, false},
        {"GET", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n", WIRE_BAD, 0, 0, false},
        {"GET", "HTTP/1.1  200 OK\r\n\r\n", WIRE_BAD, 0, 0, false},
        {"GET", "HTTP/1.1 20 OK\r\n\r\n", WIRE_BAD, 0, 0, false},
        {"GET", "HTTP/1.1 2000 OK\r\n\r\n", WIRE_BAD, 0, 0, false},
        {"GET", "HTTP/1.1 099 OK\r\n\r\n", WIRE_BAD, 0, 0, false},
        {"GET", "HTTP/1.1 600 OK\r\n\r\n", WIRE_BAD, 0, 0, false},
        {"GET", "HTTP/2.0 200 OK\r\n\r\n", WIRE_BAD, 0, 0, false},
        {"GET", "HTTP/1.1 200 OK\nA: b\r\n\r\n", WIRE_BAD, 0, 0, false},
        {"GET", "ICY 200 OK\r\n\r\n", WIRE_BAD, 0, 0, false},
        {"GET", "GET / HTTP/1.1\r\n\r\n", WIRE_BAD, 0, 0, false},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        enum wire_result result = response(rows[i].method, rows[i].text);
        if (result != rows[i].result) fail_msg("%s %s: %d", rows[i].method, rows[i].text, result);
        if (result != WIRE_OK) continue;
        assert_int_equal(head.status, rows[i].status);
        assert_int_equal(head.framing, rows[i].framing);
        assert_int_equal(head.keep_alive, rows[i].keep_alive);
    }
}

static void begin_body(struct http1 *http1, const char *fields) {
    char text[200];
    snprintf(text, sizeof(text), "HTTP/1.1 200 OK\r\n%s\r\n", fields);
    assert_int_equal(parse_as(http1, HTTP1_RESPONSE, "GET", text, strlen(text)), WIRE_OK);
}

// The body in pieces of `step` bytes: the result, and how much of it was used.
static enum wire_result chunked(const char *body, size_t len, size_t step, size_t *ret_used) {
    struct http1 http1;
    begin_body(&http1, "Transfer-Encoding: chunked\r\n");
    *ret_used = 0;
    for (size_t position = 0; position < len; position += step) {
        size_t used = 0, piece = len - position < step ? len - position : step;
        enum wire_result result = http1_body(&http1, (const uint8_t *)body + position, piece, &used);
        *ret_used += used;
        if (result != WIRE_MORE) return result;
        assert_int_equal(used, piece);
    }
    return WIRE_MORE;
}

static void test_chunked(void **state) {
    (void)state;
    const struct {
        const char *body;
        enum wire_result result;
        size_t used;
    } rows[] = {
        {"0\r\n\r\n", WIRE_OK, 5},
        {"0\r\n\r\nGET / HTTP/1.1", WIRE_OK, 5},
        {"5\r\nhello\r\n0\r\n\r\n", WIRE_OK, 15},
        {"A\r\n0123456789\r\n00000\r\n\r\nx", WIRE_OK, 24},
        {"5;a=b;c=\"d e\"\r\nhello\r\n0;x\r\n\r\n", WIRE_OK, 29},
        {"0\r\nDigest: x\r\n\r\n", WIRE_OK, 16},
        {"5\r\nhel", WIRE_MORE, 6},
        {"5\r\nhello0\r\n\r\n", WIRE_BAD, 0},
        {"5\r\nhello\n0\r\n\r\n", WIRE_BAD, 0},
        {"5\nhello\r\n0\r\n\r\n", WIRE_BAD, 0},
        {"5 \r\nhello\r\n0\r\n\r\n", WIRE_BAD, 0},
        {" 5\r\nhello\r\n0\r\n\r\n", WIRE_BAD, 0},
        {"5 ;a\r\nhello\r\n0\r\n\r\n", WIRE_BAD, 0},
        {"5;a\nhello\r\n0\r\n\r\n", WIRE_BAD, 0},
        {"5;a\rb\r\nhello\r\n0\r\n\r\n", WIRE_BAD, 0},
        {"5;\x01\r\nhello\r\n0\r\n\r\n", WIRE_BAD, 0},
        {"0x5\r\nhello\r\n0\r\n\r\n", WIRE_BAD, 0},
        {"+5\r\nhello\r\n0\r\n\r\n", WIRE_BAD, 0},
        {"\r\n0\r\n\r\n", WIRE_BAD, 0},
        {"g\r\n", WIRE_BAD, 0},
        {";a\r\n", WIRE_BAD, 0},
        {"00000000000000000\r\n\r\n", WIRE_BAD, 0}, // 17 digits
        {"0000000000000000\r\n\r\n", WIRE_OK, 20},
        {"ffffffffffffffff\r\n", WIRE_BAD, 0},
        {"0\r\n\n", WIRE_BAD, 0},
        {"0\r\nA : b\r\n\r\n", WIRE_BAD, 0},
        {"0\r\nA: b\r\n c\r\n\r\n", WIRE_BAD, 0},
        {"0\r\nA: b\n\r\n", WIRE_BAD, 0},
        {"0\r\nA: b\rc\r\n\r\n", WIRE_BAD, 0},
        {"0\r\nContent-Length: 5\r\n\r\n", WIRE_BAD, 0},
        {"0\r\nX: y\r\ntransfer-ENCODING: chunked\r\n\r\n", WIRE_BAD, 0},
        {"0\r\nhost: a\r\n\r\n", WIRE_BAD, 0},
        {"0\r\nhosts: a\r\n\r\n", WIRE_OK, 15},
    };
    const size_t steps[] = {1, 2, 3, 1000};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        for (size_t s = 0; s < sizeof(steps) / sizeof(steps[0]); s++) {
            size_t used;
            enum wire_result result = chunked(rows[i].body, strlen(rows[i].body), steps[s], &used);
            if (result != rows[i].result) fail_msg("%s by %zu: %d", rows[i].body, steps[s], result);
            if (result != WIRE_BAD) assert_int_equal(used, rows[i].used);
        }
    }
    for (size_t s = 0; s < sizeof(steps) / sizeof(steps[0]); s++) {
        size_t used; // any byte may be data
        assert_int_equal(chunked("3\r\n\r\n\0\r\n0\r\nA: b\r\n\r\nrest", 23, steps[s], &used), WIRE_OK);
        assert_int_equal(used, 19);
    }
}

static void test_chunked_limits(void **state) {
    (void)state;
    static char text[20000];
    size_t used;
    for (size_t len = 1024; len <= 1025; len++) {
        memcpy(text, "0;", 2);
        memset(text + 2, 'a', len);
        memcpy(text + 2 + len, "\r\n\r\n", 4);
        assert_int_equal(chunked(text, len + 6, sizeof(text), &used), len == 1024 ? WIRE_OK : WIRE_BAD);
    }
    for (size_t len = 8192; len <= 8193; len++) { // of all trailers with the empty line
        memcpy(text, "0\r\nA:", 5);
        memset(text + 5, 'a', len - 6);
        memcpy(text + 3 + len - 4, "\r\n\r\n", 4);
        assert_int_equal(chunked(text, len + 3, 1, &used), len == 8192 ? WIRE_OK : WIRE_BAD);
    }
}

static void test_other_bodies(void **state) {
    (void)state;
    struct http1 http1;
    size_t used = 99;
    begin_body(&http1, "Content-Length: 10\r\n");
    assert_int_equal(http1_body(&http1, NULL, 0, &used), WIRE_MORE);
    assert_int_equal(used, 0);
    assert_int_equal(http1_body(&http1, (const uint8_t *)"abc", 3, &used), WIRE_MORE);
    assert_int_equal(used, 3);
    assert_int_equal(http1_body_skip(&http1), 7);
    http1_body_skipped(&http1, 5);
    assert_int_equal(http1_body_skip(&http1), 2);
    assert_int_equal(http1_body(&http1, (const uint8_t *)"abcd", 4, &used), WIRE_OK);
    assert_int_equal(used, 2);
    begin_body(&http1, "Content-Length: 0\r\n");
    assert_int_equal(http1_body(&http1, (const uint8_t *)"x", 1, &used), WIRE_OK);
    assert_int_equal(used, 0);
    begin_body(&http1, "");
    assert_int_equal(http1_body(&http1, (const uint8_t *)"abcd", 4, &used), WIRE_MORE);
    assert_int_equal(used, 4);
    assert_int_equal(http1_body_skip(&http1), 0);
    assert_int_equal(parse_as(&http1, HTTP1_RESPONSE, "HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n", 38),
                     WIRE_OK);
    assert_true(http1.no_body);
    assert_int_equal(http1_body(&http1, NULL, 0, &used), WIRE_OK);
    assert_int_equal(used, 0);
    assert_int_equal(http1_body_skip(&http1), 0);
}

// The checker by itself, without llhttp behind it.
static void test_lines(void **state) {
    (void)state;
    const struct {
        const char *text;
        enum http1_line last;
    } rows[] = {
        {"any thing\t\xff", HTTP1_LINE_FIRST},
        {"x\r", HTTP1_LINE_END},
        {"x\r\n", HTTP1_LINE_START},
        {"x\r\nA!~", HTTP1_LINE_NAME},
        {"x\r\nA:", HTTP1_LINE_VALUE},
        {"x\r\nA: \t\x80\r\n", HTTP1_LINE_START},
        {"x\r\n\r", HTTP1_LINE_LAST},
        {"x\r\n\r\n", HTTP1_LINE_DONE},
        {"x\r\n\r\nx", HTTP1_LINE_BAD},
        {"x\n", HTTP1_LINE_BAD},
        {"x\ry", HTTP1_LINE_BAD},
        {"x\x1f", HTTP1_LINE_BAD},
        {"x\x7f", HTTP1_LINE_BAD},
        {"x\r\n ", HTTP1_LINE_BAD},
        {"x\r\n\t", HTTP1_LINE_BAD},
        {"x\r\n:", HTTP1_LINE_BAD},
        {"x\r\nA ", HTTP1_LINE_BAD},
        {"x\r\nA\r", HTTP1_LINE_BAD},
        {"x\r\nA\x80", HTTP1_LINE_BAD},
        {"x\r\nA(", HTTP1_LINE_BAD},
        {"x\r\nA:\n", HTTP1_LINE_BAD},
        {"x\r\nA:\x01", HTTP1_LINE_BAD},
        {"x\r\n\r\r", HTTP1_LINE_BAD},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        enum http1_line line = HTTP1_LINE_FIRST;
        for (const char *byte = rows[i].text; *byte; byte++) line = http1_line_next(line, (uint8_t)*byte);
        if (line != rows[i].last) fail_msg("row %zu: %d", i, line);
    }
    assert_int_equal(http1_line_next(HTTP1_LINE_VALUE, 0), HTTP1_LINE_BAD);
    assert_int_equal(http1_line_next(HTTP1_LINE_NAME, 0), HTTP1_LINE_BAD);
    assert_int_equal(http1_line_next(HTTP1_LINE_BAD, 'x'), HTTP1_LINE_BAD);
}

// Runs are what the checker, given byte by byte, would not have changed its state for.
static void test_runs(void **state) {
    static const enum http1_line states[] = {HTTP1_LINE_FIRST, HTTP1_LINE_START, HTTP1_LINE_NAME, HTTP1_LINE_VALUE, HTTP1_LINE_END,
                                             HTTP1_LINE_LAST,  HTTP1_LINE_DONE,  HTTP1_LINE_BAD};
    uint8_t bytes[3] = "ab";
    (void)state;
    for (size_t i = 0; i < sizeof(states) / sizeof(states[0]); i++) {
        bool goes_on = states[i] == HTTP1_LINE_FIRST || states[i] == HTTP1_LINE_NAME || states[i] == HTTP1_LINE_VALUE;
        for (unsigned byte = 0; byte < 256; byte++) {
            bytes[2] = (uint8_t)byte;
            size_t run = goes_on ? 2 + (http1_line_next(states[i], bytes[2]) == states[i]) : 0;
            if (http1_line_run(states[i], bytes, 3) != run) fail_msg("state %d, byte %u", states[i], byte);
            assert_int_equal(http1_line_run(states[i], bytes, 1), goes_on ? 1 : 0); // no more than there is
        }
    }
    assert_int_equal(http1_line_run(HTTP1_LINE_VALUE, bytes, 0), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines),          cmocka_unit_test(test_request),
        cmocka_unit_test(test_runs),
        cmocka_unit_test(test_prefixes),       cmocka_unit_test(test_forms),
        cmocka_unit_test(test_bad_requests),   cmocka_unit_test(test_request_framing),
        cmocka_unit_test(test_connection),     cmocka_unit_test(test_limits),
        cmocka_unit_test(test_responses),      cmocka_unit_test(test_chunked),
        cmocka_unit_test(test_chunked_limits), cmocka_unit_test(test_other_bodies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
