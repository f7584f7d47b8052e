// SPDX-License-Identifier: Apache-2.0
// The DNS server that a sandbox sees.
//
// A question is parsed, planned (front_plan.c) and answered (front_answer.c). Plans that need no lookup are answered at
// once, without an allocation. The others wait for the resolver, counted; when its answer comes, the question is
// planned again with the policy then in force, so that an update is never overtaken by an answer that was under way.
#include "dns/front.h"

#include <errno.h>
#include <string.h>

#include "base/mem.h"

struct dns_front *dns_front_new(struct event_base *base, struct dns_client *client, struct dns_pool *pool,
                                const struct dns_front_callbacks *callbacks) {
    struct dns_front *front = NEW(struct dns_front);
    if (!front) return NULL;
    front->base = base;
    front->client = client;
    front->pool = pool;
    front->callbacks = *callbacks;
    list_init(&front->queries);
    list_init(&front->forwards);
    list_init(&front->streams);
    return front;
}

static void query_free(struct front_query *query) {
    dns_lookup_cancel(query->lookup);
    list_remove(&query->link);
    query->front->query_count--;
    free(query);
}

// Takes a query that waits out of the list, for its answer: the reply may drop all that is in it for the same data.
static void query_detach(struct front_query *query) { list_remove(&query->link); }

void dns_front_free(struct dns_front *front) {
    if (!front) return;
    dns_stream_free_all(front);
    dns_forward_free_all(front);
    LIST_FOREACH (&front->queries, node) {
        struct front_query *query = LIST_ENTRY(node, struct front_query, link);
        query_detach(query);
        query->reply(NULL, 0, query->data); // which may free what data is
        query_free(query);
    }
    free(front);
}

void dns_front_drop(struct dns_front *front, const void *data) {
    LIST_FOREACH (&front->queries, node) {
        struct front_query *query = LIST_ENTRY(node, struct front_query, link);
        if (query->data == data) query_free(query);
    }
}

void dns_front_log(const struct dns_front *front, const char *name, const struct addr *server,
                   const struct policy_decision *decision) {
    struct policy_request request = {.protocol = POLICY_DNS, .dialled = name, .address = server, .port = 53};
    front->callbacks.decided(&request, decision, front->callbacks.data);
}

struct policy_decision dns_front_denial(enum policy_reason reason) {
    return (struct policy_decision){.verdict = POLICY_DENY, .reason = reason, .rule = POLICY_RULE_NONE};
}

bool dns_front_affords(const struct front_query *query, size_t len) {
    const struct dns_front_callbacks *callbacks = &query->front->callbacks;
    int rc = callbacks->asked ? callbacks->asked(len, callbacks->data) : 0;
    if (rc == 0) return true;
    bool lost = rc == -EAGAIN && !query->stream; // as datagrams are; a stream's client would not ask again
    if (lost) query->reply(NULL, 0, query->data);
    else if (rc == -EAGAIN) front_answer_limit(query, POLICY_LIMIT_BANDWIDTH, "the limit of bandwidth");
    else front_answer_limit(query, POLICY_LIMIT_BYTES_OUT, "the limit bytes_out is used up");
    return false;
}

void dns_front_told(const struct dns_front *front, size_t len) {
    if (front->callbacks.told) front->callbacks.told(len, front->callbacks.data);
}

static const struct policy *front_policy(const struct dns_front *front) {
    return front->callbacks.policy(front->callbacks.data);
}

static void query_lookup(struct front_query *query);

// Starts the plan of a query that waits, or answers it.
static void query_proceed(struct front_query *query, const struct policy *policy) {
    if (front_plan_is_lookup(query->plan.kind)) {
        query_lookup(query);
        return;
    }
    query_detach(query);
    front_answer_local(query, policy);
    query_free(query);
}

static bool same_lookup(const struct front_plan *a, const struct front_plan *b) {
    return a->kind == b->kind && a->ask_server == b->ask_server;
}

static void query_answered(int status, const uint8_t *answer, size_t len, void *data) {
    struct front_query *query = data;
    query->lookup = NULL;
    const struct policy *policy = front_policy(query->front);
    struct front_plan before = query->plan;
    query->plan = front_plan_make(policy, query->front->pool, &query->question, &query->server);
    if (!same_lookup(&before, &query->plan)) { // the policy changed meanwhile
        query_proceed(query, policy);
        return;
    }
    query_detach(query);
    if (status < 0)
        front_answer_failed(query, status);
    else
        front_answer_message(query, policy, answer, len);
    query_free(query);
}

static void query_lookup(struct front_query *query) {
    query->lookup = dns_client_lookup(query->front->client, query->question.name, query->question.type,
                                      query->plan.ask_server ? &query->server : NULL, 53, query_answered, query);
    if (query->lookup) return;
    query_detach(query);
    front_answer_limit(query, POLICY_LIMIT_NONE, "too many lookups are in flight");
    query_free(query);
}

static void query_wait(const struct front_query *query) {
    struct dns_front *front = query->front;
    struct front_query *waiting = front->query_count < DNS_FRONT_PENDING_MAX ? NEW(struct front_query) : NULL;
    if (!waiting) {
        front_answer_limit(query, POLICY_LIMIT_NONE, "too many questions wait for an answer");
        return;
    }
    *waiting = *query;
    list_append(&front->queries, &waiting->link);
    front->query_count++;
    query_lookup(waiting);
}

void dns_front_ask(struct dns_front *front, bool stream, const uint8_t *message, size_t len, const struct addr *server,
                   dns_front_reply *reply, void *data) {
    struct front_query query = {.front = front, .server = *server, .stream = stream, .reply = reply, .data = data};
    struct policy_decision bad = dns_front_denial(POLICY_DNS_BAD_MESSAGE);
    int rcode = dns_question_parse(message, len, &query.question);
    if (rcode < 0) {
        dns_front_log(front, NULL, server, &bad);
        reply(NULL, 0, data);
        return;
    }
    if (rcode > 0) {
        front_answer_code(&query, (enum dns_rcode)rcode, &bad);
        return;
    }
    if (!dns_front_affords(&query, len)) return;
    const struct policy *policy = front_policy(front);
    query.plan = front_plan_make(policy, front->pool, &query.question, server);
    if (front_plan_is_lookup(query.plan.kind))
        query_wait(&query);
    else
        front_answer_local(&query, policy);
}

void dns_front_query(struct dns_front *front, const uint8_t *message, size_t len, const struct addr *server,
                     dns_front_reply *reply, void *data) {
    dns_front_ask(front, false, message, len, server, reply, data);
}
