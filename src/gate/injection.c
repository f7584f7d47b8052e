// SPDX-License-Identifier: Apache-2.0
// Values for requests. A request waits for all of its values together, under one deadline; each is one question to the
// vault, and a question that cannot be asked yet waits in a queue. A question whose request has gone keeps its place until
// it is answered, for the vault has it still.
//
// Limits: INJECTION_WAITS_MAX requests, INJECTION_VALUE_ASKS questions at a time. Locked memory holds the values; when it is
// used up the request fails, as with any other value that cannot be had (binding_failed).
//
// A value that was replaced while its request waited for another one is asked for again.
#include "gate/injection.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "base/mem.h"
#include "gate/injection_channel.h"

struct injection_ask {
    struct list link;            // in the queue, or alone
    struct injection_wait *wait;
    struct injection_slot *slot; // NULL: not asked
};

struct injection_wait {
    struct list link;
    struct injections *injections;
    uint64_t until_us;           // fails then
    injection_done *done;
    void *data;
    int status;                  // that the deadline stands for
    size_t missing;              // values
    struct injection *injection;
    struct injection_ask asks[POLICY_CREDENTIALS_MAX]; // as the injection's values
};

static size_t ask_index(const struct injection_ask *ask) { return (size_t)(ask - ask->wait->asks); }

const char *injection_why(int status, char text[INJECTION_WHY_SIZE]) {
    char words[VAULT_WHY_SIZE];
    snprintf(text, INJECTION_WHY_SIZE, "the credential of this host cannot be had: %s. The standard error of penstock names the secret",
             vault_secret_why(status, words));
    return text;
}

// ---- what a request gets ----

static void value_wipe(struct injection_value *value) {
    vault_client_wipe((void *)(uintptr_t)value->bytes);
    value->bytes = NULL;
    value->len = 0;
}

void injection_free(struct injection *injection) {
    if (!injection) return;
    for (size_t i = 0; i < injection->count; i++) {
        value_wipe(&injection->values[i]);
        free((void *)(uintptr_t)injection->values[i].header);
    }
    free(injection);
}

// Some servers make no difference between '-' and '_'. word: in lower case.
static bool name_is(const char *word, const char *name, size_t name_len) {
    bool same = strlen(word) == name_len;
    for (size_t i = 0; same && i < name_len; i++) {
        char letter = name[i] == '_' ? '-' : name[i];
        if (letter >= 'A' && letter <= 'Z') letter = (char)(letter | 0x20);
        same = letter == word[i];
    }
    return same;
}

static bool name_listed(const char *const *list, size_t count, const char *name, size_t name_len) {
    for (size_t i = 0; i < count; i++)
        if (name_is(list[i], name, name_len)) return true;
    return false;
}

bool injection_scrubs(const struct injection *injection) {
    bool scrubs = false;
    for (size_t i = 0; injection && i < injection->count; i++) scrubs |= injection->values[i].scrub;
    return scrubs;
}

uint16_t injection_places(const struct gate *gate, const char *host, const struct injection *injection) {
    struct policy_credential bound[POLICY_CREDENTIALS_MAX];
    const struct policy_credential_request request = {.host = host};
    size_t count = policy_credentials(gate->policy, &request, bound);
    unsigned places = 0;
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < injection->count; k++) places |= bound[i].rule == injection->values[k].rule ? 1U << i : 0;
    return (uint16_t)places;
}

bool injection_bars(const struct injection *injection, const void *name, size_t name_len) {
    static const char *const overrides[] = {"x-http-method-override", "x-http-method", "x-method-override",
                                            "x-original-method", "x-original-url", "x-original-uri", "x-rewrite-url"};
    static const char *const pieces[] = {"accept-encoding", "range", "if-range"};
    if (injection_sets(injection, name, name_len)) return true;
    if (injection->conditional && name_listed(overrides, ARRAY_LENGTH(overrides), name, name_len)) return true;
    return injection_scrubs(injection) && name_listed(pieces, ARRAY_LENGTH(pieces), name, name_len);
}

bool injection_sets(const struct injection *injection, const void *name, size_t name_len) {
    for (size_t i = 0; i < injection->count; i++) {
        const char *header = injection->values[i].header;
        if (strlen(header) == name_len && strncasecmp(header, name, name_len) == 0) return true;
    }
    return false;
}

// Names are copied: the policy may be another one before the request has gone out.
static struct injection *injection_new(const struct policy_credential *credentials, size_t count) {
    struct injection *injection = NEW(struct injection);
    if (!injection) return NULL;
    for (size_t i = 0; i < count; i++) {
        struct injection_value *value = &injection->values[injection->count++];
        value->header = strdup(credentials[i].header);
        value->rule = credentials[i].rule;
        value->scrub = credentials[i].scrub;
        injection->conditional |= credentials[i].conditional;
        if (value->header) continue;
        injection_free(injection);
        return NULL;
    }
    return injection;
}

// ---- waiting ----

static void wait_free(struct injection_wait *wait) {
    for (size_t i = 0; wait->injection && i < wait->injection->count; i++) {
        list_remove(&wait->asks[i].link);
        if (wait->asks[i].slot) wait->asks[i].slot->ask = NULL;
    }
    list_remove(&wait->link);
    wait->injections->wait_count--;
    injection_free(wait->injection);
    free(wait);
}

static void wait_end(struct injection_wait *wait, int status) {
    injection_done *done = wait->done;
    void *data = wait->data;
    struct injection *injection = NULL;
    for (size_t i = 0; i < wait->injection->count; i++) {
        list_remove(&wait->asks[i].link);
        if (wait->asks[i].slot) wait->asks[i].slot->ask = NULL;
    }
    if (status == 0) injection = TAKE_POINTER(wait->injection);
    wait_free(wait);
    done(status, injection, data);
}

static struct injection_wait *wait_first(const struct injections *injections) {
    struct list *first = injections->waits.next;
    return list_empty(&injections->waits) ? NULL : LIST_ENTRY(first, struct injection_wait, link);
}

// They are in the order of their deadlines, for each has as long.
static bool waits_watch(struct injections *injections) {
    const struct injection_wait *first = wait_first(injections);
    uint64_t now = clock_us(), left = first && first->until_us > now ? first->until_us - now : 0;
    struct timeval after = {.tv_sec = (time_t)(left / 1000000), .tv_usec = (suseconds_t)(left % 1000000)};
    return !first || event_add(injections->deadline, &after) == 0;
}

void injection_overdue(struct injections *injections) {
    uint64_t now = clock_us();
    for (struct injection_wait *first; (first = wait_first(injections)) && first->until_us <= now;) wait_end(first, first->status);
    if (!waits_watch(injections)) gate_fail(injections->gate, "out of memory"); // they would wait for ever
}

// What is started by those who are told is none of these.
static void waits_end(struct list *waits) {
    struct list now;
    list_init(&now);
    LIST_FOREACH(waits, node) {
        list_remove(node);
        list_append(&now, node);
    }
    while (!list_empty(&now)) {
        struct injection_wait *wait = LIST_ENTRY(now.next, struct injection_wait, link);
        wait_end(wait, wait->status);
    }
}

void injection_idle(struct injections *injections) { waits_end(&injections->idle); }

static void wait_ask(struct injection_wait *wait, size_t index) {
    struct injection_ask *ask = &wait->asks[index];
    ask->slot = NULL;
    list_append(&wait->injections->queue, &ask->link);
}

struct injection_wait *injection_start(struct gate *gate, const char *host, const void *method, size_t method_len,
                                       const void *path, size_t path_len, injection_done *done, void *data) {
    struct injections *injections = gate->injections;
    struct policy_credential credentials[POLICY_CREDENTIALS_MAX];
    struct policy_credential_request request = {
        .host = host, .method = method, .method_len = method_len, .path = path, .path_len = path_len};
    if (!injections || injections->wait_count >= INJECTION_WAITS_MAX) return NULL;
    struct injection_wait *wait = NEW(struct injection_wait);
    if (!wait) return NULL;
    size_t count = policy_credentials(gate->policy, &request, credentials);
    *wait = (struct injection_wait){.injections = injections, .done = done, .data = data, .missing = count};
    list_init(&wait->link);
    injections->wait_count++;
    for (size_t i = 0; i < count; i++) {
        wait->asks[i].wait = wait;
        list_init(&wait->asks[i].link);
    }
    bool asks = count > 0 && injection_channel_up(injections);
    wait->status = count == 0 ? 0 : asks ? -ETIMEDOUT : -EPIPE;
    wait->until_us = clock_us() + injections->answer_ms * UINT64_C(1000);
    wait->injection = injection_new(credentials, count);
    bool alone = list_empty(&injections->waits);
    list_append(asks ? &injections->waits : &injections->idle, &wait->link);
    if (!wait->injection || (asks && alone && !waits_watch(injections)) || !injection_channel_soon(injections)) {
        wait_free(wait);
        return NULL;
    }
    for (size_t i = 0; asks && i < count; i++) wait_ask(wait, i);
    return wait;
}

void injection_cancel(struct injection_wait *wait) { wait_free(wait); }

void injection_lost(struct injections *injections) {
    LIST_FOREACH(&injections->waits, node) LIST_ENTRY(node, struct injection_wait, link)->status = -EPIPE;
    waits_end(&injections->waits);
}

void injection_free_all(struct injections *injections) {
    LIST_FOREACH(&injections->waits, node) wait_free(LIST_ENTRY(node, struct injection_wait, link));
    LIST_FOREACH(&injections->idle, node) wait_free(LIST_ENTRY(node, struct injection_wait, link));
}

// ---- the vault ----

static struct injection_slot *slot_free(struct injections *injections) {
    for (size_t i = 0; i < ARRAY_LENGTH(injections->slots); i++)
        if (!injections->slots[i].open) return &injections->slots[i];
    return NULL;
}

// Takes slots for as many as fit into one message. Returns their number.
static size_t asks_prepare(struct injections *injections, struct ipc_value_ask *questions, struct injection_slot **slots) {
    size_t count = 0;
    LIST_FOREACH(&injections->queue, node) {
        struct injection_ask *ask = LIST_ENTRY(node, struct injection_ask, link);
        struct injection_slot *slot = count < IPC_ASKS_MAX ? slot_free(injections) : NULL;
        if (!slot) break; // an answer makes room
        uint32_t number = injections->ask_number * (uint32_t)ARRAY_LENGTH(injections->slots);
        injections->ask_number = (injections->ask_number + 1) % (UINT32_MAX / (uint32_t)ARRAY_LENGTH(injections->slots));
        *slot = (struct injection_slot){.ask = ask, .id = number + (uint32_t)(slot - injections->slots),
                                        .rule = ask->wait->injection->values[ask_index(ask)].rule, .open = true};
        questions[count] = (struct ipc_value_ask){.id = slot->id, .rule = slot->rule};
        slots[count++] = slot;
    }
    return count;
}

int injection_ask_send(struct injections *injections) {
    struct ipc_value_ask questions[IPC_ASKS_MAX];
    struct injection_slot *slots[IPC_ASKS_MAX];
    int r = 0;
    for (size_t count; r == 0 && (count = asks_prepare(injections, questions, slots)) > 0;) {
        r = channel_send(injections->channel, IPC_VALUE_ASK, questions, count * sizeof(questions[0]), NULL, 0);
        for (size_t i = 0; i < count; i++) {
            struct injection_ask *ask = slots[i]->ask;
            if (r < 0) {
                *slots[i] = (struct injection_slot){0};
                continue;
            }
            ask->slot = slots[i];
            list_remove(&ask->link);
        }
    }
    return r;
}

static int value_take(struct injection_value *value, const struct ipc_value *answer, const uint8_t *bytes) {
    if (answer->status < 0) return answer->status;
    char *copy = vault_client_memory(answer->length);
    if (!copy) return -ENOMEM;
    memcpy(copy, bytes, answer->length);
    value->bytes = copy;
    value->len = answer->length;
    value->epoch = answer->epoch;
    return 0;
}

int injection_value(struct injections *injections, const struct ipc_value *answer, const uint8_t *bytes) {
    struct injection_slot *slot = &injections->slots[answer->id % ARRAY_LENGTH(injections->slots)];
    if (!slot->open || slot->id != answer->id || slot->rule != answer->rule) return -EBADMSG;
    struct injection_ask *ask = slot->ask;
    *slot = (struct injection_slot){0};
    if (!ask) return 0; // nobody waits for it any more
    ask->slot = NULL;
    if (answer->status == 0) injections->given[answer->rule] = true;
    struct injection_wait *wait = ask->wait;
    int r = value_take(&wait->injection->values[ask_index(ask)], answer, bytes);
    if (r < 0) wait_end(wait, r);
    else if (--wait->missing == 0) wait_end(wait, 0);
    return 0;
}

void injection_value_changed(struct injections *injections, const struct ipc_value_changed *changed) {
    LIST_FOREACH(&injections->waits, node) {
        struct injection_wait *wait = LIST_ENTRY(node, struct injection_wait, link);
        for (size_t i = 0; i < wait->injection->count; i++) {
            struct injection_value *value = &wait->injection->values[i];
            if (!value->bytes || value->rule != changed->rule || value->epoch >= changed->epoch) continue;
            value_wipe(value);
            wait->missing++;
            wait_ask(wait, i);
        }
    }
}
