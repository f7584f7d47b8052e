// SPDX-License-Identifier: Apache-2.0
// TLS ClientHello: a hello that is accepted was not accepted before its last byte, and stays so with bytes behind it;
// and what was walked before changes no answer.
#include "wire/tls.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static enum wire_result parse_copy(const uint8_t *data, size_t size, struct tls_walk *walk,
                                   struct tls_hello *ret_hello) {
    uint8_t *copy = malloc(size ? size : 1); // ends where the input ends
    if (!copy) abort();
    if (size) memcpy(copy, data, size);
    enum wire_result result = tls_hello_parse(copy, size, walk, ret_hello);
    free(copy);
    return result;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct tls_hello hello = {0};
    enum wire_app app = wire_classify(data, size);
    struct tls_walk once = {0}, kept = {0};
    enum wire_result result = parse_copy(data, size, &once, &hello);
    size_t step = size / 64 + 1;
    for (size_t len = 0; len < size; len += step) {
        struct tls_walk fresh = {0};
        if (parse_copy(data, len, &kept, &hello) != parse_copy(data, len, &fresh, &hello)) abort();
    }
    if (parse_copy(data, size, &kept, &hello) != result) abort();
    if (result == WIRE_OK && (app != WIRE_APP_TLS || hello.sni_len >= sizeof(hello.sni))) abort();
    if (result == WIRE_OK && hello.has_sni != (hello.sni_len > 0)) abort();
    if (result != WIRE_OK || size > 512) return 0;
    bool whole = false;
    for (size_t len = 0; len <= size; len++) {
        struct tls_walk fresh = {0};
        enum wire_result now = parse_copy(data, len, &fresh, &hello);
        if (now == WIRE_BAD || (whole && now != WIRE_OK)) abort();
        whole = now == WIRE_OK;
    }
    return 0;
}
