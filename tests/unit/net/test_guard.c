// SPDX-License-Identifier: Apache-2.0
// The ranges of the node's guardrails: the same answers as the policy's own functions give, one address at a time; and the
// rules of the kernel, which a process of a gate's number runs into.
#include <errno.h>
#include <sched.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/mem.h"
#include "net/guard.h"
#include "net/net.h"

static struct addr address(const char *text) {
    struct addr addr;
    assert_int_equal(addr_parse(text, strlen(text), &addr), 0);
    return addr;
}

static struct addr_prefix prefix(const char *text) {
    struct addr_prefix prefix;
    bool host_bits;
    assert_int_equal(addr_prefix_parse(text, strlen(text), &prefix, &host_bits), 0);
    return prefix;
}

static bool holds(const struct guard_ranges *ranges, const struct addr *addr) {
    bool found = false;
    for (size_t i = 0; i < ranges->count; i++) {
        const struct guard_range *range = &ranges->list[i];
        assert_true(addr_compare(&range->first, &range->last) <= 0);
        if (i > 0) assert_true(addr_compare(&ranges->list[i - 1].last, &range->first) < 0);
        if (range->first.family != addr->family) continue;
        found |= addr_compare(&range->first, addr) <= 0 && addr_compare(addr, &range->last) <= 0;
    }
    return found;
}

// Just in, just out, at both ends of every block, and what carries these.
static void agrees(const struct guard_ranges *ranges, const struct guard *guard, const struct addr *addr) {
    char text[ADDR_TEXT_SIZE];
    bool special = addr_special_block(addr, guard->nat64, guard->nat64_count) != NULL;
    if (holds(ranges, addr) != special) fail_msg("%s is%s special", addr_format(addr, text), special ? "" : " not");
}

static void test_special_addresses_are_those_of_the_policy(void **state) {
    (void)state;
    static const char *const carriers[] = {"::ffff:0:", "64:ff9b::", "::", "fd00:64::", "2001:db8:64::"};
    const struct addr_prefix nat64[] = {prefix("fd00:64::/96"), prefix("2001:db8:64::/96")};
    const struct guard guard = {.special = true, .nat64 = nat64, .nat64_count = ARRAY_LENGTH(nat64)};
    struct guard_ranges ranges;
    const struct addr_prefix *special;
    size_t count = addr_special_blocks(&special);
    assert_int_equal(guard_denied(&guard, &ranges), 0);
    for (size_t i = 0; i < ranges.count; i++) {
        struct addr behind;
        agrees(&ranges, &guard, &ranges.list[i].first);
        agrees(&ranges, &guard, &ranges.list[i].last);
        if (guard_next(&ranges.list[i].last, &behind) && addr_compare(&behind, &ranges.list[i].last) > 0) agrees(&ranges, &guard, &behind);
    }
    for (size_t i = 0; i < count; i++) {
        agrees(&ranges, &guard, &special[i].addr);
        for (size_t j = 0; special[i].addr.family == ADDR_IPV4 && j < ARRAY_LENGTH(carriers); j++) {
            char inner[ADDR_TEXT_SIZE], text[2 * ADDR_TEXT_SIZE];
            addr_format(&special[i].addr, inner);
            snprintf(text, sizeof(text), "%s%s", carriers[j], inner);
            struct addr carried = address(text);
            agrees(&ranges, &guard, &carried);
        }
    }
    static const char *const open[] = {"198.51.100.10", "2001:db8::10", "fd00:64::198.51.100.10", "64:ff9b::198.51.100.10"};
    for (size_t i = 0; i < ARRAY_LENGTH(open); i++) {
        struct addr addr = address(open[i]);
        assert_false(holds(&ranges, &addr));
        agrees(&ranges, &guard, &addr);
    }
    free(ranges.list);
}

static void test_listed_ranges_with_what_carries_them(void **state) {
    (void)state;
    const struct addr_prefix nat64[] = {prefix("2001:db8::/32"), prefix("2001:db9::/40"), prefix("2001:dba::/56"),
                                        prefix("2001:dbb::/64"), prefix("2001:dbc::/96")};
    const struct addr_prefix denied[] = {prefix("203.0.113.0/24"), prefix("203.0.112.0/24"), prefix("203.0.113.128/25"),
                                         prefix("255.255.255.255"), prefix("2001:500::/32")};
    const struct addr own[] = {address("198.51.100.77")};
    const struct guard guard = {.own = true, .denied = denied, .denied_count = ARRAY_LENGTH(denied), .nat64 = nat64,
                                .nat64_count = ARRAY_LENGTH(nat64), .own_addresses = own, .own_count = 1};
    static const char *const in[] = {
        "203.0.112.0", "203.0.113.255", "255.255.255.255", "2001:500::", "2001:500:ffff:ffff::1", "198.51.100.77",
        "::203.0.113.9", "64:ff9b::203.0.113.9", "2002:cb00:7109:1::1", "2001:dbc::203.0.113.9",
        "2001:db8:cb00:7109::", "2001:db9:cb:71::", "2001:db9:cb:71:9::1", "2001:dba:0:cb:0:7109::", "2001:dbb::cb:71:900:0"};
    static const char *const out[] = {
        "203.0.111.255", "203.0.114.0", "255.255.255.254", "2001:501::", "2001:4ff:ffff::1", "198.51.100.76",
        "::203.0.114.9", "2001:dbc::203.0.114.9", "2001:db8:cb00:7209::", "2001:dba:0:cb:0:7209::", "2001:dbb::cb:72:900:0"};
    struct guard_ranges ranges;
    assert_int_equal(guard_denied(&guard, &ranges), 0);
    for (size_t i = 0; i < ARRAY_LENGTH(in); i++) {
        struct addr addr = address(in[i]);
        struct addr carried;
        if (!holds(&ranges, &addr)) fail_msg("%s is not denied", in[i]);
        if (addr_embedded_ipv4(&addr, nat64, ARRAY_LENGTH(nat64), &carried)) assert_true(holds(&ranges, &carried));
    }
    for (size_t i = 0; i < ARRAY_LENGTH(out); i++) {
        struct addr addr = address(out[i]);
        if (holds(&ranges, &addr)) fail_msg("%s is denied", out[i]);
    }
    free(ranges.list);
}

// ---- the kernel ----

static int shell(const char *text) {
    int status = -1;
    pid_t pid = fork();
    if (pid == 0) {
        execl("/bin/sh", "sh", "-c", text, (char *)NULL);
        _exit(127);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

#define USERS UINT32_C(0x74000000)

// errno of sending to an address as this user.
static int send_as(uint32_t user, const char *text, uint16_t port, int type) {
    int status = 0;
    pid_t pid = fork();
    if (pid == 0) {
        struct addr addr = address(text);
        struct sockaddr_storage to;
        socklen_t len = addr_to_sockaddr(&addr, port, &to);
        if (setresuid(user, user, user) < 0) _exit(255);
        int fd = socket(to.ss_family, type, 0);
        const struct timeval patience = {.tv_sec = 3};
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
        int rc = connect(fd, (struct sockaddr *)&to, len);
        if (rc == 0 && type == SOCK_DGRAM) {
            char byte = 0;
            send(fd, &byte, 1, 0);
            rc = (int)recv(fd, &byte, 1, MSG_DONTWAIT); // an error has come by the time send returns, or there is none
            if (rc < 0 && errno == EAGAIN) rc = 0;
        }
        _exit(rc < 0 ? errno : 0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WEXITSTATUS(status);
}

static int listener(const char *text, uint16_t port) {
    struct addr addr = address(text);
    struct sockaddr_storage at;
    socklen_t len = addr_to_sockaddr(&addr, port, &at);
    int fd = socket(at.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    assert_int_equal(bind(fd, (struct sockaddr *)&at, len), 0);
    assert_int_equal(listen(fd, 16), 0);
    return fd;
}

static void test_gates_run_into_the_kernel(void **state) {
    (void)state;
    if (geteuid() != 0 || unshare(CLONE_NEWNET) < 0) skip(); // an ordinary user has no gates of other numbers
    assert_int_equal(shell("ip link set lo up && ip addr add 10.1.1.1/32 dev lo && ip addr add 203.0.113.5/32 dev lo"), 0);
    int listeners[] = {listener("10.1.1.1", 80), listener("10.1.1.1", 53), listener("203.0.113.5", 80), listener("::1", 80)};
    const struct ipc_resolver_server servers[] = {{.address = address("10.1.1.1"), .port = 53}};
    const struct addr_prefix allowed[] = {prefix("10.1.1.1")}, denied[] = {prefix("203.0.113.0/24")};
    const uint32_t gate = USERS + 7, resolver = USERS + GUARD_ROLE_USERS + 7;
    struct guard guard = {.name = "penstock-node-test", .users = USERS, .special = true, .servers = servers, .server_count = 1};
    struct error err;
    assert_int_equal(guard_remove(guard.name, &err), 0); // none
    for (int turn = 0; turn < 3; turn++) { // both tables have been each
        guard.allowed_count = guard.denied_count = 0;
        guard.special = true;
        guard.own = false;
        assert_int_equal(guard_load(&guard, &err), 0);
        assert_int_equal(send_as(gate, "10.1.1.1", 80, SOCK_STREAM), ECONNREFUSED);
        assert_int_equal(send_as(gate, "10.1.1.1", 53, SOCK_STREAM), ECONNREFUSED);
        assert_int_not_equal(send_as(gate, "10.1.1.1", 53, SOCK_DGRAM), 0);
        assert_int_equal(send_as(gate, "::1", 80, SOCK_STREAM), ECONNREFUSED);
        assert_int_equal(send_as(gate, "203.0.113.5", 80, SOCK_STREAM), 0);
        assert_int_equal(send_as(resolver, "10.1.1.1", 53, SOCK_STREAM), 0);
        assert_int_equal(send_as(resolver, "10.1.1.1", 80, SOCK_STREAM), ECONNREFUSED);
        assert_int_equal(send_as(0, "10.1.1.1", 80, SOCK_STREAM), 0);
        assert_int_equal(send_as(USERS - 1, "10.1.1.1", 80, SOCK_STREAM), 0);
        assert_int_equal(send_as(USERS + 2 * GUARD_ROLE_USERS, "10.1.1.1", 80, SOCK_STREAM), 0);

        guard.special = false;
        guard.own = true;
        guard.allowed = allowed;
        guard.denied = denied;
        guard.allowed_count = guard.denied_count = 1;
        assert_int_equal(guard_load(&guard, &err), 0);
        assert_int_equal(send_as(gate, "10.1.1.1", 80, SOCK_STREAM), 0);
        assert_int_equal(send_as(gate, "203.0.113.5", 80, SOCK_STREAM), ECONNREFUSED);
        assert_int_equal(send_as(gate, "::1", 80, SOCK_STREAM), ECONNREFUSED); // of this host

        if (turn == 1) assert_int_equal(guard_remove(guard.name, &err), 0);
    }
    assert_int_equal(guard_remove(guard.name, &err), 0);
    assert_int_equal(send_as(gate, "203.0.113.5", 80, SOCK_STREAM), 0);
    assert_int_equal(shell("test -z \"$(nft list ruleset)\""), 0);
    for (size_t i = 0; i < ARRAY_LENGTH(listeners); i++) close(listeners[i]);
}

static void test_many_ranges(void **state) {
    (void)state;
    enum { COUNT = 5000 };
    if (geteuid() != 0 || unshare(CLONE_NEWNET) < 0) skip();
    struct addr_prefix *denied = calloc(COUNT, sizeof(*denied));
    struct error err;
    assert_non_null(denied);
    for (uint32_t i = 0; i < COUNT; i++) denied[i] = (struct addr_prefix){.addr = addr_ipv4(0x14000000 + i * 512), .length = 24};
    struct guard guard = {.name = "penstock-node-test", .users = USERS, .denied = denied, .denied_count = COUNT};
    assert_int_equal(guard_load(&guard, &err), 0);
    assert_int_equal(shell("ip link set lo up && ip addr add 20.0.2.1/32 dev lo && ip addr add 20.0.1.1/32 dev lo && "
                            "ip addr add 20.39.14.1/32 dev lo"), 0);
    assert_int_equal(send_as(USERS, "20.0.1.1", 80, SOCK_DGRAM), ECONNREFUSED);  // nobody is there
    assert_int_not_equal(send_as(USERS, "20.0.2.1", 80, SOCK_DGRAM), ECONNREFUSED); // refused before
    assert_int_not_equal(send_as(USERS, "20.39.14.1", 80, SOCK_DGRAM), ECONNREFUSED);
    assert_int_equal(guard_remove(guard.name, &err), 0);
    free(denied);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_special_addresses_are_those_of_the_policy),
        cmocka_unit_test(test_listed_ranges_with_what_carries_them),
        cmocka_unit_test(test_gates_run_into_the_kernel),
        cmocka_unit_test(test_many_ranges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
