// SPDX-License-Identifier: Apache-2.0
// Credential bindings of a policy: what may be said in them (semantics section 7). Values are never here. Private to
// the policy room.
#pragma once

#include <stddef.h>

#include "policy/model.h"

void policy_binding_done(struct policy_binding *binding); // frees what it owns

// Checks and sets one part from text. 0, or -EINVAL with a message that quotes the text; -ENOMEM.
int policy_binding_set_host(struct policy_binding *binding, const char *text, size_t len, struct error *err);
int policy_binding_set_header(struct policy_binding *binding, const char *text, size_t len, struct error *err);
int policy_binding_set_value(struct policy_binding *binding, const char *text, size_t len, struct error *err);
int policy_binding_set_secret(struct policy_binding *binding, const char *text, size_t len, struct error *err);
int policy_binding_add_repo(struct policy_binding *binding, const char *text, size_t len, struct error *err);

// Appends to the model, taking over what binding owns (also on failure). Refuses a binding that is not complete, and
// one for a host and header that another binding has.
int policy_binding_append(struct policy_model *model, struct policy_binding *binding, struct error *err);

// "GitHubBinding" and so on.
const char *policy_binding_name(enum policy_binding_kind kind);
