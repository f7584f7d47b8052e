// SPDX-License-Identifier: Apache-2.0
// Names of templates and snapshots. Private to the api room.
#pragma once

#include "base/error.h"

#define NAMES_MAX 128
// Letters, digits, '.', '_', '-' and '/' between them, in lower case (written so in *ret_name); ":default" behind it is left
// out, and any other tag is an error. 0, or -EINVAL with a message.
int names_read(const char *text, char ret_name[NAMES_MAX + 1], struct error *err);
