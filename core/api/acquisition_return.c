/* SPDX-License-Identifier: MIT */
/*
 * Returns a part of an acquisition before its release. What is left stays in the record, or, where
 * units of a resource go back to a set that exchanges records, moves to another record: amounts do
 * not change together with the state of the set, words of records do (set_return_part()).
 */
#include "api/acquire.h"

#include "set/max_hold.h"
#include "set/set_ops.h"
#include "set/waiter.h"
#include "wait/cq.h"
#include "wait/hold_watch.h"
#include "wait/wait_timer.h"
#include <errno.h>

/* A part to return: `n` units of each limit in `matching`. */
struct part {
    weir_acquisition *acquisition;
    uint64_t matching; /* bit i: limit i */
    uint64_t n;
};

static bool part_has(const struct part *part, uint32_t i)
{
    return part->matching >> i & 1;
}

/* Returns how many units of limit i are there to return: of a resource all that are held, else what
 * was not used by the last update. */
static uint64_t part_most(const weir_acquisition *acquisition, uint32_t i)
{
    const weir_set *set = acquisition->set;
    uint64_t amount = acquisition->values[i], used = acquisition->values[set->limits.n + i];

    WEIR_INVARIANT(i < set->limits.n);
    if (!(acquisition->updated_limits >> i & 1))
        return amount;
    return used < amount ? amount - used : 0;
}

static int part_check(const struct part *part)
{
    const weir_set *set = part->acquisition->set;

    for (uint32_t i = 0; i < set->limits.n; i++)
        if (part_has(part, i) && part->n > part_most(part->acquisition, i))
            return -ERANGE;
    return 0;
}

/* Subtracts the part from what the handle says. Without an update what is left counts as used. */
static void part_subtract(const struct part *part)
{
    weir_acquisition *acquisition = part->acquisition;
    uint32_t n = acquisition->set->limits.n;

    for (uint32_t i = 0; i < n; i++) {
        if (!part_has(part, i))
            continue;
        WEIR_INVARIANT(acquisition->values[i] >= part->n);
        acquisition->values[i] -= part->n;
        if (!(acquisition->updated_limits >> i & 1))
            acquisition->values[n + i] = acquisition->values[i];
    }
}

/* Returns whether the record has to be exchanged: another thread may give back what it holds. */
static bool part_needs_exchange(const struct part *part)
{
    const weir_set *set = part->acquisition->set;

    for (uint32_t i = 0; i < set->limits.n; i++)
        if (part_has(part, i) && set->limits.items[i].type == WEIR_LIMIT_RESOURCE)
            return set_exchanges_records(set);
    return false;
}

/* Stores what is left in the acquisition's own record. Relaxed: nothing is decided by it. What has
 * no amount there may be in the place of another limit by now. */
static void part_store_rest(const struct part *part)
{
    const weir_acquisition *acquisition = part->acquisition;
    struct acq_record *r = set_record(acquisition->set, acquisition->record);

    for (uint32_t i = 0; i < acquisition->set->limits.n; i++)
        if (part_has(part, i) && record_load(&r->amounts[i]))
            record_store(&r->amounts[i], acquisition->values[i] - part->n);
}

/* Makes a FREE record that differs from the acquisition's in the part only. Returns 0 if there is
 * none left. */
static uint32_t part_new_rest(struct thread_ctx *ctx, const struct part *part)
{
    weir_set *set = part->acquisition->set;
    const struct acq_record *from = set_record(set, part->acquisition->record);
    struct acquire_op op = {.set = (weir_set *)(uintptr_t)set_definition(set), .ctx = ctx};
    uint32_t rest = record_pool_get(ctx, set);
    struct acq_record *to;

    if (!rest)
        return 0;
    to = set_record(set, rest);
    for (uint32_t i = 0; i < set->limits.n; i++)
        op.amounts[i] = part->acquisition->values[i] - (part_has(part, i) ? part->n : 0);
    acquire_op_fill_record(&op, rest);
    for (uint32_t i = set_amounts_n(set), words = set->ops->record_words + set->limits.has_shadow;
         i < set_amounts_n(set) + words; i++)
        record_store(&to->amounts[i], record_load(&from->amounts[i]));
    record_store(&to->granted_ns, record_load(&from->granted_ns));
    record_store(&to->enqueued_ns, record_load(&from->enqueued_ns));
    shm_store_release(&to->set, record_load(&from->set));
    if (!set_is_shared(set)) /* the definition that has granted it */
        record_store(&to->owner, record_load(&from->owner));
    return rest;
}

/* Takes the record from the wait timer, if that knows it. The decision counts as signaled. */
static void part_end_waiter(weir_acquisition *acquisition)
{
    weir *w = acquisition->set->w;

    if (acquisition->is_timed) {
        timer_thread_forget(w, acquisition->waiter);
        acquisition->is_timed = false;
        lock_take(&instance_wait(w)->timer.lock);
        acquisition_signal(acquisition);
        lock_release(&instance_wait(w)->timer.lock);
    }
    if (acquisition->waiter)
        waiter_free(acquisition->set, acquisition->waiter);
    acquisition->waiter = 0;
}

/* Gives the acquisition the record with the rest, and frees the other one. The rest is FREE if
 * the set is broken, or there was nothing to return to but the word of a subject; else it is HELD,
 * or was revoked at once. Returns 0, or -EOWNERDEAD if what the acquisition has was revoked. */
static int part_settle(struct thread_ctx *ctx, const struct part *part, uint32_t rest)
{
    weir_acquisition *acquisition = part->acquisition;
    weir_set *set = acquisition->set;
    uint32_t unused = rest;

    if (record_state(record_load(&set_record(set, rest)->word)) != RECORD_FREE) {
        part_end_waiter(acquisition);
        unused = acquisition->record;
        acquisition->record = rest;
        if (acquisition->lost_fd >= 0)
            hold_watch_move_loss(set, unused, rest);
        max_hold_move_notice(set_record(set, unused), set_record(set, rest));
        hold_watch_note_rest(set, rest);
    } else if ((set->is_keyed || set_is_key_set(set)) && !set_is_broken(set)) {
        part_store_rest(part);
    }
    record_pool_put(ctx, set, unused);
    return acquisition_state(acquisition) == RECORD_REVOKED ? -EOWNERDEAD : 0;
}

static int part_return(struct thread_ctx *ctx, const struct part *part)
{
    weir_acquisition *acquisition = part->acquisition;
    weir_set *set = acquisition->set;
    uint64_t amounts[WEIR_LIMITS_MAX], used[WEIR_LIMITS_MAX];
    const struct release_args args = {
        .amounts = amounts,
        .used = used,
        .outcome = WEIR_OUTCOME_IGNORED,
        .granted_ns = grant_time(record_load(&set_record(set, acquisition->record)->granted_ns))};
    bool exchanges = part_needs_exchange(part);
    uint32_t rest = exchanges ? part_new_rest(ctx, part) : 0;
    int r = 0;

    if (exchanges && !rest)
        return -ENOMEM;
    for (uint32_t i = 0; i < set->limits.n; i++) {
        amounts[i] = part_has(part, i) ? part->n : 0;
        used[i] = 0;
    }
    if (!rest)
        part_store_rest(part);
    set->ops->return_part(ctx, set, acquisition->record, rest, &args);
    if (rest)
        r = part_settle(ctx, part, rest);
    part_subtract(part);
    return set_is_broken(set) ? -EUCLEAN : r;
}

int acquisition_skip_key(weir_acquisition *acquisition, const char *key)
{
    if (acquisition->strict || acquisition->set->strict)
        return -ENOENT;
    request_warn(acquisition->set, key, "is unknown and was skipped");
    acquisition_mark_observed(acquisition);
    return 0;
}

int weir_return(weir_acquisition *acquisition, const char *key, uint64_t n)
{
    struct part part = {.acquisition = acquisition, .n = n};
    struct thread_ctx *ctx;
    int r = acquisition && key ? acquisition_check_held(acquisition) : -EINVAL;

    if (r < 0)
        return r;
    if (acquisition_granted(acquisition) != acquisition)
        return acquisition_note_use(acquisition,
                                    weir_return(acquisition_granted(acquisition), key, n));
    part.matching = request_limits_named(&acquisition->set->limits, key);
    if (!part.matching)
        return acquisition_skip_key(acquisition, key);
    r = part_check(&part);
    if (r < 0)
        return r;
    acquisition_mark_observed(acquisition);
    if (!n)
        return 0;
    WEIR_INVARIANT(acquisition->record);
    acquisition->fast_ctx = NULL; /* the fast path knows no other amounts than those requested */
    ctx = thread_ctx_borrow(acquisition->set);
    r = part_return(ctx, &part);
    thread_ctx_return(ctx);
    return r;
}
