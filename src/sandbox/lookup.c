// SPDX-License-Identifier: Apache-2.0
#include "sandbox/lookup.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/mem.h"
#include "sandbox/environment.h"

// 0, or why this file is not it: -ENOENT, -EACCES, -EXDEV (it is there on the host only).
static int try_file(const struct exposure *exposure, const char *path) {
    struct stat st;
    // A folder that we may not search is not there at all inside, unless it is shown.
    if (stat(path, &st) < 0) return errno == EACCES && exposure_shows(exposure, path) ? -EACCES : -ENOENT;
    AUTO_FREE char *real = realpath(path, NULL);
    if (!real || !exposure_shows(exposure, real)) return -EXDEV;
    if (S_ISDIR(st.st_mode)) return -EACCES;
    return faccessat(AT_FDCWD, path, X_OK, AT_EACCESS) < 0 ? -EACCES : 0;
}

static char *join(const char *folder, size_t len, const char *name) {
    struct buf path = BUF_INIT;
    buf_append(&path, folder, len);
    if (len > 0 && folder[len - 1] != '/') buf_append(&path, "/", 1);
    buf_append(&path, name, strlen(name));
    return buf_take(&path);
}

static int fail(const char *name, const char *hidden, int fault, struct error *err) {
    if (fault == -EACCES)
        return error_set(err, -EACCES, "\"%s\" cannot be executed: permission denied; make it an executable file", name);
    if (hidden)
        return error_set(err, -ENOENT,
                         "\"%s\" is not visible in the sandbox (on the host it is \"%s\"); name its folder with --read",
                         name, hidden);
    return error_set(err, -ENOENT, "\"%s\": no such command; check its name and PATH", name);
}

static int find_path(const struct sandbox_spec *spec, const struct exposure *exposure, char **ret_path,
                     struct error *err) {
    const char *name = spec->argv[0];
    AUTO_FREE char *path = name[0] == '/' ? strdup(name) : join(spec->cwd, strlen(spec->cwd), name);
    if (!path) return error_set(err, -ENOMEM, "out of memory");
    int r = try_file(exposure, path);
    if (r < 0) return fail(name, r == -EXDEV ? path : NULL, r, err);
    *ret_path = TAKE_POINTER(path);
    return 0;
}

int lookup_command(const struct sandbox_spec *spec, const struct exposure *exposure, char **ret_path,
                   struct error *err) {
    const char *name = spec->argv[0], *folders = environment_get(spec->environment, "PATH");
    if (strchr(name, '/')) return find_path(spec, exposure, ret_path, err);
    if (!folders) folders = "/usr/local/bin:/usr/bin:/bin";
    AUTO_FREE char *hidden = NULL;
    int fault = -ENOENT;
    for (const char *at = folders; name[0];) {
        size_t len = strcspn(at, ":");
        AUTO_FREE char *folder = at[0] == '/' ? strndup(at, len) : NULL; // an empty or relative one is below cwd
        if (!folder) {
            AUTO_FREE char *relative = strndup(at, len);
            folder = relative ? join(spec->cwd, strlen(spec->cwd), relative) : NULL;
        }
        AUTO_FREE char *path = folder ? join(folder, strlen(folder), name) : NULL;
        if (!path) return error_set(err, -ENOMEM, "out of memory");
        int r = try_file(exposure, path);
        if (r == 0) {
            *ret_path = TAKE_POINTER(path);
            return 0;
        }
        if (r == -EACCES) fault = r; // as execvp: the search goes on, the first hindrance is remembered
        if (r == -EXDEV && !hidden) hidden = TAKE_POINTER(path);
        if (at[len] == '\0') break;
        at += len + 1;
    }
    return fail(name, hidden, fault, err);
}
