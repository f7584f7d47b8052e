// SPDX-License-Identifier: Apache-2.0
// The node itself: health, metrics, who changed what.
#include <errno.h>

#include "api/query.h"
#include "api/render.h"
#include "api/route.h"

void route_health(struct api_request *request) { api_reply_done(request->call); }

void route_metrics(struct api_request *request) {
    request->api->options.backend->metrics(request->api->options.data, request->call);
}

static int append(const struct store_audit *audit, void *data) {
    json_t *row = json_pack("{s:o,s:o,s:o,s:o,s:i}", "time", render_time(audit->time_us), "who", render_text(audit->who),
                            "action", render_text(audit->action), "subject", render_text(audit->subject), "status",
                            audit->status);
    return json_array_append_new(data, row) < 0 ? -ENOMEM : 0;
}

void route_audit(struct api_request *request) {
    struct error err = {0};
    size_t limit;
    json_t *list = json_array();
    int r = list ? query_limit(request, &limit, &err) : -ENOMEM;
    if (r == 0) r = store_audit_list(request->api->options.store, limit, append, list, &err);
    call_result(request->call, r, list, &err);
}
