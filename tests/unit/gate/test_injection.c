// SPDX-License-Identifier: Apache-2.0
// A gate's side of the vault, against a vault that the test plays: answers in any order and late, values that change while
// they are waited for, a vault that dies or sends what none sends, more questions than it reads, and each call for memory
// failing once.
#include <errno.h>
#include <event2/event.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "gate/injection_channel.h"
#include "policy/model.h"
#include <openssl/x509v3.h>

#include "vault/certificate.h"
#include "vault/secure.h"

// ---- memory that fails (linked with --wrap) ----

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t size);
char *__real_strdup(const char *text);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *old, size_t size);
char *__wrap_strdup(const char *text);

static unsigned calls, failing; // the number of the one that fails, 0: none

static bool fails(void) { return failing && ++calls == failing; }
void *__wrap_malloc(size_t size) { return fails() ? NULL : __real_malloc(size); }
void *__wrap_calloc(size_t count, size_t size) { return fails() ? NULL : __real_calloc(count, size); }
void *__wrap_realloc(void *old, size_t size) { return fails() ? NULL : __real_realloc(old, size); }
char *__wrap_strdup(const char *text) { return fails() ? NULL : __real_strdup(text); }

// ---- the rig ----

static struct gate gate;
static int vault = -1, main_end = -1; // the other ends of the gate's channels
static _Alignas(max_align_t) uint8_t buffer[CHANNEL_BUFFER_SIZE];
static size_t left, taken; // of the questions in the message in buffer, bytes

struct asker {
    bool told;
    int status;
    unsigned order; // in which it was told
    struct injection *injection;
    struct asker *cancels; // another one, when this one is told
    struct injection_wait *wait;
};

struct change {
    uint32_t rule, epoch;
};
static struct change changes[16];
static size_t change_count;

static void changed(struct gate *of, uint32_t rule, uint32_t epoch) {
    assert_ptr_equal(of, &gate);
    assert_true(change_count < ARRAY_LENGTH(changes));
    changes[change_count++] = (struct change){rule, epoch};
}

static void told(int status, struct injection *injection, void *data) {
    struct asker *asker = data;
    static unsigned count;
    assert_false(asker->told);
    assert_true((status == 0) == (injection != NULL));
    asker->told = true;
    asker->order = count++;
    asker->status = status;
    asker->injection = injection;
    if (asker->cancels) injection_cancel(asker->cancels->wait);
}

static struct policy *compile(void) {
    static const char *const bindings[] = {"header:one.test:Authorization:Bearer {secret}=env:A",
                                           "header:one.test:X-Key=env:B", "header:two.test:X-Key=env:B"};
    struct policy_model *model = policy_model_new(POLICY_DIALECT_NATIVE);
    struct policy_warnings warnings = {0};
    struct policy *policy = NULL;
    struct error err = {0};
    assert_int_equal(policy_model_allow(model, "one.test", "test", &err), 0);
    assert_int_equal(policy_model_allow(model, "two.test", "test", &err), 0);
    for (size_t i = 0; i < ARRAY_LENGTH(bindings); i++)
        assert_int_equal(policy_model_bind(model, bindings[i], bindings[i], &err), 0);
    assert_int_equal(policy_compile(model, NULL, NULL, 0, 1, &policy, &warnings, &err), 0);
    policy_warnings_done(&warnings);
    policy_model_free(model);
    return policy;
}

static int join(void) {
    int pair[2];
    assert_int_equal(channel_pair(pair), 0);
    int r = injection_join(&gate, pair[0]);
    if (r < 0) {
        close(pair[0]);
        close(pair[1]);
        return r;
    }
    if (vault >= 0) close(vault);
    vault = pair[1];
    return 0;
}

static int setup(void **state) {
    (void)state;
    int pair[2];
    struct error err = {0};
    memset(&gate, 0, sizeof(gate));
    change_count = 0;
    left = 0;
    vault = -1;
    assert_int_equal(channel_pair(pair), 0);
    gate.channel = pair[0];
    main_end = pair[1];
    gate.base = event_base_new();
    gate.policy = compile();
    assert_int_equal(injection_prepare(&gate, &err), 0);
    injection_on_change(&gate, changed);
    assert_int_equal(join(), 0);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    injection_close(&gate);
    event_base_free(gate.base);
    policy_free(gate.policy);
    close(gate.channel);
    close(main_end);
    if (vault >= 0) close(vault);
    vault = -1;
    return 0;
}

static void turn(void) {
    for (int i = 0; i < 4; i++) event_base_loop(gate.base, EVLOOP_NONBLOCK);
}

static struct injection_wait *start(struct asker *asker, const char *host) {
    *asker = (struct asker){0};
    asker->wait = injection_start(&gate, host, "GET", 3, "/", 1, told, asker);
    assert_false(asker->told); // never from inside
    return asker->wait;
}

// ---- the vault that the test plays ----

// The next question of this type; *ret_body as sent. False: none.
static bool asked(enum ipc_type type, void *ret_body, size_t size) {
    struct channel_message message;
    turn();
    while (left == 0) {
        int r = channel_receive(vault, buffer, sizeof(buffer), &message);
        if (r == -EAGAIN) return false;
        assert_int_equal(r, 1);
        if (message.type != type) continue; // leaves are asked for at once
        assert_int_equal(message.length % size, 0);
        left = message.length;
        taken = sizeof(struct ipc_header);
    }
    memcpy(ret_body, buffer + taken, size);
    taken += size;
    left -= size;
    return true;
}

static struct ipc_value_ask value_asked(void) {
    struct ipc_value_ask ask = {0};
    assert_true(asked(IPC_VALUE_ASK, &ask, sizeof(ask)));
    return ask;
}

static void answer(const struct ipc_value_ask *ask, const char *text, uint32_t epoch) {
    struct ipc_value value = {.id = ask->id, .rule = ask->rule, .epoch = epoch, .length = (uint32_t)strlen(text)};
    assert_int_equal(channel_send_tail(vault, IPC_VALUE, &value, sizeof(value), text, value.length), 0);
}

static void refuse(const struct ipc_value_ask *ask, int status) {
    struct ipc_value value = {.id = ask->id, .rule = ask->rule, .status = status};
    assert_int_equal(channel_send_tail(vault, IPC_VALUE, &value, sizeof(value), NULL, 0), 0);
}

static void say_changed(uint32_t rule, uint32_t epoch) {
    struct ipc_value_changed message = {.rule = rule, .epoch = epoch};
    assert_int_equal(channel_send(vault, IPC_VALUE_CHANGED, &message, sizeof(message), NULL, 0), 0);
}

static void assert_value(const struct asker *asker, size_t index, const char *text) {
    assert_true(asker->told && asker->injection);
    assert_true(index < asker->injection->count);
    const struct injection_value *value = &asker->injection->values[index];
    assert_int_equal(value->len, strlen(text));
    assert_memory_equal(value->bytes, text, value->len);
    assert_true(CRYPTO_secure_allocated(value->bytes));
}

// ---- values ----

static void test_values(void **state) {
    (void)state;
    struct asker asker;
    assert_non_null(start(&asker, "one.test"));
    struct ipc_value_ask first = value_asked(), second = value_asked();
    assert_int_equal(first.rule, 0);
    assert_int_equal(second.rule, 1);
    answer(&second, "two", 4);
    turn();
    assert_false(asker.told);
    answer(&first, "Bearer one", 9);
    turn();
    assert_value(&asker, 0, "Bearer one");
    assert_value(&asker, 1, "two");
    assert_string_equal(asker.injection->values[0].header, "Authorization");
    assert_int_equal(asker.injection->values[0].epoch, 9);
    assert_int_equal(asker.injection->values[1].rule, 1);
    assert_true(injection_sets(asker.injection, "AUTHORIZATION", 13));
    assert_true(injection_sets(asker.injection, "x-key", 5));
    assert_false(injection_sets(asker.injection, "x-keys", 6));
    assert_false(injection_sets(asker.injection, "x-ke", 4));
    injection_free(asker.injection);
}

// The questions of one turn of the loop go in one message, and their answers may come in one.
static void test_together(void **state) {
    (void)state;
    struct asker askers[5];
    struct ipc_value_ask asks[5];
    uint8_t answers[256];
    size_t len = 0;
    for (size_t i = 0; i < 5; i++) assert_non_null(start(&askers[i], "two.test"));
    asks[0] = value_asked();
    assert_int_equal(left, 4 * sizeof(asks[0]));
    for (size_t i = 1; i < 5; i++) asks[i] = value_asked();
    injection_cancel(askers[1].wait);
    for (size_t i = 5; i-- > 0;) {
        struct ipc_value value = {.id = asks[i].id, .rule = asks[i].rule, .epoch = 1};
        if (i == 2) value.status = -EIO;
        else value.length = (uint32_t)i + 1;
        memcpy(answers + len, &value, sizeof(value));
        memcpy(answers + len + sizeof(value), "abcde", value.length);
        len += sizeof(value) + value.length;
    }
    assert_int_equal(channel_send(vault, IPC_VALUE, answers, len, NULL, 0), 0);
    turn();
    assert_value(&askers[0], 0, "a");
    assert_false(askers[1].told);
    assert_int_equal(askers[2].status, -EIO);
    assert_value(&askers[3], 0, "abcd");
    assert_value(&askers[4], 0, "abcde");
    for (size_t i = 0; i < 5; i++) injection_free(askers[i].injection);
}

// However many questions there were, each answer finds its own.
static void test_numbers(void **state) {
    (void)state;
    gate.injections->ask_number = UINT32_MAX / INJECTION_VALUE_ASKS - 5;
    for (int i = 0; i < 10; i++) {
        struct asker first, second;
        assert_non_null(start(&first, "two.test"));
        assert_non_null(start(&second, "two.test"));
        struct ipc_value_ask one = value_asked(), two = value_asked();
        answer(&two, "second", 1);
        answer(&one, "first", 1);
        turn();
        assert_value(&first, 0, "first");
        assert_value(&second, 0, "second");
        injection_free(first.injection);
        injection_free(second.injection);
    }
}

// What came over the channel is not in its buffer any more.
static void test_wiped(void **state) {
    (void)state;
    struct asker asker;
    assert_non_null(start(&asker, "two.test"));
    struct ipc_value_ask ask = value_asked();
    answer(&ask, "correct horse battery staple", 1);
    turn();
    assert_value(&asker, 0, "correct horse battery staple");
    const uint8_t *bytes = gate.injections->buffer;
    assert_true(CRYPTO_secure_allocated(bytes));
    for (size_t i = 0; i < 256; i++) assert_int_equal(bytes[i], 0);
    injection_free(asker.injection);
}

static void test_none(void **state) {
    (void)state;
    struct asker asker;
    struct ipc_value_ask ask;
    assert_non_null(start(&asker, "elsewhere.test"));
    turn();
    assert_true(asker.told);
    assert_int_equal(asker.injection->count, 0);
    assert_false(asked(IPC_VALUE_ASK, &ask, sizeof(ask)));
    injection_free(asker.injection);
}

// Though others have waited for longer; in their order.
static void test_none_is_told_at_once(void **state) {
    (void)state;
    struct asker first, second, none[3];
    assert_non_null(start(&first, "two.test"));
    for (size_t i = 0; i < 3; i++) assert_non_null(start(&none[i], "elsewhere.test"));
    assert_non_null(start(&second, "two.test"));
    turn();
    for (size_t i = 0; i < 3; i++) {
        assert_true(none[i].told);
        assert_int_equal(none[i].order, none[0].order + i);
        assert_int_equal(none[i].injection->count, 0);
        injection_free(none[i].injection);
    }
    assert_false(first.told || second.told);
    injection_cancel(first.wait);
    injection_cancel(second.wait);
}

static struct asker comers[200];
static size_t comer_count;

static void another(evutil_socket_t fd, short what, void *data) {
    (void)fd, (void)what, (void)data;
    if (comer_count < ARRAY_LENGTH(comers)) assert_non_null(start(&comers[comer_count++], "elsewhere.test"));
}

// Each turn of the loop brings another one before it comes to those that wait.
static void test_none_is_not_kept_by_others(void **state) {
    (void)state;
    int pair[2];
    assert_int_equal(channel_pair(pair), 0);
    struct event *event = event_new(gate.base, pair[0], EV_WRITE | EV_PERSIST, another, NULL);
    assert_int_equal(event_add(event, NULL), 0);
    comer_count = 0;
    while (comer_count < ARRAY_LENGTH(comers)) event_base_loop(gate.base, EVLOOP_ONCE);
    event_free(event);
    for (size_t i = 0; i < ARRAY_LENGTH(comers) - 5; i++) assert_true(comers[i].told);
    turn();
    for (size_t i = 0; i < ARRAY_LENGTH(comers); i++) {
        assert_true(comers[i].told);
        injection_free(comers[i].injection);
    }
    close(pair[0]);
    close(pair[1]);
}

#define PATIENCE_US 400000 // of a request, here

// Fails when its own time is over, not before.
static void assert_overdue(const struct asker *asker, uint64_t began_us) {
    for (int i = 0; i < 500 && !asker->told; i++) {
        poll(NULL, 0, 10);
        turn();
    }
    assert_true(asker->told);
    assert_int_equal(asker->status, -ETIMEDOUT);
    assert_true(clock_us() - began_us >= PATIENCE_US);
}

// The vault says nothing, but to the first. The last one comes when no other waits.
static void test_deadlines(void **state) {
    (void)state;
    struct asker askers[3], answered;
    uint64_t began_us[3];
    gate.injections->answer_ms = PATIENCE_US / 1000;
    assert_non_null(start(&answered, "two.test"));
    struct ipc_value_ask ask = value_asked();
    for (size_t i = 0; i < 2; i++) {
        began_us[i] = clock_us();
        assert_non_null(start(&askers[i], "two.test"));
        if (i == 0) poll(NULL, 0, PATIENCE_US / 2000);
    }
    answer(&ask, "in time", 1);
    turn();
    if (answered.status == 0) assert_value(&answered, 0, "in time"); // on a machine that is not too busy
    injection_free(answered.injection);
    assert_overdue(&askers[0], began_us[0]);
    assert_overdue(&askers[1], began_us[1]);
    began_us[2] = clock_us();
    assert_non_null(start(&askers[2], "two.test"));
    assert_overdue(&askers[2], began_us[2]);
}

static void test_order(void **state) {
    (void)state;
    struct asker askers[20];
    struct ipc_value_ask asks[20];
    char text[20];
    for (size_t i = 0; i < 20; i++) {
        assert_non_null(start(&askers[i], "two.test"));
        asks[i] = value_asked();
    }
    for (size_t i = 20; i-- > 0;) {
        snprintf(text, sizeof(text), "value %zu", i);
        answer(&asks[i], text, 1);
    }
    turn();
    for (size_t i = 0; i < 20; i++) {
        snprintf(text, sizeof(text), "value %zu", i);
        assert_value(&askers[i], 0, text);
        injection_free(askers[i].injection);
    }
}

static void test_refused(void **state) {
    (void)state;
    struct asker asker;
    assert_non_null(start(&asker, "one.test"));
    struct ipc_value_ask first = value_asked(), second = value_asked();
    refuse(&first, -ENOENT);
    turn();
    assert_true(asker.told);
    assert_int_equal(asker.status, -ENOENT);
    answer(&second, "late", 1); // nobody waits: no harm
    turn();
    assert_true(injection_channel_up(gate.injections));
}

static void test_cancel(void **state) {
    (void)state;
    struct asker one, two;
    assert_non_null(start(&one, "two.test"));
    assert_non_null(start(&two, "two.test"));
    struct ipc_value_ask first = value_asked(), second = value_asked();
    injection_cancel(one.wait);
    answer(&first, "of nobody", 1);
    answer(&second, "of two", 1);
    turn();
    assert_false(one.told);
    assert_value(&two, 0, "of two");
    injection_free(two.injection);
}

// A request's handler may end others, also those that would be told next.
static void test_cancel_inside(void **state) {
    (void)state;
    struct asker one, two;
    assert_non_null(start(&one, "two.test"));
    assert_non_null(start(&two, "two.test"));
    one.cancels = &two;
    close(vault);
    vault = -1;
    turn();
    assert_int_equal(one.status, -EPIPE);
    assert_false(two.told);
}

// ---- rotation ----

static void test_changed(void **state) {
    (void)state;
    say_changed(2, 5);
    turn();
    assert_int_equal(change_count, 1);
    assert_int_equal(changes[0].rule, 2);
    assert_int_equal(changes[0].epoch, 5);
}

// One of two values is replaced before the other one is there: the old one is never used.
static void test_changed_while_waiting(void **state) {
    (void)state;
    struct asker asker;
    assert_non_null(start(&asker, "one.test"));
    struct ipc_value_ask first = value_asked(), second = value_asked();
    answer(&second, "old", 1);
    say_changed(1, 2);
    answer(&first, "first", 1);
    turn();
    assert_false(asker.told);
    struct ipc_value_ask again = value_asked();
    assert_int_equal(again.rule, 1);
    answer(&again, "new", 2);
    say_changed(1, 2); // it is of this epoch
    turn();
    assert_value(&asker, 0, "first");
    assert_value(&asker, 1, "new");
    injection_free(asker.injection);
}

// ---- a vault that dies, or is mad ----

static void assert_lost(struct asker *asker) {
    struct channel_message message;
    turn();
    assert_true(asker->told);
    assert_int_equal(asker->status, -EPIPE);
    assert_false(injection_channel_up(gate.injections));
    assert_non_null(start(asker, "two.test")); // fails, later
    turn();
    assert_int_equal(asker->status, -EPIPE);
    event_active(gate.injections->report, EV_TIMEOUT, 0);
    turn();
    assert_int_equal(channel_receive(main_end, buffer, sizeof(buffer), &message), 1);
    assert_int_equal(message.type, IPC_GATE_VAULT_LOST);
}

static void test_death(void **state) {
    (void)state;
    struct asker asker;
    assert_non_null(start(&asker, "two.test"));
    struct ipc_value_ask ask = value_asked();
    answer(&ask, "given", 3);
    turn();
    assert_value(&asker, 0, "given");
    injection_free(asker.injection);
    assert_non_null(start(&asker, "one.test"));
    close(vault);
    vault = -1;
    assert_lost(&asker);
    // Who got a value would not be told any more of its end.
    assert_int_equal(change_count, 1);
    assert_int_equal(changes[0].rule, 2);
    assert_int_equal(changes[0].epoch, UINT32_MAX);
    assert_int_equal(join(), 0);
    assert_non_null(start(&asker, "two.test"));
    ask = value_asked();
    answer(&ask, "again", 1);
    turn();
    assert_value(&asker, 0, "again");
    injection_free(asker.injection);
}

static void test_replaced(void **state) {
    (void)state;
    struct asker asker;
    struct channel_message message;
    assert_non_null(start(&asker, "two.test"));
    assert_int_equal(join(), 0);
    turn();
    assert_int_equal(asker.status, -EPIPE);
    event_active(gate.injections->report, EV_TIMEOUT, 0);
    turn();
    assert_int_equal(channel_receive(main_end, buffer, sizeof(buffer), &message), -EAGAIN); // nothing to report
}

enum madness { STRANGE_TYPE, STRANGE_ID, STRANGE_RULE, TWICE, LEAF_UNASKED, LEAF_STRANGE, SHORT, MADNESS_COUNT };

static void go_mad(enum madness madness, struct ipc_value_ask ask) {
    struct ipc_leaf leaf = {.rule = madness == LEAF_STRANGE ? 400 : 0, .status = -EIO};
    switch (madness) {
    case STRANGE_TYPE: assert_int_equal(channel_send(vault, IPC_GATE_READY, NULL, 0, NULL, 0), 0); break;
    case STRANGE_ID: ask.id += 1000; answer(&ask, "x", 1); break;
    case STRANGE_RULE: ask.rule = 0; answer(&ask, "x", 1); break;
    case TWICE: ask.id++; answer(&ask, "x", 1); break;
    case LEAF_UNASKED: // the first one is an answer
        assert_int_equal(channel_send_tail(vault, IPC_LEAF, &leaf, sizeof(leaf), NULL, 0), 0);
        assert_int_equal(channel_send_tail(vault, IPC_LEAF, &leaf, sizeof(leaf), NULL, 0), 0);
        break;
    case LEAF_STRANGE: assert_int_equal(channel_send_tail(vault, IPC_LEAF, &leaf, sizeof(leaf), NULL, 0), 0); break;
    case SHORT: assert_int_equal(send(vault, "abc", 3, 0), 3); break;
    case MADNESS_COUNT: break;
    }
}

static void test_mad(void **state) {
    (void)state;
    for (int madness = 0; madness < MADNESS_COUNT; madness++) {
        struct asker asker;
        assert_non_null(start(&asker, "two.test"));
        go_mad((enum madness)madness, value_asked());
        assert_lost(&asker);
        assert_int_equal(join(), 0);
    }
}

// ---- bounds ----

static struct asker crowd[INJECTION_WAITS_MAX];

static void test_flood(void **state) {
    (void)state;
    struct asker one_more;
    size_t open = 0, done = 0;
    struct ipc_value_ask ask;
    for (size_t i = 0; i < INJECTION_WAITS_MAX; i++) assert_non_null(start(&crowd[i], "two.test"));
    assert_null(start(&one_more, "two.test"));
    static struct ipc_value_ask asks[INJECTION_WAITS_MAX];
    while (asked(IPC_VALUE_ASK, &ask, sizeof(ask))) {
        asks[open++] = ask;
        turn();
    }
    assert_int_equal(open, INJECTION_VALUE_ASKS); // and not one more until one is answered
    while (done < open) {
        answer(&asks[done++], "v", 1);
        turn();
        while (asked(IPC_VALUE_ASK, &ask, sizeof(ask))) asks[open++] = ask;
    }
    assert_int_equal(done, INJECTION_WAITS_MAX);
    for (size_t i = 0; i < INJECTION_WAITS_MAX; i++) {
        assert_value(&crowd[i], 0, "v");
        injection_free(crowd[i].injection);
    }
}

// Locked memory is used up: the request fails, and the next one works once there is some again.
static void test_memory_used_up(void **state) {
    (void)state;
    static char large[IPC_SECRET_MAX + 1];
    struct ipc_value_ask ask;
    size_t held = 0;
    memset(large, 'x', sizeof(large) - 1);
    for (bool full = false; !full; held++) {
        assert_true(held < INJECTION_WAITS_MAX);
        assert_non_null(start(&crowd[held], "two.test"));
        ask = value_asked();
        answer(&ask, large, 1);
        turn();
        assert_true(crowd[held].told);
        full = crowd[held].status == -ENOMEM;
    }
    for (size_t i = 0; i < held; i++) injection_free(crowd[i].injection);
    assert_non_null(start(&crowd[0], "two.test"));
    ask = value_asked();
    answer(&ask, large, 1);
    turn();
    assert_value(&crowd[0], 0, large);
    injection_free(crowd[0].injection);
}

// ---- leaves ----

static X509 *ca;
static EVP_PKEY *ca_key;

static void send_leaf(uint32_t rule, const char *host, int64_t renew_at) {
    struct ipc_leaf leaf = {.rule = rule, .renew_at = renew_at};
    uint8_t tail[2 * IPC_CERTIFICATE_MAX];
    EVP_PKEY *key = NULL;
    X509 *certificate = NULL;
    assert_int_equal(certificate_key_new(&key), 0);
    assert_int_equal(certificate_leaf_new(ca, ca_key, key, host, time(NULL), &certificate, NULL), 0);
    assert_int_equal(certificate_key_number(key, leaf.key), 0);
    leaf.leaf_length = (uint32_t)certificate_encode(certificate, tail, IPC_CERTIFICATE_MAX);
    leaf.ca_length = (uint32_t)certificate_encode(ca, tail + leaf.leaf_length, IPC_CERTIFICATE_MAX);
    assert_int_equal(channel_send_tail(vault, IPC_LEAF, &leaf, sizeof(leaf), tail, leaf.leaf_length + leaf.ca_length), 0);
    X509_free(certificate);
    EVP_PKEY_free(key);
}

static uint32_t leaf_asked(void) {
    struct ipc_leaf_ask ask = {0};
    assert_true(asked(IPC_LEAF_ASK, &ask, sizeof(ask)));
    return ask.rule;
}

static void leaf_told(int status, void *data) {
    struct asker *asker = data;
    assert_false(asker->told);
    asker->told = true;
    asker->status = status;
}

static void test_leaf(void **state) {
    (void)state;
    struct asker one = {0}, two = {0}, gone = {0};
    struct ipc_leaf_ask ask;
    assert_int_equal(leaf_asked(), 0); // both without anybody's wish
    assert_int_equal(leaf_asked(), 2);
    assert_null(injection_leaf(&gate, "one.test"));
    assert_non_null(injection_leaf_start(&gate, "one.test", leaf_told, &one));
    assert_non_null(injection_leaf_start(&gate, "one.test", leaf_told, &two));
    struct injection_leaf_wait *wait = injection_leaf_start(&gate, "one.test", leaf_told, &gone);
    injection_leaf_cancel(wait);
    assert_null(injection_leaf_start(&gate, "elsewhere.test", leaf_told, &gone));
    assert_false(asked(IPC_LEAF_ASK, &ask, sizeof(ask))); // it has been
    send_leaf(0, "one.test", time(NULL) + 1000);
    turn();
    assert_true(one.told && two.told && !gone.told);
    assert_int_equal(one.status, 0);
    const struct injection_leaf *leaf = injection_leaf(&gate, "one.test");
    assert_non_null(leaf);
    assert_int_equal(leaf->serial, 1);
    assert_non_null(leaf->key);
    assert_int_equal(X509_check_host(leaf->certificate, "one.test", 0, 0, NULL), 1);
    assert_null(injection_leaf(&gate, "two.test"));
    one = (struct asker){0}; // it is there by now: told all the same
    assert_non_null(injection_leaf_start(&gate, "one.test", leaf_told, &one));
    assert_false(one.told);
    turn();
    assert_true(one.told && one.status == 0);
}

#define MANY 100 // more than the vault is asked at a time

static struct policy *compile_many(void) {
    struct policy_model *model = policy_model_new(POLICY_DIALECT_NATIVE);
    struct policy_warnings warnings = {0};
    struct policy *policy = NULL;
    struct error err = {0};
    char host[32], binding[64];
    for (unsigned i = 0; i < MANY; i++) {
        snprintf(host, sizeof(host), "h%u.test", i);
        snprintf(binding, sizeof(binding), "header:h%u.test:X-Key=env:A", i);
        assert_int_equal(policy_model_allow(model, host, "test", &err), 0);
        assert_int_equal(policy_model_bind(model, binding, binding, &err), 0);
    }
    assert_int_equal(policy_compile(model, NULL, NULL, 0, 1, &policy, &warnings, &err), 0);
    policy_warnings_done(&warnings);
    policy_model_free(model);
    return policy;
}

// All are made ahead, and the one that is waited for comes though it is the last.
static void test_many_leaves(void **state) {
    (void)state;
    struct asker last = {0};
    struct ipc_leaf_ask ask;
    char host[32];
    unsigned count = 0;
    policy_free(gate.policy);
    gate.policy = compile_many();
    assert_int_equal(join(), 0);
    assert_non_null(injection_leaf_start(&gate, "h99.test", leaf_told, &last));
    while (asked(IPC_LEAF_ASK, &ask, sizeof(ask))) {
        count++;
        snprintf(host, sizeof(host), "h%u.test", ask.rule);
        send_leaf(ask.rule, host, time(NULL) + 1000);
    }
    assert_int_equal(count, MANY);
    assert_true(last.told && last.status == 0);
    assert_non_null(injection_leaf(&gate, "h0.test"));
}

static void test_leaf_renewal(void **state) {
    (void)state;
    leaf_asked();
    send_leaf(0, "one.test", time(NULL) - 1);
    turn();
    assert_null(injection_leaf(&gate, "one.test"));
    event_active(gate.injections->renewal, EV_TIMEOUT, 0);
    turn();
    assert_int_equal(leaf_asked(), 2); // from the start
    assert_int_equal(leaf_asked(), 0); // again
    send_leaf(0, "one.test", time(NULL) + 1000);
    turn();
    assert_int_equal(injection_leaf(&gate, "one.test")->serial, 2);
    // Kept while there is no vault, and with another one.
    close(vault);
    vault = -1;
    turn();
    assert_int_equal(injection_leaf(&gate, "one.test")->serial, 2);
    assert_int_equal(join(), 0);
    assert_int_equal(injection_leaf(&gate, "one.test")->serial, 2);
    assert_int_equal(leaf_asked(), 2); // only what is not there
    // A clock that was set back a day: certificates are of the future.
    gate.injections->hosts[0].since += 86400;
    assert_null(injection_leaf(&gate, "one.test"));
}

static void test_leaf_failures(void **state) {
    (void)state;
    struct asker asker = {0};
    struct ipc_leaf failure = {.rule = 0, .status = -EIO};
    leaf_asked();
    assert_non_null(injection_leaf_start(&gate, "one.test", leaf_told, &asker));
    assert_int_equal(channel_send_tail(vault, IPC_LEAF, &failure, sizeof(failure), NULL, 0), 0);
    turn();
    assert_int_equal(asker.status, -EIO);
    asker = (struct asker){0};
    assert_non_null(injection_leaf_start(&gate, "one.test", leaf_told, &asker));
    struct ipc_leaf bad = {.rule = 0, .leaf_length = 3, .ca_length = 3}; // no certificates
    assert_int_equal(channel_send_tail(vault, IPC_LEAF, &bad, sizeof(bad), "abcdef", 6), 0);
    turn();
    assert_int_equal(asker.status, -EINVAL);
    asker = (struct asker){0};
    assert_non_null(injection_leaf_start(&gate, "one.test", leaf_told, &asker));
    close(vault);
    vault = -1;
    turn();
    assert_int_equal(asker.status, -EPIPE);
    assert_null(injection_leaf(&gate, "one.test"));
    asker = (struct asker){0};
    assert_non_null(injection_leaf_start(&gate, "one.test", leaf_told, &asker));
    turn();
    assert_int_equal(asker.status, -EPIPE);
}

// ---- each call for memory failing ----

// Two requests and a wait for a leaf; whatever fails, each one that was started is told once.
static bool use_all(void) {
    struct asker one = {0}, two = {0}, leaf = {0};
    struct ipc_value_ask ask;
    bool first = start(&one, "one.test") != NULL, second = start(&two, "two.test") != NULL;
    bool third = injection_leaf_start(&gate, "two.test", leaf_told, &leaf) != NULL;
    while (vault >= 0 && asked(IPC_VALUE_ASK, &ask, sizeof(ask))) answer(&ask, "value", 1);
    turn();
    if (third) { // the question went out at the start
        struct ipc_leaf failure = {.rule = 2, .status = -EIO};
        assert_int_equal(channel_send_tail(vault, IPC_LEAF, &failure, sizeof(failure), NULL, 0), 0);
        turn();
    }
    assert_int_equal(first, one.told);
    assert_int_equal(second, two.told);
    assert_int_equal(third, leaf.told);
    injection_free(one.injection);
    injection_free(two.injection);
    return first && second && third;
}

static void test_failing(void **state) {
    for (unsigned i = 1;; i++) {
        struct error err = {0};
        teardown(state);
        setup(state);
        injection_close(&gate);
        calls = 0;
        failing = i;
        int r = injection_prepare(&gate, &err);
        if (r == 0) r = join();
        bool good = r == 0 && use_all();
        failing = 0;
        if (good && calls < i) return; // as many as there are
        assert_true(r == 0 || r == -ENOMEM);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_values, setup, teardown),
        cmocka_unit_test_setup_teardown(test_together, setup, teardown),
        cmocka_unit_test_setup_teardown(test_numbers, setup, teardown),
        cmocka_unit_test_setup_teardown(test_wiped, setup, teardown),
        cmocka_unit_test_setup_teardown(test_none, setup, teardown),
        cmocka_unit_test_setup_teardown(test_none_is_told_at_once, setup, teardown),
        cmocka_unit_test_setup_teardown(test_none_is_not_kept_by_others, setup, teardown),
        cmocka_unit_test_setup_teardown(test_many_leaves, setup, teardown),
        cmocka_unit_test_setup_teardown(test_deadlines, setup, teardown),
        cmocka_unit_test_setup_teardown(test_order, setup, teardown),
        cmocka_unit_test_setup_teardown(test_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(test_cancel, setup, teardown),
        cmocka_unit_test_setup_teardown(test_cancel_inside, setup, teardown),
        cmocka_unit_test_setup_teardown(test_changed, setup, teardown),
        cmocka_unit_test_setup_teardown(test_changed_while_waiting, setup, teardown),
        cmocka_unit_test_setup_teardown(test_death, setup, teardown),
        cmocka_unit_test_setup_teardown(test_replaced, setup, teardown),
        cmocka_unit_test_setup_teardown(test_mad, setup, teardown),
        cmocka_unit_test_setup_teardown(test_flood, setup, teardown),
        cmocka_unit_test_setup_teardown(test_memory_used_up, setup, teardown),
        cmocka_unit_test_setup_teardown(test_leaf, setup, teardown),
        cmocka_unit_test_setup_teardown(test_leaf_renewal, setup, teardown),
        cmocka_unit_test_setup_teardown(test_leaf_failures, setup, teardown),
        cmocka_unit_test_setup_teardown(test_failing, setup, teardown),
    };
    struct error err = {0};
    if (secure_init(&err) < 0 || certificate_key_new(&ca_key) < 0 ||
        certificate_ca_new(ca_key, time(NULL), &ca, &err) < 0)
        return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    X509_free(ca);
    EVP_PKEY_free(ca_key);
    return failed;
}
