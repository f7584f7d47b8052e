// SPDX-License-Identifier: Apache-2.0
// Two pipes from the command to us, whose ends are its end together with what the shim says of its status; its input is a
// memory file, so that nothing of ours waits for a command that does not read.
#include "daemon/node_exec.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/mem.h"

struct node_exec_pipe {
    struct node_exec *exec;
    struct event *event;
    int fd; // -1: it has ended
};

struct node_exec {
    struct node_sandbox *sandbox;
    struct node_exec_handlers handlers;
    void *data;
    struct node_exec_pipe pipes[2];
    bool exited;
    int status;
    char failure[IPC_SHIM_TEXT_SIZE];
};

static void exec_close(struct node_exec_pipe *pipe) {
    if (pipe->event) event_free(TAKE_POINTER(pipe->event));
    if (pipe->fd >= 0) close(TAKE_FD(pipe->fd));
}

static void exec_free(struct node_exec *exec) {
    for (size_t i = 0; i < 2; i++) exec_close(&exec->pipes[i]);
    free(exec);
}

static void exec_check_end(struct node_exec *exec) {
    if (!exec->exited || exec->pipes[0].fd >= 0 || exec->pipes[1].fd >= 0) return;
    if (exec->handlers.ended) exec->handlers.ended(exec->status, exec->failure, exec->data);
    exec_free(exec);
}

static void exec_readable(evutil_socket_t fd, short what, void *data) {
    (void)what;
    struct node_exec_pipe *pipe = data;
    struct node_exec *exec = pipe->exec;
    char bytes[32768];
    ssize_t got = read(fd, bytes, sizeof(bytes));
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got <= 0) {
        exec_close(pipe);
        exec_check_end(exec);
        return;
    }
    if (exec->handlers.output && !exec->handlers.output((int)(pipe - exec->pipes), bytes, (size_t)got, exec->data))
        for (size_t i = 0; i < 2; i++)
            if (exec->pipes[i].event) event_del(exec->pipes[i].event);
}

void node_exec_go_on(struct node_exec *exec) {
    for (size_t i = 0; i < 2; i++)
        if (exec->pipes[i].event) event_add(exec->pipes[i].event, NULL);
}

void node_exec_forget(struct node_exec *exec) {
    exec->handlers = (struct node_exec_handlers){0};
    for (size_t i = 0; i < 2; i++) exec_close(&exec->pipes[i]);
    exec_check_end(exec);
}

static void exec_fails(struct node_exec *exec, const char *text) {
    exec->exited = true;
    exec->status = -1;
    snprintf(exec->failure, sizeof(exec->failure), "%s", text);
    for (size_t i = 0; i < 2; i++) exec_close(&exec->pipes[i]);
    exec_check_end(exec);
}

static void exec_begun(const struct ipc_shim_done *done, void *data) {
    struct node_exec *exec = data;
    if (!done || done->status < 0) exec_fails(exec, done ? done->text : "the sandbox ended meanwhile");
}

static void exec_exited(int status, void *data) {
    struct node_exec *exec = data;
    if (status < 0) {
        exec_fails(exec, "the sandbox ended meanwhile");
        return;
    }
    exec->exited = true;
    exec->status = status;
    exec_check_end(exec);
}

static int exec_input(const void *bytes, size_t len) {
    AUTO_CLOSE int fd = memfd_create("penstock-input", MFD_CLOEXEC);
    for (size_t done = 0; fd >= 0 && done < len;) {
        ssize_t written = write(fd, (const char *)bytes + done, len - done);
        if (written < 0) return -errno;
        done += (size_t)written;
    }
    if (fd >= 0) lseek(fd, 0, SEEK_SET);
    return fd < 0 ? -errno : TAKE_FD(fd);
}

static int exec_pipe(struct node_exec *exec, size_t which, int *ret_other) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0) return -errno;
    *ret_other = ends[1];
    exec->pipes[which] = (struct node_exec_pipe){.exec = exec, .fd = ends[0]};
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    exec->pipes[which].event = event_new(exec->sandbox->node->base, ends[0], EV_READ | EV_PERSIST, exec_readable, &exec->pipes[which]);
    return exec->pipes[which].event && event_add(exec->pipes[which].event, NULL) == 0 ? 0 : -ENOMEM;
}

int node_exec_start(struct node_sandbox *sandbox, const struct node_command *command, const struct node_exec_handlers *handlers,
                    void *data, struct node_exec **ret_exec, struct error *err) {
    struct node_exec *exec = NEW(struct node_exec);
    AUTO_CLOSE int input = exec_input(command->input, command->input_len);
    AUTO_CLOSE int output = -1;
    AUTO_CLOSE int errors = -1;
    if (!exec || input < 0) {
        free(exec);
        return error_set(err, -ENOMEM, "out of memory");
    }
    *exec = (struct node_exec){.sandbox = sandbox, .handlers = *handlers, .data = data, .pipes = {{.fd = -1}, {.fd = -1}}};
    int rc = exec_pipe(exec, 0, &output);
    if (rc == 0) rc = exec_pipe(exec, 1, &errors);
    if (rc < 0) error_set(err, rc, "pipes for the command: %s", strerror(-rc));
    json_t *argument = json_pack("{s:O,s:O,s:s?,s:s?}", "argv", command->argv, "env", command->env, "cwd", command->cwd, "user",
                                 command->user);
    if (rc == 0 && !argument) rc = error_set(err, -EINVAL, "the command's words are not UTF-8");
    const int streams[3] = {input, output, errors};
    if (rc == 0) rc = shim_link_call(sandbox->link, IPC_SHIM_EXEC, argument, streams, exec_begun, exec_exited, exec, err);
    json_decref(argument);
    if (rc < 0) exec_free(exec);
    else if (ret_exec) *ret_exec = exec;
    return rc;
}
