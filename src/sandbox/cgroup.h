// SPDX-License-Identifier: Apache-2.0
// The control groups of a container, version 1 and 2 and both at once: in every hierarchy that is mounted, penstock/ID.
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

#define CGROUP_PARENT "penstock"

// In a mount namespace of one's own: crun refuses to run where both versions have controllers, so that of version 2 goes.
int cgroup_hide_second(void); // 0, or negative errno
// Whether a limit of swap can be set.
bool cgroup_has_swap(void);
bool cgroup_exists(const char *id); // in any hierarchy
// Waits until all processes of the group stand still, or run again. 0, or a negative errno with a message.
int cgroup_freeze(const char *id, bool frozen, struct error *err);
bool cgroup_is_frozen(const char *id);
void cgroup_kill(const char *id); // what is in the groups, frozen or not
// Kills what is in the groups, waits until they are empty, and removes them. 0 also if there are none.
int cgroup_remove(const char *id, struct error *err);
