// SPDX-License-Identifier: Apache-2.0
// Presets: named lists of hosts that people need together ("@python"). The lists are data (presets.def); a preset opens
// HTTPS on 443 to each of its hosts, nothing else.
#pragma once

#include <stddef.h>

#include "base/error.h"

#define POLICY_PRESET_HOSTS 24 // at most, of one preset

struct policy_preset {
    const char *name;    // "python", without the '@'
    const char *summary; // one line
    const char *hosts[POLICY_PRESET_HOSTS + 1]; // "pypi.org" or "*.example.com"; NULL after the last
};

// All of them, sorted by name.
const struct policy_preset *policy_presets(size_t *ret_count);
// name with or without its '@'. 0, or -EINVAL with a message that quotes it and lists the names.
int policy_preset_find(const char *name, const struct policy_preset **ret_preset, struct error *err);
// The first preset that lists exactly this host, or NULL.
const struct policy_preset *policy_preset_of(const char *host);
