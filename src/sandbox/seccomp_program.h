// SPDX-License-Identifier: Apache-2.0
// The sandbox's filter as the kernel takes it, made by seccomp_make.c.
#pragma once

#include <linux/filter.h>
#include <stddef.h>

extern const struct sock_filter seccomp_program[], seccomp_program_fixed_mounts[], seccomp_program_container[];
extern const size_t seccomp_program_count, seccomp_program_fixed_mounts_count, seccomp_program_container_count;
