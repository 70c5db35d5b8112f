/* SPDX-License-Identifier: MIT */
/*
 * Death and stops at every step, with fibers (fiber.h). Each thread is stopped between two stores
 * to shared memory, or two loads of a copy, and either dies there or goes on later. After every
 * round the world is recovered and checked, and the dead threads' successors do it all again.
 *
 *     test_steps [STRIDE [SEED]]
 *
 * Where two threads are stopped, each at any of its steps, every STRIDE-th pair is tried: 1 is all
 * of them, 5 takes minutes (the long forms); the default leaves some thousands. Exits with 77 under
 * ThreadSanitizer.
 */
#include "crash_world.h"
#include "os/os.h"
#include "set/txn.h"
#include "state/contention.h"
#include "stepped.h"
#include "system.h"
#include <stdarg.h>
#include <stdio.h>

#include <setjmp.h>

#include <cmocka.h>

enum { HOLDER, FIRST, SECOND, THIRD, RESCUER, SECOND_RESCUER };
enum { STATES = 7 };

static uint64_t stride = 503, seed = 1, rounds;
static struct fiber fibers[THREADS];

/* What a fiber is to do. */
struct task {
    uint32_t thread, set, dead;
};

static struct task tasks[THREADS];

static void run_script(void *argument)
{
    const struct task *task = argument;

    world_script(task->thread, task->set);
}

static void run_recovery(void *argument)
{
    const struct task *task = argument;

    world_recover(task->thread, task->dead);
}

static struct fiber *script(uint32_t thread, uint32_t set)
{
    tasks[thread] = (struct task){thread, set, 0};
    fiber_start(&fibers[thread], run_script, &tasks[thread]);
    return &fibers[thread];
}

static struct fiber *rescue(uint32_t thread, uint32_t dead)
{
    tasks[thread] = (struct task){thread, 0, dead};
    fiber_start(&fibers[thread], run_recovery, &tasks[thread]);
    return &fibers[thread];
}

/* The states in which scripts begin: free; one held; full; full with waiters; a head that waits for
 * more than there is, while a waiter behind it would need less; full, and one held, after waiters
 * that are gone: a set that could be inline is inflated then. */
static void prepare(uint32_t set, uint32_t state)
{
    if (state == 1 || state == 4)
        world_acquire(HOLDER, set, 0, 1, MODE_WAIT);
    if (state == 2 || state == 3 || state == 5 || state == 6)
        world_acquire(HOLDER, set, 0, 2 - (state == 6), MODE_WAIT);
    if (state == 5 || state == 6) {
        world_acquire(HOLDER, set, 1, 2, MODE_WAIT);
        world_cancel(HOLDER, set, 1);
        world_release(HOLDER, set, 1, 0);
    }
    if (state == 3 || state == 4)
        world_acquire(HOLDER, set, 1, state == 3 ? 1 : 2, MODE_WAIT);
    if (state == 3 || state == 4)
        world_acquire(HOLDER, set, 2, 1, MODE_WAIT);
}

static void holder_leaves(uint32_t set)
{
    for (uint32_t i = 0; i < RECORDS; i++)
        world_release(HOLDER, set, i, 0);
}

/* No thread is in the middle of an operation. Everything must be right, and be given back at the
 * end. The threads that died can be used again. */
static void finish(uint32_t set)
{
    rounds++;
    world_check();
    holder_leaves(set);
    world_check_empty();
    world_check_log();
    world_script(FIRST, set);
    world_script(SECOND, set);
    world_check_empty();
}

/* How many steps the script takes from this state. */
static uint64_t count_steps(uint32_t set, uint32_t state)
{
    uint64_t before = fiber_steps();

    world_restore();
    prepare(set, state);
    before = fiber_steps();
    fiber_go(script(FIRST, set), 0);
    return fiber_steps() - before;
}

static void say(const char *what, uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
    world.what = what;
    world.where[0] = a;
    world.where[1] = b;
    world.where[2] = c;
    world.where[3] = d;
}

/* Calls `round` for each set, each state and every step of the first thread. */
static void each_step(const char *what, void (*round)(uint32_t set, uint64_t n, uint64_t steps))
{
    rounds = world.failures = 0;
    for (uint32_t set = 0; set < SETS; set++)
        for (uint32_t state = 0; state < STATES; state++) {
            uint64_t steps = count_steps(set, state);

            for (uint64_t n = 1; n <= steps && !world.failures; n++) {
                say(what, set, state, n, 0);
                world_restore();
                prepare(set, state);
                fiber_go(script(FIRST, set), n);
                round(set, n, steps);
            }
        }
    printf("%s: %lu rounds\n", what, rounds);
    assert_int_equal(world.failures, 0);
}

/* The same with every step of a second one that does likewise. */
static void (*second_round)(uint32_t set, uint64_t m);

static void each_second(uint32_t set, uint32_t state, uint64_t steps, uint64_t *at)
{
    for (uint64_t n = 1; n <= steps && !world.failures; n++)
        for (; *at < n * (2 * steps) && !world.failures; *at += stride) {
            uint64_t m = *at - (n - 1) * (2 * steps) + 1;

            world_restore();
            prepare(set, state);
            fiber_go(script(FIRST, set), n);
            world.where[2] = n;
            world.where[3] = m;
            second_round(set, m);
        }
    *at -= 2 * steps * steps;
}

static void each_pair(const char *what, void (*round)(uint32_t set, uint64_t m))
{
    rounds = world.failures = 0;
    second_round = round;
    for (uint32_t set = 0; set < SETS; set++)
        for (uint32_t state = 0; state < STATES; state++) {
            uint64_t at = 0;

            say(what, set, state, 0, 0);
            each_second(set, state, count_steps(set, state), &at);
        }
    printf("%s: %lu rounds\n", what, rounds);
    assert_int_equal(world.failures, 0);
}

/* ---- one death ---- */

static void round_death(uint32_t set, uint64_t n, uint64_t steps)
{
    (void)n;
    (void)steps;
    world_recover(RESCUER, FIRST);
    finish(set);
}

static void test_death_at_every_step(void **state)
{
    (void)state;
    each_step("death at every step", round_death);
}

/* Another thread works on before any recovers. */
static void round_death_unnoticed(uint32_t set, uint64_t n, uint64_t steps)
{
    (void)n;
    (void)steps;
    fiber_go(script(SECOND, set), 0);
    expect(fibers[SECOND].state == FIBER_DONE, "held up by a dead thread");
    world_recover(RESCUER, FIRST);
    finish(set);
}

static void test_death_unnoticed(void **state)
{
    (void)state;
    each_step("death that is not noticed at once", round_death_unnoticed);
}

/* ---- a rescuer that dies; two at once ---- */

static void round_rescuer_dies(uint32_t set, uint64_t n, uint64_t steps)
{
    bool alive = true;

    (void)steps;
    for (uint64_t m = 1 + n % 3; alive && !world.failures; m += 1 + stride / 16) {
        world.where[3] = m;
        world_restore();
        prepare(set, (uint32_t)world.where[1]);
        fiber_go(script(FIRST, set), n);
        alive = fiber_go(rescue(RESCUER, FIRST), m) == FIBER_READY;
        world_recover(SECOND_RESCUER, m % 2 ? RESCUER : FIRST);
        world_recover(SECOND_RESCUER, m % 2 ? FIRST : RESCUER);
        finish(set);
    }
}

static void test_rescuer_dies(void **state)
{
    (void)state;
    each_step("death of the rescuer", round_rescuer_dies);
}

static void round_two_rescuers(uint32_t set, uint64_t n, uint64_t steps)
{
    bool alive = true;

    (void)steps;
    for (uint64_t m = 1 + n % 3; alive && !world.failures; m += 1 + stride / 16) {
        world.where[3] = m;
        world_restore();
        prepare(set, (uint32_t)world.where[1]);
        fiber_go(script(FIRST, set), n);
        alive = fiber_go(rescue(RESCUER, FIRST), m) == FIBER_READY;
        fiber_go(rescue(SECOND_RESCUER, FIRST), m % 5 ? 0 : m);
        fiber_go(&fibers[RESCUER], 0);
        fiber_go(&fibers[SECOND_RESCUER], 0);
        finish(set);
    }
}

static void test_two_rescuers(void **state)
{
    (void)state;
    each_step("two rescuers at once", round_two_rescuers);
}

/* One of them is stopped; by the time that it goes on, the other is done, and the dead one's
 * successor uses its records again. */
static void round_late_rescuer(uint32_t set, uint64_t n, uint64_t steps)
{
    bool alive = true;

    (void)steps;
    for (uint64_t m = 1 + n % 3; alive && !world.failures; m += 1 + stride / 16) {
        world.where[3] = m;
        world_restore();
        prepare(set, (uint32_t)world.where[1]);
        fiber_go(script(FIRST, set), n);
        alive = fiber_go(rescue(RESCUER, FIRST), m) == FIBER_READY;
        world_recover(SECOND_RESCUER, FIRST);
        for (uint32_t i = 0; i < RECORDS; i++)
            world_acquire(FIRST, set, i, 1, MODE_WAIT);
        fiber_go(&fibers[RESCUER], 0);
        for (uint32_t i = 0; i < RECORDS; i++)
            expect(world_state(FIRST, set, i) != RECORD_FREE, "%u was taken for the dead's", i);
        world_check();
        for (uint32_t i = 0; i < RECORDS; i++)
            world_release(FIRST, set, i, 0);
        finish(set);
    }
}

static void test_late_rescuer(void **state)
{
    (void)state;
    each_step("a rescuer that comes late", round_late_rescuer);
}

/* ---- what one was granted and another one gives back ---- */

static void run_hand_in(void *argument)
{
    const struct task *task = argument;

    if (world_state(task->dead, task->set, 0) == RECORD_HELD)
        world_release_record(task->thread, task->dead, task->set, 0);
}

static uint64_t held_word; /* of what is given back */

static void run_give_back(void *argument)
{
    const struct task *task = argument;

    world_release_exact(task->thread, task->dead, task->set, 0, held_word);
}

static struct fiber *start(uint32_t thread, uint32_t set, uint32_t of, void (*run)(void *argument))
{
    tasks[thread] = (struct task){thread, set, of};
    fiber_start(&fibers[thread], run, &tasks[thread]);
    return &fibers[thread];
}

/* Both die, at every step of the second: what it has not given back is given back for the first. */
static void test_hand_in(void **state)
{
    bool alive = true;

    (void)state;
    rounds = world.failures = 0;
    for (uint32_t set = 0; set < SETS; set++)
        for (uint64_t n = 2; n < 4 || alive; n++) {
            say("death of a thread that gives back for another", set, n, 0, 0);
            world_restore();
            world_acquire(FIRST, set, 0, 1, MODE_TRY);
            alive = fiber_go(start(SECOND, set, FIRST, run_hand_in), n / 2) == FIBER_READY;
            world_recover(RESCUER, n % 2 ? FIRST : SECOND);
            world_recover(RESCUER, n % 2 ? SECOND : FIRST);
            finish(set);
        }
    printf("death of a thread that gives back for another: %lu rounds\n", rounds);
    assert_int_equal(world.failures, 0);
}

/* A thread that gives back for another meets one that does so, too, or the holder itself. */
static void try_givers(uint32_t set, void (*one)(void *argument), void (*other)(void *argument))
{
    bool alive = true, other_lives = true;

    for (uint64_t n = 1; alive; n++)
        for (uint64_t m = 1; m == 1 || other_lives; m++) {
            say("two give back the same", set, n, m, one == run_hand_in);
            world_restore();
            world_acquire(FIRST, set, 0, 1, MODE_TRY);
            world_acquire(HOLDER, set, 0, 1, MODE_TRY);
            held_word = world_word(FIRST, set, 0);
            alive = fiber_go(start(SECOND, set, FIRST, one), n) == FIBER_READY;
            other_lives = fiber_go(start(THIRD, set, FIRST, other), m) == FIBER_READY;
            fiber_go(&fibers[SECOND], 0);
            fiber_go(&fibers[THIRD], 0);
            finish(set);
        }
}

static void test_givers(void **state)
{
    (void)state;
    rounds = world.failures = 0;
    for (uint32_t set = 0; set < SETS; set++) {
        try_givers(set, run_give_back, run_give_back);
        if (world.sets[set]->inline_format != INLINE_STATE &&
            world.sets[set]->inline_format != INLINE_COUNT) { /* no thread gives back there */
            try_givers(set, run_hand_in, run_give_back);
            try_givers(set, run_give_back, run_hand_in);
        }
    }
    printf("two give back the same: %lu rounds\n", rounds);
    assert_int_equal(world.failures, 0);
}

/* A thread that gives back for the holder is stopped. Another one does it, and the holder asks
 * again with the same record. When the first thread goes on, it must not end that. */
static void round_late_giver(uint32_t set, uint32_t state, uint64_t n, bool *stopped)
{
    world_restore();
    world_acquire(FIRST, set, 0, 1, MODE_TRY);
    prepare(set, state);
    held_word = world_word(FIRST, set, 0);
    *stopped = fiber_go(start(SECOND, set, FIRST, run_give_back), n) == FIBER_READY;
    world_release_exact(THIRD, FIRST, set, 0, held_word);
    world_acquire(FIRST, set, 0, 1, MODE_WAIT);
    fiber_go(&fibers[SECOND], 0);
    expect(world_state(FIRST, set, 0) != RECORD_FREE, "it was taken for what was given back");
    world_check();
    world_release(FIRST, set, 0, 0);
    finish(set);
}

static void test_late_giver(void **state)
{
    (void)state;
    rounds = world.failures = 0;
    for (uint32_t set = 0; set < SETS; set++)
        for (uint32_t s = 0; s < STATES; s++) {
            bool stopped = true;

            for (uint64_t n = 1; stopped && !world.failures; n++) {
                say("a thread that gives back comes late", set, s, n, 0);
                round_late_giver(set, s, n, &stopped);
            }
        }
    printf("a thread that gives back comes late: %lu rounds\n", rounds);
    assert_int_equal(world.failures, 0);
}

/* ---- what was announced ---- */

static void run_turns(void *argument)
{
    const struct task *task = argument;

    world_release(task->thread, task->set, 0, 0);
    for (uint32_t i = 1; i < RECORDS; i++) {
        world_acquire(task->thread, task->set, i, 1, MODE_TRY);
        world_release(task->thread, task->set, i, 0);
    }
}

/* A rescuer is stopped while it completes what was announced by the bits of one version. Another
 * thread goes on, toggles its bit twice, and dies before it does what it announced last. The
 * rescuer must not take that for done. */
static void test_announced(void **state)
{
    enum { RESCUED = 32 }; /* steps until it has come past the slots of these */
    bool alive = true;

    (void)state;
    rounds = world.failures = 0;
    for (uint64_t n = 1; alive; n++)
        for (uint64_t m = 1; m < RESCUED; m++) {
            say("a rescuer is late for what was announced", n, m, 0, 0);
            world_restore();
            world_acquire(FIRST, SET_RESOURCE, 0, 1, MODE_TRY);
            world_acquire(HOLDER, SET_RESOURCE, 0, 1, MODE_TRY);
            fiber_go(rescue(RESCUER, HOLDER), m);
            alive = fiber_go(start(FIRST, SET_RESOURCE, 0, run_turns), n) == FIBER_READY;
            fiber_go(&fibers[RESCUER], 0);
            world_recover(SECOND_RESCUER, FIRST);
            finish(SET_RESOURCE);
        }
    printf("a rescuer is late for what was announced: %lu rounds\n", rounds);
    assert_int_equal(world.failures, 0);
}

/* ---- two deaths ---- */

static void round_two_deaths(uint32_t set, uint64_t m)
{
    fiber_go(script(SECOND, set), m);
    world_recover(RESCUER, m % 2 ? FIRST : SECOND);
    world_recover(RESCUER, m % 2 ? SECOND : FIRST);
    finish(set);
}

static void test_two_deaths(void **state)
{
    (void)state;
    each_pair("two deaths", round_two_deaths);
}

/* ---- stops ---- */

/* Two are stopped while a third does everything; then they go on, in either order. */
static void round_stops(uint32_t set, uint64_t m)
{
    fiber_go(script(SECOND, set), m);
    fiber_go(script(THIRD, set), 0);
    expect(fibers[THIRD].state == FIBER_DONE, "held up by stopped threads");
    holder_leaves(set);
    fiber_go(&fibers[m % 2 ? FIRST : SECOND], 0);
    fiber_go(&fibers[m % 2 ? SECOND : FIRST], 0);
    finish(set);
}

static void test_stops(void **state)
{
    (void)state;
    each_pair("stop and hand over", round_stops);
}

/* One is stopped, another one, too, and the first goes on: one helps what the other one owns. */
static void round_crossed_stops(uint32_t set, uint64_t m)
{
    fiber_go(script(SECOND, set), m);
    fiber_go(&fibers[FIRST], m);
    fiber_go(script(THIRD, set), m / 2 + 1);
    fiber_go(&fibers[SECOND], 0);
    fiber_go(&fibers[THIRD], 0);
    fiber_go(&fibers[FIRST], 0);
    finish(set);
}

static void test_crossed_stops(void **state)
{
    (void)state;
    each_pair("crossed stops", round_crossed_stops);
}

/* One is stopped after it has published, another one while it completes that, and a third changes
 * the set again and again until it is stopped while it writes the block that the second is about to
 * complete. */
static void run_changes(void *argument)
{
    const struct task *task = argument;

    for (uint32_t i = 0; i < RECORDS; i++) {
        world_acquire(task->thread, task->set, i, 1, MODE_WAIT);
        world_release(task->thread, task->set, i, i % 2);
    }
}

static void round_rewritten(uint32_t set, uint64_t m)
{
    fiber_go(script(SECOND, set), 4 + m % 44);
    tasks[THIRD] = (struct task){THIRD, set, 0};
    fiber_start(&fibers[THIRD], run_changes, &tasks[THIRD]);
    fiber_go(&fibers[THIRD], m);
    fiber_go(&fibers[SECOND], 0);
    fiber_go(&fibers[THIRD], 0);
    fiber_go(&fibers[FIRST], 0);
    finish(set);
}

static void test_rewritten(void **state)
{
    const uint64_t usual = stride;

    (void)state;
    stride = usual / 6 + 1; /* few of them meet */
    each_pair("a block that is written again while a helper completes it", round_rewritten);
    stride = usual;
}

/* ---- instants ---- */

static void run_newcomer(void *argument)
{
    const struct task *task = argument;

    world_acquire(task->thread, task->set, 0, 1, MODE_TRY);
}

/*
 * A newcomer is stopped at its n-th step while another thread waits, and may have read the clock.
 * Until it goes on, the waiter has been granted and everything was given back, so that the wait
 * queue is empty. The newcomer may be granted, too, but not as of an instant before the waiter's,
 * which was there first. Returns whether it was granted; `*stopped`: there is such a step.
 */
static bool is_granted_after_the_line(uint32_t set, uint64_t n, bool *stopped)
{
    struct fiber *newcomer = &fibers[FIRST];
    bool granted;

    world_restore();
    world_acquire(SECOND, set, 0, 2, MODE_WAIT);
    expect(world_acquire(THIRD, set, 0, 1, MODE_WAIT) == 1, "there is no line");
    tasks[FIRST] = (struct task){FIRST, set, 0};
    fiber_start(newcomer, run_newcomer, &tasks[FIRST]);
    *stopped = fiber_go(newcomer, n) == FIBER_READY;
    world_release(SECOND, set, 0, 0);
    set_grant_waiters(world.threads[THIRD], world.sets[set]);
    expect(world_state(THIRD, set, 0) == RECORD_HELD, "the waiters were not granted");
    world_release(THIRD, set, 0, 0);
    fiber_go(newcomer, 0);
    granted = world_state(FIRST, set, 0) == RECORD_HELD;
    world_release(FIRST, set, 0, 0);
    finish(set);
    return granted;
}

static void test_instant_after_the_wait_queue(void **state)
{
    (void)state;
    rounds = world.failures = 0;
    for (uint32_t set = 0; set < SETS; set++) {
        bool stopped = true;
        uint64_t granted = 0;

        for (uint64_t n = 1; stopped && !world.failures; n++) {
            say("an instant after the wait queue", set, n, 0, 0);
            granted += is_granted_after_the_line(set, n, &stopped);
        }
        expect(granted || world.failures, "set %u: no newcomer was granted anything", set);
    }
    printf("an instant after the wait queue: %lu rounds\n", rounds);
    assert_int_equal(world.failures, 0);
}

/* ---- sleep ---- */

static void run_waiter(void *argument)
{
    const struct task *task = argument;

    world_acquire(task->thread, task->set, 0, 1, MODE_WAIT);
    world_wait(task->thread, task->set, 0);
    expect(world_state(task->thread, task->set, 0) == RECORD_HELD, "woken without a grant");
    world_release(task->thread, task->set, 0, 1);
}

/* The first thread goes on with others waiting behind it, and dies or is stopped anywhere. The
 * sleepers must be woken for what it gives back. */
static void round_sleepers(uint32_t set, uint64_t before, uint64_t n, bool dies)
{
    world_restore();
    prepare(set, (uint32_t)world.where[1]);
    fiber_go(script(FIRST, set), before);
    for (uint32_t a = THIRD; a <= SECOND_RESCUER; a++) {
        tasks[a] = (struct task){a, set, 0};
        fiber_start(&fibers[a], run_waiter, &tasks[a]);
        fiber_go(&fibers[a], 0);
    }
    fiber_go(&fibers[FIRST], n);
    if (dies)
        world_recover(SECOND, FIRST);
    else
        fiber_go(&fibers[FIRST], 0);
    for (uint32_t i = 0; i < 64; i++) {
        for (uint32_t a = THIRD; a <= SECOND_RESCUER; a++)
            fiber_go(&fibers[a], 0);
        expect(i % 8 || !fibers_missed(fibers, THREADS), "a waiter sleeps on, though decided");
        if (i == 8)
            holder_leaves(set);
        if (i % 8 == 7)
            world_pass(INTERVAL_NS);
        fibers_on_time(fibers, THREADS, atomic_load(&shared->clock));
    }
    for (uint32_t a = THIRD; a <= SECOND_RESCUER; a++)
        expect(fibers[a].state == FIBER_DONE, "thread %u sleeps for ever", a);
    finish(set);
}

static void round_sleepers_death(uint32_t set, uint64_t n, uint64_t steps)
{
    for (uint64_t part = 1; part <= 4; part++)
        round_sleepers(set, steps * part / 5, n, true);
}

static void test_sleepers(void **state)
{
    (void)state;
    each_step("sleepers are woken after a death", round_sleepers_death);
}

static void round_sleepers_stop(uint32_t set, uint64_t n, uint64_t steps)
{
    for (uint64_t part = 1; part <= 4; part++)
        round_sleepers(set, steps * part / 5, n, false);
}

static void test_sleepers_stop(void **state)
{
    (void)state;
    each_step("sleepers are woken after a stop", round_sleepers_stop);
}

/* ---- any interleaving ---- */

static void run_worker(void *argument)
{
    const struct task *task = argument;

    for (uint32_t i = 0; i < 3; i++) {
        world_acquire(task->thread, task->set, 0, 1 + i % 2, MODE_WAIT);
        if ((task->thread + i) % 3 == 0)
            world_release(task->thread, task->set, 0, 0);
        else
            world_wait(task->thread, task->set, 0);
        world_release(task->thread, task->set, 0, i % 2);
    }
}

/* Runs fibers in random turns until all are done; `deadly`: some die and are recovered. */
static void run_all(uint32_t n, bool deadly)
{
    uint32_t done = 0, asleep = 0;

    for (uint32_t turn = 0; done < n && turn < 100000; turn++) {
        uint32_t a = (uint32_t)(FIRST + random_below(&seed, n));

        if (deadly && random_below(&seed, 64) == 0 && fibers[a].state != FIBER_DONE) {
            fiber_start(&fibers[a], run_script, &tasks[a]);
            fibers[a].state = FIBER_DONE; /* dead */
            world_recover(HOLDER, a);
        }
        fiber_go(&fibers[a], 1 + random_below(&seed, random_below(&seed, 8) ? 4 : 200));
        for (done = asleep = a = 0; a < n; a++) {
            done += fibers[FIRST + a].state == FIBER_DONE;
            asleep += fibers[FIRST + a].state == FIBER_ASLEEP;
        }
        if (done + asleep == n)
            world_pass(INTERVAL_NS);
        fibers_on_time(fibers, THREADS, atomic_load(&shared->clock));
    }
    expect(done == n, "%u sleep for ever", n - done);
    expect(fibers_missed(fibers, THREADS) == 0, "a waiter sleeps on, though it was decided");
}

static void random_rounds(const char *what, bool deadly)
{
    enum { WORKERS = 5 };

    rounds = world.failures = 0;
    for (uint64_t i = 0; i < 4000000 / stride / (deadly ? 1 : 2) && !world.failures; i++) {
        uint32_t set = (uint32_t)(i % SETS);

        say(what, i, seed, set, 0);
        world_restore();
        for (uint32_t a = FIRST; a < FIRST + WORKERS; a++) {
            tasks[a] = (struct task){a, set, 0};
            fiber_start(&fibers[a], a % 2 ? run_worker : run_script, &tasks[a]);
        }
        run_all(WORKERS, deadly);
        finish(set);
    }
    printf("%s: %lu rounds, seed then %lu\n", what, rounds, seed);
    assert_int_equal(world.failures, 0);
}

static void test_random(void **state)
{
    (void)state;
    random_rounds("random turns", false);
}

static void test_random_deaths(void **state)
{
    (void)state;
    random_rounds("random turns and deaths", true);
}

/* ---- private sets ---- */

/* No thread dies there, so the word of a resource is only the held amount. */
static void in_private(void (*test)(void **state), void **state)
{
    world_share(false);
    test(state);
    world_share(true);
}

static void test_private_instant_after_the_wait_queue(void **state)
{
    in_private(test_instant_after_the_wait_queue, state);
}

static void test_private_stops(void **state)
{
    in_private(test_stops, state);
}

static void test_private_crossed_stops(void **state)
{
    in_private(test_crossed_stops, state);
}

static void test_private_sleepers(void **state)
{
    in_private(test_sleepers_stop, state);
}

static void test_private_random(void **state)
{
    in_private(test_random, state);
}

/* ---- contention ---- */

static void run_taker(void *unused)
{
    (void)unused;
    world_acquire(FIRST, SET_THREE, 0, 1, MODE_TRY);
}

/* Another thread is faster at every step until the first one waits for its turn. That comes after
 * some operations of the other one, and the first is granted without another loss. */
static void test_turns(void **state)
{
    const struct set_head *head = region_block(&world.w->region, world.sets[SET_THREE]->head_unit);
    enum fiber_state taker = FIBER_READY;
    unsigned operations = 0;

    (void)state;
    world.failures = 0;
    say("turns", 0, 0, 0, 0);
    world_share(false);
    world_restore();
    fiber_start(&fibers[FIRST], run_taker, NULL);
    while (taker == FIBER_READY && !atomic_load(&head->next_turn)) {
        world_pass(2 * INTERVAL_NS);
        world_acquire(SECOND, SET_THREE, 0, 1, MODE_TRY);
        world_release(SECOND, SET_THREE, 0, 1);
        taker = fiber_go(&fibers[FIRST], 1);
    }
    assert_int_not_equal(atomic_load(&head->next_turn), 0);
    while (atomic_load(&head->next_turn)) {
        assert_true(operations++ <= CONTENTION_OPERATIONS);
        world_pass(2 * INTERVAL_NS);
        world_acquire(SECOND, SET_THREE, 0, 1, MODE_TRY);
        world_release(SECOND, SET_THREE, 0, 1);
    }
    assert_int_equal(fiber_go(&fibers[FIRST], 0), FIBER_DONE);
    assert_int_equal(world_state(FIRST, SET_THREE, 0), RECORD_HELD);
    assert_int_equal(atomic_load(&head->next_turn), 0);
    world_release(FIRST, SET_THREE, 0, 1);
    world_check_empty();
    world_share(true);
    assert_int_equal(world.failures, 0);
}

/* ---- copies ---- */

static uint32_t torn;

/* Takes all three limits' amounts together, so that in any version they agree. */
static void run_reader(void *argument)
{
    const struct task *task = argument;
    const struct limits *limits = &world.sets[SET_THREE]->limits;
    struct thread_ctx *thread = world.threads[task->thread];
    uint64_t *states = thread->content + CONTENT_STATES;

    set_snapshot(thread, world.sets[SET_THREE], &(struct set_view){0});
    if (states[limits->items[0].state_offset] != states[limits->items[1].state_offset])
        torn++;
}

/* A reader is stopped at each of its steps while two others publish: its copy must be of one
 * version. Both rates of the set always say the same. */
static void test_snapshot_is_whole(void **state)
{
    bool alive = true;

    (void)state;
    torn = world.failures = 0;
    for (uint64_t n = 1; alive; n++)
        for (uint64_t m = 1; m < 400; m++) {
            say("a copy is of one version", n, m, 0, 0);
            world_restore();
            tasks[THIRD] = (struct task){THIRD, SET_THREE, 0};
            fiber_start(&fibers[THIRD], run_reader, &tasks[THIRD]);
            alive = fiber_go(&fibers[THIRD], n) == FIBER_READY;
            world_pass(1000);
            fiber_go(script(FIRST, SET_THREE), m);
            fiber_go(script(SECOND, SET_THREE), m);
            fiber_go(&fibers[THIRD], 0);
        }
    assert_int_equal(torn, 0);
}

/* ---- many versions ---- */

/* Sets the version of every block to the last but a few, as if each had been published 2^41 times.
 */
static void age_blocks(void)
{
    const uint64_t old = ((UINT64_C(1) << 41) - 4) << BLOCK_SLOT_BITS;

    for (struct thread_ctx *thread = world.w->thread_ctxs; thread; thread = thread->next) {
        struct thread_head *head = region_block(&world.w->region, thread->unit);

        for (uint32_t c = 0; c < BLOCK_CLASSES; c++)
            if (atomic_load(&head->own_blocks[c]))
                atomic_fetch_or(&head->own_blocks[c], old);
    }
    for (uint32_t s = 0; s < SETS; s++) {
        struct set_head *head = region_block(&world.w->region, world.sets[s]->head_unit);
        uint64_t word = atomic_load(&head->state_word);
        struct version_block *block;

        atomic_fetch_or(&head->reserve_block, old);
        if (!(word & INFLATED_BIT))
            continue;
        word = INFLATED_BIT | old | (word & BLOCK_SLOT_MASK);
        block = (struct version_block *)(void *)(world.w->region.blocks.base +
                                                 ((word & BLOCK_SLOT_MASK) << head->block_class));
        atomic_store(&head->state_word, word);
        atomic_store(&block->completed, (word & ~INFLATED_BIT) >> BLOCK_SLOT_BITS);
    }
}

static void test_versions_wrap(void **state)
{
    (void)state;
    world.failures = 0;
    say("versions wrap", 0, 0, 0, 0);
    world_restore();
    age_blocks();
    for (uint32_t i = 0; i < 20; i++)
        for (uint32_t s = 0; s < SETS; s++) {
            fiber_go(script(FIRST, s), 1 + i * 7);
            fiber_go(script(SECOND, s), 0);
            fiber_go(&fibers[FIRST], 0);
            world_check_empty();
        }
    assert_int_equal(world.failures, 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hand_in),
        cmocka_unit_test(test_givers),
        cmocka_unit_test(test_late_giver),
        cmocka_unit_test(test_announced),
        cmocka_unit_test(test_versions_wrap),
        cmocka_unit_test(test_snapshot_is_whole),
        cmocka_unit_test(test_turns),
        cmocka_unit_test(test_death_at_every_step),
        cmocka_unit_test(test_death_unnoticed),
        cmocka_unit_test(test_instant_after_the_wait_queue),
        cmocka_unit_test(test_sleepers),
        cmocka_unit_test(test_sleepers_stop),
        cmocka_unit_test(test_rescuer_dies),
        cmocka_unit_test(test_two_rescuers),
        cmocka_unit_test(test_late_rescuer),
        cmocka_unit_test(test_two_deaths),
        cmocka_unit_test(test_stops),
        cmocka_unit_test(test_crossed_stops),
        cmocka_unit_test(test_rewritten),
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_random_deaths),
        cmocka_unit_test(test_private_instant_after_the_wait_queue),
        cmocka_unit_test(test_private_stops),
        cmocka_unit_test(test_private_crossed_stops),
        cmocka_unit_test(test_private_sleepers),
        cmocka_unit_test(test_private_random),
    };

    if (!fibers_are_possible())
        return FIBERS_SKIPPED;
    stride = argument(argc, argv, 1, effort_stride(stride));
    seed = argument(argc, argv, 2, seed);
    return cmocka_run_group_tests(tests, stepped_setup, stepped_teardown);
}
