// SPDX-License-Identifier: Apache-2.0
#include "gate/datagram_answers.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "base/mem.h"
#include "gate/state.h"

#define ANSWERS_COUNT 16
#define ANSWERS_PACKET (DATAGRAM_DNS_MAX + 64) // the longest, with its headers
#define ANSWERS_BYTES (8 * ANSWERS_PACKET)

struct answers {
    struct gate *gate;
    struct event *turn;
    size_t count, used;
    bool due; // turn will come
    int fds[ANSWERS_COUNT];
    struct sockaddr_storage to[ANSWERS_COUNT];
    struct iovec parts[ANSWERS_COUNT];
    struct mmsghdr messages[ANSWERS_COUNT];
    uint8_t bytes[ANSWERS_BYTES];
};

static void answers_flush(struct answers *answers) {
    for (size_t at = 0; at < answers->count;) {
        size_t end = at + 1;
        while (end < answers->count && answers->fds[end] == answers->fds[at]) end++;
        int sent = sendmmsg(answers->fds[at], answers->messages + at, (unsigned)(end - at), MSG_DONTWAIT);
        at += sent > 0 ? (size_t)sent : 1; // loss is the network's right: the sandbox asks again
    }
    answers->count = answers->used = 0;
}

static void answers_turn(evutil_socket_t fd, short what, void *data) {
    (void)fd, (void)what;
    struct answers *answers = data;
    answers->due = false;
    answers_flush(answers);
}

struct answers *answers_new(struct gate *gate) {
    struct answers *answers = NEW(struct answers);
    if (!answers) return NULL;
    answers->gate = gate;
    answers->turn = event_new(gate->base, -1, 0, answers_turn, answers);
    if (answers->turn) return answers;
    free(answers);
    return NULL;
}

void answers_free(struct answers *answers) {
    if (!answers) return;
    event_free(answers->turn);
    free(answers);
}

void answers_add(struct answers *answers, const struct exchange_key *key, const uint8_t *answer, size_t len) {
    if (answers->count == ANSWERS_COUNT || sizeof(answers->bytes) - answers->used < ANSWERS_PACKET) answers_flush(answers);
    size_t at = answers->count;
    uint8_t *packet = answers->bytes + answers->used;
    size_t size = ip_write_udp(&key->server, key->port, &key->client, key->client_port, answer, len, packet, ANSWERS_PACKET);
    if (size == 0) return;
    answers->fds[at] = answers->gate->sockets[key->client.family == ADDR_IPV4 ? IPC_SOCKET_RAW4 : IPC_SOCKET_RAW6];
    answers->parts[at] = (struct iovec){.iov_base = packet, .iov_len = size};
    answers->messages[at].msg_hdr = (struct msghdr){.msg_name = &answers->to[at], .msg_iov = &answers->parts[at], .msg_iovlen = 1,
                                                    .msg_namelen = addr_to_sockaddr(&key->client, 0, &answers->to[at])};
    answers->used += size;
    answers->count++;
    if (!answers->due) event_active(answers->turn, EV_TIMEOUT, 0); // behind all that is active in this turn
    answers->due = true;
}
