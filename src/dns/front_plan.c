// SPDX-License-Identifier: Apache-2.0
// What a question gets, from the policy alone. Every lookup that leaves has passed here, so a name that no entry could
// allow never gets as far as a query.
#include "dns/front.h"

#include <string.h>

#include "base/mem.h"
#include "dns/dns_addresses.h"
#include "dns/dns_reverse.h"
#include "net/net.h"

#define CLASS_IN 1

bool front_plan_is_lookup(enum front_kind kind) { return kind >= FRONT_SYNTHETIC; }

// Meta types and OPT are no data (RFC 6895 3.1): ANY, transfers, TKEY, TSIG and their like.
static bool refused(const struct dns_question *question) {
    return question->class != CLASS_IN || question->type == 0 || question->type == DNS_OPT ||
           (question->type >= 128 && question->type <= 255);
}

static bool is_address_type(uint16_t type) { return type == DNS_A || type == DNS_AAAA; }

static struct front_plan deny(enum policy_reason reason) {
    return (struct front_plan){.kind = FRONT_DENY, .decision = dns_front_denial(reason)};
}

// Whether a PTR question is about an address that is ours to answer for.
static bool is_local_pointer(const struct dns_pool *pool, const struct dns_question *question) {
    struct addr addr;
    if (question->type != DNS_PTR || !dns_reverse_parse(question->name, &addr)) return false;
    return dns_pool_contains(pool, &addr) || addr_is_loopback(&addr);
}

// Whether the server that the sandbox addressed can be meant: one outside, and allowed.
static bool server_allowed(const struct policy *policy, const struct dns_pool *pool, const struct addr *server) {
    if (server->family == ADDR_NONE || addr_is_loopback(server) || addr_is_unspecified(server)) return false;
    if (dns_pool_contains(pool, server) || keeper_owns(server)) return false;
    struct policy_request request = {.protocol = POLICY_UDP, .address = server, .port = 53};
    return policy_decide(policy, &request).verdict == POLICY_ALLOW;
}

// An allowed name: synthetic, or (names_real) real.
static struct front_plan plan_name(const struct dns_question *question, struct policy_decision decision,
                                   bool names_real) {
    struct front_plan plan = {.kind = FRONT_RECORDS, .decision = decision};
    if (is_address_type(question->type))
        plan.kind = names_real ? FRONT_REAL : FRONT_SYNTHETIC;
    else if (!names_real && (question->type == DNS_SVCB || question->type == DNS_HTTPS))
        plan.kind = FRONT_EMPTY;
    return plan;
}

// No name entries: nothing leaves, unless ranges are allowed and real answers were asked for; that is part of the
// verdict.
static struct front_plan plan_ranges(const struct dns_question *question, struct policy_decision decision) {
    struct front_plan plan = {.kind = FRONT_DENY, .decision = decision};
    if (decision.verdict != POLICY_DENY) plan.kind = is_address_type(question->type) ? FRONT_RANGES : FRONT_EMPTY;
    return plan;
}

struct front_plan front_plan_make(const struct policy *policy, const struct dns_pool *pool,
                                  const struct dns_question *question, const struct addr *server) {
    struct policy_decision local = {.verdict = POLICY_ALLOW, .reason = POLICY_ALLOWED_BASE, .rule = POLICY_RULE_NONE};
    if (refused(question))
        return (struct front_plan){.kind = FRONT_REFUSE, .decision = dns_front_denial(POLICY_DNS_BAD_MESSAGE)};
    if (!question->name_valid) return deny(POLICY_DNS_BAD_MESSAGE);
    if (dns_addresses_is_localhost(question->name))
        return (struct front_plan){.kind = FRONT_LOCALHOST, .decision = local};
    if (is_local_pointer(pool, question)) return (struct front_plan){.kind = FRONT_POINTER, .decision = local};

    struct policy_facts facts = policy_facts(policy);
    struct policy_request request = {.protocol = POLICY_DNS, .dialled = question->name};
    bool root = question->name[0] == '\0'; // no entry can name it, so only the base decides
    struct policy_decision decision = !root              ? policy_decide(policy, &request)
                                      : facts.base_allow ? local
                                                         : dns_front_denial(POLICY_DNS_NAME_DENIED);
    if (!facts.base_allow && !facts.names_are_policy) return plan_ranges(question, decision);
    if (decision.verdict == POLICY_DENY) return (struct front_plan){.kind = FRONT_DENY, .decision = decision};
    if (!root && policy_name_bound(policy, question->name)) return plan_name(question, decision, false);
    if (facts.base_allow && facts.dns_names == POLICY_DNS_REAL)
        return (struct front_plan){FRONT_OPEN, decision, server_allowed(policy, pool, server)};
    // Where names are the policy, what an address is called is nobody's business.
    if (question->type == DNS_PTR && dns_reverse_is(question->name)) return deny(POLICY_DNS_NAME_DENIED);
    return plan_name(question, decision, facts.dns_names == POLICY_DNS_REAL);
}
