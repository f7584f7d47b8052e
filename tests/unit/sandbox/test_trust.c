// SPDX-License-Identifier: Apache-2.0
// Certificates as text, and Java's key stores: what goes in comes out, and nothing that is no certificate.
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <openssl/evp.h>

#include "sandbox/keystore.h"
#include "sandbox/pem.h"

static void test_round_trip(void **state) {
    (void)state;
    uint8_t bytes[200];
    for (size_t i = 0; i < sizeof(bytes); i++) bytes[i] = (uint8_t)(37 * i + 200);
    for (size_t len = 1; len <= sizeof(bytes); len++) {
        struct buf text = BUF_INIT, back = BUF_INIT;
        pem_append(&text, bytes, len);
        const char *at = text.data;
        assert_true(pem_next(&at, &back));
        assert_int_equal(back.len, len);
        assert_memory_equal(back.data, bytes, len);
        assert_false(pem_next(&at, &back));
        for (const char *line = text.data; *line; line += strcspn(line, "\n") + 1) assert_true(strcspn(line, "\n") <= 64);
        buf_done(&text);
        buf_done(&back);
    }
}

static void test_certificates_only(void **state) {
    (void)state;
    static const char mixed[] = "# a comment\n-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----\n"
                                "-----BEGIN CERTIFICATE-----\r\nQUJD\r\n-----END CERTIFICATE-----\r\n"
                                "-----BEGIN CERTIFICATE-----\nno*base64\n-----END CERTIFICATE-----\n"
                                "-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n"
                                "-----BEGIN CERTIFICATE-----\nREVG\n-----END CERTIFICATE-----"
                                "-----BEGIN CERTIFICATE-----\nR0hJ\n";
    struct buf text = BUF_INIT;
    pem_append_all(&text, mixed);
    assert_string_equal(text.data, "-----BEGIN CERTIFICATE-----\nQUJD\n-----END CERTIFICATE-----\n"
                                   "-----BEGIN CERTIFICATE-----\nREVG\n-----END CERTIFICATE-----\n");
    buf_done(&text);
}

// The format's digest, by OpenSSL.
static void assert_signed(const struct buf *store) {
    static const char start[] = "\0c\0h\0a\0n\0g\0e\0i\0tMighty Aphrodite";
    uint8_t sum[20];
    unsigned len = 0;
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    assert_int_equal(EVP_DigestInit_ex(context, EVP_sha1(), NULL), 1);
    EVP_DigestUpdate(context, start, sizeof(start) - 1);
    EVP_DigestUpdate(context, store->data, store->len - 20);
    EVP_DigestFinal_ex(context, sum, &len);
    EVP_MD_CTX_free(context);
    assert_memory_equal(store->data + store->len - 20, sum, 20);
}

static uint32_t count_of(const struct buf *store) {
    const uint8_t *bytes = (const uint8_t *)store->data;
    assert_memory_equal(bytes, "\xfe\xed\xfe\xed\0\0\0\2", 8);
    return (uint32_t)bytes[8] << 24 | (uint32_t)bytes[9] << 16 | (uint32_t)bytes[10] << 8 | bytes[11];
}

static void test_keystore(void **state) {
    (void)state;
    struct buf bundle = BUF_INIT, none = BUF_INIT, first = BUF_INIT, second = BUF_INIT;
    uint8_t certificate[128] = {0x30};
    pem_append(&bundle, "one", 3);
    pem_append(&bundle, "two", 3);
    for (size_t len = 1; len < sizeof(certificate); len++) { // all lengths of the digest's last block
        struct buf store = BUF_INIT;
        keystore_make(&none, bundle.data, certificate, len, &store);
        assert_false(store.failed);
        assert_int_equal(count_of(&store), 3);
        assert_signed(&store);
        buf_done(&store);
    }
    keystore_make(&none, bundle.data, "ours", 4, &first);
    keystore_make(&first, "", "more", 4, &second); // one is there: what it has is kept
    assert_int_equal(count_of(&second), 4);
    assert_signed(&second);
    assert_non_null(memmem(second.data, second.len, "two", 3));
    // Cut anywhere, or with another kind of entry, it is no store of certificates: the bundle's are taken.
    for (size_t len = 0; len < first.len; len++) {
        struct buf cut = BUF_INIT, store = BUF_INIT;
        buf_append(&cut, first.data, len);
        keystore_make(&cut, bundle.data, "ours", 4, &store);
        assert_int_equal(count_of(&store), 3);
        buf_done(&cut);
        buf_done(&store);
    }
    first.data[15] = 1; // a private key
    struct buf store = BUF_INIT;
    keystore_make(&first, bundle.data, "ours", 4, &store);
    assert_int_equal(count_of(&store), 3);
    struct buf *all[] = {&bundle, &first, &second, &store};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) buf_done(all[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_round_trip), cmocka_unit_test(test_certificates_only),
                                       cmocka_unit_test(test_keystore)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
