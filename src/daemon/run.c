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
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/random.h"
#include "daemon/decision_log.h"
#include "daemon/learn.h"
#include "daemon/run_state.h"

#define RUN_ERROR 125

// ---- while it runs ----

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
    if (run->signals < 0 || run->child < 0 ||
        !run_listen(run, run->signals, run_signalled, run, &run->signal_event) ||
        !run_listen(run, run->child, run_child_gone, run, &run->child_event) ||
        !run_listen(run, sandbox_process_fd(run->process), run_child_state, run, &run->state_event)) {
        return error_set(err, -EIO, "watching the command: %s", strerror(errno));
    }
    rc = run_watch_host(run, err);
    if (rc < 0) return rc;
    run_watch(run);
    event_base_dispatch(run->base);
    return 0;
}

// ---- before and after ----

// What env: secrets are is known by then.
int run_look_at_secrets(const struct policy_model *model, struct error *err) {
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < model->binding_count; i++)
        if (strncmp(policy_binding_secret(&model->bindings[i]), "env:", 4) != 0) rc = daemon_secret_look(&model->bindings[i], err);
    return rc;
}

static void run_finish(struct run *run) {
    struct event *events[] = {run->child_event, run->state_event, run->signal_event};
    for (size_t i = 0; i < ARRAY_LENGTH(events); i++) {
        if (events[i]) event_free(events[i]);
    }
    sandbox_process_free(run->process);
    run->process = NULL;
    run_close(run);
    if (run->signals >= 0) close(run->signals);
    if (run->child >= 0) close(run->child);
}

int run_conclude(const struct run *run, struct error *err) {
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
int run_failure(int prepared, const struct error *err) {
    fprintf(stderr, "penstock: %s\n", err->text);
    if (prepared == -ENOENT) return 127;
    return prepared == -EACCES ? 126 : RUN_ERROR;
}

int daemon_run(const struct daemon_run *options) {
    struct error err = {0};
    if (options->container) return run_container(options);
    AUTO_FREE char *cwd = getcwd(NULL, 0);
    signal(SIGPIPE, SIG_IGN); // a reader of the log or of standard error that goes away must not end the run
    struct run run = {.signals = -1, .child = -1, .status = RUN_ERROR};
    char name[64];
    snprintf(name, sizeof(name), "run-%08x", random_u32());
    run.spec = (struct sandbox_spec){.argv = options->argv, .environment = environ, .proxy = options->proxy, .cwd = cwd,
                                     .reads = options->reads, .read_count = options->read_count, .writes = options->writes,
                                     .write_count = options->write_count};
    int prepared = 0;
    int rc = run_init(&run, options, name, &err);
    if (rc == 0 && !cwd) rc = error_set(&err, -EIO, "working directory: %s; change to one that exists", strerror(errno));
    if (rc == 0) rc = run_open(&run, &err);
    if (rc == 0) rc = run_fill_spec(&run, &err);
    if (rc == 0) rc = run_begin(&run, &err);
    if (rc == 0) rc = prepared = sandbox_process_prepare(&run.spec, &run.process, &err);
    if (rc == 0) rc = run_look_at_secrets(options->model, &err); // of what the sandbox could choose that has been said
    if (rc == 0) rc = run_await_namespaces(&run, &err);
    sigset_t before;
    if (rc == 0) rc = run_begin_command(&run, &before, &err);
    if (rc == 0) rc = run_begin_gate(&run, &err); // on the other processor, while bubblewrap mounts
    rc = run_await(&run, rc, &err);
    if (rc == 0) rc = prepared = run_command(&run, &before, &err);
    run_finish(&run);
    if (rc == 0) rc = run_conclude(&run, &err);
    if (rc < 0) run.status = run_failure(prepared, &err);
    run_free(&run);
    return run.status;
}
