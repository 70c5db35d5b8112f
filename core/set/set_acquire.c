/* SPDX-License-Identifier: MIT */
/* Sets: a newcomer is granted what it asks for, joins the line, or is refused. */
#include "set/set.h"

#include "api/acquisition.h"
#include "api/instance.h"
#include "base/mutant.h"
#include "base/sched_point.h"
#include "keyed/key_set.h"
#include "peer/peer_cleanup.h"
#include "set/set_enqueue.h"
#include "set/txn.h"
#include "state/inline_state.h"
#include <errno.h>

static void count_refusal(struct actor *actor, weir_set *set, int code, enum entry entry,
                          const struct verdict *verdict)
{
    struct counters *counters = actor_counters(actor, set->number);

    if (code == -ENOBUFS)
        count(&counters->refused_full, 1);
    else if (entry == ENTRY_WAIT)
        count(&counters->refused_max_wait, 1);
    else
        count(&counters->refused_busy, 1);
    if (verdict->blame)
        count(&counters->limits[verdict->blame - set->limits.items].refused, 1);
}

void set_count_refusal(struct actor *actor, weir_set *set, int code, const char *key)
{
    struct counters *counters = actor_counters(actor, set->number);

    if (code == -ENOENT)
        count(&counters->refused_unknown, 1);
    if (code != -ERANGE)
        return;
    count(&counters->refused_impossible, 1);
    for (uint32_t i = 0; i < set->limits.n; i++)
        if (set->limits.items[i].key == key)
            count(&counters->limits[i].refused, 1);
}

void set_count_entry(struct actor *actor, const weir_set *set, const uint64_t *amounts,
                     uint32_t record)
{
    struct counters *counters = actor_counters(actor, set->number);

    count(&counters->granted, 1);
    if (!record)
        count(&counters->taken, 1);
    for (uint32_t i = 0; i < set->limits.n; i++)
        count(&counters->limits[i].granted, amounts[i]);
}

void set_count_busy(struct actor *actor, const weir_set *set, const struct limit *blame)
{
    struct counters *counters = actor_counters(actor, set->number);

    count(&counters->refused_busy, 1);
    count(&counters->limits[blame - set->limits.items].refused, 1);
}

/* Whoever does not wait asks with a record that nobody else knows of. */
static void hold(struct operation *op, uint32_t record, enum entry entry)
{
    struct record *r = set_record(op->set, record);
    uint64_t word = record_load(&r->word);

    record_store(&r->granted, MUTANT(116) ? op->now_ns : op->at.now_ns);
    STEP();
    record_store(&r->since, op->now_ns);
    STEP();
    if (entry == ENTRY_PROBE || entry == ENTRY_TRY)
        version_add_own_effect(&op->version, record, RECORD_WORD, word,
                               record_next_word(word, RECORD_HELD));
    else
        version_add_effect(&op->version, record, RECORD_WORD, word,
                           record_next_word(word, RECORD_HELD));
}

/* Grants to a newcomer what was taken: 0, or -EINPROGRESS when somebody else was faster. */
static int enter_now(struct operation *op, const uint64_t *amounts, uint32_t record,
                     enum entry entry)
{
    projection_forget(op); /* whoever barges takes what those in line were foreseen to get */
    if (record)
        hold(op, record, entry);
    if (!operation_commit(op))
        return -EINPROGRESS;
    set_count_entry(op->actor, op->set, amounts, record);
    return 0;
}

/* Joins the line, as the projection knows: 1, or -EINPROGRESS. */
static int enter_line(struct operation *op, uint32_t record, uint64_t ready, struct verdict *ret)
{
    struct record *r = set_record(op->set, record);
    bool first = line_length(&op->version) == 0;
    uint64_t word = record_next_word(record_load(&r->word), RECORD_WAITING);

    record_store(&r->since, MUTANT(119) ? op->at.now_ns : op->now_ns);
    STEP();
    ret->ticket = line_left(&op->version) + line_length(&op->version);
    line_push(op->set->region, &op->version, record);
    if (first && !op->set->member)
        publication_say_first(op->set->region, op->set->head, record);
    if (first && ready < WEIR_BLOCKED && waker_kind(record_waker(r)) != RECORD_WAKE_FUTEX) {
        op->arm_ns = ready;
        op->arm = (struct wake){record, word};
    }
    return operation_commit(op) ? 1 : -EINPROGRESS;
}

/* Whether it joins the line whatever there is, because others are before it; unless it can never be
 * granted, which the projection finds out. */
static bool stands_behind(const struct operation *op, enum entry entry, uint64_t max_wait_ns)
{
    const weir_set *set = op->set;
    uint32_t length = line_length(&op->version);

    return entry == ENTRY_WAIT && max_wait_ns == WEIR_FOREVER && length && set->fair &&
           (!set->max_waiters || length < set->max_waiters) && !set->limits.has_unforeseen &&
           (!set->limits.has_waits || projection_is_valid(op)) && !MUTANT(14);
}

static int enter_refused(struct operation *op, const uint64_t *amounts, int code, enum entry entry,
                         struct verdict *ret)
{
    if (!projection_estimate(op, amounts, ret))
        return -EINPROGRESS;
    count_refusal(op->actor, op->set, code, entry, ret);
    return code;
}

static bool beyond(struct operation *op, const uint64_t *amounts, uint64_t max_wait_ns,
                   struct verdict *ret)
{
    if (max_wait_ns == WEIR_FOREVER || !projection_estimate(op, amounts, ret))
        return false;
    return ret->estimate_ns - op->now_ns > max_wait_ns;
}

/*
 * Grants in advance, as of `ready`: 0, -EAGAIN, or -EINPROGRESS. The set is moved to that instant,
 * and nothing is granted before the clock gets there. Whoever is in line comes first.
 */
static int enter_later(struct operation *op, const uint64_t *amounts, uint32_t record,
                       uint64_t ready, uint64_t max_wait_ns, struct verdict *ret)
{
    if ((line_length(&op->version) && !MUTANT(113)) || ready >= GRANTED_MARKER)
        return enter_refused(op, amounts, -EAGAIN, ENTRY_TRY, ret);
    if (ready - op->now_ns - MUTANT(117) > max_wait_ns)
        return enter_refused(op, amounts, -EAGAIN, ENTRY_WAIT, ret);
    op->at.now_ns = ready;
    limits_take(&op->set->limits, operation_states(op), &op->at, amounts, true);
    return enter_now(op, amounts, record, ENTRY_RESERVE);
}

/* When the limits allow it; if that is now, and nothing is reserved, they are taken. */
static uint64_t ask_limits(const struct operation *op, const uint64_t *amounts, bool takes,
                           struct verdict *ret)
{
    const struct limits *limits = &op->set->limits;

    ret->estimate_ns =
        takes ? limits_try_take(limits, operation_states(op), &op->at, amounts, &ret->blame)
              : limits_ready_at(limits, operation_states(op), &op->at, amounts, true, &ret->blame);
    return ret->estimate_ns;
}

static int enter_once(struct operation *op, const uint64_t *amounts, uint32_t record,
                      enum entry entry, uint64_t max_wait_ns, struct verdict *ret)
{
    weir_set *set = op->set;
    uint32_t length = line_length(&op->version);
    bool enters = !length || !set->fair || MUTANT(14);
    uint64_t ready;

    *ret = (struct verdict){.now_ns = op->now_ns, .estimate_ns = WEIR_NEVER};
    if (set_is_broken(set))
        return -EUCLEAN;
    if (version_flags(&op->version) & CONTENT_SHUT)
        return -ESHUTDOWN;
    if (set_is_hidden(set) && !live_admits(op))
        return -ESTALE;
    if (stands_behind(op, entry, max_wait_ns) && (projection_push(op, amounts) || MUTANT(176)))
        return enter_line(op, record, WEIR_BLOCKED, ret);
    ready = ask_limits(op, amounts, enters && (op->at.now_ns == op->now_ns || MUTANT(110)), ret);
    if (enters && (operation_is_due(op, ready) || (MUTANT(110) && ready <= op->at.now_ns)))
        return enter_now(op, amounts, record, entry);
    /* What is short may be held by the dead. */
    if (set->member && !MUTANT(330) && burial_attend_rarely(op->actor, set, op->now_ns))
        return -EINPROGRESS;
    if (ready == WEIR_NEVER) {
        set_count_refusal(op->actor, set, -ERANGE, ret->blame->key);
        return -ERANGE;
    }
    if (entry == ENTRY_PROBE)
        return -EAGAIN;
    if (entry == ENTRY_TRY)
        return enter_refused(op, amounts, -EAGAIN, entry, ret);
    if (entry == ENTRY_RESERVE)
        return enter_later(op, amounts, record, ready, max_wait_ns, ret);
    if (set->max_waiters && length >= set->max_waiters && !MUTANT(15))
        return enter_refused(op, amounts, -ENOBUFS, entry, ret);
    if (beyond(op, amounts, max_wait_ns, ret))
        return enter_refused(op, amounts, -EAGAIN, entry, ret);
    projection_push(op, amounts);
    return enter_line(op, record, ready, ret);
}

/*
 * What a record's word is to become in line. A submission may be decided, reaped, and another's before
 * whoever submits it is back; 0: it stays the caller's, and its word may have changed while it waits.
 */
static uint64_t word_in_line(const weir_set *set, uint32_t record)
{
    const struct record *r = set_record(set, record);

    return waker_kind(record_waker(r)) == RECORD_WAKE_QUEUE
               ? record_next_word(record_load(&r->word), RECORD_WAITING)
               : 0;
}

/*
 * Who joins the line of a private set after set_shut() has seen that there was none sees himself that
 * the instance is closed: the commit, and the store that closed it, are in one order.
 */
static int stay_in_line(struct actor *actor, weir_set *set, uint32_t record, uint64_t word)
{
    if (set->member || !atomic_load(&set->w->closed) || MUTANT(540) ||
        !set_withdraw(actor, set, record, word, RECORD_SHUT_DOWN))
        return 1;
    if (!MUTANT(541))
        acquisition_free_word(set, record);
    return -ESHUTDOWN;
}

int set_join(struct actor *actor, weir_set *set, const uint64_t *amounts, uint32_t record,
             uint64_t max_wait_ns, struct verdict *ret)
{
    uint64_t word = word_in_line(set, record);
    int r = join_line(actor, set, amounts, record, max_wait_ns, ret);

    return r == 1 ? stay_in_line(actor, set, record, word) : r;
}

int set_enter_boxed(struct actor *actor, weir_set *set, const uint64_t *amounts, uint32_t record,
                    enum entry entry, uint64_t max_wait_ns, struct verdict *ret)
{
    uint64_t word = entry == ENTRY_WAIT ? word_in_line(set, record) : 0;
    struct operation op;
    unsigned turn = 0;
    int r;

    if (entry == ENTRY_WAIT && join_is_worth_trying(set)) {
        r = set_join(actor, set, amounts, record, max_wait_ns, ret);
        if (r != -EINPROGRESS)
            return r;
    }
    op.walks = 0;
    for (;; publication_back_off(&turn)) {
        operation_read(&op, actor, set);
        if (!set_is_broken(set) && (!version_is_boxed(&op.version) || word_unbox(&op)))
            r = word_enter(actor, set, amounts, record, entry, ret);
        else
            r = enter_once(&op, amounts, record, entry, max_wait_ns, ret);
        if (r != -EINPROGRESS)
            break;
    }
    return r == 1 ? stay_in_line(actor, set, record, word) : r;
}

int set_lease(struct actor *actor, weir_set *set, uint64_t amount, uint64_t lease,
              struct verdict *ret)
{
    struct operation op;
    unsigned turn = 0;
    int r = word_lease(actor, set, amount, lease, ret);

    op.walks = 0;
    for (; r == -EINPROGRESS; publication_back_off(&turn)) {
        operation_read(&op, actor, set);
        if (!set_is_broken(set) && (!version_is_boxed(&op.version) || word_unbox(&op)))
            r = word_lease(actor, set, amount, lease, ret);
        else
            r = enter_once(&op, &amount, 0, ENTRY_TRY, WEIR_FOREVER, ret);
    }
    return r;
}
