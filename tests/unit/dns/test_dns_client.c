// SPDX-License-Identifier: Apache-2.0
#include "dns_lab.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "dns/dns_addresses.h"
#include "net/net.h"

static const char policy_text[] = "version: 1\nallow:\n  - host: a.test\n";

struct ended {
    unsigned count;
    int status;
    size_t len, address_count;
    struct addr addresses[DNS_ADDRESSES_MAX];
};

static void lookup_ended(int status, const uint8_t *answer, size_t len, void *data) {
    struct ended *ended = data;
    ended->count++;
    ended->status = status;
    ended->len = len;
    assert_int_equal(answer != NULL, status == 0);
}

static void resolve_ended(int status, const struct addr *addresses, size_t count, void *data) {
    struct ended *ended = data;
    ended->count++;
    ended->status = status;
    ended->address_count = count;
    memcpy(ended->addresses, addresses, count * sizeof(*addresses));
}

static void assert_addr(const struct addr *addr, const char *text) {
    char buf[ADDR_TEXT_SIZE];
    assert_string_equal(addr_format(addr, buf), text);
}

static void test_lookup(void **state) {
    (void)state;
    struct lab lab;
    struct ended ended = {0};
    lab_start(&lab, policy_text);
    struct addr server = lab_addr("203.0.113.53");
    assert_non_null(dns_client_lookup(lab.client, "a.test", DNS_TXT, &server, 5353, lookup_ended, &ended));
    assert_int_equal(ended.count, 0);
    lab_until(&lab, &ended.count, 1);
    assert_int_equal(ended.status, 0);
    assert_true(ended.len > 12);
    assert_string_equal(lab.last.name, "a.test");
    assert_int_equal(lab.last.type, DNS_TXT);
    assert_int_equal(lab.last.has_server, 1);
    assert_int_equal(lab.last.server.port, 5353);
    assert_true(addr_equal(&lab.last.server.address, &server));
    assert_non_null(dns_client_lookup(lab.client, "broken.test", DNS_A, NULL, 0, lookup_ended, &ended));
    lab_until(&lab, &ended.count, 2);
    assert_int_equal(ended.status, -EIO);
    assert_int_equal(lab.last.has_server, 0);
    lab_end(&lab);
}

// What came a moment ago is not asked again: by name and type, of the usual servers, with records, for a second.
static void test_recent(void **state) {
    (void)state;
    struct lab lab;
    struct ended ended = {0}, many = {0};
    lab_start(&lab, policy_text);
    struct addr server = lab_addr("203.0.113.53");
    const struct {
        const char *name;
        uint16_t type;
        const struct addr *server;
        unsigned asked;
    } cases[] = {
        {"a.test", DNS_A, NULL, 1},      {"a.test", DNS_A, NULL, 1},    {"a.test", DNS_AAAA, NULL, 2},
        {"a.test", DNS_A, &server, 3},   {"a.test", DNS_A, &server, 4}, {"nx.test", DNS_A, NULL, 5},
        {"nx.test", DNS_A, NULL, 6},     {"broken.test", DNS_A, NULL, 7}, {"broken.test", DNS_A, NULL, 8},
    };
    for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_non_null(dns_client_lookup(lab.client, cases[i].name, cases[i].type, cases[i].server, 53, lookup_ended, &ended));
        assert_int_equal(ended.count, i); // not from inside
        lab_until(&lab, &ended.count, i + 1);
        assert_int_equal(lab.asked, cases[i].asked);
    }
    // As many names as a program may use by turns.
    for (unsigned i = 0; i < 400; i++) {
        char name[16];
        snprintf(name, sizeof(name), "h%u.test", i % 100);
        assert_non_null(dns_client_lookup(lab.client, name, i / 100 % 2 ? DNS_A : DNS_AAAA, NULL, 0, lookup_ended, &many));
        lab_until(&lab, &many.count, i + 1);
    }
    assert_in_range(lab.asked, 208, 228); // few hashes are those of more than four
    dns_lookup_cancel(dns_client_lookup(lab.client, "a.test", DNS_A, NULL, 0, lookup_ended, &ended));
    unsigned asked = lab.asked;
    usleep(1050000);
    assert_non_null(dns_client_lookup(lab.client, "a.test", DNS_A, NULL, 0, lookup_ended, &ended));
    lab_until(&lab, &ended.count, 10);
    assert_int_equal(lab.asked, asked + 1);
    lab_end(&lab);
}

static void test_cancel_and_late_answer(void **state) {
    (void)state;
    struct lab lab;
    struct ended first = {0}, second = {0};
    lab_start(&lab, policy_text);
    lab.silent = true;
    struct dns_lookup *lookup = dns_client_lookup(lab.client, "a.test", DNS_A, NULL, 0, lookup_ended, &first);
    lab_until(&lab, &lab.asked, 1);
    uint32_t id = lab.last.id;
    dns_lookup_cancel(lookup);
    // The next lookup, whichever slot it gets, must not take the answer to the old one.
    for (int i = 0; i < 512; i++)
        assert_non_null(dns_client_lookup(lab.client, "b.test", DNS_A, NULL, 0, lookup_ended, &second));
    lab_turn(&lab);
    struct ipc_answer late = {.id = id, .status = -EIO};
    assert_int_equal(channel_send(lab.resolver, IPC_ANSWER, &late, sizeof(late), NULL, 0), 0);
    lab_turn(&lab);
    assert_int_equal(first.count, 0);
    assert_int_equal(second.count, 0);
    assert_null(dns_client_lookup(lab.client, "c.test", DNS_A, NULL, 0, lookup_ended, &second)); // 513
    lab_end(&lab);
    assert_int_equal(second.count, 0); // freeing calls nobody
}

static void test_resolver_gone(void **state) {
    (void)state;
    struct lab lab;
    struct ended ended = {0};
    lab_start(&lab, policy_text);
    lab.silent = true;
    for (int i = 0; i < 300; i++) dns_client_lookup(lab.client, "a.test", DNS_A, NULL, 0, lookup_ended, &ended);
    lab_until(&lab, &lab.asked, 1);
    close(lab.resolver);
    lab.resolver = -1;
    lab_until(&lab, &ended.count, 300);
    assert_int_equal(ended.status, -EPIPE);
    assert_non_null(dns_client_lookup(lab.client, "a.test", DNS_A, NULL, 0, lookup_ended, &ended));
    assert_int_equal(ended.count, 300); // not from inside
    lab_until(&lab, &ended.count, 301);
    assert_int_equal(ended.status, -EPIPE);
    lab_end(&lab);
}

static void test_resolver_talks_nonsense(void **state) {
    (void)state;
    struct lab lab;
    struct ended ended = {0};
    lab_start(&lab, policy_text);
    lab.silent = true;
    dns_client_lookup(lab.client, "a.test", DNS_A, NULL, 0, lookup_ended, &ended);
    lab_until(&lab, &lab.asked, 1);
    assert_int_equal(channel_send(lab.resolver, IPC_RESOLVER_READY, NULL, 0, NULL, 0), 0);
    lab_until(&lab, &ended.count, 1);
    assert_int_equal(ended.status, -EPIPE);
    lab_end(&lab);
}

static void test_resolve(void **state) {
    (void)state;
    const struct {
        const char *name;
        enum addr_family family;
        int status;
        size_t count;
        const char *first, *last;
        unsigned asked;
    } cases[] = {
        {"a.test", ADDR_NONE, 0, 2, "::1", "127.0.0.5", 2},
        {"a.test", ADDR_IPV4, 0, 1, "127.0.0.5", "127.0.0.5", 1},
        {"a.test", ADDR_IPV6, 0, 1, "::1", "::1", 1},
        {"four.test", ADDR_NONE, 0, 1, "127.0.0.4", "127.0.0.4", 2},
        {"four.test", ADDR_IPV6, 0, 0, NULL, NULL, 1},
        {"nx.test", ADDR_NONE, 0, 0, NULL, NULL, 2},
        {"broken.test", ADDR_NONE, -EIO, 0, NULL, NULL, 2},
        {"big.test", ADDR_NONE, 0, 32, "127.0.0.1", "127.0.0.32", 2},
        {"stray.test", ADDR_IPV4, 0, 1, "127.0.0.7", "127.0.0.7", 1},
        {"localhost", ADDR_NONE, 0, 2, "::1", "127.0.0.1", 0},
        {"x.localhost", ADDR_IPV4, 0, 1, "127.0.0.1", "127.0.0.1", 0},
        {"xlocalhost", ADDR_IPV4, 0, 1, "127.0.0.5", "127.0.0.5", 1},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct lab lab;
        struct ended ended = {0};
        lab_start(&lab, policy_text);
        assert_non_null(dns_client_resolve(lab.client, cases[i].name, cases[i].family, resolve_ended, &ended));
        assert_int_equal(ended.count, 0);
        lab_until(&lab, &ended.count, 1);
        assert_int_equal(ended.status, cases[i].status);
        assert_int_equal(ended.address_count, cases[i].count);
        if (cases[i].first) assert_addr(&ended.addresses[0], cases[i].first);
        if (cases[i].last) assert_addr(&ended.addresses[ended.address_count - 1], cases[i].last);
        assert_int_equal(lab.asked, cases[i].asked);
        dns_resolve_cancel(dns_client_resolve(lab.client, cases[i].name, cases[i].family, resolve_ended, &ended));
        lab_turn(&lab);
        assert_int_equal(ended.count, 1);
        lab_end(&lab);
    }
}

static void test_chain_loop(void **state) {
    (void)state;
    uint8_t message[128], answer[512];
    struct dns_question question;
    struct dns_writer writer;
    struct dns_addresses found;
    size_t len = lab_question(message, "a.test", DNS_A, false);
    assert_int_equal(dns_question_parse(message, len, &question), 0);
    dns_answer_begin(&writer, answer, sizeof(answer), &question, DNS_NOERROR);
    dns_answer_name(&writer, "a.test", DNS_CNAME, "b.test", 1);
    dns_answer_name(&writer, "b.test", DNS_CNAME, "a.test", 1);
    int r = dns_answer_end(&writer);
    assert_int_equal(dns_addresses_read(answer, (size_t)r, "a.test", DNS_A, &found), -EBADMSG);
    assert_int_equal(dns_addresses_read(answer, (size_t)r - 1, "a.test", DNS_A, &found), -EBADMSG);
    assert_int_equal(dns_addresses_read(answer, 11, "a.test", DNS_A, &found), -EBADMSG);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lookup),        cmocka_unit_test(test_cancel_and_late_answer),
        cmocka_unit_test(test_recent),        cmocka_unit_test(test_resolver_gone), cmocka_unit_test(test_resolver_talks_nonsense),
        cmocka_unit_test(test_resolve),       cmocka_unit_test(test_chain_loop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
