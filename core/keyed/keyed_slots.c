/* SPDX-License-Identifier: MIT */
/* Keyed sets: what is in the table: places in it for new keys, and words for known ones. */
#include "keyed/keyed_internal.h"

#include "keyed/key_set.h"
#include "peer/participant.h"
#include <errno.h>

/* Whether a word that is a state can be one. Half of it may be another key's, and in a segment it may
 * be anything. */
static bool is_state(const struct keyed *keyed, uint64_t word)
{
    return keyed->fits && limits_check(&keyed->set->limits, &word) == 0;
}

bool keyed_check(const struct keyed *keyed, uint64_t word)
{
    struct member *member = keyed->set->member;

    if (!member_has_place(member) || !is_state(keyed, word))
        member_break(member);
    if (member_is_broken(member))
        member_tell_broken(member);
    return !member_is_broken(member);
}

struct judging {
    struct actor *actor;
    struct keyed *keyed;
    struct weir_instant at;
};

static enum key_use judge(const void *userdata, uint64_t word, uint64_t *ret_instant)
{
    const struct judging *judging = userdata;

    if (word_is_live(word))
        return live_use(judging->actor, judging->keyed, word, ret_instant);
    if (!is_state(judging->keyed, word))
        return KEY_HELD; /* half of it may be another's */
    return states_use(&judging->keyed->set->limits, &word, &judging->at, ret_instant);
}

static bool let_go(const void *userdata, uint64_t word, enum key_use use)
{
    const struct judging *judging = userdata;

    return !word_is_live(word) || live_let_go(judging->actor, judging->keyed, word, use);
}

static void tell(struct keyed *keyed, const struct key_tally *tally)
{
    if (tally->forgotten)
        atomic_fetch_add_explicit(&keyed->common->forgotten, tally->forgotten,
                                  memory_order_relaxed);
    if (tally->evicted)
        atomic_fetch_add_explicit(&keyed->common->evicted, tally->evicted, memory_order_relaxed);
}

enum key_claim keyed_claim(struct keyed *keyed, struct actor *actor, const struct key *key,
                           const struct weir_instant *at, struct key_entry *ret)
{
    const struct judging judging = {actor, keyed, *at};
    const struct key_judge keys = {judge, &judging, keyed->eviction, let_go};
    struct key_tally tally = {0};
    enum key_claim claimed =
        key_table_claim(&keyed->table, key, &keys, &actor->claimant, ret, &tally);

    tell(keyed, &tally);
    return claimed;
}

int keyed_promote(struct keyed *keyed, struct actor *actor, const struct key *key,
                  struct key_entry *entry, const uint64_t *states, struct live **ret)
{
    uint64_t word;
    int r = live_borrow(keyed, actor, key, states, ret, &word);

    if (r < 0)
        return r;
    if (states ? key_entry_swap(entry, word) == KEY_SWAPPED : key_claim_commit(entry, word))
        return 0;
    live_return(*ret, actor, word);
    return -EINPROGRESS;
}
