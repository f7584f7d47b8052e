// SPDX-License-Identifier: Apache-2.0
// What an isolated process can still do, and what ends it. By root and by an ordinary user.
#include <event2/event.h>
#include <sys/epoll.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>

#include "lab.h"
#include "net/isolate_table.h"

static uid_t runner;

typedef int work(int fd);

static int isolated(enum isolate_role role, work *function) {
    int fd = lab_bind("127.0.0.1", 0, SOCK_STREAM);
    pid_t pid = fork();
    if (pid == 0) {
        struct error err = {0};
        lab_become(runner);
        if (role == ISOLATE_KEEPER && unshare(CLONE_NEWUSER) < 0) _exit(201); // it has capabilities to keep
        if (isolate_process(role, &err) < 0) {
            dprintf(2, "%s\n", err.text);
            _exit(200);
        }
        _exit(function(fd));
    }
    close(fd);
    return lab_reap(pid);
}

// ---- allowed ----

static int files_are_gone(int fd) {
    (void)fd;
    if (open("/etc/passwd", O_RDONLY) >= 0 || errno != EACCES) return 1;
    if (openat(AT_FDCWD, "/tmp", O_RDONLY | O_DIRECTORY) >= 0) return 2;
    if (access("/etc/passwd", F_OK) == 0) return 3;
    if (socket(AF_UNIX, SOCK_STREAM, 0) >= 0 || errno != EACCES) return 4;
    if (socket(AF_PACKET, SOCK_DGRAM, 0) >= 0) return 5;
    if (socket(AF_NETLINK, SOCK_RAW, 0) >= 0) return 6;
    if (kill(1, 0) == 0 || errno != EACCES) return 7;
    return 0;
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

// The gate's work from the first event base to the last byte.
static int gate_work(int listener) {
    struct event_base *base = event_base_new();
    struct dialled dialled = {.base = base, .fd = -1};
    struct addr addr = lab_addr("127.0.0.1");
    struct dial_options options = {.deadline_ms = 1000, .stagger_ms = 250, .allow_loopback = true};
    int ends[2][2];
    for (int i = 0; i < 2; i++) {
        if (!dial_start(base, &addr, 1, lab_port(listener), &options, dial_over, &dialled)) return 2;
        event_base_dispatch(base);
        ends[i][0] = dialled.fd;
        ends[i][1] = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (ends[i][0] < 0 || ends[i][1] < 0) return 3;
    }
    struct relay_engine *engine;
    struct relay relay = {0};
    if (relay_engine_new(base, ended, &engine) < 0) return 4;
    if (relay_start(engine, &relay, ends[0][1], ends[1][0], (const uint8_t *)"first", 5, NULL, 0) < 0) return 5;
    if (send(ends[0][0], "hello", 5, 0) != 5) return 6;
    for (int i = 0; i < 10; i++) event_base_loop(base, EVLOOP_NONBLOCK);
    char text[16] = "";
    if (recv(ends[1][1], text, sizeof(text), 0) != 10 || memcmp(text, "firsthello", 10) != 0) return 7;
    char clock_buffer[CLOCK_TEXT_SIZE];
    if (strlen(clock_text(clock_buffer)) < 20) return 8;
    char *large = malloc(8 << 20);
    if (!large) return 9;
    memset(large, 1, 8 << 20);
    large = realloc(large, 16 << 20);
    free(large);
    relay_stop(&relay, true);
    relay_engine_free(engine);
    event_base_free(base);
    return host_has_route(&addr) ? 0 : 10;
}

static int resolver_work(int fd) {
    (void)fd;
    int udp = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in6 name = {.sin6_family = AF_INET6};
    if (udp < 0 || bind(udp, (struct sockaddr *)&name, sizeof(name)) < 0) return 1;
    struct event_base *base = event_base_new();
    if (!base) return 2;
    event_base_loop(base, EVLOOP_NONBLOCK);
    event_base_free(base);
    return 0;
}

// The vault reads what its helper opened, and talks to nobody: no network at all.
static int vault_work(int fd) {
    (void)fd;
    struct epoll_event event;
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    if (epoll < 0 || epoll_wait(epoll, &event, 1, 1) != 0) return 1;
    char *large = malloc(8 << 20);
    if (!large) return 2;
    memset(large, 1, 8 << 20);
    free(large);
    return 0;
}

// ---- fatal ----

static int fatal_network(int fd) {
    (void)fd;
    return socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0) < 0;
}
static int fatal_connect(int fd) {
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_port = 1};
    return connect(fd, (struct sockaddr *)&name, sizeof(name)) < 0;
}

static int fatal_fork(int fd) {
    (void)fd;
    return (int)syscall(SYS_fork) == 0 ? 0 : 1;
}
static int fatal_exec(int fd) {
    (void)fd;
    char *const argv[] = {(char *)(uintptr_t)"true", NULL};
    execv("/bin/true", argv);
    return 1;
}
static int fatal_raw_socket(int fd) {
    (void)fd;
    return socket(AF_INET, SOCK_RAW, IPPROTO_RAW);
}
static int fatal_ptrace(int fd) {
    (void)fd;
    return (int)ptrace(PTRACE_TRACEME, 0, NULL, NULL);
}
static int fatal_executable_memory(int fd) {
    (void)fd;
    return mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED;
}
static int fatal_setns(int fd) { return setns(fd, 0); }
static int fatal_io_uring(int fd) {
    (void)fd;
    return (int)syscall(425, 8, NULL);
}
static int fatal_seal(int fd) { return fcntl(fd, F_SETOWN, 1); }

static void test_allowed(void **state) {
    (void)state;
    assert_int_equal(isolated(ISOLATE_KEEPER, files_are_gone), 0);
    assert_int_equal(isolated(ISOLATE_GATE, files_are_gone), 0);
    assert_int_equal(isolated(ISOLATE_RESOLVER, files_are_gone), 0);
    assert_int_equal(isolated(ISOLATE_VAULT, files_are_gone), 0);
    assert_int_equal(isolated(ISOLATE_GATE, gate_work), 0);
    assert_int_equal(isolated(ISOLATE_RESOLVER, resolver_work), 0);
}

static void test_fatal(void **state) {
    static work *const works[] = {fatal_fork, fatal_exec, fatal_raw_socket, fatal_ptrace, fatal_executable_memory, fatal_setns, fatal_io_uring, fatal_seal};
    static const enum isolate_role roles[] = {ISOLATE_KEEPER, ISOLATE_GATE, ISOLATE_RESOLVER, ISOLATE_VAULT};
    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(works); i++)
        for (size_t k = 0; k < ARRAY_LENGTH(roles); k++) {
            int status = isolated(roles[k], works[i]);
            if (ISOLATE_SANITIZED) {
                assert_int_not_equal(status, 0);
            } else if (status != 128 + SIGSYS) {
                fail_msg("work %zu role %d: %d", i, (int)roles[k], status);
            }
        }
}

static void test_vault_has_no_network(void **state) {
    static work *const works[] = {fatal_network, fatal_connect};
    (void)state;
    assert_int_equal(isolated(ISOLATE_VAULT, vault_work), 0);
    for (size_t i = 0; i < ARRAY_LENGTH(works); i++) {
        int status = isolated(ISOLATE_VAULT, works[i]);
        if (ISOLATE_SANITIZED) assert_int_not_equal(status, 0);
        else assert_int_equal(status, 128 + SIGSYS);
    }
}

// Read from outside, while it waits.
static void test_status(void **state) {
    int pair[2];
    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    pid_t pid = fork();
    if (pid == 0) {
        lab_become(runner);
        if (isolate_process(ISOLATE_GATE, NULL) < 0) _exit(200);
        char byte;
        _exit(write(pair[1], "r", 1) == 1 && read(pair[1], &byte, 1) == 1 ? 0 : 1);
    }
    char byte, path[64], line[128];
    assert_int_equal(read(pair[0], &byte, 1), 1);
    snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    FILE *file = fopen(path, "r");
    int seen = 0;
    while (fgets(line, sizeof(line), file)) {
        unsigned long long caps;
        unsigned value;
        if (sscanf(line, "CapEff: %llx", &caps) == 1 || sscanf(line, "CapPrm: %llx", &caps) == 1 ||
            sscanf(line, "CapInh: %llx", &caps) == 1 || sscanf(line, "CapAmb: %llx", &caps) == 1)
            seen += caps == 0;
        if (sscanf(line, "NoNewPrivs: %u", &value) == 1) seen += value == 1;
        if (sscanf(line, "Seccomp: %u", &value) == 1) seen += value == 2;
    }
    fclose(file);
    assert_int_equal(seen, 6);
    assert_int_equal(write(pair[0], "g", 1), 1);
    assert_int_equal(lab_reap(pid), 0);
    close(pair[0]);
    close(pair[1]);
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_allowed),
        cmocka_unit_test(test_fatal),
        cmocka_unit_test(test_vault_has_no_network),
        cmocka_unit_test(test_status),
    };
    int failed = 0;
    if (getuid() == 0) failed += cmocka_run_group_tests_name("isolation by root", tests, NULL, NULL);
    runner = getuid() == 0 ? LAB_NOBODY : getuid();
    return failed + cmocka_run_group_tests_name("isolation by an ordinary user", tests, NULL, NULL);
}
