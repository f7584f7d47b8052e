// SPDX-License-Identifier: Apache-2.0
// The keeper tries the skeleton with nft; whether it may do without is for the policy to say: an open base, address ranges,
// UDP and ICMP need nft, names with known ports do not. PENSTOCK_SKELETON=routes skips the try. It only makes things stricter.
#include "daemon/skeleton_choice.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

// Rules and where they came from are the user's text.
static void skeleton_choice_print(char *text) {
    for (; *text; text++)
        if (*text < ' ' || *text > '~') *text = '?';
}

int skeleton_choice_wish(uint32_t *ret_skeleton, struct error *err) {
    const char *wish = getenv("PENSTOCK_SKELETON");
    *ret_skeleton = IPC_SKELETON_TPROXY;
    if (!wish || !*wish) return 0;
    if (strcmp(wish, "routes") != 0)
        return error_set(err, -EINVAL, "PENSTOCK_SKELETON: expected routes, got \"%s\"; unset it, so that the best one is tried", wish);
    *ret_skeleton = IPC_SKELETON_ROUTES;
    return 0;
}

static void skeleton_choice_add(struct ipc_ports *ports, uint16_t port) {
    for (uint32_t i = 0; i < ports->count; i++)
        if (ports->ports[i] == port) return;
    ports->ports[ports->count++] = port;
}

int skeleton_choice_fill(const struct policy *policy, const uint16_t *extra, struct ipc_keeper_start *start, struct error *err) {
    size_t extra_count = 0;
    uint32_t rule;
    bool many;
    while (extra && extra[extra_count]) extra_count++;
    int result = skeleton_choice_wish(&start->skeleton, err);
    if (result < 0) return result;
    int count = policy_listener_ports(policy, start->ports.ports, IPC_PORTS_MAX - extra_count, &rule, &many);
    start->ports.count = count > 0 ? (uint32_t)count : 0;
    for (size_t i = 0; i < extra_count && count > 0; i++) skeleton_choice_add(&start->ports, extra[i]);
    if (count > 0) return 0;
    struct policy_rule_info info = policy_rule_info(policy, rule);
    snprintf(start->need, sizeof(start->need), "the rule \"%.160s\" (%.160s)%s", info.text, info.source,
             many ? ", with more ports than can be listened on," : "");
    skeleton_choice_print(start->need);
    return 0;
}

const char *skeleton_choice_words(const struct ipc_keeper_ready *ready, char *buffer, size_t size) {
    if (ready->skeleton == IPC_SKELETON_TPROXY) return NULL;
    snprintf(buffer, size, "%s%.300s: only names with known ports can be allowed, and what goes to other ports is refused "
             "without a line in the log",
             ready->lacks[0] ? "this kernel lacks " : "nft is not used (PENSTOCK_SKELETON=routes)", ready->lacks);
    return buffer;
}
