// SPDX-License-Identifier: Apache-2.0
// The decision log: one JSON line for each decision and each finished flow (semantics section 12), and the summary of
// denials at the end of a run.
#pragma once

#include <stdbool.h>

#include "policy/policy.h"
#include "wire/ipc.h"

struct decision_log;
struct learn;
// fd: where lines go, -1 for none (only the summary is kept). The descriptor stays the caller's.
struct decision_log *decision_log_new(int fd, const char *sandbox);
void decision_log_free(struct decision_log *log);
// policy: the one of the record's generation, for the rule's text; NULL if it is not known any more. 0, or the -errno of the
// first line that could not be written: nothing is written after that, and nothing may go on that would have to be. Lines
// wait for the flush, so that what has come at once is written at once.
int decision_log_record(struct decision_log *log, const struct ipc_decision *record, const struct policy *policy);
int decision_log_flush(struct decision_log *log);
// Beyond size_max bytes the file at path, which fd is, becomes path.1, in place of the last one, and a new one is begun. What
// waits is written whole, so a line is never in two files. path stays the caller's. 0, or -errno.
int decision_log_bound(struct decision_log *log, const char *path, uint64_t size_max);
// From here on each line of what was allowed also says what a run without --learn would have made of it.
void decision_log_learn(struct decision_log *log, const struct learn *learn);
// Each denied destination once, with its count and what would allow it, to standard error (denials.h).
bool decision_log_summary(const struct decision_log *log, const char *policy_file);
