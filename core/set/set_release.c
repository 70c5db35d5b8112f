/* SPDX-License-Identifier: MIT */
/* Sets: what was granted is settled: given back, refunded or charged. */
#include "set/set.h"

#include "api/acquisition.h"
#include "api/instance.h"
#include "base/mutant.h"
#include "base/prefetch.h"
#include "keyed/key_set.h"
#include "keyed/keyed.h"
#include "os/os.h"
#include "set/try_now.h"
#include "set/txn_internal.h"
#include "state/detectable_cas.h"
#include "state/inline_state.h"
#include "state/version_internal.h"
#include "wait/cq.h"
#include <errno.h>
#include <stddef.h>

static inline bool settle_limit(const weir_set *set, uint32_t i, uint64_t *state,
                                const struct weir_instant *at, const struct settlement *settlement,
                                uint64_t granted_ns)
{
    const struct limit *limit = &set->limits.items[i];
    uint64_t amount = settlement->amounts[i], used = settlement->used[i];

    if (!amount)
        return false;
    if (limit->type == WEIR_LIMIT_RESOURCE) {
        limit_release(limit, state, at, amount, granted_ns);
        return false;
    }
    if (settlement->unused)
        used = 0;
    if (used < amount && (limit->refunds || settlement->unused))
        limit_refund(limit, state, at, amount - used, granted_ns);
    else if (used > amount && limit->charges && !MUTANT(31))
        limit_charge(limit, state, at, used - amount);
    else
        return false;
    return true;
}

bool set_settle_limit(const weir_set *set, uint32_t i, uint64_t *state,
                      const struct weir_instant *at, const struct settlement *settlement,
                      uint64_t granted_ns)
{
    return settle_limit(set, i, state, at, settlement, granted_ns);
}

static void count_release(struct counters *counters, const struct settlement *settlement)
{
    count(&counters->released, 1);
    if (settlement->unused)
        count(&counters->canceled, 1);
}

void set_count_settlement(struct actor *actor, const weir_set *set,
                          const struct settlement *settlement)
{
    struct counters *counters = actor_counters(actor, set->number);
    uint64_t refunded = 0, overused = 0;

    for (uint32_t i = 0; i < set->limits.n; i++) {
        const struct limit *limit = &set->limits.items[i];
        uint64_t amount = settlement->amounts[i];
        uint64_t used = settlement->unused ? 0 : settlement->used[i];

        if (!amount || limit->type == WEIR_LIMIT_RESOURCE)
            continue;
        if (used < amount && (limit->refunds || settlement->unused) && limit->algorithm->refund) {
            count(&counters->limits[i].refunded, amount - used);
            refunded = 1;
        } else if (used > amount) {
            count(&counters->limits[i].overused, used - amount);
            overused = 1;
        }
    }
    count_release(counters, settlement);
    if (refunded | overused) {
        count(&counters->refunded, refunded);
        count(&counters->overused, overused);
    }
}

/* What is to be settled, of whom, and what is known of it. */
struct settling {
    const struct settlement *settlement;
    uint32_t record; /* 0: none */
    uint64_t word;   /* of the record, which says HELD */
    bool own;        /* by whoever holds it: nobody else settles it, or uses it again meanwhile */
    bool claimed;    /* the record is FREE already, or there is none */
    bool timed;      /* an algorithm is asked, or the set may go back to its word */
};

/* The record becomes FREE with the version, unless it is already. */
static void free_record(struct operation *op, const struct settling *settling)
{
    uint64_t word = settling->word, free_word = record_next_word(word, RECORD_FREE);

    if (settling->claimed)
        return;
    if (settling->own)
        version_add_own_effect(&op->version, settling->record, RECORD_WORD, word, free_word);
    else
        version_add_effect(&op->version, settling->record, RECORD_WORD, word, free_word);
}

/*
 * One attempt with the whole of the set: 1 done, 0 somebody else did it, or -EINPROGRESS. `op->again`
 * once it is done: the line is to be served on.
 */
static int settle_once(struct operation *op, const struct settling *settling)
{
    const weir_set *set = op->set;
    const struct settlement *settlement = settling->settlement;
    uint64_t granted_ns = set_granted_ns(set, settling->record, settlement);
    bool changed = false;

    if (set_is_hidden(set) && !live_admits(op))
        return -ESTALE;
    if (!settling->claimed &&
        record_load(&set_record(set, settling->record)->word) != settling->word && !MUTANT(25))
        return 0;
    operation_remember(op);
    for (uint32_t i = 0; i < set->limits.n; i++)
        changed |= settle_limit(set, i, operation_states(op) + set->limits.items[i].state_at,
                                &op->at, settlement, granted_ns);
    free_record(op, settling);
    if (!MUTANT(16))
        operation_serve(op, WATCHED_AS_READ);
    if (changed || op->granted)
        projection_forget(op);
    return operation_commit(op) ? 1 : -EINPROGRESS;
}

/* The same until the set can be in its word: then there. */
static int settle_read(struct operation *op, struct settling *settling)
{
    bool boxed = version_is_boxed(&op->version);

    /* By a ledger the record's word says whether it was done, once that is complete. */
    if (!settling->own && op->set->form == WORD_LEDGER && boxed)
        ledger_complete(op->set, &op->version, settling->record);
    else if (!boxed || word_unbox(op))
        return word_settle(op->actor, op->set, settling->record, settling->word, settling->own,
                           settling->settlement, &settling->claimed);
    return settle_once(op, settling);
}

/* Whether nothing of a set is a matter of time, or of others: then what is given back goes to the head
 * of its line, or stays. */
static bool is_counted(const weir_set *set)
{
    return !set->member && !set_is_hidden(set) && !set->limits.has_waits &&
           !set->limits.has_unforeseen;
}

/*
 * What other processors have written last takes longest to come, and each says only where the next one
 * is: the set's word where its version is, that who is first, his record whom to tell. So the record is
 * guessed, and comes with the version, while the clock is read.
 */
static inline void fetch_line(const weir_set *set, const struct set_head *head, uint64_t word)
{
    const char *box = (const char *)boxes_at(false, set->region, head->box_class, word);
    const char *first =
        (const char *)set_record(set, atomic_load_explicit(&head->first, memory_order_relaxed));

    fetch(box);
    fetch(box + FETCH_LINE);
    fetch(box + 2 * FETCH_LINE);
    fetch_to_write(first);
    fetch_to_write(first + FETCH_LINE);
}

/* And what is written to tell him. */
static inline void fetch_waiter(const weir_set *set, uint32_t record)
{
    const struct record *r = set_record(set, record);
    uint32_t waker = record_waker(r);

    if (waker_kind(waker) == RECORD_WAKE_QUEUE)
        queue_fetch(queue_at(set->w, waker_queue(waker)));
    else if (waker_kind(waker) == RECORD_WAKE_KEEPER)
        fetch_to_write((const char *)(uintptr_t)record_load(&r->data) +
                       offsetof(weir_acquisition, fd));
}

/*
 * Reads such a set, in which somebody is in line. False: nobody is, or there is something else to
 * think of. That the clock is read before the version only means that somebody may have published a
 * later instant since, which is then something to think of.
 */
static inline bool read_counted(struct operation *op, struct actor *actor, weir_set *set)
{
    const struct set_head *head = set_at(set->region, set->head);
    uint64_t word = load_acquire(&head->word);

    if (!(word & WORD_BOXED))
        return false;
    fetch_line(set, head, word);
    operation_begin(op, actor, set);
    op->at = instance_instant(actor->w, set->limits.reads_wall);
    op->now_ns = op->at.now_ns;
    publication_intend(set->region, actor_part(actor, set->number)->unit, set->head);
    op->version.effects_n = 0;
    if (read_once(false, set->region, set_at(set->region, set->head), &op->version) != READ_WHOLE ||
        !line_head(&op->version) || version_flags(&op->version) & CONTENT_SHUT)
        return false;
    fetch_waiter(set, line_head(&op->version));
    return op->now_ns >= op->version.content[CONTENT_LAST]; /* or else it is too early to serve */
}

/* It was published. Whoever heads the line by now may have been there before, and can be granted. */
static void serve_on(struct operation *op)
{
    if (op->granted && operation_is_due(op, operation_head_ready(op)) && !MUTANT(615))
        set_serve(op->actor, op->set);
}

/*
 * settle_boxed() of what was held of such a set while somebody is in line: the same steps in a row, and
 * whether the next in line can have something, too, only when the first was told. False: it is to be
 * done there.
 */
static bool settle_counted(struct actor *actor, weir_set *set, const struct settlement *settlement)
{
    uint32_t unit = actor_part(actor, set->number)->unit;
    struct operation op;

    for (unsigned turn = 0; read_counted(&op, actor, set); publication_back_off(&turn)) {
        for (uint32_t i = 0; i < set->limits.n; i++)
            settle_limit(set, i, operation_states(&op) + set->limits.items[i].state_at, &op.at,
                         settlement, 0);
        operation_serve_head(&op, line_head(&op.version));
        operation_close(&op);
        if (!commit(false, set->region, unit, set->head, &op.version))
            continue;
        STEP();
        operation_finish(&op);
        publication_say_first(set->region, set->head, line_head(&op.version));
        serve_on(&op);
        return true;
    }
    return false;
}

/* With the whole of the set. 1 done, 0 somebody else did it; of a live set also -ESTALE. */
static int settle_boxed(struct actor *actor, weir_set *set, struct settling *settling)
{
    struct operation op;
    unsigned turn = 0;
    int r;

    if (settling->claimed && is_counted(set) && settle_counted(actor, set, settling->settlement))
        return 1;
    op.again = false;
    for (;; publication_back_off(&turn)) {
        if (settling->timed)
            operation_read(&op, actor, set);
        else
            operation_read_untimed(&op, actor, set);
        if (set_is_broken(set))
            return 1; /* there is nothing that it could be given back to */
        r = settle_read(&op, settling);
        if (r != -EINPROGRESS)
            break;
    }
    if (r == 1 && op.again)
        set_serve(actor, set);
    return r;
}

/* Whether an algorithm is asked what a settlement does to it. */
static bool asks(const weir_set *set, const struct settlement *settlement)
{
    uint64_t different = 0;

    if (settlement->unused || set->limits.has_unforeseen)
        return true; /* if there is one */
    for (uint32_t i = 0; i < set->limits.n; i++)
        different |= settlement->used[i] ^ settlement->amounts[i];
    return different;
}

static bool settle(struct actor *actor, weir_set *set, uint32_t record, uint64_t word, bool own,
                   const struct settlement *settlement)
{
    bool asked = asks(set, settlement);
    struct settling settling = {.settlement = settlement,
                                .record = record,
                                .word = word,
                                .own = own,
                                .timed = asked || set->form != WORD_NONE};
    int r;

    if (set->keyed || set_is_hidden(set))
        return keyed_settle(actor, set_template(set), record, word, settlement);
    if (set->form != WORD_NONE)
        r = word_settle(actor, set, record, word, own, settlement, &settling.claimed);
    else
        r = plain_settle(actor, set, record, word, own, asked, settlement, &settling.claimed);
    if (r == -EINPROGRESS)
        r = settle_boxed(actor, set, &settling);
    if (r == 0)
        return false;
    if (asked && !set_is_broken(set))
        set_count_settlement(actor, set, settlement);
    else if (!set_is_broken(set))
        count_release(actor_counters(actor, set->number), settlement);
    if (MUTANT(97))
        sys_futex_wake(record_futex(set_record(set, record)), 1);
    return true;
}

int set_settle_live(struct actor *actor, weir_set *set, uint32_t record, uint64_t word,
                    const struct settlement *settlement, bool claimed)
{
    struct settling settling = {.settlement = settlement,
                                .record = claimed ? 0 : record,
                                .word = word,
                                .claimed = claimed,
                                .timed = true};

    return settle_boxed(actor, set, &settling);
}

void set_settle(struct actor *actor, weir_set *set, uint32_t record,
                const struct settlement *settlement)
{
    settle(actor, set, record, record_load(&set_record(set, record)->word), true, settlement);
}

bool set_settle_exactly(struct actor *actor, weir_set *set, uint32_t record, uint64_t word,
                        const struct settlement *settlement)
{
    return settle(actor, set, record, word, MUTANT(484), settlement);
}

void set_give_back(struct actor *actor, weir_set *set, const struct settlement *settlement)
{
    struct settling settling = {
        .settlement = settlement, .own = true, .claimed = true, .timed = true};

    settle_boxed(actor, set, &settling);
}
