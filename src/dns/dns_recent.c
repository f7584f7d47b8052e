// SPDX-License-Identifier: Apache-2.0
#include "dns/dns_recent.h"

#include "base/clock.h"
#include "base/mem.h"
#include "wire/dns_message.h"

#define RECENT_LEN_MAX 1024

#define RECENT_WAYS 4 // slots that an answer may be in: with one, two names of the same hash would always be in each other's way

static bool recent_is(const struct dns_recent_answer *answer, const char *name, uint16_t type) {
    return answer && answer->type == type && strcmp(answer->name, name) == 0;
}

// Where it is; else where it may be put.
static struct dns_recent_answer **recent_slot(struct dns_recent *recent, const char *name, uint16_t type) {
    uint32_t hash = 2166136261u ^ type;
    for (const char *at = name; *at; at++) hash = (hash ^ (uint8_t)*at) * 16777619;
    struct dns_recent_answer **slots = recent->slots + (hash ^ hash >> 16) % (DNS_RECENT_SLOTS / RECENT_WAYS) * RECENT_WAYS, **best = slots;
    for (size_t i = 0; i < RECENT_WAYS; i++) {
        if (recent_is(slots[i], name, type)) return &slots[i];
        if (*best && (!slots[i] || slots[i]->until_us < (*best)->until_us)) best = &slots[i];
    }
    return best;
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

const struct dns_recent_answer *dns_recent_find(struct dns_recent *recent, const char *name, uint16_t type) {
    const struct dns_recent_answer *answer = *recent_slot(recent, name, type);
    return recent_is(answer, name, type) && clock_us() < answer->until_us ? answer : NULL;
}

void dns_recent_keep(struct dns_recent *recent, const char *name, uint16_t type, const uint8_t *answer, size_t len) {
    if (len > RECENT_LEN_MAX || !recent_lasts(answer, len)) return;
    struct dns_recent_answer *kept = malloc(sizeof(*kept) + len);
    if (!kept) return;
    *kept = (struct dns_recent_answer){.until_us = clock_us() + DNS_RECENT_US, .type = type, .len = (uint16_t)len};
    memcpy(kept->name, name, strnlen(name, NAME_SIZE - 1) + 1);
    memcpy(kept->bytes, answer, len);
    struct dns_recent_answer **slot = recent_slot(recent, name, type);
    free(*slot);
    *slot = kept;
}

void dns_recent_done(struct dns_recent *recent) {
    for (size_t i = 0; i < DNS_RECENT_SLOTS; i++) free(recent->slots[i]);
}
