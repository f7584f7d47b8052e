// SPDX-License-Identifier: Apache-2.0
// Doors of a gate that has a policy and a journal, but no network: everything is refused here. What a client sends, whole
// and byte by byte, against what it is answered and what the log says. (What is let through: tests/e2e/test_proxy.py.)
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

#include "base/mem.h"
#include "gate/state.h"
#include "policy/model.h"

static struct gate gate;
static int main_end;

static struct policy *compile(bool block_private) {
    struct policy_model *model = policy_model_new(POLICY_DIALECT_NATIVE);
    struct policy_warnings warnings = {0};
    struct policy *policy = NULL;
    struct error err = {0};
    assert_int_equal(policy_model_allow(model, "allowed.test", "test", &err), 0);
    assert_int_equal(policy_model_allow_cidr(model, "10.1.0.0/16", "test", &err), 0);
    model->block_private = block_private;
    assert_int_equal(policy_compile(model, NULL, NULL, 0, 1, &policy, &warnings, &err), 0);
    policy_warnings_done(&warnings);
    policy_model_free(model);
    return policy;
}

static int setup(void **state) {
    (void)state;
    int channel[2];
    memset(&gate, 0, sizeof(gate));
    if (channel_pair(channel) < 0) return -1;
    gate.channel = channel[0];
    main_end = channel[1];
    gate.base = event_base_new();
    gate.journal = journal_new(&gate);
    gate.keeper = -1;
    gate.doors = true;
    for (int i = 0; i < IPC_SOCKET_COUNT; i++) gate.sockets[i] = -1;
    if (watcher_new(gate.base, &gate.watcher) < 0) abort();
    slab_init(&gate.flow_memory, sizeof(struct flow));
    list_init(&gate.flows);
    for (size_t i = 0; i < GATE_BUCKETS; i++) list_init(&gate.pending[i]);
    gate.policy = compile(true);
    gate.facts = policy_facts(gate.policy);
    gate.pool = dns_pool_new(&gate.facts.pool4, &gate.facts.pool6, NULL, NULL);
    return gate.pool ? 0 : -1;
}

static int teardown(void **state) {
    (void)state;
    LIST_FOREACH(&gate.flows, node) flow_end(LIST_ENTRY(node, struct flow, link), true);
    event_base_loop(gate.base, EVLOOP_NONBLOCK);
    dns_pool_free(gate.pool);
    journal_free(gate.journal);
    policy_free(gate.policy);
    slab_done(&gate.flow_memory);
    watcher_free(gate.watcher);
    event_base_free(gate.base);
    close(gate.channel);
    close(main_end);
    return 0;
}

// A connection to a door, as it is once its SYN was let through and it was accepted. The client's end.
static int connect_to(enum door_kind kind, struct flow **ret_flow) {
    int pair[2];
    uint8_t bytes[40] = {0};
    struct ip_packet syn = {.bytes = bytes, .len = sizeof(bytes), .source = addr_ipv4(0xc0000002),
                            .destination = addr_ipv4(0xc0000001), .source_port = 40000,
                            .destination_port = kind == DOOR_HTTP ? KEEPER_PORT_HTTP : KEEPER_PORT_SOCKS};
    assert_int_equal(door_at(&gate, &syn.destination, syn.destination_port), kind);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair), 0);
    struct flow *flow = flow_new(&gate, &syn);
    assert_non_null(flow);
    door_open(flow, kind);
    assert_int_equal(flow->state, FLOW_ADMITTED);
    flow->fd = pair[0];
    list_remove(&flow->opening->bucket);
    flow_stop_timer(flow);
    door_start(flow);
    *ret_flow = flow;
    return pair[1];
}

static void turn(void) {
    for (int i = 0; i < 4; i++) event_base_loop(gate.base, EVLOOP_NONBLOCK);
}

static bool next_record(struct ipc_decision *ret_record) {
    static _Alignas(max_align_t) uint8_t buffer[CHANNEL_BUFFER_SIZE];
    static struct channel_message message;
    static size_t at;
    if (at < message.length) return ipc_decision_next(message.body, message.length, &at, ret_record);
    journal_flush(gate.journal);
    message.length = at = 0;
    if (channel_receive(main_end, buffer, sizeof(buffer), &message) != 1) return false;
    assert_int_equal(message.type, IPC_DECISION);
    return ipc_decision_next(message.body, message.length, &at, ret_record);
}

#define BYTES(text) (text), sizeof(text) - 1
#define CONNECT(target) BYTES("CONNECT " target " HTTP/1.1\r\nHost: allowed.test:443\r\n\r\n")
#define HELLO "\5\1\0"
#define NAME(length, name) HELLO "\5\1\0\3" length name

struct row {
    enum door_kind kind;
    const char *bytes;
    size_t len;
    const char *answer; // its beginning
    size_t answer_len;
    enum policy_reason reason;
};

static const struct row rows[] = {
    // HTTP: whose name counts is the target's.
    {DOOR_HTTP, CONNECT("denied.example:443"), BYTES("HTTP/1.1 403"), POLICY_BASE_DENIED},
    {DOOR_HTTP, CONNECT("denied.example.:443"), BYTES("HTTP/1.1 403"), POLICY_BASE_DENIED},
    {DOOR_HTTP, CONNECT("allowed.test.denied.example:443"), BYTES("HTTP/1.1 403"), POLICY_BASE_DENIED},
    {DOOR_HTTP, CONNECT("notallowed.test:443"), BYTES("HTTP/1.1 403"), POLICY_BASE_DENIED},
    {DOOR_HTTP, CONNECT("allowed.test:8443"), BYTES("HTTP/1.1 403"), POLICY_PORT_DENIED},
    {DOOR_HTTP, CONNECT("ALLOWED.test.:80"), BYTES("HTTP/1.1 403"), POLICY_NOT_HTTPS},
    {DOOR_HTTP, CONNECT("169.254.169.254:80"), BYTES("HTTP/1.1 403"), POLICY_PRIVATE_ADDRESS},
    {DOOR_HTTP, CONNECT("[::ffff:169.254.169.254]:80"), BYTES("HTTP/1.1 403"), POLICY_PRIVATE_ADDRESS},
    {DOOR_HTTP, CONNECT("[64:ff9b::10.9.9.9]:443"), BYTES("HTTP/1.1 403"), POLICY_PRIVATE_ADDRESS},
    {DOOR_HTTP, CONNECT("[2002:a09:909::1]:443"), BYTES("HTTP/1.1 403"), POLICY_PRIVATE_ADDRESS},
    {DOOR_HTTP, CONNECT("198.51.100.1:25"), BYTES("HTTP/1.1 403"), POLICY_BASE_DENIED},
    // The sandbox's own namespace, and the doors themselves.
    {DOOR_HTTP, CONNECT("127.0.0.1:443"), BYTES("HTTP/1.1 403"), POLICY_NODE_OWN_ADDRESS},
    {DOOR_HTTP, CONNECT("127.9.9.9:443"), BYTES("HTTP/1.1 403"), POLICY_NODE_OWN_ADDRESS},
    {DOOR_HTTP, CONNECT("[::1]:443"), BYTES("HTTP/1.1 403"), POLICY_NODE_OWN_ADDRESS},
    {DOOR_HTTP, CONNECT("[::ffff:127.0.0.1]:443"), BYTES("HTTP/1.1 403"), POLICY_NODE_OWN_ADDRESS},
    {DOOR_HTTP, CONNECT("0.0.0.0:443"), BYTES("HTTP/1.1 403"), POLICY_NODE_OWN_ADDRESS},
    {DOOR_HTTP, CONNECT("[::]:443"), BYTES("HTTP/1.1 403"), POLICY_NODE_OWN_ADDRESS},
    {DOOR_HTTP, CONNECT("192.0.0.1:3128"), BYTES("HTTP/1.1 403"), POLICY_NODE_OWN_ADDRESS},
    {DOOR_HTTP, CONNECT("192.0.0.1:53"), BYTES("HTTP/1.1 403"), POLICY_NODE_OWN_ADDRESS},
    {DOOR_HTTP, CONNECT("192.0.0.3:1"), BYTES("HTTP/1.1 403"), POLICY_NODE_OWN_ADDRESS},
    {DOOR_HTTP, CONNECT("[fd5a:91c3:7e24:1::1]:1080"), BYTES("HTTP/1.1 403"), POLICY_NODE_OWN_ADDRESS},
    {DOOR_HTTP, CONNECT("localhost:8000"), BYTES("HTTP/1.1 403"), POLICY_BASE_DENIED},
    {DOOR_HTTP, CONNECT("198.18.0.9:443"), BYTES("HTTP/1.1 403"), POLICY_NO_NAME}, // a synthetic address of no name
    // Not well-formed, or an address in odd clothes.
    {DOOR_HTTP, CONNECT("allowed.test"), BYTES("HTTP/1.1 400"), POLICY_BAD_REQUEST},
    {DOOR_HTTP, CONNECT("allowed.test:"), BYTES("HTTP/1.1 400"), POLICY_BAD_REQUEST},
    {DOOR_HTTP, CONNECT("allowed.test:0"), BYTES("HTTP/1.1 400"), POLICY_BAD_REQUEST},
    {DOOR_HTTP, CONNECT("allowed.test:65979"), BYTES("HTTP/1.1 400"), POLICY_BAD_REQUEST},
    {DOOR_HTTP, CONNECT("allowed.test:+443"), BYTES("HTTP/1.1 400"), POLICY_BAD_REQUEST},
    {DOOR_HTTP, CONNECT("allowed.test..:443"), BYTES("HTTP/1.1 400"), POLICY_BAD_REQUEST},
    {DOOR_HTTP, CONNECT("allowed.test\\@denied.example:443"), BYTES("HTTP/1.1 400"), POLICY_BAD_REQUEST},
    {DOOR_HTTP, CONNECT("allowed.test@denied.example:443"), BYTES("HTTP/1.1 400"), POLICY_BAD_REQUEST},
    {DOOR_HTTP, CONNECT("denied.example%00.allowed.test:443"), BYTES("HTTP/1.1 400"), POLICY_BAD_REQUEST},
    {DOOR_HTTP, CONNECT("denied.example\0.allowed.test:443"), BYTES("HTTP/1.1 400"), POLICY_BAD_REQUEST},
    {DOOR_HTTP, CONNECT("denied.example allowed.test:443"), BYTES("HTTP/1.1 400"), POLICY_BAD_REQUEST},
    {DOOR_HTTP, CONNECT("[fe80::1%lo]:443"), BYTES("HTTP/1.1 400"), POLICY_BAD_REQUEST},
    {DOOR_HTTP, CONNECT("::1:443"), BYTES("HTTP/1.1 400"), POLICY_BAD_REQUEST},
    {DOOR_HTTP, CONNECT("0x7f.0.0.1:443"), BYTES("HTTP/1.1 400"), POLICY_BAD_REQUEST},
    {DOOR_HTTP, CONNECT("2130706433:443"), BYTES("HTTP/1.1 400"), POLICY_BAD_REQUEST},
    {DOOR_HTTP, CONNECT("127.1:443"), BYTES("HTTP/1.1 400"), POLICY_BAD_REQUEST},
    {DOOR_HTTP, CONNECT("0177.0.0.1:443"), BYTES("HTTP/1.1 400"), POLICY_BAD_REQUEST},
    {DOOR_HTTP, CONNECT("http://allowed.test:443/"), BYTES("HTTP/1.1 400"), POLICY_BAD_REQUEST},
    {DOOR_HTTP, BYTES("CONNECT allowed.test:443 HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello"), BYTES("HTTP/1.1 400"),
     POLICY_BAD_REQUEST},
    {DOOR_HTTP, BYTES("CONNECT allowed.test:443 HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
     BYTES("HTTP/1.1 400"), POLICY_BAD_REQUEST},
    {DOOR_HTTP, BYTES("CONNECT allowed.test:443 HTTP/1.1\nHost: x\n\n"), BYTES("HTTP/1.1 400"), POLICY_BAD_REQUEST},
    {DOOR_HTTP, BYTES("\x16\3\1\2\0\1\0\1\xfc\3\3"), BYTES("HTTP/1.1 400"), POLICY_BAD_REQUEST},
    {DOOR_HTTP, BYTES("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), BYTES("HTTP/1.1 400"), POLICY_BAD_REQUEST},
    // The absolute form, and others that a proxy does not get.
    {DOOR_HTTP, BYTES("GET http://denied.example/ HTTP/1.1\r\nHost: denied.example\r\n\r\n"), BYTES("HTTP/1.1 403"),
     POLICY_BASE_DENIED},
    {DOOR_HTTP, BYTES("GET http://denied.example HTTP/1.0\r\n\r\n"), BYTES("HTTP/1.1 403"), POLICY_BASE_DENIED},
    {DOOR_HTTP, BYTES("GET http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\n\r\n"), BYTES("HTTP/1.1 403"),
     POLICY_NOT_HTTPS},
    {DOOR_HTTP, BYTES("GET http://127.0.0.1:8000/ HTTP/1.1\r\nHost: 127.0.0.1:8000\r\n\r\n"), BYTES("HTTP/1.1 403"),
     POLICY_NODE_OWN_ADDRESS},
    {DOOR_HTTP, BYTES("GET http://192.0.0.1:3128/ HTTP/1.1\r\nHost: 192.0.0.1:3128\r\n\r\n"), BYTES("HTTP/1.1 403"),
     POLICY_NODE_OWN_ADDRESS},
    {DOOR_HTTP, BYTES("GET http://denied.example/ HTTP/1.1\r\nHost: allowed.test\r\n\r\n"), BYTES("HTTP/1.1 400"),
     POLICY_BAD_REQUEST},
    {DOOR_HTTP, BYTES("GET http://denied.example/ HTTP/1.1\r\nHost: denied.example:81\r\n\r\n"), BYTES("HTTP/1.1 400"),
     POLICY_BAD_REQUEST},
    {DOOR_HTTP, BYTES("GET https://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\n\r\n"), BYTES("HTTP/1.1 400"),
     POLICY_BAD_REQUEST},
    {DOOR_HTTP, BYTES("GET ftp://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\n\r\n"), BYTES("HTTP/1.1 400"),
     POLICY_BAD_REQUEST},
    {DOOR_HTTP, BYTES("GET / HTTP/1.1\r\nHost: allowed.test\r\n\r\n"), BYTES("HTTP/1.1 400"), POLICY_BAD_REQUEST},
    {DOOR_HTTP, BYTES("OPTIONS * HTTP/1.1\r\nHost: allowed.test\r\n\r\n"), BYTES("HTTP/1.1 400"), POLICY_BAD_REQUEST},
    // SOCKS
    {DOOR_SOCKS, BYTES(NAME("\16", "denied.example") "\1\xbb"), BYTES("\5\0\5\2\0\1\0\0\0\0\0\0"), POLICY_BASE_DENIED},
    {DOOR_SOCKS, BYTES("\5\1\2\1\1u\1p\5\1\0\3\16denied.example\1\xbb"), BYTES("\5\2\1\0\5\2\0\1"), POLICY_BASE_DENIED},
    {DOOR_SOCKS, BYTES(NAME("\17", "denied.example.") "\1\xbb"), BYTES("\5\0\5\2"), POLICY_BASE_DENIED},
    {DOOR_SOCKS, BYTES(NAME("\14", "allowed.test") "\x1f\x90"), BYTES("\5\0\5\2"), POLICY_PORT_DENIED},
    {DOOR_SOCKS, BYTES(NAME("\33", "denied.example\0allowed.test") "\1\xbb"), BYTES("\5\0\5\1"), POLICY_BAD_REQUEST},
    {DOOR_SOCKS, BYTES(NAME("\14", "allowed.test") "\0\0"), BYTES("\5\0\5\1"), POLICY_BAD_REQUEST},
    {DOOR_SOCKS, BYTES(NAME("\5", "127.1") "\1\xbb"), BYTES("\5\0\5\1"), POLICY_BAD_REQUEST},
    {DOOR_SOCKS, BYTES(NAME("\11", "127.0.0.1") "\1\xbb"), BYTES("\5\0\5\2"), POLICY_NODE_OWN_ADDRESS},
    {DOOR_SOCKS, BYTES(NAME("\3", "::1") "\1\xbb"), BYTES("\5\0\5\2"), POLICY_NODE_OWN_ADDRESS},
    {DOOR_SOCKS, BYTES(HELLO "\5\1\0\1\xa9\xfe\xa9\xfe\0\x50"), BYTES("\5\0\5\2"), POLICY_PRIVATE_ADDRESS},
    {DOOR_SOCKS, BYTES(HELLO "\5\1\0\1\xc0\0\0\1\4\x38"), BYTES("\5\0\5\2"), POLICY_NODE_OWN_ADDRESS},
    {DOOR_SOCKS, BYTES(HELLO "\5\1\0\4\0\0\0\0\0\0\0\0\0\0\xff\xff\x0a\x09\x09\x09\1\xbb"), BYTES("\5\0\5\2"),
     POLICY_PRIVATE_ADDRESS},
    {DOOR_SOCKS, BYTES(HELLO "\5\2\0\1\1\2\3\4\0\x50"), BYTES("\5\0\5\7"), POLICY_PROTOCOL_DENIED},
    {DOOR_SOCKS, BYTES(HELLO "\5\3\0\1\1\2\3\4\0\x35"), BYTES("\5\0\5\7"), POLICY_PROTOCOL_DENIED},
    {DOOR_SOCKS, BYTES(HELLO "\5\1\0\2"), BYTES("\5\0\5\10"), POLICY_BAD_REQUEST},
    {DOOR_SOCKS, BYTES(HELLO "\5\1\0\3\0"), BYTES("\5\0\5\1"), POLICY_BAD_REQUEST},
    {DOOR_SOCKS, BYTES(HELLO "GET"), BYTES("\5\0\5\1"), POLICY_BAD_REQUEST},
    {DOOR_SOCKS, BYTES("\5\1\1"), BYTES("\5\xff"), POLICY_BAD_REQUEST},
    {DOOR_SOCKS, BYTES("\5\1\2\7"), BYTES("\5\2"), POLICY_BAD_REQUEST},
    {DOOR_SOCKS, BYTES("\4\1\0\x50\1\2\3\4me"), BYTES("\0\x5b\0\0\0\0\0\0"), POLICY_BAD_REQUEST},
    {DOOR_SOCKS, BYTES("GET / HTTP/1.1\r\n\r\n"), BYTES(""), POLICY_BAD_REQUEST},
};

static void check_row(const struct row *row, size_t step) {
    struct flow *flow;
    struct ipc_decision record = {0};
    char answer[4096] = {0};
    int client = connect_to(row->kind, &flow);
    for (size_t sent = 0; sent < row->len; sent += step) {
        size_t len = row->len - sent < step ? row->len - sent : step;
        (void)!send(client, row->bytes + sent, len, MSG_NOSIGNAL); // it may have been refused before its end
        turn();
    }
    ssize_t got = recv(client, answer, sizeof(answer) - 1, 0);
    bool logged = next_record(&record);
    if ((got < 0 ? 0 : (size_t)got) < row->answer_len || memcmp(answer, row->answer, row->answer_len) != 0 || !logged ||
        record.reason != row->reason || record.verdict != POLICY_DENY) {
        fail_msg("row %zu, step %zu: \"%.*s\" answered \"%.60s\" (%zd bytes), logged %s", (size_t)(row - rows), step,
                 (int)row->len, row->bytes, answer, got, logged ? policy_reason_name(record.reason) : "nothing");
    }
    assert_false(next_record(&record));
    close(client);
    turn();
    assert_int_equal(gate.flow_count, 0);
}

static void test_refusals(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        check_row(&rows[i], rows[i].len);
        check_row(&rows[i], 1);
    }
}

// Loopback stays the sandbox's own also where private addresses are open.
static void test_loopback_with_private_addresses_open(void **state) {
    (void)state;
    static const struct row open[] = {
        {DOOR_HTTP, CONNECT("127.0.0.1:443"), BYTES("HTTP/1.1 403"), POLICY_NODE_OWN_ADDRESS},
        {DOOR_HTTP, CONNECT("[::1]:443"), BYTES("HTTP/1.1 403"), POLICY_NODE_OWN_ADDRESS},
        {DOOR_HTTP, CONNECT("192.0.0.2:443"), BYTES("HTTP/1.1 403"), POLICY_NODE_OWN_ADDRESS},
    };
    policy_free(gate.policy);
    gate.policy = compile(false);
    for (size_t i = 0; i < ARRAY_LENGTH(open); i++) check_row(&open[i], open[i].len);
}

// A client that says nothing, or half of something, is let go.
static void test_silence(void **state) {
    (void)state;
    struct flow *flow;
    struct ipc_decision record;
    for (enum door_kind kind = DOOR_HTTP; kind <= DOOR_SOCKS; kind++) {
        int client = connect_to(kind, &flow);
        door_deadline(flow);
        assert_int_equal(gate.flow_count, 0);
        assert_false(next_record(&record)); // a connection that was only opened is no attempt at anything
        close(client);
        client = connect_to(kind, &flow);
        assert_int_equal(send(client, kind == DOOR_HTTP ? "CONN" : "\5\1\0", 3, 0), 3);
        turn();
        door_deadline(flow);
        assert_true(next_record(&record));
        assert_int_equal(record.reason, POLICY_BAD_REQUEST);
        close(client);
        turn();
        assert_int_equal(gate.flow_count, 0);
    }
}

// A head without end does not grow without end.
static void test_endless_head(void **state) {
    (void)state;
    struct flow *flow;
    struct ipc_decision record;
    static const char field[] = "X: 0123456789012345678901234567890123456789012345678901234567\r\n";
    int client = connect_to(DOOR_HTTP, &flow);
    assert_int_equal(send(client, "CONNECT a:1 HTTP/1.1\r\n", 22, 0), 22);
    bool refused = false;
    for (int i = 0; i < 4096 && !refused; i++) {
        (void)!send(client, field, sizeof(field) - 1, MSG_NOSIGNAL);
        turn();
        refused = next_record(&record);
    }
    assert_true(refused);
    assert_int_equal(record.reason, POLICY_BAD_REQUEST);
    close(client);
    turn();
    assert_int_equal(gate.flow_count, 0);
}

static void test_closed_doors(void **state) {
    (void)state;
    struct addr server4 = addr_ipv4(0xc0000001), other = addr_ipv4(0xc0000002), server6;
    assert_int_equal(addr_parse(KEEPER_SERVER6, strlen(KEEPER_SERVER6), &server6), 0);
    assert_int_equal(door_at(&gate, &server4, 3128), DOOR_HTTP);
    assert_int_equal(door_at(&gate, &server6, 1080), DOOR_SOCKS);
    assert_int_equal(door_at(&gate, &server4, 3129), DOOR_NONE);
    assert_int_equal(door_at(&gate, &other, 3128), DOOR_NONE);
    gate.doors = false;
    assert_int_equal(door_at(&gate, &server4, 3128), DOOR_NONE);
    assert_int_equal(door_at(&gate, &server6, 1080), DOOR_NONE);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_refusals, setup, teardown),
        cmocka_unit_test_setup_teardown(test_loopback_with_private_addresses_open, setup, teardown),
        cmocka_unit_test_setup_teardown(test_silence, setup, teardown),
        cmocka_unit_test_setup_teardown(test_endless_head, setup, teardown),
        cmocka_unit_test_setup_teardown(test_closed_doors, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
