// SPDX-License-Identifier: Apache-2.0
// Conformance cases: one JSON object a line.
#pragma once

#include <stddef.h>

#include "base/error.h"

struct check_cases_count {
    size_t passed, failed;
};

// Runs the cases of a text and prints a line per failure. name is the file's, for these lines.
struct check_cases_count check_cases_run(const char *text, size_t len, const char *name);
// The same for a file ("-": standard input), and "N passed, N failed" at the end. The exit status.
int check_cases_file(const char *path);
