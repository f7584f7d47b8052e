// SPDX-License-Identifier: Apache-2.0
// Addresses, prefixes and the classifier. Goal: one spelling of an address everywhere, so that a comparison of two
// struct addr is a comparison of two destinations. IPv4-mapped IPv6 addresses become IPv4 in addr_from_bytes, the one
// place through which every address goes. Forms that merely carry an IPv4 address (NAT64, 6to4, ...) stay IPv6: a
// packet to them is an IPv6 packet; addr_embedded_ipv4 tells what they lead to.
#include "base/addr.h"

#include <arpa/inet.h>
#include <errno.h>

#include "base/mem.h"
#include "base/number.h"

// Not globally reachable: IANA special-purpose registries (RFC 6890 and later), multicast, and the reserved class E.
// Documentation ranges are deliberately absent: there is nothing to protect in them.
#define V4(...)                                                                                                        \
    {                                                                                                                  \
        .family = ADDR_IPV4, .bytes = { __VA_ARGS__ }                                                                  \
    }
#define V6(...)                                                                                                        \
    {                                                                                                                  \
        .family = ADDR_IPV6, .bytes = { __VA_ARGS__ }                                                                  \
    }
#define SPECIAL_BLOCKS(X)                                                                                              \
    X("0.0.0.0/8", V4(0, 0, 0, 0), 8)                                                                                  \
    X("10.0.0.0/8", V4(10, 0, 0, 0), 8)                                                                                \
    X("100.64.0.0/10", V4(100, 64, 0, 0), 10)                                                                          \
    X("127.0.0.0/8", V4(127, 0, 0, 0), 8)                                                                              \
    X("169.254.0.0/16", V4(169, 254, 0, 0), 16)                                                                        \
    X("172.16.0.0/12", V4(172, 16, 0, 0), 12)                                                                          \
    X("192.0.0.0/24", V4(192, 0, 0, 0), 24)                                                                            \
    X("192.88.99.0/24", V4(192, 88, 99, 0), 24)                                                                        \
    X("192.168.0.0/16", V4(192, 168, 0, 0), 16)                                                                        \
    X("198.18.0.0/15", V4(198, 18, 0, 0), 15)                                                                          \
    X("224.0.0.0/4", V4(224, 0, 0, 0), 4)                                                                              \
    X("240.0.0.0/4", V4(240, 0, 0, 0), 4)                                                                              \
    X("::", V6(0), 128)                                                                                                \
    X("::1", V6(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1), 128)                                                  \
    X("fc00::/7", V6(0xfc), 7)                                                                                         \
    X("fe80::/10", V6(0xfe, 0x80), 10)                                                                                 \
    X("fec0::/10", V6(0xfe, 0xc0), 10)                                                                                 \
    X("ff00::/8", V6(0xff), 8)                                                                                         \
    X("100::/64", V6(0x01, 0x00), 64)                                                                                  \
    X("64:ff9b:1::/48", V6(0x00, 0x64, 0xff, 0x9b, 0, 1), 48)                                                          \
    X("2001:2::/48", V6(0x20, 0x01, 0, 2), 48)                                                                         \
    X("2001:10::/28", V6(0x20, 0x01, 0, 0x10), 28)                                                                     \
    X("2001:20::/28", V6(0x20, 0x01, 0, 0x20), 28)                                                                     \
    X("5f00::/16", V6(0x5f, 0x00), 16)

#define SPECIAL_TEXT(text, addr, length) text,
#define SPECIAL_PREFIX(text, addr, length) {addr, length},
static const char *const special_texts[] = {SPECIAL_BLOCKS(SPECIAL_TEXT)};
static const struct addr_prefix special_prefixes[] = {SPECIAL_BLOCKS(SPECIAL_PREFIX)};
_Static_assert(ARRAY_LENGTH(special_texts) == ARRAY_LENGTH(special_prefixes), "one text per block");

static const uint8_t mapped_prefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

struct addr addr_ipv4(uint32_t host_order) {
    return (struct addr){.family = ADDR_IPV4,
                         .bytes = {(uint8_t)(host_order >> 24), (uint8_t)(host_order >> 16), (uint8_t)(host_order >> 8),
                                   (uint8_t)host_order}};
}

struct addr addr_from_bytes(const uint8_t *bytes, enum addr_family family) {
    struct addr addr = {.family = (uint8_t)family};
    if (family == ADDR_IPV4) {
        memcpy(addr.bytes, bytes, 4);
    } else if (family == ADDR_IPV6 && memcmp(bytes, mapped_prefix, sizeof(mapped_prefix)) == 0) {
        addr.family = ADDR_IPV4;
        memcpy(addr.bytes, bytes + 12, 4);
    } else if (family == ADDR_IPV6) {
        memcpy(addr.bytes, bytes, 16);
    }
    return addr;
}

// Text to bytes without turning mapped addresses into IPv4. Returns the family, ADDR_NONE if it is no address.
static enum addr_family parse_raw(const char *text, size_t len, uint8_t bytes[16]) {
    char copy[INET6_ADDRSTRLEN];
    if (len == 0 || len >= sizeof(copy) || memchr(text, '\0', len)) return ADDR_NONE;
    memcpy(copy, text, len);
    copy[len] = '\0';
    // glibc's inet_pton is strict in the sense of the header: no leading zeros, no short forms, no zone.
    if (inet_pton(AF_INET, copy, bytes) == 1) return ADDR_IPV4;
    return inet_pton(AF_INET6, copy, bytes) == 1 ? ADDR_IPV6 : ADDR_NONE;
}

int addr_parse(const char *text, size_t len, struct addr *ret_addr) {
    uint8_t bytes[16];
    enum addr_family family = parse_raw(text, len, bytes);
    if (family == ADDR_NONE) return -EINVAL;
    *ret_addr = addr_from_bytes(bytes, family);
    return 0;
}

// What inet_ntop writes, without its printf: each line of a log has one.
static const char *format_ipv4(const uint8_t bytes[4], char buf[ADDR_TEXT_SIZE]) {
    char *out = buf;
    for (int i = 0; i < 4; i++) {
        if (bytes[i] >= 100) *out++ = (char)('0' + bytes[i] / 100);
        if (bytes[i] >= 10) *out++ = (char)('0' + bytes[i] / 10 % 10);
        *out++ = (char)('0' + bytes[i] % 10);
        *out++ = i < 3 ? '.' : '\0';
    }
    return buf;
}

const char *addr_format(const struct addr *addr, char buf[ADDR_TEXT_SIZE]) {
    if (addr->family == ADDR_IPV4) return format_ipv4(addr->bytes, buf);
    if (addr->family == ADDR_NONE || !inet_ntop(AF_INET6, addr->bytes, buf, ADDR_TEXT_SIZE)) snprintf(buf, ADDR_TEXT_SIZE, "-");
    // RFC 5952 5: the mixed form is for known prefixes; the C library also uses it below ::/96, where it hides the input.
    static const uint8_t zero[12];
    const uint8_t *low = addr->bytes + 12;
    if (addr->family == ADDR_IPV6 && memcmp(addr->bytes, zero, 12) == 0 && (low[0] || low[1]))
        snprintf(buf, ADDR_TEXT_SIZE, "::%x:%x", low[0] << 8 | low[1], low[2] << 8 | low[3]);
    return buf;
}

bool addr_equal(const struct addr *a, const struct addr *b) { return memcmp(a, b, sizeof(*a)) == 0; }

int addr_compare(const struct addr *a, const struct addr *b) { return memcmp(a, b, sizeof(*a)); }

static bool addr_is_ipv6_one(const struct addr *addr) {
    static const struct addr one = {.family = ADDR_IPV6, .bytes = {[15] = 1}};
    return addr_equal(addr, &one);
}

bool addr_is_loopback(const struct addr *addr) {
    return addr->family == ADDR_IPV4 ? addr->bytes[0] == 127 : addr_is_ipv6_one(addr);
}

bool addr_is_unspecified(const struct addr *addr) {
    static const uint8_t zero[16];
    return addr->family != ADDR_NONE && memcmp(addr->bytes, zero, sizeof(zero)) == 0;
}

int addr_from_sockaddr(const struct sockaddr *sockaddr, struct addr *ret_addr, uint16_t *ret_port) {
    if (sockaddr->sa_family == AF_INET) {
        struct sockaddr_in in;
        memcpy(&in, sockaddr, sizeof(in));
        *ret_addr = addr_from_bytes((const uint8_t *)&in.sin_addr, ADDR_IPV4);
        *ret_port = ntohs(in.sin_port);
        return 0;
    }
    if (sockaddr->sa_family != AF_INET6) return -EAFNOSUPPORT;
    struct sockaddr_in6 in6;
    memcpy(&in6, sockaddr, sizeof(in6));
    *ret_addr = addr_from_bytes(in6.sin6_addr.s6_addr, ADDR_IPV6);
    *ret_port = ntohs(in6.sin6_port);
    return 0;
}

socklen_t addr_to_sockaddr(const struct addr *addr, uint16_t port, struct sockaddr_storage *ret_sockaddr) {
    memset(ret_sockaddr, 0, sizeof(*ret_sockaddr));
    if (addr->family == ADDR_IPV4) {
        struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(port)};
        memcpy(&in.sin_addr, addr->bytes, 4);
        memcpy(ret_sockaddr, &in, sizeof(in));
        return sizeof(in);
    }
    struct sockaddr_in6 in6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    memcpy(&in6.sin6_addr, addr->bytes, 16);
    memcpy(ret_sockaddr, &in6, sizeof(in6));
    return sizeof(in6);
}

// Clears the bits behind length; says whether one was set.
static bool clear_host_bits(uint8_t bytes[16], unsigned length, unsigned width) {
    bool had = false;
    for (unsigned i = length / 8; i < width / 8; i++) {
        uint8_t keep = i == length / 8 ? (uint8_t)(0xff00u >> (length % 8)) : 0;
        had |= (bytes[i] & (uint8_t)~keep) != 0;
        bytes[i] &= keep;
    }
    return had;
}

int addr_prefix_parse(const char *text, size_t len, struct addr_prefix *ret_prefix, bool *ret_host_bits) {
    const char *slash = memchr(text, '/', len);
    size_t addr_len = slash ? (size_t)(slash - text) : len;
    uint8_t bytes[16] = {0};
    enum addr_family family = parse_raw(text, addr_len, bytes);
    if (family == ADDR_NONE) return -EINVAL;
    unsigned width = family == ADDR_IPV4 ? 32 : 128;
    uint64_t length = width;
    if (slash && number_parse(slash + 1, len - addr_len - 1, 0, width, &length) != 0) return -EINVAL;
    bool mapped = family == ADDR_IPV6 && length >= 96 && memcmp(bytes, mapped_prefix, sizeof(mapped_prefix)) == 0;
    if (mapped) {
        memmove(bytes, bytes + 12, 4);
        memset(bytes + 4, 0, 12);
        family = ADDR_IPV4;
        width = 32;
        length -= 96;
    }
    *ret_host_bits = clear_host_bits(bytes, (unsigned)length, width);
    *ret_prefix = (struct addr_prefix){.addr = {.family = (uint8_t)family}, .length = (uint8_t)length};
    memcpy(ret_prefix->addr.bytes, bytes, width / 8);
    return 0;
}

const char *addr_prefix_format(const struct addr_prefix *prefix, char buf[ADDR_TEXT_SIZE]) {
    addr_format(&prefix->addr, buf);
    if (prefix->length == (prefix->addr.family == ADDR_IPV4 ? 32 : 128)) return buf;
    size_t used = strlen(buf);
    snprintf(buf + used, ADDR_TEXT_SIZE - used, "/%u", prefix->length);
    return buf;
}

bool addr_prefix_contains(const struct addr_prefix *prefix, const struct addr *addr) {
    if (prefix->addr.family != addr->family || addr->family == ADDR_NONE) return false;
    unsigned whole = prefix->length / 8u, rest = prefix->length % 8u;
    if (whole > 0 && prefix->addr.bytes[0] != addr->bytes[0]) return false; // nearly all that do not
    if (memcmp(prefix->addr.bytes, addr->bytes, whole) != 0) return false;
    if (rest == 0) return true;
    return ((prefix->addr.bytes[whole] ^ addr->bytes[whole]) & (uint8_t)(0xff00u >> rest)) == 0;
}

// RFC 6052 section 2.2: the four bytes follow the prefix, around byte 8, which is zero.
static bool nat64_extract(const struct addr_prefix *prefix, const struct addr *addr, uint8_t out[4]) {
    static const uint8_t lengths[] = {32, 40, 48, 56, 64, 96};
    if (prefix->addr.family != ADDR_IPV6 || !memchr(lengths, prefix->length, sizeof(lengths)) ||
        !addr_prefix_contains(prefix, addr))
        return false;
    unsigned at = prefix->length / 8u;
    for (unsigned i = 0; i < 4; i++) {
        if (at == 8) at++;
        out[i] = addr->bytes[at++];
    }
    return true;
}

static bool in_nat64(const struct addr *addr, const struct addr_prefix *nat64, size_t nat64_count, uint8_t out[4]) {
    for (size_t i = 0; i < nat64_count; i++) {
        if (nat64_extract(&nat64[i], addr, out)) return true;
    }
    return false;
}

bool addr_embedded_ipv4(const struct addr *addr, const struct addr_prefix *nat64, size_t nat64_count,
                        struct addr *ret_addr) {
    static const uint8_t translated[12] = {[8] = 0xff, [9] = 0xff};                      // ::ffff:0:0:0/96, RFC 2765
    static const uint8_t well_known[12] = {0x00, 0x64, 0xff, 0x9b};                      // 64:ff9b::/96, RFC 6052
    static const uint8_t compatible[12] = {0};                                           // ::/96, RFC 4291
    static const uint8_t teredo[4] = {0x20, 0x01}, isatap[4] = {0x00, 0x00, 0x5e, 0xfe}; // RFC 4380, RFC 5214
    if (addr->family != ADDR_IPV6) return false;
    const uint8_t *bytes = addr->bytes;
    uint8_t ipv4[4];
    if (!in_nat64(addr, nat64, nat64_count, ipv4)) {
        if (memcmp(bytes, translated, 12) == 0 || memcmp(bytes, well_known, 12) == 0 ||
            memcmp(bytes, compatible, 12) == 0) {
            memcpy(ipv4, bytes + 12, 4);
        } else if (bytes[0] == 0x20 && bytes[1] == 0x02) { // 6to4, RFC 3056
            memcpy(ipv4, bytes + 2, 4);
        } else if (memcmp(bytes, teredo, 4) == 0) {
            for (int i = 0; i < 4; i++) ipv4[i] = bytes[12 + i] ^ 0xff;
        } else if ((bytes[8] & (uint8_t)~0x02) == isatap[0] && memcmp(bytes + 9, isatap + 1, 3) == 0) {
            memcpy(ipv4, bytes + 12, 4);
        } else {
            return false;
        }
    }
    *ret_addr = addr_from_bytes(ipv4, ADDR_IPV4);
    return true;
}

static const char *block_of(const struct addr *addr) {
    for (size_t i = 0; i < ARRAY_LENGTH(special_prefixes); i++) {
        if (addr_prefix_contains(&special_prefixes[i], addr)) return special_texts[i];
    }
    return NULL;
}

const char *addr_special_block(const struct addr *addr, const struct addr_prefix *nat64, size_t nat64_count) {
    struct addr carried;
    uint8_t ignored[4];
    bool translated = addr->family == ADDR_IPV6 && in_nat64(addr, nat64, nat64_count, ignored);
    // The operator's own NAT64 prefix may lie in a block that is otherwise local (64:ff9b:1::/48, fc00::/7).
    const char *block = translated ? NULL : block_of(addr);
    if (!block && addr_embedded_ipv4(addr, nat64, nat64_count, &carried)) block = block_of(&carried);
    return block;
}

size_t addr_special_blocks(const struct addr_prefix **ret_prefixes) {
    *ret_prefixes = special_prefixes;
    return ARRAY_LENGTH(special_prefixes);
}
