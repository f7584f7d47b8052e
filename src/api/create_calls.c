// SPDX-License-Identifier: Apache-2.0
// New sandboxes: warm from a template or snapshot, cold from an image. What the body says becomes a row of the store.
#include <errno.h>

#include "api/egress.h"
#include "api/fields.h"
#include "api/route.h"
#include "api/template_calls.h"
#include "base/mem.h"

#define METADATA_MAX 65536 // bytes; lists show a hundred of them
#define ENV_VARS_MAX 262144
#define CPU_MAX 1024
#define MEMORY_MAX (16 << 20) // MiB
#define DISK_MAX (64 << 20)

struct creation {
    struct store_sandbox row;
    struct store_template source;
    struct egress egress;
    char id[STORE_ID_SIZE];
    char *metadata, *env_vars; // the row borrows all of its texts
};

static char *borrow(const char *text) { return (char *)(uintptr_t)text; }

static void creation_done(struct creation *creation) {
    egress_done(&creation->egress);
    store_template_done(&creation->source);
    free(creation->metadata);
    free(creation->env_vars);
}

static int read_type(json_t *body, struct store_sandbox *row, struct error *err) {
    const char *word = "container";
    int r = field_string(body, "type", 32, &word, err);
    if (r < 0) return r;
    if (policy_type_from_word(word, &row->type) && (row->type == POLICY_TYPE_CONTAINER || row->type == POLICY_TYPE_MISTRAL))
        return 0;
    return error_set(err, -EINVAL, "type \"%s\" is not one of a node; the types are container and mistral", word);
}

// A timeout of 0 is over at once, as for E2B; "expires": false is ours.
static int read_times(json_t *body, struct store_sandbox *row, struct error *err) {
    bool expires = true;
    row->timeout_s = API_TIMEOUT_S;
    int r = field_bool(body, "expires", &expires, err);
    int given = r < 0 ? r : field_number(body, "timeout", 0, INT32_MAX, &row->timeout_s, err);
    if (given > 0 && !expires) return error_set(err, -EINVAL, "timeout and \"expires\": false are both given; keep one");
    if (given < 0) return given;
    row->started_us = store_now_us();
    if (!expires) row->timeout_s = 0;
    row->end_us = expires ? row->started_us + (int64_t)row->timeout_s * 1000000 : 0;
    return 0;
}

static int read_lifecycle(json_t *body, struct store_sandbox *row, struct error *err) {
    json_t *resume = json_object_get(body, "autoResume");
    int r = field_bool(body, "autoPause", &row->auto_pause, err);
    if (r >= 0) r = field_bool(body, "secure", &row->secure, err);
    if (r < 0 || !resume || json_is_null(resume)) return r < 0 ? r : 0;
    if (!json_is_object(resume)) return error_set(err, -EINVAL, "autoResume must be an object: {\"enabled\": true}");
    r = field_bool(resume, "enabled", &row->auto_resume, err);
    return r < 0 ? r : 0;
}

static int read_texts(json_t *body, struct creation *creation, struct error *err) {
    static const char *const unsupported[] = {"mcp", "iam", "volumeMounts", "attachedDrives", "extraBootArgs"};
    int r = field_pairs(body, "metadata", METADATA_MAX, &creation->metadata, err);
    if (r >= 0) r = field_variables(body, "envVars", ENV_VARS_MAX, &creation->env_vars, err);
    for (size_t i = 0; r >= 0 && i < ARRAY_LENGTH(unsupported); i++) r = field_unsupported(body, unsupported[i], err);
    if (r >= 0 && field_unsupported(body, "customExtensionParams", NULL) < 0)
        r = error_set(err, -EINVAL, "customExtensionParams needs a custom extension, and this server has none");
    creation->row.metadata = creation->metadata;
    creation->row.env_vars = creation->env_vars;
    return r < 0 ? r : 0;
}

static int read_egress(struct api_request *request, struct creation *creation, struct error *err) {
    struct egress *egress = &creation->egress;
    struct store_sandbox *row = &creation->row;
    int r = egress_create(request->api, request->call, request->body, row->type, egress, err);
    if (r < 0) return r;
    row->policy = egress->policy;
    row->dialect = egress->dialect;
    row->generation = 1;
    row->allow_public_traffic = egress->allow_public_traffic;
    row->mask_request_host = egress->mask_request_host;
    return 0;
}

// What both kinds have.
static int read_common(struct api_request *request, struct creation *creation, struct error *err) {
    struct store_sandbox *row = &creation->row;
    row->id = borrow(store_make_id('i', creation->id));
    row->state = STORE_STARTING;
    int r = read_type(request->body, row, err);
    if (r == 0) r = read_times(request->body, row, err);
    if (r == 0) r = read_lifecycle(request->body, row, err);
    if (r == 0) r = read_texts(request->body, creation, err);
    return r == 0 ? read_egress(request, creation, err) : r;
}

static int read_source(struct api_request *request, struct creation *creation, struct error *err) {
    const char *name = NULL;
    struct store_sandbox *row = &creation->row;
    struct store_template *source = &creation->source;
    int r = field_string(request->body, "templateID", 256, &name, err);
    if (r == 0) return error_set(err, -EINVAL, "templateID is missing; name a template or snapshot");
    if (r > 0) r = store_template_get(request->api->options.store, name, source, err);
    if (r == -ENOENT) return error_set(err, -EINVAL, "template %s not found", name);
    if (r == 0 && !source->layers) r = template_unbuilt(request->api->options.store, source, name, err);
    if (r < 0) return r;
    row->template_id = source->id;
    row->alias = source->name;
    row->layers = source->layers;
    row->config = source->config;
    row->cpu_count = source->cpu_count;
    row->memory_mb = source->memory_mb;
    row->disk_mb = source->disk_mb;
    return 0;
}

// With AgentENV's texts.
static int read_resources(struct api_request *request, struct store_sandbox *row, struct error *err) {
    json_t *body = request->body;
    row->cpu_count = request->api->options.cpu_count;
    row->memory_mb = request->api->options.memory_mb;
    row->disk_mb = request->api->options.disk_mb;
    const struct policy_node *node = request->api->options.node;
    if (node && node->max_cpu_count && row->cpu_count > node->max_cpu_count) row->cpu_count = node->max_cpu_count;
    if (node && node->max_memory_mb && row->memory_mb > node->max_memory_mb) row->memory_mb = node->max_memory_mb;
    int r = field_number(body, "cpuCount", 0, CPU_MAX, &row->cpu_count, err);
    if (r >= 0 && row->cpu_count == 0) r = error_set(err, -EINVAL, "cpuCount must be greater than 0");
    if (r >= 0) r = field_number(body, "memoryMB", 0, MEMORY_MAX, &row->memory_mb, err);
    if (r >= 0 && row->memory_mb < 128) r = error_set(err, -EINVAL, "memoryMB must be at least 128");
    if (r >= 0 && node && node->max_cpu_count && row->cpu_count > node->max_cpu_count)
        r = error_set(err, -EINVAL, "cpuCount %u is more than a sandbox of this node gets (node.max_cpu_count: %u)", row->cpu_count,
                      node->max_cpu_count);
    if (r >= 0 && node && node->max_memory_mb && row->memory_mb > node->max_memory_mb)
        r = error_set(err, -EINVAL, "memoryMB %u is more than a sandbox of this node gets (node.max_memory_mb: %u)", row->memory_mb,
                      node->max_memory_mb);
    int given = r < 0 ? r : field_number(body, "diskSizeMB", 0, DISK_MAX, &row->disk_mb, err);
    if (given > 0 && (row->disk_mb < 1024 || row->disk_mb % 1024))
        given = error_set(err, -EINVAL, "diskSizeMB must be at least 1024 and divisible by 1024");
    return given < 0 ? given : 0;
}

static int read_image(struct api_request *request, struct store_sandbox *row, struct error *err) {
    const char *image = NULL;
    int r = field_string(request->body, "image", 1024, &image, err);
    if (r == 0) return error_set(err, -EINVAL, "image is missing; name an OCI image");
    for (const char *at = image; r > 0 && *at; at++)
        if ((unsigned char)*at <= ' ' || *at == 0x7f)
            return error_set(err, -EINVAL, "image \"%s\" holds a blank or control byte; remove it", image);
    row->image = borrow(image);
    return r < 0 ? r : read_resources(request, row, err);
}

static void create(struct api_request *request, bool cold, bool secure) {
    struct creation creation = {.row.secure = secure};
    struct error err = {0};
    int r = cold ? read_image(request, &creation.row, &err) : read_source(request, &creation, &err);
    if (r == 0) r = read_common(request, &creation, &err);
    if (secure) creation.row.secure = true; // whatever the body says
    if (r == 0) {
        struct api_create create = {.row = &creation.row, .source = cold ? NULL : &creation.source};
        call_subject(request->call, creation.id);
        request->call->handed = true;
        request->api->options.backend->create(request->api->options.data, request->call, &create);
    } else {
        api_reply_errno(request->call, r, err.text);
    }
    creation_done(&creation);
}

void route_create_warm(struct api_request *request) { create(request, false, false); }
void route_create_warm_v2(struct api_request *request) { create(request, false, true); }
void route_create_cold(struct api_request *request) { create(request, true, false); }
