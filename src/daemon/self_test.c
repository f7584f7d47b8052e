// SPDX-License-Identifier: Apache-2.0
// `penstock self-test`: escapes from real sandboxes on this machine.
//
// The test puts servers and secrets on the host (canary.c, self_test_fixture.c), starts sandboxes with `penstock run`, and
// in them a copy of this program that makes the attempts (probe.c, probe_table.c). An attempt passes if the sandbox saw a
// refusal in time *and* the host saw nothing. Attempts are made one by one, each waiting for our word, so that what a
// server sees belongs to the attempt of that moment.
//
// A test that cannot fail is worth nothing: with `direct` the same attempts are made without a sandbox.
#include "daemon/self_test.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/number.h"

#define TOTAL_US UINT64_C(58000000)
#define SLOW_US UINT64_C(2000000) // a refusal that takes longer is none
#define TICK_MS 5

static volatile sig_atomic_t interrupted;
static void interrupt(int number) { interrupted = number; }

// ---- what an attempt gave ----

static void judge(struct self_test *test, size_t number, enum probe_result result, uint64_t slowest_us, const char *detail) {
    struct self_test_outcome *outcome = &test->outcomes[number];
    char path[PROBE_TEXT_SIZE];
    const struct probe probe = {.targets = test->targets};
    const char *forbidden = probe_cases[number].forbidden;
    outcome->state = SELF_TEST_FAIL;
    outcome->slowest_us = slowest_us;
    canary_serve(&test->canary);
    if (test->canary.contact[0]) {
        snprintf(outcome->detail, sizeof(outcome->detail), "%s", test->canary.contact);
    } else if (forbidden && unlink(probe_expand(&probe, forbidden, path)) == 0) {
        snprintf(outcome->detail, sizeof(outcome->detail), "%.200s was made on the host", path);
    } else if (result == PROBE_HELD && slowest_us > SLOW_US) {
        snprintf(outcome->detail, sizeof(outcome->detail), "refused only after %llu ms", (unsigned long long)slowest_us / 1000);
    } else if (result == PROBE_HELD) {
        outcome->state = SELF_TEST_PASS;
    } else {
        snprintf(outcome->detail, sizeof(outcome->detail), "%s", detail[0] ? detail : "no answer");
    }
    test->canary.contact[0] = '\0';
    self_test_report_case(test, number);
}

// "end NUMBER RESULT US DETAIL". False if it is not that; nobody but our own program writes here.
static bool take_end(struct self_test *test, const char *line) {
    uint64_t values[3];
    const uint64_t limits[3] = {probe_case_count - 1, PROBE_RESULT_COUNT - 1, UINT64_MAX};
    line += 4;
    for (size_t i = 0; i < 3; i++) {
        size_t len = strcspn(line, " ");
        if (number_parse(line, len, 0, limits[i], &values[i]) < 0 || line[len] != ' ') return false;
        line += len + 1;
    }
    judge(test, values[0], (enum probe_result)values[1], values[2], line);
    return true;
}

static void take_lines(struct self_test *test, struct buf *text) {
    char *end;
    while (text->len > 0 && (end = memchr(text->data, '\n', text->len))) {
        *end = '\0';
        if (strncmp(text->data, "end ", 4) == 0 && take_end(test, text->data)) (void)!write(test->terminal, "\n", 1);
        buf_consume(text, (size_t)(end - text->data) + 1);
    }
}

static bool failed(const struct self_test *test) {
    for (size_t i = 0; i < probe_case_count; i++)
        if (test->outcomes[i].state == SELF_TEST_FAIL) return true;
    return false;
}

static bool over(const struct self_test *test) {
    return interrupted || clock_us() > test->deadline_us || (failed(test) && !test->options->keep_going);
}

// Serves and listens until the child's attempts are made.
static void attend(struct self_test *test, const struct self_test_child *child) {
    struct buf text = BUF_INIT;
    char chunk[4096];
    while (!over(test)) {
        struct pollfd wait = {.fd = child->out, .events = POLLIN};
        int ready = poll(&wait, 1, TICK_MS);
        canary_serve(&test->canary);
        if (ready <= 0) continue;
        ssize_t got = read(child->out, chunk, sizeof(chunk));
        if (got <= 0) break;
        buf_append(&text, chunk, (size_t)got);
        take_lines(test, &text);
    }
    buf_done(&text);
}

// Cases that a place did not get to.
static void fail_rest(struct self_test *test, enum probe_place place, const char *why) {
    for (size_t i = 0; i < probe_case_count && !over(test); i++) {
        if (probe_cases[i].place != place || test->outcomes[i].state != SELF_TEST_NOT_RUN) continue;
        test->outcomes[i].state = SELF_TEST_FAIL;
        snprintf(test->outcomes[i].detail, sizeof(test->outcomes[i].detail), "not made: %.200s", why);
        self_test_report_case(test, i);
    }
}

// ---- places ----

static size_t put_probe(struct self_test *test, char **arguments, size_t count, enum probe_place place) {
    arguments[count++] = "@probe";
    arguments[count++] = (char *)(uintptr_t)probe_place_name(place); // execv takes char *const *, and changes nothing
    for (size_t i = 0; i < test->target_count && count < SELF_TEST_ARGUMENTS - 1; i++) arguments[count++] = test->targets[i];
    arguments[count] = NULL;
    return count;
}

static size_t put_run(struct self_test *test, char **arguments, char *const *policy) {
    size_t count = 0;
    if (test->options->direct) return 0;
    arguments[count++] = "run";
    arguments[count++] = "--quiet";
    for (size_t i = 0; policy[i]; i++) arguments[count++] = policy[i];
    arguments[count++] = "--";
    arguments[count++] = test->program;
    return count;
}

static void run_place(struct self_test *test, enum probe_place place, char *const *policy) {
    char *arguments[SELF_TEST_ARGUMENTS], words[512];
    struct self_test_child child;
    struct error err = {0};
    size_t count = policy ? put_run(test, arguments, policy) : 0;
    if (over(test)) return;
    put_probe(test, arguments, count, place);
    if (self_test_spawn(test, arguments, true, false, &child, &err) == 0) {
        attend(test, &child);
        self_test_spawn_stop(&child);
    }
    self_test_spawn_words(test, words, sizeof(words));
    fail_rest(test, place, err.text[0] ? err.text : words[0] ? words : "the sandbox ended before");
}

static void run_names(struct self_test *test) {
    char port[80], server[32];
    snprintf(port, sizeof(port), "%s:%u", test->canary.allowed, test->canary.port);
    snprintf(server, sizeof(server), "127.0.0.1:%u", test->canary.dns_port);
    char *allowed = (char *)(uintptr_t)test->canary.allowed;
    char *const policy[] = {"--allow", allowed, "--allow", port, "--dns", server, NULL};
    run_place(test, PROBE_NAMES, policy);
}

// The intruder is a process of the host that enters a sandbox which does nothing.
static void run_intruder(struct self_test *test) {
    char *const policy[] = {"--network", test->plain ? "none" : "all", NULL};
    char *arguments[SELF_TEST_ARGUMENTS], pid[16];
    struct self_test_child child = {0};
    struct error err = {0};
    if (over(test)) return;
    if (!test->options->direct) {
        size_t count = put_run(test, arguments, policy);
        arguments[count++] = "@probe";
        arguments[count++] = "wait";
        arguments[count] = NULL;
        int rc = self_test_spawn(test, arguments, false, false, &child, &err);
        if (rc == 0) rc = self_test_spawn_ready(test, &child, &err);
        snprintf(pid, sizeof(pid), "%d", rc == 0 ? (int)self_test_spawn_inside(&child) : 0);
        if (rc < 0) fail_rest(test, PROBE_INTRUDER, err.text);
        self_test_fixture_set(test, "intruded", pid);
    }
    run_place(test, PROBE_INTRUDER, NULL);
    self_test_spawn_stop(&child);
}

static void run_all(struct self_test *test) {
    char *const none[] = {"--network", "none", NULL}, *const all[] = {"--network", "all", NULL};
    run_place(test, PROBE_NONE, none);
    if (!test->plain) run_place(test, PROBE_ALL, all);
    run_names(test);
    run_intruder(test);
}

// ---- the whole ----

static int start_decoy(struct self_test *test, struct self_test_child *decoy, struct error *err) {
    char *arguments[] = {"@probe", "decoy", NULL};
    int rc = self_test_spawn(test, arguments, false, true, decoy, err);
    return rc < 0 ? rc : self_test_spawn_ready(test, decoy, err);
}

static int start_neighbour(struct self_test *test, struct self_test_child *neighbour, struct error *err) {
    char *arguments[SELF_TEST_ARGUMENTS] = {"run", "--quiet", "--network", "none", "--", test->program, "@probe", "neighbour",
                                            "neighbour=61234"};
    int rc = self_test_spawn(test, arguments, false, false, neighbour, err);
    return rc < 0 ? rc : self_test_spawn_ready(test, neighbour, err);
}

static int prepare(struct self_test *test, struct self_test_child *decoy, struct self_test_child *neighbour, struct error *err) {
    char inside[PATH_MAX], outside[PATH_MAX];
    int rc = self_test_fixture_make(test, err);
    if (rc < 0) return rc;
    snprintf(inside, sizeof(inside), "%.4000s/socket", test->project);
    snprintf(outside, sizeof(outside), "%.4000s/socket", test->outside);
    rc = canary_start(&test->canary, test->nonce, inside, outside, err);
    if (rc == 0) rc = start_decoy(test, decoy, err);
    if (rc == 0) rc = start_neighbour(test, neighbour, err);
    if (rc == 0) canary_watch(&test->canary, decoy->pid);
    return rc < 0 ? rc : self_test_fixture_targets(test, decoy->pid, err);
}

int daemon_self_test(const struct daemon_self_test *options) {
    struct self_test test = {.options = options, .deadline_us = clock_us() + TOTAL_US};
    struct self_test_child decoy = {0}, neighbour = {0};
    struct error err = {0};
    struct sigaction action = {.sa_handler = interrupt}, ignore = {.sa_handler = SIG_IGN};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGPIPE, &ignore, NULL);
    test.outcomes = NEW_ARRAY(struct self_test_outcome, probe_case_count);
    test.plain = !options->direct && self_test_spawn_plain();
    int rc = test.outcomes ? prepare(&test, &decoy, &neighbour, &err) : error_set(&err, -ENOMEM, "out of memory");
    if (rc == 0) run_all(&test);
    self_test_spawn_stop(&neighbour);
    test.canary.decoy = 0; // stopped below
    self_test_spawn_stop(&decoy);
    canary_stop(&test.canary);
    int status = 1;
    if (rc < 0) fprintf(stderr, "penstock: %s\n", err.text);
    else status = self_test_report_end(&test);
    self_test_fixture_remove(&test);
    free(test.outcomes);
    return status;
}
