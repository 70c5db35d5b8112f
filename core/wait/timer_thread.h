/* SPDX-License-Identifier: MIT */
/*
 * The thread that runs the timer of the instance, for acquisitions that are waited for by a
 * descriptor. It also runs the timers of completion queues that are attached to a ring. The first
 * of either starts it. With an injected clock there is no thread, except to post where threads of
 * the program cannot.
 */
#ifndef WEIR_CORE_WAIT_TIMER_THREAD_H
#define WEIR_CORE_WAIT_TIMER_THREAD_H

#include <stdbool.h>
#include <stdint.h>
#include <weir/clock.h>

/*
 * Reserves room for one more acquisition, and starts the thread if there is none. Returns 0,
 * -ENOMEM, -ESHUTDOWN or the error of the kernel. timer_thread_forget() takes the record out and
 * returns the room.
 */
int timer_thread_reserve(weir *w);
void timer_thread_forget(weir *w, uint32_t record);

/* Starts the thread if there is none. Returns 0, -ENOMEM, -ESHUTDOWN or the error of the kernel. */
int timer_thread_start(weir *w);
/* Makes the thread service all attached queues soon. Returns false if it cannot be signaled. Any
 * lock may be held except that of the instance's timer. */
bool timer_thread_signal(weir *w);

/* Limits a spin of the thread, if it spins, to end at `at_ns`. */
void timer_thread_limit_spin(weir *w, uint64_t at_ns);

/* Ends the thread. The caller guarantees that no acquisition is pending. */
void timer_thread_stop(weir *w);

#endif
