// SPDX-License-Identifier: Apache-2.0
#include "dns_lab.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "dns/dns_reverse.h"

static unsigned saved_count;
static uint32_t saved_index;
static char saved_name[NAME_SIZE];

static void saved(uint32_t index, const char *name, void *data) {
    saved_count++;
    saved_index = index;
    snprintf(saved_name, sizeof(saved_name), "%s", name);
    assert_string_equal(data, "data");
}

static struct dns_pool *pool_of(const char *four, const char *six) {
    struct addr_prefix pool4 = lab_prefix(four), pool6 = lab_prefix(six);
    struct dns_pool *pool = dns_pool_new(&pool4, &pool6, saved, (void *)(uintptr_t) "data");
    assert_non_null(pool);
    saved_count = 0;
    return pool;
}

static void assert_address(const struct dns_pool *pool, uint32_t index, enum addr_family family, const char *text) {
    char buf[ADDR_TEXT_SIZE];
    struct addr addr = dns_pool_address(pool, index, family);
    assert_string_equal(addr_format(&addr, buf), text);
}

static void test_assign(void **state) {
    (void)state;
    struct dns_pool *pool = pool_of("198.18.0.0/15", "fd53:796e::/64");
    uint32_t index = 99;
    assert_int_equal(dns_pool_assign(pool, "a.test", &index), 0);
    assert_int_equal(index, 0);
    assert_int_equal(saved_count, 1);
    assert_string_equal(saved_name, "a.test");
    assert_int_equal(dns_pool_assign(pool, "b.test", &index), 0);
    assert_int_equal(index, 1);
    assert_int_equal(saved_index, 1);
    assert_int_equal(dns_pool_assign(pool, "a.test", &index), 0);
    assert_int_equal(index, 0);
    assert_int_equal(saved_count, 2); // not told twice
    assert_address(pool, 0, ADDR_IPV4, "198.18.0.1");
    assert_address(pool, 0, ADDR_IPV6, "fd53:796e::1");
    assert_address(pool, 253, ADDR_IPV4, "198.18.0.254");
    assert_address(pool, 254, ADDR_IPV4, "198.18.1.1"); // neither .255 nor .0
    assert_address(pool, 254, ADDR_IPV6, "fd53:796e::101");
    assert_address(pool, 4095, ADDR_IPV4, "198.18.16.32");
    dns_pool_free(pool);
}

static void test_names(void **state) {
    (void)state;
    struct dns_pool *pool = pool_of("198.18.0.0/15", "fd53:796e::/64");
    uint32_t index;
    dns_pool_assign(pool, "a.test", &index);
    const struct {
        const char *addr, *name;
        bool inside;
    } cases[] = {
        {"198.18.0.1", "a.test", true},     {"fd53:796e::1", "a.test", true},  {"198.18.0.2", NULL, true},
        {"198.18.0.0", NULL, true},         {"198.18.0.255", NULL, true},      {"198.19.255.255", NULL, true},
        {"198.20.0.1", NULL, false},        {"198.17.255.255", NULL, false},   {"fd53:796e::", NULL, true},
        {"fd53:796e::1:0:0:1", NULL, true}, {"fd53:796e:0:1::1", NULL, false}, {"::1", NULL, false},
        {"198.19.0.1", NULL, true},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct addr addr = lab_addr(cases[i].addr);
        const char *name = dns_pool_name(pool, &addr);
        assert_int_equal(dns_pool_contains(pool, &addr), cases[i].inside);
        if (cases[i].name)
            assert_string_equal(name, cases[i].name);
        else
            assert_null(name);
    }
    dns_pool_free(pool);
}

static void test_restore(void **state) {
    (void)state;
    struct dns_pool *pool = pool_of("198.18.0.0/15", "fd53:796e::/64");
    uint32_t index;
    assert_int_equal(dns_pool_restore(pool, 1, "b.test"), 0);
    assert_int_equal(dns_pool_restore(pool, 1, "b.test"), 0);
    assert_int_equal(dns_pool_restore(pool, 1, "c.test"), -EEXIST); // never given to another name
    assert_int_equal(dns_pool_restore(pool, 2, "b.test"), -EEXIST);
    assert_int_equal(dns_pool_restore(pool, 4096, "d.test"), -EINVAL);
    assert_int_equal(dns_pool_restore(pool, 3, ""), -EINVAL);
    assert_int_equal(saved_count, 0);
    dns_pool_assign(pool, "a.test", &index);
    assert_int_equal(index, 0);
    dns_pool_assign(pool, "c.test", &index);
    assert_int_equal(index, 2);
    dns_pool_assign(pool, "b.test", &index);
    assert_int_equal(index, 1);
    dns_pool_free(pool);
}

static void test_full(void **state) {
    (void)state;
    struct dns_pool *pool = pool_of("198.18.0.0/15", "fd53:796e::/64");
    char name[32];
    uint32_t index;
    for (unsigned i = 0; i < DNS_POOL_MAX; i++) {
        snprintf(name, sizeof(name), "n%u.test", i);
        assert_int_equal(dns_pool_assign(pool, name, &index), 0);
        assert_int_equal(index, i);
    }
    assert_int_equal(dns_pool_assign(pool, "one-more.test", &index), -ENOSPC);
    assert_int_equal(dns_pool_assign(pool, "n4095.test", &index), 0);
    for (unsigned i = 0; i < DNS_POOL_MAX; i++) { // each address leads back, in both families
        struct addr four = dns_pool_address(pool, i, ADDR_IPV4), six = dns_pool_address(pool, i, ADDR_IPV6);
        snprintf(name, sizeof(name), "n%u.test", i);
        assert_string_equal(dns_pool_name(pool, &four), name);
        assert_string_equal(dns_pool_name(pool, &six), name);
    }
    dns_pool_free(pool);
}

static void test_small(void **state) {
    (void)state;
    struct dns_pool *pool = pool_of("192.0.2.16/29", "fd00:1::/64");
    char name[32];
    uint32_t index;
    for (unsigned i = 0; i < 6; i++) { // .17 to .22
        snprintf(name, sizeof(name), "n%u.test", i);
        assert_int_equal(dns_pool_assign(pool, name, &index), 0);
    }
    assert_address(pool, 5, ADDR_IPV4, "192.0.2.22");
    assert_int_equal(dns_pool_assign(pool, "n6.test", &index), -ENOSPC);
    struct addr last = lab_addr("192.0.2.22"), other = lab_addr("192.0.2.6");
    assert_string_equal(dns_pool_name(pool, &last), "n5.test");
    assert_null(dns_pool_name(pool, &other));
    dns_pool_free(pool);
}

static void test_reverse(void **state) {
    (void)state;
    const struct {
        const char *name, *addr;
        bool is;
    } cases[] = {
        {"4.3.2.1.in-addr.arpa", "1.2.3.4", true},
        {"2.1.in-addr.arpa", NULL, true},
        {"in-addr.arpa", NULL, true},
        {"04.3.2.1.in-addr.arpa", NULL, true},
        {"256.3.2.1.in-addr.arpa", NULL, true},
        {"5.4.3.2.1.in-addr.arpa", NULL, true},
        {"4.3.2.1.xin-addr.arpa", NULL, false},
        {"a.test", NULL, false},
        {"1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.e.6.9.7.3.5.d.f.ip6.arpa", "fd53:796e::1", true},
        {"g.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.e.6.9.7.3.5.d.f.ip6.arpa", NULL, true},
        {"0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.e.6.9.7.3.5.d.f.ip6.arpa", NULL, true},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct addr addr;
        char buf[ADDR_TEXT_SIZE];
        assert_int_equal(dns_reverse_is(cases[i].name), cases[i].is);
        assert_int_equal(dns_reverse_parse(cases[i].name, &addr), cases[i].addr != NULL);
        if (cases[i].addr) assert_string_equal(addr_format(&addr, buf), cases[i].addr);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_assign), cmocka_unit_test(test_names), cmocka_unit_test(test_restore),
        cmocka_unit_test(test_full),   cmocka_unit_test(test_small), cmocka_unit_test(test_reverse),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
