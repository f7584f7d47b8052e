// SPDX-License-Identifier: Apache-2.0
// What a sandbox could change of the host's files: for those that somebody outside of it reads or executes meanwhile.
#pragma once

#include "sandbox/exposure.h"

// Whether it could change the file of this path, or to which file the path leads: now, or once there is one.
bool reach_changes(const struct exposure *exposure, const char *path, const char *cwd);
