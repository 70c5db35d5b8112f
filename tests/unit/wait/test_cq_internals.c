/* SPDX-License-Identifier: MIT */
/* Completion queues from inside: what threads do to each other in moments that no test can hit from
 * outside, brought about step by step with the library's own functions. */
#include "api/acquisition.h"
#include "api/instance.h"
#include "lib/world.h"
#include "peer/peer.h"
#include "set/hooks.h"
#include "shm/doorbell.h"
#include "shm/doorbell_cache.h"
#include "shm/participant.h"
#include "shm/segment.h"
#include "shm/segment_dir.h"
#include "wait/cq.h"
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#define RATE "{ type: rate, key: tokens, algorithm: token_bucket, capacity: 10, window: 10s }"
#define A    "{ type: resource, key: a, capacity: 1 }"
#define B    "{ type: resource, key: b, capacity: 2 }"

static weir_queue *open_queue(void)
{
    weir_queue *ret = NULL;

    assert_int_equal(weir_queue_open(&ret, world.w, 100), 0);
    return ret;
}

static void put(weir_queue *queue, const struct weir_request *request, uint64_t user_data)
{
    assert_int_equal(weir_queue_submit(queue, world.pool, request, user_data, NULL, NULL), 0);
}

static weir_acquisition *put_kept(weir_queue *queue, const struct weir_request *request)
{
    weir_acquisition *ret = NULL;

    assert_int_equal(weir_queue_submit(queue, world.pool, request, 0, &ret, NULL), 0);
    return ret;
}

static struct weir_completion reap_one(weir_queue *queue)
{
    struct weir_completion c;

    assert_int_equal(weir_queue_reap(queue, &c, 1), 1);
    return c;
}

static struct acq_record *record_of(uint32_t record)
{
    return record_at(&world.w->region, record);
}

/* A granting thread was stopped before it notified: meanwhile the record has a blocked caller, or
 * is free. */
static void late_news_of_a_record_that_has_no_queue_any_more(void **state)
{
    weir_queue *queue, *other;
    weir_acquisition *kept, *last;
    uint64_t word;

    (void)state;
    world_limits(B);
    queue = open_queue();
    kept = put_kept(queue, ASK({"b", 1}));
    word = record_load(&record_of(kept->record)->word);
    assert_int_equal(weir_release(&kept), 0);
    kept = granted(ASK({"b", 1})); /* the same record again */
    assert_int_not_equal(wait_target_kind(record_wait_target(record_of(kept->record))),
                         WAIT_TARGET_CQ);
    timer_notify(world.w, kept->record, word);
    timer_notify(world.w, kept->record, record_load(&record_of(kept->record)->word));
    timer_deliver(&queue->timer, kept->record, word); /* … before it locked the queue */
    timer_arm_recheck(world.w, kept->record, word, 1);
    assert_int_equal(instance_wait(world.w)->timer.heap.n + queue->timer.heap.n, 0);
    assert_int_equal(weir_queue_reap(queue, &(struct weir_completion){0}, 1), 0);
    /* And one of another queue. */
    other = open_queue();
    last = put_kept(other, ASK({"b", 1}));
    timer_notify(world.w, last->record, word);
    assert_int_equal(weir_queue_reap(queue, &(struct weir_completion){0}, 1), 0);
    assert_ptr_equal(reap_one(other).acquisition, last);
    assert_int_equal(weir_queue_reap(other, &(struct weir_completion){0}, 1), 0);
    release(last);
    release(kept);
    /* And one that waits. */
    kept = granted(ASK({"b", 2}));
    last = put_kept(other, ASK({"b", 1}));
    timer_deliver(&other->timer, last->record, word);
    assert_int_equal(weir_queue_reap(other, &(struct weir_completion){0}, 1), 0);
    release(last);
    release(kept);
    weir_queue_close(other);
    weir_queue_close(queue);
    world_close();
}

/* News of what was said already, or has changed, make no second completion. */
static void late_news_make_no_second_completion(void **state)
{
    weir_queue *queue;
    weir_acquisition *kept;
    uint64_t word;

    (void)state;
    world_limits(A);
    queue = open_queue();
    kept = put_kept(queue, ASK({"a", 1}));
    word = record_load(&record_of(kept->record)->word);
    timer_notify(world.w, kept->record, word);
    assert_ptr_equal(reap_one(queue).acquisition, kept);
    timer_notify(world.w, kept->record, word);
    assert_int_equal(weir_queue_reap(queue, &(struct weir_completion){0}, 1), 0);
    release(kept);
    weir_queue_close(queue);
    world_close();
}

/* A releaser finds a waiter at the head that its program is just giving up. */
static void what_was_dropped_is_not_armed_again(void **state)
{
    weir_queue *queue;
    weir_acquisition *kept;
    uint64_t word;

    (void)state;
    world_limits(RATE);
    queue = open_queue();
    assert_int_equal(take(ASK({"tokens", 10})), 0);
    kept = put_kept(queue, ASK({"tokens", 2}));
    word = record_load(&record_of(kept->record)->word);
    assert_int_equal(queue->timer.heap.n, 1);
    cq_forget_acquisition(kept); /* the first half of a release */
    timer_arm_recheck(world.w, kept->record, word, world.now + SECOND);
    assert_int_equal(queue->timer.heap.n, 0);
    release(kept);
    assert_int_equal(queue->timer.heap.n, 0);
    weir_queue_close(queue);
    world_close();
}

/* A thread that read the wait queue before says when its head is to be looked at. The head is free
 * by now, or about to be used for another request. */
static void what_does_not_wait_is_not_armed(void **state)
{
    weir_acquisition *kept;
    weir_queue *queue;
    uint32_t record;

    (void)state;
    world_limits(RATE);
    queue = open_queue();
    assert_int_equal(take(ASK({"tokens", 10})), 0);
    kept = put_kept(queue, ASK({"tokens", 2}));
    record = kept->record;
    release(kept);
    timer_arm_recheck(world.w, record, record_load(&record_of(record)->word), world.now + SECOND);
    record_set_prev_flags(record_of(record), 0); /* as of one that is submitted now */
    timer_arm_recheck(world.w, record, record_load(&record_of(record)->word), world.now + SECOND);
    assert_int_equal(queue->timer.heap.n, 0);
    assert_int_equal(instance_wait(world.w)->timer.heap.n, 0);
    weir_queue_close(queue);
    world_close();
}

static void nothing_stays_armed(void **state)
{
    weir_acquisition *holder, *kept;
    weir_queue *queue;

    (void)state;
    world_limits(RATE "," A);
    queue = open_queue();
    holder = granted(ASK({"a", 1}, {"tokens", 10}));
    for (uint64_t i = 0; i < 5; i++)
        put(queue, with_timeout(ASK({"a", 1}, {"tokens", 1}), (i + 1) * SECOND), i);
    kept = put_kept(queue, with_timeout(ASK({"a", 1}), SECOND));
    assert_int_equal(queue->timer.heap.n, 6);
    release(kept);
    assert_int_equal(queue->timer.heap.n, 5);
    assert_int_equal(weir_queue_cancel(queue, 3), 1);
    assert_int_equal(queue->timer.heap.n, 4);
    advance(SECOND);
    assert_int_equal(queue->timer.heap.n, 3);
    release_used(holder, "tokens", 0); /* grants to the next */
    assert_int_equal(queue->timer.heap.n, 2);
    assert_int_equal(queue->pending, 5);
    weir_queue_close(queue);
    assert_int_equal(queue->timer.heap.n, 0);
    assert_int_equal(queue->pending, 0);
    assert_int_equal(instance_wait(world.w)->timer.heap.n, 0);
    world_close();
}

/* The memory of submissions comes back: as many records as were in use at once. */
static void records_are_used_again(void **state)
{
    struct weir_completion done[64];
    weir_acquisition *holder;
    weir_queue *queue;
    size_t used = 0;

    (void)state;
    world_set("max_waiters: 5, limits: [ " A " ]");
    queue = open_queue();
    holder = granted(ASK({"a", 1}));
    for (unsigned round = 0; round < 2000; round++) {
        for (unsigned i = 0; i < 10; i++)
            put(queue, with_timeout(ASK({"a", 1}), 1 + i % 2), i);
        put(queue, ASK({"a", 0}), 3);
        assert_int_equal(weir_queue_submit(queue, world.pool, ASK({"a", 2}), 1, NULL, NULL),
                         -ERANGE);
        assert_int_equal(weir_queue_cancel(queue, 3), 2);
        advance(1);
        if (round % 2) {
            weir_queue_close(queue);
            queue = open_queue();
        } else {
            advance(1);
            assert_int_equal(weir_queue_reap(queue, done, 64), 11);
        }
        if (round == 10)
            used = world.w->region.records.used;
    }
    assert_int_equal(world.w->region.records.used, used);
    assert_int_equal(instance_wait(world.w)->queues_n, 1);
    release(holder);
    weir_queue_close(queue);
    world_close();
}

static void *put_one(void *argument)
{
    weir_queue *queue = argument;

    put(queue, with_timeout(ASK({"a", 1}), SECOND), 5);
    return NULL;
}

/* Begins to submit in a thread, which is held up when it waits in the queue but is not listed yet:
 * the test has the completion queue's lock. Returns its record. */
static uint32_t put_halfway(weir_queue *queue, pthread_t *ret_thread)
{
    struct set_view view;

    assert_int_equal(pthread_create(ret_thread, NULL, put_one, queue), 0);
    while (stats().waiting == 0)
        sched_yield();
    set_snapshot(thread_ctx_get(world.set), world.set, &view);
    return view.head;
}

/* A thread decides a request that is just being submitted, and has notified already, or is held up
 * before it does. There is one completion, and the completion queue knows of it when the submission
 * has returned. */
static void decided_before_the_submission_has_returned(void **state)
{
    weir_acquisition *holder;
    weir_queue *queue;
    pthread_t thread;

    (void)state;
    for (int told = 0; told < 2; told++) {
        uint32_t record;
        uint64_t word;
        bool call;

        world_limits(A);
        queue = open_queue();
        holder = granted(ASK({"a", 1}));
        put(queue, ASK({"a", 0}), 1); /* makes room */
        release(reap_one(queue).acquisition);
        lock_take(&queue->timer.lock);
        record = put_halfway(queue, &thread);
        assert_true(
            set_cancel_wait(thread_ctx_get(world.set), world.set, record, 0, RECORD_CANCELED));
        word = record_load(&record_of(record)->word);
        call = told && cq_complete(queue, record, word);
        lock_release(&queue->timer.lock);
        if (call)
            timer_signal(&queue->timer);
        pthread_join(thread, NULL);
        assert_int_equal(queue->timer.heap.n, 0);
        assert_int_equal(queue->to_reap.first, record);
        timer_notify(world.w, record, word);
        assert_int_equal(reap_one(queue).result, -ECANCELED);
        assert_int_equal(weir_queue_reap(queue, &(struct weir_completion){0}, 1), 0);
        assert_int_equal(weir_queue_cancel(queue, 5), 0);
        release(holder);
        weir_queue_close(queue);
        world_close();
    }
}

static void *tick(void *unused)
{
    (void)unused;
    weir_tick(world.w);
    return NULL;
}

/*
 * A tick runs the completion queue, and is held up in the middle; meanwhile a timer expires and a
 * reap does what it was set for. The timer must be set for what comes next, whichever is the last.
 */
static void of_two_runs_the_last_sets_the_timer(void **state)
{
    weir_acquisition *holder, *next;
    weir_queue *queue, *other;
    pthread_t thread;

    (void)state;
    fake_clock_set(START);
    world_real("limits: [ " B " ]");
    queue = open_queue();
    other = open_queue();
    holder = granted(ASK({"b", 1}));
    put(queue, with_timeout(ASK({"b", 2}), 100), 1); /* holds up … */
    next = put_kept(other, ASK({"b", 1}));           /* … this one */
    put(queue, with_timeout(ASK({"b", 2}), 103), 2);
    put(queue, with_timeout(ASK({"b", 2}), 200), 3);
    lock_take(&other->timer.lock);
    fake_clock_advance(100);
    assert_int_equal(pthread_create(&thread, NULL, tick, NULL), 0);
    while (record_state(record_load(&record_of(next->record)->word)) != RECORD_HELD)
        sched_yield(); /* then it waits for the lock, to tell */
    fake_clock_advance(5);
    assert_int_equal(reap_one(queue).user_data, 2);
    lock_release(&other->timer.lock);
    pthread_join(thread, NULL);
    assert_int_equal(queue->timer.wake_fd.at_ns, START + 200); /* before the next reap */
    assert_int_equal(reap_one(queue).user_data, 1);
    assert_false(readable(weir_queue_fd(queue)));
    fake_clock_advance(95);
    assert_true(readable(weir_queue_fd(queue)));
    assert_int_equal(reap_one(queue).result, -ETIMEDOUT);
    assert_int_equal(weir_queue_reap(queue, NULL, 0), 0);
    assert_false(readable(weir_queue_fd(queue)));
    assert_ptr_equal(reap_one(other).acquisition, next);
    release(next);
    release(holder);
    weir_queue_close(other);
    weir_queue_close(queue);
    world_close();
}

static atomic_bool reaped;

static void *advance_step_by_step(void *unused)
{
    (void)unused;
    for (int i = 0; i < 30; i++)
        sched_yield(); /* the reap that is too early is under way, or waits */
    assert_false(atomic_load(&reaped));
    fake_clock_advance(29);
    for (int i = 0; i < 30; i++)
        sched_yield();
    assert_false(atomic_load(&reaped));
    fake_clock_advance(1);
    return NULL;
}

/* Timers expire a moment early. A reap that comes in that moment stays until it is over, as does
 * one for an instant at which there is nothing to do any more. */
static void a_reap_that_comes_early_waits_for_the_instant(void **state)
{
    weir_acquisition *holder;
    weir_queue *queue;

    (void)state;
    for (int canceled = 0; canceled < 2; canceled++) {
        pthread_t thread;
        struct weir_completion c;

        fake_clock_set(START);
        fake_clock_set_lead(30, 30);
        world_real("limits: [ " B " ]");
        queue = open_queue();
        holder = granted(ASK({"b", 1}));
        put(queue, with_timeout(ASK({"b", 2}), 100), 1);
        fake_clock_advance(69);
        assert_false(readable(weir_queue_fd(queue)));
        assert_int_equal(weir_queue_reap(queue, &c, 1), 0); /* is in no hurry */
        fake_clock_advance(1);
        assert_true(readable(weir_queue_fd(queue)));
        if (canceled)
            assert_int_equal(weir_queue_cancel(queue, 1), 1);
        atomic_store(&reaped, false);
        assert_int_equal(pthread_create(&thread, NULL, advance_step_by_step, NULL), 0);
        c = reap_one(queue);
        atomic_store(&reaped, true);
        assert_int_equal(c.result, canceled ? -ECANCELED : -ETIMEDOUT);
        pthread_join(thread, NULL);
        assert_false(readable(weir_queue_fd(queue)));
        release(holder);
        weir_queue_close(queue);
        world_close();
    }
}

/* A participant of the set that processes share: an instance, and a pool of it. */
struct sharer {
    weir *w;
    weir_pool *pool;
};

static void open_sharer(struct sharer *sharer)
{
    const struct weir_options options = {.size = sizeof(options), .process_dir = world_directory()};

    assert_int_equal(weir_open(&sharer->w, &options, NULL), 0);
}

static void join(struct sharer *sharer)
{
    const struct weir_limit_spec slot = {
        .size = sizeof(slot), .type = WEIR_LIMIT_RESOURCE, .key = "b", .capacity = 1};
    const struct weir_set_spec set = {
        .size = sizeof(set), .name = "s", .backend = "process", .limits = &slot, .limits_n = 1};
    const struct weir_pool_spec spec = {.size = sizeof(spec), .sets = &set, .sets_n = 1};

    assert_int_equal(weir_pool_new(&sharer->pool, sharer->w, &spec, NULL), 0);
}

static void leave(struct sharer *sharer)
{
    weir_pool_close(sharer->pool);
    weir_close(sharer->w);
}

/* Its descriptor was made before it was known that there would be other processes. The clock stands
 * still: no look now and then makes up for a doorbell that was missed. */
static void a_queue_learns_of_a_set_that_came_later(void **state)
{
    struct sharer giver, waiter;
    weir_acquisition *held = NULL;
    weir_queue *queue;
    struct pollfd fd = {.events = POLLIN};
    struct weir_completion c;

    (void)state;
    fake_clock_set(START);
    open_sharer(&giver);
    open_sharer(&waiter);
    assert_int_equal(weir_queue_open(&queue, waiter.w, 4), 0);
    fd.fd = weir_queue_fd(queue);
    join(&giver);
    join(&waiter);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(weir_try_acquire(giver.pool, NULL, &held, NULL), 0);
        assert_int_equal(weir_queue_submit(queue, waiter.pool, NULL, 1, NULL, NULL), 0);
        assert_int_equal(poll(&fd, 1, 0), 0);
        release(held);
        assert_int_equal(poll(&fd, 1, 3000), 1);
        c = reap_one(queue);
        assert_int_equal(c.result, 0);
        release(c.acquisition);
    }
    weir_queue_close(queue);
    leave(&giver);
    leave(&waiter);
}

/* The giver has the doorbell of the one before open, which has the same name. As above, no look
 * makes up for it. */
static void a_queue_in_the_place_of_another_one_is_notified(void **state)
{
    struct sharer giver, waiter;
    weir_acquisition *held = NULL;

    (void)state;
    fake_clock_set(START);
    open_sharer(&giver);
    open_sharer(&waiter);
    join(&giver);
    join(&waiter);
    for (int i = 0; i < 4; i++) {
        struct pollfd fd = {.events = POLLIN};
        struct weir_completion c;
        weir_queue *queue;
        uint64_t opened;

        assert_int_equal(weir_queue_open(&queue, waiter.w, 4), 0);
        fd.fd = weir_queue_fd(queue);
        for (int k = 0; k < 2; k++) {
            assert_int_equal(weir_try_acquire(giver.pool, NULL, &held, NULL), 0);
            assert_int_equal(weir_queue_submit(queue, waiter.pool, NULL, 1, NULL, NULL), 0);
            assert_int_equal(poll(&fd, 1, 0), 0);
            opened = fake_os_counts().open;
            release(held);
            assert_int_equal(fake_os_counts().open - opened, k == 0);
            assert_int_equal(poll(&fd, 1, 3000), 1);
            c = reap_one(queue);
            assert_int_equal(c.result, 0);
            release(c.acquisition);
        }
        weir_queue_close(queue);
    }
    leave(&giver);
    leave(&waiter);
}

static uint64_t doorbell_changes(const struct sharer *sharer)
{
    const struct participant *participant = instance_set(sharer->w, 0)->participant;

    return atomic_load(&segment_peer(participant->segment, participant->slot)->doorbells_changed);
}

static int doorbells_kept(const struct sharer *sharer)
{
    const struct doorbell_cache *cache = instance_set(sharer->w, 0)->participant->doorbells;
    int n = 0;

    for (uint32_t i = 0; i < DOORBELL_CACHE_SIZE; i++)
        n += cache->entries[i].fd >= 0;
    return n;
}

/* A process that has opened something else of the name, or the one before, learns that there is
 * another one. */
static void a_doorbell_is_counted_when_opened_and_when_closed(void **state)
{
    struct sharer waiter;

    (void)state;
    fake_clock_set(START);
    open_sharer(&waiter);
    join(&waiter);
    for (int i = 0; i < 3; i++) {
        uint64_t before = doorbell_changes(&waiter);
        weir_queue *queue;

        assert_int_equal(weir_queue_open(&queue, waiter.w, 4), 0);
        assert_int_equal(weir_queue_submit(queue, waiter.pool, NULL, 1, NULL, NULL), 0);
        assert_int_equal(doorbell_changes(&waiter), before + 1);
        release(reap_one(queue).acquisition);
        weir_queue_close(queue);
        assert_int_equal(doorbell_changes(&waiter), before + 2);
    }
    leave(&waiter);
}

/* Those that left in order, when others have come since. */
static void doorbells_of_those_that_left_are_closed(void **state)
{
    struct sharer giver, waiter, next;
    weir_acquisition *held = NULL;
    weir_queue *queue;

    (void)state;
    fake_clock_set(START);
    open_sharer(&giver);
    open_sharer(&waiter);
    open_sharer(&next);
    join(&giver);
    join(&waiter);
    assert_int_equal(weir_queue_open(&queue, waiter.w, 4), 0);
    assert_int_equal(weir_try_acquire(giver.pool, NULL, &held, NULL), 0);
    assert_int_equal(weir_queue_submit(queue, waiter.pool, NULL, 1, NULL, NULL), 0);
    release(held);
    release(reap_one(queue).acquisition);
    peer_reap(NULL, instance_set(giver.w, 0));
    assert_int_equal(doorbells_kept(&giver), 1);
    weir_queue_close(queue);
    leave(&waiter);
    join(&next);
    peer_reap(NULL, instance_set(giver.w, 0));
    assert_int_equal(doorbells_kept(&giver), 0);
    leave(&giver);
    leave(&next);
}

/* What another process granted is listed by the call that takes it out of the list. */
static void a_reap_does_not_signal_its_own_queue(void **state)
{
    struct sharer giver, waiter;
    weir_acquisition *held = NULL;
    struct pollfd fd = {.events = POLLIN};
    struct weir_completion c[2];
    uint64_t signals, drains;
    weir_queue *queue;

    (void)state;
    fake_clock_set(START);
    open_sharer(&giver);
    open_sharer(&waiter);
    join(&giver);
    join(&waiter);
    assert_int_equal(weir_queue_open(&queue, waiter.w, 4), 0);
    fd.fd = weir_queue_fd(queue);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(weir_try_acquire(giver.pool, NULL, &held, NULL), 0);
        assert_int_equal(weir_queue_submit(queue, waiter.pool, NULL, 1, NULL, NULL), 0);
        release(held);
        signals = fake_os_counts().signal;
        drains = fake_os_counts().drain;
        assert_int_equal(weir_queue_reap(queue, c, 2), 1);
        assert_int_equal(fake_os_counts().signal, signals);
        assert_int_equal(fake_os_counts().drain, drains + 1); /* the doorbell alone */
        assert_int_equal(poll(&fd, 1, 0), 0);
        release(c[0].acquisition);
    }
    /* One is left: the descriptor stays readable. */
    assert_int_equal(weir_try_acquire(giver.pool, NULL, &held, NULL), 0);
    assert_int_equal(weir_queue_submit(queue, waiter.pool, NULL, 1, NULL, NULL), 0);
    release(held);
    assert_int_equal(weir_queue_reap(queue, c, 0), 0);
    assert_int_equal(poll(&fd, 1, 0), 1);
    release(reap_one(queue).acquisition);
    assert_int_equal(poll(&fd, 1, 0), 0);
    weir_queue_close(queue);
    leave(&giver);
    leave(&waiter);
}

/* The timer thread hears for the queue as it does for one that is attached. */
static void relay(weir_queue *queue)
{
    assert_int_equal(timer_thread_start(queue->timer.w), 0);
    lock_take(&queue->timer.lock);
    assert_int_equal(peer_events_relay(&queue->timer), 0);
    lock_release(&queue->timer.lock);
}

/* Everything that it takes to hear of a set is missing in turn. It can be had the next time. */
static void what_a_doorbell_needs_is_missing(void **state)
{
    struct sharer waiter;
    weir_queue *queue;
    unsigned failures = 0;
    bool failed = true;

    (void)state;
    fake_clock_set(START);
    open_sharer(&waiter);
    join(&waiter);
    assert_int_equal(weir_queue_open(&queue, waiter.w, 4), 0);
    relay(queue);
    for (unsigned at = 1; failed; at++) {
        int r;

        fake_os_fail_kind_from(at, FAKE_ANY, 0); /* what a segment lacks is tried twice */
        r = weir_queue_submit(queue, waiter.pool, NULL, at, NULL, NULL);
        failed = fake_os_has_failed();
        fake_os_fail_at(0);
        assert_true(r == 0 || (failed && (r == -ENOMEM || r == -EMFILE || r == -EIO)));
        failures += r < 0;
        if (r == 0)
            release(reap_one(queue).acquisition);
    }
    assert_true(failures >= 8);
    weir_queue_close(queue);
    leave(&waiter);
}

/*
 * A thread has signaled the timer thread, and before that runs, another sets its instant, which
 * takes the signal back and cannot signal anew. The timer thread looks after all completion queues
 * all the same: also after one with a program that was not told that there is something to be
 * reaped.
 */
static void a_call_that_cannot_be_repeated_is_noticed(void **state)
{
    uint64_t waits = fake_os_counts().epoll_wait;
    struct pollfd fd = {.events = POLLIN};
    struct wait_timer *own;
    weir_queue *queue;

    (void)state;
    world_real("limits: [ " B " ]");
    own = &instance_wait(world.w)->timer;
    queue = open_queue();
    fd.fd = weir_queue_fd(queue);
    put(queue, ASK({"b", 1}), 1);
    lock_take(&queue->timer.lock);
    wake_fd_clear(&queue->timer.wake_fd);
    lock_release(&queue->timer.lock);
    assert_int_equal(poll(&fd, 1, 0), 0);
    assert_int_equal(timer_thread_start(world.w), 0);
    while (fake_os_counts().epoll_wait == waits)
        sched_yield();
    lock_take(&own->lock);
    wake_fd_signal(&own->wake_fd);
    fake_os_fail_kind_at(fake_os_timers_ring() ? 2 : 1, FAKE_EVENT, -EPERM);
    wake_fd_set_timer(&own->wake_fd, WEIR_FOREVER);
    assert_true(fake_os_has_failed());
    fake_os_fail_kind_at(0, 0, 0);
    lock_release(&own->lock);
    assert_int_equal(poll(&fd, 1, 3000), 1);
    release(reap_one(queue).acquisition);
    weir_queue_close(queue);
    world_close();
}

/* Another descriptor of what the queue hears by. */
static int doorbell_of(const weir_queue *queue)
{
    char path[64], end[32], name[PATH_MAX];
    size_t length;

    snprintf(end, sizeof(end), ".%u" DOORBELL_SUFFIX, queue->timer.number);
    for (int fd = 0; fd < 1024; fd++) {
        ssize_t n;

        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        n = readlink(path, name, sizeof(name) - 1);
        length = strlen(end);
        if (n > (ssize_t)length && memcmp(name + n - length, end, length) == 0)
            return dup(fd);
    }
    return -1;
}

/* A child that was forked has it as well, so that it does not leave the epoll when it is closed. */
static void no_doorbell_is_read_for_a_queue_that_is_closed(void **state)
{
    const uint32_t record = 1;
    struct sharer waiter;
    struct pollfd events = {.events = POLLIN};
    weir_queue *queue;
    int doorbell;

    (void)state;
    fake_clock_set(START);
    open_sharer(&waiter);
    assert_int_equal(weir_queue_open(&queue, waiter.w, 4), 0);
    join(&waiter);
    assert_int_equal(weir_queue_submit(queue, waiter.pool, NULL, 1, NULL, NULL), 0);
    release(reap_one(queue).acquisition);
    doorbell = doorbell_of(queue);
    assert_true(doorbell >= 0);
    weir_queue_close(queue);
    assert_int_equal(write(doorbell, &record, sizeof(record)), sizeof(record));
    events.fd = wake_fd_pollable(&instance_wait(waiter.w)->timer.wake_fd);
    assert_int_equal(poll(&events, 1, 0), 0);
    close(doorbell);
    leave(&waiter);
}

static int descriptors(void)
{
    int n = 0;

    for (int fd = 0; fd < 1024; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

/* Of one queue that hears by itself, and one for which the timer thread does. */
static void a_child_closes_the_doorbells(void **state)
{
    uint64_t waits = fake_os_counts().epoll_wait;
    int before, left = -1, pipes[2];
    struct sharer waiter;
    weir_queue *queues[2];
    pid_t child;

    (void)state;
    fake_clock_set(START);
    world_directory();
    assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
    before = descriptors();
    open_sharer(&waiter);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(weir_queue_open(&queues[i], waiter.w, 4), 0);
        if (i == 0)
            join(&waiter);
        assert_int_equal(weir_queue_submit(queues[i], waiter.pool, NULL, 1, NULL, NULL), 0);
        release(reap_one(queues[i]).acquisition);
    }
    assert_int_equal(timer_thread_start(waiter.w), 0);
    while (fake_os_counts().epoll_wait == waits)
        sched_yield(); /* then the timer thread has no lock of an allocator */
    child = fork();
    if (child == 0) {
        for (int i = 0; i < 2; i++)
            weir_queue_close(queues[i]);
        weir_close(waiter.w);
        left = descriptors() - before;
        if (write(pipes[1], &left, sizeof(left)) > 0)
            raise(SIGKILL); /* no failure of memory here: that is left to the parent */
        _exit(1);
    }
    assert_true(child > 0);
    close(pipes[1]);
    assert_int_equal(read(pipes[0], &left, sizeof(left)), (int)sizeof(left));
    assert_int_equal(left, 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    close(pipes[0]);
    for (int i = 0; i < 2; i++)
        weir_queue_close(queues[i]);
    leave(&waiter);
}

/* A waiter behind in the closing completion queue is not granted what it gives back. */
static void closing_grants_nothing_to_its_own_waiters(void **state)
{
    weir_queue *queue;

    (void)state;
    world_limits(B);
    queue = open_queue();
    for (uint64_t i = 0; i < 20; i++)
        put(queue, ASK({"b", 1}), i % 3);
    weir_queue_close(queue);
    assert_int_equal(stats().granted, 2);
    assert_int_equal(stats().released, 2);
    assert_int_equal(stats().canceled, 20);
    assert_int_equal(stats().held + stats().waiting, 0);
    world_close();
}

static void *close_it(void *queue)
{
    weir_queue_close(queue);
    return NULL;
}

/* A completion queue that closes is held up after it has canceled a waiter of an acquisition that
 * the program has. Meanwhile the program releases that, and the record is used again: the new use
 * is not touched. */
static void closing_leaves_alone_what_the_program_releases(void **state)
{
    weir_acquisition *holder, *kept, *next;
    weir_queue *queue, *other, *third;
    struct weir_completion c;
    pthread_t thread;
    uint32_t record;

    (void)state;
    world_limits(B);
    queue = open_queue();
    other = open_queue();
    third = open_queue();
    holder = granted(ASK({"b", 1}));
    kept = put_kept(queue, ASK({"b", 2})); /* holds up … */
    next = put_kept(other, ASK({"b", 1})); /* … this one */
    record = kept->record;
    lock_take(&other->timer.lock);
    assert_int_equal(pthread_create(&thread, NULL, close_it, queue), 0);
    while (record_state(record_load(&record_of(next->record)->word)) != RECORD_HELD)
        sched_yield(); /* then it waits for the lock, to tell */
    release(kept);
    release(holder);
    put(third, ASK({"b", 1}), 7);
    put(third, ASK({"b", 0}), 8);
    put(third, ASK({"b", 0}), 9);
    assert_int_not_equal(record_state(record_load(&record_of(record)->word)), RECORD_FREE);
    lock_release(&other->timer.lock);
    pthread_join(thread, NULL);
    assert_int_equal(stats().held, 4);
    for (uint64_t i = 7; i < 10; i++) {
        c = reap_one(third);
        assert_int_equal(c.user_data, i);
        assert_int_equal(c.result, 0);
        release(c.acquisition);
    }
    assert_ptr_equal(reap_one(other).acquisition, next);
    release(next);
    assert_int_equal(stats().held, 0);
    weir_queue_close(third);
    weir_queue_close(other);
    world_close();
}

struct asker {
    weir_acquisition *acquisition;
    _Atomic pid_t thread;
    int fd;
};

static void *ask_for_fd(void *argument)
{
    struct asker *asker = argument;

    asker->thread = gettid();
    asker->fd = weir_acquisition_fd(asker->acquisition);
    return NULL;
}

/* Once it has said its number, it can sleep for a lock only. */
static bool sleeps(const struct asker *asker)
{
    char path[64], line[256], state = '?';
    FILE *file;

    if (!asker->thread)
        return false;
    snprintf(path, sizeof(path), "/proc/self/task/%d/stat", (int)asker->thread);
    file = fopen(path, "re");
    assert_non_null(file);
    assert_non_null(fgets(line, sizeof(line), file));
    state = strrchr(line, ')')[2];
    fclose(file);
    return state == 'S';
}

/* It is handed over while a thread that has seen it there waits for the completion queue's lock. */
static void a_thread_that_waits_for_the_lock_looks_again(void **state)
{
    struct asker asker = {.fd = -1};
    weir_acquisition *holder;
    weir_queue *queue;
    pthread_t thread;

    (void)state;
    world_limits(A);
    queue = open_queue();
    holder = granted(ASK({"a", 1}));
    asker.acquisition = put_kept(queue, ASK({"a", 1}));
    assert_int_equal(weir_acquisition_fd(asker.acquisition), -EBUSY);
    lock_take(&queue->timer.lock);
    assert_int_equal(pthread_create(&thread, NULL, ask_for_fd, &asker), 0);
    while (!sleeps(&asker))
        sched_yield();
    assert_true(set_cancel_wait(thread_ctx_get(world.set), world.set, asker.acquisition->record, 0,
                                RECORD_CANCELED));
    cq_drop(queue, asker.acquisition->waiter);
    cq_hand_out(asker.acquisition, -ECANCELED);
    atomic_fetch_sub(&queue->pending, 1);
    lock_release(&queue->timer.lock);
    pthread_join(thread, NULL);
    assert_true(asker.fd >= 0);
    release(asker.acquisition);
    release(holder);
    weir_queue_close(queue);
    world_close();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_checked_test(late_news_of_a_record_that_has_no_queue_any_more),
        leak_checked_test(late_news_make_no_second_completion),
        leak_checked_test(what_was_dropped_is_not_armed_again),
        leak_checked_test(what_does_not_wait_is_not_armed),
        leak_checked_test(nothing_stays_armed),
        leak_checked_test(records_are_used_again),
        leak_checked_test(decided_before_the_submission_has_returned),
        leak_checked_test(of_two_runs_the_last_sets_the_timer),
        leak_checked_test(a_reap_that_comes_early_waits_for_the_instant),
        leak_checked_test(a_queue_learns_of_a_set_that_came_later),
        leak_checked_test(a_queue_in_the_place_of_another_one_is_notified),
        leak_checked_test(a_doorbell_is_counted_when_opened_and_when_closed),
        leak_checked_test(doorbells_of_those_that_left_are_closed),
        leak_checked_test(a_reap_does_not_signal_its_own_queue),
        leak_checked_test(what_a_doorbell_needs_is_missing),
        leak_checked_test(a_call_that_cannot_be_repeated_is_noticed),
        leak_checked_test(no_doorbell_is_read_for_a_queue_that_is_closed),
        leak_checked_test(a_child_closes_the_doorbells),
        leak_checked_test(closing_grants_nothing_to_its_own_waiters),
        leak_checked_test(closing_leaves_alone_what_the_program_releases),
        leak_checked_test(a_thread_that_waits_for_the_lock_looks_again),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
