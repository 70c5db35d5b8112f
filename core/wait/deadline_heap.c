/* SPDX-License-Identifier: MIT */
/* A 4-ary heap of deadlines (Williams 1964; d-ary heaps: Johnson 1975). A sorted array is a heap.
 * So while no entry is put out of order, the first is removed by moving the start of the ring. */
#include "wait/deadline_heap.h"

#include "base/compiler.h"
#include "base/invariant.h"
#include "os/os.h"
#include <errno.h>

/* Returns the entry at an index, which counts from 1. */
static inline struct deadline_entry *deadline_heap_at(const struct deadline_heap *heap,
                                                      size_t index)
{
    return &heap->entries[(heap->start + index) & (heap->capacity - 1)];
}

static void deadline_heap_store(struct deadline_heap *heap, struct deadline_entry entry,
                                size_t index)
{
    WEIR_INVARIANT(entry.record && index > 0 && index <= heap->n);
    *deadline_heap_at(heap, index) = entry;
    record_known(heap->region, entry.record)->heap_index =
        (uint32_t)(deadline_heap_at(heap, index) - heap->entries + 1);
}

int deadline_heap_reserve(struct deadline_heap *heap, size_t n)
{
    size_t before = heap->capacity, capacity = before ? before : 16;
    struct deadline_entry *grown;

    WEIR_INVARIANT(heap->region && heap->n <= heap->capacity);
    while (capacity < n + 1)
        capacity *= 2;
    if (capacity == before)
        return 0;
    grown = os_realloc(heap->entries, capacity, sizeof(*grown));
    if (!grown)
        return -ENOMEM;
    heap->entries = grown;
    heap->capacity = capacity;
    for (size_t i = 1; i <= heap->n; i++)
        if (heap->start + i >= before) /* it was at the beginning of the ring */
            deadline_heap_store(heap, grown[heap->start + i - before], i);
    return 0;
}

void deadline_heap_free(struct deadline_heap *heap)
{
    os_free(heap->entries);
    /* The region stays and is not written: a thread that comes late to a closed queue reads it. */
    heap->entries = NULL;
    heap->n = heap->capacity = heap->start = 0;
}

/* Returns the index of a record, or 0 if it is not in the heap. */
static inline size_t deadline_heap_index(const struct deadline_heap *heap,
                                         const struct acq_record *r)
{
    return r->heap_index ? (r->heap_index - 1 - heap->start) & (heap->capacity - 1) : 0;
}

static inline uint64_t deadline_heap_ns(const struct deadline_heap *heap, size_t index)
{
    return deadline_entry_ns(deadline_heap_at(heap, index));
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
        if (deadline_heap_ns(heap, i) < deadline_heap_ns(heap, earliest))
            earliest = i;
    return earliest;
}

/* Puts an entry where `index` is free: there, or nearer to the root or to the leaves. */
static void deadline_heap_place(struct deadline_heap *heap, struct deadline_entry entry,
                                size_t index)
{
    uint64_t at_ns = deadline_entry_ns(&entry);
    size_t below;

    for (; index > 1 && at_ns < deadline_heap_ns(heap, HEAP_PARENT(index));
         index = HEAP_PARENT(index))
        deadline_heap_store(heap, *deadline_heap_at(heap, HEAP_PARENT(index)), index);
    while ((below = deadline_heap_first_child(heap, index)) != 0 &&
           deadline_heap_ns(heap, below) < at_ns) {
        deadline_heap_store(heap, *deadline_heap_at(heap, below), index);
        index = below;
    }
    deadline_heap_store(heap, entry, index);
}

void deadline_heap_put(struct deadline_heap *heap, uint32_t record, uint64_t at_ns)
{
    size_t index = deadline_heap_index(heap, record_known(heap->region, record));
    struct deadline_entry entry = {(uint32_t)at_ns, (uint32_t)(at_ns >> 32), record};

    WEIR_INVARIANT(!index || deadline_heap_at(heap, index)->record == record);
    WEIR_INVARIANT(index || heap->n < deadline_heap_room(heap));
    index = index ? index : ++heap->n;
    heap->is_sorted = (heap->is_sorted || heap->n == 1) &&
                      (index == 1 || deadline_heap_ns(heap, index - 1) <= at_ns) &&
                      (index == heap->n || deadline_heap_ns(heap, index + 1) >= at_ns);
    if (heap->is_sorted)
        deadline_heap_store(heap, entry, index);
    else
        deadline_heap_place(heap, entry, index);
}

void deadline_heap_put_earlier(struct deadline_heap *heap, uint32_t record, uint64_t at_ns)
{
    size_t index = deadline_heap_index(heap, record_known(heap->region, record));

    if (!index || at_ns < deadline_heap_ns(heap, index))
        deadline_heap_put(heap, record, at_ns);
}

void deadline_heap_prefetch(const struct deadline_heap *heap, const struct acq_record *r)
{
    size_t index = deadline_heap_index(heap, r);

    WEIR_INVARIANT(index > 0 && index <= heap->n);
    if (heap->is_sorted && index == 1)
        return;
    prefetch_write(deadline_heap_at(heap, index));
    prefetch_write(deadline_heap_at(heap, HEAP_PARENT(index)));
    prefetch_read(deadline_heap_at(heap, HEAP_FIRST_CHILD(index)));
    prefetch_read(deadline_heap_at(heap, HEAP_FIRST_CHILD(index) + HEAP_ARITY - 1));
    prefetch_write(
        &record_known(heap->region, deadline_heap_at(heap, heap->n)->record)->heap_index);
}

void deadline_heap_remove_known(struct deadline_heap *heap, uint32_t record)
{
    struct acq_record *r = record_known(heap->region, record);
    size_t index = deadline_heap_index(heap, r);
    struct deadline_entry last = *deadline_heap_at(heap, heap->n);

    WEIR_INVARIANT(index > 0 && index <= heap->n &&
                   deadline_heap_at(heap, index)->record == record);
    r->heap_index = 0;
    heap->n--;
    if (heap->is_sorted && index == 1) {
        heap->start = (heap->start + 1) & (heap->capacity - 1);
    } else if (last.record != record) {
        heap->is_sorted = false;
        deadline_heap_place(heap, last, index);
    }
}
