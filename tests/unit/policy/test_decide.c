// SPDX-License-Identifier: Apache-2.0
// The verdict, case by case: what semantics section 2 says, near misses, private and node rules, inspection, answers.
#include "fixture.h"

#define HTTPS POLICY_ENTRY_HTTPS
#define HTTP POLICY_ENTRY_HTTP
#define TCP POLICY_ENTRY_TCP
#define UDP POLICY_ENTRY_UDP
#define ICMP POLICY_ENTRY_ICMP
#define ANY POLICY_ENTRY_ANY

// A policy in words: entries of a default native policy unless flags say otherwise.
enum {
    BASE_ALLOW = 1,
    OPEN_PRIVATE = 2,
    E2B = 4,
    NETWORK = 8,
    NODE_NAMES = 16,
    NODE_RANGES = 32,
    DNS_REAL = 64,
    OWN = 128
};
struct policy_words {
    int flags;
    struct entry_words allow[5], deny[2];
};

// A request in words. NULL names and addresses are absent.
struct request_words {
    enum policy_protocol protocol;
    enum policy_app app;
    const char *dialled, *claimed, *address;
    uint16_t port;
    const char *claimed_address;
    bool ech;
};

struct decide_case {
    struct request_words request;
    enum policy_verdict verdict;
    enum policy_reason reason;
    const char *rule; // text, or NULL for none
    const char *name; // of the decision
};

static char node_names[2][NAME_SIZE] = {"bad.example", "*.evil.example"};

static struct policy *make(const struct policy_words *words) {
    struct addr_prefix denied[] = {fixture_prefix("10.0.0.0/8"), fixture_prefix("64:ff9b:1::/48")};
    struct addr_prefix allowed[] = {fixture_prefix("10.9.0.0/16")};
    struct addr own[] = {fixture_addr("203.0.113.77")};
    struct policy_node node = {0};
    struct policy *policy = NULL;
    struct error err = {0};
    enum policy_dialect dialect = words->flags & E2B       ? POLICY_DIALECT_E2B
                                  : words->flags & NETWORK ? POLICY_DIALECT_NETWORK
                                                           : POLICY_DIALECT_NATIVE;
    struct policy_model *model = policy_model_new(dialect);
    assert_non_null(model);
    model->base_allow = words->flags & BASE_ALLOW;
    model->block_private = !(words->flags & (OPEN_PRIVATE | E2B));
    model->has_dns_names = words->flags & DNS_REAL;
    model->dns_names = words->flags & DNS_REAL ? POLICY_DNS_REAL : POLICY_DNS_SYNTHETIC;
    for (size_t i = 0; i < ARRAY_LENGTH(words->allow) && words->allow[i].what; i++)
        fixture_add(model, true, &words->allow[i], "--test");
    for (size_t i = 0; i < ARRAY_LENGTH(words->deny) && words->deny[i].what; i++)
        fixture_add(model, false, &words->deny[i], "--test");
    if (words->flags & NODE_NAMES) {
        node.always_denied_names = node_names;
        node.always_denied_name_count = 2;
    }
    if (words->flags & NODE_RANGES) {
        node.has_always_denied = true;
        node.always_denied = denied;
        node.always_denied_count = 2;
        node.always_allowed = allowed;
        node.always_allowed_count = 1;
    }
    if (words->flags & OWN) {
        node.has_deny_own_addresses = node.deny_own_addresses = true;
        node.own_addresses = own;
        node.own_address_count = 1;
    }
    struct addr routed[] = {fixture_addr("203.0.113.66")};
    if (policy_compile(model, &node, routed, 1, 1, &policy, NULL, &err) != 0) fail_msg("%s", err.text);
    policy_model_free(model);
    return policy;
}

static struct policy_request request_of(const struct request_words *words, struct addr addrs[2]) {
    struct policy_request request = {.protocol = words->protocol,
                                     .app = words->app,
                                     .dialled = words->dialled,
                                     .claimed = words->claimed,
                                     .ech = words->ech,
                                     .port = words->port};
    if (words->address) {
        addrs[0] = fixture_addr(words->address);
        request.address = &addrs[0];
    }
    if (words->claimed_address) {
        addrs[1] = fixture_addr(words->claimed_address);
        request.claimed_address = &addrs[1];
    }
    return request;
}

static void run(const struct policy_words *words, const struct decide_case *cases, size_t count) {
    struct policy *policy = make(words);
    for (size_t i = 0; i < count; i++) {
        struct addr addrs[2];
        struct policy_request request = request_of(&cases[i].request, addrs);
        struct policy_decision got = policy_decide(policy, &request);
        const char *rule = policy_rule_info(policy, got.rule).text;
        if (got.verdict != cases[i].verdict || got.reason != cases[i].reason ||
            strcmp(rule, cases[i].rule ? cases[i].rule : "") != 0)
            fail_msg("case %zu: %s %s by \"%s\"", i, policy_verdict_name(got.verdict), policy_reason_name(got.reason),
                     rule);
        if (cases[i].name)
            assert_string_equal(got.name, cases[i].name);
        else
            assert_null(got.name);
    }
    policy_free(policy);
}

#define PUBLIC "93.184.216.34"
#define BASE "base deny"
#define PRIVATE "block private addresses and those of the host"
#define LOOPBACK "block the host's loopback where no entry opens it"

static void names_open_https_only(void **state) {
    (void)state;
    static const struct policy_words words = {
        NETWORK, {{HTTPS, "a.example", 0, 0, 0}, {HTTPS, "b.example", 8443, 0, 0}}, {{0}}};
#define A "allow https a.example:443"
#define B "allow https b.example:8443"
    static const struct decide_case cases[] = {
        {{POLICY_TCP, POLICY_APP_UNKNOWN, "a.example", NULL, NULL, 443},
         POLICY_INSPECT,
         POLICY_ALLOWED_NAME,
         A,
         "a.example"},
        {{POLICY_TCP, POLICY_APP_TLS, "a.example", NULL, NULL, 443}, POLICY_ALLOW, POLICY_ALLOWED_NAME, A, "a.example"},
        {{POLICY_TCP, POLICY_APP_TLS, "a.example", "a.example", PUBLIC, 443},
         POLICY_ALLOW,
         POLICY_ALLOWED_NAME,
         A,
         "a.example"},
        {{POLICY_TCP, POLICY_APP_TLS, "a.example", "b.example", NULL, 443},
         POLICY_DENY,
         POLICY_NAME_MISMATCH,
         NULL,
         NULL},
        {{POLICY_TCP, POLICY_APP_TLS, "a.example", NULL, NULL, 443, PUBLIC},
         POLICY_DENY,
         POLICY_NAME_MISMATCH,
         NULL,
         NULL},
        {{POLICY_TCP, POLICY_APP_HTTP, "a.example", NULL, NULL, 443}, POLICY_DENY, POLICY_NOT_HTTPS, A, NULL},
        {{POLICY_TCP, POLICY_APP_HTTP, "a.example", NULL, PUBLIC, 80}, POLICY_DENY, POLICY_NOT_HTTPS, A, NULL},
        {{POLICY_TCP, POLICY_APP_HTTP, "a.example", NULL, NULL, 8080}, POLICY_DENY, POLICY_NOT_HTTPS, A, NULL},
        {{POLICY_TCP, POLICY_APP_OTHER, "a.example", NULL, NULL, 443}, POLICY_DENY, POLICY_NOT_HTTPS, A, NULL},
        {{POLICY_TCP, POLICY_APP_UNKNOWN, "a.example", NULL, NULL, 80}, POLICY_DENY, POLICY_NOT_HTTPS, A, NULL},
        {{POLICY_TCP, POLICY_APP_UNKNOWN, "a.example", NULL, NULL, 22}, POLICY_DENY, POLICY_PORT_DENIED, A, NULL},
        {{POLICY_TCP, POLICY_APP_TLS, "a.example", NULL, NULL, 8443}, POLICY_DENY, POLICY_PORT_DENIED, A, NULL},
        {{POLICY_TCP, POLICY_APP_TLS, "b.example", NULL, NULL, 8443},
         POLICY_ALLOW,
         POLICY_ALLOWED_NAME,
         B,
         "b.example"},
        {{POLICY_TCP, POLICY_APP_TLS, "b.example", NULL, NULL, 443}, POLICY_DENY, POLICY_PORT_DENIED, B, NULL},
        {{POLICY_TCP, POLICY_APP_TLS, "www.a.example", NULL, PUBLIC, 443}, POLICY_DENY, POLICY_BASE_DENIED, BASE, NULL},
        {{POLICY_TCP, POLICY_APP_UNKNOWN, "evil.example", NULL, NULL, 80}, POLICY_DENY, POLICY_BASE_DENIED, BASE, NULL},
        {{POLICY_UDP, 0, "a.example", NULL, NULL, 443}, POLICY_DENY, POLICY_PROTOCOL_DENIED, A, NULL},
        {{POLICY_UDP, 0, "evil.example", NULL, NULL, 443}, POLICY_DENY, POLICY_BASE_DENIED, BASE, NULL},
        {{POLICY_ICMP, 0, NULL, NULL, PUBLIC, 0}, POLICY_DENY, POLICY_PROTOCOL_DENIED, BASE, NULL},
        {{POLICY_DNS, 0, "b.example", NULL, NULL, 0}, POLICY_ALLOW, POLICY_ALLOWED_NAME, B, "b.example"},
        {{POLICY_DNS, 0, "evil.example", NULL, NULL, 0}, POLICY_DENY, POLICY_DNS_NAME_DENIED, BASE, NULL},
        // A literal address: only the bytes can tell the name.
        {{POLICY_TCP, POLICY_APP_UNKNOWN, NULL, NULL, PUBLIC, 443}, POLICY_INSPECT, POLICY_ALLOWED_NAME, A, NULL},
        {{POLICY_TCP, POLICY_APP_UNKNOWN, NULL, NULL, PUBLIC, 8443}, POLICY_INSPECT, POLICY_ALLOWED_NAME, B, NULL},
        {{POLICY_TCP, POLICY_APP_UNKNOWN, NULL, NULL, PUBLIC, 22}, POLICY_DENY, POLICY_BASE_DENIED, BASE, NULL},
        {{POLICY_TCP, POLICY_APP_UNKNOWN, NULL, NULL, PUBLIC, 80}, POLICY_DENY, POLICY_BASE_DENIED, BASE, NULL},
        {{POLICY_TCP, POLICY_APP_TLS, NULL, "a.example", PUBLIC, 443},
         POLICY_ALLOW,
         POLICY_ALLOWED_NAME,
         A,
         "a.example"},
        {{POLICY_TCP, POLICY_APP_TLS, NULL, "b.example", PUBLIC, 443}, POLICY_DENY, POLICY_PORT_DENIED, B, NULL},
        {{POLICY_TCP, POLICY_APP_TLS, NULL, NULL, PUBLIC, 443}, POLICY_DENY, POLICY_NO_NAME, BASE, NULL},
        {{POLICY_TCP, POLICY_APP_HTTP, NULL, NULL, PUBLIC, 443}, POLICY_DENY, POLICY_NO_NAME, BASE, NULL},
        {{POLICY_TCP, POLICY_APP_OTHER, NULL, NULL, PUBLIC, 443}, POLICY_DENY, POLICY_NOT_HTTPS, BASE, NULL},
        {{POLICY_TCP, POLICY_APP_TLS, NULL, "evil.example", PUBLIC, 443}, POLICY_DENY, POLICY_BASE_DENIED, BASE, NULL},
        {{POLICY_TCP, POLICY_APP_TLS, NULL, "evil.example", PUBLIC, 443, NULL, true},
         POLICY_DENY,
         POLICY_ECH_DENIED,
         BASE,
         NULL},
        {{POLICY_TCP, POLICY_APP_TLS, NULL, "a.example", PUBLIC, 443, NULL, true},
         POLICY_ALLOW,
         POLICY_ALLOWED_NAME,
         A,
         "a.example"},
        {{POLICY_TCP, POLICY_APP_TLS, "a.example", "evil.example", NULL, 443, NULL, true},
         POLICY_DENY,
         POLICY_ECH_DENIED,
         BASE,
         NULL},
        {{POLICY_TCP, POLICY_APP_HTTP, NULL, "a.example", PUBLIC, 80}, POLICY_DENY, POLICY_NOT_HTTPS, A, NULL},
        // Private answers and literals come first.
        {{POLICY_TCP, POLICY_APP_TLS, "a.example", NULL, "10.0.0.1", 443},
         POLICY_DENY,
         POLICY_PRIVATE_ADDRESS,
         PRIVATE,
         NULL},
        {{POLICY_TCP, POLICY_APP_TLS, "a.example", NULL, "64:ff9b::a00:1", 443},
         POLICY_DENY,
         POLICY_PRIVATE_ADDRESS,
         PRIVATE,
         NULL},
        {{POLICY_TCP, POLICY_APP_TLS, "a.example", NULL, "203.0.113.66", 443},
         POLICY_DENY,
         POLICY_PRIVATE_ADDRESS,
         PRIVATE,
         NULL},
        {{POLICY_TCP, POLICY_APP_TLS, "a.example", NULL, "2002:cb00:7142::1", 443},
         POLICY_DENY,
         POLICY_PRIVATE_ADDRESS,
         PRIVATE,
         NULL},
        {{POLICY_TCP, POLICY_APP_UNKNOWN, NULL, NULL, "10.0.0.1", 443},
         POLICY_DENY,
         POLICY_PRIVATE_ADDRESS,
         PRIVATE,
         NULL},
    };
    run(&words, cases, ARRAY_LENGTH(cases));
}

static void wildcards_and_order(void **state) {
    (void)state;
    static const struct policy_words words = {0,
                                              {{HTTPS, "*.a.example", 0, 0, 0},
                                               {HTTP, "www.a.example", 0, 0, 0},
                                               {TCP, "*.a.example", 5432, 0, 0},
                                               {HTTPS, "www.a.example", 443, 8000, 0}},
                                              {{0}}};
#define WILD "allow https *.a.example:443"
#define WEB "allow http www.a.example:80"
#define DB "allow tcp *.a.example:5432"
    static const struct decide_case cases[] = {
        {{POLICY_TCP, POLICY_APP_TLS, "a.example", NULL, NULL, 443}, POLICY_DENY, POLICY_BASE_DENIED, BASE, NULL},
        {{POLICY_TCP, POLICY_APP_TLS, "xa.example", NULL, NULL, 443}, POLICY_DENY, POLICY_BASE_DENIED, BASE, NULL},
        {{POLICY_TCP, POLICY_APP_TLS, "x.y.a.example", NULL, NULL, 443},
         POLICY_ALLOW,
         POLICY_ALLOWED_NAME,
         WILD,
         "x.y.a.example"},
        {{POLICY_TCP, POLICY_APP_TLS, "a.example.evil.org", NULL, NULL, 443},
         POLICY_DENY,
         POLICY_BASE_DENIED,
         BASE,
         NULL},
        {{POLICY_TCP, POLICY_APP_TLS, "www.a.example", NULL, NULL, 443},
         POLICY_ALLOW,
         POLICY_ALLOWED_NAME,
         WILD,
         "www.a.example"},
        {{POLICY_TCP, POLICY_APP_TLS, "www.a.example", NULL, NULL, 8000},
         POLICY_ALLOW,
         POLICY_ALLOWED_NAME,
         "allow https www.a.example:443-8000",
         "www.a.example"},
        {{POLICY_TCP, POLICY_APP_TLS, "www.a.example", NULL, NULL, 8001}, POLICY_DENY, POLICY_PORT_DENIED, WILD, NULL},
        {{POLICY_TCP, POLICY_APP_HTTP, "www.a.example", NULL, NULL, 80},
         POLICY_ALLOW,
         POLICY_ALLOWED_NAME,
         WEB,
         "www.a.example"},
        {{POLICY_TCP, POLICY_APP_UNKNOWN, "www.a.example", NULL, NULL, 80},
         POLICY_INSPECT,
         POLICY_ALLOWED_NAME,
         WEB,
         "www.a.example"},
        {{POLICY_TCP, POLICY_APP_TLS, "www.a.example", NULL, NULL, 80}, POLICY_DENY, POLICY_PROTOCOL_DENIED, WEB, NULL},
        {{POLICY_TCP, POLICY_APP_HTTP, "www.a.example", NULL, NULL, 9000}, POLICY_DENY, POLICY_PORT_DENIED, WEB, NULL},
        {{POLICY_TCP, POLICY_APP_HTTP, "www.a.example", NULL, NULL, 443}, POLICY_DENY, POLICY_NOT_HTTPS, WILD, NULL},
        {{POLICY_TCP, POLICY_APP_UNKNOWN, "db.a.example", NULL, NULL, 5432},
         POLICY_ALLOW,
         POLICY_ALLOWED_NAME,
         DB,
         "db.a.example"},
        {{POLICY_TCP, POLICY_APP_HTTP, "db.a.example", NULL, NULL, 5432},
         POLICY_ALLOW,
         POLICY_ALLOWED_NAME,
         DB,
         "db.a.example"},
        // 5432 lies in the https range of www, but the tcp entry needs no bytes.
        {{POLICY_TCP, POLICY_APP_UNKNOWN, "www.a.example", NULL, NULL, 5432},
         POLICY_ALLOW,
         POLICY_ALLOWED_NAME,
         DB,
         "www.a.example"},
        {{POLICY_TCP, POLICY_APP_UNKNOWN, NULL, NULL, PUBLIC, 8000},
         POLICY_INSPECT,
         POLICY_ALLOWED_NAME,
         "allow https www.a.example:443-8000",
         NULL},
        {{POLICY_TCP, POLICY_APP_UNKNOWN, NULL, NULL, PUBLIC, 8001}, POLICY_DENY, POLICY_BASE_DENIED, BASE, NULL},
        {{POLICY_TCP, POLICY_APP_OTHER, NULL, NULL, PUBLIC, 80}, POLICY_DENY, POLICY_PROTOCOL_DENIED, BASE, NULL},
        {{POLICY_UDP, 0, "db.a.example", NULL, NULL, 5432}, POLICY_DENY, POLICY_PROTOCOL_DENIED, WILD, NULL},
    };
    run(&words, cases, ARRAY_LENGTH(cases));
}

static void address_ranges(void **state) {
    (void)state;
    // Nested, adjacent and last ranges; the first entry in the list that matches is the rule.
    static const struct policy_words words = {0,
                                              {{TCP, "8.8.8.0/24", 22, 0, 0},
                                               {ANY, "8.8.8.8/32", 0, 0, 0},
                                               {UDP, "8.8.0.0/16", 53, 0, 0},
                                               {ANY, "255.255.255.254/31", 0, 0, 0},
                                               {ICMP, "8.8.9.0/24", 0, 0, 0}},
                                              {{ANY, "8.8.8.8/32", 0, 0, 0}}};
#define SSH "allow tcp 8.8.8.0/24:22"
#define HOST "allow any 8.8.8.8"
#define DNS "allow udp 8.8.0.0/16:53"
    static const struct decide_case cases[] = {
        {{POLICY_TCP, POLICY_APP_UNKNOWN, NULL, NULL, "8.8.8.8", 22}, POLICY_ALLOW, POLICY_ALLOWED_CIDR, SSH, NULL},
        {{POLICY_TCP, POLICY_APP_UNKNOWN, NULL, NULL, "8.8.8.8", 443}, POLICY_ALLOW, POLICY_ALLOWED_CIDR, HOST, NULL},
        {{POLICY_UDP, 0, NULL, NULL, "8.8.8.8", 53}, POLICY_ALLOW, POLICY_ALLOWED_CIDR, HOST, NULL},
        {{POLICY_UDP, 0, NULL, NULL, "8.8.8.9", 53}, POLICY_ALLOW, POLICY_ALLOWED_CIDR, DNS, NULL},
        {{POLICY_UDP, 0, NULL, NULL, "8.8.9.0", 53}, POLICY_ALLOW, POLICY_ALLOWED_CIDR, DNS, NULL},
        {{POLICY_UDP, 0, NULL, NULL, "8.9.0.0", 53}, POLICY_DENY, POLICY_BASE_DENIED, BASE, NULL},
        {{POLICY_UDP, 0, NULL, NULL, "8.7.255.255", 53}, POLICY_DENY, POLICY_BASE_DENIED, BASE, NULL},
        {{POLICY_TCP, POLICY_APP_TLS, NULL, NULL, "8.8.8.255", 23}, POLICY_DENY, POLICY_PORT_DENIED, SSH, NULL},
        {{POLICY_TCP, POLICY_APP_TLS, NULL, "x.example", "8.8.9.1", 53},
         POLICY_DENY,
         POLICY_PROTOCOL_DENIED,
         DNS,
         NULL},
        {{POLICY_UDP, 0, NULL, NULL, "8.8.8.9", 54}, POLICY_DENY, POLICY_PORT_DENIED, DNS, NULL},
        {{POLICY_ICMP, 0, NULL, NULL, "8.8.9.255", 0},
         POLICY_ALLOW,
         POLICY_ALLOWED_CIDR,
         "allow icmp 8.8.9.0/24",
         NULL},
        {{POLICY_ICMP, 0, NULL, NULL, "8.8.8.9", 0}, POLICY_DENY, POLICY_PROTOCOL_DENIED, SSH, NULL},
        {{POLICY_ICMP, 0, NULL, NULL, "8.8.8.8", 0}, POLICY_DENY, POLICY_DENIED_CIDR, "deny 8.8.8.8", NULL},
        {{POLICY_TCP, POLICY_APP_UNKNOWN, NULL, NULL, "255.255.255.255", 1},
         POLICY_ALLOW,
         POLICY_ALLOWED_CIDR,
         "allow any 255.255.255.254/31",
         NULL},
        {{POLICY_TCP, POLICY_APP_UNKNOWN, NULL, NULL, "255.255.255.254", 1},
         POLICY_ALLOW,
         POLICY_ALLOWED_CIDR,
         "allow any 255.255.255.254/31",
         NULL},
        {{POLICY_TCP, POLICY_APP_UNKNOWN, NULL, NULL, "255.255.255.253", 1},
         POLICY_DENY,
         POLICY_PRIVATE_ADDRESS,
         PRIVATE,
         NULL},
        // The NAT64 form is not the address that was allowed.
        {{POLICY_TCP, POLICY_APP_UNKNOWN, NULL, NULL, "64:ff9b::808:808", 443},
         POLICY_DENY,
         POLICY_DENIED_CIDR,
         "deny 8.8.8.8",
         NULL},
        {{POLICY_TCP, POLICY_APP_UNKNOWN, NULL, NULL, "64:ff9b::808:809", 22},
         POLICY_DENY,
         POLICY_BASE_DENIED,
         BASE,
         NULL},
        // A range never allows a name.
        {{POLICY_TCP, POLICY_APP_TLS, "x.example", NULL, "8.8.8.8", 443}, POLICY_DENY, POLICY_BASE_DENIED, BASE, NULL},
    };
    run(&words, cases, ARRAY_LENGTH(cases));
}

static void private_ranges(void **state) {
    (void)state;
    static const struct policy_words words = {0,
                                              {{ANY, "10.20.0.0/16", 22, 0, 0},
                                               {TCP, "db.example", 5432, 0, true},
                                               {TCP, "db2.example", 5432, 0, 0},
                                               {HTTPS, "=10.1.1.1", 0, 0, 0},
                                               {TCP, "localhost", 5432, 0, true}},
                                              {{0}}};
#define RANGE "allow any 10.20.0.0/16:22"
#define NAMED "allow tcp db.example:5432 private"
#define LOCAL "allow tcp localhost:5432 private"
    static const struct decide_case cases[] = {
        {{POLICY_TCP, POLICY_APP_UNKNOWN, NULL, NULL, "10.20.1.1", 22}, POLICY_ALLOW, POLICY_ALLOWED_CIDR, RANGE, NULL},
        {{POLICY_TCP, POLICY_APP_UNKNOWN, NULL, NULL, "10.20.1.1", 23}, POLICY_DENY, POLICY_PORT_DENIED, RANGE, NULL},
        {{POLICY_TCP, POLICY_APP_UNKNOWN, NULL, NULL, "10.21.0.0", 22},
         POLICY_DENY,
         POLICY_PRIVATE_ADDRESS,
         PRIVATE,
         NULL},
        {{POLICY_TCP, POLICY_APP_UNKNOWN, "db.example", NULL, "10.1.2.3", 5432},
         POLICY_ALLOW,
         POLICY_ALLOWED_NAME,
         NAMED,
         "db.example"},
        {{POLICY_TCP, POLICY_APP_UNKNOWN, "db.example", NULL, "10.1.2.3", 5433},
         POLICY_DENY,
         POLICY_PRIVATE_ADDRESS,
         PRIVATE,
         NULL},
        {{POLICY_TCP, POLICY_APP_UNKNOWN, "db2.example", NULL, "10.1.2.3", 5432},
         POLICY_DENY,
         POLICY_PRIVATE_ADDRESS,
         PRIVATE,
         NULL},
        {{POLICY_TCP, POLICY_APP_TLS, NULL, NULL, "10.1.1.1", 443}, POLICY_DENY, POLICY_PRIVATE_ADDRESS, PRIVATE, NULL},
        // The host's database by its loopback port that the gate took over.
        {{POLICY_TCP, POLICY_APP_UNKNOWN, NULL, NULL, "127.0.0.1", 5432},
         POLICY_ALLOW,
         POLICY_ALLOWED_NAME,
         LOCAL,
         NULL},
        {{POLICY_TCP, POLICY_APP_UNKNOWN, NULL, NULL, "::1", 5432}, POLICY_ALLOW, POLICY_ALLOWED_NAME, LOCAL, NULL},
        {{POLICY_TCP, POLICY_APP_UNKNOWN, "localhost", NULL, "127.0.0.1", 5432},
         POLICY_ALLOW,
         POLICY_ALLOWED_NAME,
         LOCAL,
         "localhost"},
        {{POLICY_TCP, POLICY_APP_UNKNOWN, NULL, NULL, "127.0.0.1", 5433},
         POLICY_DENY,
         POLICY_PRIVATE_ADDRESS,
         PRIVATE,
         NULL},
    };
    run(&words, cases, ARRAY_LENGTH(cases));
}

static void private_block_off(void **state) {
    (void)state;
    static const struct policy_words words = {NETWORK | OPEN_PRIVATE,
                                              {{HTTPS, "localhost", 8000, 0, 0},
                                               {HTTPS, "=127.0.0.1", 9000, 0, 0},
                                               {HTTPS, "a.example", 0, 0, 0},
                                               {HTTPS, "=203.0.113.10", 0, 0, 0}},
                                              {{0}}};
#define L "allow https localhost:8000"
#define L4 "allow https 127.0.0.1:9000"
#define IP "allow https 203.0.113.10:443"
    static const struct decide_case cases[] = {
        {{POLICY_TCP, POLICY_APP_TLS, "localhost", "localhost", "127.0.0.1", 8000},
         POLICY_ALLOW,
         POLICY_ALLOWED_NAME,
         L,
         "localhost"},
        {{POLICY_TCP, POLICY_APP_HTTP, "localhost", "localhost", "127.0.0.1", 8000},
         POLICY_DENY,
         POLICY_NOT_HTTPS,
         L,
         NULL},
        {{POLICY_TCP, POLICY_APP_TLS, "localhost", "localhost", "127.0.0.1", 8001},
         POLICY_DENY,
         POLICY_PORT_DENIED,
         L,
         NULL},
        {{POLICY_TCP, POLICY_APP_UNKNOWN, NULL, NULL, "127.0.0.1", 8000}, POLICY_INSPECT, POLICY_ALLOWED_NAME, L, NULL},
        {{POLICY_TCP, POLICY_APP_TLS, NULL, "localhost", "127.0.0.1", 8000},
         POLICY_ALLOW,
         POLICY_ALLOWED_NAME,
         L,
         "localhost"},
        {{POLICY_TCP, POLICY_APP_TLS, NULL, NULL, "127.0.0.1", 8000}, POLICY_DENY, POLICY_PORT_DENIED, L4, NULL},
        {{POLICY_TCP, POLICY_APP_TLS, NULL, NULL, "127.0.0.2", 8000}, POLICY_DENY, POLICY_NO_NAME, BASE, NULL},
        {{POLICY_TCP, POLICY_APP_UNKNOWN, NULL, NULL, "127.0.0.1", 9000},
         POLICY_INSPECT,
         POLICY_ALLOWED_CIDR,
         L4,
         NULL},
        {{POLICY_TCP, POLICY_APP_TLS, NULL, NULL, "127.0.0.1", 9000}, POLICY_ALLOW, POLICY_ALLOWED_CIDR, L4, NULL},
        {{POLICY_TCP, POLICY_APP_TLS, "a.example", NULL, "10.1.2.3", 443},
         POLICY_ALLOW,
         POLICY_ALLOWED_NAME,
         "allow https a.example:443",
         "a.example"},
        // No entry means the host's loopback by this name: rebinding does not reach it.
        {{POLICY_TCP, POLICY_APP_TLS, "a.example", NULL, "127.0.0.1", 443},
         POLICY_DENY,
         POLICY_PRIVATE_ADDRESS,
         LOOPBACK,
         NULL},
        {{POLICY_TCP, POLICY_APP_TLS, "a.example", NULL, "0.0.0.0", 443},
         POLICY_DENY,
         POLICY_PRIVATE_ADDRESS,
         LOOPBACK,
         NULL},
        // An IP entry: TLS to the address, no name or the address as name.
        {{POLICY_TCP, POLICY_APP_UNKNOWN, NULL, NULL, "203.0.113.10", 443},
         POLICY_INSPECT,
         POLICY_ALLOWED_NAME,
         "allow https a.example:443",
         NULL},
        {{POLICY_TCP, POLICY_APP_TLS, NULL, NULL, "203.0.113.10", 443}, POLICY_ALLOW, POLICY_ALLOWED_CIDR, IP, NULL},
        {{POLICY_TCP, POLICY_APP_TLS, NULL, NULL, "203.0.113.10", 443, "203.0.113.10"},
         POLICY_ALLOW,
         POLICY_ALLOWED_CIDR,
         IP,
         NULL},
        {{POLICY_TCP, POLICY_APP_TLS, NULL, NULL, "203.0.113.10", 443, "203.0.113.11"},
         POLICY_DENY,
         POLICY_NO_NAME,
         BASE,
         NULL},
        {{POLICY_TCP, POLICY_APP_TLS, NULL, "x.example", "203.0.113.10", 443},
         POLICY_DENY,
         POLICY_BASE_DENIED,
         BASE,
         NULL},
        {{POLICY_TCP, POLICY_APP_TLS, "x.example", NULL, "203.0.113.10", 443},
         POLICY_DENY,
         POLICY_BASE_DENIED,
         BASE,
         NULL},
        {{POLICY_TCP, POLICY_APP_HTTP, NULL, NULL, "203.0.113.10", 80, "203.0.113.10"},
         POLICY_DENY,
         POLICY_NOT_HTTPS,
         IP,
         NULL},
        {{POLICY_TCP, POLICY_APP_UNKNOWN, NULL, NULL, "203.0.113.10", 80}, POLICY_DENY, POLICY_NOT_HTTPS, IP, NULL},
        {{POLICY_TCP, POLICY_APP_TLS, NULL, NULL, "203.0.113.10", 8443}, POLICY_DENY, POLICY_PORT_DENIED, IP, NULL},
        {{POLICY_TCP, POLICY_APP_OTHER, NULL, NULL, "203.0.113.10", 443}, POLICY_DENY, POLICY_NOT_HTTPS, IP, NULL},
    };
    run(&words, cases, ARRAY_LENGTH(cases));
}

static void base_allow(void **state) {
    (void)state;
    static const struct policy_words words = {BASE_ALLOW | NODE_NAMES, {{0}}, {{ANY, "8.8.8.0/24", 0, 0, 0}}};
#define OPEN "base allow"
    static const struct decide_case cases[] = {
        {{POLICY_TCP, POLICY_APP_UNKNOWN, NULL, NULL, PUBLIC, 22}, POLICY_INSPECT, POLICY_ALLOWED_BASE, OPEN, NULL},
        {{POLICY_TCP, POLICY_APP_OTHER, NULL, NULL, PUBLIC, 22}, POLICY_ALLOW, POLICY_ALLOWED_BASE, OPEN, NULL},
        {{POLICY_TCP, POLICY_APP_UNKNOWN, "a.example", NULL, PUBLIC, 22},
         POLICY_ALLOW,
         POLICY_ALLOWED_BASE,
         OPEN,
         "a.example"},
        {{POLICY_UDP, 0, NULL, NULL, PUBLIC, 22}, POLICY_ALLOW, POLICY_ALLOWED_BASE, OPEN, NULL},
        {{POLICY_ICMP, 0, NULL, NULL, PUBLIC, 0}, POLICY_DENY, POLICY_PROTOCOL_DENIED, OPEN, NULL},
        {{POLICY_TCP, POLICY_APP_TLS, NULL, "bad.example", PUBLIC, 443},
         POLICY_DENY,
         POLICY_NODE_DENIED,
         "node always_denied bad.example",
         NULL},
        {{POLICY_TCP, POLICY_APP_TLS, NULL, "x.bad.example", PUBLIC, 443},
         POLICY_ALLOW,
         POLICY_ALLOWED_BASE,
         OPEN,
         NULL},
        {{POLICY_DNS, 0, "x.evil.example", NULL, NULL, 0},
         POLICY_DENY,
         POLICY_NODE_DENIED,
         "node always_denied *.evil.example",
         NULL},
        {{POLICY_DNS, 0, "evil.example", NULL, NULL, 0}, POLICY_ALLOW, POLICY_ALLOWED_BASE, OPEN, "evil.example"},
        {{POLICY_TCP, POLICY_APP_UNKNOWN, NULL, NULL, "8.8.8.0", 53},
         POLICY_DENY,
         POLICY_DENIED_CIDR,
         "deny 8.8.8.0/24",
         NULL},
        {{POLICY_TCP, POLICY_APP_UNKNOWN, NULL, NULL, "8.8.9.0", 53}, POLICY_INSPECT, POLICY_ALLOWED_BASE, OPEN, NULL},
        {{POLICY_TCP, POLICY_APP_TLS, "a.example", NULL, "8.8.8.255", 443},
         POLICY_DENY,
         POLICY_DENIED_CIDR,
         "deny 8.8.8.0/24",
         NULL},
        {{POLICY_TCP, POLICY_APP_OTHER, NULL, NULL, "64:ff9b::808:808", 53},
         POLICY_DENY,
         POLICY_DENIED_CIDR,
         "deny 8.8.8.0/24",
         NULL},
        {{POLICY_TCP, POLICY_APP_OTHER, NULL, NULL, "127.0.0.1", 443},
         POLICY_DENY,
         POLICY_PRIVATE_ADDRESS,
         PRIVATE,
         NULL},
        {{POLICY_TCP, POLICY_APP_OTHER, NULL, NULL, "203.0.113.66", 443},
         POLICY_DENY,
         POLICY_PRIVATE_ADDRESS,
         PRIVATE,
         NULL},
    };
    run(&words, cases, ARRAY_LENGTH(cases));
    static const struct policy_words open = {BASE_ALLOW | OPEN_PRIVATE, {{0}}, {{0}}};
    static const struct decide_case open_cases[] = {
        {{POLICY_TCP, POLICY_APP_UNKNOWN, NULL, NULL, PUBLIC, 22}, POLICY_ALLOW, POLICY_ALLOWED_BASE, OPEN, NULL},
        {{POLICY_TCP, POLICY_APP_UNKNOWN, NULL, NULL, "10.0.0.1", 22}, POLICY_ALLOW, POLICY_ALLOWED_BASE, OPEN, NULL},
        {{POLICY_TCP, POLICY_APP_UNKNOWN, NULL, NULL, "127.0.0.1", 22},
         POLICY_DENY,
         POLICY_PRIVATE_ADDRESS,
         LOOPBACK,
         NULL},
        {{POLICY_TCP, POLICY_APP_TLS, "a.example", NULL, "::1", 443},
         POLICY_DENY,
         POLICY_PRIVATE_ADDRESS,
         LOOPBACK,
         NULL},
    };
    run(&open, open_cases, ARRAY_LENGTH(open_cases));
}

static void e2b_and_node(void **state) {
    (void)state;
    static const struct policy_words words = {
        E2B | BASE_ALLOW | NODE_RANGES | OWN,
        {{HTTP, "*.a.example", 0, 0, 0}, {HTTPS, "*.a.example", 0, 0, 0}, {ANY, "10.0.0.0/8", 0, 0, 0}},
        {{ANY, "0.0.0.0/0", 0, 0, 0}}};
#define ALL "deny 0.0.0.0/0"
    static const struct decide_case cases[] = {
        {{POLICY_TCP, POLICY_APP_TLS, "x.a.example", NULL, PUBLIC, 443},
         POLICY_ALLOW,
         POLICY_ALLOWED_NAME,
         "allow https *.a.example:443",
         "x.a.example"},
        {{POLICY_TCP, POLICY_APP_HTTP, "x.a.example", NULL, PUBLIC, 80},
         POLICY_ALLOW,
         POLICY_ALLOWED_NAME,
         "allow http *.a.example:80",
         "x.a.example"},
        {{POLICY_TCP, POLICY_APP_HTTP, "x.a.example", NULL, PUBLIC, 8080},
         POLICY_DENY,
         POLICY_PORT_DENIED,
         "allow http *.a.example:80",
         NULL},
        {{POLICY_TCP, POLICY_APP_TLS, "evil.example", NULL, NULL, 443}, POLICY_DENY, POLICY_BASE_DENIED, ALL, NULL},
        {{POLICY_TCP, POLICY_APP_TLS, NULL, NULL, PUBLIC, 443}, POLICY_DENY, POLICY_DENIED_CIDR, ALL, NULL},
        {{POLICY_TCP, POLICY_APP_UNKNOWN, NULL, NULL, PUBLIC, 443},
         POLICY_INSPECT,
         POLICY_ALLOWED_NAME,
         "allow https *.a.example:443",
         NULL},
        {{POLICY_TCP, POLICY_APP_TLS, NULL, NULL, "2001:4860:4860::8888", 443},
         POLICY_DENY,
         POLICY_DENIED_CIDR,
         ALL,
         NULL},
        {{POLICY_DNS, 0, "evil.example", NULL, NULL, 0}, POLICY_DENY, POLICY_DNS_NAME_DENIED, ALL, NULL},
        {{POLICY_TCP, POLICY_APP_UNKNOWN, NULL, NULL, "10.1.1.1", 80},
         POLICY_DENY,
         POLICY_NODE_DENIED,
         "node always_denied 10.0.0.0/8",
         NULL},
        {{POLICY_TCP, POLICY_APP_UNKNOWN, NULL, NULL, "10.9.1.1", 22},
         POLICY_ALLOW,
         POLICY_ALLOWED_CIDR,
         "allow any 10.0.0.0/8",
         NULL},
        // The exemption opens nothing, and is for the address alone, not for what carries it.
        {{POLICY_TCP, POLICY_APP_TLS, "x.a.example", NULL, "64:ff9b::a09:101", 443},
         POLICY_DENY,
         POLICY_NODE_DENIED,
         "node always_denied 10.0.0.0/8",
         NULL},
        {{POLICY_TCP, POLICY_APP_UNKNOWN, NULL, NULL, "203.0.113.77", 22},
         POLICY_DENY,
         POLICY_NODE_OWN_ADDRESS,
         "node deny_own_addresses",
         NULL},
        {{POLICY_TCP, POLICY_APP_UNKNOWN, NULL, NULL, "203.0.113.66", 22},
         POLICY_DENY,
         POLICY_NODE_OWN_ADDRESS,
         "node deny_own_addresses",
         NULL},
        {{POLICY_TCP, POLICY_APP_UNKNOWN, NULL, NULL, "127.0.0.1", 22},
         POLICY_DENY,
         POLICY_NODE_OWN_ADDRESS,
         "node deny_own_addresses",
         NULL},
    };
    run(&words, cases, ARRAY_LENGTH(cases));
    static const struct policy_words plain = {E2B | BASE_ALLOW,
                                              {{ANY, "8.8.8.8/32", 0, 0, 0}, {ICMP, "8.8.8.8/32", 0, 0, 0}},
                                              {{ANY, "8.8.8.0/24", 0, 0, 0}}};
    static const struct decide_case plain_cases[] = {
        {{POLICY_TCP, POLICY_APP_UNKNOWN, NULL, NULL, "8.8.8.8", 53},
         POLICY_ALLOW,
         POLICY_ALLOWED_CIDR,
         "allow any 8.8.8.8",
         NULL},
        {{POLICY_ICMP, 0, NULL, NULL, "8.8.8.8", 0}, POLICY_ALLOW, POLICY_ALLOWED_CIDR, "allow icmp 8.8.8.8", NULL},
        {{POLICY_TCP, POLICY_APP_UNKNOWN, NULL, NULL, "8.8.8.9", 53},
         POLICY_DENY,
         POLICY_DENIED_CIDR,
         "deny 8.8.8.0/24",
         NULL},
        {{POLICY_ICMP, 0, NULL, NULL, "1.1.1.1", 0}, POLICY_ALLOW, POLICY_ALLOWED_BASE, OPEN, NULL},
        {{POLICY_TCP, POLICY_APP_UNKNOWN, NULL, NULL, "1.1.1.1", 443}, POLICY_ALLOW, POLICY_ALLOWED_BASE, OPEN, NULL},
        {{POLICY_TCP, POLICY_APP_UNKNOWN, NULL, NULL, "169.254.169.254", 80},
         POLICY_DENY,
         POLICY_NODE_DENIED,
         "node always_denied: every address that is not globally reachable",
         NULL},
        {{POLICY_TCP, POLICY_APP_UNKNOWN, NULL, NULL, "203.0.113.66", 22},
         POLICY_DENY,
         POLICY_NODE_OWN_ADDRESS,
         "node deny_own_addresses",
         NULL},
    };
    run(&plain, plain_cases, ARRAY_LENGTH(plain_cases));
}

static void cidr_only_questions(void **state) {
    (void)state;
    static const struct policy_words closed = {0, {{ANY, "8.8.8.0/24", 0, 0, 0}}, {{0}}};
    static const struct policy_words real = {DNS_REAL, {{ANY, "8.8.8.0/24", 0, 0, 0}}, {{0}}};
    static const struct policy_words none = {DNS_REAL, {{0}}, {{0}}};
    static const struct decide_case no[] = {
        {{POLICY_DNS, 0, "a.example", NULL, NULL, 0}, POLICY_DENY, POLICY_DNS_NAME_DENIED, BASE, NULL}};
    static const struct decide_case yes[] = {{{POLICY_DNS, 0, "a.example", NULL, NULL, 0},
                                              POLICY_ALLOW,
                                              POLICY_ALLOWED_CIDR,
                                              "allow any 8.8.8.0/24",
                                              "a.example"}};
    run(&closed, no, 1);
    run(&none, no, 1);
    run(&real, yes, 1);
}

static void answers(void **state) {
    (void)state;
    static const struct policy_words words = {
        0, {{HTTPS, "a.example", 0, 0, 0}, {HTTPS, "db.example", 0, 0, true}}, {{0}}};
    struct policy *policy = make(&words);
    struct policy_request request = {
        .protocol = POLICY_TCP, .app = POLICY_APP_TLS, .dialled = "a.example", .port = 443};
    struct addr list[4] = {fixture_addr("2001:db8::1"), fixture_addr("8.8.8.8"), fixture_addr("2001:db8::2"),
                           fixture_addr("8.8.4.4")};
    size_t allowed[4], count = 9;
    struct policy_decision got = policy_judge_answers(policy, &request, list, 4, allowed, &count);
    static const size_t all[] = {0, 2, 1, 3};
    assert_int_equal(got.verdict, POLICY_ALLOW);
    assert_string_equal(got.name, "a.example");
    assert_int_equal(count, 4);
    assert_memory_equal(allowed, all, sizeof(all));
    // One bad answer refuses its family, not the other.
    list[2] = fixture_addr("fd00::1");
    got = policy_judge_answers(policy, &request, list, 4, allowed, &count);
    assert_int_equal(got.verdict, POLICY_ALLOW);
    assert_true(count == 2 && allowed[0] == 1 && allowed[1] == 3);
    list[3] = fixture_addr("10.0.0.1");
    got = policy_judge_answers(policy, &request, list, 4, allowed, &count);
    assert_true(got.verdict == POLICY_DENY && got.reason == POLICY_PRIVATE_ADDRESS && count == 0);
    got = policy_judge_answers(policy, &request, list, 0, allowed, &count);
    assert_true(got.verdict == POLICY_DENY && got.reason == POLICY_DNS_FAILED && count == 0);
    // A name that was claimed on a literal connection is judged like a dialled one once it was looked up.
    request =
        (struct policy_request){.protocol = POLICY_TCP, .app = POLICY_APP_TLS, .claimed = "db.example", .port = 443};
    got = policy_judge_answers(policy, &request, &list[3], 1, allowed, &count);
    assert_true(got.verdict == POLICY_ALLOW && count == 1);
    assert_string_equal(got.name, "db.example");
    request.app = POLICY_APP_UNKNOWN;
    request.claimed = NULL;
    request.dialled = "a.example";
    got = policy_judge_answers(policy, &request, list, 2, allowed, &count);
    assert_true(got.verdict == POLICY_INSPECT && count == 2);
    policy_free(policy);
}

static void hints(void **state) {
    (void)state;
    static const struct policy_words words = {NODE_NAMES, {{HTTPS, "a.example", 0, 0, 0}}, {{0}}};
    static const struct {
        struct request_words request;
        const char *hint;
    } cases[] = {
        {{POLICY_TCP, POLICY_APP_TLS, "x.example", NULL, NULL, 443}, "--allow x.example"},
        {{POLICY_TCP, POLICY_APP_UNKNOWN, "x.example", NULL, NULL, 8443}, "--allow x.example:8443"},
        {{POLICY_TCP, POLICY_APP_HTTP, "a.example", NULL, NULL, 80},
         "policy entry {host: a.example, protocol: http, ports: [80]}"},
        {{POLICY_TCP, POLICY_APP_OTHER, "a.example", NULL, NULL, 22},
         "policy entry {host: a.example, protocol: tcp, ports: [22]}"},
        {{POLICY_DNS, 0, "x.example", NULL, NULL, 0}, "--allow x.example"},
        {{POLICY_TCP, POLICY_APP_UNKNOWN, NULL, NULL, PUBLIC, 22},
         "policy entry {cidr: \"" PUBLIC "\", protocol: tcp, ports: [22]}, or --allow-cidr " PUBLIC " for every port"},
        {{POLICY_UDP, 0, NULL, NULL, "2001:db8::1", 22},
         "policy entry {cidr: \"2001:db8::1\", protocol: udp, ports: [22]}, or --allow-cidr 2001:db8::1 for every port"},
        {{POLICY_ICMP, 0, NULL, NULL, PUBLIC, 0}, "policy entry {cidr: \"" PUBLIC "\", protocol: icmp}"},
        {{POLICY_TCP, POLICY_APP_TLS, NULL, NULL, PUBLIC, 443},
         "policy entry {cidr: \"" PUBLIC "\", protocol: tcp, ports: [443]}, or --allow-cidr " PUBLIC " for every port"},
        {{POLICY_TCP, POLICY_APP_TLS, "a.example", NULL, "10.0.0.1", 443}, "--allow-private"},
        {{POLICY_TCP, POLICY_APP_TLS, NULL, NULL, "10.0.0.1", 443},
         "policy entry {cidr: \"10.0.0.1\", protocol: tcp, ports: [443]}, or --allow-cidr 10.0.0.1 for every port"},
        {{POLICY_TCP, POLICY_APP_TLS, "bad.example", NULL, NULL, 443}, ""},
        {{POLICY_TCP, POLICY_APP_TLS, "a.example", "b.example", NULL, 443}, ""},
        {{POLICY_TCP, POLICY_APP_TLS, "a.example", NULL, NULL, 443}, ""},
    };
    struct policy *policy = make(&words);
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct addr addrs[2];
        char hint[POLICY_HINT_SIZE];
        struct policy_request request = request_of(&cases[i].request, addrs);
        struct policy_decision got = policy_decide(policy, &request);
        assert_string_equal(policy_hint(policy, &request, &got, hint), cases[i].hint);
    }
    policy_free(policy);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_open_https_only),
        cmocka_unit_test(wildcards_and_order),
        cmocka_unit_test(address_ranges),
        cmocka_unit_test(private_ranges),
        cmocka_unit_test(private_block_off),
        cmocka_unit_test(base_allow),
        cmocka_unit_test(e2b_and_node),
        cmocka_unit_test(cidr_only_questions),
        cmocka_unit_test(answers),
        cmocka_unit_test(hints),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
