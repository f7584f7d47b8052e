// SPDX-License-Identifier: Apache-2.0
// What the kernel starts in place of a file: the interpreter that a script's first line names, or a program's loader.
#pragma once

#include <stdbool.h>

#include "sandbox/exposure.h"

#define INTERPRETER_SIZE 256 // the kernel reads as much of a script

// The one that the file at path names. False: it names none, or cannot be read.
bool interpreter_of(const char *path, char ret_interpreter[INTERPRETER_SIZE]);
// The first interpreter, along the chain of scripts that begins with path, which the sandbox does not have.
bool interpreter_missing_of(const char *path, const struct exposure *exposure, char ret_interpreter[INTERPRETER_SIZE]);
