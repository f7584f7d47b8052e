// SPDX-License-Identifier: Apache-2.0
// Queries to a server that a CIDR entry allows: bytes untouched, both ways.
//
// Each query has a connected socket of its own, so its port is random (RFC 5452) and only that server can answer;
// answers with another id are ignored. What does not come in time gets SERVFAIL, as from a resolver, rather than
// silence.
#include "dns/front.h"

#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <event2/event.h>

#include "base/mem.h"

#define FORWARD_DEADLINE_S 5
#define FORWARD_BATCH 16 // datagrams read in one turn of the loop
#define HEADER_SIZE 12

struct forward {
    struct list link;
    struct front_query query; // for answers of our own
    struct event *event;
    int fd;
    uint8_t id[2];
};

static void forward_free(struct forward *forward) {
    if (forward->event) event_free(forward->event);
    if (forward->fd >= 0) close(forward->fd);
    list_remove(&forward->link);
    forward->query.front->forward_count--;
    free(forward);
}

static void forward_fail(struct forward *forward, int error) {
    struct front_query query = forward->query;
    forward_free(forward);
    front_answer_failed(&query, error);
}

static void forward_readable(evutil_socket_t fd, short what, void *data) {
    struct forward *forward = data;
    if (what & EV_TIMEOUT) {
        forward_fail(forward, -ETIMEDOUT);
        return;
    }
    uint8_t *answer = forward->query.front->answer;
    for (int i = 0; i < FORWARD_BATCH; i++) {
        ssize_t len = recv(fd, answer, DNS_MESSAGE_MAX, MSG_DONTWAIT);
        if (len < 0 && (errno == EAGAIN || errno == EINTR)) return;
        if (len < 0) {
            forward_fail(forward, -errno);
            return;
        }
        bool ours =
            len >= HEADER_SIZE && answer[0] == forward->id[0] && answer[1] == forward->id[1] && answer[2] & 0x80;
        if (!ours) continue;
        dns_front_reply *reply = forward->query.reply;
        void *reply_data = forward->query.data;
        dns_front_told(forward->query.front, (size_t)len);
        forward_free(forward);
        reply(answer, (size_t)len, reply_data);
        return;
    }
}

// Like every dial: one that only reaches the host itself is not what an entry for a server means, unless it is
// loopback.
static int reached_itself(int fd, const struct addr *server) {
    struct sockaddr_storage local;
    socklen_t len = sizeof(local);
    struct addr addr;
    uint16_t port;
    if (getsockname(fd, (struct sockaddr *)&local, &len) < 0) return -errno;
    int r = addr_from_sockaddr((struct sockaddr *)&local, &addr, &port);
    if (r < 0) return r;
    return addr_equal(&addr, server) && !addr_is_loopback(server) ? -EACCES : 0;
}

static int forward_send(struct forward *forward, const uint8_t *message, size_t len, const struct addr *server,
                        uint16_t port) {
    struct sockaddr_storage address;
    socklen_t address_len = addr_to_sockaddr(server, port, &address);
    int family = server->family == ADDR_IPV4 ? AF_INET : AF_INET6;
    forward->fd = socket(family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (forward->fd < 0 || connect(forward->fd, (struct sockaddr *)&address, address_len) < 0) return -errno;
    int r = reached_itself(forward->fd, server);
    if (r < 0) return r;
    if (send(forward->fd, message, len, MSG_NOSIGNAL) < 0) return -errno;
    struct timeval deadline = {.tv_sec = FORWARD_DEADLINE_S};
    forward->event =
        event_new(forward->query.front->base, forward->fd, EV_READ | EV_PERSIST, forward_readable, forward);
    return forward->event && event_add(forward->event, &deadline) == 0 ? 0 : -ENOMEM;
}

void dns_front_relay(struct dns_front *front, const uint8_t *message, size_t len, const struct addr *server,
                     uint16_t port, dns_front_reply *reply, void *data) {
    struct front_query query = {.front = front, .server = *server, .reply = reply, .data = data};
    // Our own answers need the question as far as it can be read; the server may know more than we do.
    if (len < HEADER_SIZE || dns_question_parse(message, len, &query.question) < 0) {
        struct policy_decision bad = dns_front_denial(POLICY_DNS_BAD_MESSAGE);
        dns_front_log(front, NULL, server, &bad);
        reply(NULL, 0, data);
        return;
    }
    if (!dns_front_affords(&query, len)) return;
    struct forward *forward = front->forward_count < FRONT_FORWARDS_MAX ? NEW(struct forward) : NULL;
    if (!forward) {
        front_answer_limit(&query, POLICY_LIMIT_NONE, "too many queries to allowed DNS servers are in flight");
        return;
    }
    forward->query = query;
    forward->fd = -1;
    forward->id[0] = message[0];
    forward->id[1] = message[1];
    list_append(&front->forwards, &forward->link);
    front->forward_count++;
    int r = forward_send(forward, message, len, server, port);
    if (r < 0) forward_fail(forward, r);
}

void dns_forward_free_all(struct dns_front *front) {
    LIST_FOREACH (&front->forwards, node) {
        struct forward *forward = LIST_ENTRY(node, struct forward, link);
        dns_front_reply *reply = forward->query.reply;
        void *data = forward->query.data;
        forward_free(forward);
        reply(NULL, 0, data);
    }
}
