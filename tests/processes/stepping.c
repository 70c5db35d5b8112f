/* SPDX-License-Identifier: MIT */
/* Death and stops at a step: see stepping.h. */
#include "stepping.h"

#include "base/sched_point.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

static _Atomic uint64_t left; /* steps until the signal; 0: never */
static pthread_t caller;
static enum stepper counted;
static int sent;
static void (*made)(void *argument); /* NULL: the signal is sent */
static void *of_call;

void stepping_begin(uint64_t n, int signal, enum stepper stepper)
{
    caller = pthread_self();
    counted = stepper;
    sent = signal;
    made = NULL;
    atomic_store(&left, n);
}

void stepping_call(uint64_t n, void (*call)(void *argument), void *argument)
{
    stepping_begin(n, 0, STEPS_OF_CALLER);
    made = call;
    of_call = argument;
}

bool stepping_end(void)
{
    return atomic_exchange(&left, 0) == 0;
}

/* The signal goes to the thread that makes the step: it has no effect later than here. */
void sched_point(void)
{
    enum stepper mine;

    if (!atomic_load(&left))
        return;
    mine = pthread_equal(pthread_self(), caller) ? STEPS_OF_CALLER : STEPS_OF_OTHER_THREADS;
    if (mine != counted || atomic_fetch_sub(&left, 1) != 1)
        return;
    if (made)
        made(of_call);
    else
        raise(sent);
}
