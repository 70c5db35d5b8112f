/* SPDX-License-Identifier: MIT */
/* A 4-ary heap of deadlines (Williams 1964; d-ary heaps: Johnson 1975). */
#include "wait/deadline_heap.h"

#include "base/compiler.h"
#include "base/invariant.h"
#include "os/os.h"
#include <errno.h>

int deadline_heap_reserve(struct deadline_heap *heap, size_t n)
{
    size_t capacity = heap->capacity ? heap->capacity : 16;
    struct deadline_entry *grown;

    WEIR_INVARIANT(heap->n <= heap->capacity);
    WEIR_INVARIANT(heap->region);
    while (capacity < n + 1)
        capacity *= 2;
    if (capacity == heap->capacity)
        return 0;
    grown = os_realloc(heap->entries, capacity, sizeof(*grown));
    if (!grown)
        return -ENOMEM;
    heap->entries = grown;
    heap->capacity = capacity;
    return 0;
}

void deadline_heap_free(struct deadline_heap *heap)
{
    os_free(heap->entries);
    /* The region stays and is not written: a thread that comes late to a closed queue reads it. */
    heap->entries = NULL;
    heap->n = heap->capacity = 0;
}

/* Returns whether the entry at `index` is that of the record. */
static inline bool deadline_heap_has_at(const struct deadline_heap *heap, size_t index,
                                        uint32_t record)
{
    return index > 0 && index <= heap->n && heap->entries[index].record == record;
}

static bool deadline_entry_is_earlier(const struct deadline_entry *a,
                                      const struct deadline_entry *b)
{
    return deadline_entry_ns(a) < deadline_entry_ns(b);
}

static void deadline_heap_store(struct deadline_heap *heap, struct deadline_entry entry,
                                size_t index)
{
    WEIR_INVARIANT(index > 0 && index <= heap->n && index <= UINT32_MAX);
    WEIR_INVARIANT(entry.record);
    heap->entries[index] = entry;
    record_at(heap->region, entry.record)->heap_index = (uint32_t)index;
}

/* Each entry has up to four children. */
#define HEAP_ARITY              4u
#define HEAP_FIRST_CHILD(index) (HEAP_ARITY * ((index)-1) + 2)
#define HEAP_PARENT(index)      (((index) + HEAP_ARITY - 2) / HEAP_ARITY)

/* Returns the index of the earliest child of `index`, or 0 if it has none. */
static size_t deadline_heap_first_child(const struct deadline_heap *heap, size_t index)
{
    size_t first = HEAP_FIRST_CHILD(index), last = first + HEAP_ARITY - 1, earliest = first;

    if (first > heap->n)
        return 0;
    if (last > heap->n)
        last = heap->n;
    for (size_t i = first + 1; i <= last; i++)
        if (deadline_entry_is_earlier(&heap->entries[i], &heap->entries[earliest]))
            earliest = i;
    return earliest;
}

/* Puts an entry where `index` is free: there, or nearer to the root or to the leaves. */
static void deadline_heap_place(struct deadline_heap *heap, struct deadline_entry entry,
                                size_t index)
{
    size_t below;

    for (; index > 1 && deadline_entry_is_earlier(&entry, &heap->entries[HEAP_PARENT(index)]);
         index = HEAP_PARENT(index))
        deadline_heap_store(heap, heap->entries[HEAP_PARENT(index)], index);
    while ((below = deadline_heap_first_child(heap, index)) != 0 &&
           deadline_entry_is_earlier(&heap->entries[below], &entry)) {
        deadline_heap_store(heap, heap->entries[below], index);
        index = below;
    }
    deadline_heap_store(heap, entry, index);
}

void deadline_heap_put(struct deadline_heap *heap, uint32_t record, uint64_t at_ns)
{
    uint32_t index = record_at(heap->region, record)->heap_index;
    struct deadline_entry entry = {(uint32_t)at_ns, (uint32_t)(at_ns >> 32), record};

    WEIR_INVARIANT(!index || deadline_heap_has_at(heap, index, record));
    WEIR_INVARIANT(index || heap->n < deadline_heap_room(heap));
    deadline_heap_place(heap, entry, index ? index : ++heap->n);
}

void deadline_heap_put_earlier(struct deadline_heap *heap, uint32_t record, uint64_t at_ns)
{
    uint32_t index = record_at(heap->region, record)->heap_index;

    if (!index || at_ns < deadline_entry_ns(&heap->entries[index]))
        deadline_heap_put(heap, record, at_ns);
}

void deadline_heap_prefetch(const struct deadline_heap *heap, uint32_t index)
{
    WEIR_INVARIANT(index > 0 && index <= heap->n);
    prefetch_write(&heap->entries[index]);
    prefetch_write(&heap->entries[HEAP_PARENT(index)]);
    prefetch_read(&heap->entries[HEAP_FIRST_CHILD(index)]);
    prefetch_read(&heap->entries[HEAP_FIRST_CHILD(index) + HEAP_ARITY - 1]);
    prefetch_write(&record_at(heap->region, heap->entries[heap->n].record)->heap_index);
}

void deadline_heap_remove_known(struct deadline_heap *heap, uint32_t record)
{
    struct acq_record *r = record_at(heap->region, record);
    struct deadline_entry last = heap->entries[heap->n];
    uint32_t index = r->heap_index;

    WEIR_INVARIANT(deadline_heap_has_at(heap, index, record));
    r->heap_index = 0;
    heap->n--;
    if (last.record != record)
        deadline_heap_place(heap, last, index);
}
