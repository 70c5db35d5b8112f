/* SPDX-License-Identifier: MIT */
/*
 * What the programs have in common that stop fibers at steps: arguments, and what is there for all
 * of a program's tests.
 */
#ifndef WEIR_TESTS_CRASH_STEPPED_H
#define WEIR_TESTS_CRASH_STEPPED_H

#include "fiber.h"
#include <stdint.h>

/* The program's i-th argument, a number, 1 in place of 0; or `otherwise`. */
uint64_t argument(int argc, char **argv, int i, uint64_t otherwise);

/* Fixtures of a group: a world that is saved, of sets that processes share, or that are private,
 * and fibers in it. */
int stepped_setup(void **state);
int stepped_setup_private(void **state);
int stepped_teardown(void **state);

#endif
