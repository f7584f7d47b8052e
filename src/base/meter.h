// SPDX-License-Identifier: Apache-2.0
// What a sandbox has sent and received, and what it may: a budget of bytes out over its life, and a rate for each way, which
// all its flows share in fair turns. It does nothing by itself: its owner wakes it.
//
// A flow asks before it reads and takes what it has read. One that gets nothing waits in a queue: when the bucket has filled
// up again, each that waits is resumed, in order, with an equal share of what is there; so bytes stay in their sender until
// there is room for them, and none is lost. Datagrams do not wait: together they have the share of one flow, and what is
// beyond it is lost. Messages (DNS) go first, into debt, up to one bucket.
//
// Whoever remembers the count for the next life of this process is told in advance, a step at a time: under a budget no
// byte is taken that he does not know of.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/list.h"

#define METER_NONE UINT64_MAX // no budget
#define METER_LEAST 1024      // bytes: with fewer to give, none are given
#define METER_SHARE 4096      // bytes: the least that one of many gets in its turn

enum meter_way { METER_OUT, METER_IN }; // as enum relay_side: from the sandbox, from upstream

// Things a second: of which `size` may come at once. level may be negative: a debt.
struct meter_bucket {
    uint64_t rate; // 0: no limit
    int64_t level, size;
    uint64_t at_us;
    uint64_t rest; // millionth parts of a thing
};

void meter_bucket_set(struct meter_bucket *bucket, uint64_t rate, int64_t size, uint64_t now_us); // full, if it had no limit
void meter_bucket_fill(struct meter_bucket *bucket, uint64_t now_us);

// One flow's place in the queue of one way. All zero: not in it. resume is called when it is its turn; it may ask and take, and end anything.
struct meter_turn {
    struct list link;
    void (*resume)(struct meter_turn *turn);
};

struct meter_callbacks {
    // meter_serve is to be called in so many microseconds; a later call replaces this one.
    void (*wake)(uint64_t delay_us, void *data);
    // bytes_out of this many are accounted for. False: it could not be told. NULL: nobody remembers.
    bool (*reserve)(uint64_t bytes_out, void *data);
    void *data;
};

struct meter {
    uint64_t used[2];
    uint64_t budget;   // of used[METER_OUT], or METER_NONE; if limited
    uint64_t reserved; // of used[METER_OUT], as was told
    uint64_t lost[2];  // datagrams beyond the rate
    uint64_t waits[2]; // times that somebody had to wait
    struct meter_path {
        struct meter_bucket bucket;
        struct list waiting;
        size_t count;             // of those
        struct meter_turn *serving;
        int64_t share;            // what is left of it
        int64_t datagrams;        // what they may have
        bool datagrams_came;      // since the last turn
    } paths[2];
    struct meter_callbacks callbacks;
    bool limited; // by a rate or a budget
};

// used_out: by earlier lives. Without limits until meter_limit; so is one that is all zero, which counts and no more.
void meter_init(struct meter *meter, uint64_t used_out, const struct meter_callbacks *callbacks);
// rate: bytes a second, 0: none. budget: METER_NONE: none. Whoever waits is served anew.
void meter_limit(struct meter *meter, uint64_t rate, uint64_t budget);
bool meter_is_spent(const struct meter *meter); // not one byte more may go out
void meter_turn_init(struct meter_turn *turn, void (*resume)(struct meter_turn *turn));
static inline bool meter_turn_waits(const struct meter_turn *turn) { return turn->link.next && !list_empty(&turn->link); }
// How many bytes, up to max (above 0), may be read now. 0: none, the turn waits and will be resumed. -EDQUOT: none ever.
ssize_t meter_ask_limited(struct meter *meter, enum meter_way way, struct meter_turn *turn, size_t max);
static inline ssize_t meter_ask(struct meter *meter, enum meter_way way, struct meter_turn *turn, size_t max) {
    return meter->limited ? meter_ask_limited(meter, way, turn, max) : (ssize_t)max;
}
void meter_leave(struct meter *meter, enum meter_way way, struct meter_turn *turn); // it ends; fine if it does not wait
void meter_took(struct meter *meter, enum meter_way way, size_t len); // what meter_take does where there are limits
static inline void meter_take(struct meter *meter, enum meter_way way, size_t len) {
    meter->used[way] += len;
    if (meter->limited || meter->used[METER_OUT] > meter->reserved) meter_took(meter, way, len);
}
// Takes a datagram: 0, -EAGAIN: it is lost, -EDQUOT: beyond the budget.
int meter_datagram(struct meter *meter, enum meter_way way, size_t len);
// Takes a message out to which an answer will come: the same.
int meter_message(struct meter *meter, size_t len);
void meter_serve(struct meter *meter); // resumes whose turn it is
