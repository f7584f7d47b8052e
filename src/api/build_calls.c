// SPDX-License-Identifier: Apache-2.0
// Builds of templates: started with what they are made of, and how they go.
#include <errno.h>
#include <strings.h>

#include "api/egress.h"
#include "api/fields.h"
#include "api/query.h"
#include "api/render.h"
#include "api/route.h"
#include "api/template_calls.h"
#include "base/mem.h"
#include "base/number.h"

#define STEPS_MAX 256
#define STEP_ARGS_MAX 64
#define COMMAND_MAX 65536
#define LINES_MAX 100 // of a log in one answer

struct building {
    struct api_build build;
    struct store_template source;
    struct egress egress;
    struct api_step *steps;
    char **args[STEPS_MAX];
};

static void building_done(struct building *building) {
    for (size_t i = 0; i < building->build.step_count; i++) free(building->args[i]);
    free(building->steps);
    egress_done(&building->egress);
    store_template_done(&building->source);
}

static int read_kind(json_t *step, enum api_step_kind *ret_kind, struct error *err) {
    static const char *const words[] = {[API_STEP_RUN] = "RUN", [API_STEP_ENV] = "ENV", [API_STEP_WORKDIR] = "WORKDIR",
                                        [API_STEP_USER] = "USER"};
    const char *word = NULL;
    int r = json_is_object(step) ? field_string(step, "type", 32, &word, err)
                                 : error_set(err, -EINVAL, "steps: each must be an object");
    if (r == 0) return error_set(err, -EINVAL, "steps: one has no type");
    for (size_t i = 0; r > 0 && i < ARRAY_LENGTH(words); i++) {
        if (strcasecmp(word, words[i]) != 0) continue;
        *ret_kind = (enum api_step_kind)i;
        return 0;
    }
    return r < 0 ? r : error_set(err, -EINVAL, "steps: \"%s\" is not supported; there are RUN, ENV, WORKDIR and USER", word);
}

static int check_args(const struct api_step *step, struct error *err) {
    bool good = step->count > 0;
    switch (step->kind) {
    case API_STEP_RUN:
        good &= step->count <= 2;
        break;
    case API_STEP_ENV:
        good &= step->count % 2 == 0;
        for (size_t i = 0; i < step->count; i += 2)
            if (!*step->args[i] || strchr(step->args[i], '='))
                return error_set(err, -EINVAL, "steps: ENV \"%.64s\" is empty or holds a \"=\"; name a variable", step->args[i]);
        break;
    case API_STEP_WORKDIR:
    case API_STEP_USER:
        good &= step->count == 1;
        break;
    }
    return good ? 0 : error_set(err, -EINVAL, "steps: one has %zu arguments, which does not fit its type", step->count);
}

static int read_steps(json_t *body, struct building *building, struct error *err) {
    json_t *list = json_object_get(body, "steps"), *value;
    size_t index;
    if (!list || json_is_null(list)) return 0;
    if (!json_is_array(list) || json_array_size(list) > STEPS_MAX)
        return error_set(err, -EINVAL, "steps must be a list of at most %d objects", STEPS_MAX);
    building->steps = NEW_ARRAY(struct api_step, json_array_size(list));
    building->build.steps = building->steps;
    if (!building->steps) return error_set(err, -ENOMEM, "out of memory");
    json_array_foreach(list, index, value) {
        struct api_step *step = &building->steps[index];
        int r = read_kind(value, &step->kind, err);
        if (r == 0) r = field_unsupported(value, "filesHash", err);
        if (r == 0) r = field_strings(value, "args", STEP_ARGS_MAX, &building->args[index], &step->count, err);
        if (r >= 0) building->build.step_count++;
        step->args = building->args[index];
        if (r >= 0) r = check_args(step, err);
        if (r < 0) return r;
    }
    return 0;
}

static int read_base(struct api_request *request, struct building *building, struct error *err) {
    const char *template = NULL;
    struct api_build *build = &building->build;
    int r = field_string(request->body, "fromImage", 1024, &build->from_image, err);
    if (r >= 0) r = field_string(request->body, "fromTemplate", 256, &template, err);
    if (r < 0) return r;
    if (!build->from_image == !template)
        return error_set(err, -EINVAL, "name what to build from: either fromImage or fromTemplate");
    if (build->from_image) return 0;
    r = store_template_get(request->api->options.store, template, &building->source, err);
    if (r == -ENOENT) return error_set(err, -EINVAL, "template %s not found", template);
    if (r == 0 && !building->source.layers) r = template_unbuilt(request->api->options.store, &building->source, template, err);
    build->from_template = &building->source;
    return r;
}

static int read_building(struct api_request *request, struct building *building, struct error *err) {
    struct api_build *build = &building->build;
    int r = read_base(request, building, err);
    if (r == 0) r = read_steps(request->body, building, err);
    if (r >= 0) r = field_string(request->body, "startCmd", COMMAND_MAX, &build->start_cmd, err);
    if (r >= 0) r = field_string(request->body, "readyCmd", COMMAND_MAX, &build->ready_cmd, err);
    if (r >= 0) r = egress_create(request->api, request->call, request->body, POLICY_TYPE_CONTAINER, &building->egress, err);
    build->id = request->params[1];
    build->policy = building->egress.policy;
    build->dialect = building->egress.dialect;
    return r;
}

// The build of the second parameter, or the call is answered with 404.
static bool build_get(struct api_request *request, const struct store_template *item, struct store_build *ret_build) {
    struct error err = {0};
    int r = store_build_get(request->api->options.store, item->id, request->params[1], ret_build, &err);
    if (r == -ENOENT)
        api_reply_error(request->call, 404, "build %s not found for template %s", request->params[1], request->params[0]);
    else if (r < 0)
        api_reply_errno(request->call, r, err.text);
    return r == 0;
}

static void start(struct api_request *request, const struct store_template *item, const struct store_build *row) {
    struct building building = {0};
    struct error err = {0};
    int r = row->status == STORE_BUILD_WAITING
                ? read_building(request, &building, &err)
                : error_set(&err, -EINVAL, "build %s has been started already", row->id);
    if (r < 0) {
        api_reply_errno(request->call, r, err.text);
    } else {
        request->call->handed = true;
        request->api->options.backend->build(request->api->options.data, request->call, item, &building.build);
    }
    building_done(&building);
}

void route_build_start(struct api_request *request) {
    struct store_template item;
    struct store_build row;
    if (!template_get(request, &item)) return;
    if (build_get(request, &item, &row)) {
        start(request, &item, &row);
        store_build_done(&row);
    }
    store_template_done(&item);
}

// ---- status ----

struct lines {
    json_t *texts, *entries;
};

static int append_line(uint64_t number, int64_t time_us, const char *level, const char *message, void *data) {
    struct lines *lines = data;
    (void)number;
    json_array_append_new(lines->texts, render_text(message));
    json_t *entry = json_pack("{s:o,s:s,s:o}", "timestamp", render_time(time_us), "level", level, "message",
                              render_text(message));
    return json_array_append_new(lines->entries, entry) < 0 ? -ENOMEM : 0;
}

static json_t *render_status(const struct store_template *item, const struct store_build *row, const struct lines *lines) {
    json_t *json = json_pack("{s:s,s:s,s:s,s:O,s:O}", "templateID", item->id, "buildID", row->id, "status",
                             store_build_status_name(row->status), "logs", lines->texts, "logEntries", lines->entries);
    if (!json || row->status != STORE_BUILD_ERROR) return json;
    json_t *reason = json_pack("{s:o,s:[]}", "message", render_text(row->reason ? row->reason : "the build failed"),
                               "logEntries");
    if (row->step) json_object_set_new(reason, "step", render_text(row->step));
    json_object_set_new(json, "reason", reason);
    return json;
}

static void answer_status(struct api_request *request, const struct store_template *item, const struct store_build *row) {
    struct lines lines = {json_array(), json_array()};
    struct error err = {0};
    const char *offset = query_get(request, "logsOffset");
    uint64_t first = 0, limit = LINES_MAX;
    const char *wanted = query_get(request, "limit");
    int r = lines.texts && lines.entries ? 0 : -ENOMEM;
    if (r == 0 && offset && number_parse(offset, strlen(offset), 0, INT32_MAX, &first) < 0)
        r = error_set(&err, -EINVAL, "logsOffset \"%s\" must be a number", offset);
    if (r == 0 && wanted && number_parse(wanted, strlen(wanted), 0, LINES_MAX, &limit) < 0)
        r = error_set(&err, -EINVAL, "limit \"%s\" must be a number from 0 to %d", wanted, LINES_MAX);
    if (r == 0) r = store_build_lines(request->api->options.store, row->id, first, limit, append_line, &lines, &err);
    if (r < 0)
        api_reply_errno(request->call, r, err.text);
    else
        call_json(request->call, 200, render_status(item, row, &lines));
    json_decref(lines.texts);
    json_decref(lines.entries);
}

void route_build_status(struct api_request *request) {
    struct store_template item;
    struct store_build row;
    if (!template_get(request, &item)) return;
    if (build_get(request, &item, &row)) {
        answer_status(request, &item, &row);
        store_build_done(&row);
    }
    store_template_done(&item);
}
