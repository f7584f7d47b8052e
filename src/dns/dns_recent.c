// SPDX-License-Identifier: Apache-2.0
#include "dns/dns_recent.h"

#include "base/clock.h"
#include "base/mem.h"
#include "wire/dns_message.h"

#define RECENT_LEN_MAX 1024

static size_t recent_slot(const char *name, uint16_t type) {
    uint32_t hash = 2166136261u ^ type;
    for (; *name; name++) hash = (hash ^ (uint8_t)*name) * 16777619;
    return (hash ^ hash >> 16) % DNS_RECENT_SLOTS;
}

static bool recent_lasts(const uint8_t *answer, size_t len) {
    struct dns_reader reader;
    struct dns_record record;
    int r, count = 0;
    if (dns_reader_init(&reader, answer, len) != WIRE_OK || reader.rcode != DNS_NOERROR) return false;
    while ((r = dns_reader_next(&reader, &record)) > 0) {
        if (record.ttl == 0) return false;
        count++;
    }
    return r == 0 && count > 0;
}

const struct dns_recent_answer *dns_recent_find(const struct dns_recent *recent, const char *name, uint16_t type) {
    const struct dns_recent_answer *answer = recent->slots[recent_slot(name, type)];
    if (!answer || answer->type != type || strcmp(answer->name, name) != 0) return NULL;
    return clock_us() < answer->until_us ? answer : NULL;
}

void dns_recent_keep(struct dns_recent *recent, const char *name, uint16_t type, const uint8_t *answer, size_t len) {
    if (len > RECENT_LEN_MAX || !recent_lasts(answer, len)) return;
    struct dns_recent_answer *kept = malloc(sizeof(*kept) + len);
    if (!kept) return;
    *kept = (struct dns_recent_answer){.until_us = clock_us() + DNS_RECENT_US, .type = type, .len = (uint16_t)len};
    memcpy(kept->name, name, strnlen(name, NAME_SIZE - 1) + 1);
    memcpy(kept->bytes, answer, len);
    size_t slot = recent_slot(name, type);
    free(recent->slots[slot]);
    recent->slots[slot] = kept;
}

void dns_recent_done(struct dns_recent *recent) {
    for (size_t i = 0; i < DNS_RECENT_SLOTS; i++) free(recent->slots[i]);
}
