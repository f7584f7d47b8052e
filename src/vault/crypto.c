// SPDX-License-Identifier: Apache-2.0
#define CRYPTO_NAMES_PLAIN // the table has the functions' own names
#include "vault/crypto.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"

#define CRYPTO_ROW(name) LIBRARY_ROW(struct crypto, name)
static const struct library_call crypto_list[] = {CRYPTO_CALLS(CRYPTO_ROW)};

const struct crypto *crypto_calls(void) {
    static struct crypto calls;
    static bool loaded;
    struct error err = {0};
    if (loaded) return &calls;
    if (library_load("libcrypto.so.3", crypto_list, ARRAY_LENGTH(crypto_list), &calls, &err) < 0) {
        fprintf(stderr, "penstock: %s\n", err.text);
        exit(125);
    }
    loaded = true;
    return &calls;
}
