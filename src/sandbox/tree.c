// SPDX-License-Identifier: Apache-2.0
// Removal: what is two levels down is moved up to the top, so that there is never more than one folder open below it, however
// deep a sandbox has built. Copying needs two descriptors a level, so it has a limit of depth.
//
// Hard links are found again by number: a folder beside the copy holds one link to each file that has several, named by its
// inode. So nothing grows in memory, and a file with a million names is copied once.
#include "sandbox/tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/mem.h"

#define COPY_DEPTH 400
#define VALUE_MAX 65536 // of an extended attribute
#define FOLDER_FLAGS (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)

static bool is_self(const char *name) { return strcmp(name, ".") == 0 || strcmp(name, "..") == 0; }

// A stream of its own of a folder.
static DIR *list_folder(int folder) {
    int fd = openat(folder, ".", FOLDER_FLAGS);
    DIR *list = fd < 0 ? NULL : fdopendir(fd);
    if (!list) mem_close_pointer(&fd);
    return list;
}

// ---- removal ----

static int move_up(int folder, const char *name, int top, uint64_t *number) {
    char moved[32];
    do {
        snprintf(moved, sizeof(moved), ".%llu", (unsigned long long)++*number);
    } while (renameat2(folder, name, top, moved, RENAME_NOREPLACE) < 0 && errno == EEXIST);
    return faccessat(top, moved, F_OK, AT_SYMLINK_NOFOLLOW) < 0 ? -EIO : 0;
}

static int empty_folder(int folder, int top, uint64_t *number) {
    DIR *list = list_folder(folder);
    if (!list) return -errno;
    int r = 0;
    for (const struct dirent *entry; r == 0 && (entry = readdir(list)) != NULL;) {
        if (is_self(entry->d_name) || unlinkat(folder, entry->d_name, 0) == 0) continue;
        r = errno == EISDIR ? move_up(folder, entry->d_name, top, number) : -errno;
    }
    closedir(list);
    return r;
}

static int remove_folder(int top, const char *name, uint64_t *number) {
    AUTO_CLOSE int folder = openat(top, name, FOLDER_FLAGS);
    int r = folder < 0 ? -errno : 0;
    // A folder that is read while it shrinks may hide some of its names.
    while (r == 0 && unlinkat(top, name, AT_REMOVEDIR) < 0) {
        if (errno != ENOTEMPTY) return -errno;
        r = empty_folder(folder, top, number);
    }
    return r;
}

// One pass over the top. 1: it may not be empty yet.
static int remove_pass(int top, uint64_t *number) {
    DIR *list = list_folder(top);
    if (!list) return -errno;
    int r = 0;
    bool any = false;
    for (const struct dirent *entry; r == 0 && (entry = readdir(list)) != NULL;) {
        if (is_self(entry->d_name)) continue;
        any = true;
        if (unlinkat(top, entry->d_name, 0) < 0) r = errno == EISDIR ? remove_folder(top, entry->d_name, number) : -errno;
    }
    closedir(list);
    return r < 0 ? r : any;
}

int tree_remove(int at, const char *name) {
    uint64_t number = 0;
    if (unlinkat(at, name, 0) == 0 || errno == ENOENT) return 0;
    if (errno != EISDIR) return -errno;
    AUTO_CLOSE int top = openat(at, name, FOLDER_FLAGS);
    int r = top < 0 ? -errno : 1;
    while (r > 0) r = remove_pass(top, &number);
    if (r == 0 && unlinkat(at, name, AT_REMOVEDIR) < 0) r = -errno;
    return r;
}

// ---- copy ----

static bool is_carried(const char *name) {
    static const char *const whole[] = {"security.capability", "system.posix_acl_access", "system.posix_acl_default",
                                        "trusted.overlay.opaque"};
    if (strncmp(name, "user.", 5) == 0) return true;
    for (size_t i = 0; i < ARRAY_LENGTH(whole); i++)
        if (strcmp(name, whole[i]) == 0) return true;
    return false;
}

static int copy_attributes(int from, int to) {
    AUTO_FREE char *names = malloc(VALUE_MAX), *value = malloc(VALUE_MAX);
    if (!names || !value) return -ENOMEM;
    ssize_t len = flistxattr(from, names, VALUE_MAX);
    if (len < 0) return errno == EOPNOTSUPP ? 0 : -errno;
    for (const char *name = names; name < names + len; name += strlen(name) + 1) {
        if (!is_carried(name)) continue;
        ssize_t size = fgetxattr(from, name, value, VALUE_MAX);
        if (size < 0 || fsetxattr(to, name, value, (size_t)size, 0) < 0) return -errno;
    }
    return 0;
}

// Owner first: a change of owner takes bits and capabilities away.
static int copy_state(int from, int to, const struct stat *st) {
    const struct timespec times[2] = {st->st_atim, st->st_mtim};
    if (fchown(to, st->st_uid, st->st_gid) < 0 || fchmod(to, st->st_mode & 07777) < 0) return -errno;
    int r = copy_attributes(from, to);
    return r == 0 && futimens(to, times) < 0 ? -errno : r;
}

static int copy_by_hand(int from, int to, off_t at, off_t end) {
    static char chunk[65536];
    while (at < end) {
        size_t want = (uint64_t)(end - at) < sizeof(chunk) ? (size_t)(end - at) : sizeof(chunk);
        ssize_t n = pread(from, chunk, want, at);
        if (n <= 0) return n < 0 ? -errno : 0;
        for (ssize_t done = 0; done < n;) {
            ssize_t written = pwrite(to, chunk + done, (size_t)(n - done), at + done);
            if (written < 0) return -errno;
            done += written;
        }
        at += n;
    }
    return 0;
}

static int copy_part(int from, int to, off_t at, off_t end) {
    while (at < end) {
        off_t in = at, out = at;
        ssize_t n = copy_file_range(from, &in, to, &out, (size_t)(end - at), 0);
        if (n < 0) return errno == EXDEV || errno == EINVAL || errno == EOPNOTSUPP || errno == ENOSYS ? copy_by_hand(from, to, at, end) : -errno;
        if (n == 0) return copy_by_hand(from, to, at, end);
        at += n;
    }
    return 0;
}

static int copy_bytes(int from, int to, off_t size) {
    for (off_t at = 0; at < size;) {
        off_t data = lseek(from, at, SEEK_DATA);
        if (data < 0 && errno == ENXIO) break; // only a hole is left
        off_t end = data < 0 ? -1 : lseek(from, data, SEEK_HOLE);
        if (data < 0 || end < 0) return -errno;
        int r = copy_part(from, to, data, end);
        if (r < 0) return r;
        at = end;
    }
    return ftruncate(to, size) < 0 ? -errno : 0;
}

struct copying {
    int links; // folder: one name for each file that has several
};

static int copy_file(int from, int to, const char *name, const struct stat *st) {
    AUTO_CLOSE int source = openat(from, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOATIME);
    AUTO_CLOSE int target = source < 0 ? -1 : openat(to, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (target < 0) return -errno;
    int r = copy_bytes(source, target, st->st_size);
    return r == 0 ? copy_state(source, target, st) : r;
}

static int copy_link(int from, int to, const char *name, const struct stat *st) {
    char text[PATH_MAX];
    const struct timespec times[2] = {st->st_atim, st->st_mtim};
    ssize_t len = readlinkat(from, name, text, sizeof(text) - 1);
    if (len < 0) return -errno;
    text[len] = '\0';
    if (symlinkat(text, to, name) < 0 || fchownat(to, name, st->st_uid, st->st_gid, AT_SYMLINK_NOFOLLOW) < 0) return -errno;
    return utimensat(to, name, times, AT_SYMLINK_NOFOLLOW) < 0 ? -errno : 0;
}

static int copy_node(int to, const char *name, const struct stat *st) {
    const struct timespec times[2] = {st->st_atim, st->st_mtim};
    if (mknodat(to, name, st->st_mode & (S_IFMT | 0777), st->st_rdev) < 0) return -errno;
    if (fchownat(to, name, st->st_uid, st->st_gid, AT_SYMLINK_NOFOLLOW) < 0) return -errno;
    if (fchmodat(to, name, st->st_mode & 07777, 0) < 0) return -errno;
    return utimensat(to, name, times, AT_SYMLINK_NOFOLLOW) < 0 ? -errno : 0;
}

static int copy_one(int from, int to, const char *name, const struct stat *st) {
    bool whiteout = S_ISCHR(st->st_mode) && st->st_rdev == makedev(0, 0);
    if (S_ISREG(st->st_mode)) return copy_file(from, to, name, st);
    if (S_ISLNK(st->st_mode)) return copy_link(from, to, name, st);
    return whiteout || S_ISFIFO(st->st_mode) ? copy_node(to, name, st) : 0;
}

static int copy_linked(const struct copying *copying, int from, int to, const char *name, const struct stat *st) {
    char number[32];
    bool many = st->st_nlink > 1 && (S_ISREG(st->st_mode) || S_ISLNK(st->st_mode));
    snprintf(number, sizeof(number), "%llu", (unsigned long long)st->st_ino);
    if (many && linkat(copying->links, number, to, name, 0) == 0) return 0;
    if (many && errno != ENOENT) return -errno;
    int r = copy_one(from, to, name, st);
    if (r == 0 && many && linkat(to, name, copying->links, number, 0) < 0) r = -errno;
    return r;
}

// Recursive up to its limit of depth.
static int copy_folder(const struct copying *copying, int from, int to, int depth) {
    struct stat st;
    DIR *list = depth < COPY_DEPTH ? list_folder(from) : NULL;
    if (!list) return depth < COPY_DEPTH ? -errno : -ELOOP;
    int r = 0;
    for (const struct dirent *entry; r == 0 && (entry = readdir(list)) != NULL;) {
        const char *name = entry->d_name;
        if (is_self(name)) continue;
        if (fstatat(from, name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
            r = -errno;
        } else if (!S_ISDIR(st.st_mode)) {
            r = copy_linked(copying, from, to, name, &st);
        } else {
            AUTO_CLOSE int source = openat(from, name, FOLDER_FLAGS);
            AUTO_CLOSE int target = source < 0 || mkdirat(to, name, 0700) < 0 ? -1 : openat(to, name, FOLDER_FLAGS);
            r = target < 0 ? -errno : copy_folder(copying, source, target, depth + 1);
        }
    }
    closedir(list);
    if (r == 0 && fstat(from, &st) < 0) r = -errno;
    return r == 0 ? copy_state(from, to, &st) : r;
}

int tree_copy(int from, int at, const char *name, struct error *err) {
    char links[NAME_MAX + 1];
    if (snprintf(links, sizeof(links), "%s.links", name) > NAME_MAX) return error_set(err, -ENAMETOOLONG, "\"%s\" is too long", name);
    int r = tree_remove(at, links);
    if (r == 0 && (mkdirat(at, links, 0700) < 0 || mkdirat(at, name, 0700) < 0)) r = -errno;
    AUTO_CLOSE int to = r < 0 ? -1 : openat(at, name, FOLDER_FLAGS);
    struct copying copying = {.links = r < 0 ? -1 : openat(at, links, FOLDER_FLAGS)};
    if (r == 0 && (to < 0 || copying.links < 0)) r = -errno;
    if (r == 0) r = copy_folder(&copying, from, to, 0);
    mem_close_pointer(&copying.links);
    tree_remove(at, links);
    if (r == -ELOOP) return error_set(err, r, "it has more than %d folders in each other; flatten them", COPY_DEPTH);
    return r < 0 ? error_set(err, r, "it cannot be copied: %s", strerror(-r)) : 0;
}
