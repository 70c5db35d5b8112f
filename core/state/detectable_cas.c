/* SPDX-License-Identifier: MIT */
/* The ledger: see ledger.h. */
#include "state/detectable_cas.h"

#include "base/mutant.h"
#include "peer/participant.h"
#include "set/txn.h"
#include "state/inline_state.h"

_Static_assert(SEGMENT_RUNS_MAX *(uint64_t)SEGMENT_RUN_UNITS <=
                   UINT64_C(1) << (64 - ANNOUNCED_RECORD_SHIFT),
               "every record of a segment can be announced");

static bool claim(_Atomic uint64_t *owner, uint32_t key)
{
    uint64_t nobody = 0;

    if (atomic_load_explicit(owner, memory_order_relaxed))
        return false;
    STEP();
    return atomic_compare_exchange_strong(owner, &nobody, key);
}

/* Seats become free as processes go, so whoever has none looks again each time. */
static uint32_t find_seat(struct actor *actor, const weir_set *set)
{
    for (uint32_t i = 0; set->member && i < LEDGER_SEATS; i++)
        if (claim(&set->seats->owners[i], set->member->key)) {
            actor->parts[set->number].seat = (uint8_t)(i + 1);
            STEP();
            return i + 1;
        }
    return 0;
}

uint32_t ledger_seat(struct actor *actor, const weir_set *set)
{
    uint32_t seat = actor->parts[set->number].seat;

    return seat ? seat : find_seat(actor, set);
}

void ledger_release_seats(struct seats *seats, uint32_t key)
{
    for (uint32_t i = 0; i < LEDGER_SEATS; i++) {
        uint64_t mine = key;

        if (atomic_load_explicit(&seats->owners[i], memory_order_relaxed) == key)
            atomic_compare_exchange_strong(&seats->owners[i], &mine, 0);
        STEP();
    }
}

/* Whether that is the record's next word, and what it is. */
static bool comes_next(uint64_t announced, uint64_t before, uint64_t *ret)
{
    bool held = announced >> ANNOUNCED_HELD_SHIFT & 1;

    *ret = record_next_word(before, held ? RECORD_HELD : RECORD_FREE);
    return (*ret >> 8 & ANNOUNCED_SEQUENCE_MASK) == (announced & ANNOUNCED_SEQUENCE_MASK) &&
           record_state(before) == (held ? RECORD_FREE : RECORD_HELD);
}

/* False: the set has changed. */
static bool complete_seat(const weir_set *set, const struct version *version, uint32_t i,
                          uint32_t record)
{
    uint64_t announced = atomic_load_explicit(&set->seats->at[i].announced, memory_order_acquire);
    uint64_t before, after;
    struct record *r;

    if (record && announced >> ANNOUNCED_RECORD_SHIFT != record)
        return true;
    STEP();
    if (!publication_current(set->region, set->head, version) && !MUTANT(571))
        return false;
    if ((announced >> ANNOUNCED_BIT_SHIFT & 1) != (version->content[LEDGER_BITS_AT] >> i & 1) &&
        !MUTANT(575))
        return true;
    r = record_at(set->region, (uint32_t)(announced >> ANNOUNCED_RECORD_SHIFT));
    before = record_load(&r->word);
    STEP();
    if (announced && comes_next(announced, before, &after))
        atomic_compare_exchange_strong(&r->word, &before, after);
    STEP();
    return true;
}

void ledger_complete(const weir_set *set, const struct version *version, uint32_t record)
{
    for (uint32_t i = 0; i < LEDGER_SEATS; i++)
        if (!complete_seat(set, version, i, record))
            return;
}

void ledger_complete_all(struct actor *actor, weir_set *set)
{
    struct operation op;
    uint32_t i = 0;

    while (i < LEDGER_SEATS) {
        operation_read(&op, actor, set);
        if (set_is_broken(set))
            return;
        if (!version_is_boxed(&op.version))
            word_box(actor, set, op.version.word);
        else
            while (i < LEDGER_SEATS && complete_seat(set, &op.version, i, 0))
                i++;
    }
}
