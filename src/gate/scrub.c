// SPDX-License-Identifier: Apache-2.0
// One Knuth-Morris-Pratt matcher for each value: linear whatever a server sends, and what a matcher has matched so
// far is just what must be held back. Bytes are matched as they came and masked where they go.
#include "gate/scrub.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

struct scrub_matcher {
    const uint8_t *bytes;
    size_t len;
    size_t matched;   // bytes of the value that the stream ends with
    uint16_t *border; // [n]: the longest proper prefix of the value that its first n bytes end with; for n = 0..len
};

struct scrub {
    size_t count;
    size_t held_len;
    uint8_t *held; // the end of the stream, already masked: as long as the longest value
    struct scrub_matcher matchers[SCRUB_VALUES_MAX];
};

static size_t scrub_step(const struct scrub_matcher *matcher, size_t matched, uint8_t byte) {
    while (matched > 0 && (matched == matcher->len || matcher->bytes[matched] != byte))
        matched = matcher->border[matched];
    return matched + (matcher->bytes[matched] == byte);
}

static bool scrub_matcher_init(struct scrub_matcher *matcher, const struct scrub_value *value) {
    if (value->len == 0 || value->len > SCRUB_VALUE_MAX) return false;
    matcher->bytes = value->bytes;
    matcher->len = value->len;
    matcher->border = NEW_ARRAY(uint16_t, value->len + 1);
    if (!matcher->border) return false;
    for (size_t n = 2; n <= value->len; n++) {
        size_t border = scrub_step(matcher, matcher->border[n - 1], value->bytes[n - 1]);
        matcher->border[n] = (uint16_t)border;
    }
    return true;
}

struct scrub *scrub_new(const struct scrub_value *values, size_t count) {
    struct scrub *scrub = count <= SCRUB_VALUES_MAX ? NEW(struct scrub) : NULL;
    if (!scrub) return NULL;
    size_t longest = 1;
    bool good = true;
    for (size_t i = 0; good && i < count; i++) {
        scrub->count++;
        good = scrub_matcher_init(&scrub->matchers[i], &values[i]);
        if (values[i].len > longest) longest = values[i].len;
    }
    if (good) scrub->held = malloc(longest);
    if (scrub->held) return scrub;
    scrub_free(scrub);
    return NULL;
}

void scrub_free(struct scrub *scrub) {
    if (!scrub) return;
    for (size_t i = 0; i < scrub->count; i++) {
        struct scrub_matcher *matcher = &scrub->matchers[i];
        if (matcher->border) explicit_bzero(matcher->border, (matcher->len + 1) * sizeof(*matcher->border));
        free(matcher->border);
    }
    if (scrub->held) explicit_bzero(scrub->held, scrub->held_len);
    free(scrub->held);
    free(scrub);
}

struct scrub_value scrub_header_value(const void *bytes, size_t len) {
    const uint8_t *blank = memchr(bytes, ' ', len);
    size_t skip = blank ? (size_t)(blank - (const uint8_t *)bytes) + 1 : 0;
    if (len - skip < SCRUB_REST_MIN) skip = 0;
    return (struct scrub_value){(const uint8_t *)bytes + skip, len - skip};
}

// Matches len bytes; masks[i] is where the byte i goes, with what the matcher has matched before it.
static size_t scrub_match(const struct scrub_matcher *matcher, size_t matched, const uint8_t *bytes, size_t len,
                          uint8_t *masks) {
    for (size_t i = 0; i < len; i++) {
        if (matched == 0) { // the usual case: goes on to where a value may begin
            const uint8_t *first = memchr(bytes + i, matcher->bytes[0], len - i);
            if (!first) break;
            i = (size_t)(first - bytes);
        }
        matched = scrub_step(matcher, matched, bytes[i]);
        if (matched == matcher->len) memset(masks + i + 1 - matcher->len, '*', matcher->len);
    }
    return matched == matcher->len ? matcher->border[matched] : matched;
}

size_t scrub_feed(struct scrub *scrub, const void *bytes, size_t len, uint8_t *out) {
    if (len == 0) return 0;
    size_t keep = 0, all = scrub->held_len + len;
    memcpy(out, scrub->held, scrub->held_len);
    memcpy(out + scrub->held_len, bytes, len);
    for (size_t i = 0; i < scrub->count; i++) {
        struct scrub_matcher *matcher = &scrub->matchers[i];
        matcher->matched = scrub_match(matcher, matcher->matched, bytes, len, out + scrub->held_len);
        if (matcher->matched > keep) keep = matcher->matched;
    }
    memcpy(scrub->held, out + all - keep, keep);
    scrub->held_len = keep;
    return all - keep;
}

size_t scrub_held(const struct scrub *scrub) { return scrub->held_len; }

size_t scrub_end(struct scrub *scrub, uint8_t *out) {
    size_t len = scrub->held_len;
    memcpy(out, scrub->held, len);
    explicit_bzero(scrub->held, len);
    scrub->held_len = 0;
    for (size_t i = 0; i < scrub->count; i++) scrub->matchers[i].matched = 0;
    return len;
}

void scrub_text(const struct scrub *scrub, void *text, size_t len) {
    // One value's mask must not hide another's occurrence: each is looked for in the text as it was.
    AUTO_FREE uint8_t *masked = malloc(len + 1);
    if (!masked) {
        memset(text, '*', len); // rather nothing than a secret
        return;
    }
    memcpy(masked, text, len);
    for (size_t i = 0; i < scrub->count; i++) scrub_match(&scrub->matchers[i], 0, text, len, masked);
    memcpy(text, masked, len);
    explicit_bzero(masked, len);
}
