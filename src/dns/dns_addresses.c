// SPDX-License-Identifier: Apache-2.0
#include "dns/dns_addresses.h"

#include <errno.h>
#include <string.h>

#define CHAIN_MAX 16 // CNAMEs followed
#define CLASS_IN 1

// Looks for a record of the type at owner. 1: there is one; 2: a CNAME leads to *ret_target; 0: neither; -EBADMSG.
static int chain_step(const uint8_t *answer, size_t len, const char *owner, uint16_t type, char ret_target[NAME_SIZE]) {
    struct dns_reader reader;
    if (dns_reader_init(&reader, answer, len) != WIRE_OK) return -EBADMSG;
    struct dns_record record;
    int r, found = 0;
    while ((r = dns_reader_next(&reader, &record)) > 0) {
        if (record.class != CLASS_IN || strcmp(record.owner, owner) != 0) continue;
        if (record.type == type) return 1;
        if (record.type != DNS_CNAME || found) continue;
        if (dns_reader_name(&reader, record.rdata_offset, ret_target) < 0) return -EBADMSG;
        found = 2;
    }
    return r < 0 ? -EBADMSG : found;
}

int dns_addresses_owner(const uint8_t *answer, size_t len, const char *name, uint16_t type, char ret_owner[NAME_SIZE]) {
    char owner[NAME_SIZE], target[NAME_SIZE];
    memcpy(owner, name, strlen(name) + 1);
    for (int hops = 0; hops < CHAIN_MAX; hops++) {
        int r = chain_step(answer, len, owner, type, target);
        if (r < 0) return r;
        if (r < 2) {
            memcpy(ret_owner, owner, sizeof(owner));
            return 0;
        }
        memcpy(owner, target, sizeof(owner));
    }
    return -EBADMSG;
}

int dns_addresses_read(const uint8_t *answer, size_t len, const char *name, uint16_t type, struct dns_addresses *ret) {
    struct dns_reader reader;
    if (dns_reader_init(&reader, answer, len) != WIRE_OK) return -EBADMSG;
    if (reader.rcode != DNS_NOERROR && reader.rcode != DNS_NXDOMAIN) return -EIO;
    char owner[NAME_SIZE];
    int r = dns_addresses_owner(answer, len, name, type, owner);
    if (r < 0) return r;
    struct dns_addresses addresses = {.rcode = reader.rcode, .ttl = UINT32_MAX};
    enum addr_family family = type == DNS_A ? ADDR_IPV4 : ADDR_IPV6;
    struct dns_record record;
    while ((r = dns_reader_next(&reader, &record)) > 0) {
        if (record.class != CLASS_IN || record.type != type || strcmp(record.owner, owner) != 0) continue;
        if (record.rdata_len != (type == DNS_A ? 4 : 16)) return -EBADMSG;
        if (addresses.count == DNS_ADDRESSES_MAX) continue;
        addresses.list[addresses.count++] = addr_from_bytes(record.rdata, family);
        if (record.ttl < addresses.ttl) addresses.ttl = record.ttl;
    }
    if (r < 0) return -EBADMSG;
    if (addresses.count > 0) addresses.rcode = DNS_NOERROR;
    *ret = addresses;
    return 0;
}

bool dns_addresses_is_localhost(const char *name) {
    static const char localhost[] = "localhost";
    size_t len = strlen(name), tail = sizeof(localhost) - 1;
    if (len < tail || strcmp(name + len - tail, localhost) != 0) return false;
    return len == tail || name[len - tail - 1] == '.';
}

struct addr dns_addresses_localhost(enum addr_family family) {
    if (family == ADDR_IPV4) return addr_ipv4(INADDR_LOOPBACK);
    return addr_from_bytes(in6addr_loopback.s6_addr, ADDR_IPV6);
}
