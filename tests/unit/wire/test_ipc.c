// SPDX-License-Identifier: Apache-2.0
#include "policy/policy.h"
#include "wire/ipc.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

// The wire room may not include the policy room: its numbers of values are held to this.
_Static_assert(POLICY_DNS + 1 == IPC_PROTOCOLS && POLICY_INSPECT + 1 == IPC_VERDICTS, "ipc.h");
_Static_assert((int)POLICY_REASON_COUNT == IPC_REASONS && POLICY_APP_OTHER + 1 == IPC_APPS, "ipc.h");
_Static_assert((int)POLICY_LIMIT_COUNT == IPC_LIMITS, "ipc.h");

static int check_at(enum ipc_type type, const void *body, size_t len, size_t fds) {
    // A copy at an odd address, of exactly that size: the sanitizers see reads outside and misaligned ones.
    uint8_t *copy = malloc(len + 1);
    assert_non_null(copy);
    if (len) memcpy(copy + 1, body, len);
    int result = ipc_check(type, copy + 1, len, fds);
    free(copy);
    return result;
}
#define GOOD(type, object) assert_int_equal(check_at(type, &(object), sizeof(object), 0), 0)
#define BAD(type, object) assert_int_equal(check_at(type, &(object), sizeof(object), 0), -EBADMSG)

static void test_sizes(void **state) {
    (void)state;
    const struct {
        enum ipc_type type;
        size_t size, fds;
    } rows[] = {
        {IPC_ERROR, 1024, 0},
        {IPC_KEEPER_START, sizeof(struct ipc_keeper_start), 1},
        {IPC_KEEPER_NAMESPACES, 0, 2},
        {IPC_KEEPER_READY, sizeof(struct ipc_keeper_ready), 0},
        {IPC_KEEPER_GATE, 0, 1},
        {IPC_KEEPER_END, 0, 1},
        {IPC_KEEPER_PORTS, 132, 0},
        {IPC_GATE_SOCKETS, 0, 7},
        {IPC_MAPPINGS_END, 0, 0},
        {IPC_GATE_VAULT, 0, 1},
        {IPC_GATE_VAULT_LOST, 0, 0},
        {IPC_GATE_READY, 0, 0},
        {IPC_GATE_ACTIVE, sizeof(struct ipc_active), 0},
        {IPC_GATE_SPENT, 8, 0},
        {IPC_GATE_COUNT, 0, 0},
        {IPC_GATE_COUNTERS, sizeof(struct ipc_counters), 0},
        {IPC_RESOLVER_START, sizeof(struct ipc_resolver_start), 0},
        {IPC_RESOLVER_READY, 0, 0},
        {IPC_RESOLVER_GATE, 0, 1},
        {IPC_QUERY, sizeof(struct ipc_query), 0},
        {IPC_ANSWER, 12, 0},
        {IPC_VAULT_START, 8, 0},
        {IPC_VAULT_GATE, 0, 1},
        {IPC_VAULT_NOTICE, 1024, 0},
        {IPC_LEAF_ASK, 4, 0},
        {IPC_VALUE_ASK, 8, 0},
        {IPC_VALUE_CHANGED, 8, 0},
        {IPC_SOURCE_FILE, 8, 1},
        {IPC_SOURCE_STORED, 8, 2},
        {IPC_SOURCE_OUTPUT, 8, 1},
        {IPC_SOURCE_END, 8, 0},
        {IPC_SHIM_EXIT, 8, 0},
        {IPC_SHIM_DONE, 1048, 0},
    };
    static const uint8_t zeros[4096];
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_int_equal(check_at(rows[i].type, zeros, rows[i].size, rows[i].fds), 0);
        assert_int_equal(check_at(rows[i].type, zeros, rows[i].size + 1, rows[i].fds), -EBADMSG);
        assert_int_equal(check_at(rows[i].type, zeros, rows[i].size, rows[i].fds + 1), -EBADMSG);
        if (rows[i].size) assert_int_equal(check_at(rows[i].type, zeros, rows[i].size - 1, rows[i].fds), -EBADMSG);
        if (rows[i].fds && rows[i].type != IPC_KEEPER_START && rows[i].type != IPC_KEEPER_END) assert_int_equal(check_at(rows[i].type, zeros, rows[i].size, rows[i].fds - 1), -EBADMSG);
    }
    for (size_t fds = 0; fds <= IPC_FDS_MAX; fds++) // with the vault's channel, and with roots of trust
        assert_int_equal(check_at(IPC_GATE_START, zeros, sizeof(struct ipc_gate_start), fds), fds >= 2 && fds <= 4 ? 0 : -EBADMSG);
    for (size_t fds = 0; fds <= IPC_FDS_MAX; fds++)
        assert_int_equal(check_at(IPC_SHIM_CALL, zeros, 8, fds), fds <= IPC_SHIM_FDS ? 0 : -EBADMSG);
    struct ipc_shim_call call = {.verb = IPC_SHIM_VERB_COUNT};
    BAD(IPC_SHIM_CALL, call);
    struct ipc_shim_begin begin = {.id = "i1"};
    GOOD(IPC_SHIM_BEGIN, begin);
    begin.id[0] = '\0';
    BAD(IPC_SHIM_BEGIN, begin);
    memset(begin.id, 'i', sizeof(begin.id));
    BAD(IPC_SHIM_BEGIN, begin);
    struct ipc_shim_up up = {.pid = 1, .paused = 1};
    GOOD(IPC_SHIM_UP, up);
    up.paused = 2;
    BAD(IPC_SHIM_UP, up);
    struct ipc_shim_done done = {.status = 1};
    BAD(IPC_SHIM_DONE, done);
    memset(done.text, 'x', sizeof(done.text));
    done.status = 0;
    BAD(IPC_SHIM_DONE, done);
    assert_int_equal(check_at(0, zeros, 0, 0), -EBADMSG);
    assert_int_equal(check_at(IPC_TYPE_COUNT, zeros, 0, 0), -EBADMSG);
    assert_int_equal(ipc_check(UINT32_MAX, zeros, 0, 0), -EBADMSG);
}

static void test_texts(void **state) {
    (void)state;
    struct ipc_error error;
    memset(&error, 'x', sizeof(error));
    BAD(IPC_ERROR, error);
    error.text[IPC_TEXT_SIZE - 1] = '\0';
    GOOD(IPC_ERROR, error);
    struct ipc_gate_start start;
    memset(&start, 'x', sizeof(start));
    assert_int_equal(check_at(IPC_GATE_START, &start, sizeof(start), 2), -EBADMSG);
    start.sandbox[63] = '\0';
    assert_int_equal(check_at(IPC_GATE_START, &start, sizeof(start), 2), -EBADMSG);
    start.doors = 1;
    assert_int_equal(check_at(IPC_GATE_START, &start, sizeof(start), 2), 0);
    struct ipc_mapping mapping = {.index = IPC_MAPPINGS_MAX - 1, .name = "a"};
    GOOD(IPC_MAPPING, mapping);
    mapping.index++;
    BAD(IPC_MAPPING, mapping);
    mapping.index = 0;
    mapping.name[0] = '\0';
    BAD(IPC_MAPPING, mapping);
    memset(mapping.name, 'x', sizeof(mapping.name));
    BAD(IPC_MAPPING, mapping);
}

static void test_counts(void **state) {
    (void)state;
    struct ipc_buffers buffers = {.large = 1};
    GOOD(IPC_BUFFERS, buffers);
    buffers.large = 2;
    BAD(IPC_BUFFERS, buffers);
    struct ipc_ports ports = {.count = IPC_PORTS_MAX};
    BAD(IPC_KEEPER_PORTS, ports); // port 0
    memset(ports.ports, 1, sizeof(ports.ports));
    GOOD(IPC_KEEPER_PORTS, ports);
    ports.count++;
    BAD(IPC_KEEPER_PORTS, ports);
    struct ipc_keeper_start start = {.loopback_ports = ports};
    BAD(IPC_KEEPER_START, start);
    start = (struct ipc_keeper_start){.ports = ports};
    BAD(IPC_KEEPER_START, start);
    start = (struct ipc_keeper_start){.skeleton = IPC_SKELETON_ROUTES, .ports = {.count = 1, .ports = {53}}, .need = "x"};
    GOOD(IPC_KEEPER_START, start);
    start.skeleton++;
    BAD(IPC_KEEPER_START, start);
    start.skeleton = 0;
    memset(start.need, 'x', sizeof(start.need));
    BAD(IPC_KEEPER_START, start);
    struct ipc_resolver_start resolver = {.count = 1, .servers = {{.address = addr_ipv4(0x7f000001), .port = 53}}};
    GOOD(IPC_RESOLVER_START, resolver);
    resolver.count = 2;
    BAD(IPC_RESOLVER_START, resolver);
    resolver.count = IPC_SERVERS_MAX + 1;
    BAD(IPC_RESOLVER_START, resolver);
    resolver.count = UINT32_MAX;
    BAD(IPC_RESOLVER_START, resolver);
}

// What a keeper says about a skeleton without nft, and the one message whose number of descriptors varies.
static void test_plain(void **state) {
    (void)state;
    struct ipc_keeper_ready ready = {.skeleton = IPC_SKELETON_ROUTES, .lacks = "nft"};
    assert_int_equal(check_at(IPC_KEEPER_READY, &ready, sizeof(ready), 0), 0);
    ready.lacks[0] = '\n';
    assert_int_equal(check_at(IPC_KEEPER_READY, &ready, sizeof(ready), 0), -EBADMSG);
    ready = (struct ipc_keeper_ready){.skeleton = IPC_SKELETON_COUNT};
    assert_int_equal(check_at(IPC_KEEPER_READY, &ready, sizeof(ready), 0), -EBADMSG);

    const uint32_t counts[] = {0, 1, IPC_LISTENERS_MAX, IPC_LISTENERS_MAX + 1, UINT32_MAX};
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        struct ipc_plain plain = {.listeners = counts[i]};
        bool good = counts[i] > 0 && counts[i] <= IPC_LISTENERS_MAX;
        assert_int_equal(check_at(IPC_GATE_PLAIN, &plain, sizeof(plain), IPC_PLAIN_SOCKETS), good ? 0 : -EBADMSG);
        assert_int_equal(check_at(IPC_GATE_PLAIN, &plain, sizeof(plain), IPC_PLAIN_SOCKETS - 1), -EBADMSG);
    }
    for (size_t fds = 0; fds <= IPC_FDS_MAX + 1; fds++)
        assert_int_equal(check_at(IPC_GATE_LISTENERS, "", 0, fds), fds >= 1 && fds <= IPC_FDS_MAX ? 0 : -EBADMSG);
    assert_int_equal(check_at(IPC_GATE_LISTENERS, "x", 1, 1), -EBADMSG);
}

static int check_packed(const struct ipc_decision *decision) {
    uint8_t bytes[IPC_DECISION_PACKED_MAX];
    return check_at(IPC_DECISION, bytes, ipc_decision_pack(decision, bytes), 0);
}

static void test_decision(void **state) {
    (void)state;
    const struct ipc_decision good = {.event = 1, .protocol = 3, .verdict = 2, .reason = 22, .app = 3,
                                      .address = addr_ipv4(0x01020304), .name = "a.example", .hint = "--allow a.example"};
    assert_int_equal(check_packed(&good), 0);
    const size_t offsets[] = {
        offsetof(struct ipc_decision, event),        offsetof(struct ipc_decision, protocol),
        offsetof(struct ipc_decision, verdict),      offsetof(struct ipc_decision, app),
        offsetof(struct ipc_decision, address),
        offsetof(struct ipc_decision, address) + 16, // behind an IPv4 address there are zeros
    };
    for (size_t i = 0; i < sizeof(offsets) / sizeof(offsets[0]); i++) {
        struct ipc_decision decision = good;
        ((uint8_t *)&decision)[offsets[i]]++;
        assert_int_equal(check_packed(&decision), -EBADMSG);
    }
    struct ipc_decision decision = good;
    decision.reason = 200;
    assert_int_equal(check_packed(&decision), -EBADMSG);
    decision = good;
    decision.name[1] = '\n';
    assert_int_equal(check_packed(&decision), -EBADMSG);
}

// Many in one message come out as they went in; a message that is cut anywhere but between two is refused.
static void test_packed_decisions(void **state) {
    (void)state;
    uint8_t bytes[4 * IPC_DECISION_PACKED_MAX];
    size_t len = 0, at = 0, ends[4];
    struct ipc_decision in[4] = {{.port = 1}, {.port = 2, .name = "b.example"}, {.port = 3, .hint = "h"}, {.port = 4}}, out;
    memset(in[3].name, 'n', sizeof(in[3].name) - 1); // the longest
    memset(in[3].hint, 'h', sizeof(in[3].hint) - 1);
    for (size_t i = 0; i < 4; i++) ends[i] = len += ipc_decision_pack(&in[i], bytes + len);
    for (size_t i = 0; i < 4; i++) {
        assert_true(ipc_decision_next(bytes, len, &at, &out));
        assert_int_equal(at, ends[i]);
        assert_int_equal(out.port, i + 1);
        assert_string_equal(out.name, in[i].name);
        assert_string_equal(out.hint, in[i].hint);
    }
    assert_false(ipc_decision_next(bytes, len, &at, &out));
    for (size_t cut = 0; cut <= len; cut++) {
        bool whole = false;
        for (size_t i = 0; i < 4; i++) whole |= cut == ends[i];
        assert_int_equal(check_at(IPC_DECISION, bytes, cut, 0), whole ? 0 : -EBADMSG);
    }
}

static void test_query(void **state) {
    (void)state;
    struct ipc_query query = {.id = 1, .type = 1, .name = "example.com"};
    GOOD(IPC_QUERY, query);
    query.has_server = 1;
    BAD(IPC_QUERY, query);
    query.server.address = addr_ipv4(0x7f000001);
    BAD(IPC_QUERY, query);
    query.server.port = 53;
    GOOD(IPC_QUERY, query);
    query.has_server = 2;
    BAD(IPC_QUERY, query);
    query.has_server = 0;
    memset(query.name, 'x', sizeof(query.name));
    BAD(IPC_QUERY, query);
}

static void test_answer(void **state) {
    (void)state;
    static struct {
        struct ipc_answer answer;
        uint8_t message[DNS_ANSWER_MAX + 1];
    } tail;
    const size_t size = sizeof(struct ipc_answer);
    tail.answer.length = 20;
    assert_int_equal(check_at(IPC_ANSWER, &tail, size + 20, 0), 0);
    assert_int_equal(check_at(IPC_ANSWER, &tail, size + 19, 0), -EBADMSG);
    assert_int_equal(check_at(IPC_ANSWER, &tail, size + 21, 0), -EBADMSG);
    tail.answer.status = -EIO;
    assert_int_equal(check_at(IPC_ANSWER, &tail, size + 20, 0), -EBADMSG);
    tail.answer.length = 0;
    assert_int_equal(check_at(IPC_ANSWER, &tail, size, 0), 0);
    tail.answer.status = 1;
    assert_int_equal(check_at(IPC_ANSWER, &tail, size, 0), -EBADMSG);
    tail.answer = (struct ipc_answer){.length = DNS_ANSWER_MAX};
    assert_int_equal(check_at(IPC_ANSWER, &tail, size + DNS_ANSWER_MAX, 0), 0);
    tail.answer.length++;
    assert_int_equal(check_at(IPC_ANSWER, &tail, size + DNS_ANSWER_MAX + 1, 0), -EBADMSG);
}

static void test_policy(void **state) {
    (void)state;
    struct ipc_policy policy = {.generation = 1, .size = 100, .keep_existing = 1};
    assert_int_equal(check_at(IPC_GATE_POLICY, &policy, sizeof(policy), 1), 0);
    policy.keep_existing = 2;
    assert_int_equal(check_at(IPC_GATE_POLICY, &policy, sizeof(policy), 1), -EBADMSG);
    policy.keep_existing = 0;
    policy.size = 0;
    assert_int_equal(check_at(IPC_GATE_POLICY, &policy, sizeof(policy), 1), -EBADMSG);
}

static void test_vault(void **state) {
    (void)state;
    struct ipc_vault_env env = {.name = "A", .length = IPC_SECRET_MAX};
    assert_int_equal(check_at(IPC_VAULT_ENV, &env, sizeof(env), 1), 0);
    assert_int_equal(check_at(IPC_VAULT_ENV, &env, sizeof(env), 0), -EBADMSG);
    env.length++;
    assert_int_equal(check_at(IPC_VAULT_ENV, &env, sizeof(env), 1), -EBADMSG);
    env = (struct ipc_vault_env){.length = 1};
    assert_int_equal(check_at(IPC_VAULT_ENV, &env, sizeof(env), 1), -EBADMSG);
    memset(env.name, 'x', sizeof(env.name));
    assert_int_equal(check_at(IPC_VAULT_ENV, &env, sizeof(env), 1), -EBADMSG);
    const struct ipc_vault_rule good = {.basic = 1, .host = "a.example", .value = "{secret}"};
    struct ipc_vault_rule rule = good;
    GOOD(IPC_VAULT_RULE, rule);
    rule.basic = 2;
    BAD(IPC_VAULT_RULE, rule);
    rule = good;
    rule.host[0] = '\0';
    BAD(IPC_VAULT_RULE, rule);
    rule = good;
    rule.host[1] = '\n';
    BAD(IPC_VAULT_RULE, rule);
    rule = good;
    rule.value[0] = '\0';
    BAD(IPC_VAULT_RULE, rule);
    rule = good;
    memset(rule.value, 'x', sizeof(rule.value));
    BAD(IPC_VAULT_RULE, rule);
    rule = good;
    memset(rule.reference, 'x', sizeof(rule.reference));
    BAD(IPC_VAULT_RULE, rule);
    const struct ipc_source_ask asked = {.kind = IPC_SOURCE_SHELL, .text = "x\ny"};
    struct ipc_source_ask ask = asked;
    GOOD(IPC_SOURCE_ASK, ask);
    ask.kind++;
    BAD(IPC_SOURCE_ASK, ask);
    ask = asked;
    ask.text[0] = '\0';
    BAD(IPC_SOURCE_ASK, ask);
    memset(ask.text, 'x', sizeof(ask.text));
    BAD(IPC_SOURCE_ASK, ask);
    struct ipc_source_answer answer = {.status = -1};
    GOOD(IPC_SOURCE_END, answer);
    assert_int_equal(check_at(IPC_SOURCE_FILE, &answer, sizeof(answer), 1), -EBADMSG);
    const uint32_t rules[] = {IPC_RULES_MAX, UINT32_MAX};
    for (size_t i = 0; i < 2; i++) {
        struct ipc_leaf_ask leaf = {.rule = rules[i]};
        struct ipc_value_ask value = {.rule = rules[i]};
        struct ipc_value_changed changed = {.rule = rules[i]};
        BAD(IPC_LEAF_ASK, leaf);
        BAD(IPC_VALUE_ASK, value);
        BAD(IPC_VALUE_CHANGED, changed);
    }
}

static void test_vault_tails(void **state) {
    (void)state;
    static struct {
        struct ipc_value value;
        uint8_t tail[IPC_SECRET_MAX + 1];
    } value = {.value = {.length = 5}};
    const size_t value_size = sizeof(struct ipc_value);
    assert_int_equal(check_at(IPC_VALUE, &value, value_size + 5, 0), 0);
    assert_int_equal(check_at(IPC_VALUE, &value, value_size + 4, 0), -EBADMSG);
    value.value.status = -EIO;
    assert_int_equal(check_at(IPC_VALUE, &value, value_size + 5, 0), -EBADMSG);
    value.value.length = 0;
    assert_int_equal(check_at(IPC_VALUE, &value, value_size, 0), 0);
    value.value.status = 0; // an empty value is none
    assert_int_equal(check_at(IPC_VALUE, &value, value_size, 0), -EBADMSG);
    value.value.length = IPC_SECRET_MAX;
    assert_int_equal(check_at(IPC_VALUE, &value, value_size + IPC_SECRET_MAX, 0), 0);
    value.value.length++;
    assert_int_equal(check_at(IPC_VALUE, &value, value_size + IPC_SECRET_MAX + 1, 0), -EBADMSG);
    static struct {
        struct ipc_value first;
        uint8_t bytes[3];
        uint8_t rest[2 * sizeof(struct ipc_value) + 2];
    } __attribute__((packed)) several = {.first = {.id = 1, .length = 3}, .bytes = "abc"};
    struct ipc_value refused = {.id = 2, .status = -EIO}, third = {.id = 3, .rule = 7, .length = 2}, got;
    const uint8_t *bytes = NULL;
    size_t at = 0;
    memcpy(several.rest, &refused, value_size);
    memcpy(several.rest + value_size, &third, value_size);
    memcpy(several.rest + 2 * value_size, "de", 2);
    assert_int_equal(check_at(IPC_VALUE, &several, sizeof(several), 0), 0);
    assert_int_equal(check_at(IPC_VALUE, &several, sizeof(several) - 2, 0), -EBADMSG); // the last one's bytes are missing
    assert_int_equal(check_at(IPC_VALUE, &several, value_size + 3 + value_size - 1, 0), -EBADMSG); // half an answer
    for (uint32_t id = 1; id <= 3; id++) {
        assert_true(ipc_value_next(&several, sizeof(several), &at, &got, &bytes));
        assert_int_equal(got.id, id);
    }
    assert_int_equal(got.rule, 7);
    assert_memory_equal(bytes, "de", 2);
    assert_int_equal(at, sizeof(several));
    assert_false(ipc_value_next(&several, sizeof(several), &at, &got, &bytes));
    static struct ipc_value_ask asks[IPC_ASKS_MAX + 1];
    assert_int_equal(check_at(IPC_VALUE_ASK, asks, IPC_ASKS_MAX * sizeof(asks[0]), 0), 0);
    assert_int_equal(check_at(IPC_VALUE_ASK, asks, sizeof(asks), 0), -EBADMSG);
    assert_int_equal(check_at(IPC_VALUE_ASK, asks, 3 * sizeof(asks[0]) - 4, 0), -EBADMSG);
    asks[2].rule = IPC_RULES_MAX;
    assert_int_equal(check_at(IPC_VALUE_ASK, asks, 2 * sizeof(asks[0]), 0), 0);
    assert_int_equal(check_at(IPC_VALUE_ASK, asks, 3 * sizeof(asks[0]), 0), -EBADMSG);
    static struct {
        struct ipc_leaf leaf;
        uint8_t tail[2 * IPC_CERTIFICATE_MAX + 1];
    } leaf = {.leaf = {.leaf_length = 10, .ca_length = 20}};
    const size_t leaf_size = sizeof(struct ipc_leaf);
    assert_int_equal(check_at(IPC_LEAF, &leaf, leaf_size + 30, 0), 0);
    assert_int_equal(check_at(IPC_LEAF, &leaf, leaf_size + 31, 0), -EBADMSG);
    leaf.leaf.ca_length = 0;
    assert_int_equal(check_at(IPC_LEAF, &leaf, leaf_size + 10, 0), -EBADMSG);
    leaf.leaf = (struct ipc_leaf){.status = -EIO};
    assert_int_equal(check_at(IPC_LEAF, &leaf, leaf_size, 0), 0);
    leaf.leaf = (struct ipc_leaf){.leaf_length = IPC_CERTIFICATE_MAX + 1, .ca_length = 1};
    assert_int_equal(check_at(IPC_LEAF, &leaf, leaf_size + IPC_CERTIFICATE_MAX + 2, 0), -EBADMSG);
    leaf.leaf = (struct ipc_leaf){.leaf_length = UINT32_MAX, .ca_length = 11};
    assert_int_equal(check_at(IPC_LEAF, &leaf, leaf_size + 10, 0), -EBADMSG);
    struct {
        struct ipc_vault_ready ready;
        uint8_t tail[8];
    } ready = {.ready = {.length = 8}};
    assert_int_equal(check_at(IPC_VAULT_READY, &ready, sizeof(ready), 0), 0);
    assert_int_equal(check_at(IPC_VAULT_READY, &ready, sizeof(ready) - 1, 0), -EBADMSG);
    ready.ready.length = 0;
    assert_int_equal(check_at(IPC_VAULT_READY, &ready, sizeof(ready.ready), 0), -EBADMSG);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),    cmocka_unit_test(test_texts), cmocka_unit_test(test_counts), cmocka_unit_test(test_plain),
        cmocka_unit_test(test_decision), cmocka_unit_test(test_packed_decisions), cmocka_unit_test(test_query), cmocka_unit_test(test_answer),
        cmocka_unit_test(test_policy),   cmocka_unit_test(test_vault), cmocka_unit_test(test_vault_tails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
