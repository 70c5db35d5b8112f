/* SPDX-License-Identifier: MIT */
/* A thread that is blocked in weir_acquire, on the pool of the world. */
#include "lib/blocked.h"
#include <sched.h>

static void *blocked_run(void *argument)
{
    struct blocked *blocked = argument;

    blocked->refusal.size = sizeof(blocked->refusal);
    blocked->result =
        weir_acquire(world.pool, &blocked->request, &blocked->acquisition, &blocked->refusal);
    atomic_store(&blocked->returned, true);
    return NULL;
}

void blocked_start(struct blocked *blocked, const struct weir_request *request)
{
    *blocked = (struct blocked){.request = *request, .result = 1};
    assert_int_equal(pthread_create(&blocked->thread, NULL, blocked_run, blocked), 0);
}

void blocked_enqueue(struct blocked *blocked, const struct weir_request *request, uint64_t waiting)
{
    uint64_t sleeps = fake_os_counts().futex_wait;

    blocked_start(blocked, request);
    /* It is in the wait queue before its deadline is set, and sleeps afterwards. */
    while (stats().waiting < waiting || fake_os_counts().futex_wait == sleeps)
        sched_yield();
}

void blocked_join(struct blocked *blocked, int expected)
{
    pthread_join(blocked->thread, NULL);
    assert_int_equal(blocked->result, expected);
    assert_true((blocked->acquisition != NULL) == (expected == 0));
}
