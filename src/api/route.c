// SPDX-License-Identifier: Apache-2.0
// The table of endpoints, and the way from a request to its row: path, method, key, then the body.
#include "api/route.h"

#include <strings.h>

#include "api/query.h"
#include "base/mem.h"

#define SANDBOX "/sandboxes/{sandboxID}"
static const struct api_route routes[] = {
    {"GET", "/health", API_BODY_NONE, true, false, 204, route_health},
    {"GET", "/metrics", API_BODY_NONE, true, false, 200, route_metrics},
    {"POST", "/sandboxes", API_BODY_REQUIRED, false, true, 201, route_create_warm},
    {"POST", "/v2/sandboxes", API_BODY_REQUIRED, false, true, 201, route_create_warm_v2},
    {"POST", "/sandboxes-cold", API_BODY_REQUIRED, false, true, 201, route_create_cold},
    {"GET", "/sandboxes", API_BODY_NONE, false, false, 200, route_list},
    {"GET", "/v2/sandboxes", API_BODY_NONE, false, false, 200, route_list_v2},
    {"GET", SANDBOX, API_BODY_NONE, false, false, 200, route_detail},
    {"DELETE", SANDBOX, API_BODY_NONE, false, true, 204, route_remove},
    {"POST", SANDBOX "/timeout", API_BODY_REQUIRED, false, true, 204, route_timeout},
    {"POST", SANDBOX "/refreshes", API_BODY_OPTIONAL, false, true, 204, route_refresh},
    {"POST", SANDBOX "/pause", API_BODY_OPTIONAL, false, true, 204, route_pause},
    {"POST", SANDBOX "/resume", API_BODY_OPTIONAL, false, true, 201, route_resume},
    {"POST", SANDBOX "/connect", API_BODY_OPTIONAL, false, true, 200, route_connect},
    {"POST", "/v2/sandboxes/{sandboxID}/connect", API_BODY_OPTIONAL, false, true, 200, route_connect},
    {"PUT", SANDBOX "/network", API_BODY_REQUIRED, false, true, 204, route_network},
    {"POST", SANDBOX "/fork", API_BODY_OPTIONAL, false, true, 201, route_fork},
    {"POST", SANDBOX "/snapshots", API_BODY_OPTIONAL, false, true, 201, route_snapshot},
    {"GET", SANDBOX "/custom-extension-params", API_BODY_NONE, false, false, 200, route_extension},
    {"PATCH", SANDBOX "/custom-extension-params", API_BODY_REQUIRED, false, false, 200, route_extension_patch},
    {"POST", SANDBOX "/exec", API_BODY_REQUIRED, false, true, 200, route_exec},
    {"GET", SANDBOX "/decisions", API_BODY_NONE, false, false, 200, route_decisions},
    {"GET", SANDBOX "/explain", API_BODY_NONE, false, false, 200, route_explain},
    {"GET", "/snapshots", API_BODY_NONE, false, false, 200, route_snapshots},
    {"GET", "/snapshots/{snapshotID}", API_BODY_NONE, false, false, 200, route_snapshot_info},
    {"POST", "/v3/templates", API_BODY_REQUIRED, false, true, 202, route_template_create},
    {"POST", "/v2/templates/{templateID}/builds/{buildID}", API_BODY_REQUIRED, false, true, 202, route_build_start},
    {"GET", "/templates/{templateID}/builds/{buildID}/status", API_BODY_NONE, false, false, 200, route_build_status},
    {"GET", "/templates", API_BODY_NONE, false, false, 200, route_templates},
    {"GET", "/v2/templates", API_BODY_NONE, false, false, 200, route_templates_v2},
    {"GET", "/templates/aliases/{alias}", API_BODY_NONE, false, false, 200, route_alias},
    {"GET", "/templates/{templateID}", API_BODY_NONE, false, false, 200, route_template},
    {"DELETE", "/templates/{templateID}", API_BODY_NONE, false, true, 204, route_template_remove},
    {"GET", "/audit", API_BODY_NONE, false, false, 200, route_audit},
};

// ---- paths ----

struct path {
    struct wire_slice segments[API_SEGMENTS_MAX];
    size_t count;
    struct wire_slice query;
};

// False: more segments than any endpoint has.
static bool split_path(struct wire_slice target, struct path *path) {
    const uint8_t *mark = memchr(target.data, '?', target.len);
    size_t len = mark ? (size_t)(mark - target.data) : target.len;
    *path = (struct path){.query = {mark ? mark + 1 : NULL, mark ? target.len - len - 1 : 0}};
    for (size_t at = 0; at < len;) {
        const uint8_t *start = target.data + at + 1; // behind the '/'
        const uint8_t *end = memchr(start, '/', len - at - 1);
        size_t part = end ? (size_t)(end - start) : len - at - 1;
        if (path->count == API_SEGMENTS_MAX) return false;
        path->segments[path->count++] = (struct wire_slice){start, part};
        at += part + 1;
    }
    return true;
}

static bool segment_fits(struct wire_slice segment, const char *pattern, size_t len) {
    if (pattern[0] == '{') return segment.len > 0;
    return segment.len == len && memcmp(segment.data, pattern, len) == 0;
}

static bool path_fits(const struct path *path, const char *pattern) {
    size_t i = 0;
    for (; *pattern == '/'; i++) {
        size_t len = strcspn(++pattern, "/");
        if (i == path->count || !segment_fits(path->segments[i], pattern, len)) return false;
        pattern += len;
    }
    return i == path->count;
}

// ---- the key ----

static bool same_key(const char *key, struct wire_slice given) {
    size_t len = strlen(key);
    volatile uint8_t differs = len != given.len; // as long for every text of one length
    for (size_t i = 0; i < given.len; i++) differs = (uint8_t)(differs | (given.data[i] ^ (uint8_t)key[i % len]));
    return differs == 0;
}

// Exactly one header: with two, another reader may have looked at the other one.
static bool key_fits(const struct api *api, const struct http1_head *head) {
    const struct http1_header *found = NULL;
    for (size_t i = 0; i < head->header_count; i++) {
        const struct http1_header *header = &head->headers[i];
        if (header->name.len != 9 || strncasecmp((const char *)header->name.data, "x-api-key", 9) != 0) continue;
        if (found) return false;
        found = header;
    }
    return found && same_key(api->key, found->value);
}

static const struct api_route *refuse(struct api_refusal *refusal, int status, const char *what,
                                      const struct http1_head *head) {
    const uint8_t *mark = memchr(head->path.data, '?', head->path.len);
    size_t len = mark ? (size_t)(mark - head->path.data) : head->path.len;
    refusal->status = status;
    error_set(&refusal->message, 0, "%s: %.*s %.*s", what, (int)head->method.len, (const char *)head->method.data,
              (int)len, (const char *)head->path.data);
    return NULL;
}

const struct api_route *route_find(struct api *api, const struct http1_head *head, struct api_refusal *ret_refusal) {
    struct path path;
    const struct api_route *found = NULL;
    bool known = false, whole = split_path(head->path, &path);
    for (size_t i = 0; whole && !found && i < ARRAY_LENGTH(routes); i++) {
        const struct api_route *route = &routes[i];
        if (!path_fits(&path, route->path)) continue;
        // Of two paths that fit, the one without a parameter comes first in the table.
        if (strlen(route->method) == head->method.len && memcmp(route->method, head->method.data, head->method.len) == 0)
            found = route;
        size_t used = strlen(ret_refusal->allow);
        snprintf(ret_refusal->allow + used, sizeof(ret_refusal->allow) - used, "%s%s", known ? ", " : "", route->method);
        known = true;
    }
    if (!known) return refuse(ret_refusal, 404, "route not found", head);
    if (!found) return refuse(ret_refusal, 405, "method not allowed", head);
    ret_refusal->allow[0] = '\0';
    if (found->open || key_fits(api, head)) return found;
    api->counts.refused_keys++;
    ret_refusal->status = 401;
    error_set(&ret_refusal->message, 0, "invalid API key; send it in exactly one X-API-Key header");
    return NULL;
}

// ---- the whole request ----

void api_request_done(struct api_request *request) {
    for (size_t i = 0; i < request->segment_count; i++) free(request->segments[i]);
    for (size_t i = 0; i < request->query_count; i++) {
        free(request->query[i].name);
        free(request->query[i].value);
    }
    json_decref(request->body);
}

static int read_path(struct api_request *request, const struct path *path, struct error *err) {
    for (size_t i = 0; i < path->count; i++) {
        char *text = query_decode(path->segments[i].data, path->segments[i].len, false);
        if (!text) return error_set(err, -EINVAL, "the path is not well escaped");
        request->segments[request->segment_count++] = text;
    }
    const char *pattern = request->call->route->path;
    for (size_t i = 0, params = 0; *pattern == '/'; i++) {
        if (*++pattern == '{') request->params[params++] = request->segments[i];
        pattern += strcspn(pattern, "/");
    }
    return query_read(request, path->query, err);
}

static int read_body(struct api_request *request, const char *body, size_t len, struct error *err) {
    enum api_body kind = request->call->route->body;
    json_error_t problem;
    if (kind == API_BODY_NONE) return 0;
    bool blank = strspn(body, " \t\r\n") == len;
    if (blank && kind == API_BODY_REQUIRED) return error_set(err, -EINVAL, "the body is empty; send a JSON object");
    request->body = blank ? json_object() : json_loadb(body, len, JSON_REJECT_DUPLICATES, &problem);
    if (!request->body) {
        enum json_error_code code = json_error_code(&problem);
        bool nul = code == json_error_null_character || code == json_error_null_byte_in_key;
        return error_set(err, -EINVAL, "the body is not valid JSON: %s (line %d, column %d)",
                         nul ? "\"\\u0000\" stands for a NUL byte, which no text may hold; remove it" : problem.text, problem.line,
                         problem.column);
    }
    if (!json_is_object(request->body)) return error_set(err, -EINVAL, "the body must be a JSON object");
    return 0;
}

void route_dispatch(struct api *api, struct api_call *call, const struct http1_head *head, const char *body, size_t len) {
    struct api_request request = {.api = api, .call = call, .method = head->method};
    struct path path;
    struct error err = {0};
    api->counts.requests++;
    if (call->route->changes && api->stopping) {
        api_reply_error(call, 503, "orchestrator is shutting down");
        return;
    }
    int r = split_path(head->path, &path) ? read_path(&request, &path, &err) : -EINVAL;
    if (r == 0) r = read_body(&request, body, len, &err);
    if (r == 0)
        call->route->answer(&request);
    else
        api_reply_errno(call, r, err.text);
    api_request_done(&request);
}
