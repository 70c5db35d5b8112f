/* SPDX-License-Identifier: MIT */
/* An event of the traffic: one request. */
#ifndef WEIR_TOOLS_SIMULATE_EVENT_H
#define WEIR_TOOLS_SIMULATE_EVENT_H

#include <stdint.h>

#define EVENT_VALUES_MAX 8
/* Longer subjects are cut, and end with a hash of what is cut. */
#define EVENT_SUBJECT_MAX 64
#define EVENT_CLASS_MAX   31

/* What every event has comes first: another thread makes it, and few cache lines are to move. */
struct event {
    uint64_t at_ns;   /* since 1970, or of whatever clock the traffic goes by */
    uint64_t hold_ns; /* from its grant to its release */
    uint64_t route;
    uint64_t number;       /* its line in the input, or its place in a generated load, from 1 */
    uint32_t subject_size; /* 0: none */
    char wait_class[EVENT_CLASS_MAX + 1]; /* empty: none */
    char subject[EVENT_SUBJECT_MAX];
    uint64_t values[EVENT_VALUES_MAX]; /* amounts requested, then amounts used: see mapping.h */
};

#endif
