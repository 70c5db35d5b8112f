/* SPDX-License-Identifier: MIT */
/* Guards: see guard.h. */
#include "guard.h"

#include "keeper.h"
#include "kept.h"

uint64_t guard_instant(const struct actor *actor, uint32_t ticket, uint64_t now_ns)
{
    uint32_t left = line_left_of(actor->content), place = (ticket - left) & COUNT_MASK;

    /* It counts as one further ahead whoever left from behind. */
    if (place > COUNT_MASK / 2)
        place = 0;
    return now_ns + (place + 1) * GUARD_NS;
}

void guard_begin(struct actor *actor, weir_set *set, uint32_t kept, uint64_t word,
                 const struct verdict *verdict)
{
    record_store(&kept_at(set->w, kept)->granted, verdict->ticket);
    keeper_arm(set->w, kept, word, guard_instant(actor, verdict->ticket, verdict->now_ns));
}

void guard_again(struct actor *actor, weir_set *set, uint32_t kept)
{
    uint32_t ticket = (uint32_t)record_load(&kept_at(set->w, kept)->granted);
    uint64_t word = kept_word(set->w, kept);

    if (record_state(word) == RECORD_WAITING)
        keeper_arm(set->w, kept, word, guard_instant(actor, ticket, instance_now(set->w)));
}
