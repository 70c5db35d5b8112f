/* SPDX-License-Identifier: MIT */
/*
 * What may keep the sets of a test: the one list of backends. A test of what is promised of every
 * set runs with each of them; the first argument of the program names one. What one of them cannot
 * do, a test says with needs(), and is left out there. README.md says what differs, and why.
 */
#ifndef WEIR_TESTS_BACKENDS_H
#define WEIR_TESTS_BACKENDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What not every backend has. */
enum backend_ability {
    HAS_NANOSECONDS = 1u << 0,      /* instants of limits; otherwise microseconds */
    HAS_PER_LIMIT = 1u << 1,        /* fair: per_limit */
    HAS_NESTING = 1u << 2,          /* requests within others */
    HAS_EXACT_FORECASTS = 1u << 3,  /* otherwise lower bounds, where limits alone determine them */
    HAS_OTHER_ALGORITHMS = 1u << 4, /* those of plugins of any kind */
    HAS_SUMS = 1u << 5,          /* counters of a set are those of all instances; and of subjects */
    HAS_THREAD_LEASES = 1u << 6, /* lease: N */
    HAS_OWN_CLOCK = 1u << 7,     /* the instance's is the clock */
    HAS_SINGLE_WAKES = 1u << 8,  /* one thread wakes a waiter, once */
    HAS_RESERVATIONS = 1u << 9,  /* weir_reserve() */
    HAS_LONG_IDLENESS = 1u << 10, /* otherwise it ends with the session, after which is a grace */
    HAS_SHADOW = 1u << 12,        /* shadow, enforce */
    HAS_OTHER_RESERVATIONS = 1u << 11 /* weir_reserve() of limits of HAS_OTHER_ALGORITHMS */
};

struct test_backend {
    const char *name;
    const char *fields;  /* of a set in a configuration */
    unsigned has;        /* enum backend_ability */
    bool is_shared;      /* by instances */
    bool is_remote;      /* what is decided there is learned later: see settle() */
    bool is_foreign;     /* algorithms have other names there: copies, which instances decide */
    uint64_t tick_ns;    /* of limits */
    uint64_t session_ns; /* so much may pass between two calls of an instance */
};

/* The list. */
extern const struct test_backend backends[];
extern const size_t backends_n;

/* The one in use: the first of the list, until a program says otherwise. */
extern const struct test_backend *backend;

/* Makes it the one that the first argument names, if there is any. Ends the program with status 77
 * (skipped) if it cannot be had on this machine. */
void backend_choose(int argc, char **argv);

/* The shortest time that limits know. */
#define TICK (backend->tick_ns)

/* Says which of these the backend in use does not have. Returns whether that is one of them. */
bool backend_lacks(unsigned abilities);

/* Skips the test; the results say why. */
#define skip_because(reason)                                                                       \
    do {                                                                                           \
        print_message("%s\n", reason);                                                             \
        skip();                                                                                    \
    } while (0)

/* In a test: leaves it out unless the backend has all of these. */
#define needs(abilities)                                                                           \
    do {                                                                                           \
        if (backend_lacks(abilities))                                                              \
            skip();                                                                                \
    } while (0)

/* Writes a configuration anew, with the sets in it kept by the backend in use: those of a text that
 * names no backend itself. */
void backend_write(const char *text, char *ret, size_t size);

#endif
