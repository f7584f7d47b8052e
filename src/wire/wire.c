// SPDX-License-Identifier: Apache-2.0
#include "wire/wire.h"

#include <llhttp/llhttp.h>
#include <stdbool.h>

// What begins with a method that the HTTP/1 parser knows is judged as HTTP; "EHLO x" and the like are not.
#define METHOD_ROW(number, name, text) #text " ",
static const char *const methods[] = {HTTP_METHOD_MAP(METHOD_ROW)};
#undef METHOD_ROW

static const char http2_preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"; // RFC 9113 3.4

// WIRE_OK: bytes begin with text; WIRE_MORE: as far as they go they do.
static enum wire_result begins(const uint8_t *bytes, size_t len, const char *text, size_t text_len) {
    if (memcmp(bytes, text, len < text_len ? len : text_len) != 0) return WIRE_BAD;
    return len < text_len ? WIRE_MORE : WIRE_OK;
}

enum wire_app wire_classify(const uint8_t *bytes, size_t len) {
    if (len == 0) return WIRE_APP_MORE;
    bool more = false;
    enum wire_result result = begins(bytes, len, "\x16\x03", 2);
    if (result == WIRE_OK && len > 2) return bytes[2] <= 4 ? WIRE_APP_TLS : WIRE_APP_OTHER;
    if (result != WIRE_BAD) return WIRE_APP_MORE;
    result = begins(bytes, len, http2_preface, sizeof(http2_preface) - 1);
    if (result == WIRE_OK) return WIRE_APP_HTTP2;
    if (result == WIRE_MORE) more = true;
    for (size_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++) {
        result = begins(bytes, len, methods[i], strlen(methods[i]));
        if (result == WIRE_OK) return WIRE_APP_HTTP1;
        if (result == WIRE_MORE) more = true;
    }
    return more ? WIRE_APP_MORE : WIRE_APP_OTHER;
}
