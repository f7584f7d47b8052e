// SPDX-License-Identifier: Apache-2.0
#include "vault/template.h"

#include <errno.h>

#include "vault/secure.h"
#include "vault/crypto.h"

#define PLACE "{secret}"
#define BASIC "Basic "

static int template_copy(const char *value, const uint8_t *secret, size_t len, uint8_t *ret_value, size_t size) {
    size_t used = 0;
    while (*value) {
        bool place = strncmp(value, PLACE, strlen(PLACE)) == 0;
        size_t part = place ? len : 1;
        if (part > size - used) return -E2BIG;
        memcpy(ret_value + used, place ? secret : (const uint8_t *)value, part);
        used += part;
        value += place ? strlen(PLACE) : 1;
    }
    return (int)used;
}

static int template_basic(const uint8_t *plain, size_t len, uint8_t *ret_value, size_t size) {
    size_t head = strlen(BASIC);
    if (head + (len + 2) / 3 * 4 + 1 > size) return -E2BIG; // with the NUL that is written behind
    memcpy(ret_value, BASIC, head);
    return (int)head + EVP_EncodeBlock(ret_value + head, plain, (int)len);
}

static bool blank(uint8_t byte) { return byte == ' ' || byte == '\t'; }

int template_fill(const char *value, bool basic, const uint8_t *secret, size_t len, uint8_t *ret_value, size_t size) {
    int r;
    if (basic) {
        uint8_t *plain = secure_new(size);
        if (!plain) return -ENOMEM;
        r = template_copy(value, secret, len, plain, size);
        if (r >= 0) r = template_basic(plain, (size_t)r, ret_value, size);
        secure_free(plain);
    } else {
        r = template_copy(value, secret, len, ret_value, size);
    }
    if (r < 0) return r;
    if (r == 0) return -EINVAL;
    return blank(ret_value[0]) || blank(ret_value[r - 1]) ? -EILSEQ : r;
}

size_t template_size(const char *value, size_t len) {
    size_t places = strlen(value) / strlen(PLACE), plain = strlen(value) + places * len;
    size_t most = strlen(BASIC) + (plain + 2) / 3 * 4 + 1;
    return most < IPC_SECRET_MAX ? most : IPC_SECRET_MAX;
}
