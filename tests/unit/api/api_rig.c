// SPDX-License-Identifier: Apache-2.0
#include "api_rig.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ftw.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"

#define WAIT_US 20000000

// ---- the backend ----

static bool taken(struct rig *rig, struct api_call *call) {
    if (rig->hold) {
        rig->held = call;
        return true;
    }
    if (!rig->fail) return false;
    api_reply_error(call, rig->fail, "the backend failed");
    return true;
}

static void reply_row(struct rig *rig, struct api_call *call, const char *id) {
    struct store_sandbox row;
    struct error err = {0};
    int r = store_sandbox_get(rig->store, id, &row, &err);
    if (r < 0) {
        api_reply_errno(call, r, err.text);
        return;
    }
    api_reply_sandbox(call, &row);
    store_sandbox_done(&row);
}

static const char *or_dash(const char *text) { return text ? text : "-"; }

static int insert_running(struct rig *rig, const struct store_sandbox *row, struct error *err) {
    int r = store_sandbox_insert(rig->store, row, err);
    return r < 0 ? r : store_sandbox_set_state(rig->store, row->id, STORE_RUNNING, err);
}

// Answers with what the store said, or with success.
static void reply_result(struct api_call *call, int result, const struct error *err) {
    if (result < 0)
        api_reply_errno(call, result, err->text);
    else
        api_reply_done(call);
}

static void fake_create(void *data, struct api_call *call, const struct api_create *create) {
    struct rig *rig = data;
    const struct store_sandbox *row = create->row;
    buf_printf(&rig->log, "create template=%s image=%s timeout=%u pause=%d resume=%d secure=%d cpu=%u memory=%u disk=%u "
                          "metadata=%s env=%s public=%d mask=%s policy=%s dialect=%d layers=%s type=%d forever=%d\n",
               or_dash(row->template_id), or_dash(row->image), row->timeout_s, row->auto_pause, row->auto_resume,
               row->secure, row->cpu_count, row->memory_mb, row->disk_mb, or_dash(row->metadata), or_dash(row->env_vars),
               row->allow_public_traffic, or_dash(row->mask_request_host), row->policy, (int)row->dialect,
               or_dash(row->layers), (int)row->type, row->end_us == 0);
    struct error err = {0};
    if (taken(rig, call)) return;
    int r = insert_running(rig, row, &err);
    if (r < 0)
        reply_result(call, r, &err);
    else
        reply_row(rig, call, row->id);
}

static void change_state(struct rig *rig, struct api_call *call, const struct store_sandbox *sandbox,
                         enum store_state state, bool row) {
    struct error err = {0};
    if (taken(rig, call)) return;
    int r = store_sandbox_set_state(rig->store, sandbox->id, state, &err);
    if (row && r == 0)
        reply_row(rig, call, sandbox->id);
    else
        reply_result(call, r, &err);
}

static void fake_pause(void *data, struct api_call *call, const struct store_sandbox *sandbox) {
    struct rig *rig = data;
    buf_printf(&rig->log, "pause %s\n", sandbox->id);
    change_state(rig, call, sandbox, STORE_PAUSED, false);
}

static long long seconds_left(int64_t end_us) { return end_us ? (end_us - store_now_us() + 500000) / 1000000 : -1; }

static void fake_resume(void *data, struct api_call *call, const struct store_sandbox *sandbox, int64_t end_us) {
    struct rig *rig = data;
    buf_printf(&rig->log, "resume %s %lld\n", sandbox->id, seconds_left(end_us));
    change_state(rig, call, sandbox, STORE_RUNNING, true);
}

static void fake_set_end(void *data, struct api_call *call, const struct store_sandbox *sandbox, int64_t end_us) {
    struct rig *rig = data;
    struct error err = {0};
    buf_printf(&rig->log, "end %s %lld\n", sandbox->id, seconds_left(end_us));
    if (taken(rig, call)) return;
    reply_result(call, store_sandbox_set_end(rig->store, sandbox->id, end_us, &err), &err);
}

static void fake_remove(void *data, struct api_call *call, const struct store_sandbox *sandbox) {
    struct rig *rig = data;
    struct error err = {0};
    buf_printf(&rig->log, "remove %s\n", sandbox->id);
    if (taken(rig, call)) return;
    reply_result(call, store_sandbox_remove(rig->store, sandbox->id, &err), &err);
}

static void fake_update(void *data, struct api_call *call, const struct store_sandbox *sandbox,
                        const struct api_update *update) {
    struct rig *rig = data;
    struct error err = {0};
    uint64_t generation;
    buf_printf(&rig->log, "update %s keep=%d policy=%s dialect=%d\n", sandbox->id, update->keep_existing, update->policy,
               (int)update->dialect);
    if (taken(rig, call)) return;
    int r = store_policy_stage(rig->store, sandbox->id, update->policy, update->dialect, &generation, &err);
    if (r == 0) r = store_policy_activate(rig->store, sandbox->id, generation, &err);
    if (r < 0)
        reply_result(call, r, &err);
    else
        api_reply_updated(call, &(struct api_updated){generation, 12, 3, 4});
}

static void fake_snapshot(void *data, struct api_call *call, const struct store_sandbox *sandbox,
                          const struct store_template *wanted, bool replaces) {
    struct rig *rig = data;
    struct error err = {0};
    struct store_template item = *wanted;
    buf_printf(&rig->log, "snapshot %s name=%s replaces=%d\n", sandbox->id, or_dash(wanted->name), replaces);
    if (taken(rig, call)) return;
    item.layers = (char *)(uintptr_t) "[\"snap\"]";
    int r = replaces ? store_template_replace(rig->store, &item, &err) : store_template_insert(rig->store, &item, &err);
    if (r < 0)
        reply_result(call, r, &err);
    else
        api_reply_snapshot(call, &item);
}

static void fake_fork(void *data, struct api_call *call, const struct store_sandbox *sandbox,
                      const struct store_sandbox *children, size_t count) {
    struct rig *rig = data;
    struct error err = {0};
    buf_printf(&rig->log, "fork %s count=%zu timeout=%u policy=%s\n", sandbox->id, count, children[0].timeout_s,
               children[0].policy);
    if (taken(rig, call)) return;
    struct api_forked forked[100];
    assert_in_range(count, 1, ARRAY_LENGTH(forked));
    for (size_t i = 0; i < count; i++) forked[i] = (struct api_forked){.status = 500, .message = "no room"};
    if (insert_running(rig, &children[0], &err) == 0) forked[0] = (struct api_forked){.sandbox = &children[0]};
    api_reply_forks(call, forked, count);
}

static void fake_exec(void *data, struct api_call *call, const struct store_sandbox *sandbox, const struct api_exec *exec) {
    struct rig *rig = data;
    buf_printf(&rig->log, "exec %s", sandbox->id);
    for (size_t i = 0; exec->argv[i]; i++) buf_printf(&rig->log, " [%s]", exec->argv[i]);
    for (size_t i = 0; exec->env[i]; i++) buf_printf(&rig->log, " {%s}", exec->env[i]);
    buf_printf(&rig->log, " cwd=%s user=%s stdin=%.*s\n", or_dash(exec->cwd), or_dash(exec->user), (int)exec->input_len,
               (const char *)exec->input);
    if (taken(rig, call)) return;
    api_exec_output(call, API_STDOUT, "hello\n", 6);
    api_exec_output(call, API_STDERR, "\xff\xfe\x00", 3);
    api_exec_end(call, 3, 0, NULL);
}

static void fake_explain(void *data, struct api_call *call, const struct store_sandbox *sandbox, const char *url) {
    struct rig *rig = data;
    buf_printf(&rig->log, "explain %s %s\n", sandbox->id, url);
    if (!taken(rig, call)) api_reply_json(call, 200, "{\"verdict\":\"allow\"}");
}

static void fake_decisions(void *data, struct api_call *call, const struct store_sandbox *sandbox) {
    struct rig *rig = data;
    buf_printf(&rig->log, "decisions %s\n", sandbox->id);
    if (!taken(rig, call)) api_reply_log(call, rig->log_path ? rig->log_path : "/nonexistent/decisions");
}

static void fake_build(void *data, struct api_call *call, const struct store_template *item, const struct api_build *build) {
    struct rig *rig = data;
    struct error err = {0};
    buf_printf(&rig->log, "build %s image=%s template=%s start=%s policy=%s", item->id, or_dash(build->from_image),
               build->from_template ? build->from_template->id : "-", or_dash(build->start_cmd), build->policy);
    for (size_t i = 0; i < build->step_count; i++) {
        buf_printf(&rig->log, " %d(", (int)build->steps[i].kind);
        for (size_t j = 0; j < build->steps[i].count; j++) buf_printf(&rig->log, "%s,", build->steps[i].args[j]);
        buf_printf(&rig->log, ")");
    }
    buf_printf(&rig->log, "\n");
    if (taken(rig, call)) return;
    reply_result(call, store_build_start(rig->store, build->id, &err), &err);
}

static void fake_remove_template(void *data, struct api_call *call, const struct store_template *item) {
    struct rig *rig = data;
    struct error err = {0};
    buf_printf(&rig->log, "remove_template %s\n", item->id);
    if (taken(rig, call)) return;
    reply_result(call, store_template_remove(rig->store, item->id, &err), &err);
}

static void fake_metrics(void *data, struct api_call *call) {
    (void)data;
    api_reply_text(call, "text/plain; version=0.0.4", "up 1\n", 5);
}

static int fake_token(void *data, const char *message, char ret_token[API_TOKEN_SIZE]) {
    (void)data;
    snprintf(ret_token, API_TOKEN_SIZE, "token-of-%s", message);
    return 0;
}

static const struct api_backend backend = {
    .create = fake_create, .pause = fake_pause, .resume = fake_resume, .set_end = fake_set_end, .remove = fake_remove,
    .update = fake_update, .snapshot = fake_snapshot, .fork = fake_fork, .exec = fake_exec, .explain = fake_explain,
    .decisions = fake_decisions, .build = fake_build, .remove_template = fake_remove_template, .metrics = fake_metrics,
    .token = fake_token,
};

// ---- the server ----

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *at) {
    (void)status, (void)kind, (void)at;
    return remove(path);
}

void rig_init(struct rig *rig, const struct api_options *options) {
    struct error err = {0};
    struct api_options all = options ? *options : (struct api_options){0};
    *rig = (struct rig){0};
    snprintf(rig->folder, sizeof(rig->folder), "/tmp/penstock-api-XXXXXX");
    assert_non_null(mkdtemp(rig->folder));
    snprintf(rig->path, sizeof(rig->path), "%s/store.db", rig->folder);
    rig->base = event_base_new();
    assert_non_null(rig->base);
    if (store_open(rig->path, &rig->store, &err) < 0) fail_msg("%s", err.text);
    all.base = rig->base;
    all.store = rig->store;
    all.backend = &backend;
    all.data = rig;
    all.key = RIG_KEY;
    if (api_new(&all, &rig->api, &err) < 0) fail_msg("%s", err.text);
    int fd = api_bind("127.0.0.1:0", &rig->port, &err);
    if (fd < 0 || api_listen(rig->api, fd, &err) < 0) fail_msg("%s", err.text);
}

void rig_done(struct rig *rig) {
    api_free(rig->api);
    event_base_loop(rig->base, EVLOOP_NONBLOCK); // where bufferevents are freed
    store_close(rig->store);
    event_base_free(rig->base);
    buf_done(&rig->log);
    free(rig->log_path);
    nftw(rig->folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

void rig_turn(struct rig *rig, unsigned ms) {
    for (uint64_t end = clock_us() + ms * 1000; clock_us() < end;) {
        event_base_loop(rig->base, EVLOOP_NONBLOCK);
        usleep(500);
    }
}

void rig_add(struct rig *rig, const char *id, enum store_state state) {
    struct error err = {0};
    struct store_sandbox row = {.id = (char *)(uintptr_t)id, .state = state, .type = POLICY_TYPE_CONTAINER,
                                .template_id = (char *)(uintptr_t) "tbase", .alias = (char *)(uintptr_t) "base",
                                .started_us = 1700000000000000 + id[strlen(id) - 1], .timeout_s = 60,
                                .end_us = store_now_us() + 60000000, .secure = true, .cpu_count = 1, .memory_mb = 512,
                                .disk_mb = 1024, .allow_public_traffic = true, .dialect = POLICY_DIALECT_E2B,
                                .policy = (char *)(uintptr_t) "{\"network\":{}}"};
    if (store_sandbox_insert(rig->store, &row, &err) < 0) fail_msg("%s", err.text);
}

void rig_add_template(struct rig *rig, const char *id, const char *name, enum store_kind kind, const char *layers) {
    struct error err = {0};
    struct store_template item = {.id = (char *)(uintptr_t)id, .name = (char *)(uintptr_t)name, .kind = kind,
                                  .layers = (char *)(uintptr_t)layers, .cpu_count = 2, .memory_mb = 1024, .disk_mb = 2048,
                                  .created_us = 1700000000000000 + id[strlen(id) - 1]};
    if (store_template_insert(rig->store, &item, &err) < 0) fail_msg("%s", err.text);
}

// ---- the client ----

int rig_connect(struct rig *rig) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(rig->port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    return fd;
}

void rig_send(struct rig *rig, int fd, const char *bytes, size_t len) {
    for (uint64_t end = clock_us() + WAIT_US; len > 0;) {
        ssize_t sent = send(fd, bytes, len, MSG_DONTWAIT | MSG_NOSIGNAL);
        event_base_loop(rig->base, EVLOOP_NONBLOCK);
        if (sent < 0 && errno != EAGAIN) return; // the server has had enough
        if (clock_us() > end) fail_msg("the server does not read");
        if (sent < 0) continue;
        bytes += sent;
        len -= (size_t)sent;
    }
}

// 1: something came, 0: nothing yet, -1: the end.
static int receive_some(struct rig *rig, int fd, struct buf *into) {
    char bytes[65536];
    event_base_loop(rig->base, EVLOOP_NONBLOCK);
    ssize_t got = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT);
    if (got < 0 && errno == EAGAIN) {
        usleep(200);
        return 0;
    }
    if (got <= 0) return -1;
    buf_append(into, bytes, (size_t)got);
    return 1;
}

// Takes chunks out of raw; true at the last one.
static bool unchunk(struct buf *raw, struct buf *body) {
    for (;;) {
        char *end = raw->len ? memmem(raw->data, raw->len, "\r\n", 2) : NULL;
        if (!end) return false;
        size_t size = strtoul(raw->data, NULL, 16), head = (size_t)(end - raw->data) + 2;
        if (raw->len < head + size + 2) return false;
        buf_append(body, raw->data + head, size);
        buf_consume(raw, head + size + 2);
        if (size == 0) return true;
    }
}

const char *rig_header(const struct rig_reply *reply, const char *name, char buf[512]) {
    char wanted[64];
    snprintf(wanted, sizeof(wanted), "\n%s: ", name);
    const char *at = reply->head.data ? strcasestr(reply->head.data, wanted) : NULL;
    if (!at) return NULL;
    at += strlen(wanted);
    snprintf(buf, 512, "%.*s", (int)strcspn(at, "\r\n"), at);
    return buf;
}

void rig_receive(struct rig *rig, int fd, struct rig_reply *ret_reply) {
    struct rig_reply reply = {0};
    struct buf raw = BUF_INIT;
    char value[512];
    bool whole = false, chunked = false, ended = false;
    size_t length = SIZE_MAX;
    for (uint64_t end = clock_us() + WAIT_US; !whole;) {
        if (!ended && receive_some(rig, fd, &raw) < 0) ended = true;
        if (clock_us() > end) fail_msg("no answer: %s", raw.data ? raw.data : "");
        char *empty = !reply.status && raw.len ? memmem(raw.data, raw.len, "\r\n\r\n", 4) : NULL;
        if (empty) {
            size_t len = (size_t)(empty - raw.data) + 4;
            buf_append(&reply.head, raw.data, len);
            buf_consume(&raw, len);
            reply.status = (int)strtol(reply.head.data + 9, NULL, 10);
            if (reply.status == 100) { // the real one follows
                reply.status = 0;
                buf_done(&reply.head);
                continue;
            }
            chunked = rig_header(&reply, "transfer-encoding", value) != NULL;
            if (rig_header(&reply, "content-length", value)) length = strtoul(value, NULL, 10);
            if (reply.status == 204) length = 0;
        }
        if (reply.status && chunked)
            whole = unchunk(&raw, &reply.body);
        else if (reply.status && raw.len >= length)
            whole = true;
        if (ended && !whole) {
            if (reply.status && length != SIZE_MAX) fail_msg("cut answer: %s", reply.head.data);
            whole = true;
        }
    }
    if (!chunked && raw.len) buf_append(&reply.body, raw.data, raw.len);
    buf_done(&raw);
    *ret_reply = reply;
}

bool rig_closed(struct rig *rig, int fd) {
    struct buf raw = BUF_INIT;
    int r = 0;
    for (uint64_t end = clock_us() + 3000000; r >= 0 && clock_us() < end;) r = receive_some(rig, fd, &raw);
    buf_done(&raw);
    return r < 0;
}

void rig_ask(struct rig *rig, const char *method, const char *path, const char *body, struct rig_reply *ret_reply) {
    struct buf request = BUF_INIT;
    buf_printf(&request, "%s %s HTTP/1.1\r\nHost: x\r\nX-API-Key: " RIG_KEY "\r\nConnection: close\r\n", method, path);
    if (body) buf_printf(&request, "Content-Length: %zu\r\n", strlen(body));
    buf_printf(&request, "\r\n%s", body ? body : "");
    int fd = rig_connect(rig);
    rig_send(rig, fd, request.data, request.len);
    buf_done(&request);
    rig_receive(rig, fd, ret_reply);
    close(fd);
}

void rig_reply_done(struct rig_reply *reply) {
    buf_done(&reply->head);
    buf_done(&reply->body);
}

void rig_check(struct rig *rig, const struct rig_row *rows, size_t count) {
    for (size_t i = 0; i < count; i++) {
        struct rig_reply reply;
        buf_done(&rig->log);
        rig_ask(rig, rows[i].method, rows[i].path, rows[i].body, &reply);
        const char *body = reply.body.data ? reply.body.data : "", *log = rig->log.data ? rig->log.data : "";
        bool good = reply.status == rows[i].status && (rows[i].says ? strstr(body, rows[i].says) != NULL : !*body) &&
                    (rows[i].log ? strstr(log, rows[i].log) != NULL : !*log);
        if (!good)
            fail_msg("row %zu: %s %s %s: %d %s\nasked: %s", i, rows[i].method, rows[i].path,
                     rows[i].body ? rows[i].body : "", reply.status, body, log);
        rig_reply_done(&reply);
    }
}
