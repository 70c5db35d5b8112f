/* SPDX-License-Identifier: MIT */
/* The steps of plain.h's operations, compiled into each of them, and into the short way of sets whose
 * state is in a box (at_once_boxed.c). */
#ifndef WEIR_CORE_SET_TRY_NOW_INTERNAL_H
#define WEIR_CORE_SET_TRY_NOW_INTERNAL_H

#include "api/instance.h"
#include "base/mutant.h"
#include "base/sched_point.h"
#include "peer/participant.h"
#include "state/short_version.h"

static inline uint64_t *states_of(struct short_version *version)
{
    return version->content + CONTENT_STATES;
}

/* Whether it can be what somebody published. */
static inline bool is_sound(const weir_set *set, struct short_version *version)
{
    return !member_is_broken(set->member) && member_has_place(set->member) &&
           version->content[CONTENT_LAST] < GRANTED_MARKER &&
           limits_check(&set->limits, states_of(version)) == 0;
}

/* Reads a version without a line, or anything else that has to be thought of. */
TWICE bool read_plain(bool mortal, const struct actor *actor, const weir_set *set, unsigned *turn,
                      struct short_version *ret)
{
    if (mortal)
        publication_intend(set->region, actor_part(actor, set->number)->unit, set->head);
    if (!short_version_read(mortal, set->region, set->head,
                            CONTENT_STATES + set->limits.state_words, turn, ret))
        return false;
    if ((ret->content[CONTENT_ENDS] | (ret->content[CONTENT_COUNT] & ~LEFT_MASK)) && !MUTANT(563))
        return false;
    return !mortal || !set->member || is_sound(set, ret);
}

/* What changes with the version: the word of the record, if there is one, where others may die. */
TWICE void set_effect(bool mortal, struct short_version *version, uint32_t record, bool own,
                      uint64_t before, enum record_state state)
{
    version->has_effect = mortal && record;
    if (version->has_effect)
        version->effect = (struct effect){.place = effect_place(record, RECORD_WORD),
                                          .own = own,
                                          .before = before,
                                          .after = record_next_word(before, state)};
}

TWICE bool commit_plain(bool mortal, const struct actor *actor, const weir_set *set, unsigned turn,
                        const struct short_version *version)
{
    return short_version_commit(mortal, set->region, actor_part(actor, set->number)->unit, turn,
                                version);
}

/* The newcomer's record, which is free and his own: since when it is held. */
static inline void announce(struct record *r, uint64_t now_ns)
{
    record_store(&r->granted, now_ns);
    STEP();
    record_store(&r->since, now_ns);
    STEP();
}

/* Whether `*at`, or an instant that is not before it, is not before what the version was made at. If
 * not, somebody has reserved. */
TWICE bool is_reached(const weir_set *set, const struct short_version *version,
                      struct weir_instant *at)
{
    if (at->now_ns < version->content[CONTENT_LAST] && !MUTANT(564))
        *at = instance_instant(set->w, set->limits.reads_wall);
    return at->now_ns >= version->content[CONTENT_LAST] || MUTANT(564);
}

/* Takes the amounts, for a record if there is one; where others may die, it becomes HELD with it. */
TWICE int take(bool mortal, struct actor *actor, weir_set *set, const uint64_t *amounts,
               uint32_t record, bool own, uint64_t *ret_now_ns)
{
    struct weir_instant at;
    struct record *r = mortal && record ? record_at(set->region, record) : NULL;
    struct short_version version;
    unsigned turn = 0;

    if (!mortal)
        pressing_heed(region_box(set->region, set->head));
    /* Before the word, which others want, too. */
    at = instance_instant(set->w, set->limits.reads_wall);
    publication_prefetch(set->region, set->head);
    for (;; short_lost(mortal, version.head, &turn)) {
        if (!read_plain(mortal, actor, set, &turn, &version))
            return -EINPROGRESS;
        if (!is_reached(set, &version, &at) ||
            !limits_take_now(&set->limits, states_of(&version), &at, amounts))
            return -EINPROGRESS;
        version.content[CONTENT_LAST] = *ret_now_ns = at.now_ns;
        if (r)
            announce(r, at.now_ns);
        set_effect(mortal, &version, record, own, r ? record_load(&r->word) : 0, RECORD_HELD);
        if (commit_plain(mortal, actor, set, turn, &version))
            return 0;
    }
}

/* Who can wait often finds others in line, and then needs no clock here: whether it seems so. */
static inline bool plain_has_line(const weir_set *set, enum entry entry)
{
    return entry != ENTRY_TRY &&
           publication_guess(set->region, set->head, CONTENT_COUNT) & COUNT_MASK;
}

/* Without an algorithm: what was held is not held any more. */
static inline void release_all(const struct limits *limits, uint64_t *states,
                               const uint64_t *amounts)
{
    for (uint32_t i = 0; i < limits->n; i++)
        if (limits->items[i].type == WEIR_LIMIT_RESOURCE)
            states[limits->items[i].state_at] -= amounts[i];
}

#endif
