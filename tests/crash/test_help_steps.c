/* SPDX-License-Identifier: MIT */
/*
 * Late helpers. One thread is stopped as soon as it has committed, before any deferred write is
 * complete. A second thread, which helps, is stopped at each of its steps, and a third, which
 * commits as well, at each of its own. Then they go on, in one order or in another. Every round of
 * each case is made, so that no check of a helper is left to the rounds that other tests happen
 * upon.
 *
 *     test_help_steps [all]
 *
 * Runs the cases that are enough, some ten thousands, or all of them, which takes minutes. Exits
 * with 77 under ThreadSanitizer.
 */
#include "crash_world.h"
#include "state/version.h"
#include "stepped.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { HOLDER, FIRST, SECOND, THIRD };
enum { STATES = 4, VERSIONS = 4 };

static struct fiber fibers[THREADS];
static uint32_t set; /* that the threads use */
static uint64_t rounds;
static uint32_t threads[] = {HOLDER, FIRST, SECOND, THIRD};

/* Asks, and gives up or gives back; meanwhile the third gives back what was held at first. */
static void run_thread(void *argument)
{
    uint32_t a = *(const uint32_t *)argument;

    world_acquire(a, set, 0, 1, MODE_WAIT);
    if (a == THIRD)
        world_release(HOLDER, set, 0, 0);
    world_release(a, set, 0, 0);
}

static uint64_t word_now(void)
{
    return version_peek_word(&world.w->region, world.sets[set]->head_unit);
}

/*
 * One unit is left; all are held; there are waiters, too; there were, so that the set is inflated.
 */
static void prepare(uint32_t state)
{
    world_restore();
    world_acquire(HOLDER, set, 0, state > 0 ? 2 : 1, MODE_WAIT);
    if (state > 1)
        world_acquire(HOLDER, set, 1, 1, MODE_WAIT);
    if (state > 2)
        world_cancel(HOLDER, set, 1);
    for (uint32_t a = FIRST; a <= THIRD; a++)
        fiber_start(&fibers[a], run_thread, &threads[a]);
}

/* Until it has changed the set's word for the n-th time. */
static void publish(uint32_t a, uint32_t n)
{
    for (uint64_t before = word_now(); n > 0 && fibers[a].state == FIBER_READY;
         before = word_now()) {
        fiber_go(&fibers[a], 1);
        n -= word_now() != before;
    }
}

static void check(void)
{
    rounds++;
    for (uint32_t a = FIRST; a <= THIRD; a++)
        expect(fibers[a].state == FIBER_DONE, "%u was held up", a);
    world_check();
    for (uint32_t i = 0; i < 2; i++)
        world_release(HOLDER, set, i, 0);
    world_check_empty();
}

/* The set as the threads find it, and at which change of its state word the first is stopped. */
struct scene {
    uint32_t set, state, versions;
    bool owner_first; /* whether that one goes on before the others do */
};

/* False: there is no such step of the third one any more. */
static bool run(const struct scene *scene, uint64_t m, uint64_t k, bool *second_stopped)
{
    bool stopped;

    prepare(scene->state);
    publish(FIRST, scene->versions);
    *second_stopped = fiber_go(&fibers[SECOND], m) == FIBER_READY;
    stopped = fiber_go(&fibers[THIRD], k) == FIBER_READY;
    if (scene->owner_first)
        fiber_go(&fibers[FIRST], 0);
    fiber_go(&fibers[SECOND], 0);
    fiber_go(&fibers[THIRD], 0);
    fiber_go(&fibers[FIRST], 0);
    check();
    return stopped;
}

static void each_step_of_both(const struct scene *scene)
{
    bool second_stopped = true;

    set = scene->set;
    world.what = scene->owner_first ? "the publisher goes on first" : "the publisher goes on last";
    for (uint64_t m = 1; second_stopped && !world.failures; m++) {
        bool stopped = true;

        for (uint64_t k = 1; stopped && !world.failures; k++) {
            world.where[0] = set;
            world.where[1] = scene->state;
            world.where[2] = m;
            world.where[3] = k;
            stopped = run(scene, m, k, &second_stopped);
        }
    }
}

/* One more unit is held, and a thread waits for it. Then everything is given back, oldest first. */
static void others_join(void)
{
    world_acquire(HOLDER, set, 1, 1, MODE_WAIT);
    world_acquire(HOLDER, set, 2, 1, MODE_WAIT);
}

static void others_leave(void)
{
    for (uint32_t i = 0; i < 3; i++)
        world_release(HOLDER, set, i, 0);
}

/*
 * A thread is stopped, perhaps just before it commits a grant without a wait. Others fill the set
 * and join the wait queue. So the thread joins, too, by another version in the same block, and is
 * stopped again as soon as it has committed. That version must not pass for complete, not even for
 * the next joining thread, which is stopped likewise.
 */
static bool run_in_vain(uint64_t m)
{
    bool stopped;

    prepare(0);
    stopped = fiber_go(&fibers[FIRST], m) == FIBER_READY;
    others_join();
    publish(FIRST, 1);
    publish(SECOND, 1);
    others_leave();
    for (uint32_t a = FIRST; a <= THIRD; a++)
        fiber_go(&fibers[a], 0);
    check();
    return stopped;
}

static void test_in_vain(void **state)
{
    (void)state;
    rounds = world.failures = 0;
    world.what = "a block is written in vain";
    for (uint32_t i = 0; i < 2 * SETS; i++) {
        bool stopped = true;

        set = i / 2;
        world_share(i % 2);
        for (uint64_t m = 1; stopped && !world.failures; m++) {
            world.where[0] = set;
            world.where[1] = i % 2;
            world.where[2] = m;
            stopped = run_in_vain(m);
        }
    }
    world_share(true);
    printf("%lu rounds\n", rounds);
    assert_int_equal(world.failures, 0);
}

static void test_enough(void **state)
{
    static const struct scene scenes[] = {
        {SET_RESOURCE, 1, 1, false}, {SET_RESOURCE, 1, 1, true}, {SET_RESOURCE, 1, 2, false},
        {SET_RATE, 1, 1, true},      {SET_THREE, 0, 2, false},
    };

    (void)state;
    rounds = world.failures = 0;
    for (uint32_t i = 0; i < sizeof(scenes) / sizeof(scenes[0]); i++)
        each_step_of_both(&scenes[i]);
    printf("%lu rounds\n", rounds);
    assert_int_equal(world.failures, 0);
}

static void test_all(void **state)
{
    struct scene scene;

    (void)state;
    rounds = world.failures = 0;
    for (scene.set = 0; scene.set < SETS; scene.set++)
        for (scene.state = 0; scene.state < STATES; scene.state++)
            for (scene.versions = 0; scene.versions <= VERSIONS; scene.versions++)
                for (uint32_t i = 0; i < 2; i++) {
                    scene.owner_first = i > 0;
                    each_step_of_both(&scene);
                }
    printf("%lu rounds\n", rounds);
    assert_int_equal(world.failures, 0);
}

static void test_all_private(void **state)
{
    world_share(false);
    test_all(state);
    world_share(true);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest enough[] = {cmocka_unit_test(test_in_vain),
                                        cmocka_unit_test(test_enough)};
    const struct CMUnitTest all[] = {cmocka_unit_test(test_all),
                                     cmocka_unit_test(test_all_private)};

    if (!fibers_are_possible())
        return FIBERS_SKIPPED;
    if (argc > 1 && strcmp(argv[1], "all") == 0)
        return cmocka_run_group_tests(all, stepped_setup, stepped_teardown);
    return cmocka_run_group_tests(enough, stepped_setup, stepped_teardown);
}
