// SPDX-License-Identifier: Apache-2.0
// A call from its beginning to its one answer: hooks, headers, plain and streamed answers, and the row in the audit log for
// what changes something.
#include <errno.h>
#include <stdarg.h>

#include "api/api_state.h"
#include "api/render.h"
#include "base/mem.h"

struct api_call *call_new(struct api *api, struct connection *connection, const struct api_route *route) {
    struct api_call *call = NEW(struct api_call);
    if (!call) return NULL;
    call->api = api;
    call->connection = connection;
    call->route = route;
    list_append(&api->calls, &call->link);
    api->counts.calls++;
    return call;
}

static void call_free(struct api_call *call) {
    if (call->api) call->api->counts.calls--;
    follow_free(call);
    list_remove(&call->link);
    buf_done(&call->headers);
    free(call);
}

void call_half_gone(struct api_call *call) {
    void (*gone)(struct api_call *call, void *data) = call->hooks.gone;
    call->hooks.gone = NULL; // once
    if (call->follow)
        call_end(call); // nobody else would
    else if (gone)
        gone(call, call->hooks.data);
}

void call_gone(struct api_call *call) {
    call->connection = NULL;
    call_half_gone(call);
}

void call_drained(struct api_call *call) {
    if (call->follow)
        follow_drained(call);
    else if (call->hooks.drained)
        call->hooks.drained(call, call->hooks.data);
}

void api_call_watch(struct api_call *call, const struct api_hooks *hooks) { call->hooks = *hooks; }

void call_subject(struct api_call *call, const char *id) { snprintf(call->subject, sizeof(call->subject), "%s", id); }

const char *call_reason(int status) {
    static const struct {
        int status;
        const char *reason;
    } reasons[] = {{200, "OK"}, {201, "Created"}, {202, "Accepted"}, {204, "No Content"}, {400, "Bad Request"},
                   {401, "Unauthorized"}, {403, "Forbidden"}, {404, "Not Found"}, {405, "Method Not Allowed"},
                   {408, "Request Timeout"}, {409, "Conflict"}, {413, "Content Too Large"},
                   {429, "Too Many Requests"}, {431, "Request Header Fields Too Large"},
                   {500, "Internal Server Error"}, {501, "Not Implemented"}, {503, "Service Unavailable"},
                   {504, "Gateway Timeout"}};
    for (size_t i = 0; i < ARRAY_LENGTH(reasons); i++)
        if (reasons[i].status == status) return reasons[i].reason;
    return "Unknown";
}

void call_header(struct api_call *call, const char *name, const char *format, ...) {
    char value[API_HEADERS_SIZE];
    va_list args;
    va_start(args, format);
    vsnprintf(value, sizeof(value), format, args);
    va_end(args);
    for (char *at = value; *at; at++)
        if ((unsigned char)*at < ' ' || *at == 0x7f) *at = '?';
    buf_printf(&call->headers, "%s: %s\r\n", name, value);
}

// ---- answers ----

static void audit(const struct api_call *call, int status) {
    if (!call->handed) return;
    char action[64];
    snprintf(action, sizeof(action), "%s %s", call->route->method, call->route->path);
    struct store_audit row = {store_now_us(), call->peer, action, call->subject, status};
    struct error err = {0};
    if (store_audit_add(call->api->options.store, &row, &err) < 0) fprintf(stderr, "penstock: audit: %s\n", err.text);
}

static void count(struct api *api, int status) {
    if (status >= 500)
        api->counts.errors_server++;
    else if (status >= 400)
        api->counts.errors_client++;
}

// The head of an answer; len SIZE_MAX: chunked.
static void send_head(struct api_call *call, int status, const char *content_type, const char *body, size_t len) {
    struct buf head = BUF_INIT;
    buf_printf(&head, "HTTP/1.1 %d %s\r\n", status, call_reason(status));
    if (content_type) buf_printf(&head, "content-type: %s\r\ncache-control: no-store\r\n", content_type);
    if (len == SIZE_MAX)
        buf_printf(&head, call->minor_0 ? "" : "transfer-encoding: chunked\r\n");
    else if (status != 204)
        buf_printf(&head, "content-length: %zu\r\n", len);
    if (call->headers.data) buf_append(&head, call->headers.data, call->headers.len);
    buf_printf(&head, "%s\r\n", call->keep_alive ? "" : "connection: close\r\n");
    if (head.failed || call->headers.failed)
        connection_break(call->connection);
    else
        connection_answer(call->connection, head.data, head.len, body, len == SIZE_MAX ? 0 : len);
    buf_done(&head);
}

static void answer(struct api_call *call, int status, const char *content_type, const char *body, size_t len) {
    if (call->api) {
        audit(call, status);
        count(call->api, status);
    }
    if (call->connection) {
        send_head(call, status, content_type, body, len);
        connection_done(call->connection, call->keep_alive);
    }
    call_free(call);
}

void call_json(struct api_call *call, int status, json_t *json) {
    AUTO_FREE char *text = render_dump(json);
    json_decref(json);
    if (text)
        answer(call, status, "application/json", text, strlen(text));
    else
        api_reply_error(call, 500, "out of memory");
}

void call_result(struct api_call *call, int r, json_t *json, const struct error *err) {
    if (r >= 0) {
        call_json(call, 200, json);
        return;
    }
    json_decref(json);
    api_reply_errno(call, r, err->text);
}

void api_reply_json(struct api_call *call, int status, const char *json) {
    answer(call, status, "application/json", json, strlen(json));
}

void api_reply_text(struct api_call *call, const char *content_type, const char *text, size_t len) {
    answer(call, 200, content_type, text, len);
}

void api_reply_error(struct api_call *call, int status, const char *format, ...) {
    struct error message;
    char text[sizeof(message.text)];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    error_set(&message, 0, "%s", text); // one line, no control bytes
    json_t *json = render_error(status, message.text);
    AUTO_FREE char *body = render_dump(json);
    json_decref(json);
    static const char last[] = "{\"code\":500,\"message\":\"out of memory\"}";
    if (body)
        answer(call, status, "application/json", body, strlen(body));
    else
        answer(call, 500, "application/json", last, strlen(last));
}

void api_reply_errno(struct api_call *call, int code, const char *message) {
    static const struct {
        int code, status;
    } statuses[] = {{-EINVAL, 400}, {-ENOENT, 404}, {-EEXIST, 409}, {-EBUSY, 409}, {-EAGAIN, 503}, {-ENOSYS, 501}};
    int status = 500;
    for (size_t i = 0; i < ARRAY_LENGTH(statuses); i++)
        if (statuses[i].code == code) status = statuses[i].status;
    api_reply_error(call, status, "%s", message && *message ? message : strerror(code < 0 ? -code : EIO));
}

// What connect has asked for is done: the answer is the sandbox.
static void reply_fetched(struct api_call *call) {
    struct store_sandbox sandbox;
    struct error err = {0};
    int r = store_sandbox_get(call->api->options.store, call->subject, &sandbox, &err);
    if (r < 0) {
        api_reply_errno(call, r, r == -ENOENT ? "the sandbox is gone" : err.text);
        return;
    }
    api_reply_sandbox(call, &sandbox);
    store_sandbox_done(&sandbox);
}

void api_reply_done(struct api_call *call) {
    if (call->fetch && call->api)
        reply_fetched(call);
    else
        answer(call, call->status ? call->status : call->route->success, NULL, "", 0);
}

void api_reply_updated(struct api_call *call, const struct api_updated *updated) {
    call_header(call, "x-penstock-generation", "%llu", (unsigned long long)updated->generation);
    call_header(call, "x-penstock-update-us", "%llu", (unsigned long long)updated->update_us);
    call_header(call, "x-penstock-flows-closed", "%llu", (unsigned long long)updated->flows_closed);
    call_header(call, "x-penstock-flows-kept", "%llu", (unsigned long long)updated->flows_kept);
    api_reply_done(call);
}

void api_reply_sandbox(struct api_call *call, const struct store_sandbox *sandbox) {
    if (!call->api) {
        answer(call, 500, NULL, "", 0); // goes nowhere
        return;
    }
    int status = call->status ? call->status : call->route->success;
    if (status == 201) call_header(call, "x-agentenv-sandbox-id", "%s", sandbox->id);
    call_json(call, status, render_sandbox(call->api, sandbox));
}

void api_reply_snapshot(struct api_call *call, const struct store_template *item) {
    call_json(call, 201, render_snapshot(item));
}

void api_reply_forks(struct api_call *call, const struct api_forked *forked, size_t count) {
    json_t *list = json_array();
    for (size_t i = 0; call->api && i < count; i++) {
        json_t *one = forked[i].sandbox ? render_sandbox(call->api, forked[i].sandbox)
                                        : render_error(forked[i].status, forked[i].message);
        json_array_append_new(list, json_pack("{s:o}", forked[i].sandbox ? "sandbox" : "error", one));
    }
    call_json(call, 201, list);
}

// ---- streamed answers ----

void call_begin(struct api_call *call, const char *content_type) {
    if (call->begun) return;
    call->begun = true;
    if (call->minor_0) call->keep_alive = false; // the end of the connection is the end of the answer
    if (call->connection) send_head(call, 200, content_type, "", SIZE_MAX);
}

size_t call_write(struct api_call *call, const void *bytes, size_t len) {
    char size[24];
    if (!call->connection) return 0;
    if (len == 0) return connection_stream(call->connection, NULL, 0);
    if (call->minor_0) return connection_stream(call->connection, bytes, len);
    connection_stream(call->connection, size, (size_t)snprintf(size, sizeof(size), "%zx\r\n", len));
    connection_stream(call->connection, bytes, len);
    return connection_stream(call->connection, "\r\n", 2);
}

void call_end(struct api_call *call) {
    if (call->api) audit(call, 200);
    if (call->connection) {
        if (!call->minor_0) connection_stream(call->connection, "0\r\n\r\n", 5);
        connection_done(call->connection, call->keep_alive);
    }
    call_free(call);
}

// ---- what many endpoints need ----

bool call_sandbox(struct api_request *request, struct store_sandbox *ret_sandbox) {
    struct error err = {0};
    const char *id = request->params[0];
    int r = store_sandbox_get(request->api->options.store, id, ret_sandbox, &err);
    if (r == 0 && ret_sandbox->state == STORE_STOPPING) {
        store_sandbox_done(ret_sandbox);
        r = -ENOENT;
    }
    if (r == -ENOENT)
        api_reply_error(request->call, 404, "sandbox %s not found", id);
    else if (r < 0)
        api_reply_errno(request->call, r, err.text);
    if (r == 0) call_subject(request->call, ret_sandbox->id);
    return r == 0;
}
