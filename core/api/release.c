/* SPDX-License-Identifier: MIT */
/* Ends of acquisitions: cancellation, the slow path of release, and grants undone. */
#include "api/request_events.h"
#include "api/wait_group.h"

#include "base/compiler.h"
#include "limit/counters.h"
#include "os/os.h"
#include "set/set_ops.h"
#include "wait/cq.h"
#include "wait/direct_wait.h"
#include <errno.h>

/* Counts how long a HELD acquisition was held. */
static void acquisition_count_hold(struct thread_ctx *ctx, const weir_acquisition *acquisition)
{
    const weir_set *set = acquisition->set;
    uint64_t granted_ns =
        grant_time(record_load(&set_record(set, acquisition->record)->granted_ns));
    uint64_t now_ns = clock_instant(&set->w->clock, set->limits.clock_needs).now_ns;

    counters_add_hold(counters_holds(thread_ctx_counters(ctx, set->number), set_amounts_n(set)),
                      now_ns > granted_ns ? now_ns - granted_ns : 0);
}

/* Releases what a HELD record holds, and makes it FREE. `may_be_revoked`: by another thread.
 * Returns false if it was. */
WEIR_ALWAYS_INLINE bool acquisition_release_record(struct thread_ctx *ctx,
                                                   const weir_acquisition *acquisition,
                                                   const struct release_args *args,
                                                   bool may_be_revoked)
{
    weir_set *set = acquisition->set;
    uint64_t word = record_load(&set_record(set, acquisition->record)->word);

    if (!may_be_revoked) {
        set->ops->release(ctx, set, acquisition->record, word, true, args);
        return true;
    }
    if (record_state(word) == RECORD_HELD &&
        set->ops->release(ctx, set, acquisition->record, word, false, args))
        return true;
    return acquisition_state(acquisition) != RECORD_REVOKED; /* or it is damaged */
}

/* Releases a grant. `changes_set`: the set is to end it even if nothing goes back. Returns 0,
 * -EPROTO, or -EOWNERDEAD if it was revoked. Compiled into its callers. */
WEIR_ALWAYS_INLINE int acquisition_give_back(struct thread_ctx *ctx, weir_acquisition *acquisition,
                                             bool unused, bool changes_set, bool may_be_revoked)
{
    weir_set *set = acquisition->set;
    struct counters *counters = thread_ctx_counters(ctx, set->number);
    const struct release_args args = {.amounts = acquisition_amounts(acquisition),
                                      .used = acquisition_used(acquisition),
                                      .return_all = unused,
                                      .outcome = acquisition->outcome,
                                      .latency_ns = acquisition_latency_ns(acquisition)};
    bool update_missing = false;

    WEIR_INVARIANT(acquisition->record);
    for (uint32_t i = 0; i < set->limits.n; i++) {
        if (!args.amounts[i])
            continue;
        update_missing |= !unused && acquisition_lacks_update(acquisition, i);
        changes_set |= unused || set->limits.items[i].type == WEIR_LIMIT_RESOURCE ||
                       args.used[i] != args.amounts[i];
    }
    if (changes_set) {
        if (!acquisition_release_record(ctx, acquisition, &args, may_be_revoked))
            return -EOWNERDEAD;
    } else { /* freeing the record suffices */
        set_free_record(set, acquisition->record);
        counter_add(&counters->released, 1);
        counter_add(&counters->canceled, unused);
    }
    WEIR_INVARIANT(set_is_shared(set) || acquisition_record_is(acquisition, RECORD_FREE));
    if (update_missing)
        counter_add(&counters->missing_update, 1);
    return update_missing ? -EPROTO : 0;
}

/* As acquisition_release_grant(), where the set heeds releases. */
WEIR_NOINLINE int acquisition_release_heeded(struct thread_ctx *ctx, weir_acquisition *acquisition,
                                             bool unused)
{
    const weir_set *set = acquisition->set;
    bool is_wanted = set->ops->wants_releases || set_successor(set);
    bool is_lost = set->ops->wants_releases && acquisition_is_lost(acquisition);
    int r = acquisition_give_back(ctx, acquisition, unused, is_wanted, set->limits.revokes);

    if (r != -EOWNERDEAD && set->limits.counts_holds && !unused &&
        !request_is_empty(set, acquisition_amounts(acquisition)))
        acquisition_count_hold(ctx, acquisition);
    return is_lost ? -EOWNERDEAD : r;
}

static int acquisition_release_grant(struct thread_ctx *ctx, weir_acquisition *acquisition,
                                     bool unused)
{
    if (acquisition->set->limits.heeds_releases)
        return acquisition_release_heeded(ctx, acquisition, unused);
    return acquisition_give_back(ctx, acquisition, unused, set_successor(acquisition->set) != NULL,
                                 false);
}

bool acquisition_undo(struct thread_ctx *ctx, weir_set *set, uint32_t record, uint64_t word)
{
    const struct acq_record *r = record_at(set->region, record);
    uint64_t amounts[WEIR_LIMITS_MAX] = {0};
    const struct release_args args = {.amounts = amounts, .used = amounts, .return_all = true};

    WEIR_INVARIANT(record_state(word) == RECORD_HELD);
    WEIR_INVARIANT(record && set->limits.n <= WEIR_LIMITS_MAX);
    for (uint32_t i = 0; i < set->limits.n; i++)
        amounts[i] = record_load(&r->amounts[i]);
    if (set->limits.n)
        return set->ops->release(ctx, set, record, word, false, &args);
    set_free_record(set, record);
    counter_add(&thread_ctx_counters(ctx, set->number)->released, 1);
    counter_add(&thread_ctx_counters(ctx, set->number)->canceled, 1);
    return true;
}

static bool acquisition_was_signaled(weir_acquisition *acquisition)
{
    weir *w = acquisition->set->w;
    bool signaled;

    lock_take(&instance_wait(w)->timer.lock);
    signaled =
        acquisition->signaled || (acquisition->direct && direct_wait_is_signaled(acquisition));
    lock_release(&instance_wait(w)->timer.lock);
    return signaled;
}

bool acquisition_is_unused(weir_acquisition *acquisition)
{
    return !atomic_load_explicit(&acquisition->observed, memory_order_seq_cst) &&
           !acquisition->reserved && !acquisition_was_signaled(acquisition);
}

/* Cancels the wait of a pending acquisition. Returns false if it was decided before. */
static bool acquisition_cancel_wait(struct thread_ctx *ctx, weir_acquisition *acquisition)
{
    return acquisition_state(acquisition) == RECORD_WAITING &&
           acquisition->set->ops->cancel_wait(ctx, acquisition->set, acquisition->record, 0,
                                              RECORD_CANCELED);
}

/* Returns a grant that the caller has not observed. Returns -EALREADY if there is none. */
static int acquisition_cancel_grant(struct thread_ctx *ctx, weir_acquisition *acquisition)
{
    if (acquisition_state(acquisition) != RECORD_HELD)
        return -EALREADY;
    acquisition_release_grant(ctx, acquisition, true);
    return acquisition_state(acquisition) == RECORD_REVOKED ? -EALREADY : 0;
}

/* Signals the descriptor of a canceled acquisition. */
static void acquisition_signal_locked(weir_acquisition *acquisition)
{
    weir *w = acquisition->set->w;

    lock_take(&instance_wait(w)->timer.lock);
    acquisition_signal(acquisition);
    lock_release(&instance_wait(w)->timer.lock);
}

/* Cancels a reservation of nothing. Only the owner of the handle knows of it. */
static int acquisition_cancel_empty(const struct thread_ctx *ctx, weir_acquisition *acquisition)
{
    struct counters *counters = thread_ctx_counters(ctx, acquisition->set->number);

    WEIR_INVARIANT(!acquisition->record);
    if (acquisition->canceled)
        return -EALREADY;
    acquisition->canceled = true;
    counter_add(&counters->canceled, 1);
    counter_add(&counters->released, 1);
    return 0;
}

int weir_cancel(weir_acquisition *acquisition)
{
    struct thread_ctx *ctx;
    weir_queue *queue;
    weir_set *set;
    int r = 0;

    if (!acquisition)
        return -EINVAL;
    set = acquisition->set;
    if (instance_is_forked(set->w))
        return -ECHILD;
    queue = atomic_load_explicit(&acquisition->queue, memory_order_seq_cst);
    if (queue) {
        r = cq_cancel_acquisition(queue, acquisition);
        if (set->ops->winner)
            wait_group_withdraw(set->w);
        return r;
    }
    if (atomic_load_explicit(&acquisition->observed, memory_order_seq_cst))
        return -EALREADY;
    ctx = thread_ctx_borrow(set);
    if (!acquisition->record)
        r = acquisition_cancel_empty(ctx, acquisition);
    else if (!acquisition_cancel_wait(ctx, acquisition))
        r = acquisition_cancel_grant(ctx, acquisition);
    thread_ctx_return(ctx);
    if (r == 0)
        acquisition_signal_locked(acquisition);
    if (set->ops->winner)
        wait_group_withdraw(set->w);
    else if (r == 0 && events_are_on(set->w))
        acquisition_tell_cancel(acquisition);
    return r;
}

/* Ends an acquisition in any state. Its record is FREE afterwards. */
static int acquisition_end(struct thread_ctx *ctx, weir_acquisition *acquisition)
{
    enum record_state state = acquisition_state(acquisition);
    int r;

    WEIR_INVARIANT(acquisition->record);
    if (state == RECORD_WAITING) {
        acquisition_cancel_wait(ctx, acquisition);
        state = acquisition_state(acquisition);
    }
    if (state == RECORD_HELD) {
        r = acquisition_release_grant(ctx, acquisition, acquisition_is_unused(acquisition));
        if (r != -EOWNERDEAD || acquisition_state(acquisition) != RECORD_REVOKED)
            return r;
        state = RECORD_REVOKED;
    }
    if (state != RECORD_FREE)
        set_free_ended_record(acquisition->set, acquisition->record);
    return state == RECORD_REVOKED ? -EOWNERDEAD : 0;
}

/* Warns of each limit that lacks its update. The log callback may call weir. */
static void acquisition_warn_missing(const weir_acquisition *acquisition)
{
    weir_set *set = acquisition->set;

    for (uint32_t i = 0; i < set->limits.n; i++)
        if (acquisition_lacks_update(acquisition, i))
            request_warn(set, set->limits.items[i].key,
                         "was released without an update: its full amount counts as used");
}

static void acquisition_end_direct(weir_acquisition *acquisition)
{
    weir *w = acquisition->set->w;

    lock_take(&instance_wait(w)->timer.lock);
    direct_wait_end(acquisition);
    lock_release(&instance_wait(w)->timer.lock);
}

static void acquisition_close_fds(const weir_acquisition *acquisition)
{
    if (acquisition->fd >= 0 && !acquisition->attached)
        os_close(acquisition->fd);
    if (acquisition->lost_fd >= 0)
        os_close(acquisition->lost_fd);
}

/* Frees an acquisition with a FREE record, and returns the context. */
static inline void acquisition_finish(struct thread_ctx *ctx, weir_acquisition *acquisition)
{
    WEIR_INVARIANT(!acquisition->is_timed || acquisition->waiter);
    if (acquisition->is_timed)
        timer_thread_forget(acquisition->set->w, acquisition->waiter);
    if ((acquisition->fd & acquisition->lost_fd) >= 0) { /* not both are -1 */
        if (acquisition->lost_fd >= 0)
            (void)acquisition->set->ops->watch_loss(acquisition->set, acquisition->record, -1);
        acquisition_close_fds(acquisition);
        if (acquisition->direct)
            acquisition_end_direct(acquisition);
    }
    acquisition_free(ctx, acquisition);
    thread_ctx_return(ctx);
}

/* Releases an acquisition that stands for others. */
WEIR_NOINLINE int acquisition_release_group(weir_acquisition *acquisition)
{
    int r = wait_group_end(acquisition);

    acquisition_finish(thread_ctx_borrow(acquisition->set), acquisition);
    return r;
}

int acquisition_release(weir_acquisition *acquisition)
{
    weir *w = acquisition->set->w;
    struct thread_ctx *ctx;
    int r = 0;

    if (instance_is_forked(w)) {
        acquisition_close_fds(acquisition);
        acquisition_drop_tag(acquisition);
        os_free(acquisition);
        return -ECHILD;
    }
    if (atomic_load_explicit(&acquisition->queue, memory_order_seq_cst))
        cq_forget_acquisition(acquisition);
    WEIR_INVARIANT(!atomic_load_explicit(&acquisition->queue, memory_order_relaxed));
    if (acquisition->set->ops->winner)
        return acquisition_release_group(acquisition);
    if (events_are_on(w))
        acquisition_tell_release(acquisition, acquisition_state(acquisition),
                                 acquisition->record && acquisition_is_unused(acquisition));
    ctx = thread_ctx_borrow(acquisition->set);
    if (acquisition->record)
        r = acquisition_end(ctx, acquisition);
    else if (!acquisition->canceled)
        counter_add(&thread_ctx_counters(ctx, acquisition->set->number)->released, 1);
    if (r == -EPROTO) { /* the acquisition still holds the instance */
        thread_ctx_return(ctx);
        acquisition_warn_missing(acquisition);
        ctx = thread_ctx_borrow(acquisition->set);
    }
    acquisition_finish(ctx, acquisition);
    return r;
}
