// SPDX-License-Identifier: Apache-2.0
// The decision log on its way to main: in order, without loss. The records of two turns of the loop go in one message at their
// end, so that main is woken once for all of them. What main's channel does not take waits; when too many records wait the
// gate stops taking new work (SYNs, datagrams), so a sandbox that floods the log slows only itself. Nothing is held while
// nothing waits.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "gate/state.h"

#define JOURNAL_PAUSE 1024  // records waiting
#define JOURNAL_RESUME 256
#define JOURNAL_MAX 8192    // hard limit: HTTP requests of open flows still add some while paused
#define JOURNAL_BATCH 8000  // bytes of a message

struct journal_batch {
    struct list link;
    size_t len, count;
    uint8_t bytes[JOURNAL_BATCH];
};

struct journal {
    struct gate *gate;
    struct list batches; // the last one is being filled
    size_t count;        // records in them
    struct event *turn, *writable;
    bool due; // turn will come
    bool paused;
};

static void journal_event(evutil_socket_t fd, short what, void *data) {
    (void)fd;
    (void)what;
    struct journal *journal = data;
    journal->due = false;
    journal_flush(journal);
}

struct journal *journal_new(struct gate *gate) {
    struct journal *journal = NEW(struct journal);
    if (!journal) return NULL;
    journal->gate = gate;
    list_init(&journal->batches);
    journal->turn = event_new(gate->base, -1, 0, journal_event, journal);
    journal->writable = event_new(gate->base, gate->channel, EV_WRITE, journal_event, journal);
    if (journal->turn && journal->writable) return journal;
    journal_free(journal);
    return NULL;
}

static void journal_drop(struct journal *journal, struct journal_batch *batch) {
    journal->count -= batch->count;
    list_remove(&batch->link);
    free(batch);
}

void journal_free(struct journal *journal) {
    if (!journal) return;
    LIST_FOREACH(&journal->batches, node) journal_drop(journal, LIST_ENTRY(node, struct journal_batch, link));
    if (journal->turn) event_free(journal->turn);
    if (journal->writable) event_free(journal->writable);
    free(journal);
}

static void journal_send(struct journal *journal) {
    LIST_FOREACH(&journal->batches, node) {
        struct journal_batch *batch = LIST_ENTRY(node, struct journal_batch, link);
        int rc = channel_send(journal->gate->channel, IPC_DECISION, batch->bytes, batch->len, NULL, 0);
        if (rc == -EAGAIN) {
            // Nothing else would wake a gate that waits for its log.
            if (event_add(journal->writable, NULL) < 0) gate_fail(journal->gate, "out of memory");
            return;
        }
        journal_drop(journal, batch); // also if main is gone: nobody reads what is left
    }
}

bool journal_flush(struct journal *journal) {
    journal_send(journal);
    if (journal->paused && journal->count <= JOURNAL_RESUME) {
        journal->paused = false;
        gate_pause(journal->gate, false); // which may add records
    }
    return journal->count == 0;
}

// Room for one record at the end, or NULL.
static struct journal_batch *journal_room(struct journal *journal) {
    struct list *last = journal->batches.prev;
    struct journal_batch *batch = LIST_ENTRY(last, struct journal_batch, link);
    if (!list_empty(&journal->batches) && sizeof(batch->bytes) - batch->len >= IPC_DECISION_PACKED_MAX) return batch;
    // One long turn of the loop must not fill all while main is there to read.
    if (!list_empty(&journal->batches)) journal_flush(journal);
    if (journal->count >= JOURNAL_MAX) return NULL;
    batch = malloc(sizeof(*batch)); // not zeroed
    if (!batch) return NULL;
    batch->len = batch->count = 0;
    list_append(&journal->batches, &batch->link);
    return batch;
}

static void journal_add(struct gate *gate, const struct ipc_decision *record) {
    struct journal *journal = gate->journal;
    struct journal_batch *batch = journal_room(journal);
    if (!batch) {
        // Never open and silent: without a place for its record the work itself has to stop.
        gate_fail(gate, "the decision log is full: its reader does not read");
        return;
    }
    batch->len += ipc_decision_pack(record, batch->bytes + batch->len);
    batch->count++;
    journal->count++;
    static const struct timeval next_turn = {0}; // behind all that it has: half as many messages
    if (!journal->due && event_add(journal->turn, &next_turn) < 0) gate_fail(gate, "out of memory");
    journal->due = true;
    if (journal->count >= JOURNAL_PAUSE && !journal->paused) {
        journal->paused = true;
        gate_pause(gate, true);
    }
}

size_t journal_waiting(const struct journal *journal) { return journal->count; }

static void journal_count(struct ipc_counters *counters, const struct ipc_decision *record, enum policy_limit limit) {
    counters->decisions[record->protocol][record->verdict][record->reason]++;
    if (record->reason == POLICY_LIMIT_EXCEEDED) counters->limited[limit]++;
}

static void journal_name(struct ipc_decision *record, const char *name) {
    if (name) memcpy(record->name, name, strnlen(name, NAME_SIZE - 1));
}

void journal_noted(struct gate *gate, const struct policy_request *request, const struct policy_decision *decision,
                   const struct journal_note *note) {
    struct ipc_decision record = {
        .event = IPC_EVENT_DECISION,
        .protocol = (uint8_t)request->protocol,
        .verdict = (uint8_t)decision->verdict,
        .reason = (uint8_t)decision->reason,
        .port = request->port,
        .credentials = note->credentials,
        .app = (uint8_t)request->app,
        .rule = decision->rule,
        .generation = gate->facts.generation,
    };
    if (request->address) record.address = *request->address;
    else if (request->claimed_address) record.address = *request->claimed_address;
    journal_name(&record, request->claimed ? request->claimed : request->dialled);
    if (note->hint) snprintf(record.hint, sizeof(record.hint), "%s", note->hint);
    else if (decision->verdict == POLICY_DENY) policy_hint(gate->policy, request, decision, record.hint);
    journal_count(&gate->counters, &record, decision->limit);
    journal_add(gate, &record);
}

void journal_decision(struct gate *gate, const struct policy_request *request,
                      const struct policy_decision *decision) {
    static const struct journal_note none = {0};
    journal_noted(gate, request, decision, &none);
}

void journal_flow(struct gate *gate, const struct flow *flow, uint64_t bytes_out, uint64_t bytes_in) {
    struct ipc_decision record = {
        .event = IPC_EVENT_FLOW,
        .protocol = flow->transport,
        .verdict = flow->reason == POLICY_POLICY_CHANGED || flow->limit != POLICY_LIMIT_NONE ? POLICY_DENY : POLICY_ALLOW,
        .reason = flow->reason,
        .port = flow->port,
        .app = flow->app,
        .rule = flow->rule,
        .generation = flow->generation,
        .bytes_out = bytes_out,
        .bytes_in = bytes_in,
        .duration_us = clock_us() - flow->started_us,
        .address = flow->peer,
    };
    journal_name(&record, flow_admitted_name(flow));
    if (flow->limit != POLICY_LIMIT_NONE) {
        gate->counters.limited[flow->limit]++;
        struct policy_decision denial = limit_denial(flow->limit);
        policy_hint(gate->policy, &(struct policy_request){0}, &denial, record.hint);
    }
    journal_add(gate, &record);
}
