/* SPDX-License-Identifier: MIT */
/* Sets whose state is in their word: see word.h. */
#include "word.h"

#include "burial.h"
#include "instance.h"
#include "member.h"
#include "mutant.h"
#include "step.h"
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

static uint64_t make_ledger(uint64_t state, uint32_t record, uint64_t record_word)
{
    if (state > LEDGER_USED_MAX || record > LEDGER_RECORD_MAX)
        return WORD_BOXED;
    return state << LEDGER_USED_SHIFT | LEDGER_NAMES | (uint64_t)record << LEDGER_RECORD_SHIFT |
           (record_state(record_word) == RECORD_HELD ? LEDGER_HELD : 0) |
           (record_word >> 8 & LEDGER_SEQUENCE_MASK);
}

static struct record *record_of(const weir_set *set, uint32_t record)
{
    return record_at(set->region, record);
}

/*
 * The set's word, which owes nothing, and the state in it. False: it is boxed, or what others wrote
 * there cannot be; whoever looks closer finds out.
 */
static bool read_word(struct actor *actor, const weir_set *set, uint64_t *ret, uint64_t *ret_state)
{
    if (set->form == WORD_LEDGER)
        publication_intend(set->region, actor_part(actor, set->number)->unit, set->head);
    *ret = publication_word(set->region, set->head, set->form);
    *ret_state = word_state(set->form, *ret);
    STEP();
    if (*ret & WORD_BOXED)
        return false;
    return !set->member || (!member_is_broken(set->member) && member_has_place(set->member) &&
                            limits_check(&set->limits, ret_state) == 0);
}

/* Boxes the set, so that somebody can join its line. As word_enter(). */
static int box(struct actor *actor, weir_set *set, uint64_t word)
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
    if (set->member && burial_attend_rarely(actor, set, now_ns))
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
 * The newcomer's record, which is free until the word says HELD: its own one. Who completes a ledger
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

static uint64_t word_with(const weir_set *set, uint64_t state, uint32_t record, uint64_t held)
{
    return set->form == WORD_LEDGER ? make_ledger(state, record, held) : state;
}

/* A word that was read, as of an instant at which nobody was in line. */
struct reading {
    uint64_t word, state, spare;
    struct weir_instant at;
};

/* In this order: if the set was boxed before the clock was read and is not any more, `spare` is
 * another. */
static bool read_at(struct actor *actor, weir_set *set, struct reading *ret)
{
    ret->spare = publication_spare(set->region, set->head);
    if (!read_word(actor, set, &ret->word, &ret->state))
        return false;
    ret->at = instance_instant(set->w, set->limits.reads_wall);
    return true;
}

/* Nobody has been in line since: an earlier instant grants no more, so the clock is read once. */
static bool read_again(struct actor *actor, const weir_set *set, struct reading *reading)
{
    return read_word(actor, set, &reading->word, &reading->state) &&
           publication_spare(set->region, set->head) == reading->spare;
}

int word_enter(struct actor *actor, weir_set *set, const uint64_t *amounts, uint32_t record,
               enum entry entry, struct verdict *ret)
{
    struct reading reading;
    uint64_t held;
    unsigned turn = 0;

    if (!read_at(actor, set, &reading))
        return -EINPROGRESS;
    held = record ? announce(set, record, reading.at.now_ns) : 0;
    for (;; publication_back_off(&turn)) {
        uint64_t now_ns = reading.at.now_ns, ready, next;

        if (!read_again(actor, set, &reading))
            return -EINPROGRESS;
        ready = limit_try_take(set->limits.items, &reading.state, &reading.at, amounts[0]);
        if (ready > now_ns) {
            int r = refuse(actor, set, now_ns, ready, entry, ret);

            return r == 1 ? box(actor, set, reading.word) : r;
        }
        next = word_with(set, reading.state, record, held);
        if (next & WORD_BOXED)
            return box(actor, set, reading.word);
        if (publication_swap(set->region, set->head, reading.word, next))
            break;
    }
    STEP();
    if (record)
        hold(set, record, held, entry);
    *ret = (struct verdict){.now_ns = reading.at.now_ns, .estimate_ns = reading.at.now_ns};
    set_count_entry(actor, set, amounts, record);
    return 0;
}

/* Gives back by a ledger: the record is freed by the word. Whoever recovers for others may be so late
 * that it is used again. */
static int settle_ledger(struct actor *actor, weir_set *set, uint32_t record, uint64_t word,
                         bool own, const struct settlement *settlement)
{
    struct record *r = record_of(set, record);
    uint64_t free_word = record_next_word(word, RECORD_FREE), before, state;
    unsigned turn = 0;

    for (;; publication_back_off(&turn)) {
        if (!read_word(actor, set, &before, &state))
            return -EINPROGRESS;
        if (record_load(&r->word) != word)
            return 0;
        if (state < settlement->amounts[0])
            return -EINPROGRESS; /* nobody would have written that */
        if (publication_swap(set->region, set->head, before,
                             make_ledger(state - settlement->amounts[0], record, free_word)))
            break;
    }
    STEP();
    if (own)
        atomic_store_explicit(&r->word, free_word, memory_order_release);
    else
        atomic_compare_exchange_strong(&r->word, &word, free_word);
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

static int settle_state(struct actor *actor, weir_set *set, uint64_t granted_ns,
                        const struct settlement *settlement)
{
    const struct limit *limit = set->limits.items;
    struct weir_instant at = {0};
    unsigned turn = 0;

    if (limit->algorithm)
        at = instance_instant(set->w, set->limits.reads_wall);
    for (;; publication_back_off(&turn)) {
        uint64_t word, state;

        if (!read_word(actor, set, &word, &state))
            return -EINPROGRESS;
        set_settle_limit(set, 0, &state, &at, settlement, granted_ns);
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
    granted_ns = record_load(&record_of(set, record)->granted);
    if (!*claimed && !claim(set, record, word, own))
        return 0;
    *claimed = true;
    return settle_state(actor, set, granted_ns, settlement);
}

/* What the word would be; boxed: it does not fit. */
static uint64_t word_of(const struct operation *op)
{
    uint64_t state = *operation_states(op);

    if (op->set->form != WORD_LEDGER)
        return state;
    return state > LEDGER_USED_MAX ? WORD_BOXED
                                   : state << LEDGER_USED_SHIFT | version_token(&op->version);
}

bool word_unbox(const struct operation *op)
{
    const struct version *version = &op->version;

    if (op->set->form == WORD_NONE || !version_is_boxed(version) || line_length(version) ||
        (version_flags(version) & (CONTENT_SHUT | CONTENT_EXPECTED)) ||
        version->content[CONTENT_LAST] > op->now_ns || (word_of(op) & WORD_BOXED))
        return false;
    return publication_unbox(op->set->region, op->set->head, version, word_of(op));
}
