/* SPDX-License-Identifier: MIT */
/* Queues: submitting. */
#include "wait/cq.h"

#include "api/acquire_op.h"
#include "api/instance.h"
#include "api/pool.h"
#include "base/mutant.h"
#include "base/sched_point.h"
#include "set/set_enqueue.h"
#include "wait/peer_events.h"
#include <errno.h>

/* Returns how many places are taken now, or 0: there was none left. */
static uint32_t take_place(weir_queue *queue)
{
    uint32_t pending = atomic_load(&queue->pending);

    do {
        if (pending >= queue->capacity + MUTANT(105))
            return 0;
    } while (!atomic_compare_exchange_weak(&queue->pending, &pending, pending + 1));
    return pending + 1;
}

/* Makes room for the deadlines of so many: then putting one in cannot fail. */
static int make_room(weir_queue *queue, uint32_t pending)
{
    int r;

    if (pending <= atomic_load(&queue->room))
        return 0;
    pthread_mutex_lock(&queue->keeper.lock);
    r = heap_reserve(&queue->keeper.heap, pending);
    if (r == 0)
        atomic_store(&queue->room, heap_room(&queue->keeper.heap));
    pthread_mutex_unlock(&queue->keeper.lock);
    return r;
}

/*
 * Whoever is in the same bucket becomes the one behind it, which may have been there for long: by
 * then his record is near. Without the lock this is no more than a guess.
 */
static void prefetch_neighbor(const weir_queue *queue, uint64_t user_data)
{
    uint32_t neighbor = queue_first(queue_bucket(queue, user_data));

    if (neighbor)
        __builtin_prefetch(&queue_record(queue, neighbor)->before, 1);
}

/* A record for this request, as the queue keeps it. 0: no memory. Nobody else knows of it before the
 * set has it. */
static uint32_t make_record(const struct asking *asking, const weir_queue *queue,
                            uint64_t user_data)
{
    uint32_t record = record_new(asking->actor, asking->set), kept;

    if (!record)
        return 0;
    asking_fill(asking, record);
    if (asking->set->member)
        asking_publish_deadline(asking, record);
    kept = kept_new(asking->set, record);
    if (!kept) {
        record_free(asking->actor, asking->set, record);
        return 0;
    }
    kept_set_waker(asking->set, kept, RECORD_WAKE_QUEUE, queue->number,
                   (asking->request->flags & WEIR_STRICT) != 0);
    record_store(&kept_at(asking->set->w, kept)->data, user_data);
    return kept;
}

/* The request failed. Nobody has heard of it, but somebody may have been told to look at it. */
static void free_record(const struct asking *asking, weir_queue *queue, uint32_t kept)
{
    weir *w = asking->set->w;
    weir_acquisition *acquisition = queue_acquisition(kept_at(w, kept));
    uint32_t record = kept_record(w, kept);

    pthread_mutex_lock(&queue->keeper.lock);
    if (!MUTANT(694))
        queue_drop(queue, kept);
    pthread_mutex_unlock(&queue->keeper.lock);

    if (acquisition) {
        acquisition_free(asking->actor, acquisition);
        return;
    }
    kept_free(asking->set, kept);
    record_free(asking->actor, asking->set, record);
}

/* The acquisition that the submitter wants to have. False: no memory. */
static bool make_acquisition(struct asking *asking, weir_queue *queue, uint32_t kept)
{
    struct record *r = kept_at(asking->set->w, kept);
    weir_acquisition *acquisition =
        acquisition_adopt(asking->actor, asking->set, kept_record(asking->set->w, kept), kept);

    if (!acquisition)
        return false;
    acquisition->strict = (asking->request->flags & WEIR_STRICT) != 0;
    acquisition->user_data = record_load(&r->data);
    acquisition->queue = queue;
    asking->acquisition = acquisition;
    record_store(&r->data, (uint64_t)(uintptr_t)acquisition);
    queue_set_flag(r, RECORD_HAS_ACQUISITION);
    return true;
}

/* A record that never was in the set becomes `state`. */
static uint64_t set_state(const struct asking *asking, uint32_t record, enum record_state state)
{
    struct record *r = record_at(asking->set->region, kept_record(asking->set->w, record));
    uint64_t word = record_next_word(record_load(&r->word), state);

    atomic_store_explicit(&r->word, word, memory_order_release);
    STEP();
    return word;
}

/* Asks the set: 0 granted, 1 waiting, -EAGAIN and -ENOBUFS refused, or an error. */
static int ask(struct asking *asking, uint32_t record)
{
    weir_set *set = asking->set;
    uint64_t max_wait_ns = request_max_wait(set, asking->request);
    uint32_t entered = kept_record(set->w, record);
    int r = -EINPROGRESS;

    if (request_is_empty(set, asking->amounts)) {
        set_state(asking, record, RECORD_HELD);
        count(&actor_counters(asking->actor, set->number)->granted, 1);
        return 0;
    }
    if (!set->keyed && join_is_worth_trying(set))
        r = set_join(asking->actor, set, asking->amounts, entered, max_wait_ns, &asking->verdict);
    return r == -EINPROGRESS ? asking_ask(asking, entered, ENTRY_WAIT, max_wait_ns) : r;
}

/* A submission, as it was when it entered the set. */
struct submission {
    uint32_t record;
    uint64_t word;
    uint64_t life; /* of its stand-in; 0: it has none */
};

static uint64_t life_of(const struct record *r)
{
    return kept_stands_in(r) ? record_load(&r->next) : 0;
}

/* As queue_word() and kept_still(), which have to find out first what it is. */
static uint64_t word_of(const weir_queue *queue, const struct submission *submission)
{
    return submission->life ? queue_word(queue, submission->record)
                            : record_load(&queue_record(queue, submission->record)->word);
}

static bool still_waits(const weir_queue *queue, const struct submission *submission,
                        uint32_t *ret_before)
{
    const struct record *r = queue_record(queue, submission->record);

    if (submission->life)
        return kept_still(queue->keeper.w, submission->record, submission->word, ret_before);
    *ret_before = atomic_load_explicit(&r->before, memory_order_acquire);
    return record_load(&r->word) == submission->word;
}

/*
 * It was decided, and whoever did it is about to say so. The queue may be closed before: it must
 * know. With any other word the record was reaped and is somebody else's. A stand-in says that by
 * itself: of what processes share the word may be anything.
 */
static bool is_ours(const weir_queue *queue, const struct submission *submission)
{
    const struct record *r = queue_record(queue, submission->record);
    uint64_t now = word_of(queue, submission);

    if (submission->life)
        return life_of(r) == submission->life;
    return record_next_word(submission->word, record_state(now)) == now;
}

/* From here on its word says what has become of it: see queue_deliver(). Under the lock, and before that
 * is looked at. */
static void enters(const weir_queue *queue, const struct submission *submission)
{
    struct record *r = queue_record(queue, submission->record);

    if (submission->life && life_of(r) == submission->life)
        record_store(&r->since, 1);
}

/* It waited when its word was that; under the lock. Whether to call, once that is given back. */
static bool list_or_complete(weir_queue *queue, const struct submission *submission,
                             uint64_t deadline_ns, enum record_state state)
{
    uint32_t record = submission->record, before;
    bool still;

    enters(queue, submission);
    still = still_waits(queue, submission, &before);

    if (before & RECORD_DELIVERED && !MUTANT(172))
        return false;
    if (still) {
        queue_list(queue, record);
        if (deadline_ns != WEIR_FOREVER)
            keeper_watch_locked(&queue->keeper, record, deadline_ns, state);
        return false;
    }
    return is_ours(queue, submission) && !MUTANT(171) &&
           queue_complete(queue, record, queue_word(queue, record));
}

/* It was decided as it entered the set. */
static void deliver(weir_queue *queue, const struct submission *submission)
{
    uint32_t before;
    bool call = false;

    if (!submission->life) {
        queue_deliver(queue, submission->record, submission->word);
        return;
    }
    pthread_mutex_lock(&queue->keeper.lock);
    enters(queue, submission);
    before = atomic_load_explicit(&queue_record(queue, submission->record)->before,
                                  memory_order_acquire);
    if (!(before & RECORD_DELIVERED) && is_ours(queue, submission))
        call = queue_complete(queue, submission->record, queue_word(queue, submission->record));
    pthread_mutex_unlock(&queue->keeper.lock);
    if (call)
        keeper_call(&queue->keeper);
}

/* It stands in line: from here on it is found by its user_data, and its wait ends in time. */
static void park(weir_queue *queue, const struct asking *asking,
                 const struct submission *submission)
{
    enum record_state state;
    uint64_t deadline_ns = asking_deadline(asking, &state);
    bool call;

    pthread_mutex_lock(&queue->keeper.lock);
    call = list_or_complete(queue, submission, deadline_ns, state);
    pthread_mutex_unlock(&queue->keeper.lock);
    if (call)
        keeper_call(&queue->keeper);
}

/* Enters the set. 0: one completion follows. */
static int enter(weir_queue *queue, struct asking *asking, uint32_t record)
{
    struct submission submission = {.record = record, .life = life_of(queue_record(queue, record))};
    int r;

    submission.word = record_next_word(word_of(queue, &submission), RECORD_HELD);

    switch (r = ask(asking, record)) {
    case 0:
        deliver(queue, &submission);
        return 0;
    case 1:
        submission.word += RECORD_WAITING - RECORD_HELD;
        park(queue, asking, &submission);
        if (asking->set->member)
            asking_stay(asking, record, submission.word);
        return 0;
    case -EAGAIN:
        submission.word = set_state(asking, record, RECORD_REFUSED);
        deliver(queue, &submission);
        return 0;
    case -ENOBUFS:
        submission.word = set_state(asking, record, RECORD_TURNED_AWAY);
        deliver(queue, &submission);
        return 0;
    case -ERANGE:
        asking_say(asking->retref, asking->set, &asking->verdict);
        return -ERANGE;
    default:
        return r;
    }
}

/* Whoever takes its CQE may do so before this has returned, and shall find the acquisition. */
static int enter_known(weir_queue *queue, struct asking *asking, uint32_t record,
                       weir_acquisition **ret)
{
    weir_acquisition *before = ret ? *ret : NULL;
    int r;

    if (ret)
        *ret = queue_acquisition(queue_record(queue, record));
    r = enter(queue, asking, record);
    if (r < 0 && ret)
        *ret = before;
    return r;
}

static int submit(weir_queue *queue, struct asking *asking, uint64_t user_data,
                  weir_acquisition **ret)
{
    uint32_t record;
    int r = -ENOMEM;

    prefetch_neighbor(queue, user_data);
    record = make_record(asking, queue, user_data);
    if (!record)
        return -ENOMEM;
    if (!ret || make_acquisition(asking, queue, record))
        r = enter_known(queue, asking, record, ret);
    if (r < 0)
        free_record(asking, queue, record);
    return r;
}

int weir_queue_submit(weir_queue *queue, weir_pool *pool, const struct weir_request *request,
                      uint64_t user_data, weir_acquisition **ret, struct weir_refusal *retref)
{
    struct asking asking;
    uint32_t pending;
    int r = queue && pool && pool->w == queue->keeper.w ? 0 : -EINVAL;

    if (r == 0)
        r = asking_begin(&asking, pool, request, PURPOSE_ACQUIRE, retref);
    if (r < 0)
        return r;
    pending = take_place(queue);
    if (!pending)
        return -ENOSPC;
    r = make_room(queue, pending);
    if (r == 0 && asking.set->member)
        r = hearing_begin(&queue->keeper, queue->number, asking.set);
    if (r == 0)
        r = submit(queue, &asking, user_data, ret);
    if (r < 0)
        atomic_fetch_sub(&queue->pending, !MUTANT(136));
    return r;
}
