/* SPDX-License-Identifier: MIT */
/* The operations of remote sets. */
#include "base/invariant.h"
#include "os/os.h"
#include "remote/remote_lease.h"
#include "set/instance_base.h"
#include "set/set_ops.h"
#include "set/waiter.h"
#include <errno.h>

/* How long a thread reads the answers of an engine in one go. */
#define REMOTE_WAIT_NS UINT64_C(1000000000)
/* How long a blocked waiter reads them before it sleeps: it learns that it is queued within that.
 */
#define REMOTE_POLL_NS UINT64_C(1000000)
/* How long a snapshot may take. */
#define REMOTE_SNAPSHOT_NS UINT64_C(1000000000)

/* ---- asking ---- */

static int remote_identify(struct acquire_op *op)
{
    size_t size;

    return !remote_of(op->set)->subjects_max || request_subject(op->request, &size) ? 0 : -EINVAL;
}

static void remote_fill_record(const struct acquire_op *op, struct acq_record *r)
{
    for (int i = 0; i < REMOTE_WORDS; i++)
        record_store(&r->amounts[op->set->limits.n + i], 0);
}

/* Returns the limit that can never grant its amount, or NULL. */
static const struct limit *remote_too_small(const struct acquire_op *op)
{
    const struct limits *limits = &op->set->limits;
    const struct remote_lease *leases = remote_of(op->set)->leases;

    for (uint32_t i = 0; i < limits->n; i++)
        if (op->amounts[i] > (leases ? leases[i].capacity : limits->items[i].capacity))
            return &limits->items[i];
    return NULL;
}

/* Returns whether a request goes on waiting while the engine is away. */
static bool remote_is_patient(const struct remote_set *remote, uint32_t mode)
{
    return mode == WEIR_BACKEND_WAIT &&
           (remote->on_failure == ON_FAILURE_WAIT || remote->on_failure == ON_FAILURE_LOCAL_SHARE);
}

/* Returns how long a request waits at the engine: until the caller's deadline, so that a process
 * that is stopped then is not granted anything later. Stores whether that is by max_wait. An
 * injected clock is not the engine's: then the wait has no end there. */
static uint64_t remote_wait_ns(const struct acquire_op *op, uint64_t max_wait_ns,
                               bool *ret_is_max_wait)
{
    uint64_t timeout_ns = request_timeout(op->set, op->request);

    *ret_is_max_wait = max_wait_ns < timeout_ns;
    if (op->set->w->clock.injected.now_ns)
        return WEIR_FOREVER;
    return *ret_is_max_wait ? max_wait_ns : timeout_ns;
}

/* Hands the request to the backend; the record waits then, or has ended since. Returns 0, or a
 * negative errno and the record is FREE. */
static int remote_ask(struct acquire_op *op, uint32_t record, uint32_t mode, uint64_t max_wait_ns)
{
    struct remote_set *remote = remote_of(op->set);
    struct acq_record *r = set_record(op->set, record);
    uint64_t word = record_next_word(record_load(&r->word), RECORD_WAITING);
    size_t subject_size = 0;
    const void *subject = remote->subjects_max ? request_subject(op->request, &subject_size) : NULL;
    bool is_max_wait;
    uint64_t timeout_ns = remote_wait_ns(op, max_wait_ns, &is_max_wait);
    const struct weir_backend_ask ask = {
        .size = sizeof(ask),
        .token = remote_token(record, word),
        .mode = mode,
        .flags = remote_is_patient(remote, mode) ? WEIR_BACKEND_PATIENT : 0,
        .timeout_ns = timeout_ns,
        .max_wait_ns = max_wait_ns,
        .amounts = op->amounts,
        .subject = subject,
        .subject_size = subject_size};
    int code = remote_engine_start(remote->engine);

    if (code < 0)
        return code;
    record_store(&r->enqueued_ns, mode == WEIR_BACKEND_WAIT ? op->decision.now_ns : WEIR_NEVER);
    record_store(remote_word(op->set, record, REMOTE_HOLD), is_max_wait);
    if (mode == WEIR_BACKEND_WAIT)
        atomic_fetch_add_explicit(&remote->waiting, 1, memory_order_seq_cst);
    shm_store_release(&r->word, word);
    code = remote->engine->backend->ask(remote->handle, &ask);
    remote_log_write(&remote->engine->log);
    if (code < 0 && !remote_end_wait(remote, record, word, RECORD_FREE))
        code = 0; /* another thread has ended it: the record says how */
    return code;
}

/* Waits until the request is decided, in a time that the backend bounds. */
static void remote_await(struct remote_set *remote, uint32_t record, uint64_t word)
{
    const struct acq_record *r = set_record(&remote->set, record);

    while (record_load(&r->word) == word)
        remote->engine->backend->wait(remote->handle, remote_token(record, word),
                                      os_now_ns() + REMOTE_WAIT_NS);
    remote_log_write(&remote->engine->log);
}

/* Returns the result of a request that was not granted. */
static int remote_refusal_of(enum record_state state)
{
    switch (state) {
    case RECORD_UNREACHABLE:
        return -EHOSTUNREACH;
    case RECORD_MISMATCH:
        return -EEXIST;
    case RECORD_DENIED:
        return -EACCES;
    case RECORD_DAMAGED:
        return -EUCLEAN;
    case RECORD_SHUT_DOWN:
        return -ESHUTDOWN;
    case RECORD_IMPOSSIBLE:
        return -ERANGE;
    default:
        return -EAGAIN;
    }
}

/* Makes a result of how the record ended, and counts. Leaves a granted record HELD and makes others
 * FREE. -ENOTCONN: another set is to decide, as the engine is away. */
static int remote_conclude(struct acquire_op *op, uint32_t record, enum wait_mode mode,
                           bool is_taken)
{
    weir_set *set = op->set;
    struct acq_record *r = set_record(set, record);
    enum record_state state = record_state(record_load(&r->word));
    uint64_t limit = record_load(remote_word(set, record, REMOTE_LOST));
    bool is_too_late = record_load(remote_word(set, record, REMOTE_HOLD)) != 0;
    int code;

    op->decision.now_ns = clock_now_ns(&set->w->clock);
    if (state == RECORD_HELD) {
        op->decision.forecast_ns = record_load(&r->granted_ns);
        record_store(&r->enqueued_ns, record_load(&r->granted_ns));
        set_count_grant(op->ctx, set, op->amounts, is_taken ? 0 : record);
        return 0;
    }
    op->decision.forecast_ns = record_load(remote_word(set, record, REMOTE_FENCE));
    op->decision.limiting = limit ? &set->limits.items[limit - 1] : NULL;
    code = remote_refusal_of(state);
    if (code == -EHOSTUNREACH && remote_of(set)->on_failure == ON_FAILURE_LOCAL_SHARE &&
        record_load(remote_word(set, record, REMOTE_HOLD)))
        code = -ENOTCONN;
    if (code == -ERANGE && op->decision.limiting)
        set_count_refusal(op->ctx, set, code, op->decision.limiting->key);
    if (code == -EAGAIN)
        set_count_not_now(op->ctx, set, code, is_too_late ? MODE_WAIT : mode,
                          op->decision.limiting);
    set_free_record(set, record);
    return code;
}

static int remote_ask_and_await(struct acquire_op *op, uint32_t record, enum wait_mode mode,
                                uint64_t max_wait_ns, bool is_taken)
{
    uint32_t asked = is_taken               ? WEIR_BACKEND_TAKE
                     : mode == MODE_RESERVE ? WEIR_BACKEND_RESERVE
                                            : WEIR_BACKEND_TRY;
    uint64_t word =
        record_next_word(record_load(&set_record(op->set, record)->word), RECORD_WAITING);
    int r = remote_ask(op, record, asked, max_wait_ns);

    if (r < 0)
        return r;
    remote_await(remote_of(op->set), record, word);
    return remote_conclude(op, record, mode, is_taken);
}

/* A take has a record only until it is decided. */
static int remote_take(struct acquire_op *op)
{
    weir_set *set = op->set;
    uint32_t record = record_pool_get(op->ctx, set);
    struct acq_record *r;
    int code;

    if (!record)
        return -ENOMEM;
    r = set_record(set, record);
    for (uint32_t i = 0; i < set->limits.n; i++)
        record_store(&r->amounts[i], op->amounts[i]);
    remote_fill_record(op, r);
    shm_store_release(&r->set, (uint64_t)set->id << 32 | op->ctx->thread);
    record_set_wait_target(r, WAIT_TARGET_FUTEX, 0, 0);
    code = remote_ask_and_await(op, record, MODE_TRY, WEIR_FOREVER, true);
    if (record_state(record_load(&r->word)) != RECORD_FREE)
        set_free_record(set, record);
    record_pool_put(op->ctx, set, record);
    return code;
}

/* Grants what was taken from batches: the engine knows of no hold. */
static void remote_grant_leased(struct acquire_op *op, uint32_t record, uint64_t place)
{
    struct acq_record *r = set_record(op->set, record);
    uint64_t now_ns;

    set_count_grant(op->ctx, op->set, op->amounts, record);
    if (!record)
        return;
    now_ns = clock_now_ns(&op->set->w->clock);
    op->decision = (struct decision){.now_ns = now_ns, .forecast_ns = now_ns};
    record_store(&r->granted_ns, now_ns);
    record_store(&r->enqueued_ns, now_ns);
    record_store(remote_word(op->set, record, REMOTE_FENCE), place);
    shm_store_release(&r->word, record_next_word(record_load(&r->word), RECORD_HELD));
}

/* Grants from batches, if the request is one that may. */
static bool remote_acquire_leased(struct acquire_op *op, uint32_t record, enum wait_mode mode)
{
    struct remote_set *remote = remote_of(op->set);
    uint64_t place = 0;

    /* After a probe the caller comes back. */
    if (!remote->leases || mode == MODE_RESERVE ||
        !remote_leases_take(remote, op->amounts, mode != MODE_PROBE, &place))
        return false;
    remote_grant_leased(op, record, place);
    return true;
}

static bool remote_cancel_wait(struct thread_ctx *ctx, weir_set *set, uint32_t record,
                               uint64_t expected, enum record_state state)
{
    struct remote_set *remote = remote_of(set);
    uint64_t word = remote_end_wait(remote, record, expected, state);

    if (!word)
        return false;
    set_count_cancel(ctx, set, state);
    remote->engine->backend->cancel(remote->handle, remote_token(record, word));
    return true;
}

/* Ends a wait that remote_shut_down() has not found. Either that finds the record WAITING, or this
 * finds that the instance is closed or the set removed: each stores, passes a seq_cst fence, and
 * loads. A record with another word than `word` may be another request's by now. Returns 1 or
 * -ESHUTDOWN. */
static int remote_recheck_closed(const struct acquire_op *op, uint32_t record, uint64_t word)
{
    atomic_thread_fence(memory_order_seq_cst);
    if (!instance_is_closed(op->set->w) && !set_is_removed(set_newest(op->set)))
        return 1;
    if (!remote_cancel_wait(op->ctx, op->set, record, word, RECORD_SHUT_DOWN))
        return 1;
    set_free_record(op->set, record);
    return -ESHUTDOWN;
}

static int remote_ask_engine(struct acquire_op *op, uint32_t record, enum wait_mode mode,
                             uint64_t max_wait_ns)
{
    uint64_t word;
    int r;

    if (!record)
        return remote_take(op);
    if (mode != MODE_WAIT)
        return remote_ask_and_await(op, record, mode, max_wait_ns, false);
    word = record_next_word(record_load(&set_record(op->set, record)->word), RECORD_WAITING);
    r = remote_ask(op, record, WEIR_BACKEND_WAIT, max_wait_ns);
    return r < 0 ? r : remote_recheck_closed(op, record, word);
}

static int remote_acquire(struct acquire_op *op, uint32_t record, enum wait_mode mode,
                          uint64_t max_wait_ns)
{
    const struct limit *too_small;
    int r;

    if (op->within)
        return -EOPNOTSUPP;
    if (set_is_faulty(op->set))
        return -EUCLEAN;
    if (mode == MODE_RESERVE && remote_algorithms_decide(remote_of(op->set), op->amounts))
        return -EOPNOTSUPP;
    if (remote_acquire_leased(op, record, mode))
        return 0;
    too_small = remote_too_small(op);
    op->decision = (struct decision){.now_ns = clock_now_ns(&op->set->w->clock),
                                     .forecast_ns = WEIR_NEVER,
                                     .limiting = too_small};
    if (too_small) {
        set_count_refusal(op->ctx, op->set, -ERANGE, too_small->key);
        return -ERANGE;
    }
    if (remote_has_share(remote_of(op->set)))
        return remote_share_acquire(op, record, mode, max_wait_ns);
    if (mode == MODE_PROBE) /* the engine is asked once, by what comes next */
        return -EAGAIN;
    r = remote_ask_engine(op, record, mode, max_wait_ns);
    return r == -ENOTCONN ? remote_share_acquire(op, record, mode, max_wait_ns) : r;
}

/* ---- afterwards ---- */

static bool remote_release(struct thread_ctx *ctx, weir_set *set, uint32_t record, uint64_t word,
                           bool is_owner, const struct release_args *args)
{
    static const uint64_t nothing[WEIR_LIMITS_MAX];
    struct remote_set *remote = remote_of(set);
    const struct weir_backend_release how = {.size = sizeof(how),
                                             .hold =
                                                 record_load(remote_word(set, record, REMOTE_HOLD)),
                                             .used = args->return_all ? nothing : args->used,
                                             .undo = args->return_all,
                                             .outcome = args->outcome,
                                             .latency_ns = args->latency_ns};
    uint64_t place = remote->leases ? record_load(remote_word(set, record, REMOTE_FENCE)) : 0;

    (void)is_owner;
    if (!shm_cas_seq_cst(&set_record(set, record)->word, word, record_next_word(word, RECORD_FREE)))
        return false;
    set_count_release(ctx, set, args);
    if (how.hold)
        remote->engine->backend->release(remote->handle, &how);
    else if (place)
        remote_leases_put(remote, args, place);
    return true;
}

static void remote_return_part(struct thread_ctx *ctx, weir_set *set, uint32_t record,
                               uint32_t rest, const struct release_args *args)
{
    struct remote_set *remote = remote_of(set);
    uint64_t hold = record_load(remote_word(set, record, REMOTE_HOLD)), left[WEIR_LIMITS_MAX];

    WEIR_INVARIANT(!rest);
    for (uint32_t i = 0; i < set->limits.n; i++)
        left[i] = record_load(&set_record(set, record)->amounts[i]);
    set_count_return(ctx, set, args);
    if (hold)
        remote->engine->backend->return_part(remote->handle, hold, left);
    else if (remote->leases)
        remote_leases_put(remote, args, record_load(remote_word(set, record, REMOTE_FENCE)));
}

/* A process that was stopped may come here before the backend's thread has seen that the session is
 * over. So the backend looks at the clock. */
static int remote_fence(const weir_set *set, uint32_t record, uint64_t *ret)
{
    const struct remote_set *remote = (const struct remote_set *)set;
    uint64_t hold = record_load(remote_word(set, record, REMOTE_HOLD));

    if (!hold)
        return -EOPNOTSUPP;
    if (record_load(remote_word(set, record, REMOTE_LOST)) ||
        !remote->engine->backend->is_held(remote->handle, hold))
        return -EOWNERDEAD;
    *ret = record_load(remote_word(set, record, REMOTE_FENCE));
    return 0;
}

static void remote_grant_waiters(struct thread_ctx *ctx, weir_set *set)
{
    (void)ctx, (void)set; /* the engine does */
}

/* Until the engine has said that the request is queued this thread reads the answers: mostly it
 * reads its own grant. */
static uint64_t remote_poll_head(struct thread_ctx *ctx, weir_set *set, uint32_t record)
{
    struct remote_set *remote = remote_of(set);
    const struct acq_record *r = set_record(set, record);
    uint64_t word = record_load(&r->word);

    (void)ctx;
    if (record_state(word) == RECORD_WAITING)
        remote->engine->backend->wait(remote->handle, remote_token(record, word),
                                      os_now_ns() + REMOTE_POLL_NS);
    return record_load(&r->word) == word ? WEIR_FOREVER : 0;
}

static void remote_shut_down(struct thread_ctx *ctx, weir_set *set)
{
    uint32_t record = 0;

    atomic_thread_fence(memory_order_seq_cst); /* see remote_recheck_closed() */
    while ((record = region_next_record(set->region, record)) != 0) {
        const struct acq_record *r = set_record(set, record);
        uint64_t word = record_load(&r->word);

        if (record_state(word) != RECORD_WAITING || record_set_number(r) != set->id)
            continue;
        if (!instance_is_closed(set->w) && !set_is_removed(set_newest(set)))
            return; /* it is back, and another thread may have begun to wait */
        if (remote_cancel_wait(ctx, set, record, word, RECORD_SHUT_DOWN))
            notify_waiter(set, record, record_next_word(word, RECORD_SHUT_DOWN));
    }
}

/* What the engine has said when it refused. It is not asked again for that. */
static void remote_forecast(struct acquire_op *op, uint32_t record, enum forecast_walk walk)
{
    weir_set *set = op->set;
    uint64_t limit, retry_ns;

    (void)walk;
    op->decision = (struct decision){.now_ns = clock_now_ns(&set->w->clock)};
    op->decision.forecast_ns = op->decision.now_ns;
    if (!record)
        return;
    limit = record_load(remote_word(set, record, REMOTE_LOST));
    retry_ns = record_load(remote_word(set, record, REMOTE_FENCE));
    op->decision.limiting = limit && limit <= set->limits.n ? &set->limits.items[limit - 1] : NULL;
    if (retry_ns)
        op->decision.forecast_ns = retry_ns;
}

/* Asks the engine for a snapshot, of a subject or of the whole set. Returns 0 or what
 * set_ops.snapshot returns. */
static int remote_ask_snapshot(struct remote_set *remote, const void *subject, size_t subject_size,
                               struct weir_backend_snapshot *ret)
{
    int r = remote_engine_start(remote->engine);

    if (r == 0)
        r = remote->engine->backend->snapshot(remote->handle, subject, subject_size,
                                              os_now_ns() + REMOTE_SNAPSHOT_NS, ret);
    remote_count_answer(remote->engine, r);
    if (r >= 0)
        return 0;
    return r == -ENOMEM || r == -EEXIST || r == -EACCES || r == -EUCLEAN ? r : -EHOSTUNREACH;
}

static int remote_remaining(struct acquire_op *op, struct weir_remaining *ret, uint32_t n)
{
    struct remote_set *remote = remote_of(op->set);
    struct weir_backend_limit_stats all[WEIR_LIMITS_MAX] = {{0}};
    struct weir_backend_limit_waits waits[WEIR_LIMITS_MAX];
    struct weir_backend_snapshot snapshot = {
        .size = sizeof(snapshot), .limits = all, .waits = waits};
    size_t subject_size = 0;
    const void *subject = remote->subjects_max ? request_subject(op->request, &subject_size) : NULL;
    int r;

    if (remote_has_share(remote))
        return remote_share_remaining(remote, ret, n);
    for (uint32_t i = 0; i < op->set->limits.n; i++)
        waits[i] = (struct weir_backend_limit_waits){WEIR_FOREVER, WEIR_FOREVER};
    r = remote_ask_snapshot(remote, subject, subject_size, &snapshot);
    for (uint32_t i = 0; r == 0 && i < n; i++) {
        bool is_whole;

        if (remote->leases)
            ret[i].capacity = remote->leases[i].capacity;
        is_whole = all[i].available >= ret[i].capacity;
        ret[i].available = all[i].available;
        ret[i].more_after_ns = is_whole ? 0 : waits[i].more_after_ns;
        ret[i].full_after_ns = is_whole ? 0 : waits[i].full_after_ns;
    }
    return r;
}

static void remote_own_stats(weir_set *set, struct weir_set_stats *ret,
                             struct weir_limit_stats *limits, uint32_t n)
{
    struct remote_set *remote = remote_of(set);

    ret->granted_alone = 0;
    ret->waiting = remote_share_waiting(remote);
    for (const struct remote_set *asked = remote; asked; asked = asked->before) {
        ret->granted_alone += atomic_load_explicit(&asked->granted_open, memory_order_relaxed);
        ret->waiting += atomic_load_explicit(&asked->waiting, memory_order_seq_cst);
    }
    for (uint32_t i = 0; i < n; i++)
        limits[i].leased = remote_leases_ready(remote, i);
}

static int remote_snapshot(struct thread_ctx *ctx, weir_set *set, struct weir_set_stats *ret,
                           struct weir_limit_stats *limits, uint32_t n)
{
    struct remote_set *remote = remote_of(set);
    struct weir_backend_limit_stats all[WEIR_LIMITS_MAX] = {{0}};
    struct weir_backend_snapshot snapshot = {.size = sizeof(snapshot), .limits = all};
    int r;

    (void)ctx;
    remote_own_stats(set, ret, limits, n);
    ret->waiting = 0;
    if (remote->subjects_max) /* each subject has its own */
        return 0;
    if (remote_has_share(remote))
        return remote_share_snapshot(remote, ret, limits, n);
    r = remote_ask_snapshot(remote, NULL, 0, &snapshot);
    if (r < 0)
        return r;
    ret->waiting = snapshot.waiting;
    ret->engine_held = snapshot.held;
    ret->engine_granted = snapshot.granted;
    for (uint32_t i = 0; i < n; i++) {
        limits[i].available = all[i].available;
        limits[i].held = all[i].held;
    }
    return 0;
}

static bool remote_view_queue(struct thread_ctx *ctx, weir_set *set, uint32_t i,
                              struct set_view *ret)
{
    (void)ctx, (void)set, (void)i, (void)ret;
    return false; /* the engine has it */
}

const struct set_ops remote_set_ops = {
    .size = sizeof(struct remote_set),
    .record_words = REMOTE_WORDS,
    .wants_releases = true,
    .open = remote_set_open,
    .close = remote_set_close,
    .identify = remote_identify,
    .fill_record = remote_fill_record,
    .acquire = remote_acquire,
    .release = remote_release,
    .return_part = remote_return_part,
    .cancel_wait = remote_cancel_wait,
    .fence = remote_fence,
    .watch_loss = remote_watch_loss,
    .grant_waiters = remote_grant_waiters,
    .poll_head = remote_poll_head,
    .shut_down = remote_shut_down,
    .forecast = remote_forecast,
    .stand_in = remote_share_at,
    .snapshot = remote_snapshot,
    .remaining = remote_remaining,
    .own_stats = remote_own_stats,
    .view_queue = remote_view_queue,
};
