/* SPDX-License-Identifier: MIT */
/*
 * Completion queues, promise by promise of their header: one completion for each submission
 * whatever becomes of it, nothing left of one that failed, a descriptor that is readable when there
 * is something to do and never otherwise. test_cq_internals.c has what only the library itself can
 * bring about.
 */
#include "lib/blocked.h"
#include "lib/world.h"
#include <poll.h>
#include <pthread.h>
#include <sched.h>

#define RATE "{ type: rate, key: tokens, algorithm: token_bucket, capacity: 10, window: 10s }"
#define A    "{ type: resource, key: a, capacity: 1 }"
#define B    "{ type: resource, key: b, capacity: 2 }"
#define ALL  64u /* more than any test submits at once */

static weir_queue *queue;
static struct weir_completion done[ALL];

static weir_queue *open_queue(unsigned capacity)
{
    weir_queue *ret = NULL;

    assert_int_equal(weir_queue_open(&ret, world.w, capacity), 0);
    assert_non_null(ret);
    return ret;
}

static void queue_world(const char *limits)
{
    world_limits(limits);
    queue = open_queue(ALL);
}

static void queue_world_close(void)
{
    queue = weir_queue_close(queue);
    assert_null(queue);
    world_close();
}

static int put_to(weir_queue *to, const struct weir_request *request, uint64_t user_data,
                  weir_acquisition **ret)
{
    refusal = (struct weir_refusal){.size = sizeof(refusal)};
    return weir_queue_submit(to, world.pool, request, user_data, ret, &refusal);
}

/* Submits what must be accepted. */
static void put(const struct weir_request *request, uint64_t user_data)
{
    assert_int_equal(put_to(queue, request, user_data, NULL), 0);
}

/* Submits what must be accepted, and returns its acquisition. */
static weir_acquisition *put_kept(const struct weir_request *request, uint64_t user_data)
{
    weir_acquisition *acquisition = NULL;

    assert_int_equal(put_to(queue, request, user_data, &acquisition), 0);
    assert_non_null(acquisition);
    return acquisition;
}

static bool is_readable(weir_queue *which)
{
    return readable(weir_queue_fd(which));
}

static void nothing_from(weir_queue *which)
{
    assert_int_equal(weir_queue_reap(which, done, ALL), 0);
    assert_false(is_readable(which));
}

/* There is nothing to do, and nothing says that there were. */
static void nothing(void)
{
    assert_false(is_readable(queue));
    nothing_from(queue);
}

/* The next completion is of this submission and says this. */
static weir_acquisition *next_from(weir_queue *which, uint64_t user_data, int result)
{
    struct weir_completion c = {.reserved = 7};

    assert_true(is_readable(which));
    assert_int_equal(weir_queue_reap(which, &c, 1), 1);
    assert_int_equal(c.user_data, user_data);
    assert_int_equal(c.result, result);
    assert_int_equal(c.reserved, 0);
    if (result == -EAGAIN || result == -ENOBUFS || result == -ETIMEDOUT)
        refusal = c.refusal;
    return c.acquisition;
}

static weir_acquisition *next_granted(uint64_t user_data)
{
    weir_acquisition *acquisition = next_from(queue, user_data, 0);

    assert_non_null(acquisition);
    assert_int_equal(weir_acquisition_result(acquisition), 0);
    return acquisition;
}

/* An end without a grant and without an acquisition. */
static void next_ends(uint64_t user_data, int result)
{
    assert_null(next_from(queue, user_data, result));
}

static weir_acquisition *one_a(void)
{
    return granted(ASK({"a", 1}));
}

/* None holds and none waits, and everything can be had. */
static void whole(void)
{
    struct picture p = picture();

    assert_int_equal(p.set.held, 0);
    assert_int_equal(p.set.waiting, 0);
    assert_int_equal(p.set.granted, p.set.released + p.set.taken);
    assert_int_equal(weir_set_holders(world.set, NULL, 0), 0);
}

/* Outcomes */

static void granted_at_once_is_a_completion_like_any_other(void **state)
{
    (void)state;
    queue_world(A);
    nothing();
    put(ASK({"a", 1}), 42);
    assert_int_equal(stats().held, 1);
    release(next_granted(42));
    nothing();
    whole();
    queue_world_close();
}

static void a_release_grants(void **state)
{
    weir_acquisition *holder;

    (void)state;
    queue_world(A);
    holder = one_a();
    put(ASK({"a", 1}), 1);
    assert_int_equal(stats().waiting, 1);
    nothing();
    release(holder);
    release(next_granted(1));
    nothing();
    whole();
    queue_world_close();
}

/* By the reap alone, without a tick. */
static void time_grants_at_its_instant(void **state)
{
    (void)state;
    queue_world(RATE);
    assert_int_equal(take(ASK({"tokens", 10})), 0);
    put(ASK({"tokens", 3}), 1);
    put(ASK({"tokens", 2}), 2);
    world.now += 3 * SECOND - 1;
    nothing();
    world.now += 1;
    assert_int_equal(weir_queue_reap(queue, done, ALL), 1);
    assert_int_equal(done[0].user_data, 1);
    release_used(done[0].acquisition, "tokens", 3);
    world.now += 2 * SECOND - 1;
    nothing();
    world.now += 1;
    assert_int_equal(weir_queue_reap(queue, done, ALL), 1);
    assert_int_equal(done[0].user_data, 2);
    release_used(done[0].acquisition, "tokens", 2);
    nothing();
    whole();
    queue_world_close();
}

static void a_tick_moves_all_queues(void **state)
{
    weir_acquisition *holder;
    weir_queue *other;

    (void)state;
    queue_world(RATE "," A);
    other = open_queue(1);
    holder = one_a();
    assert_int_equal(take(ASK({"tokens", 10}, {"a", 0})), 0);
    put(with_timeout(ASK({"a", 1}), 2 * SECOND), 1);
    assert_int_equal(put_to(other, with_timeout(ASK({"a", 1}), 2 * SECOND), 2, NULL), 0);
    put(ASK({"tokens", 2}, {"a", 0}), 3);
    assert_int_equal(advance(2 * SECOND - 1), 0);
    assert_false(is_readable(queue) || is_readable(other));
    assert_int_equal(advance(1), 3);
    next_ends(1, -ETIMEDOUT);
    release_used(next_granted(3), "tokens", 2);
    assert_null(next_from(other, 2, -ETIMEDOUT));
    nothing();
    nothing_from(other);
    weir_queue_close(other);
    release(holder);
    queue_world_close();
}

static void a_timeout_is_exact_and_names_the_limit(void **state)
{
    weir_acquisition *holder;

    (void)state;
    queue_world(RATE "," A);
    holder = granted(ASK({"tokens", 10}, {"a", 1}));
    put(with_timeout(ASK({"tokens", 4}), SECOND), 1);
    world.now += SECOND - 1;
    nothing();
    world.now += 1;
    assert_int_equal(weir_queue_reap(queue, done, 0), 0);
    assert_true(is_readable(queue));
    world.now += SECOND; /* as of the reap: two of four tokens are there by now */
    next_ends(1, -ETIMEDOUT);
    assert_string_equal(refusal.set, "main");
    assert_int_equal(refusal.retry_after_ns, 2 * SECOND);
    assert_int_equal(stats().timed_out, 1);
    nothing();
    release_used(holder, "tokens", 10);
    whole();
    queue_world_close();
}

static void a_wait_foreseen_to_be_too_long_is_refused_at_once(void **state)
{
    struct picture before;

    (void)state;
    queue_world(RATE);
    assert_int_equal(take(ASK({"tokens", 10})), 0);
    before = picture();
    put(with_max_wait(ASK({"tokens", 3}), 3 * SECOND - 1), 1);
    assert_int_equal(stats().waiting, 0);
    assert_int_equal(stats().refused_max_wait, 1);
    next_ends(1, -EAGAIN);
    assert_string_equal(refusal.key, "tokens");
    assert_string_equal(refusal.set, "main");
    assert_int_equal(refusal.retry_after_ns, 3 * SECOND);
    nothing();
    assert_same_limits(&before, &(struct picture[1]){picture()}[0]);
    queue_world_close();
}

static void a_max_wait_that_passes_refuses(void **state)
{
    weir_acquisition *holder;

    (void)state;
    queue_world(A);
    holder = one_a();
    put(with_max_wait(ASK({"a", 1}), SECOND), 1);
    put(with_timeout(with_max_wait(ASK({"a", 1}), SECOND), SECOND), 2); /* together: the timeout */
    world.now += SECOND;
    assert_int_equal(weir_queue_reap(queue, done, ALL), 2);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(done[i].result, done[i].user_data == 1 ? -EAGAIN : -ETIMEDOUT);
        assert_null(done[i].acquisition);
        assert_string_equal(done[i].refusal.key, "a");
        assert_int_equal(done[i].refusal.retry_after_ns, 0);
    }
    assert_int_equal(stats().refused_max_wait, 1);
    assert_int_equal(stats().timed_out, 1);
    release(holder);
    whole();
    queue_world_close();
}

static void a_full_wait_queue_turns_away(void **state)
{
    weir_acquisition *holder;

    (void)state;
    world_set("max_waiters: 1, limits: [ " A " ]");
    queue = open_queue(ALL);
    holder = one_a();
    put(ASK({"a", 1}), 1);
    put(ASK({"a", 1}), 2);
    next_ends(2, -ENOBUFS);
    assert_string_equal(refusal.key, "a");
    assert_int_equal(stats().refused_full, 1);
    nothing();
    release(holder);
    release(next_granted(1));
    whole();
    queue_world_close();
}

static void a_refused_acquisition_knows_the_limit(void **state)
{
    weir_acquisition *holder, *kept;

    (void)state;
    world_set("max_waiters: 1, limits: [ " A " ]");
    queue = open_queue(ALL);
    holder = one_a();
    put(ASK({"a", 1}), 1);
    kept = put_kept(ASK({"a", 1}), 2);
    refusal = (struct weir_refusal){.size = sizeof(refusal)};
    assert_int_equal(weir_acquisition_result(kept), -ENOBUFS);
    assert_int_equal(weir_acquisition_refusal(kept, &refusal), 0);
    assert_string_equal(refusal.key, "a");
    assert_string_equal(refusal.set, "main");
    assert_int_equal(refusal.retry_after_ns, 0);
    assert_ptr_equal(next_from(queue, 2, -ENOBUFS), kept);
    release(kept);
    release(holder);
    release(next_granted(1));
    whole();
    queue_world_close();
}

/* Whether the acquisition was had at once or comes with its completion. */
static void a_strict_request_is_updated_strictly(void **state)
{
    weir_acquisition *kept, *reaped, *lax;

    (void)state;
    queue_world(B);
    kept = put_kept(strict(ASK({"b", 1})), 1);
    put(strict(ASK({"b", 1})), 2);
    put(ASK({"b", 1}), 3);
    assert_ptr_equal(next_granted(1), kept);
    reaped = next_granted(2);
    assert_int_equal(weir_update(kept, "unknown", 1), -ENOENT);
    assert_int_equal(weir_update(reaped, "unknown", 1), -ENOENT);
    release(kept);
    lax = next_granted(3);
    assert_int_equal(weir_update(lax, "unknown", 1), 0);
    release(lax);
    release(reaped);
    whole();
    queue_world_close();
}

static void requests_that_ask_nothing_are_granted(void **state)
{
    struct weir_acquisition *holder;

    (void)state;
    queue_world(A);
    holder = one_a();
    put(ASK({"a", 0}), 1);
    put(ASK({"a", 0}), 2);
    assert_int_equal(weir_set_holders(world.set, NULL, 0), 1);
    assert_int_equal(weir_queue_cancel(queue, 2), 1);
    release(next_granted(1));
    next_ends(2, -ECANCELED);
    nothing();
    release(holder);
    whole();
    queue_world_close();
}

/* Many at once, so that each must have a record of its own. */
static void empty_sets_grant_everything(void **state)
{
    weir_acquisition *kept[16];
    uint64_t seen = 0;

    (void)state;
    queue_world("");
    for (unsigned i = 0; i < 32; i++)
        put(ASK_DEFAULTS, i);
    for (unsigned i = 0; i < 16; i++)
        kept[i] = put_kept(ASK_DEFAULTS, 32 + i);
    assert_int_equal(weir_queue_cancel(queue, 31), 1);
    release(kept[15]);
    assert_int_equal(weir_queue_reap(queue, done, ALL), 47);
    for (int i = 0; i < 47; i++) {
        assert_true(done[i].user_data < 47 && !(seen >> done[i].user_data & 1));
        seen |= UINT64_C(1) << done[i].user_data;
        assert_int_equal(done[i].result, done[i].user_data == 31 ? -ECANCELED : 0);
        assert_true(done[i].user_data < 32 || done[i].acquisition == kept[done[i].user_data - 32]);
        release(done[i].acquisition);
    }
    nothing();
    whole();
    queue_world_close();
}

/* Canceling */

static void cancel_takes_all_with_this_user_data_and_no_others(void **state)
{
    weir_acquisition *holder;

    (void)state;
    queue_world(A);
    holder = one_a();
    for (uint64_t i = 0; i < 9; i++)
        put(ASK({"a", 1}), i % 3);
    assert_int_equal(weir_queue_cancel(queue, 7), 0);
    assert_int_equal(weir_queue_cancel(queue, 1), 3);
    assert_int_equal(weir_queue_cancel(queue, 1), 0);
    assert_int_equal(stats().waiting, 6);
    assert_int_equal(stats().canceled, 3);
    for (int i = 0; i < 3; i++)
        next_ends(1, -ECANCELED);
    nothing();
    assert_int_equal(weir_queue_cancel(queue, 0), 3);
    assert_int_equal(weir_queue_cancel(queue, 2), 3);
    assert_int_equal(weir_queue_reap(queue, done, ALL), 6);
    nothing();
    release(holder);
    whole();
    queue_world_close();
}

/* Whatever their values have in common: these share buckets however they are hashed. */
static void user_data_may_be_any_value(void **state)
{
    static const uint64_t values[] = {0, 1, UINT64_MAX, UINT64_MAX - 1, UINT64_C(1) << 63, 16, 32};
    weir_acquisition *holder;
    weir_queue *small;

    (void)state;
    queue_world(A);
    small = open_queue(40);
    holder = one_a();
    for (unsigned i = 0; i < 40; i++)
        assert_int_equal(
            put_to(small, ASK({"a", 1}), values[i % 7] + (i / 7) * (UINT64_C(1) << 40), NULL), 0);
    for (unsigned i = 40; i-- > 0;) {
        uint64_t user_data = values[i % 7] + (i / 7) * (UINT64_C(1) << 40);

        assert_int_equal(weir_queue_cancel(small, user_data), 1);
        assert_null(next_from(small, user_data, -ECANCELED));
        nothing_from(small);
    }
    weir_queue_close(small);
    release(holder);
    queue_world_close();
}

static void a_grant_that_was_not_reaped_is_canceled_as_if_it_had_never_been(void **state)
{
    struct picture before;

    (void)state;
    queue_world(RATE "," B);
    before = picture();
    put(ASK({"tokens", 4}, {"b", 2}), 1);
    put(ASK({"tokens", 10}, {"b", 2}), 2); /* waits behind it */
    assert_int_equal(weir_queue_cancel(queue, 1), 1);
    assert_int_equal(stats().waiting, 0);
    release_used(next_granted(2), "tokens", 0); /* which was decided before the canceled one */
    next_ends(1, -ECANCELED);
    nothing();
    for (int i = 0; i < 2; i++) {
        assert_int_equal(limit_stats((size_t)i).available, before.limits[i].available);
        assert_int_equal(limit_stats((size_t)i).held, 0);
    }
    assert_int_equal(stats().canceled, 1);
    whole();
    queue_world_close();
}

static void a_grant_that_the_program_has_is_not_canceled_by_its_user_data(void **state)
{
    weir_acquisition *kept, *other;

    (void)state;
    queue_world(A);
    kept = put_kept(ASK({"a", 1}), 5);
    other = put_kept(ASK({"a", 1}), 5);
    put(ASK({"a", 1}), 5);
    assert_int_equal(weir_queue_cancel(queue, 5), 2); /* those that wait */
    assert_ptr_equal(next_from(queue, 5, 0), kept);
    assert_int_equal(weir_queue_reap(queue, done, ALL), 2);
    assert_true((done[0].acquisition == other) != (done[1].acquisition == other));
    assert_int_equal(weir_acquisition_result(other), -ECANCELED);
    release(other);
    release(kept);
    nothing();
    whole();
    queue_world_close();
}

static void an_acquisition_cancels_itself_and_no_other(void **state)
{
    weir_acquisition *waiting, *first, *holder;

    (void)state;
    queue_world(A);
    first = put_kept(ASK({"a", 1}), 5); /* granted, but not seen */
    waiting = put_kept(ASK({"a", 1}), 5);
    put(ASK({"a", 1}), 5);
    assert_int_equal(weir_cancel(waiting), 0);
    assert_int_equal(weir_cancel(waiting), -EALREADY);
    assert_int_equal(weir_acquisition_result(waiting), -ECANCELED);
    assert_int_equal(weir_cancel(first), 0);
    assert_int_equal(weir_cancel(first), -EALREADY);
    assert_ptr_equal(next_from(queue, 5, -ECANCELED), waiting);
    holder = next_granted(5);
    assert_ptr_equal(next_from(queue, 5, -ECANCELED), first); /* decided anew, after the others */
    nothing();
    release(waiting);
    release(first);
    release(holder);
    whole();
    queue_world_close();
}

static void a_grant_that_was_seen_cannot_be_canceled(void **state)
{
    weir_acquisition *kept;

    (void)state;
    queue_world(A);
    kept = put_kept(ASK({"a", 1}), 5);
    assert_int_equal(weir_acquisition_result(kept), 0);
    assert_int_equal(weir_cancel(kept), -EALREADY);
    assert_int_equal(weir_queue_cancel(queue, 5), 0);
    assert_ptr_equal(next_from(queue, 5, 0), kept);
    assert_int_equal(weir_cancel(kept), -EALREADY);
    release(kept);
    put(ASK({"a", 1}), 6);
    kept = next_granted(6);
    assert_int_equal(weir_queue_cancel(queue, 6), 0); /* reaped */
    assert_int_equal(weir_cancel(kept), -EALREADY);
    release(kept);
    whole();
    queue_world_close();
}

/* Nothing but grants: a refusal that was not reaped stays what it is. */
static void what_ended_otherwise_is_not_canceled(void **state)
{
    weir_acquisition *holder;

    (void)state;
    world_set("max_waiters: 1, limits: [ " A " ]");
    queue = open_queue(ALL);
    holder = one_a();
    put(with_timeout(ASK({"a", 1}), SECOND), 1);
    put(ASK({"a", 1}), 1);
    advance(SECOND);
    assert_int_equal(weir_queue_cancel(queue, 1), 0);
    next_ends(1, -ENOBUFS);
    next_ends(1, -ETIMEDOUT);
    nothing();
    release(holder);
    queue_world_close();
}

/* The head is gone before its instant: the waiter that it held up is granted at its own. */
static void the_waiters_behind_a_canceled_head_are_rechecked(void **state)
{
    (void)state;
    queue_world(RATE);
    assert_int_equal(take(ASK({"tokens", 10})), 0);
    put(ASK({"tokens", 9}), 1);
    put(ASK({"tokens", 2}), 2);
    assert_int_equal(weir_queue_cancel(queue, 1), 1);
    next_ends(1, -ECANCELED);
    world.now += 2 * SECOND - 1;
    nothing();
    world.now += 1;
    assert_int_equal(weir_queue_reap(queue, done, ALL), 1);
    release_used(done[0].acquisition, "tokens", 2);
    queue_world_close();
}

/* Released before it was reaped */

static void no_completion_follows_a_release(void **state)
{
    weir_acquisition *holder, *all[6];

    (void)state;
    world_set("max_waiters: 4, limits: [ " A " ]");
    queue = open_queue(6);
    holder = one_a();
    for (unsigned i = 0; i < 2; i++)
        all[i] = put_kept(with_timeout(ASK({"a", 1}), SECOND), i);
    for (unsigned i = 2; i < 6; i++)
        all[i] = put_kept(ASK({"a", 1}), i); /* the last two are turned away */
    assert_int_equal(weir_cancel(all[3]), 0);
    release(all[3]); /* canceled */
    advance(SECOND);
    release(all[0]); /* timed out, in the middle of the completions */
    release(all[4]); /* turned away, their first */
    assert_ptr_equal(next_from(queue, 5, -ENOBUFS), all[5]);
    assert_ptr_equal(next_from(queue, 1, -ETIMEDOUT), all[1]);
    nothing();
    release(holder);
    release(all[2]); /* granted */
    nothing();
    release(all[5]);
    release(all[1]);
    all[0] = one_a();
    all[1] = put_kept(ASK({"a", 1}), 7);
    release(all[1]); /* waiting */
    release(all[0]);
    nothing();
    assert_int_equal(stats().canceled, 3);
    whole();
    queue_world_close();
}

/* A grant of which the program cannot know was none; one that it asked about counts as used. */
static void a_release_of_an_unseen_grant_gives_all_back(void **state)
{
    weir_acquisition *kept;

    (void)state;
    queue_world(RATE);
    kept = put_kept(ASK({"tokens", 4}), 1);
    assert_int_equal(available(0), 6);
    release(kept);
    assert_int_equal(available(0), 10);
    kept = put_kept(ASK({"tokens", 4}), 1);
    assert_int_equal(weir_acquisition_result(kept), 0);
    release_expecting(kept, -EPROTO);
    assert_int_equal(available(0), 6);
    nothing();
    queue_world_close();
}

static void the_last_completion_released_leaves_the_descriptor_unreadable(void **state)
{
    weir_acquisition *kept;

    (void)state;
    queue_world(A);
    kept = put_kept(ASK({"a", 1}), 1);
    assert_true(is_readable(queue));
    release(kept);
    assert_false(is_readable(queue));
    nothing();
    put(ASK({"a", 1}), 2); /* and the next one is heard of */
    release(next_granted(2));
    queue_world_close();
}

static void an_acquisition_has_no_fd_of_its_own_until_it_was_reaped(void **state)
{
    weir_acquisition *kept;

    (void)state;
    queue_world(A);
    kept = put_kept(ASK({"a", 1}), 1);
    assert_int_equal(weir_acquisition_fd(kept), -EBUSY);
    assert_int_equal(weir_acquisition_grant_fd(kept), -EBUSY);
    assert_int_equal(weir_acquisition_attach(kept, 0), -EBUSY);
    assert_ptr_equal(next_granted(1), kept);
    assert_true(readable(weir_acquisition_fd(kept)));
    assert_int_equal(weir_acquisition_grant_fd(kept), -EINVAL);
    release(kept);
    queue_world_close();
}

/* Refusals of the submission itself */

static void capacity_is_exact_and_comes_back(void **state)
{
    weir_acquisition *kept;
    struct picture before;

    (void)state;
    queue_world(B);
    weir_queue_close(queue);
    queue = open_queue(3);
    put(ASK({"b", 2}), 1);
    put(ASK({"b", 2}), 2);
    kept = put_kept(ASK({"b", 2}), 3);
    before = picture();
    assert_int_equal(put_to(queue, ASK({"b", 1}), 4, NULL), -ENOSPC);
    assert_int_equal(put_to(queue, ASK({"b", 0}), 4, NULL), -ENOSPC);
    assert_int_equal(stats().waiting, 2);
    assert_same_limits(&before, &(struct picture[1]){picture()}[0]);
    release(next_granted(1)); /* by a reap … */
    put(ASK({"b", 2}), 4);
    assert_int_equal(put_to(queue, ASK({"b", 2}), 5, NULL), -ENOSPC);
    release(kept); /* … by a release … */
    put(ASK({"b", 2}), 5);
    assert_int_equal(put_to(queue, ASK({"b", 2}), 6, NULL), -ENOSPC);
    assert_int_equal(weir_queue_cancel(queue, 5), 1); /* … not by a cancel */
    assert_int_equal(put_to(queue, ASK({"b", 2}), 6, NULL), -ENOSPC);
    release(next_granted(2));
    next_ends(5, -ECANCELED);
    release(next_granted(4));
    nothing();
    whole();
    queue_world_close();
}

static void a_queue_of_one(void **state)
{
    weir_acquisition *holder;

    (void)state;
    queue_world(A);
    weir_queue_close(queue);
    queue = open_queue(1);
    holder = one_a();
    for (uint64_t i = 0; i < 100; i++) {
        put(ASK({"a", 1}), i);
        assert_int_equal(put_to(queue, ASK({"a", 1}), i, NULL), -ENOSPC);
        release(holder);
        holder = next_granted(i);
        nothing();
    }
    release(holder);
    whole();
    queue_world_close();
}

/* Nothing of the set has changed but the count of refusals, and the queue is as empty as before. */
static void submissions_that_are_wrong_leave_nothing(void **state)
{
    struct weir_request *wrong = ASK({"tokens", 1});
    weir_acquisition *acquisition = (weir_acquisition *)done;
    struct picture before, after;

    (void)state;
    queue_world(RATE "," A);
    weir_queue_close(queue);
    queue = open_queue(1);
    before = picture();
    wrong->size--;
    assert_int_equal(put_to(queue, wrong, 1, &acquisition), -EINVAL);
    assert_int_equal(put_to(queue, ASK_DEFAULTS, 1, &acquisition), -EINVAL); /* a rate */
    assert_int_equal(put_to(queue, NULL, 1, &acquisition), -EINVAL);
    assert_int_equal(put_to(queue, ASK({NULL, 1}), 1, &acquisition), -EINVAL);
    assert_int_equal(put_to(queue, ASK({"a", 1}, {"a", 1}), 1, &acquisition), -EINVAL);
    assert_string_equal(refusal.key, "a");
    for (int i = 0; i < 3; i++) {
        assert_int_equal(put_to(queue, ASK({"tokens", 11}), 1, &acquisition), -ERANGE);
        assert_string_equal(refusal.key, "tokens");
        assert_string_equal(refusal.set, "main");
        assert_true(refusal.retry_after_ns == WEIR_FOREVER);
    }
    assert_int_equal(put_to(queue, strict(ASK({"b", 1})), 1, &acquisition), -ENOENT);
    assert_string_equal(refusal.key, "b");
    assert_ptr_equal(acquisition, done); /* untouched */
    after = picture();
    assert_same_limits(&before, &after);
    assert_int_equal(after.set.refused_impossible, 3);
    assert_int_equal(after.set.refused_unknown, 1);
    assert_int_equal(weir_queue_cancel(queue, 1), 0);
    nothing();
    put(ASK({"tokens", 10}), 2); /* all there is, in the only place */
    release_used(next_granted(2), "tokens", 10);
    whole();
    queue_world_close();
}

/* As an algorithm says, which would never let it out of the wait queue. */
static void what_is_never_granted_stands_behind_no_waiter(void **state)
{
    weir_acquisition *holder;

    (void)state;
    queue_world("{ type: rate, key: k, algorithm: stingy }," A);
    holder = granted(ASK({"k", 1}, {"a", 1}));
    put(ASK({"k", 1}, {"a", 1}), 1);
    assert_int_equal(put_to(queue, ASK({"k", 5}, {"a", 1}), 2, NULL), -ERANGE);
    assert_string_equal(refusal.key, "k");
    assert_int_equal(stats().waiting, 1);
    assert_int_equal(stats().refused_impossible, 1);
    release_used(holder, "k", 1);
    release_used(next_granted(1), "k", 1);
    nothing();
    queue_world_close();
}

static void queue_and_pool_must_be_of_one_instance(void **state)
{
    struct weir_options options = {.size = sizeof(options)};
    weir_pool *foreign = NULL;
    weir *other = NULL;

    (void)state;
    queue_world(A);
    assert_int_equal(weir_open(&other, &options, NULL), 0);
    assert_int_equal(weir_pool_open(&foreign, other, "x", 0, NULL), 0);
    assert_int_equal(weir_queue_submit(queue, foreign, NULL, 1, NULL, NULL), -EINVAL);
    assert_int_equal(weir_queue_submit(queue, NULL, NULL, 1, NULL, NULL), -EINVAL);
    assert_int_equal(weir_queue_submit(NULL, world.pool, NULL, 1, NULL, NULL), -EINVAL);
    nothing();
    weir_pool_close(foreign);
    weir_close(other);
    queue_world_close();
}

static void a_queue_needs_a_place_an_instance_and_a_capacity(void **state)
{
    weir_queue *other = NULL;

    (void)state;
    queue_world(A);
    assert_int_equal(weir_queue_open(NULL, world.w, 1), -EINVAL);
    assert_int_equal(weir_queue_open(&other, NULL, 1), -EINVAL);
    assert_int_equal(weir_queue_open(&other, world.w, 0), -EINVAL);
    assert_int_equal(weir_queue_open(&other, world.w, WEIR_QUEUE_CAPACITY_MAX + 1), -EINVAL);
    assert_int_equal(weir_queue_open(&other, world.w, UINT32_MAX), -EINVAL);
    assert_null(other);
    assert_int_equal(weir_queue_open(&other, world.w, WEIR_QUEUE_CAPACITY_MAX), 0);
    assert_null(weir_queue_close(other));
    assert_null(weir_queue_close(NULL));
    queue_world_close();
}

/* Reaping */

static void completions_come_in_the_order_of_decisions(void **state)
{
    weir_acquisition *holder;

    (void)state;
    queue_world(RATE "," A);
    holder = granted(ASK({"a", 1}, {"tokens", 10}));
    put(with_timeout(ASK({"a", 1}), 3), 1);
    put(with_timeout(ASK({"a", 1}), 1), 2);
    put(with_timeout(ASK({"a", 1}), 2), 3);
    put(ASK({"a", 1}), 4);
    put(ASK({"a", 1}), 5);
    assert_int_equal(weir_queue_cancel(queue, 4), 1);
    world.now += 3;
    assert_int_equal(weir_queue_reap(queue, done, 0), 0);
    release_used(holder, "tokens", 10);
    put(ASK({"a", 0}), 6);
    next_ends(4, -ECANCELED);
    next_ends(2, -ETIMEDOUT);
    next_ends(3, -ETIMEDOUT);
    next_ends(1, -ETIMEDOUT);
    release(next_granted(5));
    release(next_granted(6));
    nothing();
    queue_world_close();
}

/* However many at a time: all of them, once, in order. */
static void reaping_in_pieces(void **state)
{
    static const unsigned pieces[] = {1, 2, 3, 63, 64, 65, 1000};

    (void)state;
    queue_world("{ type: resource, key: r, capacity: 300 }");
    for (unsigned p = 0; p < sizeof(pieces) / sizeof(pieces[0]); p++) {
        struct weir_completion some[1000];
        weir_queue *large = open_queue(300);
        unsigned reaped = 0;
        int n;

        for (uint64_t i = 0; i < 300; i++)
            assert_int_equal(put_to(large, ASK({"r", 1}), i, NULL), 0);
        do {
            assert_true(is_readable(large) == (reaped < 300));
            n = weir_queue_reap(large, some, pieces[p]);
            assert_int_equal(n, 300 - reaped < pieces[p] ? 300 - reaped : pieces[p]);
            for (int i = 0; i < n; i++) {
                assert_int_equal(some[i].user_data, reaped++);
                release(some[i].acquisition);
            }
        } while (n == (int)pieces[p]);
        assert_int_equal(reaped, 300);
        nothing_from(large);
        weir_queue_close(large);
    }
    whole();
    queue_world_close();
}

static void reaping_none_moves_time_and_hands_out_nothing(void **state)
{
    weir_acquisition *holder;

    (void)state;
    queue_world(A);
    holder = one_a();
    assert_int_equal(weir_queue_reap(queue, NULL, 0), 0);
    assert_int_equal(weir_queue_reap(queue, NULL, 1), -EINVAL);
    put(with_timeout(ASK({"a", 1}), SECOND), 1);
    world.now += SECOND;
    assert_int_equal(weir_queue_reap(queue, NULL, 1), -EINVAL);
    assert_int_equal(stats().waiting, 1); /* that did nothing at all */
    assert_int_equal(weir_queue_reap(queue, NULL, 0), 0);
    assert_int_equal(stats().timed_out, 1);
    assert_int_equal(weir_queue_reap(queue, NULL, 0), 0);
    next_ends(1, -ETIMEDOUT);
    nothing();
    release(holder);
    queue_world_close();
}

static void one_write_per_change_from_empty_to_not_empty(void **state)
{
    uint64_t signals, drains;

    (void)state;
    queue_world("{ type: resource, key: r, capacity: 50 }");
    assert_false(is_readable(queue));
    drains = fake_os_counts().drain;
    for (unsigned round = 1; round <= 3; round++) {
        signals = fake_os_counts().signal;
        for (uint64_t i = 0; i < 50; i++)
            put(ASK({"r", 1}), i);
        assert_int_equal(weir_queue_reap(queue, done, 20), 20);
        assert_true(is_readable(queue));
        assert_int_equal(weir_queue_reap(queue, done + 20, 40), 30);
        assert_int_equal(fake_os_counts().signal, signals + 1);
        assert_int_equal(fake_os_counts().drain, drains + round);
        for (unsigned i = 0; i < 50; i++)
            release(done[i].acquisition);
    }
    nothing();
    queue_world_close();
}

/* A program that reaps without waiting for the descriptor pays no system calls for it. */
static void no_write_before_the_descriptor_is_asked_for(void **state)
{
    uint64_t signals, drains;

    (void)state;
    queue_world("{ type: resource, key: r, capacity: 50 }");
    signals = fake_os_counts().signal;
    drains = fake_os_counts().drain;
    for (unsigned round = 0; round < 3; round++) {
        put(ASK({"r", 1}), round);
        assert_int_equal(weir_queue_reap(queue, done, 1), 1);
        release(done[0].acquisition);
    }
    put(ASK({"r", 1}), 3);
    assert_int_equal(fake_os_counts().signal, signals);
    assert_int_equal(fake_os_counts().drain, drains);
    assert_true(is_readable(queue)); /* for what was decided before */
    assert_int_equal(fake_os_counts().signal, signals + 1);
    assert_int_equal(weir_queue_reap(queue, done, 1), 1);
    release(done[0].acquisition);
    nothing();
    queue_world_close();
}

/* A forecast in a completion does not walk a long wait queue. */
static void a_refusal_behind_a_long_wait_queue_is_still_a_lower_bound(void **state)
{
    weir_queue *large;

    (void)state;
    queue_world(RATE);
    large = open_queue(500);
    assert_int_equal(take(ASK({"tokens", 10})), 0);
    for (uint64_t i = 0; i < 400; i++)
        assert_int_equal(put_to(large, ASK({"tokens", 1}), i, NULL), 0);
    put(with_timeout(ASK({"tokens", 1}), MS), 1);
    advance(MS);
    assert_int_equal(weir_queue_cancel(large, 200), 1); /* the forecast holds no more */
    next_ends(1, -ETIMEDOUT);
    assert_string_equal(refusal.key, "tokens");
    assert_true(refusal.retry_after_ns > 0 && refusal.retry_after_ns <= 400 * SECOND);
    weir_queue_close(large);
    whole();
    queue_world_close();
}

/* Closing */

static void weir_close_ends_all_waiters_and_they_can_still_be_reaped(void **state)
{
    weir_acquisition *holder, *kept, *reaped;
    weir_queue *other = NULL;

    (void)state;
    queue_world(A);
    put(ASK({"a", 1}), 1);
    put(ASK({"a", 1}), 2);
    kept = put_kept(ASK({"a", 1}), 3);
    put(with_timeout(ASK({"a", 1}), SECOND), 4);
    world.w = weir_close(world.w);
    assert_int_equal(put_to(queue, ASK({"a", 0}), 5, NULL), -ESHUTDOWN);
    assert_int_equal(weir_queue_cancel(queue, 2), 0);
    holder = next_granted(1);
    next_ends(2, -ESHUTDOWN);
    assert_ptr_equal(next_from(queue, 3, -ESHUTDOWN), kept);
    next_ends(4, -ESHUTDOWN);
    world.now += 2 * SECOND;
    nothing();
    release(kept);
    reaped = holder;
    queue = weir_queue_close(queue);
    world.pool = weir_pool_close(world.pool);
    release(reaped); /* the last one holds the memory */
    assert_null(other);
}

static void a_grant_may_be_canceled_after_weir_close(void **state)
{
    (void)state;
    queue_world(A);
    put(ASK({"a", 1}), 1);
    world.w = weir_close(world.w);
    assert_int_equal(weir_queue_cancel(queue, 1), 1);
    next_ends(1, -ECANCELED);
    nothing();
    weir_queue_close(queue);
    world.pool = weir_pool_close(world.pool);
}

/* Whatever state they are in: nothing is held, nothing waits, and those behind are served. */
static void closing_takes_back_everything_that_was_not_reaped(void **state)
{
    weir_acquisition *holder, *kept[5], *last;
    struct picture before;

    (void)state;
    world_set("max_waiters: 6, limits: [ " B "," RATE " ]");
    queue = open_queue(ALL);
    before = picture();
    put(ASK({"b", 1}, {"tokens", 3}), 1);                /* granted */
    kept[0] = put_kept(ASK({"b", 1}, {"tokens", 3}), 2); /* granted, and the program has it */
    put(ASK({"b", 1}), 3);
    kept[1] = put_kept(ASK({"b", 1}), 4);
    put(with_timeout(ASK({"b", 1}), SECOND), 5);
    kept[2] = put_kept(with_timeout(ASK({"b", 1}), SECOND), 6);
    put(ASK({"b", 1}), 7);
    kept[3] = put_kept(ASK({"b", 1}), 8);
    kept[4] = put_kept(ASK({"b", 1}), 9); /* turned away */
    assert_int_equal(weir_queue_cancel(queue, 7), 1);
    assert_int_equal(weir_cancel(kept[3]), 0);
    last = pending(ASK({"b", 1}));
    advance(SECOND);
    queue = weir_queue_close(queue);
    assert_int_equal(weir_acquisition_result(last), 0);
    assert_int_equal(weir_acquisition_result(kept[1]), -ECANCELED);
    assert_int_equal(weir_acquisition_result(kept[2]), -ETIMEDOUT);
    assert_int_equal(weir_acquisition_result(kept[3]), -ECANCELED);
    assert_int_equal(weir_acquisition_result(kept[4]), -ENOBUFS);
    assert_true(readable(weir_acquisition_fd(kept[1])));
    assert_int_equal(stats().held, 2);
    assert_int_equal(limit_stats(0).held, 2);
    release(last);
    for (int i = 0; i < 5; i++)
        release(kept[i]); /* the grant was not looked at: it goes back */
    assert_int_equal(limit_stats(1).available, before.limits[1].available);
    holder = granted(ASK({"b", 2}));
    release(holder);
    whole();
    world_close();
}

static void a_closed_queue_is_used_again_and_knows_nothing(void **state)
{
    weir_acquisition *holder, *kept, *late;
    struct fake_os_live live;

    (void)state;
    queue_world(A);
    holder = one_a();
    for (unsigned i = 0; i < 3; i++) {
        put(ASK({"a", 1}), 1);
        put(with_timeout(ASK({"a", 1}), SECOND), 2);
        kept = put_kept(with_timeout(ASK({"a", 1}), SECOND), 3);
        put(ASK({"a", 0}), 4);
        weir_queue_close(queue);
        live = fake_os_live();
        queue = open_queue(i % 2 ? 1 : 1000);
        nothing();
        assert_int_equal(weir_queue_cancel(queue, 1), 0);
        late = put_kept(ASK({"a", 1}), 1);
        assert_int_equal(advance(SECOND), 0); /* nothing of the old one is due */
        nothing();
        assert_int_equal(weir_acquisition_result(kept), -ECANCELED);
        release(kept);
        assert_int_equal(weir_acquisition_result(late), -EINPROGRESS);
        release(late);
        nothing();
        if (i > 0)
            assert_true(fake_os_live().blocks <= live.blocks + 4);
        weir_queue_close(queue);
        queue = open_queue(ALL);
    }
    release(holder);
    whole();
    queue_world_close();
}

/* Wait queues of several kinds of waiters */

static weir_acquisition *unblocked(struct blocked *blocked)
{
    blocked_join(blocked, 0);
    return blocked->acquisition;
}

static void one_wait_queue_for_all_kinds_of_waiters(void **state)
{
    weir_acquisition *holder, *kept, *handle;
    struct blocked blocked[2];
    weir_queue *other;

    (void)state;
    queue_world(A);
    other = open_queue(ALL);
    holder = one_a();
    put(ASK({"a", 1}), 1);
    kept = pending(ASK({"a", 1}));
    assert_int_equal(put_to(other, ASK({"a", 1}), 2, NULL), 0);
    blocked_enqueue(&blocked[0], ASK({"a", 1}), 4);
    handle = put_kept(ASK({"a", 1}), 3);
    blocked_enqueue(&blocked[1], ASK({"a", 1}), 6);
    put(ASK({"a", 1}), 4);
    release(holder);
    assert_int_equal(weir_acquisition_result(kept), -EINPROGRESS);
    release(next_granted(1));
    assert_int_equal(weir_acquisition_result(kept), 0);
    assert_false(is_readable(other));
    release(kept);
    holder = next_from(other, 2, 0);
    assert_int_equal(blocked[0].result, 1);
    release(holder);
    holder = unblocked(&blocked[0]);
    nothing();
    release(holder);
    assert_ptr_equal(next_granted(3), handle);
    assert_int_equal(blocked[1].result, 1);
    release(handle);
    holder = unblocked(&blocked[1]);
    nothing();
    release(holder);
    release(next_granted(4));
    nothing_from(other);
    weir_queue_close(other);
    whole();
    queue_world_close();
}

/* The earliest of all: of completion queues, of acquisitions, and of deadlines. */
static void what_is_due_next_is_told(void **state)
{
    weir_queue *other;
    weir_acquisition *kept;
    uint64_t due_ns = 1;

    (void)state;
    queue_world(RATE);
    other = open_queue(ALL);
    assert_int_equal(weir_due_at(world.w, &due_ns), 0);
    assert_true(due_ns == WEIR_FOREVER);
    assert_int_equal(take(ASK({"tokens", 10})), 0);
    kept = pending(with_timeout(ASK({"tokens", 5}), 4 * SECOND));
    assert_int_equal(weir_due_at(world.w, &due_ns), 0);
    assert_true(due_ns == world.now + 4 * SECOND);
    assert_int_equal(put_to(other, with_timeout(ASK({"tokens", 1}), 3 * SECOND), 1, NULL), 0);
    assert_int_equal(weir_due_at(world.w, &due_ns), 0);
    assert_true(due_ns == world.now + 3 * SECOND);
    put(with_timeout(ASK({"tokens", 3}), 2 * SECOND), 2);
    assert_int_equal(weir_due_at(world.w, &due_ns), 0);
    assert_true(due_ns == world.now + 2 * SECOND);
    world.now = due_ns;
    assert_int_equal(weir_tick(world.w), 1);
    assert_int_equal(weir_due_at(world.w, &due_ns), 0);
    assert_true(due_ns == world.now + SECOND);
    release(kept); /* which the other one waited behind */
    assert_int_equal(weir_queue_reap(other, done, ALL), 1);
    release_used(done[0].acquisition, "tokens", 1);
    assert_int_equal(weir_due_at(world.w, &due_ns), 0);
    assert_true(due_ns == WEIR_FOREVER);
    assert_int_equal(weir_queue_reap(queue, done, ALL), 1);
    assert_int_equal(done[0].result, -ETIMEDOUT);
    weir_queue_close(other);
    queue_world_close();
}

/* The head changes between completion queues: the one that has the new head keeps its time. */
static void each_head_is_rechecked_by_its_own_queue(void **state)
{
    weir_acquisition *kept;
    weir_queue *other;

    (void)state;
    queue_world(RATE);
    other = open_queue(ALL);
    assert_int_equal(take(ASK({"tokens", 10})), 0);
    put(ASK({"tokens", 1}), 1);
    assert_int_equal(put_to(other, ASK({"tokens", 2}), 2, NULL), 0);
    kept = pending(ASK({"tokens", 1}));
    put(ASK({"tokens", 3}), 3);
    world.now += SECOND;
    assert_int_equal(weir_queue_reap(other, done, ALL), 0); /* not its head */
    assert_int_equal(weir_queue_reap(queue, done, ALL), 1);
    release_used(done[0].acquisition, "tokens", 1);
    world.now += 2 * SECOND;
    nothing();
    assert_int_equal(weir_queue_reap(other, done, ALL), 1);
    release_used(done[0].acquisition, "tokens", 2);
    world.now += SECOND;
    nothing();
    assert_int_equal(weir_acquisition_result(kept), -EINPROGRESS);
    assert_int_equal(weir_tick(world.w), 1);
    assert_int_equal(weir_acquisition_result(kept), 0);
    world.now += 3 * SECOND - 1;
    nothing();
    world.now += 1;
    assert_int_equal(weir_queue_reap(queue, done, ALL), 1);
    release_used(done[0].acquisition, "tokens", 3);
    release_used(kept, "tokens", 1);
    nothing_from(other);
    weir_queue_close(other);
    whole();
    queue_world_close();
}

/* A head that is canceled, released, or closed with its queue hands the looking on as well. */
static void a_head_that_leaves_hands_the_looking_on(void **state)
{
    enum { CANCEL, CANCEL_ACQUISITION, RELEASE, CLOSE, TIMEOUT, WAYS };

    (void)state;
    for (int way = CANCEL; way < WAYS; way++) {
        weir_acquisition *head = NULL;
        weir_queue *other;

        queue_world(RATE);
        other = open_queue(ALL);
        assert_int_equal(take(ASK({"tokens", 10})), 0);
        if (way == CANCEL_ACQUISITION || way == RELEASE)
            assert_int_equal(put_to(other, ASK({"tokens", 9}), 1, &head), 0);
        else
            assert_int_equal(
                put_to(other,
                       with_timeout(ASK({"tokens", 9}), way == TIMEOUT ? SECOND : WEIR_FOREVER), 1,
                       NULL),
                0);
        put(ASK({"tokens", 2}), 2);
        world.now += SECOND;
        if (way == CANCEL)
            assert_int_equal(weir_queue_cancel(other, 1), 1);
        else if (way == CANCEL_ACQUISITION)
            assert_int_equal(weir_cancel(head), 0);
        else if (way == RELEASE)
            release(head);
        else if (way == CLOSE)
            other = weir_queue_close(other);
        else
            assert_int_equal(weir_queue_reap(other, done, 0), 0);
        world.now += SECOND - 1;
        nothing();
        world.now += 1;
        assert_int_equal(weir_queue_reap(queue, done, ALL), 1);
        assert_int_equal(done[0].user_data, 2);
        release_used(done[0].acquisition, "tokens", 2);
        weir_queue_close(other);
        if (way == CANCEL_ACQUISITION)
            release(head);
        whole();
        queue_world_close();
    }
}

/* Reaped late: what could be granted before its deadline is granted. */
static void a_late_recheck_comes_before_a_later_deadline(void **state)
{
    (void)state;
    queue_world(RATE);
    assert_int_equal(take(ASK({"tokens", 10})), 0);
    put(with_timeout(ASK({"tokens", 2}), 3 * SECOND), 1); /* could be had after 2 s */
    world.now += UINT64_C(3600) * SECOND;
    assert_int_equal(weir_queue_reap(queue, done, ALL), 1);
    assert_int_equal(done[0].result, 0);
    release_used(done[0].acquisition, "tokens", 2);
    nothing();
    queue_world_close();
}

/* And what could not, is not, though it could be by now; the waiter that it held up is. */
static void a_late_deadline_comes_before_a_later_recheck(void **state)
{
    (void)state;
    queue_world(RATE);
    assert_int_equal(take(ASK({"tokens", 10})), 0);
    put(with_timeout(ASK({"tokens", 3}), 2 * SECOND), 1);
    put(ASK({"tokens", 2}), 2);
    world.now += UINT64_C(3600) * SECOND;
    assert_int_equal(weir_queue_reap(queue, done, ALL), 2);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(done[i].result, done[i].user_data == 1 ? -ETIMEDOUT : 0);
        if (done[i].acquisition)
            release_used(done[i].acquisition, "tokens", 2);
    }
    nothing();
    queue_world_close();
}

/* The deadline stays armed after a look that came to nothing. */
static void a_vain_recheck_keeps_the_deadline(void **state)
{
    weir_acquisition *barger;

    (void)state;
    world_set("fair: false, limits: [ " RATE " ]");
    queue = open_queue(ALL);
    assert_int_equal(take(ASK({"tokens", 10})), 0);
    put(with_timeout(ASK({"tokens", 2}), 2 * SECOND + 5), 1);
    world.now += SECOND;
    barger = granted(ASK({"tokens", 1}));
    world.now += SECOND; /* the look that was armed first: one token is short */
    nothing();
    world.now += 4;
    nothing();
    world.now += 1;
    assert_int_equal(weir_queue_reap(queue, done, ALL), 1);
    assert_int_equal(done[0].result, -ETIMEDOUT);
    release_used(barger, "tokens", 1);
    queue_world_close();
}

/* Timers, by the system's clock moved by hand */

static void real_world(const char *limits)
{
    char fields[512];

    fake_clock_set(START);
    snprintf(fields, sizeof(fields), "limits: [ %s ]", limits);
    world_real(fields);
    queue = open_queue(ALL);
}

static void the_descriptor_is_readable_from_the_instant_on(void **state)
{
    (void)state;
    real_world(RATE);
    assert_int_equal(take(ASK({"tokens", 10})), 0);
    put(ASK({"tokens", 1}), 1);
    put(with_timeout(ASK({"tokens", 1}), SECOND + 5), 2);
    put(ASK({"tokens", 1}), 3);
    fake_clock_advance(SECOND - 1);
    nothing();
    fake_clock_advance(1);
    release_used(next_granted(1), "tokens", 1);
    nothing();
    fake_clock_advance(4);
    nothing();
    fake_clock_advance(1);
    next_ends(2, -ETIMEDOUT);
    nothing();
    fake_clock_advance(SECOND - 6);
    nothing();
    fake_clock_advance(1);
    release_used(next_granted(3), "tokens", 1);
    fake_clock_advance(UINT64_C(3600) * SECOND);
    nothing();
    queue_world_close();
}

/*
 * A timer that no waiter needs any more may wake once, for nothing, and is taken back by the reap.
 */
static void a_timer_without_a_waiter_wakes_at_most_once(void **state)
{
    (void)state;
    real_world(RATE);
    assert_int_equal(take(ASK({"tokens", 10})), 0);
    put(ASK({"tokens", 1}), 1);
    put(with_timeout(ASK({"tokens", 1}), UINT64_C(60) * SECOND), 2);
    assert_int_equal(weir_queue_cancel(queue, 1), 1);
    next_ends(1, -ECANCELED);
    assert_int_equal(weir_queue_cancel(queue, 2), 1);
    next_ends(2, -ECANCELED);
    nothing();
    fake_clock_advance(SECOND);
    nothing_from(queue);
    fake_clock_advance(UINT64_C(60) * SECOND);
    nothing();
    queue_world_close();
}

/* No thread, no timer set anew for a waiter that comes later than those before it. */
static void a_queue_needs_no_thread_and_few_system_calls(void **state)
{
    weir_acquisition *holder;
    uint64_t calls;

    (void)state;
    real_world(A);
    assert_int_equal(fake_os_counts().thread_start, 0);
    holder = one_a();
    put(with_timeout(ASK({"a", 1}), SECOND), 1);
    calls = fake_os_system_calls();
    for (uint64_t i = 2; i < 40; i++)
        put(with_timeout(ASK({"a", 1}), i * SECOND), i);
    assert_int_equal(fake_os_system_calls(), calls);
    assert_int_equal(fake_os_counts().thread_start, 0);
    assert_int_equal(fake_os_live().descriptors, fake_os_timers_ring() ? 1 : 3);
    release(holder);
    queue_world_close();
}

/* Nor does a reap make any that it can do without, and it does not read the clock in vain. */
static void a_reap_makes_few_system_calls(void **state)
{
    weir_acquisition *holder, *last;
    uint64_t calls, drains;

    (void)state;
    real_world(A);
    drains = fake_os_counts().drain;
    holder = one_a();
    calls = fake_os_system_calls() + fake_os_counts().now;
    assert_int_equal(weir_queue_reap(queue, done, ALL), 0);
    put(ASK({"a", 1}), 1); /* reads the clock: for the wait queue, which is new */
    assert_int_equal(weir_queue_reap(queue, done, ALL), 0);
    assert_int_equal(fake_os_system_calls() + fake_os_counts().now, calls + 1);
    put(with_timeout(ASK({"a", 1}), 1), 2); /* sets the timer */
    put(with_timeout(ASK({"a", 1}), SECOND), 3);
    calls = fake_os_system_calls();
    assert_int_equal(weir_queue_reap(queue, done, ALL), 0);
    assert_int_equal(fake_os_system_calls(), calls);
    fake_clock_advance(1);
    next_ends(2, -ETIMEDOUT); /* takes back that it has expired, and sets it again, in one */
    assert_int_equal(fake_os_system_calls(), calls + 1);
    assert_int_equal(fake_os_counts().drain, drains);
    release(holder); /* wakes the reaper, and is heard by it */
    last = next_granted(1);
    assert_int_equal(fake_os_system_calls(), calls + 3);
    release(last);
    release(next_granted(3));
    queue_world_close();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_checked_test(granted_at_once_is_a_completion_like_any_other),
        leak_checked_test(a_release_grants),
        leak_checked_test(time_grants_at_its_instant),
        leak_checked_test(a_tick_moves_all_queues),
        leak_checked_test(a_timeout_is_exact_and_names_the_limit),
        leak_checked_test(a_wait_foreseen_to_be_too_long_is_refused_at_once),
        leak_checked_test(a_max_wait_that_passes_refuses),
        leak_checked_test(a_full_wait_queue_turns_away),
        leak_checked_test(a_refused_acquisition_knows_the_limit),
        leak_checked_test(a_strict_request_is_updated_strictly),
        leak_checked_test(requests_that_ask_nothing_are_granted),
        leak_checked_test(empty_sets_grant_everything),
        leak_checked_test(cancel_takes_all_with_this_user_data_and_no_others),
        leak_checked_test(user_data_may_be_any_value),
        leak_checked_test(a_grant_that_was_not_reaped_is_canceled_as_if_it_had_never_been),
        leak_checked_test(a_grant_that_the_program_has_is_not_canceled_by_its_user_data),
        leak_checked_test(an_acquisition_cancels_itself_and_no_other),
        leak_checked_test(a_grant_that_was_seen_cannot_be_canceled),
        leak_checked_test(what_ended_otherwise_is_not_canceled),
        leak_checked_test(the_waiters_behind_a_canceled_head_are_rechecked),
        leak_checked_test(no_completion_follows_a_release),
        leak_checked_test(a_release_of_an_unseen_grant_gives_all_back),
        leak_checked_test(the_last_completion_released_leaves_the_descriptor_unreadable),
        leak_checked_test(an_acquisition_has_no_fd_of_its_own_until_it_was_reaped),
        leak_checked_test(capacity_is_exact_and_comes_back),
        leak_checked_test(a_queue_of_one),
        leak_checked_test(submissions_that_are_wrong_leave_nothing),
        leak_checked_test(what_is_never_granted_stands_behind_no_waiter),
        leak_checked_test(queue_and_pool_must_be_of_one_instance),
        leak_checked_test(a_queue_needs_a_place_an_instance_and_a_capacity),
        leak_checked_test(completions_come_in_the_order_of_decisions),
        leak_checked_test(reaping_in_pieces),
        leak_checked_test(reaping_none_moves_time_and_hands_out_nothing),
        leak_checked_test(one_write_per_change_from_empty_to_not_empty),
        leak_checked_test(no_write_before_the_descriptor_is_asked_for),
        leak_checked_test(a_refusal_behind_a_long_wait_queue_is_still_a_lower_bound),
        leak_checked_test(weir_close_ends_all_waiters_and_they_can_still_be_reaped),
        leak_checked_test(a_grant_may_be_canceled_after_weir_close),
        leak_checked_test(closing_takes_back_everything_that_was_not_reaped),
        leak_checked_test(a_closed_queue_is_used_again_and_knows_nothing),
        leak_checked_test(one_wait_queue_for_all_kinds_of_waiters),
        leak_checked_test(what_is_due_next_is_told),
        leak_checked_test(each_head_is_rechecked_by_its_own_queue),
        leak_checked_test(a_head_that_leaves_hands_the_looking_on),
        leak_checked_test(a_late_recheck_comes_before_a_later_deadline),
        leak_checked_test(a_late_deadline_comes_before_a_later_recheck),
        leak_checked_test(a_vain_recheck_keeps_the_deadline),
        leak_checked_test(the_descriptor_is_readable_from_the_instant_on),
        leak_checked_test(a_timer_without_a_waiter_wakes_at_most_once),
        leak_checked_test(a_queue_needs_no_thread_and_few_system_calls),
        leak_checked_test(a_reap_makes_few_system_calls),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
