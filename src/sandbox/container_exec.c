// SPDX-License-Identifier: Apache-2.0
// A command in a container that runs: `crun exec --detach` starts our init in it, which becomes the command, a child of
// the caller. Whatever the container has made of its own files, of our init's path too, is executed with the container's
// rights, and what comes back over the socket is believed for messages only; the process is the one that crun has noted.
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/number.h"
#include "sandbox/cgroup.h"
#include "sandbox/container_plan.h"
#include "sandbox/container_state.h"
#include "sandbox/environment.h"
#include "sandbox/tool.h"

#define START_MAX (4 << 20)

struct start { // of the container: bundle/start
    struct buf text;
    const char *user, *cwd;
    char **environment;
};

static int read_start(const struct sandbox_container *container, struct start *start) {
    char path[4096];
    snprintf(path, sizeof(path), "%s/" CONTAINER_BUNDLE "/start", container->folder);
    int r = buf_read_file(&start->text, path, START_MAX);
    if (r < 0) return r;
    char *at = start->text.data, *end = at + start->text.len;
    size_t count = 0, used = 0;
    for (const char *byte = at; byte < end; byte++) count += *byte == '\0';
    if (count < 3) return -EBADMSG;
    at += strlen(at) + 1; // how many come before the environment: two
    start->user = at;
    at += strlen(at) + 1;
    start->cwd = at;
    start->environment = NEW_ARRAY(char *, count);
    if (!start->environment) return -ENOMEM;
    for (at += strlen(at) + 1; at < end; at += strlen(at) + 1) start->environment[used++] = at;
    return 0;
}

struct running {
    struct sandbox_container *container;
    const struct sandbox_exec *exec;
    struct start start;
    struct container_user user;
    char process[4096], pid[4096]; // files for crun
};

static int find_user(struct running *running, struct error *err) {
    char path[64];
    const struct sandbox_exec *exec = running->exec;
    snprintf(path, sizeof(path), "/proc/%d/root", running->container->pid);
    AUTO_CLOSE int root = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (root < 0 || sandbox_container_signal(running->container, 0) < 0)
        return error_set(err, -ESRCH, "the sandbox \"%s\" has ended; start it again", running->container->id);
    const char *name = exec->user && exec->user[0] ? exec->user : running->start.user;
    return container_user_find(root, name, &running->user, err);
}

static int write_words(const struct running *running, int words) {
    const struct sandbox_exec *exec = running->exec;
    char home[300];
    size_t count = 0;
    while (exec->environment && exec->environment[count]) count++;
    AUTO_FREE char **extra = NEW_ARRAY(char *, count + 2);
    if (!extra) return -ENOMEM;
    for (size_t i = 0; i < count; i++) extra[i] = exec->environment[i];
    snprintf(home, sizeof(home), "HOME=%s", running->user.home);
    if (exec->user && exec->user[0] && !environment_get(extra, "HOME")) extra[count] = home;
    AUTO_FREE char **environment = environment_merge(running->start.environment, false, extra);
    return environment ? container_words_write(words, false, exec->argv, environment) : -ENOMEM;
}

static int write_process(struct running *running, struct error *err) {
    const struct sandbox_exec *exec = running->exec;
    snprintf(running->process, sizeof(running->process), "%s/" CONTAINER_BUNDLE "/exec-%d-%u.json", running->container->folder,
             (int)getpid(), running->container->execs);
    snprintf(running->pid, sizeof(running->pid), "%s/" CONTAINER_BUNDLE "/exec-%d-%u.pid", running->container->folder,
             (int)getpid(), running->container->execs++);
    return container_config_process(&running->user, exec->cwd && exec->cwd[0] ? exec->cwd : running->start.cwd, running->process, err);
}

static void end_command(pid_t pid, int pidfd) {
    kill(pid, SIGKILL); // our child: the number is its until we wait
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) {
    }
    close(pidfd);
}

// The process is known before what crun has left is taken: it may have ended by now.
static int call_crun(const struct running *running, const int fds[5], pid_t *ret_pid, int *ret_pidfd, struct error *err) {
    char process[4200], pid[4200];
    snprintf(process, sizeof(process), "--process=%s", running->process);
    snprintf(pid, sizeof(pid), "--pid-file=%s", running->pid);
    char exec[] = "exec", detach[] = "--detach", preserve[] = "--preserve-fds=5";
    char *const arguments[] = {exec, detach, preserve, process, pid, running->container->id, NULL};
    int r = container_call(running->container, arguments, fds, 5, NULL, NULL, err);
    if (r < 0) return r;
    struct error why;
    tool_await(running->container->crun, -1);
    int named = container_child(running->pid, NULL, ret_pid, ret_pidfd, &why);
    if (named == 0) tool_leaves(running->container->crun, *ret_pid);
    r = sandbox_container_settle(running->container, err);
    if (r == 0 && named < 0) return error_set(err, named, "%s", why.text);
    if (r < 0 && named == 0) end_command(*ret_pid, *ret_pidfd);
    return r;
}

// A command that has ended but was not waited for keeps the container's PID namespace, so its end has to wait for them.
static int remember(struct sandbox_container *container, int pidfd) {
    siginfo_t info;
    size_t kept = 0;
    for (size_t i = 0; i < container->command_count; i++) {
        int command = container->commands[i];
        if (waitid(P_PIDFD, (id_t)command, &info, WEXITED | WNOHANG | WNOWAIT) < 0) close(command);
        else container->commands[kept++] = command;
    }
    container->command_count = kept;
    int *commands = reallocarray(container->commands, kept + 1, sizeof(*commands));
    if (!commands) return -ENOMEM;
    container->commands = commands;
    commands[container->command_count++] = pidfd;
    return 0;
}

// With the descriptors that crun hands on. Nobody is left if it fails.
static int start_command(struct running *running, int status, int fds[5], pid_t *ret_pid, struct error *err) {
    pid_t pid = 0;
    int pidfd = -1;
    int r = call_crun(running, fds, &pid, &pidfd, err);
    if (r < 0) return r;
    close(TAKE_FD(fds[0])); // its end is the init's alone now
    r = container_await(status, err);
    if (r == 0) r = container_verify(pid, running->container->pid, -1, err);
    if (r == 0) r = container_release(status, running->exec->argv[0], err);
    if (r == 0 && remember(running->container, pidfd) < 0) r = error_set(err, -ENOMEM, "out of memory");
    if (r == 0) {
        *ret_pid = pid;
        return 0;
    }
    end_command(pid, pidfd);
    return r;
}

// Who the container's root is for us: the second number of the map's only line.
static int host_root(pid_t pid, uint32_t *ret_base) {
    struct buf text = BUF_INIT;
    char path[64];
    uint64_t base = 0;
    snprintf(path, sizeof(path), "/proc/%d/uid_map", pid);
    int r = buf_read_file(&text, path, 4096);
    const char *at = r == 0 && text.data ? text.data : "";
    at += strspn(at, " ");
    at += strspn(at, "0123456789");
    at += strspn(at, " ");
    if (r == 0) r = number_parse(at, strspn(at, "0123456789"), CONTAINER_USERS, UINT32_MAX - CONTAINER_USERS, &base);
    buf_done(&text);
    *ret_base = (uint32_t)base;
    return r;
}

static int give_streams(const struct running *running, const int streams[3], struct error *err) {
    uint32_t base = 0;
    int r = running->exec->own ? host_root(running->container->pid, &base) : 0;
    for (int i = 0; r == 0 && i < 3; i++) {
        if (!(running->exec->own & 1U << i) || running->exec->stdio[i] < 0) continue;
        if (fchown(streams[i], base + running->user.uid, base + running->user.gid) < 0) r = -errno;
    }
    return r < 0 ? error_set(err, r, "standard streams cannot be given to the sandbox's user: %s", strerror(-r)) : 0;
}

static int run_command(struct running *running, pid_t *ret_pid, struct error *err) {
    int pair[2], words, streams[3];
    int r = container_channel(pair, &words, err);
    if (r < 0) return r;
    r = write_words(running, words);
    if (r < 0) error_set(err, r, "out of memory");
    else r = container_streams(running->exec->stdio, streams, err);
    if (r == 0) {
        int fds[5] = {pair[1], words, streams[0], streams[1], streams[2]};
        r = give_streams(running, streams, err);
        if (r == 0) r = start_command(running, pair[0], fds, ret_pid, err);
        pair[1] = fds[0];
        for (int i = 0; i < 3; i++) close(streams[i]);
    }
    close(pair[0]);
    mem_close_pointer(&pair[1]);
    close(words);
    return r;
}

int sandbox_container_exec(struct sandbox_container *container, const struct sandbox_exec *exec, pid_t *ret_pid,
                           struct error *err) {
    struct running running = {.container = container, .exec = exec};
    if (!exec->argv || !exec->argv[0]) return error_set(err, -EINVAL, "expected a command; name one");
    if (exec->cwd && exec->cwd[0] && (exec->cwd[0] != '/' || strlen(exec->cwd) >= CONTAINER_PATH_MAX))
        return error_set(err, -EINVAL, "expected an absolute working directory, got \"%s\"", exec->cwd);
    if (cgroup_is_frozen(container->id))
        return error_set(err, -EBUSY, "the sandbox \"%s\" is paused; resume it first", container->id);
    int r = read_start(container, &running.start);
    if (r < 0) error_set(err, r, "the start of \"%s\" is not known: %s", container->id, strerror(-r));
    if (r == 0) r = find_user(&running, err);
    if (r == 0) r = write_process(&running, err);
    if (r == 0) r = run_command(&running, ret_pid, err);
    if (running.process[0]) {
        unlink(running.process);
        unlink(running.pid);
    }
    free(running.start.environment);
    buf_done(&running.start.text);
    return r;
}
