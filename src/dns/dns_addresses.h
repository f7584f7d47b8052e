// SPDX-License-Identifier: Apache-2.0
// Addresses out of a DNS response. Only records that the question's name reaches by the response's own CNAMEs count, so
// a record that an answer merely brings along never becomes an address to dial. Private to the dns room.
#pragma once

#include "base/addr.h"
#include "dns/dns.h"
#include "wire/dns_message.h"

struct dns_addresses {
    uint8_t rcode; // DNS_NOERROR or DNS_NXDOMAIN
    uint32_t ttl;  // seconds, the smallest; of the addresses
    size_t count;
    struct addr list[DNS_ADDRESSES_MAX];
};

// name: canonical. type: DNS_A or DNS_AAAA. 0; -EBADMSG: malformed, or an endless chain; -EIO: another rcode.
int dns_addresses_read(const uint8_t *answer, size_t len, const char *name, uint16_t type, struct dns_addresses *ret);

// The end of the CNAME chain from name: the owner that the records of this type have. 0 or -EBADMSG.
int dns_addresses_owner(const uint8_t *answer, size_t len, const char *name, uint16_t type, char ret_owner[NAME_SIZE]);

// Whether the name is localhost or below it, which is never sent upstream (RFC 6761 6.3), and its address in a family.
bool dns_addresses_is_localhost(const char *name);
struct addr dns_addresses_localhost(enum addr_family family);
