/* SPDX-License-Identifier: MIT */
/* Operations on a set with nobody in line: see plain.h. */
#include "plain.h"

#include "instance.h"
#include "member.h"
#include "mutant.h"
#include "short_version.h"
#include "step.h"
#include <errno.h>

/* Compiled twice: with and without what is done because others may die in the set, or scribble in
 * it. */
#define TWICE static inline __attribute__((always_inline))

static uint64_t *states_of(struct short_version *version)
{
    return version->content + CONTENT_STATES;
}

/* Whether it can be what somebody published. */
static bool is_sound(const weir_set *set, struct short_version *version)
{
    return !member_is_broken(set->member) && member_has_place(set->member) &&
           version->content[CONTENT_LAST] < GRANTED_MARKER &&
           limits_check(&set->limits, states_of(version)) == 0;
}

/* Reads a version without a line, or anything else that has to be thought of. */
TWICE bool read_plain(bool mortal, const struct actor *actor, const weir_set *set,
                      struct short_version *ret)
{
    if (mortal)
        publication_intend(set->region, actor_part(actor, set->number)->unit, set->head);
    ret->content_n = CONTENT_STATES + set->limits.state_words;
    if (!short_version_read(mortal, set->region, set->head, ret))
        return false;
    if ((ret->content[CONTENT_ENDS] | (ret->content[CONTENT_COUNT] & ~LEFT_MASK)) && !MUTANT(563))
        return false;
    return !set->member || is_sound(set, ret);
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

TWICE bool commit_plain(bool mortal, const struct actor *actor, const weir_set *set,
                        const struct short_version *version)
{
    return short_version_commit(mortal, set->region, actor_part(actor, set->number)->unit,
                                set->head, version);
}

/* ---- to grant ---- */

/* The newcomer's record, which is free and his own: since when it is held. */
static void announce(struct record *r, uint64_t now_ns)
{
    record_store(&r->granted, now_ns);
    STEP();
    record_store(&r->since, now_ns);
    STEP();
}

static void hold(struct record *r)
{
    atomic_store_explicit(&r->word, record_next_word(record_load(&r->word), RECORD_HELD),
                          memory_order_release);
    STEP();
}

/* Takes the amounts, for a record if there is one; where others may die, it becomes HELD with it. */
TWICE int take(bool mortal, struct actor *actor, weir_set *set, const uint64_t *amounts,
               uint32_t record, bool own, uint64_t *ret_now_ns)
{
    /* Before the word, which others want, too. */
    struct weir_instant at = instance_instant(set->w, set->limits.reads_wall);
    struct record *r = mortal && record ? record_at(set->region, record) : NULL;
    struct short_version version;

    publication_prefetch(set->region, set->head);
    for (unsigned turn = 0;; publication_back_off(&turn)) {
        if (!read_plain(mortal, actor, set, &version))
            return -EINPROGRESS;
        if (at.now_ns < version.content[CONTENT_LAST] && !MUTANT(564))
            at = instance_instant(set->w, set->limits.reads_wall);
        if (at.now_ns < version.content[CONTENT_LAST] && !MUTANT(564))
            return -EINPROGRESS; /* somebody has reserved */
        if (!limits_take_now(&set->limits, states_of(&version), &at, amounts))
            return -EINPROGRESS;
        version.content[CONTENT_LAST] = *ret_now_ns = at.now_ns;
        if (r)
            announce(r, at.now_ns);
        set_effect(mortal, &version, record, own, r ? record_load(&r->word) : 0, RECORD_HELD);
        if (commit_plain(mortal, actor, set, &version))
            return 0;
    }
}

int plain_take(struct actor *actor, weir_set *set, const uint64_t *amounts, uint64_t *ret_now_ns)
{
    return take(false, actor, set, amounts, 0, false, ret_now_ns);
}

bool plain_has_line(const weir_set *set, enum entry entry)
{
    return entry != ENTRY_TRY &&
           publication_guess(set->region, set->head, CONTENT_COUNT) & COUNT_MASK;
}

int plain_enter(struct actor *actor, weir_set *set, const uint64_t *amounts, uint32_t record,
                enum entry entry, struct verdict *ret)
{
    /* Nobody knows of the record of one who does not wait. */
    bool own = entry == ENTRY_PROBE || entry == ENTRY_TRY;
    int r;

    if (CONTENT_STATES + set->limits.state_words > SHORT_WORDS_MAX)
        return -EINPROGRESS;
    if (plain_has_line(set, entry))
        return -EINPROGRESS;
    r = set->mortal ? take(true, actor, set, amounts, record, own, &ret->now_ns)
                    : plain_take(actor, set, amounts, &ret->now_ns);
    if (r < 0)
        return r;
    if (record && !set->mortal) {
        announce(record_at(set->region, record), ret->now_ns);
        hold(record_at(set->region, record));
    }
    ret->estimate_ns = ret->now_ns;
    set_count_entry(actor, set, amounts, record);
    return 0;
}

/* ---- to give back ---- */

/* From HELD to FREE: of all who try, one gives back what the record held. */
static bool claim(struct record *r, uint64_t word, bool own)
{
    uint64_t free_word = record_next_word(word, RECORD_FREE);
    bool claimed = true;

    if (own)
        atomic_store_explicit(&r->word, free_word, memory_order_release);
    else
        claimed = atomic_compare_exchange_strong(&r->word, &word, free_word);
    STEP();
    return claimed;
}

/* Without an algorithm: what was held is not held any more. */
static inline void release_all(const struct limits *limits, uint64_t *states,
                               const uint64_t *amounts)
{
    for (uint32_t i = 0; i < limits->n; i++)
        if (limits->items[i].type == WEIR_LIMIT_RESOURCE)
            states[limits->items[i].state_at] -= amounts[i];
}

/* With one, at an instant that is not before the version's. */
static void ask_all(const weir_set *set, struct short_version *version, struct weir_instant *at,
                    uint64_t granted_ns, const struct settlement *settlement)
{
    if (at->now_ns < version->content[CONTENT_LAST])
        at->now_ns = version->content[CONTENT_LAST];
    for (uint32_t i = 0; i < set->limits.n; i++)
        set_settle_limit(set, i, states_of(version) + set->limits.items[i].state_at, at, settlement,
                         granted_ns);
    version->content[CONTENT_LAST] = at->now_ns;
}

TWICE int settle(bool mortal, struct actor *actor, weir_set *set, uint32_t record, uint64_t word,
                 bool asked, const struct settlement *settlement, uint64_t granted_ns)
{
    struct weir_instant at = {0};
    struct short_version version;

    if (asked)
        at = instance_instant(set->w, set->limits.reads_wall);
    for (unsigned turn = 0;; publication_back_off(&turn)) {
        if (!read_plain(mortal, actor, set, &version))
            return -EINPROGRESS;
        if (mortal && record_load(&record_at(set->region, record)->word) != word)
            return 0;
        if (asked)
            ask_all(set, &version, &at, granted_ns, settlement);
        else
            release_all(&set->limits, states_of(&version), settlement->amounts);
        set_effect(mortal, &version, record, true, word, RECORD_FREE);
        if (commit_plain(mortal, actor, set, &version))
            return 1;
    }
}

bool plain_give_back(struct actor *actor, weir_set *set, const uint64_t *amounts)
{
    const struct settlement settlement = {.amounts = amounts, .used = amounts};

    return settle(false, actor, set, 0, 0, false, &settlement, 0) == 1;
}

int plain_settle(struct actor *actor, weir_set *set, uint32_t record, uint64_t word, bool own,
                 bool asked, const struct settlement *settlement, bool *claimed)
{
    uint64_t granted_ns = set_granted_ns(set, record, settlement);

    if (CONTENT_STATES + set->limits.state_words > SHORT_WORDS_MAX)
        return -EINPROGRESS;
    if (set->mortal)
        return own && record ? settle(true, actor, set, record, word, asked, settlement, granted_ns)
                             : -EINPROGRESS;
    if (!*claimed && !claim(record_at(set->region, record), word, own))
        return 0;
    *claimed = true;
    return settle(false, actor, set, record, word, asked, settlement, granted_ns);
}

bool plain_knows(const weir_set *set)
{
    return set->head && set->form == WORD_NONE && !set->mortal && !set->keyed &&
           CONTENT_STATES + set->limits.state_words <= SHORT_WORDS_MAX;
}
