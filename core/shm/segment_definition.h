/* SPDX-License-Identifier: MIT */
/*
 * Later definitions of a shared set, in its segment: each has a text, a head and a version block of
 * its own. set/set.h has how the state goes from one head to the next.
 *
 * A process that changes the definition holds the lock of the file, writes the next one, and then
 * commits the version that is MOVED. If it dies before, the next one writes that anew: no process
 * relies on it. All others may come upon MOVED at any time, and read what follows.
 *
 * A process that attaches needs the last definition that has the state. It begins to look at the
 * one that the header names, which is that one or an earlier one: the process that opened the last
 * one may have died before it said so. The head is written before the text. So if the text is whole
 * the state word tells whether the head has the state, and if it has, the text is final.
 */
#ifndef WEIR_CORE_SHM_SEGMENT_DEFINITION_H
#define WEIR_CORE_SHM_SEGMENT_DEFINITION_H

#include "shm/segment.h"

/* Reads definition `number`, any number; of the first one the text is not checked. Returns 0;
 * -EUCLEAN (there is none, or it is not whole); or an error of the system. */
int segment_definition_read(int fd, const struct segment_layout *layout, uint64_t number,
                            struct definition_copy *ret);

/* Reads the later definition `number`, any number, if its head has the state, or had it. Returns 1;
 * 0 (there is none that has); or an error of the system. */
int segment_definition_read_opened(int fd, const struct segment_layout *layout, uint64_t number,
                                   struct definition_copy *ret);

/* Writes the later definition `number`, with the first content of its head. All of `places` and of
 * `base`, one for each place that there can be, is stored: what is not used is 0. The caller holds
 * the lock of the file, and no process has come upon that definition. Returns 0; -ENOSPC (also: the
 * segment has no place for so many); or another error of the system. */
int segment_definition_write(const struct segment *segment, uint32_t number, const char *text,
                             uint64_t hash, const struct limit_places *places,
                             const struct limit_base *base, const uint64_t *content,
                             uint32_t content_n);

/* Stores the checksum of a definition that is written, with a NUL behind its text. */
void segment_definition_seal(struct segment_definition *definition);

static inline size_t segment_definition_at(const struct segment_layout *layout, uint32_t number)
{
    WEIR_INVARIANT(number > 0 && number <= layout->definitions_n);
    return layout->definitions_at + (number - (size_t)1) * SEGMENT_DEFINITION_STRIDE;
}

/* Returns the unit of the head of a definition; 0: of the first. */
static inline uint32_t segment_definition_unit(const struct segment *segment, uint32_t number)
{
    if (number == 0)
        return segment_set_head_unit();
    return (uint32_t)(segment_definition_at(&segment->layout, number) / REGION_UNIT_SIZE);
}

/* Returns the slot of the first version block of a later definition: after those of threads. */
static inline uint64_t segment_definition_slot(const struct segment_layout *layout, uint32_t number)
{
    return (layout->blocks_at >> layout->sizes.block_class) + layout->sizes.threads_n + number;
}

/* Returns the state word of the head of a later definition until that has the state. */
static inline uint64_t segment_definition_unopened(const struct segment_layout *layout,
                                                   uint32_t number)
{
    return INFLATED_BIT | block_ref_make(segment_definition_slot(layout, number), 1);
}

static inline struct set_head *segment_definition_head(const struct segment *segment,
                                                       uint32_t number)
{
    return (struct set_head *)(void *)(segment->base +
                                       (size_t)REGION_UNIT_SIZE *
                                           segment_definition_unit(segment, number));
}

static inline struct segment_definition *segment_definition(const struct segment *segment,
                                                            uint32_t number)
{
    return (struct segment_definition *)(void *)(segment->base +
                                                 segment_definition_at(&segment->layout, number));
}

/* Finds the definition that has its head at a unit that was read from the segment. */
static inline bool segment_definition_of_unit(const struct segment *segment, uint32_t unit,
                                              uint32_t *ret)
{
    uint32_t i = 0;

    *ret = 0;
    if (unit == segment_set_head_unit())
        return true;
    if (!segment_index_of_unit(unit, segment->layout.definitions_at, SEGMENT_DEFINITION_STRIDE,
                               (uint32_t)segment->layout.definitions_n, &i))
        return false;
    *ret = i + 1;
    return true;
}

/* Says from which time on limits take by the definition with its head at this unit. If a limit
 * begins anew there, all that was taken of it before is older. The first call decides. */
static inline void segment_definition_note_opened(const struct segment *segment, uint32_t unit,
                                                  uint64_t opened_ns)
{
    uint32_t number;

    if (segment_definition_of_unit(segment, unit, &number) && number)
        shm_cas_seq_cst(&segment_definition(segment, number)->opened_ns, 0, opened_ns);
}

/* Returns what segment_definition_note_opened() said; 0: nothing yet, or it is the first one. */
static inline uint64_t segment_definition_opened_ns(const struct segment *segment, uint32_t unit)
{
    uint32_t number;

    if (!segment_definition_of_unit(segment, unit, &number) || !number)
        return 0;
    return atomic_load_explicit(&segment_definition(segment, number)->opened_ns,
                                memory_order_acquire);
}

/* Returns what was counted at each place before its limit by the definition with its head at this
 * unit; NULL: nothing, it is the first one. */
static inline const struct limit_base *segment_definition_base(const struct segment *segment,
                                                               uint32_t unit)
{
    uint32_t number;

    if (!segment_definition_of_unit(segment, unit, &number) || !number)
        return NULL;
    return segment_definition(segment, number)->base;
}

/* Notes the toggle bits that announcements are compared with by the definition with its head at
 * this unit (detectable_cas.h), before it has the state. All calls note the same. */
static inline void segment_definition_note_dcas(const struct segment *segment, uint32_t unit,
                                                uint64_t bits)
{
    uint32_t number;

    if (segment_definition_of_unit(segment, unit, &number) && number)
        atomic_store_explicit(&segment_definition(segment, number)->dcas_bits, bits,
                              memory_order_release);
}

/* Returns what was noted; 0: it is the first definition. */
static inline uint64_t segment_definition_dcas(const struct segment *segment, uint32_t unit)
{
    uint32_t number;

    if (!segment_definition_of_unit(segment, unit, &number) || !number)
        return 0;
    return atomic_load_explicit(&segment_definition(segment, number)->dcas_bits,
                                memory_order_acquire);
}

#endif
