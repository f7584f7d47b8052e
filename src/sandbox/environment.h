// SPDX-License-Identifier: Apache-2.0
// The variables that the command gets.
#pragma once

#include "sandbox/exposure.h"

// The variables of the host without those that point to its services (proxies, agents, buses, displays); TMPDIR, TMP
// and TEMP become /tmp if they name a folder that the sandbox does not have. With proxy, the usual variables for proxies
// are there, and name the doors of the gate. extra, a NULL-terminated list that may be NULL, goes in place of variables of
// the same names. A NULL-terminated array whose strings are borrowed from environment or
// constant; free the array. NULL if out of memory.
char **environment_filter(char *const *environment, const struct exposure *exposure, bool proxy,
                          char *const *extra);
// The same for variables that are not the host's: all stay, but for those that proxy and extra replace. environment may be NULL.
char **environment_merge(char *const *environment, bool proxy, char *const *extra);
// Value of a variable, or NULL.
const char *environment_get(char *const *environment, const char *name);
