// SPDX-License-Identifier: Apache-2.0
// The summary of denials, to the letter.
#include "daemon/denials.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/mem.h"
#include "policy/policy.h"

static void add(struct denials *denials, enum policy_protocol protocol, const char *where, uint16_t port,
                enum policy_reason reason, const char *hint) {
    struct ipc_decision record = {.event = IPC_EVENT_DECISION, .protocol = (uint8_t)protocol, .verdict = POLICY_DENY,
                                  .reason = (uint8_t)reason, .port = port};
    if (addr_parse(where, strlen(where), &record.address) < 0) snprintf(record.name, sizeof(record.name), "%s", where);
    snprintf(record.hint, sizeof(record.hint), "%s", hint);
    denials_add(denials, &record);
}

static void assert_printed(const struct denials *denials, const char *policy_file, bool options, const char *expected) {
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    assert_non_null(out);
    assert_int_equal(denials_print(denials, policy_file, out), options);
    fclose(out);
    assert_string_equal(text, expected);
    free(text);
}

static void test_one_line_a_destination(void **state) {
    (void)state;
    struct denials *denials = denials_new();
    for (int round = 0; round < 2; round++)
        for (uint16_t port = 1; port < 40; port++)
            add(denials, POLICY_TCP, "203.0.113.9", port, POLICY_BASE_DENIED, "--allow-cidr 203.0.113.9");
    add(denials, POLICY_TCP, "2001:db8::1", 443, POLICY_BASE_DENIED, "--allow-cidr 2001:db8::1");
    add(denials, POLICY_TCP, "a.example", 8443, POLICY_PORT_DENIED, "--allow a.example:8443");
    add(denials, POLICY_TCP, "a.example", 443, POLICY_PORT_DENIED, "--allow a.example");
    add(denials, POLICY_DNS, "a.example", 53, POLICY_DNS_NAME_DENIED, "--allow a.example");
    assert_printed(denials, NULL, true,
                   "penstock: denied tcp 203.0.113.9:1,2,3,4 and other ports (base_denied) 78 times; to allow: --allow-cidr "
                   "203.0.113.9\n"
                   "penstock: denied tcp [2001:db8::1]:443 (base_denied) 1 time; to allow: --allow-cidr 2001:db8::1\n"
                   "penstock: denied tcp a.example:8443,443 (port_denied) 2 times; to allow: --allow a.example:8443 --allow "
                   "a.example\n"
                   "penstock: denied dns a.example (dns_name_denied) 1 time; to allow: --allow a.example\n");
    denials_free(denials);
}

static void test_entries_of_a_file(void **state) {
    (void)state;
    struct denials *denials = denials_new();
    add(denials, POLICY_TCP, "203.0.113.9", 22, POLICY_BASE_DENIED, "--allow-cidr 203.0.113.9");
    add(denials, POLICY_TCP, "a.example", 8443, POLICY_PORT_DENIED, "--allow a.example:8443");
    add(denials, POLICY_TCP, "a.example", 443, POLICY_PORT_DENIED, "--allow a.example");
    add(denials, POLICY_TCP, "b.example", 80, POLICY_NOT_HTTPS, "policy entry {host: b.example, protocol: http, ports: [80]}");
    add(denials, POLICY_TCP, "c.example", 443, POLICY_PRIVATE_ADDRESS, "--allow-private");
    add(denials, POLICY_TCP, "d.example", 443, POLICY_BASE_DENIED, "something else");
    add(denials, POLICY_TCP, "e.example", 443, POLICY_PRIVATE_ADDRESS, "--allow-private (words)");
    for (uint16_t port = 1; port < 9; port++) {
        char hint[POLICY_HINT_SIZE];
        snprintf(hint, sizeof(hint), "policy entry {cidr: \"192.0.2.1\", protocol: tcp, ports: [%u]} (words)", port);
        add(denials, POLICY_TCP, "192.0.2.1", port, POLICY_BASE_DENIED, hint);
    }
    assert_printed(denials, "p.yaml", true,
                   "penstock: denied tcp 203.0.113.9:22 (base_denied) 1 time; to allow, in \"p.yaml\" under allow: "
                   "- cidr: \"203.0.113.9\"\n"
                   "penstock: denied tcp a.example:8443,443 (port_denied) 2 times; to allow, in \"p.yaml\" under allow: "
                   "- {host: \"a.example\", ports: [8443]}, - host: \"a.example\"\n"
                   "penstock: denied tcp b.example:80 (not_https) 1 time; to allow, in \"p.yaml\" under allow: "
                   "- {host: b.example, protocol: http, ports: [80]}\n"
                   "penstock: denied tcp c.example:443 (private_address) 1 time; to allow, in \"p.yaml\" under allow: "
                   "private: true in its entry\n"
                   "penstock: denied tcp d.example:443 (base_denied) 1 time; to allow, in \"p.yaml\" under allow: "
                   "something else\n"
                   "penstock: denied tcp e.example:443 (private_address) 1 time; to allow, in \"p.yaml\" under allow: "
                   "private: true in its entry (words)\n"
                   "penstock: denied tcp 192.0.2.1:1,2,3,4 and other ports (base_denied) 8 times; to allow, in \"p.yaml\" under "
                   "allow: - {cidr: \"192.0.2.1\", protocol: tcp, ports: [1, 2, 3, 4]} (words)\n");
    denials_free(denials);
}

// What no entry can change says what it is.
static void test_without_a_hint(void **state) {
    (void)state;
    struct denials *denials = denials_new();
    add(denials, POLICY_DNS, "a.example", 53, POLICY_DNS_FAILED, "");
    add(denials, POLICY_TCP, "b.example", 443, POLICY_UPSTREAM_FAILED, "");
    add(denials, POLICY_TCP, "e.example", 443, POLICY_UPSTREAM_FAILED, "why; what to do");
    add(denials, POLICY_TCP, "f.example", 443, POLICY_BINDING_FAILED, "why not");
    add(denials, POLICY_TCP, "8.8.4.4", 443, POLICY_PRIVATE_ADDRESS, "");
    add(denials, POLICY_TCP, "10.0.0.1", 443, POLICY_PRIVATE_ADDRESS, "");
    add(denials, POLICY_TCP, "c.example", 443, POLICY_NODE_OWN_ADDRESS, "");
    add(denials, POLICY_TCP, "d.example", 443, POLICY_NODE_DENIED, "");
    assert_printed(denials, "p.yaml", false,
                   "penstock: failed dns a.example (dns_failed) 1 time\n"
                   "penstock: failed tcp b.example:443 (upstream_failed) 1 time\n"
                   "penstock: failed tcp e.example:443 (upstream_failed) 1 time; why; what to do\n"
                   "penstock: failed tcp f.example:443 (binding_failed) 1 time; why not\n"
                   "penstock: denied tcp 8.8.4.4:443 (private_address) 1 time; this machine's own address\n"
                   "penstock: denied tcp 10.0.0.1:443 (private_address) 1 time\n"
                   "penstock: denied tcp c.example:443 (node_own_address) 1 time; this machine's own address\n"
                   "penstock: denied tcp d.example:443 (node_denied) 1 time; this node's configuration says so: ask the operator\n");
    denials_free(denials);
}

// A sandbox can make up any number of destinations.
static void test_bounds(void **state) {
    (void)state;
    struct denials *denials = denials_new();
    char name[32], *text = NULL;
    size_t size = 0, lines = 0;
    for (int i = 0; i < 300; i++) {
        snprintf(name, sizeof(name), "n%d.example", i);
        add(denials, POLICY_DNS, name, 53, POLICY_DNS_NAME_DENIED, "");
    }
    FILE *out = open_memstream(&text, &size);
    denials_print(denials, NULL, out);
    fclose(out);
    for (const char *at = text; (at = strchr(at, '\n')); at++) lines++;
    assert_int_equal(lines, 21);
    assert_non_null(strstr(text, "denied more than 236 other destinations"));
    free(text);
    denials_free(denials);
    denials_free(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_line_a_destination),
        cmocka_unit_test(test_entries_of_a_file),
        cmocka_unit_test(test_without_a_hint),
        cmocka_unit_test(test_bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
