/* SPDX-License-Identifier: MIT */
/* Regions: reserved address ranges that are committed on demand. */
#include "shm/region.h"

#include "base/invariant.h"
#include "os/os.h"
#include "shm/segment.h"
#include <errno.h>

#define RESERVED_MIN ((size_t)1 << 24)
#define COMMIT_MIN   ((size_t)1 << 18)
#define COMMIT_MAX   ((size_t)1 << 25)
#define LARGE_FROM   ((size_t)1 << 22) /* from this size on large pages waste little */

static int region_area_open(struct region_area *area, size_t size)
{
    /* A limit on address space or on locked memory may forbid the full range: try less. */
    for (; size >= RESERVED_MIN; size /= 2) {
        area->base = os_vm_reserve(size);
        if (area->base) {
            area->reserved = size;
            return 0;
        }
    }
    return -ENOMEM;
}

static int region_area_grow(struct region_area *area, size_t used)
{
    size_t step, committed;

    WEIR_INVARIANT(area->base && area->committed <= area->reserved);
    if (used > area->reserved)
        return -ENOMEM;
    if (used <= area->committed)
        return 0;
    step = area->committed < COMMIT_MIN ? COMMIT_MIN : area->committed;
    committed = area->committed + (step > COMMIT_MAX ? COMMIT_MAX : step);
    if (committed < used)
        committed = used;
    if (committed > area->reserved)
        committed = area->reserved;
    if (os_vm_commit(area->base, committed) < 0)
        return -ENOMEM;
    if (area->committed >= LARGE_FROM)
        os_vm_prefer_huge_pages(area->base + area->committed, committed - area->committed);
    area->committed = committed;
    return 0;
}

static void region_area_close(struct region_area *area)
{
    if (area->base)
        os_vm_free(area->base, area->reserved);
    *area = (struct region_area){0};
}

int region_open(struct region *region)
{
    *region = (struct region){.record_end = UINT32_MAX, .slots_n = UINT64_MAX};
    if (region_area_open(&region->blocks, BLOCKS_RESERVED_MAX) < 0 ||
        region_area_open(&region->records, RECORDS_RESERVED_MAX) < 0 ||
        region_area_grow(&region->records, RUN_SIZE) < 0) {
        region_close(region);
        return -ENOMEM;
    }
    /* Unit 0 and run 0 are none's: number 0 means none. */
    region->blocks.used = REGION_UNIT_SIZE;
    region->records.used = RUN_SIZE;
    return 0;
}

int region_open_segment(struct region *region, const struct segment *segment, _Atomic bool *broken)
{
    const struct segment_layout *layout = &segment->layout;
    size_t record = RECORD_UNITS_MAX * RECORD_UNIT_SIZE, block = segment_block_size(layout);

    WEIR_INVARIANT(layout->sizes.record_units > 0 &&
                   layout->sizes.record_units <= RECORD_UNITS_MAX);
    *region = (struct region){.segment = segment, .broken = broken};
    region->fallback = os_alloc(1, record > block ? record : block);
    if (!region->fallback)
        return -ENOMEM;
    region->blocks.base = segment->base;
    region->records.base = segment->base + layout->records_at;
    region->record_end = layout->sizes.runs_n * SEGMENT_RUN_UNITS - layout->sizes.record_units + 1;
    region->slot_first = segment_block_slot(segment, 0);
    region->slots_n = layout->blocks_n;
    region->block_class = layout->sizes.block_class;
    return 0;
}

/* Relaxed: the flag is polled, and no other data depends on it. */
void *region_mark_broken(const struct region *region)
{
    WEIR_INVARIANT(region->segment && region->broken && region->fallback);
    atomic_store_explicit(region->broken, true, memory_order_relaxed);
    return region->fallback;
}

void region_close(struct region *region)
{
    if (region->segment) {
        os_free(region->fallback);
        *region = (struct region){0};
        return;
    }
    region_area_close(&region->blocks);
    region_area_close(&region->records);
    *region = (struct region){0};
}

uint32_t region_alloc_block(struct region *region, size_t size, size_t alignment)
{
    return region_alloc_block_below(region, size, alignment, region->blocks.reserved);
}

uint32_t region_alloc_block_below(struct region *region, size_t size, size_t alignment, size_t end)
{
    struct region_area *area = &region->blocks;
    size_t at = (area->used + alignment - 1) & ~(alignment - 1);

    WEIR_INVARIANT(!region->segment && size > 0);
    WEIR_INVARIANT(alignment >= REGION_UNIT_SIZE && !(alignment & (alignment - 1)));
    WEIR_INVARIANT(region->gap <= region->gap_end && region->gap_end <= area->used);
    size = (size + REGION_UNIT_SIZE - 1) & ~(REGION_UNIT_SIZE - 1);
    if (alignment == REGION_UNIT_SIZE && size <= region->gap_end - region->gap) {
        region->gap += size;
        return (uint32_t)((region->gap - size) / REGION_UNIT_SIZE);
    }
    if (size > end || at > end - size || region_area_grow(area, at + size) < 0)
        return 0;
    if (at - area->used > region->gap_end - region->gap) {
        region->gap = area->used;
        region->gap_end = at;
    }
    area->used = at + size;
    return (uint32_t)(at / REGION_UNIT_SIZE);
}

/* Returns the entry of a run: the size of its records in units; 0: it has none. It is stored once,
 * and never moves: so records are looked up without a lock. */
static _Atomic uint8_t *region_run(const struct region *region, size_t run)
{
    return (_Atomic uint8_t *)region->records.base + run;
}

uint32_t region_alloc_run(struct region *region, uint32_t units)
{
    struct region_area *area = &region->records;
    size_t run = area->used / RUN_SIZE;

    WEIR_INVARIANT(!region->segment && units > 0 && units <= RECORD_UNITS_MAX);
    WEIR_INVARIANT(area->used % RUN_SIZE == 0 && run > 0);
    if (region_area_grow(area, area->used + RUN_SIZE) < 0)
        return 0;
    atomic_store_explicit(region_run(region, run), (uint8_t)units, memory_order_release);
    area->used += RUN_SIZE;
    return (uint32_t)(run * RUN_UNITS);
}

/* Returns how many runs there may be. */
static uint32_t region_runs_n(const struct region *region)
{
    return region->segment ? segment_runs_n(region->segment)
                           : (uint32_t)(region->records.reserved / RUN_SIZE);
}

static uint32_t region_run_size(const struct region *region)
{
    return region->segment ? SEGMENT_RUN_UNITS : RUN_UNITS;
}

/* Returns the size of the records in a run, in units; 0: it contains no record in use. A run of a
 * segment that was never used has no memory, one without an owner no record in use. */
static uint32_t region_record_units(const struct region *region, uint32_t run)
{
    if (run == 0 || run >= region_runs_n(region))
        return 0;
    if (!region->segment)
        return atomic_load_explicit(region_run(region, run), memory_order_acquire);
    return atomic_load_explicit(segment_run_owner(region->segment, run), memory_order_acquire)
               ? region->segment->layout.sizes.record_units
               : 0;
}

uint32_t region_next_record(const struct region *region, uint32_t record)
{
    uint32_t size = region_run_size(region), run = record / size;
    uint32_t units = region_record_units(region, run);

    if (units && record % size + 2 * units <= size)
        return record + units;
    for (run++; run < region_runs_n(region); run++) {
        if (region_record_units(region, run))
            return run * size;
        if (!region->segment)
            return 0; /* its runs are in a row */
    }
    return 0;
}

bool region_has_record(const struct region *region, uint32_t record)
{
    uint32_t size = region_run_size(region), at = record % size;
    uint32_t units = region_record_units(region, record / size);

    return units && at % units == 0 && at + units <= size;
}

bool region_has_thread_unit(const struct region *region, uint32_t unit)
{
    uint32_t i;

    return segment_thread_of_unit(region->segment, unit, &i);
}
