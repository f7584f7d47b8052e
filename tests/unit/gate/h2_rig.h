// SPDX-License-Identifier: Apache-2.0
// A client, the bridge and a server in memory: real nghttp2 sessions at both ends, and notes of what each has seen.
#pragma once

#define H2_CALLS_PLAIN // the peers use nghttp2 as it is

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <event2/buffer.h>

#include "base/mem.h"
#include "gate/h2_bridge.h"

#define RIG_STREAMS 2048
#define RIG_OPEN SIZE_MAX // a body that has no end yet

// What a peer sends as a body.
struct rig_body {
    size_t left;
    const char *text;           // repeated; NULL: "."
    size_t at;
    const nghttp2_nv *trailers; // NULL: none
    size_t trailer_count;
    bool open;                  // more may come: no end behind `left`
};

// What a peer has seen of a stream.
struct rig_seen {
    char fields[4096];          // "name: value\n", with '!' in front of those never indexed; '-' begins another section
    char data[512];             // its beginning
    size_t data_len;
    bool end, used;
    int64_t reset;              // -1: none
    struct rig_body body;       // what it sends itself
};

struct rig_peer {
    nghttp2_session *session;
    struct rig_seen *seen;      // by number of the stream, halved
    int64_t goaway;             // -1: none; else the error code
    int32_t goaway_last;
    bool holds_credit;          // gives none back
    bool deaf;                  // does not read
    bool raw;                   // its bytes come from the test: its session says nothing, and frames are noted without it
    bool error;                 // its session failed
    unsigned pings;
    size_t got;                 // bytes
};

extern struct rig {
    struct rig_peer client, server;
    struct h2_bridge *bridge;
    struct h2_budget budget;
    uint64_t now_us;
    // The owner.
    struct h2_stream *asked[RIG_STREAMS];
    size_t asked_count, closed, wiped, failed, room;
    bool holds;                 // requests are not forwarded by themselves
    struct injection injection; // that each request gets
    const char *secret;         // bytes that may be in pieces only that are told to be secret
    size_t secret_pieces;
    size_t most_held;           // bytes in bodies
} rig;

#define NV(name, value) {(uint8_t *)(uintptr_t)(name), (uint8_t *)(uintptr_t)(value), strlen(name), strlen(value), 0}
#define GET NV(":method", "GET"), NV(":scheme", "https"), NV(":authority", "bound.test"), NV(":path", "/")
#define POST NV(":method", "POST"), NV(":scheme", "https"), NV(":authority", "bound.test"), NV(":path", "/")

void rig_start(bool upstream);
void rig_stop(void);
void rig_run(void); // until nobody has anything to say
int32_t rig_request(const nghttp2_nv *fields, size_t count, const struct rig_body *body);
#define REQUEST(body, ...) \
    __extension__({ \
        const nghttp2_nv fields_[] = {__VA_ARGS__}; \
        rig_request(fields_, ARRAY_LENGTH(fields_), body); \
    })
void rig_respond(int32_t id, const nghttp2_nv *fields, size_t count, const struct rig_body *body);
#define RESPOND(id, body, ...) \
    do { \
        const nghttp2_nv fields_[] = {__VA_ARGS__}; \
        rig_respond(id, fields_, ARRAY_LENGTH(fields_), body); \
    } while (0)
void rig_continue(struct rig_peer *peer, int32_t id, size_t more, bool open); // an open body goes on
struct rig_seen *rig_seen(struct rig_peer *peer, int32_t id);
void rig_expect(const struct rig_seen *seen, const char *field);
void rig_expect_not(const struct rig_seen *seen, const char *field);
// Raw bytes from a side, with what its session would say thrown away.
int rig_raw(enum h2_side side, const void *bytes, size_t len);
size_t rig_frame(uint8_t *out, size_t len, uint8_t type, uint8_t flags, uint32_t id, const void *payload);
size_t rig_held(void);
