// SPDX-License-Identifier: Apache-2.0
// After a change of policy every open flow and exchange is judged again, with the name and address it was admitted by
// (semantics section 10). Flows that are still on their way need nothing here: each step asks the policy in force.
#include "gate/intercept.h"
#include "gate/state.h"

static bool rejudge_allowed(struct flow *flow) {
    if (flow->state == FLOW_HTTP) return flow->h2 ? h2_relay_allowed(flow) : http_relay_allowed(flow);
    struct policy_request request = flow_request(flow);
    request.address = &flow->peer;
    struct policy_decision decision = policy_decide(flow->gate->policy, &request);
    if (decision.verdict != POLICY_ALLOW) return false;
    flow->rule = decision.rule; // rules are numbered anew with each generation
    flow->reason = (uint8_t)decision.reason;
    return true;
}

void rejudge_all(struct gate *gate, bool keep_existing, uint32_t *ret_closed, uint32_t *ret_kept) {
    *ret_closed = *ret_kept = 0;
    LIST_FOREACH(&gate->flows, node) {
        struct flow *flow = LIST_ENTRY(node, struct flow, link);
        if (flow->state != FLOW_RELAYING && flow->state != FLOW_HTTP) continue;
        bool allowed = rejudge_allowed(flow);
        if (allowed || keep_existing) {
            if (allowed) flow->generation = gate->facts.generation;
            ++*ret_kept;
        } else {
            flow->reason = POLICY_POLICY_CHANGED;
            flow_end(flow, true);
            ++*ret_closed;
        }
    }
    exchange_rejudge(gate, keep_existing, ret_closed, ret_kept);
}
