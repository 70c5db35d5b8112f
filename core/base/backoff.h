/* SPDX-License-Identifier: MIT */
/* Exponential back-off of a thread that lost a compare-and-swap. */
#ifndef WEIR_CORE_BASE_BACKOFF_H
#define WEIR_CORE_BASE_BACKOFF_H

/* Waits 2^turn pauses of the processor, then adds one to `*turn`, up to 6. */
void spin_backoff(unsigned *turn);

#endif
