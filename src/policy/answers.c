// SPDX-License-Identifier: Apache-2.0
// The answers of a lookup, judged one by one with policy_decide; one that is denied refuses its whole family.
#include "policy/policy.h"

struct judged {
    struct policy_decision allowed, denied; // the first of each
    size_t allowed_at, denied_at;           // SIZE_MAX: none
};

// Judges the answers of one family; nothing is added to ret_allowed if one is denied.
static void judge_family(const struct policy *policy, struct policy_request *request, const struct addr *answers,
                         size_t count, uint8_t family, struct judged *judged, size_t *ret_allowed,
                         size_t *allowed_count) {
    size_t start = *allowed_count, first = SIZE_MAX;
    struct policy_decision first_allowed = {0};
    bool refused = false;
    for (size_t i = 0; i < count; i++) {
        if (answers[i].family != family) continue;
        request->address = &answers[i];
        struct policy_decision result = policy_decide(policy, request);
        if (result.verdict != POLICY_DENY) {
            if (first == SIZE_MAX) {
                first = i;
                first_allowed = result;
            }
            ret_allowed[(*allowed_count)++] = i;
            continue;
        }
        // Only steps 1 and 2 condemn the whole family: a mixed answer there is an attack. Others just leave it out.
        refused |= result.reason == POLICY_NODE_DENIED || result.reason == POLICY_NODE_OWN_ADDRESS ||
                   result.reason == POLICY_PRIVATE_ADDRESS;
        if (i < judged->denied_at) {
            judged->denied_at = i;
            judged->denied = result;
        }
    }
    if (refused) {
        *allowed_count = start;
    } else if (judged->allowed_at == SIZE_MAX && first != SIZE_MAX) {
        judged->allowed_at = first;
        judged->allowed = first_allowed;
    }
}

struct policy_decision policy_judge_answers(const struct policy *policy, const struct policy_request *request,
                                            const struct addr *answers, size_t count, size_t *ret_allowed,
                                            size_t *ret_allowed_count) {
    struct policy_request each = *request;
    struct judged judged = {.allowed_at = SIZE_MAX, .denied_at = SIZE_MAX};
    // Answers belong to the name that was looked up: a claimed one is now as good as dialled.
    if (!each.dialled) each.dialled = each.claimed;
    *ret_allowed_count = 0;
    if (count > 0) {
        uint8_t family = answers[0].family == ADDR_IPV6 ? ADDR_IPV6 : ADDR_IPV4;
        uint8_t other = family == ADDR_IPV6 ? ADDR_IPV4 : ADDR_IPV6;
        judge_family(policy, &each, answers, count, family, &judged, ret_allowed, ret_allowed_count);
        judge_family(policy, &each, answers, count, other, &judged, ret_allowed, ret_allowed_count);
    }
    if (judged.allowed_at != SIZE_MAX) return judged.allowed;
    if (judged.denied_at != SIZE_MAX) return judged.denied;
    return (struct policy_decision){.verdict = POLICY_DENY, .reason = POLICY_DNS_FAILED, .rule = POLICY_RULE_NONE};
}
