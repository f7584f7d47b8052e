// SPDX-License-Identifier: Apache-2.0
#include "dns_lab.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"

static const char names[] = "version: 1\nallow:\n  - host: a.test\n  - host: big.test\n  - host: silent.test\n";

struct peer {
    struct lab lab;
    int fd;
    uint8_t in[1 << 20];
    size_t len;
    bool closed;
};
static struct peer peer;

static void peer_start(const char *yaml) {
    int fds[2];
    lab_start(&peer.lab, yaml);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
    struct addr server = lab_addr("192.0.0.2");
    dns_front_stream(peer.lab.front, fds[0], &server);
    peer.fd = fds[1];
    peer.len = 0;
    peer.closed = false;
}

static void peer_end(void) {
    close(peer.fd);
    lab_turn(&peer.lab);
    lab_end(&peer.lab);
}

static size_t framed(uint8_t *bytes, const char *name, uint8_t id) {
    size_t len = lab_question(bytes + 2, name, DNS_A, true);
    bytes[0] = (uint8_t)(len >> 8);
    bytes[1] = (uint8_t)len;
    bytes[2] = 0;
    bytes[3] = id;
    return len + 2;
}

static void peer_turn(void) {
    lab_turn(&peer.lab);
    ssize_t n;
    while ((n = recv(peer.fd, peer.in + peer.len, sizeof(peer.in) - peer.len, 0)) > 0) peer.len += (size_t)n;
    if (n == 0 || (n < 0 && errno != EAGAIN)) peer.closed = true;
}

static size_t answers(void) {
    size_t count = 0, at = 0;
    for (; at + 2 <= peer.len; count++) {
        at += 2 + ((size_t)peer.in[at] << 8 | peer.in[at + 1]);
        if (at > peer.len) break;
    }
    return count;
}

static void until_answers(size_t count) {
    uint64_t end = clock_us() + 5000000;
    while (answers() < count && !peer.closed && clock_us() < end) peer_turn();
    assert_int_equal(answers(), count);
}

static struct lab_answer answer_of(uint8_t id) {
    for (size_t at = 0; at + 2 <= peer.len;) {
        size_t len = (size_t)peer.in[at] << 8 | peer.in[at + 1];
        if (peer.in[at + 3] == id) return lab_read(peer.in + at + 2, len);
        at += 2 + len;
    }
    fail_msg("no answer with id %u", id);
    return (struct lab_answer){0};
}

static void put(const uint8_t *bytes, size_t len) { assert_int_equal(send(peer.fd, bytes, len, MSG_NOSIGNAL), len); }

static void test_two_queries_split(void **state) {
    (void)state;
    uint8_t bytes[512];
    size_t first = framed(bytes, "a.test", 1), both = first + framed(bytes + first, "evil.test", 2);
    for (size_t cut = 1; cut < both; cut++) { // every split, the prefixes included
        peer_start(names);
        put(bytes, cut);
        peer_turn();
        peer_turn();
        put(bytes + cut, both - cut);
        until_answers(2);
        assert_int_equal(answer_of(1).rcode, DNS_NOERROR);
        assert_int_equal(answer_of(1).answers, 1);
        assert_int_equal(answer_of(2).rcode, DNS_NXDOMAIN);
        assert_int_equal(answer_of(2).ede, DNS_EDE_BLOCKED);
        assert_int_equal(peer.lab.asked, 1); // only the allowed one left
        assert_int_equal(peer.lab.decisions, 2);
        assert_false(peer.closed);
        peer_end();
    }
}

// The second is denied and needs no lookup: it is answered first.
static void test_out_of_order(void **state) {
    (void)state;
    uint8_t bytes[512];
    peer_start(names);
    peer.lab.silent = true;
    size_t len = framed(bytes, "a.test", 1);
    len += framed(bytes + len, "evil.test", 2);
    put(bytes, len);
    until_answers(1);
    assert_int_equal(answer_of(2).rcode, DNS_NXDOMAIN);
    peer_end(); // with one outstanding
}

static void test_pipelining_is_bounded(void **state) {
    (void)state;
    uint8_t bytes[512];
    peer_start(names);
    peer.lab.silent = true;
    for (uint8_t i = 0; i < 40; i++) put(bytes, framed(bytes, "a.test", i));
    for (int i = 0; i < 20; i++) peer_turn();
    assert_int_equal(peer.lab.asked, 16);
    assert_int_equal(answers(), 0);
    peer_end();
}

static void test_many_queries(void **state) {
    (void)state;
    uint8_t bytes[512];
    peer_start(names);
    for (uint8_t i = 0; i < 100; i++) put(bytes, framed(bytes, i % 2 ? "a.test" : "evil.test", i));
    until_answers(100);
    for (uint8_t i = 0; i < 100; i++) assert_int_equal(answer_of(i).rcode, i % 2 ? DNS_NOERROR : DNS_NXDOMAIN);
    assert_int_equal(peer.lab.asked, 16); // those on their way together; the others find their answer
    peer_end();
}

static void test_half_close(void **state) {
    (void)state;
    uint8_t bytes[512];
    peer_start(names);
    put(bytes, framed(bytes, "a.test", 1));
    shutdown(peer.fd, SHUT_WR);
    until_answers(1);
    for (int i = 0; i < 5; i++) peer_turn();
    assert_true(peer.closed);
    assert_int_equal(answer_of(1).answers, 1);
    peer_end();
}

static void test_bad_messages(void **state) {
    (void)state;
    const uint8_t too_long[] = {0xff, 0xff, 1}, empty[] = {0, 0}, short_one[] = {0, 5, 1, 2, 3, 4, 5};
    const struct {
        const uint8_t *bytes;
        size_t len;
    } cases[] = {{too_long, sizeof(too_long)}, {empty, sizeof(empty)}, {short_one, sizeof(short_one)}};
    for (size_t i = 0; i < 3; i++) {
        peer_start(names);
        put(cases[i].bytes, cases[i].len);
        for (int j = 0; j < 5; j++) peer_turn();
        assert_true(peer.closed);
        assert_int_equal(peer.lab.decisions, 1);
        assert_string_equal(policy_reason_name(peer.lab.decision.reason), "dns_bad_message");
        peer_end();
    }
}

// A client that sends and never reads: at some point it is not read from either.
static void test_slow_reader(void **state) {
    (void)state;
    static uint8_t bytes[512];
    size_t len = framed(bytes, "evil.test", 7), sent = 0;
    peer_start(names);
    for (int i = 0; i < 20000; i++) {
        ssize_t n = send(peer.fd, bytes, len, MSG_NOSIGNAL);
        if (n == (ssize_t)len)
            sent++;
        else
            assert_int_equal(n, -1);
        lab_turn(&peer.lab);
    }
    assert_true(sent < 20000);
    assert_true(peer.lab.decisions < 20000);
    until_answers(sent); // and all that was taken is answered once it reads
    peer_end();
}

static void test_stream_limit(void **state) {
    (void)state;
    int fds[33][2];
    struct lab lab;
    struct addr server = lab_addr("192.0.0.2");
    lab_start(&lab, names);
    for (int i = 0; i < 33; i++) {
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds[i]), 0);
        dns_front_stream(lab.front, fds[i][0], &server);
    }
    uint8_t byte;
    assert_int_equal(recv(fds[31][1], &byte, 1, 0), -1);
    assert_int_equal(errno, EAGAIN);
    assert_true(recv(fds[32][1], &byte, 1, 0) <= 0 && errno != EAGAIN ? true : recv(fds[32][1], &byte, 1, 0) == 0);
    assert_string_equal(policy_reason_name(lab.decision.reason), "limit_exceeded");
    for (int i = 0; i < 33; i++) close(fds[i][1]);
    lab_end(&lab);
}

static void test_idle(void **state) {
    (void)state;
    peer_start(names);
    const uint8_t trickle[] = {0};
    put(trickle, 1); // bytes of a query are no life
    uint64_t start = clock_us();
    while (!peer.closed && clock_us() - start < 13000000) {
        peer_turn();
        usleep(20000);
    }
    uint64_t took = clock_us() - start;
    assert_true(peer.closed);
    assert_true(took > 9000000 && took < 12000000);
    peer_end();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_queries_split),
        cmocka_unit_test(test_out_of_order),
        cmocka_unit_test(test_pipelining_is_bounded),
        cmocka_unit_test(test_many_queries),
        cmocka_unit_test(test_half_close),
        cmocka_unit_test(test_bad_messages),
        cmocka_unit_test(test_slow_reader),
        cmocka_unit_test(test_stream_limit),
        cmocka_unit_test(test_idle),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
