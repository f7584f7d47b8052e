// SPDX-License-Identifier: Apache-2.0
// Monotonic and wall time. Read once per loop turn and passed on.
#pragma once

#include <stdint.h>
#include <time.h>

static inline uint64_t clock_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}
// The same time as of the last tick of the kernel, some milliseconds before, for what is asked at each byte.
static inline uint64_t clock_coarse_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}
#define CLOCK_TEXT_SIZE 32
// RFC 3339 UTC with milliseconds, from CLOCK_REALTIME. Returns buf.
const char *clock_text(char buf[CLOCK_TEXT_SIZE]);
