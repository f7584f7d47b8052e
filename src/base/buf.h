// SPDX-License-Identifier: Apache-2.0
// A growing byte buffer that is always NUL-terminated. After a failed allocation it keeps what it had and stays failed;
// the sticky flag is checked once at the end.
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct buf {
    char *data; // NULL while empty
    size_t len; // bytes, without the NUL
    size_t size;
    bool failed;
};

#define BUF_INIT ((struct buf){0})

void buf_done(struct buf *buf);
void buf_append(struct buf *buf, const void *bytes, size_t len);
void buf_printf(struct buf *buf, const char *format, ...) __attribute__((format(printf, 2, 3)));
// Removes len bytes from the front.
void buf_consume(struct buf *buf, size_t len);
// Hands the data (never NULL) to the caller, who frees it, and empties the buffer. NULL if an allocation failed.
char *buf_take(struct buf *buf);
// The whole of a file descriptor, at most max bytes: 0, or -EFBIG, -errno.
int buf_read_fd(struct buf *buf, int fd, size_t max);
// The whole of a file, at most max bytes: 0, or -EFBIG, -errno.
int buf_read_file(struct buf *buf, const char *path, size_t max);
