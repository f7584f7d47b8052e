// SPDX-License-Identifier: Apache-2.0
#include "gate/exchange.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#define SECOND 1000000ULL

static struct exchange_table table;

static struct exchange_key key_of(uint16_t client_port, uint32_t server, uint16_t port) {
    return (struct exchange_key){.client = addr_ipv4(0xc0000002), .server = addr_ipv4(server),
                                 .client_port = client_port, .port = port, .protocol = POLICY_UDP};
}

static void test_find(void **state) {
    (void)state;
    exchange_table_init(&table, 7);
    struct exchange exchange = {.key = key_of(1000, 0xcb007101, 7)};
    struct exchange_key key = exchange.key;
    assert_null(exchange_table_find(&table, &key));
    exchange_table_add(&table, &exchange, 0);
    assert_ptr_equal(exchange_table_find(&table, &key), &exchange);
    assert_int_equal(table.count, 1);
    // Every part of the key counts.
    for (int part = 0; part < 5; part++) {
        struct exchange_key other = key;
        if (part == 0) other.client = addr_ipv4(0xc0000003);
        if (part == 1) other.server = addr_ipv4(0xcb007102);
        if (part == 2) other.client_port++;
        if (part == 3) other.port++;
        if (part == 4) other.protocol = POLICY_ICMP;
        assert_false(exchange_key_equal(&key, &other));
        assert_null(exchange_table_find(&table, &other));
    }
    exchange_table_remove(&table, &exchange);
    assert_null(exchange_table_find(&table, &key));
    assert_int_equal(table.count, 0);
}

static void test_expiry(void **state) {
    (void)state;
    exchange_table_init(&table, 7);
    struct exchange silent = {.key = key_of(1, 1, 1)}, answered = {.key = key_of(2, 1, 1)}, echo = {.key = key_of(3, 1, 0)};
    echo.key.protocol = POLICY_ICMP;
    exchange_table_add(&table, &silent, 100);
    exchange_table_add(&table, &answered, 100);
    exchange_table_add(&table, &echo, 100);
    exchange_table_touch(&table, &answered, true, 100);
    exchange_table_touch(&table, &echo, true, 100);
    assert_null(exchange_table_expired(&table, 100 + 10 * SECOND - 1));
    assert_ptr_equal(exchange_table_expired(&table, 100 + 10 * SECOND), &echo);
    exchange_table_remove(&table, &echo);
    assert_null(exchange_table_expired(&table, 100 + 30 * SECOND - 1));
    assert_ptr_equal(exchange_table_expired(&table, 100 + 30 * SECOND), &silent);
    exchange_table_remove(&table, &silent);
    assert_null(exchange_table_expired(&table, 100 + 120 * SECOND - 1)); // RFC 4787 REQ-5: two minutes
    assert_ptr_equal(exchange_table_expired(&table, 100 + 120 * SECOND), &answered);
}

static void test_every_datagram_keeps_it(void **state) {
    (void)state;
    exchange_table_init(&table, 7);
    struct exchange one = {.key = key_of(1, 1, 1)}, two = {.key = key_of(2, 1, 1)};
    exchange_table_add(&table, &one, 0);
    exchange_table_add(&table, &two, 1 * SECOND);
    exchange_table_touch(&table, &one, false, 20 * SECOND); // sent once more; still without an answer
    assert_ptr_equal(exchange_table_expired(&table, 31 * SECOND), &two);
    exchange_table_remove(&table, &two);
    assert_null(exchange_table_expired(&table, 50 * SECOND - 1));
    assert_ptr_equal(exchange_table_expired(&table, 50 * SECOND), &one);
    exchange_table_touch(&table, &one, true, 50 * SECOND);
    exchange_table_touch(&table, &one, false, 60 * SECOND); // once answered, it stays so
    assert_null(exchange_table_expired(&table, 180 * SECOND - 1));
    assert_ptr_equal(exchange_table_expired(&table, 180 * SECOND), &one);
}

static void test_spare(void **state) {
    (void)state;
    exchange_table_init(&table, 7);
    struct exchange old = {.key = key_of(1, 1, 1)}, young = {.key = key_of(2, 1, 1)};
    assert_null(exchange_table_spare(&table, 5 * SECOND));
    exchange_table_add(&table, &old, 0);
    exchange_table_add(&table, &young, 0);
    exchange_table_touch(&table, &old, true, SECOND / 2);
    exchange_table_touch(&table, &young, false, SECOND);
    assert_null(exchange_table_spare(&table, SECOND * 3 / 2 - 1)); // not before a second without datagrams
    assert_ptr_equal(exchange_table_spare(&table, SECOND * 3 / 2), &old);
    exchange_table_touch(&table, &old, false, 3 * SECOND);
    assert_ptr_equal(exchange_table_spare(&table, 4 * SECOND), &young);
}

static void test_notice(void **state) {
    (void)state;
    exchange_table_init(&table, 7);
    struct exchange_key key = key_of(1, 0xcb007101, 7), again = key_of(2, 0xcb007101, 7), icmp = key;
    icmp.protocol = POLICY_ICMP;
    assert_true(exchange_table_notice(&table, &key, 5));
    assert_false(exchange_table_notice(&table, &again, 6)); // whoever asks
    assert_true(exchange_table_notice(&table, &icmp, 6));
    assert_true(exchange_table_notice(&table, &key, 2 * SECOND));
    assert_false(exchange_table_notice(&table, &key, 3 * SECOND - 1));
    assert_true(exchange_table_notice(&table, &key, 3 * SECOND));
}

// A million exchanges in an hour, as many at a time as there may be: nothing is lost and nothing grows.
static void test_churn(void **state) {
    (void)state;
    static struct exchange pool[EXCHANGE_MAX];
    const uint64_t step = 3600; // us: 278 a second
    uint64_t now = 0;
    exchange_table_init(&table, 7);
    for (uint32_t i = 0; i < 1000000; i++, now += step) {
        struct exchange *exchange = i < EXCHANGE_MAX ? &pool[i] : exchange_table_spare(&table, now);
        assert_non_null(exchange);
        if (i >= EXCHANGE_MAX) exchange_table_remove(&table, exchange);
        *exchange = (struct exchange){.key = key_of((uint16_t)i, 0xcb007100 + i / 65536, 7)};
        assert_null(exchange_table_find(&table, &exchange->key));
        exchange_table_add(&table, exchange, now);
        assert_ptr_equal(exchange_table_find(&table, &exchange->key), exchange);
        if (i % 3) exchange_table_touch(&table, exchange, true, now);
    }
    assert_int_equal(table.count, EXCHANGE_MAX);
    size_t longest = 0, total = 0;
    for (size_t i = 0; i < EXCHANGE_BUCKETS; i++) {
        size_t length = 0;
        LIST_FOREACH(&table.buckets[i], node) length++;
        total += length;
        if (length > longest) longest = length;
    }
    assert_int_equal(total, EXCHANGE_MAX);
    assert_in_range(longest, 1, 16);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_find),  cmocka_unit_test(test_expiry), cmocka_unit_test(test_every_datagram_keeps_it),
        cmocka_unit_test(test_spare), cmocka_unit_test(test_notice), cmocka_unit_test(test_churn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
