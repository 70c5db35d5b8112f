/* SPDX-License-Identifier: MIT */
/* Whether a thread of the program still lives: said by the end of the thread itself. */
#ifndef WEIR_CORE_BASE_THREAD_EXIT_H
#define WEIR_CORE_BASE_THREAD_EXIT_H

#include <stdbool.h>

struct thread_exit_state;

/* That of the calling thread, or NULL: out of memory. Goes back with thread_exit_unref, in any thread. */
struct thread_exit_state *thread_exit_ref(void);
void thread_exit_unref(struct thread_exit_state *state); /* NULL is fine */

/* True from the moment when the thread's own code is over. */
bool thread_exit_has_ended(const struct thread_exit_state *state);

#endif
