// SPDX-License-Identifier: Apache-2.0
// The container's root: an overlay of read-only layers and of a folder of its own, each shown through an idmapped mount
// (mount_setattr(2), layers of overlays since Linux 5.19), so that all containers share layers though each has numbers of
// users to itself.
//
// All mounts are made in a private mount namespace, which crun's container takes over and which is gone with it: whatever
// dies, no mount is left on the host. They are put on a tmpfs over a folder that everybody may enter, since the container's
// root, who is nobody here, has to walk to them; the sandbox's own folder is closed to all but root.
//
// Layers are hostile: redirects and "metacopy" of overlayfs, extended attributes that lead to other places of a layer, are
// not followed; device files have no meaning (nodev).
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/openat2.h>
#include <sched.h>
#include <stdint.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/mem.h"
#include "sandbox/cgroup.h"
#include "sandbox/container_plan.h"
#include "sandbox/environment.h"
#include "sandbox/place.h"

#define FILES_SIZE "16777216" // bytes of our own files, at most
#define OVERLAY_OPTIONS "redirect_dir=nofollow,metacopy=off,index=off,xino=off"

static int fail(struct error *err, const char *what) {
    int r = -errno;
    return error_set(err, r, "%s: %s", what, strerror(-r));
}

// ---- layers ----

// A detached mount of a folder, in which its numbers are the container's.
static int clone_mapped(const struct container_plan *plan, const char *path, struct error *err) {
    struct mount_attr attr = {.attr_set = MOUNT_ATTR_IDMAP | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOSUID, .userns_fd = (uint64_t)plan->map};
    AUTO_CLOSE int tree = (int)syscall(SYS_open_tree, AT_FDCWD, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_SYMLINK_NOFOLLOW);
    if (tree < 0) return error_set(err, -errno, "the layer \"%s\" cannot be mounted: %s", path, strerror(errno));
    if (syscall(SYS_mount_setattr, tree, "", AT_EMPTY_PATH, &attr, sizeof(attr)) == 0) return TAKE_FD(tree);
    return error_set(err, -errno, "the layer \"%s\" cannot be shown to other users (idmapped mount: %s); put penstock's state "
                     "folder on ext4, xfs or btrfs, with Linux 5.19 or later", path, strerror(errno));
}

static int attach(int tree, const char *place, const char *name, size_t number, struct error *err) {
    char path[64];
    snprintf(path, sizeof(path), "%s/%s%zu", place, name, number);
    if (mkdir(path, 0700) == 0 && syscall(SYS_move_mount, tree, "", AT_FDCWD, path, MOVE_MOUNT_F_EMPTY_PATH) == 0) return 0;
    return fail(err, "a layer cannot be placed");
}

static int clone_all(const struct container_plan *plan, int *trees, struct error *err) {
    char path[4096];
    const struct sandbox_container_spec *spec = plan->spec;
    for (size_t i = 0; i < spec->layer_count; i++) {
        trees[i] = clone_mapped(plan, spec->layers[i], err);
        if (trees[i] < 0) return trees[i];
    }
    snprintf(path, sizeof(path), "%s/" CONTAINER_DISK, spec->folder);
    trees[spec->layer_count] = clone_mapped(plan, path, err);
    return trees[spec->layer_count] < 0 ? trees[spec->layer_count] : 0;
}

static int attach_all(const struct container_plan *plan, const int *trees, struct error *err) {
    if (mount("tmpfs", plan->place, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755,size=" FILES_SIZE ",nr_inodes=4096") < 0)
        return fail(err, "no tmpfs for the sandbox's files");
    int r = 0;
    for (size_t i = 0; r == 0 && i <= plan->spec->layer_count; i++) r = attach(trees[i], plan->place, "l", i, err);
    return r;
}

// The overlay makes files of its own as the one who mounts it, who therefore has to have a number in its upper layer: files
// are made as the container's root, with all of root's capabilities, until the second call.
static int act_as(uint32_t user) {
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];
    setfsgid(user);
    setfsuid(user);
    if (syscall(SYS_capget, &header, data) < 0) return -errno;
    for (size_t i = 0; i < ARRAY_LENGTH(data); i++) data[i].effective = data[i].permitted;
    return syscall(SYS_capset, &header, data) < 0 ? -errno : 0;
}

static int mount_overlay(struct container_plan *plan, struct error *err) {
    struct buf options = BUF_INIT;
    char path[64];
    size_t count = plan->spec->layer_count;
    for (size_t i = 0; i < count; i++) buf_printf(&options, "%s%s/l%zu", i ? ":" : "lowerdir=", plan->place, i);
    buf_printf(&options, ",upperdir=%s/l%zu/upper,workdir=%s/l%zu/work," OVERLAY_OPTIONS, plan->place, count, plan->place, count);
    snprintf(path, sizeof(path), "%s/root", plan->place);
    int r = options.failed ? -ENOMEM : mkdir(path, 0755) < 0 ? -errno : act_as(plan->base);
    if (r == 0 && mount("overlay", path, "overlay", MS_NODEV | MS_NOSUID, options.data) < 0) r = -errno;
    int back = act_as(0);
    if (r == 0) r = back;
    buf_done(&options);
    if (r == 0) plan->root = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (r == 0 && plan->root < 0) r = -errno;
    if (r < 0) return error_set(err, r, "the sandbox's root cannot be mounted (overlay: %s); see the kernel's log", strerror(-r));
    snprintf(path, sizeof(path), "%s/files", plan->place);
    if (mkdir(path, 0755) < 0) return fail(err, "no folder for the sandbox's files");
    plan->files = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return plan->files < 0 ? fail(err, "no folder for the sandbox's files") : 0;
}

// ---- sysfs ----

// The folder is made as the container's root, the only one who has a number in the upper layer.
static int open_system(const struct container_plan *plan) {
    struct open_how how = {.flags = O_PATH | O_DIRECTORY | O_CLOEXEC, .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS};
    int made = act_as(plan->base);
    if (made == 0 && mkdirat(plan->root, "sys", 0755) < 0 && errno != EEXIST) made = -errno;
    int back = act_as(0);
    if (made == 0) made = back;
    int fd = made < 0 ? -1 : (int)syscall(SYS_openat2, plan->root, "sys", &how, sizeof(how));
    if (made < 0) return made;
    return fd < 0 ? -errno : fd;
}

// It shows the network namespace of the one who mounts it, and only root of the host or of the keeper may: the container
// is neither.
static int mount_system(const struct container_plan *plan, struct error *err) {
    char self[64];
    AUTO_CLOSE int place = open_system(plan);
    if (place < 0)
        return error_set(err, place, "the image has no folder /sys that something can be mounted on: %s", strerror(-place));
    if (setns(plan->net_namespace, CLONE_NEWNET) < 0) return fail(err, "the sandbox's network namespace cannot be entered");
    snprintf(self, sizeof(self), "/proc/self/fd/%d", place);
    if (mount("sysfs", self, "sysfs", MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0) return fail(err, "no sysfs");
    return 0;
}

// ---- all ----

// A folder of every system that hides nothing which is needed.
static int choose_place(struct container_plan *plan, struct error *err) {
    static const char *const places[] = {"/run", "/tmp", "/mnt", "/media", "/srv"};
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        if (place_within(plan->spec->folder, places[i]) || access(places[i], X_OK) < 0) continue;
        snprintf(plan->place, sizeof(plan->place), "%s", places[i]);
        return 0;
    }
    return error_set(err, -ENOENT, "no folder for the sandbox's mounts; make /run, and keep penstock's state elsewhere");
}

static int add_variable(struct container_plan *plan, const char *name, const char *value) {
    char *const none[] = {NULL}, *const *environment = plan->spec->environment;
    if (environment_get(environment ? environment : none, name)) return 0;
    if (plan->variable_count == CONTAINER_VARIABLES_MAX) return -E2BIG;
    char *entry;
    if (asprintf(&entry, "%s=%s", name, value) < 0) return -ENOMEM;
    plan->variables[plan->variable_count++] = entry;
    return 0;
}

// What the init executes, and the same once more for commands that come later.
static int write_words(struct container_plan *plan, struct error *err) {
    const struct sandbox_container_spec *spec = plan->spec;
    char path[4096];
    int r = add_variable(plan, "PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
    if (r == 0) r = add_variable(plan, "HOME", plan->user.home);
    if (r == 0) r = add_variable(plan, "HOSTNAME", spec->hostname ? spec->hostname : spec->id);
    size_t count = plan->variable_count, extra_count = 0;
    while (spec->placeholders && spec->placeholders[extra_count]) extra_count++;
    AUTO_FREE char **extra = NEW_ARRAY(char *, count + extra_count + 1);
    if (!extra) r = -ENOMEM;
    for (size_t i = 0; r == 0 && i < count; i++) extra[i] = plan->variables[i];
    for (size_t i = 0; r == 0 && i < extra_count; i++) extra[count + i] = spec->placeholders[i];
    AUTO_FREE char **environment = r == 0 ? environment_merge(spec->environment, spec->proxy, extra) : NULL;
    if (r == 0 && !environment) r = -ENOMEM;
    if (r == 0) r = container_words_write(plan->words, spec->tied, spec->argv, environment);
    snprintf(path, sizeof(path), "%s/" CONTAINER_BUNDLE "/start", spec->folder);
    char user[512];
    snprintf(user, sizeof(user), "%s", spec->user ? spec->user : "");
    char cwd[4096];
    snprintf(cwd, sizeof(cwd), "%s", spec->cwd && spec->cwd[0] ? spec->cwd : "/");
    char *const start[] = {user, cwd, NULL};
    AUTO_CLOSE int fd = r < 0 ? -1 : open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (r == 0 && fd < 0) r = -errno;
    if (r == 0) r = container_words_write(fd, false, start, environment);
    return r < 0 ? error_set(err, r, "what the sandbox is to run cannot be written down: %s", strerror(-r)) : 0;
}

static int place_layers(struct container_plan *plan, struct error *err) {
    int trees[CONTAINER_LAYERS_MAX + 1];
    size_t count = plan->spec->layer_count + 1;
    for (size_t i = 0; i < count; i++) trees[i] = -1;
    int r = clone_all(plan, trees, err); // before the tmpfs goes over a folder where some may be
    if (r == 0) r = attach_all(plan, trees, err);
    for (size_t i = 0; i < count; i++) mem_close_pointer(&trees[i]);
    return r;
}

int container_root_enter(struct container_plan *plan, struct error *err) {
    int r = choose_place(plan, err);
    if (r < 0) return r;
    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return fail(err, "no mount namespace for the sandbox");
    umask(022);
    r = cgroup_hide_second();
    if (r < 0) return error_set(err, r, "the cgroups of version 2 cannot be put aside for crun: %s", strerror(-r));
    r = place_layers(plan, err);
    if (r == 0) r = mount_overlay(plan, err);
    if (r == 0) r = container_user_find(plan->root, plan->spec->user ? plan->spec->user : "", &plan->user, err);
    if (r == 0) r = container_files_make(plan, err);
    if (r == 0) r = container_trust_make(plan, err);
    if (r == 0) r = write_words(plan, err);
    if (r == 0) r = container_config_write(plan, err);
    if (r == 0) r = mount_system(plan, err);
    return r;
}
