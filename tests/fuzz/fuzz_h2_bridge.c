// SPDX-License-Identifier: Apache-2.0
// HTTP/2 between a client and a server: pieces of both, and what the owner does, in turns. A piece begins with a byte
// that says whose it is, and one for its length. What comes out is thrown away; a value must never be where no secret
// is told.
#include <event2/buffer.h>

#include "gate/h2_bridge.h"
#include "gate/injection.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char value[] = "{{{{{{{{{{{{{{{{"; // longer in Huffman's code, so it is sent as it is
static struct injection injection = {.count = 1, .values = {{.header = "X-Key", .bytes = value, .len = 16, .scrub = 1}}};
static unsigned kept;
static bool guessed; // the input has some of it: then it may be anywhere

static void fuzz_request(struct h2_stream *stream, void *data) {
    (void)stream;
    (void)data;
}
static void fuzz_wiped(struct injection *gone, void *data) {
    (void)data;
    if (gone != &injection || kept-- == 0) abort();
}
static void fuzz_failed(struct h2_stream *stream, void *data) {
    (void)data;
    h2_stream_answer(stream, 502, "upstream_failed", "{}", 2);
}
static void fuzz_room(void *data) { (void)data; }

static const struct h2_handlers handlers = {fuzz_request, fuzz_request, fuzz_wiped, fuzz_failed, fuzz_room};

// Each request that waits: forwarded, answered, or reset, as the byte says.
static void decide(struct h2_bridge *bridge, uint8_t how) {
    LIST_FOREACH(&bridge->streams, node) {
        struct h2_stream *stream = LIST_ENTRY(node, struct h2_stream, link);
        if (stream->state != H2_ASKED || stream->resetting[H2_CLIENT]) continue;
        if (how % 4 == 1) h2_stream_answer(stream, 421, "name_mismatch", "{}", 2);
        else if (how % 4 == 2) h2_stream_reset(stream, H2_CLIENT, 1);
        else if (!bridge->over[H2_SERVER] && h2_bridge_room(bridge, 0)) h2_stream_forward(stream, (kept++, &injection));
    }
}

static void give(struct h2_bridge *bridge, enum h2_side side) {
    const uint8_t *bytes;
    bool secret;
    ssize_t len;
    for (int i = 0; i < 64 && (len = h2_bridge_send(bridge, side, &bytes, &secret)) > 0; i++) {
        if (!secret && !guessed && memmem(bytes, (size_t)len, value, 16)) abort();
        h2_bridge_sent(bridge, side);
    }
}

// What waits, against what may.
static void check(const struct h2_bridge *bridge) {
    size_t held = 0, count = 0;
    LIST_FOREACH(&bridge->streams, node) {
        const struct h2_stream *stream = LIST_ENTRY(node, struct h2_stream, link);
        for (enum h2_side side = H2_CLIENT; side < H2_SIDES; side++)
            if (stream->body[side].bytes) held += evbuffer_get_length(stream->body[side].bytes);
        count++;
    }
    if (held > 2 * H2_WINDOW_ALL_SMALL + 1024 || count != bridge->stream_count || count > 2 * H2_STREAMS_MAX) abort();
    if (bridge->heads_len > H2_HEADS_MAX + H2_HEAD_MAX) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const uint8_t preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0";
    uint64_t now_us = 1;
    if (h2_calls_load(NULL) < 0) abort();
    struct h2_budget budget = {.max = H2_BUDGET_BASE};
    struct h2_bridge *bridge = h2_bridge_new(&handlers, NULL, true, true, &budget, now_us);
    if (!bridge) abort();
    h2_bridge_receive(bridge, H2_CLIENT, preface, sizeof(preface), now_us);
    h2_bridge_receive(bridge, H2_SERVER, preface + 24, sizeof(preface) - 24, now_us);
    guessed = size > 0 && memmem(data, size, value, 2);
    while (size >= 2 && !h2_bridge_done(bridge)) {
        uint8_t what = data[0];
        enum h2_side side = what & 1 ? H2_SERVER : H2_CLIENT;
        size_t len = data[1] < size - 2 ? data[1] : size - 2;
        h2_bridge_receive(bridge, side, data + 2, len, now_us += len);
        if (what & 2) decide(bridge, what >> 4);
        if (what & 4) give(bridge, H2_CLIENT), give(bridge, H2_SERVER);
        if (what & 8) h2_bridge_tick(bridge, now_us += (uint64_t)what << 22);
        if (what == 0xff) h2_bridge_ended(bridge, side, len % 2);
        check(bridge);
        data += 2 + len;
        size -= 2 + len;
    }
    h2_bridge_free(bridge);
    if (kept != 0) abort();
    return 0;
}
