// SPDX-License-Identifier: Apache-2.0
#include "base/buf.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <unistd.h>

#include "base/mem.h"

void buf_done(struct buf *buf) {
    free(buf->data);
    *buf = BUF_INIT;
}

// Makes room for extra bytes and the NUL.
static bool buf_reserve(struct buf *buf, size_t extra) {
    if (buf->failed) return false;
    if (extra < buf->size - buf->len) return true; // an empty buffer has size 0, so never here
    size_t size = buf->size ? buf->size : 128;
    while (size - buf->len <= extra) {
        if (size > SIZE_MAX / 2) {
            buf->failed = true;
            return false;
        }
        size *= 2;
    }
    char *data = realloc(buf->data, size);
    if (!data) {
        buf->failed = true;
        return false;
    }
    buf->data = data;
    buf->size = size;
    buf->data[buf->len] = '\0';
    return true;
}

void buf_append(struct buf *buf, const void *bytes, size_t len) {
    if (len == 0 || !buf_reserve(buf, len)) return;
    memcpy(buf->data + buf->len, bytes, len);
    buf->len += len;
    buf->data[buf->len] = '\0';
}

void buf_printf(struct buf *buf, const char *format, ...) {
    va_list args;
    size_t room = buf->failed ? 0 : buf->size - buf->len;
    va_start(args, format);
    int len = vsnprintf(room ? buf->data + buf->len : NULL, room, format, args);
    va_end(args);
    if (len < 0) buf->failed = true;
    if (len > 0 && (size_t)len < room) { // it has been written
        buf->len += (size_t)len;
        return;
    }
    if (len <= 0 || !buf_reserve(buf, (size_t)len)) {
        if (room) buf->data[buf->len] = '\0';
        return;
    }
    va_start(args, format);
    vsnprintf(buf->data + buf->len, buf->size - buf->len, format, args);
    va_end(args);
    buf->len += (size_t)len;
}

void buf_consume(struct buf *buf, size_t len) {
    if (len == 0) return;
    if (len > buf->len) len = buf->len;
    if (!buf->data) return;
    memmove(buf->data, buf->data + len, buf->len - len + 1);
    buf->len -= len;
}

char *buf_take(struct buf *buf) {
    if (!buf_reserve(buf, 0)) {
        buf_done(buf);
        return NULL;
    }
    char *data = buf->data;
    *buf = BUF_INIT;
    return data;
}

int buf_read_fd(struct buf *buf, int fd, size_t max) {
    char chunk[16384];
    size_t total = 0;
    for (;;) {
        ssize_t got = read(fd, chunk, sizeof(chunk));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return -errno;
        if (got == 0) return buf->failed ? -ENOMEM : 0;
        if ((size_t)got > max - total) return -EFBIG;
        total += (size_t)got;
        buf_append(buf, chunk, (size_t)got);
    }
}

int buf_read_file(struct buf *buf, const char *path, size_t max) {
    AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return -errno;
    return buf_read_fd(buf, fd, max);
}
