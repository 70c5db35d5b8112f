/* SPDX-License-Identifier: MIT */
/* Time in tests: units in ns, the clock that weir goes by, and a pause. */
#ifndef WEIR_TESTS_CLOCK_H
#define WEIR_TESTS_CLOCK_H

#include <stdint.h>
#include <time.h>

#define US     UINT64_C(1000)
#define MS     UINT64_C(1000000)
#define SECOND UINT64_C(1000000000)

static inline uint64_t clock_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * SECOND + (uint64_t)t.tv_nsec;
}

static inline void pause_ns(uint64_t ns)
{
    struct timespec t = {(time_t)(ns / SECOND), (long)(ns % SECOND)};

    nanosleep(&t, NULL);
}

#endif
