// SPDX-License-Identifier: Apache-2.0
// What changes a sandbox that is there. Each: look it up, hold its state against the call, read the body, hand it over.
#include <errno.h>

#include "api/egress.h"
#include "api/fields.h"
#include "api/query.h"
#include "api/route.h"
#include "base/mem.h"

#define REFRESH_MAX_S 3600
#define FORKS_MAX 100

static const struct api_backend *backend(const struct api_request *request) { return request->api->options.backend; }

// Marks the call as one of the audit log; what is given is the backend's data.
static void *hand(struct api_request *request) {
    request->call->handed = true;
    return request->api->options.data;
}

static int64_t end_after(uint32_t seconds) { return store_now_us() + (int64_t)seconds * 1000000; }

// The sandbox, if it is in this state; what: "sandbox cannot be paused".
static bool take(struct api_request *request, enum store_state state, const char *what, struct store_sandbox *ret_sandbox) {
    if (!call_sandbox(request, ret_sandbox)) return false;
    if (ret_sandbox->state == state) return true;
    api_reply_error(request->call, 409, "%s from %s state", what, store_state_name(ret_sandbox->state));
    store_sandbox_done(ret_sandbox);
    return false;
}

void route_remove(struct api_request *request) {
    struct store_sandbox sandbox;
    if (!call_sandbox(request, &sandbox)) return;
    backend(request)->remove(hand(request), request->call, &sandbox);
    store_sandbox_done(&sandbox);
}

void route_pause(struct api_request *request) {
    struct store_sandbox sandbox;
    if (!take(request, STORE_RUNNING, "sandbox cannot be paused", &sandbox)) return;
    backend(request)->pause(hand(request), request->call, &sandbox);
    store_sandbox_done(&sandbox);
}

// ---- its end ----

// A number of seconds from now. required: or an error.
static bool read_seconds(struct api_request *request, const char *name, uint32_t max, bool required, uint32_t *ret_seconds) {
    struct error err = {0};
    *ret_seconds = API_TIMEOUT_S;
    int r = field_number(request->body, name, 0, max, ret_seconds, &err);
    if (r == 0 && required) r = error_set(&err, -EINVAL, "%s is missing; send a number of seconds", name);
    if (r < 0) api_reply_errno(request->call, r, err.text);
    return r >= 0;
}

void route_timeout(struct api_request *request) {
    struct store_sandbox sandbox;
    uint32_t seconds;
    if (!read_seconds(request, "timeout", INT32_MAX, true, &seconds) || !call_sandbox(request, &sandbox)) return;
    backend(request)->set_end(hand(request), request->call, &sandbox, end_after(seconds));
    store_sandbox_done(&sandbox);
}

// Longer, never shorter.
static bool extends(const struct store_sandbox *sandbox, int64_t end_us) {
    return sandbox->end_us != 0 && sandbox->end_us < end_us;
}

void route_refresh(struct api_request *request) {
    struct store_sandbox sandbox;
    uint32_t seconds;
    if (!read_seconds(request, "duration", REFRESH_MAX_S, false, &seconds) || !call_sandbox(request, &sandbox)) return;
    if (extends(&sandbox, end_after(seconds)))
        backend(request)->set_end(hand(request), request->call, &sandbox, end_after(seconds));
    else
        api_reply_done(request->call);
    store_sandbox_done(&sandbox);
}

static void resume(struct api_request *request, const struct store_sandbox *sandbox, uint32_t seconds) {
    bool never = sandbox->end_us == 0 && !json_object_get(request->body, "timeout"); // as it was
    request->call->status = 201;
    backend(request)->resume(hand(request), request->call, sandbox, never ? 0 : end_after(seconds));
}

void route_resume(struct api_request *request) {
    struct store_sandbox sandbox;
    uint32_t seconds;
    if (!read_seconds(request, "timeout", INT32_MAX, false, &seconds)) return;
    if (!take(request, STORE_PAUSED, "sandbox cannot be resumed", &sandbox)) return;
    resume(request, &sandbox, seconds);
    store_sandbox_done(&sandbox);
}

// 200 if it runs, 201 if it was resumed.
void route_connect(struct api_request *request) {
    struct store_sandbox sandbox;
    uint32_t seconds;
    if (!read_seconds(request, "timeout", INT32_MAX, false, &seconds) || !call_sandbox(request, &sandbox)) return;
    request->call->fetch = true;
    if (sandbox.state == STORE_PAUSED)
        resume(request, &sandbox, seconds);
    else if (sandbox.state != STORE_RUNNING)
        api_reply_error(request->call, 409, "sandbox cannot be connected from %s state", store_state_name(sandbox.state));
    else if (extends(&sandbox, end_after(seconds)))
        backend(request)->set_end(hand(request), request->call, &sandbox, end_after(seconds));
    else
        api_reply_sandbox(request->call, &sandbox);
    store_sandbox_done(&sandbox);
}

// ---- network ----

static bool read_existing(struct api_request *request, bool *ret_keep) {
    const char *existing = query_get(request, "existing");
    *ret_keep = existing && strcmp(existing, "keep") == 0;
    if (!existing || *ret_keep || strcmp(existing, "judge") == 0) return true;
    api_reply_error(request->call, 400, "existing=\"%s\" is unknown; write keep, or judge (the default)", existing);
    return false;
}

// As AgentENV's order of checks has it: what the body asks for comes before what state the sandbox is in.
void route_network(struct api_request *request) {
    struct store_sandbox sandbox;
    struct egress egress = {0};
    struct error err = {0};
    struct api_update update = {0};
    if (!read_existing(request, &update.keep_existing) || !call_sandbox(request, &sandbox)) return;
    int r = egress_update(request->api, request->call, request->body, sandbox.type, &egress, &err);
    if (r < 0) {
        api_reply_errno(request->call, r, err.text);
    } else if (sandbox.state != STORE_RUNNING) {
        api_reply_error(request->call, 409, "sandbox network cannot be updated from %s state",
                        store_state_name(sandbox.state));
    } else {
        update.policy = egress.policy;
        update.dialect = egress.dialect;
        backend(request)->update(hand(request), request->call, &sandbox, &update);
    }
    egress_done(&egress);
    store_sandbox_done(&sandbox);
}

// ---- fork ----

// Children are as their parent, with their own ids and times.
static void make_children(struct store_sandbox *children, char (*ids)[STORE_ID_SIZE], uint32_t count,
                          const struct store_sandbox *parent, bool never, uint32_t seconds) {
    for (uint32_t i = 0; i < count; i++) {
        children[i] = *parent; // borrows its texts
        children[i].id = (char *)(uintptr_t)store_make_id('i', ids[i]);
        children[i].state = STORE_STARTING;
        children[i].started_us = store_now_us();
        children[i].timeout_s = never ? 0 : seconds;
        children[i].end_us = never ? 0 : end_after(seconds);
        children[i].generation = 1;
    }
}

void route_fork(struct api_request *request) {
    struct store_sandbox sandbox;
    struct error err = {0};
    uint32_t count = 1, seconds;
    int r = field_number(request->body, "count", 1, FORKS_MAX, &count, &err);
    if (r < 0) {
        api_reply_errno(request->call, r, err.text);
        return;
    }
    if (!take(request, STORE_RUNNING, "sandbox cannot be forked", &sandbox)) return;
    seconds = sandbox.timeout_s ? sandbox.timeout_s : API_TIMEOUT_S; // 0: it was to live for ever, and perhaps no longer is
    r = field_number(request->body, "timeout", 0, INT32_MAX, &seconds, &err);
    AUTO_FREE struct store_sandbox *children = NEW_ARRAY(struct store_sandbox, count);
    AUTO_FREE char (*ids)[STORE_ID_SIZE] = calloc(count, STORE_ID_SIZE);
    if (r >= 0 && (!children || !ids)) r = -ENOMEM;
    if (r < 0) {
        api_reply_errno(request->call, r, err.text);
    } else {
        make_children(children, ids, count, &sandbox, r == 0 && sandbox.end_us == 0, seconds);
        backend(request)->fork(hand(request), request->call, &sandbox, children, count);
    }
    store_sandbox_done(&sandbox);
}

// ---- custom extensions: there are none here ----

void route_extension(struct api_request *request) {
    struct store_sandbox sandbox;
    if (!call_sandbox(request, &sandbox)) return;
    store_sandbox_done(&sandbox);
    call_json(request->call, 200, json_object());
}

void route_extension_patch(struct api_request *request) {
    struct store_sandbox sandbox;
    if (!call_sandbox(request, &sandbox)) return;
    store_sandbox_done(&sandbox);
    api_reply_error(request->call, 400, "customExtensionParams needs a custom extension, and this server has none");
}
