// SPDX-License-Identifier: Apache-2.0
#include "wire/http1_line.h"

bool http1_line_is_token(uint8_t byte) {
    if ((byte >= '0' && byte <= '9') || (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z')) return true;
    switch (byte) {
    case '!': case '#': case '$': case '%': case '&': case '\'': case '*': case '+':
    case '-': case '.': case '^': case '_': case '`': case '|': case '~':
        return true;
    default:
        return false;
    }
}

// Field values and reason phrases: no control byte but the tab; obs-text may be.
static bool is_text(uint8_t byte) { return byte == '\t' || (byte >= ' ' && byte != 0x7f); }

static enum http1_line text_next(enum http1_line state, uint8_t byte) {
    if (byte == '\r') return HTTP1_LINE_END;
    return is_text(byte) ? state : HTTP1_LINE_BAD;
}

size_t http1_line_run(enum http1_line state, const uint8_t *bytes, size_t len) {
    size_t run = 0;
    if (state == HTTP1_LINE_FIRST || state == HTTP1_LINE_VALUE)
        while (run < len && is_text(bytes[run])) run++;
    if (state == HTTP1_LINE_NAME)
        while (run < len && http1_line_is_token(bytes[run])) run++;
    return run;
}

enum http1_line http1_line_next(enum http1_line state, uint8_t byte) {
    switch (state) {
    case HTTP1_LINE_FIRST:
    case HTTP1_LINE_VALUE:
        return text_next(state, byte);
    case HTTP1_LINE_START:
        if (byte == '\r') return HTTP1_LINE_LAST;
        return http1_line_is_token(byte) ? HTTP1_LINE_NAME : HTTP1_LINE_BAD; // a blank would be obs-fold
    case HTTP1_LINE_NAME:
        if (byte == ':') return HTTP1_LINE_VALUE;
        return http1_line_is_token(byte) ? HTTP1_LINE_NAME : HTTP1_LINE_BAD;
    case HTTP1_LINE_END:
        return byte == '\n' ? HTTP1_LINE_START : HTTP1_LINE_BAD;
    case HTTP1_LINE_LAST:
        return byte == '\n' ? HTTP1_LINE_DONE : HTTP1_LINE_BAD;
    case HTTP1_LINE_BAD:
    case HTTP1_LINE_DONE:
        break;
    }
    return HTTP1_LINE_BAD;
}
