// SPDX-License-Identifier: Apache-2.0
// What the files of the api room share. Private to it.
//
// A request goes: connection.c reads head and body; route.c finds its row, checks the key, calls the row's function with a
// struct api_request; that one answers (call.c) or hands the call to the backend, which answers later.
#pragma once

#include <event2/event.h>
#include <jansson.h>

#include "api/api.h"
#include "base/buf.h"
#include "base/list.h"
#include "wire/http1.h"

#define API_SEGMENTS_MAX 8
#define API_QUERY_MAX 16    // parameters of a query
#define API_WARNINGS_MAX 8
#define API_PEER_SIZE 72    // "[ADDR6]:PORT"
#define API_HEADERS_SIZE 512
// AgentENV and E2B say which version of their agent a sandbox has; clients use no more than it can. Below 0.1.0 they give up.
#define API_ENVD_VERSION "0.1.0"

struct connection;
struct evbuffer;
struct evconnlistener;

struct api {
    struct api_options options;
    char *key, *domain;
    struct list connections; // the longest untouched first
    struct list listeners;
    struct list calls;
    struct event *rearm; // listeners, after accept failed
    bool stopping;
    struct api_counts counts;
};

struct api_query {
    char *name, *value; // decoded once
};

struct api_request {
    struct api *api;
    struct api_call *call;
    struct wire_slice method;
    char *segments[API_SEGMENTS_MAX]; // of the path, decoded
    size_t segment_count;
    const char *params[2]; // what {...} of the route stands for
    struct api_query query[API_QUERY_MAX];
    size_t query_count;
    json_t *body; // an object, if the route has a body; never NULL then
};

// One row is one endpoint.
enum api_body { API_BODY_NONE, API_BODY_OPTIONAL, API_BODY_REQUIRED };
struct api_route {
    const char *method, *path; // "/sandboxes/{sandboxID}/pause"
    enum api_body body;
    bool open;    // without a key
    bool changes; // something: refused while stopping, and in the audit log
    int success;  // status of api_reply_done
    void (*answer)(struct api_request *request);
};

struct api_call {
    struct api *api;               // NULL: it is gone
    struct connection *connection; // NULL: the client is gone
    const struct api_route *route;
    struct api_hooks hooks;
    struct list link;             // of all calls
    struct api_follow *follow;    // an answer that goes on
    bool begun, minor_0;          // a streamed answer has begun; HTTP/1.0
    bool keep_alive;
    bool handed; // to the backend
    int status;  // of success, where it is another than the route's
    bool fetch;  // api_reply_done is to answer with the sandbox (connect)
    char subject[STORE_ID_SIZE];
    char peer[API_PEER_SIZE];
    struct buf headers; // further ones of the answer
    bool want_follow, want_denied;
};

// ---- connection.c ----

int connection_new(struct api *api, int fd, const char *peer);
void connection_free(struct connection *connection);
bool connection_is_idle(const struct connection *connection); // waits for (the rest of) a request
struct connection *connection_of(struct list *link);
void connection_answer(struct connection *connection, const void *head, size_t head_len, const void *body, size_t len);
void connection_break(struct connection *connection); // no more is sent: it is closed with the answer's end
// A part of a streamed answer; what waits for the client.
size_t connection_stream(struct connection *connection, const void *bytes, size_t len);
// The answer is complete: the next request, or the end. Forgets the call.
void connection_done(struct connection *connection, bool keep_alive);

// ---- route.c ----

// Finds the row and checks the key, before there is a body: the row, or NULL with the answer that is to be given.
struct api_refusal {
    int status;
    char allow[64]; // methods, for 405
    struct error message;
};
const struct api_route *route_find(struct api *api, const struct http1_head *head, struct api_refusal *ret_refusal);
// The whole request: calls the row's function. head's slices live until it returns.
void route_dispatch(struct api *api, struct api_call *call, const struct http1_head *head, const char *body, size_t len);
void api_request_done(struct api_request *request);

// ---- call.c ----

struct api_call *call_new(struct api *api, struct connection *connection, const struct api_route *route);
void call_gone(struct api_call *call);      // its connection is not there any more
void call_half_gone(struct api_call *call); // its client sends no more, and takes the answer perhaps
void call_drained(struct api_call *call);
void call_header(struct api_call *call, const char *name, const char *format, ...) __attribute__((format(printf, 3, 4)));
void call_subject(struct api_call *call, const char *id);
void call_json(struct api_call *call, int status, json_t *json); // takes the reference; NULL: out of memory
void call_result(struct api_call *call, int r, json_t *json, const struct error *err); // 200 with json, or if r < 0 with err's text
void call_begin(struct api_call *call, const char *content_type); // a streamed answer
size_t call_write(struct api_call *call, const void *bytes, size_t len);
void call_end(struct api_call *call);
const char *call_reason(int status);
// A sandbox that is there and that clients may see: true, or the call is answered.
bool call_sandbox(struct api_request *request, struct store_sandbox *ret_sandbox);

// ---- follow.c ----

void follow_free(struct api_call *call); // NULL follow is fine
void follow_drained(struct api_call *call);
