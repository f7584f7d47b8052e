// SPDX-License-Identifier: Apache-2.0
// Reports of a sandbox's init, where they are received.
#pragma once

#include <sys/types.h>

#include "sandbox/sandbox_report.h"

// Does not wait. flags: as of recvmsg(2). 1: a report; *ret_pid is its sender's if the socket has SO_PASSCRED, else 0. 0: the
// other side is closed. -EAGAIN, -errno.
int report_receive(int fd, int flags, struct sandbox_report *ret_report, pid_t *ret_pid);
