// SPDX-License-Identifier: Apache-2.0
// HTTP/1: the first byte chooses request or response and the step; the rest is a message. Whatever the step, the
// answers and the place where the message ends are those of one piece.
#include "wire/http1.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct http1_head head;

static void check_slice(struct wire_slice slice, const uint8_t *data, size_t len) {
    if (slice.len == 1 && (*slice.data == '/' || *slice.data == '*')) return; // may be a constant
    if (slice.len && (slice.data < data || slice.data + slice.len > data + len)) abort();
}

// The result, and the length of head and body.
static enum wire_result run(const uint8_t *data, size_t size, enum http1_kind kind, size_t step, size_t *ret_len) {
    static const char *const methods[] = {"GET", "HEAD", "CONNECT"};
    const char *method = methods[size % 3];
    struct http1 http1;
    enum wire_result result = WIRE_MORE;
    http1_init(&http1, kind, (struct wire_slice){(const uint8_t *)method, kind == HTTP1_RESPONSE ? strlen(method) : 0});
    for (size_t len = 0; result == WIRE_MORE && len < size;) {
        len = size - len < step ? size : len + step;
        result = http1_head(&http1, data, len, &head);
    }
    if (result != WIRE_OK) return result;
    check_slice(head.method, data, size);
    check_slice(head.target, data, size);
    check_slice(head.authority, data, size);
    check_slice(head.path, data, size);
    check_slice(head.host, data, size);
    for (size_t i = 0; i < head.header_count; i++) {
        check_slice(head.headers[i].name, data, size);
        check_slice(head.headers[i].value, data, size);
    }
    size_t position = head.len, used = 0;
    result = http1_body(&http1, data + position, 0, &used);
    while (result == WIRE_MORE && position < size) {
        uint64_t skip = step % 2 ? http1_body_skip(&http1) : 0; // as the relay splices
        if (skip > size - position) skip = size - position;
        http1_body_skipped(&http1, skip);
        position += skip;
        result = http1_body(&http1, data + position, size - position < step ? size - position : step, &used);
        if (result != WIRE_BAD) position += used;
    }
    *ret_len = position;
    return result;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) return 0;
    enum http1_kind kind = data[0] & 1 ? HTTP1_RESPONSE : HTTP1_REQUEST;
    size_t whole_len = 0, len = 0;
    enum wire_result whole = run(data + 1, size - 1, kind, size, &whole_len);
    enum wire_result pieces = run(data + 1, size - 1, kind, 1 + (data[0] >> 1) % 64, &len);
    if (whole != pieces) abort();
    if (whole != WIRE_BAD && whole_len != len) abort();
    return 0;
}
