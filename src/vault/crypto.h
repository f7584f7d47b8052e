// SPDX-License-Identifier: Apache-2.0
// OpenSSL, loaded by the first call of it (base/library.h): the other roles of this program are started for every sandbox and
// need none of it. In a file that includes this header its functions are called by their own names.
#pragma once

#include <openssl/bio.h>
#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/param_build.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include "base/library.h"

#define CRYPTO_CALLS(X) \
    X(ASN1_BIT_STRING_free) X(ASN1_BIT_STRING_new) X(ASN1_BIT_STRING_set_bit) X(ASN1_IA5STRING_free) \
    X(ASN1_IA5STRING_new) X(ASN1_INTEGER_new) X(ASN1_INTEGER_set) X(ASN1_OCTET_STRING_free) X(ASN1_OCTET_STRING_new) \
    X(ASN1_OCTET_STRING_set) X(ASN1_STRING_set) X(ASN1_TIME_set) X(ASN1_TIME_to_tm) X(AUTHORITY_KEYID_free) \
    X(AUTHORITY_KEYID_new) X(BASIC_CONSTRAINTS_free) X(BASIC_CONSTRAINTS_new) X(BIO_ctrl) X(BIO_free) X(BIO_new) \
    X(BIO_s_mem) X(BN_bin2bn) X(BN_bn2binpad) X(BN_clear_free) X(BN_free) X(BN_secure_new) X(BN_to_ASN1_INTEGER) \
    X(CRYPTO_memcmp) X(CRYPTO_secure_free) X(CRYPTO_secure_malloc_init) X(CRYPTO_secure_malloc_initialized) \
    X(CRYPTO_secure_zalloc) X(EVP_CIPHER_CTX_ctrl) X(EVP_CIPHER_CTX_free) X(EVP_CIPHER_CTX_new) \
    X(EVP_CipherFinal_ex) X(EVP_CipherInit_ex) X(EVP_CipherUpdate) X(EVP_EncodeBlock) X(EVP_PKEY_CTX_free) \
    X(EVP_PKEY_CTX_new_from_name) X(EVP_PKEY_CTX_new_from_pkey) X(EVP_PKEY_Q_keygen) X(EVP_PKEY_free) \
    X(EVP_PKEY_fromdata) X(EVP_PKEY_fromdata_init) X(EVP_PKEY_get_bn_param) X(EVP_PKEY_get_octet_string_param) \
    X(EVP_PKEY_pairwise_check) X(EVP_aes_256_gcm) X(EVP_sha256) X(EXTENDED_KEY_USAGE_free) X(EXTENDED_KEY_USAGE_new) \
    X(GENERAL_NAMES_free) X(GENERAL_NAMES_new) X(GENERAL_NAME_free) X(GENERAL_NAME_new) X(GENERAL_NAME_set0_value) X(HMAC) \
    X(OBJ_nid2obj) X(OPENSSL_init_crypto) X(OPENSSL_sk_push) X(OSSL_PARAM_BLD_free) X(OSSL_PARAM_BLD_new) \
    X(OSSL_PARAM_BLD_push_BN) X(OSSL_PARAM_BLD_push_octet_string) X(OSSL_PARAM_BLD_push_utf8_string) \
    X(OSSL_PARAM_BLD_to_param) X(OSSL_PARAM_free) X(PEM_write_bio_X509) X(X509_NAME_add_entry_by_txt) \
    X(X509_add1_ext_i2d) X(X509_check_ca) X(X509_free) X(X509_get0_notAfter) X(X509_get0_notBefore) \
    X(X509_get0_pubkey) X(X509_get_serialNumber) X(X509_get_subject_name) X(X509_getm_notAfter) \
    X(X509_getm_notBefore) X(X509_new) X(X509_pubkey_digest) X(X509_set_issuer_name) X(X509_set_pubkey) \
    X(X509_set_version) X(X509_sign) X(X509_subject_name_hash) \
    X(d2i_X509) X(i2d_X509)

struct crypto {
    CRYPTO_CALLS(LIBRARY_MEMBER)
};

// Ends the process, with a message, where there is no OpenSSL 3: nothing of the vault can do without.
const struct crypto *crypto_calls(void);

#ifndef CRYPTO_NAMES_PLAIN
#define ASN1_BIT_STRING_free (crypto_calls()->ASN1_BIT_STRING_free)
#define ASN1_BIT_STRING_new (crypto_calls()->ASN1_BIT_STRING_new)
#define ASN1_BIT_STRING_set_bit (crypto_calls()->ASN1_BIT_STRING_set_bit)
#define ASN1_IA5STRING_free (crypto_calls()->ASN1_IA5STRING_free)
#define ASN1_IA5STRING_new (crypto_calls()->ASN1_IA5STRING_new)
#define ASN1_INTEGER_new (crypto_calls()->ASN1_INTEGER_new)
#define ASN1_INTEGER_set (crypto_calls()->ASN1_INTEGER_set)
#define ASN1_OCTET_STRING_free (crypto_calls()->ASN1_OCTET_STRING_free)
#define ASN1_OCTET_STRING_new (crypto_calls()->ASN1_OCTET_STRING_new)
#define ASN1_OCTET_STRING_set (crypto_calls()->ASN1_OCTET_STRING_set)
#define ASN1_STRING_set (crypto_calls()->ASN1_STRING_set)
#define ASN1_TIME_set (crypto_calls()->ASN1_TIME_set)
#define ASN1_TIME_to_tm (crypto_calls()->ASN1_TIME_to_tm)
#define AUTHORITY_KEYID_free (crypto_calls()->AUTHORITY_KEYID_free)
#define AUTHORITY_KEYID_new (crypto_calls()->AUTHORITY_KEYID_new)
#define BASIC_CONSTRAINTS_free (crypto_calls()->BASIC_CONSTRAINTS_free)
#define BASIC_CONSTRAINTS_new (crypto_calls()->BASIC_CONSTRAINTS_new)
#define BIO_ctrl (crypto_calls()->BIO_ctrl)
#define BIO_free (crypto_calls()->BIO_free)
#define BIO_new (crypto_calls()->BIO_new)
#define BIO_s_mem (crypto_calls()->BIO_s_mem)
#define BN_bin2bn (crypto_calls()->BN_bin2bn)
#define BN_bn2binpad (crypto_calls()->BN_bn2binpad)
#define BN_clear_free (crypto_calls()->BN_clear_free)
#define BN_free (crypto_calls()->BN_free)
#define BN_secure_new (crypto_calls()->BN_secure_new)
#define BN_to_ASN1_INTEGER (crypto_calls()->BN_to_ASN1_INTEGER)
#define CRYPTO_memcmp (crypto_calls()->CRYPTO_memcmp)
#define CRYPTO_secure_free (crypto_calls()->CRYPTO_secure_free)
#define CRYPTO_secure_malloc_init (crypto_calls()->CRYPTO_secure_malloc_init)
#define CRYPTO_secure_malloc_initialized (crypto_calls()->CRYPTO_secure_malloc_initialized)
#define CRYPTO_secure_zalloc (crypto_calls()->CRYPTO_secure_zalloc)
#define EVP_CIPHER_CTX_ctrl (crypto_calls()->EVP_CIPHER_CTX_ctrl)
#define EVP_CIPHER_CTX_free (crypto_calls()->EVP_CIPHER_CTX_free)
#define EVP_CIPHER_CTX_new (crypto_calls()->EVP_CIPHER_CTX_new)
#define EVP_CipherFinal_ex (crypto_calls()->EVP_CipherFinal_ex)
#define EVP_CipherInit_ex (crypto_calls()->EVP_CipherInit_ex)
#define EVP_CipherUpdate (crypto_calls()->EVP_CipherUpdate)
#define EVP_EncodeBlock (crypto_calls()->EVP_EncodeBlock)
#define EVP_PKEY_CTX_free (crypto_calls()->EVP_PKEY_CTX_free)
#define EVP_PKEY_CTX_new_from_name (crypto_calls()->EVP_PKEY_CTX_new_from_name)
#define EVP_PKEY_CTX_new_from_pkey (crypto_calls()->EVP_PKEY_CTX_new_from_pkey)
#define EVP_PKEY_Q_keygen (crypto_calls()->EVP_PKEY_Q_keygen)
#define EVP_PKEY_free (crypto_calls()->EVP_PKEY_free)
#define EVP_PKEY_fromdata (crypto_calls()->EVP_PKEY_fromdata)
#define EVP_PKEY_fromdata_init (crypto_calls()->EVP_PKEY_fromdata_init)
#define EVP_PKEY_get_bn_param (crypto_calls()->EVP_PKEY_get_bn_param)
#define EVP_PKEY_get_octet_string_param (crypto_calls()->EVP_PKEY_get_octet_string_param)
#define EVP_PKEY_pairwise_check (crypto_calls()->EVP_PKEY_pairwise_check)
#define EVP_aes_256_gcm (crypto_calls()->EVP_aes_256_gcm)
#define EVP_sha256 (crypto_calls()->EVP_sha256)
#define EXTENDED_KEY_USAGE_free (crypto_calls()->EXTENDED_KEY_USAGE_free)
#define EXTENDED_KEY_USAGE_new (crypto_calls()->EXTENDED_KEY_USAGE_new)
#define GENERAL_NAMES_free (crypto_calls()->GENERAL_NAMES_free)
#define GENERAL_NAMES_new (crypto_calls()->GENERAL_NAMES_new)
#define GENERAL_NAME_free (crypto_calls()->GENERAL_NAME_free)
#define GENERAL_NAME_new (crypto_calls()->GENERAL_NAME_new)
#define GENERAL_NAME_set0_value (crypto_calls()->GENERAL_NAME_set0_value)
#define HMAC (crypto_calls()->HMAC)
#define OBJ_nid2obj (crypto_calls()->OBJ_nid2obj)
#define OPENSSL_init_crypto (crypto_calls()->OPENSSL_init_crypto)
#define OPENSSL_sk_push (crypto_calls()->OPENSSL_sk_push)
#define OSSL_PARAM_BLD_free (crypto_calls()->OSSL_PARAM_BLD_free)
#define OSSL_PARAM_BLD_new (crypto_calls()->OSSL_PARAM_BLD_new)
#define OSSL_PARAM_BLD_push_BN (crypto_calls()->OSSL_PARAM_BLD_push_BN)
#define OSSL_PARAM_BLD_push_octet_string (crypto_calls()->OSSL_PARAM_BLD_push_octet_string)
#define OSSL_PARAM_BLD_push_utf8_string (crypto_calls()->OSSL_PARAM_BLD_push_utf8_string)
#define OSSL_PARAM_BLD_to_param (crypto_calls()->OSSL_PARAM_BLD_to_param)
#define OSSL_PARAM_free (crypto_calls()->OSSL_PARAM_free)
#define PEM_write_bio_X509 (crypto_calls()->PEM_write_bio_X509)
#define X509_NAME_add_entry_by_txt (crypto_calls()->X509_NAME_add_entry_by_txt)
#define X509_add1_ext_i2d (crypto_calls()->X509_add1_ext_i2d)
#define X509_check_ca (crypto_calls()->X509_check_ca)
#define X509_free (crypto_calls()->X509_free)
#define X509_get0_notAfter (crypto_calls()->X509_get0_notAfter)
#define X509_get0_notBefore (crypto_calls()->X509_get0_notBefore)
#define X509_get0_pubkey (crypto_calls()->X509_get0_pubkey)
#define X509_get_serialNumber (crypto_calls()->X509_get_serialNumber)
#define X509_get_subject_name (crypto_calls()->X509_get_subject_name)
#define X509_getm_notAfter (crypto_calls()->X509_getm_notAfter)
#define X509_getm_notBefore (crypto_calls()->X509_getm_notBefore)
#define X509_new (crypto_calls()->X509_new)
#define X509_pubkey_digest (crypto_calls()->X509_pubkey_digest)
#define X509_set_issuer_name (crypto_calls()->X509_set_issuer_name)
#define X509_set_pubkey (crypto_calls()->X509_set_pubkey)
#define X509_set_version (crypto_calls()->X509_set_version)
#define X509_sign (crypto_calls()->X509_sign)
#define X509_subject_name_hash (crypto_calls()->X509_subject_name_hash)
#define d2i_X509 (crypto_calls()->d2i_X509)
#define i2d_X509 (crypto_calls()->i2d_X509)
#endif
