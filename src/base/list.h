// SPDX-License-Identifier: Apache-2.0
// Doubly linked intrusive list with a head node.
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct list {
    struct list *next, *prev;
};

static inline void list_init(struct list *head) { head->next = head->prev = head; }
static inline bool list_empty(const struct list *head) { return head->next == head; }
static inline void list_append(struct list *head, struct list *node) {
    node->prev = head->prev;
    node->next = head;
    head->prev->next = node;
    head->prev = node;
}
// Also fine for a node that list_init'd itself and is in no list.
static inline void list_remove(struct list *node) {
    node->prev->next = node->next;
    node->next->prev = node->prev;
    list_init(node);
}

#define LIST_ENTRY(node, type, member) ((type *)(void *)((char *)(node) - offsetof(type, member)))
// The current entry may be removed inside the loop.
#define LIST_FOREACH(head, node) \
    for (struct list *node = (head)->next, *next_##node = node->next; node != (head); \
         node = next_##node, next_##node = node->next)
