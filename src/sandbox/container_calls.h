// SPDX-License-Identifier: Apache-2.0
// Which system calls a container's programs may make.
#pragma once

struct call_filter;

// For a filter whose answer to all else is ENOSYS. 0, or negative errno.
int container_calls_fill(struct call_filter *filter);
