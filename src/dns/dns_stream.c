// SPDX-License-Identifier: Apache-2.0
// TCP connections to port 53 (RFC 7766): queries with a length in front, judged one by one, answered as they complete.
//
//   reading   queries are taken one by one from `in` while fewer than STREAM_OUTSTANDING_MAX are outstanding and little
//   is
//             waiting to be written: a client that does not read is not read from
//   ended     the client sent its last byte: what is outstanding is still answered, then the connection is closed
//   broken    a read or write failed, or a message was not a query: closed at the end of the turn
//
// The deadline is 10 s from the last query, answer or written byte; single bytes of a query do not count as life.
#include "dns/front.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <event2/event.h>

#include "base/buf.h"
#include "base/mem.h"
#include "net/net.h"

#define STREAM_OUTSTANDING_MAX 16
#define STREAM_IDLE_S 10
#define STREAM_QUERY_MAX 4096      // bytes: a question, padding (RFC 8467) and cookies are far below
#define STREAM_OUT_MAX (64 * 1024) // unread answers beyond which no further query is taken
#define STREAM_TURN_STEPS 4        // reads in one turn of the loop
#define PREFIX_SIZE 2

struct stream {
    struct list link;
    struct dns_front *front;
    struct addr server;
    int fd;
    struct event *readable, *writable, *idle;
    unsigned outstanding;
    bool ended, broken, running;
    struct buf out;
    size_t in_len;
    uint8_t in[PREFIX_SIZE + STREAM_QUERY_MAX];
};

static void stream_run(struct stream *stream);

static void stream_free(struct stream *stream) {
    struct dns_front *front = stream->front;
    dns_front_drop(front, stream);
    struct event *events[] = {stream->readable, stream->writable, stream->idle};
    for (size_t i = 0; i < ARRAY_LENGTH(events); i++)
        if (events[i]) event_free(events[i]);
    close(stream->fd);
    buf_done(&stream->out);
    list_remove(&stream->link);
    front->stream_count--;
    free(stream);
}

// 0 once it runs: only its first start needs memory.
static int stream_alive(struct stream *stream) {
    struct timeval deadline = {.tv_sec = STREAM_IDLE_S};
    return evtimer_add(stream->idle, &deadline);
}

static void stream_reply(const uint8_t *answer, size_t len, void *data) {
    struct stream *stream = data;
    stream->outstanding--;
    if (!answer)
        stream->broken = true; // not even a query: nothing sensible follows
    else {
        uint8_t prefix[PREFIX_SIZE] = {(uint8_t)(len >> 8), (uint8_t)len};
        buf_append(&stream->out, prefix, sizeof(prefix));
        buf_append(&stream->out, answer, len);
        if (stream->out.failed) stream->broken = true;
        stream_alive(stream);
    }
    if (!stream->running) stream_run(stream);
}

static bool may_take(const struct stream *stream) {
    return !stream->broken && !stream->front->paused && stream->outstanding < STREAM_OUTSTANDING_MAX && stream->out.len <= STREAM_OUT_MAX;
}

// Takes whole queries from what was read.
static void take_queries(struct stream *stream) {
    size_t used = 0;
    while (may_take(stream) && stream->in_len - used >= PREFIX_SIZE) {
        const uint8_t *start = stream->in + used;
        size_t len = (size_t)start[0] << 8 | start[1];
        if (len > STREAM_QUERY_MAX) {
            struct policy_decision bad = dns_front_denial(POLICY_DNS_BAD_MESSAGE);
            dns_front_log(stream->front, NULL, &stream->server, &bad);
            stream->broken = true;
            break;
        }
        if (stream->in_len - used < PREFIX_SIZE + len) break;
        used += PREFIX_SIZE + len;
        stream->outstanding++;
        stream_alive(stream);
        dns_front_ask(stream->front, true, start + PREFIX_SIZE, len, &stream->server, stream_reply, stream);
    }
    memmove(stream->in, stream->in + used, stream->in_len - used);
    stream->in_len -= used;
}

// True if there may be more to take.
static bool read_some(struct stream *stream) {
    if (stream->ended || !may_take(stream) || stream->in_len == sizeof(stream->in)) return false;
    ssize_t n = recv(stream->fd, stream->in + stream->in_len, sizeof(stream->in) - stream->in_len, MSG_DONTWAIT);
    if (n > 0)
        stream->in_len += (size_t)n;
    else if (n == 0)
        stream->ended = true;
    else if (errno != EAGAIN && errno != EINTR)
        stream->broken = true;
    return n > 0;
}

static void write_some(struct stream *stream) {
    if (stream->out.len == 0) return;
    ssize_t n = send(stream->fd, stream->out.data, stream->out.len, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n > 0) {
        buf_consume(&stream->out, (size_t)n);
        stream_alive(stream);
    } else if (n < 0 && errno != EAGAIN && errno != EINTR)
        stream->broken = true;
}

// Whether the next whole query, or what there is of it, is already here.
static bool has_query(const struct stream *stream) {
    return stream->in_len >= PREFIX_SIZE &&
           stream->in_len - PREFIX_SIZE >= ((size_t)stream->in[0] << 8 | stream->in[1]);
}

// False: out of memory.
static bool stream_watch(struct stream *stream) {
    bool reads = !stream->ended && may_take(stream), writes = stream->out.len > 0;
    int r = reads ? event_add(stream->readable, NULL) : event_del(stream->readable);
    return (writes ? event_add(stream->writable, NULL) : event_del(stream->writable)) == 0 && r == 0;
}

// One turn: takes, answers, writes, then waits for what it needs next. Frees the stream when it is through.
static void stream_run(struct stream *stream) {
    stream->running = true;
    int steps = 0;
    bool more;
    do {
        take_queries(stream);
        write_some(stream);
        more = !stream->broken && ((has_query(stream) && may_take(stream)) || read_some(stream));
    } while (more && ++steps < STREAM_TURN_STEPS);
    stream->running = false;
    if (more) event_active(stream->readable, EV_READ, 0); // others first: a client that feeds us for ever gets its turns
    bool through = stream->ended && stream->outstanding == 0 && stream->out.len == 0;
    if (stream->broken || through || !stream_watch(stream)) stream_free(stream);
}

static void stream_ready(evutil_socket_t fd, short what, void *data) {
    (void)fd, (void)what;
    stream_run(data);
}

static void stream_idle(evutil_socket_t fd, short what, void *data) {
    (void)fd, (void)what;
    stream_free(data);
}

static struct stream *stream_new(struct dns_front *front, int fd, const struct addr *server) {
    struct stream *stream = front->stream_count < FRONT_STREAMS_MAX ? NEW(struct stream) : NULL;
    if (!stream) return NULL;
    stream->front = front;
    stream->fd = fd;
    stream->server = *server;
    list_append(&front->streams, &stream->link);
    front->stream_count++;
    stream->readable = event_new(front->base, fd, EV_READ | EV_PERSIST, stream_ready, stream);
    stream->writable = event_new(front->base, fd, EV_WRITE | EV_PERSIST, stream_ready, stream);
    stream->idle = evtimer_new(front->base, stream_idle, stream);
    bool made = stream->readable && stream->writable && stream->idle;
    if (made && event_add(stream->readable, NULL) == 0 && stream_alive(stream) == 0) return stream;
    stream->fd = -1;
    stream_free(stream);
    return NULL;
}

void dns_front_stream(struct dns_front *front, int fd, const struct addr *server) {
    struct stream *stream = stream_new(front, fd, server);
    if (!stream) {
        struct policy_decision decision = dns_front_denial(POLICY_LIMIT_EXCEEDED);
        dns_front_log(front, NULL, server, &decision);
        relay_reset_fd(fd);
    }
}

void dns_front_pause(struct dns_front *front, bool paused) {
    if (!front) return;
    front->paused = paused;
    LIST_FOREACH (&front->streams, node) {
        struct stream *stream = LIST_ENTRY(node, struct stream, link);
        if (paused)
            event_del(stream->readable);
        else
            event_active(stream->readable, EV_READ, 0);
    }
}

void dns_stream_free_all(struct dns_front *front) {
    LIST_FOREACH (&front->streams, node) stream_free(LIST_ENTRY(node, struct stream, link));
}
