// SPDX-License-Identifier: Apache-2.0
// Memory for many things of one size, some of which live long: in blocks of their own, so that what else is allocated
// meanwhile and freed soon leaves no holes between them. A block goes when nothing is in it, but for the last that has room.
#pragma once

#include <stddef.h>

#include "base/list.h"

struct slab {
    struct list blocks; // that have room
    size_t size;        // of a thing
};

void slab_init(struct slab *slab, size_t size);
void slab_done(struct slab *slab);             // nothing is in it
void *slab_take(struct slab *slab);            // all zero, aligned as a pointer. NULL: out of memory
void slab_give(struct slab *slab, void *thing); // back; NULL is fine
