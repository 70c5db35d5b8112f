/* SPDX-License-Identifier: MIT */
/*
 * Region: the flat memory of all sets of an instance, or of one shared set. It contains no
 * pointers; everything is addressed by unit numbers, so its bytes mean the same at any address and
 * in any process.
 *
 * Two areas, each an address range that grows at its end and never moves or shrinks:
 *   blocks   set heads, thread heads, and the version blocks of sets
 *   records  one per acquisition, held or waiting
 * Memory is type-stable: a version block (or record) always stays one, so a late reader finds stale
 * but well-formed words.
 */
#ifndef WEIR_CORE_SHM_REGION_H
#define WEIR_CORE_SHM_REGION_H

#include "base/invariant.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define REGION_UNIT_SIZE ((size_t)64)

struct region_area {
    unsigned char *base;
    size_t used, committed, reserved; /* bytes */
};

/* Bounds due to the widths of a set's state word and of a link. */
#define BLOCKS_RESERVED_MAX  ((size_t)1 << 32)
#define RECORDS_RESERVED_MAX ((size_t)1 << 32)

/* Records are counted in smaller units than blocks, and allocated in runs: RUN_UNITS units of
 * records of one size. */
#define RECORD_UNIT_SIZE ((size_t)16)
#define RUN_UNITS        4096u
#define RUN_SIZE         (RUN_UNITS * RECORD_UNIT_SIZE)
#define RECORD_UNITS_MAX 39u
_Static_assert(RECORDS_RESERVED_MAX / RUN_SIZE <= RUN_SIZE, "run 0 has a byte for each run");
_Static_assert(BLOCKS_RESERVED_MAX / REGION_UNIT_SIZE <= UINT32_MAX, "units are 32-bit numbers");

struct segment;

struct region {
    struct region_area blocks;
    struct region_area records; /* run 0 has no records: it is the table of the runs */
    size_t gap, gap_end;        /* offsets in the blocks area, skipped to align a block */

    /*
     * Bounds for numbers that other processes may have written. A number out of bounds resolves to
     * the fallback memory and marks the region as broken. In private memory all numbers are within
     * bounds.
     */
    uint32_t record_end;           /* in units */
    uint64_t slot_first, slots_n;  /* of version blocks */
    const struct segment *segment; /* NULL: private memory */
    uint32_t block_class;          /* of a segment's only set */
    void *fallback;                /* room for a version block or a record */
    _Atomic bool *broken;
};

/* Reserves as many addresses as the system allows. Returns 0 or -ENOMEM. */
int region_open(struct region *region);
/*
 * Opens the region of a segment. The memory stays the segment's. `*broken` is set when an invalid
 * number is read from it. Returns 0 or -ENOMEM.
 */
int region_open_segment(struct region *region, const struct segment *segment, _Atomic bool *broken);
void region_close(struct region *region);

/*
 * Allocates `size` zeroed bytes in the blocks area, aligned to `alignment` (a power of two, at
 * least REGION_UNIT_SIZE). Returns the unit number, or 0: out of memory. The caller holds the
 * instance's lock.
 */
uint32_t region_alloc_block(struct region *region, size_t size, size_t alignment);
/* Allocates a block as region_alloc_block() does, but only below the offset `end`, in bytes. */
uint32_t region_alloc_block_below(struct region *region, size_t size, size_t alignment, size_t end);

/*
 * Allocates a run of RUN_UNITS / units zeroed records of `units` units each. Returns the number of
 * its first unit, or 0: out of memory. The caller holds the instance's lock.
 */
uint32_t region_alloc_run(struct region *region, uint32_t units);

/* Returns the record after `record`, of any size, or 0 after the last. `record` 0: returns the
 * first. */
uint32_t region_next_record(const struct region *region, uint32_t record);

/* Returns whether a record begins at this unit, for unchecked numbers. */
bool region_has_record(const struct region *region, uint32_t record);

static inline void *region_block(const struct region *region, uint32_t unit)
{
    WEIR_INVARIANT(region->segment || unit * REGION_UNIT_SIZE < region->blocks.reserved);
    return region->blocks.base + unit * REGION_UNIT_SIZE;
}

/* Marks the region as broken, after an invalid number was read, and returns its fallback memory. */
void *region_mark_broken(const struct region *region);

/* Returns whether a unit of a segment is that of a thread head. The unit may be any number. */
bool region_has_thread_unit(const struct region *region, uint32_t unit);

#endif
