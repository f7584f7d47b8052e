// SPDX-License-Identifier: Apache-2.0
// The folders are bound on a tmpfs over /mnt in a private mount namespace, which belongs to the host's root: the program can
// change nothing of it. For programs with the host's network, /run and /etc stay as they are, for names and roots.
#include "sandbox/jail.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <stdint.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/mem.h"
#include "sandbox/container_plan.h"
#include "sandbox/tool.h"
#include "sandbox/user_map.h"

#define FILE_MAX (UINT64_C(64) << 30) // bytes of one file

struct prison {
    const struct jail *jail;
    int users; // its user namespace; as a table, it also shows the host's root and users as its own
};

static int fail(struct error *err, const char *what) {
    int r = -errno;
    return error_set(err, r, "%s: %s", what, strerror(-r));
}

static int clone_folder(const struct prison *prison, const struct jail_folder *folder, struct error *err) {
    struct mount_attr attr = {.attr_set = MOUNT_ATTR_NODEV | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC};
    if (folder->foreign) {
        attr.attr_set |= MOUNT_ATTR_IDMAP | MOUNT_ATTR_RDONLY;
        attr.userns_fd = (uint64_t)prison->users;
    }
    int tree = (int)syscall(SYS_open_tree, AT_FDCWD, folder->path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
    if (tree < 0) return error_set(err, -errno, "\"%s\" cannot be used: %s", folder->path, strerror(errno));
    int r = (int)syscall(SYS_mount_setattr, tree, "", AT_EMPTY_PATH, &attr, sizeof(attr));
    if (r < 0 && folder->foreign) { // a file system without this: what everybody may read is enough
        attr.attr_set &= ~(uint64_t)MOUNT_ATTR_IDMAP;
        r = (int)syscall(SYS_mount_setattr, tree, "", AT_EMPTY_PATH, &attr, sizeof(attr));
    }
    if (r == 0) return tree;
    r = error_set(err, -errno, "\"%s\" cannot be mounted: %s", folder->path, strerror(errno));
    close(tree);
    return r;
}

static int place_folder(const struct jail_folder *folder, int tree) {
    char path[64];
    struct stat st;
    if (fstat(tree, &st) < 0) return -errno;
    snprintf(path, sizeof(path), JAIL_PLACE "/%s", folder->name);
    int made = S_ISDIR(st.st_mode) ? mkdir(path, 0755) : mknod(path, S_IFREG | 0644, 0);
    if (made < 0) return -errno;
    return syscall(SYS_move_mount, tree, "", AT_FDCWD, path, MOVE_MOUNT_F_EMPTY_PATH) < 0 ? -errno : 0;
}

static int place_all(const struct prison *prison, struct error *err) {
    int trees[JAIL_FOLDERS], r = 0;
    size_t count = 0;
    for (; r == 0 && count < prison->jail->folder_count; count++) {
        trees[count] = clone_folder(prison, &prison->jail->folders[count], err);
        if (trees[count] < 0) r = trees[count--];
    }
    if (r == 0 && mount("tmpfs", JAIL_PLACE, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755,size=1m") < 0) r = fail(err, "no tmpfs over " JAIL_PLACE);
    for (size_t i = 0; r == 0 && i < count; i++) {
        r = place_folder(&prison->jail->folders[i], trees[i]);
        if (r < 0) error_set(err, r, "\"%s\" cannot be placed: %s", prison->jail->folders[i].path, strerror(-r));
    }
    for (size_t i = 0; i < count; i++) close(trees[i]);
    return r;
}

static int enter(void *data, struct error *err) {
    const struct prison *prison = data;
    const struct rlimit size = {.rlim_cur = FILE_MAX, .rlim_max = FILE_MAX}, none = {0};
    if (unshare(CLONE_NEWNS | CLONE_NEWIPC | (prison->jail->network ? 0 : CLONE_NEWNET)) < 0 ||
        mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return fail(err, "no namespaces for it");
    // Another jail's programs have the same number of user, so they must neither be named nor found.
    if (mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0) return fail(err, "no /proc for it");
    umask(022);
    int r = place_all(prison, err);
    if (r < 0) return r;
    // Where skopeo, which believes that it is root, would look for signatures: closed to it.
    if (access("/var/lib/containers", F_OK) == 0 &&
        mount("tmpfs", "/var/lib/containers", "tmpfs", MS_NOSUID | MS_NODEV | MS_RDONLY, "mode=0755,size=4k") < 0)
        return fail(err, "no tmpfs over /var/lib/containers");
    setrlimit(RLIMIT_FSIZE, &size);
    setrlimit(RLIMIT_CORE, &none);
    if (chdir("/") < 0 || setgroups(0, NULL) < 0 || setns(prison->users, CLONE_NEWUSER) < 0 || setresgid(0, 0, 0) < 0 ||
        setresuid(0, 0, 0) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return fail(err, "it cannot be made powerless");
    return 0;
}

int jail_run(const struct jail *jail, char *const *argv, unsigned timeout_s, struct error *err) {
    const struct user_map users = {.uid_to = CONTAINER_DISK_BASE, .gid_to = CONTAINER_DISK_BASE, .count = CONTAINER_USERS};
    char path[] = "PATH=/usr/sbin:/usr/bin:/sbin:/bin", home[] = "HOME=" JAIL_PLACE, temporary[] = "TMPDIR=" JAIL_PLACE "/image";
    char *const environment[] = {path, home, temporary, NULL};
    struct prison prison = {.jail = jail, .users = user_map_open(&users)};
    if (prison.users < 0)
        return error_set(err, prison.users, "no numbers of users for %s: %s; allow user namespaces, and run penstock where all "
                         "numbers are mapped", argv[0], strerror(-prison.users));
    const struct tool tool = {.argv = argv, .environment = environment, .enter = enter, .data = &prison, .timeout_s = timeout_s, .apart = true};
    int r = tool_run(&tool, err);
    close(prison.users);
    return r;
}
