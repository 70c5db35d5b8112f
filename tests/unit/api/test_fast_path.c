/* SPDX-License-Identifier: MIT */
/* The fast path: what is used again is as new, and everything out of the ordinary takes the slow
 * path. The argument names the backend. */
#include "lib/world.h"
#include "set/set.h"
#include "wait/acquisition_handle.h"
#include <pthread.h>
#include <unistd.h>

#define CALL "{ type: call, algorithm: gcra, capacity: 3, window: 3s }"
#define RATE "{ type: rate, key: k, algorithm: token_bucket, capacity: 10, window: 10s }"
#define WORD "{ type: rate, key: k, algorithm: gcra, capacity: 10, window: 10s }"
#define SLOT "{ type: resource, key: r, capacity: 1 }"

/* The fields of a set of these limits. */
static const char *fields_of(const char *limits)
{
    static char fields[1024];

    snprintf(fields, sizeof(fields), "limits: [ %s ]", limits);
    return fields;
}

static void open_limits(const char *limits)
{
    world_set(fields_of(limits));
}

static struct weir_holder holder(void)
{
    struct weir_holder holder;

    assert_int_equal(weir_set_holders(world.set, &holder, 1), 1);
    return holder;
}

static uint64_t amount_held(void)
{
    struct weir_holder found = holder();
    uint64_t amount = 0;

    assert_int_equal(weir_set_holder_amounts(world.set, &found, &amount, 1), 1);
    return amount;
}

/* The answers to the one before, and its owner, are gone. */
static void what_is_used_again_is_as_new(void **state)
{
    weir_acquisition *a;

    (void)state;
    open_limits(WORD);
    for (unsigned i = 1; i <= 4; i++) {
        a = granted(i % 2 ? strict(ASK({"k", i})) : ASK({"k", i}));
        assert_int_equal(amount_held(), i);
        assert_int_equal(holder().since_ns, world.now);
        assert_int_equal(weir_update(a, "x", 1), i % 2 ? -ENOENT : 0);
        assert_int_equal(weir_update(a, "k", i), 0);
        release(a);
        a = granted(ASK({"k", i}));
        release_expecting(a, -EPROTO);
        assert_int_equal(weir_set_holders(world.set, NULL, 0), 0);
        advance(10 * SECOND);
    }
    assert_int_equal(stats().missing_update, 4);
    assert_int_equal(stats().released, 8);
    assert_int_equal(limit_stats(0).granted, 20);
    world_close();
}

/* Several at a time, given back in another order. */
static void those_held_at_a_time_are_different_ones(void **state)
{
    enum { HELD = 70 }; /* more than a thread keeps */
    weir_acquisition *all[HELD];

    (void)state;
    open_limits("{ type: resource, key: r, capacity: 70 }");
    for (int round = 0; round < 4; round++) {
        for (int i = 0; i < HELD; i++)
            all[i] = granted(NULL);
        assert_int_equal(weir_set_holders(world.set, NULL, 0), HELD);
        assert_int_equal(take(ASK({"r", 0})), 0);
        assert_int_equal(try_acquire(NULL, &(weir_acquisition *){NULL}), -EAGAIN);
        for (int i = 0; i < HELD; i++)
            release(all[(i + 7 * round) % HELD]);
        assert_int_equal(limit_stats(0).held, 0);
    }
    world_close();
}

/* A thread has what it gave back for several sets, and each goes with the set that it is ready for.
 */
static void sets_do_not_get_in_each_others_way(void **state)
{
    weir_pool *other;
    weir_acquisition *a, *b;
    char text[1024];

    (void)state;
    snprintf(text, sizeof(text), "version: 1\nsets:\n  main: { %.300s }\n", fields_of(SLOT));
    snprintf(text + strlen(text), sizeof(text) - strlen(text), "  other: { %.300s }\n",
             fields_of(WORD));
    snprintf(text + strlen(text), sizeof(text) - strlen(text), "  two: { %.300s }\n",
             fields_of(WORD ", " SLOT));
    world_open(text, "main");
    for (int i = 0; i < 12; i++) {
        other = pool_open(i % 3 ? "other" : "two", 0);
        a = granted(NULL);
        assert_int_equal(weir_try_acquire(other, ASK({"k", 1}), &b, NULL), 0);
        assert_int_equal(weir_set_holders(world.set, NULL, 0), 1);
        assert_int_equal(weir_set_holders(weir_pool_set(other, 0), NULL, 0), 1);
        assert_int_equal(weir_update(b, "k", 0), 0);
        if (i % 2)
            release(a);
        release(b);
        assert_int_equal(limit_stats(0).held, i % 2 ? 0 : 1);
        if (!(i % 2))
            release(a);
        assert_int_equal(weir_set_holders(weir_pool_set(other, 0), NULL, 0), 0);
        weir_pool_close(other);
    }
    assert_int_equal(limit_stats(0).held, 0);
    world_close();
}

/* What is given back after a waiter has joined belongs to the waiter. */
static void waiters_that_came_meanwhile_are_granted(void **state)
{
    weir_acquisition *a, *b;

    (void)state;
    open_limits(SLOT);
    release(granted(NULL));
    for (int i = 0; i < 3; i++) {
        a = granted(NULL);
        b = pending(NULL);
        assert_int_equal(try_acquire(NULL, &(weir_acquisition *){NULL}), -EAGAIN);
        release(a);
        assert_int_equal(weir_acquisition_result(b), 0);
        assert_int_equal(limit_stats(0).held, 1);
        release(b);
    }
    assert_int_equal(limit_stats(0).held, 0);
    world_close();
}

static void what_was_refused_says_so_and_takes_nothing(void **state)
{
    weir_acquisition *a, *b = NULL;

    (void)state;
    open_limits(SLOT);
    for (int i = 0; i < 3; i++) {
        a = granted(NULL);
        for (int j = 0; j < 3; j++)
            assert_int_equal(try_acquire(NULL, &b), -EAGAIN);
        assert_null(b);
        assert_string_equal(refusal.key, "r");
        assert_string_equal(refusal.set, "main");
        assert_int_equal(refusal.retry_after_ns, 0);
        release(a);
    }
    assert_int_equal(stats().refused_busy, 9);
    assert_int_equal(limit_stats(0).refused, 9);
    assert_int_equal(stats().granted, 3);
    world_close();
    open_limits(CALL);
    for (int i = 0; i < 3; i++)
        release(granted(NULL));
    assert_int_equal(take(NULL), -EAGAIN);
    assert_int_equal(refusal.retry_after_ns, SECOND);
    assert_int_equal(try_acquire(NULL, &b), -EAGAIN);
    assert_int_equal(refusal.retry_after_ns, SECOND);
    assert_string_equal(refusal.key, "call_count");
    assert_int_equal(limit_stats(0).refused, 2);
    world_close();
}

static void expect_error(const struct weir_request *request, int error)
{
    weir_acquisition *a = NULL;

    assert_int_equal(take(request), error);
    assert_int_equal(try_acquire(request, &a), error);
    assert_null(a);
}

/* Amounts that are not there, or stand for none, are an error of every set, and after grants, too.
 */
static void what_names_no_amount_is_an_error(void **state)
{
    enum { RATES = 3 };
    static const char *const limits[] = {
        WORD,
        RATE,
        WORD ", " CALL,
        "{ type: resource, key: k, capacity: 1000 }",
        "{ type: resource, key: k, capacity: 18446744073709551615 }",
    };
    const struct weir_request absent = {.size = sizeof(absent), .amounts_n = 1};

    (void)state;
    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
        open_limits(limits[i]);
        for (int j = 0; j < 3; j++) {
            weir_acquisition *a = granted(ASK({"k", 1}));

            assert_int_equal(weir_update(a, "k", 1), i < RATES ? 0 : -EINVAL);
            release(a);
            expect_error(&absent, -EINVAL);
            expect_error(ASK({NULL, 1}), -EINVAL);
            expect_error(ASK({"k", UINT64_MAX}), -ERANGE);
        }
        assert_int_equal(limit_stats(0).granted, 3);
        world_close();
    }
}

/* A descriptor, an amount that was not used up, a reservation: what follows is as it was. */
static void whatever_is_out_of_the_ordinary_goes_the_long_way(void **state)
{
    uint64_t descriptors, at;
    weir_acquisition *a;

    (void)state;
    open_limits(WORD);
    for (int i = 0; i < 4; i++) {
        a = granted(ASK({"k", 1}));
        descriptors = fake_os_live().descriptors;
        assert_true(weir_acquisition_fd(a) >= 0);
        release_expecting(a, -EPROTO);
        assert_int_equal(fake_os_live().descriptors, descriptors);
        advance(SECOND);
        a = granted(ASK({"k", 10}));
        assert_true(weir_acquisition_fd(a) >= 0);
        assert_int_equal(weir_update(a, "k", 0), 0);
        release(a);
        a = granted(ASK({"k", 10})); /* everything came back */
        assert_int_equal(weir_cancel(a), -EALREADY);
        assert_int_equal(weir_update(a, "k", 4), 0);
        release(a);
        assert_int_equal(limit_stats(0).available, 6);
        assert_int_equal(reserve(ASK({"k", 7}), &a, &at), 0);
        assert_int_equal(at, world.now + SECOND);
        assert_int_equal(weir_cancel(a), 0);
        release(a);
        advance(20 * SECOND);
    }
    assert_int_equal(stats().refunded, 12);
    world_close();
}

/* A thread with a reading from before a waiter left the queue is not granted as of it. */
static void no_instant_counts_at_which_others_were_waiting(void **state)
{
    weir_acquisition *a, *b = NULL;

    (void)state;
    fake_clock_set(START);
    world_real(fields_of(WORD));
    release_expecting(granted(ASK({"k", 10})), -EPROTO);
    fake_clock_advance(5 * SECOND);
    a = pending(ASK({"k", 10}));
    assert_int_equal(weir_cancel(a), 0);
    release(a);
    assert_int_equal(take(ASK({"k", 1})), 0); /* back in its word, at this instant */
    fake_clock_set(START + 2 * SECOND);
    assert_int_equal(take(ASK({"k", 1})), -EAGAIN);
    assert_int_equal(try_acquire(ASK({"k", 1}), &b), -EAGAIN);
    fake_clock_advance(3 * SECOND);
    release_expecting(granted(ASK({"k", 1})), -EPROTO);
    world_close();
}

/* `*argument`: how many of the holders were another thread. */
static void *hold_and_release(void *argument)
{
    struct weir_holder holders[3];
    weir_acquisition *all[3];

    for (int i = 0; i < 3; i++)
        all[i] = granted(NULL);
    assert_int_equal(weir_set_holders(world.set, holders, 3), 3);
    for (int i = 0; i < 3; i++) {
        *(int *)argument += holders[i].thread != (uint32_t)gettid();
        release(all[i]);
    }
    return NULL;
}

/*
 * Of a resource it is no matter that the kernel's last tick was before the set was in its word
 * again: it is held from then on.
 */
static void a_resource_goes_by_no_instant(void **state)
{
    weir_acquisition *a, *b;

    (void)state;
    fake_clock_set(START);
    world_real(fields_of(SLOT));
    a = granted(NULL);
    b = pending(NULL);
    assert_int_equal(weir_cancel(b), 0);
    release(b);
    fake_clock_advance(5 * SECOND + MS / 2);
    release(a);
    release(granted(NULL)); /* back in its word, at this instant */
    for (int i = 0; i < 3; i++) {
        a = granted(NULL);
        assert_int_equal(holder().since_ns, START + 5 * SECOND + MS / 2);
        release(a);
    }
    world_close();
}

/* Of a set that turned out to be damaged: neither its record nor its state says anything, and what
 * was used of it would not count. */
static void nothing_of_a_damaged_set_goes_back(void **state)
{
    static const char *const limits[] = {WORD, SLOT, WORD ", " SLOT, CALL};
    uint32_t record;

    (void)state;
    for (size_t i = 0; backend->is_shared && i < sizeof(limits) / sizeof(limits[0]); i++) {
        weir_acquisition *a;

        open_limits(limits[i]);
        for (int turn = 0; turn < 2; turn++) {
            a = granted(i % 2 ? NULL : ASK({"k", 1}));
            if (turn == 0)
                release_expecting(a, i % 2 ? 0 : -EPROTO);
        }
        record = a->record;
        participant_mark_broken(world.set->participant);
        assert_int_equal(weir_update(a, "k", 1), -EUCLEAN);
        release_expecting(a, 0);
        assert_int_equal(record_state(record_load(&set_record(world.set, record)->word)),
                         RECORD_HELD);
        assert_int_equal(try_acquire(i % 2 ? NULL : ASK({"k", 1}), &a), -EUCLEAN);
        world_close();
    }
}

/* Each uses what the one before has left. */
static void the_holder_is_the_thread_that_asked(void **state)
{
    pthread_t thread;
    int others = 0;

    (void)state;
    open_limits("{ type: resource, key: r, capacity: 3 }");
    for (int i = 0; i < 3; i++) {
        pthread_create(&thread, NULL, hold_and_release, &others);
        pthread_join(thread, NULL);
    }
    assert_int_equal(others, 0);
    assert_int_equal(stats().released, 9);
    world_close();
}

/* Sets with a state that is not inline, or not their own. */
static void other_sets_go_the_long_way(void **state)
{
    (void)state;
    open_limits(RATE);
    for (int i = 0; i < 5; i++) {
        weir_acquisition *a = granted(ASK({"k", 1}));

        assert_int_equal(weir_update(a, "k", 1), 0);
        release(a);
        assert_int_equal(take(ASK({"k", 1})), 0);
    }
    assert_int_equal(take(ASK({"k", 1})), -EAGAIN);
    world_close();
    open_limits(RATE ", " SLOT);
    for (int i = 0; i < 5; i++) {
        weir_acquisition *a = granted(ASK({"k", 1}));

        release_expecting(a, -EPROTO);
    }
    assert_int_equal(stats().missing_update, 5);
    world_close();
}

#define NAMED(key_, capacity_)                                                                     \
    "{ type: rate, key: " #key_ ", algorithm: gcra, capacity: " #capacity_ ", window: 1s,"         \
    " refund: true }, "

enum { NAMED_N = 4 };

/* Held is what was asked for, of the limits of that key; and told is what was used of it. */
static void held_is(weir_acquisition *a, const char *key, uint64_t used, const uint64_t *expected)
{
    struct weir_holder found = holder();
    uint64_t amounts[NAMED_N];

    assert_int_equal(weir_set_holder_amounts(world.set, &found, amounts, NAMED_N), NAMED_N);
    for (int i = 0; i < NAMED_N; i++)
        assert_int_equal(amounts[i], expected[i]);
    if (key)
        assert_int_equal(weir_update(a, key, used), 0);
    release_expecting(a, key ? 0 : -EPROTO);
    advance(SECOND);
}

/*
 * Of several limits, the next request may name another key in the same place, or as many, or what
 * cannot be granted: only what is named is another amount.
 */
static void what_was_named_before_does_not_count(void **state)
{
    static const struct {
        const char *key;
        uint64_t amount, used;
        uint64_t held[NAMED_N]; /* all 0: it can never be granted */
    } asked[] = {
        {"a", 3, 3, {3, 0, 0, 1}}, {"a", 4, 4, {4, 0, 0, 1}}, {"a", 5, 2, {5, 0, 0, 1}},
        {"k", 2, 2, {0, 2, 2, 1}}, {"k", 4, 4, {0, 4, 4, 1}}, {"k", 5, 1, {0, 5, 5, 1}},
        {"a", 1, 1, {1, 0, 0, 1}}, {"a", 2, 2, {2, 0, 0, 1}}, {"k", 7, 0, {0}},
        {"a", 6, 6, {6, 0, 0, 1}}, {"a", 7, 7, {7, 0, 0, 1}}, {"a", 101, 0, {0}},
        {"a", 8, 8, {8, 0, 0, 1}}, {"k", 6, 0, {0}},          {"k", 3, 3, {0, 3, 3, 1}},
        {"k", 1, 1, {0, 1, 1, 1}},
    };
    char key[] = "?";

    (void)state;
    open_limits(NAMED(a, 100) NAMED(k, 10) NAMED(k, 5) SLOT);
    for (size_t i = 0; i < sizeof(asked) / sizeof(asked[0]); i++) {
        weir_acquisition *a = NULL;
        int r;

        key[0] = asked[i].key[0];
        r = try_acquire(ASK({key, asked[i].amount}), &a);
        assert_int_equal(r, asked[i].held[NAMED_N - 1] ? 0 : -ERANGE);
        if (r == 0)
            held_is(a, key, asked[i].used, asked[i].held);
    }
    assert_int_equal(limit_stats(0).granted, 36);
    assert_int_equal(limit_stats(1).granted, 15);
    assert_int_equal(limit_stats(0).refunded, 3);
    assert_int_equal(limit_stats(1).refunded, 4);
    assert_int_equal(limit_stats(2).refunded, 4);
    assert_int_equal(limit_stats(3).held, 0);
    held_is(granted(ASK({"a", 1}, {"k", 1})), NULL, 0, (uint64_t[]){1, 1, 1, 1});
    held_is(granted(ASK({"a", 2})), NULL, 0, (uint64_t[]){2, 0, 0, 1});
    held_is(granted(ASK({"a", 3})), "a", 3, (uint64_t[]){3, 0, 0, 1});
    assert_int_equal(stats().missing_update, 2);
    world_close();
}

/* What is wrong with an update is found, whatever was named. */
static void an_update_is_of_what_it_names(void **state)
{
    (void)state;
    open_limits(NAMED(a, 100) NAMED(k, 10) NAMED(k, 5) SLOT);
    for (int i = 0; i < 4; i++) {
        weir_acquisition *a;

        release_used(granted(ASK({"a", 2})), "a", 2); /* it is cached, for the next ones */
        advance(SECOND);
        a = granted(ASK({"a", 2}));
        assert_int_equal(weir_update(a, NULL, 1), -EINVAL);
        assert_int_equal(weir_update(a, "k", 1), -EINVAL);
        assert_int_equal(weir_update(a, "r", 1), -EINVAL);
        assert_int_equal(weir_update(a, "x", 1), 0);
        release_expecting(a, -EPROTO);
        advance(SECOND);
        release_used(granted(ASK({"a", 2})), "a", 2);
        advance(SECOND);
        a = granted(strict(ASK({"a", 2})));
        assert_int_equal(weir_update(a, "x", 1), -ENOENT);
        assert_int_equal(weir_update(a, "a", 1), 0);
        assert_int_equal(weir_update(a, "a", 2), 0);
        release(a);
        advance(SECOND);
    }
    assert_int_equal(limit_stats(0).refunded, 0);
    assert_int_equal(stats().missing_update, 4);
    world_close();
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        leak_checked_test(what_is_used_again_is_as_new),
        leak_checked_test(those_held_at_a_time_are_different_ones),
        leak_checked_test(sets_do_not_get_in_each_others_way),
        leak_checked_test(waiters_that_came_meanwhile_are_granted),
        leak_checked_test(what_was_refused_says_so_and_takes_nothing),
        leak_checked_test(what_names_no_amount_is_an_error),
        leak_checked_test(whatever_is_out_of_the_ordinary_goes_the_long_way),
        leak_checked_test(no_instant_counts_at_which_others_were_waiting),
        leak_checked_test(a_resource_goes_by_no_instant),
        leak_checked_test(nothing_of_a_damaged_set_goes_back),
        leak_checked_test(the_holder_is_the_thread_that_asked),
        leak_checked_test(other_sets_go_the_long_way),
        leak_checked_test(what_was_named_before_does_not_count),
        leak_checked_test(an_update_is_of_what_it_names),
    };

    backend_choose(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
