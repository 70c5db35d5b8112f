/* SPDX-License-Identifier: MIT */
/* Parts of an acquisition that go back before its release. */
#include "lib/world.h"
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#define RESOURCE "{ type: resource, key: slots, capacity: 10 }"
#define RATE     "{ type: rate, key: tokens, algorithm: token_bucket, capacity: 100, window: 1s }"
#define CALL     "{ type: call, key: calls, algorithm: gcra, capacity: 50, window: 50s, burst: 50 }"
#define SHARED   "backend: process, lifetime: users, "
#define SUBJECTS "subjects: { max: 9 }, "

static const char *const resources[] = {
    "limits: [ " RESOURCE " ]",
    "limits: [ " RESOURCE ", " RATE ", " CALL " ]",
    SHARED "limits: [ " RESOURCE " ]",
    SHARED "limits: [ " RESOURCE ", " RATE ", " CALL " ]",
    SUBJECTS "limits: [ " RESOURCE " ]",
    SUBJECTS "limits: [ " RESOURCE ", " RATE ", " CALL " ]",
    SHARED SUBJECTS "limits: [ " RESOURCE " ]",
    SHARED SUBJECTS "limits: [ " RESOURCE ", " RATE ", " CALL " ]",
};

static const char *const rates[] = {
    "limits: [ " RATE " ]",
    "limits: [ " RATE ", " CALL ", " RESOURCE " ]",
    SHARED "limits: [ " RATE " ]",
    SHARED "limits: [ " RATE ", " CALL ", " RESOURCE " ]",
    SUBJECTS "limits: [ " RATE " ]",
    SHARED SUBJECTS "limits: [ " RATE " ]",
    SHARED SUBJECTS "limits: [ " RATE ", " CALL " ]",
};

#define N_OF(array) (sizeof(array) / sizeof(*(array)))

static struct weir_request *of_subject(struct weir_request *request)
{
    request->subject = "s";
    request->subject_size = 1;
    return request;
}

static uint64_t amount_of(const weir_acquisition *acquisition, const char *key)
{
    uint64_t amount = UINT64_MAX;

    assert_int_equal(weir_acquisition_amount(acquisition, key, &amount), 0);
    return amount;
}

/* ---- resources ---- */

static void units_of_a_resource_are_free_at_once(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_OF(resources); i++) {
        weir_acquisition *a, *b, *c;

        world_set(resources[i]);
        a = granted(of_subject(ASK({"slots", 8})));
        b = pending(of_subject(ASK({"slots", 3})));
        c = pending(of_subject(ASK({"slots", 4})));
        assert_int_equal(weir_return(a, "slots", 1), 0);
        assert_int_equal(weir_acquisition_result(b), 0);
        assert_int_equal(weir_acquisition_result(c), -EINPROGRESS);
        assert_int_equal(amount_of(a, "slots"), 7);
        assert_int_equal(limit_stats(0).held, 10);
        assert_int_equal(weir_return(a, "slots", 2), 0);
        assert_int_equal(weir_return(b, "slots", 1), 0);
        assert_int_equal(weir_acquisition_result(c), -EINPROGRESS);
        assert_int_equal(weir_return(a, "slots", 1), 0);
        assert_int_equal(weir_acquisition_result(c), 0);
        assert_int_equal(limit_stats(0).held, 10);
        assert_int_equal(stats().held, 3);
        assert_int_equal(stats().released, 0);
        release(a);
        assert_int_equal(limit_stats(0).held, 6);
        release(b);
        release(c);
        assert_int_equal(limit_stats(0).held, 0);
        assert_int_equal(stats().released, 3);
        world_close();
    }
}

static void no_more_goes_back_than_is_held(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_OF(resources); i++) {
        struct picture before, after;
        weir_acquisition *a;

        world_set(resources[i]);
        a = granted(of_subject(ASK({"slots", 4})));
        assert_int_equal(weir_return(a, "slots", 3), 0);
        before = picture();
        assert_int_equal(weir_return(a, "slots", 2), -ERANGE);
        assert_int_equal(weir_return(a, "slots", UINT64_MAX), -ERANGE);
        assert_int_equal(weir_return(a, "slots", 0), 0);
        after = picture();
        assert_same_limits(&before, &after);
        assert_int_equal(amount_of(a, "slots"), 1);
        assert_int_equal(weir_return(a, "slots", 1), 0);
        assert_int_equal(weir_return(a, "slots", 1), -ERANGE);
        assert_int_equal(limit_stats(0).held, 0);
        release(a);
        assert_int_equal(limit_stats(0).held, 0);
        assert_int_equal(stats().waiting, 0);
        world_close();
    }
}

/* What waits is known to a timer or a queue, which knows its record. */
static void what_was_waited_for_can_be_returned(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_OF(resources); i++) {
        struct weir_completion done;
        weir_acquisition *holder, *a, *b = NULL;
        weir_queue *queue;

        world_set(resources[i]);
        assert_int_equal(weir_queue_open(&queue, world.w, 4), 0);
        holder = granted(of_subject(ASK({"slots", 10})));
        a = pending(of_subject(ASK({"slots", 4})));
        assert_int_equal(
            weir_queue_submit(queue, world.pool, of_subject(ASK({"slots", 6})), 7, &b, NULL), 0);
        assert_int_equal(weir_return(a, "slots", 1), -EINVAL);
        assert_int_equal(weir_return(b, "slots", 1), -EBUSY);
        assert_true(weir_acquisition_fd(a) >= 0);
        release(holder);
        assert_int_equal(weir_return(b, "slots", 1), -EBUSY);
        assert_int_equal(weir_queue_reap(queue, &done, 1), 1);
        assert_ptr_equal(done.acquisition, b);
        assert_int_equal(weir_return(a, "slots", 3), 0);
        assert_int_equal(weir_return(b, "slots", 5), 0);
        assert_true(readable(weir_acquisition_fd(a)));
        assert_true(readable(weir_acquisition_fd(b)));
        assert_int_equal(weir_acquisition_result(a), 0);
        assert_int_equal(limit_stats(0).held, 2);
        assert_int_equal(weir_return(a, "slots", 1), 0);
        release(a);
        release(b);
        assert_int_equal(limit_stats(0).held, 0);
        weir_queue_close(queue);
        world_close();
    }
}

static void what_has_ended_has_nothing_to_return(void **state)
{
    weir_acquisition *holder, *a;

    (void)state;
    world_set(resources[0]);
    holder = granted(ASK({"slots", 10}));
    a = pending(with_timeout(ASK({"slots", 1}), 5));
    advance(5);
    assert_int_equal(weir_return(a, "slots", 1), -EINVAL);
    release(a);
    a = pending(ASK({"slots", 1}));
    assert_int_equal(weir_cancel(a), 0);
    assert_int_equal(weir_return(a, "slots", 1), -EINVAL);
    release(a);
    release(holder);
    a = granted(ASK({"slots", 0}));
    assert_int_equal(weir_return(a, "slots", 1), -ERANGE);
    assert_int_equal(weir_return(a, "slots", 0), 0);
    release(a);
    world_close();
}

static void a_holder_is_listed_with_the_rest(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_OF(resources); i++) {
        struct weir_holder before, after;
        uint64_t amounts[3] = {0};
        weir_acquisition *a;

        world_set(resources[i]);
        a = granted(of_subject(ASK({"slots", 8})));
        assert_int_equal(weir_set_holders(world.set, &before, 1), 1);
        advance(SECOND);
        assert_int_equal(weir_return(a, "slots", 5), 0);
        assert_int_equal(weir_set_holders(world.set, &after, 1), 1);
        assert_int_equal(after.since_ns, START);
        assert_int_equal(after.thread, before.thread);
        assert_int_equal(after.process, before.process);
        assert_false(after.waiting);
        assert_true(weir_set_holder_amounts(world.set, &after, amounts, 3) > 0);
        assert_int_equal(amounts[0], 3);
        release(a);
        assert_int_equal(weir_set_holders(world.set, NULL, 0), 0);
        world_close();
    }
}

static void *return_one(void *acquisition)
{
    return weir_return(acquisition, "slots", 1) == 0 ? acquisition : NULL;
}

/* The next grant on the fast path has the amounts that it asked for, and the defaults. */
static void another_thread_may_return_and_caches_stay_right(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_OF(resources); i++) {
        world_set(resources[i]);
        for (unsigned turn = 0; turn < 3; turn++) {
            weir_acquisition *a = granted(of_subject(ASK({"slots", 4})));
            bool has_calls = weir_set_limits(world.set) > 1;
            pthread_t thread;
            void *returned;

            assert_int_equal(amount_of(a, "slots"), 4);
            if (has_calls) {
                assert_int_equal(amount_of(a, "calls"), 1);
                assert_int_equal(weir_return(a, "calls", 1), 0);
                assert_int_equal(amount_of(a, "calls"), 0);
            }
            assert_int_equal(pthread_create(&thread, NULL, return_one, a), 0);
            pthread_join(thread, &returned);
            assert_ptr_equal(returned, a);
            assert_int_equal(limit_stats(0).held, 3);
            release(a);
            assert_int_equal(limit_stats(0).held, 0);
        }
        world_close();
    }
}

static void the_twin_gets_what_goes_back(void **state)
{
    weir_acquisition *a, *b = NULL;
    struct twin twin;

    (void)state;
    world_set(resources[2]);
    twin = world_twin("main");
    a = granted(ASK({"slots", 10}));
    assert_int_equal(weir_submit(twin.pool, ASK({"slots", 4}), &b, NULL), 1);
    assert_int_equal(weir_return(a, "slots", 4), 0);
    advance(0);
    weir_tick(twin.w);
    assert_int_equal(weir_acquisition_result(b), 0);
    assert_int_equal(weir_release(&b), 0);
    release(a);
    world_twin_close(&twin);
    world_close();
}

/* ---- rates and calls ---- */

static void unused_units_of_a_rate_are_refunded(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_OF(rates); i++) {
        weir_acquisition *a;

        world_set(rates[i]);
        a = granted(of_subject(ASK({"tokens", 80})));
        assert_int_equal(weir_return(a, "tokens", 50), 0);
        assert_int_equal(amount_of(a, "tokens"), 30);
        assert_int_equal(limit_stats(0).refunded, 50);
        assert_int_equal(stats().refunded, 1);
        /* All but 30 can be had at once. */
        assert_int_equal(take(of_subject(ASK({"tokens", 71}, {"slots", 0}))), -EAGAIN);
        assert_int_equal(take(of_subject(ASK({"tokens", 70}, {"slots", 0}))), 0);
        /* An update is of what is left. */
        assert_int_equal(weir_update(a, "tokens", 10), 0);
        release(a);
        assert_int_equal(limit_stats(0).refunded, 70);
        assert_int_equal(take(of_subject(ASK({"tokens", 21}, {"slots", 0}))), -EAGAIN);
        assert_int_equal(take(of_subject(ASK({"tokens", 20}, {"slots", 0}))), 0);
        world_close();
    }
}

static void after_an_update_only_the_unused_goes_back(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_OF(rates); i++) {
        struct picture before, after;
        weir_acquisition *a;

        world_set(rates[i]);
        a = granted(of_subject(ASK({"tokens", 80})));
        assert_int_equal(weir_update(a, "tokens", 60), 0);
        before = picture();
        assert_int_equal(weir_return(a, "tokens", 21), -ERANGE);
        after = picture();
        assert_same_limits(&before, &after);
        assert_int_equal(weir_return(a, "tokens", 20), 0);
        assert_int_equal(weir_return(a, "tokens", 1), -ERANGE);
        assert_null(weir_acquisition_missing_update(a));
        /* A later update has its say about what is left. */
        assert_int_equal(weir_update(a, "tokens", 55), 0);
        assert_int_equal(weir_return(a, "tokens", 5), 0);
        assert_int_equal(weir_update(a, "tokens", 58), 0);
        assert_int_equal(weir_return(a, "tokens", 1), -ERANGE);
        assert_int_equal(weir_return(a, "tokens", 0), 0);
        release(a);
        assert_int_equal(limit_stats(0).refunded, 25);
        assert_int_equal(limit_stats(0).overused, 3);
        world_close();
    }
}

static void what_is_left_needs_its_update(void **state)
{
    weir_acquisition *a;

    (void)state;
    world_set("limits: [ " RATE ", " CALL " ]");
    a = granted(ASK({"tokens", 80}, {"calls", 3}));
    assert_int_equal(weir_return(a, "tokens", 50), 0);
    assert_int_equal(weir_return(a, "calls", 1), 0);
    release_expecting(a, -EPROTO);
    assert_int_equal(limit_stats(0).refunded, 50);
    assert_int_equal(limit_stats(0).overused, 0);
    /* Of a call of 1, or of nothing, none is needed. */
    a = granted(ASK({"tokens", 10}, {"calls", 3}));
    assert_int_equal(weir_return(a, "tokens", 10), 0);
    assert_int_equal(weir_return(a, "calls", 2), 0);
    assert_null(weir_acquisition_missing_update(a));
    assert_int_equal(weir_update(a, "tokens", 0), -EINVAL);
    assert_int_equal(weir_update(a, "calls", 0), -ERANGE);
    assert_int_equal(weir_update(a, "calls", 1), 0);
    release(a);
    assert_int_equal(limit_stats(1).refunded, 3);
    world_close();
}

static void a_limit_without_refunds_gets_nothing_back(void **state)
{
    weir_acquisition *a;

    (void)state;
    world_set(
        "limits: [ { type: rate, key: tokens, algorithm: token_bucket, capacity: 100, window: "
        "1s, refund: false } ]");
    a = granted(ASK({"tokens", 100}));
    assert_int_equal(weir_return(a, "tokens", 60), 0);
    assert_int_equal(available(0), 0);
    assert_int_equal(limit_stats(0).refunded, 0);
    release_used(a, "tokens", 40);
    assert_int_equal(available(0), 0);
    world_close();
}

/* 100 units a second, burst 100. Of what goes back after 300 ms, 30 have come since the grant. */
static void strict_refunds_are_less_what_has_come(void **state)
{
    weir_acquisition *a;

    (void)state;
    world_set(
        "limits: [ { type: rate, key: tokens, algorithm: token_bucket, capacity: 100, window: "
        "1s, refund: strict } ]");
    a = granted(ASK({"tokens", 100}));
    advance(300 * MS);
    assert_int_equal(available(0), 30);
    assert_int_equal(weir_return(a, "tokens", 50), 0);
    assert_int_equal(available(0), 50);
    assert_int_equal(weir_return(a, "tokens", 20), 0);
    assert_int_equal(available(0), 50);
    release_used(a, "tokens", 30);
    world_close();
}

static void it_makes_a_grant_final(void **state)
{
    weir_acquisition *a;
    uint64_t at;

    (void)state;
    world_set("limits: [ " RATE " ]");
    assert_int_equal(take(ASK({"tokens", 100})), 0);
    a = pending(ASK({"tokens", 10}));
    advance(SECOND);
    assert_int_equal(weir_return(a, "tokens", 1), 0);
    assert_int_equal(weir_cancel(a), -EALREADY);
    release_expecting(a, -EPROTO);
    assert_int_equal(take(ASK({"tokens", available(0)})), 0);
    assert_int_equal(reserve(ASK({"tokens", 20}), &a, &at), 0);
    assert_int_equal(weir_return(a, "tokens", 5), 0);
    assert_int_equal(amount_of(a, "tokens"), 15);
    assert_int_equal(weir_cancel(a), -EALREADY);
    release_used(a, "tokens", 15);
    world_close();
}

static void all_limits_of_one_key_get_their_part(void **state)
{
    weir_acquisition *a;

    (void)state;
    world_limits("{ type: rate, key: k, algorithm: token_bucket, capacity: 10, window: 1s }, "
                 "{ type: rate, key: k, algorithm: token_bucket, capacity: 99, window: 1h }");
    a = granted(ASK({"k", 10}));
    assert_int_equal(weir_return(a, "k", 4), 0);
    assert_int_equal(available(0), 4);
    assert_int_equal(available(1), 93);
    release_used(a, "k", 6);
    world_close();
}

/* ---- errors ---- */

static void an_unknown_key_is_warned_of_or_refused(void **state)
{
    weir_acquisition *a;

    (void)state;
    world_set(resources[0]);
    a = granted(ASK({"slots", 2}));
    assert_int_equal(weir_return(a, "slot", 1), 0);
    assert_int_equal(world.logged, 1);
    assert_int_equal(limit_stats(0).held, 2);
    release(a);
    a = granted(strict(ASK({"slots", 2})));
    assert_int_equal(weir_return(a, "slot", 1), -ENOENT);
    release(a);
    world_close();
}

/* Returns one unit without memory, room or descriptors. Returns whether that failed. */
static bool fails_without_memory(weir_acquisition *a)
{
    uint64_t amount = amount_of(a, "slots"), failed;
    struct picture before = picture(), after;
    int r;

    fake_os_fail_kind_from(1, FAKE_ANY, 0);
    r = weir_return(a, "slots", 1);
    failed = fake_os_has_failed();
    fake_os_fail_kind_at(0, 0, 0);
    assert_int_equal(amount_of(a, "slots"), amount - (r == 0));
    if (r == 0)
        return false;
    assert_int_equal(r, -ENOMEM);
    assert_true(failed);
    after = picture();
    assert_same_limits(&before, &after);
    return true;
}

/* The rest needs a record of its own in a shared set. Where none is left, nothing has changed. */
static void without_memory_nothing_has_changed(void **state)
{
    enum { OTHERS_MAX = 2000 };
    static weir_acquisition *others[OTHERS_MAX];
    static const char *const prefixes[] = {"", SUBJECTS, SHARED, SHARED SUBJECTS};
    char fields[256];

    (void)state;
    for (size_t i = 0; i < N_OF(prefixes); i++) {
        weir_acquisition *a;
        unsigned n = 0;

        snprintf(fields, sizeof(fields),
                 "%slimits: [ { type: resource, key: slots, capacity: 9999 } ]", prefixes[i]);
        world_set(fields);
        a = granted(of_subject(ASK({"slots", 3000})));
        while (n < OTHERS_MAX && !fails_without_memory(a))
            others[n++] = granted(of_subject(ASK({"slots", 1})));
        assert_int_equal(n < OTHERS_MAX, strstr(prefixes[i], SHARED) != NULL);
        assert_int_equal(weir_return(a, "slots", 1), 0);
        release(a);
        assert_int_equal(limit_stats(0).held, n);
        while (n > 0)
            release(others[--n]);
        assert_int_equal(limit_stats(0).held, 0);
        world_close();
    }
}

static void in_a_forked_child_it_is_refused(void **state)
{
    weir_acquisition *a;
    int status;
    pid_t child;

    (void)state;
    world_set(resources[2]);
    a = granted(ASK({"slots", 2}));
    child = fork();
    if (child == 0)
        _exit(weir_return(a, "slots", 1) == -ECHILD ? 0 : 1);
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(limit_stats(0).held, 2);
    release(a);
    world_close();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_checked_test(units_of_a_resource_are_free_at_once),
        leak_checked_test(no_more_goes_back_than_is_held),
        leak_checked_test(what_was_waited_for_can_be_returned),
        leak_checked_test(what_has_ended_has_nothing_to_return),
        leak_checked_test(a_holder_is_listed_with_the_rest),
        leak_checked_test(another_thread_may_return_and_caches_stay_right),
        leak_checked_test(the_twin_gets_what_goes_back),
        leak_checked_test(unused_units_of_a_rate_are_refunded),
        leak_checked_test(after_an_update_only_the_unused_goes_back),
        leak_checked_test(what_is_left_needs_its_update),
        leak_checked_test(a_limit_without_refunds_gets_nothing_back),
        leak_checked_test(strict_refunds_are_less_what_has_come),
        leak_checked_test(it_makes_a_grant_final),
        leak_checked_test(all_limits_of_one_key_get_their_part),
        leak_checked_test(an_unknown_key_is_warned_of_or_refused),
        leak_checked_test(without_memory_nothing_has_changed),
        leak_checked_test(in_a_forked_child_it_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
