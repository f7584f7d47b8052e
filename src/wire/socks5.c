// SPDX-License-Identifier: Apache-2.0
// Theory of operation: each message tells its own length in its first bytes, so a parser first finds that length, asks for
// more until it is there, and then reads. Bytes that must have one value are checked as soon as they are there.
#include "wire/socks5.h"

#include <string.h>

enum { VERSION = 5, PASSWORD_VERSION = 1, HEAD_SIZE = 4 };
enum { TYPE_IPV4 = 1, TYPE_NAME = 3, TYPE_IPV6 = 4 };

// Whether the byte at this place, if it has come, is this one.
static bool could_be(const uint8_t *bytes, size_t len, size_t at, uint8_t value) { return len <= at || bytes[at] == value; }

enum wire_result socks5_greeting(const uint8_t *bytes, size_t len, enum socks5_method *ret_method, size_t *ret_used) {
    if (!could_be(bytes, len, 0, VERSION)) return WIRE_BAD;
    if (len < 2) return WIRE_MORE;
    size_t count = bytes[1];
    if (len < 2 + count) return WIRE_MORE;
    bool none = count > 0 && memchr(bytes + 2, SOCKS5_NO_AUTHENTICATION, count);
    bool password = count > 0 && memchr(bytes + 2, SOCKS5_PASSWORD, count);
    *ret_method = none ? SOCKS5_NO_AUTHENTICATION : password ? SOCKS5_PASSWORD : SOCKS5_NO_METHOD;
    *ret_used = 2 + count;
    return WIRE_OK;
}

enum wire_result socks5_credentials(const uint8_t *bytes, size_t len, size_t *ret_used) {
    if (!could_be(bytes, len, 0, PASSWORD_VERSION)) return WIRE_BAD;
    size_t end = 1;
    for (int field = 0; field < 2; field++) {
        if (len <= end) return WIRE_MORE;
        end += 1 + (size_t)bytes[end];
    }
    if (len < end) return WIRE_MORE;
    *ret_used = end;
    return WIRE_OK;
}

enum wire_result socks5_request(const uint8_t *bytes, size_t len, struct socks5_request *ret_request, size_t *ret_used) {
    if (!could_be(bytes, len, 0, VERSION) || !could_be(bytes, len, 2, 0)) return WIRE_BAD;
    if (len < HEAD_SIZE) return WIRE_MORE;
    struct socks5_request request = {.command = bytes[1]};
    uint8_t type = bytes[3];
    size_t start = HEAD_SIZE, size = 0, end = len; // of an unknown address nobody knows the end
    if (type == TYPE_NAME) {
        if (len == HEAD_SIZE) return WIRE_MORE;
        size = bytes[start++];
        if (size == 0) return WIRE_BAD;
    } else {
        size = type == TYPE_IPV4 ? 4 : type == TYPE_IPV6 ? 16 : 0;
    }
    request.unknown_address = size == 0;
    if (size > 0) {
        const uint8_t *address = bytes + start, *port = address + size;
        end = start + size + 2;
        if (len < end) return WIRE_MORE;
        request.port = (uint16_t)(port[0] << 8 | port[1]);
        if (type == TYPE_NAME) request.name = (struct wire_slice){address, size};
        else request.address = addr_from_bytes(address, type == TYPE_IPV4 ? ADDR_IPV4 : ADDR_IPV6);
    }
    *ret_used = end;
    *ret_request = request;
    return WIRE_OK;
}

void socks5_choice_write(enum socks5_method method, uint8_t ret_bytes[SOCKS5_CHOICE_SIZE]) {
    ret_bytes[0] = VERSION;
    ret_bytes[1] = (uint8_t)method;
}

void socks5_welcome_write(uint8_t ret_bytes[SOCKS5_WELCOME_SIZE]) {
    ret_bytes[0] = PASSWORD_VERSION;
    ret_bytes[1] = 0;
}

void socks5_reply_write(enum socks5_code code, uint8_t ret_bytes[SOCKS5_REPLY_SIZE]) {
    memset(ret_bytes, 0, SOCKS5_REPLY_SIZE); // bound to 0.0.0.0, port 0
    ret_bytes[0] = VERSION;
    ret_bytes[1] = (uint8_t)code;
    ret_bytes[3] = TYPE_IPV4;
}

void socks4_rejection_write(uint8_t ret_bytes[SOCKS4_REJECTION_SIZE]) {
    memset(ret_bytes, 0, SOCKS4_REJECTION_SIZE);
    ret_bytes[1] = 0x5b;
}
