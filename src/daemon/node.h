// SPDX-License-Identifier: Apache-2.0
// The node: its sandboxes from creation to removal. Private to node*.c and serve.c.
//
// A sandbox is a row of the store, a folder and a shim. The row comes first and goes last, so that whatever a crash leaves
// behind is found by its row, or by its folder if there is no row (the sandboxes that build templates have none).
#pragma once

#include <event2/event.h>
#include <jansson.h>

#include "api/api.h"
#include "base/list.h"
#include "daemon/metrics.h"
#include "daemon/shim_link.h"
#include "policy/model.h"
#include "store/store.h"

// As it was read: the texts, which shims read again, and what they say.
struct node_config {
    const char *name;  // of the file, or NULL
    char *text;        // of the file; NULL: none
    json_t *variables; // the daemon's that belong to it
    struct policy_node node;
    struct ipc_resolver_start servers; // that resolvers ask
};
int node_config_read(const char *path, const char *const *dns, size_t dns_count, struct node_config *ret_config, struct error *err);
void node_config_done(struct node_config *config);

struct node {
    struct event_base *base;
    struct store *store;
    struct api *api;
    const char *state;       // folder
    const char *upstream_ca;
    char *token_seed;
    struct node_config config;
    unsigned renewals;       // of the configuration
    struct event *guard_event; // what others do to the kernel's rules
    struct list sandboxes, sweeps, builds;
    size_t sandbox_count, starting;
    struct shim_spare spare;
    struct event *spare_event;
    struct ipc_counters retired[POLICY_TYPE_COUNT]; // of sandboxes that have ended
    struct node_scrape *scrape; // NULL until metrics have been asked for
};

struct node_sandbox;
// status 0: it runs. Else an HTTP status, with a text: nothing is left of it, and sandbox is about to be freed.
typedef void node_started(struct node_sandbox *sandbox, int status, const char *text, void *data);
typedef void node_ended(const char *failure, void *data); // NULL: nothing is left of it

struct node_sandbox {
    struct list list;
    struct node *node;
    char id[STORE_ID_SIZE];
    char *folder;
    struct shim_link *link;
    struct event *timer;     // its end, or that of the patience with its start
    struct ipc_counters *counters; // that its gates had when they were asked last; NULL: never
    enum policy_type type;
    bool starting, up, paused, counting, cold, ending, adopted, hidden, killed; // hidden: without a row
    bool unstored;           // its row does not say yet what its shim has
    uint64_t found;          // the generation that this is
    unsigned retry_s;        // of what could not be removed; 0: nothing failed yet
    char *layers;            // hidden: what it stands on; others have it in their row
    unsigned renewals;       // of the node's, when its policy was told what the configuration says
    char *policy;            // of one without a row
    enum policy_dialect dialect;
    char failure[1024];      // of the start
    int status;              // of HTTP, for that; 0: 500
    node_started *started;   // until it has been called
    void *started_data;
    struct list enders;      // who waits for its end
    struct list updates;     // of its policy: the first is under way (node_call.c)
};

// ---- node_sandbox.c, node_reconcile.c: life cycle ----

// The policy of that generation is in force, and its row cannot say so: that is done later.
void node_store_later(struct node_sandbox *sandbox, uint64_t generation, const struct error *why);
// Of one that is unstored: tries again. Until then no policy of it is touched.
int node_store_found(struct node_sandbox *sandbox, struct error *err);

struct node_sandbox *node_find(const struct node *node, const char *id); // NULL: none
// Boots the sandbox of a row. extra: what its specification says more ("argv"), or NULL. hidden: the row is not in the store.
// 0 (started will be called, later), or a negative errno with a message (it will not, nothing is left).
int node_boot(struct node *node, const struct store_sandbox *row, bool hidden, node_started *started, void *data,
              struct node_sandbox **ret_sandbox, struct error *err);
// Ends it. ended: NULL if nobody waits; else called later.
void node_end(struct node_sandbox *sandbox, node_ended *ended, void *data);
// What it does when its time is over at end_us (0: never).
void node_set_timer(struct node_sandbox *sandbox, int64_t end_us);
// The sandbox of a folder that another daemon made. keep: it runs on if it still answers; else it is cleaned up. hidden: it
// has no row.
int node_adopt(struct node *node, const char *id, enum policy_type type, bool keep, bool hidden, struct error *err);
// Has its policy judged by the node's configuration as it is now.
void node_push_policy(struct node_sandbox *sandbox);
// Finds the sandboxes of the last daemon again, and cleans up what is left of others.
int node_reconcile(struct node *node, struct error *err);
// Before the daemon ends: what is being removed is gone then, and builds have failed, unless that takes long.
void node_settle(struct node *node);
// Takes the configuration's place, and has every sandbox judged by it: all of them could, or the old one stays. 0, or a
// negative errno with a message.
int node_renew(struct node *node, struct node_config *config, struct error *err);
void node_free(struct node *node); // sandboxes live on
// Has a shim ready for the next start, once none is under way.
void node_prepare(struct node *node);
// Removes a folder tree with what the sandbox of that id (or "-") left behind. ended is called later, unless NULL.
void node_sweep(struct node *node, const char *id, const char *folder, node_ended *ended, void *data);

// ---- node_spec.c: what a shim is told ----

// What a shim takes for a policy (IPC_SHIM_POLICY). NULL: out of memory.
json_t *node_policy_json(const struct node_config *config, const char *policy, enum policy_dialect dialect, uint64_t generation);
// Writes the specification of a sandbox into its folder. 0, or a negative errno with a message.
int node_write_spec(struct node_sandbox *sandbox, const struct store_sandbox *row, struct error *err);

// ---- node_metrics.c ----

void node_metrics(void *data, struct api_call *call);
void node_counted(const struct ipc_counters *counters, void *sandbox);
void node_count_out(struct node_sandbox *sandbox); // its shim has gone
void node_scrape_free(struct node *node);

// ---- node_guard.c: the configuration in the kernel ----

// The first number of the users of the node's gates and resolvers; 0: they have no numbers of their own.
uint32_t node_guard_users(const struct node *node);
// What the configuration denies, no gate of the node reaches. Nothing if they have no numbers of their own. 0, or a negative
// errno with a message.
int node_guard_load(const struct node *node, const struct node_config *config, struct error *err);
// From now on they come back when somebody takes them away.
int node_guard_watch(struct node *node, struct error *err);
// Takes them away, unless there are sandboxes, which live on. known: all of them have been found.
void node_guard_leave(struct node *node, bool known);

// ---- node_call.c, node_template.c ----

// Removes a layer that nobody needs (any more), or what there is of one that was not finished; or all of a JSON array, which
// may be NULL.
void node_remove_layer(struct node *node, const char *folder);
void node_remove_layers(struct node *node, const char *layers);
// The layers of a template or snapshot as they are now: to be freed; NULL: none.
char *node_template_layers(const struct node *node, const char *id);
// Compiles the policy of a row as its shim would. known: it is in force, so that a guardrail over one of its entries only warns,
// and a secret may be missing.
int node_compile(const struct node_config *config, const struct store_sandbox *row, bool known, struct policy **ret_policy,
                 struct error *err);

extern const struct api_backend node_backend;
void node_call_snapshot(void *data, struct api_call *call, const struct store_sandbox *row, const struct store_template *wanted,
                        bool replaces);
void node_call_fork(void *data, struct api_call *call, const struct store_sandbox *row, const struct store_sandbox *children,
                    size_t count);
// Of a template that is gone: those that go on are ended.
void node_build_cancel(struct node *node, const char *template_id);
void node_call_build(void *data, struct api_call *call, const struct store_template *item, const struct api_build *build);
void node_call_remove_template(void *data, struct api_call *call, const struct store_template *item);
