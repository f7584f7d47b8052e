// SPDX-License-Identifier: Apache-2.0
// A loop over the channel and the commands that run. A command is `sh -c` in a session of its own, in the
// folder / (what a sandbox wrote where the user is must not count), with nothing as input, its standard error thrown away (it
// may show the secret), and its output in a pipe whose reading end goes to the vault. When it ends, or its time is over, its whole process group is killed before it is reaped, while the number
// is still its.
#include "vault/source.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/mem.h"
#include "net/net.h"
#include "vault/secret_store.h"
#include "vault/state_folder.h"

#define SEND_WAIT_MS 1000

struct source_command {
    pid_t pid; // 0: free
    int pidfd;
    uint32_t id;
    uint64_t end_us;
    bool late;
};

struct source {
    int channel;
    int command_ms;
    struct source_command commands[SOURCE_COMMANDS_MAX];
};

// This process may wait, unlike the vault: but not for ever.
static void source_send(const struct source *source, enum ipc_type type, uint32_t id, int status, const int *fds,
                        size_t count) {
    struct ipc_source_answer answer = {.id = id, .status = status};
    for (int i = 0; i < 10; i++) {
        if (channel_send(source->channel, type, &answer, sizeof(answer), fds, count) != -EAGAIN) return;
        struct pollfd item = {.fd = source->channel, .events = POLLOUT};
        poll(&item, 1, SEND_WAIT_MS);
    }
}

static void source_end(const struct source *source, uint32_t id, int status) {
    source_send(source, IPC_SOURCE_END, id, status, NULL, 0);
}

// ---- files ----

static void source_path(const struct source *source, uint32_t id, const char *path) {
    // What is no regular file is refused by who reads it; opening it must not block.
    AUTO_CLOSE int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0)
        source_end(source, id, -errno);
    else
        source_send(source, IPC_SOURCE_FILE, id, 0, &fd, 1);
}

static void source_name(const struct source *source, uint32_t id, const char *name) {
    struct state_folder folder;
    int r = secret_store_name(name, NULL);
    if (r == 0) r = state_folder_open(SECRET_STORE_FOLDER, false, &folder, NULL);
    if (r < 0) {
        source_end(source, id, r);
        return;
    }
    int fds[2] = {openat(folder.fd, SECRET_STORE_KEY, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC),
                  openat(folder.fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)};
    if (fds[0] < 0 || fds[1] < 0)
        source_end(source, id, -errno);
    else
        source_send(source, IPC_SOURCE_STORED, id, 0, fds, 2);
    for (size_t i = 0; i < ARRAY_LENGTH(fds); i++)
        if (fds[i] >= 0) close(fds[i]);
    state_folder_close(&folder);
}

// ---- commands ----

static void command_exec(const char *text, int output, pid_t parent) {
    static const char *const words[] = {"sh", "-c"};
    char *argv[] = {(char *)(uintptr_t)words[0], (char *)(uintptr_t)words[1], (char *)(uintptr_t)text, NULL};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(126); // it has ended before
    setsid();
    signal(SIGPIPE, SIG_DFL);
    signal(SIGXFSZ, SIG_DFL);
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null < 0 || dup2(null, 0) < 0 || dup2(output, 1) < 0 || dup2(null, 2) < 0) _exit(126);
    if (syscall(SYS_close_range, 3U, ~0U, 0) < 0) _exit(126);
    execv("/bin/sh", argv);
    _exit(127);
}

static int command_start(struct source *source, struct source_command *command, uint32_t id, const char *text) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0) return -errno;
    AUTO_CLOSE int reading = ends[0];
    AUTO_CLOSE int writing = ends[1];
    if (fcntl(reading, F_SETFL, O_NONBLOCK) < 0) return -errno;
    pid_t parent = getpid(), pid = fork();
    if (pid == 0) command_exec(text, writing, parent);
    if (pid < 0) return -errno;
    *command = (struct source_command){.pid = pid,
                                       .pidfd = (int)syscall(SYS_pidfd_open, pid, 0),
                                       .id = id,
                                       .end_us = clock_us() + (uint64_t)source->command_ms * 1000};
    source_send(source, IPC_SOURCE_OUTPUT, id, 0, &reading, 1);
    return 0;
}

static void source_shell(struct source *source, uint32_t id, const char *text) {
    struct source_command *command = NULL;
    for (size_t i = 0; i < SOURCE_COMMANDS_MAX && !command; i++)
        if (source->commands[i].pid == 0) command = &source->commands[i];
    int r = command ? command_start(source, command, id, text) : -EBUSY;
    if (r < 0) source_end(source, id, r);
}

static void command_kill(struct source_command *command) {
    kill(-command->pid, SIGKILL);
    kill(command->pid, SIGKILL); // it may not have had a session yet
}

static void command_ended(struct source *source, struct source_command *command) {
    int status = 0;
    command_kill(command);
    while (waitpid(command->pid, &status, 0) < 0 && errno == EINTR) continue;
    source_end(source, command->id, command->late ? -ETIMEDOUT : status);
    if (command->pidfd >= 0) close(command->pidfd);
    *command = (struct source_command){0};
}

// ---- the loop ----

static int source_timeout(const struct source *source) {
    uint64_t now = clock_us(), first = UINT64_MAX;
    for (size_t i = 0; i < SOURCE_COMMANDS_MAX; i++) {
        const struct source_command *command = &source->commands[i];
        if (command->pid > 0 && !command->late && command->end_us < first) first = command->end_us;
    }
    if (first == UINT64_MAX) return -1;
    return first <= now ? 0 : (int)((first - now) / 1000 + 1);
}

static void source_look(struct source *source, const struct pollfd *items) {
    uint64_t now = clock_us();
    for (size_t i = 0; i < SOURCE_COMMANDS_MAX; i++) {
        struct source_command *command = &source->commands[i];
        if (command->pid == 0) continue;
        bool late = command->end_us <= now, ended = items[i].revents != 0;
        if (late && !ended && !command->late) {
            command->late = true;
            command_kill(command);
        }
        if (ended || (late && command->pidfd < 0)) command_ended(source, command);
    }
}

// False at the end of the channel.
static bool source_serve(struct source *source) {
    _Alignas(max_align_t) uint8_t buffer[sizeof(struct ipc_header) + sizeof(struct ipc_source_ask) + 1];
    struct channel_message message;
    int r = channel_receive(source->channel, buffer, sizeof(buffer), &message);
    if (r == -EAGAIN) return true;
    if (r <= 0) return false;
    channel_message_close(&message);
    if (message.type != IPC_SOURCE_ASK) return false;
    struct ipc_source_ask ask;
    memcpy(&ask, message.body, sizeof(ask));
    switch ((enum ipc_source_kind)ask.kind) {
    case IPC_SOURCE_PATH:
        source_path(source, ask.id, ask.text);
        break;
    case IPC_SOURCE_NAME:
        source_name(source, ask.id, ask.text);
        break;
    case IPC_SOURCE_SHELL:
        source_shell(source, ask.id, ask.text);
        break;
    }
    return true;
}

int source_main(int channel, int command_ms) {
    struct source source = {.channel = channel, .command_ms = command_ms};
    if (chdir("/") < 0) return 1; // where it was started a sandbox may write
    for (bool open = true; open;) {
        struct pollfd items[SOURCE_COMMANDS_MAX + 1];
        for (size_t i = 0; i < SOURCE_COMMANDS_MAX; i++)
            items[i] =
                (struct pollfd){.fd = source.commands[i].pid > 0 ? source.commands[i].pidfd : -1, .events = POLLIN};
        items[SOURCE_COMMANDS_MAX] = (struct pollfd){.fd = channel, .events = POLLIN};
        if (poll(items, ARRAY_LENGTH(items), source_timeout(&source)) < 0 && errno != EINTR) break;
        source_look(&source, items);
        if (items[SOURCE_COMMANDS_MAX].revents) open = source_serve(&source);
    }
    for (size_t i = 0; i < SOURCE_COMMANDS_MAX; i++)
        if (source.commands[i].pid > 0) command_kill(&source.commands[i]);
    return 0;
}

int source_start(int except, int *ret_channel, struct error *err) {
    int pair[2];
    int r = channel_pair(pair);
    if (r < 0) return error_set(err, r, "channel to the vault's helper: %s", strerror(-r));
    pid_t pid = fork();
    if (pid == 0) {
        struct rlimit none = {0, 0};
        close(pair[0]);
        if (except >= 0) close(except);
        setrlimit(RLIMIT_CORE, &none);
        prctl(PR_SET_NAME, "@source");
        prctl(PR_SET_DUMPABLE, 0);
        _exit(source_main(pair[1], SOURCE_COMMAND_MS));
    }
    int saved = errno;
    close(pair[1]);
    if (pid < 0) {
        close(pair[0]);
        return error_set(err, -saved, "start of the vault's helper: %s", strerror(saved));
    }
    *ret_channel = pair[0];
    return 0;
}
