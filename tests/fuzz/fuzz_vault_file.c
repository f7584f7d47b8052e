// SPDX-License-Identifier: Apache-2.0
// Files of the vault as they are read back: a stored secret and a CA. Of secrets, only what seal made opens; of CAs,
// only one whose key belongs to its certificate. First byte: which.
#include "vault/authority.h"
#include "vault/secret_store.h"
#include "vault/secure.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

// The one value of this key and name that was ever sealed; a fuzzer cannot make another (it would break AES-GCM).
static void fuzz_secret(const uint8_t *data, size_t size) {
    static const uint8_t key[SECRET_STORE_KEY_SIZE] = "key of the fuzz target, 32 bytes";
    uint8_t *value = malloc(IPC_SECRET_MAX);
    if (!value) abort();
    int len = secret_store_open(key, "name", data, size, value);
    if (len >= 0 && (len != 13 || memcmp(value, "a fuzz secret", 13) != 0)) abort();
    free(value);
}

static void fuzz_authority(const uint8_t *data, size_t size) {
    struct authority authority;
    struct error err = {0};
    if (authority_parse(data, size, &authority, &err) < 0) {
        if (!err.text[0]) abort();
        return;
    }
    if (!authority.key || authority.der_len > sizeof(authority.der)) abort();
    authority_done(&authority);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (secure_init(NULL) < 0) abort();
    if (size == 0) return 0;
    if (data[0] & 1)
        fuzz_authority(data + 1, size - 1);
    else
        fuzz_secret(data + 1, size - 1);
    return 0;
}
