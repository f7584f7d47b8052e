// SPDX-License-Identifier: Apache-2.0
// The fields of one header section of HTTP/2, as they come from nghttp2 and as they go to it.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gate/h2_calls.h"
#include "gate/injection.h"
#include "wire/wire.h"

#define H2_HEAD_MAX 65536 // bytes of a section, counted as RFC 9113 6.5.2 does (32 for each field besides its text)

struct scrub;

struct h2_field {
    uint32_t name, value; // where in bytes
    uint32_t name_len, value_len;
    uint8_t flags;        // of nghttp2_nv
};

struct h2_head {
    uint8_t *bytes;
    size_t len, size;
    struct h2_field *fields;
    size_t count, room;
    size_t list_size; // what counts against H2_HEAD_MAX
    bool too_large;   // fields from there on are not here
};

void h2_head_done(struct h2_head *head); // empty again
// 0, also where it is too large; -ENOMEM.
int h2_head_add(struct h2_head *head, struct wire_slice name, struct wire_slice value, uint8_t flags);
// data NULL: there is none. Name in lower case.
struct wire_slice h2_head_find(const struct h2_head *head, const char *name);
// 100 to 599 of a response's head; 0: it has none, so these are trailers.
unsigned h2_head_status(const struct h2_head *head);
void h2_head_scrub(struct h2_head *head, const struct scrub *scrub);

// Gives all fields of this name (lower case) this value. 0 or -ENOMEM.
int h2_head_set(struct h2_head *head, const char *name, struct wire_slice value);

// Takes out the fields that an injection bars.
void h2_head_bar(struct h2_head *head, const struct injection *injection);
// Takes out the fields that have a name of these, whose values do not matter.
void h2_head_drop(struct h2_head *head, const struct h2_head *names);
// The names of the fields that an injection sets, in lower case. 0 or -ENOMEM.
int h2_head_add_names(struct h2_head *head, const struct injection *injection);

// For nghttp2_submit_*: the fields in order, and then those of an injection (or NULL), never indexed, with values
// that are not copied. The array is the caller's to free; head and injection must outlive its use. NULL: out of
// memory.
nghttp2_nv *h2_head_fields(const struct h2_head *head, const struct injection *injection, size_t *ret_count);
