// SPDX-License-Identifier: Apache-2.0
// A daemon that starts finds the sandboxes of the last one by their rows and folders. What was running and still answers runs
// on, under the policy that its shim enforces; an update that a crash cut in two is brought to the end that the shim knows.
// Anything else is cleaned up: nothing that was half made comes up by itself. A shim that is about to start has died with its
// daemon, and one that was taking a snapshot for it throws that away.
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "daemon/node.h"

// The list is read before anything in it is changed.
struct reconcile {
    char (*ids)[STORE_ID_SIZE];
    size_t count;
};

static int reconcile_row(const struct store_sandbox *row, void *data) {
    struct reconcile *reconcile = data;
    void *grown = realloc(reconcile->ids, (reconcile->count + 1) * STORE_ID_SIZE);
    if (!grown) return -ENOMEM;
    reconcile->ids = grown;
    snprintf(reconcile->ids[reconcile->count++], STORE_ID_SIZE, "%s", row->id);
    return 0;
}

static int reconcile_one(struct node *node, const char *id, struct error *err) {
    struct store_sandbox row = {0};
    int rc = store_sandbox_get(node->store, id, &row, err);
    if (rc == 0) rc = node_adopt(node, id, row.type, row.state == STORE_RUNNING || row.state == STORE_PAUSED, false, err);
    store_sandbox_done(&row);
    return rc;
}

#define RECONCILE_WAIT_S 5

typedef int reconcile_folder(struct node *node, const char *name, const char *path, struct error *err);

static int reconcile_folders(struct node *node, const char *name, reconcile_folder *each, struct error *err) {
    AUTO_FREE char *path = NULL;
    DIR *folder = asprintf(&path, "%s/%s", node->state, name) < 0 ? NULL : opendir(path);
    int rc = folder ? 0 : error_set(err, -errno, "\"%s/%s\" cannot be read: %s", node->state, name, strerror(errno));
    for (struct dirent *entry; rc == 0 && (entry = readdir(folder));) {
        AUTO_FREE char *one = NULL;
        if (entry->d_name[0] == '.' && entry->d_type == DT_REG) unlinkat(dirfd(folder), entry->d_name, 0); // of a spare shim
        if (entry->d_name[0] == '.') continue;
        rc = asprintf(&one, "%s/%s", path, entry->d_name) < 0 ? error_set(err, -ENOMEM, "out of memory")
                                                              : each(node, entry->d_name, one, err);
    }
    if (folder) closedir(folder);
    return rc;
}

// Without a row: sandboxes that built templates, which may run still.
static int reconcile_hidden(struct node *node, const char *name, const char *path, struct error *err) {
    (void)path;
    return strlen(name) >= STORE_ID_SIZE || node_find(node, name) ? 0 : node_adopt(node, name, POLICY_TYPE_CONTAINER, false, true, err);
}

static int reconcile_layer(struct node *node, const char *name, const char *path, struct error *err) {
    (void)name;
    int used = store_layer_used(node->store, path, err);
    if (used == 0) node_sweep(node, "-", path, NULL, NULL);
    return used < 0 ? used : 0;
}

static bool reconcile_is_waiting(const struct node *node) {
    LIST_FOREACH(&node->sandboxes, at) {
        const struct node_sandbox *sandbox = LIST_ENTRY(at, struct node_sandbox, list);
        if (sandbox->adopted && !sandbox->up && !sandbox->ending) return true;
    }
    return false;
}

static bool reconcile_is_ending(const struct node *node) {
    LIST_FOREACH(&node->sandboxes, at)
        if (LIST_ENTRY(at, struct node_sandbox, list)->ending) return true;
    return !list_empty(&node->sweeps);
}

static void reconcile_late(evutil_socket_t fd, short what, void *data) {
    (void)fd, (void)what;
    *(bool *)data = true;
}

// Not for longer than RECONCILE_WAIT_S. False: the loop was broken.
static bool reconcile_await(struct node *node, bool (*is_waiting)(const struct node *node)) {
    static const struct timeval patience = {.tv_sec = RECONCILE_WAIT_S};
    bool late = false, broken = false;
    struct event *timer = evtimer_new(node->base, reconcile_late, &late);
    if (!timer || event_add(timer, &patience) < 0) late = true;
    while (!late && !broken && is_waiting(node) && event_base_loop(node->base, EVLOOP_ONCE) == 0)
        broken = event_base_got_break(node->base);
    if (timer) event_free(timer);
    return !broken;
}

int node_reconcile(struct node *node, struct error *err) {
    const struct store_filter all = {.ascending = true};
    struct reconcile reconcile = {0};
    int rc = store_build_abandon(node->store, "the daemon was restarted", err);
    if (rc == 0) rc = store_sandbox_list(node->store, &all, reconcile_row, &reconcile, err);
    for (size_t i = 0; rc == 0 && i < reconcile.count; i++) rc = reconcile_one(node, reconcile.ids[i], err);
    free(reconcile.ids);
    if (rc == 0) rc = reconcile_folders(node, "sandboxes", reconcile_hidden, err);
    if (rc == 0) rc = reconcile_folders(node, "layers", reconcile_layer, err);
    // Nobody is to be told that there is no such sandbox; one that is busy is not waited for.
    return rc < 0 || reconcile_await(node, reconcile_is_waiting) ? rc : error_set(err, -EINTR, "ended before it had begun");
}

void node_settle(struct node *node) {
    LIST_FOREACH(&node->sandboxes, at) {
        struct node_sandbox *sandbox = LIST_ENTRY(at, struct node_sandbox, list);
        if (sandbox->hidden && !sandbox->ending) node_end(sandbox, NULL, NULL);
    }
    api_stop(node->api);
    reconcile_await(node, reconcile_is_ending);
}
