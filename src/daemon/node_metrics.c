// SPDX-License-Identifier: Apache-2.0
// What a node counts. Gates keep the numbers, so somebody who asks waits until every sandbox's shim has said them, SCRAPE_US at
// most: those that do not say them count as they did last. Whoever asks meanwhile, or within SCRAPE_US after that, gets the
// same answer, so nobody can have the node count all day. Sandboxes come and go, and with a label each there would be no end
// of series: they are added up by type.
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "daemon/node.h"
#include "policy/types.h"

#define SCRAPE_US 1000000
#define SCRAPE_CALLS 16 // that wait

struct node_scrape {
    struct event *timer;
    struct api_call *calls[SCRAPE_CALLS];
    size_t call_count, waiting; // waiting: for so many sandboxes
    uint64_t done_us;           // when the numbers were complete
};

// ---- text ----

static int metrics_state(const struct store_sandbox *row, void *data) {
    ((unsigned *)data)[row->state]++;
    return 0;
}

static void metrics_sandboxes(const struct node *node, struct buf *out) {
    unsigned states[STORE_STATE_COUNT] = {0};
    const struct store_filter all = {0};
    struct error ignored;
    store_sandbox_list(node->store, &all, metrics_state, states, &ignored);
    buf_printf(out, "# HELP penstock_sandboxes Sandboxes of this node by state.\n# TYPE penstock_sandboxes gauge\n");
    for (size_t i = 0; i < STORE_STATE_COUNT; i++)
        buf_printf(out, "penstock_sandboxes{state=\"%s\"} %u\n", store_state_name((enum store_state)i), states[i]);
}

static void metrics_api(const struct node *node, struct buf *out) {
    struct api_counts counts = api_counts(node->api);
    buf_printf(out, "# HELP penstock_api_requests_total Requests to the API.\n# TYPE penstock_api_requests_total counter\n"
                    "penstock_api_requests_total %llu\n", (unsigned long long)counts.requests);
    buf_printf(out, "# HELP penstock_api_errors_total Answers of the API that were errors, by who caused them.\n"
                    "# TYPE penstock_api_errors_total counter\npenstock_api_errors_total{by=\"client\"} %llu\n"
                    "penstock_api_errors_total{by=\"server\"} %llu\n", (unsigned long long)counts.errors_client,
               (unsigned long long)counts.errors_server);
}

static void metrics_gates(const struct node *node, struct buf *out) {
    static const enum policy_type types[] = {POLICY_TYPE_CONTAINER, POLICY_TYPE_MISTRAL}; // that a node has
    struct metrics_row rows[ARRAY_LENGTH(types)];
    for (size_t i = 0; i < ARRAY_LENGTH(types); i++) {
        rows[i] = (struct metrics_row){policy_type_info(types[i])->word, node->retired[types[i]]};
        LIST_FOREACH(&node->sandboxes, at) {
            const struct node_sandbox *sandbox = LIST_ENTRY(at, struct node_sandbox, list);
            if (sandbox->type == types[i] && sandbox->counters) metrics_add(&rows[i].counters, sandbox->counters);
        }
    }
    metrics_text(out, "type", rows, ARRAY_LENGTH(types));
}

static void scrape_answer(struct node *node) {
    struct node_scrape *scrape = node->scrape;
    struct buf out = {0};
    metrics_sandboxes(node, &out);
    metrics_api(node, &out);
    metrics_gates(node, &out);
    for (size_t i = 0; i < scrape->call_count; i++) {
        if (out.failed) api_reply_error(scrape->calls[i], 500, "out of memory");
        else api_reply_text(scrape->calls[i], "text/plain; version=0.0.4", out.data, out.len);
    }
    scrape->call_count = 0;
    buf_done(&out);
}

// ---- counting ----

static void scrape_done(struct node *node) {
    LIST_FOREACH(&node->sandboxes, at) LIST_ENTRY(at, struct node_sandbox, list)->counting = false;
    node->scrape->waiting = 0;
    node->scrape->done_us = clock_us();
    event_del(node->scrape->timer);
    scrape_answer(node);
}

static void scrape_heard(struct node_sandbox *sandbox) {
    struct node *node = sandbox->node;
    if (!sandbox->counting) return;
    sandbox->counting = false;
    if (--node->scrape->waiting == 0) scrape_done(node);
}

void node_counted(const struct ipc_counters *counters, void *data) {
    struct node_sandbox *sandbox = data;
    if (!sandbox->counters) sandbox->counters = NEW(struct ipc_counters);
    if (sandbox->counters) memcpy(sandbox->counters, counters, sizeof(*counters));
    scrape_heard(sandbox);
}

void node_count_out(struct node_sandbox *sandbox) {
    if (sandbox->counters) metrics_retire(&sandbox->node->retired[sandbox->type], sandbox->counters);
    free(TAKE_POINTER(sandbox->counters));
    scrape_heard(sandbox);
}

static void scrape_refused(const struct ipc_shim_done *done, void *data) {
    if (done && done->status < 0) scrape_heard(data); // it has no gate; who has gone is counted out
}

static void scrape_late(evutil_socket_t fd, short what, void *data) {
    (void)fd, (void)what;
    scrape_done(data);
}

static void scrape_begin(struct node *node) {
    static const struct timeval patience = {.tv_sec = SCRAPE_US / 1000000};
    struct error ignored;
    LIST_FOREACH(&node->sandboxes, at) {
        struct node_sandbox *sandbox = LIST_ENTRY(at, struct node_sandbox, list);
        if (!sandbox->up || !sandbox->link) continue;
        sandbox->counting = shim_link_call(sandbox->link, IPC_SHIM_COUNT, NULL, NULL, scrape_refused, NULL, sandbox, &ignored) == 0;
        node->scrape->waiting += sandbox->counting;
    }
    event_add(node->scrape->timer, &patience);
    if (node->scrape->waiting == 0) scrape_done(node);
}

void node_metrics(void *data, struct api_call *call) {
    struct node *node = data;
    if (!node->scrape) {
        node->scrape = NEW(struct node_scrape);
        if (node->scrape) node->scrape->timer = evtimer_new(node->base, scrape_late, node);
        if (!node->scrape || !node->scrape->timer) {
            node_scrape_free(node);
            api_reply_error(call, 500, "out of memory");
            return;
        }
    }
    struct node_scrape *scrape = node->scrape;
    if (scrape->call_count == SCRAPE_CALLS) {
        api_reply_error(call, 503, "the metrics are being asked for by %d others; try again in a second", SCRAPE_CALLS);
        return;
    }
    scrape->calls[scrape->call_count++] = call;
    if (scrape->waiting > 0) return;
    if (scrape->done_us && clock_us() - scrape->done_us < SCRAPE_US) scrape_answer(node);
    else scrape_begin(node);
}

void node_scrape_free(struct node *node) {
    struct node_scrape *scrape = TAKE_POINTER(node->scrape);
    if (scrape && scrape->timer) event_free(scrape->timer);
    free(scrape);
}
