// SPDX-License-Identifier: Apache-2.0
// A gate: one process for one sandbox, single-threaded. It is started with one channel to main, over which it gets a
// channel to the keeper (which gives it the sandbox's sockets), a channel to the resolver, and the policy. Then it
// isolates itself and serves. It ends when main or the keeper goes away; the sandbox has no network then.
#include "gate/gate.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/random.h"
#include "gate/datagram_answers.h"
#include "gate/intercept.h"
#include "gate/state.h"

#define GATE_START_MS 10000
#define GATE_FLUSH_MS 10000 // main reads within milliseconds unless it is stopped; if it ends, the wait ends too
#define GATE_REST_US 100000
#define GATE_LARGE_MAX 16 // connections that may have large buffers at a time
#define GATE_LARGE_AGAIN 8

static _Alignas(max_align_t) uint8_t gate_buffer[CHANNEL_BUFFER_SIZE];

static void gate_watch(struct gate *gate, struct event *event, bool watched) {
    if (!event) return;
    if (!watched) event_del(event);
    else if (event_add(event, NULL) < 0) gate_fail(gate, "out of memory");
}

static void gate_watch_listeners(struct gate *gate, bool watched) {
    for (int i = IPC_SOCKET_TCP4; i <= IPC_SOCKET_TCP6; i++) gate_watch(gate, gate->socket_events[i], watched);
    for (size_t i = 0; i < gate->listener_count; i++) gate_watch(gate, gate->listeners[i].event, watched);
}

// Large buffers are for few connections: what these hold is the memory that a sandbox can take.
void gate_buffers(struct gate *gate) {
    bool small = gate->flow_count > (gate->small_buffers ? GATE_LARGE_AGAIN : GATE_LARGE_MAX);
    struct ipc_buffers message = {.large = !small};
    if (small == gate->small_buffers) return;
    // If it is not taken now, the next change tries again.
    if (channel_send(gate->keeper, IPC_BUFFERS, &message, sizeof(message), NULL, 0) < 0) return;
    gate->small_buffers = small;
    gate->buffers_asked++;
}

void gate_pause(struct gate *gate, bool paused) {
    if (gate->closing && !paused) return; // also if the log has room again
    gate->paused = paused;
    for (int i = IPC_SOCKET_UDP4; i < IPC_SOCKET_COUNT; i++) gate_watch(gate, gate->socket_events[i], !paused);
    gate_watch_listeners(gate, !paused);
    dns_front_pause(gate->front, paused);
    if (paused) return;
    LIST_FOREACH(&gate->flows, node) {
        struct flow *flow = LIST_ENTRY(node, struct flow, link);
        if (flow->state == FLOW_HTTP && flow->h2) h2_relay_resume(flow);
        else if (flow->state == FLOW_HTTP) http_relay_resume(flow);
    }
}

static void gate_rested(evutil_socket_t fd, short what, void *data) {
    (void)fd;
    (void)what;
    struct gate *gate = data;
    if (!gate->paused) gate_watch_listeners(gate, true);
}

void gate_rest(struct gate *gate) {
    struct timeval moment = {.tv_usec = GATE_REST_US};
    gate->counters.starved++;
    if (!gate->rest) gate->rest = evtimer_new(gate->base, gate_rested, gate);
    if (!gate->rest || event_add(gate->rest, &moment) < 0) return;
    gate_watch_listeners(gate, false);
}

void gate_fail(struct gate *gate, const char *why) {
    if (gate->closing) return;
    struct ipc_error error = {0};
    memccpy(error.text, why, 0, sizeof(error.text) - 1);
    channel_send(gate->channel, IPC_ERROR, &error, sizeof(error), NULL, 0);
    gate->closing = true;
    event_base_loopbreak(gate->base);
}

// ---- policy ----

// A new policy is looked at whole before anything of the old one goes.
static int gate_read_policy(int fd, size_t size, void **ret_block, struct policy **ret_policy) {
    struct stat status;
    struct error err = {0};
    if (fstat(fd, &status) < 0 || (uint64_t)status.st_size < size) return -EBADMSG;
    void *block = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (block == MAP_FAILED) return -errno;
    int rc = policy_from_block(block, size, ret_policy, &err);
    if (rc < 0) munmap(block, size);
    else *ret_block = block;
    return rc;
}

static bool gate_same_prefix(const struct addr_prefix *a, const struct addr_prefix *b) {
    return a->length == b->length && addr_equal(&a->addr, &b->addr);
}

// Whether this gate can enforce it: what was made for the first policy stays for its life.
static int gate_check_policy(const struct gate *gate, const struct policy *policy) {
    struct policy_facts facts = policy_facts(policy);
    if (!gate->pool) return 0; // the first one
    if (!gate_same_prefix(&facts.pool4, &gate->facts.pool4) || !gate_same_prefix(&facts.pool6, &gate->facts.pool6)) return -EXDEV;
    return policy_bound_host(policy, 0) && !gate->injections ? -ENOTSUP : 0;
}

static int gate_map_policy(struct gate *gate, int fd, const struct ipc_policy *message) {
    struct policy *policy;
    void *block;
    int rc = gate_read_policy(fd, message->size, &block, &policy);
    if (rc < 0) return rc;
    rc = gate_check_policy(gate, policy);
    if (rc < 0) {
        policy_free(policy);
        munmap(block, message->size);
        return rc;
    }
    policy_free(gate->policy);
    if (gate->policy_block) munmap(gate->policy_block, gate->policy_size);
    gate->policy = policy;
    gate->policy_block = block;
    gate->policy_size = message->size;
    gate->facts = policy_facts(policy);
    return 0;
}

static void gate_send_counters(struct gate *gate) {
    struct ipc_counters counters = gate->counters;
    for (int way = METER_OUT; way <= METER_IN; way++) {
        counters.bytes[way] = gate->meter.used[way];
        counters.lost[way] = gate->meter.lost[way];
        counters.waits[way] = gate->meter.waits[way];
    }
    counters.bytes[METER_OUT] -= gate->bytes_before;
    counters.exchanges_open = gate->exchanges->count;
    counters.flows_open = gate->flow_count - gate->exchanges->count;
    counters.names = dns_pool_count(gate->pool);
    counters.log_waiting = journal_waiting(gate->journal);
    // Main asks again if it does not get them.
    channel_send(gate->channel, IPC_GATE_COUNTERS, &counters, sizeof(counters), NULL, 0);
}

static void gate_count_update(struct gate *gate, const struct ipc_active *active) {
    static const uint64_t steps_us[IPC_UPDATE_STEPS] = {100, 1000, 10000, 100000, 1000000, UINT64_MAX};
    size_t step = 0;
    while (active->update_us > steps_us[step]) step++;
    gate->counters.updates[step]++;
    gate->counters.update_us += active->update_us;
    gate->counters.closed += active->flows_closed;
}

// vault: a channel for the rules of this policy, or -1. Taken.
static void gate_update(struct gate *gate, int fd, int *vault, const struct ipc_policy *message) {
    uint64_t start = clock_us();
    struct ipc_active active = {.generation = message->generation};
    active.status = gate_map_policy(gate, fd, message);
    if (active.status < 0) {
        active.generation = gate->facts.generation;
        gate->counters.updates_refused++;
    } else {
        if (*vault >= 0 && injection_join(gate, *vault) == 0) *vault = -1;
        else if (*vault >= 0) gate_fail(gate, "the new channel to the vault could not be taken");
        limit_apply(gate);
        rejudge_all(gate, message->keep_existing, &active.flows_closed, &active.flows_kept);
        active.update_us = clock_us() - start;
        gate_count_update(gate, &active);
    }
    journal_flush(gate->journal); // what was decided before is told before
    int rc;
    struct pollfd main_reads = {.fd = gate->channel, .events = POLLOUT};
    // Full of records: main reads them within milliseconds.
    while ((rc = channel_send(gate->channel, IPC_GATE_ACTIVE, &active, sizeof(active), NULL, 0)) == -EAGAIN &&
           clock_us() - start < GATE_FLUSH_MS * 1000)
        poll(&main_reads, 1, 100);
    if (rc < 0) gate_fail(gate, "the answer to a policy update could not be sent");
}

static void gate_main_readable(evutil_socket_t fd, short what, void *data) {
    (void)what;
    struct gate *gate = data;
    struct channel_message message;
    int rc;
    while ((rc = channel_receive(fd, gate_buffer, sizeof(gate_buffer), &message)) == 1) {
        if (message.type == IPC_GATE_POLICY) gate_update(gate, message.fds[0], &message.fds[1], message.body);
        if (message.type == IPC_GATE_COUNT) gate_send_counters(gate);
        if (message.type == IPC_GATE_RESOLVER) {
            if (dns_client_replace(gate->dns, message.fds[0]) == 0) message.fds[0] = -1;
            else gate_fail(gate, "the new resolver could not be taken"); // the next gate gets another
        }
        if (message.type == IPC_GATE_VAULT) {
            if (injection_join(gate, message.fds[0]) == 0) message.fds[0] = -1;
            else gate_fail(gate, "the new channel to the vault could not be taken");
        }
        channel_message_close(&message);
    }
    if (rc != -EAGAIN) {
        gate->closing = true;
        event_base_loopbreak(gate->base);
    }
}

// ---- keeper ----

static void gate_remember(uint32_t index, const char *name, void *data) {
    struct gate *gate = data;
    struct ipc_mapping mapping = {.index = index};
    memcpy(mapping.name, name, strnlen(name, NAME_SIZE - 1));
    if (channel_send(gate->keeper, IPC_MAPPING, &mapping, sizeof(mapping), NULL, 0) < 0) {
        // A mapping that the keeper does not know could be given to another name after a restart.
        gate_fail(gate, "the keeper does not take a name mapping");
    }
}

static void gate_keeper_readable(evutil_socket_t fd, short what, void *data) {
    (void)what;
    struct gate *gate = data;
    struct channel_message message;
    int rc;
    while ((rc = channel_receive(fd, gate_buffer, sizeof(gate_buffer), &message)) == 1) {
        gate->buffers_asked -= message.type == IPC_BUFFERS && gate->buffers_asked > 0;
        channel_message_close(&message);
    }
    syn_readmit(gate);
    if (rc != -EAGAIN) gate_fail(gate, "the keeper of the sandbox's namespaces is gone");
}

// ---- start ----

static int gate_expect(int fd, int timeout_ms, enum ipc_type type, struct channel_message *ret_message) {
    int rc = channel_wait(fd, timeout_ms, gate_buffer, sizeof(gate_buffer), ret_message);
    if (rc == 0) return -EPIPE;
    if (rc < 0) return rc;
    if (ret_message->type == type) return 0;
    channel_message_close(ret_message);
    return -EBADMSG;
}

static int gate_receive_mappings(struct gate *gate) {
    for (uint32_t i = 0; i <= IPC_MAPPINGS_MAX; i++) {
        struct channel_message message;
        int rc = channel_wait(gate->keeper, GATE_START_MS, gate_buffer, sizeof(gate_buffer), &message);
        if (rc <= 0) return rc < 0 ? rc : -EPIPE;
        channel_message_close(&message);
        if (message.type == IPC_MAPPINGS_END) return 0;
        const struct ipc_mapping *mapping = message.body;
        if (message.type != IPC_MAPPING) return -EBADMSG;
        rc = dns_pool_restore(gate->pool, mapping->index, mapping->name);
        if (rc < 0) return rc;
    }
    return -EBADMSG;
}

// The sockets of the skeleton without nft, in several messages.
static int gate_receive_plain(struct gate *gate, struct channel_message *first) {
    struct ipc_plain plain;
    struct channel_message message;
    memcpy(&plain, first->body, sizeof(plain));
    for (int i = 0; i < IPC_PLAIN_SOCKETS; i++) gate->sockets[IPC_SOCKET_UDP4 + i] = TAKE_FD(first->fds[i]);
    gate->listeners = NEW_ARRAY(struct gate_listener, plain.listeners);
    if (!gate->listeners) return -ENOMEM;
    while (gate->listener_count < plain.listeners) {
        int rc = gate_expect(gate->keeper, GATE_START_MS, IPC_GATE_LISTENERS, &message);
        if (rc < 0) return rc;
        for (size_t i = 0; i < message.fd_count && gate->listener_count < plain.listeners; i++)
            relay_prepare(gate->listeners[gate->listener_count++].fd = TAKE_FD(message.fds[i]));
        channel_message_close(&message);
    }
    return 0;
}

static int gate_receive_sockets(struct gate *gate) {
    struct channel_message message;
    int rc = channel_wait(gate->keeper, GATE_START_MS, gate_buffer, sizeof(gate_buffer), &message);
    if (rc <= 0) return rc < 0 ? rc : -EPIPE;
    if (message.type == IPC_GATE_SOCKETS) {
        for (int i = 0; i < IPC_SOCKET_COUNT; i++) gate->sockets[i] = TAKE_FD(message.fds[i]);
        relay_prepare(gate->sockets[IPC_SOCKET_TCP4]); // what is accepted inherits it
        relay_prepare(gate->sockets[IPC_SOCKET_TCP6]);
    } else {
        rc = message.type == IPC_GATE_PLAIN ? gate_receive_plain(gate, &message) : -EBADMSG;
        channel_message_close(&message);
    }
    return rc < 0 ? rc : gate_receive_mappings(gate);
}

static const struct policy *gate_policy(void *data) {
    struct gate *gate = data;
    return gate->policy;
}

static void gate_decided(const struct policy_request *request, const struct policy_decision *decision, void *data) {
    journal_decision(data, request, decision);
}

static int gate_asked(size_t len, void *data) { return meter_message(&((struct gate *)data)->meter, len); }
static void gate_told(size_t len, void *data) { meter_take(&((struct gate *)data)->meter, METER_IN, len); }

static int gate_make(struct gate *gate, int resolver, uint64_t bytes_out) {
    struct dns_front_callbacks callbacks = {
        .policy = gate_policy, .decided = gate_decided, .asked = gate_asked, .told = gate_told, .data = gate};
    gate->journal = journal_new(gate);
    gate->answers = answers_new(gate);
    gate->dns = dns_client_new(gate->base, resolver);
    gate->pool = dns_pool_new(&gate->facts.pool4, &gate->facts.pool6, gate_remember, gate);
    if (!gate->journal || !gate->answers || !gate->dns || !gate->pool || exchange_init(gate) < 0) return -ENOMEM;
    if (limit_init(gate, bytes_out) < 0) return -ENOMEM;
    gate->bytes_before = bytes_out;
    gate->front = dns_front_new(gate->base, gate->dns, gate->pool, &callbacks);
    if (!gate->front) return -ENOMEM;
    int rc = relay_engine_new(gate->base, flow_relay_ended, &gate->relays);
    if (rc < 0) return rc;
    relay_engine_meter(gate->relays, &gate->meter);
    return watcher_new(gate->base, &gate->watcher);
}

static int gate_serve(struct gate *gate) {
    static const struct {
        enum ipc_socket socket;
        event_callback_fn handler;
    } handlers[] = {
        {IPC_SOCKET_TCP4, syn_accept},         {IPC_SOCKET_TCP6, syn_accept},
        {IPC_SOCKET_UDP4, datagram_readable},  {IPC_SOCKET_UDP6, datagram_readable},
        {IPC_SOCKET_PACKET, syn_readable},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(handlers); i++) {
        struct event **event = &gate->socket_events[handlers[i].socket];
        if (gate->sockets[handlers[i].socket] < 0) continue; // this skeleton has none
        *event = event_new(gate->base, gate->sockets[handlers[i].socket], EV_READ | EV_PERSIST, handlers[i].handler, gate);
        if (!*event || event_add(*event, NULL) < 0) return -ENOMEM;
    }
    for (size_t i = 0; i < gate->listener_count; i++) {
        struct gate_listener *listener = &gate->listeners[i];
        listener->event = event_new(gate->base, listener->fd, EV_READ | EV_PERSIST, syn_accept, gate);
        if (!listener->event || event_add(listener->event, NULL) < 0) return -ENOMEM;
    }
    gate->channel_event = event_new(gate->base, gate->channel, EV_READ | EV_PERSIST, gate_main_readable, gate);
    gate->keeper_event = event_new(gate->base, gate->keeper, EV_READ | EV_PERSIST, gate_keeper_readable, gate);
    if (!gate->channel_event || !gate->keeper_event) return -ENOMEM;
    return event_add(gate->channel_event, NULL) < 0 || event_add(gate->keeper_event, NULL) < 0 ? -ENOMEM : 0;
}

// The text of a memory file, NUL-terminated, to be freed. fd -1: none, which is no error.
static int gate_read_text(int fd, char **ret_text) {
    struct stat status;
    if (fd < 0) return 0;
    if (fstat(fd, &status) < 0) return -errno;
    if (status.st_size > IPC_ROOTS_MAX) return -EFBIG;
    size_t size = (size_t)status.st_size, done = 0;
    AUTO_FREE char *text = malloc(size + 1);
    if (!text) return -ENOMEM;
    while (done < size) {
        ssize_t got = pread(fd, text + done, size - done, (off_t)done);
        if (got <= 0) return -EIO;
        done += (size_t)got;
    }
    text[size] = '\0';
    *ret_text = TAKE_POINTER(text);
    return 0;
}

// Where there are bindings: what is in files is read now.
static int gate_start_credentials(struct gate *gate, int vault, int roots, struct error *err) {
    AUTO_FREE char *extra = NULL;
    int rc = gate_read_text(roots, &extra);
    if (rc < 0) return error_set(err, rc, "roots of trust: %s", strerror(-rc));
    rc = injection_prepare(gate, err);
    if (rc == 0) rc = intercept_prepare(gate, extra, err);
    if (rc < 0) return rc;
    rc = injection_join(gate, vault);
    return rc < 0 ? error_set(err, rc, "channel to the vault: %s", strerror(-rc)) : 0;
}

static int gate_start(struct gate *gate, struct error *err) {
    struct channel_message message;
    int rc = gate_expect(gate->channel, -1, IPC_GATE_START, &message);
    if (rc < 0) return error_set(err, rc, "start message: %s", strerror(-rc));
    struct ipc_gate_start start;
    memcpy(&start, message.body, sizeof(start));
    gate->doors = start.doors;
    gate->keeper = TAKE_FD(message.fds[0]);
    int resolver = TAKE_FD(message.fds[1]);
    AUTO_CLOSE int vault = TAKE_FD(message.fds[2]);
    AUTO_CLOSE int roots = TAKE_FD(message.fds[3]);
    rc = gate_expect(gate->channel, GATE_START_MS, IPC_GATE_POLICY, &message);
    if (rc == 0) {
        rc = gate_map_policy(gate, message.fds[0], message.body);
        channel_message_close(&message);
    }
    if (rc < 0) return error_set(err, rc, "policy: %s", strerror(-rc));
    rc = gate_make(gate, resolver, start.bytes_out);
    if (rc < 0) return error_set(err, rc, "set-up: %s", strerror(-rc));
    if (vault >= 0) {
        rc = gate_start_credentials(gate, vault, roots, err);
        if (rc < 0) return rc;
        vault = -1;
    }
    rc = gate_receive_sockets(gate);
    if (rc == 0) rc = gate_serve(gate);
    if (rc < 0) return error_set(err, rc, "sockets of the sandbox: %s", strerror(-rc));
    return isolate_process(ISOLATE_GATE, err);
}

// ---- end ----

static void gate_stop(struct gate *gate) {
    gate->closing = true;
    gate_pause(gate, true);
    LIST_FOREACH(&gate->flows, node) flow_end(LIST_ENTRY(node, struct flow, link), true);
    exchange_done(gate);
    uint64_t until = clock_us() + GATE_FLUSH_MS * 1000;
    while (gate->journal && !journal_flush(gate->journal) && clock_us() < until) {
        struct pollfd main_reads = {.fd = gate->channel, .events = POLLOUT};
        poll(&main_reads, 1, 100);
    }
    if (gate->journal) gate_send_counters(gate); // the last ones
}

// What comes from outside: nothing of it is served any more.
static void gate_forget_events(struct gate *gate) {
    struct event **events[] = {&gate->rest, &gate->channel_event, &gate->keeper_event};
    for (size_t i = 0; i < ARRAY_LENGTH(events); i++)
        if (*events[i]) event_free(TAKE_POINTER(*events[i]));
    for (int i = 0; i < IPC_SOCKET_COUNT; i++)
        if (gate->socket_events[i]) event_free(TAKE_POINTER(gate->socket_events[i]));
    for (size_t i = 0; i < gate->listener_count; i++)
        if (gate->listeners[i].event) event_free(TAKE_POINTER(gate->listeners[i].event));
}

static void gate_free(struct gate *gate) {
    gate_forget_events(gate);
    injection_close(gate);
    intercept_done(gate);
    dns_front_free(gate->front);
    dns_client_free(gate->dns);
    dns_pool_free(gate->pool);
    relay_engine_free(gate->relays);
    watcher_free(gate->watcher);
    event_base_loop(gate->base, EVLOOP_NONBLOCK); // what is freed at the end of a turn
    for (int i = 0; i < IPC_SOCKET_COUNT; i++)
        if (gate->sockets[i] >= 0) close(gate->sockets[i]);
    for (size_t i = 0; i < gate->listener_count; i++) close(gate->listeners[i].fd);
    free(gate->listeners);
    journal_free(gate->journal);
    answers_free(gate->answers);
    if (gate->exchange_sweep) event_free(gate->exchange_sweep);
    free(gate->exchanges);
    limit_done(gate);
    if (gate->keeper >= 0) close(gate->keeper);
    policy_free(gate->policy);
    if (gate->policy_block) munmap(gate->policy_block, gate->policy_size);
    event_base_free(gate->base);
    slab_done(&gate->flow_memory);
    close(gate->channel);
    free(gate);
}

static struct gate *gate_new(int channel) {
    struct gate *gate = NEW(struct gate);
    if (!gate) return NULL;
    gate->base = event_base_new();
    if (!gate->base) {
        free(gate);
        return NULL;
    }
    gate->channel = channel;
    gate->keeper = -1;
    gate->hash_seed = random_u32();
    slab_init(&gate->flow_memory, sizeof(struct flow));
    list_init(&gate->flows);
    for (size_t i = 0; i < GATE_BUCKETS; i++) list_init(&gate->pending[i]);
    for (int i = 0; i < IPC_SOCKET_COUNT; i++) gate->sockets[i] = -1;
    return gate;
}

int gate_main(int channel) {
    struct error err = {0};
    struct rlimit limit;
    signal(SIGPIPE, SIG_IGN);
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
    struct gate *gate = gate_new(channel);
    if (!gate) return 1;
    int rc = gate_start(gate, &err);
    if (rc < 0) {
        struct error prefixed = err;
        error_context(&prefixed, rc, "gate");
        gate_fail(gate, prefixed.text);
    } else if (channel_send(channel, IPC_GATE_READY, NULL, 0, NULL, 0) == 0) {
        event_base_dispatch(gate->base);
        gate_stop(gate);
    }
    gate_free(gate);
    return rc < 0;
}
