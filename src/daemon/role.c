// SPDX-License-Identifier: Apache-2.0
// Roles are this very program, executed again: fresh address-space layout, and nothing of main's memory in them.
// A role ends when its channel to main closes, so a killed main takes all of them with it.
#include "daemon/role.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/number.h"
#include "daemon/daemon.h"
#include "daemon/probe.h"
#include "daemon/shim.h"
#include "dns/dns.h"
#include "gate/gate.h"
#include "sandbox/sandbox.h"
#include "vault/vault.h"

#define ROLE_CHANNEL 3
#define ROLE_START_MS 15000

static const struct {
    const char *word;
    int (*main)(int channel);
} role_table[] = {
    [ROLE_KEEPER] = {"@keeper", keeper_main},
    [ROLE_RESOLVER] = {"@resolver", resolver_main},
    [ROLE_GATE] = {"@gate", gate_main},
    [ROLE_VAULT] = {"@vault", vault_main},
};
static_assert(ARRAY_LENGTH(role_table) == ROLE_COUNT, "one row a role");

const char *role_name(enum role_kind kind) { return role_table[kind].word + 1; }

static bool role_drop(const char *uid_text, const char *gid_text) {
    uint64_t uid, gid;
    if (number_parse(uid_text, strlen(uid_text), 0, UINT32_MAX - 1, &uid) < 0 ||
        number_parse(gid_text, strlen(gid_text), 0, UINT32_MAX - 1, &gid) < 0) {
        return false;
    }
    if (uid == 0) return true;
    return setgroups(0, NULL) == 0 && setresgid((gid_t)gid, (gid_t)gid, (gid_t)gid) == 0 &&
           setresuid((uid_t)uid, (uid_t)uid, (uid_t)uid) == 0;
}

static int role_sweep(const char *id, const char *folder) {
    struct error err = {0};
    int rc = sandbox_container_clean(id, folder, &err);
    // Whoever still has it is a shim that could be told nothing, or what such a one has started.
    if (rc == -EBUSY && sandbox_container_end_holders(id, folder) > 0) rc = sandbox_container_clean(id, folder, &err);
    if (rc < 0) fprintf(stderr, "penstock: sandbox %s: %s\n", id, err.text);
    return rc < 0 ? 1 : 0;
}

void role_keep_secrets(void) {
    static const struct rlimit none = {0};
    setrlimit(RLIMIT_CORE, &none);
    prctl(PR_SET_DUMPABLE, 0);
}

bool daemon_role(int argc, char **argv, int *ret_status) {
    if (argc > 1 && strcmp(argv[1], "@probe") == 0) { // of self-test
        *ret_status = probe_main(argc, argv);
        return true;
    }
    if (argc == 4 && strcmp(argv[1], "@shim") == 0) { // of a node's sandbox
        prctl(PR_SET_NAME, argv[1]);
        *ret_status = shim_main(argv[2], (uint32_t)strtoul(argv[3], NULL, 10));
        return true;
    }
    if (argc == 4 && strcmp(argv[1], "@sweep") == 0) { // what is left of one
        *ret_status = role_sweep(argv[2], argv[3]);
        return true;
    }
    for (size_t i = 0; i < ARRAY_LENGTH(role_table); i++) {
        if (argc != 4 || strcmp(argv[1], role_table[i].word) != 0) continue;
        prctl(PR_SET_NAME, argv[1]);
        *ret_status = role_drop(argv[2], argv[3]) ? role_table[i].main(ROLE_CHANNEL) : 1;
        return true;
    }
    return false;
}

// A handler of ours that ran in the child would run in our memory. Signals are blocked until all that have one are back to
// their default action (a child's own, unlike its memory), which exec would make of them anyway.
static void role_unhandle(void) {
    for (int number = 1; number < NSIG; number++) {
        struct sigaction action;
        if (sigaction(number, NULL, &action) < 0 || action.sa_handler == SIG_DFL || action.sa_handler == SIG_IGN) continue;
        action = (struct sigaction){.sa_handler = SIG_DFL};
        sigaction(number, &action, NULL);
    }
}

// In the child, in our memory: only async-signal-safe calls, and nothing written.
static __attribute__((noinline)) void role_exec(int channel, char *const argv[], char *const *given) {
    sigset_t none;
    sigemptyset(&none);
    role_unhandle();
    sigprocmask(SIG_SETMASK, &none, NULL);
    setsid();
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null < 0 || dup2(null, 0) < 0 || dup2(null, 1) < 0) _exit(1);
    if (chdir("/") < 0) _exit(1); // out of the folder that the sandbox may write: no relative path leads there
    if (channel == ROLE_CHANNEL) fcntl(channel, F_SETFD, 0);
    else if (dup2(channel, ROLE_CHANNEL) < 0) _exit(1);
    if (syscall(SYS_close_range, ROLE_CHANNEL + 1, ~0U, 0) < 0) _exit(1);
    char *const none_given[] = {NULL};
    execve("/proc/self/exe", argv, given ? given : none_given);
    _exit(1);
}

int role_start(struct role *role, enum role_kind kind, uid_t uid, gid_t gid, char *const *environment, struct error *err) {
    int pair[2];
    char uid_text[16], gid_text[16];
    snprintf(uid_text, sizeof(uid_text), "%u", uid);
    snprintf(gid_text, sizeof(gid_text), "%u", gid);
    char *argv[] = {"penstock", (char *)role_table[kind].word, uid_text, gid_text, NULL};
    int rc = channel_pair(pair);
    if (rc < 0) return error_set(err, rc, "channel to the %s: %s", role_name(kind), strerror(-rc));
    sigset_t all, before;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before);
    pid_t pid = vfork(); // the child only executes: no copy of our memory
    if (pid == 0) role_exec(pair[1], argv, environment);
    int saved = errno;
    sigprocmask(SIG_SETMASK, &before, NULL);
    close(pair[1]);
    if (pid < 0) {
        close(pair[0]);
        return error_set(err, -saved, "start of the %s: %s", role_name(kind), strerror(saved));
    }
    *role = (struct role){.kind = kind, .pid = pid, .channel = pair[0], .pidfd = (int)syscall(SYS_pidfd_open, pid, 0)};
    return 0;
}

static _Alignas(max_align_t) uint8_t role_buffer[CHANNEL_BUFFER_SIZE];

int role_expect(struct role *role, enum ipc_type type, struct channel_message *ret_message, struct error *err) {
    int rc = channel_wait(role->channel, ROLE_START_MS, role_buffer, sizeof(role_buffer), ret_message);
    if (rc == 1 && ret_message->type == type) return 0;
    if (rc == 1 && ret_message->type == IPC_ERROR) {
        const struct ipc_error *error = ret_message->body;
        return error_set(err, -EIO, "%s", error->text);
    }
    if (rc == 1) channel_message_close(ret_message);
    const char *why = rc == 1 ? "it sent an unexpected message" : rc == 0 ? "it ended" : strerror(-rc);
    return error_set(err, rc < 0 ? rc : -EPIPE, "%s process: %s while it was started; run it again, and report it if it lasts",
                     role_name(role->kind), why);
}

int role_send(struct role *role, enum ipc_type type, const void *body, size_t len, const int *fds, size_t fd_count,
              struct error *err) {
    int rc = channel_send(role->channel, type, body, len, fds, fd_count);
    if (rc < 0) return error_set(err, rc, "%s process: message not taken: %s", role_name(role->kind), strerror(-rc));
    return 0;
}

void role_kill(struct role *role) {
    if (role->pid > 0) kill(role->pid, SIGKILL);
}

void role_stop(struct role *role, int timeout_ms) {
    if (role->channel >= 0 && role->pid > 0) close(role->channel);
    if (role->pid <= 0) return;
    struct pollfd gone = {.fd = role->pidfd, .events = POLLIN};
    if (role->pidfd < 0 || poll(&gone, 1, timeout_ms) <= 0) kill(role->pid, SIGKILL); // a signal is as good as the time
    while (waitpid(role->pid, NULL, 0) < 0 && errno == EINTR) continue;
    if (role->pidfd >= 0) close(role->pidfd);
    *role = (struct role){.kind = role->kind, .pidfd = -1, .channel = -1};
}
