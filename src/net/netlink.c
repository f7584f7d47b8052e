// SPDX-License-Identifier: Apache-2.0
// What libmnl does for others: headers, attributes, answers. The kernel is trusted, so lengths are checked only as far as it
// takes not to walk beyond what was read.
#include "net/netlink.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"

#define ACKS_SIZE 8192

int netlink_open(struct netlink *netlink, int protocol) {
    struct sockaddr_nl address = {.nl_family = AF_NETLINK};
    int on = 1;
    netlink->used = 0;
    netlink->full = false;
    netlink->fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, protocol);
    if (netlink->fd < 0) return -errno;
    setsockopt(netlink->fd, SOL_NETLINK, NETLINK_CAP_ACK, &on, sizeof(on)); // errors without a copy of what was sent
    if (bind(netlink->fd, (struct sockaddr *)&address, sizeof(address)) == 0) return 0;
    int result = -errno;
    netlink_close(netlink);
    return result;
}

void netlink_close(struct netlink *netlink) {
    if (netlink->fd >= 0) close(netlink->fd);
    netlink->fd = -1;
}

// ---- messages ----

static struct nlmsghdr *netlink_header(struct netlink *netlink) {
    return (struct nlmsghdr *)(void *)(netlink->bytes + netlink->message);
}

// Zeroed room at the end of the message, or NULL.
static void *netlink_room(struct netlink *netlink, size_t len) {
    size_t aligned = NLMSG_ALIGN(len);
    if (netlink->full || aligned > sizeof(netlink->bytes) - netlink->used) {
        netlink->full = true;
        return NULL;
    }
    void *room = netlink->bytes + netlink->used;
    memset(room, 0, aligned);
    netlink->used += aligned;
    netlink_header(netlink)->nlmsg_len = (uint32_t)(netlink->used - netlink->message);
    return room;
}

void netlink_message(struct netlink *netlink, uint16_t type, uint16_t flags, const void *head, size_t head_len) {
    netlink->message = netlink->used;
    struct nlmsghdr *header = netlink_room(netlink, NLMSG_HDRLEN);
    if (!header) return;
    header->nlmsg_type = type;
    header->nlmsg_flags = (uint16_t)(flags | NLM_F_REQUEST);
    header->nlmsg_seq = ++netlink->sequence;
    netlink_put_head(netlink, head, head_len);
}

void netlink_put_head(struct netlink *netlink, const void *head, size_t len) {
    void *room = netlink_room(netlink, len);
    if (room) memcpy(room, head, len);
}

void netlink_put(struct netlink *netlink, uint16_t attribute, const void *bytes, size_t len) {
    struct nlattr *put = netlink_room(netlink, NLA_HDRLEN + len);
    if (!put) return;
    *put = (struct nlattr){.nla_type = attribute, .nla_len = (uint16_t)(NLA_HDRLEN + len)};
    if (len > 0) memcpy((char *)put + NLA_HDRLEN, bytes, len);
}

void netlink_put_text(struct netlink *netlink, uint16_t attribute, const char *text) {
    netlink_put(netlink, attribute, text, strlen(text) + 1);
}

void netlink_put_u8(struct netlink *netlink, uint16_t attribute, uint8_t value) {
    netlink_put(netlink, attribute, &value, sizeof(value));
}

void netlink_put_u32(struct netlink *netlink, uint16_t attribute, uint32_t value) {
    netlink_put(netlink, attribute, &value, sizeof(value));
}

size_t netlink_nest(struct netlink *netlink, uint16_t attribute) {
    size_t nest = netlink->used;
    netlink_put(netlink, attribute | NLA_F_NESTED, NULL, 0);
    return nest;
}

void netlink_nest_end(struct netlink *netlink, size_t nest) {
    if (netlink->full) return;
    struct nlattr *put = (struct nlattr *)(void *)(netlink->bytes + nest);
    put->nla_len = (uint16_t)(netlink->used - nest);
}

void netlink_acknowledge(struct netlink *netlink) {
    if (!netlink->full) netlink_header(netlink)->nlmsg_flags |= NLM_F_ACK;
}

static int netlink_send(struct netlink *netlink) {
    size_t len = netlink->used;
    netlink->used = 0;
    if (netlink->full) {
        netlink->full = false;
        return -EMSGSIZE;
    }
    struct sockaddr_nl kernel = {.nl_family = AF_NETLINK};
    ssize_t sent = sendto(netlink->fd, netlink->bytes, len, 0, (struct sockaddr *)&kernel, sizeof(kernel));
    return sent < 0 ? -errno : 0;
}

// ---- answers ----

static const struct nlmsghdr *netlink_next(const char *bytes, size_t len, size_t *at) {
    if (len < *at || len - *at < sizeof(struct nlmsghdr)) return NULL;
    const struct nlmsghdr *message = (const struct nlmsghdr *)(const void *)(bytes + *at);
    if (message->nlmsg_len < sizeof(*message) || message->nlmsg_len > len - *at) return NULL;
    *at += NLMSG_ALIGN(message->nlmsg_len);
    return message;
}

// 0 for an acknowledgement.
static int netlink_error(const struct nlmsghdr *message) {
    if (message->nlmsg_len < NLMSG_LENGTH(sizeof(struct nlmsgerr))) return -EPROTO;
    return ((const struct nlmsgerr *)NLMSG_DATA(message))->error;
}

int netlink_run(struct netlink *netlink, uint32_t *ret_sequence) {
    _Alignas(struct nlmsghdr) char bytes[ACKS_SIZE];
    bool answered = false;
    int result = netlink_send(netlink);
    ssize_t len = 0;
    if (result < 0) return result;
    while ((len = recv(netlink->fd, bytes, sizeof(bytes), MSG_DONTWAIT)) >= 0 || errno == EINTR) {
        const struct nlmsghdr *message;
        for (size_t at = 0; len > 0 && (message = netlink_next(bytes, (size_t)len, &at));) {
            if (message->nlmsg_type != NLMSG_ERROR) continue;
            answered = true;
            if (result < 0) continue;
            result = netlink_error(message);
            if (result < 0 && ret_sequence) *ret_sequence = message->nlmsg_seq;
        }
    }
    if (result == 0 && errno != EAGAIN) return -errno;
    return result == 0 && !answered ? -EPROTO : result;
}

int netlink_dump(struct netlink *netlink, int (*each)(const struct nlmsghdr *message, void *data), void *data) {
    int result = netlink_send(netlink);
    while (result == 0) {
        ssize_t len = recv(netlink->fd, netlink->bytes, sizeof(netlink->bytes), 0);
        if (len < 0 && errno == EINTR) continue;
        if (len < 0) return -errno;
        const struct nlmsghdr *message;
        for (size_t at = 0; result == 0 && (message = netlink_next(netlink->bytes, (size_t)len, &at));) {
            if (message->nlmsg_seq != netlink->sequence) continue; // of a dump before that was given up
            if (message->nlmsg_flags & NLM_F_DUMP_INTR) return -EINTR;
            if (message->nlmsg_type == NLMSG_DONE) return 0;
            result = message->nlmsg_type == NLMSG_ERROR ? netlink_error(message) : each(message, data);
        }
    }
    return result;
}

const struct nlattr *netlink_attribute(const struct nlmsghdr *message, size_t head_len, const struct nlattr *before) {
    const char *first = (const char *)message + NLMSG_HDRLEN + NLMSG_ALIGN(head_len);
    const char *at = before ? (const char *)before + NLA_ALIGN(before->nla_len) : first;
    const char *end = (const char *)message + message->nlmsg_len;
    if (at > end || (size_t)(end - at) < NLA_HDRLEN) return NULL;
    const struct nlattr *attribute = (const struct nlattr *)(const void *)at;
    return attribute->nla_len < NLA_HDRLEN || attribute->nla_len > end - at ? NULL : attribute;
}
