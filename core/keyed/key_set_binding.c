/* SPDX-License-Identifier: MIT */
/* Live sets: what a version says whose it is, in which loan, and whether that is over: see live.h. */
#include "keyed/key_set_internal.h"

#include "base/mutant.h"
#include "peer/participant.h"

static struct key key_of(const struct operation *op)
{
    return (struct key){words_of(op)[LIVE_PLACE], words_of(op)[LIVE_ID]};
}

static void set_loan(const struct operation *op, uint64_t loan, enum live_phase phase)
{
    words_of(op)[LIVE_LOAN] = (loan & LIVE_LOAN_MASK) << PHASE_BITS | phase;
}

bool live_is_named(const struct keyed *keyed, const struct operation *op, struct key_entry *ret)
{
    const struct key key = key_of(op);

    return loan_of(op) && key_table_find(&keyed->table, &key, ret) &&
           ret->word == name_of(op, loan_of(op));
}

void live_help(const struct keyed *keyed, const struct operation *op)
{
    const struct key key = key_of(op);
    struct key_entry entry;

    if (phase_of(op) == LIVE_LENDING && !MUTANT(606) &&
        key_table_find(&keyed->table, &key, &entry) && entry.word == name_of(op, loan_of(op) - 1))
        key_entry_swap(&entry, name_of(op, loan_of(op)));
}

bool live_read_named(struct operation *op, struct actor *actor, struct keyed *keyed, uint64_t word,
                     struct live *storage)
{
    struct live *live = live_at(keyed, word, storage);

    if (!live)
        return false;
    operation_read(op, actor, &live->set);
    if (set_is_broken(op->set))
        return false;
    if (name_of(op, loan_of(op)) == word)
        return true;
    live_help(keyed, op);
    return false;
}

bool live_admits(struct operation *op)
{
    if ((loan_of(op) != op->actor->loan && !MUTANT(603)) ||
        (phase_of(op) == LIVE_IDLE && !MUTANT(599)))
        return false;
    set_loan(op, op->actor->loan, LIVE_LENT);
    return true;
}

bool live_estimate(struct actor *actor, struct live *live, uint64_t word, const uint64_t *amounts,
                   enum walk walk, struct verdict *ret)
{
    struct operation op = {.set = &live->set, .version.content = actor->content};

    set_estimate(actor, &live->set, amounts, walk, ret); /* which leaves what it went by there */
    return set_is_broken(&live->set) || name_of(&op, loan_of(&op)) == word;
}

/* ---- loans begin and end ---- */

/* Who lends, as records say whose they are. */
static uint64_t lender_of(const struct operation *op)
{
    uint32_t unit = actor_part(op->actor, op->set->number)->unit;
    const struct actor_head *head = region_box(op->set->region, unit);

    return (uint64_t)unit << 32 |
           (uint32_t)atomic_load_explicit(&head->generation, memory_order_relaxed);
}

uint64_t live_begin_loan(const struct operation *op)
{
    uint64_t loan = loan_of(op) + (!MUTANT(605) || !loan_of(op));

    set_loan(op, loan, LIVE_LENDING);
    words_of(op)[LIVE_LENDER] = lender_of(op);
    return name_of(op, loan);
}

bool live_end_loan(struct operation *op)
{
    set_loan(op, loan_of(op), LIVE_IDLE);
    projection_forget(op);
    return operation_commit(op);
}

bool live_is_abandoned(const struct operation *op)
{
    const struct segment *segment = live_of(op->set)->keyed->segment;
    uint64_t lender = words_of(op)[LIVE_LENDER];
    uint32_t i;

    if (!segment)
        return MUTANT(608);
    return !segment_actor_of(segment, (uint32_t)(lender >> 32), &i) ||
           (uint32_t)atomic_load(&segment_actor(segment, i)->head.generation) != (uint32_t)lender;
}
