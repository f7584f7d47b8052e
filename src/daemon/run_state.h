// SPDX-License-Identifier: Apache-2.0
// What `penstock run` holds while it runs. Private to run*.c.
#pragma once

#include <event2/event.h>

#include "daemon/credential.h"
#include "daemon/daemon.h"
#include "daemon/role.h"
#include "policy/model.h"
#include "sandbox/sandbox.h"

struct run {
    const struct daemon_run *options;
    struct event_base *base;
    struct role roles[ROLE_COUNT];
    struct event *role_events[ROLE_COUNT], *child_event, *state_event, *signal_event, *host_event;
    struct policy *policy, *previous;
    struct credentials *credentials; // NULL: nothing is bound
    struct ipc_resolver_start servers;
    struct sandbox_spec spec;
    struct sandbox_process *process;
    struct decision_log *log;
    char *state_folder;              // of the vault; NULL: there is no place for one
    const char *protects[4], *hides[2], **secrets; // of spec
    char **placeholders;
    char name[64];
    int user_namespace, net_namespace, signals, host_watch, child;
    int roots;                       // memory file with what --upstream-ca names, or -1
    uint64_t generation, restart_window_us;
    unsigned restarts;
    bool log_failed, gate_started;
    int status;
};

// ---- run_spec.c: what the sandbox room is told ----

// Fills spec's lists of files. After credentials_new.
int run_fill_spec(struct run *run, struct error *err);
void run_clear_spec(struct run *run);

// ---- run_roles.c: the processes of a run ----

int run_start_roles(struct run *run, struct error *err);
int run_send_policy(struct run *run, struct error *err);
// Starts one again that died, within a budget of restarts; beyond it the sandbox has no network (vault: no credentials).
void run_restart(struct run *run, enum role_kind dead);
// The gate has lost its channel to a vault that may be there still: another one.
void run_rejoin_vault(struct run *run);
// No more restarts: what cannot be logged must not happen.
void run_no_restarts(struct run *run);
// Reads the file of --upstream-ca, if there is one, into run->roots. 0, or negative errno with a message.
int run_read_roots(struct run *run, struct error *err);
