// SPDX-License-Identifier: Apache-2.0
// The table of exchanges: found by their key, expired in the order of their last datagram. No I/O and no clock.
#include <string.h>

#include "base/mem.h"
#include "gate/exchange.h"

static const uint64_t exchange_times_us[EXCHANGE_KIND_COUNT] = {
    [EXCHANGE_UNANSWERED] = EXCHANGE_UNANSWERED_TIME_MS * 1000ULL,
    [EXCHANGE_ANSWERED] = EXCHANGE_ANSWERED_TIME_MS * 1000ULL,
    [EXCHANGE_ECHO] = EXCHANGE_ECHO_TIME_MS * 1000ULL,
};

bool exchange_key_equal(const struct exchange_key *a, const struct exchange_key *b) {
    return a->client_port == b->client_port && a->port == b->port && a->protocol == b->protocol &&
           addr_equal(&a->client, &b->client) && addr_equal(&a->server, &b->server);
}

// FNV-1a with a secret start: the sandbox chooses the ports and addresses.
static uint32_t exchange_table_hash(const struct exchange_table *table, const struct exchange_key *key) {
    uint32_t hash = table->seed;
    const struct addr *addresses[] = {&key->client, &key->server};
    const uint16_t words[] = {key->client_port, key->port, (uint16_t)key->protocol};
    for (size_t a = 0; a < ARRAY_LENGTH(addresses); a++) {
        for (size_t i = 0; i < sizeof(addresses[a]->bytes); i++) hash = (hash ^ addresses[a]->bytes[i]) * 16777619;
    }
    for (size_t i = 0; i < ARRAY_LENGTH(words); i++) hash = (hash ^ words[i]) * 16777619;
    return hash ^ hash >> 16;
}

void exchange_table_init(struct exchange_table *table, uint32_t seed) {
    *table = (struct exchange_table){.seed = seed};
    for (size_t i = 0; i < EXCHANGE_BUCKETS; i++) list_init(&table->buckets[i]);
    for (size_t i = 0; i < EXCHANGE_KIND_COUNT; i++) list_init(&table->idle[i]);
}

struct exchange *exchange_table_find(const struct exchange_table *table, const struct exchange_key *key) {
    const struct list *bucket = &table->buckets[exchange_table_hash(table, key) % EXCHANGE_BUCKETS];
    for (struct list *node = bucket->next; node != bucket; node = node->next) {
        struct exchange *exchange = LIST_ENTRY(node, struct exchange, bucket);
        if (exchange_key_equal(&exchange->key, key)) return exchange;
    }
    return NULL;
}

void exchange_table_add(struct exchange_table *table, struct exchange *exchange, uint64_t now_us) {
    exchange->kind = exchange->key.protocol == POLICY_ICMP ? EXCHANGE_ECHO : EXCHANGE_UNANSWERED;
    exchange->active_us = now_us;
    list_append(&table->buckets[exchange_table_hash(table, &exchange->key) % EXCHANGE_BUCKETS], &exchange->bucket);
    list_append(&table->idle[exchange->kind], &exchange->idle);
    table->count++;
}

void exchange_table_remove(struct exchange_table *table, struct exchange *exchange) {
    list_remove(&exchange->bucket);
    list_remove(&exchange->idle);
    table->count--;
}

void exchange_table_touch(struct exchange_table *table, struct exchange *exchange, bool answered, uint64_t now_us) {
    if (answered && exchange->kind == EXCHANGE_UNANSWERED) exchange->kind = EXCHANGE_ANSWERED;
    exchange->active_us = now_us;
    list_remove(&exchange->idle);
    list_append(&table->idle[exchange->kind], &exchange->idle);
}

struct exchange *exchange_table_expired(const struct exchange_table *table, uint64_t now_us) {
    for (size_t i = 0; i < EXCHANGE_KIND_COUNT; i++) {
        if (list_empty(&table->idle[i])) continue;
        struct exchange *first = LIST_ENTRY(table->idle[i].next, struct exchange, idle);
        if (now_us - first->active_us >= exchange_times_us[i]) return first;
    }
    return NULL;
}

struct exchange *exchange_table_spare(const struct exchange_table *table, uint64_t now_us) {
    struct exchange *spare = NULL;
    for (size_t i = 0; i < EXCHANGE_KIND_COUNT; i++) {
        if (list_empty(&table->idle[i])) continue;
        struct exchange *first = LIST_ENTRY(table->idle[i].next, struct exchange, idle);
        if (!spare || first->active_us < spare->active_us) spare = first;
    }
    return spare && now_us - spare->active_us >= EXCHANGE_SPARE_MS * 1000ULL ? spare : NULL;
}

bool exchange_table_notice(struct exchange_table *table, const struct exchange_key *key, uint64_t now_us) {
    struct exchange_key destination = *key; // whoever asks
    destination.client = (struct addr){0};
    destination.client_port = 0;
    struct exchange_notice *notice =
        &table->notices[exchange_table_hash(table, &destination) % EXCHANGE_NOTICES];
    if (exchange_key_equal(&notice->key, &destination) && now_us - notice->at_us < 1000000) return false;
    *notice = (struct exchange_notice){.key = destination, .at_us = now_us};
    return true;
}
