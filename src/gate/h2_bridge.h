// SPDX-License-Identifier: Apache-2.0
// HTTP/2 between a client and a server (RFC 9113), without sockets or clock: bytes of both sides go in, bytes for
// both come out. It owns two nghttp2 sessions and maps their streams one to one; its owner decides about each
// request.
//
// Everything that a side can make it hold has a number here; what it holds of bodies is bounded by the windows that it
// offers, since credit is given back only for bytes that have gone to the other side.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/list.h"
#include "gate/h2_head.h"
#include "gate/h2_memory.h"

#define H2_STREAMS_MAX 100             // open at a time, of a client
#define H2_WINDOW_STREAM 1048576       // bytes of a body that wait, a stream and direction
#define H2_WINDOW_ALL 2097152          // and all streams of a direction together
#define H2_WINDOW_STREAM_SMALL 65535   // the same where a sandbox has many connections
#define H2_WINDOW_ALL_SMALL 262144
#define H2_HEADS_MAX 1048576           // bytes of all heads and trailers that wait
#define H2_MEMORY_MAX 4194304          // bytes of nghttp2's own, a session: what was not written, above all
#define H2_MEMORY_MAX_SMALL 2097152
#define H2_MEMORY_FULL_SHARE 4         // a quarter of that: the other side is read no further
#define H2_QUEUE_MAX 256               // frames that wait for one side before the other is read no further
#define H2_FRAMES_BURST 4096           // frames that bring nothing further (PING, SETTINGS, ...): at once,
#define H2_FRAMES_SECOND 100           // each second,
#define H2_FRAMES_USEFUL 4             // and for each frame that does
#define H2_RESETS_BURST 200            // streams that end by a reset: at once,
#define H2_RESETS_SECOND 20            // and each second (CVE-2023-44487)
#define H2_INTERIM_MAX 32              // 1xx responses of a stream
#define H2_HEAD_US 30000000            // from the beginning of a header section to its end
#define H2_STALL_US 600000000          // a stream with bytes that nobody takes
#define H2_QUIET_US 400000000          // a side that is silent while the other keeps a stream alive gets a PING

enum h2_side { H2_CLIENT, H2_SERVER, H2_SIDES };

// Of a stream:
//   READING    its request's head is coming; the owner does not know it.
//   ASKED      the owner decides: h2_stream_forward, h2_stream_answer or h2_stream_reset. The body waits.
//   FORWARDED  it is open towards the server.
//   ANSWERED   the answer is ours; what the client still sends is thrown away.
enum h2_stream_state { H2_READING, H2_ASKED, H2_FORWARDED, H2_ANSWERED };

struct evbuffer;
struct injection;
struct injection_wait;
struct scrub;
struct h2_bridge;
struct h2_stream;

// What one side has sent of a message and the other has not got yet.
struct h2_body {
    struct h2_stream *stream;
    enum h2_side from;
    struct evbuffer *bytes;  // NULL: none yet
    struct h2_head trailers; // count 0: none
    struct scrub *scrub;     // NULL: as it came
    bool ended;              // all of it is here
    bool sent;               // and has gone on
    bool deferred;           // the other side's session waits for more
};

struct h2_stream {
    struct list link;        // in bridge->streams
    struct h2_bridge *bridge;
    enum h2_stream_state state;
    int32_t id[H2_SIDES];    // 0: there is none
    bool open[H2_SIDES], resetting[H2_SIDES];
    struct h2_head head;     // of the request, until it is forwarded
    struct h2_head incoming; // section of the server that is coming
    struct h2_head reserved; // names that the injection sets
    struct h2_body body[H2_SIDES]; // by who sends it
    struct injection *injection; // being sent or, for `scrub`, until the end
    struct injection_wait *wait; // the owner's
    uint64_t moved_us;       // when it last made progress
    unsigned interim;
    uint32_t reset_code;     // of the server, behind a response that is whole
    bool is_head, responded, allowed; // allowed: the owner's
};

struct h2_handlers {
    // A request's head is whole; stream->state is H2_ASKED.
    void (*request)(struct h2_stream *stream, void *data);
    // The stream is gone from one side or both: what waits for it is of no use any more. Maybe more than once.
    void (*closed)(struct h2_stream *stream, void *data);
    // The injection given with h2_stream_forward is not needed any more: the owner frees it.
    void (*wiped)(struct injection *injection, void *data);
    // A forwarded request gets no response, since the server's connection ended or what it sent is no HTTP/2: the
    // owner calls h2_stream_answer or h2_stream_reset.
    void (*failed)(struct h2_stream *stream, void *data);
    // More requests can be forwarded than before.
    void (*room)(void *data);
};

struct h2_allowance {
    uint64_t left; // millionths
    uint64_t at_us;
};

struct h2_bridge {
    const struct h2_handlers *handlers;
    void *data;
    nghttp2_session *sessions[H2_SIDES]; // server of the client, client of the server; NULL: no server
    struct h2_memory memory[H2_SIDES];
    struct h2_allowance frames[H2_SIDES], resets;
    uint64_t head_begun_us[H2_SIDES];    // of a header section that is not whole, 0: none
    uint64_t heard_us[H2_SIDES];         // when a side said something last
    uint64_t now_us;
    struct list streams, dead;
    size_t stream_count, forwarded_count;
    size_t heads_len;
    struct h2_budget *budget;            // of all bridges
    uint8_t *piece[H2_SIDES];            // that was given out last and holds values: wiped when it has gone
    size_t piece_len[H2_SIDES];
    bool secret[H2_SIDES];               // the frame being written holds values
    bool frame_sent[H2_SIDES];           // all of it was given out
    bool over[H2_SIDES];                 // that side sends no more
    bool half_closed;                    // the client's over is an orderly end: it still gets what it asked for
    bool refusing;                       // no new streams
    bool settled;                        // and no old ones: the server was told
    bool broken;                         // out of memory or a fault of nghttp2's: nothing can be said any more
};

// NULL: out of memory. small: its windows are the small ones. upstream: there is a server. The budget outlives it.
struct h2_bridge *h2_bridge_new(const struct h2_handlers *handlers, void *data, bool upstream, bool small,
                                struct h2_budget *budget, uint64_t now_us);
void h2_bridge_free(struct h2_bridge *bridge); // after nothing of h2_bridge_send is in use; NULL is fine

// Bytes of a side, all of which are used. Handlers are called from inside; they must not free the bridge.
// -ECONNABORTED: the side is over. -ENOMEM: bridge->broken.
int h2_bridge_receive(struct h2_bridge *bridge, enum h2_side side, const uint8_t *bytes, size_t len, uint64_t now_us);
// Whether bytes of the side are wanted now.
bool h2_bridge_wants(const struct h2_bridge *bridge, enum h2_side side);
// The next bytes for a side, valid until the next call for it: their number, 0: none now, negative: bridge->broken.
// *ret_secret: they hold values; to be written from where they are, and then h2_bridge_sent, before anything else.
ssize_t h2_bridge_send(struct h2_bridge *bridge, enum h2_side side, const uint8_t **ret_bytes, bool *ret_secret);
void h2_bridge_sent(struct h2_bridge *bridge, enum h2_side side);
// The side's connection has ended: orderly, so that what it asked for may still be answered, or not.
void h2_bridge_ended(struct h2_bridge *bridge, enum h2_side side, bool orderly);
// No new streams, and the end when the last one has ended. error_code: for the client, of RFC 9113 section 7.
void h2_bridge_shut(struct h2_bridge *bridge, uint32_t error_code);
// Now and then: ends what has made no progress for too long.
void h2_bridge_tick(struct h2_bridge *bridge, uint64_t now_us);
// Nothing more will happen: what is to be said has been given out.
bool h2_bridge_done(const struct h2_bridge *bridge);
// Whether one more request may be forwarded, with `waiting` others that will be.
bool h2_bridge_room(const struct h2_bridge *bridge, size_t waiting);

// ---- h2_stream.c ----

// The owner's decisions about a stream in H2_ASKED. injection stays in use until handlers->wiped; NULL or empty: none.
void h2_stream_forward(struct h2_stream *stream, struct injection *injection);
// A response of our own; body: text of the content type.
void h2_stream_answer(struct h2_stream *stream, unsigned status, const char *reason, const char *body, size_t len);
void h2_stream_reset(struct h2_stream *stream, enum h2_side side, uint32_t error_code);

// A head or trailers have grown by len bytes. False: that is too much of them, all together. And they are gone.
bool h2_bridge_hold(struct h2_bridge *bridge, size_t len);
void h2_bridge_release(struct h2_bridge *bridge, struct h2_head *head);

// For h2_bridge.c.
struct h2_stream *h2_stream_new(struct h2_bridge *bridge, int32_t id); // NULL: out of memory
void h2_stream_free(struct h2_stream *stream);
void h2_stream_headers(struct h2_stream *stream, enum h2_side from, bool end); // a section is whole
bool h2_stream_data(struct h2_stream *stream, enum h2_side from, const uint8_t *bytes, size_t len); // false: no memory
void h2_stream_end(struct h2_stream *stream, enum h2_side from);  // END_STREAM
void h2_stream_closed(struct h2_stream *stream, enum h2_side side, uint32_t error_code);
void h2_stream_sent_end(struct h2_stream *stream, enum h2_side to); // END_STREAM has gone to that side
void h2_stream_sent_head(struct h2_stream *stream); // towards the server, or never will
