/* SPDX-License-Identifier: MIT */
/* The heap of deadlines. */
#include "heap.h"

#include "mutant.h"
#include "sys.h"
#include <errno.h>
#include <weir/error.h>

int heap_reserve(struct heap *heap, size_t n)
{
    size_t capacity = heap->capacity ? heap->capacity : 16;
    struct heap_entry *grown;

    while (capacity < n + 1)
        capacity *= 2;
    if (capacity == heap->capacity)
        return 0;
    grown = sys_grow(heap->entries, capacity, sizeof(*grown));
    if (!grown)
        return -ENOMEM;
    heap->entries = grown;
    heap->capacity = capacity;
    return 0;
}

void heap_free(struct heap *heap)
{
    sys_free(heap->entries);
    /* The region stays, and is not even written: whoever comes late to a closed queue reads it. */
    heap->entries = NULL;
    heap->n = heap->capacity = 0;
}

const struct heap_entry *heap_first(const struct heap *heap)
{
    return heap->n ? &heap->entries[1] : NULL;
}

uint64_t heap_instant(const struct heap *heap, uint32_t record)
{
    uint32_t index = record_at(heap->region, record)->timer;

    return index ? heap_entry_at(&heap->entries[index]) : WEIR_FOREVER;
}

static bool is_earlier(const struct heap_entry *a, const struct heap_entry *b)
{
    return heap_entry_at(a) < heap_entry_at(b);
}

static void put(struct heap *heap, struct heap_entry entry, size_t index)
{
    heap->entries[index] = entry;
    record_at(heap->region, entry.record)->timer = (uint32_t)index;
}

static void sift_up(struct heap *heap, struct heap_entry entry, size_t index)
{
    for (; index > 1 && is_earlier(&entry, &heap->entries[index / 2]); index /= 2)
        put(heap, heap->entries[index / 2], index);
    put(heap, entry, index);
}

static void sift_down(struct heap *heap, struct heap_entry entry, size_t index)
{
    for (;;) {
        size_t child = 2 * index;

        if (child > heap->n)
            break;
        if (child < heap->n &&
            is_earlier(&heap->entries[child + 1], &heap->entries[child]) != MUTANT(5))
            child++;
        if (!is_earlier(&heap->entries[child], &entry))
            break;
        put(heap, heap->entries[child], index);
        index = child;
    }
    put(heap, entry, index);
}

/* Puts an entry where another was taken out. */
static void settle(struct heap *heap, struct heap_entry entry, size_t index)
{
    if (index > 1 && is_earlier(&entry, &heap->entries[index / 2]) && !MUTANT(6))
        sift_up(heap, entry, index);
    else
        sift_down(heap, entry, index);
}

void heap_put(struct heap *heap, uint32_t record, uint64_t at_ns)
{
    uint32_t index = record_at(heap->region, record)->timer;
    struct heap_entry entry = {(uint32_t)at_ns, (uint32_t)(at_ns >> 32), record};

    if (index)
        settle(heap, entry, index);
    else
        sift_up(heap, entry, ++heap->n);
}

void heap_remove(struct heap *heap, uint32_t record)
{
    struct record *r = record_at(heap->region, record);
    size_t index = r->timer;
    struct heap_entry last;

    if (!index)
        return;
    r->timer = 0;
    last = heap->entries[heap->n--];
    if (last.record != record)
        settle(heap, last, index);
}
