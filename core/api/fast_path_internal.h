/* SPDX-License-Identifier: MIT */
/* What the short ways have in common: at_once.c of sets whose state is their word, at_once_boxed.c of
 * those whose state is in a box. */
#ifndef WEIR_CORE_API_FAST_PATH_INTERNAL_H
#define WEIR_CORE_API_FAST_PATH_INTERNAL_H

#include "api/acquisition.h"
#include "api/instance.h"
#include <errno.h>

/* What a call would rather not repeat to get out of its way. */
#define ALWAYS static inline __attribute__((always_inline))
/* What other sets shall not save registers for. */
#define APART static __attribute__((noinline))

/* And nobody is to be told first that it goes by another clock. */
ALWAYS bool is_open(weir *w)
{
    return !instance_forked(w) && !instance_closed(w) && !instance_has_news(w);
}

/* Which thread it is that may hold it. */
ALWAYS void name_holder(const struct actor *actor, const weir_set *set, struct record *r)
{
    if (!MUTANT(554))
        record_store(&r->set, (uint64_t)set->id << 32 | actor->thread);
    STEP();
}

/* A ready record, still FREE, says what it is about to hold, who, and since when: that is the word that
 * it is to have then. */
ALWAYS uint64_t prepare(const struct actor *actor, const weir_set *set, struct record *r,
                        uint64_t amount, uint64_t now_ns)
{
    record_store(&r->amounts[0], amount);
    STEP();
    record_store(&r->granted, now_ns);
    STEP();
    record_store(&r->since, now_ns);
    STEP();
    name_holder(actor, set, r);
    return record_next_word(record_load(&r->word), RECORD_HELD);
}

/* It does. */
ALWAYS void become(struct record *r, uint64_t word)
{
    atomic_store_explicit(&r->word, word, memory_order_release);
    STEP();
}

/* Both. */
ALWAYS void hold(const struct actor *actor, const weir_set *set, uint32_t record, uint64_t amount,
                 uint64_t now_ns)
{
    struct record *r = record_at(set->region, record);

    become(r, prepare(actor, set, r, amount, now_ns));
}

/* Whether it is held, as far as what others may write can be trusted. */
ALWAYS bool is_held(const weir_set *set, uint64_t word)
{
    return record_state(word) == RECORD_HELD && (!set_is_broken(set) || MUTANT(636));
}

ALWAYS void hand_out(struct actor *actor, weir_acquisition *acquisition, bool strict)
{
    actor->cache = acquisition->next;
    actor->cache_n--;
    actor_hold(actor);
    acquisition->actor = actor;
    /* Nobody else knows of it yet: no locked store. */
    atomic_store_explicit(&acquisition->queue, NULL, memory_order_relaxed);
    acquisition->strict = strict;
    acquisition->updated &= MUTANT(552);
}

ALWAYS void take_in(struct actor *actor, weir_acquisition *acquisition)
{
    acquisition->next = actor->cache;
    actor->cache = acquisition;
    actor->cache_n++;
    actor_drop(actor);
}

/* It holds nothing any more: what that comes to, if an update was `missing`. */
ALWAYS int released(struct actor *actor, const weir_set *set, weir_acquisition *acquisition,
                    bool missing)
{
    struct counters *counters = actor_counters(actor, set->number);

    count(&counters->released, 1);
    if (missing)
        count(&counters->missing_update, 1);
    take_in(actor, acquisition);
    return missing ? -EPROTO : 0;
}

#endif
