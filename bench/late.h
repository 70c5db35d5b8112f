/* SPDX-License-Identifier: MIT */
/*
 * Lateness of a grant that only time makes: from the time that weir_set_ready_at forecast until the
 * waiter runs, beside a bare timer armed for such times. An early grant ends the process.
 */
#ifndef WEIR_BENCH_LATE_H
#define WEIR_BENCH_LATE_H

#include "bench.h"

/* Creates the figures and their sets. */
void late_open(struct bench *bench, weir *w);
/* Measures each figure `samples` times, on a processor of the waiter's own. */
void late_round(unsigned samples, unsigned processor);
void late_close(void);

#endif
