/* SPDX-License-Identifier: MIT */
/*
 * A limit: data. Its type, key, algorithm, configuration, and where its state lies in the set's
 * state. It synchronises nothing and never changes once made.
 */
#ifndef WEIR_CORE_LIMIT_H
#define WEIR_CORE_LIMIT_H

#include <stdbool.h>
#include <weir/algorithm.h>

struct limit {
    enum weir_limit_type type;
    bool refunds;                           /* unused amounts of a rate or call go back */
    bool charges;                           /* usage beyond the amount becomes debt */
    const char *key;                        /* owned */
    const struct weir_algorithm *algorithm; /* NULL: a counted resource */
    const char *algorithm_name;             /* NULL for a counted resource */
    void *config;                           /* owned; the algorithm's, aligned to 16 */
    uint64_t capacity;                      /* the largest amount that can be granted */
    uint32_t state_at;    /* where its state begins, in 8-byte words from that of the set */
    uint32_t state_words; /* of a counted resource: 1, the units held */
};

#endif
