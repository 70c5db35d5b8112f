/* SPDX-License-Identifier: MIT */
/* Sets whose state is in their word: see word.h. */
#include "state/inline_state.h"

#include "api/instance.h"
#include "base/mutant.h"
#include "base/sched_point.h"
#include "peer/participant.h"
#include "peer/peer_cleanup.h"
#include "state/detectable_cas.h"
#include "state/inline_state_step.h"
#include <errno.h>

enum word_form word_form_for(const struct limits *limits, bool ledger)
{
    const struct limit *limit = limits->items;

    if (limits->n != 1 || limits->state_words != 1)
        return WORD_NONE;
    if (limit->algorithm && !(limit->algorithm->flags & WEIR_ALGORITHM_WORD))
        return WORD_NONE;
    if (limit->type != WEIR_LIMIT_RESOURCE || !ledger)
        return WORD_STATE;
    return !limit->algorithm && limit->capacity <= LEDGER_USED_MAX ? WORD_LEDGER : WORD_NONE;
}

static struct record *record_of(const weir_set *set, uint32_t record)
{
    return record_at(set->region, record);
}

/* Whether others can die in the set and be recovered. */
static bool is_shared(const weir_set *set)
{
    return set->member || set->form == WORD_LEDGER;
}

int word_box(struct actor *actor, weir_set *set, uint64_t word)
{
    struct operation op;
    int r = 0;

    /* Private sets have no box until they first need one. */
    if (!set->member && !publication_spare(set->region, set->head)) {
        pthread_mutex_lock(&set->w->lock);
        r = publication_reserve(set->region, set->head);
        pthread_mutex_unlock(&set->w->lock);
    }
    if (r == 0)
        operation_box(&op, actor, set, word);
    return r < 0 ? r : -EINPROGRESS;
}

/* Nobody is in line, so what the state says is all that there is to say. 1: it has to wait. */
static int refuse(struct actor *actor, weir_set *set, uint64_t now_ns, uint64_t ready,
                  enum entry entry, struct verdict *ret)
{
    const struct limit *limit = set->limits.items;

    /* What is short may be held by the dead. */
    if (set->member && !MUTANT(330) && burial_attend_rarely(actor, set, now_ns))
        return -EINPROGRESS;
    *ret = (struct verdict){.now_ns = now_ns, .estimate_ns = ready, .blame = limit};
    if (ready == WEIR_NEVER) {
        set_count_refusal(actor, set, -ERANGE, limit->key);
        return -ERANGE;
    }
    if (entry == ENTRY_PROBE)
        return -EAGAIN;
    if (entry != ENTRY_TRY)
        return 1;
    if (limit->type == WEIR_LIMIT_RESOURCE)
        ret->estimate_ns = now_ns; /* not foreseen */
    set_count_busy(actor, set, limit);
    return -EAGAIN;
}

/*
 * The newcomer's record, which is free until its word says HELD: that one. Who completes a ledger
 * knows nothing of the instants, so they come first.
 */
static uint64_t announce(const weir_set *set, uint32_t record, uint64_t now_ns)
{
    struct record *r = record_of(set, record);

    record_store(&r->granted, now_ns);
    STEP();
    record_store(&r->since, now_ns);
    STEP();
    return record_next_word(record_load(&r->word), RECORD_HELD);
}

/*
 * What was granted is now the record's. Nobody knows of one that does not wait. Of others whoever
 * completed a ledger may have woken the waiter, who may have given it back.
 */
static void hold(const weir_set *set, uint32_t record, uint64_t held, enum entry entry)
{
    struct record *r = record_of(set, record);
    uint64_t before = ((held >> 8) - 1) << 8 | RECORD_FREE;

    if (entry == ENTRY_PROBE || entry == ENTRY_TRY)
        atomic_store_explicit(&r->word, held, memory_order_release);
    else
        atomic_compare_exchange_strong(&r->word, &before, held);
    STEP();
}

static void count_entry(struct actor *actor, const weir_set *set, uint64_t amount, uint32_t record)
{
    struct counters *counters = actor_counters(actor, set->number);

    count(&counters->granted, 1);
    count(&counters->limits[0].granted, amount);
    if (!record)
        count(&counters->taken, 1);
}

/* The actor's seat in a ledger, if there is one for it. Whoever recovers it looks there first. */
static uint32_t sit_down(struct actor *actor, const weir_set *set)
{
    publication_intend(set->region, actor_part(actor, set->number)->unit, set->head);
    return ledger_seat(actor, set);
}

WORD_INLINE int enter(bool shared, struct actor *actor, weir_set *set, uint64_t amount,
                      uint64_t lease, uint32_t record, enum entry entry, struct verdict *ret)
{
    struct word_grant grant = {.amount = amount, .lease = lease, .record = record};
    struct weir_instant at;
    uint64_t word, ready;
    int r;

    if (shared && set->form == WORD_LEDGER)
        grant.seat = sit_down(actor, set);
    at = word_instant(set);
    publication_prefetch(set->region, set->head);
    for (;;) {
        grant.held = record ? announce(set, record, at.now_ns) : 0;
        r = word_take(shared, set, &at, &grant, &word, &ready);
        if (r != -EINPROGRESS)
            break;
        if (word & WORD_BOXED)
            return -EINPROGRESS;
        if (at.now_ns >= word_unboxed_ns(set))
            return word_box(actor, set, word); /* it does not fit */
        at = instance_instant(set->w, set->limits.reads_wall);
        if (at.now_ns < word_unboxed_ns(set))
            return word_box(actor, set, word); /* it goes backwards: until it catches up */
    }
    if (r == -EAGAIN) {
        r = refuse(actor, set, at.now_ns, ready, entry, ret);
        return r == 1 ? word_box(actor, set, word) : r;
    }
    STEP();
    if (record)
        hold(set, record, grant.held, entry);
    ret->now_ns = ret->estimate_ns = at.now_ns;
    ret->leased = grant.leased;
    count_entry(actor, set, amount, record);
    return 0;
}

int word_enter(struct actor *actor, weir_set *set, const uint64_t *amounts, uint32_t record,
               enum entry entry, struct verdict *ret)
{
    /* Who can wait often finds others in line, and then needs no clock here. */
    if (entry != ENTRY_TRY && publication_peek(set->region, set->head) & WORD_BOXED)
        return -EINPROGRESS;
    return is_shared(set) ? enter(true, actor, set, amounts[0], 0, record, entry, ret)
                          : enter(false, actor, set, amounts[0], 0, record, entry, ret);
}

int word_lease(struct actor *actor, weir_set *set, uint64_t amount, uint64_t lease,
               struct verdict *ret)
{
    ret->leased = 0;
    return enter(is_shared(set), actor, set, amount, lease, 0, ENTRY_TRY, ret);
}

/*
 * Gives back by a ledger what is the caller's own. For others that is done with the whole of the set,
 * and once it is boxed they are told apart who did it before.
 */
static int settle_ledger(struct actor *actor, weir_set *set, uint32_t record, uint64_t word,
                         bool own, const struct settlement *settlement)
{
    uint32_t seat = sit_down(actor, set);
    struct record *of = record_of(set, record);
    uint64_t before;
    int r = word_return(set, own || MUTANT(573) ? seat : 0, record, of, word,
                        settlement->amounts[0], &before);

    if (r == -EINPROGRESS && !(before & WORD_BOXED) && !set_is_broken(set))
        word_box(actor, set, before);
    if (r != 1)
        return r;
    STEP();
    atomic_store_explicit(&of->word, record_next_word(word, RECORD_FREE), memory_order_release);
    STEP();
    return 1;
}

/* From HELD to FREE: of all who try, one gives back what the record held. */
static bool claim(const weir_set *set, uint32_t record, uint64_t word, bool own)
{
    _Atomic uint64_t *at = &record_of(set, record)->word;
    uint64_t free_word = record_next_word(word, RECORD_FREE);
    bool claimed = true;

    if (own)
        atomic_store_explicit(at, free_word, memory_order_release);
    else
        claimed = atomic_compare_exchange_strong(at, &word, free_word);

    STEP();
    return claimed;
}

WORD_INLINE int settle_state(bool shared, weir_set *set, uint64_t granted_ns,
                             const struct settlement *settlement)
{
    const struct limit *limit = set->limits.items;
    struct weir_instant at = {0};
    unsigned turn = 0;

    if (limit->algorithm)
        at = instance_instant(set->w, set->limits.reads_wall);
    for (;; publication_back_off(&turn)) {
        uint64_t word, state;

        if (!word_read(shared, set, &word, &state))
            return -EINPROGRESS;
        if (limit->algorithm)
            set_settle_limit(set, 0, &state, &at, settlement, granted_ns);
        else
            state -= settlement->amounts[0];
        if (state & WORD_BOXED)
            return 1; /* the algorithm broke its word */
        if (publication_swap(set->region, set->head, word, state))
            return 1;
    }
}

int word_settle(struct actor *actor, weir_set *set, uint32_t record, uint64_t word, bool own,
                const struct settlement *settlement, bool *claimed)
{
    uint64_t granted_ns;

    if (set->form == WORD_LEDGER)
        return settle_ledger(actor, set, record, word, own, settlement);
    granted_ns = set_granted_ns(set, record, settlement);
    if (!*claimed && !claim(set, record, word, own))
        return 0;
    *claimed = true;
    return set->member ? settle_state(true, set, granted_ns, settlement)
                       : settle_state(false, set, granted_ns, settlement);
}

/* What the word would be; boxed: it does not fit. */
static uint64_t word_of(const struct operation *op)
{
    uint64_t state = *operation_states(op);

    if (op->set->form != WORD_LEDGER)
        return state;
    return state > LEDGER_USED_MAX
               ? WORD_BOXED
               : state << LEDGER_USED_SHIFT |
                     (MUTANT(572) ? 0 : op->version.content[LEDGER_BITS_AT] & LEDGER_BITS);
}

/* Whoever unboxes a later version may have been faster. */
static void advance(const weir_set *set, uint64_t now_ns)
{
    uint64_t before = atomic_load_explicit(set->unboxed_ns, memory_order_relaxed);

    while (before < now_ns && !atomic_compare_exchange_weak(set->unboxed_ns, &before, now_ns))
        ;
    STEP();
}

bool word_put_back(const struct operation *op)
{
    const struct version *version = &op->version;

    if ((version_flags(version) & (CONTENT_SHUT | CONTENT_EXPECTED)) ||
        (version->content[CONTENT_LAST] > op->now_ns && !MUTANT(503)) || (word_of(op) & WORD_BOXED))
        return false;
    if (op->set->form == WORD_LEDGER && !ledger_seat(op->actor, op->set))
        return false; /* who has no seat there leaves it as he needs it */
    advance(op->set, op->now_ns);
    return publication_unbox(op->set->region, op->set->head, version, word_of(op));
}
