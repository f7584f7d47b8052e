// SPDX-License-Identifier: Apache-2.0
// The table of escapes and its targets, and attempts that must be seen to succeed where nothing stands in the way.
#include "daemon/probe.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/mem.h"

static char *targets[] = {"own4=192.0.2.1", "port=8080", "name=a.example", "empty=", NULL};
static struct probe probe = {.targets = targets};

static void test_expand(void **state) {
    (void)state;
    char buf[PROBE_TEXT_SIZE], text[2 * PROBE_TEXT_SIZE];
    assert_string_equal(probe_expand(&probe, "{own4} {port}", buf), "192.0.2.1 8080");
    assert_string_equal(probe_expand(&probe, "::ffff:{own4} {port} x{empty}y{unknown}z", buf), "::ffff:192.0.2.1 8080 xyz");
    assert_string_equal(probe_expand(&probe, "an open {brace", buf), "an open {brace");
    assert_string_equal(probe_expand(&probe, "", buf), "");
    memset(text, 'x', sizeof(text));
    memcpy(text + PROBE_TEXT_SIZE - 4, "{own4}", 6);
    text[sizeof(text) - 1] = '\0';
    assert_int_equal(strlen(probe_expand(&probe, text, buf)), PROBE_TEXT_SIZE - 1);
    assert_string_equal(probe_target(&probe, "own"), "");
    assert_string_equal(probe_target(&probe, "name"), "a.example");
}

static void test_sockaddr(void **state) {
    (void)state;
    struct sockaddr_storage to;
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)&to;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)&to;
    const char *rest;
    assert_int_equal(probe_sockaddr("192.0.2.1 53 and more", &to, &rest), sizeof(*v4));
    assert_int_equal(v4->sin_port, htons(53));
    assert_int_equal(v4->sin_addr.s_addr, htonl(0xc0000201));
    assert_string_equal(rest, "and more");
    // An IPv4-mapped address stays the IPv6 one that the attempt is about.
    assert_int_equal(probe_sockaddr("::ffff:192.0.2.1 1", &to, &rest), sizeof(*v6));
    assert_int_equal(v6->sin6_family, AF_INET6);
    assert_string_equal(rest, "");
    assert_int_equal(probe_sockaddr("fe80::1%lo 1", &to, &rest), sizeof(*v6));
    assert_true(v6->sin6_scope_id > 0);
    const char *const bad[] = {"", "192.0.2.1", "192.0.2.1 ", "192.0.2.1 65536", "192.0.2.1 x", "host 80", "2002::x::1 80"};
    for (size_t i = 0; i < ARRAY_LENGTH(bad); i++) assert_int_equal(probe_sockaddr(bad[i], &to, &rest), 0);
}

// ---- the table ----

static const char *const known[] = {"own4", "own6", "hex4", "port", "far4", "far6", "dns4", "dns6", "dnsport", "tlsport",
                                    "allowed", "nonce", "secret", "secretfile", "home", "project", "outside", "abstract",
                                    "decoy", "parent", "neighbour", "gate4", "gate6", "key"};

static void assert_known(const char *text) {
    for (const char *at = text; (at = strchr(at, '{')); at++) {
        size_t i = 0, len = strcspn(at + 1, "}");
        while (i < ARRAY_LENGTH(known) && (strlen(known[i]) != len || strncmp(known[i], at + 1, len) != 0)) i++;
        if (i == ARRAY_LENGTH(known)) fail_msg("no such target: %s", at);
    }
}

static void test_table(void **state) {
    (void)state;
    size_t counts[PROBE_PLACE_COUNT] = {0};
    assert_true(probe_case_count >= 40);
    for (size_t i = 0; i < probe_case_count; i++) {
        const struct probe_case *row = &probe_cases[i];
        assert_non_null(row->attempt);
        assert_true(row->place < PROBE_PLACE_COUNT);
        if (i > 0) assert_true(row->place >= probe_cases[i - 1].place); // printed as numbered
        counts[row->place]++;
        assert_known(row->argument ? row->argument : "");
        assert_known(row->forbidden ? row->forbidden : "");
        for (size_t k = 0; k < i; k++)
            if (strcmp(row->group, probe_cases[k].group) == 0) assert_string_not_equal(row->name, probe_cases[k].name);
    }
    for (size_t i = 0; i < PROBE_PLACE_COUNT; i++) assert_true(counts[i] > 0);
}

// ---- attempts ----

// A listener of the test's own; its port.
static int listen_here(char port[16]) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t len = sizeof(at);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, len) | listen(fd, 512), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &len), 0);
    snprintf(port, 16, "%u", ntohs(at.sin_port));
    return fd;
}

static void test_connections(void **state) {
    (void)state;
    char port[16], argument[64];
    int fd = listen_here(port);
    snprintf(argument, sizeof(argument), "127.0.0.1 %s", port);
    assert_int_equal(network_tcp(&probe, argument), PROBE_ESCAPED);
    assert_int_equal(network_flood(&probe, argument), PROBE_ESCAPED);
    snprintf(argument, sizeof(argument), "127.0.0.1 %s name.example", port);
    assert_int_equal(claim_tls(&probe, argument), PROBE_HUNG); // taken, and nothing came
    close(fd);
    snprintf(argument, sizeof(argument), "127.0.0.1 %s", port);
    assert_int_equal(network_tcp(&probe, argument), PROBE_HELD);
    assert_int_equal(network_udp(&probe, argument), PROBE_HELD);
    assert_int_equal(network_tcp(&probe, "nonsense"), PROBE_BROKEN);
}

static void test_files(void **state) {
    (void)state;
    char path[] = "/tmp/penstock-probe-XXXXXX";
    int fd = mkstemp(path);
    assert_int_equal(write(fd, "x", 1), 1);
    close(fd);
    assert_int_equal(host_read(&probe, path), PROBE_ESCAPED);
    assert_int_equal(host_write(&probe, path), PROBE_ESCAPED);
    unlink(path);
    assert_int_equal(host_read(&probe, path), PROBE_HELD);
    assert_int_equal(host_write(&probe, path), PROBE_HELD);
    assert_int_equal(host_create(&probe, path), PROBE_HELD);
    assert_int_equal(unlink(path), 0);
    setenv("PENSTOCK_TEST_VARIABLE", "x", 1);
    assert_int_equal(host_variable(&probe, "PENSTOCK_TEST_VARIABLE"), PROBE_ESCAPED);
    unsetenv("PENSTOCK_TEST_VARIABLE");
    assert_int_equal(host_variable(&probe, "PENSTOCK_TEST_VARIABLE"), PROBE_HELD);
}

static void test_families(void **state) {
    (void)state;
    assert_int_equal(kernel_family(&probe, "2"), PROBE_ESCAPED);   // AF_INET
    assert_int_equal(kernel_family(&probe, "200"), PROBE_HELD);    // nobody's
    assert_int_equal(kernel_family(&probe, "x"), PROBE_BROKEN);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_expand), cmocka_unit_test(test_sockaddr),    cmocka_unit_test(test_table),
        cmocka_unit_test(test_files),  cmocka_unit_test(test_connections), cmocka_unit_test(test_families),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
