// SPDX-License-Identifier: Apache-2.0
// Bodies of the HTTP/1 relay: moved between buffers as far as their message goes, not copied.
#include "gate/http_relay.h"

// libevent itself does not tell of missing memory if it is for the last part.
bool http_body_move(struct evbuffer *from, struct evbuffer *to, size_t len) {
    size_t wanted = evbuffer_get_length(to) + len;
    return evbuffer_remove_buffer(from, to, len) == (int)len && evbuffer_get_length(to) == wanted;
}

enum wire_result http_body_relay(struct http1 *message, struct evbuffer *from, struct evbuffer *to, uint64_t *bytes) {
    for (;;) {
        size_t len = evbuffer_get_contiguous_space(from), used = 0;
        const uint8_t *data = len > 0 ? evbuffer_pullup(from, (ev_ssize_t)len) : (const uint8_t *)"";
        enum wire_result result = http1_body(message, data, len, &used);
        if (result == WIRE_BAD) return result;
        if (used > 0 && !http_body_move(from, to, used)) return WIRE_BAD;
        *bytes += used;
        if (result == WIRE_OK || len == 0) return result;
    }
}
