// SPDX-License-Identifier: Apache-2.0
// One file holds key and certificate, so that they appear together: a word, the key's number, the certificate. Two
// first uses at once are put in order by the folder's lock; who comes second finds the CA of the first.
#include "vault/authority.h"

#include <errno.h>

#include "base/mem.h"
#include "vault/certificate.h"
#include "vault/secure.h"
#include "vault/state_folder.h"
#include "vault/crypto.h"

static const char authority_word[] = "penstock-ca 1\n";
#define WORD_LEN (sizeof(authority_word) - 1)
#define HEAD_LEN (WORD_LEN + IPC_KEY_SIZE)

void authority_done(struct authority *authority) {
    X509_free(authority->certificate);
    EVP_PKEY_free(authority->key);
    *authority = (struct authority){0};
}

int authority_parse(const uint8_t *bytes, size_t len, struct authority *ret_authority, struct error *err) {
    if (len <= HEAD_LEN || len - HEAD_LEN > IPC_CERTIFICATE_MAX || memcmp(bytes, authority_word, WORD_LEN) != 0)
        return error_set(err, -EINVAL, "it is not a CA of this program");
    struct authority authority = {.der_len = len - HEAD_LEN};
    memcpy(authority.der, bytes + HEAD_LEN, authority.der_len);
    authority.certificate = certificate_decode(authority.der, authority.der_len);
    int r = -EINVAL;
    if (!authority.certificate || X509_check_ca(authority.certificate) != 1)
        error_set(err, r, "its certificate is not one of a CA");
    else if (certificate_key_from_number(authority.certificate, bytes + WORD_LEN, &authority.key) < 0)
        error_set(err, r, "its key is not that of its certificate");
    else
        r = 0;
    if (r < 0)
        authority_done(&authority);
    else
        *ret_authority = authority;
    return r;
}

// -ENOENT without a message: none, or one that ends soon.
static int authority_read(const struct state_folder *folder, int64_t now, struct authority *ret_authority,
                          struct error *err) {
    uint8_t *bytes = secure_new(AUTHORITY_FILE_MAX);
    struct authority authority;
    size_t len;
    if (!bytes) return error_set(err, -ENOMEM, "out of memory for the CA");
    int r = state_folder_read(folder, AUTHORITY_FILE, bytes, AUTHORITY_FILE_MAX, &len, err);
    if (r == 0) {
        struct error why = {0};
        r = authority_parse(bytes, len, &authority, &why);
        if (r < 0)
            error_set(err, r,
                      "CA \"%s/%s\": %s; remove it, and the next run makes another (which images that trust the old "
                      "one have to be given)",
                      folder->path, AUTHORITY_FILE, why.text);
    }
    secure_free(bytes);
    if (r < 0) return r;
    if (certificate_not_after(authority.certificate) - now < CERTIFICATE_CA_RENEW_DAYS * CERTIFICATE_DAY) {
        authority_done(&authority);
        return -ENOENT;
    }
    *ret_authority = authority;
    return 0;
}

static int authority_make(const struct state_folder *folder, int64_t now, struct authority *ret_authority,
                          struct error *err) {
    struct authority authority = {0};
    uint8_t *bytes = secure_new(AUTHORITY_FILE_MAX);
    int r = bytes ? certificate_key_new(&authority.key) : -ENOMEM;
    if (r == 0) r = certificate_key_number(authority.key, bytes + WORD_LEN);
    if (r < 0) error_set(err, r, "cannot make a key for the CA: %s", strerror(-r));
    if (r == 0) r = certificate_ca_new(authority.key, now, &authority.certificate, err);
    if (r == 0) r = certificate_encode(authority.certificate, authority.der, sizeof(authority.der));
    if (r > 0) {
        authority.der_len = (size_t)r;
        memcpy(bytes, authority_word, WORD_LEN);
        memcpy(bytes + HEAD_LEN, authority.der, authority.der_len);
        r = state_folder_write(folder, AUTHORITY_FILE, bytes, HEAD_LEN + authority.der_len, err);
    }
    secure_free(bytes);
    if (r < 0)
        authority_done(&authority);
    else
        *ret_authority = authority;
    return r;
}

int authority_load(int64_t now, struct authority *ret_authority, struct error *err) {
    struct state_folder folder;
    int r = state_folder_open(AUTHORITY_FOLDER, true, &folder, err);
    if (r < 0) return r;
    r = authority_read(&folder, now, ret_authority, err);
    if (r == -ENOENT) {
        AUTO_CLOSE int lock = state_folder_lock(&folder, err);
        r = lock < 0 ? lock : authority_read(&folder, now, ret_authority, err);
        if (r == -ENOENT) r = authority_make(&folder, now, ret_authority, err);
    }
    state_folder_close(&folder);
    return r;
}
