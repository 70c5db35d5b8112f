/* SPDX-License-Identifier: MIT */
/* Exit state of a thread of the program: tells other threads whether it has exited. */
#ifndef WEIR_CORE_BASE_THREAD_EXIT_H
#define WEIR_CORE_BASE_THREAD_EXIT_H

#include <stdbool.h>

struct thread_exit_state;

/* Returns a reference to the calling thread's exit state, or NULL: out of memory. Any thread may
 * drop it with thread_exit_unref. */
struct thread_exit_state *thread_exit_ref(void);
void thread_exit_unref(struct thread_exit_state *state); /* NULL: does nothing */

/* Returns true once the thread's own code has ended. Any thread with a reference. */
bool thread_exit_has_ended(const struct thread_exit_state *state);

#endif
