/* SPDX-License-Identifier: MIT */
/* Algorithms that break their contract: nothing is granted any more, waits end, one line of the log
 * says which plugin it was, and other sets go on. */
#include "lib/world.h"

#define GRANTS_MAX 300 /* by then a grant was checked, wherever the state is */

struct faulty {
    const char *algorithm;
    bool is_word; /* each grant is checked */
};

static const struct faulty faulties[] = {
    {"past", true},   {"past_try", true},   {"past_wide", true},    {"frozen", true},
    {"topped", true}, {"frozen_try", true}, {"frozen_wide", false},
};

/* Where each is tried. */
static const char *const places[] = {"", "backend: process, lifetime: users,",
                                     "subjects: { max: 10 },",
                                     "backend: process, lifetime: users, subjects: { max: 10 },"};
#define PLACES_N (sizeof(places) / sizeof(*places))

static char text[512]; /* of a configuration */

static void open_faulty(const char *fields, const char *algorithm)
{
    snprintf(text, sizeof(text),
             "version: 1\n"
             "sets: { main: { %s limits: [ { type: rate, key: k, algorithm: %s } ] },\n"
             "        other: { limits: [ { type: rate, key: k, algorithm: gcra, capacity: 9, "
             "window: 1s } ] } }\n",
             fields, algorithm);
    world_open(text, "main");
}

static const struct weir_request *ask(bool has_subject)
{
    static const struct weir_amount amount = {"k", 1};
    static struct weir_request request = {
        .size = sizeof(request), .amounts = &amount, .amounts_n = 1};

    request.subject = has_subject ? "s" : NULL;
    request.subject_size = has_subject;
    return &request;
}

/* Takes until the fault is found. */
static void expect_fault(const struct faulty *faulty, const char *fields)
{
    bool has_subject = strstr(fields, "subjects") != NULL;
    unsigned granted_n = 0;
    weir_acquisition *a = NULL;
    weir_pool *other;
    int r;

    open_faulty(fields, faulty->algorithm);
    while ((r = take(ask(has_subject))) == 0 && granted_n <= GRANTS_MAX)
        granted_n++;
    if (r != -EUCLEAN || granted_n < 2 || (faulty->is_word && !has_subject && granted_n != 2))
        fail_msg("%s, %s: %d after %u grants", faulty->algorithm, fields, r, granted_n);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(take(ask(has_subject)), -EUCLEAN);
        assert_int_equal(try_acquire(ask(has_subject), &a), -EUCLEAN);
        assert_int_equal(submit(ask(has_subject), &a), -EUCLEAN);
    }
    assert_int_equal(world.logged, 1);
    assert_non_null(strstr(world.log[0], faulty->algorithm));
    assert_non_null(strstr(world.log[0], "broke the contract"));
    other = pool_open("other", 0);
    assert_int_equal(weir_take(other, ASK({"k", 1}), NULL), 0);
    weir_pool_close(other);
    world_close();
}

static void nothing_is_granted_after_a_fault(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(faulties) / sizeof(*faulties); i++)
        for (size_t j = 0; j < PLACES_N; j++)
            expect_fault(&faulties[i], places[j]);
}

/* The fault shows when a release lets the next waiter in. */
static void waits_end_with_a_fault(void **state)
{
    static const char *const algorithms[] = {"past", "frozen", "past_wide", "frozen_wide"};

    (void)state;
    for (size_t i = 0; i < sizeof(algorithms) / sizeof(*algorithms); i++) {
        char fields[256];
        weir_acquisition *a[5];

        snprintf(fields, sizeof(fields),
                 "limits: [ { type: rate, key: k, algorithm: %s }, "
                 "{ type: resource, key: r, capacity: 1 } ]",
                 algorithms[i]);
        world_set(fields);
        a[0] = granted(ASK({"k", 1}, {"r", 1}));
        for (int j = 1; j < 5; j++)
            a[j] = pending(ASK({"k", 1}, {"r", 1}));
        release_used(a[0], "k", 1);
        assert_int_equal(weir_acquisition_result(a[1]), 0);
        release_used(a[1], "k", 1);
        for (int j = 2; j < 5; j++) {
            if (weir_acquisition_result(a[j]) != -EUCLEAN)
                fail_msg("%s: %d", algorithms[i], weir_acquisition_result(a[j]));
            release_expecting(a[j], 0);
        }
        assert_int_equal(world.logged, 1);
        world_close();
    }
}

/* Takes two units, and has another request wait. Returns its acquisition. */
static weir_acquisition *wait_for_the_third(const char *algorithm, const char *fields)
{
    bool has_subject = strstr(fields, "subjects") != NULL;
    weir_acquisition *a = NULL;

    open_faulty(fields, algorithm);
    for (int i = 0; i < 2; i++)
        assert_int_equal(take(ask(has_subject)), 0);
    submit(ask(has_subject), &a);
    assert_non_null(a);
    return a;
}

/* A waiter would be asked for again and again, at times that are never right. It is found at the
 * first of these times. */
static void a_grant_that_recedes_is_a_fault(void **state)
{
    static const char *const fields[] = {"", "backend: process, lifetime: users,",
                                         "subjects: { max: 10 },", "fair: per_limit,"};
    static const char *const algorithms[] = {"receding", "receding_wide", "doubling"};

    (void)state;
    for (size_t i = 0; i < sizeof(fields) / sizeof(*fields); i++)
        for (size_t j = 0; j < sizeof(algorithms) / sizeof(*algorithms); j++) {
            weir_acquisition *a = wait_for_the_third(algorithms[j], fields[i]);

            advance(START + 1);
            if (weir_acquisition_result(a) != -EUCLEAN)
                fail_msg("%s, %s: %d", algorithms[j], fields[i], weir_acquisition_result(a));
            release_expecting(a, 0);
            assert_int_equal(world.logged, 1);
            assert_non_null(strstr(world.log[0], algorithms[j]));
            world_close();
        }
}

/* A waiter that becomes the next one is told of a time at which it would be told to wait for a
 * release. */
static void a_grant_that_is_taken_back_is_a_fault(void **state)
{
    weir_acquisition *first = wait_for_the_third("retracted", ""), *second = NULL;

    (void)state;
    advance(1);
    assert_int_equal(submit(ask(false), &second), 1);
    assert_int_equal(weir_acquisition_result(second), -EINPROGRESS);
    release_expecting(first, 0);
    assert_int_equal(weir_acquisition_result(second), -EUCLEAN);
    release_expecting(second, 0);
    assert_int_equal(world.logged, 1);
    world_close();
}

static void a_grant_that_is_announced_in_steps_is_none(void **state)
{
    weir_acquisition *a = wait_for_the_third("hesitant", "");

    (void)state;
    for (int i = 0; i < 101 && weir_acquisition_result(a) == -EINPROGRESS; i++)
        advance(1000000000);
    assert_int_equal(weir_acquisition_result(a), 0);
    release_used(a, "k", 1);
    assert_int_equal(world.logged, 0);
    world_close();
}

/* What is held when the fault is found goes back without an error. */
static void holders_of_a_faulty_set_can_release(void **state)
{
    weir_acquisition *a, *b;

    (void)state;
    open_faulty("", "past");
    a = granted(ASK({"k", 1}));
    b = granted(ASK({"k", 1}));
    assert_int_equal(take(ASK({"k", 1})), -EUCLEAN);
    release_used(a, "k", 1);
    release_used(b, "k", 0);
    world_close();
}

static void a_reservation_finds_a_fault(void **state)
{
    weir_acquisition *a;
    uint64_t at_ns;

    (void)state;
    open_faulty("", "frozen");
    for (int i = 0; i < 2; i++) {
        assert_int_equal(reserve(ASK({"k", 1}), &a, &at_ns), 0);
        release_used(a, "k", 1);
    }
    assert_int_equal(reserve(ASK({"k", 1}), &a, &at_ns), -EUCLEAN);
    world_close();
}

/* The top bit of a state word, set before anything is taken, is not taken for the library's own. */
static void a_new_state_may_be_faulty(void **state)
{
    (void)state;
    for (size_t i = 0; i < PLACES_N; i++) {
        unsigned granted_n = 0;

        open_faulty(places[i], "topped_init");
        while (granted_n <= GRANTS_MAX && take(ask(strstr(places[i], "subjects") != NULL)) == 0)
            granted_n++;
        if (granted_n > 10)
            fail_msg("%s: %u grants of 10", places[i], granted_n);
        world_close();
    }
}

/* Takes one unit and gives it back, or uses two, until the algorithm is found out. */
static void expect_generosity(const char *algorithm, const char *place, uint64_t used)
{
    const struct weir_request *one = ask(strstr(place, "subjects") != NULL);
    weir_acquisition *a = NULL;
    unsigned n = 0;
    int r;

    snprintf(text, sizeof(text), "%s limits: [ { type: rate, key: k, algorithm: %s%s } ]", place,
             algorithm, used > 1 ? ", overuse: charge" : "");
    world_set(text);
    while ((r = take(one)) == 0 && n++ < 10 * GRANTS_MAX) {
        if (try_acquire(one, &a) == 0)
            release_used(a, "k", used);
        advance(1001);
    }
    /* Before, the log may warn of the overuse. */
    if (r != -EUCLEAN || world.logged > 2 || !strstr(world.log[world.logged - 1], algorithm))
        fail_msg("%s, %s, used %d: %d after %u grants", algorithm, place, (int)used, r, n);
    world_close();
}

/* What goes back is not more than was taken, and a debt does not make units available. */
static void a_generous_algorithm_is_faulty(void **state)
{
    static const char *const algorithms[] = {"generous", "generous_wide"};

    (void)state;
    for (size_t i = 0; i < sizeof(algorithms) / sizeof(*algorithms); i++)
        for (size_t j = 0; j < PLACES_N; j++)
            for (uint64_t used = 0; used <= 2; used += 2)
                expect_generosity(algorithms[i], places[j], used);
}

/* A subject is forgotten only if its limits are as new: an algorithm that always says so is asked
 * what it would grant. */
static void a_forgetful_algorithm_is_faulty(void **state)
{
    static const char *const algorithms[] = {"forgetful", "forgetful_wide", "forgetful_large"};
    char subject[16];

    (void)state;
    for (size_t i = 0; i < sizeof(algorithms) / sizeof(*algorithms); i++)
        for (size_t j = 0; j < PLACES_N; j++) {
            struct weir_request one = *ask(true);
            int r = 0;

            if (!strstr(places[j], "subjects"))
                continue;
            open_faulty(places[j], algorithms[i]);
            one.subject = subject;
            for (int k = 0; k < 100 && r == 0; k++) {
                one.subject_size = (size_t)snprintf(subject, sizeof(subject), "%d", k);
                r = take(&one);
            }
            if (r != -EUCLEAN || world.logged != 1)
                fail_msg("%s, %s: %d, logged %u", algorithms[i], places[j], r, world.logged);
            assert_non_null(strstr(world.log[0], algorithms[i]));
            assert_int_equal(take(ask(true)), -EUCLEAN);
            world_close();
        }
}

/* An algorithm without state has nothing to take from. */
static void an_algorithm_without_state_is_not_faulty(void **state)
{
    (void)state;
    world_set("limits: [ { type: rate, key: k, algorithm: stingy } ]");
    for (int i = 0; i < 2 * GRANTS_MAX; i++)
        assert_int_equal(take(ASK({"k", 1})), 0);
    assert_int_equal(world.logged, 0);
    world_close();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_checked_test(nothing_is_granted_after_a_fault),
        leak_checked_test(waits_end_with_a_fault),
        leak_checked_test(a_grant_that_recedes_is_a_fault),
        leak_checked_test(a_grant_that_is_taken_back_is_a_fault),
        leak_checked_test(a_grant_that_is_announced_in_steps_is_none),
        leak_checked_test(holders_of_a_faulty_set_can_release),
        leak_checked_test(a_reservation_finds_a_fault),
        leak_checked_test(a_new_state_may_be_faulty),
        leak_checked_test(a_generous_algorithm_is_faulty),
        leak_checked_test(a_forgetful_algorithm_is_faulty),
        leak_checked_test(an_algorithm_without_state_is_not_faulty),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
