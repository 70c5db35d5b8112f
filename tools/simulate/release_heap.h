/* SPDX-License-Identifier: MIT */
/* Releases to come, the earliest first; those of one time in the order of their grants. */
#ifndef WEIR_TOOLS_SIMULATE_RELEASE_HEAP_H
#define WEIR_TOOLS_SIMULATE_RELEASE_HEAP_H

#include <stddef.h>
#include <stdint.h>

struct release {
    uint64_t at_ns;
    uint64_t order;
    uint32_t slot;
};

struct release_heap {
    struct release *items;
    size_t n, room;
    uint64_t added_n;
};

/* Returns 0 or -ENOMEM. */
int release_heap_add(struct release_heap *heap, uint64_t at_ns, uint32_t slot);
/* Takes the earliest out and returns its slot. There is one. */
uint32_t release_heap_take(struct release_heap *heap);
void release_heap_free(struct release_heap *heap);

static inline uint64_t release_heap_next_ns(const struct release_heap *heap)
{
    return heap->n > 0 ? heap->items[0].at_ns : UINT64_MAX;
}

#endif
