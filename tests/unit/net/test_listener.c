// SPDX-License-Identifier: Apache-2.0
// The skeleton without nft, with a real kernel: it does what the other one does for the ports it has, and refuses the rest
// at once. Run by root for another user, and as an ordinary user.
#include <seccomp.h>

#include "lab.h"

static uid_t runner, inside; // of this round

static const char *const targets[] = {"93.184.216.34", "2001:db8::9"};
static const struct ipc_ports ports = {.count = 5, .ports = {53, 80, 443, 8000, 8443}};
static int listeners[2 * 5];

#define FOR_TARGETS(name) \
    for (size_t name##_i = 0; name##_i < 2; name##_i++) \
        for (void *name = (void *)(uintptr_t)targets[name##_i]; name; name = NULL)

// ---- a keeper without nft ----

// nft_error: what opening netlink for nft gives; 0: not changed.
static void keeper_start(struct lab *lab, const struct ipc_keeper_start *start, int nft_error) {
    int pair[2];
    *lab = (struct lab){.runner = runner, .inside = inside, .gate = -1, .user = -1, .net = -1};
    for (size_t i = 0; i < IPC_SOCKET_COUNT; i++) lab->sockets[i] = -1;
    assert_int_equal(channel_pair(pair), 0);
    lab->keeper = fork();
    if (lab->keeper == 0) {
        close(pair[0]);
        scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
        seccomp_attr_set(filter, SCMP_FLTATR_CTL_NNP, runner != 0);
        if (nft_error && (seccomp_rule_add(filter, SCMP_ACT_ERRNO((uint32_t)nft_error), SCMP_SYS(socket), 2, SCMP_A0(SCMP_CMP_EQ, AF_NETLINK),
                                           SCMP_A2(SCMP_CMP_EQ, 12 /* NETLINK_NETFILTER */)) < 0 || seccomp_load(filter) < 0))
            _exit(95);
        seccomp_release(filter);
        lab_become(lab->runner);
        _exit(keeper_main(pair[1]));
    }
    close(pair[1]);
    lab->main = pair[0];
    struct ipc_keeper_start own = *start;
    own.uid = own.gid = inside;
    assert_int_equal(channel_send(lab->main, IPC_KEEPER_START, &own, sizeof(own), NULL, 0), 0);
}

static struct ipc_keeper_ready keeper_ready(struct lab *lab) {
    struct channel_message message;
    struct ipc_keeper_ready ready;
    assert_int_equal(lab_wait_main(lab, &message), 1);
    if (message.type == IPC_ERROR) fail_msg("%s", ((const struct ipc_error *)message.body)->text);
    assert_int_equal(message.type, IPC_KEEPER_NAMESPACES);
    lab->user = message.fds[0];
    lab->net = message.fds[1];
    assert_int_equal(lab_wait_main(lab, &message), 1);
    if (message.type == IPC_ERROR) fail_msg("%s", ((const struct ipc_error *)message.body)->text);
    assert_int_equal(message.type, IPC_KEEPER_READY);
    memcpy(&ready, message.body, sizeof(ready));
    return ready;
}

static void plain_start(struct lab *lab) {
    struct ipc_keeper_start start = {.skeleton = IPC_SKELETON_ROUTES, .ports = ports};
    keeper_start(lab, &start, 0);
    struct ipc_keeper_ready ready = keeper_ready(lab);
    assert_int_equal(ready.skeleton, IPC_SKELETON_ROUTES);
    assert_string_equal(ready.lacks, "");
}

static void plain_gate(struct lab *lab) {
    struct channel_message message;
    size_t count = 0;
    int pair[2];
    assert_int_equal(channel_pair(pair), 0);
    assert_int_equal(channel_send(lab->main, IPC_KEEPER_GATE, NULL, 0, &pair[1], 1), 0);
    close(pair[1]);
    lab->gate = pair[0];
    assert_int_equal(lab_wait_gate(lab, &message), 1);
    assert_int_equal(message.type, IPC_GATE_PLAIN);
    assert_int_equal(((const struct ipc_plain *)message.body)->listeners, ARRAY_LENGTH(listeners));
    memcpy(&lab->sockets[IPC_SOCKET_UDP4], message.fds, IPC_PLAIN_SOCKETS * sizeof(int));
    while (count < ARRAY_LENGTH(listeners)) {
        assert_int_equal(lab_wait_gate(lab, &message), 1);
        assert_int_equal(message.type, IPC_GATE_LISTENERS);
        for (size_t i = 0; i < message.fd_count; i++) listeners[count++] = message.fds[i];
    }
    do {
        assert_int_equal(lab_wait_gate(lab, &message), 1);
    } while (message.type == IPC_MAPPING);
    assert_int_equal(message.type, IPC_MAPPINGS_END);
}

static void plain_gate_lose(struct lab *lab) {
    for (size_t i = 0; i < ARRAY_LENGTH(listeners) && lab->gate >= 0; i++) close(listeners[i]);
    lab_gate_lose(lab);
}

static void plain_stop(struct lab *lab) {
    plain_gate_lose(lab);
    lab_stop(lab);
}

static void expect_error(struct lab *lab, const char *const *words, size_t count) {
    struct channel_message message;
    assert_int_equal(lab_wait_main(lab, &message), 1);
    if (message.type == IPC_KEEPER_NAMESPACES) {
        channel_message_close(&message);
        assert_int_equal(lab_wait_main(lab, &message), 1);
    }
    assert_int_equal(message.type, IPC_ERROR);
    const char *text = ((const struct ipc_error *)message.body)->text;
    for (size_t i = 0; i < count; i++)
        if (!strstr(text, words[i])) fail_msg("\"%s\" is not in: %s", words[i], text);
    assert_int_equal(lab_reap(lab->keeper), 1);
    close(lab->main);
}

// ---- what the sandbox sees ----

static int refused(const char *target, uint16_t port) {
    uint64_t best = UINT64_MAX; // of several: a loaded machine may be late once
    for (int i = 0; i < 5; i++) {
        uint64_t start = clock_us();
        if (lab_connect(target, port, 3000) != -ECONNREFUSED) return 1;
        uint64_t took = clock_us() - start;
        if (took < best) best = took;
    }
    return best < 50000 ? 0 : 2;
}

static int udp_refused(const char *target, uint16_t port) {
    struct addr addr = lab_addr(target);
    struct sockaddr_storage to;
    socklen_t len = addr_to_sockaddr(&addr, port, &to);
    int fd = socket(to.ss_family, SOCK_DGRAM, 0);
    char byte;
    if (connect(fd, (struct sockaddr *)&to, len) < 0 || send(fd, "x", 1, 0) != 1) return 1;
    return lab_readable(fd, 1000) && recv(fd, &byte, 1, 0) < 0 && errno == ECONNREFUSED ? 0 : 2;
}

static int icmp_refused(void *data) {
    struct addr addr = lab_addr(data);
    struct sockaddr_storage to;
    socklen_t len = addr_to_sockaddr(&addr, 0, &to);
    bool ipv4 = addr.family == ADDR_IPV4;
    uint8_t echo[8] = {ipv4 ? 8 : 128};
    int fd = socket(to.ss_family, SOCK_DGRAM, ipv4 ? IPPROTO_ICMP : IPPROTO_ICMPV6);
    return fd >= 0 && sendto(fd, echo, sizeof(echo), 0, (struct sockaddr *)&to, len) < 0 && errno == EACCES ? 0 : 1;
}

static int all_refused(void *data) {
    for (uint32_t i = 0; i < ports.count; i++)
        if (refused(data, ports.ports[i]) != 0) return 10 + (int)i;
    if (refused(data, 81) != 0) return 1;
    if (udp_refused(data, 53) != 0) return 2;
    return udp_refused(data, 4000) == 0 && icmp_refused(data) == 0 ? 0 : 3;
}

static int others_refused(void *data) {
    if (refused(data, 81) != 0 || udp_refused(data, 4000) != 0) return 1;
    return icmp_refused(data);
}

static int local_dns_refused(void *data) {
    (void)data;
    return udp_refused("127.0.0.53", 53) == 0 && udp_refused("::1", 53) == 0 ? 0 : 1;
}

// The kernel says that it does not know the protocol.
static int other_protocol(void *data) {
    struct addr addr = lab_addr(data);
    struct sockaddr_storage to;
    socklen_t len = addr_to_sockaddr(&addr, 0, &to);
    int fd = socket(to.ss_family, SOCK_RAW, 200), one = 1;
    bool ipv4 = addr.family == ADDR_IPV4;
    char byte;
    setsockopt(fd, ipv4 ? SOL_IP : SOL_IPV6, ipv4 ? IP_RECVERR : IPV6_RECVERR, &one, sizeof(one));
    // The own socket for the protocol takes the packet first, so it listens elsewhere.
    if (bind(fd, (struct sockaddr *)&(struct sockaddr_in){.sin_family = AF_INET}, sizeof(struct sockaddr_in)) < 0 && ipv4) return 1;
    if (connect(fd, (struct sockaddr *)&to, len) < 0 || send(fd, "12345678", 8, 0) != 8) return 2;
    return lab_readable(fd, 1000) && recv(fd, &byte, 1, MSG_DONTWAIT) < 0 ? 0 : 3;
}

static int broadcast_refused(void *data) {
    static const char *const groups[] = {"224.0.0.1", "255.255.255.255", "ff0e::1"};
    (void)data;
    for (size_t i = 0; i < ARRAY_LENGTH(groups); i++) {
        struct addr addr = lab_addr(groups[i]);
        struct sockaddr_storage to;
        socklen_t len = addr_to_sockaddr(&addr, 53, &to);
        int fd = socket(to.ss_family, SOCK_DGRAM, 0), one = 1;
        setsockopt(fd, SOL_SOCKET, SO_BROADCAST, &one, sizeof(one));
        if (sendto(fd, "x", 1, 0, (struct sockaddr *)&to, len) == 1) return 1 + (int)i;
    }
    return 0;
}

static void test_refuses_without_gate(void **state) {
    struct lab lab;
    (void)state;
    plain_start(&lab);
    for (int round = 0; round < 2; round++) {
        FOR_TARGETS(target) assert_int_equal(lab_inside_run(&lab, false, all_refused, target), 0);
        assert_int_equal(lab_inside_run(&lab, false, local_dns_refused, NULL), 0);
        plain_gate(&lab); // and again when a gate was there and is gone
        plain_gate_lose(&lab);
    }
    plain_stop(&lab);
}

static void test_other_ports_and_protocols(void **state) {
    struct lab lab;
    (void)state;
    plain_start(&lab);
    plain_gate(&lab);
    FOR_TARGETS(target) {
        assert_int_equal(lab_inside_run(&lab, false, others_refused, target), 0);
        assert_int_equal(lab_inside_run(&lab, true, other_protocol, target), 0);
    }
    assert_int_equal(lab_inside_run(&lab, false, broadcast_refused, NULL), 0);
    plain_stop(&lab);
}

// ---- connections ----

// The listener of port 443 in the family of a target; ports come in pairs of families.
static int listener_of(size_t target) { return listeners[2 * 2 + target]; }

static int accept_from(int listener, const char *address, uint16_t port) {
    struct addr expected = lab_addr(address), local, peer, own = lab_addr(expected.family == ADDR_IPV4 ? keeper_address4 : keeper_address6);
    struct sockaddr_storage name;
    socklen_t len = sizeof(name);
    uint16_t local_port;
    assert_true(lab_readable(listener, 2000));
    int fd = accept4(listener, (struct sockaddr *)&name, &len, SOCK_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(addr_from_sockaddr((struct sockaddr *)&name, &peer, &local_port), 0);
    assert_true(addr_equal(&peer, &own));
    len = sizeof(name);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&name, &len), 0);
    assert_int_equal(addr_from_sockaddr((struct sockaddr *)&name, &local, &local_port), 0);
    assert_true(addr_equal(&local, &expected));
    assert_int_equal(local_port, port);
    return fd;
}

// Talks, then goes on sending when the other end is gone: reset, not silence.
static int talk_until_reset(void *data) {
    int fd = lab_connect(data, 443, 3000);
    char text[4] = "";
    signal(SIGPIPE, SIG_IGN);
    if (fd < 0) return 1;
    if (send(fd, "ping", 4, 0) != 4 || recv(fd, text, 4, MSG_WAITALL) != 4 || memcmp(text, "pong", 4) != 0) return 2;
    ssize_t got = recv(fd, text, 1, 0);
    if (got > 0) return 3;
    for (int i = 0; i < 100; i++) {
        if (send(fd, "more", 4, 0) < 0) return errno == EPIPE || errno == ECONNRESET ? 0 : 4;
        usleep(10000);
    }
    return 5;
}

static int connect_and_wait(void *data) {
    int fd = lab_connect(data, 443, 3000);
    char byte;
    signal(SIGPIPE, SIG_IGN);
    if (fd < 0) return fd == -ECONNRESET ? 0 : 1; // accepted and reset already
    if (send(fd, "x", 1, 0) != 1) return errno == ECONNRESET || errno == EPIPE ? 0 : 2;
    return recv(fd, &byte, 1, 0) < 0 && errno == ECONNRESET ? 0 : 3;
}

static void test_connections(void **state) {
    struct lab lab;
    (void)state;
    plain_start(&lab);
    plain_gate(&lab);
    for (size_t i = 0; i < 2; i++) {
        void *target = (void *)(uintptr_t)targets[i];
        char text[4];
        pid_t client = lab_inside(&lab, false, talk_until_reset, target);
        assert_true(lab_readable(listener_of(i), 2000));
        pid_t queued = lab_inside(&lab, false, connect_and_wait, target); // which this gate never accepts
        int fd = accept_from(listener_of(i), targets[i], 443);
        assert_int_equal(recv(fd, text, 4, MSG_WAITALL), 4);
        assert_int_equal(send(fd, "pong", 4, 0), 4);
        assert_true(lab_readable(listener_of(i), 2000));
        close(fd);
        plain_gate_lose(&lab);
        assert_int_equal(lab_reap(queued), 0);
        assert_int_equal(lab_reap(client), 0);
        assert_int_equal(lab_inside_run(&lab, false, all_refused, target), 0);
        plain_gate(&lab); // with the ports of before, and nothing stale
        assert_false(lab_readable(listener_of(i), 20));
        client = lab_inside(&lab, false, connect_and_wait, target);
        relay_reset_fd(accept_from(listener_of(i), targets[i], 443));
        assert_int_equal(lab_reap(client), 0);
    }
    plain_stop(&lab);
}

// ---- DNS ----

static int ask(void *data) {
    struct addr addr = lab_addr(data);
    struct sockaddr_storage to;
    socklen_t len = addr_to_sockaddr(&addr, 53, &to);
    int fd = socket(to.ss_family, SOCK_DGRAM, 0);
    char text[16] = "";
    if (connect(fd, (struct sockaddr *)&to, len) < 0 || send(fd, "query", 5, 0) != 5) return 1;
    if (!lab_readable(fd, 2000)) return 2;
    return recv(fd, text, sizeof(text), 0) == 6 && memcmp(text, "answer", 6) == 0 ? 0 : 3;
}

static void answer(struct lab *lab, const char *server) {
    struct addr expected = lab_addr(server), original = {0}, client = {0};
    uint16_t original_port = 0, client_port = 0;
    char text[64];
    _Alignas(struct cmsghdr) char control[256];
    struct sockaddr_storage from;
    struct iovec part = {text, sizeof(text)};
    struct msghdr message = {.msg_name = &from, .msg_namelen = sizeof(from), .msg_iov = &part, .msg_iovlen = 1,
                             .msg_control = control, .msg_controllen = sizeof(control)};
    int fd = lab->sockets[expected.family == ADDR_IPV4 ? IPC_SOCKET_UDP4 : IPC_SOCKET_UDP6];
    assert_true(lab_readable(fd, 2000));
    assert_int_equal(recvmsg(fd, &message, 0), 5);
    struct cmsghdr *cmsg = CMSG_FIRSTHDR(&message);
    struct sockaddr_storage name = {0};
    assert_non_null(cmsg);
    memcpy(&name, CMSG_DATA(cmsg), cmsg->cmsg_len - CMSG_LEN(0));
    assert_int_equal(addr_from_sockaddr((struct sockaddr *)&name, &original, &original_port), 0);
    assert_true(addr_equal(&original, &expected));
    assert_int_equal(original_port, 53);
    assert_int_equal(addr_from_sockaddr((struct sockaddr *)&from, &client, &client_port), 0);
    uint8_t packet[256];
    size_t len = ip_write_udp(&original, 53, &client, client_port, (const uint8_t *)"answer", 6, packet, sizeof(packet));
    lab_inject(lab, packet, len, &client);
}

static void test_dns(void **state) {
    static const char *const servers[] = {"192.0.0.1", "8.8.8.8", "2001:db8::53", "127.0.0.1", "127.0.0.53", "::1"};
    struct lab lab;
    (void)state;
    plain_start(&lab);
    for (int round = 0; round < 2; round++) {
        plain_gate(&lab);
        for (size_t i = 0; i < ARRAY_LENGTH(servers); i++) {
            pid_t client = lab_inside(&lab, false, ask, (void *)(uintptr_t)servers[i]);
            answer(&lab, servers[i]);
            assert_int_equal(lab_reap(client), 0);
        }
        // What was asked of a gate that died is not for the next one.
        pid_t late = lab_inside(&lab, false, ask, (void *)(uintptr_t)servers[1]);
        assert_true(lab_readable(lab.sockets[IPC_SOCKET_UDP4], 2000));
        plain_gate_lose(&lab);
        plain_gate(&lab);
        assert_false(lab_readable(lab.sockets[IPC_SOCKET_UDP4], 20));
        plain_gate_lose(&lab);
        assert_int_equal(lab_reap(late), 2);
    }
    plain_stop(&lab);
}

// ---- what the sandbox may try ----

static int steal(void *data) {
    static const char *const addresses[] = {"0.0.0.0", "192.0.0.2", "93.184.216.34", "127.0.0.1", "::", "::1", "fd5a:91c3:7e24:1::2"};
    (void)data;
    for (size_t i = 0; i < ARRAY_LENGTH(addresses); i++) {
        for (int option = 0; option < 4; option++) {
            struct addr addr = lab_addr(addresses[i]);
            struct sockaddr_storage name;
            int one = 1;
            for (int udp = 0; udp < 2; udp++) {
                socklen_t len = addr_to_sockaddr(&addr, udp ? 53 : 443, &name);
                int fd = socket(name.ss_family, udp ? SOCK_DGRAM : SOCK_STREAM, 0);
                if (option & 1) setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
                if (option & 2) setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof(one));
                if (bind(fd, (struct sockaddr *)&name, len) == 0 || errno != EADDRINUSE) return 1 + (int)i;
                close(fd);
            }
        }
    }
    return 0;
}

static int local_service(void *data) {
    int listener = lab_bind(data, 8080, SOCK_STREAM);
    if (listener < 0) return 1;
    int client = lab_connect(data, 8080, 1000);
    if (client < 0) return 2;
    int server = accept(listener, NULL, NULL);
    char byte = 0;
    return send(client, "t", 1, 0) == 1 && recv(server, &byte, 1, 0) == 1 && byte == 't' ? 0 : 3;
}

static int run_program(const char *const *argv) {
    pid_t pid = fork();
    if (pid == 0) {
        execvp(argv[0], (char *const *)(uintptr_t)argv);
        _exit(127);
    }
    return lab_reap(pid);
}

// Root of the sandbox takes its own network away, and gets no other.
static int flush(void *data) {
    static const char *const rules[] = {"ip", "rule", "flush", NULL};
    static const char *const rules6[] = {"ip", "-6", "rule", "flush", NULL};
    static const char *const routes[] = {"ip", "route", "flush", "table", "local", NULL};
    static const char *const routes6[] = {"ip", "-6", "route", "flush", "table", "local", NULL};
    static const char *const *const steps[] = {rules, rules6, routes, routes6};
    (void)data;
    for (size_t i = 0; i < ARRAY_LENGTH(steps); i++)
        if (run_program(steps[i]) != 0) return 10 + (int)i;
    FOR_TARGETS(target) if (lab_connect(target, 443, 200) >= 0) return 1;
    return 0;
}

static void test_ports_are_ours(void **state) {
    struct lab lab;
    (void)state;
    plain_start(&lab);
    assert_int_equal(lab_inside_run(&lab, false, steal, NULL), 0);
    plain_gate(&lab);
    assert_int_equal(lab_inside_run(&lab, false, steal, NULL), 0);
    assert_int_equal(lab_inside_run(&lab, true, steal, NULL), 0);
    assert_int_equal(lab_inside_run(&lab, false, local_service, (void *)(uintptr_t)"127.0.0.1"), 0);
    assert_int_equal(lab_inside_run(&lab, false, local_service, (void *)(uintptr_t)"fd5a:91c3:7e24:1::2"), 0);
    plain_gate_lose(&lab);
    assert_int_equal(lab_inside_run(&lab, false, steal, NULL), 0);
    plain_gate(&lab);
    assert_int_equal(lab_inside_run(&lab, true, flush, NULL), 0);
    for (size_t i = 0; i < ARRAY_LENGTH(listeners); i++) assert_false(lab_readable(listeners[i], 0));
    plain_stop(&lab);
}

static void test_killed_keeper(void **state) {
    struct lab lab;
    (void)state;
    plain_start(&lab);
    plain_gate(&lab);
    kill(lab.keeper, SIGKILL);
    assert_int_equal(lab_reap(lab.keeper), 128 + SIGKILL);
    plain_gate_lose(&lab); // a gate ends with its keeper
    FOR_TARGETS(target) assert_int_equal(lab_inside_run(&lab, false, all_refused, target), 0);
    close(lab.main), close(lab.user), close(lab.net);
}

// ---- what it cannot do ----

static void test_new_ports_are_refused(void **state) {
    static const char *const words[] = {"port 9000", "start it again"};
    struct ipc_ports known = {.count = 1, .ports = {8000}}, unknown = {.count = 2, .ports = {8000, 9000}};
    struct channel_message message;
    struct lab lab;
    (void)state;
    plain_start(&lab);
    plain_gate(&lab);
    assert_int_equal(channel_send(lab.main, IPC_KEEPER_PORTS, &known, sizeof(known), NULL, 0), 0);
    usleep(50000);
    assert_int_equal(channel_receive(lab.main, lab.buffer, sizeof(lab.buffer), &message), -EAGAIN);
    assert_int_equal(channel_receive(lab.gate, lab.buffer, sizeof(lab.buffer), &message), -EAGAIN);
    assert_int_equal(channel_send(lab.main, IPC_KEEPER_PORTS, &unknown, sizeof(unknown), NULL, 0), 0);
    assert_int_equal(lab_wait_main(&lab, &message), 1);
    assert_int_equal(message.type, IPC_ERROR);
    for (size_t i = 0; i < ARRAY_LENGTH(words); i++)
        assert_non_null(strstr(((const struct ipc_error *)message.body)->text, words[i]));
    assert_int_equal(lab_wait_gate(&lab, &message), 0);
    plain_stop(&lab);
}

static void test_a_kernel_without_nft(void **state) {
    static const char *const lacks[] = {"this kernel lacks nf_tables", "modprobe nf_tables", "which the rule \"x\" needs"};
    static const char *const forbidden[] = {"Operation not permitted", "netlink"};
    static const char *const unset[] = {"PENSTOCK_SKELETON", "the rule \"x\" needs; unset it"};
    struct ipc_keeper_start start = {.ports = ports}, more = {.need = "the rule \"x\""};
    struct lab lab;
    (void)state;
    keeper_start(&lab, &start, EPROTONOSUPPORT);
    struct ipc_keeper_ready ready = keeper_ready(&lab);
    assert_int_equal(ready.skeleton, IPC_SKELETON_ROUTES);
    assert_non_null(strstr(ready.lacks, "nf_tables"));
    plain_gate(&lab);
    FOR_TARGETS(target) assert_int_equal(lab_inside_run(&lab, false, others_refused, target), 0);
    plain_stop(&lab);

    keeper_start(&lab, &more, EPROTONOSUPPORT);
    expect_error(&lab, lacks, ARRAY_LENGTH(lacks));
    keeper_start(&lab, &start, EPERM); // that is no missing feature
    expect_error(&lab, forbidden, ARRAY_LENGTH(forbidden));
    more.skeleton = IPC_SKELETON_ROUTES;
    keeper_start(&lab, &more, 0);
    expect_error(&lab, unset, ARRAY_LENGTH(unset));

    keeper_start(&lab, &start, 0); // and where nft is there, it is used
    ready = keeper_ready(&lab);
    assert_int_equal(ready.skeleton, IPC_SKELETON_TPROXY);
    lab_gate(&lab);
    lab_stop(&lab);
}

#define TEST(name) cmocka_unit_test(name)
static const struct CMUnitTest tests[] = {
    TEST(test_refuses_without_gate), TEST(test_other_ports_and_protocols), TEST(test_connections), TEST(test_dns),
    TEST(test_ports_are_ours), TEST(test_killed_keeper), TEST(test_new_ports_are_refused), TEST(test_a_kernel_without_nft),
};

int main(void) {
    int failed = 0;
    if (getuid() == 0) {
        runner = 0;
        inside = 23456;
        failed += cmocka_run_group_tests_name("listeners by root", tests, NULL, NULL);
        runner = inside = LAB_NOBODY;
    } else {
        runner = inside = getuid();
    }
    failed += cmocka_run_group_tests_name("listeners by an ordinary user", tests, NULL, NULL);
    return failed;
}
