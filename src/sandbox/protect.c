// SPDX-License-Identifier: Apache-2.0
// A protected file is bound read-only over itself: it cannot be opened for writing, and what is a mount point can
// neither be renamed nor removed. The folders on the way to it, as far as the sandbox could rename them, are bound over
// themselves too (writable); else `mv conf old; mkdir conf` would put another file in its place. These mounts hold
// because the command cannot make a mount namespace without them (seccomp_filter.c). The price: rename across the edge
// of such a folder fails with EXDEV, and mv copies.
//
// Refused is what no mount can keep: a name that leads through a symbolic link in a writable folder (the link would be
// replaced), and a file with further names (hard links), which may be in a writable folder as well, wherever this one is
// (but for one that this user, and so the sandbox, may not write at all). A standard stream
// that is such a file is refused because /proc/self/fd/0 opens it anew, past every mount.
#include "sandbox/protect.h"

#include <errno.h>
#include <limits.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sandbox/place.h"

#define LINKS_MAX 40

// Where the item shows the file of this real path, if nothing is mounted over it there.
static bool shown_at(const struct exposure *exposure, size_t count, size_t index, const char *real,
                     char ret_target[PATH_MAX]) {
    const struct exposure_item *item = &exposure->items[index];
    if (!place_within(real, item->source)) return false;
    int len = snprintf(ret_target, PATH_MAX, "%s%s", item->target, real + strlen(item->source));
    return len < PATH_MAX && exposure_top(exposure, count, ret_target) == index;
}

// As far as the first `base` items go, which are all that the user named.
static bool writable_somewhere(const struct exposure *exposure, size_t base, const char *real) {
    char target[PATH_MAX];
    for (size_t i = 0; i < base; i++)
        if (exposure->items[i].writable && shown_at(exposure, base, i, real, target)) return true;
    return false;
}

// ---- what a name leads to ----

struct way {
    char done[PATH_MAX]; // without links
    char rest[PATH_MAX]; // still to go
};

static void way_pop(struct way *way) {
    char *slash = strrchr(way->done, '/');
    if (slash) *slash = '\0';
}

// What the link says goes before the rest.
static int way_follow(struct way *way, const char *link) {
    char rest[PATH_MAX];
    if (snprintf(rest, sizeof(rest), "%s/%s", link, way->rest) >= (int)sizeof(rest)) return -ENAMETOOLONG;
    memcpy(way->rest, rest, strlen(rest) + 1);
    if (link[0] == '/') way->done[0] = '\0';
    return 0;
}

// Takes one name from the rest. 1: it was a link (*ret_link, a copy of its path); 0; -errno.
static int way_step(struct way *way, char ret_link[PATH_MAX]) {
    char name[NAME_MAX + 1], link[PATH_MAX];
    size_t skip = strspn(way->rest, "/"), len = strcspn(way->rest + skip, "/");
    if (len >= sizeof(name)) return -ENAMETOOLONG;
    memcpy(name, way->rest + skip, len);
    name[len] = '\0';
    memmove(way->rest, way->rest + skip + len, strlen(way->rest + skip + len) + 1);
    if (!name[0] || strcmp(name, ".") == 0) return 0;
    if (strcmp(name, "..") == 0) {
        way_pop(way);
        return 0;
    }
    size_t used = strlen(way->done);
    if (snprintf(way->done + used, PATH_MAX - used, "/%s", name) >= (int)(PATH_MAX - used)) return -ENAMETOOLONG;
    ssize_t n = readlink(way->done, link, sizeof(link) - 1);
    if (n < 0) return errno == EINVAL ? 0 : -errno;
    link[n] = '\0';
    memcpy(ret_link, way->done, strlen(way->done) + 1);
    way_pop(way);
    int r = way_follow(way, link);
    return r < 0 ? r : 1;
}

int protect_follow(const char *path, const char *cwd, int link_found(void *data, const char *link), void *data,
                   char ret_real[PATH_MAX]) {
    struct way way = {.done = ""};
    char link[PATH_MAX];
    int links = 0, r = 0;
    if (snprintf(way.rest, sizeof(way.rest), "%s/%s", path[0] == '/' ? "" : cwd, path) >= (int)sizeof(way.rest)) r = -ENAMETOOLONG;
    while (r == 0 && way.rest[0]) {
        r = way_step(&way, link);
        if (r != 1) continue;
        r = link_found ? link_found(data, link) : 0;
        if (r == 0 && ++links > LINKS_MAX) r = -ELOOP;
    }
    if (r == 0) snprintf(ret_real, PATH_MAX, "%s", way.done[0] ? way.done : "/");
    return r;
}

struct resolution {
    const struct exposure *exposure;
    size_t base;
    const char *path;
    struct error *err;
};

static int refuse_link(void *data, const char *link) {
    const struct resolution *resolution = data;
    if (!writable_somewhere(resolution->exposure, resolution->base, link)) return 0;
    error_set(resolution->err, -EINVAL,
              "\"%s\" leads through the symbolic link \"%s\", which the sandbox could replace; name the file itself, or keep "
              "it outside of what the sandbox may write",
              resolution->path, link);
    return 1;
}

static int resolve(const struct exposure *exposure, size_t base, const char *path, const char *cwd,
                   char ret_real[PATH_MAX], struct error *err) {
    struct resolution resolution = {exposure, base, path, err};
    int r = protect_follow(path, cwd, refuse_link, &resolution, ret_real);
    if (r == 1) return -EINVAL;
    if (r < 0)
        return error_set(err, -EINVAL, "\"%s\" cannot be protected from the sandbox: %s; name an existing file", path,
                         strerror(-r));
    return 0;
}

int protect_check_way(const struct exposure *exposure, const char *path, const char *cwd, struct error *err) {
    char real[PATH_MAX];
    return resolve(exposure, exposure->count, path, cwd, real, err);
}

// ---- the mounts ----

static int add_once(struct exposure *exposure, size_t base, const struct exposure_item *from, const char *target,
                    bool writable) {
    char source[PATH_MAX];
    for (size_t i = base; i < exposure->count; i++) {
        if (strcmp(exposure->items[i].target, target) != 0) continue;
        exposure->items[i].writable &= writable;
        return 0;
    }
    if (exposure->count - base == PROTECT_ADDS) return -E2BIG;
    if (snprintf(source, sizeof(source), "%s%s", from->source, target + strlen(from->target)) >= (int)sizeof(source))
        return -ENAMETOOLONG;
    int r = exposure_add(exposure, source, target, writable, from->owned_as);
    if (r == 0) exposure->items[exposure->count - 1].kept = true;
    return r;
}

// The folders above target that could be renamed: below the root of a writable item.
static int add_parents(struct exposure *exposure, size_t base, const char *target) {
    char folder[PATH_MAX];
    snprintf(folder, sizeof(folder), "%s", target);
    for (char *slash = strrchr(folder, '/'); slash && slash > folder; slash = strrchr(folder, '/')) {
        *slash = '\0';
        size_t top = exposure_top(exposure, base, folder);
        if (top == SIZE_MAX) return 0;
        struct exposure_item item = exposure->items[top]; // a copy: adding may move the array
        if (!item.writable || strcmp(item.target, folder) == 0) continue;
        int r = add_once(exposure, base, &item, folder, true);
        if (r < 0) return r;
    }
    return 0;
}

static int add_protected(struct exposure *exposure, size_t base, const char *real) {
    char target[PATH_MAX];
    for (size_t i = 0; i < base; i++) {
        struct exposure_item item = exposure->items[i];
        if (!item.writable || !shown_at(exposure, base, i, real, target)) continue;
        int r = add_parents(exposure, base, target);
        if (r == 0) r = add_once(exposure, base, &item, target, false);
        if (r < 0) return r;
    }
    return 0;
}

// What is in a protected folder is protected with it.
static void settle(struct exposure *exposure, size_t base) {
    for (size_t i = base; i < exposure->count; i++)
        for (size_t k = base; k < exposure->count; k++)
            if (!exposure->items[k].writable && place_within(exposure->items[i].target, exposure->items[k].target))
                exposure->items[i].writable = false;
}

// ---- checks ----

static int check_streams(const char *path, const struct stat *file, struct error *err) {
    static const char *const names[] = {"standard input", "standard output", "standard error"};
    struct stat st;
    for (int fd = 0; fd < 3; fd++)
        if (fstat(fd, &st) == 0 && st.st_dev == file->st_dev && st.st_ino == file->st_ino)
            return error_set(err, -EINVAL,
                             "%s is \"%s\" itself, which the sandbox could open again and change; use another file, or a "
                             "pipe (cat FILE | penstock ...)",
                             names[fd], path);
    return 0;
}

// Whether the sandbox could write the file if it had a name for it. Started by root it may be whoever owns its folders.
static bool could_write(const char *real, const struct stat *file) {
    return geteuid() == 0 || file->st_uid == geteuid() || euidaccess(real, W_OK) == 0;
}

static int protect_one(struct exposure *exposure, size_t base, const char *path, const char *cwd, struct error *err) {
    char real[PATH_MAX];
    struct stat st;
    // A pipe or terminal has no content to keep; /dev/fd/63 and /dev/stderr lead to some that have not even a path.
    if (snprintf(real, sizeof(real), "%s/%s", path[0] == '/' ? "" : cwd, path) < PATH_MAX && stat(real, &st) == 0 &&
        !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
        return 0;
    int r = resolve(exposure, base, path, cwd, real, err);
    if (r < 0) return r;
    if (stat(real, &st) < 0)
        return error_set(err, -EINVAL, "\"%s\" cannot be protected from the sandbox: %s", path, strerror(errno));
    r = check_streams(path, &st, err);
    if (r < 0) return r;
    bool shared = writable_somewhere(exposure, base, real);
    if (S_ISREG(st.st_mode) && st.st_nlink > 1 && (shared || could_write(real, &st)))
        return error_set(err, -EINVAL,
                         "\"%s\" has %lu names (hard links), and the sandbox could change it by another one; give it a copy of "
                         "its own%s", path, (unsigned long)st.st_nlink,
                         shared ? ", outside of what the sandbox may write" : " (cp FILE NEW && mv NEW FILE)");
    if (!shared) return 0;
    r = add_protected(exposure, base, real);
    if (r == -E2BIG || r == -ENAMETOOLONG)
        return error_set(err, -EINVAL,
                         "\"%s\" lies too deep to be protected from the sandbox; keep it outside of what the sandbox may write",
                         path);
    return r;
}

int protect_add(struct exposure *exposure, const struct sandbox_spec *spec, struct error *err) {
    size_t base = exposure->count;
    if (spec->protect_count > PROTECTS_MAX)
        return error_set(err, -EINVAL, "more than %d files to be protected from the sandbox", PROTECTS_MAX);
    int rc = spec->outcome ? protect_check_way(exposure, spec->outcome, spec->cwd, err) : 0;
    if (rc < 0) return rc;
    for (size_t i = 0; i < spec->protect_count; i++) {
        int r = protect_one(exposure, base, spec->protects[i], spec->cwd, err);
        if (r < 0) return r;
    }
    settle(exposure, base);
    exposure->protects = exposure->count > base;
    return 0;
}
