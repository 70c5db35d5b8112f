/* SPDX-License-Identifier: MIT */
/*
 * Live sets: what is asked of a private one most often, by short versions, as plain.h does it of sets
 * that are nobody else's: nobody is in line or has reserved, and the loan is the one that is meant.
 */
#include "keyed/key_set_internal.h"

#include "base/mutant.h"
#include "base/sched_point.h"
#include "set/try_now_internal.h"
#include <errno.h>

static bool is_short(const weir_set *set)
{
    return !set->mortal && CONTENT_STATES + set->limits.state_words <= SHORT_WORDS_MAX;
}

/* Nobody knows of the record of one who does not wait. */
static void hold(struct record *r, uint64_t now_ns)
{
    announce(r, now_ns);
    atomic_store_explicit(&r->word, record_next_word(record_load(&r->word), RECORD_HELD),
                          memory_order_release);
    STEP();
}

int live_take(struct actor *actor, struct live *live, const uint64_t *amounts, uint32_t record,
              struct verdict *ret)
{
    weir_set *set = &live->set;
    struct weir_instant at;
    struct short_version version;
    struct operation op = {.actor = actor, .set = set, .version.content = version.content};
    unsigned turn = 0;

    if (!is_short(set) || publication_guess(set->region, set->head, CONTENT_COUNT) & COUNT_MASK)
        return -EINPROGRESS;
    pressing_heed(region_box(set->region, set->head));
    at = instance_instant(set->w, set->limits.reads_wall);
    for (;; short_lost(false, version.head, &turn)) {
        if (!read_plain(false, actor, set, &turn, &version) ||
            (!live_admits(&op) && !MUTANT(652)) || !is_reached(set, &version, &at) ||
            (!limits_take_now(&set->limits, states_of(&version), &at, amounts) && !MUTANT(651)))
            return -EINPROGRESS;
        version.content[CONTENT_LAST] = at.now_ns;
        if (commit_plain(false, actor, set, turn, &version))
            break;
    }
    if (record)
        hold(record_at(set->region, record), at.now_ns);
    ret->now_ns = ret->estimate_ns = at.now_ns;
    set_count_entry(actor, set, amounts, record);
    return 0;
}

int live_give_back(struct actor *actor, struct live *live, const uint64_t *amounts)
{
    weir_set *set = &live->set;
    struct short_version version;
    struct operation op = {.actor = actor, .set = set, .version.content = version.content};

    for (unsigned turn = 0;; short_lost(false, version.head, &turn)) {
        if (!is_short(set) || !read_plain(false, actor, set, &turn, &version) ||
            (!live_admits(&op) && !MUTANT(653)))
            return -EINPROGRESS;
        release_all(&set->limits, states_of(&version), amounts);
        if (commit_plain(false, actor, set, turn, &version))
            return 1;
    }
}
