// SPDX-License-Identifier: Apache-2.0
// The connections of a shim: a call is done and answered at once, but an update, which is when it is in force, and a command,
// whose end is a message of its own.
#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/mem.h"
#include "daemon/shim_state.h"

static _Alignas(max_align_t) uint8_t shim_buffer[CHANNEL_BUFFER_SIZE];

// ---- answers ----

// A daemon that does not read gets nothing: it is our own, and will ask again.
static void shim_done(struct shim_peer *peer, uint32_t id, int status, const struct error *err, const struct ipc_active *active) {
    struct ipc_shim_done done = {.id = id, .status = status < 0 ? status : 0};
    if (status < 0) snprintf(done.text, sizeof(done.text), "%s", err->text);
    if (active) {
        done.update_us = active->update_us;
        done.flows_closed = active->flows_closed;
        done.flows_kept = active->flows_kept;
    }
    if (peer) channel_send(peer->fd, IPC_SHIM_DONE, &done, sizeof(done), NULL, 0);
}

static json_t *shim_argument(const struct channel_message *message, struct error *err) {
    AUTO_FREE char *text = NULL;
    json_error_t why;
    if (message->fd_count < 1) {
        error_set(err, -EINVAL, "a call without what it takes");
        return NULL;
    }
    if (shim_read_fd(message->fds[0], &text, err) < 0) return NULL;
    json_t *object = json_loads(text, 0, &why);
    explicit_bzero(text, strlen(text));
    if (!object) error_set(err, -EINVAL, "a call takes JSON, not: %.100s", why.text);
    return object;
}

// ---- update ----

static void shim_update_ends(struct shim *shim, const struct ipc_active *report) {
    struct error err = {0};
    struct ipc_active all = *report;
    all.update_us = clock_us() - shim->update_us;
    if (shim->update_ports.count > 0)
        role_send(&shim->run.roles[ROLE_KEEPER], IPC_KEEPER_PORTS, &shim->update_ports, sizeof(shim->update_ports), NULL, 0, &err);
    shim_done(shim->update_peer, shim->update_id, 0, &err, &all);
    shim->updating = false;
    shim->update_peer = NULL;
    event_del(shim->update_event);
}

static void shim_active(struct run *run, const struct ipc_active *report) {
    struct shim *shim = LIST_ENTRY(run, struct shim, run);
    if (shim->updating) shim_update_ends(shim, report);
}

// A gate that has not answered is another one's place.
static void shim_update_late(evutil_socket_t fd, short what, void *data) {
    (void)fd, (void)what;
    struct shim *shim = data;
    role_kill(&shim->run.roles[ROLE_GATE]);
    shim_update_ends(shim, &(struct ipc_active){0});
}

// What of the host's loopback the old policy opens and the new one too is open meanwhile; the rest when the gate has it.
static void shim_send_ports(struct shim *shim, const struct policy *before) {
    struct error ignored;
    struct ipc_ports old = {0}, *ports = &shim->update_ports, both = {0};
    old.count = (uint32_t)policy_loopback_ports(before, old.ports, IPC_PORTS_MAX);
    *ports = (struct ipc_ports){0};
    ports->count = (uint32_t)policy_loopback_ports(shim->run.policy, ports->ports, IPC_PORTS_MAX);
    for (size_t i = 0; i < old.count; i++)
        for (size_t k = 0; k < ports->count; k++)
            if (old.ports[i] == ports->ports[k]) both.ports[both.count++] = old.ports[i];
    if (both.count < old.count) role_send(&shim->run.roles[ROLE_KEEPER], IPC_KEEPER_PORTS, &both, sizeof(both), NULL, 0, &ignored);
    if (both.count == ports->count) ports->count = 0; // nothing is opened
}

// The policy is this process's from now on, with or without a network.
static void shim_swap(struct shim *shim, struct shim_policy *policy, struct policy *compiled) {
    struct run *run = &shim->run;
    struct shim_policy before = shim->spec.policy;
    struct error ignored;
    policy_free(run->previous);
    run->previous = run->policy;
    run->policy = compiled;
    shim->spec.policy = *policy;
    shim->options.node = &shim->spec.policy.node;
    shim->options.model->known = true;
    *policy = before;
    shim_send_ports(shim, run->previous);
    if (run_set_servers(run, &shim->spec.policy.servers, &ignored) < 0) run_role_gone(run, ROLE_RESOLVER);
}

// 0: done. 1: the gate will say so.
static int shim_update(struct shim *shim, struct shim_policy *policy, bool keep, struct error *err) {
    struct run *run = &shim->run;
    struct policy *compiled = NULL;
    struct credentials *credentials = NULL;
    int rc = !shim->trusted && policy->model->binding_count > 0
                 ? error_set(err, -EINVAL, "this sandbox was created without credentials, so it does not trust our certificates; "
                             "create it with at least one of its rules") : 0;
    shim->options.model = policy->model;
    shim->options.node = &policy->node;
    if (rc == 0) rc = run_compile(run, &compiled, NULL, err);
    if (rc == 0) rc = credentials_new(policy->model, &credentials, err);
    if (rc < 0) {
        policy_free(compiled);
        shim->options.model = shim->spec.policy.model;
        shim->options.node = &shim->spec.policy.node;
        return rc;
    }
    shim_swap(shim, policy, compiled);
    if (credentials || run->credentials) rc = run_send_rules(run, credentials, keep, err);
    else rc = run->roles[ROLE_GATE].pid > 0 ? run_send_policy(run, keep, err) : 0;
    if (rc < 0) role_kill(&run->roles[ROLE_GATE]); // the one in its place will have it
    return run->roles[ROLE_GATE].pid > 0;
}

static void shim_call_policy(struct shim_peer *peer, uint32_t id, const json_t *object) {
    struct shim *shim = peer->shim;
    struct error err = {0};
    struct shim_policy policy = {0};
    static const struct timeval patience = {.tv_usec = SHIM_UPDATE_US % 1000000, .tv_sec = SHIM_UPDATE_US / 1000000};
    int rc = shim->updating ? error_set(&err, -EBUSY, "another update is under way; try again") : 0;
    if (rc == 0 && shim->run.cut_off)
        rc = error_set(&err, -EIO, "the sandbox has no network any more: a process of it died, or its log cannot be written; fork it, or create another");
    if (rc == 0) rc = shim_policy_read(object, shim->spec.type, &policy, &err);
    if (rc == 0) shim->update_us = clock_us();
    if (rc == 0) rc = shim_update(shim, &policy, json_is_true(json_object_get(object, "keep")), &err);
    shim_policy_done(&policy);
    if (rc < 0) {
        shim_done(peer, id, rc, &err, NULL);
        return;
    }
    shim->spec.generation = (uint64_t)json_integer_value(json_object_get(object, "generation"));
    shim->updating = true;
    shim->update_peer = peer;
    shim->update_id = id;
    event_add(shim->update_event, &patience);
    bool waits = rc == 1 && shim->run.in_force < policy_facts(shim->run.policy).generation;
    if (!waits) shim_update_ends(shim, &(struct ipc_active){0});
}

// ---- commands ----

static void shim_exec_free(struct shim_exec *exec) {
    list_remove(&exec->list);
    exec->shim->exec_count--;
    if (exec->event) event_free(exec->event);
    if (exec->unread) event_free(exec->unread);
    if (exec->pidfd >= 0) close(exec->pidfd);
    if (exec->output >= 0) close(exec->output);
    free(exec);
}

static void shim_exec_ended(evutil_socket_t fd, short what, void *data) {
    (void)fd, (void)what;
    struct shim_exec *exec = data;
    int status;
    if (waitpid(exec->pid, &status, WNOHANG) <= 0) return;
    struct ipc_shim_exit message = {.id = exec->id, .status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status)};
    if (exec->peer) channel_send(exec->peer->fd, IPC_SHIM_EXIT, &message, sizeof(message), NULL, 0);
    shim_exec_free(exec);
}

// Whoever asked for it is gone, or the daemon is: nobody could end it, or hear of its end.
static void shim_exec_unread(evutil_socket_t fd, short what, void *data) {
    (void)fd, (void)what;
    struct shim_exec *exec = data;
    event_free(TAKE_POINTER(exec->unread));
    kill(-exec->pid, SIGKILL); // its session's
    kill(exec->pid, SIGKILL);
}

static bool shim_exec_watch(struct shim_exec *exec) {
    exec->pidfd = (int)syscall(SYS_pidfd_open, exec->pid, 0);
    if (exec->pidfd < 0 || !run_listen(&exec->shim->run, exec->pidfd, shim_exec_ended, exec, &exec->event)) return false;
    // The end of a pipe that is written to is never ready to be read from: only its error is told.
    return exec->output < 0 || run_listen(&exec->shim->run, exec->output, shim_exec_unread, exec, &exec->unread);
}

static int shim_exec_start(struct shim_exec *exec, const json_t *object, const int *fds, struct error *err) {
    AUTO_FREE char **argv = shim_strings(json_object_get(object, "argv"));
    AUTO_FREE char **environment = shim_environment(json_object_get(object, "env"));
    const struct sandbox_exec command = {.argv = argv, .environment = environment,
                                         .cwd = json_string_value(json_object_get(object, "cwd")),
                                         .user = json_string_value(json_object_get(object, "user")),
                                         .stdio = {fds[0], fds[1], fds[2]}, .own = 7};
    if (!argv || !argv[0] || !environment) return error_set(err, -EINVAL, "a command is a list of at least one string");
    if (fds[1] >= 0 && (exec->output = fcntl(fds[1], F_DUPFD_CLOEXEC, 3)) < 0)
        return error_set(err, -errno, "watching the command: %s", strerror(errno));
    int rc = sandbox_container_exec(exec->shim->container, &command, &exec->pid, err);
    if (rc < 0) return rc;
    if (shim_exec_watch(exec)) return 0;
    kill(exec->pid, SIGKILL);
    waitpid(exec->pid, NULL, 0);
    return error_set(err, -EMFILE, "watching the command: %s", strerror(errno));
}

static int shim_exec_new(struct shim *shim, struct shim_peer *peer, uint32_t id, const json_t *object, const int *fds,
                         struct error *err) {
    struct shim_exec *exec = NEW(struct shim_exec);
    if (!exec) return error_set(err, -ENOMEM, "out of memory");
    *exec = (struct shim_exec){.shim = shim, .peer = peer, .id = id, .pidfd = -1, .output = -1};
    list_append(&shim->execs, &exec->list);
    shim->exec_count++;
    int rc = shim_exec_start(exec, object, fds, err);
    if (rc < 0) shim_exec_free(exec);
    return rc;
}

static int shim_call_exec(struct shim_peer *peer, uint32_t id, const json_t *object, const struct channel_message *message,
                          struct error *err) {
    struct shim *shim = peer->shim;
    if (message->fd_count != IPC_SHIM_FDS) return error_set(err, -EINVAL, "a command without its standard streams");
    if (shim->paused) return error_set(err, -EBUSY, "the sandbox is paused; resume it first");
    if (shim->exec_count >= SHIM_EXECS_MAX)
        return error_set(err, -EAGAIN, "%d commands run in this sandbox already; wait for one to end", SHIM_EXECS_MAX);
    return shim_exec_new(shim, peer, id, object, message->fds + 1, err);
}

int shim_start_command(struct shim *shim, struct error *err) {
    static const int nowhere[3] = {-1, -1, -1};
    if (!shim->spec.start_command) return 0;
    json_t *object = json_pack("{s:[s,s,s],s:{}}", "argv", "/bin/sh", "-c", shim->spec.start_command, "env");
    int rc = object ? shim_exec_new(shim, NULL, 0, object, nowhere, err) : error_set(err, -ENOMEM, "out of memory");
    json_decref(object);
    return rc < 0 ? error_context(err, rc, "the template's start command") : 0;
}

// ---- counters ----

// Another gate counts from nought. What the one before had counted since it was asked last is lost.
static void shim_counted(struct run *run, const struct ipc_counters *counters) {
    struct shim *shim = LIST_ENTRY(run, struct shim, run);
    if (shim->last_gate != run->gates) metrics_retire(&shim->retired, &shim->last);
    shim->last_gate = run->gates;
    memcpy(&shim->last, counters, sizeof(shim->last));
    struct ipc_counters all = shim->retired;
    metrics_add(&all, &shim->last);
    LIST_FOREACH(&shim->peers, node)
        channel_send(LIST_ENTRY(node, struct shim_peer, list)->fd, IPC_SHIM_COUNTERS, &all, sizeof(all), NULL, 0);
}

static int shim_call_count(struct shim *shim, struct error *err) {
    struct role *gate = &shim->run.roles[ROLE_GATE];
    return gate->pid > 0 ? role_send(gate, IPC_GATE_COUNT, NULL, 0, NULL, 0, err)
                         : error_set(err, -ESRCH, "the sandbox has no network");
}

// ---- calls ----

static int shim_call_freeze(struct shim *shim, bool pause, struct error *err) {
    if (shim->paused == pause) return 0;
    int rc = pause ? sandbox_container_pause(shim->container, err) : sandbox_container_resume(shim->container, err);
    if (rc == 0) shim->paused = pause;
    return rc;
}

// A daemon that has gone meanwhile has not written down that there is a layer; the next one has looked for what is left already.
static int shim_call_snapshot(struct shim_peer *peer, const json_t *object, struct error *err) {
    const char *folder = json_string_value(json_object_get(object, "folder"));
    if (!folder) return error_set(err, -EINVAL, "a snapshot without a folder");
    int rc = sandbox_container_snapshot(peer->shim->container, folder, err);
    struct pollfd daemon = {.fd = peer->fd};
    if (rc == 0 && poll(&daemon, 1, 0) == 1 && daemon.revents & POLLHUP) rc = sandbox_container_drop(folder, err);
    return rc;
}

static void shim_call(struct shim_peer *peer, const struct channel_message *message) {
    struct shim *shim = peer->shim;
    struct error err = {0};
    struct ipc_shim_call call;
    memcpy(&call, message->body, sizeof(call));
    enum ipc_shim_verb verb = (enum ipc_shim_verb)call.verb;
    bool takes = verb == IPC_SHIM_POLICY || verb == IPC_SHIM_SNAPSHOT || verb == IPC_SHIM_EXEC;
    json_t *object = takes ? shim_argument(message, &err) : NULL;
    int rc = takes && !object ? -EINVAL : 0;
    if (rc == 0) {
        switch (verb) {
        case IPC_SHIM_POLICY:
            shim_call_policy(peer, call.id, object);
            json_decref(object);
            return;
        case IPC_SHIM_PAUSE: rc = shim_call_freeze(shim, true, &err); break;
        case IPC_SHIM_RESUME: rc = shim_call_freeze(shim, false, &err); break;
        case IPC_SHIM_SNAPSHOT: rc = shim_call_snapshot(peer, object, &err); break;
        case IPC_SHIM_EXEC: rc = shim_call_exec(peer, call.id, object, message, &err); break;
        case IPC_SHIM_COUNT: rc = shim_call_count(shim, &err); break;
        case IPC_SHIM_STOP: event_base_loopbreak(shim->run.base); break;
        case IPC_SHIM_VERB_COUNT: break;
        }
    }
    json_decref(object);
    shim_done(peer, call.id, rc, &err, NULL);
}

// ---- connections ----

static void shim_peer_free(struct shim_peer *peer) {
    struct shim *shim = peer->shim;
    LIST_FOREACH(&shim->execs, node) {
        struct shim_exec *exec = LIST_ENTRY(node, struct shim_exec, list);
        if (exec->peer == peer) exec->peer = NULL;
    }
    if (shim->update_peer == peer) shim->update_peer = NULL;
    list_remove(&peer->list);
    shim->peer_count--;
    if (peer->event) event_free(peer->event);
    close(peer->fd);
    free(peer);
}

static void shim_readable(evutil_socket_t fd, short what, void *data) {
    (void)what;
    struct shim_peer *peer = data;
    struct channel_message message;
    int rc = channel_receive(fd, shim_buffer, sizeof(shim_buffer), &message);
    if (rc == -EAGAIN) return;
    if (rc == 1 && message.type == IPC_SHIM_CALL) shim_call(peer, &message);
    if (rc == 1) channel_message_close(&message);
    else shim_peer_free(peer);
}

int shim_welcome(struct shim *shim, int fd, struct error *err) {
    struct ipc_shim_up up = {.generation = shim->spec.generation, .paused = shim->paused,
                             .pid = sandbox_container_pid(shim->container)};
    struct shim_peer *peer = shim->peer_count < SHIM_PEERS_MAX ? NEW(struct shim_peer) : NULL;
    if (!peer) {
        close(fd);
        return error_set(err, -EMFILE, "too many connections");
    }
    *peer = (struct shim_peer){.shim = shim, .fd = fd};
    list_append(&shim->peers, &peer->list);
    shim->peer_count++;
    int rc = run_listen(&shim->run, fd, shim_readable, peer, &peer->event) ? channel_send(fd, IPC_SHIM_UP, &up, sizeof(up), NULL, 0)
                                                                     : -ENOMEM;
    if (rc == 0) return 0;
    shim_peer_free(peer);
    return error_set(err, rc, "the daemon is gone");
}

static void shim_accept(evutil_socket_t fd, short what, void *data) {
    (void)what;
    struct error ignored;
    int peer = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (peer >= 0) shim_welcome(data, peer, &ignored);
}

int shim_listen(struct shim *shim, struct error *err) {
    struct sockaddr_un name = {.sun_family = AF_UNIX, .sun_path = SHIM_SOCKET};
    shim->run.active = shim_active;
    shim->run.counted = shim_counted;
    shim->update_event = evtimer_new(shim->run.base, shim_update_late, shim);
    shim->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    unlink(SHIM_SOCKET);
    // Connections of daemons that came and went while we were busy wait too.
    // The folder is its owner's alone, so nobody else comes this far.
    if (!shim->update_event || shim->listener < 0 || bind(shim->listener, (struct sockaddr *)&name, sizeof(name)) < 0 ||
        listen(shim->listener, SOMAXCONN) < 0 || !run_listen(&shim->run, shim->listener, shim_accept, shim, &shim->listen_event))
        return error_set(err, -EIO, "%s: %s", SHIM_SOCKET, strerror(errno));
    return 0;
}

void shim_forget_commands(struct shim *shim) {
    LIST_FOREACH(&shim->execs, node) shim_exec_free(LIST_ENTRY(node, struct shim_exec, list));
}

void shim_hang_up(struct shim *shim) {
    LIST_FOREACH(&shim->peers, node) shim_peer_free(LIST_ENTRY(node, struct shim_peer, list));
    if (shim->listen_event) event_free(shim->listen_event);
    if (shim->update_event) event_free(shim->update_event);
    if (shim->listener >= 0) {
        unlink(SHIM_SOCKET);
        close(shim->listener);
    }
}
