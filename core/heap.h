/* SPDX-License-Identifier: MIT */
/* A binary heap of deadlines. Nodes are embedded in what is waited for; removal is O(log n). */
#ifndef WEIR_CORE_HEAP_H
#define WEIR_CORE_HEAP_H

#include <stddef.h>
#include <stdint.h>

struct heap_node {
    uint64_t at_ns;
    size_t index; /* from 1; 0: not in the heap */
};

struct heap {
    struct heap_node **nodes; /* from index 1 */
    size_t n, capacity;
};

/* Makes room for `n` nodes in all, so that adding that many cannot fail. Returns 0 or -ENOMEM. */
int heap_reserve(struct heap *heap, size_t n);
void heap_free(struct heap *heap);
struct heap_node *heap_first(const struct heap *heap); /* the earliest, or NULL */
void heap_add(struct heap *heap, struct heap_node *node, uint64_t at_ns); /* room was reserved */
void heap_remove(struct heap *heap, struct heap_node *node); /* fine if not in the heap */

#endif
