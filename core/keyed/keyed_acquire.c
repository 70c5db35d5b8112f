/* SPDX-License-Identifier: MIT */
/* Keyed sets: somebody asks for what a key has. */
#include "keyed/keyed_internal.h"

#include "api/instance.h"
#include "base/mutant.h"
#include "base/sched_point.h"
#include "keyed/key_set.h"
#include "peer/peer_cleanup.h"
#include "set/txn.h"
#include <errno.h>

/* One attempt to enter, for all that follows. */
struct entering {
    struct asking *asking;
    struct keyed *keyed;
    weir_set *set; /* the template */
    uint32_t record;
    enum entry entry;
    uint64_t max_wait_ns;
    bool gives_up; /* it has tried often enough to find room */
};

/* The record, and the acquisition that has it, are of this set from now on. */
static void move(const struct entering *entering, weir_set *set)
{
    struct asking *asking = entering->asking;

    asking->set = set;
    if (asking->acquisition)
        asking->acquisition->set = set;
    if (entering->record)
        live_mark(set, entering->record, asking->actor->thread);
}

/* No room for another key, or for a line; or the set is broken. The room may be taken by the dead:
 * then -EINPROGRESS. */
static int turn_away(const struct entering *entering, int r)
{
    struct asking *asking = entering->asking;
    weir_set *set = entering->set;
    uint64_t now_ns = instance_now(set->w);

    asking->verdict = (struct verdict){.now_ns = now_ns, .estimate_ns = now_ns};
    if (r == -ENOBUFS && set->member && !MUTANT(612) &&
        burial_attend_rarely(asking->actor, set, now_ns))
        return -EINPROGRESS;
    if (r == -ENOBUFS) {
        atomic_fetch_add_explicit(&entering->keyed->common->refused, 1, memory_order_relaxed);
        count(&actor_counters(asking->actor, entering->set->number)->refused_full, 1);
    }
    return r;
}

/* Into the live set that the entry names. */
static int enter_live(const struct entering *entering, struct live *live, struct key_entry *entry)
{
    struct asking *asking = entering->asking;
    int r;

    move(entering, &live->set);
    asking->actor->loan = word_loan(entry->word);
    r = live_take(asking->actor, live, asking->amounts, entering->record, &asking->verdict);
    if (r == -EINPROGRESS)
        r = set_enter_boxed(asking->actor, &live->set, asking->amounts, entering->record,
                            entering->entry, entering->max_wait_ns, &asking->verdict);
    if (r >= 0 && entering->record)
        return r;
    move(entering, entering->set);
    if (r == -ESTALE) {
        r = live_mend(asking->actor, entering->keyed, &asking->key, entry);
        return r == -EINPROGRESS ? r : turn_away(entering, r);
    }
    if (r < 0 || entering->keyed->fits)
        live_leave(asking->actor, live);
    return r;
}

/* The key of an entry gets a live set with this state, or a claimed one that of a new key (NULL);
 * and that is entered. */
static int enter_promoted(const struct entering *entering, struct key_entry *entry,
                          const uint64_t *state)
{
    struct asking *asking = entering->asking;
    struct live *live;
    int r = -ENOBUFS;

    if (!entering->gives_up)
        r = keyed_promote(entering->keyed, asking->actor, &asking->key, entry, state, &live);
    if (r == 0)
        return enter_live(entering, live, entry);
    if (r == -EINPROGRESS)
        return r;
    if (!state)
        key_claim_drop(entry);
    return turn_away(entering, r);
}

/* By the word of its key, that is of a set with one limit. */
static void granted(const struct entering *entering, uint64_t now_ns)
{
    struct asking *asking = entering->asking;
    struct counters *counters = actor_counters(asking->actor, entering->set->number);

    if (entering->record) {
        struct record *r = record_at(entering->set->region, entering->record);
        uint64_t held = record_next_word(record_load(&r->word), RECORD_HELD);

        record_store(&r->granted, now_ns);
        record_store(&r->since, now_ns);
        atomic_store_explicit(&r->word, held, memory_order_release);
        STEP();
    }
    asking->verdict = (struct verdict){.now_ns = now_ns, .estimate_ns = now_ns};
    count(&counters->granted, 1);
    count(&counters->limits[0].granted, asking->amounts[0]);
    if (!entering->record)
        count(&counters->taken, 1);
}

/* What the word says cannot be had before `ready`, and nobody is in line. */
static int refuse(const struct entering *entering, struct key_entry *entry, uint64_t now_ns,
                  uint64_t ready)
{
    const struct limit *limit = entering->set->limits.items;
    struct asking *asking = entering->asking;

    asking->verdict = (struct verdict){.now_ns = now_ns, .estimate_ns = ready, .blame = limit};
    if (ready == WEIR_NEVER) {
        set_count_refusal(asking->actor, entering->set, -ERANGE, limit->key);
        return -ERANGE;
    }
    if (entering->entry == ENTRY_PROBE)
        return -EAGAIN;
    if (entering->entry != ENTRY_TRY)
        return enter_promoted(entering, entry, &entry->word);
    if (limit->type == WEIR_LIMIT_RESOURCE)
        asking->verdict.estimate_ns = now_ns; /* not foreseen */
    set_count_busy(asking->actor, entering->set, limit);
    return -EAGAIN;
}

/*
 * By the word of a key that is there. The clock was read before it, which others want, too: an
 * earlier instant grants no more. It may grant less, if somebody was faster who read it later: so
 * whoever is refused reads it again.
 */
static int enter_word(const struct entering *entering, struct key_entry *entry,
                      struct weir_instant at)
{
    const struct keyed *keyed = entering->keyed;
    const struct limit *limit = entering->set->limits.items;
    uint64_t amount = entering->asking->amounts[0];
    enum key_swap swap = KEY_CHANGED;
    bool is_late = MUTANT(613); /* the instant is one after that of the word */

    do {
        uint64_t state = entry->word, quiet_ns, ready;

        if (word_is_live(state))
            return -EINPROGRESS;
        if (!keyed_is_sound(keyed, state))
            return turn_away(entering, -EUCLEAN);
        quiet_ns = atomic_load_explicit(&keyed->common->quiet_ns, memory_order_acquire);
        if (at.now_ns < quiet_ns && quiet_ns < GRANTED_MARKER)
            at.now_ns = quiet_ns; /* somebody has read that from the clock meanwhile */
        ready = limit_try_take(limit, &state, &at, amount);
        if (ready > at.now_ns && is_late)
            return refuse(entering, entry, at.now_ns, ready);
        if (ready > at.now_ns) {
            at = instance_instant(entering->set->w, entering->set->limits.reads_wall);
            is_late = true;
            continue;
        }
        if (word_is_live(state))
            return enter_promoted(entering, entry, &entry->word);
        swap = key_entry_swap(entry, state);
        is_late = MUTANT(613);
    } while (swap == KEY_CHANGED);
    if (swap != KEY_SWAPPED && !MUTANT(459))
        return -EINPROGRESS;
    granted(entering, at.now_ns);
    return 0;
}

/* By the word that a new key gets. */
static int enter_claimed(const struct entering *entering, struct key_entry *entry)
{
    const weir_set *set = entering->set;
    const struct limit *limit = set->limits.items;
    uint64_t amount = entering->asking->amounts[0], state = 0, ready;
    /* After the claim: see key_table.h. */
    struct weir_instant at = instance_instant(set->w, set->limits.reads_wall);
    bool grants;

    limits_init(&set->limits, &state, &at);
    ready = limit_try_take(limit, &state, &at, amount);
    if (ready == WEIR_NEVER) {
        key_claim_drop(entry);
        return refuse(entering, NULL, at.now_ns, ready);
    }
    /* Otherwise the key begins with a refusal, and its time runs from now on. */
    grants = ready <= at.now_ns;
    if (word_is_live(state))
        return enter_promoted(entering, entry, NULL);
    if (!key_claim_commit(entry, state) || !grants)
        return -EINPROGRESS;
    granted(entering, at.now_ns);
    return 0;
}

static int enter_found(const struct entering *entering, struct key_entry *entry,
                       const struct weir_instant *at)
{
    struct live *live;

    if (!word_is_live(entry->word))
        return enter_word(entering, entry, *at);
    live = live_at(entering->keyed, entry->word, NULL);
    if (live)
        return enter_live(entering, live, entry);
    if (live_mend(entering->asking->actor, entering->keyed, &entering->asking->key, entry) ==
        -EUCLEAN)
        return turn_away(entering, -EUCLEAN);
    return turn_away(entering, -ENOMEM);
}

static int enter_once(const struct entering *entering)
{
    struct asking *asking = entering->asking;
    struct keyed *keyed = entering->keyed;
    const weir_set *set = entering->set;
    const struct weir_instant at = instance_instant(set->w, set->limits.reads_wall);
    struct key_entry entry;

    if (set_is_broken(set))
        return turn_away(entering, -EUCLEAN);
    if (key_table_find(&keyed->table, &asking->key, &entry))
        return enter_found(entering, &entry, &at);
    switch (keyed_claim(keyed, asking->actor, &asking->key, &at, &entry)) {
    case KEY_FOUND:
        return enter_found(entering, &entry, &at);
    case KEY_FULL:
        return turn_away(entering, -ENOBUFS);
    default:
        return keyed->fits ? enter_claimed(entering, &entry)
                           : enter_promoted(entering, &entry, NULL);
    }
}

/* Where the last live set is as good as new again and again, several may take it from each other: so
 * there is an end to it. */
#define ATTEMPTS_MAX 256u

int keyed_enter(struct asking *asking, uint32_t record, enum entry entry, uint64_t max_wait_ns)
{
    struct entering entering = {asking, asking->set->keyed, asking->set, record,
                                entry,  max_wait_ns,        false};
    unsigned turn = 0;

    for (uint32_t attempt = 0;; publication_back_off(&turn)) {
        int r = enter_once(&entering);

        if (r != -EINPROGRESS)
            return r;
        if (instance_closed(entering.set->w))
            return turn_away(&entering, -ESHUTDOWN);
        entering.gives_up = ++attempt >= ATTEMPTS_MAX;
    }
}
