/* SPDX-License-Identifier: MIT */
/* Fibers: simulated threads that run in one thread and can be stopped at any step of the core. So
 * every interleaving at the grain of a step can be repeated, and thousands of them run in a second.
 * A fiber that never runs again is a dead thread: it does nothing more. */
#ifndef WEIR_TESTS_CRASH_FIBER_H
#define WEIR_TESTS_CRASH_FIBER_H

#include <stdbool.h>
#include <stdint.h>
#include <ucontext.h>

enum fiber_state { FIBER_READY, FIBER_ASLEEP, FIBER_DONE };

struct fiber {
    struct fiber *next; /* of those that have a stack */
    ucontext_t context;
    void *stack;
    void (*run)(void *);
    void *argument;
    enum fiber_state state;
    uint64_t left; /* steps until it stops; 0: it does not */
    const uint32_t *futex;
    uint32_t expected; /* what it slept on */
    uint64_t until_ns;
};

/* Whether there can be any. If not, says so; then the program's status is FIBERS_SKIPPED. */
#define FIBERS_SKIPPED 77
bool fibers_are_possible(void);

/* Makes fibers catch the steps and sleeps of the core; before each step, `look`, unless NULL. */
void fibers_begin(void (*look)(void));
/* They do not any more, and all that were started have gone. */
void fibers_end(void);

/* From the beginning again, whatever became of it. Its stack is kept. */
void fiber_start(struct fiber *fiber, void (*run)(void *), void *argument);

/* Runs it for so many steps (0: until it ends or sleeps). Nothing if it sleeps or has ended. */
enum fiber_state fiber_go(struct fiber *fiber, uint64_t steps);

/* Steps that fibers have made since fibers_begin(). */
uint64_t fiber_steps(void);

/* Wakes the fibers of `n` with a deadline that has passed. Counts a fiber that sleeps on a word
 * that has changed since: it has missed its wake. */
uint32_t fibers_missed(const struct fiber *fibers, uint32_t n);
void fibers_on_time(struct fiber *fibers, uint32_t n, uint64_t now_ns);

#endif
