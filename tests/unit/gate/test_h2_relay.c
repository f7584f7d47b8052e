// SPDX-License-Identifier: Apache-2.0
// The HTTP/2 relay between two sockets: whose requests go on and what is logged of them; and the same once more for each
// call for memory, which fails. Whatever fails, the server gets no request without its value and none that is another's.
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#define H2_CALLS_PLAIN // the peers use nghttp2 as it is
#include "base/mem.h"
#include "gate/h2_calls.h"
#include "gate/intercept.h"
#include "gate/state.h"
#include "gate/stream.h"
#include "policy/model.h"

// ---- memory that fails, and what is beside the relay (linked with --wrap) ----

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t size);
char *__real_strdup(const char *text);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *old, size_t size);
char *__wrap_strdup(const char *text);
const char *__wrap_intercept_host(const struct flow *flow);
const char *__wrap_intercept_why(const struct flow *flow);
struct stream *__wrap_intercept_take_client(struct flow *flow);
struct stream *__wrap_intercept_take_upstream(struct flow *flow);
void __wrap_intercept_carries(struct flow *flow, const struct injection *injection);
struct injection_wait *__wrap_injection_start(struct gate *of, const char *host, const void *method, size_t method_len,
                                              const void *path, size_t path_len, injection_done *done, void *data);
void __wrap_injection_cancel(struct injection_wait *wait);
void __wrap_injection_free(struct injection *injection);

static unsigned calls, failing; // the number of the one that fails, 0: none
static bool armed;              // in the relay, not in its peers

static bool fails(void) { return armed && failing && ++calls == failing; }
void *__wrap_malloc(size_t size) { return fails() ? NULL : __real_malloc(size); }
void *__wrap_calloc(size_t count, size_t size) { return fails() ? NULL : __real_calloc(count, size); }
void *__wrap_realloc(void *old, size_t size) { return fails() ? NULL : __real_realloc(old, size); }
char *__wrap_strdup(const char *text) { return fails() ? NULL : __real_strdup(text); }

static struct gate gate;
static struct stream *ends[2];
static unsigned given, freed, carried;
static int injection_status;
static char asked_for[200];

const char *__wrap_intercept_host(const struct flow *flow) { return flow ? "bound.test" : NULL; }
const char *__wrap_intercept_why(const struct flow *flow) { return flow ? NULL : ""; }
struct stream *__wrap_intercept_take_client(struct flow *flow) { return flow ? TAKE_POINTER(ends[0]) : NULL; }
struct stream *__wrap_intercept_take_upstream(struct flow *flow) { return flow ? TAKE_POINTER(ends[1]) : NULL; }
void __wrap_intercept_carries(struct flow *flow, const struct injection *injection) { carried += flow && injection; }

struct injection_wait {
    struct event *event;
    injection_done *done;
    void *data;
};

void __wrap_injection_cancel(struct injection_wait *wait) {
    event_free(wait->event);
    free(wait);
}

static void answer(evutil_socket_t fd, short what, void *data) {
    (void)fd;
    (void)what;
    struct injection_wait wait = *(struct injection_wait *)data;
    struct injection *injection = injection_status == 0 ? calloc(1, sizeof(*injection)) : NULL;
    __wrap_injection_cancel(data);
    given += injection != NULL;
    if (injection) injection->count = 1;
    if (injection) injection->values[0] = (struct injection_value){.header = "Authorization", .bytes = "Bearer sesame", .len = 13};
    wait.done(injection ? 0 : -ETIMEDOUT, injection, wait.data);
}

struct injection_wait *__wrap_injection_start(struct gate *of, const char *host, const void *method, size_t method_len,
                                              const void *path, size_t path_len, injection_done *done, void *data) {
    struct injection_wait *wait = calloc(1, sizeof(*wait));
    if (!wait) return NULL;
    *wait = (struct injection_wait){.done = done, .data = data};
    wait->event = evtimer_new(of->base, answer, wait);
    if (!wait->event) {
        free(wait);
        return NULL;
    }
    snprintf(asked_for, sizeof(asked_for), "%s %.*s %.*s", host, (int)method_len, (const char *)method, (int)path_len,
             (const char *)path);
    event_active(wait->event, EV_TIMEOUT, 0);
    return wait;
}

void __wrap_injection_free(struct injection *injection) {
    freed += injection != NULL;
    free(injection);
}

// ---- the peers ----

#define STREAMS 8
struct peer {
    nghttp2_session *session;
    int fd;
    bool ended, server;
    unsigned requests;
    char fields[STREAMS][1024], data[STREAMS][512]; // by number of the stream, halved
    bool end[STREAMS];
};
static struct peer client, server;

static int peer_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name, size_t name_len,
                       const uint8_t *value, size_t value_len, uint8_t flags, void *data) {
    (void)session, (void)flags;
    char *fields = ((struct peer *)data)->fields[frame->hd.stream_id / 2 % STREAMS];
    size_t len = strlen(fields);
    snprintf(fields + len, sizeof(client.fields[0]) - len, "%.*s: %.*s\n", (int)name_len, (const char *)name, (int)value_len,
             (const char *)value);
    return 0;
}

static int peer_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *bytes, size_t len, void *data) {
    (void)session, (void)flags;
    char *text = ((struct peer *)data)->data[id / 2 % STREAMS];
    size_t have = strlen(text);
    snprintf(text + have, sizeof(client.data[0]) - have, "%.*s", (int)len, (const char *)bytes);
    return 0;
}

static int peer_frame(nghttp2_session *session, const nghttp2_frame *frame, void *data) {
    struct peer *peer = data;
    bool message = frame->hd.type == NGHTTP2_HEADERS || frame->hd.type == NGHTTP2_DATA;
    if (!message || !(frame->hd.flags & NGHTTP2_FLAG_END_STREAM)) return 0;
    peer->end[frame->hd.stream_id / 2 % STREAMS] = true;
    if (!peer->server) return 0;
    nghttp2_nv ok = {(uint8_t *)(uintptr_t) ":status", (uint8_t *)(uintptr_t) "200", 7, 3, 0};
    peer->requests++;
    return nghttp2_submit_response(session, frame->hd.stream_id, &ok, 1, NULL);
}

// The peer's session, and the relay's end of its socket.
static int peer_start(struct peer *peer, bool is_server) {
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
    *peer = (struct peer){.fd = fds[0], .server = is_server};
    nghttp2_session_callbacks *calls_of;
    assert_int_equal(nghttp2_session_callbacks_new(&calls_of), 0);
    nghttp2_session_callbacks_set_on_header_callback(calls_of, peer_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(calls_of, peer_data);
    nghttp2_session_callbacks_set_on_frame_recv_callback(calls_of, peer_frame);
    if (is_server) assert_int_equal(nghttp2_session_server_new(&peer->session, calls_of, peer), 0);
    else assert_int_equal(nghttp2_session_client_new(&peer->session, calls_of, peer), 0);
    nghttp2_session_callbacks_del(calls_of);
    assert_int_equal(nghttp2_submit_settings(peer->session, NGHTTP2_FLAG_NONE, NULL, 0), 0);
    return fds[1];
}

static void peer_run(struct peer *peer) {
    uint8_t bytes[16384];
    ssize_t got;
    while ((got = recv(peer->fd, bytes, sizeof(bytes), 0)) > 0) (void)!nghttp2_session_mem_recv(peer->session, bytes, (size_t)got);
    peer->ended |= got == 0 || (errno != EAGAIN && errno != EINTR);
    const uint8_t *out;
    while ((got = nghttp2_session_mem_send(peer->session, &out)) > 0) (void)!send(peer->fd, out, (size_t)got, MSG_NOSIGNAL);
}

static void turn(void) {
    for (int i = 0; i < 8; i++) {
        armed = true;
        event_base_loop(gate.base, EVLOOP_NONBLOCK);
        armed = false;
        for (int side = 0; side < 2 && gate.flow_count == 0; side++) stream_free(TAKE_POINTER(ends[side]), true); // not taken
        peer_run(&client);
        peer_run(&server);
    }
}

static ssize_t peer_body(nghttp2_session *session, int32_t id, uint8_t *out, size_t room, uint32_t *flags,
                         nghttp2_data_source *source, void *data) {
    (void)session, (void)id, (void)source, (void)data;
    *flags |= NGHTTP2_DATA_FLAG_EOF;
    return snprintf((char *)out, room, "body");
}

static int32_t ask(const char *method, const char *authority, bool body) {
    const char *text[][2] = {{":method", method}, {":scheme", "https"}, {":authority", authority}, {":path", "/a?b"},
                             {"authorization", "own"}};
    nghttp2_nv fields[5];
    nghttp2_data_provider provider = {.read_callback = peer_body};
    for (size_t i = 0; i < 5; i++)
        fields[i] = (nghttp2_nv){(uint8_t *)(uintptr_t)text[i][0], (uint8_t *)(uintptr_t)text[i][1], strlen(text[i][0]),
                                 strlen(text[i][1]), 0};
    return nghttp2_submit_request(client.session, NULL, fields, 5, body ? &provider : NULL, NULL);
}

// ---- the rig ----

static int channel[2];
static struct flow *flow;
static struct channel_message message; // of the log
static size_t at;                      // what was read of it

// bound: by a credential too.
static struct policy *compile(const char *allowed, bool bound) {
    char text[256];
    struct policy_model *model = NULL;
    struct policy_warnings warnings = {0};
    struct policy *policy = NULL;
    struct error err = {0};
    int len = snprintf(text, sizeof(text), "version: 1\nallow: [{host: %s}]\n%s%s%s", allowed, bound ? "credentials: [{host: " : "",
                       bound ? allowed : "", bound ? ", header: x-key, secret: 'file:/key'}]\n" : "");
    assert_int_equal(policy_read(text, (size_t)len, "test", POLICY_DIALECT_NATIVE, &model, &err), 0);
    assert_int_equal(policy_compile(model, NULL, NULL, 0, 1, &policy, &warnings, &err), 0);
    policy_warnings_done(&warnings);
    policy_model_free(model);
    return policy;
}

static void start(bool upstream) {
    static const struct stream_handlers none;
    uint8_t bytes[40] = {0};
    struct ip_packet syn = {.bytes = bytes, .len = sizeof(bytes), .source = addr_ipv4(0xc0000002),
                            .destination = addr_ipv4(0xc6120001), .source_port = 40000, .destination_port = 443};
    memset(&gate, 0, sizeof(gate));
    assert_int_equal(h2_calls_load(NULL), 0);
    given = freed = carried = 0;
    message = (struct channel_message){0};
    at = 0;
    injection_status = 0;
    assert_int_equal(channel_pair(channel), 0);
    gate.channel = channel[0];
    gate.keeper = -1;
    gate.base = event_base_new();
    gate.journal = journal_new(&gate);
    if (watcher_new(gate.base, &gate.watcher) < 0) abort();
    slab_init(&gate.flow_memory, sizeof(struct flow));
    list_init(&gate.flows);
    for (size_t i = 0; i < GATE_BUCKETS; i++) list_init(&gate.pending[i]);
    gate.policy = compile("bound.test", true);
    gate.facts = policy_facts(gate.policy);
    flow = flow_new(&gate, &syn);
    list_remove(&flow->opening->bucket);
    flow_free_opening(flow);
    flow->dialled = "bound.test";
    flow->app = POLICY_APP_TLS;
    flow->peer = addr_ipv4(0xc6336401);
    ends[0] = stream_new(gate.base, peer_start(&client, false), NULL, 1000, &none, NULL);
    ends[1] = stream_new(gate.base, peer_start(&server, true), NULL, 1000, &none, NULL);
    if (!upstream) stream_free(TAKE_POINTER(ends[1]), true);
    armed = true;
    h2_relay_start(flow);
    armed = false;
}

static void stop(void) {
    close(client.fd);
    close(server.fd);
    for (int i = 0; i < 8; i++) event_base_loop(gate.base, EVLOOP_NONBLOCK);
    assert_int_equal(gate.flow_count, 0);
    assert_int_equal(given, freed);
    for (int side = 0; side < 2; side++) stream_free(TAKE_POINTER(ends[side]), false);
    event_base_loop(gate.base, EVLOOP_NONBLOCK);
    nghttp2_session_del(client.session);
    nghttp2_session_del(server.session);
    journal_free(gate.journal);
    policy_free(gate.policy);
    slab_done(&gate.flow_memory);
    watcher_free(gate.watcher);
    event_base_free(gate.base);
    close(channel[0]);
    close(channel[1]);
}

// The lines of the log, one after the other.
static bool logged(struct ipc_decision *ret_line) {
    static uint8_t buffer[65536];
    if (ipc_decision_next(message.body, message.body ? message.length : 0, &at, ret_line)) return true;
    message.body = NULL;
    at = 0;
    if (channel_receive(channel[1], buffer, sizeof(buffer), &message) != 1) return false;
    return ipc_decision_next(message.body, message.length, &at, ret_line);
}

static void assert_logged(uint8_t event, enum policy_verdict verdict, enum policy_reason reason) {
    struct ipc_decision line;
    journal_flush(gate.journal);
    assert_true(logged(&line));
    assert_int_equal(line.event, event);
    assert_string_equal(policy_reason_name(line.reason), policy_reason_name(reason));
    assert_int_equal(line.verdict, verdict);
    assert_string_equal(line.name, "bound.test");
    if (event == IPC_EVENT_FLOW) assert_true(line.bytes_out > 60 && line.bytes_in > 20);
}

static void assert_logged_no_more(void) {
    struct ipc_decision line;
    journal_flush(gate.journal);
    assert_false(logged(&line));
}

#define HEAD(method) ":method: " method "\n:scheme: https\n:authority: bound.test\n:path: /a?b\nauthorization: Bearer sesame\n"

static void converse(void) {
    turn();
    ask("GET", "bound.test", false);
    ask("GET", "other.test", false);
    ask("POST", "Bound.test.:443", true);
    turn();
}

static void test_requests(void **state) {
    (void)state;
    start(true);
    converse();
    assert_string_equal(asked_for, "bound.test POST /a?b");
    assert_string_equal(server.fields[0], HEAD("GET"));
    assert_string_equal(server.fields[1], HEAD("POST")); // the host as it was judged
    assert_string_equal(server.data[1], "body");
    assert_int_equal(server.requests, 2);
    assert_int_equal(carried, 2);
    assert_string_equal(client.fields[0], ":status: 200\n");
    assert_non_null(strstr(client.fields[1], ":status: 421\n"));
    assert_non_null(strstr(client.fields[1], "x-penstock-reason: name_mismatch\n"));
    assert_non_null(strstr(client.data[1], "\"reason\":\"name_mismatch\""));
    assert_string_equal(client.fields[2], ":status: 200\n");
    assert_logged(IPC_EVENT_DECISION, POLICY_DENY, POLICY_NAME_MISMATCH); // in the order of their ends
    assert_logged(IPC_EVENT_DECISION, POLICY_ALLOW, POLICY_ALLOWED_NAME);
    assert_logged(IPC_EVENT_DECISION, POLICY_ALLOW, POLICY_ALLOWED_NAME);
    shutdown(client.fd, SHUT_WR); // the client has all it wants
    turn();
    assert_true(client.ended);
    stop();
    assert_int_equal(given, 2);
}

static void test_log_of_the_end(void **state) {
    (void)state;
    start(true);
    ask("GET", "bound.test", false);
    turn();
    assert_logged(IPC_EVENT_DECISION, POLICY_ALLOW, POLICY_ALLOWED_NAME);
    flow_end(flow, true);
    assert_logged(IPC_EVENT_FLOW, POLICY_ALLOW, POLICY_ALLOWED_NAME);
    assert_logged_no_more();
    stop();
}

static void test_binding_fails(void **state) {
    (void)state;
    start(true);
    injection_status = -ETIMEDOUT;
    ask("GET", "bound.test", false);
    turn();
    assert_non_null(strstr(client.fields[0], ":status: 502\n"));
    assert_non_null(strstr(client.fields[0], "x-penstock-reason: binding_failed\n"));
    assert_int_equal(server.requests, 0);
    assert_logged(IPC_EVENT_DECISION, POLICY_DENY, POLICY_BINDING_FAILED);
    assert_logged_no_more();
    stop();
}

static void test_no_server(void **state) {
    (void)state;
    start(false);
    ask("GET", "bound.test", false);
    turn();
    assert_non_null(strstr(client.fields[0], ":status: 502\n"));
    assert_non_null(strstr(client.fields[0], "x-penstock-reason: upstream_failed\n"));
    assert_logged(IPC_EVENT_DECISION, POLICY_ALLOW, POLICY_UPSTREAM_FAILED);
    stop();
}

static void test_refused_methods(void **state) {
    (void)state;
    static const char *const methods[] = {"TRACE", "trace", "Trace", "TRACK"};
    for (size_t i = 0; i < ARRAY_LENGTH(methods); i++) {
        start(true);
        ask(methods[i], "bound.test", false);
        turn();
        if (!strstr(client.fields[0], ":status: 400\n")) fail_msg("%s: %s", methods[i], client.fields[0]);
        assert_int_equal(server.requests, 0);
        stop();
    }
}

static void test_log_is_behind(void **state) {
    (void)state;
    start(true);
    turn();
    gate.paused = true;
    ask("GET", "bound.test", false);
    ask("GET", "other.test", false);
    turn();
    assert_int_equal(server.requests, 0);
    assert_logged_no_more();
    gate.paused = false;
    h2_relay_resume(flow);
    turn();
    assert_int_equal(server.requests, 1);
    assert_true(client.end[0] && client.end[1]);
    stop();
}

static void test_policy_changes(void **state) {
    (void)state;
    start(true);
    turn();
    assert_true(h2_relay_rejudge(flow).verdict == POLICY_ALLOW);
    policy_free(gate.policy);
    gate.policy = compile("bound.test", false); // allowed, and nothing to open it for
    assert_false(h2_relay_rejudge(flow).verdict == POLICY_ALLOW);
    policy_free(gate.policy);
    gate.policy = compile("elsewhere.test", true);
    assert_false(h2_relay_rejudge(flow).verdict == POLICY_ALLOW);
    ask("GET", "bound.test", false);
    turn();
    assert_non_null(strstr(client.fields[0], ":status: 403\n"));
    assert_int_equal(server.requests, 0);
    stop();
}

static void test_memory_fails(void **state) {
    (void)state;
    for (unsigned call = 1, done = 0; !done; call++) {
        calls = 0;
        failing = call;
        start(true);
        converse();
        done = calls < failing;
        failing = 0;
        for (int i = 0; i < STREAMS; i++) {
            bool asked = server.end[i]; // and if it was, it is one of ours, with its value
            bool fits = strcmp(server.fields[i], HEAD("GET")) == 0 || strstr(server.fields[i], "sesame");
            if (asked && (!fits || strstr(server.fields[i], "other.test"))) fail_msg("call %u: %s", call, server.fields[i]);
        }
        for (int i = 0; i < 3; i++)
            if (!client.end[i] && !client.ended) fail_msg("call %u: request %d hangs", call, i);
        if (done) assert_int_equal(server.requests, 2);
        stop();
        if (done) assert_in_range(call, 100, 2000);
    }
}

int main(void) {
    event_set_mem_functions(__wrap_malloc, __wrap_realloc, free);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_requests), cmocka_unit_test(test_log_of_the_end), cmocka_unit_test(test_binding_fails),
        cmocka_unit_test(test_no_server), cmocka_unit_test(test_refused_methods), cmocka_unit_test(test_log_is_behind),
        cmocka_unit_test(test_policy_changes), cmocka_unit_test(test_memory_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
