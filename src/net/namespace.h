// SPDX-License-Identifier: Apache-2.0
// The user and network namespace of a sandbox.
#pragma once

#include <sys/types.h>

#include "base/error.h"

// Puts this process into a new user namespace, that maps exactly this user and this group to themselves, and a new network
// namespace owned by it; the process then runs as that user with all capabilities there (and none outside). An ordinary user
// can only ask for itself; root for anybody. 0, or a negative errno with a message.
int namespace_enter(uid_t uid, gid_t gid, struct error *err);
