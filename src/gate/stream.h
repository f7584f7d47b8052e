// SPDX-License-Identifier: Apache-2.0
// One end of a connection whose bytes the gate reads: a socket, plain or with TLS, and two buffers of plain text. What
// the HTTP relays are made of.
//
// Handlers are called from the loop only, never from inside a function of this header. What is read is bounded: a
// stream that holds STREAM_INPUT_MAX bytes reads no further until its owner has taken some. What is written is not: the
// owner looks at stream_output before it reads more from the other side.
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct event_base;
struct evbuffer;
struct meter;
struct ssl_st;
struct stream;

#define STREAM_INPUT_MAX 65536 // bytes; one TLS record more can be there

struct stream_handlers {
    void (*readable)(struct stream *stream, void *data); // there are more bytes in stream_input than before
    void (*written)(struct stream *stream, void *data);  // all that stream_push could not write at once has gone out now
    // After all bytes before it were told. 0: the peer's orderly end of what it sends (FIN; with TLS close_notify), the
    // other direction still works. Negative errno, once: -ECONNRESET; -EPROTO: bad TLS, or cut short without
    // close_notify; -ETIMEDOUT: neither direction has moved for idle_ms; -EDQUOT: bytes beyond the meter's budget.
    void (*ended)(struct stream *stream, int error, void *data);
};

// Takes fd (connected, non-blocking) and ssl (NULL: plain; else with its handshake done, its BIO on this socket) if it
// succeeds. Nothing is read until stream_read. NULL: out of memory, both are still the caller's.
struct stream *stream_new(struct event_base *base, int fd, struct ssl_st *ssl, unsigned idle_ms,
                          const struct stream_handlers *handlers, void *data);
// From now on these are called: it changed hands.
void stream_handle(struct stream *stream, const struct stream_handlers *handlers, void *data);
// What is read (the plain text) is counted and limited by this; the meter outlives it. way: an enum meter_way, whose header
// cannot stand in front of libevent's (both have LIST_ENTRY). Before the first read.
void stream_meter(struct stream *stream, struct meter *meter, int way);
// Closes it: with a reset if asked, else after what the kernel has. The memory goes at the end of the loop turn, and no
// handler is called any more. NULL is fine.
void stream_free(struct stream *stream, bool reset);
// Plain streams only: the socket, with the stream freed and its buffers thrown away.
int stream_take_fd(struct stream *stream);

struct evbuffer *stream_input(const struct stream *stream);  // its owner takes from the front
struct evbuffer *stream_output(const struct stream *stream); // its owner adds at the end, and then calls stream_push
// Whether bytes are wanted. False: out of memory. To be called again after taking bytes from a full input.
bool stream_read(struct stream *stream, bool wanted);
// Writes what can be written now; the rest goes out by itself, and then `written` is called. A failure is told by
// `ended`, later. False: out of memory.
bool stream_push(struct stream *stream);
// Bytes that must not stay in memory: written in front of whatever is added to the output later, behind what is there,
// from `bytes` itself, which must stay as it is until `done` is called (maybe from inside; also when the stream is
// freed before). One at a time: false, too, while there is another; `done` is called then as well.
bool stream_push_secret(struct stream *stream, const void *bytes, size_t len, void (*done)(void *data), void *data);
// After everything in the output has gone out: no more will come (TLS: close_notify, then FIN).
bool stream_shut(struct stream *stream);
// Another time after which it is idle, from now on. False: out of memory.
bool stream_idle_after(struct stream *stream, unsigned idle_ms);
bool stream_is_tls(const struct stream *stream);
