// SPDX-License-Identifier: Apache-2.0
// What the files of the HTTP/1 relay share; its theory of operation is in http_relay.c. Functions that may end the flow
// leave `dead` set, which their callers look at before anything else.
#pragma once

#include <event2/buffer.h>

#include "gate/http_scrub.h"
#include "gate/injection.h"
#include "gate/state.h"
#include "gate/stream.h"

#define HTTP_HEAD_MS 30000 // from the first byte of a head to its last
#define HTTP_WATERMARK 262144 // bytes waiting towards one side before the other is read no further

enum http_relay_state {
    HTTP_RELAY_HEAD, HTTP_RELAY_CONNECTING, HTTP_RELAY_INJECTING, HTTP_RELAY_EXCHANGE, // before anything is decided for good
    HTTP_RELAY_TUNNEL, HTTP_RELAY_LEAVING, HTTP_RELAY_ENDING, HTTP_RELAY_DRAINING,
};

struct http_relay {
    struct flow *flow;
    struct stream *client, *server;
    struct connector *connector;
    struct injection_wait *wait;
    struct http_scrub *scrub; // of the response to this request, or NULL
    struct event *wake;       // there from the start, so that the end needs no memory; active: next head, or frees this
    struct http1 request, response;
    char host[NAME_SIZE];     // that this request names, "" if none or a literal
    struct addr host_address; // the literal that it names
    char server_name[NAME_SIZE]; // claimed name that `server` was dialled for; "": the destination itself
    struct evbuffer *outgoing; // head and first bytes of the body, until there is a connection
    char method[16];
    uint64_t bytes[2];
    uint64_t head_begun_us; // first byte of the head that is being read, 0: none
    enum http_relay_state state;
    unsigned interim; // 1xx heads of this answer
    bool request_done, response_headed, answered, until_close, client_eof, server_eof, answer_begun;
    bool keep_alive, upgrade, expects, reused, dead;
    bool hurried; // its client is to send more of a head soon
    unsigned head_ms; // HTTP_HEAD_MS
    bool door;   // its client speaks to a proxy
    bool opened; // TLS that the gate ended: one host, one server, credentials
};

// http_relay.c
struct policy_request http_relay_request(const struct http_relay *http);
struct policy_request http_relay_reached(const struct http_relay *http); // with what was really dialled
void http_relay_finish(struct http_relay *http); // the connection ends once what is written has gone out
void http_relay_refuse_at(struct http_relay *http, const struct addr *address, struct policy_decision decision);
void http_relay_refuse(struct http_relay *http, struct policy_decision decision);
void http_relay_refuse_reason(struct http_relay *http, enum policy_reason reason);
void http_relay_unbound(struct http_relay *http, int status); // its credential cannot be had
void http_relay_unreachable(struct http_relay *http); // allowed, but the server is not there or does not speak HTTP
void http_relay_drop_server(struct http_relay *http); // where it cannot be had again the connection ends with it
bool http_relay_take_server(struct http_relay *http, int fd);
// The client's socket and what was read from it go back to the flow, and the relay goes. False: out of memory.
bool http_relay_give_back(struct http_relay *http);
void http_relay_to_door(struct http_relay *http); // the next request is a CONNECT, which is still there to be read
void http_relay_balance(struct http_relay *http); // writes what waits, and reads where there is room

// http_request.c
void http_request_next(struct http_relay *http); // the next head, if it is there
void http_request_body(struct http_relay *http, struct evbuffer *to);

// http_response.c
void http_response_read(struct http_relay *http);

// http_tunnel.c: after a 101, between two streams of which one at least has TLS
void http_tunnel_start(struct http_relay *http);
void http_tunnel_moved(struct http_relay *http, struct stream *from); // bytes came from there, or its end
void http_tunnel_written(struct http_relay *http);

// http_body.c
bool http_body_move(struct evbuffer *from, struct evbuffer *to, size_t len); // false: out of memory
// Moves what belongs to the message. WIRE_OK when it ended.
enum wire_result http_body_relay(struct http1 *message, struct evbuffer *from, struct evbuffer *to, uint64_t *bytes);

// http_head.c Writes the head for a server: the absolute form turned into the origin form (RFC 9112 3.2.2), without
// what is for a proxy; everything else byte for byte. False: out of memory, and what was written is not the request.
bool http_head_write(struct evbuffer *out, const uint8_t *bytes, const struct http1_head *head);
// The same with credentials: their headers are left out and then added, the host is written as it was judged, and
// Connection names no field. Into out (NULL: counts only); the length.
size_t http_head_inject(uint8_t *out, const uint8_t *bytes, const struct http1_head *head,
                        const struct injection *injection, const char *host);
