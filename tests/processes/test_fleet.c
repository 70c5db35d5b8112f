/* SPDX-License-Identifier: MIT */
/* The harness of the tests of processes, before anything is believed that it says. */
#include "fleet.h"

#include "lib/require.h"
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

enum { WORKERS = 4, EVENTS = 1 << 16 };
enum { TURN = FLEET_OWN };

static struct fleet *fleet;
static char *complaints;
static size_t complaints_size;
static FILE *out;

static void make(fleet_run *run, size_t events_max)
{
    struct fleet_plan plan = {.workers = WORKERS,
                              .events_max = events_max,
                              .seed = test_seed,
                              .run = run,
                              .complaints = out = open_memstream(&complaints, &complaints_size)};

    fleet = fleet_new(&plan);
    assert_non_null(fleet);
}

/* What was complained of meanwhile is shown in the log of a failing test. */
static void unmake(void)
{
    fleet_free(fleet);
    fclose(out);
    free(complaints);
}

/* One event after the other, numbered, until it is time to end. */
static void run_turning(struct fleet_worker *me)
{
    for (uint64_t i = 0; fleet_goes_on(me); i++) {
        fleet_step(me, "turning");
        fleet_log(me, TURN, i, me->random);
        pause_ns(random_next(&me->random) % 300000);
    }
}

/* How far each worker is in the log; a worker's events must be there one after the other. */
struct progress {
    uint64_t turns[WORKERS];
    uint32_t lives[WORKERS];
    pid_t pids[WORKERS];
    bool may_act[WORKERS];
};

static void see(struct progress *progress, const struct fleet_event *event)
{
    uint32_t w = event->worker;

    assert_true(w < WORKERS);
    if (event->kind == FLEET_BORN) {
        assert_false(progress->may_act[w]);
        assert_true(event->what > progress->lives[w]);
        assert_true(event->pid != progress->pids[w]);
        progress->lives[w] = (uint32_t)event->what;
        progress->pids[w] = event->pid;
        progress->turns[w] = 0;
        progress->may_act[w] = true;
    } else if (event->kind == TURN) {
        assert_true(progress->may_act[w]);
        assert_int_equal(event->what, progress->turns[w]++);
        assert_int_equal(event->pid, progress->pids[w]);
    } else if (event->what > progress->lives[w]) { /* it has not come as far as being born */
        if (event->kind == FLEET_KILLED)
            progress->lives[w] = (uint32_t)event->what;
    } else if (event->kind != FLEET_KILLING) {
        assert_int_equal(event->what, progress->lives[w]);
        assert_int_equal(event->pid, progress->pids[w]);
        progress->may_act[w] = event->kind == FLEET_CONTINUED;
    }
}

/* Returns how many turns there are in the log. */
static size_t check_log(void)
{
    const struct fleet_event *events;
    struct progress progress = {0};
    size_t n = fleet_events(fleet, &events), turns = 0;

    assert_true(fleet_log_is_whole(fleet));
    for (size_t i = 0; i < n; i++) {
        if (atomic_load(&events[i].seq) == 0)
            continue; /* a worker that was killed there has no other event behind it */
        assert_int_equal(atomic_load(&events[i].seq), i + 1);
        see(&progress, &events[i]);
        turns += events[i].kind == TURN;
    }
    return turns;
}

/* ---- tests ---- */

static void run_once(struct fleet_worker *me)
{
    fleet_log(me, TURN, 0, 0);
}

static void all_begin_together(void **state)
{
    const struct fleet_event *events;

    (void)state;
    make(run_once, EVENTS);
    assert_true(fleet_start(fleet));
    assert_true(fleet_end(fleet, UINT64_C(20000) * MS));
    assert_int_equal(check_log(), WORKERS);
    assert_int_equal(fleet_events(fleet, &events), 3 * WORKERS);
    for (size_t i = 0; i < WORKERS; i++)
        assert_int_equal(events[i].kind, FLEET_BORN);
    unmake();
}

static void await_turns(size_t more)
{
    const struct fleet_event *events;
    size_t until = fleet_events(fleet, &events) + more;

    while (fleet_events(fleet, &events) < until)
        pause_ns(100000);
}

static void killed_and_stopped_workers_are_silent(void **state)
{
    (void)state;
    make(run_turning, EVENTS);
    assert_true(fleet_start(fleet));
    await_turns(20);
    assert_true(fleet_stop(fleet, 0));
    assert_true(fleet_kill(fleet, 1));
    assert_true(fleet_stop(fleet, 2));
    await_turns(50); /* the last goes on */
    fleet_continue(fleet, 0);
    assert_true(fleet_respawn(fleet, 1));
    assert_true(fleet_kill(fleet, 2)); /* a stopped one */
    await_turns(50);
    assert_true(fleet_end(fleet, UINT64_C(20000) * MS));
    assert_true(check_log() > 120);
    fflush(out);
    assert_int_equal(complaints_size, 0);
    unmake();
}

/* Whatever is done to them at random, the log is in order. */
static void a_random_storm_leaves_a_whole_log(void **state)
{
    uint64_t rounds = effort_from("WEIR_ROUNDS", 300);
    uint32_t w;

    (void)state;
    make(run_turning, EVENTS + rounds * 64);
    assert_true(fleet_start(fleet));
    for (uint64_t i = 0; i < rounds; i++) {
        if (fleet_random(fleet) % 2 && fleet_pick(fleet, true, &w)) {
            assert_true(fleet_random(fleet) % 2 ? fleet_kill(fleet, w) : fleet_stop(fleet, w));
        } else if (fleet_pick(fleet, false, &w)) {
            assert_true(fleet_revive(fleet, w));
        }
        if (fleet_pick(fleet, true, &w))
            await_turns(fleet_random(fleet) % 10); /* however busy the machine is */
        pause_ns(fleet_random(fleet) % 500000);
    }
    assert_true(fleet_end(fleet, UINT64_C(20000) * MS));
    assert_true(check_log() > rounds);
    unmake();
}

static void run_getting_stuck(struct fleet_worker *me)
{
    fleet_step(me, "going to sleep");
    while (me->number == 2)
        pause_ns(MS);
}

static void a_stuck_worker_is_named(void **state)
{
    (void)state;
    make(run_getting_stuck, EVENTS);
    assert_true(fleet_start(fleet));
    assert_true(fleet_is_moving(fleet, UINT64_C(60000) * MS));
    pause_ns(30 * MS);
    assert_false(fleet_is_moving(fleet, 20 * MS));
    assert_false(fleet_end(fleet, 50 * MS));
    fflush(out);
    assert_non_null(strstr(complaints, "worker 2 is stuck"));
    assert_non_null(strstr(complaints, "going to sleep"));
    unmake();
}

static void run_failing(struct fleet_worker *me)
{
    if (me->number == 1)
        _exit(3);
    if (me->number == 3) {
        signal(SIGABRT, SIG_DFL); /* also where a sanitizer would tell of it */
        raise(SIGABRT);
    }
}

static void a_worker_that_fails_or_crashes_is_named(void **state)
{
    (void)state;
    make(run_failing, EVENTS);
    assert_true(fleet_start(fleet));
    assert_false(fleet_end(fleet, UINT64_C(20000) * MS));
    fflush(out);
    assert_non_null(strstr(complaints, "worker 1 failed"));
    assert_non_null(strstr(complaints, "exit 3"));
    assert_non_null(strstr(complaints, "worker 3 crashed"));
    assert_null(strstr(complaints, "worker 0"));
    unmake();
}

static void killing_a_worker_that_has_failed_is_reported(void **state)
{
    (void)state;
    make(run_failing, EVENTS);
    assert_true(fleet_start(fleet));
    pause_ns(50 * MS);
    while (fleet_is_moving(fleet, 40 * MS))
        pause_ns(MS);
    assert_false(fleet_kill(fleet, 1));
    unmake();
}

static void a_full_log_is_reported(void **state)
{
    const struct fleet_event *events;

    (void)state;
    make(run_turning, 20);
    assert_true(fleet_start(fleet));
    while (fleet_log_is_whole(fleet))
        pause_ns(100000);
    assert_true(fleet_end(fleet, UINT64_C(20000) * MS));
    assert_int_equal(fleet_events(fleet, &events), 20);
    unmake();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_begin_together),
        cmocka_unit_test(killed_and_stopped_workers_are_silent),
        cmocka_unit_test(a_random_storm_leaves_a_whole_log),
        cmocka_unit_test(a_stuck_worker_is_named),
        cmocka_unit_test(a_worker_that_fails_or_crashes_is_named),
        cmocka_unit_test(killing_a_worker_that_has_failed_is_reported),
        cmocka_unit_test(a_full_log_is_reported),
    };

    seed_begin();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
