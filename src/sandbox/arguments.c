// SPDX-License-Identifier: Apache-2.0
// Mounts are made in the order of the options, a later one over an earlier: private tmpfs, the system's folders, the
// empty home folder, what the user shares from the outside in, the files of /etc, what makes a CA known, and last what hides sockets.
#include "sandbox/arguments.h"

#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "base/mem.h"
#include "sandbox/place.h"
#include "sandbox/staging.h"

static void add_words(struct buf *text, const char *first, ...) {
    va_list words;
    va_start(words, first);
    for (const char *word = first; word; word = va_arg(words, const char *)) buf_append(text, word, strlen(word) + 1);
    va_end(words);
}

#define ADD(text, ...) add_words(text, __VA_ARGS__, (const char *)NULL)

static void add_number(struct buf *text, uint64_t number) {
    char word[32];
    snprintf(word, sizeof(word), "%llu", (unsigned long long)number);
    ADD(text, word);
}

// Memory that a sandbox can take by writing files: a quarter of the machine for each private folder.
static void add_tmpfs(struct buf *text, const char *permissions, const char *path) {
    struct sysinfo info;
    uint64_t size = sysinfo(&info) == 0 ? (uint64_t)info.totalram * info.mem_unit / 4 : UINT64_C(1) << 30;
    ADD(text, "--perms", permissions, "--size");
    add_number(text, size);
    ADD(text, "--tmpfs", path);
}

// No --unshare-net: the keeper's namespace, which the caller has entered, is the sandbox's; the new user namespace
// below has no rights over it. No --new-session: job control of the caller's terminal goes on (TIOCSTI is filtered).
static void add_namespaces(const struct arguments *arguments, struct buf *text) {
    ADD(text, "--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try",
        "--as-pid-1", "--cap-drop", "ALL", "--seccomp");
    add_number(text, (uint64_t)arguments->seccomp);
}

static void add_private(struct buf *text) {
    add_tmpfs(text, "1777", "/tmp");
    add_tmpfs(text, "0755", "/run");
    add_tmpfs(text, "0755", "/var");
    ADD(text, "--perms", "1777", "--dir", "/run/lock", "--perms", "1777", "--dir", "/var/tmp", "--perms", "0755",
        "--dir", "/var/cache", "--perms", "0755", "--dir", "/var/log", "--perms", "0755", "--dir", "/var/lib");
    ADD(text, "--symlink", "/run", "/var/run", "--symlink", "/run/lock", "/var/lock");
    // The tmpfs that --dev makes has no bound, but nothing except shm is to be written there; devices are mounts of their
    // own.
    ADD(text, "--proc", "/proc", "--dev", "/dev");
    add_tmpfs(text, "1777", "/dev/shm");
    ADD(text, "--remount-ro", "/dev");
}

static void add_systems(struct buf *text) {
    const struct place_system *systems;
    size_t count = place_systems(&systems);
    for (size_t i = 0; i < count; i++) {
        char link[PATH_MAX];
        ssize_t len = readlink(systems[i].path, link, sizeof(link) - 1);
        if (len > 0) {
            link[len] = '\0';
            ADD(text, "--symlink", link, systems[i].path);
        } else if (access(systems[i].path, F_OK) == 0) {
            ADD(text, "--ro-bind", systems[i].path, systems[i].path);
        }
    }
}

static void add_items(const struct arguments *arguments, struct buf *text) {
    const struct exposure *exposure = arguments->exposure;
    if (exposure->home) add_tmpfs(text, "0700", exposure->home);
    for (size_t i = 0; i < exposure->count; i++) {
        char staged[STAGING_PATH_SIZE];
        const struct exposure_item *item = &exposure->items[i];
        const char *source = arguments->spec->identity.from_root ? staging_path(i, staged) : item->source;
        ADD(text, item->writable ? "--bind" : "--ro-bind", source, item->target);
    }
}

static void add_etc_files(const struct arguments *arguments, struct buf *text) {
    for (size_t i = 0; i < arguments->etc_file_count; i++) {
        ADD(text, "--perms", "0644", "--ro-bind-data");
        add_number(text, (uint64_t)arguments->etc_files[i].fd);
        ADD(text, arguments->etc_files[i].target);
    }
}

// For root, staging has hidden them already.
static void add_masks(const struct arguments *arguments, struct buf *text) {
    if (arguments->spec->identity.from_root) return;
    for (size_t i = 0; i < arguments->mask->count; i++) {
        const struct unix_mask_entry *entry = &arguments->mask->entries[i];
        switch (entry->kind) {
        case UNIX_MASK_FILE:
            ADD(text, "--ro-bind", "/dev/null", entry->path);
            break;
        case UNIX_MASK_FOLDER:
            ADD(text, "--perms", "0555", "--size", "4096", "--tmpfs", entry->path);
            break;
        case UNIX_MASK_PROGRAM:
            ADD(text, "--ro-bind", entry->path, entry->path);
            break;
        }
    }
}

void arguments_write(const struct arguments *arguments, struct buf *text) {
    add_namespaces(arguments, text);
    add_private(text);
    add_systems(text);
    add_items(arguments, text);
    add_etc_files(arguments, text);
    if (arguments->trust) buf_append(text, arguments->trust->data, arguments->trust->len);
    add_masks(arguments, text);
    ADD(text, "--remount-ro", "/", "--chdir", arguments->spec->cwd);
}
