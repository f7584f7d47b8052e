// SPDX-License-Identifier: Apache-2.0
#define TLS_CALLS_PLAIN // the table has the functions' own names
#include "gate/tls_calls.h"

#include <errno.h>
#include <stdbool.h>

#include "base/mem.h"

#define TLS_ROW(name) LIBRARY_ROW(struct tls_calls, name)
static const struct library_call tls_ssl_list[] = {TLS_SSL_CALLS(TLS_ROW)};
static const struct library_call tls_crypto_list[] = {TLS_CRYPTO_CALLS(TLS_ROW)};

struct tls_calls tls_calls;

int tls_calls_load(struct error *err) {
    static bool loaded;
    if (loaded) return 0;
    int rc = library_load("libcrypto.so.3", tls_crypto_list, ARRAY_LENGTH(tls_crypto_list), &tls_calls, err);
    if (rc == 0) rc = library_load("libssl.so.3", tls_ssl_list, ARRAY_LENGTH(tls_ssl_list), &tls_calls, err);
    if (rc < 0) return rc;
    // No configuration file: what it says is for programs of the operator, and it may load more libraries.
    const uint64_t options = OPENSSL_INIT_NO_LOAD_CONFIG | OPENSSL_INIT_NO_ATEXIT;
    if (tls_calls.OPENSSL_init_crypto(options, NULL) != 1 || tls_calls.OPENSSL_init_ssl(options, NULL) != 1)
        return error_set(err, -ENOMEM, "OpenSSL cannot be initialised; report this with its version");
    loaded = true;
    return 0;
}
