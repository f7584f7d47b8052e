// SPDX-License-Identifier: Apache-2.0
// The real resolver process, isolated, with libunbound, against a DNS server on loopback.
#include "dns_lab.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "dns/resolver.h"
#include "net/net.h"

struct world {
    struct lab_server *server;
    uint16_t port;
    pid_t pid;
    int channel;
    struct event_base *base;
    struct dns_client *client;
    unsigned ended;
    int status;
    uint8_t rcode;
    uint16_t answers;
};

static uint8_t buffer[CHANNEL_BUFFER_SIZE];

// Makes the resolver serve one more gate; returns the gate's end.
static int world_gate(const struct world *world) {
    int gate[2];
    assert_int_equal(channel_pair(gate), 0);
    assert_int_equal(channel_send(world->channel, IPC_RESOLVER_GATE, NULL, 0, &gate[1], 1), 0);
    close(gate[1]);
    return gate[0];
}

// First a dead server (nobody reads what arrives there), if asked for, then the live one.
static void world_start(struct world *world, bool dead_first, bool live) {
    int fds[2];
    struct channel_message message;
    struct ipc_resolver_start start = {0};
    *world = (struct world){.base = event_base_new()};
    assert_int_equal(channel_pair(fds), 0);
    world->pid = fork(); // before the server's thread exists
    assert_true(world->pid >= 0);
    if (world->pid == 0) {
        close(fds[0]);
        _exit(resolver_main(fds[1]));
    }
    close(fds[1]);
    world->channel = fds[0];
    world->server = lab_server_new(&world->port);
    struct ipc_resolver_server dead = {.address = lab_addr("127.0.0.1"), .port = 9};
    if (dead_first) start.servers[start.count++] = dead;
    if (live) start.servers[start.count++] = (struct ipc_resolver_server){dead.address, world->port};
    assert_int_equal(channel_send(world->channel, IPC_RESOLVER_START, &start, sizeof(start), NULL, 0), 0);
    assert_int_equal(channel_wait(world->channel, 10000, buffer, sizeof(buffer), &message), 1);
    if (message.type == IPC_ERROR) fail_msg("%s", ((const struct ipc_error *)message.body)->text);
    assert_int_equal(message.type, IPC_RESOLVER_READY);
    world->client = dns_client_new(world->base, world_gate(world));
}

static void world_end(struct world *world, int want_signal) {
    int status;
    dns_client_free(world->client);
    event_base_free(world->base);
    close(world->channel);
    assert_int_equal(waitpid(world->pid, &status, 0), world->pid);
    if (want_signal)
        assert_int_equal(WTERMSIG(status), want_signal);
    else if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        fail_msg("the resolver ended with status %x", (unsigned)status);
    lab_server_free(world->server);
}

static void ended(int status, const uint8_t *answer, size_t len, void *data) {
    struct world *world = data;
    world->ended++;
    world->status = status;
    world->answers = 0;
    if (status < 0) return;
    struct lab_answer read = lab_read(answer, len);
    world->rcode = read.rcode;
    world->answers = read.answers;
}

static void world_wait(struct world *world, unsigned count) {
    struct timeval limit = {.tv_sec = 20};
    uint64_t end = clock_us() + 20000000;
    event_base_loopexit(world->base, &limit);
    while (world->ended < count && clock_us() < end) event_base_loop(world->base, EVLOOP_ONCE);
    assert_int_equal(world->ended, count);
}

static void ask(struct world *world, const char *name, uint16_t type, const struct addr *server, uint16_t port) {
    unsigned count = world->ended;
    assert_non_null(dns_client_lookup(world->client, name, type, server, port, ended, world));
    world_wait(world, count + 1);
}

static void test_answers(void **state) {
    (void)state;
    struct world world;
    world_start(&world, false, true);
    ask(&world, "a.test", DNS_A, NULL, 0);
    assert_int_equal(world.status, 0);
    assert_int_equal(world.answers, 1);
    unsigned asked = lab_server_udp(world.server);
    assert_int_equal(asked, 1);
    ask(&world, "a.test", DNS_A, NULL, 0); // from the cache
    assert_int_equal(lab_server_udp(world.server), asked);
    ask(&world, "nx.test", DNS_A, NULL, 0);
    assert_int_equal(world.status, 0);
    assert_int_equal(world.rcode, DNS_NXDOMAIN);
    ask(&world, "broken.test", DNS_A, NULL, 0);
    assert_int_equal(world.status, -EIO);
    ask(&world, "", DNS_NS, NULL, 0);
    assert_int_equal(world.status, 0);
    ask(&world, "a.test", DNS_ANY, NULL, 0);
    assert_int_equal(world.status, -EINVAL);
    world_end(&world, 0);
}

// Nothing that libunbound would answer by itself: each of these reaches the server.
static void test_no_local_zones(void **state) {
    (void)state;
    static const struct {
        const char *name;
        uint16_t type;
    } cases[] = {{"x.test", DNS_A},
                 {"x.home.arpa", DNS_A},
                 {"x.onion", DNS_A},
                 {"x.invalid", DNS_A},
                 {"x.local", DNS_A},
                 {"1.0.0.10.in-addr.arpa", DNS_PTR},
                 {"1.1.168.192.in-addr.arpa", DNS_PTR},
                 {"2.0.0.127.in-addr.arpa", DNS_PTR},
                 {"1.0.16.172.in-addr.arpa", DNS_PTR},
                 {"x.localhost", DNS_A},
                 {"warm-up.penstock.invalid", DNS_A},
                 {"1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.d.f.ip6.arpa", DNS_PTR}};
    struct world world;
    world_start(&world, false, true);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        unsigned before = lab_server_udp(world.server);
        ask(&world, cases[i].name, cases[i].type, NULL, 0);
        if (world.status != 0 || world.answers != 1 || lab_server_udp(world.server) != before + 1)
            fail_msg("%s: status %d, %u answers, %u queries", cases[i].name, world.status, world.answers,
                     lab_server_udp(world.server) - before);
    }
    world_end(&world, 0);
}

static void test_truncation(void **state) {
    (void)state;
    struct world world;
    world_start(&world, false, true);
    ask(&world, "big.test", DNS_A, NULL, 0);
    assert_int_equal(world.status, 0);
    assert_int_equal(world.answers, 40);
    assert_int_equal(lab_server_tcp(world.server), 1);
    world_end(&world, 0);
}

static void test_dead_first_server(void **state) {
    (void)state;
    struct world world;
    world_start(&world, true, true);
    uint64_t worst = 0;
    for (int i = 0; i < 20; i++) {
        char name[32];
        snprintf(name, sizeof(name), "n%d.test", i);
        uint64_t start = clock_us();
        ask(&world, name, DNS_A, NULL, 0);
        if (clock_us() - start > worst) worst = clock_us() - start;
        assert_int_equal(world.status, 0);
        assert_int_equal(world.answers, 1);
    }
    print_message("worst of 20 lookups with a dead first server: %llu us\n", (unsigned long long)worst);
    assert_true(worst < 3000000);
    world_end(&world, 0);
}

// All servers are silent: the lookup ends at the deadline, and the server is used again once it is back.
static void test_silent_then_back(void **state) {
    (void)state;
    struct world world;
    world_start(&world, false, true);
    lab_server_mute(world.server, true);
    uint64_t start = clock_us();
    ask(&world, "a.test", DNS_A, NULL, 0);
    uint64_t took = clock_us() - start;
    print_message("silent server: status %d after %llu us\n", world.status, (unsigned long long)took);
    assert_true(world.status == -ETIMEDOUT || world.status == -EIO);
    assert_true(took < 10500000);
    lab_server_mute(world.server, false);
    start = clock_us();
    do ask(&world, "four.test", DNS_A, NULL, 0);
    while (world.status != 0 && clock_us() - start < 15000000);
    print_message("back after %llu us\n", (unsigned long long)(clock_us() - start));
    assert_int_equal(world.status, 0);
    world_end(&world, 0);
}

static void test_no_server(void **state) {
    (void)state;
    struct world world;
    world_start(&world, false, false);
    ask(&world, "a.test", DNS_A, NULL, 0);
    assert_int_equal(world.status, -ENETUNREACH);
    struct addr server = lab_addr("127.0.0.1");
    ask(&world, "a.test", DNS_A, &server, world.port); // one that the sandbox addressed still works
    assert_int_equal(world.status, 0);
    assert_int_equal(world.answers, 1);
    world_end(&world, 0);
}

// More foreign servers than contexts, one after the other, and the cache of each is its own.
static void test_foreign_servers(void **state) {
    (void)state;
    struct world world;
    world_start(&world, false, true);
    struct addr server = lab_addr("127.0.0.1");
    ask(&world, "a.test", DNS_A, NULL, 0);
    ask(&world, "a.test", DNS_A, &server, world.port);
    assert_int_equal(lab_server_udp(world.server), 2);
    struct lab_server *others[RESOLVER_FOREIGN_MAX]; // all alive to the end, so that no port comes twice
    for (int i = 0; i < RESOLVER_FOREIGN_MAX; i++) {
        uint16_t port;
        struct lab_server *other = others[i] = lab_server_new(&port);
        ask(&world, "a.test", DNS_A, &server, port);
        assert_int_equal(world.status, 0);
        ask(&world, "a.test", DNS_A, &server, port);
        assert_int_equal(lab_server_udp(other), 1); // from that server's own cache
    }
    ask(&world, "a.test", DNS_A, &server, world.port); // its context was evicted, so asked anew
    assert_int_equal(world.status, 0);
    assert_int_equal(lab_server_udp(world.server), 3);
    for (int i = 0; i < RESOLVER_FOREIGN_MAX; i++) lab_server_free(others[i]);
    world_end(&world, 0);
}

// 600 queries at once on a raw channel: 512 are taken, the rest is told -EBUSY at once.
static void test_flood(void **state) {
    (void)state;
    struct world world;
    unsigned busy = 0, sent = 0;
    world_start(&world, false, true);
    lab_server_mute(world.server, true);
    int gate = world_gate(&world);
    struct channel_message message;
    for (uint64_t end = clock_us() + 5000000; busy < 88 && clock_us() < end;) {
        struct ipc_query query = {.id = sent, .type = DNS_A};
        snprintf(query.name, sizeof(query.name), "n%u.test", sent);
        if (sent < 600 && channel_send(gate, IPC_QUERY, &query, sizeof(query), NULL, 0) == 0) sent++;
        struct pollfd ready = {gate, POLLIN, 0};
        poll(&ready, 1, sent < 600 ? 0 : 10);
        while (channel_receive(gate, buffer, sizeof(buffer), &message) == 1) {
            const struct ipc_answer *answer = message.body;
            assert_int_equal(answer->status, -EBUSY);
            assert_true(answer->id >= 512);
            busy++;
        }
    }
    assert_int_equal(busy, 88);
    ask(&world, "", DNS_NS, NULL, 0); // another gate is not held up: it gets its own answer or deadline
    close(gate);
    lab_server_mute(world.server, false);
    world_end(&world, 0);
}

// A gate that asks and never reads does not hold up another one.
static void test_slow_gate(void **state) {
    (void)state;
    struct world world;
    world_start(&world, false, true);
    int gate = world_gate(&world);
    ask(&world, "big.test", DNS_A, NULL, 0);
    for (uint32_t i = 0, failed = 0; i < 20000 && failed < 200; i++) {
        struct ipc_query query = {.id = i, .type = DNS_A, .name = "big.test"};
        if (channel_send(gate, IPC_QUERY, &query, sizeof(query), NULL, 0) < 0) failed++, usleep(500);
    }
    uint64_t start = clock_us();
    ask(&world, "a.test", DNS_A, NULL, 0);
    assert_int_equal(world.status, 0);
    assert_true(clock_us() - start < 1000000);
    // Reading again frees it.
    struct channel_message message;
    unsigned read = 0;
    while (channel_wait(gate, 300, buffer, sizeof(buffer), &message) == 1) read++;
    assert_true(read > 10);
    struct ipc_query query = {.id = 77, .type = DNS_A, .name = "a.test"};
    assert_int_equal(channel_send(gate, IPC_QUERY, &query, sizeof(query), NULL, 0), 0);
    assert_int_equal(channel_wait(gate, 2000, buffer, sizeof(buffer), &message), 1);
    assert_int_equal(((const struct ipc_answer *)message.body)->id, 77);
    close(gate);
    world_end(&world, 0);
}

// Front, client, resolver process and server together.
static void test_front(void **state) {
    (void)state;
    struct world world;
    struct lab lab;
    char buf[ADDR_TEXT_SIZE];
    world_start(&world, false, true);
    lab_build(&lab, "version: 1\nallow:\n  - host: a.test\n  - cidr: 127.0.0.0/8\n", world_gate(&world));
    for (int i = 0; i < 50; i++) {
        char name[64];
        snprintf(name, sizeof(name), "secret%d.evil.test", i);
        lab_ask(&lab, name, i % 2 ? DNS_A : DNS_TXT);
        assert_int_equal(lab_read(lab.answer, lab.len).rcode, DNS_NXDOMAIN);
    }
    assert_int_equal(lab_server_udp(world.server) + lab_server_tcp(world.server), 0);
    lab_ask(&lab, "a.test", DNS_A);
    struct lab_answer answer = lab_read(lab.answer, lab.len);
    assert_string_equal(addr_format(&answer.address, buf), "198.18.0.1");
    assert_int_equal(lab_server_udp(world.server), 1);
    kill(world.pid, SIGKILL);
    lab_ask(&lab, "a.test", DNS_AAAA);
    assert_int_equal(lab_read(lab.answer, lab.len).rcode, DNS_SERVFAIL);
    assert_int_equal(lab_read(lab.answer, lab.len).ede, DNS_EDE_NETWORK_ERROR);
    lab_end(&lab);
    world_end(&world, SIGKILL);
}

static void test_killed(void **state) {
    (void)state;
    struct world world;
    world_start(&world, false, true);
    lab_server_mute(world.server, true);
    for (int i = 0; i < 10; i++)
        assert_non_null(dns_client_lookup(world.client, "a.test", DNS_A, NULL, 0, ended, &world));
    event_base_loop(world.base, EVLOOP_NONBLOCK);
    uint64_t start = clock_us();
    kill(world.pid, SIGKILL);
    world_wait(&world, 10);
    assert_int_equal(world.status, -EPIPE);
    assert_true(clock_us() - start < 1000000);
    world_end(&world, SIGKILL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answers),          cmocka_unit_test(test_no_local_zones),
        cmocka_unit_test(test_truncation),       cmocka_unit_test(test_dead_first_server),
        cmocka_unit_test(test_silent_then_back), cmocka_unit_test(test_no_server),
        cmocka_unit_test(test_foreign_servers),  cmocka_unit_test(test_flood),
        cmocka_unit_test(test_slow_gate),        cmocka_unit_test(test_front),
        cmocka_unit_test(test_killed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
