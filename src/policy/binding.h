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
int policy_binding_set_basic(struct policy_binding *binding, const char *text, size_t len, struct error *err);
int policy_binding_set_path(struct policy_binding *binding, const char *text, size_t len, struct error *err);
int policy_binding_set_variable(struct policy_binding *binding, const char *text, size_t len, struct error *err);
int policy_binding_set_secret(struct policy_binding *binding, const char *text, size_t len, struct error *err);
int policy_binding_add_repo(struct policy_binding *binding, const char *text, size_t len, struct error *err);
int policy_binding_add_method(struct policy_binding *binding, const char *text, size_t len, struct error *err);
// The value of a binding whose host and header are set is the secret itself.
int policy_binding_set_literal(struct policy_binding *binding, const char *text, size_t len, struct error *err);

// Appends to the model, taking over what binding owns (also on failure). Refuses a binding that is not complete, and
// one for a host and header that another binding has.
int policy_binding_append(struct policy_model *model, struct policy_binding *binding, struct error *err);

// 0 or -ENOMEM (ret_copy then owns nothing).
int policy_binding_copy(const struct policy_binding *binding, struct policy_binding *ret_copy);

// "GitHubBinding" and so on.
const char *policy_binding_name(const struct policy_binding *binding);

// Whether the policy lets connections to a host through on which a credential can be added: HTTPS by name, or the base
// (capability.c). -ENOENT: no. -EPROTO: it does, but by an entry that does not read TLS, *ret_entry.
int policy_binding_reach(const struct policy_model *model, const char *host, const struct policy_entry **ret_entry);
// -EINVAL with a message if it does so by such an entry, for a type.
int policy_binding_check_tls(const struct policy_model *model, const struct policy_type_info *info,
                             const struct policy_binding *binding, struct error *err);
