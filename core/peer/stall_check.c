/* SPDX-License-Identifier: MIT */
/* Guards: see guard.h. */
#include "peer/stall_check.h"

#include "base/mutant.h"
#include "peer/participant.h"
#include "set/txn.h"
#include "wait/notify.h"
#include "wait/wait_timer.h"
#include "wait/waiter.h"

/* Whether the wait of the head should have ended a look ago, and how. */
static bool is_overdue(const struct operation *op, const struct record *r,
                       enum record_state *ret_state)
{
    uint64_t deadline_ns = record_load(&r->deadline_ns);

    *ret_state = record_before(r) & RECORD_REFUSES ? RECORD_REFUSED : RECORD_TIMED_OUT;
    return deadline_ns < op->now_ns && op->now_ns - deadline_ns >= GUARD_NS;
}

/* Whether who waits is in line, and whoever heads it can be granted some day. Once decided, the
 * record may wait anew, for another key of a keyed set. */
static bool can_wait(const struct operation *op, uint32_t record, uint64_t word, uint64_t ready)
{
    uint64_t now = set_word(op->set, record);

    if (now != word && (!MUTANT(610) || record_state(now) != RECORD_WAITING))
        return true;
    if (ready == WEIR_NEVER && operation_current(op))
        member_break(op->set->member);
    return operation_has(op, record);
}

void guard_look(struct actor *actor, weir_set *set, uint32_t record, uint64_t word)
{
    struct operation op;
    enum record_state state;
    uint32_t head;
    uint64_t head_word, ready;

    operation_read(&op, actor, set);
    if (set_is_broken(set))
        return;
    ready = operation_head_ready(&op);
    head = line_head(&op.version);
    if (!can_wait(&op, record, word, ready) || !head)
        return;
    head_word = set_word(set, head);
    if ((operation_is_due(&op, ready) && !MUTANT(323)) || member_kept(set->member, head))
        set_serve(actor, set);
    else if (is_overdue(&op, record_at(set->region, head), &state) && operation_current(&op) &&
             set_withdraw(actor, set, head, head_word, state))
        wake_waiter(set, head, record_next_word(head_word, state));
}

uint64_t guard_instant(const struct actor *actor, uint32_t ticket, uint64_t now_ns)
{
    uint32_t left = line_left_of(actor->content), place = (ticket - left) & COUNT_MASK;
    uint32_t length = line_length_of(actor->content);

    /* It counts as one further ahead whoever left from behind. */
    if (place > COUNT_MASK / 2)
        place = 0;
    if (place > length)
        place = length; /* never, but in a segment that was tampered with */
    return now_ns + (place + 1) * GUARD_NS;
}

void guard_begin(struct actor *actor, weir_set *set, uint32_t kept, uint64_t word,
                 const struct verdict *verdict)
{
    record_store(&kept_at(set->w, kept)->granted, verdict->ticket);
    keeper_arm(set->w, kept, word, guard_instant(actor, verdict->ticket, verdict->now_ns));
}

void guard_again(struct actor *actor, weir_set *set, uint32_t kept)
{
    uint32_t ticket = (uint32_t)record_load(&kept_at(set->w, kept)->granted);
    uint64_t word = kept_word(set->w, kept);

    if (record_state(word) == RECORD_WAITING)
        keeper_arm(set->w, kept, word, guard_instant(actor, ticket, instance_now(set->w)));
}
