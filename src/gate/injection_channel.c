// SPDX-License-Identifier: Apache-2.0
// The channel of a gate to the vault. What is asked goes out a turn of the loop later, together with what that turn asks, and
// if the vault does not read, when it does. A message stays in locked memory until what is in it was taken, and is wiped then.
//
// A vault that sends what no vault sends is as good as a closed channel: everything that waits fails, connections that
// carried a value end (nobody would tell us of a rotation), and main is asked for another channel, unless it knows already
// and gives one in the next moment.
#include "gate/injection_channel.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"

#define CHANNEL_RENEWAL_S 60
#define CHANNEL_REPORT_S 1

// The longest: values. Certificates are shorter.
#define CHANNEL_SIZE (sizeof(struct ipc_header) + IPC_VALUES_SIZE + 1)
_Static_assert(sizeof(struct ipc_leaf) + 2 * IPC_CERTIFICATE_MAX < IPC_VALUES_SIZE, "it fits");

bool injection_channel_up(const struct injections *injections) { return injections->channel >= 0; }

static void channel_close(struct injections *injections) {
    if (injections->readable) event_free(TAKE_POINTER(injections->readable));
    if (injections->writable) event_free(TAKE_POINTER(injections->writable));
    if (injections->channel >= 0) close(TAKE_FD(injections->channel));
}

static void channel_lost(struct injections *injections) {
    bool given[IPC_RULES_MAX];
    struct timeval moment = {.tv_sec = CHANNEL_REPORT_S};
    channel_close(injections);
    memcpy(given, injections->given, sizeof(given));
    memset(injections->given, 0, sizeof(injections->given));
    memset(injections->slots, 0, sizeof(injections->slots));
    injections->host_asks = 0;
    event_add(injections->report, &moment);
    injection_lost(injections);
    injection_leaf_lost(injections);
    for (uint32_t i = 0; i < IPC_RULES_MAX; i++)
        if (given[i] && injections->changed) injections->changed(injections->gate, i, UINT32_MAX);
}

static void channel_report(evutil_socket_t fd, short what, void *data) {
    (void)fd, (void)what;
    struct injections *injections = data;
    if (injection_channel_up(injections)) return;
    int r = channel_send(injections->gate->channel, IPC_GATE_VAULT_LOST, NULL, 0, NULL, 0);
    struct timeval moment = {.tv_sec = CHANNEL_REPORT_S};
    if (r == -EAGAIN) event_add(injections->report, &moment);
}

static int channel_values(struct injections *injections, const struct channel_message *message) {
    struct ipc_value value;
    const uint8_t *bytes;
    size_t at = 0;
    int r = 0;
    while (r == 0 && at < message->length && ipc_value_next(message->body, message->length, &at, &value, &bytes))
        r = injection_value(injections, &value, bytes);
    return r;
}

static int channel_message(struct injections *injections, const struct channel_message *message) {
    const uint8_t *body = message->body;
    if (message->type == IPC_VALUE) return channel_values(injections, message);
    if (message->type == IPC_LEAF) {
        struct ipc_leaf leaf;
        memcpy(&leaf, body, sizeof(leaf));
        int r = injection_leaf_answer(injections, &leaf, body + sizeof(leaf));
        explicit_bzero(&leaf, sizeof(leaf));
        return r;
    }
    if (message->type != IPC_VALUE_CHANGED) return -EBADMSG;
    struct ipc_value_changed changed;
    memcpy(&changed, body, sizeof(changed));
    injection_value_changed(injections, &changed);
    if (injections->changed) injections->changed(injections->gate, changed.rule, changed.epoch);
    return 0;
}

// One message: as a rule there is no other, and the loop tells of those that are.
static void channel_readable(evutil_socket_t fd, short what, void *data) {
    (void)what;
    struct injections *injections = data;
    struct channel_message message;
    int r = channel_receive(fd, injections->buffer, CHANNEL_SIZE, &message);
    if (r == 0) r = -EPIPE;
    if (r > 0) {
        channel_message_close(&message);
        r = channel_message(injections, &message);
        explicit_bzero(injections->buffer, sizeof(struct ipc_header) + message.length);
    }
    if (r == 0 || r == -EAGAIN) {
        // An answer makes room for what could not be asked.
        bool more = !list_empty(&injections->queue) || (r == 0 && message.type == IPC_LEAF);
        if (more && !injection_channel_soon(injections)) injection_channel_flush(injections);
        return;
    }
    explicit_bzero(injections->buffer, CHANNEL_SIZE);
    channel_lost(injections);
}

static void channel_writable(evutil_socket_t fd, short what, void *data) {
    (void)fd, (void)what;
    injection_channel_flush(data);
}

void injection_channel_flush(struct injections *injections) {
    if (!injection_channel_up(injections)) return;
    int r = injection_leaf_send(injections);
    if (r == 0) r = injection_ask_send(injections);
    if (r == -EAGAIN) r = event_add(injections->writable, NULL);
    if (r == 0) return;
    // The reader will see its end, and tell everybody.
    shutdown(injections->channel, SHUT_RDWR);
}

static void channel_soon(evutil_socket_t fd, short what, void *data) {
    (void)fd, (void)what;
    injection_channel_flush(data);
    injection_idle(data);
}

bool injection_channel_soon(struct injections *injections) {
    static const struct timeval next_turn = {0};
    return event_pending(injections->soon, EV_TIMEOUT, NULL) || event_add(injections->soon, &next_turn) == 0;
}

static void channel_overdue(evutil_socket_t fd, short what, void *data) {
    (void)fd, (void)what;
    injection_overdue(data);
}

static void channel_renewal(evutil_socket_t fd, short what, void *data) {
    (void)fd, (void)what;
    struct injections *injections = data;
    if (!injection_channel_up(injections)) return;
    injection_leaf_renew(injections);
    injection_channel_flush(injections);
}

// ---- the gate's side ----

int injection_prepare(struct gate *gate, struct error *err) {
    struct timeval every = {.tv_sec = CHANNEL_RENEWAL_S};
    int r = vault_client_init(err);
    if (r < 0) return r;
    struct injections *injections = NEW(struct injections);
    if (!injections) return error_set(err, -ENOMEM, "out of memory");
    injections->gate = gate;
    injections->answer_ms = INJECTION_ANSWER_MS;
    injections->channel = -1;
    list_init(&injections->waits);
    list_init(&injections->idle);
    list_init(&injections->queue);
    gate->injections = injections;
    injections->buffer = vault_client_memory(CHANNEL_SIZE);
    injections->renewal = event_new(gate->base, -1, EV_PERSIST, channel_renewal, injections);
    injections->report = event_new(gate->base, -1, 0, channel_report, injections);
    injections->soon = event_new(gate->base, -1, 0, channel_soon, injections);
    injections->deadline = event_new(gate->base, -1, 0, channel_overdue, injections);
    bool made = injections->buffer && injections->renewal && injections->report && injections->soon && injections->deadline;
    if (made && event_add(injections->renewal, &every) == 0) return 0;
    injection_close(gate);
    return error_set(err, -ENOMEM, "out of memory");
}

void injection_on_change(struct gate *gate, injection_changed *changed) {
    if (gate->injections) gate->injections->changed = changed;
}

int injection_join(struct gate *gate, int fd) {
    struct injections *injections = gate->injections;
    if (!injections) return -EINVAL;
    struct event *readable = event_new(gate->base, fd, EV_READ | EV_PERSIST, channel_readable, injections);
    struct event *writable = event_new(gate->base, fd, EV_WRITE, channel_writable, injections);
    int r = readable && writable && event_add(readable, NULL) == 0 ? injection_leaf_hosts(injections) : -ENOMEM;
    if (r < 0) {
        if (readable) event_free(readable);
        if (writable) event_free(writable);
        return r;
    }
    if (injection_channel_up(injections)) channel_lost(injections); // calls back, but not its caller
    event_del(injections->report);
    injections->channel = fd;
    injections->readable = readable;
    injections->writable = writable;
    injection_leaf_renew(injections);
    injection_channel_flush(injections);
    return 0;
}

void injection_close(struct gate *gate) {
    struct injections *injections = TAKE_POINTER(gate->injections);
    if (!injections) return;
    channel_close(injections);
    injection_free_all(injections);
    injection_leaf_free_all(injections);
    if (injections->renewal) event_free(injections->renewal);
    if (injections->report) event_free(injections->report);
    if (injections->soon) event_free(injections->soon);
    if (injections->deadline) event_free(injections->deadline);
    vault_client_wipe(injections->buffer);
    free(injections);
}
