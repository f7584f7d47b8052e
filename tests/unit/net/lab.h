// SPDX-License-Identifier: Apache-2.0
// For tests of the net room: a real keeper with its namespaces, processes inside, and a gate's end of its sockets.
#pragma once

#include <arpa/inet.h>
#include <assert.h>
#include <cap-ng.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "net/namespace.h"
#include "net/net.h"
#include "wire/ip.h"

#define LAB_NOBODY 65534

struct lab {
    uid_t runner;  // who the keeper is started by
    uid_t inside;  // who the sandbox's processes are
    pid_t keeper;
    int main;      // main's end of the keeper's channel
    int user, net; // namespaces
    int gate;      // the gate's end, or -1
    int sockets[IPC_SOCKET_COUNT];
    _Alignas(max_align_t) char buffer[CHANNEL_BUFFER_SIZE];
};

static inline void lab_become(uid_t uid) {
    if (uid == getuid()) return;
    if (setresgid(uid, uid, uid) < 0 || setresuid(uid, uid, uid) < 0) _exit(99);
    prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
}

static inline void lab_send_start(struct lab *lab, const struct ipc_ports *ports) {
    struct ipc_keeper_start start = {.uid = lab->inside, .gid = lab->inside};
    if (ports) start.loopback_ports = *ports;
    assert_int_equal(channel_send(lab->main, IPC_KEEPER_START, &start, sizeof(start), NULL, 0), 0);
}

static inline int lab_wait_main(struct lab *lab, struct channel_message *message) {
    return channel_wait(lab->main, 10000, lab->buffer, sizeof(lab->buffer), message);
}

static inline void lab_fork_keeper(struct lab *lab) {
    int pair[2];
    assert_int_equal(channel_pair(pair), 0);
    lab->keeper = fork();
    assert_true(lab->keeper >= 0);
    if (lab->keeper == 0) {
        close(pair[0]);
        lab_become(lab->runner);
        _exit(keeper_main(pair[1]));
    }
    close(pair[1]);
    lab->main = pair[0];
}

static inline void lab_await_ready(struct lab *lab) {
    struct channel_message message;
    assert_int_equal(lab_wait_main(lab, &message), 1);
    if (message.type == IPC_ERROR) fail_msg("%s", ((const struct ipc_error *)message.body)->text);
    assert_int_equal(message.type, IPC_KEEPER_NAMESPACES);
    lab->user = message.fds[0];
    lab->net = message.fds[1];
    assert_int_equal(lab_wait_main(lab, &message), 1);
    if (message.type == IPC_ERROR) fail_msg("%s", ((const struct ipc_error *)message.body)->text);
    assert_int_equal(message.type, IPC_KEEPER_READY);
}

static inline void lab_start(struct lab *lab, uid_t runner, uid_t inside, const struct ipc_ports *ports) {
    *lab = (struct lab){.runner = runner, .inside = inside, .gate = -1};
    for (size_t i = 0; i < IPC_SOCKET_COUNT; i++) lab->sockets[i] = -1;
    lab_fork_keeper(lab);
    lab_send_start(lab, ports);
    lab_await_ready(lab);
}

static inline void lab_gate_lose(struct lab *lab) {
    for (size_t i = 0; i < IPC_SOCKET_COUNT; i++)
        if (lab->sockets[i] >= 0) close(TAKE_FD(lab->sockets[i]));
    if (lab->gate >= 0) close(TAKE_FD(lab->gate));
    usleep(50000); // the keeper sees it
}

static inline int lab_wait_gate(struct lab *lab, struct channel_message *message) {
    return channel_wait(lab->gate, 5000, lab->buffer, sizeof(lab->buffer), message);
}

// Connects a gate; its sockets have been received, mappings not.
static inline void lab_gate_connect(struct lab *lab) {
    struct channel_message message;
    int pair[2];
    assert_int_equal(channel_pair(pair), 0);
    assert_int_equal(channel_send(lab->main, IPC_KEEPER_GATE, NULL, 0, &pair[1], 1), 0);
    close(pair[1]);
    lab->gate = pair[0];
    assert_int_equal(lab_wait_gate(lab, &message), 1);
    assert_int_equal(message.type, IPC_GATE_SOCKETS);
    assert_int_equal(message.fd_count, IPC_SOCKET_COUNT);
    memcpy(lab->sockets, message.fds, sizeof(lab->sockets));
}

static inline void lab_gate(struct lab *lab) {
    struct channel_message message;
    lab_gate_connect(lab);
    do {
        assert_int_equal(lab_wait_gate(lab, &message), 1);
    } while (message.type == IPC_MAPPING);
    assert_int_equal(message.type, IPC_MAPPINGS_END);
}

static inline int lab_reap(pid_t pid) {
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static inline void lab_stop(struct lab *lab) {
    lab_gate_lose(lab);
    close(lab->main);
    assert_int_equal(lab_reap(lab->keeper), 0);
    close(lab->user);
    close(lab->net);
}

// Enters the namespaces, as an unprivileged process of the sandbox, or with its network capabilities.
static inline void lab_enter(const struct lab *lab, bool root) {
    lab_become(lab->runner);
    if (setns(lab->user, CLONE_NEWUSER) < 0 || setns(lab->net, CLONE_NEWNET) < 0) _exit(98);
    if (setresgid(lab->inside, lab->inside, lab->inside) < 0 || setresuid(lab->inside, lab->inside, lab->inside) < 0) _exit(97);
    capng_clear(CAPNG_SELECT_ALL);
    if (root) {
        capng_type_t sets = (capng_type_t)(CAPNG_EFFECTIVE | CAPNG_PERMITTED | CAPNG_INHERITABLE | CAPNG_AMBIENT);
        capng_updatev(CAPNG_ADD, sets, CAP_NET_ADMIN, CAP_NET_RAW, -1);
    }
    if (capng_apply((capng_select_t)(CAPNG_SELECT_CAPS | CAPNG_SELECT_AMBIENT)) < 0) _exit(96);
}

// A network namespace for this test process, with the right to change it, for programs that it starts too.
static inline int lab_own_network(void) {
    if (getuid() == 0) return unshare(CLONE_NEWNET);
    if (namespace_enter(getuid(), getgid(), NULL) < 0) return -1;
    capng_type_t sets = (capng_type_t)(CAPNG_EFFECTIVE | CAPNG_PERMITTED | CAPNG_INHERITABLE | CAPNG_AMBIENT);
    capng_updatev(CAPNG_ADD, sets, CAP_NET_ADMIN, -1);
    return capng_apply((capng_select_t)(CAPNG_SELECT_CAPS | CAPNG_SELECT_AMBIENT));
}

typedef int lab_function(void *data); // returns an exit status

static inline pid_t lab_inside(const struct lab *lab, bool root, lab_function *function, void *data) {
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        signal(SIGPIPE, SIG_DFL);
        alarm(20);
        if (lab->gate >= 0) close(lab->gate); // so that the keeper sees a gate's end
        lab_enter(lab, root);
        _exit(function(data));
    }
    return pid;
}

static inline int lab_inside_run(const struct lab *lab, bool root, lab_function *function, void *data) {
    return lab_reap(lab_inside(lab, root, function, data));
}

static inline struct addr lab_addr(const char *text) {
    struct addr addr = {0};
    if (addr_parse(text, strlen(text), &addr) < 0) abort();
    return addr;
}

// A socket connected within ms, or -errno.
static inline int lab_connect(const char *address, uint16_t port, int ms) {
    struct addr addr = lab_addr(address);
    struct sockaddr_storage to;
    socklen_t len = addr_to_sockaddr(&addr, port, &to);
    int fd = socket(to.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int error = connect(fd, (struct sockaddr *)&to, len) < 0 ? errno : 0;
    if (error == EINPROGRESS) {
        struct pollfd item = {.fd = fd, .events = POLLOUT};
        socklen_t size = sizeof(error);
        error = ETIMEDOUT;
        if (poll(&item, 1, ms) == 1) getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
    }
    if (error == 0) {
        fcntl(fd, F_SETFL, 0);
        return fd;
    }
    close(fd);
    return -error;
}

// A listening or bound socket, or -errno.
static inline int lab_bind(const char *address, uint16_t port, int type) {
    struct addr addr = lab_addr(address);
    struct sockaddr_storage name;
    socklen_t len = addr_to_sockaddr(&addr, port, &name);
    int fd = socket(name.ss_family, type | SOCK_CLOEXEC, 0), one = 1;
    setsockopt(fd, SOL_IP, IP_FREEBIND, &one, sizeof(one));
    if (type == SOCK_STREAM) setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)); // TIME_WAIT
    if (bind(fd, (struct sockaddr *)&name, len) < 0 || (type == SOCK_STREAM && listen(fd, 512) < 0)) {
        int error = errno;
        close(fd);
        return -error;
    }
    return fd;
}

static inline uint16_t lab_port(int fd) {
    struct sockaddr_storage name;
    socklen_t len = sizeof(name);
    struct addr addr;
    uint16_t port;
    if (getsockname(fd, (struct sockaddr *)&name, &len) < 0) abort();
    if (addr_from_sockaddr((struct sockaddr *)&name, &addr, &port) < 0) abort();
    return port;
}

static inline bool lab_readable(int fd, int ms) {
    struct pollfd item = {.fd = fd, .events = POLLIN};
    return poll(&item, 1, ms) == 1;
}

// The next held packet. False after ms.
static inline bool lab_held(struct lab *lab, int ms, uint8_t bytes[2048], struct ip_packet *packet) {
    if (!lab_readable(lab->sockets[IPC_SOCKET_PACKET], ms)) return false;
    ssize_t got = recv(lab->sockets[IPC_SOCKET_PACKET], bytes, 2048, 0);
    assert_true(got > 0);
    assert_int_equal(ip_packet_parse(bytes, (size_t)got, packet), WIRE_OK);
    return true;
}

static inline void lab_inject(struct lab *lab, const uint8_t *bytes, size_t len, const struct addr *to) {
    struct sockaddr_storage name;
    socklen_t name_len = addr_to_sockaddr(to, 0, &name);
    int fd = lab->sockets[to->family == ADDR_IPV4 ? IPC_SOCKET_RAW4 : IPC_SOCKET_RAW6];
    assert_int_equal(sendto(fd, bytes, len, 0, (struct sockaddr *)&name, name_len), len);
}

// Takes the next SYN, lets it through, accepts it, and checks what it was for.
static inline int lab_accept(struct lab *lab, const char *address, uint16_t port) {
    uint8_t bytes[2048];
    struct ip_packet packet;
    struct addr expected = lab_addr(address), local;
    bool ipv4 = expected.family == ADDR_IPV4;

    assert_true(lab_held(lab, 2000, bytes, &packet));
    assert_int_equal(packet.protocol, IPPROTO_TCP);
    assert_true(addr_equal(&packet.destination, &expected));
    assert_int_equal(packet.destination_port, port);
    ip_packet_checksum(&packet);
    lab_inject(lab, packet.bytes, packet.len, &packet.destination);
    int listener = lab->sockets[ipv4 ? IPC_SOCKET_TCP4 : IPC_SOCKET_TCP6];
    assert_true(lab_readable(listener, 2000));
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    assert_true(fd >= 0);
    struct sockaddr_storage name;
    socklen_t len = sizeof(name);
    uint16_t local_port;
    assert_int_equal(getsockname(fd, (struct sockaddr *)&name, &len), 0);
    assert_int_equal(addr_from_sockaddr((struct sockaddr *)&name, &local, &local_port), 0);
    assert_true(addr_equal(&local, &expected));
    assert_int_equal(local_port, port);
    return fd;
}
