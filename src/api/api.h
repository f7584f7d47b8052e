// SPDX-License-Identifier: Apache-2.0
// The front door of the api room: the node's REST interface (HTTP/1.1 on an event_base of its owner), which is AgentENV's and
// E2B's, and Penstock's own endpoints (man page penstock-api). The room parses and checks every request, answers what the
// store knows by itself (lists, details), and hands what changes or asks a sandbox to a backend: a table of functions of
// the daemon. It knows neither processes nor layers, and nothing here blocks but the store.
//
// A call: a backend function gets a struct api_call and answers it with exactly one of the api_reply_ functions, at
// once or later (out of any event). The answer gives the call back. A client that went away is told by the gone hook; the
// call stays valid and is answered all the same, which then goes nowhere. All strings and rows that a backend function gets
// live until it returns, unless it says so.
//
// Checked before a backend function is called: the key, that the sandbox is there (404), that its state fits (409), the
// whole body, the policy (read, held against its type, and compiled). Several calls for one sandbox can be under way: what
// was so when a call came may have changed when a backend gets to it.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "store/store.h"

struct api;
struct api_call;
struct event_base;
struct policy_node;

// ---- what a backend is asked ----

// A sandbox to be made. row is complete but for layers and config (cold: the image's, which the backend gets; warm: already
// those of the source): insert it into the store as it is (its state is STARTING) before anything is made.
struct api_create {
    const struct store_sandbox *row;
    const struct store_template *source; // NULL: cold, from row->image
};

struct api_update {
    const char *policy; // the whole new policy
    enum policy_dialect dialect;
    bool keep_existing; // open flows are left alone (?existing=keep)
};

struct api_exec {
    char *const *argv; // NULL-terminated, at least one; a command given as a string is /bin/sh -c STRING
    char *const *env;  // "NAME=value", NULL-terminated
    const char *cwd, *user; // NULL: as the sandbox has them
    const void *input;      // its standard input
    size_t input_len;
};

enum api_step_kind { API_STEP_RUN, API_STEP_ENV, API_STEP_WORKDIR, API_STEP_USER };
struct api_step {
    enum api_step_kind kind;
    char *const *args; // RUN: a shell command and perhaps a user; ENV: name, value, name, value...; else one
    size_t count;
};
struct api_build {
    const char *id;
    const char *from_image;                     // either this
    const struct store_template *from_template; // or this, which has layers
    const struct api_step *steps;
    size_t step_count;
    const char *start_cmd, *ready_cmd; // NULL: none
    const char *policy;                // under which the steps run
    enum policy_dialect dialect;
};

struct api_backend {
    // -> api_reply_sandbox
    void (*create)(void *data, struct api_call *call, const struct api_create *create);
    // Running to paused. -> api_reply_done
    void (*pause)(void *data, struct api_call *call, const struct store_sandbox *sandbox);
    // Paused to running, its time is over at end_us (0: never). -> api_reply_sandbox
    void (*resume)(void *data, struct api_call *call, const struct store_sandbox *sandbox, int64_t end_us);
    // Another end for a sandbox that runs or is paused. -> api_reply_done
    void (*set_end)(void *data, struct api_call *call, const struct store_sandbox *sandbox, int64_t end_us);
    // -> api_reply_done, once nothing of it can run or connect any more
    void (*remove)(void *data, struct api_call *call, const struct store_sandbox *sandbox);
    // Running. -> api_reply_updated
    void (*update)(void *data, struct api_call *call, const struct store_sandbox *sandbox, const struct api_update *update);
    // wanted is complete but for layers, config and disk: insert it, or, with replaces, store_template_replace.
    // -> api_reply_snapshot
    void (*snapshot)(void *data, struct api_call *call, const struct store_sandbox *sandbox,
                     const struct store_template *wanted, bool replaces);
    // children: rows to insert as they are, but for their layers. -> api_reply_forks
    void (*fork)(void *data, struct api_call *call, const struct store_sandbox *sandbox,
                 const struct store_sandbox *children, size_t count);
    // -> api_exec_output..., api_exec_end; or an error before the first of these
    void (*exec)(void *data, struct api_call *call, const struct store_sandbox *sandbox, const struct api_exec *exec);
    // What the policy says about a URL. -> api_reply_json
    void (*explain)(void *data, struct api_call *call, const struct store_sandbox *sandbox, const char *url);
    // -> api_reply_log with the path of the decision log
    void (*decisions)(void *data, struct api_call *call, const struct store_sandbox *sandbox);
    // The build's row is WAITING: store_build_start, answer, then build. -> api_reply_done
    void (*build)(void *data, struct api_call *call, const struct store_template *item, const struct api_build *build);
    // A template or snapshot, and the layers that nobody needs then. -> api_reply_done
    void (*remove_template)(void *data, struct api_call *call, const struct store_template *item);
    // Prometheus' text. -> api_reply_text
    void (*metrics)(void *data, struct api_call *call);
    // The token that is derived from a message for a sandbox (vault_token): hex and NUL. Answered at once. 0, or negative.
#define API_TOKEN_SIZE 65
    int (*token)(void *data, const char *message, char ret_token[API_TOKEN_SIZE]);
};

// ---- answers ----

// 400 to 599, as JSON. The message is one line (struct error's text).
void api_reply_error(struct api_call *call, int status, const char *format, ...) __attribute__((format(printf, 3, 4)));
// The usual status for a negative errno of a backend or the store: -ENOENT 404, -EEXIST and -EBUSY 409, -EINVAL 400,
// -EAGAIN 503, else 500.
void api_reply_errno(struct api_call *call, int code, const char *message);
// Success without a body: 204, or 202 for a build.
void api_reply_done(struct api_call *call);
// Success of create, resume and connect. sandbox: the row as it is now.
void api_reply_sandbox(struct api_call *call, const struct store_sandbox *sandbox);
struct api_updated {
    uint64_t generation, update_us, flows_closed, flows_kept;
};
void api_reply_updated(struct api_call *call, const struct api_updated *updated);
void api_reply_snapshot(struct api_call *call, const struct store_template *item);
struct api_forked {
    const struct store_sandbox *sandbox; // NULL: it failed
    int status;
    const char *message;
};
void api_reply_forks(struct api_call *call, const struct api_forked *forked, size_t count);
// JSON text that is valid already.
void api_reply_json(struct api_call *call, int status, const char *json);
void api_reply_text(struct api_call *call, const char *content_type, const char *text, size_t len);
// The lines of a JSON-lines file that the request asks for (denied=1), and with follow=1 those that come, until the
// client goes or the sandbox is gone. A file that is not there yet is empty; one that was rotated is followed by name.
void api_reply_log(struct api_call *call, const char *path);

// A command's output as it comes: a line of JSON each, {"stdout":"text"} or, where it is not UTF-8,
// {"stdout_base64":"..."}. The first call begins the answer. Returns the bytes that wait for the client: above
// API_PENDING_MAX read no more until the drained hook is called.
#define API_PENDING_MAX (256 << 10)
enum api_output { API_STDOUT, API_STDERR };
size_t api_exec_output(struct api_call *call, enum api_output output, const void *bytes, size_t len);
// Ends the answer (and may begin it): {"exit":N}, {"exit":128+N,"signal":N}, or with error {"error":"..."}: it could not be
// run, or was lost. signal 0: it exited.
void api_exec_end(struct api_call *call, int exit_status, int signal, const char *error);

// gone: the client is not there any more; called at most once, never after the answer. drained: what waits fell below a
// quarter of API_PENDING_MAX. Both may be NULL.
struct api_hooks {
    void (*gone)(struct api_call *call, void *data);
    void (*drained)(struct api_call *call, void *data);
    void *data;
};
void api_call_watch(struct api_call *call, const struct api_hooks *hooks);

// ---- the server ----

struct api_options {
    struct event_base *base;
    struct store *store;
    const struct api_backend *backend;
    void *data; // for the backend
    const char *key;                // what X-API-Key must be; not empty; copied
    const struct policy_node *node; // guardrails, for warnings; NULL: defaults. Lives until api_set_node or api_free
    const char *domain;             // of sandboxes' host names, for answers; NULL: null
    uint32_t cpu_count, memory_mb, disk_mb; // of a cold start that does not say; 0: 1, 512, 1024
    uint32_t max_connections;               // 0: 1024
    // 0: 10 s for a request's head, 60 s for its body, 300 s idle between two requests (these are for tests)
    uint32_t head_ms, body_ms, idle_ms;
};

#define API_BODY_MAX (2 << 20) // bytes
#define API_TIMEOUT_S 300      // of a sandbox whose creation says nothing

// 0, or a negative errno with a message. SIGPIPE is ignored from here on.
int api_new(const struct api_options *options, struct api **ret_api, struct error *err);
// Takes over a listening socket (of the service manager, or of api_bind); may be called for several.
int api_listen(struct api *api, int fd, struct error *err);
// A listening socket for "ADDR:PORT" or "[ADDR6]:PORT"; port 0: any, see *ret_port. A descriptor, or a negative errno with
// a message.
int api_parse_address(const char *address, struct addr *ret_addr, uint16_t *ret_port, struct error *err); // 0 or -EINVAL
int api_bind(const char *address, uint16_t *ret_port, struct error *err);
void api_set_node(struct api *api, const struct policy_node *node);
// From now on whatever changes something is answered with 503.
void api_stop(struct api *api);
// Closes everything. Calls that are open see their client gone, and are still to be answered.
void api_free(struct api *api); // NULL is fine

struct api_counts {
    uint64_t requests, refused_keys, errors_client, errors_server; // since the start
    uint32_t connections, calls;                                   // now
};
struct api_counts api_counts(const struct api *api);
