/* SPDX-License-Identifier: MIT */
/*
 * Steps of the wall clock, while requests wait for a calendar day in every way there is: what was
 * forecast for them is computed again. With an injected clock, then with that of the machine, both
 * moved by hand.
 */
#include "lib/blocked.h"
#include "lib/world.h"
#include "wait/wait_timer.h"
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <weir/queue.h>

#define HOUR ((int64_t)3600 * 1000000000)
#define DAY  (24 * HOUR)

/* Five in the morning of some day. */
#define MORNING (20000 * DAY - (int64_t)START + 5 * HOUR)

#define TWO_A_DAY "{ type: call, algorithm: fixed_window, capacity: 2, window: 1d, anchor: epoch }"
/* Windows that have nothing to do with the wall clock. */
#define TWO_PER_USE "{ type: call, algorithm: fixed_window, capacity: 2, window: 1d }"

static int result(weir_acquisition *acquisition)
{
    return weir_acquisition_result(acquisition);
}

static int used_up(void)
{
    int r = take(ASK_DEFAULTS);

    return r < 0 ? r : take(ASK_DEFAULTS);
}

/* ---- an injected clock ---- */

static void open_injected(const char *fields)
{
    world_set(fields);
    world.wall = MORNING;
    assert_int_equal(used_up(), 0);
}

static void a_day_ahead_grants_at_once_and_in_turn(void **state)
{
    weir_acquisition *waiters[5];

    (void)state;
    open_injected("limits: [ " TWO_A_DAY " ]");
    for (int i = 0; i < 5; i++)
        waiters[i] = pending(ASK_DEFAULTS);
    assert_int_equal(weir_tick(world.w), 0);
    for (int day = 0; day < 2; day++) {
        world.wall += DAY;
        assert_int_equal(weir_tick(world.w), 2);
        for (int i = 0; i < 5; i++)
            assert_int_equal(result(waiters[i]), i < 2 * (day + 1) ? 0 : -EINPROGRESS);
    }
    assert_int_equal(advance((uint64_t)(19 * HOUR)), 1);
    for (int i = 0; i < 5; i++)
        release(waiters[i]);
    world_close();
}

/* The new day is nearer than was forecast, and not there yet. */
static void an_hour_ahead_brings_the_instant_forward(void **state)
{
    weir_acquisition *waiter;

    (void)state;
    open_injected("limits: [ " TWO_A_DAY " ]");
    waiter = pending(ASK_DEFAULTS);
    world.wall += HOUR;
    assert_int_equal(weir_tick(world.w), 0);
    assert_int_equal(advance((uint64_t)(18 * HOUR) - 1), 0);
    assert_int_equal(advance(1), 1);
    assert_int_equal(result(waiter), 0);
    release(waiter);
    world_close();
}

static void an_hour_back_puts_it_off(void **state)
{
    weir_acquisition *waiter;

    (void)state;
    open_injected("limits: [ " TWO_A_DAY " ]");
    waiter = pending(ASK_DEFAULTS);
    world.wall -= HOUR;
    assert_int_equal(advance((uint64_t)(20 * HOUR) - 1), 0);
    assert_int_equal(result(waiter), -EINPROGRESS);
    assert_int_equal(advance(1), 1);
    assert_int_equal(result(waiter), 0);
    release(waiter);
    world_close();
}

/* The waiter came while the clock was wrong, which no tick has seen. */
static void back_and_forth_between_two_ticks_is_noticed(void **state)
{
    weir_acquisition *first, *waiter;

    (void)state;
    open_injected("limits: [ " TWO_A_DAY " ]");
    first = pending(ASK_DEFAULTS);
    assert_int_equal(weir_tick(world.w), 0);
    release(first);
    world.wall -= DAY;
    waiter = pending(ASK_DEFAULTS);
    world.wall += DAY;
    assert_int_equal(advance((uint64_t)(19 * HOUR) - 1), 0);
    assert_int_equal(advance(1), 1);
    assert_int_equal(result(waiter), 0);
    release(waiter);
    world_close();
}

static void a_reap_notices_it_too(void **state)
{
    struct weir_completion completions[4];
    weir_queue *queue = NULL;

    (void)state;
    open_injected("limits: [ " TWO_A_DAY " ]");
    assert_int_equal(weir_queue_open(&queue, world.w, 4), 0);
    for (uint64_t i = 0; i < 3; i++)
        assert_int_equal(weir_queue_submit(queue, world.pool, ASK_DEFAULTS, i, NULL, NULL), 0);
    assert_int_equal(weir_queue_reap(queue, completions, 4), 0);
    world.wall += DAY;
    assert_int_equal(weir_queue_reap(queue, completions, 4), 2);
    for (uint64_t i = 0; i < 2; i++) {
        assert_int_equal(completions[i].result, 0);
        assert_int_equal(completions[i].user_data, i);
        release(completions[i].acquisition);
    }
    weir_queue_close(queue);
    world_close();
}

static struct weir_request *of(struct weir_request *request, const char *subject)
{
    request->subject = subject;
    request->subject_size = strlen(subject);
    return request;
}

static void each_subject_is_looked_at(void **state)
{
    static const char *const fields[] = {
        "subjects: { max: 10 }, limits: [ " TWO_A_DAY " ]",
        "backend: process, lifetime: users, subjects: { max: 10 }, limits: [ " TWO_A_DAY " ]"};
    static const char *const subjects[] = {"ada", "bea", "cay"};
    weir_acquisition *waiters[3];

    (void)state;
    for (size_t f = 0; f < sizeof(fields) / sizeof(*fields); f++) {
        world_set(fields[f]);
        world.wall = MORNING;
        for (int i = 0; i < 3; i++) {
            assert_int_equal(take(of(ASK_DEFAULTS, subjects[i])), 0);
            assert_int_equal(take(of(ASK_DEFAULTS, subjects[i])), 0);
            waiters[i] = pending(of(ASK_DEFAULTS, subjects[i]));
        }
        assert_int_equal(weir_tick(world.w), 0);
        world.wall += DAY;
        assert_int_equal(weir_tick(world.w), 3);
        for (int i = 0; i < 3; i++)
            release(waiters[i]);
        world_close();
    }
}

/* A shared set: each instance listens for its own waiters, and grants those before them. */
static void waiters_of_two_instances_keep_their_turn(void **state)
{
    weir_acquisition *first, *second = NULL, *third;
    struct twin twin;

    (void)state;
    open_injected("backend: process, lifetime: users, limits: [ " TWO_A_DAY " ]");
    twin = world_twin("main");
    first = pending(ASK_DEFAULTS);
    assert_int_equal(weir_submit(twin.pool, ASK_DEFAULTS, &second, NULL), 1);
    third = pending(ASK_DEFAULTS);
    assert_int_equal(weir_tick(world.w), 0);
    assert_int_equal(weir_tick(twin.w), 0);
    world.wall += DAY;
    assert_true(weir_tick(twin.w) >= 0);
    assert_true(weir_tick(world.w) >= 0);
    assert_int_equal(result(first), 0);
    assert_int_equal(result(second), 0);
    assert_int_equal(result(third), -EINPROGRESS);
    release(first);
    release(second);
    release(third);
    world_twin_close(&twin);
    world_close();
}

/* What a refusal says is computed by the clock of that moment, without a tick. */
static void forecasts_behind_waiters_follow_the_clock(void **state)
{
    static const struct {
        int64_t step, retry_after;
    } steps[] = {{0, 19 * HOUR}, {18 * HOUR, HOUR}, {-20 * HOUR, 21 * HOUR}, {3 * HOUR, 18 * HOUR}};
    weir_acquisition *first, *last = NULL;

    (void)state;
    open_injected("limits: [ " TWO_A_DAY " ]");
    first = pending(ASK_DEFAULTS);
    for (size_t i = 0; i < sizeof(steps) / sizeof(*steps); i++) {
        uint64_t max_wait = (uint64_t)steps[i].retry_after;

        world.wall += steps[i].step;
        assert_int_equal(take(ASK_DEFAULTS), -EAGAIN);
        assert_int_equal(refusal.retry_after_ns, max_wait);
        assert_int_equal(submit(with_max_wait(ASK_DEFAULTS, max_wait - 1), &last), -EAGAIN);
    }
    last = pending(with_max_wait(ASK_DEFAULTS, (uint64_t)(18 * HOUR)));
    release(last);
    release(first);
    world_close();
}

/* A forecast that lacks a waiter must not count again when the clock returns. */
static void a_forecast_of_before_is_not_taken_up_again(void **state)
{
    weir_acquisition *waiters[4];

    (void)state;
    open_injected("limits: [ " TWO_A_DAY " ]");
    waiters[0] = pending(ASK_DEFAULTS);
    waiters[1] = pending(ASK_DEFAULTS);
    world.wall += HOUR;
    waiters[2] = pending(ASK_DEFAULTS);
    waiters[3] = pending(ASK_DEFAULTS);
    world.wall -= HOUR;
    assert_int_equal(take(ASK_DEFAULTS), -EAGAIN);
    assert_int_equal(refusal.retry_after_ns, 19 * HOUR + 2 * DAY);
    for (int i = 0; i < 4; i++)
        release(waiters[i]);
    world_close();
}

/* ---- the clock of the machine ---- */

#define MOMENTS 20000 /* until what must happen is taken not to happen */

static void pause_for_a_moment(void)
{
    pause_ns(MS);
}

/* Starts a thread that acquires, and returns once it sleeps as the `waiting`-th waiter. */
static void start(struct blocked *blocked, uint64_t waiting)
{
    blocked_enqueue(blocked, ASK_DEFAULTS, waiting);
}

static void join(struct blocked *blocked)
{
    for (int i = 0; i < MOMENTS && !atomic_load(&blocked->returned); i++)
        pause_for_a_moment();
    assert_true(atomic_load(&blocked->returned));
    blocked_join(blocked, 0);
    release(blocked->acquisition);
}

static void await_result(weir_acquisition *acquisition)
{
    struct pollfd fd = {.fd = weir_acquisition_fd(acquisition), .events = POLLIN};

    assert_true(fd.fd >= 0);
    assert_int_equal(poll(&fd, 1, MOMENTS), 1);
    assert_int_equal(result(acquisition), 0);
}

static void open_real(const char *fields)
{
    fake_clock_set(START);
    fake_clock_set_wall_offset(MORNING);
    world_real(fields);
    assert_int_equal(used_up(), 0);
}

static const char *const plain[] = {"limits: [ " TWO_A_DAY " ]",
                                    "backend: process, lifetime: users, limits: [ " TWO_A_DAY " ]"};
#define PLAIN (sizeof(plain) / sizeof(*plain))

/* The first of them stands before descriptors, the second behind them. */
static void waiters_of_each_kind_wake_up(void **state)
{
    struct weir_completion completion;
    struct blocked first, last;
    weir_acquisition *waiter;
    weir_queue *queue = NULL;
    struct pollfd fd = {.events = POLLIN};

    (void)state;
    for (size_t i = 0; i < PLAIN; i++) {
        open_real(plain[i]);
        assert_int_equal(weir_queue_open(&queue, world.w, 4), 0);
        fd.fd = weir_queue_fd(queue);
        start(&first, 1);
        waiter = pending(ASK_DEFAULTS);
        assert_int_equal(weir_queue_submit(queue, world.pool, ASK_DEFAULTS, 7, NULL, NULL), 0);
        start(&last, 4);
        fake_clock_step_wall(DAY);
        join(&first);
        await_result(waiter);
        assert_int_equal(stats().waiting, 2);
        fake_clock_step_wall(DAY);
        do
            assert_int_equal(poll(&fd, 1, MOMENTS), 1);
        while (weir_queue_reap(queue, &completion, 1) == 0);
        assert_int_equal(completion.user_data, 7);
        assert_int_equal(completion.result, 0);
        join(&last);
        release(waiter);
        release(completion.acquisition);
        weir_queue_close(queue);
        world_close();
    }
}

static void what_is_not_there_yet_is_waited_for_anew(void **state)
{
    struct blocked blocked;
    weir_acquisition *waiter;

    (void)state;
    for (size_t i = 0; i < PLAIN; i++) {
        open_real(plain[i]);
        start(&blocked, 1);
        fake_clock_step_wall(HOUR);
        fake_clock_advance((uint64_t)(18 * HOUR));
        join(&blocked);
        assert_int_equal(take(ASK_DEFAULTS), 0);
        waiter = pending(ASK_DEFAULTS);
        fake_clock_step_wall(HOUR);
        fake_clock_advance((uint64_t)(23 * HOUR));
        await_result(waiter);
        release(waiter);
        world_close();
    }
}

/* ---- suspensions ---- */

#define ONE_AN_HOUR                                                                                \
    "limits: [ { type: call, algorithm: gcra, capacity: 1, window: 1h },"                          \
    " { type: resource, key: slots, capacity: 9 } ]"

/* Half an hour awake and one asleep: enough for a set that goes by CLOCK_BOOTTIME, and too little
 * for others. Timeouts go by the instance's clock in both. */
static void a_suspension_counts_where_the_set_says_so(void **state)
{
    static const char *const fields[] = {"clock: monotonic, " ONE_AN_HOUR,
                                         "clock: boottime, " ONE_AN_HOUR,
                                         "backend: process, lifetime: users, " ONE_AN_HOUR,
                                         "backend: process, lifetime: users, clock: "
                                         "boottime, " ONE_AN_HOUR};

    (void)state;
    for (int i = 0; i < 4; i++) {
        weir_acquisition *first, *waiter, *last;
        struct blocked blocked;

        fake_clock_set(START);
        world_real(fields[i]);
        assert_int_equal(take(ASK({"slots", 0})), 0);
        start(&blocked, 1);
        waiter = pending(ASK_DEFAULTS);
        last = pending(with_timeout(ASK_DEFAULTS, (uint64_t)(3 * HOUR)));
        fake_clock_advance((uint64_t)(HOUR / 2));
        fake_clock_suspend((uint64_t)HOUR);
        if (i % 2) {
            join(&blocked);
            assert_int_equal(stats().waiting, 2);
            fake_clock_advance((uint64_t)HOUR);
            await_result(waiter);
            /* Granted by now if the machine had not been suspended again. */
            first = last;
            last = pending(ASK_DEFAULTS);
            fake_clock_suspend((uint64_t)HOUR);
            await_result(first);
            release(waiter);
            release(first);
        } else {
            pause_for_a_moment();
            assert_int_equal(stats().waiting, 3);
            fake_clock_advance((uint64_t)(HOUR / 2));
            join(&blocked);
            release(waiter);
        }
        release(last);
        world_close();
    }
}

/* What is said of a time is said by the instance's clock. */
static void times_are_those_of_the_instance(void **state)
{
    weir_acquisition *reserved = NULL, *waiter;
    struct weir_holder holder = {0};
    uint64_t at_ns = 0;

    (void)state;
    fake_clock_set(START);
    world_real("clock: boottime, limits: [ { type: call, algorithm: gcra, capacity: 1, window: 1h "
               "} ]");
    assert_int_equal(take(ASK_DEFAULTS), 0);
    fake_clock_suspend((uint64_t)(HOUR / 2));
    assert_int_equal(take(ASK_DEFAULTS), -EAGAIN);
    assert_int_equal(refusal.retry_after_ns, HOUR / 2);
    assert_int_equal(weir_set_ready_at(world.set, ASK_DEFAULTS, &at_ns), 0);
    assert_int_equal(at_ns, START + (uint64_t)(HOUR / 2));
    waiter = pending(with_timeout(ASK_DEFAULTS, 5 * SECOND));
    assert_int_equal(weir_set_holders(world.set, &holder, 1), 1);
    assert_int_equal(holder.since_ns, START);
    fake_clock_advance(5 * SECOND - 1);
    pause_for_a_moment();
    assert_int_equal(result(waiter), -EINPROGRESS);
    fake_clock_advance(1);
    for (int i = 0; i < MOMENTS && result(waiter) == -EINPROGRESS; i++)
        pause_for_a_moment();
    assert_int_equal(result(waiter), -ETIMEDOUT);
    release(waiter);
    assert_int_equal(reserve(ASK_DEFAULTS, &reserved, &at_ns), 0);
    assert_int_equal(at_ns, START + (uint64_t)(HOUR / 2));
    release(reserved);
    world_close();
}

/* CLOCK_BOOTTIME is ahead from the beginning, and the timer thread looks at nothing. */
static void a_blocked_thread_wakes_up_in_time(void **state)
{
    struct blocked blocked;

    (void)state;
    fake_clock_set(START);
    world_real("clock: boottime, limits: [ { type: call, algorithm: gcra, capacity: 1, window: 1h "
               "} ]");
    assert_int_equal(take(ASK_DEFAULTS), 0);
    start(&blocked, 1);
    fake_clock_advance((uint64_t)HOUR);
    join(&blocked);
    world_close();
}

/* Whatever the clock of a set is, the wall clock is the same. */
static void boottime_and_the_calendar_go_together(void **state)
{
    weir_acquisition *waiter;

    (void)state;
    open_real("clock: boottime, limits: [ " TWO_A_DAY " ]");
    waiter = pending(ASK_DEFAULTS);
    assert_int_equal(take(ASK_DEFAULTS), -EAGAIN);
    assert_int_equal(refusal.retry_after_ns, 19 * HOUR);
    fake_clock_suspend((uint64_t)(18 * HOUR));
    assert_int_equal(take(ASK_DEFAULTS), -EAGAIN);
    assert_int_equal(refusal.retry_after_ns, HOUR);
    fake_clock_step_wall(HOUR);
    await_result(waiter);
    release(waiter);
    world_close();
}

/* The step fell between the reading of the clock and the commit. */
static void what_was_forecast_by_another_clock_is_looked_at_again(void **state)
{
    weir_acquisition *waiter;

    (void)state;
    open_real(plain[0]);
    waiter = pending(ASK_DEFAULTS);
    fake_clock_set_wall_offset(MORNING + DAY); /* the listener hears nothing */
    wall_watch_confirm(world.set, MORNING);
    await_result(waiter);
    release(waiter);
    world_close();
}

/* What does not read the wall clock needs no thread and no descriptor. */
static void other_windows_do_not_listen(void **state)
{
    weir_queue *queue = NULL;
    uint64_t readings;

    (void)state;
    open_real("limits: [ " TWO_PER_USE " ]");
    readings = fake_os_counts().wall;
    assert_int_equal(weir_queue_open(&queue, world.w, 4), 0);
    assert_int_equal(weir_queue_submit(queue, world.pool, ASK_DEFAULTS, 7, NULL, NULL), 0);
    assert_int_equal(fake_os_counts().thread_start, 0);
    assert_int_equal(fake_os_counts().wall, readings);
    weir_queue_close(queue);
    world_close();
}

/* A wait that cannot listen does not begin, and leaves nothing behind. */
static void without_descriptors_the_wait_fails(void **state)
{
    int r = -1;

    (void)state;
    for (int way = 0; way < 3; way++) {
        for (uint64_t n = 1; r < 0; n++) {
            struct weir_request *request = with_timeout(ASK_DEFAULTS, SECOND);
            weir_acquisition *waiter = NULL;
            weir_queue *queue = NULL;

            open_real(plain[0]);
            assert_int_equal(weir_queue_open(&queue, world.w, 4), 0);
            fake_os_fail_kind_at(n, FAKE_DESCRIPTOR | FAKE_THREAD, 0);
            if (way == 0)
                r = weir_submit(world.pool, request, &waiter, NULL);
            else if (way == 1)
                r = weir_queue_submit(queue, world.pool, request, 7, NULL, NULL);
            else
                r = weir_acquire(world.pool, with_max_wait(request, 1), &waiter, NULL);
            if (r == -EAGAIN) /* refused as it should be, before it would wait */
                r = 0;
            assert_true(r >= 0 || fake_os_has_failed());
            fake_os_fail_kind_at(0, 0, 0);
            if (r < 0)
                assert_int_equal(stats().waiting, 0);
            assert_int_equal(weir_release(&waiter), 0);
            weir_queue_close(queue);
            world_close();
            fake_os_reset();
        }
        assert_true(way == 2 || r >= 0);
        r = -1;
    }
}

/* The timer thread rests, by the clock, and tries again. */
static void a_listener_that_cannot_be_armed_is_armed_later(void **state)
{
    weir_acquisition *waiter;

    (void)state;
    open_real(plain[0]);
    for (int turn = 0; turn < 2; turn++) {
        waiter = pending(ASK_DEFAULTS);
        if (turn == 0)
            fake_os_fail_kind_from(1, FAKE_EVENT, 0);
        fake_clock_step_wall(DAY);
        for (int i = 0; i < MOMENTS && result(waiter) == -EINPROGRESS; i++) {
            if (fake_os_calls() >= 4)
                fake_os_fail_kind_at(0, 0, 0);
            fake_clock_advance(10 * MS);
            pause_for_a_moment();
        }
        assert_int_equal(result(waiter), 0);
        release(waiter);
        assert_int_equal(take(ASK_DEFAULTS), 0);
    }
    world_close();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_checked_test(a_day_ahead_grants_at_once_and_in_turn),
        leak_checked_test(an_hour_ahead_brings_the_instant_forward),
        leak_checked_test(an_hour_back_puts_it_off),
        leak_checked_test(back_and_forth_between_two_ticks_is_noticed),
        leak_checked_test(a_reap_notices_it_too),
        leak_checked_test(each_subject_is_looked_at),
        leak_checked_test(waiters_of_two_instances_keep_their_turn),
        leak_checked_test(forecasts_behind_waiters_follow_the_clock),
        leak_checked_test(a_forecast_of_before_is_not_taken_up_again),
        leak_checked_test(waiters_of_each_kind_wake_up),
        leak_checked_test(what_is_not_there_yet_is_waited_for_anew),
        leak_checked_test(a_suspension_counts_where_the_set_says_so),
        leak_checked_test(times_are_those_of_the_instance),
        leak_checked_test(a_blocked_thread_wakes_up_in_time),
        leak_checked_test(boottime_and_the_calendar_go_together),
        leak_checked_test(what_was_forecast_by_another_clock_is_looked_at_again),
        leak_checked_test(other_windows_do_not_listen),
        leak_checked_test(a_listener_that_cannot_be_armed_is_armed_later),
        leak_checked_test(without_descriptors_the_wait_fails),
    };

    return cmocka_run_group_tests_name("wall_watch", tests, NULL, NULL);
}
