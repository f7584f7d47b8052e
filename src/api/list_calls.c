// SPDX-License-Identifier: Apache-2.0
// Lists of sandboxes and the detail of one, from the store alone. Those that are starting or stopping are not shown.
#include <errno.h>

#include "api/query.h"
#include "api/render.h"
#include "api/route.h"
#include "base/mem.h"

#define SHOWN (1u << STORE_RUNNING | 1u << STORE_PAUSED)

struct listing {
    struct store_filter filter;
    struct store_pair pairs[QUERY_PAIRS_MAX];
    char *text; // that the pairs point into
    json_t *list;
    int64_t last_us;
    char last_id[STORE_ID_SIZE];
};

static int append(const struct store_sandbox *sandbox, void *data) {
    struct listing *listing = data;
    if (listing->filter.limit && json_array_size(listing->list) == listing->filter.limit - 1) return 1; // there is more
    listing->last_us = sandbox->started_us;
    snprintf(listing->last_id, sizeof(listing->last_id), "%s", sandbox->id);
    return json_array_append_new(listing->list, render_listed(sandbox)) < 0 ? -ENOMEM : 0;
}

static int read_metadata(struct api_request *request, struct listing *listing, struct error *err) {
    const char *value = query_get(request, "metadata");
    listing->filter.metadata = listing->pairs;
    if (!value) return 0;
    return query_metadata(value, &listing->text, listing->pairs, &listing->filter.metadata_count, err);
}

static int read_filter(struct api_request *request, struct listing *listing, struct error *err) {
    struct store_filter *filter = &listing->filter;
    const char *states = query_get(request, "state"), *order = query_get(request, "order");
    const char *after = query_get(request, "startedAfter");
    int r = states && *states ? query_states(states, &filter->states, err) : 0;
    if (r == 0 && order && strcmp(order, "asc") != 0 && strcmp(order, "desc") != 0)
        r = error_set(err, -EINVAL, "order \"%s\" is unknown; write asc or desc", order);
    filter->ascending = order && strcmp(order, "asc") == 0;
    if (r == 0 && after && query_time(after, &filter->started_after_us) < 0)
        r = error_set(err, -EINVAL, "startedAfter \"%s\" is no time of RFC 3339, such as 2026-01-31T08:00:00Z", after);
    filter->template_id = query_get(request, "template");
    if (r == 0) r = query_limit(request, &filter->limit, err);
    return r == 0 ? query_page(request, &filter->after_us, &filter->after_id, err) : r;
}

// SDK 2.51 asks how many run in all.
static int count_running(struct api_request *request, const struct store_filter *filter, struct error *err) {
    struct store_filter running = *filter;
    uint64_t count = 0;
    if (!(filter->states & 1u << STORE_RUNNING)) return 0;
    running.states = 1u << STORE_RUNNING;
    int r = store_sandbox_count(request->api->options.store, &running, &count, err);
    if (r == 0) call_header(request->call, "x-total-running", "%llu", (unsigned long long)count);
    return r;
}

static void list(struct api_request *request, bool paged) {
    struct listing listing = {.filter.states = paged ? SHOWN : 1u << STORE_RUNNING};
    struct error err = {0};
    listing.list = json_array();
    int r = listing.list ? read_metadata(request, &listing, &err) : -ENOMEM;
    if (r == 0 && paged) r = read_filter(request, &listing, &err);
    if (r == 0 && paged) r = count_running(request, &listing.filter, &err);
    if (listing.filter.limit) listing.filter.limit++; // one more, to see whether there is a next page
    if (r == 0) r = store_sandbox_list(request->api->options.store, &listing.filter, append, &listing, &err);
    if (r > 0) query_next(request->call, listing.last_us, listing.last_id);
    call_result(request->call, r, listing.list, &err);
    free(listing.text);
}

void route_list(struct api_request *request) { list(request, false); }
void route_list_v2(struct api_request *request) { list(request, true); }

void route_detail(struct api_request *request) {
    struct store_sandbox sandbox;
    if (!call_sandbox(request, &sandbox)) return;
    call_json(request->call, 200, render_detail(request->api, &sandbox));
    store_sandbox_done(&sandbox);
}
