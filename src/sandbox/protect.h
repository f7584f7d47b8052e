// SPDX-License-Identifier: Apache-2.0
// Files that the host trusts (policy, configuration, decision log) and that lie in a folder which the sandbox may write.
#pragma once

#include "sandbox/exposure.h"

#define PROTECTS_MAX 64  // paths
#define PROTECT_ADDS 512 // items

// Adds to a sorted exposure what keeps them as they are. 0, -EINVAL with a message, -ENOMEM.
int protect_add(struct exposure *exposure, const struct sandbox_spec *spec, struct error *err);
