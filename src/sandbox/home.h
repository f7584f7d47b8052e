// SPDX-License-Identifier: Apache-2.0
// Home folders that a sandbox must not be given by accident.
#pragma once

#include <stddef.h>

// The caller's home folder as a real path (malloc'd): HOME, or without it the user database's. NULL if there is none
// that could hide anything: none at all, missing, "/", or a part of the system (users such as daemon have /usr/sbin).
char *home_of_environment(void);

struct home {
    char *path;     // real
    char whose[80]; // for messages: "your home folder", "the home folder of 'alice'"
};

struct home_list {
    struct home *entries;
    size_t count, size;
};

#define HOMES_MAX 4096

// Those of HOME, of the caller, of who called sudo or doas, of the owner of the folder cwd (may be NULL), and of the
// machine's people. What cannot be found out is left out.
void home_list_init(struct home_list *list, const char *cwd);
void home_list_done(struct home_list *list);
