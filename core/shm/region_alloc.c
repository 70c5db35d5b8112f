/* SPDX-License-Identifier: MIT */
/* Regions: reserved address ranges that are committed on demand. */
#include "shm/region.h"

#include "os/os.h"
#include "shm/segment.h"
#include <errno.h>
#include <string.h>

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
        region_area_open(&region->records, RECORDS_RESERVED_MAX) < 0) {
        region_close(region);
        return -ENOMEM;
    }
    /* Unit 0 and run 0 stay unused: number 0 means none. */
    region->blocks.used = REGION_UNIT_SIZE;
    region->records.used = RUN_SIZE;
    return 0;
}

int region_open_segment(struct region *region, const struct segment *segment, _Atomic bool *broken)
{
    const struct segment_layout *layout = &segment->layout;
    size_t record = RECORD_UNITS_MAX * RECORD_UNIT_SIZE, block = segment_block_size(layout);

    *region = (struct region){.segment = segment, .broken = broken};
    region->fallback = os_alloc(1, record > block ? record : block);
    if (!region->fallback)
        return -ENOMEM;
    region->blocks.base = segment->base;
    region->records.base = segment_records(segment);
    region->record_end = layout->runs_n * SEGMENT_RUN_UNITS - layout->record_units + 1;
    region->slot_first = segment_block_slot(segment, 0);
    region->slots_n = layout->blocks_n;
    region->block_class = layout->block_class;
    return 0;
}

/* Relaxed: the flag is polled, and no other data depends on it. */
void *region_mark_broken(const struct region *region)
{
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
    os_free(region->run_units);
    *region = (struct region){0};
}

uint32_t region_alloc_block(struct region *region, size_t size, size_t alignment)
{
    struct region_area *area = &region->blocks;
    size_t at = (area->used + alignment - 1) & ~(alignment - 1);

    size = (size + REGION_UNIT_SIZE - 1) & ~(REGION_UNIT_SIZE - 1);
    if (alignment == REGION_UNIT_SIZE && size <= region->gap_end - region->gap) {
        region->gap += size;
        return (uint32_t)((region->gap - size) / REGION_UNIT_SIZE);
    }
    if (size > area->reserved || region_area_grow(area, at + size) < 0)
        return 0;
    if (at - area->used > region->gap_end - region->gap) {
        region->gap = area->used;
        region->gap_end = at;
    }
    area->used = at + size;
    return (uint32_t)(at / REGION_UNIT_SIZE);
}

static int region_reserve_runs(struct region *region, size_t runs)
{
    size_t capacity = region->runs_capacity ? 2 * region->runs_capacity : 64;
    uint8_t *grown;

    if (runs <= region->runs_capacity)
        return 0;
    grown = os_realloc(region->run_units, capacity, 1);
    if (!grown)
        return -ENOMEM;
    memset(grown + region->runs_capacity, 0, capacity - region->runs_capacity);
    region->run_units = grown;
    region->runs_capacity = capacity;
    return 0;
}

uint32_t region_alloc_run(struct region *region, uint32_t units)
{
    struct region_area *area = &region->records;
    size_t run = area->used / RUN_SIZE;

    if (region_reserve_runs(region, run + 1) < 0 ||
        region_area_grow(area, area->used + RUN_SIZE) < 0)
        return 0;
    region->run_units[run] = (uint8_t)units;
    area->used += RUN_SIZE;
    return (uint32_t)(run * RUN_UNITS);
}

/* Skips runs without an owner, which contain no record in use. */
static uint32_t region_next_in_segment(const struct segment *segment, uint32_t record)
{
    uint32_t units = segment->layout.record_units, run = record / SEGMENT_RUN_UNITS;
    uint32_t runs_n = segment_runs_n(segment);

    if (record && record % SEGMENT_RUN_UNITS + 2 * units <= SEGMENT_RUN_UNITS)
        return record + units;
    for (run++; run < runs_n; run++)
        if (atomic_load_explicit(segment_run_owner(segment, run), memory_order_acquire))
            return run * SEGMENT_RUN_UNITS;
    return 0;
}

uint32_t region_next_record(const struct region *region, uint32_t record)
{
    uint32_t run = record / RUN_UNITS, units;

    if (region->segment)
        return region_next_in_segment(region->segment, record);
    units = record ? region->run_units[run] : RUN_UNITS;

    if (record % RUN_UNITS + 2 * units <= RUN_UNITS)
        return record + units;
    return (run + 1) * RUN_SIZE < region->records.used ? (run + 1) * RUN_UNITS : 0;
}

/* Checks the run, too: one that was never used has no memory. */
static bool region_segment_has_record(const struct segment *segment, uint32_t record)
{
    uint32_t run = record / SEGMENT_RUN_UNITS;

    return segment_has_record(segment, record) && run < segment_runs_n(segment) &&
           atomic_load_explicit(segment_run_owner(segment, run), memory_order_acquire) != 0;
}

bool region_has_record(const struct region *region, uint32_t record)
{
    uint32_t run = record / RUN_UNITS, in_run = record % RUN_UNITS, units;

    if (region->segment)
        return region_segment_has_record(region->segment, record);
    units = run < region->records.used / RUN_SIZE ? region->run_units[run] : 0;
    return units && in_run % units == 0 && in_run + units <= RUN_UNITS;
}

bool region_has_thread_unit(const struct region *region, uint32_t unit)
{
    uint32_t i;

    return segment_thread_of_unit(region->segment, unit, &i);
}
