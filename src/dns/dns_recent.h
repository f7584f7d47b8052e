// SPDX-License-Identifier: Apache-2.0
// Answers that came a moment ago, so that many connections to one name do not all ask the resolver process. TTLs count in
// seconds and an answer is used again for one second, so nobody sees a record longer than its owner allows. Private to the
// dns room.
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "base/name.h"

#define DNS_RECENT_SLOTS 512
#define DNS_RECENT_US 1000000

struct dns_recent_answer {
    uint64_t until_us;
    char name[NAME_SIZE];
    uint16_t type;
    uint16_t len;
    uint8_t bytes[];
};

struct dns_recent {
    struct dns_recent_answer *slots[DNS_RECENT_SLOTS]; // a hash of name and type gives a few; the oldest makes room
};

const struct dns_recent_answer *dns_recent_find(struct dns_recent *recent, const char *name, uint16_t type);
// Takes a copy if it has records that last that long, and is short.
void dns_recent_keep(struct dns_recent *recent, const char *name, uint16_t type, const uint8_t *answer, size_t len);
void dns_recent_done(struct dns_recent *recent);
