// SPDX-License-Identifier: Apache-2.0
#include "api/render.h"

#include "base/mem.h"
#include "policy/model.h"

// What a client is told of a sandbox whose time never ends: AgentENV's 100 years of 365 days.
#define NEVER_US ((int64_t)100 * 365 * 24 * 60 * 60 * 1000000)

json_t *render_text(const char *text) {
    json_t *json = json_string(text);
    if (json) return json;
    AUTO_FREE char *copy = strdup(text);
    for (char *at = copy; at && *at; at++)
        if ((unsigned char)*at >= 0x80) *at = '?';
    return copy ? json_string(copy) : NULL;
}

static int append(const char *bytes, size_t len, void *data) {
    struct buf *text = data;
    buf_append(text, bytes, len);
    return text->failed ? -1 : 0;
}

char *render_dump(const json_t *json) {
    struct buf text = BUF_INIT;
    if (json && json_dump_callback(json, append, &text, JSON_COMPACT) == 0 && !text.failed) return buf_take(&text);
    buf_done(&text);
    return NULL;
}

json_t *render_error(int code, const char *message) {
    return json_pack("{s:i,s:o}", "code", code, "message", render_text(message));
}

json_t *render_time(int64_t time_us) {
    time_t seconds = (time_t)(time_us / 1000000);
    struct tm tm;
    char text[32], whole[48];
    gmtime_r(&seconds, &tm);
    strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(whole, sizeof(whole), "%s.%06dZ", text, (int)(time_us % 1000000));
    return json_string(whole);
}

json_t *render_names(const char *name) { return name ? json_pack("[o]", render_text(name)) : json_array(); }

static json_t *optional_text(const char *text) { return text ? render_text(text) : json_null(); }

static json_t *metadata_of(const struct store_sandbox *sandbox) {
    json_t *metadata = sandbox->metadata ? json_loads(sandbox->metadata, 0, NULL) : NULL;
    return metadata ? metadata : json_object();
}

static const char *template_of(const struct store_sandbox *sandbox) {
    return sandbox->template_id ? sandbox->template_id : sandbox->image ? sandbox->image : "";
}

static json_t *token(const struct api *api, const struct store_sandbox *sandbox, const char *prefix) {
    char message[64], text[API_TOKEN_SIZE];
    snprintf(message, sizeof(message), "%s%s", prefix, sandbox->id);
    if (api->options.backend->token(api->options.data, message, text) < 0) return NULL;
    json_t *json = json_string(text);
    explicit_bzero(text, sizeof(text));
    return json;
}

// The members that every form of a sandbox has.
static json_t *common(const struct store_sandbox *sandbox) {
    json_t *json = json_pack("{s:o,s:s,s:s,s:s}", "templateID", render_text(template_of(sandbox)), "sandboxID",
                             sandbox->id, "clientID", "", "envdVersion", API_ENVD_VERSION);
    if (json && sandbox->alias) json_object_set_new(json, "alias", render_text(sandbox->alias));
    return json;
}

static void add_access(const struct api *api, const struct store_sandbox *sandbox, json_t *json) {
    if (sandbox->secure) json_object_set_new(json, "envdAccessToken", token(api, sandbox, ""));
    json_object_set_new(json, "domain", optional_text(api->domain));
}

json_t *render_sandbox(const struct api *api, const struct store_sandbox *sandbox) {
    json_t *json = common(sandbox);
    if (!json) return NULL;
    add_access(api, sandbox, json);
    json_object_set_new(json, "trafficAccessToken",
                        sandbox->allow_public_traffic ? json_null() : token(api, sandbox, "sandbox-traffic-"));
    return json;
}

static void add_state(const struct store_sandbox *sandbox, json_t *json) {
    json_object_set_new(json, "startedAt", render_time(sandbox->started_us));
    json_object_set_new(json, "endAt", render_time(sandbox->end_us ? sandbox->end_us : NEVER_US));
    json_object_set_new(json, "cpuCount", json_integer(sandbox->cpu_count));
    json_object_set_new(json, "memoryMB", json_integer(sandbox->memory_mb));
    json_object_set_new(json, "diskSizeMB", json_integer(sandbox->disk_mb));
    json_object_set_new(json, "metadata", metadata_of(sandbox));
    json_object_set_new(json, "state", json_string(sandbox->state == STORE_PAUSED ? "paused" : "running"));
}

json_t *render_listed(const struct store_sandbox *sandbox) {
    json_t *json = common(sandbox);
    if (json) add_state(sandbox, json);
    return json;
}

// ---- the network of a detail ----

static void append_prefix(json_t *list, const struct policy_entry *entry) {
    char text[ADDR_TEXT_SIZE];
    addr_prefix_format(&entry->prefix, text);
    size_t len = strlen(text);
    if (!strchr(text, '/')) snprintf(text + len, sizeof(text) - len, "/%u", entry->prefix.length);
    json_array_append_new(list, json_string(text));
}

static void append_name(json_t *list, const struct policy_entry *entry) {
    char text[NAME_SIZE + 2];
    bool any = entry->kind == POLICY_ENTRY_WILDCARD && !entry->name[0];
    snprintf(text, sizeof(text), "%s%s", entry->kind == POLICY_ENTRY_WILDCARD ? (any ? "*" : "*.") : "", entry->name);
    json_array_append_new(list, json_string(text));
}

// Ranges first, then domains, as AgentENV lists them. The reader makes two entries of each: one of them stands for it.
static json_t *entries(const struct policy_entry *list, size_t count) {
    json_t *json = json_array();
    for (size_t i = 0; i < count; i++)
        if (list[i].kind == POLICY_ENTRY_CIDR && list[i].protocol == POLICY_ENTRY_ANY) append_prefix(json, &list[i]);
    for (size_t i = 0; i < count; i++)
        if (list[i].kind != POLICY_ENTRY_CIDR && list[i].protocol == POLICY_ENTRY_HTTPS) append_name(json, &list[i]);
    return json;
}

// Without the rules, whose values are secrets. Only where there is something to tell.
static void add_network(const struct store_sandbox *sandbox, json_t *json) {
    struct policy_model *model = NULL;
    struct error err;
    bool e2b = sandbox->dialect == POLICY_DIALECT_E2B &&
               policy_read(sandbox->policy, strlen(sandbox->policy), NULL, POLICY_DIALECT_E2B, &model, &err) == 0;
    if (sandbox->allow_public_traffic && !sandbox->mask_request_host && !(e2b && (model->allow_count || model->deny_count))) {
        policy_model_free(model);
        return;
    }
    json_t *network = json_pack("{s:b,s:o}", "allowPublicTraffic", sandbox->allow_public_traffic, "maskRequestHost",
                                optional_text(sandbox->mask_request_host));
    if (e2b && model->allow_count) json_object_set_new(network, "allowOut", entries(model->allow, model->allow_count));
    if (e2b && model->deny_count) json_object_set_new(network, "denyOut", entries(model->deny, model->deny_count));
    json_object_set_new(json, "network", network);
    policy_model_free(model);
}

// null: it was never set.
static json_t *internet_switch(const struct store_sandbox *sandbox) {
    json_t *policy = sandbox->dialect == POLICY_DIALECT_E2B ? json_loads(sandbox->policy, 0, NULL) : NULL;
    json_t *value = json_object_get(policy, "allow_internet_access");
    json_t *json = json_is_boolean(value) ? json_incref(value) : json_null();
    json_decref(policy);
    return json;
}

json_t *render_detail(const struct api *api, const struct store_sandbox *sandbox) {
    json_t *json = render_listed(sandbox);
    if (!json) return NULL;
    add_access(api, sandbox, json);
    json_object_set_new(json, "allowInternetAccess", internet_switch(sandbox));
    json_object_set_new(json, "lifecycle",
                        json_pack("{s:b,s:s}", "autoResume", sandbox->auto_resume, "onTimeout",
                                  sandbox->auto_pause ? "pause" : "kill"));
    json_object_set_new(json, "penstock",
                        json_pack("{s:I,s:s,s:s}", "generation", (json_int_t)sandbox->generation, "type",
                                  policy_type_info(sandbox->type)->word, "state", store_state_name(sandbox->state)));
    add_network(sandbox, json);
    return json;
}

// ---- templates and snapshots ----

json_t *render_snapshot(const struct store_template *item) {
    return json_pack("{s:s,s:o,s:I,s:I,s:I,s:o,s:o}", "snapshotID", item->id, "names", render_names(item->name),
                     "cpuCount", (json_int_t)item->cpu_count, "memoryMB", (json_int_t)item->memory_mb, "diskSizeMB",
                     (json_int_t)item->disk_mb, "createdAt", render_time(item->created_us), "updatedAt",
                     render_time(item->updated_us));
}

json_t *render_template_builds(const struct store_template *item, json_t *builds) {
    return json_pack("{s:s,s:b,s:o,s:o,s:o,s:o,s:o,s:I,s:o}", "templateID", item->id, "public", 0, "aliases",
                     render_names(item->name), "names", render_names(item->name), "createdAt",
                     render_time(item->created_us), "updatedAt", render_time(item->updated_us), "lastSpawnedAt",
                     item->spawned_us ? render_time(item->spawned_us) : json_null(), "spawnCount",
                     (json_int_t)item->spawn_count, "builds", builds);
}

json_t *render_template(const struct store_template *item, const struct store_build *build) {
    json_t *json = render_template_builds(item, json_array());
    if (!json) return NULL;
    json_object_del(json, "builds");
    json_object_set_new(json, "buildID", json_string(item->build_id ? item->build_id : ""));
    json_object_set_new(json, "cpuCount", json_integer(item->cpu_count));
    json_object_set_new(json, "memoryMB", json_integer(item->memory_mb));
    json_object_set_new(json, "diskSizeMB", json_integer(item->disk_mb));
    json_object_set_new(json, "createdBy", json_null());
    json_object_set_new(json, "buildCount", json_integer((json_int_t)item->build_count));
    json_object_set_new(json, "envdVersion", json_string(API_ENVD_VERSION));
    enum store_build_status status = build ? build->status : STORE_BUILD_WAITING;
    json_object_set_new(json, "buildStatus", json_string(store_build_status_name(status)));
    return json;
}

json_t *render_build(const struct store_build *build, uint32_t disk_mb) {
    json_t *json = json_pack("{s:s,s:s,s:o,s:o,s:I,s:I,s:I,s:s}", "buildID", build->id, "status",
                             store_build_status_name(build->status), "createdAt", render_time(build->created_us),
                             "updatedAt", render_time(build->updated_us), "cpuCount", (json_int_t)build->cpu_count,
                             "memoryMB", (json_int_t)build->memory_mb, "diskSizeMB", (json_int_t)disk_mb, "envdVersion",
                             API_ENVD_VERSION);
    if (json && build->finished_us) json_object_set_new(json, "finishedAt", render_time(build->finished_us));
    return json;
}
