// SPDX-License-Identifier: Apache-2.0
#include "dns_lab.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"

static const char names[] =
    "version: 1\nallow:\n  - host: a.test\n  - host: four.test\n  - host: nx.test\n"
    "  - host: broken.test\n  - host: silent.test\n  - host: noroute.test\n  - host: stray.test\n"
    "  - host: mixed.test\n  - host: \"*.w.test\"\n";
static const char names_real[] = "version: 1\ndns: {names: real}\nallow:\n  - host: a.test\n    private: true\n"
                                 "  - host: mixed.test\n  - host: noroute.test\n    private: true\n"
                                 "  - host: stray.test\n    private: true\n"
                                 // what the lab's names lead to: only an entry that means the loopback opens it
                                 "  - cidr: 127.0.0.0/8\n    ports: [9]\n  - cidr: \"::1/128\"\n    ports: [9]\n";
static const char ranges[] = "version: 1\nallow:\n  - cidr: 127.0.0.0/8\n    ports: [443]\n";
static const char ranges_real[] = "version: 1\ndns: {names: real}\nallow:\n  - cidr: 127.0.0.0/8\n    ports: [443]\n";
static const char none_real[] = "version: 1\ndns: {names: real}\n";
static const char open[] = "version: 1\nbase: allow\n";

static void assert_decision(const struct lab *lab, enum policy_verdict verdict, enum policy_reason reason,
                            const char *name) {
    assert_string_equal(policy_reason_name(lab->decision.reason), policy_reason_name(reason));
    assert_int_equal(lab->decision.verdict, verdict);
    assert_string_equal(lab->decision.name, name);
}

// The whole message, byte by byte.
static void test_denied_bytes(void **state) {
    (void)state;
    struct lab lab;
    lab_start(&lab, names);
    lab_ask(&lab, "evil.com", DNS_A);
    static const char text[] = "egress_denied: evil.com is not in the policy; add --allow evil.com";
    const uint8_t head[] = {0x12, 0x34, 0x81, 0x83, 0, 1, 0, 0, 0,    1,  0, 1, 4, 'e', 'v', 'i', 'l', 3,
                            'c',  'o',  'm',  0,    0, 1, 0, 1, 0xc0, 12, 0, 6, 0, 1,   0,   0,   0,   5};
    assert_true(lab.len > sizeof(head));
    assert_memory_equal(lab.answer, head, sizeof(head));
    const uint8_t opt[] = {0, 0, 41, 4, 208, 0, 0, 0, 0, 0, sizeof(text) - 1 + 6, 0, 15, 0, sizeof(text) - 1 + 2,
                           0, 15};
    size_t tail = sizeof(opt) + sizeof(text) - 1;
    assert_memory_equal(lab.answer + lab.len - tail, opt, sizeof(opt));
    assert_memory_equal(lab.answer + lab.len - (sizeof(text) - 1), text, sizeof(text) - 1);
    assert_int_equal(lab.asked, 0);
    assert_int_equal(lab.decisions, 1);
    assert_decision(&lab, POLICY_DENY, POLICY_DNS_NAME_DENIED, "evil.com");
    struct addr server = lab_addr("192.0.0.2");
    assert_true(addr_equal(&lab.decision.server, &server));
    lab_end(&lab);
}

struct expect {
    const char *name;
    uint16_t type;
    uint8_t rcode;
    uint16_t answers;
    const char *address;
    int ede;
    unsigned asked;
    enum policy_verdict verdict;
    enum policy_reason reason;
};

static void run_cases(const char *yaml, const struct expect *cases, size_t count) {
    for (size_t i = 0; i < count; i++) {
        const struct expect *expect = &cases[i];
        struct lab lab;
        char buf[ADDR_TEXT_SIZE];
        lab_start(&lab, yaml);
        lab_ask(&lab, expect->name, expect->type);
        struct lab_answer answer = lab_read(lab.answer, lab.len);
        if (answer.rcode != expect->rcode || answer.answers != expect->answers || answer.ede != expect->ede ||
            lab.asked != expect->asked)
            fail_msg("%s type %u: rcode %u, %u answers, ede %d '%s', asked %u", expect->name, expect->type,
                     answer.rcode, answer.answers, answer.ede, answer.ede_text, lab.asked);
        if (expect->address) assert_string_equal(addr_format(&answer.address, buf), expect->address);
        assert_int_equal(answer.authorities,
                         answer.answers == 0 && answer.rcode != DNS_SERVFAIL && answer.rcode != DNS_REFUSED);
        assert_int_equal(lab.decisions, expect->verdict != POLICY_INSPECT);
        if (lab.decisions) assert_decision(&lab, expect->verdict, expect->reason, expect->name);
        lab_end(&lab);
    }
}

#define RUN(yaml, cases) run_cases(yaml, cases, sizeof(cases) / sizeof((cases)[0]))
#define ALLOWED POLICY_ALLOW, POLICY_ALLOWED_NAME
#define DENIED POLICY_DENY, POLICY_DNS_NAME_DENIED
#define LOCAL POLICY_INSPECT, POLICY_REASON_COUNT // the gate's own answer: nothing was decided, nothing is logged

static void test_synthetic(void **state) {
    (void)state;
    const struct expect cases[] = {
        {"a.test", DNS_A, DNS_NOERROR, 1, "198.18.0.1", -1, 1, ALLOWED},
        {"a.test", DNS_AAAA, DNS_NOERROR, 1, "fd53:796e::1", -1, 1, ALLOWED},
        {"x.y.w.test", DNS_A, DNS_NOERROR, 1, "198.18.0.1", -1, 1, ALLOWED},
        {"w.test", DNS_A, DNS_NXDOMAIN, 0, NULL, 15, 0, DENIED},
        {"stray.test", DNS_A, DNS_NOERROR, 1, "198.18.0.1", -1, 1, ALLOWED},
        {"mixed.test", DNS_A, DNS_NOERROR, 1, "198.18.0.1", -1, 1, ALLOWED}, // judged when dialled
        {"four.test", DNS_AAAA, DNS_NOERROR, 0, NULL, -1, 1, ALLOWED},
        {"noroute.test", DNS_A, DNS_NOERROR, 0, NULL, -1, 1, ALLOWED},
        {"nx.test", DNS_A, DNS_NXDOMAIN, 0, NULL, -1, 1, ALLOWED},
        {"broken.test", DNS_A, DNS_SERVFAIL, 0, NULL, 23, 1, POLICY_DENY, POLICY_DNS_FAILED},
        {"silent.test", DNS_A, DNS_SERVFAIL, 0, NULL, 23, 1, POLICY_DENY, POLICY_DNS_FAILED},
        {"a.test", DNS_HTTPS, DNS_NOERROR, 0, NULL, -1, 0, ALLOWED},
        {"a.test", DNS_SVCB, DNS_NOERROR, 0, NULL, -1, 0, ALLOWED},
        {"a.test", DNS_TXT, DNS_NOERROR, 1, NULL, -1, 1, ALLOWED},
        {"evil.test", DNS_TXT, DNS_NXDOMAIN, 0, NULL, 15, 0, DENIED},
        {"a.test", DNS_MX, DNS_NOERROR, 1, NULL, -1, 1, ALLOWED}, // the one to evil.test is left out
        {"a.test", DNS_CNAME, DNS_NOERROR, 0, NULL, -1, 1, ALLOWED},
        {"evil.test", DNS_HTTPS, DNS_NXDOMAIN, 0, NULL, 15, 0, DENIED},
        {"1.2.0.192.in-addr.arpa", DNS_PTR, DNS_NXDOMAIN, 0, NULL, 15, 0, DENIED},
        {"9.0.18.198.in-addr.arpa", DNS_PTR, DNS_NXDOMAIN, 0, NULL, -1, 0, LOCAL},
        {"1.0.0.127.in-addr.arpa", DNS_PTR, DNS_NOERROR, 1, NULL, -1, 0, LOCAL},
        {"localhost", DNS_A, DNS_NOERROR, 1, "127.0.0.1", -1, 0, LOCAL},
        {"x.localhost", DNS_AAAA, DNS_NOERROR, 1, "::1", -1, 0, LOCAL},
        {"localhost", DNS_TXT, DNS_NOERROR, 0, NULL, -1, 0, LOCAL},
        {"", DNS_NS, DNS_NXDOMAIN, 0, NULL, 15, 0, DENIED},
        {"a.test", DNS_ANY, DNS_REFUSED, 0, NULL, -1, 0, POLICY_DENY, POLICY_DNS_BAD_MESSAGE},
        {"a.test", DNS_AXFR, DNS_REFUSED, 0, NULL, -1, 0, POLICY_DENY, POLICY_DNS_BAD_MESSAGE},
        {"a.test", DNS_IXFR, DNS_REFUSED, 0, NULL, -1, 0, POLICY_DENY, POLICY_DNS_BAD_MESSAGE},
    };
    RUN(names, cases);
}

static void test_real(void **state) {
    (void)state;
    const struct expect cases[] = {
        {"a.test", DNS_A, DNS_NOERROR, 1, "127.0.0.5", -1, 1, ALLOWED},
        {"a.test", DNS_AAAA, DNS_NOERROR, 1, "::1", -1, 1, ALLOWED},
        {"stray.test", DNS_A, DNS_NOERROR, 1, "127.0.0.7", -1, 1, ALLOWED}, // flat: one record, no CNAME
        {"mixed.test", DNS_A, DNS_NOERROR, 0, NULL, 15, 1, POLICY_DENY, POLICY_PRIVATE_ADDRESS},
        {"noroute.test", DNS_A, DNS_NOERROR, 0, NULL, -1, 1, ALLOWED},
        {"evil.test", DNS_A, DNS_NXDOMAIN, 0, NULL, 15, 0, DENIED},
        {"a.test", DNS_HTTPS, DNS_NOERROR, 1, NULL, -1, 1, ALLOWED},
    };
    RUN(names_real, cases);
}

static void test_ranges(void **state) {
    (void)state;
    const struct expect closed[] = {{"a.test", DNS_A, DNS_NXDOMAIN, 0, NULL, 15, 0, DENIED}};
    RUN(ranges, closed);
    RUN(none_real, closed); // no range at all: nothing could be answered, so nothing leaves
    const struct expect cases[] = {
        {"a.test", DNS_A, DNS_NOERROR, 1, "127.0.0.5", -1, 1, POLICY_ALLOW, POLICY_ALLOWED_CIDR},
        {"mixed.test", DNS_A, DNS_NOERROR, 0, NULL, 15, 1, POLICY_DENY, POLICY_BASE_DENIED},
        {"a.test", DNS_AAAA, DNS_NOERROR, 0, NULL, 15, 1, POLICY_DENY, POLICY_PRIVATE_ADDRESS},
        {"a.test", DNS_TXT, DNS_NOERROR, 0, NULL, -1, 0, POLICY_ALLOW, POLICY_ALLOWED_CIDR},
    };
    RUN(ranges_real, cases);
}

static void test_open(void **state) {
    (void)state;
    const struct expect cases[] = {
        {"a.test", DNS_A, DNS_NOERROR, 1, "127.0.0.5", -1, 1, POLICY_ALLOW, POLICY_ALLOWED_BASE},
        {"stray.test", DNS_A, DNS_NOERROR, 3, "127.0.0.66", -1, 1, POLICY_ALLOW, POLICY_ALLOWED_BASE},
        {"a.test", DNS_MX, DNS_NOERROR, 2, NULL, -1, 1, POLICY_ALLOW, POLICY_ALLOWED_BASE},
        {"1.2.0.192.in-addr.arpa", DNS_PTR, DNS_NOERROR, 1, NULL, -1, 1, POLICY_ALLOW, POLICY_ALLOWED_BASE},
        {"nx.test", DNS_TXT, DNS_NXDOMAIN, 0, NULL, -1, 1, POLICY_ALLOW, POLICY_ALLOWED_BASE},
        {"localhost", DNS_A, DNS_NOERROR, 1, "127.0.0.1", -1, 0, LOCAL},
        {"a.test", DNS_ANY, DNS_REFUSED, 0, NULL, -1, 0, POLICY_DENY, POLICY_DNS_BAD_MESSAGE},
    };
    RUN(open, cases);
}

// A host with a credential is known by its name, so it never has its real address in the sandbox.
static void test_bound(void **state) {
    (void)state;
    static const char bound[] = "version: 1\nbase: allow\ncredentials: [{host: a.test, header: X, secret: 'env:A'}]\n";
    static const char bound_real[] = "version: 1\ndns: {names: real}\nallow: [{host: a.test, private: true}]\n"
                                     "credentials: [{host: a.test, header: X, secret: 'env:A'}]\n";
    const struct expect cases[] = {
        {"a.test", DNS_A, DNS_NOERROR, 1, "198.18.0.1", -1, 1, POLICY_ALLOW, POLICY_ALLOWED_BASE},
        {"a.test", DNS_HTTPS, DNS_NOERROR, 0, NULL, -1, 0, POLICY_ALLOW, POLICY_ALLOWED_BASE},
        {"stray.test", DNS_A, DNS_NOERROR, 3, "127.0.0.66", -1, 1, POLICY_ALLOW, POLICY_ALLOWED_BASE},
    };
    RUN(bound, cases);
    const struct expect real[] = {
        {"a.test", DNS_A, DNS_NOERROR, 1, "198.18.0.1", -1, 1, ALLOWED},
        {"a.test", DNS_AAAA, DNS_NOERROR, 1, "fd53:796e::1", -1, 1, ALLOWED},
    };
    RUN(bound_real, real);
}

// HTTPS loses h3 and ech, whatever the policy.
static void test_https_stripped(void **state) {
    (void)state;
    struct lab lab;
    lab_start(&lab, open);
    lab_ask(&lab, "a.test", DNS_HTTPS);
    const uint8_t rdata[] = {0, 10, 0, 1, 0, 0, 1, 0, 3, 2, 'h', '2'};
    assert_int_equal(lab_read(lab.answer, lab.len).answers, 1);
    assert_non_null(memmem(lab.answer, lab.len, rdata, sizeof(rdata)));
    assert_null(memmem(lab.answer, lab.len, "h3", 2));
    lab_end(&lab);
}

// Under base allow the server that the sandbox addressed is asked, if it may be.
static void test_open_server(void **state) {
    (void)state;
    const struct {
        const char *server;
        int has_server;
    } cases[] = {{"203.0.113.53", 1}, {"2001:db8::53", 1}, {"127.0.0.53", 0}, {"192.0.0.2", 0},
                 {"fd5a:91c3:7e24:1::2", 0}, {"10.0.0.1", 0}, {"198.18.0.1", 0}, {"0.0.0.0", 0}};
    uint8_t message[512];
    size_t len = lab_question(message, "a.test", DNS_A, true);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct lab lab;
        lab_start(&lab, open);
        struct addr server = lab_addr(cases[i].server);
        dns_front_query(lab.front, message, len, &server, lab_reply, &lab);
        lab_until(&lab, &lab.replies, 1);
        assert_int_equal(lab.last.has_server, cases[i].has_server);
        if (cases[i].has_server) assert_true(addr_equal(&lab.last.server.address, &server));
        lab_end(&lab);
    }
}

static void test_bad_messages(void **state) {
    (void)state;
    struct lab lab;
    struct addr server = lab_addr("192.0.0.2");
    uint8_t message[512];
    lab_start(&lab, names);
    size_t len = lab_question(message, "a.test", DNS_A, false);
    dns_front_query(lab.front, message, 11, &server, lab_reply, &lab);
    assert_int_equal(lab.nothing, 1);
    message[2] |= 0x80; // a response
    dns_front_query(lab.front, message, len, &server, lab_reply, &lab);
    assert_int_equal(lab.nothing, 2);
    lab_question(message, "a.test", DNS_A, false);
    message[2] = 5 << 3; // an update
    dns_front_query(lab.front, message, len, &server, lab_reply, &lab);
    assert_int_equal(lab_read(lab.answer, lab.len).rcode, DNS_NOTIMP);
    lab_question(message, "a.test", DNS_A, false);
    message[5] = 2; // two questions
    dns_front_query(lab.front, message, len, &server, lab_reply, &lab);
    assert_int_equal(lab_read(lab.answer, lab.len).rcode, DNS_FORMERR);
    lab_question(message, "a.test", DNS_A, false);
    message[len - 1] = 3; // class CH
    dns_front_query(lab.front, message, len, &server, lab_reply, &lab);
    assert_int_equal(lab_read(lab.answer, lab.len).rcode, DNS_REFUSED);
    lab_question(message, "a.test", DNS_A, false);
    message[13] = 0; // NUL in the name
    dns_front_query(lab.front, message, len, &server, lab_reply, &lab);
    assert_int_equal(lab_read(lab.answer, lab.len).rcode, DNS_NXDOMAIN);
    assert_int_equal(lab.decisions, 6);
    assert_decision(&lab, POLICY_DENY, POLICY_DNS_BAD_MESSAGE, "");
    assert_int_equal(lab.asked, 0);
    lab_end(&lab);
}

static void test_pointer_of_pool(void **state) {
    (void)state;
    struct lab lab;
    lab_start(&lab, names);
    lab_ask(&lab, "a.test", DNS_A);
    const char *const reverse[] = {"1.0.18.198.in-addr.arpa",
                                   "1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.e.6.9.7.3.5.d.f.ip6.arpa"};
    const uint8_t rdata[] = {0, 8, 1, 'a', 4, 't', 'e', 's', 't', 0};
    for (size_t i = 0; i < 2; i++) {
        lab_ask(&lab, reverse[i], DNS_PTR);
        assert_int_equal(lab_read(lab.answer, lab.len).answers, 1);
        assert_non_null(memmem(lab.answer, lab.len, rdata, sizeof(rdata)));
    }
    assert_int_equal(lab.asked, 1);
    lab_end(&lab);
}

static void test_name_limit(void **state) {
    (void)state;
    struct lab lab;
    char name[32];
    lab_start(&lab, names);
    for (int i = 0; i <= DNS_POOL_MAX; i++) {
        snprintf(name, sizeof(name), "n%d.w.test", i);
        lab_ask(&lab, name, DNS_A);
        assert_int_equal(lab_read(lab.answer, lab.len).rcode, i < DNS_POOL_MAX ? DNS_NOERROR : DNS_SERVFAIL);
    }
    struct lab_answer answer = lab_read(lab.answer, lab.len);
    assert_int_equal(answer.ede, 0);
    assert_string_equal(answer.ede_text, "limit_exceeded: a sandbox can use at most 4096 names");
    assert_decision(&lab, POLICY_DENY, POLICY_LIMIT_EXCEEDED, "n4096.w.test");
    lab_ask(&lab, "n7.w.test", DNS_A); // known names still work
    assert_int_equal(lab_read(lab.answer, lab.len).answers, 1);
    lab_end(&lab);
}

static void test_pending_limit(void **state) {
    (void)state;
    struct lab lab;
    struct addr server = lab_addr("192.0.0.2");
    uint8_t message[512];
    lab_start(&lab, names);
    lab.silent = true;
    size_t len = lab_question(message, "a.test", DNS_A, true);
    for (int i = 0; i < DNS_FRONT_PENDING_MAX; i++) dns_front_query(lab.front, message, len, &server, lab_reply, &lab);
    assert_int_equal(lab.replies, 0);
    dns_front_query(lab.front, message, len, &server, lab_reply, &lab);
    assert_int_equal(lab.replies, 1);
    assert_int_equal(lab_read(lab.answer, lab.len).rcode, DNS_SERVFAIL);
    assert_decision(&lab, POLICY_DENY, POLICY_LIMIT_EXCEEDED, "a.test");
    lab_end(&lab); // each that waits gets its reply, empty
    assert_int_equal(lab.replies, 1 + DNS_FRONT_PENDING_MAX);
    assert_int_equal(lab.nothing, DNS_FRONT_PENDING_MAX);
}

// An update while a lookup is under way: the new policy answers.
static void test_policy_change(void **state) {
    (void)state;
    struct lab lab;
    struct addr server = lab_addr("192.0.0.2");
    uint8_t message[512];
    lab_start(&lab, names);
    size_t len = lab_question(message, "a.test", DNS_A, true);
    dns_front_query(lab.front, message, len, &server, lab_reply, &lab);
    assert_int_equal(lab.replies, 0);
    struct policy *before = lab.policy;
    lab.policy = lab_policy("version: 1\nallow:\n  - host: other.test\n");
    policy_free(before);
    lab_until(&lab, &lab.replies, 1);
    assert_int_equal(lab_read(lab.answer, lab.len).rcode, DNS_NXDOMAIN);
    assert_decision(&lab, POLICY_DENY, POLICY_DNS_NAME_DENIED, "a.test");
    lab_end(&lab);
}

static void test_resolver_gone(void **state) {
    (void)state;
    struct lab lab;
    lab_start(&lab, names);
    close(lab.resolver);
    lab.resolver = -1;
    lab_ask(&lab, "a.test", DNS_A);
    struct lab_answer answer = lab_read(lab.answer, lab.len);
    assert_int_equal(answer.rcode, DNS_SERVFAIL);
    assert_int_equal(answer.ede, DNS_EDE_NETWORK_ERROR);
    assert_string_equal(answer.ede_text, "dns_failed: a.test: the resolver is gone");
    lab_ask(&lab, "evil.test", DNS_A);
    assert_int_equal(lab_read(lab.answer, lab.len).rcode, DNS_NXDOMAIN);
    lab_end(&lab);
}

static void test_denied_latency(void **state) {
    (void)state;
    struct lab lab;
    uint8_t message[512];
    struct addr server = lab_addr("192.0.0.2");
    lab_start(&lab, names);
    size_t len = lab_question(message, "evil.com", DNS_A, true);
    uint64_t start = clock_us();
    for (int i = 0; i < 1000; i++) dns_front_query(lab.front, message, len, &server, lab_reply, &lab);
    uint64_t each_ns = clock_us() - start;
    print_message("a denied answer takes %.1f us\n", (double)each_ns / 1000);
    assert_int_equal(lab.replies, 1000); // at once
    assert_true(each_ns < 50000000 / 10);
    lab_end(&lab);
}

// ---- relay to an allowed server ----

static void test_relay(void **state) {
    (void)state;
    struct lab lab;
    uint16_t port;
    uint8_t message[512];
    struct lab_server *server = lab_server_new(&port);
    struct addr loopback = lab_addr("127.0.0.1");
    lab_start(&lab, ranges);
    size_t len = lab_question(message, "a.test", DNS_A, false);
    dns_front_relay(lab.front, message, len, &loopback, port, lab_reply, &lab);
    lab_until(&lab, &lab.replies, 1);
    char buf[ADDR_TEXT_SIZE];
    struct lab_answer answer = lab_read(lab.answer, lab.len);
    assert_string_equal(addr_format(&answer.address, buf), "127.0.0.5");
    assert_int_equal(lab_server_udp(server), 1);
    assert_int_equal(lab.asked, 0);
    // Nobody there: told at once.
    dns_front_relay(lab.front, message, len, &loopback, 1, lab_reply, &lab);
    lab_until(&lab, &lab.replies, 2);
    assert_int_equal(lab_read(lab.answer, lab.len).rcode, DNS_SERVFAIL);
    // No answer: SERVFAIL after the deadline; and not more than the limit at a time.
    len = lab_question(message, "silent.test", DNS_A, false);
    uint64_t start = clock_us();
    for (int i = 0; i < 65; i++) dns_front_relay(lab.front, message, len, &loopback, port, lab_reply, &lab);
    assert_int_equal(lab.replies, 3);
    assert_decision(&lab, POLICY_DENY, POLICY_LIMIT_EXCEEDED, "silent.test");
    lab_until(&lab, &lab.replies, 67);
    uint64_t took = clock_us() - start;
    assert_true(took > 4500000 && took < 7000000);
    assert_int_equal(lab_read(lab.answer, lab.len).rcode, DNS_SERVFAIL);
    dns_front_relay(lab.front, message, 5, &loopback, port, lab_reply, &lab);
    assert_int_equal(lab.nothing, 1);
    dns_front_relay(lab.front, message, len, &loopback, port, lab_reply, &lab);
    lab_end(&lab); // while it waits
    assert_int_equal(lab.nothing, 2);
    lab_server_free(server);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_denied_bytes),
        cmocka_unit_test(test_synthetic),
        cmocka_unit_test(test_real),
        cmocka_unit_test(test_ranges),
        cmocka_unit_test(test_open), cmocka_unit_test(test_bound),
        cmocka_unit_test(test_https_stripped),
        cmocka_unit_test(test_open_server),
        cmocka_unit_test(test_bad_messages),
        cmocka_unit_test(test_pointer_of_pool),
        cmocka_unit_test(test_name_limit),
        cmocka_unit_test(test_pending_limit),
        cmocka_unit_test(test_policy_change),
        cmocka_unit_test(test_resolver_gone),
        cmocka_unit_test(test_denied_latency),
        cmocka_unit_test(test_relay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
