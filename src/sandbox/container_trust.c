// SPDX-License-Identifier: Apache-2.0
// As trust.c, for the files of an image: what is there is read from the image, never from the host, and with our CA bound
// over it. In a folder of hashed certificates one file is added. Images say nothing true about
// themselves: sizes and counts are bounded, names of theirs are plain ones.
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "sandbox/container_plan.h"
#include "sandbox/environment.h"
#include "sandbox/inside.h"
#include "sandbox/keystore.h"
#include "sandbox/pem.h"
#include "sandbox/trust_table.h"

#define FILE_MAX (1 << 20)
#define SEEN_MAX 48     // files and folders that are seen to
#define NAMES_MAX 256   // of a folder, that are looked at
#define HASHES_MAX 16   // certificates with the same hash

struct making {
    struct container_plan *plan;
    struct buf bundle, only; // text: what the image trusts and the CA; the CA
    struct stat seen[SEEN_MAX];
    size_t seen_count;
    unsigned number; // of files
};

// Whether there is something at this path that has not been seen to under another name.
static bool is_fresh(struct making *making, const char *path, mode_t type) {
    struct stat st;
    AUTO_CLOSE int fd = inside_find(making->plan->root, path);
    if (fd < 0 || fstat(fd, &st) < 0 || (st.st_mode & S_IFMT) != type || making->seen_count == SEEN_MAX) return false;
    for (size_t i = 0; i < making->seen_count; i++)
        if (making->seen[i].st_dev == st.st_dev && making->seen[i].st_ino == st.st_ino) return false;
    making->seen[making->seen_count++] = st;
    return true;
}

static int add_over(struct making *making, const struct buf *text, const char *target) {
    char name[32];
    snprintf(name, sizeof(name), "trust-%u", making->number++);
    int r = text->failed ? -ENOMEM : container_files_add(making->plan, name, text->data, text->len, 0644);
    return r < 0 ? r : container_files_bind(making->plan, name, target);
}

static int make_bundle(struct making *making, const char *path) {
    struct buf old = BUF_INIT, text = BUF_INIT;
    int r = 0;
    if (is_fresh(making, path, S_IFREG) && inside_read(making->plan->root, path, FILE_MAX, &old) == 0) {
        pem_append_all(&text, old.data ? old.data : "");
        buf_append(&text, making->only.data, making->only.len);
        r = add_over(making, &text, path);
        if (r == 0 && making->bundle.len == 0) buf_append(&making->bundle, text.data, text.len);
    }
    buf_done(&old);
    buf_done(&text);
    return r;
}

static int make_store(struct making *making, const char *path) {
    const struct sandbox_trust *ca = making->plan->spec->trust;
    struct buf old = BUF_INIT, text = BUF_INIT;
    int r = 0;
    if (is_fresh(making, path, S_IFREG) && inside_read(making->plan->root, path, FILE_MAX, &old) == 0) {
        keystore_make(&old, making->bundle.data ? making->bundle.data : "", ca->certificate, ca->len, &text);
        r = add_over(making, &text, path);
    }
    buf_done(&old);
    buf_done(&text);
    return r;
}

static bool is_plain(const char *name) {
    return name[0] != '.' && name[strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._+-")] == '\0';
}

// A "*" in the path stands for each name of its folder.
static int make_stores(struct making *making, const char *pattern) {
    char path[PATH_MAX];
    const char *star = strchr(pattern, '*');
    if (!star) return make_store(making, pattern);
    snprintf(path, sizeof(path), "%.*s", (int)(star - pattern), pattern);
    int fd = inside_folder(making->plan->root, path), r = 0;
    DIR *folder = fd < 0 ? NULL : fdopendir(fd);
    if (!folder) {
        mem_close_pointer(&fd);
        return 0;
    }
    const struct dirent *entry;
    for (int looked = 0; r == 0 && looked < NAMES_MAX && (entry = readdir(folder)) != NULL; looked++) {
        int len = snprintf(path, sizeof(path), "%.*s%s%s", (int)(star - pattern), pattern, entry->d_name, star + 1);
        if (is_plain(entry->d_name) && len < PATH_MAX) r = make_store(making, path);
    }
    closedir(folder);
    return r;
}

// A file that is not there yet; an empty one is what an earlier container of ours left in a layer as the place of its own.
static bool is_free(struct making *making, const char *path) {
    struct stat st;
    AUTO_CLOSE int fd = inside_find(making->plan->root, path);
    return fd == -ENOENT || (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size == 0);
}

static int make_folder(struct making *making, const struct trust_folder *folder) {
    char path[PATH_MAX];
    if (!is_fresh(making, folder->path, S_IFDIR)) return 0;
    for (unsigned i = 0; i < HASHES_MAX; i++) {
        if (folder->hashed) snprintf(path, sizeof(path), "%s/%08x.%u", folder->path, making->plan->spec->trust->subject_hash, i);
        else snprintf(path, sizeof(path), "%s/penstock.pem", folder->path);
        if (is_free(making, path)) return add_over(making, &making->only, path);
        if (!folder->hashed) return 0;
    }
    return 0;
}

static int add_variable(struct making *making, const char *name, const char *file) {
    struct container_plan *plan = making->plan;
    if (plan->variable_count == CONTAINER_VARIABLES_MAX) return -E2BIG;
    char *entry;
    if (asprintf(&entry, "%s=" TRUST_FOLDER "/%s", name, file) < 0) return -ENOMEM;
    plan->variables[plan->variable_count++] = entry;
    return 0;
}

static int make_variable(struct making *making, const struct trust_variable *variable) {
    char *const none[] = {NULL}, *const *environment = making->plan->spec->environment;
    const char *value = environment_get(environment ? environment : none, variable->name);
    if (variable->kind == TRUST_THERE && !value) return 0;
    struct buf own = BUF_INIT, text = BUF_INIT;
    char name[64];
    if (value && value[0] && inside_read(making->plan->root, value, FILE_MAX, &own) == 0)
        pem_append_all(&text, own.data ? own.data : "");
    int r = 0;
    if (text.len > 0) {
        snprintf(name, sizeof(name), "%s.pem", variable->name);
        buf_append(&text, making->only.data, making->only.len);
        r = text.failed ? -ENOMEM : container_files_add(making->plan, name, text.data, text.len, 0644);
    } else {
        snprintf(name, sizeof(name), variable->kind == TRUST_MORE ? "ca.pem" : "ca-bundle.pem");
    }
    buf_done(&own);
    buf_done(&text);
    return r < 0 ? r : add_variable(making, variable->name, name);
}

static int make_all(struct making *making) {
    int r = 0;
    for (size_t i = 0; r == 0 && trust_bundles[i]; i++) r = make_bundle(making, trust_bundles[i]);
    if (making->bundle.len == 0) buf_append(&making->bundle, making->only.data, making->only.len);
    for (size_t i = 0; r == 0 && trust_folders[i].path; i++) r = make_folder(making, &trust_folders[i]);
    for (size_t i = 0; r == 0 && trust_stores[i]; i++) r = make_stores(making, trust_stores[i]);
    if (making->bundle.failed) r = -ENOMEM;
    if (r == 0) r = container_files_add(making->plan, "ca-bundle.pem", making->bundle.data, making->bundle.len, 0644);
    if (r == 0) r = container_files_add(making->plan, "ca.pem", making->only.data, making->only.len, 0644);
    for (size_t i = 0; r == 0 && i < TRUST_VARIABLES; i++) r = make_variable(making, &trust_variables[i]);
    return r;
}

int container_trust_make(struct container_plan *plan, struct error *err) {
    if (!plan->spec->trust) return 0;
    struct making making = {.plan = plan};
    pem_append(&making.only, plan->spec->trust->certificate, plan->spec->trust->len);
    int r = making.only.failed ? -ENOMEM : make_all(&making);
    buf_done(&making.bundle);
    buf_done(&making.only);
    return r < 0 ? error_set(err, r, "the CA cannot be made known in the sandbox: %s", strerror(-r)) : 0;
}
