/* SPDX-License-Identifier: MIT */
/*
 * Death and stops at a step: a child process is sent a signal, which it cannot do anything about,
 * at its n-th SCHED_POINT() from a given moment on. Or something else is done there meanwhile.
 */
#ifndef WEIR_TESTS_STEPPING_H
#define WEIR_TESTS_STEPPING_H

#include <stdbool.h>
#include <stdint.h>

/* The steps that count. */
enum stepper { STEPS_OF_CALLER, STEPS_OF_OTHER_THREADS };

/* From now on: the process is sent `signal` at the n-th step. 0: never. */
void stepping_begin(uint64_t n, int signal, enum stepper stepper);
/* From now on: the calling thread makes this call at its n-th step; steps within the call do not
 * count. */
void stepping_call(uint64_t n, void (*call)(void *argument), void *argument);
/* Returns whether there were so many steps. */
bool stepping_end(void);

#endif
