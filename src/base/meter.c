// SPDX-License-Identifier: Apache-2.0
#include "base/meter.h"

#include <errno.h>

#include "base/clock.h"

#ifndef METER_NOW_US
#define METER_NOW_US clock_us() // redefined by the unit test
#endif
#define METER_SECOND_US 1000000
#define METER_BURST_PART 20       // of a second's bytes may come at once
#define METER_BURST_LEAST 4096    // but so many
#define METER_TICK_US 2000        // between two turns of those who wait, at least
#define METER_RETRY_US 10000      // whoever counts did not listen
#define METER_RATE_MAX ((uint64_t)1 << 40)
#define METER_RESERVE_PART 64     // of the budget is reserved at a time
#define METER_RESERVE_LEAST 4096
#define METER_RESERVE_MOST (16 << 20)

// ---- buckets ----

void meter_bucket_fill(struct meter_bucket *bucket, uint64_t now_us) {
    if (bucket->rate == 0 || now_us <= bucket->at_us) return;
    uint64_t gone_us = now_us - bucket->at_us;
    uint64_t missing = bucket->level < bucket->size ? (uint64_t)(bucket->size - bucket->level) : 0;
    bucket->at_us = now_us;
    if (gone_us / METER_SECOND_US > missing / bucket->rate) { // full, before anything can overflow
        bucket->level += (int64_t)missing;
        return;
    }
    uint64_t parts = gone_us % METER_SECOND_US * bucket->rate + bucket->rest;
    uint64_t gained = gone_us / METER_SECOND_US * bucket->rate + parts / METER_SECOND_US;
    bucket->rest = parts % METER_SECOND_US;
    bucket->level += (int64_t)(gained < missing ? gained : missing);
}

void meter_bucket_set(struct meter_bucket *bucket, uint64_t rate, int64_t size, uint64_t now_us) {
    bool fresh = bucket->rate == 0;
    if (!fresh) meter_bucket_fill(bucket, now_us);
    bucket->rate = rate > METER_RATE_MAX ? METER_RATE_MAX : rate;
    bucket->size = size;
    if (fresh || bucket->level > size) bucket->level = size;
    bucket->at_us = now_us;
}

// Until it holds so many.
static uint64_t bucket_wait_us(const struct meter_bucket *bucket, int64_t level) {
    if (bucket->rate == 0 || bucket->level >= level) return 0;
    uint64_t missing = (uint64_t)(level - bucket->level);
    return missing / bucket->rate * METER_SECOND_US + missing % bucket->rate * METER_SECOND_US / bucket->rate + 1;
}

// ---- the budget ----

bool meter_is_spent(const struct meter *meter) { return meter->limited && meter->used[METER_OUT] >= meter->budget; }

static bool meter_reserve(struct meter *meter, uint64_t least) {
    uint64_t step = meter->budget == METER_NONE ? METER_RESERVE_MOST : meter->budget / METER_RESERVE_PART;
    step = step < METER_RESERVE_LEAST ? METER_RESERVE_LEAST : step > METER_RESERVE_MOST ? METER_RESERVE_MOST : step;
    uint64_t reserved = meter->used[METER_OUT] + (least > step ? least : step);
    if (meter->budget != METER_NONE && reserved > meter->budget && meter->used[METER_OUT] + least <= meter->budget)
        reserved = meter->budget;
    if (meter->callbacks.reserve && !meter->callbacks.reserve(reserved, meter->callbacks.data)) return false;
    meter->reserved = reserved;
    return true;
}

// Whether len bytes may go out: 0, -EDQUOT, -EAGAIN: not before they are accounted for.
static int meter_afford(struct meter *meter, size_t len) {
    if (!meter->limited) return 0;
    uint64_t left = meter_is_spent(meter) ? 0 : meter->budget - meter->used[METER_OUT];
    if (len > left) return -EDQUOT;
    if (meter->budget == METER_NONE || meter->used[METER_OUT] + len <= meter->reserved) return 0;
    return meter_reserve(meter, len) ? 0 : -EAGAIN;
}

void meter_took(struct meter *meter, enum meter_way way, size_t len) {
    struct meter_path *path = &meter->paths[way];
    path->bucket.level -= path->bucket.rate > 0 ? (int64_t)len : 0;
    if (path->serving) path->share -= (int64_t)len;
    if (way == METER_OUT && meter->used[METER_OUT] > meter->reserved) meter_reserve(meter, 0);
}

// ---- turns ----

void meter_turn_init(struct meter_turn *turn, void (*resume)(struct meter_turn *turn)) {
    list_init(&turn->link);
    turn->resume = resume;
}

static void meter_wake(struct meter *meter, uint64_t delay_us) { meter->callbacks.wake(delay_us, meter->callbacks.data); }

// When those who wait have enough for a turn, which is not at each byte.
static uint64_t path_delay_us(const struct meter_path *path) {
    int64_t wanted = path->bucket.size / 8;
    uint64_t wait = bucket_wait_us(&path->bucket, wanted < METER_LEAST ? METER_LEAST : wanted);
    return wait < METER_TICK_US ? METER_TICK_US : wait;
}

static ssize_t meter_wait(struct meter *meter, struct meter_path *path, struct meter_turn *turn, uint64_t delay_us) {
    if (meter_turn_waits(turn)) return 0;
    list_append(&path->waiting, &turn->link);
    if (path->count++ == 0 && !path->serving) meter_wake(meter, delay_us);
    meter->waits[path - meter->paths]++;
    return 0;
}

void meter_leave(struct meter *meter, enum meter_way way, struct meter_turn *turn) {
    struct meter_path *path = &meter->paths[way];
    if (path->serving == turn) path->serving = NULL;
    if (!meter_turn_waits(turn)) return;
    list_remove(&turn->link);
    path->count--;
}

// 0: it has to wait.
static size_t path_grant(struct meter_path *path, struct meter_turn *turn, size_t max) {
    int64_t most = path->bucket.level;
    if (path->bucket.rate == 0) return max;
    if (turn == path->serving && most > path->share) most = path->share;
    if (turn != path->serving && path->count > 0) return 0; // others came first
    if (path->bucket.level < METER_LEAST || most <= 0) return 0;
    return (uint64_t)most < max ? (size_t)most : max;
}

ssize_t meter_ask_limited(struct meter *meter, enum meter_way way, struct meter_turn *turn, size_t max) {
    struct meter_path *path = &meter->paths[way];
    if (way == METER_OUT && meter_is_spent(meter)) return -EDQUOT;
    if (turn != path->serving) meter_bucket_fill(&path->bucket, METER_NOW_US);
    size_t grant = path_grant(path, turn, max);
    if (grant == 0) return meter_wait(meter, path, turn, path_delay_us(path));
    if (way == METER_IN || meter->budget == METER_NONE) return (ssize_t)grant;
    uint64_t left = meter->budget - meter->used[METER_OUT];
    if (grant > left) grant = (size_t)left;
    if (meter->used[METER_OUT] + grant <= meter->reserved) return (ssize_t)grant;
    return meter_reserve(meter, grant) ? (ssize_t)grant : meter_wait(meter, path, turn, METER_RETRY_US);
}

// ---- datagrams and messages ----

int meter_datagram(struct meter *meter, enum meter_way way, size_t len) {
    struct meter_path *path = &meter->paths[way];
    int rc = way == METER_OUT ? meter_afford(meter, len) : 0;
    if (rc < 0) return rc;
    if (path->bucket.rate > 0) {
        meter_bucket_fill(&path->bucket, METER_NOW_US);
        path->datagrams_came = true;
        // What waits has its turns, and datagrams theirs; where nothing waits they have all.
        bool own = path->datagrams > 0;
        if (!own && (path->count > 0 || path->bucket.level <= 0)) {
            meter->lost[way]++;
            return -EAGAIN;
        }
        if (own) {
            path->datagrams -= (int64_t)len;
            path->bucket.level += (int64_t)len; // it was taken before
        }
    }
    meter_take(meter, way, len);
    return 0;
}

int meter_message(struct meter *meter, size_t len) {
    uint64_t now_us = METER_NOW_US;
    int rc = meter_afford(meter, len);
    for (int way = METER_OUT; way <= METER_IN && rc == 0; way++) {
        struct meter_bucket *bucket = &meter->paths[way].bucket;
        meter_bucket_fill(bucket, now_us);
        if (bucket->rate > 0 && bucket->level <= -bucket->size) {
            meter->lost[way]++;
            rc = -EAGAIN;
        }
    }
    if (rc == 0) meter_take(meter, METER_OUT, len);
    return rc;
}

// ---- serving ----

// What datagrams may have is taken out of the bucket now; they keep no more than one turn's for later.
static void path_share(struct meter_path *path) {
    int64_t part = path->bucket.level / ((int64_t)path->count + path->datagrams_came);
    int64_t share = part < METER_SHARE ? METER_SHARE : part;
    if (path->datagrams_came && path->datagrams < share) {
        path->datagrams += part;
        path->bucket.level -= part;
    }
    path->datagrams_came = false;
    path->share = share;
}

static void path_serve(struct meter_path *path) {
    bool limited = path->bucket.rate > 0;
    meter_bucket_fill(&path->bucket, METER_NOW_US);
    if (path->count > 0 && limited && path->bucket.level >= METER_LEAST) path_share(path);
    int64_t share = path->share;
    for (size_t turns = path->count; turns > 0 && path->count > 0; turns--) {
        if (limited && path->bucket.level < METER_LEAST) break;
        struct meter_turn *turn = LIST_ENTRY(path->waiting.next, struct meter_turn, link);
        list_remove(&turn->link);
        path->count--;
        path->share = share;
        path->serving = turn;
        turn->resume(turn); // which may free it
        path->serving = NULL;
    }
}

void meter_serve(struct meter *meter) {
    uint64_t delay_us = UINT64_MAX;
    for (int way = METER_OUT; way <= METER_IN; way++) {
        struct meter_path *path = &meter->paths[way];
        path_serve(path);
        if (path->count == 0) { // what was put aside for datagrams is everybody's
            path->bucket.level += path->datagrams;
            path->datagrams = 0;
            continue;
        }
        uint64_t wait = path_delay_us(path);
        if (wait < delay_us) delay_us = wait;
    }
    if (delay_us != UINT64_MAX) meter_wake(meter, delay_us);
}

// ---- life ----

void meter_init(struct meter *meter, uint64_t used_out, const struct meter_callbacks *callbacks) {
    *meter = (struct meter){.budget = METER_NONE, .callbacks = *callbacks};
    meter->used[METER_OUT] = meter->reserved = used_out;
    for (int way = METER_OUT; way <= METER_IN; way++) list_init(&meter->paths[way].waiting);
}

void meter_limit(struct meter *meter, uint64_t rate, uint64_t budget) {
    int64_t size = (int64_t)((rate < METER_RATE_MAX ? rate : METER_RATE_MAX) / METER_BURST_PART);
    for (int way = METER_OUT; way <= METER_IN; way++) {
        struct meter_path *path = &meter->paths[way];
        meter_bucket_set(&path->bucket, rate, size < METER_BURST_LEAST ? METER_BURST_LEAST : size, METER_NOW_US);
        path->datagrams = 0;
    }
    meter->budget = budget;
    meter->limited = rate > 0 || budget != METER_NONE;
    if (meter->reserved > meter->used[METER_OUT]) meter_reserve(meter, 0); // in the steps of this budget
    if (meter->paths[METER_OUT].count + meter->paths[METER_IN].count > 0) meter_wake(meter, 0);
}
