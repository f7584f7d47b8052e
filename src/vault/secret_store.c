// SPDX-License-Identifier: Apache-2.0
// A file is a word with the form's number, a random nonce, the ciphertext and its tag. Word and name are authenticated
// with it: a file that was renamed, cut, or of another form does not open. An older value of the same name does: who
// can write to the folder can also remove it.
#include "vault/secret_store.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "base/random.h"
#include "vault/secure.h"
#include "vault/state_folder.h"
#include "vault/vault.h"
#include "vault/crypto.h"

static const char store_word[] = "penstock-secret 1\n";
#define WORD_LEN (sizeof(store_word) - 1)
#define NONCE_LEN 12
#define TAG_LEN 16
#define OVERHEAD (WORD_LEN + NONCE_LEN + TAG_LEN)

int secret_store_name(const char *name, struct error *err) {
    static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.";
    size_t len = strlen(name);
    if (len > 0 && len <= SECRET_STORE_NAME_MAX && strspn(name, allowed) == len && name[0] != '.' && name[0] != '-')
        return 0;
    // A secret given by mistake must not be shown.
    return error_set(err, -EINVAL,
                     "\"%s\" is not a name for a secret; write 1 to %d letters, digits, '_', '-' or '.', "
                     "such as github-token",
                     len > 16 ? "..." : name, SECRET_STORE_NAME_MAX);
}

// ---- the form ----

static bool begin(EVP_CIPHER_CTX *context, const uint8_t *key, const uint8_t *nonce, const char *name, int sealing) {
    int moved;
    return context && EVP_CipherInit_ex(context, EVP_aes_256_gcm(), NULL, key, nonce, sealing) == 1 &&
           EVP_CipherUpdate(context, NULL, &moved, (const uint8_t *)store_word, WORD_LEN) == 1 &&
           EVP_CipherUpdate(context, NULL, &moved, (const uint8_t *)name, (int)strlen(name)) == 1;
}

int secret_store_seal(const uint8_t key[SECRET_STORE_KEY_SIZE], const char *name, const uint8_t *value, size_t len,
                      uint8_t *ret_bytes) {
    uint8_t *nonce = ret_bytes + WORD_LEN, *text = nonce + NONCE_LEN;
    int moved = 0, end = 0;
    memcpy(ret_bytes, store_word, WORD_LEN);
    random_bytes(nonce, NONCE_LEN);
    EVP_CIPHER_CTX *context = EVP_CIPHER_CTX_new();
    bool good = len > 0 && len <= IPC_SECRET_MAX && begin(context, key, nonce, name, 1) &&
                EVP_CipherUpdate(context, text, &moved, value, (int)len) == 1 && (size_t)moved == len &&
                EVP_CipherFinal_ex(context, text + len, &end) == 1 && end == 0 &&
                EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_GET_TAG, TAG_LEN, text + len) == 1;
    EVP_CIPHER_CTX_free(context);
    return good ? (int)(OVERHEAD + len) : -EIO;
}

int secret_store_open(const uint8_t key[SECRET_STORE_KEY_SIZE], const char *name, const uint8_t *bytes, size_t len,
                      uint8_t *ret_value) {
    if (len <= OVERHEAD || len - OVERHEAD > IPC_SECRET_MAX || memcmp(bytes, store_word, WORD_LEN) != 0) return -EBADMSG;
    const uint8_t *nonce = bytes + WORD_LEN, *text = nonce + NONCE_LEN;
    size_t text_len = len - OVERHEAD;
    uint8_t tag[TAG_LEN];
    int moved = 0, end = 0;
    memcpy(tag, text + text_len, TAG_LEN);
    EVP_CIPHER_CTX *context = EVP_CIPHER_CTX_new();
    bool good = begin(context, key, nonce, name, 0) &&
                EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_SET_TAG, TAG_LEN, tag) == 1 &&
                EVP_CipherUpdate(context, ret_value, &moved, text, (int)text_len) == 1 && (size_t)moved == text_len &&
                EVP_CipherFinal_ex(context, ret_value + moved, &end) == 1 && end == 0;
    EVP_CIPHER_CTX_free(context);
    if (!good) explicit_bzero(ret_value, text_len); // nothing that was not proven is handed out
    return good ? (int)text_len : -EBADMSG;
}

// ---- `penstock secret` ----

// The key, made on first use: whoever comes second takes that of the first.
static int store_key(const struct state_folder *folder, uint8_t ret_key[SECRET_STORE_KEY_SIZE], struct error *err) {
    uint8_t *key = secure_new(SECRET_STORE_KEY_SIZE);
    size_t len = 0;
    if (!key) return error_set(err, -ENOMEM, "out of memory for the store's key");
    int r = state_folder_read(folder, SECRET_STORE_KEY, key, SECRET_STORE_KEY_SIZE, &len, err);
    if (r == -ENOENT) {
        AUTO_CLOSE int lock = state_folder_lock(folder, err);
        r = lock < 0 ? lock : state_folder_read(folder, SECRET_STORE_KEY, key, SECRET_STORE_KEY_SIZE, &len, err);
        if (r == -ENOENT) {
            len = SECRET_STORE_KEY_SIZE;
            random_bytes(key, len);
            r = state_folder_write(folder, SECRET_STORE_KEY, key, len, err);
        }
    }
    if (r == 0 && len != SECRET_STORE_KEY_SIZE)
        r = error_set(err, -EBADMSG,
                      "\"%s/%s\" is not a key of the store; restore it, or remove the folder and set the "
                      "secrets again",
                      folder->path, SECRET_STORE_KEY);
    if (r == 0) memcpy(ret_key, key, SECRET_STORE_KEY_SIZE);
    secure_free(key);
    return r;
}

int vault_secret_check(const void *value, size_t len, struct error *err) {
    const uint8_t *bytes = value;
    if (len == 0) return error_set(err, -EINVAL, "the secret is empty");
    if (len > IPC_SECRET_MAX)
        return error_set(err, -E2BIG, "the secret is longer than %d bytes, which no header can hold", IPC_SECRET_MAX);
    for (size_t i = 0; i < len; i++) {
        if ((bytes[i] < 0x20 && bytes[i] != '\t') || bytes[i] == 0x7f)
            return error_set(err, -EINVAL,
                             "the secret has a line break, NUL or other control byte, which a header cannot hold");
    }
    return 0;
}

int vault_secret_set(const char *name, const void *value, size_t len, struct error *err) {
    struct state_folder folder;
    int r = secret_store_name(name, err);
    if (r == 0) r = vault_secret_check(value, len, err);
    if (r == 0) r = secure_init(err);
    if (r == 0) r = state_folder_open(SECRET_STORE_FOLDER, true, &folder, err);
    if (r < 0) return r;
    uint8_t *key = secure_new(SECRET_STORE_KEY_SIZE);
    AUTO_FREE uint8_t *file = malloc(SECRET_STORE_FILE_MAX);
    if (!key || !file) r = error_set(err, -ENOMEM, "out of memory for the secret");
    if (r == 0) r = store_key(&folder, key, err);
    if (r == 0) {
        r = secret_store_seal(key, name, value, len, file);
        if (r < 0) error_set(err, r, "OpenSSL cannot encrypt the secret; is libcrypto whole?");
    }
    if (r > 0) r = state_folder_write(&folder, name, file, (size_t)r, err);
    secure_free(key);
    state_folder_close(&folder);
    return r;
}

int vault_secret_find(const char *name, struct error *err) {
    struct state_folder folder;
    int r = secret_store_name(name, err);
    if (r == 0) r = state_folder_open(SECRET_STORE_FOLDER, false, &folder, err);
    if (r == 0) {
        struct stat status;
        r = fstatat(folder.fd, name, &status, AT_SYMLINK_NOFOLLOW) == 0 ? 0 : -errno;
        if (r < 0 && r != -ENOENT) error_set(err, r, "\"%s/%s\": %s", folder.path, name, strerror(-r));
        state_folder_close(&folder);
    }
    if (r != -ENOENT) return r;
    return error_set(err, r, "it is not in the store; put it there with `penstock secret set %s`", name);
}

int vault_secret_remove(const char *name, struct error *err) {
    struct state_folder folder;
    int r = secret_store_name(name, err);
    if (r == 0) r = state_folder_open(SECRET_STORE_FOLDER, false, &folder, err);
    if (r == 0) {
        r = unlinkat(folder.fd, name, 0) == 0 ? 0 : -errno;
        if (r < 0 && r != -ENOENT) error_set(err, r, "cannot remove \"%s/%s\": %s", folder.path, name, strerror(-r));
        state_folder_close(&folder);
    }
    if (r == -ENOENT && err && !err->text[0])
        error_set(err, r, "there is no secret \"%s\"; `penstock secret ls` lists them", name);
    return r;
}
