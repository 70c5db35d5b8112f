/* SPDX-License-Identifier: MIT */
/* Announcement slots: their owners, and the completion of announcements. */
#include "set/detectable_cas.h"
#include "shm/segment.h"

#include "base/invariant.h"
#include "set/txn.h"
#include "shm/participant.h"
#include "shm/segment_definition.h"

_Static_assert(SEGMENT_RUNS_MAX *(uint64_t)SEGMENT_RUN_UNITS <= UINT64_C(1)
                                                                    << (64 - DCAS_RECORD_SHIFT),
               "every record of a segment can be announced");

/* Claims a free announcement slot; 0: none is free. A thread without a slot calls this each time,
 * since slots become free when processes leave. */
static uint32_t dcas_find_slot(struct thread_ctx *ctx, const weir_set *set)
{
    for (uint32_t i = 0; set->participant && i < DCAS_SLOTS; i++) {
        _Atomic uint64_t *owner = &set->announce_slots->owners[i];

        if (shm_load_relaxed(owner) || !shm_cas_seq_cst(owner, 0, set->participant->peer_key))
            continue;
        ctx->set_ctxs[set->number].dcas_slot = (uint8_t)(i + 1); /* at most DCAS_SLOTS */
        return i + 1;
    }
    return 0;
}

uint32_t dcas_slot(struct thread_ctx *ctx, const weir_set *set)
{
    uint32_t slot = ctx->set_ctxs[set->number].dcas_slot;

    WEIR_INVARIANT(slot <= DCAS_SLOTS);
    return slot ? slot : dcas_find_slot(ctx, set);
}

/* Checks whether the announcement is of the successor of the record word `expected`, and returns
 * that successor in `*ret`. */
static bool dcas_is_next_word(uint64_t announcement, uint64_t expected, uint64_t *ret)
{
    bool held = announcement >> DCAS_HELD_SHIFT & 1;

    *ret = record_next_word(expected, held ? RECORD_HELD : RECORD_FREE);
    return (*ret >> 8 & DCAS_SEQUENCE_MASK) == (announcement & DCAS_SEQUENCE_MASK) &&
           record_state(expected) == (held ? RECORD_FREE : RECORD_HELD);
}

bool dcas_may_be_announced(const weir_set *set)
{
    if (set->inline_format == INLINE_DCAS)
        return true;
    if (!set_is_shared(set) || !set->is_later || set_definition(set)->is_keyed)
        return false;
    return segment_definition_dcas(set->participant->segment, set->head_unit) & DCAS_MARK;
}

uint64_t dcas_bits(const weir_set *set, const struct version *version)
{
    if (set->inline_format == INLINE_DCAS)
        return version->content[DCAS_BITS_AT];
    return segment_definition_dcas(set->participant->segment, set->head_unit);
}

/* Completes the announcement of slot `i`, if it is of `record` (0: of any) and has taken effect.
 * Returns false if `version` is not current any more. */
static bool dcas_complete_slot(const weir_set *set, const struct version *version, uint32_t i,
                               uint32_t record)
{
    uint64_t announcement = shm_load_acquire(&set->announce_slots->slots[i].announcement);
    uint64_t expected, desired;
    struct acq_record *r;

    if (record && announcement >> DCAS_RECORD_SHIFT != record)
        return true;
    if (!version_is_current(set->region, set->head_unit, version))
        return false;
    if ((announcement >> DCAS_BIT_SHIFT & 1) != (dcas_bits(set, version) >> i & 1))
        return true;
    r = record_at(set->region, (uint32_t)(announcement >> DCAS_RECORD_SHIFT));
    expected = record_load(&r->word);
    SCHED_POINT();
    if (announcement && dcas_is_next_word(announcement, expected, &desired))
        shm_cas_seq_cst(&r->word, expected, desired);
    return true;
}

void dcas_complete(const weir_set *set, const struct version *version, uint32_t record)
{
    WEIR_INVARIANT(version_is_inflated(version) && dcas_may_be_announced(set));
    for (uint32_t i = 0; i < DCAS_SLOTS; i++)
        if (!dcas_complete_slot(set, version, i, record))
            return;
}

/* The bits of a version that is MOVED tell nothing about announcements since then. Those of a
 * definition are there once it has its state, which txn_begin() gives it. */
int dcas_complete_all(struct thread_ctx *ctx, weir_set *set)
{
    struct txn txn;
    uint32_t i = 0;
    int r = 0;

    if (set->inline_format != INLINE_DCAS && (!set_is_shared(set) || set_definition(set)->is_keyed))
        return 0;
    while (r == 0 && i < DCAS_SLOTS) {
        txn_begin(&txn, ctx, set);
        if (set_is_broken(set))
            return 0;
        if (version_flags(&txn.version) & CONTENT_MOVED) {
            r = set_catch_up(set, false);
            set = r == 0 ? moved_newest(set) : set;
        } else if (!dcas_may_be_announced(set)) {
            return 0;
        } else if (!version_is_inflated(&txn.version)) {
            set_inflate(ctx, set, txn.version.state_word);
        } else {
            while (i < DCAS_SLOTS && dcas_complete_slot(set, &txn.version, i, 0))
                i++;
        }
    }
    return r;
}
