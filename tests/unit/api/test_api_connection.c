// SPDX-License-Identifier: Apache-2.0
// The server under its clients: keys, framing, several requests on a connection, those who are slow, too many, too large,
// malformed, or go away; streamed answers and who does not take them.
#include "api_rig.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"

#define KEY "X-API-Key: " RIG_KEY "\r\n"

static void send_text(struct rig *rig, int fd, const char *text) { rig_send(rig, fd, text, strlen(text)); }

// One answer to text on a new connection: its status; says (or NULL) is in its body.
static void check_raw(struct rig *rig, const char *text, int status, const char *says, bool closed) {
    struct rig_reply reply;
    int fd = rig_connect(rig);
    send_text(rig, fd, text);
    rig_receive(rig, fd, &reply);
    const char *body = reply.body.data ? reply.body.data : "";
    if (reply.status != status || (says && !strstr(body, says))) fail_msg("%s: %d %s", text, reply.status, body);
    rig_reply_done(&reply);
    if (closed) assert_true(rig_closed(rig, fd));
    close(fd);
}

static void test_keys(void **state) {
    (void)state;
    struct rig rig;
    rig_init(&rig, NULL);
    static const struct {
        const char *headers;
        int status;
    } rows[] = {{KEY, 200}, {"x-api-key:test-key\r\n", 200}, {"", 401}, {"X-API-Key: test-kex\r\n", 401},
                {"X-API-Key: test-ke\r\n", 401}, {"X-API-Key: test-key1\r\n", 401}, {"X-API-Key:\r\n", 401},
                {KEY KEY, 401}, {KEY "X-API-KEY: other\r\n", 401}, {"Authorization: Bearer test-key\r\n", 401},
                {"X-Admin-Token: test-key\r\n", 401}, {"X-Team-ID: test-key\r\n", 401}};
    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        char text[512];
        snprintf(text, sizeof(text), "GET /v2/sandboxes HTTP/1.1\r\nHost: x\r\n%s\r\n", rows[i].headers);
        check_raw(&rig, text, rows[i].status, rows[i].status == 401 ? "{\"code\":401,\"message\":\"invalid API key" : "[]", false);
    }
    assert_int_equal(api_counts(rig.api).refused_keys, 10);
    // Nothing is parsed for who has no key, and nothing is said about it.
    check_raw(&rig, "POST /sandboxes HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\n{{{", 401, "invalid API key", false);
    rig_done(&rig);
}

static void test_framing(void **state) {
    (void)state;
    struct rig rig;
    struct rig_reply reply;
    rig_init(&rig, NULL);
    // As the SDK sends them.
    static const char chunked[] = "POST /sandboxes-cold HTTP/1.1\r\nHost: x\r\n" KEY "Transfer-Encoding: chunked\r\n\r\n"
                                  "5;a=b\r\n{\"ima\r\n8\r\nge\":\"a\"}\r\n0\r\nTrailer: x\r\n\r\n";
    check_raw(&rig, chunked, 201, "sandboxID", false);
    // A byte at a time.
    int fd = rig_connect(&rig);
    for (size_t i = 0; i < sizeof(chunked) - 1; i++) rig_send(&rig, fd, chunked + i, 1);
    rig_receive(&rig, fd, &reply);
    assert_int_equal(reply.status, 201);
    rig_reply_done(&reply);
    // The same connection, two requests at once, the first of which fails with its body unread by anyone.
    send_text(&rig, fd, "POST /nothing HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nGET GET /health HTTP/1.1\r\nHost: x\r\n\r\n");
    rig_receive(&rig, fd, &reply);
    assert_int_equal(reply.status, 404);
    struct rig_reply second = {0};
    if (strstr(reply.body.data, "HTTP/1.1 204")) // both came together
        second.status = 204;
    else
        rig_receive(&rig, fd, &second);
    assert_int_equal(second.status, 204);
    rig_reply_done(&second);
    rig_reply_done(&reply);
    close(fd);
    check_raw(&rig, "GET /health HTTP/1.0\r\n\r\n", 204, NULL, true);
    check_raw(&rig, "GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 204, NULL, true);
    check_raw(&rig, "GET http://x/health HTTP/1.1\r\nHost: x\r\n\r\n", 204, NULL, false);
    check_raw(&rig, "HEAD /health HTTP/1.1\r\nHost: x\r\n\r\n", 405, NULL, true);
    check_raw(&rig, "OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", 404, "route not found", false);
    check_raw(&rig, "POST /sandboxes-cold HTTP/1.1\r\nHost: x\r\n" KEY "Expect: 100-continue\r\nContent-Length: 13\r\n\r\n"
                    "{\"image\":\"a\"}", 201, "sandboxID", false);
    check_raw(&rig, "POST /sandboxes-cold HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 13\r\n\r\n", 401,
              "invalid API key", true);
    rig_done(&rig);
}

static void test_malformed(void **state) {
    (void)state;
    struct rig rig;
    rig_init(&rig, NULL);
    static const char *const rows[] = {
        "\r\n\r\n", "GET\r\n\r\n", "GET /health\r\n\r\n", "GET /health HTTP/2.0\r\n\r\n", "\x16\x03\x01\x02\x01\r\n\r\n",
        "GET /health HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", "GET /he alth HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET /health HTTP/1.1\nHost: x\n\n", "GET /health HTTP/1.1\r\nHost : x\r\n\r\n",
        "POST /sandboxes HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        "POST /sandboxes HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        "POST /sandboxes HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        "POST /sandboxes HTTP/1.1\r\nHost: x\r\n" KEY "Transfer-Encoding: chunked\r\n\r\nxyz\r\n"};
    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) check_raw(&rig, rows[i], 400, "{\"code\":400,\"message\":", true);
    rig_done(&rig);
}

static void test_sizes(void **state) {
    (void)state;
    struct rig rig;
    struct buf text = BUF_INIT;
    rig_init(&rig, NULL);
    check_raw(&rig, "POST /sandboxes HTTP/1.1\r\nHost: x\r\n" KEY "Content-Length: 2097153\r\n\r\n", 413, "2 MiB", true);
    check_raw(&rig, "POST /sandboxes HTTP/1.1\r\nHost: x\r\n" KEY "Content-Length: 99999999999999999999\r\n\r\n", 400, NULL, true);
    AUTO_FREE char *filler = malloc(API_BODY_MAX + 1);
    memset(filler, ' ', API_BODY_MAX + 1);
    buf_printf(&text, "POST /sandboxes HTTP/1.1\r\nHost: x\r\n" KEY "Transfer-Encoding: chunked\r\n\r\n%x\r\n", API_BODY_MAX + 1);
    buf_append(&text, filler, API_BODY_MAX + 1);
    check_raw(&rig, text.data, 413, "2 MiB", true);
    buf_done(&text);
    buf_printf(&text, "POST /sandboxes HTTP/1.1\r\nHost: x\r\n" KEY "Content-Length: %d\r\n\r\n", API_BODY_MAX);
    buf_append(&text, filler, API_BODY_MAX);
    check_raw(&rig, text.data, 400, "the body is empty", false);
    buf_done(&text);
    buf_printf(&text, "GET /health HTTP/1.1\r\nX: ");
    buf_append(&text, filler, 70000);
    check_raw(&rig, text.data, 431, "64 KiB", true);
    buf_done(&text);
    // Deep, long and many.
    memset(filler, '[', 5000);
    buf_printf(&text, "POST /sandboxes HTTP/1.1\r\nHost: x\r\n" KEY "Content-Length: 5000\r\n\r\n%.5000s", filler);
    check_raw(&rig, text.data, 400, "not valid JSON", false);
    buf_done(&text);
    buf_printf(&text, "GET /v2/sandboxes?");
    for (int i = 0; i < 20; i++) buf_printf(&text, "a=b&");
    buf_printf(&text, " HTTP/1.1\r\nHost: x\r\n" KEY "\r\n");
    check_raw(&rig, text.data, 400, "more than 16 parameters", false);
    buf_done(&text);
    rig_done(&rig);
}

static void test_slow(void **state) {
    (void)state;
    struct rig rig;
    struct rig_reply reply;
    rig_init(&rig, &(struct api_options){.head_ms = 200, .body_ms = 300, .idle_ms = 500});
    int silent = rig_connect(&rig), head = rig_connect(&rig), body = rig_connect(&rig), idle = rig_connect(&rig);
    send_text(&rig, body, "POST /sandboxes HTTP/1.1\r\nHost: x\r\n" KEY "Content-Length: 100\r\n\r\n");
    send_text(&rig, idle, "GET /health HTTP/1.1\r\nHost: x\r\n\r\n");
    for (int i = 0; i < 10; i++) { // a byte now and then does not help
        send_text(&rig, head, "G");
        send_text(&rig, body, " ");
        rig_turn(&rig, 50);
    }
    rig_receive(&rig, head, &reply);
    assert_int_equal(reply.status, 408);
    rig_reply_done(&reply);
    rig_receive(&rig, body, &reply);
    assert_int_equal(reply.status, 408);
    rig_reply_done(&reply);
    assert_true(rig_closed(&rig, head) && rig_closed(&rig, body) && rig_closed(&rig, silent) && rig_closed(&rig, idle));
    close(silent), close(head), close(body), close(idle);
    rig_turn(&rig, 50);
    assert_int_equal(api_counts(rig.api).connections, 0);
    rig_done(&rig);
}

// Those who only wait make room, those who are answered do not.
static void test_many(void **state) {
    (void)state;
    struct rig rig;
    struct rig_reply reply;
    int fds[8];
    rig_init(&rig, &(struct api_options){.max_connections = 4});
    rig_add(&rig, "i1", STORE_RUNNING);
    rig.hold = true;
    fds[0] = rig_connect(&rig);
    send_text(&rig, fds[0], "POST /sandboxes/i1/pause HTTP/1.1\r\nHost: x\r\n" KEY "\r\n");
    rig_turn(&rig, 20);
    assert_non_null(rig.held);
    for (size_t i = 1; i < 8; i++) {
        fds[i] = rig_connect(&rig);
        rig_turn(&rig, 10);
        assert_true(api_counts(rig.api).connections <= 4);
    }
    assert_true(rig_closed(&rig, fds[1]));
    send_text(&rig, fds[7], "GET /health HTTP/1.1\r\nHost: x\r\n\r\n");
    rig_receive(&rig, fds[7], &reply);
    assert_int_equal(reply.status, 204);
    rig_reply_done(&reply);
    api_reply_done(rig.held);
    rig_receive(&rig, fds[0], &reply);
    assert_int_equal(reply.status, 204);
    rig_reply_done(&reply);
    for (size_t i = 0; i < 8; i++) close(fds[i]);
    rig_done(&rig);
}

static void count_gone(struct api_call *call, void *data) {
    (void)call;
    ((struct rig *)data)->gone++;
}

static void count_drained(struct api_call *call, void *data) {
    (void)call;
    ((struct rig *)data)->drained++;
}

static void hold(struct rig *rig, int fd, const char *path) {
    char text[256];
    rig->hold = true;
    rig->held = NULL;
    snprintf(text, sizeof(text), "POST %s HTTP/1.1\r\nHost: x\r\n" KEY "Content-Length: 11\r\n\r\n{\"cmd\":\"a\"}", path);
    send_text(rig, fd, text);
    rig_turn(rig, 20);
    assert_non_null(rig->held);
    api_call_watch(rig->held, &(struct api_hooks){count_gone, count_drained, rig});
}

static void test_gone(void **state) {
    (void)state;
    struct rig rig;
    struct rig_reply reply;
    rig_init(&rig, NULL);
    rig_add(&rig, "i1", STORE_RUNNING);
    int fd = rig_connect(&rig);
    hold(&rig, fd, "/sandboxes/i1/pause");
    struct linger hard = {1, 0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
    close(fd); // a reset
    rig_turn(&rig, 20);
    assert_int_equal(rig.gone, 1);
    assert_int_equal(api_counts(rig.api).connections, 0);
    assert_int_equal(api_counts(rig.api).calls, 1);
    api_reply_done(rig.held); // goes nowhere
    assert_int_equal(api_counts(rig.api).calls, 0);
    fd = rig_connect(&rig);
    hold(&rig, fd, "/sandboxes/i1/pause");
    shutdown(fd, SHUT_WR); // closed on its side only: it is told, and can still be answered
    rig_turn(&rig, 20);
    assert_int_equal(rig.gone, 2);
    api_reply_error(rig.held, 500, "late");
    rig_receive(&rig, fd, &reply);
    assert_int_equal(reply.status, 500);
    rig_reply_done(&reply);
    assert_true(rig_closed(&rig, fd));
    close(fd);
    fd = rig_connect(&rig);
    hold(&rig, fd, "/sandboxes/i1/exec");
    api_exec_output(rig.held, API_STDOUT, "x", 1);
    close(fd);
    rig_turn(&rig, 20);
    for (int i = 0; i < 3; i++) {
        api_exec_output(rig.held, API_STDOUT, "x", 1);
        rig_turn(&rig, 5);
    }
    assert_int_equal(rig.gone, 3);
    api_exec_end(rig.held, 0, 0, NULL);
    // The server ends while a call is open.
    fd = rig_connect(&rig);
    hold(&rig, fd, "/sandboxes/i1/exec");
    api_free(rig.api);
    rig.api = NULL;
    assert_int_equal(rig.gone, 4);
    api_exec_output(rig.held, API_STDOUT, "x", 1);
    api_exec_end(rig.held, 0, 0, NULL);
    close(fd);
    rig_done(&rig);
}

static void test_backpressure(void **state) {
    (void)state;
    struct rig rig;
    char bytes[16384];
    rig_init(&rig, NULL);
    rig_add(&rig, "i1", STORE_RUNNING);
    memset(bytes, 'x', sizeof(bytes));
    int fd = rig_connect(&rig);
    hold(&rig, fd, "/sandboxes/i1/exec");
    size_t pending = 0, written = 0;
    for (; pending <= API_PENDING_MAX && written < (size_t)64 << 20; written += sizeof(bytes)) {
        pending = api_exec_output(rig.held, API_STDOUT, bytes, sizeof(bytes));
        event_base_loop(rig.base, EVLOOP_NONBLOCK);
    }
    assert_true(pending > API_PENDING_MAX); // the client takes nothing
    rig.drained = 0;
    for (int i = 0; i < 20000 && !rig.drained; i++) {
        char sink[65536];
        event_base_loop(rig.base, EVLOOP_NONBLOCK);
        if (recv(fd, sink, sizeof(sink), MSG_DONTWAIT) < 0) usleep(100);
    }
    assert_true(rig.drained > 0);
    assert_true(api_exec_output(rig.held, API_STDOUT, "", 0) <= API_PENDING_MAX / 4 + 64);
    api_exec_end(rig.held, 0, 0, NULL);
    close(fd);
    rig_done(&rig);
}

#define ALLOWED "{\"verdict\":\"allow\",\"name\":\"a\"}\n"
#define DENIED "{\"verdict\":\"deny\",\"name\":\"b\"}\n"

static void append_file(const char *path, const char *text) {
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
}

// What came on a stream within some turns.
static void assert_came(struct rig *rig, int fd, const char *expected) {
    struct buf came = BUF_INIT;
    for (uint64_t end = clock_us() + 5000000; clock_us() < end;) {
        char bytes[4096];
        event_base_loop(rig->base, EVLOOP_NONBLOCK);
        ssize_t got = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT);
        if (got > 0) buf_append(&came, bytes, (size_t)got);
        if (got == 0) break;
        if (got < 0) usleep(500);
        if (came.len && strstr(came.data, expected)) break;
    }
    if (!came.data || !strstr(came.data, expected)) fail_msg("%s did not come: %s", expected, came.data ? came.data : "");
    buf_done(&came);
}

static void test_decisions(void **state) {
    (void)state;
    struct rig rig;
    struct error err = {0};
    char renamed[160];
    rig_init(&rig, NULL);
    rig_add(&rig, "i1", STORE_RUNNING);
    const struct rig_row missing = {"GET", "/sandboxes/i1/decisions", NULL, 200, NULL, "decisions i1"};
    rig_check(&rig, &missing, 1);
    assert_true(asprintf(&rig.log_path, "%s/decisions.jsonl", rig.folder) > 0);
    append_file(rig.log_path, ALLOWED DENIED "{\"verdict\":\"deny\",\"half");
    const struct rig_row rows[] = {{"GET", "/sandboxes/i1/decisions", NULL, 200, ALLOWED DENIED, "decisions i1"},
                                   {"GET", "/sandboxes/i1/decisions?denied=1", NULL, 200, DENIED, "decisions i1"},
                                   {"GET", "/sandboxes/ix/decisions", NULL, 404, "sandbox ix not found", NULL}};
    rig_check(&rig, rows, ARRAY_LENGTH(rows));
    struct rig_reply reply;
    rig_ask(&rig, "GET", "/sandboxes/i1/decisions?denied=1", NULL, &reply);
    assert_string_equal(reply.body.data, DENIED); // only what is whole
    rig_reply_done(&reply);
    int fd = rig_connect(&rig);
    send_text(&rig, fd, "GET /sandboxes/i1/decisions?follow=1&denied=true HTTP/1.1\r\nHost: x\r\n" KEY "\r\n");
    assert_came(&rig, fd, DENIED);
    append_file(rig.log_path, "\"}\n" ALLOWED);
    assert_came(&rig, fd, "{\"verdict\":\"deny\",\"half\"}\n");
    snprintf(renamed, sizeof(renamed), "%s.1", rig.log_path);
    append_file(rig.log_path, "{\"verdict\":\"deny\",\"name\":\"last of the old\"}\n");
    assert_int_equal(rename(rig.log_path, renamed), 0);
    append_file(rig.log_path, "{\"verdict\":\"deny\",\"name\":\"first of the new\"}\n");
    assert_came(&rig, fd, "first of the new");
    assert_int_equal(store_sandbox_remove(rig.store, "i1", &err), 0);
    assert_came(&rig, fd, "0\r\n\r\n"); // it ends with the sandbox
    close(fd);
    // One that is followed while the server ends, one whose client goes.
    rig_add(&rig, "i1", STORE_RUNNING);
    for (int i = 0; i < 2; i++) {
        fd = rig_connect(&rig);
        send_text(&rig, fd, "GET /sandboxes/i1/decisions?follow=1 HTTP/1.1\r\nHost: x\r\n" KEY "\r\n");
        assert_came(&rig, fd, "first of the new");
        assert_int_equal(api_counts(rig.api).calls, 1);
        if (i == 1) break;
        close(fd);
        rig_turn(&rig, 50);
        assert_int_equal(api_counts(rig.api).calls, 0);
    }
    rig_done(&rig);
    close(fd);
}

// A long log is read no faster than its reader takes it, and whole.
static void test_long_log(void **state) {
    (void)state;
    struct rig rig;
    struct rig_reply reply;
    struct buf text = BUF_INIT;
    rig_init(&rig, NULL);
    rig_add(&rig, "i1", STORE_RUNNING);
    assert_true(asprintf(&rig.log_path, "%s/decisions.jsonl", rig.folder) > 0);
    for (int i = 0; i < 100000; i++) buf_printf(&text, "{\"verdict\":\"deny\",\"number\":%d}\n", i);
    append_file(rig.log_path, text.data);
    int fd = rig_connect(&rig);
    send_text(&rig, fd, "GET /sandboxes/i1/decisions HTTP/1.1\r\nHost: x\r\n" KEY "\r\n");
    rig_turn(&rig, 100);
    rig_receive(&rig, fd, &reply);
    assert_int_equal(reply.body.len, text.len);
    assert_memory_equal(reply.body.data, text.data, text.len);
    rig_reply_done(&reply);
    buf_done(&text);
    close(fd);
    rig_done(&rig);
}

static void test_http10_stream(void **state) {
    (void)state;
    struct rig rig;
    rig_init(&rig, NULL);
    rig_add(&rig, "i1", STORE_RUNNING);
    check_raw(&rig, "POST /sandboxes/i1/exec HTTP/1.0\r\nConnection: keep-alive\r\n" KEY "Content-Length: 11\r\n\r\n{\"cmd\":\"a\"}",
              200, "\"}\n{\"exit\":3}\n", true);
    rig_done(&rig);
}

static void test_listen(void **state) {
    (void)state;
    struct rig rig;
    struct error err = {0};
    struct api *api = NULL;
    uint16_t port;
    rig_init(&rig, NULL);
    struct api_options options = {.base = rig.base, .store = rig.store, .key = ""};
    assert_true(api_new(&options, &api, &err) < 0);
    assert_non_null(strstr(err.text, "the API key is empty"));
    static const char *const bad[] = {"", "127.0.0.1", "localhost:80", "127.0.0.1:65536", "::1:80", "[127.0.0.1]:80", ":80"};
    for (size_t i = 0; i < ARRAY_LENGTH(bad); i++) assert_true(api_bind(bad[i], &port, &err) < 0);
    char taken[32];
    snprintf(taken, sizeof(taken), "127.0.0.1:%u", rig.port);
    assert_true(api_bind(taken, &port, &err) < 0);
    assert_non_null(strstr(err.text, "cannot listen on 127.0.0.1:"));
    int fd = api_bind("[::1]:0", &port, &err);
    assert_true(fd >= 0 && port > 0);
    close(fd);
    rig_done(&rig);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_keys), cmocka_unit_test(test_framing), cmocka_unit_test(test_malformed),
        cmocka_unit_test(test_sizes), cmocka_unit_test(test_slow), cmocka_unit_test(test_many), cmocka_unit_test(test_gone),
        cmocka_unit_test(test_backpressure), cmocka_unit_test(test_decisions), cmocka_unit_test(test_long_log),
        cmocka_unit_test(test_http10_stream), cmocka_unit_test(test_listen)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
