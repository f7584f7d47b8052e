// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <cmocka.h>
#include <arpa/inet.h>
#include <errno.h>

#include "base/addr.h"
#include "base/mem.h"

static struct addr parse(const char *text) {
    struct addr addr;
    if (addr_parse(text, strlen(text), &addr) != 0) fail_msg("%s is refused", text);
    return addr;
}

static struct addr_prefix prefix_of(const char *text) {
    struct addr_prefix prefix;
    bool host_bits;
    if (addr_prefix_parse(text, strlen(text), &prefix, &host_bits) != 0) fail_msg("%s is refused", text);
    return prefix;
}

static void parses_and_prints(void **state) {
    (void)state;
    static const char *const pairs[][2] = {
        {"1.2.3.4", "1.2.3.4"},
        {"255.255.255.255", "255.255.255.255"},
        {"0.0.0.0", "0.0.0.0"},
        {"2001:DB8:0:0:0:0:0:1", "2001:db8::1"},
        {"::", "::"},
        {"::ffff:1.2.3.4", "1.2.3.4"},
        {"::FFFF:0102:0304", "1.2.3.4"},
        {"0:0:0:0:0:ffff:8.8.8.8", "8.8.8.8"},
        {"2001:db8:0:1:1:1:1:1", "2001:db8:0:1:1:1:1:1"},
    };
    char text[ADDR_TEXT_SIZE];
    for (size_t i = 0; i < ARRAY_LENGTH(pairs); i++) {
        struct addr addr = parse(pairs[i][0]);
        assert_string_equal(addr_format(&addr, text), pairs[i][1]);
    }
    assert_int_equal(parse("::ffff:1.2.3.4").family, ADDR_IPV4);
    struct addr one = addr_ipv4(0x01020304), mapped = parse("::ffff:1.2.3.4");
    assert_true(addr_equal(&one, &mapped));
    assert_memory_equal(&one, &mapped, sizeof(one));
}

static void refuses_what_is_not_an_address(void **state) {
    (void)state;
    static const char *const bad[] = {"",          "1.2.3",      "1.2.3.4.5", "01.2.3.4",          "1.2.3.04",
                                      "256.1.1.1", "0x7f.1",     "127.1",     "2130706433",        "1.2.3.4 ",
                                      " 1.2.3.4",  "1.2.3.4/32", "[::1]",     "fe80::1%eth0",      ":::",
                                      "1::2::3",   "12345::",    "::1.2.3",   "1:2:3:4:5:6:7:8:9", "::ffff:1.2.3.256",
                                      "+1.2.3.4"};
    struct addr addr;
    for (size_t i = 0; i < ARRAY_LENGTH(bad); i++) {
        if (addr_parse(bad[i], strlen(bad[i]), &addr) != -EINVAL) fail_msg("%s is accepted", bad[i]);
    }
    assert_int_equal(addr_parse("1.2.3.4\0x", 9, &addr), -EINVAL);
    assert_int_equal(addr_parse("1.2.3.45", 7, &addr), 0); // exactly len bytes are read
    assert_int_equal(addr.bytes[3], 4);
}

static void sockaddr_round_trip(void **state) {
    (void)state;
    static const char *const texts[] = {"192.0.2.1", "2001:db8::5"};
    for (size_t i = 0; i < ARRAY_LENGTH(texts); i++) {
        struct addr addr = parse(texts[i]), back;
        struct sockaddr_storage storage;
        uint16_t port = 0;
        socklen_t len = addr_to_sockaddr(&addr, 8443, &storage);
        assert_int_equal(len, i == 0 ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6));
        assert_int_equal(addr_from_sockaddr((struct sockaddr *)&storage, &back, &port), 0);
        assert_true(addr_equal(&addr, &back));
        assert_int_equal(port, 8443);
    }
    struct sockaddr_in6 mapped = {.sin6_family = AF_INET6, .sin6_port = htons(1)};
    inet_pton(AF_INET6, "::ffff:10.0.0.1", &mapped.sin6_addr);
    struct addr addr;
    uint16_t port;
    assert_int_equal(addr_from_sockaddr((struct sockaddr *)&mapped, &addr, &port), 0);
    assert_int_equal(addr.family, ADDR_IPV4);
    struct sockaddr unix_address = {.sa_family = AF_UNIX};
    assert_int_equal(addr_from_sockaddr(&unix_address, &addr, &port), -EAFNOSUPPORT);
}

static void prefixes(void **state) {
    (void)state;
    static const struct {
        const char *text, *printed;
        bool host_bits;
    } good[] = {
        {"10.0.0.0/8", "10.0.0.0/8", false},
        {"10.0.0.1/8", "10.0.0.0/8", true},
        {"8.8.8.200/24", "8.8.8.0/24", true},
        {"1.2.3.4", "1.2.3.4", false},
        {"1.2.3.4/32", "1.2.3.4", false},
        {"0.0.0.0/0", "0.0.0.0/0", false},
        {"255.255.255.255/31", "255.255.255.254/31", true},
        {"2001:db8::/32", "2001:db8::/32", false},
        {"2001:db8::1/33", "2001:db8::/33", true},
        {"::/0", "::/0", false},
        {"::1/128", "::1", false},
        {"::ffff:168.0.0.0/103", "168.0.0.0/7", false},
        {"::ffff:10.0.0.0/104", "10.0.0.0/8", false},
        {"::ffff:0:0/96", "0.0.0.0/0", false},
        {"::ffff:1.2.3.4", "1.2.3.4", false},
    };
    static const char *const bad[] = {
        "10.0.0.0/33", "::/129",    "10.0.0.0/",    "10.0.0.0/08", "10.0.0.0/-1",    "10.0.0.0/+8", "/8", "",
        "10/8",        "a.example", "10.0.0.0/8/8", "10.0.0.0/ 8", "https://1.2.3.4"};
    char text[ADDR_TEXT_SIZE];
    struct addr_prefix prefix;
    bool host_bits;
    for (size_t i = 0; i < ARRAY_LENGTH(good); i++) {
        assert_int_equal(addr_prefix_parse(good[i].text, strlen(good[i].text), &prefix, &host_bits), 0);
        assert_string_equal(addr_prefix_format(&prefix, text), good[i].printed);
        assert_int_equal(host_bits, good[i].host_bits);
    }
    for (size_t i = 0; i < ARRAY_LENGTH(bad); i++) {
        if (addr_prefix_parse(bad[i], strlen(bad[i]), &prefix, &host_bits) != -EINVAL)
            fail_msg("%s is accepted", bad[i]);
    }
}

static void prefix_edges(void **state) {
    (void)state;
    static const struct {
        const char *prefix, *addr;
        bool inside;
    } cases[] = {
        {"10.0.0.0/8", "10.255.255.255", true},
        {"10.0.0.0/8", "11.0.0.0", false},
        {"10.0.0.0/8", "9.255.255.255", false},
        {"240.0.0.0/4", "255.255.255.255", true},
        {"255.255.255.255/32", "255.255.255.255", true},
        {"255.255.255.255/32", "255.255.255.254", false},
        {"0.0.0.0/0", "255.255.255.255", true},
        {"0.0.0.0/0", "::", false},
        {"::/0", "1.2.3.4", false},
        {"::/0", "ffff::1", true},
        {"2001:db8::/33", "2001:db8:8000::", false},
        {"2001:db8::/33", "2001:db8:7fff::", true},
        {"172.16.0.0/12", "172.31.255.255", true},
        {"172.16.0.0/12", "172.32.0.0", false},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct addr_prefix prefix = prefix_of(cases[i].prefix);
        struct addr addr = parse(cases[i].addr);
        if (addr_prefix_contains(&prefix, &addr) != cases[i].inside)
            fail_msg("%s in %s", cases[i].addr, cases[i].prefix);
    }
}

static void classifier(void **state) {
    (void)state;
    static const struct {
        const char *addr, *block; // NULL: globally reachable
    } cases[] = {
        {"0.0.0.0", "0.0.0.0/8"},
        {"0.255.255.255", "0.0.0.0/8"},
        {"1.0.0.0", NULL},
        {"9.255.255.255", NULL},
        {"10.0.0.0", "10.0.0.0/8"},
        {"11.0.0.0", NULL},
        {"100.63.255.255", NULL},
        {"100.64.0.0", "100.64.0.0/10"},
        {"100.127.255.255", "100.64.0.0/10"},
        {"100.128.0.0", NULL},
        {"127.255.255.255", "127.0.0.0/8"},
        {"128.0.0.0", NULL},
        {"169.253.255.255", NULL},
        {"169.254.169.254", "169.254.0.0/16"},
        {"169.255.0.0", NULL},
        {"172.15.255.255", NULL},
        {"172.31.255.255", "172.16.0.0/12"},
        {"172.32.0.1", NULL},
        {"192.0.0.8", "192.0.0.0/24"},
        {"192.0.1.0", NULL},
        {"192.0.2.1", NULL},
        {"192.88.99.1", "192.88.99.0/24"},
        {"192.167.255.255", NULL},
        {"192.168.255.255", "192.168.0.0/16"},
        {"192.169.0.0", NULL},
        {"198.17.255.255", NULL},
        {"198.18.0.0", "198.18.0.0/15"},
        {"198.19.255.255", "198.18.0.0/15"},
        {"198.20.0.0", NULL},
        {"198.51.100.1", NULL},
        {"203.0.113.1", NULL},
        {"223.255.255.255", NULL},
        {"224.0.0.1", "224.0.0.0/4"},
        {"240.0.0.1", "240.0.0.0/4"},
        {"255.255.255.255", "240.0.0.0/4"},
        {"::", "::"},
        {"::1", "::1"},
        {"fc00::1", "fc00::/7"},
        {"fdff::1", "fc00::/7"},
        {"fe00::1", NULL},
        {"fe80::1", "fe80::/10"},
        {"febf::1", "fe80::/10"},
        {"fec0::1", "fec0::/10"},
        {"ff02::1", "ff00::/8"},
        {"100::1", "100::/64"},
        {"100:0:0:1::", NULL},
        {"64:ff9b:1::1", "64:ff9b:1::/48"},
        {"64:ff9b:2::1", NULL},
        {"2001:2::1", "2001:2::/48"},
        {"2001:2:1::", NULL},
        {"2001:1f:ffff::1", "2001:10::/28"},
        {"2001:2f::", "2001:20::/28"},
        {"2001:30::", NULL},
        {"5f00::1", "5f00::/16"},
        {"2001:db8::1", NULL},
        {"3fff::1", NULL},
        {"2001:4860:4860::8888", NULL},
        // Forms that carry an IPv4 address.
        {"::ffff:169.254.169.254", "169.254.0.0/16"},
        {"::ffff:8.8.8.8", NULL},
        {"::ffff:0:127.0.0.1", "127.0.0.0/8"},
        {"::ffff:0:8.8.8.8", NULL},
        {"::127.0.0.1", "127.0.0.0/8"},
        {"::8.8.8.8", NULL},
        {"64:ff9b::7f00:1", "127.0.0.0/8"},
        {"64:ff9b::808:808", NULL},
        {"2002:a00:1::", "10.0.0.0/8"},
        {"2002:808:808::1", NULL},
        {"2001:0:102:304::f5ff:fffe", "10.0.0.0/8"},
        {"2001:0:102:304::f7f7:f7f7", NULL},
        {"2001:db8::5efe:10.0.0.1", "10.0.0.0/8"},
        {"2001:db8::200:5efe:10.0.0.1", "10.0.0.0/8"},
        {"2001:db8::5efe:8.8.8.8", NULL},
        {"2001:db8::100:5efe:10.0.0.1", NULL},
        {"fe80::5efe:8.8.8.8", "fe80::/10"},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct addr addr = parse(cases[i].addr);
        const char *block = addr_special_block(&addr, NULL, 0);
        if (!block != !cases[i].block || (block && strcmp(block, cases[i].block) != 0))
            fail_msg("%s is in %s", cases[i].addr, block ? block : "no block");
    }
}

// RFC 6052 section 2.4: 192.0.2.33 behind prefixes of each length.
static void nat64_forms(void **state) {
    (void)state;
    static const char *const forms[][2] = {
        {"2001:db8::/32", "2001:db8:c000:221::"},
        {"2001:db8:100::/40", "2001:db8:1c0:2:21::"},
        {"2001:db8:122::/48", "2001:db8:122:c000:2:2100::"},
        {"2001:db8:122:300::/56", "2001:db8:122:3c0:0:221::"},
        {"2001:db8:122:344::/64", "2001:db8:122:344:c0:2:2100::"},
        {"2001:db8:122:344::/96", "2001:db8:122:344::192.0.2.33"},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(forms); i++) {
        struct addr_prefix prefix = prefix_of(forms[i][0]);
        struct addr addr = parse(forms[i][1]), want = parse("192.0.2.33"), got;
        assert_true(addr_embedded_ipv4(&addr, &prefix, 1, &got));
        assert_true(addr_equal(&got, &want));
        assert_false(addr_embedded_ipv4(&addr, NULL, 0, &got));
    }
    // The operator's prefix decides, even inside a block that is local otherwise.
    struct addr_prefix local = prefix_of("64:ff9b:1::/96");
    struct addr open = parse("64:ff9b:1::808:808"), closed = parse("64:ff9b:1::a00:1"), got;
    assert_null(addr_special_block(&open, &local, 1));
    assert_string_equal(addr_special_block(&closed, &local, 1), "10.0.0.0/8");
    struct addr ipv4 = parse("8.8.8.8");
    assert_false(addr_embedded_ipv4(&ipv4, &local, 1, &got));
}

static void order_and_table(void **state) {
    (void)state;
    struct addr a = parse("255.255.255.255"), b = parse("::"), c = parse("::2"), d = parse("9.0.0.0");
    assert_true(addr_compare(&a, &b) < 0 && addr_compare(&b, &c) < 0 && addr_compare(&d, &a) < 0 &&
                addr_compare(&a, &a) == 0);
    const struct addr_prefix *table;
    size_t count = addr_special_blocks(&table);
    assert_int_equal(count, 24);
    char text[ADDR_TEXT_SIZE];
    for (size_t i = 0; i < count; i++) // every row says in text what it says in bytes
        assert_string_equal(addr_prefix_format(&table[i], text), addr_special_block(&table[i].addr, NULL, 0));
    struct addr loopback = parse("127.3.2.1"), one = parse("::1"), any = parse("0.0.0.0");
    assert_true(addr_is_loopback(&loopback) && addr_is_loopback(&one) && !addr_is_loopback(&any) &&
                !addr_is_loopback(&b));
    assert_true(addr_is_unspecified(&any) && addr_is_unspecified(&b) && !addr_is_unspecified(&one));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parses_and_prints),   cmocka_unit_test(refuses_what_is_not_an_address),
        cmocka_unit_test(sockaddr_round_trip), cmocka_unit_test(prefixes),
        cmocka_unit_test(prefix_edges),        cmocka_unit_test(classifier),
        cmocka_unit_test(nat64_forms),         cmocka_unit_test(order_and_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
