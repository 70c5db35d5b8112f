/* SPDX-License-Identifier: MIT */
/* Decisions about requests to engines: records leave WAITING here, and nowhere else. */
#include "remote/remote.h"

#include "limit/counters.h"
#include "os/os.h"
#include "set/instance_base.h"
#include "set/set_ops.h"
#include "set/waiter.h"
#include <errno.h>
#include <string.h>

/* Returns the word of the record if the token still names it, it waits, and it is of the set; else
 * 0. A backend may say anything: the token of no record, or of one that another set has. With the
 * engine's lock. */
static uint64_t remote_waiting_word(const weir_set *set, uint64_t token)
{
    uint32_t record = record_link_target(token);
    const struct acq_record *r;
    uint64_t word;

    if (!region_has_record(set->region, record))
        return 0;
    r = set_record(set, record);
    word = record_load(&r->word);
    if (record_state(word) != RECORD_WAITING || remote_token(record, word) != token)
        return 0;
    /* As long as the word is the same, so is the set. */
    return record_set_number(r) == set->id && record_load(&r->word) == word ? word : 0;
}

/* Returns whether the engine could not be reached. Other codes say that it refuses the set: it is
 * defined otherwise, or damaged, or not permitted. */
static bool remote_is_away(int result)
{
    return result == -ENOTCONN || result == -ECONNRESET || result == -ECONNREFUSED ||
           result == -EHOSTUNREACH;
}

void remote_count_answer(struct remote_engine *engine, int result)
{
    atomic_fetch_add_explicit(remote_is_away(result) ? &engine->errors_n : &engine->answers_n, 1,
                              memory_order_relaxed);
}

/* How a request that waits ends, as the engine did not grant it. At its deadline the record ends as
 * by the timer of this process. */
static enum record_state remote_state_of(const struct remote_set *remote, uint32_t record,
                                         int result)
{
    bool is_max_wait = record_load(remote_word(&remote->set, record, REMOTE_HOLD)) != 0;

    switch (result) {
    case -EAGAIN:
        return RECORD_REFUSED;
    case -ERANGE:
        return RECORD_IMPOSSIBLE;
    case -ENOBUFS:
        return RECORD_QUEUE_FULL;
    case -ETIMEDOUT:
        return is_max_wait ? RECORD_REFUSED : RECORD_TIMED_OUT;
    case -EEXIST:
        return RECORD_MISMATCH;
    case -EACCES:
        return RECORD_DENIED;
    case -EUCLEAN:
        return RECORD_DAMAGED;
    default:
        return remote->on_failure == ON_FAILURE_OPEN && remote_is_away(result) ? RECORD_HELD
                                                                               : RECORD_UNREACHABLE;
    }
}

static void remote_count(const struct remote_set *remote, uint32_t record, enum record_state state,
                         const struct weir_backend_verdict *verdict, uint64_t now_ns)
{
    const weir_set *set = &remote->set;
    struct counters *counters = thread_ctx_counters(remote->engine->ctx, set->number);
    const struct acq_record *r = set_record(set, record);

    if (state == RECORD_HELD) {
        uint64_t amounts[WEIR_LIMITS_MAX];

        for (uint32_t i = 0; i < set->limits.n; i++)
            amounts[i] = record_load(&r->amounts[i]);
        counters_add_grant(counters, amounts, set->limits.n, false);
        if (verdict->waited)
            counters_add_wait(counters, now_ns - record_load(&r->enqueued_ns));
    } else if (state == RECORD_TIMED_OUT) {
        counter_add(&counters->timed_out, 1);
    } else if (state == RECORD_QUEUE_FULL) {
        counter_add(&counters->refused_full, 1);
    } else if (state == RECORD_IMPOSSIBLE) {
        counter_add(&counters->refused_impossible, 1);
    } else if (state == RECORD_REFUSED) {
        counter_add(&counters->refused_max_wait, 1);
    }
    if (verdict->result < 0 && verdict->limit < set->limits.n)
        counter_add(&counters->limits[verdict->limit].refused, 1);
}

static void remote_store_grant(const weir_set *set, uint32_t record,
                               const struct weir_backend_verdict *verdict, uint64_t now_ns)
{
    bool is_granted = verdict->result == 0;
    uint64_t delay_ns = is_granted ? verdict->delay_ns : 0;

    if (delay_ns > WEIR_INSTANT_MAX - now_ns)
        delay_ns = WEIR_INSTANT_MAX - now_ns;
    record_store(&set_record(set, record)->granted_ns, now_ns + delay_ns);
    record_store(remote_word(set, record, REMOTE_HOLD), is_granted ? verdict->hold : 0);
    record_store(remote_word(set, record, REMOTE_FENCE), is_granted ? verdict->fence : 0);
    record_store(remote_word(set, record, REMOTE_LOST), 0);
}

static void remote_store_refusal(const weir_set *set, uint32_t record,
                                 const struct weir_backend_verdict *verdict, uint64_t now_ns)
{
    uint64_t retry_ns = verdict->retry_after_ns, limit = verdict->limit;
    bool is_away = remote_is_away(verdict->result);

    if (retry_ns <= WEIR_INSTANT_MAX - now_ns)
        retry_ns += now_ns;
    else /* a resource is short, or it will never be granted */
        retry_ns = verdict->result == -ERANGE ? WEIR_NEVER : now_ns;
    record_store(remote_word(set, record, REMOTE_HOLD), verdict->is_too_late || is_away);
    record_store(remote_word(set, record, REMOTE_FENCE), retry_ns);
    record_store(remote_word(set, record, REMOTE_LOST), limit < set->limits.n ? limit + 1 : 0);
}

/* Says in words why requests fail. */
static const char *remote_failure_text(int result)
{
    switch (result) {
    case -EEXIST:
        return "it is defined otherwise there: raise `revision`, or rename the set";
    case -EACCES:
        return "it may not be used there";
    case -EUCLEAN:
        return "its state there is damaged";
    default:
        return strerrordesc_np(-result);
    }
}

/* Counts a record that leaves WAITING; the engine's lock is held. */
static void remote_leave(struct remote_set *remote, uint32_t record)
{
    if (record_load(&set_record(&remote->set, record)->enqueued_ns) != WEIR_NEVER)
        atomic_fetch_sub_explicit(&remote->waiting, 1, memory_order_seq_cst);
}

/* Reports that the engine decides again, after what this process decided without it. */
static void remote_note_return(const struct remote_set *remote)
{
    if (remote->on_failure == ON_FAILURE_OPEN || remote->on_failure == ON_FAILURE_LOCAL_SHARE)
        remote_log_add(&remote->engine->log, WEIR_LOG_WARNING,
                       "set `%s`: backend `%s` can be asked again, and decides",
                       set_own_name(&remote->set), remote->engine->plan.name);
}

/* Reports once that the engine does not answer, and again after it has. A share is reported as it
 * decides something. */
static void remote_note_failure(struct remote_set *remote, int result)
{
    static const char *const policies[] = {[ON_FAILURE_CLOSED] = "refused",
                                           [ON_FAILURE_OPEN] = "granted without it",
                                           [ON_FAILURE_WAIT] = "kept waiting"};
    bool is_failure = result < 0 && result != -EAGAIN && result != -ENOBUFS && result != -ERANGE &&
                      result != -ETIMEDOUT;

    if (remote_is_away(result) && remote->on_failure == ON_FAILURE_LOCAL_SHARE)
        return;
    if (atomic_exchange_explicit(&remote->failure_reported, is_failure, memory_order_seq_cst) ==
        is_failure)
        return;
    if (!is_failure) {
        remote_note_return(remote);
        return;
    }
    remote_log_add(&remote->engine->log, WEIR_LOG_WARNING,
                   "set `%s`: backend `%s` does not serve it (%s): requests are %s",
                   set_own_name(&remote->set), remote->engine->plan.name,
                   remote_failure_text(result),
                   policies[remote_is_away(result) ? remote->on_failure : ON_FAILURE_CLOSED]);
}

int remote_decided(void *context, void *argument, uint64_t token,
                   const struct weir_backend_verdict *verdict)
{
    struct remote_engine *engine = context;
    uint32_t record = record_link_target(token);
    struct remote_set *remote = remote_asked(argument, record);
    weir_set *set = &remote->set;
    uint64_t now_ns = clock_now_ns(&set->w->clock), word, next = 0;

    pthread_mutex_lock(&engine->lock);
    word = remote_waiting_word(set, token);
    if (word) {
        struct acq_record *r = set_record(set, record);
        enum record_state state =
            verdict->result == 0 ? RECORD_HELD : remote_state_of(remote, record, verdict->result);

        if (state == RECORD_HELD)
            remote_store_grant(set, record, verdict, now_ns);
        else
            remote_store_refusal(set, record, verdict, now_ns);
        if (state == RECORD_HELD && verdict->result < 0)
            atomic_fetch_add_explicit(&remote->granted_open, 1, memory_order_relaxed);
        if (record_load(&r->enqueued_ns) != WEIR_NEVER)
            remote_count(remote, record, state, verdict, now_ns);
        remote_leave(remote, record);
        next = record_next_word(word, state);
        shm_store_release(&r->word, next);
    }
    pthread_mutex_unlock(&engine->lock);
    remote_count_answer(engine, verdict->result);
    remote_note_failure(argument, verdict->result);
    if (next)
        notify_waiter(set, record, next);
    return next == 0;
}

/* Tells the program, if it has asked for that. Nothing else is done with the descriptor, so this
 * cannot fail while it is open. With the engine's lock. */
static void remote_signal_loss(const weir_set *set, uint32_t record)
{
    uint64_t fd = record_load(remote_word(set, record, REMOTE_LOST_FD));

    if (fd)
        (void)os_eventfd_add((int)fd - 1, 1);
}

/* Returns whether a record of the set has what this hold names. With the engine's lock. */
static bool remote_has_hold(const weir_set *set, uint32_t record, uint64_t hold)
{
    const struct acq_record *r;

    if (!hold || !region_has_record(set->region, record))
        return false;
    r = set_record(set, record);
    return record_state(record_load(&r->word)) == RECORD_HELD && record_set_number(r) == set->id &&
           record_load(remote_word(set, record, REMOTE_HOLD)) == hold;
}

void remote_lost(void *context, void *argument, uint64_t token, uint64_t hold)
{
    struct remote_engine *engine = context;
    uint32_t record = record_link_target(token);
    const weir_set *set = &remote_asked(argument, record)->set;

    pthread_mutex_lock(&engine->lock);
    if (remote_has_hold(set, record, hold)) {
        shm_store_release(remote_word(set, record, REMOTE_LOST), 1);
        remote_signal_loss(set, record);
    }
    pthread_mutex_unlock(&engine->lock);
}

int remote_watch_loss(const weir_set *set, uint32_t record, int fd)
{
    const struct remote_set *remote = (const struct remote_set *)set;
    int r = 0;

    pthread_mutex_lock(&remote->engine->lock);
    if (fd >= 0 && !record_load(remote_word(set, record, REMOTE_HOLD)))
        r = -EOPNOTSUPP;
    else
        record_store(remote_word(set, record, REMOTE_LOST_FD), (uint64_t)(fd + 1));
    if (r == 0 && record_load(remote_word(set, record, REMOTE_LOST)))
        remote_signal_loss(set, record);
    pthread_mutex_unlock(&remote->engine->lock);
    return r;
}

uint64_t remote_end_wait(struct remote_set *remote, uint32_t record, uint64_t expected,
                         enum record_state state)
{
    struct acq_record *r = set_record(&remote->set, record);
    uint64_t word;

    pthread_mutex_lock(&remote->engine->lock);
    word = record_load(&r->word);
    if (record_state(word) != RECORD_WAITING || (expected && word != expected)) {
        word = 0;
    } else {
        remote_leave(remote, record);
        shm_store_release(&r->word, record_next_word(word, state));
    }
    pthread_mutex_unlock(&remote->engine->lock);
    return word;
}

/* With locks of the backend held. What the share has granted stays its own, and is released to it.
 */
void remote_away(void *context, void *argument, int is_away)
{
    (void)context;
    for (struct remote_set *remote = argument; remote; remote = remote->before) {
        atomic_store_explicit(&remote->is_away, is_away != 0, memory_order_seq_cst);
        if (is_away || remote->on_failure != ON_FAILURE_LOCAL_SHARE)
            continue;
        if (atomic_exchange_explicit(&remote->failure_reported, false, memory_order_seq_cst))
            remote_note_return(remote);
        remote_share_end(remote, RECORD_UNREACHABLE);
    }
}

void remote_nodes(void *context, void *argument, uint32_t nodes)
{
    struct remote_set *remote = argument;

    (void)context;
    atomic_store_explicit(&remote->nodes, nodes, memory_order_seq_cst);
}
