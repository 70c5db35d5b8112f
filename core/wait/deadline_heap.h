/* SPDX-License-Identifier: MIT */
/* A heap of deadlines by record. Each record knows its place in the heap, so removal is O(log n).
 * Removal of the first is O(1) while they are sorted: of a queue with one timeout for all. */
#ifndef WEIR_CORE_WAIT_DEADLINE_HEAP_H
#define WEIR_CORE_WAIT_DEADLINE_HEAP_H

#include "shm/acq_record.h"
#include <stddef.h>
#include <stdint.h>

/* The time is split in halves: 12 bytes, not 16. */
struct deadline_entry {
    uint32_t at_low, at_high;
    uint32_t record;
};

static inline uint64_t deadline_entry_ns(const struct deadline_entry *entry)
{
    return (uint64_t)entry->at_high << 32 | entry->at_low;
}

struct deadline_heap {
    const struct region *region;
    struct deadline_entry *entries; /* a ring, the first one behind `start` */
    size_t n, capacity, start;      /* the capacity is a power of two */
    bool is_sorted;
};

/* Makes room for `n` entries in all, so that adding that many cannot fail. Returns 0 or -ENOMEM. */
int deadline_heap_reserve(struct deadline_heap *heap, size_t n);
void deadline_heap_free(struct deadline_heap *heap);
static inline uint32_t deadline_heap_room(const struct deadline_heap *heap) /* entries that fit */
{
    return heap->capacity ? (uint32_t)(heap->capacity - 1) : 0;
}
static inline const struct deadline_entry *
deadline_heap_first(const struct deadline_heap *heap) /* or NULL */
{
    return heap->n ? &heap->entries[(heap->start + 1) & (heap->capacity - 1)] : NULL;
}
/* Sets or replaces the time of a record. Room must have been reserved. */
void deadline_heap_put(struct deadline_heap *heap, uint32_t record, uint64_t at_ns);
/* Sets the time of a record unless it has an earlier one. Room must have been reserved. */
void deadline_heap_put_earlier(struct deadline_heap *heap, uint32_t record, uint64_t at_ns);
/* Prefetches what the removal of a record that is in the heap reads and writes. */
void deadline_heap_prefetch(const struct deadline_heap *heap, const struct acq_record *r);
/* Removes a record that is in the heap. */
void deadline_heap_remove_known(struct deadline_heap *heap, uint32_t record);
/* Removes a record if it is in the heap. */
static inline void deadline_heap_remove(struct deadline_heap *heap, uint32_t record)
{
    if (record_known(heap->region, record)->heap_index)
        deadline_heap_remove_known(heap, record);
}

#endif
