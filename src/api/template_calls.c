// SPDX-License-Identifier: Apache-2.0
// Templates: announced (with a build that waits), listed, shown, removed.
#include <errno.h>
#include <stdarg.h>

#include "api/fields.h"
#include "api/names.h"
#include "api/query.h"
#include "api/render.h"
#include "api/route.h"
#include "api/template_calls.h"
#include "base/mem.h"

void template_missing(struct api_request *request, int r, const struct error *err, const char *format, ...) {
    char text[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    if (r < 0 && r != -ENOENT) api_reply_errno(request->call, r, err->text);
    else api_reply_error(request->call, 404, "%s", text);
}

bool template_get(struct api_request *request, struct store_template *ret_item) {
    struct error err = {0};
    const char *id = request->params[0];
    int r = store_template_get(request->api->options.store, id, ret_item, &err);
    if (r == 0) call_subject(request->call, ret_item->id);
    else template_missing(request, r, &err, "template %s not found", id);
    return r == 0;
}

int template_unbuilt(struct store *store, const struct store_template *item, const char *name, struct error *err) {
    struct store_build build = {0};
    int r = item->build_id ? store_build_get(store, item->id, item->build_id, &build, err) : -ENOENT;
    if (r == -ENOENT) return error_set(err, -EINVAL, "template %s was never built; build it", name);
    if (r < 0) return r;
    switch (build.status) {
    case STORE_BUILD_WAITING:
        r = error_set(err, -EINVAL, "template %s: its build %s has not been started; start it", name, build.id);
        break;
    case STORE_BUILD_BUILDING:
        r = error_set(err, -EINVAL, "template %s: its build %s has not ended; wait until it is ready", name, build.id);
        break;
    case STORE_BUILD_ERROR:
        r = error_set(err, -EINVAL, "template %s: its build %s failed (%.300s); build it again", name, build.id,
                      build.reason ? build.reason : "without a reason");
        break;
    case STORE_BUILD_READY:
    case STORE_BUILD_STATUS_COUNT:
        r = error_set(err, -EINVAL, "template %s: nothing is left of its build %s; build it again", name, build.id);
        break;
    }
    store_build_done(&build);
    return r;
}

// ---- POST /v3/templates ----

struct announcement {
    char name[NAMES_MAX + 1], id[STORE_ID_SIZE], build_id[STORE_ID_SIZE];
    uint32_t cpu_count, memory_mb;
};

static int read_announcement(struct api_request *request, struct announcement *announcement, struct error *err) {
    json_t *body = request->body;
    const char *text = NULL;
    AUTO_FREE char **tags = NULL;
    size_t tag_count = 0;
    announcement->cpu_count = request->api->options.cpu_count;
    announcement->memory_mb = request->api->options.memory_mb;
    int r = field_string(body, "name", 256, &text, err);
    if (r == 0) r = field_string(body, "alias", 256, &text, err); // as older clients call it
    if (r > 0) r = names_read(text, announcement->name, err);
    if (r >= 0) r = field_strings(body, "tags", 16, &tags, &tag_count, err);
    for (size_t i = 0; r >= 0 && i < tag_count; i++)
        if (strcmp(tags[i], "default") != 0) r = error_set(err, -EINVAL, "tags are not supported; leave them out");
    if (r >= 0) r = field_number(body, "cpuCount", 1, 1024, &announcement->cpu_count, err);
    if (r >= 0) r = field_number(body, "memoryMB", 128, 16 << 20, &announcement->memory_mb, err);
    return r < 0 ? r : 0;
}

// The template of that name, or a new one.
static int find_or_insert(struct store *store, struct announcement *announcement, struct error *err) {
    struct store_template item;
    int r = *announcement->name ? store_template_get(store, announcement->name, &item, err) : -ENOENT;
    if (r == 0) {
        bool fits = item.kind == STORE_TEMPLATE;
        snprintf(announcement->id, sizeof(announcement->id), "%s", item.id);
        store_template_done(&item);
        return fits ? 0 : error_set(err, -EEXIST, "\"%s\" is a snapshot; choose another name", announcement->name);
    }
    if (r != -ENOENT) return r;
    item = (struct store_template){.id = (char *)(uintptr_t)store_make_id('t', announcement->id),
                                   .kind = STORE_TEMPLATE,
                                   .name = *announcement->name ? announcement->name : NULL,
                                   .cpu_count = announcement->cpu_count,
                                   .memory_mb = announcement->memory_mb,
                                   .created_us = store_now_us()};
    return store_template_insert(store, &item, err);
}

void route_template_create(struct api_request *request) {
    struct announcement announcement = {0};
    struct error err = {0};
    struct store *store = request->api->options.store;
    int r = read_announcement(request, &announcement, &err);
    if (r == 0) r = find_or_insert(store, &announcement, &err);
    struct store_build build = {.id = (char *)(uintptr_t)store_make_id('b', announcement.build_id),
                                .template_id = announcement.id,
                                .cpu_count = announcement.cpu_count,
                                .memory_mb = announcement.memory_mb,
                                .created_us = store_now_us()};
    if (r == 0) r = store_build_insert(store, &build, &err);
    if (r < 0) {
        api_reply_errno(request->call, r, err.text);
        return;
    }
    call_subject(request->call, announcement.id);
    request->call->handed = true; // it is done, and of the audit log
    const char *name = *announcement.name ? announcement.name : NULL;
    call_json(request->call, 202,
              json_pack("{s:s,s:s,s:b,s:o,s:o,s:[]}", "templateID", announcement.id, "buildID", announcement.build_id,
                        "public", 0, "aliases", render_names(name), "names", render_names(name), "tags"));
}

// ---- lists ----

struct listing {
    struct store *store;
    json_t *list;
    size_t limit; // SIZE_MAX: all
    int64_t last_us;
    char last_id[STORE_ID_SIZE];
};

static json_t *render_whole(struct store *store, const struct store_template *item) {
    struct store_build build;
    bool found = item->build_id && store_build_get(store, item->id, item->build_id, &build, NULL) == 0;
    json_t *json = render_template(item, found ? &build : NULL);
    if (found) store_build_done(&build);
    return json;
}

static int append(const struct store_template *item, void *data) {
    struct listing *listing = data;
    if (json_array_size(listing->list) == listing->limit) return 1;
    listing->last_us = item->created_us;
    snprintf(listing->last_id, sizeof(listing->last_id), "%s", item->id);
    return json_array_append_new(listing->list, render_whole(listing->store, item)) < 0 ? -ENOMEM : 0;
}

static void list(struct api_request *request, bool paged) {
    struct listing listing = {.store = request->api->options.store, .list = json_array(), .limit = SIZE_MAX};
    struct store_template_filter filter = {.has_kind = true, .kind = STORE_TEMPLATE};
    struct error err = {0};
    int r = listing.list ? 0 : -ENOMEM;
    if (r == 0 && paged) r = query_limit(request, &listing.limit, &err);
    if (r == 0 && paged) r = query_page(request, &filter.after_us, &filter.after_id, &err);
    filter.limit = paged ? listing.limit + 1 : 0;
    if (r == 0) r = store_template_list(listing.store, &filter, append, &listing, &err);
    if (r > 0) query_next(request->call, listing.last_us, listing.last_id);
    call_result(request->call, r, listing.list, &err);
}

void route_templates(struct api_request *request) { list(request, false); }
void route_templates_v2(struct api_request *request) { list(request, true); }

// ---- one ----

struct builds {
    json_t *list;
    uint32_t disk_mb;
};

static int append_build(const struct store_build *build, void *data) {
    struct builds *builds = data;
    return json_array_append_new(builds->list, render_build(build, builds->disk_mb)) < 0 ? -ENOMEM : 0;
}

void route_template(struct api_request *request) {
    struct store_template item;
    struct error err = {0};
    if (!template_get(request, &item)) return;
    struct builds builds = {json_array(), item.disk_mb};
    int r = builds.list ? store_build_list(request->api->options.store, item.id, append_build, &builds, &err) : -ENOMEM;
    if (r < 0) {
        json_decref(builds.list);
        api_reply_errno(request->call, r, err.text);
    } else {
        call_json(request->call, 200, render_template_builds(&item, builds.list));
    }
    store_template_done(&item);
}

// Only what a sandbox can start from.
void route_alias(struct api_request *request) {
    struct store_template item;
    struct error err = {0};
    char name[NAMES_MAX + 1];
    int r = names_read(request->params[0], name, &err);
    if (r == 0) r = store_template_get(request->api->options.store, name, &item, &err);
    bool found = r == 0 && item.layers && item.name && strcmp(item.name, name) == 0;
    if (found) call_json(request->call, 200, json_pack("{s:s,s:b}", "templateID", item.id, "public", 0));
    else template_missing(request, r, &err, "template alias not found: %s", name);
    if (r == 0) store_template_done(&item);
}

void route_template_remove(struct api_request *request) {
    struct store_template item;
    if (!template_get(request, &item)) return;
    request->call->handed = true;
    request->api->options.backend->remove_template(request->api->options.data, request->call, &item);
    store_template_done(&item);
}
