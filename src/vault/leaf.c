// SPDX-License-Identifier: Apache-2.0
#include "vault/leaf.h"

#include <errno.h>

#include "base/mem.h"
#include "vault/certificate.h"
#include "vault/secure.h"
#include "vault/crypto.h"

void leaf_cache_init(struct leaf_cache *cache, struct authority *authority) {
    *cache = (struct leaf_cache){.authority = authority};
    list_init(&cache->leaves);
}

static void leaf_free(struct leaf_cache *cache, struct leaf *leaf) {
    list_remove(&leaf->link);
    cache->count--;
    free(leaf->der);
    secure_free(leaf);
}

void leaf_cache_done(struct leaf_cache *cache) {
    LIST_FOREACH (&cache->leaves, node) leaf_free(cache, LIST_ENTRY(node, struct leaf, link));
}

static void leaf_to_front(struct leaf_cache *cache, struct leaf *leaf) {
    list_remove(&leaf->link);
    list_append(cache->leaves.next, &leaf->link); // before the first
}

static int leaf_fill(struct leaf *leaf, struct authority *authority, int64_t now, struct error *err) {
    EVP_PKEY *key = NULL;
    X509 *certificate = NULL;
    uint8_t der[IPC_CERTIFICATE_MAX];
    int r = certificate_key_new(&key);
    if (r == 0) r = certificate_key_number(key, leaf->key);
    if (r < 0) error_set(err, r, "cannot make a key for %s", leaf->host);
    if (r == 0)
        r = certificate_leaf_new(authority->certificate, authority->key, key, leaf->host, now, &certificate, err);
    if (r == 0) r = certificate_encode(certificate, der, sizeof(der));
    if (r > 0) {
        leaf->der_len = (uint32_t)r;
        leaf->der = malloc(leaf->der_len);
        r = leaf->der ? 0 : error_set(err, -ENOMEM, "out of memory for a certificate");
    }
    if (r == 0) {
        memcpy(leaf->der, der, leaf->der_len);
        leaf->not_before = certificate_not_before(certificate);
        int64_t left = certificate_not_after(certificate) - now;
        leaf->renew_at = now + left / 2;
    }
    X509_free(certificate);
    EVP_PKEY_free(key);
    return r;
}

static int leaf_make(struct leaf_cache *cache, const char *host, int64_t now, struct leaf **ret_leaf,
                     struct error *err) {
    if (cache->count >= LEAF_MAX) leaf_free(cache, LIST_ENTRY(cache->leaves.prev, struct leaf, link));
    struct leaf *leaf = secure_new(sizeof(*leaf));
    if (!leaf) return error_set(err, -ENOMEM, "out of memory for a certificate");
    list_append(&cache->leaves, &leaf->link);
    cache->count++;
    snprintf(leaf->host, sizeof(leaf->host), "%s", host);
    int r = leaf_fill(leaf, cache->authority, now, err);
    if (r < 0)
        leaf_free(cache, leaf);
    else
        *ret_leaf = leaf;
    return r;
}

int leaf_get(struct leaf_cache *cache, const char *host, int64_t now, const struct leaf **ret_leaf, struct error *err) {
    struct leaf *found = NULL;
    LIST_FOREACH (&cache->leaves, node) {
        struct leaf *leaf = LIST_ENTRY(node, struct leaf, link);
        if (strcmp(leaf->host, host) != 0) continue;
        // A clock that was set back makes it a certificate of the future.
        if (now < leaf->renew_at && now >= leaf->not_before)
            found = leaf;
        else
            leaf_free(cache, leaf);
        break;
    }
    int r = found ? 0 : leaf_make(cache, host, now, &found, err);
    if (r < 0) return r;
    leaf_to_front(cache, found);
    *ret_leaf = found;
    return 0;
}
