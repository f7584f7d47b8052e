// SPDX-License-Identifier: Apache-2.0
// Cleanup attributes with an explicit take, and closing of descriptors.
#pragma once

#include <stdlib.h>
#include <unistd.h>

#define CLEANUP(function) __attribute__((cleanup(function)))

static inline void mem_free_pointer(void *pointer) { free(*(void **)pointer); }
static inline void mem_close_pointer(int *fd) {
    if (*fd >= 0) close(*fd);
}

#define AUTO_FREE CLEANUP(mem_free_pointer)
#define AUTO_CLOSE CLEANUP(mem_close_pointer)

// Moves a pointer (or descriptor) out of a variable that would clean it up.
#define TAKE_POINTER(variable) \
    __extension__({ \
        __typeof__(variable) taken_ = (variable); \
        (variable) = NULL; \
        taken_; \
    })
#define TAKE_FD(variable) \
    __extension__({ \
        int taken_ = (variable); \
        (variable) = -1; \
        taken_; \
    })

// calloc that cannot overflow; NULL when out of memory.
#define NEW(type) ((type *)calloc(1, sizeof(type)))
#define NEW_ARRAY(type, count) ((type *)calloc((count) ? (count) : 1, sizeof(type)))

#define ARRAY_LENGTH(array) (sizeof(array) / sizeof((array)[0]))
