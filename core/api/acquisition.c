/* SPDX-License-Identifier: MIT */
/* Acquisitions: results, descriptors, updates, cancellation and the slow path of release. */
#include "api/acquisition.h"
#include "api/set_object.h"
#include "base/compiler.h"
#include "limit/counters.h"
#include "set/waiter.h"

#include "api/instance.h"
#include "api/request.h"
#include "base/invariant.h"
#include "base/sched_point.h"
#include "os/os.h"
#include "set/set_ops.h"
#include "shm/participant.h"
#include "wait/cq.h"
#include <errno.h>
#include <sys/stat.h>

static struct acq_record *acquisition_record(const weir_acquisition *acquisition)
{
    return record_at(acquisition->set->region, acquisition->record);
}

static weir_acquisition *acquisition_alloc(struct thread_ctx *ctx, uint32_t limits_n)
{
    weir_acquisition *acquisition = ctx->cache;
    uint32_t n = limits_n < ACQUISITION_LIMITS ? ACQUISITION_LIMITS : limits_n;

    if (limits_n > ACQUISITION_LIMITS || !acquisition)
        return os_alloc(1, sizeof(*acquisition) + 2 * n * sizeof(uint64_t));
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
    *acquisition = (weir_acquisition){.set = set, .fd = -1};
    thread_ctx_hold_instance(ctx);
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
            record_load(&r->amounts[i]);
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

weir_acquisition *acquisition_next(const weir_acquisition *acquisition)
{
    return acquisition->next;
}

void acquisition_free(struct thread_ctx *ctx, weir_acquisition *acquisition)
{
    weir_set *set = acquisition->set;

    WEIR_INVARIANT(ctx->w == set->w);
    WEIR_INVARIANT(!acquisition->record || set_is_shared(set) ||
                   acquisition_record_is(acquisition, RECORD_FREE));
    if (acquisition->waiter)
        waiter_free(set, acquisition->waiter);
    if (acquisition->record)
        record_pool_put(ctx, set, acquisition->record);
    if (set->limits.n <= ACQUISITION_LIMITS && ctx->cache_n < ACQUISITION_CACHE_MAX) {
        acquisition->set = NULL;
        acquisition->next = ctx->cache;
        ctx->cache = acquisition;
        ctx->cache_n++;
    } else {
        os_free(acquisition);
    }
    thread_ctx_drop_instance(ctx);
}

static enum record_state acquisition_state(const weir_acquisition *acquisition)
{
    if (!acquisition->record)
        return acquisition->canceled ? RECORD_CANCELED : RECORD_HELD;
    return record_state(set_record_word(acquisition->set, acquisition->record));
}

static void acquisition_wake_blocked(const weir_acquisition *acquisition)
{
    const uint32_t *futex = record_futex(acquisition_record(acquisition));

    WEIR_INVARIANT(acquisition->record);
    if (set_is_shared(acquisition->set))
        os_futex_wake_shared(futex, 1);
    else
        os_futex_wake(futex, 1);
}

int acquisition_signal(weir_acquisition *acquisition)
{
    int r;

    WEIR_INVARIANT(timer_is_locked(&instance_wait(acquisition->set->w)->timer));
    if (acquisition->has_blocked_thread)
        acquisition_wake_blocked(acquisition);
    if (acquisition->fd < 0 || acquisition->signaled)
        return 0;
    if (acquisition->grants_only && acquisition_state(acquisition) != RECORD_HELD)
        return 0;
    /* Adding 1 to an eventfd fails only if the program closed the descriptor. */
    r = os_eventfd_signal(acquisition->fd);
    acquisition->signaled = r == 0;
    return r;
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
    };

    WEIR_INVARIANT(state <= RECORD_BROKEN);
    return results[state];
}

int weir_acquisition_result(weir_acquisition *acquisition)
{
    enum record_state state;
    bool notified;

    if (instance_is_forked(acquisition->set->w))
        return -ECHILD;
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
    return acquisition_result_of(state);
}

/* Returns the descriptor, made if there is none yet. The caller holds the wait timer's lock. */
static int acquisition_get_fd(weir_acquisition *acquisition, bool grants_only)
{
    int fd = acquisition->fd;

    WEIR_INVARIANT(timer_is_locked(&instance_wait(acquisition->set->w)->timer));
    if (fd >= 0)
        return acquisition->grants_only == grants_only ? fd : -EINVAL;
    fd = os_eventfd();
    if (fd >= 0) {
        acquisition->fd = fd;
        acquisition->grants_only = grants_only;
    }
    return fd;
}

/* Returns 0 if the acquisition may have a descriptor, else -ECHILD or -EBUSY. */
static int acquisition_check_fd(weir_acquisition *acquisition)
{
    if (instance_is_forked(acquisition->set->w))
        return -ECHILD;
    return cq_has_acquisition(acquisition) ? -EBUSY : 0;
}

/* Signals the new descriptor if the acquisition is already decided. Later decisions signal it
 * themselves. The caller holds the wait timer's lock. */
static int acquisition_signal_decided(weir_acquisition *acquisition)
{
    acquisition->fast_ctx = NULL; /* the fast path would not close the descriptor */
    return acquisition_state(acquisition) != RECORD_WAITING ? acquisition_signal(acquisition) : 0;
}

static int acquisition_open_fd(weir_acquisition *acquisition, bool grants_only)
{
    weir *w = acquisition->set->w;
    int fd, r = acquisition_check_fd(acquisition);

    if (r < 0)
        return r;
    pthread_mutex_lock(&instance_wait(w)->timer.lock);
    fd = acquisition_get_fd(acquisition, grants_only);
    if (fd >= 0)
        r = acquisition_signal_decided(acquisition);
    pthread_mutex_unlock(&instance_wait(w)->timer.lock);
    return r < 0 ? r : fd;
}

int weir_acquisition_fd(weir_acquisition *acquisition)
{
    return acquisition_open_fd(acquisition, false);
}

int weir_acquisition_grant_fd(weir_acquisition *acquisition)
{
    return acquisition_open_fd(acquisition, true);
}

/* Checks that `fd` is an eventfd. An anonymous inode has no file type bits; a write of 0 to it is
 * harmless, fails if it is no eventfd, and wakes no reader. */
static int acquisition_check_eventfd(int fd)
{
    struct stat found;
    int r = os_fstat(fd, &found);

    if (r < 0)
        return r;
    if (found.st_mode & S_IFMT)
        return -EINVAL;
    return os_eventfd_probe(fd);
}

/* Attaches the program's eventfd. The caller holds the wait timer's lock. */
static int acquisition_attach_fd(weir_acquisition *acquisition, int event_fd)
{
    int r;

    WEIR_INVARIANT(timer_is_locked(&instance_wait(acquisition->set->w)->timer));
    if (acquisition->fd >= 0)
        return -EINVAL;
    acquisition->fd = event_fd;
    acquisition->attached = true;
    r = acquisition_signal_decided(acquisition);
    if (r < 0) {
        acquisition->fd = -1;
        acquisition->attached = false;
    }
    return r;
}

int weir_acquisition_attach(weir_acquisition *acquisition, int event_fd)
{
    weir *w = acquisition->set->w;
    int r = acquisition_check_fd(acquisition);

    if (r == 0)
        r = acquisition_check_eventfd(event_fd);
    if (r < 0)
        return r;
    pthread_mutex_lock(&instance_wait(w)->timer.lock);
    r = acquisition_attach_fd(acquisition, event_fd);
    pthread_mutex_unlock(&instance_wait(w)->timer.lock);
    return r;
}

const char *weir_acquisition_set(const weir_acquisition *acquisition)
{
    return set_name(acquisition->set);
}

const char *weir_acquisition_config(const weir_acquisition *acquisition, const char *name)
{
    return weir_set_config(acquisition->set, name);
}

/* Returns the limits with this key, by the memory of the fast path if it has granted them. */
static uint64_t acquisition_limits_of(const weir_acquisition *acquisition, const char *key)
{
    const struct limits *limits = &acquisition->set->limits;
    uint64_t matching = 0; /* bit i: limit i */

    if (acquisition->fast_ctx && acquisition_names_key(acquisition, key))
        return acquisition->named_limits;
    for (uint32_t i = 0; i < limits->n; i++)
        if (request_key_equal(limits->items[i].key, key))
            matching |= UINT64_C(1) << i;
    return matching;
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

/* Updates no limit: the set has none with this key. */
WEIR_NOINLINE int acquisition_skip_update(weir_acquisition *acquisition, const char *key)
{
    if (acquisition->strict || acquisition->set->strict)
        return -ENOENT;
    request_warn(acquisition->set, key, "is unknown and was skipped");
    acquisition_mark_observed(acquisition);
    return 0;
}

/* Updates an acquisition of any set. A function of its own, so that the common case needs few
 * registers. */
WEIR_NOINLINE int acquisition_update(weir_acquisition *acquisition, const char *key, uint64_t used)
{
    uint64_t matching;

    /* `fast_ctx` implies HELD. */
    if (!key || (!acquisition->fast_ctx && acquisition_state(acquisition) != RECORD_HELD))
        return -EINVAL;
    matching = acquisition_limits_of(acquisition, key);
    if (!matching)
        return acquisition_skip_update(acquisition, key);
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
    const weir_set *set = acquisition->set;
    int r;

    if (instance_is_forked(set->w))
        return -ECHILD;
    if (set_is_broken(set))
        return -EUCLEAN;
    if (!acquisition->fast_ctx || !key || set->limits.n > 1 ||
        !request_key_equal(set->limits.items->key, key))
        return acquisition_update(acquisition, key, used);
    r = acquisition_check_update(acquisition, 0, used);
    if (r == 0)
        acquisition_set_used(acquisition, 0, used);
    return r;
}

/* What a release has to do. */
struct release_effect {
    bool changes_set;    /* false: freeing the record suffices */
    bool update_missing; /* a required update is missing */
};

static struct release_effect acquisition_release_effect(weir_acquisition *acquisition, bool unused)
{
    struct release_effect effect = {false, false};

    for (uint32_t i = 0; i < acquisition->set->limits.n; i++) {
        uint64_t amount = acquisition_amounts(acquisition)[i];

        if (!amount)
            continue;
        effect.update_missing |= acquisition_lacks_update(acquisition, i);
        effect.changes_set |= acquisition->set->limits.items[i].type == WEIR_LIMIT_RESOURCE ||
                              unused || acquisition_used(acquisition)[i] != amount;
    }
    effect.update_missing &= !unused;
    return effect;
}

static int acquisition_release_grant(struct thread_ctx *ctx, weir_acquisition *acquisition,
                                     bool unused)
{
    struct counters *counters = thread_ctx_counters(ctx, acquisition->set->number);
    struct release_effect effect = acquisition_release_effect(acquisition, unused);

    WEIR_INVARIANT(acquisition->record);
    if (effect.changes_set) {
        const struct release_args args = {.amounts = acquisition_amounts(acquisition),
                                          .used = acquisition_used(acquisition),
                                          .return_all = unused};

        acquisition->set->ops->release(ctx, acquisition->set, acquisition->record,
                                       record_load(&acquisition_record(acquisition)->word), true,
                                       &args);
    } else {
        set_free_record(acquisition->set, acquisition->record);
        counter_add(&counters->released, 1);
        counter_add(&counters->canceled, unused);
    }
    WEIR_INVARIANT(set_is_shared(acquisition->set) ||
                   acquisition_record_is(acquisition, RECORD_FREE));
    if (effect.update_missing)
        counter_add(&counters->missing_update, 1);
    return effect.update_missing ? -EPROTO : 0;
}

bool acquisition_undo(struct thread_ctx *ctx, weir_set *set, uint32_t record, uint64_t word)
{
    const struct acq_record *r = record_at(set->region, record);
    uint64_t amounts[WEIR_LIMITS_MAX];
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

    pthread_mutex_lock(&instance_wait(w)->timer.lock);
    signaled = acquisition->signaled;
    pthread_mutex_unlock(&instance_wait(w)->timer.lock);
    return signaled;
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
    return 0;
}

/* Signals the descriptor of a canceled acquisition. */
static void acquisition_signal_locked(weir_acquisition *acquisition)
{
    weir *w = acquisition->set->w;

    pthread_mutex_lock(&instance_wait(w)->timer.lock);
    acquisition_signal(acquisition);
    pthread_mutex_unlock(&instance_wait(w)->timer.lock);
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
    weir_set *set = acquisition->set;
    weir_queue *queue = atomic_load_explicit(&acquisition->queue, memory_order_seq_cst);
    struct thread_ctx *ctx;
    int r = 0;

    if (instance_is_forked(set->w))
        return -ECHILD;
    if (queue)
        return cq_cancel_acquisition(queue, acquisition);
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
    return r;
}

/* Ends an acquisition in any state. Its record is FREE afterwards. */
static int acquisition_end(struct thread_ctx *ctx, weir_acquisition *acquisition)
{
    int r = 0;

    WEIR_INVARIANT(acquisition->record);
    acquisition_cancel_wait(ctx, acquisition);
    if (acquisition_state(acquisition) == RECORD_HELD) {
        bool unused = !atomic_load_explicit(&acquisition->observed, memory_order_seq_cst) &&
                      !acquisition->reserved && !acquisition_was_signaled(acquisition);

        r = acquisition_release_grant(ctx, acquisition, unused);
    } else if (acquisition_state(acquisition) != RECORD_FREE) {
        set_free_record(acquisition->set, acquisition->record);
    }
    return r;
}

static void acquisition_close_fd(const weir_acquisition *acquisition)
{
    if (acquisition->fd >= 0 && !acquisition->attached)
        os_close(acquisition->fd);
}

/* Removes the acquisition from the wait timer and closes its descriptor. */
static void acquisition_end_notify(weir_acquisition *acquisition)
{
    weir *w = acquisition->set->w;

    WEIR_INVARIANT(!acquisition->is_timed || acquisition->waiter);
    if (acquisition->is_timed)
        timer_thread_forget(w, acquisition->waiter);
    acquisition_close_fd(acquisition);
}

static int acquisition_release_in_child(weir_acquisition *acquisition)
{
    acquisition_close_fd(acquisition);
    os_free(acquisition);
    return -ECHILD;
}

int acquisition_release(weir_acquisition *acquisition)
{
    struct thread_ctx *ctx;
    int r = 0;

    if (instance_is_forked(acquisition->set->w))
        return acquisition_release_in_child(acquisition);
    cq_forget_acquisition(acquisition);
    WEIR_INVARIANT(!atomic_load_explicit(&acquisition->queue, memory_order_relaxed));
    ctx = thread_ctx_borrow(acquisition->set);
    if (acquisition->record)
        r = acquisition_end(ctx, acquisition);
    else if (!acquisition->canceled)
        counter_add(&thread_ctx_counters(ctx, acquisition->set->number)->released, 1);
    acquisition_end_notify(acquisition);
    acquisition_free(ctx, acquisition);
    thread_ctx_return(ctx);
    return r;
}
