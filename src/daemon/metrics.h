// SPDX-License-Identifier: Apache-2.0
// What gates count (struct ipc_counters), summed up and as text in the format that Prometheus reads. Pure.
#pragma once

#include <stddef.h>

#include "base/buf.h"
#include "wire/ipc.h"

struct metrics_row {
    const char *value;            // of the label; any text
    struct ipc_counters counters; // of one gate, or a sum
};

// Adds what a gate that runs has counted and has.
void metrics_add(struct ipc_counters *sum, const struct ipc_counters *one);
// Adds what a gate has counted that is no more: what it had open is not. A sum over gates of which some end never falls if
// their last counters are kept so.
void metrics_retire(struct ipc_counters *sum, const struct ipc_counters *last);
// Every family once, with one sample (or one per value of its own labels) for each row. label: a name of letters and '_'.
// Samples of decisions that never were are left out. Failure: out->failed.
void metrics_text(struct buf *out, const char *label, const struct metrics_row *rows, size_t count);
