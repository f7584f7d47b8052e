// SPDX-License-Identifier: Apache-2.0
// Takes exact values out of a response as it goes by: each byte of an occurrence becomes '*', so lengths stay as they
// are. Occurrences are found across the borders of pieces; what could be the beginning of one is held back, at most
// the longest value less one byte. Exact bytes only: a server that encodes what it echoes (base64, JSON escapes,
// compression) is not covered, which is why a request that is scrubbed asks for no compression.
#pragma once

#include <stddef.h>
#include <stdint.h>

#define SCRUB_VALUES_MAX 16
#define SCRUB_VALUE_MAX 32768 // bytes
#define SCRUB_REST_MIN 8      // bytes; a shorter part of a value is no secret by itself

struct scrub_value {
    const uint8_t *bytes; // borrowed, not empty
    size_t len;
};

struct scrub;
// NULL: out of memory, or a value that is empty, too long, or one too many. The values outlive it.
struct scrub *scrub_new(const struct scrub_value *values, size_t count);
void scrub_free(struct scrub *scrub); // wipes what it held; NULL is fine

// What of a header's value is looked for: what follows a scheme ("Bearer "), if that is long enough to be the secret.
struct scrub_value scrub_header_value(const void *bytes, size_t len);

// The next len bytes. Writes to out what can go on now, which begins with what was held; out has room for
// len + scrub_held(scrub), and may not overlap bytes. Returns how many.
size_t scrub_feed(struct scrub *scrub, const void *bytes, size_t len, uint8_t *out);
size_t scrub_held(const struct scrub *scrub);
// No more will come: writes what is held to out, returns how many, and is as new for another message.
size_t scrub_end(struct scrub *scrub, uint8_t *out);

// All occurrences in a text that is there as a whole (a header's value), in place.
void scrub_text(const struct scrub *scrub, void *text, size_t len);
