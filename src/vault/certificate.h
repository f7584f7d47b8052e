// SPDX-License-Identifier: Apache-2.0
// Keys and certificates: P-256, RFC 5280 with what strict verifiers want. Time is given, in seconds of the wall clock.
#pragma once

#include <openssl/evp.h>
#include <openssl/x509.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "wire/ipc.h"

#define CERTIFICATE_DAY INT64_C(86400)
#define CERTIFICATE_CA_DAYS 3653
#define CERTIFICATE_CA_RENEW_DAYS 90 // before its end a CA is made anew
#define CERTIFICATE_LEAF_DAYS 7
#define CERTIFICATE_BACK_DAYS 1 // clocks of sandboxes and images may be behind

int certificate_key_new(EVP_PKEY **ret_key); // 0 or -EIO
// The private number of a key: into secure memory, or wiped afterwards.
int certificate_key_number(const EVP_PKEY *key, uint8_t ret_number[IPC_KEY_SIZE]);
// The key that a certificate is for, from its private number. -EINVAL if they do not belong together.
int certificate_key_from_number(const X509 *certificate, const uint8_t number[IPC_KEY_SIZE], EVP_PKEY **ret_key);

// A self-signed CA that may sign leaves only.
int certificate_ca_new(EVP_PKEY *key, int64_t now, X509 **ret_certificate, struct error *err);
// A server's certificate for one host name (canonical; no wildcard, no address).
int certificate_leaf_new(X509 *ca, EVP_PKEY *ca_key, EVP_PKEY *key, const char *host, int64_t now,
                         X509 **ret_certificate, struct error *err);

int64_t certificate_not_before(const X509 *certificate);
int64_t certificate_not_after(const X509 *certificate);
// DER into a buffer: its length, or -EFBIG.
int certificate_encode(const X509 *certificate, uint8_t *ret_bytes, size_t size);
// The whole of the bytes. NULL if they are not one certificate.
X509 *certificate_decode(const uint8_t *bytes, size_t len);
