// SPDX-License-Identifier: Apache-2.0
#include "sandbox/report.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

int report_receive(int fd, int flags, struct sandbox_report *ret_report, pid_t *ret_pid) {
    union {
        char bytes[CMSG_SPACE(sizeof(struct ucred))];
        struct cmsghdr align;
    } control;
    struct iovec part = {.iov_base = ret_report, .iov_len = sizeof(*ret_report)};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
    ssize_t n = recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC | flags);
    // Once, if the other side was closed with our release unread; what it had said before is still to be read.
    if (n < 0 && errno == ECONNRESET) n = recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC | flags);
    if (n < 0) return -errno;
    if (n != (ssize_t)sizeof(*ret_report)) return 0;
    *ret_pid = 0;
    const struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    if (header && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_CREDENTIALS) {
        struct ucred sender;
        memcpy(&sender, CMSG_DATA(header), sizeof(sender));
        *ret_pid = sender.pid;
    }
    return 1;
}
