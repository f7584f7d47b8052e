// SPDX-License-Identifier: Apache-2.0
// What a gate needs of this room: it has a channel to the vault, keys of leaves, and values for the time of a request.
#include <errno.h>

#include "vault/certificate.h"
#include "vault/crypto.h"
#include "vault/secure.h"
#include "vault/vault.h"

int vault_client_init(struct error *err) { return secure_init(err); }

void *vault_client_memory(size_t size) { return secure_new(size); }

void vault_client_wipe(void *memory) { secure_free(memory); }

int vault_client_key(const struct x509_st *leaf, const uint8_t key[IPC_KEY_SIZE], struct evp_pkey_st **ret_key) {
    return certificate_key_from_number(leaf, key, ret_key);
}

int vault_client_leaf(const struct ipc_leaf *answer, const uint8_t *certificates, struct vault_client_leaf *ret_leaf) {
    if (answer->status < 0) return answer->status;
    struct vault_client_leaf leaf = {
        .certificate = certificate_decode(certificates, answer->leaf_length),
        .ca = certificate_decode(certificates + answer->leaf_length, answer->ca_length),
    };
    int r = leaf.certificate && leaf.ca ? vault_client_key(leaf.certificate, answer->key, &leaf.key) : -EINVAL;
    if (r < 0) vault_client_leaf_done(&leaf);
    else *ret_leaf = leaf;
    return r;
}

void vault_client_leaf_done(struct vault_client_leaf *leaf) {
    X509_free(leaf->certificate);
    X509_free(leaf->ca);
    EVP_PKEY_free(leaf->key);
    *leaf = (struct vault_client_leaf){0};
}
