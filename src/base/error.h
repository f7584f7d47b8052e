// SPDX-License-Identifier: Apache-2.0
// An error that a person reads: one line that says what was expected, quotes the input and says what to do.
#pragma once

#include <stdarg.h>

struct error {
    char text[1024]; // empty until something failed
};

// Sets the message (printf format; cut at the size of the buffer, control bytes shown as \xNN).
// err may be NULL. Returns code, a negative errno, so that `return error_set(err, -EINVAL, ...)` reads well.
int error_set(struct error *err, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));

// Puts "context: " in front of a message already set. Returns code.
int error_context(struct error *err, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));
