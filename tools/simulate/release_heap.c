/* SPDX-License-Identifier: MIT */
/* Releases to come. A heap in which each has four children: fewer cache lines than with two. */
#include "release_heap.h"
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

#define CHILDREN 4

static bool is_earlier(const struct release *a, const struct release *b)
{
    return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->order < b->order;
}

int release_heap_add(struct release_heap *heap, uint64_t at_ns, uint32_t slot)
{
    struct release added = {at_ns, heap->added_n, slot};
    size_t i = heap->n;

    if (heap->n == heap->room) {
        size_t room = heap->room > 0 ? 2 * heap->room : 64;
        struct release *grown = realloc(heap->items, room * sizeof(*grown));

        if (!grown)
            return -ENOMEM;
        heap->items = grown;
        heap->room = room;
    }
    heap->n++;
    heap->added_n++;
    for (; i > 0 && is_earlier(&added, &heap->items[(i - 1) / CHILDREN]); i = (i - 1) / CHILDREN)
        heap->items[i] = heap->items[(i - 1) / CHILDREN];
    heap->items[i] = added;
    return 0;
}

/* Returns the earliest child, or `heap->n`. */
static size_t earliest_child(const struct release_heap *heap, size_t i)
{
    size_t first = CHILDREN * i + 1, earliest = first;

    if (first >= heap->n)
        return heap->n;
    for (size_t k = first + 1; k < first + CHILDREN && k < heap->n; k++)
        if (is_earlier(&heap->items[k], &heap->items[earliest]))
            earliest = k;
    return earliest;
}

uint32_t release_heap_take(struct release_heap *heap)
{
    uint32_t slot = heap->items[0].slot;
    struct release last = heap->items[--heap->n];
    size_t i = 0, child;

    while ((child = earliest_child(heap, i)) < heap->n && is_earlier(&heap->items[child], &last)) {
        heap->items[i] = heap->items[child];
        i = child;
    }
    if (heap->n > 0)
        heap->items[i] = last;
    return slot;
}

void release_heap_free(struct release_heap *heap)
{
    free(heap->items);
    *heap = (struct release_heap){0};
}
