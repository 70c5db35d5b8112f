/* SPDX-License-Identifier: MIT */
/* Queues: submissions found by user_data, completions in order. */
#include "queue.h"

#include "asking.h"
#include "instance.h"
#include "mutant.h"
#include "pool.h"
#include "sys.h"
#include <errno.h>

#define BATCH 64u

/* ---- under the lock: lists of records ---- */

static struct record *at(const weir_queue *queue, uint32_t record)
{
    return record_at(queue->keeper.heap.region, record);
}

/* Neighbors lie close together, whether they are numbers or addresses: a cache line each would be
 * most of what a submission costs. */
static uint32_t *bucket_of(const weir_queue *queue, uint64_t user_data)
{
    uint64_t block = (user_data >> 6) * UINT64_C(0x9e3779b97f4a7c15) >> queue->bucket_shift;

    return &queue->buckets[block ^ (user_data & 63)];
}

static void set_before(struct record *r, uint32_t record)
{
    record_set_before(r, (record_before(r) & ~(uint32_t)LINK_MASK) | record);
}

static void set_flag(struct record *r, uint32_t flag)
{
    record_set_before(r, record_before(r) | flag);
}

static void list(weir_queue *queue, uint32_t record)
{
    struct record *r = at(queue, record);
    uint32_t *bucket = bucket_of(queue, queue_user_data(r));

    r->after = *bucket;
    set_before(r, 0);
    set_flag(r, RECORD_LISTED);
    if (*bucket)
        set_before(at(queue, *bucket), record);
    *bucket = record;
}

static void unlist(weir_queue *queue, uint32_t record)
{
    struct record *r = at(queue, record);
    uint32_t before = record_before(r) & LINK_MASK;

    if (!(record_before(r) & RECORD_LISTED))
        return;
    record_set_before(r, record_before(r) & ~RECORD_LISTED);
    if (r->after)
        set_before(at(queue, r->after), before);
    if (before)
        at(queue, before)->after = r->after;
    else
        *bucket_of(queue, queue_user_data(r)) = r->after;
}

static const struct region *region_of(const weir_queue *queue)
{
    return queue->keeper.heap.region;
}

/* Where the completion of a record is while it was delivered. */
static struct completions *list_of(weir_queue *queue, const struct record *r)
{
    return queue_acquisition(r) && posting_is_on(&queue->posting) ? &queue->posts : &queue->ready;
}

/* One write per change. */
void queue_update_signal(weir_queue *queue)
{
    if (queue->reaping)
        return;
    if (queue->ready.first)
        keeper_signal(&queue->keeper);
    else if (!queue->keeper.failing)
        keeper_unsignal(&queue->keeper);
}

/* The same, where something has come to be reaped: whether to call, once the lock is given back. */
static bool claim_call(weir_queue *queue)
{
    if (!queue->ready.first || queue->reaping || MUTANT(102))
        return false;
    return keeper_claim_call(&queue->keeper);
}

/* Only what may still be canceled stays listed: a grant that the program cannot know of. Returns
 * whether to call. */
static bool deliver(weir_queue *queue, uint32_t record)
{
    struct record *r = at(queue, record);

    if ((record_state(record_load(&r->word)) != RECORD_HELD || queue_acquisition(r)) &&
        !MUTANT(101))
        unlist(queue, record);
    if (!MUTANT(103))
        heap_remove(&queue->keeper.heap, record);
    set_flag(r, RECORD_DELIVERED);
    (MUTANT(106) ? completions_prepend : completions_append)(region_of(queue), list_of(queue, r),
                                                             record);
    posting_continue(queue);
    return claim_call(queue);
}

/* ---- for others ---- */

weir_queue *queue_at(const weir *w, uint32_t number)
{
    return *table_at(&w->queues, number);
}

void queue_deliver(weir_queue *queue, uint32_t record, uint64_t word)
{
    struct record *r = at(queue, record);
    uint32_t before;
    bool call = false;

    pthread_mutex_lock(&queue->keeper.lock);
    if ((record_still(r, word, &before) || MUTANT(149)) &&
        (!(before & RECORD_DELIVERED) || MUTANT(104)))
        call = deliver(queue, record);
    pthread_mutex_unlock(&queue->keeper.lock);
    if (call)
        keeper_call(&queue->keeper);
}

/* The queue has nothing to do with the record any more. */
static void drop(weir_queue *queue, uint32_t record)
{
    struct record *r = at(queue, record);

    unlist(queue, record);
    heap_remove(&queue->keeper.heap, record);
    if (record_before(r) & RECORD_DELIVERED)
        completions_remove(region_of(queue), list_of(queue, r), record);
    set_flag(r, RECORD_DELIVERED);
}

/* Locks the queue that has yet to hand out the acquisition's completion, and returns it; or NULL.
 * Whoever hands it out may be doing so this moment, so only under the lock is this certain. */
static weir_queue *lock_queue_of(weir_acquisition *acquisition)
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
    weir_queue *queue = lock_queue_of(acquisition);

    if (queue)
        pthread_mutex_unlock(&queue->keeper.lock);
    return queue != NULL;
}

void queue_forget(weir_acquisition *acquisition)
{
    weir_queue *queue = lock_queue_of(acquisition);

    if (!queue)
        return;
    drop(queue, acquisition->record);
    acquisition->queue = NULL;
    queue_update_signal(queue);
    /* Before the lock is given back: then somebody else may close the queue and use it again. */
    atomic_fetch_sub(&queue->pending, !MUTANT(135));
    pthread_mutex_unlock(&queue->keeper.lock);
}

/* ---- submitting ---- */

static bool take_place(weir_queue *queue)
{
    uint32_t pending = atomic_load(&queue->pending);

    do {
        if (pending >= queue->capacity + MUTANT(105))
            return false;
    } while (!atomic_compare_exchange_weak(&queue->pending, &pending, pending + 1));
    return true;
}

/* A record for this request, and its acquisition if that is wanted. 0: no memory. */
static uint32_t make_record(const struct asking *asking, const weir_queue *queue,
                            uint64_t user_data, bool wanted)
{
    uint32_t record = record_new(asking->actor, asking->set);
    struct record *r = record_at(&asking->set->w->region, record);
    bool strict = (asking->request.flags & WEIR_STRICT) != 0;
    weir_acquisition *acquisition;

    if (!record)
        return 0;
    asking_fill(asking, record);
    record_set_waker(r, RECORD_WAKE_QUEUE, queue->number, strict);
    r->data = user_data;
    if (!wanted)
        return record;
    acquisition = acquisition_adopt(asking->actor, asking->set, record);
    if (!acquisition) {
        record_free(asking->actor, asking->set, record);
        return 0;
    }
    acquisition->strict = strict;
    acquisition->user_data = user_data;
    r->data = (uint64_t)(uintptr_t)acquisition;
    set_flag(r, RECORD_HAS_ACQUISITION);
    return record;
}

static void free_record(const struct asking *asking, uint32_t record)
{
    weir_acquisition *acquisition = queue_acquisition(record_at(&asking->set->w->region, record));

    if (acquisition)
        acquisition_free(asking->actor, acquisition);
    else
        record_free(asking->actor, asking->set, record);
}

/* From here on it can be found. Room for its deadline is made as well. */
static int add(weir_queue *queue, uint32_t record)
{
    weir_acquisition *acquisition = queue_acquisition(at(queue, record));
    int r;

    pthread_mutex_lock(&queue->keeper.lock);
    r = heap_reserve(&queue->keeper.heap, atomic_load(&queue->pending));
    if (r == 0) {
        if (acquisition)
            acquisition->queue = queue;
        list(queue, record);
    }
    pthread_mutex_unlock(&queue->keeper.lock);
    return r;
}

static void take_back(weir_queue *queue, uint32_t record)
{
    pthread_mutex_lock(&queue->keeper.lock);
    unlist(queue, record);
    pthread_mutex_unlock(&queue->keeper.lock);
}

/* A record that never was in the set becomes `state`. */
static uint64_t set_state(const struct asking *asking, uint32_t record, enum record_state state)
{
    struct record *r = record_at(&asking->set->w->region, record);
    uint64_t word = record_next_word(record_load(&r->word), state);

    atomic_store_explicit(&r->word, word, memory_order_release);
    return word;
}

/* Asks the set: 0 granted, 1 waiting, -EAGAIN and -ENOBUFS refused, or an error. */
static int ask(struct asking *asking, uint32_t record)
{
    if (!request_is_empty(asking->set, asking->amounts))
        return set_enter(asking->actor, asking->set, asking->amounts, record, ENTRY_WAIT,
                         request_max_wait(asking->set, &asking->request), &asking->verdict);
    set_state(asking, record, RECORD_HELD);
    count(&actor_counters(asking->actor, asking->set->number)->granted, 1);
    return 0;
}

/* Enters the set with a record that the queue knows. 0: one completion follows. */
static int enter(weir_queue *queue, struct asking *asking, uint32_t record)
{
    struct record *r = at(queue, record);
    uint64_t word = record_next_word(record_load(&r->word), RECORD_HELD);
    uint64_t deadline;
    enum record_state state;

    switch (ask(asking, record)) {
    case 0:
        queue_deliver(queue, record, word);
        return 0;
    case 1:
        deadline = asking_deadline(asking, &state);
        word = word - RECORD_HELD + RECORD_WAITING;
        if (deadline != WEIR_FOREVER)
            keeper_watch(queue->keeper.w, record, word, deadline, state);
        return 0;
    case -EAGAIN:
        queue_deliver(queue, record, set_state(asking, record, RECORD_REFUSED));
        return 0;
    case -ENOBUFS:
        queue_deliver(queue, record, set_state(asking, record, RECORD_TURNED_AWAY));
        return 0;
    case -ERANGE:
        asking_say(asking->retref, asking->set, &asking->verdict);
        return -ERANGE;
    default:
        return -ESHUTDOWN;
    }
}

/* Whoever takes its CQE may do so before this has returned, and shall find the acquisition. */
static int enter_known(weir_queue *queue, struct asking *asking, uint32_t record,
                       weir_acquisition **ret)
{
    weir_acquisition *before = ret ? *ret : NULL;
    int r;

    if (ret)
        *ret = queue_acquisition(at(queue, record));
    r = enter(queue, asking, record);
    if (r == 0)
        return 0;
    if (ret)
        *ret = before;
    take_back(queue, record);
    return r;
}

static int submit(weir_queue *queue, struct asking *asking, uint64_t user_data,
                  weir_acquisition **ret)
{
    uint32_t record = make_record(asking, queue, user_data, ret != NULL);
    int r;

    if (!record)
        return -ENOMEM;
    r = add(queue, record);
    if (r == 0)
        r = enter_known(queue, asking, record, ret);
    if (r < 0)
        free_record(asking, record);
    return r;
}

int weir_queue_submit(weir_queue *queue, weir_pool *pool, const struct weir_request *request,
                      uint64_t user_data, weir_acquisition **ret, struct weir_refusal *retref)
{
    struct asking asking;
    int r = queue && pool && pool->w == queue->keeper.w ? 0 : -EINVAL;

    if (r == 0)
        r = asking_begin(&asking, pool, request, PURPOSE_ACQUIRE, retref);
    if (r < 0)
        return r;
    if (!take_place(queue))
        return -ENOSPC;
    r = submit(queue, &asking, user_data, ret);
    if (r < 0)
        atomic_fetch_sub(&queue->pending, !MUTANT(136));
    return r;
}

/* ---- reaping ---- */

/* Takes out the next completion. It cannot be canceled any more. */
static uint32_t pop(weir_queue *queue)
{
    uint32_t record = queue->ready.first;

    completions_remove(region_of(queue), &queue->ready, record);
    if (!MUTANT(137))
        unlist(queue, record);
    return record;
}

/* It could not be handed out, and is the next one again. */
static void push_back(weir_queue *queue, uint32_t record)
{
    struct record *r = at(queue, record);

    (MUTANT(143) ? completions_append : completions_prepend)(region_of(queue), list_of(queue, r),
                                                             record);
    if (record_state(record_load(&r->word)) == RECORD_HELD && !queue_acquisition(r))
        list(queue, record);
}

static void say_refusal(struct actor *actor, weir_set *set, const struct record *r,
                        struct weir_refusal *ret)
{
    uint64_t amounts[WEIR_LIMITS_MAX];
    struct verdict verdict;

    for (uint32_t i = 0; i < set->limits.n; i++)
        amounts[i] = record_load(&r->amounts[i]);
    set_estimate(actor, set, amounts, SHORT_LINE, &verdict);
    asking_say(ret, set, &verdict);
}

void queue_hand_over(weir_acquisition *acquisition, int result)
{
    acquisition->seen = result == 0 && !MUTANT(129);
    acquisition->queue = NULL;
}

/* Fills `ret`, which takes over the record. False: no memory. */
static bool complete(struct actor *actor, weir_set *set, uint32_t record,
                     struct weir_completion *ret)
{
    struct record *r = record_at(&set->w->region, record);
    int result = acquisition_result_of(record_state(record_load(&r->word)));
    weir_acquisition *acquisition = queue_acquisition(r);

    *ret = (struct weir_completion){.user_data = queue_user_data(r),
                                    .acquisition = acquisition,
                                    .result = result,
                                    .refusal.size = sizeof(ret->refusal)};
    if (result == 0 && !acquisition) {
        ret->acquisition = acquisition_adopt(actor, set, record);
        if (!ret->acquisition)
            return false;
        ret->acquisition->strict = (record_waker(r) & WAKER_STRICT) != 0;
    }
    if ((result == -EAGAIN || result == -ENOBUFS || result == -ETIMEDOUT) && !MUTANT(145))
        say_refusal(actor, set, r, &ret->refusal);
    if (ret->acquisition) {
        queue_hand_over(ret->acquisition, result);
    } else {
        acquisition_free_word(set->w, record);
        record_free(actor, set, record);
    }
    return true;
}

/* The same with the thread's actor. */
static bool complete_one(weir *w, uint32_t record, struct weir_completion *ret)
{
    weir_set *set = instance_set(w, record_set_number(record_at(&w->region, record)));
    struct actor *actor = actor_borrow(set);
    bool completed = complete(actor, set, record, ret);

    actor_return(actor);
    return completed;
}

/* Takes out at most `n` completions. */
static unsigned pop_batch(weir_queue *queue, uint32_t *ret, unsigned n)
{
    unsigned popped = 0;

    pthread_mutex_lock(&queue->keeper.lock);
    while (popped < n && queue->ready.first)
        ret[popped++] = pop(queue);
    queue->reaping = MUTANT(148);
    queue_update_signal(queue);
    pthread_mutex_unlock(&queue->keeper.lock);
    return popped;
}

/* The caller gets fewer than there are, which says to an edge-triggered loop that there are none. */
static void push_back_batch(weir_queue *queue, const uint32_t *records, unsigned n)
{
    pthread_mutex_lock(&queue->keeper.lock);
    while (n > 0)
        push_back(queue, records[--n]);
    posting_continue(queue);
    keeper_signal_again(&queue->keeper);
    pthread_mutex_unlock(&queue->keeper.lock);
}

/* Fewer than `n`: there are no more, or `*ret_code` says why they could not be handed out. */
static unsigned reap_batch(weir_queue *queue, struct weir_completion *out, unsigned n,
                           int *ret_code)
{
    uint32_t records[BATCH];
    unsigned popped = pop_batch(queue, records, n < BATCH ? n : BATCH), done = 0;

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

/* Does what has become due. A completion of that is reaped without a word to the eventfd. */
static void move_on(weir_queue *queue)
{
    bool idle;

    pthread_mutex_lock(&queue->keeper.lock);
    queue->reaping = true;
    idle = keeper_is_idle(&queue->keeper);
    pthread_mutex_unlock(&queue->keeper.lock);
    if (!idle)
        keeper_run(&queue->keeper);
}

int weir_queue_reap(weir_queue *queue, struct weir_completion *out, unsigned n)
{
    unsigned done = 0, more;
    int r = 0;

    if (instance_forked(queue->keeper.w))
        return -ECHILD;
    if (!out && n)
        return -EINVAL;
    if (n > INT32_MAX)
        n = INT32_MAX;
    move_on(queue);
    posting_tell(queue);
    do {
        more = reap_batch(queue, out + done, n - done, &r);
        done += more;
    } while (more == BATCH);
    return done ? (int)done : r;
}

/* ---- canceling ---- */

/* The first submission with this user_data that can be canceled, and its word; or 0. One that is
 * FREE is about to enter its set, or was canceled by its acquisition. */
static uint32_t find(const weir_queue *queue, uint64_t user_data, uint64_t *ret_word)
{
    uint32_t record = *bucket_of(queue, user_data);

    for (; record; record = at(queue, record)->after) {
        *ret_word = record_load(&at(queue, record)->word);
        if ((queue_user_data(at(queue, record)) == user_data || MUTANT(138)) &&
            record_state(*ret_word) != RECORD_FREE)
            break;
    }
    return record;
}

static void deliver_withheld(weir_queue *queue, uint32_t record)
{
    bool call;

    pthread_mutex_lock(&queue->keeper.lock);
    call = deliver(queue, record);
    pthread_mutex_unlock(&queue->keeper.lock);
    if (call)
        keeper_call(&queue->keeper);
}

/* A submission as weir_queue_cancel found it. */
struct found {
    uint32_t record;
    uint64_t word;
    weir_set *set;
    bool withheld; /* nobody else knows of it: a grant, while it is taken back; or at the end */
};

static bool find_one(weir_queue *queue, uint64_t user_data, struct found *ret)
{
    const weir *w = queue->keeper.w;

    pthread_mutex_lock(&queue->keeper.lock);
    ret->record = find(queue, user_data, &ret->word);
    if (ret->record) {
        const struct record *r = at(queue, ret->record);

        ret->set = instance_set(w, record_set_number(r));
        ret->withheld = record_state(ret->word) == RECORD_HELD && !queue_acquisition(r);
        if (ret->withheld)
            drop(queue, ret->record);
    }
    pthread_mutex_unlock(&queue->keeper.lock);
    return ret->record != 0;
}

/* Returns whether this call canceled it. */
static bool cancel(weir_queue *queue, const struct found *found)
{
    struct actor *actor = actor_borrow(found->set);
    weir *w = queue->keeper.w;
    bool canceled = true;

    if (found->withheld) {
        if (!MUTANT(108))
            acquisition_undo(actor, found->set, found->record, found->word);
        deliver_withheld(queue, found->record);
    } else if (record_state(found->word) == RECORD_WAITING) {
        canceled = set_withdraw(actor, found->set, found->record, found->word, RECORD_CANCELED);
        if (canceled)
            keeper_wake(w, found->record, record_next_word(found->word, RECORD_CANCELED));
    } else {
        canceled = false; /* decided a moment ago: whoever did that is about to say so */
        keeper_wake(w, found->record, found->word);
    }
    actor_return(actor);
    return canceled;
}

int weir_queue_cancel(weir_queue *queue, uint64_t user_data)
{
    struct found found;
    int n = 0;

    if (instance_forked(queue->keeper.w))
        return -ECHILD;
    while (find_one(queue, user_data, &found))
        n += cancel(queue, &found);
    return n;
}

/* What there is to cancel of an acquisition that the queue still has; false: it was decided. */
static bool find_acquisition(weir_acquisition *acquisition, struct found *ret)
{
    weir_queue *queue = lock_queue_of(acquisition);
    const struct record *r;

    if (!queue)
        return false;
    r = at(queue, acquisition->record);
    *ret = (struct found){acquisition->record, record_load(&r->word), acquisition->set, false};
    ret->withheld = record_state(ret->word) == RECORD_HELD && !acquisition->seen;
    if (ret->withheld && !MUTANT(128))
        drop(queue, ret->record);
    pthread_mutex_unlock(&queue->keeper.lock);
    return ret->withheld || record_state(ret->word) == RECORD_WAITING;
}

int queue_cancel_acquisition(weir_queue *queue, weir_acquisition *acquisition)
{
    struct found found;

    /* Again if it was decided between the two. */
    while (find_acquisition(acquisition, &found))
        if (cancel(queue, &found))
            return 0;
    return -EALREADY;
}

/* ---- opening and closing ---- */

static int take_number(weir *w, weir_queue **ret)
{
    uint32_t number = w->queues_n + 1;
    weir_queue *queue;

    if (table_reserve(&w->queues, number + 1) < 0)
        return -ENOMEM;
    queue = sys_alloc(1, sizeof(*queue));
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

/* Two buckets for each submission, or up to four: a record that is alone in its bucket touches no
 * other. */
static int make_buckets(weir_queue *queue, uint32_t capacity)
{
    uint32_t bits = 6;

    while (UINT32_C(1) << bits < 2 * capacity)
        bits++;
    queue->bucket_shift = 64 - bits;
    queue->buckets = sys_alloc((size_t)1 << bits, sizeof(*queue->buckets));
    return queue->buckets ? 0 : -ENOMEM;
}

static void release_parts(weir_queue *queue)
{
    pthread_mutex_lock(&queue->keeper.lock);
    sys_free(queue->buckets);
    queue->buckets = NULL;
    heap_free(&queue->keeper.heap);
    keeper_close_fds(&queue->keeper);
    queue->reaping = false;
    pthread_mutex_unlock(&queue->keeper.lock);
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
        r = keeper_open_fds(&queue->keeper);
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
    return instance_forked(queue->keeper.w) ? -ECHILD : queue->keeper.epoll_fd;
}

/* Some submission that waits, or 0; those that were decided become completions on the way, of which
 * nobody is told. */
static uint32_t any_waiting(weir_queue *queue, uint32_t *bucket)
{
    uint32_t buckets = UINT32_C(1) << (64 - queue->bucket_shift);

    while (*bucket < buckets) {
        uint32_t record = queue->buckets[*bucket];

        if (!record) {
            ++*bucket;
            continue;
        }
        if (record_state(record_load(&at(queue, record)->word)) == RECORD_WAITING)
            return record;
        if (!(record_before(at(queue, record)) & RECORD_DELIVERED))
            deliver(queue, record);
        unlist(queue, record);
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
    acquisition = queue_acquisition(at(queue, record));
    ret->record = record;
    ret->word = record_load(&at(queue, record)->word);
    ret->set = instance_set(queue->keeper.w, record_set_number(at(queue, record)));
    ret->withheld = !acquisition;
    drop(queue, record);
    if (acquisition)
        acquisition->queue = NULL;
    return true;
}

/* Nobody else knows of it. */
static void free_submission(struct actor *actor, const struct found *found)
{
    weir *w = found->set->w;
    uint64_t word = record_load(&record_at(&w->region, found->record)->word);

    if (record_state(word) == RECORD_HELD)
        acquisition_undo(actor, found->set, found->record, word);
    else if (record_state(word) != RECORD_FREE)
        acquisition_free_word(w, found->record);
    record_free(actor, found->set, found->record);
}

/* Ends what was submitted, wherever it is; an acquisition that the program has stays, and may be
 * released this moment: of its record only the word that was found may be touched. */
static void end_submission(const struct found *found)
{
    struct actor *actor = actor_borrow(found->set);

    if (record_state(found->word) == RECORD_WAITING)
        set_withdraw(actor, found->set, found->record, found->word, RECORD_CANCELED);
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
        keeper_close_fds(&queue->keeper);
        posting_end_in_child(queue);
        return NULL;
    }
    posting_end(queue);
    do {
        pthread_mutex_lock(&queue->keeper.lock);
        queue->reaping = true;
        more = drop_any(queue, &bucket, &found);
        pthread_mutex_unlock(&queue->keeper.lock);
        if (more)
            end_submission(&found);
    } while (more);
    atomic_store(&queue->pending, 0);
    keeper_await_calls(&queue->keeper);
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
    queue_update_signal(queue);
    pthread_mutex_unlock(&queue->keeper.lock);
    posting_tell(queue);
}

bool queue_attend(weir_queue *queue)
{
    bool failing = false;

    if (posting_is_timed(queue)) {
        keeper_run(&queue->keeper);
        failing = keeper_is_failing(&queue->keeper);
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
