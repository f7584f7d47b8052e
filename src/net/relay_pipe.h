// SPDX-License-Identifier: Apache-2.0
// Where bytes of a relay are while they are neither in one socket nor in the other: a kernel pipe from a pool, or, for bytes
// that were read before the relay began, a piece of memory.
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "base/list.h"

struct relay_pipe {
    struct list idle;  // in the pool
    int fds[2];        // read end, write end; -1: memory
    uint32_t size;     // bytes that may be put in
    uint32_t used;     // bytes in it
    uint32_t offset;   // memory: where the first byte is
    uint8_t memory[];
};

struct relay_pool {
    struct list pipes;
    size_t count;
};

void relay_pool_init(struct relay_pool *pool);
void relay_pool_done(struct relay_pool *pool);
// An empty pipe, or NULL without descriptors or memory: then the caller copies.
struct relay_pipe *relay_pool_get(struct relay_pool *pool);
// Gives back a pipe of either kind. One that still holds bytes is closed, never used for another connection.
void relay_pool_put(struct relay_pool *pool, struct relay_pipe *pipe);
// A piece of memory that holds these bytes, NULL if there is none.
struct relay_pipe *relay_pipe_memory(const uint8_t *bytes, size_t len);
// From the pipe to a socket: bytes moved, or a negative errno.
ssize_t relay_pipe_drain(struct relay_pipe *pipe, int fd);
// From a socket into the pipe, at most max bytes: bytes moved, 0 at what looks like the end, or a negative errno.
ssize_t relay_pipe_fill(struct relay_pipe *pipe, int fd, size_t max);
