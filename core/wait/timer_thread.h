/* SPDX-License-Identifier: MIT */
/*
 * The timekeeper: the thread that moves an instance's own keeper, for acquisitions that are waited
 * for by a descriptor, and the queues that are attached to a ring. Started when the first of either
 * is there. With an injected clock there is none, except to post what threads of the program cannot.
 */
#ifndef WEIR_CORE_WAIT_TIMER_THREAD_H
#define WEIR_CORE_WAIT_TIMER_THREAD_H

#include <stdbool.h>
#include <stdint.h>
#include <weir/clock.h>

/*
 * Makes room for one more acquisition and starts the thread if there is none. Returns 0, -ENOMEM,
 * -ESHUTDOWN or what the kernel said. timer_thread_forget() takes the room back, and the record out.
 */
int timer_thread_reserve(weir *w);
void timer_thread_forget(weir *w, uint32_t record);

/* Starts the thread if there is none. Returns 0, -ENOMEM, -ESHUTDOWN or what the kernel said. */
int timer_thread_start(weir *w);
/* Has the thread look after all attached queues, soon. False: it could not be told. Any lock but
 * that of the instance's own keeper may be held. */
bool timer_thread_signal(weir *w);

/* If it spins, it does not spin beyond this instant. */
void timer_thread_limit_spin(weir *w, uint64_t at_ns);

/* Ends the thread. No acquisition pends any more. */
void timer_thread_stop(weir *w);

#endif
