// SPDX-License-Identifier: Apache-2.0
#include "sandbox/exposure.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "sandbox/place.h"

static int add_item(struct exposure *exposure, const char *source, const char *target, bool writable) {
    struct stat st;
    struct exposure_item item = {.source = strdup(source), .target = strdup(target), .writable = writable};
    item.folder = stat(source, &st) == 0 && S_ISDIR(st.st_mode);
    if (!item.source || !item.target) {
        free(item.source);
        free(item.target);
        return -ENOMEM;
    }
    exposure->items[exposure->count++] = item;
    return 0;
}

// A path that leads through symbolic links is shown at its real place and, if its parent would be missing inside, at
// the given one as well, so that both names work.
static int add_shared(struct exposure *exposure, const char *option, const char *path, const char *cwd, bool writable,
                      struct error *err) {
    AUTO_FREE char *real = path[0] ? realpath(path, NULL) : NULL;
    if (!real)
        return error_set(err, -EINVAL, "%s '%s' does not exist or cannot be read: %s; name an existing file or folder",
                         option, path, path[0] ? strerror(errno) : "empty path");
    int r = place_check_shared(option, real, err);
    if (r < 0) return r;
    if (add_item(exposure, real, real, writable) < 0) return -ENOMEM;
    char given[PATH_MAX];
    if (!place_normalise(path, cwd, given) || strcmp(given, real) == 0) return 0;
    AUTO_FREE char *again = realpath(given, NULL); // ".." behind a link means another folder than it reads
    if (!again || strcmp(again, real) != 0) return 0;
    char *slash = strrchr(given, '/');
    AUTO_FREE char *parent = strndup(given, slash == given ? 1 : (size_t)(slash - given));
    if (!parent) return -ENOMEM;
    AUTO_FREE char *real_parent = realpath(parent, NULL);
    if (!real_parent || strcmp(real_parent, parent) != 0 || exposure_shows(exposure, parent)) return 0;
    return add_item(exposure, real, given, writable);
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
    int r = place_check_cwd(spec->cwd, exposure->home, err);
    if (r < 0) return r;
    if (spec->read_count > EXPOSURE_ITEMS_MAX || spec->write_count > EXPOSURE_ITEMS_MAX)
        return error_set(err, -EINVAL, "more than %d --read or --write paths; name a folder that holds them",
                         EXPOSURE_ITEMS_MAX);
    exposure->items = NEW_ARRAY(struct exposure_item, 1 + 2 * (spec->read_count + spec->write_count));
    if (!exposure->items) return -ENOMEM;
    r = add_item(exposure, spec->cwd, spec->cwd, true);
    for (size_t i = 0; r >= 0 && i < spec->read_count; i++)
        r = add_shared(exposure, "--read", spec->reads[i], spec->cwd, false, err);
    for (size_t i = 0; r >= 0 && i < spec->write_count; i++)
        r = add_shared(exposure, "--write", spec->writes[i], spec->cwd, true, err);
    return r;
}

int exposure_init(struct exposure *exposure, const struct sandbox_spec *spec, struct error *err) {
    *exposure = (struct exposure){.home = place_home()};
    int r = collect(exposure, spec, err);
    if (r == -ENOMEM) error_set(err, r, "out of memory");
    if (r < 0)
        exposure_done(exposure);
    else
        sort_by_depth(exposure);
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

bool exposure_shows(const struct exposure *exposure, const char *path) {
    for (size_t i = 0; i < exposure->count; i++)
        if (place_within(path, exposure->items[i].target)) return true;
    if (exposure->home && place_within(path, exposure->home)) return false;
    return place_in_system(path);
}

bool exposure_writable(const struct exposure *exposure, const char *path) {
    bool writable = false; // the last item that holds the path decides, as the last mount does
    for (size_t i = 0; i < exposure->count; i++)
        if (place_within(path, exposure->items[i].target)) writable = exposure->items[i].writable;
    return writable || strcmp(path, "/tmp") == 0 || strcmp(path, "/tmp/") == 0;
}
