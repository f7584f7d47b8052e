// SPDX-License-Identifier: Apache-2.0
// Facts about the host's network, from rtnetlink.
//
// Own addresses are the entries of type "local" of any routing table that are one address each. 127.0.0.0/8 and other
// local prefixes (AnyIP) are not listed one by one; what is reached over them is caught after the dial.
#include <errno.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>

#include "base/mem.h"
#include "net/netlink.h"
#include "net/net.h"

#define HOST_ADDRESSES_MAX 65536
#define HOST_DUMP_TRIES 8

struct host_list {
    struct addr *addresses;
    size_t count, size;
};

static int host_list_add(struct host_list *list, const struct addr *address) {
    if (list->count == HOST_ADDRESSES_MAX) return -E2BIG;
    if (list->count == list->size) {
        size_t size = list->size ? list->size * 2 : 32;
        struct addr *grown = reallocarray(list->addresses, size, sizeof(*grown));
        if (!grown) return -ENOMEM;
        list->addresses = grown;
        list->size = size;
    }
    list->addresses[list->count++] = *address;
    return 0;
}

static int host_route(const struct nlmsghdr *message, void *data) {
    const struct rtmsg *route = NLMSG_DATA(message);
    if (message->nlmsg_type != RTM_NEWROUTE || message->nlmsg_len < NLMSG_LENGTH(sizeof(*route))) return 0;
    bool ipv4 = route->rtm_family == AF_INET;
    if (route->rtm_type != RTN_LOCAL || (!ipv4 && route->rtm_family != AF_INET6)) return 0;
    if (route->rtm_dst_len != (ipv4 ? 32 : 128)) return 0;
    NETLINK_FOR_ATTRIBUTES(attribute, message, sizeof(*route)) {
        if ((attribute->nla_type & NLA_TYPE_MASK) != RTA_DST || attribute->nla_len != NLA_HDRLEN + (ipv4 ? 4 : 16)) continue;
        struct addr address = addr_from_bytes((const uint8_t *)attribute + NLA_HDRLEN, ipv4 ? ADDR_IPV4 : ADDR_IPV6);
        return host_list_add(data, &address);
    }
    return 0;
}

// A dump during which the table changed (EINTR) is not the table: taken again.
static int host_dump_whole(struct netlink *netlink, unsigned char family, struct host_list *list) {
    size_t before = list->count;
    int result = -EINTR;
    for (int i = 0; i < HOST_DUMP_TRIES && result == -EINTR; i++) {
        struct rtmsg route = {.rtm_family = family};
        list->count = before;
        netlink_message(netlink, RTM_GETROUTE, NLM_F_DUMP, &route, sizeof(route));
        result = netlink_dump(netlink, host_route, list);
    }
    return result;
}

static int host_compare(const void *a, const void *b) { return addr_compare(a, b); }

static void host_list_unique(struct host_list *list) {
    size_t kept = 0;
    if (list->count > 1) qsort(list->addresses, list->count, sizeof(*list->addresses), host_compare);
    for (size_t i = 0; i < list->count; i++) {
        if (kept > 0 && addr_equal(&list->addresses[kept - 1], &list->addresses[i])) continue;
        list->addresses[kept++] = list->addresses[i];
    }
    list->count = kept;
}

int host_addresses(struct addr **ret_addresses, size_t *ret_count, struct error *err) {
    struct host_list list = {0};
    struct netlink netlink = NETLINK_INIT;
    int result = netlink_open(&netlink, NETLINK_ROUTE);

    if (result == 0) result = host_dump_whole(&netlink, AF_INET, &list);
    if (result == 0) result = host_dump_whole(&netlink, AF_INET6, &list);
    netlink_close(&netlink);
    if (result < 0) {
        free(list.addresses);
        return error_set(err, result,
                         "cannot read the host's own addresses from its routing table: %s; allow this process to open "
                         "netlink sockets",
                         strerror(-result));
    }
    host_list_unique(&list);
    *ret_addresses = list.addresses;
    *ret_count = list.count;
    return 0;
}

int host_watch_new(void) {
    struct sockaddr_nl address = {.nl_family = AF_NETLINK, .nl_groups = RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR};
    AUTO_CLOSE int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, NETLINK_ROUTE);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0) return -errno;
    return TAKE_FD(fd);
}

void host_watch_drain(int fd) {
    char buffer[4096];
    // ENOBUFS says that some were lost, which is a change too.
    while (recv(fd, buffer, sizeof(buffer), MSG_DONTWAIT) >= 0 || errno == EINTR || errno == ENOBUFS) {}
}

bool host_has_route(const struct addr *address) {
    struct sockaddr_storage to;
    socklen_t len = addr_to_sockaddr(address, 9, &to);
    AUTO_CLOSE int fd = socket(to.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    return fd >= 0 && connect(fd, (struct sockaddr *)&to, len) == 0;
}
