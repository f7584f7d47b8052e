// SPDX-License-Identifier: Apache-2.0
// Kernel memory held by 256 relayed connections that nobody reads, in both directions, through a real keeper: sockets on
// both sides of the gate (by what the kernel has charged to TCP) and what lies in pipes. Under 128 MiB, though the first
// ones may have large buffers.
#include <event2/event.h>
#include <linux/sock_diag.h>

#include "lab.h"
#include "net/relay_pipe.h"

enum { COUNT = 256, LARGE = 16 };
#define MIB(bytes) ((double)(bytes) / 1048576)

// What the kernel has charged to a socket: received, queued for sending, and reserved for it (sock_diag(7)).
static int64_t socket_memory(int fd) {
    uint32_t info[SK_MEMINFO_VARS] = {0};
    socklen_t len = sizeof(info);
    if (getsockopt(fd, SOL_SOCKET, SO_MEMINFO, info, &len) < 0) abort();
    return (int64_t)info[SK_MEMINFO_RMEM_ALLOC] + info[SK_MEMINFO_WMEM_QUEUED] + (int32_t)info[SK_MEMINFO_FWD_ALLOC] +
           info[SK_MEMINFO_BACKLOG]; // what is set aside may be a debt for a moment
}

static int64_t sockets_memory(const int *fds) {
    int64_t sum = 0;
    for (int i = 0; i < COUNT; i++) sum += socket_memory(fds[i]);
    return sum;
}

// Sends on every connection as long as any takes more.
static void flood(const int *fds) {
    static char block[65536];
    for (uint64_t quiet = clock_us(); clock_us() - quiet < 1500000;) {
        for (int i = 0; i < COUNT; i++)
            if (send(fds[i], block, sizeof(block), MSG_DONTWAIT | MSG_NOSIGNAL) > 0) quiet = clock_us();
        usleep(1000);
    }
}

struct side {
    bool floods;
    int ready; // a byte is written when done
    int ask;
};

static int client(void *data) {
    const struct side *side = data;
    int fds[COUNT];
    for (int i = 0; i < COUNT; i++) {
        fds[i] = lab_connect("93.184.216.34", 443, 3000);
        if (fds[i] < 0) return 1;
        if (write(side->ready, "c", 1) != 1) return 2;
    }
    if (side->floods) flood(fds);
    if (write(side->ready, "d", 1) != 1) return 2;
    // The sandbox's own half, once all has come to rest.
    char byte;
    if (read(side->ask, &byte, 1) != 1) return 3;
    int64_t sum = sockets_memory(fds);
    if (write(side->ready, &sum, sizeof(sum)) != (ssize_t)sizeof(sum)) return 4;
    pause();
    return 0;
}

static void server(int listener, const struct side *side) {
    int fds[COUNT];
    for (int i = 0; i < COUNT; i++) fds[i] = accept(listener, NULL, NULL);
    if (side->floods) flood(fds);
    if (write(side->ready, "d", 1) != 1) _exit(1);
    pause();
    _exit(0);
}

static void ended(struct relay *relay, int error) { (void)relay, (void)error; }

struct dialled {
    struct event_base *base;
    int fd;
};
static void dial_over(int fd, const struct addr *peer, void *data) {
    struct dialled *dialled = data;
    (void)peer;
    dialled->fd = fd;
    event_base_loopbreak(dialled->base);
}

static int64_t pipe_memory(const struct relay *relays) {
    int64_t sum = 0;
    for (int i = 0; i < COUNT; i++)
        for (int side = 0; side < 2; side++)
            if (relays[i].pipes[side]) sum += relays[i].pipes[side]->used;
    return sum;
}

static void unread(uid_t runner, bool upload) {
    static struct relay relays[COUNT];
    struct event_base *base = event_base_new();
    struct relay_engine *engine;
    struct dialled dialled = {.base = base};
    struct addr loopback = lab_addr("127.0.0.1");
    struct dial_options options = {.deadline_ms = 3000, .stagger_ms = 250, .allow_loopback = true};
    struct lab lab;
    int listener = lab_bind("127.0.0.1", 0, SOCK_STREAM), signals[2], sides[2], asks[2];

    lab_start(&lab, runner, runner ? runner : 23456, NULL);
    lab_gate(&lab);
    assert_int_equal(relay_engine_new(base, ended, &engine), 0);
    assert_int_equal(pipe(signals), 0);
    assert_int_equal(pipe(sides), 0);
    assert_int_equal(pipe(asks), 0);
    struct side client_side = {upload, signals[1], asks[0]}, server_side = {!upload, sides[1], -1};
    pid_t serving = fork();
    if (serving == 0) server(listener, &server_side);
    pid_t clients = lab_inside(&lab, false, client, &client_side);
    char byte;
    for (int i = 0; i < COUNT; i++) {
        int sandbox = lab_accept(&lab, "93.184.216.34", 443);
        relay_prepare(sandbox);
        struct ipc_buffers small = {0}; // as the gate does when there are many
        if (i == LARGE) {
            struct channel_message set;
            assert_int_equal(channel_send(lab.gate, IPC_BUFFERS, &small, sizeof(small), NULL, 0), 0);
            assert_int_equal(lab_wait_gate(&lab, &set), 1); // and not another before they are
            assert_int_equal(set.type, IPC_BUFFERS);
        }
        assert_int_equal(read(signals[0], &byte, 1), 1);
        assert_non_null(dial_start(base, &loopback, 1, lab_port(listener), &options, dial_over, &dialled));
        event_base_dispatch(base);
        assert_true(dialled.fd >= 0);
        relays[i] = (struct relay){0};
        assert_int_equal(relay_start(engine, &relays[i], sandbox, dialled.fd, NULL, 0, NULL, 0), 0);
    }
    close(sides[1]);
    while (!lab_readable(upload ? signals[0] : sides[0], 0)) event_base_loop(base, EVLOOP_NONBLOCK);
    assert_int_equal(read(signals[0], &byte, 1), 1);
    int64_t inside, sandbox = 0, upstream = 0, pipes = pipe_memory(relays);
    assert_int_equal(write(asks[1], "?", 1), 1);
    assert_int_equal(read(signals[0], &inside, sizeof(inside)), sizeof(inside));
    for (int i = 0; i < COUNT; i++) {
        sandbox += socket_memory(relays[i].fds[RELAY_SANDBOX]);
        upstream += socket_memory(relays[i].fds[RELAY_UPSTREAM]);
    }
    print_message("%s, %d connections unread: in the sandbox %.1f MiB, gate's sandbox side %.1f MiB, pipes %.1f MiB, upstream %.1f MiB\n",
                  upload ? "upload" : "download", COUNT, MIB(inside), MIB(sandbox), MIB(pipes), MIB(upstream));
    for (int i = 0; i < COUNT; i++) relay_stop(&relays[i], true);
    kill(serving, SIGKILL);
    kill(clients, SIGKILL);
    lab_reap(serving);
    lab_reap(clients);
    relay_engine_free(engine);
    event_base_free(base);
    lab_stop(&lab);
    close(listener);
    close(signals[0]), close(signals[1]), close(sides[0]), close(asks[0]), close(asks[1]);
    assert_true(pipes > 0); // the measurement measured something
    assert_true(inside + sandbox + pipes + upstream < 128 << 20);
}

static void test_download(void **state) {
    (void)state;
    unread(getuid(), false);
}
static void test_upload(void **state) {
    (void)state;
    unread(getuid(), true);
}

int main(void) {
    static const struct CMUnitTest tests[] = {cmocka_unit_test(test_download), cmocka_unit_test(test_upload)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
