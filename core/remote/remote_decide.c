/* SPDX-License-Identifier: MIT */
/* Decisions about requests to engines: records leave WAITING here, and nowhere else. */
#include "remote/remote.h"

#include "base/invariant.h"
#include "limit/counters.h"
#include "set/instance_base.h"
#include "set/set_ops.h"
#include "set/waiter.h"
#include <errno.h>
#include <string.h>

/* Returns the word of the record if the token still names it and it waits; else 0. */
static uint64_t remote_waiting_word(const weir_set *set, uint64_t token)
{
    uint32_t record = record_link_target(token);
    uint64_t word;

    if (!record || record >= set->region->record_end)
        return 0;
    word = record_load(&set_record(set, record)->word);
    return record_state(word) == RECORD_WAITING && remote_token(record, word) == token ? word : 0;
}

/* Returns whether the engine could not be reached. Other codes say that it refuses the set: it is
 * defined otherwise, or damaged, or not permitted. */
static bool remote_is_away(int result)
{
    return result == -ENOTCONN || result == -ECONNRESET || result == -ECONNREFUSED ||
           result == -EHOSTUNREACH;
}

/* How a request ends that the engine did not grant. */
static enum record_state remote_state_of(const struct remote_set *remote, int result)
{
    switch (result) {
    case -EAGAIN:
    case -ERANGE:
        return RECORD_REFUSED;
    case -ENOBUFS:
        return RECORD_QUEUE_FULL;
    case -ETIMEDOUT:
        return RECORD_TIMED_OUT;
    default:
        return remote->on_failure == ON_FAILURE_OPEN && remote_is_away(result) ? RECORD_HELD
                                                                               : RECORD_UNREACHABLE;
    }
}

static void remote_count(const struct remote_set *remote, uint32_t record, enum record_state state,
                         uint64_t waited_ns)
{
    const weir_set *set = &remote->set;
    struct counters *counters = thread_ctx_counters(remote->engine->ctx, set->number);
    const struct acq_record *r = set_record(set, record);

    if (state == RECORD_HELD) {
        uint64_t amounts[WEIR_LIMITS_MAX];

        for (uint32_t i = 0; i < set->limits.n; i++)
            amounts[i] = record_load(&r->amounts[i]);
        counters_add_grant(counters, amounts, set->limits.n, false);
        counters_add_wait(counters, waited_ns);
    } else if (state == RECORD_TIMED_OUT) {
        counter_add(&counters->timed_out, 1);
    } else if (state == RECORD_QUEUE_FULL) {
        counter_add(&counters->refused_full, 1);
    } else if (state == RECORD_REFUSED) {
        counter_add(&counters->refused_max_wait, 1);
    }
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
    record_store(remote_word(set, record, REMOTE_SESSION), is_granted ? verdict->session : 0);
}

static void remote_store_refusal(const weir_set *set, uint32_t record,
                                 const struct weir_backend_verdict *verdict, uint64_t now_ns)
{
    uint64_t retry_ns = verdict->retry_after_ns, limit = verdict->limit;

    retry_ns = retry_ns > WEIR_INSTANT_MAX - now_ns ? WEIR_NEVER : now_ns + retry_ns;
    record_store(remote_word(set, record, REMOTE_HOLD), 0);
    record_store(remote_word(set, record, REMOTE_FENCE), retry_ns);
    record_store(remote_word(set, record, REMOTE_SESSION), limit < set->limits.n ? limit + 1 : 0);
}

/* Reports once that the engine does not answer, and again after it has. */
static void remote_note_failure(struct remote_set *remote, int result)
{
    static const char *const policies[] = {[ON_FAILURE_CLOSED] = "refused",
                                           [ON_FAILURE_OPEN] = "granted without it",
                                           [ON_FAILURE_WAIT] = "kept waiting"};
    bool is_failure = result < 0 && result != -EAGAIN && result != -ENOBUFS && result != -ERANGE &&
                      result != -ETIMEDOUT;

    if (atomic_exchange_explicit(&remote->failure_reported, is_failure, memory_order_seq_cst) ==
            is_failure ||
        !is_failure)
        return;
    log_write(&remote->set.w->log, WEIR_LOG_WARNING,
              "set `%s`: backend `%s` cannot be asked (%s): requests are %s",
              set_own_name(&remote->set), remote->engine->plan.name, strerrordesc_np(-result),
              policies[remote_is_away(result) ? remote->on_failure : ON_FAILURE_CLOSED]);
}

int remote_decided(void *context, void *argument, uint64_t token,
                   const struct weir_backend_verdict *verdict)
{
    struct remote_engine *engine = context;
    struct remote_set *remote = argument;
    weir_set *set = &remote->set;
    uint32_t record = record_link_target(token);
    uint64_t now_ns = clock_now_ns(&set->w->clock), word, next = 0;

    pthread_mutex_lock(&engine->lock);
    word = remote_waiting_word(set, token);
    if (word) {
        struct acq_record *r = set_record(set, record);
        enum record_state state =
            verdict->result == 0 ? RECORD_HELD : remote_state_of(remote, verdict->result);

        if (state == RECORD_HELD)
            remote_store_grant(set, record, verdict, now_ns);
        else
            remote_store_refusal(set, record, verdict, now_ns);
        if (record_load(&r->enqueued_ns))
            remote_count(remote, record, state, now_ns - record_load(&r->enqueued_ns));
        next = record_next_word(word, state);
        shm_store_release(&r->word, next);
    }
    pthread_mutex_unlock(&engine->lock);
    remote_note_failure(remote, verdict->result);
    if (next)
        notify_waiter(set, record, next);
    return next == 0;
}

void remote_lost(void *context, void *argument, uint64_t session)
{
    struct remote_set *remote = argument;
    uint64_t before = atomic_load_explicit(&remote->lost_session, memory_order_seq_cst);

    (void)context;
    while (before < session &&
           !atomic_compare_exchange_weak_explicit(&remote->lost_session, &before, session,
                                                  memory_order_seq_cst, memory_order_seq_cst))
        ;
}

uint64_t remote_end_wait(struct remote_set *remote, uint32_t record, uint64_t expected,
                         enum record_state state)
{
    struct acq_record *r = set_record(&remote->set, record);
    uint64_t word;

    pthread_mutex_lock(&remote->engine->lock);
    word = record_load(&r->word);
    if (record_state(word) != RECORD_WAITING || (expected && word != expected))
        word = 0;
    else
        shm_store_release(&r->word, record_next_word(word, state));
    pthread_mutex_unlock(&remote->engine->lock);
    return word;
}
