// SPDX-License-Identifier: Apache-2.0
// A pipe costs two descriptors and no memory while it is empty, so a few are kept and every busy direction borrows one.
#include "net/relay_pipe.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>

#include "base/mem.h"

// Bytes in flight in one direction. More is faster by little, and is what a sandbox that does not read makes us hold.
#define RELAY_PIPE_SIZE (256 * 1024)
#define RELAY_POOL_MAX 32

void relay_pool_init(struct relay_pool *pool) {
    list_init(&pool->pipes);
    pool->count = 0;
}

static void relay_pipe_free(struct relay_pipe *pipe) {
    for (int i = 0; i < 2; i++)
        if (pipe->fds[i] >= 0) close(pipe->fds[i]);
    free(pipe);
}

void relay_pool_done(struct relay_pool *pool) {
    LIST_FOREACH(&pool->pipes, node) relay_pipe_free(LIST_ENTRY(node, struct relay_pipe, idle));
    relay_pool_init(pool);
}

struct relay_pipe *relay_pool_get(struct relay_pool *pool) {
    if (!list_empty(&pool->pipes)) {
        struct relay_pipe *pipe = LIST_ENTRY(pool->pipes.prev, struct relay_pipe, idle); // the warmest
        list_remove(&pipe->idle);
        pool->count--;
        return pipe;
    }
    struct relay_pipe *pipe = NEW(struct relay_pipe);
    if (!pipe) return NULL;
    list_init(&pipe->idle);
    if (pipe2(pipe->fds, O_NONBLOCK | O_CLOEXEC) < 0) {
        free(pipe);
        return NULL;
    }
    // Refused beyond the user's share (pipe-user-pages-soft): a smaller one works too.
    int size = fcntl(pipe->fds[1], F_SETPIPE_SZ, RELAY_PIPE_SIZE);
    if (size < 0) size = fcntl(pipe->fds[1], F_GETPIPE_SZ);
    pipe->size = size > 0 && size < RELAY_PIPE_SIZE ? (uint32_t)size : RELAY_PIPE_SIZE;
    return pipe;
}

void relay_pool_put(struct relay_pool *pool, struct relay_pipe *pipe) {
    if (pipe->fds[0] < 0 || pipe->used > 0 || pool->count >= RELAY_POOL_MAX) {
        relay_pipe_free(pipe);
        return;
    }
    list_append(&pool->pipes, &pipe->idle);
    pool->count++;
}

struct relay_pipe *relay_pipe_memory(const uint8_t *bytes, size_t len) {
    if (len > UINT32_MAX) return NULL;
    struct relay_pipe *pipe = malloc(sizeof(*pipe) + len);
    if (!pipe) return NULL;
    *pipe = (struct relay_pipe){.fds = {-1, -1}, .size = (uint32_t)len, .used = (uint32_t)len};
    list_init(&pipe->idle);
    memcpy(pipe->memory, bytes, len);
    return pipe;
}

ssize_t relay_pipe_drain(struct relay_pipe *pipe, int fd) {
    ssize_t moved;
    do {
        moved = pipe->fds[0] < 0 ? send(fd, pipe->memory + pipe->offset, pipe->used, MSG_NOSIGNAL | MSG_DONTWAIT)
                                 : splice(pipe->fds[0], NULL, fd, NULL, pipe->used, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
    } while (moved < 0 && errno == EINTR);
    if (moved < 0) return -errno;
    pipe->used -= (uint32_t)moved;
    pipe->offset += pipe->fds[0] < 0 ? (uint32_t)moved : 0;
    return moved;
}

ssize_t relay_pipe_fill(struct relay_pipe *pipe, int fd, size_t max) {
    size_t room = pipe->size - pipe->used;
    ssize_t moved;
    if (max < room) room = max;
    do {
        moved = splice(fd, NULL, pipe->fds[1], NULL, room, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
    } while (moved < 0 && errno == EINTR);
    if (moved < 0) return -errno;
    pipe->used += (uint32_t)moved;
    return moved;
}
