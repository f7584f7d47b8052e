// SPDX-License-Identifier: Apache-2.0
// The meter, with a clock of its own: its source is included.
#include <stdint.h>

static uint64_t time_us = 1000000;
#define METER_NOW_US time_us
#include "base/meter.c"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/mem.h"

static uint64_t wake_at, told;
static bool deaf;

static void woken(uint64_t delay_us, void *data) {
    (void)data;
    wake_at = time_us + delay_us;
}

static bool reserved(uint64_t bytes_out, void *data) {
    (void)data;
    if (!deaf) told = bytes_out;
    return !deaf;
}

static const struct meter_callbacks callbacks = {woken, reserved, NULL};

// Somebody who reads as much as he may, in pieces.
struct reader {
    struct meter_turn turn;
    struct meter *meter;
    enum meter_way way;
    uint64_t got, left;
    size_t piece;
    int error;
};

static void reader_read(struct reader *reader) {
    while (reader->left > 0 && !reader->error) {
        size_t max = reader->left < reader->piece ? (size_t)reader->left : reader->piece;
        ssize_t allowed = meter_ask(reader->meter, reader->way, &reader->turn, max);
        if (allowed == 0) return;
        if (allowed < 0) {
            reader->error = (int)allowed;
            return;
        }
        meter_take(reader->meter, reader->way, (size_t)allowed);
        reader->got += (uint64_t)allowed;
        reader->left -= (uint64_t)allowed;
    }
}

static void reader_resume(struct meter_turn *turn) { reader_read(LIST_ENTRY(turn, struct reader, turn)); }

static void reader_init(struct reader *reader, struct meter *meter, enum meter_way way, uint64_t left, size_t piece) {
    *reader = (struct reader){.meter = meter, .way = way, .left = left, .piece = piece};
    meter_turn_init(&reader->turn, reader_resume);
}

static void serve_for(struct meter *meter, uint64_t us) {
    uint64_t end = time_us + us;
    while (wake_at > 0 && wake_at <= end) {
        time_us = wake_at > time_us ? wake_at : time_us;
        wake_at = 0;
        meter_serve(meter);
    }
    time_us = end;
}

static void test_nothing_is_limited(void **state) {
    (void)state;
    struct meter meter = {0};
    struct meter_turn turn = {0};
    assert_int_equal(meter_ask(&meter, METER_OUT, &turn, 12345), 12345);
    meter_take(&meter, METER_OUT, 12345);
    assert_int_equal(meter_datagram(&meter, METER_IN, 99), 0);
    assert_int_equal(meter_message(&meter, 1), 0);
    assert_true(meter.used[METER_OUT] == 12346 && meter.used[METER_IN] == 99 && !meter_is_spent(&meter));
    meter_leave(&meter, METER_OUT, &turn);
}

// Whatever the rate and however many read: that rate, never more than one burst above it, and equal parts.
static void test_rates(void **state) {
    static const uint64_t rates[] = {1000, 125000, 6250000, 125000000, UINT64_C(12500000000)};
    static const size_t counts[] = {1, 3, 64};
    (void)state;
    for (size_t r = 0; r < ARRAY_LENGTH(rates); r++) {
        for (size_t c = 0; c < ARRAY_LENGTH(counts); c++) {
            struct meter meter;
            struct reader readers[64];
            uint64_t sum = 0, least = UINT64_MAX, most = 0, seconds = rates[r] < 100000 ? 400 : 3;
            meter_init(&meter, 0, &callbacks);
            meter_limit(&meter, rates[r], METER_NONE);
            uint64_t burst = (uint64_t)meter.paths[METER_IN].bucket.size;
            for (size_t i = 0; i < counts[c]; i++) {
                reader_init(&readers[i], &meter, METER_IN, UINT64_MAX / 2, 1 << 20);
                reader_read(&readers[i]);
            }
            uint64_t begin = time_us;
            serve_for(&meter, seconds * 1000000);
            uint64_t expected = rates[r] * (time_us - begin) / 1000000;
            for (size_t i = 0; i < counts[c]; i++) {
                sum += readers[i].got;
                if (readers[i].got < least) least = readers[i].got;
                if (readers[i].got > most) most = readers[i].got;
                meter_leave(&meter, METER_IN, &readers[i].turn);
            }
            assert_true(sum <= expected + burst && sum + burst >= expected);
            assert_true(most - least <= burst + 2 * METER_SHARE + most / 10);
            assert_int_equal(meter.paths[METER_IN].count, 0);
        }
    }
}

static void test_ways_are_apart(void **state) {
    (void)state;
    struct meter meter;
    struct reader out;
    struct meter_turn in = {0};
    meter_init(&meter, 0, &callbacks);
    meter_limit(&meter, 100000, METER_NONE);
    reader_init(&out, &meter, METER_OUT, 1000000, 1000000);
    reader_read(&out);
    assert_true(out.got == 5000 && meter_turn_waits(&out.turn));
    assert_int_equal(meter_ask(&meter, METER_IN, &in, 100), 100);
    meter_leave(&meter, METER_OUT, &out.turn);
}

// Datagrams have their part beside a reader that never stops, and the reader has his beside a flood.
static void test_datagrams_and_readers(void **state) {
    (void)state;
    struct meter meter;
    struct reader reader;
    uint64_t passed = 0;
    meter_init(&meter, 0, &callbacks);
    meter_limit(&meter, 1000000, METER_NONE);
    reader_init(&reader, &meter, METER_OUT, UINT64_MAX / 2, 65536);
    reader_read(&reader);
    for (int i = 0; i < 2000; i++) { // two seconds, ten times as many datagrams as would fit
        for (int j = 0; j < 10; j++) passed += meter_datagram(&meter, METER_OUT, 1000) == 0 ? 1000 : 0;
        serve_for(&meter, 1000);
    }
    assert_true(meter.lost[METER_OUT] > 1000);
    assert_true(passed > 500000 && reader.got > 500000);
    assert_true(passed + reader.got < 2000000 + 50000 + 1000);
    meter_leave(&meter, METER_OUT, &reader.turn);
}

static void test_datagrams_alone(void **state) {
    (void)state;
    struct meter meter;
    uint64_t passed = 0;
    meter_init(&meter, 0, &callbacks);
    meter_limit(&meter, 1000000, METER_NONE);
    for (int i = 0; i < 10000; i++, time_us += 200) passed += meter_datagram(&meter, METER_IN, 1400) == 0 ? 1400 : 0;
    assert_true(passed > 1900000 && passed < 2100000);
}

static void test_messages_go_first(void **state) {
    (void)state;
    struct meter meter;
    struct reader reader;
    meter_init(&meter, 0, &callbacks);
    meter_limit(&meter, 10000, METER_NONE);
    reader_init(&reader, &meter, METER_OUT, UINT64_MAX / 2, 65536);
    reader_read(&reader);
    assert_true(meter_turn_waits(&reader.turn));
    int passed = 0;
    while (meter_message(&meter, 100) == 0) passed++;
    assert_true(passed >= 40 && passed < 60); // one burst of debt
    assert_int_equal(meter_message(&meter, 100), -EAGAIN);
    time_us += 2000000;
    assert_int_equal(meter_message(&meter, 100), 0);
    meter_leave(&meter, METER_OUT, &reader.turn);
}

static void test_budget(void **state) {
    (void)state;
    struct meter meter;
    struct reader reader;
    meter_init(&meter, 900000, &callbacks);
    meter_limit(&meter, 0, 1000000);
    reader_init(&reader, &meter, METER_OUT, 200000, 3000);
    reader_read(&reader);
    assert_true(reader.error == -EDQUOT && reader.got == 100000 && meter_is_spent(&meter));
    assert_true(told == 1000000); // and no more, since there is no more
    assert_int_equal(meter_datagram(&meter, METER_OUT, 1), -EDQUOT);
    assert_int_equal(meter_message(&meter, 1), -EDQUOT);
    assert_int_equal(meter_datagram(&meter, METER_IN, 1), 0);
    meter_limit(&meter, 0, 1000010); // raised while it runs
    assert_false(meter_is_spent(&meter));
    assert_int_equal(meter_datagram(&meter, METER_OUT, 11), -EDQUOT);
    assert_int_equal(meter_datagram(&meter, METER_OUT, 10), 0);
    meter_limit(&meter, 0, METER_NONE);
    assert_false(meter_is_spent(&meter));
}

// Under a budget no byte is taken that was not told of before; whoever does not listen is told later.
static void test_told_in_advance(void **state) {
    (void)state;
    struct meter meter;
    struct reader reader;
    meter_init(&meter, 0, &callbacks);
    meter_limit(&meter, 0, 100000000);
    told = 0;
    reader_init(&reader, &meter, METER_OUT, 10000000, 1000);
    deaf = true;
    reader_read(&reader);
    assert_true(reader.got == 0 && meter_turn_waits(&reader.turn) && wake_at > 0);
    assert_int_equal(meter_datagram(&meter, METER_OUT, 1), -EAGAIN);
    deaf = false;
    serve_for(&meter, 100000);
    assert_true(reader.got == 10000000 && reader.left == 0);
    assert_true(told >= reader.got && told < reader.got + 100000000 / METER_RESERVE_PART + 1);
}

// A budget that comes later is not used up by what was reserved without one.
static void test_budget_comes_later(void **state) {
    (void)state;
    struct meter meter;
    meter_init(&meter, 0, &callbacks);
    meter_take(&meter, METER_OUT, 1000);
    assert_true(told == 1000 + METER_RESERVE_MOST);
    meter_limit(&meter, 0, 1000000);
    assert_true(told >= 1000 && told <= 1000 + 1000000 / METER_RESERVE_PART + 1);
    assert_int_equal(meter_datagram(&meter, METER_OUT, 20000), 0);
    assert_true(told >= 21000);
}

// What a resumed reader does to others, and to itself, is no matter.
static struct reader *victim;

static void remover_resume(struct meter_turn *turn) {
    struct reader *reader = LIST_ENTRY(turn, struct reader, turn);
    meter_leave(reader->meter, METER_IN, &victim->turn);
    meter_leave(reader->meter, METER_IN, turn);
    free(victim);
    free(reader);
}

static void test_turns_end_in_turns(void **state) {
    (void)state;
    struct meter meter;
    struct reader last;
    meter_init(&meter, 0, &callbacks);
    meter_limit(&meter, 100000, METER_NONE);
    struct reader *remover = malloc(sizeof(*remover));
    victim = malloc(sizeof(*victim));
    assert_true(remover && victim);
    reader_init(&last, &meter, METER_IN, 1000000, 1000000);
    reader_read(&last);
    reader_init(remover, &meter, METER_IN, 1000, 1000);
    reader_init(victim, &meter, METER_IN, 1000, 1000);
    reader_read(remover);
    reader_read(victim);
    assert_int_equal(meter.paths[METER_IN].count, 3);
    remover->turn.resume = remover_resume;
    serve_for(&meter, 50000);
    assert_int_equal(meter.paths[METER_IN].count, 1);
    serve_for(&meter, 1000000);
    assert_true(last.got > 90000);
    meter_limit(&meter, 0, METER_NONE); // nobody waits without a limit
    serve_for(&meter, 0);
    assert_true(last.left == 0);
}

static void test_buckets(void **state) {
    (void)state;
    struct meter_bucket bucket = {0};
    meter_bucket_set(&bucket, 3, 3, time_us);
    assert_int_equal(bucket.level, 3);
    bucket.level = 0;
    for (int i = 0; i < 3000; i++) { // in steps that are no whole number of things
        time_us += 1000;
        meter_bucket_fill(&bucket, time_us);
        if (bucket.level == 3) bucket.level = 0;
    }
    assert_true(bucket.level == 0 || bucket.level == 2);
    bucket.level = -1000000000;
    time_us += UINT64_C(1000000) * 86400 * 365 * 100;
    meter_bucket_fill(&bucket, time_us);
    assert_int_equal(bucket.level, 3);
    meter_bucket_set(&bucket, UINT64_MAX, INT64_MAX / 2, time_us);
    time_us += UINT64_MAX / 4;
    meter_bucket_fill(&bucket, time_us);
    assert_true(bucket.level >= 3 && bucket.level <= bucket.size);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_is_limited), cmocka_unit_test(test_rates), cmocka_unit_test(test_ways_are_apart),
        cmocka_unit_test(test_datagrams_and_readers), cmocka_unit_test(test_datagrams_alone),
        cmocka_unit_test(test_messages_go_first), cmocka_unit_test(test_budget), cmocka_unit_test(test_told_in_advance),
        cmocka_unit_test(test_budget_comes_later), cmocka_unit_test(test_turns_end_in_turns), cmocka_unit_test(test_buckets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
