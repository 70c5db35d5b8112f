/* SPDX-License-Identifier: MIT */
/* The heap of deadlines. */
#include "wait/deadline_heap.h"

#include "base/mutant.h"
#include "os/os.h"
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

/* Those below `index`: four, or fewer at the end. Its place in the heap is above them: PARENT. */
#define ARITY         4u
#define FIRST(index)  (ARITY * ((index)-1) + 2)
#define PARENT(index) (((index) + ARITY - 2) / ARITY)

static void sift_up(struct heap *heap, struct heap_entry entry, size_t index)
{
    for (; index > 1 && is_earlier(&entry, &heap->entries[PARENT(index)]); index = PARENT(index))
        put(heap, heap->entries[PARENT(index)], index);
    put(heap, entry, index);
}

/* The earliest of those below `index`; 0: there are none. */
static size_t earliest_below(const struct heap *heap, size_t index)
{
    size_t first = FIRST(index), last = first + ARITY - 1, earliest = first;

    if (first > heap->n)
        return 0;
    if (last > heap->n)
        last = heap->n;
    for (size_t i = first + 1; i <= last; i++)
        if (is_earlier(&heap->entries[i], &heap->entries[earliest]) != MUTANT(5))
            earliest = i;
    return earliest;
}

static void sift_down(struct heap *heap, struct heap_entry entry, size_t index)
{
    size_t below;

    while ((below = earliest_below(heap, index)) != 0 &&
           is_earlier(&heap->entries[below], &entry)) {
        put(heap, heap->entries[below], index);
        index = below;
    }
    put(heap, entry, index);
}

/* Puts an entry where another was taken out. */
static void settle(struct heap *heap, struct heap_entry entry, size_t index)
{
    if (index > 1 && is_earlier(&entry, &heap->entries[PARENT(index)]) && !MUTANT(6))
        sift_up(heap, entry, index);
    else
        sift_down(heap, entry, index);
}

static inline void put_at(struct heap *heap, uint32_t record, uint64_t at_ns, uint32_t index)
{
    struct heap_entry entry = {(uint32_t)at_ns, (uint32_t)(at_ns >> 32), record};

    if (index)
        settle(heap, entry, index);
    else
        sift_up(heap, entry, ++heap->n);
}

void heap_put(struct heap *heap, uint32_t record, uint64_t at_ns)
{
    put_at(heap, record, at_ns, record_at(heap->region, record)->timer);
}

void heap_put_before(struct heap *heap, uint32_t record, uint64_t at_ns)
{
    uint32_t index = record_at(heap->region, record)->timer;

    if (!index || at_ns < heap_entry_at(&heap->entries[index]))
        put_at(heap, record, at_ns, index);
}

void heap_take_out(struct heap *heap, struct record *r, uint32_t record)
{
    size_t index = r->timer;
    struct heap_entry last;

    r->timer = 0;
    last = heap->entries[heap->n--];
    if (last.record != record)
        settle(heap, last, index);
}
