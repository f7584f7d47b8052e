// SPDX-License-Identifier: Apache-2.0
// Dialling servers on loopback addresses, in a network namespace of its own where a black hole can be made.
#include <event2/event.h>
#include <netinet/tcp.h>

#include "lab.h"

struct outcome {
    bool called;
    int fd;
    struct addr peer;
    struct event_base *base;
};

static void done(int fd, const struct addr *peer, void *data) {
    struct outcome *outcome = data;
    assert_false(outcome->called);
    outcome->called = true;
    outcome->fd = fd;
    if (peer) outcome->peer = *peer;
    event_base_loopbreak(outcome->base);
}

static const struct dial_options usual = {.deadline_ms = 3000, .stagger_ms = 250, .allow_loopback = true};

// The descriptor, or -errno. Takes the time that it needed.
static int dial(const struct addr *addresses, size_t count, uint16_t port, const struct dial_options *options,
                struct addr *ret_peer, uint64_t *ret_us) {
    struct outcome outcome = {.base = event_base_new()};
    uint64_t start = clock_us();
    assert_non_null(dial_start(outcome.base, addresses, count, port, options, done, &outcome));
    assert_false(outcome.called); // never from inside
    event_base_dispatch(outcome.base);
    assert_true(outcome.called);
    event_base_free(outcome.base);
    if (ret_us) *ret_us = clock_us() - start;
    if (ret_peer) *ret_peer = outcome.peer;
    return outcome.fd;
}

static int option(int fd, int level, int name) {
    int value = -1;
    socklen_t len = sizeof(value);
    assert_int_equal(getsockopt(fd, level, name, &value, &len), 0);
    return value;
}

static void test_connects(void **state) {
    static const char *const names[] = {"127.0.0.1", "::1"};
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct addr addr = lab_addr(names[i]), peer;
        int server = lab_bind(names[i], 0, SOCK_STREAM);
        int fd = dial(&addr, 1, lab_port(server), &usual, &peer, NULL);
        assert_true(fd >= 0);
        assert_true(addr_equal(&peer, &addr));
        assert_true(option(fd, IPPROTO_TCP, TCP_NODELAY));
        assert_true(option(fd, SOL_SOCKET, SO_OOBINLINE));
        assert_true(option(fd, SOL_SOCKET, SO_KEEPALIVE));
        assert_true(fcntl(fd, F_GETFL) & O_NONBLOCK);
        assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
        close(fd);
        close(server);
    }
}

static void test_refused(void **state) {
    struct addr addr[2] = {lab_addr("127.0.0.1"), lab_addr("::1")};
    uint64_t us;
    (void)state;
    assert_int_equal(dial(addr, 2, 1, &usual, NULL, &us), -ECONNREFUSED);
    assert_true(us < 200000); // a failure starts the next at once
    struct addr nowhere = lab_addr("203.0.113.1");
    assert_int_equal(dial(&nowhere, 1, 80, &usual, NULL, NULL), -ENETUNREACH);
    assert_int_equal(dial(NULL, 0, 80, &usual, NULL, NULL), -EADDRNOTAVAIL);
}

// A server whose queue is full drops SYNs: as good as a dead address.
static int black_hole(int hold[8], uint16_t *ret_port) {
    int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in name = {.sin_family = AF_INET};
    inet_pton(AF_INET, "127.0.0.9", &name.sin_addr);
    assert_int_equal(bind(server, (struct sockaddr *)&name, sizeof(name)), 0);
    assert_int_equal(listen(server, 0), 0);
    *ret_port = lab_port(server);
    name.sin_port = htons(*ret_port);
    for (int i = 0; i < 8; i++) {
        hold[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        if (connect(hold[i], (struct sockaddr *)&name, sizeof(name)) < 0) assert_int_equal(errno, EINPROGRESS);
    }
    return server;
}

static void test_happy_eyeballs(void **state) {
    struct addr addresses[2] = {lab_addr("127.0.0.9"), lab_addr("127.0.0.10")}, peer;
    int hold[8];
    uint16_t port;
    uint64_t us;
    (void)state;
    int dead = black_hole(hold, &port);
    int server = lab_bind("127.0.0.10", port, SOCK_STREAM);
    int fd = dial(addresses, 2, port, &usual, &peer, &us);
    assert_true(fd >= 0);
    assert_true(addr_equal(&peer, &addresses[1]));
    assert_in_range(us, 240000, 600000);
    close(fd);
    // alone it runs into the deadline
    struct dial_options brief = {.deadline_ms = 300, .stagger_ms = 100, .allow_loopback = true};
    assert_int_equal(dial(addresses, 1, port, &brief, NULL, &us), -ETIMEDOUT);
    assert_in_range(us, 290000, 700000);
    for (int i = 0; i < 8; i++) close(hold[i]);
    close(server);
    close(dead);
}

static void test_host_itself(void **state) {
    static const char *const names[] = {"127.0.0.1", "::1", "0.0.0.0", "::"};
    struct dial_options strict = {.deadline_ms = 1000, .stagger_ms = 250};
    (void)state;
    int four = lab_bind("0.0.0.0", 0, SOCK_STREAM), six = lab_bind("::", lab_port(four) ^ 1, SOCK_STREAM);
    for (size_t i = 0; i < 4; i++) {
        struct addr addr = lab_addr(names[i]);
        assert_int_equal(dial(&addr, 1, lab_port(i % 2 ? six : four), &strict, NULL, NULL), -EACCES);
    }
    // Not loopback, but this host: the local address is the peer's, with leave for loopback too.
    struct addr own = lab_addr("192.0.2.77");
    assert_int_equal(dial(&own, 1, lab_port(four), &usual, NULL, NULL), -EACCES);
    assert_int_equal(dial(&own, 1, lab_port(four), &strict, NULL, NULL), -EACCES);
    // what it had connected to was reset, not closed
    int fd = accept(four, NULL, NULL);
    char byte;
    assert_int_equal(recv(fd, &byte, 1, 0), -1);
    assert_int_equal(errno, ECONNRESET);
    close(fd);
    close(four);
    close(six);
}

// TCP connects to itself when the port it got is the port it asks for (simultaneous open).
static void test_self_connect(void **state) {
    struct addr addr = lab_addr("127.0.0.1");
    FILE *range = fopen("/proc/sys/net/ipv4/ip_local_port_range", "w");
    (void)state;
    assert_non_null(range);
    fprintf(range, "40001 40001");
    assert_int_equal(fclose(range), 0);
    int fd = lab_connect("127.0.0.1", 40001, 1000); // so it is: without the guard this is a connection
    assert_true(fd >= 0);
    relay_reset_fd(fd);
    assert_int_equal(dial(&addr, 1, 40001, &usual, NULL, NULL), -ECONNREFUSED);
    range = fopen("/proc/sys/net/ipv4/ip_local_port_range", "w");
    fprintf(range, "32768 60999");
    fclose(range);
}

static void test_cancel(void **state) {
    struct addr addr = lab_addr("127.0.0.1");
    struct outcome outcome = {.base = event_base_new()};
    int server = lab_bind("127.0.0.1", 0, SOCK_STREAM);
    int next = dup(0);
    (void)state;
    close(next);
    for (int turns = 0; turns < 3; turns++) {
        struct dial *dialling = dial_start(outcome.base, &addr, 1, lab_port(server), &usual, done, &outcome);
        for (int i = 0; i < turns && !outcome.called; i++) event_base_loop(outcome.base, EVLOOP_NONBLOCK);
        if (!outcome.called) dial_cancel(dialling);
        if (outcome.called && outcome.fd >= 0) close(outcome.fd);
        outcome.called = false;
    }
    event_base_loop(outcome.base, EVLOOP_NONBLOCK);
    assert_false(outcome.called);
    dial_cancel(NULL);
    int after = dup(0);
    assert_int_equal(after, next); // nothing leaked
    close(after);
    event_base_free(outcome.base);
    close(server);
}

static void test_no_descriptors(void **state) {
    struct addr addr = lab_addr("127.0.0.1");
    struct outcome outcome = {.base = event_base_new()};
    struct rlimit old, none;
    (void)state;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    none = (struct rlimit){0, old.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    assert_null(dial_start(outcome.base, &addr, 1, 80, &usual, done, &outcome));
    assert_int_equal(errno, EMFILE);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
    event_base_free(outcome.base);
}

// A namespace of our own: the host's is not changed.
static int setup(void **state) {
    static const char *const up[] = {"ip", "link", "set", "lo", "up", NULL};
    static const char *const own[] = {"ip", "addr", "add", "192.0.2.77/32", "dev", "lo", NULL};
    static const char *const *const steps[] = {up, own};
    (void)state;
    if (lab_own_network() < 0) return -1;
    for (size_t i = 0; i < ARRAY_LENGTH(steps); i++) {
        pid_t pid = fork();
        if (pid == 0) {
            execvp(steps[i][0], (char *const *)(uintptr_t)steps[i]);
            _exit(127);
        }
        if (lab_reap(pid) != 0) return -1;
    }
    return 0;
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_connects),     cmocka_unit_test(test_refused), cmocka_unit_test(test_happy_eyeballs),
        cmocka_unit_test(test_host_itself),  cmocka_unit_test(test_self_connect),
        cmocka_unit_test(test_cancel),       cmocka_unit_test(test_no_descriptors),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
