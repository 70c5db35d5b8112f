/* SPDX-License-Identifier: MIT */
/* Regions: reserved addresses, committed as they are needed. */
#include "shm/region.h"

#include "base/mutant.h"
#include "os/os.h"
#include "shm/segment.h"
#include <errno.h>
#include <string.h>

#define RESERVED_MIN ((size_t)1 << 24)
#define COMMIT_MIN   ((size_t)1 << 18)
#define COMMIT_MAX   ((size_t)1 << 25)
#define LARGE_FROM   ((size_t)1 << 22) /* from here on large pages waste little */

static int area_open(struct area *area, size_t size)
{
    /* A limit on addresses or on locked memory may forbid the full range; take what there is. */
    for (; size >= RESERVED_MIN; size /= 2) {
        area->base = sys_reserve(size);
        if (area->base) {
            area->reserved = size;
            return 0;
        }
    }
    return -ENOMEM;
}

static int area_grow(struct area *area, size_t used)
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
    if (sys_commit(area->base, committed) < 0)
        return -ENOMEM;
    if (area->committed >= LARGE_FROM)
        sys_prefer_large_pages(area->base + area->committed, committed - area->committed);
    area->committed = committed;
    return 0;
}

static void area_close(struct area *area)
{
    if (area->base)
        sys_unreserve(area->base, area->reserved);
    *area = (struct area){0};
}

int region_open(struct region *region)
{
    *region = (struct region){.record_limit = UINT32_MAX, .slots_n = UINT64_MAX};
    if (area_open(&region->boxes, BOXES_RESERVED_MAX) < 0 ||
        area_open(&region->records, RECORDS_RESERVED_MAX) < 0) {
        region_close(region);
        return -ENOMEM;
    }
    /* Unit 0 and run 0 stay unused: the number 0 means none. */
    region->boxes.used = UNIT_SIZE;
    region->records.used = RUN_SIZE;
    return 0;
}

int region_of_segment(struct region *region, const struct segment *segment, _Atomic bool *broken)
{
    const struct segment_layout *layout = &segment->layout;
    size_t record = RECORD_UNITS_MAX * RECORD_UNIT_SIZE, box = segment_box_size(layout);

    *region = (struct region){.segment = segment, .broken = broken};
    region->nowhere = sys_alloc(1, record > box ? record : box);
    if (!region->nowhere)
        return -ENOMEM;
    region->boxes.base = segment->base;
    region->records.base = segment_records(segment);
    region->record_limit = layout->runs_n * SEGMENT_RUN_UNITS - layout->record_units + 1;
    region->slot_first = segment_box_slot(segment, 0);
    region->slots_n = layout->boxes_n;
    region->box_class = layout->box_class;
    return 0;
}

void *region_stray(const struct region *region)
{
    atomic_store_explicit(region->broken, true, memory_order_relaxed);
    return region->nowhere;
}

void region_close(struct region *region)
{
    if (region->segment) {
        sys_free(region->nowhere);
        *region = (struct region){0};
        return;
    }
    area_close(&region->boxes);
    area_close(&region->records);
    sys_free(region->run_units);
    *region = (struct region){0};
}

uint32_t region_alloc_box(struct region *region, size_t size, size_t alignment)
{
    struct area *area = &region->boxes;
    size_t at = (area->used + alignment - 1) & ~(alignment - 1);

    size = (size + UNIT_SIZE - 1) & ~(UNIT_SIZE - 1);
    if (alignment == UNIT_SIZE && size <= region->gap_end - region->gap && !MUTANT(539)) {
        region->gap += size;
        return (uint32_t)((region->gap - size) / UNIT_SIZE);
    }
    if (size > area->reserved || area_grow(area, at + size) < 0)
        return 0;
    if (at - area->used > region->gap_end - region->gap) {
        region->gap = area->used;
        region->gap_end = at;
    }
    area->used = at + size;
    return (uint32_t)(at / UNIT_SIZE);
}

static int runs_reserve(struct region *region, size_t runs)
{
    size_t capacity = region->runs_capacity ? 2 * region->runs_capacity : 64;
    uint8_t *grown;

    if (runs <= region->runs_capacity)
        return 0;
    grown = sys_grow(region->run_units, capacity, 1);
    if (!grown)
        return -ENOMEM;
    memset(grown + region->runs_capacity, 0, capacity - region->runs_capacity);
    region->run_units = grown;
    region->runs_capacity = capacity;
    return 0;
}

uint32_t region_alloc_run(struct region *region, uint32_t units)
{
    struct area *area = &region->records;
    size_t run = area->used / RUN_SIZE;

    if (runs_reserve(region, run + 1) < 0 || area_grow(area, area->used + RUN_SIZE) < 0)
        return 0;
    region->run_units[run] = (uint8_t)units;
    area->used += RUN_SIZE;
    return (uint32_t)(run * RUN_UNITS);
}

/* Runs that belong to nobody hold no record of interest. */
static uint32_t next_in_segment(const struct segment *segment, uint32_t record)
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
        return next_in_segment(region->segment, record);
    units = record ? region->run_units[run] : RUN_UNITS;

    if (record % RUN_UNITS + 2 * units <= RUN_UNITS)
        return record + units;
    return (run + 1) * RUN_SIZE < region->records.used ? (run + 1) * RUN_UNITS : 0;
}

/* Runs that were never used have no memory behind them. */
static bool segment_has(const struct segment *segment, uint32_t record)
{
    uint32_t run = record / SEGMENT_RUN_UNITS;

    return segment_has_record(segment, record) && run < segment_runs_n(segment) &&
           atomic_load_explicit(segment_run_owner(segment, run), memory_order_acquire) != 0;
}

bool region_has_record(const struct region *region, uint32_t record)
{
    uint32_t run = record / RUN_UNITS, in_run = record % RUN_UNITS, units;

    if (region->segment)
        return segment_has(region->segment, record);
    units = run < region->records.used / RUN_SIZE ? region->run_units[run] : 0;
    return units && in_run % units == 0 && in_run + units <= RUN_UNITS;
}
