// SPDX-License-Identifier: Apache-2.0
#include "sandbox/pem.h"

#include <stdint.h>
#include <string.h>

#define PEM_BEGIN "-----BEGIN CERTIFICATE-----"
#define PEM_END "-----END CERTIFICATE-----"
#define PEM_LINE 64

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void pem_append(struct buf *text, const void *certificate, size_t len) {
    const uint8_t *bytes = certificate;
    buf_printf(text, "%s\n", PEM_BEGIN);
    for (size_t i = 0; i < len; i += 3) {
        uint32_t group = (uint32_t)bytes[i] << 16;
        if (i + 1 < len) group |= (uint32_t)bytes[i + 1] << 8;
        if (i + 2 < len) group |= bytes[i + 2];
        char word[4] = {digits[group >> 18], digits[group >> 12 & 63], i + 1 < len ? digits[group >> 6 & 63] : '=',
                        i + 2 < len ? digits[group & 63] : '='};
        buf_append(text, word, sizeof(word));
        if ((i / 3 + 1) % (PEM_LINE / 4) == 0 && i + 3 < len) buf_append(text, "\n", 1);
    }
    buf_printf(text, "\n%s\n", PEM_END);
}

// False: not base64.
static bool decode(const char *at, const char *end, struct buf *ret_bytes) {
    uint32_t group = 0;
    unsigned bits = 0;
    for (; at < end && *at != '='; at++) {
        if (strchr(" \t\r\n", *at)) continue;
        const char *digit = memchr(digits, *at, sizeof(digits) - 1);
        if (!digit) return false;
        group = group << 6 | (uint32_t)(digit - digits);
        bits += 6;
        if (bits < 8) continue;
        bits -= 8;
        char byte = (char)(group >> bits & 0xff);
        buf_append(ret_bytes, &byte, 1);
    }
    return ret_bytes->len > 0 && !ret_bytes->failed;
}

bool pem_next(const char **at, struct buf *certificate) {
    for (;;) {
        const char *begin = strstr(*at, PEM_BEGIN);
        const char *end = begin ? strstr(begin, PEM_END) : NULL;
        if (!end) return false;
        *at = end + strlen(PEM_END);
        buf_consume(certificate, certificate->len);
        if (decode(begin + strlen(PEM_BEGIN), end, certificate)) return true;
    }
}

void pem_append_all(struct buf *text, const char *other) {
    struct buf certificate = BUF_INIT;
    while (pem_next(&other, &certificate)) pem_append(text, certificate.data, certificate.len);
    text->failed |= certificate.failed;
    buf_done(&certificate);
}
