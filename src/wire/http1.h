// SPDX-License-Identifier: Apache-2.0
// HTTP/1 (RFC 9110, RFC 9112) for a relay that judges request by request: heads, and where a body ends. Strict on
// framing: what two readers could understand differently is WIRE_BAD. Built on llhttp; obs-fold, bare CR or LF in a
// head, white space before a colon, Content-Length with Transfer-Encoding, several or listed Content-Lengths, a
// Transfer-Encoding other than exactly "chunked", NUL and control bytes, several Host headers, an Expect other than
// exactly "100-continue" are refused (whether the body is read may depend on it: a reader of lists); so are
// methods that llhttp does not know, empty lines before a head, and an absolute form with a query but no path.
#pragma once

#include <stdbool.h>

#include <llhttp/llhttp.h>

#include "wire/wire.h"

#define HTTP1_HEAD_MAX 65536 // bytes
#define HTTP1_HEADERS_MAX 128

enum http1_framing { HTTP1_BODY_NONE, HTTP1_BODY_LENGTH, HTTP1_BODY_CHUNKED, HTTP1_BODY_UNTIL_CLOSE };
enum http1_form { HTTP1_FORM_ORIGIN, HTTP1_FORM_ABSOLUTE, HTTP1_FORM_AUTHORITY, HTTP1_FORM_ASTERISK };

struct http1_header {
    struct wire_slice name, value; // value without surrounding blanks
};

struct http1_head {
    size_t len; // of the head with its empty line
    uint8_t minor_version; // 0 or 1
    // Request.
    struct wire_slice method, target;
    enum http1_form form;
    struct wire_slice authority; // of the absolute or authority form ("host:port", no userinfo allowed)
    struct wire_slice path;      // path and query to send upstream ("/" if absent)
    bool absolute_https;         // absolute form with scheme https
    bool has_host;
    struct wire_slice host;
    bool upgrade_websocket;      // Connection: upgrade and Upgrade: websocket, GET, HTTP/1.1
    bool upgrade_h2c;            // asks for h2c (HTTP2-Settings or Upgrade: h2c)
    bool upgrade_other;          // Connection: upgrade and another Upgrade, HTTP/1.1
    bool expect_continue;        // also in HTTP/1.0, where some servers heed it
    // Response.
    uint16_t status;
    // Both.
    enum http1_framing framing;
    uint64_t content_length;
    bool keep_alive;
    struct http1_header headers[HTTP1_HEADERS_MAX];
    size_t header_count;
};

enum http1_kind { HTTP1_REQUEST, HTTP1_RESPONSE };

// One message of one direction. Fixed size, no allocation; init again for the next message.
struct http1 {
    llhttp_t parser;
    enum http1_kind kind;
    struct http1_head *head; // while a head is parsed
    bool no_body;
    bool no_trailers; // set by its user: a chunked body that ends with trailer fields is WIRE_BAD
    // Private: the checker of bytes (http1_line.c) and of chunks (http1_body.c).
    uint64_t body_left; // of a Content-Length body, or of the current chunk
    int state;
    size_t scanned;   // bytes of the head that the checker has seen
    size_t line_len;  // of what has a limit by itself: chunk size and extension, trailers
    uint8_t name[24]; // of a trailer field, as far as it fits
    size_t name_len;
    bool is_connect, is_head; // response: what it answers
    enum http1_framing framing;
};

// request_method: for a response, the method it answers ("HEAD" has no body, "CONNECT" 2xx has none); else empty.
void http1_init(struct http1 *http1, enum http1_kind kind, struct wire_slice request_method);

// bytes: the message from its first byte, as far as it has come. Slices in *ret_head point into bytes.
enum wire_result http1_head(struct http1 *http1, const uint8_t *bytes, size_t len, struct http1_head *ret_head);

// After the head: how many of these bytes belong to this message. OK: it ends at *ret_used (which is 0 at once for a
// message without a body, also with len 0). MORE: all are used and more is expected. BAD: malformed chunked framing.
enum wire_result http1_body(struct http1 *http1, const uint8_t *bytes, size_t len, size_t *ret_used);

// For bodies whose data is looked at: how many of the next bytes are data (0: framing comes next; SIZE_MAX: all that come), and
// whether the last chunk of a chunked body was announced, so that only trailers and the end follow.
size_t http1_body_data(const struct http1 *http1);
bool http1_body_last(const struct http1 *http1);

// For bodies that are spliced past http1_body: bytes of a Content-Length body still to come (0 for other framings), and
// that n of them went by (at most what http1_body_skip said).
uint64_t http1_body_skip(const struct http1 *http1);
void http1_body_skipped(struct http1 *http1, uint64_t n);
