/* SPDX-License-Identifier: MIT */
/* Wait timers: a heap of deadlines and a wake fd each. */
#include "wait/cq.h"

#include "base/invariant.h"
#include "os/os.h"
#include "peer/peer.h"
#include "set/set_ops.h"
#include "set/waiter.h"
#include "wait/hold_watch.h"

void timer_init(struct wait_timer *timer, weir *w, uint32_t number)
{
    WEIR_INVARIANT(w);
    timer->w = w;
    timer->number = number;
    timer->heap.region = &w->region;
    atomic_init(&timer->stall_check_ns, WEIR_FOREVER);
    atomic_init(&timer->hold_look_ns, WEIR_FOREVER);
    wake_fd_init(&timer->wake_fd);
}

void timer_signal(struct wait_timer *timer)
{
    if (wake_fd_write(&timer->wake_fd) < 0) {
        lock_take(&timer->lock);
        wake_fd_fall_back(&timer->wake_fd);
        lock_release(&timer->lock);
    }
    wake_fd_leave(&timer->wake_fd);
}

/* Sets the wake fd. If that fails for a completion queue, the timer thread is signaled; a later run
 * tries again. */
static void timer_set_wake(struct wait_timer *timer, uint64_t at_ns)
{
    WEIR_INVARIANT(timer_is_locked(timer));
    wake_fd_set_timer(&timer->wake_fd, at_ns);
    if (timer->wake_fd.failing && timer->number)
        timer_thread_signal(timer->w);
}

/* Returns when to wake up for the time `at_ns`. */
static uint64_t timer_wake_ns(const struct wait_timer *timer, uint64_t at_ns)
{
    if (at_ns == WEIR_FOREVER)
        return at_ns;
    return at_ns > timer->advance_ns ? at_ns - timer->advance_ns : 0;
}

static uint64_t timer_earliest_ns(const struct wait_timer *timer)
{
    const struct deadline_entry *first = deadline_heap_first(&timer->heap);

    return first ? deadline_entry_ns(first) : WEIR_FOREVER;
}

/* Returns the time of the next stall check or look at holders. Relaxed: both are lowered under the
 * lock. */
static uint64_t timer_check_ns(const struct wait_timer *timer)
{
    uint64_t stall_ns = atomic_load_explicit(&timer->stall_check_ns, memory_order_relaxed);
    uint64_t look_ns = atomic_load_explicit(&timer->hold_look_ns, memory_order_relaxed);

    return stall_ns < look_ns ? stall_ns : look_ns;
}

/* Sets the wake fd for an earlier time only: a wake-up that comes too early finds nothing due, and
 * saves a system call here. During a run it is set at the end. */
static void timer_rearm(struct wait_timer *timer)
{
    uint64_t at_ns = timer_earliest_ns(timer), wake_ns = timer_wake_ns(timer, at_ns);

    WEIR_INVARIANT(timer_is_locked(timer));
    if (timer->advance_ns)
        timer_thread_limit_spin(timer->w, at_ns);
    if (timer_check_ns(timer) < wake_ns)
        wake_ns = timer_check_ns(timer);
    if (wake_ns < timer->wake_fd.at_ns && !timer->runs_n && wake_fd_is_open(&timer->wake_fd) &&
        !timer->w->clock.injected.now_ns)
        timer_set_wake(timer, wake_ns);
}

struct wait_timer *timer_at(const weir *w, uint32_t number)
{
    return number ? &cq_at(w, number)->timer : &instance_wait(w)->timer;
}

static struct wait_timer *timer_of_waiter(const weir *w, uint32_t record)
{
    return timer_at(w, wait_target_cq(record_wait_target(record_known(&w->region, record))));
}

/*
 * Returns whether the record waits with this timer and has the word `word`. A record no longer
 * waits once its queue has delivered or dropped it, or its acquisition is gone: no later call takes
 * it out of the heap. The word of a shared record may then be anything.
 */
WEIR_ALWAYS_INLINE bool timer_serves(const struct wait_timer *timer, const struct acq_record *r,
                                     uint32_t record, uint64_t word)
{
    uint32_t target, flags = atomic_load_explicit(&r->bucket_prev_flags, memory_order_acquire);

    WEIR_INVARIANT(timer_is_locked(timer));
    if (!waiter_is_current(timer->w, record, word)) /* after the flags: see waiter_load() */
        return false;
    target = record_wait_target(r);
    if (!timer->number)
        return wait_target_kind(target) == WAIT_TARGET_TIMER && record_load(&r->data);
    return wait_target_cq(target) == timer->number && !(flags & RECORD_DELIVERED);
}

void timer_arm_recheck(weir *w, uint32_t record, uint64_t word, uint64_t at_ns)
{
    struct wait_timer *timer = timer_of_waiter(w, record);

    /* A record that was the head of its wait queue earlier may be FREE by now. */
    if (record_state(word) != RECORD_WAITING)
        return;
    lock_take(&timer->lock);
    /* This call may come late with an outdated time, so it never postpones. */
    if (timer_serves(timer, record_known(&w->region, record), record, word)) {
        deadline_heap_put_earlier(&timer->heap, record, at_ns);
        timer_rearm(timer);
    }
    lock_release(&timer->lock);
}

/* Lowers the time of a check to `at_ns`. */
static void timer_arm_check(struct wait_timer *timer, _Atomic uint64_t *check_ns, uint64_t at_ns)
{
    if (at_ns >= atomic_load_explicit(check_ns, memory_order_seq_cst))
        return;
    lock_take(&timer->lock);
    if (at_ns < atomic_load_explicit(check_ns, memory_order_relaxed)) {
        atomic_store_explicit(check_ns, at_ns, memory_order_seq_cst);
        timer_rearm(timer);
    }
    lock_release(&timer->lock);
}

void timer_arm_stall_check(struct wait_timer *timer, uint64_t at_ns)
{
    timer_arm_check(timer, &timer->stall_check_ns, at_ns);
}

void timer_arm_hold_look(struct wait_timer *timer, uint64_t at_ns)
{
    timer_arm_check(timer, &timer->hold_look_ns, at_ns);
}

bool timer_take_stall_check(struct wait_timer *timer)
{
    uint64_t at_ns = atomic_load_explicit(&timer->stall_check_ns, memory_order_seq_cst);

    return at_ns != WEIR_FOREVER && at_ns <= clock_now_ns(&timer->w->clock) &&
           atomic_compare_exchange_strong_explicit(&timer->stall_check_ns, &at_ns, WEIR_FOREVER,
                                                   memory_order_seq_cst, memory_order_seq_cst);
}

void timer_set_deadline_locked(struct wait_timer *timer, uint32_t record, uint64_t deadline_ns,
                               enum record_state state)
{
    struct acq_record *r = record_known(timer->heap.region, record);

    WEIR_INVARIANT(timer_is_locked(timer));
    WEIR_INVARIANT(record);
    if (state == RECORD_REFUSED)
        record_set_prev_flags(r, record_prev_flags(r) | RECORD_REFUSE_AT_DEADLINE);
    /* Release, after the flag: another thread may end the wait, if this one is late. */
    atomic_store_explicit(&r->deadline_ns, deadline_ns, memory_order_release);
    deadline_heap_put_earlier(&timer->heap, record, deadline_ns);
    if (deadline_ns < timer->wake_fd.at_ns || timer->advance_ns)
        timer_rearm(timer);
}

void timer_set_deadline(weir *w, uint32_t record, uint64_t word, uint64_t deadline_ns,
                        enum record_state state)
{
    struct wait_timer *timer = timer_of_waiter(w, record);

    lock_take(&timer->lock);
    /* If the waiter was decided, no later call takes it out of the heap before its deadline. A
     * proxy record goes in regardless: other processes may write the shared word. */
    if (waiter_word(w, record) == word || waiter_is_proxy(waiter_at(w, record)))
        timer_set_deadline_locked(timer, record, deadline_ns, state);
    lock_release(&timer->lock);
}

/* Delivers the decision on an acquisition, which exists until its release takes the lock. Its group
 * may be decided by that. A function of its own, so that queues need few registers. */
WEIR_NOINLINE void timer_deliver_acquisition(struct wait_timer *timer, uint32_t record,
                                             uint64_t word)
{
    const struct acq_record *r = record_known(timer->heap.region, record);
    weir_acquisition *acquisition;
    struct group_notice notice;
    bool is_decided = false;

    lock_take(&timer->lock);
    if (timer_serves(timer, r, record, word)) {
        acquisition = (weir_acquisition *)(uintptr_t)record_load(&r->data);
        WEIR_INVARIANT(acquisition->waiter && acquisition->is_timed);
        deadline_heap_remove(&timer->heap, acquisition->waiter);
        atomic_store_explicit(&acquisition->notified, true, memory_order_release);
        acquisition_signal(acquisition);
        is_decided = acquisition->in_group && wait_group_note(acquisition, &notice);
    }
    lock_release(&timer->lock);
    if (is_decided)
        notify_waiter(notice.set, notice.record, notice.word);
}

void timer_deliver(struct wait_timer *timer, uint32_t record, uint64_t word)
{
    const struct acq_record *r = record_known(timer->heap.region, record);
    bool must_signal = false;

    if (!timer->number) {
        timer_deliver_acquisition(timer, record, word);
        return;
    }
    lock_take(&timer->lock);
    /* If it does not serve the record, it comes late, or twice. A proxy record has a mark once its
     * submission has entered the set (cq_submit.c): other processes may write the shared word. */
    if (timer_serves(timer, r, record, word) &&
        (!waiter_is_proxy(r) || record_load(&r->enqueued_ns)))
        must_signal = cq_complete(cq_of_timer(timer), record, word);
    lock_release(&timer->lock);
    if (must_signal)
        timer_signal(timer);
}

void timer_notify(weir *w, uint32_t record, uint64_t word)
{
    const struct acq_record *r = record_known(&w->region, record);
    uint32_t target = record_wait_target(r);

    /* A record that was the head of its wait queue earlier; FREE is nothing to notify of. */
    if (record_state(word) == RECORD_FREE)
        return;
    if (wait_target_kind(target) == WAIT_TARGET_FUTEX)
        os_futex_wake(record_futex(r), false);
    else
        timer_deliver(timer_at(w, wait_target_cq(target)), record, word);
}

/* A waiter taken from the heap because its time has come. */
struct due_waiter {
    uint32_t record;
    uint64_t word;
    weir_set *set;
    bool is_expired; /* its deadline has passed; otherwise a recheck */
    enum record_state end_state;
};

/* Grants what time has made grantable; in a shared set, also checks for threads that were stopped
 * midway. */
static void timer_recheck(struct thread_ctx *ctx, const struct due_waiter *due)
{
    WEIR_INVARIANT(record_state(due->word) == RECORD_WAITING);
    if (!set_is_shared(due->set)) {
        due->set->ops->grant_waiters(ctx, due->set);
        return;
    }
    stall_check_run(ctx, due->set, waiter_record(due->set->w, due->record), due->word);
    stall_check_arm(ctx, due->set, due->record, waiter_word(due->set->w, due->record));
}

int timer_look_at_head(weir_set *set)
{
    struct thread_ctx *ctx = thread_ctx_borrow(set);
    const weir_set *newest = set_newest(set_definition(set));
    uint64_t before = thread_ctx_decided(ctx, set, newest), decided;

    set->ops->grant_waiters(ctx, set);
    decided = thread_ctx_decided(ctx, set, newest) - before;
    thread_ctx_return(ctx);
    return (int)decided;
}

/* Returns how many waiters were decided. */
static int timer_handle_due(weir *w, const struct due_waiter *due)
{
    struct thread_ctx *ctx = thread_ctx_borrow(due->set);
    const weir_set *newest = set_newest(set_definition(due->set));
    uint64_t before = thread_ctx_decided(ctx, due->set, newest), decided;

    WEIR_INVARIANT(due->set->w == w);
    if (due->is_expired && due->set->ops->cancel_wait(ctx, due->set, waiter_record(w, due->record),
                                                      due->word, due->end_state))
        timer_notify(w, due->record, record_next_word(due->word, due->end_state));
    /* In a damaged segment the record may wait regardless: a recheck finds that out. */
    if (!due->is_expired || set_is_shared(due->set))
        timer_recheck(ctx, due);
    decided = thread_ctx_decided(ctx, due->set, newest) - before;
    thread_ctx_return(ctx);
    return (int)decided;
}

/*
 * Interval of rechecks of a proxy record after its time has come, ns. A tampering process may write
 * a wrong word for a moment, and a thread that reads it must not lose the waiter. So a proxy record
 * stays in the heap until its waiter is notified.
 */
#define TIMER_RECHECK_NS UINT64_C(1000000000)

/* Takes the first waiter of the heap, which is due. After a recheck it stays for its deadline. */
static struct due_waiter timer_take_first(struct wait_timer *timer)
{
    struct deadline_entry first = *deadline_heap_first(&timer->heap);
    struct acq_record *r = record_known(timer->heap.region, first.record);
    struct due_waiter due = {.record = first.record, .word = waiter_word(timer->w, first.record)};

    WEIR_INVARIANT(timer_is_locked(timer));
    WEIR_INVARIANT(timer->heap.n > 0);
    if (record_state(due.word) == RECORD_WAITING) {
        due.set = waiter_set(timer->w, first.record);
        due.is_expired = deadline_entry_ns(&first) >= record_load(&r->deadline_ns);
        due.end_state =
            record_prev_flags(r) & RECORD_REFUSE_AT_DEADLINE ? RECORD_REFUSED : RECORD_TIMED_OUT;
    }
    if (due.set && !due.is_expired && record_load(&r->deadline_ns) != WEIR_FOREVER)
        deadline_heap_put(&timer->heap, first.record, record_load(&r->deadline_ns));
    else if (waiter_is_proxy(r))
        deadline_heap_put(&timer->heap, first.record, timer->last_run_ns + TIMER_RECHECK_NS);
    else
        deadline_heap_remove(&timer->heap, first.record);
    return due;
}

/* Sets the wake fd for the next time, or takes an expiry back that has passed for nothing. A thread
 * that does not spin is not woken ahead of a near deadline: it would be woken again and again. */
static void timer_finish_run(struct wait_timer *timer, bool spins)
{
    struct wake_fd *wake_fd = &timer->wake_fd;
    bool is_injected = timer->w->clock.injected.now_ns != NULL;
    uint64_t at_ns = is_injected ? WEIR_FOREVER : timer_earliest_ns(timer);
    uint64_t next = timer_wake_ns(timer, at_ns);

    WEIR_INVARIANT(timer_is_locked(timer));
    WEIR_INVARIANT(timer->runs_n > 0);
    if (next <= timer->last_run_ns && !spins)
        next = at_ns;
    if (timer_check_ns(timer) < next && !is_injected)
        next = timer_check_ns(timer);
    timer->runs_n--;
    if (timer->runs_n || !wake_fd_is_open(wake_fd))
        return;
    if (next < wake_fd->at_ns || wake_fd->at_ns <= timer->last_run_ns || wake_fd->failing)
        timer_set_wake(timer, next);
}

/* Adapts the lead of the wake fd, which expires a moment early. A thread that comes before the
 * deadline spins until then, which is shorter than another wake-up. Returns the time afterwards. */
static uint64_t timer_await_wake(struct wait_timer *timer, uint64_t now)
{
    struct wake_fd *wake_fd = &timer->wake_fd;
    bool ahead = wake_fd_is_ahead(wake_fd, now) && !timer->w->clock.injected.now_ns;

    wake_fd_adapt_lead(wake_fd, now);
    if (!ahead)
        return now;
    while (os_now_ns() < wake_fd->at_ns)
        ;
    return clock_now_fresh(&timer->w->clock);
}

/* Repeats the notification of a proxy's decision. Marks the set broken if the word is 0 although it
 * has been in the set: its segment was cleared, and the word tells no longer that it waits. */
static void timer_repeat_notify(const struct wait_timer *timer, struct due_waiter *due)
{
    const struct acq_record *r = waiter_at(timer->w, due->record);
    const weir_set *set = waiter_set(timer->w, due->record);

    WEIR_INVARIANT(set_is_shared(set));
    if (!due->word && (!timer->number || record_load(&r->enqueued_ns))) {
        participant_mark_broken(set->participant);
        participant_report_broken(set->participant);
        due->word = waiter_word(timer->w, due->record);
    }
    timer_notify(timer->w, due->record, due->word);
}

static int timer_run_until(struct wait_timer *timer, uint64_t now, bool spins)
{
    int n = 0;

    WEIR_INVARIANT(timer_is_locked(timer));
    now = timer_await_wake(timer, now);
    timer->runs_n++;
    timer->last_run_ns = now > timer->last_run_ns ? now : timer->last_run_ns;
    while (timer_earliest_ns(timer) <= now) {
        struct due_waiter due = timer_take_first(timer);

        lock_release(&timer->lock);
        if (due.set)
            n += timer_handle_due(timer->w, &due);
        else if (waiter_is_proxy(waiter_at(timer->w, due.record)))
            timer_repeat_notify(timer, &due); /* the thread that decided may have been stopped */
        lock_take(&timer->lock);
    }
    timer_finish_run(timer, spins);
    return n;
}

int timer_run_locked(struct wait_timer *timer, uint64_t injected_ns)
{
    if (!timer->heap.n && timer->wake_fd.at_ns == WEIR_FOREVER && !timer->wake_fd.failing)
        return 0; /* nothing is or was scheduled */
    return timer_run_until(
        timer, timer->w->clock.injected.now_ns ? injected_ns : clock_now_fresh(&timer->w->clock),
        false);
}

int timer_run(struct wait_timer *timer, bool *ret_failing)
{
    int n = peer_events_handle(timer);
    uint64_t now;

    if (!timer->number)
        n += hold_watch_run(timer->w);
    now = clock_now_fresh(&timer->w->clock);
    lock_take(&timer->lock);
    n += timer_run_until(timer, now, true);
    if (timer->wake_fd.failing)
        *ret_failing = true;
    lock_release(&timer->lock);
    return n;
}

int timer_run_all(weir *w)
{
    uint32_t n = cq_count(w);
    int decided = wall_watch_tick(w);
    bool failing = false;

    for (uint32_t i = 0; i <= n; i++) {
        decided += timer_run(timer_at(w, i), &failing);
        if (i)
            cq_ring_report_loss(cq_at(w, i));
    }
    return decided + wait_group_withdraw(w);
}

uint64_t timer_next_ns(struct wait_timer *timer)
{
    uint64_t at_ns, look_ns;

    lock_take(&timer->lock);
    at_ns = timer_earliest_ns(timer);
    lock_release(&timer->lock);
    look_ns = atomic_load_explicit(&timer->hold_look_ns, memory_order_seq_cst);
    return at_ns < look_ns ? at_ns : look_ns;
}

uint64_t timer_next_of_all(weir *w)
{
    bool is_withdrawn =
        atomic_load_explicit(&instance_wait(w)->withdrawn, memory_order_seq_cst) != NULL;
    /* Those behind withdrawn ones may be granted. */
    uint64_t at_ns = is_withdrawn ? clock_now_ns(&w->clock) : WEIR_FOREVER;

    for (uint32_t i = 0, n = cq_count(w); i <= n; i++) {
        uint64_t next_ns = timer_next_ns(timer_at(w, i));

        at_ns = next_ns < at_ns ? next_ns : at_ns;
    }
    return at_ns;
}
