// SPDX-License-Identifier: Apache-2.0
// One sandboxed command: penstock -> bwrap -> the sandbox's init (PID 1 inside) -> the command.
//
// Three steps: what is needed is made; bubblewrap and the init are started, which takes a while and needs only the
// namespaces; the command is released, when everything else is ready. The release ends when the init reports that the command was executed, or why not; bubblewrap's own messages are captured
// until then, so every failure is one error of ours. After it, the report socket tells of stops and of the end. bwrap
// and the init have all signals blocked: a Ctrl-C of the terminal is for the command alone to answer. The command's
// PID, as we see it, comes from the kernel with its first report; it is held by a pidfd, so that a signal never reaches
// a process that took the number later.
#include "sandbox/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/mem.h"
#include "sandbox/interpreter.h"
#include "sandbox/launch.h"
#include "sandbox/report.h"
#include "sandbox/tool.h"

#define START_TIMEOUT_US UINT64_C(60000000)
#define MESSAGES_MAX 4096

struct sandbox_process {
    pid_t helper; // bwrap
    int helper_pidfd;
    int command_pidfd; // -1: not known, or it ended before we looked
    int reports;       // socket
    int messages;      // from standard error of all until the command runs; -1: it does
    int exited;        // wait status of the command, or -1
    int stopped;       // signal that stopped the command, or 0
    bool adopting;     // what bubblewrap leaves is our child
    struct launch launch;
};

int sandbox_process_check(const struct sandbox_spec *spec, struct error *err) {
    struct launch launch;
    int r = launch_check(&launch, spec, err);
    launch_done(&launch);
    return r;
}

// ---- reports ----

// Takes one report. Returns its kind, 0 at the end, or a negative errno. *ret_value may be NULL.
static int take_report(struct sandbox_process *process, int *ret_value) {
    struct sandbox_report report;
    pid_t pid = 0;
    int r = report_receive(process->reports, 0, &report, &pid);
    if (r <= 0) return r;
    if (ret_value) *ret_value = report.value;
    switch ((enum sandbox_report_kind)report.kind) {
    case SANDBOX_REPORT_COMMAND:
        if (process->command_pidfd < 0 && pid > 0) process->command_pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
        break;
    case SANDBOX_REPORT_STOPPED:
        process->stopped = report.value;
        break;
    case SANDBOX_REPORT_CONTINUED:
        process->stopped = 0;
        break;
    case SANDBOX_REPORT_EXITED:
        process->exited = report.value;
        process->stopped = 0;
        break;
    case SANDBOX_REPORT_STARTED:
    case SANDBOX_REPORT_FAILED:
        break;
    }
    return (int)report.kind;
}

static void take_reports(struct sandbox_process *process) {
    while (take_report(process, NULL) > 0) {
    }
}

// ---- start ----

// bubblewrap's complaint without its name and line end.
static const char *first_message(struct buf *messages) {
    if (!messages->data || !messages->len) return "it ended without a message";
    messages->data[strcspn(messages->data, "\n")] = '\0';
    return strncmp(messages->data, "bwrap: ", 7) == 0 ? messages->data + 7 : messages->data;
}

static int setup_failed(int messages_fd, struct error *err) {
    struct buf messages = BUF_INIT;
    fcntl(messages_fd, F_SETFL, O_NONBLOCK);
    char chunk[MESSAGES_MAX];
    ssize_t n = read(messages_fd, chunk, sizeof(chunk));
    if (n > 0) buf_append(&messages, chunk, (size_t)n);
    int r = error_set(err, -EIO, "the sandbox cannot be set up: %s; see 'penstock doctor'", first_message(&messages));
    buf_done(&messages);
    return r;
}

static int interpreter_missing(const struct launch *launch, const char *name, struct error *err) {
    char interpreter[INTERPRETER_SIZE];
    if (!interpreter_missing_of(launch->command, &launch->exposure, interpreter))
        return error_set(err, -ENOENT, "\"%s\" cannot be executed in the sandbox: it, or its interpreter, is not there",
                         name);
    const char *advice = "install it, or correct the file's first line";
    if (interpreter[0] && interpreter[strlen(interpreter) - 1] == '\r')
        advice = "the file's lines end as on Windows (CRLF): remove the carriage returns (dos2unix)";
    else if (access(interpreter, F_OK) == 0)
        advice = "it is on the host: name its folder with --read";
    return error_set(err, -ENOENT, "\"%s\" cannot be executed: its interpreter \"%s\" is not there in the sandbox; %s", name,
                     interpreter, advice);
}

static int execute_failed(const struct launch *launch, int error, struct error *err) {
    const struct sandbox_spec *spec = launch->spec;
    if (error == ENOENT) return interpreter_missing(launch, spec->argv[0], err);
    return error_set(err, -EACCES, "\"%s\" cannot be executed in the sandbox: %s", spec->argv[0], strerror(error));
}

// While it makes a sandbox what it leaves is ours: without it, its child would wait for ever, with our standard error.
static void adopt_orphans(struct sandbox_process *process, bool adopt) {
    process->adopting = adopt;
    prctl(PR_SET_CHILD_SUBREAPER, adopt, 0, 0, 0);
}

static void end_orphans(void) {
    struct buf text = BUF_INIT;
    char path[64], name[16], *place = NULL;
    char *rest = tool_children(&text) ? text.data : NULL;
    for (char *one = rest ? strtok_r(rest, " ", &place) : NULL; one; one = strtok_r(NULL, " ", &place)) {
        struct buf comm = BUF_INIT;
        pid_t pid = (pid_t)strtol(one, NULL, 10);
        snprintf(path, sizeof(path), "/proc/%d/comm", pid);
        bool ours = pid > 0 && buf_read_file(&comm, path, sizeof(name)) == 0 && comm.data && strcmp(comm.data, "bwrap\n") == 0;
        buf_done(&comm);
        if (!ours) continue;
        kill(pid, SIGKILL); // our child until we wait for it
        waitpid(pid, NULL, 0);
    }
    buf_done(&text);
}

// bubblewrap has ended while its child has the other end of the socket.
static int helper_failed(const struct sandbox_process *process, int messages, struct error *err) {
    siginfo_t info = {0};
    waitid(P_PIDFD, (id_t)process->helper_pidfd, &info, WEXITED | WNOHANG | WNOWAIT);
    if (info.si_code == CLD_EXITED) return setup_failed(messages, err); // it has said why
    return error_set(err, -EIO, "the sandbox cannot be set up: bubblewrap was ended by signal %d (%s); run it again", info.si_status,
                     strsignal(info.si_status));
}

// Waits for the report that decides.
static int await_command(struct sandbox_process *process, const struct launch *launch, int messages,
                         struct error *err) {
    for (uint64_t end = clock_us() + START_TIMEOUT_US; clock_us() < end;) {
        struct pollfd ready[] = {{.fd = process->reports, .events = POLLIN}, {.fd = process->helper_pidfd, .events = POLLIN}};
        if (poll(ready, ARRAY_LENGTH(ready), 1000) <= 0) continue;
        if (!ready[0].revents) return helper_failed(process, messages, err);
        int value = 0, kind = take_report(process, &value);
        if (kind == SANDBOX_REPORT_STARTED) return 0;
        if (kind == SANDBOX_REPORT_FAILED) return execute_failed(launch, value, err);
        if (kind == 0) return setup_failed(messages, err);
        if (kind < 0 && kind != -EAGAIN && kind != -EINTR)
            return error_set(err, kind, "the sandbox does not answer: %s", strerror(-kind));
    }
    return error_set(err, -ETIMEDOUT,
                     "the sandbox was not set up within %u seconds; is a shared folder on a server that hangs?",
                     (unsigned)(START_TIMEOUT_US / 1000000));
}

// All signals are blocked across the fork, so that no handler of ours runs in the child.
static pid_t fork_helper(const struct launch *launch, struct launch_child *child) {
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &child->mask);
    sigset_t old = child->mask;
    if (launch->spec->signal_mask) child->mask = *launch->spec->signal_mask;
    pid_t pid = fork();
    if (pid == 0) launch_run(launch, child);
    int error = errno;
    sigprocmask(SIG_SETMASK, &old, NULL);
    return pid < 0 ? -error : pid;
}

// The report socket: ret_reports stays here, the other end goes into the sandbox.
static int report_pair(int *ret_reports, int *ret_status) {
    int pair[2], on = 1;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0) return -errno;
    if (setsockopt(pair[0], SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) < 0) {
        int error = errno;
        close(pair[0]);
        close(pair[1]);
        return -error;
    }
    *ret_reports = pair[0];
    *ret_status = pair[1];
    return 0;
}

int sandbox_process_prepare(const struct sandbox_spec *spec, struct sandbox_process **ret_process, struct error *err) {
    struct sandbox_process *process = NEW(struct sandbox_process);
    if (!process) return error_set(err, -ENOMEM, "out of memory");
    *process = (struct sandbox_process){
        .helper = -1, .helper_pidfd = -1, .command_pidfd = -1, .reports = -1, .messages = -1, .exited = -1};
    int r = launch_prepare(&process->launch, spec, err);
    if (r < 0) sandbox_process_free(process);
    else *ret_process = process;
    return r;
}

int sandbox_process_begin(struct sandbox_process *process, int user_namespace, int net_namespace, struct error *err) {
    struct launch_child child = {
        .user_namespace = user_namespace, .net_namespace = net_namespace, .status = -1, .messages = -1};
    int messages[2];
    int r = report_pair(&process->reports, &child.status);
    if (r == 0 && pipe2(messages, O_CLOEXEC) < 0) {
        r = -errno;
        close(child.status);
    }
    if (r < 0) return error_set(err, r, "no channel to the sandbox: %s", strerror(-r));
    process->messages = messages[0];
    child.messages = messages[1];
    adopt_orphans(process, true);
    process->helper = fork_helper(&process->launch, &child);
    close(child.status);
    close(messages[1]);
    if (process->helper < 0)
        return error_set(err, process->helper, "no process for the sandbox: %s", strerror(-process->helper));
    process->helper_pidfd = (int)syscall(SYS_pidfd_open, process->helper, 0);
    return 0;
}

int sandbox_process_release(struct sandbox_process *process, struct error *err) {
    // If the other side is gone, the wait tells why.
    (void)!send(process->reports, "", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
    int r = await_command(process, &process->launch, process->messages, err);
    close(TAKE_FD(process->messages));
    launch_done(&process->launch);
    if (r == 0) adopt_orphans(process, false);
    return r;
}

int sandbox_process_start(const struct sandbox_spec *spec, int user_namespace, int net_namespace,
                          struct sandbox_process **ret_process, struct error *err) {
    struct sandbox_process *process;
    int r = sandbox_process_prepare(spec, &process, err);
    if (r < 0) return r;
    r = sandbox_process_begin(process, user_namespace, net_namespace, err);
    if (r == 0) r = sandbox_process_release(process, err);
    if (r < 0) sandbox_process_free(process);
    else *ret_process = process;
    return r;
}

// ---- life ----

pid_t sandbox_process_pid(const struct sandbox_process *process) { return process->helper; }

int sandbox_process_fd(const struct sandbox_process *process) { return process->reports; }

int sandbox_process_signal(struct sandbox_process *process, int number) {
    if (process->command_pidfd < 0) return -ESRCH;
    return syscall(SYS_pidfd_send_signal, process->command_pidfd, number, NULL, 0) < 0 ? -errno : 0;
}

// A stop that came and went (Ctrl-Z and fg reach the whole group at once) may still be in the queue: it counts only if
// it is the last word for a moment.
static bool still_stopped(struct sandbox_process *process) {
    struct pollfd more = {.fd = process->reports, .events = POLLIN};
    if (process->stopped && poll(&more, 1, 20) > 0) take_reports(process);
    return process->stopped != 0;
}

int sandbox_process_observe(struct sandbox_process *process) {
    int value, kind;
    while ((kind = take_report(process, &value)) > 0) {
    }
    if (kind == 0) return 0;
    return still_stopped(process) ? 2 : 1;
}

void sandbox_process_resume(struct sandbox_process *process) {
    process->stopped = 0;
    sandbox_process_signal(process, SIGCONT);
}

int sandbox_process_dispatch(struct sandbox_process *process) {
    int state = sandbox_process_observe(process);
    if (state == 2) {
        raise(SIGSTOP); // here the caller's shell takes over, until it continues us
        sandbox_process_resume(process);
    }
    return state > 0;
}

int sandbox_process_status(struct sandbox_process *process, int wait_status) {
    take_reports(process);
    int status = process->exited >= 0 ? process->exited : wait_status;
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

void sandbox_process_free(struct sandbox_process *process) {
    if (!process) return;
    if (process->helper_pidfd >= 0) {
        siginfo_t info;
        // Not released: the init ends by itself once it sees that nobody will. bubblewrap killed while it makes the sandbox
        // could leave its child waiting for it for ever.
        struct pollfd end = {.fd = process->helper_pidfd, .events = POLLIN};
        if (process->messages >= 0) {
            mem_close_pointer(&process->reports);
            process->reports = -1;
            poll(&end, 1, 2000);
        }
        syscall(SYS_pidfd_send_signal, process->helper_pidfd, SIGKILL, NULL, 0);
        waitid(P_PIDFD, (id_t)process->helper_pidfd, &info, WEXITED); // -ECHILD if the caller has waited for it
        close(process->helper_pidfd);
        if (process->adopting) end_orphans();
    }
    mem_close_pointer(&process->command_pidfd);
    mem_close_pointer(&process->reports);
    mem_close_pointer(&process->messages);
    launch_done(&process->launch);
    free(process);
}
