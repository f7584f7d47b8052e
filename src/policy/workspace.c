// SPDX-License-Identifier: Apache-2.0
// A workspace binding asks for the rules that the operator keeps in the node's configuration, which are the same for
// every sandbox; a sandbox gets those of the hosts that it reaches.
#include <errno.h>

#include "base/mem.h"
#include "policy/binding.h"

static bool is_reached(const struct policy_model *model, const struct policy_binding *binding) {
    struct policy_binding_target targets[POLICY_BINDING_TARGETS];
    const struct policy_entry *entry;
    size_t count = policy_binding_targets(binding, targets);
    for (size_t i = 0; i < count; i++)
        if (policy_binding_reach(model, targets[i].host, &entry) == -ENOENT) return false;
    return true;
}

static void list_hosts(const struct policy_node *node, char text[512]) {
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < node->workspace_count && used < 400; i++) {
        struct policy_binding_target targets[POLICY_BINDING_TARGETS];
        size_t count = policy_binding_targets(&node->workspace[i], targets);
        for (size_t k = 0; k < count && used < 400; k++) {
            if (strstr(text, targets[k].host)) continue;
            used += (size_t)snprintf(text + used, 512 - used, "%s%.100s", used ? ", " : "", targets[k].host);
        }
    }
}

static int append_rules(struct policy_model *model, const struct policy_node *node, const char *source,
                        struct error *err) {
    size_t before = model->binding_count;
    for (size_t i = 0; i < node->workspace_count; i++) {
        struct policy_binding copy;
        if (!is_reached(model, &node->workspace[i])) continue;
        int r = policy_binding_check_tls(model, policy_type_info(model->type), &node->workspace[i], err);
        if (r < 0) return error_context(err, r, "%s", node->workspace[i].source);
        if (policy_binding_copy(&node->workspace[i], &copy) < 0) return error_set(err, -ENOMEM, "out of memory");
        copy.workspace = true;
        r = policy_binding_append(model, &copy, err);
        if (r < 0) return error_context(err, r, "%s and %s", source, node->workspace[i].source);
    }
    char hosts[512];
    list_hosts(node, hosts);
    if (model->binding_count > before) return 0;
    return error_set(err, -EINVAL, "%s: the policy reaches no host of the workspace's rules (%s); add one of them, or remove "
                                   "the workspace binding", source, hosts);
}

int policy_bind_workspace(struct policy_model *model, const struct policy_node *node, struct error *err) {
    size_t at = 0;
    while (at < model->binding_count && model->bindings[at].kind != POLICY_BINDING_WORKSPACE) at++;
    if (at == model->binding_count) return 0;
    struct policy_binding binding = model->bindings[at];
    memmove(&model->bindings[at], &model->bindings[at + 1], (--model->binding_count - at) * sizeof(binding));
    const char *source = binding.source ? binding.source : "workspace";
    int r;
    if (!node || node->workspace_count == 0)
        r = error_set(err, -EINVAL, "%s: the workspace binding has no rules; the operator lists them in the node's "
                                    "configuration, under credentials: {workspace: [...]}, which --node-config names", source);
    else
        r = append_rules(model, node, source, err);
    policy_binding_done(&binding);
    return r;
}
