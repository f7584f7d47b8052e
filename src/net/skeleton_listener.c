// SPDX-License-Identifier: Apache-2.0
// TCP listeners for the skeleton without nft: one a port and family, on every address, which all are the sandbox's own there.
//
// While no gate is connected the kernel has to refuse, at once, and so that nothing of the sandbox can take the ports. So a
// listener is never closed: it is bound to an interface that does not exist. The kernel then looks past it and answers with
// a reset (datagrams: port unreachable), while bind() still finds the port taken. To bind to another interface takes
// CAP_NET_RAW, which a gate does not have. Connections that a dead gate held are reset like on any network.
//
// Without SO_REUSEPORT nobody can join a listener; without SO_REUSEADDR nobody can bind beside it. (A socket of the sandbox
// that is bound to lo while the listener is closed could have its own connections to itself.)
#include <errno.h>
#include <limits.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"
#include "net/skeleton.h"

#ifndef SO_BINDTOIFINDEX
#define SO_BINDTOIFINDEX 62
#endif
#define LISTENER_NOWHERE INT_MAX // an interface's number
#define LISTENER_BACKLOG 256     // connections that wait for a gate to accept them, each with what its client sent

bool skeleton_lacks(int error) {
    return error == EAFNOSUPPORT || error == EPROTONOSUPPORT || error == ESOCKTNOSUPPORT || error == ENOPROTOOPT;
}

int skeleton_listener_open(int fd, bool open) {
    int interface = open ? 0 : LISTENER_NOWHERE;
    return setsockopt(fd, SOL_SOCKET, SO_BINDTOIFINDEX, &interface, sizeof(interface)) < 0 ? -errno : 0;
}

static int skeleton_listener_make(int family, uint16_t port) {
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(port)};
    struct sockaddr_in6 in6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    AUTO_CLOSE int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP);
    int one = 1;

    if (fd < 0) return -errno;
    if (family == AF_INET6 && setsockopt(fd, SOL_IPV6, IPV6_V6ONLY, &one, sizeof(one)) < 0) return -errno;
    int result = skeleton_listener_open(fd, false);
    if (result < 0) return result;
    const struct sockaddr *name = family == AF_INET ? (const struct sockaddr *)&in : (const struct sockaddr *)&in6;
    if (bind(fd, name, family == AF_INET ? sizeof(in) : sizeof(in6)) < 0) return -errno;
    return listen(fd, LISTENER_BACKLOG) < 0 ? -errno : TAKE_FD(fd);
}

int skeleton_listener(const struct ipc_ports *ports, int *ret_fds, struct error *err) {
    static const int families[] = {AF_INET, AF_INET6};
    for (size_t i = 0; i < ports->count * ARRAY_LENGTH(families); i++) {
        uint16_t port = ports->ports[i / 2];
        ret_fds[i] = skeleton_listener_make(families[i % 2], port);
        if (ret_fds[i] >= 0) continue;
        int result = error_set(err, ret_fds[i], "cannot listen on port %u in the sandbox's namespace: %s; %s", port,
                               strerror(-ret_fds[i]),
                               ret_fds[i] == -EMFILE ? "raise the limit (ulimit -n)" : "use " SKELETON_LISTENER_NEEDS);
        while (i-- > 0) close(TAKE_FD(ret_fds[i]));
        return result;
    }
    return 0;
}
