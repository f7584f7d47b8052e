// SPDX-License-Identifier: Apache-2.0
// Snapshots, forks and template builds: all of them end as a layer, a folder below layers/, which is there as a whole before a
// row names it. It goes with the last row that names it, at once or, after a crash, when the daemon starts.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "daemon/node_exec.h"

static char *layer_path(const struct node *node, const char *id) {
    char *path;
    return asprintf(&path, "%s/layers/%s", node->state, id) < 0 ? NULL : path;
}

// The layers of a sandbox with one more on top, as JSON.
static char *layers_with(const char *layers, const char *top) {
    json_t *array = json_loads(layers ? layers : "[]", 0, NULL);
    if (array) json_array_insert_new(array, 0, json_string(top));
    char *text = array ? json_dumps(array, JSON_COMPACT) : NULL;
    json_decref(array);
    return text;
}

// By a sandbox that builds a template.
static bool layer_is_built_on(const struct node *node, const char *folder) {
    LIST_FOREACH(&node->sandboxes, at) {
        const struct node_sandbox *sandbox = LIST_ENTRY(at, struct node_sandbox, list);
        if (sandbox->layers && strstr(sandbox->layers, folder)) return true;
    }
    return false;
}

void node_remove_layer(struct node *node, const char *folder) {
    static const char *const ends[] = {"", ".part", ".part.links"}; // of one that is being made, too
    AUTO_FREE char *layers = NULL;
    struct error err = {0};
    // Images are kept: the next cold start needs them.
    if (asprintf(&layers, "%s/layers/", node->state) < 0 || strncmp(folder, layers, strlen(layers)) != 0) return;
    if (layer_is_built_on(node, folder) || store_layer_used(node->store, folder, &err) != 0) return;
    for (size_t i = 0; i < ARRAY_LENGTH(ends); i++) {
        AUTO_FREE char *path = NULL;
        if (asprintf(&path, "%s%s", folder, ends[i]) >= 0 && access(path, F_OK) == 0) node_sweep(node, "-", path, NULL, NULL);
    }
}

void node_remove_layers(struct node *node, const char *layers) {
    json_t *array = layers ? json_loads(layers, 0, NULL) : NULL;
    for (size_t i = 0; i < json_array_size(array); i++) node_remove_layer(node, json_string_value(json_array_get(array, i)));
    json_decref(array);
}

char *node_template_layers(const struct node *node, const char *id) {
    struct store_template item = {0};
    struct error err;
    char *layers = store_template_get(node->store, id, &item, &err) == 0 ? TAKE_POINTER(item.layers) : NULL;
    store_template_done(&item);
    return layers;
}

// ---- snapshot ----

struct snapshot {
    struct node *node;
    struct api_call *call;
    char *layer;
    struct store_template item; // strings are copies
    bool replaces;
};

static void snapshot_free(struct snapshot *snapshot) {
    store_template_done(&snapshot->item);
    free(snapshot->layer);
    free(snapshot);
}

// Puts a copy in the place of each of somebody else's texts. False: out of memory (what has no copy is NULL).
static bool own_texts(char **const texts[], size_t count) {
    bool whole = true;
    for (size_t i = 0; i < count; i++) {
        if (!*texts[i]) continue;
        *texts[i] = strdup(*texts[i]);
        if (!*texts[i]) whole = false;
    }
    return whole;
}

static void snapshot_taken(const struct ipc_shim_done *done, void *data) {
    struct snapshot *snapshot = data;
    struct store *store = snapshot->node->store;
    struct error err = {0};
    AUTO_FREE char *before = snapshot->replaces ? node_template_layers(snapshot->node, snapshot->item.id) : NULL;
    int rc = !done ? error_set(&err, -EIO, "the sandbox ended meanwhile") : done->status < 0 ? error_set(&err, done->status, "%s", done->text) : 0;
    if (rc == 0) rc = snapshot->replaces ? store_template_replace(store, &snapshot->item, &err) : store_template_insert(store, &snapshot->item, &err);
    if (rc == 0) api_reply_snapshot(snapshot->call, &snapshot->item);
    else api_reply_errno(snapshot->call, rc, err.text);
    if (rc < 0) node_remove_layer(snapshot->node, snapshot->layer);
    else node_remove_layers(snapshot->node, before);
    snapshot_free(snapshot);
}

static int layer_call(struct node_sandbox *sandbox, const char *layer, shim_link_done *done, void *data, struct error *err) {
    json_t *argument = json_pack("{s:s}", "folder", layer);
    int rc = argument ? shim_link_call(sandbox->link, IPC_SHIM_SNAPSHOT, argument, NULL, done, NULL, data, err)
                      : error_set(err, -ENOMEM, "out of memory");
    json_decref(argument);
    return rc;
}

static struct node_sandbox *running(struct node *node, struct api_call *call, const char *id) {
    struct node_sandbox *sandbox = node_find(node, id);
    if (sandbox && sandbox->up && !sandbox->ending) return sandbox;
    api_reply_error(call, 404, "sandbox %s not found", id);
    return NULL;
}

void node_call_snapshot(void *data, struct api_call *call, const struct store_sandbox *row, const struct store_template *wanted,
                        bool replaces) {
    struct node *node = data;
    struct node_sandbox *sandbox = running(node, call, row->id);
    struct error err = {0};
    char id[STORE_ID_SIZE];
    if (!sandbox) return;
    struct snapshot *snapshot = NEW(struct snapshot);
    int rc = snapshot ? 0 : -ENOMEM;
    if (rc == 0) {
        *snapshot = (struct snapshot){.node = node, .call = call, .replaces = replaces, .item = *wanted};
        snapshot->layer = layer_path(node, store_make_id('l', id));
        struct store_template *item = &snapshot->item;
        char **const texts[] = {&item->id, &item->name, &item->sandbox_id, &item->build_id, &item->config};
        item->config = row->config;
        bool whole = own_texts(texts, ARRAY_LENGTH(texts));
        item->layers = snapshot->layer ? layers_with(row->layers, snapshot->layer) : NULL;
        if (!whole || !item->layers) rc = -ENOMEM;
    }
    if (rc == 0) rc = layer_call(sandbox, snapshot->layer, snapshot_taken, snapshot, &err);
    if (rc == 0) return;
    api_reply_errno(call, rc, rc == -ENOMEM ? "out of memory" : err.text);
    if (snapshot) snapshot_free(snapshot);
}

// ---- fork ----

struct fork_child {
    struct forking *forking;
    struct store_sandbox row; // strings are copies
    int status;
    char message[1024];
};

struct forking {
    struct node *node;
    struct api_call *call;
    char *layer;
    struct fork_child *children;
    size_t count, waiting;
};

static void forking_free(struct forking *forking) {
    for (size_t i = 0; i < forking->count; i++) store_sandbox_done(&forking->children[i].row);
    free(forking->children);
    free(forking->layer);
    free(forking);
}

static void forking_ends(struct forking *forking) {
    struct api_forked *forked = NEW_ARRAY(struct api_forked, forking->count);
    struct error err = {0};
    for (size_t i = 0; forked && i < forking->count; i++) {
        struct fork_child *child = &forking->children[i];
        struct store_sandbox row = {0};
        if (child->status == 0 && store_sandbox_get(forking->node->store, child->row.id, &row, &err) == 0) {
            store_sandbox_done(&child->row);
            child->row = row;
            forked[i].sandbox = &child->row;
        } else {
            forked[i] = (struct api_forked){.status = child->status ? child->status : 500, .message = child->message};
        }
    }
    if (forked) api_reply_forks(forking->call, forked, forking->count);
    else api_reply_error(forking->call, 500, "out of memory");
    free(forked);
    node_remove_layer(forking->node, forking->layer); // if none of them needs it
    forking_free(forking);
}

static void fork_started(struct node_sandbox *sandbox, int status, const char *text, void *data) {
    struct fork_child *child = data;
    (void)sandbox;
    child->status = status;
    snprintf(child->message, sizeof(child->message), "%s", text);
    if (--child->forking->waiting == 0) forking_ends(child->forking);
}

static void fork_taken(const struct ipc_shim_done *done, void *data) {
    struct forking *forking = data;
    if (!done || done->status < 0) {
        api_reply_errno(forking->call, done ? done->status : -EIO, done ? done->text : "the sandbox ended meanwhile");
        node_remove_layer(forking->node, forking->layer);
        forking_free(forking);
        return;
    }
    forking->waiting = forking->count + 1;
    for (size_t i = 0; i < forking->count; i++) {
        struct fork_child *child = &forking->children[i];
        struct error err = {0};
        if (node_boot(forking->node, &child->row, false, fork_started, child, NULL, &err) < 0)
            fork_started(NULL, 500, err.text, child);
    }
    if (--forking->waiting == 0) forking_ends(forking);
}

static int fork_copy(struct fork_child *child, const struct store_sandbox *wanted, const struct store_sandbox *parent,
                     const char *layer) {
    struct store_sandbox *row = &child->row;
    char **const texts[] = {&row->id,       &row->template_id, &row->alias,  &row->image,
                            &row->metadata, &row->env_vars,    &row->policy, &row->mask_request_host,
                            &row->config};
    *row = *wanted;
    row->config = parent->config;
    bool whole = own_texts(texts, ARRAY_LENGTH(texts));
    row->layers = layers_with(parent->layers, layer);
    return whole && row->layers ? 0 : -ENOMEM;
}

void node_call_fork(void *data, struct api_call *call, const struct store_sandbox *row, const struct store_sandbox *children,
                    size_t count) {
    struct node *node = data;
    struct node_sandbox *sandbox = running(node, call, row->id);
    struct error err = {0};
    char id[STORE_ID_SIZE];
    if (!sandbox) return;
    struct forking *forking = NEW(struct forking);
    int rc = forking ? 0 : -ENOMEM;
    if (rc == 0) {
        *forking = (struct forking){.node = node, .call = call, .layer = layer_path(node, store_make_id('l', id)),
                                    .children = NEW_ARRAY(struct fork_child, count)};
        rc = forking->layer && forking->children ? 0 : -ENOMEM;
    }
    for (size_t i = 0; rc == 0 && i < count; i++) {
        forking->children[i].forking = forking;
        forking->count++;
        rc = fork_copy(&forking->children[i], &children[i], row, forking->layer);
    }
    if (rc == 0) rc = layer_call(sandbox, forking->layer, fork_taken, forking, &err);
    if (rc == 0) return;
    api_reply_errno(call, rc, rc == -ENOMEM ? "out of memory" : err.text);
    if (forking) forking_free(forking);
}

// ---- removal ----

void node_call_remove_template(void *data, struct api_call *call, const struct store_template *item) {
    struct node *node = data;
    struct error err = {0};
    int rc = store_template_remove(node->store, item->id, &err);
    if (rc == 0) node_build_cancel(node, item->id);
    if (rc == 0) node_remove_layers(node, item->layers);
    if (rc == 0) api_reply_done(call);
    else api_reply_errno(call, rc, err.text);
}
