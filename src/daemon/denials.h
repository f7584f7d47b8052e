// SPDX-License-Identifier: Apache-2.0
// What was refused in a run, by destination: the summary at its end.
#pragma once

#include <stdbool.h>
#include <stdio.h>

#include "wire/ipc.h"

struct denials;
struct denials *denials_new(void); // NULL: out of memory
void denials_free(struct denials *denials);
void denials_add(struct denials *denials, const struct ipc_decision *record);

// One line a destination, with its count and what would allow it. policy_file: what allows it is written as entries of this
// native policy; NULL: as options. True if there was any option among them.
bool denials_print(const struct denials *denials, const char *policy_file, FILE *out);
