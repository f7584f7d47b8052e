// SPDX-License-Identifier: Apache-2.0
// A path socket is found by its inode, whatever network namespace and whatever (read-only) mount the caller is in. So
// each one that is visible is hidden by a mount over it. Three sources, none of which is enough alone:
//
// 1. A walk of what the user shares (working directory, --read, --write). It decides: every name is seen, by the type
// that
//    getdents gives, so a folder costs one open and a file nothing. Past its limits the start is refused.
//    A folder that we cannot search ourselves could be opened up by the command, which is the same user: it is hidden
//    whole.
// 2. The kernel's list of bound sockets, /proc/net/unix, for the system folders, which are too large to walk at each
// start
//    (/etc alone would take as long as all else). It names a socket as it was bound: if one was by a relative path,
//    /etc and /opt are walked after all. It has no sockets of other network namespaces, such as a container's in a
//    mounted /opt.
// 3. /proc/self/mountinfo: a procfs of the host inside a shared folder (a chroot) leads by /proc/PID/root to
// everything; and a socket may be mounted over a file.
//
// A command that root started is the owner of root's files. Writing takes the set-user-ID bit and the capabilities off
// a file, but writing through a shared mapping does not; so a program that has them already is made read-only. This costs
// a stat for each file of the writable folders, and is left out for an ordinary user, who has no such power to give.
//
// What it does not do: sockets that the host makes in a shared folder after the start are reachable, as are FIFOs.
#include "sandbox/unix_mask.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/mem.h"
#include "sandbox/hidden.h"
#include "sandbox/mountinfo.h"
#include "sandbox/place.h"

struct walk {
    struct unix_mask *mask;
    const struct hidden *hidden;
    size_t mounts;       // entries of the mask that were there before: mounted procfs, not to be entered
    size_t seen, limit;  // names
    bool privileged;     // whether to look for programs with privilege
    bool of_secret;      // it ended at the folder of a file: secret
    bool of_system;      // nothing of the user's: limits end the walk instead of refusing
    char path[PATH_MAX]; // of the folder that is being walked, inside the sandbox
    size_t len;
};

int unix_mask_add(struct unix_mask *mask, enum unix_mask_kind kind, const char *path) {
    for (size_t i = 0; i < mask->count; i++)
        if (strcmp(mask->entries[i].path, path) == 0) return 0;
    if (mask->count == UNIX_MASK_ENTRIES_MAX) return -E2BIG;
    if (mask->count == mask->size) {
        size_t size = mask->size ? 2 * mask->size : 16;
        struct unix_mask_entry *entries = realloc(mask->entries, size * sizeof(*entries));
        if (!entries) return -ENOMEM;
        mask->entries = entries;
        mask->size = size;
    }
    char *copy = strdup(path);
    if (!copy) return -ENOMEM;
    mask->entries[mask->count++] = (struct unix_mask_entry){.kind = kind, .path = copy};
    return 0;
}

static int walk_folder(struct walk *walk, int parent, const char *name, unsigned depth);

// A type that the file system does not tell is asked for.
static unsigned char entry_type(int folder, const struct dirent *entry) {
    struct stat st;
    if (entry->d_type != DT_UNKNOWN) return entry->d_type;
    if (fstatat(folder, entry->d_name, &st, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT) < 0) return DT_UNKNOWN;
    return IFTODT(st.st_mode);
}

static bool has_privilege(int folder, const char *name) {
    struct stat st;
    if (fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode)) return false;
    if (st.st_mode & (S_ISUID | S_ISGID)) return true;
    if (!(st.st_mode & (S_IXUSR | S_IXGRP | S_IXOTH))) return false;
    AUTO_CLOSE int fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    return fd >= 0 && fgetxattr(fd, "security.capability", NULL, 0) > 0;
}

// The folder tells the inode for nothing.
static bool is_hidden(const struct walk *walk, int folder, const struct dirent *entry) {
    struct stat st;
    return walk->hidden && hidden_may_have(walk->hidden, entry->d_ino) &&
           fstatat(folder, entry->d_name, &st, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT) == 0 &&
           hidden_has(walk->hidden, st.st_dev, st.st_ino);
}

static int walk_entry(struct walk *walk, int folder, const struct dirent *entry, unsigned depth) {
    if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) return 0;
    if (++walk->seen > walk->limit) return -E2BIG;
    unsigned char type = entry_type(folder, entry);
    bool hidden = type == DT_REG && is_hidden(walk, folder, entry);
    bool program = !hidden && type == DT_REG && walk->privileged && has_privilege(folder, entry->d_name);
    if (type != DT_SOCK && type != DT_DIR && !program && !hidden) return 0;
    size_t before = walk->len, len = strlen(entry->d_name);
    if (before + 1 + len >= sizeof(walk->path)) return -E2BIG;
    walk->path[walk->len++] = '/';
    memcpy(walk->path + walk->len, entry->d_name, len + 1);
    walk->len += len;
    int r = program           ? unix_mask_add(walk->mask, UNIX_MASK_PROGRAM, walk->path)
            : type != DT_DIR  ? unix_mask_add(walk->mask, UNIX_MASK_FILE, walk->path)
                              : walk_folder(walk, folder, entry->d_name, depth + 1);
    if (r == 0) walk->path[walk->len = before] = '\0'; // on failure the path tells where
    return r;
}

static int walk_entries(struct walk *walk, DIR *folder, unsigned depth) {
    for (;;) {
        errno = 0;
        const struct dirent *entry = readdir(folder);
        if (!entry) return errno == 0 || walk->of_system ? 0 : -errno;
        int r = walk_entry(walk, dirfd(folder), entry, depth);
        if (r < 0) return r;
    }
}

static bool walk_is_mount(const struct walk *walk) {
    for (size_t i = 0; i < walk->mounts; i++)
        if (strcmp(walk->mask->entries[i].path, walk->path) == 0) return true;
    return false;
}

static int walk_folder(struct walk *walk, int parent, const char *name, unsigned depth) {
    if (walk_is_mount(walk)) return 0;
    if (depth > UNIX_MASK_DEPTH_MAX) return -E2BIG;
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && (errno == ENOENT || errno == ENOTDIR)) return 0; // gone meanwhile
    struct stat st;
    if (fd >= 0 && walk->hidden && walk->hidden->count > 0 && fstat(fd, &st) == 0) {
        bool hidden = hidden_has(walk->hidden, st.st_dev, st.st_ino);
        walk->of_secret = !hidden && hidden_is_folder_of_secret(walk->hidden, st.st_dev, st.st_ino);
        if (hidden || walk->of_secret) close(fd);
        if (hidden) return unix_mask_add(walk->mask, UNIX_MASK_FOLDER, walk->path);
        if (walk->of_secret) return -EINVAL;
    }
    if (fd >= 0 && faccessat(fd, ".", X_OK, AT_EACCESS) < 0) {
        close(fd);
        fd = -1;
        errno = EACCES;
    }
    if (fd < 0 && errno != EACCES) return -errno;
    if (fd < 0) return walk->of_system ? 0 : unix_mask_add(walk->mask, UNIX_MASK_FOLDER, walk->path);
    DIR *folder = fdopendir(fd);
    if (!folder) {
        close(fd);
        return -ENOMEM;
    }
    int r = walk_entries(walk, folder, depth);
    closedir(folder);
    return r;
}

// Names are looked up at the source and masks noted at the target, which differ for a path given through a link.
static int walk_root(struct walk *walk, const char *source, const char *target) {
    walk->len = strlen(target);
    if (walk->len >= sizeof(walk->path)) return -E2BIG;
    memcpy(walk->path, target, walk->len + 1);
    return walk_folder(walk, AT_FDCWD, source, 0);
}

// Whether an earlier item holds this one at the same place, so that its walk has covered it. (A mask inside it is put
// in place after all items, and so hides it in this one too.)
static bool covered(const struct exposure *exposure, size_t index) {
    const struct exposure_item *item = &exposure->items[index];
    if (strcmp(item->source, item->target) != 0) return false;
    for (size_t i = 0; i < index; i++) {
        const struct exposure_item *other = &exposure->items[i];
        if (other->writable >= item->writable && strcmp(other->source, other->target) == 0 &&
            place_within(item->source, other->source)) return true;
    }
    return false;
}

static int walk_shared(const struct exposure *exposure, const struct hidden *hidden, struct unix_mask *mask,
                       struct error *err) {
    size_t mounts = mask->count;
    for (size_t i = 0; i < exposure->count; i++) {
        const struct exposure_item *item = &exposure->items[i];
        if (!item->folder || covered(exposure, i)) continue;
        struct walk walk = {.mask = mask, .hidden = hidden, .mounts = mounts, .limit = UNIX_MASK_FILES_MAX};
        walk.privileged = exposure->from_root && item->writable;
        int r = walk_root(&walk, item->source, item->target);
        if (walk.of_secret)
            return error_set(err, r, "\"%s\" would show the sandbox the folder of a file: secret; unmount it, or share folders "
                             "that do not have it", walk.path);
        if (r == -E2BIG)
            return error_set(
                err, r,
                "\"%s\" cannot be searched for UNIX sockets of the host: more than %d files, %d sockets or %d levels "
                "(at \"%s\"); share a smaller folder",
                item->source, UNIX_MASK_FILES_MAX, UNIX_MASK_ENTRIES_MAX, UNIX_MASK_DEPTH_MAX, walk.path);
        if (r < 0)
            return error_set(err, r,
                             "\"%s\" cannot be searched for UNIX sockets of the host (at \"%s\"): %s; share another folder",
                             item->source, walk.path, strerror(-r));
    }
    return 0;
}

static int walk_systems(struct unix_mask *mask, size_t mounts) {
    const struct place_system *systems;
    size_t count = place_systems(&systems);
    for (size_t i = 0; i < count; i++) {
        if (!systems[i].walked) continue;
        struct walk walk = {.mask = mask, .mounts = mounts, .limit = UNIX_MASK_SYSTEM_MAX, .of_system = true};
        int r = walk_root(&walk, systems[i].path, systems[i].path);
        if (r == -ENOMEM || mask->count == UNIX_MASK_ENTRIES_MAX) return r;
    }
    return 0;
}

// ---- the kernel's lists ----

// A name in the list may be gone, out of our reach (then out of the command's too), or lead through links.
static int add_bound(const struct exposure *exposure, struct unix_mask *mask, const char *path) {
    struct stat st;
    if (lstat(path, &st) < 0 || !S_ISSOCK(st.st_mode)) return 0;
    AUTO_FREE char *real = realpath(path, NULL);
    if (!real || !exposure_shows(exposure, real)) return 0;
    return unix_mask_add(mask, UNIX_MASK_FILE, real);
}

// The eighth column of a line, which may hold blanks; NULL for an unbound socket.
static const char *bound_path(const char *line) {
    for (int column = 0; column < 7; column++) {
        line += strspn(line, " ");
        line += strcspn(line, " ");
    }
    return *line ? line + 1 : NULL;
}

static int add_kernel_sockets(const struct exposure *exposure, struct unix_mask *mask, char *list) {
    bool relative = false;
    size_t mounts = mask->count;
    char *line = strchr(list, '\n'), *end; // behind the heading
    for (line = line ? line + 1 : NULL; line && *line; line = end) {
        end = strchr(line, '\n');
        if (end) *end++ = '\0';
        const char *path = bound_path(line);
        int r = path && path[0] == '/' ? add_bound(exposure, mask, path) : 0;
        if (r < 0) return r;
        if (path && path[0] != '/' && path[0] != '@') relative = true; // '@': abstract
    }
    return relative ? walk_systems(mask, mounts) : 0;
}

// A mounted procfs, and a socket that is mounted over a file: its folder tells the type of that file.
static int add_mount(const struct exposure *exposure, struct unix_mask *mask, const struct mountinfo_entry *mount) {
    struct stat st;
    bool proc = strcmp(mount->type, "proc") == 0;
    if (strcmp(mount->point, "/proc") == 0 || !exposure_shows(exposure, mount->point)) return 0;
    if (lstat(mount->point, &st) < 0 || (!proc && !S_ISSOCK(st.st_mode))) return 0;
    enum unix_mask_kind kind = S_ISDIR(st.st_mode) ? UNIX_MASK_FOLDER : UNIX_MASK_FILE;
    int r = unix_mask_add(mask, kind, mount->point);
    for (size_t i = 0; r == 0 && i < exposure->count; i++) { // where the user named it by another path
        const struct exposure_item *item = &exposure->items[i];
        if (!place_within(mount->point, item->source) || strcmp(item->source, item->target) == 0) continue;
        AUTO_FREE char *target = mountinfo_join(item->target, mount->point + strlen(item->source));
        r = target ? unix_mask_add(mask, kind, target) : -ENOMEM;
    }
    return r;
}

static int add_mounts(const struct exposure *exposure, const struct mountinfo *mounts, struct unix_mask *mask,
                      struct error *err) {
    for (size_t i = 0; i < mounts->count; i++) {
        int r = add_mount(exposure, mask, &mounts->entries[i]);
        if (r < 0) return error_set(err, r, "ways to the host's services cannot be hidden (at \"%s\"): %s",
                                    mounts->entries[i].point, strerror(-r));
    }
    return 0;
}

static int add_sockets(const struct exposure *exposure, struct unix_mask *mask, struct error *err) {
    static const char file[] = "/proc/net/unix";
    struct buf list = BUF_INIT;
    int r = buf_read_file(&list, file, 16 << 20);
    if (r == 0 && list.data) r = add_kernel_sockets(exposure, mask, list.data);
    buf_done(&list);
    if (r < 0) error_set(err, r, "ways to the host's services cannot be found in \"%s\": %s", file, strerror(-r));
    return r;
}

int unix_mask_collect(const struct exposure *exposure, const struct hidden *hidden, const struct mountinfo *mounts,
                      struct unix_mask *mask, struct error *err) {
    *mask = (struct unix_mask){0};
    int r = add_mounts(exposure, mounts, mask, err);
    if (r == 0) r = walk_shared(exposure, hidden, mask, err);
    if (r == 0) r = add_sockets(exposure, mask, err);
    if (r < 0) unix_mask_done(mask);
    return r;
}

void unix_mask_done(struct unix_mask *mask) {
    for (size_t i = 0; i < mask->count; i++) free(mask->entries[i].path);
    free(mask->entries);
    *mask = (struct unix_mask){0};
}
