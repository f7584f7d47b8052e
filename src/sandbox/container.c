// SPDX-License-Identifier: Apache-2.0
// The life of a container. `crun run --detach` makes it, with a program of ours as its first process (container_init.c), so
// what crun takes two processes for (create, start) takes one: start is a packet on a socket. All that is done
// later, except that commands are started by `crun exec`, needs no crun: signals by a pidfd, freezing and the end by the
// cgroups. That way the end works for whatever a create that was killed has left.
//
// The user namespace is not the keeper's but one beside it: root inside has no right at all over the network namespace, and
// the numbers of its users are no one else's.
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"
#include "sandbox/cgroup.h"
#include "sandbox/container_plan.h"
#include "sandbox/container_range.h"
#include "sandbox/container_state.h"
#include "sandbox/tool.h"
#include "sandbox/tree.h"
#include "sandbox/user_map.h"

#define PID_FILE CONTAINER_BUNDLE "/pid" // crun writes it
#define END_TIMEOUT_MS 10000
#define CLEAN_TIMEOUT_MS 3000 // for a crun whose caller was killed

static const char *const parts[] = {CONTAINER_BUNDLE, CONTAINER_STATE, CONTAINER_DISK};

// ---- checks ----

static int check_id(const char *id, struct error *err) {
    size_t len = id ? strlen(id) : 0;
    bool good = len > 0 && len <= 64 &&
                strspn(id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") == len;
    return good ? 0 : error_set(err, -EINVAL, "expected an id of 1 to 64 letters, digits, '-' and '_', got \"%s\"", id ? id : "");
}

static int check_folder(const char *folder, struct error *err) {
    struct stat st;
    if (!folder || folder[0] != '/' || strlen(folder) > CONTAINER_PATH_MAX || strpbrk(folder, "\"\\,:\n"))
        return error_set(err, -EINVAL, "expected an absolute path without quotes, commas and colons, got \"%s\"", folder ? folder : "");
    if (lstat(folder, &st) < 0 || !S_ISDIR(st.st_mode))
        return error_set(err, -ENOENT, "the sandbox's folder \"%s\" is not there; make it", folder);
    if (st.st_uid == 0 && (st.st_mode & 077) == 0) return 0;
    return error_set(err, -EPERM, "the sandbox's folder \"%s\" is open to others; chown root and chmod 700 it", folder);
}

static int check_root(struct error *err) {
    if (geteuid() == 0) return 0;
    return error_set(err, -EPERM, "containers need root: cgroups, ranges of users, and overlays of layers that belong to several "
                     "users; run penstock as root, or use the type process");
}

static int check_spec(const struct sandbox_container_spec *spec, struct error *err) {
    int r = check_root(err);
    if (r == 0) r = check_id(spec->id, err);
    if (r == 0) r = check_folder(spec->folder, err);
    if (r < 0) return r;
    if (cgroup_exists(spec->id)) // its end would be that of another one
        return error_set(err, -EEXIST, "there is a sandbox \"%s\" already, or what is left of one; clean it, or take another id", spec->id);
    if (spec->layer_count == 0 || spec->layer_count > CONTAINER_LAYERS_MAX)
        return error_set(err, -EINVAL, "expected 1 to %d layers, got %zu; make a template of the sandbox's image",
                         CONTAINER_LAYERS_MAX, spec->layer_count);
    if (spec->cwd && spec->cwd[0] && (spec->cwd[0] != '/' || strlen(spec->cwd) >= CONTAINER_PATH_MAX))
        return error_set(err, -EINVAL, "expected an absolute working directory, got \"%s\"", spec->cwd);
    const char *host = spec->hostname ? spec->hostname : spec->id;
    if (strlen(host) > 64 || strspn(host, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") != strlen(host))
        return error_set(err, -EINVAL, "expected a host name of at most 64 letters, digits, '-', '_' and '.', got \"%s\"", host);
    return 0;
}

// ---- create ----

static int make_disk(const struct sandbox_container_spec *spec, int disk, struct error *err) {
    struct stat top;
    const char *what = spec->layers[0];
    // The upper folder is the root that is seen: it is as that of the layer below.
    if (stat(what, &top) < 0 || !S_ISDIR(top.st_mode))
        return error_set(err, errno ? -errno : -ENOTDIR, "the layer \"%s\" cannot be used: %s; make the template again", what,
                         strerror(errno ? errno : ENOTDIR));
    if (mkdirat(disk, "upper", 0700) < 0 || mkdirat(disk, "work", 0700) < 0 ||
        fchownat(disk, "upper", top.st_uid, top.st_gid, AT_SYMLINK_NOFOLLOW) < 0 ||
        fchmodat(disk, "upper", top.st_mode & 07777, 0) < 0 ||
        fchownat(disk, "work", CONTAINER_DISK_BASE, CONTAINER_DISK_BASE, AT_SYMLINK_NOFOLLOW) < 0)
        return error_set(err, -errno, "the sandbox's disk cannot be made: %s", strerror(errno));
    return 0;
}

static int make_folders(const struct sandbox_container_spec *spec, struct error *err) {
    AUTO_CLOSE int folder = open(spec->folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    for (size_t i = 0; i < ARRAY_LENGTH(parts); i++)
        if (mkdirat(folder, parts[i], 0700) < 0)
            return error_set(err, -errno, "\"%s/%s\" cannot be made: %s", spec->folder, parts[i], strerror(errno));
    AUTO_CLOSE int disk = openat(folder, CONTAINER_DISK, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (disk < 0 || fchown(disk, CONTAINER_DISK_BASE, CONTAINER_DISK_BASE) < 0)
        return error_set(err, -errno, "the sandbox's disk cannot be made: %s", strerror(errno));
    return make_disk(spec, disk, err);
}

static int enter_root(void *data, struct error *err) { return container_root_enter(data, err); }

static int run_crun(struct sandbox_container *container, struct container_plan *plan, const int fds[5], struct error *err) {
    char bundle[4096], pid[4096];
    snprintf(bundle, sizeof(bundle), "--bundle=%s/" CONTAINER_BUNDLE, container->folder);
    snprintf(pid, sizeof(pid), "--pid-file=%s/" PID_FILE, container->folder);
    char run[] = "run", detach[] = "--detach", preserve[] = "--preserve-fds=5";
    char *const arguments[] = {run, detach, preserve, bundle, pid, container->id, NULL};
    return container_call(container, arguments, fds, 5, enter_root, plan, err);
}

// Its own processes take a while to end after the container's first has said that it is there. If that is not seen, its end is
// waited for.
static int await_crun(struct sandbox_container *container, bool early, struct error *err) {
    char path[4096];
    if (early && tool_await(container->crun, container->status) &&
        container_reported(container->status, &container->pid, &container->pidfd)) {
        tool_leaves(container->crun, container->pid);
        return 0;
    }
    snprintf(path, sizeof(path), "%s/" PID_FILE, container->folder);
    int r = sandbox_container_settle(container, err);
    return r < 0 ? r : container_child(path, NULL, &container->pid, &container->pidfd, err);
}

static int launch(struct sandbox_container *container, struct container_plan *plan, struct error *err) {
    int pair[2], streams[3];
    int r = container_channel(pair, &plan->words, err);
    if (r < 0) return r;
    container->status = pair[0];
    r = container_streams(plan->spec->stdio, streams, err);
    if (r == 0) {
        const int fds[5] = {pair[1], plan->words, streams[0], streams[1], streams[2]};
        r = run_crun(container, plan, fds, err);
        for (int i = 0; i < 3; i++) close(streams[i]);
    }
    close(pair[1]);
    close(plan->words);
    if (r == 0) r = await_crun(container, plan->spec->early, err);
    if (r == 0) r = container_await(container->status, err);
    return r == 0 ? container_verify(container->pid, 0, plan->net_namespace, err) : r;
}

struct users { // that nobody else has
    uint32_t base;
    int claim, map;
};

static struct users users_ahead = {.claim = -1, .map = -1};

static int take_users(struct users *ret_users, struct error *err) {
    if (users_ahead.map >= 0) {
        *ret_users = users_ahead;
        users_ahead.map = users_ahead.claim = -1;
        return 0;
    }
    struct users users = {.claim = -1, .map = -1};
    int r = container_range_claim(&users.base, &users.claim, err);
    if (r < 0) return r;
    const struct user_map map = {.uid = CONTAINER_DISK_BASE, .uid_to = users.base, .gid = CONTAINER_DISK_BASE, .gid_to = users.base,
                                 .count = CONTAINER_USERS};
    users.map = user_map_open(&map);
    if (users.map < 0) {
        close(users.claim);
        return error_set(err, users.map, "no numbers of users for the sandbox: %s; allow user namespaces, and run penstock where "
                         "all numbers are mapped", strerror(-users.map));
    }
    *ret_users = users;
    return 0;
}

void sandbox_container_ahead(void) {
    struct users users;
    struct error ignored;
    if (geteuid() == 0 && users_ahead.map < 0 && take_users(&users, &ignored) == 0) users_ahead = users;
    tool_ahead("crun");
}

static int create(struct sandbox_container *container, const struct sandbox_container_spec *spec, int net_namespace, struct error *err) {
    struct container_plan plan = {.spec = spec, .map = -1, .net_namespace = net_namespace, .words = -1, .root = -1, .files = -1};
    struct users users;
    int r = take_users(&users, err);
    if (r < 0) return r;
    container->claim = users.claim;
    plan.base = users.base;
    plan.map = users.map;
    r = make_folders(spec, err);
    if (r < 0) {
        close(plan.map);
        return r;
    }
    r = launch(container, &plan, err);
    close(plan.map);
    return r;
}

// kind: LOCK_SH for who uses a container, LOCK_EX for who takes it away.
static int take_lock(const char *folder, int kind, unsigned wait_ms, int *ret_lock, struct error *err) {
    AUTO_CLOSE int fd = open(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) return error_set(err, -errno, "\"%s\" cannot be opened: %s", folder, strerror(errno));
    for (unsigned waited = 0; flock(fd, kind | LOCK_NB) < 0; waited++) {
        if (errno != EWOULDBLOCK || waited >= wait_ms)
            return error_set(err, -EBUSY, "\"%s\" is in use by another process; end that first", folder);
        poll(NULL, 0, 1);
    }
    *ret_lock = TAKE_FD(fd);
    return 0;
}

static int container_new(const char *id, const char *folder, struct sandbox_container **ret_container) {
    struct sandbox_container *container = NEW(struct sandbox_container);
    if (!container) return -ENOMEM;
    *container = (struct sandbox_container){.id = strdup(id), .folder = strdup(folder), .pidfd = -1, .status = -1, .claim = -1, .lock = -1};
    *ret_container = container;
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); // what crun starts becomes our child
    return container->id && container->folder ? 0 : -ENOMEM;
}

static void container_done(struct sandbox_container *container) {
    mem_close_pointer(&container->pidfd);
    mem_close_pointer(&container->status);
    mem_close_pointer(&container->claim);
    mem_close_pointer(&container->lock);
    for (size_t i = 0; i < container->command_count; i++) close(container->commands[i]);
    free(container->commands);
    free(container->id);
    free(container->folder);
    free(container->command);
    free(container);
}

int sandbox_container_create(const struct sandbox_container_spec *spec, int user_namespace, int net_namespace,
                             struct sandbox_container **ret_container, struct error *err) {
    struct sandbox_container *container = NULL;
    (void)user_namespace; // only the keeper is in it
    int r = check_spec(spec, err);
    if (r < 0) return r;
    r = container_new(spec->id, spec->folder, &container);
    if (r < 0) {
        if (container) container_done(container);
        return error_set(err, r, "out of memory");
    }
    if (spec->argv && spec->argv[0]) container->command = strdup(spec->argv[0]);
    r = take_lock(spec->folder, LOCK_SH, 0, &container->lock, err);
    if (r < 0) {
        container_done(container); // what is there belongs to another
        return r;
    }
    r = create(container, spec, net_namespace, err);
    if (r < 0) sandbox_container_free(container);
    else *ret_container = container;
    return r;
}

int sandbox_container_open(const char *id, const char *folder, struct sandbox_container **ret_container, struct error *err) {
    struct sandbox_container *container = NULL;
    char path[4096];
    int r = check_root(err);
    if (r == 0) r = check_id(id, err);
    if (r == 0) r = check_folder(folder, err);
    if (r < 0) return r;
    r = container_new(id, folder, &container);
    snprintf(path, sizeof(path), "%s/" PID_FILE, folder);
    if (r < 0) error_set(err, r, "out of memory");
    if (r == 0) r = take_lock(folder, LOCK_SH, 0, &container->lock, err);
    if (r == 0) r = container_child(path, id, &container->pid, &container->pidfd, err);
    if (r == 0) *ret_container = container;
    else if (container) container_done(container);
    return r;
}

// ---- life ----

int sandbox_container_start(struct sandbox_container *container, struct error *err) {
    if (container->status < 0) return error_set(err, -EALREADY, "the sandbox \"%s\" runs already", container->id);
    int r = container_release(container->status, container->command, err);
    close(TAKE_FD(container->status));
    return r;
}

pid_t sandbox_container_pid(const struct sandbox_container *container) { return container->pid; }

int sandbox_container_signal(struct sandbox_container *container, int signal) {
    return syscall(SYS_pidfd_send_signal, container->pidfd, signal, NULL, 0) < 0 ? -errno : 0;
}

int sandbox_container_pause(struct sandbox_container *container, struct error *err) { return cgroup_freeze(container->id, true, err); }

int sandbox_container_resume(struct sandbox_container *container, struct error *err) { return cgroup_freeze(container->id, false, err); }

static int copy_upper(const struct sandbox_container *container, const char *layer_folder, struct error *err) {
    char path[4096];
    const char *slash = layer_folder[0] == '/' ? strrchr(layer_folder, '/') : NULL;
    if (!slash || !slash[1] || strlen(slash) > 200)
        return error_set(err, -EINVAL, "expected an absolute path of a new folder, got \"%s\"", layer_folder);
    snprintf(path, sizeof(path), "%.*s/", (int)(slash - layer_folder), layer_folder);
    AUTO_CLOSE int parent = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    snprintf(path, sizeof(path), "%s/" CONTAINER_DISK "/upper", container->folder);
    AUTO_CLOSE int upper = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (parent < 0 || upper < 0) return error_set(err, -errno, "\"%s\" cannot be copied to \"%s\": %s", path, layer_folder, strerror(errno));
    snprintf(path, sizeof(path), "%s.part", slash + 1);
    int r = tree_remove(parent, path);
    if (r < 0) return error_set(err, r, "\"%s\" cannot be removed: %s", path, strerror(-r));
    r = tree_copy(upper, parent, path, err);
    if (r == 0 && (syncfs(parent) < 0 || renameat2(parent, path, parent, slash + 1, RENAME_NOREPLACE) < 0))
        r = error_set(err, -errno, "\"%s\" cannot be made: %s", layer_folder, strerror(errno));
    if (r < 0) tree_remove(parent, path);
    return r;
}

int sandbox_container_snapshot(struct sandbox_container *container, const char *layer_folder, struct error *err) {
    bool frozen = cgroup_is_frozen(container->id);
    int r = frozen ? 0 : cgroup_freeze(container->id, true, err);
    if (r < 0) return r;
    r = copy_upper(container, layer_folder, err);
    if (r < 0) error_context(err, r, "no snapshot of \"%s\"", container->id);
    struct error resumed;
    if (!frozen && cgroup_freeze(container->id, false, &resumed) < 0 && r == 0) {
        r = error_set(err, -EIO, "%s", resumed.text);
    }
    return r;
}

int sandbox_container_drop(const char *layer_folder, struct error *err) {
    int r = tree_remove(AT_FDCWD, layer_folder);
    return r < 0 ? error_set(err, r, "\"%s\" cannot be removed: %s", layer_folder, strerror(-r)) : 0;
}

// ---- the end ----

static int remove_parts(const char *folder, struct error *err) {
    AUTO_CLOSE int fd = open(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int result = fd < 0 && errno != ENOENT ? -errno : 0;
    for (size_t i = 0; fd >= 0 && i < ARRAY_LENGTH(parts); i++) {
        int r = tree_remove(fd, parts[i]);
        if (r < 0) result = r;
    }
    return result < 0 ? error_set(err, result, "\"%s\" cannot be emptied: %s", folder, strerror(-result)) : 0;
}

// Bounded: a process that the kernel cannot end must not hold us; its groups are then left for clean.
static void reap(int pidfd) {
    siginfo_t info;
    struct pollfd end = {.fd = pidfd, .events = POLLIN};
    if (poll(&end, 1, END_TIMEOUT_MS) > 0) waitid(P_PIDFD, (id_t)pidfd, &info, WEXITED); // -ECHILD if the caller has waited for it
}

void sandbox_container_free(struct sandbox_container *container) {
    if (!container) return;
    mem_close_pointer(&container->status); // an init that waits for its release ends
    container->status = -1;
    if (container->crun) tool_stop(TAKE_POINTER(container->crun));
    cgroup_kill(container->id);
    if (container->pidfd >= 0) sandbox_container_signal(container, SIGKILL);
    for (size_t i = 0; i < container->command_count; i++) reap(container->commands[i]);
    if (container->pidfd >= 0) reap(container->pidfd);
    cgroup_remove(container->id, NULL);
    remove_parts(container->folder, NULL);
    container_done(container);
}

int sandbox_container_clean(const char *id, const char *folder, struct error *err) {
    int r = check_root(err);
    if (r == 0) r = check_id(id, err);
    if (r < 0) return r;
    if (!folder || folder[0] != '/' || !folder[1]) return error_set(err, -EINVAL, "expected an absolute path, got \"%s\"", folder ? folder : "");
    AUTO_CLOSE int lock = -1;
    if (access(folder, F_OK) == 0) r = take_lock(folder, LOCK_EX, CLEAN_TIMEOUT_MS, &lock, err);
    if (r == 0) r = cgroup_remove(id, err);
    if (r < 0) return r;
    r = tree_remove(AT_FDCWD, folder);
    return r < 0 ? error_set(err, r, "\"%s\" cannot be removed: %s", folder, strerror(-r)) : 0;
}
