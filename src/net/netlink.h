// SPDX-License-Identifier: Apache-2.0
// Netlink messages, as many as fit in one buffer, sent by one call. A kernel's answer is there when the call returns.
#pragma once

#include <linux/netlink.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NETLINK_SIZE 32768 // of the buffer; also what the kernel's dumps use

struct netlink {
    int fd;
    uint32_t sequence; // of the message that was begun last
    size_t used;       // bytes
    size_t message;    // where that message begins
    bool full;         // something did not fit
    _Alignas(struct nlmsghdr) char bytes[NETLINK_SIZE];
};

// 0 or -errno. Nothing but fd, sequence, used, message and full need to be set before (NETLINK_INIT).
#define NETLINK_INIT {.fd = -1}
int netlink_open(struct netlink *netlink, int protocol);
void netlink_close(struct netlink *netlink);

// Begins a message: NLM_F_REQUEST is added to its flags, the head is what comes before its attributes.
void netlink_message(struct netlink *netlink, uint16_t type, uint16_t flags, const void *head, size_t head_len);
void netlink_put_head(struct netlink *netlink, const void *head, size_t len); // of a message within a message
void netlink_put(struct netlink *netlink, uint16_t attribute, const void *bytes, size_t len);
void netlink_put_text(struct netlink *netlink, uint16_t attribute, const char *text); // with its NUL
void netlink_put_u8(struct netlink *netlink, uint16_t attribute, uint8_t value);
void netlink_put_u32(struct netlink *netlink, uint16_t attribute, uint32_t value);
size_t netlink_nest(struct netlink *netlink, uint16_t attribute); // attributes put from here are inside of it, until
void netlink_nest_end(struct netlink *netlink, size_t nest);

// Of the message that was begun last: success is reported too (failures always are).
void netlink_acknowledge(struct netlink *netlink);

// Sends the messages, takes their acknowledgements, and empties the buffer. 0, or the first -errno; ret_sequence (may be
// NULL) tells which message had it. -EPROTO: nothing was acknowledged.
int netlink_run(struct netlink *netlink, uint32_t *ret_sequence);
// Sends the one message, a dump, and gives each message of the answer to `each`, which returns 0 or -errno. -EINTR: what was
// dumped changed meanwhile.
int netlink_dump(struct netlink *netlink, int (*each)(const struct nlmsghdr *message, void *data), void *data);

#define NETLINK_FOR_ATTRIBUTES(attribute, message, head_len) \
    for (const struct nlattr *attribute = netlink_attribute(message, head_len, NULL); attribute; \
         attribute = netlink_attribute(message, head_len, attribute))
// The attribute after `before`, or the first one; NULL at the end. Payload follows the struct.
const struct nlattr *netlink_attribute(const struct nlmsghdr *message, size_t head_len, const struct nlattr *before);
