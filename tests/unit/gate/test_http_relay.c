// SPDX-License-Identifier: Apache-2.0
// One connection through the HTTP relay, with two requests and an upgrade, while a call for memory fails: each one in turn,
// of ours and of libevent's. Whatever fails, the server gets no byte out of order, and the client what it should or an end.
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/mem.h"
#include "gate/http_relay.h"
#include "gate/state.h"
#include "policy/model.h"

// ---- memory that fails (linked with --wrap) ----

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t size);
char *__real_strdup(const char *text);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *old, size_t size);
char *__wrap_strdup(const char *text);

static unsigned calls, failing; // the number of the one that fails, 0: none

static bool fails(void) { return failing && ++calls == failing; }
void *__wrap_malloc(size_t size) { return fails() ? NULL : __real_malloc(size); }
void *__wrap_calloc(size_t count, size_t size) { return fails() ? NULL : __real_calloc(count, size); }
void *__wrap_realloc(void *old, size_t size) { return fails() ? NULL : __real_realloc(old, size); }
char *__wrap_strdup(const char *text) { return fails() ? NULL : __real_strdup(text); }

// ---- the rig ----

#define FIRST "POST /a HTTP/1.1\r\nHost: allowed.test\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n"
#define REST "3\r\nend\r\n0\r\n\r\n"
#define SECOND "GET /b HTTP/1.1\r\nHost: allowed.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
#define ANSWER "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nanswer"
#define SWITCH "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nhello"

struct side {
    int fd;
    char got[4096];
    size_t len;
    bool ended;
};

static struct gate gate;
static struct side client, server;

static struct policy *compile(void) {
    struct policy_model *model = policy_model_new(POLICY_DIALECT_NATIVE);
    struct policy_warnings warnings = {0};
    struct policy *policy = NULL;
    struct error err = {0};
    assert_int_equal(policy_model_allow(model, "allowed.test:80", "test", &err), 0);
    model->allow[0].protocol = POLICY_ENTRY_HTTP;
    assert_int_equal(policy_compile(model, NULL, NULL, 0, 1, &policy, &warnings, &err), 0);
    policy_warnings_done(&warnings);
    policy_model_free(model);
    return policy;
}

static void start(int channel[2]) {
    memset(&gate, 0, sizeof(gate));
    assert_int_equal(channel_pair(channel), 0);
    gate.channel = channel[0];
    gate.keeper = -1;
    gate.base = event_base_new();
    gate.journal = journal_new(&gate);
    if (watcher_new(gate.base, &gate.watcher) < 0) abort();
    slab_init(&gate.flow_memory, sizeof(struct flow));
    list_init(&gate.flows);
    for (size_t i = 0; i < GATE_BUCKETS; i++) list_init(&gate.pending[i]);
    gate.policy = compile();
    gate.facts = policy_facts(gate.policy);
    assert_int_equal(relay_engine_new(gate.base, flow_relay_ended, &gate.relays), 0);
}

static void stop(const int channel[2]) {
    relay_engine_free(gate.relays);
    event_base_loop(gate.base, EVLOOP_NONBLOCK);
    journal_free(gate.journal);
    policy_free(gate.policy);
    slab_done(&gate.flow_memory);
    watcher_free(gate.watcher);
    event_base_free(gate.base);
    close(channel[0]);
    close(channel[1]);
}

static int pair(struct side *side) {
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
    *side = (struct side){.fd = fds[0]};
    return fds[1];
}

// A flow that was sniffed as HTTP, with its first bytes and its connection to the server.
static struct flow *sniffed(void) {
    uint8_t bytes[40] = {0};
    struct ip_packet syn = {.bytes = bytes, .len = sizeof(bytes), .source = addr_ipv4(0xc0000002),
                            .destination = addr_ipv4(0xc6120001), .source_port = 40000, .destination_port = 80};
    struct flow *flow = flow_new(&gate, &syn);
    assert_non_null(flow);
    list_remove(&flow->opening->bucket);
    flow->dialled = "allowed.test";
    flow->app = POLICY_APP_HTTP;
    flow->peer = addr_ipv4(0xc6336401);
    flow->fd = pair(&client);
    flow->upstream = pair(&server);
    flow->opening->bytes = (uint8_t *)strdup(FIRST);
    assert_non_null(flow->opening->bytes);
    flow->opening->len = strlen(FIRST);
    return flow;
}

static void say(struct side *side, const char *text) { (void)!send(side->fd, text, strlen(text), MSG_NOSIGNAL); }

static void side_read(struct side *side) {
    ssize_t got;
    while ((got = recv(side->fd, side->got + side->len, sizeof(side->got) - 1 - side->len, 0)) > 0) side->len += (size_t)got;
    if (got == 0 || (errno != EAGAIN && errno != EINTR)) side->ended = true;
}

static void turn(void) {
    for (int i = 0; i < 6; i++) event_base_loop(gate.base, EVLOOP_NONBLOCK);
    side_read(&client);
    side_read(&server);
}

static void converse(void) {
    turn();
    say(&client, REST);
    turn();
    say(&server, ANSWER);
    turn();
    say(&client, SECOND);
    turn();
    say(&server, SWITCH);
    turn();
    say(&client, "hello");
    turn();
}

static void check(const struct side *side, const char *wanted, bool may_be_refused) {
    size_t len = side->len;
    const char *refused = may_be_refused ? strstr(side->got, "HTTP/1.1 4") : NULL;
    if (refused) len = (size_t)(refused - side->got);
    if (len > strlen(wanted) || memcmp(side->got, wanted, len) != 0) fail_msg("call %u: got \"%s\"", failing, side->got);
    if (!side->ended && !refused && len < strlen(wanted)) fail_msg("call %u: hangs after \"%s\"", failing, side->got);
}

static void test_memory_fails(void **state) {
    (void)state;
    for (unsigned at = 1, done = 0; !done; at++) {
        int channel[2];
        start(channel);
        struct flow *flow = sniffed();
        calls = 0;
        failing = at;
        http_relay_start(flow);
        converse();
        check(&client, ANSWER SWITCH, true);
        check(&server, FIRST REST SECOND "hello", false);
        done = calls < failing;
        failing = 0;
        if (done) assert_int_equal(client.len, strlen(ANSWER SWITCH)); // and all was as it should be
        if (done) assert_int_equal(server.len, strlen(FIRST REST SECOND "hello"));
        close(client.fd);
        close(server.fd);
        for (int i = 0; i < 6; i++) event_base_loop(gate.base, EVLOOP_NONBLOCK);
        assert_int_equal(gate.flow_count, 0);
        stop(channel);
        if (done) assert_in_range(at, 20, 1000);
    }
}

// A head that has begun and does not go on is ended, the first one's or a later one's; a connection between two requests is not.
static void test_stalled_heads(void **state) {
    static const struct {
        const char *first, *second; // what the client says before and after the answer
        bool ends;
    } rows[] = {
        {"GET / HT", "", true},
        {"GET / HTTP/1.1\r\nHost: allowed.test\r\nX:", "", true},
        {"GET / HTTP/1.1\r\nHost: allowed.test\r\n\r\n", "GET /b HTTP/1.1\r\n", true},
        {"GET / HTTP/1.1\r\nHost: allowed.test\r\n\r\n", "", false},
        {"GET / HT", "TP/1.1\r\nHost: allowed.test\r\n\r\n", false},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        int channel[2];
        start(channel);
        struct flow *flow = sniffed();
        flow->opening->len = strlen(rows[i].first);
        memcpy(flow->opening->bytes, rows[i].first, flow->opening->len);
        http_relay_start(flow);
        flow->http->head_ms = 200;
        turn();
        if (server.len > 0) say(&server, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        turn();
        say(&client, rows[i].second);
        for (int wait = 0; wait < (rows[i].ends ? 500 : 60) && !client.ended; wait++) {
            poll(NULL, 0, 10);
            turn();
        }
        if (client.ended != rows[i].ends) fail_msg("row %zu", i);
        assert_int_equal(gate.counters.decisions[POLICY_TCP][POLICY_DENY][POLICY_BAD_REQUEST], rows[i].ends);
        close(client.fd);
        close(server.fd);
        turn();
        assert_int_equal(gate.flow_count, 0);
        stop(channel);
    }
}

int main(void) {
    event_set_mem_functions(__wrap_malloc, __wrap_realloc, free);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_memory_fails), cmocka_unit_test(test_stalled_heads)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
