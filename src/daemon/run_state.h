// SPDX-License-Identifier: Apache-2.0
// What is held for one sandbox while it runs: of `penstock run`, and of a shim. Private to run*.c and shim*.c.
#pragma once

#include <event2/event.h>

#include "daemon/credential.h"
#include "daemon/daemon.h"
#include "daemon/nameserver.h"
#include "daemon/role.h"
#include "policy/model.h"
#include "sandbox/sandbox.h"

struct run {
    const struct daemon_run *options;
    struct event_base *base;
    struct role roles[ROLE_COUNT];
    struct role last_vault;          // of the policy before, until the gate has this one
    struct event *role_events[ROLE_COUNT], *child_event, *state_event, *signal_event, *host_event;
    struct event *question_event;    // of a gate, for a resolver that has not been started
    struct policy *policy, *previous;
    struct credentials *credentials; // NULL: nothing is bound
    struct ipc_resolver_start servers;
    uint32_t users;                  // of a node: its first number for gates and resolvers (net/guard.h); else 0
    struct nameserver_probe probe;
    void (*active)(struct run *run, const struct ipc_active *report); // a policy is in force everywhere; or NULL
    void (*counted)(struct run *run, const struct ipc_counters *counters); // the gate, as IPC_GATE_COUNT asks for; or NULL
    struct sandbox_spec spec;
    struct sandbox_process *process;
    struct decision_log *log;
    char *state_folder;              // of the vault; NULL: there is no place for one
    const char *protects[5], *hides[3], **secrets; // of spec
    char **placeholders;
    char name[64];
    int user_namespace, net_namespace, signals, host_watch, child;
    int keeper;                      // the end of a channel to the keeper which the first gate gets
    int questions;                   // the end of a channel to the gate which that resolver gets; -1: it has it
    int roots;                       // memory file with what --upstream-ca names, or -1
    uint64_t generation, restart_window_us;
    uint64_t heard, heard_us;        // messages of gates, and when the last one was found
    uint64_t in_force;               // generation of the last policy that a gate said it has
    uint64_t bytes_out;              // of the sandbox, as its gates have told
    unsigned restarts, gates;        // gates: that have been begun
    bool cut_off;                    // it has no network any more, whatever its policy says
    bool prepared, log_failed, gate_started, resolver_ready, probed;
    int status;
};

// ---- run_watch.c: from start to end ----

// Keeper, with its namespaces, and gate are started, and wait until it is known what for. May be called before run_init.
int run_start_ahead(struct run *run, struct error *err);
void run_stop_ahead(struct run *run);
// Nothing more is running after it: options and name outlive the run.
int run_init(struct run *run, const struct daemon_run *options, const char *name, struct error *err);
// Compiles the policy and takes the secrets out of this process.
int run_open(struct run *run, struct error *err);
// Begins what gets ready by itself, but for the gate. Then run->spec.trust is there, and namespaces can be waited for.
int run_begin(struct run *run, struct error *err);
int run_begin_gate(struct run *run, struct error *err);
// Waits until nothing can reach the network but as the policy says. rc: of what was done meanwhile, and returned if negative.
int run_await(struct run *run, int rc, struct error *err);
int run_compile(struct run *run, struct policy **ret_policy, struct policy_warnings *warnings, struct error *err);
bool run_listen(struct run *run, int fd, event_callback_fn handler, void *data, struct event **event);
// From now on, in the event loop: the roles; the host's addresses.
void run_watch(struct run *run);
int run_watch_host(struct run *run, struct error *err);
// A gate says that it has a policy.
void run_in_force(struct run *run, const struct ipc_active *report);
// Reads what the gate has sent. False when it is gone; then run_role_gone.
bool run_drain_gate(struct run *run);
void run_role_gone(struct run *run, enum role_kind kind);
// The sandbox has ended: the gate's last records, and the end of all roles. Then run_free, when they have been read.
void run_close(struct run *run);
void run_free(struct run *run);

// ---- run.c, run_container.c ----

// Instead of daemon_run's own, where options->container is.
int run_container(const struct daemon_run *options);
// What is wrong with secrets that are not read yet.
int run_look_at_secrets(const struct policy_model *model, struct error *err);
// The command has ended: its policy, and what there is to say.
int run_conclude(const struct run *run, struct error *err);
// Says why nothing ran. The exit status; prepared: -ENOENT or -EACCES if it was for the command.
int run_failure(int prepared, const struct error *err);

// ---- run_place.c: folders of containers without a node ----

struct run_place {
    char *images, *runs; // of all images; of all runs
    char *folder;        // of this container alone; NULL: not yet
    int lock;            // as long as it is held, nobody takes that for what is left of a run that was killed
};
// Finds or makes the folders that all share. 0, or a negative errno with a message.
int run_place_open(struct run_place *ret_place, struct error *err);
// Removes what runs that were killed have left, then makes the container's own, which is empty.
int run_place_take(struct run_place *place, const char *name, struct error *err);
void run_place_close(struct run_place *place); // the folder, which is empty again, goes

// ---- run_spec.c: what the sandbox room is told ----

// Fills spec's lists of files. After credentials_new.
int run_fill_spec(struct run *run, struct error *err);
// Of these only the variables that tools insist on.
int run_fill_placeholders(struct run *run, struct error *err);
void run_clear_spec(struct run *run);

// ---- run_roles.c: the processes of a run ----

// The keeper is first, so that it is there when it is told what to do. One that runs already is left.
int run_start_role(struct run *run, enum role_kind kind, struct error *err);
// The vault is started, the keeper gets ready. Then run->spec.trust is there.
int run_begin_roles(struct run *run, struct error *err);
int run_await_namespaces(struct run *run, struct error *err);
int run_await_roles(struct run *run, struct error *err);
// The resolver, to which the questions that wait for it are given.
int run_start_late_resolver(struct run *run, struct error *err);
// The resolver asks these from now on.
int run_set_servers(struct run *run, const struct ipc_resolver_start *servers, struct error *err);
int run_send_policy(struct run *run, bool keep_existing, struct error *err);
// Where credentials are bound, before or after: the vault's rules and the gate's are numbered alike, so both change at once,
// and a gate is told of another vault with the policy. Takes credentials (NULL: none are bound any more), also if it fails.
int run_send_rules(struct run *run, struct credentials *credentials, bool keep_existing, struct error *err);
// Starts one again that died, within a budget of restarts; beyond it the sandbox has no network (vault: no credentials).
void run_restart(struct run *run, enum role_kind dead);
// The gate has lost its channel to a vault that may be there still: another one.
void run_rejoin_vault(struct run *run);
// No more restarts: what cannot be logged must not happen.
void run_no_restarts(struct run *run);
// Reads the file of --upstream-ca, if there is one, into run->roots. 0, or negative errno with a message.
int run_read_roots(struct run *run, struct error *err);
