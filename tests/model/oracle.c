// SPDX-License-Identifier: Apache-2.0
// The verdict function behind a pipe, for tests/model: one JSON object a line in, one out. {"policy", "dialect", "node",
// "own"} compiles a policy as `penstock run` does, with these addresses as the host's own; {"ask"} is one question to
// policy_decide, {"ask", "answers"} one to policy_judge_answers. It knows nothing else: what a gate makes of the answers
// is the test's to say.
#include <jansson.h>

#include "base/mem.h"
#include "policy/model.h"

#define ADDRESSES_MAX 256
#define PORTS_MAX 256

static const char *text_of(const json_t *object, const char *key) { return json_string_value(json_object_get(object, key)); }

static size_t addresses_of(const json_t *list, struct addr addresses[ADDRESSES_MAX]) {
    size_t count = 0, i;
    json_t *item;
    json_array_foreach((json_t *)list, i, item) {
        const char *text = json_string_value(item);
        if (count < ADDRESSES_MAX && text && addr_parse(text, strlen(text), &addresses[count]) == 0) count++;
    }
    return count;
}

// ---- a policy ----

static enum policy_dialect dialect_of(const char *word) {
    if (!word) return POLICY_DIALECT_AUTO;
    return strcmp(word, "e2b") == 0 ? POLICY_DIALECT_E2B : POLICY_DIALECT_NETWORK;
}

static int compile(const json_t *line, struct policy_node *node, struct policy_model **ret_model,
                   struct policy **ret_policy, struct error *err) {
    struct addr own[ADDRESSES_MAX];
    size_t own_count = addresses_of(json_object_get(line, "own"), own);
    const char *text = text_of(line, "policy"), *node_text = text_of(line, "node");
    int r = policy_read(text, strlen(text), "policy", dialect_of(text_of(line, "dialect")), ret_model, err);
    if (r == 0) r = policy_model_set_type(*ret_model, POLICY_TYPE_PROCESS, err);
    if (r == 0) r = policy_check_type(*ret_model, POLICY_TYPE_PROCESS, err);
    if (r == 0 && node_text) r = policy_node_read(node_text, strlen(node_text), "node", NULL, node, err);
    if (r < 0) return r;
    struct policy_warnings warnings = {0};
    r = policy_compile(*ret_model, node_text ? node : NULL, own, own_count, 1, ret_policy, &warnings, err);
    policy_warnings_done(&warnings);
    return r;
}

static json_t *load(const json_t *line, struct policy **policy) {
    struct policy_node node = {0};
    struct policy_model *model = NULL;
    struct policy *compiled = NULL;
    struct error err = {0};
    int r = compile(line, &node, &model, &compiled, &err);
    policy_model_free(model);
    policy_node_done(&node);
    if (r < 0) return json_pack("{s:s}", "error", err.text);
    policy_free(*policy);
    *policy = compiled;
    struct policy_facts facts = policy_facts(compiled);
    uint16_t ports[PORTS_MAX];
    json_t *loopback = json_array();
    for (size_t i = 0, count = policy_loopback_ports(compiled, ports, PORTS_MAX); i < count; i++)
        json_array_append_new(loopback, json_integer(ports[i]));
    return json_pack("{s:b, s:b, s:b, s:b, s:o}", "base_allow", facts.base_allow, "names_are_policy",
                     facts.names_are_policy, "synthetic", facts.synthetic, "real", facts.dns_names == POLICY_DNS_REAL,
                     "loopback", loopback);
}

// ---- a question ----

static json_t *decided(const struct policy *policy, const struct policy_decision *decision) {
    const char *rule = decision->rule == POLICY_RULE_NONE ? NULL : policy_rule_info(policy, decision->rule).text;
    return json_pack("{s:s, s:s, s:s?, s:s?}", "verdict", policy_verdict_name(decision->verdict), "reason",
                     policy_reason_name(decision->reason), "rule", rule, "name", decision->name);
}

static json_t *ask(const struct policy *policy, const json_t *line) {
    json_t *asked = json_object_get(line, "ask"), *list = json_object_get(line, "answers");
    struct addr address[1], claimed[1], answers[ADDRESSES_MAX];
    struct policy_request request = {
        .protocol = (enum policy_protocol)json_integer_value(json_object_get(asked, "protocol")),
        .app = (enum policy_app)json_integer_value(json_object_get(asked, "app")),
        .dialled = text_of(asked, "dialled"),
        .claimed = text_of(asked, "claimed"),
        .ech = json_is_true(json_object_get(asked, "ech")),
        .port = (uint16_t)json_integer_value(json_object_get(asked, "port")),
    };
    const char *text = text_of(asked, "address"), *claimed_text = text_of(asked, "claimed_address");
    if (text && addr_parse(text, strlen(text), address) == 0) request.address = address;
    if (claimed_text && addr_parse(claimed_text, strlen(claimed_text), claimed) == 0) request.claimed_address = claimed;
    if (!list) {
        struct policy_decision decision = policy_decide(policy, &request);
        return decided(policy, &decision);
    }
    size_t allowed[ADDRESSES_MAX], allowed_count = 0, count = addresses_of(list, answers);
    struct policy_decision decision = policy_judge_answers(policy, &request, answers, count, allowed, &allowed_count);
    json_t *result = decided(policy, &decision), *indexes = json_array();
    for (size_t i = 0; i < allowed_count; i++) json_array_append_new(indexes, json_integer((json_int_t)allowed[i]));
    json_object_set_new(result, "allowed", indexes);
    return result;
}

int main(void) {
    AUTO_FREE char *line = NULL;
    size_t size = 0;
    struct policy *policy = NULL;
    while (getline(&line, &size, stdin) > 0) {
        json_t *input = json_loads(line, 0, NULL), *output = NULL;
        if (text_of(input, "policy")) output = load(input, &policy);
        else if (policy && json_object_get(input, "ask")) output = ask(policy, input);
        if (!output) return 1;
        json_dumpf(output, stdout, JSON_COMPACT);
        putchar('\n');
        fflush(stdout);
        json_decref(output);
        json_decref(input);
    }
    policy_free(policy);
    return 0;
}
