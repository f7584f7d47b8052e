// SPDX-License-Identifier: Apache-2.0
// IP addresses, prefixes, and the one classifier of addresses that are not globally reachable.
// An IPv4-mapped IPv6 address (RFC 4291 2.5.5.2) never exists in this form: it becomes the IPv4 address when made.
#pragma once

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/error.h"

enum addr_family {
    ADDR_NONE = 0,
    ADDR_IPV4 = 4,
    ADDR_IPV6 = 6,
};

// Comparable with memcmp: the bytes behind an IPv4 address are zero.
struct addr {
    uint8_t family; // enum addr_family
    uint8_t bytes[16];
};

struct addr_prefix {
    struct addr addr; // host bits zero
    uint8_t length;   // 0 to 32 or 128
};

// An address as RFC 5952 text and NUL; a prefix with "/128" too.
#define ADDR_TEXT_SIZE 64

struct addr addr_ipv4(uint32_t host_order);
// From network-order bytes; 16 bytes that are IPv4-mapped become IPv4.
struct addr addr_from_bytes(const uint8_t *bytes, enum addr_family family);
// Strict: four decimal octets without leading zeros, or RFC 4291 text without a zone and without brackets. 0 or -EINVAL.
int addr_parse(const char *text, size_t len, struct addr *ret_addr);
// Returns buf.
const char *addr_format(const struct addr *addr, char buf[ADDR_TEXT_SIZE]);
bool addr_equal(const struct addr *a, const struct addr *b);
int addr_compare(const struct addr *a, const struct addr *b); // IPv4 first, then by bytes
bool addr_is_loopback(const struct addr *addr);                // 127.0.0.0/8 or ::1
bool addr_is_unspecified(const struct addr *addr);             // 0.0.0.0 or ::

// 0, or -EAFNOSUPPORT.
int addr_from_sockaddr(const struct sockaddr *sockaddr, struct addr *ret_addr, uint16_t *ret_port);
// Length of the address written: sockaddr_in or sockaddr_in6.
socklen_t addr_to_sockaddr(const struct addr *addr, uint16_t port, struct sockaddr_storage *ret_sockaddr);

// "ADDRESS" or "ADDRESS/LENGTH". Host bits are kept out of *ret_prefix; *ret_host_bits says whether there were any.
// A prefix inside ::ffff:0:0/96 becomes the IPv4 prefix. 0 or -EINVAL.
int addr_prefix_parse(const char *text, size_t len, struct addr_prefix *ret_prefix, bool *ret_host_bits);
const char *addr_prefix_format(const struct addr_prefix *prefix, char buf[ADDR_TEXT_SIZE]); // a host without its length
bool addr_prefix_contains(const struct addr_prefix *prefix, const struct addr *addr);

// The IPv4 address that an IPv6 address carries: ::ffff:0:0:0/96, ::/96, 64:ff9b::/96 and the given prefixes (RFC 6052
// forms), 2002::/16, Teredo (client), ISATAP. False if it carries none.
bool addr_embedded_ipv4(const struct addr *addr, const struct addr_prefix *nat64, size_t nat64_count, struct addr *ret_addr);
// NULL if the address is globally reachable (semantics section 3), else the block it is in, such as "10.0.0.0/8".
// An address that carries an IPv4 address is judged by that one.
const char *addr_special_block(const struct addr *addr, const struct addr_prefix *nat64, size_t nat64_count);
// The table behind it, for guardrails whose always_denied is "not globally reachable". Returns the count.
size_t addr_special_blocks(const struct addr_prefix **ret_prefixes);
