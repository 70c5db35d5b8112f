/* SPDX-License-Identifier: MIT */
/* Per-subject sets: a template set without waiters, and the key sets of keyed/. */
#include "api/set_object.h"

#include "base/long_look.h"
#include "keyed/keyed.h"
#include "peer/peer.h"
#include "set/instance_base.h"
#include "set/set_ops.h"
#include "set/try_now.h"
#include "shm/participant.h"
#include "wait/hold_watch.h"

/* Makes the storage. Its size depends on the number of keys, which keyed_open() finds in it. */
static int set_keyed_open(weir_set *set, const struct set_plan *plan, struct weir_error *reterr)
{
    int r = keyed_new(set, plan, reterr);

    if (r == 0)
        r = set_storage_make(
            set,
            &(struct set_storage_plan){.plan = plan,
                                       .keys_max = keyed_of(set)->capacity,
                                       .key_sets_max = keyed_of(set)->key_sets_max,
                                       .block_class_min = keyed_block_class(keyed_of(set))},
            reterr);
    return r == 0 ? keyed_open(set, reterr) : r;
}

static void set_keyed_close(weir_set *set)
{
    if (set->is_keyed)
        keyed_free(keyed_of(set));
    if (set->has_joined)
        participant_close(set->participant);
}

/* Cancels a wait in the key set that the record is of. */
static bool set_keyed_cancel_wait(struct thread_ctx *ctx, weir_set *set, uint32_t record,
                                  uint64_t expected, enum record_state state)
{
    struct key_set storage;

    if (!set_is_key_set(set))
        set = key_set_of_record(set, set_record(set, record), &storage);
    return set_cancel_wait(ctx, set, record, expected, state);
}

/* A process knows each key set that it waits in. Most have no waiters, which one word says; a
 * waiter that left without being notified finds that out by its own check. */
static uint64_t set_keyed_check_stalls(struct thread_ctx *ctx, weir_set *set)
{
    struct keyed *keyed = keyed_of(set);
    uint64_t next_ns = WEIR_FOREVER;

    for (uint32_t i = 0; i < key_sets_n(keyed); i++) {
        struct key_set *key_set = key_set_known(keyed, i);
        uint64_t at_ns = WEIR_FOREVER;

        if (key_set && try_now_has_queue(&key_set->set))
            at_ns = stall_check_queue(ctx, &key_set->set);
        next_ns = at_ns < next_ns ? at_ns : next_ns;
    }
    return next_ns;
}

/* Key sets of an earlier definition may still have waiters, if memory was short. Those of a later
 * one go on after a fault of this one. */
static void set_keyed_shutdown(struct thread_ctx *ctx, weir_set *set)
{
    atomic_thread_fence(memory_order_seq_cst); /* a key set made later sees INSTANCE_CLOSED */
    for (uint32_t i = 0; !set_is_shared(set) && i < key_sets_n(keyed_of(set)); i++) {
        struct key_set *key_set = key_set_known(keyed_of(set), i);
        struct thread_ctx *own;

        if (key_set->keyed->definition > keyed_of(set)->definition)
            continue;
        own = moved_borrow_ctx(ctx, &key_set->set);
        set_shutdown(own, &key_set->set);
        moved_return_ctx(ctx, own);
    }
    set_shutdown(ctx, set);
}

/* The first queue is the template's, which is empty. */
static bool set_keyed_view_queue(struct thread_ctx *ctx, weir_set *set, uint32_t i,
                                 struct set_view *ret)
{
    struct keyed *keyed = keyed_of(set);
    struct key_set storage, *key_set;

    if (i == 0)
        return set_plain_view_queue(ctx, set, i, ret);
    if (i > key_sets_n(keyed))
        return false;
    key_set = key_set_known(keyed, i - 1);
    if (!key_set || key_set->keyed == keyed || try_now_has_queue(&key_set->set))
        key_set = key_set_by_number(keyed, i - 1, &storage);
    else
        key_set = NULL; /* of an earlier definition; it has no waiters */
    *ret = (struct set_view){0};
    if (key_set)
        set_snapshot(ctx, &key_set->set, ret);
    return true;
}

/* Sums over all keys, as each has a state of its own. */
static int set_keyed_snapshot(struct thread_ctx *ctx, weir_set *set, struct weir_set_stats *ret,
                              struct weir_limit_stats *limits, uint32_t n)
{
    int r = set_plain_snapshot(ctx, set, ret, limits, n);
    uint64_t held[WEIR_LIMITS_MAX] = {0};
    struct set_view view;

    for (uint32_t i = 0; r == 0 && long_look_goes_on() && set_keyed_view_queue(ctx, set, i, &view);
         i++)
        ret->waiting += view.length;
    if (r < 0 || !set->limits.has_resources)
        return r;
    set_holders_add_amounts(set, held);
    for (uint32_t i = 0; i < n; i++)
        if (set->limits.items[i].type == WEIR_LIMIT_RESOURCE)
            limits[i].held = held[i];
    return 0;
}

const struct set_ops keyed_set_ops = {
    .size = sizeof(struct keyed_set),
    .state_words = KEY_SET_WORDS,
    .record_words = KEYED_RECORD_WORDS,
    .open = set_keyed_open,
    .close = set_keyed_close,
    .identify = keyed_hash,
    .is_of_subject = keyed_is_of_subject,
    .fill_record = keyed_fill_record,
    .acquire = keyed_acquire,
    .release = keyed_release,
    .return_part = keyed_return_part,
    .cancel_wait = set_keyed_cancel_wait,
    .watch_loss = hold_watch_loss,
    .grant_waiters = set_grant_waiters,
    .poll_head = set_poll_head,
    .check_stalls = set_keyed_check_stalls,
    .shut_down = set_keyed_shutdown,
    .forecast = keyed_forecast,
    .snapshot = set_keyed_snapshot,
    .observe = set_plain_observe, /* of the template: a new subject */
    .remaining = keyed_remaining,
    .view_queue = set_keyed_view_queue,
};
