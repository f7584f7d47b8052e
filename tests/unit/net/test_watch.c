// SPDX-License-Identifier: Apache-2.0
// Watches: level-triggered, paused, stopped by themselves and by others of the same turn.
#include <errno.h>
#include <event2/event.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/socket.h>

#include <cmocka.h>

#include "base/mem.h"
#include "net/net.h"

#define COUNT 8

struct thing {
    struct watch watch;
    int ends[2];
    unsigned calls;
};

static struct event_base *base;
static struct watcher *watcher;
static struct thing *things[COUNT];
static unsigned calls;

static void turn(void) { event_base_loop(base, EVLOOP_ONCE | EVLOOP_NONBLOCK); } // once, whatever still waits

static void thing_ready(int fd, void *data) {
    struct thing *thing = data;
    assert_int_equal(fd, thing->ends[0]);
    thing->calls++;
    calls++;
}

static void thing_free(struct thing *thing) {
    if (!thing) return;
    watch_stop(&thing->watch);
    for (int end = 0; end < 2; end++) close(thing->ends[end]);
    free(thing);
}

static int setup(void **state) {
    (void)state;
    calls = 0;
    base = event_base_new();
    if (watcher_new(base, &watcher) < 0) return -1;
    for (size_t i = 0; i < COUNT; i++) {
        things[i] = NEW(struct thing);
        if (!things[i] || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, things[i]->ends) < 0) return -1;
        assert_false(watch_started(&things[i]->watch));
    }
    return 0;
}

static int teardown(void **state) {
    (void)state;
    for (size_t i = 0; i < COUNT; i++) thing_free(TAKE_POINTER(things[i]));
    watcher_free(watcher);
    event_base_free(base);
    return 0;
}

static void start(struct thing *thing, watch_ready *ready) {
    assert_int_equal(watch_start(watcher, &thing->watch, thing->ends[0], ready, thing), 0);
    assert_true(watch_started(&thing->watch));
}

static void test_level(void **state) {
    struct thing *thing = things[0];
    char byte;
    (void)state;
    start(thing, thing_ready);
    turn();
    assert_int_equal(thing->calls, 0);
    assert_int_equal(write(thing->ends[1], "x", 1), 1);
    turn();
    turn();
    assert_int_equal(thing->calls, 2); // it has not read
    watch_pause(&thing->watch);
    watch_pause(&thing->watch);
    assert_true(watch_started(&thing->watch));
    turn();
    assert_int_equal(thing->calls, 2);
    assert_int_equal(watch_resume(&thing->watch), 0);
    assert_int_equal(watch_resume(&thing->watch), 0);
    turn();
    assert_int_equal(thing->calls, 3);
    assert_int_equal(read(thing->ends[0], &byte, 1), 1);
    turn();
    assert_int_equal(thing->calls, 3);
    assert_int_equal(shutdown(thing->ends[1], SHUT_WR), 0);
    turn();
    assert_int_equal(thing->calls, 4); // the end
    watch_stop(&thing->watch);
    watch_stop(&thing->watch);
    assert_false(watch_started(&thing->watch));
    turn();
    assert_int_equal(thing->calls, 4);
}

static void ends_all(int fd, void *data) {
    thing_ready(fd, data);
    for (size_t i = 0; i < COUNT; i++) thing_free(TAKE_POINTER(things[i]));
}

// All of one turn are told of; the first ends them all, and itself.
static void test_ends_others(void **state) {
    (void)state;
    for (size_t i = 0; i < COUNT; i++) {
        start(things[i], ends_all);
        assert_int_equal(write(things[i]->ends[1], "x", 1), 1);
    }
    turn();
    turn();
    assert_int_equal(calls, 1);
}

static void pauses_all(int fd, void *data) {
    thing_ready(fd, data);
    for (size_t i = 0; i < COUNT; i++) watch_pause(&things[i]->watch);
    start(data, thing_ready);
}

// What is stopped and started again in its own callback is as new; the others stay paused.
static void test_starts_again(void **state) {
    (void)state;
    for (size_t i = 0; i < COUNT; i++) {
        start(things[i], pauses_all);
        assert_int_equal(write(things[i]->ends[1], "x", 1), 1);
    }
    turn();
    assert_int_equal(calls, 1);
    turn();
    assert_int_equal(calls, 2);
    unsigned most = 0;
    for (size_t i = 0; i < COUNT; i++)
        if (things[i]->calls > most) most = things[i]->calls;
    assert_int_equal(most, 2);
}

static void test_no_descriptor(void **state) {
    struct watch watch = {0};
    (void)state;
    assert_int_equal(watch_start(watcher, &watch, -1, thing_ready, NULL), -EBADF);
    assert_false(watch_started(&watch));
    watch_stop(&watch);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_level, setup, teardown),
        cmocka_unit_test_setup_teardown(test_ends_others, setup, teardown),
        cmocka_unit_test_setup_teardown(test_starts_again, setup, teardown),
        cmocka_unit_test_setup_teardown(test_no_descriptor, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
