// SPDX-License-Identifier: Apache-2.0
// Calls that have no safe use here do not compile. Force-included into every file.
#pragma once

#ifndef __cplusplus
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#undef alloca // a macro in glibc with optimisation
// With _FORTIFY_SOURCE some compilers see these as macros, which cannot be poisoned.
#undef strcpy
#undef strcat
#undef strncpy
#undef strncat
#undef sprintf
#undef vsprintf
#undef gets
#pragma GCC poison strcpy strcat strncpy strncat sprintf vsprintf gets strtok atoi atol atoll alloca asctime ctime
#pragma GCC poison gmtime localtime tmpnam tempnam mktemp system popen
#endif
