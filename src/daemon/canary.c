// SPDX-License-Identifier: Apache-2.0
#include "daemon/canary.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"
#include "daemon/probe.h"
#include "net/net.h"

#define PORT_TRIES 32

// ---- start ----

static int open_inet(int family, int type, const struct addr *at, uint16_t port) {
    struct sockaddr_storage address;
    socklen_t len = addr_to_sockaddr(at, port, &address);
    int on = 1;
    AUTO_CLOSE int fd = socket(family, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return -errno;
    if (family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
    if (bind(fd, (struct sockaddr *)&address, len) < 0) return -errno;
    if (type == SOCK_STREAM && listen(fd, 512) < 0) return -errno;
    return TAKE_FD(fd);
}

static uint16_t port_of(int fd) {
    struct sockaddr_storage address;
    struct addr at;
    uint16_t port = 0;
    socklen_t len = sizeof(address);
    if (getsockname(fd, (struct sockaddr *)&address, &len) == 0) addr_from_sockaddr((struct sockaddr *)&address, &at, &port);
    return port;
}

static void close_range_of(struct canary *canary, size_t from, size_t to) {
    for (size_t i = from; i <= to; i++) {
        mem_close_pointer(&canary->fds[i]);
        canary->fds[i] = -1;
    }
}

// One port number on TCP and UDP of both families. Without IPv6 on this host there is nothing to reach over it.
static int open_everywhere(struct canary *canary) {
    const struct addr any4 = addr_ipv4(0), any6 = {.family = ADDR_IPV6};
    for (int i = 0; i < PORT_TRIES; i++) {
        canary->fds[CANARY_TCP4] = open_inet(AF_INET, SOCK_STREAM, &any4, 0);
        if (canary->fds[CANARY_TCP4] < 0) return canary->fds[CANARY_TCP4];
        canary->port = port_of(canary->fds[CANARY_TCP4]);
        canary->fds[CANARY_UDP4] = open_inet(AF_INET, SOCK_DGRAM, &any4, canary->port);
        canary->fds[CANARY_TCP6] = open_inet(AF_INET6, SOCK_STREAM, &any6, canary->port);
        canary->fds[CANARY_UDP6] = open_inet(AF_INET6, SOCK_DGRAM, &any6, canary->port);
        bool taken = false;
        for (size_t k = CANARY_TCP4; k <= CANARY_UDP6; k++) taken |= canary->fds[k] == -EADDRINUSE;
        if (!taken) return 0;
        close_range_of(canary, CANARY_TCP4, CANARY_UDP6);
    }
    return -EADDRINUSE;
}

static int open_dns(struct canary *canary) {
    const struct addr loopback = addr_ipv4(0x7f000001);
    for (int i = 0; i < PORT_TRIES; i++) {
        canary->fds[CANARY_DNS_TCP] = open_inet(AF_INET, SOCK_STREAM, &loopback, 0);
        if (canary->fds[CANARY_DNS_TCP] < 0) return canary->fds[CANARY_DNS_TCP];
        canary->dns_port = port_of(canary->fds[CANARY_DNS_TCP]);
        canary->fds[CANARY_DNS_UDP] = open_inet(AF_INET, SOCK_DGRAM, &loopback, canary->dns_port);
        if (canary->fds[CANARY_DNS_UDP] >= 0) return 0;
        close_range_of(canary, CANARY_DNS_UDP, CANARY_DNS_TCP);
    }
    return -EADDRINUSE;
}

// name with '@' in front: abstract.
static int open_unix(const char *name) {
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    size_t len = strlen(name);
    if (len >= sizeof(at.sun_path)) return -ENAMETOOLONG;
    memcpy(at.sun_path, name, len);
    if (name[0] == '@') at.sun_path[0] = '\0';
    AUTO_CLOSE int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&at, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len)) < 0 ||
        listen(fd, 16) < 0)
        return -errno;
    if (name[0] != '@') chmod(name, 0666); // the mount must keep it, not the mode
    return TAKE_FD(fd);
}

// Addresses that every sandbox has itself.
static bool of_sandbox(const struct addr *address) {
    char text[ADDR_TEXT_SIZE];
    addr_format(address, text);
    return strcmp(text, keeper_address4) == 0 || strcmp(text, keeper_address6) == 0;
}

// The first address of a family that leads to this host and nowhere else, else the fallback.
static struct addr own_address(const struct canary *canary, enum addr_family family, const char *fallback) {
    struct addr address;
    for (size_t i = 0; i < canary->address_count; i++) {
        address = canary->addresses[i];
        bool local = family == ADDR_IPV6 && address.bytes[0] == 0xfe && (address.bytes[1] & 0xc0) == 0x80;
        local |= family == ADDR_IPV4 && address.bytes[0] == 169 && address.bytes[1] == 254;
        if (address.family == family && !local && !addr_is_loopback(&address) && !of_sandbox(&address)) return address;
    }
    addr_parse(fallback, strlen(fallback), &address);
    return address;
}

int canary_start(struct canary *canary, const char *abstract, const char *inside, const char *outside, struct error *err) {
    char name[128];
    for (size_t i = 0; i < CANARY_COUNT; i++) canary->fds[i] = -1;
    int rc = host_addresses(&canary->addresses, &canary->address_count, err);
    if (rc < 0) return rc;
    canary->own4 = own_address(canary, ADDR_IPV4, "127.0.0.1");
    canary->own6 = own_address(canary, ADDR_IPV6, "::1");
    snprintf(name, sizeof(name), "@%s", abstract);
    rc = open_everywhere(canary);
    if (rc == 0) rc = open_dns(canary);
    if (rc == 0) rc = canary->fds[CANARY_ABSTRACT] = open_unix(name);
    if (rc >= 0) rc = canary->fds[CANARY_INSIDE] = open_unix(inside);
    if (rc >= 0) rc = canary->fds[CANARY_OUTSIDE] = open_unix(outside);
    return rc < 0 ? error_set(err, rc, "the test's own servers cannot be started: %s", strerror(-rc)) : 0;
}

void canary_watch(struct canary *canary, pid_t decoy) {
    canary->decoy = decoy;
    mem_close_pointer(&canary->fds[CANARY_DECOY]);
    canary->fds[CANARY_DECOY] = (int)syscall(SYS_pidfd_open, decoy, 0);
}

void canary_stop(struct canary *canary) {
    if (canary->decoy > 0) {
        kill(canary->decoy, SIGKILL);
        while (waitpid(canary->decoy, NULL, 0) < 0 && errno == EINTR) continue;
    }
    close_range_of(canary, 0, CANARY_COUNT - 1);
    free(canary->addresses);
    *canary = (struct canary){0};
}

// ---- serve ----

__attribute__((format(printf, 2, 3))) static void note(struct canary *canary, const char *format, ...) {
    va_list args;
    if (canary->contact[0]) return;
    va_start(args, format);
    vsnprintf(canary->contact, sizeof(canary->contact), format, args);
    va_end(args);
}

// The machine's neighbours may knock on any port at any time; sandboxes and gates come from here.
static bool from_here(const struct canary *canary, const struct sockaddr_storage *peer) {
    struct addr address;
    uint16_t port;
    if (addr_from_sockaddr((const struct sockaddr *)peer, &address, &port) < 0) return true;
    for (size_t i = 0; i < canary->address_count; i++)
        if (addr_equal(&canary->addresses[i], &address)) return true;
    return addr_is_loopback(&address);
}

static void serve_stream(struct canary *canary, enum canary_socket which, const char *what) {
    struct sockaddr_storage peer = {0};
    for (;;) {
        socklen_t len = sizeof(peer);
        int fd = accept4(canary->fds[which], (struct sockaddr *)&peer, &len, SOCK_CLOEXEC);
        if (fd < 0) return;
        if (from_here(canary, &peer)) note(canary, "the test's server on this host was reached: %s", what);
        (void)!send(fd, PROBE_TOKEN, strlen(PROBE_TOKEN), MSG_NOSIGNAL);
        close(fd);
    }
}

static void serve_datagram(struct canary *canary, enum canary_socket which, const char *what) {
    struct sockaddr_storage peer = {0};
    char bytes[2048];
    for (;;) {
        socklen_t len = sizeof(peer);
        if (recvfrom(canary->fds[which], bytes, sizeof(bytes), 0, (struct sockaddr *)&peer, &len) < 0) return;
        if (from_here(canary, &peer)) note(canary, "the test's server on this host was reached: %s", what);
        (void)!sendto(canary->fds[which], PROBE_TOKEN, strlen(PROBE_TOKEN), MSG_NOSIGNAL, (struct sockaddr *)&peer, len);
    }
}

// The first question's name as text, and the length of header and question; 0 if it is none.
static size_t question_name(const uint8_t *message, size_t len, char name[256]) {
    size_t at = 12, used = 0;
    name[0] = '\0';
    while (at < len && message[at] != 0) {
        size_t label = message[at++];
        if (label > 63 || at + label >= len || used + label + 2 > 256) return 0;
        if (used > 0) name[used++] = '.';
        memcpy(name + used, message + at, label);
        used += label;
        name[used] = '\0';
        at += label;
    }
    return at + 5 <= len ? at + 5 : 0;
}

// Answers in place: the length of the answer, or 0 for none.
static size_t answer_question(struct canary *canary, uint8_t *message, size_t len, size_t size) {
    char name[256];
    size_t end = len >= 12 ? question_name(message, len, name) : 0;
    bool known = end > 0 && (name[0] == '\0' || strcasecmp(name, canary->allowed) == 0);
    if (!known) note(canary, "a query for \"%.100s\" reached the DNS server", end > 0 ? name : "?");
    if (end == 0) return 0;
    unsigned type = (unsigned)(message[end - 4] << 8 | message[end - 3]);
    const struct addr *address = type == 1 ? &canary->own4 : type == 28 ? &canary->own6 : NULL;
    size_t data = type == 1 ? 4 : 16;
    message[2] = 0x85;
    message[3] = 0x80;
    memset(message + 6, 0, 6);
    if (!address || name[0] == '\0' || end + 12 + data > size) return end;
    const uint8_t record[12] = {0xc0, 12, 0, (uint8_t)type, 0, 1, 0, 0, 0, 60, 0, (uint8_t)data};
    message[7] = 1;
    memcpy(message + end, record, 12);
    memcpy(message + end + 12, address->bytes, data);
    return end + 12 + data;
}

static void serve_dns_datagram(struct canary *canary) {
    struct sockaddr_storage peer;
    uint8_t message[2048];
    for (;;) {
        socklen_t len = sizeof(peer);
        ssize_t got = recvfrom(canary->fds[CANARY_DNS_UDP], message, sizeof(message), 0, (struct sockaddr *)&peer, &len);
        if (got < 0) return;
        size_t answer = answer_question(canary, message, (size_t)got, sizeof(message));
        if (answer > 0) (void)!sendto(canary->fds[CANARY_DNS_UDP], message, answer, MSG_NOSIGNAL, (struct sockaddr *)&peer, len);
    }
}

// A connection alone is no contact: that is how run looks whether its DNS server is there.
static void serve_dns_stream(struct canary *canary) {
    const struct timeval patience = {.tv_usec = 100000};
    uint8_t message[2048];
    for (;;) {
        AUTO_CLOSE int fd = accept4(canary->fds[CANARY_DNS_TCP], NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0) return;
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
        if (recv(fd, message, 2, MSG_WAITALL) != 2) continue;
        size_t len = (size_t)(message[0] << 8 | message[1]);
        if (len > sizeof(message) - 2) len = sizeof(message) - 2;
        ssize_t got = recv(fd, message + 2, len, MSG_WAITALL);
        size_t answer = got > 0 ? answer_question(canary, message + 2, (size_t)got, sizeof(message) - 2) : 0;
        message[0] = (uint8_t)(answer >> 8);
        message[1] = (uint8_t)answer;
        if (answer > 0) (void)!send(fd, message, answer + 2, MSG_NOSIGNAL);
    }
}

static void serve_decoy(struct canary *canary) {
    note(canary, "the signal reached a process of this host");
    close(TAKE_FD(canary->fds[CANARY_DECOY]));
}

void canary_serve(struct canary *canary) {
    struct pollfd items[CANARY_COUNT];
    for (size_t i = 0; i < CANARY_COUNT; i++) items[i] = (struct pollfd){.fd = canary->fds[i], .events = POLLIN};
    if (poll(items, CANARY_COUNT, 0) <= 0) return;
    if (items[CANARY_TCP4].revents) serve_stream(canary, CANARY_TCP4, "TCP, IPv4");
    if (items[CANARY_TCP6].revents) serve_stream(canary, CANARY_TCP6, "TCP, IPv6");
    if (items[CANARY_UDP4].revents) serve_datagram(canary, CANARY_UDP4, "UDP, IPv4");
    if (items[CANARY_UDP6].revents) serve_datagram(canary, CANARY_UDP6, "UDP, IPv6");
    if (items[CANARY_ABSTRACT].revents) serve_stream(canary, CANARY_ABSTRACT, "abstract UNIX socket");
    if (items[CANARY_INSIDE].revents) serve_stream(canary, CANARY_INSIDE, "UNIX socket in the working directory");
    if (items[CANARY_OUTSIDE].revents) serve_stream(canary, CANARY_OUTSIDE, "UNIX socket elsewhere");
    if (items[CANARY_DNS_UDP].revents) serve_dns_datagram(canary);
    if (items[CANARY_DNS_TCP].revents) serve_dns_stream(canary);
    if (items[CANARY_DECOY].revents) serve_decoy(canary);
}
