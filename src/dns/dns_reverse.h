// SPDX-License-Identifier: Apache-2.0
// Names of the reverse tree (RFC 1035 3.5, RFC 3596 2.5). Private to the dns room.
#pragma once

#include <stdbool.h>

#include "base/addr.h"

bool dns_reverse_is(const char *name); // in-addr.arpa, ip6.arpa or below
// The address that a canonical name stands for. False unless it names one whole address.
bool dns_reverse_parse(const char *name, struct addr *ret_addr);
