// SPDX-License-Identifier: Apache-2.0
// A bind mount shows a file or folder at a second place, where no look at names finds it; over a file its folder even tells
// the inode of the file below the mount. An overlay shows its layers with inodes of its own. Both are the operator's doing (a
// sandbox cannot mount), so the start is refused.
//
// What there is to keep (guards) and what a share shows (views) are both known by file system and path in it, as mountinfo
// tells: a view is each mount point in a shared or system folder, and the part of a mount that such a folder is itself. An
// overlay's path is that path in each of its layers as well. A guard below a view, or a view below a guard, is another name
// of it, unless it is the guard's own, which hidden.c and protect.c answer for, or nothing is there (another mount over it, a
// whiteout). This goes by names of what may not even be there yet: a rotated secret's new file is found like its old one.
//
// What it does not do: file systems of FUSE, or of a network mounted twice, that show the same files under another device;
// layers that are named relative to a folder or in another mount namespace, as those of a container's own root.
#include "sandbox/alias.h"

#include <errno.h>
#include <limits.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "sandbox/place.h"
#include "sandbox/protect.h"

#define OVERLAYS_MAX 2 // on each other, as the kernel has it

struct spot { // a path in a file system
    const char *device;
    char *path;
};

struct spots {
    struct spot *entries;
    size_t count, size;
};

struct guard {
    char *path;  // real
    bool secret; // not to be seen; else not to be changed
    struct spots spots;
};

struct alias {
    const struct sandbox_spec *spec;
    const struct exposure *exposure;
    const struct hidden *hidden;
    struct mountinfo *mounts;
    struct guard *guards;
    size_t guard_count, guard_size;
    struct error *err;
};

// What is shown of a mount, and by which share.
struct view {
    struct mountinfo_entry *mount;
    const char *at; // on the host
    size_t item;    // SIZE_MAX: a system folder
};

// ---- places in file systems ----

static int add_spot(struct spots *spots, const char *device, const char *path) {
    if (spots->count == spots->size) {
        size_t size = spots->size ? 2 * spots->size : 4;
        struct spot *entries = realloc(spots->entries, size * sizeof(*entries));
        if (!entries) return -ENOMEM;
        spots->entries = entries;
        spots->size = size;
    }
    char *copy = strdup(path);
    if (!copy) return -ENOMEM;
    spots->entries[spots->count++] = (struct spot){device, copy};
    return 0;
}

static void spots_done(struct spots *spots) {
    for (size_t i = 0; i < spots->count; i++) free(spots->entries[i].path);
    free(spots->entries);
}

// path is in the file system of the mount.
static int descend(struct mountinfo *mounts, struct spots *spots, struct mountinfo_entry *mount, const char *path,
                   unsigned depth) {
    int r = add_spot(spots, mount->device, path);
    if (r == 0) r = mountinfo_layers(mounts, mount);
    for (size_t i = 0; r == 0 && depth < OVERLAYS_MAX && i < mount->layer_count; i++) {
        AUTO_FREE char *below = mountinfo_join(mount->layers[i].path, path);
        r = below ? descend(mounts, spots, mount->layers[i].mount, below, depth + 1) : -ENOMEM;
    }
    return r;
}

static const char *rest_of(const char *path, const char *folder) { return path + (folder[1] ? strlen(folder) : 0); }

static int find_spots(struct mountinfo *mounts, struct spots *spots, struct mountinfo_entry *mount, const char *real) {
    AUTO_FREE char *path = mountinfo_join(mount->root, rest_of(real, mount->point));
    return path ? descend(mounts, spots, mount, path, 0) : -ENOMEM;
}

// ---- what there is to keep ----

static int add_guard(struct alias *alias, const char *real, bool secret) {
    struct mountinfo_entry *mount = mountinfo_of(alias->mounts, real);
    if (!mount) return 0;
    if (alias->guard_count == alias->guard_size) {
        size_t size = alias->guard_size ? 2 * alias->guard_size : 16;
        struct guard *guards = realloc(alias->guards, size * sizeof(*guards));
        if (!guards) return -ENOMEM;
        alias->guards = guards;
        alias->guard_size = size;
    }
    struct guard *guard = &alias->guards[alias->guard_count];
    *guard = (struct guard){.path = strdup(real), .secret = secret};
    if (!guard->path) return -ENOMEM;
    alias->guard_count++;
    return find_spots(alias->mounts, &guard->spots, mount, real);
}

static int add_link(void *data, const char *link) { return add_guard(data, link, false); }

// A link that the sandbox could replace is as good as the file. What does not exist, or is none of ours (a pipe), others say.
static int add_path(struct alias *alias, const char *path, bool secret) {
    char real[PATH_MAX];
    struct stat st;
    int r = protect_follow(path, alias->spec->cwd, NULL, NULL, real);
    if (r < 0 || lstat(real, &st) < 0 || (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))) return 0;
    r = protect_follow(path, alias->spec->cwd, add_link, alias, real);
    return r == 0 ? add_guard(alias, real, secret) : r;
}

static int add_guards(struct alias *alias) {
    const struct sandbox_spec *spec = alias->spec;
    int r = 0;
    for (size_t i = 0; r == 0 && i < alias->hidden->root_count; i++) r = add_guard(alias, alias->hidden->roots[i], true);
    for (size_t i = 0; r == 0 && i < spec->secret_count; i++) r = add_path(alias, spec->secrets[i], true);
    for (size_t i = 0; r == 0 && i < spec->protect_count; i++) r = add_path(alias, spec->protects[i], false);
    return r;
}

// ---- what is shown ----

// Whether the host's path is the sandbox's to see (or, for what is not secret, to change) by this view.
static bool shows(const struct alias *alias, const struct view *view, const char *path, bool secret) {
    const struct exposure *exposure = alias->exposure;
    struct stat st;
    if (lstat(path, &st) < 0 && (errno == ENOENT || errno == ENOTDIR)) return false;
    if (!mountinfo_is_on(view->mount, path)) return false;
    if (view->item == SIZE_MAX)
        return secret && exposure_top(exposure, exposure->count, path) == SIZE_MAX && exposure_shows(exposure, path);
    const struct exposure_item *item = &exposure->items[view->item];
    if (!secret && !item->writable) return false;
    AUTO_FREE char *target = mountinfo_join(item->target, rest_of(path, item->source));
    size_t top = target ? exposure_top(exposure, exposure->count, target) : view->item;
    // Those of protect.c lie in an item of the user's and show the same.
    return top == view->item || (top != SIZE_MAX && exposure->items[top].kept && (secret || exposure->items[top].writable));
}

static int refuse(const struct alias *alias, const struct view *view, const struct guard *guard, const char *path) {
    return error_set(alias->err, -EINVAL,
                     "the mount on \"%s\" would let the sandbox %s \"%s\" as \"%s\"; unmount it, or share folders that do not "
                     "have it",
                     view->mount->point, guard->secret ? "see" : "change", guard->path, path);
}

// What lies in a guard by its own name needs no other look.
static bool is_own(const struct alias *alias, const char *path, bool secret) {
    for (size_t i = 0; i < alias->guard_count; i++)
        if ((alias->guards[i].secret || !secret) && place_within(path, alias->guards[i].path)) return true;
    return false;
}

static int compare(const struct alias *alias, const struct view *view, const struct spot *seen, const struct guard *guard,
                   const struct spot *kept) {
    if (strcmp(seen->device, kept->device) != 0) return 0;
    bool above = place_within(kept->path, seen->path);
    if (!above && !place_within(seen->path, kept->path)) return 0;
    AUTO_FREE char *path = mountinfo_join(view->at, above ? rest_of(kept->path, seen->path) : "");
    if (!path) return -ENOMEM;
    return is_own(alias, path, guard->secret) || !shows(alias, view, path, guard->secret) ? 0 : refuse(alias, view, guard, path);
}

static int check_spots(const struct alias *alias, const struct view *view, const struct spots *spots) {
    int r = 0;
    for (size_t g = 0; r == 0 && g < alias->guard_count; g++) {
        const struct guard *guard = &alias->guards[g];
        for (size_t i = 0; r == 0 && i < spots->count; i++)
            for (size_t k = 0; r == 0 && k < guard->spots.count; k++)
                r = compare(alias, view, &spots->entries[i], guard, &guard->spots.entries[k]);
    }
    return r;
}

static int check_view(const struct alias *alias, const struct view *view) {
    struct spots spots = {0};
    int r = find_spots(alias->mounts, &spots, view->mount, view->at);
    if (r == 0) r = check_spots(alias, view, &spots);
    spots_done(&spots);
    return r;
}

// By another of a file's names (hard links); and an overlay of which nobody knows what it shows.
static int check_point(const struct alias *alias, const struct view *view) {
    const char *point = view->at;
    struct stat st;
    if (is_own(alias, point, true) || !shows(alias, view, point, true)) return 0;
    if (stat(point, &st) == 0 && hidden_has(alias->hidden, st.st_dev, st.st_ino))
        return error_set(alias->err, -EINVAL,
                         "the mount on \"%s\" would let the sandbox see keys, secrets or the log of penstock; unmount it, or "
                         "share folders that do not have it",
                         point);
    if (view->item != SIZE_MAX && view->mount->relative)
        return error_set(alias->err, -EINVAL,
                         "the overlay on \"%s\" has layers named relative to an unknown folder, so that it could show keys or "
                         "secrets to the sandbox; mount it with absolute names, unmount it, or share folders that do not have it",
                         point);
    return 0;
}

static int check_share(const struct alias *alias, const char *source, size_t item) {
    struct view view = {.mount = mountinfo_of(alias->mounts, source), .at = source, .item = item};
    int r = view.mount ? check_view(alias, &view) : 0;
    for (size_t i = 0; r == 0 && i < alias->mounts->count; i++) {
        view.mount = &alias->mounts->entries[i];
        view.at = view.mount->point;
        if (strcmp(view.at, source) == 0 || !place_within(view.at, source) || !mountinfo_is_on(view.mount, view.at)) continue;
        r = check_view(alias, &view);
        if (r == 0) r = check_point(alias, &view);
    }
    return r;
}

static int check_shares(const struct alias *alias) {
    const struct place_system *systems;
    size_t count = place_systems(&systems);
    int r = 0;
    for (size_t i = 0; r == 0 && i < alias->exposure->count; i++)
        if (!alias->exposure->items[i].kept) r = check_share(alias, alias->exposure->items[i].source, i);
    for (size_t i = 0; r == 0 && i < count; i++) r = check_share(alias, systems[i].path, SIZE_MAX);
    return r;
}

int alias_check(const struct sandbox_spec *spec, const struct exposure *exposure, const struct hidden *hidden,
                struct mountinfo *mounts, struct error *err) {
    struct alias alias = {.spec = spec, .exposure = exposure, .hidden = hidden, .mounts = mounts, .err = err};
    int r = add_guards(&alias);
    if (r == 0 && alias.guard_count > 0) r = check_shares(&alias);
    for (size_t i = 0; i < alias.guard_count; i++) {
        free(alias.guards[i].path);
        spots_done(&alias.guards[i].spots);
    }
    free(alias.guards);
    return r == -ENOMEM ? error_set(err, r, "out of memory") : r;
}
