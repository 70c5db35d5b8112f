/* SPDX-License-Identifier: MIT */
/* Posting completions to rings: attach, post, detach. */
#include "wait/cq_ring.h"

#include "api/instance.h"
#include "base/mutant.h"
#include "os/os.h"
#include "wait/cq.h"
#include "wait/peer_events.h"
#include "wait/timer_thread.h"
#include <errno.h>
#include <string.h>

/* ---- under the lock ---- */

static int result_of(const weir_queue *queue, uint32_t record)
{
    return queue_result(queue->keeper.w, record);
}

static void move(weir_queue *queue, struct completions *from, struct completions *to,
                 uint32_t record)
{
    completions_remove(queue_region(queue), from, record);
    completions_append(queue_region(queue), to, record);
}

static void reap_posts(weir_queue *queue)
{
    while (queue->posts.first && !MUTANT(121))
        move(queue, &queue->posts, &queue->ready, queue->posts.first);
}

/* What was to be posted is to be reaped. */
static void fail(weir_queue *queue, int failure)
{
    queue->posting.failure = failure;
    queue->posting_news = true;
    reap_posts(queue);
    timekeeper_call(queue->keeper.w); /* without it, the next reap tells */
}

/* It was sent: the program has it. */
static void take_out(weir_queue *queue, uint32_t record)
{
    completions_remove(queue_region(queue), &queue->posts, record);
    queue_hand_over(queue_acquisition(queue_record(queue, record)), result_of(queue, record));
    atomic_fetch_sub(&queue->pending, 1);
}

/* Sends the first of the list. Returns 0, or why one of them was not sent. */
static int send_some(weir_queue *queue)
{
    struct sys_message messages[SYS_MESSAGES_MAX];
    uint32_t records[SYS_MESSAGES_MAX], record = queue->posts.first;
    unsigned n = 0;
    int failure = 0;

    for (; record && n < SYS_MESSAGES_MAX; record = completions_next(queue_region(queue), record)) {
        records[n] = record;
        messages[n++] =
            (struct sys_message){.user_data = queue_user_data(queue_record(queue, record)),
                                 .result = result_of(queue, record)};
    }
    sys_ring_send(queue->posting.ring, messages, n);
    for (unsigned i = 0; i < n; i++) {
        if (!messages[i].code || MUTANT(122))
            take_out(queue, records[i]);
        else if (!failure)
            failure = messages[i].code;
    }
    return failure;
}

void posting_run(weir_queue *queue)
{
    while (queue->posts.first && posting_is_on(&queue->posting)) {
        int r = life_is_over(queue->posting.owner) && !MUTANT(123) ? -EOWNERDEAD : send_some(queue);

        if (r < 0)
            fail(queue, r);
    }
}

void posting_continue(weir_queue *queue)
{
    if (sys_ring_any_thread(queue->posting.ring))
        posting_run(queue);
    else if (!timekeeper_call(queue->keeper.w))
        fail(queue, -EIO);
}

/* ---- without ---- */

bool posting_is_timed(weir_queue *queue)
{
    bool timed;

    pthread_mutex_lock(&queue->keeper.lock);
    timed = queue->posting.timed;
    pthread_mutex_unlock(&queue->keeper.lock);
    return timed;
}

/* What a posting has of its own, when nobody else has it any more. */
static void close_parts(const struct posting *posting)
{
    sys_ring_close(posting->ring);
    life_drop(posting->owner);
}

static void say(weir *w, const char *what, int why)
{
    instance_log(w, WEIR_LOG_WARNING, "%s, so completions are to be reaped: %s", what,
                 strerrordesc_np(-why));
}

/* Why posting has ended by itself if the program is yet to be told, which is then up to the caller;
 * or 0. Under the lock. */
static int take_news(weir_queue *queue)
{
    int failure = queue->posting_news ? queue->posting.failure : 0;

    if (failure)
        queue->posting_news = MUTANT(124);
    return failure;
}

static void say_news(const weir_queue *queue, int failure)
{
    if (failure)
        say(queue->keeper.w, "a queue cannot post to its ring any more", failure);
}

void posting_tell(weir_queue *queue)
{
    struct sys_ring *ring = NULL;
    int failure;

    if (!atomic_load_explicit(&queue->posting_news, memory_order_relaxed))
        return;
    pthread_mutex_lock(&queue->keeper.lock);
    failure = take_news(queue);
    if (failure) {
        ring = queue->posting.ring;
        queue->posting.ring = NULL;
    }
    pthread_mutex_unlock(&queue->keeper.lock);
    sys_ring_close(ring);
    say_news(queue, failure);
}

void posting_end(weir_queue *queue)
{
    struct posting ended;
    int failure;

    pthread_mutex_lock(&queue->keeper.lock);
    failure = take_news(queue);
    ended = queue->posting;
    queue->posting = (struct posting){0};
    reap_posts(queue);
    queue->keeper.advance_ns = 0;
    if (ended.timed)
        sys_epoll_remove(alarm_fd(&queue->keeper.w->keeper.alarm), queue->keeper.alarm.timer_fd);
    hearing_end_relay(&queue->keeper);
    queue_update_alarm(queue);
    pthread_mutex_unlock(&queue->keeper.lock);
    if (ended.ring)
        sys_ring_settle(ended.ring);
    close_parts(&ended);
    say_news(queue, failure);
}

void posting_end_in_child(weir_queue *queue)
{
    close_parts(&queue->posting);
    queue->posting = (struct posting){0};
}

int weir_queue_detach(weir_queue *queue)
{
    if (!queue)
        return -EINVAL;
    if (instance_forked(queue->keeper.w))
        return -ECHILD;
    posting_end(queue);
    return 0;
}

/* ---- attaching ---- */

static bool is_refusal(int r)
{
    return (r == -EPERM || r == -EACCES || r == -ENOSYS) && !MUTANT(126);
}

/* What can fail without the lock, besides the ring. */
static int prepare(weir *w, struct posting *posting)
{
    posting->owner = life_hold();
    if (!posting->owner)
        return -ENOMEM;
    if (w->clock.now_ns && sys_ring_any_thread(posting->ring))
        return 0;
    return timekeeper_start(w);
}

/* Those that were decided before are posted first. */
static void collect(weir_queue *queue)
{
    uint32_t record = queue->ready.first, next;

    for (; record; record = next) {
        next = completions_next(queue_region(queue), record);
        if (queue_acquisition(queue_record(queue, record)))
            move(queue, &queue->ready, &queue->posts, record);
    }
}

/* The timekeeper gets to know the queue's timer, and what it hears by; unless it still does, of a
 * ring that posting has ended for by itself. */
static int have_timed(weir_queue *queue)
{
    const struct alarm *alarm = &queue->keeper.alarm;
    int epoll_fd = alarm_fd(&queue->keeper.w->keeper.alarm), r = 0;

    if (queue->posting.timed && !MUTANT(683))
        return 0;
    if (!MUTANT(127))
        r = sys_epoll_add_edge(epoll_fd, alarm->timer_fd, queue->number);
    if (r < 0)
        return r;
    r = hearing_relay(&queue->keeper, queue->number);
    if (r < 0)
        sys_epoll_remove(epoll_fd, alarm->timer_fd);
    return r;
}

/* Swaps the new posting for the old one, which failed or never was. */
static int switch_on(weir_queue *queue, struct posting *posting)
{
    weir *w = queue->keeper.w;
    struct posting old = queue->posting;
    int r;

    /* Once this is set, weir_close looks for attached queues under their locks. */
    if (instance_closed(w))
        return -ESHUTDOWN;
    if (posting_is_on(&old))
        return -EBUSY;
    posting->timed = !w->clock.now_ns;
    r = posting->timed ? have_timed(queue) : 0;
    if (r < 0)
        return r;
    queue->posting = *posting;
    queue->keeper.advance_ns = posting->timed ? w->timer_advance_ns : 0;
    *posting = old;
    if (!MUTANT(125))
        collect(queue);
    if (queue->posts.first)
        posting_continue(queue);
    queue_update_alarm(queue);
    return 0;
}

static int attach(weir_queue *queue, struct posting *posting)
{
    int r = prepare(queue->keeper.w, posting), failure;

    if (r < 0)
        return r;
    pthread_mutex_lock(&queue->keeper.lock);
    failure = take_news(queue); /* of an earlier ring */
    r = switch_on(queue, posting);
    pthread_mutex_unlock(&queue->keeper.lock);
    say_news(queue, failure);
    return r;
}

int weir_queue_attach(weir_queue *queue, int ring_fd)
{
    struct posting posting = {0};
    weir *w = queue ? queue->keeper.w : NULL;
    int r;

    if (!queue)
        return -EINVAL;
    if (instance_forked(w))
        return -ECHILD;
    r = sys_ring_open(&posting.ring, ring_fd);
    if (is_refusal(r)) {
        if (!atomic_exchange(&w->rings_refused, true))
            say(w, "queues cannot post to rings here", r);
        return 1;
    }
    if (r == 0)
        r = attach(queue, &posting);
    close_parts(&posting);
    return r;
}
