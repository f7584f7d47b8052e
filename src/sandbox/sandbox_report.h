// SPDX-License-Identifier: Apache-2.0
// What the sandbox's init tells the process that started it: one packet a report, over a SOCK_SEQPACKET pair.
#pragma once

#include <stdint.h>

#define SANDBOX_INIT_NAME "penstock-init" // what PID 1 of a sandbox is called

enum sandbox_report_kind {
    SANDBOX_REPORT_COMMAND =
        1,                  // sent by the command's process before it executes; the kernel adds its PID (SO_PASSCRED)
    SANDBOX_REPORT_STARTED, // the command was executed
    SANDBOX_REPORT_FAILED,  // value: errno of execve
    SANDBOX_REPORT_STOPPED, // value: the signal
    SANDBOX_REPORT_CONTINUED,
    SANDBOX_REPORT_EXITED, // value: the wait status
};

struct sandbox_report {
    uint32_t kind;
    int32_t value;
};
