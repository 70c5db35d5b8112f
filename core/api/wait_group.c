/* SPDX-License-Identifier: MIT */
/*
 * Groups of acquisitions, of which the first that is granted wins, and the kind of set that has the
 * records of groups. The lock of the instance's timer is over all groups: under it decisions on
 * members are delivered, so a group is decided once.
 */
#include "api/wait_group.h"

#include "base/invariant.h"
#include "base/sched_point.h"
#include "limit/counters.h"
#include "os/os.h"
#include "set/set_ops.h"
#include "set/waiter.h"
#include "shm/participant.h"
#include "wait/wait_timer.h"
#include <errno.h>

/* Owner of all fields: the timer's lock. Once the group is decided, `winner` belongs to the thread
 * that uses the record. */
struct wait_group {
    weir *w;
    weir_set *set;            /* the group set; NULL: no record stands for the group yet */
    uint32_t record;          /* in that set */
    uint32_t undecided_n;     /* members, and 1 for the submission that is under way */
    enum record_state state;  /* WAITING until it is decided */
    weir_acquisition *winner; /* granted; or one that has ended, for its refusal; or NULL */
    uint32_t members_n;       /* 0 once it is decided */
    weir_acquisition *members[];
};

static void group_lock(const weir *w)
{
    lock_take(&instance_wait(w)->timer.lock);
}

static void group_unlock(const weir *w)
{
    lock_release(&instance_wait(w)->timer.lock);
}

/* ---- with the lock ---- */

static _Atomic uint64_t *group_word(const weir_set *set, uint32_t record)
{
    return &set_record(set, record)->amounts[set->limits.n];
}

/* Returns the group that a record stands for, or NULL. */
static struct wait_group *group_of(const weir_set *set, uint32_t record)
{
    return (struct wait_group *)(uintptr_t)record_load(group_word(set, record));
}

/* Leaves an acquisition to wait_group_withdraw(). With an injected clock there is no thread. */
static void group_withdraw_later(weir *w, weir_acquisition *acquisition)
{
    struct instance_wait *iw = instance_wait(w);

    WEIR_INVARIANT(timer_is_locked(&iw->timer));
    acquisition->in_group = false;
    acquisition->next = atomic_load_explicit(&iw->withdrawn, memory_order_relaxed);
    atomic_store_explicit(&iw->withdrawn, acquisition, memory_order_seq_cst);
    if (!iw->timer_thread)
        return;
    wake_fd_signal(&iw->timer.wake_fd);
    timer_thread_limit_spin(w, 0);
}

/* Makes the record of the group `state`. Returns what to notify. */
static struct group_notice group_store_word(const struct wait_group *group, enum record_state state)
{
    struct acq_record *r = set_record(group->set, group->record);
    uint64_t word = record_next_word(record_load(&r->word), state);

    shm_store_release(&r->word, word);
    return (struct group_notice){group->set, group->record, word};
}

/* Decides the group. Of its members all but `winner` are withdrawn. Returns whether a record stands
 * for it: then `ret` is what to notify. */
static bool group_decide(struct wait_group *group, weir_acquisition *winner,
                         enum record_state state, struct group_notice *ret)
{
    WEIR_INVARIANT(group->state == RECORD_WAITING && state != RECORD_WAITING);
    WEIR_INVARIANT(timer_is_locked(&instance_wait(group->w)->timer));
    if (winner)
        winner->in_group = false;
    for (uint32_t i = 0; i < group->members_n; i++)
        if (group->members[i] != winner)
            group_withdraw_later(group->w, group->members[i]);
    group->members_n = 0;
    group->winner = winner;
    group->state = state;
    if (group->record)
        *ret = group_store_word(group, state);
    return group->record != 0;
}

/* Returns the state of a member that was decided. If a shared record still waits, another process
 * has written to it. */
static enum record_state group_member_state(const weir_acquisition *member)
{
    enum record_state state = acquisition_state(member);

    if (state != RECORD_WAITING || !set_is_shared(member->set))
        return state;
    participant_mark_broken(member->set->participant);
    return RECORD_BROKEN;
}

/* Notes the end of a member without a grant. The refusal is that of a member that has timed out, if
 * any has, else that of the last one. */
static bool group_note_end(struct wait_group *group, weir_acquisition *member,
                           struct group_notice *ret)
{
    WEIR_INVARIANT(group->undecided_n > 0);
    member->in_group = false;
    if (!group->winner || acquisition_state(group->winner) != RECORD_TIMED_OUT)
        group->winner = member;
    return --group->undecided_n == 0 &&
           group_decide(group, group->winner, group_member_state(group->winner), ret);
}

bool wait_group_note(weir_acquisition *member, struct group_notice *ret)
{
    struct wait_group *group = member->group;
    enum record_state state = group_member_state(member);

    WEIR_INVARIANT(member->in_group);
    if (group->state != RECORD_WAITING || state == RECORD_WAITING)
        return false; /* too late: the thread that submits it withdraws it */
    if (state != RECORD_HELD)
        return group_note_end(group, member, ret);
    acquisition_publish_within(member);
    return group_decide(group, member, RECORD_HELD, ret);
}

/* ---- submitting ---- */

struct wait_group *wait_group_new(weir *w, uint32_t members_max)
{
    struct wait_group *group =
        os_alloc(1, sizeof(*group) + members_max * sizeof(weir_acquisition *));

    if (!group)
        return NULL;
    group->w = w;
    group->undecided_n = 1;
    group->state = RECORD_WAITING;
    return group;
}

/* Makes a grant one that the program does not know of. */
static void group_hide_grant(weir_acquisition *acquisition)
{
    acquisition->fast_ctx = NULL;
    atomic_store_explicit(&acquisition->observed, false, memory_order_seq_cst);
}

struct wait_group *wait_group_of_winner(weir_acquisition *winner)
{
    struct wait_group *group = wait_group_new(winner->set->w, 0);

    group_hide_grant(winner);
    if (!group)
        return NULL;
    group->winner = winner;
    group->state = RECORD_HELD;
    return group;
}

bool wait_group_begin_member(struct wait_group *group, weir_acquisition *member)
{
    bool begins;

    group_lock(group->w);
    begins = group->state == RECORD_WAITING;
    if (begins) {
        group->undecided_n++;
        member->group = group;
        member->in_group = true;
    }
    group_unlock(group->w);
    return begins;
}

void wait_group_add_member(struct wait_group *group, weir_acquisition *member, int result)
{
    struct group_notice notice;

    if (result == 0)
        group_hide_grant(member);
    group_lock(group->w);
    if (result < 0)
        group->undecided_n--;
    else if (group->state != RECORD_WAITING && group->winner != member)
        group_withdraw_later(group->w, member);
    else if (group->state == RECORD_WAITING && result == 0)
        group_decide(group, member, RECORD_HELD, &notice);
    else if (group->state == RECORD_WAITING)
        group->members[group->members_n++] = member;
    group_unlock(group->w);
}

bool wait_group_complete(struct wait_group *group)
{
    weir *w = group->w;
    struct group_notice notice;
    bool is_empty;

    group_lock(w);
    is_empty = group->state == RECORD_WAITING && !group->members_n;
    WEIR_INVARIANT(!is_empty || group->undecided_n == 1);
    if (group->state == RECORD_WAITING && --group->undecided_n == 0 && !is_empty)
        group_decide(group, group->winner, group_member_state(group->winner), &notice);
    group_unlock(w);
    if (is_empty)
        os_free(group);
    return !is_empty;
}

/* Withdraws everything that the group has. With the lock. */
static void group_withdraw_all(struct wait_group *group)
{
    struct group_notice notice;

    if (group->state == RECORD_WAITING)
        group_decide(group, NULL, RECORD_CANCELED, &notice);
    else if (group->winner)
        group_withdraw_later(group->w, group->winner);
}

void wait_group_abandon(struct wait_group *group)
{
    weir *w = group->w;

    WEIR_INVARIANT(!group->record);
    group_lock(w);
    group_withdraw_all(group);
    group_unlock(w);
    os_free(group);
    wait_group_withdraw(w);
}

/* ---- withdrawing ---- */

static weir_acquisition *group_take_withdrawn(weir *w)
{
    struct instance_wait *iw = instance_wait(w);
    weir_acquisition *acquisition;

    group_lock(w);
    acquisition = atomic_load_explicit(&iw->withdrawn, memory_order_relaxed);
    if (acquisition) {
        atomic_store_explicit(&iw->withdrawn, acquisition->next, memory_order_seq_cst);
        atomic_store_explicit(&acquisition->queue, NULL, memory_order_seq_cst);
    }
    group_unlock(w);
    return acquisition;
}

/* Returns how many waits of the set the calling thread has ended. */
static uint64_t group_decided(weir_set *set)
{
    struct thread_ctx *ctx = thread_ctx_borrow(set);
    uint64_t decided = counters_decided(thread_ctx_counters(ctx, set->number));

    thread_ctx_return(ctx);
    return decided;
}

int wait_group_withdraw(weir *w)
{
    weir_acquisition *acquisition;
    uint64_t decided = 0;

    if (!atomic_load_explicit(&instance_wait(w)->withdrawn, memory_order_seq_cst))
        return 0;
    while ((acquisition = group_take_withdrawn(w))) {
        weir_set *set = acquisition->set;

        decided -= group_decided(set);
        acquisition_release(acquisition); /* cancels it, or undoes its grant */
        decided += group_decided(set);
    }
    return (int)decided;
}

/* ---- the kind of set ---- */

static int group_set_open(weir_set *set, const struct set_plan *plan, struct weir_error *reterr)
{
    (void)set, (void)plan, (void)reterr;
    return 0;
}

static void group_set_close(weir_set *set)
{
    (void)set;
}

static void group_set_fill_record(const struct acquire_op *op, struct acq_record *r)
{
    record_store(&r->amounts[op->set->limits.n], 0);
}

/* Makes the record stand for the group of the request. Returns 0 (granted), 1 (it waits, or has
 * ended since), or -EAGAIN (a probe). With the lock. */
static int group_set_join(const struct acquire_op *op, uint32_t record, enum wait_mode mode,
                          struct wait_group *group, struct group_notice *ret)
{
    struct acq_record *r = set_record(op->set, record);
    bool is_granted = group->state == RECORD_HELD;

    if (mode == MODE_PROBE && !is_granted)
        return -EAGAIN;
    group->set = op->set;
    group->record = record;
    record_store(group_word(op->set, record), (uint64_t)(uintptr_t)group);
    record_store(is_granted ? &r->granted_ns : &r->enqueued_ns, op->decision.now_ns);
    *ret = group_store_word(group, is_granted ? RECORD_HELD : RECORD_WAITING);
    if (!is_granted && group->state != RECORD_WAITING)
        *ret = group_store_word(group, group->state);
    return !is_granted;
}

static int group_set_acquire(struct acquire_op *op, uint32_t record, enum wait_mode mode,
                             uint64_t max_wait_ns)
{
    struct group_request *asked = (struct group_request *)(uintptr_t)op->request;
    struct group_notice notice;
    int r;

    (void)max_wait_ns;
    WEIR_INVARIANT(record && asked->group && (mode == MODE_PROBE || mode == MODE_WAIT));
    op->decision = (struct decision){.now_ns = clock_now_ns(&op->set->w->clock)};
    op->decision.forecast_ns = op->decision.now_ns;
    group_lock(op->set->w);
    r = group_set_join(op, record, mode, asked->group, &notice);
    group_unlock(op->set->w);
    if (r < 0)
        return r;
    asked->group = NULL;
    SCHED_POINT();
    if (r == 1 && record_state(notice.word) != RECORD_WAITING)
        notify_waiter(op->set, record, notice.word);
    return r;
}

static bool group_set_cancel_wait(struct thread_ctx *ctx, weir_set *set, uint32_t record,
                                  uint64_t expected, enum record_state state)
{
    const struct acq_record *r = set_record(set, record);
    struct group_notice notice;
    uint64_t word;
    bool waits;

    (void)ctx;
    group_lock(set->w);
    word = record_load(&r->word);
    waits = record_state(word) == RECORD_WAITING && (!expected || word == expected);
    if (waits)
        group_decide(group_of(set, record), NULL, state, &notice);
    group_unlock(set->w);
    return waits;
}

/* Frees the group of a record. What it has is withdrawn. */
static void group_set_forget(const weir_set *set, uint32_t record)
{
    struct wait_group *group;

    group_lock(set->w);
    group = group_of(set, record);
    if (group) {
        WEIR_INVARIANT(group->state != RECORD_WAITING);
        group_withdraw_all(group);
        record_store(group_word(set, record), 0);
    }
    group_unlock(set->w);
    os_free(group);
}

/* Undoes the grant of the winner, unless wait_group_end() has released it. */
static bool group_set_release(struct thread_ctx *ctx, weir_set *set, uint32_t record, uint64_t word,
                              bool is_owner, const struct release_args *args)
{
    (void)ctx, (void)is_owner, (void)args;
    if (record_load(&set_record(set, record)->word) != word)
        return false;
    group_set_forget(set, record);
    set_free_record(set, record);
    return true;
}

static weir_acquisition *group_set_winner(const weir_set *set, uint32_t record)
{
    if (record_state(record_load(&set_record(set, record)->word)) != RECORD_HELD)
        return NULL;
    return group_of(set, record)->winner;
}

static void group_set_grant_waiters(struct thread_ctx *ctx, weir_set *set)
{
    (void)ctx, (void)set; /* the sets of the members do */
}

static uint64_t group_set_poll_head(struct thread_ctx *ctx, weir_set *set, uint32_t record)
{
    (void)ctx;
    return record_state(record_load(&set_record(set, record)->word)) == RECORD_WAITING
               ? WEIR_FOREVER
               : 0;
}

/* All sets of the instance are shut down, so all members end. */
static void group_set_shut_down(struct thread_ctx *ctx, weir_set *set)
{
    (void)ctx, (void)set;
}

/* Says what the set of the member does in which the wait has ended. */
static void group_set_forecast(struct acquire_op *op, uint32_t record, enum forecast_walk walk)
{
    const struct wait_group *group = record ? group_of(op->set, record) : NULL;
    weir_acquisition *member = group ? group->winner : NULL;
    struct thread_ctx *ctx = member ? thread_ctx_get(member->set) : NULL;

    op->decision = (struct decision){.now_ns = clock_now_ns(&op->set->w->clock)};
    op->decision.forecast_ns = op->decision.now_ns;
    if (!ctx)
        return;
    op->ctx = ctx;
    op->set = member->set;
    op->within = member->within;
    op->wait_class = member->wait_class;
    for (uint32_t i = 0; i < op->set->limits.n; i++)
        op->amounts[i] = acquisition_amounts(member)[i];
    op->set->ops->forecast(op, member->record, walk);
}

const struct set_ops group_set_ops = {
    .size = sizeof(weir_set),
    .record_words = 1,
    .wants_releases = true,
    .open = group_set_open,
    .close = group_set_close,
    .fill_record = group_set_fill_record,
    .acquire = group_set_acquire,
    .release = group_set_release,
    .cancel_wait = group_set_cancel_wait,
    .winner = group_set_winner,
    .forget = group_set_forget,
    .grant_waiters = group_set_grant_waiters,
    .poll_head = group_set_poll_head,
    .shut_down = group_set_shut_down,
    .forecast = group_set_forecast,
};

/* ---- releasing ---- */

int wait_group_end(weir_acquisition *acquisition)
{
    weir_set *set = acquisition->set;
    weir *w = set->w;
    uint32_t record = acquisition->record;
    weir_acquisition *winner;
    int r = 0;

    group_set_cancel_wait(NULL, set, record, 0, RECORD_CANCELED);
    winner = group_set_winner(set, record);
    if (winner && !acquisition_is_unused(acquisition)) {
        acquisition_mark_observed(winner);
        group_of(set, record)->winner = NULL;
        r = acquisition_release(winner);
    }
    if (acquisition_state(acquisition) != RECORD_FREE)
        set_free_ended_record(set, record);
    wait_group_withdraw(w);
    return r;
}
