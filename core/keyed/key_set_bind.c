/* SPDX-License-Identifier: MIT */
/* Live sets: lent to keys, and given back by those who did not get them. */
#include "keyed/key_set_internal.h"

#include "base/mutant.h"
#include <errno.h>
#include <string.h>

static void fill(struct operation *op, const struct key *key, const uint64_t *states)
{
    uint64_t *to = operation_states(op);
    size_t n = op->set->limits.state_words - LIVE_WORDS;

    if (states && !MUTANT(460)) {
        memcpy(to, states, n * sizeof(*to));
    } else {
        memset(to, 0, n * sizeof(*to));
        limits_init(&op->set->limits, to, &op->at);
    }
    words_of(op)[LIVE_PLACE] = key->place;
    words_of(op)[LIVE_ID] = key->id;
    projection_forget(op);
}

int live_lend(struct wish *wish, struct live *live)
{
    struct key_entry entry;
    struct operation op;

    operation_read(&op, wish->actor, &live->set);
    if (set_is_broken(&live->set))
        return -EUCLEAN;
    if (version_flags(&op.version) & CONTENT_SHUT)
        return -ESHUTDOWN;
    if (phase_of(&op) != LIVE_IDLE || line_length(&op.version) ||
        (live_is_named(wish->keyed, &op, &entry) && !MUTANT(600)))
        return 0;
    fill(&op, wish->key, wish->states);
    wish->word = live_begin_loan(&op);
    wish->live = live;
    return operation_commit(&op);
}

void live_return(struct live *live, struct actor *actor, uint64_t word)
{
    struct key_entry entry;
    struct operation op;

    do {
        operation_read(&op, actor, &live->set);
        if (phase_of(&op) != LIVE_LENDING || name_of(&op, loan_of(&op)) != word ||
            set_is_broken(&live->set) || live_is_named(live->keyed, &op, &entry) || MUTANT(604))
            return;
    } while (!live_end_loan(&op));
    live_push_idle(live->keyed, live->number);
}

/* To the key that it is still named by. The entry is changed by us, or for us. */
static void lend_anew(struct operation *op, struct key_entry *entry)
{
    uint64_t word = live_begin_loan(op);

    if (!operation_commit(op) || key_entry_swap(entry, word) == KEY_SWAPPED || entry->word == word)
        return;
    live_return(live_of(op->set), op->actor, word);
}

/* Whether the entry, that of a live set which was read after it, says the same still. */
static bool is_still(const struct keyed *keyed, const struct key *key,
                     const struct key_entry *entry)
{
    struct key_entry now;

    return key_table_find(&keyed->table, key, &now) && now.word == entry->word;
}

int live_mend(struct actor *actor, struct keyed *keyed, const struct key *key,
              struct key_entry *entry)
{
    struct live storage;
    struct operation op;

    if (!live_read_named(&op, actor, keyed, entry->word, &storage)) {
        if (keyed->set->member && is_still(keyed, key, entry))
            member_break(keyed->set->member); /* nobody would have written that */
    } else if (phase_of(&op) == LIVE_IDLE && !live_end_name(keyed, &op, entry)) {
        lend_anew(&op, entry);
    }
    return set_is_broken(keyed->set) ? -EUCLEAN : -EINPROGRESS;
}

/* ---- to be had ---- */

/* One that is idle is lent: 0, or -ENOBUFS: none is listed. */
static int lend_idle(struct wish *wish)
{
    uint32_t number;

    for (uint32_t i = 0; i < SWEEP_MAX && live_pop_idle(wish->keyed, &number); i++) {
        struct live *live = live_numbered(wish->keyed, number, NULL);
        int r = live ? live_lend(wish, live) : -ENOMEM;

        if (r != 0)
            return r < 0 ? r : 0;
    }
    return -ENOBUFS;
}

static int lend_new(struct wish *wish)
{
    struct keyed *keyed = wish->keyed;
    weir *w = keyed->set->w;
    struct live *live;
    uint32_t number;
    int r;

    do {
        pthread_mutex_lock(&w->lock);
        number = lives_n(keyed);
        r = live_make(keyed, number);
        pthread_mutex_unlock(&w->lock);
        if (r < 0)
            return r == -ENOSPC ? -ENOMEM : r; /* as for all that calls need in a segment */
        live = live_numbered(keyed, number, NULL);
        r = live ? live_lend(wish, live) : -ENOMEM;
    } while (r == 0); /* somebody else has it already */
    return r < 0 ? r : 0;
}

int live_borrow(struct keyed *keyed, struct actor *actor, const struct key *key,
                const uint64_t *states, struct live **ret, uint64_t *ret_word)
{
    struct wish wish = {.keyed = keyed, .actor = actor, .key = key, .states = states};
    int r = lend_idle(&wish), lacks;

    if (r == -ENOBUFS)
        r = lend_new(&wish);
    if (r == -ENOBUFS || r == -ENOMEM) {
        lacks = r;
        r = live_sweep(&wish);
        if (r == -ENOBUFS)
            r = lacks;
    }
    *ret = wish.live;
    *ret_word = wish.word;
    return r;
}
