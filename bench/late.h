/* SPDX-License-Identifier: MIT */
/*
 * How late a grant comes that only time has to make: from the instant that weir_set_ready_at
 * foresaw until the waiter runs, beside a bare timer armed for instants of the same kind. Never
 * early: that ends the process.
 */
#ifndef WEIR_BENCH_LATE_H
#define WEIR_BENCH_LATE_H

#include "bench.h"

/* Makes the figures and what they need of the instance. */
void late_open(struct bench *bench, weir *w);
/* Measures each figure so often, on a processor of the waiter's own. */
void late_round(unsigned samples, unsigned processor);
void late_close(void);

#endif
