/* SPDX-License-Identifier: MIT */
/* Acquisitions: making and freeing, results and updates. */
#include "api/acquisition.h"
#include "api/request_events.h"

#include "base/compiler.h"
#include "os/os.h"
#include "set/set_ops.h"
#include "set/waiter.h"
#include "shm/participant.h"
#include "wait/cq.h"
#include <errno.h>

static weir_acquisition *acquisition_alloc(struct thread_ctx *ctx, uint32_t limits_n)
{
    weir_acquisition *acquisition = ctx->cache;
    uint32_t n = limits_n < ACQUISITION_LIMITS ? ACQUISITION_LIMITS : limits_n;

    if (limits_n > ACQUISITION_LIMITS || !acquisition) {
        acquisition = os_alloc(1, sizeof(*acquisition) + 2 * n * sizeof(uint64_t));
        if (acquisition)
            thread_ctx_hold_instance(ctx);
        return acquisition;
    }
    WEIR_INVARIANT(ctx->cache_n > 0);
    ctx->cache = acquisition->next;
    ctx->cache_n--;
    WEIR_INVARIANT(!acquisition->set || acquisition->record);
    if (acquisition->set) /* a cached record of another set: return it to the pool */
        record_pool_put(ctx, acquisition->set, acquisition->record);
    return acquisition;
}

static inline weir_acquisition *acquisition_new_empty(struct thread_ctx *ctx, weir_set *set)
{
    weir_acquisition *acquisition = acquisition_alloc(ctx, set->limits.n);

    WEIR_INVARIANT(ctx->w == set->w);
    if (!acquisition)
        return NULL;
    *acquisition = (weir_acquisition){.set = set, .fd = -1, .lost_fd = -1};
    return acquisition;
}

weir_acquisition *acquisition_from_record(struct thread_ctx *ctx, weir_set *set, uint32_t record,
                                          uint32_t waiter)
{
    const struct acq_record *r = record_at(set->region, record);
    weir_acquisition *acquisition = acquisition_new_empty(ctx, set);

    WEIR_INVARIANT(record && waiter);
    if (!acquisition)
        return NULL;
    acquisition->record = record;
    acquisition->waiter = waiter;
    for (uint32_t i = 0; i < set->limits.n; i++)
        acquisition_amounts(acquisition)[i] = acquisition_used(acquisition)[i] =
            limit_is_retired(&set->limits.items[i]) ? 0 : record_load(&r->amounts[i]);
    return acquisition;
}

weir_acquisition *acquisition_new(struct thread_ctx *ctx, weir_set *set, const uint64_t *amounts)
{
    uint32_t n = set->limits.n;
    uint64_t any = 0;
    weir_acquisition *acquisition = acquisition_new_empty(ctx, set);

    WEIR_INVARIANT(n <= WEIR_LIMITS_MAX);
    if (!acquisition)
        return NULL;
    for (uint32_t i = 0; i < n; i++) {
        acquisition->values[i] = acquisition->values[n + i] = amounts[i];
        any |= amounts[i];
    }
    if (!any)
        return acquisition;
    acquisition->record = record_pool_get(ctx, set);
    if (!acquisition->record) {
        acquisition_free(ctx, acquisition);
        return NULL;
    }
    return acquisition;
}

/* The spare context and those of a closed instance keep none: their uses may nest, and the inner
 * one ends before the outer one gives its references back. */
static bool acquisition_has_cache(const struct thread_ctx *ctx, const weir_set *set)
{
    return set->limits.n <= ACQUISITION_LIMITS && ctx->cache_n < ACQUISITION_CACHE_MAX &&
           !thread_ctx_ends_with_use(ctx);
}

void acquisition_free(struct thread_ctx *ctx, weir_acquisition *acquisition)
{
    weir_set *set = acquisition->set;

    WEIR_INVARIANT(ctx->w == set->w);
    WEIR_INVARIANT(!acquisition->record || set_is_shared(set) ||
                   acquisition_record_is(acquisition, RECORD_FREE));
    acquisition_drop_tag(acquisition);
    if (acquisition->waiter)
        waiter_free(set, acquisition->waiter);
    if (acquisition->record)
        record_pool_put(ctx, set, acquisition->record);
    if (acquisition_has_cache(ctx, set)) {
        acquisition->set = NULL;
        acquisition->next = ctx->cache;
        ctx->cache = acquisition;
        ctx->cache_n++;
    } else {
        os_free(acquisition);
        thread_ctx_drop_instance(ctx);
    }
}

void acquisition_publish_within(weir_acquisition *acquisition)
{
    struct acq_record *r;

    if (!acquisition->within || !acquisition->record)
        return;
    WEIR_INVARIANT(acquisition->record != acquisition->within);
    r = set_record(acquisition->set, acquisition->record);
    if (record_held_within(r, acquisition->record) != acquisition->within)
        record_set_within(r, acquisition->record, acquisition->within);
}

enum record_state acquisition_state(const weir_acquisition *acquisition)
{
    if (!acquisition->record)
        return acquisition->canceled ? RECORD_CANCELED : RECORD_HELD;
    return set_used_record_state(acquisition->set, acquisition->record);
}

int acquisition_result_of(enum record_state state)
{
    static const int results[] = {
        [RECORD_FREE] = -ECANCELED,
        [RECORD_WAITING] = -EINPROGRESS,
        [RECORD_HELD] = 0,
        [RECORD_TIMED_OUT] = -ETIMEDOUT,
        [RECORD_REFUSED] = -EAGAIN,
        [RECORD_CANCELED] = -ECANCELED,
        [RECORD_SHUT_DOWN] = -ESHUTDOWN,
        [RECORD_QUEUE_FULL] = -ENOBUFS,
        [RECORD_BROKEN] = -EUCLEAN,
        [RECORD_UNREACHABLE] = -EHOSTUNREACH,
        [RECORD_MISMATCH] = -EEXIST,
        [RECORD_DENIED] = -EACCES,
        [RECORD_IMPOSSIBLE] = -ERANGE,
        [RECORD_DAMAGED] = -EUCLEAN,
        [RECORD_REVOKED] = -EOWNERDEAD,
    };

    WEIR_INVARIANT(state <= RECORD_REVOKED);
    return results[state];
}

int acquisition_not_held(const weir_acquisition *acquisition)
{
    if (set_is_broken(acquisition->set))
        return -EUCLEAN;
    return acquisition_state(acquisition) == RECORD_REVOKED ? -EOWNERDEAD : -EINVAL;
}

bool acquisition_is_lost(const weir_acquisition *acquisition)
{
    const weir_set *set = acquisition->set;
    uint64_t fence;

    return set->ops->fence && acquisition->record &&
           set->ops->fence(set, acquisition->record, &fence) == -EOWNERDEAD;
}

weir_acquisition *acquisition_granted(const weir_acquisition *acquisition)
{
    const struct set_ops *ops = acquisition->set->ops;
    weir_acquisition *winner =
        ops->winner ? ops->winner(acquisition->set, acquisition->record) : NULL;

    return winner ? winner : (weir_acquisition *)(uintptr_t)acquisition;
}

int acquisition_note_use(weir_acquisition *acquisition, int r)
{
    if (r == 0)
        acquisition_mark_observed(acquisition);
    return r;
}

/* Returns the result of an acquisition that stands for another one, and is decided. */
static int acquisition_result_of_group(const weir_acquisition *acquisition, enum record_state state)
{
    wait_group_withdraw(acquisition->set->w);
    return state == RECORD_HELD ? weir_acquisition_result(acquisition_granted(acquisition))
                                : acquisition_result_of(state);
}

/* Returns the result of an acquisition, of which no event is told yet. */
WEIR_ALWAYS_INLINE int acquisition_read_result(weir_acquisition *acquisition)
{
    enum record_state state;
    bool notified;

    /* In this order: the decision and its notification may come between the two loads. */
    notified = atomic_load_explicit(&acquisition->notified, memory_order_acquire);
    SCHED_POINT();
    state = acquisition_state(acquisition);
    SCHED_POINT();
    if (state == RECORD_WAITING && notified && set_is_shared(acquisition->set)) {
        participant_mark_broken(acquisition->set->participant); /* another process wrote to it */
        state = RECORD_BROKEN;
    }
    /* A reservation is known as granted from the start, so reading it observes nothing. */
    if (state == RECORD_HELD && !acquisition->reserved)
        acquisition_mark_observed(acquisition);
    if (state != RECORD_WAITING && acquisition->set->ops->winner)
        return acquisition_result_of_group(acquisition, state);
    if (state == RECORD_HELD && acquisition_is_lost(acquisition))
        return -EOWNERDEAD;
    if (state == RECORD_HELD)
        acquisition_publish_within(acquisition);
    return acquisition_result_of(state);
}

int weir_acquisition_result(weir_acquisition *acquisition)
{
    int r;

    if (!acquisition)
        return -EINVAL;
    if (instance_is_forked(acquisition->set->w))
        return -ECHILD;
    if (acquisition->direct && !atomic_load_explicit(&acquisition->notified, memory_order_acquire))
        acquisition_look_direct(acquisition);
    r = acquisition_read_result(acquisition);
    if (acquisition->awaits_event && r != -EINPROGRESS)
        acquisition_tell_decision(acquisition, r, NULL);
    return r;
}

static int acquisition_check_update(weir_acquisition *acquisition, uint32_t i, uint64_t used)
{
    uint64_t amount = acquisition_amounts(acquisition)[i];
    enum weir_limit_type type = acquisition->set->limits.items[i].type;

    WEIR_INVARIANT(i < acquisition->set->limits.n);
    if (type == WEIR_LIMIT_RESOURCE || !amount)
        return -EINVAL;
    if (type == WEIR_LIMIT_CALL && (used > amount || (amount == 1 && used != 1)))
        return -ERANGE;
    return 0;
}

static void acquisition_set_used(weir_acquisition *acquisition, uint32_t i, uint64_t used)
{
    const struct limit *limit = &acquisition->set->limits.items[i];
    uint64_t amount = acquisition_amounts(acquisition)[i];

    WEIR_INVARIANT(limit->type != WEIR_LIMIT_RESOURCE);
    WEIR_INVARIANT(limit->type != WEIR_LIMIT_CALL || used <= amount);
    acquisition_used(acquisition)[i] = used;
    acquisition->updated_limits |= UINT64_C(1) << i;
    if (used != amount)
        acquisition->amounts_differ = true;
    if (used > amount)
        request_warn(acquisition->set, limit->key, "was used beyond the amount acquired");
}

/* Updates an acquisition of any set; `key` is not NULL. A function of its own, so that the common
 * case needs few registers. */
WEIR_NOINLINE int acquisition_update(weir_acquisition *acquisition, const char *key, uint64_t used)
{
    uint64_t matching = request_limits_named(&acquisition->set->limits, key);

    /* `fast_ctx` implies HELD, and that it stands for no other one. */
    if (!acquisition->fast_ctx && acquisition_granted(acquisition) != acquisition)
        return acquisition_note_use(
            acquisition, acquisition_update(acquisition_granted(acquisition), key, used));
    if (!acquisition->fast_ctx && acquisition_state(acquisition) != RECORD_HELD)
        return acquisition_not_held(acquisition);
    if (!matching)
        return acquisition_skip_key(acquisition, key);
    for (uint64_t left = matching; left; left &= left - 1) {
        int r = acquisition_check_update(acquisition, (uint32_t)__builtin_ctzll(left), used);

        if (r < 0)
            return r;
    }
    acquisition_mark_observed(acquisition);
    for (; matching; matching &= matching - 1)
        acquisition_set_used(acquisition, (uint32_t)__builtin_ctzll(matching), used);
    return 0;
}

int weir_update(weir_acquisition *acquisition, const char *key, uint64_t used)
{
    const weir_set *set;
    uint32_t named, i;
    int r;

    if (!acquisition || !key)
        return -EINVAL;
    set = acquisition->set;
    if (instance_is_forked(set->w))
        return -ECHILD;
    if (set_is_broken(set))
        return -EUCLEAN;
    named = set->limits.n == 1 ? 1 : acquisition->named_limits; /* as the fast path remembers */
    if (!acquisition->fast_ctx || !named || (named & (named - 1)))
        return acquisition_update(acquisition, key, used);
    i = (uint32_t)__builtin_ctz(named);
    if (!request_key_equal(set->limits.items[i].key, key))
        return acquisition_update(acquisition, key, used);
    r = acquisition_check_update(acquisition, i, used);
    if (r == 0)
        acquisition_set_used(acquisition, i, used);
    return r;
}

int acquisition_check_held(weir_acquisition *acquisition)
{
    if (instance_is_forked(acquisition->set->w))
        return -ECHILD;
    if (set_is_broken(acquisition->set))
        return -EUCLEAN;
    if (cq_has_acquisition(acquisition))
        return -EBUSY;
    return acquisition_state(acquisition) == RECORD_HELD ? 0 : acquisition_not_held(acquisition);
}

int weir_outcome(weir_acquisition *acquisition, uint32_t outcome, uint64_t latency_ns)
{
    int r = acquisition && outcome <= WEIR_OUTCOME_IGNORED ? acquisition_check_held(acquisition)
                                                           : -EINVAL;

    if (r < 0)
        return r;
    if (acquisition_granted(acquisition) != acquisition)
        return acquisition_note_use(
            acquisition, weir_outcome(acquisition_granted(acquisition), outcome, latency_ns));
    acquisition_mark_observed(acquisition);
    if (!acquisition->record)
        return 0; /* it holds nothing */
    acquisition->outcome = outcome & 3;
    acquisition->has_latency = latency_ns != 0;
    acquisition->latency_ns = latency_ns;
    return 0;
}
