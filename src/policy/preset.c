// SPDX-License-Identifier: Apache-2.0
#include "policy/preset.h"

#include <errno.h>

#include "base/mem.h"

#define PRESET(name, summary, ...) {name, summary, {__VA_ARGS__, NULL}},
static const struct policy_preset preset_table[] = {
#include "policy/presets.def"
};
#undef PRESET

const struct policy_preset *policy_presets(size_t *ret_count) {
    *ret_count = ARRAY_LENGTH(preset_table);
    return preset_table;
}

int policy_preset_find(const char *name, const struct policy_preset **ret_preset, struct error *err) {
    char names[512];
    size_t used = 0;
    const char *bare = name[0] == '@' ? name + 1 : name;
    for (size_t i = 0; i < ARRAY_LENGTH(preset_table); i++) {
        if (strcmp(preset_table[i].name, bare) == 0) {
            *ret_preset = &preset_table[i];
            return 0;
        }
        if (used < sizeof(names))
            used += (size_t)snprintf(names + used, sizeof(names) - used, "%s@%s", i ? ", " : "", preset_table[i].name);
    }
    return error_set(err, -EINVAL, "\"%.200s\" is not a preset; write one of %s, or list the hosts themselves", name,
                     names);
}

const struct policy_preset *policy_preset_of(const char *host) {
    for (size_t i = 0; i < ARRAY_LENGTH(preset_table); i++)
        for (size_t j = 0; preset_table[i].hosts[j]; j++)
            if (strcmp(preset_table[i].hosts[j], host) == 0) return &preset_table[i];
    return NULL;
}
