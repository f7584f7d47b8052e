// SPDX-License-Identifier: Apache-2.0
#include <errno.h>

#include "base/mem.h"
#include "vault/secret.h"
#include "vault/secret_store.h"
#include "vault/secure.h"
#include "vault/state_folder.h"

size_t secret_trim(const uint8_t *bytes, size_t len) {
    if (len > 0 && bytes[len - 1] == '\n')
        len--;
    else
        return len;
    return len > 0 && bytes[len - 1] == '\r' ? len - 1 : len;
}

bool secret_same_file(const struct stat *a, const struct stat *b) {
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec &&
           a->st_ctim.tv_sec == b->st_ctim.tv_sec && a->st_ctim.tv_nsec == b->st_ctim.tv_nsec;
}

// At most size bytes: how many, or -EFBIG.
static int read_whole(int fd, uint8_t *bytes, size_t size) {
    size_t len = 0;
    for (;;) {
        uint8_t more;
        ssize_t got = len < size ? read(fd, bytes + len, size - len) : read(fd, &more, 1);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return -errno;
        if (got == 0) return (int)len;
        if (len == size) return -EFBIG;
        len += (size_t)got;
    }
}

int secret_read_file(int fd, uint8_t *value) {
    struct stat status;
    if (fstat(fd, &status) < 0) return -errno;
    if (!S_ISREG(status.st_mode)) return -EPERM;
    int len = read_whole(fd, value, IPC_SECRET_MAX + 2);
    return len < 0 ? len : (int)secret_trim(value, (size_t)len);
}

int secret_read_stored(int key_fd, int fd, uid_t owner, const char *name, uint8_t *value) {
    uint8_t *key = secure_new(SECRET_STORE_KEY_SIZE);
    AUTO_FREE uint8_t *file = malloc(SECRET_STORE_FILE_MAX);
    int r = key && file ? 0 : -ENOMEM;
    if (r == 0) r = state_folder_check(key_fd, owner, SECRET_STORE_KEY, NULL);
    if (r == 0) r = state_folder_check(fd, owner, name, NULL);
    if (r == 0 && read_whole(key_fd, key, SECRET_STORE_KEY_SIZE) != SECRET_STORE_KEY_SIZE) r = -EBADMSG;
    if (r == 0) r = read_whole(fd, file, SECRET_STORE_FILE_MAX);
    if (r > 0) r = secret_store_open(key, name, file, (size_t)r, value);
    secure_free(key);
    return r;
}
