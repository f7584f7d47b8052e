// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "sandbox/sandbox.h"

// The user name that root's sandboxes show; NULL for an ordinary user, who has a name already.
const char *identity_name(const struct sandbox_identity *identity);
