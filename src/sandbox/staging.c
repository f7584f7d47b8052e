// SPDX-License-Identifier: Apache-2.0
// The command runs as a user that owns nothing, but must work in a folder of root. An idmapped mount (mount_setattr(2),
// Linux 5.12) shows the owner of the folder as that user, and stores what that user makes as the owner's. One owner a
// folder: files of others in it keep their permissions for others, so a shared folder never gives more than its owner's
// rights.
// --read folders are mapped too, since naming one means that the command shall read it.
//
// bubblewrap, which runs as the sandbox's user, could not walk to /root/project. So the mounts are placed on a small
// tmpfs over /run, in a mount namespace that ends with the sandbox; bubblewrap's own namespace copies it, with all its
// mounts locked. The masks are put on here as well, because only root can be sure to reach each of them.
#include "sandbox/staging.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <sched.h>
#include <stdint.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/mem.h"
#include "sandbox/place.h"
#include "sandbox/user_map.h"

const char *staging_path(size_t index, char buf[STAGING_PATH_SIZE]) {
    snprintf(buf, STAGING_PATH_SIZE, STAGING_FOLDER "/%zu", index);
    return buf;
}

// ---- mounts ----

// Paths of items are real ones. Where a link has come in since then, somebody leads us elsewhere: ELOOP.
static int open_real(const char *path) {
    struct open_how how = {.flags = O_PATH | O_CLOEXEC | O_NOFOLLOW, .resolve = RESOLVE_NO_SYMLINKS};
    return (int)syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof(how));
}

// A copy of the tree at the item's source, detached; its owner's files belong to the sandbox's user.
static int clone_mapped(const struct exposure_item *item, const struct sandbox_identity *identity, struct error *err) {
    struct stat owner;
    const char *source = item->source;
    AUTO_CLOSE int place = open_real(source);
    AUTO_CLOSE int owned = place < 0 ? -1 : open_real(item->owned_as);
    AUTO_CLOSE int tree = owned < 0 ? -1
                                    : (int)syscall(SYS_open_tree, place, "",
                                                   AT_EMPTY_PATH | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE);
    if (tree < 0 || fstat(owned, &owner) < 0)
        return error_set(err, -errno, "\"%s\" cannot be mounted for the sandbox: %s", source, strerror(errno));
    if (owner.st_uid == identity->uid) return TAKE_FD(tree);
    const struct user_map numbers = {
        .uid = owner.st_uid, .uid_to = identity->uid, .gid = owner.st_gid, .gid_to = identity->gid, .count = 1};
    AUTO_CLOSE int map = user_map_open(&numbers);
    int r = map < 0 ? map : 0;
    struct mount_attr attr = {.attr_set = MOUNT_ATTR_IDMAP, .userns_fd = (uint64_t)map};
    if (r == 0 && syscall(SYS_mount_setattr, tree, "", AT_EMPTY_PATH | AT_RECURSIVE, &attr, sizeof(attr)) < 0)
        r = -errno;
    if (r < 0)
        return error_set(
            err, r,
            "\"%s\" belongs to user %u, and its file system (or one below it) cannot show it to the sandbox's user "
            "(idmapped mount: %s); run penstock as an ordinary user that owns the folder, or use a folder on "
            "ext4, xfs or btrfs",
            source, owner.st_uid, strerror(-r));
    return TAKE_FD(tree);
}

// A folder for a folder, a file for a file, to be mounted on.
static int place_item(int tree, bool folder, size_t index) {
    char path[STAGING_PATH_SIZE];
    staging_path(index, path);
    int made = folder ? mkdir(path, 0755) : mknod(path, S_IFREG | 0644, 0);
    if (made < 0) return -errno;
    return syscall(SYS_move_mount, tree, "", AT_FDCWD, path, MOVE_MOUNT_F_EMPTY_PATH) < 0 ? -errno : 0;
}

static int make_read_only(int fd) {
    struct mount_attr attr = {.attr_set = MOUNT_ATTR_RDONLY};
    AUTO_CLOSE int tree = (int)syscall(SYS_open_tree, fd, "", AT_EMPTY_PATH | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
    if (tree < 0 || syscall(SYS_mount_setattr, tree, "", AT_EMPTY_PATH, &attr, sizeof(attr)) < 0) return -errno;
    return syscall(SYS_move_mount, tree, "", fd, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) < 0 ? -errno : 0;
}

// The name is resolved without links, and what it leads to is what is hidden: its folder's owner may be moving things.
static int hide(const struct unix_mask_entry *entry, const struct exposure *exposure) {
    char path[PATH_MAX], self[64], staged[STAGING_PATH_SIZE] = "";
    size_t item = exposure_top(exposure, exposure->count, entry->path);
    const char *rest = entry->path;
    if (item != SIZE_MAX) {
        staging_path(item, staged);
        rest += strlen(exposure->items[item].target);
    }
    if (snprintf(path, sizeof(path), "%s%s", staged, rest) >= (int)sizeof(path)) return -ENAMETOOLONG;
    AUTO_CLOSE int fd = open_real(path);
    if (fd < 0) return errno == ENOENT ? 0 : -errno;
    snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
    switch (entry->kind) {
    case UNIX_MASK_FILE:
        return mount("/dev/null", self, NULL, MS_BIND, NULL) < 0 ? -errno : 0;
    case UNIX_MASK_FOLDER:
        return mount("tmpfs", self, "tmpfs", MS_NOSUID | MS_NODEV | MS_RDONLY, "mode=0555,size=4k") < 0 ? -errno : 0;
    case UNIX_MASK_PROGRAM:
        return make_read_only(fd);
    }
    return -EINVAL;
}

// All are copied before the tmpfs goes over /run, where some may be.
static int place_items(const struct exposure *exposure, const struct sandbox_identity *identity, int *trees,
                       struct error *err) {
    for (size_t i = 0; i < exposure->count; i++) {
        trees[i] = clone_mapped(&exposure->items[i], identity, err);
        if (trees[i] < 0) return trees[i];
    }
    if (mount("tmpfs", STAGING_FOLDER, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755,size=1m") < 0)
        return error_set(err, -EPERM, "no tmpfs over " STAGING_FOLDER ": %s", strerror(errno));
    for (size_t i = 0; i < exposure->count; i++) {
        int r = place_item(trees[i], exposure->items[i].folder, i);
        if (r < 0)
            return error_set(err, r, "\"%s\" cannot be placed for the sandbox: %s", exposure->items[i].source,
                             strerror(-r));
    }
    return 0;
}

int staging_enter(const struct exposure *exposure, const struct unix_mask *mask,
                  const struct sandbox_identity *identity, struct error *err) {
    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return error_set(err, -EPERM, "no mount namespace for the sandbox: %s", strerror(errno));
    int *trees = NEW_ARRAY(int, exposure->count);
    if (!trees) return error_set(err, -ENOMEM, "out of memory");
    for (size_t i = 0; i < exposure->count; i++) trees[i] = -1;
    int r = place_items(exposure, identity, trees, err);
    for (size_t i = 0; i < exposure->count; i++) mem_close_pointer(&trees[i]);
    free(trees);
    for (size_t i = 0; r == 0 && i < mask->count; i++) {
        r = hide(&mask->entries[i], exposure);
        if (r < 0) error_set(err, r, "\"%s\" cannot be hidden from the sandbox: %s", mask->entries[i].path, strerror(-r));
    }
    return r;
}
