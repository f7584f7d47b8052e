// SPDX-License-Identifier: Apache-2.0
// Where the references of secrets lead, as far as main may know: it reads none of them.
#pragma once

#include <stddef.h>

#include "base/error.h"

// The reference as the vault gets it: "file:~/x" is below the home folder. A relative file: stays what it is, relative to the
// working directory. 0, -EINVAL or -E2BIG with a message that quotes it.
int secret_place_expand(const char *reference, char *ret_reference, size_t size, struct error *err);
