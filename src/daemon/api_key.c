// SPDX-License-Identifier: Apache-2.0
#include "daemon/api_key.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/mem.h"

#define API_KEY_SECRET "/run/secrets/api-key"
#define API_KEY_MAX 4096
#define API_KEY_BYTES 32

// One line. -ENOENT: there is no such file.
static int api_key_read(const char *path, char **ret_key, struct error *err) {
    struct buf text = BUF_INIT;
    int rc = buf_read_file(&text, path, API_KEY_MAX);
    size_t len = text.data ? strcspn(text.data, "\r\n") : 0;
    if (rc == 0 && (len == 0 || text.data[len + strspn(text.data + len, "\r\n")])) rc = -EINVAL;
    if (rc == 0 && !(*ret_key = strndup(text.data, len))) rc = -ENOMEM;
    buf_done(&text);
    if (rc == -EINVAL) error_set(err, rc, "%s: expected one line, the API key", path);
    else if (rc < 0) error_set(err, rc, "%s: %s", path, strerror(-rc));
    return rc;
}

// Appears whole or not at all.
static int api_key_make(const char *path, char **ret_key, struct error *err) {
    unsigned char bytes[API_KEY_BYTES];
    char text[2 * API_KEY_BYTES + 2];
    AUTO_FREE char *beside = NULL;
    if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes) || asprintf(&beside, "%s.new", path) < 0)
        return error_set(err, -EIO, "%s: no random bytes", path);
    for (size_t i = 0; i < sizeof(bytes); i++) snprintf(text + 2 * i, 3, "%02x", bytes[i]);
    memcpy(text + 2 * sizeof(bytes), "\n", 2);
    unlink(beside);
    AUTO_CLOSE int fd = open(beside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, text, sizeof(text) - 1) != (ssize_t)sizeof(text) - 1 || fsync(fd) < 0 || rename(beside, path) < 0)
        return error_set(err, -errno, "%s: %s", path, strerror(errno));
    *ret_key = strndup(text, 2 * sizeof(bytes));
    return *ret_key ? 0 : error_set(err, -ENOMEM, "out of memory");
}

int api_key_find(const char *folder, bool make, char **ret_key, struct error *err) {
    static const char *const names[] = {"PENSTOCK_API_KEY", "AENV_API_KEY"};
    AUTO_FREE char *path = NULL;
    for (size_t i = 0; i < ARRAY_LENGTH(names); i++) {
        const char *value = getenv(names[i]);
        if (value && *value) return (*ret_key = strdup(value)) ? 0 : error_set(err, -ENOMEM, "out of memory");
    }
    int rc = api_key_read(API_KEY_SECRET, ret_key, err);
    if (rc != -ENOENT) return rc;
    if (folder && asprintf(&path, "%s/api-key", folder) < 0) return error_set(err, -ENOMEM, "out of memory");
    if (path) rc = api_key_read(path, ret_key, err);
    if (rc == -ENOENT && path && make) return api_key_make(path, ret_key, err);
    if (rc < 0 && !make)
        return error_set(err, rc, "no API key; set PENSTOCK_API_KEY to that of the node (the file api-key in its state folder)");
    return rc;
}
