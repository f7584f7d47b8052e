// SPDX-License-Identifier: Apache-2.0
// What main does for credential bindings: it numbers their rules, takes values out of its own environment, starts the
// vault, and joins gates to it. In main there is no secret after credentials_new.
#pragma once

#include <stddef.h>

#include "daemon/role.h"
#include "policy/model.h"
#include "sandbox/sandbox.h"

struct credentials;

// Numbers the rules of a model that has been checked (policy_check_type), in the order of policy_binding_targets. Each
// value that an env: reference names moves from this process's environment, where it is wiped in whatever variable it is,
// to a memory file; so do values that the policy itself has, which are wiped in the model. So this comes before anything
// that is given the environment. NULL if there are no rules. 0; -EINVAL, -ENOENT (a variable
// that is not set), -ENOMEM with a message.
int credentials_new(struct policy_model *model, struct credentials **ret_credentials, struct error *err);
void credentials_free(struct credentials *credentials); // NULL is fine
// Before the sandbox: makes the environment of commands that give secrets, and refuses those that the sandbox could change.
// Then variables that are likely to hold a bound secret (of a bound kind, or named in such a command) are wiped from this
// process's environment, which the sandbox gets. 0, or a negative errno with a message. NULL: nothing is bound. spec: NULL for a
// container, which can change nothing here.
int credentials_part(struct credentials *credentials, const struct policy_model *model, const struct sandbox_spec *spec,
                     struct error *err);

// The files that file: secrets are in, as they were named, one after the other; NULL behind the last.
const char *credentials_file(const struct credentials *credentials, size_t index);

// Starts the role and hands the values over; it becomes that user (uid 0: stays). Also in place of one that died.
int credentials_start(struct credentials *credentials, struct role *vault, uid_t uid, gid_t gid, struct error *err);
// The CA's certificate, once the vault has been started. It lives as long as the credentials.
const struct sandbox_trust *credentials_trust(const struct credentials *credentials);
// The gate's end of a new channel to the vault, on which it has these rules.
int credentials_join(const struct credentials *credentials, struct role *vault, int *ret_fd, struct error *err);
