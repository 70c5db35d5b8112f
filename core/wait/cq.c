/* SPDX-License-Identifier: MIT */
/* Queues: submissions found by user_data, completions in order. */
#include "wait/cq.h"

#include "api/instance.h"
#include "base/mutant.h"
#include "os/os.h"
#include "peer/participant.h"
#include "wait/peer_events.h"
#include <errno.h>

/* ---- under the lock: lists of records ---- */

/* Neighbors lie close together, whether they are numbers or addresses: a cache line each would be
 * most of what a submission costs. */
_Atomic uint32_t *queue_bucket(const weir_queue *queue, uint64_t user_data)
{
    uint64_t block = (user_data >> 6) * UINT64_C(0x9e3779b97f4a7c15) >> queue->bucket_shift;

    return &queue->buckets[(block & ~UINT64_C(63)) | ((block + user_data) & 63)];
}

static void set_before(struct record *r, uint32_t record)
{
    record_set_before(r, (record_before(r) & ~(uint32_t)LINK_MASK) | record);
}

uint32_t queue_first(const _Atomic uint32_t *bucket)
{
    return atomic_load_explicit(bucket, memory_order_relaxed);
}

static void set_first(_Atomic uint32_t *bucket, uint32_t record)
{
    atomic_store_explicit(bucket, record, memory_order_relaxed);
}

void queue_list(weir_queue *queue, uint32_t record)
{
    struct record *r = queue_record(queue, record);
    _Atomic uint32_t *bucket;

    if (record_before(r) & RECORD_LISTED)
        return;
    bucket = queue_bucket(queue, queue_user_data(r));
    r->after = queue_first(bucket);
    set_before(r, 0);
    queue_set_flag(r, RECORD_LISTED);
    if (r->after)
        set_before(queue_record(queue, r->after), record);
    set_first(bucket, record);
}

void queue_unlist(weir_queue *queue, uint32_t record)
{
    struct record *r = queue_record(queue, record);
    uint32_t before = record_before(r) & LINK_MASK;

    if (!(record_before(r) & RECORD_LISTED))
        return;
    record_set_before(r, record_before(r) & ~RECORD_LISTED);
    if (r->after)
        set_before(queue_record(queue, r->after), before);
    if (before)
        queue_record(queue, before)->after = r->after;
    else
        set_first(queue_bucket(queue, queue_user_data(r)), r->after);
}

/* Where the completion of a record is while it was delivered. */
struct completions *queue_completions(weir_queue *queue, const struct record *r)
{
    return queue_acquisition(r) && posting_is_on(&queue->posting) ? &queue->posts : &queue->ready;
}

/* One ring per change. */
void queue_update_alarm(weir_queue *queue)
{
    struct alarm *alarm = &queue->keeper.alarm;

    if (alarm->attended)
        return;
    if (queue->ready.first || alarm->failing)
        alarm_ring(alarm);
    else
        alarm_silence(alarm);
}

/* The same, where something has come to be reaped: whether to call, once the lock is given back. */
static bool claim_call(weir_queue *queue)
{
    return queue->ready.first && !MUTANT(102) && alarm_claim(&queue->keeper.alarm);
}

/* Only what may still be canceled stays listed: a grant that the program cannot know of. Returns
 * whether to call. */
bool queue_complete(weir_queue *queue, uint32_t record, uint64_t word)
{
    struct record *r = queue_record(queue, record);
    bool listed = record_before(r) & RECORD_LISTED;
    bool stays = record_state(word) == RECORD_HELD && !queue_acquisition(r);

    if (stays && !listed)
        queue_list(queue, record);
    else if (listed && !stays)
        queue_unlist(queue, record);
    if (!MUTANT(103))
        heap_remove(&queue->keeper.heap, record);
    queue_set_flag(r, RECORD_DELIVERED);
    (MUTANT(106) ? completions_prepend : completions_append)(queue_region(queue),
                                                             queue_completions(queue, r), record);
    if (queue->posts.first)
        posting_continue(queue);
    return claim_call(queue);
}

int queue_result(const weir *w, uint32_t record)
{
    const weir_set *set = kept_set(w, record);
    enum record_state state = record_state(kept_word(w, record));

    if (state != RECORD_WAITING || !set->member)
        return acquisition_result_of(state);
    member_break(set->member);
    return acquisition_result_of(RECORD_BROKEN);
}

/* ---- for others ---- */

weir_queue *queue_at(const weir *w, uint32_t number)
{
    return *table_at(&w->queues, number);
}

/* Whether it is a submission to this queue, which has entered its set. Of a stand-in that is not to be
 * seen from its word, which others may have written. */
static bool has_entered(const weir_queue *queue, uint32_t record)
{
    const struct record *r = queue_record(queue, record);
    uint32_t waker = record_waker(r);

    if (waker_kind(waker) != RECORD_WAKE_QUEUE || waker_queue(waker) != queue->number)
        return MUTANT(693);
    return !kept_stands_in(r) || record_load(&r->since) || MUTANT(692);
}

void queue_deliver(weir_queue *queue, uint32_t record, uint64_t word)
{
    uint32_t before;
    bool call = false;

    pthread_mutex_lock(&queue->keeper.lock);
    if ((kept_still(queue->keeper.w, record, word, &before) || MUTANT(149)) &&
        has_entered(queue, record) && (!(before & RECORD_DELIVERED) || MUTANT(104)))
        call = queue_complete(queue, record, word);
    pthread_mutex_unlock(&queue->keeper.lock);
    if (call)
        keeper_call(&queue->keeper);
}

/* The queue has nothing to do with the record any more. */
void queue_drop(weir_queue *queue, uint32_t record)
{
    struct record *r = queue_record(queue, record);

    queue_unlist(queue, record);
    heap_remove(&queue->keeper.heap, record);
    if (record_before(r) & RECORD_DELIVERED)
        completions_remove(queue_region(queue), queue_completions(queue, r), record);
    queue_set_flag(r, RECORD_DELIVERED);
}

weir_queue *queue_lock_of(weir_acquisition *acquisition)
{
    weir_queue *queue = acquisition->queue;

    if (!queue)
        return NULL;
    pthread_mutex_lock(&queue->keeper.lock);
    if (acquisition->queue || MUTANT(120))
        return queue;
    pthread_mutex_unlock(&queue->keeper.lock);
    return NULL;
}

bool queue_has(weir_acquisition *acquisition)
{
    weir_queue *queue = queue_lock_of(acquisition);

    if (queue)
        pthread_mutex_unlock(&queue->keeper.lock);
    return queue != NULL;
}

void queue_forget(weir_acquisition *acquisition)
{
    weir_queue *queue = queue_lock_of(acquisition);

    if (!queue)
        return;
    queue_drop(queue, acquisition->keeping);
    acquisition->queue = NULL;
    queue_update_alarm(queue);
    /* Before the lock is given back: then somebody else may close the queue and use it again. */
    atomic_fetch_sub(&queue->pending, !MUTANT(135));
    pthread_mutex_unlock(&queue->keeper.lock);
}

/* ---- opening and closing ---- */

static int take_number(weir *w, weir_queue **ret)
{
    uint32_t number = w->queues_n + 1;
    weir_queue *queue;

    if (table_reserve(&w->queues, number + 1) < 0)
        return -ENOMEM;
    queue = sys_alloc_aligned(_Alignof(weir_queue), sizeof(*queue));
    if (!queue)
        return -ENOMEM;
    keeper_init(&queue->keeper, w);
    queue->number = number;
    *table_at(&w->queues, number) = queue;
    w->queues_n = number;
    *ret = queue;
    return 0;
}

/* A queue's memory, new or used before. */
static int get_queue(weir *w, weir_queue **ret)
{
    int r = 0;

    pthread_mutex_lock(&w->lock);
    if (instance_closed(w)) {
        r = -ESHUTDOWN;
    } else if (w->closed_queues) {
        *ret = w->closed_queues;
        w->closed_queues = (*ret)->next_closed;
    } else {
        r = take_number(w, ret);
    }
    pthread_mutex_unlock(&w->lock);
    return r;
}

static void put_queue(weir *w, weir_queue *queue)
{
    pthread_mutex_lock(&w->lock);
    queue->next_closed = w->closed_queues;
    w->closed_queues = queue;
    pthread_mutex_unlock(&w->lock);
}

/* Between half a bucket and a whole one for each submission: more would be memory, fewer a longer
 * way. */
static int make_buckets(weir_queue *queue, uint32_t capacity)
{
    uint32_t bits = 6;

    while (UINT32_C(2) << bits <= capacity)
        bits++;
    queue->bucket_shift = (uint8_t)(64 - bits);
    queue->buckets = sys_alloc((size_t)1 << bits, sizeof(*queue->buckets));
    return queue->buckets ? 0 : -ENOMEM;
}

static void release_parts(weir_queue *queue)
{
    pthread_mutex_lock(&queue->keeper.lock);
    sys_free((void *)(uintptr_t)queue->buckets);
    queue->buckets = NULL;
    heap_free(&queue->keeper.heap);
    queue->room = 0;
    hearing_end(&queue->keeper, queue->number);
    alarm_close(&queue->keeper.alarm);
    pthread_mutex_unlock(&queue->keeper.lock);
}

/* Bells of other processes wake the reaper by the queue's own descriptor if it can be foreseen that
 * there will be any, and by way of the timekeeper if not (hearing.c). */
static bool gathers(const weir *w)
{
    return atomic_load(&w->shares) || w->clock.now_ns;
}

int weir_queue_open(weir_queue **ret, weir *w, unsigned capacity)
{
    weir_queue *queue;
    int r;

    if (!ret || !w || !capacity || capacity > WEIR_QUEUE_CAPACITY_MAX)
        return -EINVAL;
    if (instance_forked(w))
        return -ECHILD;
    r = get_queue(w, &queue);
    if (r < 0)
        return r;
    pthread_mutex_lock(&queue->keeper.lock);
    queue->capacity = capacity;
    r = make_buckets(queue, capacity);
    if (r == 0)
        r = alarm_open(&queue->keeper.alarm, gathers(w));
    pthread_mutex_unlock(&queue->keeper.lock);
    if (r < 0) {
        release_parts(queue);
        put_queue(w, queue);
        return r;
    }
    instance_hold(w, 1);
    *ret = queue;
    return 0;
}

int weir_queue_fd(weir_queue *queue)
{
    return instance_forked(queue->keeper.w) ? -ECHILD : alarm_fd(&queue->keeper.alarm);
}

/* Some submission that waits, or 0; those that were decided become completions on the way, of which
 * nobody is told. */
static uint32_t any_waiting(weir_queue *queue, uint32_t *bucket)
{
    uint32_t buckets = UINT32_C(1) << (64 - queue->bucket_shift);

    while (*bucket < buckets) {
        uint32_t record = queue_first(&queue->buckets[*bucket]);

        if (!record) {
            ++*bucket;
            continue;
        }
        if (record_state(queue_word(queue, record)) == RECORD_WAITING)
            return record;
        if (!(record_before(queue_record(queue, record)) & RECORD_DELIVERED))
            queue_complete(queue, record, queue_word(queue, record));
        queue_unlist(queue, record);
    }
    return 0;
}

/*
 * Any submission that the queue still has: it has no longer afterwards. First those that wait, lest
 * they are granted what the others give back. False: there is none.
 */
static bool drop_any(weir_queue *queue, uint32_t *bucket, struct found *ret)
{
    weir_acquisition *acquisition;
    uint32_t record = 0;

    if (!MUTANT(134) || !queue->ready.first)
        record = any_waiting(queue, bucket);
    if (!record)
        record = queue->ready.first;
    if (!record)
        return false;
    acquisition = queue_acquisition(queue_record(queue, record));
    ret->record = record;
    ret->word = queue_word(queue, record);
    ret->set = kept_set(queue->keeper.w, record);
    ret->withheld = !acquisition;
    queue_drop(queue, record);
    if (acquisition)
        acquisition->queue = NULL;
    return true;
}

/* Nobody else knows of it. */
static void free_submission(struct actor *actor, const struct found *found)
{
    weir *w = found->set->w;
    uint32_t record = kept_record(w, found->record);
    uint64_t word = kept_word(w, found->record);

    if (record_state(word) == RECORD_HELD)
        acquisition_undo(actor, found->set, record, word);
    else if (record_state(word) != RECORD_FREE)
        acquisition_free_word(found->set, record);
    kept_free(found->set, found->record);
    record_free(actor, found->set, record);
}

/* Ends what was submitted, wherever it is; an acquisition that the program has stays, and may be
 * released this moment: of its record only the word that was found may be touched. */
static void end_submission(const struct found *found)
{
    struct actor *actor = actor_borrow(found->set);

    if (record_state(found->word) == RECORD_WAITING)
        set_withdraw(actor, found->set, kept_record(found->set->w, found->record), found->word,
                     RECORD_CANCELED);
    if (found->withheld)
        free_submission(actor, found);
    actor_return(actor);
}

weir_queue *weir_queue_close(weir_queue *queue)
{
    uint32_t bucket = 0;
    weir *w = queue ? queue->keeper.w : NULL;
    struct found found;
    bool more;

    if (!queue)
        return NULL;
    if (instance_forked(w)) {
        hearing_close_in_child(&queue->keeper);
        alarm_close(&queue->keeper.alarm);
        posting_end_in_child(queue);
        return NULL;
    }
    posting_end(queue);
    do {
        pthread_mutex_lock(&queue->keeper.lock);
        queue->keeper.alarm.attended = true;
        more = drop_any(queue, &bucket, &found);
        pthread_mutex_unlock(&queue->keeper.lock);
        if (more)
            end_submission(&found);
    } while (more);
    atomic_store(&queue->pending, 0);
    alarm_await(&queue->keeper.alarm);
    release_parts(queue);
    put_queue(w, queue);
    instance_drop(w, 1);
    return NULL;
}

/* ---- all queues ---- */

int queues_run(weir *w)
{
    uint32_t n = w->queues_n;
    int decided = 0;

    for (uint32_t i = 1; i <= n && !MUTANT(141); i++) {
        weir_queue *queue = queue_at(w, i);

        decided += keeper_run(&queue->keeper);
        posting_tell(queue);
    }
    return decided;
}

/* Posts what was left to this thread. */
static void post(weir_queue *queue)
{
    pthread_mutex_lock(&queue->keeper.lock);
    posting_run(queue);
    queue_update_alarm(queue);
    pthread_mutex_unlock(&queue->keeper.lock);
    posting_tell(queue);
}

bool queue_attend(weir_queue *queue)
{
    bool failing = false;

    if (posting_is_timed(queue)) {
        keeper_run_ahead(&queue->keeper);
        failing = keeper_is_failing(&queue->keeper);
    } else {
        hearing_attend(&queue->keeper);
    }
    post(queue);
    return !failing;
}

bool queues_attend(weir *w)
{
    uint32_t n = w->queues_n;
    bool whole = true;

    for (uint32_t i = 1; i <= n; i++)
        whole &= queue_attend(queue_at(w, i));
    return whole;
}

void queues_end_posting(weir *w)
{
    uint32_t n = w->queues_n;

    for (uint32_t i = 1; i <= n; i++)
        posting_end(queue_at(w, i));
}

void queues_free(weir *w)
{
    for (uint32_t i = 1; i <= w->queues_n; i++) {
        weir_queue *queue = queue_at(w, i);

        keeper_free(&queue->keeper);
        sys_free(queue);
    }
    table_free(&w->queues);
}
