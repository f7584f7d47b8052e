// SPDX-License-Identifier: Apache-2.0
// crun makes the groups and sets their limits. What it would need a process for each time is done here: freezing, and the
// end, which has to work too when crun's own notes were never written.
#include "sandbox/cgroup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/number.h"
#include "sandbox/mountinfo.h"

#define CGROUP_WAIT_US UINT64_C(10000000)
#define CGROUP_MAX 32 // hierarchies
#define CGROUP_DEPTH 64

struct hierarchies {
    struct mountinfo mounts;
    const struct mountinfo_entry *entries[CGROUP_MAX];
    size_t count;
};

static bool is_second(const struct mountinfo_entry *entry) { return strcmp(entry->type, "cgroup2") == 0; }

static int hierarchies_read(struct hierarchies *all, struct error *err) {
    all->count = 0;
    int r = mountinfo_read(&all->mounts, err);
    for (size_t i = 0; r == 0 && i < all->mounts.count && all->count < CGROUP_MAX; i++) {
        const struct mountinfo_entry *entry = &all->mounts.entries[i];
        if (is_second(entry) || strcmp(entry->type, "cgroup") == 0) all->entries[all->count++] = entry;
    }
    return r;
}

static int write_file(const char *path, const char *text) {
    AUTO_CLOSE int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0) return -errno;
    return write(fd, text, strlen(text)) < 0 ? -errno : 0;
}

static bool file_says(const char *path, const char *text) {
    struct buf content = BUF_INIT;
    bool says = buf_read_file(&content, path, 4096) == 0 && content.data && strstr(content.data, text);
    buf_done(&content);
    return says;
}

// ---- for crun ----

int cgroup_hide_second(void) {
    struct hierarchies all;
    struct buf controllers = BUF_INIT;
    int r = hierarchies_read(&all, NULL);
    bool first = false;
    for (size_t i = 0; r == 0 && i < all.count; i++) first |= !is_second(all.entries[i]);
    for (size_t i = 0; r == 0 && first && i < all.count; i++)
        if (is_second(all.entries[i]) && umount2(all.entries[i]->point, MNT_DETACH) < 0) r = -errno;
    buf_done(&controllers);
    mountinfo_done(&all.mounts);
    return r;
}

bool cgroup_has_swap(void) {
    return access("/sys/fs/cgroup/memory/memory.memsw.limit_in_bytes", F_OK) == 0 ||
           (access("/sys/fs/cgroup/cgroup.controllers", F_OK) == 0 && access("/proc/swaps", F_OK) == 0);
}

// ---- freezing ----

static bool freezer_of(const struct mountinfo_entry *entry, const char *id, char path[PATH_MAX]) {
    const char *file = is_second(entry) ? "cgroup.freeze" : "freezer.state";
    int len = snprintf(path, PATH_MAX, "%s/" CGROUP_PARENT "/%s/%s", entry->point, id, file);
    return len < PATH_MAX && access(path, F_OK) == 0;
}

// Where the group's freezer is: that of version 1, if there is one, has the container's processes.
static int find_freezer(const char *id, char path[PATH_MAX], bool *ret_second, struct error *err) {
    struct hierarchies all;
    int r = hierarchies_read(&all, err);
    if (r < 0) return r;
    r = -ENOENT;
    for (int second = 0; r < 0 && second <= 1; second++) {
        for (size_t i = 0; r < 0 && i < all.count; i++) {
            if (is_second(all.entries[i]) != second || !freezer_of(all.entries[i], id, path)) continue;
            *ret_second = second;
            r = 0;
        }
    }
    mountinfo_done(&all.mounts);
    return r < 0 ? error_set(err, r, "the sandbox \"%s\" has no freezer; mount the cgroup controller \"freezer\"", id) : 0;
}

static bool is_frozen(const char *path, bool second, bool frozen) {
    char events[PATH_MAX + 16];
    if (!second) return file_says(path, frozen ? "FROZEN" : "THAWED");
    snprintf(events, sizeof(events), "%.*s/cgroup.events", (int)(strrchr(path, '/') - path), path);
    return file_says(events, frozen ? "frozen 1" : "frozen 0");
}

int cgroup_freeze(const char *id, bool frozen, struct error *err) {
    char path[PATH_MAX];
    bool second;
    int r = find_freezer(id, path, &second, err);
    if (r < 0) return r;
    const char *word = second ? (frozen ? "1" : "0") : frozen ? "FROZEN" : "THAWED";
    uint64_t end = clock_us() + CGROUP_WAIT_US;
    r = write_file(path, word);
    while (r == 0 && !is_frozen(path, second, frozen)) {
        if (clock_us() > end) r = -ETIMEDOUT;
        poll(NULL, 0, 1);
        if (!second) write_file(path, word); // version 1 may have to be asked again while processes come and go
    }
    if (r < 0 && frozen) write_file(path, second ? "0" : "THAWED");
    return r < 0 ? error_set(err, r, "the sandbox \"%s\" cannot be %s: %s", id, frozen ? "paused" : "resumed", strerror(-r)) : 0;
}

bool cgroup_is_frozen(const char *id) {
    char path[PATH_MAX];
    bool second;
    return find_freezer(id, path, &second, NULL) == 0 && is_frozen(path, second, true);
}

// ---- the end ----

bool cgroup_exists(const char *id) {
    struct hierarchies all;
    char path[PATH_MAX];
    bool exists = false;
    if (hierarchies_read(&all, NULL) < 0) return false;
    for (size_t i = 0; i < all.count; i++) {
        int len = snprintf(path, sizeof(path), "%s/" CGROUP_PARENT "/%s", all.entries[i]->point, id);
        exists |= len < PATH_MAX && access(path, F_OK) == 0;
    }
    mountinfo_done(&all.mounts);
    return exists;
}

static int open_folder(int at, const char *name) { return openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC); }

static void kill_listed(const struct buf *list) {
    for (const char *at = list->data; at && *at;) {
        uint64_t pid;
        size_t len = strcspn(at, "\n");
        if (number_parse(at, len, 2, INT_MAX, &pid) == 0) kill((pid_t)pid, SIGKILL);
        at += len + (at[len] == '\n');
    }
}

// Returns whether there was anybody. A frozen process of version 1 dies when it is let go.
static bool kill_all(int group) {
    struct buf list = BUF_INIT;
    AUTO_CLOSE int all = openat(group, "cgroup.kill", O_WRONLY | O_CLOEXEC);
    AUTO_CLOSE int processes = openat(group, "cgroup.procs", O_RDONLY | O_CLOEXEC);
    AUTO_CLOSE int freezer = openat(group, "freezer.state", O_WRONLY | O_CLOEXEC);
    if (processes >= 0) buf_read_fd(&list, processes, 1 << 20);
    bool any = list.len > 0;
    if (any && (all < 0 || write(all, "1", 1) < 0)) kill_listed(&list);
    if (freezer >= 0) (void)!write(freezer, "THAWED", 6);
    buf_done(&list);
    return any;
}

// A container cannot make groups of its own; what a later crun makes below is removed too.
static int remove_group(int parent, const char *name, int depth) {
    AUTO_CLOSE int group = open_folder(parent, name);
    if (group < 0) return errno == ENOENT ? 0 : -errno;
    bool any = kill_all(group);
    int copy = fcntl(group, F_DUPFD_CLOEXEC, 3);
    DIR *folder = copy < 0 ? NULL : fdopendir(copy);
    for (struct dirent *entry; folder && depth < CGROUP_DEPTH && (entry = readdir(folder)) != NULL;)
        if (entry->d_type == DT_DIR && entry->d_name[0] != '.') remove_group(group, entry->d_name, depth + 1);
    if (folder) closedir(folder);
    else if (copy >= 0) close(copy);
    if (any) return -EBUSY;
    return unlinkat(parent, name, AT_REMOVEDIR) < 0 && errno != ENOENT ? -errno : 0;
}

static int remove_once(const struct hierarchies *all, const char *id) {
    int result = 0;
    for (size_t i = 0; i < all->count; i++) {
        char path[PATH_MAX];
        if (snprintf(path, sizeof(path), "%s/" CGROUP_PARENT, all->entries[i]->point) >= PATH_MAX) continue;
        AUTO_CLOSE int parent = open_folder(AT_FDCWD, path);
        int r = parent < 0 ? 0 : remove_group(parent, id, 0);
        if (r < 0) result = r;
    }
    return result;
}

void cgroup_kill(const char *id) {
    struct hierarchies all;
    if (hierarchies_read(&all, NULL) < 0) return;
    remove_once(&all, id);
    mountinfo_done(&all.mounts);
}

int cgroup_remove(const char *id, struct error *err) {
    struct hierarchies all;
    uint64_t end = clock_us() + CGROUP_WAIT_US;
    int r = hierarchies_read(&all, err);
    if (r < 0) return r;
    while ((r = remove_once(&all, id)) < 0 && clock_us() < end) poll(NULL, 0, 2);
    mountinfo_done(&all.mounts);
    return r < 0 ? error_set(err, r, "the cgroup of \"%s\" cannot be removed: %s", id, strerror(-r)) : 0;
}
