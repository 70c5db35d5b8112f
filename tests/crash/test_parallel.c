/* SPDX-License-Identifier: MIT */
/*
 * Threads on three sets, truly at the same time: for ThreadSanitizer, and for faults that only real
 * parallelism finds. One thread at a time abandons its context while waiting or holding, and two
 * others recover it at the same time.
 *
 *     test_parallel [SECONDS]
 */
#include "crash_world.h"
#include "set/fairness.h"
#include "system.h"
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { WORKERS = 3, RESCUER = 4, SECOND_RESCUER = 5, READER = 6, VICTIM = 7 };

static _Atomic bool over;

static void *work(void *argument)
{
    uint32_t context = *(const uint32_t *)argument;
    uint64_t random = context * UINT64_C(7919);

    while (!atomic_load(&over))
        world_turn(context, &random);
    return NULL;
}

static void *look(void *argument)
{
    uint64_t amounts[LIMITS] = {1, 1, 1};
    struct decision decision;

    (void)argument;
    while (!atomic_load(&over))
        for (uint32_t s = 0; s < SETS; s++) {
            set_snapshot(world.threads[READER], world.sets[s], &(struct set_view){0});
            set_forecast(world.threads[READER], world.sets[s],
                         &(struct newcomer){.amounts = amounts}, FORECAST_ANY_QUEUE, &decision);
        }
    return NULL;
}

static void *rescue(void *argument)
{
    world_recover(*(const uint32_t *)argument, VICTIM);
    return NULL;
}

/* Asks for something with every record, and is never heard of again. */
static void abandon(uint64_t *random)
{
    for (uint32_t i = 0; i < RECORDS; i++)
        world_acquire(VICTIM, (uint32_t)random_below(random, SETS), i, 1 + random_below(random, 2),
                      MODE_WAIT);
}

static void recover_twice(void)
{
    static const uint32_t rescuers[] = {RESCUER, SECOND_RESCUER};
    pthread_t thread;

    if (pthread_create(&thread, NULL, rescue, (void *)(uintptr_t)&rescuers[0]) != 0)
        abort();
    world_recover(rescuers[1], VICTIM);
    pthread_join(thread, NULL);
}

int main(int argc, char **argv)
{
    static uint32_t numbers[] = {1, 2, 3, READER};
    time_t end = time(NULL) + (argc > 1 ? strtol(argv[1], NULL, 10) : 4);
    uint64_t random = 4711, victims = 0;
    pthread_t threads[WORKERS + 1];
    bool failed;

    clock_is_real = true;
    world_make(20000);
    world.what = "parallel";
    for (uint32_t i = 0; i <= WORKERS; i++)
        if (pthread_create(&threads[i], NULL, i < WORKERS ? work : look, &numbers[i]) != 0)
            abort();
    for (; time(NULL) < end; victims++) {
        abandon(&random);
        usleep((useconds_t)random_below(&random, 500));
        recover_twice();
    }
    atomic_store(&over, true);
    for (uint32_t i = 0; i <= WORKERS; i++)
        pthread_join(threads[i], NULL);
    world_check_empty();
    world_check_log();
    expect(atomic_load(&shared->overslept) == 0, "a waiter overslept");
    printf("%lu turns, %lu victims, %u failures\n", atomic_load(&shared->turns), victims,
           world.failures);
    failed = world.failures != 0;
    world_free();
    return failed;
}
