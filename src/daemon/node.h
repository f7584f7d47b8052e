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
#include "daemon/shim_link.h"
#include "policy/model.h"
#include "store/store.h"

struct node {
    struct event_base *base;
    struct store *store;
    struct api *api;
    const char *state;       // folder
    const char *node_name, *upstream_ca;
    const char *const *dns;
    size_t dns_count;
    char *token_seed;
    char *node_text;         // configuration as it was read; NULL: none
    struct policy_node config;
    struct list sandboxes, sweeps;
    size_t sandbox_count, starting;
    struct shim_spare spare;
    struct event *spare_event;
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
    bool starting, up, paused, cold, ending, adopted, hidden; // hidden: without a row
    unsigned retry_s;        // of what could not be removed; 0: nothing failed yet
    char *layers;            // hidden: what it stands on; others have it in their row
    char failure[1024];      // of the start
    node_started *started;   // until it has been called
    void *started_data;
    struct list enders;      // who waits for its end
};

// ---- node_sandbox.c, node_reconcile.c: life cycle ----

struct node_sandbox *node_find(const struct node *node, const char *id); // NULL: none
// Boots the sandbox of a row. extra: what its specification says more ("argv"), or NULL. hidden: the row is not in the store.
// 0 (started will be called, later), or a negative errno with a message (it will not, nothing is left).
int node_boot(struct node *node, const struct store_sandbox *row, bool hidden, node_started *started, void *data,
              struct node_sandbox **ret_sandbox, struct error *err);
// Ends it. ended: NULL if nobody waits; else called later.
void node_end(struct node_sandbox *sandbox, node_ended *ended, void *data);
// What it does when its time is over at end_us (0: never).
void node_set_timer(struct node_sandbox *sandbox, int64_t end_us);
// {"policy", "dialect", "node", "node_name"} and so on, as a shim takes them. NULL: out of memory.
json_t *node_policy_json(const struct node *node, const char *policy, enum policy_dialect dialect, uint64_t generation);
// The sandbox of a folder that another daemon made. keep: it runs on if it still answers; else it is cleaned up. hidden: it
// has no row.
int node_adopt(struct node *node, const char *id, bool keep, bool hidden, struct error *err);
// Has its policy judged by the node's configuration as it is now.
void node_push_policy(struct node_sandbox *sandbox);
// Finds the sandboxes of the last daemon again, and cleans up what is left of others.
int node_reconcile(struct node *node, struct error *err);
// The configuration has changed: every sandbox is judged by it.
void node_renew(struct node *node);
void node_free(struct node *node); // sandboxes live on
// Has a shim ready for the next start, once none is under way.
void node_prepare(struct node *node);
// Removes a folder tree with what the sandbox of that id (or "-") left behind. ended is called later, unless NULL.
void node_sweep(struct node *node, const char *id, const char *folder, node_ended *ended, void *data);

// ---- node_call.c, node_template.c ----

// Removes a layer that nobody needs (any more), or what there is of one that was not finished; or all of a JSON array, which
// may be NULL.
void node_remove_layer(struct node *node, const char *folder);
void node_remove_layers(struct node *node, const char *layers);
// The layers of a template or snapshot as they are now: to be freed; NULL: none.
char *node_template_layers(const struct node *node, const char *id);

extern const struct api_backend node_backend;
void node_call_snapshot(void *data, struct api_call *call, const struct store_sandbox *row, const struct store_template *wanted,
                        bool replaces);
void node_call_fork(void *data, struct api_call *call, const struct store_sandbox *row, const struct store_sandbox *children,
                    size_t count);
void node_call_build(void *data, struct api_call *call, const struct store_template *item, const struct api_build *build);
void node_call_remove_template(void *data, struct api_call *call, const struct store_template *item);
