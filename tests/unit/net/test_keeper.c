// SPDX-License-Identifier: Apache-2.0
// The keeper with a real kernel: every test runs once with a keeper started by root for another user, and once as an
// ordinary user. Needs to be root itself for that; an ordinary user runs only the second half.
#include <linux/errqueue.h>

#include "lab.h"

static uid_t runner, inside; // of this round

static const char *const targets[] = {"93.184.216.34", "2001:db8::9"};

// ---- no gate ----

static int refused_tcp(void *data) { return lab_connect(data, 80, 3000) == -ECONNREFUSED ? 0 : 1; }

static int refused_soon(void *data) {
    uint64_t best = UINT64_MAX; // of several: a loaded machine may be late once
    for (int i = 0; i < 5; i++) {
        uint64_t start = clock_us();
        if (lab_connect(data, 80, 3000) != -ECONNREFUSED) return 1;
        uint64_t took = clock_us() - start;
        if (took < best) best = took;
    }
    return best < 50000 ? 0 : 2;
}

// Sending fails, or the error comes back, at once.
static int refused_udp(void *data) {
    struct addr addr = lab_addr(data);
    struct sockaddr_storage to;
    socklen_t len = addr_to_sockaddr(&addr, 4000, &to);
    int fd = socket(to.ss_family, SOCK_DGRAM, 0);
    if (connect(fd, (struct sockaddr *)&to, len) < 0) return 1;
    if (send(fd, "x", 1, 0) < 0) return 0;
    char byte;
    return lab_readable(fd, 1000) && recv(fd, &byte, 1, 0) < 0 ? 0 : 2;
}

static int refused_ping(void *data) {
    struct addr addr = lab_addr(data);
    struct sockaddr_storage to;
    socklen_t len = addr_to_sockaddr(&addr, 0, &to);
    bool ipv4 = addr.family == ADDR_IPV4;
    int fd = socket(to.ss_family, SOCK_DGRAM, ipv4 ? IPPROTO_ICMP : IPPROTO_ICMPV6);
    uint8_t echo[8] = {ipv4 ? 8 : 128};
    int one = 1;
    if (fd < 0) return 1;
    setsockopt(fd, ipv4 ? SOL_IP : SOL_IPV6, ipv4 ? IP_RECVERR : IPV6_RECVERR, &one, sizeof(one));
    if (sendto(fd, echo, sizeof(echo), 0, (struct sockaddr *)&to, len) < 0) return 0;
    char byte;
    return lab_readable(fd, 1000) && recv(fd, &byte, 1, MSG_DONTWAIT) < 0 ? 0 : 2;
}

static void test_refuses_without_gate(void **state) {
    struct lab lab;
    (void)state;
    lab_start(&lab, runner, inside, NULL);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(lab_inside_run(&lab, false, refused_soon, (void *)(uintptr_t)targets[i]), 0);
        assert_int_equal(lab_inside_run(&lab, false, refused_udp, (void *)(uintptr_t)targets[i]), 0);
        assert_int_equal(lab_inside_run(&lab, false, refused_ping, (void *)(uintptr_t)targets[i]), 0);
    }
    // and again when a gate was there and is gone
    lab_gate(&lab);
    lab_gate_lose(&lab);
    for (size_t i = 0; i < 2; i++) assert_int_equal(lab_inside_run(&lab, false, refused_soon, (void *)(uintptr_t)targets[i]), 0);
    lab_stop(&lab);
}

// ---- identity ----

static int identity(void *data) {
    const struct lab *lab = data;
    char map[64] = "", groups[16] = "";
    FILE *file = fopen("/proc/self/uid_map", "r");
    unsigned in, out, count;
    if (!file || fscanf(file, "%u %u %u", &in, &out, &count) != 3 || in != lab->inside || count != 1) return 1;
    if (fgets(map, sizeof(map), file) && fgets(map, sizeof(map), file)) return 2; // one line only
    fclose(file);
    file = fopen("/proc/self/setgroups", "r");
    if (!file || !fgets(groups, sizeof(groups), file) || strcmp(groups, "deny\n") != 0) return 3;
    return getuid() == lab->inside && getgid() == lab->inside ? 0 : 4;
}

static void test_identity(void **state) {
    struct lab lab;
    char path[64], link_text[64];
    (void)state;
    lab_start(&lab, runner, inside, NULL);
    assert_int_equal(lab_inside_run(&lab, false, identity, &lab), 0);
    // the keeper itself: the user, two capabilities, filtered
    snprintf(path, sizeof(path), "/proc/%d/status", (int)lab.keeper);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    int seen = 0;
    while (fgets(link_text, sizeof(link_text), file)) {
        unsigned id;
        unsigned long long caps;
        if (sscanf(link_text, "Uid: %u", &id) == 1) seen += id == inside;
        if (sscanf(link_text, "CapEff: %llx", &caps) == 1) seen += caps == ((1ULL << CAP_NET_ADMIN) | (1ULL << CAP_NET_RAW));
        if (sscanf(link_text, "Seccomp: %u", &id) == 1) seen += id == 2;
        if (sscanf(link_text, "NoNewPrivs: %u", &id) == 1) seen += id == 1;
    }
    fclose(file);
    assert_int_equal(seen, 4);
    lab_stop(&lab);
}

// ---- held connections ----

static int talk(void *data) {
    int fd = lab_connect(data, 8443, 3000);
    char text[4] = "";
    if (fd < 0) return 1;
    if (send(fd, "ping", 4, 0) != 4) return 2;
    return recv(fd, text, 4, MSG_WAITALL) == 4 && memcmp(text, "pong", 4) == 0 ? 0 : 3;
}

static void test_syn_is_held_then_accepted(void **state) {
    struct lab lab;
    (void)state;
    lab_start(&lab, runner, inside, NULL);
    lab_gate(&lab);
    for (size_t i = 0; i < 2; i++) {
        char text[4];
        pid_t client = lab_inside(&lab, false, talk, (void *)(uintptr_t)targets[i]);
        int fd = lab_accept(&lab, targets[i], 8443);
        assert_true(lab_readable(fd, 1000));
        assert_int_equal(recv(fd, text, 4, 0), 4);
        assert_memory_equal(text, "ping", 4);
        assert_int_equal(send(fd, "pong", 4, 0), 4);
        assert_int_equal(lab_reap(client), 0);
        close(fd);
    }
    lab_stop(&lab);
}

static void test_syn_is_held_then_refused(void **state) {
    struct lab lab;
    (void)state;
    lab_start(&lab, runner, inside, NULL);
    lab_gate(&lab);
    for (size_t i = 0; i < 2; i++) {
        uint8_t bytes[2048], reset[256];
        struct ip_packet packet;
        pid_t client = lab_inside(&lab, false, refused_tcp, (void *)(uintptr_t)targets[i]);
        assert_true(lab_held(&lab, 2000, bytes, &packet));
        assert_int_equal(packet.destination_port, 80);
        size_t len = ip_write_reset(&packet, reset, sizeof(reset));
        assert_true(len > 0);
        lab_inject(&lab, reset, len, &packet.source);
        assert_int_equal(lab_reap(client), 0);
        assert_false(lab_readable(lab.sockets[i == 0 ? IPC_SOCKET_TCP4 : IPC_SOCKET_TCP6], 20));
    }
    lab_stop(&lab);
}

static int ping_hangs(void *data) {
    struct addr addr = lab_addr(data);
    struct sockaddr_storage to;
    socklen_t len = addr_to_sockaddr(&addr, 0, &to);
    bool ipv4 = addr.family == ADDR_IPV4;
    int fd = socket(to.ss_family, SOCK_DGRAM, ipv4 ? IPPROTO_ICMP : IPPROTO_ICMPV6);
    uint8_t echo[8] = {ipv4 ? 8 : 128};
    if (sendto(fd, echo, sizeof(echo), 0, (struct sockaddr *)&to, len) != sizeof(echo)) return 1;
    return lab_readable(fd, 200) ? 2 : 0;
}

static void test_echo_is_held(void **state) {
    struct lab lab;
    (void)state;
    lab_start(&lab, runner, inside, NULL);
    lab_gate(&lab);
    for (size_t i = 0; i < 2; i++) {
        uint8_t bytes[2048];
        struct ip_packet packet;
        struct addr expected = lab_addr(targets[i]);
        pid_t client = lab_inside(&lab, false, ping_hangs, (void *)(uintptr_t)targets[i]);
        assert_true(lab_held(&lab, 2000, bytes, &packet));
        assert_int_equal(packet.protocol, i == 0 ? IPPROTO_ICMP : IPPROTO_ICMPV6);
        assert_true(addr_equal(&packet.destination, &expected));
        assert_int_equal(lab_reap(client), 0);
        assert_false(lab_held(&lab, 20, bytes, &packet)); // once
    }
    lab_stop(&lab);
}

static int other_protocol(void *data) {
    struct addr addr = lab_addr(data);
    struct sockaddr_storage to;
    socklen_t len = addr_to_sockaddr(&addr, 0, &to);
    int fd = socket(to.ss_family, SOCK_RAW, IPPROTO_SCTP);
    if (fd < 0) return 1;
    return sendto(fd, "12345678", 8, 0, (struct sockaddr *)&to, len) < 0 && errno == EPERM ? 0 : 2;
}

static void test_other_protocols_fail_at_once(void **state) {
    struct lab lab;
    (void)state;
    lab_start(&lab, runner, inside, NULL);
    lab_gate(&lab);
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(lab_inside_run(&lab, true, other_protocol, (void *)(uintptr_t)targets[i]), 0);
    lab_stop(&lab);
}

// ---- UDP ----

struct question {
    const char *server;
    uint16_t port;
};

static int ask(void *data) {
    const struct question *question = data;
    struct addr addr = lab_addr(question->server);
    struct sockaddr_storage to;
    socklen_t len = addr_to_sockaddr(&addr, question->port, &to);
    int fd = socket(to.ss_family, SOCK_DGRAM, 0);
    char text[16] = "";
    if (connect(fd, (struct sockaddr *)&to, len) < 0 || send(fd, "query", 5, 0) != 5) return 1;
    if (!lab_readable(fd, 2000)) return 2;
    return recv(fd, text, sizeof(text), 0) == 6 && memcmp(text, "answer", 6) == 0 ? 0 : 3;
}

// The gate's part: receives one datagram, checks where it was sent, answers from there.
static void lab_answer(struct lab *lab, const struct question *question) {
    struct addr expected = lab_addr(question->server), original = {0}, client = {0};
    uint16_t original_port = 0, client_port = 0;
    char text[64], control[256];
    struct sockaddr_storage from;
    struct iovec part = {text, sizeof(text)};
    struct msghdr message = {.msg_name = &from, .msg_namelen = sizeof(from), .msg_iov = &part, .msg_iovlen = 1,
                             .msg_control = control, .msg_controllen = sizeof(control)};
    int fd = lab->sockets[expected.family == ADDR_IPV4 ? IPC_SOCKET_UDP4 : IPC_SOCKET_UDP6];

    assert_true(lab_readable(fd, 2000));
    assert_int_equal(recvmsg(fd, &message, 0), 5);
    for (struct cmsghdr *cmsg = CMSG_FIRSTHDR(&message); cmsg; cmsg = CMSG_NXTHDR(&message, cmsg)) {
        bool v4 = cmsg->cmsg_level == SOL_IP && cmsg->cmsg_type == IP_RECVORIGDSTADDR;
        bool v6 = cmsg->cmsg_level == SOL_IPV6 && cmsg->cmsg_type == IPV6_RECVORIGDSTADDR;
        struct sockaddr_storage name = {0};
        if (!v4 && !v6) continue;
        memcpy(&name, CMSG_DATA(cmsg), v4 ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6));
        assert_int_equal(addr_from_sockaddr((struct sockaddr *)&name, &original, &original_port), 0);
    }
    assert_true(addr_equal(&original, &expected));
    assert_int_equal(original_port, question->port);
    assert_int_equal(addr_from_sockaddr((struct sockaddr *)&from, &client, &client_port), 0);
    uint8_t packet[256];
    size_t len = ip_write_udp(&original, original_port, &client, client_port, (const uint8_t *)"answer", 6, packet, sizeof(packet));
    assert_true(len > 0);
    lab_inject(lab, packet, len, &client);
}

static void test_udp(void **state) {
    static const struct question questions[] = {
        {"8.8.8.8", 53}, {"2001:db8::53", 53}, {"203.0.113.5", 4444}, {"127.0.0.1", 53}, {"127.0.0.53", 53}, {"::1", 53},
    };
    struct lab lab;
    (void)state;
    lab_start(&lab, runner, inside, NULL);
    lab_gate(&lab);
    for (size_t i = 0; i < ARRAY_LENGTH(questions); i++) {
        pid_t client = lab_inside(&lab, false, ask, (void *)(uintptr_t)&questions[i]);
        lab_answer(&lab, &questions[i]);
        assert_int_equal(lab_reap(client), 0);
    }
    lab_stop(&lab);
}

// A datagram larger than 1472 bytes that must not be fragmented is refused, as on a plain network.
static int udp_mtu(void *data) {
    struct addr addr = lab_addr(data);
    struct sockaddr_storage to;
    socklen_t len = addr_to_sockaddr(&addr, 443, &to);
    int fd = socket(to.ss_family, SOCK_DGRAM, 0), discover = IP_PMTUDISC_DO;
    static char payload[2000];
    bool ipv4 = addr.family == ADDR_IPV4;
    setsockopt(fd, ipv4 ? SOL_IP : SOL_IPV6, ipv4 ? IP_MTU_DISCOVER : IPV6_MTU_DISCOVER, &discover, sizeof(discover));
    if (sendto(fd, payload, 1400, 0, (struct sockaddr *)&to, len) != 1400) return 1;
    return sendto(fd, payload, 2000, 0, (struct sockaddr *)&to, len) < 0 && errno == EMSGSIZE ? 0 : 2;
}

static void test_udp_mtu(void **state) {
    struct lab lab;
    (void)state;
    lab_start(&lab, runner, inside, NULL);
    lab_gate(&lab);
    for (size_t i = 0; i < 2; i++) assert_int_equal(lab_inside_run(&lab, false, udp_mtu, (void *)(uintptr_t)targets[i]), 0);
    lab_stop(&lab);
}

// ---- loopback ----

// A server and a client of the sandbox itself, on TCP and UDP.
static int local_service(void *data) {
    const struct question *service = data;
    int listener = lab_bind(service->server, service->port, SOCK_STREAM);
    if (listener < 0) return 1;
    int client = lab_connect(service->server, service->port, 1000);
    if (client < 0) return 2;
    int server = accept(listener, NULL, NULL);
    char byte = 0;
    if (send(client, "t", 1, 0) != 1 || recv(server, &byte, 1, 0) != 1 || byte != 't') return 3;

    int udp = lab_bind(service->server, service->port, SOCK_DGRAM);
    if (udp < 0) return 4;
    pid_t asking = fork();
    if (asking == 0) _exit(ask(data));
    struct sockaddr_storage from;
    socklen_t len = sizeof(from);
    char text[16];
    if (!lab_readable(udp, 1000) || recvfrom(udp, text, sizeof(text), 0, (struct sockaddr *)&from, &len) != 5) return 5;
    if (sendto(udp, "answer", 6, 0, (struct sockaddr *)&from, len) != 6) return 6;
    return lab_reap(asking) == 0 ? 0 : 7;
}

static void test_local_services(void **state) {
    static const struct question services[] = {
        {"127.0.0.1", 8080}, {"::1", 8080}, {"192.0.0.2", 80}, {"fd5a:91c3:7e24:1::2", 443}, {"127.0.0.1", 53}, {"::1", 53}, {"127.0.0.53", 53},
    };
    struct lab lab;
    (void)state;
    lab_start(&lab, runner, inside, NULL);
    for (int gate = 0; gate < 2; gate++) {
        if (gate) lab_gate(&lab);
        for (size_t i = 0; i < ARRAY_LENGTH(services); i++) {
            int status = lab_inside_run(&lab, false, local_service, (void *)(uintptr_t)&services[i]);
            if (status) fail_msg("%s %u gate %d: %d", services[i].server, services[i].port, gate, status);
        }
    }
    assert_false(lab_readable(lab.sockets[IPC_SOCKET_PACKET], 20));
    assert_false(lab_readable(lab.sockets[IPC_SOCKET_UDP4], 20));
    lab_stop(&lab);
}

// Wildcard servers, dual-stack too, are local servers on port 53.
static int wildcard_dns(void *data) {
    (void)data;
    int listener = lab_bind("::", 53, SOCK_STREAM), zero = 0;
    if (listener < 0) return 1;
    int four = lab_connect("127.0.0.1", 53, 1000), six = lab_connect("::1", 53, 1000);
    int udp = socket(AF_INET6, SOCK_DGRAM, 0);
    struct sockaddr_in6 any = {.sin6_family = AF_INET6, .sin6_port = htons(53)};
    setsockopt(udp, SOL_IPV6, IPV6_V6ONLY, &zero, sizeof(zero));
    if (four < 0 || six < 0 || bind(udp, (struct sockaddr *)&any, sizeof(any)) < 0) return 2;
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(53), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int client = socket(AF_INET, SOCK_DGRAM, 0);
    if (sendto(client, "x", 1, 0, (struct sockaddr *)&to, sizeof(to)) != 1) return 3;
    return lab_readable(udp, 1000) ? 0 : 4;
}

static int refused_loopback(void *data) { return lab_connect(data, 8000, 1000) == -ECONNREFUSED ? 0 : 1; }

static int connect_53(void *data) {
    int fd = lab_connect(data, 53, 2000);
    char byte;
    return fd >= 0 && recv(fd, &byte, 1, 0) == 1 ? 0 : 1;
}

static int connect_8000(void *data) {
    int fd = lab_connect(data, 8000, 2000);
    char byte;
    return fd >= 0 && recv(fd, &byte, 1, 0) == 1 ? 0 : 1;
}

static unsigned long resets_sent(void) {
    char text[4096] = "";
    int fd = open("/proc/self/net/snmp", O_RDONLY | O_CLOEXEC);
    unsigned long resets = 0;
    if (read(fd, text, sizeof(text) - 1) < 0) _exit(90);
    close(fd);
    char *values = strstr(strstr(text, "Tcp:") + 4, "Tcp:");
    sscanf(values, "Tcp: %*u %*u %*u %*d %*u %*u %*u %*u %*u %*u %*u %*u %*u %lu", &resets);
    return resets;
}

// Again by the same port, after the gate has closed first.
static int connect_53_twice(void *data) {
    struct sockaddr_in from = {.sin_family = AF_INET, .sin_port = htons(45000)}, to = {.sin_family = AF_INET, .sin_port = htons(53)};
    (void)data;
    from.sin_addr.s_addr = to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    for (int i = 0; i < 2; i++) {
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
        struct timeval most = {.tv_sec = 5};
        char byte;
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &most, sizeof(most));
        if (bind(fd, (struct sockaddr *)&from, sizeof(from)) < 0) return 1;
        if (connect(fd, (struct sockaddr *)&to, sizeof(to)) < 0) return 2 + i;
        if (recv(fd, &byte, 1, 0) != 0) return 4;
        close(fd);
    }
    return resets_sent() == 0 ? 0 : 5; // it would be tried again, after 10 ms or 1 s
}

static void test_port_is_used_again(void **state) {
    struct lab lab;
    (void)state;
    lab_start(&lab, runner, inside, NULL);
    lab_gate(&lab);
    pid_t client = lab_inside(&lab, false, connect_53_twice, NULL);
    for (int i = 0; i < 2; i++) {
        if (!lab_readable(lab.sockets[IPC_SOCKET_TCP4], 2000)) break;
        int fd = accept4(lab.sockets[IPC_SOCKET_TCP4], NULL, NULL, SOCK_CLOEXEC);
        shutdown(fd, SHUT_WR);
        char byte;
        recv(fd, &byte, 1, 0); // until the client has closed too
        close(fd);
    }
    assert_int_equal(lab_reap(client), 0);
    lab_stop(&lab);
}

static void test_loopback_ports(void **state) {
    static const char *const loopbacks[] = {"127.0.0.1", "::1"};
    struct ipc_ports opened = {.count = 2, .ports = {8000, 9000}}, closed = {0};
    struct lab lab;
    (void)state;
    lab_start(&lab, runner, inside, &opened);
    lab_gate(&lab);
    assert_int_equal(lab_inside_run(&lab, false, wildcard_dns, NULL), 0);
    for (size_t i = 0; i < 2; i++) {
        void *name = (void *)(uintptr_t)loopbacks[i];
        pid_t client = lab_inside(&lab, false, connect_8000, name); // opened: held
        int fd = lab_accept(&lab, loopbacks[i], 8000);
        assert_int_equal(send(fd, "x", 1, 0), 1);
        assert_int_equal(lab_reap(client), 0);
        close(fd);

        client = lab_inside(&lab, false, connect_53, name); // DNS over TCP: not held
        int listener = lab.sockets[i == 0 ? IPC_SOCKET_TCP4 : IPC_SOCKET_TCP6];
        assert_true(lab_readable(listener, 2000));
        fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        assert_int_equal(lab_port(fd), 53);
        assert_int_equal(send(fd, "x", 1, 0), 1);
        assert_int_equal(lab_reap(client), 0);
        close(fd);
        assert_false(lab_readable(lab.sockets[IPC_SOCKET_PACKET], 20));
    }
    assert_int_equal(channel_send(lab.main, IPC_KEEPER_PORTS, &closed, sizeof(closed), NULL, 0), 0);
    usleep(300000); // the rules are changed
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(lab_inside_run(&lab, false, refused_loopback, (void *)(uintptr_t)loopbacks[i]), 0);
    assert_false(lab_readable(lab.sockets[IPC_SOCKET_PACKET], 20));
    lab_stop(&lab);
}

// ---- attacks ----

static int steal_listener(void *data) {
    (void)data;
    if (lab_bind("192.0.0.3", 1, SOCK_STREAM) != -EADDRINUSE) return 1;
    if (lab_bind("192.0.0.3", 1, SOCK_DGRAM) != -EADDRINUSE) return 2;
    if (lab_bind("fd5a:91c3:7e24:1::3", 1, SOCK_STREAM) != -EADDRINUSE) return 3;
    if (lab_bind("fd5a:91c3:7e24:1::3", 1, SOCK_DGRAM) != -EADDRINUSE) return 4;
    int one = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_port = htons(1)};
    inet_pton(AF_INET, "192.0.0.3", &name.sin_addr);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof(one));
    setsockopt(fd, SOL_IP, IP_FREEBIND, &one, sizeof(one));
    if (bind(fd, (struct sockaddr *)&name, sizeof(name)) == 0 && listen(fd, 1) == 0) return 5;
    // marks and transparent binding are not for it
    int mark = 2;
    if (setsockopt(fd, SOL_SOCKET, SO_MARK, &mark, sizeof(mark)) == 0) return 6;
    if (setsockopt(fd, SOL_IP, IP_TRANSPARENT, &one, sizeof(one)) == 0) return 7;
    return lab_connect("192.0.0.3", 1, 100) == -ETIMEDOUT ? 0 : 8;
}

static void test_listeners_cannot_be_reached_or_stolen(void **state) {
    uint8_t bytes[2048];
    struct ip_packet packet;
    struct lab lab;
    (void)state;
    lab_start(&lab, runner, inside, NULL);
    lab_gate(&lab);
    assert_int_equal(lab_inside_run(&lab, false, steal_listener, NULL), 0);
    assert_true(lab_held(&lab, 100, bytes, &packet)); // just a foreign address, for the gate to judge
    assert_int_equal(packet.destination_port, 1);
    assert_false(lab_readable(lab.sockets[IPC_SOCKET_TCP4], 20));
    lab_stop(&lab);
}

static int run_program(const char *const *argv) {
    pid_t pid = fork();
    if (pid == 0) {
        execvp(argv[0], (char *const *)(uintptr_t)argv);
        _exit(127);
    }
    return lab_reap(pid);
}

// As root of the sandbox, with the rules and then the routes gone, nothing is reached.
static int flush(void *data) {
    static const char *const nft[] = {"nft", "flush", "ruleset", NULL};
    static const char *const routes[] = {"ip", "route", "flush", "table", "100", NULL};
    static const char *const routes6[] = {"ip", "-6", "route", "flush", "table", "100", NULL};
    static const char *const rules[] = {"ip", "rule", "del", "pref", "100", NULL};
    static const char *const *const steps[] = {nft, routes, routes6, rules};
    (void)data;
    for (size_t i = 0; i < ARRAY_LENGTH(steps); i++) {
        if (run_program(steps[i]) != 0) return 10 + (int)i;
        for (size_t k = 0; k < 2; k++) {
            int fd = lab_connect(targets[k], 80, 200);
            if (fd >= 0) return 1;
        }
    }
    return 0;
}

static void test_flushed_rules_reach_nothing(void **state) {
    struct lab lab;
    (void)state;
    lab_start(&lab, runner, inside, NULL);
    lab_gate(&lab);
    assert_int_equal(lab_inside_run(&lab, true, flush, NULL), 0);
    assert_false(lab_readable(lab.sockets[IPC_SOCKET_TCP4], 20));
    assert_false(lab_readable(lab.sockets[IPC_SOCKET_TCP6], 20));
    lab_gate_lose(&lab); // the rules come back whole
    assert_int_equal(lab_inside_run(&lab, false, refused_tcp, (void *)(uintptr_t)"93.184.216.34"), 0);
    lab_stop(&lab);
}

// ---- mappings ----

static void send_mapping(struct lab *lab, uint32_t index, const char *name) {
    struct ipc_mapping mapping = {.index = index};
    snprintf(mapping.name, sizeof(mapping.name), "%s", name);
    int result;
    while ((result = channel_send(lab->gate, IPC_MAPPING, &mapping, sizeof(mapping), NULL, 0)) == -EAGAIN) usleep(1000);
    assert_int_equal(result, 0);
}

static void test_mappings_are_replayed(void **state) {
    struct channel_message message;
    char name[64];
    struct lab lab;
    (void)state;
    lab_start(&lab, runner, inside, NULL);
    lab_gate(&lab);
    for (uint32_t i = 0; i < IPC_MAPPINGS_MAX; i++) {
        snprintf(name, sizeof(name), "host%u.example.com", i);
        send_mapping(&lab, i, name);
    }
    usleep(100000);
    lab_gate_lose(&lab);
    lab_gate_connect(&lab);
    usleep(100000); // a slow gate: the channel fills
    for (uint32_t i = 0; i < IPC_MAPPINGS_MAX; i++) {
        snprintf(name, sizeof(name), "host%u.example.com", i);
        assert_int_equal(lab_wait_gate(&lab, &message), 1);
        assert_int_equal(message.type, IPC_MAPPING);
        const struct ipc_mapping *mapping = message.body;
        assert_int_equal(mapping->index, i);
        assert_string_equal(mapping->name, name);
    }
    assert_int_equal(lab_wait_gate(&lab, &message), 1);
    assert_int_equal(message.type, IPC_MAPPINGS_END);

    send_mapping(&lab, 7, "host7.example.com"); // the same again is fine
    usleep(50000);
    assert_int_equal(channel_receive(lab.gate, lab.buffer, sizeof(lab.buffer), &message), -EAGAIN);
    send_mapping(&lab, 7, "other.example.com"); // another name is not
    assert_int_equal(lab_wait_gate(&lab, &message), 0);
    usleep(50000);
    assert_int_equal(lab_inside_run(&lab, false, refused_tcp, (void *)(uintptr_t)"93.184.216.34"), 0);
    lab_stop(&lab);
}

// ---- a new gate ----

static int quiet_connect(void *data) { return lab_connect(data, 80, 300) == -ETIMEDOUT ? 0 : 1; }

static void test_new_gate_gets_nothing_stale(void **state) {
    struct lab lab;
    (void)state;
    lab_start(&lab, runner, inside, NULL);
    lab_gate(&lab);
    assert_int_equal(lab_inside_run(&lab, false, quiet_connect, (void *)(uintptr_t)"93.184.216.34"), 0);
    lab_gate_lose(&lab); // with a SYN in the queue
    lab_gate(&lab);
    assert_false(lab_readable(lab.sockets[IPC_SOCKET_PACKET], 50));
    lab_stop(&lab);
}

// The channel of the first gate comes with the start: no other message is needed, and the skeleton leads to it.
static void test_first_gate_with_the_start(void **state) {
    struct ipc_keeper_start start = {.uid = inside, .gid = inside};
    struct channel_message message;
    struct lab lab = {.runner = runner, .inside = inside};
    int pair[2];
    (void)state;
    for (size_t i = 0; i < IPC_SOCKET_COUNT; i++) lab.sockets[i] = -1;
    lab_fork_keeper(&lab);
    assert_int_equal(channel_pair(pair), 0);
    assert_int_equal(channel_send(lab.main, IPC_KEEPER_START, &start, sizeof(start), &pair[1], 1), 0);
    close(pair[1]);
    lab.gate = pair[0];
    lab_await_ready(&lab);
    assert_int_equal(lab_wait_gate(&lab, &message), 1);
    assert_int_equal(message.type, IPC_GATE_SOCKETS);
    memcpy(lab.sockets, message.fds, sizeof(lab.sockets));
    assert_int_equal(lab_wait_gate(&lab, &message), 1);
    assert_int_equal(message.type, IPC_MAPPINGS_END);
    pid_t client = lab_inside(&lab, false, talk, (void *)(uintptr_t)targets[0]);
    int fd = lab_accept(&lab, targets[0], 8443);
    assert_int_equal(send(fd, "pong", 4, 0), 4);
    assert_int_equal(lab_reap(client), 0);
    close(fd);
    lab_gate_lose(&lab); // and it refuses again
    assert_int_equal(lab_inside_run(&lab, false, refused_tcp, (void *)(uintptr_t)targets[0]), 0);
    lab_stop(&lab);
}

static int packet_sockets(void *data) {
    char text[4096];
    (void)data;
    int fd = open("/proc/self/net/packet", O_RDONLY);
    ssize_t len = read(fd, text, sizeof(text));
    int lines = 0;
    for (ssize_t i = 0; i < len; i++) lines += text[i] == '\n';
    return lines - 1; // without the heading
}

static int unanswered(void *data) {
    (void)data;
    return lab_connect("93.184.216.34", 443, 200) == -ETIMEDOUT ? 0 : 1;
}

// Told of the end, it goes with its gate, or at once without one; the kernel closes what is slow to close.
static void test_end(void **state) {
    struct lab lab;
    (void)state;
    for (int with_gate = 0; with_gate < 2; with_gate++) {
        lab_start(&lab, runner, inside, NULL);
        if (with_gate) lab_gate(&lab);
        int lock = open("/dev/null", O_RDONLY | O_CLOEXEC);
        assert_int_equal(channel_send(lab.main, IPC_KEEPER_END, NULL, 0, &lock, with_gate), 0);
        close(lock);
        if (with_gate) {
            usleep(100000);
            assert_int_equal(waitpid(lab.keeper, NULL, WNOHANG), 0);
            assert_int_equal(lab_inside_run(&lab, false, packet_sockets, NULL), 1);
            lab_gate_lose(&lab);
        }
        assert_int_equal(lab_reap(lab.keeper), 0);
        // Its rules have not become the refusing ones: nobody is there to be refused.
        if (with_gate) assert_int_equal(lab_inside_run(&lab, false, unanswered, NULL), 0);
        int left = 1;
        for (int i = 0; i < 100 && left > 0; i++) {
            if (i > 0) usleep(20000);
            left = lab_inside_run(&lab, false, packet_sockets, NULL);
        }
        assert_int_equal(left, 0);
        close(lab.main);
        close(lab.user);
        close(lab.net);
    }
}

static void test_wrong_identity_is_refused(void **state) {
    struct channel_message message;
    struct lab lab = {.runner = LAB_NOBODY, .inside = 12345, .gate = -1};
    (void)state;
    if (runner != LAB_NOBODY) return;
    lab_fork_keeper(&lab);
    lab_send_start(&lab, NULL);
    assert_int_equal(lab_wait_main(&lab, &message), 1);
    assert_int_equal(message.type, IPC_ERROR);
    assert_non_null(strstr(((const struct ipc_error *)message.body)->text, "12345"));
    assert_int_equal(lab_reap(lab.keeper), 1);
    close(lab.main);
}

#define TEST(name) cmocka_unit_test(name)
static const struct CMUnitTest tests[] = {
    TEST(test_refuses_without_gate), TEST(test_identity), TEST(test_syn_is_held_then_accepted), TEST(test_syn_is_held_then_refused),
    TEST(test_echo_is_held), TEST(test_other_protocols_fail_at_once), TEST(test_udp), TEST(test_udp_mtu), TEST(test_local_services),
    TEST(test_loopback_ports), TEST(test_listeners_cannot_be_reached_or_stolen), TEST(test_flushed_rules_reach_nothing),
    TEST(test_mappings_are_replayed), TEST(test_new_gate_gets_nothing_stale), TEST(test_wrong_identity_is_refused),
    TEST(test_first_gate_with_the_start), TEST(test_end), TEST(test_port_is_used_again),
};

int main(void) {
    int failed = 0;
    if (getuid() == 0) {
        runner = 0;
        inside = 23456;
        failed += cmocka_run_group_tests_name("keeper by root", tests, NULL, NULL);
        runner = inside = LAB_NOBODY;
    } else {
        runner = inside = getuid();
    }
    failed += cmocka_run_group_tests_name("keeper by an ordinary user", tests, NULL, NULL);
    return failed;
}
