// SPDX-License-Identifier: Apache-2.0
#include "gate/http_scrub.h"

#include <errno.h>
#include <event2/buffer.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "gate/scrub.h"

#define HTTP_SCRUB_STEP 16384 // bytes of data at a time

struct http_scrub {
    struct injection *injection;
    struct scrub *scrub;
    bool chunked, last; // of the body that goes by: framed anew; its last chunk went
};

int http_scrub_new(struct injection *injection, struct http_scrub **ret_scrub) {
    struct scrub_value values[SCRUB_VALUES_MAX];
    size_t count = 0;
    *ret_scrub = NULL;
    for (size_t i = 0; i < injection->count; i++) {
        const struct injection_value *value = &injection->values[i];
        if (value->scrub && count < SCRUB_VALUES_MAX) values[count++] = scrub_header_value(value->bytes, value->len);
    }
    if (count == 0) return 0;
    struct http_scrub *scrub = NEW(struct http_scrub);
    if (scrub) scrub->scrub = scrub_new(values, count);
    if (!scrub || !scrub->scrub) {
        free(scrub);
        return -ENOMEM;
    }
    scrub->injection = injection;
    *ret_scrub = scrub;
    return 0;
}

void http_scrub_free(struct http_scrub *scrub) {
    if (!scrub) return;
    scrub_free(scrub->scrub); // before the values that it looks for
    injection_free(scrub->injection);
    free(scrub);
}

// What the message's framing depends on stays what the server said, whatever a value is. (It is exact, and says no more.)
static bool http_scrub_frames(const struct wire_slice *name) {
    static const char *const names[] = {"content-length", "transfer-encoding"};
    const char *text = (const char *)name->data;
    for (size_t i = 0; i < ARRAY_LENGTH(names); i++)
        if (name->len == strlen(names[i]) && strncasecmp(text, names[i], name->len) == 0) return true;
    return false;
}

bool http_scrub_head(struct http_scrub *scrub, const struct http1_head *head, const uint8_t *bytes,
                     struct evbuffer *from, struct evbuffer *to) {
    static const size_t status_len = sizeof("HTTP/1.1 200") - 1;
    struct evbuffer_iovec space;
    if (evbuffer_reserve_space(to, (ev_ssize_t)head->len, &space, 1) != 1) return false;
    uint8_t *copy = space.iov_base;
    memcpy(copy, bytes, head->len);
    const uint8_t *line = memchr(copy, '\n', head->len);
    if (line) scrub_text(scrub->scrub, copy + status_len, (size_t)(line - copy) - status_len);
    for (size_t i = 0; i < head->header_count; i++) {
        const struct http1_header *header = &head->headers[i];
        const uint8_t *start = header->name.data, *end = start + header->name.len;
        if (header->value.len > 0) end = header->value.data + header->value.len;
        if (!http_scrub_frames(&header->name)) scrub_text(scrub->scrub, copy + (start - bytes), (size_t)(end - start));
    }
    space.iov_len = head->len;
    scrub->chunked = head->framing == HTTP1_BODY_CHUNKED;
    scrub->last = false;
    return evbuffer_commit_space(to, &space, 1) == 0 && evbuffer_drain(from, head->len) == 0;
}

static bool http_scrub_put(const struct http_scrub *scrub, const uint8_t *bytes, size_t len, struct evbuffer *to) {
    bool framed = scrub->chunked && !scrub->last;
    if (len == 0) return true;
    if (framed && evbuffer_add_printf(to, "%zx\r\n", len) < 0) return false;
    return evbuffer_add(to, bytes, len) == 0 && (!framed || evbuffer_add(to, "\r\n", 2) == 0);
}

// Through the scrubber: bytes, or, with NULL, the end of what it looks at.
static bool http_scrub_pass(struct http_scrub *scrub, const uint8_t *bytes, size_t len, struct evbuffer *to) {
    size_t held = scrub_held(scrub->scrub);
    uint8_t *out = malloc(len + held + 1);
    if (!out) return false;
    size_t count = bytes ? scrub_feed(scrub->scrub, bytes, len, out) : scrub_end(scrub->scrub, out);
    bool good = http_scrub_put(scrub, out, count, to);
    explicit_bzero(out, len + held);
    free(out);
    return good;
}

bool http_scrub_end(struct http_scrub *scrub, struct evbuffer *to) { return http_scrub_pass(scrub, NULL, 0, to); }

// A byte of chunked framing: the server's sizes are dropped, trailers are looked at like data.
static bool http_scrub_framing(struct http_scrub *scrub, const struct http1 *message, const uint8_t *byte,
                               struct evbuffer *to) {
    if (scrub->last) return http_scrub_pass(scrub, byte, 1, to);
    if (!http1_body_last(message)) return true;
    bool good = http_scrub_end(scrub, to);
    scrub->last = true;
    return good && evbuffer_add(to, "0\r\n", 3) == 0;
}

enum wire_result http_scrub_body(struct http_scrub *scrub, struct http1 *message, struct evbuffer *from,
                                 struct evbuffer *to, uint64_t *bytes) {
    for (;;) {
        size_t len = evbuffer_get_contiguous_space(from), data = http1_body_data(message), used = 0;
        size_t most = data == 0 ? 1 : data < HTTP_SCRUB_STEP ? data : HTTP_SCRUB_STEP;
        if (len > most) len = most;
        const uint8_t *piece = len > 0 ? evbuffer_pullup(from, (ev_ssize_t)len) : (const uint8_t *)"";
        enum wire_result result = http1_body(message, piece, len, &used);
        if (result == WIRE_BAD) return result;
        bool good = used == 0 || (data > 0 ? http_scrub_pass(scrub, piece, used, to)
                                           : http_scrub_framing(scrub, message, piece, to));
        if (good && result == WIRE_OK) good = http_scrub_end(scrub, to);
        if (!good || evbuffer_drain(from, used) < 0) return WIRE_BAD;
        *bytes += used;
        if (result == WIRE_OK || len == 0) return result;
    }
}
