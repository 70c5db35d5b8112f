/* SPDX-License-Identifier: MIT */
/* Recovery: see recovery.h. */
#include "peer/thread_recovery.h"

#include "api/instance.h"
#include "base/mutant.h"
#include "base/sched_point.h"
#include "keyed/key_set.h"
#include "peer/participant.h"
#include "set/txn.h"
#include "state/detectable_cas.h"
#include "wait/notify.h"
#include <errno.h>

struct recovery {
    struct actor *actor; /* who recovers */
    const struct region *region;
    struct actor_head *dead;
    uint64_t generation;
    uint64_t owner; /* as the dead wrote it into its records */
};

/* The live set of a keyed one whose head that is, or the keyed set. */
static weir_set *find_live(weir_set *set, uint64_t head, struct live *storage)
{
    uint32_t number;

    if (!set->keyed || head > UINT32_MAX ||
        !segment_live_of(set->member->segment, (uint32_t)head, &number))
        return set;
    return &live_numbered(set->keyed, number, storage)->set;
}

/* The set in the region whose head that is, or NULL. In a segment there is one, whatever the dead
 * has written; `storage` as for live_numbered(). */
static weir_set *find_set(const struct recovery *recovery, uint64_t head, struct live *storage)
{
    const weir *w = recovery->actor->w;

    for (uint32_t i = 0; i < w->sets_n; i++) {
        weir_set *set = instance_set(w, i);

        if (set->region != recovery->region)
            continue;
        if (set->member)
            return find_live(set, head, storage);
        if (set->head == head)
            return set;
    }
    return NULL;
}

static weir_set *set_of(const struct recovery *recovery, const struct record *r,
                        struct live *storage)
{
    return recovery->region->segment ? live_marked(find_set(recovery, 0, NULL), r, storage)
                                     : instance_set(recovery->actor->w, record_set_number(r));
}

/* The set, for which the recovering actor is prepared; NULL: no memory. */
static weir_set *ready_set(struct actor *actor, weir_set *set)
{
    weir *w = actor->w;

    pthread_mutex_lock(&w->lock);
    if (set && !actor_is_prepared(actor, set->number) && actor_prepare(actor, set) < 0)
        set = NULL;
    pthread_mutex_unlock(&w->lock);
    return set;
}

/* As region_next_record(). No lock is held while somebody works on the record. */
static uint32_t next_record(weir *w, const struct region *region, uint32_t record)
{
    if (region->segment)
        return region_next_record(region, record);
    pthread_mutex_lock(&w->lock);
    record = region_next_record(region, record);
    pthread_mutex_unlock(&w->lock);
    return record;
}

/* The amounts may be those of a later life of the record: then the word is another, too. */
static void give_back(struct actor *actor, weir_set *set, uint32_t record, uint64_t word)
{
    const struct record *r = record_at(set->region, record);
    uint64_t amounts[WEIR_LIMITS_MAX];
    const struct settlement settlement = {.amounts = amounts, .used = amounts};

    for (uint32_t i = 0; i < set->limits.n; i++)
        amounts[i] = record_load(&r->amounts[i]);
    set_settle_exactly(actor, set, record, word, &settlement);
}

static bool of_the_dead(const struct recovery *recovery, const struct record *r, uint64_t word)
{
    return record_state(word) != RECORD_FREE && record_load(&r->owner) == recovery->owner;
}

/* Ends a record, if it is the dead actor's. In each turn, either we changed its word or somebody
 * else who recovers did. */
static int end_record(const struct recovery *recovery, uint32_t record)
{
    struct actor *actor = recovery->actor;
    struct record *r = record_at(recovery->region, record);
    struct live storage;
    uint64_t word;

    while (of_the_dead(recovery, r, word = record_load(&r->word))) {
        weir_set *set = ready_set(actor, set_of(recovery, r, &storage));

        if (!set)
            return -ENOMEM;
        if (set_is_broken(set))
            return -EUCLEAN; /* its records stay as they are */
        if (record_state(word) == RECORD_WAITING) {
            if (MUTANT(26))
                return 0;
            set_withdraw(actor, set, record, word, RECORD_CANCELED);
        } else if (record_state(word) == RECORD_HELD) {
            give_back(actor, set, record, word);
        } else {
            atomic_compare_exchange_strong(&r->word, &word, record_next_word(word, RECORD_FREE));
        }
        STEP();
    }
    return 0;
}

/* Somebody who waits is woken to look for himself; of what is kept here, that is its keeper. */
static void wake(weir_set *set, uint32_t record, uint64_t word, uint64_t now_ns)
{
    enum record_wake kind = waker_kind(record_waker(record_at(set->region, record)));

    if (record_state(word) == RECORD_WAITING && kind != RECORD_WAKE_FUTEX && !MUTANT(341))
        wake_at(set, record, word, now_ns);
    else
        wake_waiter(set, record, word);
}

/*
 * Wakes whoever may have been decided without hearing of it: the dead was stopped between the
 * commit and the wake. A wake too many is harmless. Of those that wait, only the head may have been
 * called.
 */
static void wake_again(struct actor *actor, weir_set *set)
{
    weir *w = actor->w;
    struct operation op;

    operation_read(&op, actor, set);
    for (uint32_t at = 0; (at = next_record(w, set->region, at)) != 0;) {
        const struct record *r = record_at(set->region, at);
        uint64_t word = record_load(&r->word);
        enum record_state state = record_state(word);

        if (state == RECORD_FREE || (!set->member && record_set_number(r) != set->number))
            continue;
        if (state != RECORD_WAITING || at == line_head(&op.version))
            wake(set, at, word, op.now_ns);
        STEP();
    }
}

/* What the dead may have begun. */
static void complete(struct actor *actor, weir_set *set)
{
    publication_help(set->region, set->head);
    if (set->form == WORD_LEDGER && !set->keyed) /* nobody changes the state of that one */
        ledger_complete_all(actor, set);
}

static int recover(const struct recovery *recovery)
{
    struct actor *actor = recovery->actor;
    uint64_t intent = atomic_load_explicit(&recovery->dead->intent, memory_order_acquire);
    struct live storage; /* until the end: not that of the records */
    weir_set *set = intent ? ready_set(actor, find_set(recovery, intent, &storage)) : NULL;
    int r = 0;

    if (intent && !set)
        return -ENOMEM;
    /* First of all: only a completed version says what the dead holds and waits for. */
    if (intent && !MUTANT(28))
        complete(actor, set);
    for (uint32_t at = 0; r == 0 && (at = next_record(actor->w, recovery->region, at)) != 0;)
        r = end_record(recovery, at);
    /* It worked on one set at a time, so only that one can lack a service or a wake. */
    if (r == 0 && intent && !MUTANT(28)) {
        set_serve(actor, set);
        if (!MUTANT(27))
            wake_again(actor, set);
    }
    return r;
}

static bool move_on(const struct recovery *recovery)
{
    uint64_t before = recovery->generation;
    bool moved = atomic_compare_exchange_strong(&recovery->dead->generation, &before, before + 1);

    STEP();
    return moved;
}

int recovery_run(struct actor *actor, const struct region *region, uint32_t dead,
                 uint64_t generation)
{
    struct recovery recovery = {.actor = actor,
                                .region = region,
                                .dead = region_box(region, dead),
                                .generation = generation,
                                .owner = (uint64_t)dead << 32 | (uint32_t)generation};
    int r;

    if (atomic_load(&recovery.dead->generation) != generation ||
        (MUTANT(29) && !move_on(&recovery)))
        return -EALREADY;
    STEP();
    r = recover(&recovery);
    STEP();
    if (r == 0 && !MUTANT(29) && !move_on(&recovery))
        r = -EALREADY;
    return r;
}
