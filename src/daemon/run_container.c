// SPDX-License-Identifier: Apache-2.0
// `penstock run` with an image: what a shim is for a node, in the foreground and without a daemon. The order is that of run.c,
// with a container in the place of the process.
//
// The container's first process is ours, which reaps and does nothing else; the command is run beside it as `penstock exec`
// would. So signals mean to the command what they mean to any, its end is told by its own status, and the first process can be
// tied to our life: whatever ends us, SIGKILL too, ends the sandbox. Only files and empty groups are left then, for the next run
// to remove (run_place.c).
//
// Signals: until the image is there they end us at once, nothing is there yet; then they wait until the command runs, and are
// the command's; if they come before that, everything is removed first.
#include <errno.h>
#include <event2/event.h>
#include <linux/magic.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/random.h"
#include "daemon/run_state.h"
#include "daemon/terminal.h"

#define RUN_ERROR 125
#define SIGNALS_OF_THE_COMMAND SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGALRM

struct container_run {
    struct run run;
    struct run_place place;
    struct sandbox_image image;
    struct sandbox_container *container;
    struct terminal *terminal;
    char **environment; // of image and options, strings are theirs
    sigset_t before;
    pid_t pid;          // of the command; 0: none
};

// ---- signals ----

static void container_block(struct container_run *run, sigset_t *ret_set) {
    static const int numbers[] = {SIGNALS_OF_THE_COMMAND, SIGWINCH, SIGCONT};
    sigemptyset(ret_set);
    for (size_t i = 0; i < ARRAY_LENGTH(numbers); i++) sigaddset(ret_set, numbers[i]);
    sigprocmask(SIG_BLOCK, ret_set, &run->before);
}

// One that would end us has come before the command began.
static bool container_interrupted(const struct container_run *run) {
    static const int numbers[] = {SIGNALS_OF_THE_COMMAND};
    sigset_t pending;
    sigpending(&pending);
    for (size_t i = 0; i < ARRAY_LENGTH(numbers); i++)
        if (sigismember(&pending, numbers[i]) && !sigismember(&run->before, numbers[i])) return true;
    return false;
}

// The terminal's signals reach a process group; the command is in a group, and a session, of its own.
static void container_signalled(evutil_socket_t fd, short what, void *data) {
    (void)what;
    struct container_run *run = data;
    struct signalfd_siginfo info;
    while (read(fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        int number = (int)info.ssi_signo;
        bool adapts = number == SIGWINCH || number == SIGCONT;
        if (adapts && run->terminal) terminal_adapt(run->terminal);
        else if (!adapts) kill(info.ssi_code == SI_KERNEL ? -run->pid : run->pid, number);
    }
}

// ---- what is run ----

static void container_put(char **list, size_t *count, const char *entry) {
    size_t name = strcspn(entry, "="), i = 0;
    while (i < *count && strncmp(list[i], entry, name + 1) != 0) i++;
    list[i] = (char *)(uintptr_t)entry;
    if (i == *count) ++*count;
}

// "NAME": as the caller has it, if it has it. Secrets are not in our environment any more.
static const char *container_variable(const char *given) {
    size_t len = strlen(given);
    if (strchr(given, '=')) return given;
    for (char **entry = environ; *entry; entry++)
        if (strncmp(*entry, given, len) == 0 && (*entry)[len] == '=') return *entry;
    return NULL;
}

static int container_environment(struct container_run *run, struct error *err) {
    const struct daemon_container *options = run->run.options->container;
    const char *term = container_variable("TERM");
    size_t count = 0, size = options->environment_count + 2;
    while (run->image.environment[count]) count++;
    char **list = run->environment = NEW_ARRAY(char *, count + size);
    if (!list) return error_set(err, -ENOMEM, "out of memory");
    count = 0;
    if (run->terminal && term) container_put(list, &count, term);
    for (size_t i = 0; run->image.environment[i]; i++)
        if (strchr(run->image.environment[i], '=')) container_put(list, &count, run->image.environment[i]);
    for (size_t i = 0; i < options->environment_count; i++) {
        const char *entry = container_variable(options->environment[i]);
        if (entry) container_put(list, &count, entry);
    }
    return 0;
}

static int container_image(struct container_run *run, struct error *err) {
    const struct daemon_run *options = run->run.options;
    const struct policy_node *node = options->node;
    size_t count = node ? node->mirror_count : 0;
    AUTO_FREE struct sandbox_registry *mirrors = NEW_ARRAY(struct sandbox_registry, count + 1);
    AUTO_FREE char **names = NEW_ARRAY(char *, count + 1);
    if (!mirrors || !names) return error_set(err, -ENOMEM, "out of memory");
    for (size_t i = 0; i < count; i++) {
        names[i] = strndup(node->mirrors[i], strcspn(node->mirrors[i], "="));
        mirrors[i] = (struct sandbox_registry){.from = names[i] ? names[i] : "", .to = strchr(node->mirrors[i], '=') + 1};
    }
    const struct sandbox_image_place place = {
        .folder = run->place.images, .mirrors = mirrors, .mirror_count = count, .local = true,
        .plain_registries = node ? (const char *const *)node->plain_http : NULL, .plain_count = node ? node->plain_http_count : 0};
    int rc = sandbox_image_get(options->container->image, &place, &run->image, err);
    for (size_t i = 0; i < count; i++) free(names[i]);
    if (rc < 0 || options->argv || run->image.argv[0]) return rc;
    return error_set(err, -EINVAL, "image \"%s\" does not say what to run; name a command behind --", options->container->image);
}

static int container_create(struct container_run *run, struct error *err) {
    const struct daemon_container *options = run->run.options->container;
    const struct policy_node *node = run->run.options->node;
    const struct policy_node none = {0};
    if (!node) node = &none;
    struct sandbox_container_spec spec = {
        .id = run->run.name, .folder = run->place.folder, .layers = (const char *const *)&run->image.layer, .layer_count = 1,
        .tied = true, .environment = run->environment, .placeholders = run->run.placeholders, .proxy = run->run.options->proxy,
        .trust = run->run.spec.trust, .cwd = options->cwd ? options->cwd : run->image.cwd,
        .user = options->user ? options->user : run->image.user,
        .memory_bytes = options->memory_bytes ? options->memory_bytes : (uint64_t)node->memory_mb << 20,
        .cpu_millis = options->cpu_millis ? options->cpu_millis : node->cpu_count * 1000,
        .pids_max = options->pids ? options->pids : node->pids, .stdio = {-1, -1, -1},
    };
    return sandbox_container_create(&spec, run->run.user_namespace, run->run.net_namespace, &run->container, err);
}

// ---- while it runs ----

static void container_gone(evutil_socket_t fd, short what, void *data) {
    (void)fd, (void)what;
    struct container_run *run = data;
    int status = 0;
    if (waitpid(run->pid, &status, WNOHANG) <= 0) return;
    run->run.status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    event_base_loopbreak(run->run.base);
}

// A pipe of root's is between root's programs, which open what they like; and a terminal that we have made is the command's.
static unsigned container_own(const int streams[3]) {
    unsigned own = 0;
    for (int i = 0; i < 3; i++) {
        struct statfs files;
        struct stat status;
        bool pipe = fstatfs(streams[i], &files) == 0 && files.f_type == PIPEFS_MAGIC && fstat(streams[i], &status) == 0 &&
                    status.st_uid == 0;
        if (pipe || streams[i] > STDERR_FILENO) own |= 1U << i;
    }
    return own;
}

static int container_command(struct container_run *run, const int streams[3], struct error *err) {
    const struct daemon_run *options = run->run.options;
    const struct sandbox_exec exec = {.argv = options->argv ? options->argv : run->image.argv,
                                      .stdio = {streams[0], streams[1], streams[2]}, .own = container_own(streams)};
    return sandbox_container_exec(run->container, &exec, &run->pid, err);
}

static int container_watch(struct container_run *all, const sigset_t *signals, struct error *err) {
    struct run *run = &all->run;
    run->signals = signalfd(-1, signals, SFD_CLOEXEC | SFD_NONBLOCK);
    run->child = (int)syscall(SYS_pidfd_open, all->pid, 0);
    if (run->signals < 0 || run->child < 0 ||
        !run_listen(run, run->signals, container_signalled, all, &run->signal_event) ||
        !run_listen(run, run->child, container_gone, all, &run->child_event))
        return error_set(err, -EIO, "watching the command: %s", strerror(errno));
    int rc = run_watch_host(run, err);
    if (rc < 0) return rc;
    if (all->terminal) terminal_begin(all->terminal);
    run_watch(run);
    event_base_dispatch(run->base);
    return 0;
}

// ---- from start to end ----

// Until here nothing is there that a signal could leave behind.
static int container_prepare(struct container_run *all, struct error *err) {
    struct run *run = &all->run;
    const struct policy_model *model = run->options->model;
    int rc = run_open(run, err);
    if (rc == 0) rc = credentials_part(run->credentials, model, NULL, err);
    if (rc == 0) rc = run_fill_placeholders(run, err);
    if (rc == 0) rc = run_look_at_secrets(model, err);
    if (rc == 0) rc = run_place_open(&all->place, err);
    return rc < 0 ? rc : container_image(all, err);
}

// prepared: what the command itself failed with, if it did.
static int container_start(struct container_run *all, const sigset_t *signals, int *ret_prepared, struct error *err) {
    struct run *run = &all->run;
    int streams[3];
    int rc = run_place_take(&all->place, run->name, err);
    if (rc == 0) rc = terminal_open(run->base, streams, &all->terminal, err);
    if (rc == 0) rc = container_environment(all, err);
    if (rc == 0) rc = run_begin(run, err);
    if (rc == 0) rc = run_begin_gate(run, err);
    if (rc == 0) rc = run_await_namespaces(run, err);
    if (rc == 0) rc = container_create(all, err);
    rc = run_await(run, rc, err);
    if (rc == 0) rc = sandbox_container_start(all->container, err);
    if (rc == 0 && container_interrupted(all)) rc = error_set(err, -EINTR, "interrupted before the command began");
    if (rc == 0) rc = *ret_prepared = container_command(all, streams, err);
    return rc < 0 ? rc : container_watch(all, signals, err);
}

static void container_finish(struct container_run *all) {
    struct run *run = &all->run;
    struct event *events[] = {run->child_event, run->signal_event};
    for (size_t i = 0; i < ARRAY_LENGTH(events); i++)
        if (events[i]) event_free(events[i]);
    sandbox_container_free(all->container);
    terminal_close(all->terminal);
    run_close(run);
    if (run->signals >= 0) close(run->signals);
    if (run->child >= 0) close(run->child);
    run_place_close(&all->place);
    sandbox_image_done(&all->image);
    free(all->environment);
}

int run_container(const struct daemon_run *options) {
    struct error err = {0};
    struct container_run all = {.run = {.signals = -1, .child = -1, .status = RUN_ERROR}, .place = {.lock = -1}};
    char name[64];
    sigset_t signals;
    int prepared = 0;
    signal(SIGPIPE, SIG_IGN);
    prctl(PR_SET_CHILD_SUBREAPER, 1); // what crun starts becomes ours
    snprintf(name, sizeof(name), "run-%08x", random_u32());
    int rc = geteuid() == 0 ? 0 : error_set(&err, -EPERM, "%s needs root: cgroups, ranges of users, and files that belong to several "
                                            "users; use sudo, or --type process, which needs neither root nor an image",
                                            policy_type_info(options->model->type)->display);
    if (rc < 0) return run_failure(prepared, &err);
    rc = run_init(&all.run, options, name, &err);
    if (rc == 0) rc = container_prepare(&all, &err);
    container_block(&all, &signals);
    if (rc == 0) rc = container_start(&all, &signals, &prepared, &err);
    container_finish(&all);
    if (rc == 0) rc = run_conclude(&all.run, &err);
    if (rc < 0) all.run.status = run_failure(prepared, &err);
    run_free(&all.run);
    sigprocmask(SIG_SETMASK, &all.before, NULL); // one that has waited ends us here
    return all.run.status;
}
