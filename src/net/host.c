// SPDX-License-Identifier: Apache-2.0
// Facts about the host's network, from rtnetlink.
//
// Own addresses are the entries of type "local" of any routing table that are one address each. 127.0.0.0/8 and other
// local prefixes (AnyIP) are not listed one by one; what is reached over them is caught after the dial.
#include <errno.h>
#include <libmnl/libmnl.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/mem.h"
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
    struct host_list *list = data;
    const struct rtmsg *route = mnl_nlmsg_get_payload(message);
    bool ipv4 = route->rtm_family == AF_INET;
    struct nlattr *attribute;

    if (message->nlmsg_type != RTM_NEWROUTE || route->rtm_type != RTN_LOCAL) return MNL_CB_OK;
    if ((!ipv4 && route->rtm_family != AF_INET6) || route->rtm_dst_len != (ipv4 ? 32 : 128)) return MNL_CB_OK;
    mnl_attr_for_each(attribute, message, sizeof(*route)) {
        if (mnl_attr_get_type(attribute) != RTA_DST) continue;
        if (mnl_attr_get_payload_len(attribute) != (ipv4 ? 4 : 16)) return MNL_CB_OK;
        struct addr address = addr_from_bytes(mnl_attr_get_payload(attribute), ipv4 ? ADDR_IPV4 : ADDR_IPV6);
        int result = host_list_add(list, &address);
        if (result < 0) {
            errno = -result;
            return MNL_CB_ERROR;
        }
    }
    return MNL_CB_OK;
}

static int host_dump(struct mnl_socket *netlink, unsigned char family, struct host_list *list) {
    _Alignas(struct nlmsghdr) char buffer[32768]; // what the kernel's dumps use
    uint32_t sequence = (uint32_t)clock_us();
    struct nlmsghdr *message = mnl_nlmsg_put_header(buffer);

    message->nlmsg_type = RTM_GETROUTE;
    message->nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
    message->nlmsg_seq = sequence;
    struct rtmsg *route = mnl_nlmsg_put_extra_header(message, sizeof(*route));
    route->rtm_family = family;
    if (mnl_socket_sendto(netlink, message, message->nlmsg_len) < 0) return -errno;
    for (;;) {
        ssize_t got = mnl_socket_recvfrom(netlink, buffer, sizeof(buffer));
        if (got < 0) return -errno;
        int result = mnl_cb_run(buffer, (size_t)got, sequence, mnl_socket_get_portid(netlink), host_route, list);
        if (result < 0) return -errno;
        if (result == MNL_CB_STOP) return 0;
    }
}

// A dump during which the table changed (EINTR) is not the table: taken again.
static int host_dump_whole(struct mnl_socket *netlink, unsigned char family, struct host_list *list) {
    size_t before = list->count;
    int result = -EINTR;
    for (int i = 0; i < HOST_DUMP_TRIES && result == -EINTR; i++) {
        list->count = before;
        result = host_dump(netlink, family, list);
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
    struct mnl_socket *netlink = mnl_socket_open2(NETLINK_ROUTE, SOCK_CLOEXEC);
    int result = netlink && mnl_socket_bind(netlink, 0, MNL_SOCKET_AUTOPID) == 0 ? 0 : -errno;

    if (result == 0) result = host_dump_whole(netlink, AF_INET, &list);
    if (result == 0) result = host_dump_whole(netlink, AF_INET6, &list);
    if (netlink) mnl_socket_close(netlink);
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
