// SPDX-License-Identifier: Apache-2.0
// What the API asks of sandboxes that are there, and their creation: each call is answered when the shim has answered, or has
// gone. The store is told after the shim did it, so that a crash in between is mended by what the shim says (sandbox_up).
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/mem.h"
#include "daemon/node_exec.h"
#include "daemon/shim.h"
#include "daemon/shim_spec.h"
#include "net/net.h"
#include "policy/request.h"
#include "vault/vault.h"

// A call that waits for a shim.
struct node_wait {
    struct node_sandbox *sandbox;
    struct api_call *call;
    int64_t end_us; // resume
    struct error why; // a pause is undone
};

static struct node_wait *wait_new(struct node *node, struct api_call *call, const char *id) {
    struct node_sandbox *sandbox = node_find(node, id);
    if (!sandbox || !sandbox->up || sandbox->ending) {
        api_reply_error(call, 404, "sandbox %s not found", id);
        return NULL;
    }
    struct node_wait *wait = NEW(struct node_wait);
    if (wait) *wait = (struct node_wait){.sandbox = sandbox, .call = call};
    else api_reply_error(call, 500, "out of memory");
    return wait;
}

static void wait_fails(struct node_wait *wait, int code, const char *text) {
    api_reply_errno(wait->call, code, text);
    free(wait);
}

// False: it has been answered, as the shim could not do it.
static bool wait_succeeds(struct node_wait *wait, const struct ipc_shim_done *done) {
    if (done && done->status == 0) return true;
    wait_fails(wait, done ? done->status : -EIO, done ? done->text : "the sandbox ended meanwhile");
    return false;
}

static void wait_call(struct node_wait *wait, enum ipc_shim_verb verb, const json_t *argument, shim_link_done *done) {
    struct error err = {0};
    int rc = shim_link_call(wait->sandbox->link, verb, argument, NULL, done, NULL, wait, &err);
    if (rc < 0) wait_fails(wait, rc, err.text);
}

static void wait_reply_row(struct node_wait *wait, int rc, struct error *err) {
    struct store_sandbox row = {0};
    if (rc == 0) rc = store_sandbox_get(wait->sandbox->node->store, wait->sandbox->id, &row, err);
    if (rc == 0) api_reply_sandbox(wait->call, &row);
    else api_reply_errno(wait->call, rc, err->text);
    store_sandbox_done(&row);
    free(wait);
}

// ---- create ----

static void created(struct node_sandbox *sandbox, int status, const char *text, void *data) {
    struct node_wait *wait = data;
    struct error err = {0};
    wait->sandbox = sandbox;
    if (status == 0) {
        wait_reply_row(wait, 0, &err);
        return;
    }
    api_reply_error(wait->call, status, "%s", text);
    free(wait);
}

// Everything of its policy that is known before it starts is the caller's fault.
static int create_check(const struct node *node, const struct store_sandbox *row, struct error *err) {
    struct policy *policy = NULL;
    int rc = node_compile(&node->config, row, false, &policy, err);
    policy_free(policy);
    return rc;
}

static void node_create(void *data, struct api_call *call, const struct api_create *create) {
    struct node *node = data;
    struct error err = {0};
    struct node_wait *wait = NEW(struct node_wait);
    if (wait) *wait = (struct node_wait){.call = call};
    int rc = wait ? create_check(node, create->row, &err) : -ENOMEM;
    if (rc == 0) rc = node_boot(node, create->row, false, created, wait, NULL, &err);
    if (rc == 0 && create->source) store_template_spawned(node->store, create->source->id, store_now_us(), &err);
    if (rc == 0) return;
    api_reply_errno(call, rc, err.text);
    free(wait);
}

// ---- pause, resume, end ----

static void pause_undone(const struct ipc_shim_done *done, void *data) {
    struct node_wait *wait = data;
    struct error err = {0};
    if (done && done->status == 0) {
        wait->sandbox->paused = false;
        error_set(&err, -EIO, "the pause could not be stored and was undone: %s", wait->why.text);
    } else {
        error_set(&err, -EIO, "the pause could neither be stored nor undone: %s", done ? done->text : "the sandbox ended meanwhile");
    }
    wait_fails(wait, -EIO, err.text);
}

static void paused(const struct ipc_shim_done *done, void *data) {
    struct node_wait *wait = data;
    struct error err = {0};
    if (!wait_succeeds(wait, done)) return;
    wait->sandbox->paused = true;
    int rc = store_sandbox_set_state(wait->sandbox->node->store, wait->sandbox->id, STORE_PAUSED, &err);
    if (rc < 0) {
        wait->why = err;
        wait_call(wait, IPC_SHIM_RESUME, NULL, pause_undone);
        return;
    }
    node_set_timer(wait->sandbox, 0);
    api_reply_done(wait->call);
    free(wait);
}

static void node_pause(void *data, struct api_call *call, const struct store_sandbox *row) {
    struct node_wait *wait = wait_new(data, call, row->id);
    if (wait) wait_call(wait, IPC_SHIM_PAUSE, NULL, paused);
}

static void resume_store(struct node_wait *wait) {
    struct error err = {0};
    int rc = wait->sandbox->unstored ? node_store_found(wait->sandbox, &err) : 0;
    if (rc == 0) rc = store_sandbox_set_state_end(wait->sandbox->node->store, wait->sandbox->id, STORE_RUNNING, wait->end_us, &err);
    node_set_timer(wait->sandbox, wait->end_us);
    wait_reply_row(wait, rc, &err);
}

static void resumed(const struct ipc_shim_done *done, void *data) {
    struct node_wait *wait = data;
    if (!wait_succeeds(wait, done)) return;
    wait->sandbox->paused = false;
    resume_store(wait);
}

static void node_resume(void *data, struct api_call *call, const struct store_sandbox *row, int64_t end_us) {
    struct node_wait *wait = wait_new(data, call, row->id);
    if (!wait) return;
    wait->end_us = end_us;
    if (wait->sandbox->paused) wait_call(wait, IPC_SHIM_RESUME, NULL, resumed);
    else resume_store(wait); // it runs, and only its row says something else
}

static void node_set_end(void *data, struct api_call *call, const struct store_sandbox *row, int64_t end_us) {
    struct node *node = data;
    struct node_sandbox *sandbox = node_find(node, row->id);
    struct error err = {0};
    int rc = store_sandbox_set_end(node->store, row->id, end_us, &err);
    if (rc == 0 && sandbox) node_set_timer(sandbox, end_us);
    if (rc == 0) api_reply_done(call);
    else api_reply_errno(call, rc, err.text);
}

static void removed(const char *failure, void *data) {
    struct api_call *call = data;
    if (failure) api_reply_error(call, 500, "%s", failure);
    else api_reply_done(call);
}

static void node_remove(void *data, struct api_call *call, const struct store_sandbox *row) {
    struct node_sandbox *sandbox = node_find(data, row->id);
    if (sandbox) node_end(sandbox, removed, call);
    else api_reply_error(call, 404, "sandbox %s not found", row->id);
}

// ---- update ----

// One after the other for each sandbox: the store keeps one staged policy, and the shim brings one into force at a time.
struct node_updating {
    struct list list; // of the sandbox's
    struct node_sandbox *sandbox;
    struct api_call *call;
    char *policy;
    enum policy_dialect dialect;
    bool keep;
    uint64_t generation;
};

static void updating_free(struct node_updating *updating) {
    list_remove(&updating->list);
    if (updating->policy) explicit_bzero(updating->policy, strlen(updating->policy)); // may hold credentials
    free(updating->policy);
    free(updating);
}

static void updated(const struct ipc_shim_done *done, void *data);

static int updating_begin(struct node_updating *updating, struct error *err) {
    struct node_sandbox *sandbox = updating->sandbox;
    struct store *store = sandbox->node->store;
    struct error ignored;
    if (!sandbox->up || sandbox->ending) return error_set(err, -ENOENT, "sandbox %s not found", sandbox->id);
    int rc = sandbox->unstored ? node_store_found(sandbox, err) : 0;
    if (rc == 0) rc = store_policy_stage(store, sandbox->id, updating->policy, updating->dialect, &updating->generation, err);
    if (rc < 0) return rc;
    json_t *argument = node_policy_json(&sandbox->node->config, updating->policy, updating->dialect, updating->generation);
    rc = argument && json_object_set_new(argument, "keep", json_boolean(updating->keep)) == 0
             ? shim_link_call(sandbox->link, IPC_SHIM_POLICY, argument, NULL, updated, NULL, updating, err)
             : error_set(err, -ENOMEM, "out of memory");
    json_decref(argument);
    if (rc < 0) store_policy_drop(store, sandbox->id, updating->generation, &ignored);
    return rc;
}

static void updating_next(struct node_sandbox *sandbox) {
    while (!list_empty(&sandbox->updates)) {
        struct node_updating *updating = LIST_ENTRY(sandbox->updates.next, struct node_updating, list);
        struct error err = {0};
        int rc = updating_begin(updating, &err);
        if (rc == 0) return;
        api_reply_errno(updating->call, rc, err.text);
        updating_free(updating);
    }
}

static void updated(const struct ipc_shim_done *done, void *data) {
    struct node_updating *updating = data;
    struct node_sandbox *sandbox = updating->sandbox;
    struct store *store = sandbox->node->store;
    struct error err = {0}, ignored;
    int rc = !done ? error_set(&err, -EIO, "the sandbox ended meanwhile")
           : done->status < 0 ? error_set(&err, done->status, "%s", done->text) : 0;
    if (rc < 0) store_policy_drop(store, sandbox->id, updating->generation, &ignored);
    else if (store_policy_activate(store, sandbox->id, updating->generation, &err) < 0) node_store_later(sandbox, updating->generation, &err);
    if (rc == 0) {
        const struct api_updated report = {.generation = updating->generation, .update_us = done->update_us,
                                           .flows_closed = done->flows_closed, .flows_kept = done->flows_kept};
        api_reply_updated(updating->call, &report);
    } else {
        api_reply_errno(updating->call, rc, err.text);
    }
    updating_free(updating);
    updating_next(sandbox);
}

static void node_update(void *data, struct api_call *call, const struct store_sandbox *row, const struct api_update *update) {
    struct node_sandbox *sandbox = node_find(data, row->id);
    if (!sandbox) {
        api_reply_error(call, 404, "sandbox %s not found", row->id);
        return;
    }
    struct node_updating *updating = NEW(struct node_updating);
    if (updating) {
        *updating = (struct node_updating){.sandbox = sandbox, .call = call, .policy = strdup(update->policy),
                                           .dialect = update->dialect, .keep = update->keep_existing};
        list_init(&updating->list);
    }
    if (!updating || !updating->policy) {
        if (updating) updating_free(updating);
        api_reply_error(call, 500, "out of memory");
        return;
    }
    bool first = list_empty(&sandbox->updates);
    list_append(&sandbox->updates, &updating->list);
    if (first) updating_next(sandbox);
}

// ---- what it did ----

static void node_decisions(void *data, struct api_call *call, const struct store_sandbox *row) {
    struct node *node = data;
    AUTO_FREE char *path = NULL;
    if (asprintf(&path, "%s/sandboxes/%s/" SHIM_LOG, node->state, row->id) >= 0) api_reply_log(call, path);
    else api_reply_error(call, 500, "out of memory");
}

// ---- commands ----

struct node_run {
    struct api_call *call;
    struct node_exec *exec;
};

static bool run_output(int which, const void *bytes, size_t len, void *data) {
    const struct node_run *run = data;
    return api_exec_output(run->call, which == 0 ? API_STDOUT : API_STDERR, bytes, len) <= API_PENDING_MAX;
}

static void run_ended(int status, const char *failure, void *data) {
    struct node_run *run = data;
    if (status < 0) api_exec_end(run->call, 0, 0, failure);
    else api_exec_end(run->call, status, status > 128 ? status - 128 : 0, NULL);
    free(run);
}

static void run_gone(struct api_call *call, void *data) {
    struct node_run *run = data;
    node_exec_forget(run->exec);
    api_exec_end(call, 0, 0, "the client has gone");
    free(run);
}

static void run_drained(struct api_call *call, void *data) {
    (void)call;
    node_exec_go_on(((struct node_run *)data)->exec);
}

static json_t *run_environment(char *const *entries) {
    json_t *object = json_object();
    for (; *entries; entries++) {
        size_t len = strcspn(*entries, "=");
        AUTO_FREE char *name = strndup(*entries, len);
        if (name && (*entries)[len] == '=') json_object_set_new(object, name, json_string(*entries + len + 1));
    }
    return object;
}

static void node_exec(void *data, struct api_call *call, const struct store_sandbox *row, const struct api_exec *exec) {
    static const struct node_exec_handlers handlers = {.output = run_output, .ended = run_ended};
    struct node_sandbox *sandbox = node_find(data, row->id);
    struct error err = {0};
    if (!sandbox || !sandbox->up || sandbox->ending) {
        api_reply_error(call, 404, "sandbox %s not found", row->id);
        return;
    }
    struct node_run *run = NEW(struct node_run);
    json_t *argv = json_array(), *env = run_environment(exec->env);
    for (char *const *word = exec->argv; *word; word++) json_array_append_new(argv, json_string(*word));
    const struct node_command command = {.argv = argv, .env = env, .cwd = exec->cwd, .user = exec->user, .input = exec->input,
                                         .input_len = exec->input_len};
    int rc = run ? 0 : error_set(&err, -ENOMEM, "out of memory");
    if (run) run->call = call;
    if (rc == 0) rc = node_exec_start(sandbox, &command, &handlers, run, &run->exec, &err);
    json_decref(argv);
    json_decref(env);
    if (rc < 0) {
        api_reply_errno(call, rc, err.text);
        free(run);
        return;
    }
    const struct api_hooks hooks = {.gone = run_gone, .drained = run_drained, .data = run};
    api_call_watch(call, &hooks);
}

// ---- what its policy says ----

int node_compile(const struct node_config *config, const struct store_sandbox *row, bool known, struct policy **ret_policy,
                 struct error *err) {
    AUTO_FREE struct addr *own = NULL;
    size_t own_count = 0;
    struct shim_policy policy = {0};
    json_t *object = node_policy_json(config, row->policy, row->dialect, row->generation);
    int rc = host_addresses(&own, &own_count, err);
    if (rc == 0) rc = shim_policy_read(object, row->type, &policy, err);
    for (size_t i = 0; rc == 0 && !known && i < policy.model->binding_count; i++)
        rc = daemon_secret_look(&policy.model->bindings[i], err);
    if (rc == 0) policy.model->known = known;
    if (rc == 0) rc = policy_compile(policy.model, &policy.node, own, own_count, row->generation, ret_policy, NULL, err);
    shim_policy_done(&policy);
    json_decref(object);
    return rc;
}

static void node_explain(void *data, struct api_call *call, const struct store_sandbox *row, const char *url) {
    struct policy *policy = NULL;
    struct request request;
    struct error err = {0};
    int rc = request_parse(url, strlen(url), &request, &err);
    if (rc == 0) rc = node_compile(&((struct node *)data)->config, row, true, &policy, &err);
    if (rc < 0) {
        api_reply_errno(call, rc, err.text);
        return;
    }
    char hint[POLICY_HINT_SIZE], address[ADDR_TEXT_SIZE];
    struct request_verdict verdict = request_judge(policy, &request, NULL, 0);
    struct policy_rule_info rule = policy_rule_info(policy, verdict.decision.rule);
    request_hint(policy, &request, &verdict, hint);
    json_t *answer = json_pack("{s:s,s:s,s:s?,s:s?,s:s?,s:s?,s:i,s:s?}", "verdict", policy_verdict_name(verdict.decision.verdict),
                               "reason", policy_reason_name(verdict.decision.reason), "rule", rule.text, "source", rule.source,
                               "name", request.host.is_address ? NULL : request.host.name, "address",
                               verdict.has_address ? addr_format(&verdict.address, address) : NULL, "port", (int)request.port,
                               "hint", hint[0] ? hint : NULL);
    AUTO_FREE char *text = answer ? json_dumps(answer, JSON_COMPACT | JSON_PRESERVE_ORDER) : NULL;
    if (text) api_reply_json(call, 200, text);
    else api_reply_error(call, 500, "out of memory");
    json_decref(answer);
    policy_free(policy);
}

// ---- the table ----

static int node_token(void *data, const char *message, char ret_token[API_TOKEN_SIZE]) {
    return vault_token(((const struct node *)data)->token_seed, message, ret_token);
}

const struct api_backend node_backend = {
    .create = node_create, .pause = node_pause, .resume = node_resume, .set_end = node_set_end, .remove = node_remove,
    .update = node_update, .snapshot = node_call_snapshot, .fork = node_call_fork, .exec = node_exec, .explain = node_explain,
    .decisions = node_decisions, .build = node_call_build, .remove_template = node_call_remove_template,
    .metrics = node_metrics, .token = node_token,
};
