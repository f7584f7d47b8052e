// SPDX-License-Identifier: Apache-2.0
// One sandbox without a daemon: `penstock run`.
//
// Start: compile the policy, check everything that can be checked, start keeper and gate, and bubblewrap as soon as there are
// namespaces for it; wait until the gate is isolated and the policy in force, and only then release the command. All of
// these get ready beside each other. Any failure before that ends everything: nothing is left, nothing ran.
// The resolver is started for the first question, or a moment after the command if the policy has names: questions wait in
// its channel meanwhile.
// While it runs: the decision log is written; a gate or resolver that died is started again (the keeper makes the
// sandbox's kernel refuse connections meanwhile); a change of the host's addresses becomes a new generation of the
// policy; signals sent to us go to the command (those of the terminal reach it by themselves).
// End: the command's status; the gate ends its flows and reports them; the summary.
#include <errno.h>
#include <event2/event.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/random.h"
#include "daemon/decision_log.h"
#include "daemon/learn.h"
#include "daemon/nameserver.h"
#include "daemon/run_state.h"

#define RUN_STOP_MS 2000
#define RUN_PROBE_MS 3000     // for the first sign of life of a DNS server
#define RUN_RESOLVER_US 100000 // after the command, where names are likely to be asked for
#define RUN_ERROR 125

// ---- policy ----

static int run_compile(struct run *run, struct policy **ret_policy, struct policy_warnings *warnings, struct error *err) {
    AUTO_FREE struct addr *own = NULL;
    size_t own_count = 0;
    int rc = host_addresses(&own, &own_count, err);
    if (rc < 0) return rc;
    return policy_compile(run->options->model, run->options->node, own, own_count, ++run->generation, ret_policy,
                          warnings, err);
}

// ---- while it runs ----

static _Alignas(max_align_t) uint8_t run_buffer[CHANNEL_BUFFER_SIZE];

static void run_watch(struct run *run);

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

// The policy that the gate has is not the one that is to be in force: another gate gets that one, or the sandbox no network.
static bool run_is_refusal(const struct channel_message *message) {
    struct ipc_active active;
    if (message->type != IPC_GATE_ACTIVE) return false;
    memcpy(&active, message->body, sizeof(active));
    if (active.status < 0) fprintf(stderr, "penstock: the gate cannot take the new policy: %s\n", strerror(-active.status));
    return active.status < 0;
}

// Reads what the gate has sent. False when it is gone, or has to go.
static bool run_drain_gate(struct run *run) {
    struct channel_message message;
    bool refused = false;
    int rc;
    while ((rc = channel_receive(run->roles[ROLE_GATE].channel, run_buffer, sizeof(run_buffer), &message)) == 1) {
        if (message.type == IPC_DECISION) run_decisions(run, &message);
        if (message.type == IPC_GATE_SPENT) run->bytes_out = ((const struct ipc_spent *)message.body)->bytes_out;
        if (message.type == IPC_ERROR) fprintf(stderr, "penstock: %s\n", ((const struct ipc_error *)message.body)->text);
        if (message.type == IPC_GATE_VAULT_LOST) run_rejoin_vault(run);
        refused |= run_is_refusal(&message);
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

static void run_watch(struct run *run);

static void run_role_gone(struct run *run, enum role_kind kind) {
    for (size_t i = 0; i < ARRAY_LENGTH(run->role_events); i++) {
        if (run->role_events[i]) event_free(TAKE_POINTER(run->role_events[i]));
    }
    run_restart(run, kind);
    run_watch(run);
}

static void run_gate_readable(evutil_socket_t fd, short what, void *data) {
    (void)fd;
    (void)what;
    if (!run_drain_gate(data)) run_role_gone(data, ROLE_GATE);
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

static void run_watch(struct run *run) {
    static const event_callback_fn handlers[] = {
        [ROLE_KEEPER] = run_keeper_readable, [ROLE_RESOLVER] = run_resolver_readable, [ROLE_GATE] = run_gate_readable,
        [ROLE_VAULT] = run_vault_readable,
    };
    // Without a gate there is nothing that the others could be restarted for.
    if (run->roles[ROLE_GATE].pid <= 0) return;
    for (size_t kind = 0; kind < ROLE_COUNT; kind++) {
        struct event **event = &run->role_events[kind];
        if (*event || run->roles[kind].pid <= 0) continue;
        *event = event_new(run->base, run->roles[kind].channel, EV_READ | EV_PERSIST, handlers[kind], run);
        if (*event) event_add(*event, NULL);
    }
    run_watch_questions(run);
}

// The host has other addresses now: the policy holds them as data, so it is compiled again.
static void run_host_changed(evutil_socket_t fd, short what, void *data) {
    (void)what;
    struct run *run = data;
    struct policy_warnings warnings = {0};
    struct policy *policy = NULL;
    struct error err = {0};
    host_watch_drain(fd);
    int rc = run_compile(run, &policy, &warnings, &err);
    policy_warnings_done(&warnings);
    if (rc == 0) {
        policy_free(run->previous);
        run->previous = run->policy;
        run->policy = policy;
        if (run->roles[ROLE_GATE].pid > 0) rc = run_send_policy(run, &err);
        if (role_has_ended(rc)) return; // the gate that is started in its place gets the new policy
    }
    if (rc < 0) {
        fprintf(stderr, "penstock: the host's addresses changed: %s; the sandbox has no network from here\n", err.text);
        if (run->role_events[ROLE_GATE]) event_free(TAKE_POINTER(run->role_events[ROLE_GATE])); // before its descriptor is another's
        role_stop(&run->roles[ROLE_GATE], 0);
    }
}

// A signal that somebody sent to us is meant for the command; the terminal's own reach its whole process group.
static void run_signalled(evutil_socket_t fd, short what, void *data) {
    (void)what;
    struct run *run = data;
    struct signalfd_siginfo info;
    while (read(fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        // A hangup reaches only the leader of the terminal's session, which may be us.
        bool mine = info.ssi_code != SI_KERNEL || info.ssi_signo == SIGHUP;
        if (mine) sandbox_process_signal(run->process, (int)info.ssi_signo);
    }
}

// The command stopped (job control inside the sandbox): our own caller sees the same of us. What the gate has to say is
// written first; while we are stopped its log fills up and it takes no new work.
static void run_child_state(evutil_socket_t fd, short what, void *data) {
    (void)fd;
    (void)what;
    struct run *run = data;
    int state = sandbox_process_observe(run->process);
    if (state == 0) event_del(run->state_event);
    if (state != 2) return;
    if (run->roles[ROLE_GATE].pid > 0 && !run_drain_gate(run)) run_role_gone(run, ROLE_GATE);
    raise(SIGSTOP);
    sandbox_process_resume(run->process);
}

static void run_child_gone(evutil_socket_t fd, short what, void *data) {
    (void)fd;
    (void)what;
    struct run *run = data;
    int status = 0;
    if (waitpid(sandbox_process_pid(run->process), &status, WNOHANG) <= 0) return;
    run->status = sandbox_process_status(run->process, status);
    event_base_loopbreak(run->base);
}

static bool run_listen(struct run *run, int fd, event_callback_fn handler, struct event **event) {
    *event = event_new(run->base, fd, EV_READ | EV_PERSIST, handler, run);
    return *event && event_add(*event, NULL) == 0;
}

// Blocks the signals that the command gets before it starts: one in between would kill us, and so the command.
static int run_begin_command(struct run *run, sigset_t *ret_before, struct error *err) {
    static const int forwarded[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGALRM, SIGCONT, SIGWINCH};
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < ARRAY_LENGTH(forwarded); i++) sigaddset(&set, forwarded[i]);
    sigprocmask(SIG_BLOCK, &set, ret_before);
    run->spec.signal_mask = ret_before;
    run->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    int rc = sandbox_process_begin(run->process, run->user_namespace, run->net_namespace, err);
    run->spec.signal_mask = NULL;
    return rc;
}

static int run_command(struct run *run, const sigset_t *before, struct error *err) {
    sigset_t blocked;
    // What came until now was meant for us: it ends us, and the command has not begun.
    sigprocmask(SIG_SETMASK, before, &blocked);
    sigprocmask(SIG_SETMASK, &blocked, NULL);
    int rc = sandbox_process_release(run->process, err);
    if (rc < 0) return rc;
    run->child = (int)syscall(SYS_pidfd_open, sandbox_process_pid(run->process), 0);
    run->host_watch = host_watch_new();
    if (run->signals < 0 || run->child < 0 || run->host_watch < 0 ||
        !run_listen(run, run->signals, run_signalled, &run->signal_event) ||
        !run_listen(run, run->child, run_child_gone, &run->child_event) ||
        !run_listen(run, sandbox_process_fd(run->process), run_child_state, &run->state_event) ||
        !run_listen(run, run->host_watch, run_host_changed, &run->host_event)) {
        return error_set(err, -EIO, "watching the command: %s", strerror(errno));
    }
    run_watch(run);
    event_base_dispatch(run->base);
    return 0;
}

// ---- before and after ----

static void run_print_warnings(const struct policy_warnings *warnings) {
    for (size_t i = 0; i < warnings->count; i++) fprintf(stderr, "penstock: warning: %s\n", warnings->lines[i]);
}

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

static int run_prepare(struct run *run, struct error *err) {
    struct policy_warnings warnings = {0};
    const struct daemon_run *options = run->options;
    int rc = run_compile(run, &run->policy, &warnings, err);
    if (rc == 0 && !options->quiet) run_print_warnings(&warnings);
    policy_warnings_done(&warnings);
    if (rc < 0) return rc;
    size_t configured = options->dns_server_count == 0 && options->node ? options->node->dns_server_count : 0;
    const char *const *texts = configured ? (const char *const *)options->node->dns_servers : options->dns_servers;
    rc = nameserver_collect(texts, configured ? configured : options->dns_server_count, &run->servers, err);
    if (rc < 0) return rc;
    if (run->servers.count == 0 && policy_facts(run->policy).has_names) {
        return error_set(err, -ENOENT, "DNS server: /etc/resolv.conf names none and the policy allows host names; give one "
                                       "with --dns ADDR");
    }
    return 0;
}

// What env: secrets are is known by then.
static int run_look_at_secrets(const struct policy_model *model, struct error *err) {
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < model->binding_count; i++)
        if (strncmp(policy_binding_secret(&model->bindings[i]), "env:", 4) != 0) rc = daemon_secret_look(&model->bindings[i], err);
    return rc;
}

static void run_finish(struct run *run) {
    struct event *events[] = {run->child_event, run->state_event, run->signal_event, run->host_event, run->question_event};
    for (size_t i = 0; i < ARRAY_LENGTH(events); i++) {
        if (events[i]) event_free(events[i]);
    }
    for (size_t i = 0; i < ARRAY_LENGTH(run->role_events); i++) {
        if (run->role_events[i]) event_free(run->role_events[i]);
    }
    sandbox_process_free(run->process);
    run->process = NULL;
    struct role *gate = &run->roles[ROLE_GATE];
    role_kill(&run->roles[ROLE_RESOLVER]); // it has nothing to leave in order
    if (gate->pid > 0 && run->gate_started && !run->log_failed) {
        // The gate sees the end, closes its flows and sends their records, then closes.
        shutdown(gate->channel, SHUT_WR);
        uint64_t until = clock_us() + (uint64_t)RUN_STOP_MS * 1000;
        while (run_drain_gate(run) && clock_us() < until) {
            struct pollfd more = {.fd = gate->channel, .events = POLLIN};
            poll(&more, 1, 100);
        }
    }
    role_kill(&run->roles[ROLE_KEEPER]); // nothing of the sandbox runs any more; all of them end beside each other
    for (int kind = ROLE_COUNT - 1; kind >= 0; kind--) role_stop(&run->roles[kind], kind == ROLE_GATE ? RUN_STOP_MS : 0);
    int fds[] = {run->user_namespace, run->net_namespace, run->signals, run->host_watch, run->child, run->roots, run->questions};
    for (size_t i = 0; i < ARRAY_LENGTH(fds); i++) {
        if (fds[i] >= 0) close(fds[i]);
    }
}

static void run_free(struct run *run) {
    run_clear_spec(run);
    credentials_free(run->credentials);
    decision_log_free(run->log);
    policy_free(run->policy);
    policy_free(run->previous);
    if (run->base) event_base_free(run->base);
}

// The command has ended: its policy, and what there is to say.
static int run_conclude(const struct run *run, struct error *err) {
    const struct daemon_run *options = run->options;
    int rc = options->learn ? learn_write(options->learn, err) : 0;
    if (options->quiet) return rc;
    if (options->learn && rc == 0) learn_summary(options->learn);
    bool native = options->policy_file && options->model->dialect == POLICY_DIALECT_NATIVE;
    const char *file = native && strcmp(options->policy_file, "-") == 0 ? "the policy" : options->policy_file;
    if (decision_log_summary(run->log, native ? file : NULL) && options->policy_file && !native) {
        fprintf(stderr, "penstock: these options cannot stand beside --policy; write the same as entries of \"%s\"\n",
                options->policy_file);
    }
    return rc;
}

// Exit status of a failure before the command ran (semantics section 12).
static int run_failure(int prepared, const struct error *err) {
    fprintf(stderr, "penstock: %s\n", err->text);
    if (prepared == -ENOENT) return 127;
    return prepared == -EACCES ? 126 : RUN_ERROR;
}

int daemon_run(const struct daemon_run *options) {
    struct error err = {0};
    AUTO_FREE char *cwd = getcwd(NULL, 0);
    signal(SIGPIPE, SIG_IGN); // a reader of the log or of standard error that goes away must not end the run
    struct run run = {.options = options, .user_namespace = -1, .net_namespace = -1, .signals = -1, .host_watch = -1,
                      .child = -1, .roots = -1, .questions = -1, .status = RUN_ERROR};
    for (int kind = 0; kind < ROLE_COUNT; kind++) run.roles[kind] = (struct role){.kind = kind, .pidfd = -1, .channel = -1};
    run.spec = (struct sandbox_spec){.argv = options->argv, .environment = environ, .proxy = options->proxy, .cwd = cwd,
                                     .reads = options->reads, .read_count = options->read_count, .writes = options->writes,
                                     .write_count = options->write_count, .identity = sandbox_identity()};
    snprintf(run.name, sizeof(run.name), "run-%08x", random_u32());
    run.log = decision_log_new(options->log_fd, run.name);
    if (run.log && options->learn) decision_log_learn(run.log, options->learn);
    run.base = event_base_new();
    int rc = run.log && run.base ? 0 : error_set(&err, -ENOMEM, "out of memory");
    if (rc == 0 && !cwd) rc = error_set(&err, -EIO, "working directory: %s; change to one that exists", strerror(errno));
    if (rc == 0) rc = run_start_role(&run, ROLE_KEEPER, &err); // first, so that it is there when it is told what to do
    int prepared = 0;
    if (rc == 0) rc = run_prepare(&run, &err);
    if (rc == 0) rc = run_read_roots(&run, &err);
    // From here on no secret is in our memory or our environment, nor in what is made of it.
    if (rc == 0) rc = credentials_new(options->model, &run.credentials, &err);
    if (rc == 0) rc = run_fill_spec(&run, &err);
    struct nameserver_probe probe = {0};
    bool probed = rc == 0 && policy_facts(run.policy).has_names;
    if (probed) nameserver_probe_start(&run.servers, &probe); // answers while the rest starts
    if (rc == 0) rc = run_begin_roles(&run, &err);
    if (rc == 0) rc = prepared = sandbox_process_prepare(&run.spec, &run.process, &err);
    if (rc == 0) rc = run_look_at_secrets(options->model, &err); // of what the sandbox could choose that has been said
    if (rc == 0) rc = run_await_namespaces(&run, &err);
    sigset_t before;
    if (rc == 0) rc = run_begin_command(&run, &before, &err);
    if (rc == 0) rc = run_await_roles(&run, &err);
    if (probed) {
        int alive = nameserver_probe_finish(&probe, rc == 0 ? RUN_PROBE_MS : 0, rc == 0 ? &err : NULL);
        if (rc == 0) rc = alive;
    }
    if (rc == 0) run_say_loopback(&run);
    if (rc == 0) rc = prepared = run_command(&run, &before, &err);
    run_finish(&run);
    if (rc == 0) rc = run_conclude(&run, &err);
    if (rc < 0) run.status = run_failure(prepared, &err);
    run_free(&run);
    return run.status;
}
