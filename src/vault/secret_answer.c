// SPDX-License-Identifier: Apache-2.0
// What the source says in a round: an open file, the output of a command, how it ended, or that there is nothing to be
// had.
#include <errno.h>
#include <event2/event.h>
#include <sys/wait.h>

#include "base/mem.h"
#include "vault/secret.h"
#include "vault/secure.h"

#define OUTPUT_SIZE (IPC_SECRET_MAX + 2) // with the end of a line

void secret_output_close(struct secret *secret) {
    if (secret->readable) event_free(TAKE_POINTER(secret->readable));
    if (secret->pipe >= 0) close(TAKE_FD(secret->pipe));
}

static void secret_output_read(evutil_socket_t fd, short what, void *data) {
    struct secret *secret = data;
    (void)what;
    while (secret->output_status == 0) {
        size_t room = OUTPUT_SIZE - secret->output_len;
        uint8_t more;
        ssize_t got = read(fd, room ? secret->output + secret->output_len : &more, room ? room : 1);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0 && errno == EAGAIN) return;
        if (got > 0 && room == 0)
            secret->output_status = -EFBIG;
        else if (got < 0)
            secret->output_status = -errno;
        if (got <= 0 || room == 0) break;
        secret->output_len += (size_t)got;
    }
    secret_output_close(secret); // a command that says too much learns it by SIGPIPE
}

static void secret_output_begin(struct secret *secret, int fd) {
    secret_output_close(secret);
    secret->pipe = fd;
    secret->output_len = 0;
    secret->output_status = 0;
    if (!secret->output) secret->output = secure_new(OUTPUT_SIZE);
    secret->readable =
        secret->output ? event_new(secret->pool->base, fd, EV_READ | EV_PERSIST, secret_output_read, secret) : NULL;
    if (secret->readable && event_add(secret->readable, NULL) == 0) return;
    secret->output_status = -ENOMEM;
    secret_output_close(secret);
}

static void secret_command_ended(struct secret *secret, int wait_status, uint64_t now_us) {
    if (secret->pipe >= 0) secret_output_read(secret->pipe, 0, secret); // it is all there now
    secret_output_close(secret);
    int status = wait_status < 0 ? wait_status : secret->output_status;
    if (status == 0 && (!WIFEXITED(wait_status) || WEXITSTATUS(wait_status) != 0)) status = -ECHILD;
    if (status == 0 && !secret->output) status = -ENOMEM;
    uint8_t *output = TAKE_POINTER(secret->output);
    secret_finish(secret, status, output, output ? secret_trim(output, secret->output_len) : 0, now_us);
}

static void secret_warn_open(struct secret *secret, const struct stat *file) {
    if (secret->kind != SECRET_FILE || !(file->st_mode & (S_IROTH | S_IWOTH | S_IWGRP))) return;
    char text[IPC_TEXT_SIZE];
    snprintf(text, sizeof(text), "warning: secret %.400s is open to others (mode %04o); chmod go-rwx it",
             secret->reference, file->st_mode & 07777);
    if (secret->epoch == 0) secret->pool->notice(text, secret->pool->data);
}

// fds: the file, or the store's key and the file.
static void secret_opened(struct secret *secret, const int *fds, uint64_t now_us) {
    struct stat file;
    bool stored = secret->kind == SECRET_STORE;
    int fd = fds[stored ? 1 : 0];
    if (fstat(fd, &file) < 0) {
        secret_finish(secret, -errno, NULL, 0, now_us);
        return;
    }
    uint8_t *value = secure_new(OUTPUT_SIZE);
    int r = value ? 0 : -ENOMEM;
    if (value && secret->value && secret_same_file(&file, &secret->file)) {
        memcpy(value, secret->value, secret->len);
        r = (int)secret->len;
    } else if (value) {
        secret_warn_open(secret, &file);
        r = stored ? secret_read_stored(fds[0], fd, secret->pool->owner, secret_place(secret), value)
                   : secret_read_file(fd, value);
        secret->file = file;
        // A file written just now can be written again within the same tick of its time stamp: not to be relied on.
        if (time(NULL) - file.st_ctim.tv_sec < 2) secret->file = (struct stat){0};
    }
    secret_finish(secret, r < 0 ? r : 0, value, r < 0 ? 0 : (size_t)r, now_us);
}

static bool secret_fits(const struct secret *secret, uint32_t type) {
    switch (secret->kind) {
    case SECRET_FILE:
        return type == IPC_SOURCE_FILE || type == IPC_SOURCE_END;
    case SECRET_STORE:
        return type == IPC_SOURCE_STORED || type == IPC_SOURCE_END;
    case SECRET_COMMAND:
        return type == IPC_SOURCE_OUTPUT || type == IPC_SOURCE_END;
    case SECRET_ENVIRONMENT:
        break;
    }
    return false;
}

static void secret_message(struct secret *secret, struct channel_message *message, int status, uint64_t now_us) {
    if (message->type == IPC_SOURCE_OUTPUT)
        secret_output_begin(secret, TAKE_FD(message->fds[0]));
    else if (message->type != IPC_SOURCE_END)
        secret_opened(secret, message->fds, now_us);
    else if (secret->kind == SECRET_COMMAND)
        secret_command_ended(secret, status, now_us);
    else
        secret_finish(secret, status < 0 ? status : -EIO, NULL, 0, now_us);
}

bool secret_pool_message(struct secret_pool *pool, struct channel_message *message, uint64_t now_us) {
    if (message->type < IPC_SOURCE_FILE || message->type > IPC_SOURCE_END) return false;
    struct ipc_source_answer answer;
    memcpy(&answer, message->body, sizeof(answer));
    LIST_FOREACH (&pool->secrets, node) {
        struct secret *secret = LIST_ENTRY(node, struct secret, link);
        if (answer.id == 0 || secret->asked != answer.id) continue;
        if (!secret_fits(secret, message->type)) return false;
        secret_message(secret, message, answer.status, now_us);
        break;
    }
    return true; // also the late answer to a round that was given up
}
