/* SPDX-License-Identifier: MIT */
/* A rate algorithm of the tests' own, as small as one can be: units INTERVAL apart, some at once.
 */
#ifndef WEIR_TESTS_CRASH_SPACED_H
#define WEIR_TESTS_CRASH_SPACED_H

#include <weir/algorithm.h>

struct spaced {
    uint64_t interval_ns, burst;
};

/* State: the instant at which everything taken would have been earned. */
extern const struct weir_algorithm spaced_algorithm;

#endif
