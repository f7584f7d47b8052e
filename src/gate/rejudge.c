// SPDX-License-Identifier: Apache-2.0
// After a change of policy every open flow and exchange is judged again, with the name and address it was admitted by
// (semantics section 10). Flows that are still on their way ask the policy in force at each step; dials of what is denied
// now, and bytes that flow back before the client has spoken, end at once.
#include "gate/intercept.h"
#include "gate/state.h"

static struct policy_decision rejudge_decide(const struct flow *flow) {
    if (flow->state == FLOW_HTTP) return flow->h2 ? h2_relay_rejudge(flow) : http_relay_rejudge(flow);
    struct policy_request request = flow_request(flow);
    request.address = &flow->peer;
    return policy_decide(flow->gate->policy, &request);
}

static bool rejudge_allowed(struct flow *flow) {
    struct policy_decision decision = rejudge_decide(flow);
    if (decision.verdict != POLICY_ALLOW) return false;
    flow->rule = decision.rule; // rules are numbered anew with each generation
    flow->reason = (uint8_t)decision.reason;
    flow->generation = flow->gate->facts.generation;
    return true;
}

// Those on their way: what they did by the old policy alone ends now; each of their next steps asks the new one.
static void rejudge_early(struct flow *flow) {
    bool dialled = flow->opening && flow->opening->connector;
    if (flow->state == FLOW_CONNECTING && dialled) syn_rejudge(flow);
    else if (flow->state == FLOW_FETCHING && dialled) sniff_rejudge(flow);
    else if (flow->state == FLOW_SNIFFING) sniff_rejudge(flow);
}

void rejudge_all(struct gate *gate, bool keep_existing, uint32_t *ret_closed, uint32_t *ret_kept) {
    *ret_closed = *ret_kept = 0;
    LIST_FOREACH(&gate->flows, node) {
        struct flow *flow = LIST_ENTRY(node, struct flow, link);
        bool open = flow->state == FLOW_RELAYING || (flow->state == FLOW_HTTP && flow->counted);
        if (!open) {
            rejudge_early(flow);
        } else if (rejudge_allowed(flow) || keep_existing) {
            ++*ret_kept;
        } else {
            flow->reason = POLICY_POLICY_CHANGED;
            flow_end(flow, true);
            ++*ret_closed;
        }
    }
    exchange_rejudge(gate, keep_existing, ret_closed, ret_kept);
}
