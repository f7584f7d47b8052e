// SPDX-License-Identifier: Apache-2.0
// Messages between our processes: the first byte stands for the type, counted from 'a' (a number would be another type's after a
// change of the enumeration), the second the descriptors, then the body, which becomes as long as the type's with FIT.
// In what is accepted every text ends inside its field and every count is within its array. Letter 'B' is the block of a
// policy that comes with IPC_GATE_POLICY: whatever was changed in it, what is accepted can be asked anything.
#include "base/mem.h"
#include "policy/block.h"
#include "wire/ipc.h"

#define FIT 0x80 // in the second byte

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct {
    enum ipc_type type;
    size_t size;
} kinds[] = { // 'a' and on
    {IPC_ERROR, sizeof(struct ipc_error)},
    {IPC_KEEPER_START, sizeof(struct ipc_keeper_start)},
    {IPC_KEEPER_READY, sizeof(struct ipc_keeper_ready)},
    {IPC_KEEPER_GATE, 0},
    {IPC_KEEPER_PORTS, sizeof(struct ipc_ports)},
    {IPC_GATE_SOCKETS, 0},
    {IPC_MAPPING, sizeof(struct ipc_mapping)},
    {IPC_MAPPINGS_END, 0},
    {IPC_GATE_START, sizeof(struct ipc_gate_start)},
    {IPC_GATE_POLICY, sizeof(struct ipc_policy)},
    {IPC_GATE_RESOLVER, 0},
    {IPC_GATE_READY, 0},
    {IPC_GATE_ACTIVE, sizeof(struct ipc_active)},
    {IPC_DECISION, sizeof(struct ipc_decision)},
    {IPC_RESOLVER_START, sizeof(struct ipc_resolver_start)},
    {IPC_RESOLVER_READY, 0},
    {IPC_RESOLVER_GATE, 0},
    {IPC_QUERY, sizeof(struct ipc_query)},
    {IPC_ANSWER, sizeof(struct ipc_answer)},
    {IPC_GATE_PLAIN, sizeof(struct ipc_plain)},
    {IPC_GATE_LISTENERS, 0},
    {IPC_BUFFERS, sizeof(struct ipc_buffers)},
    {IPC_VAULT_START, sizeof(struct ipc_vault_start)},
    {IPC_VAULT_ENV, sizeof(struct ipc_vault_env)},
    {IPC_VAULT_READY, sizeof(struct ipc_vault_ready)},
    {IPC_VAULT_RULE, sizeof(struct ipc_vault_rule)},
    {IPC_VAULT_GATE, 0},
    {IPC_VAULT_NOTICE, sizeof(struct ipc_error)},
    {IPC_LEAF_ASK, sizeof(struct ipc_leaf_ask)},
    {IPC_LEAF, sizeof(struct ipc_leaf)},
    {IPC_VALUE_ASK, sizeof(struct ipc_value_ask)},
    {IPC_VALUE, sizeof(struct ipc_value)},
    {IPC_VALUE_CHANGED, sizeof(struct ipc_value_changed)},
    {IPC_SOURCE_ASK, sizeof(struct ipc_source_ask)},
    {IPC_SOURCE_FILE, sizeof(struct ipc_source_answer)},
    {IPC_SOURCE_STORED, sizeof(struct ipc_source_answer)},
    {IPC_SOURCE_OUTPUT, sizeof(struct ipc_source_answer)},
    {IPC_SOURCE_END, sizeof(struct ipc_source_answer)},
    {IPC_GATE_VAULT, 0},
    {IPC_GATE_VAULT_LOST, 0},
    {IPC_KEEPER_NAMESPACES, 0},
    {IPC_KEEPER_END, 0},
    {IPC_KEEPER_ENTER, sizeof(struct ipc_keeper_enter)},
    {IPC_SHIM_BEGIN, sizeof(struct ipc_shim_begin)},
    {IPC_SHIM_UP, sizeof(struct ipc_shim_up)},
    {IPC_SHIM_CALL, sizeof(struct ipc_shim_call)},
    {IPC_SHIM_DONE, sizeof(struct ipc_shim_done)},
    {IPC_SHIM_EXIT, sizeof(struct ipc_shim_exit)},
    {IPC_GATE_SPENT, sizeof(struct ipc_spent)},
    {IPC_GATE_COUNT, 0},
    {IPC_GATE_COUNTERS, sizeof(struct ipc_counters)},
    {IPC_SHIM_COUNTERS, sizeof(struct ipc_counters)},
};
_Static_assert(ARRAY_LENGTH(kinds) == IPC_TYPE_COUNT - 1, "one row a type, at the end: letters must not move");

static void check_text(const char *text, size_t size) {
    if (strnlen(text, size) == size) abort();
}

static void check_ports(const struct ipc_ports *ports) {
    if (ports->count > IPC_PORTS_MAX) abort();
}

static void check_decisions(const void *body, size_t len) {
    struct ipc_decision decision;
    size_t at = 0;
    while (at < len) {
        if (!ipc_decision_next(body, len, &at, &decision)) abort();
        check_text(decision.name, NAME_SIZE);
        check_text(decision.hint, sizeof(decision.hint));
    }
}

static void check_values(const void *body, size_t len) {
    struct ipc_value value;
    const uint8_t *bytes;
    size_t at = 0;
    while (at < len) {
        if (!ipc_value_next(body, len, &at, &value, &bytes) || value.rule >= IPC_RULES_MAX) abort();
        if (bytes + value.length != (const uint8_t *)body + at) abort();
    }
}

static void check_body(enum ipc_type type, const void *body, size_t len) {
    union {
        struct ipc_error error;
        struct ipc_ports ports;
        struct ipc_keeper_start keeper_start;
        struct ipc_keeper_ready keeper_ready;
        struct ipc_plain plain;
        struct ipc_buffers buffers;
        struct ipc_vault_rule rule;
        struct ipc_leaf leaf;
        struct ipc_source_ask source;
        struct ipc_mapping mapping;
        struct ipc_gate_start gate_start;
        struct ipc_resolver_start resolver_start;
        struct ipc_query query;
        struct ipc_answer answer;
    } as;
    if (len) memcpy(&as, body, len < sizeof(as) ? len : sizeof(as));
    if (type == IPC_ERROR) check_text(as.error.text, sizeof(as.error.text));
    if (type == IPC_KEEPER_START) check_ports(&as.keeper_start.loopback_ports);
    if (type == IPC_KEEPER_START) check_ports(&as.keeper_start.ports);
    if (type == IPC_KEEPER_START) check_text(as.keeper_start.need, sizeof(as.keeper_start.need));
    if (type == IPC_KEEPER_READY) check_text(as.keeper_ready.lacks, sizeof(as.keeper_ready.lacks));
    if (type == IPC_KEEPER_READY && as.keeper_ready.skeleton >= IPC_SKELETON_COUNT) abort();
    if (type == IPC_GATE_PLAIN && (as.plain.listeners == 0 || as.plain.listeners > IPC_LISTENERS_MAX)) abort();
    if (type == IPC_BUFFERS && as.buffers.large > 1) abort();
    if (type == IPC_VAULT_RULE) check_text(as.rule.host, sizeof(as.rule.host));
    if (type == IPC_VAULT_RULE) check_text(as.rule.value, sizeof(as.rule.value));
    if (type == IPC_VAULT_RULE) check_text(as.rule.reference, sizeof(as.rule.reference));
    if (type == IPC_SOURCE_ASK) check_text(as.source.text, sizeof(as.source.text));
    if (type == IPC_LEAF && sizeof(as.leaf) + as.leaf.leaf_length + as.leaf.ca_length != len) abort();
    if (type == IPC_VALUE) check_values(body, len);
    if (type == IPC_VALUE_ASK && (len % sizeof(struct ipc_value_ask) != 0 || len / sizeof(struct ipc_value_ask) > IPC_ASKS_MAX)) abort();
    if (type == IPC_KEEPER_PORTS) check_ports(&as.ports);
    if (type == IPC_MAPPING) check_text(as.mapping.name, NAME_SIZE);
    if (type == IPC_MAPPING && as.mapping.index >= IPC_MAPPINGS_MAX) abort();
    if (type == IPC_GATE_START) check_text(as.gate_start.sandbox, sizeof(as.gate_start.sandbox));
    if (type == IPC_DECISION) check_decisions(body, len);
    if (type == IPC_RESOLVER_START && as.resolver_start.count > IPC_SERVERS_MAX) abort();
    if (type == IPC_QUERY) check_text(as.query.name, NAME_SIZE);
    if (type == IPC_ANSWER && as.answer.length != len - sizeof(as.answer)) abort();
}

static void ask(const struct policy *policy) {
    static const char *const names[] = {"a.example", "api.github.com", "localhost"};
    struct addr addresses[] = {addr_ipv4(0xcb007105), addr_ipv4(0x7f000001), {.family = ADDR_IPV6, .bytes = {0x20, 1}}};
    char hint[POLICY_HINT_SIZE];
    uint16_t ports[IPC_PORTS_MAX];
    for (int i = 0; i < 4 * 4 * 4; i++) {
        struct policy_request request = {.protocol = (enum policy_protocol)(i % 4), .port = 443};
        request.address = i / 16 < 3 ? &addresses[i / 16] : NULL;
        request.app = i % 8 ? POLICY_APP_TLS : POLICY_APP_UNKNOWN;
        if (!request.address || i / 4 % 4 < 3) *(i % 2 ? &request.dialled : &request.claimed) = names[i / 4 % 3];
        if (request.protocol == POLICY_DNS) request.dialled = names[0];
        struct policy_decision decision = policy_decide(policy, &request);
        if (decision.rule != POLICY_RULE_NONE) policy_rule_info(policy, decision.rule);
        if (decision.verdict == POLICY_DENY) policy_hint(policy, &request, &decision, hint);
    }
    policy_facts(policy);
    policy_loopback_ports(policy, ports, IPC_PORTS_MAX);
    for (uint32_t i = 0; i < policy_rule_count(policy); i++) {
        struct policy_rule_info info = policy_rule_info(policy, i);
        if (strlen(info.text) + strlen(info.source) > 1 << 20) abort();
    }
}

static const struct policy *example(void) {
    static const char text[] = "version: 1\nbase: deny\nallow: [{host: api.github.com}, {host: '*.example', ports: [443, 80-90]},"
                               "{host: localhost, ports: [8000]}, {cidr: 203.0.113.0/24, protocol: udp}, {cidr: '2001:db8::/32'},"
                               "{host: b.example, protocol: http}]\ndeny: [{cidr: 203.0.113.128/25}, {cidr: 198.51.100.1}]\n";
    static struct policy *policy;
    struct policy_model *model = NULL;
    struct policy_warnings warnings = {0};
    struct error err = {0};
    if (policy) return policy;
    if (policy_read(text, strlen(text), "policy.yaml", POLICY_DIALECT_NATIVE, &model, &err) < 0 ||
        policy_compile(model, NULL, NULL, 0, 1, &policy, &warnings, &err) < 0)
        abort();
    policy_model_free(model);
    policy_warnings_done(&warnings);
    return policy;
}

// A forged block: that of the example with changes (where, what: three bytes each) and a right checksum.
static void check_block(const uint8_t *changes, size_t len) {
    struct policy *policy;
    struct error err = {0};
    size_t size;
    const void *original = policy_block(example(), &size);
    uint8_t *block = malloc(size);
    if (!block) abort();
    memcpy(block, original, size);
    for (size_t i = 0; i + 3 <= len; i += 3) block[(changes[i] | changes[i + 1] << 8) % size] = changes[i + 2];
    ((struct block_header *)(void *)block)->checksum = block_checksum(block, size);
    if (policy_from_block(block, size, &policy, &err) == 0) {
        ask(policy);
        policy_free(policy);
    }
    free(block);
}

static void check_message(size_t kind, size_t fds, bool fit, const uint8_t *data, size_t len) {
    size_t room = fit ? kinds[kind].size : len;
    uint8_t *body = calloc(1, room ? room : 1); // ends where the message ends
    if (!body) abort();
    if (len && room) memcpy(body, data, len < room ? len : room);
    if (ipc_check(kinds[kind].type, body, room, fds) == 0) check_body(kinds[kind].type, body, room);
    free(body);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2) return 0;
    size_t kind = (size_t)data[0] - 'a';
    if (data[0] == 'B') check_block(data + 2, size - 2);
    else if (kind < ARRAY_LENGTH(kinds)) check_message(kind, data[1] & 0xf, data[1] & FIT, data + 2, size - 2);
    else if (ipc_check(data[0], data + 2, size - 2, data[1]) == 0 && (data[0] == 0 || data[0] >= IPC_TYPE_COUNT)) abort();
    return 0;
}
