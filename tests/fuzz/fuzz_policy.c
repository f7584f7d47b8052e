// SPDX-License-Identifier: Apache-2.0
// Policy and configuration texts. The first byte chooses the reader: a dialect ('0' to '3') or the node configuration.
// What is read is checked for every type, compiled, and asked one question.
#include <stddef.h>
#include <stdint.h>

#include "policy/model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void use_model(struct policy_model *model) {
    struct policy_warnings warnings = {0};
    struct policy *policy = NULL;
    struct error err = {0};
    for (int type = 0; type < POLICY_TYPE_COUNT; type++) policy_check_type(model, (enum policy_type)type, &err);
    if (policy_compile(model, NULL, NULL, 0, 1, &policy, &warnings, &err) == 0)
        policy_decide(policy, &(struct policy_request){.protocol = POLICY_TCP, .dialled = "a.org", .port = 443});
    policy_free(policy);
    policy_warnings_done(&warnings);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct error err = {0};
    if (size == 0) return 0;
    const char *text = (const char *)data + 1;
    if (data[0] < '0' || data[0] > '3') {
        struct policy_node node;
        if (policy_node_read(text, size - 1, "node.yaml", NULL, &node, &err) == 0) policy_node_done(&node);
        return 0;
    }
    struct policy_model *model = NULL;
    if (policy_read(text, size - 1, "policy.yaml", (enum policy_dialect)(data[0] - '0'), &model, &err) == 0)
        use_model(model);
    policy_model_free(model);
    return 0;
}
