// SPDX-License-Identifier: Apache-2.0
// Theory of operation: bodies pass unchanged; this only finds where they end. Chunked framing (RFC 9112 7.1) is checked
// byte by byte, and data is stepped over, so any segmentation gives the same answer. Strict where readers differ: lines
// end in CR LF, no blanks around the size, at most 16 digits, extensions without control bytes and bounded, trailers
// checked like a head and bounded, without fields that speak about framing.
#include "wire/http1.h"
#include "wire/http1_line.h"

#include <strings.h>

enum { SIZE_DIGITS_MAX = 16, EXTENSION_MAX = 1024, TRAILERS_MAX = 8192 };

enum chunk_state {
    CHUNK_SIZE_FIRST, // at the first digit
    CHUNK_SIZE,
    CHUNK_EXTENSION,
    CHUNK_SIZE_END, // CR seen
    CHUNK_DATA,
    CHUNK_DATA_CR,
    CHUNK_DATA_LF,
    CHUNK_DONE,
    CHUNK_BAD,
    CHUNK_TRAILERS, // and above: CHUNK_TRAILERS + enum http1_line
};

static int hex_digit(uint8_t byte) {
    if (byte >= '0' && byte <= '9') return byte - '0';
    byte |= 0x20;
    return byte >= 'a' && byte <= 'f' ? byte - 'a' + 10 : -1;
}

static enum chunk_state size_next(struct http1 *http1, enum chunk_state state, uint8_t byte) {
    int digit = hex_digit(byte);
    if (digit >= 0) {
        if (http1->line_len++ == SIZE_DIGITS_MAX || http1->body_left >> 58) return CHUNK_BAD;
        http1->body_left = http1->body_left << 4 | (uint64_t)digit;
        return CHUNK_SIZE;
    }
    if (state == CHUNK_SIZE_FIRST) return CHUNK_BAD;
    http1->line_len = 0;
    if (byte == ';') return CHUNK_EXTENSION;
    return byte == '\r' ? CHUNK_SIZE_END : CHUNK_BAD;
}

static enum chunk_state extension_next(struct http1 *http1, uint8_t byte) {
    if (byte == '\r') return CHUNK_SIZE_END;
    if (http1->line_len++ == EXTENSION_MAX) return CHUNK_BAD;
    return byte == '\t' || (byte >= ' ' && byte < 0x7f) ? CHUNK_EXTENSION : CHUNK_BAD;
}

static bool forbidden_trailer(const struct http1 *http1) {
    static const char *const names[] = {"content-length", "transfer-encoding", "host"}; // RFC 9110 6.5.1
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (http1->name_len == strlen(names[i]) &&
            strncasecmp((const char *)http1->name, names[i], http1->name_len) == 0)
            return true;
    return false;
}

static enum chunk_state trailer_next(struct http1 *http1, enum chunk_state state, uint8_t byte) {
    enum http1_line before = (enum http1_line)(state - CHUNK_TRAILERS);
    enum http1_line after = http1_line_next(before, byte);
    if (after == HTTP1_LINE_BAD || http1->line_len++ == TRAILERS_MAX) return CHUNK_BAD;
    if (after == HTTP1_LINE_DONE) return CHUNK_DONE;
    if (after == HTTP1_LINE_NAME && http1->no_trailers) return CHUNK_BAD;
    if (after == HTTP1_LINE_NAME) {
        if (before == HTTP1_LINE_START) http1->name_len = 0;
        if (http1->name_len < sizeof(http1->name)) http1->name[http1->name_len++] = byte;
    } else if (before == HTTP1_LINE_NAME && forbidden_trailer(http1)) {
        return CHUNK_BAD;
    }
    return (enum chunk_state)(CHUNK_TRAILERS + after);
}

static enum chunk_state chunk_next(struct http1 *http1, enum chunk_state state, uint8_t byte) {
    switch (state) {
    case CHUNK_SIZE_FIRST:
    case CHUNK_SIZE:
        return size_next(http1, state, byte);
    case CHUNK_EXTENSION:
        return extension_next(http1, byte);
    case CHUNK_SIZE_END:
        http1->line_len = 0;
        if (byte != '\n') return CHUNK_BAD;
        return http1->body_left ? CHUNK_DATA : (enum chunk_state)(CHUNK_TRAILERS + HTTP1_LINE_START);
    case CHUNK_DATA_CR:
        return byte == '\r' ? CHUNK_DATA_LF : CHUNK_BAD;
    case CHUNK_DATA_LF:
        return byte == '\n' ? CHUNK_SIZE_FIRST : CHUNK_BAD;
    case CHUNK_DATA:
    case CHUNK_DONE:
    case CHUNK_BAD:
        return CHUNK_BAD;
    case CHUNK_TRAILERS:
        break;
    }
    return trailer_next(http1, state, byte);
}

static enum wire_result chunked_body(struct http1 *http1, const uint8_t *bytes, size_t len, size_t *ret_used) {
    enum chunk_state state = (enum chunk_state)http1->state;
    size_t used = 0;
    while (used < len && state != CHUNK_DONE && state != CHUNK_BAD) {
        if (state != CHUNK_DATA) {
            state = chunk_next(http1, state, bytes[used++]);
            continue;
        }
        size_t step = len - used < http1->body_left ? len - used : (size_t)http1->body_left;
        used += step;
        http1->body_left -= step;
        if (http1->body_left == 0) state = CHUNK_DATA_CR;
    }
    http1->state = (int)state;
    if (state == CHUNK_BAD) return WIRE_BAD;
    *ret_used = used;
    return state == CHUNK_DONE ? WIRE_OK : WIRE_MORE;
}

enum wire_result http1_body(struct http1 *http1, const uint8_t *bytes, size_t len, size_t *ret_used) {
    switch (http1->framing) {
    case HTTP1_BODY_NONE:
        *ret_used = 0;
        return WIRE_OK;
    case HTTP1_BODY_LENGTH:
        *ret_used = len < http1->body_left ? len : (size_t)http1->body_left;
        http1->body_left -= *ret_used;
        return http1->body_left ? WIRE_MORE : WIRE_OK;
    case HTTP1_BODY_CHUNKED:
        return chunked_body(http1, bytes, len, ret_used);
    case HTTP1_BODY_UNTIL_CLOSE:
        *ret_used = len;
        return WIRE_MORE;
    }
    return WIRE_BAD;
}

size_t http1_body_data(const struct http1 *http1) {
    bool counted = http1->framing == HTTP1_BODY_LENGTH || (http1->framing == HTTP1_BODY_CHUNKED && http1->state == CHUNK_DATA);
    if (counted) return http1->body_left < SIZE_MAX ? (size_t)http1->body_left : SIZE_MAX;
    return http1->framing == HTTP1_BODY_UNTIL_CLOSE ? SIZE_MAX : 0;
}

bool http1_body_last(const struct http1 *http1) {
    return http1->framing == HTTP1_BODY_CHUNKED && (http1->state >= CHUNK_TRAILERS || http1->state == CHUNK_DONE);
}

uint64_t http1_body_skip(const struct http1 *http1) {
    return http1->framing == HTTP1_BODY_LENGTH ? http1->body_left : 0;
}

void http1_body_skipped(struct http1 *http1, uint64_t n) {
    uint64_t left = http1_body_skip(http1);
    if (left) http1->body_left = n < left ? left - n : 0;
}
