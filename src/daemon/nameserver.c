// SPDX-License-Identifier: Apache-2.0
#include "daemon/nameserver.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/name.h"
#include "base/number.h"
#include "net/net.h"

#define NAMESERVER_QUIET_US 1000000

static int nameserver_bad(const char *text, struct error *err) {
    return error_set(err, -EINVAL, "DNS server \"%s\": expected an address, ADDR:PORT or [ADDR6]:PORT; write for example "
                                   "192.0.2.53 or [2001:db8::53]:53", text);
}

int nameserver_parse(const char *text, struct ipc_resolver_server *ret_server, struct error *err) {
    struct addr address;
    uint16_t port = 0;
    size_t len = strlen(text);
    if (addr_parse(text, len, &address) < 0) {
        struct name_host host;
        if (name_authority_from_wire(text, len, &host, &port) < 0 || !host.is_address) return nameserver_bad(text, err);
        address = host.address;
        if (port == 0 && text[len - 1] != ']') return nameserver_bad(text, err);
    }
    *ret_server = (struct ipc_resolver_server){.address = address, .port = port ? port : 53};
    return 0;
}

static void nameserver_resolv_conf(struct ipc_resolver_start *start) {
    FILE *file = fopen("/etc/resolv.conf", "re");
    char line[512];
    if (!file) return;
    while (start->count < IPC_SERVERS_MAX && fgets(line, sizeof(line), file)) {
        char word[16], text[256];
        struct addr address;
        if (sscanf(line, " %15s %255s", word, text) != 2 || strcmp(word, "nameserver") != 0) continue;
        if (addr_parse(text, strcspn(text, "%"), &address) < 0) continue;
        start->servers[start->count++] = (struct ipc_resolver_server){.address = address, .port = 53};
    }
    fclose(file);
}

int nameserver_collect(const char *const *texts, size_t count, struct ipc_resolver_start *ret_start, struct error *err) {
    struct ipc_resolver_start start = {0};
    if (count > IPC_SERVERS_MAX) {
        return error_set(err, -EINVAL, "%zu DNS servers: at most %d can be used; leave some out", count, IPC_SERVERS_MAX);
    }
    for (size_t i = 0; i < count; i++) {
        int rc = nameserver_parse(texts[i], &start.servers[start.count], err);
        if (rc < 0) return rc;
        if (!host_has_route(&start.servers[start.count++].address)) {
            return error_set(err, -EHOSTUNREACH, "DNS server \"%s\": the host has no route to it; give a server that "
                                                 "this machine can reach", texts[i]);
        }
    }
    if (count == 0) nameserver_resolv_conf(&start);
    *ret_start = start;
    return 0;
}

// ---- is it there? ----

static int nameserver_connect(const struct ipc_resolver_server *server, int type) {
    struct sockaddr_storage to;
    socklen_t len = addr_to_sockaddr(&server->address, server->port, &to);
    AUTO_CLOSE int fd = socket(to.ss_family, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0 || (connect(fd, (struct sockaddr *)&to, len) < 0 && errno != EINPROGRESS)) return -1;
    return TAKE_FD(fd);
}

static void nameserver_ask(struct nameserver_probe *probe, uint32_t i) {
    // The root's NS records (RFC 1034 3.6): the one question whose answer tells nobody what this sandbox is about.
    static const uint8_t question[] = {0x70, 0x73, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 1};
    if (probe->fds[i] >= 0) close(probe->fds[i]);
    probe->datagram[i] = true;
    probe->fds[i] = nameserver_connect(&probe->servers->servers[i], SOCK_DGRAM);
    if (probe->fds[i] < 0 || send(probe->fds[i], question, sizeof(question), MSG_NOSIGNAL) == sizeof(question)) return;
    close(probe->fds[i]);
    probe->fds[i] = -1;
}

void nameserver_probe_start(const struct ipc_resolver_start *servers, struct nameserver_probe *ret_probe) {
    *ret_probe = (struct nameserver_probe){.servers = servers};
    for (uint32_t i = 0; i < servers->count; i++) {
        ret_probe->fds[i] = nameserver_connect(&servers->servers[i], SOCK_STREAM);
        if (ret_probe->fds[i] < 0) nameserver_ask(ret_probe, i);
    }
}

// What one readable or writable socket shows: true, it is there.
static bool nameserver_alive(struct nameserver_probe *probe, uint32_t i) {
    uint8_t answer[512];
    int failure = 0;
    socklen_t len = sizeof(failure);
    if (probe->datagram[i]) {
        if (recv(probe->fds[i], answer, sizeof(answer), 0) >= 12) return true;
        close(TAKE_FD(probe->fds[i]));
        return false;
    }
    if (getsockopt(probe->fds[i], SOL_SOCKET, SO_ERROR, &failure, &len) == 0 && failure == 0) return true;
    nameserver_ask(probe, i);
    return false;
}

// Silence over UDP of a host that did refuse TCP is no proof of death: some servers answer only what they know.
static bool nameserver_quiet(const struct nameserver_probe *probe, uint64_t waited_us) {
    for (uint32_t i = 0; i < probe->servers->count && waited_us > NAMESERVER_QUIET_US; i++) {
        if (probe->fds[i] >= 0 && probe->datagram[i]) return true;
    }
    return false;
}

static bool nameserver_wait(struct nameserver_probe *probe, int timeout_ms) {
    uint64_t begun = clock_us(), until = begun + (uint64_t)timeout_ms * 1000;
    for (;;) {
        struct pollfd polled[IPC_SERVERS_MAX];
        nfds_t waiting = 0;
        for (uint32_t i = 0; i < probe->servers->count; i++) {
            polled[i] = (struct pollfd){.fd = probe->fds[i], .events = probe->datagram[i] ? POLLIN : POLLOUT};
            waiting += probe->fds[i] >= 0;
        }
        uint64_t now = clock_us();
        if (nameserver_quiet(probe, now - begun)) return true;
        if (waiting == 0 || now >= until) return false;
        int ready = poll(polled, probe->servers->count, 100);
        for (uint32_t i = 0; ready > 0 && i < probe->servers->count; i++) {
            if (polled[i].revents && nameserver_alive(probe, i)) return true;
        }
    }
}

int nameserver_probe_finish(struct nameserver_probe *probe, int timeout_ms, struct error *err) {
    bool alive = nameserver_wait(probe, timeout_ms);
    struct buf list = BUF_INIT;
    for (uint32_t i = 0; i < probe->servers->count; i++) {
        char text[ADDR_TEXT_SIZE];
        buf_printf(&list, "%s\"%s\" port %u", i ? ", " : "", addr_format(&probe->servers->servers[i].address, text),
                   probe->servers->servers[i].port);
        if (probe->fds[i] >= 0) close(probe->fds[i]);
    }
    int rc = 0;
    if (!alive) {
        rc = error_set(err, -EHOSTUNREACH, "DNS server %s: no answer, and the policy allows host names; give a server that "
                                           "answers with --dns ADDR", list.data ? list.data : "");
    }
    buf_done(&list);
    return rc;
}
