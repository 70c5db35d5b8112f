/* SPDX-License-Identifier: MIT */
/* Keyed sets: what was granted is given back, to wherever the key's word says by then. */
#include "keyed/keyed_internal.h"

#include "api/instance.h"
#include "base/mutant.h"
#include "base/sched_point.h"
#include "keyed/key_set.h"
#include <errno.h>

/* What is given back, whose record may be free by then. */
struct giving {
    struct actor *actor;
    weir_set *set; /* the template */
    struct key key;
    uint32_t record;
    uint64_t word; /* as the record says while it holds that */
    struct settlement settlement;
    bool claimed; /* the record is free, and only the key lacks what it gives back */
};

/* Of all who try, one gives back; false: another one does. */
static bool claim_record(struct giving *giving)
{
    struct record *r = record_at(giving->set->region, giving->record);
    uint64_t word = giving->word;

    if (!giving->claimed)
        giving->claimed = atomic_compare_exchange_strong(
            &r->word, &word, record_next_word(giving->word, RECORD_FREE));
    STEP();
    return giving->claimed;
}

/* The key gets a live set with these states: -EINPROGRESS; 1: there is no room for one, and nothing
 * is given back. */
static int give_room(const struct giving *giving, struct key_entry *entry, const uint64_t *states)
{
    struct live *live;
    int r = keyed_promote(giving->set->keyed, giving->actor, &giving->key, entry, states, &live);

    return r == 0 || r == -EINPROGRESS ? -EINPROGRESS : 1;
}

/* To the word of a key: 1 done, 0 somebody else did it, or -EINPROGRESS. */
static int give_word(struct giving *giving, struct key_entry *entry)
{
    const weir_set *set = giving->set;
    struct weir_instant at = {0};
    uint64_t state = entry->word;

    if (!claim_record(giving))
        return 0;
    if (!keyed_is_sound(set->keyed, state))
        return 1; /* there is nothing that it could be given back to */
    if (set->limits.items[0].algorithm)
        at = instance_instant(set->w, set->limits.reads_wall);
    set_settle_limit(set, 0, &state, &at, &giving->settlement, giving->settlement.granted_ns);
    if (word_is_live(state))
        return give_room(giving, entry, &entry->word);
    return state == entry->word || key_entry_swap(entry, state) == KEY_SWAPPED ? 1 : -EINPROGRESS;
}

/* Whether what was granted is just not held any more, which no algorithm hears of; and by those only
 * who do not die one by one, so that it can be claimed before. */
static bool is_simple(const struct giving *giving)
{
    const struct settlement *settlement = &giving->settlement;
    uint64_t different = 0;

    for (uint32_t i = 0; i < giving->set->limits.n; i++)
        different |= settlement->used[i] ^ settlement->amounts[i];
    return !giving->set->mortal && !settlement->unused && !different &&
           !giving->set->limits.has_unforeseen;
}

/* As set_settle_live(). */
static int settle_live(struct giving *giving, struct live *live)
{
    int r = -EINPROGRESS;

    if (is_simple(giving)) {
        if (!claim_record(giving))
            return 0;
        r = live_give_back(giving->actor, live, giving->settlement.amounts);
    }
    if (r == -EINPROGRESS)
        r = set_settle_live(giving->actor, &live->set, giving->record, giving->word,
                            &giving->settlement, giving->claimed);
    return r;
}

static int give_live(struct giving *giving, struct key_entry *entry)
{
    struct keyed *keyed = giving->set->keyed;
    struct live storage, *live = live_at(keyed, entry->word, &storage);
    uint64_t entered = giving->actor->loan; /* by whoever is at burying the dead meanwhile */
    int r = -ESTALE;

    giving->actor->loan = word_loan(entry->word);
    if (live)
        r = settle_live(giving, live);
    if (!MUTANT(630))
        giving->actor->loan = entered;
    if (r == -ESTALE)
        return live_mend(giving->actor, keyed, &giving->key, entry) == -EUCLEAN ? 1 : -EINPROGRESS;
    live_leave(giving->actor, live);
    return r;
}

/* Whether a settlement charges something: then a key that is not known has to be, for nobody shall
 * be able to tell that it was forgotten. What is given back to a new key makes no difference. */
static bool charges(const weir_set *set, const struct settlement *settlement)
{
    bool charges = false;

    for (uint32_t i = 0; i < set->limits.n; i++)
        charges |= set->limits.items[i].charges && settlement->used[i] > settlement->amounts[i];
    return charges && !settlement->unused && !MUTANT(463);
}

/* Charges a new key: 1, or -EINPROGRESS. Without room for it nobody pays. */
static int charge_new(const struct giving *giving)
{
    weir_set *set = giving->set;
    struct weir_instant at = instance_instant(set->w, set->limits.reads_wall);
    struct key_entry entry;
    uint64_t state = 0;
    int r;

    switch (keyed_claim(set->keyed, giving->actor, &giving->key, &at, &entry)) {
    case KEY_FOUND:
        return -EINPROGRESS;
    case KEY_FULL:
        return 1;
    default:
        break;
    }
    if (set->keyed->fits) {
        at = instance_instant(set->w, set->limits.reads_wall);
        limits_init(&set->limits, &state, &at);
        set_settle_limit(set, 0, &state, &at, &giving->settlement, giving->settlement.granted_ns);
        if (!word_is_live(state))
            return key_claim_commit(&entry, state) ? 1 : -EINPROGRESS;
    }
    r = give_room(giving, &entry, NULL);
    if (r == 1)
        key_claim_drop(&entry);
    return r;
}

static int give_once(struct giving *giving)
{
    struct keyed *keyed = giving->set->keyed;
    struct key_entry entry;

    if (key_table_find(&keyed->table, &giving->key, &entry))
        return word_is_live(entry.word) ? give_live(giving, &entry) : give_word(giving, &entry);
    if (!claim_record(giving))
        return 0;
    return charges(giving->set, &giving->settlement) ? charge_new(giving) : 1;
}

bool keyed_settle(struct actor *actor, weir_set *set, uint32_t record, uint64_t word,
                  const struct settlement *settlement)
{
    struct giving giving = {.actor = actor,
                            .set = set,
                            .key = key_of(set, record),
                            .record = record,
                            .word = word,
                            .settlement = *settlement};
    unsigned turn = 0;
    int r;

    giving.settlement.granted_ns = record_load(&record_at(set->region, record)->granted);
    for (; (r = give_once(&giving)) == -EINPROGRESS; publication_back_off(&turn))
        ;
    if (r == 0)
        return false;
    if (!set_is_broken(set))
        set_count_settlement(actor, set, settlement);
    return true;
}
