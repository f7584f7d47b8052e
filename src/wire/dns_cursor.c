// SPDX-License-Identifier: Apache-2.0
#include "wire/dns_cursor.h"

struct dns_cursor dns_cursor_at(const uint8_t *bytes, size_t position, size_t end) {
    return (struct dns_cursor){.bytes = bytes, .position = position, .end = end, .bad = position > end};
}

const uint8_t *dns_cursor_take(struct dns_cursor *cursor, size_t len) {
    if (cursor->bad || len > cursor->end - cursor->position) {
        cursor->bad = true;
        return NULL;
    }
    const uint8_t *taken = cursor->bytes + cursor->position;
    cursor->position += len;
    return taken;
}

uint8_t dns_cursor_read8(struct dns_cursor *cursor) {
    const uint8_t *byte = dns_cursor_take(cursor, 1);
    return byte ? *byte : 0;
}

uint16_t dns_cursor_read16(struct dns_cursor *cursor) {
    const uint8_t *bytes = dns_cursor_take(cursor, 2);
    return bytes ? (uint16_t)(bytes[0] << 8 | bytes[1]) : 0;
}

uint32_t dns_cursor_read32(struct dns_cursor *cursor) {
    uint32_t high = dns_cursor_read16(cursor);
    return high << 16 | dns_cursor_read16(cursor);
}

size_t dns_cursor_name(struct dns_cursor *cursor, bool pointers_allowed, uint8_t ret_name[DNS_CURSOR_NAME_MAX]) {
    size_t len = 0;
    // Labels are read here; after a pointer from somewhere before it: every jump shortens the way, so loops end.
    struct dns_cursor reader = *cursor;
    size_t segment = cursor->position;
    bool jumped = false;
    for (;;) {
        uint8_t length = dns_cursor_read8(&reader);
        if (reader.bad) break;
        if ((length & DNS_CURSOR_POINTER) == DNS_CURSOR_POINTER) {
            size_t target = (size_t)(length & 0x3f) << 8 | dns_cursor_read8(&reader);
            if (!jumped) cursor->position = reader.position;
            jumped = true;
            if (reader.bad || !pointers_allowed || target >= segment || target < DNS_CURSOR_HEADER) break;
            // What is pointed at lies in the message before, not in this record.
            reader = dns_cursor_at(reader.bytes, target, segment);
            segment = target;
            continue;
        }
        const uint8_t *label = dns_cursor_take(&reader, length);
        if (!label || length & DNS_CURSOR_POINTER || len + 1 + length > DNS_CURSOR_NAME_MAX) break;
        ret_name[len] = length;
        memcpy(ret_name + len + 1, label, length);
        len += 1 + (size_t)length;
        if (length > 0) continue;
        if (!jumped) cursor->position = reader.position;
        return len;
    }
    cursor->bad = true;
    return 0;
}

static bool is_name_byte(uint8_t byte) {
    return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || (byte >= '0' && byte <= '9') ||
           byte == '-' || byte == '_';
}

bool dns_cursor_name_text(const uint8_t *name, char ret_text[NAME_SIZE]) {
    char text[DNS_CURSOR_NAME_MAX + 1];
    size_t len = 0;
    ret_text[0] = '\0';
    if (name[0] == 0) return true;
    for (; *name; name += 1 + *name) {
        for (size_t i = 1; i <= *name; i++) {
            if (!is_name_byte(name[i])) return false; // a dot inside a label would become another name
            text[len++] = (char)name[i];
        }
        text[len++] = '.';
    }
    struct name_host host;
    if (name_from_wire(text, len - 1, &host) < 0 || host.is_address) return false;
    memcpy(ret_text, host.name, NAME_SIZE);
    return true;
}

size_t dns_cursor_name_wire(const char *text, uint8_t ret_name[DNS_CURSOR_NAME_MAX]) {
    size_t len = 0;
    while (*text) {
        size_t label = strcspn(text, ".");
        if (label == 0 || label > 63 || len + 1 + label + 1 > DNS_CURSOR_NAME_MAX) return 0;
        ret_name[len++] = (uint8_t)label;
        memcpy(ret_name + len, text, label);
        len += label;
        text += label;
        if (*text == '.' && *++text == '\0') return 0;
    }
    ret_name[len++] = 0;
    return len;
}
