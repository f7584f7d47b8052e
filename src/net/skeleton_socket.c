// SPDX-License-Identifier: Apache-2.0
// The sockets that a gate holds in the sandbox's namespace, by a table in the order of enum ipc_socket.
//
// A gate has no capabilities, so everything that needs one is done here: transparent binding, marks, the packet socket. The
// keeper keeps the originals, so the addresses stay taken while a gate is started again.
#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "base/mem.h"
#include "net/skeleton.h"

#ifndef PACKET_IGNORE_OUTGOING
#define PACKET_IGNORE_OUTGOING 23
#endif
#define LO_INDEX 1
#define SKELETON_BACKLOG 4096
#define SKELETON_QUEUE_BYTES (1024 * 1024) // datagrams and held SYNs that wait for the gate

struct skeleton_option {
    int level, name, value;
};

struct skeleton_socket_kind {
    const char *what;
    int domain, type, protocol;
    struct skeleton_option options[5]; // up to level 0, name 0
    int (*finish)(int fd, const struct skeleton_socket_kind *kind);
    const char *needs;
    int (*finish_plain)(int fd, const struct skeleton_socket_kind *kind); // without nft; NULL: it is not made then
};

// ---- the packet socket's filter ----

// Classic BPF, from the IP header on: mark 1, and either a SYN alone that is not for port 53 of loopback (prerouting does
// not hold those), or an echo request. Jumps count instructions to skip; `no` and `yes` are the last two.
#define LOAD(size, mode, offset) BPF_STMT(BPF_LD | (size) | (mode), (offset))
#define IF(test, value, yes, no) BPF_JUMP(BPF_JMP | (test) | BPF_K, (value), (yes), (no))
enum { FILTER_NO = 43, FILTER_YES = 44 };
#define NO(here) (FILTER_NO - (here) - 1)
#define YES(here) (FILTER_YES - (here) - 1)

static struct sock_filter skeleton_filter[] = {
    /*  0 */ LOAD(BPF_W, BPF_ABS, (uint32_t)(SKF_AD_OFF + SKF_AD_MARK)),
    /*  1 */ IF(BPF_JEQ, SKELETON_MARK_HELD, 0, NO(1)),
    /*  2 */ LOAD(BPF_W, BPF_ABS, (uint32_t)(SKF_AD_OFF + SKF_AD_PKTTYPE)),
    /*  3 */ IF(BPF_JEQ, PACKET_HOST, 0, NO(3)),
    /*  4 */ LOAD(BPF_B, BPF_ABS, 0),
    /*  5 */ BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0xf0),
    /*  6 */ IF(BPF_JEQ, 0x60, 17, 0), // to 24
    /*  7 */ IF(BPF_JEQ, 0x40, 0, NO(7)),
    // IPv4
    /*  8 */ LOAD(BPF_H, BPF_ABS, 6),
    /*  9 */ IF(BPF_JSET, 0x1fff, NO(9), 0), // a later fragment
    /* 10 */ BPF_STMT(BPF_LDX | BPF_B | BPF_MSH, 0),
    /* 11 */ LOAD(BPF_B, BPF_ABS, 9),
    /* 12 */ IF(BPF_JEQ, IPPROTO_ICMP, 9, 0), // to 22
    /* 13 */ IF(BPF_JEQ, IPPROTO_TCP, 0, NO(13)),
    /* 14 */ LOAD(BPF_B, BPF_IND, 13),
    /* 15 */ BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0x17), // ACK, RST, SYN, FIN
    /* 16 */ IF(BPF_JEQ, 2, 0, NO(16)),
    /* 17 */ LOAD(BPF_B, BPF_ABS, 16),
    /* 18 */ IF(BPF_JEQ, 127, 0, YES(18)),
    /* 19 */ LOAD(BPF_H, BPF_IND, 2),
    /* 20 */ IF(BPF_JEQ, 53, NO(20), YES(20)),
    /* 21 */ BPF_STMT(BPF_RET | BPF_K, 0),
    /* 22 */ LOAD(BPF_B, BPF_IND, 0),
    /* 23 */ IF(BPF_JEQ, 8, YES(23), NO(23)),
    // IPv6, without extension headers
    /* 24 */ LOAD(BPF_B, BPF_ABS, 6),
    /* 25 */ IF(BPF_JEQ, IPPROTO_ICMPV6, 15, 0), // to 41
    /* 26 */ IF(BPF_JEQ, IPPROTO_TCP, 0, NO(26)),
    /* 27 */ LOAD(BPF_B, BPF_ABS, 53),
    /* 28 */ BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0x17),
    /* 29 */ IF(BPF_JEQ, 2, 0, NO(29)),
    /* 30 */ LOAD(BPF_H, BPF_ABS, 42),
    /* 31 */ IF(BPF_JEQ, 53, 0, YES(31)),
    /* 32 */ LOAD(BPF_W, BPF_ABS, 24), // is it ::1?
    /* 33 */ IF(BPF_JEQ, 0, 0, YES(33)),
    /* 34 */ LOAD(BPF_W, BPF_ABS, 28),
    /* 35 */ IF(BPF_JEQ, 0, 0, YES(35)),
    /* 36 */ LOAD(BPF_W, BPF_ABS, 32),
    /* 37 */ IF(BPF_JEQ, 0, 0, YES(37)),
    /* 38 */ LOAD(BPF_W, BPF_ABS, 36),
    /* 39 */ IF(BPF_JEQ, 1, NO(39), YES(39)),
    /* 40 */ BPF_STMT(BPF_RET | BPF_K, 0),
    /* 41 */ LOAD(BPF_B, BPF_ABS, 40),
    /* 42 */ IF(BPF_JEQ, 128, YES(42), NO(42)),
    /* 43 */ BPF_STMT(BPF_RET | BPF_K, 0),
    /* 44 */ BPF_STMT(BPF_RET | BPF_K, 0xffffffff),
};
static_assert(ARRAY_LENGTH(skeleton_filter) == FILTER_YES + 1, "jump targets");

static int skeleton_filter_attach(int fd, struct sock_filter *filter, size_t count) {
    struct sock_fprog program = {.len = (unsigned short)count, .filter = filter};
    return setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)) < 0 ? -errno : 0;
}

// ---- finishing ----

static int skeleton_bind(int fd, const struct skeleton_socket_kind *kind) {
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(SKELETON_GATE_PORT)};
    struct sockaddr_in6 in6 = {.sin6_family = AF_INET6, .sin6_port = htons(SKELETON_GATE_PORT)};
    static const uint8_t gate4[] = {SKELETON_GATE4}, gate6[] = {SKELETON_GATE6};
    bool ipv4 = kind->domain == AF_INET;

    memcpy(&in.sin_addr, gate4, sizeof(gate4));
    memcpy(&in6.sin6_addr, gate6, sizeof(gate6));
    const struct sockaddr *name = ipv4 ? (const struct sockaddr *)&in : (const struct sockaddr *)&in6;
    if (bind(fd, name, ipv4 ? sizeof(in) : sizeof(in6)) < 0) return -errno;
    return kind->type == SOCK_STREAM && listen(fd, SKELETON_BACKLOG) < 0 ? -errno : 0;
}

// DNS: any address, port 53. Closed until there is a gate.
static int skeleton_bind_dns(int fd, const struct skeleton_socket_kind *kind) {
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(53)};
    struct sockaddr_in6 in6 = {.sin6_family = AF_INET6, .sin6_port = htons(53)};
    bool ipv4 = kind->domain == AF_INET;

    int result = skeleton_listener_open(fd, false);
    if (result < 0) return result;
    const struct sockaddr *name = ipv4 ? (const struct sockaddr *)&in : (const struct sockaddr *)&in6;
    return bind(fd, name, ipv4 ? sizeof(in) : sizeof(in6)) < 0 ? -errno : 0;
}

// Raw sockets are for sending only: whatever a sandbox sends to protocol 255 must not be queued.
static int skeleton_deafen(int fd, const struct skeleton_socket_kind *kind) {
    struct sock_filter nothing[] = {BPF_STMT(BPF_RET | BPF_K, 0)};
    (void)kind;
    return skeleton_filter_attach(fd, nothing, ARRAY_LENGTH(nothing));
}

// The filter is attached before the socket sees anything: protocol 0 at birth receives nothing.
static int skeleton_listen_to_lo(int fd, const struct skeleton_socket_kind *kind) {
    struct sockaddr_ll name = {.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL), .sll_ifindex = LO_INDEX};
    (void)kind;
    int result = skeleton_filter_attach(fd, skeleton_filter, ARRAY_LENGTH(skeleton_filter));
    if (result < 0) return result;
    return bind(fd, (const struct sockaddr *)&name, sizeof(name)) < 0 ? -errno : 0;
}

#define NEEDS_TRANSPARENT "CONFIG_NETFILTER_XT_TARGET_TPROXY or CONFIG_NFT_TPROXY"
#define NEEDS_RAW "CAP_NET_RAW in its user namespace"
static const struct skeleton_socket_kind skeleton_kinds[IPC_SOCKET_COUNT] = {
    [IPC_SOCKET_TCP4] = {"TCP listener for IPv4", AF_INET, SOCK_STREAM, IPPROTO_TCP,
        {{SOL_IP, IP_TRANSPARENT, 1}}, skeleton_bind, NEEDS_TRANSPARENT},
    [IPC_SOCKET_TCP6] = {"TCP listener for IPv6", AF_INET6, SOCK_STREAM, IPPROTO_TCP,
        {{SOL_IPV6, IPV6_V6ONLY, 1}, {SOL_IPV6, IPV6_TRANSPARENT, 1}}, skeleton_bind, NEEDS_TRANSPARENT},
    [IPC_SOCKET_UDP4] = {"UDP socket for IPv4", AF_INET, SOCK_DGRAM, IPPROTO_UDP,
        {{SOL_IP, IP_TRANSPARENT, 1}, {SOL_IP, IP_RECVORIGDSTADDR, 1}}, skeleton_bind, NEEDS_TRANSPARENT, skeleton_bind_dns},
    [IPC_SOCKET_UDP6] = {"UDP socket for IPv6", AF_INET6, SOCK_DGRAM, IPPROTO_UDP,
        {{SOL_IPV6, IPV6_V6ONLY, 1}, {SOL_IPV6, IPV6_TRANSPARENT, 1}, {SOL_IPV6, IPV6_RECVORIGDSTADDR, 1}},
        skeleton_bind, NEEDS_TRANSPARENT, skeleton_bind_dns},
    [IPC_SOCKET_RAW4] = {"raw socket for IPv4", AF_INET, SOCK_RAW, IPPROTO_RAW,
        {{SOL_IP, IP_HDRINCL, 1}, {SOL_SOCKET, SO_MARK, SKELETON_MARK_INJECTED}}, skeleton_deafen, NEEDS_RAW, skeleton_deafen},
    [IPC_SOCKET_RAW6] = {"raw socket for IPv6", AF_INET6, SOCK_RAW, IPPROTO_RAW,
        {{SOL_IPV6, IPV6_HDRINCL, 1}, {SOL_SOCKET, SO_MARK, SKELETON_MARK_INJECTED}}, skeleton_deafen, NEEDS_RAW, skeleton_deafen},
    [IPC_SOCKET_PACKET] = {"packet socket on lo", AF_PACKET, SOCK_DGRAM, 0,
        {{SOL_PACKET, PACKET_IGNORE_OUTGOING, 1}}, skeleton_listen_to_lo, "CONFIG_PACKET, Linux 4.20 or later"},
};

static int skeleton_socket_make(const struct skeleton_socket_kind *kind, bool plain) {
    AUTO_CLOSE int fd = socket(kind->domain, kind->type | SOCK_NONBLOCK | SOCK_CLOEXEC, kind->protocol);
    int bytes = SKELETON_QUEUE_BYTES;

    if (fd < 0) return -errno;
    for (const struct skeleton_option *option = kind->options; option->name; option++)
        if (setsockopt(fd, option->level, option->name, &option->value, sizeof(option->value)) < 0) return -errno;
    // The larger queue is only an improvement; TCP listeners hand their buffer size down, so not there.
    if (kind->type == SOCK_DGRAM) setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof(bytes));
    int result = plain ? kind->finish_plain(fd, kind) : kind->finish(fd, kind);
    return result < 0 ? result : TAKE_FD(fd);
}

static int skeleton_socket_error(const struct skeleton_socket_kind *kind, bool plain, int result, struct error *err) {
    if (!plain && !kind->finish_plain && skeleton_lacks(-result)) return error_set(err, -ENOTSUP, "%s", kind->needs);
    return error_set(err, result, "cannot make the gate's %s: %s; use a kernel with %s", kind->what, strerror(-result),
                     plain && kind->finish_plain == skeleton_bind_dns ? SKELETON_LISTENER_NEEDS : kind->needs);
}

int skeleton_socket(enum ipc_skeleton skeleton, int ret_fds[IPC_SOCKET_COUNT], struct error *err) {
    bool plain = skeleton == IPC_SKELETON_ROUTES;
    for (size_t i = 0; i < IPC_SOCKET_COUNT; i++) ret_fds[i] = -1;
    for (size_t i = 0; i < IPC_SOCKET_COUNT; i++) {
        const struct skeleton_socket_kind *kind = &skeleton_kinds[i];
        if (plain && !kind->finish_plain) continue;
        ret_fds[i] = skeleton_socket_make(kind, plain);
        if (ret_fds[i] >= 0) continue;
        int result = skeleton_socket_error(kind, plain, ret_fds[i], err);
        while (i-- > 0)
            if (ret_fds[i] >= 0) close(TAKE_FD(ret_fds[i]));
        return result;
    }
    return 0;
}
