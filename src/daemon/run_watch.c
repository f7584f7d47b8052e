// SPDX-License-Identifier: Apache-2.0
// The network of one sandbox while it lives, whoever started it: its policy, what its processes say, and what is done when
// one of them dies or the host gets another address.
#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "daemon/decision_log.h"
#include "daemon/learn.h"
#include "daemon/nameserver.h"
#include "daemon/run_state.h"

#define RUN_STOP_MS 2000
#define RUN_PROBE_MS 3000      // for the first sign of life of a DNS server
#define RUN_RESOLVER_US 100000 // after the command, where names are likely to be asked for
#define RUN_BUSY_US 1000       // between two looks at what a busy gate says: each wakes us, and none is long enough to be felt

// ---- policy ----

int run_compile(struct run *run, struct policy **ret_policy, struct policy_warnings *warnings, struct error *err) {
    AUTO_FREE struct addr *own = NULL;
    size_t own_count = 0;
    int rc = host_addresses(&own, &own_count, err);
    if (rc < 0) return rc;
    return policy_compile(run->options->model, run->options->node, own, own_count, ++run->generation, ret_policy,
                          warnings, err);
}

static void run_print_warnings(const struct policy_warnings *warnings) {
    for (size_t i = 0; i < warnings->count; i++) fprintf(stderr, "penstock: warning: %s\n", warnings->lines[i]);
    if (warnings->more > 0) fprintf(stderr, "penstock: warning: and %zu more\n", warnings->more);
}

static int run_prepare(struct run *run, struct error *err) {
    struct policy_warnings warnings = {0};
    const struct daemon_run *options = run->options;
    int rc = run_compile(run, &run->policy, &warnings, err);
    if (rc == 0 && !options->quiet) run_print_warnings(&warnings);
    policy_warnings_done(&warnings);
    if (rc < 0) return rc;
    options->model->known = true;
    size_t configured = options->dns_server_count == 0 && options->node ? options->node->dns_server_count : 0;
    const char *const *texts = configured ? (const char *const *)options->node->dns_servers : options->dns_servers;
    if (options->servers) run->servers = *options->servers;
    else rc = nameserver_collect(texts, configured ? configured : options->dns_server_count, &run->servers, err);
    if (rc < 0) return rc;
    if (run->servers.count == 0 && policy_facts(run->policy).has_names) {
        return error_set(err, -ENOENT, "DNS server: /etc/resolv.conf names none and the policy allows host names; give one "
                                       "with --dns ADDR");
    }
    return 0;
}

// ---- while it runs ----

static _Alignas(max_align_t) uint8_t run_buffer[CHANNEL_BUFFER_SIZE];

static void run_log_result(struct run *run, int rc) {
    if (rc == 0 || run->log_failed) return;
    fprintf(stderr, "penstock: decision log: %s; the sandbox has no network from here\n", strerror(-rc));
    run->log_failed = true; // run_drain_gate ends the gate
}

static void run_decision(struct run *run, const struct ipc_decision *record) {
    const struct policy *policies[] = {run->policy, run->previous};
    const struct policy *policy = NULL;
    for (size_t i = 0; i < ARRAY_LENGTH(policies); i++) {
        if (policies[i] && policy_facts(policies[i]).generation == record->generation) policy = policies[i];
    }
    run_log_result(run, decision_log_record(run->log, record, policy));
    if (run->options->learn) learn_record(run->options->learn, record);
}

static void run_decisions(struct run *run, const struct channel_message *message) {
    struct ipc_decision record;
    for (size_t at = 0; !run->log_failed && ipc_decision_next(message->body, message->length, &at, &record);)
        run_decision(run, &record);
}

void run_in_force(struct run *run, const struct ipc_active *report) {
    run->in_force = report->generation;
    if (run->in_force < policy_facts(run->policy).generation) return; // another one is on its way
    role_stop(&run->last_vault, 0);
    if (run->active) run->active(run, report);
}

// False: the policy that the gate has is not the one that is to be in force. Another gate gets that one, or the sandbox no
// network.
static bool run_is_active(struct run *run, const struct channel_message *message) {
    struct ipc_active active;
    if (message->type != IPC_GATE_ACTIVE) return true;
    memcpy(&active, message->body, sizeof(active));
    if (active.status < 0) {
        fprintf(stderr, "penstock: the gate cannot take the new policy: %s\n", strerror(-active.status));
        return false;
    }
    run_in_force(run, &active);
    return true;
}

// Reads what the gate has sent. False when it is gone, or has to go.
bool run_drain_gate(struct run *run) {
    struct channel_message message;
    bool refused = false;
    int rc;
    while ((rc = channel_receive(run->roles[ROLE_GATE].channel, run_buffer, sizeof(run_buffer), &message)) == 1) {
        run->heard++;
        if (message.type == IPC_DECISION) run_decisions(run, &message);
        if (message.type == IPC_ERROR) fprintf(stderr, "penstock: %s\n", ((const struct ipc_error *)message.body)->text);
        if (message.type == IPC_GATE_SPENT) run->bytes_out = ((const struct ipc_spent *)message.body)->bytes_out;
        if (message.type == IPC_GATE_COUNTERS && run->counted) run->counted(run, message.body);
        if (message.type == IPC_GATE_VAULT_LOST) run_rejoin_vault(run);
        refused |= !run_is_active(run, &message);
        channel_message_close(&message);
        if (run->log_failed) break;
    }
    run_log_result(run, decision_log_flush(run->log)); // many records, one write
    if (run->log_failed) {
        run_no_restarts(run);
        return false;
    }
    return rc == -EAGAIN && !refused;
}

void run_role_gone(struct run *run, enum role_kind kind) {
    for (size_t i = 0; i < ARRAY_LENGTH(run->role_events); i++) {
        if (run->role_events[i]) event_free(TAKE_POINTER(run->role_events[i]));
    }
    run_restart(run, kind);
    run_watch(run);
}

// A gate that logs without a pause is not listened to for a moment, so that not each turn of its loop wakes us.
static void run_gate_readable(evutil_socket_t fd, short what, void *data) {
    (void)fd;
    (void)what;
    static const struct timeval moment = {.tv_usec = RUN_BUSY_US};
    struct run *run = data;
    uint64_t heard = run->heard, now = clock_us();
    if (!run_drain_gate(run)) {
        run_role_gone(run, ROLE_GATE);
        return;
    }
    struct event *event = run->role_events[ROLE_GATE];
    if (!event) return;
    bool busy = run->heard > heard && now - run->heard_us < 2 * RUN_BUSY_US;
    if (run->heard > heard) run->heard_us = now;
    event_assign(event, run->base, busy ? -1 : run->roles[ROLE_GATE].channel, busy ? 0 : EV_READ, run_gate_readable, run);
    if (event_add(event, busy ? &moment : NULL) < 0) run_role_gone(run, ROLE_GATE); // nobody would hear it
}

static void run_keeper_readable(evutil_socket_t fd, short what, void *data) {
    (void)fd;
    (void)what;
    run_role_gone(data, ROLE_KEEPER); // it has nothing to say but its end
}

// What its operator should know (of a secret), or why it ends; that a resolver is ready. False: it is gone.
static bool run_hear_role(struct run *run, int fd) {
    struct channel_message message;
    int rc;
    while ((rc = channel_receive(fd, run_buffer, sizeof(run_buffer), &message)) == 1) {
        bool said = message.type == IPC_VAULT_NOTICE || message.type == IPC_ERROR;
        if (said) fprintf(stderr, "penstock: %s\n", ((const struct ipc_error *)message.body)->text);
        run->resolver_ready |= message.type == IPC_RESOLVER_READY;
        channel_message_close(&message);
    }
    return rc == -EAGAIN;
}

static void run_vault_readable(evutil_socket_t fd, short what, void *data) {
    (void)what;
    if (!run_hear_role(data, fd)) run_role_gone(data, ROLE_VAULT);
}

static void run_resolver_readable(evutil_socket_t fd, short what, void *data) {
    (void)what;
    if (!run_hear_role(data, fd)) run_role_gone(data, ROLE_RESOLVER);
}

static void run_question(evutil_socket_t fd, short what, void *data) {
    (void)fd, (void)what;
    struct run *run = data;
    struct error err = {0};
    event_free(TAKE_POINTER(run->question_event));
    if (run_start_late_resolver(run, &err) < 0) {
        fprintf(stderr, "penstock: %s\n", err.text);
        run_role_gone(run, ROLE_RESOLVER);
    }
    run_watch(run);
}

static void run_watch_questions(struct run *run) {
    struct timeval moment = {.tv_usec = RUN_RESOLVER_US};
    if (run->questions < 0 || run->question_event) return;
    run->question_event = event_new(run->base, run->questions, EV_READ, run_question, run);
    if (run->question_event) event_add(run->question_event, policy_facts(run->policy).has_names ? &moment : NULL);
}

void run_watch(struct run *run) {
    static const event_callback_fn handlers[] = {
        [ROLE_KEEPER] = run_keeper_readable, [ROLE_RESOLVER] = run_resolver_readable, [ROLE_GATE] = run_gate_readable,
        [ROLE_VAULT] = run_vault_readable,
    };
    // Without a gate there is nothing that the others could be restarted for.
    if (run->roles[ROLE_GATE].pid <= 0) return;
    for (size_t kind = 0; kind < ROLE_COUNT; kind++) {
        struct event **event = &run->role_events[kind];
        if (*event || run->roles[kind].pid <= 0) continue;
        short what = kind == ROLE_GATE ? EV_READ : EV_READ | EV_PERSIST;
        *event = event_new(run->base, run->roles[kind].channel, what, handlers[kind], run);
        if (*event) event_add(*event, NULL);
    }
    run_watch_questions(run);
}

// The host has other addresses now: the policy holds them as data, so it is compiled again.
static void run_host_changed(evutil_socket_t fd, short what, void *data) {
    (void)what;
    struct run *run = data;
    struct policy *policy = NULL;
    struct error err = {0};
    host_watch_drain(fd);
    int rc = run_compile(run, &policy, NULL, &err);
    if (rc == 0) {
        policy_free(run->previous);
        run->previous = run->policy;
        run->policy = policy;
        if (run->roles[ROLE_GATE].pid > 0) rc = run_send_policy(run, false, &err);
        if (role_has_ended(rc)) return; // the gate that is started in its place gets the new policy
    }
    if (rc < 0) {
        fprintf(stderr, "penstock: the host's addresses changed: %s; the sandbox has no network from here\n", err.text);
        if (run->role_events[ROLE_GATE]) event_free(TAKE_POINTER(run->role_events[ROLE_GATE])); // before its descriptor is another's
        role_stop(&run->roles[ROLE_GATE], 0);
    }
}

bool run_listen(struct run *run, int fd, event_callback_fn handler, void *data, struct event **event) {
    *event = event_new(run->base, fd, EV_READ | EV_PERSIST, handler, data);
    return *event && event_add(*event, NULL) == 0;
}

int run_watch_host(struct run *run, struct error *err) {
    run->host_watch = host_watch_new();
    if (run->host_watch >= 0 && run_listen(run, run->host_watch, run_host_changed, run, &run->host_event)) return 0;
    return error_set(err, -EIO, "watching the host's addresses: %s", strerror(errno));
}

// ---- what is open on the loopback ----

// The decision that opens a port of the host's loopback: for its name, or for one of its addresses.
static struct policy_decision run_loopback_decision(const struct policy *policy, struct policy_request *request,
                                                    struct addr *address) {
    static const struct addr one = {.family = ADDR_IPV6, .bytes = {[15] = 1}};
    const struct addr addresses[] = {addr_ipv4(0x7f000001), addr_ipv4(0x7f000001), one};
    struct policy_decision decision = {.verdict = POLICY_DENY};
    for (size_t i = 0; i < ARRAY_LENGTH(addresses) && decision.verdict == POLICY_DENY; i++) {
        *address = addresses[i];
        request->dialled = i == 0 ? "localhost" : NULL;
        request->address = address;
        decision = policy_decide(policy, request);
    }
    if (decision.verdict == POLICY_INSPECT) decision.verdict = POLICY_ALLOW; // what its bytes have to be is said by the rule
    return decision;
}

static void run_say_loopback(struct run *run) {
    uint16_t ports[IPC_PORTS_MAX];
    size_t count = policy_loopback_ports(run->policy, ports, IPC_PORTS_MAX);
    for (size_t i = 0; i < count; i++) {
        struct addr address;
        struct policy_request request = {.protocol = POLICY_TCP, .port = ports[i]};
        struct policy_decision decision = run_loopback_decision(run->policy, &request, &address);
        struct ipc_decision record = {.event = IPC_EVENT_DECISION, .protocol = POLICY_TCP, .verdict = (uint8_t)decision.verdict,
                                      .reason = (uint8_t)decision.reason, .port = ports[i], .rule = decision.rule,
                                      .address = address};
        if (request.dialled) snprintf(record.name, sizeof(record.name), "%s", request.dialled);
        decision_log_record(run->log, &record, run->policy);
        decision_log_flush(run->log);
        if (!run->options->quiet) {
            fprintf(stderr, "penstock: port %u of the sandbox's loopback leads to the host's loopback\n", ports[i]);
        }
    }
}

// ---- the start ----

static void run_prepare_fields(struct run *run) {
    if (run->prepared) return;
    run->prepared = true;
    run->user_namespace = run->net_namespace = run->host_watch = run->roots = run->questions = run->keeper = -1;
    for (int kind = 0; kind < ROLE_COUNT; kind++) run->roles[kind] = (struct role){.kind = kind, .pidfd = -1, .channel = -1};
    run->last_vault = (struct role){.kind = ROLE_VAULT, .pidfd = -1, .channel = -1};
    run->spec.identity = sandbox_identity();
}

// It makes its namespaces before there is a policy.
static int run_start_first(struct run *run, struct error *err) {
    const struct ipc_keeper_enter enter = {.uid = run->spec.identity.uid, .gid = run->spec.identity.gid};
    if (run->roles[ROLE_KEEPER].pid > 0) return 0; // started ahead
    int rc = run_start_role(run, ROLE_KEEPER, err);
    return rc < 0 ? rc : role_send(&run->roles[ROLE_KEEPER], IPC_KEEPER_ENTER, &enter, sizeof(enter), NULL, 0, err);
}

int run_start_ahead(struct run *run, struct error *err) {
    run_prepare_fields(run);
    int rc = run_start_first(run, err);
    return rc < 0 ? rc : run_start_role(run, ROLE_GATE, err);
}

void run_stop_ahead(struct run *run) {
    for (int kind = 0; kind < ROLE_COUNT; kind++) role_stop(&run->roles[kind], 0);
}

// By default libevent's clock moves every 4 ms: what is read after that is so much that others wait for it.
static struct event_base *run_clock_base(void) {
    struct event_config *config = event_config_new();
    if (!config) return NULL;
    event_config_set_flag(config, EVENT_BASE_FLAG_PRECISE_TIMER);
    struct event_base *base = event_base_new_with_config(config);
    event_config_free(config);
    return base;
}

int run_init(struct run *run, const struct daemon_run *options, const char *name, struct error *err) {
    run->options = options;
    run_prepare_fields(run);
    snprintf(run->name, sizeof(run->name), "%s", name);
    run->log = decision_log_new(options->log_fd, run->name);
    run->base = run_clock_base();
    if (!run->log || !run->base) return error_set(err, -ENOMEM, "out of memory");
    if (options->learn) decision_log_learn(run->log, options->learn);
    return 0;
}

int run_open(struct run *run, struct error *err) {
    int rc = run_start_first(run, err);
    if (rc == 0) rc = run_prepare(run, err);
    if (rc == 0) rc = run_read_roots(run, err);
    // From here on no secret is in our memory or our environment, nor in what is made of it.
    return rc < 0 ? rc : credentials_new(run->options->model, &run->credentials, err);
}

int run_begin(struct run *run, struct error *err) {
    run->probed = policy_facts(run->policy).has_names;
    if (run->probed) nameserver_probe_start(&run->servers, &run->probe); // answers while the rest starts
    return run_begin_roles(run, err);
}

int run_await(struct run *run, int rc, struct error *err) {
    if (rc == 0) rc = run_await_roles(run, err);
    if (run->probed) {
        int alive = nameserver_probe_finish(&run->probe, rc == 0 ? RUN_PROBE_MS : 0, rc == 0 ? err : NULL);
        if (rc == 0) rc = alive;
    }
    if (rc == 0) run_say_loopback(run);
    return rc;
}

// ---- the end ----

// The right to leave what is slow to close: one sandbox of all that this program runs has it at a time. -1: another has.
static int run_leave_lock(void) {
    AUTO_CLOSE int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    return fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0 ? TAKE_FD(fd) : -1;
}

static void run_end_keeper(struct run *run) {
    struct role *keeper = &run->roles[ROLE_KEEPER];
    AUTO_CLOSE int lock = run->gate_started ? run_leave_lock() : -1;
    if (!run->gate_started) role_kill(keeper); // it may still be at work
    else if (keeper->pid > 0) role_send(keeper, IPC_KEEPER_END, NULL, 0, &lock, lock >= 0, NULL);
}

static void run_end_roles(struct run *run) {
    struct role *gate = &run->roles[ROLE_GATE];
    role_kill(&run->roles[ROLE_RESOLVER]); // it has nothing to leave in order
    run_end_keeper(run);
    if (gate->pid > 0 && run->gate_started && !run->log_failed) {
        // The gate sees the end, closes its flows and sends their records, then closes.
        shutdown(gate->channel, SHUT_WR);
        uint64_t until = clock_us() + (uint64_t)RUN_STOP_MS * 1000;
        while (run_drain_gate(run) && clock_us() < until) {
            struct pollfd more = {.fd = gate->channel, .events = POLLIN};
            poll(&more, 1, 100);
        }
    }
    role_stop(&run->last_vault, 0);
    for (int kind = ROLE_COUNT - 1; kind >= 0; kind--)
        role_stop(&run->roles[kind], kind == ROLE_GATE || kind == ROLE_KEEPER ? RUN_STOP_MS : 0);
}

void run_close(struct run *run) {
    for (size_t i = 0; i < ARRAY_LENGTH(run->role_events); i++) {
        if (run->role_events[i]) event_free(TAKE_POINTER(run->role_events[i]));
    }
    if (run->host_event) event_free(run->host_event);
    if (run->question_event) event_free(run->question_event);
    run_end_roles(run);
    int fds[] = {run->user_namespace, run->net_namespace, run->host_watch, run->roots, run->questions, run->keeper};
    for (size_t i = 0; i < ARRAY_LENGTH(fds); i++) {
        if (fds[i] >= 0) close(fds[i]);
    }
}

void run_free(struct run *run) {
    run_clear_spec(run);
    credentials_free(run->credentials);
    decision_log_free(run->log);
    policy_free(run->policy);
    policy_free(run->previous);
    if (run->base) event_base_free(run->base);
}
