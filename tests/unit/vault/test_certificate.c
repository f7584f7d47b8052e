// SPDX-License-Identifier: Apache-2.0
// Certificates as verifiers see them: OpenSSL's own verification in its strict mode, and the openssl program.
#include "rig.h"

#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <spawn.h>

#include "vault/certificate.h"
#include "vault/leaf.h"
#include "vault/vault.h"

#define NOW INT64_C(1800000000)

static struct authority authority;

static void make_authority(int64_t now) {
    assert_int_equal(certificate_key_new(&authority.key), 0);
    assert_int_equal(certificate_ca_new(authority.key, now, &authority.certificate, NULL), 0);
    int len = certificate_encode(authority.certificate, authority.der, sizeof(authority.der));
    assert_true(len > 0);
    authority.der_len = (size_t)len;
}

static X509 *make_leaf(const char *host, EVP_PKEY **ret_key) {
    X509 *leaf = NULL;
    assert_int_equal(certificate_key_new(ret_key), 0);
    assert_int_equal(certificate_leaf_new(authority.certificate, authority.key, *ret_key, host, NOW, &leaf, NULL), 0);
    return leaf;
}

// What a client says that asked for this host at this time.
static int verify(X509 *leaf, const char *host, int64_t now) {
    X509_STORE *store = X509_STORE_new();
    X509_STORE_CTX *context = X509_STORE_CTX_new();
    X509_STORE_add_cert(store, authority.certificate);
    assert_int_equal(X509_STORE_CTX_init(context, store, leaf, NULL), 1);
    X509_VERIFY_PARAM *param = X509_STORE_CTX_get0_param(context);
    X509_VERIFY_PARAM_set_flags(param,
                                X509_V_FLAG_X509_STRICT | X509_V_FLAG_CHECK_SS_SIGNATURE | X509_V_FLAG_POLICY_CHECK);
    X509_VERIFY_PARAM_set_purpose(param, X509_PURPOSE_SSL_SERVER);
    X509_VERIFY_PARAM_set_time(param, now);
    assert_int_equal(X509_VERIFY_PARAM_set1_host(param, host, 0), 1);
    X509_verify_cert(context);
    int error = X509_STORE_CTX_get_error(context);
    X509_STORE_CTX_free(context);
    X509_STORE_free(store);
    return error;
}

static void test_verified(void **state) {
    (void)state;
    static const char *const hosts[] = {
        "github.com",
        "a.b-c.example",
        "under_score.example",
        "a123456789012345678901234567890123456789012345678901234.example", // 64: fits a common name
        "a1234567890123456789012345678901234567890123456789012345.example",
    };
    for (size_t i = 0; i < ARRAY_LENGTH(hosts); i++) {
        EVP_PKEY *key;
        X509 *leaf = make_leaf(hosts[i], &key);
        assert_int_equal(verify(leaf, hosts[i], NOW), X509_V_OK);
        assert_int_equal(verify(leaf, hosts[i], NOW - CERTIFICATE_DAY + 1), X509_V_OK); // a clock that is behind
        assert_int_equal(verify(leaf, hosts[i], NOW + CERTIFICATE_LEAF_DAYS * CERTIFICATE_DAY - 1), X509_V_OK);
        assert_int_equal(verify(leaf, hosts[i], NOW + CERTIFICATE_LEAF_DAYS * CERTIFICATE_DAY + 1),
                         X509_V_ERR_CERT_HAS_EXPIRED);
        assert_int_equal(verify(leaf, hosts[i], NOW - 2 * CERTIFICATE_DAY), X509_V_ERR_CERT_NOT_YET_VALID);
        assert_int_equal(verify(leaf, "other.example", NOW), X509_V_ERR_HOSTNAME_MISMATCH);
        char sub[300];
        snprintf(sub, sizeof(sub), "sub.%s", hosts[i]);
        assert_int_equal(verify(leaf, sub, NOW), X509_V_ERR_HOSTNAME_MISMATCH);
        bool named = X509_NAME_entry_count(X509_get_subject_name(leaf)) == 1;
        assert_int_equal(named, strlen(hosts[i]) <= 64);
        int at = X509_get_ext_by_NID(leaf, NID_subject_alt_name, -1);
        assert_int_equal(X509_EXTENSION_get_critical(X509_get_ext(leaf, at)), !named);
        assert_int_equal(X509_check_private_key(leaf, key), 1);
        X509_free(leaf);
        EVP_PKEY_free(key);
    }
}

static void test_serials_differ(void **state) {
    (void)state;
    EVP_PKEY *keys[2];
    X509 *leaves[] = {make_leaf("a.example", &keys[0]), make_leaf("a.example", &keys[1])};
    assert_int_not_equal(ASN1_INTEGER_cmp(X509_get0_serialNumber(leaves[0]), X509_get0_serialNumber(leaves[1])), 0);
    for (size_t i = 0; i < 2; i++) {
        BIGNUM *number = ASN1_INTEGER_to_BN(X509_get0_serialNumber(leaves[i]), NULL);
        assert_true(BN_num_bits(number) >= 127 && BN_num_bits(number) <= 128 && !BN_is_negative(number));
        BN_free(number);
        X509_free(leaves[i]);
        EVP_PKEY_free(keys[i]);
    }
}

static void test_no_host(void **state) {
    (void)state;
    static const char *const hosts[] = {"*.example.com",
                                        "*",
                                        "",
                                        "192.0.2.1",
                                        "[2001:db8::1]",
                                        "UPPER.example",
                                        "a..b",
                                        "a.example.",
                                        "a.example,DNS:b.example",
                                        "a b",
                                        "a.example:443",
                                        "..",
                                        "2001:db8::1"};
    EVP_PKEY *key;
    assert_int_equal(certificate_key_new(&key), 0);
    for (size_t i = 0; i < ARRAY_LENGTH(hosts); i++) {
        struct error err = {0};
        X509 *leaf = NULL;
        assert_int_equal(certificate_leaf_new(authority.certificate, authority.key, key, hosts[i], NOW, &leaf, &err),
                         -EINVAL);
        assert_null(leaf);
        assert_non_null(strstr(err.text, "not one host name"));
    }
    EVP_PKEY_free(key);
}

static void test_key_numbers(void **state) {
    (void)state;
    uint8_t number[IPC_KEY_SIZE], other[IPC_KEY_SIZE];
    EVP_PKEY *key, *again = NULL, *keys[1];
    X509 *leaf = make_leaf("a.example", &key), *stranger = make_leaf("b.example", &keys[0]);
    assert_int_equal(certificate_key_number(key, number), 0);
    assert_int_equal(vault_client_key(leaf, number, &again), 0);
    assert_int_equal(EVP_PKEY_eq(key, again), 1);
    assert_int_equal(certificate_key_number(again, other), 0);
    assert_memory_equal(number, other, sizeof(number));
    EVP_PKEY *wrong = NULL;
    assert_int_equal(vault_client_key(stranger, number, &wrong), -EINVAL);
    number[5] ^= 1;
    assert_int_equal(vault_client_key(leaf, number, &wrong), -EINVAL);
    memset(number, 0, sizeof(number));
    assert_int_equal(vault_client_key(leaf, number, &wrong), -EINVAL);
    memset(number, 0xff, sizeof(number));
    assert_int_equal(vault_client_key(leaf, number, &wrong), -EINVAL);
    assert_null(wrong);
    X509_free(leaf);
    X509_free(stranger);
    EVP_PKEY_free(key);
    EVP_PKEY_free(again);
    EVP_PKEY_free(keys[0]);
}

static void save(const char *name, X509 *certificate) {
    FILE *file = fopen(rig_path(name), "we");
    assert_non_null(file);
    assert_int_equal(PEM_write_X509(file, certificate), 1);
    fclose(file);
}

static int openssl_verify(const char *host) {
    char ca[256], leaf[256], time[32];
    snprintf(ca, sizeof(ca), "%s", rig_path("ca.pem"));
    snprintf(leaf, sizeof(leaf), "%s", rig_path("leaf.pem"));
    snprintf(time, sizeof(time), "%lld", (long long)NOW);
    const char *argv[] = {
        "openssl",          "verify", "-x509_strict", "-check_ss_sig", "-purpose", "sslserver", "-attime", time,
        "-verify_hostname", host,     "-no-CApath",   "-CAfile",       ca,         leaf,        NULL};
    posix_spawn_file_actions_t quiet;
    posix_spawn_file_actions_init(&quiet);
    posix_spawn_file_actions_addopen(&quiet, 1, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addopen(&quiet, 2, "/dev/null", O_WRONLY, 0);
    pid_t pid;
    int status;
    assert_int_equal(posix_spawnp(&pid, "openssl", &quiet, NULL, (char *const *)(uintptr_t)argv, environ), 0);
    posix_spawn_file_actions_destroy(&quiet);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WEXITSTATUS(status);
}

static void test_openssl_program(void **state) {
    (void)state;
    EVP_PKEY *key;
    X509 *leaf = make_leaf("api.example.com", &key);
    save("ca.pem", authority.certificate);
    save("leaf.pem", leaf);
    assert_int_equal(openssl_verify("api.example.com"), 0);
    assert_int_not_equal(openssl_verify("example.com"), 0);
    X509_free(leaf);
    EVP_PKEY_free(key);
}

static void test_ca_signs_leaves_only(void **state) {
    (void)state;
    assert_int_equal(X509_check_ca(authority.certificate), 1);
    assert_int_equal(X509_get_pathlen(authority.certificate), 0);
    assert_int_equal(X509_get_key_usage(authority.certificate), KU_KEY_CERT_SIGN | KU_CRL_SIGN);
    EVP_PKEY *key;
    X509 *leaf = make_leaf("a.example", &key);
    assert_int_equal(X509_check_ca(leaf), 0);
    assert_int_equal(X509_get_key_usage(leaf), KU_DIGITAL_SIGNATURE);
    assert_int_equal(X509_get_extended_key_usage(leaf), XKU_SSL_SERVER);
    X509_free(leaf);
    EVP_PKEY_free(key);
}

// ---- the cache ----

static void test_cache(void **state) {
    (void)state;
    struct leaf_cache cache;
    const struct leaf *leaf;
    uint8_t first[IPC_KEY_SIZE];
    leaf_cache_init(&cache, &authority);
    assert_int_equal(leaf_get(&cache, "a.example", NOW, &leaf, NULL), 0);
    memcpy(first, leaf->key, sizeof(first));
    int64_t renew = leaf->renew_at;
    assert_in_range(renew - NOW, 3 * CERTIFICATE_DAY, 4 * CERTIFICATE_DAY);
    assert_int_equal(leaf_get(&cache, "b.example", NOW, &leaf, NULL), 0);
    assert_memory_not_equal(leaf->key, first, sizeof(first));
    assert_int_equal(leaf_get(&cache, "a.example", renew - 1, &leaf, NULL), 0);
    assert_memory_equal(leaf->key, first, sizeof(first));
    assert_int_equal(leaf_get(&cache, "a.example", renew, &leaf, NULL), 0); // days before its end
    assert_memory_not_equal(leaf->key, first, sizeof(first));
    memcpy(first, leaf->key, sizeof(first));
    assert_int_equal(leaf_get(&cache, "a.example", NOW - 40 * CERTIFICATE_DAY, &leaf, NULL), 0); // a clock set back
    assert_memory_not_equal(leaf->key, first, sizeof(first));
    assert_int_equal(cache.count, 2);
    assert_int_equal(leaf_get(&cache, "*.example", NOW, &leaf, NULL), -EINVAL);
    assert_int_equal(cache.count, 2);
    leaf_cache_done(&cache);
}

static void test_cache_bound(void **state) {
    (void)state;
    struct leaf_cache cache;
    const struct leaf *leaf;
    char host[32];
    uint8_t first[IPC_KEY_SIZE];
    leaf_cache_init(&cache, &authority);
    assert_int_equal(leaf_get(&cache, "kept.example", NOW, &leaf, NULL), 0);
    memcpy(first, leaf->key, sizeof(first));
    for (int i = 0; i < LEAF_MAX + 20; i++) {
        snprintf(host, sizeof(host), "h%d.example", i);
        assert_int_equal(leaf_get(&cache, host, NOW, &leaf, NULL), 0);
        assert_int_equal(leaf_get(&cache, "kept.example", NOW, &leaf, NULL), 0);
    }
    assert_int_equal(cache.count, LEAF_MAX);
    assert_memory_equal(leaf->key, first, sizeof(first)); // in use, so it stayed
    leaf_cache_done(&cache);
}

static void test_ends_with_ca(void **state) {
    (void)state;
    int64_t end = certificate_not_after(authority.certificate);
    struct leaf_cache cache;
    const struct leaf *leaf;
    leaf_cache_init(&cache, &authority);
    assert_int_equal(leaf_get(&cache, "a.example", end - CERTIFICATE_DAY, &leaf, NULL), 0);
    X509 *certificate = certificate_decode(leaf->der, leaf->der_len);
    assert_int_equal(certificate_not_after(certificate), end);
    assert_int_equal(leaf->renew_at, end - CERTIFICATE_DAY / 2);
    assert_null(certificate_decode(leaf->der, leaf->der_len - 1));
    X509_free(certificate);
    leaf_cache_done(&cache);
}

static int setup(void **state) {
    (void)state;
    rig_init();
    make_authority(NOW - 30 * CERTIFICATE_DAY);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    authority_done(&authority);
    rig_done();
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_verified),        cmocka_unit_test(test_serials_differ),
        cmocka_unit_test(test_no_host),         cmocka_unit_test(test_key_numbers),
        cmocka_unit_test(test_openssl_program), cmocka_unit_test(test_ca_signs_leaves_only),
        cmocka_unit_test(test_cache),           cmocka_unit_test(test_cache_bound),
        cmocka_unit_test(test_ends_with_ca),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
