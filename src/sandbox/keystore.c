// SPDX-License-Identifier: Apache-2.0
// JKS: magic, version 2, count; a trusted certificate is tag 2, alias, date, "X.509", length, DER; numbers are big endian,
// text has its length in 16 bits. At the end SHA-1 over the password in UTF-16, a phrase, and all before. That digest
// keeps nothing secret and nobody out: it is only what the format wants.
#include "sandbox/keystore.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "sandbox/pem.h"

#define KEYSTORE_MAGIC 0xfeedfeedU
#define KEYSTORE_PHRASE "Mighty Aphrodite"
#define DIGEST_LEN 20

// ---- SHA-1 (FIPS 180-4) ----

struct digest {
    uint32_t state[5];
    uint8_t block[64];
    uint64_t len;
};

static uint32_t rotate(uint32_t word, unsigned bits) { return word << bits | word >> (32 - bits); }

static void digest_block(struct digest *digest) {
    static const uint32_t constants[] = {0x5a827999, 0x6ed9eba1, 0x8f1bbcdc, 0xca62c1d6};
    uint32_t words[80], a = digest->state[0], b = digest->state[1], c = digest->state[2], d = digest->state[3],
                        e = digest->state[4];
    for (size_t i = 0; i < 16; i++) {
        const uint8_t *at = digest->block + 4 * i;
        words[i] = (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
    }
    for (size_t i = 16; i < 80; i++) words[i] = rotate(words[i - 3] ^ words[i - 8] ^ words[i - 14] ^ words[i - 16], 1);
    for (size_t i = 0; i < 80; i++) {
        uint32_t mixed = i < 20 ? (b & c) | (~b & d) : i >= 40 && i < 60 ? (b & c) | (b & d) | (c & d) : b ^ c ^ d;
        uint32_t next = rotate(a, 5) + mixed + e + constants[i / 20] + words[i];
        e = d;
        d = c;
        c = rotate(b, 30);
        b = a;
        a = next;
    }
    const uint32_t sum[] = {a, b, c, d, e};
    for (size_t i = 0; i < 5; i++) digest->state[i] += sum[i];
}

static void digest_add(struct digest *digest, const void *bytes, size_t len) {
    const uint8_t *at = bytes;
    for (size_t i = 0; i < len; i++) {
        digest->block[digest->len++ % 64] = at[i];
        if (digest->len % 64 == 0) digest_block(digest);
    }
}

static void digest_end(struct digest *digest, uint8_t ret_sum[DIGEST_LEN]) {
    uint64_t bits = 8 * digest->len;
    digest_add(digest, "\x80", 1);
    while (digest->len % 64 != 56) digest_add(digest, "", 1);
    for (int shift = 56; shift >= 0; shift -= 8) digest_add(digest, &(uint8_t){(uint8_t)(bits >> shift)}, 1);
    for (size_t i = 0; i < DIGEST_LEN; i++) ret_sum[i] = (uint8_t)(digest->state[i / 4] >> (24 - 8 * (i % 4)));
}

static void keystore_sign(struct buf *store) {
    static const char password[] = "\0c\0h\0a\0n\0g\0e\0i\0t";
    struct digest digest = {.state = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0}};
    uint8_t sum[DIGEST_LEN];
    digest_add(&digest, password, sizeof(password) - 1);
    digest_add(&digest, KEYSTORE_PHRASE, strlen(KEYSTORE_PHRASE));
    digest_add(&digest, store->data, store->len);
    digest_end(&digest, sum);
    buf_append(store, sum, sizeof(sum));
}

// ---- entries ----

static void add_number(struct buf *store, uint64_t number, int bytes) {
    while (bytes-- > 0) buf_append(store, &(char){(char)(number >> (8 * bytes))}, 1);
}

static void add_text(struct buf *store, const char *text) {
    add_number(store, strlen(text), 2);
    buf_append(store, text, strlen(text));
}

static void add_certificate(struct buf *store, const char *alias, const void *certificate, size_t len) {
    add_number(store, 2, 4);
    add_text(store, alias);
    add_number(store, 0, 8);
    add_text(store, "X.509");
    add_number(store, len, 4);
    buf_append(store, certificate, len);
}

static uint32_t number_at(const struct buf *store, size_t at, size_t bytes) {
    uint32_t number = 0;
    for (size_t i = 0; i < bytes; i++) number = number << 8 | (uint8_t)store->data[at + i];
    return number;
}

// Moves behind a field that has its length in front. False: it is not all there.
static bool skip(const struct buf *store, size_t *at, size_t bytes) {
    if (store->len - *at < bytes) return false;
    uint32_t len = number_at(store, *at, bytes);
    *at += bytes;
    if (store->len - *at < len) return false;
    *at += len;
    return true;
}

// How many certificates a JKS has that has nothing else; -1: it is another thing.
static int64_t count_of(const struct buf *store) {
    if (store->len < 12 + DIGEST_LEN || number_at(store, 0, 4) != KEYSTORE_MAGIC || number_at(store, 4, 4) != 2) return -1;
    uint32_t count = number_at(store, 8, 4);
    size_t at = 12;
    for (uint32_t i = 0; i < count; i++) {
        if (store->len - at < 4 || number_at(store, at, 4) != 2) return -1;
        at += 4;
        if (!skip(store, &at, 2) || store->len - at < 8) return -1;
        at += 8;
        if (!skip(store, &at, 2) || !skip(store, &at, 4)) return -1;
    }
    return at + DIGEST_LEN == store->len ? (int64_t)count : -1;
}

static uint32_t add_bundle(struct buf *store, const char *bundle) {
    struct buf certificate = BUF_INIT;
    uint32_t count = 0;
    while (pem_next(&bundle, &certificate)) {
        char alias[32];
        snprintf(alias, sizeof(alias), "system-%u", count++);
        add_certificate(store, alias, certificate.data, certificate.len);
    }
    store->failed |= certificate.failed;
    buf_done(&certificate);
    return count;
}

void keystore_make(const struct buf *old, const char *bundle, const void *certificate, size_t len, struct buf *store) {
    struct buf entries = BUF_INIT;
    int64_t count = count_of(old);
    if (count >= 0) buf_append(&entries, old->data + 12, old->len - 12 - DIGEST_LEN);
    else count = add_bundle(&entries, bundle);
    add_certificate(&entries, "penstock", certificate, len);
    add_number(store, KEYSTORE_MAGIC, 4);
    add_number(store, 2, 4);
    add_number(store, (uint64_t)count + 1, 4);
    buf_append(store, entries.data, entries.len);
    store->failed |= entries.failed;
    keystore_sign(store);
    buf_done(&entries);
}
