// SPDX-License-Identifier: Apache-2.0
#include "vault/state_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/random.h"

#define LOCK_WAIT_US 10000000

static int state_path(char ret_path[PATH_MAX], struct error *err) {
    static const char variable[] = "PENSTOCK_STATE_FOLDER";
    const char *given = getenv(variable), *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    int len;
    if (given && *given && *given != '/')
        return error_set(err, -EINVAL, "%s=\"%s\" is not an absolute path; write one", variable, given);
    if (given && *given)
        len = snprintf(ret_path, PATH_MAX, "%s", given);
    else if (geteuid() == 0)
        len = snprintf(ret_path, PATH_MAX, "/var/lib/penstock");
    else if (state && *state == '/')
        len = snprintf(ret_path, PATH_MAX, "%s/penstock", state);
    else if (home && *home == '/')
        len = snprintf(ret_path, PATH_MAX, "%s/.local/state/penstock", home);
    else
        return error_set(err, -ENOENT, "no place for keys: HOME is not set; set it, or XDG_STATE_HOME");
    if (len >= PATH_MAX - NAME_MAX) return error_set(err, -ENAMETOOLONG, "the path of the state folder is too long");
    return 0;
}

// Each folder of the path that is missing, from the top.
static void make_folders(const char *path) {
    char part[PATH_MAX];
    for (size_t i = 1; path[i - 1]; i++) {
        if (path[i] != '/' && path[i] != '\0') continue;
        memcpy(part, path, i);
        part[i] = '\0';
        mkdir(part, 0700);
    }
}

int state_folder_path(bool make, char ret_path[PATH_MAX], struct error *err) {
    int r = state_path(ret_path, err);
    if (r == 0 && make) make_folders(ret_path);
    return r;
}

static int check_folder(int fd, const char *path, struct error *err) {
    struct stat status;
    if (fstat(fd, &status) < 0) return error_set(err, -errno, "\"%s\": %s", path, strerror(errno));
    if (status.st_uid != geteuid())
        return error_set(err, -EPERM,
                         "\"%s\" belongs to user %u, not to %u; keys are not kept there: chown it, or set "
                         "XDG_STATE_HOME",
                         path, status.st_uid, geteuid());
    if (status.st_mode & (S_IWGRP | S_IWOTH))
        return error_set(err, -EPERM, "\"%s\" can be changed by others (mode %04o); run: chmod go-w '%s'", path,
                         status.st_mode & 07777, path);
    return 0;
}

int state_folder_open(const char *name, bool make, struct state_folder *ret_folder, struct error *err) {
    struct state_folder folder;
    int r = state_folder_path(make, folder.path, err);
    if (r < 0) return r;
    AUTO_CLOSE int above = open(folder.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (above < 0 && errno == ENOENT && !make) return -ENOENT;
    if (above < 0) return error_set(err, -errno, "state folder \"%s\": %s", folder.path, strerror(errno));
    r = check_folder(above, folder.path, err);
    if (r < 0) return r;
    if (make && mkdirat(above, name, 0700) < 0 && errno != EEXIST)
        return error_set(err, -errno, "cannot make folder \"%s\" in \"%s\": %s", name, folder.path, strerror(errno));
    AUTO_CLOSE int fd = openat(above, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT) return -ENOENT;
    size_t len = strlen(folder.path);
    snprintf(folder.path + len, sizeof(folder.path) - len, "/%s", name);
    if (fd < 0) return error_set(err, -errno, "state folder \"%s\": %s", folder.path, strerror(errno));
    r = check_folder(fd, folder.path, err);
    if (r < 0) return r;
    folder.fd = TAKE_FD(fd);
    *ret_folder = folder;
    return 0;
}

void state_folder_close(struct state_folder *folder) {
    if (folder->fd >= 0) close(folder->fd);
    folder->fd = -1;
}

int state_folder_lock(const struct state_folder *folder, struct error *err) {
    AUTO_CLOSE int fd = openat(folder->fd, ".lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) return error_set(err, -errno, "cannot lock \"%s\": %s", folder->path, strerror(errno));
    for (uint64_t end = clock_us() + LOCK_WAIT_US; flock(fd, LOCK_EX | LOCK_NB) < 0;) {
        if ((errno != EWOULDBLOCK && errno != EINTR) || clock_us() > end)
            return error_set(err, -errno, "cannot lock \"%s\": %s; another penstock holds it: end that one",
                             folder->path, strerror(errno));
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
    return TAKE_FD(fd);
}

int state_folder_check(int fd, uid_t owner, const char *path, struct error *err) {
    struct stat status;
    if (fstat(fd, &status) < 0) return error_set(err, -errno, "\"%s\": %s", path, strerror(errno));
    if (!S_ISREG(status.st_mode)) return error_set(err, -EPERM, "\"%s\" is not a regular file; remove it", path);
    if (status.st_uid != owner)
        return error_set(err, -EPERM, "\"%s\" belongs to user %u, not to %u; run: chown %u '%s'", path, status.st_uid,
                         owner, owner, path);
    if (status.st_mode & 077)
        return error_set(err, -EPERM,
                         "\"%s\" is open to others (mode %04o), who may know it; if they do not, run: chmod "
                         "600 '%s', else remove it",
                         path, status.st_mode & 07777, path);
    return 0;
}

static int read_all(int fd, uint8_t *bytes, size_t size, size_t *ret_len) {
    size_t len = 0;
    for (;;) {
        uint8_t more;
        ssize_t got = len < size ? read(fd, bytes + len, size - len) : read(fd, &more, 1);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return -errno;
        if (got > 0 && len == size) return -EFBIG;
        if (got == 0) {
            *ret_len = len;
            return 0;
        }
        len += (size_t)got;
    }
}

int state_folder_read(const struct state_folder *folder, const char *name, void *bytes, size_t size, size_t *ret_len,
                      struct error *err) {
    char path[PATH_MAX + NAME_MAX];
    snprintf(path, sizeof(path), "%s/%s", folder->path, name);
    AUTO_CLOSE int fd = openat(folder->fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT) return -ENOENT;
    if (fd < 0) return error_set(err, -errno, "\"%s\": %s", path, strerror(errno));
    int r = state_folder_check(fd, geteuid(), path, err);
    if (r < 0) return r;
    r = read_all(fd, bytes, size, ret_len);
    return r < 0 ? error_set(err, r, "\"%s\": %s", path, strerror(-r)) : 0;
}

static int write_all(int fd, const uint8_t *bytes, size_t len) {
    while (len > 0) {
        ssize_t written = write(fd, bytes, len);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) return -errno;
        bytes += written;
        len -= (size_t)written;
    }
    return fsync(fd) < 0 ? -errno : 0;
}

int state_folder_write(const struct state_folder *folder, const char *name, const void *bytes, size_t len,
                       struct error *err) {
    char temporary[32];
    snprintf(temporary, sizeof(temporary), ".new-%08x%08x", random_u32(), random_u32());
    AUTO_CLOSE int fd = openat(folder->fd, temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    int r = fd < 0 || fchmod(fd, 0600) < 0 ? -errno : write_all(fd, bytes, len); // whatever the umask is
    if (r == 0 && renameat(folder->fd, temporary, folder->fd, name) < 0) r = -errno;
    if (fd >= 0 && r < 0) unlinkat(folder->fd, temporary, 0);
    if (r == 0 && fsync(folder->fd) < 0) r = -errno;
    return r < 0 ? error_set(err, r, "cannot write \"%s/%s\": %s", folder->path, name, strerror(-r)) : 0;
}
