/* SPDX-License-Identifier: MIT */
/*
 * Key sets of a segment, begun by several threads at once. Threads that need one give it its memory
 * and its first version, and use it. Each is stopped at any step and goes on later, or never.
 * Before every step, everything that is published is there; and no late thread undoes a later
 * commit of another.
 *
 * Exits with 77 under ThreadSanitizer.
 */
#include "fiber.h"
#include "shm/segment.h"
#include "state/version.h"
#include "system.h"

#include "lib/require.h"
#include "lib/segments.h"
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { FIRST_THREAD, SECOND_THREAD, THIRD_THREAD, THREADS };
enum { WORDS = 12, ROUNDS = 1, KEY_SET = 1 };

static struct segment *segment;
static struct region region;
static _Atomic bool broken;
static uint64_t rounds;
static unsigned published; /* versions, in all */

static struct thread {
    struct fiber fiber;
    uint32_t number;
    bool begun;
} threads[THREADS];

/* What is below the mark can be used. */
static void look(void)
{
    for (uint32_t i = 0; segment && i < segment_key_sets_n(segment); i++)
        require(segment_has_block(
            segment, atomic_load(&segment_key_set(segment, i)->head.state_word) & BLOCK_SLOT_MASK));
    require(!atomic_load(&broken));
}

/* One more version, which says how many there have been; the empty one says none. */
static bool publish(uint32_t thread)
{
    const uint32_t unit = segment_key_set_unit(segment, KEY_SET);
    uint64_t words[WORDS] = {0};
    struct version version = {.content = words, .content_capacity = WORDS};
    uint64_t before;

    version_set_active(&region, segment_thread_unit(segment, thread), unit);
    version_read(&region, unit, &version);
    require(version.content_n == 0 || version.content_n == WORDS);
    require((version.content_n == 0) == (words[0] == 0) && !version.is_mismatch);
    before = words[0];
    for (uint32_t i = 0; i < WORDS; i++)
        words[i] = before + 1;
    version.content_n = WORDS;
    if (!version_commit(&region, segment_thread_unit(segment, thread), unit, &version))
        return false;
    published++;
    return true;
}

static void use(void *argument)
{
    struct thread *thread = argument;

    require(segment_alloc_key_set(segment, KEY_SET) == 0);
    thread->begun = true;
    require(segment_key_sets_n(segment) > KEY_SET);
    for (unsigned done = 0; done < ROUNDS;)
        done += publish(thread->number);
}

static struct fiber *start(uint32_t number)
{
    threads[number].number = number;
    threads[number].begun = false;
    fiber_start(&threads[number].fiber, use, &threads[number]);
    return &threads[number].fiber;
}

static void prepare(void)
{
    const struct segment_shape shape = keyed_shape();

    require(segment_open(place, &shape, &segment, &error) == 0);
    require(region_open_segment(&region, segment, &broken) == 0);
    for (uint32_t i = 0; i < THREADS; i++)
        require(segment_alloc_thread(segment, i) == 0);
    require(segment_alloc_key_set(segment, 0) == 0); /* they go up from the first */
    published = 0;
}

/* At most so many died, each perhaps between publishing and knowing of it. */
static void finish(uint32_t dead)
{
    uint64_t words[WORDS] = {0};
    struct version version = {.content = words, .content_capacity = WORDS};

    rounds++;
    look();
    version_read(&region, segment_key_set_unit(segment, KEY_SET), &version);
    require(words[0] >= published && words[0] <= published + dead);
    require(words[WORDS - 1] == words[0]);
    region_close(&region);
    segment_close(segment);
    segment = NULL;
    require(segment_remove(place, "set", true, is_in_use, &error) == 0);
}

static uint64_t count_steps(void)
{
    uint64_t before;

    prepare();
    before = fiber_steps();
    fiber_go(start(FIRST_THREAD), 0);
    finish(0);
    return fiber_steps() - before;
}

/* Two are stopped at any of their steps; a third gets on; then both go on, or one, or none. */
static void two_are_stopped(void **state)
{
    const uint64_t steps = count_steps();

    (void)state;
    require(steps > 4);
    for (uint64_t n = 1; n <= steps; n++)
        for (uint64_t m = 1; m <= steps; m++) {
            uint32_t end = (uint32_t)(n + m) % 4;

            prepare();
            fiber_go(start(FIRST_THREAD), n);
            fiber_go(start(SECOND_THREAD), m);
            require(fiber_go(start(THIRD_THREAD), 0) == FIBER_DONE);
            for (uint32_t i = FIRST_THREAD; i <= SECOND_THREAD; i++)
                if (end & 1u << i)
                    require(fiber_go(&threads[i].fiber, 0) == FIBER_DONE);
            finish(2);
        }
    print_message("%" PRIu64 " rounds\n", rounds);
}

static int setup(void **state)
{
    if (!system_start())
        return -1;
    fibers_begin(look);
    return place_setup(state);
}

static int teardown(void **state)
{
    fibers_end();
    return place_teardown(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_are_stopped),
    };

    if (!fibers_are_possible())
        return FIBERS_SKIPPED;
    return cmocka_run_group_tests(tests, setup, teardown);
}
