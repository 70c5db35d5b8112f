/* SPDX-License-Identifier: MIT */
/* Late actions of a thread that was held up. It finds that a record or a version is another by now,
 * and does nothing. Calls internal functions, to be late on purpose. */
#include "api/acquisition.h"
#include "api/instance.h"
#include "set/hooks.h"
#include "set/waiter.h"
#include "shared.h"
#include "state/version.h"
#include "stepping.h"
#include "wait/cq.h"
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static const char text[] = "version: 1\n"
                           "sets:\n"
                           "  s:\n"
                           "    backend: process\n"
                           "    limits:\n"
                           "      - { type: resource, key: slot, capacity: 2 }\n";

static weir *w;
static weir_pool *pool;
static weir_set *set;

static int setup(void **state)
{
    (void)state;
    shared_begin();
    w = shared_open(text);
    pool = shared_pool(w, "s");
    set = weir_pool_set(pool, 0);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    weir_pool_close(pool);
    weir_close(w);
    shared_end();
    return 0;
}

static weir_acquisition *hold(uint64_t n)
{
    struct shared_request memory;
    weir_acquisition *acquisition = NULL;

    assert_int_equal(weir_try_acquire(pool, shared_ask(&memory, "slot", n, 0), &acquisition, NULL),
                     0);
    return acquisition;
}

/* The publisher of the block's former version says late that all its waiters were notified. */
static void tell_of_the_version_before(void)
{
    struct set_head *head = region_block(set->region, set->head_unit);
    const struct version before = {.state_word = atomic_load(&head->state_word) -
                                                 (UINT64_C(1) << BLOCK_SLOT_BITS)};

    version_set_notified(set->region, set->head_unit, &before);
}

/* So this version counts as untold; but it has decided nothing. */
static void a_waiter_that_has_just_joined_is_not_notified(void **state)
{
    struct shared_request memory;
    struct weir_completion completion;
    weir_acquisition *held = hold(2);
    weir_queue *queue;

    (void)state;
    assert_int_equal(weir_queue_open(&queue, w, 4), 0);
    assert_int_equal(
        weir_queue_submit(queue, pool, shared_ask(&memory, "slot", 1, WEIR_FOREVER), 1, NULL, NULL),
        0);
    tell_of_the_version_before();
    assert_int_equal(shared_stats(pool).waiting, 1); /* reads it */
    assert_int_equal(weir_queue_reap(queue, &completion, 1), 0);
    weir_release(&held);
    assert_int_equal(weir_queue_reap(queue, &completion, 1), 1);
    assert_int_equal(completion.result, 0);
    weir_release(&completion.acquisition);
    weir_queue_close(queue);
}

static size_t armed(void)
{
    size_t n;

    lock_take(&instance_wait(w)->timer.lock);
    n = instance_wait(w)->timer.heap.n;
    lock_release(&instance_wait(w)->timer.lock);
    return n;
}

/* It waited with a descriptor, and is used again by a blocked thread, which keeps its own time. */
static void a_proxy_record_is_not_armed_for_another(void **state)
{
    struct shared_request memory;
    weir_acquisition *held = hold(2), *pending = NULL, *others[2];
    uint32_t waiter, record;

    (void)state;
    assert_int_equal(
        weir_submit(pool, shared_ask(&memory, "slot", 1, WEIR_FOREVER), &pending, NULL), 1);
    waiter = pending->waiter;
    record = pending->record;
    assert_true(waiter_is_current(w, waiter, waiter_word(w, waiter)));
    weir_release(&pending);
    weir_release(&held);
    others[0] = hold(1); /* the last record given back is the first to be used */
    others[1] = hold(1);
    assert_int_equal(others[1]->record, record);
    assert_int_equal(record_state(waiter_word(w, waiter)), RECORD_HELD);
    timer_arm_recheck(w, waiter, waiter_word(w, waiter), clock_now_ns(&w->clock) + 3600000 * MS);
    assert_int_equal(armed(), 0);
    weir_release(&others[0]);
    weir_release(&others[1]);
}

/* What a heap has of a record that has ended stays there, for the record's next use. */
static void what_no_thread_waits_for_any_more_is_not_armed(void **state)
{
    struct shared_request memory;
    weir_acquisition *held = hold(2), *pending = NULL;
    uint64_t word, later = clock_now_ns(&w->clock) + 3600000 * MS;
    struct acq_record *r;

    (void)state;
    assert_int_equal(
        weir_submit(pool, shared_ask(&memory, "slot", 1, WEIR_FOREVER), &pending, NULL), 1);
    r = record_at(set->region, pending->record);
    word = record_load(&r->word);
    assert_int_equal(weir_cancel(pending), 0);
    assert_int_equal(record_state(record_load(&r->word)), RECORD_CANCELED);
    /* As far as weir_release comes before the proxy record ends; the head of the wait queue was
     * read long before. */
    timer_thread_forget(w, pending->waiter);
    timer_arm_recheck(w, pending->waiter, record_load(&r->word), later);
    assert_int_equal(armed(), 0);
    /* And if any bytes are written there. */
    atomic_store(&r->word, word);
    timer_arm_recheck(w, pending->waiter, word, later);
    assert_int_equal(armed(), 0);
    atomic_store(&r->word, record_next_word(word, RECORD_CANCELED));
    instance_wait(w)->timed_n++; /* it is forgotten once more */
    weir_release(&pending);
    weir_release(&held);
}

/* A thread that granted waiters long ago notifies the head, which is about to wait anew. */
static void a_thread_that_is_about_to_wait_is_not_notified(void **state)
{
    struct shared_request memory;
    struct weir_completion completion;
    weir_acquisition *held = hold(2), *pending[2] = {NULL};
    weir_queue *queue;

    (void)state;
    assert_int_equal(weir_queue_open(&queue, w, 4), 0);
    shared_ask(&memory, "slot", 1, WEIR_FOREVER);
    assert_int_equal(weir_submit(pool, &memory.request, &pending[0], NULL), 1);
    assert_int_equal(weir_queue_submit(queue, pool, &memory.request, 1, &pending[1], NULL), 0);
    for (int i = 0; i < 2; i++) {
        struct acq_record *r = record_at(set->region, pending[i]->record);
        uint64_t word = record_load(&r->word), before = (word >> 8) - 1;

        atomic_store(&r->word, before << 8 | RECORD_FREE); /* as it was until a moment ago */
        timer_notify(w, pending[i]->waiter, before << 8 | RECORD_FREE);
        atomic_store(&r->word, word);
    }
    assert_int_equal(weir_acquisition_result(pending[0]), -EINPROGRESS);
    assert_int_equal(weir_queue_reap(queue, &completion, 1), 0);
    weir_release(&pending[0]);
    weir_release(&pending[1]);
    weir_release(&held);
    weir_queue_close(queue);
}

static void release_it(void *held)
{
    assert_int_equal(weir_release((weir_acquisition **)held), 0);
}

/* It is decided, and notified, while a thread looks up its state. */
static void a_concurrent_reader_finds_no_damage(void **state)
{
    for (uint64_t n = 1;; n++) {
        struct shared_request memory;
        weir_acquisition *held = hold(2), *pending = NULL;
        int result;
        bool stepped;

        assert_int_equal(
            weir_submit(pool, shared_ask(&memory, "slot", 1, WEIR_FOREVER), &pending, NULL), 1);
        stepping_call(n, release_it, (void *)&held);
        result = weir_acquisition_result(pending);
        stepped = stepping_end();
        assert_true(result == 0 || result == -EINPROGRESS);
        weir_release(&held);
        assert_int_equal(weir_acquisition_result(pending), 0);
        weir_release(&pending);
        if (stepped)
            continue;
        assert_true(n > 2);
        break;
    }
    (void)state;
}

static uint32_t newcomer, newcomer_waiter;

static void find_newcomer(void *waiting, uint32_t record, uint32_t waiter)
{
    if (record == ((const weir_acquisition *)waiting)->record)
        return;
    newcomer = record;
    newcomer_waiter = waiter;
}

/* Writes into the record of a thread that is about to join that it was granted what it asks for,
 * and notifies it. */
static void meddle(void *waiting)
{
    struct acq_record *r;
    uint64_t word;

    newcomer = 0;
    participant_each_waiter(set->participant, find_newcomer, waiting);
    if (!newcomer)
        return;
    r = record_at(set->region, newcomer);
    word = record_load(&r->word);
    if (record_state(word) != RECORD_FREE)
        return;
    atomic_store(&r->word, record_next_word(word, RECORD_HELD));
    timer_notify(w, newcomer_waiter, record_next_word(word, RECORD_HELD));
    atomic_store(&r->word, record_next_word(word, RECORD_WAITING));
    timer_arm_recheck(w, newcomer_waiter, record_next_word(word, RECORD_WAITING), 1);
    atomic_store(&r->word, word);
}

/* Each submission is completed once, by what becomes of it. */
static void a_request_that_has_not_joined_is_not_granted(void **state)
{
    struct shared_request memory;
    weir_acquisition *held = hold(2), *waiting = NULL;
    weir_queue *queue;
    bool stepped = true;

    (void)state;
    assert_int_equal(
        weir_submit(pool, shared_ask(&memory, "slot", 1, WEIR_FOREVER), &waiting, NULL), 1);
    assert_int_equal(weir_queue_open(&queue, w, 4), 0);
    for (uint64_t n = 1; stepped; n++) {
        struct weir_completion completion;
        weir_acquisition *ret = NULL;

        stepping_call(n, meddle, waiting);
        assert_int_equal(weir_queue_submit(queue, pool, &memory.request, n, &ret, NULL), 0);
        stepped = stepping_end();
        assert_int_equal(weir_queue_reap(queue, &completion, 1), 0);
        weir_release(&ret);
    }
    weir_release(&waiting);
    weir_release(&held);
    weir_queue_close(queue);
}

static void meddle_and_break(void *waiting)
{
    meddle(waiting);
    participant_mark_broken(set->participant);
}

/* A thread was told to look at it before it failed. Returns whether it was stopped at so many
 * steps. */
static bool fail_to_submit(uint64_t n, unsigned *failed)
{
    struct shared_request memory;
    weir_acquisition *held, *waiting = NULL;
    weir_queue *queue;
    bool stepped;
    int r;

    setup(NULL);
    held = hold(2);
    assert_int_equal(
        weir_submit(pool, shared_ask(&memory, "slot", 1, WEIR_FOREVER), &waiting, NULL), 1);
    assert_int_equal(weir_queue_open(&queue, w, 4), 0);
    stepping_call(n, meddle_and_break, waiting);
    r = weir_queue_submit(queue, pool, &memory.request, n, NULL, NULL);
    stepped = stepping_end();
    assert_true(r == 0 || r == -EUCLEAN);
    *failed += r < 0;
    if (r < 0)
        assert_int_equal(queue->timer.heap.n, 0);
    weir_release(&waiting);
    weir_release(&held);
    weir_queue_close(queue);
    teardown(NULL);
    return stepped;
}

static void a_request_that_could_not_join_is_not_armed(void **state)
{
    unsigned failed = 0;

    (void)state;
    for (uint64_t n = 1; fail_to_submit(n, &failed); n++)
        ;
    assert_true(failed > 1);
}

/* It was in another completion queue, or in none, when it was looked at. */
static void only_its_own_queue_is_notified(void **state)
{
    struct shared_request memory;
    struct weir_completion completion;
    weir_acquisition *held = hold(2), *pending = NULL;
    weir_queue *queues[2];
    uint64_t word;

    (void)state;
    shared_ask(&memory, "slot", 1, WEIR_FOREVER);
    for (int i = 0; i < 2; i++)
        assert_int_equal(weir_queue_open(&queues[i], w, 4), 0);
    assert_int_equal(weir_queue_submit(queues[0], pool, &memory.request, 1, &pending, NULL), 0);
    word = record_load(&record_at(set->region, pending->record)->word);
    timer_deliver(&queues[1]->timer, pending->waiter, word);
    assert_int_equal(weir_queue_reap(queues[1], &completion, 1), 0);
    weir_release(&pending);
    weir_release(&held);
    for (int i = 0; i < 2; i++)
        weir_queue_close(queues[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_waiter_that_has_just_joined_is_not_notified, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_proxy_record_is_not_armed_for_another, setup, teardown),
        cmocka_unit_test_setup_teardown(a_thread_that_is_about_to_wait_is_not_notified, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_concurrent_reader_finds_no_damage, setup, teardown),
        cmocka_unit_test_setup_teardown(a_request_that_has_not_joined_is_not_granted, setup,
                                        teardown),
        cmocka_unit_test(a_request_that_could_not_join_is_not_armed),
        cmocka_unit_test_setup_teardown(only_its_own_queue_is_notified, setup, teardown),
        cmocka_unit_test_setup_teardown(what_no_thread_waits_for_any_more_is_not_armed, setup,
                                        teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
