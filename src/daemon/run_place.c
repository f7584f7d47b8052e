// SPDX-License-Identifier: Apache-2.0
// Where `penstock run` keeps what a container needs: images beside the node's, which are the same ones, and a folder a run
// below run/. A run that was killed leaves its folder, and maybe groups of processes; the next one removes them.
//
// Whoever makes a folder or looks for old ones holds a lock on run/ meanwhile, and every run holds one on its own folder until
// it is gone; so what nobody holds is nobody's.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "daemon/run_state.h"
#include "vault/vault.h"

static int place_path(const char *above, const char *name, char **ret_path, struct error *err) {
    if (asprintf(ret_path, "%s/%s", above, name) >= 0) return 0;
    *ret_path = NULL;
    return error_set(err, -ENOMEM, "out of memory");
}

// private: nobody else may look into it either.
static int place_check(const char *path, bool private, struct error *err) {
    struct stat status;
    if (lstat(path, &status) < 0) return error_set(err, -errno, "\"%s\": %s", path, strerror(errno));
    if (S_ISDIR(status.st_mode) && status.st_uid == geteuid() && !(status.st_mode & (private ? 077 : 022))) return 0;
    return error_set(err, -EPERM, "\"%s\" is not a folder of yours alone: chown root and chmod 700 it", path);
}

static int place_make(const char *path, struct error *err) {
    if (mkdir(path, 0700) < 0 && errno != EEXIST) return error_set(err, -errno, "\"%s\" cannot be made: %s", path, strerror(errno));
    return place_check(path, true, err);
}

// Taken only where nobody holds it.
static int place_lock(int folder, const char *name, int kind) {
    AUTO_CLOSE int fd = openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || flock(fd, kind | LOCK_NB) < 0) return -errno;
    return TAKE_FD(fd);
}

// What cannot be removed is tried again by the next run.
static void place_sweep(const char *runs, int folder) {
    AUTO_CLOSE int copy = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = copy < 0 ? NULL : fdopendir(copy);
    if (!list) return;
    copy = -1; // closedir's
    for (struct dirent *entry; (entry = readdir(list));) {
        AUTO_FREE char *path = NULL;
        struct error err = {0};
        int lock = entry->d_name[0] == '.' ? -1 : place_lock(folder, entry->d_name, LOCK_EX);
        if (lock < 0) continue;
        close(lock);
        if (place_path(runs, entry->d_name, &path, &err) < 0 || sandbox_container_clean(entry->d_name, path, &err) < 0)
            fprintf(stderr, "penstock: what is left of a sandbox that was killed: %s\n", err.text);
    }
    closedir(list);
}

int run_place_take(struct run_place *place, const char *name, struct error *err) {
    const char *runs = place->runs;
    AUTO_CLOSE int folder = open(runs, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (folder < 0 || flock(folder, LOCK_EX) < 0) return error_set(err, -errno, "\"%s\" cannot be locked: %s", runs, strerror(errno));
    place_sweep(runs, folder);
    int rc = place_path(runs, name, &place->folder, err);
    if (rc < 0) return rc;
    if (mkdir(place->folder, 0700) < 0) {
        rc = error_set(err, -errno, "\"%s\" cannot be made: %s", place->folder, strerror(errno));
        free(TAKE_POINTER(place->folder)); // another one's
        return rc;
    }
    place->lock = place_lock(folder, name, LOCK_SH);
    return place->lock < 0 ? error_set(err, place->lock, "\"%s\" cannot be locked: %s", place->folder, strerror(-place->lock)) : 0;
}

int run_place_open(struct run_place *ret_place, struct error *err) {
    AUTO_FREE char *state = NULL, *node = NULL;
    struct run_place place = {.lock = -1};
    int rc = vault_state_folder(true, &state, err);
    if (rc == 0) rc = place_check(state, false, err);
    if (rc == 0) rc = place_path(state, "node", &node, err);
    if (rc == 0) rc = place_make(node, err);
    if (rc == 0) rc = place_path(node, "images", &place.images, err);
    if (rc == 0) rc = place_make(place.images, err);
    if (rc == 0) rc = place_path(state, "run", &place.runs, err);
    if (rc == 0) rc = place_make(place.runs, err);
    if (rc < 0) run_place_close(&place);
    else *ret_place = place;
    return rc;
}

void run_place_close(struct run_place *place) {
    if (place->folder) rmdir(place->folder);
    if (place->lock >= 0) close(place->lock);
    free(place->folder);
    free(place->images);
    free(place->runs);
    *place = (struct run_place){.lock = -1};
}
