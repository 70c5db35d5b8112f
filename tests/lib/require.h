/* SPDX-License-Identifier: MIT */
/*
 * A check that any thread of a test or a benchmark may make. If it fails, it ends the process and
 * says where, and which seed repeats it. And what the environment says a test is to do.
 */
#ifndef WEIR_TESTS_REQUIRE_H
#define WEIR_TESTS_REQUIRE_H

#include "lib/clock.h"
#include "lib/random.h"
#include <errno.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define require(condition) ((condition) ? (void)0 : require_failed(#condition, __FILE__, __LINE__))

static uint64_t test_seed;

static inline _Noreturn void require_failed(const char *condition, const char *file, int line)
{
    fprintf(stderr, "%s:%d: not so: %s (errno: %s)\n", file, line, condition, strerror(errno));
    if (test_seed)
        fprintf(stderr, "the seed was %" PRIu64 ", repeat with WEIR_SEED\n", test_seed);
    fflush(NULL);
    _exit(1);
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
