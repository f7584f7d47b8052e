// SPDX-License-Identifier: Apache-2.0
// A process that is killed (SIGKILL) at each step of each transaction: opened again, the store is consistent, what was said
// to be done is there, and what was being done has happened or has not.
#include "fixture.h"

#include <errno.h>
#include <signal.h>
#include <sys/wait.h>

#define STEPS_MAX 200

static void die_at(void *data) {
    int *left = data;
    if ((*left)-- == 0) kill(getpid(), SIGKILL);
}

static void say(int pipe, char what) {
    if (write(pipe, &what, 1) != 1) _exit(3);
}

#define DO(call) \
    if ((call) < 0) _exit(2)

// A life, telling after each call that it was done.
static void live(const char *path, int steps, int pipe) {
    struct error err = {0};
    struct store *store;
    uint64_t generation;
    struct store_sandbox sandbox = fixture_sandbox("ia");
    struct store_template template = {.id = (char *)(uintptr_t) "t1", .created_us = 1};
    struct store_build build = {.id = (char *)(uintptr_t) "b1", .template_id = template.id, .created_us = 1};
    DO(store_open(path, &store, &err));
    store_on_step(store, die_at, &steps);
    DO(store_sandbox_insert(store, &sandbox, &err));
    say(pipe, 'i');
    DO(store_sandbox_set_state(store, "ia", STORE_RUNNING, &err));
    say(pipe, 'r');
    DO(store_policy_stage(store, "ia", "second", POLICY_DIALECT_NATIVE, &generation, &err));
    say(pipe, 's');
    DO(store_policy_activate(store, "ia", generation, &err));
    say(pipe, 'a');
    DO(store_template_insert(store, &template, &err));
    say(pipe, 't');
    DO(store_build_insert(store, &build, &err));
    DO(store_build_start(store, "b1", &err));
    say(pipe, 'b');
    DO(store_build_finish(store, "b1", "[\"l\"]", "{}", 1, &err));
    say(pipe, 'f');
    DO(store_sandbox_remove(store, "ia", &err));
    say(pipe, 'x');
    store_on_step(store, NULL, NULL);
    store_close(store);
}

static void check_sandbox(struct store *store, const char *done) {
    struct error err = {0};
    struct store_sandbox read;
    char *staged = NULL;
    enum policy_dialect dialect;
    uint64_t generation;
    int r = store_sandbox_get(store, "ia", &read, &err);
    if (strchr(done, 'x')) assert_int_equal(r, -ENOENT);
    if (r == -ENOENT) {
        assert_true(!strchr(done, 'i') || strchr(done, 'f')); // never made, or being removed
        return;
    }
    assert_int_equal(r, 0);
    assert_non_null(read.policy); // whole: the row and its policy are one
    assert_int_equal(read.dialect, read.generation == 1 ? POLICY_DIALECT_E2B : POLICY_DIALECT_NATIVE);
    assert_string_equal(read.policy, read.generation == 1 ? "{\"network\":{}}" : "second");
    if (strchr(done, 'r')) assert_int_equal(read.state, STORE_RUNNING);
    if (strchr(done, 'a')) assert_int_equal(read.generation, 2);
    r = store_policy_staged(store, "ia", &staged, &dialect, &generation, &err);
    if (strchr(done, 's') && read.generation == 1) assert_int_equal(r, 0);
    if (r == 0) assert_string_equal(staged, "second");
    if (read.generation == 2) assert_int_equal(r, -ENOENT);
    if (r == 0) free(staged);
    store_sandbox_done(&read);
}

static void check_template(struct store *store, const char *done) {
    struct error err = {0};
    struct store_template template;
    struct store_build build;
    int r = store_template_get(store, "t1", &template, &err);
    if (strchr(done, 't')) assert_int_equal(r, 0);
    if (r < 0) return;
    r = store_build_get(store, "t1", "b1", &build, &err);
    if (strchr(done, 'b')) assert_int_equal(r, 0);
    bool ready = r == 0 && build.status == STORE_BUILD_READY;
    if (strchr(done, 'f')) assert_true(ready);
    assert_int_equal(ready, template.layers != NULL); // in one step
    if (r == 0) store_build_done(&build);
    store_template_done(&template);
}

static void test_killed(void **state) {
    (void)state;
    int finished = 0, steps = 0;
    for (; steps < STEPS_MAX && !finished; steps++) {
        struct fixture fixture;
        int pipes[2], status;
        char done[16] = "";
        fixture_init(&fixture);
        store_close(fixture.store);
        fixture.store = NULL;
        assert_int_equal(pipe(pipes), 0);
        pid_t child = fork();
        if (child == 0) {
            live(fixture.path, steps, pipes[1]);
            _exit(0);
        }
        close(pipes[1]);
        assert_int_equal(waitpid(child, &status, 0), child);
        ssize_t len = read(pipes[0], done, sizeof(done) - 1);
        assert_true(len >= 0);
        close(pipes[0]);
        finished = WIFEXITED(status) && WEXITSTATUS(status) == 0;
        assert_true(finished || (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL));
        fixture_open(&fixture);
        check_sandbox(fixture.store, done);
        check_template(fixture.store, done);
        if (finished) assert_string_equal(done, "irsatbfx");
        fixture_done(&fixture);
    }
    assert_true(finished);
    assert_true(steps > 40); // the hook was called
}

// The first opening itself, many times at any moment.
static void test_killed_while_opened(void **state) {
    (void)state;
    for (int i = 0; i < 20; i++) {
        struct fixture fixture;
        fixture_init(&fixture);
        store_close(fixture.store);
        fixture.store = NULL;
        unlink(fixture.path);
        pid_t child = fork();
        if (child == 0) {
            struct error err = {0};
            struct store *store;
            DO(store_open(fixture.path, &store, &err));
            pause();
        }
        usleep((useconds_t)i * 700);
        kill(child, SIGKILL);
        assert_int_equal(waitpid(child, NULL, 0), child);
        fixture_open(&fixture);
        struct error err = {0};
        struct store_sandbox sandbox = fixture_sandbox("ia");
        ASSERT_OK(store_sandbox_insert(fixture.store, &sandbox, &err));
        fixture_done(&fixture);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_killed), cmocka_unit_test(test_killed_while_opened)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
