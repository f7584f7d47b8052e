// SPDX-License-Identifier: Apache-2.0
#include "daemon/secret_place.h"

#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "daemon/daemon.h"
#include "policy/model.h"
#include "vault/vault.h"
#include "wire/ipc.h"

// What is behind the kind, or NULL: another kind.
static const char *behind(const char *reference, const char *kind) {
    return strncmp(reference, kind, strlen(kind)) == 0 ? reference + strlen(kind) : NULL;
}

int secret_place_expand(const char *reference, char *ret_reference, size_t size, struct error *err) {
    const char *path = behind(reference, "file:"), *home = getenv("HOME");
    bool below_home = path && path[0] == '~';
    if (below_home && path[1] != '/')
        return error_set(err, -EINVAL, "secret %s: only ~/ stands for a home folder, your own; write the whole path", reference);
    if (below_home && (!home || home[0] != '/'))
        return error_set(err, -EINVAL, "secret %s: HOME is not set, so there is no ~/; write the whole path", reference);
    int len = snprintf(ret_reference, size, "%s%s%s", below_home ? "file:" : "", below_home ? home : "",
                       below_home ? path + 1 : reference);
    if (len >= 0 && (size_t)len < size) return 0;
    return error_set(err, -E2BIG, "secret %.80s...: the reference is longer than %zu bytes; name a shorter one", reference, size - 1);
}

static int look_file(const char *reference, struct error *err) {
    char place[IPC_REFERENCE_SIZE];
    struct stat status;
    int r = secret_place_expand(reference, place, sizeof(place), err);
    if (r < 0) return r;
    const char *path = place + strlen("file:"), *from = path[0] == '/' ? "" : " (from the working directory)";
    if (stat(path, &status) < 0 && (errno == ENOENT || errno == ENOTDIR))
        return error_set(err, -ENOENT, "secret %s: there is no such file%s; write the secret into it, or name another one",
                         reference, from);
    if (euidaccess(path, R_OK) < 0)
        return error_set(err, -errno, "secret %s: %s; make it readable for this user", reference, strerror(errno));
    if (!S_ISREG(status.st_mode))
        return error_set(err, -EINVAL, "secret %s: it is not a regular file; name one", reference);
    return 0;
}

int daemon_secret_look(const struct policy_binding *binding, struct error *err) {
    const char *reference = policy_binding_secret(binding), *name;
    if (binding->literal) return 0;
    if ((name = behind(reference, "store:")) != NULL) {
        int r = vault_secret_find(name, err);
        return r < 0 ? error_context(err, r, "secret %s", reference) : 0;
    }
    if (behind(reference, "file:")) return look_file(reference, err);
    name = behind(reference, "env:");
    if (!name || getenv(name)) return 0;
    return error_set(err, -ENOENT, "secret %s: the variable is not set; export it, or name another secret", reference);
}
