// SPDX-License-Identifier: Apache-2.0
#include "dns/dns_reverse.h"

#include <string.h>

static const char suffix4[] = "in-addr.arpa", suffix6[] = "ip6.arpa";

// Bytes in front of ".suffix"; 0 if the name is the suffix itself; -1 if it is not below it.
static int below(const char *name, const char *suffix) {
    size_t len = strlen(name), tail = strlen(suffix);
    if (len < tail || strcmp(name + len - tail, suffix) != 0) return -1;
    if (len == tail) return 0;
    return name[len - tail - 1] == '.' ? (int)(len - tail - 1) : -1;
}

bool dns_reverse_is(const char *name) { return below(name, suffix4) >= 0 || below(name, suffix6) >= 0; }

// "d.c.b.a" is turned round, and then read as strictly as any other address.
static bool parse4(const char *labels, size_t len, struct addr *ret_addr) {
    char text[16];
    if (len >= sizeof(text)) return false;
    size_t out = 0, end = len;
    for (size_t i = len; i-- > 0;) {
        if (i > 0 && labels[i - 1] != '.') continue;
        memcpy(text + out, labels + i, end - i);
        out += end - i;
        if (i > 0) text[out++] = '.';
        end = i > 0 ? i - 1 : 0;
    }
    struct addr addr;
    if (addr_parse(text, out, &addr) < 0 || addr.family != ADDR_IPV4) return false;
    *ret_addr = addr;
    return true;
}

static int nibble(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool parse6(const char *labels, size_t len, struct addr *ret_addr) {
    uint8_t bytes[16] = {0};
    if (len != 63) return false;
    for (size_t i = 0; i < 32; i++) {
        int value = nibble(labels[2 * i]);
        if (value < 0 || (i < 31 && labels[2 * i + 1] != '.')) return false;
        bytes[15 - i / 2] |= (uint8_t)(i % 2 ? value << 4 : value);
    }
    *ret_addr = addr_from_bytes(bytes, ADDR_IPV6);
    return true;
}

bool dns_reverse_parse(const char *name, struct addr *ret_addr) {
    int len4 = below(name, suffix4), len6 = below(name, suffix6);
    if (len4 > 0) return parse4(name, (size_t)len4, ret_addr);
    return len6 > 0 && parse6(name, (size_t)len6, ret_addr);
}
