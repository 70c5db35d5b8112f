/* SPDX-License-Identifier: MIT */
/* The heap of deadlines. */
#include "heap.h"

#include "mutant.h"
#include "sys.h"
#include <errno.h>

int heap_reserve(struct heap *heap, size_t n)
{
    size_t capacity = heap->capacity ? heap->capacity : 16;
    struct heap_node **grown;

    while (capacity < n + 1)
        capacity *= 2;
    if (capacity == heap->capacity)
        return 0;
    grown = sys_grow(heap->nodes, capacity, sizeof(*grown));
    if (!grown)
        return -ENOMEM;
    heap->nodes = grown;
    heap->capacity = capacity;
    return 0;
}

void heap_free(struct heap *heap)
{
    sys_free(heap->nodes);
    *heap = (struct heap){0};
}

struct heap_node *heap_first(const struct heap *heap)
{
    return heap->n ? heap->nodes[1] : NULL;
}

static void put(struct heap *heap, struct heap_node *node, size_t index)
{
    heap->nodes[index] = node;
    node->index = index;
}

static void sift_up(struct heap *heap, struct heap_node *node, size_t index)
{
    for (; index > 1 && heap->nodes[index / 2]->at_ns > node->at_ns; index /= 2)
        put(heap, heap->nodes[index / 2], index);
    put(heap, node, index);
}

static void sift_down(struct heap *heap, struct heap_node *node, size_t index)
{
    for (;;) {
        size_t child = 2 * index;

        if (child > heap->n)
            break;
        if (child < heap->n &&
            (heap->nodes[child + 1]->at_ns < heap->nodes[child]->at_ns) != MUTANT(5))
            child++;
        if (heap->nodes[child]->at_ns >= node->at_ns)
            break;
        put(heap, heap->nodes[child], index);
        index = child;
    }
    put(heap, node, index);
}

void heap_add(struct heap *heap, struct heap_node *node, uint64_t at_ns)
{
    node->at_ns = at_ns;
    sift_up(heap, node, ++heap->n);
}

void heap_remove(struct heap *heap, struct heap_node *node)
{
    size_t index = node->index;
    struct heap_node *last;

    if (!index)
        return;
    node->index = 0;
    last = heap->nodes[heap->n--];
    if (last == node)
        return;
    if (index > 1 && heap->nodes[index / 2]->at_ns > last->at_ns && !MUTANT(6))
        sift_up(heap, last, index);
    else
        sift_down(heap, last, index);
}
