/* SPDX-License-Identifier: MIT */
/* Queues: reaping. What has become due is done, and completions are handed out. */
#include "wait/cq.h"

#include "api/acquire_op.h"
#include "api/instance.h"
#include "base/mutant.h"
#include "keyed/key_set.h"
#include "wait/peer_events.h"
#include <errno.h>

/* Taken out at once. */
#define BATCH 64u

/* Takes out the next completion. It cannot be canceled any more. */
static uint32_t pop(weir_queue *queue)
{
    uint32_t record = queue->ready.first;

    completions_remove(queue_region(queue), &queue->ready, record);
    if (!MUTANT(137))
        queue_unlist(queue, record);
    return record;
}

/* It could not be handed out, and is the next one again. */
static void push_back(weir_queue *queue, uint32_t record)
{
    struct record *r = queue_record(queue, record);

    (MUTANT(143) ? completions_append : completions_prepend)(queue_region(queue),
                                                             queue_completions(queue, r), record);
    if (record_state(queue_word(queue, record)) == RECORD_HELD && !queue_acquisition(r))
        queue_list(queue, record);
}

static void say_refusal(struct actor *actor, weir_set *set, uint32_t record,
                        struct weir_refusal *ret)
{
    const struct record *r = record_at(set->region, record);
    uint64_t amounts[WEIR_LIMITS_MAX];
    struct verdict verdict;

    for (uint32_t i = 0; i < set->limits.n; i++)
        amounts[i] = record_load(&r->amounts[i]);
    if (set_template(set)->keyed)
        keyed_estimate_record(actor, set_template(set), record, amounts, SHORT_LINE, &verdict);
    else
        set_estimate(actor, set, amounts, SHORT_LINE, &verdict);
    asking_say(ret, set, &verdict);
}

void queue_hand_over(weir_acquisition *acquisition, int result)
{
    acquisition->seen = result == 0 && !MUTANT(129);
    acquisition->queue = NULL;
}

/* Fills `ret`, which takes over the record. False: no memory. */
static bool complete(struct actor *actor, weir_set *set, uint32_t kept, struct weir_completion *ret)
{
    const struct record *r = kept_at(set->w, kept);
    uint32_t record = kept_record(set->w, kept);
    int result = queue_result(set->w, kept);
    weir_acquisition *acquisition = queue_acquisition(r);

    *ret = (struct weir_completion){.user_data = queue_user_data(r),
                                    .acquisition = acquisition,
                                    .result = result,
                                    .refusal.size = sizeof(ret->refusal)};
    if (result == 0 && !acquisition) {
        ret->acquisition = acquisition_adopt(actor, set, record, kept);
        if (!ret->acquisition)
            return false;
        ret->acquisition->strict = (record_waker(r) & WAKER_STRICT) != 0;
    }
    if ((result == -EAGAIN || result == -ENOBUFS || result == -ETIMEDOUT) && !MUTANT(145))
        say_refusal(actor, set, record, &ret->refusal);
    if (ret->acquisition) {
        queue_hand_over(ret->acquisition, result);
    } else {
        acquisition_free_word(set, record);
        kept_free(set, kept);
        record_free(actor, set, record);
    }
    return true;
}

/* The same with the thread's actor. */
static bool complete_one(weir *w, uint32_t record, struct weir_completion *ret)
{
    weir_set *set = kept_set(w, record);
    struct actor *actor = actor_borrow(set);
    bool completed = complete(actor, set, record, ret);

    actor_return(actor);
    return completed;
}

/* Takes out at most `n` completions. Under the lock. */
static unsigned pop_some(weir_queue *queue, uint32_t *ret, unsigned n)
{
    unsigned popped = 0;

    while (popped < n && queue->ready.first)
        ret[popped++] = pop(queue);
    queue->keeper.alarm.attended = MUTANT(148);
    queue_update_alarm(queue);
    return popped;
}

/* The first of a reap: does what has become due. A completion of that is reaped without a word to
 * the alarm. */
static unsigned pop_first(weir_queue *queue, uint32_t *ret, unsigned n)
{
    weir *w = queue->keeper.w;
    uint64_t injected_ns = w->clock.now_ns ? instance_now(w) : 0;
    unsigned popped;

    pthread_mutex_lock(&queue->keeper.lock);
    queue->keeper.alarm.attended = true;
    keeper_run_locked(&queue->keeper, injected_ns);
    popped = pop_some(queue, ret, n);
    pthread_mutex_unlock(&queue->keeper.lock);
    return popped;
}

static unsigned pop_more(weir_queue *queue, uint32_t *ret, unsigned n)
{
    unsigned popped;

    pthread_mutex_lock(&queue->keeper.lock);
    popped = pop_some(queue, ret, n);
    pthread_mutex_unlock(&queue->keeper.lock);
    return popped;
}

/* The caller gets fewer than there are, which says to an edge-triggered loop that there are none. */
static void push_back_batch(weir_queue *queue, const uint32_t *records, unsigned n)
{
    pthread_mutex_lock(&queue->keeper.lock);
    while (n > 0)
        push_back(queue, records[--n]);
    if (queue->posts.first)
        posting_continue(queue);
    alarm_ring_again(&queue->keeper.alarm);
    pthread_mutex_unlock(&queue->keeper.lock);
}

/* Completes those that were popped. Fewer: `*ret_code` says why the others could not be. */
static unsigned complete_batch(weir_queue *queue, const uint32_t *records, unsigned popped,
                               struct weir_completion *out, int *ret_code)
{
    unsigned done = 0;

    while (done < popped && complete_one(queue->keeper.w, records[done], &out[done]))
        done++;
    if (done < popped) {
        if (!MUTANT(144))
            push_back_batch(queue, records + done, popped - done);
        *ret_code = -ENOMEM;
    }
    atomic_fetch_sub(&queue->pending, MUTANT(107) ? 0 : done);
    return done;
}

static unsigned smaller(unsigned a, unsigned b)
{
    return a < b ? a : b;
}

int weir_queue_reap(weir_queue *queue, struct weir_completion *out, unsigned n)
{
    uint32_t records[BATCH];
    unsigned done = 0, popped;
    int r = 0;

    if (instance_forked(queue->keeper.w))
        return -ECHILD;
    if (!out && n)
        return -EINVAL;
    if (n > INT32_MAX)
        n = INT32_MAX;
    hearing_attend(&queue->keeper);
    popped = pop_first(queue, records, smaller(n, BATCH));
    posting_tell(queue);
    while (popped > 0) {
        done += complete_batch(queue, records, popped, out + done, &r);
        if (r < 0 || popped < BATCH || done == n)
            break;
        popped = pop_more(queue, records, smaller(n - done, BATCH));
    }
    return done ? (int)done : r;
}
