// SPDX-License-Identifier: Apache-2.0
// What the sandbox's system call filter denies.
#pragma once

#include <stdbool.h>

struct call_filter;

int seccomp_rules_fill(struct call_filter *filter, bool fixed_mounts); // 0, or negative errno
