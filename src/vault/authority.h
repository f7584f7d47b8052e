// SPDX-License-Identifier: Apache-2.0
// The CA of this user on this machine: made on first use, kept in the state folder, made anew before it ends.
#pragma once

#include <openssl/evp.h>
#include <openssl/x509.h>
#include <stdint.h>

#include "base/error.h"
#include "wire/ipc.h"

struct authority {
    X509 *certificate;
    EVP_PKEY *key;
    uint8_t der[IPC_CERTIFICATE_MAX]; // of the certificate
    size_t der_len;
};

#define AUTHORITY_FOLDER "ca"
#define AUTHORITY_FILE "authority"
#define AUTHORITY_FILE_MAX (IPC_CERTIFICATE_MAX + 64)

// Loads it or makes it. now: seconds of the wall clock. 0, or a negative errno with a message that says how to mend it.
int authority_load(int64_t now, struct authority *ret_authority, struct error *err);
void authority_done(struct authority *authority);
// What a file of a CA holds, as far as its form and its key go. -EINVAL with a message that lacks the file's name.
int authority_parse(const uint8_t *bytes, size_t len, struct authority *ret_authority, struct error *err);
