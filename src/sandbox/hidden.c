// SPDX-License-Identifier: Apache-2.0
// Files and folders are known by device and inode, and looked for in the walk that finds sockets (unix_mask.c): so a
// hard link or a link to them hides as little as --read of a folder above. A folder gets an empty one over it, a file
// /dev/null.
//
// What a mount shows at a second place is refused (alias.c), since it need not have these inodes.
//
// A file: secret is not hidden but refused: who rotates it renames another file over it, and that takes a mount away; and
// whoever may write its folder could make a link to any file of the user there.
//
// What it does not do: files that a cmd: secret reads are not known here.
#include "sandbox/hidden.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "sandbox/home.h"
#include "sandbox/place.h"
#include "sandbox/protect.h"
#include "sandbox/reach.h"

#define HIDDEN_DEPTH 4

// ---- the list ----

static int by_inode(const void *a, const void *b) {
    const struct hidden_file *one = a, *two = b;
    if (one->inode != two->inode) return one->inode < two->inode ? -1 : 1;
    return (one->device > two->device) - (one->device < two->device);
}

static int add_file(struct hidden *hidden, const struct stat *st) {
    if (hidden->count == HIDDEN_MAX) return -E2BIG;
    if (hidden->count == hidden->size) {
        size_t size = hidden->size ? 2 * hidden->size : 32;
        struct hidden_file *files = realloc(hidden->files, size * sizeof(*files));
        if (!files) return -ENOMEM;
        hidden->files = files;
        hidden->size = size;
    }
    hidden->files[hidden->count++] = (struct hidden_file){st->st_dev, st->st_ino};
    return 0;
}

static size_t first_of(const struct hidden *hidden, ino_t inode) {
    size_t low = 0, high = hidden->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (hidden->files[middle].inode < inode) low = middle + 1;
        else high = middle;
    }
    return low;
}

bool hidden_may_have(const struct hidden *hidden, ino_t inode) {
    size_t at = first_of(hidden, inode);
    return at < hidden->count && hidden->files[at].inode == inode;
}

bool hidden_has(const struct hidden *hidden, dev_t device, ino_t inode) {
    for (size_t i = first_of(hidden, inode); i < hidden->count && hidden->files[i].inode == inode; i++)
        if (hidden->files[i].device == device) return true;
    return false;
}

// With what is in it. What is not there, or out of this user's reach, is out of the sandbox's too.
static int add_tree(struct hidden *hidden, int parent, const char *name, int flags, unsigned depth) {
    struct stat st;
    if (fstatat(parent, name, &st, flags) < 0) return 0;
    int r = add_file(hidden, &st);
    if (r < 0 || !S_ISDIR(st.st_mode) || depth == HIDDEN_DEPTH) return r;
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *folder = fd < 0 ? NULL : fdopendir(fd);
    if (!folder) {
        if (fd >= 0) close(fd);
        return 0;
    }
    for (const struct dirent *entry; r == 0 && (entry = readdir(folder)) != NULL;) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        r = add_tree(hidden, dirfd(folder), entry->d_name, AT_SYMLINK_NOFOLLOW, depth + 1);
    }
    closedir(folder);
    return r;
}

static int add_root(struct hidden *hidden, const char *path) {
    char *real = realpath(path, NULL);
    if (!real) return errno == ENOMEM ? -ENOMEM : 0;
    char **roots = realloc(hidden->roots, (hidden->root_count + 1) * sizeof(*roots));
    if (!roots) {
        free(real);
        return -ENOMEM;
    }
    hidden->roots = roots;
    hidden->roots[hidden->root_count++] = real;
    return add_tree(hidden, AT_FDCWD, real, 0, 0);
}

// ---- the user's items ----

static int check_items(const struct hidden *hidden, const struct exposure *exposure, struct error *err) {
    for (size_t i = 0; i < exposure->count; i++) {
        const struct exposure_item *item = &exposure->items[i];
        struct stat st;
        if (item->kept || stat(item->source, &st) < 0 || !hidden_has(hidden, st.st_dev, st.st_ino)) continue;
        return error_set(err, -EINVAL, "\"%s\" would be shared with the sandbox, but penstock keeps keys, secrets or its log "
                         "there; share another folder", item->target);
    }
    return 0;
}

// ---- file: secrets ----

static int add_folder(struct hidden *hidden, const char *path) {
    struct stat st;
    const char *slash = strrchr(path, '/');
    AUTO_FREE char *folder = slash ? strndup(path, slash == path ? 1 : (size_t)(slash - path)) : NULL;
    if (!folder) return -ENOMEM;
    if (stat(folder, &st) < 0) return 0;
    struct hidden_file *folders = realloc(hidden->folders, (hidden->folder_count + 1) * sizeof(*folders));
    if (!folders) return -ENOMEM;
    hidden->folders = folders;
    hidden->folders[hidden->folder_count++] = (struct hidden_file){st.st_dev, st.st_ino};
    return 0;
}

// What it is now, and where it is looked for, by its name and behind links.
static int add_secret(struct hidden *hidden, const char *path, const char *cwd) {
    char given[PATH_MAX];
    AUTO_FREE char *real = realpath(path, NULL);
    int r = real ? add_tree(hidden, AT_FDCWD, real, 0, 0) : 0;
    if (r == 0 && real) r = add_folder(hidden, real);
    return r == 0 && place_normalise(path, cwd, given) ? add_folder(hidden, given) : r;
}

bool hidden_is_folder_of_secret(const struct hidden *hidden, dev_t device, ino_t inode) {
    for (size_t i = 0; i < hidden->folder_count; i++)
        if (hidden->folders[i].device == device && hidden->folders[i].inode == inode) return true;
    return false;
}

// Whether the command could read it there, as far as a name goes.
static bool seen(const struct sandbox_spec *spec, const struct exposure *exposure, const char *path) {
    struct stat st;
    if (exposure_top(exposure, exposure->count, path) != SIZE_MAX) return true;
    for (size_t i = 0; i < exposure->count; i++)
        if (place_within(path, exposure->items[i].source)) return true;
    if (!exposure_shows(exposure, path)) return false;
    // In the system's folders root's own file is out of reach of a user that owns nothing.
    return !spec->identity.from_root || stat(path, &st) < 0 || (st.st_mode & 077) != 0;
}

static int check_secret(const struct sandbox_spec *spec, const struct exposure *exposure, const char *path,
                        struct error *err) {
    char given[PATH_MAX];
    AUTO_FREE char *real = realpath(path, NULL);
    const char *at = NULL;
    if (!place_normalise(path, spec->cwd, given)) return error_set(err, -EINVAL, "secret file:%s: the path is too long", path);
    if (seen(spec, exposure, given)) at = given;
    else if (real && seen(spec, exposure, real)) at = real;
    if (at)
        return error_set(err, -EINVAL, "secret file:%s: the sandbox would see \"%s\"; move the file out of the folders that it "
                         "is given, or keep the secret with `penstock secret set NAME` and bind store:NAME", path, at);
    if (real) return protect_check_way(exposure, path, spec->cwd, err);
    // Once the sandbox makes one there, it would be a link to another file of the user.
    if (!reach_changes(exposure, path, spec->cwd)) return 0;
    return error_set(err, -EINVAL, "secret file:%s: the sandbox could make that file; name it by its real path, out of the "
                     "folders that the sandbox is given", path);
}

// ---- all ----

static int add_people(struct hidden *hidden, const char *cwd) {
    struct home_list homes;
    int r = 0;
    home_list_init(&homes, cwd);
    for (size_t i = 0; r == 0 && i < homes.count; i++) {
        char path[PATH_MAX];
        if (snprintf(path, sizeof(path), "%s/.local/state/penstock", homes.entries[i].path) < (int)sizeof(path))
            r = add_root(hidden, path);
    }
    home_list_done(&homes);
    return r == 0 ? add_root(hidden, "/var/lib/penstock") : r;
}

int hidden_collect(const struct sandbox_spec *spec, const struct exposure *exposure, struct hidden *hidden,
                   struct error *err) {
    int r = add_people(hidden, spec->cwd);
    for (size_t i = 0; r == 0 && i < spec->hide_count; i++) r = add_root(hidden, spec->hides[i]);
    for (size_t i = 0; r == 0 && i < spec->secret_count; i++) r = add_secret(hidden, spec->secrets[i], spec->cwd);
    if (r < 0) return error_set(err, r, "penstock's own files cannot be hidden from the sandbox: %s", strerror(-r));
    if (hidden->count > 0) qsort(hidden->files, hidden->count, sizeof(*hidden->files), by_inode);
    for (size_t i = 0; r == 0 && i < spec->secret_count; i++) r = check_secret(spec, exposure, spec->secrets[i], err);
    return r < 0 ? r : check_items(hidden, exposure, err);
}

void hidden_done(struct hidden *hidden) {
    for (size_t i = 0; i < hidden->root_count; i++) free(hidden->roots[i]);
    free(hidden->roots);
    free(hidden->folders);
    free(hidden->files);
    *hidden = (struct hidden){0};
}

static int mask_at(struct unix_mask *mask, const char *real, const char *target) {
    struct stat st;
    if (stat(real, &st) < 0) return 0;
    return unix_mask_add(mask, S_ISDIR(st.st_mode) ? UNIX_MASK_FOLDER : UNIX_MASK_FILE, target);
}

int hidden_mask_named(const struct sandbox_spec *spec, const struct exposure *exposure, struct unix_mask *mask) {
    int r = 0;
    for (size_t i = 0; r == 0 && i < spec->hide_count; i++) {
        char target[PATH_MAX];
        AUTO_FREE char *real = realpath(spec->hides[i], NULL);
        if (!real) continue;
        for (size_t k = 0; r == 0 && k < exposure->count; k++) {
            const struct exposure_item *item = &exposure->items[k];
            if (!place_within(real, item->source)) continue;
            int len = snprintf(target, sizeof(target), "%s%s", item->target, real + strlen(item->source));
            if (len < (int)sizeof(target) && exposure_top(exposure, exposure->count, target) == k)
                r = mask_at(mask, real, target);
        }
        if (r == 0 && exposure_top(exposure, exposure->count, real) == SIZE_MAX && place_in_system(real) &&
            exposure_shows(exposure, real))
            r = mask_at(mask, real, real);
    }
    return r;
}
