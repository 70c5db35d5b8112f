/* SPDX-License-Identifier: MIT */
/*
 * Readings that are shared, on a machine with a clock and a counter moved by hand: slewing,
 * suspension, interruptions at every call, and counters that break every promise. Whatever the
 * counter does, a reading is never ahead of the clock nor before an earlier one; it is late by more
 * than the bound only if the counter is to blame, and then not for long. Long form: WEIR_ROUNDS.
 */
#include "base/clock.h"

#include "lib/fake_os.h"
#include "lib/fixture.h"
#include "lib/require.h"
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define MILLION 1000000
#define TICKS   25 /* per 10 ns */

/* True time in 1/1000 ns. What the clock and the counter show goes on at rates of their own. */
static struct machine {
    uint64_t clock_ps, ticks_milli;
    uint64_t clock_ppm, ticks_ppm; /* of their nominal rates */
    uint64_t call_ns;              /* how long a call takes */
    uint64_t random;
    unsigned jitter;         /* one of so many calls takes longer, up to 2^20 ns; 0: none */
    uint64_t calls;          /* since it was set up */
    void (*interrupt)(void); /* during each call */
} m;

static uint64_t clock_ns(void)
{
    return m.clock_ps / 1000;
}

static void pass_ps(uint64_t ps)
{
    m.clock_ps += ps / MILLION * m.clock_ppm + ps % MILLION * m.clock_ppm / MILLION;
    ps = ps * TICKS / 10;
    m.ticks_milli += ps / MILLION * m.ticks_ppm + ps % MILLION * m.ticks_ppm / MILLION;
}

static void pass(uint64_t ns)
{
    pass_ps(ns * 1000);
}

static void call(void)
{
    m.calls++;
    pass(m.call_ns);
    if (m.jitter && random_below(&m.random, m.jitter) == 0)
        pass(random_below(&m.random, UINT64_C(1) << random_below(&m.random, 21)));
    if (m.interrupt)
        m.interrupt();
}

static uint64_t counter_read(void *userdata)
{
    uint64_t ticks;

    (void)userdata;
    call();
    ticks = m.ticks_milli / 1000;
    call();
    return ticks;
}

static uint64_t clock_read(void *userdata)
{
    uint64_t ns;

    (void)userdata;
    call();
    ns = clock_ns();
    call();
    return ns;
}

static struct fake_counter counter = {.ticks = counter_read, .now_ns = clock_read};

static int setup(void **state)
{
    seed_begin();
    m = (struct machine){.clock_ps = 5000000,
                         .ticks_milli = 77000,
                         .clock_ppm = MILLION,
                         .ticks_ppm = MILLION,
                         .call_ns = 5,
                         .random = test_seed};
    counter.usable = 0;
    fixture_setup(state);
    fake_os_set_counter(&counter);
    return 0;
}

#define machine_test(function) cmocka_unit_test_setup_teardown(function, setup, fixture_teardown)

static struct clock_tsc *tsc_made(void)
{
    struct clock_tsc *tsc = NULL;

    assert_int_equal(clock_tsc_new(&tsc), 0);
    assert_non_null(tsc);
    return tsc;
}

/* Making one */

static void assert_refused(int error)
{
    struct clock_tsc *tsc = NULL;

    assert_int_equal(clock_tsc_new(&tsc), error);
    assert_null(tsc);
}

static void what_the_system_refuses_is_refused(void **state)
{
    static const int errors[] = {-EOPNOTSUPP, -EPERM, -ENODEV, -EACCES};

    (void)state;
    for (size_t i = 0; i < sizeof(errors) / sizeof(*errors); i++) {
        counter.usable = errors[i];
        assert_refused(errors[i]);
    }
    assert_int_equal(m.calls, 0); /* the counter is not read if it must not be */
    counter.usable = 0;
    fake_os_fail_kind_at(1, FAKE_MEMORY, 0);
    assert_refused(-ENOMEM);
}

static void what_cannot_be_measured_is_refused(void **state)
{
    (void)state;
    m.clock_ppm = 0;
    assert_refused(-ETIME);
    m.clock_ppm = MILLION;
    m.ticks_ppm = 0;
    assert_refused(-ETIME);
    m.ticks_ppm = MILLION;
    m.call_ns = 500; /* a caller that reads it so slowly does not gain by it */
    assert_refused(-ETIME);
    m.call_ns = 5;
    os_free(tsc_made());
}

static void interrupt_once(void)
{
    if (m.calls == 7)
        pass(300000);
}

static void a_measurement_that_is_interrupted_is_made_again(void **state)
{
    struct clock_tsc *tsc;

    (void)state;
    m.interrupt = interrupt_once;
    tsc = tsc_made();
    /* At most what a microsecond is, and nearly that. */
    assert_in_range(tsc->fresh_ticks, 1000 * TICKS / 10 * 31 / 32, 1000 * TICKS / 10);
    os_free(tsc);
}

/* Readings */

/* One reading, and what must be so of any. Late by more than `lag`: 0 if that is not asked. */
static uint64_t latest;

static uint64_t reading(struct clock_tsc *tsc, bool fresh, uint64_t lag)
{
    uint64_t from = latest, before = clock_ns(), ns;

    ns = fresh ? clock_tsc_now_fresh(tsc) : clock_tsc_now(tsc);
    require(ns >= from);
    require(ns <= clock_ns());
    require(!lag || ns + lag >= before);
    require(!fresh || ns >= before);
    latest = ns > latest ? ns : latest;
    return ns;
}

static void readings_are_shared_while_they_are_fresh(void **state)
{
    struct clock_tsc *tsc;
    uint64_t first, clocks;

    (void)state;
    latest = 0;
    tsc = tsc_made();
    pass(5000);
    first = reading(tsc, false, 10);
    clocks = fake_os_counts().now;
    while (clock_ns() < first + 940)
        assert_int_equal(reading(tsc, false, 0), first);
    assert_int_equal(fake_os_counts().now, clocks);
    pass(100);
    assert_true(reading(tsc, false, 10) > first);
    assert_int_equal(fake_os_counts().now, clocks + 1);
    os_free(tsc);
}

static void a_woken_waiter_finds_that_it_is_time(void **state)
{
    struct clock_tsc *tsc;
    uint64_t first, woken;

    (void)state;
    latest = 0;
    tsc = tsc_made();
    first = reading(tsc, true, 1);
    pass(300);
    assert_int_equal(reading(tsc, false, 0), first);
    woken = reading(tsc, true, 1);
    assert_true(woken > first + 300);
    assert_int_equal(reading(tsc, false, 0), woken); /* and so do all others */
    os_free(tsc);
}

/* The clock as NTP slews it, now and then as much as is possible. */
static void slew(void)
{
    static const uint64_t ppm[] = {MILLION, MILLION - 500, MILLION + 500, 775000, 1225000};

    if (random_below(&m.random, 1000) == 0)
        m.clock_ppm = ppm[random_below(&m.random, 5)];
}

static void wait_a_little(void)
{
    pass(random_below(&m.random, UINT64_C(1) << random_below(&m.random, 14)));
    if (random_below(&m.random, 100000) == 0)
        pass(random_below(&m.random, UINT64_C(1) << 44)); /* hours */
}

static void no_reading_is_ahead_or_back_or_late(void **state)
{
    uint64_t rounds = effort_from("WEIR_ROUNDS", 20);

    (void)state;
    for (uint64_t round = 0; round < rounds; round++) {
        static const uint64_t ppm[] = {MILLION, 775000, 1225000};
        struct clock_tsc *tsc;

        latest = 0;
        m.jitter = 0;
        m.clock_ppm = ppm[random_below(&m.random, 3)]; /* when it is measured */
        tsc = tsc_made();
        m.jitter = (unsigned)random_below(&m.random, 3) * 100;
        for (int i = 0; i < 20000; i++) {
            slew();
            wait_a_little();
            reading(tsc, random_below(&m.random, 50) == 0, TSC_LAG_NS);
        }
        assert_int_equal(clock_tsc_state(tsc), TSC_OK); /* slewing is not taken for a fault */
        os_free(tsc);
    }
}

static void a_suspension_is_nothing(void **state)
{
    struct clock_tsc *tsc;

    (void)state;
    latest = 0;
    tsc = tsc_made();
    reading(tsc, false, TSC_LAG_NS);
    m.ticks_milli += UINT64_C(1) << 52; /* the clock stands still, the counter does not */
    reading(tsc, false, 10);
    assert_int_equal(clock_tsc_state(tsc), TSC_OK);
    os_free(tsc);
}

/* Interruptions */

static struct clock_tsc *interrupted;
static unsigned depth;

/* While one reading is under way, others are made, from beginning to end, and time goes by. */
static void interrupt(void)
{
    if (depth == 3 || random_below(&m.random, 8) != 0)
        return;
    depth++;
    for (uint64_t n = random_below(&m.random, 4); n > 0; n--) {
        pass(random_below(&m.random, UINT64_C(1) << random_below(&m.random, 13)));
        reading(interrupted, random_below(&m.random, 8) == 0, TSC_LAG_NS);
    }
    depth--;
}

static void readings_within_readings_do_not_go_back(void **state)
{
    uint64_t rounds = effort_from("WEIR_ROUNDS", 20);

    (void)state;
    for (uint64_t round = 0; round < rounds; round++) {
        latest = 0;
        m.interrupt = NULL;
        interrupted = tsc_made();
        m.interrupt = interrupt;
        for (int i = 0; i < 5000; i++) {
            pass(random_below(&m.random, UINT64_C(1) << random_below(&m.random, 13)));
            reading(interrupted, random_below(&m.random, 50) == 0, TSC_LAG_NS);
        }
        assert_int_equal(clock_tsc_state(interrupted), TSC_OK);
        os_free(interrupted);
    }
}

/* Counters that do not keep their promise */

static void a_counter_that_goes_back_is_given_up(void **state)
{
    struct clock_tsc *tsc;

    (void)state;
    latest = 0;
    tsc = tsc_made();
    pass(10000);
    reading(tsc, false, 10);
    m.ticks_milli -= 10000 * TICKS / 10 * 1000;
    reading(tsc, false, 10); /* not late, all the same */
    assert_int_equal(clock_tsc_state(tsc), TSC_WENT_BACK);
    reading(tsc, false, 5);
    reading(tsc, true, 5);
    clock_tsc_disable(tsc, TSC_SHARED);
    assert_int_equal(clock_tsc_state(tsc), TSC_WENT_BACK); /* the first reason counts */
    os_free(tsc);
}

static void a_counter_that_is_a_little_behind_elsewhere_is_not_given_up(void **state)
{
    struct clock_tsc *tsc;

    (void)state;
    latest = 0;
    tsc = tsc_made();
    reading(tsc, true, 10);
    m.ticks_milli -= 900 * TICKS / 10 * 1000;
    reading(tsc, false, 1000);
    reading(tsc, true, 10);
    assert_int_equal(clock_tsc_state(tsc), TSC_OK);
    os_free(tsc);
}

static void a_counter_that_loses_time_is_given_up(void **state)
{
    struct clock_tsc *tsc;
    uint64_t before;

    (void)state;
    latest = 0;
    tsc = tsc_made();
    m.ticks_ppm = MILLION / 10;
    before = clock_ns();
    for (int i = 0; i < 10000 && clock_tsc_state(tsc) == TSC_OK; i++)
        reading(tsc, false, 11 * TSC_FRESH_NS);
    assert_int_equal(clock_tsc_state(tsc), TSC_LOST_TIME);
    assert_true(clock_ns() < before + 30 * TSC_FRESH_NS);
    reading(tsc, false, 5);
    os_free(tsc);
}

static void a_counter_that_stands_still_is_given_up_at_a_wake_up(void **state)
{
    struct clock_tsc *tsc;

    (void)state;
    latest = 0;
    tsc = tsc_made();
    m.ticks_ppm = 0;
    pass(20000);
    reading(tsc, true, 5);
    assert_int_equal(clock_tsc_state(tsc), TSC_LOST_TIME);
    os_free(tsc);
}

/* Any counter at all. */
static void misbehave(void)
{
    switch (random_below(&m.random, 200)) {
    case 0:
        m.ticks_ppm = random_below(&m.random, 20 * MILLION);
        break;
    case 1:
        m.ticks_ppm = 0;
        break;
    case 2:
        m.ticks_milli += random_below(&m.random, UINT64_C(1) << random_below(&m.random, 40));
        break;
    case 3:
        m.ticks_milli -= random_below(&m.random, UINT64_C(1) << random_below(&m.random, 26));
        break;
    case 4:
        m.ticks_milli = random_next(&m.random);
        break;
    }
}

static void no_counter_whatever_moves_time_ahead_or_back(void **state)
{
    uint64_t rounds = effort_from("WEIR_ROUNDS", 20) * 50, given_up = 0;

    (void)state;
    for (uint64_t round = 0; round < rounds; round++) {
        latest = 0;
        m.ticks_ppm = MILLION;
        m.interrupt = NULL;
        interrupted = tsc_made();
        m.interrupt = misbehave;
        for (int i = 0; i < 300; i++) {
            pass(random_below(&m.random, UINT64_C(1) << random_below(&m.random, 14)));
            reading(interrupted, random_below(&m.random, 50) == 0, 0);
        }
        given_up += clock_tsc_state(interrupted) != TSC_OK;
        os_free(interrupted);
    }
    assert_true(given_up > rounds / 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        machine_test(what_the_system_refuses_is_refused),
        machine_test(what_cannot_be_measured_is_refused),
        machine_test(a_measurement_that_is_interrupted_is_made_again),
        machine_test(readings_are_shared_while_they_are_fresh),
        machine_test(a_woken_waiter_finds_that_it_is_time),
        machine_test(no_reading_is_ahead_or_back_or_late),
        machine_test(a_suspension_is_nothing),
        machine_test(readings_within_readings_do_not_go_back),
        machine_test(a_counter_that_goes_back_is_given_up),
        machine_test(a_counter_that_is_a_little_behind_elsewhere_is_not_given_up),
        machine_test(a_counter_that_loses_time_is_given_up),
        machine_test(a_counter_that_stands_still_is_given_up_at_a_wake_up),
        machine_test(no_counter_whatever_moves_time_ahead_or_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
