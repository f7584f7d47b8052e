// SPDX-License-Identifier: Apache-2.0
// Other names that a mount gives to what the sandbox may not see, or not change.
#pragma once

#include "sandbox/exposure.h"
#include "sandbox/hidden.h"
#include "sandbox/mountinfo.h"

// 0; -EINVAL with a message that names the mount; -ENOMEM.
int alias_check(const struct sandbox_spec *spec, const struct exposure *exposure, const struct hidden *hidden,
                struct mountinfo *mounts, struct error *err);
