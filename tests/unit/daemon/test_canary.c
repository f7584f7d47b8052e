// SPDX-License-Identifier: Apache-2.0
// Whoever reaches one of the servers is noticed, and the allowed name alone may be asked for.
#include "daemon/canary.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/mem.h"
#include "daemon/probe.h"

static char folder[] = "/tmp/penstock-canary-XXXXXX";
static char inside[64], outside[64], abstract[64];
static struct canary canary;
static char *targets[] = {NULL};
static struct probe probe = {.targets = targets};

static int setup(void **state) {
    (void)state;
    struct error err = {0};
    canary = (struct canary){.allowed = "allowed.example"};
    snprintf(abstract, sizeof(abstract), "penstock-canary-%d", (int)getpid());
    snprintf(inside, sizeof(inside), "%s/inside", folder);
    snprintf(outside, sizeof(outside), "%s/outside", folder);
    return canary_start(&canary, abstract, inside, outside, &err);
}

static int teardown(void **state) {
    (void)state;
    canary_stop(&canary);
    unlink(inside);
    unlink(outside);
    return 0;
}

static void assert_contact(const char *word) {
    canary_serve(&canary);
    if (!strstr(canary.contact, word) || (!*word && canary.contact[0])) fail_msg("\"%s\", not \"%s\"", canary.contact, word);
    canary.contact[0] = '\0';
}

static void test_sockets(void **state) {
    (void)state;
    char to[64];
    assert_contact("");
    snprintf(to, sizeof(to), "127.0.0.1 %u", canary.port);
    assert_int_equal(network_tcp(&probe, to), PROBE_ESCAPED);
    assert_contact("TCP, IPv4");
    assert_int_equal(network_shout(&probe, to), PROBE_HELD); // the answer comes only when we serve
    assert_contact("UDP, IPv4");
    if (canary.fds[CANARY_TCP6] >= 0) {
        snprintf(to, sizeof(to), "::1 %u", canary.port);
        assert_int_equal(network_tcp(&probe, to), PROBE_ESCAPED);
        assert_contact("TCP, IPv6");
    }
    assert_contact("");
}

static void test_unix(void **state) {
    (void)state;
    char name[80];
    snprintf(name, sizeof(name), "@%s", abstract);
    assert_int_equal(host_unix(&probe, name), PROBE_ESCAPED);
    assert_contact("abstract");
    assert_int_equal(host_unix(&probe, inside), PROBE_ESCAPED);
    assert_contact("working directory");
    assert_int_equal(host_unix(&probe, outside), PROBE_ESCAPED);
    assert_contact("elsewhere");
    assert_int_equal(host_unix(&probe, "/nonexistent"), PROBE_HELD);
    assert_contact("");
}

// Asks in a child, since the server answers from this process.
static int ask(const char *kind, const char *name, enum probe_result (*question)(struct probe *, const char *)) {
    char argument[256];
    int status = 0;
    snprintf(argument, sizeof(argument), "127.0.0.1 %u %s %s", canary.dns_port, kind, name);
    pid_t pid = fork();
    if (pid == 0) _exit((int)question(&probe, argument));
    while (waitpid(pid, &status, WNOHANG) == 0) {
        canary_serve(&canary);
        usleep(1000);
    }
    return WEXITSTATUS(status);
}

static void test_dns(void **state) {
    (void)state;
    assert_int_equal(ask("a", "allowed.example", question_udp), PROBE_ESCAPED); // a record came
    assert_int_equal(ask("a", "ALLOWED.example", question_tcp), PROBE_ESCAPED);
    assert_int_equal(ask("txt", "allowed.example", question_udp), PROBE_HELD); // none of that type
    assert_contact("");
    ask("a", "secret.allowed.example", question_udp);
    assert_contact("secret.allowed.example");
    ask("a", "unlisted.example", question_tcp);
    assert_contact("unlisted.example");
    ask("loop", "unlisted.example", question_udp);
    assert_contact("a query");
}

static void test_decoy(void **state) {
    (void)state;
    pid_t pid = fork();
    if (pid == 0) {
        pause();
        _exit(0);
    }
    canary_watch(&canary, pid);
    assert_contact("");
    kill(pid, SIGUSR1);
    usleep(100000);
    assert_contact("signal");
    assert_contact(""); // told once
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_sockets, setup, teardown),
        cmocka_unit_test_setup_teardown(test_unix, setup, teardown),
        cmocka_unit_test_setup_teardown(test_dns, setup, teardown),
        cmocka_unit_test_setup_teardown(test_decoy, setup, teardown),
    };
    if (!mkdtemp(folder)) return 1;
    int status = cmocka_run_group_tests(tests, NULL, NULL);
    rmdir(folder);
    return status;
}
