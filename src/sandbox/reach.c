// SPDX-License-Identifier: Apache-2.0
// A path that is not there yet is as safe as the last folder of it that is; one that ends in a link to nothing is not.
//
// What it does not do: know another mount of a folder that is below a writable one (the folder itself it knows).
#include "sandbox/reach.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "sandbox/place.h"
#include "sandbox/protect.h"

struct sandbox_reach {
    struct exposure exposure;
    char cwd[PATH_MAX];
};

// Below a writable item, by name or, where that is mounted a second time, as a folder on the way.
static bool in_writable(const struct exposure *exposure, const char *real) {
    char folder[PATH_MAX];
    struct stat here, shared;
    for (size_t i = 0; i < exposure->count; i++) {
        const struct exposure_item *item = &exposure->items[i];
        if (!item->writable) continue;
        if (place_within(real, item->source)) return true;
        if (stat(item->source, &shared) < 0) return true;
        snprintf(folder, sizeof(folder), "%s", real);
        for (char *slash = folder + strlen(folder); slash && slash > folder; slash = strrchr(folder, '/')) {
            *slash = '\0';
            if (stat(folder, &here) == 0 && here.st_dev == shared.st_dev && here.st_ino == shared.st_ino) return true;
        }
    }
    return false;
}

bool reach_changes(const struct exposure *exposure, const char *path, const char *cwd) {
    char at[PATH_MAX];
    struct error ignored;
    struct stat st;
    AUTO_FREE char *real = NULL;
    if (snprintf(at, sizeof(at), "%s%s%s", path[0] == '/' ? "" : cwd, path[0] == '/' ? "" : "/", path) >= (int)sizeof(at))
        return true;
    while (!(real = realpath(at, NULL))) {
        char *slash = strrchr(at, '/');
        if ((lstat(at, &st) == 0 && S_ISLNK(st.st_mode)) || !slash) return true;
        slash[slash == at && at[1] ? 1 : 0] = '\0';
    }
    return in_writable(exposure, real) || protect_check_way(exposure, at, cwd, &ignored) < 0;
}

// ---- for other rooms ----

int sandbox_reach_new(const struct sandbox_spec *spec, struct sandbox_reach **ret_reach, struct error *err) {
    struct sandbox_reach *reach = NEW(struct sandbox_reach);
    if (!reach || (spec && snprintf(reach->cwd, sizeof(reach->cwd), "%s", spec->cwd) >= (int)sizeof(reach->cwd))) {
        free(reach);
        return error_set(err, -ENOMEM, "out of memory");
    }
    int r = spec ? exposure_init(&reach->exposure, spec, err) : 0;
    if (r < 0) free(reach);
    else *ret_reach = reach;
    return r;
}

bool sandbox_reach_has(const struct sandbox_reach *reach, const char *path) {
    return reach->exposure.count > 0 && reach_changes(&reach->exposure, path, reach->cwd);
}

void sandbox_reach_free(struct sandbox_reach *reach) {
    if (reach) exposure_done(&reach->exposure);
    free(reach);
}
