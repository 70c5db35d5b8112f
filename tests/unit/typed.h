/* SPDX-License-Identifier: MIT */
/* The configuration of `typed` of wild.c: what it was given. */
#ifndef WEIR_TESTS_TYPED_H
#define WEIR_TESTS_TYPED_H

#include <stdint.h>

struct typed_config {
    uint64_t share, room, steps_n, steps[4];
    char label[8];
};

/* That of `weighing`. */
struct weighing_config {
    uint64_t weights[4], costs[4];
};

#endif
