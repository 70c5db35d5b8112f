/* SPDX-License-Identifier: MIT */
/*
 * A region: the flat memory in which all sets of an instance live. Nothing in it is a pointer;
 * everything is addressed by the number of a unit, so that the same bytes mean the same at
 * another address and in another process.
 *
 * Two areas, each a range of addresses that grows at its end and never moves or shrinks:
 *   boxes    set heads, actor heads and the boxes in which versions of a set are published
 *   records  one per acquisition: who holds, who waits
 * Memory of either is type-stable: once a box (or record), always one, so a reader that comes late
 * finds stale but well-formed words, never something else.
 */
#ifndef WEIR_CORE_SHM_REGION_H
#define WEIR_CORE_SHM_REGION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define REGION_UNIT_SIZE ((size_t)64)

struct region_area {
    unsigned char *base;
    size_t used, committed, reserved; /* bytes */
};

/* Bounds that the widths of a set's word and of a link impose. */
#define BLOCKS_RESERVED_MAX  ((size_t)1 << 32)
#define RECORDS_RESERVED_MAX ((size_t)1 << 32)

/* Records are counted in smaller units than boxes, and made in runs: RUN_UNITS units that hold
 * records of one size. */
#define RECORD_UNIT_SIZE ((size_t)16)
#define RUN_UNITS        4096u
#define RUN_SIZE         (RUN_UNITS * RECORD_UNIT_SIZE)
#define RECORD_UNITS_MAX 39u

struct segment;

struct region {
    struct region_area blocks;
    struct region_area records;
    uint8_t *run_units; /* by run: size of its records in units; 0 for run 0, which is never used */
    size_t runs_capacity;
    size_t gap, gap_end; /* bytes of the boxes area that were skipped to align the last box */

    /*
     * Numbers that other processes may have written are checked: what lies beyond is nowhere, and
     * the region is broken from then on. In private memory everything is within.
     */
    uint32_t record_end;           /* in units */
    uint64_t slot_first, slots_n;  /* of boxes */
    const struct segment *segment; /* NULL: private memory */
    uint32_t block_class;          /* of a segment's only set */
    void *fallback;                /* room for a box, or a record */
    _Atomic bool *broken;
};

/* Reserves addresses, as many as it can get. Returns 0 or -ENOMEM. */
int region_open(struct region *region);
/*
 * The region of a segment, whose memory stays the segment's. `*broken` is set once something in it
 * turns out to be what no process would have written. Returns 0 or -ENOMEM.
 */
int region_open_segment(struct region *region, const struct segment *segment, _Atomic bool *broken);
void region_close(struct region *region);

/*
 * Unit number of `size` zeroed bytes in the boxes area, aligned to `alignment` (a power of two, at
 * least REGION_UNIT_SIZE); 0 when there are none. The caller holds the instance's lock.
 */
uint32_t region_alloc_block(struct region *region, size_t size, size_t alignment);

/*
 * Unit number of a new run of zeroed records of `units` units each; 0 when there is none. It holds
 * RUN_UNITS / units records. The caller holds the instance's lock.
 */
uint32_t region_alloc_run(struct region *region, uint32_t units);

/* The record after `record`, of whatever size; 0: the first, and behind the last. As above, but for
 * segments, which need no lock. */
uint32_t region_next_record(const struct region *region, uint32_t record);

/* Whether a record begins at this unit. For numbers that come from elsewhere. As above. */
bool region_has_record(const struct region *region, uint32_t record);

static inline void *region_block(const struct region *region, uint32_t unit)
{
    return region->blocks.base + unit * REGION_UNIT_SIZE;
}

/* Something was read that cannot be: the region is broken, and this is memory to go on with. */
void *region_mark_broken(const struct region *region);

/* For numbers that nobody else has written. */
static inline void *region_record_unchecked(const struct region *region, uint32_t unit)
{
    return region->records.base + unit * RECORD_UNIT_SIZE;
}

static inline void *region_record(const struct region *region, uint32_t unit)
{
    if (unit >= region->record_end)
        return region_mark_broken(region);
    return region_record_unchecked(region, unit);
}

#endif
