// SPDX-License-Identifier: Apache-2.0
// Questions of a gate wait in order until what they need is there; a value is put together when it is sent, so none
// waits anywhere. A gate with too many open questions, or one that does not take its answers, is not read from. A gate
// that names a rule it does not have, or sends what no gate sends, loses its channel, and so every credential.
#include "vault/vault_gate.h"

#include <errno.h>
#include <event2/event.h>

#include "base/clock.h"
#include "base/mem.h"
#include "vault/secure.h"
#include "vault/template.h"
#include "vault/vault.h"

struct vault_gate {
    struct list link;
    struct leaf_cache *leaves;
    struct vault_rules *rules;
    int channel;
    struct event *readable, *writable;
    struct list asks;
    size_t ask_count;
    bool reading; // what gets ready is sent at the end
    bool closing; // freed by its own event
    uint8_t buffer[sizeof(struct ipc_header) + IPC_ASKS_MAX * sizeof(struct ipc_value_ask) + 1];
};

struct gate_ask {
    struct list link;
    struct vault_gate *gate;
    struct secret_waiter waiter;
    uint32_t type, id, rule;
    bool ready;
    int status;
};

// ---- rules ----

int vault_rules_add(struct vault_rules *rules, struct secret_pool *pool, const struct ipc_vault_rule *rule) {
    if (rules->count >= IPC_RULES_MAX) return -E2BIG;
    struct vault_rule *added = &rules->rules[rules->count];
    *added = (struct vault_rule){.basic = rule->basic == 1, .value = strdup(rule->value)};
    memcpy(added->host, rule->host, sizeof(added->host));
    int r = added->value ? 0 : -ENOMEM;
    if (r == 0 && rule->reference[0]) r = secret_ref(pool, rule->reference, &added->secret);
    if (r == 0 && !added->secret && strstr(rule->value, "{secret}")) r = -EINVAL;
    if (r < 0) {
        free(added->value);
        return r;
    }
    rules->count++;
    return 0;
}

void vault_rules_free(struct vault_rules *rules) {
    if (!rules) return;
    for (size_t i = 0; i < rules->count; i++) {
        free(rules->rules[i].value);
        secret_unref(rules->rules[i].secret);
    }
    free(rules);
}

// ---- answers ----

static void ask_free(struct gate_ask *ask) {
    list_remove(&ask->link);
    list_remove(&ask->waiter.link);
    ask->gate->ask_count--;
    free(ask);
}

static int send_leaf(struct vault_gate *gate, uint32_t rule) {
    struct error err = {0};
    const struct leaf *leaf = NULL;
    struct ipc_leaf answer = {.rule = rule};
    const struct authority *authority = gate->leaves->authority;
    uint8_t tail[2 * IPC_CERTIFICATE_MAX];
    answer.status = leaf_get(gate->leaves, gate->rules->rules[rule].host, time(NULL), &leaf, &err);
    if (answer.status == 0) {
        answer.renew_at = leaf->renew_at;
        answer.leaf_length = leaf->der_len;
        answer.ca_length = (uint32_t)authority->der_len;
        memcpy(answer.key, leaf->key, sizeof(answer.key));
        memcpy(tail, leaf->der, leaf->der_len);
        memcpy(tail + leaf->der_len, authority->der, authority->der_len);
    }
    int r = channel_send_tail(gate->channel, IPC_LEAF, &answer, sizeof(answer), tail,
                              answer.leaf_length + answer.ca_length);
    explicit_bzero(&answer, sizeof(answer));
    return r;
}

// Bytes that are enough for its answer.
static size_t value_size(const struct vault_gate *gate, const struct gate_ask *ask) {
    const struct vault_rule *rule = &gate->rules->rules[ask->rule];
    size_t len = rule->secret && rule->secret->value ? rule->secret->len : 0;
    return sizeof(struct ipc_value) + template_size(rule->value, len);
}

// The answer, into bytes (of value_size; NULL: there is no memory for values). Returns its length.
static size_t value_put(struct vault_gate *gate, const struct gate_ask *ask, uint8_t *bytes, struct ipc_value *ret_answer) {
    struct vault_rule *rule = &gate->rules->rules[ask->rule];
    struct secret *secret = rule->secret;
    const uint8_t *plain = secret && secret->value ? secret->value : (const uint8_t *)"";
    size_t len = secret && secret->value ? secret->len : 0;
    int r = ask->status;
    if (r == 0 && !bytes) r = -ENOMEM;
    // The value of this moment: since the question was ready it may have become another one, or none.
    if (r == 0 && secret && !secret->value) r = secret->status < 0 ? secret->status : -EIO;
    if (r == 0)
        r = template_fill(rule->value, rule->basic, plain, len, bytes + sizeof(*ret_answer), template_size(rule->value, len));
    if (r == -EILSEQ && secret) secret_tell(secret, r);
    if (r >= 0) rule->given = true;
    *ret_answer = (struct ipc_value){.id = ask->id, .rule = ask->rule, .status = r < 0 ? r : 0, .epoch = secret ? secret->epoch : 1,
                                     .length = r < 0 ? 0 : (uint32_t)r};
    if (bytes) memcpy(bytes, ret_answer, sizeof(*ret_answer));
    return sizeof(*ret_answer) + ret_answer->length;
}

static struct gate_ask *value_ready(struct list *node) {
    struct gate_ask *ask = LIST_ENTRY(node, struct gate_ask, link);
    return ask->ready && ask->type == IPC_VALUE_ASK ? ask : NULL;
}

// As many of those that are ready as go in one message. Their number, or negative errno of channel_send.
static int send_values(struct vault_gate *gate) {
    struct ipc_value answer;
    size_t size = 0, first = 0, len = 0;
    int count = 0, left;
    LIST_FOREACH (&gate->asks, node) {
        const struct gate_ask *ask = value_ready(node);
        if (!ask) continue;
        size_t more = value_size(gate, ask);
        if (count > 0 && size + more > IPC_VALUES_SIZE) break;
        if (count++ == 0) first = more;
        size += more;
    }
    if (count == 0) return 0;
    uint8_t *bytes = secure_new(size);
    if (!bytes) { // one at a time then; without memory for that it is told so
        bytes = count > 1 ? secure_new(first) : NULL;
        count = 1;
    }
    left = count;
    LIST_FOREACH (&gate->asks, node) {
        const struct gate_ask *ask = value_ready(node);
        if (!ask) continue;
        len += value_put(gate, ask, bytes ? bytes + len : NULL, &answer);
        if (--left == 0) break;
    }
    int r = channel_send(gate->channel, IPC_VALUE, bytes ? (void *)bytes : &answer, len, NULL, 0);
    secure_free(bytes);
    if (r < 0) return r;
    left = count;
    LIST_FOREACH (&gate->asks, node) {
        struct gate_ask *ask = value_ready(node);
        if (!ask) continue;
        ask_free(ask);
        if (--left == 0) break;
    }
    return count;
}

static int send_leaves(struct vault_gate *gate) {
    LIST_FOREACH (&gate->asks, node) {
        struct gate_ask *ask = LIST_ENTRY(node, struct gate_ask, link);
        if (ask->type != IPC_LEAF_ASK) continue;
        int r = send_leaf(gate, ask->rule);
        if (r < 0) return r;
        ask_free(ask);
    }
    return 0;
}

static int send_changes(struct vault_gate *gate) {
    for (uint32_t i = 0; i < gate->rules->count; i++) {
        struct vault_rule *rule = &gate->rules->rules[i];
        if (!rule->changed) continue;
        struct ipc_value_changed changed = {.rule = i, .epoch = rule->secret->epoch};
        int r = channel_send(gate->channel, IPC_VALUE_CHANGED, &changed, sizeof(changed), NULL, 0);
        if (r < 0) return r;
        rule->changed = false;
    }
    return 0;
}

// Sends what is ready. The gate stays; its own event frees it if it is gone.
static void gate_flush(struct vault_gate *gate) {
    int r = send_changes(gate);
    if (r == 0) r = send_leaves(gate);
    if (r == 0)
        do r = send_values(gate);
        while (r > 0);
    if (r == -EAGAIN) {
        event_add(gate->writable, NULL);
    } else if (r < 0) {
        gate->closing = true;
        event_active(gate->readable, EV_READ, 0);
    } else if (gate->ask_count < VAULT_GATE_ASKS_MAX) {
        event_add(gate->readable, NULL);
    }
}

// ---- questions ----

static void value_fresh(struct secret_waiter *waiter, int status) {
    struct gate_ask *ask = LIST_ENTRY(waiter, struct gate_ask, waiter);
    ask->ready = true;
    ask->status = status;
    if (!ask->gate->reading) gate_flush(ask->gate);
}

static int gate_ask(struct vault_gate *gate, uint32_t type, uint32_t id, uint32_t rule) {
    if (rule >= gate->rules->count) return -EBADMSG;
    struct gate_ask *ask = NEW(struct gate_ask);
    if (!ask) return -ENOMEM;
    *ask = (struct gate_ask){.gate = gate, .type = type, .id = id, .rule = rule, .waiter.done = value_fresh};
    list_init(&ask->waiter.link);
    list_append(&gate->asks, &ask->link);
    gate->ask_count++;
    struct secret *secret = gate->rules->rules[rule].secret;
    if (type == IPC_VALUE_ASK && secret)
        secret_fetch(secret, &ask->waiter, clock_us());
    else
        ask->ready = true;
    return 0;
}

static int gate_message(struct vault_gate *gate, const struct channel_message *message) {
    struct ipc_leaf_ask leaf;
    struct ipc_value_ask values[IPC_ASKS_MAX];
    if (message->type == IPC_LEAF_ASK) {
        memcpy(&leaf, message->body, sizeof(leaf));
        return gate_ask(gate, message->type, 0, leaf.rule);
    }
    if (message->type != IPC_VALUE_ASK) return -EBADMSG;
    memcpy(values, message->body, message->length);
    size_t room = VAULT_GATE_ASKS_MAX - gate->ask_count;
    int r = message->length / sizeof(values[0]) <= room ? 0 : -EBADMSG;
    for (size_t i = 0; r == 0 && i < message->length / sizeof(values[0]); i++)
        r = gate_ask(gate, message->type, values[i].id, values[i].rule);
    return r;
}

static void gate_free(struct vault_gate *gate) {
    LIST_FOREACH (&gate->asks, node) ask_free(LIST_ENTRY(node, struct gate_ask, link));
    if (gate->readable) event_free(gate->readable);
    if (gate->writable) event_free(gate->writable);
    close(gate->channel);
    vault_rules_free(gate->rules);
    list_remove(&gate->link);
    free(gate);
}

// One message: as a rule there is no other, and the loop tells of those that are. False: the gate is gone, or sends what no
// gate sends.
static bool gate_read(struct vault_gate *gate) {
    struct channel_message message;
    if (gate->ask_count >= VAULT_GATE_ASKS_MAX) {
        event_del(gate->readable); // until one is answered
        return true;
    }
    int r = channel_receive(gate->channel, gate->buffer, sizeof(gate->buffer), &message);
    if (r == -EAGAIN) return true;
    if (r <= 0) return false;
    channel_message_close(&message);
    return gate_message(gate, &message) == 0;
}

static void gate_readable(evutil_socket_t fd, short what, void *data) {
    (void)fd, (void)what;
    struct vault_gate *gate = data;
    gate->reading = true;
    bool good = !gate->closing && gate_read(gate);
    gate->reading = false;
    if (good) gate_flush(gate);
    if (!good || gate->closing) gate_free(gate);
}

static void gate_writable(evutil_socket_t fd, short what, void *data) {
    (void)fd, (void)what;
    gate_flush(data);
}

struct vault_gate *vault_gate_new(struct event_base *base, struct leaf_cache *leaves, struct list *gates, int channel,
                                  struct vault_rules *rules) {
    struct vault_gate *gate = NEW(struct vault_gate);
    if (!gate) {
        close(channel);
        vault_rules_free(rules);
        return NULL;
    }
    gate->leaves = leaves;
    gate->rules = rules;
    gate->channel = channel;
    list_init(&gate->asks);
    list_append(gates, &gate->link);
    gate->readable = event_new(base, channel, EV_READ | EV_PERSIST, gate_readable, gate);
    gate->writable = event_new(base, channel, EV_WRITE, gate_writable, gate);
    if (!gate->readable || !gate->writable || event_add(gate->readable, NULL) < 0) {
        gate_free(gate);
        return NULL;
    }
    const struct leaf *leaf;
    for (size_t i = 0; i < rules->count; i++) leaf_get(leaves, rules->rules[i].host, time(NULL), &leaf, NULL);
    return gate;
}

void vault_gates_changed(struct list *gates, const struct secret *secret) {
    LIST_FOREACH (gates, node) {
        struct vault_gate *gate = LIST_ENTRY(node, struct vault_gate, link);
        bool any = false;
        for (size_t i = 0; i < gate->rules->count; i++) {
            struct vault_rule *rule = &gate->rules->rules[i];
            if (rule->secret == secret && rule->given) any = rule->changed = true;
        }
        if (any && !gate->closing && !gate->reading) gate_flush(gate);
    }
}

void vault_gates_free(struct list *gates) {
    LIST_FOREACH (gates, node) gate_free(LIST_ENTRY(node, struct vault_gate, link));
}
