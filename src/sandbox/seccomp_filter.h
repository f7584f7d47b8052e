// SPDX-License-Identifier: Apache-2.0
// The system call filter of a sandbox.
#pragma once

#include <stdbool.h>

#include "base/error.h"

// A memory file with the compiled filter, at its start, as bubblewrap's --seccomp reads it. fixed_mounts: no mount
// namespace can be made below the sandbox's. A descriptor (CLOEXEC), or a negative errno with a message.
int seccomp_filter_open(bool fixed_mounts, struct error *err);
