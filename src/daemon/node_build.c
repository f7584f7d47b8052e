// SPDX-License-Identifier: Apache-2.0
// A template's build: a sandbox without a row, in which the steps run one after the other under the build's policy; then its
// layer is the template's. A build that fails leaves the template as it was; a crash ends it (node_reconcile).
//
// A start command is run in every sandbox of the template, since a layer holds files and no processes. Where there is a ready
// command the build runs both, and the layer is taken when that one has succeeded: a template whose service does not come up is
// not made, and what the service has written is there for the next start.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "daemon/node_exec.h"
#include "daemon/shim.h"

#define BUILD_LINE_MAX 4096 // bytes of one line of its log; longer ones are cut
#define BUILD_READY_S 300   // for a ready command to succeed
#define BUILD_STEPS_S 3600  // for all steps together
#define BUILD_TURN_LINES 100 // that are logged at a time, then a pause, in which the command waits: whatever it writes, others
#define BUILD_TURN_US 20000  // come to their turn
// Asks again each second, inside: so that it ends with the sandbox.
#define BUILD_UNTIL "until /bin/sh -c \"$1\"; do sleep 1 || exit; done"

struct building {
    struct list link;
    struct node *node;
    struct node_sandbox *sandbox;
    char template_id[STORE_ID_SIZE], id[STORE_ID_SIZE];
    struct api_step *steps; // copies
    size_t step_count, at;
    json_t *layers, *config; // config: env, cwd, user, argv, start_cmd
    char *layer;
    struct buf lines[2];     // of the command that runs, not logged yet
    char step[512];
    struct node_exec *command, *service, *ready; // a step; the start command, and what waits until it is up; NULL: it has ended
    struct event *patience, *turn;
    bool over;      // its sandbox is being ended
    bool cancelled; // the store knows nothing of it any more
};

static void build_next(struct building *building);

static void build_steps_free(struct api_step *steps, size_t count) {
    for (size_t i = 0; i < count; i++) {
        for (size_t k = 0; k < steps[i].count; k++) free(steps[i].args[k]);
        free((void *)(uintptr_t)steps[i].args);
    }
    free(steps);
}

static void build_free(struct building *building) {
    list_remove(&building->link);
    build_steps_free(building->steps, building->step_count);
    json_decref(building->layers);
    json_decref(building->config);
    free(building->layer);
    for (size_t i = 0; i < 2; i++) buf_done(&building->lines[i]);
    if (building->patience) event_free(building->patience);
    if (building->turn) event_free(building->turn);
    free(building);
}

// What still runs in it has nothing more to say.
static void build_forget(struct building *building) {
    struct node_exec **execs[] = {&building->command, &building->service, &building->ready};
    for (size_t i = 0; i < ARRAY_LENGTH(execs); i++)
        if (*execs[i]) node_exec_forget(TAKE_POINTER(*execs[i]));
    if (building->patience) event_del(building->patience);
    if (building->turn) event_del(building->turn);
}

static void build_log_all(struct building *building, const char *level, const char *const *texts, size_t count) {
    struct error err = {0};
    if (store_build_log(building->node->store, building->id, level, texts, count, &err) < 0) fprintf(stderr, "penstock: %s\n", err.text);
}

static void build_log(struct building *building, const char *level, const char *text) { build_log_all(building, level, &text, 1); }

static void build_ended(const char *failure, void *data) {
    (void)failure;
    build_free(data);
}

static void build_fails(struct building *building, const char *reason) {
    struct error err = {0};
    building->over = true;
    build_forget(building);
    if (!building->cancelled) build_log(building, "error", reason);
    if (!building->cancelled && store_build_fail(building->node->store, building->id, building->step, reason, &err) < 0)
        fprintf(stderr, "penstock: build %s: %s\n", building->id, err.text);
    if (building->sandbox) node_end(building->sandbox, build_ended, building);
    else build_free(building);
}

// ---- the result ----

static void build_taken(const struct ipc_shim_done *done, void *data) {
    struct building *building = data;
    struct error err = {0};
    if (!done || done->status < 0) {
        node_remove_layer(building->node, building->layer);
        build_fails(building, done ? done->text : "the sandbox ended meanwhile");
        return;
    }
    json_array_insert_new(building->layers, 0, json_string(building->layer));
    AUTO_FREE char *layers = json_dumps(building->layers, JSON_COMPACT), *config = json_dumps(building->config, JSON_COMPACT);
    AUTO_FREE char *before = node_template_layers(building->node, building->template_id);
    int rc = layers && config ? store_build_finish(building->node->store, building->id, layers, config, 0, &err)
                              : error_set(&err, -ENOMEM, "out of memory");
    if (rc < 0) {
        node_remove_layer(building->node, building->layer);
        build_fails(building, err.text);
        return;
    }
    node_remove_layers(building->node, before);
    building->over = true;
    build_forget(building);
    node_end(building->sandbox, build_ended, building);
}

static void build_finish(struct building *building) {
    char id[STORE_ID_SIZE];
    struct error err = {0};
    snprintf(building->step, sizeof(building->step), "finalize");
    event_del(building->patience); // its end is that of the call
    if (asprintf(&building->layer, "%s/layers/%s", building->node->state, store_make_id('l', id)) < 0) building->layer = NULL;
    json_t *argument = building->layer ? json_pack("{s:s}", "folder", building->layer) : NULL;
    int rc = argument ? shim_link_call(building->sandbox->link, IPC_SHIM_SNAPSHOT, argument, NULL, build_taken, NULL, building, &err)
                      : error_set(&err, -ENOMEM, "out of memory");
    json_decref(argument);
    if (rc < 0) build_fails(building, err.text);
}

// ---- steps ----

// How many bytes its first line has, with its end; 0: it has none yet. A long one is cut.
static size_t build_line(const struct buf *lines, bool last) {
    const char *end = lines->len > 0 ? memchr(lines->data, '\n', lines->len) : NULL;
    if (end) return (size_t)(end - lines->data) + 1;
    return last || lines->len > BUILD_LINE_MAX ? lines->len : 0;
}

// last: what has no end yet is a line too. False: there is more.
static bool build_lines(struct building *building, int which, bool last) {
    struct buf *lines = &building->lines[which];
    const char *texts[BUILD_TURN_LINES];
    size_t count = 0, len;
    for (; count < BUILD_TURN_LINES && (len = build_line(lines, last)) > 0; count++) {
        size_t text_len = len - (lines->data[len - 1] == '\n');
        texts[count] = strndup(lines->data, text_len < BUILD_LINE_MAX ? text_len : BUILD_LINE_MAX);
        buf_consume(lines, len);
        if (!texts[count]) break;
    }
    if (count > 0) build_log_all(building, which == 0 ? "info" : "warn", texts, count);
    for (size_t i = 0; i < count; i++) free((void *)(uintptr_t)texts[i]);
    return build_line(lines, last) == 0;
}

static bool build_all_lines(struct building *building) {
    static const struct timeval moment = {.tv_usec = BUILD_TURN_US};
    bool first = build_lines(building, 0, false), second = build_lines(building, 1, false);
    if (!first || !second) event_add(building->turn, &moment);
    return first && second;
}

static void build_turn(evutil_socket_t fd, short what, void *data) {
    (void)fd, (void)what;
    struct building *building = data;
    if (!build_all_lines(building)) return;
    if (building->command) node_exec_go_on(building->command);
    if (building->service) node_exec_go_on(building->service);
}

static bool build_output(int which, const void *bytes, size_t len, void *data) {
    struct building *building = data;
    buf_append(&building->lines[which], bytes, len);
    return !event_pending(building->turn, EV_TIMEOUT, NULL) && build_all_lines(building);
}

static void build_last_lines(struct building *building) {
    for (int which = 0; which < 2; which++) build_lines(building, which, true);
}

static void build_command_failed(struct building *building, int status, const char *failure) {
    char reason[IPC_SHIM_TEXT_SIZE + 64];
    if (status < 0) snprintf(reason, sizeof(reason), "%s", failure);
    else snprintf(reason, sizeof(reason), "the command ended with status %d", status);
    build_fails(building, reason);
}

static void build_step_ended(int status, const char *failure, void *data) {
    struct building *building = data;
    building->command = NULL;
    build_last_lines(building);
    if (status != 0) {
        build_command_failed(building, status, failure);
        return;
    }
    building->at++;
    build_next(building);
}

// Runs words. Without them, or if they cannot be run, the build has failed.
static bool build_exec(struct building *building, json_t *argv, const char *user, const struct node_exec_handlers *handlers,
                       struct node_exec **ret_exec) {
    struct error err = {0};
    const char *own = json_string_value(json_object_get(building->config, "user"));
    const struct node_command command = {.argv = argv, .env = json_object_get(building->config, "env"),
                                         .cwd = json_string_value(json_object_get(building->config, "cwd")),
                                         .user = user ? user : own && *own ? own : NULL, .input = ""};
    int rc = argv ? node_exec_start(building->sandbox, &command, handlers, building, ret_exec, &err)
                  : error_set(&err, -ENOMEM, "out of memory");
    json_decref(argv);
    if (rc < 0) build_fails(building, err.text);
    return rc == 0;
}

// The step ends with them.
static void build_run(struct building *building, json_t *argv, const char *user) {
    static const struct node_exec_handlers handlers = {.output = build_output, .ended = build_step_ended};
    build_exec(building, argv, user, &handlers, &building->command);
}

static void build_workdir(struct building *building, const char *path) {
    const char *base = json_string_value(json_object_get(building->config, "cwd"));
    AUTO_FREE char *whole = NULL;
    if (asprintf(&whole, "%s%s%s", path[0] == '/' ? "" : base ? base : "/", path[0] == '/' ? "" : "/", path) < 0) whole = NULL;
    json_t *argv = whole ? json_pack("[s,s,s,s]", "mkdir", "-p", "--", whole) : NULL;
    json_object_set_new(building->config, "cwd", json_string("/"));
    build_run(building, argv, NULL);
    if (whole) json_object_set_new(building->config, "cwd", json_string(whole));
}

// ---- the service ----

static void build_service_ended(int status, const char *failure, void *data) {
    struct building *building = data;
    building->service = NULL;
    build_last_lines(building);
    if (status != 0 && building->ready) build_command_failed(building, status, failure); // else it was to end, or its layer is taken
}

static void build_ready_ended(int status, const char *failure, void *data) {
    struct building *building = data;
    building->ready = NULL;
    event_del(building->patience);
    if (status == 0) build_finish(building);
    else build_command_failed(building, status, failure);
}

static void build_impatient(evutil_socket_t fd, short what, void *data) {
    (void)fd, (void)what;
    const struct building *building = data;
    char reason[128];
    if (building->ready) snprintf(reason, sizeof(reason), "the ready command did not succeed within %d seconds", BUILD_READY_S);
    else snprintf(reason, sizeof(reason), "the steps did not end within %d seconds", BUILD_STEPS_S);
    build_fails(data, reason);
}

static void build_service(struct building *building) {
    static const struct node_exec_handlers service = {.output = build_output, .ended = build_service_ended};
    static const struct node_exec_handlers ready = {.ended = build_ready_ended};
    static const struct timeval patience = {.tv_sec = BUILD_READY_S};
    const char *start_text = json_string_value(json_object_get(building->config, "start_cmd"));
    const char *ready_text = json_string_value(json_object_get(building->config, "ready_cmd"));
    if (!ready_text) {
        build_finish(building);
        return;
    }
    snprintf(building->step, sizeof(building->step), "ready: %s", ready_text);
    build_log(building, "info", building->step);
    event_add(building->patience, &patience);
    if (start_text && !build_exec(building, json_pack("[s,s,s]", "/bin/sh", "-c", start_text), NULL, &service, &building->service)) return;
    build_exec(building, json_pack("[s,s,s,s,s]", "/bin/sh", "-c", BUILD_UNTIL, "sh", ready_text), NULL, &ready, &building->ready);
}

static void build_next(struct building *building) {
    while (building->at < building->step_count) {
        const struct api_step *step = &building->steps[building->at];
        snprintf(building->step, sizeof(building->step), "%zu: %s", building->at + 1, step->count > 0 ? step->args[0] : "");
        build_log(building, "info", building->step);
        json_t *environment = json_object_get(building->config, "env");
        switch (step->kind) {
        case API_STEP_RUN:
            build_run(building, json_pack("[s,s,s]", "/bin/sh", "-c", step->args[0]), step->count > 1 ? step->args[1] : NULL);
            return;
        case API_STEP_WORKDIR:
            build_workdir(building, step->args[0]);
            return;
        case API_STEP_ENV:
            for (size_t i = 0; i + 1 < step->count; i += 2)
                json_object_set_new(environment, step->args[i], json_string(step->args[i + 1]));
            break;
        case API_STEP_USER:
            json_object_set_new(building->config, "user", json_string(step->args[0]));
            break;
        }
        building->at++;
    }
    build_service(building);
}

// ---- start ----

// What the image said; a template's own was known before.
static void build_read_image(struct building *building) {
    AUTO_FREE char *path = NULL;
    if (asprintf(&path, "%s/" SHIM_IMAGE, building->sandbox->folder) < 0) return;
    json_t *image = json_load_file(path, 0, NULL);
    if (!image) return;
    json_array_extend(building->layers, json_object_get(image, "layers"));
    json_object_update_missing(building->config, json_object_get(image, "config"));
    json_decref(image);
}

static void build_started(struct node_sandbox *sandbox, int status, const char *text, void *data) {
    struct building *building = data;
    if (status != 0) {
        building->sandbox = NULL; // it is gone
        build_fails(building, text);
        return;
    }
    static const struct timeval patience = {.tv_sec = BUILD_STEPS_S};
    building->sandbox = sandbox;
    if (building->cancelled) {
        build_fails(building, "");
        return;
    }
    building->patience = evtimer_new(building->node->base, build_impatient, building);
    building->turn = evtimer_new(building->node->base, build_turn, building);
    if (!building->patience || !building->turn || event_add(building->patience, &patience) < 0) {
        build_fails(building, "out of memory");
        return;
    }
    if (json_array_size(building->layers) == 0) build_read_image(building);
    if (!json_object_get(building->config, "env")) json_object_set_new(building->config, "env", json_object());
    build_next(building);
}

static int build_copy_steps(struct building *building, const struct api_build *build) {
    building->steps = NEW_ARRAY(struct api_step, build->step_count);
    if (!building->steps) return -ENOMEM;
    for (size_t i = 0; i < build->step_count; i++) {
        struct api_step *step = &building->steps[i];
        char **args = NEW_ARRAY(char *, build->steps[i].count + 1);
        *step = (struct api_step){.kind = build->steps[i].kind, .args = args};
        building->step_count++;
        for (size_t k = 0; args && k < build->steps[i].count; k++, step->count++)
            if (!(args[k] = strdup(build->steps[i].args[k]))) return -ENOMEM;
        if (!args) return -ENOMEM;
    }
    return 0;
}

void node_build_cancel(struct node *node, const char *template_id) {
    LIST_FOREACH(&node->builds, at) {
        struct building *building = LIST_ENTRY(at, struct building, link);
        if (building->over || strcmp(building->template_id, template_id) != 0) continue;
        building->cancelled = true;
        // Else it ends when it has been started, or when its layer has been taken.
        if (building->sandbox && !building->layer) build_fails(building, "");
    }
}

void node_call_build(void *data, struct api_call *call, const struct store_template *item, const struct api_build *build) {
    struct node *node = data;
    struct error err = {0};
    const struct store_template *source = build->from_template;
    char id[STORE_ID_SIZE];
    int rc = store_build_start(node->store, build->id, &err);
    if (rc < 0) {
        api_reply_errno(call, rc, err.text);
        return;
    }
    api_reply_done(call);
    struct building *building = NEW(struct building);
    if (!building) return; // the build stays as it is; a restart says so
    *building = (struct building){.node = node, .layers = json_loads(source ? source->layers : "[]", 0, NULL),
                                  .config = json_loads(source && source->config ? source->config : "{}", 0, NULL)};
    list_append(&node->builds, &building->link);
    snprintf(building->template_id, sizeof(building->template_id), "%s", item->id);
    snprintf(building->id, sizeof(building->id), "%s", build->id);
    snprintf(building->step, sizeof(building->step), "start");
    if (build->start_cmd) json_object_set_new(building->config, "start_cmd", json_string(build->start_cmd));
    if (build->ready_cmd) json_object_set_new(building->config, "ready_cmd", json_string(build->ready_cmd));
    const struct store_sandbox row = {.id = (char *)store_make_id('b', id), .type = POLICY_TYPE_CONTAINER,
                                      .image = (char *)(uintptr_t)build->from_image, .policy = (char *)(uintptr_t)build->policy,
                                      .dialect = build->dialect, .layers = source ? source->layers : NULL,
                                      .config = source ? source->config : NULL, .cpu_count = item->cpu_count,
                                      .memory_mb = item->memory_mb, .generation = 1};
    rc = building->layers && building->config ? build_copy_steps(building, build) : -ENOMEM;
    if (rc == 0) rc = node_boot(node, &row, true, build_started, building, NULL, &err);
    if (rc < 0) build_fails(building, err.text[0] ? err.text : "out of memory");
}
