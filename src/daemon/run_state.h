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
    struct event *question_event;    // of a gate, for a resolver that has not been started
    struct policy *policy, *previous;
    struct credentials *credentials; // NULL: nothing is bound
    struct ipc_resolver_start servers;
    struct sandbox_spec spec;
    struct sandbox_process *process;
    struct decision_log *log;
    char *state_folder;              // of the vault; NULL: there is no place for one
    const char *protects[5], *hides[3], **secrets; // of spec
    char **placeholders;
    char name[64];
    int user_namespace, net_namespace, signals, host_watch, child;
    int questions;                   // the end of a channel to the gate which that resolver gets; -1: it has it
    int roots;                       // memory file with what --upstream-ca names, or -1
    uint64_t generation, restart_window_us;
    uint64_t bytes_out;              // of the sandbox, as its gates have told
    unsigned restarts;
    bool log_failed, gate_started, resolver_ready;
    bool keep_existing;              // flows that the next policy does not allow stay open
    int status;
};

// ---- run_spec.c: what the sandbox room is told ----

// Fills spec's lists of files. After credentials_new.
int run_fill_spec(struct run *run, struct error *err);
void run_clear_spec(struct run *run);

// ---- run_roles.c: the processes of a run ----

// The keeper is first, so that it is there when it is told what to do.
int run_start_role(struct run *run, enum role_kind kind, struct error *err);
// The vault is started, keeper and gate get ready. Then run->spec.trust is there.
int run_begin_roles(struct run *run, struct error *err);
int run_await_namespaces(struct run *run, struct error *err);
int run_await_roles(struct run *run, struct error *err);
// The resolver, to which the questions that wait for it are given.
int run_start_late_resolver(struct run *run, struct error *err);
int run_send_policy(struct run *run, struct error *err);
// Starts one again that died, within a budget of restarts; beyond it the sandbox has no network (vault: no credentials).
void run_restart(struct run *run, enum role_kind dead);
// The gate has lost its channel to a vault that may be there still: another one.
void run_rejoin_vault(struct run *run);
// No more restarts: what cannot be logged must not happen.
void run_no_restarts(struct run *run);
// Reads the file of --upstream-ca, if there is one, into run->roots. 0, or negative errno with a message.
int run_read_roots(struct run *run, struct error *err);
