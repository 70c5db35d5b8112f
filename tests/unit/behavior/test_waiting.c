/* SPDX-License-Identifier: MIT */
/* The contract on waiting, sentence by sentence: the wait queue, timeouts, forecasts, refusals,
 * races. */
#include "api/instance.h"
#include "lib/blocked.h"
#include "lib/world.h"
#include "set/txn.h"
#include <pthread.h>
#include <sched.h>
#include <time.h>

/* Ten per ten seconds, one per second; and things that are held. */
#define RATE "{ type: rate, key: tokens, algorithm: token_bucket, capacity: 10, window: 10s }"
#define A    "{ type: resource, key: a, capacity: 1 }"
#define B    "{ type: resource, key: b, capacity: 2 }"

static int result(weir_acquisition *acquisition)
{
    return weir_acquisition_result(acquisition);
}

static weir_acquisition *one_a(void)
{
    return granted(ASK({"a", 1}));
}

/* FIFO */

static void waiters_are_granted_in_order(void **state)
{
    weir_acquisition *waiters[5], *holder;

    (void)state;
    world_limits(A);
    holder = one_a();
    for (int i = 0; i < 5; i++)
        waiters[i] = pending(ASK({"a", 1}));
    assert_int_equal(stats().waiting, 5);
    for (int i = 0; i < 5; i++) {
        release(holder);
        for (int j = i; j < 5; j++)
            assert_int_equal(result(waiters[j]), j == i ? 0 : -EINPROGRESS);
        holder = waiters[i];
    }
    release(holder);
    assert_int_equal(stats().waiting, 0);
    world_close();
}

static void waiters_for_a_rate_are_granted_in_order_each_at_its_instant(void **state)
{
    static const uint64_t amounts[] = {5, 1, 3, 1};
    weir_acquisition *waiters[4];

    (void)state;
    world_limits(RATE);
    assert_int_equal(take(ASK({"tokens", 10})), 0);
    for (int i = 0; i < 4; i++)
        waiters[i] = pending(ASK({"tokens", amounts[i]}));
    for (int i = 0; i < 4; i++) {
        assert_int_equal(advance(amounts[i] * SECOND - 1), 0);
        assert_int_equal(result(waiters[i]), -EINPROGRESS);
        assert_int_equal(advance(1), 1);
        assert_int_equal(result(waiters[i]), 0);
    }
    for (int i = 0; i < 4; i++)
        release_used(waiters[i], "tokens", amounts[i]);
    world_close();
}

static void no_request_overtakes_an_earlier_waiter_try_and_take_included(void **state)
{
    weir_acquisition *a, *b, *c = NULL;

    (void)state;
    world_limits(RATE);
    assert_int_equal(take(ASK({"tokens", 10})), 0);
    a = pending(ASK({"tokens", 5}));
    world.now += SECOND; /* one token is there; the waiter needs five */
    assert_int_equal(available(0), 1);
    assert_int_equal(take(ASK({"tokens", 1})), -EAGAIN);
    assert_int_equal(try_acquire(ASK({"tokens", 1}), &c), -EAGAIN);
    b = pending(ASK({"tokens", 1}));
    assert_int_equal(available(0), 1);
    assert_int_equal(result(a), -EINPROGRESS);
    release(a);
    assert_int_equal(result(b), 0);
    release_used(b, "tokens", 1);
    world_close();
}

static void no_request_overtakes_one_that_is_still_to_be_queued(void **state)
{
    weir_acquisition *a = NULL, *b = NULL;

    (void)state;
    world_limits(RATE);
    assert_int_equal(take(ASK({"tokens", 6})), 0);
    assert_int_equal(weir_submit(world.pool, ASK({"tokens", 5}), &a, NULL), 1);
    assert_int_equal(try_acquire(ASK({"tokens", 1}), &b), -EAGAIN);
    release(a);
    world_close();
}

static void no_request_overtakes_even_if_the_keys_are_disjoint(void **state)
{
    weir_acquisition *holder, *a, *b, *c = NULL;

    (void)state;
    world_limits(A "," B "," RATE);
    holder = granted(ASK({"a", 1}, {"b", 0}));
    a = pending(ASK({"a", 1}, {"b", 0}));
    assert_int_equal(try_acquire(ASK({"a", 0}, {"b", 1}), &c), -EAGAIN);
    assert_forecast("a", 0); /* what holds up the others */
    assert_int_equal(take(ASK({"a", 0}, {"b", 0}, {"tokens", 1})), -EAGAIN);
    b = pending(ASK({"a", 0}, {"b", 1}));
    release(holder);
    assert_int_equal(result(a), 0);
    assert_int_equal(result(b), 0);
    release(a);
    release(b);
    world_close();
}

static void fair_false_lets_newcomers_barge(void **state)
{
    weir_acquisition *a, *b;

    (void)state;
    world_set("fair: false, limits: [ " RATE " ]");
    assert_int_equal(take(ASK({"tokens", 10})), 0);
    a = pending(ASK({"tokens", 5}));
    world.now += SECOND;
    assert_int_equal(take(ASK({"tokens", 1})), 0);
    world.now += SECOND;
    b = granted(ASK({"tokens", 1}));
    assert_int_equal(result(a), -EINPROGRESS);
    advance(5 * SECOND - 1); /* five more tokens are needed since */
    assert_int_equal(result(a), -EINPROGRESS);
    advance(1);
    assert_int_equal(result(a), 0);
    release_used(a, "tokens", 5);
    release_used(b, "tokens", 1);
    world_close();
}

static void without_fairness_waiters_among_themselves_stay_fifo(void **state)
{
    weir_acquisition *holder, *a, *b;

    (void)state;
    world_set("fair: false, limits: [ " B " ]");
    holder = granted(ASK({"b", 2}));
    a = pending(ASK({"b", 2}));
    b = pending(ASK({"b", 1}));
    release(holder);
    assert_int_equal(result(a), 0);
    assert_int_equal(result(b), -EINPROGRESS);
    release(a);
    assert_int_equal(result(b), 0);
    release(b);
    world_close();
}

/*
 * The one that held up the others leaves in one way or another; the next must not wait any longer.
 */
static void the_waiters_behind_a_leaving_head_are_rechecked(void **state)
{
    enum { CANCEL, RELEASE, TIMEOUT, MAX_WAIT };

    (void)state;
    for (int way = CANCEL; way <= MAX_WAIT; way++) {
        struct weir_request *large = ASK({"b", 2});
        weir_acquisition *holder, *head, *next, *last;

        world_limits(B);
        holder = granted(ASK({"b", 1}));
        if (way == TIMEOUT)
            large->timeout_ns = SECOND;
        if (way == MAX_WAIT)
            large->max_wait_ns = SECOND;
        head = pending(large);
        next = pending(ASK({"b", 1}));
        last = pending(ASK({"b", 1}));
        if (way == CANCEL)
            assert_int_equal(weir_cancel(head), 0);
        else if (way == RELEASE)
            assert_int_equal(weir_release(&head), 0);
        else
            assert_int_equal(advance(SECOND), 2);
        settle();
        assert_int_equal(result(next), 0);
        assert_int_equal(result(last), -EINPROGRESS);
        assert_int_equal(stats().waiting, 1);
        release(last);
        release(next);
        assert_int_equal(weir_release(&head), 0);
        release(holder);
        world_close();
    }
}

/* A new head that waits for time must be served then: the instant is armed anew. */
static void a_new_head_is_granted_at_its_own_instant(void **state)
{
    weir_acquisition *head, *next;

    (void)state;
    world_limits(RATE);
    assert_int_equal(take(ASK({"tokens", 10})), 0);
    head = pending(ASK({"tokens", 9}));
    next = pending(ASK({"tokens", 2}));
    assert_int_equal(weir_cancel(head), 0);
    advance(2 * SECOND - 1);
    assert_int_equal(result(next), -EINPROGRESS);
    advance(1);
    assert_int_equal(result(next), 0);
    release_used(next, "tokens", 2);
    release(head);
    world_close();
}

static void what_a_release_gives_back_brings_the_head_forward(void **state)
{
    weir_acquisition *holder, *waiter;

    (void)state;
    world_limits(RATE);
    holder = granted(ASK({"tokens", 10}));
    waiter = pending(ASK({"tokens", 5}));
    release_used(holder, "tokens", 8); /* two of five are there, the others in three seconds */
    assert_int_equal(advance(3 * SECOND - 1), 0);
    assert_int_equal(result(waiter), -EINPROGRESS);
    assert_int_equal(advance(1), 1);
    assert_int_equal(result(waiter), 0);
    release_used(waiter, "tokens", 5);
    world_close();
}

/* As if another thread had read a later instant from a clock of its own processor. */
static void publish_as_of(uint64_t ns)
{
    struct thread_ctx *actor = thread_ctx_get(world.set);
    struct txn op;

    assert_non_null(actor);
    txn_begin(&op, actor, world.set);
    op.at.now_ns = ns;
    assert_true(txn_commit(&op));
}

static void a_thread_with_an_earlier_instant_puts_the_hand_over_off(void **state)
{
    static const char *const sets[] = {A, A "," B, A "," RATE};

    (void)state;
    needs(HAS_OWN_CLOCK);
    for (size_t i = 0; i < sizeof(sets) / sizeof(sets[0]); i++) {
        weir_acquisition *holder, *waiter;

        world_limits(sets[i]);
        holder = granted(ASK({"a", 1}));
        waiter = pending(ASK({"a", 1}));
        publish_as_of(world.now + SECOND);
        release(holder);
        assert_int_equal(result(waiter), -EINPROGRESS);
        assert_int_equal(advance(SECOND - 1), 0);
        assert_int_equal(advance(1), 1);
        assert_int_equal(result(waiter), 0);
        release(waiter);
        world_close();
    }
}

static void canceling_from_the_middle_and_the_tail_keeps_the_order(void **state)
{
    weir_acquisition *waiters[6], *holder;
    static const int leave[] = {2, 5, 3};

    (void)state;
    world_limits(A);
    holder = one_a();
    for (int i = 0; i < 6; i++)
        waiters[i] = pending(ASK({"a", 1}));
    for (int i = 0; i < 3; i++) {
        assert_int_equal(weir_cancel(waiters[leave[i]]), 0);
        assert_int_equal(result(waiters[leave[i]]), -ECANCELED);
        assert_int_equal(stats().waiting, 5 - i);
        release(waiters[leave[i]]);
    }
    release(holder);
    assert_int_equal(result(waiters[0]), 0);
    release(waiters[0]);
    assert_int_equal(result(waiters[1]), 0);
    assert_int_equal(result(waiters[4]), -EINPROGRESS);
    waiters[2] = pending(ASK({"a", 1})); /* behind the new tail */
    release(waiters[1]);
    assert_int_equal(result(waiters[4]), 0);
    release(waiters[4]);
    assert_int_equal(result(waiters[2]), 0);
    release(waiters[2]);
    world_close();
}

static void a_holder_that_asks_again_waits_its_turn(void **state)
{
    weir_acquisition *holder, *other, *again;

    (void)state;
    world_limits(B);
    holder = granted(ASK({"b", 1}));
    other = pending(ASK({"b", 2}));
    again = pending(with_timeout(ASK({"b", 1}), SECOND));
    advance(SECOND);
    assert_int_equal(result(again), -ETIMEDOUT);
    release(again);
    release(holder);
    assert_int_equal(result(other), 0);
    release(other);
    world_close();
}

static void a_releaser_serves_as_many_as_there_is_room_for(void **state)
{
    weir_acquisition *holder, *waiters[4];

    (void)state;
    world_limits("{ type: resource, key: r, capacity: 3 }");
    holder = granted(ASK({"r", 3}));
    for (int i = 0; i < 4; i++)
        waiters[i] = pending(ASK({"r", 1}));
    release(holder);
    for (int i = 0; i < 4; i++)
        assert_int_equal(result(waiters[i]), i < 3 ? 0 : -EINPROGRESS);
    for (int i = 0; i < 4; i++)
        release(waiters[i]);
    world_close();
}

/* Timeouts */

static void a_timeout_is_exact(void **state)
{
    weir_acquisition *holder, *a;

    (void)state;
    world_limits(A);
    holder = one_a();
    a = pending(with_timeout(ASK({"a", 1}), 123456789));
    assert_int_equal(advance(123456788), 0);
    assert_int_equal(result(a), -EINPROGRESS);
    assert_int_equal(advance(1), 1);
    assert_int_equal(result(a), -ETIMEDOUT);
    assert_int_equal(stats().timed_out, 1);
    release(a);
    release(holder);
    world_close();
}

static void the_set_may_give_a_default_timeout(void **state)
{
    weir_acquisition *holder, *a, *b, *c;

    (void)state;
    world_set("timeout: 2s, limits: [ " A " ]");
    holder = one_a();
    a = pending(ASK({"a", 1}));
    b = pending(with_timeout(ASK({"a", 1}), 3 * SECOND));
    c = pending(with_timeout(ASK({"a", 1}), WEIR_FOREVER));
    advance(2 * SECOND);
    assert_int_equal(result(a), -ETIMEDOUT);
    assert_int_equal(result(b), -EINPROGRESS);
    advance(SECOND);
    assert_int_equal(result(b), -ETIMEDOUT);
    advance(UINT64_C(3600) * SECOND);
    assert_int_equal(result(c), -EINPROGRESS);
    release(a);
    release(b);
    release(c);
    release(holder);
    world_close();
}

/* So long, or as long as a session may last without a word of its instance. */
static uint64_t years(uint64_t n)
{
    uint64_t ns = n * 365 * 86400 * SECOND;

    return ns < backend->session_ns ? ns : backend->session_ns - SECOND;
}

static void without_a_timeout_a_waiter_waits_forever(void **state)
{
    weir_acquisition *holder, *a;

    (void)state;
    world_limits(A);
    holder = one_a();
    a = pending(ASK({"a", 1}));
    advance(years(100));
    assert_int_equal(result(a), -EINPROGRESS);
    release(holder);
    assert_int_equal(result(a), 0);
    release(a);
    world_close();
}

/* max_wait */

static void max_wait_refuses_at_once_if_the_forecast_lies_further_away(void **state)
{
    struct picture before, after;
    weir_acquisition *a = NULL;

    (void)state;
    world_limits(RATE);
    assert_int_equal(take(ASK({"tokens", 10})), 0);
    before = picture();
    assert_int_equal(submit(with_max_wait(ASK({"tokens", 4}), 4 * SECOND - 1), &a), -EAGAIN);
    assert_null(a);
    assert_string_equal(refusal.key, "tokens");
    assert_int_equal(refusal.retry_after_ns, 4 * SECOND);
    assert_int_equal(weir_acquire(world.pool, with_max_wait(ASK({"tokens", 4}), 1), &a, &refusal),
                     -EAGAIN);
    after = picture();
    assert_same_limits(&before, &after);
    assert_int_equal(after.set.refused_max_wait, 2);
    assert_int_equal(after.set.refused_busy, 0);
    assert_int_equal(after.limits[0].refused, 2);
    assert_int_equal(after.set.waiting, 0);
    a = pending(with_max_wait(ASK({"tokens", 4}), 4 * SECOND));
    advance(4 * SECOND); /* the grant is due when max_wait passes: it is not further away */
    release(a);
    world_close();
}

static void the_set_may_give_a_default_max_wait(void **state)
{
    weir_acquisition *a = NULL;

    (void)state;
    world_set("max_wait: 2s, limits: [ " RATE " ]");
    assert_int_equal(take(ASK({"tokens", 10})), 0);
    assert_int_equal(submit(ASK({"tokens", 3}), &a), -EAGAIN);
    a = pending(with_max_wait(ASK({"tokens", 3}), WEIR_FOREVER));
    release(a);
    a = pending(ASK({"tokens", 2}));
    release(a);
    world_close();
}

static void a_request_still_waiting_when_max_wait_has_passed_is_refused(void **state)
{
    weir_acquisition *holder, *a;

    (void)state;
    world_limits(A);
    holder = one_a();
    a = pending(with_max_wait(ASK({"a", 1}), SECOND)); /* a resource counts as available */
    assert_int_equal(advance(SECOND - 1), 0);
    assert_int_equal(result(a), -EINPROGRESS);
    assert_int_equal(advance(1), 1);
    assert_int_equal(result(a), -EAGAIN);
    assert_int_equal(stats().refused_max_wait, 1);
    assert_int_equal(stats().timed_out, 0);
    release(a);
    release(holder);
    world_close();
}

static void of_timeout_and_max_wait_the_shorter_decides(void **state)
{
    weir_acquisition *holder, *a, *b, *c;

    (void)state;
    world_limits(A);
    holder = one_a();
    a = pending(with_max_wait(with_timeout(ASK({"a", 1}), 5 * TICK), 7 * TICK));
    b = pending(with_max_wait(with_timeout(ASK({"a", 1}), 7 * TICK), 5 * TICK));
    c = pending(with_max_wait(with_timeout(ASK({"a", 1}), 5 * TICK), 5 * TICK));
    advance(5 * TICK);
    assert_int_equal(result(a), -ETIMEDOUT);
    assert_int_equal(result(b), -EAGAIN);
    if (!backend->is_remote || result(c) != -EAGAIN) /* an engine may end it first */
        assert_int_equal(result(c), -ETIMEDOUT);
    release(a);
    release(b);
    release(c);
    release(holder);
    world_close();
}

/* max_waiters */

static void max_waiters_bounds_the_wait_queue(void **state)
{
    weir_acquisition *holder, *a, *b, *c = NULL;

    (void)state;
    world_set("max_waiters: 2, limits: [ " A " ]");
    holder = one_a();
    a = pending(ASK({"a", 1}));
    b = pending(ASK({"a", 1}));
    assert_int_equal(submit(ASK({"a", 1}), &c), -ENOBUFS);
    assert_non_null(refusal.key);
    assert_string_equal(refusal.set, "main");
    assert_int_equal(weir_acquire(world.pool, ASK({"a", 1}), &c, NULL), -ENOBUFS);
    assert_int_equal(try_acquire(ASK({"a", 1}), &c), -EAGAIN);
    assert_null(c);
    assert_int_equal(stats().refused_full, 2);
    assert_int_equal(stats().refused_busy, 1);
    assert_int_equal(stats().waiting, 2);
    release(a);
    c = pending(ASK({"a", 1}));
    release(b);
    release(c);
    release(holder);
    world_close();
}

static void a_full_wait_queue_says_when_to_come_back(void **state)
{
    weir_acquisition *a, *b = NULL;

    (void)state;
    world_set("max_waiters: 1, limits: [ " RATE " ]");
    assert_int_equal(take(ASK({"tokens", 10})), 0);
    a = pending(ASK({"tokens", 4}));
    assert_int_equal(submit(ASK({"tokens", 2}), &b), -ENOBUFS);
    if (backend->is_foreign) /* as if none waited before it */
        assert_int_equal(refusal.retry_after_ns, 2 * SECOND);
    else
        assert_int_equal(refusal.retry_after_ns, 6 * SECOND);
    release(a);
    world_close();
}

/* Races: the clock is by hand, so "at the same time" can be arranged. */

static void an_unseen_grant_goes_back_when_canceled(void **state)
{
    weir_acquisition *holder, *a;

    (void)state;
    world_limits(RATE "," A);
    holder = one_a();
    a = pending(ASK({"tokens", 4}, {"a", 1}));
    release(holder);
    assert_int_equal(available(0), 6); /* it was granted */
    assert_int_equal(weir_cancel(a), 0);
    settle();
    assert_int_equal(result(a), -ECANCELED);
    assert_int_equal(available(0), 10);
    assert_int_equal(limit_stats(1).held, 0);
    assert_int_equal(weir_cancel(a), -EALREADY);
    release(a);
    assert_int_equal(available(0), 10);
    assert_int_equal(stats().held, 0);
    assert_int_equal(stats().missing_update, 0);
    world_close();
}

static void an_unseen_grant_goes_back_when_released(void **state)
{
    weir_acquisition *holder, *a;

    (void)state;
    world_limits("{ type: rate, key: tokens, algorithm: sliding_window, capacity: 10,"
                 " window: 10s }," A); /* also where unused amounts are not refunded */
    holder = one_a();
    a = pending(ASK({"tokens", 4}, {"a", 1}));
    release(holder);
    assert_int_equal(available(0), 6);
    release(a); /* no -EPROTO: it could not have been used */
    assert_int_equal(available(0), 10);
    assert_int_equal(limit_stats(1).held, 0);
    assert_int_equal(stats().canceled, 1);
    assert_int_equal(stats().held, 0);
    world_close();
}

static void a_grant_that_was_seen_counts_as_used(void **state)
{
    weir_acquisition *holder, *a;

    (void)state;
    world_limits(RATE "," A);
    holder = one_a();
    a = pending(ASK({"tokens", 4}, {"a", 1}));
    release(holder);
    assert_int_equal(result(a), 0);
    assert_int_equal(weir_cancel(a), -EALREADY);
    release_expecting(a, -EPROTO);
    assert_int_equal(available(0), 6);
    assert_int_equal(stats().canceled, 0);
    world_close();
}

static void a_grant_reported_by_the_descriptor_counts_as_seen(void **state)
{
    weir_acquisition *holder, *a;

    (void)state;
    world_limits(RATE "," A);
    holder = one_a();
    a = pending(ASK({"tokens", 4}, {"a", 1}));
    assert_true(weir_acquisition_fd(a) >= 0);
    release(holder);
    release_expecting(a, -EPROTO);
    assert_int_equal(available(0), 6);
    world_close();
}

static void a_timeout_and_a_grant_at_one_instant_resolve_once(void **state)
{
    weir_acquisition *a;
    int r;

    (void)state;
    world_limits(RATE);
    assert_int_equal(take(ASK({"tokens", 10})), 0);
    a = pending(with_timeout(ASK({"tokens", 3}), 3 * SECOND));
    assert_int_equal(advance(3 * SECOND), 1);
    r = result(a);
    assert_true(r == 0 || r == -ETIMEDOUT);
    assert_int_equal(available(0), r == 0 ? 0 : 3);
    assert_int_equal(stats().granted_waited + stats().timed_out, 1);
    assert_int_equal(stats().waiting, 0);
    if (r == 0)
        assert_int_equal(weir_update(a, "tokens", 3), 0);
    release(a);
    world_close();
}

static void canceling_what_was_decided_says_ealready(void **state)
{
    weir_acquisition *a, *b;

    (void)state;
    world_limits(A);
    a = one_a();
    assert_int_equal(weir_cancel(a), -EALREADY);
    b = pending(with_timeout(ASK({"a", 1}), 1));
    advance(1);
    assert_int_equal(weir_cancel(b), -EALREADY);
    assert_int_equal(result(b), -ETIMEDOUT);
    release(b);
    b = pending(ASK({"a", 1}));
    assert_int_equal(weir_cancel(b), 0);
    assert_int_equal(weir_cancel(b), -EALREADY);
    assert_int_equal(stats().canceled, 1);
    release(b);
    release(a);
    world_close();
}

/* Refusals */

static void every_refusal_tells_key_set_and_when_to_come_back(void **state)
{
    weir_acquisition *holder, *a = NULL;

    (void)state;
    world_set("strict: true, limits: [ " RATE "," A "," B " ]");
    holder = granted(ASK({"tokens", 10}, {"a", 1}, {"b", 0}));
    assert_int_equal(try_acquire(ASK({"tokens", 2}, {"a", 0}, {"b", 0}), &a), -EAGAIN);
    assert_string_equal(refusal.key, "tokens");
    assert_int_equal(refusal.retry_after_ns, 2 * SECOND);
    assert_int_equal(take(ASK({"tokens", 3}, {"a", 0}, {"b", 0})), -EAGAIN);
    assert_string_equal(refusal.key, "tokens");
    assert_int_equal(refusal.retry_after_ns, 3 * SECOND);
    assert_int_equal(try_acquire(ASK({"a", 1}, {"b", 1}), &a), -EAGAIN);
    assert_string_equal(refusal.key, "a");
    assert_int_equal(refusal.retry_after_ns, 0); /* has no forecast */
    assert_int_equal(try_acquire(ASK({"b", 3}), &a), -ERANGE);
    assert_string_equal(refusal.key, "b");
    assert_int_equal(refusal.retry_after_ns, WEIR_FOREVER);
    assert_int_equal(try_acquire(ASK({"c", 3}), &a), -ENOENT);
    assert_string_equal(refusal.key, "c");
    assert_string_equal(refusal.set, "main");
    release_expecting(holder, -EPROTO);
    world_close();
}

/* Both a resource and a rate are short: the rate says when. */
static void retry_after_is_the_latest_of_all_limits(void **state)
{
    weir_acquisition *holder, *a = NULL;

    (void)state;
    world_limits(RATE ","
                      "{ type: call, algorithm: gcra, capacity: 2, window: 1s }," A);
    holder = granted(ASK({"tokens", 10}, {"call_count", 2}, {"a", 1}));
    assert_int_equal(try_acquire(ASK({"tokens", 7}), &a), -EAGAIN);
    assert_forecast("tokens", 7 * SECOND);
    assert_int_equal(try_acquire(ASK({"a", 1}), &a), -EAGAIN);
    assert_forecast("call_count", SECOND / 2);
    assert_int_equal(weir_update(holder, "tokens", 10), 0);
    assert_int_equal(weir_update(holder, "call_count", 2), 0);
    release(holder);
    world_close();
}

/* Coming back when told, alone, is always enough. */
static void retry_after_is_exact_for_a_caller_that_is_alone(void **state)
{
    static const char *const algorithms[] = {"token_bucket",
                                             "gcra",
                                             "leaky_bucket",
                                             "sliding_window",
                                             "fixed_window",
                                             "token_bucket, every: 500ms",
                                             "leaky_bucket, mode: shaper",
                                             "sliding_window, segments: 4"};

    (void)state;
    for (size_t i = 0; i < sizeof(algorithms) / sizeof(*algorithms); i++) {
        char limit[200];

        snprintf(limit, sizeof(limit),
                 "{ type: rate, key: k, capacity: 6, window: 3s, algorithm: %s }", algorithms[i]);
        world_limits(limit);
        for (uint64_t n = 1; n <= 200; n++) {
            uint64_t wait;

            world.now += n * n * 1000003 % SECOND / TICK * TICK;
            if (take(ASK({"k", 1 + n % 6})) == 0)
                continue;
            wait = refusal.retry_after_ns;
            assert_true(wait > 0);
            world.now += wait - TICK;
            assert_int_equal(take(ASK({"k", 1 + n % 6})), -EAGAIN);
            assert_int_equal(refusal.retry_after_ns, TICK);
            world.now += TICK;
            assert_int_equal(take(ASK({"k", 1 + n % 6})), 0);
        }
        world_close();
    }
}

static void a_pending_acquisition_that_was_refused_tells_why(void **state)
{
    struct weir_refusal r = {.size = sizeof(r)};
    weir_acquisition *holder, *a, *b, *c;

    (void)state;
    world_limits(A "," RATE);
    holder = granted(ASK({"a", 1}, {"tokens", 10}));
    a = pending(with_timeout(ASK({"a", 1}, {"tokens", 3}), SECOND));
    b = pending(with_max_wait(ASK({"a", 1}), SECOND + 3 * SECOND));
    c = pending(ASK({"a", 1}));
    assert_int_equal(weir_acquisition_refusal(holder, &r), -EINVAL);
    assert_int_equal(weir_acquisition_refusal(a, &r), -EINVAL);
    advance(SECOND);
    assert_int_equal(weir_acquisition_refusal(a, &r), 0);
    assert_string_equal(r.set, "main");
    refusal = r;
    assert_forecast("tokens", 2 * SECOND);
    advance(3 * SECOND);
    assert_int_equal(weir_acquisition_refusal(b, &r), 0);
    refusal = r;
    assert_forecast("a", 0);
    assert_int_equal(weir_cancel(c), 0);
    assert_int_equal(weir_acquisition_refusal(c, &r), -EINVAL);
    r.size--;
    assert_int_equal(weir_acquisition_refusal(b, &r), -EINVAL);
    assert_int_equal(weir_acquisition_refusal(b, NULL), -EINVAL);
    release(a);
    release(b);
    release(c);
    release_used(holder, "tokens", 10);
    world_close();
}

/* Permits, holders */

static void no_permit_expires_while_its_holder_lives(void **state)
{
    weir_acquisition *a, *b = NULL;

    (void)state;
    world_limits(A);
    a = one_a();
    advance(years(200));
    assert_int_equal(result(a), 0);
    assert_int_equal(try_acquire(ASK({"a", 1}), &b), -EAGAIN);
    assert_int_equal(limit_stats(0).held, 1);
    release(a);
    assert_int_equal(limit_stats(0).held, 0);
    world_close();
}

static void holder_and_age_can_be_seen(void **state)
{
    struct weir_holder holders[4] = {{0}};
    weir_acquisition *a, *b, *c;

    (void)state;
    world_limits(B);
    assert_int_equal(weir_set_holders(world.set, holders, 4), 0);
    a = granted(ASK({"b", 1}));
    world.now += 5;
    b = granted(ASK({"b", 1}));
    world.now += 5;
    c = pending(ASK({"b", 1}));
    world.now += 5;
    assert_int_equal(weir_set_holders(world.set, holders, 4), 3);
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(holders[i].since_ns, START + 5 * i);
        assert_int_equal(holders[i].waiting, i == 2);
        assert_true(holders[i].thread > 0);
        assert_true(holders[i].id != holders[(i + 1) % 3].id);
    }
    assert_int_equal(weir_set_holders(world.set, NULL, 0), 3);
    holders[1].id = 0;
    assert_int_equal(weir_set_holders(world.set, holders, 1), 3);
    assert_int_equal(holders[1].id, 0);
    release(a); /* the waiter holds since now */
    assert_int_equal(weir_set_holders(world.set, holders, 4), 2);
    assert_int_equal(holders[0].since_ns, START + 5);
    assert_int_equal(holders[1].since_ns, START + 15);
    assert_int_equal(holders[1].waiting, 0);
    release(b);
    release(c);
    assert_int_equal(weir_set_holders(world.set, holders, 4), 0);
    world_close();
}

/* Blocked threads */

static void a_blocked_caller_is_granted_in_time(void **state)
{
    struct blocked blocked;

    (void)state;
    world_limits(RATE);
    assert_int_equal(take(ASK({"tokens", 10})), 0);
    blocked_enqueue(&blocked, ASK({"tokens", 3}), 1);
    assert_int_equal(advance(3 * SECOND - 1), 0);
    assert_int_equal(stats().waiting, 1);
    assert_int_equal(advance(1), 1);
    blocked_join(&blocked, 0);
    release_used(blocked.acquisition, "tokens", 3);
    world_close();
}

static void a_blocked_caller_times_out_and_learns_why(void **state)
{
    struct blocked blocked;
    weir_acquisition *holder;

    (void)state;
    world_limits(A);
    holder = one_a();
    blocked_enqueue(&blocked, with_timeout(ASK({"a", 1}), 5 * TICK), 1);
    assert_int_equal(advance(5 * TICK), 1);
    blocked_join(&blocked, -ETIMEDOUT);
    assert_null(blocked.acquisition);
    assert_string_equal(blocked.refusal.set, "main");
    refusal = blocked.refusal;
    assert_forecast("a", 0);
    blocked_enqueue(&blocked, with_max_wait(ASK({"a", 1}), 5 * TICK), 1);
    assert_int_equal(advance(5 * TICK), 1);
    blocked_join(&blocked, -EAGAIN);
    refusal = blocked.refusal;
    assert_forecast("a", 0);
    release(holder);
    world_close();
}

/* Three wait for what is released, and get it one after the other. */
static void expect_grants_in_order(void)
{
    struct blocked blocked[3];
    weir_acquisition *holder = one_a();

    for (unsigned i = 0; i < 3; i++)
        blocked_enqueue(&blocked[i], ASK({"a", 1}), i + 1);
    for (unsigned i = 0; i < 3; i++) {
        release(holder);
        blocked_join(&blocked[i], 0);
        assert_int_equal(stats().waiting, 2 - i);
        holder = blocked[i].acquisition;
    }
    release(holder);
    world_close();
}

static void a_releaser_wakes_the_blocked_one_by_one(void **state)
{
    (void)state;
    world_limits(A);
    expect_grants_in_order();
}

/* On the real clock only what must hold on any machine is checked. */

static uint64_t real_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * SECOND + (uint64_t)now.tv_nsec;
}

static void on_the_real_clock_a_blocked_caller_gets_its_grant(void **state)
{
    weir_acquisition *a = NULL;
    uint64_t began;

    (void)state;
    world_real("limits: [ { type: rate, key: k, algorithm: gcra, capacity: 100, window: 1s } ]");
    began = real_now();
    assert_int_equal(take(ASK({"k", 100})), 0);
    for (uint64_t i = 1; i <= 3; i++) {
        assert_int_equal(weir_acquire(world.pool, ASK({"k", 1}), &a, NULL), 0);
        assert_true(real_now() - began >= i * 10 * MS);
        release_used(a, "k", 1);
    }
    assert_int_equal(stats().granted, 4);
    world_close();
}

static void on_the_real_clock_a_blocked_caller_times_out(void **state)
{
    weir_acquisition *holder, *a = NULL;
    uint64_t began;

    (void)state;
    world_real("limits: [ " A " ]");
    holder = one_a();
    began = real_now();
    assert_int_equal(weir_acquire(world.pool, with_timeout(ASK({"a", 1}), 5 * MS), &a, &refusal),
                     -ETIMEDOUT);
    assert_true(real_now() - began >= 5 * MS);
    assert_null(a);
    assert_forecast("a", 0);
    assert_int_equal(stats().waiting, 0);
    release(holder);
    world_close();
}

static void on_the_real_clock_a_release_wakes_blocked_callers_in_order(void **state)
{
    (void)state;
    world_real("limits: [ " A " ]");
    expect_grants_in_order();
}

/* The first waits for time; the second, blocked behind it, becomes head and must look by itself. */
static void on_the_real_clock_a_new_head_keeps_its_own_time(void **state)
{
    struct blocked first, second;

    (void)state;
    world_real("limits: [ { type: rate, key: k, algorithm: gcra, capacity: 10, window: 1s } ]");
    assert_int_equal(take(ASK({"k", 10})), 0);
    blocked_start(&first, ASK({"k", 3}));
    while (stats().waiting < 1 && stats().granted < 2)
        sched_yield();
    blocked_start(&second, with_timeout(ASK({"k", 1}), 5 * SECOND)); /* rather than hang */
    blocked_join(&first, 0);
    blocked_join(&second, 0);
    assert_int_equal(stats().granted, 3);
    release_used(first.acquisition, "k", 3);
    release_used(second.acquisition, "k", 1);
    world_close();
}

static void on_the_real_clock_one_instant_may_serve_many(void **state)
{
    const struct weir_request *request;
    struct blocked blocked[3];

    (void)state;
    world_real("limits: [ { type: rate, key: k, algorithm: fixed_window, capacity: 3,"
               " window: 300ms } ]");
    assert_int_equal(take(ASK({"k", 3})), 0);
    /* The request lives in this scope, not in that of the loop, while the threads read it. */
    request = with_timeout(ASK({"k", 1}), 5 * SECOND);
    for (int i = 0; i < 3; i++)
        blocked_start(&blocked[i], request);
    for (int i = 0; i < 3; i++) {
        blocked_join(&blocked[i], 0);
        release_used(blocked[i].acquisition, "k", 1);
    }
    world_close();
}

/* A waiter that keeps its own time hands over to the timer thread, and the timer thread to such a
 * waiter. */
static void on_the_real_clock_blocked_and_submitted_waiters_share_a_wait_queue(void **state)
{
    struct blocked first, third;
    weir_acquisition *second = NULL;

    (void)state;
    world_real("limits: [ { type: rate, key: k, algorithm: gcra, capacity: 10, window: 1s } ]");
    assert_int_equal(take(ASK({"k", 10})), 0);
    blocked_start(&first, with_timeout(ASK({"k", 2}), 5 * SECOND));
    while (stats().waiting < 1 && stats().granted < 2)
        sched_yield();
    assert_true(submit(with_timeout(ASK({"k", 1}), 5 * SECOND), &second) >= 0);
    blocked_start(&third, with_timeout(ASK({"k", 1}), 5 * SECOND));
    blocked_join(&first, 0);
    while (result(second) == -EINPROGRESS)
        sched_yield();
    assert_int_equal(result(second), 0);
    blocked_join(&third, 0);
    release_used(first.acquisition, "k", 2);
    release_used(second, "k", 1);
    release_used(third.acquisition, "k", 1);
    world_close();
}

/* Two instances share an unfair set; between two steps of one a request of the other barges. */

static struct {
    weir *w[2];
    weir_pool *pools[2];
    weir_acquisition *first; /* once that is granted */
    uint64_t now;
} barging;

static void *barge(void *unused)
{
    (void)unused;
    assert_int_equal(weir_take(barging.pools[0], ASK({"r", 0}, {"k", 9}), NULL), 0);
    return NULL;
}

/* A thread that reads the set reads the clock next. */
static uint64_t barging_clock(void *unused)
{
    weir_acquisition *first = barging.first;
    pthread_t thread;

    (void)unused;
    if (first && weir_acquisition_result(first) == 0) {
        barging.first = NULL;
        assert_int_equal(pthread_create(&thread, NULL, barge, NULL), 0);
        assert_int_equal(pthread_join(thread, NULL), 0);
    }
    return barging.now;
}

static void open_barging(void)
{
    static const struct weir_clock clock = {.size = sizeof(clock), .now_ns = barging_clock};
    const struct weir_options options = {
        .size = sizeof(options),
        .text = "version: 1\nsets: { s: { backend: process, lifetime: users, fair: false, limits: ["
                " { type: resource, key: r, capacity: 2 }, { type: rate, key: k,"
                " algorithm: token_bucket, capacity: 1000, window: 1s, burst: 10 } ] } }\n",
        .process_dir = world_directory(),
        .clock = &clock};

    barging.now = START;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(weir_open(&barging.w[i], &options, NULL), 0);
        assert_int_equal(weir_pool_open(&barging.pools[i], barging.w[i], "s", 0, NULL), 0);
    }
}

static void close_barging(void)
{
    for (int i = 0; i < 2; i++) {
        weir_pool_close(barging.pools[i]);
        weir_close(barging.w[i]);
    }
}

static void the_head_is_notified_though_another_request_barged(void **state)
{
    weir_acquisition *holder = NULL, *a = NULL, *b = NULL;

    (void)state;
    open_barging();
    assert_int_equal(weir_try_acquire(barging.pools[0], ASK({"r", 2}), &holder, NULL), 0);
    assert_int_equal(weir_submit(barging.pools[0], ASK({"r", 1}, {"k", 1}), &a, NULL), 1);
    assert_int_equal(weir_submit(barging.pools[1], ASK({"r", 1}, {"k", 3}), &b, NULL), 1);
    barging.first = a;
    assert_int_equal(weir_release(&holder), 0); /* for both, but for k of the second one */
    assert_null(barging.first);
    assert_int_equal(weir_acquisition_result(b), -EINPROGRESS);
    assert_int_equal(weir_tick(barging.w[1]), 0);
    barging.now += 3 * MS;
    assert_int_equal(weir_tick(barging.w[1]), 1);
    assert_int_equal(weir_acquisition_result(b), 0);
    assert_int_equal(weir_release(&a), -EPROTO);
    assert_int_equal(weir_release(&b), -EPROTO);
    close_barging();
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        leak_checked_test(waiters_are_granted_in_order),
        leak_checked_test(waiters_for_a_rate_are_granted_in_order_each_at_its_instant),
        leak_checked_test(no_request_overtakes_an_earlier_waiter_try_and_take_included),
        leak_checked_test(no_request_overtakes_one_that_is_still_to_be_queued),
        leak_checked_test(no_request_overtakes_even_if_the_keys_are_disjoint),
        leak_checked_test(fair_false_lets_newcomers_barge),
        leak_checked_test(the_head_is_notified_though_another_request_barged),
        leak_checked_test(without_fairness_waiters_among_themselves_stay_fifo),
        leak_checked_test(the_waiters_behind_a_leaving_head_are_rechecked),
        leak_checked_test(a_new_head_is_granted_at_its_own_instant),
        leak_checked_test(what_a_release_gives_back_brings_the_head_forward),
        leak_checked_test(a_thread_with_an_earlier_instant_puts_the_hand_over_off),
        leak_checked_test(canceling_from_the_middle_and_the_tail_keeps_the_order),
        leak_checked_test(a_holder_that_asks_again_waits_its_turn),
        leak_checked_test(a_releaser_serves_as_many_as_there_is_room_for),
        leak_checked_test(a_timeout_is_exact),
        leak_checked_test(the_set_may_give_a_default_timeout),
        leak_checked_test(without_a_timeout_a_waiter_waits_forever),
        leak_checked_test(max_wait_refuses_at_once_if_the_forecast_lies_further_away),
        leak_checked_test(the_set_may_give_a_default_max_wait),
        leak_checked_test(a_request_still_waiting_when_max_wait_has_passed_is_refused),
        leak_checked_test(of_timeout_and_max_wait_the_shorter_decides),
        leak_checked_test(max_waiters_bounds_the_wait_queue),
        leak_checked_test(a_full_wait_queue_says_when_to_come_back),
        leak_checked_test(an_unseen_grant_goes_back_when_canceled),
        leak_checked_test(an_unseen_grant_goes_back_when_released),
        leak_checked_test(a_grant_that_was_seen_counts_as_used),
        leak_checked_test(a_grant_reported_by_the_descriptor_counts_as_seen),
        leak_checked_test(a_timeout_and_a_grant_at_one_instant_resolve_once),
        leak_checked_test(canceling_what_was_decided_says_ealready),
        leak_checked_test(every_refusal_tells_key_set_and_when_to_come_back),
        leak_checked_test(retry_after_is_the_latest_of_all_limits),
        leak_checked_test(retry_after_is_exact_for_a_caller_that_is_alone),
        leak_checked_test(a_pending_acquisition_that_was_refused_tells_why),
        leak_checked_test(no_permit_expires_while_its_holder_lives),
        leak_checked_test(holder_and_age_can_be_seen),
        leak_checked_test(a_blocked_caller_is_granted_in_time),
        leak_checked_test(a_blocked_caller_times_out_and_learns_why),
        leak_checked_test(a_releaser_wakes_the_blocked_one_by_one),
        leak_checked_test(on_the_real_clock_a_blocked_caller_gets_its_grant),
        leak_checked_test(on_the_real_clock_a_blocked_caller_times_out),
        leak_checked_test(on_the_real_clock_a_release_wakes_blocked_callers_in_order),
        leak_checked_test(on_the_real_clock_a_new_head_keeps_its_own_time),
        leak_checked_test(on_the_real_clock_one_instant_may_serve_many),
        leak_checked_test(on_the_real_clock_blocked_and_submitted_waiters_share_a_wait_queue),
    };

    backend_choose(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
