// SPDX-License-Identifier: Apache-2.0
// A response of a hostile server: CNAME chains and addresses out of it, for a name it may be about.
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "dns/dns_addresses.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const uint16_t types[] = {DNS_A, DNS_AAAA};
    for (size_t i = 0; i < 2; i++) {
        struct dns_addresses found;
        if (dns_addresses_read(data, size, "a.test", types[i], &found) < 0) continue;
        if (found.count > DNS_ADDRESSES_MAX) abort();
        for (size_t j = 0; j < found.count; j++)
            if (found.list[j].family != ADDR_IPV4 && found.list[j].family != ADDR_IPV6) abort();
    }
    return 0;
}
