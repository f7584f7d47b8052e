// SPDX-License-Identifier: Apache-2.0
// Commands that give secrets (cmd:) run outside of the sandbox, with the rights of its user: nothing that the sandbox can
// write may decide what they do.
#pragma once

#include "base/error.h"
#include "sandbox/sandbox.h"

// This process's environment (to free with helper_environment_free) without paths that the sandbox could write in lists of
// paths; PATH has no relative folder either. 0 or -ENOMEM with a message.
int helper_environment(const struct sandbox_reach *reach, char ***ret_environment, struct error *err);
void helper_environment_free(char **environment); // NULL is fine
// Whether a command names no program or file that the sandbox could write, as far as its words show. 0, or -EINVAL with a
// message.
int helper_check(const struct sandbox_reach *reach, char *const *environment, const char *command, struct error *err);
// Whether a command has the name of this variable as a word, and its value could be a secret.
bool helper_names(const char *command, const char *variable);
