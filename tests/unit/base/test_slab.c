// SPDX-License-Identifier: Apache-2.0
// Things of one size; the source is included, to see its blocks.
#include "base/slab.c"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define COUNT (10 * SLAB_BLOCK + 1)

struct thing {
    uint64_t words[5];
};

static size_t blocks(const struct slab *slab) {
    size_t count = 0;
    LIST_FOREACH(&slab->blocks, node) count++;
    return count;
}

static struct thing *take(struct slab *slab, uint64_t mark) {
    static const struct thing none;
    struct thing *thing = slab_take(slab);
    assert_non_null(thing);
    assert_int_equal((uintptr_t)thing % _Alignof(struct thing), 0);
    assert_memory_equal(thing, &none, sizeof(none));
    for (size_t i = 0; i < ARRAY_LENGTH(thing->words); i++) thing->words[i] = mark;
    return thing;
}

static void give(struct slab *slab, struct thing *thing, uint64_t mark) {
    for (size_t i = 0; i < ARRAY_LENGTH(thing->words); i++) assert_int_equal(thing->words[i], mark);
    slab_give(slab, thing);
}

// All zero whatever was there, none in the place of another, in whatever order they come and go.
static void test_order(void **state) {
    static const size_t steps[] = {1, 7, 5}; // of the order in which they go; none is a factor of COUNT
    static struct thing *things[COUNT];
    struct slab slab;
    (void)state;
    slab_init(&slab, sizeof(struct thing));
    for (size_t round = 0; round < ARRAY_LENGTH(steps); round++) {
        for (size_t i = 0; i < COUNT; i++) things[i] = take(&slab, i);
        for (size_t i = 0; i < COUNT; i += 2) {
            give(&slab, things[i], i);
            things[i] = take(&slab, i);
        }
        for (size_t i = 0, at = 0; i < COUNT; i++, at = (at + steps[round]) % COUNT) give(&slab, things[at], at);
        assert_int_equal(blocks(&slab), SLAB_BLOCK > 1); // one is kept
    }
    slab_done(&slab);
    assert_int_equal(blocks(&slab), 0);
}

// Cells are used again before there is another block.
static void test_reuse(void **state) {
    struct thing *things[2 * SLAB_BLOCK];
    struct slab slab;
    (void)state;
    slab_init(&slab, sizeof(struct thing));
    for (size_t i = 0; i < ARRAY_LENGTH(things); i++) things[i] = take(&slab, i);
    assert_int_equal(blocks(&slab), 0); // full
    give(&slab, things[0], 0);
    assert_int_equal(blocks(&slab), SLAB_BLOCK > 1);
    things[0] = take(&slab, 0);
    assert_int_equal(blocks(&slab), 0);
    for (size_t i = 0; i < ARRAY_LENGTH(things); i++) give(&slab, things[i], i);
    slab_give(&slab, NULL);
    slab_done(&slab);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_order), cmocka_unit_test(test_reuse)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
