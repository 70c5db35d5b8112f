/* SPDX-License-Identifier: MIT */
/*
 * Measures memory by the growth of a process that does nothing else, so that no memory of it was
 * used and freed before.
 */
#ifndef WEIR_BENCH_WEIGH_H
#define WEIR_BENCH_WEIGH_H

#include <stddef.h>

/* Returns the resident memory of this process, bytes, page tables included. */
double weigh_now(void);

/* Calls `run` in a process of its own, and copies its result to `ret`: `size` bytes, at most 4096.
 */
void weigh_apart(void (*run)(const void *argument, void *ret), const void *argument, void *ret,
                 size_t size);

#endif
