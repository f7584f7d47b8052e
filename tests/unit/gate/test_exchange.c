// SPDX-License-Identifier: Apache-2.0
// Exchanges with a gate that has a policy and a journal, but no sandbox: its packets go nowhere.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "gate/state.h"
#include "policy/model.h"

static struct gate gate;
static int main_end, server;
static uint16_t server_port;

static void set_policy(const char *cidr) {
    struct policy_model *model = policy_model_new(POLICY_DIALECT_NATIVE);
    struct policy_warnings warnings = {0};
    struct error err = {0};
    assert_int_equal(policy_model_allow_cidr(model, cidr, "test", &err), 0);
    policy_free(gate.policy);
    gate.policy = NULL;
    assert_int_equal(policy_compile(model, NULL, NULL, 0, gate.facts.generation + 1, &gate.policy, &warnings, &err), 0);
    gate.facts = policy_facts(gate.policy);
    policy_warnings_done(&warnings);
    policy_model_free(model);
}

static int setup(void **state) {
    (void)state;
    int channel[2];
    struct addr loopback = addr_ipv4(0x7f000001);
    struct sockaddr_storage name;
    socklen_t len = addr_to_sockaddr(&loopback, 0, &name);
    memset(&gate, 0, sizeof(gate));
    if (channel_pair(channel) < 0) return -1;
    gate.channel = channel[0];
    main_end = channel[1];
    gate.base = event_base_new();
    gate.journal = journal_new(&gate);
    gate.keeper = -1;
    for (int i = 0; i < IPC_SOCKET_COUNT; i++) gate.sockets[i] = -1;
    list_init(&gate.flows);
    set_policy("127.0.0.0/8");
    server = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    if (bind(server, (struct sockaddr *)&name, len) < 0 || getsockname(server, (struct sockaddr *)&name, &len) < 0) return -1;
    if (addr_from_sockaddr((struct sockaddr *)&name, &loopback, &server_port) < 0) return -1;
    return exchange_init(&gate);
}

static int teardown(void **state) {
    (void)state;
    exchange_done(&gate);
    event_free(gate.exchange_sweep);
    free(gate.exchanges);
    journal_free(gate.journal);
    policy_free(gate.policy);
    event_base_free(gate.base);
    close(gate.channel);
    close(main_end);
    close(server);
    return 0;
}

// The next record of the log. False: there is none.
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

static void assert_record(enum ipc_event event, enum policy_verdict verdict, enum policy_reason reason) {
    struct ipc_decision record;
    assert_true(next_record(&record));
    assert_int_equal(record.event, event);
    assert_int_equal(record.verdict, verdict);
    assert_int_equal(record.reason, reason);
    assert_int_equal(record.port, server_port);
}

static void assert_no_record(void) {
    struct ipc_decision record;
    assert_false(next_record(&record));
}

static struct exchange_key key_from(uint16_t client_port) {
    return (struct exchange_key){.client = addr_ipv4(0xc0000002), .server = addr_ipv4(0x7f000001),
                                 .client_port = client_port, .port = server_port, .protocol = POLICY_UDP};
}

static struct exchange *open_from(uint16_t client_port) {
    struct exchange_key key = key_from(client_port);
    struct policy_request request = {.protocol = POLICY_UDP, .address = &key.server, .port = key.port};
    struct policy_decision decision = policy_decide(gate.policy, &request);
    uint8_t bytes[100];
    struct ip_packet about;
    size_t len = ip_write_udp(&key.client, client_port, &key.server, key.port, NULL, 0, bytes, sizeof(bytes));
    assert_int_equal(decision.verdict, POLICY_ALLOW);
    assert_int_equal(ip_packet_parse(bytes, len, &about), WIRE_OK);
    return exchange_open(&gate, &key, &decision, &about);
}

static void sweep(void) {
    event_active(gate.exchange_sweep, EV_TIMEOUT, 1);
    event_base_loop(gate.base, EVLOOP_NONBLOCK);
}

static void test_both_ways(void **state) {
    (void)state;
    struct exchange *exchange = open_from(1);
    struct exchange_key key = key_from(1), other = key_from(2);
    assert_non_null(exchange);
    assert_ptr_equal(exchange_find(&gate, &key), exchange);
    assert_null(exchange_find(&gate, &other));
    assert_int_equal(gate.flow_count, 1);
    assert_record(IPC_EVENT_DECISION, POLICY_ALLOW, POLICY_ALLOWED_CIDR);
    char texts[3][6] = {"one", "two", "three"}, got[10];
    struct iovec vectors[3];
    struct mmsghdr messages[3];
    for (size_t i = 0; i < 3; i++) {
        vectors[i] = (struct iovec){.iov_base = texts[i], .iov_len = strlen(texts[i])};
        messages[i] = (struct mmsghdr){.msg_hdr = {.msg_iov = &vectors[i], .msg_iovlen = 1}};
    }
    exchange_send(exchange, messages, 3);
    assert_int_equal(exchange->bytes_out, 11);
    struct sockaddr_storage from;
    socklen_t from_len = sizeof(from);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(recvfrom(server, got, sizeof(got), 0, (struct sockaddr *)&from, &from_len), vectors[i].iov_len);
        assert_memory_equal(got, texts[i], vectors[i].iov_len);
    }
    assert_int_equal(exchange->kind, EXCHANGE_UNANSWERED);
    assert_int_equal(sendto(server, "answer", 6, 0, (struct sockaddr *)&from, from_len), 6);
    event_base_loop(gate.base, EVLOOP_NONBLOCK);
    assert_int_equal(exchange->bytes_in, 6);
    assert_int_equal(exchange->kind, EXCHANGE_ANSWERED);
    exchange_done(&gate);
    assert_int_equal(gate.flow_count, 0);
    assert_int_equal(gate.exchanges->count, 0);
    struct ipc_decision record;
    assert_true(next_record(&record));
    assert_int_equal(record.event, IPC_EVENT_FLOW);
    assert_int_equal(record.protocol, POLICY_UDP);
    assert_true(record.bytes_out == 11 && record.bytes_in == 6);
    assert_no_record();
}

static void test_limit(void **state) {
    (void)state;
    gate.facts.max_connections = 2;
    struct exchange *first = open_from(1);
    assert_non_null(first);
    assert_non_null(open_from(2));
    assert_record(IPC_EVENT_DECISION, POLICY_ALLOW, POLICY_ALLOWED_CIDR);
    assert_record(IPC_EVENT_DECISION, POLICY_ALLOW, POLICY_ALLOWED_CIDR);
    assert_null(open_from(3));
    assert_null(open_from(4));
    assert_record(IPC_EVENT_DECISION, POLICY_DENY, POLICY_LIMIT_EXCEEDED); // once
    assert_no_record();
    assert_int_equal(gate.flow_count, 2);
    // One that nobody has used for a while gives way, and the log says so.
    first->active_us -= EXCHANGE_SPARE_MS * 1000;
    assert_non_null(open_from(3));
    assert_record(IPC_EVENT_FLOW, POLICY_ALLOW, POLICY_LIMIT_EXCEEDED);
    assert_record(IPC_EVENT_DECISION, POLICY_ALLOW, POLICY_ALLOWED_CIDR);
    assert_int_equal(gate.flow_count, 2);
    struct exchange_key key = key_from(1);
    assert_null(exchange_find(&gate, &key));
    // Connections have all the places: no exchange can give way.
    exchange_done(&gate);
    gate.flow_count = 2;
    assert_false(exchange_make_room(&gate));
    assert_null(open_from(1));
    gate.flow_count = 0;
}

static void test_expiry_waits_for_the_log(void **state) {
    (void)state;
    struct exchange *exchange = open_from(1);
    assert_record(IPC_EVENT_DECISION, POLICY_ALLOW, POLICY_ALLOWED_CIDR);
    sweep();
    assert_int_equal(gate.exchanges->count, 1);
    exchange->active_us -= EXCHANGE_UNANSWERED_TIME_MS * 1000ULL;
    gate.paused = true;
    sweep();
    assert_int_equal(gate.exchanges->count, 1);
    assert_no_record();
    gate.paused = false;
    sweep();
    assert_int_equal(gate.exchanges->count, 0);
    assert_int_equal(gate.flow_count, 0);
    assert_record(IPC_EVENT_FLOW, POLICY_ALLOW, POLICY_ALLOWED_CIDR);
    assert_false(event_pending(gate.exchange_sweep, EV_TIMEOUT, NULL)); // an idle gate sleeps
}

static void test_rejudging(void **state) {
    (void)state;
    uint32_t closed, kept;
    struct exchange *exchange = open_from(1);
    struct ipc_decision record;
    assert_true(next_record(&record));
    set_policy("127.0.0.1/32");
    rejudge_all(&gate, false, &closed, &kept);
    assert_true(closed == 0 && kept == 1);
    assert_int_equal(exchange->generation, 2);
    set_policy("203.0.113.0/24");
    rejudge_all(&gate, true, &closed, &kept);
    assert_true(closed == 0 && kept == 1);
    assert_int_equal(exchange->generation, 2); // its rule is one of that policy
    assert_no_record();
    rejudge_all(&gate, false, &closed, &kept);
    assert_true(closed == 1 && kept == 0);
    assert_record(IPC_EVENT_FLOW, POLICY_DENY, POLICY_POLICY_CHANGED);
    assert_int_equal(gate.exchanges->count, 0);
}

// An error of the network marks what was never answered.
static void test_error(void **state) {
    (void)state;
    close(server);
    server = -1;
    struct exchange *exchange = open_from(1);
    struct iovec vector = {.iov_base = (char[]){"x"}, .iov_len = 1};
    struct mmsghdr message = {.msg_hdr = {.msg_iov = &vector, .msg_iovlen = 1}};
    assert_non_null(exchange);
    assert_record(IPC_EVENT_DECISION, POLICY_ALLOW, POLICY_ALLOWED_CIDR);
    exchange_send(exchange, &message, 1);
    event_base_loop(gate.base, EVLOOP_NONBLOCK);
    assert_true(exchange->failed);
    exchange_send(exchange, &message, 1); // its error is waiting when the next one is sent: that one leaves all the same
    exchange_send(exchange, &message, 1);
    assert_int_equal(exchange->bytes_out, 3);
    exchange_done(&gate);
    assert_record(IPC_EVENT_FLOW, POLICY_ALLOW, POLICY_UPSTREAM_FAILED);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_both_ways, setup, teardown),
        cmocka_unit_test_setup_teardown(test_limit, setup, teardown),
        cmocka_unit_test_setup_teardown(test_expiry_waits_for_the_log, setup, teardown),
        cmocka_unit_test_setup_teardown(test_rejudging, setup, teardown),
        cmocka_unit_test_setup_teardown(test_error, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
