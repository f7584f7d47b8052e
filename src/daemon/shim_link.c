// SPDX-License-Identifier: Apache-2.0
// A shim is a child that outlives us: in a session of its own, with its output in a file of its folder. What it exits with is
// of no interest, so it is reaped when its connection has closed, or with the next one: a process closes its files before
// it can be waited for.
#include "daemon/shim_link.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/list.h"
#include "base/mem.h"
#include "daemon/shim.h"
#include "net/net.h"

#define SHIM_LINK_FD 3

struct shim_link_call {
    struct list list;
    uint32_t id;
    shim_link_done *done;   // NULL: it has been answered
    shim_link_exit *exited; // NULL: nobody waits for an end
    void *data;
};

struct shim_link {
    struct shim_link_handlers handlers;
    void *data;
    struct event *event;
    struct list calls;
    uint32_t next_id;
    int fd;
    pid_t pid; // of a child; 0: another daemon's
    int pidfd; // of that
    int failure; // why it could not start, as the shim says; 0: it has not said
    char text[IPC_SHIM_TEXT_SIZE];
};

static _Alignas(max_align_t) uint8_t link_buffer[CHANNEL_BUFFER_SIZE];

static pid_t *link_ending; // children whose connection is closed
static size_t link_ending_count;

void shim_link_reap(void) {
    size_t kept = 0;
    for (size_t i = 0; i < link_ending_count; i++)
        if (waitpid(link_ending[i], NULL, WNOHANG) == 0) link_ending[kept++] = link_ending[i];
    link_ending_count = kept;
}

static void link_reap_later(pid_t pid) {
    shim_link_reap();
    if (waitpid(pid, NULL, WNOHANG) != 0) return;
    pid_t *grown = realloc(link_ending, (link_ending_count + 1) * sizeof(*link_ending));
    if (!grown) return;
    link_ending = grown;
    link_ending[link_ending_count++] = pid;
}

void shim_link_end(struct shim_link *link) {
    shim_link_exit *exited;
    while (!list_empty(&link->calls)) {
        struct shim_link_call call = *LIST_ENTRY(link->calls.next, struct shim_link_call, list);
        struct shim_link_call *own = LIST_ENTRY(link->calls.next, struct shim_link_call, list);
        list_remove(&own->list);
        free(own);
        exited = call.done ? NULL : call.exited;
        if (call.done) call.done(NULL, call.data);
        if (exited) exited(-1, call.data);
    }
    event_free(TAKE_POINTER(link->event));
    link->handlers.gone(link->failure, link->text, link->data);
}

static struct shim_link_call *link_find(struct shim_link *link, uint32_t id) {
    LIST_FOREACH(&link->calls, node) {
        struct shim_link_call *call = LIST_ENTRY(node, struct shim_link_call, list);
        if (call->id == id) return call;
    }
    return NULL;
}

static void link_drop(struct shim_link_call *call) {
    list_remove(&call->list);
    free(call);
}

static void link_answered(struct shim_link *link, const struct ipc_shim_done *done) {
    struct shim_link_call *call = link_find(link, done->id);
    if (done->id == 0) {
        link->failure = done->status;
        snprintf(link->text, sizeof(link->text), "%s", done->text);
    }
    if (!call) return;
    shim_link_done *told = TAKE_POINTER(call->done);
    void *data = call->data;
    if (!call->exited || done->status < 0) link_drop(call);
    if (told) told(done, data);
}

static void link_exited(struct shim_link *link, const struct ipc_shim_exit *message) {
    struct shim_link_call *call = link_find(link, message->id);
    if (!call || call->done || !call->exited) return; // its beginning is always told before
    shim_link_exit *exited = call->exited;
    void *data = call->data;
    link_drop(call);
    exited(message->status, data);
}

static void link_readable(evutil_socket_t fd, short what, void *data) {
    (void)what;
    struct shim_link *link = data;
    struct channel_message message;
    int rc = channel_receive(fd, link_buffer, sizeof(link_buffer), &message);
    if (rc == -EAGAIN) return;
    if (rc != 1) {
        shim_link_end(link);
        return;
    }
    channel_message_close(&message);
    if (message.type == IPC_SHIM_DONE) link_answered(link, message.body);
    if (message.type == IPC_SHIM_EXIT) link_exited(link, message.body);
    if (message.type == IPC_SHIM_UP) link->handlers.up(message.body, link->data);
    if (message.type == IPC_SHIM_COUNTERS) link->handlers.counted(message.body, link->data);
}

static int link_new(struct event_base *base, int fd, const struct shim_link_handlers *handlers, void *data,
                    struct shim_link **ret_link, struct error *err) {
    struct shim_link *link = NEW(struct shim_link);
    if (link) *link = (struct shim_link){.handlers = *handlers, .data = data, .fd = fd, .pidfd = -1};
    if (link) link->event = event_new(base, fd, EV_READ | EV_PERSIST, link_readable, link);
    if (!link || !link->event || event_add(link->event, NULL) < 0) {
        if (link && link->event) event_free(link->event);
        free(link);
        return error_set(err, -ENOMEM, "out of memory");
    }
    list_init(&link->calls);
    *ret_link = link;
    return 0;
}

static int link_posix_spawn(const char *folder, uint32_t users, const char *errors, int channel, pid_t *ret_pid) {
    char number[16];
    char *argv[] = {"penstock", "@shim", (char *)(uintptr_t)folder, number, NULL};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none, all;
    snprintf(number, sizeof(number), "%u", users);
    sigemptyset(&none);
    sigfillset(&all);
    if (posix_spawn_file_actions_init(&actions) != 0) return -ENOMEM;
    if (posix_spawnattr_init(&attributes) != 0) {
        posix_spawn_file_actions_destroy(&actions);
        return -ENOMEM;
    }
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDWR, 0);
    posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_RDWR, 0);
    posix_spawn_file_actions_addopen(&actions, 2, errors, O_WRONLY | O_CREAT | O_APPEND, 0600);
    posix_spawn_file_actions_adddup2(&actions, channel, SHIM_LINK_FD);
    posix_spawn_file_actions_addclosefrom_np(&actions, SHIM_LINK_FD + 1);
    int rc = posix_spawn(ret_pid, "/proc/self/exe", &actions, &attributes, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    return -rc;
}

static int link_start(const char *folder, uint32_t users, const char *errors, int *ret_fd, pid_t *ret_pid, struct error *err) {
    int pair[2];
    int rc = channel_pair(pair);
    if (rc < 0) return error_set(err, rc, "channel to a shim: %s", strerror(-rc));
    AUTO_CLOSE int ours = pair[0];
    AUTO_CLOSE int its = fcntl(pair[1], F_DUPFD_CLOEXEC, SHIM_LINK_FD + 1); // never the number that it gets
    close(pair[1]);
    rc = its < 0 ? -errno : link_posix_spawn(folder, users, errors, its, ret_pid);
    if (rc < 0) return error_set(err, rc, "start of a shim: %s", strerror(-rc));
    *ret_fd = TAKE_FD(ours);
    return 0;
}

// Its name is as long as an id.
int shim_spare_start(struct shim_spare *spare, const char *parent, uint32_t users, struct error *err) {
    static unsigned number;
    char *place = NULL, *errors = NULL;
    int rc = asprintf(&place, "%s/%c%020u", parent, SHIM_SPARE, number) < 0 || asprintf(&errors, "%s.log", place) < 0 ? -ENOMEM : 0;
    *spare = (struct shim_spare){.fd = -1, .place = place, .errors = errors};
    number++;
    rc = rc < 0 ? error_set(err, rc, "out of memory") : link_start(place, users, errors, &spare->fd, &spare->pid, err);
    if (rc < 0) shim_spare_end(spare);
    return rc;
}

void shim_spare_end(struct shim_spare *spare) {
    if (spare->fd >= 0) close(spare->fd); // which ends it
    if (spare->pid > 0) link_reap_later(spare->pid);
    if (spare->errors) unlink(spare->errors);
    free(spare->place);
    free(spare->errors);
    *spare = (struct shim_spare){.fd = -1};
}

// False: it is not there any more, or the folder is none of its.
static bool link_take_spare(struct shim_spare *spare, const char *folder, const char *errors, int *ret_fd, pid_t *ret_pid) {
    struct ipc_shim_begin begin = {0};
    const char *name = strrchr(folder, '/');
    if (spare->fd < 0) return false;
    bool good = name && strlen(folder) == strlen(spare->place) && strncmp(folder, spare->place, (size_t)(name - folder) + 1) == 0 &&
                snprintf(begin.id, sizeof(begin.id), "%s", name + 1) < (int)sizeof(begin.id) && rename(spare->errors, errors) == 0 &&
                channel_send(spare->fd, IPC_SHIM_BEGIN, &begin, sizeof(begin), NULL, 0) == 0;
    if (good) {
        *ret_fd = TAKE_FD(spare->fd);
        *ret_pid = spare->pid;
        spare->pid = 0;
    }
    shim_spare_end(spare);
    return good;
}

int shim_link_spawn(struct event_base *base, const char *folder, uint32_t users, struct shim_spare *spare,
                    const struct shim_link_handlers *handlers, void *data, struct shim_link **ret_link, struct error *err) {
    char errors[PATH_MAX];
    AUTO_CLOSE int fd = -1;
    pid_t pid = 0;
    snprintf(errors, sizeof(errors), "%s/%s", folder, SHIM_ERRORS);
    int rc = link_take_spare(spare, folder, errors, &fd, &pid) ? 0 : link_start(folder, users, errors, &fd, &pid, err);
    if (rc == 0) rc = link_new(base, fd, handlers, data, ret_link, err);
    if (rc < 0) return rc; // its channel closes, and it ends
    (*ret_link)->pid = pid;
    TAKE_FD(fd);
    return 0;
}

int shim_link_connect(struct event_base *base, const char *folder, const struct shim_link_handlers *handlers, void *data,
                      struct shim_link **ret_link, struct error *err) {
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    struct ucred peer;
    socklen_t size = sizeof(peer);
    AUTO_CLOSE int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    AUTO_CLOSE int directory = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (directory < 0 || fd < 0) return error_set(err, -errno, "%s: %s", folder, strerror(errno));
    // The folder's path may be longer than a socket's name.
    snprintf(name.sun_path, sizeof(name.sun_path), "/proc/self/fd/%d/%s", directory, SHIM_SOCKET);
    if (connect(fd, (struct sockaddr *)&name, sizeof(name)) < 0) return error_set(err, -errno, "%s: %s", folder, strerror(errno));
    int rc = link_new(base, fd, handlers, data, ret_link, err);
    if (rc < 0) return rc;
    // Now, so that it cannot be another process's number later.
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0) (*ret_link)->pidfd = (int)syscall(SYS_pidfd_open, peer.pid, 0);
    TAKE_FD(fd);
    return 0;
}

static int link_memfd(const json_t *argument) {
    AUTO_FREE char *text = json_dumps(argument, JSON_COMPACT);
    AUTO_CLOSE int fd = text ? memfd_create("penstock-call", MFD_CLOEXEC) : -1;
    size_t len = text ? strlen(text) : 0, done = 0;
    while (fd >= 0 && done < len) {
        ssize_t written = write(fd, text + done, len - done);
        if (written < 0) return -errno;
        done += (size_t)written;
    }
    return fd < 0 ? -ENOMEM : TAKE_FD(fd);
}

int shim_link_call(struct shim_link *link, enum ipc_shim_verb verb, const json_t *argument, const int streams[3],
                   shim_link_done *done, shim_link_exit *exited, void *data, struct error *err) {
    struct ipc_shim_call message = {.id = ++link->next_id, .verb = (uint32_t)verb};
    int fds[IPC_SHIM_FDS] = {-1};
    size_t count = 0;
    AUTO_CLOSE int memory = argument ? link_memfd(argument) : -1;
    struct shim_link_call *call = NEW(struct shim_link_call);
    if (!call || (argument && memory < 0)) {
        free(call);
        return error_set(err, -ENOMEM, "out of memory");
    }
    if (argument) fds[count++] = memory;
    for (size_t i = 0; streams && i < 3; i++) fds[count++] = streams[i];
    int rc = channel_send(link->fd, IPC_SHIM_CALL, &message, sizeof(message), fds, count);
    if (rc < 0) {
        free(call);
        return error_set(err, rc, "the sandbox's shim does not listen: %s", strerror(-rc));
    }
    *call = (struct shim_link_call){.id = message.id, .done = done, .exited = exited, .data = data};
    list_append(&link->calls, &call->list);
    return 0;
}

void shim_link_forget(struct shim_link *link, const void *data) {
    LIST_FOREACH(&link->calls, node) {
        struct shim_link_call *call = LIST_ENTRY(node, struct shim_link_call, list);
        if (call->data == data) link_drop(call);
    }
}

void shim_link_kill(struct shim_link *link) {
    if (!link) return;
    if (link->pid > 0) kill(link->pid, SIGKILL);
    else if (link->pidfd >= 0) syscall(SYS_pidfd_send_signal, link->pidfd, SIGKILL, NULL, 0);
}

void shim_link_free(struct shim_link *link) {
    if (!link) return;
    LIST_FOREACH(&link->calls, node) link_drop(LIST_ENTRY(node, struct shim_link_call, list));
    if (link->event) event_free(link->event);
    close(link->fd);
    if (link->pidfd >= 0) close(link->pidfd);
    if (link->pid > 0) link_reap_later(link->pid);
    free(link);
}
