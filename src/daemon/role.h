// SPDX-License-Identifier: Apache-2.0
// The processes of one sandbox: started, told what to do, watched, ended.
#pragma once

#include <errno.h>
#include <stdbool.h>
#include <sys/types.h>

#include "base/error.h"
#include "net/net.h"

#define ROLE_USERS (1 << 24) // as root, gate and resolver are users behind the numbers that sandboxes get, the vault by as much again

enum role_kind { ROLE_KEEPER, ROLE_RESOLVER, ROLE_GATE, ROLE_VAULT, ROLE_COUNT };

struct role {
    enum role_kind kind;
    pid_t pid;    // 0: not running
    int pidfd;
    int channel;  // to the process
};

// For whoever holds policies with credentials in the clear: no core dump of this process, and nobody of its user looks into it.
void role_keep_secrets(void);
const char *role_name(enum role_kind kind);
// Starts this very program in the role, in a session of its own (so that no signal of the terminal reaches it), with one
// channel as its only descriptor besides standard error, in the folder /.
// uid 0: keeps the user. environment NULL: an empty one.
int role_start(struct role *role, enum role_kind kind, uid_t uid, gid_t gid, char *const *environment, struct error *err);
// Waits for a message of this type. An IPC_ERROR of the process, or its end, becomes the error.
int role_expect(struct role *role, enum ipc_type type, struct channel_message *ret_message, struct error *err);
int role_send(struct role *role, enum ipc_type type, const void *body, size_t len, const int *fds, size_t fd_count,
              struct error *err);
// Whether an error of the two above means that the process is gone.
static inline bool role_has_ended(int rc) { return rc == -EPIPE || rc == -ECONNRESET; }
// Has it killed without waiting; role_stop then waits.
void role_kill(struct role *role);
// Closes the channel, which ends the process; kills it if it is still there after timeout_ms. Reaps.
void role_stop(struct role *role, int timeout_ms);
