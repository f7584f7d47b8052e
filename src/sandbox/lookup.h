// SPDX-License-Identifier: Apache-2.0
// Where the command is, as the sandbox sees it.
#pragma once

#include "sandbox/exposure.h"

// The file that argv[0] means inside (malloc'd). -ENOENT, -EACCES with a message; -ENOMEM.
int lookup_command(const struct sandbox_spec *spec, const struct exposure *exposure, char **ret_path,
                   struct error *err);
