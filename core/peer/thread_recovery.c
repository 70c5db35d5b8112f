/* SPDX-License-Identifier: MIT */
/* Recovers dead threads by ordinary operations, each of which expects an exact record word. */
#include "peer/peer.h"
#include "shm/segment_definition.h"

#include "base/invariant.h"
#include "base/sched_point.h"
#include "keyed/keyed.h"
#include "set/detectable_cas.h"
#include "set/instance_base.h"
#include "set/set_ops.h"
#include "set/txn.h"
#include "set/waiter.h"
#include "shm/participant.h"
#include <errno.h>

struct thread_recovery {
    struct thread_ctx *ctx; /* of the recovering thread */
    const struct region *region;
    struct thread_head *dead_head;
    uint32_t dead_unit;
    uint64_t owner; /* as in the dead thread's records */
};

/* Returns the key set with this head, or the keyed set itself. */
static weir_set *recovery_find_key_set(weir_set *set, uint64_t head, struct key_set *storage)
{
    uint32_t number;

    if (!set->is_keyed || head > UINT32_MAX ||
        !segment_key_set_of_unit(set->participant->segment, (uint32_t)head, &number))
        return set;
    return &key_set_by_number(keyed_of(set), number, storage)->set;
}

/* Returns the set of the region with this head, or NULL: it cannot be caught up with for want of
 * memory. A segment has exactly one set, whatever the dead thread wrote. `storage`: as for
 * key_set_by_number(). */
static weir_set *recovery_find_set(const struct thread_recovery *recovery, uint64_t head,
                                   struct key_set *storage)
{
    const weir *w = recovery->ctx->w;

    for (uint32_t i = 0; i < atomic_load_explicit(&w->sets_n, memory_order_seq_cst); i++) {
        weir_set *set = instance_set(w, i);

        if (set->region != recovery->region)
            continue;
        if (set_is_shared(set) && set_catch_up(set, false) < 0 && !set_is_broken(set))
            return NULL;
        if (set_is_shared(set))
            return recovery_find_key_set(set_newest(set), head, storage);
        if (set->head_unit == head)
            return set;
    }
    return NULL;
}

/* Returns the set that a record is of; NULL: as for recovery_find_set(). */
static weir_set *recovery_record_set(const struct thread_recovery *recovery,
                                     const struct acq_record *r, struct key_set *storage)
{
    weir_set *set;

    if (!recovery->region->segment)
        return instance_set(recovery->ctx->w, record_set_number(r));
    set = recovery_find_set(recovery, 0, NULL);
    return set ? key_set_of_record(set, r, storage) : NULL;
}

/* Returns the set once the thread context is prepared for it; NULL: out of memory. */
static weir_set *recovery_prepare_set(struct thread_ctx *ctx, weir_set *set)
{
    weir *w = ctx->w;

    pthread_mutex_lock(&w->lock);
    if (set && !thread_ctx_is_prepared(ctx, set->number) && thread_ctx_prepare(ctx, set) < 0)
        set = NULL;
    WEIR_INVARIANT(!set || thread_ctx_is_prepared(ctx, set->number));
    pthread_mutex_unlock(&w->lock);
    return set;
}

/* Iterates as region_next_record(). The instance's lock is not held while a record is processed. */
static uint32_t recovery_next_record(weir *w, const struct region *region, uint32_t record)
{
    if (region->segment)
        return region_next_record(region, record);
    pthread_mutex_lock(&w->lock);
    record = region_next_record(region, record);
    pthread_mutex_unlock(&w->lock);
    return record;
}

/* Releases a record if its word is still `word`. The amounts read may be those of a later use; then
 * the word differs. */
static void recovery_release_record(struct thread_ctx *ctx, weir_set *set, uint32_t record,
                                    uint64_t word)
{
    const struct acq_record *r = record_at(set->region, record);
    uint64_t amounts[WEIR_LIMITS_MAX] = {0};
    const struct release_args args = {
        .amounts = amounts, .used = amounts, .outcome = WEIR_OUTCOME_DROPPED};

    WEIR_INVARIANT(record_state(word) == RECORD_HELD);
    WEIR_INVARIANT(set->limits.n <= WEIR_LIMITS_MAX);
    for (uint32_t i = 0; i < set->limits.n; i++)
        amounts[i] = record_load(&r->amounts[i]);
    set->ops->release(ctx, set, record, word, false, &args);
}

/* Ends a record if it belongs to the dead thread. Each iteration, either this thread or another
 * recovering thread has changed its word. */
static int recovery_end_record(const struct thread_recovery *recovery, uint32_t record)
{
    struct thread_ctx *ctx = recovery->ctx;
    struct acq_record *r = record_at(recovery->region, record);
    struct key_set storage;
    uint64_t word;

    while (record_state(word = record_load(&r->word)) != RECORD_FREE &&
           record_load(&r->owner) == recovery->owner) {
        weir_set *set = recovery_prepare_set(ctx, recovery_record_set(recovery, r, &storage));

        if (!set)
            return -ENOMEM;
        if (set_is_broken(set))
            return -EUCLEAN; /* its records stay as they are */
        WEIR_INVARIANT(set->region == recovery->region);
        if (record_state(word) == RECORD_WAITING) {
            set_cancel_wait(ctx, set, record, word, RECORD_CANCELED);
        } else if (record_state(word) == RECORD_HELD) {
            recovery_release_record(ctx, set, record, word);
        } else {
            atomic_compare_exchange_strong_explicit(&r->word, &word,
                                                    record_next_word(word, RECORD_FREE),
                                                    memory_order_seq_cst, memory_order_seq_cst);
        }
        SCHED_POINT();
    }
    return 0;
}

/* Notifies a decided record or a blocked thread; schedules a recheck of any other waiter. */
static void recovery_notify(weir_set *set, uint32_t record, uint64_t word, uint64_t now_ns)
{
    enum wait_target_kind kind =
        wait_target_kind(record_wait_target(record_at(set->region, record)));

    if (record_state(word) == RECORD_WAITING && kind != WAIT_TARGET_FUTEX)
        notify_recheck_at(set, record, word, now_ns);
    else
        notify_waiter(set, record, word);
}

/* Repeats notifications of the set: the thread may have died between commit and notification. Of
 * those that still wait only the head can lack one. A spurious notification is harmless. */
static void recovery_repeat_notify(struct thread_ctx *ctx, weir_set *set)
{
    weir *w = ctx->w;
    struct txn txn;

    txn_begin(&txn, ctx, set);
    for (uint32_t at = 0; (at = recovery_next_record(w, set->region, at)) != 0;) {
        const struct acq_record *r = record_at(set->region, at);
        uint64_t word = record_load(&r->word);
        enum record_state state = record_state(word);

        if (state == RECORD_FREE || (!set_is_shared(set) && record_set_number(r) != set->number))
            continue;
        if (state != RECORD_WAITING || at == waitq_head(&txn.version))
            recovery_notify(set, at, word, txn.now_ns);
        SCHED_POINT();
    }
}

/* Completes the deferred writes and announcements that the dead thread left, at the head that it
 * worked on: perhaps that of an earlier definition. Returns as dcas_complete_all(). */
static int recovery_complete_writes(struct thread_ctx *ctx, weir_set *set, uint64_t head)
{
    uint32_t number;

    WEIR_INVARIANT(set->head_unit);
    if (set_is_shared(set) && !set->is_keyed && head <= UINT32_MAX &&
        segment_definition_of_unit(set->participant->segment, (uint32_t)head, &number))
        version_help(set->region, (uint32_t)head);
    version_help(set->region, set->head_unit);
    return set->is_keyed ? 0 : dcas_complete_all(ctx, set); /* a template changes no state */
}

/* Does what the dead thread may have owed its active set. */
static void recovery_grant_and_notify(struct thread_ctx *ctx, weir_set *set)
{
    set_grant_waiters(ctx, set);
    recovery_repeat_notify(ctx, set);
}

static int recovery_perform(const struct thread_recovery *recovery)
{
    struct thread_ctx *ctx = recovery->ctx;
    uint64_t intent = atomic_load_explicit(&recovery->dead_head->active_set, memory_order_acquire);
    struct key_set storage; /* until the end; end_record() has another */
    weir_set *set =
        intent ? recovery_prepare_set(ctx, recovery_find_set(recovery, intent, &storage)) : NULL;
    int r = 0;

    if (intent && !set)
        return -ENOMEM;
    /* First of all: only a complete version says what the dead thread holds and waits for. */
    if (intent)
        r = recovery_complete_writes(ctx, set, intent);
    if (r < 0)
        return r;
    /* With the dead thread's own context: from the first operation on another set on, the context
     * no longer says which one lacks a grant or a notification. */
    if (intent && thread_ctx_for_set(ctx, set->number)->unit == recovery->dead_unit)
        recovery_grant_and_notify(ctx, set);
    for (uint32_t at = 0; r == 0 && (at = recovery_next_record(ctx->w, recovery->region, at)) != 0;)
        r = recovery_end_record(recovery, at);
    /* A thread works on one set at a time, so only that one can lack a grant or a notification. */
    if (r == 0 && intent)
        recovery_grant_and_notify(ctx, set);
    return r;
}

int thread_recovery_run(struct thread_ctx *ctx, const struct region *region, uint32_t dead_unit,
                        uint64_t generation)
{
    struct thread_recovery recovery = {.ctx = ctx,
                                       .region = region,
                                       .dead_head = region_block(region, dead_unit),
                                       .dead_unit = dead_unit,
                                       .owner = (uint64_t)dead_unit << 32 | (uint32_t)generation};
    int r;

    WEIR_INVARIANT(dead_unit);
    if (atomic_load_explicit(&recovery.dead_head->generation, memory_order_seq_cst) != generation)
        return -EALREADY;
    SCHED_POINT();
    r = recovery_perform(&recovery);
    SCHED_POINT();
    if (r == 0 && !shm_cas_seq_cst(&recovery.dead_head->generation, generation, generation + 1))
        return -EALREADY;
    return r;
}
