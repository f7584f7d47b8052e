// SPDX-License-Identifier: Apache-2.0
// The key of a node's API.
#pragma once

#include <stdbool.h>

#include "base/error.h"

// PENSTOCK_API_KEY, else AENV_API_KEY, else the file /run/secrets/api-key, else api-key in the folder (NULL: there is none),
// which is made with 64 random hex digits if make is set. An empty variable is none. 0, or a negative errno with a message.
int api_key_find(const char *folder, bool make, char **ret_key, struct error *err);
