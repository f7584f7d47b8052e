// SPDX-License-Identifier: Apache-2.0
// One gate's channel in the resolver process.
//
// A query is counted against its gate until libunbound is through with it, also after its deadline was answered: that
// is what it holds. A gate that goes away leaves its queries to end alone. A gate that does not read its answers is not
// read from either, and once a bounded queue is full its further answers are dropped (its own deadline ends those
// lookups).
#include "dns/resolver.h"

#include <errno.h>
#include <string.h>
#include <event2/event.h>

#include "base/mem.h"
#include "net/net.h"

#define GATE_BATCH 32 // queries read in one turn of the loop

struct resolver_gate {
    struct list link;
    struct resolver_contexts *contexts;
    struct event_base *base;
    int channel;
    struct event *readable, *writable;
    struct list queries;
    unsigned query_count;
    struct list waiting; // answers that did not go out yet
    size_t waiting_bytes;
    bool closing; // a send failed: freed at the end of the event
    uint8_t buffer[sizeof(struct ipc_header) + sizeof(struct ipc_query) + 1];
};

struct gate_query {
    struct list link;
    struct resolver_gate *gate; // NULL: gone
    struct event *deadline;
    uint32_t id;
    bool answered;
};

struct gate_answer {
    struct list link;
    struct ipc_answer head;
    uint8_t bytes[];
};

static void gate_free(struct resolver_gate *gate) {
    LIST_FOREACH (&gate->queries, node) {
        struct gate_query *query = LIST_ENTRY(node, struct gate_query, link);
        list_remove(&query->link);
        event_del(query->deadline);
        query->gate = NULL;
    }
    LIST_FOREACH (&gate->waiting, node) free(LIST_ENTRY(node, struct gate_answer, link));
    if (gate->readable) event_free(gate->readable);
    if (gate->writable) event_free(gate->writable);
    close(gate->channel);
    list_remove(&gate->link);
    free(gate);
}

static void gate_wait(struct resolver_gate *gate, const struct ipc_answer *head, const uint8_t *bytes) {
    if (gate->waiting_bytes + head->length > RESOLVER_GATE_QUEUE_MAX) return;
    struct gate_answer *answer = malloc(sizeof(*answer) + head->length);
    if (!answer || event_add(gate->writable, NULL) < 0) {
        free(answer);
        return;
    }
    answer->head = *head;
    if (head->length > 0) memcpy(answer->bytes, bytes, head->length);
    list_append(&gate->waiting, &answer->link);
    gate->waiting_bytes += head->length;
    event_del(gate->readable);
}

static void gate_answer(struct resolver_gate *gate, uint32_t id, int status, const uint8_t *bytes, size_t len) {
    struct ipc_answer head = {.id = id, .status = status, .length = (uint32_t)len};
    int r = -EAGAIN;
    if (list_empty(&gate->waiting)) r = channel_send_tail(gate->channel, IPC_ANSWER, &head, sizeof(head), bytes, len);
    if (r == -EAGAIN) gate_wait(gate, &head, bytes);
    // Not freed here: callers still use it. The closed channel is seen by the next read.
    else if (r < 0)
        gate->closing = true;
}

static void gate_writable(evutil_socket_t fd, short what, void *data) {
    (void)fd, (void)what;
    struct resolver_gate *gate = data;
    LIST_FOREACH (&gate->waiting, node) {
        struct gate_answer *answer = LIST_ENTRY(node, struct gate_answer, link);
        const struct ipc_answer *head = &answer->head;
        int r = channel_send_tail(gate->channel, IPC_ANSWER, head, sizeof(*head), answer->bytes, head->length);
        if (r == -EAGAIN) return;
        if (r < 0) {
            gate_free(gate);
            return;
        }
        list_remove(&answer->link);
        gate->waiting_bytes -= head->length;
        free(answer);
    }
    if (event_add(gate->readable, NULL) == 0) event_del(gate->writable); // else it is tried again at once
}

static void query_free(struct gate_query *query) {
    if (query->gate) query->gate->query_count--;
    if (query->deadline) event_free(query->deadline);
    list_remove(&query->link);
    free(query);
}

static void query_answered(int status, const uint8_t *answer, size_t len, void *data) {
    struct gate_query *query = data;
    if (query->gate && !query->answered) gate_answer(query->gate, query->id, status, answer, len);
    query_free(query);
}

static void query_expired(evutil_socket_t fd, short what, void *data) {
    (void)fd, (void)what;
    struct gate_query *query = data;
    query->answered = true;
    gate_answer(query->gate, query->id, -ETIMEDOUT, NULL, 0);
}

static int gate_ask(struct resolver_gate *gate, const struct ipc_query *asked) {
    if (gate->query_count >= RESOLVER_GATE_QUERIES_MAX) return -EBUSY;
    struct gate_query *query = NEW(struct gate_query);
    if (!query) return -ENOMEM;
    query->gate = gate;
    query->id = asked->id;
    list_append(&gate->queries, &query->link);
    gate->query_count++;
    struct timeval deadline = {.tv_sec = RESOLVER_DEADLINE_S};
    query->deadline = evtimer_new(gate->base, query_expired, query);
    int r = query->deadline && evtimer_add(query->deadline, &deadline) == 0 ? 0 : -ENOMEM;
    if (r == 0) r = resolver_contexts_ask(gate->contexts, asked, query_answered, query);
    if (r < 0) query_free(query);
    return r;
}

// False: the gate is gone, or sends what no gate sends.
static bool gate_read(struct resolver_gate *gate) {
    for (int i = 0; i < GATE_BATCH && !gate->closing && list_empty(&gate->waiting); i++) {
        struct channel_message message;
        int r = channel_receive(gate->channel, gate->buffer, sizeof(gate->buffer), &message);
        if (r == -EAGAIN) return true;
        if (r <= 0) return false;
        channel_message_close(&message);
        if (message.type != IPC_QUERY) return false;
        struct ipc_query query;
        memcpy(&query, message.body, sizeof(query));
        r = gate_ask(gate, &query);
        if (r < 0) gate_answer(gate, query.id, r, NULL, 0);
    }
    return !gate->closing;
}

static void gate_readable(evutil_socket_t fd, short what, void *data) {
    (void)fd, (void)what;
    struct resolver_gate *gate = data;
    if (!gate_read(gate)) gate_free(gate);
}

struct resolver_gate *resolver_gate_new(struct event_base *base, struct resolver_contexts *contexts, struct list *gates,
                                        int channel) {
    struct resolver_gate *gate = NEW(struct resolver_gate);
    if (!gate) {
        close(channel);
        return NULL;
    }
    gate->base = base;
    gate->contexts = contexts;
    gate->channel = channel;
    list_init(&gate->queries);
    list_init(&gate->waiting);
    list_append(gates, &gate->link);
    gate->readable = event_new(base, channel, EV_READ | EV_PERSIST, gate_readable, gate);
    gate->writable = event_new(base, channel, EV_WRITE | EV_PERSIST, gate_writable, gate);
    if (gate->readable && gate->writable && event_add(gate->readable, NULL) == 0) return gate;
    gate_free(gate);
    return NULL;
}

void resolver_gates_free(struct list *gates) {
    LIST_FOREACH (gates, node) gate_free(LIST_ENTRY(node, struct resolver_gate, link));
}
