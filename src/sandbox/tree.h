// SPDX-License-Identifier: Apache-2.0
// Folders that a sandbox has filled: removed and copied without following a link, without recursion, however deep they are.
#pragma once

#include "base/error.h"

// Removes name of folder `at` with all that is in it. 0 also if it is not there.
int tree_remove(int at, const char *name);
// Copies the folder `from` to the new folder name of `at`: owners, modes, times, hard links, holes, device 0:0 (what overlayfs
// calls a whiteout), FIFOs, and the extended attributes user.*, security.capability, ACLs and overlayfs's mark "opaque".
// Sockets and other devices are left out. 0, or a negative errno with a message; then what there is has to be removed.
int tree_copy(int from, int at, const char *name, struct error *err);
