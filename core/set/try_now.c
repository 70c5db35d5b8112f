/* SPDX-License-Identifier: MIT */
/* Operations on a set with nobody in line: see plain.h. */
#include "set/try_now.h"

#include "base/mutant.h"
#include "base/sched_point.h"
#include "set/try_now_internal.h"
#include <errno.h>

/* ---- to grant ---- */

static void hold(struct record *r)
{
    atomic_store_explicit(&r->word, record_next_word(record_load(&r->word), RECORD_HELD),
                          memory_order_release);
    STEP();
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
                    : take(false, actor, set, amounts, 0, false, &ret->now_ns);
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
    for (unsigned turn = 0;; short_lost(mortal, version.head, &turn)) {
        if (!read_plain(mortal, actor, set, &turn, &version))
            return -EINPROGRESS;
        if (mortal && record_load(&record_at(set->region, record)->word) != word)
            return 0;
        if (asked)
            ask_all(set, &version, &at, granted_ns, settlement);
        else
            release_all(&set->limits, states_of(&version), settlement->amounts);
        set_effect(mortal, &version, record, true, word, RECORD_FREE);
        if (commit_plain(mortal, actor, set, turn, &version))
            return 1;
    }
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
    return set->head && set->form == WORD_NONE && !set->keyed &&
           CONTENT_STATES + set->limits.state_words <= SHORT_WORDS_MAX;
}
