// SPDX-License-Identifier: Apache-2.0
// What a shim holds. Private to shim*.c.
#pragma once

#include "base/list.h"
#include "daemon/metrics.h"
#include "daemon/run_state.h"
#include "daemon/shim.h"
#include "daemon/shim_spec.h"

#define SHIM_PEERS_MAX 8
#define SHIM_EXECS_MAX 256
#define SHIM_TEXT_MAX (16 << 20) // bytes of a specification, or of what a call takes
#define SHIM_LOG_MAX (16 << 20)  // bytes of a decision log; the one before is kept too
#define SHIM_UPDATE_US 5000000   // for a gate to bring a policy into force

struct shim;

// A connection of the daemon's.
struct shim_peer {
    struct list list;
    struct shim *shim;
    struct event *event;
    int fd;
};

// A command that a call has begun.
struct shim_exec {
    struct list list;
    struct shim *shim;
    struct shim_peer *peer; // NULL: it has gone
    struct event *event, *unread;
    uint32_t id;
    pid_t pid;
    int pidfd;
    int output; // its standard output too, to see when nobody reads it; -1: it has none
};

struct shim {
    struct run run;
    struct daemon_run options;
    struct shim_spec spec;
    struct sandbox_container *container;
    struct list peers, execs;
    size_t peer_count, exec_count;
    struct event *listen_event, *end_event, *term_event, *crun_event, *update_event;
    int listener, end_fd, log;
    // The update that is under way, if any.
    bool updating;
    struct shim_peer *update_peer; // NULL: it has gone
    struct ipc_ports update_ports; // to be opened when the gate has the policy
    uint32_t update_id;
    uint64_t update_us;            // when it began
    bool trusted;                  // programs inside trust our CA
    struct ipc_counters last, retired; // of this gate when it last said so; of those before it
    unsigned last_gate; // the one of `last`
    bool paused;
    int failure;                   // of the start, as the daemon is told: -EINVAL, -EAGAIN; 0: another
};

// The whole file. 0, or a negative errno with a message; freed by the caller.
int shim_read_fd(int fd, char **ret_text, struct error *err);

// ---- shim_call.c: connections, and what they ask for ----

// Opens the socket in the working directory, which is the sandbox's folder.
int shim_listen(struct shim *shim, struct error *err);
// Takes a descriptor, and says that the sandbox is up.
int shim_welcome(struct shim *shim, int fd, struct error *err);
void shim_forget_commands(struct shim *shim); // which have ended with the container
// Runs what the template says is to run in each of its sandboxes, if it says so. Its output goes nowhere.
int shim_start_command(struct shim *shim, struct error *err);
void shim_hang_up(struct shim *shim); // all connections, once nothing is left to be said
