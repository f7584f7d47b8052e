// SPDX-License-Identifier: Apache-2.0
// Theory of operation: a ClientHello is one handshake message that the client may cut into records as it likes. The
// first pass walks record headers only, each whole record once however many segments come, finds whether the message is
// complete, and refuses what cannot become one. The second pass reads the message once through a cursor that steps over
// record headers; its error is sticky and checked at the end. Every nested length is a limit that the cursor cannot
// pass, and each must be used up exactly: two readers that disagree about where something ends would see two different
// names.
#include "wire/tls.h"

enum { RECORD_HEADER = 5, RECORD_MAX = 16384, HANDSHAKE_HEADER = 4 };
enum { CONTENT_ALERT = 21, CONTENT_HANDSHAKE = 22, CLIENT_HELLO = 1, ALERT_FATAL = 2 };
enum {
    EXTENSION_SERVER_NAME = 0,
    EXTENSION_ALPN = 16,
    EXTENSION_EARLY_DATA = 42,
    EXTENSION_SUPPORTED_VERSIONS = 43,
    EXTENSION_ECH = 0xfe0d,
};

struct cursor {
    const uint8_t *bytes;
    size_t position;    // in bytes
    size_t record_left; // bytes of the current record's fragment
    size_t left;        // bytes of the handshake message
    bool bad;
};

static uint16_t get16(const uint8_t *bytes) { return (uint16_t)(bytes[0] << 8 | bytes[1]); }

// RFC 8446 5.1: a handshake record, not empty, of any version 3.x that exists.
static bool record_header_valid(const uint8_t *header, size_t len) {
    if (header[0] != CONTENT_HANDSHAKE) return false;
    if (len > 1 && header[1] != 3) return false;
    if (len > 2 && header[2] > 4) return false;
    return len < RECORD_HEADER || (get16(header + 3) != 0 && get16(header + 3) <= RECORD_MAX);
}

// One record, of which `there` bytes have come behind its header; false: it cannot be part of a hello.
static bool walk_record(struct tls_walk *walk, const uint8_t *record, size_t there) {
    size_t fragment = get16(record + 3);
    for (size_t i = 0; walk->have + i < HANDSHAKE_HEADER && i < there; i++)
        walk->header[walk->have + i] = record[RECORD_HEADER + i];
    const uint8_t *header = walk->header;
    size_t have = walk->have + there;
    if (have > 0 && header[0] != CLIENT_HELLO) return false;
    if (have >= HANDSHAKE_HEADER && walk->want == 0)
        walk->want = HANDSHAKE_HEADER + ((size_t)header[1] << 16 | (size_t)header[2] << 8 | header[3]);
    if (walk->want > TLS_HELLO_MAX - RECORD_HEADER) return false;
    // RFC 8446 5.1: nothing follows a ClientHello in its record.
    return walk->want == 0 || walk->have + fragment <= walk->want;
}

static enum wire_result walk_records(const uint8_t *bytes, size_t len, struct tls_walk *walk) {
    while (walk->position < len && (walk->want == 0 || walk->have < walk->want)) {
        const uint8_t *record = bytes + walk->position;
        if (!record_header_valid(record, len - walk->position)) return WIRE_BAD;
        if (len - walk->position <= RECORD_HEADER) break;
        size_t fragment = get16(record + 3), there = len - walk->position - RECORD_HEADER;
        if (!walk_record(walk, record, there < fragment ? there : fragment)) return WIRE_BAD;
        if (there < fragment) break;
        walk->have += fragment;
        walk->position += RECORD_HEADER + fragment;
    }
    if (walk->position > TLS_HELLO_MAX) return WIRE_BAD;
    if (walk->want && walk->have == walk->want) return WIRE_OK;
    return len >= TLS_HELLO_MAX ? WIRE_BAD : WIRE_MORE;
}

static uint8_t read8(struct cursor *cursor) {
    if (cursor->left == 0) cursor->bad = true;
    if (cursor->bad) return 0;
    if (cursor->record_left == 0) {
        cursor->record_left = get16(cursor->bytes + cursor->position + 3);
        cursor->position += RECORD_HEADER;
    }
    cursor->record_left--;
    cursor->left--;
    return cursor->bytes[cursor->position++];
}

static uint16_t read16(struct cursor *cursor) {
    uint16_t high = read8(cursor);
    return (uint16_t)(high << 8 | read8(cursor));
}

static void skip(struct cursor *cursor, size_t len) {
    if (len > cursor->left) cursor->bad = true;
    while (len-- && !cursor->bad) read8(cursor);
}

// Limits the cursor to the next len bytes; leave() checks that they were used up and goes back to what surrounds them.
static size_t enter(struct cursor *cursor, size_t len) {
    if (len > cursor->left) cursor->bad = true;
    if (cursor->bad) return 0;
    size_t outside = cursor->left - len;
    cursor->left = len;
    return outside;
}

static void leave(struct cursor *cursor, size_t outside) {
    if (cursor->left != 0) cursor->bad = true;
    if (!cursor->bad) cursor->left = outside;
}

// RFC 6066 3: a list; one name per type, and no type but host_name was ever defined. So: exactly one name.
static void read_server_name(struct cursor *cursor, struct tls_hello *hello) {
    size_t outside = enter(cursor, read16(cursor));
    if (read8(cursor) != 0 || hello->has_sni) cursor->bad = true;
    size_t len = read16(cursor);
    if (len == 0 || len >= sizeof(hello->sni)) cursor->bad = true;
    for (size_t i = 0; i < len && !cursor->bad; i++) hello->sni[i] = read8(cursor);
    leave(cursor, outside);
    hello->has_sni = true;
    hello->sni_len = len;
}

// RFC 7301 3.1.
static void read_alpn(struct cursor *cursor, struct tls_hello *hello) {
    if (hello->has_alpn) cursor->bad = true;
    hello->has_alpn = true;
    size_t outside = enter(cursor, read16(cursor));
    if (cursor->left == 0) cursor->bad = true;
    while (cursor->left && !cursor->bad) {
        uint8_t name[8] = {0};
        size_t len = read8(cursor);
        if (len == 0) cursor->bad = true;
        for (size_t i = 0; i < len && !cursor->bad; i++) {
            uint8_t byte = read8(cursor);
            if (i < sizeof(name)) name[i] = byte;
        }
        if (len == 2 && memcmp(name, "h2", 2) == 0) hello->alpn_h2 = true;
        if (len == 8 && memcmp(name, "http/1.1", 8) == 0) hello->alpn_http1 = true;
    }
    leave(cursor, outside);
}

// RFC 8446 4.2.1. Values of no version, such as GREASE (RFC 8701), are passed over.
static void read_supported_versions(struct cursor *cursor, struct tls_hello *hello, bool *seen) {
    if (*seen) cursor->bad = true;
    *seen = true;
    size_t outside = enter(cursor, read8(cursor));
    if (cursor->left == 0) cursor->bad = true;
    uint16_t highest = 0;
    while (cursor->left && !cursor->bad) {
        uint16_t version = read16(cursor);
        if (version >= 0x0300 && version <= 0x0304 && version > highest) highest = version;
    }
    leave(cursor, outside);
    if (highest) hello->version = highest;
}

static void read_extensions(struct cursor *cursor, struct tls_hello *hello) {
    bool seen_versions = false;
    size_t outside = enter(cursor, read16(cursor));
    while (cursor->left && !cursor->bad) {
        uint16_t type = read16(cursor);
        size_t around = enter(cursor, read16(cursor));
        switch (type) {
        case EXTENSION_SERVER_NAME:
            read_server_name(cursor, hello);
            break;
        case EXTENSION_ALPN:
            read_alpn(cursor, hello);
            break;
        case EXTENSION_SUPPORTED_VERSIONS:
            read_supported_versions(cursor, hello, &seen_versions);
            break;
        case EXTENSION_EARLY_DATA:
            if (hello->offers_early_data) cursor->bad = true;
            hello->offers_early_data = true;
            break;
        case EXTENSION_ECH:
            if (hello->has_ech) cursor->bad = true;
            hello->has_ech = true;
            skip(cursor, cursor->left);
            break;
        default:
            skip(cursor, cursor->left);
        }
        leave(cursor, around);
    }
    leave(cursor, outside);
}

enum wire_result tls_hello_parse(const uint8_t *bytes, size_t len, struct tls_walk *walk, struct tls_hello *ret_hello) {
    enum wire_result result = walk_records(bytes, len, walk);
    if (result != WIRE_OK) return result;
    struct cursor cursor = {.bytes = bytes, .left = walk->want};
    struct tls_hello hello = {0};
    skip(&cursor, HANDSHAKE_HEADER);
    hello.version = read16(&cursor);
    if (hello.version >> 8 != 3) cursor.bad = true;
    skip(&cursor, 32); // random
    size_t session_id = read8(&cursor);
    if (session_id > 32) cursor.bad = true;
    skip(&cursor, session_id);
    size_t cipher_suites = read16(&cursor);
    if (cipher_suites == 0 || cipher_suites % 2) cursor.bad = true;
    skip(&cursor, cipher_suites);
    size_t compression = read8(&cursor);
    if (compression == 0) cursor.bad = true;
    skip(&cursor, compression);
    if (cursor.left) read_extensions(&cursor, &hello); // absent before TLS 1.3
    if (cursor.bad || cursor.left) return WIRE_BAD;
    *ret_hello = hello;
    return WIRE_OK;
}

void tls_alert_write(enum tls_alert alert, uint8_t ret_record[TLS_ALERT_SIZE]) {
    const uint8_t record[TLS_ALERT_SIZE] = {CONTENT_ALERT, 3, 3, 0, 2, ALERT_FATAL, (uint8_t)alert};
    memcpy(ret_record, record, sizeof(record));
}
