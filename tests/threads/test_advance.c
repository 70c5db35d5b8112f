/* SPDX-License-Identifier: MIT */
/*
 * The timer thread with its timer set ahead, by a clock that stands still until the test moves it
 * on: it spins exactly for the time ahead of an instant, and does nothing early.
 */
#include "api/instance.h"
#include "lib/clock.h"
#include "lib/fake_os.h"
#include "lib/fixture.h"
#include "lib/require.h"
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <time.h>
#include <weir/weir.h>

#include <cmocka.h>

#define ADVANCE  (100 * US)
#define MOMENT   (20 * 1000 * US)
#define MOMENTS  500  /* until what must happen is taken not to happen */
#define READINGS 1000 /* of the clock, which only a thread that spins comes to */

static weir *w;
static weir_pool *pool;

/* One call a second, of which the first is gone. */
static int setup(void **state)
{
    static const struct weir_limit_spec limit = {.size = sizeof(limit),
                                                 .type = WEIR_LIMIT_CALL,
                                                 .algorithm = "gcra",
                                                 .capacity = 1,
                                                 .window_ns = SECOND};
    struct weir_options options = {.size = sizeof(options), .timer_advance_ns = ADVANCE};
    struct weir_set_spec set = {
        .size = sizeof(set), .name = "set", .limits = &limit, .limits_n = 1};
    struct weir_pool_spec spec = {.size = sizeof(spec), .sets = &set, .sets_n = 1};

    fixture_setup(state);
    fake_clock_set(1000 * SECOND);
    require(weir_open(&w, &options, NULL) == 0);
    require(weir_pool_new(&pool, w, &spec, NULL) == 0);
    require(weir_take(pool, NULL, NULL) == 0);
    return 0;
}

static int teardown(void **state)
{
    weir_close(w);
    weir_pool_close(pool);
    fake_os_reset();
    return fixture_teardown(state);
}

static weir_acquisition *pending(uint64_t timeout_ns)
{
    struct weir_request request = {.size = sizeof(request), .timeout_ns = timeout_ns};
    weir_acquisition *acquisition = NULL;

    require(weir_submit(pool, &request, &acquisition, NULL) == 1);
    return acquisition;
}

static void pause_for_a_moment(void)
{
    nanosleep(&(struct timespec){0, (long)MOMENT}, NULL);
}

static bool spins(void)
{
    uint64_t readings = fake_os_counts().now;

    for (int i = 0; i < MOMENTS && fake_os_counts().now < readings + READINGS; i++)
        pause_for_a_moment();
    return fake_os_counts().now >= readings + READINGS;
}

/* It may have something to do before. */
static bool comes_to_rest(void)
{
    for (int i = 0; i < MOMENTS; i++) {
        uint64_t readings = fake_os_counts().now;

        pause_for_a_moment();
        if (fake_os_counts().now == readings)
            return true;
    }
    return false;
}

static bool comes_to(weir_acquisition *acquisition, int result)
{
    for (int i = 0; i < MOMENTS && weir_acquisition_result(acquisition) == -EINPROGRESS; i++)
        pause_for_a_moment();
    return weir_acquisition_result(acquisition) == result;
}

static void release(weir_acquisition *acquisition)
{
    require(weir_release(&acquisition) == 0);
}

static void test_spins_for_the_time_ahead_and_grants_then(void **state)
{
    weir_acquisition *next = pending(WEIR_FOREVER), *last = pending(WEIR_FOREVER);

    (void)state;
    assert_true(comes_to_rest());
    fake_clock_advance(SECOND - ADVANCE - 1);
    assert_true(comes_to_rest());
    fake_clock_advance(1);
    assert_true(spins());
    fake_clock_advance(ADVANCE - 1);
    assert_true(spins());
    assert_int_equal(weir_acquisition_result(next), -EINPROGRESS);
    fake_clock_advance(1);
    assert_true(comes_to(next, 0));
    assert_true(comes_to_rest());
    fake_clock_advance(SECOND - 1); /* none of it is waited for otherwise */
    assert_true(spins());
    assert_int_equal(weir_acquisition_result(last), -EINPROGRESS);
    fake_clock_advance(1);
    assert_true(comes_to(last, 0));
    release(next);
    release(last);
}

/* What is due sooner than the advance is spun for at once. */
static void test_spins_for_what_is_near(void **state)
{
    weir_acquisition *near = pending(ADVANCE / 2);

    (void)state;
    assert_true(spins());
    fake_clock_advance(ADVANCE / 2 - 1);
    assert_true(spins());
    assert_int_equal(weir_acquisition_result(near), -EINPROGRESS);
    fake_clock_advance(1);
    assert_true(comes_to(near, -ETIMEDOUT));
    assert_true(comes_to_rest());
    release(near);
}

static void test_an_earlier_waiter_is_noticed(void **state)
{
    weir_acquisition *next = pending(WEIR_FOREVER), *before;

    (void)state;
    fake_clock_advance(SECOND - ADVANCE);
    assert_true(spins());
    before = pending(ADVANCE / 2);
    fake_clock_advance(ADVANCE / 2);
    assert_true(comes_to(before, -ETIMEDOUT));
    assert_int_equal(weir_acquisition_result(next), -EINPROGRESS);
    assert_true(spins());
    fake_clock_advance(ADVANCE / 2);
    assert_true(comes_to(next, 0));
    release(before);
    release(next);
}

/* The waiter that it spins for is gone: it ends with the instant. */
static void test_ends_for_no_waiter(void **state)
{
    weir_acquisition *next = pending(WEIR_FOREVER);

    (void)state;
    fake_clock_advance(SECOND - ADVANCE);
    assert_true(spins());
    release(next);
    fake_clock_advance(ADVANCE);
    assert_true(comes_to_rest());
}

/* The clock stands still, and weir_close returns. */
static void test_closing_ends_it(void **state)
{
    weir_acquisition *next = pending(WEIR_FOREVER);

    (void)state;
    fake_clock_advance(SECOND - ADVANCE);
    assert_true(spins());
    w = weir_close(w);
    assert_int_equal(weir_acquisition_result(next), -ESHUTDOWN);
    release(next);
}

static void test_bounded(void **state)
{
    struct weir_options options = {.size = sizeof(options),
                                   .timer_advance_ns = WEIR_TIMER_ADVANCE_MAX_NS + 1};
    struct weir_error error;
    weir *other = NULL;

    (void)state;
    assert_int_equal(weir_open(&other, &options, &error), -EINVAL);
    assert_string_equal(error.message, "options.timer_advance_ns is more than 1 ms");
    options.timer_advance_ns--;
    assert_int_equal(weir_open(&other, &options, &error), 0);
    weir_close(other);
}

#define ahead(function) cmocka_unit_test_setup_teardown(function, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ahead(test_spins_for_the_time_ahead_and_grants_then),
        ahead(test_spins_for_what_is_near),
        ahead(test_an_earlier_waiter_is_noticed),
        ahead(test_ends_for_no_waiter),
        ahead(test_closing_ends_it),
        ahead(test_bounded),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
