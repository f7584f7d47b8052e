// SPDX-License-Identifier: Apache-2.0
#include "sandbox/exposure.h"

#include <errno.h>
#include <limits.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "sandbox/home.h"
#include "sandbox/place.h"
#include "sandbox/protect.h"

int exposure_add(struct exposure *exposure, const char *source, const char *target, bool writable,
                 const char *owned_as) {
    struct stat st;
    if (exposure->count == exposure->size) {
        size_t size = exposure->size ? 2 * exposure->size : 16;
        struct exposure_item *items = realloc(exposure->items, size * sizeof(*items));
        if (!items) return -ENOMEM;
        exposure->items = items;
        exposure->size = size;
    }
    struct exposure_item item = {.source = strdup(source), .target = strdup(target), .writable = writable};
    item.folder = stat(source, &st) == 0 && S_ISDIR(st.st_mode);
    if (!item.source || !item.target) {
        free(item.source);
        free(item.target);
        return -ENOMEM;
    }
    item.owned_as = owned_as ? owned_as : item.source;
    exposure->items[exposure->count++] = item;
    return 0;
}

// A path that leads through symbolic links is shown at its real place and, if its parent would be missing inside, at
// the given one as well, so that both names work.
static int add_shared(struct exposure *exposure, const char *option, const char *path, const char *cwd, bool writable,
                      struct error *err) {
    AUTO_FREE char *real = path[0] ? realpath(path, NULL) : NULL;
    if (!real)
        return error_set(err, -EINVAL, "%s \"%s\" does not exist or cannot be read: %s; name an existing file or folder",
                         option, path, path[0] ? strerror(errno) : "empty path");
    int r = place_check_shared(option, real, err);
    if (r < 0) return r;
    if (exposure_add(exposure, real, real, writable, NULL) < 0) return -ENOMEM;
    char given[PATH_MAX];
    if (!place_normalise(path, cwd, given) || strcmp(given, real) == 0) return 0;
    AUTO_FREE char *again = realpath(given, NULL); // ".." behind a link means another folder than it reads
    if (!again || strcmp(again, real) != 0) return 0;
    char *slash = strrchr(given, '/');
    AUTO_FREE char *parent = strndup(given, slash == given ? 1 : (size_t)(slash - given));
    if (!parent) return -ENOMEM;
    AUTO_FREE char *real_parent = realpath(parent, NULL);
    if (!real_parent || strcmp(real_parent, parent) != 0 || exposure_shows(exposure, parent)) return 0;
    return exposure_add(exposure, real, given, writable, NULL);
}

static size_t path_depth(const char *path) {
    size_t depth = 0;
    for (; *path; path++) depth += *path == '/';
    return depth;
}

// Insertion sort: stable, so that among equals --read follows the working directory and --write follows --read.
static void sort_by_depth(struct exposure *exposure) {
    for (size_t i = 1; i < exposure->count; i++) {
        struct exposure_item item = exposure->items[i];
        size_t at = i, depth = path_depth(item.target);
        for (; at > 0 && path_depth(exposure->items[at - 1].target) > depth; at--)
            exposure->items[at] = exposure->items[at - 1];
        exposure->items[at] = item;
    }
}

static int collect(struct exposure *exposure, const struct sandbox_spec *spec, struct error *err) {
    struct home_list homes;
    home_list_init(&homes, spec->cwd);
    int r = place_check_cwd(spec->cwd, &homes, err);
    home_list_done(&homes);
    if (r < 0) return r;
    if (spec->read_count > EXPOSURE_ITEMS_MAX || spec->write_count > EXPOSURE_ITEMS_MAX)
        return error_set(err, -EINVAL, "more than %d --read or --write paths; name a folder that holds them",
                         EXPOSURE_ITEMS_MAX);
    r = exposure_add(exposure, spec->cwd, spec->cwd, true, NULL);
    for (size_t i = 0; r >= 0 && i < spec->read_count; i++)
        r = add_shared(exposure, "--read", spec->reads[i], spec->cwd, false, err);
    for (size_t i = 0; r >= 0 && i < spec->write_count; i++)
        r = add_shared(exposure, "--write", spec->writes[i], spec->cwd, true, err);
    return r;
}

int exposure_init(struct exposure *exposure, const struct sandbox_spec *spec, struct error *err) {
    *exposure = (struct exposure){.home = home_of_environment(), .from_root = spec->identity.from_root};
    int r = collect(exposure, spec, err);
    if (r == 0) {
        sort_by_depth(exposure);
        r = protect_add(exposure, spec, err);
        sort_by_depth(exposure);
    }
    if (r == -ENOMEM) error_set(err, r, "out of memory");
    if (r < 0) exposure_done(exposure);
    return r;
}

void exposure_done(struct exposure *exposure) {
    for (size_t i = 0; i < exposure->count; i++) {
        free(exposure->items[i].source);
        free(exposure->items[i].target);
    }
    free(exposure->items);
    free(exposure->home);
    *exposure = (struct exposure){0};
}

size_t exposure_top(const struct exposure *exposure, size_t count, const char *target) {
    for (size_t i = count; i-- > 0;)
        if (place_within(target, exposure->items[i].target)) return i;
    return SIZE_MAX;
}

bool exposure_shows(const struct exposure *exposure, const char *path) {
    for (size_t i = 0; i < exposure->count; i++)
        if (place_within(path, exposure->items[i].target)) return true;
    if (exposure->home && place_within(path, exposure->home)) return false;
    return place_in_system(path);
}

bool exposure_writable(const struct exposure *exposure, const char *path) {
    size_t top = exposure_top(exposure, exposure->count, path);
    return (top != SIZE_MAX && exposure->items[top].writable) || strcmp(path, "/tmp") == 0 || strcmp(path, "/tmp/") == 0;
}
