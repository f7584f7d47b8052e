// SPDX-License-Identifier: Apache-2.0
// Root's folders, shown to a sandbox whose user owns nothing. For a child process of root, single-threaded, before it
// gives up its rights.
#pragma once

#include "sandbox/exposure.h"
#include "sandbox/unix_mask.h"

#define STAGING_FOLDER "/run" // in a mount namespace of our own; there on every system, and open to all
#define STAGING_PATH_SIZE 32
// Where item number `index` is to be found afterwards. Returns buf.
const char *staging_path(size_t index, char buf[STAGING_PATH_SIZE]);

// Enters a private mount namespace, puts each item of the exposure at its staging path, owned by the sandbox's user
// where the folder's own user owns it, and hides what the mask names. 0, or a negative errno with a message.
int staging_enter(const struct exposure *exposure, const struct unix_mask *mask,
                  const struct sandbox_identity *identity, struct error *err);
