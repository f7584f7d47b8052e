// SPDX-License-Identifier: Apache-2.0
// Datagrams and errors through an exchange's host socket, in batches.
//
// Answers are received behind room for their headers and leave as whole packets through the raw sockets, from the address
// that was asked. On lo nothing needs to be fragmented, but for the longest datagrams of IPv6. To the server the host's
// kernel fragments as the path needs.
//
// Path MTU: a program that sends what fits its own MTU sends it unfragmented, so where the host's path is narrower it has
// to hear so, as from the first router. That datagram is lost, as there. Told once, the sandbox's kernel fragments or
// refuses by itself, and what still comes is fragmented here: both look the same once they are reassembled.
#include <errno.h>
#include <linux/errqueue.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/random.h"
#include "gate/state.h"

#define EXCHANGE_QUOTE_SIZE 512 // of a datagram, in an error about it

uint8_t exchange_room[EXCHANGE_BATCH][EXCHANGE_HEAD_SIZE + EXCHANGE_DATAGRAM_SIZE];
static uint8_t exchange_fragment[IP_PACKET_MAX];

static bool exchange_is_ipv4(const struct exchange *exchange) { return exchange->key.server.family == ADDR_IPV4; }

// ---- errors ----

// As much of the datagram as is known, as the sandbox sent it.
static size_t exchange_write_about(const struct exchange *exchange, const uint8_t *payload, size_t len, uint8_t *bytes,
                                   size_t size) {
    const struct exchange_key *key = &exchange->key;
    if (key->protocol != POLICY_ICMP) {
        return ip_write_udp(&key->client, key->client_port, &key->server, key->port, payload, len, bytes, size);
    }
    bool header = len >= 8;
    uint16_t sequence = header ? (uint16_t)(payload[6] << 8 | payload[7]) : 0;
    return ip_write_echo(IP_ECHO_REQUEST, &key->client, &key->server, key->client_port, sequence,
                         header ? payload + 8 : payload, header ? len - 8 : 0, bytes, size);
}

static enum ip_unreachable exchange_unreachable(int error) {
    static const struct {
        int error;
        enum ip_unreachable code;
    } codes[] = {
        {ECONNREFUSED, IP_UNREACHABLE_PORT}, {ENETUNREACH, IP_UNREACHABLE_NETWORK}, {EACCES, IP_UNREACHABLE_PROHIBITED},
        {EPERM, IP_UNREACHABLE_PROHIBITED}, // the host's own firewall
    };
    for (size_t i = 0; i < ARRAY_LENGTH(codes); i++) {
        if (codes[i].error == error) return codes[i].code;
    }
    return IP_UNREACHABLE_HOST;
}

// Passes an error of the host's socket (positive errno) on to the client, about a datagram of which payload is the start.
static void exchange_tell(struct exchange *exchange, int error, uint32_t mtu, const uint8_t *payload, size_t len) {
    uint8_t about[EXCHANGE_HEAD_SIZE + EXCHANGE_QUOTE_SIZE], answer[1280];
    struct ip_packet packet;
    if (len > EXCHANGE_QUOTE_SIZE) len = EXCHANGE_QUOTE_SIZE;
    size_t size = exchange_write_about(exchange, payload, len, about, sizeof(about));
    if (ip_packet_parse(about, size, &packet) != WIRE_OK) return;
    if (error != EMSGSIZE) {
        exchange->failed = true;
        refusal_packet(exchange->gate, &packet, exchange_unreachable(error));
        return;
    }
    if (mtu > 0 && mtu < exchange->mtu) exchange->mtu = (uint16_t)mtu;
    exchange->told_size = true;
    size = ip_write_too_big(&packet, exchange->mtu, answer, sizeof(answer));
    refusal_send_raw(exchange->gate, &exchange->key.client, answer, size);
}

static const struct sock_extended_err *exchange_extended_error(struct msghdr *message) {
    for (struct cmsghdr *control = CMSG_FIRSTHDR(message); control; control = CMSG_NXTHDR(message, control)) {
        bool ours = (control->cmsg_level == SOL_IP && control->cmsg_type == IP_RECVERR) ||
                    (control->cmsg_level == SOL_IPV6 && control->cmsg_type == IPV6_RECVERR);
        if (ours && control->cmsg_len >= CMSG_LEN(sizeof(struct sock_extended_err))) {
            return (const struct sock_extended_err *)(const void *)CMSG_DATA(control);
        }
    }
    return NULL;
}

// Passes queued errors on, at most a batch. Whether there were any.
static bool exchange_tell_queued(struct exchange *exchange) {
    int count = 0;
    for (; count < EXCHANGE_BATCH; count++) {
        uint8_t payload[EXCHANGE_QUOTE_SIZE];
        union {
            struct cmsghdr align;
            uint8_t bytes[512];
        } control;
        struct iovec vector = {.iov_base = payload, .iov_len = sizeof(payload)};
        struct msghdr message = {
            .msg_iov = &vector, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
        ssize_t len = recvmsg(exchange->fd, &message, MSG_ERRQUEUE | MSG_DONTWAIT);
        if (len < 0) break;
        const struct sock_extended_err *error = exchange_extended_error(&message);
        if (error && error->ee_errno) exchange_tell(exchange, (int)error->ee_errno, error->ee_info, payload, (size_t)len);
    }
    return count > 0;
}

// ---- to the server ----

// A datagram that left the sandbox unfragmented and does not fit the host's path.
static bool exchange_is_too_big(const struct exchange *exchange, size_t len) {
    size_t size = len + (exchange_is_ipv4(exchange) ? 20 : 40) + (exchange->key.protocol == POLICY_ICMP ? 0 : 8);
    return !exchange->told_size && size <= EXCHANGE_MTU && size > exchange->mtu;
}

static unsigned exchange_take_out_too_big(struct exchange *exchange, struct mmsghdr *messages, unsigned count) {
    unsigned kept = 0;
    for (unsigned i = 0; i < count; i++) {
        const struct iovec *vector = messages[i].msg_hdr.msg_iov;
        if (exchange_is_too_big(exchange, vector->iov_len)) {
            exchange_tell(exchange, EMSGSIZE, exchange->mtu, vector->iov_base, vector->iov_len);
        } else {
            messages[kept++] = messages[i];
        }
    }
    return kept;
}

// The first of the messages could not be sent. Whether to try it again: the error was an earlier one's.
static bool exchange_send_failed(struct exchange *exchange, const struct mmsghdr *message, int error, bool again) {
    if (error == EINTR) return true;
    if (exchange_tell_queued(exchange)) return !again;
    const struct iovec *vector = message->msg_hdr.msg_iov;
    bool lost = error == EAGAIN || error == ENOBUFS || error == ENOMEM; // as on any full link
    if (!lost) exchange_tell(exchange, error, 0, vector->iov_base, vector->iov_len);
    return false;
}

// Leaves those that the sandbox's limits let through. False: it has used up its budget of bytes.
static bool exchange_take_out_unaffordable(struct exchange *exchange, struct mmsghdr *messages, unsigned *count) {
    struct meter *meter = &exchange->gate->meter;
    unsigned kept = 0;
    int rc = 0;
    for (unsigned i = 0; i < *count && rc != -EDQUOT; i++) {
        rc = meter_datagram(meter, METER_OUT, messages[i].msg_hdr.msg_iov->iov_len);
        if (rc == 0) messages[kept++] = messages[i];
        else if (rc == -EAGAIN) exchange_lost(exchange);
    }
    *count = kept;
    return rc != -EDQUOT;
}

void exchange_send(struct exchange *exchange, struct mmsghdr *messages, unsigned count) {
    bool again = false;
    exchange_table_touch(exchange->gate->exchanges, exchange, false, clock_us());
    if (exchange->mtu < EXCHANGE_MTU) count = exchange_take_out_too_big(exchange, messages, count);
    bool affordable = exchange_take_out_unaffordable(exchange, messages, &count);
    for (unsigned sent = 0; sent < count;) {
        int rc = sendmmsg(exchange->fd, messages + sent, count - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (rc > 0) {
            for (int i = 0; i < rc; i++) exchange->bytes_out += messages[sent++].msg_len;
            again = false;
        } else {
            again = exchange_send_failed(exchange, &messages[sent], errno, again);
            if (!again) sent++;
        }
    }
    if (!affordable) exchange_spent(exchange);
}

// ---- from the server ----

static void exchange_send_raw(const struct exchange *exchange, struct mmsghdr *packets, unsigned count) {
    bool ipv4 = exchange->key.client.family == ADDR_IPV4;
    int fd = exchange->gate->sockets[ipv4 ? IPC_SOCKET_RAW4 : IPC_SOCKET_RAW6];
    for (unsigned sent = 0; sent < count;) {
        int rc = sendmmsg(fd, packets + sent, count - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (rc < 0 && errno == EINTR) continue;
        sent += rc > 0 ? (unsigned)rc : 1; // what cannot be sent is lost, as refusals are
    }
}

static void exchange_send_fragments(const struct exchange *exchange, const uint8_t *packet, size_t len) {
    uint32_t identification = random_u32();
    for (int second = 0; second < 2; second++) {
        size_t size = ip_write_fragment(packet, len, identification, second, exchange_fragment, sizeof(exchange_fragment));
        refusal_send_raw(exchange->gate, &exchange->key.client, exchange_fragment, size);
    }
}

// Makes a packet of what was received in place. Its length, 0 if it is no answer.
static size_t exchange_wrap(const struct exchange *exchange, uint8_t *room, size_t header, size_t len,
                            const struct sockaddr_storage *from) {
    const struct exchange_key *key = &exchange->key;
    uint8_t *payload = room + header;
    size_t size = EXCHANGE_HEAD_SIZE + EXCHANGE_DATAGRAM_SIZE;
    if (key->protocol != POLICY_ICMP) {
        return ip_write_udp(&key->server, key->port, &key->client, key->client_port, payload, len, room, size);
    }
    struct addr source;
    uint16_t port;
    // A ping socket takes answers from anywhere.
    bool ours = len >= 8 && payload[0] == (exchange_is_ipv4(exchange) ? 0 : 129) &&
                addr_from_sockaddr((const struct sockaddr *)from, &source, &port) == 0 &&
                addr_equal(&source, &key->server);
    uint16_t sequence = ours ? (uint16_t)(payload[6] << 8 | payload[7]) : 0;
    if (!ours) return 0;
    return ip_write_echo(IP_ECHO_REPLY, &key->server, &key->client, key->client_port, sequence, payload + 8, len - 8,
                         room, size);
}

static int exchange_receive(const struct exchange *exchange, size_t header, struct sockaddr_storage *from,
                            struct iovec *vectors, struct mmsghdr *messages) {
    for (size_t i = 0; i < EXCHANGE_BATCH; i++) {
        vectors[i] = (struct iovec){.iov_base = exchange_room[i] + header, .iov_len = EXCHANGE_DATAGRAM_SIZE};
        messages[i] = (struct mmsghdr){.msg_hdr = {.msg_name = &from[i], .msg_namelen = sizeof(from[i]),
                                                   .msg_iov = &vectors[i], .msg_iovlen = 1}};
    }
    return recvmmsg(exchange->fd, messages, EXCHANGE_BATCH, MSG_DONTWAIT, NULL);
}

void exchange_readable(int fd, short what, void *data) {
    (void)fd;
    (void)what;
    struct exchange *exchange = data;
    struct sockaddr_storage from[EXCHANGE_BATCH], to;
    struct iovec vectors[EXCHANGE_BATCH];
    struct mmsghdr messages[EXCHANGE_BATCH];
    size_t header = (exchange_is_ipv4(exchange) ? 20 : 40) + (exchange->key.protocol == POLICY_ICMP ? 0 : 8);
    int count = exchange_receive(exchange, header, from, vectors, messages);
    unsigned packets = 0;
    bool answered = false;
    socklen_t to_len = addr_to_sockaddr(&exchange->key.client, 0, &to);
    if (count <= 0) exchange_tell_queued(exchange);
    for (int i = 0; i < count; i++) {
        size_t len = exchange_wrap(exchange, exchange_room[i], header, messages[i].msg_len, &from[i]);
        if (len == 0) continue;
        answered = true;
        if (meter_datagram(&exchange->gate->meter, METER_IN, messages[i].msg_len) < 0) {
            exchange_lost(exchange);
            continue;
        }
        exchange->bytes_in += messages[i].msg_len;
        if (len > IP_PACKET_MAX) {
            exchange_send_fragments(exchange, exchange_room[i], len);
            continue;
        }
        vectors[packets] = (struct iovec){.iov_base = exchange_room[i], .iov_len = len};
        messages[packets].msg_hdr = (struct msghdr){
            .msg_name = &to, .msg_namelen = to_len, .msg_iov = &vectors[packets], .msg_iovlen = 1};
        packets++;
    }
    if (answered) exchange_table_touch(exchange->gate->exchanges, exchange, true, clock_us());
    exchange_send_raw(exchange, messages, packets);
}
