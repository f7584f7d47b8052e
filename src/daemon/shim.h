// SPDX-License-Identifier: Apache-2.0
// The shim: one process for each sandbox of a node, which is for a container what `penstock run` is for a command. It
// compiles the policy, holds keeper, gate, resolver, vault and container, and does what the daemon tells it. It lives on when
// the daemon dies, and is found again by its socket; when it dies, so do the gate and the keeper, and the sandbox has no
// network.
#pragma once

#include "base/error.h"
#include "wire/ipc.h"

// In the folder of a sandbox, which is its owner's alone.
#define SHIM_SPEC "spec.json"          // what it is to be (shim_spec.h); goes once it has been read
#define SHIM_IMAGE "image.json"        // {"layers": [...], "config": {...}}: what its image turned out to be
#define SHIM_SOCKET "control.sock"     // SOCK_SEQPACKET; any number of connections, each begins with IPC_SHIM_UP
#define SHIM_LOG "decisions.jsonl"
#define SHIM_ERRORS "shim.log"         // what it said on standard error

// "penstock @shim FOLDER USERS", descriptor 3: the first connection. It gets IPC_SHIM_UP, or IPC_SHIM_DONE with the number 0 when
// nothing is left of the attempt. USERS: the first number of the users of the node's gates and resolvers, or 0. Returns an exit
// status.
// A folder whose name begins with SHIM_SPARE: which one it is comes with IPC_SHIM_BEGIN, a name of the same length that is then
// put there, for all to see. What can be made ready is ready by then.
#define SHIM_SPARE '.'
int shim_main(char *folder, uint32_t users);
