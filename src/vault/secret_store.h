// SPDX-License-Identifier: Apache-2.0
// Secrets at rest, `store:NAME`: one file each, AES-256-GCM under a key in a file of its own. What is read is the very
// value that was stored under this very name, or nothing.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "wire/ipc.h"

#define SECRET_STORE_FOLDER "secrets"
#define SECRET_STORE_KEY ".key"
#define SECRET_STORE_KEY_SIZE 32
#define SECRET_STORE_NAME_MAX 64
#define SECRET_STORE_FILE_MAX (IPC_SECRET_MAX + 64)

// Letters, digits, '_', '-' and '.', not '.' or '-' first; 1 to 64. 0, or -EINVAL with a message.
int secret_store_name(const char *name, struct error *err);
// The file of a value: its length. ret_bytes has room for SECRET_STORE_FILE_MAX. -EIO if OpenSSL fails.
int secret_store_seal(const uint8_t key[SECRET_STORE_KEY_SIZE], const char *name, const uint8_t *value, size_t len,
                      uint8_t *ret_bytes);
// The length of the value, which goes to ret_value (room for IPC_SECRET_MAX, secure memory). -EBADMSG: not what was
// stored.
int secret_store_open(const uint8_t key[SECRET_STORE_KEY_SIZE], const char *name, const uint8_t *bytes, size_t len,
                      uint8_t *ret_value);
