/* SPDX-License-Identifier: MIT */
/*
 * Records as whoever keeps their time knows them: by their number in the instance's own region. Of
 * a set whose records are elsewhere, in memory that processes share, it is the number of a
 * stand-in: a record of this process's that names the shared one, and keeps here what is nobody
 * else's business: who is to be told, when, and where it stands in which list.
 */
#ifndef WEIR_CORE_WAIT_WAITER_H
#define WEIR_CORE_WAIT_WAITER_H

#include "api/instance.h"
#include "peer/participant.h"

static inline struct record *kept_at(const weir *w, uint32_t kept)
{
    return record_at(&w->region, kept);
}

static inline weir_set *kept_set(const weir *w, uint32_t kept)
{
    return instance_set(w, record_set_number(kept_at(w, kept)));
}

static inline bool kept_stands_in(const struct record *r)
{
    return (record_waker(r) & WAKER_STANDS_IN) != 0;
}

/* The number of the record in its set's region. */
static inline uint32_t kept_record(const weir *w, uint32_t kept)
{
    const struct record *r = kept_at(w, kept);

    return kept_stands_in(r) ? link_record(record_load(&r->next)) : kept;
}

/* The word that says whether it was decided. Stand-ins stay stand-ins, so that whoever comes late
 * finds some record of some set, whose word is another. */
static inline uint64_t kept_word(const weir *w, uint32_t kept)
{
    const struct record *r = kept_at(w, kept);

    if (!kept_stands_in(r))
        return record_load(&r->word);
    return set_word(kept_set(w, kept), kept_record(w, kept));
}

/*
 * Whether the record's word is `word`, and that life of it is kept: a shared record may be used
 * again without its stand-in. In this order: the stand-in is given back before that.
 */
static inline bool kept_lives(const weir *w, uint32_t kept, uint64_t word)
{
    const struct record *r = kept_at(w, kept);

    if (!kept_stands_in(r))
        return record_load(&r->word) == word;
    return kept_word(w, kept) == word &&
           member_kept(kept_set(w, kept)->member, kept_record(w, kept)) == kept;
}

/*
 * `before` as it is in the life of `word`: false if the record's word is not that any more. In this
 * order, for the word may change and the record be used again between the two.
 */
static inline bool kept_still(const weir *w, uint32_t kept, uint64_t word, uint32_t *ret_before)
{
    *ret_before = atomic_load_explicit(&kept_at(w, kept)->before, memory_order_acquire);
    return kept_lives(w, kept, word);
}

/* records.c: a shared record gets its stand-in, or 0: out of memory; and is kept no longer. */
uint32_t stand_in_begin(const weir_set *set, uint32_t record);
void stand_in_end(const weir_set *set, uint32_t kept);
/* kept.c: who waits on it, here and in the segment. */
void stand_in_set_waker(const weir_set *set, uint32_t kept, enum record_wake wake, uint32_t queue,
                        bool strict);

/* The number by which keepers know a record of this set, or 0 when out of memory; and back, before
 * the record. */
static inline uint32_t kept_new(const weir_set *set, uint32_t record)
{
    return set->member ? stand_in_begin(set, record) : record;
}

static inline void kept_free(const weir_set *set, uint32_t kept)
{
    if (set->member)
        stand_in_end(set, kept);
}

/* Who waits on it, for whoever decides it, and for its keeper. Before it enters its set. */
static inline void kept_set_waker(const weir_set *set, uint32_t kept, enum record_wake wake,
                                  uint32_t queue, bool strict)
{
    if (set->member)
        stand_in_set_waker(set, kept, wake, queue, strict);
    else
        record_set_waker(kept_at(set->w, kept), wake, queue, strict);
}

#endif
