/* SPDX-License-Identifier: MIT */
/*
 * Counts what becomes of the requests of each class, in a set with classes (class_order.h): besides
 * the counters of the set, by the same threads, and when those are counted. Empty requests count,
 * and nested ones, as of the class that they name.
 */
#ifndef WEIR_CORE_SET_CLASS_COUNT_H
#define WEIR_CORE_SET_CLASS_COUNT_H

#include "set/set.h"

struct acquire_op;

/* Counts a request of class `c` by what it came to: 0, it was granted without a wait; -ETIMEDOUT;
 * -EAGAIN, -ENOBUFS, -ERANGE or -EDEADLK, it was refused. Other results count nowhere. */
void class_count(struct thread_ctx *ctx, const weir_set *set, uint32_t c, int code);

/* Counts a grant to a waiter of class `c`. */
void class_count_waited(struct thread_ctx *ctx, const weir_set *set, uint32_t c, uint64_t wait_ns);

/* As set_acquire(), and counts what was decided at once: `acquire` of sets with classes. */
int set_acquire_classed(struct acquire_op *op, uint32_t record, enum wait_mode mode,
                        uint64_t max_wait_ns);

#endif
