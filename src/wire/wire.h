// SPDX-License-Identifier: Apache-2.0
// Answers of every parser of the wire room: parsers do no I/O and no allocation; bytes and length in, slices that
// borrow from the input (or fixed-size copies) out.
#pragma once

#include <stddef.h>
#include <stdint.h>

enum wire_result {
    WIRE_BAD = -1,  // can never become valid
    WIRE_MORE = 0,  // a valid beginning: call again with more bytes
    WIRE_OK = 1,
};

struct wire_slice {
    const uint8_t *data;
    size_t len;
};

// What the first bytes of a client show. MORE while undecided (fewer than 24 bytes that could be several things).
enum wire_app { WIRE_APP_MORE, WIRE_APP_TLS, WIRE_APP_HTTP1, WIRE_APP_HTTP2, WIRE_APP_OTHER };
enum wire_app wire_classify(const uint8_t *bytes, size_t len);
