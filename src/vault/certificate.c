// SPDX-License-Identifier: Apache-2.0
// Extensions are made from OpenSSL's structures, never from text: no host name is parsed as configuration.
//
// A private key travels as its 32-byte number only: no PEM or DER form of it, whose decoders leave copies behind.
#include "vault/certificate.h"

#include <errno.h>

#include "base/name.h"
#include "base/random.h"
#include "vault/crypto.h"

#define GROUP "prime256v1"
#define COMMON_NAME_MAX 64 // RFC 5280, ub-common-name

// ---- keys ----

int certificate_key_new(EVP_PKEY **ret_key) {
    EVP_PKEY *key = EVP_EC_gen(GROUP);
    if (!key) return -EIO;
    *ret_key = key;
    return 0;
}

int certificate_key_number(const EVP_PKEY *key, uint8_t ret_number[IPC_KEY_SIZE]) {
    BIGNUM *number = BN_secure_new();
    int good = number && EVP_PKEY_get_bn_param(key, OSSL_PKEY_PARAM_PRIV_KEY, &number) == 1 &&
               BN_bn2binpad(number, ret_number, IPC_KEY_SIZE) == IPC_KEY_SIZE;
    BN_clear_free(number);
    return good ? 0 : -EIO;
}

static OSSL_PARAM *key_parameters(const uint8_t *point, size_t point_len, const uint8_t number[IPC_KEY_SIZE]) {
    OSSL_PARAM_BLD *builder = OSSL_PARAM_BLD_new();
    BIGNUM *value = BN_secure_new();
    OSSL_PARAM *parameters = NULL;
    if (builder && value && BN_bin2bn(number, IPC_KEY_SIZE, value) &&
        OSSL_PARAM_BLD_push_utf8_string(builder, OSSL_PKEY_PARAM_GROUP_NAME, GROUP, 0) == 1 &&
        OSSL_PARAM_BLD_push_octet_string(builder, OSSL_PKEY_PARAM_PUB_KEY, point, point_len) == 1 &&
        OSSL_PARAM_BLD_push_BN(builder, OSSL_PKEY_PARAM_PRIV_KEY, value) == 1)
        parameters = OSSL_PARAM_BLD_to_param(builder);
    BN_clear_free(value);
    OSSL_PARAM_BLD_free(builder);
    return parameters;
}

int certificate_key_from_number(const X509 *certificate, const uint8_t number[IPC_KEY_SIZE], EVP_PKEY **ret_key) {
    uint8_t point[256];
    size_t len = 0;
    EVP_PKEY *public_key = X509_get0_pubkey(certificate), *key = NULL;
    if (!public_key ||
        EVP_PKEY_get_octet_string_param(public_key, OSSL_PKEY_PARAM_PUB_KEY, point, sizeof(point), &len) != 1)
        return -EINVAL;
    OSSL_PARAM *parameters = key_parameters(point, len, number);
    EVP_PKEY_CTX *context = EVP_PKEY_CTX_new_from_name(NULL, "EC", NULL), *check = NULL;
    bool good = parameters && context && EVP_PKEY_fromdata_init(context) == 1 &&
                EVP_PKEY_fromdata(context, &key, EVP_PKEY_KEYPAIR, parameters) == 1 &&
                (check = EVP_PKEY_CTX_new_from_pkey(NULL, key, NULL)) != NULL && EVP_PKEY_pairwise_check(check) == 1;
    EVP_PKEY_CTX_free(check);
    EVP_PKEY_CTX_free(context);
    OSSL_PARAM_free(parameters);
    if (!good) {
        EVP_PKEY_free(key);
        return -EINVAL;
    }
    *ret_key = key;
    return 0;
}

// ---- parts of a certificate ----

static bool set_serial(X509 *certificate) {
    uint8_t bytes[16];
    random_bytes(bytes, sizeof(bytes));
    bytes[0] |= 0x40; // never zero, never shorter
    BIGNUM *number = BN_bin2bn(bytes, sizeof(bytes), NULL);
    bool good = number && BN_to_ASN1_INTEGER(number, X509_get_serialNumber(certificate));
    BN_free(number);
    return good;
}

static bool set_times(X509 *certificate, int64_t not_before, int64_t not_after) {
    return ASN1_TIME_set(X509_getm_notBefore(certificate), not_before) &&
           ASN1_TIME_set(X509_getm_notAfter(certificate), not_after);
}

static bool add_extension(X509 *certificate, int nid, void *value, int critical) {
    return value && X509_add1_ext_i2d(certificate, nid, value, critical, X509V3_ADD_APPEND) == 1;
}

static bool add_constraints(X509 *certificate, bool ca) {
    BASIC_CONSTRAINTS *constraints = BASIC_CONSTRAINTS_new();
    if (constraints && ca) {
        constraints->ca = 0xff;
        constraints->pathlen = ASN1_INTEGER_new();
        if (constraints->pathlen) ASN1_INTEGER_set(constraints->pathlen, 0);
    }
    bool good = constraints && (!ca || constraints->pathlen) &&
                add_extension(certificate, NID_basic_constraints, constraints, 1);
    BASIC_CONSTRAINTS_free(constraints);
    return good;
}

static bool add_usage(X509 *certificate, bool ca) {
    ASN1_BIT_STRING *usage = ASN1_BIT_STRING_new();
    bool good = usage && (ca ? ASN1_BIT_STRING_set_bit(usage, 5, 1) && ASN1_BIT_STRING_set_bit(usage, 6, 1) // sign, crl
                             : ASN1_BIT_STRING_set_bit(usage, 0, 1));                                       // signature
    good = good && add_extension(certificate, NID_key_usage, usage, 1);
    ASN1_BIT_STRING_free(usage);
    return good;
}

// RFC 7093 section 2, method 1: the first 160 bits of SHA-256 over the public key's bit string.
static ASN1_OCTET_STRING *key_identifier(const X509 *certificate) {
    uint8_t digest[EVP_MAX_MD_SIZE];
    unsigned len;
    ASN1_OCTET_STRING *identifier = ASN1_OCTET_STRING_new();
    if (identifier && X509_pubkey_digest(certificate, EVP_sha256(), digest, &len) == 1 &&
        ASN1_OCTET_STRING_set(identifier, digest, 20) == 1)
        return identifier;
    ASN1_OCTET_STRING_free(identifier);
    return NULL;
}

static bool add_identifiers(X509 *certificate, const X509 *issuer) {
    ASN1_OCTET_STRING *own = key_identifier(certificate);
    AUTHORITY_KEYID *authority = AUTHORITY_KEYID_new();
    bool good = add_extension(certificate, NID_subject_key_identifier, own, 0) && authority &&
                (authority->keyid = key_identifier(issuer)) != NULL &&
                add_extension(certificate, NID_authority_key_identifier, authority, 0);
    AUTHORITY_KEYID_free(authority);
    ASN1_OCTET_STRING_free(own);
    return good;
}

static bool add_server_usage(X509 *certificate) {
    EXTENDED_KEY_USAGE *usage = EXTENDED_KEY_USAGE_new();
    bool good = usage && sk_ASN1_OBJECT_push(usage, OBJ_nid2obj(NID_server_auth)) > 0 &&
                add_extension(certificate, NID_ext_key_usage, usage, 0);
    EXTENDED_KEY_USAGE_free(usage);
    return good;
}

static bool add_host(X509 *certificate, const char *host, bool subject_empty) {
    GENERAL_NAMES *names = GENERAL_NAMES_new();
    GENERAL_NAME *name = GENERAL_NAME_new();
    ASN1_IA5STRING *text = ASN1_IA5STRING_new();
    bool good = names && name && text && ASN1_STRING_set(text, host, -1) == 1;
    if (good) {
        GENERAL_NAME_set0_value(name, GEN_DNS, text);
        text = NULL;
        good = sk_GENERAL_NAME_push(names, name) > 0;
        if (good) name = NULL;
    }
    // RFC 5280 section 4.2.1.6: critical where it stands alone.
    good = good && add_extension(certificate, NID_subject_alt_name, names, subject_empty);
    ASN1_IA5STRING_free(text);
    GENERAL_NAME_free(name);
    GENERAL_NAMES_free(names);
    return good;
}

static bool add_name(X509 *certificate, const char *field, const char *text) {
    return X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate), field, MBSTRING_ASC, (const uint8_t *)text,
                                      -1, -1, 0) == 1;
}

// ---- certificates ----

static bool ca_fill(X509 *ca, EVP_PKEY *key, int64_t now) {
    char name[COMMON_NAME_MAX];
    // Several CAs can be in one store: each has a name of its own.
    snprintf(name, sizeof(name), "Penstock CA %08x", random_u32());
    return X509_set_version(ca, X509_VERSION_3) == 1 && set_serial(ca) &&
           set_times(ca, now - CERTIFICATE_BACK_DAYS * CERTIFICATE_DAY, now + CERTIFICATE_CA_DAYS * CERTIFICATE_DAY) &&
           add_name(ca, "O", "Penstock") && add_name(ca, "CN", name) &&
           X509_set_issuer_name(ca, X509_get_subject_name(ca)) == 1 && X509_set_pubkey(ca, key) == 1 &&
           add_constraints(ca, true) && add_usage(ca, true) && add_identifiers(ca, ca) &&
           X509_sign(ca, key, EVP_sha256()) > 0;
}

int certificate_ca_new(EVP_PKEY *key, int64_t now, X509 **ret_certificate, struct error *err) {
    X509 *ca = X509_new();
    if (!ca || !ca_fill(ca, key, now)) {
        X509_free(ca);
        return error_set(err, -EIO, "OpenSSL cannot make the certificate of the CA; is libcrypto whole?");
    }
    *ret_certificate = ca;
    return 0;
}

static bool leaf_fill(X509 *leaf, X509 *ca, EVP_PKEY *ca_key, EVP_PKEY *key, const char *host, int64_t now) {
    int64_t not_before = now - CERTIFICATE_BACK_DAYS * CERTIFICATE_DAY;
    int64_t not_after = now + CERTIFICATE_LEAF_DAYS * CERTIFICATE_DAY;
    if (not_before < certificate_not_before(ca)) not_before = certificate_not_before(ca);
    if (not_after > certificate_not_after(ca)) not_after = certificate_not_after(ca);
    bool named = strlen(host) <= COMMON_NAME_MAX;
    return X509_set_version(leaf, X509_VERSION_3) == 1 && set_serial(leaf) && set_times(leaf, not_before, not_after) &&
           (!named || add_name(leaf, "CN", host)) && X509_set_issuer_name(leaf, X509_get_subject_name(ca)) == 1 &&
           X509_set_pubkey(leaf, key) == 1 && add_constraints(leaf, false) && add_usage(leaf, false) &&
           add_server_usage(leaf) && add_host(leaf, host, !named) && add_identifiers(leaf, ca) &&
           X509_sign(leaf, ca_key, EVP_sha256()) > 0;
}

int certificate_leaf_new(X509 *ca, EVP_PKEY *ca_key, EVP_PKEY *key, const char *host, int64_t now,
                         X509 **ret_certificate, struct error *err) {
    struct name_host parsed;
    if (name_from_wire(host, strlen(host), &parsed) < 0 || parsed.is_address || strcmp(parsed.name, host) != 0)
        return error_set(err, -EINVAL, "\"%s\" is not one host name; certificates are made for nothing else", host);
    X509 *leaf = X509_new();
    if (!leaf || !leaf_fill(leaf, ca, ca_key, key, host, now)) {
        X509_free(leaf);
        return error_set(err, -EIO, "OpenSSL cannot make a certificate for %s", host);
    }
    *ret_certificate = leaf;
    return 0;
}

// ---- facts and forms ----

static int64_t seconds(const ASN1_TIME *time) {
    struct tm parts = {0};
    if (ASN1_TIME_to_tm(time, &parts) != 1) return 0; // long ago: never valid
    return timegm(&parts);
}

int64_t certificate_not_before(const X509 *certificate) { return seconds(X509_get0_notBefore(certificate)); }

int64_t certificate_not_after(const X509 *certificate) { return seconds(X509_get0_notAfter(certificate)); }

int certificate_encode(const X509 *certificate, uint8_t *ret_bytes, size_t size) {
    int len = i2d_X509(certificate, NULL);
    if (len <= 0 || (size_t)len > size) return -EFBIG;
    return i2d_X509(certificate, &ret_bytes);
}

X509 *certificate_decode(const uint8_t *bytes, size_t len) {
    const uint8_t *at = bytes;
    X509 *certificate = d2i_X509(NULL, &at, (long)len);
    if (!certificate || at == bytes + len) return certificate;
    X509_free(certificate);
    return NULL;
}
