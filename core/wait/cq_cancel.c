/* SPDX-License-Identifier: MIT */
/* Queues: canceling by user_data, and by acquisition. */
#include "wait/cq.h"

#include "api/instance.h"
#include "base/mutant.h"
#include <errno.h>

/*
 * Whether there is something to cancel. One that is FREE was canceled by its acquisition. Of those
 * that were delivered only grants are listed, and nothing else becomes of them but in a broken set.
 */
static bool is_cancelable(const struct record *r, uint64_t word)
{
    return record_state(word) == RECORD_HELD ||
           (record_state(word) != RECORD_FREE && !(record_before(r) & RECORD_DELIVERED));
}

/* The first submission with this user_data that can be canceled, and its word; or 0. */
static uint32_t find(const weir_queue *queue, uint64_t user_data, uint64_t *ret_word)
{
    uint32_t record = queue_first(queue_bucket(queue, user_data));

    for (; record; record = queue_record(queue, record)->after) {
        *ret_word = queue_word(queue, record);
        if ((queue_user_data(queue_record(queue, record)) == user_data || MUTANT(138)) &&
            is_cancelable(queue_record(queue, record), *ret_word))
            break;
    }
    return record;
}

static void deliver_withheld(weir_queue *queue, uint32_t record)
{
    bool call;

    pthread_mutex_lock(&queue->keeper.lock);
    call = queue_complete(queue, record, queue_word(queue, record));
    pthread_mutex_unlock(&queue->keeper.lock);
    if (call)
        keeper_call(&queue->keeper);
}

static bool find_one(weir_queue *queue, uint64_t user_data, struct found *ret)
{
    const weir *w = queue->keeper.w;

    pthread_mutex_lock(&queue->keeper.lock);
    ret->record = find(queue, user_data, &ret->word);
    if (ret->record) {
        const struct record *r = queue_record(queue, ret->record);

        ret->set = kept_set(w, ret->record);
        ret->withheld = record_state(ret->word) == RECORD_HELD && !queue_acquisition(r);
        if (ret->withheld)
            queue_drop(queue, ret->record);
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
            acquisition_undo(actor, found->set, kept_record(w, found->record), found->word);
        deliver_withheld(queue, found->record);
    } else if (record_state(found->word) == RECORD_WAITING) {
        canceled = set_withdraw(actor, found->set, kept_record(w, found->record), found->word,
                                RECORD_CANCELED);
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
    weir_queue *queue = queue_lock_of(acquisition);
    if (!queue)
        return false;
    *ret = (struct found){acquisition->keeping, queue_word(queue, acquisition->keeping),
                          acquisition->set, false};
    ret->withheld = record_state(ret->word) == RECORD_HELD && !acquisition->seen;
    if (ret->withheld && !MUTANT(128))
        queue_drop(queue, ret->record);
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
