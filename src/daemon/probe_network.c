// SPDX-License-Identifier: Apache-2.0
// Attempts on the network. A connection that is made at all, or any answer, is an escape; so is silence where a refusal
// is due (except for an intruder who has taken the sandbox's own rules away, and with them the refusals).
#include <errno.h>
#include <net/if.h>
#include <netinet/icmp6.h>
#include <netinet/in.h>
#include <netinet/ip_icmp.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <linux/if_ether.h>
#include <linux/if_packet.h>

#include "base/clock.h"
#include "base/mem.h"
#include "daemon/probe.h"

#define WAIT_MS 2500
#define WAIT_INTRUDER_MS 500 // who took the refusals away need not wait for one
#define TALK_MS 2500
#define FLOOD 300 // a sandbox may have 256
#define FLOOD_HELD 256

static enum probe_result broken(struct probe *probe, const char *argument) {
    return probe_say(probe, PROBE_BROKEN, "not a target: \"%.100s\": %s", argument, strerror(errno));
}

static bool intruded(const struct probe *probe) { return probe_target(probe, "intruded")[0] != '\0'; }

static int patience_ms(const struct probe *probe) { return intruded(probe) ? WAIT_INTRUDER_MS : WAIT_MS; }

static enum probe_result silent(struct probe *probe) {
    if (intruded(probe)) return PROBE_HELD;
    return probe_say(probe, PROBE_HUNG, "no refusal within %d ms", WAIT_MS);
}

// 1: ready. 0: not in time.
static int wait_for(int fd, short events, int timeout_ms) {
    struct pollfd item = {.fd = fd, .events = events};
    return poll(&item, 1, timeout_ms) > 0;
}

static int socket_error(int fd) {
    int error = 0;
    socklen_t len = sizeof(error);
    return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) < 0 ? errno : error;
}

// 0: connected. A negative errno: refused; -ETIMEDOUT: neither.
static int connect_within(struct probe *probe, int fd, const struct sockaddr_storage *to, socklen_t len) {
    uint64_t start = clock_us();
    int error = 0;
    if (connect(fd, (const struct sockaddr *)to, len) < 0) {
        error = errno;
        if (error == EINPROGRESS) error = wait_for(fd, POLLOUT, patience_ms(probe)) ? socket_error(fd) : ETIMEDOUT;
    }
    if (error != ETIMEDOUT) probe_took(probe, start);
    return -error;
}

static bool has_token(int fd) {
    char answer[256] = "";
    if (!wait_for(fd, POLLIN, 500)) return false;
    ssize_t got = recv(fd, answer, sizeof(answer) - 1, 0);
    return got > 0 && strstr(answer, PROBE_TOKEN);
}

static int open_stream(const struct sockaddr_storage *to) {
    return socket(to->ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}

enum probe_result network_tcp(struct probe *probe, const char *argument) {
    struct sockaddr_storage to;
    const char *rest;
    socklen_t len = probe_sockaddr(argument, &to, &rest);
    AUTO_CLOSE int fd = len > 0 ? open_stream(&to) : -1;
    if (fd < 0) return broken(probe, argument);
    int rc = connect_within(probe, fd, &to, len);
    if (rc == 0) return probe_say(probe, PROBE_ESCAPED, "connected%s", has_token(fd) ? " to this host" : "");
    return rc == -ETIMEDOUT ? silent(probe) : PROBE_HELD;
}

enum probe_result network_udp(struct probe *probe, const char *argument) {
    struct sockaddr_storage to;
    const char *rest;
    char answer[256];
    socklen_t len = probe_sockaddr(argument, &to, &rest);
    AUTO_CLOSE int fd = len > 0 ? socket(to.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0) : -1;
    if (fd < 0) return broken(probe, argument);
    uint64_t start = clock_us();
    if (connect(fd, (struct sockaddr *)&to, len) < 0 || send(fd, "hello", 5, MSG_NOSIGNAL) < 0) return PROBE_HELD;
    if (!wait_for(fd, POLLIN, patience_ms(probe))) return silent(probe);
    ssize_t got = recv(fd, answer, sizeof(answer), MSG_DONTWAIT);
    probe_took(probe, start);
    return probe_refused(probe, got, "a datagram was answered: it");
}

enum probe_result network_shout(struct probe *probe, const char *argument) {
    struct sockaddr_storage to;
    const char *rest;
    char answer[256];
    int on = 1;
    socklen_t len = probe_sockaddr(argument, &to, &rest);
    AUTO_CLOSE int fd = len > 0 ? socket(to.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0) : -1;
    if (fd < 0) return broken(probe, argument);
    setsockopt(fd, SOL_SOCKET, SO_BROADCAST, &on, sizeof(on));
    if (sendto(fd, "hello", 5, MSG_NOSIGNAL, (struct sockaddr *)&to, len) < 0) return PROBE_HELD;
    if (!wait_for(fd, POLLIN, 300)) return PROBE_HELD;
    return probe_refused(probe, recv(fd, answer, sizeof(answer), MSG_DONTWAIT), "a shout was answered: it");
}

enum probe_result network_ping(struct probe *probe, const char *argument) {
    struct sockaddr_storage to;
    const char *rest;
    uint8_t echo[16] = {0}, answer[256];
    socklen_t len = probe_sockaddr(argument, &to, &rest);
    bool ipv4 = to.ss_family == AF_INET;
    AUTO_CLOSE int fd = len > 0 ? socket(to.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, ipv4 ? IPPROTO_ICMP : IPPROTO_ICMPV6) : -1;
    if (len == 0) return broken(probe, argument);
    if (fd < 0) return PROBE_HELD; // no ping sockets here
    echo[0] = ipv4 ? ICMP_ECHO : ICMP6_ECHO_REQUEST;
    uint64_t start = clock_us();
    if (connect(fd, (struct sockaddr *)&to, len) < 0 || send(fd, echo, sizeof(echo), MSG_NOSIGNAL) < 0) return PROBE_HELD;
    if (!wait_for(fd, POLLIN, patience_ms(probe))) return silent(probe);
    ssize_t got = recv(fd, answer, sizeof(answer), MSG_DONTWAIT);
    probe_took(probe, start);
    return probe_refused(probe, got, "a ping was answered: it");
}

// ---- sockets that need rights ----

static const struct {
    const char *name;
    int family, type, protocol;
} raw_sockets[] = {
    {"raw4", AF_INET, SOCK_RAW, IPPROTO_RAW},
    {"raw6", AF_INET6, SOCK_RAW, IPPROTO_RAW},
    {"icmp4", AF_INET, SOCK_RAW, IPPROTO_ICMP},
    {"packet", AF_PACKET, SOCK_RAW, 0},
};

enum probe_result network_raw(struct probe *probe, const char *argument) {
    for (size_t i = 0; i < ARRAY_LENGTH(raw_sockets); i++) {
        if (strcmp(raw_sockets[i].name, argument) != 0) continue;
        int protocol = raw_sockets[i].family == AF_PACKET ? htons(ETH_P_ALL) : raw_sockets[i].protocol;
        AUTO_CLOSE int fd = socket(raw_sockets[i].family, raw_sockets[i].type | SOCK_CLOEXEC, protocol);
        return probe_refused(probe, fd, argument);
    }
    return broken(probe, argument);
}

enum probe_result network_source(struct probe *probe, const char *argument) {
    struct sockaddr_storage to, from;
    const char *rest, *end;
    int on = 1;
    socklen_t len = probe_sockaddr(argument, &to, &rest);
    socklen_t from_len = len > 0 ? probe_sockaddr(rest, &from, &end) : 0;
    AUTO_CLOSE int fd = from_len > 0 ? open_stream(&to) : -1;
    if (fd < 0) return broken(probe, argument);
    int level = to.ss_family == AF_INET ? IPPROTO_IP : IPPROTO_IPV6;
    setsockopt(fd, level, level == IPPROTO_IP ? IP_TRANSPARENT : IPV6_TRANSPARENT, &on, sizeof(on));
    setsockopt(fd, level, level == IPPROTO_IP ? IP_FREEBIND : IPV6_FREEBIND, &on, sizeof(on));
    if (bind(fd, (struct sockaddr *)&from, from_len) < 0) return PROBE_HELD;
    int rc = connect_within(probe, fd, &to, len);
    return rc == -ETIMEDOUT ? silent(probe) : probe_refused(probe, rc, "a connection from a foreign address");
}

enum probe_result network_steal(struct probe *probe, const char *argument) {
    struct sockaddr_storage at;
    const char *rest;
    int on = 1;
    socklen_t len = probe_sockaddr(argument, &at, &rest);
    AUTO_CLOSE int fd = len > 0 ? open_stream(&at) : -1;
    if (fd < 0) return broken(probe, argument);
    int level = at.ss_family == AF_INET ? IPPROTO_IP : IPPROTO_IPV6;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on));
    setsockopt(fd, level, level == IPPROTO_IP ? IP_FREEBIND : IPV6_FREEBIND, &on, sizeof(on));
    if (bind(fd, (struct sockaddr *)&at, len) < 0) return PROBE_HELD;
    return probe_refused(probe, listen(fd, 1), "listening in the gate's place");
}

// ---- namespaces of one's own ----

enum probe_result network_nested(struct probe *probe, const char *argument) {
    if (unshare(CLONE_NEWUSER | CLONE_NEWNET) < 0) return PROBE_HELD;
    return network_tcp(probe, argument);
}

enum probe_result network_nested_raw(struct probe *probe, const char *argument) {
    if (unshare(CLONE_NEWUSER) < 0) return PROBE_HELD;
    return network_raw(probe, argument);
}

enum probe_result network_links(struct probe *probe, const char *argument) {
    (void)argument;
    struct if_nameindex *links = if_nameindex();
    enum probe_result result = PROBE_HELD;
    for (size_t i = 0; links && links[i].if_name; i++)
        if (strcmp(links[i].if_name, "lo") != 0) result = probe_say(probe, PROBE_ESCAPED, "there is a link \"%s\"", links[i].if_name);
    if (links) if_freenameindex(links);
    return result;
}

// ---- many ----

// Neither ended nor reset. (Where the gate cannot hold a connection back, what is refused is accepted first.)
static unsigned still_open(const int *fds) {
    unsigned open = 0;
    for (unsigned i = 0; i < FLOOD; i++) {
        char byte;
        ssize_t got = fds[i] >= 0 ? recv(fds[i], &byte, 1, MSG_PEEK | MSG_DONTWAIT) : 0;
        open += got > 0 || (got < 0 && errno == EAGAIN);
    }
    return open;
}

// Beyond the limit connections are refused, not held open and not left hanging.
enum probe_result network_flood(struct probe *probe, const char *argument) {
    struct sockaddr_storage to;
    const char *rest;
    struct rlimit limit;
    unsigned open = FLOOD;
    int fds[FLOOD]; // kept open until the end of this process
    socklen_t len = probe_sockaddr(argument, &to, &rest);
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
    for (unsigned i = 0; i < FLOOD; i++) {
        fds[i] = len > 0 ? open_stream(&to) : -1;
        if (fds[i] < 0) return broken(probe, argument);
        int rc = connect_within(probe, fds[i], &to, len);
        if (rc == -ETIMEDOUT) return probe_say(probe, PROBE_HUNG, "connection %u of %d hung", i + 1, FLOOD);
        if (rc < 0) close(fds[i]), fds[i] = -1;
    }
    for (int i = 0; i < 100 && (open = still_open(fds)) > FLOOD_HELD; i++) usleep(10000);
    if (open == FLOOD) return probe_say(probe, PROBE_ESCAPED, "%u connections at once", open);
    return open > FLOOD_HELD ? probe_say(probe, PROBE_ESCAPED, "%u connections, %u refused", open, FLOOD - open) : PROBE_HELD;
}

// ---- words ----

// What came back within the time: 0 the end, -1 an error, -2 silence. The first bytes are the answer; what follows them
// at once belongs to it.
static ssize_t listen_for(struct probe *probe, int fd, uint64_t start, char *answer, size_t size) {
    size_t used = 0;
    int timeout_ms = TALK_MS;
    while (used + 1 < size) {
        if (!wait_for(fd, POLLIN, timeout_ms)) return used > 0 ? (ssize_t)used : -2;
        ssize_t got = recv(fd, answer + used, size - 1 - used, 0);
        if (used == 0) probe_took(probe, start);
        if (got <= 0) return used > 0 ? (ssize_t)used : got;
        used += (size_t)got;
        timeout_ms = 100;
    }
    return (ssize_t)used;
}

enum probe_result network_talk(struct probe *probe, const char *argument, const void *bytes, size_t len, const char *bad) {
    struct sockaddr_storage to;
    const char *rest;
    char answer[1024] = "";
    socklen_t to_len = probe_sockaddr(argument, &to, &rest);
    AUTO_CLOSE int fd = to_len > 0 ? open_stream(&to) : -1;
    if (fd < 0) return broken(probe, argument);
    uint64_t start = clock_us();
    int rc = connect_within(probe, fd, &to, to_len);
    if (rc < 0) return rc == -ETIMEDOUT ? silent(probe) : PROBE_HELD;
    if (send(fd, bytes, len, MSG_NOSIGNAL) < 0) return PROBE_HELD;
    ssize_t got = listen_for(probe, fd, start, answer, sizeof(answer));
    if (got == -2) return silent(probe);
    if (got > 0 && (strstr(answer, PROBE_TOKEN) || strncmp(answer, bad, strlen(bad)) == 0))
        return probe_say(probe, PROBE_ESCAPED, "answered by what it asked for");
    return PROBE_HELD;
}
