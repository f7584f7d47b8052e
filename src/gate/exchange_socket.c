// SPDX-License-Identifier: Apache-2.0
// The host's side of an exchange: a connected UDP socket, or a "ping socket" (icmp(7)), for which the host's
// net.ipv4.ping_group_range has to hold one of our groups. Errors of the network are queued, to be passed on.
//
// The guard against reaching the host itself is that of a TCP dial (semantics section 2): only a connected socket knows.
#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "base/mem.h"
#include "gate/exchange.h"

// 0, or why this socket must not be used.
static int exchange_socket_verify(int fd, const struct addr *server) {
    struct sockaddr_storage name = {0};
    socklen_t len = sizeof(name);
    struct addr local;
    uint16_t port;
    if (getsockname(fd, (struct sockaddr *)&name, &len) < 0) return -errno;
    int rc = addr_from_sockaddr((struct sockaddr *)&name, &local, &port);
    if (rc < 0) return rc;
    // Only an address that the policy has allowed gets here, so loopback was opened by an entry.
    if (addr_is_loopback(&local)) return addr_is_loopback(server) ? 0 : -ELOOP;
    return addr_equal(&local, server) ? -ELOOP : 0;
}

static void exchange_socket_options(int fd, bool ipv4) {
    int on = 1;
    if (ipv4) setsockopt(fd, IPPROTO_IP, IP_RECVERR, &on, sizeof(on));
    else setsockopt(fd, IPPROTO_IPV6, IPV6_RECVERR, &on, sizeof(on));
}

static uint16_t exchange_socket_mtu(int fd, bool ipv4) {
    int mtu = 0;
    socklen_t len = sizeof(mtu);
    int rc = ipv4 ? getsockopt(fd, IPPROTO_IP, IP_MTU, &mtu, &len) : getsockopt(fd, IPPROTO_IPV6, IPV6_MTU, &mtu, &len);
    return rc < 0 || mtu <= 0 || mtu > EXCHANGE_MTU ? EXCHANGE_MTU : (uint16_t)mtu;
}

int exchange_socket(const struct exchange_key *key, uint16_t *ret_mtu) {
    bool ipv4 = key->server.family == ADDR_IPV4, echo = key->protocol == POLICY_ICMP;
    int protocol = !echo ? IPPROTO_UDP : ipv4 ? IPPROTO_ICMP : IPPROTO_ICMPV6;
    struct sockaddr_storage to;
    socklen_t to_len = addr_to_sockaddr(&key->server, key->port, &to);
    AUTO_CLOSE int fd = socket(to.ss_family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, protocol);
    if (fd < 0) return echo && errno == EACCES ? -EPERM : -errno;
    exchange_socket_options(fd, ipv4);
    if (connect(fd, (struct sockaddr *)&to, to_len) < 0) return -errno;
    int rc = exchange_socket_verify(fd, &key->server);
    if (rc < 0) return rc;
    *ret_mtu = exchange_socket_mtu(fd, ipv4);
    return TAKE_FD(fd);
}
