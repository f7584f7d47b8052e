// SPDX-License-Identifier: Apache-2.0
// The front door of the store room: what a node knows of its sandboxes, policies, templates and snapshots, and who changed
// what. One SQLite file (WAL, mode 0600) of one process. Every call that changes something is one transaction: after kill -9
// or a power cut it has happened or it has not, and after kill -9 all that returned have happened.
//
// Templates, snapshots and finished builds are on the disk when the call returns, which takes one fsync. Sandboxes, their
// policies, states and ends, logs and audit are so with the next of these: a power cut, which no sandbox survives, may take
// the last of it.
//
// Calls return 0, or a negative errno with a message: -ENOENT (no such row; without a message), -EEXIST (id or name taken),
// -ESTALE (the file was written by a newer version), -EBADMSG (not ours, or damaged), -ENOSPC, -ENOMEM, -EIO. Times are
// microseconds of the wall clock since 1970, UTC.
//
// Strings of rows that are written are borrowed for the call. Rows that are read own their strings and are given back by
// the _done function, which is fine for a row of zeros. JSON texts are stored as they come: the caller gives valid ones.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "policy/model.h"

struct store;

// path is made if it is missing (its folder must exist and be the owner's alone). A file that others can read or change, or
// that is not the owner's, is refused. A second process that opens the same file waits, then gets -EBUSY.
int store_open(const char *path, struct store **ret_store, struct error *err);
void store_close(struct store *store); // NULL is fine

// "i" and 20 of [a-z0-9], the form of E2B's ids. prefix: 'i' for sandboxes, 't' templates, 's' snapshots, 'b' builds.
#define STORE_ID_SIZE 22
const char *store_make_id(char prefix, char buf[STORE_ID_SIZE]); // returns buf
int64_t store_now_us(void);                                     // CLOCK_REALTIME

// ---- sandboxes ----

// A row is inserted as STARTING before anything of the sandbox exists, and removed after the last of it is gone: so that
// what a crash leaves behind is found by its row.
enum store_state { STORE_STARTING, STORE_RUNNING, STORE_PAUSED, STORE_STOPPING, STORE_STATE_COUNT };
const char *store_state_name(enum store_state state); // "starting", ...
bool store_state_from_name(const char *name, enum store_state *ret_state);

// The one data model of a sandbox: what the API renders and what a restart finds it by.
struct store_sandbox {
    char *id;
    enum store_state state;
    enum policy_type type; // container or mistral
    char *template_id;     // the template or snapshot it was made from; NULL: from an image
    char *alias;           // that one's name when it was made; NULL: it had none
    char *image;           // as it was given; NULL: from a template
    int64_t started_us;    // pages of lists are ordered by it
    int64_t end_us;        // when its time is over; 0: never
    uint32_t timeout_s;    // as it was created; 0: never
    bool auto_pause, auto_resume, secure;
    uint32_t cpu_count, memory_mb, disk_mb;
    char *metadata, *env_vars; // JSON objects of strings; NULL: {}
    // The policy in force and its number; in store_sandbox_insert generation is the first one (1 if 0). The text may hold
    // values of credentials (E2B rules): it is shown to nobody.
    char *policy;
    enum policy_dialect dialect;
    uint64_t generation;
    bool allow_public_traffic; // ingress: no part of the policy
    char *mask_request_host;   // NULL: none
    char *layers;              // JSON array of layer folders, uppermost first; NULL: []
    char *config;              // JSON object: what the image says to run (argv, env, cwd, user); NULL: {}
};
void store_sandbox_done(struct store_sandbox *sandbox);

int store_sandbox_insert(struct store *store, const struct store_sandbox *sandbox, struct error *err);
int store_sandbox_set_state(struct store *store, const char *id, enum store_state state, struct error *err);
int store_sandbox_set_end(struct store *store, const char *id, int64_t end_us, struct error *err);
// Pausing and resuming: both in one step, so that no crash leaves a running sandbox without its end.
int store_sandbox_set_state_end(struct store *store, const char *id, enum store_state state, int64_t end_us,
                                struct error *err);
// What an image turned out to be (a cold start inserts its row before it has the image).
int store_sandbox_set_image(struct store *store, const char *id, const char *layers, const char *config, struct error *err);
// With its policies.
int store_sandbox_remove(struct store *store, const char *id, struct error *err);
int store_sandbox_get(struct store *store, const char *id, struct store_sandbox *ret_sandbox, struct error *err);

// An update in two steps, so that a crash between them is seen: stage before the shim is told, activate once it says that
// the new policy is in force, drop if it failed. A number is never used twice. After a restart store_policy_staged says
// which sandboxes have one: ask the shim which generation it has, then activate or drop.
int store_policy_stage(struct store *store, const char *id, const char *policy, enum policy_dialect dialect,
                       uint64_t *ret_generation, struct error *err);
int store_policy_activate(struct store *store, const char *id, uint64_t generation, struct error *err);
int store_policy_drop(struct store *store, const char *id, uint64_t generation, struct error *err);
// 0: ret_policy (to free) and its number; -ENOENT: none.
int store_policy_staged(struct store *store, const char *id, char **ret_policy, enum policy_dialect *ret_dialect,
                        uint64_t *ret_generation, struct error *err);

struct store_pair {
    const char *key, *value;
};

#define STORE_LIST_MAX 100
struct store_filter {
    unsigned states;                   // bits 1 << enum store_state; 0: all
    const struct store_pair *metadata; // all must be there
    size_t metadata_count;
    const char *template_id;  // or its alias, or the image; NULL: any
    int64_t started_after_us; // started then or later
    bool ascending;           // oldest first; else newest first
    // Page: only rows behind this one in the order of the list. after_id NULL: from the start.
    int64_t after_us;
    const char *after_id;
    size_t limit; // 0: all
};

// Called for each row in order; the row lives for the call. A value other than 0 ends the list and is returned.
typedef int store_sandbox_each(const struct store_sandbox *sandbox, void *data);
int store_sandbox_list(struct store *store, const struct store_filter *filter, store_sandbox_each *each, void *data,
                       struct error *err);
// How many there are, whatever the page.
int store_sandbox_count(struct store *store, const struct store_filter *filter, uint64_t *ret_count, struct error *err);

// ---- templates and snapshots ----

// Both are a list of layers and what to run; a sandbox starts from either by id or name. A template gets its layers when a
// build is ready; until then, and while it is built again, the last ones stay (layers NULL: it was never built).
enum store_kind { STORE_TEMPLATE, STORE_SNAPSHOT, STORE_KIND_COUNT };

struct store_template {
    char *id;
    enum store_kind kind;
    char *name;       // alias, one of all templates and snapshots; NULL: none
    char *sandbox_id; // snapshot: of which sandbox; else NULL
    char *layers, *config; // as of a sandbox
    uint32_t cpu_count, memory_mb, disk_mb;
    char *build_id;   // the last one that was ready, else the last one; NULL: none
    int64_t created_us, updated_us;
    int64_t spawned_us; // last start of a sandbox from it; 0: never
    uint64_t spawn_count, build_count;
};
void store_template_done(struct store_template *item);

// Without build_id, counts and updated_us. -EEXIST: the name is taken.
int store_template_insert(struct store *store, const struct store_template *item, struct error *err);
// What a snapshot under a name that another one has replaces, keeping id and created_us. 0, or -ENOENT.
int store_template_replace(struct store *store, const struct store_template *item, struct error *err);
int store_template_get(struct store *store, const char *id_or_name, struct store_template *ret_item, struct error *err);
int store_template_remove(struct store *store, const char *id, struct error *err); // and its builds
int store_template_spawned(struct store *store, const char *id, int64_t now_us, struct error *err);

struct store_template_filter {
    bool has_kind;
    enum store_kind kind;
    const char *id_or_name, *sandbox_id; // NULL: any
    int64_t after_us; // newest first; page as of sandboxes, by created_us
    const char *after_id;
    size_t limit;
};
typedef int store_template_each(const struct store_template *item, void *data);
int store_template_list(struct store *store, const struct store_template_filter *filter, store_template_each *each,
                        void *data, struct error *err);

// Whether a sandbox, template or snapshot needs a layer folder (or whatever is written in a list of layers). 1, 0, or
// negative: a layer that is needed by none can be removed.
int store_layer_used(struct store *store, const char *layer, struct error *err);

enum store_build_status { STORE_BUILD_WAITING, STORE_BUILD_BUILDING, STORE_BUILD_READY, STORE_BUILD_ERROR,
                          STORE_BUILD_STATUS_COUNT };
const char *store_build_status_name(enum store_build_status status);

struct store_build {
    char *id, *template_id;
    enum store_build_status status;
    char *reason, *step; // of an error; NULL else
    uint32_t cpu_count, memory_mb;
    int64_t created_us, updated_us, finished_us; // finished 0: not yet
};
void store_build_done(struct store_build *build);

#define STORE_BUILDS_MAX 100     // of a template: the oldest finished ones go
#define STORE_BUILD_LINES_MAX 1000 // of a build's log: the oldest go
int store_build_insert(struct store *store, const struct store_build *build, struct error *err); // as WAITING
int store_build_get(struct store *store, const char *template_id, const char *id, struct store_build *ret_build,
                    struct error *err);
// WAITING becomes BUILDING; -EBUSY: it is something else.
int store_build_start(struct store *store, const char *id, struct error *err);
// READY, and in the same step the template has these layers. BUILDING only.
int store_build_finish(struct store *store, const char *id, const char *layers, const char *config, uint32_t disk_mb,
                       struct error *err);
int store_build_fail(struct store *store, const char *id, const char *step, const char *reason, struct error *err);
// At a start: whatever was BUILDING failed with this reason.
int store_build_abandon(struct store *store, const char *reason, struct error *err);
typedef int store_build_each(const struct store_build *build, void *data);
int store_build_list(struct store *store, const char *template_id, store_build_each *each, void *data, struct error *err);
// level: "debug", "info", "warn", "error". Lines are numbered from 0 without gaps, also when old ones are gone. All of them, or none.
int store_build_log(struct store *store, const char *id, const char *level, const char *const *messages, size_t count,
                    struct error *err);
typedef int store_build_line(uint64_t number, int64_t time_us, const char *level, const char *message, void *data);
int store_build_lines(struct store *store, const char *id, uint64_t first, size_t limit, store_build_line *each,
                      void *data, struct error *err);

// ---- audit: who changed what ----

struct store_audit {
    int64_t time_us;
    const char *who;     // "127.0.0.1:5123", "expiry"
    const char *action;  // "POST /sandboxes/{sandboxID}/pause"
    const char *subject; // id of a sandbox, template, snapshot; "" if none
    int status;          // of the answer
};
// The newest rows are kept, as many as store_audit_limit said (default 100,000).
int store_audit_add(struct store *store, const struct store_audit *audit, struct error *err);
void store_audit_limit(struct store *store, uint64_t rows);
typedef int store_audit_each(const struct store_audit *audit, void *data);
int store_audit_list(struct store *store, size_t limit, store_audit_each *each, void *data, struct error *err); // newest first

// For tests of crashes: called at every step of every transaction (begun, each statement, before and after the commit).
void store_on_step(struct store *store, void (*step)(void *data), void *data);
