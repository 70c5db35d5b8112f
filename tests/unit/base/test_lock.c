/* SPDX-License-Identifier: MIT */
/* Locks of one word: one thread at a time, and no system call where nothing waits. */
#include "base/lock.h"
#include "lib/world.h"

#include <pthread.h>
#include <sched.h>

enum { THREADS = 4, TURNS = 20000 };

static struct lock lock;
static unsigned turns, inside, overlaps;

static void without_waiters_there_are_no_system_calls(void **state)
{
    uint64_t before = fake_os_system_calls();

    (void)state;
    assert_false(lock_is_taken(&lock));
    lock_take(&lock);
    assert_true(lock_is_taken(&lock));
    lock_release(&lock);
    assert_false(lock_is_taken(&lock));
    assert_int_equal(fake_os_system_calls(), before);
}

static void *take_turns(void *unused)
{
    for (unsigned i = 0; i < TURNS; i++) {
        lock_take(&lock);
        overlaps += inside++;
        if (i % 16 == 0)
            sched_yield(); /* so that others come to wait */
        turns++;
        inside--;
        lock_release(&lock);
    }
    return unused;
}

static void threads_take_turns_and_none_sleeps_on(void **state)
{
    pthread_t threads[THREADS];

    (void)state;
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, take_turns, NULL), 0);
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(turns, THREADS * TURNS);
    assert_int_equal(overlaps, 0);
    assert_false(lock_is_taken(&lock));
    assert_true(fake_os_counts().futex_wait > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_checked_test(without_waiters_there_are_no_system_calls),
        leak_checked_test(threads_take_turns_and_none_sleeps_on),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
