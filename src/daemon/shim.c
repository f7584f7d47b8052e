// SPDX-License-Identifier: Apache-2.0
// One sandbox of a node. The start is that of `penstock run` with a container in the place of the command, and may block; then
// an event loop that keeps the sandbox's network (run_watch.c) and does what the daemon's connections ask for. The end is that
// of the container's first process, a call, or SIGTERM.
//
// An update: the new policy is compiled beside the old one, which stays in force when that fails. Then it is this process's
// policy, so that a gate that dies from here on comes back with the new one; the gate is told, and answers when it is in force
// everywhere. One that does not answer is started again, which closes every connection. Where credentials are bound another
// vault is started for the new rules, and the old one ends when the gate has the policy.
#include "daemon/shim.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"
#include "daemon/decision_log.h"
#include "daemon/shim_state.h"

#define SHIM_CHANNEL 3

// ---- files ----

int shim_read_fd(int fd, char **ret_text, struct error *err) {
    struct stat status;
    if (fstat(fd, &status) < 0 || status.st_size > SHIM_TEXT_MAX)
        return error_set(err, -EFBIG, "more than %d bytes were given; make it smaller", SHIM_TEXT_MAX);
    AUTO_FREE char *text = NEW_ARRAY(char, (size_t)status.st_size + 1);
    if (!text) return error_set(err, -ENOMEM, "out of memory");
    ssize_t got = pread(fd, text, (size_t)status.st_size, 0);
    if (got != status.st_size) return error_set(err, -EIO, "what was given cannot be read");
    *ret_text = TAKE_POINTER(text);
    return 0;
}

static int shim_read_spec(struct shim *shim, struct error *err) {
    AUTO_CLOSE int fd = open(SHIM_SPEC, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    AUTO_FREE char *text = NULL;
    if (fd < 0) return error_set(err, -errno, "%s: %s", SHIM_SPEC, strerror(errno));
    int rc = shim_read_fd(fd, &text, err);
    if (rc == 0) rc = shim_spec_read(text, &shim->spec, err);
    if (text) explicit_bzero(text, strlen(text));
    unlink(SHIM_SPEC); // nobody needs it any more, and a policy may hold credentials
    return rc;
}

// ---- the container ----

// What the image says, unless the specification does; kept for the daemon, which makes templates of it.
static int shim_use_image(struct shim *shim, const struct sandbox_image *image, struct error *err) {
    json_t *environment = json_object(), *argv = json_array(), *layers = json_array();
    for (char *const *entry = image->environment; entry && *entry; entry++) {
        const char *equals = strchr(*entry, '=');
        AUTO_FREE char *name = equals ? strndup(*entry, (size_t)(equals - *entry)) : NULL;
        if (name) json_object_set_new(environment, name, json_string(equals + 1));
    }
    for (char *const *word = image->argv; word && *word; word++) json_array_append_new(argv, json_string(*word));
    json_array_append_new(layers, json_string(image->layer));
    json_t *all = json_pack("{s:o,s:{s:o,s:o,s:s,s:s,s:s}}", "layers", layers, "config", "env", environment, "argv", argv, "cwd",
                            image->cwd ? image->cwd : "/", "user", image->user ? image->user : "", "digest", image->digest);
    int rc = all && json_dump_file(all, SHIM_IMAGE, JSON_COMPACT) == 0 ? 0 : error_set(err, -EIO, "%s: cannot be written", SHIM_IMAGE);
    if (rc == 0) {
        json_t *spec_environment = json_object_get(shim->spec.json, "env");
        json_t *merged = json_copy(environment); // the specification's last
        json_object_update(merged, spec_environment);
        json_object_set_new(shim->spec.json, "env", merged);
        json_object_set(shim->spec.json, "layers", layers);
        free(shim->spec.environment);
        free(shim->spec.layers);
        shim->spec.environment = shim_environment(merged);
        shim->spec.layers = (const char **)shim_strings(layers);
        shim->spec.layer_count = 1;
        if (!shim->spec.cwd) json_object_set_new(shim->spec.json, "cwd", json_string(image->cwd ? image->cwd : "/"));
        if (!shim->spec.user) json_object_set_new(shim->spec.json, "user", json_string(image->user ? image->user : ""));
        shim->spec.cwd = json_string_value(json_object_get(shim->spec.json, "cwd"));
        shim->spec.user = json_string_value(json_object_get(shim->spec.json, "user"));
        if (!shim->spec.environment || !shim->spec.layers) rc = error_set(err, -ENOMEM, "out of memory");
    }
    json_decref(all);
    return rc;
}

static int shim_get_image(struct shim *shim, struct error *err) {
    struct sandbox_image image = {0};
    if (!shim->spec.image) return 0;
    int rc = sandbox_image_get(shim->spec.image, &shim->spec.place, &image, err);
    if (rc == -ENOENT || rc == -EACCES || rc == -EBADMSG || rc == -EINVAL) shim->failure = -EINVAL; // its user's to mend
    if (rc == -EAGAIN) shim->failure = rc;
    if (rc == 0) rc = shim_use_image(shim, &image, err);
    sandbox_image_done(&image);
    return rc;
}

static int shim_create(struct shim *shim, const char *folder, struct error *err) {
    const struct shim_spec *spec = &shim->spec;
    struct sandbox_container_spec container = {
        .id = spec->id, .folder = folder, .layers = spec->layers, .layer_count = spec->layer_count, .argv = spec->argv,
        .environment = spec->environment, .placeholders = shim->run.placeholders, .trust = shim->run.spec.trust,
        .cwd = spec->cwd, .user = spec->user, .hostname = spec->id, .memory_bytes = spec->memory_bytes,
        .cpu_millis = spec->cpu_millis, .pids_max = spec->pids_max, .stdio = {-1, -1, -1}, .early = true,
    };
    return sandbox_container_create(&container, shim->run.user_namespace, shim->run.net_namespace, &shim->container, err);
}

// ---- start and end ----

static int shim_open_log(struct shim *shim, struct error *err) {
    shim->log = open(SHIM_LOG, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
    return shim->log < 0 ? error_set(err, -errno, "%s: %s", SHIM_LOG, strerror(errno)) : 0;
}

static int shim_start(struct shim *shim, const char *folder, struct error *err) {
    struct run *run = &shim->run;
    int rc = shim_read_spec(shim, err);
    if (rc == 0) rc = shim_get_image(shim, err);
    if (rc == 0) rc = shim_open_log(shim, err);
    if (rc < 0) return rc;
    shim->options = (struct daemon_run){.model = shim->spec.policy.model, .node = &shim->spec.policy.node, .quiet = true,
                                        .servers = &shim->spec.policy.servers,
                                        .log_fd = shim->log, .upstream_ca = shim->spec.upstream_ca};
    rc = run_init(run, &shim->options, shim->spec.id, err);
    if (rc == 0 && (rc = decision_log_bound(run->log, SHIM_LOG, SHIM_LOG_MAX)) < 0)
        error_set(err, rc, "%s: %s", SHIM_LOG, strerror(-rc));
    if (rc == 0) rc = run_open(run, err);
    if (rc == 0) rc = run_fill_placeholders(run, err);
    if (rc == 0) rc = run_begin(run, err);
    if (rc == 0) rc = run_begin_gate(run, err);
    if (rc == 0) rc = run_await_namespaces(run, err);
    shim->trusted = run->spec.trust != NULL;
    if (rc == 0) rc = shim_create(shim, folder, err);
    rc = run_await(run, rc, err);
    return rc < 0 ? rc : sandbox_container_start(shim->container, err);
}

static void shim_ended(evutil_socket_t fd, short what, void *data) {
    (void)fd, (void)what;
    struct shim *shim = data;
    event_base_loopbreak(shim->run.base);
}

static void shim_settled(evutil_socket_t fd, short what, void *data) {
    (void)what;
    struct shim *shim = data;
    struct error err = {0};
    event_free(TAKE_POINTER(shim->crun_event));
    close(fd);
    if (sandbox_container_settle(shim->container, &err) < 0)
        fprintf(stderr, "penstock: sandbox %s: it runs, though crun, which made it, failed in the end: %s\n", shim->spec.id, err.text);
}

static int shim_watch(struct shim *shim, struct error *err) {
    struct run *run = &shim->run;
    shim->end_fd = (int)syscall(SYS_pidfd_open, sandbox_container_pid(shim->container), 0);
    shim->term_event = evsignal_new(run->base, SIGTERM, shim_ended, shim);
    if (shim->end_fd < 0 || !shim->term_event || event_add(shim->term_event, NULL) < 0 ||
        !run_listen(run, shim->end_fd, shim_ended, shim, &shim->end_event))
        return error_set(err, -EIO, "watching the container: %s", strerror(errno));
    int crun = sandbox_container_crun(shim->container);
    if (crun >= 0 && !run_listen(run, crun, shim_settled, shim, &shim->crun_event))
        return error_set(err, -ENOMEM, "watching crun: %s", strerror(errno));
    int rc = run_watch_host(run, err);
    if (rc == 0) rc = shim_listen(shim, err);
    if (rc == 0) run_watch(run);
    return rc;
}

static void shim_end(struct shim *shim) {
    struct event *events[] = {shim->end_event, shim->term_event, shim->crun_event};
    if (shim->crun_event) close(event_get_fd(shim->crun_event));
    for (size_t i = 0; i < ARRAY_LENGTH(events); i++)
        if (events[i]) event_free(events[i]);
    sandbox_container_free(shim->container);
    shim_forget_commands(shim);
    if (shim->run.options) run_close(&shim->run); // the gate's last counters go to the daemon
    else if (shim->run.prepared) run_stop_ahead(&shim->run);
    shim_hang_up(shim);
    if (shim->run.options) run_free(&shim->run);
    if (shim->end_fd >= 0) close(shim->end_fd);
    if (shim->log >= 0) close(shim->log);
    shim_spec_done(&shim->spec);
}

// Why there is no sandbox: the answer to a call that nobody has made.
static void shim_say(int fd, int status, const struct error *err) {
    struct ipc_shim_done message = {.status = status};
    snprintf(message.text, sizeof(message.text), "%s", err->text);
    channel_send(fd, IPC_SHIM_DONE, &message, sizeof(message), NULL, 0);
}

// To all daemons that listen, when nobody asked for the end: the message that a start would fail with.
static void shim_say_end(const struct shim *shim) {
    struct error why = {0};
    siginfo_t info = {0};
    if (waitid(P_PIDFD, (id_t)shim->end_fd, &info, WEXITED | WNOHANG | WNOWAIT) < 0 || info.si_pid == 0) return;
    bool made = sandbox_container_settle(shim->container, &why) == 0; // if crun failed in the end, that is why
    if (made && info.si_code == CLD_EXITED) error_set(&why, 0, "its first process exited with status %d", info.si_status);
    else if (made) error_set(&why, 0, "its first process was ended by signal %d (%s)", info.si_status, strsignal(info.si_status));
    LIST_FOREACH(&shim->peers, node) shim_say(LIST_ENTRY(node, struct shim_peer, list)->fd, 0, &why);
}

// As long as we live nobody clears our folder (sandbox_container_clean waits for the lock), so that whoever has done so knows
// that our roles are gone too.
static int shim_lock(struct error *err) {
    int fd = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) == 0) return 0;
    return error_set(err, -EBUSY, "the sandbox's folder is being removed: %s", strerror(errno));
}

// The kernel ends us when the daemon ends, from here on: whether it is still there is asked after that. Until we are up: what is
// half made is nobody's.
static bool shim_tie(void) {
    struct pollfd daemon = {.fd = SHIM_CHANNEL};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    return poll(&daemon, 1, 0) == 0; // POLLHUP
}

// Of a spare one. False: the daemon has no use for us.
static bool shim_wait(struct shim *shim, char *folder) {
    static _Alignas(max_align_t) uint8_t buffer[CHANNEL_BUFFER_SIZE];
    char *name = strrchr(folder, '/') + 1;
    struct channel_message message;
    struct error err = {0};
    if (*name != SHIM_SPARE) return true;
    int rc = run_start_ahead(&shim->run, &err);
    if (rc == 0) sandbox_container_ahead();
    if (rc == 0 && channel_wait(SHIM_CHANNEL, -1, buffer, sizeof(buffer), &message) == 1 &&
        message.type == IPC_SHIM_BEGIN && strlen(message.body) == strlen(name)) {
        memcpy(name, message.body, strlen(name));
        return true;
    }
    run_stop_ahead(&shim->run);
    return false;
}

int shim_main(char *folder, uint32_t users) {
    struct error err = {0};
    struct shim shim = {.log = -1, .end_fd = -1, .listener = -1, .run.users = users};
    list_init(&shim.peers);
    list_init(&shim.execs);
    signal(SIGPIPE, SIG_IGN);
    role_keep_secrets();
    prctl(PR_SET_CHILD_SUBREAPER, 1); // the container's first process becomes ours
    fcntl(SHIM_CHANNEL, F_SETFD, FD_CLOEXEC);
    if (!strchr(folder, '/') || !shim_tie() || !shim_wait(&shim, folder)) return 1;
    int rc = chdir(folder) < 0 ? error_set(&err, -errno, "%s: %s", folder, strerror(errno)) : 0;
    if (rc == 0) rc = shim_lock(&err);
    if (rc == 0) rc = shim_start(&shim, folder, &err);
    if (rc == 0) rc = shim_watch(&shim, &err);
    if (rc == 0) rc = shim_start_command(&shim, &err);
    prctl(PR_SET_PDEATHSIG, 0);
    if (rc == 0) rc = shim_welcome(&shim, SHIM_CHANNEL, &err); // which fails if the daemon died before
    if (rc == 0) event_base_dispatch(shim.run.base);
    if (rc == 0) shim_say_end(&shim);
    shim_end(&shim);
    if (rc < 0) shim_say(SHIM_CHANNEL, shim.failure ? shim.failure : -EIO, &err);
    return rc < 0 ? 1 : 0;
}
