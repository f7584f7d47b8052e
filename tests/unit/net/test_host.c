// SPDX-License-Identifier: Apache-2.0
// Facts about the host, in a network namespace whose facts we make.
#include "lab.h"

static int run(const char *a, const char *b, const char *c, const char *d, const char *e, const char *f, const char *g) {
    pid_t pid = fork();
    if (pid == 0) {
        execlp("ip", "ip", a, b, c, d, e, f, g, (char *)NULL);
        _exit(127);
    }
    return lab_reap(pid);
}

static bool has(const struct addr *addresses, size_t count, const char *text) {
    struct addr wanted = lab_addr(text);
    int times = 0;
    for (size_t i = 0; i < count; i++) times += addr_equal(&addresses[i], &wanted);
    assert_true(times < 2);
    return times == 1;
}

static void test_addresses(void **state) {
    struct addr *addresses = NULL;
    size_t count = 0;
    struct error err = {0};
    (void)state;
    assert_int_equal(run("link", "set", "lo", "up", NULL, NULL, NULL), 0);
    assert_int_equal(run("addr", "add", "10.9.8.7/24", "dev", "lo", NULL, NULL), 0);
    assert_int_equal(run("addr", "add", "2001:db8::77/64", "dev", "lo", "nodad", NULL), 0);
    assert_int_equal(run("route", "add", "local", "198.51.100.9/32", "dev", "lo", NULL), 0);
    assert_int_equal(host_addresses(&addresses, &count, &err), 0);
    static const char *const own[] = {"127.0.0.1", "::1", "10.9.8.7", "2001:db8::77", "198.51.100.9"};
    for (size_t i = 0; i < ARRAY_LENGTH(own); i++) assert_true(has(addresses, count, own[i]));
    assert_false(has(addresses, count, "10.9.8.255")); // broadcast
    assert_int_equal(count, ARRAY_LENGTH(own));
    free(addresses);
}

static void test_many_addresses(void **state) {
    struct addr *addresses = NULL;
    size_t count = 0, before;
    char text[32];
    (void)state;
    assert_int_equal(host_addresses(&addresses, &before, NULL), 0);
    free(addresses);
    for (int i = 0; i < 300; i++) { // more than one netlink datagram
        snprintf(text, sizeof(text), "10.20.%d.%d/32", i / 250, i % 250);
        assert_int_equal(run("addr", "add", text, "dev", "lo", NULL, NULL), 0);
    }
    assert_int_equal(host_addresses(&addresses, &count, NULL), 0);
    assert_int_equal(count, before + 300);
    free(addresses);
}

static void test_watch(void **state) {
    (void)state;
    int fd = host_watch_new();
    assert_true(fd >= 0);
    assert_false(lab_readable(fd, 20));
    assert_int_equal(run("addr", "add", "10.1.1.1/32", "dev", "lo", NULL, NULL), 0);
    assert_true(lab_readable(fd, 1000));
    host_watch_drain(fd);
    assert_false(lab_readable(fd, 20));
    assert_int_equal(run("-6", "addr", "add", "2001:db8::1/128", "dev", "lo", NULL), 0);
    assert_true(lab_readable(fd, 1000));
    host_watch_drain(fd);
    close(fd);
}

static void test_route(void **state) {
    struct addr four = lab_addr("203.0.113.1"), six = lab_addr("2001:db8:1::1");
    (void)state;
    assert_false(host_has_route(&four));
    assert_false(host_has_route(&six));
    assert_int_equal(run("route", "add", "default", "dev", "lo", NULL, NULL), 0);
    assert_true(host_has_route(&four));
    assert_false(host_has_route(&six));
    assert_int_equal(run("-6", "route", "add", "default", "dev", "lo", NULL), 0);
    assert_true(host_has_route(&six));
}

static int setup(void **state) {
    (void)state;
    return lab_own_network();
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_addresses),
        cmocka_unit_test(test_watch),
        cmocka_unit_test(test_route),
        cmocka_unit_test(test_many_addresses),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
