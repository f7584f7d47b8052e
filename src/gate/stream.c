// SPDX-License-Identifier: Apache-2.0
// A stream does its own socket calls on two events of the loop: bytes are written as soon as they are pushed, and only
// what the kernel does not take waits for an event; what is read goes into the buffer with one call as a rule (short
// reads need no second one, for the loop tells of more).
//
// What OpenSSL has taken from the socket no event tells of: it is read until nothing of it is left, and when reading
// was stopped with some there, the event is made active by hand.
//
// An event that is not wanted any more stays until it comes: mostly it is wanted again before that, and nothing was to
// do.
//
// Everything a function of the header finds out and its caller must be told (a failed write) is told by `wake`, an
// event that is only ever made active. It also frees the memory at the end.
//
// A failure of writing does not end the stream at once: the peer's last words (a server's answer to a body that it did
// not want) may be there to be read.
#include "gate/stream.h"

#include <errno.h>
#include <event2/buffer.h>
#include <event2/event.h>
#include <event2/event_struct.h>
#include <limits.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/meter.h"
#include "gate/tls_calls.h"
#include "net/net.h"

#define STREAM_STEP_SMALL 4096 // bytes a read asks for, until one is filled
#define STREAM_RECORD 16384    // bytes of a TLS record
#define STREAM_VECTORS 32

struct stream_secret {
    const uint8_t *bytes; // NULL: none
    size_t len, written;
    size_t before; // bytes of the output that go first
    void (*done)(void *data);
    void *data;
};

struct stream {
    struct event_base *base;
    struct evbuffer *input, *output;
    struct ssl_st *ssl;
    const struct stream_handlers *handlers;
    void *data;
    struct event reads, writes, wake, idle;
    struct stream_secret secret;
    struct meter *meter; // NULL: none
    struct meter_turn turn;
    uint64_t moved_us;
    size_t step;
    unsigned idle_ms;
    int fd, error; // error: of writing, negative errno
    enum meter_way way;
    bool wanted, full;     // full: reading stopped because of what is in the input
    bool reading, writing; // the event is added
    bool eof, shutting, shut, told, dead;
    bool owes;         // `written` is to be called
    bool write_reads;  // SSL_write waits for the socket to be readable
    bool read_writes;  // SSL_read waits for it to be writable
};

// ---- events ----

static bool stream_watch(struct event *event, bool *added, bool wanted) {
    if (*added || !wanted) return true;
    *added = event_add(event, NULL) == 0;
    return *added;
}

static bool stream_may_read(const struct stream *stream) {
    bool open = stream->wanted && !stream->eof && !stream->told;
    return open && !meter_turn_waits(&stream->turn) && evbuffer_get_length(stream->input) < STREAM_INPUT_MAX;
}

static bool stream_may_write(const struct stream *stream) {
    return !stream->error && (stream->owes || (stream->shutting && !stream->shut));
}

// Readers and writers of OpenSSL may each wait for the other direction of the socket.
static bool stream_waits_in(const struct stream *stream) {
    return (stream_may_read(stream) && !stream->read_writes) || (stream_may_write(stream) && stream->write_reads);
}

static bool stream_waits_out(const struct stream *stream) {
    return (stream_may_write(stream) && !stream->write_reads) || (stream_may_read(stream) && stream->read_writes);
}

static bool stream_balance(struct stream *stream) {
    return stream_watch(&stream->reads, &stream->reading, stream_waits_in(stream)) &&
           stream_watch(&stream->writes, &stream->writing, stream_waits_out(stream));
}

static void stream_unwatch(struct event *event, bool *added) {
    event_del(event);
    *added = false;
}

static void stream_wake(struct stream *stream) { event_active(&stream->wake, EV_TIMEOUT, 0); }

static void stream_secret_drop(struct stream *stream) {
    struct stream_secret secret = stream->secret;
    stream->secret = (struct stream_secret){0};
    if (secret.bytes) secret.done(secret.data);
}

static void stream_end(struct stream *stream, int error) {
    if (stream->told || stream->dead) return;
    if (error == 0) {
        if (stream->eof) return;
        stream->eof = true;
    } else {
        stream->told = true;
        stream->owes = false;
        stream->wanted = false;
        if (!stream->error) stream->error = error;
    }
    stream_balance(stream);
    stream->handlers->ended(stream, error, stream->data);
}

// ---- writing ----

static void stream_write_failed(struct stream *stream, int error) {
    stream->error = error;
    stream->owes = stream->shutting = false;
    evbuffer_drain(stream->output, evbuffer_get_length(stream->output));
    stream_secret_drop(stream);
    stream_wake(stream);
}

// SSL_get_error takes an error of an earlier call for its own. Mostly there is none, and looking is cheaper than clearing.
static void stream_forget_errors(void) {
    if (ERR_peek_error()) ERR_clear_error();
}

// What an SSL call that failed means: 0: later; negative errno: it is over.
static int stream_ssl_error(struct stream *stream, int result, bool *ret_other_way, bool writes) {
    int saved = errno;
    switch (SSL_get_error(stream->ssl, result)) {
    case SSL_ERROR_WANT_READ:
        *ret_other_way = writes;
        return 0;
    case SSL_ERROR_WANT_WRITE:
        *ret_other_way = !writes;
        return 0;
    case SSL_ERROR_SYSCALL:
        return saved == ECONNRESET || saved == EPIPE ? -ECONNRESET : saved == ETIMEDOUT ? -ETIMEDOUT : -EPROTO;
    default: // OpenSSL's numbers, not ours
        return -EPROTO;
    }
}

// How many of these bytes went out, 0: none now, or a negative errno.
static ssize_t stream_write_ssl(struct stream *stream, const void *bytes, size_t len) {
    stream_forget_errors();
    errno = 0;
    int written = SSL_write(stream->ssl, bytes, (int)len);
    stream->write_reads = false;
    return written > 0 ? written : stream_ssl_error(stream, written, &stream->write_reads, true);
}

static ssize_t stream_write_plain(struct stream *stream, struct iovec *vectors, size_t count) {
    struct msghdr message = {.msg_iov = vectors, .msg_iovlen = count};
    ssize_t sent = sendmsg(stream->fd, &message, MSG_NOSIGNAL);
    if (sent >= 0) return sent;
    if (errno == EAGAIN || errno == EINTR || errno == ENOBUFS) return 0;
    return errno == EPIPE ? -ECONNRESET : -errno;
}

// One record, or as much as one call takes; at most len bytes of the output.
static ssize_t stream_write_output(struct stream *stream, size_t len) {
    static uint8_t record[STREAM_RECORD];
    struct evbuffer_iovec vectors[STREAM_VECTORS];
    if (stream->ssl && len > STREAM_RECORD) len = STREAM_RECORD;
    int count = evbuffer_peek(stream->output, (ev_ssize_t)len, NULL, vectors, STREAM_VECTORS);
    if (count > STREAM_VECTORS) count = STREAM_VECTORS;
    size_t sum = 0;
    for (int i = 0; i < count; i++) {
        if (vectors[i].iov_len > len - sum) vectors[i].iov_len = len - sum;
        sum += vectors[i].iov_len;
    }
    if (!stream->ssl) return stream_write_plain(stream, vectors, (size_t)count);
    if (count == 1) return stream_write_ssl(stream, vectors[0].iov_base, sum);
    if (evbuffer_copyout(stream->output, record, len) != (ev_ssize_t)len) return -EIO;
    return stream_write_ssl(stream, record, len);
}

static ssize_t stream_write_secret(struct stream *stream) {
    struct stream_secret *secret = &stream->secret;
    size_t left = secret->len - secret->written;
    const uint8_t *bytes = secret->bytes + secret->written;
    struct iovec vector = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = left};
    ssize_t sent = stream->ssl ? stream_write_ssl(stream, bytes, left > STREAM_RECORD ? STREAM_RECORD : left)
                               : stream_write_plain(stream, &vector, 1);
    if (sent <= 0) return sent;
    secret->written += (size_t)sent;
    if (secret->written == secret->len) stream_secret_drop(stream);
    return sent;
}

static ssize_t stream_write_next(struct stream *stream) {
    size_t len = evbuffer_get_length(stream->output);
    if (stream->secret.bytes && stream->secret.before == 0) return stream_write_secret(stream);
    if (stream->secret.bytes) len = stream->secret.before;
    ssize_t sent = stream_write_output(stream, len);
    if (sent <= 0) return sent;
    evbuffer_drain(stream->output, (size_t)sent);
    if (stream->secret.bytes) stream->secret.before -= (size_t)sent;
    return sent;
}

static bool stream_waits(const struct stream *stream) {
    return evbuffer_get_length(stream->output) > 0 || stream->secret.bytes;
}

static void stream_close_direction(struct stream *stream) {
    if (stream->ssl) {
        stream_forget_errors();
        errno = 0;
        int rc = SSL_shutdown(stream->ssl);
        bool other = false;
        int error = rc < 0 ? stream_ssl_error(stream, rc, &other, true) : 0;
        if (rc < 0 && error == 0) return; // the alert waits for room
    }
    stream->shut = true;
    shutdown(stream->fd, SHUT_WR);
}

// Everything that can go now.
static void stream_flush(struct stream *stream) {
    ssize_t sent = 1;
    while (sent > 0 && stream_waits(stream)) {
        sent = stream_write_next(stream);
        if (sent > 0) stream->moved_us = clock_coarse_us();
    }
    if (sent < 0) stream_write_failed(stream, (int)sent);
    if (!stream->error && !stream_waits(stream) && stream->shutting && !stream->shut) stream_close_direction(stream);
}

bool stream_push(struct stream *stream) {
    if (stream->error) {
        evbuffer_drain(stream->output, evbuffer_get_length(stream->output));
        return true;
    }
    if (!stream->owes) stream_flush(stream); // else there is no room anyway
    if (!stream->error) stream->owes = stream_waits(stream);
    return stream_balance(stream);
}

bool stream_push_secret(struct stream *stream, const void *bytes, size_t len, void (*done)(void *data), void *data) {
    bool busy = stream->secret.bytes != NULL;
    if (stream->error || len == 0 || busy) {
        done(data);
        return !busy;
    }
    stream->secret = (struct stream_secret){
        .bytes = bytes, .len = len, .before = evbuffer_get_length(stream->output), .done = done, .data = data,
    };
    return stream_push(stream);
}

bool stream_shut(struct stream *stream) {
    if (stream->shutting || stream->error) return true;
    stream->shutting = true;
    if (!stream->owes) stream_flush(stream);
    if (!stream->error) stream->owes = stream_waits(stream);
    return stream_balance(stream);
}

// ---- reading ----

// Bytes read; 0: none now; -ENODATA: the end; another negative errno.
static ssize_t stream_receive(struct stream *stream, void *bytes, size_t len) {
    if (!stream->ssl) {
        ssize_t got = recv(stream->fd, bytes, len, 0);
        if (got > 0) return got;
        if (got == 0) return -ENODATA;
        return errno == EAGAIN || errno == EINTR ? 0 : -errno;
    }
    stream_forget_errors();
    errno = 0;
    int got = SSL_read(stream->ssl, bytes, (int)len);
    stream->read_writes = false;
    if (got > 0) return got;
    if (SSL_get_error(stream->ssl, got) == SSL_ERROR_ZERO_RETURN) return -ENODATA; // close_notify
    return stream_ssl_error(stream, got, &stream->read_writes, false);
}

// The budget is used up: a byte is one too many, an end is not. Never positive.
static ssize_t stream_over_budget(struct stream *stream) {
    uint8_t byte;
    ssize_t got = stream_receive(stream, &byte, 1);
    return got > 0 ? -EDQUOT : got;
}

// Into the input, up to its limit; the same results, the sum where bytes came.
static ssize_t stream_fill(struct stream *stream) {
    size_t sum = 0;
    for (;;) {
        size_t have = evbuffer_get_length(stream->input);
        size_t len = have < STREAM_INPUT_MAX ? STREAM_INPUT_MAX - have : 0;
        stream->full = len == 0;
        if (stream->full) return (ssize_t)sum;
        if (len > stream->step) len = stream->step;
        ssize_t allowed = stream->meter ? meter_ask(stream->meter, stream->way, &stream->turn, len) : (ssize_t)len;
        if (allowed < 0) return stream_over_budget(stream);
        if (allowed == 0) return (ssize_t)sum;
        len = (size_t)allowed;
        struct evbuffer_iovec vector;
        if (evbuffer_reserve_space(stream->input, (ev_ssize_t)len, &vector, 1) != 1) return -ENOMEM;
        ssize_t got = stream_receive(stream, vector.iov_base, len);
        if (got <= 0) return sum > 0 && got == 0 ? (ssize_t)sum : got;
        if (stream->meter) meter_take(stream->meter, stream->way, (size_t)got);
        vector.iov_len = (size_t)got;
        evbuffer_commit_space(stream->input, &vector, 1);
        sum += (size_t)got;
        bool filled = (size_t)got == len;
        stream->step = filled ? STREAM_INPUT_MAX : STREAM_STEP_SMALL;
        if (!filled && (!stream->ssl || !SSL_has_pending(stream->ssl))) return (ssize_t)sum;
    }
}

// Reads, and tells what came. After the end of a stream nothing is touched: its owner may have freed what it is part
// of.
static void stream_take(struct stream *stream) {
    size_t had = evbuffer_get_length(stream->input);
    ssize_t result = stream_fill(stream);
    if (evbuffer_get_length(stream->input) > had) {
        stream->moved_us = clock_coarse_us();
        stream->handlers->readable(stream, stream->data);
        if (stream->dead) return;
    }
    if (result < 0) stream_end(stream, result == -ENODATA ? 0 : (int)result);
    if (!stream->dead && !stream_balance(stream)) stream_end(stream, -ENOMEM);
}

// It may have stopped wanting any while it waited; stream_read looks again.
static void stream_resumed(struct meter_turn *turn) {
    struct stream *stream = LIST_ENTRY(turn, struct stream, turn);
    if (!stream_may_read(stream)) return;
    stream->moved_us = clock_coarse_us();
    stream_take(stream);
}

static void stream_unbury(struct stream *stream) {
    evbuffer_free(stream->input);
    evbuffer_free(stream->output);
    free(stream);
}

static void stream_woken(evutil_socket_t fd, short what, void *data) {
    (void)fd;
    (void)what;
    struct stream *stream = data;
    if (stream->dead) {
        stream_unbury(stream);
        return;
    }
    if (!stream->error || stream->told) return;
    if (!stream->eof) stream_take(stream); // the last words
    if (stream->dead || stream->told) return;
    bool more = stream->wanted && evbuffer_get_length(stream->input) >= STREAM_INPUT_MAX;
    if (!more) stream_end(stream, stream->error);
}

static void stream_written(struct stream *stream) {
    stream_flush(stream);
    bool went = stream->owes && !stream->error && !stream_waits(stream);
    if (went) stream->owes = false;
    if (!stream_balance(stream)) stream_end(stream, -ENOMEM);
    else if (went) stream->handlers->written(stream, stream->data);
}

static void stream_readable(evutil_socket_t fd, short what, void *data) {
    (void)fd;
    (void)what;
    struct stream *stream = data;
    if (!stream_waits_in(stream)) {
        stream_unwatch(&stream->reads, &stream->reading);
        return;
    }
    if (stream->write_reads && !stream->error) stream_written(stream);
    if (!stream->dead && !stream->told && stream->wanted && !stream->eof) stream_take(stream);
}

static void stream_writable(evutil_socket_t fd, short what, void *data) {
    (void)fd;
    (void)what;
    struct stream *stream = data;
    if (!stream_waits_out(stream)) {
        stream_unwatch(&stream->writes, &stream->writing);
        return;
    }
    if (stream->read_writes && stream->wanted && !stream->eof) stream_take(stream);
    if (!stream->dead && !stream->error && !stream->told) stream_written(stream);
    // Unlike bytes to read, room comes at once and would wake the loop for nothing.
    if (!stream->dead && !stream_waits_out(stream)) stream_unwatch(&stream->writes, &stream->writing);
}

// ---- idleness: one timer that is set again when it fires, not at each byte ----

static void stream_idle(evutil_socket_t fd, short what, void *data) {
    (void)fd;
    (void)what;
    struct stream *stream = data;
    if (meter_turn_waits(&stream->turn)) stream->moved_us = clock_coarse_us();
    uint64_t now = clock_coarse_us(), until = stream->moved_us + (uint64_t)stream->idle_ms * 1000;
    if (now >= until) {
        stream_end(stream, -ETIMEDOUT);
        return;
    }
    uint64_t left = until - now;
    struct timeval after = {.tv_sec = (time_t)(left / 1000000), .tv_usec = (suseconds_t)(left % 1000000)};
    if (event_add(&stream->idle, &after) < 0) stream_end(stream, -ENOMEM);
}

bool stream_idle_after(struct stream *stream, unsigned idle_ms) {
    struct timeval after = {.tv_sec = idle_ms / 1000, .tv_usec = (suseconds_t)(idle_ms % 1000) * 1000};
    stream->idle_ms = idle_ms;
    stream->moved_us = clock_coarse_us();
    return event_add(&stream->idle, &after) == 0;
}

// ---- life ----

struct stream *stream_new(struct event_base *base, int fd, struct ssl_st *ssl, unsigned idle_ms,
                          const struct stream_handlers *handlers, void *data) {
    struct stream *stream = NEW(struct stream);
    if (!stream) return NULL;
    stream->base = base;
    stream->fd = fd;
    stream->ssl = ssl;
    stream->handlers = handlers;
    stream->data = data;
    stream->step = STREAM_STEP_SMALL;
    meter_turn_init(&stream->turn, stream_resumed);
    stream->input = evbuffer_new();
    stream->output = evbuffer_new();
    event_assign(&stream->reads, base, fd, EV_READ | EV_PERSIST, stream_readable, stream);
    event_assign(&stream->writes, base, fd, EV_WRITE | EV_PERSIST, stream_writable, stream);
    event_assign(&stream->wake, base, -1, 0, stream_woken, stream);
    evtimer_assign(&stream->idle, base, stream_idle, stream);
    if (stream->input && stream->output && stream_idle_after(stream, idle_ms)) return stream;
    if (stream->input) evbuffer_free(stream->input);
    if (stream->output) evbuffer_free(stream->output);
    free(stream);
    return NULL;
}

void stream_handle(struct stream *stream, const struct stream_handlers *handlers, void *data) {
    stream->handlers = handlers;
    stream->data = data;
}

void stream_meter(struct stream *stream, struct meter *meter, int way) {
    stream->meter = meter;
    stream->way = (enum meter_way)way;
}

static int stream_release(struct stream *stream) {
    if (stream->meter) meter_leave(stream->meter, stream->way, &stream->turn);
    event_del(&stream->reads);
    event_del(&stream->writes);
    event_del(&stream->idle);
    stream_secret_drop(stream);
    stream->dead = true;
    stream_wake(stream);
    return TAKE_FD(stream->fd);
}

void stream_free(struct stream *stream, bool reset) {
    if (!stream) return;
    // A peer must not take an end for an orderly one while something is missing.
    bool whole = !reset && !stream->error && !stream->told && !stream_waits(stream);
    if (stream->ssl && whole && !stream->shut) {
        stream_forget_errors();
        SSL_shutdown(stream->ssl);
    }
    if (stream->ssl) SSL_free(TAKE_POINTER(stream->ssl));
    int fd = stream_release(stream);
    if (reset) relay_reset_fd(fd);
    else close(fd);
}

int stream_take_fd(struct stream *stream) { return stream_release(stream); }

struct evbuffer *stream_input(const struct stream *stream) { return stream->input; }

struct evbuffer *stream_output(const struct stream *stream) { return stream->output; }

bool stream_read(struct stream *stream, bool wanted) {
    if (stream->told) return true;
    bool stopped = !stream->wanted || stream->full;
    stream->wanted = wanted;
    if (!stream_balance(stream)) return false;
    if (!stopped || !stream_may_read(stream)) return true;
    stream->full = false;
    // What no event of the socket tells of.
    if (stream->error) stream_wake(stream);
    else if (stream->ssl && SSL_has_pending(stream->ssl)) event_active(&stream->reads, EV_READ, 0);
    return true;
}

bool stream_is_tls(const struct stream *stream) { return stream->ssl != NULL; }
