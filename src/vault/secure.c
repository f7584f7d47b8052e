// SPDX-License-Identifier: Apache-2.0
#include "vault/secure.h"
#include "vault/crypto.h"
#include "vault/vault.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/resource.h>

#define SECURE_PIECE_MIN 32

int secure_init(struct error *err) {
    // The user's environment reaches this process for the sake of commands: OPENSSL_CONF could load code.
    if (OPENSSL_init_crypto(OPENSSL_INIT_NO_LOAD_CONFIG, NULL) != 1)
        return error_set(err, -ENOMEM, "OpenSSL cannot be set up; is libcrypto whole?");
    if (CRYPTO_secure_malloc_initialized()) return 0;
    // Pages become real as they are used. 2: usable, but not locked.
    if (CRYPTO_secure_malloc_init(VAULT_LOCKED_SIZE, SECURE_PIECE_MIN) == 0)
        return error_set(err, -ENOMEM, "out of memory for secrets");
    return 0;
}

void secure_lock_process(void) {
    struct rlimit all = {RLIM_INFINITY, RLIM_INFINITY};
    if (setrlimit(RLIMIT_MEMLOCK, &all) == 0) mlockall(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT);
}

void *secure_new(size_t size) { return OPENSSL_secure_zalloc(size); }

void secure_free(void *memory) { OPENSSL_secure_free(memory); }
