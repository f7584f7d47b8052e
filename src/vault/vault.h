// SPDX-License-Identifier: Apache-2.0
// The front door of the vault room: the CA, leaf certificates, and secrets. The vault process holds the CA's key and
// the values of secrets; it parses nothing that a sandbox sends, only questions of fixed size, of gates (wire/ipc.h).
//
// What a gate does with it, over the channel that main gave it (rules are numbered as main sent them, from 0):
// - IPC_LEAF_ASK gives what a server needs to be the host of a rule: certificate, CA, key (vault_client_leaf). Kept by the gate
//   until renew_at, then asked for again.
// - IPC_VALUE_ASK gives the values of rules' headers, each for one request: it is used once and wiped. Any status but 0: that
//   request fails with binding_failed, and main has been told why.
// - IPC_VALUE_CHANGED: connections whose requests carried a value of that rule of an earlier epoch end.
// A gate may have VAULT_GATE_ASKS_MAX questions open; further ones are read once one of these is answered. Answers come
// in any order; one can take as long as a command may run: the gate has a deadline of its own. A channel that closes
// means no credentials until main gives another.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

#define VAULT_GATE_ASKS_MAX 256
#define VAULT_LOCKED_SIZE (4 << 20) // bytes that the vault and each gate lock, where they may; 8 MiB is the usual RLIMIT_MEMLOCK

struct evp_pkey_st;
struct ipc_leaf;
struct x509_st;

// Role main: opens the CA, starts its helper, isolates itself, serves gates. Ends when main's channel closes, or if its
// helper dies. Returns an exit status.
int vault_main(int channel);

// The CA's certificate, which is made if there is none yet, as PEM text (to free). 0, or a negative errno with a
// message.
int vault_ca_certificate(char **ret_pem, struct error *err);

// ---- for a gate (vault_client.c) ----

// Loads libcrypto and makes the locked memory: before the gate isolates itself. 0, or a negative errno with a message.
int vault_client_init(struct error *err);
// Zeroed memory that is locked where the user may lock any, and in no core dump. NULL: it is used up.
void *vault_client_memory(size_t size);
void vault_client_wipe(void *memory); // and gives it back; NULL is fine
// The private key of a leaf, from struct ipc_leaf. 0, or -EINVAL if it is not the certificate's.
int vault_client_key(const struct x509_st *leaf, const uint8_t key[32], struct evp_pkey_st **ret_key);
struct vault_client_leaf {
    struct x509_st *certificate, *ca;
    struct evp_pkey_st *key;
};
// From the answer with the certificates behind it. 0, its status, -EINVAL.
int vault_client_leaf(const struct ipc_leaf *answer, const uint8_t *certificates, struct vault_client_leaf *ret_leaf);
void vault_client_leaf_done(struct vault_client_leaf *leaf);

// The folder of keys and stored secrets (to free), whether or not it is there; make: it is made if it is missing. 0, or a
// negative errno with a message.
int vault_state_folder(bool make, char **ret_path, struct error *err);

// ---- a node's own secrets (token.c); folder: its state folder, which is there ----

// The key of the REST interface: PENSTOCK_API_KEY, AENV_API_KEY, /run/secrets/api-key, else the file api-key of the folder,
// which is made (64 hex digits, mode 0600) if there is none. Any text that is not empty. To free. 0, or negative with a
// message.
int vault_api_key(const char *folder, char **ret_key, struct error *err);
// What tokens of sandboxes are derived from: PENSTOCK_SANDBOX_ACCESS_TOKEN_HASH_SEED or AENV_..., else the file
// sandbox-access-token-hash-seed, made as the key is. A file that others could have read, or that is not 64 hex digits, is
// refused and never replaced.
int vault_token_seed(const char *folder, char **ret_seed, struct error *err);
// HMAC-SHA256 of message under the seed's text, as hex digits. 0 or -EIO.
#define VAULT_TOKEN_SIZE 65
int vault_token(const char *seed, const char *message, char ret_token[VAULT_TOKEN_SIZE]);

// ---- secrets at rest ----

// Whether a value can be (part of) a header: not empty, not too long, no CR, LF, NUL. 0, or negative with a message,
// which never holds the value.
int vault_secret_check(const void *value, size_t len, struct error *err);
// What a status of IPC_VALUE means, for people, without the secret or where it is. Returns text.
#define VAULT_WHY_SIZE 128
const char *vault_secret_why(int status, char text[VAULT_WHY_SIZE]);
// Stores a value under a name, in place of the one before. 0, or a negative errno with a message.
int vault_secret_set(const char *name, const void *value, size_t len, struct error *err);
// Whether there is one. 0, or a negative errno with a message.
int vault_secret_find(const char *name, struct error *err);
// -ENOENT with a message if there is none.
int vault_secret_remove(const char *name, struct error *err);
// All names, sorted.
int vault_secret_list(char ***ret_names, size_t *ret_count, struct error *err);
void vault_secret_list_free(char **names, size_t count);
