// SPDX-License-Identifier: Apache-2.0
// `penstock ca export|install`: the certificate of the CA, for images and for this system.
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/mem.h"
#include "cli/cli.h"
#include "vault/vault.h"

#define TRUST_FOLDER "/usr/local/share/ca-certificates"
#define TRUST_FILE TRUST_FOLDER "/penstock.crt"
#define TRUST_PROGRAM "/usr/sbin/update-ca-certificates"

enum { CA_FAILED = 1 };

// flags: O_EXCL or O_TRUNC.
static int ca_write(const char *path, int flags, const char *pem, struct error *err) {
    AUTO_CLOSE int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0644);
    size_t len = strlen(pem), done = 0;
    if (fd < 0 && errno == EEXIST)
        return error_set(err, -EEXIST, "\"%s\" exists; remove it, or name another file", path);
    while (fd >= 0 && done < len) {
        ssize_t written = write(fd, pem + done, len - done);
        if (written < 0) break;
        done += (size_t)written;
    }
    if (fd < 0 || done < len || fchmod(fd, 0644) < 0)
        return error_set(err, -errno, "cannot write \"%s\": %s", path, strerror(errno));
    return 0;
}

static int ca_export(const char *path, const char *pem, struct error *err) {
    if (path) return ca_write(path, O_EXCL, pem, err);
    if (fputs(pem, stdout) < 0 || fflush(stdout) != 0)
        return error_set(err, -EIO, "cannot write the certificate to standard output: %s", strerror(errno));
    return 0;
}

static int ca_update(struct error *err) {
    char *const argv[] = {(char *)(uintptr_t)TRUST_PROGRAM, NULL};
    pid_t pid;
    int status = 0, failed = posix_spawn(&pid, TRUST_PROGRAM, NULL, NULL, argv, environ);
    if (failed == 0)
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
    if (failed == 0 && status == 0) return 0;
    return error_set(err, -EIO, "%s failed; the certificate is in %s, run it by hand", TRUST_PROGRAM, TRUST_FILE);
}

static int ca_install(const char *path, const char *pem, struct error *err) {
    struct stat folder;
    (void)path;
    if (access(TRUST_PROGRAM, X_OK) < 0 || stat(TRUST_FOLDER, &folder) < 0)
        return error_set(err, -ENOENT,
                         "this system has no %s; run `penstock ca export ca.crt` and give the file to its own "
                         "tool, such as `trust anchor ca.crt`",
                         TRUST_PROGRAM);
    if (geteuid() != 0)
        return error_set(err, -EPERM,
                         "only root can make the system trust your CA; run: penstock ca export ca.crt && sudo "
                         "install -m 644 ca.crt %s && sudo %s",
                         TRUST_FILE, TRUST_PROGRAM);
    int r = ca_write(TRUST_FILE, O_TRUNC | O_NOFOLLOW, pem, err);
    return r < 0 ? r : ca_update(err);
}

static const struct {
    const char *word;
    int most; // arguments
    int (*run)(const char *path, const char *pem, struct error *err);
} ca_actions[] = {{"export", 1, ca_export}, {"install", 0, ca_install}};

int cli_ca(int argc, char **argv) {
    for (size_t i = 0; argc > 1 && i < ARRAY_LENGTH(ca_actions); i++) {
        if (strcmp(argv[1], ca_actions[i].word) != 0) continue;
        if (argc - 2 > ca_actions[i].most)
            return cli_unknown(CLI_INVALID, "ca", argv[argc - 1]);
        struct error err = {0};
        AUTO_FREE char *pem = NULL;
        int r = vault_ca_certificate(&pem, &err);
        if (r == 0) r = ca_actions[i].run(argc > 2 ? argv[2] : NULL, pem, &err);
        return r < 0 ? cli_fail(CA_FAILED, &err) : CLI_OK;
    }
    if (argc < 2) return cli_usage_error(CLI_INVALID, "ca", "say what to do: export or install");
    return cli_unknown(CLI_INVALID, "ca", argv[1]);
}
