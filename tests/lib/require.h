/* SPDX-License-Identifier: MIT */
/*
 * For tests of many threads: a check that any thread may make and that ends the process with the
 * place and the seed, random numbers per thread, and how long to run.
 */
#ifndef WEIR_TESTS_REQUIRE_H
#define WEIR_TESTS_REQUIRE_H

#include "lib/random.h"
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define require(condition) ((condition) ? (void)0 : require_failed(#condition, __FILE__, __LINE__))

static uint64_t test_seed;

static inline _Noreturn void require_failed(const char *condition, const char *file, int line)
{
    fprintf(stderr, "%s:%d: not so: %s (seed %" PRIu64 ", repeat with WEIR_SEED)\n", file, line,
            condition, test_seed);
    fflush(NULL);
    _exit(1);
}

static inline uint64_t clock_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline void pause_ns(uint64_t ns)
{
    struct timespec t = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};

    nanosleep(&t, NULL);
}

/* A number from the environment, or `otherwise`. */
static inline uint64_t number_from(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);

    return text && *text ? strtoull(text, NULL, 10) : otherwise;
}

/* Takes the seed from WEIR_SEED or the time. */
static inline void seed_begin(void)
{
    test_seed = random_seed();
}

#endif
