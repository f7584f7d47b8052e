// SPDX-License-Identifier: Apache-2.0
#include "gate/h2_memory.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

// In front of each piece; as large as the strictest alignment.
struct h2_memory_piece {
    _Alignas(max_align_t) struct list link;
    size_t size;
};

static void *h2_memory_new(size_t size, void *data) {
    struct h2_memory *memory = data;
    struct h2_budget *budget = memory->budget;
    bool fits = size <= memory->max - memory->used && budget->used < budget->max && size <= budget->max - budget->used;
    struct h2_memory_piece *piece = fits ? malloc(sizeof(*piece) + size) : NULL;
    if (!piece) return NULL;
    piece->size = size;
    list_append(&memory->pieces, &piece->link);
    memory->used += size;
    budget->used += size;
    return piece + 1;
}

static void h2_memory_free(void *bytes, void *data) {
    struct h2_memory *memory = data;
    if (!bytes) return;
    struct h2_memory_piece *piece = (struct h2_memory_piece *)bytes - 1;
    memory->used -= piece->size;
    memory->budget->used -= piece->size;
    list_remove(&piece->link);
    explicit_bzero(bytes, piece->size);
    free(piece);
}

static void *h2_memory_zeroed(size_t count, size_t size, void *data) {
    size_t all;
    void *bytes = __builtin_mul_overflow(count, size, &all) ? NULL : h2_memory_new(all, data);
    if (bytes) memset(bytes, 0, all);
    return bytes;
}

// Never in place: realloc would leave the old bytes somewhere.
static void *h2_memory_resize(void *old, size_t size, void *data) {
    void *bytes = h2_memory_new(size, data);
    if (!bytes || !old) return bytes;
    size_t old_size = ((struct h2_memory_piece *)old - 1)->size;
    memcpy(bytes, old, old_size < size ? old_size : size);
    h2_memory_free(old, data);
    return bytes;
}

void h2_memory_init(struct h2_memory *memory, size_t max, struct h2_budget *budget) {
    *memory = (struct h2_memory){
        .calls = {memory, h2_memory_new, h2_memory_free, h2_memory_zeroed, h2_memory_resize},
        .max = max,
        .budget = budget,
    };
    list_init(&memory->pieces);
}

void h2_memory_done(struct h2_memory *memory) {
    LIST_FOREACH(&memory->pieces, node) h2_memory_free(LIST_ENTRY(node, struct h2_memory_piece, link) + 1, memory);
}
