// SPDX-License-Identifier: Apache-2.0
// Which system calls a role may make once it is isolated.
#pragma once

#include <linux/filter.h>
#include <stddef.h>
#include <stdint.h>

enum isolate_action { ISOLATE_ALLOW, ISOLATE_REFUSE }; // refuse: EACCES instead of death, for what libraries try and survive

enum isolate_compare { ISOLATE_ANY, ISOLATE_EQUAL, ISOLATE_MASKED, ISOLATE_ABOVE };

struct isolate_condition {
    uint8_t argument;
    uint8_t compare; // enum isolate_compare
    uint64_t value;
    uint64_t mask;   // ISOLATE_MASKED: (argument & mask) == value
};

struct isolate_call {
    int number;
    uint8_t roles;  // bit of each enum isolate_role
    uint8_t action; // enum isolate_action
    struct isolate_condition conditions[2];
};

// Builds with a sanitizer need more, and survive what else kills: they are for tests.
#if defined(__SANITIZE_ADDRESS__)
#define ISOLATE_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(undefined_behavior_sanitizer)
#define ISOLATE_SANITIZED 1
#endif
#endif
#ifndef ISOLATE_SANITIZED
#define ISOLATE_SANITIZED 0
#endif

extern const struct isolate_call isolate_calls[];
extern const size_t isolate_call_count;

// The same for the kernel, by enum isolate_role; made by isolate_make.c.
struct isolate_program {
    const struct sock_filter *code;
    unsigned short count;
};
extern const struct isolate_program isolate_programs[];
