/* SPDX-License-Identifier: MIT */
/*
 * Shared readings of the clock, made by fibers that are stopped at any step and perhaps never go
 * on: every interleaving of two readings, and random ones of four that go on for ever. None is
 * ahead of the clock, before one that was complete when it began, or late by more than the bound.
 * Long form: WEIR_ROUNDS. A seed is printed if one fails; WEIR_SEED repeats it.
 */
#include "base/clock.h"

#include "base/sched_point.h"
#include "fiber.h"
#include "lib/require.h"
#include "os/os.h"
#include "system.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

void (*step_hook)(void);
int (*wait_hook)(const uint32_t *word, uint32_t expected, uint64_t until_ns);
void (*wake_hook)(const uint32_t *word);

/* The machine: time goes by with each step. */

static uint64_t clock_ns, step_ns;

void sched_point(void)
{
    clock_ns += step_ns;
    if (step_hook)
        step_hook();
}

uint64_t os_tsc_read(void)
{
    uint64_t ticks;

    sched_point();
    ticks = clock_ns * 3;
    sched_point();
    return ticks;
}

uint64_t os_now_ns(void)
{
    uint64_t ns;

    sched_point();
    ns = clock_ns;
    sched_point();
    return ns;
}

int os_tsc_check(void)
{
    return 0;
}

void *os_alloc_aligned(size_t alignment, size_t size)
{
    void *memory = aligned_alloc(alignment, size);

    return memory ? memset(memory, 0, size) : NULL;
}

void os_free(void *memory)
{
    free(memory);
}

/* Readings */

static struct clock_tsc *tsc;
static uint64_t latest; /* of those that are complete */

static void reading(bool fresh)
{
    uint64_t from = latest, began_ns = clock_ns,
             ns = fresh ? clock_tsc_now_fresh(tsc) : clock_tsc_now(tsc);

    require(ns >= from);
    require(ns <= clock_ns);
    require(ns + TSC_LAG_NS >= began_ns);
    require(!fresh || ns >= began_ns);
    latest = ns > latest ? ns : latest;
}

static void one_reading(void *fresh)
{
    reading(fresh != NULL);
}

static void readings_without_end(void *random)
{
    for (;;)
        reading(random_below(random, 16) == 0);
}

static void begin(void)
{
    step_ns = 5;
    clock_ns = 1000000;
    latest = 0;
    tsc = NULL;
    assert_int_equal(clock_tsc_new(&tsc), 0);
}

static void end(void)
{
    assert_int_equal(clock_tsc_state(tsc), TSC_OK);
    os_free(tsc);
}

/* Every interleaving */

enum { STEPS_MAX = 64 };

/* Which of the two goes on at each point where both can; the last that took the first choice takes
 * the other one the next time. */
static struct {
    bool second[STEPS_MAX];
    unsigned n, at;
} schedule;

static unsigned choose(void)
{
    require(schedule.at < STEPS_MAX);
    if (schedule.at == schedule.n)
        schedule.second[schedule.n++] = false;
    return schedule.second[schedule.at++];
}

static bool next_schedule(void)
{
    while (schedule.n > 0 && schedule.second[schedule.n - 1])
        schedule.n--;
    if (schedule.n > 0)
        schedule.second[schedule.n - 1] = true;
    schedule.at = 0;
    return schedule.n > 0;
}

static void run_both(struct fiber fibers[2], unsigned fresh, uint64_t ns)
{
    begin();
    clock_ns += 900; /* the first of both is still young, or no longer */
    step_ns = ns;
    for (unsigned i = 0; i < 2; i++)
        fiber_start(&fibers[i], one_reading, fresh >> i & 1 ? tsc : NULL);
    while (fibers[0].state != FIBER_DONE || fibers[1].state != FIBER_DONE) {
        unsigned i = fibers[0].state == FIBER_DONE   ? 1
                     : fibers[1].state == FIBER_DONE ? 0
                                                     : choose();

        fiber_go(&fibers[i], 1);
    }
    reading(false);
    end();
}

static void no_interleaving_of_two_readings_is_wrong(void **state)
{
    static const uint64_t step_lengths[] = {30, 400, 1, 1100};
    const unsigned lengths = number_from("WEIR_ROUNDS", 0) ? 4 : effort_percent() < 100 ? 1 : 2;
    struct fiber fibers[2] = {0};
    uint64_t schedules = 0;

    (void)state;
    fibers_begin(NULL);
    for (unsigned fresh = 0; fresh < lengths; fresh++)
        for (unsigned i = 0; i < lengths; i++) {
            schedule.n = schedule.at = 0;
            do {
                run_both(fibers, fresh, step_lengths[i]);
                schedules++;
            } while (next_schedule());
        }
    fibers_end();
    assert_true(schedules > 10000);
}

/* Random ones */

enum { FIBERS = 4 };

static void run_for(struct fiber *fibers, uint64_t *random, unsigned turns)
{
    for (unsigned turn = 0; turn < turns; turn++) {
        struct fiber *fiber = &fibers[random_below(random, FIBERS)];

        if (random_below(random, 50) == 0) /* it died, or sleeps for ever */
            fiber_start(fiber, readings_without_end, random);
        step_ns = random_below(random, UINT64_C(1) << random_below(random, 10));
        if (random_below(random, 200) == 0)
            clock_ns += random_below(random, UINT64_C(1) << 40);
        fiber_go(fiber, 1 + random_below(random, UINT64_C(1) << random_below(random, 7)));
    }
}

static void no_interleaving_of_many_is_wrong(void **state)
{
    uint64_t rounds = effort_from("WEIR_ROUNDS", 100), random;
    struct fiber fibers[FIBERS] = {0};

    (void)state;
    seed_begin();
    random = test_seed;
    for (uint64_t round = 0; round < rounds; round++) {
        begin();
        fibers_begin(NULL);
        for (unsigned i = 0; i < FIBERS; i++)
            fiber_start(&fibers[i], readings_without_end, &random);
        run_for(fibers, &random, 1000);
        fibers_end();
        end();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_interleaving_of_two_readings_is_wrong),
        cmocka_unit_test(no_interleaving_of_many_is_wrong),
    };

    if (!fibers_are_possible())
        return FIBERS_SKIPPED;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
