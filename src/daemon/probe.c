// SPDX-License-Identifier: Apache-2.0
// Runs the cases of one place. Each attempt is a child with a deadline, so that one which hangs, crashes or is killed by
// the kernel is one result and not the end of the test. What happened on the host's side is seen by the parent test.
#include "daemon/probe.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/number.h"

#define PROBE_DEADLINE_MS 6000

static const char *const place_names[] = {
    [PROBE_NONE] = "none", [PROBE_ALL] = "all", [PROBE_NAMES] = "names", [PROBE_INTRUDER] = "intruder"};
static_assert(ARRAY_LENGTH(place_names) == PROBE_PLACE_COUNT, "one name a place");

const char *probe_place_name(enum probe_place place) { return place_names[place]; }

// ---- for attempts ----

static const char *find_target(const struct probe *probe, const char *name, size_t len) {
    for (size_t i = 0; probe->targets[i]; i++)
        if (strncmp(probe->targets[i], name, len) == 0 && probe->targets[i][len] == '=') return probe->targets[i] + len + 1;
    return "";
}

const char *probe_target(const struct probe *probe, const char *name) { return find_target(probe, name, strlen(name)); }

const char *probe_expand(const struct probe *probe, const char *text, char buf[PROBE_TEXT_SIZE]) {
    size_t used = 0;
    buf[0] = '\0';
    while (*text && used + 1 < PROBE_TEXT_SIZE) {
        size_t len = *text == '{' ? strcspn(text, "}") : 0;
        if (len > 0 && text[len] == '}') {
            int put = snprintf(buf + used, PROBE_TEXT_SIZE - used, "%s", find_target(probe, text + 1, len - 1));
            used += (size_t)put < PROBE_TEXT_SIZE - used ? (size_t)put : PROBE_TEXT_SIZE - used - 1;
            text += len + 1;
        } else {
            buf[used++] = *text++;
            buf[used] = '\0';
        }
    }
    return buf;
}

static socklen_t parse_address(char *host, uint16_t port, struct sockaddr_storage *ret_address) {
    struct sockaddr_in *v4 = (struct sockaddr_in *)ret_address;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)ret_address;
    char *zone = strchr(host, '%');
    if (zone) *zone++ = '\0';
    *ret_address = (struct sockaddr_storage){0};
    if (inet_pton(AF_INET, host, &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        v4->sin_port = htons(port);
        return sizeof(*v4);
    }
    if (inet_pton(AF_INET6, host, &v6->sin6_addr) != 1) return 0;
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(port);
    v6->sin6_scope_id = zone ? if_nametoindex(zone) : 0;
    return sizeof(*v6);
}

socklen_t probe_sockaddr(const char *text, struct sockaddr_storage *ret_address, const char **ret_rest) {
    char host[128];
    uint64_t port;
    size_t len = strcspn(text, " ");
    if (len >= sizeof(host) || text[len] == '\0') return 0;
    memcpy(host, text, len);
    host[len] = '\0';
    text += len + 1;
    len = strcspn(text, " ");
    if (number_parse(text, len, 0, 65535, &port) < 0) return 0;
    *ret_rest = text + len + (text[len] == ' ');
    return parse_address(host, (uint16_t)port, ret_address);
}

enum probe_result probe_say(struct probe *probe, enum probe_result result, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(probe->detail, sizeof(probe->detail), format, args);
    va_end(args);
    return result;
}

enum probe_result probe_refused(struct probe *probe, long value, const char *what) {
    return value >= 0 ? probe_say(probe, PROBE_ESCAPED, "%s worked", what) : PROBE_HELD;
}

void probe_took(struct probe *probe, uint64_t since_us) {
    uint64_t took = clock_us() - since_us;
    if (took > probe->slowest_us) probe->slowest_us = took;
}

// ---- one attempt, in a child ----

struct outcome {
    enum probe_result result;
    uint64_t slowest_us;
    char detail[PROBE_DETAIL_SIZE];
};

static void attempt_in_child(const struct probe_case *row, char *const *targets, int answer) {
    struct probe probe = {.targets = targets};
    struct outcome outcome = {0};
    char argument[PROBE_TEXT_SIZE];
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    probe_expand(&probe, row->argument ? row->argument : "", argument);
    outcome.result = row->attempt(&probe, argument);
    outcome.slowest_us = probe.slowest_us;
    memcpy(outcome.detail, probe.detail, sizeof(outcome.detail));
    _exit(write(answer, &outcome, sizeof(outcome)) != (ssize_t)sizeof(outcome));
}

static void outcome_of_end(struct outcome *outcome, const struct probe_case *row, int status) {
    bool killed = WIFSIGNALED(status);
    bool refused = killed && row->may_die && (WTERMSIG(status) == SIGSYS || WTERMSIG(status) == SIGSEGV);
    outcome->result = refused ? PROBE_HELD : PROBE_BROKEN;
    if (killed) snprintf(outcome->detail, sizeof(outcome->detail), "ended by signal %d", WTERMSIG(status));
    else snprintf(outcome->detail, sizeof(outcome->detail), "the attempt ended without an answer");
}

static void run_case(const struct probe_case *row, char *const *targets, struct outcome *outcome) {
    int answer[2], status = 0;
    *outcome = (struct outcome){.result = PROBE_BROKEN};
    if (pipe2(answer, O_CLOEXEC) < 0) return;
    pid_t pid = fork();
    if (pid == 0) attempt_in_child(row, targets, answer[1]);
    close(answer[1]);
    struct pollfd wait = {.fd = answer[0], .events = POLLIN};
    int ready = pid < 0 ? -1 : poll(&wait, 1, PROBE_DEADLINE_MS);
    bool answered = ready > 0 && read(answer[0], outcome, sizeof(*outcome)) == (ssize_t)sizeof(*outcome);
    close(answer[0]);
    if (pid < 0) return;
    if (ready == 0) kill(pid, SIGKILL);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
    if (ready == 0) {
        outcome->result = PROBE_HUNG;
        snprintf(outcome->detail, sizeof(outcome->detail), "neither refused nor done after %d ms", PROBE_DEADLINE_MS);
    } else if (!answered) {
        outcome_of_end(outcome, row, status);
    }
}

static int run_place(enum probe_place place, char *const *targets) {
    for (size_t i = 0; i < probe_case_count; i++) {
        struct outcome outcome;
        char go;
        if (probe_cases[i].place != place) continue;
        printf("begin %zu\n", i);
        fflush(stdout);
        run_case(&probe_cases[i], targets, &outcome);
        printf("end %zu %u %llu %s\n", i, outcome.result, (unsigned long long)outcome.slowest_us, outcome.detail);
        fflush(stdout);
        (void)!read(0, &go, 1); // the test looks at the host's side first
    }
    return 0;
}

// ---- other processes of the test ----

static int stay(void) {
    printf("ready\n");
    fflush(stdout);
    while (pause() < 0) continue;
    return 0;
}

// Listens on every address of its own namespace, and says the token to whoever comes.
static int be_neighbour(const struct probe *probe) {
    struct sockaddr_storage address;
    const char *rest;
    char text[PROBE_TEXT_SIZE];
    socklen_t len = probe_sockaddr(probe_expand(probe, ":: {neighbour}", text), &address, &rest);
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (len == 0 || fd < 0 || bind(fd, (struct sockaddr *)&address, len) < 0 || listen(fd, 16) < 0) return 1;
    printf("ready\n");
    fflush(stdout);
    int peer;
    while ((peer = accept4(fd, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
        (void)!send(peer, PROBE_TOKEN, strlen(PROBE_TOKEN), MSG_NOSIGNAL);
        close(peer);
    }
    return 1;
}

int probe_main(int argc, char **argv) {
    if (argc < 3) return 2;
    struct probe probe = {.targets = argv + 3};
    if (strcmp(argv[2], "neighbour") == 0) return be_neighbour(&probe);
    if (strcmp(argv[2], "wait") == 0 || strcmp(argv[2], "decoy") == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        return stay();
    }
    for (unsigned place = 0; place < PROBE_PLACE_COUNT; place++) {
        if (strcmp(argv[2], place_names[place]) != 0) continue;
        int rc = place == PROBE_INTRUDER ? intruder_enter(&probe) : 0;
        if (rc < 0) fprintf(stderr, "the sandbox's namespaces cannot be entered: %s\n", strerror(-rc));
        return rc < 0 ? 1 : run_place((enum probe_place)place, argv + 3);
    }
    return 2;
}
