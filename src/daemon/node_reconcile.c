// SPDX-License-Identifier: Apache-2.0
// A daemon that starts finds the sandboxes of the last one by their rows and folders. What was running and still answers runs
// on, under the policy that its shim enforces; an update that a crash cut in two is brought to the end that the shim knows.
// Anything else is cleaned up: nothing that was half made comes up by itself.
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    if (rc == 0) rc = node_adopt(node, &row, err);
    store_sandbox_done(&row);
    return rc;
}

// Folders without a row: sandboxes that built templates, and those whose row could not be written.
static void reconcile_folders(struct node *node) {
    AUTO_FREE char *path = NULL;
    DIR *folder = asprintf(&path, "%s/sandboxes", node->state) < 0 ? NULL : opendir(path);
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        AUTO_FREE char *one = NULL;
        if (entry->d_name[0] == '.' || node_find(node, entry->d_name) || asprintf(&one, "%s/%s", path, entry->d_name) < 0) continue;
        node_sweep(node, entry->d_name, one, NULL, NULL);
    }
    if (folder) closedir(folder);
}

int node_reconcile(struct node *node, struct error *err) {
    const struct store_filter all = {.ascending = true};
    struct reconcile reconcile = {0};
    int rc = store_build_abandon(node->store, "the daemon was restarted", err);
    if (rc == 0) rc = store_sandbox_list(node->store, &all, reconcile_row, &reconcile, err);
    for (size_t i = 0; rc == 0 && i < reconcile.count; i++) rc = reconcile_one(node, reconcile.ids[i], err);
    free(reconcile.ids);
    if (rc == 0) reconcile_folders(node);
    return rc;
}
