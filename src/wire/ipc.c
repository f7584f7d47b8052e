// SPDX-License-Identifier: Apache-2.0
// Theory of operation: one row per message type says how long its body is, how many descriptors come with it, and which
// function looks at counts, texts and enumerations inside. Bodies are copied before they are looked at: their place in
// a channel's buffer need not be aligned.
#include "wire/ipc.h"

#include <errno.h>

// NUL-terminated and printable ASCII: these end up on a terminal and in JSON.
static bool is_text(const char *text, size_t size) {
    size_t len = strnlen(text, size);
    for (size_t i = 0; i < len; i++)
        if (text[i] < ' ' || text[i] > '~') return false;
    return len < size;
}

static bool is_address(const struct addr *address) {
    static const uint8_t zeros[12];
    switch (address->family) {
    case ADDR_NONE:
        return true;
    case ADDR_IPV4:
        return memcmp(address->bytes + 4, zeros, sizeof(zeros)) == 0;
    case ADDR_IPV6:
        return true;
    }
    return false;
}

static bool is_server(const struct ipc_resolver_server *server) {
    return server->address.family != ADDR_NONE && is_address(&server->address) && server->port != 0;
}

static bool is_ports(const struct ipc_ports *ports) {
    if (ports->count > IPC_PORTS_MAX) return false;
    for (uint32_t i = 0; i < ports->count; i++)
        if (ports->ports[i] == 0) return false;
    return true;
}

static bool check_error(const void *body, size_t len) {
    (void)len;
    return is_text(body, IPC_TEXT_SIZE);
}

static bool check_keeper_start(const void *body, size_t len) {
    struct ipc_keeper_start start;
    memcpy(&start, body, sizeof(start));
    (void)len;
    return is_ports(&start.loopback_ports) && is_ports(&start.ports) && start.skeleton < IPC_SKELETON_COUNT &&
           is_text(start.need, sizeof(start.need));
}

static bool check_keeper_ready(const void *body, size_t len) {
    struct ipc_keeper_ready ready;
    memcpy(&ready, body, sizeof(ready));
    (void)len;
    return ready.skeleton < IPC_SKELETON_COUNT && is_text(ready.lacks, sizeof(ready.lacks));
}

static bool check_plain(const void *body, size_t len) {
    struct ipc_plain plain;
    memcpy(&plain, body, sizeof(plain));
    (void)len;
    return plain.listeners > 0 && plain.listeners <= IPC_LISTENERS_MAX;
}

static bool check_ports(const void *body, size_t len) {
    struct ipc_ports ports;
    memcpy(&ports, body, sizeof(ports));
    (void)len;
    return is_ports(&ports);
}

static bool check_mapping(const void *body, size_t len) {
    struct ipc_mapping mapping;
    memcpy(&mapping, body, sizeof(mapping));
    (void)len;
    return mapping.index < IPC_MAPPINGS_MAX && mapping.name[0] != '\0' && is_text(mapping.name, sizeof(mapping.name));
}

static bool check_buffers(const void *body, size_t len) {
    struct ipc_buffers buffers;
    memcpy(&buffers, body, sizeof(buffers));
    (void)len;
    return buffers.large <= 1;
}

static bool check_gate_start(const void *body, size_t len) {
    struct ipc_gate_start start;
    memcpy(&start, body, sizeof(start));
    (void)len;
    return start.doors <= 1 && is_text(start.sandbox, sizeof(start.sandbox));
}

static bool check_policy(const void *body, size_t len) {
    struct ipc_policy policy;
    memcpy(&policy, body, sizeof(policy));
    (void)len;
    return policy.size > 0 && policy.keep_existing <= 1;
}

static bool check_active(const void *body, size_t len) {
    struct ipc_active active;
    memcpy(&active, body, sizeof(active));
    (void)len;
    return active.status <= 0;
}

// What comes before the texts is copied as it is; then their lengths, then they.
struct packed_lengths {
    uint16_t name, hint;
};
#define PACKED_HEAD (offsetof(struct ipc_decision, name) + sizeof(struct packed_lengths))

size_t ipc_decision_pack(const struct ipc_decision *decision, uint8_t ret_bytes[IPC_DECISION_PACKED_MAX]) {
    struct packed_lengths lengths = {.name = (uint16_t)strnlen(decision->name, sizeof(decision->name) - 1),
                                     .hint = (uint16_t)strnlen(decision->hint, sizeof(decision->hint) - 1)};
    memcpy(ret_bytes, decision, offsetof(struct ipc_decision, name));
    memcpy(ret_bytes + offsetof(struct ipc_decision, name), &lengths, sizeof(lengths));
    memcpy(ret_bytes + PACKED_HEAD, decision->name, lengths.name);
    memcpy(ret_bytes + PACKED_HEAD + lengths.name, decision->hint, lengths.hint);
    return PACKED_HEAD + lengths.name + lengths.hint;
}

static bool good_decision(const struct ipc_decision *decision) {
    if (decision->event > 1 || decision->protocol >= IPC_PROTOCOLS || decision->verdict >= IPC_VERDICTS) return false;
    if (decision->reason >= IPC_REASONS || decision->app >= IPC_APPS || !is_address(&decision->address)) return false;
    return is_text(decision->name, sizeof(decision->name)) && is_text(decision->hint, sizeof(decision->hint));
}

bool ipc_decision_next(const void *bytes, size_t len, size_t *at, struct ipc_decision *ret_decision) {
    const uint8_t *head = (const uint8_t *)bytes + *at;
    struct packed_lengths lengths;
    if (len - *at < PACKED_HEAD) return false;
    memcpy(&lengths, head + offsetof(struct ipc_decision, name), sizeof(lengths));
    if (lengths.name >= sizeof(ret_decision->name) || lengths.hint >= sizeof(ret_decision->hint)) return false;
    if (len - *at - PACKED_HEAD < (size_t)lengths.name + lengths.hint) return false;
    *ret_decision = (struct ipc_decision){0};
    memcpy(ret_decision, head, offsetof(struct ipc_decision, name));
    memcpy(ret_decision->name, head + PACKED_HEAD, lengths.name);
    memcpy(ret_decision->hint, head + PACKED_HEAD + lengths.name, lengths.hint);
    *at += PACKED_HEAD + lengths.name + lengths.hint;
    return good_decision(ret_decision);
}

static bool check_decision(const void *body, size_t len) {
    struct ipc_decision decision;
    size_t at = 0;
    while (at < len)
        if (!ipc_decision_next(body, len, &at, &decision)) return false;
    return true;
}

static bool check_resolver_start(const void *body, size_t len) {
    struct ipc_resolver_start start;
    memcpy(&start, body, sizeof(start));
    (void)len;
    if (start.count > IPC_SERVERS_MAX) return false;
    for (uint32_t i = 0; i < start.count; i++)
        if (!is_server(&start.servers[i])) return false;
    return true;
}

static bool check_query(const void *body, size_t len) {
    struct ipc_query query;
    memcpy(&query, body, sizeof(query));
    (void)len;
    if (query.has_server > 1 || (query.has_server && !is_server(&query.server))) return false;
    return is_text(query.name, sizeof(query.name));
}

static bool check_answer(const void *body, size_t len) {
    struct ipc_answer answer;
    memcpy(&answer, body, sizeof(answer));
    if (answer.status > 0 || answer.length > DNS_ANSWER_MAX || answer.length != len - sizeof(answer)) return false;
    return answer.status == 0 || answer.length == 0;
}

// NUL-terminated, any bytes in it: paths and commands are the user's own.
static bool is_string(const char *text, size_t size) { return strnlen(text, size) < size; }

static bool check_vault_env(const void *body, size_t len) {
    struct ipc_vault_env env;
    memcpy(&env, body, sizeof(env));
    (void)len;
    return env.name[0] != '\0' && is_string(env.name, sizeof(env.name)) && env.length <= IPC_SECRET_MAX;
}

static bool check_vault_ready(const void *body, size_t len) {
    struct ipc_vault_ready ready;
    memcpy(&ready, body, sizeof(ready));
    return ready.length > 0 && ready.length <= IPC_CERTIFICATE_MAX && ready.length == len - sizeof(ready);
}

static bool check_vault_rule(const void *body, size_t len) {
    struct ipc_vault_rule rule;
    memcpy(&rule, body, sizeof(rule));
    (void)len;
    return rule.basic <= 1 && rule.host[0] != '\0' && is_text(rule.host, sizeof(rule.host)) && rule.value[0] != '\0' &&
           is_string(rule.value, sizeof(rule.value)) && is_string(rule.reference, sizeof(rule.reference));
}

static bool check_leaf_ask(const void *body, size_t len) {
    struct ipc_leaf_ask ask;
    memcpy(&ask, body, sizeof(ask));
    (void)len;
    return ask.rule < IPC_RULES_MAX;
}

static bool check_leaf(const void *body, size_t len) {
    struct ipc_leaf leaf;
    memcpy(&leaf, body, sizeof(leaf));
    if (leaf.rule >= IPC_RULES_MAX || leaf.status > 0) return false;
    if (leaf.leaf_length > IPC_CERTIFICATE_MAX || leaf.ca_length > IPC_CERTIFICATE_MAX) return false;
    if ((leaf.status == 0) != (leaf.leaf_length > 0) || (leaf.status == 0) != (leaf.ca_length > 0)) return false;
    return leaf.leaf_length + leaf.ca_length == len - sizeof(leaf);
}

static bool check_value_ask(const void *body, size_t len) {
    struct ipc_value_ask asks[IPC_ASKS_MAX];
    if (len > sizeof(asks) || len % sizeof(asks[0]) != 0) return false;
    memcpy(asks, body, len);
    for (size_t i = 0; i < len / sizeof(asks[0]); i++)
        if (asks[i].rule >= IPC_RULES_MAX) return false;
    return true;
}

bool ipc_value_next(const void *bytes, size_t len, size_t *at, struct ipc_value *ret_value, const uint8_t **ret_bytes) {
    const uint8_t *head = (const uint8_t *)bytes + *at;
    size_t left = len - *at;
    if (left < sizeof(*ret_value)) return false;
    memcpy(ret_value, head, sizeof(*ret_value));
    if (ret_value->rule >= IPC_RULES_MAX || ret_value->status > 0 || ret_value->length > IPC_SECRET_MAX) return false;
    if ((ret_value->status == 0) != (ret_value->length > 0) || ret_value->length > left - sizeof(*ret_value)) return false;
    *ret_bytes = head + sizeof(*ret_value);
    *at += sizeof(*ret_value) + ret_value->length;
    return true;
}

static bool check_value(const void *body, size_t len) {
    struct ipc_value value;
    const uint8_t *bytes;
    size_t at = 0;
    while (at < len)
        if (!ipc_value_next(body, len, &at, &value, &bytes)) return false;
    return true;
}

static bool check_value_changed(const void *body, size_t len) {
    struct ipc_value_changed changed;
    memcpy(&changed, body, sizeof(changed));
    (void)len;
    return changed.rule < IPC_RULES_MAX;
}

static bool check_source_ask(const void *body, size_t len) {
    struct ipc_source_ask ask;
    memcpy(&ask, body, sizeof(ask));
    (void)len;
    return ask.kind <= IPC_SOURCE_SHELL && ask.text[0] != '\0' && is_string(ask.text, sizeof(ask.text));
}

static bool check_source_opened(const void *body, size_t len) {
    struct ipc_source_answer answer;
    memcpy(&answer, body, sizeof(answer));
    (void)len;
    return answer.status == 0;
}

static bool check_shim_call(const void *body, size_t len) {
    struct ipc_shim_call call;
    memcpy(&call, body, sizeof(call));
    (void)len;
    return call.verb < IPC_SHIM_VERB_COUNT;
}

static bool check_shim_begin(const void *body, size_t len) {
    const struct ipc_shim_begin *begin = body;
    (void)len;
    return is_text(begin->id, sizeof(begin->id)) && begin->id[0] != '\0';
}

static bool check_shim_up(const void *body, size_t len) {
    struct ipc_shim_up up;
    memcpy(&up, body, sizeof(up));
    (void)len;
    return up.paused <= 1 && up.pid > 0;
}

static bool check_shim_done(const void *body, size_t len) {
    struct ipc_shim_done done;
    memcpy(&done, body, sizeof(done));
    (void)len;
    return done.status <= 0 && is_string(done.text, sizeof(done.text));
}

static const struct {
    size_t size;
    uint8_t fds;
    bool known, has_tail; // with a tail, size is the least
    bool (*check)(const void *body, size_t len);
    uint8_t fds_least; // 0: always fds,
    bool fds_any;      // unless any number up to fds will do
} messages[IPC_TYPE_COUNT] = {
    [IPC_ERROR] = {sizeof(struct ipc_error), 0, true, false, check_error},
    [IPC_KEEPER_ENTER] = {sizeof(struct ipc_keeper_enter), 0, true, false, NULL},
    [IPC_KEEPER_START] = {sizeof(struct ipc_keeper_start), 1, true, false, check_keeper_start, .fds_any = true},
    [IPC_KEEPER_NAMESPACES] = {0, 2, true, false, NULL},
    [IPC_KEEPER_READY] = {sizeof(struct ipc_keeper_ready), 0, true, false, check_keeper_ready},
    [IPC_KEEPER_GATE] = {0, 1, true, false, NULL},
    [IPC_KEEPER_END] = {0, 1, true, false, NULL, .fds_any = true},
    [IPC_KEEPER_PORTS] = {sizeof(struct ipc_ports), 0, true, false, check_ports},
    [IPC_GATE_SOCKETS] = {0, IPC_SOCKET_COUNT, true, false, NULL},
    [IPC_MAPPING] = {sizeof(struct ipc_mapping), 0, true, false, check_mapping},
    [IPC_BUFFERS] = {sizeof(struct ipc_buffers), 0, true, false, check_buffers},
    [IPC_MAPPINGS_END] = {0, 0, true, false, NULL},
    [IPC_GATE_START] = {sizeof(struct ipc_gate_start), 4, true, false, check_gate_start, IPC_GATE_START_FDS},
    [IPC_GATE_POLICY] = {sizeof(struct ipc_policy), 2, true, false, check_policy, .fds_least = 1},
    [IPC_GATE_RESOLVER] = {0, 1, true, false, NULL},
    [IPC_GATE_VAULT] = {0, 1, true, false, NULL},
    [IPC_GATE_VAULT_LOST] = {0, 0, true, false, NULL},
    [IPC_GATE_READY] = {0, 0, true, false, NULL},
    [IPC_GATE_ACTIVE] = {sizeof(struct ipc_active), 0, true, false, check_active},
    [IPC_GATE_COUNT] = {0, 0, true, false, NULL},
    [IPC_GATE_COUNTERS] = {sizeof(struct ipc_counters), 0, true, false, NULL},
    [IPC_GATE_SPENT] = {sizeof(struct ipc_spent), 0, true, false, NULL},
    [IPC_DECISION] = {PACKED_HEAD, 0, true, true, check_decision},
    [IPC_RESOLVER_START] = {sizeof(struct ipc_resolver_start), 0, true, false, check_resolver_start},
    [IPC_RESOLVER_READY] = {0, 0, true, false, NULL},
    [IPC_RESOLVER_GATE] = {0, 1, true, false, NULL},
    [IPC_QUERY] = {sizeof(struct ipc_query), 0, true, false, check_query},
    [IPC_ANSWER] = {sizeof(struct ipc_answer), 0, true, true, check_answer},
    [IPC_GATE_PLAIN] = {sizeof(struct ipc_plain), IPC_PLAIN_SOCKETS, true, false, check_plain},
    [IPC_GATE_LISTENERS] = {0, IPC_FDS_MAX, true, false, NULL, .fds_least = 1},
    [IPC_VAULT_START] = {sizeof(struct ipc_vault_start), 0, true, false, NULL},
    [IPC_VAULT_ENV] = {sizeof(struct ipc_vault_env), 1, true, false, check_vault_env},
    [IPC_VAULT_READY] = {sizeof(struct ipc_vault_ready), 0, true, true, check_vault_ready},
    [IPC_VAULT_RULE] = {sizeof(struct ipc_vault_rule), 0, true, false, check_vault_rule},
    [IPC_VAULT_GATE] = {0, 1, true, false, NULL},
    [IPC_VAULT_NOTICE] = {sizeof(struct ipc_error), 0, true, false, check_error},
    [IPC_LEAF_ASK] = {sizeof(struct ipc_leaf_ask), 0, true, false, check_leaf_ask},
    [IPC_LEAF] = {sizeof(struct ipc_leaf), 0, true, true, check_leaf},
    [IPC_VALUE_ASK] = {sizeof(struct ipc_value_ask), 0, true, true, check_value_ask},
    [IPC_VALUE] = {sizeof(struct ipc_value), 0, true, true, check_value},
    [IPC_VALUE_CHANGED] = {sizeof(struct ipc_value_changed), 0, true, false, check_value_changed},
    [IPC_SOURCE_ASK] = {sizeof(struct ipc_source_ask), 0, true, false, check_source_ask},
    [IPC_SOURCE_FILE] = {sizeof(struct ipc_source_answer), 1, true, false, check_source_opened},
    [IPC_SOURCE_STORED] = {sizeof(struct ipc_source_answer), 2, true, false, check_source_opened},
    [IPC_SOURCE_OUTPUT] = {sizeof(struct ipc_source_answer), 1, true, false, check_source_opened},
    [IPC_SOURCE_END] = {sizeof(struct ipc_source_answer), 0, true, false, NULL},
    [IPC_SHIM_BEGIN] = {sizeof(struct ipc_shim_begin), 0, true, false, check_shim_begin},
    [IPC_SHIM_UP] = {sizeof(struct ipc_shim_up), 0, true, false, check_shim_up},
    [IPC_SHIM_CALL] = {sizeof(struct ipc_shim_call), IPC_SHIM_FDS, true, false, check_shim_call, .fds_any = true},
    [IPC_SHIM_DONE] = {sizeof(struct ipc_shim_done), 0, true, false, check_shim_done},
    [IPC_SHIM_COUNTERS] = {sizeof(struct ipc_counters), 0, true, false, NULL},
    [IPC_SHIM_EXIT] = {sizeof(struct ipc_shim_exit), 0, true, false, NULL},
};
_Static_assert(IPC_SOCKET_COUNT <= IPC_FDS_MAX, "every message's descriptors fit");
_Static_assert(IPC_SOCKET_RAW6 - IPC_SOCKET_UDP4 + 1 == IPC_PLAIN_SOCKETS, "these are next to each other");
_Static_assert(sizeof(struct ipc_answer) + DNS_ANSWER_MAX <= IPC_BODY_MAX, "the longest message fits");
_Static_assert(sizeof(struct ipc_value) + IPC_SECRET_MAX < DNS_ANSWER_MAX, "it is an answer");

int ipc_check(uint32_t type, const void *body, size_t body_len, size_t fd_count) {
    if (type >= IPC_TYPE_COUNT || !messages[type].known) return -EBADMSG;
    size_t least = messages[type].fds_least ? messages[type].fds_least : messages[type].fds;
    if ((fd_count < least && !messages[type].fds_any) || fd_count > messages[type].fds) return -EBADMSG;
    if (messages[type].has_tail ? body_len < messages[type].size : body_len != messages[type].size) return -EBADMSG;
    return messages[type].check == NULL || messages[type].check(body, body_len) ? 0 : -EBADMSG;
}
