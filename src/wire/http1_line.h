// SPDX-License-Identifier: Apache-2.0
// The strict checker of the lines of a head or of trailers (RFC 9112 2.2, 5): one byte at a time, so it may stop and go
// on anywhere. Private to the http1_* files.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum http1_line {
    HTTP1_LINE_BAD = -1,
    HTTP1_LINE_FIRST = 0, // in the request or status line
    HTTP1_LINE_START,     // at the start of a field line, or of the empty line
    HTTP1_LINE_NAME,
    HTTP1_LINE_VALUE,
    HTTP1_LINE_END,  // CR seen, LF must follow
    HTTP1_LINE_LAST, // CR of the empty line seen
    HTTP1_LINE_DONE,
};

// The state after byte.
enum http1_line http1_line_next(enum http1_line state, uint8_t byte);
// How many of these bytes leave the state as it is: they need not be given to http1_line_next.
size_t http1_line_run(enum http1_line state, const uint8_t *bytes, size_t len);
// RFC 9110 5.6.2.
bool http1_line_is_token(uint8_t byte);
