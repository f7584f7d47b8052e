// SPDX-License-Identifier: Apache-2.0
// A seccomp filter, compiled and proved while penstock is built: libseccomp says that all is well when memory ran out while it wrote
// the program, and the program then lacks rules. So every rule is kept, and the program is run on samples of each.
#pragma once

#include <seccomp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct call_filter;

// other: the action (SCMP_ACT_...) for a call without a rule. Foreign ABIs are killed. NULL: out of memory.
struct call_filter *call_filter_new(uint32_t other);
void call_filter_free(struct call_filter *filter); // NULL is fine
// At most 2 conditions, all of which must hold; they compare by SCMP_CMP_EQ, SCMP_CMP_GT or SCMP_CMP_MASKED_EQ. Rules of
// one call with different actions exclude each other. A call that this architecture does not have is passed over. 0, -errno.
int call_filter_add(struct call_filter *filter, uint32_t action, int call, size_t count, const struct scmp_arg_cmp *conditions);
// Writes the program to an empty memory file, which is then at its end. 0; -EILSEQ: it is not what the rules say; -errno.
int call_filter_write(const struct call_filter *filter, int fd);
// Prints the program as C, what an array of struct sock_filter is initialised with. 0, or as call_filter_write.
int call_filter_print(const struct call_filter *filter, FILE *out);
