// SPDX-License-Identifier: Apache-2.0
// What the files of the resolver process share. Private to the dns room.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/list.h"
#include "wire/ipc.h"

struct event_base;

// ---- resolver_context.c: libunbound, one context for the configured servers, one for each foreign one ----

#define RESOLVER_FOREIGN_MAX 16     // contexts for servers that a sandbox addressed
#define RESOLVER_IN_FLIGHT_MAX 4096 // of one context

struct resolver_contexts {
    struct event_base *base;
    struct resolver_context *configured; // NULL: no server is configured
    struct list foreign;                 // the least recently used first
    unsigned foreign_count;
};

// status 0: a DNS message; -EIO: no usable answer. Called once for each question that was taken, maybe from inside.
typedef void resolver_context_done(int status, const uint8_t *answer, size_t len, void *data);

// Sets libunbound up so far that it opens no file afterwards. 0, or -EINVAL, -ENOMEM with a message.
int resolver_contexts_init(struct resolver_contexts *contexts, struct event_base *base,
                           const struct ipc_resolver_start *start, struct error *err);
void resolver_contexts_done(struct resolver_contexts *contexts);
// 0: done is called. -ENETUNREACH: no server; -EBUSY: too much in flight; -EINVAL; -ENOMEM.
int resolver_contexts_ask(struct resolver_contexts *contexts, const struct ipc_query *query,
                          resolver_context_done *done, void *data);

// ---- resolver_gate.c: one gate's channel ----

#define RESOLVER_GATE_QUERIES_MAX 512
#define RESOLVER_GATE_QUEUE_MAX (1024 * 1024) // bytes of answers that wait for a slow gate
#define RESOLVER_DEADLINE_S 10

struct resolver_gate;
struct resolver_gate *resolver_gate_new(struct event_base *base, struct resolver_contexts *contexts, struct list *gates,
                                        int channel); // takes the channel; NULL: out of memory (channel closed)
void resolver_gates_free(struct list *gates);
