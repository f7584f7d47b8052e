// SPDX-License-Identifier: Apache-2.0
// An ordinary user maps itself. Root asks for another user: the maps are then written from outside, by a helper forked
// before, since a process that has left its user namespace has lost the right to write them; after that the process takes
// the identity. Nothing is executed in between, so the capabilities in the new namespace stay.
#include "net/namespace.h"

#include <cap-ng.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "base/mem.h"

static int namespace_write(pid_t pid, const char *file, const char *text) {
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, file);
    AUTO_CLOSE int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0) return -errno;
    return write(fd, text, strlen(text)) < 0 ? -errno : 0;
}

// setgroups first: it cannot be denied once the group map is there (user_namespaces(7)).
static int namespace_map(pid_t pid, uid_t uid, gid_t gid) {
    char map[64];
    int result = namespace_write(pid, "setgroups", "deny");
    if (result < 0) return result;
    snprintf(map, sizeof(map), "%u %u 1", (unsigned)gid, (unsigned)gid);
    result = namespace_write(pid, "gid_map", map);
    if (result < 0) return result;
    snprintf(map, sizeof(map), "%u %u 1", (unsigned)uid, (unsigned)uid);
    return namespace_write(pid, "uid_map", map);
}

static int namespace_unshare(struct error *err) {
    if (unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0) return 0;
    int result = -errno;
    const char *fix = "see penstock doctor";
    if (result == -EPERM)
        fix = "allow them: sysctl kernel.unprivileged_userns_clone=1 (Debian), an AppArmor profile with \"userns,\" (Ubuntu), "
              "or leave the container that forbids them";
    if (result == -ENOSPC || result == -EUSERS) fix = "raise sysctl user.max_user_namespaces and user.max_net_namespaces";
    if (result == -EINVAL || result == -ENOSYS) fix = "use a kernel with CONFIG_USER_NS and CONFIG_NET_NS";
    return error_set(err, result, "cannot make a user and network namespace: %s; %s", strerror(-result), fix);
}

static int namespace_map_error(struct error *err, int result) {
    return error_set(err, result,
                     "cannot map the user into its namespace: %s; mount /proc, and allow user namespaces for this user",
                     strerror(-result));
}

// ---- root ----

// Waits for a byte, writes the maps of pid, answers with the result.
static void namespace_helper(int channel, pid_t pid, uid_t uid, gid_t gid) {
    char byte;
    if (read(channel, &byte, 1) != 1) _exit(1);
    int result = namespace_map(pid, uid, gid);
    _exit(write(channel, &result, sizeof(result)) == (ssize_t)sizeof(result) ? 0 : 1);
}

static int namespace_identity(uid_t uid, gid_t gid, struct error *err) {
    // With no root in the namespace a change of user keeps capabilities anyway; this says so.
    prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0);
    if (setresgid(gid, gid, gid) == 0 && setresuid(uid, uid, uid) == 0) return 0;
    return error_set(err, -errno, "cannot become user %u, group %u: %s", (unsigned)uid, (unsigned)gid, strerror(errno));
}

static int namespace_enter_root(uid_t uid, gid_t gid, struct error *err) {
    int pair[2];
    pid_t self = getpid();

    if (setgroups(0, NULL) < 0)
        return error_set(err, -errno, "cannot drop root's groups: %s; run with CAP_SETGID and CAP_SETUID", strerror(errno));
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return error_set(err, -errno, "cannot make a socket pair: %s; raise the limit (ulimit -n)", strerror(errno));
    pid_t helper = fork();
    if (helper == 0) {
        close(pair[0]);
        namespace_helper(pair[1], self, uid, gid);
    }
    int result = helper < 0 ? error_set(err, -errno, "cannot fork: %s", strerror(errno)) : 0;
    close(pair[1]);
    if (result == 0) result = namespace_unshare(err);
    if (result == 0) {
        int answer = -EPIPE;
        if (write(pair[0], "", 1) != 1 || read(pair[0], &answer, sizeof(answer)) != (ssize_t)sizeof(answer)) answer = -EPIPE;
        if (answer < 0) result = namespace_map_error(err, answer);
    }
    close(pair[0]);
    if (helper > 0)
        while (waitpid(helper, NULL, 0) < 0 && errno == EINTR) {}
    return result < 0 ? result : namespace_identity(uid, gid, err);
}

// ---- anybody ----

static int namespace_enter_self(uid_t uid, gid_t gid, struct error *err) {
    if (uid != geteuid() || gid != getegid())
        return error_set(err, -EPERM, "expected user %u, group %u, the one who runs this, got %u, %u; only root can ask for another",
                         (unsigned)geteuid(), (unsigned)getegid(), (unsigned)uid, (unsigned)gid);
    prctl(PR_SET_DUMPABLE, 1, 0, 0, 0); // else /proc/self belongs to root
    int result = namespace_unshare(err);
    if (result < 0) return result;
    result = namespace_map(getpid(), uid, gid);
    return result < 0 ? namespace_map_error(err, result) : 0;
}

int namespace_enter(uid_t uid, gid_t gid, struct error *err) {
    int result = geteuid() == 0 && uid != 0 ? namespace_enter_root(uid, gid, err) : namespace_enter_self(uid, gid, err);
    if (result < 0) return result;
    if (capng_get_caps_process() == 0 && capng_have_capability(CAPNG_EFFECTIVE, CAP_NET_ADMIN) &&
        capng_have_capability(CAPNG_EFFECTIVE, CAP_NET_RAW))
        return 0;
    return error_set(err, -EPERM,
                     "user namespaces give no capabilities here; allow them with an AppArmor profile that has \"userns,\" or "
                     "sysctl kernel.apparmor_restrict_unprivileged_userns=0");
}
