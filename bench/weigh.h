/* SPDX-License-Identifier: MIT */
/*
 * What something takes of memory: by how much a process grows that does nothing else, so that
 * nothing was taken of its memory and given back before.
 */
#ifndef WEIR_BENCH_WEIGH_H
#define WEIR_BENCH_WEIGH_H

#include <stddef.h>

/* What this process has in memory now, in bytes, page tables included. */
double weigh_now(void);

/* Calls `run` in a process of its own, and copies what that leaves in `ret`: `size` bytes, at most
 * 4096. */
void weigh_apart(void (*run)(const void *argument, void *ret), const void *argument, void *ret,
                 size_t size);

#endif
