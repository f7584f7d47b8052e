// SPDX-License-Identifier: Apache-2.0
// Takes the values of a request's credentials out of the response to it (scrub.h), for HTTP/1: what a head says, data, and
// trailers. A chunked body gets chunks of its own, since a value may lie across a border of the server's.
#pragma once

#include "gate/injection.h"
#include "wire/http1.h"

struct evbuffer;
struct http_scrub;

// For values of the injection that are to be taken out, which it keeps. *ret_scrub NULL: there are none, and the injection is
// still the caller's. -ENOMEM, the same.
int http_scrub_new(struct injection *injection, struct http_scrub **ret_scrub);
void http_scrub_free(struct http_scrub *scrub); // with the injection; NULL is fine

// A head of len bytes at the front of `from`, on to `to`. False: out of memory.
bool http_scrub_head(struct http_scrub *scrub, const struct http1_head *head, const uint8_t *bytes, struct evbuffer *from,
                     struct evbuffer *to);
// What http_body_relay does.
enum wire_result http_scrub_body(struct http_scrub *scrub, struct http1 *message, struct evbuffer *from, struct evbuffer *to,
                                 uint64_t *bytes);
// The end of a body that only the end of the connection ends. False: out of memory.
bool http_scrub_end(struct http_scrub *scrub, struct evbuffer *to);
