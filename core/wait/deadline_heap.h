/* SPDX-License-Identifier: MIT */
/* A heap of deadlines of records, each of which knows its place in it; removal is O(log n). */
#ifndef WEIR_CORE_WAIT_DEADLINE_HEAP_H
#define WEIR_CORE_WAIT_DEADLINE_HEAP_H

#include "state/acq_record.h"
#include <stddef.h>
#include <stdint.h>

/* The instant in halves: 12 bytes, not 16. */
struct heap_entry {
    uint32_t at_low, at_high;
    uint32_t record;
};

static inline uint64_t heap_entry_at(const struct heap_entry *entry)
{
    return (uint64_t)entry->at_high << 32 | entry->at_low;
}

struct heap {
    const struct region *region;
    struct heap_entry *entries; /* from index 1 */
    size_t n, capacity;
};

/* Makes room for `n` entries in all, so that adding that many cannot fail. Returns 0 or -ENOMEM. */
int heap_reserve(struct heap *heap, size_t n);
void heap_free(struct heap *heap);
static inline uint32_t heap_room(const struct heap *heap) /* how many it has room for */
{
    return heap->capacity ? (uint32_t)(heap->capacity - 1) : 0;
}
static inline const struct heap_entry *heap_first(const struct heap *heap) /* or NULL */
{
    return heap->n ? &heap->entries[1] : NULL;
}
/* The instant of a record, or WEIR_FOREVER if it has none. */
uint64_t heap_instant(const struct heap *heap, uint32_t record);
/* Gives a record this instant, instead of another if it had one. Room was reserved. */
void heap_put(struct heap *heap, uint32_t record, uint64_t at_ns);
/* The same unless it has an earlier one. */
void heap_put_before(struct heap *heap, uint32_t record, uint64_t at_ns);
void heap_take_out(struct heap *heap, struct record *r, uint32_t record);
/* Fine if it is not in the heap. */
static inline void heap_remove(struct heap *heap, uint32_t record)
{
    struct record *r = record_at(heap->region, record);

    if (r->timer)
        heap_take_out(heap, r, record);
}

#endif
