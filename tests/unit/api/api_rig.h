// SPDX-License-Identifier: Apache-2.0
// A server with a store on disk and a backend that only writes down what it was asked, and a client that speaks HTTP to it over
// loopback; both in one thread, which turns the server's loop while the client waits.
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <event2/event.h>

#include "api/api.h"
#include "base/buf.h"
#include "base/mem.h"

#define RIG_KEY "test-key"

struct rig {
    struct event_base *base;
    struct store *store;
    struct api *api;
    uint16_t port;
    char folder[64], path[96];
    struct buf log;   // what the backend was asked, a line each
    bool hold;        // calls are kept in held, unanswered
    int fail;         // the backend answers with this status
    struct api_call *held;
    unsigned gone, drained;
    char *log_path;   // of decisions
};

struct rig_reply {
    int status;
    struct buf head, body; // body without its chunks
    bool closed;           // the server closed the connection behind it
};

void rig_init(struct rig *rig, const struct api_options *options); // of which limits are taken; NULL: defaults
void rig_done(struct rig *rig);
void rig_turn(struct rig *rig, unsigned ms);           // lets the server work
void rig_add(struct rig *rig, const char *id, enum store_state state); // a sandbox of template tbase
void rig_add_template(struct rig *rig, const char *id, const char *name, enum store_kind kind, const char *layers);

int rig_connect(struct rig *rig);
void rig_send(struct rig *rig, int fd, const char *bytes, size_t len);
// One answer; fails the test after some seconds. wait false: until the connection ends.
void rig_receive(struct rig *rig, int fd, struct rig_reply *ret_reply);
bool rig_closed(struct rig *rig, int fd); // within a second or so
// A whole exchange on a connection of its own, with the key. body NULL: none.
void rig_ask(struct rig *rig, const char *method, const char *path, const char *body, struct rig_reply *ret_reply);
void rig_reply_done(struct rig_reply *reply);
const char *rig_header(const struct rig_reply *reply, const char *name, char buf[512]); // NULL: not there

// Asks, and fails the test unless status and, in the body, says (NULL: an empty body) are as expected.
struct rig_row {
    const char *method, *path, *body;
    int status;
    const char *says;
    const char *log; // in what the backend was asked; NULL: it was asked nothing
};
void rig_check(struct rig *rig, const struct rig_row *rows, size_t count);
