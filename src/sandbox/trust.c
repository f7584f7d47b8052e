// SPDX-License-Identifier: Apache-2.0
// Programs find the roots that they trust in four ways, and each gets its own with our CA added:
// 1. a file of the distribution, at a place that is known to the library: mounted over, wherever one is;
// 2. a folder where a certificate is found by the hash of its name (OpenSSL), or whose files are all read (p11-kit): an
//    empty folder with the same entries and one more goes over it;
// 3. Java's key store;
// 4. variables, for programs that bring their own roots. One that is set already keeps its meaning: its file's
//    certificates are in ours. Those for roots beside the built-in ones (Node, Deno) get just the CA.
// Browsers, which have databases of their own in the home folder, are not reached.
#include "sandbox/trust.h"

#include <dirent.h>
#include <errno.h>
#include <glob.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "sandbox/environment.h"
#include "sandbox/keystore.h"
#include "sandbox/pem.h"
#include "sandbox/place.h"
#include "sandbox/trust_table.h"

#define TRUST_SIZE_MAX (8 << 20)     // of a file of the host
#define TRUST_ENTRIES_MAX 1200       // of all folders; bubblewrap takes 9000 arguments

_Static_assert(TRUST_VARIABLES <= TRUST_VARIABLES_MAX, "all fit");

struct making {
    const struct sandbox_trust *ca;
    const struct exposure *exposure;
    struct trust *trust;
    struct buf bundle, only; // text: what the distribution trusts and the CA; the CA
    size_t entries;
    char *done[TRUST_FILES_MAX]; // real paths that have been seen to
    size_t done_count;
    const char *remade[8]; // folders that are ours inside, borrowed
    size_t remade_count;
};

static void add_words(struct buf *text, const char *first, ...) {
    va_list words;
    va_start(words, first);
    for (const char *word = first; word; word = va_arg(words, const char *)) buf_append(text, word, strlen(word) + 1);
    va_end(words);
}
#define ADD(text, ...) add_words(text, __VA_ARGS__, (const char *)NULL)

// ---- files ----

static int add_memory_file(struct trust *trust, const struct buf *text) {
    AUTO_CLOSE int fd = memfd_create("penstock-trust", MFD_CLOEXEC);
    if (text->failed) return -ENOMEM;
    if (trust->file_count == TRUST_FILES_MAX) return -E2BIG;
    if (fd < 0) return -errno;
    for (size_t done = 0; done < text->len;) {
        ssize_t n = write(fd, text->data + done, text->len - done);
        if (n < 0) return -errno;
        done += (size_t)n;
    }
    if (lseek(fd, 0, SEEK_SET) < 0) return -errno;
    trust->files[trust->file_count++] = fd;
    return TAKE_FD(fd);
}

// option: --ro-bind-data (a mount), --file (a file of a folder that is new).
static int add_file(struct making *making, const char *option, const struct buf *text, const char *target) {
    char number[16];
    int fd = add_memory_file(making->trust, text);
    if (fd < 0) return fd;
    snprintf(number, sizeof(number), "%d", fd);
    ADD(&making->trust->options, "--perms", "0644", option, number, target);
    return 0;
}

// The real path of what is shown inside and has not been seen to, else NULL. Good until the end.
static const char *fresh(struct making *making, const char *path) {
    AUTO_FREE char *real = realpath(path, NULL);
    if (!real || !exposure_shows(making->exposure, real) || making->done_count == TRUST_FILES_MAX) return NULL;
    for (size_t i = 0; i < making->done_count; i++)
        if (strcmp(making->done[i], real) == 0) return NULL;
    return making->done[making->done_count++] = TAKE_POINTER(real);
}

static int make_bundle(struct making *making, const char *path) {
    struct buf old = BUF_INIT, text = BUF_INIT;
    const char *real = fresh(making, path);
    if (!real) return 0;
    int r = buf_read_file(&old, real, TRUST_SIZE_MAX);
    if (r == 0) {
        pem_append_all(&text, old.data ? old.data : "");
        buf_append(&text, making->only.data, making->only.len);
        r = add_file(making, "--ro-bind-data", &text, real);
        if (r == 0 && making->bundle.len == 0) buf_append(&making->bundle, text.data, text.len);
    } else if (r != -ENOMEM) {
        r = 0; // one that this user cannot read is none for the command either
    }
    buf_done(&old);
    buf_done(&text);
    return r;
}

// Where a store is to be that a link leads to, and that nobody has made: in one of our folders there can be one.
static const char *missing_store(struct making *making, const char *path) {
    char link[PATH_MAX];
    ssize_t len = readlink(path, link, sizeof(link) - 1);
    if (len <= 0 || making->done_count == TRUST_FILES_MAX) return NULL;
    link[len] = '\0';
    for (size_t i = 0; i < making->done_count; i++)
        if (strcmp(making->done[i], link) == 0) return NULL;
    for (size_t i = 0; i < making->remade_count; i++)
        if (place_within(link, making->remade[i])) return making->done[making->done_count++] = strdup(link);
    return NULL;
}

static int make_store(struct making *making, const char *path) {
    struct buf old = BUF_INIT, text = BUF_INIT;
    struct stat st;
    bool there = access(path, F_OK) == 0;
    const char *real = there ? fresh(making, path) : missing_store(making, path);
    if (!real || (there && (stat(real, &st) < 0 || !S_ISREG(st.st_mode) || !(st.st_mode & S_IROTH)))) return 0;
    int r = there ? buf_read_file(&old, real, TRUST_SIZE_MAX) : 0;
    if (r == 0) {
        keystore_make(&old, making->bundle.data ? making->bundle.data : "", making->ca->certificate, making->ca->len,
                      &text);
        r = add_file(making, "--ro-bind-data", &text, real);
    } else if (r != -ENOMEM) {
        r = 0;
    }
    buf_done(&old);
    buf_done(&text);
    return r;
}

static int make_stores(struct making *making, const char *pattern) {
    glob_t found = {0};
    int r = glob(pattern, 0, NULL, &found) == GLOB_NOSPACE ? -ENOMEM : 0;
    for (size_t i = 0; r == 0 && i < found.gl_pathc; i++) r = make_store(making, found.gl_pathv[i]);
    globfree(&found);
    return r;
}

static int make_home_store(struct making *making, const char *home, const char *rest) {
    char path[PATH_MAX];
    if (!home || home[0] != '/' || snprintf(path, sizeof(path), "%s%s", home, rest) >= (int)sizeof(path)) return 0;
    return make_store(making, path);
}

// ---- folders ----

static bool is_hashed(const char *name) {
    return strspn(name, "0123456789abcdef") == 8 && name[8] == '.' && name[9] && strspn(name + 9, "0123456789") == strlen(name + 9);
}

// One entry of the host's folder, again. False: another kind of thing, which is left out.
static bool add_entry(struct buf *options, const char *folder, const struct dirent *entry) {
    char path[PATH_MAX], link[PATH_MAX];
    struct stat st;
    if (snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name) >= (int)sizeof(path) || lstat(path, &st) < 0) return false;
    if (S_ISLNK(st.st_mode)) {
        ssize_t len = readlink(path, link, sizeof(link) - 1);
        if (len <= 0) return false;
        link[len] = '\0';
        ADD(options, "--symlink", link, path);
    } else {
        if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode)) return false;
        ADD(options, "--ro-bind", path, path);
    }
    return true;
}

// Options for all entries, and the first free number behind the hash. -1: too many, or a folder without hashes.
static int copy_entries(struct making *making, const char *real, bool hashed, struct buf *options) {
    char prefix[16];
    int number = 0;
    bool any = false;
    DIR *folder = opendir(real);
    if (!folder) return -1;
    size_t len = (size_t)snprintf(prefix, sizeof(prefix), "%08x.", making->ca->subject_hash);
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL && making->entries <= TRUST_ENTRIES_MAX;) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        if (add_entry(options, real, entry)) making->entries++;
        any |= is_hashed(entry->d_name);
        number += strncmp(entry->d_name, prefix, len) == 0;
    }
    closedir(folder);
    return making->entries > TRUST_ENTRIES_MAX || (hashed && !any) ? -1 : number;
}

static int make_folder(struct making *making, const char *path, bool hashed, struct buf *closing) {
    char target[PATH_MAX];
    struct stat st;
    struct buf options = BUF_INIT;
    const char *real = fresh(making, path);
    // One that the user shares is left as it is: what is made in it has to reach the host.
    if (!real || stat(real, &st) < 0 || !S_ISDIR(st.st_mode) ||
        exposure_top(making->exposure, making->exposure->count, real) != SIZE_MAX) return 0;
    int number = copy_entries(making, real, hashed, &options);
    int r = number < 0 ? 0 : 1;
    if (r > 0 && hashed) r = snprintf(target, sizeof(target), "%s/%08x.%d", real, making->ca->subject_hash, number);
    else if (r > 0) r = snprintf(target, sizeof(target), "%s/penstock.pem", real);
    if (r > 0 && r < (int)sizeof(target)) {
        ADD(&making->trust->options, "--perms", "0755", "--size", "1048576", "--tmpfs", real);
        buf_append(&making->trust->options, options.data, options.len);
        r = add_file(making, "--file", &making->only, target);
        ADD(closing, "--remount-ro", real);
        making->remade[making->remade_count++] = real;
    }
    if (options.failed) r = -ENOMEM;
    buf_done(&options);
    return r < 0 ? r : 0;
}

// ---- variables ----

static int add_variable(struct trust *trust, const char *name, const char *path) {
    char *entry;
    if (asprintf(&entry, "%s=%s", name, path) < 0) return -ENOMEM;
    trust->variables[trust->variable_count++] = entry;
    return 0;
}

// A relative one is as the command would have read it.
static int read_named(const char *value, const char *cwd, struct buf *ret_text) {
    char path[PATH_MAX];
    if (!place_normalise(value, cwd, path)) return -ENAMETOOLONG;
    return buf_read_file(ret_text, path, TRUST_SIZE_MAX);
}

static int make_variable(struct making *making, const struct sandbox_spec *spec, size_t index) {
    const char *name = trust_variables[index].name, *value = environment_get(spec->environment, name);
    bool more = trust_variables[index].kind == TRUST_MORE;
    if (trust_variables[index].kind == TRUST_THERE && !value) return 0;
    struct buf own = BUF_INIT, text = BUF_INIT;
    if (value && value[0] && read_named(value, spec->cwd, &own) == 0) pem_append_all(&text, own.data ? own.data : "");
    int r = own.failed || text.failed ? -ENOMEM : 0;
    if (r == 0 && text.len > 0) {
        char path[PATH_MAX];
        snprintf(path, sizeof(path), TRUST_FOLDER "/%s.pem", name);
        buf_append(&text, making->only.data, making->only.len);
        r = add_file(making, "--ro-bind-data", &text, path);
        if (r == 0) r = add_variable(making->trust, name, path);
    } else if (r == 0) {
        r = add_variable(making->trust, name, more ? TRUST_FOLDER "/ca.pem" : TRUST_FOLDER "/ca-bundle.pem");
    }
    buf_done(&own);
    buf_done(&text);
    return r;
}

// ---- all ----

static int make_all(struct making *making, const struct sandbox_spec *spec) {
    struct buf closing = BUF_INIT;
    int r = 0;
    for (size_t i = 0; r == 0 && trust_folders[i].path; i++)
        r = make_folder(making, trust_folders[i].path, trust_folders[i].hashed, &closing);
    for (size_t i = 0; r == 0 && trust_bundles[i]; i++) r = make_bundle(making, trust_bundles[i]);
    if (making->bundle.len == 0) buf_append(&making->bundle, making->only.data, making->only.len);
    for (size_t i = 0; r == 0 && trust_stores[i]; i++) r = make_stores(making, trust_stores[i]);
    const char *java = environment_get(spec->environment, "JAVA_HOME");
    if (r == 0) r = make_home_store(making, java, "/lib/security/cacerts");
    if (r == 0) r = make_home_store(making, java, "/jre/lib/security/cacerts");
    if (r == 0) r = add_file(making, "--ro-bind-data", &making->bundle, TRUST_FOLDER "/ca-bundle.pem");
    if (r == 0) r = add_file(making, "--ro-bind-data", &making->only, TRUST_FOLDER "/ca.pem");
    for (size_t i = 0; r == 0 && i < TRUST_VARIABLES; i++) r = make_variable(making, spec, i);
    buf_append(&making->trust->options, closing.data, closing.len);
    if (closing.failed || making->trust->options.failed || making->bundle.failed) r = -ENOMEM;
    buf_done(&closing);
    return r;
}

int trust_make(const struct sandbox_spec *spec, const struct exposure *exposure, struct trust *trust, struct error *err) {
    *trust = (struct trust){0};
    if (!spec->trust) return 0;
    struct making making = {.ca = spec->trust, .exposure = exposure, .trust = trust};
    pem_append(&making.only, spec->trust->certificate, spec->trust->len);
    int r = making.only.failed ? -ENOMEM : make_all(&making, spec);
    for (size_t i = 0; i < making.done_count; i++) free(making.done[i]);
    buf_done(&making.bundle);
    buf_done(&making.only);
    return r < 0 ? error_set(err, r, "the CA cannot be made known in the sandbox: %s", strerror(-r)) : 0;
}

void trust_done(struct trust *trust) {
    for (size_t i = 0; i < trust->file_count; i++) close(trust->files[i]);
    for (size_t i = 0; i < trust->variable_count; i++) free(trust->variables[i]);
    buf_done(&trust->options);
    *trust = (struct trust){0};
}
