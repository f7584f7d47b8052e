// SPDX-License-Identifier: Apache-2.0
// Snapshots: of a sandbox's file system (not of its processes), listed, shown. They are removed as templates are.
#include <errno.h>

#include "api/fields.h"
#include "api/names.h"
#include "api/query.h"
#include "api/render.h"
#include "api/route.h"
#include "api/template_calls.h"
#include "base/mem.h"

static int read_name(json_t *body, char ret_name[NAMES_MAX + 1], struct error *err) {
    const char *text = NULL;
    int r = field_string(body, "name", 256, &text, err);
    ret_name[0] = '\0';
    return r > 0 ? names_read(text, ret_name, err) : r;
}

// The snapshot of that name which the new one replaces: 1, 0: there is none.
static int find_same(struct store *store, const char *name, struct store_template *ret_item, struct error *err) {
    if (!*name) return 0;
    int r = store_template_get(store, name, ret_item, err);
    if (r == -ENOENT) return 0;
    if (r < 0) return r;
    bool replaces = ret_item->kind == STORE_SNAPSHOT && ret_item->name && strcmp(ret_item->name, name) == 0;
    if (replaces) return 1;
    store_template_done(ret_item);
    return error_set(err, -EEXIST, "\"%s\" is the name or id of another template or snapshot; choose another", name);
}

void route_snapshot(struct api_request *request) {
    struct store_sandbox sandbox;
    struct store_template same = {0};
    struct error err = {0};
    char name[NAMES_MAX + 1], id[STORE_ID_SIZE];
    int r = read_name(request->body, name, &err);
    int replaces = r < 0 ? r : find_same(request->api->options.store, name, &same, &err);
    if (replaces < 0) {
        api_reply_errno(request->call, replaces, err.text);
        return;
    }
    if (call_sandbox(request, &sandbox)) {
        struct store_template wanted = {.id = replaces ? same.id : (char *)(uintptr_t)store_make_id('s', id),
                                        .kind = STORE_SNAPSHOT,
                                        .name = *name ? name : NULL,
                                        .sandbox_id = sandbox.id,
                                        .cpu_count = sandbox.cpu_count,
                                        .memory_mb = sandbox.memory_mb,
                                        .disk_mb = sandbox.disk_mb,
                                        .created_us = replaces ? same.created_us : store_now_us()};
        if (sandbox.state == STORE_RUNNING || sandbox.state == STORE_PAUSED) {
            request->call->handed = true;
            request->api->options.backend->snapshot(request->api->options.data, request->call, &sandbox, &wanted,
                                                    replaces > 0);
        } else {
            api_reply_error(request->call, 409, "sandbox cannot be snapshotted from %s state",
                            store_state_name(sandbox.state));
        }
        store_sandbox_done(&sandbox);
    }
    store_template_done(&same);
}

// ---- lists ----

struct listing {
    json_t *list;
    size_t limit;
    int64_t last_us;
    char last_id[STORE_ID_SIZE];
};

static int append(const struct store_template *item, void *data) {
    struct listing *listing = data;
    if (json_array_size(listing->list) == listing->limit) return 1; // there is more
    listing->last_us = item->created_us;
    snprintf(listing->last_id, sizeof(listing->last_id), "%s", item->id);
    return json_array_append_new(listing->list, render_snapshot(item)) < 0 ? -ENOMEM : 0;
}

void route_snapshots(struct api_request *request) {
    struct listing listing = {.list = json_array()};
    struct error err = {0};
    char name[NAMES_MAX + 1];
    struct store_template_filter filter = {.has_kind = true, .kind = STORE_SNAPSHOT,
                                           .sandbox_id = query_get(request, "sandboxID")};
    const char *wanted = query_get(request, "name");
    int r = query_limit(request, &listing.limit, &err);
    if (r == 0) r = query_page(request, &filter.after_us, &filter.after_id, &err);
    if (r == 0 && wanted && *wanted) r = names_read(wanted, name, &err);
    if (wanted && *wanted) filter.id_or_name = name;
    filter.limit = listing.limit + 1;
    if (r == 0 && !listing.list) r = -ENOMEM;
    if (r == 0) r = store_template_list(request->api->options.store, &filter, append, &listing, &err);
    if (r > 0) query_next(request->call, listing.last_us, listing.last_id);
    call_result(request->call, r, listing.list, &err);
}

void route_snapshot_info(struct api_request *request) {
    struct store_template item;
    struct error err = {0};
    const char *id = request->params[0];
    int r = store_template_get(request->api->options.store, id, &item, &err);
    bool found = r == 0 && item.kind == STORE_SNAPSHOT;
    if (found) call_json(request->call, 200, render_snapshot(&item));
    else template_missing(request, r, &err, "snapshot %s not found", id);
    if (r == 0) store_template_done(&item);
}
