// SPDX-License-Identifier: Apache-2.0
// Channels: one sendmsg or recvmsg is one whole message (SOCK_SEQPACKET), descriptors travel with it (SCM_RIGHTS).
//
// Both ends are our own processes, but a gate parses hostile bytes and may be taken over: whatever arrives is checked by
// ipc_check before anyone sees it, and descriptors of a message that is refused are closed here. Nothing ever blocks but
// channel_wait, which is for the start of a role, before its loop.
#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "base/clock.h"
#include "base/mem.h"
#include "net/net.h"

int channel_pair(int ret_fds[2]) {
    int fds[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) < 0) return -errno;
    ret_fds[0] = fds[0];
    ret_fds[1] = fds[1];
    return 0;
}

// What sendmsg's errors mean to a sender that can only wait or give up.
static int channel_send_error(int error) {
    switch (error) {
    case EAGAIN:
    case ENOBUFS:
    case ETOOMANYREFS: return -EAGAIN;
    case EPIPE:
    case ECONNRESET:
    case ENOTCONN: return -EPIPE;
    default: return -error;
    }
}

static int channel_send_parts(int fd, enum ipc_type type, struct iovec parts[3], const int *fds, size_t fd_count) {
    struct ipc_header header = {.type = (uint32_t)type, .length = (uint32_t)(parts[1].iov_len + parts[2].iov_len)};
    union {
        char bytes[CMSG_SPACE(sizeof(int) * IPC_FDS_MAX)];
        struct cmsghdr align;
    } control = {0};

    if (fd_count > IPC_FDS_MAX) return -EINVAL;
    parts[0] = (struct iovec){.iov_base = &header, .iov_len = sizeof(header)};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 3};
    if (fd_count > 0) {
        message.msg_control = control.bytes;
        message.msg_controllen = CMSG_SPACE(sizeof(int) * fd_count);
        struct cmsghdr *cmsg = CMSG_FIRSTHDR(&message);
        cmsg->cmsg_level = SOL_SOCKET;
        cmsg->cmsg_type = SCM_RIGHTS;
        cmsg->cmsg_len = CMSG_LEN(sizeof(int) * fd_count);
        memcpy(CMSG_DATA(cmsg), fds, sizeof(int) * fd_count);
    }
    ssize_t sent;
    do {
        sent = sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    } while (sent < 0 && errno == EINTR);
    return sent < 0 ? channel_send_error(errno) : 0;
}

// sendmsg takes pointers to non-const; it does not write through them.
static struct iovec channel_part(const void *bytes, size_t len) {
    return (struct iovec){.iov_base = (void *)(uintptr_t)bytes, .iov_len = len};
}

int channel_send(int fd, enum ipc_type type, const void *body, size_t len, const int *fds, size_t fd_count) {
    struct iovec parts[3] = {[1] = channel_part(body, len)};
    return channel_send_parts(fd, type, parts, fds, fd_count);
}

int channel_send_tail(int fd, enum ipc_type type, const void *body, size_t len, const void *tail, size_t tail_len) {
    struct iovec parts[3] = {[1] = channel_part(body, len), [2] = channel_part(tail, tail_len)};
    return channel_send_parts(fd, type, parts, NULL, 0);
}

// Moves the descriptors out of the control data. False if there were more than a message can have.
static bool channel_take_fds(struct msghdr *header, struct channel_message *message) {
    bool fits = (header->msg_flags & MSG_CTRUNC) == 0;
    for (struct cmsghdr *cmsg = CMSG_FIRSTHDR(header); cmsg; cmsg = CMSG_NXTHDR(header, cmsg)) {
        if (cmsg->cmsg_level != SOL_SOCKET || cmsg->cmsg_type != SCM_RIGHTS) continue;
        size_t count = (cmsg->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(cmsg) + i * sizeof(int), sizeof(fd));
            if (message->fd_count < IPC_FDS_MAX) {
                message->fds[message->fd_count++] = fd;
            } else {
                close(fd);
                fits = false;
            }
        }
    }
    return fits;
}

int channel_receive(int fd, void *buffer, size_t size, struct channel_message *ret_message) {
    union {
        char bytes[CMSG_SPACE(sizeof(int) * IPC_FDS_MAX)];
        struct cmsghdr align;
    } control = {0};
    struct iovec part = {.iov_base = buffer, .iov_len = size};
    struct msghdr header = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof(control.bytes)};
    struct channel_message message = {0};
    for (size_t i = 0; i < IPC_FDS_MAX; i++) message.fds[i] = -1;

    ssize_t got;
    int resets = 0; // one, if the other side was closed with something of ours unread; what it had said before is still to be read
    do {
        got = recvmsg(fd, &header, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    } while (got < 0 && (errno == EINTR || (errno == ECONNRESET && resets++ == 0)));
    if (got < 0) return errno == ECONNRESET ? 0 : -errno;

    bool good = channel_take_fds(&header, &message) && (header.msg_flags & MSG_TRUNC) == 0;
    if (got == 0 && message.fd_count == 0) return 0;
    struct ipc_header ipc = {0};
    if (good && (size_t)got >= sizeof(ipc)) {
        memcpy(&ipc, buffer, sizeof(ipc));
        message.type = ipc.type;
        message.length = ipc.length;
        message.body = (const char *)buffer + sizeof(ipc);
        good = ipc.length == (size_t)got - sizeof(ipc) &&
               ipc_check(ipc.type, message.body, ipc.length, message.fd_count) == 0;
    } else {
        good = false;
    }
    if (!good) {
        channel_message_close(&message);
        return -EBADMSG;
    }
    *ret_message = message;
    return 1;
}

int channel_wait(int fd, int timeout_ms, void *buffer, size_t size, struct channel_message *ret_message) {
    uint64_t end = timeout_ms < 0 ? UINT64_MAX : clock_us() + (uint64_t)timeout_ms * 1000;
    for (;;) {
        int result = channel_receive(fd, buffer, size, ret_message);
        if (result != -EAGAIN) return result;
        uint64_t now = clock_us();
        if (now >= end) return -ETIMEDOUT;
        struct pollfd item = {.fd = fd, .events = POLLIN};
        if (poll(&item, 1, timeout_ms < 0 ? -1 : (int)((end - now + 999) / 1000)) < 0 && errno != EINTR) return -errno;
    }
}

void channel_message_close(struct channel_message *message) {
    for (size_t i = 0; i < message->fd_count; i++) {
        if (message->fds[i] >= 0) close(message->fds[i]);
        message->fds[i] = -1;
    }
    message->fd_count = 0;
}
