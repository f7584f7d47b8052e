// SPDX-License-Identifier: Apache-2.0
// `penstock self-test`: what is put on the host for it, the sandboxes that it starts, what it reports.
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "daemon/canary.h"
#include "daemon/daemon.h"
#include "daemon/probe.h"

#define SELF_TEST_TARGETS 32

enum self_test_state { SELF_TEST_NOT_RUN, SELF_TEST_PASS, SELF_TEST_FAIL };

struct self_test_outcome {
    enum self_test_state state;
    uint64_t slowest_us;
    char detail[256];
};

struct self_test {
    const struct daemon_self_test *options;
    struct canary canary;
    char nonce[32], secret[64];
    char folder[PATH_MAX - 64]; // holds project, outside and more; ours alone
    char project[PATH_MAX], outside[PATH_MAX], program[PATH_MAX], home[PATH_MAX], secret_file[PATH_MAX], shared[64];
    int memory;                         // System V segment, or -1
    char *targets[SELF_TEST_TARGETS + 1];
    size_t target_count;
    int terminal;                       // the master's side
    char terminal_name[64];
    struct self_test_outcome *outcomes; // one a case
    const char *group;                  // printed last
    bool plain;                         // sandboxes are without nft here: none with an open base can be built
    uint64_t deadline_us;
};

// ---- self_test_fixture.c ----
// Everything on the host. 0, or a negative errno with a message; fixture_remove in any case.
int self_test_fixture_make(struct self_test *test, struct error *err);
void self_test_fixture_remove(struct self_test *test);
// After the servers are there: what the attempts aim at.
int self_test_fixture_targets(struct self_test *test, pid_t decoy, struct error *err);
void self_test_fixture_set(struct self_test *test, const char *name, const char *value);

// ---- self_test_spawn.c ----
struct self_test_child {
    pid_t pid;
    int out; // its standard output
};
#define SELF_TEST_ARGUMENTS 96
// This program with arguments (NULL-terminated, without argv[0]) in the project folder, with what must not leak: a secret's
// descriptor, and the ways to services of the host. on_terminal: standard input is the test's terminal. secret: in its
// environment.
int self_test_spawn(struct self_test *test, char *const *arguments, bool on_terminal, bool secret,
                    struct self_test_child *ret_child, struct error *err);
// Waits for the line "ready". 0, or -EIO with the child's own words.
int self_test_spawn_ready(struct self_test *test, struct self_test_child *child, struct error *err);
void self_test_spawn_stop(struct self_test_child *child);
// Whether sandboxes are without nft here, by trying.
bool self_test_spawn_plain(void);
// What the children wrote to standard error, last line.
void self_test_spawn_words(const struct self_test *test, char *ret_text, size_t size);
// A process in the network namespace of the sandbox that this child runs, or 0.
pid_t self_test_spawn_inside(const struct self_test_child *child);

// ---- self_test_report.c ----
void self_test_report_case(struct self_test *test, size_t number);
// All that is left, and the sums. The exit status.
int self_test_report_end(struct self_test *test);
