// SPDX-License-Identifier: Apache-2.0
// The lines of a log as an answer. What is read at a time is bounded, no more is read than the client takes, and a line that
// is not whole yet waits. With follow=1 the file is looked at again every POLL_MS, by its name, since it is rotated by
// renaming; it ends when the sandbox's row is gone.
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/api_state.h"
#include "base/mem.h"

#define POLL_MS 100
#define POLLS_A_LOOK 10 // at the store
#define READ_SIZE 65536
#define TURN_MAX (1 << 20)
#define LINE_MAX_BYTES (256 << 10)

struct api_follow {
    struct event *timer;
    char *path;
    int fd;
    struct stat file; // that fd is
    struct buf rest;  // of a line that is not whole
    unsigned polls;
    bool passing; // over a line that is too long
};

void follow_free(struct api_call *call) {
    struct api_follow *follow = call->follow;
    if (!follow) return;
    if (follow->timer) event_free(follow->timer);
    if (follow->fd >= 0) close(follow->fd);
    buf_done(&follow->rest);
    free(follow->path);
    free(follow);
    call->follow = NULL;
}

static void open_file(struct api_follow *follow) {
    follow->fd = open(follow->path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (follow->fd >= 0 && fstat(follow->fd, &follow->file) == 0 && S_ISREG(follow->file.st_mode)) return;
    if (follow->fd >= 0) close(follow->fd);
    follow->fd = -1;
}

// The file of that name is another one now, and the old one has been read.
static bool was_rotated(const struct api_follow *follow) {
    struct stat now;
    return stat(follow->path, &now) == 0 && (now.st_ino != follow->file.st_ino || now.st_dev != follow->file.st_dev);
}

static bool is_denial(const char *line, size_t len) {
    static const char mark[] = "\"verdict\":\"deny\"";
    return memmem(line, len, mark, sizeof(mark) - 1) != NULL;
}

// Writes the whole lines of rest; what waits for the client.
static size_t write_lines(struct api_call *call) {
    struct api_follow *follow = call->follow;
    struct buf *rest = &follow->rest, lines = BUF_INIT;
    size_t at = 0;
    for (const char *end; at < rest->len && (end = memchr(rest->data + at, '\n', rest->len - at));) {
        size_t len = (size_t)(end - rest->data) + 1 - at;
        if (!follow->passing && (!call->want_denied || is_denial(rest->data + at, len)))
            buf_append(&lines, rest->data + at, len);
        follow->passing = false;
        at += len;
    }
    buf_consume(rest, at);
    if (rest->len > LINE_MAX_BYTES) {
        rest->len = 0;
        follow->passing = true;
    }
    size_t pending = call_write(call, lines.data, lines.len);
    buf_done(&lines);
    return pending;
}

static bool sandbox_is_gone(struct api_call *call) {
    struct store_sandbox sandbox;
    if (call->follow->polls++ % POLLS_A_LOOK) return false;
    int r = store_sandbox_get(call->api->options.store, call->subject, &sandbox, NULL);
    if (r == 0) store_sandbox_done(&sandbox);
    return r == -ENOENT;
}

static void again(struct api_call *call, unsigned ms) {
    event_add(call->follow->timer, &(struct timeval){.tv_usec = ms * 1000});
}

// Nothing more is in the file now.
static void at_end(struct api_call *call) {
    struct api_follow *follow = call->follow;
    if (follow->fd < 0 || was_rotated(follow)) {
        bool missing = follow->fd < 0;
        if (!missing) close(follow->fd);
        open_file(follow);
        if (follow->fd >= 0 && !missing) { // the new one may have lines already
            again(call, 0);
            return;
        }
    }
    if (!call->want_follow || sandbox_is_gone(call))
        call_end(call);
    else
        again(call, POLL_MS);
}

static void pump(struct api_call *call) {
    struct api_follow *follow = call->follow;
    AUTO_FREE char *bytes = malloc(READ_SIZE);
    for (size_t turn = 0; bytes && turn < TURN_MAX;) {
        if (call_write(call, NULL, 0) > API_PENDING_MAX) return; // follow_drained goes on
        ssize_t got = follow->fd >= 0 ? read(follow->fd, bytes, READ_SIZE) : 0;
        if (got <= 0) {
            at_end(call);
            return;
        }
        buf_append(&follow->rest, bytes, (size_t)got);
        write_lines(call);
        turn += (size_t)got;
    }
    again(call, bytes ? 0 : POLL_MS);
}

static void on_timer(evutil_socket_t fd, short events, void *data) {
    (void)fd, (void)events;
    pump(data);
}

void follow_drained(struct api_call *call) {
    if (!event_pending(call->follow->timer, EV_TIMEOUT, NULL)) again(call, 0);
}

void api_reply_log(struct api_call *call, const char *path) {
    call->hooks = (struct api_hooks){0};
    if (!call->api) {
        api_reply_error(call, 500, "the server has ended"); // goes nowhere
        return;
    }
    struct api_follow *follow = NEW(struct api_follow);
    if (follow) {
        follow->fd = -1;
        follow->path = strdup(path);
        follow->timer = evtimer_new(call->api->options.base, on_timer, call);
        call->follow = follow;
    }
    if (!follow || !follow->path || !follow->timer) {
        follow_free(call);
        api_reply_error(call, 500, "out of memory");
        return;
    }
    open_file(follow);
    call_begin(call, "application/x-ndjson");
    again(call, 0);
}
