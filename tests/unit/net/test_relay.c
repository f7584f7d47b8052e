// SPDX-License-Identifier: Apache-2.0
// The relay between real TCP connections on loopback. Its source is included, with short deadlines.
static unsigned idle_open_s = 3;
#define RELAY_IDLE_OPEN_S idle_open_s
#define RELAY_IDLE_HALF_S 1
#define RELAY_SWEEP_S 1
#include "net/relay.c"

#include <netinet/in.h>

#include "lab.h"

// client - [sandbox side : relay : upstream side] - server
struct flow {
    struct relay relay;
    int client, server;
    int error; // 1: not ended
    struct event_base *base;
};

static struct event_base *base;
static struct relay_engine *engine;

static void tcp_pair(int *ret_outer, int *ret_inner) {
    static int listener = -1;
    if (listener < 0) listener = lab_bind("127.0.0.1", 0, SOCK_STREAM);
    struct sockaddr_in name;
    socklen_t len = sizeof(name);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&name, &len), 0);
    *ret_outer = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(*ret_outer >= 0);
    assert_int_equal(connect(*ret_outer, (struct sockaddr *)&name, sizeof(name)), 0);
    *ret_inner = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    assert_true(*ret_inner >= 0);
    relay_prepare(*ret_inner);
}

static void ended(struct relay *relay, int error) {
    struct flow *flow = LIST_ENTRY(relay, struct flow, relay);
    assert_int_equal(flow->error, 1); // once
    flow->error = error;
}

static void flow_start_with(struct flow *flow, const void *first, size_t first_len, const void *back, size_t back_len) {
    int sandbox, upstream;
    *flow = (struct flow){.error = 1};
    tcp_pair(&flow->client, &sandbox);
    tcp_pair(&flow->server, &upstream);
    assert_int_equal(relay_start(engine, &flow->relay, sandbox, upstream, first, first_len, back, back_len), 0);
    assert_int_equal(flow->error, 1); // never from inside
}

static void flow_start(struct flow *flow) {
    flow_start_with(flow, NULL, 0, NULL, 0);
}

static void loop_ms(int ms) {
    event_base_loopexit(base, &(struct timeval){.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000});
    event_base_dispatch(base);
}

static void loop_until_ended(struct flow *flow, int ms) {
    uint64_t end = clock_us() + (uint64_t)ms * 1000;
    while (flow->error == 1 && clock_us() < end) loop_ms(5);
    assert_int_not_equal(flow->error, 1);
}

// Reads exactly this text from a blocking socket while the relay runs.
static void expect(int fd, const char *text) {
    char bytes[256] = "";
    size_t have = 0, want = strlen(text);
    for (int i = 0; i < 400 && have < want; i++) {
        loop_ms(5);
        ssize_t got = recv(fd, bytes + have, sizeof(bytes) - have, MSG_DONTWAIT);
        if (got == 0) break;
        if (got > 0) have += (size_t)got;
    }
    assert_int_equal(have, want);
    assert_memory_equal(bytes, text, want);
}

static void expect_end(int fd, int error) {
    char byte;
    for (int i = 0; i < 400 && !lab_readable(fd, 0); i++) loop_ms(5);
    ssize_t got = recv(fd, &byte, 1, MSG_DONTWAIT);
    if (error == 0) {
        assert_int_equal(got, 0);
    } else {
        assert_int_equal(got, -1);
        assert_int_equal(errno, error);
    }
}

static int fd_count(void) {
    int count = 0;
    for (int fd = 0; fd < 8192; fd++) count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

static uint64_t cpu_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

// ---- bulk ----

static uint8_t pattern(size_t i, uint8_t seed) { return (uint8_t)((i * 2654435761u) >> 16 ^ i ^ seed); }

static pid_t writer(int fd, size_t len, uint8_t seed) {
    pid_t pid = fork();
    if (pid != 0) return pid;
    static uint8_t bytes[100000];
    for (size_t at = 0; at < len;) {
        size_t n = len - at < sizeof(bytes) ? len - at : sizeof(bytes);
        for (size_t i = 0; i < n; i++) bytes[i] = pattern(at + i, seed);
        ssize_t sent = send(fd, bytes, n, MSG_NOSIGNAL);
        if (sent <= 0) _exit(1);
        at += (size_t)sent;
    }
    _exit(shutdown(fd, SHUT_WR) == 0 ? 0 : 2);
}

static pid_t reader(int fd, size_t len, uint8_t seed) {
    pid_t pid = fork();
    if (pid != 0) return pid;
    static uint8_t bytes[70000];
    for (size_t at = 0;;) {
        ssize_t got = recv(fd, bytes, sizeof(bytes), 0);
        if (got < 0) _exit(1);
        if (got == 0) _exit(at == len ? 0 : 2);
        for (ssize_t i = 0; i < got; i++)
            if (bytes[i] != pattern(at + (size_t)i, seed)) _exit(3);
        at += (size_t)got;
    }
}

static void bulk(size_t len) {
    struct flow flow;
    flow_start(&flow);
    pid_t pids[] = {writer(flow.client, len, 1), reader(flow.server, len, 1), writer(flow.server, len, 2), reader(flow.client, len, 2)};
    close(flow.client);
    close(flow.server);
    loop_until_ended(&flow, 60000);
    assert_int_equal(flow.error, 0);
    assert_int_equal(flow.relay.bytes[RELAY_SANDBOX], len);
    assert_int_equal(flow.relay.bytes[RELAY_UPSTREAM], len);
    for (size_t i = 0; i < ARRAY_LENGTH(pids); i++) assert_int_equal(lab_reap(pids[i]), 0);
}

static void test_bulk_both_ways(void **state) {
    (void)state;
    bulk(64 << 20);
}

// No descriptor is left for a pipe: copied.
static void test_bulk_without_pipes(void **state) {
    struct rlimit old, tight;
    struct flow flow;
    (void)state;
    relay_pool_done(&engine->pool);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    flow_start(&flow);
    int next = dup(0);
    close(next);
    tight = (struct rlimit){(rlim_t)next, old.rlim_max};
    size_t len = 4 << 20;
    pid_t pids[] = {writer(flow.client, len, 3), reader(flow.server, len, 3), writer(flow.server, len, 4), reader(flow.client, len, 4)};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &tight), 0);
    int pipe_fds[2];
    assert_int_equal(pipe(pipe_fds), -1);
    loop_until_ended(&flow, 30000);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
    assert_int_equal(flow.error, 0);
    assert_int_equal(flow.relay.bytes[RELAY_SANDBOX], len);
    for (size_t i = 0; i < ARRAY_LENGTH(pids); i++) assert_int_equal(lab_reap(pids[i]), 0);
    close(flow.client);
    close(flow.server);
}

// ---- ends ----

static void test_half_close(void **state) {
    (void)state;
    for (int reverse = 0; reverse < 2; reverse++) {
        struct flow flow;
        flow_start(&flow);
        int a = reverse ? flow.server : flow.client, b = reverse ? flow.client : flow.server;
        assert_int_equal(send(a, "request", 7, 0), 7);
        assert_int_equal(shutdown(a, SHUT_WR), 0);
        expect(b, "request");
        expect_end(b, 0);
        assert_int_equal(flow.error, 1); // the other direction lives
        assert_int_equal(send(b, "a late answer", 13, 0), 13);
        expect(a, "a late answer");
        assert_false(lab_readable(a, 0)); // no FIN yet
        close(b);
        expect_end(a, 0);
        loop_until_ended(&flow, 1000);
        assert_int_equal(flow.error, 0);
        close(a);
    }
}

static void test_reset_is_passed_on(void **state) {
    (void)state;
    for (int reverse = 0; reverse < 2; reverse++) {
        struct flow flow;
        flow_start(&flow);
        int a = reverse ? flow.server : flow.client, b = reverse ? flow.client : flow.server;
        assert_int_equal(send(a, "x", 1, 0), 1);
        expect(b, "x");
        relay_reset_fd(a);
        expect_end(b, ECONNRESET);
        loop_until_ended(&flow, 1000);
        assert_int_equal(flow.error, -ECONNRESET);
        close(b);
    }
}

// A peer that has closed for good answers with a reset, which reaches the writer.
static void test_write_to_closed(void **state) {
    struct flow flow;
    (void)state;
    flow_start(&flow);
    close(flow.client);
    expect_end(flow.server, 0);
    assert_int_equal(send(flow.server, "to nobody", 9, 0), 9);
    loop_until_ended(&flow, 2000);
    assert_true(flow.error < 0);
    loop_ms(20);
    assert_int_equal(send(flow.server, "x", 1, MSG_NOSIGNAL), -1); // it was a reset, not just the FIN of before
    close(flow.server);
}

// ---- urgent data ----

static void test_urgent(void **state) {
    (void)state;
    for (int reverse = 0; reverse < 2; reverse++) {
        struct flow flow;
        flow_start(&flow);
        int a = reverse ? flow.server : flow.client, b = reverse ? flow.client : flow.server;
        assert_int_equal(send(a, "before", 6, 0), 6);
        assert_int_equal(send(a, "!", 1, MSG_OOB), 1);
        expect(b, "before!"); // nothing follows, yet it arrives
        assert_int_equal(send(a, "after", 5, 0), 5);
        expect(b, "after");
        // again, all in one go
        assert_int_equal(send(a, "1", 1, 0), 1);
        assert_int_equal(send(a, "2", 1, MSG_OOB), 1);
        assert_int_equal(send(a, "3", 1, MSG_OOB), 1);
        assert_int_equal(send(a, "4", 1, 0), 1);
        expect(b, "1234");
        // it neither spins nor keeps the loop awake
        uint64_t cpu = cpu_us();
        loop_ms(300);
        assert_true(cpu_us() - cpu < 100000);
        // with the end right behind it: not taken for the end
        assert_int_equal(send(a, "z", 1, MSG_OOB), 1);
        assert_int_equal(shutdown(a, SHUT_WR), 0);
        expect(b, "z");
        expect_end(b, 0);
        close(b);
        loop_until_ended(&flow, 1000);
        assert_int_equal(flow.error, 0);
        close(a);
    }
}

// Urgent while the other side is blocked, and the byte is the first of all.
static void test_urgent_first_and_blocked(void **state) {
    struct flow flow;
    static char block[65536];
    (void)state;
    flow_start(&flow);
    assert_int_equal(send(flow.client, "!", 1, MSG_OOB), 1);
    expect(flow.server, "!");
    size_t sent = 0;
    for (int idle = 0; idle < 20;) {
        ssize_t n = send(flow.client, block, sizeof(block), MSG_DONTWAIT);
        if (n > 0) sent += (size_t)n;
        idle = n > 0 ? 0 : idle + 1;
        loop_ms(2);
    }
    assert_int_equal(send(flow.client, "u", 1, MSG_OOB | MSG_DONTWAIT), -1); // full
    uint64_t cpu = cpu_us();
    loop_ms(300);
    assert_true(cpu_us() - cpu < 100000);
    for (size_t got = 0; got < sent;) {
        loop_ms(1);
        ssize_t n = recv(flow.server, block, sizeof(block), MSG_DONTWAIT);
        if (n > 0) got += (size_t)n;
    }
    assert_int_equal(send(flow.client, "u", 1, MSG_OOB), 1);
    expect(flow.server, "u");
    relay_stop(&flow.relay, true);
    close(flow.client);
    close(flow.server);
}

// ---- what was read before ----

static void test_first_and_back(void **state) {
    struct flow flow = {0};
    (void)state;
    flow_start_with(&flow, "hello ", 6, "banner ", 7);
    assert_int_equal(send(flow.client, "world", 5, 0), 5);
    assert_int_equal(send(flow.server, "text", 4, 0), 4);
    expect(flow.server, "hello world");
    expect(flow.client, "banner text");
    assert_int_equal(flow.relay.bytes[RELAY_SANDBOX], 11);
    assert_int_equal(flow.relay.bytes[RELAY_UPSTREAM], 11);
    relay_stop(&flow.relay, false);
    expect_end(flow.client, 0);
    expect_end(flow.server, 0);
    assert_int_equal(flow.error, 1); // stop does not tell
    close(flow.client);
    close(flow.server);
}

static void test_large_first(void **state) {
    struct flow flow = {0};
    size_t len = 8 << 20;
    uint8_t *first = malloc(len);
    (void)state;
    for (size_t i = 0; i < len; i++) first[i] = pattern(i, 9);
    flow_start_with(&flow, first, len, NULL, 0);
    memset(first, 0, len); // it has been copied
    free(first);
    assert_int_equal(shutdown(flow.client, SHUT_WR), 0);
    pid_t pid = reader(flow.server, len, 9);
    close(flow.server);
    expect_end(flow.client, 0);
    loop_until_ended(&flow, 20000);
    assert_int_equal(flow.error, 0);
    assert_int_equal(lab_reap(pid), 0);
    close(flow.client);
}

// ---- limits ----

// ---- limits ----

static struct event *meter_event;

static void meter_due(evutil_socket_t fd, short what, void *data) {
    (void)fd, (void)what;
    meter_serve(data);
}

static void meter_wake(uint64_t delay_us, void *data) {
    (void)data;
    struct timeval after = {.tv_sec = (time_t)(delay_us / 1000000), .tv_usec = (suseconds_t)(delay_us % 1000000)};
    assert_int_equal(event_add(meter_event, &after), 0);
}

static void meter_start(struct meter *meter, uint64_t rate, uint64_t budget) {
    const struct meter_callbacks callbacks = {.wake = meter_wake};
    meter_init(meter, 0, &callbacks);
    meter_event = evtimer_new(base, meter_due, meter);
    meter_limit(meter, rate, budget);
    relay_engine_meter(engine, meter);
}

static void meter_end(void) {
    relay_engine_meter(engine, &engine->own);
    event_free(meter_event);
}

static void test_byte_budget(void **state) {
    char bytes[1100];
    (void)state;
    memset(bytes, 'c', sizeof(bytes));
    for (int over = 0; over < 2; over++) {
        struct flow flow;
        struct meter meter;
        meter_start(&meter, 0, 1000);
        meter_take(&meter, METER_OUT, 300); // by whoever read the first bytes
        flow_start_with(&flow, bytes, 300, NULL, 0);
        assert_int_equal(send(flow.client, bytes, 700 + (size_t)over, 0), 700 + over);
        loop_ms(50);
        if (!over) { // exactly the budget: fine, and the other way is not counted
            assert_int_equal(flow.error, 1);
            assert_int_equal(recv(flow.server, bytes, sizeof(bytes), 0), 1000);
            assert_int_equal(send(flow.server, bytes, sizeof(bytes), 0), sizeof(bytes));
            assert_int_equal(shutdown(flow.client, SHUT_WR), 0);
            expect_end(flow.server, 0);
            close(flow.server);
            loop_until_ended(&flow, 1000);
            assert_int_equal(flow.error, 0);
            assert_true(meter.used[METER_IN] == sizeof(bytes));
        } else {
            loop_until_ended(&flow, 1000);
            assert_int_equal(flow.error, -EDQUOT);
            expect_end(flow.client, ECONNRESET);
            close(flow.server);
        }
        assert_int_equal(flow.relay.bytes[RELAY_SANDBOX], 1000);
        assert_true(meter.used[METER_OUT] == 1000);
        close(flow.client);
        meter_end();
    }
}

// Four flows of one sandbox at 8 MB/s: together they get that, each its part, whole, and the loop sleeps in between.
static void test_rate_is_shared(void **state) {
    enum { FLOWS = 4, RATE = 8 << 20, EACH = 6 << 20 };
    struct flow flows[FLOWS];
    struct meter meter;
    pid_t writers[FLOWS];
    static uint8_t bytes[1 << 16];
    size_t got[FLOWS] = {0}, sum = 0;
    (void)state;
    meter_start(&meter, RATE, METER_NONE);
    for (int i = 0; i < FLOWS; i++) {
        flow_start(&flows[i]);
        writers[i] = writer(flows[i].client, EACH, (uint8_t)i);
    }
    uint64_t begin = clock_us(), cpu = cpu_us();
    while (clock_us() - begin < 1000000) {
        loop_ms(5);
        for (int i = 0; i < FLOWS; i++) {
            ssize_t n;
            while ((n = recv(flows[i].server, bytes, sizeof(bytes), MSG_DONTWAIT)) > 0) {
                for (ssize_t j = 0; j < n; j++) assert_int_equal(bytes[j], pattern(got[i] + (size_t)j, (uint8_t)i));
                got[i] += (size_t)n;
            }
        }
    }
    uint64_t passed = clock_us() - begin;
    assert_true(cpu_us() - cpu < passed * 3 / 4); // no busy loop, though every byte was looked at here
    for (int i = 0; i < FLOWS; i++) {
        sum += got[i];
        assert_true(got[i] > passed * (RATE / 1000000) / FLOWS / 2);
    }
    assert_true(sum < passed * RATE / 1000000 + RATE / 20 + (1 << 20));
    // Without a limit from here on nobody waits any more.
    meter_limit(&meter, 0, METER_NONE);
    for (int i = 0; i < FLOWS; i++) {
        for (ssize_t n = 1; got[i] < EACH; got[i] += n > 0 ? (size_t)n : 0) {
            if (n <= 0) loop_ms(1);
            n = recv(flows[i].server, bytes, sizeof(bytes), MSG_DONTWAIT);
        }
        int status;
        assert_int_equal(waitpid(writers[i], &status, 0), writers[i]);
        assert_int_equal(status, 0);
        relay_stop(&flows[i].relay, true);
        close(flows[i].client);
        close(flows[i].server);
    }
    meter_end();
}

// A relay that waits for its turn is not idle, and one that ends leaves the queue.
static void test_waiting_is_not_idle(void **state) {
    struct flow waiting, leaving;
    struct meter meter;
    static char bytes[20000];
    (void)state;
    meter_start(&meter, 4000, METER_NONE); // a burst of 4096, then 4000 a second
    flow_start(&waiting);
    flow_start(&leaving);
    assert_int_equal(send(waiting.client, bytes, sizeof(bytes), 0), sizeof(bytes));
    assert_int_equal(send(leaving.client, bytes, sizeof(bytes), 0), sizeof(bytes));
    assert_int_equal(shutdown(waiting.client, SHUT_WR), 0); // RELAY_IDLE_HALF_S is a second
    loop_ms(100);
    relay_stop(&leaving.relay, true);
    size_t got = 0;
    for (int i = 0; i < 200 && got < sizeof(bytes); i++) {
        loop_ms(50);
        ssize_t n = recv(waiting.server, bytes, sizeof(bytes), MSG_DONTWAIT);
        if (n > 0) got += (size_t)n;
    }
    assert_int_equal(got, sizeof(bytes));
    expect_end(waiting.server, 0);
    close(waiting.server);
    loop_until_ended(&waiting, 1000);
    assert_int_equal(waiting.error, 0);
    close(waiting.client);
    close(leaving.client);
    close(leaving.server);
    meter_end();
}

static void test_idle_deadlines(void **state) {
    struct flow open, half, busy;
    (void)state;
    flow_start(&open);
    flow_start(&half);
    flow_start(&busy);
    assert_int_equal(shutdown(half.client, SHUT_WR), 0);
    for (int i = 0; i < 10; i++) { // 2.4 s
        loop_ms(240);
        assert_int_equal(send(busy.client, "b", 1, 0), 1);
    }
    assert_int_equal(half.error, -ETIMEDOUT);
    assert_int_equal(open.error, 1);
    for (int i = 0; i < 10; i++) {
        loop_ms(240);
        assert_int_equal(send(busy.client, "b", 1, 0), 1);
    }
    assert_int_equal(open.error, -ETIMEDOUT);
    assert_int_equal(busy.error, 1);
    expect_end(open.client, ECONNRESET);
    relay_stop(&busy.relay, true);
    int fds[] = {open.client, open.server, half.client, half.server, busy.client, busy.server};
    for (size_t i = 0; i < ARRAY_LENGTH(fds); i++) close(fds[i]);
}

static void test_idle_cost(void **state) {
    enum { COUNT = 1000 };
    static struct flow flows[COUNT];
    int before = fd_count();
    (void)state;
    relay_pool_done(&engine->pool);
    before = fd_count();
    for (int i = 0; i < COUNT; i++) {
        flow_start(&flows[i]);
        assert_int_equal(send(flows[i].client, "ping", 4, 0), 4);
        assert_int_equal(send(flows[i].server, "pong", 4, 0), 4);
    }
    loop_ms(200);
    for (int i = 0; i < COUNT; i++) {
        char text[8];
        assert_int_equal(recv(flows[i].server, text, 8, MSG_DONTWAIT), 4);
        assert_int_equal(recv(flows[i].client, text, 8, MSG_DONTWAIT), 4);
    }
    // 2 ends of the test, 2 of the relay, and the pool's few pipes for all of them together
    assert_in_range(fd_count() - before, 4 * COUNT, 4 * COUNT + 64);
    relay_pool_done(&engine->pool);
    assert_int_equal(fd_count() - before, 4 * COUNT);
    uint64_t cpu = cpu_us();
    loop_ms(200);
    assert_true(cpu_us() - cpu < 50000); // idle is idle
    for (int i = 0; i < COUNT; i++) {
        close(flows[i].client);
        close(flows[i].server);
    }
    for (int i = 0; i < COUNT; i++) {
        loop_until_ended(&flows[i], 2000);
        assert_int_equal(flows[i].error, 0);
    }
    relay_pool_done(&engine->pool);
    assert_int_equal(fd_count(), before);
    assert_true(sizeof(struct relay) <= 136);
}

// ---- callbacks ----

struct pair {
    struct relay first, second;
    int calls;
};

static struct pair *pair;

static void ended_stops_other(struct relay *relay, int error) {
    assert_int_equal(error, -ECONNRESET);
    pair->calls++;
    relay_stop(relay == &pair->first ? &pair->second : &pair->first, true);
    memset(&pair->first, 0xaa, sizeof(pair->first)); // as good as freed
    memset(&pair->second, 0xaa, sizeof(pair->second));
}

static void test_callback_stops_and_frees(void **state) {
    int outer[4], inner[4];
    (void)state;
    pair = NEW(struct pair);
    engine->tell = ended_stops_other;
    for (int i = 0; i < 4; i++) tcp_pair(&outer[i], &inner[i]);
    assert_int_equal(relay_start(engine, &pair->first, inner[0], inner[1], NULL, 0, NULL, 0), 0);
    assert_int_equal(relay_start(engine, &pair->second, inner[2], inner[3], NULL, 0, NULL, 0), 0);
    relay_reset_fd(outer[0]); // both end in the same turn
    relay_reset_fd(outer[2]);
    loop_ms(100);
    assert_int_equal(pair->calls, 1);
    engine->tell = ended;
    close(outer[1]);
    close(outer[3]);
    free(pair);
}

// A bulk transfer leaves others their turn.
static void test_fair(void **state) {
    struct flow bulk_flow, small;
    size_t len = 256 << 20;
    (void)state;
    flow_start(&bulk_flow);
    flow_start(&small);
    pid_t pids[] = {writer(bulk_flow.client, len, 5), reader(bulk_flow.server, len, 5)};
    close(bulk_flow.client);
    uint64_t worst = 0;
    int rounds = 0;
    char byte;
    for (; rounds < 50 && bulk_flow.error == 1; rounds++) {
        uint64_t start = clock_us();
        assert_int_equal(send(small.client, "p", 1, 0), 1);
        while (recv(small.server, &byte, 1, MSG_DONTWAIT) != 1) event_base_loop(base, EVLOOP_ONCE);
        if (clock_us() - start > worst) worst = clock_us() - start;
    }
    assert_int_equal(rounds, 50);
    assert_true(worst < 200000); // shared machines: generous
    relay_stop(&bulk_flow.relay, true);
    for (size_t i = 0; i < 2; i++) { // they hold copies of our descriptors
        kill(pids[i], SIGKILL);
        lab_reap(pids[i]);
    }
    relay_stop(&small.relay, true);
    close(bulk_flow.server);
    close(small.client);
    close(small.server);
}

// Upstream's receive buffer: fixed at first, free to grow while bytes flow, fixed again when idle; a few at a time.
static int receive_locked(const struct flow *flow) {
    int lock = -1;
    socklen_t len = sizeof(lock);
    assert_int_equal(getsockopt(flow->relay.fds[RELAY_UPSTREAM], SOL_SOCKET, SO_BUF_LOCK, &lock, &len), 0);
    return (lock & 2) != 0; // SOCK_RCVBUF_LOCK
}

static void download(struct flow *flow, size_t bytes) {
    static char block[65536];
    for (size_t sent = 0, got = 0; got < bytes;) {
        if (sent < bytes) {
            ssize_t n = send(flow->server, block, bytes - sent < sizeof(block) ? bytes - sent : sizeof(block), MSG_DONTWAIT);
            if (n > 0) sent += (size_t)n;
        }
        event_base_loop(base, EVLOOP_NONBLOCK);
        ssize_t n = recv(flow->client, block, sizeof(block), MSG_DONTWAIT);
        if (n > 0) got += (size_t)n;
    }
}

static void test_receive_buffers(void **state) {
    static struct flow flows[RELAY_ROOMY_MAX + 1];
    (void)state;
    idle_open_s = 60; // the first flows wait for the last
    for (size_t i = 0; i < ARRAY_LENGTH(flows); i++) {
        flow_start(&flows[i]);
        assert_int_equal(receive_locked(&flows[i]), engine->fix_early);
        download(&flows[i], RELAY_ROOMY_AFTER / 2);
        assert_true(receive_locked(&flows[i]));
        download(&flows[i], RELAY_ROOMY_AFTER * 2);
        assert_int_equal(receive_locked(&flows[i]), i == RELAY_ROOMY_MAX); // the last finds no room
    }
    loop_ms(2200);
    for (size_t i = 0; i < ARRAY_LENGTH(flows); i++) assert_true(receive_locked(&flows[i]));
    download(&flows[RELAY_ROOMY_MAX], RELAY_ROOMY_AFTER);
    assert_false(receive_locked(&flows[RELAY_ROOMY_MAX]));
    for (size_t i = 0; i < ARRAY_LENGTH(flows); i++) {
        relay_stop(&flows[i].relay, true);
        close(flows[i].client);
        close(flows[i].server);
    }
    for (size_t i = 0; i < RELAY_ROOMY_MAX; i++) assert_null(engine->roomy[i]);
    idle_open_s = 3;
}

// Something else than TCP works too.
static void test_local_sockets(void **state) {
    int client[2], server[2];
    struct flow flow = {.error = 1};
    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, client), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, server), 0);
    assert_int_equal(relay_start(engine, &flow.relay, client[1], server[1], NULL, 0, NULL, 0), 0);
    assert_int_equal(send(client[0], "abc", 3, 0), 3);
    expect(server[0], "abc");
    close(client[0]);
    close(server[0]);
    loop_until_ended(&flow, 1000);
}

static int setup(void **state) {
    (void)state;
    base = event_base_new();
    return relay_engine_new(base, ended, &engine);
}

static int teardown(void **state) {
    (void)state;
    relay_engine_free(engine);
    event_base_free(base);
    return 0;
}

int main(void) {
    struct rlimit limit; // a thousand connections need more than the usual soft limit
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bulk_both_ways),  cmocka_unit_test(test_bulk_without_pipes),
        cmocka_unit_test(test_half_close),      cmocka_unit_test(test_reset_is_passed_on),
        cmocka_unit_test(test_write_to_closed), cmocka_unit_test(test_urgent),
        cmocka_unit_test(test_urgent_first_and_blocked), cmocka_unit_test(test_first_and_back),
        cmocka_unit_test(test_large_first),     cmocka_unit_test(test_byte_budget), cmocka_unit_test(test_rate_is_shared),
        cmocka_unit_test(test_waiting_is_not_idle),
        cmocka_unit_test(test_idle_deadlines),  cmocka_unit_test(test_idle_cost),
        cmocka_unit_test(test_callback_stops_and_frees), cmocka_unit_test(test_fair),
        cmocka_unit_test(test_receive_buffers), cmocka_unit_test(test_local_sockets),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
