// SPDX-License-Identifier: Apache-2.0
// The decision log on its way to main: in order, without loss. Records that main's channel does not take wait here; when
// too many wait the gate stops taking new work (SYNs, datagrams), so a sandbox that floods the log slows only itself.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "gate/state.h"

#define JOURNAL_PAUSE 1024  // records waiting
#define JOURNAL_RESUME 256
#define JOURNAL_MAX 8192    // hard limit: HTTP requests of open flows still add some while paused

struct journal {
    struct gate *gate;
    struct ipc_decision *ring;
    size_t first, count;
    struct event *writable;
    bool paused;
};

static void journal_event(evutil_socket_t fd, short what, void *data) {
    (void)fd;
    (void)what;
    journal_flush(data);
}

struct journal *journal_new(struct gate *gate) {
    struct journal *journal = NEW(struct journal);
    if (!journal) return NULL;
    journal->gate = gate;
    journal->writable = event_new(gate->base, gate->channel, EV_WRITE, journal_event, journal);
    if (!journal->writable) {
        free(journal);
        return NULL;
    }
    return journal;
}

void journal_free(struct journal *journal) {
    if (!journal) return;
    if (journal->writable) event_free(journal->writable);
    free(journal->ring);
    free(journal);
}

bool journal_flush(struct journal *journal) {
    while (journal->count > 0) {
        int rc = channel_send(journal->gate->channel, IPC_DECISION, &journal->ring[journal->first],
                              sizeof(struct ipc_decision), NULL, 0);
        if (rc == -EAGAIN) {
            // Nothing else would wake a gate that waits for its log.
            if (event_add(journal->writable, NULL) < 0) gate_fail(journal->gate, "out of memory");
            return false;
        }
        if (rc < 0) journal->count = 1; // main is gone: nobody reads what is left
        journal->first = (journal->first + 1) % JOURNAL_MAX;
        journal->count--;
        if (journal->paused && journal->count <= JOURNAL_RESUME) {
            journal->paused = false;
            gate_pause(journal->gate, false);
        }
    }
    return true;
}

static void journal_add(struct gate *gate, const struct ipc_decision *record) {
    struct journal *journal = gate->journal;
    if (journal->count == 0 &&
        channel_send(gate->channel, IPC_DECISION, record, sizeof(*record), NULL, 0) != -EAGAIN) {
        return;
    }
    if (!journal->ring) journal->ring = NEW_ARRAY(struct ipc_decision, JOURNAL_MAX);
    if (!journal->ring || journal->count == JOURNAL_MAX) {
        // Never open and silent: without a place for its record the work itself has to stop.
        gate_fail(gate, "the decision log is full: its reader does not read");
        return;
    }
    journal->ring[(journal->first + journal->count++) % JOURNAL_MAX] = *record;
    if (event_add(journal->writable, NULL) < 0) gate_fail(gate, "out of memory");
    // One long turn of the loop must not fill it while main is there to read.
    if (journal->count % JOURNAL_PAUSE == 0) journal_flush(journal);
    if (journal->count >= JOURNAL_PAUSE && !journal->paused) {
        journal->paused = true;
        gate_pause(gate, true);
    }
}

static void journal_name(struct ipc_decision *record, const char *name) {
    if (name) memcpy(record->name, name, strnlen(name, NAME_SIZE - 1));
}

void journal_decision(struct gate *gate, const struct policy_request *request,
                      const struct policy_decision *decision) {
    struct ipc_decision record = {
        .event = IPC_EVENT_DECISION,
        .protocol = (uint8_t)request->protocol,
        .verdict = (uint8_t)decision->verdict,
        .reason = (uint8_t)decision->reason,
        .port = request->port,
        .app = (uint8_t)request->app,
        .rule = decision->rule,
        .generation = gate->facts.generation,
    };
    if (request->address) record.address = *request->address;
    else if (request->claimed_address) record.address = *request->claimed_address;
    journal_name(&record, request->claimed ? request->claimed : request->dialled);
    if (decision->verdict == POLICY_DENY) policy_hint(gate->policy, request, decision, record.hint);
    journal_add(gate, &record);
}

void journal_flow(struct gate *gate, const struct flow *flow, uint64_t bytes_out, uint64_t bytes_in) {
    struct ipc_decision record = {
        .event = IPC_EVENT_FLOW,
        .protocol = flow->transport,
        .verdict = flow->reason == POLICY_POLICY_CHANGED ? POLICY_DENY : POLICY_ALLOW,
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
    journal_add(gate, &record);
}
