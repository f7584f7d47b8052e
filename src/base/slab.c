// SPDX-License-Identifier: Apache-2.0
#include "base/slab.h"

#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "base/mem.h"

// With a sanitizer each thing has a block of its own, which goes with it: so use after free is still found.
#if defined(__SANITIZE_ADDRESS__)
#define SLAB_BLOCK 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SLAB_BLOCK 1
#endif
#endif
#ifndef SLAB_BLOCK
#define SLAB_BLOCK 15 // blocks of flows fit where 4 KiB were freed
#endif

struct slab_cell {
    struct slab_block *block;
    struct slab_cell *next; // of the free ones; else here the thing begins
};

struct slab_block {
    struct list link;       // in slab->blocks, or alone: full
    struct slab_cell *free; // that were used before
    unsigned used, begun;   // things; cells that ever were used
    uint8_t cells[];
};

#define SLAB_THING offsetof(struct slab_cell, next)

static size_t slab_stride(const struct slab *slab) {
    const size_t unit = _Alignof(struct slab_cell);
    return (SLAB_THING + slab->size + unit - 1) / unit * unit;
}

void slab_init(struct slab *slab, size_t size) {
    assert(size >= sizeof(struct slab_cell) - SLAB_THING);
    list_init(&slab->blocks);
    slab->size = size;
}

void slab_done(struct slab *slab) {
    LIST_FOREACH(&slab->blocks, node) {
        struct slab_block *block = LIST_ENTRY(node, struct slab_block, link);
        assert(block->used == 0);
        list_remove(node);
        free(block);
    }
}

static struct slab_block *slab_room(struct slab *slab) {
    if (!list_empty(&slab->blocks)) return LIST_ENTRY(slab->blocks.next, struct slab_block, link);
    struct slab_block *block = malloc(sizeof(*block) + SLAB_BLOCK * slab_stride(slab));
    if (!block) return NULL;
    *block = (struct slab_block){0};
    list_append(&slab->blocks, &block->link);
    return block;
}

void *slab_take(struct slab *slab) {
    struct slab_block *block = slab_room(slab);
    if (!block) return NULL;
    struct slab_cell *cell = block->free;
    if (cell) block->free = cell->next;
    else cell = (void *)(block->cells + block->begun++ * slab_stride(slab));
    if (++block->used == SLAB_BLOCK) list_remove(&block->link);
    cell->block = block;
    return memset((uint8_t *)cell + SLAB_THING, 0, slab->size);
}

void slab_give(struct slab *slab, void *thing) {
    if (!thing) return;
    struct slab_cell *cell = (void *)((uint8_t *)thing - SLAB_THING);
    struct slab_block *block = cell->block;
    assert(block->used > 0);
    if (block->used-- == SLAB_BLOCK) list_append(&slab->blocks, &block->link);
    cell->next = block->free;
    block->free = cell;
    bool only = slab->blocks.next == slab->blocks.prev;
    if (block->used > 0 || (only && SLAB_BLOCK > 1)) return;
    list_remove(&block->link);
    free(block);
}
