// SPDX-License-Identifier: Apache-2.0
// The credentials of one request: which headers it gets, by policy_credentials, and their values from the vault. A value is in
// locked memory from its arrival to injection_free, which wipes it; it is asked for one request and used for one.
//
// The vault's side of this is described in vault/vault.h. While the gate has no channel to it, whatever is asked fails.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "policy/policy.h"

struct gate;

struct injection_value {
    const char *header;  // as the policy writes it
    const char *bytes;   // the value, len bytes, no NUL
    size_t len;
    uint32_t rule, epoch;
    bool scrub;
};

struct injection {
    size_t count; // 0: this request gets none
    bool conditional; // one at least would not be there with another method or path
    struct injection_value values[POLICY_CREDENTIALS_MAX];
};

// status 0: injection is the callee's to free with injection_free. Negative errno: a value could not be had in time
// (binding_failed), injection is NULL. Never called from inside injection_start.
typedef void injection_done(int status, struct injection *injection, void *data);
struct injection_wait;
// For a request to a bound host (canonical); method and path (with query) as the sandbox sent them. NULL: out of memory, or
// too many are open.
struct injection_wait *injection_start(struct gate *gate, const char *host, const void *method, size_t method_len,
                                       const void *path, size_t path_len, injection_done *done, void *data);
// Why a value, or a leaf, could not be had, and where to look: for the log and the client. Returns text.
#define INJECTION_WHY_SIZE 256
const char *injection_why(int status, char text[INJECTION_WHY_SIZE]);
void injection_cancel(struct injection_wait *wait); // done is not called
void injection_free(struct injection *injection);   // wipes; NULL is fine
// Whether a header of this name comes from the injection alone: the sandbox's own of that name is left out. ASCII case is
// ignored.
bool injection_sets(const struct injection *injection, const void *name, size_t name_len);
// Whether a header of the sandbox's is left out: one that is set; one that servers are known to take for a method or path
// other than was judged, where that decided; one that would have a value come back in pieces or in disguise where it is
// to be scrubbed.
bool injection_bars(const struct injection *injection, const void *name, size_t name_len);
// Which of the headers that are bound to the host it sets, as the log has it (struct ipc_decision).
uint16_t injection_places(const struct gate *gate, const char *host, const struct injection *injection);
bool injection_scrubs(const struct injection *injection); // NULL is fine

// ---- leaves: what a TLS server needs to be a bound host ----

struct x509_st;
struct evp_pkey_st;
struct injection_leaf {
    struct x509_st *certificate, *ca;
    struct evp_pkey_st *key;
    uint64_t serial; // another one after a renewal
};
// The leaf of a bound host, if it is there and not due for renewal. NULL: not yet; then `ready` is called once when it is
// (status 0), or negative errno when it cannot be had in time. Leaves of all bound hosts are asked for when the gate starts.
const struct injection_leaf *injection_leaf(struct gate *gate, const char *host);
struct injection_leaf_wait;
struct injection_leaf_wait *injection_leaf_start(struct gate *gate, const char *host, void (*ready)(int status, void *data),
                                                 void *data);
void injection_leaf_cancel(struct injection_leaf_wait *wait);

// ---- the gate's channel to the vault ----

// Before the gate isolates itself: OpenSSL, and locked memory for values. 0, or a negative errno with a message.
int injection_prepare(struct gate *gate, struct error *err);
// Who is told that a secret was replaced or revoked: connections whose requests carried a value of this rule of an epoch
// before this one end. Called from the loop. A lost channel is told as the greatest epoch, for each rule that had a value.
typedef void injection_changed(struct gate *gate, uint32_t rule, uint32_t epoch);
void injection_on_change(struct gate *gate, injection_changed *changed);
// Takes the descriptor; again in place of a dead one. Asks for the leaves of all hosts that the gate's policy binds. 0, or
// negative errno (the descriptor is still the caller's).
int injection_join(struct gate *gate, int fd);
void injection_close(struct gate *gate); // frees all; no handler is called
