/* SPDX-License-Identifier: MIT */
/*
 * The timer, by a clock moved by hand: everything that is due is done at its instant, once, in
 * order, and what was decided before leaves no deadline behind.
 */
#include "api/acquisition.h"
#include "api/instance.h"
#include "lib/clock.h"
#include "lib/fake_os.h"
#include "lib/fixture.h"
#include "lib/require.h"
#include "set/hooks.h"
#include "wait/wait_timer.h"
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <unistd.h>
#include <weir/weir.h>

#include <cmocka.h>

static uint64_t now_ns;
static weir *w;
static weir_pool *pool;

static uint64_t read_clock(void *unused)
{
    (void)unused;
    return now_ns;
}

/* One call a second, and two of a resource. */
static int setup(void **state)
{
    static const struct weir_clock clock = {sizeof(clock), read_clock, NULL, NULL};
    static const struct weir_limit_spec limits[] = {
        {.size = sizeof(limits[0]),
         .type = WEIR_LIMIT_CALL,
         .algorithm = "gcra",
         .capacity = 1,
         .window_ns = 1000 * MS},
        {.size = sizeof(limits[0]), .type = WEIR_LIMIT_RESOURCE, .key = "db", .capacity = 2},
    };
    struct weir_options options = {.size = sizeof(options), .clock = &clock};
    struct weir_set_spec set = {
        .size = sizeof(set), .name = "set", .limits = limits, .limits_n = 2};
    struct weir_pool_spec spec = {.size = sizeof(spec), .sets = &set, .sets_n = 1};

    fixture_setup(state);
    now_ns = 5000 * MS;
    require(weir_open(&w, &options, NULL) == 0);
    require(weir_pool_new(&pool, w, &spec, NULL) == 0);
    return 0;
}

static int teardown(void **state)
{
    weir_close(w);
    weir_pool_close(pool);
    return fixture_teardown(state);
}

/* Submits one call or one of the resource. */
static weir_acquisition *submit(int expected, unsigned calls, unsigned db, uint64_t timeout_ns)
{
    const struct weir_amount amounts[] = {{"call_count", calls}, {"db", db}};
    struct weir_request request = {
        .size = sizeof(request), .amounts = amounts, .amounts_n = 2, .timeout_ns = timeout_ns};
    weir_acquisition *acquisition = NULL;

    require(weir_submit(pool, &request, &acquisition, NULL) == expected);
    return acquisition;
}

static void release(weir_acquisition *acquisition)
{
    require(weir_release(&acquisition) == 0);
}

/* How often the fd was signaled since it was last read. */
static uint64_t signals(weir_acquisition *acquisition)
{
    uint64_t n = 0;

    if (read(weir_acquisition_fd(acquisition), &n, sizeof(n)) < 0)
        require(errno == EAGAIN);
    return n;
}

static void test_granted_at_its_instant(void **state)
{
    weir_acquisition *first = submit(0, 1, 0, WEIR_FOREVER);
    weir_acquisition *next = submit(1, 1, 0, WEIR_FOREVER), *last = submit(1, 1, 0, WEIR_FOREVER);

    (void)state;
    now_ns += 1000 * MS - 1;
    assert_int_equal(weir_tick(w), 0);
    assert_int_equal(weir_acquisition_result(next), -EINPROGRESS);
    now_ns += 1;
    assert_int_equal(weir_tick(w), 1);
    assert_int_equal(weir_acquisition_result(next), 0);
    assert_int_equal(weir_acquisition_result(last), -EINPROGRESS);
    now_ns += 1000 * MS;
    assert_int_equal(weir_tick(w), 1);
    assert_int_equal(weir_acquisition_result(last), 0);
    assert_int_equal(weir_tick(w), 0);
    assert_int_equal(instance_wait(w)->timer.heap.n, 0);
    release(first);
    release(next);
    release(last);
}

static uint64_t word_of(const weir_acquisition *acquisition)
{
    return record_load(&record_at(&w->region, acquisition->record)->word);
}

/* A thread that was delayed on its way to arm the timer says what is not so any more. */
static void test_late_news_puts_nothing_off(void **state)
{
    weir_acquisition *first = submit(0, 1, 0, WEIR_FOREVER);
    weir_acquisition *next = submit(1, 1, 0, WEIR_FOREVER);

    (void)state;
    timer_arm_recheck(w, next->record, word_of(next), now_ns + 9000 * MS);
    now_ns += 1000 * MS;
    assert_int_equal(weir_tick(w), 1);
    assert_int_equal(weir_acquisition_result(next), 0);
    release(first);
    release(next);
}

/* Nor does it harm if the timer is told to look too early. */
static void test_early_news_is_looked_into(void **state)
{
    weir_acquisition *first = submit(0, 1, 0, WEIR_FOREVER);
    weir_acquisition *next = submit(1, 1, 0, WEIR_FOREVER);

    (void)state;
    timer_arm_recheck(w, next->record, word_of(next), now_ns + 1);
    now_ns += 1;
    weir_tick(w);
    assert_int_equal(weir_acquisition_result(next), -EINPROGRESS);
    now_ns += 1000 * MS - 1;
    weir_tick(w);
    assert_int_equal(weir_acquisition_result(next), 0);
    release(first);
    release(next);
}

/* 64 deadlines in a mixed order, each met at its instant and not before. */
static void test_deadlines_in_order(void **state)
{
    weir_acquisition *all = submit(0, 0, 2, WEIR_FOREVER), *waiting[64];

    (void)state;
    for (unsigned i = 0; i < 64; i++)
        waiting[i] = submit(1, 0, 1, (1 + i * 37 % 64) * MS);
    assert_int_equal(instance_wait(w)->timer.heap.n, 64);
    for (unsigned due = 1; due <= 64; due++) {
        now_ns += MS - 1;
        assert_int_equal(weir_tick(w), 0);
        now_ns += 1;
        assert_int_equal(weir_tick(w), 1);
        for (unsigned i = 0; i < 64; i++)
            assert_int_equal(weir_acquisition_result(waiting[i]),
                             1 + i * 37 % 64 <= due ? -ETIMEDOUT : -EINPROGRESS);
    }
    assert_int_equal(instance_wait(w)->timer.heap.n, 0);
    for (unsigned i = 0; i < 64; i++)
        release(waiting[i]);
    release(all);
}

/* Some leave the heap from the middle; the others keep their instants. */
static void test_deadlines_removed(void **state)
{
    weir_acquisition *all = submit(0, 0, 2, WEIR_FOREVER), *waiting[64];

    (void)state;
    for (unsigned i = 0; i < 64; i++)
        waiting[i] = submit(1, 0, 1, (1 + i * 37 % 64) * MS);
    for (unsigned i = 0; i < 64; i += 3) {
        release(waiting[i]);
        waiting[i] = NULL;
    }
    for (unsigned due = 1; due <= 64; due++) {
        now_ns += MS;
        weir_tick(w);
        for (unsigned i = 0; i < 64; i++)
            if (waiting[i])
                assert_int_equal(weir_acquisition_result(waiting[i]),
                                 1 + i * 37 % 64 <= due ? -ETIMEDOUT : -EINPROGRESS);
    }
    for (unsigned i = 0; i < 64; i++)
        release(waiting[i]);
    release(all);
}

/* Once granted, its deadline means nothing. */
static void test_deadline_of_a_grant(void **state)
{
    weir_acquisition *all = submit(0, 0, 2, WEIR_FOREVER), *next = submit(1, 0, 2, 10 * MS), *last;
    struct weir_set_stats stats = {.size = sizeof(stats)};

    (void)state;
    release(all);
    assert_int_equal(weir_acquisition_result(next), 0);
    assert_int_equal(instance_wait(w)->timer.heap.n, 0);
    last = submit(1, 0, 1, WEIR_FOREVER);
    now_ns += 20 * MS;
    assert_int_equal(weir_tick(w), 0);
    assert_int_equal(weir_acquisition_result(next), 0);
    assert_int_equal(weir_acquisition_result(last), -EINPROGRESS);
    require(weir_set_stats(weir_pool_set(pool, 0), &stats, NULL, 0) == 2);
    assert_int_equal(stats.timed_out, 0);
    release(next);
    assert_int_equal(weir_acquisition_result(last), 0);
    release(last);
}

/* A descriptor is written exactly once, whenever it is asked for. */
static void test_signaled_once(void **state)
{
    weir_acquisition *all = submit(0, 0, 2, WEIR_FOREVER);
    weir_acquisition *granted = submit(1, 0, 1, WEIR_FOREVER), *late = submit(1, 0, 1, 10 * MS);
    int fd = weir_acquisition_fd(granted);

    (void)state;
    assert_true(fd >= 0);
    assert_int_equal(signals(granted), 0);
    release(all);
    assert_int_equal(weir_acquisition_fd(granted), fd);
    weir_tick(w);
    assert_int_equal(signals(granted), 1);
    assert_int_equal(signals(granted), 0);
    assert_int_equal(signals(late), 1); /* decided before it was asked for */
    assert_int_equal(signals(late), 0);
    release(granted);
    release(late);
}

static void test_signaled_when_it_ends(void **state)
{
    weir_acquisition *all = submit(0, 0, 2, WEIR_FOREVER);
    weir_acquisition *canceled = submit(1, 0, 1, WEIR_FOREVER), *late = submit(1, 0, 1, 10 * MS);

    (void)state;
    assert_int_equal(signals(canceled) + signals(late), 0);
    assert_int_equal(weir_cancel(canceled), 0);
    assert_int_equal(signals(canceled), 1);
    assert_int_equal(weir_cancel(canceled), -EALREADY);
    assert_int_equal(signals(canceled), 0);
    now_ns += 10 * MS;
    weir_tick(w);
    assert_int_equal(signals(late), 1);
    release(canceled);
    release(late);
    release(all);
}

/* A descriptor for grants only says nothing of any other end. */
static void test_signaled_for_grants_only(void **state)
{
    weir_acquisition *all = submit(0, 0, 2, WEIR_FOREVER);
    weir_acquisition *granted = submit(1, 0, 1, WEIR_FOREVER), *late = submit(1, 0, 1, 10 * MS);
    weir_acquisition *canceled = submit(1, 0, 1, WEIR_FOREVER);
    int fd = weir_acquisition_grant_fd(granted), late_fd = weir_acquisition_grant_fd(late);
    uint64_t n;

    (void)state;
    assert_true(fd >= 0 && late_fd >= 0 && weir_acquisition_grant_fd(canceled) >= 0);
    assert_int_equal(weir_acquisition_fd(granted), -EINVAL);
    assert_int_equal(weir_acquisition_grant_fd(granted), fd);
    now_ns += 10 * MS;
    weir_tick(w);
    assert_int_equal(weir_acquisition_result(late), -ETIMEDOUT);
    assert_int_equal(weir_cancel(canceled), 0);
    assert_true(read(late_fd, &n, sizeof(n)) < 0 && errno == EAGAIN);
    assert_true(read(weir_acquisition_grant_fd(canceled), &n, sizeof(n)) < 0 && errno == EAGAIN);
    release(all);
    assert_true(read(fd, &n, sizeof(n)) == sizeof(n) && n == 1);
    release(canceled);
    release(late);
    release(granted);
    /* The other way round, and of one that was granted before it was asked for. */
    all = submit(0, 0, 2, WEIR_FOREVER);
    fd = weir_acquisition_grant_fd(all);
    assert_true(read(fd, &n, sizeof(n)) == sizeof(n) && n == 1);
    late = submit(1, 0, 1, WEIR_FOREVER);
    assert_true(weir_acquisition_fd(late) >= 0);
    assert_int_equal(weir_acquisition_grant_fd(late), -EINVAL);
    release(late);
    release(all);
}

/* Canceled after the grant, but before any thread looked: the grant goes back. */
static void test_canceled_after_the_grant(void **state)
{
    weir_acquisition *all = submit(0, 0, 2, WEIR_FOREVER), *late = submit(1, 0, 2, WEIR_FOREVER);

    (void)state;
    release(all);
    assert_int_equal(weir_cancel(late), 0);
    assert_int_equal(weir_acquisition_result(late), -ECANCELED);
    assert_int_equal(signals(late), 1);
    all = submit(0, 0, 2, WEIR_FOREVER);
    release(late);
    release(all);
}

/* What was never granted gives nothing back, however it ended. */
static void test_nothing_comes_of_nothing(void **state)
{
    weir_acquisition *all = submit(0, 0, 2, WEIR_FOREVER), *late = submit(1, 0, 2, 1);
    struct weir_limit_stats limits[2];
    struct weir_set_stats stats = {.size = sizeof(stats)};

    (void)state;
    now_ns += MS;
    weir_tick(w);
    assert_int_equal(weir_acquisition_result(late), -ETIMEDOUT);
    release(late);
    require(weir_set_stats(weir_pool_set(pool, 0), &stats, limits, 2) == 2);
    assert_int_equal(limits[1].held, 2);
    assert_int_equal(stats.released, 0);
    late = submit(1, 0, 1, WEIR_FOREVER);
    assert_int_equal(weir_acquisition_result(late), -EINPROGRESS);
    release(all);
    release(late);
}

/* A record is handed out once, however often it came back. */
static void test_records(void **state)
{
    weir_acquisition *waiting[200], *all = submit(0, 0, 2, WEIR_FOREVER);
    struct weir_holder holders[201];

    (void)state;
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 200; i++)
            waiting[i] = submit(1, 0, 1, WEIR_FOREVER);
        for (int i = 0; i < 200; i++)
            for (int j = 0; j < i; j++)
                assert_int_not_equal(waiting[i]->record, waiting[j]->record);
        assert_int_equal(weir_set_holders(weir_pool_set(pool, 0), holders, 201), 201);
        for (int i = 0; i < 200; i++)
            release(waiting[i]);
    }
    /* As many as were in use at once, and what magazines hold. */
    assert_true(w->region.records.used <= 2 * RUN_SIZE);
    release(all);
}

/* ---- while another thread delivers ---- */

enum { DELIVERIES = 300 };

static pthread_barrier_t delivery;
static weir_acquisition *delivery_holder; /* what the next round waits for */

static void *release_holders(void *unused)
{
    (void)unused;
    for (int i = 0; i < DELIVERIES; i++) {
        pthread_barrier_wait(&delivery);
        release(delivery_holder);
        pthread_barrier_wait(&delivery);
    }
    return NULL;
}

/* The caller sees its grant before the other thread has delivered it, and uses it at once. What the
 * two write lies apart, which the thread sanitizer holds. */
static void test_used_while_it_is_delivered(void **state)
{
    weir_acquisition *waiting;
    pthread_t thread;

    (void)state;
    require(pthread_barrier_init(&delivery, NULL, 2) == 0);
    require(pthread_create(&thread, NULL, release_holders, NULL) == 0);
    for (int i = 0; i < DELIVERIES; i++) {
        delivery_holder = submit(0, 0, 2, WEIR_FOREVER);
        waiting = submit(1, 0, 1, WEIR_FOREVER);
        pthread_barrier_wait(&delivery);
        while (weir_acquisition_result(waiting) == -EINPROGRESS)
            sched_yield();
        assert_int_equal(weir_outcome(waiting, WEIR_OUTCOME_OVERLOAD, MS), 0);
        assert_int_equal(waiting->outcome, WEIR_OUTCOME_OVERLOAD);
        assert_true(waiting->has_latency);
        pthread_barrier_wait(&delivery);
        assert_int_equal(signals(waiting), 1);
        release(waiting);
    }
    require(pthread_join(thread, NULL) == 0);
    pthread_barrier_destroy(&delivery);
}

#define by_hand(function) cmocka_unit_test_setup_teardown(function, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        by_hand(test_granted_at_its_instant),
        by_hand(test_late_news_puts_nothing_off),
        by_hand(test_early_news_is_looked_into),
        by_hand(test_deadlines_in_order),
        by_hand(test_deadlines_removed),

        by_hand(test_signaled_for_grants_only),
        by_hand(test_deadline_of_a_grant),
        by_hand(test_signaled_once),
        by_hand(test_signaled_when_it_ends),
        by_hand(test_canceled_after_the_grant),
        by_hand(test_nothing_comes_of_nothing),
        by_hand(test_records),
        by_hand(test_used_while_it_is_delivered),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
