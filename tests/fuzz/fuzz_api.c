// SPDX-License-Identifier: Apache-2.0
// Requests of the REST interface, from their first byte to the answer: the input is what a client with the key sends on one
// connection, after the first byte, which says in what state the sandbox i1 is. The backend answers at once. A line that is
// "X-API-Key: k" gives the key. What comes back must be HTTP answers, and nothing may be left when the client has gone.
#include <stddef.h>
#include <stdint.h>
#include <event2/event.h>
#include <sys/socket.h>
#include <unistd.h>

#include "api/api.h"
#include "api/api_state.h"
#include "base/mem.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct store *store;
static struct event_base *base;
static struct api *api;

static void done_create(void *data, struct api_call *call, const struct api_create *create) {
    (void)data;
    if (create->row->id[0] != 'i' || !create->row->policy) abort();
    api_reply_sandbox(call, create->row);
}

static void done(void *data, struct api_call *call, const struct store_sandbox *sandbox) {
    (void)data, (void)sandbox;
    api_reply_done(call);
}

static void done_end(void *data, struct api_call *call, const struct store_sandbox *sandbox, int64_t end_us) {
    (void)end_us;
    done(data, call, sandbox);
}

static void done_resume(void *data, struct api_call *call, const struct store_sandbox *sandbox, int64_t end_us) {
    (void)data, (void)end_us;
    api_reply_sandbox(call, sandbox);
}

static void done_update(void *data, struct api_call *call, const struct store_sandbox *sandbox,
                        const struct api_update *update) {
    (void)data, (void)sandbox;
    if (!update->policy) abort();
    api_reply_updated(call, &(struct api_updated){0});
}

static void done_snapshot(void *data, struct api_call *call, const struct store_sandbox *sandbox,
                          const struct store_template *wanted, bool replaces) {
    (void)data, (void)sandbox, (void)replaces;
    api_reply_snapshot(call, wanted);
}

static void done_fork(void *data, struct api_call *call, const struct store_sandbox *sandbox,
                      const struct store_sandbox *children, size_t count) {
    (void)data, (void)sandbox;
    struct api_forked forked[100];
    if (count > 100) abort();
    for (size_t i = 0; i < count; i++) forked[i] = (struct api_forked){.sandbox = &children[i]};
    api_reply_forks(call, forked, count);
}

static void done_exec(void *data, struct api_call *call, const struct store_sandbox *sandbox, const struct api_exec *exec) {
    (void)data, (void)sandbox;
    api_exec_output(call, API_STDERR, exec->argv[0], strlen(exec->argv[0]));
    api_exec_end(call, 0, 0, NULL);
}

static void done_explain(void *data, struct api_call *call, const struct store_sandbox *sandbox, const char *url) {
    (void)data, (void)sandbox;
    if (!*url) abort();
    api_reply_json(call, 200, "{}");
}

static void done_build(void *data, struct api_call *call, const struct store_template *item, const struct api_build *build) {
    (void)data, (void)item;
    for (size_t i = 0; i < build->step_count; i++)
        if (!build->steps[i].args || !build->steps[i].args[0]) abort();
    api_reply_done(call);
}

static void done_template(void *data, struct api_call *call, const struct store_template *item) {
    (void)data, (void)item;
    api_reply_done(call);
}

static void done_decisions(void *data, struct api_call *call, const struct store_sandbox *sandbox) {
    (void)data, (void)sandbox;
    api_reply_log(call, "/nonexistent/log");
}

static void done_metrics(void *data, struct api_call *call) {
    (void)data;
    api_reply_text(call, "text/plain", "", 0);
}

static int done_token(void *data, const char *message, char ret_token[API_TOKEN_SIZE]) {
    (void)data;
    snprintf(ret_token, API_TOKEN_SIZE, "%s", message);
    return 0;
}

static const struct api_backend backend = {
    .create = done_create, .pause = done, .resume = done_resume, .set_end = done_end, .remove = done, .update = done_update,
    .snapshot = done_snapshot, .fork = done_fork, .exec = done_exec, .explain = done_explain, .decisions = done_decisions,
    .build = done_build, .remove_template = done_template, .metrics = done_metrics, .token = done_token,
};

#define TEXT(text) ((char *)(uintptr_t)(text))

static void start(void) {
    struct error err = {0};
    char folder[] = "/tmp/penstock-fuzz-XXXXXX", path[64];
    if (!mkdtemp(folder)) abort();
    snprintf(path, sizeof(path), "%s/store.db", folder);
    base = event_base_new();
    if (!base || store_open(path, &store, &err) < 0) abort();
    struct store_sandbox row = {.id = TEXT("i1"), .state = STORE_RUNNING, .type = POLICY_TYPE_CONTAINER, .started_us = 1,
                                .policy = TEXT("{\"network\":{}}"), .dialect = POLICY_DIALECT_E2B,
                                .metadata = TEXT("{\"k\":\"v\"}")};
    struct store_template item = {.id = TEXT("t1"), .name = TEXT("base"), .layers = TEXT("[\"l\"]"), .created_us = 1};
    struct store_build build = {.id = TEXT("b1"), .template_id = TEXT("t1")};
    struct api_options options = {.base = base, .store = store, .backend = &backend, .key = "k", .max_connections = 4};
    if (store_sandbox_insert(store, &row, &err) < 0 || store_template_insert(store, &item, &err) < 0 ||
        store_build_insert(store, &build, &err) < 0 || api_new(&options, &api, &err) < 0)
        abort();
    store_audit_limit(store, 10);
    // It goes on without its names, and nothing is left behind.
    char wal[80];
    snprintf(wal, sizeof(wal), "%s-wal", path);
    if (unlink(path) < 0 || unlink(wal) < 0 || rmdir(folder) < 0) abort();
}

// What was answered, as far as it came at once.
static void check_answer(int fd) {
    char bytes[65536];
    ssize_t got = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT);
    if (got > 0 && (got < 12 || memcmp(bytes, "HTTP/1.1 ", 9) != 0)) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const enum store_state states[] = {STORE_RUNNING, STORE_PAUSED, STORE_STARTING, STORE_STOPPING};
    struct error err = {0};
    int fds[2];
    if (!api) start();
    if (size == 0 || size > 65536) return 0;
    if (store_sandbox_set_state(store, "i1", states[data[0] & 3], &err) < 0) abort();
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) < 0) abort();
    if (connection_new(api, fds[0], "fuzz") < 0) abort();
    if (write(fds[1], data + 1, size - 1) < 0 && size > 1) abort();
    for (int i = 0; i < 4; i++) event_base_loop(base, EVLOOP_NONBLOCK);
    check_answer(fds[1]);
    shutdown(fds[1], SHUT_WR);
    for (int i = 0; i < 4; i++) event_base_loop(base, EVLOOP_NONBLOCK);
    close(fds[1]);
    for (int i = 0; i < 100 && api_counts(api).connections > 0; i++) event_base_loop(base, EVLOOP_NONBLOCK);
    if (api_counts(api).connections > 0 || api_counts(api).calls > 0) abort();
    return 0;
}
